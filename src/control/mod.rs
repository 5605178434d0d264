//! Executes the requests of the exec protocol in the process that has the database open. They
//! arrive on its standard input (`rowstone exec`) or on the control socket, a Unix socket in the
//! directory of the database to which commands of other processes connect.
//!
//! `answer` executes a request. `server` owns the socket and its connections. `client` connects to
//! the server of another process.
//!
//! Not here: the form of requests and responses (`json::exec`).

pub(crate) mod answer;
pub(crate) mod client;
#[cfg(target_os = "linux")]
mod server;
#[cfg(all(test, target_os = "linux"))]
mod tests;

use std::any::Any;

use crate::db::Db;
use crate::error::Result;
use crate::options::{Companion, Options};

impl Options {
    /// Sets whether this process listens on the local socket `CONTROL` in the database's directory
    /// while it has the database open for writing. Commands of `rowstone` that write to the
    /// database then send their requests to the socket, and threads of the library execute them.
    /// Without the socket, such commands are refused while this process has the database open. At
    /// most eight connections are served at a time, and only those of the same user or of root.
    /// Closing the database removes the socket. Default: false.
    ///
    /// Only Linux has the socket; elsewhere this setting has no effect. If the socket cannot be
    /// created, for example because the file system has no sockets, opening succeeds, and
    /// [`OpenReport::warnings`](crate::repair::OpenReport::warnings) contains the reason. While a
    /// request is executed, dropping the last handle does not close the database.
    /// [`Db::close`](crate::Db::close) ends the request.
    pub fn control(self, listen: bool) -> Self {
        Self { companion: listen.then_some(start), ..self }
    }
}

/// Starts the server of the control socket for an open [`Db`]. Does nothing except on Linux.
fn start(db: &dyn Any) -> Result<Companion> {
    match db.downcast_ref::<Db>() {
        #[cfg(target_os = "linux")]
        Some(db) => Ok(Box::new(server::Server::start(db)?)),
        _ => Ok(Box::new(())),
    }
}

//! Requests of the exec protocol, carried out by the process that has the database open: those of
//! `rowstone exec`, and those that other processes send to the control socket.
//!
//! `answer` carries out a request, `server` has the socket and its connections, `client` connects
//! to the server of another process.
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
    /// Sets whether the database listens on the local socket `CONTROL` in its directory while it is
    /// open for writing. The commands of `rowstone` that must write send their requests there, so
    /// that they work on a database that this process has open. Only processes of the same user,
    /// or of root, are served, eight at a time, by threads of the library. The socket ends with the
    /// database. Default: false.
    ///
    /// Only Linux has the socket; elsewhere this setting has no effect. If the file system has no
    /// sockets, opening succeeds, and [`OpenReport::warnings`](crate::OpenReport::warnings) names
    /// the reason. A request in progress keeps the database open when its last handle is dropped;
    /// [`Db::close`](crate::Db::close) ends the request.
    pub fn control(self, listen: bool) -> Self {
        Self { companion: listen.then_some(start), ..self }
    }
}

/// Starts the server of an open [`Db`].
fn start(db: &dyn Any) -> Result<Companion> {
    match db.downcast_ref::<Db>() {
        #[cfg(target_os = "linux")]
        Some(db) => Ok(Box::new(server::Server::start(db)?)),
        _ => Ok(Box::new(())),
    }
}

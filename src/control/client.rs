//! The client of the control socket: sends requests to the process that has a database open.
//!
//! Invariant: requests are sent only to a process that has the database in the given directory
//! open. Its server sends the id of the database first, and the client compares this id with the
//! manifest in the directory.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use super::answer::LINE_BYTES_MAX;
use crate::db::companion::id_in;
use crate::error::{Error, ErrorKind, Result};
use crate::json::answer::Answer;
use crate::json::exec::read_progress;
use crate::json::window::Lines;

/// A connection to the process that has a database open.
pub(crate) struct Client {
    requests: Stream,
    responses: Lines<Stream>,
}

/// The time limit for the first line of the server, which it sends after accepting a connection.
const GREETING_TIME: Duration = Duration::from_secs(10);

impl Client {
    /// Connects to the process that has the database in `dir` open. Returns `None` if no process
    /// listens.
    ///
    /// # Errors
    /// `InvalidInput` if the process has another database open; `Io`, for example if the socket
    /// belongs to another user; the error with which the server refuses the connection; errors of
    /// reading the manifest.
    pub(crate) fn connect(dir: &Path) -> Result<Option<Self>> {
        let failed = |error| Error::io(format!("connect to {}", name(dir)), error);
        let Some(requests) = stream(dir).map_err(failed)? else { return Ok(None) };
        requests.set_read_timeout(Some(GREETING_TIME)).map_err(failed)?;
        let responses = Lines::new(requests.try_clone().map_err(failed)?, LINE_BYTES_MAX);
        let mut client = Self { requests, responses };
        let greeting = client.next_line().and_then(Answer::read)?;
        client.requests.set_read_timeout(None).map_err(failed)?;
        if greeting.text("database") != Some(id_in(dir)?) {
            let problem = format!("the process at {} has another database open", name(dir));
            return Err(Error::new(ErrorKind::InvalidInput, problem));
        }
        Ok(Some(client))
    }

    /// Sets the time within which each response must begin. Without it, a request waits for a
    /// process that is stopped. After an error the client must not be used again, since the
    /// response may still arrive.
    ///
    /// # Errors
    /// `Io`.
    #[cfg(feature = "remote")]
    pub(crate) fn bound(&self) -> Result<()> {
        let bound = self.requests.set_read_timeout(Some(GREETING_TIME));
        let bound = bound.and_then(|()| self.requests.set_write_timeout(Some(GREETING_TIME)));
        bound.map_err(|error| Error::io("bound the time of a response", error))
    }

    /// Sends a request and waits for its response. Calls `progress` for each progress line with the
    /// amount of work done and the total, which is 0 if unknown.
    ///
    /// # Errors
    /// The error in the response. `Io` if the connection ends before the response; the request may
    /// then have been executed.
    pub(crate) fn ask(
        &mut self,
        request: &str,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Answer> {
        let sent = self.requests.write_all(format!("{request}\n").as_bytes());
        sent.map_err(|error| Error::io("send to the process that has the database open", error))?;
        loop {
            let line = self.next_line()?;
            match read_progress(&line) {
                Some((done, of)) => progress(done, of),
                None => return Answer::read(line),
            }
        }
    }

    fn next_line(&mut self) -> Result<String> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                let seconds = GREETING_TIME.as_secs();
                let problem = format!("the other process does not answer within {seconds} s");
                Error::new(ErrorKind::Timeout, problem)
            }
            _ => Error::io("read a response of the other process", error),
        };
        let line = self.responses.next().map_err(failed)?;
        let ended = "the other process has ended, or has closed the database";
        let line =
            line.ok_or_else(|| failed(io::Error::new(io::ErrorKind::UnexpectedEof, ended)))?;
        let long = || io::Error::other(format!("it is longer than {LINE_BYTES_MAX} bytes"));
        let bytes = line.bytes.ok_or_else(|| failed(long()))?;
        String::from_utf8(bytes.to_vec()).map_err(|error| failed(io::Error::other(error)))
    }
}

fn name(dir: &Path) -> String {
    dir.join("CONTROL").display().to_string()
}

#[cfg(target_os = "linux")]
type Stream = std::os::unix::net::UnixStream;
/// A placeholder: there is no control socket, so no client connects.
#[cfg(not(target_os = "linux"))]
type Stream = std::net::TcpStream;

#[cfg(target_os = "linux")]
fn stream(dir: &Path) -> io::Result<Option<Stream>> {
    use crate::format::names::FileName;
    let [name, owned] = [FileName::Control, FileName::Lock].map(|name| name.to_string());
    crate::fs::connect(dir, &name, &owned)
}

#[cfg(not(target_os = "linux"))]
fn stream(_dir: &Path) -> io::Result<Option<Stream>> {
    Ok(None)
}

//! The server of the control socket. A thread accepts connections; each has a thread of its own.
//!
//! Invariants
//! * the server keeps the database open only while it executes a request;
//! * no thread outlives the [`Server`], except the one that drops it;
//! * the socket is created after the lock file is locked, and removed before it is unlocked.
//!
//! A connection begins with a line of the server: `{"ok":true,"database":"<id>"}`. Each request
//! gets any number of lines `{"progress":[done,total]}` and one response. If the client has closed
//! the connection, the request ends at its next progress line.

use std::io::{self, Write};
use std::net;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt::socket_peercred};
use rustix::process::geteuid;

use super::answer::{LINE_BYTES_MAX, respond};
use crate::db::Db;
use crate::db::companion::WeakDb;
use crate::error::{Code, Error, ErrorKind, Result};
use crate::format::names::FileName;
use crate::fs::Fs;
use crate::json::exec::{Response, progress_line};
use crate::json::window::Lines;
use crate::sync::{Condvar, Mutex};

/// The maximum number of connections, each of which has a thread.
const CONNECTIONS_MAX: usize = 8;
/// The pause after an attempt to accept a connection failed, for example because no descriptor is
/// free.
const PAUSE: Duration = Duration::from_secs(1);

/// The running server. Dropping it removes the socket and ends all connections.
pub(super) struct Server {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    listener: Arc<UnixListener>,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    connections: Mutex<Vec<Connection>>,
    is_ending: Mutex<bool>,
    ends: Condvar,
}

struct Connection {
    stream: Arc<UnixStream>,
    /// Whether it waits for a request after its first one. It may be closed then.
    is_idle: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Shared {
    fn new() -> Self {
        let (connections, is_ending) = (Mutex::new(Vec::new()), Mutex::new(false));
        Self { connections, is_ending, ends: Condvar::new() }
    }
}

impl Server {
    /// Creates the socket and starts the thread that accepts connections.
    ///
    /// # Errors
    /// `Io` if the socket or the thread cannot be created.
    pub(super) fn start(db: &Db) -> Result<Self> {
        let (dir, fs) = db.place();
        let path = dir.join(FileName::Control.to_string());
        let failed = |error| Error::io(format!("no control socket {}", path.display()), error);
        let greeting = Response::ok().text("database", &db.id()?).into_line();
        let listener = Arc::new(fs.listen(&path).map_err(failed)?);
        let shared = Arc::new(Shared::new());
        let mut server = Self { fs: Arc::clone(fs), path, listener, shared, acceptor: None };
        let (listener, shared) = (Arc::clone(&server.listener), Arc::clone(&server.shared));
        let db = Arc::new(db.downgrade());
        let accept = move || accept(&listener, &db, &greeting.into(), &shared);
        let thread = named().spawn(accept).map_err(|error| Error::io("start a thread", error));
        server.acceptor = Some(thread?);
        Ok(server)
    }
}

fn named() -> thread::Builder {
    thread::Builder::new().name("rowstone-control".to_owned())
}

impl Drop for Server {
    fn drop(&mut self) {
        *self.shared.is_ending.lock() = true;
        self.shared.ends.notify_all();
        // If the socket cannot be removed, the next server replaces it.
        drop(self.fs.remove(&self.path));
        _ = shutdown(&self.listener, Shutdown::Both);
        self.acceptor.take().into_iter().for_each(|thread| drop(thread.join()));
        for connection in self.shared.connections.lock().drain(..) {
            // This thread executed a request and then dropped the last handle of the database. It
            // still sends the response, and then ends because there is no more input.
            if connection.thread.thread().id() == thread::current().id() {
                drop(connection.stream.shutdown(net::Shutdown::Read));
                continue;
            }
            drop(connection.stream.shutdown(net::Shutdown::Both));
            drop(connection.thread.join());
        }
    }
}

/// Accepts connections until the server ends.
fn accept(listener: &UnixListener, db: &Arc<WeakDb>, greeting: &Arc<[u8]>, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept();
        let mut is_ending = shared.is_ending.lock();
        if !*is_ending && accepted.is_err() {
            shared.ends.wait_for(&mut is_ending, PAUSE);
        }
        if *is_ending {
            return;
        }
        drop(is_ending);
        let Ok((stream, _)) = accepted else { continue };
        let mut connections = shared.connections.lock();
        connections.retain(|connection| !connection.thread.is_finished());
        if let Err(error) = admit(&stream, &mut connections) {
            drop(write(&stream, &Response::error(&error).into_line()));
            continue;
        }
        let stream = Arc::new(stream);
        let (db, greeting) = (Arc::clone(db), Arc::clone(greeting));
        let is_idle = Arc::new(AtomicBool::new(false));
        let (served, shared, idle) =
            (Arc::clone(&stream), Arc::clone(shared), Arc::clone(&is_idle));
        let serve = move || {
            let connection = Open(served);
            drop(serve(&connection.0, &db, &greeting, (&shared, &idle)));
        };
        // If no thread can be started, this drops the stream, which closes the connection.
        if let Ok(thread) = named().spawn(serve) {
            connections.push(Connection { stream, is_idle, thread });
        }
    }
}

/// Shuts down the connection when dropped, even after a panic. Dropping the stream itself would not
/// close it, because `Shared::connections` also holds it.
struct Open(Arc<UnixStream>);

impl Drop for Open {
    fn drop(&mut self) {
        drop(self.0.shutdown(net::Shutdown::Both));
    }
}

/// Returns an error if the connection is to be refused: its user is neither this process's user nor
/// root, or there are [`CONNECTIONS_MAX`] others, none of them idle.
fn admit(stream: &UnixStream, connections: &mut Vec<Connection>) -> Result<()> {
    let peer =
        socket_peercred(stream).map_err(|error| Error::io("identify the client", error.into()));
    let peer = peer?.uid;
    if peer != geteuid() && !peer.is_root() {
        let problem = "the control socket accepts only root and the user of its process";
        return Err(Error::new(ErrorKind::InvalidInput, problem));
    }
    if connections.len() >= CONNECTIONS_MAX && !close_idle(connections) {
        let problem = "the control socket has no free connection; wait until a command ends";
        return Err(Error::refused_with(Code::ServerBusy, problem));
    }
    Ok(())
}

/// Closes the oldest idle connection, such as that of a command that waits for its input or for its
/// user. Returns false if none is idle.
fn close_idle(connections: &mut Vec<Connection>) -> bool {
    let take = |connection: &Connection| connection.is_idle.swap(false, Ordering::AcqRel);
    let Some(at) = connections.iter().position(take) else { return false };
    let connection = connections.remove(at);
    drop(connection.stream.shutdown(net::Shutdown::Both));
    drop(connection.thread.join());
    true
}

/// Executes the requests of a connection until the client closes it or the server ends. Sets
/// `is_idle` while it waits for a further request; if the acceptor clears it, no request follows.
fn serve(
    stream: &UnixStream,
    db: &WeakDb,
    greeting: &[u8],
    (shared, is_idle): (&Shared, &AtomicBool),
) -> io::Result<()> {
    write(stream, greeting)?;
    let mut lines = Lines::new(stream, LINE_BYTES_MAX);
    let mut is_first = true;
    while let Some(line) = lines.next()? {
        if !is_idle.swap(false, Ordering::AcqRel) && !is_first {
            return Ok(());
        }
        is_first = false;
        let Some(db) = db.upgrade() else { return Ok(()) };
        let response = respond(&db, line.bytes, &mut |done, of| {
            if *shared.is_ending.lock() || is_closed(stream) {
                return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the request is cancelled"));
            }
            tell(stream, progress_line(done, of).as_bytes())
        });
        // If this is the last handle, dropping it closes the database. It is dropped before the
        // response, so that the client can then open the database.
        drop(db);
        write(stream, &response)?;
        is_idle.store(true, Ordering::Release);
    }
    Ok(())
}

/// Returns true if the client closed the connection. Cannot detect this while there is unread
/// input, but a client sends nothing while it waits for a response.
pub(super) fn is_closed(stream: &UnixStream) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    matches!(recv(stream, &mut [0_u8; 1], flags), Ok((_, 0)))
}

/// Sends a progress line, or drops it if the send buffer is full because the client reads too
/// slowly. Blocks only to complete a line that was sent in part.
fn tell(stream: &UnixStream, line: &[u8]) -> io::Result<()> {
    match send(stream, line, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Ok(sent) => write(stream, line.get(sent..).unwrap_or_default()),
        Err(error) if error == rustix::io::Errno::AGAIN => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn write(stream: &UnixStream, bytes: &[u8]) -> io::Result<()> {
    Peer(stream).write_all(bytes)
}

/// Writes to a connection. If the client closed it, a write returns an error instead of
/// raising `SIGPIPE`.
struct Peer<'s>(&'s UnixStream);

impl Write for Peer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

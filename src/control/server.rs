//! The server of the control socket: one thread accepts connections, and one per connection carries
//! out its requests.
//!
//! Invariants
//! * the server does not keep the database open, except while it carries out a request;
//! * no thread outlives the [`Server`], except the one that drops it;
//! * the socket exists only while the lock on the directory is held.
//!
//! A connection begins with a line of the server, `{"ok":true,"database":"<id>"}`. Each request
//! then gets any number of lines `{"progress":[done,total]}` and one response. A request ends early
//! if its client closes the connection.

use std::io::{self, Write};
use std::net;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
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

/// The maximum number of connections; each has a thread.
const CONNECTIONS_MAX: usize = 8;
/// The pause before the next attempt to accept a connection if descriptors are short.
const PAUSE: Duration = Duration::from_secs(1);

/// The running server; dropping it ends all connections.
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
    thread: JoinHandle<()>,
}

impl Shared {
    fn new() -> Self {
        let (connections, is_ending) = (Mutex::new(Vec::new()), Mutex::new(false));
        Self { connections, is_ending, ends: Condvar::new() }
    }
}

impl Server {
    /// Makes the socket and starts the thread that accepts connections.
    ///
    /// # Errors
    /// `Io` if the file system has no sockets, or the limit of threads is reached.
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
        // A socket that stays is replaced by the next opening.
        drop(self.fs.remove(&self.path));
        _ = shutdown(&self.listener, Shutdown::Both);
        self.acceptor.take().into_iter().for_each(|thread| drop(thread.join()));
        for connection in self.shared.connections.lock().drain(..) {
            // The thread of a request that dropped the last handle responds, and ends by itself.
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
        if let Err(error) = admit(&stream, connections.len()) {
            drop(write(&stream, &Response::error(&error).into_line()));
            continue;
        }
        let stream = Arc::new(stream);
        let (db, greeting) = (Arc::clone(db), Arc::clone(greeting));
        let (served, shared) = (Arc::clone(&stream), Arc::clone(shared));
        let serve = move || {
            let connection = Open(served);
            drop(serve(&connection.0, &db, &greeting, &shared));
        };
        // Without a thread, the client finds the connection closed.
        if let Ok(thread) = named().spawn(serve) {
            connections.push(Connection { stream, thread });
        }
    }
}

/// Closes the connection when dropped, also by a panic; the acceptor has the stream, too.
struct Open(Arc<UnixStream>);

impl Drop for Open {
    fn drop(&mut self) {
        drop(self.0.shutdown(net::Shutdown::Both));
    }
}

/// Refuses a connection of another user, and one beyond the maximum.
fn admit(stream: &UnixStream, connections: usize) -> Result<()> {
    let peer =
        socket_peercred(stream).map_err(|error| Error::io("identify the user", error.into()));
    let peer = peer?.uid;
    if peer != geteuid() && !peer.is_root() {
        let problem = "the control socket serves the user of its process, and root";
        return Err(Error::new(ErrorKind::InvalidInput, problem));
    }
    if connections >= CONNECTIONS_MAX {
        let problem = "the control socket serves other commands; wait until one of them ends";
        return Err(Error::refused_with(Code::ServerBusy, problem));
    }
    Ok(())
}

/// Carries out the requests of a connection until it or the server ends.
fn serve(stream: &UnixStream, db: &WeakDb, greeting: &[u8], shared: &Shared) -> io::Result<()> {
    write(stream, greeting)?;
    let mut lines = Lines::new(stream, LINE_BYTES_MAX);
    while let Some(line) = lines.next()? {
        let Some(db) = db.upgrade() else { return Ok(()) };
        let response = respond(&db, line.bytes, &mut |done, of| {
            if *shared.is_ending.lock() || is_closed(stream) {
                return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the client has gone"));
            }
            tell(stream, progress_line(done, of).as_bytes())
        });
        // Dropping the last handle closes the database, so that the client may open it now.
        drop(db);
        write(stream, &response)?;
    }
    Ok(())
}

/// True if the client closed the connection. It sends nothing during a request.
pub(super) fn is_closed(stream: &UnixStream) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    matches!(recv(stream, &mut [0_u8; 1], flags), Ok((_, 0)))
}

/// Sends a line of progress, unless the client is behind with reading.
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

/// Writes to a connection without the signal that a closed one causes by default.
struct Peer<'s>(&'s UnixStream);

impl Write for Peer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

//! Tests that concurrent requests share group commits. Many clients write at the same time, and
//! syncs of the log are held until all clients have written or until the test releases them.
//!
//! Not here: how many commits share a sync on a real disk, which depends on the disk
//! (`tests/it/rest`).

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Barrier};

use crate::clock::{Clock, SystemClock};
use crate::db::Db;
use crate::fs::{Fault, FaultFs, FaultKind, MemFs, OpKind};
use crate::model::DateTime;
use crate::rest::Settings;
use crate::rest::accounts::{AccountConfig, Accounts};
use crate::rest::http::limits::Limits;
use crate::rest::http::server::{self, Server};
use crate::rest::http::worker_pool::WorkerPool;
use crate::rest::protocol::address::Parameters;
use crate::rest::protocol::sign::{
    AccountKey, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Scheme, SignedParts,
};
use crate::rest::protocol::time;
use crate::rest::service::Service;
use crate::sync::{AtomicBool, Ordering};

const CLIENTS: u64 = 32;
const ROUNDS: u64 = 10;
/// The number of iterations (some minutes) after which [`wait_until`] gives up.
const LOOKS_MAX: u64 = 100_000_000;

/// Blocks a sync of the log until every client has queued its insert of the current turn (see
/// [`client`]). Contains the database, and its number of commits before the first turn.
struct Gate(Db, u64);

impl Gate {
    fn wait(&self) {
        let queued = || counter(&self.0, "commits") - self.1;
        let turn = queued().div_ceil(CLIENTS);
        wait_until(|| queued() >= turn * CLIENTS);
    }
}

/// Waits until `is_so`, for at most [`LOOKS_MAX`] iterations.
fn wait_until(is_so: impl Fn() -> bool) {
    for _ in 0..LOOKS_MAX {
        if is_so() {
            return;
        }
        std::thread::yield_now();
    }
}

fn counter(db: &Db, name: &str) -> u64 {
    db.stats().get(name).unwrap()
}

/// Returns a signed request for a path under the account.
fn request(method: &str, path: &str, body: &str) -> Vec<u8> {
    let path = format!("/{DEVELOPMENT_ACCOUNT}/{path}");
    let date = time::http(DateTime::from_ticks(SystemClock::new().now()).unwrap());
    let headers = [("x-ms-date", date.as_str())];
    let query = Parameters::default();
    let request = SignedParts::of(method, &path, &query, headers.as_slice());
    let key = AccountKey::read(DEVELOPMENT_KEY).unwrap();
    let signed = request.sign(Scheme::SharedKeyLite, DEVELOPMENT_ACCOUNT, &key);
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nx-ms-date: {date}\r\nAuthorization: {signed}\r\n\
         Prefer: return-no-content\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    request.into_bytes()
}

/// Returns an insert of an entity with this key.
fn insert(partition_key: u64, row_key: u64) -> Vec<u8> {
    let body = format!(r#"{{"PartitionKey":"{partition_key}","RowKey":"{row_key}"}}"#);
    request("POST", "people", &body)
}

/// Sends a request and returns the head of the response. The connection can be reused only if the
/// response has no body.
fn ask(stream: &mut TcpStream, request: &[u8]) -> String {
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        answer.extend_from_slice(&byte);
    }
    String::from_utf8(answer).unwrap()
}

/// Runs one client, which inserts one entity per turn. A turn begins when all clients have
/// completed the previous one.
fn client(at: SocketAddr, number: u64, turns: &Barrier) {
    let mut stream = TcpStream::connect(at).unwrap();
    for turn in 0..ROUNDS {
        turns.wait();
        let answer = ask(&mut stream, &insert(number, turn));
        assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    }
}

/// Serves `db` while `clients` run.
fn serve(db: &Db, clients: impl FnOnce(SocketAddr)) {
    let opened =
        Accounts::open(vec![AccountConfig::development()], |_| Ok::<_, io::Error>(db.clone()));
    let service = Arc::new(Service::new(opened.unwrap(), Settings::default()));
    let limits = Limits::default();
    let pool = WorkerPool::new(limits.requests).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let listener = pool.run(server::listen("127.0.0.1:0".parse().unwrap())).unwrap();
    let at = listener.local_addr().unwrap();
    let server = Server { service, limits, tls: None };
    std::thread::scope(|scope| {
        // Stops the server when the clients end, even by a panic.
        let _stop = stop;
        let stopped = async { drop(stopped.await) };
        scope.spawn(|| pool.run(server.run(listener, &pool, stopped)));
        clients(at);
    });
}

#[test]
fn durable_writes_of_concurrent_requests_share_syncs() {
    let fs = FaultFs::new(Arc::new(MemFs::new()));
    let db = Db::options().fs(Arc::new(fs.clone())).open("shared").unwrap();
    db.create_table("people").unwrap();
    let [commits, syncs] = ["commits", "log_syncs"].map(|name| counter(&db, name));
    let gate = Gate(db.clone(), commits);
    fs.guard_syncs(move |_, path| {
        if path.extension().is_some_and(|extension| extension == "wal") {
            gate.wait();
        }
        true
    });
    serve(&db, |at| {
        let turns = Barrier::new(CLIENTS as usize);
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let turns = &turns;
                scope.spawn(move || client(at, number, turns));
            }
        });
    });
    let commits = counter(&db, "commits") - commits;
    let syncs = counter(&db, "log_syncs") - syncs;
    assert_eq!(commits, CLIENTS * ROUNDS);
    assert!(syncs > 0 && commits / syncs >= 8, "{commits} commits took {syncs} syncs");
}

#[test]
fn commits_that_wait_for_the_disk_block_no_other_connection() {
    let fs = FaultFs::new(Arc::new(MemFs::new()));
    let db = Db::options().fs(Arc::new(fs.clone())).open("slow").unwrap();
    db.create_table("people").unwrap();
    let before = counter(&db, "commits");
    let is_over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_over);
    fs.guard_syncs(move |_, path| {
        let is_log = path.extension().is_some_and(|extension| extension == "wal");
        wait_until(|| !is_log || told.load(Ordering::SeqCst));
        true
    });
    serve(&db, |at| {
        let known: Vec<_> = (0..ROUNDS).map(|_| TcpStream::connect(at).unwrap()).collect();
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                scope.spawn(move || {
                    let answer = ask(&mut TcpStream::connect(at).unwrap(), &insert(number, 0));
                    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
                });
            }
            wait_until(|| counter(&db, "commits") - before == CLIENTS);
            let nothing = request("GET", "people(PartitionKey='x',RowKey='x')", "");
            for mut stream in known.into_iter().chain([TcpStream::connect(at).unwrap()]) {
                let answer = ask(&mut stream, &nothing);
                assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
            }
            is_over.store(true, Ordering::SeqCst);
        });
    });
}

/// Creating a table blocks a thread of the server until the disk responds. Meanwhile the server
/// must still answer requests on other connections.
#[test]
fn a_request_that_waits_for_the_disk_blocks_no_other_connection() {
    let fs = FaultFs::new(Arc::new(MemFs::new()));
    let db = Db::options().fs(Arc::new(fs.clone())).open("slow").unwrap();
    db.create_table("people").unwrap();
    let [is_waiting, is_over, is_created] =
        std::array::from_fn(|_| Arc::new(AtomicBool::new(false)));
    let (waiting, over) = (Arc::clone(&is_waiting), Arc::clone(&is_over));
    fs.guard_syncs(move |_, path| {
        if path.extension().is_some_and(|extension| extension == "wal") {
            waiting.store(true, Ordering::SeqCst);
            wait_until(|| over.load(Ordering::SeqCst));
        }
        true
    });
    serve(&db, |at| {
        let known = TcpStream::connect(at).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let create = request("POST", "Tables", r#"{"TableName":"things"}"#);
                let answer = ask(&mut TcpStream::connect(at).unwrap(), &create);
                is_created.store(true, Ordering::SeqCst);
                assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
            });
            wait_until(|| is_waiting.load(Ordering::SeqCst));
            for mut stream in [known, TcpStream::connect(at).unwrap()] {
                let answer = ask(&mut stream, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
                assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                assert!(!is_created.load(Ordering::SeqCst), "the read waited for the table");
            }
            is_over.store(true, Ordering::SeqCst);
        });
    });
}

#[test]
fn a_failed_sync_is_reported_to_every_request_that_shared_it() {
    let fs = FaultFs::new(Arc::new(MemFs::new()));
    let db = Db::options().fs(Arc::new(fs.clone())).open("failing").unwrap();
    db.create_table("people").unwrap();
    serve(&db, |at| {
        let before = ask(&mut TcpStream::connect(at).unwrap(), &insert(0, 0));
        assert!(before.starts_with("HTTP/1.1 204"), "{before}");
        fs.arm(Fault::new(FaultKind::Eio).on(OpKind::Sync).on_path("wal").sticky());
        std::thread::scope(|scope| {
            for number in 1..=CLIENTS {
                scope.spawn(move || {
                    let mut stream = TcpStream::connect(at).unwrap();
                    let answer = ask(&mut stream, &insert(number, 0));
                    assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
                    assert!(answer.contains("x-ms-error-code: InternalError"), "{answer}");
                });
            }
        });
    });
    let people = db.table("people").unwrap();
    assert_eq!(people.query("").unwrap().count().unwrap(), 1, "a failed write was never visible");
}

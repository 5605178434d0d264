//! Tests the control socket: its creation and removal, connections, requests and cancellation.
#![expect(clippy::disallowed_methods, reason = "sockets are outside of the simulated file system")]

use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use super::answer::answer;
use super::client::Client;
use super::server::is_closed;
use crate::db::Db;
use crate::error::{Error, ErrorKind, Result};
use crate::json::answer::Answer;
use crate::json::exec::read_request;
use crate::model::Entity;
use crate::options::{Background, Options};

fn options() -> Options {
    Db::options().background(Background::Manual).control(true)
}

fn open(dir: &Path) -> Db {
    let db = options().open(dir).unwrap();
    assert_eq!(db.opened().warnings, [""; 0]);
    db
}

fn connect(dir: &Path) -> Client {
    Client::connect(dir).unwrap().expect("a process listens")
}

fn ask(client: &mut Client, request: &str) -> Result<Answer> {
    client.ask(request, &mut |_, _| ())
}

const CREATE: &str = r#"{"op":"create_table","table":"parts"}"#;
const INSERT: &str =
    r#"{"op":"insert","table":"parts","entity":{"PartitionKey":"p","RowKey":"r","A":1}}"#;

#[test]
fn requests_are_executed_until_the_database_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let socket = dir.path().join("CONTROL");
    let found = socket.symlink_metadata().unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    let (mut client, mut other) = (connect(dir.path()), connect(dir.path()));
    ask(&mut client, CREATE).unwrap();
    let error = ask(&mut other, CREATE).unwrap_err();
    assert_eq!((error.code(), error.kind()), ("TableAlreadyExists", ErrorKind::AlreadyExists));
    assert!(ask(&mut other, INSERT).unwrap().text("etag").is_some());
    assert!(db.table("parts").unwrap().get("p", "r").unwrap().is_some());
    let error = ask(&mut client, "nonsense").unwrap_err();
    assert_eq!(error.code(), "InvalidInput");
    db.close().unwrap();
    assert!(!socket.exists());
    assert_eq!(ask(&mut client, CREATE).map(drop).unwrap_err().kind(), ErrorKind::Io);
    assert!(Client::connect(dir.path()).unwrap().is_none());
}

#[test]
fn a_connection_does_not_keep_the_database_open() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let mut client = connect(dir.path());
    ask(&mut client, CREATE).unwrap();
    drop(db);
    let db = open(dir.path());
    assert_eq!(db.tables().unwrap(), ["parts"]);
    assert!(ask(&mut client, r#"{"op":"tables"}"#).is_err());
    assert!(ask(&mut connect(dir.path()), r#"{"op":"tables"}"#).is_ok());
}

#[test]
fn only_a_stale_socket_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("CONTROL");
    open(dir.path()).close().unwrap();
    drop(UnixListener::bind(&socket).unwrap());
    assert!(Client::connect(dir.path()).unwrap().is_none(), "no process listens");
    let db = open(dir.path());
    connect(dir.path());
    // The second opening fails, and must not replace the socket of the first.
    assert_eq!(options().open(dir.path()).unwrap_err().kind(), ErrorKind::Locked);
    connect(dir.path());
    db.close().unwrap();
    std::fs::write(&socket, "kept").unwrap();
    let db = options().open(dir.path()).unwrap();
    let warnings = db.opened().warnings;
    assert!(warnings.len() == 1 && warnings[0].contains("not a socket"), "{warnings:?}");
    assert!(Client::connect(dir.path()).unwrap().is_none());
    db.close().unwrap();
    assert_eq!(std::fs::read(&socket).unwrap(), b"kept");
}

#[test]
fn opening_without_sockets_succeeds_with_a_warning() {
    let db = options().open_in_memory().unwrap();
    let warnings = db.opened().warnings;
    assert!(warnings.len() == 1 && warnings[0].contains("no control socket"), "{warnings:?}");
}

#[test]
fn a_database_with_a_long_path_listens() {
    let dir = tempfile::tempdir().unwrap();
    let long = dir.path().join("d".repeat(120)).join("e".repeat(120));
    let db = open(&long);
    ask(&mut connect(&long), CREATE).unwrap();
    assert_eq!(db.tables().unwrap(), ["parts"]);
    db.close().unwrap();
    assert!(!long.join("CONTROL").exists());
}

#[test]
fn a_client_refuses_the_socket_of_another_database() {
    let dir = tempfile::tempdir().unwrap();
    let (one, copy) = (dir.path().join("one"), dir.path().join("copy"));
    let db = open(&one);
    db.checkpoint(&copy).unwrap();
    let other = open(&copy);
    std::fs::rename(copy.join("CONTROL"), one.join("CONTROL")).unwrap();
    let error = Client::connect(&one).map(drop).unwrap_err();
    assert!(error.message().contains("another database"), "{error}");
    drop((db, other));
}

#[test]
fn a_connection_beyond_the_maximum_is_refused_unless_another_one_is_idle() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let mut clients: Vec<Client> = (0..8).map(|_| connect(dir.path())).collect();
    let error = Client::connect(dir.path()).map(drop).unwrap_err();
    assert_eq!(error.code(), "ServerBusy");
    // The third client waits after its first request, for example for its user.
    ask(&mut clients[2], CREATE).unwrap();
    let mut ninth = loop {
        // The server marks the connection as idle just after its response.
        match Client::connect(dir.path()) {
            Ok(client) => break client.unwrap(),
            Err(error) => assert_eq!(error.code(), "ServerBusy"),
        }
    };
    ask(&mut ninth, INSERT).unwrap();
    assert_eq!(ask(&mut clients[2], INSERT).map(drop).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(ask(&mut clients[3], INSERT).map(drop).unwrap_err().code(), "EntityAlreadyExists");
    db.close().unwrap();
}

#[test]
fn requests_are_executed_while_only_a_table_keeps_the_database_open() {
    let dir = tempfile::tempdir().unwrap();
    let parts = open(dir.path()).create_table("parts").unwrap();
    ask(&mut connect(dir.path()), INSERT).unwrap();
    assert!(parts.get("p", "r").unwrap().is_some());
    let table = r#"{"op":"create_table","table":"others"}"#;
    ask(&mut connect(dir.path()), table).unwrap();
    drop(parts);
    assert_eq!(open(dir.path()).tables().unwrap(), ["others", "parts"]);
}

#[test]
fn is_closed_detects_that_the_client_closed_the_connection() {
    let (ours, mut client) = UnixStream::pair().unwrap();
    assert!(!is_closed(&ours));
    client.write_all(b"the next request").unwrap();
    assert!(!is_closed(&ours));
    ours.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(!is_closed(&ours));
    let (ours, client) = UnixStream::pair().unwrap();
    drop(client);
    assert!(is_closed(&ours));
}

/// The progress callback returns an error, as the server's does after the client has disconnected.
#[test]
fn an_error_of_the_progress_callback_cancels_a_request() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir.path().join("db"));
    let parts = db.create_table("parts").unwrap();
    parts.insert(Entity::new("p", "r").with("A", 1)).unwrap();
    db.flush().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let run = |request: &str, is_gone: bool| {
        let request = read_request(request.as_bytes()).unwrap();
        let gone = || Error::io("tell", io::ErrorKind::BrokenPipe.into());
        let mut calls = 0;
        let done = answer(&db, request, &mut |_, _| {
            calls += 1;
            if is_gone { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
        });
        assert!(calls > 0, "the request reports progress");
        done.map(drop).map_err(|error| error.during(gone().message().to_owned()))
    };
    let files = |name: &str| {
        let mut names = Vec::new();
        let mut dirs = vec![dir.path().join(name)];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).into_iter().flatten() {
                let entry = entry.unwrap();
                match entry.metadata().unwrap().is_dir() {
                    true => dirs.push(entry.path()),
                    false => names.push(entry.file_name().into_string().unwrap()),
                }
            }
        }
        names.retain(|name| name != "LOCK");
        names
    };
    let target = |op: &str| format!(r#"{{"op":"{op}","table":"parts","path":"{}"}}"#, path(op));
    for op in ["checkpoint", "backup", "export_range"] {
        let request = match op {
            "export_range" => target(op),
            _ => target(op).replace(r#""table":"parts","#, ""),
        };
        assert!(run(&request, true).unwrap_err().chain().contains("pipe"), "{op}");
        assert_eq!(files(op), [""; 0], "{op}");
        run(&request, false).unwrap();
        assert_ne!(files(op), [""; 0], "{op}");
    }
    let import =
        format!(r#"{{"op":"import_range","table":"other","path":"{}"}}"#, path("export_range"));
    run(&import, true).unwrap_err();
    assert_eq!(db.table("other").unwrap().scan(crate::query::KeyRange::all()).count().unwrap(), 0);
    run(&import, false).unwrap();
    assert!(db.table("other").unwrap().get("p", "r").unwrap().is_some());
    for compact in [r#"{"op":"compact","table":"parts","partition":"p"}"#, r#"{"op":"compact"}"#] {
        parts.upsert(Entity::new("p", "r").with("A", 2)).unwrap();
        run(compact, true).unwrap_err();
        run(compact, false).unwrap();
    }
    assert!(db.verify().unwrap().problems.is_empty());
}

/// The rows are deleted although the merges that free their space are cancelled.
#[test]
fn a_cancelled_removal_says_that_space_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let parts = db.create_table("parts").unwrap();
    for key in ["p", "q"] {
        parts.insert(Entity::new(key, "r")).unwrap();
    }
    db.flush().unwrap();
    let request = br#"{"op":"delete_range","table":"parts","partition":"p","reclaim":true}"#;
    let request = read_request(request).unwrap();
    let response = answer(&db, request, &mut |_, _| Err(io::ErrorKind::BrokenPipe.into()));
    let response = String::from_utf8(response.unwrap().into_line()).unwrap();
    assert!(response.contains(r#""left":"merge files"#), "{response}");
    assert!(parts.get("p", "r").unwrap().is_none() && parts.get("q", "r").unwrap().is_some());
}

/// A snapshot keeps the deleted rows in the table files, and an iterator keeps the files on disk.
#[test]
fn a_removal_says_how_much_snapshots_and_readers_hold() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let parts = db.create_table("parts").unwrap();
    let fill = || {
        (0..500).for_each(|i| assert!(parts.insert(Entity::new("p", format!("{i:03}"))).is_ok()));
        db.flush().unwrap();
    };
    let mut client = connect(dir.path());
    let mut held = || {
        let request = r#"{"op":"delete_range","table":"parts","partition":"p","reclaim":true}"#;
        let answer = ask(&mut client, request).unwrap();
        ["snapshot_bytes", "reader_bytes"].map(|member| answer.number(member).unwrap())
    };
    fill();
    let snapshot = db.snapshot();
    assert!(matches!(held(), [snapshots, 0] if snapshots > 0));
    drop(snapshot);
    assert_eq!(held(), [0, 0]);
    fill();
    let mut rows = parts.scan(crate::query::KeyRange::all()).into_iter();
    rows.next().unwrap().unwrap();
    assert!(matches!(held(), [0, readers] if readers > 0));
    drop(rows);
    assert_eq!(held(), [0, 0]);
}

//! Tests that requests are answered and connections stay open if the server's log is not read or
//! cannot be written.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{ChildStderr, Command, Stdio};
use std::sync::Arc;

use rowstone::Db;

use super::client::{Key, connect};
use super::{Client, Output, Place, Server};

/// The length of the path of a request. Its log line contains the path.
const LONG: usize = 30_000;

/// Starts a server and reads its output up to the connection string. Returns a reader of the
/// remaining output, which is the log.
fn start(place: &Place, options: &str) -> (Server, BufReader<ChildStderr>) {
    let mut command = place.command(&format!("serve db --listen 127.0.0.1:0 {options}"));
    let mut child = quiet(&mut command).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let output = Arc::new(Output::default());
    loop {
        let mut line = String::new();
        assert!(log.read_line(&mut line).unwrap() > 0, "{:?}", output.lines);
        let is_last = line.starts_with("DefaultEndpointsProtocol=");
        output.lines.lock().unwrap().push(line);
        if is_last {
            break;
        }
    }
    let (at, metrics) = (output.address("listening on ").unwrap(), output.address("metrics on "));
    let server = Server { child, at, metrics, output, reader: None, key: Key::development() };
    (server, log)
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null())
}

/// Sends SIGTERM and checks that the server exits.
#[track_caller]
fn ends(mut server: Server) {
    server.signal("-TERM");
    let status = server.child.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{status}");
}

/// Checks that acknowledged entities are there after the server has ended.
#[track_caller]
fn serves_and_ends(place: &Place, server: Server) {
    let server = server.with_table();
    let mut client = server.client();
    for i in 0..20 {
        let body = format!(r#"{{"PartitionKey":"p","RowKey":"{i}"}}"#);
        client.ask("POST", "/people", &body).is(201);
        client.ask("GET", "/nothing", "").is_error(404, "TableNotFound");
    }
    server.is_well();
    ends(server);
    let table = Db::open(place.path("db")).unwrap().table("people").unwrap();
    for i in 0..20 {
        assert!(table.get("p", &i.to_string()).unwrap().is_some(), "{i}");
    }
}

#[test]
fn a_log_without_reader_ends_no_request() {
    for log in ["requests", "connections", "problems", "off"] {
        let place = Place::new();
        let (server, reader) = start(&place, &format!("--log {log}"));
        drop(reader);
        serves_and_ends(&place, server);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_log_that_cannot_be_written_ends_no_request() {
    let place = Place::new();
    serves_and_ends(&place, start_at_a_free_port(&place));
    // A program that fails to start exits as usual, even if it cannot write its message.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = place.command("serve db --accounts missing.json");
    assert_eq!(quiet(&mut command).stderr(full).status().unwrap().code(), Some(2));
}

/// Starts a server whose standard error is full, so that it cannot report its address. The port is
/// therefore chosen here.
#[cfg(target_os = "linux")]
fn start_at_a_free_port(place: &Place) -> Server {
    for _ in 0..10 {
        // The port was free a moment ago, so most likely no other process uses it now.
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let at = TcpListener::bind(any).unwrap().local_addr().unwrap();
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = place.command(&format!("serve db --listen {at}"));
        let mut child = quiet(&mut command).stderr(full).spawn().unwrap();
        while child.try_wait().unwrap().is_none() {
            if connect(at).is_ok() {
                let (output, key) = (Arc::default(), Key::development());
                return Server { child, at, metrics: None, output, reader: None, key };
            }
            std::thread::yield_now();
        }
    }
    panic!("the server does not start");
}

#[test]
fn an_unread_log_blocks_no_request() {
    let place = Place::new();
    let (server, mut log) = start(&place, "--metrics 127.0.0.1:0");
    let server = server.with_table();
    // Writes more log lines than the pipe and the queue of log lines hold.
    fill(&server);
    server.is_well();
    assert!(lost(&server) > 0);
    // When the log is read again, it states the number of lost lines.
    let told = loop {
        let mut line = String::new();
        assert!(log.read_line(&mut line).unwrap() > 0, "the log has ended");
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        if line["fields"]["message"] == "lines of the log were lost" {
            break line["fields"]["lost"].as_u64().unwrap();
        }
    };
    assert_eq!(told, lost(&server));
    let before = told;
    fill(&server);
    assert!(lost(&server) > before);
    ends(server);
    drop(log);
    assert!(Db::open(place.path("db")).unwrap().table("people").is_ok());
}

/// Makes the server log more than the pipe, the write in progress and the queue hold.
fn fill(server: &Server) {
    let mut client = server.client();
    let target = format!("/people(PartitionKey='{}',RowKey='')", "x".repeat(LONG));
    for _ in 0..100 {
        client.ask("GET", &target, "").is(404);
    }
    // Eight concurrent connections, so that several workers write log lines.
    std::thread::scope(|scope| {
        (0..8).for_each(|_| drop(scope.spawn(|| server.is_well())));
    });
}

/// Returns the number of lost log lines according to the metrics.
fn lost(server: &Server) -> u64 {
    let mut client = Client::over(connect(server.metrics.unwrap()).unwrap(), server.key.clone());
    client.send("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    let text = String::from_utf8(client.rest()).unwrap();
    let name = "rowstone_log_lines_lost_total ";
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

#[test]
fn a_second_signal_does_not_wait_for_an_unread_log() {
    let place = Place::new();
    let (server, log) = start(&place, "--drain-time 86400 --body-time 86400");
    let mut server = server.with_table();
    fill(&server);
    let mut half = server.client();
    half.send(server.key.head("POST", "/people", "Content-Length: 10\r\n\r\n"));
    server.is_well();
    server.signal("-TERM");
    while connect(server.at).is_ok() {}
    server.signal("-TERM");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    half.is_closed();
    drop(log);
}

//! More than there is room for: connections, requests, bodies.

use super::client::{Client, connect};
use super::{Place, Server};

#[test]
fn one_connection_too_many_is_told_so() {
    let place = Place::new();
    let server = place.serve("--connections-max 2");
    let mut held: Vec<Client> = vec![server.client(), server.client()];
    for client in &mut held {
        client.ask("GET", "/Tables", "").is(200);
    }
    for _ in 0..5 {
        let mut client = server.client();
        // It may well have sent its request before it hears the answer.
        client.send(server.key.request("GET", "/Tables", "", b""));
        let answer = client.answer();
        assert_eq!(answer.is(503).header("x-ms-error-code"), Some("ServerBusy"));
        client.is_closed();
        for client in &mut held {
            client.ask("GET", "/Tables", "").is(200);
        }
    }
    held.pop();
    // The server notices when it reads; until then its place is taken.
    let served = (0..100_000).any(|_| server.ask("GET", "/Tables", "").status == 200);
    assert!(served, "a place that is free is given to nobody");
}

#[test]
fn one_request_too_many_is_told_so() {
    let place = Place::new();
    let server = place.serve("--requests-max 0");
    let mut client = server.client();
    for _ in 0..3 {
        client.ask("POST", "/Tables", r#"{"TableName":"people"}"#).is_error(503, "ServerBusy");
    }
}

#[test]
fn who_is_told_to_come_again_is_served_then() {
    let place = Place::new();
    let server = place.serve("--requests-max 1 --durability os").with_table();
    let insert = |client: usize| {
        let mut connection = server.client();
        for i in 0..50 {
            let body = format!(r#"{{"PartitionKey":"p{client}","RowKey":"{i}"}}"#);
            while connection.ask("POST", "/people", &body).status == 503 {}
        }
    };
    std::thread::scope(|scope| {
        (0..8).for_each(|client| drop(scope.spawn(move || insert(client))));
    });
    let answer = server.ask("GET", "/people?$select=RowKey", "");
    assert_eq!(answer.is(200).text().matches("\"RowKey\":").count(), 400);
}

/// Bytes that may come on top of what a server has that does nothing: far less than all clients together ask for.
#[cfg(target_os = "linux")]
const MEMORY_MAX: u64 = 192 << 20;

#[cfg(target_os = "linux")]
#[test]
fn memory_is_bounded() {
    let place = Place::new();
    let server = place.serve("--log off").with_table();
    let before = server.memory();
    let check = |what: &str| {
        server.is_well();
        let more = server.memory().saturating_sub(before);
        assert!(more < MEMORY_MAX, "{what}: {} MiB more", more >> 20);
    };
    announced(&server, check);
    gone(&server);
    check("clients that do not wait for an answer");
    small_pieces(&server);
    check("bodies in small pieces");
    let mut client = server.client();
    client.ask("POST", "/people", &"[".repeat(4 << 20)).is_error(400, "InvalidInput");
    client.ask("POST", "/people", &"{\"A\":".repeat(800_000)).is_error(400, "InvalidInput");
    client.ask("POST", "/people", &format!("{{{}", "\"A\":1,".repeat(600_000)));
    check("deep and wide bodies");
}

/// Bodies of which only the beginning comes: together, what is announced would be half a gigabyte.
#[cfg(target_os = "linux")]
fn announced(server: &Server, check: impl Fn(&str)) {
    let mut clients: Vec<_> = (0..128).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send(server.key.head("POST", "/people", "Content-Length: 4194304\r\n\r\n"));
        client.send([b' '; 1024]);
    }
    check("bodies that are announced");
}

/// Whole requests whose clients go without waiting for an answer.
#[cfg(target_os = "linux")]
fn gone(server: &Server) {
    let body = vec![b' '; 1 << 20];
    let request = server.key.request("POST", "/people", "", &body);
    for _ in 0..300 {
        use std::io::Write as _;
        drop(connect(server.at).unwrap().write_all(&request));
    }
}

/// A body that comes one byte a chunk.
#[cfg(target_os = "linux")]
fn small_pieces(server: &Server) {
    let chunks = b"1\r\n \r\n".repeat(1 << 20);
    let send = || {
        let mut client = server.client();
        let head = server.key.head("POST", "/people", "Transfer-Encoding: chunked\r\n\r\n");
        client.send(head);
        client.send(&chunks);
        client.send("0\r\n\r\n");
        client.answer().is_error(400, "InvalidInput");
    };
    std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(send))));
}

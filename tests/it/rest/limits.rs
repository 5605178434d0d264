//! Tests requests that exceed the limits on connections, request sizes, bodies and memory.

use super::client::{Client, connect};
use super::{Place, Server};

#[test]
fn a_connection_above_the_limit_is_refused_with_503() {
    let place = Place::new();
    let server = place.serve("--connections-max 1 --metrics 127.0.0.1:0");
    let mut ids = Vec::new();
    let mut held = server.client();
    held.ask("GET", "/Tables", "").is(200);
    for _ in 0..5 {
        let mut client = server.client();
        // The server refuses the connection when it accepts it. The client may already have sent a
        // request.
        client.send(server.key.request("GET", "/Tables", "", b""));
        let answer = client.answer();
        answer.is_error(503, "ServerBusy");
        assert_eq!(answer.header("x-ms-version"), Some("2019-02-02"));
        let name = answer.header("server").unwrap();
        assert!(name.starts_with("Windows-Azure-Table/1.0"), "{name}");
        ids.push(answer.header("x-ms-request-id").unwrap().to_owned());
        client.is_closed();
        held.ask("GET", "/Tables", "").is(200);
    }
    drop(held);
    // The server notices the disconnection only when it reads. Until then the connection counts
    // against the limit.
    while server.ask("GET", "/Tables", "").status != 200 {}
    // These refusals are counted and logged like other requests.
    let mut scrape = Client::over(connect(server.metrics.unwrap()).unwrap(), server.key.clone());
    scrape.send("GET /metrics HTTP/1.1\r\n\r\n");
    let counted = String::from_utf8(scrape.rest()).unwrap();
    assert!(counted.contains("{method=\"GET\",status=\"503\",code=\"ServerBusy\"}"), "{counted}");
    let lines = server.stop();
    for id in ids {
        let line = lines.iter().find(|line| line.contains(&id)).expect("a line with its id");
        assert!(line.contains("\"status\":503") && line.contains("/Tables"), "{line}");
    }
}

#[test]
fn the_holder_of_a_key_cannot_take_every_slot() {
    let place = Place::new();
    let server = place.serve("--connections-max 4");
    let mut held: Vec<Client> = (0..4).map(|_| server.client()).collect();
    for client in &mut held {
        client.ask("GET", "/Tables", "").is(200);
    }
    // One idle connection is closed, and the others stay.
    server.client().ask("GET", "/Tables", "").is(200);
    let mut closed = 0;
    for client in &mut held {
        let sent = client.try_send(server.key.request("GET", "/Tables", "", b""));
        closed += usize::from(sent.is_err() || client.try_answer_to("GET").is_err());
    }
    assert_eq!(closed, 1);
}

#[test]
fn silent_connections_do_not_exclude_clients() {
    let place = Place::new();
    let server = place.serve("--connections-max 3");
    let mut known = server.client();
    known.ask("GET", "/Tables", "").is(200);
    let mut silent: Vec<Client> = (0..2).map(|_| server.client()).collect();
    silent[1].send("GET /Tables HTTP/1.1\r\n");
    for _ in 0..5 {
        // At the limit the server closes the connection that has been silent longest. Each client
        // in this loop sends a part of a request and disconnects.
        server.client().send("POST");
        server.is_well();
        known.ask("GET", "/Tables", "").is(200);
    }
    silent.iter_mut().for_each(|client| client.is_closed());
}

#[test]
fn bodies_of_unauthenticated_clients_use_no_budget() {
    // In total the bodies exceed the budget for the bodies of all requests.
    const BODY: usize = (4 << 20) - 1;
    let place = Place::new();
    let server = place.serve("--log off").with_table();
    let mut strangers: Vec<Client> = (0..70).map(|_| server.client()).collect();
    for client in &mut strangers {
        let head = format!(
            "POST /devstoreaccount1/people HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
            BODY + 1
        );
        client.send(head);
        client.send(vec![b' '; BODY]);
    }
    let text = "x".repeat(30_000);
    let body = format!(r#"{{"A":"{text}","B":"{text}","C":"{text}"}}"#);
    server.ask("PUT", "/people(PartitionKey='p',RowKey='r')", &body).is(204);
    // The rest of a refused body is read and discarded, so that the client receives the response.
    for client in &mut strangers[..3] {
        client.send(" ");
        client.answer_to("POST").is_error(403, "AuthenticationFailed");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn connections_leave_descriptors_for_the_database() {
    let place = Place::new();
    let serve = |files: u32, options: &str| {
        let mut command = std::process::Command::new("sh");
        let script = format!("ulimit -n {files} && exec \"$0\" serve db {options}");
        let binary = env!("CARGO_BIN_EXE_rowstone");
        command.args(["-c", &script, binary]).current_dir(place.0.path());
        command
    };
    let output = serve(200, "--listen 127.0.0.1:0").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("200 files") && said.contains("ulimit -n"), "{said}");
    assert!(!place.path("db").exists());
    let command = serve(300, "--listen 127.0.0.1:0");
    let server = Server::start(command, super::Key::development()).with_table();
    server.output.wait_for("too few descriptors");
    // The limit is higher than 40, but earlier connections may not be closed yet.
    let mut known: Vec<Client> = (0..40).map(|_| server.client()).collect();
    for client in &mut known {
        client.ask("GET", "/Tables", "").is(200);
    }
    let others: Vec<Client> = (0..300).map(|_| server.client()).collect();
    for client in &mut known {
        client
            .ask("POST", "/Tables", r#"{"TableName":"people"}"#)
            .is_error(409, "TableAlreadyExists");
    }
    known[0].ask("PUT", "/people(PartitionKey='p',RowKey='r')", "{}").is(204);
    drop(others);
}

#[test]
fn a_client_that_retries_after_503_is_served() {
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

/// Maximum memory in addition to an idle server's. Concurrent bodies take 128 MiB. Each of a
/// thousand connections takes 64 KiB of a body that is not charged to the budget, and up to 256 KiB
/// for its last read. The total is 441 MiB; the allocator may take a third more. The bodies of all
/// clients together have more than twice that size.
#[cfg(target_os = "linux")]
const MEMORY_MAX: u64 = 576 << 20;

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
    disconnecting(&server);
    check("clients that do not wait for an answer");
    let held = held(&server);
    check("bodies that do not go on");
    drop(held);
    small_pieces(&server);
    check("bodies in small pieces");
    let mut client = server.client();
    client.ask("POST", "/people", &"[".repeat(4 << 20)).is_error(400, "InvalidInput");
    client.ask("POST", "/people", &"{\"A\":".repeat(800_000)).is_error(400, "InvalidInput");
    client.ask("POST", "/people", &format!("{{{}", "\"A\":1,".repeat(600_000)));
    check("deep and wide bodies");
}

/// Each client sends most of a large body and closes the connection. The memory that one round took
/// must be free for the next round.
#[cfg(target_os = "linux")]
#[test]
fn memory_stays_flat_while_clients_abort_large_bodies() {
    const ROUNDS: usize = 12;
    const CLIENTS: usize = 200;
    /// The memory by which rounds may differ because of thread stacks, the allocator's free lists
    /// and the load of the machine. The bodies of one round have 744 MiB.
    const TOLERANCE: u64 = 96 << 20;
    let place = Place::new();
    let server = place.serve("--log off").with_table();
    let idle = server.descriptors() + 8;
    let head = server.key.head("POST", "/people", "Content-Length: 4000000\r\n\r\n");
    let body = vec![b' '; 3_900_000];
    let abort = || {
        use std::io::Write as _;
        let mut stream = connect(server.at).unwrap();
        // The server refuses some bodies and closes the connection before it has read them.
        drop(stream.write_all(head.as_ref()).and_then(|()| stream.write_all(&body)));
    };
    let round = |_| {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..CLIENTS / 8).for_each(|_| abort()));
            }
        });
        server.is_well();
        server.resident_when_idle(idle)
    };
    let resident: Vec<u64> = (0..ROUNDS).map(round).collect();
    let (early, late) = resident.split_at(ROUNDS / 2);
    let limit = early.iter().max().unwrap() + TOLERANCE;
    let mib: Vec<u64> = resident.iter().map(|bytes| bytes >> 20).collect();
    crate::say(format!("MiB resident after each round of {CLIENTS} aborted bodies: {mib:?}"));
    assert!(late.iter().all(|resident| *resident <= limit), "{mib:?} MiB");
}

/// Sends the beginnings of bodies whose announced lengths add up to half a gigabyte.
#[cfg(target_os = "linux")]
fn announced(server: &Server, check: impl Fn(&str)) {
    let mut clients: Vec<_> = (0..128).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send(server.key.head("POST", "/people", "Content-Length: 4194304\r\n\r\n"));
        client.send([b' '; 1024]);
    }
    check("bodies that are announced");
}

/// Sends complete requests and disconnects without waiting for a response.
#[cfg(target_os = "linux")]
fn disconnecting(server: &Server) {
    let body = vec![b' '; 1 << 20];
    let request = server.key.request("POST", "/people", "", &body);
    for _ in 0..1_200 {
        use std::io::Write as _;
        drop(connect(server.at).unwrap().write_all(&request));
    }
}

/// Sends only a part of each body. Some of the bodies exceed the budget.
#[cfg(target_os = "linux")]
fn held(server: &Server) -> Vec<Client> {
    // Disconnected clients may still count against the limit on connections.
    let admitted = |_| {
        let mut tries = (0..100_000).map(|_| server.client());
        tries
            .find_map(|mut client| {
                (client.ask("GET", "/Tables", "").status == 200).then_some(client)
            })
            .unwrap()
    };
    let mut clients: Vec<_> = (0..900).map(admitted).collect();
    for client in &mut clients {
        client.send(server.key.head("POST", "/people", "Content-Length: 4194304\r\n\r\n"));
        client.send(vec![b' '; 1 << 20]);
    }
    clients
}

/// Sends a body in chunks of one byte.
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

//! Tests slow clients: each is disconnected at its time limit, and other clients are served in the
//! meantime.

use std::sync::atomic::{AtomicBool, Ordering};

use super::client::Key;
use super::{Place, Server};

/// The smallest possible time limits, so that the tests are fast.
const IMPATIENT: &str = "--header-time 1 --body-time 1 --send-time 1 --idle-time 1";

#[test]
fn a_silent_client_is_disconnected() {
    let place = Place::new();
    let server = place.serve(IMPATIENT);
    let mut silent: Vec<_> = (0..20).map(|_| server.client()).collect();
    server.is_well();
    silent.iter_mut().for_each(|client| client.is_closed());
    // The limit applies after a request, too.
    let mut client = server.client();
    client.ask("GET", "/Tables", "").is(200);
    client.is_closed();
    server.is_well();
}

#[test]
fn a_pause_between_requests_may_be_longer_than_initial_silence() {
    let place = Place::new();
    let server = place.serve("--header-time 1 --idle-time 120");
    let mut client = server.client();
    client.ask("GET", "/Tables", "").is(200);
    // These clients send nothing, so each is disconnected after the header time of one second.
    for _ in 0..2 {
        server.client().is_closed();
    }
    client.ask("GET", "/Tables", "").is(200);
}

#[test]
fn a_client_that_sends_single_bytes_is_disconnected() {
    let place = Place::new();
    let server = place.serve(IMPATIENT).with_table();
    let mut client = server.client();
    client.send("GET / HTTP/1.1\r\nX: ");
    let answered = client.drip(b'x', || server.is_well());
    assert!(answered.is_empty() || answered.starts_with(b"HTTP/1.1 4"), "{answered:?}");
    let mut client = server.client();
    client.send(server.key.head("POST", "/people", "Content-Length: 100000\r\n\r\n"));
    let answered = client.drip(b' ', || server.is_well());
    let text = String::from_utf8_lossy(&answered);
    assert!(text.is_empty() || text.contains("OperationTimedOut"), "{text}");
    server.is_well();
}

#[test]
fn a_refusal_is_sent_however_slow_the_body_is() {
    let place = Place::new();
    let server = place.serve("--body-time 1").with_table();
    let mut large = server.client();
    large.send(server.key.head("POST", "/people", "Content-Length: 5242880\r\n\r\n"));
    let mut stranger = server.client();
    let other = Key::new(&server.key.account, "bm90IHRoZSBrZXk=");
    stranger.send(other.head("POST", "/people", "Content-Length: 100000\r\n\r\n"));
    large.answer_to("POST").is_error(413, "RequestBodyTooLarge");
    stranger.answer_to("POST").is_error(403, "AuthenticationFailed");
    server.is_well();
}

#[test]
fn an_unauthorised_request_is_refused_before_its_body_arrives() {
    let place = Place::new();
    let server = place.serve("--body-time 86400").with_table();
    let other = Key::new(&server.key.account, "bm90IHRoZSBrZXk=");
    for length in [10, 100_000, 5_000_000] {
        let mut stranger = server.client();
        let headers = format!("Content-Length: {length}\r\n\r\n");
        stranger.send(other.head("POST", "/people", &headers));
        let answer = stranger.answer_to("POST");
        assert_eq!(answer.header("connection"), Some("close"), "{}", answer.head);
        match length {
            5_000_000 => answer.is_error(413, "RequestBodyTooLarge"),
            _ => answer.is_error(403, "AuthenticationFailed"),
        };
        // The client sends the body nevertheless. The server reads and discards it.
        drop(stranger.try_send(vec![b' '; length]));
        stranger.is_closed();
    }
    // If a refused request was sent completely, the server keeps the connection open.
    let mut stranger = server.client();
    for length in [10, 100_000] {
        stranger.send(other.request("POST", "/people", "", &vec![b' '; length]));
        stranger.answer_to("POST").is_error(403, "AuthenticationFailed");
    }
    server.stop();
}

#[test]
fn slow_bodies_occupy_no_request_slot() {
    let place = Place::new();
    let server = place.serve("--requests-max 1").with_table();
    let mut slow: Vec<_> = (0..10).map(|_| server.client()).collect();
    let body = |i: usize| format!(r#"{{"PartitionKey":"slow","RowKey":"{i}"}}"#);
    for (i, client) in slow.iter_mut().enumerate() {
        let headers = format!("Content-Length: {}\r\n\r\n", body(i).len());
        client.send(server.key.head("POST", "/people", &headers));
        client.send(&body(i)[..10]);
    }
    for _ in 0..20 {
        server.is_well();
    }
    for (i, client) in slow.iter_mut().enumerate() {
        client.send(&body(i)[10..]);
        client.answer().is(201);
    }
}

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let place = Place::new();
    let server = place.serve(IMPATIENT).with_table();
    fill(&server);
    let mut deaf = server.client();
    let request = server.key.request("GET", "/people", "", b"");
    // The client reads nothing until the server's unsent responses reach their limit and the server
    // stops reading.
    let refused = (0..100_000).find_map(|_| deaf.try_send(&request).err());
    refused.expect("the server reads requests without a limit");
    server.is_well();
}

/// Inserts entities that fill a page of half a megabyte.
fn fill(server: &Server) {
    let mut client = server.client();
    for i in 0..8 {
        let body = format!(
            r#"{{"PartitionKey":"p","RowKey":"{i}","A":"{0}","B":"{0}"}}"#,
            "x".repeat(30_000)
        );
        client.ask("POST", "/people", &body).is(201);
    }
}

/// Other clients are served while some clients request large pages without end, some of these read
/// no response, and many clients are silent.
#[test]
fn endless_requests_of_one_client_do_not_block_others() {
    const AT_ONCE: usize = 16;
    let place = Place::new();
    let server = place.serve("--log off").with_table();
    fill(&server);
    let requests = server.key.request("GET", "/people", "", b"").repeat(AT_ONCE);
    let silent: Vec<_> = (0..500).map(|_| server.client()).collect();
    let mut deaf: Vec<_> = (0..8).map(|_| server.client()).collect();
    deaf.iter_mut().for_each(|client| client.send(&requests));
    let is_over = AtomicBool::new(false);
    let ask = || {
        let mut client = server.client();
        // The loop is bounded, so that it ends even if the test has failed.
        for _ in 0..200 {
            if is_over.load(Ordering::SeqCst) {
                return;
            }
            client.send(&requests);
            for _ in 0..AT_ONCE {
                client.answer().is(200);
            }
        }
    };
    std::thread::scope(|scope| {
        (0..4).for_each(|_| drop(scope.spawn(ask)));
        for i in 0..20 {
            server.is_well();
            let body = format!(r#"{{"PartitionKey":"q","RowKey":"{i}"}}"#);
            server.ask("POST", "/people", &body).is(201);
        }
        is_over.store(true, Ordering::SeqCst);
    });
    drop((silent, deaf));
    server.stop();
}

//! Tests the start and the stop of the server: it may refuse to start, reads new keys while it
//! runs, and loses nothing when it stops.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rowstone::Db;

use super::client::{Key, connect};
use super::{Place, Server, accounts};

const FIRST: &str = "Zmlyc3Qga2V5IG9mIGFjbWU=";
const SECOND: &str = "c2Vjb25kIGtleSBvZiBhY21l";

#[test]
fn acknowledged_inserts_survive_a_stop_under_load() {
    let place = Place::new();
    let server = place.serve("").with_table();
    let acknowledged = Mutex::new(Vec::new());
    let count = AtomicUsize::new(0);
    let insert = |number: usize| {
        let mut client = server.client();
        for i in 0.. {
            let body = format!(r#"{{"PartitionKey":"{number}","RowKey":"{i}"}}"#);
            if client.try_send(server.key.request("POST", "/people", "", body.as_bytes())).is_err()
            {
                return;
            }
            match client.try_answer_to("POST") {
                Ok(answer) => answer.is(201),
                // This insert may or may not have been committed.
                Err(_) => return,
            };
            acknowledged.lock().unwrap().push((number.to_string(), i.to_string()));
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        (0..8).for_each(|number| drop(scope.spawn(move || insert(number))));
        while count.load(Ordering::Relaxed) < 200 {
            std::thread::yield_now();
        }
        server.signal("-TERM");
    });
    let (status, lines) = server.wait();
    assert_eq!(status.code(), Some(0), "{lines:?}");
    let db = Db::open(place.path("db")).unwrap();
    let table = db.table("people").unwrap();
    let acknowledged = acknowledged.into_inner().unwrap();
    assert!(acknowledged.len() >= 200);
    for (pk, rk) in &acknowledged {
        assert!(table.get(pk, rk).unwrap().is_some(), "{pk} {rk}");
    }
    assert!(db.verify().unwrap().problems.is_empty());
}

#[test]
fn a_request_in_progress_is_finished_before_the_server_stops() {
    let place = Place::new();
    let server = place.serve("--drain-time 86400").with_table();
    let mut begun = server.client();
    let mut idle = server.client();
    idle.ask("GET", "/people", "").is(200);
    let body = r#"{"PartitionKey":"p","RowKey":"begun"}"#;
    begun.send(server.key.head(
        "POST",
        "/people",
        &format!("Content-Length: {}\r\n\r\n", body.len()),
    ));
    begun.send(&body[..10]);
    server.signal("-TERM");
    idle.is_closed();
    // No new connection is accepted.
    while connect(server.at).is_ok() {}
    begun.send(&body[10..]);
    begun.answer().is(201);
    begun.is_closed();
    let (status, _) = server.wait();
    assert_eq!(status.code(), Some(0));
    let db = Db::open(place.path("db")).unwrap();
    assert!(db.table("people").unwrap().get("p", "begun").unwrap().is_some());
}

#[test]
fn an_unfinished_request_does_not_block_the_stop() {
    let place = Place::new();
    let server = place.serve("--drain-time 1").with_table();
    let mut clients: Vec<_> = (0..3).map(|_| server.client()).collect();
    clients[0].send("GET /");
    clients[1].send(server.key.head("POST", "/people", "Content-Length: 10\r\n\r\n"));
    server.is_well();
    let lines = server.stop();
    assert!(lines.iter().any(|line| line.contains("still open")), "{lines:?}");
}

#[test]
fn half_a_head_does_not_block_the_stop() {
    let place = Place::new();
    let server = place.serve("--drain-time 86400").with_table();
    let mut half = [server.client(), server.client()];
    half[0].send("GET /");
    half[1].ask("GET", "/people", "").is(200);
    half[1].send("POST /devstoreaccount1/people HTTP/1.1\r\nHost:");
    server.is_well();
    let lines = server.stop();
    assert!(!lines.iter().any(|line| line.contains("still open")), "{lines:?}");
    half.iter_mut().for_each(|client| client.is_closed());
}

#[test]
fn a_second_signal_stops_immediately() {
    let place = Place::new();
    let server = place.serve("--drain-time 86400 --body-time 86400").with_table();
    let mut half = server.client();
    half.send(server.key.head("POST", "/people", "Content-Length: 10\r\n\r\n"));
    server.is_well();
    server.signal("-TERM");
    while connect(server.at).is_ok() {}
    server.signal("-INT");
    let (status, lines) = server.wait();
    assert_eq!(status.code(), Some(0), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("second signal to stop")), "{lines:?}");
    half.is_closed();
}

#[test]
fn both_signals_stop_an_idle_server() {
    for signal in ["-TERM", "-INT"] {
        let place = Place::new();
        let server = place.serve("");
        server.signal(signal);
        assert_eq!(server.wait().0.code(), Some(0), "{signal}");
    }
}

#[test]
fn the_public_key_is_served_on_loopback_only() {
    let place = Place::new();
    place.write("public.json", accounts("acme", &[FIRST, &Key::development().key]));
    for options in [
        "--listen 0.0.0.0:0",
        "--listen [::]:0",
        "--listen 192.0.2.1:0",
        "--listen 0.0.0.0:0 --accounts public.json",
    ] {
        let (status, said) = place.refused(options);
        assert_eq!(status, Some(2), "{options}: {said}");
        assert!(said.contains("not loopback") && said.contains("--accounts"), "{said}");
        assert!(!said.contains(FIRST) && !said.contains(&Key::development().key), "{said}");
    }
    assert!(!place.path("db").exists(), "nothing is created by a refusal");
}

#[test]
fn errors_at_the_start_are_reported() {
    let place = Place::new();
    place.write("broken.json", "[{\"name\":\"acme\",\"keys\":[\"not base64\"]}]");
    place.write("empty.pem", "");
    for (options, status, text) in [
        ("--accounts missing.json", 2, "missing.json"),
        ("--accounts broken.json", 2, "not Base64"),
        ("--tls-cert empty.pem", 2, "--tls-key"),
        ("--tls-cert empty.pem --tls-key empty.pem", 1, "no certificate"),
        ("--listen nowhere", 2, "nowhere"),
        ("--idle-time 0", 2, "idle-time"),
        ("--send-time 0", 2, "send-time"),
        ("--header-time 99999999999", 2, "header-time"),
        ("--connections-max 0", 2, "connections-max"),
        ("--requests-max 0", 2, "requests-max"),
    ] {
        let listen = if options.contains("--listen") { "" } else { "--listen 127.0.0.1:0 " };
        let (found, said) = place.refused(&format!("{listen}{options}"));
        assert_eq!(found, Some(status), "{options}: {said}");
        assert!(said.contains(text), "{options}: {said}");
        assert!(!place.path("db").exists(), "{options}: nothing is created by a refusal");
    }
    let (status, said) = place.refused("--listen 127.0.0.1:0 --max-disk 1000");
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("at least") && said.contains("--max-disk"), "{said}");
    assert!(!said.contains("memtable_bytes") && !said.contains("Options"), "{said}");
    let server = place.serve("");
    let (status, said) = place.refused("--listen 127.0.0.1:0");
    assert_eq!(status, Some(2), "{said}");
    let other = format!("serve other --listen {}", server.at);
    let output = place.command(&other).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot listen") && said.contains(&server.at.to_string()), "{said}");
    assert!(said.contains("choose another port with --listen"), "{said}");
    assert!(!place.path("other").exists(), "nothing is created by a refusal");
}

fn acme(place: &Place, options: &str) -> Server {
    let command = place.command(&format!("serve db --accounts accounts.json {options}"));
    Server::start(command, Key::new("acme", FIRST))
}

/// Returns the status of the response to a request signed with `key`.
fn status_with(server: &Server, key: &str) -> u16 {
    let mut client = super::Client::connect(server.at, Key::new("acme", key));
    client.ask("GET", "/Tables", "").status
}

#[test]
fn keys_change_without_a_restart() {
    let place = Place::new();
    place.write("accounts.json", accounts("acme", &[FIRST]));
    let server = acme(&place, "--listen 127.0.0.1:0");
    let mut kept = server.client();
    kept.ask("GET", "/Tables", "").is(200);
    assert_eq!([FIRST, SECOND].map(|key| status_with(&server, key)), [200, 403]);
    place.write("accounts.json", accounts("acme", &[SECOND, FIRST]));
    server.signal("-HUP");
    server.output.wait_for("read again");
    assert_eq!([FIRST, SECOND].map(|key| status_with(&server, key)), [200, 200]);
    // An invalid file changes nothing.
    place.write("accounts.json", "[");
    server.signal("-HUP");
    server.output.wait_for("stay as they were");
    assert_eq!([FIRST, SECOND].map(|key| status_with(&server, key)), [200, 200]);
    place.write("accounts.json", accounts("acme", &[SECOND]));
    server.signal("-HUP");
    while status_with(&server, FIRST) != 403 {}
    kept.ask("GET", "/Tables", "").is_error(403, "AuthenticationFailed");
    assert_eq!(status_with(&server, SECOND), 200);
    let lines = server.stop();
    assert!(!lines.iter().any(|line| line.contains(FIRST) || line.contains(SECOND)), "{lines:?}");
}

#[test]
fn a_removed_account_cannot_be_used() {
    let place = Place::new();
    place.write("accounts.json", accounts("acme", &[FIRST]));
    let server = acme(&place, "--listen 127.0.0.1:0");
    assert_eq!(status_with(&server, FIRST), 200);
    place.write("accounts.json", accounts("other1", &[SECOND]));
    server.signal("-HUP");
    server.output.wait_for("have no keys any more");
    assert_eq!(status_with(&server, FIRST), 403);
}

#[test]
fn the_public_key_is_not_added_by_a_reload() {
    let place = Place::new();
    place.write("accounts.json", accounts("acme", &[FIRST]));
    let mut server = acme(&place, "--listen 0.0.0.0:0");
    server.at.set_ip([127, 0, 0, 1].into());
    place.write("accounts.json", accounts("acme", &[&Key::development().key]));
    server.signal("-HUP");
    server.output.wait_for("is not loopback");
    assert_eq!(status_with(&server, &Key::development().key), 403);
    assert_eq!(status_with(&server, FIRST), 200);
}

//! Tests the server's log and metrics, and the access tokens that `rowstone sas` creates.

use std::io::Write as _;

use super::client::{Key, connect};
use super::{Client, Place, Server, accounts};

#[test]
fn the_log_is_json_and_holds_no_secrets() {
    const KEY: &str = "YSBrZXkgdGhhdCBub2JvZHkgbWF5IHNlZQ==";
    let place = Place::new();
    place.write("accounts.json", accounts("acme", &[KEY]));
    let token = place.sas(
        "--account-wide --account acme --accounts accounts.json --permissions rl --expiry 2100-01-01",
    );
    let (_, signature) = token.split_once("sig=").unwrap();
    let signature = signature.split('&').next().unwrap();
    let command = "serve db --listen 127.0.0.1:0 --accounts accounts.json --log connections --metrics 127.0.0.1:0";
    let server = Server::start(place.command(command), Key::new("acme", KEY));
    let request = server.key.request("POST", "/Tables", "", br#"{"TableName":"people"}"#);
    let signed = String::from_utf8(request.clone()).unwrap();
    let authorization =
        signed.lines().find_map(|line| line.strip_prefix("Authorization: ")).unwrap();
    let (_, mac) = authorization.split_once(':').unwrap();
    let mut client = server.client();
    client.send(&request);
    client.answer().is(201);
    for target in [
        format!("GET /acme/Tables?{token}"),
        format!("GET /acme/people?{token}"),
        format!("GET /acme/people(PartitionKey='%22%0a',RowKey='\"')?{token}"),
        format!("PUT /acme/people?{token}&comp=acl"),
        format!("GET /acme/people?{}", token.replacen("sig=", "sig=x", 1)),
        format!("GET /other/people?{token}"),
        format!("GET http://{}/acme/Tables?{token}", server.at),
    ] {
        client.send(format!("{target} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"));
        let answer = client.answer();
        let told = String::from_utf8_lossy(&answer.body);
        assert!(!told.contains(KEY), "{told}");
    }
    let mut broken = server.client();
    broken.send(format!("GARBAGE {authorization}\r\n\r\n"));
    broken.rest();
    let lines = server.stop();
    let log: Vec<_> = lines.iter().filter(|line| !line.contains(" on http://")).collect();
    assert!(log.len() >= 8, "{lines:?}");
    for line in log {
        let parsed: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(parsed["timestamp"].is_string() && parsed["level"].is_string(), "{line}");
        for secret in [KEY, signature, mac, "sig="] {
            assert!(!line.contains(secret), "{secret} in {line}");
        }
    }
}

#[test]
fn every_request_has_a_line_with_its_id() {
    let place = Place::new();
    let server = place.serve("");
    let ids: Vec<String> = ["/Tables", "/nothing", "/people(PartitionKey='%ff',RowKey='')"]
        .iter()
        .map(|target| {
            let answer = server.ask("GET", target, "");
            answer.header("x-ms-request-id").unwrap().to_owned()
        })
        .collect();
    let lines = server.stop();
    for (id, status) in ids.iter().zip([200, 404, 400]) {
        let found: Vec<_> = lines.iter().filter(|line| line.contains(id.as_str())).collect();
        assert_eq!(found.len(), 1, "{id}: {lines:?}");
        let line: serde_json::Value = serde_json::from_str(found[0]).unwrap();
        assert_eq!(line["fields"]["status"], status, "{line}");
        assert_eq!(line["fields"]["method"], "GET", "{line}");
    }
}

#[test]
fn metrics_have_an_address_of_their_own() {
    let place = Place::new();
    let server = place.serve("--metrics 127.0.0.1:0").with_table();
    server.ask("GET", "/people", "").is(200);
    server.ask("GET", "/nothing", "").is_error(404, "TableNotFound");
    let at = server.metrics.unwrap();
    let scrape = |request: &str| {
        let mut client = Client::over(connect(at).unwrap(), server.key.clone());
        client.send(request);
        String::from_utf8(client.rest()).unwrap()
    };
    let text = scrape("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(
        text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"),
        "{text}"
    );
    for line in [
        "# TYPE rowstone_requests_total counter",
        "rowstone_requests_total{method=\"GET\",status=\"200\",code=\"\"} 1",
        "rowstone_requests_total{method=\"GET\",status=\"404\",code=\"TableNotFound\"} 1",
        "rowstone_requests_total{method=\"POST\",status=\"201\",code=\"\"} 1",
        "rowstone_request_seconds_bucket{le=\"+Inf\"} 3",
        "rowstone_request_seconds_count 3",
        "rowstone_commits_total{account=\"devstoreaccount1\"}",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    assert!(scrape("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(scrape("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    // Silent clients block no other client. If the server served them one after the other, the time
    // limits would be exceeded.
    let silent: Vec<_> = (0..20).map(|_| connect(at).unwrap()).collect();
    assert!(scrape("GET /metrics HTTP/1.1\r\n\r\n").contains("rowstone_requests_total"));
    drop(silent);
    // A metrics client that sends no request or a too large one is disconnected, and the service is
    // not affected.
    let mut endless = connect(at).unwrap();
    drop(endless.write_all(&b"x".repeat(100_000)));
    drop(endless);
    server.ask("GET", "/metrics", "").is_error(404, "TableNotFound");
    assert!(scrape("GET /metrics HTTP/1.1\r\n\r\n").contains("rowstone_requests_total"));
    let stopped = connect(at).unwrap();
    server.stop();
    drop(stopped);
}

/// Sends a request that is authorised by a token alone; returns its status.
fn with_token(client: &mut Client, method: &str, target: &str, token: &str, body: &str) -> u16 {
    let join = if target.contains('?') { '&' } else { '?' };
    client.send(format!(
        "{method} /devstoreaccount1{target}{join}{token} HTTP/1.1\r\nHost: localhost\r\nIf-Match: *\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    client.answer_to(method).status
}

#[test]
fn tokens_of_the_program_grant_their_permissions() {
    let place = Place::new();
    let server = place.serve("").with_table();
    let mut client = server.client();
    for (pk, rk) in [("a", "1"), ("b", "1"), ("b", "2"), ("c", "1")] {
        client
            .ask("POST", "/people", &format!(r#"{{"PartitionKey":"{pk}","RowKey":"{rk}"}}"#))
            .is(201);
    }
    let read = place.sas("people --permissions r --expiry 2100-01-01");
    let some = place.sas(
        "PEOPLE --permissions rd --expiry 2100-01-01 --start-partition b --end-partition b --end-row 1",
    );
    let early = place.sas("people --permissions raud --start 2099-01-01 --expiry 2100-01-01");
    let other = place.sas("others --permissions raud --expiry 2100-01-01");
    let all = place.sas("--account-wide --permissions rwdlacu --expiry 2100-01-01");
    let near = place.sas("people --permissions r --expiry 2100-01-01 --addresses 127.0.0.1");
    let far =
        place.sas("people --permissions r --expiry 2100-01-01 --addresses 192.0.2.1-192.0.2.9");
    let entity = |pk: &str, rk: &str| format!("/people(PartitionKey='{pk}',RowKey='{rk}')");
    for (method, target, token, status) in [
        ("GET", "/people".to_owned(), &read, 200),
        ("GET", entity("a", "1"), &read, 200),
        ("DELETE", entity("a", "1"), &read, 403),
        ("GET", "/Tables".to_owned(), &read, 403),
        ("GET", "/people?comp=acl".to_owned(), &read, 403),
        ("GET", entity("b", "1"), &some, 200),
        ("GET", entity("b", "2"), &some, 403),
        ("DELETE", entity("c", "1"), &some, 403),
        ("DELETE", entity("b", "1"), &some, 204),
        ("GET", "/people".to_owned(), &early, 403),
        ("GET", "/people".to_owned(), &other, 403),
        ("GET", "/people".to_owned(), &near, 200),
        ("GET", "/people".to_owned(), &far, 403),
        ("GET", "/Tables".to_owned(), &all, 200),
        ("DELETE", entity("c", "1"), &all, 204),
        ("GET", "/people".to_owned(), &String::new(), 403),
    ] {
        let found = with_token(&mut client, method, &target, token, "");
        assert_eq!(found, status, "{method} {target} {token}");
    }
    // A query returns the rows that the token covers.
    client.ask("POST", "/people", r#"{"PartitionKey":"b","RowKey":"0"}"#).is(201);
    client.send(format!("GET /devstoreaccount1/people?{some} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    let answer = client.answer();
    assert_eq!(answer.is(200).text().matches("\"RowKey\":").count(), 1, "{}", answer.text());
}

//! Tests malformed or contradictory requests. The server answers as Azure Table storage does or
//! closes the connection, and still serves other clients.

use std::fmt::Write as _;

use super::client::{Answer, Client, Key};
use super::{Place, Server};

const PEOPLE: &str = "/people";
const ANN: &str = "/people(PartitionKey='p',RowKey='ann')";

fn served() -> (Place, Server) {
    let place = Place::new();
    let server = place.serve("").with_table();
    (place, server)
}

/// Returns a signed request with a chunked body.
fn chunked(key: &Key, target: &str, chunks: &[u8]) -> Vec<u8> {
    let head = key.head("POST", target, "Transfer-Encoding: chunked\r\n\r\n");
    [head.as_bytes(), chunks].concat()
}

/// Sends malformed bytes and then closes the sending half.
#[track_caller]
fn refused(server: &Server, bytes: &[u8]) {
    let mut client = server.client();
    // The server may close the connection before it has read everything.
    drop(client.try_send(bytes));
    drop(client.stream.shutdown(std::net::Shutdown::Write));
    client.is_refused(&String::from_utf8_lossy(bytes));
}

#[test]
fn invalid_heads_end_the_connection() {
    let (_place, server) = served();
    for bytes in [
        &b""[..],
        b"\r\n\r\n\r\n",
        b"GARBAGE\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET \r\n\r\n",
        b"GET / \r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/2.0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
        b"G\x80T / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http:// HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\n: no name\r\n\r\n",
        b"GET / HTTP/1.1\r\nA b: c\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: \x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\nabc",
        b"GET / HTTP/1.1\r\nHost: a\r\n",
    ] {
        refused(&server, bytes);
    }
    server.is_well();
}

#[test]
fn transfer_codings_other_than_chunked_are_refused() {
    let (_place, server) = served();
    let body = r#"{"PartitionKey":"p","RowKey":"coded"}"#;
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let ask = |codings: &str| {
        let mut client = server.client();
        client.send(server.key.head("POST", PEOPLE, codings) + "\r\n" + &chunks);
        client.answer()
    };
    for codings in [
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: identity, chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
    ] {
        let answer = ask(codings);
        answer.is_error(501, "NotImplemented");
        assert_eq!(answer.header("connection"), Some("close"), "{codings}");
    }
    ask("Transfer-Encoding: Chunked\r\n").is(201);
    server.is_well();
}

#[test]
fn noise_ends_the_connection() {
    let (_place, server) = served();
    let mut state: u64 = 7;
    for _ in 0..200 {
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56).to_le_bytes()[0]
        });
        let noise: Vec<u8> = noise.take(300).collect();
        refused(&server, &noise);
    }
    server.is_well();
}

#[test]
fn heads_that_are_too_large_are_refused() {
    let (_place, server) = served();
    let long = "a".repeat(200 << 10);
    let many: String = (0..200).fold(String::new(), |mut text, i| {
        write!(text, "X-{i}: a\r\n").unwrap();
        text
    });
    for (request, status) in [
        (format!("GET / HTTP/1.1\r\nX: {long}\r\n\r\n"), 431),
        (format!("GET / HTTP/1.1\r\n{many}\r\n"), 431),
        (format!("GET /{} HTTP/1.1\r\n\r\n", &long[..70_000]), 414),
    ] {
        let mut client = server.client();
        drop(client.try_send(&request));
        let rest = client.rest();
        let text = String::from_utf8_lossy(&rest);
        // A server that stops reading resets the connection, which may lose the response.
        let told = rest.is_empty() || text.starts_with(&format!("HTTP/1.1 {status} "));
        assert!(told, "{status}: {text}");
    }
    // A filter may be as long as the request line allows.
    let filter = "%20or%20Age%20eq%201".repeat(2_000);
    let answer = server.ask("GET", &format!("{PEOPLE}?$filter=Age%20eq%200{filter}"), "");
    assert!(matches!(answer.status, 200 | 400), "{}", answer.head);
    server.is_well();
}

#[test]
fn heads_have_one_limit_however_they_are_sent() {
    let (_place, server) = served();
    let head = |bytes: usize| {
        let begin = server.key.head("GET", "/Tables", "X: ");
        let rest = bytes - begin.len() - 4;
        format!("{begin}{}\r\n\r\n", "a".repeat(rest))
    };
    for (bytes, status) in [(128 << 10, 200), ((128 << 10) + 1, 431), (160 << 10, 431)] {
        let mut client = server.client();
        client.send(head(bytes));
        let answer = client.answer();
        assert_eq!(answer.status, status, "{bytes}: {}", answer.head);
        let mut client = server.client();
        let head = head(bytes);
        let is_sent = head.as_bytes().chunks(1000).all(|piece| client.try_send(piece).is_ok());
        let answered = client.try_answer_to("GET");
        // A server that stops reading resets the connection, which may lose the response.
        assert!(is_sent && answered.is_ok() || status == 431, "{bytes}");
        assert!(answered.is_ok_and(|answer| answer.status == status) || status == 431, "{bytes}");
    }
}

#[test]
fn chunks_are_read_and_broken_ones_refused() {
    let (_place, server) = served();
    let mut client = server.client();
    let body = br#"{"PartitionKey":"p","RowKey":"chunked"}"#;
    let one_by_one: Vec<u8> = body
        .iter()
        .flat_map(|byte| [b"1;x=y\r\n".as_slice(), &[*byte], b"\r\n"].concat())
        .collect();
    client.send(chunked(
        &server.key,
        PEOPLE,
        &[&one_by_one, &b"0\r\nTrailer: x\r\n\r\n"[..]].concat(),
    ));
    client.answer_to("POST").is(201);
    client.ask("GET", "/people(PartitionKey='p',RowKey='chunked')", "").is(200);
    for chunks in [
        &b"zz\r\n{}\r\n0\r\n\r\n"[..],
        b"ffffffffffffffffff\r\n{}",
        b"2\r\n{}..0\r\n\r\n",
        b"5\r\n{}",
        b"-1\r\n{}\r\n0\r\n\r\n",
        b"2\r\n{}\r\n0\r\nno colon\r\n\r\n",
        b"2\n{}\n0\n\n",
        b"",
    ] {
        refused(&server, &chunked(&server.key, PEOPLE, chunks));
    }
    server.is_well();
}

#[test]
fn a_body_has_a_length() {
    let (_place, server) = served();
    for method in ["POST", "PUT", "MERGE", "PATCH"] {
        let mut client = server.client();
        client.send(server.key.head(method, ANN, "\r\n"));
        client.answer().is_error(411, "MissingContentLengthHeader");
    }
    // A request with another method needs no length, because it has no body.
    let mut client = server.client();
    client.send(server.key.head("DELETE", ANN, "If-Match: *\r\n\r\n"));
    client.answer().is_error(404, "ResourceNotFound");
}

#[test]
fn too_large_bodies_are_refused_with_a_response() {
    const LARGE: usize = (4 << 20) + 1;
    let (_place, server) = served();
    let mut client = server.client();
    client.ask("POST", PEOPLE, &" ".repeat(LARGE)).is_error(413, "RequestBodyTooLarge");
    let mut client = server.client();
    let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
    client.send(chunked(&server.key, PEOPLE, &[&chunk.repeat(65)[..], b"0\r\n\r\n"].concat()));
    client.answer().is_error(413, "RequestBodyTooLarge");
    // The server does not send `100 Continue` for a body that it will refuse.
    let mut client = server.client();
    let expect = format!("Content-Length: {LARGE}\r\nExpect: 100-continue\r\n\r\n");
    client.send(server.key.head("POST", PEOPLE, &expect));
    client.answer().is_error(413, "RequestBodyTooLarge");
    // A body that is one byte shorter is read, and refused because it is not JSON.
    let mut client = server.client();
    client.ask("POST", PEOPLE, &" ".repeat(LARGE - 1)).is_error(400, "InvalidInput");
    server.is_well();
}

#[test]
fn invalid_json_is_refused() {
    let (_place, server) = served();
    let mut client = server.client();
    let keys = r#""PartitionKey":"p","RowKey":"r""#;
    let deep = format!("{{{keys},\"A\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let nested = format!("{}1{}", "{\"A\":".repeat(10_000), "}".repeat(10_000));
    let nested = format!("{{{keys},\"A\":{nested}}}");
    let deeper = "[".repeat(4 << 20);
    let large = format!("{{{keys},\"A\":\"{}\"}}", "x".repeat(40_000));
    for (body, code) in [
        ("", "InvalidInput"),
        ("null", "InvalidInput"),
        ("[]", "InvalidInput"),
        ("{", "InvalidInput"),
        ("{}}", "InvalidInput"),
        ("{'a':1}", "InvalidInput"),
        (&deep, "InvalidInput"),
        (&nested, "InvalidInput"),
        (&deeper, "InvalidInput"),
        (&format!("{{{keys},\"A\":[1]}}"), "InvalidInput"),
        (&format!("{{{keys},\"A\":{{}}}}"), "InvalidInput"),
        (&format!("{{{keys},\"A\":1,\"A\":2}}"), "DuplicatePropertiesSpecified"),
        (&format!("{{{keys},\"RowKey\":\"s\"}}"), "DuplicatePropertiesSpecified"),
        (&format!("{{{keys},\"A\":99999999999}}"), "InvalidInput"),
        (&format!("{{{keys},\"A\":1e999}}"), "InvalidInput"),
        (&format!("{{{keys},\"A\":\"\\ud800\"}}"), "InvalidInput"),
        (&format!("{{{keys},\"A@odata.type\":\"Edm.Int64\",\"A\":\"x\"}}"), "InvalidInput"),
        (&format!("{{{keys},\"A@odata.type\":\"Edm.Guid\",\"A\":true}}"), "InvalidInput"),
        (&format!("{{{keys},\"A@odata.type\":\"Edm.Nothing\",\"A\":\"x\"}}"), "InvalidInput"),
        (&format!("{{{keys},\"A@odata.type\":7,\"A\":\"x\"}}"), "InvalidInput"),
        (&format!("{{{keys},\"a-b\":1}}"), "PropertyNameInvalid"),
        (&format!("{{{keys},\"{}\":1}}", "A".repeat(256)), "PropertyNameTooLong"),
        (&large, "PropertyValueTooLarge"),
        (r#"{"PartitionKey":"p"}"#, "PropertiesNeedValue"),
        (r#"{"PartitionKey":"p","RowKey":null}"#, "PropertiesNeedValue"),
        (r#"{"PartitionKey":"a/b","RowKey":"r"}"#, "OutOfRangeInput"),
    ] {
        let shown = &body[..body.len().min(80)];
        let answer = client.ask("POST", PEOPLE, body);
        assert_eq!(answer.header("x-ms-error-code"), Some(code), "{shown}: {}", answer.head);
        answer.is_error(400, code);
    }
    client
        .ask_with("POST", PEOPLE, "", b"{\"PartitionKey\":\"\xff\"}")
        .is_error(400, "InvalidInput");
    client.ask("GET", PEOPLE, "").is(200);
}

#[test]
fn invalid_escapes_are_refused() {
    let (_place, server) = served();
    let mut client = server.client();
    for (target, code) in [
        ("/people(PartitionKey='%',RowKey='r')", "RequestUrlFailedToParse"),
        ("/people(PartitionKey='%zz',RowKey='r')", "RequestUrlFailedToParse"),
        ("/people(PartitionKey='%ff',RowKey='r')", "RequestUrlFailedToParse"),
        ("/people(PartitionKey='%2',RowKey='r')", "RequestUrlFailedToParse"),
        ("/people(PartitionKey='a'b',RowKey='r')", "InvalidInput"),
        ("/people(PartitionKey='a)", "InvalidInput"),
        ("/people(PartitionKey='a',RowKey='b'", "InvalidInput"),
        ("/people(PartitionKey='a')", "InvalidInput"),
        ("/people?$filter=%", "InvalidInput"),
        ("/people?$filter=Name%20eq%20%ff", "InvalidInput"),
        ("/people?$filter=((((", "InvalidInput"),
        ("/people?$top=-1", "InvalidInput"),
        ("/people?$top=1&$top=2", "InvalidInput"),
        ("/people?NextPartitionKey=1!9!x", "InvalidInput"),
    ] {
        client.ask("GET", target, "").is_error(400, code);
    }
    client.ask("GET", "/people?$orderby=Age", "").is_error(501, "NotImplemented");
    let deep = format!("/people?$filter={}A%20eq%201{}", "(".repeat(10_000), ")".repeat(10_000));
    client.ask("GET", &deep, "").is_error(400, "InvalidInput");
    let page = client.ask("GET", "/people(PartitionKey='%00',RowKey='r')", "");
    assert!(page.is(400).text().contains("Invalid URL"), "{}", page.text());
    client.ask("GET", PEOPLE, "").is(200);
}

#[test]
fn invalid_batches_are_refused() {
    let (_place, server) = served();
    let mut client = server.client();
    let insert = "Content-Type: application/http\r\n\r\nPOST /people HTTP/1.1\r\n\r\n{\"PartitionKey\":\"p\",\"RowKey\":\"r\"}";
    let inner = |parts: &str| {
        format!("--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n{parts}\r\n--b--\r\n")
    };
    let many = format!("--c\r\n{insert}\r\n").repeat(101);
    let one = format!("--c\r\n{insert}\r\n--c--");
    let twice = format!("{one}\r\n--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n{one}");
    let mut send = |content_type: &str, body: &str| -> Answer {
        let headers = format!("Content-Type: {content_type}\r\n");
        client.ask_with("POST", "/$batch", &headers, body.as_bytes())
    };
    for (content_type, body) in [
        ("application/json", "{}".to_owned()),
        ("multipart/mixed", inner("")),
        ("multipart/mixed; boundary=", inner("")),
        ("multipart/mixed; boundary=b", String::new()),
        ("multipart/mixed; boundary=b", "--b--\r\n".to_owned()),
        ("multipart/mixed; boundary=b", "--b\r\n".repeat(50_000)),
        ("multipart/mixed; boundary=b", inner("")),
        ("multipart/mixed; boundary=b", inner("--c--")),
        ("multipart/mixed; boundary=b", inner(&format!("--c\r\n{insert}"))),
        ("multipart/mixed; boundary=b", inner("--c\r\n\r\nnonsense\r\n--c--")),
        ("multipart/mixed; boundary=b", inner("--c\r\nno colon\r\n\r\n--c--")),
        ("multipart/mixed; boundary=b", inner(&twice)),
    ] {
        let shown = &body[..body.len().min(80)];
        let answer = send(content_type, &body);
        assert_eq!(answer.status, 400, "{content_type} {shown}: {}", answer.text());
        answer.is_error(400, "InvalidInput");
    }
    // An invalid operation is reported in the batch response.
    let answer = send("multipart/mixed; boundary=b", &inner(&format!("{many}--c--")));
    assert!(
        answer.is(202).text().contains("99:The batch request operation exceeds"),
        "{}",
        answer.text()
    );
    let good = inner(&one);
    assert!(send("multipart/mixed; boundary=b", &good).is(202).text().contains("HTTP/1.1 201"));
    assert!(send("multipart/mixed; boundary=b", &good).is(202).text().contains("HTTP/1.1 409"));
}

#[test]
fn a_client_that_closes_its_half_is_answered() {
    let (_place, server) = served();
    let mut client = server.client();
    client.send(server.key.request("GET", PEOPLE, "", b""));
    client.half_close();
    client.answer().is(200);
    client.is_closed();
    // A truncated request is not executed.
    let insert = server.key.request("POST", PEOPLE, "", br#"{"PartitionKey":"p","RowKey":"cut"}"#);
    for end in [10, insert.len() / 2, insert.len() - 1] {
        refused(&server, &insert[..end]);
    }
    server
        .ask("GET", "/people(PartitionKey='p',RowKey='cut')", "")
        .is_error(404, "ResourceNotFound");
}

#[test]
fn requests_in_a_row_are_answered_in_order() {
    let (_place, server) = served();
    let mut client = server.client();
    let mut sent = Vec::new();
    for i in 0..20 {
        let id = format!("x-ms-client-request-id: {i}\r\n");
        sent.extend(match i % 4 {
            0 => server.key.request("GET", PEOPLE, &id, b""),
            1 => {
                let body = format!(r#"{{"PartitionKey":"p","RowKey":"{i}"}}"#);
                server.key.request("POST", PEOPLE, &id, body.as_bytes())
            }
            2 => server.key.request("HEAD", PEOPLE, &id, b""),
            _ => server.key.request("POST", PEOPLE, &id, b"nonsense"),
        });
    }
    client.send(sent);
    client.half_close();
    for i in 0..20 {
        let (method, status) = [("GET", 200), ("POST", 201), ("HEAD", 200), ("POST", 400)][i % 4];
        let answer = client.answer_to(method);
        assert_eq!(answer.header("x-ms-client-request-id"), Some(&*i.to_string()));
        answer.is(status);
    }
    client.is_closed();
}

#[test]
fn connections_are_kept_until_close_is_requested() {
    let (_place, server) = served();
    let mut client = server.client();
    for i in 0..100 {
        let body = format!(r#"{{"PartitionKey":"kept","RowKey":"{i}"}}"#);
        let answer =
            client.ask_with("POST", PEOPLE, "Prefer: return-no-content\r\n", body.as_bytes());
        assert_eq!(answer.is(204).header("content-length"), Some("0"));
    }
    client.ask("GET", "/nothing", "").is_error(404, "TableNotFound");
    client.ask_with("GET", PEOPLE, "Connection: close\r\n", b"").is(200);
    client.is_closed();
    // A client of HTTP/1.0 does not understand chunks.
    let mut client = server.client();
    let old = server.key.head("GET", PEOPLE, "\r\n").replace("HTTP/1.1", "HTTP/1.0");
    client.send(old);
    let answer = client.answer();
    assert_eq!(answer.is(200).header("transfer-encoding"), None);
    assert!(answer.text().starts_with('{') && answer.text().ends_with('}'), "{}", answer.text());
    client.is_closed();
}

#[test]
fn expect_100_continue_is_answered() {
    let (_place, server) = served();
    let mut client = server.client();
    let body = r#"{"PartitionKey":"p","RowKey":"asked"}"#;
    let headers = format!("Content-Length: {}\r\nExpect: 100-continue\r\n\r\n", body.len());
    client.send(server.key.head("POST", PEOPLE, &headers));
    client.answer().is(100);
    client.send(body);
    client.answer().is(201);
    client.ask("GET", PEOPLE, "").is(200);
}

#[test]
fn an_address_in_the_request_line_names_the_host() {
    let (_place, server) = served();
    let request = |line: &str, host: &str| {
        let request = server.key.head("GET", "/Tables", "\r\n");
        let request = request.replace("/devstoreaccount1/Tables HTTP", &format!("{line} HTTP"));
        request.replace("Host: localhost\r\n", host)
    };
    let mut client = server.client();
    client.send(request("http://tables.localhost:7/devstoreaccount1/Tables", "Host: other\r\n"));
    let answer = client.answer();
    assert!(answer.is(200).text().contains("http://tables.localhost:7/devstoreaccount1/$metadata"));
    client.send(request("/devstoreaccount1/Tables", ""));
    client.answer().is_error(400, "HostInformationNotPresent");
}

#[test]
fn a_condition_that_is_no_text_is_refused() {
    let (_place, server) = served();
    let mut client: Client = server.client();
    client.ask("PUT", ANN, r#"{"Age":1}"#).is(204);
    let mut request = server.key.head("PUT", ANN, "If-Match: ").into_bytes();
    request.extend_from_slice(b"\xff\xfe\r\nContent-Length: 9\r\n\r\n{\"Age\":2}");
    client.send(request);
    client.answer().is_error(400, "InvalidHeaderValue");
    assert!(client.ask("GET", ANN, "").is(200).text().contains("\"Age\":1"));
}

#[test]
fn unknown_methods_and_paths_are_refused() {
    let (_place, server) = served();
    let mut client = server.client();
    client.ask("BREW", PEOPLE, "").is_error(405, "MethodNotAllowed");
    client.ask("POST", ANN, "{}").is_error(405, "MethodNotAllowed");
    client.ask("TRACE", "/", "").is_error(405, "MethodNotAllowed");
    for target in ["//", "/a/b/c", "/$nothing", "/../../etc/passwd"] {
        let answer = client.ask("GET", target, "");
        assert!((400..500).contains(&answer.status), "{target}: {}", answer.head);
        assert!(answer.header("x-ms-error-code").is_some(), "{target}: {}", answer.head);
    }
    let mut client = server.client();
    client.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = client.answer();
    assert!((400..500).contains(&answer.status), "{}", answer.head);
}

//! Tests the parser of batches: a recorded batch, the deviations from it that real clients send,
//! and malformed batches.

use super::*;
use crate::error::Code;
use crate::model::ETag;
use crate::rest::protocol::address::{self, Resource, Style};
use crate::rest::protocol::answer::{Answer, read_response};
use crate::rest::protocol::fault::Occasion;
use crate::rest::protocol::headers::{Level, Preference};
use crate::rng::Rng;

const OUTER: &str = "multipart/mixed; boundary=batch_B";

/// Returns the example request from the service's reference documentation, with CR LF line ends.
fn recorded() -> String {
    let text = r#"--batch_B
Content-Type: multipart/mixed; boundary=changeset_C

--changeset_C
Content-Type: application/http
Content-Transfer-Encoding: binary

POST https://acme.table.core.windows.net/Devices HTTP/1.1
Content-Type: application/json
Accept: application/json;odata=minimalmetadata
Prefer: return-no-content

{"PartitionKey":"zone-7","RowKey":"0042","Rpm":1450}
--changeset_C
Content-Type: application/http
Content-Transfer-Encoding: binary

DELETE https://acme.table.core.windows.net/Devices(PartitionKey='zone-7',RowKey='0041') HTTP/1.1
If-Match: *

--changeset_C--
--batch_B--
"#;
    text.replace('\n', "\r\n")
}

fn parts(text: &str) -> Vec<Part<'_>> {
    match read(text.as_bytes(), OUTER) {
        Ok(Envelope::Changeset(parts)) => parts,
        other => panic!("{text}: {other:?}"),
    }
}

/// Asserts that `text` parses to the same parts as the recorded request.
#[track_caller]
fn same(text: &str) {
    let recorded = recorded();
    assert_eq!(parts(text), parts(&recorded), "{text}");
}

#[track_caller]
fn refused(text: &str) {
    let fault = read(text.as_bytes(), OUTER).unwrap_err();
    assert_eq!((&*fault.code, fault.status, fault.index), ("InvalidInput", 400, None), "{text}");
}

#[test]
fn the_recorded_request() {
    let text = recorded();
    let parts = parts(&text);
    let [insert, delete] = parts.as_slice() else { panic!("{parts:?}") };
    assert_eq!(insert.method(), Ok(Method::Post));
    assert_eq!(insert.headers.value("prefer"), Some("return-no-content"));
    assert_eq!(insert.body, r#"{"PartitionKey":"zone-7","RowKey":"0042","Rpm":1450}"#);
    assert_eq!(insert.content_id, None);
    assert_eq!(delete.method(), Ok(Method::Delete));
    assert_eq!((delete.headers.value("If-Match"), delete.body), (Some("*"), ""));
    let host = "acme.table.core.windows.net";
    let outer = address::read("/$batch", "", host, Style::ByHost).unwrap();
    assert_eq!(insert.target(&outer).unwrap().resource, Resource::Entities("Devices".into()));
    match delete.target(&outer).unwrap().resource {
        Resource::Entity { table, key } => {
            assert_eq!(
                (&*table, &*key.partition_key, &*key.row_key),
                ("Devices", "zone-7", "0041")
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn accepted_deviations_of_real_clients() {
    let text = recorded();
    same(&text.replace("\r\n", "\n"));
    same(text.trim_end());
    same(&text.replace("--batch_B--", "--batch_B"));
    same(text.replace("--batch_B--", "--batch_B").trim_end());
    same(&text.replace("boundary=changeset_C", "boundary=\"changeset_C\""));
    same(&text.replace("boundary=changeset_C\r\n", "boundary=changeset_C\r\n\r\n"));
    same(&text.replace("binary\r\n\r\n", "binary\r\n\r\n\r\n"));
    same(&text.replace("no-content\r\n\r\n", "no-content\r\n\r\n\r\n"));
    same(&text.replace("If-Match: *\r\n\r\n", "If-Match: *\r\n"));
    same(&text.replace("If-Match: *\r\n\r\n", "If-Match: *\r\n\r\n\r\n"));
    same(&text.replace("Content-Type: multipart", "CONTENT-TYPE:multipart"));
    same(&text.replace(
        "Content-Type: application/http\r\n",
        "content-type: application/http;msgtype=request\r\n",
    ));
    same(&text.replace("Content-Type: application/http\r\n", ""));
    same(&format!("This is a message with multiple parts.\r\n\r\n{text}and an epilogue"));
    same(&text.replace("--changeset_C\r\n", "--changeset_C  \r\n"));
    same(&text.replace(" HTTP/1.1", "  HTTP/1.1"));
    let quoted =
        read(text.as_bytes(), "Multipart/Mixed;charset=utf-8; BOUNDARY=\"batch_B\"").unwrap();
    assert_eq!(quoted, Envelope::Changeset(parts(&text)));
}

#[test]
fn ids_and_lengths_of_parts() {
    let text = recorded();
    for (text, expected) in [
        (text.replace("POST https", "Content-ID: 9\r\n\r\nPOST https"), None),
        (text.replace("Content-Transfer-Encoding: binary\r\n", "Content-Id: 7 \r\n"), Some("7")),
        (text.replace("Prefer:", "content-id: 8\r\nPrefer:"), Some("8")),
        (text.replace("Prefer:", "Content-Length: 3\r\nPrefer:"), None),
    ] {
        match read(text.as_bytes(), OUTER) {
            Ok(Envelope::Changeset(parts)) => {
                assert_eq!(parts[0].content_id, expected);
                assert_eq!(
                    parts[0].body.len(),
                    52,
                    "a part is read whole, whatever its Content-Length is"
                );
            }
            other => assert_eq!((expected, other.is_err()), (None, true), "{text}"),
        }
    }
}

#[test]
fn bodies_with_text_that_looks_like_a_delimiter() {
    let text =
        recorded().replace("1450}", "1450,\"A\":\"--changeset_C\",\"B\":\"\\r\\n--batch_B--\"}");
    assert_eq!(parts(&text).len(), 2);
    let longer = recorded().replace("1450}", "1450}\r\n--changeset_CC\r\n");
    assert!(parts(&longer)[0].body.ends_with("--changeset_CC"));
}

#[test]
fn a_hundred_operations_and_no_more() {
    let text = recorded();
    let begin = text.find("--changeset_C\r\n").unwrap();
    let end = text.find("--changeset_C--").unwrap();
    let one = &text[text[begin + 1..].find("--changeset_C\r\n").unwrap() + begin + 1..end];
    let many = |n: usize| format!("{}{}{}", &text[..begin], one.repeat(n), &text[end..]);
    assert_eq!(parts(&many(100)).len(), 100);
    for n in [101, 102, 10_000] {
        let fault = read(many(n).as_bytes(), OUTER).unwrap_err();
        assert_eq!((&*fault.code, fault.status, fault.index), ("InvalidInput", 400, Some(99)));
        assert!(fault.message.starts_with("The batch request operation exceeds the maximum 100"));
    }
    refused(&many(0));
}

#[test]
fn a_read_must_be_alone_and_outside_a_changeset() {
    let text = "--batch_B\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
                GET /people(PartitionKey='p',RowKey='r') HTTP/1.1\r\nAccept: application/json\r\n\r\n--batch_B--";
    match read(text.as_bytes(), OUTER) {
        Ok(Envelope::Query(part)) => {
            assert_eq!(part.method(), Ok(Method::Get));
            assert_eq!(part.url, "/people(PartitionKey='p',RowKey='r')");
            assert_eq!(part.headers.value("Accept"), Some("application/json"));
        }
        other => panic!("{other:?}"),
    }
    refused(&text.replace("GET", "DELETE"));
    let twice = text.replace("--batch_B--", &text[..text.len() - 11]) + "--batch_B--";
    refused(&twice);
    let inside = recorded().replace("DELETE https", "GET https");
    let Ok(Envelope::Changeset(parts)) = read(inside.as_bytes(), OUTER) else { panic!() };
    assert_eq!(parts.iter().position(Part::is_read), Some(1));
}

#[test]
fn envelopes_that_are_refused() {
    let text = recorded();
    for content_type in [
        "",
        "application/json",
        "multipart/mixed",
        "multipart/mixed; boundary=",
        "multipart/mixed; boundary=\"\"",
        "multipart/mixed; boundary=other",
        "multipart/form-data; boundary=batch_B",
        &format!("multipart/mixed; boundary={}", "x".repeat(201)),
    ] {
        let fault = read(text.as_bytes(), content_type).unwrap_err();
        assert_eq!((&*fault.code, fault.index), ("InvalidInput", None), "{content_type}");
    }
    refused("");
    refused("--batch_B--");
    refused("--batch_B\r\n\r\n--batch_B--");
    refused(&text.replace("--changeset_C--\r\n", ""));
    refused(&text.replace("boundary=changeset_C", "boundary=changeset_D"));
    refused(&text.replace("boundary=changeset_C", "boundary=batch_B"));
    refused(&text.replace("; boundary=changeset_C", ""));
    refused(&text.replace("multipart/mixed;", "text/plain;"));
    refused(&text.replace("application/http", "text/plain"));
    refused(&text.replace(" HTTP/1.1", ""));
    refused(&text.replace("Prefer: ", "Prefer "));
    refused(&text.replace("Prefer: ", "Pre fer: "));
    refused(&text.replace("Prefer: ", ": "));
    refused(&text.replace("Prefer: ", "Prefer: a\rb\u{7}"));
    refused(&text.replace("Prefer: ", &"A: b\r\n".repeat(HEADERS_MAX)));
    // A second changeset is refused.
    let inner = &text[..text.find("--batch_B--").unwrap()];
    refused(&format!("{inner}{text}"));
    refused(&format!("{}--batch_B--", inner.repeat(1000)));
    let mut bytes = text.into_bytes();
    bytes[200] = 0xff;
    assert_eq!(read(&bytes, OUTER).unwrap_err().code, "InvalidInput");
}

#[test]
fn every_cut_is_refused_before_the_last_delimiter() {
    let text = recorded();
    let last = text.rfind("--batch_B").unwrap();
    for end in 0..last {
        assert!(read(&text.as_bytes()[..end], OUTER).is_err(), "{}", &text[..end]);
    }
}

#[test]
fn any_text_is_read_or_refused() {
    let mut rng = Rng::from_seed(5);
    let text = recorded();
    let lines: Vec<_> = text.split_inclusive("\r\n").collect();
    for _ in 0..20_000 {
        let mut shuffled: Vec<_> = lines.clone();
        for _ in 0..=rng.below(4) {
            let (from, to) = (rng.below(lines.len() as u64), rng.below(lines.len() as u64));
            shuffled[to as usize] = lines[from as usize];
        }
        // A shuffled batch may be accepted, but only with 1 to 100 operations.
        if let Ok(Envelope::Changeset(parts)) = read(shuffled.concat().as_bytes(), OUTER) {
            assert!((1..=100).contains(&parts.len()));
        }
    }
    refused(&"--batch_B\n".repeat(400_000));
    refused(&"--batch_\n".repeat(400_000));
    refused(&format!("--batch_B\n{}", "A:b\n".repeat(1_000_000)));
}

fn boundaries() -> Boundaries {
    Boundaries { batch: "b-1".into(), changeset: "c-2".into() }
}

fn etag() -> ETag {
    "W/\"datetime'2024-02-03T04%3A05%3A06.1234567Z'\"".parse().unwrap()
}

fn occasion() -> Occasion<'static> {
    Occasion { request_id: "id", time: "2024-02-03T04:05:06Z".parse().unwrap() }
}

fn answers(text: &str) -> Vec<Answer<'_>> {
    read_response(text.as_bytes(), &boundaries().response_type()).unwrap()
}

#[test]
fn the_recorded_response() {
    let location =
        "https://acme.table.core.windows.net/Devices(PartitionKey='zone-7',RowKey='0042')";
    let preference = Some(Preference::NoContent);
    let replies = [
        (None, Reply::Inserted { location, etag: &etag(), preference, body: None }),
        (
            Some("2"),
            Reply::Inserted {
                location,
                etag: &etag(),
                preference: None,
                body: Some((Level::None, b"{}")),
            },
        ),
        (None, Reply::Written { etag: &etag() }),
        (Some("4"), Reply::Deleted),
    ];
    let (mut out, boundaries) = (Vec::new(), boundaries());
    let mut changeset = Changeset::begin(&mut out, &boundaries);
    replies.into_iter().for_each(|(content_id, reply)| changeset.put(content_id, reply));
    changeset.end();
    let out = String::from_utf8(out).unwrap();
    let expected = r#"--batchresponse_b-1
Content-Type: multipart/mixed; boundary=changesetresponse_c-2

--changesetresponse_c-2
Content-Type: application/http
Content-Transfer-Encoding: binary

HTTP/1.1 204 No Content
X-Content-Type-Options: nosniff
Cache-Control: no-cache
Preference-Applied: return-no-content
DataServiceVersion: 3.0;
Location: https://acme.table.core.windows.net/Devices(PartitionKey='zone-7',RowKey='0042')
DataServiceId: https://acme.table.core.windows.net/Devices(PartitionKey='zone-7',RowKey='0042')
ETag: W/"datetime'2024-02-03T04%3A05%3A06.1234567Z'"


--changesetresponse_c-2
Content-Type: application/http
Content-Transfer-Encoding: binary

HTTP/1.1 201 Created
Content-ID: 2
X-Content-Type-Options: nosniff
Cache-Control: no-cache
DataServiceVersion: 3.0;
Content-Type: application/json;odata=nometadata;streaming=true;charset=utf-8
Location: https://acme.table.core.windows.net/Devices(PartitionKey='zone-7',RowKey='0042')
ETag: W/"datetime'2024-02-03T04%3A05%3A06.1234567Z'"

{}
--changesetresponse_c-2
Content-Type: application/http
Content-Transfer-Encoding: binary

HTTP/1.1 204 No Content
X-Content-Type-Options: nosniff
Cache-Control: no-cache
DataServiceVersion: 1.0;
ETag: W/"datetime'2024-02-03T04%3A05%3A06.1234567Z'"


--changesetresponse_c-2
Content-Type: application/http
Content-Transfer-Encoding: binary

HTTP/1.1 204 No Content
Content-ID: 4
X-Content-Type-Options: nosniff
Cache-Control: no-cache
DataServiceVersion: 1.0;


--changesetresponse_c-2--
--batchresponse_b-1--
"#;
    assert_eq!(out, expected.replace('\n', "\r\n"));
    let answers = answers(&out);
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [204, 201, 204, 204]);
    assert_eq!(answers[1].body, "{}");
    assert_eq!((answers[0].content_id, answers[3].content_id), (None, Some("4")));
    assert_eq!(answers[2].headers.value("etag").unwrap(), etag().to_string());
    assert!(answers.iter().all(|answer| answer.fault().is_none()));
}

#[test]
fn a_failure_is_the_only_part() {
    let fault = Fault::from(Code::TableNotFound).at_index(0);
    let mut out = Vec::new();
    put_failure(&mut out, &boundaries(), None, &fault, occasion());
    let out = String::from_utf8(out).unwrap();
    let expected = r#"--batchresponse_b-1
Content-Type: multipart/mixed; boundary=changesetresponse_c-2

--changesetresponse_c-2
Content-Type: application/http
Content-Transfer-Encoding: binary

HTTP/1.1 404 Not Found
X-Content-Type-Options: nosniff
DataServiceVersion: 3.0;
Content-Type: application/json;odata=minimalmetadata;streaming=true;charset=utf-8

{"odata.error":{"code":"TableNotFound","message":{"lang":"en-US","value":"0:The table specified does not exist.\nRequestId:id\nTime:2024-02-03T04:05:06.0000000Z"}}}
--changesetresponse_c-2--
--batchresponse_b-1--
"#;
    assert_eq!(out, expected.replace('\n', "\r\n"));
    let answers = answers(&out);
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].fault(), Some(fault));
}

#[test]
fn every_status_has_a_reason() {
    let codes = [
        Code::EntityAlreadyExists,
        Code::UpdateConditionNotSatisfied,
        Code::ServerBusy,
        Code::StorageFull,
    ];
    for code in codes {
        let mut out = Vec::new();
        put_not_found(&mut out, &boundaries(), &code.into(), occasion());
        let out = String::from_utf8(out).unwrap();
        let answers = answers(&out);
        assert_eq!(answers[0].fault(), Some(code.into()));
        assert!(!out.contains("Error\r\n"), "{out}");
    }
    let odd = Answer { status: 502, headers: Fields::default(), body: "<html>", content_id: None };
    assert_eq!(odd.fault(), Some(Fault::unreadable(502, "<html>")));
}

#[test]
fn a_read_that_found_its_entity() {
    let mut out = Vec::new();
    put_found(&mut out, &boundaries(), &etag(), Level::Minimal, b"{\"A\":1}");
    let out = String::from_utf8(out).unwrap();
    let expected = r#"--batchresponse_b-1
Content-Type: application/http
Content-Transfer-Encoding: binary

HTTP/1.1 200 OK
DataServiceVersion: 3.0;
Content-Type: application/json;odata=minimalmetadata;streaming=true;charset=utf-8
X-Content-Type-Options: nosniff
Cache-Control: no-cache
ETag: W/"datetime'2024-02-03T04%3A05%3A06.1234567Z'"

{"A":1}
--batchresponse_b-1--
"#;
    assert_eq!(out, expected.replace('\n', "\r\n"));
    let answers = answers(&out);
    assert_eq!((answers[0].status, answers[0].body), (200, "{\"A\":1}"));
}

#[test]
fn malformed_responses_are_refused() {
    let (mut out, boundaries) = (Vec::new(), boundaries());
    let mut changeset = Changeset::begin(&mut out, &boundaries);
    changeset.put(None, Reply::Deleted);
    changeset.end();
    let text = String::from_utf8(out).unwrap();
    let content_type = boundaries.response_type();
    for end in 0..text.rfind("--batchresponse").unwrap() {
        assert_eq!(read_response(&text.as_bytes()[..end], &content_type), None);
    }
    for odd in
        [text.replace("204", "2x4"), text.replace("204", "20"), text.replace("HTTP/1.1", "HTTP/3")]
    {
        assert_eq!(read_response(odd.as_bytes(), &content_type), None);
    }
    assert_eq!(read_response(text.as_bytes(), "multipart/mixed; boundary=x"), None);
    assert_eq!(read_response(b"\xff", &content_type), None);
}

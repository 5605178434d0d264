//! Tests the limits on the size of responses. A page of a query's results is limited by the bytes
//! sent. The budget of unsent responses is charged before a response is built; a request that does
//! not fit gets a regular error response.

use super::account_tokens::{account, signed_account};
use super::*;
use crate::model::Entity;
use crate::query::{Filter, KeyRange};
use crate::rest::http::body::Budget;
use crate::rest::http::request_slots::{RequestSlot, RequestSlots};
use crate::table::GateMode;

const MIB: usize = 1 << 20;
const NO_METADATA: &str = "application/json;odata=nometadata";
const ATOM: &str = "application/atom+xml";
const NOT_READY: &str =
    "The server is currently unable to receive requests. Please retry your request.";

impl Ask<'_> {
    /// Sends the request as one that is being carried out. Returns the status, and the slot.
    fn in_slot(mut self, slots: &Arc<RequestSlots>) -> (u16, Option<Arc<RequestSlot>>) {
        self.request.request_slot = slots.take().map(Arc::new);
        assert!(self.request.request_slot.is_some(), "there is a free slot");
        let (request, reply) = self.reply();
        (reply.status.as_u16(), request.request_slot)
    }
}

impl Site {
    fn put_entity(&self, entity: Entity) {
        self.account().db.table("people").unwrap().upsert(entity).unwrap();
    }
}

/// Returns an entity with a size of almost 1 MB as the service counts it. Its JSON has 3 MB,
/// because each character becomes an escape of six bytes.
fn swelling(rk: &str) -> Entity {
    let text = "\u{1}".repeat(32 << 10);
    (0..15).fold(Entity::new("p", rk), |entity, i| entity.with(format!("A{i}"), text.as_str()))
}

#[test]
fn pages_are_limited_by_the_bytes_sent() {
    let site = Site::people();
    (0..6).for_each(|i| site.put_entity(swelling(&i.to_string())));
    let (mut rows, mut token) = (0, None::<[String; 2]>);
    loop {
        let mut parameters = Vec::new();
        if let Some([partition, row]) = &token {
            parameters =
                vec![("NextPartitionKey", partition.as_str()), ("NextRowKey", row.as_str())];
        }
        let got = site.get_with("people()", &parameters).accept(NO_METADATA).send().done(200);
        assert!(got.body.len() < 4 * MIB + 3 * MIB, "{}", got.body.len());
        rows += got.values("RowKey").len();
        let header = |name| got.header(name).map(str::to_owned);
        let next = header("x-ms-continuation-nextpartitionkey");
        match next.zip(header("x-ms-continuation-nextrowkey")) {
            Some((partition, row)) => token = Some([partition, row]),
            None => break,
        }
    }
    assert_eq!(rows, 6);
}

#[test]
fn filled_in_nulls_are_charged_to_the_page() {
    let site = Site::people();
    (0..200).for_each(|i| site.put_entity(Entity::new("p", format!("{i:03}"))));
    let names: Vec<_> = (0..250).map(|i| format!("{}{i:03}", "N".repeat(240))).collect();
    let got = site.get_with("people()", &[("$select", &names.join(","))]).send().done(200);
    assert!(got.body.len() < 4 * MIB + MIB / 8, "{}", got.body.len());
    assert!(got.header("x-ms-continuation-nextrowkey").is_some());
    // A property that is selected twice counts once.
    let twice = format!("{0},{0},RowKey,{0}", names[0]);
    let got = site.get_with("people()", &[("$select", &twice), ("$top", "1")]).send().done(200);
    assert_eq!(got.body.matches(&format!("\"{}\":null", names[0])).count(), 1);
    assert!(got.has(&format!("$select={},RowKey\"", names[0])), "{}", got.body);
}

#[test]
fn invalid_property_names_are_not_filled_with_null() {
    let site = Site::people();
    site.insert("p", "r", "\"A\":\"x\"");
    let select = [("$select", "odata.etag,A@odata.type,A,a-b,B")];
    for path in ["people()", &person("r")] {
        let got = site.get_with(path, &select).send().done(200);
        assert_eq!(got.body.matches("\"odata.etag\":").count(), 1, "{}", got.body);
        assert!(got.has("\"A\":\"x\",\"B\":null}"), "{}", got.body);
        assert!(!got.has("A@odata.type\":null") && !got.has("\"a-b\""), "{}", got.body);
    }
}

#[test]
fn a_response_over_the_budget_is_refused_and_counted() {
    let site = Site::people();
    site.put_entity(swelling("0"));
    site.insert("q", "small", "");
    let room = Budget::new(MIB);
    for path in ["people()".to_owned(), person("0")] {
        let mut ask = site.get(&path);
        ask.request.response_budget = Some(room.clone());
        let got = ask.send().refused(503, "ServerBusy", NOT_READY);
        assert_eq!(got.header("x-ms-request-id"), Some(&*got.request_id));
        assert_eq!(got.header("x-ms-version"), Some("2019-02-02"));
    }
    let mut ask = site.filter("PartitionKey eq 'q'");
    ask.request.response_budget = Some(room.clone());
    assert_eq!(ask.send().done(200).values("RowKey"), ["small"]);
    let counted = crate::rest::http::metrics::text(&site.service, 0);
    let busy = "{method=\"GET\",status=\"503\",code=\"ServerBusy\"} 2";
    assert!(counted.contains(busy), "{counted}");
    // The response to a write is sent even if the budget is exhausted.
    let mut ask = site.put(&person("1"), "{}");
    ask.request.response_budget = Some(Budget::new(0));
    ask.send().empty(204);
}

#[test]
fn a_batch_that_the_server_cannot_carry_out_is_a_failed_request() {
    let site = Site::people();
    let db = &site.account().db;
    db.gate("people", KeyRange::partition("p"), GateMode::Offline).unwrap();
    let inner = |method: &str, body: &str| {
        format!(
            "Content-Type: application/http\r\n\r\n{method} {BASE}{} HTTP/1.1\r\n\r\n{body}\r\n",
            person("r")
        )
    };
    let send = |parts: String| {
        site.ask("POST", "$batch").body("multipart/mixed; boundary=b", &parts).send()
    };
    let write = format!(
        "--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n{}--c--\r\n--b--\r\n",
        inner("PUT", "{}")
    );
    let read = |method: &str| format!("--b\r\n{}--b--\r\n", inner(method, ""));
    send(write.clone()).fails(503, "ServerBusy");
    send(read("GET")).fails(503, "ServerBusy");
    db.lift_gate("people", KeyRange::partition("p")).unwrap();
    assert!(send(write).done(202).has("HTTP/1.1 204"));
    assert!(send(read("GET")).done(202).has("HTTP/1.1 200"));
    // HEAD is refused in a batch, because the response to a read must have a body there.
    assert!(send(read("HEAD")).done(202).has("InvalidInput"));
}

#[test]
fn the_response_of_a_batch_is_charged_before_the_batch_is_written() {
    let site = Site::people();
    let part = |i: usize| {
        let (pk, rk) = ("\u{4e00}".repeat(1024), "\u{4e00}".repeat(1000));
        format!(
            "--c\r\nContent-Type: application/http\r\n\r\nPOST {BASE}people HTTP/1.1\r\nContent-Type: application/json\r\n\
             Accept: application/json;odata=fullmetadata\r\n\r\n{{\"PartitionKey\":\"{pk}\",\"RowKey\":\"{rk}{i}\"}}\r\n"
        )
    };
    let parts = |from: usize| (from..from + 100).map(part).collect::<String>();
    let batch = |from: usize, room: &Budget| {
        let body = format!(
            "--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n{}--c--\r\n--b--\r\n",
            parts(from)
        );
        let mut ask = site.ask("POST", "$batch").body("multipart/mixed; boundary=b", &body);
        ask.request.response_budget = Some(room.clone());
        ask
    };
    let written = || {
        let table = site.account().db.table("people").unwrap();
        table.query(Filter::all()).unwrap().count().unwrap()
    };
    batch(0, &Budget::new(4 * MIB)).send().refused(503, "ServerBusy", NOT_READY);
    assert_eq!(written(), 0);
    let room = Budget::new(10 * MIB);
    let (_, first) = batch(0, &room).reply();
    assert_eq!((first.status.as_u16(), first.body.len() > 5 * MIB), (202, true));
    batch(100, &room).send().refused(503, "ServerBusy", NOT_READY);
    assert_eq!(written(), 100);
    drop(first);
    batch(100, &room).send().done(202);
    assert_eq!(written(), 200);
}

#[test]
fn the_echo_of_an_insert_is_charged_before_the_insert_is_written() {
    let site = Site::people();
    let text = "\\u0001".repeat(32 << 10);
    let insert = |rk: &str| format!(r#"{{"PartitionKey":"p","RowKey":"{rk}","A":"{text}"}}"#);
    let ask = |rk: &str, prefer: &str| {
        let mut ask = site.post("people", &insert(rk)).prefer(prefer);
        ask.request.response_budget = Some(Budget::new(128 << 10));
        ask.send()
    };
    ask("0", "return-content").refused(503, "ServerBusy", NOT_READY);
    site.get(&person("0")).send().fails(404, "ResourceNotFound");
    ask("0", "return-no-content").empty(204);
}

#[test]
fn responses_without_a_body_accept_any_media_type() {
    let site = Site::people();
    site.put(&person("r"), "{}").accept(ATOM).send().empty(204);
    site.delete(&person("r")).matching("*").accept(ATOM).send().empty(204);
    let body = r#"{"PartitionKey":"p","RowKey":"r"}"#;
    site.post("people", body).accept(ATOM).send().fails(415, "AtomFormatNotSupported");
    // An empty `$format` is ignored.
    site.get("people()?$format=").send().done(200);
    site.put(&format!("{}?timeout=abc", person("r")), "{}")
        .send()
        .fails(400, "InvalidQueryParameterValue");
}

#[test]
fn inserts_show_the_table_name_as_created() {
    let site = Site::people();
    let got = site.post("PEOPLE", r#"{"PartitionKey":"p","RowKey":"r"}"#).send().done(201);
    assert!(got.has("$metadata#people/@Element"), "{}", got.body);
}

#[test]
fn a_host_name_that_resembles_an_account_selects_none() {
    let site = Site::people();
    let host = "rowstone.table.svc.cluster.local:10002";
    let ask = site.ask_path("GET", "/acme/Tables").header("Host", host);
    let got = ask.signed_by(ACME, key(ACME_KEYS[0])).send().done(200);
    assert!(got.has(&format!("http://{host}/acme/$metadata#Tables")), "{}", got.body);
    let ask = site.ask_path("GET", "/nobody/Tables").header("Host", host);
    ask.signed_by(ACME, key(ACME_KEYS[0])).send().fails(404, "ResourceNotFound");
}

#[test]
fn a_key_holder_cannot_take_every_request_slot() {
    let site = Site::people();
    let slots = RequestSlots::new(8);
    let (mut held, mut statuses) = (Vec::new(), Vec::new());
    let mut ask = |ask: Ask<'_>| {
        let (status, slot) = ask.in_slot(&slots);
        statuses.push(status);
        // The slot of a refused request is free again.
        held.extend(slot.filter(|_| status == 200));
    };
    // The holder of a key gets six slots, however it spells its requests.
    for _ in 0..4 {
        ask(site.get("people()"));
    }
    ask(site.get("people()").lite());
    ask(site.get("people()?sig=x"));
    ask(site.get("people()?sig=y"));
    // A client that is not known takes the slot of no other.
    ask(site.get("people()").unsigned());
    // A client with a token, and the holder of a key of another account.
    let token = signed_account(account("sco", "rl"));
    ask(site.with_token("GET", "Tables", &token));
    ask(site.with_token("GET", "Tables", &token));
    ask(site.ask_path("GET", "/acme/Tables").signed_by(ACME, key(ACME_KEYS[0])));
    assert_eq!(statuses, [200, 200, 200, 200, 200, 200, 503, 403, 200, 503, 200]);
    assert!(slots.take().is_none());
}

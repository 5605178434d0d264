//! Tests the counts of transactions and bytes that Azure Table storage would bill.

use super::batches::{changeset, insert};
use super::*;
use crate::query::KeyRange;
use crate::table::GateMode;

/// Returns the billable transactions and bytes of an account; `None` if it has none.
fn billed(site: &Site, account: &str) -> Option<(u64, u64)> {
    let text = crate::rest::http::metrics::text(&site.service, 0);
    let value = |name: &str| {
        let start = format!("rowstone_billable_{name}_total{{account=\"{account}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&start))?.parse().ok()
    };
    Some((value("transactions")?, value("response_bytes")?))
}

#[test]
fn each_request_of_a_known_client_is_a_transaction() {
    let site = Site::people();
    let count = || billed(&site, DEVELOPMENT_ACCOUNT).unwrap().0;
    assert_eq!(count(), 1, "the table was created");
    site.insert("p", "a", "");
    // A group is one transaction.
    site.batch(&changeset(&[insert("b"), insert("c"), insert("d")])).send().done(202);
    assert_eq!(count(), 3);
    // Each page of a query is one.
    let page = site.get("people()?$top=3").send().done(200);
    let next = page.header("x-ms-continuation-NextRowKey").unwrap();
    let key = page.header("x-ms-continuation-NextPartitionKey").unwrap();
    site.get(&format!("people()?NextPartitionKey={key}&NextRowKey={next}")).send().done(200);
    assert_eq!(count(), 5);
    // So are requests that fail for a reason of the client.
    site.get(&person("none")).send().done(404);
    site.post("people", r#"{"PartitionKey":"p","RowKey":"a"}"#).send().done(409);
    assert_eq!(count(), 7);
}

#[test]
fn unknown_clients_and_busy_servers_are_not_billed() {
    let site = Site::people();
    let before = billed(&site, DEVELOPMENT_ACCOUNT);
    site.get("people()").unsigned().send();
    site.get("people()").signed_by(DEVELOPMENT_ACCOUNT, key(ACME_KEYS[0])).send().done(403);
    let db = &site.account().db;
    db.gate("people", KeyRange::partition("p"), GateMode::Offline).unwrap();
    site.get(&person("a")).send().done(503);
    assert_eq!(billed(&site, DEVELOPMENT_ACCOUNT), before);
    // Each account has its own bill.
    assert_eq!(billed(&site, ACME), None);
    let acme = site.ask_path("GET", "/acme/Tables").signed_by(ACME, key(ACME_KEYS[1]));
    let bytes = acme.send().done(200).body.len() as u64;
    assert_eq!(billed(&site, ACME), Some((1, bytes)));
    assert_eq!(billed(&site, DEVELOPMENT_ACCOUNT), before);
}

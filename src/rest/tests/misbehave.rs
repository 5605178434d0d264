//! Tests a service that misbehaves on purpose: each action, as a client sees it.

use std::time::Duration;

use hyper::header::DATE;

use super::batches::{changeset, insert};
use super::*;
use crate::behave::Behaviour;
use crate::rest::reply::{Delivery, End};

const ANN: &str = r#"{"PartitionKey":"p","RowKey":"ann"}"#;

impl Site {
    /// Returns a site with the table `people`, which misbehaves by these rules.
    fn misbehaving(rules: &str) -> Self {
        let Site { service, clock } = Site::people();
        let behaviour = Behaviour::read(rules, 1).unwrap();
        Site { service: service.misbehaving(Some(behaviour)), clock }
    }

    fn has_ann(&self) -> bool {
        self.account().db.table("people").unwrap().get("p", "ann").unwrap().is_some()
    }

    /// Returns the counters of rules.
    fn counts(&self) -> Vec<String> {
        let text = crate::rest::http::metrics::text(&self.service, 0);
        let counts = text.lines().filter_map(|line| line.strip_prefix("rowstone_misbehaved_total"));
        counts.map(str::to_owned).collect()
    }
}

#[test]
fn errors_are_those_of_the_service_and_have_their_effect_or_none() {
    for (action, status, code, is_done) in [
        ("busy", 503, "ServerBusy", false),
        ("timeout", 500, "OperationTimedOut", false),
        ("timeout_after", 500, "OperationTimedOut", true),
    ] {
        let rules = format!(r#"[{{"do":"{action}","operations":["insert"],"first":1}}]"#);
        let site = Site::misbehaving(&rules);
        site.post("people", ANN).send().fails(status, code);
        assert_eq!(site.has_ann(), is_done, "{action}");
        let status = if is_done { 409 } else { 201 };
        site.post("people", ANN).send().done(status);
        let counts = [format!("{{rule=\"{action} 1\",action=\"{action}\"}} 1")];
        assert_eq!(site.counts(), counts);
    }
}

#[test]
fn answers_are_late_cut_or_lost_after_the_effect() {
    for (rule, end) in [(r#""do":"lost""#, End::Lost), (r#""do":"delay","ms":50"#, End::Whole)] {
        let site = Site::misbehaving(&format!("[{{{rule}}}]"));
        let (_, reply) = site.post("people", ANN).reply();
        let late = Duration::from_millis(if end == End::Whole { 50 } else { 0 });
        assert_eq!(reply.delivery, Delivery { delay: late, end });
        assert!(reply.status.is_success() && site.has_ann());
    }
    let site = Site::misbehaving(r#"[{"do":"cut"}]"#);
    let (_, reply) = site.batch(&changeset(&[insert("a"), insert("b")])).reply();
    let len = reply.body.len();
    assert!(reply.delivery.end.sent(len).is_some_and(|sent| (1..len).contains(&sent)));
    assert_eq!(reply.delivery.end.sent(0), None, "an answer without a body is lost");
    assert_eq!(site.account().db.table("people").unwrap().query("").unwrap().count().unwrap(), 2);
}

#[test]
fn a_batch_is_one_commit_and_fails_as_a_whole() {
    let rules = r#"[{"do":"busy","operations":["commit"],"first":1}]"#;
    let site = Site::misbehaving(rules);
    let batch = changeset(&[insert("a"), insert("b")]);
    site.batch(&batch).send().fails(503, "ServerBusy");
    // Another group is another request.
    site.batch(&changeset(&[insert("c")])).send().fails(503, "ServerBusy");
    let got = site.batch(&batch).send().done(202);
    assert!(!got.body.contains("odata.error"), "{}", got.body);
}

#[test]
fn pages_are_short_or_empty_and_have_continuations() {
    let rules = r#"[{"do":"empty_page","first":1},{"do":"short_page","entities":2}]"#;
    let site = Site::misbehaving(rules);
    for row in ["a", "b", "c"] {
        site.insert("p", row, "");
    }
    let (mut sizes, mut address) = (Vec::new(), "people()".to_owned());
    loop {
        let got = site.get(&address).send().done(200);
        sizes.push(got.values("RowKey").len());
        let next = |part: &str| got.header(&format!("x-ms-continuation-Next{part}Key"));
        let Some((partition, row)) = next("Partition").zip(next("Row")) else { break };
        address = format!("people()?NextPartitionKey={partition}&NextRowKey={row}");
    }
    assert_eq!(sizes, [0, 2, 0, 1]);
}

#[test]
fn a_deleted_table_is_being_deleted_for_40_seconds() {
    let site = Site::misbehaving(r#"[{"do":"table_being_deleted"}]"#);
    site.delete("Tables('people')").send().done(204);
    let create = || site.post("Tables", r#"{"TableName":"People"}"#).send();
    create().fails(409, "TableBeingDeleted");
    site.post("people", ANN).send().fails(409, "TableBeingDeleted");
    site.get("people()").send().fails(409, "TableBeingDeleted");
    let batch = site.batch(&changeset(&[insert("a")])).send().done(202);
    assert!(batch.body.contains("409 Conflict") && batch.body.contains("TableBeingDeleted"));
    site.get("Tables").send().done(200);
    site.clock.advance(Duration::from_secs(40));
    create().done(201);
}

#[test]
fn a_moved_partition_is_busy_for_a_time() {
    let rules = r#"[{"do":"move","prefix":"p","period":60,"offline":[10,20]}]"#;
    let site = Site::misbehaving(rules);
    let mut busy = 0;
    for _ in 0..60 {
        let filter = site.filter("PartitionKey eq 'p'").send();
        let get = site.get("people(PartitionKey='p2',RowKey='ann')").send();
        assert_eq!(filter.status == 503, get.status == 503, "the range is moved as one");
        busy += usize::from(get.status == 503);
        site.get("people(PartitionKey='q',RowKey='ann')").send().done(404);
        site.clock.advance(Duration::from_secs(1));
    }
    assert!((10..=21).contains(&busy), "{busy}");
}

#[test]
fn a_wrong_clock_shows_in_dates_and_refuses_right_ones() {
    let site = Site::misbehaving(r#"[{"do":"skew","seconds":1800,"from":1}]"#);
    assert_eq!(site.get("people()").send().done(200).header("date"), None);
    let right = time::http(site.service.now());
    site.clock.advance(Duration::from_secs(1));
    let got = site.get("people()").send().done(200);
    assert_eq!(got.header("date"), Some("Sat, 03 Feb 2024 04:35:07 GMT"));
    site.get("people()").header("x-ms-date", &right).send().done(403);
}

#[test]
fn only_requests_of_known_clients_are_changed_and_settings_never() {
    let site = Site::misbehaving(r#"[{"do":"busy"}]"#);
    site.get("people()").unsigned().send().done(403);
    site.get("?restype=service&comp=properties").send().done(200);
    site.get("people()").send().fails(503, "ServerBusy");
    assert_eq!(site.counts(), ["{rule=\"busy 1\",action=\"busy\"} 1"]);
}

#[test]
fn a_service_without_rules_has_no_counters_and_no_dates() {
    let site = Site::people();
    assert!(site.counts().is_empty());
    let (_, reply) = site.post("people", ANN).reply();
    assert_eq!((reply.delivery, reply.header(&DATE)), (Delivery::default(), None));
}

//! Tests that the checks of `soak` accept each allowed state and answer, and report each forbidden
//! one.

use super::*;
use crate::cli::stress::child::Limits;
use crate::testing::sim::value::Val;

fn put(rks: &[&str], number: i64) -> Change {
    let write = |rk: &&str| Write {
        verb: Verb::Upsert,
        pk: "p".to_owned(),
        rk: (*rk).to_owned(),
        properties: vec![("N".to_owned(), Val::Int64(number))],
        condition: Condition::Any,
    };
    Change::Rows { table: "Alpha".to_owned(), writes: rks.iter().map(write).collect() }
}

/// Returns a soak that has sent these requests: create a table, write row `a` with a sync, write
/// row `b` with `durability`, and write rows `a` and `c` in one group, which was not answered.
fn soak(durability: Durability) -> Soak {
    let clock = SystemClock::new();
    let mut soak = Soak::new("db".into(), Scenario::Kills, None, None, 1, clock);
    soak.oracle.commit(&Change::Create("Alpha".to_owned()), 0, Durability::Sync);
    soak.oracle.commit(&put(&["a"], 1), 10, Durability::Sync);
    soak.oracle.commit(&put(&["b"], 2), 20, durability);
    soak.doubts.push(put(&["a", "c"], 3));
    soak
}

/// Returns the state after these changes. Each has the RowKeys that it writes, the number that it
/// stores in them, and its ETag.
fn state(changes: &[(&[&str], i64, u64)]) -> Tables {
    let mut oracle = Oracle::new();
    oracle.commit(&Change::Create("Alpha".to_owned()), 0, Durability::Sync);
    for (rks, number, tag) in changes {
        oracle.commit(&put(rks, *number), *tag, Durability::Sync);
    }
    oracle.tables
}

#[track_caller]
fn finds(durability: Durability, changes: &[(&[&str], i64, u64)]) -> Tally {
    let mut soak = soak(durability);
    let state = state(changes);
    soak.find(state.clone()).unwrap();
    assert_eq!(soak.oracle.tables, state);
    assert!(soak.doubts.is_empty() && soak.oracle.process_floor == soak.oracle.commits());
    assert!(soak.oracle.etag_max >= 20, "new tags are above the lost ones");
    soak.tally.clone()
}

#[track_caller]
fn refuses(durability: Durability, changes: &[(&[&str], i64, u64)], text: &str) {
    let error = soak(durability).find(state(changes)).unwrap_err();
    assert!(error.contains(text), "{error}");
}

const ALL: [(&[&str], i64, u64); 2] = [(&["a"], 1, 10), (&["b"], 2, 20)];

#[test]
fn acknowledged_commits_must_be_found_and_an_unanswered_one_may_be() {
    assert_eq!(finds(Durability::Sync, &ALL).unanswered_found, 0);
    let with = [ALL[0], ALL[1], (&["a", "c"], 3, 30)];
    assert_eq!(finds(Durability::Sync, &with).unanswered_found, 1);
    assert_eq!(finds(Durability::Buffered, &ALL[..1]).commits_lost, 1);
}

#[test]
fn forbidden_states_are_reported() {
    refuses(Durability::Os, &ALL[..1], "no prefix of 3..=3 commits; the nearest is 2");
    refuses(Durability::Buffered, &ALL[1..], "missing p a");
    refuses(Durability::Sync, &[ALL[0], ALL[1], (&["c"], 3, 30)], "unexpected p c");
    refuses(Durability::Sync, &[ALL[0], ALL[1], (&["a", "c"], 3, 15)], "tag 15 after 20");
    refuses(Durability::Sync, &[ALL[0], (&["b"], 2, 21)], "expected p b N=2L @20");
}

#[test]
fn answers_are_compared() {
    let refused = |line: &str, ask: Ask| {
        let mut soak = soak(Durability::Sync);
        let mut plan = soak.plan();
        plan.limited = false;
        plan.limits = Limits { ignore_signal: true, ..Limits::default() };
        let mut session = Session::start(&["--version".into()], plan).unwrap();
        session.waiting.push_back((ask, 0));
        soak.settle(&mut session, line.as_bytes()).unwrap_err()
    };
    let tag = |text: &str| format!(r#"{{"ok":true,"etag":"W/\"datetime'{text}'\""}}"#);
    let old = tag("1601-01-01T00%3A00%3A00.0000001Z");
    assert!(refused(&old, Ask::Change(put(&["a"], 4))).contains("tag 1 after 20"));
    let done = r#"{"ok":true}"#;
    let create = Ask::Change(Change::Create("alpha".to_owned()));
    assert!(refused(done, create).contains("TableAlreadyExists"));
    let full = r#"{"ok":false,"error":{"code":"StorageFull","status":507,"message":"full"}}"#;
    assert!(refused(full, Ask::Change(put(&["a"], 4))).contains("storage, which is well"));
    let missing = r#"{"ok":false,"error":{"code":"ResourceNotFound","status":404,"message":""}}"#;
    let get = |rk: &str| Ask::Get { table: "ALPHA".into(), pk: "p".into(), rk: rk.into() };
    assert!(refused(missing, get("b")).contains("was due"));
    let found = r#"{"ok":true,"entities":[],"next":null}"#;
    let query = Ask::Query { table: "Alpha".into(), pk: None, top: 5 };
    assert!(refused(found, query).contains("the page ends"));
    let damage = r#"{"ok":false,"checked":{},"problems":["block at byte 9 of x: bad"]}"#;
    assert!(refused(damage, Ask::Verify).contains("refused"));
    assert!(refused("nonsense", Ask::Flush).contains("not JSON"));
}

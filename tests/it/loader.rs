//! Tests which lines of a bulk load are acknowledged, and when.

use std::sync::{Arc, Mutex};

use rowstone::{Db, Entity};

/// Loads one row into each of these partitions, with line numbers from 1. Returns the lines that
/// were acknowledged before the loader was finished, and all lines that were acknowledged.
fn load<'p>(partitions: impl Iterator<Item = &'p str>) -> (Vec<u64>, Vec<u64>) {
    let db = Db::open_in_memory().unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hear = Arc::clone(&heard);
    let table = db.create_table("rows").unwrap();
    let mut loader = table.loader().on_acknowledged(move |line| hear.lock().unwrap().push(line));
    for (line, partition) in (1..).zip(partitions) {
        loader.push(line, Entity::new(partition, format!("{line:06}"))).unwrap();
    }
    let before = heard.lock().unwrap().clone();
    loader.finish().unwrap();
    let after = heard.lock().unwrap().clone();
    (before, after)
}

#[test]
fn a_line_is_acknowledged_after_all_lines_before_it() {
    let rows = std::iter::once("straggler").chain(std::iter::repeat_n("busy", 1000));
    let (before, after) = load(rows);
    assert!(before.is_empty(), "line 1 must hold back all others: {before:?}");
    assert!(after.is_sorted() && after.len() == 11, "one line per group: {after:?}");
    assert_eq!((after.first(), after.last()), (Some(&1), Some(&1001)));
}

#[test]
fn rows_are_acknowledged_before_the_end() {
    let rows = std::iter::once("straggler").chain(std::iter::repeat_n("busy", 50_000));
    assert!(load(rows).0.len() > 100);
}

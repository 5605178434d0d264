//! Tests that import key ranges during concurrent writes, flushes and background work.

use super::*;

/// An hour, in ticks.
const HOUR: u64 = 36_000_000_000;

#[test]
fn rows_of_a_clock_ahead_are_imported_during_concurrent_writes() {
    let fs = MemFs::new();
    let ahead = options(&fs).clock(Arc::new(ManualClock::new(NOW + HOUR)));
    let source = ahead.open("source").unwrap();
    let table = source.create_table("things").unwrap();
    for i in 0..100 {
        table.insert(Entity::new("m", format!("{i:03}"))).unwrap();
    }
    source.close().unwrap();

    let db = open(&fs);
    let table = db.create_table("things").unwrap();
    let mut writes = ["a", "z"].into_iter();
    db.import_range_with("source", "things", |_| {
        for key in writes.by_ref() {
            table.insert(Entity::new(key, "")).unwrap();
        }
    })
    .unwrap();
    // This flush writes a table file with keys below and above all imported rows.
    db.flush().unwrap();
    while db.step(std::time::Duration::ZERO) {}
    table.insert(Entity::new("b", "")).unwrap();
    assert_eq!(table.scan(KeyRange::all()).count().unwrap(), 103);
    drop((table, db));
    let table = open(&fs).table("things").unwrap();
    assert_eq!(table.scan(KeyRange::all()).count().unwrap(), 103);
}

/// Background work may have looked up the deleted spans before an import. It must drop the rows
/// that these spans hide, but not the imported rows.
#[test]
fn imported_rows_under_a_range_tombstone_stay() {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    let fs = MemFs::new();
    let db = open(&fs);
    let table = db.create_table("things").unwrap();
    for i in 0..21 {
        table.insert(row(i, 0)).unwrap();
    }
    let rows = || table.scan(KeyRange::partition("p3")).count();
    // If a round fails, it returns the error instead of panicking, so that the other threads are
    // still stopped.
    let round = || -> crate::error::Result<(u64, u64)> {
        table.delete_partition("p3")?;
        let moved = db.import_range("moving", "things")?;
        table.upsert(row(1, 1))?;
        db.flush()?;
        Ok((moved.entities, rows()?))
    };
    db.export_range("things", KeyRange::partition("p3"), "moving").unwrap();
    let stop = AtomicBool::new(false);
    let lost = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    db.step(std::time::Duration::ZERO);
                }
            });
        }
        let mut rounds = (0..400).map(|_| round());
        let lost = rounds.find(|found| !matches!(found, Ok((3, 3))));
        stop.store(true, Relaxed);
        lost
    });
    assert!(lost.is_none() && rows().unwrap() == 3, "{lost:?}");
}

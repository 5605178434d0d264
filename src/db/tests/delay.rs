//! Tests of delayed commits, and of a single thread for all background work.

#![expect(clippy::disallowed_methods, reason = "tests have threads of their own")]

use std::time::Duration;

use super::*;

fn syncs_of_ten_minutes(delay: Duration, durability: Durability) -> (u64, u64) {
    let (fs, clock) = (MemFs::new(), Arc::new(ManualClock::new(NOW)));
    let options = options(&fs).clock(clock.clone()).durability(durability);
    let db = options.max_commit_delay(delay).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    let stat = |name| db.stats().get(name).unwrap();
    let (syncs, bytes) = (stat("log_syncs"), stat("log_bytes"));
    for second in 0..600 {
        table.upsert(row(second, 0)).unwrap();
        clock.advance(Duration::from_secs(1));
        while db.step(Duration::ZERO) {}
    }
    (stat("log_syncs") - syncs, stat("log_bytes") - bytes)
}

#[test]
fn a_window_of_a_minute_syncs_once_a_minute() {
    for durability in [Durability::Os, Durability::Buffered] {
        let (at_once, _) = syncs_of_ten_minutes(Duration::ZERO, durability);
        let (windows, _) = syncs_of_ten_minutes(Duration::from_secs(60), durability);
        assert!(at_once >= 600, "{durability:?}: {at_once}");
        assert!((9..=12).contains(&windows), "{durability:?}: {windows}");
    }
}

#[test]
fn a_ticket_without_a_waiter_is_synced_after_the_window() {
    let (fs, clock) = (MemFs::new(), Arc::new(ManualClock::new(NOW)));
    let options = options(&fs).clock(clock.clone()).max_commit_delay(Duration::from_secs(60));
    let db = options.open("db").unwrap();
    let table = db.create_table("things").unwrap();
    while db.step(Duration::ZERO) {}
    let before = db.stats().get("log_syncs").unwrap();
    let mut tickets = Vec::new();
    for second in 0..59 {
        let entity = row(second, 0);
        let mut group = crate::table::EntityGroup::new(entity.partition_key());
        group.upsert(entity).unwrap();
        tickets.push(table.commit_async(group).unwrap());
        clock.advance(Duration::from_secs(1));
        while db.step(Duration::ZERO) {}
        assert_eq!(db.stats().get("log_syncs").unwrap(), before);
    }
    clock.advance(Duration::from_secs(1));
    while db.step(Duration::ZERO) {}
    assert!(db.stats().get("log_syncs").unwrap() > before);
    tickets.into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));
}

#[test]
fn a_delayed_commit_joins_the_next_sync() {
    let fs = MemFs::new();
    let options = options(&fs).background(Background::Threads);
    let db = options.max_commit_delay(Duration::from_secs(24 * 3600)).open("db").unwrap();
    // Creating a table is not delayed.
    let table = db.create_table("things").unwrap();
    let before = db.stats().get("commits").unwrap();
    let writer = std::thread::spawn(move || table.upsert(row(1, 1)).unwrap());
    while db.stats().get("commits").unwrap() == before {
        std::thread::yield_now();
    }
    db.sync().unwrap();
    writer.join().unwrap();
    assert!(db.table("things").unwrap().get("p1", "000001").unwrap().is_some());
}

#[test]
fn one_thread_flushes_and_merges_concurrently_with_writers() {
    let fs = MemFs::new();
    let options = options(&fs).background(Background::OneThread).durability(Durability::Os);
    let db = options.clone().open("db").unwrap();
    let table = db.create_table("things").unwrap();
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let table = table.clone();
            std::thread::spawn(move || {
                for i in 0..4_000 {
                    table.upsert(row(i * 3 + writer, i)).unwrap();
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    db.compact().unwrap();
    let stats = db.stats();
    let stat = |name| stats.get(name).unwrap();
    assert!(stat("flushes") > 3 && stat("compactions") > 0, "{stats:?}");
    assert_eq!(table.scan(KeyRange::all()).count().unwrap(), 12_000);
    db.close().unwrap();
    let db = options.open("db").unwrap();
    assert_eq!(db.verify().unwrap().problems, [""; 0]);
}

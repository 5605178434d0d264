//! Tests of concurrent syncs: syncs of the log that run while weak commits are written.

use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::*;
use crate::fs::{Fault, FaultFs, FaultKind, OpKind};
use crate::table::{EntityGroup, Table};

/// The log is synced after this many bytes of weak commits.
const SYNC_BYTES: u64 = 8 << 10;

/// Returns options with a log that is synced after [`SYNC_BYTES`], and without flushes.
fn weak(memory: &MemFs, durability: Durability) -> Options {
    let options = options(memory).memtable_bytes(4 << 20).durability(durability);
    Options { weak_sync_bytes: SYNC_BYTES, ..options }
}

/// A row of about 1 KiB.
fn kilobyte(i: u32) -> Entity {
    row(i, 0).with("Filler", vec![7; 1000])
}

/// If an `Os` commit waits for the sync, this test hangs.
#[test]
fn trap_63_os_commits_return_while_a_sync_of_the_log_hangs() {
    let memory = MemFs::new();
    let fs = FaultFs::new(Arc::new(memory.clone()));
    let options = weak(&memory, Durability::Os).background(Background::Threads);
    let db = options.fs(Arc::new(fs.clone())).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    table.insert(kilobyte(0)).unwrap();
    db.wait_idle().unwrap();
    let (begins, has_begun) = channel();
    let (end, may_end) = channel();
    let (may_end, hangs) = (Mutex::new(may_end), AtomicBool::new(true));
    fs.guard_syncs(move |_, path| {
        if path.extension().is_some_and(|extension| extension == "wal")
            && hangs.swap(false, Ordering::SeqCst)
        {
            begins.send(()).unwrap();
            may_end.lock().unwrap().recv().unwrap();
        }
        true
    });
    // These bytes make a background sync due. It covers only some of the rows, because it may begin
    // before the last one.
    (1..10).for_each(|i| drop(table.insert(kilobyte(i)).unwrap()));
    has_begun.recv().unwrap();
    for i in 10..20 {
        table.insert(kilobyte(i)).unwrap();
        assert!(table.get(&format!("p{}", i % 7), &format!("{i:06}")).unwrap().is_some());
    }
    let submit = |table: &Table, i| {
        let entity = kilobyte(i);
        let mut group = EntityGroup::new(entity.partition_key());
        group.insert(entity).unwrap();
        table.commit_async(group).unwrap()
    };
    // The background thread that leads polled commits is in the sync.
    let mut polled = submit(&table, 20);
    let result = Pin::new(&mut polled).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(result, Poll::Ready(Ok(_))));
    let durable = submit(&table.with_durability(Durability::Sync), 21);
    end.send(()).unwrap();
    durable.wait().unwrap();
    // The `Sync` commit makes all earlier commits durable, too.
    for seed in 0..8 {
        let db = open(&memory.crash_image(seed));
        assert_eq!(db.table("things").unwrap().scan(KeyRange::all()).count().unwrap(), 22);
    }
    db.close().unwrap();
}

#[test]
fn trap_02_after_a_failed_background_sync_nothing_is_acknowledged() {
    for next in [Durability::Buffered, Durability::Os, Durability::Sync] {
        let (memory, clock) = (MemFs::new(), Arc::new(ManualClock::new(NOW)));
        let fs = FaultFs::new(Arc::new(memory.clone()));
        let options = weak(&memory, Durability::Os).fs(Arc::new(fs.clone()));
        let db = options.clock(clock.clone()).open("db").unwrap();
        let table = db.create_table("things").unwrap();
        while db.step(Duration::ZERO) {}
        table.insert(row(0, 0)).unwrap();
        // Only the first sync fails. A later one would succeed, although bytes are lost.
        fs.arm(Fault::new(FaultKind::Eio).on(OpKind::Sync).on_path(".wal"));
        clock.advance(Duration::from_secs(1));
        while db.step(Duration::ZERO) {}
        assert_eq!(fs.delivered(), 1);
        let refused = table.clone().with_durability(next).insert(row(1, 0)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Poisoned);
        assert_eq!(db.sync().unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(table.scan(KeyRange::all()).count().unwrap(), 1);
        assert!(db.close().is_err());
        assert!(open(&memory).table("things").unwrap().get("p1", "000001").unwrap().is_none());
    }
}

/// Without background threads, the commit that reaches the limit syncs the log itself.
#[test]
fn trap_63_weak_commits_wait_for_a_sync_at_the_limit_of_unsynced_bytes() {
    for durability in [Durability::Buffered, Durability::Os] {
        let db = weak(&MemFs::new(), durability).open("db").unwrap();
        let table = db.create_table("things").unwrap();
        table.insert(kilobyte(0)).unwrap();
        db.sync().unwrap();
        let stat = |name| db.stats().get(name).unwrap();
        let (syncs, stalls) = (stat("log_syncs"), stat("stalls"));
        let mut synced_at = Vec::new();
        for i in 1..100 {
            let (syncs, bytes) = (stat("log_syncs"), stat("log_bytes"));
            table.insert(kilobyte(i)).unwrap();
            if stat("log_syncs") > syncs {
                synced_at.push((i, bytes));
            }
        }
        let rows: Vec<_> = synced_at.iter().map(|(i, _)| *i).collect();
        // A record has between 1 and 1.1 KiB, and the limit is 32 KiB.
        assert!(matches!(rows[..], [30..=33, 59..=65, 88..=97]), "{durability:?}: {rows:?}");
        assert_eq!((stat("log_syncs") - syncs, stat("stalls") - stalls), (3, 3));
        // Durable commits are not limited.
        let table = table.with_durability(Durability::Sync);
        (100..200).for_each(|i| drop(table.insert(kilobyte(i)).unwrap()));
        assert_eq!(stat("stalls") - stalls, 3);
    }
}

/// If something else syncs the log before the background sync is due, the background extends the
/// Seq reservation nevertheless.
#[test]
fn trap_63_weak_commits_between_other_syncs_do_not_wait_for_a_reservation() {
    for is_commit in [false, true] {
        let clock = Arc::new(ManualClock::new(NOW));
        let db = weak(&MemFs::new(), Durability::Os).clock(clock.clone()).open("db").unwrap();
        let table = db.create_table("things").unwrap();
        table.insert(row(0, 0)).unwrap();
        let stat = |name| db.stats().get(name).unwrap();
        for i in 1..100 {
            let syncs = stat("log_syncs");
            table.insert(row(i, 0)).unwrap();
            assert_eq!(stat("log_syncs"), syncs, "commit {i}");
            while db.step(Duration::ZERO) {}
            if is_commit {
                table.clone().with_durability(Durability::Sync).upsert(row(0, i)).unwrap();
            } else {
                db.sync().unwrap();
            }
            clock.advance(Duration::from_millis(200));
        }
        assert_eq!(stat("stalls"), 0);
    }
}

/// A weak commit waits for a new Seq reservation after a pause. This is a stall only if the
/// background has not synced the earlier weak commits.
#[test]
fn a_wait_for_a_late_seq_reservation_is_a_stall() {
    let clock = Arc::new(ManualClock::new(NOW));
    let db = weak(&MemFs::new(), Durability::Os).clock(clock.clone()).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    let stat = |name| db.stats().get(name).unwrap();
    // The background syncs the new table, and the reservation of opening lapses.
    clock.advance(Duration::from_secs(1));
    while db.step(Duration::ZERO) {}
    clock.advance(Duration::from_secs(60));
    for (i, is_behind) in [false, true, false, true].into_iter().enumerate() {
        let before = (stat("log_syncs"), stat("stalls"));
        table.insert(row(i as u32, 0)).unwrap();
        assert!(stat("log_syncs") > before.0, "commit {i} needs a reservation");
        assert_eq!(stat("stalls") - before.1, u64::from(is_behind), "commit {i}");
        clock.advance(Duration::from_secs(1));
        // The background works after every other commit.
        while is_behind && db.step(Duration::ZERO) {}
        clock.advance(Duration::from_secs(60));
    }
}

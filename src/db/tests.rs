//! Tests of the engine through the library's interface, on memory file systems.

use std::sync::Arc;

use crate::clock::ManualClock;
use crate::db::Db;
use crate::error::ErrorKind;
use crate::format::key::{table_end, table_start, user_key};
use crate::format::span::Span;
use crate::format::zones::ZoneSet;
use crate::fs::MemFs;
use crate::lsm::{RowFilter, ScanRow, Step, VisibleRun, ZoneMatch};
use crate::model::Entity;
use crate::options::{Background, Durability, Options};
use crate::query::KeyRange;

const NOW: u64 = 133_000_000_000_000_000;

/// Returns options with small sizes, so that flushes and compactions happen often.
fn options(fs: &MemFs) -> Options {
    Options::new()
        .fs(Arc::new(fs.clone()))
        .clock(Arc::new(ManualClock::new(NOW)))
        .background(Background::Manual)
        .memtable_bytes(64 << 10)
        .run_file_bytes(64 << 10)
        .block_bytes(512)
        .seed(7)
}

fn open(fs: &MemFs) -> Db {
    options(fs).open("db").unwrap()
}

fn row(i: u32, version: u32) -> Entity {
    Entity::new(format!("p{}", i % 7), format!("{i:06}"))
        .with("I", i as i32)
        .with("V", version as i32)
}

#[test]
fn rows_are_read_back_and_survive_a_power_cut() {
    let fs = MemFs::new();
    let db = open(&fs);
    let table = db.create_table("things").unwrap();
    for i in 0..3000 {
        table.insert(row(i, 0)).unwrap();
        while db.step(std::time::Duration::ZERO) {}
    }
    for i in (0..3000).step_by(3) {
        table.replace(row(i, 1)).unwrap();
        while db.step(std::time::Duration::ZERO) {}
    }
    for i in (0..3000).step_by(5) {
        table.delete(&format!("p{}", i % 7), &format!("{i:06}")).unwrap();
        while db.step(std::time::Duration::ZERO) {}
    }
    let check = |db: &Db| {
        let table = db.table("THINGS").unwrap();
        for i in 0..3000u32 {
            let got = table.get(&format!("p{}", i % 7), &format!("{i:06}")).unwrap();
            let expected = (i % 5 != 0).then_some(i32::from(i % 3 == 0));
            assert_eq!(got.map(|e| e.get::<i32>("V").unwrap()), expected, "{i}");
        }
        let count = table.scan(KeyRange::all()).into_iter().map(Result::unwrap).count();
        assert_eq!(count, 2400);
        let report = db.verify().unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
    };
    check(&db);
    for seed in 0..5 {
        let image = fs.crash_image(seed);
        let db = open(&image);
        check(&db);
        db.compact().unwrap();
        check(&db);
        db.close().unwrap();
        check(&open(&image));
    }
    assert!(db.stats().get("compactions").unwrap() > 0);
    db.close().unwrap();
    let again = open(&fs);
    assert_eq!(again.opened().torn, None);
    check(&again);
}

#[test]
fn a_second_insert_is_refused_and_a_dropped_table_is_gone() {
    let fs = MemFs::new();
    let db = open(&fs);
    let table = db.create_table("things").unwrap();
    let etag = table.insert(row(1, 0)).unwrap();
    assert_eq!(table.insert(row(1, 1)).unwrap_err().kind(), ErrorKind::AlreadyExists);
    let newer = table.replace_if(row(1, 2), &etag).unwrap();
    assert!(newer.seq() > etag.seq());
    assert_eq!(
        table.replace_if(row(1, 3), etag).unwrap_err().kind(),
        ErrorKind::PreconditionFailed
    );
    let before = db.snapshot();
    db.delete_table("things").unwrap();
    assert_eq!(table.get("p1", "000001").unwrap_err().code(), "TableNotFound");
    assert_eq!(table.upsert(row(2, 0)).unwrap_err().code(), "TableNotFound");
    assert!(table.at(&before).get("p1", "000001").unwrap().is_some());
    let again = db.create_table("Things").unwrap();
    assert!(again.get("p1", "000001").unwrap().is_none());
    assert_eq!(db.tables().unwrap(), ["Things"]);
}

#[test]
fn a_table_reclaimed_while_verifying_is_no_problem() {
    let fs = MemFs::new();
    let db = open(&fs);
    db.create_table("things").unwrap().insert(row(1, 0)).unwrap();
    db.flush().unwrap();
    db.delete_table("things").unwrap();
    db.flush().unwrap();
    let files = db.stats().get("files").unwrap();
    // The first call of `progress` is made after the version is pinned and before the catalog is
    // read.
    let report = db.verify_with(|_| while db.step(std::time::Duration::ZERO) {}).unwrap();
    assert!(db.stats().get("files").unwrap() < files, "something was reclaimed");
    assert_eq!(report.problems, Vec::<String>::new());
}

#[test]
fn weak_commits_survive_a_sync_and_a_close() {
    let fs = MemFs::new();
    let db = open(&fs);
    let table = db.create_table("things").unwrap().with_durability(Durability::Buffered);
    table.insert(row(1, 0)).unwrap();
    assert!(table.get("p1", "000001").unwrap().is_some());
    db.sync().unwrap();
    table.insert(row(2, 0)).unwrap();
    let image = fs.crash_image(3);
    let crashed = open(&image).table("things").unwrap();
    assert!(crashed.get("p1", "000001").unwrap().is_some());
    db.close().unwrap();
    let table = open(&fs).table("things").unwrap();
    assert!(table.get("p2", "000002").unwrap().is_some());
}

#[test]
fn a_second_opening_is_refused() {
    let fs = MemFs::new();
    let db = open(&fs);
    assert_eq!(options(&fs).open("db").unwrap_err().kind(), ErrorKind::Locked);
    assert!(fs.paths().iter().any(|path| path == "db/CURRENT"));
    drop(db);
    open(&fs);
}

mod backup;
mod catalog;
mod changes;
mod checkpoint;
mod close;
mod compaction;
mod copy;
mod crashes;
mod damage;
mod decode;
mod deferred_recovery;
mod delay;
mod doubt;
#[cfg(feature = "events")]
mod events;
mod faults;
mod follow;
mod inserts;
mod inspect;
mod load;
mod log_syncs;
mod logs;
mod long_logs;
mod moving;
mod notes;
mod read_only;
mod references;
mod short_logs;
mod slow;
mod space;
mod threads;
mod wear;
mod windows;
mod writes;

/// A row filter that matches every row.
struct Everything;

impl RowFilter for Everything {
    fn select(&mut self, run: &VisibleRun<'_>, found: &mut Vec<u16>) -> crate::error::Result<()> {
        run.visit(|slot, _| {
            found.push(slot);
            Ok(())
        })
    }

    fn matches(&mut self, _: &ScanRow<'_>) -> crate::error::Result<bool> {
        Ok(true)
    }

    fn asks_zones(&self) -> bool {
        false
    }

    fn match_zones(&mut self, _: &ZoneSet<'_>) -> Option<ZoneMatch> {
        None
    }

    fn stretch(&self) -> u64 {
        u64::MAX
    }
}

/// A range may refer to a part of a file. This part, the clip, may begin and end inside a block. A
/// filtered scan must not return rows of that block outside of the clip.
#[test]
fn trap_20_a_filtered_scan_stays_inside_a_clip() {
    let fs = MemFs::new();
    let db = options(&fs).block_bytes(16 << 10).open("db").unwrap();
    let table = db.create_table("Clipped").unwrap();
    for i in 0..100 {
        table.insert(Entity::new("p", format!("{i:03}"))).unwrap();
    }
    db.flush().unwrap();
    let id = table.entry.gate.table;
    let view = table.engine.read_view(None);
    let key = |rk: &str| user_key(id, "p", rk);
    let pinned = table.engine.reader().pin();
    let ranges = pinned.version.ranges_in(&Span::new(&table_start(id), Some(&table_end(id))));
    let references = ranges.iter().flat_map(|range| range.references());
    let mut references: Vec<_> = references.map(|(_, reference)| reference.clone()).collect();
    assert_eq!(references.len(), 1);
    references[0].clip = Span::new(&key("020"), Some(&key("050")));
    let mut plain = view.scan_references(&references).unwrap();
    let mut filtered = view.scan_references(&references).unwrap();
    for i in 20..50 {
        assert!(plain.advance().unwrap());
        assert_eq!(filtered.advance_where(&mut Everything, u64::MAX).unwrap(), Step::Row);
        let expected = key(&format!("{i:03}"));
        assert_eq!((plain.key(), filtered.key()), (&*expected, &*expected));
    }
    assert!(!plain.advance().unwrap());
    assert_eq!(filtered.advance_where(&mut Everything, u64::MAX).unwrap(), Step::End);
}

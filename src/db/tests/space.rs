//! Tests that files at rest take little more space than their rows, and that scans skip dead
//! versions of a key.

use std::time::Duration;

use super::compaction::{scattered, stat, steps};
use super::*;
use crate::executor::Lane;
use crate::rng::Rng;
use crate::table::Table;

/// The number and the size of the rows, and the number of rows in a flush.
const ROWS: u32 = 6_650;
const FLUSH_ROWS: usize = 950;
const ROW_BYTES: usize = 4 << 10;

/// A database with `ROWS` unique rows that were written in random order by seven flushes. All sizes
/// are a sixteenth of the default sizes. After five flushes the range was split, and each half was
/// merged by a job that was cut at a key. The other flushes came before the next job.
struct Filled {
    db: Db,
    table: Table,
    clock: Arc<ManualClock>,
    /// The size of the rows in table files. Each row was flushed once.
    rows: u64,
}

fn key_of(i: u32) -> (String, String) {
    (format!("p{:03}", i / 64), format!("{i:06}"))
}

fn filled(options: Options, fs: &MemFs) -> Filled {
    let clock = Arc::new(ManualClock::new(NOW));
    let options = options.fs(Arc::new(fs.clone())).clock(clock.clone()).seed(7);
    let options = options.background(Background::Manual).durability(Durability::Os);
    let sizes = options.memtable_bytes(8 << 20).run_file_bytes(2 << 20).range_bytes(16 << 20);
    let db = sizes.block_bytes(4 << 10).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    let mut rng = Rng::from_seed(3);
    let numbers: Vec<u32> = scattered(ROWS).collect();
    for (flush, numbers) in numbers.chunks(FLUSH_ROWS).enumerate() {
        for i in numbers {
            let words = (0..ROW_BYTES / 8).flat_map(|_| rng.next_u64().to_le_bytes());
            let (partition, row) = key_of(*i);
            let row = Entity::new(partition, row).with("B", words.collect::<Vec<u8>>());
            table.upsert(row).unwrap();
        }
        db.flush().unwrap();
        while flush == 4 && stat(&db, "compaction_jobs_partial") < 2 {
            assert!(db.step(Duration::ZERO), "a job of each half is cut at a key");
        }
    }
    steps(&db);
    let rows = stat(&db, "flush_bytes");
    assert_eq!(stat(&db, "range_splits"), 1);
    Filled { db, table, clock, rows }
}

impl Filled {
    /// Returns the size of the table files relative to the rows.
    fn space(&self) -> f64 {
        stat(&self.db, "file_bytes") as f64 / self.rows as f64
    }

    /// Returns the bytes written to table files relative to the rows.
    fn written(&self) -> f64 {
        let written = stat(&self.db, "flush_bytes") + stat(&self.db, "compaction_bytes");
        written as f64 / self.rows as f64
    }

    fn rest(&self, time: Duration) {
        self.clock.advance(time);
        steps(&self.db);
    }

    /// Checks that exactly the rows that `remains` accepts are found.
    fn check(&self, remains: impl Fn(u32) -> bool) {
        for i in 0..ROWS {
            let (partition, row) = key_of(i);
            assert_eq!(self.table.get(&partition, &row).unwrap().is_some(), remains(i), "{i}");
        }
        let count = self.table.scan(KeyRange::all()).into_iter().map(Result::unwrap).count();
        assert_eq!(count, (0..ROWS).filter(|i| remains(*i)).count());
        assert_eq!(self.db.verify().unwrap().problems, Vec::<String>::new());
    }
}

const IDLE: Duration = Duration::from_secs(11);

#[test]
fn a_random_fill_soon_takes_no_more_space_than_its_rows() {
    let fill = filled(Options::new(), &MemFs::new());
    fill.rest(IDLE);
    let (space, written) = (fill.space(), fill.written());
    // Without merges of the remainders of cut jobs, the files took 1.72 times the rows, and 2.02
    // times the rows had been written.
    assert!(space <= 1.1 && written <= 2.02, "{space:.2} taken, {written:.2} written");
    let percent = stat(&fill.db, "space_amplification_percent");
    assert!((95..=110).contains(&percent), "unique rows are live: {percent} %");
    fill.rest(Duration::from_secs(100));
    assert_eq!(fill.written(), written, "nothing is written again");
    fill.check(|_| true);
}

#[test]
fn a_deleted_span_gives_its_space_back_but_keeps_rows_of_a_snapshot() {
    let fill = filled(Options::new(), &MemFs::new());
    fill.rest(IDLE);
    let delete = |first: u32| {
        let [from, to] = [first, first + 10].map(|i| format!("p{i:03}"));
        fill.table.delete_range(&KeyRange::partitions(from.as_str()..to.as_str())).unwrap();
        fill.db.flush().unwrap();
    };
    let size = || stat(&fill.db, "file_bytes") as f64;
    // A tenth of the rows, in one of the two ranges.
    let (before, written) = (size(), fill.written());
    delete(5);
    fill.rest(Duration::from_secs(5));
    let freed = (before - size()) / before;
    assert!(freed < 0.09, "{freed:.3}: there was a commit 5 seconds ago");
    fill.rest(Duration::from_secs(6));
    let (freed, cost) = ((before - size()) / before, fill.written() - written);
    assert!(freed >= 0.095 && cost <= 0.25, "{freed:.3} freed, {cost:.2} written");
    // Another tenth, which a snapshot still sees.
    let snapshot = fill.db.snapshot();
    let before = size();
    delete(70);
    fill.rest(IDLE);
    assert!(size() >= before, "the snapshot needs the rows");
    let seen = fill.table.at(&snapshot).scan(KeyRange::all()).into_iter().map(Result::unwrap);
    assert_eq!(seen.count(), ROWS as usize - 640);
    drop(snapshot);
    steps(&fill.db);
    fill.rest(IDLE);
    let freed = (before - size()) / before;
    assert!(freed >= 0.095, "{freed:.3}");
    let written = fill.written();
    fill.rest(Duration::from_secs(100));
    assert_eq!(fill.written(), written, "nothing is written again");
    let is_deleted = |i: u32| (5..15).contains(&(i / 64)) || (70..80).contains(&(i / 64));
    fill.check(|i| !is_deleted(i));
}

#[test]
fn a_deleted_span_across_ranges_gives_its_space_back() {
    // The ranges meet at p052. A part of the span that is small for its range hides less than a
    // ninth of the young files there.
    for first in [44, 45, 46, 47, 48, 50] {
        let fill = filled(Options::new(), &MemFs::new());
        fill.rest(IDLE);
        let (before, written) = (stat(&fill.db, "file_bytes"), fill.written());
        let [from, to] = [first, first + 10].map(|i| format!("p{i:03}"));
        fill.table.delete_range(&KeyRange::partitions(from.as_str()..to.as_str())).unwrap();
        fill.db.flush().unwrap();
        fill.rest(Duration::from_secs(5));
        fill.rest(Duration::from_secs(6));
        let after = stat(&fill.db, "file_bytes");
        let freed = (before - after) as f64 / before as f64 * f64::from(ROWS) / 640.0;
        let cost = fill.written() - written;
        assert!(freed >= 0.95 && cost <= 0.45, "{first}: {freed:.3} freed, {cost:.2} written");
        fill.rest(Duration::from_secs(100));
        assert_eq!(stat(&fill.db, "file_bytes"), after, "nothing is written again");
        fill.check(|i| !(first..first + 10).contains(&(i / 64)));
    }
}

#[test]
fn a_dropped_snapshot_wakes_only_background_work_that_waits_for_it() {
    let db = options(&MemFs::new()).memtable_bytes(8 << 20).durability(Durability::Os);
    let db = db.open("db").unwrap();
    let table = db.create_table("things").unwrap();
    for i in 0..1_000 {
        let (partition, row) = key_of(i);
        table.upsert(Entity::new(partition, row)).unwrap();
    }
    db.compact().unwrap();
    table.delete_partition("p001").unwrap();
    db.flush().unwrap();
    steps(&db);
    let signals = || table.engine.maintenance().executor.take_signals();
    signals();
    for _ in 0..10 {
        let _snapshot = db.snapshot();
        table.get("p000", "000001").unwrap();
        assert_eq!(table.scan(KeyRange::all()).count().unwrap(), 936);
        steps(&db);
    }
    assert_eq!(signals(), [], "all readers see the deletion");
    let (first, second) = (db.snapshot(), db.snapshot());
    for i in 500..900 {
        let (partition, row) = key_of(i);
        table.delete(&partition, &row).unwrap();
    }
    let third = db.snapshot();
    db.flush().unwrap();
    steps(&db);
    signals();
    drop(third);
    drop(second);
    assert_eq!(signals(), [], "the first snapshot is before the deletes");
    assert_eq!(stat(&db, "tombstones"), 400);
    drop(first);
    assert_eq!(signals(), [Lane::Flush, Lane::Compact]);
    steps(&db);
    assert_eq!(stat(&db, "tombstones"), 0);
    signals();
    drop(db.snapshot());
    assert_eq!(signals(), [], "nothing waits any more");
}

#[test]
fn without_merges_for_readers_idle_time_causes_no_writes() {
    let fill = filled(Options::new().merge_for_readers(false), &MemFs::new());
    assert!(fill.space() <= 1.1, "remainders are merged: this frees more than it writes");
    fill.table.delete_range(&KeyRange::partitions("p005".."p015")).unwrap();
    fill.db.flush().unwrap();
    steps(&fill.db);
    let written = fill.written();
    fill.rest(IDLE);
    assert_eq!(fill.written(), written);
}

#[test]
fn a_compaction_of_one_range_needs_room_for_one_job_at_a_time() {
    let fs = MemFs::new();
    let db = options(&fs).max_disk(8 << 20).durability(Durability::Os).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    for i in 0..1_250 {
        let (partition, row) = key_of(i);
        table.upsert(Entity::new(partition, row).with("B", vec![7; ROW_BYTES])).unwrap();
        if i % 10 == 0 {
            steps(&db);
        }
    }
    for i in (0..1_250).step_by(10) {
        let (partition, row) = key_of(i);
        table.delete(&partition, &row).unwrap();
    }
    db.flush().unwrap();
    let rows = stat(&db, "file_bytes");
    assert!(2 * rows > 8 << 20, "old and new files of the whole range exceed the limit");
    db.compact().unwrap();
    assert!(stat(&db, "compaction_jobs_partial") > 10);
    assert!(stat(&db, "tombstones") == 0 && stat(&db, "file_bytes") < rows * 95 / 100);
    assert_eq!(table.scan(KeyRange::all()).into_iter().map(Result::unwrap).count(), 1_125);
}

#[test]
fn the_space_of_deleted_rows_is_reported_before_it_is_freed() {
    let db = options(&MemFs::new()).durability(Durability::Os).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    let percent = || stat(&db, "space_amplification_percent");
    assert_eq!(percent(), 0, "there are no table files");
    for i in 0..500 {
        let (partition, row) = key_of(i);
        table.upsert(Entity::new(partition, row).with("B", vec![7; ROW_BYTES])).unwrap();
    }
    db.compact().unwrap();
    assert!((100..110).contains(&percent()), "{} %", percent());
    let delete = |rows: std::ops::Range<u32>| {
        for i in rows {
            let (partition, row) = key_of(i);
            table.delete(&partition, &row).unwrap();
        }
        db.flush().unwrap();
    };
    delete(0..400);
    assert!((480..550).contains(&percent()), "{} %", percent());
    delete(400..500);
    assert_eq!(percent(), 10_000);
}

#[test]
fn a_partly_expired_file_is_rewritten_once_nothing_is_written() {
    let fs = MemFs::new();
    let clock = Arc::new(ManualClock::new(NOW));
    let options = options(&fs).clock(clock.clone()).memtable_bytes(8 << 20);
    let db = options.run_file_bytes(8 << 20).durability(Durability::Os).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    let put = |rows: std::ops::Range<u32>| {
        for i in rows {
            let (partition, row) = key_of(i);
            let row = Entity::new(partition, row).with("B", vec![7; ROW_BYTES]);
            table.upsert(row).unwrap();
        }
    };
    put(0..400);
    clock.advance(Duration::from_secs(300));
    put(400..600);
    clock.advance(Duration::from_secs(300));
    put(600..1_000);
    db.compact().unwrap();
    db.set_ttl("things", Some(Duration::from_secs(1_000))).unwrap();
    let before = stat(&db, "file_bytes");
    clock.advance(Duration::from_secs(500));
    steps(&db);
    assert!(stat(&db, "file_bytes") >= before, "less than half of the rows have expired");
    clock.advance(Duration::from_secs(300));
    // The commit that expires the rows does not end the idle time.
    steps(&db);
    let after = stat(&db, "file_bytes");
    assert!(after < before * 45 / 100, "{before} -> {after} bytes");
    for i in 0..1_000 {
        let (partition, row) = key_of(i);
        assert_eq!(table.get(&partition, &row).unwrap().is_some(), i >= 600, "{i}");
    }
}

#[test]
fn rows_that_expire_one_after_the_other_are_freed_with_few_writes() {
    let clock = Arc::new(ManualClock::new(NOW));
    let options = options(&MemFs::new()).clock(clock.clone()).memtable_bytes(16 << 20);
    let db = options.run_file_bytes(8 << 20).durability(Durability::Os).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    for i in scattered(1_000) {
        let (partition, row) = key_of(i);
        table.upsert(Entity::new(partition, row).with("B", vec![7; ROW_BYTES])).unwrap();
        clock.advance(Duration::from_secs(1));
    }
    db.compact().unwrap();
    db.set_ttl("things", Some(Duration::from_secs(2_000))).unwrap();
    let (size, written) = (stat(&db, "file_bytes"), stat(&db, "compaction_bytes"));
    for _ in 0..100 {
        clock.advance(Duration::from_secs(20));
        steps(&db);
    }
    assert!(stat(&db, "file_bytes") < size / 8, "nearly all rows have expired");
    let written = stat(&db, "compaction_bytes") - written;
    assert!(written <= size, "{written} bytes written to free {size}");
}

#[test]
fn a_scan_skips_the_dead_versions_of_a_key() {
    let db = options(&MemFs::new()).memtable_bytes(64 << 20).durability(Durability::Os);
    let db = db.open("db").unwrap();
    let table = db.create_table("things").unwrap();
    let put = |key: &str, version: i32| {
        table.upsert(Entity::new("p", key).with("V", version)).unwrap();
    };
    ["a", "c"].iter().for_each(|key| put(key, -1));
    let mut middle = None;
    for version in 0..10_000 {
        put("b", version);
        if version == 4_000 {
            middle = Some(db.snapshot());
        }
    }
    let rows = |at: Option<crate::model::Seq>| {
        let view = table.engine.read_view(at);
        let id = table.entry.gate.table;
        let span = Span::new(&table_start(id), Some(&table_end(id)));
        let mut plain = view.scan(&span, &span).unwrap();
        let mut keys = Vec::new();
        while plain.advance().unwrap() {
            keys.push((plain.key().to_vec(), plain.row().unwrap().seq));
        }
        let mut filtered = view.scan(&span, &span).unwrap();
        let mut found = Vec::new();
        while filtered.advance_where(&mut Everything, u64::MAX).unwrap() == Step::Row {
            found.push((filtered.key().to_vec(), filtered.row().unwrap().seq));
        }
        assert_eq!(keys, found);
        (keys.len(), plain.rows.max(filtered.rows))
    };
    let values = |view: Option<&crate::table::Snapshot>| -> Vec<i32> {
        let rows = match view {
            Some(at) => table.at(at).scan(KeyRange::all()).into_iter().collect::<Vec<_>>(),
            None => table.scan(KeyRange::all()).into_iter().collect(),
        };
        rows.into_iter().map(|row| row.unwrap().get::<i32>("V").unwrap()).collect()
    };
    let middle = middle.unwrap();
    assert_eq!(values(None), [-1, 9_999, -1]);
    assert_eq!(values(Some(&middle)), [-1, 4_000, -1]);
    let last_first = table.scan(KeyRange::all()).reverse().into_iter();
    let last_first: Vec<i32> = last_first.map(|row| row.unwrap().get("V").unwrap()).collect();
    assert_eq!(last_first, [-1, 9_999, -1]);
    let (found, steps) = rows(None);
    assert_eq!(found, 3);
    assert!(steps < 100, "{steps} entries examined");
    let seq = middle.seq();
    let (found, steps) = rows(Some(seq));
    assert_eq!(found, 3);
    assert!(steps < 100, "{steps} entries examined");
    // A key with a delete as its newest version is skipped as fast.
    table.delete("p", "b").unwrap();
    assert_eq!(values(None), [-1, -1]);
    let (found, steps) = rows(None);
    assert!(found == 2 && steps < 100, "{steps} entries examined");
}

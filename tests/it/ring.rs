//! Tests FIFO eviction (`OnFull::DropOldest`) through the public interface: no write is refused,
//! the newest rows are there, and other tables are not affected.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rowstone::fs::{Fs, MemFs};
use rowstone::{
    Db, Durability, Entity, ErrorKind, KeyRange, Options, Result, Table,
    changes::Change,
    options::{Background, OnFull},
};

const LIMIT: u64 = 2 << 20;
const ROW_BYTES: usize = 2_000;
const MEMTABLE_BYTES: usize = 64 << 10;

fn unlimited(fs: &MemFs) -> Options {
    Options::edge()
        .fs(Arc::new(fs.clone()))
        .background(Background::Manual)
        .durability(Durability::Os)
        .memtable_bytes(MEMTABLE_BYTES)
        .run_file_bytes(64 << 10)
        .range_bytes(512 << 10)
        .seed(7)
}

fn options(fs: &MemFs) -> Options {
    unlimited(fs).max_disk(LIMIT)
}

fn ring(fs: &MemFs, tables: &[&str]) -> Options {
    options(fs).on_full(OnFull::DropOldest(tables.iter().map(|name| (*name).into()).collect()))
}

/// The order of the keys: ascending, scattered, or a few keys that are rewritten repeatedly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Ascending,
    Scattered,
    Replacing,
}

fn key(order: Order, i: usize) -> (String, String) {
    match order {
        Order::Ascending => ("p".to_owned(), format!("{i:06}")),
        Order::Scattered => (format!("p{}", i % 7), format!("{:06}", i * 7_919 % 100_003)),
        Order::Replacing => (format!("p{}", i % 7), format!("{:06}", i * 7_919 % 400)),
    }
}

fn row(order: Order, i: usize) -> Entity {
    let line = (0..ROW_BYTES).map(|at| char::from(b'a' + ((i * 31 + at * 7) % 26) as u8));
    let (pk, rk) = key(order, i);
    Entity::new(pk, rk).with("At", i as i64).with("Line", line.collect::<String>())
}

fn run_background(db: &Db) {
    while db.step(Duration::ZERO) {}
}

/// Returns the total size of the database's files.
fn used(fs: &MemFs) -> u64 {
    let paths = fs.paths();
    let mine = paths.iter().filter(|path| Path::new(path).starts_with("db"));
    // A file may be removed concurrently.
    mine.filter_map(|path| fs.len(path).ok()).sum()
}

fn stat(db: &Db, name: &str) -> u64 {
    db.stats().get(name).unwrap()
}

#[track_caller]
fn check_used(fs: &MemFs, db: &Db) {
    assert_eq!(stat(db, "disk_bytes"), used(fs));
    assert!(used(fs) <= LIMIT, "{} of {LIMIT}", used(fs));
}

/// Returns the rows of a scan, by the number with which they were written.
fn rows(table: &Table) -> Result<BTreeMap<usize, Entity>> {
    let entities = table.scan(KeyRange::all()).into_iter();
    let at = |entity: &Entity| entity.get::<i64>("At").unwrap() as usize;
    entities.map(|entity| entity.map(|entity| (at(&entity), entity))).collect()
}

/// Checks that each row is complete, and that the table has all rows from its oldest one up to
/// `end`.
#[track_caller]
fn check_newest(table: &Table, order: Order, end: usize) -> usize {
    let found = rows(table).unwrap();
    let first = *found.keys().next().unwrap();
    let newest: BTreeMap<_, _> = (first..end).map(|i| (key(order, i), i)).collect();
    let mut expected: Vec<usize> = newest.into_values().collect();
    expected.sort_unstable();
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), expected);
    for (i, entity) in &found {
        assert!(entity.properties().eq(row(order, *i).properties()), "row {i}");
    }
    first
}

#[test]
fn a_ring_is_filled_many_times_and_refuses_nothing() {
    for (order, steps) in [
        (Order::Ascending, 1),
        (Order::Ascending, 0),
        (Order::Scattered, 100),
        (Order::Scattered, 1),
        (Order::Scattered, 0),
        (Order::Replacing, 1),
    ] {
        let fs = MemFs::new();
        let db = ring(&fs, &["log"]).open("db").unwrap();
        let table = db.create_table("Log").unwrap();
        let mut first = 0;
        for i in 0..6_000 {
            table.upsert(row(order, i)).unwrap();
            // Runs at most `steps` background steps per write, possibly none.
            (0..steps).take_while(|_| db.step(Duration::ZERO)).count();
            check_used(&fs, &db);
            if i % 500 == 499 {
                let now = check_newest(&table, order, i + 1);
                assert!(now >= first, "{order:?}: {now} after {first}");
                first = now;
            }
        }
        let kept = (6_000 - first) * ROW_BYTES;
        crate::say(format_args!("ring {order:?} {steps}: {kept} bytes of rows in {LIMIT}"));
        assert_eq!(stat(&db, "disk_refusals"), 0);
        if order != Order::Replacing {
            assert!(
                first > 0 && kept as u64 > LIMIT / 4,
                "{order:?} {steps}: {kept} bytes are kept"
            );
            assert!(stat(&db, "oldest_files_dropped") > 10);
            assert!(stat(&db, "oldest_bytes_dropped") > 2 * LIMIT);
        }
        assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
        db.close().unwrap();
        // Evicted rows stay evicted, all others are still there.
        for options in [ring(&fs, &["log"]), options(&fs)] {
            let db = options.open("db").unwrap();
            run_background(&db);
            assert_eq!(check_newest(&db.table("log").unwrap(), order, 6_000), first);
            db.close().unwrap();
        }
    }
}

#[test]
fn whole_files_are_evicted_and_other_tables_unchanged() {
    let fs = MemFs::new();
    let db = ring(&fs, &["log", "trace"]).open("db").unwrap();
    let keep: Vec<Table> =
        ["aaa", "mmm", "zzz"].map(|name| db.create_table(name).unwrap()).into_iter().collect();
    let [log, trace] = ["log", "trace"].map(|name| db.create_table(name).unwrap());
    for i in 0..3_000 {
        // The other tables are small and have rows of any age.
        if i % 100 == 0 {
            keep[i / 100 % 3].upsert(row(Order::Scattered, i)).unwrap();
        }
        let table = if i % 3 == 0 { &trace } else { &log };
        table.upsert(row(Order::Scattered, i)).unwrap();
        db.step(Duration::ZERO);
        check_used(&fs, &db);
    }
    let kept: Vec<_> = keep.iter().flat_map(|table| rows(table).unwrap()).collect();
    assert_eq!(kept.len(), 30);
    for (i, entity) in &kept {
        assert!(entity.properties().eq(row(Order::Scattered, *i).properties()), "row {i}");
    }
    // In each table the oldest rows were evicted first. The oldest remaining rows of the two tables
    // have about the same age.
    let firsts = [(log, [1, 2]), (trace, [0, 0])].map(|(table, of)| {
        let found = rows(&table).unwrap();
        let first = *found.keys().next().unwrap();
        assert!((first..3_000).all(|i| found.contains_key(&i) == of.contains(&(i % 3))));
        first
    });
    assert!(firsts[0] > 2_000 && firsts[0].abs_diff(firsts[1]) < 200, "{firsts:?}");
    assert_eq!(stat(&db, "disk_refusals"), 0);
    db.close().unwrap();
}

#[test]
fn the_cost_of_an_eviction_is_bounded_by_files() {
    let fs = MemFs::new();
    let db = ring(&fs, &["log"]).open("db").unwrap();
    let table = db.create_table("log").unwrap();
    for i in 0..6_000 {
        let before = db.stats();
        let at = |stats: &rowstone::stats::Stats, name| stats.get(name).unwrap();
        table.upsert(row(Order::Ascending, i)).unwrap();
        let after = db.stats();
        let more = |name| at(&after, name) - at(&before, name);
        if more("oldest_files_dropped") > 0 {
            // One of the two commits is the eviction, for which no row is read or written.
            assert_eq!(more("commits"), 2);
            assert_eq!(more("compaction_bytes_read"), 0);
            assert!(more("oldest_files_dropped") <= at(&before, "files"));
            assert!(more("oldest_bytes_dropped") <= LIMIT / 32 + 3 * MEMTABLE_BYTES as u64);
        }
        run_background(&db);
    }
    assert!(stat(&db, "oldest_files_dropped") > 10);
    db.close().unwrap();
}

/// Writes rows until one is refused, or up to `end`.
fn fill(table: &Table, order: Order, from: usize, end: usize) -> usize {
    for i in from..end {
        if let Err(error) = table.upsert(row(order, i)) {
            assert_eq!((error.kind(), error.code()), (ErrorKind::StorageFull, "StorageFull"));
            assert!(error.chain().contains("Options::on_full"), "{}", error.chain());
            return i;
        }
    }
    end
}

#[test]
fn a_snapshot_keeps_its_rows_and_nothing_is_evicted_in_vain() {
    let fs = MemFs::new();
    let db = ring(&fs, &["log"]).open("db").unwrap();
    let table = db.create_table("log").unwrap();
    let written = fill(&table, Order::Scattered, 0, 300);
    let snapshot = db.snapshot();
    let seen: Vec<_> =
        table.at(&snapshot).scan(KeyRange::all()).into_iter().collect::<Result<_>>().unwrap();
    let mut end = fill(&table, Order::Scattered, written, 5_000);
    assert!(end < 5_000);
    // A few more rows are admitted after the memtable was flushed.
    for _ in 0..10 {
        run_background(&db);
        check_used(&fs, &db);
        end = fill(&table, Order::Scattered, end, 5_000);
    }
    assert!(end < 5_000);
    // Nothing was evicted, because an eviction would have deleted rows without freeing space.
    assert_eq!(rows(&table).unwrap().len(), end);
    assert_eq!(stat(&db, "oldest_files_dropped"), 0);
    let again = table.at(&snapshot).scan(KeyRange::all());
    assert_eq!(again.into_iter().collect::<Result<Vec<_>>>().unwrap(), seen);
    drop(snapshot);
    assert_eq!(fill(&table, Order::Scattered, end, end + 500), end + 500);
    check_newest(&table, Order::Scattered, end + 500);
    db.close().unwrap();
}

#[test]
fn a_running_read_continues_and_causes_no_further_eviction() {
    let fs = MemFs::new();
    let db = ring(&fs, &["log"]).open("db").unwrap();
    let table = db.create_table("log").unwrap();
    let mut end = 0;
    while stat(&db, "oldest_files_dropped") == 0 {
        end = fill(&table, Order::Scattered, end, end + 1);
        db.step(Duration::ZERO);
    }
    let expected = rows(&table).unwrap().len();
    let mut reading = table.scan(KeyRange::all()).into_iter();
    reading.next().unwrap().unwrap();
    // Files that the scan pins are not freed: eventually a write is refused, and then nothing more
    // is evicted.
    let mut refused = end;
    for _ in 0..10 {
        refused = fill(&table, Order::Scattered, refused, 50_000);
        run_background(&db);
        check_used(&fs, &db);
    }
    assert!(refused < 50_000);
    let dropped = stat(&db, "oldest_files_dropped");
    for _ in 0..100 {
        refused = fill(&table, Order::Scattered, refused, 50_000);
        run_background(&db);
    }
    assert!(rows(&table).unwrap().len() > 100, "too much was evicted because of a reader");
    assert_eq!(stat(&db, "oldest_files_dropped"), dropped);
    assert_eq!(
        reading.map(|row| row.map(drop)).collect::<Result<Vec<_>>>().unwrap().len(),
        expected - 1
    );
    assert_eq!(fill(&table, Order::Scattered, refused, refused + 500), refused + 500);
    check_newest(&table, Order::Scattered, refused + 500);
    db.close().unwrap();
}

/// Eviction cannot free files that a reader pins, and the logs of large rows take additional space.
#[test]
fn large_rows_next_to_a_reader_are_refused_for_lack_of_space_only() {
    let fs = MemFs::new();
    let limit = 16 << 20;
    let db = ring(&fs, &["log"]).max_disk(limit).open("db").unwrap();
    let log = db.create_table("log").unwrap();
    let line = "x".repeat(30_000);
    let put = |i: usize| {
        let row = Entity::new(format!("p{}", i * 7_919 % 1_009), "");
        log.upsert(["A", "B", "C", "D"].iter().fold(row, |row, name| row.with(*name, &*line)))
    };
    let mut end = 0;
    while stat(&db, "oldest_files_dropped") < 5 {
        put(end).unwrap();
        end += 1;
        run_background(&db);
    }
    let mut reader = log.scan(KeyRange::all()).into_iter();
    reader.next().unwrap().unwrap();
    let mut most = 0;
    let refused = (end..end + 1_000).find_map(|i| {
        let result = put(i).err();
        run_background(&db);
        most = most.max(used(&fs));
        result
    });
    // Half of the reserve for merges was used, and the refusal was counted.
    let refused = refused.expect("pinned files take space").chain();
    assert!(refused.contains("the oldest rows of the tables"), "{refused}");
    assert!(stat(&db, "disk_refusals") > 0);
    assert!(most > limit * 13 / 16 && most <= limit, "{most} of {limit}");
    drop(reader);
    put(end).unwrap();
    db.close().unwrap();
}

#[test]
fn writes_are_refused_where_eviction_cannot_help() {
    let fs = MemFs::new();
    let db = ring(&fs, &["log", "later"]).open("db").unwrap();
    let [log, other] = ["log", "other"].map(|name| db.create_table(name).unwrap());
    assert_eq!(fill(&log, Order::Ascending, 0, 2_000), 2_000);
    // Writes to other tables evict all rows of `log`; after that, writes are refused.
    let end = fill(&other, Order::Scattered, 0, 5_000);
    assert!(end < 5_000, "no limit");
    run_background(&db);
    check_used(&fs, &db);
    assert_eq!(rows(&other).unwrap().len(), end);
    assert!(rows(&log).unwrap().len() < 200);
    // A table that `on_full` names may be created at any time. Dropping a table frees space as
    // usual.
    db.delete_table("other").unwrap();
    run_background(&db);
    let later = db.create_table("LATER").unwrap();
    assert_eq!(fill(&later, Order::Scattered, 0, 3_000), 3_000);
    check_newest(&later, Order::Scattered, 3_000);
    assert!(rows(&log).unwrap().is_empty());
    db.delete_table("later").unwrap();
    run_background(&db);
    let again = db.create_table("later").unwrap();
    assert_eq!(fill(&again, Order::Ascending, 0, 3_000), 3_000);
    check_newest(&again, Order::Ascending, 3_000);
    db.close().unwrap();
}

#[test]
fn an_eviction_interrupted_by_a_power_cut_is_finished_and_loses_nothing_else() {
    let fs = MemFs::new();
    let db = ring(&fs, &["log"]).open("db").unwrap();
    let [log, other] = ["log", "other"].map(|name| db.create_table(name).unwrap());
    for i in 0..50 {
        other.upsert(row(Order::Ascending, i)).unwrap();
    }
    let mut end = 0;
    while stat(&db, "oldest_files_dropped") < 5 {
        end = fill(&log, Order::Scattered, end, end + 1);
        db.step(Duration::ZERO);
    }
    // Records the file operations of one more eviction.
    db.sync().unwrap();
    let (dropped, from) = (stat(&db, "oldest_files_dropped"), end);
    let first = check_newest(&log, Order::Scattered, end);
    fs.record();
    while stat(&db, "oldest_files_dropped") == dropped {
        end = fill(&log, Order::Scattered, end, end + 1);
        db.step(Duration::ZERO);
    }
    let now = check_newest(&log, Order::Scattered, end);
    let (begin, last) = fs.recorded().into_inner();
    drop(db);
    let mut firsts = Vec::new();
    for op in (begin..=last).rev().take(60) {
        let Some(image) = fs.crash_image_at(op, op) else { continue };
        let db = ring(&image, &["log"]).open("db").unwrap();
        let log = db.table("log").unwrap();
        let found = rows(&log).unwrap();
        let (oldest, newest) = (*found.keys().next().unwrap(), *found.keys().last().unwrap());
        assert!(newest + 1 >= from, "operation {op}: up to {newest}, of {from} synced rows");
        firsts.push(check_newest(&log, Order::Scattered, newest + 1));
        assert!(oldest == first || oldest == now, "operation {op}: {oldest}, not {first} or {now}");
        assert_eq!(rows(&db.table("other").unwrap()).unwrap().len(), 50);
        run_background(&db);
        check_used(&image, &db);
        // The range tombstone of the eviction is there or was never written. In both cases writes
        // continue.
        assert_eq!(fill(&log, Order::Scattered, newest + 1, newest + 300), newest + 300);
        check_newest(&log, Order::Scattered, newest + 300);
        assert_eq!(rows(&db.table("other").unwrap()).unwrap().len(), 50);
        assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
        db.close().unwrap();
    }
    firsts.dedup();
    assert!(
        firsts.len() >= 2,
        "all images are from before the drop, or all from after it: {firsts:?}"
    );
}

#[test]
fn a_database_above_its_limit_shrinks_to_it() {
    let fs = MemFs::new();
    // The database is written without eviction and compacted, so its files contain rows of all
    // ages.
    let db = unlimited(&fs).open("db").unwrap();
    let [log, other] = ["log", "other"].map(|name| db.create_table(name).unwrap());
    for i in 0..300 {
        log.upsert(row(Order::Scattered, i)).unwrap();
        other.upsert(row(Order::Ascending, i % 20)).unwrap();
    }
    db.compact().unwrap();
    for i in 300..500 {
        log.upsert(row(Order::Scattered, i)).unwrap();
    }
    db.close().unwrap();
    let before = used(&fs);
    let limit = 1 << 20;
    assert!(before > limit);
    let db = ring(&fs, &["log"]).max_disk(limit).open("db").unwrap();
    let log = db.table("log").unwrap();
    assert_eq!(rows(&log).unwrap().len(), 500);
    log.upsert(row(Order::Scattered, 500)).unwrap();
    run_background(&db);
    assert!(used(&fs) <= limit, "{}", used(&fs));
    check_newest(&log, Order::Scattered, 501);
    assert_eq!(rows(&db.table("other").unwrap()).unwrap().len(), 20);
    // A full compaction does not merge the files of tables with eviction.
    let files = stat(&db, "files");
    db.compact().unwrap();
    assert!(stat(&db, "files") >= files.min(3));
    check_newest(&log, Order::Scattered, 501);
    db.close().unwrap();
}

#[test]
fn a_time_to_live_and_a_ring_work_together() {
    let fs = MemFs::new();
    let db = ring(&fs, &["log"]).open("db").unwrap();
    let table = db.create_table("log").unwrap();
    db.set_ttl("log", Some(Duration::from_secs(3_600))).unwrap();
    for i in 0..3_000 {
        table.upsert(row(Order::Scattered, i)).unwrap();
        db.step(Duration::ZERO);
        check_used(&fs, &db);
    }
    let first = check_newest(&table, Order::Scattered, 3_000);
    assert!(first > 0);
    db.set_ttl("log", None).unwrap();
    run_background(&db);
    assert_eq!(check_newest(&table, Order::Scattered, 3_000), first);
    assert!(stat(&db, "fences") <= 2);
    db.close().unwrap();
}

#[test]
fn a_copy_has_the_rows_of_its_time() {
    let fs = MemFs::new();
    let db = ring(&fs, &["log"]).open("db").unwrap();
    let table = db.create_table("log").unwrap();
    let mut copies = Vec::new();
    for i in 0..3_000 {
        table.upsert(row(Order::Scattered, i)).unwrap();
        db.step(Duration::ZERO);
        if i % 700 == 699 {
            let path = format!("copy{i}");
            db.checkpoint(&path).unwrap();
            db.backup("backups").unwrap();
            copies.push((path, i + 1, check_newest(&table, Order::Scattered, i + 1)));
        }
    }
    for (path, end, first) in copies {
        let plain = Options::edge().fs(Arc::new(fs.clone())).background(Background::Manual);
        let copy = plain.open(&path).unwrap();
        assert_eq!(check_newest(&copy.table("log").unwrap(), Order::Scattered, end), first);
        copy.close().unwrap();
    }
    db.close().unwrap();
}

/// The file system's quota equals the limit, so it refuses any write that the limit wrongly admits.
#[test]
fn threads_fill_a_ring_below_the_limit() {
    for background in [Background::Threads, Background::OneThread] {
        let fs = MemFs::new();
        fs.create_dir_all(Path::new("db")).unwrap();
        fs.set_quota(Some(LIMIT));
        let db = ring(&fs, &["log"]).background(background).open("db").unwrap();
        let table = db.create_table("log").unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (db, table) = (&db, table.clone());
                scope.spawn(move || {
                    for i in 0..500 {
                        table.upsert(row(Order::Scattered, i * 8 + thread)).unwrap();
                        if i % 125 == 50 {
                            db.flush().unwrap();
                        }
                    }
                });
            }
        });
        assert!(used(&fs) <= LIMIT);
        assert_eq!(stat(&db, "disk_refusals"), 0);
        // Each thread's newest rows are there, without gaps.
        let found = rows(&table).unwrap();
        for thread in 0..8 {
            let mine: Vec<usize> = found.keys().copied().filter(|i| i % 8 == thread).collect();
            assert!(mine.windows(2).all(|pair| pair[1] == pair[0] + 8), "{mine:?}");
            assert!(mine.last().is_none_or(|last| *last == 3_992 + thread), "{mine:?}");
        }
        assert!(found.len() > 100);
        assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
        db.close().unwrap();
    }
}

#[test]
fn a_ring_needs_a_limit_and_names_that_tables_can_have() {
    let fs = MemFs::new();
    let plain = || Options::edge().fs(Arc::new(fs.clone())).background(Background::Manual);
    let of = |name: &str| OnFull::DropOldest(vec![name.to_owned()]);
    let error = plain().on_full(of("log")).open("db").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.chain().contains("Options::max_disk"), "{}", error.chain());
    let error = plain().max_disk(16 << 20).on_full(of("no table")).open("db").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_follower_and_the_feed_see_evictions() {
    let fs = MemFs::new();
    let db = ring(&fs, &["log"]).keep_changes(128 << 10).open("db").unwrap();
    let [log, other] = ["log", "other"].map(|name| db.create_table(name).unwrap());
    other.upsert(row(Order::Ascending, 7)).unwrap();
    let since = db.position();
    let plain = || Options::edge().fs(Arc::new(fs.clone())).background(Background::Manual);
    let follower = plain().follow("db").unwrap();
    let (mut end, mut told) = (0, 0);
    let mut changes = db.changes(since).unwrap();
    let mut state = BTreeMap::new();
    for _ in 0..60 {
        end = fill(&log, Order::Scattered, end, end + 50);
        db.sync().unwrap();
        for commit in changes.by_ref() {
            for change in commit.unwrap().changes {
                match change {
                    Change::Put { entity, .. } => {
                        state.insert(entity.get::<i64>("At").unwrap() as usize, entity);
                    }
                    Change::Expired { table, before } => {
                        assert_eq!(table, "log");
                        state.retain(|_, row: &mut Entity| row.timestamp().unwrap() >= before);
                        told += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!(state, rows(&log).unwrap());
        follower.refresh().unwrap();
        assert_eq!(rows(&follower.db().table("log").unwrap()).unwrap(), state);
        assert_eq!(rows(&follower.db().table("other").unwrap()).unwrap().len(), 1);
        run_background(&db);
    }
    assert!(told > 10, "{told} drops");
    db.close().unwrap();
}

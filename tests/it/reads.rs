//! Tests reads during background work: by pages with tokens, by iterators, and at the head of
//! queues. Also tests the lock of a database.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rowstone::fs::{DiskFs, FaultFs, Fs, MemFs, OpKind};
use rowstone::{
    Db, Durability, Entity, ErrorKind, KeyRange, Options, Table,
    clock::ManualClock,
    options::{Background, IoMode},
};

use rowstone::retry::Rng;
use rowstone::sim::engine::START;

fn open(fs: Arc<dyn Fs>) -> Db {
    let options = Db::options().fs(fs).clock(Arc::new(ManualClock::new(START)));
    let options = options.background(Background::Manual).durability(Durability::Os);
    let options = options.io_mode(IoMode::Pread).cache_bytes(0).seed(1);
    options.memtable_bytes(16 << 10).block_bytes(1 << 10).open("db").unwrap()
}

fn note(number: u64) -> Entity {
    Entity::new(format!("p{}", number % 3), format!("r{number:05}")).with("Note", "x".repeat(80))
}

/// Flushes, compacts or runs background steps, at random.
fn maintain(db: &Db, rng: &mut Rng) {
    match rng.index(4) {
        0 => db.flush().unwrap(),
        1 => db.compact().unwrap(),
        _ => {
            for _ in 0..3 {
                db.step(std::time::Duration::ZERO);
            }
        }
    }
}

#[test]
fn trap_22_tokens_survive_deletes_flushes_and_compactions() {
    let db = open(Arc::new(MemFs::new()));
    let table = db.create_table("Pages").unwrap();
    let mut rng = Rng::from_seed(22);
    for number in 0..600 {
        table.insert(note(number)).unwrap();
    }
    for round in 0..20u64 {
        // Rows that are deleted or inserted during the scan may be returned or not. All other rows
        // of the table are returned once.
        let stays: BTreeSet<u64> = (0..600).filter(|number| number % 20 != round).collect();
        let mut seen = Vec::new();
        let mut token = None;
        loop {
            let query = table.scan(KeyRange::all());
            let query = match token.take() {
                Some(token) => query.after(token),
                None => query,
            };
            let page = query.page(1 + rng.index(60)).unwrap();
            seen.extend(page.entities().iter().map(|entity| entity.row_key().to_owned()));
            let gone = 20 * rng.index(30) as u64 + round;
            drop(table.delete(note(gone).partition_key(), note(gone).row_key()));
            maintain(&db, &mut rng);
            match page.next() {
                Some(next) => token = Some(next.clone()),
                None => break,
            }
        }
        let expected: Vec<String> = (0..3u64)
            .flat_map(|p| stays.iter().filter(move |n| **n % 3 == p).map(|n| format!("r{n:05}")))
            .collect();
        let of_those: Vec<String> = seen.into_iter().filter(|rk| expected.contains(rk)).collect();
        assert_eq!(of_those, expected, "round {round}");
        for number in (0..600).filter(|number| number % 20 == round) {
            table.upsert(note(number)).unwrap();
        }
    }
    db.close().unwrap();
}

/// A queue with pushes at one end and pops at the other. A pop must not read all tombstones of
/// earlier pops.
#[test]
fn trap_32_the_head_of_a_queue_is_found_past_its_tombstones() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let db = open(Arc::new(faults.clone()));
    let table = db.create_table("Queue").unwrap();
    let push = |number: u64| table.insert(Entity::new("q", format!("r{number:08}"))).unwrap();
    let pop = || {
        let head = table.scan(KeyRange::partition("q")).top(1).into_iter().next();
        let head = head.expect("the queue is not empty").unwrap();
        table.delete("q", head.row_key()).unwrap();
    };
    for number in 0..50 {
        push(number);
    }
    let mut costliest = 0;
    for number in 50..20_000 {
        push(number);
        let before = faults.count(OpKind::Read);
        pop();
        costliest = costliest.max(faults.count(OpKind::Read) - before);
        while db.step(std::time::Duration::ZERO) {}
    }
    assert!(costliest < 200, "a pop read {costliest} blocks");
    db.close().unwrap();
}

fn rewrite(table: &Table, rng: &mut Rng) {
    for number in 0..600 {
        let note = "y".repeat(rng.index(90));
        let entity = Entity::new(format!("p{}", number % 3), format!("r{number:05}"));
        table.upsert(entity.with("Note", note)).unwrap();
    }
}

#[test]
fn trap_33_files_are_kept_while_read_and_removed_afterwards() {
    let fs = MemFs::new();
    let db = open(Arc::new(fs.clone()));
    let table = db.create_table("Held").unwrap();
    let mut rng = Rng::from_seed(33);
    for number in 0..600 {
        table.insert(note(number)).unwrap();
    }
    db.compact().unwrap();
    let snapshot = db.snapshot();
    let mut reading = table.scan(KeyRange::all()).into_iter();
    let first = reading.next().unwrap().unwrap();
    for _ in 0..4 {
        rewrite(&table, &mut rng);
        db.compact().unwrap();
        while db.step(std::time::Duration::ZERO) {}
    }
    let rest: Vec<Entity> = reading.map(|entity| entity.unwrap()).collect();
    let notes = |entity: &Entity| entity.get::<String>("Note").unwrap();
    assert!(rest.iter().chain([&first]).all(|entity| notes(entity) == "x".repeat(80)));
    assert_eq!(rest.len(), 599);
    let then = table.at(&snapshot).scan(KeyRange::all()).into_iter();
    assert!(then.map(|entity| entity.unwrap()).all(|entity| notes(&entity) == "x".repeat(80)));
    drop(snapshot);
    db.compact().unwrap();
    while db.step(std::time::Duration::ZERO) {}
    let live = db.stats().get("files").unwrap();
    let files = fs.paths().iter().filter(|path| path.ends_with(".sst")).count() as u64;
    assert_eq!(files, live, "{:?}", fs.paths());
    db.close().unwrap();
}

#[test]
fn trap_33_trap_34_an_open_without_the_lock_changes_nothing() {
    let fs = MemFs::new();
    let db = open(Arc::new(fs.clone()));
    db.create_table("Mine").unwrap();
    let state = || fs.paths().iter().map(|path| fs.read(path).unwrap()).collect::<Vec<_>>();
    let before = (fs.paths(), state());
    let error = Db::options().fs(Arc::new(fs.clone())).open("db").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error:?}");
    assert_eq!((fs.paths(), state()), before);
    db.close().unwrap();
    open(Arc::new(fs)).close().unwrap();
}

#[test]
fn trap_34_a_lock_on_disk_is_exclusive_and_ends_with_its_holder() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let options = || Db::options().fs(Arc::new(DiskFs::new()));
    let db = options().open(&path).unwrap();
    assert_eq!(options().open(&path).unwrap_err().kind(), ErrorKind::Locked);
    drop(db);
    options().open(&path).unwrap().close().unwrap();
}

/// When reads over several files have cost as much as a merge would, the files are merged.
#[test]
fn files_that_are_read_often_are_merged_and_hourly_with_the_memtable() {
    let clock = Arc::new(ManualClock::new(START));
    let options = |options: Options| {
        let options = options.fs(Arc::new(MemFs::new())).clock(clock.clone()).seed(3);
        options.memtable_bytes(64 << 10).background(Background::Manual)
    };
    let many = 3_000;
    // Overwrites the first and the last key.
    let write_over = |table: &Table, line: &str| {
        for key in ["00000", "10006"] {
            table.upsert(Entity::new("p", key).with("Line", line)).unwrap();
        }
    };
    let begin = |options: Options| {
        let db = options.open("db").unwrap();
        let table = db.create_table("read").unwrap();
        for i in 0..many {
            let row = Entity::new("p", format!("{:05}", i * 7_919 % 10_007));
            table.upsert(row.with("Line", "l".repeat(40))).unwrap();
            while db.step(Duration::ZERO) {}
        }
        // In the first round the rewritten rows are in a file that is newer than the files to be
        // merged, in the second round they are in memory.
        for line in ["in a file", "in memory"] {
            db.flush().unwrap();
            write_over(&table, line);
        }
        (db, table)
    };
    let sources = |db: &Db| db.partitions("read").unwrap()[0].sources;
    let flushes = |db: &Db| db.stats().get("flushes").unwrap();
    let read = |db: &Db, table: &Table, times: usize| {
        for _ in 0..times {
            let rows = table.scan(KeyRange::all()).into_iter();
            assert!(rows.map(Result::unwrap).count() >= many);
        }
        while db.step(Duration::ZERO) {}
    };
    for (options, is_merged) in [
        (options(Options::new()), true),
        (options(Options::new()).merge_for_readers(false), false),
        (options(Options::edge()), false),
        (options(Options::new()).max_disk(1 << 30), false),
    ] {
        let (db, table) = begin(options);
        let (before, flushed) = (sources(&db), flushes(&db));
        assert!(before > 1, "{before}");
        read(&db, &table, 2);
        assert_eq!(sources(&db), before, "two reads cause no merge");
        read(&db, &table, 100);
        assert_eq!(sources(&db), if is_merged { 1 } else { before });
        // A merge includes the memtable, which is flushed first.
        assert_eq!(flushes(&db) - flushed, u64::from(is_merged));
        if is_merged {
            write_over(&table, "new");
            db.flush().unwrap();
            read(&db, &table, 200);
            assert_eq!(sources(&db), 2, "the run is not rewritten for two rows");
            clock.advance(Duration::from_secs(3_600));
            read(&db, &table, 1);
            assert_eq!(sources(&db), 1);
        }
        db.close().unwrap();
    }
}

/// During a pause in writing, files are merged for readers eight times as early, and a memtable
/// whose rows are scanned is flushed.
#[test]
fn in_a_pause_of_writing_few_scans_merge_files_and_flush_the_memtable() {
    const MANY: usize = 3_000;
    let clock = Arc::new(ManualClock::new(START));
    // Returns the number of scans until each key has one source, none of them in memory.
    let scans = |options: Options, length: usize, is_flushed: bool, pause: u64| {
        let options = options.fs(Arc::new(MemFs::new())).clock(clock.clone()).seed(3);
        let options = options.memtable_bytes(4 << 20).background(Background::Manual);
        let db = options.open("db").unwrap();
        let table = db.create_table("read").unwrap();
        for i in 0..MANY {
            let row = Entity::new("p", format!("{:05}", i * 7_919 % 10_007));
            table.upsert(row.with("Line", "l".repeat(length))).unwrap();
            if is_flushed && i % (MANY / 3) == 0 {
                db.flush().unwrap();
            }
        }
        let flushes = || db.stats().get("flushes").unwrap();
        let flushed = flushes();
        let is_one = |db: &Db| {
            let ranges = db.partitions("read").unwrap();
            ranges.iter().all(|range| range.sources == 1) && flushes() > flushed
        };
        let scan = |_: &usize| {
            let rows = table.scan(KeyRange::all()).into_iter();
            assert_eq!(rows.map(Result::unwrap).count(), MANY);
            while db.step(Duration::ZERO) {}
            clock.advance(Duration::from_millis(pause));
            is_one(&db)
        };
        let found = (1..=60).find(scan);
        db.close().unwrap();
        found
    };
    let is_soon = |found: Option<usize>| found.is_some_and(|scans| scans <= 8);
    assert!(is_soon(scans(Options::new(), 40, false, 100)), "rows in memory");
    assert!(is_soon(scans(Options::new(), 40, true, 100)), "rows in files and in memory");
    assert!(scans(Options::new(), 40, true, 0).is_some_and(|scans| scans > 30), "no pause");
    for (options, length, pause) in [
        (Options::new(), 40, 0),
        (Options::new(), 600, 100),
        (Options::edge(), 40, 100),
        (Options::new().merge_for_readers(false), 40, 100),
        (Options::new().max_disk(1 << 30), 40, 100),
    ] {
        assert_eq!(scans(options, length, false, pause), None, "{length} {pause}");
    }
}

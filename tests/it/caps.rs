//! Tests the limit on disk use through the public interface: which writes are refused near it,
//! which are admitted, and how space is reclaimed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rowstone::fs::{Fs, MemFs};
use rowstone::{
    Db, Durability, Entity, EntityGroup, ErrorKind, KeyRange, Options, Table, options::Background,
};

const LIMIT: u64 = 2 << 20;
const ROW_BYTES: usize = 2_000;

fn options(fs: &MemFs) -> Options {
    Options::edge()
        .fs(Arc::new(fs.clone()))
        .background(Background::Manual)
        .durability(Durability::Os)
        .memtable_bytes(64 << 10)
        .run_file_bytes(64 << 10)
        .range_bytes(512 << 10)
        .max_disk(LIMIT)
        .seed(7)
}

fn open(fs: &MemFs) -> (Db, Table) {
    let db = options(fs).open("db").unwrap();
    let table = db.table_or_create("log").unwrap();
    (db, table)
}

fn row(i: usize) -> Entity {
    let line: String =
        (0..ROW_BYTES).map(|at| char::from(b'a' + ((i * 31 + at * 7) % 26) as u8)).collect();
    Entity::new(format!("p{}", i % 5), format!("{i:06}")).with("Line", line)
}

fn run_background(db: &Db) {
    while db.step(Duration::ZERO) {}
}

/// Returns the total size of the database's files.
fn used(fs: &MemFs) -> u64 {
    let paths = fs.paths();
    let mine = paths.iter().filter(|path| Path::new(path).starts_with("db"));
    mine.map(|path| fs.len(path).unwrap()).sum()
}

#[track_caller]
fn check_used(fs: &MemFs, db: &Db) {
    let stats = db.stats();
    assert_eq!(stats.get("disk_bytes"), Some(used(fs)));
    assert!(used(fs) <= LIMIT, "{} of {LIMIT}", used(fs));
}

/// Writes rows with numbers from `from` on until a write is refused. Returns the number of that
/// row.
fn fill(fs: &MemFs, db: &Db, table: &Table, from: usize) -> usize {
    for i in from..from + 10_000 {
        if let Err(error) = table.upsert(row(i)) {
            assert_eq!((error.kind(), error.code()), (ErrorKind::StorageFull, "StorageFull"));
            assert!(error.chain().contains("Options::max_disk"), "{}", error.chain());
            return i;
        }
        db.step(Duration::ZERO);
        check_used(fs, db);
    }
    panic!("no limit");
}

#[test]
fn near_the_limit_writes_are_refused_and_deletes_free_space() {
    let fs = MemFs::new();
    let (db, table) = open(&fs);
    let mut from = 0;
    for round in 0..4 {
        let end = fill(&fs, &db, &table, from);
        let live = (end - from) as u64 * ROW_BYTES as u64;
        assert!(round > 0 || live > LIMIT / 4, "{live} bytes of rows fit only");
        let refusals = db.stats().get("disk_refusals").unwrap();
        assert!(refusals > round, "{refusals}");
        // After the refusals every row can still be read and deleted.
        assert!(
            table
                .get(&format!("p{}", (end - 1) % 5), &format!("{:06}", end - 1))
                .unwrap()
                .is_some()
        );
        for i in from..end - 10 {
            table.delete(&format!("p{}", i % 5), &format!("{i:06}")).unwrap();
            check_used(&fs, &db);
        }
        // Space is not free immediately, because compactions must first drop the rows. A refused
        // write schedules them.
        let mut tries = 0;
        while table.upsert(row(end)).is_err() {
            run_background(&db);
            check_used(&fs, &db);
            tries += 1;
            assert!(tries < 5, "no space is reclaimed");
        }
        from = end - 10;
    }
    assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
    db.close().unwrap();
}

#[test]
fn drops_and_a_ttl_are_always_admitted() {
    let drops: [fn(&Db, &Table); 3] = [
        |_, table| table.delete_partition("p0").unwrap(),
        |db, _| db.delete_table("log").unwrap(),
        |db, _| db.set_ttl("log", Some(Duration::from_secs(3600))).unwrap(),
    ];
    for drop in drops {
        let fs = MemFs::new();
        let (db, table) = open(&fs);
        let end = fill(&fs, &db, &table, 0);
        // Deletes are refused at some point, too, because their tombstones must be flushed.
        for i in 0..200_000 {
            if table.delete(&format!("p{}", i % 5), &format!("{:06}", i % end)).is_err() {
                break;
            }
        }
        drop(&db, &table);
        run_background(&db);
        check_used(&fs, &db);
        db.close().unwrap();
    }
}

#[test]
fn a_dropped_partition_frees_space_without_reopening() {
    let fs = MemFs::new();
    let (db, table) = open(&fs);
    fill(&fs, &db, &table, 0);
    for p in 0..4 {
        table.delete_partition(&format!("p{p}")).unwrap();
    }
    run_background(&db);
    let room = (0..50).filter(|i| table.upsert(row(100_000 + i)).is_ok()).count();
    assert_eq!(room, 50);
    check_used(&fs, &db);
}

#[test]
fn updates_of_existing_rows_are_never_refused() {
    let fs = MemFs::new();
    let (db, table) = open(&fs);
    // The loop writes ten times as many bytes as the limit. The live rows take a fifth of the
    // limit.
    for i in 0..10_000 {
        table.upsert(row(i % 200)).unwrap();
        while db.step(Duration::ZERO) {}
        check_used(&fs, &db);
    }
    assert_eq!(db.stats().get("disk_refusals"), Some(0));
}

#[test]
fn after_a_power_cut_at_the_limit_it_opens_with_the_same_limit() {
    let fs = MemFs::new();
    let (db, table) = open(&fs);
    let end = fill(&fs, &db, &table, 0);
    db.sync().unwrap();
    let mut image = fs.crash_image(1);
    for seed in 0..20usize {
        let db = options(&image).open("db").unwrap();
        let log = db.table("log").unwrap();
        assert_eq!(log.scan(rowstone::KeyRange::all()).into_iter().count(), end - seed);
        assert!(used(&image) <= LIMIT, "{}", used(&image));
        // The recovered database still admits deletes.
        log.delete(&format!("p{}", seed % 5), &format!("{seed:06}")).unwrap();
        db.sync().unwrap();
        run_background(&db);
        let next = image.crash_image(seed as u64);
        std::mem::forget(db);
        image = next;
    }
}

#[test]
fn a_limit_below_the_minimum_is_refused_and_one_below_the_current_size_opens() {
    let fs = MemFs::new();
    let (db, table) = open(&fs);
    let end = fill(&fs, &db, &table, 0);
    db.close().unwrap();
    let error = options(&fs).max_disk(500 << 10).open("db").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.chain().contains("at least"), "{}", error.chain());
    // With a limit below the current size, the database can still be read, and data can be dropped.
    let small = options(&fs).max_disk(1 << 20);
    let db = small.open("db").unwrap();
    assert!(used(&fs) > 1 << 20);
    let table = db.table("log").unwrap();
    assert_eq!(table.scan(rowstone::KeyRange::all()).into_iter().count(), end);
    assert_eq!(table.upsert(row(end)).unwrap_err().kind(), ErrorKind::StorageFull);
    for p in 0..5 {
        table.delete_partition(&format!("p{p}")).unwrap();
    }
    run_background(&db);
    assert!(used(&fs) < 1 << 20);
    table.upsert(row(end)).unwrap();
    db.close().unwrap();
}

/// Returns a key of maximum length, so that its tombstone is large.
fn long_key(i: usize) -> String {
    format!("{i:06}{}", "\u{4e2d}".repeat(500))
}

#[test]
fn the_log_does_not_refuse_an_admitted_commit() {
    let fs = MemFs::new();
    let db = options(&fs).max_disk(8 << 20).open("db").unwrap();
    let table = db.create_table("log").unwrap();
    let mut end = 0;
    // Smaller rows fill the disk closer to the limit.
    for line in [2_000, 200] {
        let line = "x".repeat(line);
        for round in 0..5 {
            while table.upsert(Entity::new("p", long_key(end)).with("Line", &*line)).is_ok() {
                end += 1;
                db.step(Duration::ZERO);
            }
            assert!(round > 0 || end > 1_000, "{end}");
            run_background(&db);
        }
    }
    // No compaction has freed space yet, so only the space reserved for deletes is left.
    let mut group = EntityGroup::new("p");
    for i in 0..100 {
        group.delete(&long_key(i)).unwrap();
    }
    table.commit(group).unwrap();
    run_background(&db);
    assert!(used(&fs) <= 8 << 20);
    db.close().unwrap();
}

/// Merging a few bytes into a large row writes the whole row, so it is a large commit.
#[test]
fn a_merge_is_charged_the_size_of_the_merged_row() {
    let fs = MemFs::new();
    let db = options(&fs).max_disk(8 << 20).open("db").unwrap();
    let table = db.create_table("log").unwrap();
    let line = "x".repeat(30_000);
    for i in 0..40 {
        table.upsert(Entity::new("p", format!("{i:06}")).with("Line", &*line)).unwrap();
    }
    run_background(&db);
    let mut refused = 0;
    for round in 0..50 {
        let mut group = EntityGroup::new("p");
        for i in 0..40 {
            let patch = Entity::new("p", format!("{i:06}")).with("N", round);
            group.upsert_merge(patch).unwrap();
        }
        if let Err(error) = table.commit(group) {
            let text = error.chain();
            assert!(
                error.kind() == ErrorKind::StorageFull && text.contains("delete rows"),
                "{text}"
            );
            assert!(!text.contains(".wal") && !text.contains(".sst"), "{text}");
            refused += 1;
            assert_eq!(db.stats().get("disk_refusals"), Some(refused));
        }
        // All admitted commits can be flushed.
        db.flush().unwrap();
        assert!(used(&fs) <= 8 << 20);
    }
    assert!(refused > 0);
    // Compactions drop replaced versions, and writes are admitted again.
    run_background(&db);
    table.upsert_merge(Entity::new("p", "000001").with("N", -1)).unwrap();
    db.close().unwrap();
}

#[test]
fn logs_kept_for_the_feed_must_fit_the_limit() {
    let fs = MemFs::new();
    let error = options(&fs).keep_changes(LIMIT).open("db").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.chain().contains("Options::keep_changes"), "{}", error.chain());
    let db = options(&fs).max_disk(4 << 20).keep_changes(1 << 20).open("db").unwrap();
    let table = db.create_table("log").unwrap();
    // Kept logs stay within their bound, however many writes follow.
    for i in 0..10_000 {
        table.upsert(row(i % 50)).unwrap();
        run_background(&db);
    }
    assert!(db.stats().get("disk_refusals") == Some(0) && used(&fs) > 1 << 20);
    db.close().unwrap();
}

/// Logs that are kept for a time have no size limit of their own. They must leave space for rows.
#[test]
fn logs_kept_for_a_time_leave_space_for_rows() {
    let fs = MemFs::new();
    let day = Duration::from_secs(86_400);
    let db = options(&fs).max_disk(4 << 20).keep_changes_for(day).open("db").unwrap();
    let table = db.create_table("log").unwrap();
    for i in 0..10_000 {
        table.upsert(row(i % 50)).unwrap();
        run_background(&db);
        assert!(used(&fs) < 3 << 20);
    }
    assert!(db.stats().get("disk_refusals") == Some(0) && used(&fs) > 1 << 20);
    db.close().unwrap();
}

/// Flushes remove logs that exceed the limit, but opening runs no flush if the memtable is empty.
/// The kept logs must nevertheless be removed when the limit is smaller than before.
#[test]
fn logs_kept_by_an_earlier_open_are_removed_under_a_smaller_limit() {
    for kept in [None, Some(256 << 10)] {
        let fs = MemFs::new();
        let db = options(&fs).max_disk(64 << 20).keep_changes(8 << 20).open("db").unwrap();
        let table = db.create_table("log").unwrap();
        for i in 0..5_000 {
            table.upsert(row(i % 50)).unwrap();
            run_background(&db);
        }
        db.flush().unwrap();
        db.close().unwrap();
        assert!(used(&fs) > 8 << 20);
        let now = options(&fs).max_disk(4 << 20);
        let now = kept.into_iter().fold(now, |now, bytes| now.keep_changes(bytes));
        let db = now.open("db").unwrap();
        let table = db.table("log").unwrap();
        table.upsert(row(1)).unwrap();
        assert!(used(&fs) < 4 << 20);
        db.close().unwrap();
    }
}

/// Closing shrinks the manifest, and the first flush after reopening enlarges it again. The space
/// for that must not be used by other writes.
#[test]
fn a_reopened_database_admits_no_more_than_it_can_flush() {
    let fs = MemFs::new();
    let small = || options(&fs).memtable_bytes(10 << 10).run_file_bytes(4 << 10).max_disk(600_000);
    let mut end = 0;
    for _ in 0..5 {
        let db = small().open("db").unwrap();
        let table = db.table_or_create("log").unwrap();
        while table.upsert(row(end)).is_ok() {
            end += 1;
            db.step(Duration::ZERO);
        }
        db.flush().unwrap();
        table.delete_partition("p0").unwrap();
        run_background(&db);
        db.close().unwrap();
    }
}

/// An import is refused if the limit would then leave no space to flush the memtable.
#[test]
fn an_import_is_admitted_like_rows() {
    let fs = MemFs::new();
    let source = Options::edge().fs(Arc::new(fs.clone())).open("source").unwrap();
    let rows = source.create_table("log").unwrap();
    for i in 0..750 {
        rows.upsert(row(i)).unwrap();
    }
    source.export_range("log", KeyRange::all(), "part").unwrap();
    source.close().unwrap();
    let (db, table) = open(&fs);
    let error = db.import_range("part", "log").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert!(error.chain().contains("delete rows"), "{}", error.chain());
    run_background(&db);
    let end = fill(&fs, &db, &table, 0);
    assert!(end > 300, "the refused import took space: {end}");
    db.flush().unwrap();
    db.close().unwrap();
}

#[test]
fn copies_outside_the_database_do_not_count() {
    let fs = MemFs::new();
    let (db, table) = open(&fs);
    fill(&fs, &db, &table, 0);
    run_background(&db);
    let before = used(&fs);
    db.checkpoint("copy").unwrap();
    db.backup("backups").unwrap();
    assert!(used(&fs) <= before + (64 << 10));
    check_used(&fs, &db);
}

/// The file system's quota equals the limit, so it refuses any write that the limit wrongly admits.
#[test]
fn threads_that_write_and_delete_stay_below_the_limit() {
    for background in [Background::Threads, Background::OneThread] {
        let fs = MemFs::new();
        fs.create_dir_all(Path::new("db")).unwrap();
        fs.set_quota(Some(LIMIT));
        let db = options(&fs).background(background).open("db").unwrap();
        let table = db.create_table("log").unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let table = table.clone();
                scope.spawn(move || {
                    for i in 0..2_000 {
                        let i = i * 4 + thread;
                        let done = match i % 3 {
                            2 => table.delete(&format!("p{}", i % 5), &format!("{i:06}")).map(drop),
                            _ => table.upsert(row(i)).map(drop),
                        };
                        if let Err(error) = done {
                            let is_gone = error.kind() == ErrorKind::NotFound;
                            let is_limit = error.chain().contains("Options::max_disk");
                            assert!(is_gone || is_limit, "{}", error.chain());
                        }
                    }
                });
            }
        });
        db.flush().unwrap();
        assert!(used(&fs) <= LIMIT);
        assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
        db.close().unwrap();
    }
}

//! The limit on disk use as users see it: what is refused near it, what passes, and how room comes back.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rowstone::fs::{Fs, MemFs};
use rowstone::{
    Background, Db, Durability, Entity, EntityGroup, ErrorKind, KeyRange, Options, Table,
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

fn settle(db: &Db) {
    while db.step(Duration::ZERO) {}
}

/// What the files of the database take.
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

/// Writes rows from `from` on until one is refused; its number.
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
fn near_the_limit_writes_are_refused_and_deletes_make_room_again() {
    let fs = MemFs::new();
    let (db, table) = open(&fs);
    let mut from = 0;
    for round in 0..4 {
        let end = fill(&fs, &db, &table, from);
        let live = (end - from) as u64 * ROW_BYTES as u64;
        assert!(round > 0 || live > LIMIT / 4, "{live} bytes of rows fit only");
        let refusals = db.stats().get("disk_refusals").unwrap();
        assert!(refusals > round, "{refusals}");
        // Everything can be read, and deleted.
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
        // It is not back at once: merges have to take it out. A write that is refused sets them going.
        let mut tries = 0;
        while table.upsert(row(end)).is_err() {
            settle(&db);
            check_used(&fs, &db);
            tries += 1;
            assert!(tries < 5, "no room comes back");
        }
        from = end - 10;
    }
    assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
    db.close().unwrap();
}

#[test]
fn dropping_a_partition_a_table_or_what_is_old_always_passes() {
    let drops: [fn(&Db, &Table); 3] = [
        |_, table| table.delete_partition("p0").unwrap(),
        |db, _| db.delete_table("log").unwrap(),
        |db, _| db.set_ttl("log", Some(Duration::from_secs(3600))).unwrap(),
    ];
    for drop in drops {
        let fs = MemFs::new();
        let (db, table) = open(&fs);
        let end = fill(&fs, &db, &table, 0);
        // Deletes, too, have an end: their tombstones are rows to be flushed.
        for i in 0..200_000 {
            if table.delete(&format!("p{}", i % 5), &format!("{:06}", i % end)).is_err() {
                break;
            }
        }
        drop(&db, &table);
        settle(&db);
        check_used(&fs, &db);
        db.close().unwrap();
    }
}

#[test]
fn a_dropped_partition_makes_room_without_reopening() {
    let fs = MemFs::new();
    let (db, table) = open(&fs);
    fill(&fs, &db, &table, 0);
    for p in 0..4 {
        table.delete_partition(&format!("p{p}")).unwrap();
    }
    settle(&db);
    let room = (0..50).filter(|i| table.upsert(row(100_000 + i)).is_ok()).count();
    assert_eq!(room, 50);
    check_used(&fs, &db);
}

#[test]
fn an_update_in_place_goes_on_where_rows_replace_each_other() {
    let fs = MemFs::new();
    let (db, table) = open(&fs);
    // Ten times the limit, of a fifth of it that stays.
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
        // Deletes go on, and no opening takes more room than there is.
        log.delete(&format!("p{}", seed % 5), &format!("{seed:06}")).unwrap();
        db.sync().unwrap();
        settle(&db);
        let next = image.crash_image(seed as u64);
        std::mem::forget(db);
        image = next;
    }
}

#[test]
fn a_limit_that_leaves_no_room_is_refused_and_one_below_what_is_there_opens() {
    let fs = MemFs::new();
    let (db, table) = open(&fs);
    let end = fill(&fs, &db, &table, 0);
    db.close().unwrap();
    let error = options(&fs).max_disk(500 << 10).open("db").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.chain().contains("at least"), "{}", error.chain());
    // Less than it takes: it can be read, and dropped from.
    let small = options(&fs).max_disk(1 << 20);
    let db = small.open("db").unwrap();
    assert!(used(&fs) > 1 << 20);
    let table = db.table("log").unwrap();
    assert_eq!(table.scan(rowstone::KeyRange::all()).into_iter().count(), end);
    assert_eq!(table.upsert(row(end)).unwrap_err().kind(), ErrorKind::StorageFull);
    for p in 0..5 {
        table.delete_partition(&format!("p{p}")).unwrap();
    }
    settle(&db);
    assert!(used(&fs) < 1 << 20);
    table.upsert(row(end)).unwrap();
    db.close().unwrap();
}

/// Rows with keys as long as they may be: what deletes them is large.
fn long_key(i: usize) -> String {
    format!("{i:06}{}", "\u{4e2d}".repeat(500))
}

#[test]
fn what_a_commit_was_let_pass_with_its_log_does_not_refuse() {
    let fs = MemFs::new();
    let db = options(&fs).max_disk(8 << 20).open("db").unwrap();
    let table = db.create_table("log").unwrap();
    let mut end = 0;
    // The smaller the rows, the nearer to the limit.
    for line in [2_000, 200] {
        let line = "x".repeat(line);
        for round in 0..5 {
            while table.upsert(Entity::new("p", long_key(end)).with("Line", &*line)).is_ok() {
                end += 1;
                db.step(Duration::ZERO);
            }
            assert!(round > 0 || end > 1_000, "{end}");
            settle(&db);
        }
    }
    // No merge has made room: only what is kept for deletes is left.
    let mut group = EntityGroup::new("p");
    for i in 0..100 {
        group.delete(&long_key(i)).unwrap();
    }
    table.commit(group).unwrap();
    settle(&db);
    assert!(used(&fs) <= 8 << 20);
    db.close().unwrap();
}

/// A few bytes that go into a large row make a large commit.
#[test]
fn a_merge_takes_as_much_as_the_row_that_it_makes() {
    let fs = MemFs::new();
    let db = options(&fs).max_disk(8 << 20).open("db").unwrap();
    let table = db.create_table("log").unwrap();
    let line = "x".repeat(30_000);
    for i in 0..40 {
        table.upsert(Entity::new("p", format!("{i:06}")).with("Line", &*line)).unwrap();
    }
    settle(&db);
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
        // What was let pass can be flushed.
        db.flush().unwrap();
        assert!(used(&fs) <= 8 << 20);
    }
    assert!(refused > 0);
    // Merges take out what was replaced, and it goes on.
    settle(&db);
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
    // However long that goes on.
    for i in 0..10_000 {
        table.upsert(row(i % 50)).unwrap();
        settle(&db);
    }
    assert!(db.stats().get("disk_refusals") == Some(0) && used(&fs) > 1 << 20);
    db.close().unwrap();
}

/// Until their time is over, or because a server had kept them: nobody said how much that may be.
#[test]
fn logs_kept_for_a_time_leave_room_for_rows() {
    let fs = MemFs::new();
    let day = Duration::from_secs(86_400);
    let db = options(&fs).max_disk(4 << 20).keep_changes_for(day).open("db").unwrap();
    let table = db.create_table("log").unwrap();
    for i in 0..10_000 {
        table.upsert(row(i % 50)).unwrap();
        settle(&db);
        assert!(used(&fs) < 3 << 20);
    }
    assert!(db.stats().get("disk_refusals") == Some(0) && used(&fs) > 1 << 20);
    db.close().unwrap();
}

/// With nothing in memory there is no flush that would make them go.
#[test]
fn logs_of_before_that_are_too_many_go_where_there_is_no_room() {
    for kept in [None, Some(256 << 10)] {
        let fs = MemFs::new();
        let db = options(&fs).max_disk(64 << 20).keep_changes(8 << 20).open("db").unwrap();
        let table = db.create_table("log").unwrap();
        for i in 0..5_000 {
            table.upsert(row(i % 50)).unwrap();
            settle(&db);
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

/// What the manifest gives back when it is closed it takes again with the first flush.
#[test]
fn a_database_opened_anew_admits_no_more_than_it_can_flush() {
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
        settle(&db);
        db.close().unwrap();
    }
}

/// What is in memory is to be flushed beside them.
#[test]
fn a_range_that_comes_in_has_the_room_of_rows() {
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
    settle(&db);
    let end = fill(&fs, &db, &table, 0);
    assert!(end > 300, "nothing of it is left: {end}");
    db.flush().unwrap();
    db.close().unwrap();
}

#[test]
fn copies_elsewhere_do_not_count() {
    let fs = MemFs::new();
    let (db, table) = open(&fs);
    fill(&fs, &db, &table, 0);
    settle(&db);
    let before = used(&fs);
    db.checkpoint("copy").unwrap();
    db.backup("backups").unwrap();
    assert!(used(&fs) <= before + (64 << 10));
    check_used(&fs, &db);
}

/// The file system itself would refuse what the limit let pass.
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

//! Tests the deletion of key spans and the expiry of rows: which rows remain visible, and when the
//! space is reclaimed.

use std::sync::Arc;
use std::time::Duration;

use rowstone::fs::MemFs;
use rowstone::sim::engine::START;
use rowstone::{
    Db, Durability, Entity, ErrorKind, KeyRange, Options, Table, clock::ManualClock,
    options::Background,
};

const DAY: Duration = Duration::from_secs(86_400);
/// The ticks of the clock in a day.
const DAY_TICKS: u64 = 864_000_000_000;

fn options(fs: &MemFs, clock: &Arc<ManualClock>) -> Options {
    let options = Db::options().fs(Arc::new(fs.clone())).clock(clock.clone()).seed(1);
    let options = options.background(Background::Manual).durability(Durability::Os);
    options.memtable_bytes(64 << 10).block_bytes(1 << 10).run_file_bytes(32 << 10)
}

fn open(fs: &MemFs, clock: &Arc<ManualClock>) -> Db {
    options(fs, clock).open("db").unwrap()
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(START))
}

fn fill(table: &Table, partition: &str, rows: std::ops::Range<u32>) {
    for row in rows {
        let entity = Entity::new(partition, format!("r{row:06}")).with("Text", "x".repeat(40));
        table.upsert(entity).unwrap();
    }
}

fn count(table: &Table, range: KeyRange) -> u64 {
    table.scan(range).count().unwrap()
}

fn run_background(db: &Db) {
    while db.step(Duration::ZERO) {}
}

fn stat(db: &Db, name: &str) -> u64 {
    db.stats().get(name).unwrap()
}

#[test]
fn several_ranges_are_deleted_by_one_commit() {
    let (fs, clock) = (MemFs::new(), clock());
    let db = open(&fs, &clock);
    let table = db.create_table("Log").unwrap();
    for partition in ["a", "ab", "b", "c"] {
        fill(&table, partition, 0..300);
    }
    run_background(&db);
    let (commits, syncs) = (stat(&db, "commits"), stat(&db, "log_syncs"));
    let ranges = ["a", "b"].map(KeyRange::partition);
    let overlapping = KeyRange::rows("a", "r000100"..);
    table.delete_ranges(&[ranges.as_slice(), &[overlapping]].concat()).unwrap();
    assert_eq!((stat(&db, "commits"), stat(&db, "log_syncs")), (commits + 1, syncs + 1));
    let counts = |table: &Table| {
        ["a", "ab", "b", "c"].map(|partition| count(table, KeyRange::partition(partition)))
    };
    assert_eq!(counts(&table), [0, 300, 0, 300]);

    // A power cut loses nothing: a drop is as durable as `Sync`, whatever the database's default.
    let cut = fs.crash_image(7);
    let db = open(&cut, &clock);
    assert_eq!(counts(&db.table("Log").unwrap()), [0, 300, 0, 300]);

    let many: Vec<_> = (0..101).map(|i| KeyRange::partition(format!("{i}"))).collect();
    let refused = table.delete_ranges(&many).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    table.delete_ranges(&many[1..]).unwrap();
    table.delete_ranges(&[]).unwrap();
}

#[test]
fn trap_16_a_deleted_partition_is_immediately_gone_except_for_snapshots() {
    let (fs, clock) = (MemFs::new(), clock());
    let db = open(&fs, &clock);
    let table = db.create_table("Log").unwrap();
    for partition in ["a", "ab", "b"] {
        fill(&table, partition, 0..1_500);
    }
    let before = db.snapshot();
    let commits = stat(&db, "commits");
    table.delete_partition("ab").unwrap();
    assert_eq!(stat(&db, "commits"), commits + 1);

    let check = |table: &Table| {
        assert_eq!(table.get("ab", "r000007").unwrap(), None);
        assert_eq!(count(table, KeyRange::partition("ab")), 0);
        assert_eq!(count(table, KeyRange::all()), 3_000);
        let back = table.scan(KeyRange::all()).reverse().into_iter();
        assert_eq!(back.map(Result::unwrap).count(), 3_000);
    };
    check(&table);
    let gone = table.replace(Entity::new("ab", "r000007")).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    db.flush().unwrap();
    run_background(&db);
    check(&table);
    assert_eq!(table.at(&before).scan(KeyRange::all()).count().unwrap(), 4_500);
    assert!(table.at(&before).get("ab", "r000007").unwrap().is_some());

    // Rows written after the deletion remain.
    table.insert(Entity::new("ab", "r000007").with("New", true)).unwrap();
    drop(before);
    run_background(&db);
    db.compact().unwrap();
    run_background(&db);
    assert_eq!(count(&table, KeyRange::all()), 3_001);
    // The entries include the two rows of the catalog.
    assert_eq!((stat(&db, "fences"), stat(&db, "entries")), (0, 3_003));
    db.close().unwrap();
    let db = open(&fs, &clock);
    assert_eq!(count(&db.table("Log").unwrap(), KeyRange::all()), 3_001);
    assert!(db.verify().unwrap().is_sound());
}

#[test]
fn a_range_tombstone_survives_kills_and_power_cuts() {
    let (mut fs, clock) = (MemFs::new(), clock());
    for round in 0..6 {
        let db = open(&fs, &clock);
        let table = db.table_or_create("Log").unwrap();
        fill(&table, "a", 0..200);
        fill(&table, "b", 0..200);
        db.sync().unwrap();
        if round % 2 == 0 {
            db.flush().unwrap();
        }
        table.delete_range(&KeyRange::rows("a", "r000050"..)).unwrap();
        fs = match round % 3 {
            0 => fs.crash_image(round),
            1 => fs.kill_image(),
            _ => {
                db.close().unwrap();
                fs
            }
        };
        let db = open(&fs, &clock);
        let table = db.table("Log").unwrap();
        let counts =
            || (count(&table, KeyRange::partition("a")), count(&table, KeyRange::partition("b")));
        assert_eq!(counts(), (50, 200), "round {round}");
        db.flush().unwrap();
        run_background(&db);
        assert_eq!(counts(), (50, 200), "round {round}");
    }
}

#[test]
fn files_under_a_range_tombstone_are_removed_unread() {
    let (fs, clock) = (MemFs::new(), clock());
    let db = open(&fs, &clock);
    let table = db.create_table("Log").unwrap();
    for day in 0..20 {
        fill(&table, &format!("d{day:02}"), 0..1_000);
    }
    db.compact().unwrap();
    run_background(&db);
    let (files, bytes) = (stat(&db, "files"), stat(&db, "file_bytes"));
    assert!(files >= 20, "{files}");
    let read = stat(&db, "compaction_bytes_read");
    table.delete_range(&KeyRange::partitions(.."d15")).unwrap();
    db.flush().unwrap();
    run_background(&db);
    // Only the files at the ends of the span and the catalog's rows remain.
    assert!(stat(&db, "files") <= files / 4 + 2, "{} of {files} files", stat(&db, "files"));
    assert!(stat(&db, "file_bytes") < bytes * 3 / 10);
    assert!(stat(&db, "compaction_bytes_read") - read < bytes / 20);
    assert_eq!(count(&table, KeyRange::all()), 5_000);
}

/// The memtable has no rows, but more range tombstones than fit into one manifest edit. It must
/// still be flushed.
#[test]
fn range_tombstones_alone_fill_a_memtable_too() {
    let (fs, clock) = (MemFs::new(), clock());
    let db = open(&fs, &clock);
    let table = db.create_table("Log").unwrap();
    // A key has at most 512 UTF-16 code units; each of these takes three bytes in UTF-8.
    let long = "€".repeat(500);
    for i in 0..3_000u32 {
        table.delete_partition(&format!("{long}{i:06}")).unwrap();
    }
    run_background(&db);
    assert!(stat(&db, "flushes") > 0, "{:?}", db.stats().fields());
    fill(&table, "a", 0..10);
    db.flush().unwrap();
    run_background(&db);
    assert_eq!((stat(&db, "fences"), count(&table, KeyRange::all())), (0, 10));
    db.close().unwrap();
    assert_eq!(count(&open(&fs, &clock).table("Log").unwrap(), KeyRange::all()), 10);
}

#[test]
fn trap_56_rows_expire_by_their_timestamp_and_not_earlier() {
    let (fs, clock) = (MemFs::new(), clock());
    let db = open(&fs, &clock);
    let table = db.create_table("Readings").unwrap();
    db.set_ttl("readings", Some(7 * DAY)).unwrap();
    for day in 0..20 {
        // A row expires at the earliest when its age reaches the time to live, and at the latest
        // when its age is 65/64 of the time to live.
        let live = u64::from(day.min(7u32)) * 300;
        let found = count(&table, KeyRange::all());
        assert!(found == live || found == live + 300, "day {day}: {found}");
        fill(&table, &format!("d{day:02}"), 0..300);
        for _ in 0..8 {
            clock.advance(DAY / 8);
            run_background(&db);
        }
    }
    assert_eq!(table.get("d05", "r000001").unwrap(), None);
    db.flush().unwrap();
    run_background(&db);
    let entries = stat(&db, "entries");
    assert!(entries <= 9 * 300, "{entries}");
    db.close().unwrap();

    let db = open(&fs, &clock);
    assert_eq!(db.ttl("Readings").unwrap(), Some(7 * DAY));
    clock.advance(8 * DAY / 10);
    run_background(&db);
    let table = db.table("Readings").unwrap();
    assert!(count(&table, KeyRange::all()) <= 7 * 300);
    db.set_ttl("Readings", None).unwrap();
    clock.advance(DAY / 2);
    fill(&table, "late", 0..10);
    for _ in 0..40 {
        clock.advance(DAY);
        run_background(&db);
    }
    assert_eq!(count(&table, KeyRange::partition("late")), 10);
}

#[test]
fn trap_35_trap_56_no_row_expires_early_whatever_the_clock_does() {
    let (fs, clock) = (MemFs::new(), clock());
    let begun = |options: Options| {
        let db = options.open("db").unwrap();
        let table = db.table_or_create("Readings").unwrap();
        db.set_ttl("Readings", Some(3 * DAY)).unwrap();
        (db, table)
    };
    let (db, table) = begun(options(&fs, &clock));
    fill(&table, "a", 0..100);
    run_background(&db);
    // The clock jumps twenty years ahead and stays there after a reopen.
    clock.jump(START + 20 * 365 * DAY_TICKS);
    run_background(&db);
    assert_eq!(count(&table, KeyRange::all()), 100);
    assert!(stat(&db, "expiry_lag_seconds") > 19 * 365 * 86_400);
    fill(&table, "b", 0..100);
    db.close().unwrap();
    let (db, table) = begun(options(&fs, &clock));
    run_background(&db);
    assert_eq!(count(&table, KeyRange::all()), 200);
    // The clock is behind the last commit and advances: each row's Seq is the previous one plus 1.
    clock.jump(7);
    clock.advance(DAY);
    fill(&table, "c", 0..100);
    clock.advance(DAY);
    run_background(&db);
    assert_eq!(count(&table, KeyRange::all()), 300);
    db.close().unwrap();
    // With `trust_clock_jumps` the jump expires all rows.
    clock.jump(START + 40 * 365 * DAY_TICKS);
    let (db, table) = begun(options(&fs, &clock).trust_clock_jumps(true));
    run_background(&db);
    assert_eq!(count(&table, KeyRange::all()), 0);
}

/// A row's age is the time that the database has observed since the row was written, whatever its
/// Timestamp is. This holds with a clock that starts in 1970 and is set late, with a clock that was
/// decades ahead, and after weeks without power. The first boot is in 1970 and ends before any
/// background work; the second sets the clock.
#[test]
fn trap_56_no_row_expires_before_the_clock_is_set() {
    const YEAR_1970: u64 = 116_444_736_000_000_000;
    let (fs, clock) = (MemFs::new(), Arc::new(ManualClock::new(YEAR_1970)));
    let db = options(&fs, &clock).durability(Durability::Sync).open("db").unwrap();
    let table = db.create_table("Readings").unwrap();
    db.set_ttl("Readings", Some(DAY)).unwrap();
    fill(&table, "of 1970", 0..10);
    let mut fs = fs.crash_image(1);
    clock.jump(START);
    for boot in 1..4 {
        let db = options(&fs, &clock).durability(Durability::Sync).open("db").unwrap();
        let table = db.table("Readings").unwrap();
        fill(&table, "set right", boot * 10..(boot + 1) * 10);
        let next = fs.crash_image(u64::from(boot));
        // Rows written seconds ago are decades old by their Timestamps.
        run_background(&db);
        assert_eq!(count(&table, KeyRange::all()), u64::from(10 + boot * 10), "boot {boot}");
        fs = next;
    }
}

#[test]
fn trap_56_rows_stamped_by_a_wrong_clock_expire_on_time() {
    const YEAR_1970: u64 = 116_444_736_000_000_000;
    let (fs, clock) = (MemFs::new(), Arc::new(ManualClock::new(YEAR_1970)));
    let mut db = open(&fs, &clock);
    let table = db.create_table("Readings").unwrap();
    db.set_ttl("Readings", Some(3 * DAY)).unwrap();
    fill(&table, "of 1970", 0..100);
    run_background(&db);
    clock.jump(START);
    fill(&table, "set right", 0..100);
    clock.jump(START + 40 * 365 * DAY_TICKS);
    fill(&table, "ahead", 0..100);
    clock.jump(START);
    fill(&table, "right again", 0..100);
    run_background(&db);
    let mut right = START;
    let mut pass = |db: &Db, hours: u32| {
        for _ in 0..hours {
            clock.advance(DAY / 24);
            run_background(db);
        }
        right += u64::from(hours) * DAY_TICKS / 24;
        right
    };
    let all = |db: &Db| count(&db.table("Readings").unwrap(), KeyRange::all());
    for opening in 0..4 {
        let right = pass(&db, 17);
        assert_eq!(all(&db), 400, "{} hours", (opening + 1) * 17);
        if opening % 2 == 0 {
            db.close().unwrap()
        } else {
            drop(db)
        }
        clock.jump(YEAR_1970 + opening * DAY_TICKS / 24);
        db = open(&fs, &clock);
        run_background(&db);
        clock.jump(right);
    }
    // The age of the 400 rows is 68 hours, and the time to live is 72 hours.
    fill(&db.table("Readings").unwrap(), "young", 0..100);
    pass(&db, 3);
    assert_eq!(all(&db), 500);
    pass(&db, 8);
    assert_eq!(all(&db), 100, "79 hours");
    // The device is off for three weeks. The only evidence for this is a clock that may be wrong,
    // so no row expires yet.
    let right = pass(&db, 0) + 21 * DAY_TICKS;
    db.close().unwrap();
    clock.jump(right);
    let db = open(&fs, &clock);
    run_background(&db);
    assert_eq!(all(&db), 100);
    for _ in 0..59 {
        clock.advance(DAY / 24);
        run_background(&db);
    }
    assert_eq!(all(&db), 100, "70 hours after they were written");
    for _ in 0..9 {
        clock.advance(DAY / 24);
        run_background(&db);
    }
    assert_eq!(all(&db), 0, "79 hours");
}

/// Before a time to live is first set, commits may have Seqs that are far ahead, after a jump of
/// the clock. Such Seqs do not prove that older rows have reached their time to live.
#[test]
fn trap_56_a_clock_that_was_ahead_before_the_first_ttl_expires_no_row_early() {
    let (fs, clock) = (MemFs::new(), clock());
    let db = open(&fs, &clock);
    let table = db.create_table("Readings").unwrap();
    fill(&table, "right", 0..100);
    clock.jump(START + 40 * 365 * DAY_TICKS);
    fill(&table, "ahead", 0..100);
    db.close().unwrap();
    clock.jump(START + DAY_TICKS / 24);
    let db = open(&fs, &clock);
    db.set_ttl("Readings", Some(3 * DAY)).unwrap();
    let all = || count(&db.table("Readings").unwrap(), KeyRange::all());
    for hour in 0..71 {
        run_background(&db);
        assert_eq!(all(), 200, "{hour} hours");
        clock.advance(DAY / 24);
    }
    for _ in 0..8 {
        clock.advance(DAY / 24);
        run_background(&db);
    }
    assert_eq!(all(), 0);
}

/// The rows of a queue are deleted one by one. Compactions must remove the tombstones before they
/// accumulate.
#[test]
fn a_queue_deleted_row_by_row_keeps_its_size_and_cheap_head_reads() {
    let (fs, clock) = (MemFs::new(), clock());
    let db = open(&fs, &clock);
    let table = db.create_table("Queue").unwrap();
    let mut costs = Vec::new();
    let mut head = 0;
    for round in 0..60u32 {
        fill(&table, "q", round * 500..(round + 1) * 500);
        while head + 1_500 < (round + 1) * 500 {
            table.delete("q", &format!("r{head:06}")).unwrap();
            head += 1;
        }
        run_background(&db);
        let query = table.scan(KeyRange::partition("q")).top(1);
        let (page, explained) = query.page_explained(1).unwrap();
        assert_eq!(page.entities()[0].row_key(), format!("r{head:06}"));
        costs.push((explained.rows_looked_at(), stat(&db, "file_bytes")));
    }
    let most = |rounds: &[(u64, u64)]| {
        let of = |part: fn(&(u64, u64)) -> u64| rounds.iter().map(part).max().unwrap();
        (of(|cost| cost.0), of(|cost| cost.1))
    };
    let (early, late) = (most(&costs[10..30]), most(&costs[40..]));
    assert!(late.0 <= early.0 * 3 / 2 && late.1 <= early.1 * 3 / 2, "{early:?}, later {late:?}");
}

/// Rows are inserted at the end and deleted at the head. Reads of the head must stay cheap, and the
/// number of files small.
#[test]
fn a_queue_deleted_by_ranges_keeps_its_size() {
    let (fs, clock) = (MemFs::new(), clock());
    let db = open(&fs, &clock);
    let table = db.create_table("Queue").unwrap();
    let mut sizes = Vec::new();
    for round in 0..60u32 {
        fill(&table, "q", round * 500..(round + 1) * 500);
        let head = format!("r{:06}", round.saturating_sub(3) * 500);
        table.delete_range(&KeyRange::rows("q", ..head.as_str())).unwrap();
        run_background(&db);
        let first = table.scan(KeyRange::partition("q")).top(1).into_iter().next();
        assert_eq!(first.unwrap().unwrap().row_key(), head);
        sizes.push((stat(&db, "files"), stat(&db, "file_bytes"), stat(&db, "fences")));
    }
    let most = |rounds: &[(u64, u64, u64)]| {
        let of = |part: fn(&(u64, u64, u64)) -> u64| rounds.iter().map(part).max().unwrap();
        (of(|size| size.0), of(|size| size.1), of(|size| size.2))
    };
    let (early, late) = (most(&sizes[10..30]), most(&sizes[40..]));
    assert!(late.0 <= early.0 + 1 && late.1 <= early.1 * 5 / 4, "{early:?}, later {late:?}");
    assert!(late.2 <= 64, "{late:?}");
}

#[test]
fn bounds_longer_than_any_key_take_no_more_space_than_a_key() {
    let table = Db::open_in_memory().unwrap().create_table("parts").unwrap();
    let (first, last) = ("b".repeat(1_024), "c".repeat(1_024));
    for key in ["a", "c", &first, &last] {
        table.insert(Entity::new(key, "")).unwrap();
    }
    // Each bound has 20 MiB, but a log record holds at most 16 MiB.
    let [low, high] = ["b", "c"].map(|text| text.repeat(20 << 20));
    table.delete_range(&KeyRange::partitions(low.as_str()..high.as_str())).unwrap();
    let left = |key| table.get(key, "").unwrap().is_some();
    assert_eq!(["a", &first, "c", &last].map(left), [true, true, false, false]);
}

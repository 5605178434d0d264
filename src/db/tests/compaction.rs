//! Tests of compaction through the library's interface: jobs of bounded size, many small tables,
//! and the removal of tombstones.

use std::time::Duration;

use super::*;

pub(super) fn stat(db: &Db, name: &str) -> u64 {
    db.stats().get(name).unwrap()
}

pub(super) fn steps(db: &Db) {
    for _ in 0..10_000 {
        if !db.step(Duration::ZERO) {
            return;
        }
    }
    panic!("background work does not end");
}

/// Returns row numbers in an order that is neither ascending nor descending.
pub(super) fn scattered(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(move |i| i * 7_919 % count)
}

#[test]
fn long_jobs_are_done_in_parts_and_lose_nothing() {
    let fs = MemFs::new();
    let db = options(&fs).run_file_bytes(8 << 10).durability(Durability::Os).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    for i in scattered(20_000) {
        table.insert(row(i, 0)).unwrap();
        steps(&db);
    }
    for i in (0..20_000).step_by(3) {
        table.delete(&format!("p{}", i % 7), &format!("{i:06}")).unwrap();
    }
    db.flush().unwrap();
    steps(&db);
    assert!(stat(&db, "compaction_jobs_partial") > 0, "no job was partial");
    db.compact().unwrap();
    assert_eq!((stat(&db, "tombstones"), stat(&db, "sources_max")), (0, 1));
    assert_eq!(
        stat(&db, "entries"),
        20_000 - 6_667 + 2,
        "the entries include two rows of the catalog"
    );
    for i in 0..20_000u32 {
        let found = table.get(&format!("p{}", i % 7), &format!("{i:06}")).unwrap();
        assert_eq!(found.is_some(), i % 3 != 0, "{i}");
    }
    assert!(db.verify().unwrap().problems.is_empty());
}

#[test]
fn many_small_tables_share_files_also_when_they_are_merged() {
    let fs = MemFs::new();
    let db = options(&fs).memtable_bytes(1 << 20).durability(Durability::Os).open("db").unwrap();
    let tables: Vec<_> = (0..150).map(|i| db.create_table(&format!("t{i:03}")).unwrap()).collect();
    for round in 0..12 {
        for table in &tables {
            for i in 0..5 {
                table.upsert(row(i * 7 + round % 3, round)).unwrap();
            }
        }
        db.flush().unwrap();
        steps(&db);
    }
    let merges = stat(&db, "compactions");
    assert!(stat(&db, "compaction_jobs") > 20 * merges, "small tables are merged together");
    assert!(stat(&db, "files") < 30, "{} files for 150 tables", stat(&db, "files"));
    db.compact().unwrap();
    assert!(stat(&db, "files") <= 4, "{} files for 150 tables", stat(&db, "files"));
    let before = stat(&db, "compactions");
    db.compact().unwrap();
    assert_eq!(stat(&db, "compactions"), before, "merged files are not merged again");
    for table in &tables {
        for i in 0..15 {
            let (key, version) = (i / 3 * 7 + i % 3, 9 + i % 3);
            let found = table.get(&format!("p{}", key % 7), &format!("{key:06}")).unwrap();
            assert_eq!(found.unwrap().get::<i32>("V").unwrap(), version);
        }
    }
    assert!(db.verify().unwrap().problems.is_empty());
}

#[test]
fn trap_32_a_queue_takes_constant_space_and_reads_its_head_cheaply() {
    let fs = MemFs::new();
    let db = options(&fs).durability(Durability::Os).open("db").unwrap();
    let queue = db.create_table("queue").unwrap();
    let item = |i: u32| Entity::new("q", format!("{i:08}")).with("I", i as i32);
    let (mut most, mut spent) = (0, 0);
    for i in 0..30_000u32 {
        queue.insert(item(i)).unwrap();
        if i >= 2_000 {
            queue.delete("q", &format!("{:08}", i - 2_000)).unwrap();
        }
        steps(&db);
        if i > 10_000 && i.is_multiple_of(500) {
            most = most.max(stat(&db, "file_bytes"));
            spent = spent.max(stat(&db, "tombstones"));
        }
    }
    assert!(most < 1 << 20, "{most} bytes for 2,000 rows");
    assert!(spent < 4_000, "{spent} tombstones");
    assert!(stat(&db, "tombstones_dropped") > 20_000);
}

#[test]
fn an_old_deletion_eventually_takes_no_space() {
    let fs = MemFs::new();
    let clock = Arc::new(ManualClock::new(NOW));
    let db = options(&fs).clock(clock.clone()).durability(Durability::Os).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    for i in 0..3_000 {
        table.insert(row(i, 0)).unwrap();
    }
    db.compact().unwrap();
    table.delete("p3", "000003").unwrap();
    db.flush().unwrap();
    steps(&db);
    assert_eq!(stat(&db, "tombstones"), 1);
    clock.advance(Duration::from_secs(23 * 3600));
    steps(&db);
    assert_eq!(stat(&db, "tombstones"), 1, "the tombstone is less than a day old");
    clock.advance(Duration::from_secs(2 * 3600));
    steps(&db);
    assert_eq!(stat(&db, "tombstones"), 0);
    assert!(table.get("p3", "000003").unwrap().is_none());
}

#[cfg(feature = "zstd")]
#[test]
fn data_at_rest_is_compressed_once_and_rewritten_data_is_not() {
    let fs = MemFs::new();
    let clock = Arc::new(ManualClock::new(NOW));
    let options = options(&fs).clock(clock.clone()).durability(Durability::Os);
    let db = options.block_bytes(4 << 10).compress_at_rest(true).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    for i in 0..5_000 {
        table.insert(row(i, 0)).unwrap();
    }
    db.compact().unwrap();
    steps(&db);
    let before = stat(&db, "file_bytes");
    assert_eq!(stat(&db, "compaction_rest_bytes"), 0);
    clock.advance(Duration::from_secs(7 * 3600));
    steps(&db);
    let (written, after) = (stat(&db, "compaction_rest_bytes"), stat(&db, "file_bytes"));
    assert!(written > 0 && after < before * 3 / 4, "{after} of {before} bytes");
    clock.advance(Duration::from_secs(7 * 3600));
    steps(&db);
    assert_eq!(stat(&db, "compaction_rest_bytes"), written, "once");
    for i in 0..5_000u32 {
        assert!(table.get(&format!("p{}", i % 7), &format!("{i:06}")).unwrap().is_some());
    }
    assert!(db.verify().unwrap().problems.is_empty());
}

#[test]
fn trap_15_a_snapshot_keeps_older_versions_under_a_range_tombstone() {
    let db = options(&MemFs::new()).durability(Durability::Os).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    for i in 0..10 {
        table.upsert(row(i * 7, 0)).unwrap();
    }
    let snapshot = db.snapshot();
    for i in 0..10 {
        table.upsert(row(i * 7, 1)).unwrap();
    }
    table.delete_partition("p0").unwrap();
    let check = || {
        let old = table.at(&snapshot);
        for i in 0..10 {
            let found = old.get("p0", &format!("{:06}", i * 7)).unwrap().unwrap();
            assert_eq!(found.get::<i32>("V").unwrap(), 0);
            assert!(table.get("p0", &format!("{:06}", i * 7)).unwrap().is_none());
        }
    };
    check();
    db.flush().unwrap();
    check();
    db.compact().unwrap();
    check();
}

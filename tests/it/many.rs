//! Tests that the numbers of files, of files per read and of manifest edits stay small, with ten
//! thousand tables, and with ten thousand partitions that are written concurrently.

use std::sync::Arc;

use rowstone::fs::MemFs;
use rowstone::sim::engine::START;
use rowstone::sim::ranges::{ranges, split_at};
use rowstone::{Db, Durability, Entity, KeyRange, clock::ManualClock, options::Background};

const MANY: u64 = 10_000;

fn open(fs: &MemFs) -> Db {
    let options = Db::options().fs(Arc::new(fs.clone())).clock(Arc::new(ManualClock::new(START)));
    let options = options.background(Background::Manual).durability(Durability::Buffered);
    options.seed(1).open("db").unwrap()
}

fn stat(db: &Db, name: &str) -> u64 {
    db.stats().get(name).unwrap()
}

fn sst_files(fs: &MemFs) -> usize {
    fs.paths().iter().filter(|path| path.ends_with(".sst")).count()
}

#[test]
fn ten_thousand_tables_share_files_and_are_dropped_completely() {
    let fs = MemFs::new();
    let db = open(&fs);
    let name = |i: u64| format!("Table{i:05}");
    for i in 0..MANY {
        let table = db.create_table(&name(i)).unwrap();
        let filler = "x".repeat(500);
        table.insert(Entity::new("p", "r").with("N", i as i64).with("Filler", filler)).unwrap();
    }
    db.flush().unwrap();
    // Every table and the catalog has a range, but the number of files depends only on the bytes.
    let bytes = stat(&db, "file_bytes");
    assert_eq!(stat(&db, "ranges"), MANY + 1);
    assert!(stat(&db, "files") <= bytes / (1 << 20) + 2, "{:?}", db.stats().fields());
    assert_eq!((stat(&db, "sources_max"), stat(&db, "scan_sources_max")), (1, 1));
    for i in (0..MANY).step_by(97) {
        let table = db.table(&name(i)).unwrap();
        assert_eq!(table.get("p", "r").unwrap().unwrap().get::<i64>("N").unwrap(), i as i64);
        assert_eq!(table.scan(KeyRange::all()).into_iter().count(), 1);
    }
    db.close().unwrap();
    let db = open(&fs);
    assert_eq!(db.tables().unwrap().len() as u64, MANY);
    assert_eq!(stat(&db, "open_files"), 1, "only the catalog was read");
    // The tables share files after a compaction, too.
    for i in 0..MANY {
        let table = db.table(&name(i)).unwrap();
        table.insert(Entity::new("p", "s").with("Filler", "x".repeat(200))).unwrap();
    }
    db.flush().unwrap();
    while db.step(std::time::Duration::ZERO) {}
    assert!(stat(&db, "sources_max") <= 8);
    db.compact().unwrap();
    let bytes = stat(&db, "file_bytes");
    assert!(stat(&db, "files") <= bytes / (1 << 20) + 4, "{:?}", db.stats().fields());
    assert_eq!(db.table(&name(MANY / 2)).unwrap().scan(KeyRange::all()).count().unwrap(), 2);
    for i in 0..MANY {
        db.delete_table(&name(i)).unwrap();
    }
    db.flush().unwrap();
    db.compact().unwrap();
    while db.step(std::time::Duration::ZERO) {}
    assert!(db.tables().unwrap().is_empty());
    assert_eq!(stat(&db, "ranges"), 1, "only the catalog has a range");
    assert!(sst_files(&fs) <= 1, "{:?}", fs.paths());
    assert!(db.verify().unwrap().is_sound());
}

#[test]
fn ten_thousand_active_partitions_make_few_files_per_flush() {
    let fs = MemFs::new();
    let db = open(&fs);
    let table = db.create_table("Active").unwrap();
    let pk = |i: u64| format!("p{i:05}");
    let write = |round: u64| {
        for i in 0..MANY {
            let filler = "x".repeat(300);
            let entity = Entity::new(pk(i), format!("r{round}")).with("Filler", filler);
            table.insert(entity).unwrap();
        }
        let before = stat(&db, "files");
        db.flush().unwrap();
        stat(&db, "files") - before
    };
    write(0);
    // A thousand ranges with ten partitions each.
    for i in (10..MANY).step_by(10) {
        assert!(split_at(&db, "Active", &pk(i), None).unwrap());
    }
    assert_eq!(ranges(&db, "Active").unwrap().len(), 1_000);
    for round in 1..=3 {
        let (before, files) = (stat(&db, "flush_bytes"), write(round));
        let bytes = stat(&db, "flush_bytes") - before;
        assert!(files <= bytes / (1 << 20) + 2, "{files} files of {bytes} bytes");
        // Many ranges share a file, and a scan reads one file of each flush at a time.
        assert!(stat(&db, "scan_sources_max") <= round + 1);
        let count = table.scan(KeyRange::all()).into_iter().count() as u64;
        assert_eq!(count, MANY * (round + 1));
        assert_eq!(table.scan(KeyRange::all()).reverse().top(10).into_iter().count(), 10);
    }
    assert!(db.verify().unwrap().is_sound());
}

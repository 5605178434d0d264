//! Opens a killed database whose log is longer than all memtables of the new process together.

use std::collections::BTreeMap;

use super::*;
use crate::error::Error;

/// So few that a close flushes nothing.
const ROWS: u32 = 250;
const MEMTABLE_BYTES: usize = 16 << 10;

/// Version and ETag, by table and row key.
type Content = BTreeMap<(String, String), (i32, String)>;

fn options(fs: &MemFs) -> Options {
    super::options(fs).memtable_bytes(MEMTABLE_BYTES)
}

fn open(fs: &MemFs) -> Db {
    options(fs).open("db").unwrap()
}

fn long_row(i: u32, version: u32) -> Entity {
    row(i, version).with("Filler", "x".repeat(300))
}

/// How a process ends.
#[derive(Clone, Copy)]
enum End {
    Kill,
    Close,
}

/// Returns the files of a process that ended with one log and nothing in table files, and the
/// content. The commits are durable.
fn after(end: End) -> (MemFs, Content) {
    let fs = MemFs::new();
    let db = super::options(&fs).memtable_bytes(16 << 20).open("db").unwrap();
    let table = db.create_table("things").unwrap().with_durability(Durability::Os);
    let gone = db.create_table("gone").unwrap().with_durability(Durability::Os);
    for i in 0..ROWS {
        table.insert(long_row(i, 0)).unwrap();
        if i < 25 {
            gone.insert(long_row(i, 0)).unwrap();
        }
        if i % 3 == 0 {
            table.upsert(long_row(i / 2, i)).unwrap();
        }
        if i % 5 == 0 {
            drop(table.delete(&format!("p{}", i / 3 % 7), &format!("{:06}", i / 3)));
        }
    }
    db.delete_table("gone").unwrap();
    db.create_table("gone").unwrap().insert(long_row(1, 1)).unwrap();
    db.sync().unwrap();
    assert_eq!(fs.paths().iter().filter(|path| path.contains(".sst")).count(), 0);
    let content = content(&db);
    if let End::Close = end {
        db.close().unwrap();
    }
    (fs.kill_image(), content)
}

fn content(db: &Db) -> Content {
    let mut content = Content::new();
    for name in db.tables().unwrap() {
        for entity in db.table(&name).unwrap().scan(KeyRange::all()) {
            let entity = entity.unwrap();
            let value = (entity.get("V").unwrap(), entity.etag().unwrap().to_string());
            content.insert((name.clone(), entity.row_key().to_owned()), value);
        }
    }
    content
}

fn stat(db: &Db, name: &str) -> u64 {
    db.stats().get(name).unwrap()
}

#[test]
fn a_long_log_is_replayed_within_the_memory_of_the_memtables() {
    for end in [End::Kill, End::Close] {
        is_bounded(after(end));
    }
}

/// The log of the new process is linked to no memtable that a flush during the replay removes, so
/// later commits are kept.
#[track_caller]
fn is_bounded((fs, expected): (MemFs, Content)) {
    let db = open(&fs);
    assert!(stat(&db, "flushes") >= 2 && stat(&db, "files") > 0);
    assert!(stat(&db, "memtables") <= 3, "{}", stat(&db, "memtables"));
    let bytes = stat(&db, "memtable_bytes");
    assert!(bytes <= 5 * MEMTABLE_BYTES as u64, "{bytes}");
    assert!(content(&db) == expected);
    let table = db.table("things").unwrap();
    table.upsert(long_row(1, 99)).unwrap();
    db.compact().unwrap();
    assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
    drop((db, table));
    let again = open(&fs);
    let mut expected = expected;
    let changed = ("things".to_owned(), "000001".to_owned());
    let etag = again.table("things").unwrap().get("p1", "000001").unwrap().unwrap();
    expected.insert(changed, (99, etag.etag().unwrap().to_string()));
    assert!(content(&again) == expected);
}

#[test]
fn a_power_cut_at_any_operation_of_a_long_replay_loses_nothing() {
    for end in [End::Kill, End::Close] {
        loses_nothing(after(end));
    }
}

#[track_caller]
fn loses_nothing((fs, expected): (MemFs, Content)) {
    fs.record();
    let db = open(&fs);
    let recorded = fs.recorded();
    assert!(stat(&db, "flushes") >= 2);
    for op in recorded {
        for image in [fs.crash_image_at(op, op), fs.kill_image_at(op)].into_iter().flatten() {
            let again = open(&image);
            assert!(content(&again) == expected, "operation {op}");
            again.close().unwrap();
            let image = image.kill_image();
            assert!(content(&open(&image)) == expected, "operation {op}, closed");
        }
    }
}

#[test]
fn a_long_log_with_damage_is_refused_before_a_file_is_named() {
    let (fs, _) = after(End::Kill);
    let path = fs.paths().into_iter().find(|path| path.ends_with(".wal")).unwrap();
    let used = fs.read(&path).unwrap().iter().rposition(|byte| *byte != 0).unwrap() as u64;
    let files = |fs: &MemFs| -> BTreeMap<String, Vec<u8>> {
        fs.paths().into_iter().map(|path| (path.clone(), fs.read(path).unwrap())).collect()
    };
    for at in [used / 2, used * 9 / 10] {
        let image = fs.kill_image();
        image.flip(&path, at, 0x10).unwrap();
        let before = files(&image);
        let opened = [options(&image).open("db"), options(&image).open_read_only("db")];
        for error in opened.map(|opened| -> Error { opened.map(drop).unwrap_err() }) {
            assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        }
        assert!(files(&image) == before);
    }
}

#[test]
fn a_read_only_opening_of_a_long_log_writes_nothing() {
    let (fs, expected) = after(End::Kill);
    fs.set_read_only(true);
    let db = options(&fs).open_read_only("db").unwrap();
    assert!(content(&db) == expected);
}

#[test]
fn on_a_full_disk_a_long_log_stays_in_memory() {
    let (fs, expected) = after(End::Kill);
    fs.set_quota(Some(fs.used() + (24 << 10)));
    let db = open(&fs);
    assert!(stat(&db, "memtables") > 3);
    assert!(content(&db) == expected);
    fs.set_quota(None);
    db.flush().unwrap();
    assert!(content(&db) == expected);
    assert!(stat(&db, "memtables") == 1);
}

//! After a kill, an opening defers making the recovered commits durable and beginning a new log.

use std::time::Duration;

use super::*;
use crate::error::Result;
use crate::table::GateMode;

const ROWS: u32 = 20;

/// Returns the files of a process that was killed after it wrote `ROWS` rows, which were not
/// synced.
fn killed() -> MemFs {
    let fs = MemFs::new();
    let db = weak(&fs);
    let table = db.create_table("things").unwrap();
    db.create_table("other").unwrap();
    db.sync().unwrap();
    (0..ROWS).for_each(|i| drop(table.insert(row(i, 0)).unwrap()));
    fs.kill_image()
}

fn weak(fs: &MemFs) -> Db {
    options(fs).durability(Durability::Os).open("db").unwrap()
}

fn rows(db: &Db) -> u32 {
    db.table("things").unwrap().scan(KeyRange::all()).count().unwrap() as u32
}

/// Returns the number of rows that survive the worst of some power cuts.
fn survivors(fs: &MemFs) -> u32 {
    (0..24).map(|seed| rows(&weak(&fs.crash_image(seed)))).min().unwrap()
}

fn add(db: &Db) -> Result<()> {
    db.table("things")?.insert(row(1000, 0)).map(drop)
}

#[test]
fn a_session_that_only_reads_after_a_kill_syncs_nothing() {
    let fs = killed();
    fs.record();
    let db = weak(&fs);
    assert_eq!(rows(&db), ROWS);
    let log = fs.log();
    assert!(!log.iter().any(|op| op.contains("sync") || op.contains("write")), "{log:?}");
    assert!(survivors(&fs) < ROWS);
    // It may be killed again.
    let fs = fs.kill_image();
    let db = weak(&fs);
    assert_eq!(rows(&db), ROWS);
    add(&db).unwrap();
    assert!(survivors(&fs) >= ROWS);
}

#[test]
fn recovered_commits_are_durable_before_anything_depends_on_them() {
    type Act = fn(&Db) -> Result<()>;
    let acts: [(&str, Act); 13] = [
        ("commit", add),
        ("drop", |db| db.delete_table("other")),
        ("sync", Db::sync),
        ("flush", Db::flush),
        ("compact", Db::compact),
        ("checkpoint", |db| db.checkpoint("copy")),
        ("backup", |db| db.backup("backup").map(drop)),
        ("oldest position", |db| db.oldest_position().map(drop)),
        ("changes", |db| db.changes(db.position()).map(drop)),
        ("gate", |db| db.gate("things", KeyRange::all(), GateMode::ReadOnly)),
        ("cursor", |db| db.cursor("c")?.commit(db.position())),
        ("step", |db| {
            while db.step(Duration::ZERO) {}
            db.flush()
        }),
        ("close", |db| db.clone().close()),
    ];
    for (name, act) in acts {
        let fs = killed();
        let db = weak(&fs);
        act(&db).unwrap();
        let left = survivors(&fs);
        assert!(left >= ROWS, "{name}: {left} of {ROWS}");
    }
}

/// Weak commits are synced after a second, whether or not the process was killed meanwhile.
#[test]
fn the_background_makes_recovered_commits_durable_within_a_second() {
    let fs = killed();
    let clock = Arc::new(ManualClock::new(NOW + 10_000_000));
    let options = options(&fs).durability(Durability::Os).clock(clock.clone());
    let db = options.open("db").unwrap();
    while db.step(Duration::ZERO) {}
    assert!(survivors(&fs) < ROWS);
    clock.advance(Duration::from_secs(1));
    while db.step(Duration::ZERO) {}
    assert_eq!(survivors(&fs), ROWS);
    assert_eq!(rows(&db), ROWS);
}

#[test]
fn recovered_commits_are_durable_before_an_orphan_is_removed() {
    let fs = killed();
    fs.write("db/000900.sst", b"left over").unwrap();
    let db = weak(&fs);
    assert_eq!((rows(&db), survivors(&fs)), (ROWS, ROWS));
    assert!(!fs.paths().iter().any(|path| path.contains("000900.sst")));
}

/// Readers see a `Sync` commit only when it is durable, also if the process was killed during its
/// sync.
#[test]
fn a_recovered_sync_commit_is_durable_before_it_is_read() {
    let fs = MemFs::new();
    let db = open(&fs);
    let table = db.create_table("things").unwrap();
    (0..ROWS).for_each(|i| drop(table.insert(row(i, 0)).unwrap()));
    fs.record();
    table.insert(row(ROWS, 0)).unwrap();
    for op in fs.recorded() {
        let image = fs.kill_image_at(op).unwrap();
        let found = rows(&open(&image));
        let db = open(&image);
        assert!(found >= ROWS && rows(&db) == found);
        assert!(survivors(&image) >= found, "{op}: {:?}", fs.log());
    }
}

#[test]
fn a_full_disk_prevents_the_new_log_but_not_the_sync() {
    let fs = killed();
    fs.set_quota(Some(fs.used()));
    let db = weak(&fs);
    assert_eq!(rows(&db), ROWS);
    assert_eq!(add(&db).unwrap_err().kind(), ErrorKind::StorageFull);
    db.sync().unwrap();
    assert_eq!(survivors(&fs), ROWS);
    fs.set_quota(None);
    add(&db).unwrap();
    assert_eq!(rows(&db), ROWS + 1);
}

/// After a failed sync of an earlier process, the system may drop bytes that were read at the
/// opening.
#[test]
fn bytes_that_change_after_the_opening_are_not_made_durable() {
    let fs = killed();
    let db = weak(&fs);
    let path = fs.paths().into_iter().rfind(|path| path.ends_with(".wal")).unwrap();
    let bytes = fs.read(&path).unwrap();
    let last = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64;
    fs.flip(&path, last, 1).unwrap();
    let error = add(&db).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert_eq!(&*error.corruption().unwrap().file, std::path::Path::new(&path));
    assert_eq!(add(&db).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(rows(&db), ROWS);
}

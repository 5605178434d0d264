//! Tests databases after their directory is moved or replaced or their lock file is removed while
//! they are open, and directories with entries that are not regular files.

#![expect(clippy::disallowed_methods, reason = "users move files without the library")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rowstone::{
    Db, Entity, ErrorKind, KeyRange, Result,
    clock::{Clock, ManualClock, SystemClock},
    options::Background,
};
use rustix::fs::{CWD, Mode, mkfifoat};

/// Opens the database at `path`, writes one row, and returns the database and its clock.
fn open(path: &Path) -> (Db, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(SystemClock::new().now()));
    let db = Db::options().clock(clock.clone()).background(Background::Manual).open(path).unwrap();
    put(&db, "first").unwrap();
    (db, clock)
}

fn put(db: &Db, key: &str) -> Result<()> {
    db.table_or_create("Parts")?.upsert(Entity::new("p", key)).map(drop)
}

fn keys(path: &Path) -> Vec<String> {
    let db = Db::open(path).unwrap();
    let table = db.table("Parts").unwrap();
    let found = table.scan(KeyRange::all()).into_iter();
    let keys = found.map(|row| row.unwrap().row_key().to_owned()).collect();
    assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
    db.close().unwrap();
    keys
}

/// Checks that one second later `db` acknowledges no commit, and that its error states why.
fn expect_end(db: Db, clock: &ManualClock) {
    clock.advance(Duration::from_secs(1));
    let error = put(&db, "late").unwrap_err();
    let text = format!("{error:?}");
    assert!(text.contains("LOCK is not the file that was locked"), "{text}");
    assert_eq!(put(&db, "later").unwrap_err().kind(), ErrorKind::Poisoned);
    // Existing rows can still be read.
    assert!(db.table("Parts").unwrap().get("p", "first").unwrap().is_some());
    assert!(db.close().is_err());
}

#[test]
fn trap_57_a_moved_database_is_not_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("db"), dir.path().join("moved"));
    let (db, clock) = open(&path);
    std::fs::rename(&path, &moved).unwrap();
    expect_end(db, &clock);
    assert!(!path.exists());
    assert_eq!(keys(&moved)[0], "first");
}

#[test]
fn trap_57_a_database_that_replaced_another_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("db"), dir.path().join("moved"));
    let (db, clock) = open(&path);
    std::fs::rename(&path, &moved).unwrap();
    let (second, _) = open(&path);
    put(&second, "second").unwrap();
    // A flush in the same second writes a file to the moved directory, but the file is not
    // installed.
    assert!(db.flush().is_err());
    expect_end(db, &clock);
    put(&second, "third").unwrap();
    second.flush().unwrap();
    second.close().unwrap();
    assert_eq!(keys(&path), ["first", "second", "third"]);
    assert_eq!(keys(&moved)[0], "first");
}

#[test]
fn trap_58_a_process_without_its_lock_file_ends_writing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let (db, clock) = open(&path);
    std::fs::remove_file(path.join("LOCK")).unwrap();
    let (second, _) = open(&path);
    put(&second, "second").unwrap();
    expect_end(db, &clock);
    second.close().unwrap();
    assert_eq!(keys(&path), ["first", "second"]);
}

#[test]
fn a_lock_file_that_is_removed_for_a_moment_does_no_harm_between_two_checks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let (db, clock) = open(&path);
    let (lock, aside) = (path.join("LOCK"), dir.path().join("LOCK"));
    std::fs::rename(&lock, &aside).unwrap();
    put(&db, "second").unwrap();
    std::fs::rename(&aside, &lock).unwrap();
    clock.advance(Duration::from_secs(1));
    put(&db, "third").unwrap();
    db.close().unwrap();
    assert_eq!(keys(&path), ["first", "second", "third"]);
}

/// Returns the text of the error that opening `path` returns.
fn refusal(path: &Path) -> String {
    format!("{:?}", Db::open(path).unwrap_err())
}

#[test]
fn a_fifo_in_place_of_a_file_is_named_and_opening_does_not_wait_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    drop(open(&path));
    let log = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
    let log = log.filter(|path| path.extension().is_some_and(|end| end == "wal")).max().unwrap();
    for file in [log, path.join("CURRENT"), path.join("LOCK")] {
        let aside = dir.path().join("aside");
        std::fs::rename(&file, &aside).unwrap();
        mkfifoat(CWD, &file, Mode::RWXU).unwrap();
        let text = refusal(&path);
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(text.contains(name) && text.contains("FIFO"), "{text}");
        // A symbolic link to a file is accepted.
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(&aside, &file).unwrap();
        assert_eq!(keys(&path), ["first"]);
        let _ = std::fs::remove_file(&file);
        std::fs::rename(&aside, &file).unwrap();
    }
}

#[test]
fn a_directory_named_like_a_table_file_stays_with_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    drop(open(&path));
    std::fs::create_dir(path.join("000900.sst")).unwrap();
    for options in [Db::options(), Db::options().max_disk(1 << 30)] {
        let db = options.open(&path).unwrap();
        let warnings = db.opened().warnings;
        assert!(warnings[0].contains("000900.sst is a directory"), "{warnings:?}");
        assert_eq!(warnings.len(), 1);
        put(&db, "first").unwrap();
        db.close().unwrap();
    }
    assert!(path.join("000900.sst").is_dir());
}

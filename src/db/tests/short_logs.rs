//! Tests that opening detects logs and manifests that were truncated within their durable part.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::db::SuspectRows;
use crate::error::Error;

const ROWS: u32 = 108;

/// Returns the files of a process that was killed after it wrote `ROWS` rows.
fn killed(durability: Durability) -> MemFs {
    let fs = MemFs::new();
    let db = options(&fs).durability(durability).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    for i in 0..ROWS {
        table.insert(row(i, 0)).unwrap();
    }
    fs.kill_image()
}

/// Returns the last file of this kind in order of names, its length, and the offset after its last
/// byte that is not zero.
fn last(fs: &MemFs, kind: &str) -> (String, u64, u64) {
    let path = fs.paths().into_iter().rfind(|path| path.contains(kind)).unwrap();
    let bytes = fs.read(&path).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at as u64 + 1);
    (path, bytes.len() as u64, used)
}

fn files(fs: &MemFs) -> BTreeMap<String, Vec<u8>> {
    fs.paths().into_iter().map(|path| (path.clone(), fs.read(path).unwrap())).collect()
}

/// Checks that opening the database, also read-only, is refused and changes nothing, and that the
/// error names `path` and both lengths.
#[track_caller]
fn check_refused(fs: &MemFs, path: &str, found: u64, len: u64) {
    let before = files(fs);
    let opened = options(fs).open("db").map(drop);
    let errors: [Error; 2] =
        [opened.unwrap_err(), options(fs).open_read_only("db").map(drop).unwrap_err()];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        let place = error.corruption().unwrap();
        assert_eq!((&*place.file, place.offset <= found), (Path::new(path), true), "{error}");
        let lens = format!("the file at byte {found}; it was {len} bytes long");
        for text in [&*lens, "`rowstone repair`", "`accept_short_logs`"] {
            assert!(error.to_string().contains(text), "{error}");
        }
    }
    assert!(files(fs) == before);
}

/// Checks that the rows that exist are the first ones written, and returns their number.
fn rows(db: &Db) -> u32 {
    let table = db.table("things").unwrap();
    let is_there = |i| table.get(&format!("p{}", i % 7), &format!("{i:06}")).unwrap().is_some();
    let count = (0..ROWS).take_while(|i| is_there(*i)).count() as u32;
    assert!((count..ROWS).all(|i| !is_there(i)));
    count
}

#[test]
fn trap_59_a_last_log_that_was_cut_is_refused_or_accepted_on_request() {
    let whole = killed(Durability::Sync);
    let (path, len, used) = last(&whole, ".wal");
    for cut in [used / 5, used / 2, used, len - 1] {
        let fs = whole.kill_image();
        fs.truncate(&path, cut).unwrap();
        check_refused(&fs, &path, cut, len);
        let image = fs.kill_image();
        let repaired = options(&image).repair("db", "new", SuspectRows::LeaveOut, |_, _| ());
        let report = repaired.unwrap();
        assert!(report.losses[0].problem.contains(&format!("{len} bytes long")), "{report:?}");
        let accepting = || options(&image).accept_short_logs(true);
        let durable = rows(&accepting().open_read_only("db").unwrap());
        let db = accepting().open("db").unwrap();
        let count = rows(&db);
        assert!(count > 0 && (count < ROWS) == (cut < used), "{count} rows in {cut} bytes");
        assert!(u64::from(count) == report.rows() && (count - 1..=count).contains(&durable));
        let torn = db.opened().torn.unwrap();
        assert!(torn.contains(&format!("byte {cut}; it was {len} bytes long")), "{torn}");
        assert_eq!(db.verify().unwrap().torn, Some(torn));
        db.table("things").unwrap().insert(row(1000, 0)).unwrap();
        // After one synced commit the option `accept_short_logs` is no longer needed.
        for image in [image.crash_image(1), image.kill_image()] {
            assert_eq!(rows(&options(&image).open("db").unwrap()), count);
        }
        db.close().unwrap();
        let db = options(&image).open("db").unwrap();
        assert_eq!((rows(&db), db.opened().torn), (count, None));
    }
}

#[test]
fn a_manifest_that_was_cut_is_refused_or_accepted_on_request() {
    let fs = killed(Durability::Sync);
    let (path, len, used) = last(&fs, "MANIFEST");
    fs.truncate(&path, used.next_multiple_of(8)).unwrap();
    check_refused(&fs, &path, used.next_multiple_of(8), len);
    let db = options(&fs).accept_short_logs(true).open("db").unwrap();
    assert!(db.opened().torn.unwrap().contains(&path));
    assert_eq!(rows(&db), ROWS);
    // The edit that names the next log was written to a new manifest.
    assert_ne!(last(&fs, "MANIFEST").0, path);
    assert_eq!(rows(&options(&fs.kill_image()).open("db").unwrap()), ROWS);
}

#[test]
fn a_prepared_log_and_one_without_its_first_record_must_have_their_length() {
    let fs = MemFs::new();
    let db = open(&fs);
    let table = db.create_table("things").unwrap();
    while db.step(Duration::ZERO) {}
    let (prepared, len, used) = last(&fs, ".wal");
    assert!(used <= 64);
    let image = fs.kill_image();
    image.truncate(&prepared, 64).unwrap();
    check_refused(&image, &prepared, 64, len);
    // Fills the memtable, so that commits continue in the prepared log.
    let insert = |i| table.insert(row(i, 0).with("Text", "x".repeat(800))).unwrap();
    let is_used = |i: &u32| {
        insert(*i);
        last(&fs, ".wal").2 > 64
    };
    assert!((0..ROWS).find(is_used).is_some_and(|rows| rows > 9));
    let image = fs.kill_image();
    image.truncate(&prepared, 64).unwrap();
    check_refused(&image, &prepared, 64, len);
}

#[test]
fn a_log_with_a_successor_must_reach_its_accepted_end() {
    let fs = killed(Durability::Sync);
    let (path, _, used) = last(&fs, ".wal");
    let db = open(&fs);
    db.table("things").unwrap().insert(row(1000, 0)).unwrap();
    let image = fs.kill_image();
    image.truncate(&path, used.next_multiple_of(8)).unwrap();
    assert_eq!(rows(&options(&image).open("db").unwrap()), ROWS);
    image.truncate(&path, used / 2).unwrap();
    let error = options(&image).open("db").unwrap_err();
    assert_eq!(error.corruption().unwrap().file, Path::new(&path), "{error}");
}

/// Space in a log is reserved by commits or, if `steps` is set, by background work in advance. In
/// both cases the log must record its new length once that is durable.
#[test]
fn every_growth_of_a_log_is_stated_once_it_is_durable() {
    for steps in [false, true] {
        let fs = MemFs::new();
        let options = || Options { log_allocate_bytes: 4 << 10, ..options(&fs) };
        let db = options().memtable_bytes(1 << 20).open("db").unwrap();
        let table = db.create_table("things").unwrap();
        let mut lens = Vec::new();
        for i in 0..60 {
            while steps && db.step(Duration::ZERO) {}
            table.insert(row(i, 0).with("Text", "x".repeat(900))).unwrap();
            let image = fs.kill_image();
            let path = image.paths().into_iter().find(|path| path.ends_with(".wal")).unwrap();
            let len = image.len(&path).unwrap();
            lens.push(len);
            image.truncate(&path, len - 1).unwrap();
            // If space was reserved after the sync of this commit, only the next commit records the
            // new length.
            if lens.iter().filter(|other| **other == len).count() > 1 {
                check_refused(&image, &path, len - 1, len);
            }
        }
        lens.dedup();
        assert!(lens.len() > 3, "{lens:?}");
    }
}

#[test]
fn a_log_of_a_nearly_full_disk_has_the_length_that_it_got() {
    let fs = killed(Durability::Sync);
    let (first, ..) = last(&fs, ".wal");
    fs.set_quota(Some(fs.used() + (40 << 10)));
    let db = open(&fs);
    db.sync().unwrap();
    fs.set_quota(None);
    db.table("things").unwrap().insert(row(1000, 0)).unwrap();
    let image = fs.kill_image();
    let (path, len, used) = last(&image, ".wal");
    assert!(path != first && len == 16 << 10 && used > 64, "{path} {len}");
    assert_eq!(rows(&options(&image.kill_image()).open("db").unwrap()), ROWS);
    image.truncate(&path, len - 1).unwrap();
    check_refused(&image, &path, len - 1, len);
}

#[test]
fn a_torn_tail_is_reported_with_its_bytes() {
    let fs = killed(Durability::Os);
    let (path, _, used) = last(&fs, ".wal");
    fs.flip(&path, used / 3, 1).unwrap();
    let db = open(&fs);
    let torn = db.opened().torn.unwrap();
    let rest = torn.strip_prefix("torn tail of ").unwrap();
    let (bytes, rest) = rest.split_once(" bytes at byte ").unwrap();
    let (at, rest) = rest.split_once(" of ").unwrap();
    assert_eq!(bytes.parse::<u64>().unwrap() + at.parse::<u64>().unwrap(), used, "{torn}");
    assert!(rest.starts_with(path.strip_prefix("db/").unwrap()), "{torn}");
    assert!(rows(&db) < ROWS);
    assert_eq!(db.verify().unwrap().torn, Some(torn));
}

#[test]
fn a_close_removes_the_prepared_log_and_revokes_the_lengths() {
    let fs = MemFs::new();
    let db = open(&fs);
    db.create_table("things").unwrap().insert(row(0, 0)).unwrap();
    while db.step(Duration::ZERO) {}
    let logs = |fs: &MemFs| fs.paths().iter().filter(|path| path.ends_with(".wal")).count();
    assert_eq!(logs(&fs), 2);
    db.close().unwrap();
    assert_eq!(logs(&fs), 1);
    // After a power cut the name of the removed log may exist again.
    for seed in 0..20 {
        let db = options(&fs.crash_image(seed)).open("db").unwrap();
        assert_eq!((rows(&db), db.opened().torn), (1, None));
    }
    let (path, len, _) = last(&fs, ".wal");
    fs.truncate(&path, len - 8).unwrap();
    let error = options(&fs).open("db").unwrap_err();
    assert!(error.to_string().contains("the database was closed at"), "{error}");
}

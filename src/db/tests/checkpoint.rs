//! Tests of checkpoints of a database in use: the copy is an independent database, and a failure or
//! a power cut leaves either no copy or a complete one.

use super::*;
use crate::error::Result;
use crate::fs::{Fault, FaultFs, FaultKind, OpKind};

/// Returns a database with two tables, rows in files and in memory, and a deleted span.
fn filled(options: Options) -> Db {
    let db = options.open("db").unwrap();
    let (things, others) = (db.create_table("things").unwrap(), db.create_table("others").unwrap());
    for i in 0..300 {
        things.insert(row(i, 0)).unwrap();
        others.insert(row(i, 1)).unwrap();
    }
    db.flush().unwrap();
    things.delete_ranges(&[KeyRange::partition("p3")]).unwrap();
    for i in 300..340 {
        things.insert(row(i, 2)).unwrap();
    }
    db
}

fn content(db: &Db) -> Vec<String> {
    let mut content = Vec::new();
    for name in db.tables().unwrap() {
        let rows = db.table(&name).unwrap().scan(KeyRange::all()).into_iter();
        content.extend(rows.map(|row| format!("{name} {:?}", row.unwrap())));
    }
    content
}

fn incarnation(db: &Db) -> (u128, u64) {
    let pinned = db.engine.reader().pin();
    let identity = pinned.version.identity.as_ref().unwrap();
    (identity.database, identity.incarnation)
}

/// Checks that `copy` either does not open as a database or has the content `expected`. Returns
/// whether it opens.
#[track_caller]
fn check_copy(fs: &MemFs, expected: &[String], what: &str) -> bool {
    match options(fs).create_if_missing(false).seed(8).open("copy") {
        Ok(db) => {
            assert_eq!(content(&db), expected, "{what}");
            assert_eq!(db.verify().unwrap().problems, Vec::<String>::new(), "{what}");
            true
        }
        Err(error) => {
            let kinds = [ErrorKind::NotFound, ErrorKind::Corruption];
            assert!(kinds.contains(&error.kind()), "{what}: {}", error.chain());
            false
        }
    }
}

#[test]
fn each_copy_has_the_same_content_under_a_new_incarnation() {
    let fs = MemFs::new();
    let db = filled(options(&fs));
    db.checkpoint("copy").unwrap();
    db.checkpoint("other").unwrap();
    let copies = ["copy", "other"].map(|path| options(&fs).open(path).unwrap());
    let [(database, first), (_, second), (_, third)] =
        [&db, &copies[0], &copies[1]].map(incarnation);
    assert!(copies.iter().all(|copy| incarnation(copy).0 == database));
    assert!(first != second && second != third && first != third);
    assert_eq!(content(&copies[0]), content(&db));
    assert_eq!(db.checkpoint("copy").unwrap_err().kind(), ErrorKind::AlreadyExists);
}

#[test]
fn files_that_cannot_be_linked_are_copied_and_synced() {
    let memory = MemFs::new();
    let fs = FaultFs::new(Arc::new(memory.clone()));
    let db = filled(options(&memory).fs(Arc::new(fs.clone())));
    fs.arm(Fault::new(FaultKind::Eio).on(OpKind::Link).sticky());
    let mut bytes = 0;
    db.checkpoint_with("copy", |more| bytes += more).unwrap();
    assert_eq!(Some(bytes), db.stats().get("file_bytes"));
    for seed in 0..5 {
        assert!(check_copy(&memory.crash_image(seed), &content(&db), "copied"));
    }
    // Damage to the copy does not affect the database.
    let path = memory.paths().into_iter().find(|p| p.starts_with("copy/") && p.ends_with(".sst"));
    memory.flip(path.unwrap(), 100, 1).unwrap();
    assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_power_cut_at_any_operation_leaves_no_copy_or_a_whole_one() {
    let fs = MemFs::new();
    let db = filled(options(&fs));
    let expected = content(&db);
    fs.record();
    db.checkpoint("copy").unwrap();
    let (mut none, mut whole) = (0, 0);
    for op in fs.recorded() {
        for seed in 0..3 {
            let image = fs.crash_image_at(op, seed).unwrap();
            match check_copy(&image, &expected, &format!("operation {op}, seed {seed}")) {
                true => whole += 1,
                false => none += 1,
            }
            assert_eq!(content(&options(&image).open("db").unwrap()), expected);
        }
    }
    assert!(none > 10 && whole > 0, "{none} {whole}");
}

/// Makes a checkpoint once for each of its file operations, and makes that operation fail. With
/// `sticky` all later operations fail, too.
fn sweep(sticky: bool) {
    for n in 0.. {
        let memory = MemFs::new();
        let fs = FaultFs::new(Arc::new(memory.clone()));
        let db = filled(options(&memory).fs(Arc::new(fs.clone())));
        let expected = content(&db);
        let fault = Fault::new(FaultKind::Eio).nth(n);
        fs.arm(if sticky { fault.sticky() } else { fault });
        let made: Result<()> = db.checkpoint("copy");
        let delivered = fs.delivered() > 0;
        fs.disarm();
        let what = format!("operation {n}: {made:?}");
        let opens = check_copy(&memory, &expected, &what);
        assert!(opens || made.is_err(), "{what}");
        if !sticky && !opens && !memory.paths().iter().any(|path| path == "copy/CURRENT") {
            let left: Vec<_> = memory.paths();
            let left = left.iter().filter(|p| p.starts_with("copy/") && p.ends_with(".sst"));
            assert_eq!(left.count(), 0, "{what}");
        }
        assert_eq!(content(&db), expected, "{what}");
        drop(db);
        assert_eq!(content(&open(&memory)), expected, "{what}");
        if !delivered {
            made.unwrap();
            return;
        }
    }
}

#[test]
fn a_failed_operation_damages_neither_database() {
    sweep(false);
    sweep(true);
}

#[test]
fn an_import_is_copied_only_with_all_commits_before_it() {
    let fs = MemFs::new();
    let source = options(&fs).open("source").unwrap();
    source.create_table("things").unwrap().insert(Entity::new("m", "0")).unwrap();
    source.close().unwrap();
    let later = Arc::new(ManualClock::new(NOW + 1_000_000));
    let db = options(&fs).clock(later).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    let mut writes = ["a", "z"].into_iter();
    db.import_range_with("source", "things", |_| {
        for key in writes.by_ref() {
            table.insert(Entity::new(key, "")).unwrap();
        }
    })
    .unwrap();
    // The table files do not contain a prefix of the commits: imported rows are in files, while
    // rows that were committed earlier are only in memory.
    assert!(!db.engine.reader().pin().is_a_prefix());
    db.checkpoint("copy").unwrap();
    assert!(db.engine.reader().pin().is_a_prefix());
    assert!(check_copy(&fs, &content(&db), "imported"));
}

//! Tests manifests that may have lost their last edit. The engine suspects this loss if a file that
//! the remaining edits name is missing.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use super::*;
use crate::db::{SalvagedState, SuspectRows};
use crate::error::Error;
use crate::format::record::LogKind;
use crate::log::LogReader;

const ROWS: u32 = 100;

fn run(db: &Db) {
    while db.step(std::time::Duration::ZERO) {}
}

fn named(fs: &MemFs, part: &str) -> Vec<String> {
    fs.paths().into_iter().filter(|path| path.starts_with("db/") && path.contains(part)).collect()
}

/// Returns the path of the manifest, and the byte range of each of its records.
fn records(fs: &MemFs) -> (String, Vec<Range<usize>>) {
    let path = named(fs, "MANIFEST").pop().unwrap();
    let mut reader = LogReader::open(fs, path.as_ref(), LogKind::Manifest, None).unwrap();
    let mut records = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        records.push(record.bytes().start as usize..record.bytes().end as usize);
    }
    (path, records)
}

fn change(fs: &MemFs, path: &str, with: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs.read(path).unwrap();
    with(&mut bytes);
    fs.write(path, &bytes).unwrap();
}

/// Returns the files of a killed process. Rows of version 1 are in a file that a merge wrote. The
/// merge is the last edit, and its input files are removed, but the checkpoint `backup` has copies
/// of them.
fn merged() -> MemFs {
    let fs = MemFs::new();
    let db = open(&fs);
    let table = db.create_table("things").unwrap();
    db.compact().unwrap();
    (0..ROWS).for_each(|i| assert!(table.insert(row(i, 0)).is_ok()));
    db.flush().unwrap();
    (0..ROWS).for_each(|i| assert!(table.replace(row(i, 1)).is_ok()));
    db.flush().unwrap();
    db.checkpoint("backup").unwrap();
    let before = records(&fs).1.len();
    db.compact().unwrap();
    assert_eq!(records(&fs).1.len(), before + 1, "the merge is the last edit");
    fs.kill_image()
}

/// Salvages the database. Returns the best state that salvage reported for each version of a row,
/// by row key and version.
fn states(fs: &MemFs) -> BTreeMap<(String, i32), SalvagedState> {
    let mut states = BTreeMap::new();
    let take = |found: crate::db::Salvaged| {
        if let Some(entity) = found.entity {
            let key = (found.row_key, entity.get::<i32>("V").unwrap());
            let state = states.entry(key).or_insert(found.state);
            *state = found.state.min(*state);
        }
        Ok(())
    };
    options(fs).salvage("db", take, |_, _| ()).unwrap();
    states
}

/// Checks that all rows of version 1 are suspect: a repair returns them only if it keeps suspect
/// rows, and salvage reports this state.
#[track_caller]
fn check_suspect(fs: &MemFs) {
    let repair = |to, suspect| options(fs).repair("db", to, suspect, |_, _| ()).unwrap();
    let report = repair("proven", SuspectRows::LeaveOut);
    assert!(report.doubt.is_some() && report.rows() == 0, "{report:?}");
    let report = repair("kept", SuspectRows::Keep);
    assert_eq!((report.rows(), report.suspect()), (u64::from(ROWS), u64::from(ROWS)));
    let table = options(fs).open("kept").unwrap().table("things").unwrap();
    for i in 0..ROWS {
        let found = table.get(&format!("p{}", i % 7), &format!("{i:06}")).unwrap().unwrap();
        assert_eq!(found.get::<i32>("V").unwrap(), 1, "{i}");
    }
    for ((key, version), state) in states(fs) {
        assert_eq!(state == SalvagedState::Suspect, version == 1, "{key} {version}: {state:?}");
    }
}

/// Checks that opening fails and changes no file. The error must refer to byte `at` of the
/// manifest, and name a command for recovery.
#[track_caller]
fn check_refused(fs: &MemFs, manifest: &str, at: usize, missing: &str) {
    let contents = || fs.paths().into_iter().map(|path| (fs.read(&path).unwrap(), path));
    let before: Vec<_> = contents().collect();
    let refused: [fn(Options) -> Option<Error>; 2] =
        [|options| options.open("db").err(), |options| options.open_read_only("db").err()];
    for refused in refused {
        let error = refused(options(fs)).unwrap();
        let damage = error.corruption().unwrap();
        assert_eq!((&*damage.file, damage.offset), (Path::new(manifest), at as u64), "{error}");
        let parts = [missing, "is missing", "lost before a crash", "repair --keep-suspect"];
        assert!(parts.iter().all(|part| error.to_string().contains(part)), "{error}");
    }
    assert!(contents().eq(before), "nothing is changed");
}

#[test]
fn trap_60_a_damaged_edit_whose_inputs_are_gone_is_no_torn_tail() {
    let fs = merged();
    let (manifest, records) = records(&fs);
    let last = records.last().unwrap().clone();
    for at in [last.start + 3, last.start + 20, last.start + 60, last.end - 9] {
        let image = fs.kill_image();
        image.flip(&manifest, at as u64, 4).unwrap();
        check_refused(&image, &manifest, last.start, ".sst");
        check_suspect(&image);
    }
    // The rows are also suspect if CURRENT is missing.
    fs.flip(&manifest, last.end as u64 - 9, 4).unwrap();
    fs.erase("db/CURRENT").unwrap();
    check_suspect(&fs);
}

#[test]
fn trap_60_an_edit_of_zeros_is_doubtful_if_a_named_file_is_gone_and_an_unnamed_one_is_there() {
    let fs = merged();
    let (manifest, records) = records(&fs);
    change(&fs, &manifest, |bytes| bytes[records.last().unwrap().clone()].fill(0));
    check_suspect(&fs.kill_image());
    let (tables, logs) = (named(&fs, ".sst"), named(&fs, ".wal"));
    let options = |fs: &MemFs| Options { manifest_roll_bytes: 256, ..options(fs) };
    let db = options(&fs).open("db").unwrap();
    let [doubt] = <[String; 1]>::try_from(db.opened().warnings).unwrap();
    for part in ["rowstone heal", "keep-suspect", "is missing", "is there", &manifest[3..]] {
        assert!(doubt.contains(part), "{part}: {doubt}");
    }
    let table = db.table("things").unwrap();
    assert_eq!(table.get("p1", "000001").unwrap_err().kind(), ErrorKind::Corruption);
    assert!(db.verify().unwrap().problems.contains(&doubt));
    let other = db.create_table("other").unwrap();
    for i in 0..20 {
        other.insert(row(i, 0)).unwrap();
        db.flush().unwrap();
    }
    run(&db);
    assert_eq!(named(&fs, "MANIFEST"), [&*manifest], "no manifest begins");
    assert!(tables.iter().all(|table| named(&fs, ".sst").contains(table)), "no table is removed");
    drop((db, table, other));
    let fs = fs.kill_image();
    let db = options(&fs).open("db").unwrap();
    assert!(!db.opened().warnings.is_empty() && !logs.is_empty());
    let report = db.heal(None, "backup", |_| ()).unwrap();
    assert!(report.is_healed() && !report.files.is_empty(), "{report:?}");
    assert!(db.verify().unwrap().is_sound());
    db.close().unwrap();
    let db = options(&fs).open("db").unwrap();
    assert!(db.opened().warnings.is_empty());
    assert_eq!(db.table("things").unwrap().scan(KeyRange::all()).count().unwrap(), 100);
}

#[test]
fn opening_removes_no_log_of_a_doubtful_manifest() {
    let fs = merged();
    let (manifest, records) = records(&fs);
    change(&fs, &manifest, |bytes| bytes[records.last().unwrap().clone()].fill(0));
    fs.write("db/000900.wal", b"it may be what is left").unwrap();
    let logs = named(&fs, ".wal");
    let db = options(&fs).open("db").unwrap();
    assert_eq!(db.opened().orphans, 0);
    assert!(logs.iter().all(|log| named(&fs, ".wal").contains(log)), "{:?}", named(&fs, ".wal"));
}

/// The manifest is undamaged: a file was lost, and then a crash interrupted the writing of an edit.
#[test]
fn a_torn_edit_after_the_loss_of_a_file_is_refused_with_a_way_out() {
    let fs = merged();
    let (manifest, records) = records(&fs);
    let end = records.last().unwrap().end;
    let lost = named(&fs, ".sst").pop().unwrap();
    change(&fs, &manifest, |bytes| bytes[end..end + 7].fill(0xaa));
    assert!(options(&fs.kill_image()).open("db").unwrap().opened().torn.is_some());
    fs.erase(&lost).unwrap();
    check_refused(&fs, &manifest, end, &lost[3..]);
    options(&fs).repair("db", "new", SuspectRows::Keep, |_, _| ()).unwrap();
    assert!(options(&fs).open("new").is_ok());
}

#[test]
fn a_lost_log_of_the_change_feed_does_not_refuse_a_torn_edit() {
    let fs = MemFs::new();
    let db = options(&fs).keep_changes(1 << 30).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    table.insert(row(1, 0)).unwrap();
    db.flush().unwrap();
    run(&db);
    let kept = named(&fs, ".wal").remove(0);
    let fs = fs.kill_image();
    let (manifest, records) = records(&fs);
    let end = records.last().unwrap().end;
    change(&fs, &manifest, |bytes| bytes[end..end + 7].fill(0xaa));
    fs.erase(&kept).unwrap();
    let db = options(&fs).keep_changes(1 << 30).open("db").unwrap();
    assert_eq!(db.table("things").unwrap().scan(KeyRange::all()).count().unwrap(), 1);
}

/// The damaged last edit named the file of a flush, and the flushed log is removed.
#[test]
fn trap_61_rows_of_a_file_that_a_damaged_edit_named_are_suspect_and_older_ones_superseded() {
    let fs = MemFs::new();
    let db = open(&fs);
    let table = db.create_table("things").unwrap();
    (0..ROWS).for_each(|i| assert!(table.insert(row(i, 0)).is_ok()));
    db.compact().unwrap();
    (0..ROWS).for_each(|i| assert!(table.replace(row(i, 1)).is_ok()));
    db.flush().unwrap();
    let fs = fs.kill_image();
    let (manifest, records) = records(&fs);
    let last = records.last().unwrap();
    fs.flip(&manifest, last.end as u64 - 9, 4).unwrap();
    check_refused(&fs, &manifest, last.start, ".wal");
    check_suspect(&fs);
    assert_eq!(states(&fs).len(), 200, "both versions are found");
}

/// Every second row is deleted. A merge drops the deleted rows and their tombstones, but its input
/// files still exist. The test checks four images of the files. In the first, the merge is the last
/// edit. In the second, that edit is damaged. In the third, a later edit is damaged. The fourth is
/// like the third, but the file with the tombstones is removed.
#[test]
fn trap_61_deleted_rows_of_a_merge_killed_before_its_unlinks_do_not_return() {
    let fs = MemFs::new();
    let db = open(&fs);
    let table = db.create_table("things").unwrap();
    (0..ROWS).for_each(|i| assert!(table.insert(row(i, 0)).is_ok()));
    db.flush().unwrap();
    for i in (0..ROWS).step_by(2) {
        table.delete(&format!("p{}", i % 7), &format!("{i:06}")).unwrap();
    }
    db.flush().unwrap();
    let deletions = named(&fs, ".sst").pop().unwrap();
    let held = db.engine.reader().pin();
    db.compact().unwrap();
    let (whole, torn) = (fs.kill_image(), fs.kill_image());
    let (manifest, merge) = records(&torn);
    torn.flip(&manifest, merge.last().unwrap().end as u64 - 9, 4).unwrap();
    for i in 0..2 {
        table.replace(row(2 * i + 1, 1)).unwrap();
        db.flush().unwrap();
        run(&db);
    }
    let doubtful = fs.kill_image();
    let (_, after) = records(&doubtful);
    doubtful.flip(&manifest, after[merge.len()].end as u64 - 9, 4).unwrap();
    drop(held);
    let half_unlinked = doubtful.kill_image();
    half_unlinked.erase(&deletions).unwrap();
    for (image, newer) in [(&whole, 0), (&torn, 0), (&doubtful, 2), (&half_unlinked, 2)] {
        let states = states(image);
        let shown =
            |state: &&SalvagedState| matches!(state, SalvagedState::Live | SalvagedState::Suspect);
        assert_eq!(states.values().filter(shown).count(), 50, "{states:?}");
        assert_eq!(states.len(), 100 + newer, "the inputs are there");
        let deleted = &states[&("000002".to_owned(), 0)];
        assert_eq!(*deleted, SalvagedState::Superseded);
        let report = options(image).repair("db", "new", SuspectRows::Keep, |_, _| ()).unwrap();
        assert_eq!((report.rows(), report.doubt.is_some()), (50, newer > 0), "{report:?}");
    }
}

/// The newer version of the key is in a log, after damage. Only one of the two versions may be
/// reported as live or suspect.
#[test]
fn an_older_version_is_not_live_above_a_newer_one_beyond_damage() {
    let fs = MemFs::new();
    let db = open(&fs);
    let table = db.create_table("things").unwrap();
    (1..4).for_each(|i| assert!(table.insert(row(i, 0)).is_ok()));
    db.flush().unwrap();
    let log = named(&fs, ".wal").pop().unwrap();
    table.insert(row(4, 0)).unwrap();
    let damaged = fs.read(&log).unwrap().iter().rposition(|byte| *byte != 0).unwrap();
    table.replace(row(1, 1)).unwrap();
    table.delete("p2", "000002").unwrap();
    table.insert(row(5, 0)).unwrap();
    let fs = fs.kill_image();
    fs.flip(&log, damaged as u64, 1).unwrap();
    let states = states(&fs);
    let state = |key: &str, version| states[&(key.to_owned(), version)];
    assert_eq!(state("000001", 1), SalvagedState::Suspect);
    assert_eq!(state("000001", 0), SalvagedState::Superseded);
    assert_eq!(state("000002", 0), SalvagedState::Suspect, "it is deleted beyond the damage");
    assert_eq!(state("000003", 0), SalvagedState::Live);
}

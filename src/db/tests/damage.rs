//! Tests of damaged table files: which reads still work, how the file is quarantined, and how it is
//! healed.

use std::path::Path;

use crate::db::SuspectRows;
use crate::format::block::{BlockKind, BlockPlace, HEADER_BYTES, block_checksum};
use crate::manifest::FileEntry;

use super::*;

fn stat(db: &Db, name: &str) -> u64 {
    db.stats().get(name).unwrap()
}

fn steps(db: &Db) {
    for _ in 0..10_000 {
        if !db.step(std::time::Duration::ZERO) {
            return;
        }
    }
    panic!("background work does not end");
}

fn tables_of(fs: &MemFs, dir: &str) -> Vec<String> {
    let is_table = |path: &String| path.starts_with(&format!("{dir}/")) && path.ends_with(".sst");
    fs.paths().into_iter().filter(is_table).collect()
}

/// Changes the bytes of one file, but not of a checkpoint that shares them by a hard link.
fn damage(fs: &MemFs, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs.read(path).unwrap();
    change(&mut bytes);
    crate::fs::Fs::remove(fs, path.as_ref()).unwrap();
    fs.write(path, &bytes).unwrap();
}

fn flip(fs: &MemFs, path: &str) {
    damage(fs, path, |bytes| bytes[300] ^= 1);
}

/// Creates three table files: one in the sorted run with rows 0 to 2,999, a newer file that
/// replaces every second row, and the newest file, which deletes every third row.
fn layered(fs: &MemFs) -> Db {
    let db = options(fs).run_file_bytes(1 << 20).memtable_bytes(4 << 20).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    for i in 0..3_000 {
        table.insert(row(i, 0)).unwrap();
    }
    db.compact().unwrap();
    for i in (0..3_000).step_by(2) {
        table.replace(row(i, 1)).unwrap();
    }
    db.flush().unwrap();
    for i in (0..3_000).step_by(3) {
        table.delete(&format!("p{}", i % 7), &format!("{i:06}")).unwrap();
    }
    db.flush().unwrap();
    db
}

fn expected(i: u32) -> Option<i32> {
    (!i.is_multiple_of(3)).then_some(i32::from(i.is_multiple_of(2)))
}

/// Checks that every row is either correct or reported as damaged; returns the number of damaged
/// rows.
fn damaged_rows(db: &Db) -> usize {
    let table = db.table("things").unwrap();
    let is_damaged = |i: &u32| match table.get(&format!("p{}", i % 7), &format!("{i:06}")) {
        Ok(found) => {
            assert_eq!(found.map(|row| row.get::<i32>("V").unwrap()), expected(*i), "{i}");
            false
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corruption);
            true
        }
    };
    (0..3_000u32).filter(is_damaged).count()
}

#[test]
fn trap_28_a_damaged_file_stays_and_other_files_are_served() {
    let fs = MemFs::new();
    let db = layered(&fs);
    let other = db.create_table("other").unwrap();
    db.close().unwrap();
    drop(other);
    let files = tables_of(&fs, "db");
    // The newest file has deletions: the rows that they hide must not reappear.
    let newest = files.last().unwrap();
    flip(&fs, newest);
    let db = options(&fs).open("db").unwrap();
    let damaged = damaged_rows(&db);
    assert!(damaged > 0 && damaged < 1_000, "one block is damaged, with {damaged} rows");
    let error = db.compact().unwrap_err();
    let name = Path::new(newest).file_name().unwrap().to_str().unwrap();
    for part in [name, "at byte", "holds keys t1/p0/000000 to t1/p6/002988"] {
        assert!(error.chain().contains(part), "{error}");
    }
    let held = db.quarantined();
    assert_eq!((held.len(), &*held[0].file, held[0].entries), (1, name, 1_000));
    assert_eq!((stat(&db, "quarantined_files"), stat(&db, "trouble")), (1, 1));
    assert_eq!(damaged_rows(&db), damaged);
    let (things, other) = (db.table("things").unwrap(), db.table("other").unwrap());
    let tried = stat(&db, "compactions");
    for round in 0..40 {
        for i in 0..300 {
            other.upsert(row(i, round)).unwrap();
            things.upsert(row(10_000 + i, round)).unwrap();
        }
        db.flush().unwrap();
        steps(&db);
    }
    assert!(stat(&db, "compactions") > tried, "other files are still compacted");
    assert!(stat(&db, "sources_max") < 12, "{} files over one another", stat(&db, "sources_max"));
    assert!(tables_of(&fs, "db").contains(newest), "the damaged file is not removed");
    assert_eq!(damaged_rows(&db), damaged, "the damaged file is not merged");
    let report = db.verify().unwrap();
    assert!(!report.problems.is_empty() && report.problems.iter().all(|p| p.contains(name)));
}

#[test]
fn reads_in_the_span_of_a_missing_file_fail_and_unreferenced_files_stay() {
    let fs = MemFs::new();
    layered(&fs).close().unwrap();
    let files = tables_of(&fs, "db");
    fs.write("db/000999.sst", b"nothing names it").unwrap();
    let gone = files.last().unwrap();
    crate::fs::Fs::remove(&fs, gone.as_ref()).unwrap();
    let db = options(&fs).open("db").unwrap();
    assert!(damaged_rows(&db) > 1_000, "the keys in the span of the missing file are damaged");
    assert_eq!(
        db.table("things").unwrap().get("q", "").unwrap(),
        None,
        "keys after its last key are readable"
    );
    assert!(
        fs.paths().contains(&"db/000999.sst".to_owned()),
        "an unreferenced file may be what is left of the missing one"
    );
}

/// One file has a flipped byte in a block of rows, another is truncated, a third is missing.
#[test]
fn damaged_files_are_healed_from_a_checkpoint_while_in_use() {
    let fs = MemFs::new();
    let db = layered(&fs);
    db.checkpoint("backup").unwrap();
    let table = db.table("things").unwrap();
    table.insert(row(90_000, 5)).unwrap();
    db.close().unwrap();
    let files = tables_of(&fs, "db");
    flip(&fs, &files[0]);
    damage(&fs, &files[1], |bytes| bytes.truncate(1_000));
    crate::fs::Fs::remove(&fs, files[2].as_ref()).unwrap();
    let db = options(&fs).open("db").unwrap();
    let before = db.table("things").unwrap().scan(KeyRange::all()).into_iter().next();
    assert!(before.unwrap().is_err());
    // Healing uses neither a damaged copy nor a file with the right number and size but another id.
    let nothing = db.heal(None, "nothing", |_| ()).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::NotFound);
    let mut read = 0;
    let report = db.heal(None, "backup", |bytes| read += bytes).unwrap();
    assert!(report.is_healed() && report.files.len() == 3 && read > 100_000, "{report:?}");
    assert_eq!(db.quarantined(), []);
    assert_eq!(damaged_rows(&db), 0);
    assert_eq!(
        db.table("things").unwrap().get("p1", "090000").unwrap().unwrap().get::<i32>("V").unwrap(),
        5
    );
    assert!(db.verify().unwrap().is_sound());
    db.compact().unwrap();
    assert_eq!(damaged_rows(&db), 0);
    db.close().unwrap();
    let db = options(&fs).open("db").unwrap();
    assert_eq!(damaged_rows(&db), 0);
    assert!(db.verify().unwrap().is_sound());
    assert_eq!(db.heal(None, "backup", |_| ()).unwrap().files, []);
}

#[test]
fn a_copy_that_is_damaged_or_another_file_heals_nothing() {
    let fs = MemFs::new();
    let db = layered(&fs);
    db.checkpoint("backup").unwrap();
    db.close().unwrap();
    let (files, copies) = (tables_of(&fs, "db"), tables_of(&fs, "backup"));
    flip(&fs, &files[1]);
    damage(&fs, &copies[1], |bytes| {
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
    });
    let db = options(&fs).open("db").unwrap();
    let damaged = damaged_rows(&db);
    let report = db.heal(None, "backup", |_| ()).unwrap();
    assert_eq!((report.files.len(), report.is_healed()), (1, false));
    assert!(report.files[0].why.as_ref().unwrap().contains("damaged"), "{report:?}");
    assert_eq!(damaged_rows(&db), damaged);
    // A file with the same number in another database is a different file.
    let other = options(&fs).seed(99).open("other").unwrap();
    other.create_table("things").unwrap();
    other.checkpoint("elsewhere").unwrap();
    let report = db.heal(None, "elsewhere", |_| ()).unwrap();
    assert!(report.files[0].why.as_ref().unwrap().contains("has its id"), "{report:?}");
    let leftovers = |fs: &MemFs| tables_of(fs, "db").len();
    assert_eq!(leftovers(&fs), files.len(), "copies that were not used are removed");
}

#[test]
fn a_database_with_a_damaged_catalog_is_healed_before_it_is_opened() {
    let fs = MemFs::new();
    let db = layered(&fs);
    db.checkpoint("backup").unwrap();
    db.close().unwrap();
    for file in tables_of(&fs, "db") {
        damage(&fs, &file, |bytes| bytes.truncate(bytes.len() - 1));
    }
    let error = options(&fs).open("db").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    let report = options(&fs).heal("db", None, "backup", |_| ()).unwrap();
    assert!(report.is_healed() && !report.files.is_empty());
    assert_eq!(damaged_rows(&options(&fs).open("db").unwrap()), 0);
}

/// A power cut at any moment of healing leaves the file damaged or healed, never wrong.
#[test]
fn a_crash_while_healing_loses_nothing() {
    let fs = MemFs::new();
    let db = layered(&fs);
    db.checkpoint("backup").unwrap();
    db.close().unwrap();
    flip(&fs, &tables_of(&fs, "db")[1]);
    let db = options(&fs).open("db").unwrap();
    fs.record();
    assert!(db.heal(None, "backup", |_| ()).unwrap().is_healed());
    let ops = fs.recorded();
    for op in ops {
        for seed in 0..2 {
            let image = fs.crash_image_at(op, seed).unwrap();
            let db = options(&image).open("db").unwrap();
            damaged_rows(&db);
            assert!(db.heal(None, "backup", |_| ()).unwrap().is_healed());
            assert_eq!(damaged_rows(&db), 0, "operation {op}");
        }
    }
}

/// Only files that this process has flushed or merged are handed over to readers unchecked, and
/// only if they are mapped.
#[test]
fn trap_24_opened_and_imported_files_are_checked_at_first_use() {
    use crate::options::IoMode;
    // Whether each file is open that was imported, or was not.
    let are_open = |db: &Db, imported: bool| -> Vec<bool> {
        let pinned = db.engine.reader().pin();
        let is_meant = |file: &&Arc<FileEntry>| (file.meta.visible_from.0 > 0) == imported;
        pinned.version.files().filter(is_meant).map(|file| file.opened().is_some()).collect()
    };
    for (mode, handed_over) in [(IoMode::Mmap, true), (IoMode::Pread, false)] {
        let fs = MemFs::new();
        let options = options(&fs).io_mode(mode);
        let db = options.clone().open("new").unwrap();
        let table = db.create_table("things").unwrap();
        table.insert(row(1, 0)).unwrap();
        db.flush().unwrap();
        let flushed = are_open(&db, false);
        assert!(!flushed.is_empty() && !flushed.contains(&!handed_over), "flushed");
        table.insert(row(2, 0)).unwrap();
        db.compact().unwrap();
        assert!(!handed_over || !are_open(&db, false).contains(&false), "merged");
        db.export_range("things", KeyRange::all(), "moving").unwrap();
        db.create_table("copies").unwrap();
        db.import_range("moving", "copies").unwrap();
        assert_eq!(are_open(&db, true), [false], "imported");
        drop(table);
        db.close().unwrap();
        let db = options.open("new").unwrap();
        assert!(are_open(&db, true) == [false] && are_open(&db, false).contains(&false), "opened");
    }
}

/// A compaction reads its input from disk and checks it, even blocks that a reader has checked
/// before.
#[test]
fn trap_23_damage_after_the_first_check_is_not_copied() {
    for mode in [crate::options::IoMode::Mmap, crate::options::IoMode::Pread] {
        let fs = MemFs::new();
        let db = layered(&fs);
        db.close().unwrap();
        let db = options(&fs).io_mode(mode).cache_bytes(8 << 20).open("db").unwrap();
        assert_eq!(damaged_rows(&db), 0);
        let file = tables_of(&fs, "db").pop().unwrap();
        flip(&fs, &file);
        // The flipped bit is in the file, and may also appear in a memory map of the file. The
        // compaction reads either the file or the map.
        match db.compact() {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption),
            Ok(()) => assert_eq!(damaged_rows(&db), 0),
        }
    }
}

/// A block that this build cannot decompress is not damaged: another build can read it.
#[test]
fn trap_23_blocks_that_this_build_cannot_read_are_not_dropped() {
    let fs = MemFs::new();
    let db = options(&fs).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    (0..100).for_each(|i| assert!(table.insert(row(i, 0)).is_ok()));
    db.compact().unwrap();
    let pinned = db.engine.reader().pin();
    let files = pinned.version.files().map(|file| file.meta.clone());
    let meta = files.max_by_key(|meta| meta.entries).unwrap();
    drop(pinned);
    db.close().unwrap();
    let (name, place) =
        (meta.number.sst_name(), BlockPlace { kind: BlockKind::Rows, file: meta.id, number: 0 });
    damage(&fs, &format!("db/{name}"), |bytes| {
        let block = &mut bytes[crate::format::sst::HEADER_BYTES..];
        let stored = u32::from_le_bytes(block[16..20].try_into().unwrap()) as usize;
        let (header, stored) = block[..HEADER_BYTES + stored].split_at_mut(HEADER_BYTES);
        header[1] = 9;
        let sum = block_checksum(place, &header[..20], stored);
        header[20..].copy_from_slice(&sum.to_le_bytes());
    });
    let repaired = options(&fs).repair("db", "repaired", SuspectRows::Keep, |_, _| ());
    let error = repaired.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains(&name), "{error}");
    assert!(options(&fs).create_if_missing(false).open("repaired").is_err());
}

/// Restored rows have lower Seqs than the earlier deletion of their key range. Without a complete
/// manifest it is unknown whether the rows were restored after the deletion, so no row may be
/// dropped silently.
#[test]
fn restored_rows_are_suspect_but_kept_if_the_manifest_is_incomplete() {
    let fs = MemFs::new();
    let db = options(&fs).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    (0..16).for_each(|i| assert!(table.insert(row(i, 0)).is_ok()));
    db.backup("backups").unwrap();
    table.delete_range(&KeyRange::all()).unwrap();
    db.create_table("others").unwrap().insert(row(1, 1)).unwrap();
    db.flush().unwrap();
    let backups = options(&fs).open_backup("backups").unwrap();
    backups.restore_into(None, "things", KeyRange::all(), &db, "things").unwrap();
    db.close().unwrap();
    let names = fs.paths();
    let manifest = names.iter().find(|name| name.starts_with("db/MANIFEST")).unwrap();
    let mut doubted = 0;
    for at in (64..fs.read(manifest).unwrap().len()).step_by(31) {
        let image = fs.crash_image(1);
        damage(&image, manifest, |bytes| bytes[at] ^= 1);
        let report = options(&image).repair("db", "new", SuspectRows::Keep, |_, _| ()).unwrap();
        if report.doubt.is_some() {
            doubted += 1;
            assert_eq!(report.rows(), 17, "{at}: {report:?}");
        }
    }
    assert!(doubted > 10, "{doubted}");
}

/// Each log states where the records of the log before it end. Verification reads a closed log, or
/// a log kept for the change feed, up to this offset, and must find any damage before it.
#[test]
fn verify_finds_damage_in_closed_logs_and_in_kept_ones() {
    for is_kept in [false, true] {
        let fs = MemFs::new();
        let db = options(&fs).keep_changes(1 << 30).open("db").unwrap();
        let table = db.create_table("things").unwrap();
        (0..100).for_each(|i| assert!(table.insert(row(i, 0)).is_ok()));
        match is_kept {
            true => db.flush().unwrap(),
            false => db.engine.maintenance().freeze().unwrap(),
        }
        table.insert(row(100, 0)).unwrap();
        assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
        let logs = fs.paths().into_iter().filter(|path| path.ends_with(".wal"));
        let log = logs.min().unwrap();
        damage(&fs, &log, |bytes| bytes[2_000] ^= 1);
        let report = db.verify().unwrap();
        assert_eq!(report.problems.len(), 1, "{report:?}");
        assert!(report.problems[0].contains(&log), "{report:?}");
    }
}

/// Opening does not read a log that is kept only for the change feed, and healing does not replace
/// it. So the report names the damage.
#[test]
fn healing_reports_damage_in_kept_logs() {
    let fs = MemFs::new();
    let db = options(&fs).keep_changes(1 << 30).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    (0..100).for_each(|i| assert!(table.insert(row(i, 0)).is_ok()));
    db.flush().unwrap();
    db.checkpoint("backup").unwrap();
    db.close().unwrap();
    let log = fs.paths().into_iter().filter(|path| path.ends_with(".wal")).min().unwrap();
    damage(&fs, &log, |bytes| bytes[2_000] ^= 1);
    let table = tables_of(&fs, "db").pop().unwrap();
    flip(&fs, &table);
    let options = || options(&fs).keep_changes(1 << 30);
    let report = options().heal("db", None, "backup", |_| ()).unwrap();
    assert!(report.files.len() == 1 && report.files[0].healed.is_some(), "{report:?}");
    assert!(!report.is_healed() && report.problems.len() == 1, "{report:?}");
    assert!(report.problems[0].contains(&log), "{report:?}");
    let db = options().open("db").unwrap();
    assert_eq!(db.table("things").unwrap().scan(KeyRange::all()).count().unwrap(), 100);
    assert_eq!(db.verify().unwrap().problems, report.problems);
    assert_eq!(db.heal(None, "backup", |_| ()).unwrap().problems, report.problems);
}

/// A log kept for the change feed contains old versions that are no longer in table files. Salvage
/// must not take them for current ones.
#[test]
fn salvage_takes_nothing_from_kept_logs_of_a_sound_database() {
    let fs = MemFs::new();
    let db = options(&fs).keep_changes(1 << 30).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    (0..16).for_each(|i| assert!(table.insert(row(i, 0)).is_ok()));
    table.insert(Entity::new("gone", "x").with("V", 1)).unwrap();
    db.create_table("dropped").unwrap().insert(row(1, 1)).unwrap();
    db.flush().unwrap();
    table.delete_range(&KeyRange::partition("gone")).unwrap();
    table.replace(row(3, 1)).unwrap();
    db.delete_table("dropped").unwrap();
    db.flush().unwrap();
    db.compact().unwrap();
    steps(&db);
    db.close().unwrap();
    let report = options(&fs).salvage("db", |_| Ok(()), |_, _| ()).unwrap();
    assert_eq!((report.found.get("live"), report.found.get("suspect")), (Some(&16), None));
}

/// A key has two versions, each in a block of its own. The block with the newer version is lost,
/// and so is the block after the older version. So two gaps of the file include the key.
#[test]
fn the_last_key_before_a_second_gap_is_suspect_for_the_first() {
    let fs = MemFs::new();
    let db = options(&fs).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    let put = |name: &str, version: i32| {
        let text = format!("{name}{version}").repeat(300);
        table.upsert(Entity::new("p", name).with("V", version).with("Text", text)).unwrap();
    };
    ["a", "b"].iter().for_each(|name| put(name, 1));
    let snapshot = db.snapshot();
    ["b", "c"].iter().for_each(|name| put(name, 2));
    db.flush().unwrap();
    drop(snapshot);
    let pinned = db.engine.reader().pin();
    let files = pinned.version.files().map(|file| file.meta.clone());
    let meta = files.max_by_key(|meta| meta.bytes).unwrap();
    drop(pinned);
    db.close().unwrap();
    damage(&fs, &format!("db/{}", meta.number.sst_name()), |bytes| {
        let mut at = crate::format::sst::HEADER_BYTES;
        for block in 0..4 {
            let stored = u32::from_le_bytes(bytes[at + 16..at + 20].try_into().unwrap()) as usize;
            if block % 2 == 1 {
                bytes[at + HEADER_BYTES + 5] ^= 1;
            }
            at += HEADER_BYTES + stored;
        }
    });
    let repair = options(&fs).repair("db", "new", SuspectRows::LeaveOut, |_, _| ());
    let report = repair.unwrap();
    assert_eq!((report.rows(), report.suspect()), (1, 1), "{report:?}");
}

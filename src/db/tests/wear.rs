//! Compares the wear account (bytes written and syncs since the creation of a database) with the
//! requests that a memory file system recorded.

use super::*;
use crate::format::edit::Wear;
use crate::fs::{Fault, FaultFs, FaultKind, Fs, OpKind};

/// The requests in the journal of a memory file system, counted independently of the engine.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    log_bytes: u64,
    table_bytes: u64,
    manifest_bytes: u64,
    log_syncs: u64,
    table_syncs: u64,
    manifest_syncs: u64,
    directory_syncs: u64,
    writes: u64,
}

const PAGE: u64 = 4096;
/// An upper bound of the number of logs that a test in this file writes.
const LOGS_MAX: u64 = 100;

impl Asked {
    /// Counts the requests in the journal. Returns the counts, and the number of synced pages.
    fn of(fs: &MemFs) -> (Self, u64) {
        let (mut asked, mut pages) = (Self::default(), 0);
        let mut unsynced = std::collections::BTreeMap::new();
        for line in fs.log() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["write", path, range] => {
                    let (from, to) = range.split_once("..").unwrap();
                    let (from, to): (u64, u64) = (from.parse().unwrap(), to.parse().unwrap());
                    *asked.file(path).0 += to - from;
                    asked.writes += 1;
                    let dirty = unsynced.entry(path.to_owned()).or_insert(from..to);
                    *dirty = dirty.start.min(from)..dirty.end.max(to);
                }
                ["sync", path] => {
                    *asked.file(path).1 += 1;
                    if let Some(dirty) = unsynced.remove(path) {
                        pages += dirty.end.div_ceil(PAGE) - dirty.start / PAGE;
                    }
                }
                ["sync-dir", _] => {
                    asked.directory_syncs += 1;
                    pages += 1;
                }
                _ => {}
            }
        }
        // The sync of the parent directory, which is one page, is not in the account.
        asked.directory_syncs -= 1;
        (asked, pages - 1)
    }

    /// Compares the account with the journal. For each log, the account may also include the page
    /// of the last record although the page was not synced.
    #[track_caller]
    fn check(fs: &MemFs, wear: &Wear) {
        let (asked, pages) = Self::of(fs);
        assert_eq!(Self::said(wear), asked);
        let counted = wear.flash_bytes(PAGE) / PAGE;
        assert!((pages..=pages + LOGS_MAX).contains(&counted), "{counted} pages, {pages} synced");
    }

    fn file(&mut self, path: &str) -> (&mut u64, &mut u64) {
        match path.trim_end_matches(".tmp") {
            log if log.ends_with(".wal") => (&mut self.log_bytes, &mut self.log_syncs),
            sst if sst.ends_with(".sst") => (&mut self.table_bytes, &mut self.table_syncs),
            _ => (&mut self.manifest_bytes, &mut self.manifest_syncs),
        }
    }

    fn said(wear: &Wear) -> Self {
        Self {
            log_bytes: wear.log_bytes,
            table_bytes: wear.flush_bytes + wear.compaction_bytes + wear.import_bytes,
            manifest_bytes: wear.manifest_bytes,
            log_syncs: wear.log_syncs,
            table_syncs: wear.table_syncs,
            manifest_syncs: wear.manifest_syncs,
            directory_syncs: wear.directory_syncs,
            writes: wear.writes,
        }
    }
}

/// Returns a memory file system whose journal starts after the creation of the directory, which the
/// account does not include.
fn recorded() -> MemFs {
    let fs = MemFs::new();
    fs.create_dir_all(std::path::Path::new("db")).unwrap();
    fs.record();
    fs
}

fn write_some(db: &Db, version: u32) {
    let table = db.table_or_create("things").unwrap();
    for i in 0..400 {
        table.upsert(row(i, version)).unwrap();
    }
    db.flush().unwrap();
    for i in 0..100 {
        table.delete(&format!("p{}", i % 7), &format!("{i:06}")).unwrap();
    }
    table.clone().with_durability(Durability::Os).upsert(row(1, version)).unwrap();
    while db.step(std::time::Duration::ZERO) {}
}

#[test]
fn the_wear_account_equals_the_file_system_requests_across_restarts() {
    let fs = recorded();
    for version in 0..4 {
        let db = open(&fs);
        write_some(&db, version);
        db.compact().unwrap();
        let wear = db.wear();
        Asked::check(&fs, &wear);
        assert!(wear.compaction_bytes > 0 && wear.flush_bytes > 0 && wear.import_bytes == 0);
        assert!(wear.user_bytes < wear.log_bytes, "{wear:?}");
        db.close().unwrap();
        // The next opening adds the writes of the close to the account, and the edit that stores
        // the account.
        let db = open(&fs);
        Asked::check(&fs, &db.wear());
        db.close().unwrap();
    }
}

#[test]
fn the_wear_account_survives_a_manifest_rollover() {
    let fs = recorded();
    let options = Options { manifest_roll_bytes: 2 << 10, ..options(&fs) };
    let db = options.open("db").unwrap();
    let table = db.create_table("things").unwrap();
    for i in 0..400 {
        table.upsert(row(i, 0)).unwrap();
        db.flush().unwrap();
        while db.step(std::time::Duration::ZERO) {}
    }
    let rolled = fs.log().iter().filter(|line| line.starts_with("rename db/CURRENT.tmp")).count();
    assert!(rolled > 1, "{rolled} manifests");
    Asked::check(&fs, &db.wear());
    db.close().unwrap();
    let db = open(&fs);
    Asked::check(&fs, &db.wear());
}

#[test]
fn users_bytes_are_keys_and_rows() {
    let fs = MemFs::new();
    let db = open(&fs);
    let table = db.create_table("things").unwrap();
    let before = db.wear();
    table.insert(row(1, 0)).unwrap();
    let one = db.wear().since(&before);
    // The key has the table's id and both texts with their terminators. The row has two integers
    // and the shape number.
    assert_eq!(one.user_bytes, db_key_bytes() + 9, "{one:?}");
    table.delete("p1", "000001").unwrap();
    assert_eq!(db.wear().since(&before).user_bytes - one.user_bytes, db_key_bytes());
    table.insert(row(2, 0)).unwrap();
    assert!(table.insert(row(2, 0)).is_err());
    assert_eq!(db.wear().since(&before).user_bytes, 2 * one.user_bytes + db_key_bytes());
}

fn db_key_bytes() -> u64 {
    user_key(crate::format::names::TableId(1), "p1", "000001").len() as u64
}

/// After a kill at any operation, opening restores the byte counts of commits and logs, and the
/// account includes all existing table files.
#[test]
fn the_wear_of_commits_and_logs_survives_a_kill() {
    let fs = recorded();
    let db = open(&fs);
    let first = *fs.recorded().end();
    let mut known = vec![(first, db.wear())];
    for version in 0..2 {
        let table = db.table_or_create("things").unwrap();
        for i in 0..60 {
            table.upsert(row(i, version)).unwrap();
            known.push((fs.ops(), db.wear()));
        }
        db.flush().unwrap();
        known.push((fs.ops(), db.wear()));
        db.compact().unwrap();
        known.push((fs.ops(), db.wear()));
    }
    for op in first..fs.ops() {
        let image = fs.kill_image_at(op).unwrap();
        let before = known.iter().rev().find(|(at, _)| *at <= op).map(|(_, wear)| wear).unwrap();
        let db = open(&image);
        let wear = db.wear();
        assert!(wear.user_bytes >= before.user_bytes, "at {op}: {wear:?}, {before:?} before");
        assert!(wear.log_bytes >= before.log_bytes, "at {op}: {wear:?}, {before:?} before");
        let tables = wear.flush_bytes + wear.compaction_bytes;
        assert!(tables >= db.stats().get("file_bytes").unwrap(), "at {op}: {wear:?}");
        // Opening adds the bytes to the account only once, not each time.
        db.close().unwrap();
        let again = open(&image).wear();
        assert_eq!(again.user_bytes, wear.user_bytes, "at {op}");
    }
}

#[test]
fn a_commit_that_failed_is_not_in_the_account() {
    let memory = MemFs::new();
    let fs = FaultFs::new(Arc::new(memory.clone()));
    let db = options(&memory).fs(Arc::new(fs.clone())).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    table.insert(row(1, 0)).unwrap();
    let before = db.wear();
    fs.arm(Fault::new(FaultKind::Eio).on(OpKind::Write));
    assert!(table.insert(row(2, 0)).is_err());
    assert_eq!(db.wear().user_bytes, before.user_bytes);
    assert_eq!(db.wear().log_bytes, before.log_bytes);
}

#[test]
fn copies_are_charged_to_their_source_and_start_at_zero() {
    let fs = MemFs::new();
    let db = open(&fs);
    write_some(&db, 0);
    let before = db.wear();
    db.backup("backups").unwrap();
    let made = db.wear().since(&before);
    let files = db.stats().get("file_bytes").unwrap();
    assert!(made.copy_bytes >= files && made.copy_syncs > 0, "{made:?}");
    db.checkpoint("copy").unwrap();
    let copy = options(&fs).open("copy").unwrap();
    // The account of the copy has only the copy's log and the edit that adds this log.
    assert!(copy.wear().written() < 2000 && copy.wear().flush_bytes == 0, "{:?}", copy.wear());
}

#[test]
fn a_read_only_database_shows_the_wear_of_the_last_edit() {
    let fs = MemFs::new();
    let db = open(&fs);
    write_some(&db, 0);
    db.flush().unwrap();
    let reader = options(&fs).open_read_only("db").unwrap();
    let (said, now) = (reader.wear(), db.wear());
    assert!(said.flush_bytes == now.flush_bytes && said.log_bytes <= now.log_bytes, "{said:?}");
    assert!(said.user_bytes > 0);
}

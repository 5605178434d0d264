//! Tests the manifest on file systems that lose power, fail and become full.

mod crash;
mod damage;

use std::path::Path;
use std::sync::Arc;

use super::store::Opened;
use super::*;
use crate::codec::HashSeed;
use crate::error::{Error, ErrorKind, Result};
use crate::format::edit::{CleanClose, Identity, LogMeta, VersionEdit};
use crate::format::names::{FileId, FileName, FileNumber, TableId};
use crate::fs::{Fault, FaultFs, FaultKind, Fs, MemFs, OpKind};
use crate::model::Seq;
use crate::rng::Rng;

const DIR: &str = "db";
/// The space that is allocated for a new manifest, in bytes.
const ALLOCATED: u64 = 64 << 10;

fn identity() -> Identity {
    Identity {
        database: 1,
        incarnation: 2,
        seed: HashSeed(3),
        read_features: Vec::new(),
        write_features: Vec::new(),
        ignorable_features: Vec::new(),
    }
}

fn create(fs: &dyn CloneFs) -> Result<Manifest> {
    create_with(fs, identity())
}

fn create_with(fs: &dyn CloneFs, identity: Identity) -> Result<Manifest> {
    let dir = Path::new(DIR);
    fs.shared().create_dir_all(dir).map_err(|e| Error::io("create db", e))?;
    let first = VersionEdit { flushed_seq: Some(Seq(1)), ..VersionEdit::default() };
    Manifest::create(fs.shared(), dir, identity, &first, Rng::from_seed(1))
}

/// Opens the database and confirms its manifest.
fn open(fs: &dyn CloneFs) -> Result<Opened> {
    let mut opened =
        Manifest::open(fs.shared(), Path::new(DIR), Access::ReadWrite, Rng::from_seed(2))?;
    // `confirm` returns `Unsupported` if this build may only read the database.
    match opened.manifest.confirm() {
        Err(error) if error.kind() != ErrorKind::Unsupported => Err(error),
        _ => Ok(opened),
    }
}

/// A test file system that can be shared with a manifest.
trait CloneFs {
    fn shared(&self) -> Arc<dyn Fs>;
}

impl CloneFs for MemFs {
    fn shared(&self) -> Arc<dyn Fs> {
        Arc::new(self.clone())
    }
}

impl CloneFs for Arc<dyn Fs> {
    fn shared(&self) -> Arc<dyn Fs> {
        Arc::clone(self)
    }
}

fn flushed(seq: u64) -> VersionEdit {
    VersionEdit { flushed_seq: Some(Seq(seq)), ..VersionEdit::default() }
}

/// Returns an edit of about `bytes` bytes, of which a snapshot keeps only `seq`.
fn padded(seq: u64, bytes: usize) -> VersionEdit {
    let tables: Vec<TableId> = (0..bytes as u32 / 10).map(|i| TableId(0x8000 + i)).collect();
    let drop_tables = tables.iter().map(|table| (*table, Seq(1))).collect();
    VersionEdit { drop_tables, forget_tables: tables, ..flushed(seq) }
}

/// Returns an edit of about `bytes` bytes, all of which every later snapshot keeps.
fn lasting(seq: u64, bytes: usize) -> VersionEdit {
    let mut unknown = Vec::new();
    crate::format::field::put_optional_field(&mut unknown, 99, &vec![0; bytes]);
    VersionEdit { unknown, ..flushed(seq) }
}

fn manifests(fs: &MemFs) -> Vec<String> {
    let names = fs.list(Path::new(DIR)).unwrap();
    let is_manifest = |name: &String| matches!(FileName::parse(name), Some(FileName::Manifest(_)));
    names.into_iter().filter(is_manifest).collect()
}

#[test]
fn edits_survive_reopening() {
    let fs = MemFs::new();
    let mut manifest = create(&fs).unwrap();
    assert_eq!(manifest.append(&flushed(5)).unwrap().flushed_seq, Seq(5));
    let position = manifest.position();
    drop(manifest);
    let mut opened = open(&fs).unwrap();
    assert!(opened.torn.is_none() && opened.manifest.usable().is_ok());
    assert_eq!(opened.manifest.version().flushed_seq, Seq(5));
    assert_eq!(opened.manifest.position(), position);
    opened.manifest.append(&flushed(6)).unwrap();
    assert_eq!(open(&fs).unwrap().manifest.version().flushed_seq, Seq(6));
    assert_eq!(manifests(&fs).len(), 1);
}

#[test]
fn the_operations_of_creating_and_appending() {
    let fs = MemFs::new();
    fs.create_dir_all(Path::new(DIR)).unwrap();
    fs.record();
    let (dir, rng) = (Path::new(DIR), Rng::from_seed(1));
    let mut manifest =
        Manifest::create(fs.shared(), dir, identity(), &VersionEdit::default(), rng).unwrap();
    let created = fs.log();
    assert_eq!(
        created,
        [
            "sync-dir .",
            "create db/MANIFEST-000001",
            "allocate db/MANIFEST-000001 65536",
            "write db/MANIFEST-000001 0..64",
            "sync db/MANIFEST-000001",
            "write db/MANIFEST-000001 64..168",
            "sync db/MANIFEST-000001",
            "sync-dir db",
            "create db/CURRENT.tmp",
            "write db/CURRENT.tmp 0..40",
            "sync db/CURRENT.tmp",
            "rename db/CURRENT.tmp db/CURRENT",
            "sync-dir db",
        ]
    );
    manifest.append(&flushed(5)).unwrap();
    assert_eq!(
        fs.log()[created.len()..],
        ["write db/MANIFEST-000001 168..224", "sync db/MANIFEST-000001"]
    );
}

#[test]
fn trap_37_a_manifest_is_rolled_over_when_it_outgrows_its_content() {
    let fs = MemFs::new();
    let mut manifest = create(&fs).unwrap();
    let mut longest = 0;
    for seq in 2..20_000 {
        manifest.append(&flushed(seq)).unwrap();
        longest = longest.max(manifest.position().offset);
    }
    assert!(longest < 80 << 10, "{longest}");
    let rolled = manifests(&fs);
    assert!(rolled.len() > 10);
    assert!(rolled.iter().all(|name| fs.len(Path::new(DIR).join(name)).unwrap() <= 128 << 10));
    assert_eq!(open(&fs).unwrap().manifest.version().flushed_seq, Seq(19_999));
}

#[test]
fn the_rollover_limit_grows_with_the_content() {
    let fs = MemFs::new();
    let mut manifest = create(&fs).unwrap();
    for seq in 2..300 {
        manifest.append(&lasting(seq, 4000)).unwrap();
    }
    // The content is 1.2 MB. The roll-over limit has grown from 64 KiB to 256 KiB and 1 MiB, so
    // that not every edit causes a roll-over.
    assert!(manifests(&fs).len() < 6, "{:?}", manifests(&fs));
}

#[test]
fn trap_36_file_numbers_are_assigned_once() {
    let fs = MemFs::new();
    let mut manifest = create(&fs).unwrap();
    let mut last = FileNumber(1);
    for round in 0..5 {
        for _ in 0..150 {
            let number = manifest.next_number().unwrap();
            assert!(number > last && number < manifest.version().numbers_below);
            last = number;
        }
        let first = manifest.next_numbers(200).unwrap();
        assert!(first > last && first.0 + 199 < manifest.version().numbers_below.0);
        last = FileNumber(first.0 + 199);
        if round == 2 {
            // Leave an orphan, like a roll-over that is interrupted before CURRENT names the new
            // file.
            fs.write("db/MANIFEST-009999", b"").unwrap();
        }
        manifest = open(&fs).unwrap().manifest;
    }
    assert!(last > FileNumber(9999));
}

#[test]
fn trap_51_a_clean_close_covers_its_log_until_the_log_is_removed() {
    let fs = MemFs::new();
    let mut manifest = create(&fs).unwrap();
    let log = LogMeta { number: manifest.next_number().unwrap(), id: FileId(1) };
    let close = CleanClose { log: log.number, end: 4096, last_seq: Seq(9) };
    let add_logs = vec![log];
    let edit = VersionEdit { add_logs, clean_close: Some(close), ..VersionEdit::default() };
    manifest.append(&edit).unwrap();
    assert_eq!(open(&fs).unwrap().manifest.last_close(), Some(close));
    manifest.append(&padded(5, 70_000)).unwrap();
    manifest.append(&flushed(6)).unwrap();
    let mut manifest = open(&fs).unwrap().manifest;
    // The manifest still contains the close. It is not the last edit, because an edit follows it
    // that may not be on the disk.
    assert_eq!((manifest.version().clean_close, manifest.last_close()), (Some(close), None));
    let edit = VersionEdit { remove_logs: vec![log.number], ..VersionEdit::default() };
    manifest.append(&edit).unwrap();
    assert_eq!(open(&fs).unwrap().manifest.version().clean_close, None);
}

#[test]
fn an_edit_that_breaks_an_invariant_is_refused_and_nothing_is_written() {
    let fs = MemFs::new();
    let mut manifest = create(&fs).unwrap();
    let position = manifest.position();
    let log = LogMeta { number: FileNumber(1 << 40), id: FileId(1) };
    let edit = VersionEdit { add_logs: vec![log], ..VersionEdit::default() };
    let error = manifest.append(&edit).unwrap_err();
    assert!(error.to_string().contains("is not reserved"), "{error}");
    assert_eq!(manifest.position(), position);
    manifest.append(&flushed(5)).unwrap();
}

/// On a full disk, an edit that needs a second edit, which states that the first is durable, is
/// refused unless there is space for both.
#[test]
fn an_edit_is_refused_without_space_for_its_durable_offset() {
    let mem = MemFs::new();
    let fs = FaultFs::new(mem.shared());
    let shared: Arc<dyn Fs> = Arc::new(fs.clone());
    let mut manifest = create(&shared).unwrap();
    manifest.append(&padded(9, 30_000)).unwrap();
    let begun = manifest.position().offset;
    manifest.append(&lasting(9, 300)).unwrap();
    let end = manifest.position();
    let around = end.offset - begun - 300;
    // The allocated space is enough for the edit, but not for the second edit too.
    let edit = lasting(10, (ALLOCATED - end.offset - around - 4) as usize);
    fs.arm(Fault::new(FaultKind::Enospc).on(OpKind::Allocate));
    let error = manifest.append_vouched(&edit, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert_eq!((manifest.position(), manifest.version().flushed_seq), (end, Seq(9)));
    assert!(manifest.failure().is_none());
    manifest.append_vouched(&edit, None).unwrap();
    assert_eq!(open(&shared).unwrap().manifest.version().flushed_seq, Seq(10));
}

#[test]
fn an_edit_longer_than_a_record_is_refused() {
    let fs = MemFs::new();
    let mut manifest = create(&fs).unwrap();
    let error = manifest.append(&lasting(5, 17 << 20)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    manifest.append(&flushed(5)).unwrap();
}

#[test]
fn readers_change_nothing() {
    let fs = MemFs::new();
    drop(create(&fs).unwrap());
    fs.set_read_only(true);
    let opened =
        Manifest::open(fs.shared(), Path::new(DIR), Access::ReadOnly, Rng::from_seed(2)).unwrap();
    let mut manifest = opened.manifest;
    assert_eq!(manifest.version().flushed_seq, Seq(1));
    assert_eq!(manifest.append(&flushed(5)).unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(manifest.next_number().is_err());
}

#[test]
fn trap_44_features_of_newer_builds() {
    let fs = MemFs::new();
    let newer = Identity {
        write_features: vec!["gates".into()],
        ignorable_features: vec!["hints".into()],
        ..identity()
    };
    drop(create_with(&fs, newer).unwrap());
    let mut opened = open(&fs).unwrap();
    let why = "db/MANIFEST-000001 needs the feature gates to write";
    let error = opened.manifest.append(&flushed(5)).unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Unsupported, why));

    let fs = MemFs::new();
    let newer = Identity { read_features: vec!["columns".into()], ..identity() };
    drop(create_with(&fs, newer).unwrap());
    let error = open(&fs).unwrap_err();
    let why = "db/MANIFEST-000001 needs the feature columns to read";
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Unsupported, why));
}

#[test]
fn a_directory_without_current_is_new_unless_it_holds_data() {
    let fs = MemFs::new();
    let probe = |fs: &MemFs| probe(fs, Path::new(DIR));
    assert!(!probe(&fs).unwrap());
    fs.create_dir_all(Path::new(DIR)).unwrap();
    fs.write("db/LOCK", b"").unwrap();
    fs.write("db/MANIFEST-000001", b"half").unwrap();
    fs.write("db/CURRENT.tmp", b"half").unwrap();
    assert!(!probe(&fs).unwrap());
    for name in ["000002.wal", "000002.sst"] {
        fs.write(Path::new(DIR).join(name), b"").unwrap();
        let error = probe(&fs).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert_eq!(
            error.to_string(),
            format!("current at byte 0 of db/CURRENT: it is missing, and {name} is there")
        );
        fs.erase(Path::new(DIR).join(name)).unwrap();
    }
    let manifest = create(&fs).unwrap();
    assert_eq!(manifest.position().file, FileNumber(2));
    assert!(probe(&fs).unwrap());
}

//! Tests the manifest with a power failure, a process kill or an error at every file system
//! operation.

use super::*;
use crate::fs::{Fault, FaultFs, FaultKind, OpKind};

/// Opens the database, and checks that the manifest has the length that it states.
fn open(fs: &dyn CloneFs) -> Result<Opened> {
    super::open(fs).inspect(|opened| assert!(opened.short.is_none(), "{:?}", opened.short))
}

/// Opens the database, or creates it if there is none yet.
fn open_or_create(fs: &MemFs) -> Manifest {
    match probe(fs, Path::new(DIR)).unwrap() {
        false => create(fs).unwrap(),
        true => open(fs).unwrap().manifest,
    }
}

#[test]
fn trap_46_trap_47_a_creation_cut_short_anywhere_is_completed_or_repeated() {
    let fs = MemFs::new();
    fs.record();
    drop(create(&fs).unwrap());
    for op in fs.recorded() {
        for seed in 0..8 {
            let image = fs.crash_image_at(op, seed).unwrap();
            image.record();
            let mut manifest = open_or_create(&image);
            manifest.append(&flushed(7)).unwrap();
            // An edit acknowledged after the reopening survives a second power cut, which may undo
            // directory entries that were not synced.
            for seed in 0..2 {
                let again = open(&image.crash_image(seed)).unwrap();
                assert_eq!(again.manifest.version().flushed_seq, Seq(7), "op {op}");
            }
            // A crash may also interrupt this second creation or opening.
            for second in image.recorded() {
                drop(open_or_create(&image.crash_image_at(second, seed).unwrap()));
            }
        }
        drop(open_or_create(&fs.kill_image_at(op).unwrap()));
    }
}

/// A recorded history of edits with roll-overs. `acknowledged` and `numbers` state after how many
/// file system operations a Seq was acknowledged or a file number was assigned.
struct History {
    fs: MemFs,
    acknowledged: Vec<(u64, u64)>,
    numbers: Vec<(u64, FileNumber)>,
}

fn history() -> History {
    let fs = MemFs::new();
    let mut manifest = create(&fs).unwrap();
    fs.record();
    let mut history = History { fs, acknowledged: Vec::new(), numbers: Vec::new() };
    for seq in 2..19 {
        manifest.append(&padded(seq, 9000)).unwrap();
        history.acknowledged.push((history.fs.ops(), seq));
        for _ in 0..9 {
            let number = manifest.next_number().unwrap();
            history.numbers.push((history.fs.ops(), number));
        }
    }
    assert!(manifests(&history.fs).len() > 2);
    history
}

#[test]
fn trap_06_trap_07_after_a_power_cut_every_acknowledged_edit_is_there() {
    let history = history();
    for op in history.fs.recorded() {
        let before = history.acknowledged.iter().take_while(|(at, _)| *at <= op);
        let acknowledged = before.last().map_or(1, |(_, seq)| *seq);
        for seed in 0..2 {
            let image = history.fs.crash_image_at(op, seed).unwrap();
            let mut manifest = open(&image).unwrap().manifest;
            let found = manifest.version().flushed_seq.0;
            assert!(found == acknowledged || found == acknowledged + 1, "op {op} seed {seed}");
            manifest.append(&flushed(found + 100)).unwrap();
            let again = open(&image.crash_image(seed)).unwrap();
            assert_eq!(again.manifest.version().flushed_seq, Seq(found + 100));
        }
    }
}

#[test]
fn trap_36_file_numbers_are_not_reused_after_a_power_cut() {
    let history = history();
    for op in history.fs.recorded() {
        let before = history.numbers.iter().take_while(|(at, _)| *at <= op);
        let last = before.last().map_or(FileNumber(1), |(_, number)| *number);
        let image = history.fs.crash_image_at(op, op).unwrap();
        let mut manifest = open(&image).unwrap().manifest;
        assert!(manifest.next_number().unwrap() > last, "op {op}");
        // The number of the next manifest must not collide with a manifest that CURRENT never
        // named.
        manifest.append(&padded(1000, 70_000)).unwrap();
        manifest.append(&flushed(1001)).unwrap();
    }
}

#[test]
fn trap_50_current_is_replaced_and_manifests_are_not_truncated_or_removed() {
    let history = history();
    for line in history.fs.log() {
        assert!(!line.starts_with("write db/CURRENT "), "{line}");
        assert!(!line.starts_with("truncate"), "{line}");
        assert!(!line.starts_with("remove db/MANIFEST"), "{line}");
    }
}

#[test]
fn recovery_syncs_accepted_edits_before_new_ones_depend_on_them() {
    let fs = MemFs::new();
    let mut manifest = create(&fs).unwrap();
    fs.record();
    manifest.append(&flushed(5)).unwrap();
    // The process ends after the write and before the sync.
    let written = *fs.recorded().end() - 1;
    let image = fs.kill_image_at(written).unwrap();
    assert_eq!(open(&image).unwrap().manifest.version().flushed_seq, Seq(5));
    for seed in 0..20 {
        let again = open(&image.crash_image(seed)).unwrap();
        assert_eq!(again.manifest.version().flushed_seq, Seq(5));
    }
}

/// Runs edits until one fails; returns the last acknowledged Seq and the error.
fn run(fs: &Arc<dyn Fs>) -> (u64, Option<Error>) {
    let mut manifest = match create(fs) {
        Ok(manifest) => manifest,
        Err(error) => return (0, Some(error)),
    };
    let mut acknowledged = 1;
    for seq in 2..9 {
        if let Err(error) = manifest.append(&padded(seq, 12_000)) {
            let full = error.kind() == ErrorKind::StorageFull;
            let next = manifest.append(&flushed(seq));
            match next {
                // A full disk refuses the edit before a byte is written, so the next edit may
                // succeed.
                Ok(_) => assert!(full, "{error}"),
                Err(next) => assert!(full || next.kind() == ErrorKind::Poisoned, "{next}"),
            }
            let last = manifest.version().flushed_seq.0;
            return (last.max(acknowledged), Some(error));
        }
        acknowledged = seq;
    }
    (acknowledged, None)
}

#[test]
fn trap_01_trap_02_trap_48_each_operation_fails_once_and_nothing_acknowledged_is_lost() {
    for kind in [FaultKind::Eio, FaultKind::Enospc, FaultKind::ShortWrite] {
        for nth in 0.. {
            let disk = MemFs::new();
            let faulty = FaultFs::new(Arc::new(disk.clone()));
            faulty.arm(Fault::new(kind).nth(nth));
            let fs: Arc<dyn Fs> = Arc::new(faulty.clone());
            let (acknowledged, error) = run(&fs);
            if faulty.delivered() == 0 {
                assert!(nth > 30 && error.is_none());
                break;
            }
            for seed in 0..3 {
                let image = disk.crash_image(seed);
                if !probe(&image, Path::new(DIR)).unwrap() {
                    assert_eq!(acknowledged, 0, "{kind:?} {nth}");
                    drop(create(&image).unwrap());
                    continue;
                }
                let found = open(&image).unwrap().manifest.version().flushed_seq.0;
                assert!(found >= acknowledged, "{kind:?} {nth}: {found} of {acknowledged}");
            }
        }
    }
}

#[test]
fn trap_02_a_failed_sync_ends_writing() {
    let disk = MemFs::new();
    let faulty = FaultFs::new(Arc::new(disk.clone()));
    let fs: Arc<dyn Fs> = Arc::new(faulty.clone());
    let mut manifest = create(&fs).unwrap();
    manifest.append(&flushed(2)).unwrap();
    faulty.arm(Fault::new(FaultKind::Eio).on(OpKind::Sync));
    assert_eq!(manifest.append(&flushed(3)).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(manifest.append(&flushed(4)).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(manifest.version().flushed_seq, Seq(2));
    let found = open(&disk.crash_image(1)).unwrap().manifest.version().flushed_seq;
    assert!(found == Seq(2) || found == Seq(3));
}

#[test]
fn trap_48_a_failed_sync_of_the_directory_is_an_error() {
    let disk = MemFs::new();
    let faulty = FaultFs::new(Arc::new(disk.clone()));
    let fs: Arc<dyn Fs> = Arc::new(faulty.clone());
    let mut manifest = create(&fs).unwrap();
    manifest.append(&padded(2, 70_000)).unwrap();
    faulty.arm(Fault::new(FaultKind::Eio).on(OpKind::SyncDir));
    assert_eq!(manifest.append(&flushed(3)).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(manifest.append(&flushed(4)).unwrap_err().kind(), ErrorKind::Poisoned);
}

#[test]
fn trap_27_a_full_disk_refuses_and_spoils_nothing() {
    let fs = MemFs::new();
    let mut manifest = create(&fs).unwrap();
    fs.set_quota(Some(fs.used()));
    let position = manifest.position();
    let error = manifest.append(&padded(2, 70_000)).unwrap_err();
    assert_eq!((error.kind(), manifest.position()), (ErrorKind::StorageFull, position));
    // An edit that fits the space already allocated still succeeds.
    manifest.append(&flushed(2)).unwrap();
    fs.set_quota(None);
    manifest.append(&padded(3, 70_000)).unwrap();
    // A roll-over is due, but there is no space for a second file.
    fs.set_quota(Some(fs.used()));
    manifest.append(&flushed(4)).unwrap();
    assert_eq!(manifests(&fs).len(), 1);
    assert_eq!(open(&fs).unwrap().manifest.version().flushed_seq, Seq(4));
}

//! Tests that every operation can be made to fail, and that each failure has the documented effect.

use std::io::ErrorKind;

use super::*;
use crate::fs::MemFs;

fn path(path: &str) -> &Path {
    Path::new(path)
}

fn both() -> (MemFs, FaultFs) {
    let mem = MemFs::new();
    (mem.clone(), FaultFs::new(Arc::new(mem)))
}

/// Calls every operation at least once.
fn every_operation(fs: &FaultFs) -> io::Result<()> {
    fs.create_dir_all(path("d"))?;
    let file = fs.create(path("d/f"))?;
    file.allocate(100)?;
    file.write_at(0, b"abcdefgh")?;
    file.set_len(8)?;
    file.sync()?;
    assert_eq!(file.len()?, 8);
    fs.rename(path("d/f"), path("d/g"))?;
    fs.link(path("d/g"), path("d/h"))?;
    fs.sync_dir(path("d"))?;
    drop(fs.open_write(path("d/g"))?);
    let read = fs.open_read(path("d/g"))?;
    let mut buffer = [0; 8];
    read.read_at(0, &mut buffer)?;
    assert_eq!((&buffer, &read.map()?[..]), (b"abcdefgh", &b"abcdefgh"[..]));
    assert_eq!(fs.list(path("d"))?, ["g", "h"]);
    drop(fs.lock(path("LOCK"))?);
    fs.remove(path("d/g"))?;
    fs.remove(path("d/h"))?;
    fs.remove_dir(path("d"))
}

#[test]
fn every_kind_of_operation_is_counted() {
    let (_, fs) = both();
    every_operation(&fs).unwrap();
    for op in OpKind::ALL {
        assert!(fs.count(op) > 0, "{op}");
    }
    assert_eq!((fs.ops(), fs.delivered()), (OpKind::ALL.map(|op| fs.count(op)).iter().sum(), 0));
}

#[test]
fn syncs_are_carried_out_if_their_guard_permits() {
    for lie in [OpKind::Sync, OpKind::SyncDir] {
        let (mem, fs) = both();
        fs.guard_syncs(move |op, _| op != lie);
        fs.create_dir_all(path("d")).unwrap();
        let file = fs.create(path("d/f")).unwrap();
        file.write_at(0, b"whole").unwrap();
        file.sync().unwrap();
        fs.sync_dir(path("d")).unwrap();
        assert_eq!((fs.count(OpKind::Sync), fs.count(lie) > 0), (1, true));
        // The guard skipped the sync, so with some seeds the bytes do not survive a power cut.
        let is_whole = |seed| {
            let left = mem.crash_image(seed);
            let mut bytes = [0; 5];
            let read = left.open_read(path("d/f")).and_then(|file| file.read_at(0, &mut bytes));
            read.is_ok() && &bytes == b"whole"
        };
        assert!(!(0..50).all(is_whole), "{lie}");
        fs.guard_syncs(|_, _| true);
        file.sync().unwrap();
        fs.sync_dir(path("d")).unwrap();
        assert!((0..50).all(is_whole), "{lie}");
    }
}

/// Makes operation 0, 1, 2 and so on fail, one in each run, until a run has fewer operations. The
/// engine's tests use the same kind of loop.
#[test]
fn the_nth_operation_fails_and_no_other() {
    for kind in [FaultKind::Eio, FaultKind::Enospc, FaultKind::ShortWrite] {
        let mut n = 0;
        loop {
            let (_, fs) = both();
            fs.arm(Fault::new(kind).nth(n));
            let result = every_operation(&fs);
            assert_eq!(result.is_err(), fs.delivered() == 1, "{kind:?} at {n}");
            if result.is_ok() {
                break;
            }
            assert_eq!(fs.ops(), n + 1, "the failed operation is the last");
            n += 1;
        }
        assert!(n > 20);
    }
}

#[test]
fn interruptions_and_short_transfers_are_completed_everywhere() {
    for kind in [FaultKind::Eintr, FaultKind::ShortTransfer] {
        let (_, fs) = both();
        fs.arm(Fault::new(kind).sticky());
        every_operation(&fs).unwrap();
        assert_eq!(fs.delivered(), fs.ops());
    }
}

#[test]
fn each_kind_of_operation_can_be_failed_alone() {
    for op in OpKind::ALL {
        let (_, fs) = both();
        fs.arm(Fault::new(FaultKind::Eio).on(op));
        let error = every_operation(&fs).unwrap_err();
        assert!(error.to_string().starts_with(&op.to_string()), "{error}");
        assert_eq!((fs.delivered(), fs.count(op)), (1, 1));
        every_operation(&both().1).unwrap();
    }
}

#[test]
fn sticky_faults_last_until_they_are_disarmed() {
    let (_, fs) = both();
    let file = fs.create(path("f")).unwrap();
    fs.arm(Fault::new(FaultKind::Enospc).on(OpKind::Write).nth(1).sticky());
    file.write_at(0, b"a").unwrap();
    for _ in 0..3 {
        assert_eq!(file.write_at(1, b"b").unwrap_err().kind(), ErrorKind::StorageFull);
    }
    fs.disarm();
    file.write_at(1, b"b").unwrap();
    assert_eq!((fs.delivered(), fs.count(OpKind::Write)), (3, 5));
}

#[test]
fn a_fault_can_be_bound_to_a_path() {
    let (_, fs) = both();
    fs.arm(Fault::new(FaultKind::Eio).on(OpKind::Create).on_path("CURRENT").nth(1));
    drop(fs.create(path("a")).unwrap());
    drop(fs.create(path("CURRENT")).unwrap());
    fs.remove(path("CURRENT")).unwrap();
    drop(fs.create(path("b")).unwrap());
    assert!(fs.create(path("CURRENT")).is_err());
    assert!(fs.create(path("CURRENT")).is_ok());
}

#[test]
fn an_unreadable_stretch_does_not_affect_the_rest_of_the_file() {
    let (mem, fs) = both();
    let bytes: Vec<u8> = (0..30).collect();
    for name in ["bad", "good"] {
        mem.write(name, &bytes).unwrap();
    }
    let stretch = Fault::new(FaultKind::Eio).on_path("bad").within(10..20);
    fs.arm(stretch.clone().sticky());
    let read = |name: &str, at: u64, len: usize| {
        let mut buffer = vec![0; len];
        let read = fs.open_read(path(name)).unwrap().read_at(at, &mut buffer);
        read.map(|()| buffer).ok()
    };
    // A read of the file `bad` must fail if it includes a byte of the range, and succeed otherwise.
    for at in 0..30 {
        for len in 0..=30 - at {
            let touches = at < 20 && at + len > 10 && len > 0;
            let expected = (!touches).then(|| bytes[at..at + len].to_vec());
            assert_eq!(read("bad", at as u64, len), expected, "{len} bytes at {at}");
        }
    }
    assert_eq!(read("good", 0, 30), Some(bytes.clone()));
    assert!(fs.open_read(path("bad")).unwrap().map().is_err());
    assert!(fs.open_read(path("good")).unwrap().map().is_ok());
    // Only reads and maps fail: writing must succeed, even in the range.
    let file = fs.open_write(path("bad")).unwrap();
    file.write_at(10, b"mended").and_then(|()| file.sync()).unwrap();
    assert_eq!(file.len().unwrap(), 30);
    fs.disarm();
    assert_eq!(&read("bad", 8, 10).unwrap()[2..8], b"mended");
    // A fault that is not sticky applies once. Reads outside the range are not counted.
    fs.arm(stretch.nth(1));
    let found: Vec<bool> =
        [0, 15, 5, 15, 15].map(|at| read("bad", at, 3).is_some()).into_iter().collect();
    assert_eq!(found, [true, true, true, false, true]);
}

#[test]
fn a_short_write_leaves_its_first_half() {
    let (mem, fs) = both();
    let file = fs.create(path("f")).unwrap();
    fs.arm(Fault::new(FaultKind::ShortWrite));
    assert!(file.write_at(0, b"abcdef").is_err());
    assert_eq!(mem.read("f").unwrap(), b"abc");
}

#[test]
fn trap_02_a_failed_sync_loses_data_even_if_a_later_one_succeeds() {
    let (mem, fs) = both();
    let file = fs.create(path("f")).unwrap();
    fs.sync_dir(path(".")).unwrap();
    file.allocate(512).unwrap();
    file.sync().unwrap();
    file.write_at(0, b"abc").unwrap();
    fs.arm(Fault::new(FaultKind::Eio).on(OpKind::Sync));
    assert!(file.sync().is_err());
    file.sync().unwrap();
    assert_eq!(&mem.read("f").unwrap()[..3], b"abc", "unsynced bytes are still readable");
    assert!((0..50).all(|seed| mem.crash_image(seed).read("f").unwrap() == [0; 512]));
}

#[test]
fn trap_48_a_failed_sync_of_a_directory_is_reported_and_its_names_are_in_doubt() {
    let (mem, fs) = both();
    fs.create(path("f")).unwrap().sync().unwrap();
    fs.arm(Fault::new(FaultKind::Eio).on(OpKind::SyncDir));
    assert!(fs.sync_dir(path(".")).is_err());
    assert!((0..50).any(|seed| mem.crash_image(seed).paths().is_empty()));
}

#[test]
fn trap_48_creating_directories_reports_every_failed_step() {
    let steps = |fs: &FaultFs| fs.create_dir_all(path("a/b"));
    let (_, fs) = both();
    steps(&fs).unwrap();
    for n in 0..fs.ops() {
        let (_, fs) = both();
        fs.arm(Fault::new(FaultKind::Eio).nth(n));
        assert!(steps(&fs).is_err(), "step {n}");
        steps(&fs).unwrap();
    }
}

//! Tests closing a database, and operations of other handles and threads during and after the
//! close.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::error::Error;
use crate::fs::{Fault, FaultFs, FaultKind, Fs, OpKind};
use crate::options::IoMode;

#[test]
fn after_a_close_other_handles_do_not_change_the_directory() {
    let fs = MemFs::new();
    let db = open(&fs);
    let table = db.create_table("things").unwrap();
    for i in 0..3 {
        table.upsert(row(i, 0)).unwrap();
        db.flush().unwrap();
        table.upsert(row(i, 1)).unwrap();
    }
    let other = db.clone();
    db.close().unwrap();
    let somebody = open(&fs);
    let before = fs.ops();
    assert_eq!(table.upsert(row(1, 2)).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(other.flush().map_err(|error| error.kind()), Err(ErrorKind::InvalidInput));
    drop(other.compact());
    while other.step(Duration::ZERO) {}
    other.close().unwrap();
    let named = fs.log();
    assert_eq!(fs.ops(), before, "{named:?}");
    somebody.close().unwrap();
}

#[test]
fn a_close_releases_preallocated_space() {
    let fs = MemFs::new();
    let lengths = |fs: &MemFs| -> Vec<(String, u64)> {
        let names = fs.list(Path::new("db")).unwrap().into_iter();
        let logs = names.filter(|name| name.ends_with(".wal") || name.starts_with("MANIFEST"));
        logs.map(|name| (name.clone(), fs.len(format!("db/{name}")).unwrap())).collect()
    };
    for round in 0..4 {
        let db = options(&fs).open("db").unwrap();
        let table = db.table_or_create("things").unwrap();
        table.upsert(row(round, 0)).unwrap();
        // Lets background work prepare the next log.
        while db.step(Duration::ZERO) {}
        let open = lengths(&fs);
        db.close().unwrap();
        let closed = lengths(&fs);
        assert!(open.len() > 2 && open.iter().any(|(_, len)| *len >= 4 << 10), "{open:?}");
        assert!(closed.iter().all(|(_, len)| *len < 4 << 10), "{open:?} -> {closed:?}");
        for seed in 0..20 {
            let image = fs.crash_image(seed);
            let db = options(&image).open("db").unwrap();
            let table = db.table("things").unwrap();
            let is_there = |i| table.get(&format!("p{i}"), &format!("{i:06}")).unwrap().is_some();
            assert!((0..=round).all(is_there));
        }
    }
}

#[test]
fn a_session_that_only_reads_after_a_close_writes_nothing() {
    let memory = MemFs::new();
    let db = open(&memory);
    db.create_table("things").unwrap().insert(row(1, 0)).unwrap();
    while db.step(Duration::ZERO) {}
    db.close().unwrap();
    let fs = FaultFs::new(Arc::new(memory.clone()));
    let reopen = || options(&memory).fs(Arc::new(fs.clone())).open("db").unwrap();
    let writes = [
        OpKind::Create,
        OpKind::Write,
        OpKind::Allocate,
        OpKind::SetLen,
        OpKind::Sync,
        OpKind::SyncDir,
        OpKind::Rename,
        OpKind::Remove,
    ];
    for _ in 0..10 {
        let db = reopen();
        let table = db.table("things").unwrap();
        assert!(table.get("p1", "000001").unwrap().is_some());
        let refused = table.insert(row(1, 1)).map_err(|error| error.kind());
        assert_eq!(refused.unwrap_err(), ErrorKind::AlreadyExists);
        while db.step(Duration::ZERO) {}
        db.sync().unwrap();
        db.close().unwrap();
        assert_eq!(writes.map(|op| fs.count(op)), [0; 8]);
    }
    // The first commit after a reopening creates a log, and must survive a power cut. After the
    // next close, a power cut must leave no torn log.
    for i in 2..5 {
        let db = reopen();
        db.table("things").unwrap().insert(row(i, 0)).unwrap();
        for seed in 0..20 {
            let db = open(&memory.crash_image(seed));
            assert_eq!(
                db.table("things").unwrap().scan(KeyRange::all()).into_iter().count(),
                i as usize
            );
        }
        db.close().unwrap();
        assert_eq!(open(&memory.crash_image(0)).opened().torn, None);
    }
}

/// Expiry needs the time recorded in the manifest. A close records it only if an hour has passed
/// since the last record.
#[test]
fn reading_rows_that_expire_writes_nothing_but_the_clock() {
    let memory = MemFs::new();
    let clock = Arc::new(ManualClock::new(NOW));
    let options = |memory: &MemFs| options(memory).clock(clock.clone());
    let db = options(&memory).open("db").unwrap();
    db.create_table("things").unwrap().insert(row(1, 0)).unwrap();
    db.set_ttl("things", Some(Duration::from_secs(365 * 86_400))).unwrap();
    while db.step(Duration::ZERO) {}
    db.close().unwrap();
    let fs = FaultFs::new(Arc::new(memory.clone()));
    let read = || {
        let db = options(&memory).fs(Arc::new(fs.clone())).open("db").unwrap();
        assert!(db.table("things").unwrap().get("p1", "000001").unwrap().is_some());
        while db.step(Duration::ZERO) {}
        db.close().unwrap();
        [OpKind::Create, OpKind::Write, OpKind::Sync, OpKind::SyncDir].map(|op| fs.count(op))
    };
    for _ in 0..3 {
        clock.advance(Duration::from_secs(19 * 60));
        assert_eq!(read(), [0; 4]);
    }
    clock.advance(Duration::from_secs(3 * 60));
    let written = read();
    assert!(written.iter().all(|count| *count > 0), "{written:?}");
    assert_eq!(read(), written);
}

#[test]
fn a_close_with_a_failed_sync_is_made_durable_before_the_first_commit() {
    let memory = MemFs::new();
    let db = open(&memory);
    db.create_table("things").unwrap().insert(row(1, 0)).unwrap();
    db.close().unwrap();
    let fs = FaultFs::new(Arc::new(memory.clone()));
    let db = options(&memory).fs(Arc::new(fs.clone())).open("db").unwrap();
    db.table("things").unwrap().insert(row(2, 0)).unwrap();
    while db.step(Duration::ZERO) {}
    let manifest = memory.paths().into_iter().find(|path| path.contains("MANIFEST")).unwrap();
    fs.arm(Fault::new(FaultKind::Eio).on(OpKind::Sync).on_path(&manifest));
    assert!(db.close().is_err());
    // The file system still returns the unsynced data, because the machine did not stop.
    let db = open(&memory);
    db.table("things").unwrap().insert(row(3, 0)).unwrap();
    db.flush().unwrap();
    for seed in 0..40 {
        let db = open(&memory.crash_image(seed));
        assert_eq!(db.table("things").unwrap().scan(KeyRange::all()).into_iter().count(), 3);
    }
}

#[test]
fn a_compaction_after_a_close_is_closed_again() {
    let fs = MemFs::new();
    let db = open(&fs);
    let table = db.create_table("things").unwrap();
    for i in 0..3 {
        table.insert(row(i, 0)).unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    let db = open(&fs);
    db.compact().unwrap();
    db.close().unwrap();
    let manifest = fs.paths().into_iter().find(|path| path.contains("MANIFEST")).unwrap();
    let db = open(&fs.kill_image());
    assert_eq!((db.opened().replayed, db.opened().orphans), (0, 0));
    assert_eq!(db.table("things").unwrap().scan(KeyRange::all()).into_iter().count(), 3);
    // The new log states how long the manifest must be, including the edit of the compaction. So a
    // manifest that was cut before this edit is refused, instead of opening with other rows.
    let image = fs.kill_image();
    let len = fs.len(&manifest).unwrap();
    let opens = (64..len).step_by(8).filter(|len| {
        let image = image.kill_image();
        image.truncate(&manifest, *len).unwrap();
        options(&image).open("db").is_ok()
    });
    let lost = opens.map(|len| {
        let image = image.kill_image();
        image.truncate(&manifest, len).unwrap();
        let db = open(&image);
        db.table("things").unwrap().scan(KeyRange::all()).into_iter().count()
    });
    assert!(lost.into_iter().all(|rows| rows == 3));
}

#[test]
fn trap_51_a_death_during_a_close_leaves_a_log_that_the_next_opening_syncs() {
    let fs = MemFs::new();
    let db = open(&fs);
    let table = db.create_table("things").unwrap();
    table.insert(row(1, 0)).unwrap();
    fs.record();
    db.close().unwrap();
    for op in fs.recorded() {
        let image = fs.kill_image_at(op).unwrap();
        let db = open(&image);
        db.table("things").unwrap().insert(row(2, 0)).unwrap();
        for seed in 0..20 {
            let db = open(&image.crash_image(seed));
            let table = db.table("things").unwrap();
            assert!(table.get("p2", "000002").unwrap().is_some(), "operation {op}, seed {seed}");
        }
    }
}

/// Returns the file and the offset that opening `fs` reports as damaged.
fn damage(fs: &MemFs) -> (String, u64) {
    let error = options(fs).open("db").unwrap_err();
    let corruption = error.corruption().expect("damage");
    (corruption.file.display().to_string(), corruption.offset)
}

#[test]
fn damage_after_a_clean_close_is_reported_at_its_offset() {
    let fs = MemFs::new();
    let db = open(&fs);
    db.create_table("things").unwrap().insert(row(1, 0)).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let log = fs.paths().into_iter().find(|path| path.ends_with(".wal")).unwrap();
    // Damages the first record of the only log.
    let image = fs.kill_image();
    image.flip(&log, 70, 1).unwrap();
    assert_eq!(damage(&image), (log, 64));
    // Truncates the manifest so that it refers to a log that was removed. The last record of the
    // existing log proves that the manifest was longer.
    let manifest = fs.paths().into_iter().find(|path| path.contains("MANIFEST")).unwrap();
    let named = (64..fs.len(&manifest).unwrap()).step_by(8).map(|len| {
        let image = fs.kill_image();
        image.truncate(&manifest, len).unwrap();
        options(&image).open("db").map_or_else(
            |error| error.corruption().map(|damage| damage.file.display().to_string()),
            |_| None,
        )
    });
    for name in named.flatten() {
        assert_eq!(name, manifest);
    }
}

#[test]
fn trap_51_a_truncated_closed_log_is_detected_after_a_session_that_died() {
    let fs = MemFs::new();
    open(&fs).create_table("things").unwrap();
    let fs = fs.kill_image();
    let db = open(&fs);
    db.table("things").unwrap().insert(row(1, 0)).unwrap();
    db.close().unwrap();
    let log = fs.paths().into_iter().filter(|path| path.ends_with(".wal")).max().unwrap();
    let mut cut = 0;
    // A truncation within the records is reported. A truncation after the records removes only
    // reserved space, so the row exists.
    for len in 0..1024 {
        let image = fs.kill_image();
        image.truncate(&log, len).unwrap();
        match options(&image).open("db") {
            Ok(db) => assert!(db.table("things").unwrap().get("p1", "000001").unwrap().is_some()),
            Err(error) => {
                let damage = error.corruption().expect("damage");
                assert_eq!(damage.file.display().to_string(), log, "{len}: {error:?}");
                cut += 1;
            }
        }
    }
    assert!(cut > 100, "{cut}");
}

#[test]
fn a_dropped_database_can_be_opened_again_at_once() {
    let fs = MemFs::new();
    for i in 0..200 {
        let db = options(&fs).background(Background::Threads).open("db").unwrap();
        db.table_or_create("things").unwrap().upsert(row(i, 0)).unwrap();
    }
}

#[test]
fn a_checkpoint_continues_with_its_own_file_numbers() {
    let fs = MemFs::new();
    let db = open(&fs);
    // Creates more ranges than the number of range ids reserved at a time.
    for i in 0..100 {
        let table = db.create_table(&format!("table{i}")).unwrap();
        table.insert(row(i, 0)).unwrap();
    }
    db.checkpoint("copy").unwrap();
    let copy = options(&fs).open("copy").unwrap();
    for i in 0..30 {
        let table = copy.create_table(&format!("more{i}")).unwrap();
        table.insert(row(i, 0)).unwrap();
        copy.flush().unwrap();
    }
    assert_eq!(copy.tables().unwrap().len(), 130);
    copy.close().unwrap();
    db.close().unwrap();
}

#[test]
fn trap_30_a_log_that_is_nearly_full_does_not_keep_the_background_busy() {
    let fs = MemFs::new();
    let db = options(&fs).memtable_bytes(1 << 20).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    for i in 0..250 {
        table.upsert(row(i, 0).with("Filler", vec![7; 1000])).unwrap();
        let steps = (0..1000).take_while(|_| db.step(Duration::ZERO)).count();
        assert!(steps < 1000, "background steps do not end after {i} rows");
    }
}

#[test]
fn trap_27_sync_and_close_succeed_on_a_full_disk() {
    let fs = MemFs::new();
    let db = options(&fs).memtable_bytes(1 << 20).open("db").unwrap();
    let table = db.create_table("things").unwrap().with_durability(Durability::Os);
    table.insert(row(0, 0)).unwrap();
    db.step(Duration::ZERO);
    fs.set_quota(Some(fs.used()));
    let full = (1..10_000).find_map(|i| table.insert(row(i, 0)).err().map(|error| (i, error)));
    let (rows, error) = full.unwrap();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    db.sync().unwrap();
    assert!(table.get("p0", "000000").unwrap().is_some());
    db.close().unwrap();
    fs.set_quota(None);
    let db = open(&fs);
    assert_eq!(db.opened().torn, None);
    let table = db.table("things").unwrap();
    assert_eq!(table.scan(KeyRange::all()).into_iter().count(), rows as usize);
    table.insert(row(rows, 0)).unwrap();
}

/// On a full disk, weak commits after pauses are refused. Their Seq reservations do not use the log
/// space that a close needs.
#[test]
fn trap_27_a_close_succeeds_after_refused_commits_on_a_full_disk() {
    let (fs, clock) = (MemFs::new(), Arc::new(ManualClock::new(NOW)));
    let options = options(&fs).memtable_bytes(1 << 20).clock(clock.clone());
    let db = options.open("db").unwrap();
    let table = db.create_table("things").unwrap().with_durability(Durability::Os);
    table.insert(row(0, 0)).unwrap();
    db.step(Duration::ZERO);
    fs.set_quota(Some(fs.used()));
    let full = (1..10_000).find(|i| table.insert(row(*i, 0)).is_err());
    for _ in 0..20 {
        clock.advance(Duration::from_secs(60));
        let refused = table.insert(row(20_000, 0)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StorageFull);
    }
    db.sync().unwrap();
    db.close().unwrap();
    fs.set_quota(None);
    let db = open(&fs);
    assert_eq!(db.opened().torn, None);
    let rows = db.table("things").unwrap().scan(KeyRange::all()).count().unwrap();
    assert_eq!(Some(rows as u32), full);
}

/// If reserving space for a log fails, the log accepts no more records, not even records that would
/// fit into the space that is already reserved.
#[test]
fn trap_01_a_failed_reservation_ends_writing_for_weak_commits_too() {
    for in_the_background in [false, true] {
        let memory = MemFs::new();
        let fs = FaultFs::new(Arc::new(memory.clone()));
        let options = options(&memory).memtable_bytes(1 << 20).fs(Arc::new(fs.clone()));
        let db = options.open("db").unwrap();
        let table = db.create_table("things").unwrap().with_durability(Durability::Buffered);
        table.insert(row(0, 0)).unwrap();
        // Background work creates the next log here, so the reservation that fails later is one in
        // the current log.
        while db.step(Duration::ZERO) {}
        fs.arm(Fault::new(FaultKind::Eio).on(OpKind::Allocate).on_path(".wal"));
        let large = |i: u32| table.insert(row(i, 0).with("Filler", vec![7; 20_000]));
        let failed = (1..1000).find_map(|i| {
            if in_the_background {
                db.step(Duration::ZERO);
            }
            large(i).err()
        });
        let kind = failed.unwrap().kind();
        assert!(matches!(kind, ErrorKind::Io | ErrorKind::Poisoned), "{kind:?}");
        let small = table.insert(row(2000, 0)).map_err(|error| error.kind());
        assert_eq!(small.unwrap_err(), ErrorKind::Poisoned);
        assert!(table.get("p0", "000000").unwrap().is_some(), "reads still succeed");
    }
}

#[test]
fn trap_49_failure_to_create_a_log_is_reported_and_transient() {
    let memory = MemFs::new();
    let fs = FaultFs::new(Arc::new(memory.clone()));
    let db = options(&memory).fs(Arc::new(fs.clone())).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    fs.arm(Fault::new(FaultKind::Eio).on(OpKind::Create).on_path(".wal").sticky());
    let write = |i: u32| table.upsert(row(i, 0).with("Filler", vec![7; 9000]));
    let error: Error = (0..100).find_map(|i| write(i).err()).unwrap();
    assert_eq!(error.kind(), ErrorKind::Io);
    fs.disarm();
    for i in 0..30 {
        write(i).unwrap();
    }
    db.close().unwrap();
}

#[test]
fn trap_28_compacting_a_damaged_file_is_an_error() {
    let fs = MemFs::new();
    let db = options(&fs).io_mode(IoMode::Pread).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    for version in 0..2 {
        for i in 0..100 {
            table.upsert(row(i, version)).unwrap();
        }
        db.flush().unwrap();
    }
    let largest = fs.paths().into_iter().filter(|path| path.ends_with(".sst"));
    let largest = largest.max_by_key(|path| fs.len(path).unwrap()).unwrap();
    fs.flip(&largest, 700, 1).unwrap();
    assert_eq!(db.compact().map_err(|error| error.kind()), Err(ErrorKind::Corruption));
    assert_eq!(db.stats().get("trouble"), Some(1));
    let steps = (0..1000).take_while(|_| db.step(Duration::ZERO)).count();
    assert!(steps < 1000, "a damaged file is compacted again and again");
}

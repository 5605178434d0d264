//! Runs a sequence of operations once for every n and every kind of failure, and makes the n-th
//! file operation fail.

use std::collections::BTreeMap;

use super::*;
use crate::error::Result;
use crate::fs::{Fault, FaultFs, FaultKind, OpKind};

/// The allowed values by row key, where -1 means that the row is absent.
type Acknowledged = BTreeMap<u32, Vec<i32>>;

struct Run {
    memory: MemFs,
    fs: FaultFs,
    /// The allowed values of each key: the last acknowledged one, and later ones whose write
    /// failed.
    allowed: Acknowledged,
    created: bool,
    failed: u32,
}

impl Run {
    fn options(&self) -> Options {
        options(&self.memory).fs(Arc::new(self.fs.clone()))
    }

    fn write(&mut self, db: &Db, key: u32, value: i32) -> Result<()> {
        let table = db.table_or_create("things")?;
        self.created = true;
        let entity = Entity::new("p", format!("{key:04}"))
            .with("V", value)
            .with("Filler", vec![value as u8; 9000]);
        let result = table.upsert(entity);
        let allowed = self.allowed.entry(key).or_insert_with(|| vec![-1]);
        match &result {
            Ok(_) => *allowed = vec![value],
            Err(_) => {
                allowed.push(value);
                self.failed += 1;
            }
        }
        result.map(drop)
    }

    /// Writes, flushes and compacts. Counts errors and continues.
    fn work(&mut self, db: &Db) {
        for i in 0..32u32 {
            drop(self.write(db, i % 11, i as i32));
            if i % 3 == 2 {
                // A failing background step must not be repeated forever without a pause.
                let steps = (0..200).take_while(|_| db.step(std::time::Duration::ZERO)).count();
                assert!(steps < 200, "background steps never end");
            }
            if i % 16 == 15 {
                drop(db.flush());
                drop(db.compact());
            }
        }
    }

    /// Reads all values. From now on, only these values are allowed.
    fn settle(&mut self, db: &Db) {
        let Ok(table) = db.table("things") else { return };
        for (key, allowed) in &mut self.allowed {
            let got = table.get("p", &format!("{key:04}")).unwrap();
            *allowed = vec![got.map_or(-1, |entity| entity.get::<i32>("V").unwrap())];
        }
    }

    #[track_caller]
    fn check(&self, db: &Db, what: &str) {
        if self.allowed.values().all(|allowed| allowed.contains(&-1))
            && db.tables().unwrap().is_empty()
        {
            return;
        }
        let table = db.table("things").unwrap_or_else(|error| panic!("{what}: {}", error.chain()));
        for (key, allowed) in &self.allowed {
            let got = table.get("p", &format!("{key:04}"));
            let got = got.unwrap_or_else(|error| panic!("{what}: {}", error.chain()));
            let got = got.map_or(-1, |entity| entity.get::<i32>("V").unwrap());
            assert!(allowed.contains(&got), "{what}: key {key} is {got}, not of {allowed:?}");
        }
        let report = db.verify().unwrap();
        assert_eq!(report.problems, Vec::<String>::new(), "{what}");
    }
}

/// Runs the history with one fault; returns false if the history ended before the fault.
fn run(fault: Fault, full: bool, what: &str) -> bool {
    let memory = MemFs::new();
    let fs = FaultFs::new(Arc::new(memory.clone()));
    let mut run =
        Run { memory: memory.clone(), fs, allowed: BTreeMap::new(), created: false, failed: 0 };
    run.fs.arm(fault);
    let opened = run.options().open("db");
    if let Ok(db) = &opened {
        run.work(db);
        // Reads must still work. The fault is disarmed first, because the failing operation may
        // itself be a read.
        run.fs.disarm();
        run.check(db, &format!("{what}, still open"));
        if full {
            // A full disk is not a permanent failure: everything works again without reopening.
            run.failed = 0;
            run.work(db);
            assert_eq!(run.failed, 0, "{what}: the disk has space again");
            db.flush().unwrap_or_else(|error| panic!("{what}: {}", error.chain()));
            db.compact().unwrap_or_else(|error| panic!("{what}: {}", error.chain()));
            run.check(db, &format!("{what}, after relief"));
        }
    }
    run.fs.disarm();
    let delivered = run.fs.delivered() > 0;
    for seed in 0..3 {
        let image = memory.crash_image(seed);
        let again = options(&image).open("db");
        let again = again.unwrap_or_else(|error| panic!("{what}, seed {seed}: {}", error.chain()));
        run.check(&again, &format!("{what}, seed {seed}"));
        again.table_or_create("things").unwrap().upsert(row(1, 1)).unwrap();
    }
    if let Ok(db) = opened {
        drop(db.close());
    }
    let again = options(&memory).open("db");
    let again = again.unwrap_or_else(|error| panic!("{what}, reopened: {}", error.chain()));
    run.check(&again, &format!("{what}, reopened"));
    // Values that were read must survive a power cut, even if an earlier sync failed.
    run.settle(&again);
    again.table_or_create("things").unwrap().upsert(row(2, 2)).unwrap();
    for seed in 0..3 {
        let image = memory.crash_image(seed);
        let third = options(&image).open("db");
        let third = third
            .unwrap_or_else(|error| panic!("{what}, second recovery {seed}: {}", error.chain()));
        run.check(&third, &format!("{what}, again {seed}"));
        assert!(third.table("things").unwrap().get("p2", "000002").unwrap().is_some(), "{what}");
    }
    again.compact().unwrap();
    again.close().unwrap();
    // No failed operation left a temporary file.
    let files = memory.paths();
    let leftovers: Vec<_> = files.iter().filter(|path| path.ends_with(".tmp")).collect();
    assert!(leftovers.is_empty(), "{what}: {leftovers:?}");
    delivered
}

/// Runs the history once for every `stride`-th operation of each kind in `ops`, and makes this
/// operation fail.
fn sweep(kind: FaultKind, ops: &[OpKind], stride: u64, full: bool) {
    for op in ops {
        for n in (0..).step_by(usize::try_from(stride).unwrap()) {
            let what = format!("{kind:?} at {op:?} {n}");
            if !run(Fault::new(kind).on(*op).nth(n), full, &what) {
                break;
            }
        }
    }
}

const WRITES: [OpKind; 9] = [
    OpKind::CreateDir,
    OpKind::Create,
    OpKind::OpenWrite,
    OpKind::Rename,
    OpKind::Remove,
    OpKind::SyncDir,
    OpKind::Write,
    OpKind::Sync,
    OpKind::Allocate,
];

#[test]
fn trap_01_trap_02_trap_48_acknowledged_writes_survive_any_failed_operation() {
    sweep(FaultKind::Eio, &WRITES, 1, false);
}

#[test]
fn trap_27_writes_continue_without_reopening_after_a_full_disk() {
    sweep(FaultKind::Enospc, &[OpKind::Create, OpKind::Allocate], 1, true);
}

#[test]
fn trap_26_failing_reads_return_errors_and_lose_nothing() {
    sweep(
        FaultKind::Eio,
        &[OpKind::OpenRead, OpKind::Read, OpKind::Map, OpKind::Len, OpKind::List],
        3,
        false,
    );
}

#[test]
fn short_and_interrupted_writes_lose_nothing() {
    sweep(FaultKind::ShortWrite, &[OpKind::Write], 1, false);
    sweep(FaultKind::Eintr, &[OpKind::Write, OpKind::Sync], 5, false);
}

#[test]
fn trap_27_a_gradually_full_disk_refuses_writes_and_loses_nothing() {
    for quota in (0..3_000_000u64).step_by(100_000) {
        let memory = MemFs::new();
        let fs = FaultFs::new(Arc::new(memory.clone()));
        let mut run =
            Run { memory: memory.clone(), fs, allowed: BTreeMap::new(), created: false, failed: 0 };
        let what = format!("quota {quota}");
        let db = run.options().open("db").unwrap();
        memory.set_quota(Some(memory.used() + quota));
        run.work(&db);
        run.check(&db, &what);
        for seed in 0..3 {
            let image = memory.crash_image(seed);
            image.set_quota(None);
            let again = open(&image);
            run.check(&again, &format!("{what}, seed {seed}"));
        }
        memory.set_quota(None);
        run.failed = 0;
        run.work(&db);
        assert_eq!(run.failed, 0, "{what}: the disk has space again");
        db.compact().unwrap();
        run.check(&db, &what);
        db.close().unwrap();
        run.check(&open(&memory), &what);
    }
}

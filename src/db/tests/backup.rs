//! Tests of backups: which files backups share, that failures and power cuts lose no backup, and
//! that damage is detected.

use std::collections::BTreeSet;

use super::*;
use crate::db::{Backup, Generation};
use crate::error::Result;
use crate::format::file_meta::FileMeta;
use crate::fs::{Fault, FaultFs, FaultKind};
use crate::table::GateMode;

fn content(db: &Db) -> Vec<String> {
    let mut content = Vec::new();
    for name in db.tables().unwrap() {
        let rows = db.table(&name).unwrap().scan(KeyRange::all()).into_iter();
        content.extend(rows.map(|row| format!("{name} {:?}", row.unwrap())));
    }
    content
}

fn fill(db: &Db, rows: std::ops::Range<u32>, version: u32) {
    let (things, others) =
        (db.table_or_create("things").unwrap(), db.table_or_create("others").unwrap());
    for i in rows {
        things.upsert(row(i, version)).unwrap();
        others.upsert(row(i, version + 1)).unwrap();
    }
}

fn filled(fs: &MemFs) -> Db {
    let db = open(fs);
    fill(&db, 0..300, 0);
    db.flush().unwrap();
    db.table("things").unwrap().delete_ranges(&[KeyRange::partition("p3")]).unwrap();
    fill(&db, 300..340, 2);
    db
}

fn backups(fs: &MemFs) -> Backup {
    options(fs).seed(99).open_backup("backups").unwrap()
}

/// Returns the names of the files in the subdirectory `part` of the backups.
fn stored(fs: &MemFs, part: &str) -> Vec<String> {
    let dir = format!("backups/{part}/");
    fs.paths().into_iter().filter_map(|path| path.strip_prefix(&dir).map(str::to_owned)).collect()
}

fn restored(fs: &MemFs, generation: u64) -> Result<Db> {
    backups(fs).restore(generation, "restored")?;
    options(fs).seed(98).create_if_missing(false).open("restored")
}

#[track_caller]
fn check_restored(fs: &MemFs, generation: u64, expected: &[String], what: &str) {
    // Restores into a copy of the image, because the next restore needs an empty target.
    let fs = fs.kill_image();
    let db = restored(&fs, generation);
    let db = db.unwrap_or_else(|error| panic!("{what}: {}", error.chain()));
    assert_eq!(content(&db), expected, "{what}");
    assert_eq!(db.verify().unwrap().problems, Vec::<String>::new(), "{what}");
    db.close().unwrap();
}

#[test]
fn increments_share_files_and_each_restores_its_own_state() {
    let fs = MemFs::new();
    let db = filled(&fs);
    let first = db.backup("backups").unwrap();
    let then = content(&db);
    assert_eq!((first.number, first.new_files, first.new_bytes), (1, first.files, first.bytes));
    let before: BTreeSet<String> = stored(&fs, "files").into_iter().collect();
    fill(&db, 340..350, 3);
    let second = db.backup("backups").unwrap();
    let after: BTreeSet<String> = stored(&fs, "files").into_iter().collect();
    assert!(second.new_files > 0 && second.new_files < second.files, "{second:?}");
    assert_eq!(after.difference(&before).count() as u64, second.new_files);
    assert!(before.is_subset(&after));
    // Nothing was written since the last backup, so nothing is copied.
    let third = db.backup("backups").unwrap();
    assert_eq!((third.new_files, third.files, third.seq), (0, second.files, second.seq));
    assert!(first.seq < second.seq);
    assert_eq!(backups(&fs).generations().unwrap(), [first, second, third]);
    check_restored(&fs, 1, &then, "the first");
    check_restored(&fs, 2, &content(&db), "the second");
    let report = backups(&fs).verify().unwrap();
    assert_eq!((report.generations, report.problems.len()), (3, 0));
    assert_eq!(report.files as usize, after.len());
}

#[test]
fn progress_ends_at_the_total() {
    let fs = MemFs::new();
    let db = filled(&fs);
    let mut seen = (0, 0);
    let made = db.backup_with("backups", |done, total| seen = (done, total)).unwrap();
    assert_eq!(seen, (made.new_bytes, made.new_bytes));
    let mut seen = (0, 0);
    backups(&fs).verify_with(|done, total| seen = (done, total)).unwrap();
    assert_eq!(seen, (made.bytes, made.bytes));
    backups(&fs).restore_with(1, "restored", |done, total| seen = (done, total)).unwrap();
    assert_eq!(seen, (made.bytes, made.bytes));
}

#[test]
fn a_restored_database_continues_in_the_same_directory_of_backups() {
    let fs = MemFs::new();
    let db = filled(&fs);
    db.backup("backups").unwrap();
    let other = restored(&fs, 1).unwrap();
    // The two databases now write different files, which may have equal numbers and sizes.
    for (db, version) in [(&db, 5), (&other, 6)] {
        fill(db, 400..500, version);
    }
    let (ours, theirs) = (db.backup("backups").unwrap(), other.backup("backups").unwrap());
    assert_eq!((ours.number, theirs.number), (2, 3));
    assert!(ours.new_files > 0 && theirs.new_files > 0);
    let (ours, theirs) = (content(&db), content(&other));
    assert_ne!(ours, theirs);
    other.close().unwrap();
    erase(&fs, "restored/");
    check_restored(&fs, 2, &ours, "ours");
    check_restored(&fs, 3, &theirs, "theirs");
}

#[test]
fn another_database_and_another_directory_are_refused() {
    let fs = MemFs::new();
    let db = filled(&fs);
    db.backup("backups").unwrap();
    let other = options(&fs).seed(8).open("other").unwrap();
    let refused = |path: &str| other.backup(path).unwrap_err().kind();
    assert_eq!(refused("backups"), ErrorKind::InvalidInput);
    assert_eq!(refused("db"), ErrorKind::InvalidInput);
    for inside in ["other/backups", "./other/backups", "x/../other/backups"] {
        assert_eq!(refused(inside), ErrorKind::InvalidInput);
        assert_eq!(other.checkpoint(inside).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert_eq!(options(&fs).open_backup("db").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(options(&fs).open("backups").unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(backups(&fs).restore(2, "x").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(backups(&fs).restore(1, "db").unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(backups(&fs).prune(0).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn generation_numbers_do_not_overflow() {
    let fs = MemFs::new();
    let db = filled(&fs);
    db.backup("backups").unwrap();
    fs.write(format!("backups/generations/{}.generation", u64::MAX), b"").unwrap();
    let error = db.backup("backups").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.message().contains("last number"), "{error}");
    assert_eq!(backups(&fs).generations().unwrap().len(), 2);
}

#[test]
fn pruning_removes_files_that_no_kept_backup_needs() {
    let fs = MemFs::new();
    let db = filled(&fs);
    db.backup("backups").unwrap();
    fill(&db, 0..300, 7);
    db.compact().unwrap();
    while db.step(std::time::Duration::ZERO) {}
    db.backup("backups").unwrap();
    fs.write("backups/files/0123456789abcdef.sst.tmp", b"half").unwrap();
    let pruned = backups(&fs).prune(1).unwrap();
    assert!(pruned.generations == 1 && pruned.files > 0 && pruned.bytes > 0, "{pruned:?}");
    assert_eq!(stored(&fs, "generations"), ["000002.generation"]);
    assert_eq!(backups(&fs).prune(1).unwrap(), crate::db::Pruned::default());
    check_restored(&fs, 2, &content(&db), "what stays");
    assert_eq!(db.backup("backups").unwrap().number, 3);
}

fn erase(fs: &MemFs, dir: &str) {
    fs.paths().iter().filter(|path| path.starts_with(dir)).for_each(|path| fs.erase(path).unwrap());
}

/// The steps that the tests interrupt: three backups with writes between them, a prune that keeps
/// the last two backups, and a restore of the second backup.
#[derive(Default)]
struct History {
    /// The database's content at the time of each acknowledged backup.
    states: Vec<Vec<String>>,
    /// Whether the first backup was pruned, or may have been.
    pruned: bool,
    /// The number of file operations after each step.
    ops: Vec<u64>,
}

fn small(fs: &MemFs, faulty: &FaultFs) -> Db {
    let db = options(fs).fs(Arc::new(faulty.clone())).open("db").unwrap();
    fill(&db, 0..40, 0);
    db
}

impl History {
    /// Runs without a fault. The content at each backup is the same in every run.
    fn whole() -> (MemFs, Self) {
        let fs = MemFs::new();
        let faulty = FaultFs::new(Arc::new(fs.clone()));
        let db = small(&fs, &faulty);
        fs.record();
        let mut history = History::default();
        history.run(&fs, &faulty, &db, content).unwrap();
        (fs, history)
    }

    /// Runs all steps, and stops at the first error.
    fn run(
        &mut self,
        fs: &MemFs,
        faulty: &FaultFs,
        db: &Db,
        state: impl Fn(&Db) -> Vec<String>,
    ) -> Result<()> {
        for round in 0..3 {
            db.backup("backups")?;
            self.states.push(state(db));
            self.ops.push(fs.ops());
            let things = db.table("things")?;
            for i in 0..5 {
                things.upsert(row(400 + 5 * round + i, 9))?;
            }
        }
        self.pruned = true;
        let backups = options(fs).seed(97).fs(Arc::new(faulty.clone())).open_backup("backups")?;
        backups.prune(2)?;
        self.ops.push(fs.ops());
        backups.restore(2, "restored").map(drop)
    }

    /// Checks that every acknowledged backup can be restored, unless it was pruned.
    #[track_caller]
    fn check(&self, fs: &MemFs, what: &str) {
        if self.states.is_empty() {
            return;
        }
        let fs = &fs.kill_image();
        self.check_target(fs, what);
        erase(fs, "restored/");
        let report = backups(fs).verify().unwrap();
        assert_eq!(report.problems, Vec::<String>::new(), "{what}");
        let there: Vec<u64> =
            backups(fs).generations().unwrap().iter().map(|made| made.number).collect();
        for (number, state) in (1..).zip(&self.states) {
            if number > 1 || !self.pruned || there.contains(&number) {
                check_restored(fs, number, state, &format!("{what}, backup {number}"));
            }
        }
    }

    /// Checks that an interrupted restore left no database, or a complete one.
    #[track_caller]
    fn check_target(&self, fs: &MemFs, what: &str) {
        match options(fs).create_if_missing(false).seed(96).open("restored") {
            Ok(db) => assert_eq!(content(&db), self.states[1], "{what}"),
            Err(error) => {
                let kinds = [ErrorKind::NotFound, ErrorKind::Corruption];
                assert!(kinds.contains(&error.kind()), "{what}: {}", error.chain());
            }
        }
    }
}

#[test]
fn a_power_cut_at_any_operation_leaves_every_backup_that_was_acknowledged() {
    let (fs, whole) = History::whole();
    for op in fs.recorded() {
        let made = whole.ops[..3].iter().filter(|at| **at <= op).count();
        let states = whole.states[..made].to_vec();
        let history = History { states, pruned: made == 3, ops: Vec::new() };
        for seed in 0..2 {
            let image = fs.crash_image_at(op, seed).unwrap();
            let what = format!("operation {op}, seed {seed}");
            history.check(&image, &what);
            // The next backup succeeds on top of the leftovers.
            let db = open(&image);
            let made = db.backup("backups").unwrap_or_else(|e| panic!("{what}: {}", e.chain()));
            erase(&image, "restored/");
            check_restored(&image, made.number, &content(&db), &what);
        }
    }
}

/// Runs the history once for each of its file operations, and makes that operation fail. With
/// `sticky` all later operations fail, too.
fn sweep(kind: FaultKind, sticky: bool) {
    let whole = History::whole().1;
    for n in 0.. {
        let fs = MemFs::new();
        let faulty = FaultFs::new(Arc::new(fs.clone()));
        let db = small(&fs, &faulty);
        let fault = Fault::new(kind).nth(n);
        faulty.arm(if sticky { fault.sticky() } else { fault });
        let mut history = History::default();
        let result = history.run(&fs, &faulty, &db, |_| Vec::new());
        history.states = whole.states[..history.states.len()].to_vec();
        let delivered = faulty.delivered() > 0;
        faulty.disarm();
        let what = format!("{kind:?} at operation {n}: {result:?}");
        history.check(&fs, &what);
        history.check(&fs.crash_image(n), &what);
        if !delivered {
            result.unwrap();
            return;
        }
    }
}

#[test]
fn any_operation_of_a_backup_prune_or_restore_may_fail() {
    sweep(FaultKind::Eio, false);
    sweep(FaultKind::Enospc, true);
}

fn flip_stored(fs: &MemFs, suffix: &str) -> String {
    let path = fs.paths().into_iter().find(|p| p.starts_with("backups") && p.ends_with(suffix));
    let path = path.unwrap();
    let middle = fs.len(&path).unwrap() / 2;
    fs.flip(&path, middle, 4).unwrap();
    path
}

#[test]
fn damage_in_a_backup_is_found_by_verify_and_by_restore() {
    let fs = MemFs::new();
    let db = filled(&fs);
    db.backup("backups").unwrap();
    let path = flip_stored(&fs, ".sst");
    let report = backups(&fs).verify().unwrap();
    assert_eq!(report.problems.len(), 1);
    assert!(report.problems[0].contains(&path), "{:?}", report.problems);
    assert!(report.problems[0].ends_with("backups that need it: 1"), "{:?}", report.problems);
    let error = backups(&fs).restore(1, "restored").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.chain().contains(&path), "{}", error.chain());
    assert_eq!(fs.paths().iter().filter(|path| path.starts_with("restored")).count(), 0);
    // The database still has the file. Once the damaged copy is erased, the next backup copies the
    // file again.
    fs.erase(&path).unwrap();
    assert_eq!(backups(&fs).verify().unwrap().problems.len(), 1);
    assert_eq!(db.backup("backups").unwrap().new_files, 1);
    check_restored(&fs, 1, &content(&db), "mended");
    // Damages a generation file.
    let path = flip_stored(&fs, "000001.generation");
    let report = backups(&fs).verify().unwrap();
    assert!(report.problems[0].contains(&path), "{:?}", report.problems);
    let list: Vec<Generation> = backups(&fs).generations().unwrap();
    assert!(list[0].problem.as_ref().unwrap().contains(&path) && list[1].problem.is_none());
    assert_eq!(backups(&fs).restore(1, "x").unwrap_err().kind(), ErrorKind::Corruption);
    check_restored(&fs, 2, &content(&db), "the other");
    assert_eq!(backups(&fs).prune(2).unwrap_err().kind(), ErrorKind::Corruption);
    assert_eq!(backups(&fs).prune(1).unwrap().generations, 1);
}

/// Changes one value in the metadata of a file, and writes the generation again with a valid
/// checksum.
#[test]
fn an_entry_that_differs_from_its_file_is_found_by_verify_and_by_restore() {
    const PATH: &str = "backups/generations/000001.generation";
    let fs = MemFs::new();
    let db = filled(&fs);
    db.backup("backups").unwrap();
    let sound = crate::format::generation::Generation::decode(&fs.read(PATH).unwrap()).unwrap();
    let last = |key: &[u8]| [key, b"z"].concat().into_boxed_slice();
    let changes: [&dyn Fn(&mut FileMeta); 9] = [
        &|meta| meta.entries += 1,
        &|meta| meta.tombstones ^= 1,
        &|meta| meta.raw_bytes += 1,
        &|meta| meta.seq_min.0 -= 1,
        &|meta| meta.seq_max.0 -= 1,
        &|meta| meta.key_min = meta.key_min[..meta.key_min.len() - 1].into(),
        &|meta| meta.key_max = last(&meta.key_max),
        &|meta| meta.sections[0].checksum ^= 1,
        &|meta| meta.sections.truncate(3),
    ];
    for (which, change) in changes.iter().enumerate() {
        for file in 0..sound.files.len() {
            let mut crafted = sound.clone();
            change(&mut crafted.edit.add_files[file]);
            let fs = fs.kill_image();
            fs.write(PATH, &crafted.encode()).unwrap();
            let what = format!("change {which} of file {file}");
            let problems = backups(&fs).verify().unwrap().problems;
            assert_eq!(problems.len(), 1, "{what}: {problems:?}");
            assert!(problems[0].contains("generation"), "{what}: {problems:?}");
            let error = backups(&fs).restore(1, "restored").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "{what}");
            assert!(fs.paths().iter().all(|path| !path.starts_with("restored")), "{what}");
        }
    }
}

#[test]
fn a_generation_with_a_gap_between_its_ranges_is_found_by_verify_and_by_restore() {
    const PATH: &str = "backups/generations/000001.generation";
    let fs = MemFs::new();
    filled(&fs).backup("backups").unwrap();
    let sound = crate::format::generation::Generation::decode(&fs.read(PATH).unwrap()).unwrap();
    let mut crafted = sound.clone();
    let low = &mut crafted.edit.add_ranges[0].span.low;
    *low = [low, &[0][..]].concat().into();
    fs.write(PATH, &crafted.encode()).unwrap();
    let problems = backups(&fs).verify().unwrap().problems;
    assert!(problems[0].contains("do not reach to its ends"), "{problems:?}");
    let error = backups(&fs).restore(1, "restored").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains("do not reach to its ends"), "{error}");
}

#[test]
fn damage_in_the_database_does_not_get_into_a_backup() {
    let fs = MemFs::new();
    let db = filled(&fs);
    db.compact().unwrap();
    let files = fs.paths().into_iter().filter(|p| p.starts_with("db/") && p.ends_with(".sst"));
    let largest = files.max_by_key(|path| fs.len(path).unwrap()).unwrap();
    fs.flip(largest, 700, 1).unwrap();
    assert_eq!(db.backup("backups").unwrap_err().kind(), ErrorKind::Corruption);
    assert_eq!(stored(&fs, "generations"), Vec::<String>::new());
}

#[test]
fn a_table_and_a_range_come_back_into_a_database_in_use() {
    let fs = MemFs::new();
    let db = filled(&fs);
    let things = db.table("things").unwrap();
    db.gate("things", KeyRange::partition("p1"), GateMode::Offline).unwrap();
    db.backup("backups").unwrap();
    db.lift_gate("things", KeyRange::partition("p1")).unwrap();
    let before = content(&db);
    let range = KeyRange::partition("p1");
    let backups = backups(&fs);
    let into = |name: &str| backups.restore_into(None, "things", range.clone(), &db, name);
    assert_eq!(into("things").unwrap_err().kind(), ErrorKind::AlreadyExists);
    let incarnation = db.engine.reader().incarnation();
    things.delete_partition("p1").unwrap();
    let snapshot = db.snapshot();
    let published = db.engine.reader().published();
    let moved = into("things").unwrap();
    assert!(moved.entities > 40, "{moved:?}");
    assert_eq!(content(&db), before);
    assert!(db.engine.reader().published() > published);
    assert_eq!(db.engine.reader().incarnation(), incarnation);
    let seen = things.at(&snapshot).scan(range.clone()).into_iter().count();
    assert_eq!(seen, 0, "an older snapshot sees no imported rows");
    // Restores the whole table, under another name.
    let all = backups.restore_into(1, "things", KeyRange::all(), &db, "again").unwrap();
    let rows = |name: &str| -> Vec<String> {
        let rows = db.table(name).unwrap().scan(KeyRange::all()).into_iter();
        rows.map(|row| format!("{:?}", row.unwrap())).collect()
    };
    assert_eq!(all.entities as usize, rows("things").len());
    assert_eq!(rows("again"), rows("things"));
    let gone = backups.restore_into(1, "gone", KeyRange::all(), &db, "gone").unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
    drop((things, snapshot));
    db.close().unwrap();
    assert_eq!(content(&open(&fs)).len(), before.len() + all.entities as usize);
}

#[test]
fn a_range_with_a_part_in_a_damaged_file_is_not_restored() {
    let fs = MemFs::new();
    let db = filled(&fs);
    db.backup("backups").unwrap();
    for path in fs.paths().iter().filter(|p| p.starts_with("backups/files/")) {
        fs.flip(path, fs.len(path).unwrap() / 2, 4).unwrap();
    }
    let restored = backups(&fs).restore_into(1, "others", KeyRange::all(), &db, "again");
    assert_eq!(restored.unwrap_err().kind(), ErrorKind::Corruption);
    assert!(db.table("again").is_err());
}

#[test]
fn reading_a_backup_leaves_it_unchanged() {
    let fs = MemFs::new();
    let db = filled(&fs);
    db.backup("backups").unwrap();
    let paths = fs.paths();
    let looked = backups(&fs).open_database(None).unwrap();
    assert_eq!(content(&looked), content(&db));
    looked.table("things").unwrap().delete_partition("p1").unwrap();
    looked.compact().unwrap();
    while looked.step(std::time::Duration::ZERO) {}
    drop(looked);
    assert_eq!(fs.paths(), paths);
    check_restored(&fs, 1, &content(&db), "unchanged");
}

#[test]
fn backups_and_restores_run_concurrently_with_writers() {
    let fs = MemFs::new();
    let db = options(&fs).background(Background::Threads).open("db").unwrap();
    fill(&db, 0..200, 0);
    db.backup("backups").unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..3u32 {
            let (db, stop) = (&db, &stop);
            scope.spawn(move || {
                let table = db.table("things").unwrap();
                for i in 0.. {
                    if stop.load(std::sync::atomic::Ordering::Relaxed) {
                        return;
                    }
                    let key = format!("{:06}", 1000 + i % 500);
                    let entity = Entity::new(format!("w{writer}"), key).with("I", i);
                    table.upsert(entity.with("Filler", vec![1; 500])).unwrap();
                }
            });
        }
        for round in 0..4u64 {
            let made = db.backup("backups").unwrap();
            assert_eq!(made.number, round + 2);
            let name = format!("again{round}");
            let all = KeyRange::partitions("p".."q");
            let moved = backups(&fs).restore_into(1, "things", all, &db, &name).unwrap();
            assert_eq!(moved.entities, 200);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
    assert_eq!(backups(&fs).verify().unwrap().problems, Vec::<String>::new());
    for number in 2..6 {
        let image = fs.kill_image();
        let copy = restored(&image, number).unwrap();
        // Each writer wrote its rows in order, so a backup must contain a prefix of the rows of
        // each writer.
        let things = copy.table("things").unwrap();
        assert_eq!(things.scan(KeyRange::partitions("p".."q")).count().unwrap(), 200);
        assert_eq!(copy.tables().unwrap().len() as u64, number);
    }
}

/// Prune removes only files that a backup created.
#[test]
fn prune_keeps_files_that_no_backup_created() {
    let fs = MemFs::new();
    let db = filled(&fs);
    db.backup("backups").unwrap();
    for name in ["notes.txt", "half.tmp", "0123.sst"] {
        fs.write(format!("backups/files/{name}"), b"mine").unwrap();
    }
    fs.write("backups/files/00000000000000ff.sst", b"left").unwrap();
    fs.write("backups/files/00000000000000fe.sst.tmp", b"left").unwrap();
    assert_eq!(backups(&fs).prune(1).unwrap().files, 1);
    let left = |name: &str| fs.read(format!("backups/files/{name}")).is_ok();
    assert!(left("notes.txt") && left("half.tmp") && left("0123.sst"));
    assert!(!left("00000000000000ff.sst") && !left("00000000000000fe.sst.tmp"));
    assert!(backups(&fs).verify().unwrap().problems.is_empty());
}

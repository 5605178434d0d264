//! Tests of copies between tables: copied rows, reported rows, and interruption at every operation.

use std::collections::BTreeMap;

use super::*;
use crate::db::{CopyJob, CopyProblemKind, CopySummary};
use crate::table::Table;

/// Creates a table of flights with carrier and number as keys, and year and number as properties.
fn flights(db: &Db, count: u32) -> Table {
    let table = db.table_or_create("flights").unwrap();
    for i in 0..count {
        let entity = Entity::new(["AA", "B6", "UA"][i as usize % 3], format!("{i:04}"));
        let year = if i % 5 == 0 { 2014 } else { 2013 };
        table.insert(entity.with("Year", year).with("Flight", i as i32)).unwrap();
    }
    table
}

/// Returns the number and year of every row, by the row's keys.
fn content(table: &Table) -> BTreeMap<(String, String), (Option<i32>, Option<i32>)> {
    let row = |entity: Entity| {
        let keys = (entity.partition_key().to_owned(), entity.row_key().to_owned());
        (keys, (entity.get("Flight").unwrap(), entity.get("Year").unwrap()))
    };
    table.scan(KeyRange::all()).into_iter().map(|entity| row(entity.unwrap())).collect()
}

fn by_year(source: &Table, target: &Table) -> CopyJob {
    let job = CopyJob::new(source, target).filter("Year eq 2013").unwrap();
    job.partition_key("{Year}").unwrap().row_key("{PartitionKey}{Flight}").unwrap()
}

#[track_caller]
fn check(summary: &CopySummary, expected: &[(&str, u64)]) {
    let found: Vec<_> = summary.fields().into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(found, expected, "{:?}", summary.problems);
}

#[test]
fn rows_are_copied_under_other_keys_and_a_second_run_finds_them() {
    let db = open(&MemFs::new());
    let (source, target) = (flights(&db, 50), db.create_table("years").unwrap());
    let mut job = by_year(&source, &target);
    check(&job.run().unwrap(), &[("rows", 40), ("copied", 40)]);
    assert_eq!(content(&target)[&("2013".into(), "B64".into())], (Some(4), Some(2013)));
    assert_eq!(content(&source).len(), 50);
    check(&job.run().unwrap(), &[("rows", 40), ("present", 40)]);
    let mut seen = Vec::new();
    let mut job = by_year(&source, &target).then_delete(true);
    job.batch_rows = 10;
    let summary = job.run_with(|rows, of| seen.push((rows, of))).unwrap();
    check(&summary, &[("rows", 40), ("present", 40), ("deleted", 40)]);
    assert_eq!(seen, [(10, 40), (20, 40), (30, 40), (40, 40), (40, 40)]);
    assert_eq!((content(&source).len(), content(&target).len()), (10, 40));
    check(&job.run().unwrap(), &[]);
}

#[test]
fn only_selected_rows_and_properties_are_copied() {
    let db = open(&MemFs::new());
    let (source, target) = (flights(&db, 3), db.create_table("years").unwrap());
    by_year(&source, &target).select(&["Flight"]).run().unwrap();
    assert_eq!(content(&target)[&("2013".into(), "UA2".into())], (Some(2), None));
    let mut all = CopyJob::new(&source, &target).select(&["Flight", "*"]);
    check(&all.run().unwrap(), &[("rows", 3), ("copied", 3)]);
    assert_eq!(content(&target)[&("UA".into(), "0002".into())], (Some(2), Some(2013)));
}

#[test]
fn rows_that_would_share_a_key_are_never_copied() {
    for pass_rows in [1, 7, 1_000] {
        let db = open(&MemFs::new());
        let (source, target) = (flights(&db, 30), db.create_table("years").unwrap());
        // The property `Flight` becomes the new RowKey. Two of the rows inserted here have the
        // number of a flight that the table already contains, and one row has no number.
        source.insert(Entity::new("ZZ", "1").with("Flight", 7).with("Year", 2013)).unwrap();
        source.insert(Entity::new("ZZ", "2").with("Year", 2013)).unwrap();
        source.insert(Entity::new("ZZ", "3").with("Flight", 1).with("Year", 2013)).unwrap();
        let job = CopyJob::new(&source, &target).filter("Year eq 2013").unwrap();
        let job = job.partition_key("all").unwrap().row_key("{Flight}").unwrap();
        let mut job = job.then_delete(true);
        job.pass_rows = pass_rows;
        job.batch_rows = 4;
        let summary = job.run().unwrap();
        let counts = [("rows", 27), ("copied", 22), ("deleted", 22), ("shared", 4), ("refused", 1)];
        check(&summary, &counts);
        assert_eq!(summary.problem_count(), 5);
        let refused = summary.problems.iter().find(|p| p.kind == CopyProblemKind::Refused);
        assert_eq!(refused.unwrap().message, "it has no property 'Flight'");
        assert_eq!((content(&source).len(), content(&target).len()), (11, 22));
    }
}

#[test]
fn existing_target_rows_are_conflicts_or_are_replaced() {
    let db = open(&MemFs::new());
    let (source, target) = (flights(&db, 10), db.create_table("other").unwrap());
    target.insert(Entity::new("AA", "0003").with("Flight", 3i64)).unwrap();
    let mut job = CopyJob::new(&source, &target).then_delete(true);
    let summary = job.run().unwrap();
    check(&summary, &[("rows", 10), ("copied", 9), ("deleted", 9), ("conflicts", 1)]);
    let problem = &summary.problems[0];
    assert_eq!(problem.source, ("AA".into(), "0003".into()));
    assert_eq!(problem.target, Some(problem.source.clone()));
    assert_eq!(content(&source).len(), 1);
    let summary = job.replace(true).run().unwrap();
    check(&summary, &[("rows", 1), ("replaced", 1), ("deleted", 1)]);
    assert_eq!(content(&target).len(), 10);
}

#[test]
fn a_row_that_was_written_after_its_copy_is_not_deleted() {
    let fs = MemFs::new();
    let db = open(&fs);
    let (source, target) = (flights(&db, 30), db.create_table("other").unwrap());
    let mut job = CopyJob::new(&source, &target).then_delete(true);
    job.batch_rows = 10;
    let mut left = vec![("UA", "0029"), ("UA", "0026")];
    let summary = job
        .run_with(|_, _| match left.pop() {
            Some(("UA", "0026")) => source.delete("UA", "0026").unwrap(),
            Some((pk, rk)) => drop(source.upsert(Entity::new(pk, rk).with("Year", 1)).unwrap()),
            None => {}
        })
        .unwrap();
    check(&summary, &[("rows", 30), ("copied", 30), ("deleted", 28), ("changed", 2)]);
    let all: Vec<_> = content(&source).into_keys().collect();
    assert_eq!(all, [("UA".to_owned(), "0029".to_owned())]);
    let told: Vec<_> =
        summary.problems.iter().map(|p| (p.source.1.as_str(), &*p.message)).collect();
    let deleted = ("0026", "deleted by another writer in the meantime");
    assert_eq!(told, [deleted, ("0029", "changed by another writer in the meantime")]);
    // The copy in the target is now older than the row in the source.
    let mut again = CopyJob::new(&source, &target).then_delete(true);
    check(&again.run().unwrap(), &[("rows", 1), ("conflicts", 1)]);
}

#[test]
fn rows_with_forbidden_target_keys_are_reported_one_by_one() {
    let db = open(&MemFs::new());
    let (source, target) = (db.create_table("from").unwrap(), db.create_table("into").unwrap());
    for (rk, path) in [("1", "a"), ("2", "a/b"), ("3", "c")] {
        source.insert(Entity::new("p", rk).with("Path", path)).unwrap();
    }
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let tell = told.clone();
    let job = CopyJob::new(&source, &target).row_key("{Path}").unwrap().then_delete(true);
    let mut job = job.on_problem(move |problem| tell.lock().unwrap().push(problem.clone()));
    let counts = [("rows", 3), ("copied", 2), ("deleted", 2), ("refused", 1)];
    check(&job.run().unwrap(), &counts);
    assert_eq!(told.lock().unwrap()[0].target, Some(("p".into(), "a/b".into())));
    assert!(source.get("p", "2").unwrap().is_some());
    assert!(CopyJob::new(&source, &target).row_key("{Path").is_err());
    assert!(CopyJob::new(&source, &target).filter("Path eq").is_err());
}

#[test]
fn within_a_table_rows_in_place_stay_and_the_rest_moves() {
    let db = open(&MemFs::new());
    let table = flights(&db, 30);
    let refused = |job: CopyJob| {
        let mut job = job;
        assert_eq!(job.run().unwrap_err().kind(), ErrorKind::InvalidInput);
    };
    let job = || CopyJob::new(&table, &table);
    refused(job());
    refused(job().partition_key("{Year}").unwrap());
    refused(job().partition_key("{Year}").unwrap().row_key("{RowKey}").unwrap());
    let by_number = || job().partition_key("{Year}").unwrap().row_key("{Flight}").unwrap();
    refused(by_number().select(&["Year"]));
    table.insert(Entity::new("2013", "1").with("Year", 2013).with("Flight", 1)).unwrap();
    let counts = [("rows", 31), ("copied", 29), ("present", 1), ("in_place", 1), ("deleted", 30)];
    check(&by_number().then_delete(true).run().unwrap(), &counts);
    check(&by_number().then_delete(true).run().unwrap(), &[("rows", 30), ("in_place", 30)]);
    assert!(content(&table).keys().all(|(pk, _)| pk == "2013" || pk == "2014"));
}

/// If the new key of a row is the key of another row that is not a copy, `replace` must not replace
/// that row: the job has not moved it yet, or cannot move it.
#[test]
fn within_a_table_only_copies_are_replaced() {
    let db = open(&MemFs::new());
    let table = db.create_table("things").unwrap();
    let put = |pk: &str, rk: &str, to: &str, v: i32| {
        table.upsert(Entity::new(pk, rk).with("To", to).with("V", v)).unwrap();
    };
    let job = || {
        let job = CopyJob::new(&table, &table).partition_key("p{To}").unwrap();
        job.row_key("{To}").unwrap().then_delete(true).replace(true)
    };
    let value = |pk: &str, rk: &str| -> Option<i32> {
        table.get(pk, rk).unwrap().map(|row| row.get::<i32>("V").unwrap())
    };
    put("a", "1", "2", 1);
    put("p2", "2", "no/key", 2);
    let counts = [("rows", 2), ("conflicts", 1), ("refused", 1)];
    check(&job().run().unwrap(), &counts);
    assert_eq!((value("a", "1"), value("p2", "2")), (Some(1), Some(2)));
    // The first run moves the row with the keys ('p2', '2') to other keys. Only then can the next
    // run move the row ('a', '1') to ('p2', '2').
    put("p2", "2", "3", 2);
    let counts = [("rows", 2), ("copied", 1), ("deleted", 1), ("conflicts", 1)];
    check(&job().run().unwrap(), &counts);
    let counts = [("rows", 2), ("copied", 1), ("in_place", 1), ("deleted", 1)];
    check(&job().run().unwrap(), &counts);
    assert_eq!((value("p2", "2"), value("p3", "3")), (Some(1), Some(2)));
    // The target row is itself a copy, which an earlier run made, so it is replaced.
    put("a", "1", "2", 4);
    let counts = [("rows", 3), ("replaced", 1), ("in_place", 2), ("deleted", 1)];
    check(&job().run().unwrap(), &counts);
    assert_eq!((value("a", "1"), value("p2", "2")), (None, Some(4)));
}

/// Opens a database whose memtable holds a few batches. The clock of the archive is ahead, so that
/// copies are newer than their originals.
fn fat(fs: &MemFs, path: &str, durability: Durability) -> Db {
    let later = u64::from(path == "archive") * 1_000_000;
    let options = options(fs).clock(Arc::new(ManualClock::new(NOW + later)));
    options.durability(durability).memtable_bytes(16 << 10).open(path).unwrap()
}

/// Archives the rows of 2013. May be called again after any interruption.
fn archive(fs: &MemFs, paths: [&str; 2], durability: Durability) -> Option<CopySummary> {
    let source = fat(fs, paths[0], durability);
    let other = (paths[0] != paths[1]).then(|| fat(fs, paths[1], durability));
    let target = other.as_ref().unwrap_or(&source);
    let (from, into) = (source.table("flights").unwrap(), target.table_or_create("years").unwrap());
    let mut job = by_year(&from, &into).then_delete(true);
    job.batch_rows = 7;
    let once = std::time::Duration::ZERO;
    let summary = job.run_with(|_, _| while source.step(once) || target.step(once) {});
    drop((from, into, job));
    if let Some(other) = other {
        other.close().unwrap();
    }
    source.close().unwrap();
    summary.ok()
}

/// Checks that each row is in the source, in the target under the new key, or in both. If
/// `is_over`, each selected row must be only in the target.
#[track_caller]
fn check_union(fs: &MemFs, paths: [&str; 2], is_over: bool, what: &str) {
    let source = open_at(fs, paths[0]);
    let other = (paths[0] != paths[1]).then(|| options(fs).open(paths[1]));
    let target = match &other {
        Some(other) => other.as_ref().ok(),
        None => Some(&source),
    };
    let copies = target.and_then(|db| db.table("years").ok()).map(|table| content(&table));
    let copies = copies.unwrap_or_default();
    let rows = content(&source.table("flights").unwrap());
    for i in 0..60u32 {
        let carrier = ["AA", "B6", "UA"][i as usize % 3];
        let is_there = rows.get(&(carrier.to_owned(), format!("{i:04}")));
        let is_copied = copies.get(&("2013".to_owned(), format!("{carrier}{i}")));
        let year = if i % 5 == 0 { 2014 } else { 2013 };
        let row = (Some(i as i32), Some(year));
        assert!(is_there.or(is_copied) == Some(&row), "{what}: row {i} is lost");
        assert!(is_copied.is_none_or(|copy| *copy == row), "{what}: row {i} has other content");
        assert!(
            is_copied.is_none() || year == 2013,
            "{what}: row {i} was copied although it was not selected"
        );
        if is_over {
            assert_eq!(is_there.is_none(), year == 2013, "{what}: row {i} in the source");
            assert_eq!(is_copied.is_some(), year == 2013, "{what}: row {i} in the target");
        }
    }
    assert!(copies.len() <= 48 && rows.len() <= 60, "{what}: more rows than were inserted");
}

fn open_at(fs: &MemFs, path: &str) -> Db {
    options(fs).open(path).unwrap()
}

/// If a power cut or a kill interrupts an archive step at any file operation, no row is lost or
/// duplicated. A third run completes the step even if the second is interrupted, too.
#[test]
fn an_archive_step_interrupted_at_any_operation_loses_nothing() {
    let mut images = 0;
    for (paths, durability) in [
        (["db", "archive"], Durability::Sync),
        (["db", "archive"], Durability::Buffered),
        (["db", "db"], Durability::Buffered),
    ] {
        let fs = MemFs::new();
        let db = open_at(&fs, "db");
        flights(&db, 60);
        db.close().unwrap();
        fs.record();
        let counts = [("rows", 48), ("copied", 48), ("deleted", 48)];
        check(&archive(&fs, paths, durability).unwrap(), &counts);
        check_union(&fs, paths, true, "undisturbed");
        for op in fs.recorded() {
            let what = format!("{paths:?} {durability:?}, operation {op}");
            for image in [fs.crash_image_at(op, op).unwrap(), fs.kill_image_at(op).unwrap()] {
                images += 1;
                check_union(&image, paths, false, &what);
                image.record();
                archive(&image, paths, durability).unwrap();
                check_union(&image, paths, true, &what);
                // The second run is interrupted as well, and a third one finishes.
                let (first, last) = image.recorded().into_inner();
                let again = first + op * 7 % (last - first + 1);
                let second = image.crash_image_at(again, op).unwrap();
                check_union(&second, paths, false, &what);
                archive(&second, paths, durability).unwrap();
                check_union(&second, paths, true, &what);
            }
        }
    }
    assert!(images > 500, "{images} images");
}

/// The row in the target is the copy of a row archived earlier. Another row with the same
/// properties and the same target key must not be deleted.
#[test]
fn a_row_that_was_never_archived_is_not_deleted_for_an_equal_one() {
    let db = open(&MemFs::new());
    let (source, target) = (db.create_table("days").unwrap(), db.create_table("archive").unwrap());
    let run = || {
        let job = CopyJob::new(&source, &target).row_key("{Day}").unwrap();
        job.then_delete(true).run().unwrap()
    };
    source.insert(Entity::new("p", "r1").with("Day", 1)).unwrap();
    check(&run(), &[("rows", 1), ("copied", 1), ("deleted", 1)]);
    source.insert(Entity::new("p", "r2").with("Day", 1)).unwrap();
    let summary = run();
    check(&summary, &[("rows", 1), ("conflicts", 1)]);
    assert!(summary.problems[0].message.contains("another row"), "{summary:?}");
    assert!(source.get("p", "r2").unwrap().is_some());
}

//! Tests of syncs between two databases, with a target that fails, loses answers and is watched.

mod history;
mod options;
mod wear;

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::saved::{Saved, State};
use super::state::Report;
use super::{SAME, Source, Step, SyncJob, SyncProblem, SyncProblemKind};
use crate::clock::ManualClock;
use crate::db::{Change, Db};
use crate::error::{Code, Error, ErrorKind, Result};
use crate::fs::MemFs;
use crate::model::Entity;
use crate::options::{Background, Options};
use crate::query::KeyRange;
use crate::rng::Rng;
use crate::store::TableStore;
use crate::store::cut::{Cut, Fault};
use crate::sync::Mutex;
use crate::table::EntityGroup;

const NOW: u64 = 134_000_000_000_000_000;
/// Longer than a lease and a late request together.
const LONG: Duration = Duration::from_secs(41);

/// A device with its clock.
struct Device {
    fs: Arc<MemFs>,
    clock: Arc<ManualClock>,
    db: Db,
    /// The number of jobs, which gives each one a writer id of its own.
    jobs: Cell<u64>,
}

impl Device {
    fn new() -> Self {
        let (fs, clock) = (Arc::new(MemFs::new()), Arc::new(ManualClock::new(NOW)));
        let db = options(&fs, &clock).keep_changes(1 << 30).open("device").unwrap();
        Self { fs, clock, db, jobs: Cell::new(0) }
    }

    /// Returns a source as another process has it.
    fn source(&self) -> Source {
        Source::Follower(options(&self.fs, &self.clock).follow("device").unwrap())
    }

    fn job<'s>(&self, target: &'s dyn TableStore) -> SyncJob<'s> {
        let clock = Arc::clone(&self.clock) as _;
        self.jobs.set(self.jobs.get() + 1);
        let rng = Rng::from_seed(self.jobs.get());
        SyncJob::with(self.source(), target, (clock, rng)).workers(1)
    }

    fn put(&self, pk: &str, rk: &str, n: i32) {
        let table = self.db.table_or_create("Tab").unwrap();
        table.upsert(Entity::new(pk, rk).with("N", n)).unwrap();
    }

    fn sync(&self, target: &dyn TableStore) {
        finish(&mut self.job(target), &self.clock).unwrap();
    }
}

fn options(fs: &Arc<MemFs>, clock: &Arc<ManualClock>) -> Options {
    let options = Options::new().fs(Arc::clone(fs) as _).clock(Arc::clone(clock) as _);
    options.background(Background::Manual).memtable_bytes(1 << 20)
}

/// Runs steps until everything is carried, and ends the job. The clock passes instead of waits.
fn finish(job: &mut SyncJob<'_>, clock: &ManualClock) -> Result<()> {
    while step(job, clock)? != Step::Idle {}
    job.end()
}

fn step(job: &mut SyncJob<'_>, clock: &ManualClock) -> Result<Step> {
    let step = job.step()?;
    if let Step::Wait(pause) = step {
        clock.advance(pause);
    }
    Ok(step)
}

/// Returns the rows of all tables but that of positions: `table/pk/rk=N`.
fn rows(db: &Db) -> Vec<String> {
    let mut rows = Vec::new();
    for name in db.tables().unwrap().into_iter().filter(|name| name != "rowstonesync") {
        for row in db.table(&name).unwrap().query("").unwrap() {
            let row = row.unwrap();
            let n: i32 = row.get("N").unwrap();
            rows.push(format!("{name}/{}/{}={n}", row.partition_key(), row.row_key()));
        }
    }
    rows
}

#[test]
fn a_database_is_not_carried_to_itself() {
    let device = Device::new();
    device.put("p", "a", 1);
    for source in [device.source(), Source::Db(device.db.clone())] {
        let mut job = SyncJob::new(source, &device.db);
        let error = job.step().unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::InvalidInput, SAME));
        assert!(!Report::read(&device.source(), &device.db, "default").unwrap().is_open);
    }
}

#[test]
fn changes_arrive_after_a_first_comparison() {
    let (device, target) = (Device::new(), Cut::new());
    (0..250).for_each(|i| device.put("p", &format!("{i:03}"), i));
    device.put("q", "a", 1);
    device.sync(&target);
    assert_eq!(rows(&device.db), rows(&target.db));
    // Two partitions of 251 rows: 3 groups and a row alone.
    let position = Report::read(&device.source(), &target, "default").unwrap();
    assert_eq!(position.lag.map(|lag| lag.groups), Some(0));
    assert!(!position.is_open);
    device.put("p", "a", 7);
    device.put("p", "a", 8);
    device.db.table("Tab").unwrap().delete("q", "a").unwrap();
    let report = Report::read(&device.source(), &target, "default").unwrap();
    assert_eq!(report.lag.map(|lag| lag.groups), Some(3));
    let mut job = device.job(&target);
    finish(&mut job, &device.clock).unwrap();
    assert_eq!(rows(&device.db), rows(&target.db));
    let status = job.status();
    // The two writes of a row are one, and each partition needs one request.
    assert_eq!((status.commits, status.rows, status.requests), (3, 2, 2));
    assert_eq!(status.position, Some(device.db.position()));
}

#[test]
fn tables_and_ranges_are_carried_in_order() {
    let (device, target) = (Device::new(), Cut::new());
    device.put("p", "a", 1);
    device.sync(&target);
    let table = device.db.table("Tab").unwrap();
    device.db.create_table("Other").unwrap();
    for (pk, rk) in [("p", "b"), ("q", "a"), ("r", "a")] {
        device.put(pk, rk, 2);
    }
    table.delete_range(&KeyRange::partitions("p".."r")).unwrap();
    device.put("q", "a", 3);
    device.db.create_table("Gone").unwrap();
    device.db.table("Gone").unwrap().insert(Entity::new("x", "y").with("N", 1)).unwrap();
    device.db.delete_table("Gone").unwrap();
    let mut job = device.job(&target).allow_drop(true);
    finish(&mut job, &device.clock).unwrap();
    assert_eq!(rows(&target.db), ["Tab/q/a=3", "Tab/r/a=2"]);
    assert_eq!(target.db.tables().unwrap(), ["Other", "rowstonesync", "Tab"]);
}

#[test]
fn a_target_that_deletes_ranges_is_asked_to() {
    let device = Device::new();
    let target = options(&device.fs, &device.clock).open("target").unwrap();
    ["a", "b", "c"].iter().for_each(|rk| device.put("p", rk, 1));
    device.sync(&target);
    let since = target.position();
    let range = KeyRange::rows("p", "b"..);
    device.db.table("Tab").unwrap().delete_range(&range).unwrap();
    device.put("p", "c", 2);
    // The target has no such table.
    device.db.create_table("Gone").unwrap();
    device.db.table("Gone").unwrap().delete_range(&range).unwrap();
    device.sync(&target);
    assert_eq!(rows(&target), ["Tab/p/a=1", "Tab/p/c=2"]);
    let commits = target.changes(since).unwrap().map(|commit| commit.unwrap());
    let changes: Vec<_> = commits.flat_map(|commit| commit.changes).collect();
    assert!(changes.contains(&Change::RangeDeleted { table: "Tab".to_owned(), range }));
    assert!(!changes.iter().any(|change| matches!(change, Change::Deleted { .. })));
}

#[test]
fn imported_ranges_are_carried() {
    let (device, target) = (Device::new(), Cut::new());
    let from = options(&device.fs, &device.clock).open("from").unwrap();
    let parts = from.create_table("Tab").unwrap();
    for i in 0..250 {
        parts.insert(Entity::new("p", format!("{i:03}")).with("N", i)).unwrap();
    }
    from.close().unwrap();
    device.db.create_table("Tab").unwrap();
    device.sync(&target);
    device.db.import_range("from", "Tab").unwrap();
    device.put("p", "000", -1);
    device.sync(&target);
    assert_eq!(rows(&device.db), rows(&target.db));
    assert_eq!(rows(&target.db).len(), 250);
}

#[test]
fn trap_66_rows_that_the_device_lets_go_stay_at_the_target() {
    let (device, target) = (Device::new(), Cut::new());
    (0..4).for_each(|i| device.put("p", &i.to_string(), i));
    device.sync(&target);
    device.db.set_ttl("Tab", Some(Duration::from_secs(60))).unwrap();
    device.clock.advance(Duration::from_secs(3_600));
    device.put("p", "new", 5);
    device.db.flush().unwrap();
    device.clock.advance(Duration::from_secs(3_600));
    device.db.compact().unwrap();
    while device.db.step(Duration::ZERO) {}
    let since = device.db.oldest_position().unwrap();
    let changes = device.db.changes(since).unwrap();
    let is_expiry = |change: &Change| matches!(change, Change::Expired { .. });
    assert!(changes.map(|commit| commit.unwrap()).any(|c| c.changes.iter().any(is_expiry)));
    device.put("q", "a", 6);
    device.db.table("Tab").unwrap().delete("q", "a").unwrap();
    device.sync(&target);
    assert_eq!(rows(&target.db).len(), 5, "{:?}", rows(&target.db));
    // A comparison does not delete them either.
    let problems = Mutex::new(Vec::new());
    let mut job = device.job(&target).resync(true).on_problem(noted(&problems));
    finish(&mut job, &device.clock).unwrap();
    drop(job);
    assert_eq!(rows(&target.db).len(), 5);
    let kinds: Vec<_> = problems.into_inner().iter().map(|problem| problem.kind).collect();
    assert_eq!(kinds, [SyncProblemKind::OnlyAtTarget; 5]);
}

fn noted(problems: &Mutex<Vec<SyncProblem>>) -> impl Fn(&SyncProblem) -> Result<()> + Send + Sync {
    |problem| {
        problems.lock().push(problem.clone());
        Ok(())
    }
}

#[test]
fn lost_changes_are_found_by_a_comparison() {
    let (device, target) = (Device::new(), Cut::new());
    ["a", "b", "c"].iter().for_each(|rk| device.put("p", rk, 1));
    device.sync(&target);
    device.put("p", "b", 2);
    device.put("p", "d", 2);
    device.db.table("Tab").unwrap().delete("p", "c").unwrap();
    // Opened without `keep_changes`, a flush discards the logs.
    let Device { fs, clock, db, jobs } = device;
    db.close().unwrap();
    let db = options(&fs, &clock).open("device").unwrap();
    db.flush().unwrap();
    let device = Device { fs, clock, db, jobs };
    device.put("p", "e", 3);
    device.db.flush().unwrap();
    let problems = Mutex::new(Vec::new());
    let mut job = device.job(&target).on_problem(noted(&problems));
    finish(&mut job, &device.clock).unwrap();
    assert_eq!(job.status().problems, 1);
    drop(job);
    let found = problems.into_inner();
    assert_eq!(found[0].row, Some(("p".to_owned(), "c".to_owned())));
    let expected = ["Tab/p/a=1", "Tab/p/b=2", "Tab/p/c=1", "Tab/p/d=2", "Tab/p/e=3"];
    assert_eq!(rows(&target.db), expected);
}

#[test]
fn another_history_is_carried_only_if_asked() {
    let (device, target) = (Device::new(), Cut::new());
    device.put("p", "a", 1);
    device.sync(&target);
    let other = Device::new();
    other.put("p", "b", 2);
    let error = finish(&mut other.job(&target), &other.clock).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ChangesLost, "{error}");
    assert!(error.message().contains("restored"), "{error}");
    assert_eq!(rows(&target.db), ["Tab/p/a=1"]);
    // Its cursor has no position until all rows were compared.
    let cursor = || other.db.cursor("sync").unwrap();
    let mut job = other.job(&target).resync(true).cursor(cursor());
    finish(&mut job, &other.clock).unwrap();
    drop(job);
    assert_eq!(rows(&target.db), ["Tab/p/a=1", "Tab/p/b=2"]);
    let newest = cursor().position().unwrap().unwrap();
    assert!(newest.has_history_of(other.db.position()));
    // A position of the database's future.
    let mut mark = super::mark::Mark::new("default", &mut Rng::from_seed(1));
    mark.read(&target).unwrap();
    let future = other.db.position().to_string();
    let future = format!("{}999999999999999999", &future[..17]).parse().unwrap();
    mark.write(&target, Some(future), (false, 0)).unwrap();
    let error = finish(&mut other.job(&target), &other.clock).unwrap_err();
    assert!(error.message().contains("set back"), "{error}");
    // Under another name all rows are compared.
    finish(&mut other.job(&target).name("other"), &other.clock).unwrap();
}

#[test]
fn one_sync_of_a_name_writes() {
    let (device, target) = (Device::new(), Cut::new());
    device.put("p", "a", 1);
    let mut first = device.job(&target);
    while step(&mut first, &device.clock).unwrap() != Step::Idle {}
    // The first one has not ended, so the second one waits before it sends anything.
    let mut second = device.job(&target);
    assert_eq!(second.step().unwrap(), Step::Busy);
    let Step::Wait(pause) = second.step().unwrap() else { panic!("it must wait") };
    assert_eq!(pause, LONG - Duration::from_secs(1));
    device.put("p", "a", 2);
    device.clock.advance(Duration::from_secs(9));
    let error = loop {
        match first.step() {
            Ok(_) => device.clock.advance(Duration::from_secs(1)),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    assert_eq!(first.end().unwrap_err().kind(), ErrorKind::Locked);
    finish(&mut second, &device.clock).unwrap();
    assert_eq!(rows(&target.db), ["Tab/p/a=2"]);
    // It has ended, so the next one need not wait.
    let mut third = device.job(&target);
    while third.step().unwrap() != Step::Idle {}
}

#[test]
fn refused_rows_end_the_sync_or_are_reported() {
    let (device, target) = (Device::new(), Cut::new());
    device.put("p", "a", 1);
    device.sync(&target);
    let mut group = EntityGroup::new("p");
    for (rk, name) in [("b", "N"), ("c", "Refused"), ("d", "N")] {
        group.upsert(Entity::new("p", rk).with("N", 2).with(name, 2)).unwrap();
    }
    device.db.table("Tab").unwrap().commit(group).unwrap();
    device.put("p", "e", 3);
    device.db.delete_table("Tab").unwrap();
    device.put("p", "f", 4);
    *target.refused.lock() = "Refused";
    let error = finish(&mut device.job(&target), &device.clock).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidInput, "PropertyNameInvalid"));
    // The feed knows the name of a dropped table in lower case only.
    assert!(error.message().contains("'p' 'c' of table 'tab'"), "{error}");
    device.clock.advance(LONG);
    let problems = Mutex::new(Vec::new());
    let mut job = device.job(&target).on_problem(noted(&problems));
    finish(&mut job, &device.clock).unwrap();
    drop(job);
    let problems = problems.into_inner();
    let kinds: Vec<_> = problems.iter().map(|problem| problem.kind).collect();
    assert_eq!(kinds, [SyncProblemKind::Refused, SyncProblemKind::Kept]);
    assert_eq!(problems[0].row, Some(("p".to_owned(), "c".to_owned())));
    let left = ["Tab/p/a=1", "Tab/p/b=2", "Tab/p/d=2", "Tab/p/e=3", "Tab/p/f=4"];
    assert_eq!(rows(&target.db), left);
    let report = Report::read(&device.source(), &target, "default").unwrap();
    assert_eq!(report.problems, 2);
}

#[test]
fn a_dropped_table_ends_a_sync_that_reports_nothing() {
    let (device, target) = (Device::new(), Cut::new());
    device.put("p", "a", 1);
    device.sync(&target);
    device.db.delete_table("Tab").unwrap();
    let error = finish(&mut device.job(&target), &device.clock).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!(rows(&target.db), ["Tab/p/a=1"]);
}

#[test]
fn groups_that_are_too_large_are_split_only_if_asked() {
    let (device, target) = (Device::new(), Cut::new());
    device.db.create_table("Tab").unwrap();
    device.sync(&target);
    let mut group = EntityGroup::new("p");
    for i in 0..50 {
        group.upsert(Entity::new("p", format!("{i:02}")).with("N", i)).unwrap();
    }
    device.db.table("Tab").unwrap().commit(group).unwrap();
    *target.largest.lock() = 20;
    let error = finish(&mut device.job(&target), &device.clock).unwrap_err();
    assert_eq!(error.code(), Code::RequestBodyTooLarge.as_str(), "{error}");
    device.clock.advance(LONG);
    finish(&mut device.job(&target).split_groups(true), &device.clock).unwrap();
    assert_eq!(rows(&target.db), rows(&device.db));
}

/// The table of positions is made in the last try to write the first position.
#[test]
fn a_sync_begins_although_many_answers_are_lost() {
    let (device, target) = (Device::new(), Cut::new());
    device.put("p", "a", 1);
    *target.fault.lock() = Some((9, Fault::NoInserts));
    device.sync(&target);
    assert_eq!(rows(&target.db), ["Tab/p/a=1"]);
}

#[test]
fn a_missing_table_is_made_again() {
    let (device, target) = (Device::new(), Cut::new());
    device.put("p", "a", 1);
    device.sync(&target);
    target.db.delete_table("Tab").unwrap();
    device.db.table("Tab").unwrap().delete("p", "a").unwrap();
    device.sync(&target);
    assert!(target.db.table("Tab").is_err(), "deletes need no table");
    device.put("p", "b", 2);
    device.sync(&target);
    assert_eq!(rows(&target.db), ["Tab/p/b=2"]);
}

#[test]
fn a_failing_target_is_tried_again_and_a_late_request_is_waited_for() {
    let (device, target) = (Device::new(), Cut::new());
    device.put("p", "a", 1);
    device.sync(&target);
    device.put("p", "a", 2);
    let mut job = device.job(&target);
    for (fault, least) in [(Fault::Refused, 1), (Fault::Lost, 30)] {
        assert_eq!(job.step().unwrap(), Step::Busy);
        device.put("p", "a", 3);
        *target.fault.lock() = Some((target.requests(), fault));
        let Step::Wait(pause) = job.step().unwrap() else { panic!("it must wait") };
        assert!(pause >= Duration::from_secs(least), "{pause:?}");
        assert!(job.status().error.is_some());
        *target.fault.lock() = None;
        // It does nothing before the time has passed.
        let before = target.requests();
        assert!(matches!(job.step().unwrap(), Step::Wait(_)));
        assert_eq!(target.requests(), before);
        device.clock.advance(pause);
        while step(&mut job, &device.clock).unwrap() != Step::Idle {}
        assert!(job.status().error.is_none());
        job.end().unwrap();
    }
    // A target that is away for too long.
    *target.fault.lock() = Some((target.requests(), Fault::Away));
    let error = finish(&mut job, &device.clock).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
}

#[test]
fn a_sync_that_ends_after_a_failure_saves_its_cursor() {
    let (device, target) = (Device::new(), Cut::new());
    device.put("p", "a", 1);
    device.sync(&target);
    let mut job = device.job(&target).cursor(device.db.cursor("sync").unwrap());
    while step(&mut job, &device.clock).unwrap() != Step::Idle {}
    device.put("p", "a", 2);
    while job.status().position != Some(device.db.position()) {
        assert_eq!(job.step().unwrap(), Step::Busy);
    }
    device.put("p", "a", 3);
    *target.fault.lock() = Some((target.requests(), Fault::Refused));
    while job.step().unwrap() == Step::Busy {}
    *target.fault.lock() = None;
    assert!(job.status().error.is_some());
    job.end().unwrap();
    let cursor = device.db.cursor("sync").unwrap();
    assert_eq!(cursor.position().unwrap(), job.status().position);
}

#[test]
fn the_older_position_of_both_ends_counts() {
    let (device, target) = (Device::new(), Cut::new());
    device.put("p", "a", 1);
    device.sync(&target);
    let older = device.db.position();
    device.put("p", "b", 2);
    let cursor = || device.db.cursor("sync").unwrap();
    cursor().commit(older).unwrap();
    device.sync(&target);
    // The target has lost a row, but not the newer position.
    target.db.table("Tab").unwrap().delete("p", "b").unwrap();
    let mut job = device.job(&target).cursor(cursor());
    finish(&mut job, &device.clock).unwrap();
    drop(job);
    assert_eq!(rows(&target.db), ["Tab/p/a=1", "Tab/p/b=2"]);
    assert!(cursor().position().unwrap() > Some(older));
}

/// A sync that starts at the older position sends older states again. If it is killed then, the
/// next one must not start after them.
#[test]
fn a_sync_that_is_killed_while_it_repeats_is_repeated() {
    let (device, target) = (Device::new(), Cut::new());
    device.put("p", "a", 1);
    device.sync(&target);
    let older = device.db.position();
    device.put("p", "a", 2);
    device.db.table("Tab").unwrap().delete_range(&KeyRange::partition("p")).unwrap();
    device.sync(&target);
    assert_eq!(rows(&target.db), [""; 0]);
    let cursor = || device.db.cursor("sync").unwrap();
    cursor().commit(older).unwrap();
    let mut killed = device.job(&target).cursor(cursor());
    while rows(&target.db).is_empty() {
        killed.step().unwrap();
    }
    drop(killed);
    device.clock.advance(LONG);
    finish(&mut device.job(&target).cursor(cursor()), &device.clock).unwrap();
    assert_eq!(rows(&target.db), [""; 0]);
}

#[test]
fn a_state_file_has_the_position_and_the_last_error() {
    let device = Device::new();
    let position = device.db.position();
    let open = || Saved::open(Arc::clone(&device.fs) as _, Path::new("state"));
    let saved = open().unwrap();
    assert_eq!(saved.position().unwrap(), None);
    assert_eq!(open().err().unwrap().kind(), ErrorKind::Locked);
    saved.write(Some(position)).unwrap();
    saved.note(Some(position), &Error::new(ErrorKind::Io, "no \"network\"")).unwrap();
    assert_eq!(saved.position().unwrap(), Some(position));
    drop(saved);
    assert_eq!(open().unwrap().position().unwrap(), Some(position));
    let text = format!(r#"{{"version":1,"position":"{position}","error":"a"}}"#);
    let expected = State { position: Some(position), error: Some("a".to_owned()) };
    assert_eq!(State::parse(&text).unwrap(), expected);
    for text in ["", "{}", r#"{"version":2}"#, r#"{"version":1,"job":"copy"}"#, "[1]"] {
        assert!(State::parse(text).is_err(), "{text}");
    }
}

//! Compares the change feed with the database, on memory file systems.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::*;
use crate::db::{Change, Changes, Commit, Position};
use crate::error::Error;
use crate::lsm::{Logged, More};
use crate::model::Seq;
use crate::rng::Rng;
use crate::table::EntityGroup;

/// Rows by table, PartitionKey and RowKey.
type State = BTreeMap<String, BTreeMap<(String, String), Entity>>;

fn state(db: &Db) -> State {
    let rows = |name: &String| {
        let entities = db.table(name).unwrap().scan(KeyRange::all()).into_iter();
        entities.map(|e| e.map(|e| (keys(&e), e)).unwrap()).collect()
    };
    db.tables().unwrap().into_iter().map(|name| (name.clone(), rows(&name))).collect()
}

fn keys(entity: &Entity) -> (String, String) {
    (entity.partition_key().to_owned(), entity.row_key().to_owned())
}

/// Applies a commit to `state`; imported rows, which the commit does not list, are read from the
/// database `of`.
fn apply(state: &mut State, commit: &Commit, of: &Db) {
    for change in &commit.changes {
        let table = change.table().to_owned();
        match change {
            Change::TableCreated { .. } => {
                assert!(state.insert(table.clone(), BTreeMap::new()).is_none(), "{table}");
            }
            Change::TableDropped { .. } => {
                let name = state.keys().find(|name| name.eq_ignore_ascii_case(&table)).cloned();
                state.remove(&name.unwrap()).unwrap();
            }
            Change::Put { entity, .. } => {
                assert_eq!(entity.timestamp(), Some(commit.timestamp));
                state.get_mut(&table).unwrap().insert(keys(entity), entity.clone());
            }
            Change::Deleted { partition_key, row_key, .. } => {
                let key = (partition_key.clone(), row_key.clone());
                state.get_mut(&table).unwrap().remove(&key);
            }
            Change::RangeDeleted { range, .. } => {
                let span = range.span(crate::format::names::TableId(7));
                let is_in = |(pk, rk): &(String, String)| {
                    span.contains(&user_key(crate::format::names::TableId(7), pk, rk))
                };
                state.get_mut(&table).unwrap().retain(|key, _| !is_in(key));
            }
            Change::Expired { before, .. } => {
                let rows = state.get_mut(&table).unwrap();
                rows.retain(|_, entity| entity.timestamp().unwrap() >= *before);
            }
            Change::Imported { range, .. } => {
                for entity in of.table(&table).unwrap().scan(range.clone()) {
                    let entity = entity.unwrap();
                    state.get_mut(&table).unwrap().insert(keys(&entity), entity);
                }
            }
        }
    }
}

/// Applies all available commits, and returns their positions.
fn drain(changes: &mut Changes, state: &mut State, of: &Db) -> Vec<Position> {
    let mut positions = Vec::new();
    for commit in changes {
        let commit = commit.unwrap();
        assert!(!commit.changes.is_empty());
        apply(state, &commit, of);
        positions.push(commit.position);
    }
    positions
}

/// Does one random operation on the rows or files, and makes its result durable.
fn random_step(db: &Db, clock: &ManualClock, rng: &mut Rng, version: u32) {
    let table = db.table_or_create("Things").unwrap();
    let durability = [Durability::Buffered, Durability::Os, Durability::Sync];
    for _ in 0..rng.below(12) {
        clock.advance(Duration::from_millis(rng.below(400)));
        let durability = durability[rng.below(3) as usize];
        let (table, row) =
            (table.clone().with_durability(durability), row(rng.below(200) as u32, version));
        let (pk, rk) = keys(&row);
        match rng.below(4) {
            0 => drop(table.upsert_merge(row.with(format!("W{}", rng.below(5)), 1))),
            1 => drop(table.delete(&pk, &rk)),
            2 => {
                let mut group = EntityGroup::new(&*pk);
                group.upsert(row).unwrap();
                group.upsert(Entity::new(&*pk, "of a group").with("V", 1)).unwrap();
                table.commit_with(group, durability).unwrap();
            }
            _ => drop(table.upsert(row)),
        }
    }
    match rng.below(12) {
        0 => db.flush().unwrap(),
        1 => db.compact().unwrap(),
        2 => table.delete_range(&KeyRange::partition(format!("p{}", rng.below(7)))).unwrap(),
        3 => db.delete_table("things").unwrap(),
        4 => db.set_ttl("things", Some(Duration::from_secs(1 + rng.below(9)))).unwrap(),
        5 => db.cursor("other").unwrap().commit(db.position()).unwrap(),
        _ => while db.step(Duration::ZERO) {},
    }
}

#[test]
fn replaying_the_feed_gives_the_database_at_every_position() {
    for seed in 0..10 {
        let mut rng = Rng::from_seed(seed);
        let fs = MemFs::new();
        let clock = Arc::new(ManualClock::new(NOW));
        let options = || options(&fs).clock(Arc::clone(&clock) as _).keep_changes(1 << 30);
        let mut db = options().open("db").unwrap();
        let start = db.oldest_position().unwrap();
        assert_eq!(start.seq(), Seq::ZERO);
        let mut changes = db.changes(start).unwrap();
        let mut replayed = State::new();
        let mut seen = VecDeque::new();
        for step in 0..50 {
            random_step(&db, &clock, &mut rng, step);
            db.sync().unwrap();
            seen.extend(drain(&mut changes, &mut replayed, &db));
            assert_eq!(replayed, state(&db), "seed {seed}, step {step}");
            assert_eq!(changes.position(), db.position(), "seed {seed}, step {step}");
            match rng.below(6) {
                0 => {
                    db.close().unwrap();
                    db = options().open("db").unwrap();
                }
                // Opens the feed again at its position, sometimes through a read-only database, as
                // another process would.
                1 => {
                    let reader = options().open_read_only("db").unwrap();
                    let since = changes.position();
                    changes = if rng.chance(1, 2) { &reader } else { &db }.changes(since).unwrap();
                }
                _ => {}
            }
        }
        // Reading again, from the start and from a random position, returns the same commits in
        // order, each once.
        assert!(seen.iter().is_sorted_by(|a, b| a < b));
        let again: Vec<_> =
            db.changes(start).unwrap().map(|commit| commit.unwrap().position).collect();
        assert_eq!(again, seen.iter().copied().collect::<Vec<_>>());
        let from = rng.below(again.len() as u64) as usize;
        let rest = db.changes(again[from]).unwrap().map(|commit| commit.unwrap().position);
        assert_eq!(rest.collect::<Vec<_>>(), again[from + 1..]);
    }
}

#[test]
fn commits_that_are_not_durable_are_not_in_the_feed() {
    let fs = MemFs::new();
    let db = open(&fs);
    let table = db.create_table("things").unwrap();
    let mut changes = db.changes(db.position()).unwrap();
    table.clone().with_durability(Durability::Os).insert(row(1, 0)).unwrap();
    table.clone().with_durability(Durability::Buffered).insert(row(2, 0)).unwrap();
    assert!(changes.next().is_none());
    db.sync().unwrap();
    assert_eq!(changes.by_ref().count(), 2);
    table.clone().with_durability(Durability::Os).insert(row(3, 0)).unwrap();
    assert!(changes.next().is_none());
    table.insert(row(4, 0)).unwrap();
    assert_eq!(changes.count(), 2);
}

#[test]
fn changes_that_are_no_longer_kept_are_reported_as_lost() {
    let fs = MemFs::new();
    let db = open(&fs);
    let table = db.create_table("things").unwrap();
    let since = db.position();
    let mut slow = db.changes(since).unwrap();
    table.insert(row(1, 0)).unwrap();
    assert_eq!(slow.by_ref().count(), 1);
    table.insert(row(2, 0)).unwrap();
    db.flush().unwrap();
    let lost = |error: crate::error::Error| {
        assert_eq!(error.kind(), ErrorKind::ChangesLost, "{error}");
        assert!(error.to_string().contains("keep_changes"), "{error}");
    };
    lost(slow.next().unwrap().unwrap_err());
    lost(db.changes(since).unwrap_err());
    // The feed still delivers commits made after the flush.
    let oldest = db.oldest_position().unwrap();
    assert_eq!(oldest, db.position());
    table.insert(row(3, 0)).unwrap();
    assert_eq!(db.changes(oldest).unwrap().count(), 1);
    // Refuses a position of another database. Also refuses a position after the last commit of this
    // database, as a copy with more commits could return it.
    let other = options(&MemFs::new()).seed(9).open("db").unwrap();
    assert_eq!(other.changes(since).unwrap_err().kind(), ErrorKind::ChangesLost);
    let (seq, text) = (since.seq().0, since.to_string());
    let later: Position =
        text.replace(&seq.to_string(), &(seq + (1 << 40)).to_string()).parse().unwrap();
    assert_eq!(db.changes(later).unwrap_err().kind(), ErrorKind::ChangesLost);
}

/// A feed may start at a position whose commit is not durable yet. It returns no commit until a
/// later commit is durable.
#[test]
fn a_position_that_is_not_durable_yet_is_waited_for() {
    let fs = MemFs::new();
    let db = open(&fs);
    let table = db.create_table("things").unwrap();
    table.clone().with_durability(Durability::Buffered).insert(row(1, 0)).unwrap();
    let since = db.position();
    let reader = options(&fs).open_read_only("db").unwrap();
    assert!(reader.position() < since);
    let mut both = [&db, &reader].map(|db| db.changes(since).unwrap());
    both.iter_mut().for_each(|changes| assert!(changes.next().is_none()));
    table.clone().with_durability(Durability::Os).insert(row(2, 0)).unwrap();
    both.iter_mut().for_each(|changes| assert!(changes.next().is_none()));
    db.sync().unwrap();
    for changes in both {
        let positions: Vec<_> = changes.map(|commit| commit.unwrap().position).collect();
        assert_eq!(positions, [db.position()]);
    }
}

#[test]
fn changes_are_kept_up_to_the_requested_size_and_age() {
    for (bytes, age, expected) in [(1 << 30, 3600, 6), (0, 3600, 1), (1 << 30, 15, 3)] {
        let fs = MemFs::new();
        let clock = Arc::new(ManualClock::new(NOW));
        let options = options(&fs).clock(Arc::clone(&clock) as _);
        let options = options.keep_changes(bytes).keep_changes_for(Duration::from_secs(age));
        let db = options.open("db").unwrap();
        let table = db.create_table("things").unwrap();
        for i in 0..5 {
            clock.advance(Duration::from_secs(10));
            table.insert(row(i, 0)).unwrap();
            db.flush().unwrap();
        }
        table.insert(row(5, 0)).unwrap();
        let kept = db.changes(db.oldest_position().unwrap()).unwrap();
        let puts = kept.flat_map(|commit| commit.unwrap().changes);
        let puts = puts.filter(|change| matches!(change, Change::Put { .. })).count();
        assert_eq!(puts, expected, "{bytes} bytes, {age} s");
        assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
        drop((db, table));
        // Opening does not treat kept logs as leftovers, and a flush without retention removes
        // them.
        let db = open(&fs);
        assert_eq!(db.opened().orphans, 0);
        db.table("things").unwrap().insert(row(6, 0)).unwrap();
        db.flush().unwrap();
        let logs = fs.paths().iter().filter(|path| path.ends_with(".wal")).count();
        assert!(logs <= 2, "{:?}", fs.paths());
    }
}

#[test]
fn cursors_keep_their_committed_position_after_a_reopen() {
    let fs = MemFs::new();
    let db = options(&fs).keep_changes(1 << 30).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    (0..5).for_each(|i| assert!(table.insert(row(i, 0)).is_ok()));
    let cursor = db.cursor("search").unwrap();
    assert_eq!(cursor.position().unwrap(), None);
    let third = cursor.changes().unwrap().nth(2).unwrap().unwrap().position;
    cursor.commit(third).unwrap();
    let before = db.oldest_position().unwrap();
    assert_eq!(cursor.commit(before).unwrap_err().kind(), ErrorKind::InvalidInput);
    db.close().unwrap();
    let db = options(&fs).keep_changes(1 << 30).open("db").unwrap();
    let cursor = db.cursor("search").unwrap();
    assert_eq!(cursor.position().unwrap(), Some(third));
    assert_eq!(cursor.changes().unwrap().count(), 3);
    let reader = options(&fs).open_read_only("db").unwrap();
    let beside = reader.cursor("search").unwrap();
    assert_eq!(beside.position().unwrap(), Some(third));
    assert_eq!(beside.commit(db.position()).unwrap_err().kind(), ErrorKind::InvalidInput);
    cursor.remove().unwrap();
    assert_eq!(cursor.position().unwrap(), None);
    for name in ["", "a\nb", &"x".repeat(201)] {
        assert_eq!(db.cursor(name).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn imported_ranges_are_in_the_feed_in_commit_order() {
    let fs = MemFs::new();
    let source = options(&fs).open("source").unwrap();
    let parts = source.create_table("parts").unwrap();
    (0..100).for_each(|i| assert!(parts.insert(row(i, 0)).is_ok()));
    source.close().unwrap();
    let db = options(&fs).keep_changes(1 << 30).open("db").unwrap();
    let table = db.create_table("parts").unwrap();
    let follower = options(&fs).follow("db").unwrap();
    let mut changes = db.changes(db.oldest_position().unwrap()).unwrap();
    table.insert(Entity::new("q", "before").with("V", 1)).unwrap();
    db.import_range("source", "parts").unwrap();
    table.insert(Entity::new("q", "behind").with("V", 1)).unwrap();
    let mut replayed = State::new();
    drain(&mut changes, &mut replayed, &db);
    assert_eq!(replayed, state(&db));
    follower.refresh().unwrap();
    assert_eq!(state(&follower.db()), state(&db));
    let of_import = |commit: &Commit| matches!(commit.changes[..], [Change::Imported { .. }]);
    let all = || db.changes(db.oldest_position().unwrap()).unwrap().map(|c| c.unwrap());
    assert_eq!(all().position(|commit| of_import(&commit)), Some(2));
    assert_eq!(all().count(), 4);
    // An import is returned even when no commit follows it.
    table.delete_range(&KeyRange::all()).unwrap();
    let last = db.changes(db.position()).unwrap();
    db.import_range("source", "parts").unwrap();
    assert_eq!(last.filter(|commit| of_import(commit.as_ref().unwrap())).count(), 1);
    db.compact().unwrap();
    assert_eq!(all().filter(of_import).count(), 2);
}

/// While rows are imported, a second log begins, which has no commit yet. A flush then removes the
/// first log. The feed must still return the import.
#[test]
fn an_import_between_two_logs_is_kept_when_the_first_log_is_removed() {
    let fs = MemFs::new();
    let source = options(&fs).open("source").unwrap();
    let parts = source.create_table("parts").unwrap();
    (0..100).for_each(|i| assert!(parts.insert(row(i, 0)).is_ok()));
    source.close().unwrap();
    let db = open(&fs);
    let notes = db.create_table("notes").unwrap();
    db.create_table("parts").unwrap();
    db.flush().unwrap();
    let mut since = None;
    let note = |name: &str| notes.insert(Entity::new("n", name).with("V", 1)).unwrap();
    let ended = db.import_range_with("source", "parts", |_| {
        if since.is_none() {
            note("before");
            since = Some(db.position());
            db.engine.maintenance().freeze().unwrap();
        }
    });
    assert_eq!(ended.unwrap().entities, 100);
    while db.engine.maintenance().flush_one().unwrap() {}
    let since = since.unwrap();
    let is_import = |commit: Commit| matches!(commit.changes[..], [Change::Imported { .. }]);
    let given = |db: &Db| -> Vec<bool> {
        db.changes(since).unwrap().map(|commit| is_import(commit.unwrap())).collect()
    };
    assert_eq!(given(&db), [true]);
    note("behind");
    assert_eq!(given(&db), [true, false]);
    assert_eq!(given(&options(&fs).open_read_only("db").unwrap()), [true, false]);
    // The record of the import is removed when no position before it can be read any more.
    db.flush().unwrap();
    assert_eq!(db.changes(since).unwrap_err().kind(), ErrorKind::ChangesLost);
    assert!(db.engine.reader().pin().version.imports.is_empty());
}

/// Seqs are reserved for commits that are not synced, and after a kill some of these Seqs stay
/// unused. A consumer at the position of the last commit must not get `ChangesLost`, and must get
/// the next commit.
#[test]
fn after_a_kill_the_feed_continues_at_the_position_of_readers() {
    let fs = MemFs::new();
    let db = open(&fs);
    let table = db.create_table("things").unwrap();
    let weak = table.clone().with_durability(Durability::Os);
    (0..50).for_each(|i| assert!(weak.insert(row(i, 0)).is_ok()));
    let image = fs.kill_image();
    let db = open(&image);
    db.flush().unwrap();
    let reader = options(&image).open_read_only("db").unwrap();
    assert_eq!(reader.table("things").unwrap().scan(KeyRange::all()).into_iter().count(), 50);
    for db in [&db, &reader] {
        assert!(db.oldest_position().unwrap() <= db.position());
        assert_eq!(db.changes(reader.position()).unwrap().count(), 0);
    }
    db.table("things").unwrap().insert(row(50, 0)).unwrap();
    for db in [&db, &reader] {
        assert_eq!(db.changes(reader.position()).unwrap().count(), 1);
    }
}

#[test]
fn a_commit_that_a_consumer_failed_to_process_is_delivered_again() {
    let fs = MemFs::new();
    let db = open(&fs);
    let since = db.position().seq();
    let table = db.create_table("things").unwrap();
    (0..5).for_each(|i| assert!(table.insert(row(i, 0)).is_ok()));
    let mut feed = crate::lsm::ChangeLog::open(db.engine.env(), Some(since)).unwrap();
    let (mut given, mut calls) = (Vec::new(), 0);
    loop {
        let read = feed.read(&mut |logged| {
            calls += 1;
            if calls % 2 == 1 {
                return Err(Error::new(ErrorKind::Busy, "not now"));
            }
            if let Logged::Commit { seq, is_new: true, .. } = logged {
                given.push(seq);
            }
            Ok(More::Yes)
        });
        match read {
            Ok(()) => break,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
        }
    }
    assert_eq!(given.len(), 6);
    assert!(given.is_sorted());
    assert_eq!(given.last(), Some(&db.position().seq()));
}

#[test]
fn commits_in_the_feed_survive_a_power_cut() {
    for seed in 0..6 {
        let mut rng = Rng::from_seed(seed);
        let fs = MemFs::new();
        let clock = Arc::new(ManualClock::new(NOW));
        let options = |fs: &MemFs| options(fs).clock(Arc::clone(&clock) as _).keep_changes(1 << 30);
        let db = options(&fs).open("db").unwrap();
        let start = db.oldest_position().unwrap();
        let mut changes = db.changes(start).unwrap();
        let mut given = Vec::new();
        for step in 0..40 {
            random_step(&db, &clock, &mut rng, step);
            given.extend(changes.by_ref().map(Result::unwrap));
            let image = fs.crash_image(rng.next_u64());
            let recovered = options(&image).open("db").unwrap();
            let there: Vec<_> = recovered.changes(start).unwrap().map(Result::unwrap).collect();
            assert!(there.starts_with(&given), "seed {seed}, step {step}");
            // A consumer that continues from the last returned position misses no commit and gets
            // none twice.
            let since = given.last().map_or(start, |commit: &Commit| commit.position);
            let rest: Vec<_> = recovered.changes(since).unwrap().map(Result::unwrap).collect();
            assert_eq!(rest, there[given.len()..], "seed {seed}, step {step}");
        }
    }
}

/// A commit as text, independent of the case of table names.
type Told = (Position, String);

fn told(commit: Commit) -> Told {
    (commit.position, format!("{:?}", commit.changes).to_lowercase())
}

/// Does random operations as a writer, and reads the feed after each one. Returns the commits read,
/// which are all commits if all changes are kept.
fn looked_on(db: Db, open: &dyn Fn() -> Db, clock: &ManualClock, rng: &mut Rng) -> Vec<Told> {
    let mut db = db;
    let mut all = Vec::new();
    let mut changes = db.changes(db.position()).unwrap();
    for step in 0..24 {
        random_step(&db, clock, rng, step);
        match step % 8 {
            3 => {
                db.import_range("source", "parts").unwrap();
                db.engine.maintenance().freeze().unwrap();
            }
            5 => db.table("parts").unwrap().delete_range(&KeyRange::all()).unwrap(),
            7 => {
                db.close().unwrap();
                db = open();
            }
            _ => {}
        }
        db.sync().unwrap();
        all.extend(changes.by_ref().map_while(Result::ok).map(told));
    }
    all
}

/// Compares what readers see between any two operations of the writer with the state after a power
/// cut at that moment.
#[test]
fn at_every_operation_readers_see_durable_commits_and_the_feed_has_no_gap() {
    for (seed, kept) in [(0, 1 << 30), (1, 1 << 30), (2, 8 << 10)] {
        let mut rng = Rng::from_seed(seed);
        let fs = MemFs::new();
        let clock = Arc::new(ManualClock::new(NOW));
        let options = |fs: &MemFs| options(fs).clock(Arc::clone(&clock) as _).keep_changes(kept);
        let source = options(&fs).open("source").unwrap();
        let parts = source.create_table("parts").unwrap();
        (0..30).for_each(|i| assert!(parts.insert(row(i, 0)).is_ok()));
        source.close().unwrap();
        let db = options(&fs).open("db").unwrap();
        db.create_table("things").unwrap();
        let start = db.position();
        fs.record();
        let reopen = || options(&fs).open("db").unwrap();
        let all = looked_on(db, &reopen, &clock, &mut rng);
        let (mut given, mut since, mut lost): (Vec<Told>, _, _) = (Vec::new(), start, 0);
        for op in fs.recorded() {
            let what = format!("seed {seed}, before operation {op}");
            let is_lost = |error: crate::error::Error| {
                assert_eq!((error.kind(), kept >> 30), (ErrorKind::ChangesLost, 0), "{what}");
            };
            let beside = options(&fs.kill_image_at(op).unwrap()).follow("db").unwrap().db();
            let mut feed = beside.changes(since).unwrap_or_else(|error| {
                is_lost(error);
                (lost, given) = (lost + 1, Vec::new());
                beside.changes(beside.position()).unwrap()
            });
            let from = feed.position();
            let known = given.len();
            given.extend(feed.by_ref().map(|commit| told(commit.unwrap())));
            since = feed.position();
            let left = options(&fs.crash_image_at(op, rng.next_u64()).unwrap()).open("db").unwrap();
            assert!(left.position() >= beside.position().max(since), "{what}");
            if left.position() == beside.position() {
                assert_eq!(state(&left), state(&beside), "{what}");
            }
            match left.changes(from) {
                Ok(rest) => {
                    let rest: Vec<_> = rest.map(|commit| told(commit.unwrap())).collect();
                    assert!(rest.starts_with(&given[known..]), "{what}");
                }
                Err(error) => is_lost(error),
            }
        }
        if kept == 1 << 30 {
            assert!(lost == 0 && given == all, "seed {seed}");
        }
    }
}

#[test]
fn the_text_of_a_position_parses_back() {
    let db = open(&MemFs::new());
    db.create_table("things").unwrap();
    let position = db.position();
    assert_eq!(position.to_string().parse::<Position>().unwrap(), position);
    let wrong = ["", "-", "0-0", "00000000000000zz-1", "0000000000000000--1", "0000000000000000-"];
    for text in wrong.iter().chain(&["0000000000000000-99999999999999999999", "+000000000000000-1"])
    {
        assert_eq!(text.parse::<Position>().unwrap_err().kind(), ErrorKind::InvalidInput, "{text}");
    }
}

/// A cursor that was read but never committed continues from where it was read first, or reports
/// that changes are lost.
#[test]
fn a_cursor_begins_where_it_was_read_first() {
    let fs = MemFs::new();
    let db = open(&fs);
    let table = db.create_table("things").unwrap();
    table.insert(row(1, 0)).unwrap();
    let cursor = db.cursor("c").unwrap();
    assert_eq!(cursor.position().unwrap(), None);
    assert_eq!(cursor.changes().unwrap().count(), 2);
    let begun = cursor.position().unwrap().unwrap();
    table.insert(row(2, 0)).unwrap();
    assert_eq!(cursor.changes().unwrap().count(), 3);
    assert_eq!(cursor.position().unwrap(), Some(begun));
    db.flush().unwrap();
    table.insert(row(3, 0)).unwrap();
    db.flush().unwrap();
    assert_eq!(cursor.changes().map(drop).unwrap_err().kind(), ErrorKind::ChangesLost);
}

/// If an import survives a power cut, so must all commits to other tables that were acknowledged
/// before it.
#[test]
fn an_import_survives_a_power_cut_only_with_the_commits_before_it() {
    let fs = MemFs::new();
    let source = options(&fs).open("source").unwrap();
    let parts = source.create_table("parts").unwrap();
    (0..100).for_each(|i| assert!(parts.insert(row(i, 0)).is_ok()));
    source.close().unwrap();
    let db = open(&fs);
    let weak = db.create_table("notes").unwrap().with_durability(Durability::Os);
    db.create_table("parts").unwrap();
    fs.record();
    let mut is_written = false;
    db.import_range_with("source", "parts", |_| {
        if !std::mem::replace(&mut is_written, true) {
            weak.insert(Entity::new("n", "weak")).unwrap();
        }
    })
    .unwrap();
    let mut imported = 0;
    for op in fs.recorded() {
        let image = fs.crash_image_at(op, 6).unwrap();
        let Ok(db) = options(&image).open("db") else { continue };
        if db.table("parts").unwrap().get("p0", "000000").unwrap().is_some() {
            imported += 1;
            assert!(db.table("notes").unwrap().get("n", "weak").unwrap().is_some(), "{op}");
        }
    }
    assert!(imported > 0);
}

/// The time limit of a wait is never reached: a reader that no commit woke would hang here.
#[cfg(target_os = "linux")]
#[test]
fn a_commit_wakes_readers_of_the_feed_in_its_process_and_in_others() {
    let guard = tempfile::tempdir().unwrap();
    let db = Db::options().open(guard.path()).unwrap();
    let table = db.create_table("Parts").unwrap();
    let follower = Db::follow(guard.path()).unwrap();
    for reader in [db.clone(), follower.db()] {
        let mut changes = reader.changes(db.position()).unwrap();
        changes.wait(Duration::from_secs(100_000)).unwrap();
        assert!(changes.next().is_none());
        for number in 0..3 {
            table.upsert(Entity::new("p", format!("{number}"))).unwrap();
            while changes.next().transpose().unwrap().is_none() {
                changes.wait(Duration::from_secs(100_000)).unwrap();
            }
        }
    }
}

//! Damages random databases in one place or several: bytes flipped, sectors zeroed, files cut or
//! removed. A seed determines a history and a database, closed or killed. Then
//! * a database that opens answers every read as the model does, or with `Corruption`;
//! * once healed from a checkpoint, it answers as the model does;
//! * once repaired, it has exactly the model's state at the reported moment, less the reported
//!   losses. Suspect rows, if kept, were once written and are as many as reported;
//! * each version that `salvage` finds was written, and each that is reported as live is the
//!   model's row.
//!
//! `ROWSTONE_DAMAGE=1000` does the full run, which prints the counts of all outcomes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rowstone::fs::{Fs, MemFs};
use rowstone::{
    Db, Entity, Error, ErrorKind, KeyRange, Options, Table,
    clock::ManualClock,
    options::Background,
    repair::{LostRange, RepairReport, SalvagedState, SuspectRows},
    retry::Rng,
};

use crate::say;

const NOW: u64 = 133_000_000_000_000_000;
/// Ticks of the clock between commits. The Seq of a commit is the time that the clock shows.
const STEP: u64 = 10_000;
const TABLES: [&str; 3] = ["parts", "orders", "Visits"];
/// The number of damaged copies of each database.
const COPIES: u64 = 8;

/// One commit.
#[derive(Clone, Debug)]
enum Op {
    Create,
    Drop(usize),
    Put(usize, String, String, i64),
    Delete(usize, String, String),
    DeletePartition(usize, String),
}

impl Op {
    fn apply(&self, state: &mut State) {
        match self {
            Op::Create => {}
            Op::Drop(table) => state.retain(|(t, ..), _| t != table),
            Op::Put(table, pk, rk, value) => {
                state.insert((*table, pk.clone(), rk.clone()), *value);
            }
            Op::Delete(table, pk, rk) => {
                state.remove(&(*table, pk.clone(), rk.clone()));
            }
            Op::DeletePartition(table, pk) => state.retain(|(t, p, _), _| (t, p) != (table, pk)),
        }
    }
}

/// Rows by table, PartitionKey and RowKey.
type State = BTreeMap<(usize, String, String), i64>;

/// The committed operations, by Seq.
#[derive(Default)]
struct History(BTreeMap<u64, Op>);

impl History {
    fn at(&self, seq: u64) -> State {
        let mut state = State::new();
        self.0.range(..=seq).for_each(|(_, op)| op.apply(&mut state));
        state
    }

    /// Returns the state after each commit.
    fn states(&self) -> Vec<State> {
        let mut state = State::new();
        let after = |op: &Op| {
            op.apply(&mut state);
            state.clone()
        };
        self.0.values().map(after).collect()
    }

    fn last(&self) -> u64 {
        self.0.keys().next_back().copied().unwrap_or_default()
    }
}

/// A database and its expected content.
struct Subject {
    fs: MemFs,
    history: History,
    is_closed: bool,
}

fn options(fs: &MemFs, clock: &Arc<ManualClock>) -> Options {
    Options::new()
        .fs(Arc::new(fs.clone()))
        .clock(clock.clone())
        .background(Background::Manual)
        .memtable_bytes(8 << 10)
        .run_file_bytes(8 << 10)
        .block_bytes(512)
        .seed(7)
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(NOW))
}

fn open(fs: &MemFs, dir: &str) -> rowstone::Result<Db> {
    options(fs, &clock()).create_if_missing(false).open(dir)
}

fn subject(seed: u64) -> Subject {
    let (fs, clock, mut rng) = (MemFs::new(), clock(), Rng::from_seed(seed));
    // Every other database keeps its logs for the change feed.
    let kept = if seed.is_multiple_of(2) { 64 << 10 } else { 0 };
    let db = options(&fs, &clock).keep_changes(kept).open("db").unwrap();
    let mut history = History::default();
    let ops = 150 + rng.below(900);
    let backup_at = rng.below(ops);
    for i in 0..ops {
        clock.jump(NOW + (i + 1) * STEP);
        if let Some(op) = commit(&db, &mut rng, i) {
            history.0.insert(NOW + (i + 1) * STEP, op);
        }
        match rng.below(60) {
            0 => db.flush().unwrap(),
            1 if rng.chance(1, 6) => db.compact().unwrap(),
            2..=20 => drop(db.step(std::time::Duration::ZERO)),
            _ => {}
        }
        if i == backup_at {
            db.checkpoint("backup").unwrap();
        }
    }
    let is_closed = rng.chance(2, 3);
    let fs = if is_closed {
        db.close().unwrap();
        fs
    } else {
        fs.kill_image()
    };
    Subject { fs, history, is_closed }
}

/// Makes one random commit; `None` if there was nothing to do.
fn commit(db: &Db, rng: &mut Rng, i: u64) -> Option<Op> {
    let table = rng.index(TABLES.len());
    let name = TABLES[table];
    let Ok(rows) = db.table(name) else {
        db.create_table(name).unwrap();
        return Some(Op::Create);
    };
    let (pk, rk) = (format!("p{}", rng.below(4)), format!("r{:03}", rng.below(60)));
    match rng.below(400) {
        0 => {
            db.delete_table(name).unwrap();
            Some(Op::Drop(table))
        }
        1..=3 => {
            rows.delete_partition(&pk).unwrap();
            Some(Op::DeletePartition(table, pk))
        }
        4..=120 => rows.delete(&pk, &rk).ok().map(|_| Op::Delete(table, pk, rk)),
        _ => {
            let filler = "x".repeat(rng.index(120));
            let value = i as i64;
            let row = Entity::new(&*pk, &*rk).with("V", value).with("Filler", filler);
            rows.upsert(row).unwrap();
            Some(Op::Put(table, pk, rk, value))
        }
    }
}

/// Replaces one file; the checkpoint's hard link keeps the old bytes.
fn rewrite(fs: &MemFs, path: &str, bytes: &[u8]) {
    fs.remove(Path::new(path)).unwrap();
    fs.write(path, bytes).unwrap();
}

/// Damages one file of `db`; returns a description.
fn damage(fs: &MemFs, rng: &mut Rng) -> String {
    let kinds = [(".sst", 6), (".wal", 2), ("MANIFEST-", 1), ("CURRENT", 1)];
    let mut choice = rng.below(10);
    let kind = kinds.iter().find(|(_, weight)| {
        let is_it = choice < *weight;
        choice = choice.saturating_sub(*weight);
        is_it
    });
    let kind = kind.unwrap().0;
    let is_meant = |path: &String| path.starts_with("db/") && path.contains(kind);
    let paths: Vec<String> = fs.paths().into_iter().filter(is_meant).collect();
    if paths.is_empty() {
        return "nothing".to_owned();
    }
    let path = rng.pick(&paths).clone();
    let mut bytes = fs.read(&path).unwrap();
    // After its last record a log has only reserved space, which is not damaged here.
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1).max(1);
    let at = rng.index(used.min(bytes.len().max(1)));
    let done = match rng.below(8) {
        _ if bytes.is_empty() => "empty",
        0 => {
            fs.remove(Path::new(&path)).unwrap();
            return format!("{path} removed");
        }
        1 => {
            bytes.truncate(at);
            "cut"
        }
        2 => {
            let (from, to) = (at / 512 * 512, (at / 512 * 512 + 512).min(bytes.len()));
            bytes[from..to].fill(0);
            "sector zeroed"
        }
        _ => {
            bytes[at] ^= 1 << rng.below(8);
            "flipped"
        }
    };
    rewrite(fs, &path, &bytes);
    format!("{path} {done} at {at}")
}

/// The number of damaged databases with each outcome.
#[derive(Default)]
struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    fn note(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }
}

fn table_of(name: &str) -> Option<usize> {
    TABLES.iter().position(|table| *table == name)
}

fn value(entity: &Entity) -> i64 {
    entity.get("V").unwrap()
}

/// Reads everything and returns whether all of it could be read. Each result must agree with
/// `state`.
#[track_caller]
fn check_reads(db: &Db, state: &State, what: &str) -> bool {
    read(db, state).unwrap_or_else(|wrong| panic!("{what}: {wrong}"))
}

/// Whether everything could be read; an error describes a result that differs from `state`.
fn read(db: &Db, state: &State) -> Result<bool, String> {
    let mut is_whole = true;
    for (table, name) in TABLES.iter().enumerate() {
        let Ok(rows) = db.table(name) else {
            if state.keys().any(|(t, ..)| *t == table) {
                return Err(format!("no table {name}"));
            }
            continue;
        };
        is_whole &= read_points(&rows, state, table)?;
        is_whole &= scan(&rows, state, table)?;
    }
    Ok(is_whole)
}

fn damaged(error: &Error) -> Result<bool, String> {
    match error.kind() {
        ErrorKind::Corruption => Ok(false),
        _ => Err(format!("{error:?}")),
    }
}

fn read_points(rows: &Table, state: &State, table: usize) -> Result<bool, String> {
    let mut is_whole = true;
    for pk in (0..4).map(|i| format!("p{i}")) {
        for rk in (0..60).step_by(3).map(|i| format!("r{i:03}")) {
            match rows.get(&pk, &rk) {
                Ok(found) => {
                    let found = found.as_ref().map(value);
                    let expected = state.get(&(table, pk.clone(), rk.clone()));
                    if found.as_ref() != expected {
                        return Err(format!("{table} {pk} {rk}: {found:?}, not {expected:?}"));
                    }
                }
                Err(error) => is_whole &= damaged(&error)?,
            }
        }
    }
    Ok(is_whole)
}

fn scan(rows: &Table, state: &State, table: usize) -> Result<bool, String> {
    let mut expected = state.iter().filter(|((t, ..), _)| *t == table);
    for row in rows.scan(KeyRange::all()) {
        let row = match row {
            Ok(row) => row,
            Err(error) => return damaged(&error),
        };
        let found = (row.partition_key(), row.row_key(), value(&row));
        let next = expected.next().map(|((_, pk, rk), v)| (&**pk, &**rk, *v));
        if Some(found) != next {
            return Err(format!("a scan of {table} has {found:?}, not {next:?}"));
        }
    }
    match expected.next() {
        None => Ok(true),
        Some(next) => Err(format!("a scan of {table} ended before {next:?}")),
    }
}

/// Returns the state that the opened database should show. If the database was killed, damage after
/// the last durable offset may remove the damaged commit and all later ones.
fn state_shown(subject: &Subject, db: &Db, what: &str) -> State {
    let last = subject.history.at(subject.history.last());
    let wrong = match read(db, &last) {
        Ok(_) => return last,
        Err(wrong) => wrong,
    };
    assert!(!subject.is_closed, "{what}: {wrong}");
    let seen = seen(db);
    let fits = |state: &State| seen.iter().all(|(key, value)| state.get(key) == value.as_ref());
    let fitting = subject.history.states().into_iter().rev().find(fits);
    fitting.unwrap_or_else(|| panic!("{what}: matches no past state; against the last, {wrong}"))
}

/// Reads every key. Returns the results, except those of reads that report damage.
fn seen(db: &Db) -> BTreeMap<(usize, String, String), Option<i64>> {
    let mut seen = BTreeMap::new();
    for (table, name) in TABLES.iter().enumerate() {
        let rows = db.table(name).ok();
        for (pk, rk) in (0..240).map(|i| (format!("p{}", i / 60), format!("r{:03}", i % 60))) {
            let found = rows.as_ref().map_or(Ok(None), |rows| rows.get(&pk, &rk));
            if let Ok(found) = found {
                seen.insert((table, pk, rk), found.as_ref().map(value));
            }
        }
    }
    seen
}

fn serve(subject: &Subject, fs: &MemFs, what: &str, counts: &mut Counts) {
    match open(fs, "db") {
        Err(error) => {
            let kinds = [ErrorKind::Corruption, ErrorKind::Unsupported];
            assert!(kinds.contains(&error.kind()), "{what}: {error:?}");
            counts.note("opening: refused, with the file's name");
        }
        Ok(db) => {
            let state = state_shown(subject, &db, what);
            match check_reads(&db, &state, what) {
                true => counts.note("opening: every read right"),
                false => counts.note("opening: some reads right, the others Corruption"),
            }
        }
    }
}

fn heal(subject: &Subject, fs: &MemFs, what: &str, counts: &mut Counts) {
    let healed = options(fs, &clock()).heal("db", None, "backup", |_| ());
    let report = match healed {
        Ok(report) => report,
        Err(error) => {
            assert!(
                matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported),
                "{what}: {error:?}"
            );
            return counts.note("heal: logs or manifest are damaged");
        }
    };
    match open(fs, "db") {
        Ok(db) => {
            let state = state_shown(subject, &db, what);
            let is_whole = check_reads(&db, &state, what);
            let is_replaced = report.files.iter().all(|file| file.healed.is_some());
            if is_replaced {
                assert!(is_whole, "{what}: {report:?}");
                // The report names all damage that is left. It is in logs kept for the change feed.
                assert_eq!(db.verify().unwrap().problems, report.problems, "{what}: {report:?}");
            }
            counts.note(match (is_replaced, report.is_healed()) {
                (true, true) if report.files.is_empty() => "heal: no table file is damaged",
                (true, true) => "heal: healed",
                (true, false) => "heal: a log kept for the change feed is damaged",
                (false, _) => "heal: some files are younger than the backup",
            });
        }
        Err(error) => {
            assert!(!report.is_healed(), "{what}: {error:?}");
            counts.note("heal: the catalog's file is younger than the backup");
        }
    }
}

fn is_lost(range: &LostRange, table: usize, pk: &str, rk: &str) -> bool {
    let key = (table_of(&range.table), (pk, rk));
    let from = (&*range.first.0, &*range.first.1);
    let to = (&*range.last.0, &*range.last.1);
    let is_above = range.table == "(catalog)" || key.0 != Some(table) || from <= key.1;
    let is_below = table_of(&range.last_table) != Some(table) || key.1 <= to;
    is_above && is_below
}

fn rows_of(db: &Db, what: &str) -> BTreeMap<(String, String, String), (i64, u64)> {
    let mut rows = BTreeMap::new();
    for name in db.tables().unwrap() {
        for row in db.table(&name).unwrap().scan(KeyRange::all()) {
            let row = row.unwrap_or_else(|error| panic!("{what}: {error:?}"));
            let seq = row.timestamp().unwrap().ticks();
            let key = (name.clone(), row.partition_key().to_owned(), row.row_key().to_owned());
            rows.insert(key, (value(&row), seq));
        }
    }
    rows
}

/// Repairs the database. Its rows must be those of the reported moment, less the reported losses.
fn repair(subject: &Subject, fs: &MemFs, what: &str, counts: &mut Counts) -> RepairReport {
    let repair = |target, suspect| options(fs, &clock()).repair("db", target, suspect, |_, _| ());
    let report = repair("repaired", SuspectRows::LeaveOut).unwrap();
    let what = format!("{what}: {report:?}");
    let db = open(fs, "repaired").unwrap();
    assert!(db.verify().unwrap().is_sound(), "{what}");
    let state = subject.history.at(report.as_of_seq.ticks());
    let rows = rows_of(&db, &what);
    let mut found = State::new();
    for ((name, pk, rk), (value, seq)) in &rows {
        let table = table_of(name).or_else(|| table_written(subject, *seq));
        let key = (table.expect("a table that never existed"), pk.clone(), rk.clone());
        assert_eq!(state.get(&key), Some(value), "{what}: {key:?} is wrong, or was deleted");
        found.insert(key, *value);
    }
    let loose = report.doubt.is_some();
    let suspect = report.suspect() > 0;
    for (table, pk, rk) in state.keys().filter(|key| !found.contains_key(*key)) {
        let mut ranges = report.losses.iter().flat_map(|loss| &loss.ranges);
        let is_reported = loose || suspect || ranges.any(|range| is_lost(range, *table, pk, rk));
        assert!(is_reported, "{what}: ({table}, {pk}, {rk}) is lost but not reported");
    }
    if report.is_whole() {
        assert_eq!(found, state, "{what}");
    }
    let kept = repair("kept", SuspectRows::Keep).unwrap();
    let kept_rows = rows_of(&open(fs, "kept").unwrap(), &what);
    for ((_, pk, rk), (value, seq)) in &kept_rows {
        let written = subject.history.0.get(seq);
        let is_it = matches!(written, Some(Op::Put(_, p, r, v)) if (p, r, v) == (pk, rk, value));
        assert!(is_it, "{what}: ({pk}, {rk}) = {value} was never written");
    }
    assert_eq!(kept_rows.len() as u64, rows.len() as u64 + kept.suspect(), "{what}");
    counts.note(match (&report.doubt, report.is_whole(), suspect) {
        (Some(_), ..) => "repair: manifest lost, every row reported as suspect",
        (None, true, _) => "repair: nothing lost",
        (None, false, true) => "repair: part lost, some rows reported as suspect",
        (None, false, false) if report.losses.iter().any(|loss| loss.file.ends_with(".wal")) => {
            "repair: an earlier moment, as reported"
        }
        (None, false, false) => "repair: part lost, as reported",
    });
    report
}

fn table_written(subject: &Subject, seq: u64) -> Option<usize> {
    match subject.history.0.get(&seq) {
        Some(Op::Put(table, ..)) => Some(*table),
        _ => None,
    }
}

fn salvage(subject: &Subject, fs: &MemFs, report: &RepairReport, what: &str, counts: &mut Counts) {
    let state = subject.history.at(subject.history.last());
    let then = subject.history.at(report.as_of_seq.ticks());
    let (mut live, mut suspect, mut all) = (0, 0, 0);
    // The key of the last live or suspect version so far. The versions of a key are returned newest
    // first.
    let mut shown = None;
    let take = |found: rowstone::repair::Salvaged| {
        let key = (found.table.clone(), found.partition_key.clone(), found.row_key.clone());
        if found.state == SalvagedState::Live {
            assert_ne!(shown.as_ref(), Some(&key), "{what}: {found:?} has a newer version");
        }
        suspect += u64::from(found.state == SalvagedState::Suspect);
        if matches!(found.state, SalvagedState::Live | SalvagedState::Suspect) {
            shown = Some(key);
        }
        let seq = found.seq.ticks();
        let (pk, rk) = (found.partition_key.clone(), found.row_key.clone());
        let op = subject.history.0.get(&seq);
        match (&found.entity, found.state) {
            (Some(entity), found_state) => {
                let Some(Op::Put(table, p, r, v)) = op else { panic!("{what}: {found:?}") };
                assert_eq!((p, r, *v), (&pk, &rk, value(entity)), "{what}: {found:?}");
                all += 1;
                if found_state == SalvagedState::Live {
                    live += 1;
                    let key = (*table, pk, rk);
                    let is_right = [&state, &then].iter().any(|state| state.get(&key) == Some(v));
                    assert!(is_right, "{what}: {found:?} is not live");
                }
            }
            (None, SalvagedState::Deleted) => {
                assert!(matches!(op, Some(Op::Delete(..))), "{what}: {found:?}");
            }
            (None, _) => {}
        }
        Ok(())
    };
    let salvaged = options(fs, &clock()).salvage("db", take, |_, _| ()).unwrap();
    let proven = report.rows() - report.suspect().min(report.rows());
    assert!(live + suspect >= proven, "{what}: {salvaged:?}");
    counts.note(match (all, live) {
        (0, _) => "salvage: no row is left",
        (_, 0) => "salvage: rows, none of them proven",
        _ => "salvage: rows, and which of them are proven",
    });
}

#[test]
fn trap_24_damage_anywhere_never_gives_a_wrong_row() {
    let places = crate::cases("ROWSTONE_DAMAGE", 16);
    let (mut counts, mut done, mut seed) = (Counts::default(), 0u64, 1);
    while done < places {
        let subject = subject(seed);
        for copy in 0..COPIES {
            let mut rng = Rng::from_seed(seed * 1_000 + copy);
            let fs = subject.fs.kill_image();
            let several = if rng.chance(1, 3) { 1 + rng.below(3) } else { 1 };
            let what: Vec<String> = (0..several).map(|_| damage(&fs, &mut rng)).collect();
            let what = format!("seed {seed} copy {copy}, {}", what.join(", "));
            done += several;
            counts.note("databases");
            serve(&subject, &fs.kill_image(), &what, &mut counts);
            heal(&subject, &fs.kill_image(), &what, &mut counts);
            let report = repair(&subject, &fs.kill_image(), &what, &mut counts);
            salvage(&subject, &fs.kill_image(), &report, &what, &mut counts);
        }
        seed += 1;
    }
    say(format!("{done} places damaged"));
    counts.0.iter().for_each(|(what, count)| say(format!("{count:6}  {what}")));
}

//! The oracle, a simple model of the database: tables as maps, the documented semantics of every
//! verb, and the history of commits.
//!
//! Invariants
//! * independent of the engine: nothing here calls the engine;
//! * `prints[k]` is the fingerprint of the state after k commits, so that the number of commits in
//!   a recovered state is found quickly;
//! * a commit is added when it is submitted; a prefix of the submitted commits is visible;
//! * `process_floor` and `power_floor` are the numbers of commits that must survive a kill and a
//!   power cut.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use crate::lsm::GateMode;
use crate::options::Durability;

use super::row::{Key, Row, key};
use super::step::{Condition, Scan, Verb, Write};

/// A user's table. Copies of a state share the rows until one copy changes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The name, as spelled when the table was created.
    pub name: String,
    /// Rows in the order of scans.
    pub rows: Rc<BTreeMap<Key, Rc<Row>>>,
    /// The closed gates of the table.
    pub gates: Gates,
}

/// The closed gates of a table. The key is a scan of which only the bounds matter.
pub type Gates = BTreeMap<Scan, GateMode>;

/// Tables by lower-cased name.
pub type Tables = BTreeMap<String, Table>;

/// An error that the semantics require of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The service's error code.
    pub(crate) code: &'static str,
    /// The index of the refused write in its group, counted from 0.
    pub(crate) index: Option<usize>,
}

/// A change that a step commits.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Creates a table of this name.
    Create(String),
    /// Drops the table of this name, with its rows.
    Drop(String),
    /// Deletes the rows of some spans.
    DropRange { table: String, scans: Vec<Scan> },
    /// Deletes the rows whose entity tag is less than `below`.
    Expire { table: String, below: u64 },
    /// Deletes the rows of several tables with tags below `below`, to make room for another write.
    Oldest { tables: Vec<String>, below: u64 },
    /// Closes a gate.
    Gate { table: String, scan: Scan, mode: GateMode },
    /// Opens the gate with these bounds.
    Lift { table: String, scan: Scan },
    /// Restores exported rows unchanged.
    Import { table: String, rows: Vec<Rc<Row>> },
    /// One write, or a group.
    Rows { table: String, writes: Vec<Write> },
}

/// The state that the database must show, and the history of commits.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    /// The state after every commit so far, visible or not.
    pub tables: Tables,
    /// The values that each commit replaced.
    undo: Vec<Vec<Set>>,
    prints: Vec<u64>,
    /// The entity tag of each commit; 0 for a commit that writes no entity.
    pub(crate) etags: Vec<u64>,
    /// The Seq of each commit, in ticks.
    seqs: Vec<u64>,
    asked: Vec<Durability>,
    /// The number of commits that a reader has seen or that were acknowledged to a writer.
    shown: usize,
    /// The largest entity tag ever returned, including tags of lost commits.
    pub etag_max: u64,
    /// The largest Seq assigned since the process started.
    seq_max: u64,
    /// Changes whose commits failed with unknown outcome. At most one of them took effect, because
    /// the engine writes nothing more after the first such failure.
    pub(super) pending: Vec<Change>,
    /// The number of commits that must survive a kill of the process.
    pub process_floor: usize,
    /// The number of commits that must survive a power cut.
    pub power_floor: usize,
    /// The number of recovered commits, if opening has not made them durable yet.
    unconfirmed: Option<usize>,
}

/// The new value of a table or row; `None` removes it.
#[derive(Clone, Debug)]
enum Set {
    Table(String, Option<Table>),
    Row(String, Key, Option<Rc<Row>>),
}

impl Set {
    /// Changes `tables`. Returns the reverse change, and the difference of the fingerprints.
    fn apply(self, tables: &mut Tables) -> (Set, u64) {
        match self {
            Set::Table(lower, new) => {
                let print = |table: &Option<Table>| {
                    table.as_ref().map_or(0, |table| table_print(&lower, table))
                };
                let after = print(&new);
                let old = match new {
                    Some(table) => tables.insert(lower.clone(), table),
                    None => tables.remove(&lower),
                };
                let difference = after ^ print(&old);
                (Set::Table(lower, old), difference)
            }
            Set::Row(lower, key, new) => {
                let Some(table) = tables.get_mut(&lower) else {
                    unreachable!("a table that is written to was found by `check`");
                };
                let rows = Rc::make_mut(&mut table.rows);
                let print =
                    |row: &Option<Rc<Row>>| row.as_ref().map_or(0, |row| print_of((&lower, row)));
                let after = print(&new);
                let old = match new {
                    Some(row) => rows.insert(key.clone(), row),
                    None => rows.remove(&key),
                };
                let difference = after ^ print(&old);
                (Set::Row(lower, key, old), difference)
            }
        }
    }
}

impl Change {
    /// Returns the tag of this change in a `state` that includes it: 0 if the change writes no
    /// entity, `None` if the entity is missing.
    pub(crate) fn tag_in(&self, state: &Tables) -> Option<u64> {
        let Change::Rows { table, writes } = self else { return Some(0) };
        let written = writes.iter().find(|write| write.verb != Verb::Delete);
        let Some(write) = written else { return Some(0) };
        Some(state.get(&table.to_lowercase())?.rows.get(&key(&write.pk, &write.rk))?.etag)
    }
}

fn print_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn table_print(lower: &str, table: &Table) -> u64 {
    let rows = table.rows.values().map(|row| print_of((lower, row)));
    let gates = table.gates.iter().map(|(scan, mode)| print_of(("gate", lower, scan, mode)));
    rows.chain(gates).fold(print_of(("table", &table.name)), |all, print| all ^ print)
}

/// Returns the fingerprint of a whole state.
pub(crate) fn fingerprint(tables: &Tables) -> u64 {
    tables.iter().fold(0, |all, (lower, table)| all ^ table_print(lower, table))
}

impl Oracle {
    /// Creates an oracle without tables and commits.
    pub fn new() -> Self {
        Self { prints: vec![0], ..Self::default() }
    }

    /// Returns the number of commits, visible or not.
    pub fn commits(&self) -> usize {
        self.undo.len()
    }

    /// Returns the newest version of an entity, visible or not.
    pub(crate) fn row(&self, table: &str, pk: &str, rk: &str) -> Option<&Rc<Row>> {
        self.tables.get(&table.to_lowercase())?.rows.get(&key(pk, rk))
    }

    /// Returns the tag that `condition` demands; `None` for any tag.
    pub(crate) fn etag(&self, table: &str, write: &Write) -> Option<u64> {
        let current = self.row(table, &write.pk, &write.rk).map(|row| row.etag);
        match write.condition {
            Condition::Any => None,
            Condition::Current => Some(current.unwrap_or(1)),
            Condition::Stale => Some(current.unwrap_or(2) - 1),
            Condition::Commit(number) => {
                Some(number.checked_sub(1).and_then(|at| self.etags.get(at)).copied().unwrap_or(1))
            }
        }
    }

    /// Checks `change` against the semantics.
    ///
    /// # Errors
    /// The error that the engine must return.
    pub(crate) fn check(&self, change: &Change) -> Result<(), Refusal> {
        let refuse = |code| Err(Refusal { code, index: None });
        match change {
            Change::Create(name) if self.tables.contains_key(&name.to_lowercase()) => {
                refuse("TableAlreadyExists")
            }
            Change::Drop(name) if !self.tables.contains_key(&name.to_lowercase()) => {
                refuse("ResourceNotFound")
            }
            Change::Create(_) | Change::Drop(_) | Change::Oldest { .. } => Ok(()),
            Change::DropRange { table, .. }
            | Change::Expire { table, .. }
            | Change::Gate { table, .. }
            | Change::Lift { table, .. }
            | Change::Import { table, .. }
            | Change::Rows { table, .. }
                if !self.tables.contains_key(&table.to_lowercase()) =>
            {
                refuse("TableNotFound")
            }
            Change::DropRange { .. }
            | Change::Expire { .. }
            | Change::Gate { .. }
            | Change::Import { .. } => Ok(()),
            Change::Lift { table, scan } => match self.gates(table).any(|gate| gate == scan) {
                true => Ok(()),
                false => refuse("ResourceNotFound"),
            },
            Change::Rows { table, writes }
                if self
                    .gates(table)
                    .any(|gate| writes.iter().any(|w| gate.covers(&w.pk, &w.rk))) =>
            {
                refuse("ServerBusy")
            }
            Change::Rows { table, writes } => {
                let mut checks = writes.iter().enumerate();
                checks.try_for_each(|(index, write)| {
                    let checked = self.check_write(table, write);
                    checked.map_err(|code| Refusal { code, index: Some(index) })
                })
            }
        }
    }

    /// Returns the bounds of the closed gates of a table.
    pub fn gates(&self, table: &str) -> impl Iterator<Item = &Scan> {
        self.tables.get(&table.to_lowercase()).into_iter().flat_map(|table| table.gates.keys())
    }

    fn check_write(&self, table: &str, write: &Write) -> Result<(), &'static str> {
        let row = self.row(table, &write.pk, &write.rk);
        match (write.verb, row) {
            (Verb::Insert, Some(_)) => Err("EntityAlreadyExists"),
            (Verb::Insert | Verb::Upsert | Verb::UpsertMerge, _) => Ok(()),
            (Verb::Replace | Verb::Merge | Verb::Delete, None) => Err("ResourceNotFound"),
            (Verb::Replace | Verb::Merge | Verb::Delete, Some(row)) => {
                match self.etag(table, write) {
                    Some(etag) if etag != row.etag => Err("UpdateConditionNotSatisfied"),
                    _ => Ok(()),
                }
            }
        }
    }

    /// Records that `change` was acknowledged with this tag and durability.
    ///
    /// Requires: [`check`](Self::check) allows the change.
    pub(crate) fn commit(&mut self, change: &Change, etag: u64, durability: Durability) {
        let seq = etag.max(self.seq_max);
        self.submit(change, etag, seq, durability);
        self.show(self.commits());
    }

    /// Records that `change` was accepted with the number `seq` and is not visible yet. `etag` is 0
    /// if it writes no entity.
    ///
    /// Requires: [`check`](Self::check) allows the change.
    pub(crate) fn submit(&mut self, change: &Change, etag: u64, seq: u64, durability: Durability) {
        let mut print = self.prints[self.commits()];
        let mut undo = Vec::new();
        for set in self.sets(change, etag) {
            let (opposite, difference) = set.apply(&mut self.tables);
            undo.push(opposite);
            print ^= difference;
        }
        self.undo.push(undo);
        self.prints.push(print);
        self.etags.push(etag);
        // A recovered commit without an entity may have a larger Seq than the oracle can know.
        self.seqs.push(seq.max(self.seqs.last().copied().unwrap_or_default()));
        self.asked.push(durability);
        self.seq_max = self.seq_max.max(seq);
    }

    /// Returns the new values of the tables and rows that `change` sets.
    fn sets(&self, change: &Change, etag: u64) -> Vec<Set> {
        match change {
            Change::Create(name) => {
                let (rows, gates) = (Rc::default(), Gates::new());
                let table = Table { name: name.clone(), rows, gates };
                vec![Set::Table(name.to_lowercase(), Some(table))]
            }
            Change::Drop(name) => vec![Set::Table(name.to_lowercase(), None)],
            Change::DropRange { table, scans } => {
                self.remove(table, |row| scans.iter().any(|scan| scan.covers(&row.pk, &row.rk)))
            }
            Change::Expire { table, below } => self.remove(table, |row| row.etag < *below),
            Change::Oldest { tables, below } => {
                let remove = |table: &String| self.remove(table, |row| row.etag < *below);
                tables.iter().flat_map(remove).collect()
            }
            Change::Gate { table, scan, mode } => {
                self.with_gates(table, |gates| gates.insert(scan.clone(), *mode))
            }
            Change::Lift { table, scan } => self.with_gates(table, |gates| gates.remove(scan)),
            Change::Import { table, rows } => {
                let lower = table.to_lowercase();
                let set = |row: &Rc<Row>| {
                    Set::Row(lower.clone(), key(&row.pk, &row.rk), Some(Rc::clone(row)))
                };
                rows.iter().map(set).collect()
            }
            Change::Rows { table, writes } => {
                writes.iter().map(|write| self.write(table, write, etag)).collect()
            }
        }
    }

    /// Returns the changes that remove the rows of a table for which `goes` returns true.
    fn remove(&self, name: &str, goes: impl Fn(&Row) -> bool) -> Vec<Set> {
        let lower = name.to_lowercase();
        let rows = self.tables.get(&lower).into_iter().flat_map(|table| table.rows.iter());
        let gone = rows.filter(|(_, row)| goes(row));
        gone.map(|(key, _)| Set::Row(lower.clone(), key.clone(), None)).collect()
    }

    fn with_gates<T>(&self, name: &str, change: impl FnOnce(&mut Gates) -> T) -> Vec<Set> {
        let lower = name.to_lowercase();
        let mut table = self.tables.get(&lower).cloned();
        table.as_mut().map(|table| change(&mut table.gates));
        vec![Set::Table(lower, table)]
    }

    fn write(&self, table: &str, write: &Write, etag: u64) -> Set {
        let Write { verb, pk, rk, .. } = write;
        let merges = matches!(verb, Verb::Merge | Verb::UpsertMerge);
        let old = self.row(table, pk, rk).filter(|_| merges);
        let mut properties = old.map(|row| row.properties.clone()).unwrap_or_default();
        properties.extend(write.properties.iter().cloned());
        let row = Row { pk: pk.clone(), rk: rk.clone(), properties, etag };
        let row = (*verb != Verb::Delete).then(|| Rc::new(row));
        Set::Row(table.to_lowercase(), key(pk, rk), row)
    }

    /// Checks that `seq` is larger than all earlier Seqs of this process and all returned tags.
    ///
    /// # Errors
    /// The reason why `seq` is not larger.
    pub(crate) fn check_seq(&self, seq: u64) -> Result<(), String> {
        let last = self.seq_max.max(self.etag_max);
        if seq > last { Ok(()) } else { Err(format!("number: {seq} after {last}")) }
    }

    /// Returns the largest Seq assigned so far.
    pub(crate) fn last_seq(&self) -> u64 {
        self.seq_max.max(self.etag_max)
    }

    /// Returns the number of rows of `table` with a tag below `below`.
    pub(crate) fn count_below(&self, table: &str, below: u64) -> usize {
        let table = self.tables.get(&table.to_lowercase());
        table.map_or(0, |table| table.rows.values().filter(|row| row.etag < below).count())
    }

    /// Returns the number of commits with a Seq up to `seq`.
    pub(crate) fn count_up_to(&self, seq: u64) -> usize {
        self.seqs.partition_point(|other| *other <= seq)
    }

    /// Records that the first `commits` commits were acknowledged or read. From then on each of
    /// them must be as durable as it was requested to be.
    pub(crate) fn show(&mut self, commits: usize) {
        for at in self.shown..commits {
            self.etag_max = self.etag_max.max(self.etags[at]);
            match self.asked[at] {
                Durability::Sync => {
                    self.power_floor = at + 1;
                    self.process_floor = at + 1;
                }
                Durability::Os => self.process_floor = at + 1,
                Durability::Buffered => {}
            }
        }
        self.shown = self.shown.max(commits);
    }

    /// Returns the number of commits that a reader has seen or that were acknowledged to a writer.
    pub(crate) fn shown(&self) -> usize {
        self.shown
    }

    /// Returns the state after the first `commits` commits.
    pub(crate) fn at(&self, commits: usize) -> Cow<'_, Tables> {
        if commits == self.commits() {
            return Cow::Borrowed(&self.tables);
        }
        let mut tables = self.tables.clone();
        for undo in self.undo[commits..].iter().rev().flat_map(|undo| undo.iter().rev()) {
            undo.clone().apply(&mut tables);
        }
        Cow::Owned(tables)
    }

    /// Records that all commits so far survive a power cut.
    pub fn all_durable(&mut self) {
        self.show(self.commits());
        self.power_floor = self.commits();
        self.process_floor = self.commits();
    }

    /// Restores the state after the first `commits` commits, as if the others never happened.
    pub fn roll_back(&mut self, commits: usize) {
        while self.commits() > commits {
            for undo in self.undo.pop().unwrap_or_default().into_iter().rev() {
                undo.apply(&mut self.tables);
            }
        }
        self.prints.truncate(commits + 1);
        self.etags.truncate(commits);
        self.seqs.truncate(commits);
        self.asked.truncate(commits);
        self.power_floor = self.power_floor.min(commits);
        self.unconfirmed = None;
        self.process_floor = self.process_floor.min(commits);
        self.shown = self.shown.min(commits);
    }

    /// Records that the process was restarted and shows the recovered state, which survives a kill.
    /// It survives a power cut from [`confirmed`](Self::confirmed) on. Seqs of commits that were
    /// never visible may be assigned again.
    pub(crate) fn restarted(&mut self) {
        let power_floor = self.power_floor;
        self.show(self.commits());
        (self.process_floor, self.power_floor) = (self.commits(), power_floor);
        self.seq_max = self.etag_max;
        self.unconfirmed = Some(self.commits());
    }

    /// Sets the Seq of the last commit, if [`find`](Self::find) added it. Its answer would have
    /// told the Seq, but was an error.
    pub(crate) fn last_commit_was(&mut self, seq: u64) {
        if let Some(last) = self.seqs.last_mut() {
            *last = seq.max(*last);
        }
    }

    /// Records that the recovered state survives a power cut.
    pub(crate) fn confirmed(&mut self) {
        self.power_floor = self.power_floor.max(self.unconfirmed.take().unwrap_or_default());
    }

    /// Finds the prefix of at least `floor` commits that equals the recovered `state`. If a pending
    /// change took effect, it becomes the last commit of the prefix.
    ///
    /// # Errors
    /// The nearest prefix, and the differences between it and the state.
    pub fn find(&mut self, state: &Tables, floor: usize) -> Result<usize, String> {
        let print = fingerprint(state);
        let prefix = (floor..=self.commits()).rev().find(|&k| self.prints[k] == print);
        if let Some(prefix) = prefix {
            return Ok(prefix);
        }
        let with_pending = self.pending.iter().filter_map(|change| self.with(change, state));
        let happened = with_pending.into_iter().find(|with| fingerprint(&with.tables) == print);
        if let Some(with) = happened {
            *self = with;
            return Ok(self.commits());
        }
        Err(self.nearest(state, floor))
    }

    /// Returns the oracle as if the pending `change` had taken effect, with the tag found in
    /// `state`.
    fn with(&self, change: &Change, state: &Tables) -> Option<Oracle> {
        self.check(change).ok()?;
        let etag = change.tag_in(state)?;
        let mut with = self.clone();
        with.pending.clear();
        with.commit(change, etag, Durability::Buffered);
        Some(with)
    }

    fn nearest(&self, state: &Tables, floor: usize) -> String {
        let mut at = self.clone();
        let mut best = (usize::MAX, 0, Vec::new());
        for commits in (0..=self.commits()).rev() {
            at.roll_back(commits);
            let differences = differences(&at.tables, state);
            if differences.len() < best.0 {
                best = (differences.len(), commits, differences);
            }
        }
        let (_, commits, differences) = best;
        format!(
            "no prefix of {floor}..={} commits; the nearest is {commits}, which differs:\n  {}",
            self.commits(),
            differences.join("\n  ")
        )
    }
}

/// Returns the differences between `found` and `expected`, one per line.
pub(crate) fn differences(expected: &Tables, found: &Tables) -> Vec<String> {
    let mut lines = Vec::new();
    for lower in expected.keys().chain(found.keys().filter(|name| !expected.contains_key(*name))) {
        let (Some(a), Some(b)) = (expected.get(lower), found.get(lower)) else {
            let what = if expected.contains_key(lower) { "missing" } else { "there all the same" };
            lines.push(format!("table {lower} is {what}"));
            continue;
        };
        if a.name != b.name {
            lines.push(format!("table {} is named {}", a.name, b.name));
        }
        if a.gates != b.gates {
            lines.push(format!("{lower}: gates {:?}, found {:?}", a.gates, b.gates));
        }
        for (key, row) in &*a.rows {
            match b.rows.get(key) {
                Some(other) if other == row => {}
                Some(other) => lines.push(format!(
                    "{lower}: expected {row} @{}, found {other} @{}",
                    row.etag, other.etag
                )),
                None => lines.push(format!("{lower}: missing {row} @{}", row.etag)),
            }
        }
        let extra = b.rows.iter().filter(|(key, _)| !a.rows.contains_key(*key));
        lines.extend(extra.map(|(_, row)| format!("{lower}: unexpected {row} @{}", row.etag)));
    }
    lines
}

/// Returns the index of the first difference between two lists of rows.
pub(crate) fn first_difference(found: &[Row], expected: &[Row]) -> Option<usize> {
    let len = found.len().max(expected.len());
    (0..len).find(|&at| found.get(at) != expected.get(at))
}

#[cfg(test)]
mod tests {
    use super::super::value::Val;
    use super::*;

    fn write(verb: Verb, rk: &str, value: i32, condition: Condition) -> Change {
        let properties = vec![(format!("P{value}"), Val::Int32(value))];
        let write = Write { verb, pk: "p".into(), rk: rk.into(), properties, condition };
        Change::Rows { table: "T".into(), writes: vec![write] }
    }

    fn sample() -> Oracle {
        let mut oracle = Oracle::new();
        oracle.commit(&Change::Create("T".into()), 0, Durability::Sync);
        let a = write(Verb::Insert, "a", 1, Condition::Any);
        oracle.commit(&a, 10, Durability::Sync);
        oracle.commit(&write(Verb::Merge, "a", 2, Condition::Any), 20, Durability::Os);
        oracle.commit(&write(Verb::Delete, "a", 0, Condition::Any), 30, Durability::Buffered);
        oracle
    }

    #[test]
    fn refusals_follow_the_documented_rules() {
        let mut oracle = sample();
        let check = |oracle: &Oracle, change: Change| oracle.check(&change).map_err(|r| r.code);
        let any = Condition::Any;
        assert_eq!(check(&oracle, Change::Create("t".into())), Err("TableAlreadyExists"));
        assert_eq!(check(&oracle, Change::Drop("U".into())), Err("ResourceNotFound"));
        assert_eq!(check(&oracle, write(Verb::Merge, "a", 1, any)), Err("ResourceNotFound"));
        assert_eq!(check(&oracle, write(Verb::Insert, "a", 1, any)), Ok(()));
        oracle.roll_back(3);
        let stale = write(Verb::Delete, "a", 0, Condition::Stale);
        assert_eq!(check(&oracle, stale), Err("UpdateConditionNotSatisfied"));
        assert_eq!(check(&oracle, write(Verb::Delete, "a", 0, Condition::Commit(3))), Ok(()));
        assert_eq!(check(&oracle, write(Verb::Insert, "a", 1, any)), Err("EntityAlreadyExists"));
    }

    #[test]
    fn recovered_states_are_found_among_the_prefixes() {
        let mut oracle = sample();
        assert_eq!((oracle.power_floor, oracle.process_floor), (2, 3));
        for commits in 0..=4 {
            let mut at = oracle.clone();
            at.roll_back(commits);
            assert_eq!(fingerprint(&at.tables), at.prints[commits]);
            let expected = if commits == 4 { 4 } else { commits };
            let found = oracle.find(&at.tables, 0).unwrap();
            // The state after commit 1, the creation of the table, equals the state after commit 4,
            // the deletion of all rows. For both the search finds commit 4.
            assert!(found == expected || (commits, found) == (1, 4), "{commits}: {found}");
            assert_eq!(
                oracle.find(&at.tables, 4).is_ok(),
                fingerprint(&at.tables) == oracle.prints[4]
            );
        }
    }

    #[test]
    fn a_hole_or_a_torn_group_is_no_prefix() {
        let mut oracle = Oracle::new();
        oracle.commit(&Change::Create("T".into()), 0, Durability::Sync);
        oracle.commit(&write(Verb::Insert, "a", 1, Condition::Any), 10, Durability::Sync);
        let hole = {
            let mut other = oracle.clone();
            other.roll_back(1);
            other.commit(&write(Verb::Insert, "b", 1, Condition::Any), 20, Durability::Sync);
            other.tables
        };
        oracle.commit(&write(Verb::Insert, "b", 1, Condition::Any), 20, Durability::Buffered);
        let error = oracle.find(&hole, 0).unwrap_err();
        assert!(error.contains("missing p a P1=1 @10"), "{error}");
    }

    #[test]
    fn a_pending_change_may_have_happened() {
        let mut oracle = sample();
        oracle.pending.push(write(Verb::Insert, "y", 9, Condition::Any));
        oracle.pending.push(write(Verb::Insert, "z", 9, Condition::Any));
        let mut happened = sample();
        happened.commit(&write(Verb::Insert, "z", 9, Condition::Any), 99, Durability::Sync);
        assert_eq!(oracle.clone().find(&happened.tables, 4), Ok(5));
        assert_eq!(oracle.clone().find(&sample().tables, 4), Ok(4));
        oracle.pending.clear();
        assert!(oracle.find(&happened.tables, 4).is_err());
    }
}

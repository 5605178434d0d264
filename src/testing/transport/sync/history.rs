//! The history of the source of a sync, and the checks of its target.
//!
//! Invariants
//! * a row has a version after each durable commit that wrote or deleted it. A refused version
//!   never arrives. Its expiry arrives only if stamps are to expire, and its loss by a restore or
//!   with a table only in a comparison that deletes;
//! * a stamp has the Seq of the commit of its version;
//! * a row of the target has a version of the source, and never an earlier one than before, except
//!   after a kill, around a comparison, and once after an imported range was copied;
//! * while a sync follows the feed, the rows of a partition have the state after one commit.

use std::collections::{BTreeMap, BTreeSet};

use super::super::strict::{REFUSED, REFUSED_TABLE};
use super::choices::{Choices, Stamps};
use crate::clock::TICKS_PER_SECOND;
use crate::db::{Change, Commit, Db, Position};
use crate::error::Result as EngineResult;
use crate::model::{DateTime, Entity};
use crate::query::KeyRange;
use crate::store::sync::{SyncProblem, SyncProblemKind, contains};

/// The table in lower case, PartitionKey and RowKey.
pub(super) type Row = (String, String, String);

/// The property of stamps.
pub(super) const STAMP: &str = "Stamp";

/// The state of a row after a commit, with its stamp; `None` if the row is gone.
#[derive(Debug)]
struct Version {
    commit: usize,
    entity: Option<Entity>,
    kind: Kind,
}

/// The circumstances in which a version arrives at the target.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Written,
    /// Does not arrive: the target refuses it.
    Refused,
    /// Arrives if the row at the target has an older stamp than this one.
    Expired(String),
    /// The row is gone, and the feed does not tell that. Arrives in a comparison that deletes.
    Lost,
}

/// A comparison that has ended.
pub(super) struct Comparison {
    /// The position at which it began.
    pub(super) began: Position,
    /// The tables that it compared.
    pub(super) tables: Vec<String>,
    /// Whether it deleted the rows that only the target has.
    pub(super) deletes: bool,
}

/// The problems that syncs have reported.
#[derive(Default)]
pub(super) struct Problems {
    /// The rows that comparisons found only at the target.
    listed: BTreeSet<Row>,
    /// The rows that the target refused, with the newest position of the source at that time. The
    /// row of a table has no keys.
    pub(super) refused: BTreeMap<Row, Position>,
}

/// The durable commits of a source, and what comparisons could not see.
pub(super) struct History {
    choices: Choices,
    /// The position up to which the feed was read.
    position: Position,
    /// The position of each commit.
    commits: Vec<Position>,
    rows: BTreeMap<Row, Vec<Version>>,
    /// The deleted ranges, which a sync that begins again also deletes from later rows: commit,
    /// table and range.
    ranges: Vec<(usize, String, KeyRange)>,
    /// Imported ranges: commit, table and range.
    pub(super) imports: Vec<(usize, String, KeyRange)>,
    /// All tables that the source ever had.
    tables: BTreeSet<String>,
    /// The number of the last commit that dropped a table.
    drops: BTreeMap<String, usize>,
    pub(super) expiries: u64,
    /// The rows that the source did not have when a comparison ended, with the position of the last
    /// one.
    unseen: BTreeMap<Row, Position>,
    /// All rows that were ever among these, also those that a later comparison deleted.
    ever_unseen: BTreeSet<Row>,
}

/// The circumstances of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Label {
    /// The number of the sync: a later one has begun later.
    pub(super) life: usize,
    /// Changes when older versions may be written again.
    pub(super) phase: usize,
    /// Whether the partitions of the target have the states of the source.
    pub(super) is_strict: bool,
    /// Whether rows that only the target has are deleted.
    pub(super) deletes: bool,
}

impl Version {
    fn deleted(commit: usize) -> Self {
        Self::gone(commit, Kind::Written)
    }

    fn gone(commit: usize, kind: Kind) -> Self {
        Self { commit, entity: None, kind }
    }

    fn is_refused(&self) -> bool {
        self.kind == Kind::Refused
    }
}

impl Problems {
    /// Adds a problem. `newest` is the newest position of the source.
    pub(super) fn add(&mut self, problem: &SyncProblem, newest: Position) {
        let (pk, rk) = problem.row.clone().unwrap_or_default();
        let row = (lower(&problem.table), pk, rk);
        match problem.kind {
            SyncProblemKind::OnlyAtTarget => drop(self.listed.insert(row)),
            SyncProblemKind::Refused => drop(self.refused.insert(row, newest)),
            SyncProblemKind::Kept => {}
        }
    }
}

impl History {
    pub(super) fn new(db: &Db, choices: Choices) -> Self {
        Self {
            choices,
            position: db.position(),
            commits: Vec::new(),
            rows: BTreeMap::new(),
            ranges: Vec::new(),
            imports: Vec::new(),
            tables: BTreeSet::new(),
            drops: BTreeMap::new(),
            expiries: 0,
            unseen: BTreeMap::new(),
            ever_unseen: BTreeSet::new(),
        }
    }

    /// Adds the durable commits since the last call.
    pub(super) fn read(&mut self, db: &Db) -> EngineResult<()> {
        for commit in db.changes(self.position)? {
            self.add(commit?, db)?;
        }
        Ok(())
    }

    /// Makes all commits durable and adds them. Later their changes need not be kept.
    pub(super) fn read_all(&mut self, db: &Db) -> EngineResult<()> {
        db.sync()?;
        let newest = db.position();
        self.read(db)?;
        self.position = self.position.max(newest);
        Ok(())
    }

    fn add(&mut self, commit: Commit, db: &Db) -> EngineResult<()> {
        let written = commit.position.seq().ticks();
        let number = self.commits.len();
        self.commits.push(commit.position);
        self.position = commit.position;
        for change in commit.changes {
            match change {
                Change::Put { table, entity } => {
                    let row = row_of(&table, &entity);
                    let entity = self.stamped(entity, written);
                    self.push(row, number, Some(entity));
                }
                Change::Deleted { table, partition_key, row_key } => {
                    self.push((table.to_ascii_lowercase(), partition_key, row_key), number, None);
                }
                Change::RangeDeleted { table, range } => self.delete(&table, range, number),
                Change::TableCreated { table } => {
                    self.tables.insert(table.to_ascii_lowercase());
                }
                Change::TableDropped { table } => {
                    self.drops.insert(table.to_ascii_lowercase(), number);
                    match self.choices.allow_drop {
                        true => self.delete(&table, KeyRange::all(), number),
                        false => self.lose(number, |row| row.0.eq_ignore_ascii_case(&table)),
                    }
                }
                Change::Expired { table, before } => {
                    self.expiries += 1;
                    self.expire(&table, before, number);
                }
                Change::Imported { table, range } => {
                    let is_imported = |(row, _): &(Row, Entity)| is_within(row, &table, &range);
                    for (row, entity) in self.source_rows(db)?.into_iter().filter(is_imported) {
                        self.push(row, number, Some(entity));
                    }
                    self.imports.push((number, table, range));
                }
            }
        }
        Ok(())
    }

    /// Reads the rows of the source, with their stamps.
    fn source_rows(&self, db: &Db) -> EngineResult<BTreeMap<Row, Entity>> {
        let stamped = |(row, entity): (Row, Entity)| {
            let written = entity.timestamp().map_or(0, DateTime::ticks);
            (row, self.stamped(entity, written))
        };
        Ok(rows(db)?.into_iter().map(stamped).collect())
    }

    /// Returns the entity that the target receives. `written` is the Seq of its commit.
    fn stamped(&self, entity: Entity, written: u64) -> Entity {
        match self.choices.stamps {
            Stamps::None => entity,
            Stamps::Kept | Stamps::Expire => {
                entity.with(STAMP, format!("{} default", stamp_text(written)))
            }
        }
    }

    /// Adds a version to the rows that the source has let go: those with a stamp before a time, and
    /// those that it has lost.
    fn expire(&mut self, table: &str, before: DateTime, commit: usize) {
        if self.choices.stamps != Stamps::Expire {
            return;
        }
        let before = stamp_text(before.ticks());
        let rows = self.rows.iter_mut();
        for (_, versions) in rows.filter(|(row, _)| row.0.eq_ignore_ascii_case(table)) {
            let is_gone = versions.last().is_some_and(|last| match &last.entity {
                Some(entity) => is_before(entity, &before),
                None => last.kind != Kind::Written,
            });
            if is_gone {
                versions.push(Version::gone(commit, Kind::Expired(before.clone())));
            }
        }
    }

    /// Adds a version to the rows that the source has lost without a change in the feed.
    fn lose(&mut self, commit: usize, is_lost: impl Fn(&Row) -> bool) {
        for (row, versions) in &mut self.rows {
            if versions.last().is_some_and(|last| last.entity.is_some()) && is_lost(row) {
                versions.push(Version::gone(commit, Kind::Lost));
            }
        }
    }

    fn push(&mut self, row: Row, commit: usize, entity: Option<Entity>) {
        let is_refused = self.is_refused(&row, entity.as_ref());
        let kind = if is_refused { Kind::Refused } else { Kind::Written };
        let ranges = &self.ranges;
        let versions = self.rows.entry(row).or_insert_with_key(|row| {
            let before = ranges.iter().filter(|(_, table, range)| is_within(row, table, range));
            before.map(|(commit, ..)| Version::deleted(*commit)).collect()
        });
        versions.push(Version { commit, entity, kind });
    }

    /// Whether the target refuses a version.
    fn is_refused(&self, row: &Row, entity: Option<&Entity>) -> bool {
        let strict = self.choices.strict;
        entity.is_some_and(|entity| {
            strict.refuses_rows && entity.value(REFUSED).is_some()
                || strict.refuses_table && row.0.eq_ignore_ascii_case(REFUSED_TABLE)
        })
    }

    fn delete(&mut self, table: &str, range: KeyRange, number: usize) {
        for (_, versions) in self.rows.iter_mut().filter(|(row, _)| is_within(row, table, &range)) {
            versions.push(Version::deleted(number));
        }
        self.ranges.push((number, table.to_owned(), range));
    }

    /// Adds the rows of a database that was restored or repaired, with its new history.
    pub(super) fn restored(&mut self, db: &Db) -> EngineResult<()> {
        self.position = db.position();
        let number = self.commits.len();
        self.commits.push(self.position);
        let rows = self.source_rows(db)?;
        self.lose(number, |row| !rows.contains_key(row));
        for (row, entity) in rows {
            let last = self.rows.get(&row).and_then(|versions| versions.last());
            if !is_state(last, Some(&entity)) {
                self.push(row, number, Some(entity));
            }
        }
        Ok(())
    }

    /// Notes the rows that a comparison could not carry. Checks that it has listed or deleted those
    /// that only the target has.
    pub(super) fn compared(
        &mut self,
        [source, target]: [&Db; 2],
        Comparison { began, tables, deletes }: &Comparison,
        problems: &Problems,
    ) -> Result<(), String> {
        let target = rows(target).map_err(|error| error.to_string())?;
        for row in self.mark_unseen(source, *began)? {
            let was_there = tables.iter().any(|table| table.eq_ignore_ascii_case(&row.0));
            let is_there =
                self.drops.get(&row.0).is_none_or(|commit| self.is_until(*commit, *began));
            if !(was_there && is_there && self.was_deleted(&row, *began)) {
                continue;
            }
            if *deletes {
                self.unseen.remove(&row);
            }
            if target.contains_key(&row) && (*deletes || !problems.listed.contains(&row)) {
                let done = if *deletes { "deleted" } else { "listed" };
                return Err(format!("a comparison has not {done} {row:?}, only at the target"));
            }
        }
        Ok(())
    }

    /// Notes and returns the rows that the source does not have when a comparison, which began at a
    /// position, ends or may have ended.
    pub(super) fn mark_unseen(&mut self, source: &Db, began: Position) -> Result<Vec<Row>, String> {
        let source = rows(source).map_err(|error| error.to_string())?;
        let has_no_row = |row: &Row| !source.contains_key(row);
        // A row that was written again may be lost before that is durable.
        let is_gone = |versions: &[Version]| versions.last().is_some_and(|v| v.entity.is_none());
        let unseen =
            self.rows.iter().filter(|(row, versions)| has_no_row(row) || is_gone(versions));
        let unseen: Vec<Row> = unseen.map(|(row, _)| row.clone()).collect();
        self.ever_unseen.extend(unseen.iter().cloned());
        for row in &unseen {
            // A comparison that was cut short may have begun before one that has ended.
            let newest = self.unseen.entry(row.clone()).or_insert(began);
            if !newest.has_history_of(began) || *newest < began {
                *newest = began;
            }
        }
        Ok(unseen.into_iter().filter(has_no_row).collect())
    }

    /// Whether a commit is not after a position, or of an earlier history.
    fn is_until(&self, commit: usize, position: Position) -> bool {
        let at = self.commits[commit];
        !at.has_history_of(position) || at <= position
    }

    /// Whether the last version of a row is a deletion until a position.
    fn was_deleted(&self, row: &Row, position: Position) -> bool {
        let last = self.rows.get(row).and_then(|versions| versions.last());
        last.is_some_and(|last| last.entity.is_none() && self.is_until(last.commit, position))
    }

    /// Checks source and target after the end of a sync that has carried everything.
    pub(super) fn check_end(
        &self,
        [source, target]: [&Db; 2],
        problems: &Problems,
    ) -> Result<(), String> {
        let tables = |db: &Db| db.tables().map_err(|error| error.to_string());
        let is_lost = |name: &&String| {
            let row = (lower(name), String::new(), String::new());
            target.table(name).is_err() && !problems.refused.contains_key(&row)
        };
        if let Some(name) = tables(source)?.iter().find(is_lost) {
            return Err(format!("table {name} has not arrived"));
        }
        let is_known = |name: &&String| is_positions(name) || self.tables.contains(&lower(name));
        if let Some(name) = tables(target)?.iter().find(|name| !is_known(name)) {
            return Err(format!("the target has table {name}, which the source never had"));
        }
        let source = self.source_rows(source).map_err(|error| error.to_string())?;
        let target = rows(target).map_err(|error| error.to_string())?;
        for (row, versions) in &self.rows {
            let (last, found) = (versions.last(), target.get(row));
            let is_right = match source.get(row) {
                Some(entity) if !is_state(last, Some(entity)) => {
                    return Err(format!("{row:?} has no commit: {entity:?}, {versions:?}"));
                }
                Some(_) => self.has_arrived(row, last, found, problems),
                // The row expired before an imported range was copied, or before a refusal.
                None => match last {
                    Some(last) if self.is_import(last) || last.is_refused() => true,
                    _ => is_kept(versions, self.seen_from(row, versions), found, Expiry::Carried),
                },
            };
            if !is_right {
                let source = source.get(row);
                return Err(format!(
                    "{row:?} is {found:?} at the target, {source:?}, {versions:?}"
                ));
            }
        }
        Ok(())
    }
}

impl History {
    /// Whether the last version of a row is at the target, or was reported.
    fn has_arrived(
        &self,
        row: &Row,
        last: Option<&Version>,
        found: Option<&Entity>,
        problems: &Problems,
    ) -> bool {
        match last.filter(|last| last.is_refused()) {
            Some(last) => {
                // A comparison reports a refused table instead of its rows.
                let table = (row.0.clone(), String::new(), String::new());
                let newest = [row, &table].into_iter().filter_map(|row| problems.refused.get(row));
                newest.into_iter().any(|newest| self.is_until(last.commit, *newest))
            }
            None => is_state(last, found),
        }
    }

    /// Returns the number of the first version that a sync had to see: a comparison that found
    /// neither the row nor its deletion has not seen those until it began.
    fn seen_from(&self, row: &Row, versions: &[Version]) -> usize {
        let last_unseen = self.unseen.get(row).and_then(|began| {
            versions.iter().rposition(|version| self.is_until(version.commit, *began))
        });
        last_unseen.map_or(0, |number| number + 1)
    }

    fn is_import(&self, version: &Version) -> bool {
        version.entity.is_some() && self.imports.iter().any(|(at, ..)| *at == version.commit)
    }
}

/// The target, as its feed shows it.
pub(super) struct Target<'h> {
    history: &'h History,
    label: Label,
    rows: BTreeMap<Row, Entity>,
    /// The rows of imported ranges whose later versions have arrived once.
    copied: BTreeSet<(Row, usize)>,
    /// The version that a row has reached.
    reached: BTreeMap<Row, usize>,
    /// The commit whose state a partition has reached, by table and PartitionKey.
    states: BTreeMap<(String, String), usize>,
}

impl<'h> Target<'h> {
    pub(super) fn new(history: &'h History) -> Self {
        Self {
            history,
            label: Label::default(),
            rows: BTreeMap::new(),
            copied: BTreeSet::new(),
            reached: BTreeMap::new(),
            states: BTreeMap::new(),
        }
    }

    /// Checks a commit of the target.
    pub(super) fn add(&mut self, commit: Commit, label: Label) -> Result<(), String> {
        let mut changed = BTreeSet::new();
        let is_of_rows = |change: &Change| {
            !is_positions(change.table()) && !matches!(change, Change::TableCreated { .. })
        };
        for change in commit.changes.into_iter().filter(is_of_rows) {
            self.begin(label)?;
            match change {
                Change::Put { table, entity } => {
                    let row = row_of(&table, &entity);
                    changed.insert((row.0.clone(), row.1.clone()));
                    self.write(row, Some(entity))?;
                }
                Change::Deleted { table, partition_key, row_key } => {
                    let row = (table.to_ascii_lowercase(), partition_key, row_key);
                    changed.insert((row.0.clone(), row.1.clone()));
                    self.write(row, None)?;
                }
                Change::TableDropped { table } if self.history.choices.allow_drop => {
                    let is_in = |row: &&Row| table.eq_ignore_ascii_case(&row.0);
                    let rows: Vec<Row> = self.rows.keys().filter(is_in).cloned().collect();
                    rows.into_iter().try_for_each(|row| self.write(row, None))?;
                }
                other => return Err(format!("the target has another change: {other:?}")),
            }
        }
        match label.is_strict {
            true => changed.into_iter().try_for_each(|partition| self.check(partition)),
            false => Ok(()),
        }
    }

    fn begin(&mut self, label: Label) -> Result<(), String> {
        if label.life < self.label.life {
            let text = format!("{label:?} has written after {:?}, which is later", self.label);
            return Err(text);
        }
        if label.phase != self.label.phase {
            self.copied.clear();
            self.reached.clear();
            self.states.clear();
        }
        self.label = label;
        Ok(())
    }

    fn write(&mut self, row: Row, entity: Option<Entity>) -> Result<(), String> {
        let versions = self.history.rows.get(&row).map(Vec::as_slice).unwrap_or_default();
        let from = self.reached.get(&row).copied().unwrap_or(0);
        let stamp = self.rows.get(&row).and_then(stamp_of);
        let deletes = self.label.deletes;
        let may_arrive = |version: &Version| match &version.kind {
            Kind::Written => true,
            Kind::Refused => false,
            Kind::Expired(time) => stamp.as_ref().is_none_or(|stamp| stamp < time),
            Kind::Lost => deletes,
        };
        let is_found = |v: &Version| is_state(Some(v), entity.as_ref()) && may_arrive(v);
        let find = |from: usize| versions[from..].iter().position(is_found).map(|at| from + at);
        let found = find(from).or_else(|| self.copy_of(&row, versions, from).and_then(find));
        let Some(found) = found else {
            return Err(format!(
                "{row:?} becomes {entity:?} at the target, which is no version from number {from} \
                 on of {versions:?}"
            ));
        };
        match entity {
            Some(entity) => drop(self.rows.insert(row.clone(), entity)),
            None => drop(self.rows.remove(&row)),
        }
        self.reached.insert(row, found);
        Ok(())
    }

    /// Returns the number of the first version after an import. A range is copied as it is at that
    /// time, so a copy may have a later version; those after the import follow once more.
    fn copy_of(&mut self, row: &Row, versions: &[Version], reached: usize) -> Option<usize> {
        let imports = self.history.imports.iter();
        for (commit, ..) in imports.filter(|(_, table, range)| is_within(row, table, range)) {
            let first = versions.iter().position(|version| version.commit >= *commit)?;
            if first <= reached && self.copied.insert((row.clone(), *commit)) {
                return Some(first);
            }
        }
        None
    }

    /// Checks that the rows of a partition have the state after one commit, not before the one
    /// that they had. A deleted range is a listing and deletes, of which a part may have arrived.
    fn check(&mut self, partition: (String, String)) -> Result<(), String> {
        let is_there = |(_, table, range): &(usize, String, KeyRange)| {
            table.eq_ignore_ascii_case(&partition.0)
                && contains(range, &Entity::new(&*partition.1, "0"))
        };
        if self.history.imports.iter().any(is_there) {
            return Ok(());
        }
        let is_in = |row: &Row| (&row.0, &row.1) == (&partition.0, &partition.1);
        let rows = self.history.rows.iter().filter(|(row, _)| is_in(row));
        let rows: Vec<_> =
            rows.filter(|(row, _)| !self.history.ever_unseen.contains(*row)).collect();
        let is_row_at = |row: &Row, versions: &[Version], commit: usize| {
            let until = versions.partition_point(|version| version.commit <= commit);
            is_kept(&versions[..until], 0, self.rows.get(row), Expiry::Late)
        };
        let is_at = |commit: usize| {
            let is_range = self.history.ranges.iter().any(|(range, ..)| *range == commit);
            let before = if is_range { commit.saturating_sub(1) } else { commit };
            rows.iter().all(|(row, versions)| {
                [before, commit].into_iter().any(|commit| is_row_at(row, versions, commit))
            })
        };
        let from = self.states.get(&partition).copied().unwrap_or(0);
        let Some(found) = (from..self.history.commits.len()).find(|commit| is_at(*commit)) else {
            let now = rows.iter().map(|(row, _)| (row, self.rows.get(*row)));
            let now: Vec<_> = now.collect();
            return Err(format!("partition {now:?} has no state after {from} of {rows:?}"));
        };
        self.states.insert(partition, found);
        Ok(())
    }
}

/// Whether expired rows are gone at the target.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expiry {
    Carried,
    /// A row that the source has written again stays until then.
    Late,
}

/// Whether the target may have `found` after the last of these versions: that version, or an
/// earlier one if those after it did not have to arrive. Those before number `from` did not have
/// to.
fn is_kept(versions: &[Version], from: usize, found: Option<&Entity>, expiry: Expiry) -> bool {
    for version in versions[from..].iter().rev() {
        let may_be_older = match &version.kind {
            Kind::Written => false,
            Kind::Refused => return true,
            Kind::Expired(time) => {
                expiry == Expiry::Late || found.is_some_and(|found| !is_before(found, time))
            }
            Kind::Lost => true,
        };
        if !may_be_older || is_state(Some(version), found) {
            return is_state(Some(version), found);
        }
    }
    from > 0 || found.is_none()
}

/// Returns the text of a stamp for a Seq.
fn stamp_text(ticks: u64) -> String {
    let fraction = ticks % TICKS_PER_SECOND;
    let second = DateTime::from_ticks(ticks - fraction).map_or_else(String::new, |t| t.to_string());
    format!("{}.{fraction:07}Z", second.trim_end_matches('Z'))
}

fn stamp_of(row: &Entity) -> Option<String> {
    row.get::<String>(STAMP).ok()
}

/// Whether a row has a stamp before another one.
fn is_before(row: &Entity, stamp: &str) -> bool {
    stamp_of(row).is_some_and(|found| *found < *stamp)
}

fn is_state(version: Option<&Version>, found: Option<&Entity>) -> bool {
    match (version.and_then(|version| version.entity.as_ref()), found) {
        (Some(version), Some(found)) => version.has_properties_of(found),
        (version, found) => version.is_none() && found.is_none(),
    }
}

fn is_within((name, pk, rk): &Row, table: &str, range: &KeyRange) -> bool {
    table.eq_ignore_ascii_case(name) && contains(range, &Entity::new(&**pk, &**rk))
}

fn lower(name: &str) -> String {
    name.to_ascii_lowercase()
}

fn row_of(table: &str, entity: &Entity) -> Row {
    let (pk, rk) = (entity.partition_key(), entity.row_key());
    (lower(table), pk.to_owned(), rk.to_owned())
}

/// Whether a table has the positions of syncs.
fn is_positions(table: &str) -> bool {
    table.eq_ignore_ascii_case("rowstonesync")
}

/// Reads all rows but the positions of syncs.
fn rows(db: &Db) -> EngineResult<BTreeMap<Row, Entity>> {
    let mut rows = BTreeMap::new();
    for name in db.tables()?.into_iter().filter(|name| !is_positions(name)) {
        for entity in db.table(&name)?.query("")? {
            let entity = entity?;
            rows.insert(row_of(&name, &entity), entity);
        }
    }
    Ok(rows)
}

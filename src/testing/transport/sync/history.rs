//! The history of the source of a sync, and the checks of its target.
//!
//! A row has one version after each durable commit that wrote or deleted it. Its expiry, and the
//! loss of a row by a restore, are no versions: the target keeps such a row.
//!
//! Invariants
//! * a row of the target has a version of the source, and never an earlier one than before, except
//!   after a kill or around a comparison;
//! * while a sync follows the feed, the rows of a partition have the state after one commit.

use std::collections::{BTreeMap, BTreeSet};

use crate::db::{Change, Commit, Db, Position};
use crate::error::Result as EngineResult;
use crate::model::Entity;
use crate::query::KeyRange;
use crate::store::sync::contains;

/// The table in lower case, PartitionKey and RowKey.
pub(super) type Row = (String, String, String);

/// The state of a row after a commit; `None` if it was deleted.
#[derive(Debug)]
struct Version {
    commit: usize,
    entity: Option<Entity>,
}

/// The durable commits of a source, and what comparisons could not see.
pub(super) struct History {
    /// Whether the target drops the tables that the source drops.
    allow_drop: bool,
    /// The position up to which the feed was read.
    position: Position,
    /// The position of each commit.
    commits: Vec<Position>,
    rows: BTreeMap<Row, Vec<Version>>,
    /// The deleted ranges, which a sync that begins again also deletes from later rows: commit,
    /// table and range.
    ranges: Vec<(usize, String, KeyRange)>,
    /// All tables that the source ever had.
    tables: BTreeSet<String>,
    /// The number of the last commit that dropped a table.
    drops: BTreeMap<String, usize>,
    pub(super) expiries: u64,
    /// The rows that the source did not have when a comparison ended, with its position.
    unseen: BTreeMap<Row, Position>,
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
}

impl History {
    pub(super) fn new(db: &Db, allow_drop: bool) -> Self {
        Self {
            allow_drop,
            position: db.position(),
            commits: Vec::new(),
            rows: BTreeMap::new(),
            ranges: Vec::new(),
            tables: BTreeSet::new(),
            drops: BTreeMap::new(),
            expiries: 0,
            unseen: BTreeMap::new(),
        }
    }

    /// Adds the durable commits since the last call.
    pub(super) fn read(&mut self, db: &Db) -> EngineResult<()> {
        for commit in db.changes(self.position)? {
            self.add(commit?);
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

    fn add(&mut self, commit: Commit) {
        let number = self.commits.len();
        self.commits.push(commit.position);
        self.position = commit.position;
        for change in commit.changes {
            match change {
                Change::Put { table, entity } => {
                    let row = row_of(&table, &entity);
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
                    if self.allow_drop {
                        self.delete(&table, KeyRange::all(), number);
                    }
                }
                Change::Expired { .. } => self.expiries += 1,
                _ => {}
            }
        }
    }

    fn push(&mut self, row: Row, commit: usize, entity: Option<Entity>) {
        let ranges = &self.ranges;
        let versions = self.rows.entry(row).or_insert_with_key(|row| {
            let before = ranges.iter().filter(|(_, table, range)| is_within(row, table, range));
            before.map(|(commit, ..)| Version { commit: *commit, entity: None }).collect()
        });
        versions.push(Version { commit, entity });
    }

    fn delete(&mut self, table: &str, range: KeyRange, number: usize) {
        for (_, versions) in self.rows.iter_mut().filter(|(row, _)| is_within(row, table, &range)) {
            versions.push(Version { commit: number, entity: None });
        }
        self.ranges.push((number, table.to_owned(), range));
    }

    /// Adds the rows of a database that was restored or repaired, with its new history.
    pub(super) fn restored(&mut self, db: &Db) -> EngineResult<()> {
        self.position = db.position();
        let number = self.commits.len();
        self.commits.push(self.position);
        for (row, entity) in rows(db)? {
            let last = self.rows.get(&row).and_then(|versions| versions.last());
            if !is_state(last, Some(&entity)) {
                self.push(row, number, Some(entity));
            }
        }
        Ok(())
    }

    /// Notes the rows that a comparison, which began at a position and with these tables, could not
    /// carry. Checks that it has listed those that only the target has.
    pub(super) fn compared(
        &mut self,
        [source, target]: [&Db; 2],
        (began, tables): &(Position, Vec<String>),
        listed: &BTreeSet<Row>,
    ) -> Result<(), String> {
        let target = rows(target).map_err(|error| error.to_string())?;
        for row in self.mark_unseen(source, *began)? {
            let was_there = tables.iter().any(|table| table.eq_ignore_ascii_case(&row.0));
            let is_there =
                self.drops.get(&row.0).is_none_or(|commit| self.is_until(*commit, *began));
            let must_list = was_there && is_there && self.was_deleted(&row, *began);
            if must_list && target.contains_key(&row) && !listed.contains(&row) {
                return Err(format!("a comparison has not listed {row:?}, only at the target"));
            }
        }
        Ok(())
    }

    /// Notes and returns the rows that the source does not have when a comparison, which began at a
    /// position, ends or may have ended.
    pub(super) fn mark_unseen(&mut self, source: &Db, began: Position) -> Result<Vec<Row>, String> {
        let source = rows(source).map_err(|error| error.to_string())?;
        let is_unseen = |row: &&Row| !source.contains_key(*row);
        let unseen: Vec<Row> = self.rows.keys().filter(is_unseen).cloned().collect();
        self.unseen.extend(unseen.iter().map(|row| (row.clone(), began)));
        Ok(unseen)
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
    pub(super) fn check_end(&self, [source, target]: [&Db; 2]) -> Result<(), String> {
        let read = |db: &Db| rows(db).map_err(|error| error.to_string());
        let tables = |db: &Db| db.tables().map_err(|error| error.to_string());
        if let Some(name) = tables(source)?.iter().find(|name| target.table(name).is_err()) {
            return Err(format!("table {name} has not arrived"));
        }
        let is_known = |name: &&String| is_positions(name) || self.tables.contains(&lower(name));
        if let Some(name) = tables(target)?.iter().find(|name| !is_known(name)) {
            return Err(format!("the target has table {name}, which the source never had"));
        }
        let (source, target) = (read(source)?, read(target)?);
        for (row, versions) in &self.rows {
            let (last, found) = (versions.last(), target.get(row));
            let is_right = match source.get(row) {
                Some(entity) if !is_state(last, Some(entity)) => {
                    return Err(format!("{row:?} has no commit: {entity:?}, {versions:?}"));
                }
                Some(_) => is_state(last, found),
                // A comparison has seen neither the row nor its deletion.
                None => match (self.unseen.get(row), last) {
                    (Some(began), Some(last)) if self.is_until(last.commit, *began) => true,
                    _ => is_state(last, found),
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

/// The target, as its feed shows it.
pub(super) struct Target<'h> {
    history: &'h History,
    label: Label,
    rows: BTreeMap<Row, Entity>,
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
                Change::TableDropped { table } if self.history.allow_drop => {
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
            self.reached.clear();
            self.states.clear();
        }
        self.label = label;
        Ok(())
    }

    fn write(&mut self, row: Row, entity: Option<Entity>) -> Result<(), String> {
        let versions = self.history.rows.get(&row).map(Vec::as_slice).unwrap_or_default();
        let from = self.reached.get(&row).copied().unwrap_or(0);
        let found = versions[from..].iter().position(|v| is_state(Some(v), entity.as_ref()));
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
        self.reached.insert(row, from + found);
        Ok(())
    }

    /// Checks that the rows of a partition have the state after one commit, not before the one
    /// that they had. A deleted range is a listing and deletes, of which a part may have arrived.
    fn check(&mut self, partition: (String, String)) -> Result<(), String> {
        let is_in = |row: &Row| (&row.0, &row.1) == (&partition.0, &partition.1);
        let rows = self.history.rows.iter().filter(|(row, _)| is_in(row));
        let rows: Vec<_> =
            rows.filter(|(row, _)| !self.history.unseen.contains_key(*row)).collect();
        let is_row_at = |row: &Row, versions: &[Version], commit: usize| {
            let last = versions.iter().rev().find(|version| version.commit <= commit);
            is_state(last, self.rows.get(row))
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

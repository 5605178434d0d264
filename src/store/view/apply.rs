//! Applies states of source rows to a view, in three phases: the index rows get the partitions of
//! the new contributions; each listed partition is brought to the new states; partitions without a
//! contribution are removed from the index rows.
//!
//! Invariants
//! * the index lists each partition that has a contribution of the source row, and perhaps others;
//! * a partition has the effect of all commits up to the position in its mark, and skips them.

use std::collections::{BTreeMap, BTreeSet};

use super::mark::{Change, Mark, Place, Runner};
use super::sums::{Sum, decode, encode};
use crate::db::Position;
use crate::error::Result;
use crate::model::{Entity, GROUP_OPERATIONS_MAX};
use crate::table::Operation;

/// PartitionKey and RowKey of a source row.
pub(super) type Key = (String, String);
/// Source rows, each in one state.
pub(super) type Rows = BTreeMap<Key, Row>;
/// The view partitions with a contribution of each source row.
type Partitions<'r> = BTreeMap<&'r Key, BTreeSet<String>>;

/// A state of a source row.
pub(super) struct Row {
    /// The commit of the state. The state may be a later one.
    pub(super) at: Position,
    /// The contributions.
    pub(super) folded: Vec<Entity>,
}

/// The position of a view partition after rows were applied to it.
#[derive(Clone, Copy)]
pub(super) enum Advance {
    /// As before: more rows of the same commit follow.
    No,
    /// This one, unless it is already at a later one.
    To(Position),
    /// This one. All rows are applied, whatever the position is before.
    Set(Position),
}

/// The tables of a view.
#[derive(Clone, Copy)]
pub(super) struct Tables<'v> {
    pub(super) view: &'v str,
    pub(super) index: &'v str,
}

/// The RowKey of the position row of a view partition. A view row has a smaller or a larger one.
pub(super) const RESERVED: &str = "~";
/// The first character of the RowKeys of index rows.
pub(super) const LISTED: &str = "=";
/// The RowKey of the mark of an index partition.
const INDEX_MARK: &str = "";
const PARTITIONS: &str = "Partitions";
/// No key has this character.
const SEPARATOR: char = '\n';
/// The size of a group's rows above which no row is added. One row has at most 1 MiB.
const GROUP_BYTES: usize = 1 << 20;
/// The source rows of one partition that are listed by one group.
const LISTED_MAX: usize = 50;

/// A group for a view partition.
#[derive(Default)]
struct Part {
    operations: Vec<Operation>,
    /// The view rows that change, and whether each is stored.
    sums: BTreeMap<String, (Sum, bool)>,
    bytes: usize,
}

/// Brings a view to the given states of source rows.
pub(super) fn apply(
    runner: &Runner<'_>,
    tables: Tables<'_>,
    rows: &Rows,
    advance: Advance,
) -> Result<()> {
    let mut partitions = list(runner, tables, rows)?;
    let mut keys: BTreeMap<String, Vec<&Key>> = BTreeMap::new();
    for (key, partitions) in &partitions {
        for pk in partitions {
            keys.entry(pk.clone()).or_default().push(key);
        }
    }
    let mut is_gone = BTreeSet::new();
    for (pk, keys) in &keys {
        for key in write(runner, tables, (pk, keys), (rows, advance))? {
            partitions.entry(key).or_default().remove(pk);
            is_gone.insert(key);
        }
    }
    partitions.retain(|key, _| is_gone.contains(key));
    unlist(runner, tables, &partitions)
}

/// Adds the partitions of the new contributions to the index. Returns all listed partitions.
fn list<'r>(runner: &Runner<'_>, tables: Tables<'_>, rows: &'r Rows) -> Result<Partitions<'r>> {
    let keys: Vec<&Key> = rows.keys().collect();
    let mut listed = Partitions::new();
    for keys in keys.chunk_by(|a, b| a.0 == b.0).flat_map(|keys| keys.chunks(LISTED_MAX)) {
        listed.extend(set(runner, tables, keys, |key, listed| {
            let folded = rows[key].folded.iter().map(|row| row.partition_key().to_owned());
            folded.chain(listed).collect()
        })?);
    }
    Ok(listed)
}

/// Replaces the listed partitions of rows.
fn unlist(runner: &Runner<'_>, tables: Tables<'_>, partitions: &Partitions<'_>) -> Result<()> {
    let keys: Vec<&Key> = partitions.keys().copied().collect();
    for keys in keys.chunk_by(|a, b| a.0 == b.0).flat_map(|keys| keys.chunks(LISTED_MAX)) {
        set(runner, tables, keys, |key, _| partitions[key].clone())?;
    }
    Ok(())
}

/// Changes the index rows of one source partition. Returns their new partitions.
fn set<'r>(
    runner: &Runner<'_>,
    tables: Tables<'_>,
    keys: &[&'r Key],
    new: impl Fn(&Key, BTreeSet<String>) -> BTreeSet<String>,
) -> Result<Partitions<'r>> {
    let Some((pk, _)) = keys.first() else { return Ok(Partitions::new()) };
    runner.commit(Place(tables.index, pk, INDEX_MARK), |mark| {
        let (mut listed, mut operations) = (Partitions::new(), Vec::new());
        for key in keys {
            let index_key = format!("{LISTED}{}", key.1);
            let row = runner.store.get(tables.index, pk, &index_key, &[])?;
            let text = row.map(|row| row.get::<String>(PARTITIONS)).transpose()?;
            let split = |text: &String| text.split(SEPARATOR).map(str::to_owned).collect();
            let old: BTreeSet<String> = text.as_ref().map(split).unwrap_or_default();
            let new = new(key, old.clone());
            if new.is_empty() && text.is_some() {
                operations.push(delete(pk, &index_key));
            } else if new != old || new.is_empty() != text.is_none() {
                let text: Vec<&str> = new.iter().map(String::as_str).collect();
                let text = text.join(&SEPARATOR.to_string());
                let row = Entity::new(pk, &index_key).with(PARTITIONS, text);
                operations.push(Operation::Upsert(row));
            }
            listed.insert(*key, new);
        }
        Ok((listed, Change { operations, position: mark.position }))
    })
}

/// Brings one view partition to the states of rows. Returns the rows that have no contribution to
/// it any more.
fn write<'r>(
    runner: &Runner<'_>,
    tables: Tables<'_>,
    (pk, keys): (&str, &[&'r Key]),
    (rows, advance): (&Rows, Advance),
) -> Result<Vec<&'r Key>> {
    let (mut left, mut all_gone) = (keys, Vec::new());
    while !left.is_empty() {
        let place = Place(tables.view, pk, RESERVED);
        let (count, gone) = runner.commit(place, |mark| {
            let (mut part, mut gone, mut count) = (Part::default(), Vec::new(), 0);
            for key in left {
                let row = &rows[*key];
                let new = row.folded.iter().filter(|new| new.partition_key() == pk);
                let new = encode(pk, &contribution_key(key), new);
                let is_gone = match advance.skips(mark, row) {
                    true => runner.store.get(tables.view, pk, new.row_key(), &[])?.is_none(),
                    false => new.is_empty(),
                };
                if !advance.skips(mark, row) && !part.add(runner, tables, new)? {
                    break;
                }
                gone.extend(is_gone.then_some(*key));
                count += 1;
            }
            let position = advance.position(mark, count == left.len());
            Ok(((count, gone), Change { operations: part.operations(pk), position }))
        })?;
        left = &left[count..];
        all_gone.extend(gone);
    }
    Ok(all_gone)
}

impl Part {
    /// Replaces a contribution. Returns false if the group has no room for it.
    fn add(&mut self, runner: &Runner<'_>, tables: Tables<'_>, new: Entity) -> Result<bool> {
        let (pk, key) = (new.partition_key().to_owned(), new.row_key().to_owned());
        let stored = runner.store.get(tables.view, &pk, &key, &[])?;
        let is_same = match &stored {
            Some(stored) => stored.has_properties_of(&new),
            None => new.is_empty(),
        };
        if is_same {
            return Ok(true);
        }
        let old = stored.as_ref().map(decode).unwrap_or_default();
        let added = decode(&new);
        let sums: BTreeSet<&str> = old.iter().chain(&added).map(Entity::row_key).collect();
        let more = sums.iter().filter(|sum| !self.sums.contains_key(**sum)).count();
        let operations = self.operations.len() + self.sums.len() + more + 2;
        let bytes = self.bytes + new.size_at_most();
        let is_full = operations > GROUP_OPERATIONS_MAX || bytes > GROUP_BYTES;
        if is_full && !self.operations.is_empty() {
            return Ok(false);
        }
        for rk in sums.into_iter().filter(|rk| !self.sums.contains_key(*rk)).collect::<Vec<_>>() {
            let row = runner.store.get(tables.view, &pk, rk, &[])?;
            let sum = row.as_ref().map(Sum::of).transpose()?.unwrap_or_default();
            self.bytes += row.as_ref().map_or(0, Entity::size_at_most);
            self.sums.insert(rk.to_owned(), (sum, row.is_some()));
        }
        // Subtracts first, so that a row whose only contribution is replaced begins anew.
        for old in &old {
            self.sums.entry(old.row_key().to_owned()).or_default().0.subtract(old)?;
        }
        for new in &added {
            self.sums.entry(new.row_key().to_owned()).or_default().0.add(new)?;
        }
        self.bytes += 2 * new.size_at_most();
        self.operations.push(match new.is_empty() {
            true => delete(&pk, &key),
            false => Operation::Upsert(new),
        });
        Ok(true)
    }

    fn operations(self, pk: &str) -> Vec<Operation> {
        let sums = self.sums.into_iter().filter_map(|(rk, (sum, is_stored))| match sum.rows {
            0 => is_stored.then(|| delete(pk, &rk)),
            _ => Some(Operation::Upsert(sum.to_row(pk, &rk))),
        });
        self.operations.into_iter().chain(sums).collect()
    }
}

impl Advance {
    /// Whether the partition has this state of a row, or a later one.
    fn skips(self, mark: &Mark, row: &Row) -> bool {
        !matches!(self, Self::Set(_)) && mark.has(row.at)
    }

    fn position(self, mark: &Mark, is_end: bool) -> Option<Position> {
        match self {
            Self::Set(position) => Some(position),
            Self::To(position) if is_end && !mark.has(position) => Some(position),
            Self::To(_) | Self::No => mark.position,
        }
    }
}

/// Returns the RowKey of the contributions of a source row.
fn contribution_key((pk, rk): &Key) -> String {
    format!("{RESERVED}{}~{pk}{rk}", pk.len())
}

fn delete(pk: &str, rk: &str) -> Operation {
    Operation::Delete { partition_key: pk.to_owned(), row_key: rk.to_owned(), etag: None }
}

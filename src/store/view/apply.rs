//! Applies states of source rows to a view, in three phases: the index gets the partitions of the
//! new contributions; each listed partition is brought to the new states; partitions without a
//! contribution are removed from the index.
//!
//! Invariants
//! * the index lists each partition that has a contribution of the source row, and perhaps others;
//! * a partition has the effect of all commits up to the position in its mark, and skips them.

use std::collections::{BTreeMap, BTreeSet};

use super::index::{Key, Partitions, Tables, list};
use super::mark::{Change, GROUP_BYTES, Mark, Place, Runner};
use super::sums::{RESERVED, Sum, contribution_key, decode, encode};
use crate::db::Position;
use crate::error::{Code, Error, Result};
use crate::model::{Entity, GROUP_OPERATIONS_MAX};
use crate::table::Operation;

/// Source rows, each in one state.
pub(super) type Rows = BTreeMap<Key, Row>;

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
    let keys: Vec<&Key> = rows.keys().collect();
    let mut partitions = list(runner, tables, &keys, |key, listed| {
        let folded = rows[key].folded.iter().map(|row| row.partition_key());
        folded.chain(listed.iter().map(String::as_str)).map(str::to_owned).collect()
    })?;
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
    unlist(runner, tables, &partitions, is_gone)
}

/// Replaces the listed partitions of some of the rows.
fn unlist<'r>(
    runner: &Runner<'_>,
    tables: Tables<'_>,
    partitions: &Partitions<'r>,
    keys: BTreeSet<&'r Key>,
) -> Result<()> {
    let keys: Vec<&Key> = keys.into_iter().collect();
    list(runner, tables, &keys, |key, _| partitions[key].clone()).map(drop)
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
    while let Some(first) = left.first() {
        let place = Place(tables.view, pk, RESERVED);
        let written = runner.commit(place, |mark| {
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
            Ok(((count, gone), Change { operations: part.operations(pk)?, position }))
        });
        let (count, gone) = written.map_err(|error| too_large(error, tables, pk, first))?;
        left = left.get(count..).unwrap_or_default();
        all_gone.extend(gone);
    }
    Ok(all_gone)
}

/// Only a group for a single source row can be too large.
fn too_large(error: Error, tables: Tables<'_>, pk: &str, (source, rk): &Key) -> Error {
    if error.code() != Code::RequestBodyTooLarge.as_str() {
        return error;
    }
    let text = format!(
        "the rows of partition '{pk}' of view '{}' to which row '{source}', '{rk}' contributes \
         exceed 4 MiB together: contribute to fewer rows of a partition",
        tables.view
    );
    Error::refused_with(Code::InvalidInput, text)
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
        // The names and numbers of the contribution, of its sums and of their counts.
        let (mut more, mut bytes) = (BTreeMap::new(), 4 * new.size_at_most());
        for rk in old.iter().chain(&added).map(Entity::row_key) {
            if !self.sums.contains_key(rk) && !more.contains_key(rk) {
                let row = runner.store.get(tables.view, &pk, rk, &[])?;
                let sum = row.as_ref().map(Sum::of).transpose()?.unwrap_or_default();
                bytes += row.as_ref().map_or(0, Entity::size_at_most);
                more.insert(rk.to_owned(), (sum, row.is_some()));
            }
        }
        let operations = self.operations.len() + self.sums.len() + more.len() + 2;
        let is_full =
            operations > GROUP_OPERATIONS_MAX || self.bytes.saturating_add(bytes) > GROUP_BYTES;
        if is_full && !self.operations.is_empty() {
            return Ok(false);
        }
        self.sums.append(&mut more);
        let signed = added.iter().map(|new| (new, 1)).chain(old.iter().map(|old| (old, -1)));
        for (contribution, sign) in signed {
            let (sum, _) = self.sums.entry(contribution.row_key().to_owned()).or_default();
            sum.add(contribution, sign);
        }
        self.bytes += bytes;
        self.operations.push(match new.is_empty() {
            true => delete(&pk, &key),
            false => Operation::Upsert(new),
        });
        Ok(true)
    }

    fn operations(self, pk: &str) -> Result<Vec<Operation>> {
        let sums = self.sums.into_iter().filter_map(|(rk, (sum, is_stored))| match sum.rows {
            0 => is_stored.then(|| Ok(delete(pk, &rk))),
            _ => Some(sum.to_row(pk, &rk).map(Operation::Upsert)),
        });
        self.operations.into_iter().map(Ok).chain(sums).collect()
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

fn delete(pk: &str, rk: &str) -> Operation {
    Operation::Delete { partition_key: pk.to_owned(), row_key: rk.to_owned(), etag: None }
}

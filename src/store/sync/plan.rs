//! Plans the groups of a sync: joins consecutive commits of a partition.
//!
//! Invariants
//! * a unit has whole commits, so readers of the target see no part of one;
//! * the units of a partition are in the order of their commits;
//! * of several writes of a row in one unit, the last one counts.

use std::collections::{BTreeMap, VecDeque};

use super::stamp::Stamp;
use crate::error::Error;
use crate::json::odata::{Metadata, entity_text};
use crate::model::{ETag, Entity, GROUP_OPERATIONS_MAX};
use crate::mutants::mutant;
use crate::store::groups::{BODY_MAX, member_head};

/// A write of a commit.
pub(super) struct Write {
    pub(super) table: String,
    pub(super) partition_key: String,
    pub(super) row_key: String,
    /// The entity after the commit, with its stamp; `None` if it was deleted.
    pub(super) entity: Option<Entity>,
    /// Of a delete: the state that is deleted. Another state stays.
    pub(super) etag: Option<ETag>,
    /// The reason why the entity has no stamp. It is not sent then.
    pub(super) refusal: Option<Error>,
}

/// The writes of several commits, by table and partition.
#[derive(Default)]
pub(super) struct Plan {
    /// By the table's name in lower case, and the PartitionKey.
    queues: BTreeMap<(String, String), Queue>,
    /// The length of all writes as JSON.
    bytes: usize,
}

/// The writes of one partition that are left to send.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) table: String,
    pub(super) partition_key: String,
    pub(super) units: VecDeque<Unit>,
}

/// Writes that are sent in one group.
#[derive(Default)]
pub(super) struct Unit {
    /// By RowKey.
    pub(super) rows: BTreeMap<String, Row>,
    bytes: usize,
}

/// The last state of a row in a unit.
pub(super) struct Row {
    /// `None` if the row is deleted.
    pub(super) entity: Option<Entity>,
    pub(super) etag: Option<ETag>,
    pub(super) refusal: Option<Error>,
    /// An upper bound for its length in the body of a group.
    bytes: usize,
}

impl Write {
    pub(super) fn put(table: &str, mut entity: Entity, stamp: Option<&Stamp>) -> Self {
        let refusal = stamp.and_then(|stamp| stamp.put(&mut entity).err());
        let write = Self::delete(table, entity.partition_key(), entity.row_key());
        Self { entity: Some(entity), refusal, ..write }
    }

    /// Whether the target has this state already.
    pub(super) fn is_done_by(&self, found: &Entity) -> bool {
        let is_equal = |row: &Entity| row.has_properties_of(found);
        self.refusal.is_none() && self.entity.as_ref().is_some_and(is_equal)
    }

    pub(super) fn delete(table: &str, partition_key: &str, row_key: &str) -> Self {
        let [table, partition_key, row_key] = [table, partition_key, row_key].map(str::to_owned);
        Self { table, partition_key, row_key, entity: None, etag: None, refusal: None }
    }
}

impl Plan {
    /// Adds the writes of a commit.
    pub(super) fn add(&mut self, commit: impl IntoIterator<Item = Write>) {
        let mut units: BTreeMap<(String, String), (String, Unit)> = BTreeMap::new();
        for write in commit {
            let row = Row::new(&write.partition_key, &write.row_key, write.entity);
            let row = Row { etag: write.etag, refusal: write.refusal, ..row };
            let key = (write.table.to_ascii_lowercase(), write.partition_key);
            let (_, unit) = units.entry(key).or_insert_with(|| (write.table, Unit::default()));
            self.bytes += row.bytes;
            unit.put(write.row_key, row);
        }
        for (key, (table, unit)) in units {
            let partition_key = key.1.clone();
            let empty = || Queue { table, partition_key, units: VecDeque::new() };
            self.queues.entry(key).or_insert_with(empty).join(unit);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Returns the partitions, to send their units.
    pub(super) fn queues(&mut self) -> Vec<&mut Queue> {
        self.queues.values_mut().filter(|queue| !queue.units.is_empty()).collect()
    }
}

impl Queue {
    /// Adds a commit to the last unit if the result is a group that every service accepts.
    fn join(&mut self, mut commit: Unit) {
        let most = if mutant!("torn-commit") { 1 } else { GROUP_OPERATIONS_MAX };
        // Only a commit that is no entity group has more rows.
        while commit.rows.len() > most {
            let rest = commit.split_at(most);
            self.units.push_back(std::mem::replace(&mut commit, rest));
        }
        match self.units.back_mut() {
            Some(_) if mutant!("late-part") => self.units.push_front(commit),
            Some(last) if last.accepts(&commit) => last.absorb(commit),
            _ => self.units.push_back(commit),
        }
    }
}

impl Unit {
    fn put(&mut self, row_key: String, row: Row) {
        self.bytes += row.bytes;
        if let Some(before) = self.rows.insert(row_key, row) {
            self.bytes -= before.bytes;
        }
    }

    fn accepts(&self, commit: &Unit) -> bool {
        let both = commit.rows.keys().filter_map(|row_key| self.rows.get(row_key));
        let (count, bytes) =
            both.fold((0, 0), |(count, bytes), row| (count + 1, bytes + row.bytes));
        self.rows.len() + commit.rows.len() - count <= GROUP_OPERATIONS_MAX
            && self.bytes + commit.bytes - bytes <= BODY_MAX
    }

    fn absorb(&mut self, commit: Unit) {
        for (row_key, row) in commit.rows {
            if mutant!("first-state") && self.rows.contains_key(&row_key) {
                continue;
            }
            self.put(row_key, row);
        }
    }

    /// Removes the rows from the one with this index on, and returns them.
    pub(super) fn split_at(&mut self, index: usize) -> Unit {
        let first = self.rows.keys().nth(index).cloned();
        let rows = first.map(|first| self.rows.split_off(&first)).unwrap_or_default();
        let bytes = rows.values().map(|row| row.bytes).sum();
        self.bytes -= bytes;
        Unit { rows, bytes }
    }

    /// Returns the first row that cannot be sent, as an error of its operation.
    pub(super) fn refusal(&self) -> Option<Error> {
        let mut rows = self.rows.values().enumerate();
        rows.find_map(|(index, row)| Some(row.refusal.clone()?.at_index(index)))
    }

    /// Removes the row with this index, and returns its RowKey and its state.
    pub(super) fn remove(&mut self, index: usize) -> Option<(String, Option<Entity>)> {
        let row_key = self.rows.keys().nth(index)?.clone();
        let row = self.rows.remove(&row_key)?;
        self.bytes -= row.bytes;
        Some((row_key, row.entity))
    }
}

impl Row {
    fn new(partition_key: &str, row_key: &str, entity: Option<Entity>) -> Self {
        let json = entity.as_ref().map_or(0, |row| entity_text(row, Metadata::TYPES).len());
        let bytes = json + member_head(partition_key.len() + row_key.len());
        Self { entity, etag: None, refusal: None, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(pk: &str, rk: &str, n: i32) -> Write {
        Write::put("Tab", Entity::new(pk, rk).with("N", n), None)
    }

    /// Returns the units of each partition: keys with values, or `-` for a deleted row.
    fn units(plan: &mut Plan) -> Vec<String> {
        let row = |(rk, row): (&String, &Row)| match &row.entity {
            Some(entity) => format!("{rk}={}", entity.get::<i32>("N").unwrap()),
            None => format!("{rk}-"),
        };
        let unit = |unit: &Unit| unit.rows.iter().map(row).collect::<Vec<_>>().join(" ");
        let queue = |queue: &mut Queue| {
            let units = queue.units.iter().map(unit).collect::<Vec<_>>().join(" | ");
            format!("{}/{}: {units}", queue.table, queue.partition_key)
        };
        plan.queues().into_iter().map(queue).collect()
    }

    #[test]
    fn commits_of_a_partition_are_joined_and_the_last_state_counts() {
        let mut plan = Plan::default();
        plan.add([put("p", "a", 1), put("p", "b", 1)]);
        plan.add([put("q", "a", 2)]);
        plan.add([put("p", "a", 3), Write::delete("tab", "p", "b")]);
        plan.add([Write::delete("TAB", "q", "a"), put("q", "c", 4)]);
        assert_eq!(units(&mut plan), ["Tab/p: a=3 b-", "Tab/q: a- c=4"]);
    }

    #[test]
    fn a_unit_has_whole_commits_of_at_most_100_rows() {
        let mut plan = Plan::default();
        let commit = |first: usize, len: usize| {
            let keys = (first..first + len).map(|i| format!("{i:04}"));
            keys.map(|rk| put("p", &rk, 0)).collect::<Vec<_>>()
        };
        plan.add(commit(0, 60));
        // 40 rows of the first commit are written again: 80 distinct rows.
        plan.add(commit(20, 60));
        // The union has 110 rows.
        plan.add(commit(80, 30));
        let mut queues = plan.queues();
        let sizes: Vec<_> = queues[0].units.iter().map(|unit| unit.rows.len()).collect();
        assert_eq!(sizes, [80, 30]);
        // A commit that is no entity group is divided.
        plan.add(commit(1_000, 250));
        queues = plan.queues();
        let sizes: Vec<_> = queues[0].units.iter().map(|unit| unit.rows.len()).collect();
        assert_eq!(sizes, [80, 30, 100, 100, 50]);
    }

    #[test]
    fn a_unit_of_joined_commits_is_no_larger_than_all_services_accept() {
        let mut plan = Plan::default();
        let large = |rk: &str| {
            // A control character has six bytes of JSON.
            let texts = (0..5).map(|i| (format!("P{i}"), "\u{1}".repeat(30_000)));
            Write::put(
                "Tab",
                texts.fold(Entity::new("p", rk), |row, (name, text)| row.with(name, text)),
                None,
            )
        };
        for rk in ["a", "b", "a", "c", "d"] {
            plan.add([large(rk)]);
        }
        let queues = plan.queues();
        let sizes: Vec<_> = queues[0].units.iter().map(|unit| unit.rows.len()).collect();
        // 900 kB each: two fit. The second write of `a` replaces the first.
        assert_eq!(sizes, [2, 2]);
        assert!(queues[0].units.iter().all(|unit| unit.bytes <= BODY_MAX));
    }

    #[test]
    fn rows_are_taken_out_and_split_off() {
        let mut plan = Plan::default();
        plan.add(["a", "b", "c", "d"].map(|rk| put("p", rk, 1)));
        let mut queues = plan.queues();
        let unit = &mut queues[0].units[0];
        assert_eq!(unit.remove(1).map(|(rk, row)| (rk, row.is_some())), Some(("b".into(), true)));
        let rest = unit.split_at(1);
        assert_eq!((unit.rows.len(), rest.rows.len()), (1, 2));
        let rows = |unit: &Unit| unit.rows.values().map(|row| row.bytes).sum::<usize>();
        assert_eq!((unit.bytes, rest.bytes), (rows(unit), rows(&rest)));
    }
}

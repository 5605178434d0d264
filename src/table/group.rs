//! Entity groups: up to 100 operations on one partition that are committed atomically.

use std::borrow::Borrow;

use crate::error::{Code, Error, Result, put_quoted, quoted};
use crate::format::key::{put_row_key, user_key};
use crate::lsm::{Batch, CommitTicket, Op, Ops};
use crate::model::{
    ETag, Entity, GROUP_OPERATIONS_MAX, GROUP_SIZE_MAX, KeyPart, Numbers, check_key,
};
use crate::options::Durability;

use super::{Table, Ticket};

/// The initial capacity of a group's list of operations.
const GROUP_ROOM_MIN: usize = 4;
/// The capacity in bytes that is reserved for each RowKey of a group.
const KEY_ROOM: usize = 24;

/// One operation of a group. An ETag of `None` accepts any existing entity.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Inserts the entity, which must not exist.
    Insert(Entity),
    /// Replaces the entity, which must exist.
    Replace(Entity, Option<ETag>),
    /// Sets the given properties of the entity, which must exist, and keeps its other properties.
    Merge(Entity, Option<ETag>),
    /// Inserts or replaces the entity.
    Upsert(Entity),
    /// Inserts the entity. If it exists, sets the given properties and keeps its other properties.
    UpsertMerge(Entity),
    /// Deletes the entity, which must exist.
    Delete {
        /// The entity's PartitionKey.
        partition_key: String,
        /// The entity's RowKey.
        row_key: String,
        /// If given, the entity must still have this ETag.
        etag: Option<ETag>,
    },
}

/// Operations on one partition that are committed together.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// # use rowstone::{Db, Entity, EntityGroup};
/// let parts = Db::open_in_memory()?.create_table("parts")?;
/// let mut group = EntityGroup::new("bolts");
/// group.insert(Entity::new("bolts", "m4x20").with("Price", 0.12))?;
/// group.insert(Entity::new("bolts", "m4x25").with("Price", 0.14))?;
/// let etags = parts.commit(group)?; // all or nothing
/// assert_eq!(etags.len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct EntityGroup {
    partition_key: String,
    operations: Vec<Operation>,
    /// Indexes of the operations in RowKey order, to detect duplicates.
    by_row_key: Vec<usize>,
    /// An upper bound for the size of the group. The exact size is computed only if the bound
    /// exceeds the limit.
    size_at_most: usize,
    /// The limit on the size of the group in bytes.
    size_max: usize,
}

impl Operation {
    pub(super) fn delete(partition_key: &str, row_key: &str, etag: Option<ETag>) -> Self {
        let (partition_key, row_key) = (partition_key.to_owned(), row_key.to_owned());
        Operation::Delete { partition_key, row_key, etag }
    }

    /// Returns the PartitionKey and the RowKey.
    pub fn keys(&self) -> (&str, &str) {
        self.subject().map_or_else(|keys| keys, |entity| (entity.partition_key(), entity.row_key()))
    }

    fn row_key(&self) -> &str {
        self.subject().map_or_else(|(_, row_key)| row_key, Entity::row_key)
    }

    fn key_bytes(&self) -> (&[u8], &[u8]) {
        match self.subject() {
            Ok(entity) => entity.key_bytes(),
            Err((partition_key, row_key)) => (partition_key.as_bytes(), row_key.as_bytes()),
        }
    }

    pub(crate) fn entity(&self) -> Option<&Entity> {
        self.subject().ok()
    }

    /// Returns the entity, or for a delete the two keys.
    fn subject(&self) -> std::result::Result<&Entity, (&str, &str)> {
        match self {
            Operation::Delete { partition_key, row_key, .. } => Err((partition_key, row_key)),
            Operation::Insert(entity)
            | Operation::Replace(entity, _)
            | Operation::Merge(entity, _)
            | Operation::Upsert(entity)
            | Operation::UpsertMerge(entity) => Ok(entity),
        }
    }
}

impl EntityGroup {
    /// Creates an empty group on one partition.
    pub fn new(partition_key: impl Into<String>) -> Self {
        Self {
            partition_key: partition_key.into(),
            operations: Vec::new(),
            by_row_key: Vec::new(),
            size_at_most: 0,
            size_max: GROUP_SIZE_MAX,
        }
    }

    /// Creates a group of `operations`. The first one determines the partition.
    ///
    /// # Errors
    /// As [`push`](Self::push), with the index of the operation; `InvalidInput` if `operations` is
    /// empty.
    pub fn from_operations(operations: impl IntoIterator<Item = Operation>) -> Result<Self> {
        Self::within(operations, GROUP_SIZE_MAX)
    }

    /// As [`from_operations`](Self::from_operations), with another limit on the size in bytes.
    pub(crate) fn within(
        operations: impl IntoIterator<Item = Operation>,
        size_max: usize,
    ) -> Result<Self> {
        let (group, refused) = Self::up_to_refused(operations.into_iter().map(Ok), size_max)?;
        match refused {
            None if group.is_empty() => Err(Error::refused(Code::InvalidInput)),
            None => Ok(group),
            Some(error) => Err(error),
        }
    }

    /// Checks the number of operations of a group.
    pub(crate) fn check_len(len: usize) -> Result<()> {
        let text = "The batch request operation exceeds the maximum 100 changes per change set.";
        match len <= GROUP_OPERATIONS_MAX {
            true => Ok(()),
            false => Err(Error::refused_with(Code::InvalidInput, text)),
        }
    }

    /// Creates a group of the operations before the first one that is malformed or that
    /// [`push`](Self::push) refuses. Also returns the error of that operation, whose index is the
    /// length of the group.
    ///
    /// # Errors
    /// Those of more than 100 operations, and of a size of more than `size_max` bytes.
    pub(crate) fn up_to_refused<E: From<Error>>(
        operations: impl IntoIterator<Item = std::result::Result<Operation, E>>,
        size_max: usize,
    ) -> Result<(Self, Option<E>)> {
        let mut group = EntityGroup { size_max, ..EntityGroup::new("") };
        for operation in operations {
            let operation = match operation {
                Ok(operation) => operation,
                Err(error) => return Ok((group, Some(error))),
            };
            if group.is_empty() {
                operation.keys().0.clone_into(&mut group.partition_key);
            }
            let is_full = group.len() >= GROUP_OPERATIONS_MAX;
            if let Err(error) = group.push(operation) {
                let is_limit = is_full || error.code() == Code::RequestBodyTooLarge.as_str();
                return if is_limit { Err(error) } else { Ok((group, Some(error.into()))) };
            }
        }
        Ok((group, None))
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// `InvalidInput`, with the operation's index, for another partition, a RowKey that is already
    /// in the group, more than 100 operations, or more than 4 MiB by the size formula.
    pub fn push(&mut self, operation: Operation) -> Result<&mut Self> {
        let index = self.operations.len();
        let (place, size_at_most) = self
            .place(&operation)
            .map_err(|error| error.at_index(index).about(|| quoted_entity(operation.keys())))?;
        if index == self.operations.capacity() {
            // Operations are large. With these two capacities, a growing group is moved only once,
            // and a small group uses little memory.
            let room = if index == 0 { GROUP_ROOM_MIN } else { GROUP_OPERATIONS_MAX };
            self.operations.reserve_exact(room - index);
            self.by_row_key.reserve_exact(room - index);
        }
        self.by_row_key.insert(place, index);
        self.size_at_most = size_at_most;
        self.operations.push(operation);
        let row_key = self.operations[index].key_bytes().1;
        debug_assert_eq!(self.find(row_key), Ok(place), "row keys are in order");
        debug_assert_eq!(self.by_row_key.len(), self.operations.len(), "each has its place");
        debug_assert!(self.size_at_most <= self.size_max, "a group within its limits");
        Ok(self)
    }

    /// Checks that the operation can be added. Returns its index in `by_row_key`, and an upper
    /// bound for the new size of the group.
    fn place(&self, operation: &Operation) -> Result<(usize, usize)> {
        let (partition_key, row_key) = operation.key_bytes();
        Self::check_len(self.operations.len() + 1)?;
        if partition_key != self.partition_key.as_bytes() {
            return Err(Error::refused(Code::CommandsInBatchActOnDifferentPartitions));
        }
        let Err(place) = self.find(row_key) else {
            return Err(Error::refused(Code::InvalidDuplicateRow));
        };
        let entity = operation.entity();
        let mut size = self.size_at_most + entity.map_or(0, Entity::size_at_most);
        if size > self.size_max {
            size = self.size() + entity.map_or(0, Entity::size);
        }
        if size > self.size_max {
            return Err(Error::refused(Code::RequestBodyTooLarge));
        }
        Ok((place, size))
    }

    /// Returns the index of a RowKey in `by_row_key`, or its insertion point.
    fn find(&self, row_key: &[u8]) -> std::result::Result<usize, usize> {
        let key_of = |&index: &usize| self.operations[index].key_bytes().1;
        // A RowKey above all RowKeys of the group needs no search.
        if self.by_row_key.last().is_none_or(|last| key_of(last) < row_key) {
            return Err(self.by_row_key.len());
        }
        self.by_row_key.binary_search_by(|index| key_of(index).cmp(row_key))
    }

    /// Adds an insert.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn insert(&mut self, entity: Entity) -> Result<&mut Self> {
        self.push(Operation::Insert(entity))
    }

    /// Adds a replace of an existing entity.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn replace(&mut self, entity: Entity) -> Result<&mut Self> {
        self.push(Operation::Replace(entity, None))
    }

    /// Adds a replace of an entity that has not been written since `etag` was read.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn replace_if(&mut self, entity: Entity, etag: impl Borrow<ETag>) -> Result<&mut Self> {
        self.push(Operation::Replace(entity, Some(etag.borrow().clone())))
    }

    /// Adds a merge into an existing entity.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn merge(&mut self, entity: Entity) -> Result<&mut Self> {
        self.push(Operation::Merge(entity, None))
    }

    /// Adds a merge into an entity that has not been written since `etag` was read.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn merge_if(&mut self, entity: Entity, etag: impl Borrow<ETag>) -> Result<&mut Self> {
        self.push(Operation::Merge(entity, Some(etag.borrow().clone())))
    }

    /// Adds an insert or replace.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn upsert(&mut self, entity: Entity) -> Result<&mut Self> {
        self.push(Operation::Upsert(entity))
    }

    /// Adds an insert or merge.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn upsert_merge(&mut self, entity: Entity) -> Result<&mut Self> {
        self.push(Operation::UpsertMerge(entity))
    }

    /// Adds a delete of an existing entity.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn delete(&mut self, row_key: &str) -> Result<&mut Self> {
        self.push(Operation::delete(&self.partition_key, row_key, None))
    }

    /// Adds a delete of an entity that has not been written since `etag` was read.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn delete_if(&mut self, row_key: &str, etag: impl Borrow<ETag>) -> Result<&mut Self> {
        self.push(Operation::delete(&self.partition_key, row_key, Some(etag.borrow().clone())))
    }

    /// Returns the number of operations.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether there are no operations.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Returns the PartitionKey.
    pub fn partition_key(&self) -> &str {
        &self.partition_key
    }

    /// Returns the sum of the entities' sizes in bytes, by the size formula of the data model.
    /// Computes it at each call.
    pub fn size(&self) -> usize {
        self.operations.iter().filter_map(Operation::entity).map(Entity::size).sum()
    }

    pub(crate) fn operations(&self) -> &[Operation] {
        &self.operations
    }
}

impl Table {
    /// Commits a group, or a reference to one, atomically. Returns the ETags in the order of the
    /// operations; `None` for a delete.
    ///
    /// # Errors
    /// The error of the first operation that fails, with its [`index`](Error::index);
    /// `InvalidInput` for an empty group.
    pub fn commit(&self, group: impl Borrow<EntityGroup>) -> Result<Vec<Option<ETag>>> {
        self.commit_with(group, self.durability())
    }

    /// As [`commit`](Self::commit), with another durability.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn commit_with(
        &self,
        group: impl Borrow<EntityGroup>,
        durability: Durability,
    ) -> Result<Vec<Option<ETag>>> {
        let group = group.borrow();
        let seq = self.with_batch(group, |batch| self.engine.commit(batch, durability))?;
        Ok(etags(group, &ETag::from(seq)))
    }

    /// Submits a group without waiting until it is durable. A thread may submit many groups before
    /// it waits, so that they share a sync. ETags and other conditions are evaluated before this
    /// returns. Readers see the group when it has the requested durability.
    /// [`write_async`](Self::write_async) submits a single write.
    ///
    /// This blocks only for the work before the sync: a read of the group's rows if an operation
    /// has a condition or is a merge, and the delay of writes when background work or the log is
    /// behind. A refusal because of an earlier commit waits until that commit is durable.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn commit_async(&self, group: impl Borrow<EntityGroup>) -> Result<Ticket> {
        let group = group.borrow();
        let submit =
            |batch: &Batch<'_>| CommitTicket::submit(&self.engine, batch, self.durability());
        let ticket = self.with_batch(group, submit)?;
        let etags = etags(group, &ETag::from(ticket.seq));
        Ok(Ticket::new(ticket, etags))
    }

    /// Returns the error with which a commit of the group would be refused now, if any. Commits
    /// nothing, and counts against no target.
    #[cfg(feature = "cli")]
    pub(crate) fn first_failure(&self, group: &EntityGroup) -> Option<Error> {
        let evaluate = |batch: &Batch<'_>| self.engine.maintenance().evaluate(batch);
        if group.is_empty() { None } else { self.with_batch(group, evaluate).err() }
    }

    /// Builds the group's batch and calls `with` with it. The batch borrows its keys from one
    /// buffer and its rows from the entities.
    ///
    /// If an operation is refused without reading, `with` is not called: the operations before it
    /// are only evaluated, because the error of an earlier one takes precedence. So a group that
    /// can never be written neither counts against a target nor evicts rows.
    fn with_batch<R>(
        &self,
        group: &EntityGroup,
        with: impl FnOnce(&Batch<'_>) -> Result<R>,
    ) -> Result<R> {
        self.try_with_batch(group, with).map_err(|error| {
            match error.index().and_then(|index| group.operations().get(index)) {
                Some(failed) => self.about(error, failed.keys()),
                None => error.about(|| quoted("table", self.name())),
            }
        })
    }

    fn try_with_batch<R>(
        &self,
        group: &EntityGroup,
        with: impl FnOnce(&Batch<'_>) -> Result<R>,
    ) -> Result<R> {
        let operations = group.operations();
        if operations.is_empty() {
            return Err(Error::refused(Code::InvalidInput));
        }
        check_key(KeyPart::PartitionKey, group.partition_key())
            .map_err(|error| error.at_index(0))?;
        let partition = user_key(self.entry.gate.table, group.partition_key(), "");
        let mut keys = Vec::with_capacity(operations.len() * (partition.len() + KEY_ROOM));
        let mut ends = Vec::with_capacity(operations.len());
        let mut ops = Ops::with_capacity(operations.len());
        let mut numbers = Numbers::new(&self.engine.env().shapes);
        let mut refused = None;
        for (index, operation) in operations.iter().enumerate() {
            let row_key = operation.row_key();
            let checked = check_key(KeyPart::RowKey, row_key);
            match checked.and_then(|()| self.asked(operation, &mut numbers)) {
                Ok((condition, action)) => {
                    ops.push(Op { key: (&[][..]).into(), hash: 0, condition, action });
                    keys.extend_from_slice(&partition);
                    put_row_key(&mut keys, row_key);
                    ends.push(keys.len());
                }
                Err(error) if index == 0 => return Err(error.at_index(0)),
                Err(error) => {
                    refused = Some(error.at_index(index));
                    break;
                }
            }
        }
        let mut start = 0;
        for (op, end) in ops.iter_mut().zip(ends) {
            let key = &keys[start..end];
            (op.key, op.hash, start) = (key.into(), self.engine.env().hash(key), end);
        }
        let batch = self.batch(ops, true);
        match refused {
            Some(refused) => self.engine.maintenance().evaluate(&batch).and(Err(refused)),
            None => with(&batch),
        }
    }
}

/// Returns the text for an entity in errors.
pub(crate) fn quoted_entity((partition_key, row_key): (&str, &str)) -> String {
    // One allocation, because inserts of known keys may be frequent.
    let mut text = String::with_capacity(partition_key.len() + row_key.len() + 96);
    put_quoted(&mut text, "entity", partition_key);
    put_quoted(&mut text, "", row_key);
    text
}

/// Returns the text for an entity of a table in errors.
pub(crate) fn quoted_entity_of(table: &str, keys: (&str, &str)) -> String {
    let mut text = quoted_entity(keys);
    put_quoted(&mut text, " of table", table);
    text
}

fn etags(group: &EntityGroup, etag: &ETag) -> Vec<Option<ETag>> {
    group.operations().iter().map(|op| op.entity().map(|_| etag.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_group_counts_units_of_texts_and_not_their_bytes() {
        // The character has one UTF-16 unit, which counts as two bytes, but three bytes in UTF-8. A
        // count of UTF-8 bytes would exceed the limit too early.
        let entity = |row: usize, units: usize| {
            Entity::new("p", format!("{row:02}")).with("A", "\u{20ac}".repeat(units))
        };
        let units = (GROUP_SIZE_MAX / 4 - entity(0, 0).size()) / 2;
        let mut group = EntityGroup::new("p");
        for row in 0..4 {
            assert!(entity(row, units).size_at_most() > GROUP_SIZE_MAX / 4);
            group.upsert(entity(row, units)).unwrap();
        }
        assert_eq!(group.size(), GROUP_SIZE_MAX);
        group.delete("04").unwrap();
        let error = group.insert(entity(5, 0)).unwrap_err();
        assert_eq!((error.code(), error.index()), ("RequestBodyTooLarge", Some(5)));
        assert_eq!((group.len(), group.size()), (5, GROUP_SIZE_MAX));
    }
}

//! Entity groups: up to 100 operations on one partition that happen together or not at all.

use crate::error::{Code, Error, Result};
use crate::lsm::{Batch, Ops};
use crate::model::{ETag, Entity, GROUP_OPERATIONS_MAX, GROUP_SIZE_MAX};
use crate::options::Durability;

use super::{Table, Ticket};

/// One operation of a group. An ETag of `None` stands for any existing entity.
#[derive(Clone, Debug)]
pub enum Operation {
    /// The entity must not exist.
    Insert(Entity),
    /// The entity must exist, and becomes exactly the one given.
    Replace(Entity, Option<ETag>),
    /// The entity must exist; the properties given are set.
    Merge(Entity, Option<ETag>),
    /// Insert or replace.
    Upsert(Entity),
    /// Insert or merge.
    UpsertMerge(Entity),
    /// The entity must exist, and goes.
    Delete {
        /// Its PartitionKey.
        partition_key: String,
        /// Its RowKey.
        row_key: String,
        /// Only in this state.
        etag: Option<ETag>,
    },
}

/// Operations on one partition that are committed as one.
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
    /// The operations by RowKey, which tells repeats.
    by_row_key: Vec<usize>,
    size: usize,
}

impl Operation {
    pub(super) fn delete(partition_key: &str, row_key: &str, etag: Option<ETag>) -> Self {
        let (partition_key, row_key) = (partition_key.to_owned(), row_key.to_owned());
        Operation::Delete { partition_key, row_key, etag }
    }

    /// PartitionKey and RowKey.
    pub fn keys(&self) -> (&str, &str) {
        match self {
            Operation::Delete { partition_key, row_key, .. } => (partition_key, row_key),
            Operation::Insert(entity)
            | Operation::Replace(entity, _)
            | Operation::Merge(entity, _)
            | Operation::Upsert(entity)
            | Operation::UpsertMerge(entity) => (entity.partition_key(), entity.row_key()),
        }
    }

    /// The entity given; a delete gives none.
    pub(super) fn entity(&self) -> Option<&Entity> {
        match self {
            Operation::Delete { .. } => None,
            Operation::Insert(entity)
            | Operation::Replace(entity, _)
            | Operation::Merge(entity, _)
            | Operation::Upsert(entity)
            | Operation::UpsertMerge(entity) => Some(entity),
        }
    }
}

impl EntityGroup {
    /// An empty group on one partition.
    pub fn new(partition_key: impl Into<String>) -> Self {
        Self {
            partition_key: partition_key.into(),
            operations: Vec::new(),
            by_row_key: Vec::new(),
            size: 0,
        }
    }

    /// A group of all `operations`; their partition is the first one's.
    ///
    /// # Errors
    /// As [`push`](Self::push), with the index of the operation; `InvalidInput` if there is none.
    pub fn from_operations(operations: impl IntoIterator<Item = Operation>) -> Result<Self> {
        let mut operations = operations.into_iter().peekable();
        let Some(first) = operations.peek() else {
            return Err(Error::refused(Code::InvalidInput));
        };
        let mut group = EntityGroup::new(first.keys().0);
        for operation in operations {
            group.push(operation)?;
        }
        Ok(group)
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// `InvalidInput`, with the operation's index: another partition, a RowKey that is in the group already,
    /// more than 100 operations, or more than 4 MiB by the size formula.
    pub fn push(&mut self, operation: Operation) -> Result<&mut Self> {
        let index = self.operations.len();
        let size = self.size + operation.entity().map_or(0, Entity::size);
        let place = self.place(&operation, size).map_err(|error| error.at_index(index))?;
        self.by_row_key.insert(place, index);
        self.size = size;
        self.operations.push(operation);
        Ok(self)
    }

    /// Where the operation belongs in `by_row_key`, if it may be added and make the group this large.
    fn place(&self, operation: &Operation, size: usize) -> Result<usize> {
        let (partition_key, row_key) = operation.keys();
        if self.operations.len() >= GROUP_OPERATIONS_MAX {
            let text =
                "The batch request operation exceeds the maximum 100 changes per change set.";
            return Err(Error::refused_with(Code::InvalidInput, text));
        }
        if partition_key != self.partition_key {
            return Err(Error::refused(Code::CommandsInBatchActOnDifferentPartitions));
        }
        let Err(place) = self.find(row_key) else {
            return Err(Error::refused(Code::InvalidDuplicateRow));
        };
        if size > GROUP_SIZE_MAX {
            return Err(Error::refused(Code::RequestBodyTooLarge));
        }
        Ok(place)
    }

    /// The place of a RowKey in `by_row_key`, or where it belongs.
    fn find(&self, row_key: &str) -> std::result::Result<usize, usize> {
        let key_of = |&index: &usize| self.operations[index].keys().1;
        // Rows that come in order need no search.
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

    /// Adds a replace of an entity in the state `etag`.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn replace_if(&mut self, entity: Entity, etag: ETag) -> Result<&mut Self> {
        self.push(Operation::Replace(entity, Some(etag)))
    }

    /// Adds a merge into an existing entity.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn merge(&mut self, entity: Entity) -> Result<&mut Self> {
        self.push(Operation::Merge(entity, None))
    }

    /// Adds a merge into an entity in the state `etag`.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn merge_if(&mut self, entity: Entity, etag: ETag) -> Result<&mut Self> {
        self.push(Operation::Merge(entity, Some(etag)))
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
        let operation = Operation::delete(&self.partition_key, row_key, None);
        self.push(operation)
    }

    /// Adds a delete of an entity in the state `etag`.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn delete_if(&mut self, row_key: &str, etag: ETag) -> Result<&mut Self> {
        let operation = Operation::delete(&self.partition_key, row_key, Some(etag));
        self.push(operation)
    }

    /// How many operations there are.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// True if there is no operation.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// The partition.
    pub fn partition_key(&self) -> &str {
        &self.partition_key
    }

    /// The sum of the entities' sizes, in bytes by the size formula.
    pub fn size(&self) -> usize {
        self.size
    }

    pub(super) fn operations(&self) -> &[Operation] {
        &self.operations
    }
}

impl Table {
    /// Commits a group: all of it, durable as one, or nothing. The ETags stand in order of the operations;
    /// a delete has none.
    ///
    /// # Errors
    /// That of the first operation that fails, with its [`index`](Error::index); `InvalidInput` for an empty group.
    pub fn commit(&self, group: EntityGroup) -> Result<Vec<Option<ETag>>> {
        self.commit_with(group, self.durability())
    }

    /// Commits a group with a durability of its own.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn commit_with(
        &self,
        group: EntityGroup,
        durability: Durability,
    ) -> Result<Vec<Option<ETag>>> {
        let batch = self.group_batch(&group)?;
        let seq = self.engine.commit(&batch, durability)?;
        Ok(etags(&group, ETag(seq)))
    }

    /// Commits a group without waiting for it to be durable: many tickets of one thread share a sync.
    /// Conditions are decided now; readers see the commit when it is as durable as it asked.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn commit_async(&self, group: EntityGroup) -> Result<Ticket> {
        let batch = self.group_batch(&group)?;
        let ticket = self.engine.commit_async(&batch, self.durability())?;
        let etags = etags(&group, ETag(ticket.seq()));
        Ok(Ticket::new(ticket, etags))
    }

    pub(super) fn group_batch(&self, group: &EntityGroup) -> Result<Batch> {
        if group.is_empty() {
            return Err(Error::refused(Code::InvalidInput));
        }
        let ops = group.operations().iter().enumerate();
        let ops = ops.map(|(index, op)| self.op(op).map_err(|error| error.at_index(index)));
        Ok(self.batch(ops.collect::<Result<Ops>>()?, true))
    }
}

fn etags(group: &EntityGroup, etag: ETag) -> Vec<Option<ETag>> {
    group.operations().iter().map(|op| op.entity().map(|_| etag)).collect()
}

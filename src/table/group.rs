//! Entity groups: up to 100 operations on one partition that are committed atomically.

use std::borrow::{Borrow, Cow};
use std::fmt;

use crate::error::{Code, Error, Result, quoted};
use crate::format::key::{put_row_key, user_key};
use crate::lsm::{Batch, CommitTicket, Op, Ops};
use crate::model::{
    BufferedRow, ETag, Entity, EntityEncoder, GROUP_OPERATIONS_MAX, GROUP_SIZE_MAX, KeyPart,
    Numbers, ValueRef, check_key, utf16_len,
};
use crate::options::Durability;

use super::members::{Form, Members, Verb};
use super::operation::{Operation, quoted_entity};
use super::{Table, Ticket};

/// The capacity in bytes that is reserved for each RowKey of a group.
const KEY_ROOM: usize = 24;

/// Operations on one partition that are committed together.
///
/// A group encodes an entity when it is added, and does not keep it. So a loop can add the same
/// entity with other values, and reuse the memory of the group by [`reset`](Self::reset).
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// # use rowstone::{Db, Entity, EntityGroup};
/// let parts = Db::open_in_memory()?.create_table("parts")?;
/// let mut group = EntityGroup::new("bolts");
/// group.insert(Entity::new("bolts", "m4x20").with("Price", 0.12))?;
/// group.insert(Entity::new("bolts", "m4x25").with("Price", 0.14))?;
/// let etags = parts.commit(&group)?; // all or nothing
/// assert_eq!(etags.len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct EntityGroup {
    partition_key: String,
    members: Members,
    /// Indexes of the operations in RowKey order, to detect duplicates.
    by_row_key: Vec<usize>,
    /// An upper bound for the size of the group. The exact size is computed only if the bound
    /// exceeds the limit.
    size_at_most: usize,
    /// The limit on the size of the group in bytes.
    size_max: usize,
}

impl EntityGroup {
    /// Creates an empty group on one partition.
    pub fn new(partition_key: impl Into<String>) -> Self {
        Self {
            partition_key: partition_key.into(),
            members: Members::default(),
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

    /// Removes all operations, and sets the partition of those that follow. Keeps the memory.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use rowstone::{Db, EntityEncoder, EntityGroup, ValueRef};
    /// let readings = Db::open_in_memory()?.create_table("readings")?;
    /// let (mut encoder, mut group) = (EntityEncoder::default(), EntityGroup::new("hall"));
    /// for room in ["hall", "kitchen"] {
    ///     group.reset(room);
    ///     for minute in 0..60 {
    ///         let mut row = [("Celsius", ValueRef::Double(20.5))];
    ///         group.upsert_properties(&mut encoder, &format!("{minute:02}"), &mut row)?;
    ///     }
    ///     readings.commit(&group)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn reset(&mut self, partition_key: impl AsRef<str>) {
        partition_key.as_ref().clone_into(&mut self.partition_key);
        self.members.clear();
        self.by_row_key.clear();
        self.size_at_most = 0;
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// `InvalidInput`, with the operation's index, for another partition, a RowKey that is already
    /// in the group, more than 100 operations, or more than 4 MiB by the size formula.
    pub fn push(&mut self, operation: Operation) -> Result<&mut Self> {
        let keys = operation.keys();
        let place = self.place(keys)?;
        let entity = operation.entity();
        let size_at_most = entity.map_or(0, Entity::size_at_most);
        let size = self.grown(keys.1, size_at_most, || entity.map_or(0, Entity::size))?;
        let row_key = keys.1.to_owned();
        Ok(self.add(&row_key, (place, size), Form::Whole(Box::new(operation))))
    }

    /// Encodes an entity and adds the operation on it. If the entity violates the limits of the
    /// data model, a commit refuses it.
    fn push_entity(&mut self, verb: Verb, entity: &Entity) -> Result<&mut Self> {
        let row_key = entity.row_key();
        let place = self.place((entity.partition_key(), row_key))?;
        let is_key = check_key(KeyPart::RowKey, row_key);
        match is_key.and_then(|()| self.members.rows.push(entity)) {
            Ok(row) => self.push_row(verb, row_key, place, row),
            Err(_) => self.push(verb.operation(entity.clone())),
        }
    }

    fn push_properties(
        &mut self,
        verb: Verb,
        encoder: &mut EntityEncoder,
        row_key: &str,
        properties: &mut [(&str, ValueRef<'_>)],
    ) -> Result<&mut Self> {
        let place = self.place((&self.partition_key, row_key))?;
        let checked = check_key(KeyPart::RowKey, row_key)
            .and_then(|()| encoder.check(&self.partition_key, row_key, properties))
            .map_err(|error| self.about_next(error, row_key))?;
        let row = self.members.rows.push_properties(encoder, checked, properties);
        self.push_row(verb, row_key, place, row)
    }

    fn push_row(
        &mut self,
        verb: Verb,
        row_key: &str,
        place: usize,
        row: BufferedRow,
    ) -> Result<&mut Self> {
        let (partition_key, rows) = (&self.partition_key, &self.members.rows);
        let size_at_most = rows.size_at_most(partition_key.len() + row_key.len(), row);
        let exact = || rows.size(utf16_len(partition_key) + utf16_len(row_key), row);
        match self.grown(row_key, size_at_most, exact) {
            Ok(size) => Ok(self.add(row_key, (place, size), Form::Encoded(verb, row))),
            Err(error) => {
                self.members.rows.pop(row);
                Err(error)
            }
        }
    }

    fn push_delete(&mut self, row_key: &str, etag: Option<ETag>) -> Result<&mut Self> {
        if check_key(KeyPart::RowKey, row_key).is_err() {
            return self.push(Operation::delete(&self.partition_key, row_key, etag));
        }
        let place = self.place((&self.partition_key, row_key))?;
        Ok(self.add(row_key, (place, self.size_at_most), Form::Delete(etag)))
    }

    fn add(&mut self, row_key: &str, (place, size): (usize, usize), form: Form) -> &mut Self {
        let index = self.members.len();
        self.members.push(row_key, form, GROUP_OPERATIONS_MAX);
        self.by_row_key.insert(place, index);
        self.size_at_most = size;
        debug_assert_eq!(self.find(row_key), Ok(place), "row keys are in order");
        debug_assert_eq!(self.by_row_key.len(), self.members.len(), "each has its place");
        debug_assert!(self.size_at_most <= self.size_max, "a group within its limits");
        self
    }

    /// Checks that an operation on the entity with these keys can be added. Returns its index in
    /// `by_row_key`.
    fn place(&self, (partition_key, row_key): (&str, &str)) -> Result<usize> {
        let place = || {
            Self::check_len(self.len() + 1)?;
            if partition_key != self.partition_key {
                return Err(Error::refused(Code::CommandsInBatchActOnDifferentPartitions));
            }
            match self.find(row_key) {
                Ok(_) => Err(Error::refused(Code::InvalidDuplicateRow)),
                Err(place) => Ok(place),
            }
        };
        let about = |error: Error| {
            error.at_index(self.len()).about(|| quoted_entity((partition_key, row_key)))
        };
        place().map_err(about)
    }

    /// Returns an upper bound for the size of the group with an entity of `at_most` bytes.
    ///
    /// # Errors
    /// `RequestBodyTooLarge` if the group with an entity of `exact` bytes is too large.
    fn grown(&self, row_key: &str, at_most: usize, exact: impl FnOnce() -> usize) -> Result<usize> {
        let mut size = self.size_at_most + at_most;
        if size > self.size_max {
            size = self.size() + exact();
        }
        if size > self.size_max {
            return Err(self.about_next(Error::refused(Code::RequestBodyTooLarge), row_key));
        }
        Ok(size)
    }

    /// Adds the next operation's index and entity to its error.
    #[cold]
    fn about_next(&self, error: Error, row_key: &str) -> Error {
        error.at_index(self.len()).about(|| quoted_entity((&self.partition_key, row_key)))
    }

    /// Returns the index of a RowKey in `by_row_key`, or its insertion point.
    fn find(&self, row_key: &str) -> std::result::Result<usize, usize> {
        // A RowKey above all RowKeys of the group needs no search.
        if self.by_row_key.last().is_none_or(|last| self.members.row_key(*last) < row_key) {
            return Err(self.by_row_key.len());
        }
        self.by_row_key.binary_search_by(|index| self.members.row_key(*index).cmp(row_key))
    }

    /// Adds an insert of an entity, or of the entity behind a reference.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn insert(&mut self, entity: impl Borrow<Entity>) -> Result<&mut Self> {
        self.push_entity(Verb::Insert, entity.borrow())
    }

    /// As [`insert`](Self::insert), but takes properties instead of an entity, as
    /// [`Table::insert_properties`] does.
    ///
    /// # Errors
    /// As [`push`](Self::push), and `InvalidInput` for what the data model does not allow, or a
    /// duplicate name.
    pub fn insert_properties(
        &mut self,
        encoder: &mut EntityEncoder,
        row_key: &str,
        properties: &mut [(&str, ValueRef<'_>)],
    ) -> Result<&mut Self> {
        self.push_properties(Verb::Insert, encoder, row_key, properties)
    }

    /// Adds a replace of an existing entity.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn replace(&mut self, entity: impl Borrow<Entity>) -> Result<&mut Self> {
        self.push_entity(Verb::Replace(None), entity.borrow())
    }

    /// Adds a replace of an entity that has not been written since `etag` was read.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn replace_if(
        &mut self,
        entity: impl Borrow<Entity>,
        etag: impl Borrow<ETag>,
    ) -> Result<&mut Self> {
        self.push_entity(Verb::Replace(Some(etag.borrow().clone())), entity.borrow())
    }

    /// Adds a merge into an existing entity.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn merge(&mut self, entity: impl Borrow<Entity>) -> Result<&mut Self> {
        self.push_entity(Verb::Merge(None), entity.borrow())
    }

    /// As [`merge`](Self::merge), but takes properties instead of an entity, as
    /// [`Table::merge_properties`] does.
    ///
    /// # Errors
    /// As [`insert_properties`](Self::insert_properties).
    pub fn merge_properties(
        &mut self,
        encoder: &mut EntityEncoder,
        row_key: &str,
        properties: &mut [(&str, ValueRef<'_>)],
    ) -> Result<&mut Self> {
        self.push_properties(Verb::Merge(None), encoder, row_key, properties)
    }

    /// Adds a merge into an entity that has not been written since `etag` was read.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn merge_if(
        &mut self,
        entity: impl Borrow<Entity>,
        etag: impl Borrow<ETag>,
    ) -> Result<&mut Self> {
        self.push_entity(Verb::Merge(Some(etag.borrow().clone())), entity.borrow())
    }

    /// Adds an insert or replace.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn upsert(&mut self, entity: impl Borrow<Entity>) -> Result<&mut Self> {
        self.push_entity(Verb::Upsert, entity.borrow())
    }

    /// As [`upsert`](Self::upsert), but takes properties instead of an entity, as
    /// [`Table::upsert_properties`] does.
    ///
    /// # Errors
    /// As [`insert_properties`](Self::insert_properties).
    pub fn upsert_properties(
        &mut self,
        encoder: &mut EntityEncoder,
        row_key: &str,
        properties: &mut [(&str, ValueRef<'_>)],
    ) -> Result<&mut Self> {
        self.push_properties(Verb::Upsert, encoder, row_key, properties)
    }

    /// Adds an insert or merge.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn upsert_merge(&mut self, entity: impl Borrow<Entity>) -> Result<&mut Self> {
        self.push_entity(Verb::UpsertMerge, entity.borrow())
    }

    /// Adds a delete of an existing entity.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn delete(&mut self, row_key: &str) -> Result<&mut Self> {
        self.push_delete(row_key, None)
    }

    /// Adds a delete of an entity that has not been written since `etag` was read.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn delete_if(&mut self, row_key: &str, etag: impl Borrow<ETag>) -> Result<&mut Self> {
        self.push_delete(row_key, Some(etag.borrow().clone()))
    }

    /// Returns the number of operations.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are no operations.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the PartitionKey.
    pub fn partition_key(&self) -> &str {
        &self.partition_key
    }

    /// Returns the sum of the entities' sizes in bytes, by the size formula of the data model.
    /// Computes it at each call.
    pub fn size(&self) -> usize {
        (0..self.len()).map(|index| self.members.size(&self.partition_key, index)).sum()
    }

    /// Returns the operations. Those that were encoded are decoded.
    pub(crate) fn operations(&self) -> impl ExactSizeIterator<Item = Cow<'_, Operation>> {
        (0..self.len()).map(|index| self.members.operation(&self.partition_key, index))
    }

    /// Returns the PartitionKey and the RowKey of operation `index`.
    pub(crate) fn keys(&self, index: usize) -> Option<(&str, &str)> {
        (index < self.len()).then(|| (self.partition_key(), self.members.row_key(index)))
    }
}

impl fmt::Debug for EntityGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.operations()).finish()
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
    /// buffer and its rows from the group.
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
            match error.index().and_then(|index| group.keys(index)) {
                Some(keys) => self.about(error, keys),
                None => error.about(|| quoted("table", self.name())),
            }
        })
    }

    fn try_with_batch<R>(
        &self,
        group: &EntityGroup,
        with: impl FnOnce(&Batch<'_>) -> Result<R>,
    ) -> Result<R> {
        if group.is_empty() {
            return Err(Error::refused(Code::InvalidInput));
        }
        check_key(KeyPart::PartitionKey, group.partition_key())
            .map_err(|error| error.at_index(0))?;
        let partition = user_key(self.entry.gate.table, group.partition_key(), "");
        let mut keys = Vec::with_capacity(group.len() * (partition.len() + KEY_ROOM));
        let mut ends = Vec::with_capacity(group.len());
        let mut ops = Ops::with_capacity(group.len());
        let mut numbers = Numbers::new(&self.engine.env().shapes);
        let mut refused = None;
        for index in 0..group.len() {
            match group.members.asked(self, index, &mut numbers) {
                Ok((condition, action)) => {
                    ops.push(Op { key: (&[][..]).into(), hash: 0, condition, action });
                    keys.extend_from_slice(&partition);
                    put_row_key(&mut keys, group.members.row_key(index));
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

fn etags(group: &EntityGroup, etag: &ETag) -> Vec<Option<ETag>> {
    let etag = |index| (!group.members.is_delete(index)).then(|| etag.clone());
    (0..group.len()).map(etag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_operation_is_decoded_as_it_was() {
        let entity = |row_key: &str| Entity::new("p", row_key).with("A", 1).with("B", "\u{20ac}");
        let etag = ETag::from(crate::model::Seq(7));
        let mut group = EntityGroup::new("p");
        group.insert(entity("1")).unwrap().replace(entity("2")).unwrap();
        group.replace_if(entity("3"), &etag).unwrap().merge(entity("4")).unwrap();
        group.merge_if(entity("5"), &etag).unwrap().upsert(entity("6")).unwrap();
        group.upsert_merge(entity("7").with("C", 0.5)).unwrap().delete("8").unwrap();
        group.delete_if("9", &etag).unwrap();
        let whole = [
            Operation::Insert(entity("1")),
            Operation::Replace(entity("2"), None),
            Operation::Replace(entity("3"), Some(etag.clone())),
            Operation::Merge(entity("4"), None),
            Operation::Merge(entity("5"), Some(etag.clone())),
            Operation::Upsert(entity("6")),
            Operation::UpsertMerge(entity("7").with("C", 0.5)),
            Operation::delete("p", "8", None),
            Operation::delete("p", "9", Some(etag)),
        ];
        let whole = EntityGroup::from_operations(whole).unwrap();
        assert_eq!(format!("{group:?}"), format!("{whole:?}"));
        assert_eq!((group.size(), group.len()), (whole.size(), 9));
        assert_eq!(group.insert(entity("4")).unwrap_err().code(), "InvalidDuplicateRow");
        assert_eq!(group.keys(8), Some(("p", "9")));
    }

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

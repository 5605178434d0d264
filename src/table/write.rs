//! Writes of single entities, and the conversion of operations to conditions and actions of the
//! engine.

use std::sync::Arc;

use crate::error::{Code, Error, Result};
use crate::format::key::{decode_part, decode_user_key, partition_of, user_key, with_possible_key};
use crate::lsm::{Action, Batch, Condition, Gate, Op, Ops, PackedRow};
use crate::model::{
    ETag, Entity, EntityEncoder, KeyPart, Numbers, RowRef, Seq, ValueRef, check_key,
    check_row_limits, utf16_len,
};
use crate::options::Durability;

use super::{Operation, Table};

impl Table {
    /// Inserts an entity, which must not exist. This is one commit, with the durability of this
    /// table handle.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidInput` if the entity violates the data model; `NotFound` if the
    /// table was dropped; and `StorageFull`, `Poisoned` or `Io`, which any write may return.
    pub fn insert(&self, entity: Entity) -> Result<ETag> {
        self.write(Operation::Insert(entity))
    }

    /// As [`insert`](Self::insert), but takes properties instead of an entity. If the key exists,
    /// nothing is encoded; otherwise the row is encoded without allocating an entity. Sorts
    /// `properties` by name in place.
    ///
    /// # Errors
    /// As [`insert`](Self::insert), and `InvalidInput` for a duplicate name.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use rowstone::{Db, EntityEncoder, ErrorKind, ValueRef};
    /// let seen = Db::open_in_memory()?.create_table("seen")?;
    /// let (mut encoder, mut new) = (EntityEncoder::default(), 0);
    /// for (line, word) in ["a", "rose", "is", "a", "rose"].iter().enumerate() {
    ///     let mut first = [("Line", ValueRef::Int64(line as i64))];
    ///     match seen.insert_properties(&mut encoder, "words", word, &mut first) {
    ///         Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
    ///         inserted => new += usize::from(inserted.is_ok()),
    ///     }
    /// }
    /// assert_eq!(new, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn insert_properties(
        &self,
        encoder: &mut EntityEncoder,
        partition_key: &str,
        row_key: &str,
        properties: &mut [(&str, ValueRef<'_>)],
    ) -> Result<ETag> {
        let env = &self.engine.env();
        self.with_key((partition_key, row_key), |key| {
            let checked = encoder.check(partition_key, row_key, properties)?;
            let (hash, condition) = (env.hash(key), Condition::Absent);
            let op = Op { key: key.into(), hash, condition, action: Action::Delete };
            let batch = self.batch(Ops::from_buf([op]), false);
            self.engine.maintenance().commit_insert(batch, self.durability, || {
                PackedRow::new(encoder.row(checked, properties, &env.shapes))
            })
        })
    }

    /// Replaces an existing entity, whatever its ETag.
    ///
    /// # Errors
    /// `NotFound` if the entity does not exist; otherwise as [`insert`](Self::insert).
    pub fn replace(&self, entity: Entity) -> Result<ETag> {
        self.write(Operation::Replace(entity, None))
    }

    /// Replaces an existing entity, if it has not been written since `etag` was read.
    ///
    /// # Errors
    /// `PreconditionFailed` if the entity has been written since, `NotFound` if it does not exist;
    /// otherwise as [`insert`](Self::insert).
    pub fn replace_if(&self, entity: Entity, etag: ETag) -> Result<ETag> {
        self.write(Operation::Replace(entity, Some(etag)))
    }

    /// Sets the given properties of an existing entity and keeps its other properties.
    ///
    /// # Errors
    /// `NotFound` if the entity does not exist, `InvalidInput` also if the result is too large;
    /// otherwise as [`insert`](Self::insert).
    pub fn merge(&self, entity: Entity) -> Result<ETag> {
        self.write(Operation::Merge(entity, None))
    }

    /// Sets the given properties and keeps the entity's other properties, if the entity has not
    /// been written since `etag` was read.
    ///
    /// # Errors
    /// `PreconditionFailed` if the entity has been written since; otherwise as
    /// [`merge`](Self::merge).
    pub fn merge_if(&self, entity: Entity, etag: ETag) -> Result<ETag> {
        self.write(Operation::Merge(entity, Some(etag)))
    }

    /// Inserts the entity, or replaces the existing one. This is the cheapest write, because it
    /// reads nothing.
    ///
    /// # Errors
    /// Errors of [`insert`](Self::insert) except `AlreadyExists`.
    pub fn upsert(&self, entity: Entity) -> Result<ETag> {
        self.write(Operation::Upsert(entity))
    }

    /// Inserts the entity. If it exists, sets the given properties and keeps its other properties.
    ///
    /// # Errors
    /// Errors of [`merge`](Self::merge), except `NotFound` for a missing entity.
    pub fn upsert_merge(&self, entity: Entity) -> Result<ETag> {
        self.write(Operation::UpsertMerge(entity))
    }

    /// Deletes an existing entity, whatever its ETag.
    ///
    /// # Errors
    /// `NotFound` if the entity does not exist; otherwise the errors that any write may return.
    pub fn delete(&self, partition_key: &str, row_key: &str) -> Result<()> {
        let asked = || Ok((Condition::Present, Action::Delete));
        self.commit_one((partition_key, row_key), asked).map(drop)
    }

    /// Deletes an entity, if it has not been written since `etag` was read.
    ///
    /// # Errors
    /// `PreconditionFailed` if the entity has been written since, `NotFound` if it does not exist;
    /// otherwise the errors that any write may return.
    pub fn delete_if(&self, partition_key: &str, row_key: &str, etag: ETag) -> Result<()> {
        let asked = || Ok((Condition::Is(Seq(etag.seq().0)), Action::Delete));
        self.commit_one((partition_key, row_key), asked).map(drop)
    }

    /// Executes one operation. After a delete, the returned ETag has no meaning.
    pub(crate) fn write(&self, operation: Operation) -> Result<ETag> {
        let shapes = &self.engine.env().shapes;
        self.commit_one(operation.keys(), || self.asked(&operation, &mut Numbers::new(shapes)))
    }

    /// Commits one operation, which `asked` returns as a condition and an action. The key is built
    /// on the stack, and the row is borrowed from the entity.
    fn commit_one<'o>(
        &self,
        keys: (&str, &str),
        asked: impl FnOnce() -> Result<(Condition, Action<'o>)>,
    ) -> Result<ETag> {
        self.with_key(keys, |key| {
            let (condition, action) = asked()?;
            let op = Op { key: key.into(), hash: self.engine.env().hash(key), condition, action };
            self.engine.commit(&self.batch(Ops::from_buf([op]), false), self.durability)
        })
    }

    /// Checks the keys, encodes them, and calls `commit` with the encoded key.
    #[inline]
    fn with_key(
        &self,
        (partition_key, row_key): (&str, &str),
        commit: impl FnOnce(&[u8]) -> Result<Seq>,
    ) -> Result<ETag> {
        check_key(KeyPart::PartitionKey, partition_key)?;
        check_key(KeyPart::RowKey, row_key)?;
        let committed = with_possible_key(self.entry.gate.table, partition_key, row_key, commit);
        committed.unwrap_or_else(|| Err(Error::refused(Code::OutOfRangeInput))).map(ETag)
    }

    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }

    /// Checks the keys of an entity and returns the encoded key and its hash.
    pub(super) fn checked_key(&self, partition_key: &str, row_key: &str) -> Result<(Vec<u8>, u64)> {
        check_key(KeyPart::PartitionKey, partition_key)?;
        check_key(KeyPart::RowKey, row_key)?;
        let key = user_key(self.entry.gate.table, partition_key, row_key);
        let hash = self.engine.env().hash(&key);
        Ok((key, hash))
    }

    /// Returns the operation as a condition and an action. Requires: its keys were checked.
    pub(super) fn asked<'o>(
        &self,
        operation: &'o Operation,
        numbers: &mut Numbers<'_, 'o>,
    ) -> Result<(Condition, Action<'o>)> {
        let shapes = &self.engine.env().shapes;
        let is = |etag: &Option<ETag>| {
            etag.map_or(Condition::Present, |etag| Condition::Is(Seq(etag.seq().0)))
        };
        let mut put = |entity: &'o Entity| {
            entity.to_new_row(numbers).map(|row| Action::Put(PackedRow::new(row)))
        };
        let merge = |entity: &Entity| entity.to_row_of_checked_keys(shapes).map(Action::Merge);
        Ok(match operation {
            Operation::Insert(entity) => (Condition::Absent, put(entity)?),
            Operation::Replace(entity, etag) => (is(etag), put(entity)?),
            Operation::Merge(entity, etag) => (is(etag), merge(entity)?),
            Operation::Upsert(entity) => (Condition::Any, put(entity)?),
            Operation::UpsertMerge(entity) => (Condition::Any, merge(entity)?),
            Operation::Delete { etag, .. } => (is(etag), Action::Delete),
        })
    }

    /// Creates a batch of `ops` on this table. Requires: `ops` is not empty, and all keys are in
    /// one partition.
    pub(super) fn batch<'o>(&self, ops: impl Into<Ops<'o>>, is_group: bool) -> Batch<'o> {
        let batch = new_batch(&self.entry.gate, ops, is_group);
        let is_one = |two: &[Op<'_>]| partition_of(&two[0].key) == partition_of(&two[1].key);
        debug_assert!(batch.ops.windows(2).all(is_one), "a batch is of one partition");
        batch
    }
}

/// Returns a batch on one partition of the table that `gate` belongs to.
pub(super) fn new_batch<'o>(
    gate: &Arc<Gate>,
    ops: impl Into<Ops<'o>>,
    is_group: bool,
) -> Batch<'o> {
    let ops = ops.into();
    let prefix_len = match ops.as_slice() {
        // A batch with a single key needs no common prefix.
        [] | [_] => 0,
        [first, ..] => first.key.iter().skip(4).position(|byte| *byte == 0).map_or(4, |at| at + 5),
    };
    debug_assert!(
        ops.iter().all(|op| op.key.get(..prefix_len) == ops[0].key.get(..prefix_len)),
        "one partition"
    );
    let gate = Arc::clone(gate);
    Batch { gate, ops, prefix_len, is_group, changes: Vec::new(), closes: None, check_merged }
}

/// Checks that the row that results from a merge is within the limits of an entity.
fn check_merged(key: &[u8], row: &RowRef<'_>) -> Result<()> {
    let units = || {
        let damaged = |error| Error::decode("merge".as_ref(), 0, error);
        let (_, partition_key, row_key) = decode_user_key(key).map_err(damaged)?;
        let units = |part| decode_part(part).map(|text| utf16_len(&text)).map_err(damaged);
        Ok(units(partition_key)? + units(row_key)?)
    };
    check_row_limits(key.len(), units, row)
}

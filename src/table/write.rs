//! Writes of single entities, and the conversion of operations to conditions and actions of the
//! engine.

use std::borrow::Borrow;
use std::sync::Arc;

use crate::error::{Code, Error, Result, quoted};
use crate::format::key::{decode_part, decode_user_key, partition_of, user_key, with_possible_key};
use crate::lsm::{Action, Batch, CommitTicket, Condition, Gate, Op, Ops, PackedRow};
use crate::model::{
    ETag, Entity, EntityEncoder, KeyPart, NewRow, Numbers, Row, RowRef, Seq, ValueRef, check_key,
    check_row_limits, utf16_len,
};
use crate::options::Durability;

use super::operation::{Operation, quoted_entity_of};
use super::{Table, Ticket};

impl Table {
    /// Inserts an entity, which must not exist. This is one commit, with the durability of this
    /// table handle.
    ///
    /// This and the other writes accept an entity or a reference to one. A caller that passes a
    /// reference still has the entity after a refusal, and can write it again.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use rowstone::{Db, Entity, ErrorKind};
    /// let parts = Db::open_in_memory()?.create_table("parts")?;
    /// let bolt = Entity::new("bolts", "m4x20").with("Stock", 1_200);
    /// parts.insert(&bolt)?;
    /// match parts.insert(&bolt) {
    ///     Err(error) if error.kind() == ErrorKind::AlreadyExists => parts.replace(bolt)?,
    ///     inserted => inserted?,
    /// };
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidInput` if the entity violates the data model; `NotFound` if the
    /// table was dropped; and `StorageFull`, `Poisoned` or `Io`, which any write may return.
    pub fn insert(&self, entity: impl Borrow<Entity>) -> Result<ETag> {
        self.put(entity.borrow(), Condition::Absent)
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
        let keys = (partition_key, row_key);
        self.commit_properties(encoder, keys, properties, Condition::Absent, put)
    }

    /// As [`upsert`](Self::upsert), but takes properties instead of an entity, as
    /// [`insert_properties`](Self::insert_properties) does.
    ///
    /// # Errors
    /// As [`upsert`](Self::upsert), and `InvalidInput` for a duplicate name.
    pub fn upsert_properties(
        &self,
        encoder: &mut EntityEncoder,
        partition_key: &str,
        row_key: &str,
        properties: &mut [(&str, ValueRef<'_>)],
    ) -> Result<ETag> {
        let keys = (partition_key, row_key);
        self.commit_properties(encoder, keys, properties, Condition::Any, put)
    }

    /// As [`merge`](Self::merge), but takes properties instead of an entity, as
    /// [`insert_properties`](Self::insert_properties) does.
    ///
    /// # Errors
    /// As [`merge`](Self::merge), and `InvalidInput` for a duplicate name.
    pub fn merge_properties(
        &self,
        encoder: &mut EntityEncoder,
        partition_key: &str,
        row_key: &str,
        properties: &mut [(&str, ValueRef<'_>)],
    ) -> Result<ETag> {
        let keys = (partition_key, row_key);
        self.commit_properties(encoder, keys, properties, Condition::Present, merge)
    }

    /// Replaces an existing entity, whatever its ETag.
    ///
    /// # Errors
    /// `NotFound` if the entity does not exist; otherwise as [`insert`](Self::insert).
    pub fn replace(&self, entity: impl Borrow<Entity>) -> Result<ETag> {
        self.put(entity.borrow(), Condition::Present)
    }

    /// Replaces an existing entity, if it has not been written since `etag` was read.
    ///
    /// # Errors
    /// `PreconditionFailed` if the entity has been written since, `NotFound` if it does not exist;
    /// otherwise as [`insert`](Self::insert).
    pub fn replace_if(&self, entity: impl Borrow<Entity>, etag: impl Borrow<ETag>) -> Result<ETag> {
        self.put(entity.borrow(), is(Some(etag.borrow())))
    }

    /// Sets the given properties of an existing entity and keeps its other properties.
    ///
    /// # Errors
    /// `NotFound` if the entity does not exist, `InvalidInput` also if the result is too large;
    /// otherwise as [`insert`](Self::insert).
    pub fn merge(&self, entity: impl Borrow<Entity>) -> Result<ETag> {
        self.merge_in(entity.borrow(), Condition::Present)
    }

    /// Sets the given properties and keeps the entity's other properties, if the entity has not
    /// been written since `etag` was read.
    ///
    /// # Errors
    /// `PreconditionFailed` if the entity has been written since; otherwise as
    /// [`merge`](Self::merge).
    pub fn merge_if(&self, entity: impl Borrow<Entity>, etag: impl Borrow<ETag>) -> Result<ETag> {
        self.merge_in(entity.borrow(), is(Some(etag.borrow())))
    }

    /// Inserts the entity, or replaces the existing one. This is the cheapest write, because it
    /// reads nothing.
    ///
    /// # Errors
    /// Errors of [`insert`](Self::insert) except `AlreadyExists`.
    pub fn upsert(&self, entity: impl Borrow<Entity>) -> Result<ETag> {
        self.put(entity.borrow(), Condition::Any)
    }

    /// Inserts the entity. If it exists, sets the given properties and keeps its other properties.
    ///
    /// # Errors
    /// Errors of [`merge`](Self::merge), except `NotFound` for a missing entity.
    pub fn upsert_merge(&self, entity: impl Borrow<Entity>) -> Result<ETag> {
        self.merge_in(entity.borrow(), Condition::Any)
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
    pub fn delete_if(
        &self,
        partition_key: &str,
        row_key: &str,
        etag: impl Borrow<ETag>,
    ) -> Result<()> {
        let asked = || Ok((is(Some(etag.borrow())), Action::Delete));
        self.commit_one((partition_key, row_key), asked).map(drop)
    }

    /// Submits one write without waiting until it is durable, as
    /// [`commit_async`](Self::commit_async) does for a group. The ticket returns one ETag.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use rowstone::{Db, Entity, Operation};
    /// let readings = Db::open_in_memory()?.create_table("readings")?;
    /// let reading = |i| Entity::new("boiler", format!("{i:04}")).with("Bar", 1.5);
    /// let write = |i| readings.write_async(Operation::Upsert(reading(i)));
    /// let tickets: Vec<_> = (0..8).map(write).collect();
    /// for ticket in tickets {
    ///     ticket?.wait()?; // eight commits, about one sync
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As the method of [`Table`] with the operation's name.
    pub fn write_async(&self, operation: impl Borrow<Operation>) -> Result<Ticket> {
        let operation = operation.borrow();
        let commit = self.with_key(operation.keys(), |key| {
            let shapes = &self.engine.env().shapes;
            let (condition, action) = self.asked(operation, &mut Numbers::new(shapes))?;
            let batch = self.batch_of_one(key, condition, action);
            CommitTicket::submit(&self.engine, &batch, self.durability)
        })?;
        let etag = operation.entity().map(|_| ETag::from(commit.seq));
        Ok(Ticket::new(commit, vec![etag]))
    }

    /// Executes one operation. After a delete, the returned ETag has no meaning.
    #[cfg(feature = "cli")]
    pub(crate) fn write(&self, operation: Operation) -> Result<ETag> {
        let shapes = &self.engine.env().shapes;
        self.commit_one(operation.keys(), || self.asked(&operation, &mut Numbers::new(shapes)))
    }

    fn put(&self, entity: &Entity, condition: Condition) -> Result<ETag> {
        let shapes = &self.engine.env().shapes;
        self.commit_one(entity_keys(entity), || {
            entity.to_new_row(&mut Numbers::new(shapes)).map(|row| (condition, put(row)))
        })
    }

    fn merge_in(&self, entity: &Entity, condition: Condition) -> Result<ETag> {
        let shapes = &self.engine.env().shapes;
        self.commit_one(entity_keys(entity), || {
            Ok((condition, Action::Merge(entity.to_row_of_checked_keys(shapes)?)))
        })
    }

    /// Commits one operation, which `action` makes of the row with these properties. The row of an
    /// insert is encoded only after a read has not found its key.
    fn commit_properties(
        &self,
        encoder: &mut EntityEncoder,
        keys @ (partition_key, row_key): (&str, &str),
        properties: &mut [(&str, ValueRef<'_>)],
        condition: Condition,
        action: for<'r> fn(NewRow<'r>) -> Action<'r>,
    ) -> Result<ETag> {
        let shapes = &self.engine.env().shapes;
        self.with_key(keys, |key| {
            let checked = encoder.check(partition_key, row_key, properties)?;
            if condition == Condition::Absent {
                let batch = self.batch_of_one(key, condition, Action::Delete);
                return self.engine.maintenance().commit_insert(batch, self.durability, || {
                    action(encoder.row(checked, properties, shapes))
                });
            }
            let action = action(encoder.row(checked, properties, shapes));
            self.engine.commit(&self.batch_of_one(key, condition, action), self.durability)
        })
        .map(ETag::from)
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
            self.engine.commit(&self.batch_of_one(key, condition, action), self.durability)
        })
        .map(ETag::from)
    }

    fn batch_of_one<'o>(
        &self,
        key: &'o [u8],
        condition: Condition,
        action: Action<'o>,
    ) -> Batch<'o> {
        let op = Op { key: key.into(), hash: self.engine.env().hash(key), condition, action };
        self.batch(Ops::from_buf([op]), false)
    }

    /// Checks the keys, encodes them, and calls `commit` with the encoded key. An error names the
    /// entity.
    #[inline]
    fn with_key<R>(
        &self,
        keys @ (partition_key, row_key): (&str, &str),
        commit: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<R> {
        check_key(KeyPart::PartitionKey, partition_key)
            .and_then(|()| check_key(KeyPart::RowKey, row_key))
            .and_then(|()| {
                with_possible_key(self.entry.gate.table, partition_key, row_key, commit)
                    .unwrap_or_else(|| Err(Error::refused(Code::OutOfRangeInput)))
            })
            .map_err(|error| self.about(error, keys))
    }

    /// Adds the entity with these keys to the refusal `error`, or this table if it was dropped.
    #[cold]
    pub(super) fn about(&self, error: Error, keys: (&str, &str)) -> Error {
        let name = &self.entry.name;
        match error.code() == Code::TableNotFound.as_str() {
            true => error.about(|| quoted("table", name)),
            false => error.about(|| quoted_entity_of(name, keys)),
        }
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
        let mut put = |entity: &'o Entity| entity.to_new_row(numbers).map(put);
        let merge = |entity: &Entity| entity.to_row_of_checked_keys(shapes).map(Action::Merge);
        Ok(match operation {
            Operation::Insert(entity) => (Condition::Absent, put(entity)?),
            Operation::Replace(entity, etag) => (is(etag.as_ref()), put(entity)?),
            Operation::Merge(entity, etag) => (is(etag.as_ref()), merge(entity)?),
            Operation::Upsert(entity) => (Condition::Any, put(entity)?),
            Operation::UpsertMerge(entity) => (Condition::Any, merge(entity)?),
            Operation::Delete { etag, .. } => (is(etag.as_ref()), Action::Delete),
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

pub(super) fn put(row: NewRow<'_>) -> Action<'_> {
    Action::Put(PackedRow::new(row))
}

fn merge(NewRow { shape, body, .. }: NewRow<'_>) -> Action<'_> {
    Action::Merge(Row { shape: Arc::clone(shape.arc()), body: body.as_slice().to_vec() })
}

/// Returns the condition that an entity exists, and has this ETag if one is given. No entity has an
/// ETag of another form than that of this engine.
pub(super) fn is(etag: Option<&ETag>) -> Condition {
    etag.map_or(Condition::Present, |etag| Condition::Is(etag.seq().unwrap_or(Seq::ZERO)))
}

fn entity_keys(entity: &Entity) -> (&str, &str) {
    (entity.partition_key(), entity.row_key())
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

//! The operations of an entity group. An operation that passes the checks of the data model is
//! encoded in buffers of the group, without an entity of its own.

use std::borrow::Cow;
use std::ops::Range;

use crate::error::Result;
use crate::lsm::{Action, Condition};
use crate::model::{BufferedRow, ETag, Entity, KeyPart, Numbers, RowBuffer, check_key, utf16_len};

use super::Table;
use super::operation::Operation;
use super::write::{is, put};

/// The initial capacity of a group's list of operations.
const ROOM_MIN: usize = 4;

/// The operations of a group, in order.
#[derive(Clone, Default)]
pub(super) struct Members {
    list: Vec<Member>,
    /// The RowKeys of all operations, concatenated.
    row_keys: String,
    pub(super) rows: RowBuffer,
}

#[derive(Clone)]
struct Member {
    /// The RowKey's position in `row_keys`.
    row_key: Range<usize>,
    form: Form,
}

#[derive(Clone)]
pub(super) enum Form {
    /// An operation whose RowKey and row were checked.
    Encoded(Verb, BufferedRow),
    /// A delete whose RowKey was checked.
    Delete(Option<ETag>),
    /// An operation that was passed as a whole, or that a commit will refuse.
    Whole(Box<Operation>),
}

/// An [`Operation`] without its entity.
#[derive(Clone)]
pub(super) enum Verb {
    Insert,
    Replace(Option<ETag>),
    Merge(Option<ETag>),
    Upsert,
    UpsertMerge,
}

impl Verb {
    pub(super) fn operation(self, entity: Entity) -> Operation {
        match self {
            Verb::Insert => Operation::Insert(entity),
            Verb::Replace(etag) => Operation::Replace(entity, etag),
            Verb::Merge(etag) => Operation::Merge(entity, etag),
            Verb::Upsert => Operation::Upsert(entity),
            Verb::UpsertMerge => Operation::UpsertMerge(entity),
        }
    }

    fn condition(&self) -> Condition {
        match self {
            Verb::Insert => Condition::Absent,
            Verb::Replace(etag) | Verb::Merge(etag) => is(etag.as_ref()),
            Verb::Upsert | Verb::UpsertMerge => Condition::Any,
        }
    }

    fn is_merge(&self) -> bool {
        matches!(self, Verb::Merge(_) | Verb::UpsertMerge)
    }
}

impl Members {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.row_keys.clear();
        self.rows.clear();
    }

    /// Appends an operation. `room` is the capacity of the list once it outgrows its initial one.
    /// With these two capacities, a growing group is moved only once, and a small group uses little
    /// memory.
    pub(super) fn push(&mut self, row_key: &str, form: Form, room: usize) {
        let len = self.list.len();
        if len == self.list.capacity() {
            self.list.reserve_exact(if len == 0 { ROOM_MIN } else { room.max(len + 1) - len });
        }
        let start = self.row_keys.len();
        self.row_keys.push_str(row_key);
        self.list.push(Member { row_key: start..self.row_keys.len(), form });
    }

    /// Returns the RowKey of operation `index`. Requires: `index < len()`.
    #[inline]
    pub(super) fn row_key(&self, index: usize) -> &str {
        &self.row_keys[self.list[index].row_key.clone()]
    }

    pub(super) fn is_delete(&self, index: usize) -> bool {
        match &self.list[index].form {
            Form::Encoded(..) => false,
            Form::Delete(_) => true,
            Form::Whole(operation) => operation.entity().is_none(),
        }
    }

    /// Returns operation `index` of a group on this partition. Requires: `index < len()`.
    pub(super) fn operation(&self, partition_key: &str, index: usize) -> Cow<'_, Operation> {
        let row_key = self.row_key(index);
        Cow::Owned(match &self.list[index].form {
            Form::Encoded(verb, row) => {
                verb.clone().operation(self.rows.entity(partition_key, row_key, *row))
            }
            Form::Delete(etag) => Operation::delete(partition_key, row_key, etag.clone()),
            Form::Whole(operation) => return Cow::Borrowed(operation),
        })
    }

    /// Returns the size of operation `index` that counts against the limit of a group, in bytes.
    pub(super) fn size(&self, partition_key: &str, index: usize) -> usize {
        match &self.list[index].form {
            Form::Encoded(_, row) => {
                let key_units = utf16_len(partition_key) + utf16_len(self.row_key(index));
                self.rows.size(key_units, *row)
            }
            Form::Delete(_) => 0,
            Form::Whole(operation) => operation.entity().map_or(0, Entity::size),
        }
    }

    /// Returns operation `index` as a condition and an action on `table`.
    ///
    /// # Errors
    /// `InvalidInput` if the RowKey or the entity violates the limits of the data model.
    pub(super) fn asked<'m>(
        &'m self,
        table: &Table,
        index: usize,
        numbers: &mut Numbers<'_, 'm>,
    ) -> Result<(Condition, Action<'m>)> {
        Ok(match &self.list[index].form {
            Form::Encoded(verb, row) => {
                let action = match verb.is_merge() {
                    true => Action::Merge(self.rows.row(*row)),
                    false => put(self.rows.new_row(*row, numbers)),
                };
                (verb.condition(), action)
            }
            Form::Delete(etag) => (is(etag.as_ref()), Action::Delete),
            Form::Whole(operation) => {
                check_key(KeyPart::RowKey, self.row_key(index))?;
                table.asked(operation, numbers)?
            }
        })
    }
}

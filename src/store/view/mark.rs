//! Groups that are guarded by a row of their partition.
//!
//! Invariants
//! * each group writes its partition's mark on the condition that the mark has not changed since it
//!   was read, and everything that the group depends on is read after the mark;
//! * the mark has the epoch of its last writer. A runner stops at a mark with a later epoch.

use crate::db::Position;
use crate::error::{Code, Error, ErrorKind, Result};
use crate::model::{ETag, Entity};
use crate::store::table_store::TableStore;
use crate::table::{EntityGroup, Operation};

/// The number of times that a group is built because its outcome is not known, or because another
/// runner was faster.
const TRIES_MAX: usize = 5;

/// The size of a group's rows above which no row is added. A group for one source row may have
/// more.
pub(super) const GROUP_BYTES: usize = 1 << 20;

/// A runner of a view. The later one of two has the larger epoch.
pub(super) struct Runner<'s> {
    pub(super) store: &'s dyn TableStore,
    pub(super) epoch: i64,
    /// A random id, because two runners may begin with the same epoch.
    pub(super) writer: String,
}

/// The row that guards a partition.
#[derive(Clone, Debug, Default)]
pub(super) struct Mark {
    pub(super) epoch: i64,
    writer: String,
    pub(super) position: Option<Position>,
    etag: Option<ETag>,
}

/// The table, PartitionKey and RowKey of a mark.
#[derive(Clone, Copy)]
pub(super) struct Place<'k>(pub(super) &'k str, pub(super) &'k str, pub(super) &'k str);

/// The operations of a group, without that on the mark, and the position of the mark.
pub(super) struct Change {
    pub(super) operations: Vec<Operation>,
    pub(super) position: Option<Position>,
}

impl Mark {
    pub(super) fn read(store: &dyn TableStore, place: Place<'_>) -> Result<Self> {
        let Place(table, pk, rk) = place;
        let Some(row) = store.get(table, pk, rk, &[])? else { return Ok(Self::default()) };
        let position = row.value("Position").map(|_| row.get::<String>("Position")?.parse());
        Ok(Self {
            epoch: row.get("Epoch")?,
            writer: row.get("Writer")?,
            position: position.transpose()?,
            etag: row.etag(),
        })
    }

    /// Whether the partition has the effect of the commit at a position.
    pub(super) fn has(&self, at: Position) -> bool {
        self.position.is_some_and(|position| position.has_history_of(at) && position >= at)
    }
}

impl Runner<'_> {
    /// Builds a group for a state of its partition and commits it. After a lost answer, and if
    /// another runner was faster, the partition is read and the group is built again.
    ///
    /// # Errors
    /// `Locked` if a later runner has written the mark.
    pub(super) fn commit<T>(
        &self,
        place: Place<'_>,
        mut build: impl FnMut(&Mark) -> Result<(T, Change)>,
    ) -> Result<T> {
        let Place(table, pk, rk) = place;
        let mut last = None;
        for _ in 0..TRIES_MAX {
            let mark = Mark::read(self.store, place)?;
            let is_own = (mark.epoch, &*mark.writer) == (self.epoch, &*self.writer);
            if mark.epoch >= self.epoch && !is_own {
                return Err(overtaken(table));
            }
            let (done, Change { operations, position }) = build(&mark)?;
            if operations.is_empty() && position == mark.position && is_own {
                return Ok(done);
            }
            let mut row =
                Entity::new(pk, rk).with("Epoch", self.epoch).with("Writer", &*self.writer);
            if let Some(position) = position {
                row.set("Position", position.to_string());
            }
            let guard = match &mark.etag {
                None => Operation::Insert(row),
                Some(etag) => Operation::Replace(row, Some(etag.clone())),
            };
            let group = EntityGroup::from_operations([guard].into_iter().chain(operations))?;
            match self.store.commit(table, &group) {
                Ok(_) => return Ok(done),
                Err(error) if is_open(&error) => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::new(ErrorKind::OutcomeUnknown, "no answer")))
    }
}

/// Whether the state of the partition decides what the error means.
fn is_open(error: &Error) -> bool {
    let kinds =
        [ErrorKind::OutcomeUnknown, ErrorKind::PreconditionFailed, ErrorKind::AlreadyExists];
    kinds.contains(&error.kind()) || error.code() == Code::ResourceNotFound.as_str()
}

pub(super) fn overtaken(table: &str) -> Error {
    let text = format!("another runner has taken over the view in table '{table}'");
    Error::new(ErrorKind::Locked, text)
}

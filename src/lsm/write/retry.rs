//! Why a commit begins again, and what it asks of background work before it does.
//!
//! The writer knows no file, no manifest and no flush. Where it lacks one of them it leaves the commit lock and calls
//! [`Unblock`], which background work implements.

use crate::error::{Error, Result};
use crate::model::Seq;

/// Why a commit must begin again, outside the lock.
pub(super) enum RetryReason {
    /// The look-up no longer stands.
    LookUp,
    /// No next log is prepared.
    Log,
    /// Too many memtables wait for their flush.
    FrozenMemtables,
    /// Merged with what is there it takes so many bytes, more than were admitted.
    Larger(u64),
    /// The durable seq reservation is too low.
    SeqReservation,
    /// Refused because of a commit that is not published yet: wait for it.
    After(Seq, Error),
    Refused(Error),
}

impl From<Error> for RetryReason {
    fn from(error: Error) -> Self {
        RetryReason::Refused(error)
    }
}

/// What background work does for a commit that cannot go on. Requires: the commit lock is not held.
pub(in crate::lsm) trait Unblock {
    /// Creates the next log, unless there is one.
    fn prepare_log(&self) -> Result<()>;

    /// Waits until another memtable may be frozen.
    ///
    /// # Errors
    /// Why flushing fails, if it does.
    fn make_room(&self) -> Result<()>;

    /// Frees space on the disk until `needs` bytes more than now `fits`, with all files within `most` bytes.
    ///
    /// # Errors
    /// `StorageFull` if there is no more to free; merges are asked for space then.
    fn free_space(&self, needs: u64, most: u64, fits: &dyn Fn() -> bool) -> Result<()>;
}

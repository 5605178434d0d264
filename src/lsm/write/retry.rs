//! The reasons for which a commit starts again, and the background work that it requests first.
//!
//! The writer knows no file, no manifest and no flush. If a commit needs one of them, it releases
//! the commit lock and calls [`Unblock`], which background work implements.

use crate::error::{Error, Result};
use crate::model::Seq;

/// The reason for which a commit must leave the lock and start again, or fail.
pub(super) enum RetryReason {
    /// The pre-read is outdated.
    LookUp,
    /// No next log is prepared.
    Log,
    /// Too many memtables wait for their flush.
    FrozenMemtables,
    /// With the merged rows the batch takes this many bytes, more than were admitted.
    Larger(u64),
    /// The durable Seq reservation is too low.
    SeqReservation,
    /// The refusal depends on a commit that is not published yet; wait for that first.
    After(Seq, Error),
    Refused(Error),
}

impl From<Error> for RetryReason {
    fn from(error: Error) -> Self {
        RetryReason::Refused(error)
    }
}

/// The background work that a blocked commit needs. Requires: the commit lock is not held.
pub(in crate::lsm) trait Unblock {
    /// Creates the next log, unless there is one.
    fn prepare_log(&self) -> Result<()>;

    /// Waits until another memtable may be frozen.
    ///
    /// # Errors
    /// The error of the last flush, if that failed.
    fn make_room(&self) -> Result<()>;

    /// Frees disk space until `fits` returns true for `needs` more bytes, with all files within
    /// `most` bytes.
    ///
    /// # Errors
    /// `StorageFull` if nothing more can be freed; merges are then requested to free space.
    fn free_space(&self, needs: u64, most: u64, fits: &dyn Fn() -> bool) -> Result<()>;
}

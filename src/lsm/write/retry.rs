//! The reasons for which a commit starts again, and the background work that it needs first.
//!
//! A writer accesses no files and no manifest, and does not flush. If a commit needs such work, it
//! releases the commit lock and calls [`Unblock`], which the background implements.

use crate::error::{Error, Result};
use crate::model::Seq;

/// The reason for which a commit must release the lock and then start again or fail.
pub(super) enum RetryReason {
    /// The pre-read is outdated.
    LookUp,
    /// No next log is prepared.
    Log,
    /// Too many memtables wait for their flush.
    FrozenMemtables,
    /// The batch with its merged rows takes this many bytes, more than were admitted.
    Larger(u64),
    /// The Seq is above the durable Seq reservation.
    SeqReservation,
    /// Too many bytes of weak commits are unsynced.
    UnsyncedBytes,
    /// The refusal depends on a commit that is not published yet. Wait for that commit first.
    After(Seq, Error),
    Refused(Error),
}

impl From<Error> for RetryReason {
    fn from(error: Error) -> Self {
        RetryReason::Refused(error)
    }
}

/// The background work that a blocked commit needs. The commit lock must not be held.
pub(in crate::lsm) trait Unblock {
    /// Creates the next log, unless one is prepared already.
    fn prepare_log(&self) -> Result<()>;

    /// Allocates space in the active log before commits need it. Returns true if it allocated any.
    fn allocate_log(&self) -> Result<bool>;

    /// Waits until another memtable may be frozen.
    ///
    /// # Errors
    /// The error of the last flush, if it failed.
    fn make_room(&self) -> Result<()>;

    /// Frees disk space until `fits` returns true. The caller will write `needs` more bytes, and
    /// all files including these must fit in `most` bytes.
    ///
    /// # Errors
    /// `StorageFull` if nothing more can be freed now. Compactions that may free space are
    /// requested before this error is returned.
    fn free_space(&self, needs: u64, most: u64, fits: &dyn Fn() -> bool) -> Result<()>;
}

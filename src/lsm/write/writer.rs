//! Defines `Writer`, the part of the engine that commits batches.
//!
//! Invariant: a writer has no manifest and starts no background work. It requests the work that it
//! depends on through [`Unblock`](super::retry::Unblock).
//!
//! Locks: the commit lock (`group_commit`), which is never held during a write or a sync.
//!
//! Not here: the commit path (`commit`), reads (`Reader`).

use std::sync::Arc;

use crate::error::Result;
use crate::executor::Executor;
use crate::format::span::Span;

use super::admission::{Admitted, SpaceLimit};
use super::backlog::Backlog;
use super::batch::Batch;
use super::gates::Gates;
use super::group_commit::GroupCommit;
use super::log_queue::LogQueue;
use super::rate_limit::RateLimit;
use super::retry::Unblock;
use crate::lsm::Reader;

/// The state of the commit path, including its reader.
pub(crate) struct Writer {
    pub(in crate::lsm) reader: Reader,
    pub(in crate::lsm) group_commit: GroupCommit<LogQueue>,
    pub(crate) gates: Gates,
    /// The scalability targets, if any are set.
    pub(in crate::lsm) rate_limit: Option<RateLimit>,
    /// The limit on disk use, if one is set.
    pub(in crate::lsm) space_limit: Option<SpaceLimit>,
    pub(in crate::lsm) backlog: Backlog,
    /// The background threads, whose lanes are signalled when they have work.
    pub(in crate::lsm) executor: Arc<Executor>,
}

impl Writer {
    /// Admits a read. `touches` returns whether the read touches the given span.
    ///
    /// # Errors
    /// `ServerBusy` if the read touches an offline span.
    #[inline]
    pub(crate) fn admit_read(&self, touches: impl Fn(&Span) -> bool) -> Result<()> {
        self.gates.admit_read(|| self.reader.published(), touches)
    }

    /// Admits the writes of `batch`.
    ///
    /// # Errors
    /// `ServerBusy` if the writes would exceed the scalability targets.
    #[inline]
    pub(super) fn limit_rate(&self, batch: &Batch<'_>) -> Result<()> {
        match batch.ops.first() {
            Some(op) if self.rate_limit.is_some() => {
                self.throttle_keys(std::iter::repeat_n(&*op.key, batch.ops.len()))
            }
            _ => Ok(()),
        }
    }

    /// Admits reads of these keys. Adjacent keys of one partition are admitted together.
    ///
    /// # Errors
    /// `ServerBusy` if the reads would exceed the scalability targets.
    #[inline]
    pub(crate) fn throttle_keys<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Result<()> {
        let limit = self.rate_limit.as_ref();
        limit.map_or(Ok(()), |limit| limit.admit_keys(&self.reader.env, keys))
    }

    /// Admits the start of a query and charges its first row. The row is charged to the partition
    /// of `key` if the query reads only that partition.
    ///
    /// # Errors
    /// `ServerBusy` if the query would exceed the scalability targets.
    #[inline]
    pub(crate) fn throttle_query(&self, key: impl FnOnce() -> Option<Vec<u8>>) -> Result<()> {
        let limit = self.rate_limit.as_ref();
        limit.map_or(Ok(()), |limit| limit.admit_query(&self.reader.env, key()))
    }

    /// Charges a further row that a query returns.
    #[inline]
    pub(crate) fn book_row(&self, key: &[u8]) {
        if let Some(rate_limit) = &self.rate_limit {
            rate_limit.book_row(&self.reader.env, key);
        }
    }

    /// Admits `batch`, which takes at least `least` bytes of disk space. The caller holds the
    /// result until the batch is queued.
    ///
    /// # Errors
    /// `StorageFull` if the limit on disk use leaves no space for the batch.
    #[inline]
    pub(super) fn admit(
        &self,
        help: &impl Unblock,
        batch: &Batch<'_>,
        least: u64,
    ) -> Result<Admitted<'_>> {
        match &self.space_limit {
            None => Ok(Admitted::ALL),
            Some(space_limit) => space_limit.admit(&self.reader, help, batch, least),
        }
    }

    /// Caches the gaps (key spans without visible rows) that scans have found. Takes the commit
    /// lock, so that no concurrent put into a gap is missed.
    #[inline]
    pub(in crate::lsm) fn cut_gaps(&self) {
        if self.reader.env.gaps.has_offers() {
            let _commits = self.group_commit.lock();
            let view = self.reader.view.load();
            let (active, newest) = (&view.active().memtable, view.range_tombstones.newest);
            self.reader.env.gaps.apply_offers(active, newest, std::iter::empty());
        }
    }
}

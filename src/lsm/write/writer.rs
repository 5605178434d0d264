//! The part of the engine that writes: commits up to their publication.
//!
//! Invariant: the writer knows no manifest and starts no background work; what it cannot go on without it asks for
//! through [`Unblock`](super::retry::Unblock).
//!
//! Locks: the commit lock (`group_commit`), which is held over no write and no sync.
//!
//! Not here: the commit path (`commit`), what is read (`Reader`).

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

/// See the module.
pub(crate) struct Writer {
    pub(in crate::lsm) reader: Reader,
    pub(in crate::lsm) group_commit: GroupCommit<LogQueue>,
    pub(crate) gates: Gates,
    /// Only if there are targets.
    pub(in crate::lsm) rate_limit: Option<RateLimit>,
    /// Only if there is a limit on disk use.
    pub(in crate::lsm) space_limit: Option<SpaceLimit>,
    pub(in crate::lsm) backlog: Backlog,
    /// Woken when there is something to do.
    pub(in crate::lsm) executor: Arc<Executor>,
}

impl Writer {
    /// To be asked by a read; `touches` says whether it reads anything of a span.
    ///
    /// # Errors
    /// `ServerBusy` if any of that is offline.
    #[inline]
    pub(crate) fn admit_read(&self, touches: impl Fn(&Span) -> bool) -> Result<()> {
        self.gates.admit_read(|| self.reader.published(), touches)
    }

    /// # Errors
    /// `ServerBusy` if the targets do not allow so many writes now.
    #[inline]
    pub(super) fn limit_rate(&self, batch: &Batch<'_>) -> Result<()> {
        match batch.ops.first() {
            Some(op) if self.rate_limit.is_some() => {
                self.throttle_keys(std::iter::repeat_n(&*op.key, batch.ops.len()))
            }
            _ => Ok(()),
        }
    }

    /// Reads of these keys; neighbours of one partition are asked for together.
    ///
    /// # Errors
    /// `ServerBusy` if the targets do not allow them now.
    #[inline]
    pub(crate) fn throttle_keys<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Result<()> {
        let limit = self.rate_limit.as_ref();
        limit.map_or(Ok(()), |limit| limit.admit_keys(&self.reader.env, keys))
    }

    /// The beginning of a query, which costs as much as its first row: of the partition of `key` if that is all it reads.
    ///
    /// # Errors
    /// `ServerBusy` if the targets do not allow it now.
    #[inline]
    pub(crate) fn throttle_query(&self, key: impl FnOnce() -> Option<Vec<u8>>) -> Result<()> {
        let limit = self.rate_limit.as_ref();
        limit.map_or(Ok(()), |limit| limit.admit_query(&self.reader.env, key()))
    }

    /// A row that a query hands out behind its first.
    #[inline]
    pub(crate) fn book_row(&self, key: &[u8]) {
        if let Some(rate_limit) = &self.rate_limit {
            rate_limit.book_row(&self.reader.env, key);
        }
    }

    /// Lets `batch` pass, which takes at least `least` bytes: to be held until it is queued.
    ///
    /// # Errors
    /// `StorageFull` where the limit on disk use leaves no room for it.
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

    /// Takes over the gaps that scans offered: under the commit lock, so that no put is missed.
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

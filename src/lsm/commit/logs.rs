//! Logs around the commits: prepared, given space, synced in the background, and closed.
//!
//! Invariants
//! * a log is named in the manifest before it can become the active one;
//! * nothing follows the closing record.
//!
//! Locks: `Engine::install` before the commit lock.
//!
//! Not here: commits and what is queued for the log (`commit`).

use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::format::edit::CleanClose;
use crate::format::record::{Position, RecordKind};
use crate::format::wal;
use crate::model::Seq;
use crate::options::Durability;
use crate::planted::planted;

use super::super::Engine;
use super::{CEILING_TICKS, Closing, WEAK_SYNC_EVERY, next_allocation};

impl Engine {
    /// Creates the next log, unless there is one: file, directory entry, and its name in the manifest.
    pub(crate) fn prepare_log(&self) -> Result<()> {
        let mut manifest = self.install.lock();
        if self.rounds.lock().queue.next.is_some() {
            return Ok(());
        }
        // However large its predecessor is: it may wait for long, and grows ahead of its commits.
        let bytes = self.env.options.log_allocate_bytes;
        let next = self.env.create_log(&mut manifest, bytes, &[]);
        let next = next.map_err(|error| self.judge(&manifest, error))?;
        self.rounds.lock().queue.next = Some(next);
        Ok(())
    }

    /// Reserves space in the active log before it is needed.
    pub(crate) fn allocate_ahead(&self) -> Result<bool> {
        let _work = self.upkeep.work()?;
        let (log, want) = {
            let state = self.rounds.lock();
            let queue = &state.queue;
            if queue.end + queue.allocated / 4 < queue.allocated {
                return Ok(false);
            }
            (Arc::clone(&queue.log), next_allocation(queue.allocated, queue.allocated))
        };
        log.allocate(want).map_err(|error| self.judge_log(error))?;
        let mut state = self.rounds.lock();
        if Arc::ptr_eq(&state.queue.log, &log) {
            state.queue.allocated = state.queue.allocated.max(want);
        }
        Ok(true)
    }

    /// Makes a higher ceiling durable, so that weak commits can take numbers below it.
    pub(crate) fn raise_ceiling(&self) -> Result<()> {
        {
            let mut state = self.rounds.lock();
            if let Some(error) = state.failed() {
                return Err(error.clone());
            }
            state.queue.check_open(Closing::Commits)?;
            let last = state.last();
            let ceiling = Seq(self.env.clock.now().max(last.0).saturating_add(CEILING_TICKS));
            let appended = state.queue.append_promise(last, ceiling.min(Seq::MAX));
            drop(state);
            appended.map_err(|error| self.judge_log(error))?;
        }
        self.rounds.flush(Durability::Sync)
    }

    /// True if no next log is prepared.
    pub(crate) fn wants_log(&self) -> bool {
        self.rounds.lock().queue.next.is_none()
    }

    /// How long until the background sync is due: of weak commits, and of others that nobody waits for.
    pub(crate) fn sync_due(&self) -> Option<Duration> {
        let (bytes, since) = self.rounds.lock().queue.unsettled?;
        if bytes >= self.env.options.weak_sync_bytes {
            return Some(Duration::ZERO);
        }
        let waited = self.env.clock.monotonic().saturating_sub(since);
        Some(WEAK_SYNC_EVERY.saturating_sub(waited))
    }

    /// Makes everything committed so far durable.
    pub(crate) fn sync(&self) -> Result<()> {
        if let Some(error) = self.rounds.lock().failed() {
            return Err(error.clone());
        }
        self.rounds.flush(Durability::Sync)
    }

    /// Makes the ceiling of numbers in use durable in the active log, before a log that names it goes.
    pub(crate) fn settle_ceiling(&self) -> Result<()> {
        let is_settled = {
            let state = self.rounds.lock();
            // A failed round has emptied the queue, and nobody knows what of it is on the disk.
            if let Some(error) = state.failed() {
                return Err(error.clone());
            }
            state.queue.unsynced.is_empty() && state.queue.segments.is_empty()
        };
        let is_settled = is_settled || planted!("ceiling-goes-with-its-log");
        if is_settled { Ok(()) } else { self.rounds.flush(Durability::Sync) }
    }

    /// Where the active log ends.
    pub(crate) fn log_end(&self) -> Position {
        self.rounds.lock().queue.position()
    }

    /// Commits are refused from now on; those that are queued go on.
    pub(crate) fn refuse_commits(&self) {
        self.rounds.lock().queue.closing = Closing::Commits;
    }

    /// Appends the record that says the log was closed in order, and syncs it; what a clean close vouches for.
    pub(crate) fn close_log(&self, manifest: Position) -> Result<CleanClose> {
        let close = {
            let mut state = self.rounds.lock();
            let last_seq = state.last();
            let queue = &mut state.queue;
            queue.append_empty(RecordKind::Close, last_seq, |out| {
                wal::Close { manifest, last_seq }.encode(out);
            })?;
            queue.promise_due = false;
            queue.closing = Closing::Log;
            let end = queue.position();
            CleanClose { log: end.file, end: end.offset, last_seq }
        };
        let is_unsynced = planted!("close-before-sync");
        self.rounds.flush(if is_unsynced { Durability::Os } else { Durability::Sync })?;
        Ok(close)
    }
}

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

use crate::clock::ticks_in;
use crate::error::{Error, ErrorKind, Result};
use crate::executor::Lane;
use crate::format::edit::CleanClose;
use crate::format::record::{Position, RECORD_HEADER_BYTES, RecordKind};
use crate::format::wal;
use crate::log::LogFile;
use crate::manifest::Manifest;
use crate::model::Seq;
use crate::mutants::mutant;
use crate::options::{Background, Durability};
use crate::sync::MutexGuard;
use crate::write_accounting::Meter;

use super::super::Engine;
use super::batch::Batch;
use super::commit::{
    Closing, EMPTY_RECORD_BYTES, LogQueue, SEQ_RESERVATION_TICKS, WEAK_SYNC_EVERY,
};
use super::group_commit::State;

/// Where numbers of commits have come to when a queue begins.
#[derive(Clone, Copy)]
pub(in crate::lsm) struct LastSeqs {
    /// The last that something has which is left.
    pub(in crate::lsm) used: Seq,
    /// Up to here they may have been given out.
    pub(in crate::lsm) given_out: Seq,
}

/// Kept free behind every commit, so that a full disk keeps nobody from syncing and closing.
const ROOM_BEHIND: u64 = 2 * EMPTY_RECORD_BYTES;
/// Space is reserved in doubling steps up to this.
const ALLOCATE_STEP_MAX: u64 = 16 << 20;
/// Where there is no space for such a step, for this much more at least.
const NEAR_BYTES: u64 = 16 << 10;
/// A buffer that is kept may be as long as so many full ones.
const SPARE_BUFFERS: usize = 4;

impl LogQueue {
    /// Up to where the logs are durable, if no record of theirs says so yet of some commit.
    pub(in crate::lsm) fn durable_unclaimed(&self) -> Option<Position> {
        let is_claimed_durable =
            self.committed <= self.durable_claimed || self.durable <= self.durable_claimed;
        (!is_claimed_durable).then_some(self.durable)
    }

    /// Makes sure that a commit with `payload` bytes, and empty records behind it, fit what is allocated.
    pub(super) fn reserve(&mut self, payload: u64) -> Result<()> {
        self.reserve_to(self.end + RECORD_HEADER_BYTES as u64 + payload + 8 + ROOM_BEHIND)
    }

    pub(super) fn reserve_to(&mut self, want: u64) -> Result<()> {
        if want > self.allocated {
            let len = next_allocation(self.allocated, want);
            self.allocated = self.allocate(want, len)?;
        }
        Ok(())
    }

    /// Allocates up to `ahead`, or as far as there is space, at least up to `want`; returns where to.
    fn allocate(&self, want: u64, ahead: u64) -> Result<u64> {
        // A nearly full disk may still hold this one record, and a limit has let it pass; with the next few, if it can.
        let near = want.next_multiple_of(NEAR_BYTES).min(ahead);
        let is_full = |error: &Error| error.kind() == ErrorKind::StorageFull;
        let mut allocated = self.log.allocate_ahead(ahead).map(|()| ahead);
        for len in [near, want] {
            if !allocated.as_ref().is_err_and(is_full) {
                break;
            }
            allocated = self.log.allocate(len).map(|()| len);
        }
        allocated
    }

    /// Gives back what was allocated ahead. Requires: nothing is appended any more.
    pub(in crate::lsm) fn trim(&self) {
        if !self.is_ended && self.segments.is_empty() {
            self.log.trim(self.end);
        }
        if let Some(next) = &self.next {
            next.log.trim(LogFile::START);
        }
    }

    /// Keeps buffers that fit `log_buffer_bytes`.
    pub(crate) fn keep_buffers_of(&mut self, log_buffer_bytes: usize) {
        self.spare_bytes_max = SPARE_BUFFERS * log_buffer_bytes;
    }

    /// Moves what users have written into the account.
    pub(in crate::lsm) fn account_user_bytes(&mut self, meter: &Meter) {
        let (bytes, end) = self.unaccounted_user;
        self.unaccounted_user = (0, end);
        meter.record_user(bytes, end);
    }

    /// What its buffers take.
    pub(crate) fn memory_bytes(&self) -> usize {
        let queued = self.segments.iter().map(|segment| segment.bytes.capacity());
        queued.sum::<usize>() + self.spare.capacity()
    }

    /// Rows came in as files, behind all that was queued.
    pub(in crate::lsm) fn record_import(&mut self, seq: Seq) {
        self.last = self.last.max(seq);
    }

    /// Where the last commit ends that was queued: everything before the next one.
    pub(in crate::lsm) fn committed(&self) -> Position {
        self.committed
    }
}

impl Engine {
    /// Creates the next log, unless there is one: file, directory entry, and its name in the manifest.
    pub(crate) fn prepare_log(&self) -> Result<()> {
        self.prepare_log_in(&mut self.install.lock())
    }

    fn prepare_log_in(&self, manifest: &mut Manifest) -> Result<()> {
        let unused = {
            let mut state = self.group_commit.lock();
            if state.queue.next.is_some() {
                return Ok(());
            }
            state.queue.account_user_bytes(&self.env.meter);
            state.queue.unused.clone()
        };
        // However large its predecessor is: it may wait for long, and grows ahead of its commits.
        let bytes = self.env.options.log_allocate_bytes;
        let clock = self.ttl.news(manifest.version().clock());
        let next = self.env.create_log(manifest, bytes, &unused, None, clock);
        let next = next.map_err(|error| self.poison_on_failure(manifest, error))?;
        let queue = &mut self.group_commit.lock().queue;
        (queue.next, queue.unused) = (Some(next), Vec::new());
        Ok(())
    }

    /// Goes on in the log that was prepared, if the one so far was closed before this opening; false if none is. The
    /// memtable stays, and is in the new log too from now on.
    pub(super) fn begin_log(&self, state: &mut MutexGuard<'_, State<LogQueue>>) -> Result<bool> {
        if !state.queue.is_ended {
            return Ok(true);
        }
        let Some(next) = state.queue.next.take() else { return Ok(false) };
        let number = next.log.header().number;
        state.queue.switch_to(next)?;
        self.change_view(|view| view.with_log(number));
        self.executor.signal(Lane::Log);
        Ok(true)
    }

    /// Sees to it that there is a log to append to.
    fn ensure_log(&self) -> Result<()> {
        while !self.begin_log(&mut self.group_commit.lock())? {
            self.prepare_log()?;
        }
        Ok(())
    }

    /// Reserves space in the active log before it is needed.
    pub(crate) fn allocate_ahead(&self) -> Result<bool> {
        let _work = self.state.work()?;
        let (log, want) = {
            let state = self.group_commit.lock();
            let queue = &state.queue;
            if queue.is_ended || !queue.is_short() {
                return Ok(false);
            }
            (Arc::clone(&queue.log), next_allocation(queue.allocated, queue.allocated))
        };
        match log.allocate_ahead(want) {
            // Commits reserve what they need themselves.
            Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(false),
            result => result.map_err(|error| self.poison_on_log_failure(error))?,
        }
        let mut state = self.group_commit.lock();
        if Arc::ptr_eq(&state.queue.log, &log) {
            state.queue.allocated = state.queue.allocated.max(want);
        }
        Ok(true)
    }

    /// Makes a higher seq reservation durable, so that weak commits can take numbers below it.
    pub(crate) fn reserve_seqs(&self) -> Result<()> {
        self.ensure_log()?;
        {
            let mut state = self.group_commit.lock();
            if let Some(error) = state.failed() {
                return Err(error.clone());
            }
            state.queue.check_open(Closing::Commits)?;
            let last = state.last();
            let delay = ticks_in(self.env.options.max_commit_delay);
            let ahead = SEQ_RESERVATION_TICKS.saturating_add(delay);
            let seq_reservation = Seq(self.env.clock.now().max(last.0).saturating_add(ahead));
            let appended = state.queue.append_durable_record(last, seq_reservation.min(Seq::MAX));
            drop(state);
            appended.map_err(|error| self.poison_on_log_failure(error))?;
        }
        self.group_commit.flush(Durability::Sync)
    }

    /// Waits until `seq` is published; first leaves it to others to lead its commit group, for as long as options allow.
    pub(super) fn wait_published(&self, batch: &Batch<'_>, seq: Seq) -> Result<Seq> {
        let options = &self.env.options;
        let is_plain = batch.changes.is_empty() && batch.closes.is_none();
        // Where nobody runs steps there may be nobody else.
        let is_shared = options.background != Background::Manual;
        if is_plain && is_shared && !options.max_commit_delay.is_zero() {
            self.group_commit.wait_for_company(seq, options.max_commit_delay);
        }
        self.group_commit.wait(seq).map(|()| seq)
    }

    /// True if no next log is prepared, and the log that there is gets commits.
    pub(crate) fn wants_log(&self) -> bool {
        let state = self.group_commit.lock();
        state.queue.next.is_none() && !state.queue.is_ended
    }

    /// How long until the background sync is due: of weak commits, and of others that nobody waits for.
    pub(crate) fn sync_due(&self) -> Option<Duration> {
        let (bytes, since) = self.group_commit.lock().queue.undurable?;
        if bytes >= self.env.options.weak_sync_bytes {
            return Some(Duration::ZERO);
        }
        let waited = self.env.clock.monotonic().saturating_sub(since);
        let delay = self.env.options.max_commit_delay;
        let every = WEAK_SYNC_EVERY.max(delay);
        Some(every.saturating_sub(waited))
    }

    /// Makes everything committed so far durable.
    pub(crate) fn sync(&self) -> Result<()> {
        if let Some(error) = self.group_commit.lock().failed() {
            return Err(error.clone());
        }
        self.group_commit.flush(Durability::Sync)
    }

    /// Makes the seq reservation of numbers in use durable in the active log, before a log that names it goes.
    pub(crate) fn persist_seq_reservation(&self) -> Result<()> {
        self.ensure_log()?;
        let is_settled = {
            let state = self.group_commit.lock();
            // A failed commit group has emptied the queue, and nobody knows what of it is on the disk.
            if let Some(error) = state.failed() {
                return Err(error.clone());
            }
            // A commit group under way has emptied the queue, too.
            (!state.is_leading() || mutant!("racy-ceiling"))
                && state.queue.unsynced.is_empty()
                && state.queue.segments.is_empty()
        };
        if is_settled { Ok(()) } else { self.group_commit.flush(Durability::Sync) }
    }

    /// Where the active log ends.
    pub(crate) fn log_end(&self) -> Position {
        self.group_commit.lock().queue.position()
    }

    /// Commits are refused from now on; those that are queued go on.
    pub(crate) fn refuse_commits(&self) {
        self.group_commit.lock().queue.closing = Closing::Commits;
    }

    /// Appends the record that says the log was closed in order, and syncs it; what a clean close vouches for. `None` if
    /// nothing was written since the last one, which holds.
    pub(crate) fn close_log(&self, manifest: &mut Manifest) -> Result<Option<CleanClose>> {
        let is_untouched = manifest.is_untouched() && self.group_commit.lock().queue.is_ended;
        if is_untouched && !self.wants_clock_at_close(manifest.version().clock().now) {
            return Ok(None);
        }
        while !self.begin_log(&mut self.group_commit.lock())? {
            match self.prepare_log_in(manifest) {
                // Nothing was committed, and every edit is synced: what is there stands without another mark.
                Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(None),
                result => result?,
            }
        }
        let manifest = manifest.position();
        let close = {
            let mut state = self.group_commit.lock();
            let last_seq = state.last();
            let queue = &mut state.queue;
            queue.append_empty(RecordKind::Close, last_seq, |out| {
                wal::Close { manifest, last_seq }.encode(out);
            })?;
            queue.durable_record_due = false;
            queue.closing = Closing::Log;
            let end = queue.position();
            CleanClose { log: end.file, end: end.offset, last_seq }
        };
        let is_unsynced = mutant!("unsynced-close");
        self.group_commit.flush(if is_unsynced { Durability::Os } else { Durability::Sync })?;
        Ok(Some(close))
    }
}

/// Doubles what is allocated, in steps of at most 16 MiB, until `want` fits.
fn next_allocation(allocated: u64, want: u64) -> u64 {
    let mut len = allocated.max(4096);
    while len <= want {
        len += len.min(ALLOCATE_STEP_MAX);
    }
    len
}

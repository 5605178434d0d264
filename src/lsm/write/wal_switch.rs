//! Manages the log that commits use: prepares the next log, begins it after a clean close,
//! allocates space, syncs, and closes.
//!
//! Invariant: the manifest names a log before the log can become active.
//!
//! Locks: callers hold the manifest's lock. The commit lock is taken after it.
//!
//! Not here: the records queued for the log (`log_queue`).

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{TICKS_PER_SECOND, ticks_in};
use crate::error::{ErrorKind, Result};
use crate::executor::Lane;
use crate::format::edit::{CleanClose, LivedTime, LogMeta, VersionEdit};
use crate::format::names::{FileName, FileNumber};
use crate::format::record::{LogHeader, LogKind, Position, RecordKind};
use crate::format::wal;
use crate::log::LogFile;
use crate::manifest::Manifest;
use crate::model::Seq;
use crate::mutants::mutant;
use crate::options::Durability;
use crate::sync::MutexGuard;

use super::group_commit::State;
use super::log_queue::{Closing, LogQueue, NextLog, next_allocation};
use super::retry::Unblock;
use super::writer::Writer;
use crate::lsm::Env;

/// How far the Seq reservation for weak commits (weaker than `Sync`) is ahead of the clock.
const SEQ_RESERVATION_TICKS: u64 = 5 * TICKS_PER_SECOND;
/// How long weak commits and commits with dropped tickets wait for the background sync, unless
/// `max_commit_delay` is longer.
pub(in crate::lsm) const WEAK_SYNC_EVERY: Duration = Duration::from_secs(1);
/// Weak commits wait for a sync while this many times `weak_sync_bytes` bytes of them are not
/// durable. The sync began at `weak_sync_bytes`, so a disk that keeps up delays no commit.
const UNSYNCED_MAX: u64 = 4;
/// The allocation of a log, in bytes, if the disk has no space for more.
const LOG_BYTES_LEAST: u64 = 16 << 10;

impl Writer {
    /// Creates the next log, unless one is prepared: the file, its directory entry, and its name in
    /// `manifest`. The edit that adds the log also records `clock`.
    pub(in crate::lsm) fn prepare_log(
        &self,
        manifest: &mut Manifest,
        clock: Option<LivedTime>,
    ) -> Result<()> {
        if self.group_commit.lock().queue.next.is_some() {
            return Ok(());
        }
        self.confirm(manifest)?;
        let (unused, durable) = {
            let queue = &mut self.group_commit.lock().queue;
            queue.account_user_bytes(&self.reader.env.meter);
            // The edit states that the records accepted at opening are durable, so other readers
            // need not wait for the first record of the log.
            let durable = queue.is_ended.then(|| queue.durable_unclaimed()).flatten();
            (queue.unused.clone(), durable)
        };
        // Allocate the same for every log, not more after a long log. The log may stay unused for
        // long, and once it is used, more space is allocated before its commits need it.
        let bytes = self.reader.env.options.log_allocate_bytes;
        let next = self.reader.env.create_log(manifest, bytes, &unused, durable, clock);
        let next = next.map_err(|error| self.poison_on_failure(manifest, error))?;
        let queue = &mut self.group_commit.lock().queue;
        debug_assert!(queue.next.is_none(), "one log is prepared at a time");
        (queue.next, queue.unused) = (Some(next), Vec::new());
        Ok(())
    }

    /// Makes the records durable that opening accepted.
    pub(in crate::lsm) fn confirm(&self, manifest: &mut Manifest) -> Result<()> {
        if self.is_unconfirmed() {
            manifest.confirm().map_err(|error| self.poison_on_failure(manifest, error))?;
            self.group_commit.lock().queue.confirmed();
        }
        Ok(())
    }

    /// True if records that opening accepted may exist only in the page cache.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.group_commit.lock().queue.is_unconfirmed()
    }

    /// Returns the last Seq in use, by a commit that may not be visible yet or by imported rows.
    #[cfg(feature = "sim")]
    pub(crate) fn last_seq(&self) -> Seq {
        self.group_commit.lock().queue.last
    }

    /// Returns the number of logs that opening found without records to keep. The first log of this
    /// session removes them.
    #[cfg(feature = "sim")]
    pub(crate) fn unused_logs(&self) -> usize {
        self.group_commit.lock().queue.unused.len()
    }

    /// If an earlier session wrote the active log, makes the prepared log the active one. Returns
    /// false if no log is prepared. The memtable is kept and belongs to the new log too.
    pub(super) fn begin_log(&self, state: &mut MutexGuard<'_, State<LogQueue>>) -> Result<bool> {
        if !state.queue.is_ended {
            return Ok(true);
        }
        let Some(next) = state.queue.next.take() else { return Ok(false) };
        let number = next.log.header().number;
        state.queue.switch_to(next)?;
        self.reader.change_view(|view| view.with_log(number));
        // No lane has started since the opening.
        self.executor.signal(Lane::Log);
        self.executor.signal(Lane::Compact);
        if self.reader.has_drops() || !self.reader.view.load().frozen().is_empty() {
            self.executor.signal(Lane::Flush);
        }
        Ok(true)
    }

    /// Ensures that records can be appended to the active log.
    pub(in crate::lsm) fn ensure_log(&self, help: &impl Unblock) -> Result<()> {
        while !self.begin_log(&mut self.group_commit.lock())? {
            help.prepare_log()?;
        }
        Ok(())
    }

    /// Allocates space in the active log before commits need it. Returns true if it allocated any.
    pub(crate) fn allocate_ahead(&self) -> Result<bool> {
        let (log, want) = {
            let state = self.group_commit.lock();
            let queue = &state.queue;
            if queue.is_ended || !queue.is_short() {
                return Ok(false);
            }
            (Arc::clone(&queue.log), next_allocation(queue.allocated, queue.allocated))
        };
        match log.allocate_ahead(want) {
            // This is no failure: without space ahead, each commit allocates the space that it
            // needs.
            Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(false),
            result => result.map_err(|error| self.poison_on_log_failure(error))?,
        }
        let mut state = self.group_commit.lock();
        if Arc::ptr_eq(&state.queue.log, &log) {
            state.queue.allocated = state.queue.allocated.max(want);
        }
        Ok(true)
    }

    /// Makes a higher Seq reservation durable, so that weak commits can use Seqs below it.
    pub(in crate::lsm) fn reserve_seqs(&self, help: &impl Unblock) -> Result<()> {
        self.ensure_log(help)?;
        {
            let mut state = self.group_commit.lock();
            state.check()?;
            state.queue.check_open(Closing::Commits)?;
            let appended = self.append_seq_reservation(&mut state);
            if appended.is_ok() {
                state.queue.undurable = None;
            }
            drop(state);
            appended.map_err(|error| self.poison_on_log_failure(error))?;
        }
        self.group_commit.sync()
    }

    /// Queues a record with a higher Seq reservation, unless another committer has queued one that
    /// is not durable yet.
    fn append_seq_reservation(&self, state: &mut State<LogQueue>) -> Result<()> {
        let is_pending = state.queue.seq_reservation < state.queue.seq_reservation_queued;
        if is_pending && !self.seqs_reserved_for(state).is_zero() {
            return Ok(());
        }
        let last = state.last;
        let delay = ticks_in(self.reader.env.options.max_commit_delay);
        let ahead = SEQ_RESERVATION_TICKS.saturating_add(delay);
        let seq_reservation = Seq(self.reader.env.clock.now().max(last.0).saturating_add(ahead));
        state.queue.append_seq_reservation(last, seq_reservation.min(Seq::MAX))
    }

    /// Returns the time after which the last Seq reservation queued must be extended, so that weak
    /// commits do not have to wait for a new one.
    fn seqs_reserved_for(&self, state: &State<LogQueue>) -> Duration {
        let next = self.reader.env.clock.now().max(state.last.0);
        let left = state.queue.seq_reservation_queued.0.saturating_sub(next);
        Duration::from_nanos(left.saturating_sub(SEQ_RESERVATION_TICKS / 2).saturating_mul(100))
    }

    /// True if no next log is prepared and the active log accepts commits.
    pub(crate) fn wants_log(&self) -> bool {
        let state = self.group_commit.lock();
        state.queue.next.is_none() && !state.queue.is_ended
    }

    /// Returns the time until the background sync of weak commits and of commits without a waiter
    /// is due, or `None` if there are none.
    pub(crate) fn sync_due(&self) -> Option<Duration> {
        let state = self.group_commit.lock();
        let (bytes, since) = state.queue.undurable?;
        if bytes >= self.reader.env.options.weak_sync_bytes {
            return Some(Duration::ZERO);
        }
        let waited = self.reader.env.clock.monotonic().saturating_sub(since);
        let every = WEAK_SYNC_EVERY.max(self.reader.env.options.max_commit_delay);
        let due = every.saturating_sub(waited);
        // Frequent `Sync` commits sync the weak commits before that time. The Seq reservation must
        // be extended nevertheless.
        Some(if bytes > 0 { due.min(self.seqs_reserved_for(&state)) } else { due })
    }

    /// True if all commits and imports are visible and durable, and other processes can know it.
    pub(in crate::lsm) fn is_durable(&self) -> Result<bool> {
        let state = self.group_commit.lock();
        state.check()?;
        let is_published = self.group_commit.published() >= state.last;
        Ok(!state.leading && is_published && state.queue.is_all_claimed_durable())
    }

    /// Makes all commits of this session durable. Later weak commits do not wait for the sync.
    pub(in crate::lsm) fn sync(&self) -> Result<()> {
        {
            let mut state = self.group_commit.lock();
            state.check()?;
            state.queue.undurable = None;
        }
        self.group_commit.sync()
    }

    /// True if no further weak commit may be queued before a sync.
    pub(super) fn has_unsynced_max(&self, queue: &LogQueue) -> bool {
        let sync_bytes = self.reader.env.options.weak_sync_bytes;
        queue.unsynced_bytes() >= sync_bytes.saturating_mul(UNSYNCED_MAX)
    }

    /// Waits for the sync in progress. If there is none, syncs all commits.
    pub(super) fn sync_before_weak_commits(&self) -> Result<()> {
        if self.group_commit.wait_for_sync() { Ok(()) } else { self.sync() }
    }

    /// Runs `sync`, for which a weak commit waits. Counts this as a stall if earlier weak commits
    /// are not durable, because then the background is behind. Otherwise the Seq reservation has
    /// lapsed, because there were no weak commits for a time.
    pub(super) fn sync_for_weak_commit(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let clock = &self.reader.env.clock;
        let is_behind = self.group_commit.lock().queue.unsynced_bytes() > 0;
        let since = clock.monotonic();
        sync()?;
        if is_behind {
            self.stalled("log", clock.monotonic().saturating_sub(since));
        }
        Ok(())
    }

    /// Makes the Seq reservation in use durable in the active log. This must precede the removal of
    /// an older log that states the reservation.
    pub(in crate::lsm) fn persist_seq_reservation(&self, help: &impl Unblock) -> Result<()> {
        self.ensure_log(help)?;
        let is_settled = {
            let state = self.group_commit.lock();
            // A failed commit group leaves the queue empty, but it is unknown how much was written.
            state.check()?;
            // A commit group in progress also leaves the queue empty.
            (!state.leading || mutant!("racy-ceiling"))
                && state.queue.unsynced.is_empty()
                && state.queue.segments.is_empty()
        };
        if is_settled { Ok(()) } else { self.sync() }
    }

    /// Appends the closing record and syncs the log. Returns the contents of the clean-close edit,
    /// and the prepared log, if any, which that edit removes. Returns `None` if there is no active
    /// log and no space for one. In this case nothing was committed since opening, and every edit
    /// is synced.
    pub(in crate::lsm) fn close_log(
        &self,
        manifest: &mut Manifest,
        clock: Option<LivedTime>,
    ) -> Result<Option<(CleanClose, Option<FileNumber>)>> {
        while !self.begin_log(&mut self.group_commit.lock())? {
            match self.prepare_log(manifest, clock.clone()) {
                Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(None),
                result => result?,
            }
        }
        let manifest = manifest.position();
        let closed = {
            let mut state = self.group_commit.lock();
            let last_seq = state.last;
            let queue = &mut state.queue;
            queue.append_empty(RecordKind::Close, last_seq, |out| {
                wal::Close { manifest, last_seq }.encode(out);
            })?;
            queue.durable_record_due = false;
            queue.closing = Closing::Log;
            let end = queue.position();
            let next = queue.next.take().map(|next| next.log.header().number);
            (CleanClose { log: end.file, end: end.offset, last_seq }, next)
        };
        let is_unsynced = mutant!("unsynced-close");
        self.group_commit.flush(if is_unsynced { Durability::Os } else { Durability::Sync })?;
        Ok(Some(closed))
    }
}

impl Env {
    /// Creates a log: the file, its directory entry, and its name and length in the manifest. The
    /// same edit removes the `unused` logs from the manifest, and their files are deleted.
    /// `durable` is the position up to which older logs are durable, if none of their records
    /// states it.
    pub(in crate::lsm) fn create_log(
        &self,
        manifest: &mut Manifest,
        allocate: u64,
        unused: &[FileNumber],
        durable: Option<Position>,
        clock: Option<LivedTime>,
    ) -> Result<NextLog> {
        let number = manifest.next_number()?;
        let header = LogHeader { kind: LogKind::Wal, number, id: manifest.next_id() };
        let path = self.dir.join(FileName::Wal(number).to_string());
        let create = |allocate| {
            let created = LogFile::create(&*self.fs, &path, header, allocate);
            let log = created.and_then(|log| self.sync_dir().map(|()| log));
            log.inspect_err(|_| self.discard(FileName::Wal(number)))
        };
        // On a nearly full disk, opening must still succeed, so that rows can be read and deleted.
        let (log, allocate) = match create(allocate) {
            Err(error) if error.kind() == ErrorKind::StorageFull && allocate > LOG_BYTES_LEAST => {
                (create(LOG_BYTES_LEAST)?, LOG_BYTES_LEAST)
            }
            created => (created?, allocate),
        };
        let edit = VersionEdit {
            add_logs: vec![LogMeta { number, id: header.id }],
            remove_logs: unused.to_vec(),
            clock,
            durable_lens: if mutant!("untold-length") { vec![] } else { vec![(number, allocate)] },
            ..VersionEdit::default()
        };
        manifest.append_behind(&edit, durable, 0).inspect_err(|error| {
            // Only with this error is it certain that the manifest does not name the log. Removing
            // the log also frees space.
            if error.kind() == ErrorKind::StorageFull {
                self.discard(FileName::Wal(number));
            }
        })?;
        self.discard_superseded(manifest);
        if manifest.doubt().is_none() {
            unused.iter().for_each(|log| self.discard(FileName::Wal(*log)));
        }
        Ok(NextLog { log: Arc::new(log), allocated: allocate, manifest: manifest.position() })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

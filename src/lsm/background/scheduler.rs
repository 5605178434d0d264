//! Runs background work as steps, and sets the pace for writers.
//!
//! | lane | steps |
//! | --- | --- |
//! | log | lead polled commits; prepare the next log; allocate; sync weak commits; expire rows |
//! | flush | flush the oldest frozen memtable; reclaim drops; remove unheld files; sort |
//! | compact | freeze the memtable for readers; split a range or merge two, or else run one job |
//!
//! Invariants
//! * A failed step reports its error to waiters and is tried again: a full disk is not fatal.
//! * Writers are delayed gradually by the ranges they touch, and block only when memory is
//!   exhausted.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::executor::{Crew, Lane, Step, Worker};
use crate::format::edit::VersionEdit;
use crate::format::names::FileName;
use crate::manifest::Manifest;
use crate::options::Background;

use super::maintenance::Maintenance;
use crate::lsm::read::load_sampling::rows_of;
use crate::lsm::write::log_queue::{Closing, closed};
use crate::lsm::write::retry::Unblock;

/// The delay before a failed step is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The most entries that one sorting step processes.
const SORT_ENTRIES: usize = 64 << 10;
/// The interval at which compaction checks for jobs that are due by time.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

impl Worker for Maintenance {
    fn step(&self, lane: Lane) -> Step {
        match lane {
            Lane::Log => self.log_step(),
            Lane::Flush => self.flush_step(),
            Lane::Compact => self.compact_step(),
        }
    }
}

impl Maintenance {
    /// Starts background work. After a clean close only compaction may have something to do, if
    /// only because time has passed. The other lanes wait for a write, a drop or a time to live.
    pub(in crate::lsm) fn begin(self: &Arc<Self>, is_closed: bool) -> Result<()> {
        let options = &self.env().options;
        let crew = match options.background {
            Background::Threads => Some(Crew::Lanes { compactors: options.compaction_threads }),
            Background::OneThread => Some(Crew::One),
            Background::Manual => None,
        };
        if let Some(crew) = crew {
            self.executor.serve(self, crew);
            let started = self.executor.start(Lane::Compact);
            started.map_err(|error| Error::io("start background threads", error))?;
        }
        if !is_closed {
            self.executor.signal(Lane::Log);
        }
        if !is_closed || self.reader().has_drops() || !self.reader().view.load().frozen().is_empty()
        {
            self.executor.signal(Lane::Flush);
        }
        Ok(())
    }

    /// Runs one step of any lane. Returns false if there is nothing to do. For
    /// `Background::Manual`.
    pub(crate) fn step_any(&self) -> bool {
        !self.is_reader && Lane::ALL.iter().any(|lane| self.step(*lane) == Step::Worked)
    }

    /// Runs at least one step, until there is nothing to do (returns false) or `budget` is used up
    /// (returns true).
    pub(crate) fn step_for(&self, budget: Duration) -> bool {
        let since = self.env().clock.monotonic();
        while self.step_any() {
            if self.env().clock.monotonic().saturating_sub(since) >= budget {
                return true;
            }
        }
        false
    }

    fn log_step(&self) -> Step {
        if self.writer.group_commit.lock().failed.is_some() {
            return Step::Idle(None);
        }
        let due = self.writer.sync_due();
        // A failure is reported to the waiters. With `max_commit_delay`, polled commits wait for
        // others to join until the sync is due.
        let waits = !self.env().options.max_commit_delay.is_zero() && due != Some(Duration::ZERO);
        if !waits && self.writer.group_commit.lead_polled() {
            return Step::Worked;
        }
        let worked = match due {
            Some(Duration::ZERO) => self.sync_and_reserve().map(|()| true),
            _ => self.prepare_ahead(),
        };
        match worked {
            Ok(true) => Step::Worked,
            // Expiry runs in this lane, because its commit may wait for a flush.
            Ok(false) => match self.expire() {
                Ok(ttl) => Step::Idle([due, ttl].into_iter().flatten().min()),
                Err(_) => Step::Idle(Some(RETRY_AFTER)),
            },
            Err(_) => Step::Idle(Some(RETRY_AFTER)),
        }
    }

    /// Syncs all queued commits. Includes a new Seq reservation for later weak commits, if there is
    /// space for it.
    fn sync_and_reserve(&self) -> Result<()> {
        match self.writer.reserve_seqs(self) {
            Err(error) if error.kind() == ErrorKind::StorageFull => self.writer.sync(),
            result => result,
        }
    }

    fn prepare_ahead(&self) -> Result<bool> {
        if self.writer.wants_log() {
            self.prepare_log()?;
            return Ok(true);
        }
        let _work = self.state.work()?;
        self.writer.allocate_ahead()
    }

    fn flush_step(&self) -> Step {
        let flushed = self.flush_one().and_then(|done| Ok(done || self.flush_for_room()?));
        if matches!(flushed, Ok(true)) {
            self.executor.signal(Lane::Compact);
            return Step::Worked;
        }
        // Reclaim after a failed flush, too: the flush may lack the space of a dropped table.
        match (self.reclaim(), flushed) {
            (Ok(true), _) => return Step::Worked,
            (Ok(false), Ok(_)) => {}
            _ => return Step::Idle(Some(RETRY_AFTER)),
        }
        let removed = self.remove_unheld();
        let view = self.reader().view.load();
        let sorted = view.memtables.iter().any(|slot| slot.memtable.sort_step(SORT_ENTRIES));
        if removed || sorted { Step::Worked } else { Step::Idle(None) }
    }

    fn compact_step(&self) -> Step {
        if self.freeze_for_readers() {
            return Step::Worked;
        }
        let compacted = match self.divide_one() {
            Ok(true) => Ok(true),
            Ok(false) => self.compact_one(),
            // A merge may still be possible, and free the missing space.
            Err(error) => self.compact_one().and_then(|done| done.then_some(true).ok_or(error)),
        };
        if let Err(error) = &compacted {
            self.emit_trouble("compaction", error);
        }
        self.state.compaction_ended(compacted.as_ref().err().cloned());
        match compacted {
            Ok(true) => {
                self.executor.signal(Lane::Flush);
                Step::Worked
            }
            Ok(false) => Step::Idle(Some(LOOK_AGAIN)),
            Err(_) => Step::Idle(Some(RETRY_AFTER)),
        }
    }

    /// Freezes the active memtable if readers have lost enough by the number of files, so that its
    /// data is merged with them.
    fn freeze_for_readers(&self) -> bool {
        let view = self.reader().view.load_full();
        let in_memory = !view.active().memtable.is_empty();
        let (env, price) = (self.env(), self.env().merge_price());
        let rows = |id| {
            let range = view.version.ranges.get(id).filter(|range| !range.young.is_empty())?;
            Some(rows_of(range, price))
        };
        if !env.loads.begin_turns(rows, in_memory, env.seconds()) {
            return false;
        }
        drop(view);
        // If this fails, the files are merged without the memtable.
        let froze = self.writer.freeze_if_room(self).is_ok_and(|done| done);
        let newest = self.reader().view.load().frozen().first().map(|slot| slot.memtable.id);
        self.env().loads.record_frozen(newest.filter(|_| froze));
        if froze {
            self.executor.signal(Lane::Flush);
        }
        froze
    }

    /// Unlinks files that no version contains and no reader holds. Returns true if there were any.
    pub(in crate::lsm) fn remove_unheld(&self) -> bool {
        let Ok(_work) = self.state.work() else { return false };
        let numbers = self.state.take_unheld();
        for number in &numbers {
            self.env().sst.cache.remove_file(*number);
            self.env().discard(FileName::Sst(*number));
        }
        if !numbers.is_empty() && self.writer.space_limit.is_some() {
            // A merge may have waited for the space.
            self.executor.signal(Lane::Compact);
        }
        !numbers.is_empty()
    }

    /// Waits until there is room for another memtable.
    ///
    /// # Errors
    /// The error of the last flush if it failed: the write is refused instead of blocked.
    pub(super) fn wait_for_room(&self) -> Result<()> {
        loop {
            // Read this before the check, so that a flush that ends after the check is not missed.
            let seen = self.writer.backlog.attempts();
            if self.reader().view.load().memtables.len() <= self.env().options.frozen_max {
                return Ok(());
            }
            self.writer.group_commit.lock().check()?;
            // With a single background thread, flush here: that thread may be busy with a long
            // merge.
            if self.executor.signal(Lane::Flush) && !self.executor.is_alone() {
                let since = self.env().clock.monotonic();
                let waited = self.writer.backlog.wait_for_flush(seen);
                let time = self.env().clock.monotonic().saturating_sub(since);
                self.writer.stalled("memtables", time);
                waited?;
            } else {
                self.flush_one()?;
            }
        }
    }

    /// Flushes all committed entries and waits for the flushes.
    ///
    /// # Errors
    /// `StorageFull`, `Io`, `Poisoned`. Entries not flushed remain in memory and in the log.
    pub(crate) fn flush_all(&self) -> Result<()> {
        self.writable()?;
        self.freeze()?;
        while self.flush_one()? {}
        self.executor.signal(Lane::Compact);
        Ok(())
    }

    /// Makes everything durable and writes the marks of a clean close. Requires: background threads
    /// have ended.
    ///
    /// # Errors
    /// Commits that could not be made durable are lost only if the machine stops: the next opening
    /// recovers them from the log.
    pub(in crate::lsm) fn close(&self) -> Result<()> {
        // New commits are refused from here on; queued commits continue.
        self.writer.group_commit.lock().queue.closing = Closing::Commits;
        let usable = self.writer.group_commit.lock().check();
        let synced = usable.and_then(|()| self.sync_and_flush_for_close());
        self.state.end_work();
        let mut manifest = self.install.lock();
        let result = synced.and_then(|()| self.mark_closed(&mut manifest));
        if result.is_ok() {
            manifest.trim();
            self.writer.group_commit.lock().queue.trim();
        }
        // Without LOCK another process may own the directory, so nothing may change it from here
        // on.
        manifest.end(closed());
        drop(manifest);
        self.writer.group_commit.fail(closed());
        self.writer.backlog.flush_attempted(Err(closed()));
        result
    }

    fn sync_and_flush_for_close(&self) -> Result<()> {
        self.writer.sync()?;
        let view = self.reader().view.load_full();
        let bytes: usize = view.memtables.iter().map(|slot| slot.memtable.payload_bytes()).sum();
        let logs: usize = view.memtables.iter().map(|slot| slot.logs.len()).sum();
        if bytes > FLUSH_ON_CLOSE_BYTES || logs > FLUSH_ON_CLOSE_LOGS {
            match self.flush_all() {
                // The log holds all entries, so a full disk does not prevent the close.
                Err(error) if error.kind() == ErrorKind::StorageFull => {}
                result => result?,
            }
        }
        drop(view);
        self.remove_unheld();
        Ok(())
    }

    fn mark_closed(&self, manifest: &mut Manifest) -> Result<()> {
        let is_untouched =
            manifest.is_untouched() && self.writer.group_commit.lock().queue.is_ended;
        if is_untouched && !self.wants_clock_at_close(manifest.version().clock.now) {
            // Nothing was written since the last close, so its marks are still valid.
            return Ok(());
        }
        let clock = self.ttl.news(&manifest.version().clock);
        let Some(close) = self.writer.close_log(manifest, clock)? else { return Ok(()) };
        let (clean_close, clock) = (Some(close), self.expiry_clock());
        let edit = VersionEdit { clean_close, clock, ..VersionEdit::default() };
        self.append_edit(manifest, &edit).map(drop)
    }
}

/// At a close, data in memory beyond this is flushed. Replaying it at the next opening would take
/// longer than everything else there. It corresponds to about 2,000 short rows.
const FLUSH_ON_CLOSE_BYTES: usize = 128 << 10;
/// Data is also flushed if more logs than this exist, left by short sessions.
const FLUSH_ON_CLOSE_LOGS: usize = 4;

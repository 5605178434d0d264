//! Runs background work in steps, each in one of three lanes, and blocks writers when memory is
//! exhausted.
//!
//! | lane | steps |
//! | --- | --- |
//! | log | lead commit groups of async callers; prepare the next log; preallocate log space; sync weak commits; expire rows |
//! | flush | flush the oldest frozen memtable; reclaim drops; remove unheld files; sort memtables |
//! | compact | freeze the memtable for readers; split or merge ranges, or else run one job |
//!
//! Invariant: a failed step reports its error to waiters and is retried. A full disk is not fatal.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::executor::{Crew, Lane, Step, Worker};
use crate::format::edit::VersionEdit;
use crate::format::names::FileName;
use crate::manifest::Manifest;
use crate::model::Seq;
use crate::options::Background;

use super::compaction::plan::Activity;
use super::idle_time::Written;
use super::maintenance::Maintenance;
use crate::lsm::Env;
use crate::lsm::read::load_sampling::{memory_rows_of, rows_of};
use crate::lsm::read::snapshot::Horizon;
use crate::lsm::write::log_queue::{Closing, closed};
use crate::lsm::write::retry::Unblock;

/// The delay before a failed step is retried.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The maximum number of entries processed by one sorting step.
const SORT_ENTRIES: usize = 64 << 10;
/// How often compaction checks for jobs that become due with time.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// The database is idle if hardly anything was written for this time (see `idle_time`). Merges that
/// wait while there are writes then run.
const IDLE_AFTER: Duration = Duration::from_secs(10);

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
    /// Starts background work. Jobs may have become due with time, and drops may wait to be
    /// reclaimed. If the new log waits for the first write (`is_deferred`), this work waits too,
    /// for reads that cost as much as a merge, or for the first read after [`IDLE_AFTER`], so that
    /// a short session starts no thread. The log lane also starts with a time to live and with
    /// commits that may not be durable, and the flush lane with frozen memtables, unless the log
    /// lane will begin the new log.
    pub(in crate::lsm) fn begin(self: &Arc<Self>, is_deferred: bool) -> Result<()> {
        let options = &self.env().options;
        let crew = match options.background {
            Background::Threads => Some(Crew::Lanes { compactors: options.compaction_threads }),
            Background::OneThread => Some(Crew::One),
            Background::Manual => None,
        };
        if let Some(crew) = crew {
            self.executor.serve(self, crew);
        }
        let is_sync_due = self.writer.sync_due().is_some();
        if is_deferred {
            self.env().loads.look_at(self.env().seconds() + IDLE_AFTER.as_secs_f64());
            // Time without writes counts from now on, not from the first step.
            self.idle_in();
        } else {
            let started = self.executor.start(Lane::Compact);
            started.map_err(|error| Error::io("start background threads", error))?;
        }
        if !is_deferred || is_sync_due {
            self.executor.signal(Lane::Log);
        }
        let has_frozen = !self.reader().view.load().frozen().is_empty();
        if !is_deferred || has_frozen && !is_sync_due {
            self.executor.signal(Lane::Flush);
        }
        Ok(())
    }

    /// Runs one step of any lane, for `Background::Manual`. Returns false if no lane has work.
    pub(crate) fn step_any(&self) -> bool {
        !self.is_reader && Lane::ALL.iter().any(|lane| self.step(*lane) == Step::Worked)
    }

    /// Runs steps until no lane has work (returns false) or `budget` is used up (returns true).
    /// Runs at least one step.
    pub(crate) fn step_for(&self, budget: Duration) -> bool {
        let since = self.env().clock.monotonic();
        while self.step_any() {
            if self.env().clock.monotonic().saturating_sub(since) >= budget {
                return true;
            }
        }
        false
    }

    /// Runs all background work that is due, or waits until the threads have done it.
    ///
    /// # Errors
    /// The error with which a flush or a merge last failed.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        self.writable()?;
        if self.executor.is_threaded() {
            for lane in Lane::ALL {
                self.executor.signal(lane);
            }
            self.executor.wait_idle();
        } else {
            while self.step_any() {}
        }
        self.writer.group_commit.lock().check()?;
        self.trouble().map_or(Ok(()), Err)
    }

    fn log_step(&self) -> Step {
        if self.writer.group_commit.lock().failed.is_some() {
            return Step::Idle(None);
        }
        let mut due = self.writer.sync_due();
        // If the sync fails, the waiters get the error. With `max_commit_delay`, commits that are
        // awaited as futures wait until the sync is due, so that more commits can share it.
        let waits = !self.env().options.max_commit_delay.is_zero() && due != Some(Duration::ZERO);
        if !waits && self.writer.group_commit.lead_polled() {
            due = self.writer.sync_due();
            // More polled commits may arrive continuously, so they must not defer a due sync.
            if due != Some(Duration::ZERO) {
                return Step::Worked;
            }
        }
        let worked = match due {
            Some(Duration::ZERO) => {
                // Weak commits continue during the sync, and may then need the next log or more
                // space in this one. Sync even if there is no space for either.
                while self.prepare_ahead().is_ok_and(|worked| worked) {}
                self.sync_and_reserve().map(|()| true)
            }
            _ => self.prepare_ahead(),
        };
        match worked {
            Ok(true) => Step::Worked,
            // Expiry runs in this lane, not in the flush lane, because its commit may wait for a
            // flush.
            Ok(false) => match self.expire() {
                Ok(ttl) => Step::Idle([due, ttl].into_iter().flatten().min()),
                Err(_) => Step::Idle(Some(RETRY_AFTER)),
            },
            Err(_) => Step::Idle(Some(RETRY_AFTER)),
        }
    }

    /// Syncs all queued commits. Adds a new Seq reservation for later weak commits, if space
    /// allows.
    fn sync_and_reserve(&self) -> Result<()> {
        match self.writer.reserve_seqs(self) {
            Err(error) if error.kind() == ErrorKind::StorageFull => self.sync(),
            result => result,
        }
    }

    fn prepare_ahead(&self) -> Result<bool> {
        if self.writer.wants_log() {
            self.prepare_log()?;
            return Ok(true);
        }
        self.allocate_log()
    }

    fn flush_step(&self) -> Step {
        let horizon = self.reader().horizon();
        let flushed = self.flush_one().and_then(|done| Ok(done || self.flush_for_room()?));
        if matches!(flushed, Ok(true)) {
            self.executor.signal(Lane::Compact);
            return Step::Worked;
        }
        // Reclaim even after a failed flush, which may need the space of a dropped table.
        match (self.reclaim(), flushed) {
            (Ok(true), _) => return Step::Worked,
            (Ok(false), Ok(_)) => {}
            _ => return Step::Idle(Some(RETRY_AFTER)),
        }
        let removed = self.remove_unheld();
        let view = self.reader().view.load();
        let sorted = view.memtables.iter().any(|slot| slot.memtable.sort_step(SORT_ENTRIES));
        if removed || sorted || self.await_snapshots(&horizon) {
            Step::Worked
        } else {
            Step::Idle(None)
        }
    }

    fn compact_step(&self) -> Step {
        if self.freeze_for_readers() {
            return Step::Worked;
        }
        let horizon = self.reader().horizon();
        // Read the time before picking jobs. If it were read after the last pick, the database
        // could become idle in between, and the jobs for idle time would be missed.
        let idle_in = self.idle_in();
        let compacted = match self.divide_one() {
            Ok(true) => Ok(true),
            Ok(false) => self.compact_one(),
            // A merge may still be possible, and may even free the space that the split lacked.
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
            Ok(false) if self.await_snapshots(&horizon) => Step::Worked,
            Ok(false) => Step::Idle(Some(idle_in.unwrap_or(LOOK_AGAIN))),
            Err(_) => Step::Idle(Some(RETRY_AFTER)),
        }
    }

    /// Requests a wakeup by the release of snapshots that prevent work. The caller has found no
    /// work after it read `horizon`. Returns true if these snapshots were released since.
    fn await_snapshots(&self, horizon: &Horizon) -> bool {
        if !horizon.has_snapshots() {
            return false;
        }
        let (reader, view) = (self.reader(), self.reader().view.load());
        let mut lowest = Seq::MAX;
        let mut waits_for = |seq: Seq| {
            if seq > horizon.oldest() {
                lowest = lowest.min(seq);
            }
        };
        for file in view.version.files() {
            waits_for(file.meta.visible_from);
            if file.meta.tombstones > 0 {
                waits_for(file.meta.seq_max);
            }
        }
        for deletion in view.range_tombstones.iter() {
            waits_for(deletion.from);
        }
        let dropped = reader.dropped.0.lock();
        for seq in dropped.values() {
            waits_for(*seq);
        }
        lowest < Seq::MAX && reader.snapshots.await_release_below(lowest)
    }

    /// Returns the time until the database is idle (see [`IDLE_AFTER`]) if nothing more is written;
    /// `None` if it is idle.
    fn idle_in(&self) -> Option<Duration> {
        let Env { clock, options, .. } = &**self.env();
        let written = Written::of(&self.reader().view.load(), options.memtable_bytes);
        let times = (clock.now(), clock.monotonic());
        let time = self.state.idle_time.lock().since(written, self.reader().published(), times);
        IDLE_AFTER.checked_sub(time).filter(|left| !left.is_zero())
    }

    /// Returns how much a merge may write to free space. If writes are refused because space is
    /// short, it may write as much as in an idle database.
    pub(super) fn activity(&self) -> Activity {
        if self.is_short_of_room() {
            return Activity::Idle;
        }
        match (self.idle_in(), self.env().options.merge_for_readers) {
            (Some(_), _) => Activity::Writing,
            (None, Some(_)) => Activity::Idle,
            (None, None) => Activity::IdleSparing,
        }
    }

    /// Freezes the active memtable if searching several files for one key has cost readers as much
    /// as a merge costs. The merge then includes the memtable's data. Also freezes it if its rows
    /// have cost scans as much as a flush costs.
    fn freeze_for_readers(&self) -> bool {
        let view = self.reader().view.load_full();
        let (env, price) = (self.env(), self.env().merge_price());
        let active = Some(&view.active().memtable).filter(|memtable| !memtable.is_empty());
        let memory = active.map(|memtable| memory_rows_of(memtable, price));
        let rows = |id| {
            let range = view.version.ranges.get(id).filter(|range| !range.young.is_empty())?;
            Some(rows_of(range, price))
        };
        if !env.loads.begin_turns(rows, memory, env.seconds()) {
            return false;
        }
        drop(view);
        // If freezing fails, the merge runs without the memtable's data.
        let froze = self.writer.freeze_if_room(self).is_ok_and(|done| done);
        let newest = self.reader().view.load().frozen().first().map(|slot| slot.memtable.id);
        self.env().loads.record_frozen(newest.filter(|_| froze));
        if froze {
            self.executor.signal(Lane::Flush);
        }
        froze
    }

    /// Deletes files that no version contains and no reader holds. Returns true if any was deleted.
    pub(in crate::lsm) fn remove_unheld(&self) -> bool {
        let Ok(_work) = self.state.work() else { return false };
        let numbers = self.state.take_unheld();
        for number in &numbers {
            self.env().sst.cache.remove_file(*number);
            self.env().discard(FileName::Sst(*number));
        }
        if !numbers.is_empty() && self.writer.space_limit.is_some() {
            // A merge may be waiting for the space that was freed.
            self.executor.signal(Lane::Compact);
        }
        !numbers.is_empty()
    }

    /// Blocks until there are few enough frozen memtables that another one may be frozen.
    ///
    /// # Errors
    /// The error of the last flush, if it failed: the write is then refused instead of blocked.
    pub(super) fn wait_for_room(&self) -> Result<()> {
        loop {
            // Read the count of attempts before the check, so that a flush that ends in between is
            // not missed.
            let seen = self.writer.backlog.attempts();
            if self.reader().view.load().memtables.len() <= self.env().options.frozen_max {
                return Ok(());
            }
            self.writer.group_commit.lock().check()?;
            // If there is only one background thread, flush here, because that thread may be busy
            // with a long merge.
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

    /// Makes everything durable and records a clean close. The background threads must have ended.
    ///
    /// # Errors
    /// If commits could not be made durable, the next opening recovers them from the log, unless
    /// the machine stops before.
    pub(in crate::lsm) fn close(&self) -> Result<()> {
        // Refuse new commits from here on. Queued commits continue.
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
        // After the lock on the directory is released, another process may open the database. So
        // refuse all later changes of the manifest and the log.
        manifest.end(closed());
        drop(manifest);
        self.writer.group_commit.fail(closed());
        self.writer.backlog.flush_attempted(Err(closed()));
        result
    }

    fn sync_and_flush_for_close(&self) -> Result<()> {
        self.sync()?;
        let view = self.reader().view.load_full();
        let bytes: usize = view.memtables.iter().map(|slot| slot.memtable.payload_bytes()).sum();
        let logs: usize = view.memtables.iter().map(|slot| slot.logs.len()).sum();
        if bytes > FLUSH_ON_CLOSE_BYTES || logs > FLUSH_ON_CLOSE_LOGS {
            match self.flush_all() {
                // The log holds all entries, so a full disk does not prevent closing.
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
            // Nothing was written since the last clean close, so its log record and its edit are
            // still valid.
            return Ok(());
        }
        let clock = self.ttl.news(&manifest.version().clock);
        let Some((close, next)) = self.writer.close_log(manifest, clock)? else { return Ok(()) };
        let (clean_close, clock) = (Some(close), self.expiry_clock());
        let remove_logs = next.into_iter().collect();
        let edit = VersionEdit { clean_close, clock, remove_logs, ..VersionEdit::default() };
        self.append_edit(manifest, &edit)?;
        next.into_iter().for_each(|log| self.env().discard(FileName::Wal(log)));
        Ok(())
    }
}

/// A close flushes if the memtables hold more bytes than this, about 2,000 short rows. Replaying
/// more at the next opening would take longer than all of its other work.
const FLUSH_ON_CLOSE_BYTES: usize = 128 << 10;
/// A close also flushes if there are more logs than this. Many short sessions leave many logs.
const FLUSH_ON_CLOSE_LOGS: usize = 4;

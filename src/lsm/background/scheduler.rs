//! Background work as steps, and the pace it sets for writers.
//!
//! | lane    | step                                                                                  |
//! | log     | lead a commit group that somebody polls for; prepare the next log; allocate; sync weak commits; expire |
//! | flush   | flush the oldest frozen memtable; reclaim dropped tables; remove files nobody holds; sort |
//! | compact | freeze what is in memory for readers; divide a range or merge two, else one job         |
//!
//! Invariants
//! * a step that fails says so to whoever waits for it, and is tried again: a full disk is no end;
//! * writers are slowed smoothly by the ranges they touch, and stand still only when memory is used up.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{ErrorKind, Result};
use crate::executor::{Lane, Step, Worker};
use crate::format::edit::VersionEdit;
use crate::format::names::FileName;
use crate::manifest::{FileEntry, Manifest};
use crate::options::Background;
use crate::ranges::Range;

use super::events::Stall;
use crate::lsm::read::load_sampling::Readers;
use crate::lsm::read::view::View;
use crate::lsm::write::backpressure::{
    Backlog, SOURCES_FREE, SOURCES_UNREAD, flush_bytes_max, memory_delay, range_delay,
};
use crate::lsm::write::batch::{Batch, Op};
use crate::lsm::write::commit::closed;
use crate::lsm::{Engine, Env};

/// How long background work waits after a failure before it tries again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Entries that one sorting step may take on.
const SORT_ENTRIES: usize = 64 << 10;
/// A range that would delay a write by less than this is in order.
const DELAY_MIN: Duration = Duration::from_micros(30);
/// Compaction looks again after this, for what is due by time.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

impl Worker for Engine {
    fn step(&self, lane: Lane) -> Step {
        match lane {
            Lane::Log => self.log_step(),
            Lane::Flush => self.flush_step(),
            Lane::Compact => self.compact_step(),
        }
    }
}

impl Engine {
    /// Runs one step of some lane; false if there is nothing to do. For `Background::Manual`.
    pub(crate) fn step_any(&self) -> bool {
        !self.is_reader && Lane::ALL.iter().any(|lane| self.step(*lane) == Step::Worked)
    }

    /// Runs steps until there is nothing to do, which is false, or `budget` is used up; one at least.
    pub(crate) fn step_for(&self, budget: Duration) -> bool {
        let since = self.env.clock.monotonic();
        while self.step_any() {
            if self.env.clock.monotonic().saturating_sub(since) >= budget {
                return true;
            }
        }
        false
    }

    fn log_step(&self) -> Step {
        if self.group_commit.lock().failed().is_some() {
            return Step::Idle(None);
        }
        let due = self.sync_due();
        // A failure answers those who wait. Who polls waits for company, if that is asked for.
        let waits = !self.env.options.max_commit_delay.is_zero() && due != Some(Duration::ZERO);
        if !waits && self.group_commit.lead_polled() {
            return Step::Worked;
        }
        let worked = match due {
            Some(Duration::ZERO) => self.settle().map(|()| true),
            _ => self.prepare_ahead(),
        };
        match worked {
            Ok(true) => Step::Worked,
            // A commit may wait for a flush, so not in that lane.
            Ok(false) => match self.expire() {
                Ok(ttl) => Step::Idle([due, ttl].into_iter().flatten().min()),
                Err(_) => Step::Idle(Some(RETRY_AFTER)),
            },
            Err(_) => Step::Idle(Some(RETRY_AFTER)),
        }
    }

    /// Syncs what is queued, with a new seq reservation for the weak commits to come if there is room for it.
    fn settle(&self) -> Result<()> {
        match self.reserve_seqs() {
            Err(error) if error.kind() == ErrorKind::StorageFull => self.sync(),
            result => result,
        }
    }

    fn prepare_ahead(&self) -> Result<bool> {
        if self.wants_log() {
            self.prepare_log()?;
            return Ok(true);
        }
        self.allocate_ahead()
    }

    fn flush_step(&self) -> Step {
        let flushed = self.flush_one().and_then(|done| Ok(done || self.flush_for_room()?));
        match flushed {
            Ok(true) => {
                self.executor.signal(Lane::Compact);
                return Step::Worked;
            }
            Ok(false) => {}
            // The space of a dropped table may be what it lacks.
            Err(_) if matches!(self.reclaim(), Ok(true)) => return Step::Worked,
            Err(_) => return Step::Idle(Some(RETRY_AFTER)),
        }
        match self.reclaim() {
            Ok(true) => return Step::Worked,
            Ok(false) => {}
            Err(_) => return Step::Idle(Some(RETRY_AFTER)),
        }
        let removed = self.remove_unheld();
        let view = self.view.load();
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
            // A merge may still be possible, and make the space that was lacking.
            Err(error) => self.compact_one().and_then(|done| done.then_some(true).ok_or(error)),
        };
        if let Err(error) = &compacted {
            self.tell_trouble("compaction", error);
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

    /// Where readers have lost enough, what is in memory goes into a file first, to be merged with the others.
    fn freeze_for_readers(&self) -> bool {
        let view = self.view.load_full();
        if !self.begin_turns(&view.version, !view.active().memtable.is_empty()) {
            return false;
        }
        drop(view);
        // Without it they are merged as they are.
        let froze = self.freeze_if_room().is_ok_and(|done| done);
        let newest = self.view.load().frozen().first().map(|slot| slot.memtable.id());
        self.env.loads.record_frozen(newest.filter(|_| froze));
        if froze {
            self.executor.signal(Lane::Flush);
        }
        froze
    }

    /// Unlinks files that no version has and nobody reads.
    pub(in crate::lsm) fn remove_unheld(&self) -> bool {
        let Ok(_work) = self.state.work() else { return false };
        let numbers = self.state.take_unheld();
        for number in &numbers {
            self.env.forget_cached(*number);
            self.env.discard(FileName::Sst(*number));
        }
        if !numbers.is_empty() && self.env.space_limit.is_some() {
            // A merge may have waited for the room.
            self.executor.signal(Lane::Compact);
        }
        !numbers.is_empty()
    }

    /// Waits until there is room for another memtable.
    ///
    /// # Errors
    /// Why flushing fails, if it does: the writer is answered, not kept waiting.
    pub(in crate::lsm) fn make_room(&self) -> Result<()> {
        loop {
            // Before the look: a flush that ends behind it is not missed.
            let seen = self.state.attempts();
            if self.view.load().memtables.len() <= self.env.options.frozen_max {
                return Ok(());
            }
            if let Some(error) = self.group_commit.lock().failed() {
                return Err(error.clone());
            }
            // One thread may be in a merge for long: the flush need not wait for that.
            if self.executor.signal(Lane::Flush) && !self.executor.is_alone() {
                let since = self.env.clock.monotonic();
                let waited = self.state.wait_for_flush(seen);
                let time = self.env.clock.monotonic().saturating_sub(since);
                self.stalled(Stall::Memtables, time);
                waited?;
            } else {
                self.flush_one()?;
            }
        }
    }

    /// Slows a writer down by what it touches: ranges that have more files or bytes waiting than reads should look at,
    /// and memory that is nearly used up.
    pub(in crate::lsm) fn delay(&self, batch: &Batch<'_>) {
        if self.env.options.background == Background::Manual || batch.ops.is_empty() {
            return;
        }
        let view = self.view.load();
        let by_range = self.range_pressure(&view, batch);
        let delay = by_range.max(self.memory_pressure(&view, batch));
        if delay.is_zero() {
            return;
        }
        drop(view);
        let stall = if by_range < delay { Stall::Memory } else { Stall::Ranges };
        self.executor.signal(if by_range.is_zero() { Lane::Flush } else { Lane::Compact });
        let Some(pause) = self.state.owe(delay) else { return };
        let since = self.env.clock.monotonic();
        self.state.pause(pause);
        let waited = self.env.clock.monotonic().saturating_sub(since);
        self.state.paid(pause, waited);
        self.stalled(stall, waited);
    }

    fn range_pressure(&self, view: &View, batch: &Batch<'_>) -> Duration {
        // Files of one age lie over one another, and nothing is behind.
        if self.is_ring(batch.gate.table) {
            return Duration::ZERO;
        }
        let share = backlog(&self.env, view, batch);
        if range_delay(share, None) < DELAY_MIN {
            return Duration::ZERO;
        }
        let bytes = batch.ops.iter().map(Op::memtable_bytes).sum();
        range_delay(share, self.state.merge_time(bytes))
    }

    fn memory_pressure(&self, view: &View, batch: &Batch<'_>) -> Duration {
        // While none waits for its flush, the active one fills as fast as it likes.
        if view.frozen().is_empty() {
            return Duration::ZERO;
        }
        let used: usize = view.memtables.iter().map(|slot| slot.memtable.bytes()).sum();
        let options = &self.env.options;
        let most = options.memtable_bytes.saturating_mul(options.frozen_max + 1);
        if memory_delay(used as u64, most as u64, None).is_zero() {
            return Duration::ZERO;
        }
        let bytes = batch.ops.iter().map(Op::memtable_bytes).sum();
        memory_delay(used as u64, most as u64, self.state.flush_time(bytes))
    }

    /// Flushes everything that is committed, and waits for it.
    ///
    /// # Errors
    /// `StorageFull`, `Io`, `Poisoned`; what was not flushed stays in memory and in the log.
    pub(crate) fn flush_all(&self) -> Result<()> {
        self.writable()?;
        self.freeze()?;
        while self.flush_one()? {}
        self.executor.signal(Lane::Compact);
        Ok(())
    }

    /// Ends background work, makes everything durable, and leaves the mark of a close in order.
    ///
    /// # Errors
    /// What could not be made durable is lost only if the machine stops: opening again recovers from the log.
    pub(crate) fn close(&self) -> Result<()> {
        self.executor.stop();
        let Some(lock) = self.lock.lock().take() else { return Ok(()) };
        self.refuse_commits();
        let failed = self.group_commit.lock().failed().cloned();
        let settled = failed.map_or_else(|| self.settle_for_close(), Err);
        self.state.end_work();
        let mut manifest = self.install.lock();
        let result = settled.and_then(|()| self.mark_closed(&mut manifest));
        if result.is_ok() {
            manifest.trim();
            self.group_commit.lock().queue.trim();
        }
        // Without the lock the directory may be somebody else's: nobody here changes it any more.
        manifest.end(closed());
        drop(manifest);
        self.group_commit.fail(closed());
        self.state.flush_attempted(Err(closed()));
        drop(lock);
        result
    }

    fn settle_for_close(&self) -> Result<()> {
        self.sync()?;
        let view = self.view.load_full();
        let bytes: usize = view.memtables.iter().map(|slot| slot.memtable.payload_bytes()).sum();
        let logs: usize = view.memtables.iter().map(|slot| slot.logs.len()).sum();
        if bytes > FLUSH_ON_CLOSE_BYTES || logs > FLUSH_ON_CLOSE_LOGS {
            match self.flush_all() {
                // The log holds it all: a full disk is no reason not to close.
                Err(error) if error.kind() == ErrorKind::StorageFull => {}
                result => result?,
            }
        }
        drop(view);
        self.remove_unheld();
        Ok(())
    }

    fn mark_closed(&self, manifest: &mut Manifest) -> Result<()> {
        let Some(close) = self.close_log(manifest)? else { return Ok(()) };
        let (clean_close, clock) = (Some(close), self.expiry_clock());
        let edit = VersionEdit { clean_close, clock, ..VersionEdit::default() };
        self.append_edit(manifest, &edit).map(drop)
    }
}

/// Of the range that is furthest behind of those that `batch` touches.
fn backlog(env: &Env, view: &View, batch: &Batch<'_>) -> Backlog {
    let memtable_bytes = env.options.memtable_bytes as u64;
    let mut most = Backlog::default();
    let mut last: Option<&Arc<Range<Arc<FileEntry>>>> = None;
    for op in &batch.ops {
        if last.is_some_and(|range| range.span.contains(&op.key)) {
            continue;
        }
        last = view.version.range_for(&op.key);
        let Some(range) = last.filter(|range| !range.young.is_empty()) else { continue };
        // Counted only where there can be too many: most ranges have few young files.
        let is_deep = range.young.len() >= SOURCES_FREE;
        let sources = if is_deep { range.sources(&op.key).count() } else { 0 };
        let is_behind = sources > SOURCES_FREE && env.readers(range) > Readers::Few;
        let sources = if is_behind { sources } else { sources.saturating_sub(SOURCES_UNREAD) };
        // What is longer than a flush was merged: it waits for nothing.
        let flush_bytes = flush_bytes_max(memtable_bytes);
        let waiting = range.young.iter().filter(|file| file.file.meta.bytes <= flush_bytes);
        let debt = waiting.map(|file| file.bytes).sum();
        most = most.max(Backlog::of(sources, debt, memtable_bytes));
    }
    most
}

/// What is in memory at a close is flushed if replaying it at the next opening would take longer than all else there: of
/// short rows this is some two thousand.
const FLUSH_ON_CLOSE_BYTES: usize = 128 << 10;
/// Or if many short sessions have each left a log.
const FLUSH_ON_CLOSE_LOGS: usize = 4;

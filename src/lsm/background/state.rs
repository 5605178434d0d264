//! State that background work keeps between steps: claims, files to remove, errors and counters.
//!
//! Locks: `flushing` is held during a whole flush and taken before `install`; `state` is held for a
//! few instructions.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::format::edit::Placement;
use crate::format::names::{FileNumber, RangeId};
use crate::format::record::Position;
use crate::manifest::{FileEntry, Version};
use crate::model::Seq;
use crate::mutants::mutant;
use crate::sync::{AtomicUsize, Condvar, Mutex};

use super::compaction::order::Ranking;
use super::compaction::plan::{Job, Reason};
use super::idle_time::IdleTime;
use super::new_file::NewFile;
use super::quarantine::Quarantine;
use super::token_bucket::Pace;
use crate::lsm::write::log_queue::closed;
use crate::sort::{SortedMap, SortedSet};

/// The shared state of background work.
#[derive(Default)]
pub(crate) struct MaintenanceState {
    /// Held by the flush in progress, so that flushes run one at a time.
    pub(in crate::lsm) flushing: Mutex<()>,
    /// Caches the urgency of each range's next job.
    pub(in crate::lsm) ranking: Mutex<Ranking>,
    /// Files written since opening by compression at rest, the compression of ranges without recent
    /// writes. They are not compressed again, even if they are as large as before.
    pub(in crate::lsm) packed: Mutex<SortedSet<FileNumber>>,
    /// The rate limit of background writes.
    pub(in crate::lsm) pace: Mutex<Pace>,
    /// The time since the last write that matters.
    pub(super) idle_time: Mutex<IdleTime>,
    /// Results of the last search for ranges to split or merge.
    pub(super) divided: Mutex<Divided>,
    /// Memory used by files being written, in bytes.
    pub(in crate::lsm) writing: AtomicUsize,
    /// Damaged files, which jobs avoid.
    pub(in crate::lsm) quarantine: Mutex<Quarantine>,
    /// Files that are rewritten once writes end because of deletions.
    pub(in crate::lsm) paid: Mutex<Paid>,
    /// The state in which the last `reclaim` found nothing to do.
    pub(in crate::lsm) last_search: Mutex<LastSearch>,
    state: Mutex<State>,
    /// Signalled when no flush is in progress any more.
    flushed: Condvar,
    /// Signalled when a range is released.
    released: Condvar,
    /// Signalled when no `Work` guard exists any more.
    rested: Condvar,
}

/// A guard: permission to change files. A close waits until all guards of this type are dropped.
pub(in crate::lsm) struct Work<'a>(&'a MaintenanceState);

/// A guard that exists while a flush needs the disk. Compaction pauses during this time.
pub(in crate::lsm) struct Flushing<'a>(&'a MaintenanceState);

/// Results of earlier searches for ranges to split or merge.
#[derive(Default)]
pub(super) struct Divided {
    /// The version in which no range needed a split or a merge. A weak pointer, so that it keeps no
    /// file alive.
    pub(super) version: Weak<Version>,
    /// Ranges that no key can divide, with the bytes that each had when it was examined.
    pub(super) whole: SortedMap<RangeId, u64>,
}

/// Files of which deletions hide parts, and for whose rewrite they free enough space.
#[derive(Debug, Default)]
pub(in crate::lsm) struct Paid {
    pub(super) files: SortedSet<FileNumber>,
    /// The deletions up to this Seq were examined.
    pub(super) examined: Seq,
}

/// The state in which the last `reclaim` found nothing to do. As long as the state is the same,
/// another search would find nothing either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::lsm) struct LastSearch {
    pub(super) manifest: Position,
    pub(super) newest_range_tombstone: Seq,
    pub(super) range_tombstones: usize,
    pub(super) oldest: Seq,
    pub(super) dead: usize,
}

#[derive(Default)]
struct State {
    /// Files that no version contains any more, to be removed when no reader holds them.
    obsolete: Vec<Arc<FileEntry>>,
    /// The error of the last compaction, if it failed.
    compact_error: Option<Error>,
    /// The number of flushes in progress.
    flushing: usize,
    /// Ranges that a job is changing.
    busy: SortedSet<RangeId>,
    /// The number of `Work` guards that exist.
    working: usize,
    /// True once no new work may begin.
    is_closing: bool,
    counters: Counters,
}

/// Totals since the engine was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) flushes: u64,
    pub(crate) flush_bytes: u64,
    /// `compactions` counts merges, which may run several jobs together; `jobs` counts jobs, one
    /// for each range. Neither includes joins, which add files to a run without rewriting them.
    pub(crate) compactions: u64,
    pub(crate) jobs: u64,
    pub(crate) joins: u64,
    pub(crate) partial_jobs: u64,
    pub(crate) forced_jobs: u64,
    pub(crate) compaction_bytes_read: u64,
    /// `compaction_bytes` is all bytes that merges wrote. The next three fields are the parts
    /// written into runs, as young files, and by compression at rest.
    pub(crate) compaction_bytes: u64,
    pub(crate) run_bytes: u64,
    pub(crate) young_bytes: u64,
    pub(crate) rest_bytes: u64,
    pub(crate) tombstones_dropped: u64,
    pub(crate) files_removed: u64,
    pub(crate) splits: u64,
    pub(crate) merges: u64,
    /// The number of stalled writes, and their total delay in microseconds.
    pub(crate) stalls: u64,
    pub(crate) stall_micros: u64,
}

/// The maximum wait before a condition is checked again.
const SLICE: Duration = Duration::from_millis(50);
/// How many slices compaction waits for a flush. The wait is bounded, so that a flush that hangs
/// does not block compaction forever.
const FLUSH_SLICES: usize = 100;

impl MaintenanceState {
    pub(in crate::lsm) fn new(background_bytes_per_second: u64) -> Self {
        Self { pace: Mutex::new(Pace::new(background_bytes_per_second)), ..Self::default() }
    }

    /// Begins work that changes files, such as a flush, a merge or a removal, and returns a guard
    /// for its duration. While holding the guard, the caller must not wait for a call of `work` in
    /// another thread.
    ///
    /// # Errors
    /// `InvalidInput` once the database is being closed.
    pub(in crate::lsm) fn work(&self) -> Result<Work<'_>> {
        let mut state = self.state.lock();
        if state.is_closing {
            return Err(closed());
        }
        state.working += 1;
        Ok(Work(self))
    }

    /// Refuses new work, and waits for all work in progress on any thread.
    pub(in crate::lsm) fn end_work(&self) {
        let mut state = self.state.lock();
        state.is_closing = true;
        while state.working > 0 && !mutant!("early-close") {
            self.rested.wait(&mut state);
        }
    }

    /// Adds files that no version contains any more, to be removed later.
    pub(in crate::lsm) fn retire(&self, files: impl IntoIterator<Item = Arc<FileEntry>>) {
        self.state.lock().obsolete.extend(files);
    }

    /// Removes and returns the retired files that no reader holds.
    pub(in crate::lsm) fn take_unheld(&self) -> Vec<FileNumber> {
        let mut state = self.state.lock();
        let is_unheld =
            |file: &Arc<FileEntry>| Arc::strong_count(file) == 1 || mutant!("early-unpin");
        let (unheld, held): (Vec<_>, Vec<_>) = state.obsolete.drain(..).partition(is_unheld);
        state.obsolete = held;
        state.counters.files_removed += unheld.len() as u64;
        let gone: Vec<_> = unheld.into_iter().map(|file| file.meta.number).collect();
        drop(state);
        let (mut packed, mut quarantine) = (self.packed.lock(), self.quarantine.lock());
        let mut paid = self.paid.lock();
        for file in &gone {
            packed.remove(file);
            paid.files.remove(file);
            quarantine.forget(*file);
        }
        gone
    }

    /// Returns the size in bytes of the retired files, which readers still hold.
    #[cfg(feature = "cli")]
    pub(in crate::lsm) fn held_bytes(&self) -> u64 {
        self.state.lock().obsolete.iter().map(|file| file.meta.bytes).sum()
    }

    /// Counts a flush. Flushes are never delayed by the rate limit, but their bytes count against
    /// it.
    pub(in crate::lsm) fn record_flush(&self, files: &[NewFile], now: Duration) {
        let bytes = files.iter().map(|file| file.meta.bytes).sum::<u64>();
        self.pace.lock().take(bytes, now);
        let mut state = self.state.lock();
        state.counters.flushes += 1;
        state.counters.flush_bytes += bytes;
    }

    /// Counts jobs that ran together and wrote `files`.
    pub(in crate::lsm) fn record_compaction(&self, jobs: &[&Job], files: &[NewFile]) {
        let Some(first) = jobs.first() else { return };
        let is_like_first =
            |job: &&Job| (job.is_join(), job.placement) == (first.is_join(), first.placement);
        debug_assert!(jobs.iter().all(is_like_first), "jobs done together have one kind of output");
        let bytes = files.iter().map(|file| file.meta.bytes).sum::<u64>();
        let count = |is: fn(&Job) -> bool| jobs.iter().filter(|job| is(job)).count() as u64;
        let mut state = self.state.lock();
        let counters = &mut state.counters;
        if first.is_join() {
            counters.joins += jobs.iter().map(|job| job.young.len() as u64).sum::<u64>();
            return;
        }
        counters.compactions += 1;
        counters.jobs += jobs.len() as u64;
        counters.partial_jobs += count(|job| job.below.is_some());
        counters.forced_jobs += count(|job| job.reason == Reason::Sources);
        counters.compaction_bytes_read += jobs.iter().map(|job| job.bytes).sum::<u64>();
        counters.compaction_bytes += bytes;
        match (first.placement, first.reason) {
            (Placement::Young, _) => counters.young_bytes += bytes,
            (Placement::Run, Reason::Rest) => {
                counters.rest_bytes += bytes;
                self.packed.lock().extend(files.iter().map(|file| file.meta.number));
            }
            (Placement::Run, _) => counters.run_bytes += bytes,
        }
        let parts = counters.young_bytes + counters.run_bytes + counters.rest_bytes;
        debug_assert_eq!(parts, counters.compaction_bytes, "bytes by destination add up");
    }

    /// Counts tombstones that a job dropped.
    pub(in crate::lsm) fn record_spent(&self, tombstones: u64) {
        self.state.lock().counters.tombstones_dropped += tombstones;
    }

    /// Marks that a flush needs the disk, until the guard is dropped.
    pub(in crate::lsm) fn flush_begins(&self) -> Flushing<'_> {
        self.state.lock().flushing += 1;
        Flushing(self)
    }

    /// Waits until no flush is in progress, and then for `wait`. Returns early once `stops` returns
    /// true. The wait for flushes is bounded, because a flush may need something that the caller
    /// holds.
    pub(in crate::lsm) fn wait_for_turn(&self, wait: Duration, stops: impl Fn() -> bool) {
        let mut state = self.state.lock();
        let mut slices = FLUSH_SLICES;
        while state.flushing > 0 && slices > 0 && !stops() {
            self.flushed.wait_for(&mut state, SLICE);
            slices -= 1;
        }
        let mut left = wait;
        while !left.is_zero() && !stops() {
            let slice = left.min(SLICE);
            self.flushed.wait_for(&mut state, slice);
            left -= slice;
        }
    }

    /// Counts a split of a range if `divided`, otherwise a merge of two ranges.
    pub(in crate::lsm) fn record_ranges(&self, divided: bool) {
        let counters = &mut self.state.lock().counters;
        *if divided { &mut counters.splits } else { &mut counters.merges } += 1;
    }

    /// Records the result of an attempt to compact. `error` is `None` if the attempt succeeded or
    /// found nothing to do.
    pub(in crate::lsm) fn compaction_ended(&self, error: Option<Error>) {
        self.state.lock().compact_error = error;
    }

    /// Returns the error with which compaction fails, or because of which it avoids a range, if
    /// any.
    pub(in crate::lsm) fn compaction_error(&self) -> Option<Error> {
        let failed = self.state.lock().compact_error.clone();
        failed.or_else(|| self.quarantine.lock().errors().next().cloned())
    }

    /// Claims `range` for a job. Returns false if it is already claimed.
    pub(in crate::lsm) fn claim(&self, range: RangeId) -> bool {
        self.state.lock().busy.insert(range)
    }

    pub(in crate::lsm) fn release(&self, range: RangeId) {
        let was_claimed = self.state.lock().busy.remove(&range);
        debug_assert!(was_claimed, "a range that is released was claimed");
        self.released.notify_all();
    }

    /// Waits until `range` is not claimed, and claims it.
    pub(in crate::lsm) fn claim_waiting(&self, range: RangeId) {
        let mut state = self.state.lock();
        while !state.busy.insert(range) {
            self.released.wait(&mut state);
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        self.state.lock().counters
    }
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        debug_assert!(state.flushing > 0, "a flush that ends had begun");
        state.flushing -= 1;
        drop(state);
        self.0.flushed.notify_all();
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        debug_assert!(state.working > 0, "work that ends had begun");
        state.working -= 1;
        if state.working == 0 {
            self.0.rested.notify_all();
        }
    }
}

//! What background work remembers between steps: dropped tables, files to remove, what went wrong, and counters.
//!
//! Locks: `flushing` is held over a whole flush, before `install`; `state` for a few instructions.

use std::collections::{BTreeMap, BTreeSet};
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
use super::new_file::NewFile;
use super::quarantine::Quarantine;
use super::token_bucket::Pace;
use crate::lsm::write::log_queue::closed;

/// See the module.
#[derive(Default)]
pub(crate) struct MaintenanceState {
    /// One flush at a time.
    pub(in crate::lsm) flushing: Mutex<()>,
    /// What is known of ranges, for the order of compaction.
    pub(in crate::lsm) ranking: Mutex<Ranking>,
    /// Files that were written to be compressed, since opening: what did not get smaller is not tried again.
    pub(in crate::lsm) packed: Mutex<BTreeSet<FileNumber>>,
    /// How fast background work may write.
    pub(in crate::lsm) pace: Mutex<Pace>,
    /// What range splits looked at already.
    pub(super) divided: Mutex<Divided>,
    /// The memory of files being written.
    pub(in crate::lsm) writing: AtomicUsize,
    /// What jobs leave alone, because of damage.
    pub(in crate::lsm) quarantine: Mutex<Quarantine>,
    /// Where reclaiming found nothing to do.
    pub(in crate::lsm) last_search: Mutex<LastSearch>,
    state: Mutex<State>,
    /// Signalled when no flush is under way any more.
    flushed: Condvar,
    /// Signalled when a range is free again.
    released: Condvar,
    /// Signalled when nobody changes files any more.
    rested: Condvar,
}

/// The right to change files, which a close waits for.
pub(in crate::lsm) struct Work<'a>(&'a MaintenanceState);

/// A flush under way, which compaction makes way for.
pub(in crate::lsm) struct Flushing<'a>(&'a MaintenanceState);

/// What was looked at already.
#[derive(Default)]
pub(super) struct Divided {
    /// There was nothing to do for this version. Held weakly: it must not keep files alive.
    pub(super) version: Weak<Version>,
    /// Ranges that no key divided, with their bytes then.
    pub(super) whole: BTreeMap<RangeId, u64>,
}

/// What the last look for space found nothing in: it finds nothing until one of these changes.
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
    /// Files that no version has any more, until nobody reads them.
    obsolete: Vec<Arc<FileEntry>>,
    /// Why the last compaction failed.
    compact_error: Option<Error>,
    /// How many flushes are under way.
    flushing: usize,
    /// Ranges that a job is changing.
    busy: BTreeSet<RangeId>,
    /// How many are changing files.
    working: usize,
    /// Nobody begins to any more.
    is_closing: bool,
    counters: Counters,
}

/// What the engine did since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) flushes: u64,
    pub(crate) flush_bytes: u64,
    /// Sets of jobs that were merged together, and of each range; joins apart.
    pub(crate) compactions: u64,
    pub(crate) jobs: u64,
    pub(crate) joins: u64,
    pub(crate) partial_jobs: u64,
    pub(crate) forced_jobs: u64,
    pub(crate) compaction_bytes_read: u64,
    /// Written, of all causes; and into runs, among young files, compressed at rest.
    pub(crate) compaction_bytes: u64,
    pub(crate) run_bytes: u64,
    pub(crate) young_bytes: u64,
    pub(crate) rest_bytes: u64,
    pub(crate) tombstones_dropped: u64,
    pub(crate) files_removed: u64,
    pub(crate) splits: u64,
    pub(crate) merges: u64,
    /// How often a write was held up, and for how long together.
    pub(crate) stalls: u64,
    pub(crate) stall_micros: u64,
}

/// How long a wait lasts before it looks around.
const SLICE: Duration = Duration::from_millis(50);
/// A compaction makes way for a flush for so many of them: a flush that hangs must not take compaction with it.
const FLUSH_SLICES: usize = 100;

impl MaintenanceState {
    pub(in crate::lsm) fn new(background_bytes_per_second: u64) -> Self {
        Self { pace: Mutex::new(Pace::new(background_bytes_per_second)), ..Self::default() }
    }

    /// Begins to change files: a flush, a merge, a removal. It must not wait for another to begin.
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

    /// Waits for the work under way, of whatever thread, and lets none begin.
    pub(in crate::lsm) fn end_work(&self) {
        let mut state = self.state.lock();
        state.is_closing = true;
        while state.working > 0 && !mutant!("early-close") {
            self.rested.wait(&mut state);
        }
    }

    /// No version from now on has these files.
    pub(in crate::lsm) fn retire(&self, files: impl IntoIterator<Item = Arc<FileEntry>>) {
        self.state.lock().obsolete.extend(files);
    }

    /// Takes out the retired files that nobody holds.
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
        for file in &gone {
            packed.remove(file);
            quarantine.forget(*file);
        }
        gone
    }

    /// A flush is never held up; what it wrote, compaction has not.
    pub(in crate::lsm) fn record_flush(&self, files: &[NewFile], now: Duration) {
        let bytes = files.iter().map(|file| file.meta.bytes).sum::<u64>();
        self.pace.lock().take(bytes, now);
        let mut state = self.state.lock();
        state.counters.flushes += 1;
        state.counters.flush_bytes += bytes;
    }

    /// These jobs were done together, and wrote `concat_iter`.
    pub(in crate::lsm) fn record_compaction(&self, jobs: &[&Job], files: &[NewFile]) {
        let Some(first) = jobs.first() else { return };
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
    }

    /// A job left out so many tombstones.
    pub(in crate::lsm) fn record_spent(&self, tombstones: u64) {
        self.state.lock().counters.tombstones_dropped += tombstones;
    }

    /// A flush needs the disk, until the guard is dropped.
    pub(in crate::lsm) fn flush_begins(&self) -> Flushing<'_> {
        self.state.lock().flushing += 1;
        Flushing(self)
    }

    /// Waits while a flush is under way, and then for `wait`; not much longer once `stops`. Not for ever: whoever calls
    /// it may hold what a flush waits for.
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

    /// A range was divided, or else two were merged.
    pub(in crate::lsm) fn record_ranges(&self, divided: bool) {
        let counters = &mut self.state.lock().counters;
        *if divided { &mut counters.splits } else { &mut counters.merges } += 1;
    }

    /// A compaction was tried, or there was none to do.
    pub(in crate::lsm) fn compaction_ended(&self, error: Option<Error>) {
        self.state.lock().compact_error = error;
    }

    /// Why compaction does not get on, if it does not.
    pub(in crate::lsm) fn compaction_error(&self) -> Option<Error> {
        let failed = self.state.lock().compact_error.clone();
        failed.or_else(|| self.quarantine.lock().errors().next().cloned())
    }

    /// Takes `range` for a job; false if another job has it.
    pub(in crate::lsm) fn claim(&self, range: RangeId) -> bool {
        self.state.lock().busy.insert(range)
    }

    pub(in crate::lsm) fn release(&self, range: RangeId) {
        let was_claimed = self.state.lock().busy.remove(&range);
        debug_assert!(was_claimed, "a range that is released was claimed");
        self.released.notify_all();
    }

    /// Takes `range` as soon as no job has it.
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
        self.0.state.lock().flushing -= 1;
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

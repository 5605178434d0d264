//! Where operations are sampled, and the load of each range.
//!
//! An operation takes one off a counter of its engine. Who takes the last one is the sample: it stands for as many as the
//! counter held, and pays for the look at the range. A counter is then set for about [`SAMPLES_PER_SECOND`], so
//! that a slow load is counted operation by operation and a fast one pays nothing.
//!
//! Invariants
//! * the numbers live in memory, beside the version: they begin anew with each opening, and survive every change of the
//!   version; splits and joins divide and join them;
//! * with `Background::Manual` one counter serves all, so that one thread always gets the same numbers; otherwise threads
//!   find different counters by where their stacks lie, and two that meet at one lose a count, which nobody misses;
//! * data that is in memtables only and belongs to no range yet has no load.
//!
//! Locks: `sampled` is one of the small ones.
//!
//! Not here: what a load is (`ranges::load`), what follows from it (`ranges::decide`).

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Result;
use crate::format::edit::VersionEdit;
use crate::format::names::{RangeId, TableId};
use crate::manifest::Version;
use crate::options::Background;
use crate::ranges::decide::{Limits, Pace, RangeState, may_split, should_merge, split_by_load};
use crate::ranges::load::{LoadSummary, RangeLoad};
use crate::rng::Rng;
use crate::sync::{AtomicBool, AtomicU32, Mutex, Ordering};

use super::batch::Batch;
use super::{Engine, Env};

/// Ranges are looked at this often: what is decided by minutes need not be asked more often.
const LOOK_SECONDS: f64 = 10.0;
/// Counters of an engine; threads beyond that share them.
const SLOTS: usize = 16;
/// Of each counter. A sample costs about half a microsecond: this is less than a thousandth of a second's work.
const SAMPLES_PER_SECOND: f64 = 1_000.0;
/// A counter is never set higher: after a fast load the next slow one is seen soon.
const GAP_MAX: f64 = 1_024.0;
/// Loads of so many ranges are kept; of more, those that anybody asks for.
const TRACKED_MAX: usize = 4_096;

/// To so many reads a second, a few files more to look at are less than a thousandth of a processor.
const READS_FEW: f64 = 1_000.0;
/// Or beside so many writes each.
const WRITES_EACH: f64 = 8.0;

/// The loads of an open database.
pub(crate) struct Loads {
    counters: [Counter; SLOTS],
    /// Which bits of a hash choose the counter.
    mask: usize,
    is_on: AtomicBool,
    sampled: Mutex<Sampled>,
}

/// Alone in its cache lines: threads do not take it from each other.
#[repr(align(128))]
struct Counter(AtomicU32);

struct Sampled {
    gaps: [Gap; SLOTS],
    rng: Rng,
    ranges: BTreeMap<RangeId, RangeLoad>,
    /// When the database was opened, and when ranges that are younger were divided or joined.
    opened: f64,
    made: BTreeMap<RangeId, f64>,
    /// Ranges that a split by load left: they are joined for their load, not for their size.
    by_load: BTreeSet<RangeId>,
    /// When ranges were looked at last.
    looked: Option<f64>,
}

/// How a counter was set last.
#[derive(Clone, Copy)]
struct Gap {
    set: u32,
    mean: f64,
    at: f64,
}

/// An operation that stands for others.
pub(super) struct Due {
    slot: usize,
    /// More than the counter had left.
    over: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
}

impl Loads {
    /// The loads of a database that was opened at `now`, in seconds.
    pub(super) fn new(background: Background, now: f64) -> Self {
        let gap = Gap { set: 1, mean: 1.0, at: now };
        Self {
            counters: std::array::from_fn(|_| Counter(AtomicU32::new(1))),
            mask: if background == Background::Manual { 0 } else { SLOTS - 1 },
            is_on: AtomicBool::new(true),
            sampled: Mutex::new(Sampled {
                gaps: [gap; SLOTS],
                rng: Rng::from_seed(0),
                ranges: BTreeMap::new(),
                opened: now,
                made: BTreeMap::new(),
                by_load: BTreeSet::new(),
                looked: None,
            }),
        }
    }

    /// Reads a second of a range, rounded down.
    pub(super) fn reads(&self, range: RangeId, now: f64) -> u64 {
        // What is not finite or below one becomes 0 or the greatest.
        self.rates(range, now).map_or(0, |[reads, _]| reads as u64)
    }

    /// Reads and writes a second of a range, if its load is known.
    fn rates(&self, range: RangeId, now: f64) -> Option<[f64; 2]> {
        let sampled = self.sampled.lock();
        sampled.ranges.get(&range).map(|load| load.rates(now))
    }

    /// Takes `ops` operations off a counter; `Some` if one of them is the sample.
    #[inline]
    pub(super) fn take(&self, ops: u32) -> Option<Due> {
        if !self.is_on.load(Ordering::Relaxed) {
            return None;
        }
        let slot = self.slot();
        let counter = &self.counters[slot].0;
        let left = counter.load(Ordering::Relaxed);
        if left > ops {
            // Not one atomic step: a count lost to another thread costs less than the step would.
            counter.store(left - ops, Ordering::Relaxed);
            return None;
        }
        Some(Due { slot, over: ops - left })
    }

    /// The counter of this thread: stacks lie at least this far apart.
    #[inline]
    fn slot(&self) -> usize {
        let place = 0u8;
        let page = std::ptr::from_ref(&place).addr() >> 17;
        (page.wrapping_mul(0x9e37_79b1) >> 8) & self.mask
    }

    /// Stops counting, or goes on; for measuring what it costs.
    pub(super) fn switch(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
    }

    /// A range was divided at a key.
    pub(super) fn split(&self, range: RangeId, at: &[u8], parts: [RangeId; 2], now: f64) {
        let mut sampled = self.sampled.lock();
        sampled.made.extend(parts.map(|part| (part, now)));
        if sampled.by_load.remove(&range) {
            sampled.by_load.extend(parts);
        }
        if let Some(load) = sampled.ranges.remove(&range) {
            let (lower, upper) = load.split(at, now);
            sampled.ranges.insert(parts[0], lower);
            sampled.ranges.insert(parts[1], upper);
        }
    }

    /// Two neighbours became one range.
    pub(super) fn join(&self, lower: RangeId, upper: RangeId, joined: RangeId, now: f64) {
        let mut sampled = self.sampled.lock();
        sampled.made.insert(joined, now);
        let of_load = [lower, upper].map(|range| sampled.by_load.remove(&range));
        if of_load == [true; 2] {
            sampled.by_load.insert(joined);
        }
        let lower = sampled.ranges.remove(&lower);
        let load = match (lower, sampled.ranges.remove(&upper)) {
            (Some(lower), Some(upper)) => lower.join(upper, now),
            (Some(load), None) | (None, Some(load)) => load,
            (None, None) => return,
        };
        sampled.ranges.insert(joined, load);
    }

    fn sample(&self, due: &Due, range: Option<RangeId>, key: &[u8], kind: Kind, now: f64) {
        let mut sampled = self.sampled.lock();
        let weight = sampled.set_counter(due, now, &self.counters[due.slot].0);
        let Some(load) = range.and_then(|range| sampled.load_of(range, now)) else { return };
        match kind {
            Kind::Read => load.read(key, weight, now),
            Kind::Write => load.write(key, weight, now),
        }
    }
}

impl Sampled {
    /// Sets the counter that has run down; the result is how many operations it counted.
    fn set_counter(&mut self, due: &Due, now: f64, counter: &AtomicU32) -> f64 {
        let gap = &mut self.gaps[due.slot];
        let counted = f64::from(gap.set) + f64::from(due.over);
        let seconds = now - gap.at;
        let wanted = if seconds > 0.0 { counted / seconds / SAMPLES_PER_SECOND } else { GAP_MAX };
        // A burst does not set it so high that the quiet behind it is missed.
        gap.mean = wanted.min(gap.mean * 2.0).clamp(1.0, GAP_MAX);
        // Not always the same distance: a program that goes round its keys would show one of them only.
        gap.set = 1 + self.rng.below(2 * gap.mean as u64 - 1) as u32;
        gap.at = now;
        counter.store(gap.set, Ordering::Relaxed);
        counted
    }

    fn load_of(&mut self, range: RangeId, now: f64) -> Option<&mut RangeLoad> {
        if !self.ranges.contains_key(&range) {
            if self.ranges.len() >= TRACKED_MAX {
                self.ranges.retain(|_, load| !load.is_idle(now));
            }
            if self.ranges.len() >= TRACKED_MAX {
                return None;
            }
            self.ranges.insert(range, RangeLoad::new(range.0, now));
        }
        self.ranges.get_mut(&range)
    }
}

impl Env {
    /// Seconds by the clock that does not jump.
    pub(super) fn seconds(&self) -> f64 {
        self.clock.monotonic().as_secs_f64()
    }

    /// True if each file more of the range is felt: by readers, of whom nothing is known where nothing was counted, or by
    /// who has little disk.
    pub(super) fn is_read(&self, range: RangeId) -> bool {
        self.room.is_some()
            || self
                .loads
                .rates(range, self.seconds())
                .is_none_or(|[reads, writes]| reads > READS_FEW || reads * WRITES_EACH > writes)
    }

    /// Counts a point read.
    #[inline]
    pub(super) fn note_read(&self, version: &Version, key: &[u8]) {
        if let Some(due) = self.loads.take(1) {
            self.sample_load(&due, version, key, Kind::Read);
        }
    }

    /// Counts rows that a scan passed, the last of them at `key`.
    #[inline]
    pub(super) fn note_rows(&self, version: &Version, rows: u32, key: &[u8]) {
        if let Some(due) = self.loads.take(rows) {
            self.sample_load(&due, version, key, Kind::Read);
        }
    }

    #[cold]
    fn sample_load(&self, due: &Due, version: &Version, key: &[u8], kind: Kind) {
        let range = version.range_for(key).map(|range| range.id);
        self.loads.sample(due, range, key, kind, self.seconds());
    }
}

impl Engine {
    /// Counts the writes of a batch.
    #[inline]
    pub(super) fn note_writes(&self, batch: &Batch<'_>) {
        let ops = batch.ops.len() as u32;
        if ops > 0
            && let Some(due) = self.env.loads.take(ops)
        {
            // Any of them does: a batch is of one partition.
            let key = &batch.ops[due.over as usize % batch.ops.len()].key;
            self.env.sample_load(&due, &self.view.load().version, key, Kind::Write);
        }
    }

    /// The loads of the ranges that there are; those of others are forgotten.
    pub(crate) fn loads(&self, version: &Version) -> BTreeMap<RangeId, LoadSummary> {
        let now = self.env.seconds();
        let mut sampled = self.env.loads.sampled.lock();
        let ids: BTreeSet<_> = version.ranges().iter().map(|r| r.id).collect();
        sampled.ranges.retain(|id, load| ids.contains(id) && !load.is_idle(now));
        let summaries = sampled.ranges.iter().map(|(id, load)| (*id, load.summary(now)));
        summaries.collect()
    }

    /// The ranges of `version` in key order, as decisions see them, with their sizes noted; `None` if they were looked at
    /// less than [`LOOK_SECONDS`] ago.
    pub(super) fn range_states(&self, version: &Version) -> Option<Vec<RangeState>> {
        let now = self.env.seconds();
        let mut sampled = self.env.loads.sampled.lock();
        if sampled.looked.is_some_and(|looked| now - looked < LOOK_SECONDS) {
            return None;
        }
        sampled.looked = Some(now);
        let ids: BTreeSet<_> = version.ranges().iter().map(|range| range.id).collect();
        sampled.made.retain(|id, _| ids.contains(id));
        sampled.ranges.retain(|id, _| ids.contains(id));
        sampled.by_load.retain(|id| ids.contains(id));
        let Sampled { ranges, made, opened, .. } = &mut *sampled;
        let states = version.ranges().iter().map(|range| {
            let bytes = range.bytes();
            let load = ranges.get_mut(&range.id).map(|load| {
                load.note_bytes(bytes, now);
                load.summary(now)
            });
            let age = now - made.get(&range.id).copied().unwrap_or(*opened);
            let (id, table, load) = (range.id, range.table, load.unwrap_or_default());
            RangeState { id, table, bytes, load, age }
        });
        Some(states.collect())
    }

    /// Divides the hottest range whose load has lasted and divides; false if there is none.
    pub(super) fn divide_by_load(&self, version: &Version, limits: &Limits) -> Result<bool> {
        let Some(states) = self.range_states(version) else { return Ok(false) };
        let hot = states.iter().filter_map(|range| Some((range, split_by_load(range, limits)?)));
        let hottest = hot.max_by(|a, b| a.0.load.ops().total_cmp(&b.0.load.ops()));
        let Some((range, at)) = hottest else { return Ok(false) };
        let of_table = states.iter().filter(|other| other.table == range.table).count();
        let first = |pair: &&[RangeState]| matches!(pair, [a, b] if a.table == b.table);
        let mut sampled = self.env.loads.sampled.lock();
        let minute = self.env.seconds() - 60.0;
        let pace = Pace {
            database_splits: states.windows(2).filter(first).count(),
            splits_last_minute: sampled.made.values().filter(|made| **made > minute).count() / 2,
        };
        if !may_split(of_table, pace, limits) {
            return Ok(false);
        }
        sampled.by_load.insert(range.id);
        drop(sampled);
        self.split_range(range.id, &at)
    }

    /// True if size alone decides whether two neighbours are joined, or their load agrees.
    pub(super) fn may_merge(&self, lower: RangeId, upper: RangeId, limits: &Limits) -> bool {
        let now = self.env.seconds();
        let sampled = self.env.loads.sampled.lock();
        if ![lower, upper].iter().any(|range| sampled.by_load.contains(range)) {
            return true;
        }
        let state = |id: RangeId| {
            let load = sampled.ranges.get(&id).map(|load| load.summary(now)).unwrap_or_default();
            let age = now - sampled.made.get(&id).copied().unwrap_or(sampled.opened);
            RangeState { id, table: TableId::CATALOG, bytes: load.bytes_peak, load, age }
        };
        should_merge(&state(lower), &state(upper), limits)
    }

    /// The loads go the way of the ranges that an edit divides or joins.
    pub(super) fn follow_ranges(&self, edit: &VersionEdit) {
        let now = self.env.seconds();
        match (&*edit.remove_ranges, &*edit.add_ranges) {
            ([range], [lower, upper]) => {
                self.env.loads.split(*range, &upper.span.low, [lower.id, upper.id], now);
            }
            ([lower, upper], [joined]) => self.env.loads.join(*lower, *upper, joined.id, now),
            _ => {}
        }
    }

    /// Counts operations, or does not; for measuring what counting costs.
    pub(crate) fn count_loads(&self, on: bool) {
        self.env.loads.switch(on);
    }
}

#[cfg(test)]
mod tests;

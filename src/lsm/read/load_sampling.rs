//! Sampling of operations, and the load of each range.
//!
//! Invariants
//! * the loads are kept in memory, separate from the version. They start empty at each opening and
//!   survive every change of the version; splits and merges of ranges split and merge them;
//! * with `Background::Manual` one counter serves all threads, so that one thread always gets the
//!   same numbers. Otherwise the address of a thread's stack selects its counter; two threads that
//!   share a counter may lose a count, which is harmless;
//! * data that is only in memtables and belongs to no range yet has no load.
//!
//! Locks: `sampled` is one of the small ones, and the innermost.
//!
//! Not here: the definition of a load (`ranges::load`), decisions by load (`ranges::decide`).

use std::collections::{BTreeMap, BTreeSet};

use crate::executor::{Bell, Lane};
use crate::format::edit::VersionEdit;
use crate::format::names::{RangeId, TableId};
use crate::manifest::{FileRange, Version};
use crate::options::{Background, MergePrice};
use crate::ranges::decide::{Limits, Pace, RangeState, may_split, should_merge, split_by_load};
use crate::ranges::load::{LoadSummary, RangeLoad, TURN_SECONDS};
use crate::rng::Rng;
use crate::sync::{AtomicBool, AtomicU32, Mutex, Ordering};

/// The interval at which ranges are examined, in seconds. Decisions depend on minutes of load and
/// need no shorter interval.
const LOOK_SECONDS: f64 = 10.0;
/// The counters of an engine. If there are more threads, they share counters.
const SLOTS: usize = 16;
/// The target for each counter. A sample costs about 0.5 µs, so this is less than a thousandth of a
/// processor.
const SAMPLES_PER_SECOND: f64 = 1_000.0;
/// The largest mean distance of two samples, so that a slow load after a fast one is noticed soon.
const GAP_MAX: f64 = 1_024.0;
/// The largest number of ranges with a load. If it is exceeded, only ranges with recent operations
/// are kept.
const TRACKED_MAX: usize = 4_096;

/// At up to this many reads per second, some additional files cost less than a thousandth of a
/// processor.
const READS_FEW: f64 = 1_000.0;
/// The same holds if there are at least this many writes for each read.
const WRITES_EACH: f64 = 8.0;

/// The loads of an open database.
///
/// Each operation decrements a counter. The operation that exhausts the counter is the sample: it
/// counts for all operations since the last sample, and it alone pays for finding the range. The
/// counter is then set for about [`SAMPLES_PER_SECOND`]. A slow load is therefore counted operation
/// by operation, and a fast one pays almost nothing.
pub(crate) struct LoadSampling {
    counters: [Counter; SLOTS],
    /// The bits of a hash that select the counter.
    mask: usize,
    is_on: AtomicBool,
    /// Wakes compaction when the additional files of a range have cost its readers as much as a
    /// merge.
    pub(in crate::lsm) bell: Bell,
    sampled: Mutex<Sampled>,
}

/// The amount of reading in a range, and its cost in additional files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Readers {
    /// So few reads that an additional file does not matter.
    Few,
    /// Each additional file matters. Also used if the reads are unknown, or if there is a limit on
    /// disk use.
    Some,
    /// The additional files have cost the readers as much as merging them does.
    Losing,
    /// As `Losing`, and it is the range's turn to be merged, however many bytes that rewrites.
    Served,
}

/// Alone in its cache lines, so that threads do not contend for them.
#[repr(align(128))]
struct Counter(AtomicU32);

struct Sampled {
    gaps: [Gap; SLOTS],
    rng: Rng,
    ranges: BTreeMap<RangeId, RangeLoad>,
    /// The time of the opening, and the times at which younger ranges were split or merged.
    opened: f64,
    made: BTreeMap<RangeId, f64>,
    /// Ranges that resulted from a split by load. They are merged by their load, not by their size.
    by_load: BTreeSet<RangeId>,
    /// The time of the last examination of the ranges.
    checked: Option<f64>,
    /// Ranges whose readers had lost enough at the last examination.
    losing: BTreeSet<RangeId>,
    froze: Option<Froze>,
}

/// The last freeze of a memtable on behalf of readers.
#[derive(Clone, Copy)]
struct Froze {
    at: f64,
    /// The id of the memtable. `u64::MAX` while the freeze is in progress, `None` if none could be
    /// frozen.
    memtable: Option<u64>,
}

/// The last setting of a counter.
#[derive(Clone, Copy)]
struct Gap {
    set: u32,
    mean: f64,
    at: f64,
}

/// A sampled operation, which counts for others.
pub(in crate::lsm) struct Due {
    slot: usize,
    /// The number of operations beyond the counter's remainder.
    pub(in crate::lsm) over: u32,
}

/// The range and the cost of an operation's key.
pub(super) struct Place {
    range: RangeId,
    /// The number of files that the key is looked for in, beyond the first.
    over: f64,
    /// The cost that readers may accumulate by them before they are merged, in rows.
    price: f64,
}

/// The type of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::lsm) enum Kind {
    Read,
    Write,
}

impl LoadSampling {
    /// The loads of a database that was opened at `now`, in seconds.
    pub(in crate::lsm) fn new(background: Background, now: f64) -> Self {
        let gap = Gap { set: 1, mean: 1.0, at: now };
        Self {
            counters: std::array::from_fn(|_| Counter(AtomicU32::new(1))),
            mask: if background == Background::Manual { 0 } else { SLOTS - 1 },
            is_on: AtomicBool::new(true),
            bell: Bell::default(),
            sampled: Mutex::new(Sampled {
                gaps: [gap; SLOTS],
                rng: Rng::from_seed(0),
                ranges: BTreeMap::new(),
                opened: now,
                made: BTreeMap::new(),
                by_load: BTreeSet::new(),
                checked: None,
                losing: BTreeSet::new(),
                froze: None,
            }),
        }
    }

    /// Reads per second of a range, rounded down.
    pub(in crate::lsm) fn reads(&self, range: RangeId, now: f64) -> u64 {
        // The cast saturates; it maps NaN and values below one to 0.
        self.sampled.lock().ranges.get(&range).map_or(0, |load| load.rates(now)[0] as u64)
    }

    /// Deducts `ops` operations from a counter; `Some` if one of them is the sample.
    #[inline]
    pub(in crate::lsm) fn take(&self, ops: u32) -> Option<Due> {
        if !self.is_on.load(Ordering::Relaxed) {
            return None;
        }
        let slot = self.slot();
        let counter = &self.counters[slot].0;
        let left = counter.load(Ordering::Relaxed);
        if left > ops {
            // Not one atomic step: losing a count to another thread costs less than the step would.
            counter.store(left - ops, Ordering::Relaxed);
            return None;
        }
        Some(Due { slot, over: ops - left })
    }

    /// The counter of this thread. Stacks are at least 128 KiB apart.
    #[inline]
    fn slot(&self) -> usize {
        let place = 0u8;
        let page = std::ptr::from_ref(&place).addr() >> 17;
        (page.wrapping_mul(0x9e37_79b1) >> 8) & self.mask
    }

    /// Enables or disables counting, for measuring its cost.
    pub(in crate::lsm) fn switch(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
    }

    /// Follows the split of a range at a key.
    pub(in crate::lsm) fn split(&self, range: RangeId, at: &[u8], parts: [RangeId; 2], now: f64) {
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

    /// Follows the merge of two neighbours.
    pub(in crate::lsm) fn join(&self, lower: RangeId, upper: RangeId, joined: RangeId, now: f64) {
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

    /// Counts the operation at `key` with the weight of all operations since the last sample.
    pub(super) fn sample(
        &self,
        due: &Due,
        place: Option<&Place>,
        key: &[u8],
        kind: Kind,
        now: f64,
    ) {
        let mut sampled = self.sampled.lock();
        let weight = sampled.set_counter(due, now, &self.counters[due.slot].0);
        let Some(place) = place else { return };
        let Some(load) = sampled.load_of(place.range, now) else { return };
        if kind == Kind::Write {
            return load.write(key, weight, now);
        }
        load.read(key, weight, now);
        load.lose(weight * place.over);
        let is_losing = place.over > 0.0 && load.lost() >= place.price;
        if is_losing && sampled.losing.insert(place.range) {
            drop(sampled);
            self.bell.ring(Lane::Compact);
        }
    }

    /// Starts the turn of each range whose readers have lost at least `price` and which had no turn
    /// lately. `price` is `None` if nothing overlaps the run of a range. `in_memory` says
    /// whether the memtables have any entry. Returns true if they are to be flushed for these
    /// turns; the caller then calls [`LoadSampling::record_frozen`]. For all ranges together this
    /// happens as rarely as for one.
    pub(in crate::lsm) fn begin_turns(
        &self,
        price: impl Fn(RangeId) -> Option<f64>,
        in_memory: bool,
        now: f64,
    ) -> bool {
        let mut sampled = self.sampled.lock();
        let Sampled { losing, ranges, froze, .. } = &mut *sampled;
        let mut began = false;
        losing.retain(|id| {
            let Some(load) = ranges.get_mut(id) else { return false };
            let Some(price) = price(*id) else {
                // Readers of older versions continue to lose, but no merge could help them.
                load.record_merged();
                return false;
            };
            let is_losing = load.lost() >= price;
            began |= is_losing && load.begin_turn(now);
            is_losing
        });
        let froze_lately = froze.is_some_and(|froze| now < froze.at + TURN_SECONDS);
        let freezes = began && in_memory && !froze_lately;
        if freezes {
            *froze = Some(Froze { at: now, memtable: Some(u64::MAX) });
        }
        freezes
    }

    /// Records that memtable `id` was frozen for readers, or that none could be.
    pub(in crate::lsm) fn record_frozen(&self, id: Option<u64>) {
        if let Some(froze) = &mut self.sampled.lock().froze {
            froze.memtable = id;
        }
    }

    /// The last memtable that was frozen for readers, or an upper bound while that is in progress.
    pub(in crate::lsm) fn frozen_for_readers(&self) -> Option<u64> {
        self.sampled.lock().froze.and_then(|froze| froze.memtable)
    }

    /// Records that nothing overlaps the run of the range any more.
    pub(in crate::lsm) fn record_merged(&self, range: RangeId) {
        let mut sampled = self.sampled.lock();
        sampled.losing.remove(&range);
        if let Some(load) = sampled.ranges.get_mut(&range) {
            load.record_merged();
        }
    }

    /// The class of the range's readers, if `price` is the cost of a merge on their behalf.
    pub(in crate::lsm) fn readers(
        &self,
        range: &FileRange,
        price: Option<MergePrice>,
        now: impl FnOnce() -> f64,
    ) -> Readers {
        let sampled = self.sampled.lock();
        match sampled.ranges.get(&range.id) {
            None => Readers::Some,
            // Independent of the rate of reads: the cost accumulates.
            Some(load) if load.lost() >= rows_of(range, price) => match load.is_in_turn() {
                true => Readers::Served,
                false => Readers::Losing,
            },
            Some(load) if few_read(load, now()) => Readers::Few,
            Some(_) => Readers::Some,
        }
    }

    /// The loads of the ranges in `version`; loads of other ranges are removed.
    pub(crate) fn loads(&self, version: &Version, now: f64) -> BTreeMap<RangeId, LoadSummary> {
        let mut sampled = self.sampled.lock();
        let ids: BTreeSet<_> = version.ranges.iter().map(|r| r.id).collect();
        sampled.ranges.retain(|id, load| ids.contains(id) && !load.is_idle(now));
        sampled.ranges.iter().map(|(id, load)| (*id, load.summary(now))).collect()
    }

    /// The ranges of `version` in key order, as input of decisions, after recording their sizes.
    /// `None` if ranges were examined less than [`LOOK_SECONDS`] ago.
    pub(in crate::lsm) fn range_states(
        &self,
        version: &Version,
        now: f64,
    ) -> Option<Vec<RangeState>> {
        let mut sampled = self.sampled.lock();
        if sampled.checked.is_some_and(|checked| now - checked < LOOK_SECONDS) {
            return None;
        }
        sampled.checked = Some(now);
        let ids: BTreeSet<_> = version.ranges.iter().map(|range| range.id).collect();
        sampled.made.retain(|id, _| ids.contains(id));
        sampled.ranges.retain(|id, _| ids.contains(id));
        sampled.by_load.retain(|id| ids.contains(id));
        let Sampled { ranges, made, opened, .. } = &mut *sampled;
        let states = version.ranges.iter().map(|range| {
            let bytes = range.bytes();
            let load = ranges.get_mut(&range.id).map(|load| {
                load.record_bytes(bytes, now);
                load.summary(now)
            });
            let age = now - made.get(&range.id).copied().unwrap_or(*opened);
            let (id, table, load) = (range.id, range.table, load.unwrap_or_default());
            RangeState { id, table, bytes, load, age }
        });
        Some(states.collect())
    }

    /// True if size alone decides whether two neighbours are merged, or if their loads permit it.
    pub(in crate::lsm) fn may_merge(
        &self,
        lower: RangeId,
        upper: RangeId,
        limits: &Limits,
        now: f64,
    ) -> bool {
        let sampled = self.sampled.lock();
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

    /// Splits or merges the loads of the ranges that an edit splits or merges.
    pub(in crate::lsm) fn follow_ranges(&self, edit: &VersionEdit, now: f64) {
        match (&*edit.remove_ranges, &*edit.add_ranges) {
            ([range], [lower, upper]) => {
                self.split(*range, &upper.span.low, [lower.id, upper.id], now);
            }
            ([lower, upper], [joined]) => self.join(*lower, *upper, joined.id, now),
            _ => {}
        }
    }

    /// The busiest range whose load has lasted and is divisible, and the key at which to split it.
    /// The range counts as split by load from now on. `None` if there is no such range, or if
    /// ranges were examined recently.
    pub(in crate::lsm) fn pick_by_load(
        &self,
        version: &Version,
        limits: &Limits,
        now: f64,
    ) -> Option<(RangeId, Box<[u8]>)> {
        let states = self.range_states(version, now)?;
        let hot = states.iter().filter_map(|range| Some((range, split_by_load(range, limits)?)));
        let (range, at) = hot.max_by(|a, b| a.0.load.ops().total_cmp(&b.0.load.ops()))?;
        let of_table = states.iter().filter(|other| other.table == range.table).count();
        let first = |pair: &&[RangeState]| matches!(pair, [a, b] if a.table == b.table);
        let mut sampled = self.sampled.lock();
        let minute = now - 60.0;
        let pace = Pace {
            database_splits: states.windows(2).filter(first).count(),
            splits_last_minute: sampled.made.values().filter(|made| **made > minute).count() / 2,
        };
        if !may_split(of_table, pace, limits) {
            return None;
        }
        sampled.by_load.insert(range.id);
        Some((range.id, at))
    }
}

impl Place {
    /// The place of `key`, in `range`.
    pub(super) fn new(range: &FileRange, key: &[u8], price: Option<MergePrice>) -> Self {
        let over = range.sources(key).count().saturating_sub(1) as f64;
        Self { range: range.id, over, price: rows_of(range, price) }
    }
}

/// The cost of a merge of the range in rows; infinite without merges on behalf of readers.
pub(in crate::lsm) fn rows_of(range: &FileRange, price: Option<MergePrice>) -> f64 {
    let rows = |price: MergePrice| price.rows + range.bytes() / price.bytes_per_row;
    price.map_or(f64::INFINITY, |price| rows(price) as f64)
}

/// True if reads are so few that an additional file does not matter.
fn few_read(load: &RangeLoad, now: f64) -> bool {
    let [reads, writes] = load.rates(now);
    reads <= READS_FEW && reads * WRITES_EACH <= writes
}

impl Sampled {
    /// Resets a counter that has run down. Returns the number of operations that it counted.
    fn set_counter(&mut self, due: &Due, now: f64, counter: &AtomicU32) -> f64 {
        let gap = &mut self.gaps[due.slot];
        let counted = f64::from(gap.set) + f64::from(due.over);
        let seconds = now - gap.at;
        let wanted = if seconds > 0.0 { counted / seconds / SAMPLES_PER_SECOND } else { GAP_MAX };
        // A burst at most doubles the mean, so that a slow phase after it is not missed.
        gap.mean = wanted.min(gap.mean * 2.0).clamp(1.0, GAP_MAX);
        debug_assert!(gap.mean >= 1.0, "at least one access per sample");
        // A random distance: with a fixed one, a program that cycles through its keys might show
        // only one of them.
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
            debug_assert!(self.ranges.len() <= TRACKED_MAX, "loads of few ranges are kept");
        }
        self.ranges.get_mut(&range)
    }
}

#[cfg(test)]
mod tests;

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
//! Locks: `sampled` is one of the small ones, and the innermost.
//!
//! Not here: what a load is (`ranges::load`), what follows from it (`ranges::decide`).

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
pub(crate) struct LoadSampling {
    counters: [Counter; SLOTS],
    /// Which bits of a hash choose the counter.
    mask: usize,
    is_on: AtomicBool,
    /// For compaction, when readers have lost enough.
    pub(in crate::lsm) bell: Bell,
    sampled: Mutex<Sampled>,
}

/// Who reads a range, and what its files cost them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Readers {
    /// So few that a file more is not felt.
    Few,
    /// Each file more is felt; also where nothing is known of them, or there is little disk.
    Some,
    /// By its files they have lost as much as it takes to merge them.
    Losing,
    /// The same, and the range has its turn to be merged, however much that writes anew.
    Served,
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
    checked: Option<f64>,
    /// Ranges whose readers had lost enough when that was looked at.
    losing: BTreeSet<RangeId>,
    froze: Option<Froze>,
}

/// What is in memory was frozen for readers.
#[derive(Clone, Copy)]
struct Froze {
    at: f64,
    /// The greatest number while it is being done, `None` if it could not be.
    memtable: Option<u64>,
}

/// How a counter was set last.
#[derive(Clone, Copy)]
struct Gap {
    set: u32,
    mean: f64,
    at: f64,
}

/// An operation that stands for others.
pub(in crate::lsm) struct Due {
    slot: usize,
    /// More than the counter had left.
    pub(in crate::lsm) over: u32,
}

/// Where an operation was.
pub(super) struct Place {
    range: RangeId,
    /// Files beside one that the key is looked for in.
    over: f64,
    /// What readers may lose by them before they are merged.
    price: f64,
}

/// What an operation does.
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

    /// Reads a second of a range, rounded down.
    pub(in crate::lsm) fn reads(&self, range: RangeId, now: f64) -> u64 {
        // What is not finite or below one becomes 0 or the greatest.
        let sampled = self.sampled.lock();
        sampled.ranges.get(&range).map_or(0, |load| load.rates(now)[0] as u64)
    }

    /// Takes `ops` operations off a counter; `Some` if one of them is the sample.
    #[inline]
    pub(in crate::lsm) fn take(&self, ops: u32) -> Option<Due> {
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
    pub(in crate::lsm) fn switch(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
    }

    /// A range was divided at a key.
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

    /// Two neighbours became one range.
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

    /// Counts the operation at `key` for all that it stands for.
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

    /// Ranges whose readers have lost as much as `price` says (`None` where nothing lies over the run), and which had no turn
    /// lately, have theirs. True if what is `in_memory`, if anything is, is to be flushed for
    /// that, and [`LoadSampling::record_frozen`]
    /// called: for all of them together as seldom as for one.
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
                // Who reads an older version goes on losing: no merge could help.
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

    /// Memtable `id` was frozen for readers, or none could be.
    pub(in crate::lsm) fn record_frozen(&self, id: Option<u64>) {
        if let Some(froze) = &mut self.sampled.lock().froze {
            froze.memtable = id;
        }
    }

    /// What was frozen for readers last, or is about to be: no memtable is newer than that.
    pub(in crate::lsm) fn frozen_for_readers(&self) -> Option<u64> {
        self.sampled.lock().froze.and_then(|froze| froze.memtable)
    }

    /// Nothing lies over the run of the range any more.
    pub(in crate::lsm) fn record_merged(&self, range: RangeId) {
        let mut sampled = self.sampled.lock();
        sampled.losing.remove(&range);
        if let Some(load) = sampled.ranges.get_mut(&range) {
            load.record_merged();
        }
    }

    /// Who reads the range, if `price` is what a merge for them costs.
    pub(in crate::lsm) fn readers(
        &self,
        range: &FileRange,
        price: Option<MergePrice>,
        now: impl FnOnce() -> f64,
    ) -> Readers {
        let sampled = self.sampled.lock();
        match sampled.ranges.get(&range.id) {
            None => Readers::Some,
            // However seldom they read: it adds up.
            Some(load) if load.lost() >= rows_of(range, price) => match load.is_in_turn() {
                true => Readers::Served,
                false => Readers::Losing,
            },
            Some(load) if few_read(load, now()) => Readers::Few,
            Some(_) => Readers::Some,
        }
    }

    /// The loads of the ranges that there are; those of others are forgotten.
    pub(crate) fn loads(&self, version: &Version, now: f64) -> BTreeMap<RangeId, LoadSummary> {
        let mut sampled = self.sampled.lock();
        let ids: BTreeSet<_> = version.ranges.iter().map(|r| r.id).collect();
        sampled.ranges.retain(|id, load| ids.contains(id) && !load.is_idle(now));
        let summaries = sampled.ranges.iter().map(|(id, load)| (*id, load.summary(now)));
        summaries.collect()
    }

    /// The ranges of `version` in key order, as decisions see them, with their sizes noted; `None` if they were looked at
    /// less than [`LOOK_SECONDS`] ago.
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

    /// True if size alone decides whether two neighbours are joined, or their load agrees.
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

    /// The loads go the way of the ranges that an edit divides or joins.
    pub(in crate::lsm) fn follow_ranges(&self, edit: &VersionEdit, now: f64) {
        match (&*edit.remove_ranges, &*edit.add_ranges) {
            ([range], [lower, upper]) => {
                self.split(*range, &upper.span.low, [lower.id, upper.id], now);
            }
            ([lower, upper], [joined]) => self.join(*lower, *upper, joined.id, now),
            _ => {}
        }
    }

    /// The hottest range whose load has lasted and divides, and where; it counts as divided by its load from now on. `None` if
    /// there is none, or ranges were looked at lately.
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
    /// Of `key`, in `range`.
    pub(super) fn new(range: &FileRange, key: &[u8], price: Option<MergePrice>) -> Self {
        let over = range.sources(key).count().saturating_sub(1) as f64;
        Self { range: range.id, over, price: rows_of(range, price) }
    }
}

/// What a merge of the range costs, in rows; endless if none is for readers.
pub(in crate::lsm) fn rows_of(range: &FileRange, price: Option<MergePrice>) -> f64 {
    let rows = |price: MergePrice| price.rows + range.bytes() / price.bytes_per_row;
    price.map_or(f64::INFINITY, |price| rows(price) as f64)
}

/// True for a load of which so little is reads that a file more is not felt.
fn few_read(load: &RangeLoad, now: f64) -> bool {
    let [reads, writes] = load.rates(now);
    reads <= READS_FEW && reads * WRITES_EACH <= writes
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
        debug_assert!(gap.mean >= 1.0, "of so many accesses one is sampled");
        // Not always the same distance: a program that goes commit group its keys would show one of them only.
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

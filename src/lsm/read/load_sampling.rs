//! Samples operations to measure the load of each range (`ranges::load`).
//!
//! Invariants
//! * loads are kept in memory, separate from the version. They start empty at each opening. When
//!   ranges are split or merged, so are their loads;
//! * with `Background::Manual` all threads share one counter, so that the numbers are reproducible.
//!   Otherwise the address of a thread's stack selects its counter, and a count may be lost;
//! * a key whose entries are only in memtables may belong to no range yet; it then has no load.
//!
//! Locks: `sampled`. While it is held, no other lock is taken.

use std::collections::BTreeMap;

use crate::executor::{Bell, Lane};
use crate::format::edit::VersionEdit;
use crate::format::names::{RangeId, TableId};
use crate::manifest::{FileRange, Version};
use crate::memtable::Memtable;
use crate::model::Seq;
use crate::options::{Background, MergePrice};
use crate::ranges::decide::{Limits, Pace, RangeState, may_split, should_merge, split_by_load};
use crate::ranges::load::{LoadSummary, RangeLoad, TURN_SECONDS};
use crate::rng::Rng;
use crate::sort::{SortedMap, SortedSet, sort_by};
use crate::sync::{AtomicBool, AtomicU32, Mutex, Ordering};

/// The interval, in seconds, at which ranges are examined. Splits and merges depend on minutes of
/// load, so a shorter interval would not help.
const LOOK_SECONDS: f64 = 10.0;
/// The number of counters. If more threads exist, some share a counter.
const SLOTS: usize = 16;
/// The target rate of samples for each counter. A sample costs about 0.5 µs, so sampling uses less
/// than a thousandth of a processor.
const SAMPLES_PER_SECOND: f64 = 1_000.0;
/// The largest mean number of operations between two samples. The limit ensures that a low load
/// after a high one is noticed soon.
const GAP_MAX: f64 = 1_024.0;
/// The maximum number of ranges whose load is kept. If there are more, ranges without recent
/// operations are dropped.
const TRACKED_MAX: usize = 4_096;

/// The cost of extra files (see [`Readers`]) is ignored only up to this many reads per second. At
/// this rate, searching a few extra files costs less than a thousandth of a processor.
const READS_FEW: f64 = 1_000.0;
/// The cost of extra files is ignored only if there are also at least this many writes for each
/// read.
const WRITES_EACH: f64 = 8.0;
/// There is a pause in writing if nothing was written for this many seconds.
const PAUSE_SECONDS: f64 = 0.1;
/// During a pause the cost of reads counts this many times, so that a merge pays off earlier:
/// background work then delays no writer, and the merge makes all later reads of the pause faster.
const PAUSE_TIMES: f64 = 8.0;
/// If the average row has at least this many bytes, a merge costs more than reads lose by one more
/// file.
const LONG_ROW_BYTES: u64 = 512;

/// The loads of an open database.
///
/// Each operation decrements a counter. The operation that exhausts it is the sample: it represents
/// all operations since the previous sample, and only it pays for finding the range. The counter is
/// then reset so that about [`SAMPLES_PER_SECOND`] samples are taken. Therefore each operation is a
/// sample under a low load, and sampling costs almost nothing under a high load.
pub(crate) struct LoadSampling {
    counters: [Counter; SLOTS],
    /// The mask that maps the hash of a thread's stack address to the thread's counter.
    mask: usize,
    is_on: AtomicBool,
    /// Wakes compaction when the extra files of a range have cost its readers as much as a merge
    /// costs.
    pub(in crate::lsm) bell: Bell,
    sampled: Mutex<Sampled>,
}

/// How much a range is read, and what its extra files have cost the readers. If a read must search
/// several files for a key, all but one of these are *extra* files of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Readers {
    /// There are so few reads that an extra file does not matter.
    Few,
    /// Each extra file matters. Also used if the rate of reads is unknown, or if disk use is
    /// limited.
    Some,
    /// Extra files have cost the readers as much as merging would cost.
    Losing,
    /// As `Losing`, and the range is in a *turn*: it is merged regardless of the number of bytes
    /// that the merge rewrites. Each range starts at most one turn an hour.
    Served,
}

/// A counter, aligned so that threads do not contend for its cache lines.
#[repr(align(128))]
struct Counter(AtomicU32);

struct Sampled {
    gaps: [Gap; SLOTS],
    rng: Rng,
    ranges: SortedMap<RangeId, RangeLoad>,
    /// `opened` is the time, in seconds, at which the database was opened. `made` contains each
    /// range that a split or a merge created since then, with the time of its creation.
    opened: f64,
    made: SortedMap<RangeId, f64>,
    /// Ranges that resulted from a split by load. They are merged by load, not by size.
    by_load: SortedSet<RangeId>,
    /// When the ranges were last examined.
    checked: Option<f64>,
    /// Ranges that should be merged: when they were last examined, their unmerged files had already
    /// cost readers as much as a merge costs.
    losing: SortedSet<RangeId>,
    /// The newest write that a sample has seen, and when it was first seen.
    newest: (Seq, f64),
    /// The number of memtable rows that scans have merged during pauses.
    in_memory: f64,
    froze: Option<Froze>,
    /// When background work looks for what is due; infinite if it did.
    look_at: f64,
}

/// The last freeze of a memtable to speed up reads.
#[derive(Clone, Copy)]
struct Froze {
    at: f64,
    /// The id of the memtable: `u64::MAX` while the freeze is in progress, `None` if no memtable
    /// could be frozen.
    memtable: Option<u64>,
}

/// The last reset of a counter: the random value to which it was set, the mean of the random
/// distribution, and the time.
#[derive(Clone, Copy)]
struct Gap {
    set: u32,
    mean: f64,
    at: f64,
}

/// A sampled operation, which represents all operations since the previous sample.
pub(in crate::lsm) struct Due {
    slot: usize,
    /// The number of operations that exceeded the count left in the counter.
    pub(in crate::lsm) over: u32,
}

/// The range of an operation's key, and the cost of reading the key.
pub(super) struct Place {
    range: RangeId,
    /// The number of extra files in which a read searches for the key.
    over: f64,
    /// The accumulated cost of reads, in rows, at which a merge of the range pays off.
    price: f64,
    /// True if rows of the range are long, so that merges do not pay off earlier during a pause.
    is_long: bool,
}

/// The state of memory at a sampled operation.
pub(super) struct Memory {
    /// The newest write.
    pub(super) newest: Seq,
    /// If a scan read a row of the active memtable: the accumulated cost, in rows, at which a flush
    /// pays off. Otherwise infinite.
    pub(super) price: f64,
}

/// The type of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::lsm) enum Operation {
    Get,
    Scan,
    Write,
}

impl LoadSampling {
    /// Creates the loads of a database opened at `now`, in seconds.
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
                ranges: SortedMap::default(),
                opened: now,
                made: SortedMap::default(),
                by_load: SortedSet::default(),
                checked: None,
                losing: SortedSet::default(),
                newest: (Seq::ZERO, now),
                in_memory: 0.0,
                froze: None,
                look_at: f64::INFINITY,
            }),
        }
    }

    /// Signals flush and compaction at the first read at or after `at`, in seconds.
    pub(in crate::lsm) fn look_at(&self, at: f64) {
        self.sampled.lock().look_at = at;
    }

    /// Returns the reads per second of a range, rounded down.
    pub(in crate::lsm) fn reads(&self, range: RangeId, now: f64) -> u64 {
        // The cast saturates; it maps NaN and values below one to 0.
        self.sampled.lock().ranges.get(&range).map_or(0, |load| load.rates(now)[0] as u64)
    }

    /// Deducts `ops` operations from this thread's counter. Returns `Some` if one of them is to be
    /// sampled.
    #[inline]
    pub(in crate::lsm) fn take(&self, ops: u32) -> Option<Due> {
        if !self.is_on.load(Ordering::Relaxed) {
            return None;
        }
        let slot = self.slot();
        let counter = &self.counters[slot].0;
        let left = counter.load(Ordering::Relaxed);
        if left > ops {
            // The load and the store together are not atomic, so another thread's count may be
            // lost. This costs less than an atomic subtraction.
            counter.store(left - ops, Ordering::Relaxed);
            return None;
        }
        Some(Due { slot, over: ops - left })
    }

    /// Returns the index of this thread's counter. It depends on the address of a local variable;
    /// the stacks of two threads are at least 128 KiB apart.
    #[inline]
    fn slot(&self) -> usize {
        let place = 0u8;
        let page = std::ptr::from_ref(&place).addr() >> 17;
        (page.wrapping_mul(0x9e37_79b1) >> 8) & self.mask
    }

    /// Enables or disables counting. Used to measure its cost.
    pub(in crate::lsm) fn switch(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
    }

    /// Splits the load of a range that was split at key `at`.
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

    /// Joins the loads of two neighbours that were merged.
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

    /// Records the operation at `key`, weighted by all operations since the previous sample.
    pub(super) fn sample(
        &self,
        due: &Due,
        place: Option<&Place>,
        memory: &Memory,
        key: &[u8],
        by: Operation,
        now: f64,
    ) {
        let mut sampled = self.sampled.lock();
        let weight = sampled.set_counter(due, now, &self.counters[due.slot].0);
        let is_pause = sampled.is_pause(memory.newest, now);
        let mut is_due = is_pause && sampled.lose_in_memory(weight, memory.price, now);
        let looks = by != Operation::Write && sampled.looks(now);
        if let Some(place) = place
            && let Some(load) = sampled.load_of(place.range, now)
        {
            if by == Operation::Write {
                return load.write(key, weight, now);
            }
            load.read(key, weight, now);
            load.lose(
                weight * place.over * if is_pause && !place.is_long { PAUSE_TIMES } else { 1.0 },
            );
            let is_losing = place.over > 0.0 && load.lost() >= place.price;
            is_due |= is_losing && sampled.losing.insert(place.range);
        }
        drop(sampled);
        if looks {
            self.bell.ring(Lane::Flush);
        }
        if is_due || looks {
            self.bell.ring(Lane::Compact);
        }
    }

    /// Starts the turn (see [`Readers::Served`]) of each range whose extra files have cost readers
    /// at least `price`, unless the range had a turn in the last hour. `price` returns `None` if
    /// the range has nothing to merge. `memory` is the price of a flush, see [`memory_rows_of`];
    /// `None` if the active memtable is empty.
    ///
    /// Returns true if the active memtable is to be frozen for these turns, or because its rows
    /// have cost scans as much as a flush costs. This happens at most once an hour in the whole
    /// database. The caller then calls [`LoadSampling::record_frozen`].
    pub(in crate::lsm) fn begin_turns(
        &self,
        price: impl Fn(RangeId) -> Option<f64>,
        memory: Option<f64>,
        now: f64,
    ) -> bool {
        let mut sampled = self.sampled.lock();
        let froze_lately = sampled.froze_lately(now);
        let Sampled { losing, ranges, in_memory, froze, .. } = &mut *sampled;
        let mut began = memory.is_some_and(|price| *in_memory >= price);
        losing.retain(|id| {
            let Some(load) = ranges.get_mut(id) else { return false };
            let Some(price) = price(*id) else {
                // Nothing is left to merge. Reads through older views, which still have the merged
                // files, add costs that no merge could reduce.
                load.record_merged();
                return false;
            };
            let is_losing = load.lost() >= price;
            began |= is_losing && load.begin_turn(now);
            is_losing
        });
        let freezes = began && memory.is_some() && !froze_lately;
        if freezes {
            *in_memory = 0.0;
            *froze = Some(Froze { at: now, memtable: Some(u64::MAX) });
        }
        freezes
    }

    /// Records that memtable `id` was frozen to speed up reads, or that no memtable could be
    /// frozen.
    pub(in crate::lsm) fn record_frozen(&self, id: Option<u64>) {
        if let Some(froze) = &mut self.sampled.lock().froze {
            froze.memtable = id;
        }
    }

    /// Returns the id of the last memtable that was frozen to speed up reads, or an upper bound of
    /// the id while the freeze is in progress.
    pub(in crate::lsm) fn frozen_for_readers(&self) -> Option<u64> {
        self.sampled.lock().froze.and_then(|froze| froze.memtable)
    }

    /// Records that the range has nothing to merge any more.
    pub(in crate::lsm) fn record_merged(&self, range: RangeId) {
        let mut sampled = self.sampled.lock();
        sampled.losing.remove(&range);
        if let Some(load) = sampled.ranges.get_mut(&range) {
            load.record_merged();
        }
    }

    /// Classifies the range's reads. `price` is the price of a merge that speeds up reads.
    pub(in crate::lsm) fn readers(
        &self,
        range: &FileRange,
        price: Option<MergePrice>,
        now: impl FnOnce() -> f64,
    ) -> Readers {
        let sampled = self.sampled.lock();
        match sampled.ranges.get(&range.id) {
            None => Readers::Some,
            // The current rate of reads does not matter here, because the cost has accumulated over
            // time.
            Some(load) if load.lost() >= rows_of(range, price) => match load.is_in_turn() {
                true => Readers::Served,
                false => Readers::Losing,
            },
            Some(load) if few_read(load, now()) => Readers::Few,
            Some(_) => Readers::Some,
        }
    }

    /// Returns the loads of the ranges in `version`, and removes those of other ranges.
    pub(crate) fn loads(&self, version: &Version, now: f64) -> BTreeMap<RangeId, LoadSummary> {
        let mut sampled = self.sampled.lock();
        let ids = sorted_ids(version);
        let exists = |id: &RangeId| ids.binary_search(id).is_ok();
        sampled.ranges.retain(|id, load| exists(id) && !load.is_idle(now));
        sampled.ranges.iter().map(|(id, load)| (*id, load.summary(now))).collect()
    }

    /// Records the sizes of the ranges of `version` and returns them in key order, as input for
    /// deciding on splits and merges. Returns `None` if ranges were examined less than
    /// [`LOOK_SECONDS`] ago.
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
        let ids = sorted_ids(version);
        let exists = |id: &RangeId| ids.binary_search(id).is_ok();
        sampled.made.retain(|id, _| exists(id));
        sampled.ranges.retain(|id, _| exists(id));
        sampled.by_load.retain(exists);
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

    /// True if two neighbours may be merged. Load is relevant only if one of them resulted from a
    /// split by load.
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

    /// Chooses a range to split: of the ranges whose load has lasted long enough and can be divided
    /// by a key, the one with the highest load. Returns the range and the split key, and treats the
    /// range as split by load from now on. Returns `None` if there is no such range, or if ranges
    /// were examined recently.
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
    /// Creates the place of `key`, which must be in `range`.
    pub(super) fn new(range: &FileRange, key: &[u8], price: Option<MergePrice>) -> Self {
        let over = range.sources(key).count().saturating_sub(1) as f64;
        let metas = || range.references().map(|(_, reference)| &reference.file.meta);
        let (bytes, entries) =
            (metas().map(|it| it.bytes).sum(), metas().map(|it| it.entries).sum());
        Self {
            range: range.id,
            over,
            price: rows_of(range, price),
            is_long: are_long(bytes, entries),
        }
    }
}

/// True if the average of `entries` rows with `bytes` bytes is long. Also true for no rows.
pub(in crate::lsm) fn are_long(bytes: u64, entries: u64) -> bool {
    bytes >= entries.saturating_mul(LONG_ROW_BYTES)
}

/// Returns the accumulated cost of reads, in rows, at which a merge of the range pays off; infinite
/// if such merges are disabled.
pub(in crate::lsm) fn rows_of(range: &FileRange, price: Option<MergePrice>) -> f64 {
    rows_of_bytes(range.bytes(), price)
}

/// Returns the accumulated cost of scans, in rows, at which a flush of `memtable` pays off:
/// infinite if its rows are long or if such flushes are disabled.
pub(in crate::lsm) fn memory_rows_of(memtable: &Memtable, price: Option<MergePrice>) -> f64 {
    let bytes = memtable.payload_bytes() as u64;
    rows_of_bytes(bytes, price.filter(|_| !are_long(bytes, memtable.len() as u64)))
}

fn rows_of_bytes(bytes: u64, price: Option<MergePrice>) -> f64 {
    price.map_or(f64::INFINITY, |price| (price.rows + bytes / price.bytes_per_row) as f64)
}

fn sorted_ids(version: &Version) -> Vec<RangeId> {
    let mut ids: Vec<RangeId> = version.ranges.iter().map(|range| range.id).collect();
    sort_by(&mut ids, Ord::cmp);
    ids
}

/// True if the reads are so few that an extra file does not matter.
fn few_read(load: &RangeLoad, now: f64) -> bool {
    let [reads, writes] = load.rates(now);
    reads <= READS_FEW && reads * WRITES_EACH <= writes
}

impl Sampled {
    /// Resets an exhausted counter. Returns the number of operations that it counted.
    fn set_counter(&mut self, due: &Due, now: f64, counter: &AtomicU32) -> f64 {
        let gap = &mut self.gaps[due.slot];
        let counted = f64::from(gap.set) + f64::from(due.over);
        let seconds = now - gap.at;
        let wanted = if seconds > 0.0 { counted / seconds / SAMPLES_PER_SECOND } else { GAP_MAX };
        // Each reset at most doubles the mean distance between samples, so that a phase of low load
        // after a burst is not missed.
        gap.mean = wanted.min(gap.mean * 2.0).clamp(1.0, GAP_MAX);
        debug_assert!(gap.mean >= 1.0, "at least one access per sample");
        // Use a random distance. With a fixed one, samples of a program that cycles through its
        // keys might all hit the same key.
        gap.set = 1 + self.rng.below(2 * gap.mean as u64 - 1) as u32;
        gap.at = now;
        counter.store(gap.set, Ordering::Relaxed);
        counted
    }

    /// True once, at or after the time `look_at`.
    fn looks(&mut self, now: f64) -> bool {
        let looks = now >= self.look_at;
        if looks {
            self.look_at = f64::INFINITY;
        }
        looks
    }

    /// True if nothing was written for [`PAUSE_SECONDS`]. `newest` is the newest write in the
    /// caller's view.
    fn is_pause(&mut self, newest: Seq, now: f64) -> bool {
        if newest > self.newest.0 {
            self.newest = (newest, now);
        }
        now - self.newest.1 >= PAUSE_SECONDS
    }

    /// Adds the cost of `weight` rows that a scan read from the memtable. Returns true if the
    /// memtable is to be flushed.
    fn lose_in_memory(&mut self, weight: f64, price: f64, now: f64) -> bool {
        if price.is_finite() {
            self.in_memory += weight * PAUSE_TIMES;
        }
        self.in_memory >= price && !self.froze_lately(now)
    }

    /// True if a memtable was frozen to speed up reads in the last hour.
    fn froze_lately(&self, now: f64) -> bool {
        self.froze.is_some_and(|froze| now < froze.at + TURN_SECONDS)
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

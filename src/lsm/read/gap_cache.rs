//! Caches *gaps*: key spans without a visible row, which forward scans skip. Without gaps, each
//! search for the first row of a queue table would read the tombstones of all removed rows.
//!
//! Invariants
//! * A reader at the Seq of a gap or later sees no row in the gap: a commit cuts its puts out of
//!   all gaps before it is published. A reader queries gaps after it has loaded its Seq.
//! * A view pinned before the memtable of a gap was active does not use the gap.
//! * If there are no gaps and no proposed gaps (*offers*), a commit or scan only loads a counter.
//!
//! Locks: the mutex of the list. Adding or cutting a gap also requires the commit lock.

use smallvec::SmallVec;

use crate::memtable::Memtable;
use crate::model::Seq;
use crate::mutants::mutant;
use crate::sync::{AtomicU64, Mutex, Ordering};

/// The maximum number of gaps in a database. The least recently used gap is evicted.
const GAPS_MAX: usize = 64;
/// The maximum number of pending offers; further offers are dropped.
const OFFERS_MAX: usize = 8;
/// The maximum number of entries newer than an offer that are examined to turn the offer into a
/// gap. If there are more, the offer is dropped.
const NEWER_MAX: usize = 256;
/// The longest key, in bytes, that is used as a bound of a gap.
const KEY_BYTES_MAX: usize = 1024;
/// The amount that an offer adds to `GapCache::counts`. A gap adds 1.
const OFFER: u64 = 1 << 32;

/// The gaps of an open database.
///
/// 1. A scan that skipped many dead entries before its first row offers the span, with the Seq at
///    which it reads ([`Head`]).
/// 2. The next commit or read caches the offered gap under the commit lock. It cuts out every key
///    that was put above the gap's Seq. These puts are among the newest entries of the active
///    memtable. If too many entries would have to be examined, the offer is dropped.
/// 3. A put cuts its key out of the gap that contains it. This happens under the commit lock, and
///    therefore before the put is published.
/// 4. An import of files removes all gaps, also under the commit lock (`ingest`). Nothing else
///    makes a row visible.
#[derive(Default)]
pub(crate) struct GapCache {
    /// The number of gaps, plus [`OFFER`] for each pending offer.
    counts: AtomicU64,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    /// Gaps in ascending order, which neither overlap nor touch.
    gaps: Vec<Gap>,
    offers: Vec<Offer>,
    /// The total number of uses, which serves as a clock for evicting gaps.
    uses: u64,
    /// How many times a scan has skipped a gap.
    passed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Gap {
    low: Box<[u8]>,
    /// The exclusive upper bound.
    high: Box<[u8]>,
    /// The gap is valid for readers at this Seq or later.
    from: Seq,
    /// The id of the memtable that was active at Seq `from`.
    memtable: u64,
    /// The value of `uses` when the gap was last used.
    used: u64,
}

struct Offer {
    gap: Gap,
    pinned: Pinned,
}

/// The properties of a scan's view that decide which gaps the scan may use or offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lsm) struct Pinned {
    memtable: u64,
    /// See [`RangeTombstones::newest`](super::range_tombstones::RangeTombstones::newest).
    newest: Seq,
    /// True if the scan may offer gaps. This requires that all commits above its Seq are in the
    /// active memtable.
    may_offer: bool,
}

/// The *head* of a scan: its part before the first row.
pub(in crate::lsm) struct Head {
    pinned: Pinned,
    /// The key at which the scan started.
    low: SmallVec<[u8; 64]>,
    /// True until the first row is found.
    pub(in crate::lsm) is_open: bool,
    /// The number of dead entries examined: entries that are not a visible row.
    dead: u32,
    /// The number of gaps skipped.
    gaps: u32,
}

impl GapCache {
    fn is_in_use(&self) -> bool {
        self.counts.load(Ordering::Acquire) > 0
    }

    #[inline]
    pub(in crate::lsm) fn has_offers(&self) -> bool {
        self.counts.load(Ordering::Acquire) >= OFFER
    }

    /// Returns how many times a scan has skipped a gap.
    pub(in crate::lsm) fn passed(&self) -> u64 {
        self.list.lock().passed
    }

    fn change(&self, change: impl FnOnce(&mut List)) {
        let mut list = self.list.lock();
        change(&mut list);
        debug_assert!(list.gaps.len() <= GAPS_MAX, "gaps are few");
        let counts = list.gaps.len() as u64 + OFFER * list.offers.len() as u64;
        // Store the counter under the lock, so that after a gap was added every commit sees in the
        // counter that gaps exist.
        self.counts.store(counts, Ordering::Release);
    }

    /// Removes all gaps. Requires the commit lock.
    pub(in crate::lsm) fn clear(&self) {
        if self.is_in_use() {
            self.change(|list| {
                list.gaps.clear();
                list.offers.clear();
            });
        }
    }

    fn offer(&self, offer: Offer) {
        if self.counts.load(Ordering::Relaxed) < OFFER * OFFERS_MAX as u64 {
            self.change(|list| list.offers.push(offer));
        }
    }

    /// Turns the pending offers into gaps, and cuts the keys `puts` out of all gaps. Requires the
    /// commit lock. `active` is the active memtable, and `newest` is the Seq of the newest range
    /// tombstone of its view. Every put with a Seq above that of an offer must be in `active` or in
    /// `puts`.
    pub(in crate::lsm) fn apply_offers<'k>(
        &self,
        active: &Memtable,
        newest: Seq,
        puts: impl Iterator<Item = &'k [u8]>,
    ) {
        if !self.is_in_use() {
            return;
        }
        self.change(|list| {
            for offer in std::mem::take(&mut list.offers) {
                let Offer { gap, pinned } = offer;
                if pinned.memtable == active.id && pinned.newest == newest {
                    list.take_over(gap, active);
                }
            }
            if !mutant!("stale-gap") {
                puts.for_each(|key| list.cut(key));
            }
        });
    }

    /// Returns the end of the gap that contains `key`, if a reader at `at` may use it.
    fn end(&self, key: &[u8], at: Seq, pinned: Pinned) -> Option<Box<[u8]>> {
        if !self.is_in_use() {
            return None;
        }
        let mut list = self.list.lock();
        let used = list.uses + 1;
        let gap = list.find(key)?;
        if gap.from > at || gap.memtable > pinned.memtable {
            return None;
        }
        gap.used = used;
        let high = gap.high.clone();
        (list.uses, list.passed) = (used, list.passed + 1);
        Some(high)
    }
}

impl List {
    fn find(&mut self, key: &[u8]) -> Option<&mut Gap> {
        let behind = self.gaps.partition_point(|gap| *gap.low <= *key);
        let gap = self.gaps.get_mut(behind.checked_sub(1)?)?;
        (*key < *gap.high).then_some(gap)
    }

    /// Adds `gap` and cuts the keys out of it that were put into `active` after the gap's Seq.
    /// Drops `gap` if more than [`NEWER_MAX`] entries of `active` are newer than the gap.
    fn take_over(&mut self, gap: Gap, active: &Memtable) {
        let mut puts: Vec<&[u8]> = Vec::new();
        let is_all = active.newer_than(gap.from, NEWER_MAX, |key, is_put| {
            if is_put && *gap.low <= *key && *key < *gap.high {
                puts.push(key);
            }
        });
        if is_all {
            puts.sort_unstable();
            puts.dedup();
            let mut rest = Some(gap);
            for key in puts {
                let Some(gap) = rest.take() else { return };
                let (below, above) = gap.without(key);
                below.into_iter().for_each(|gap| self.add(gap));
                rest = above;
            }
            rest.into_iter().for_each(|gap| self.add(gap));
        }
    }

    /// Adds `gap`, merged with all gaps that it overlaps or touches.
    fn add(&mut self, mut gap: Gap) {
        debug_assert!(gap.low < gap.high, "a gap has room for a key");
        let first = self.gaps.partition_point(|other| other.high < gap.low);
        let last = self.gaps.partition_point(|other| other.low <= gap.high);
        if let [only] = &self.gaps[first..last]
            && only.low <= gap.low
            && only.high >= gap.high
        {
            return;
        }
        for other in self.gaps.drain(first..last) {
            gap.low = gap.low.min(other.low);
            gap.high = gap.high.max(other.high);
            gap.from = gap.from.max(other.from);
            gap.memtable = gap.memtable.max(other.memtable);
        }
        gap.used = self.uses + 1;
        self.uses = gap.used;
        self.gaps.insert(first, gap);
        let in_order = |gaps: &[Gap]| gaps.is_sorted_by(|a, b| a.high < b.low);
        debug_assert!(in_order(&self.gaps), "gaps ascend and none touches another");
        self.keep_few();
    }

    /// Cuts `key` out of the gap that contains it.
    fn cut(&mut self, key: &[u8]) {
        let at = self.gaps.partition_point(|gap| *gap.low <= *key);
        let Some(at) = at.checked_sub(1).filter(|at| *key < *self.gaps[*at].high) else { return };
        let (below, above) = self.gaps.remove(at).without(key);
        debug_assert!(at <= self.gaps.len(), "a gap is cut where it was");
        self.gaps.splice(at..at, below.into_iter().chain(above));
        self.keep_few();
    }

    fn keep_few(&mut self) {
        if self.gaps.len() > GAPS_MAX {
            let oldest = self.gaps.iter().enumerate().min_by_key(|(_, gap)| gap.used);
            if let Some((oldest, _)) = oldest {
                self.gaps.remove(oldest);
            }
        }
    }
}

impl Gap {
    /// Divides the gap into the parts below and above `key`, which must be in the gap.
    fn without(self, key: &[u8]) -> (Option<Gap>, Option<Gap>) {
        debug_assert!(*self.low <= *key && *key < *self.high, "the key is in the gap");
        let above = Gap { low: behind(key), ..self.clone() };
        let below = Gap { high: key.into(), ..self };
        (Some(below).filter(Gap::is_any), Some(above).filter(Gap::is_any))
    }

    fn is_any(&self) -> bool {
        self.low < self.high
    }
}

/// Returns the least key above `key`.
fn behind(key: &[u8]) -> Box<[u8]> {
    [key, &[0]].concat().into()
}

impl Pinned {
    /// Describes a scan at `at`, which is the published Seq if `is_newest`. `memtables` are the
    /// memtables of the scan's view, newest first. `newest` is the Seq of the view's newest range
    /// tombstone.
    pub(in crate::lsm) fn new<'m>(
        mut memtables: impl Iterator<Item = &'m Memtable>,
        newest: Seq,
        at: Seq,
        is_newest: bool,
    ) -> Self {
        let memtable = memtables.next().map_or(0, |memtable| memtable.id);
        let is_older = |seq: Option<Seq>| seq.is_none_or(|seq| seq <= at);
        // The view may contain an import or a drop that is not published yet. This scan ignores it,
        // but later scans that use the gap would not, so this scan must not offer a gap.
        let is_shown = newest <= at;
        let may_offer = is_newest && is_shown && memtables.all(|frozen| is_older(frozen.seq_max()));
        Self { memtable, newest, may_offer }
    }
}

impl Head {
    /// Returns the state of a scan that neither offers nor uses gaps.
    pub(in crate::lsm) fn closed() -> Self {
        let pinned = Pinned { memtable: 0, newest: Seq::ZERO, may_offer: false };
        Self { pinned, low: SmallVec::new(), is_open: false, dead: 0, gaps: 0 }
    }

    /// Returns the state of a scan that has not started.
    pub(in crate::lsm) fn new(pinned: Pinned) -> Self {
        Self { pinned, ..Self::closed() }
    }

    /// Starts the scan at `low`. If `low` is in a gap, returns the key to which the scan may skip.
    #[inline]
    pub(in crate::lsm) fn begin(
        &mut self,
        gaps: &GapCache,
        low: &[u8],
        at: Seq,
    ) -> Option<Box<[u8]>> {
        (self.is_open, self.dead, self.gaps) = (true, 0, 0);
        self.low.clear();
        self.low.extend_from_slice(low);
        let high = gaps.end(low, at, self.pinned)?;
        self.gaps = 1;
        Some(high)
    }

    /// Counts a dead entry with `key`. If it is in a gap, returns the key to which the scan may
    /// skip. Queries the gaps only at intervals, because a query costs more than examining an
    /// entry.
    pub(in crate::lsm) fn pass(
        &mut self,
        gaps: &GapCache,
        key: &[u8],
        at: Seq,
    ) -> Option<Box<[u8]>> {
        self.dead = self.dead.saturating_add(1);
        if !(self.dead.is_power_of_two() || self.dead.is_multiple_of(16)) {
            return None;
        }
        let high = gaps.end(key, at, self.pinned)?;
        self.gaps += 1;
        Some(high)
    }

    /// Ends the head at the first row, which has the key `high`. Offers a gap if at least `min`
    /// dead entries were examined. If a gap was skipped, a quarter of `min` is enough to extend the
    /// gap, because a queue is searched from the same key repeatedly. Several skipped gaps are
    /// always offered as one.
    pub(in crate::lsm) fn end_at_row(&mut self, gaps: &GapCache, high: &[u8], at: Seq, min: u32) {
        self.is_open = false;
        let min = if self.gaps > 0 { min.div_ceil(4) } else { min };
        if self.dead >= min || self.gaps > 1 {
            self.offer(gaps, high.into(), at);
        }
    }

    /// Ends the head of a scan that has found no row. `last` is the last key that the scan
    /// examined.
    pub(in crate::lsm) fn end(&mut self, gaps: &GapCache, last: &[u8], at: Seq, min: u32) {
        self.is_open = false;
        if self.dead >= min {
            // End the gap at the last key, not at the end of the span, so that a later put after
            // all keys does not cut it.
            self.offer(gaps, behind(last), at);
        }
    }

    #[cold]
    fn offer(&self, gaps: &GapCache, high: Box<[u8]>, at: Seq) {
        let is_short = self.low.len().max(high.len()) <= KEY_BYTES_MAX;
        if self.pinned.may_offer && is_short && *self.low < *high {
            let (low, memtable) = (self.low.as_slice().into(), self.pinned.memtable);
            let gap = Gap { low, high, from: at, memtable, used: 0 };
            gaps.offer(Offer { gap, pinned: self.pinned });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

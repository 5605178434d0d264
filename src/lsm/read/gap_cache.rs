//! Remembered gaps: spans without a visible row, which forward scans pass over at once.
//!
//! A queue takes rows at its head and leaves tombstones there, in memory and in files. Whoever looks for the new head would
//! walk over all of them, again and again.
//!
//! 1. A scan that passed many dead entries before its first row offers the span, with the Seq it reads at ([`Head`]).
//! 2. The next commit, or the next read, takes it over under the commit lock, and cuts out every key that was put above
//!    that Seq: such puts are among the newest entries of the active memtable, or there are too many to look.
//! 3. A put cuts its key out of the gap that holds it, under the commit lock and so before it is published.
//! 4. Rows that come in as files end all gaps, likewise (`ingest`). Nothing else makes a row visible.
//!
//! Invariants
//! * nobody who reads at the Seq of a gap or later, up to what is published, sees a row in it;
//!   tombstones and range tombstones that
//!   follow only hide more;
//! * a reader asks after it took its Seq: a put at or below that has cut its gap by then;
//! * a view that lacks a memtable with commits up to the gap's Seq, for it was pinned before, does not use the gap: it
//!   would miss what these commits deleted, and not show what they put;
//! * without gaps and offers a commit and a scan pay for one load of a counter.
//!
//! Locks: the list's own, inside the commit lock wherever gaps are added or cut.
//!
//! Not here: which entries are dead (`scan`).

use smallvec::SmallVec;

use crate::memtable::Memtable;
use crate::model::Seq;
use crate::mutants::mutant;
use crate::sync::{AtomicU64, Mutex, Ordering};

/// Gaps of a database. The one that was used last stays longest.
const GAPS_MAX: usize = 64;
/// Offers that wait; more are not worth a wait.
const OFFERS_MAX: usize = 8;
/// Entries above an offer's Seq that are looked at.
const NEWER_MAX: usize = 256;
/// Keys longer than this are not copied into gaps.
const KEY_BYTES_MAX: usize = 1024;
/// One offer, as the counter has it; gaps count 1.
const OFFER: u64 = 1 << 32;

/// The gaps of an open database.
#[derive(Default)]
pub(crate) struct GapCache {
    /// How many gaps and offers there are.
    counts: AtomicU64,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    /// Ascending; none touches another.
    gaps: Vec<Gap>,
    offers: Vec<Offer>,
    /// How often any was used.
    uses: u64,
    /// How many scans passed over one.
    passed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Gap {
    low: Box<[u8]>,
    /// Exclusive.
    high: Box<[u8]>,
    /// It is one for readers from here on.
    from: Seq,
    /// The id of the memtable that took writes then.
    memtable: u64,
    /// When it was used last.
    used: u64,
}

struct Offer {
    gap: Gap,
    pinned: Pinned,
}

/// What is to be known of the view of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lsm) struct Pinned {
    memtable: u64,
    /// See [`RangeTombstones::newest`](super::range_tombstones::Range tombstones::newest).
    newest: Seq,
    /// All commits above the Seq of the read are in the memtable that takes writes.
    may_offer: bool,
}

/// The way of a scan to its first row.
pub(in crate::lsm) struct Head {
    pinned: Pinned,
    /// Where it began.
    low: SmallVec<[u8; 64]>,
    /// No row was seen yet.
    pub(in crate::lsm) is_open: bool,
    /// Dead entries that were looked at.
    dead: u32,
    /// Gaps that were passed over.
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

    /// How many scans passed over a gap.
    pub(in crate::lsm) fn passed(&self) -> u64 {
        self.list.lock().passed
    }

    fn change(&self, change: impl FnOnce(&mut List)) {
        let mut list = self.list.lock();
        change(&mut list);
        let counts = list.gaps.len() as u64 + OFFER * list.offers.len() as u64;
        // Under the lock: a commit that must see a gap has its adding before it, and later counts have it too.
        self.counts.store(counts, Ordering::Release);
    }

    /// Ends all gaps. Requires the commit lock.
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

    /// Takes offers over, and cuts `puts` out of all gaps. Requires: the commit lock; `active` takes writes, and `newest` is
    /// the newest range tombstone of its view; entries that are in `active`, or are none of `puts`, and none else, were
    /// put above any gap's Seq.
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

    /// The end of the gap that `key` is in for a reader at `at`.
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

    /// Adds `gap` as far as `active` has no put above its Seq in it.
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

    /// Adds `gap`, made one with those that it meets.
    fn add(&mut self, mut gap: Gap) {
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

    /// Takes `key` out of the gap that it is in.
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
    /// What of it is below `key`, which lies in it, and what is above.
    fn without(self, key: &[u8]) -> (Option<Gap>, Option<Gap>) {
        debug_assert!(*self.low <= *key && *key < *self.high, "the key lies in the gap");
        let above = Gap { low: behind(key), ..self.clone() };
        let below = Gap { high: key.into(), ..self };
        (Some(below).filter(Gap::is_any), Some(above).filter(Gap::is_any))
    }

    fn is_any(&self) -> bool {
        self.low < self.high
    }
}

/// The least key above `key`.
fn behind(key: &[u8]) -> Box<[u8]> {
    [key, &[0]].concat().into()
}

impl Pinned {
    /// Of a read at `at`, of what was published if `is_newest`, in a view with these memtables, newest first, and this newest
    /// range tombstone.
    pub(in crate::lsm) fn new<'m>(
        mut memtables: impl Iterator<Item = &'m Memtable>,
        newest: Seq,
        at: Seq,
        is_newest: bool,
    ) -> Self {
        let memtable = memtables.next().map_or(0, |memtable| memtable.id);
        let is_older = |seq: Option<Seq>| seq.is_none_or(|seq| seq <= at);
        // What an import brought, or a drop, may be in the view before it is published: this read does not see it yet, and
        // whoever asks the gap would.
        let is_shown = newest <= at;
        let may_offer = is_newest && is_shown && memtables.all(|frozen| is_older(frozen.seq_max()));
        Self { memtable, newest, may_offer }
    }
}

impl Head {
    /// Of a scan that tells nobody and asks nobody.
    pub(in crate::lsm) fn closed() -> Self {
        let pinned = Pinned { memtable: 0, newest: Seq::ZERO, may_offer: false };
        Self { pinned, low: SmallVec::new(), is_open: false, dead: 0, gaps: 0 }
    }

    /// Of a scan of a view.
    pub(in crate::lsm) fn new(pinned: Pinned) -> Self {
        Self { pinned, ..Self::closed() }
    }

    /// The scan begins at `low`; answers where it need not begin before.
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

    /// The entry of `key` is dead; answers where the scan may go on. Now and then: to ask costs more than an entry.
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

    /// The scan stands at its first row, whose key is `high`; dead entries from `min` on are worth a gap, and fewer are
    /// worth a longer one: a queue is read again.
    pub(in crate::lsm) fn end_at_row(&mut self, gaps: &GapCache, high: &[u8], at: Seq, min: u32) {
        self.is_open = false;
        let min = if self.gaps > 0 { min.div_ceil(4) } else { min };
        if self.dead >= min || self.gaps > 1 {
            self.offer(gaps, high.into(), at);
        }
    }

    /// The scan is at its end without a row; `last` was the last key it decided about.
    pub(in crate::lsm) fn end(&mut self, gaps: &GapCache, last: &[u8], at: Seq, min: u32) {
        self.is_open = false;
        if self.dead >= min {
            // Not up to the end of the span: what is put behind all that was there shall cut nothing.
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

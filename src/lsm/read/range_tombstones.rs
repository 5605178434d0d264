//! Range tombstones mark key spans as dropped or expired: in a span, entries below a Seq are
//! hidden. The highest such Seq at a key is the key's *floor*. `reclaim` removes range tombstones.
//!
//! Invariants
//! * a range tombstone hides the entries of its span that have a Seq below its `below`, from
//!   readers at its `from` or later. Earlier readers still see them;
//! * a range tombstone is in the view before its commit is published, and is removed only by an
//!   edit after which no entry is left for it to hide;
//! * a read uses a view that contains every range tombstone up to the read's Seq, see
//!   `Reader::pin_read`.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::format::edit::RangeTombstone;
use crate::format::span::Span;
use crate::manifest::FileReference;
use crate::model::Seq;
use crate::sort::sort_by;

use super::snapshot::Horizon;

/// The maximum total size in bytes of the range tombstones in one log. A flush writes them to the
/// manifest in one edit, which can hold four times as much.
pub(in crate::lsm) const RANGE_TOMBSTONE_BYTES_MAX: usize = 4 << 20;

/// A part of the set is merged with the part before it unless that is more than this many times as
/// large. For 10,000 range tombstones that are added one by one, there are at most 5 parts.
const PART_FACTOR: usize = 8;

/// The range tombstones of a view. Immutable. A point read does a binary search in each part, or
/// nothing if there are no range tombstones.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeTombstones {
    /// The parts, oldest first. Each is more than `PART_FACTOR` times as large as the next one. So
    /// an addition copies few range tombstones, and a point read searches few parts.
    parts: Vec<Arc<Part>>,
    /// The highest Seq of a range tombstone that was ever in this list, or of an import.
    pub(crate) newest: Seq,
}

/// Range tombstones that follow each other in commit order. Not empty.
#[derive(Debug)]
struct Part {
    /// The range tombstones, ascending by `from`.
    list: Vec<Arc<RangeTombstone>>,
    /// The floors of readers that see all range tombstones of the part.
    floors: Arc<[Floor]>,
}

/// A floor: from key `low` up to that of the next floor, entries below Seq `below` are hidden.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Floor {
    low: Arc<[u8]>,
    below: Seq,
}

/// The floors that a reader sees. Keys must be queried in order.
#[derive(Clone, Debug)]
pub(crate) struct Floors(SmallVec<[PartFloors; 1]>);

/// The floors of one part of the range tombstones.
#[derive(Clone, Debug)]
struct PartFloors {
    floors: Arc<[Floor]>,
    /// The number of floors that begin at or before the last key queried; `None` if unknown.
    begun: Option<usize>,
}

/// Decides which entries a job may drop. Keys must be queried in order.
pub(crate) struct Spent {
    /// The range tombstones that overlap the job's keys, in the order of their lower bounds.
    range_tombstones: Vec<RangeTombstone>,
    /// How many of these begin at or before the current key.
    begun: usize,
    /// Those of them that contain the current key.
    over: Vec<usize>,
    /// The key up to which `over` is valid.
    until: Option<Box<[u8]>>,
}

impl RangeTombstones {
    /// Creates the set from a list in any order. `newest` is the highest Seq of an earlier range
    /// tombstone or import.
    pub(crate) fn new(list: Vec<RangeTombstone>, newest: Seq) -> Self {
        Self::of(list.into_iter().map(Arc::new).collect(), newest)
    }

    fn of(mut list: Vec<Arc<RangeTombstone>>, newest: Seq) -> Self {
        sort_by(&mut list, |a, b| a.from.cmp(&b.from));
        let newest = list.last().map_or(newest, |last| newest.max(last.from));
        let floors = floors(list.iter().map(Arc::as_ref)).into();
        let part = (!list.is_empty()).then(|| Arc::new(Part { list, floors }));
        Self { parts: part.into_iter().collect(), newest }
    }

    /// Adds the range tombstones of a new commit. Copies pointers to few of the existing ones.
    pub(crate) fn with(&self, range_tombstones: &[RangeTombstone]) -> Self {
        let last = self.iter().next_back().map_or(Seq::ZERO, |last| last.from);
        let is_newer = |new: &RangeTombstone| new.from >= last;
        debug_assert!(range_tombstones.iter().all(is_newer), "tombstones come in commit order");
        let Self { parts: new, newest } = Self::new(range_tombstones.to_vec(), self.newest);
        let mut parts = self.parts.clone();
        for mut part in new {
            while let Some(before) = parts
                .pop_if(|before| before.list.len() <= PART_FACTOR.saturating_mul(part.list.len()))
            {
                part = Arc::new(before.with(&part));
            }
            parts.push(part);
        }
        Self { parts, newest }
    }

    /// Removes the range tombstones `gone`, given in the order of [`iter`](Self::iter).
    pub(crate) fn without(&self, gone: &[&RangeTombstone]) -> Self {
        let all = self.parts.iter().flat_map(|part| &part.list);
        // Compare addresses, not values: of several equal range tombstones some may stay.
        let mut gone = gone.iter().peekable();
        let mut is_gone =
            |found: &RangeTombstone| gone.next_if(|g| std::ptr::eq(**g, found)).is_some();
        Self::of(all.filter(|found| !is_gone(found)).cloned().collect(), self.newest)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.list.len()).sum()
    }

    /// Returns the same range tombstones, with `newest` raised to `seq`, at which an import becomes
    /// visible.
    pub(crate) fn with_newest(&self, seq: Seq) -> Self {
        Self { newest: self.newest.max(seq), ..self.clone() }
    }

    /// Returns the range tombstones, ascending by `from`.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &RangeTombstone> {
        self.parts.iter().flat_map(|part| &part.list).map(Arc::as_ref)
    }

    /// Returns the Seq below which entries of `key` are hidden from a reader at `at`.
    #[inline]
    pub(crate) fn floor(&self, key: &[u8], at: Seq) -> Seq {
        if self.parts.is_empty() { Seq::ZERO } else { self.floor_among(key, at) }
    }

    fn floor_among(&self, key: &[u8], at: Seq) -> Seq {
        self.parts.iter().map(|part| part.floor(key, at)).max().unwrap_or_default()
    }

    /// Returns the floors of a reader at `at`, or `None` if it sees no range tombstone in `span`.
    pub(crate) fn floors_in(&self, span: &Span, at: Seq) -> Option<Floors> {
        let parts = self.parts.iter().filter_map(|part| part.floors_in(span, at));
        let parts: SmallVec<_> = parts.map(|floors| PartFloors { floors, begun: None }).collect();
        (!parts.is_empty()).then_some(Floors(parts))
    }

    /// Returns which range tombstones hide only entries that others hide, too. A reader at `at`
    /// must see all of these.
    pub(in crate::lsm) fn covered(&self, at: Seq) -> impl Fn(&RangeTombstone) -> bool + use<> {
        let parts = self.parts.iter().map(|part| part.floors_in(&Span::all(), at));
        let floors = parts.flatten().fold(Vec::new(), |all, part| merged(&all, &part));
        move |found| floors_in(&floors, &found.span).all(|below| below > found.below)
    }

    /// Returns the Seq of the oldest commit, published or not, that hides the entry of `key` with
    /// the Seq `seq`.
    pub(crate) fn hidden_since(&self, key: &[u8], seq: Seq) -> Option<Seq> {
        if self.floor(key, Seq::MAX) <= seq {
            return None;
        }
        let hides = |range_tombstone: &&RangeTombstone| {
            range_tombstone.below > seq && range_tombstone.span.contains(key)
        };
        self.iter().find(hides).map(|range_tombstone| range_tombstone.from)
    }

    /// True if range tombstones hide, from a reader at `at`, all entries in `clip` that have a Seq
    /// up to `seq_max`. May be false if only several of them together do.
    pub(crate) fn covers(&self, clip: &Span, seq_max: Seq, at: Seq) -> bool {
        self.parts.iter().any(|part| part.covers(clip, seq_max, at))
    }

    /// Returns the range tombstones that every reader sees and that may hide entries of a file. A
    /// compaction of the file would drop such entries.
    pub(crate) fn hiding_part<'f>(
        &'f self,
        reference: &'f FileReference,
        horizon: &'f Horizon,
    ) -> impl Iterator<Item = &'f RangeTombstone> + 'f {
        let meta = &reference.file.meta;
        self.iter().filter(|range_tombstone| {
            meta.seq_min < range_tombstone.below
                && meta.tombstones_applied < range_tombstone.from
                && horizon.all_see(range_tombstone.from)
                && reference.clip.overlaps(&range_tombstone.span)
        })
    }

    /// Returns which entries a job over `span` may drop.
    pub(crate) fn spent(&self, span: &Span, horizon: &Horizon) -> Spent {
        let is_known =
            |range_tombstone: &&RangeTombstone| range_tombstone.from <= horizon.published;
        let inside = self.iter().filter(is_known).filter(|f| f.span.overlaps(span));
        let mut range_tombstones: Vec<RangeTombstone> = inside.cloned().collect();
        sort_by(&mut range_tombstones, |a, b| a.span.low.cmp(&b.span.low));
        let until = Some(Box::default());
        Spent { range_tombstones, begun: 0, over: Vec::new(), until }
    }
}

impl Part {
    /// Returns the part with the range tombstones of `next` added.
    fn with(&self, next: &Part) -> Part {
        let list = self.list.iter().chain(&next.list).cloned().collect();
        Part { list, floors: merged(&self.floors, &next.floors).into() }
    }

    fn sees_all(&self, at: Seq) -> bool {
        self.list.last().is_none_or(|last| last.from <= at)
    }

    /// Returns the range tombstones that a reader at `at` sees.
    fn seen(&self, at: Seq) -> impl Iterator<Item = &RangeTombstone> {
        self.list.iter().map(Arc::as_ref).take_while(move |found| found.from <= at)
    }

    fn floor(&self, key: &[u8], at: Seq) -> Seq {
        if self.sees_all(at) {
            let behind = self.floors.partition_point(|floor| *floor.low <= *key);
            return behind.checked_sub(1).map_or(Seq::ZERO, |i| self.floors[i].below);
        }
        let over = self.seen(at).filter(|found| found.span.contains(key));
        over.map(|found| found.below).max().unwrap_or_default()
    }

    /// Returns the floors of a reader at `at`, or `None` if it sees no range tombstone in `span`.
    fn floors_in(&self, span: &Span, at: Seq) -> Option<Arc<[Floor]>> {
        let floors = match self.sees_all(at) {
            true => Arc::clone(&self.floors),
            false => floors(self.seen(at).filter(|found| found.span.overlaps(span))).into(),
        };
        let hides = floors_in(&floors, span).any(|below| below > Seq::ZERO);
        hides.then_some(floors)
    }

    fn covers(&self, clip: &Span, seq_max: Seq, at: Seq) -> bool {
        match self.sees_all(at) {
            true => floors_in(&self.floors, clip).all(|below| below > seq_max),
            false => self.seen(at).any(|found| found.below > seq_max && found.span.covers(clip)),
        }
    }
}

impl Floors {
    /// Returns the Seq below which entries of `key` are hidden. Fast if keys ascend. Before
    /// querying a lower key, call [`rewind`](Self::rewind).
    #[inline]
    pub(crate) fn below(&mut self, key: &[u8]) -> Seq {
        self.0.iter_mut().map(|part| part.below(key)).max().unwrap_or_default()
    }

    /// Returns the key up to which the last result of [`below`](Self::below) is valid.
    #[inline]
    pub(crate) fn end(&self) -> Option<&[u8]> {
        self.0.iter().filter_map(PartFloors::end).min()
    }

    /// Returns the last result of [`below`](Self::below) again.
    pub(crate) fn last(&self) -> Seq {
        self.0.iter().map(PartFloors::last).max().unwrap_or_default()
    }

    /// Allows any key to be queried next.
    pub(crate) fn rewind(&mut self) {
        self.0.iter_mut().for_each(|part| part.begun = None);
    }
}

impl PartFloors {
    #[inline]
    fn below(&mut self, key: &[u8]) -> Seq {
        let begins = |floor: &Floor| *floor.low <= *key;
        let mut begun = self.begun.unwrap_or_else(|| self.floors.partition_point(begins));
        while self.floors.get(begun).is_some_and(begins) {
            begun += 1;
        }
        self.begun = Some(begun);
        self.last()
    }

    #[inline]
    fn end(&self) -> Option<&[u8]> {
        self.floors.get(self.begun?).map(|next| &*next.low)
    }

    fn last(&self) -> Seq {
        let at = self.begun.and_then(|begun| begun.checked_sub(1));
        at.map_or(Seq::ZERO, |at| self.floors[at].below)
    }
}

impl Spent {
    /// True if no reader can see the entry of `key` with the Seq `seq` any more. Keys must ascend.
    pub(crate) fn hides(&mut self, key: &[u8], seq: Seq, horizon: &Horizon) -> bool {
        if self.range_tombstones.is_empty() {
            return false;
        }
        if self.until.as_deref().is_some_and(|until| until <= key) {
            self.go_to(key);
        }
        let over = self.over.iter().map(|at| &self.range_tombstones[*at]);
        over.filter(|found| seq < found.below).any(|found| horizon.hides(found.from, seq))
    }

    fn go_to(&mut self, key: &[u8]) {
        let all = &self.range_tombstones;
        while all.get(self.begun).is_some_and(|next| *next.span.low <= *key) {
            self.over.push(self.begun);
            self.begun += 1;
        }
        self.over.retain(|at| !all[*at].span.ends_before(key));
        let ends = self.over.iter().filter_map(|at| all[*at].span.high.as_ref());
        let next = all.get(self.begun).map(|next| &next.span.low);
        self.until = ends.chain(next).min().cloned();
    }
}

/// Computes the floors: for each key, the greatest `below` of the range tombstones that contain it.
fn floors<'f>(range_tombstones: impl Iterator<Item = &'f RangeTombstone>) -> Vec<Floor> {
    let alone = |found: &RangeTombstone| {
        let Span { low, high } = &found.span;
        let end = high.as_ref().map(|high| Floor { low: (**high).into(), below: Seq::ZERO });
        let start = Floor { low: (**low).into(), below: found.below };
        std::iter::once(start).chain(end).collect::<Vec<Floor>>()
    };
    let mut lists: Vec<Vec<Floor>> = range_tombstones.map(alone).collect();
    while lists.len() > 1 {
        let pairs = lists.chunks(2);
        lists = pairs.map(|pair| merged(&pair[0], pair.get(1).map_or(&[], |b| b))).collect();
    }
    lists.pop().unwrap_or_default()
}

/// Returns the floors of two sets of range tombstones together.
fn merged<'f>(mut a: &'f [Floor], mut b: &'f [Floor]) -> Vec<Floor> {
    let mut floors: Vec<Floor> = Vec::with_capacity(a.len() + b.len());
    let (mut of_a, mut of_b) = (Seq::ZERO, Seq::ZERO);
    while let Some(low) = a.first().into_iter().chain(b.first()).map(|floor| &floor.low).min() {
        for (list, of_list) in [(&mut a, &mut of_a), (&mut b, &mut of_b)] {
            if let Some((first, rest)) = list.split_first()
                && first.low == *low
            {
                (*list, *of_list) = (rest, first.below);
            }
        }
        let below = of_a.max(of_b);
        if floors.last().map_or(Seq::ZERO, |last| last.below) != below {
            floors.push(Floor { low: Arc::clone(low), below });
        }
    }
    debug_assert!(floors.is_sorted_by(|a, b| a.low < b.low), "floors ascend");
    floors
}

/// Returns the Seqs below which entries are hidden in parts of `span`. The parts together are all
/// of `span`.
fn floors_in(floors: &[Floor], span: &Span) -> impl Iterator<Item = Seq> {
    let begun = floors.partition_point(|floor| *floor.low <= *span.low);
    let first = begun.checked_sub(1).map_or(Seq::ZERO, |at| floors[at].below);
    let inside = floors[begun..].iter().take_while(|floor| !span.ends_before(&floor.low));
    std::iter::once(first).chain(inside.map(|floor| floor.below))
}

/// Returns the spans in which at least one of the range tombstones hides entries, each with the Seq
/// below which entries are hidden. The spans ascend and do not overlap.
pub(in crate::lsm) fn hidden_spans<'f>(
    range_tombstones: impl Iterator<Item = &'f RangeTombstone>,
) -> Vec<(Span, Seq)> {
    let floors = floors(range_tombstones);
    let ends = floors.iter().skip(1).map(|next| Some(&*next.low)).chain([None]);
    let spans = floors.iter().zip(ends).filter(|(floor, _)| floor.below > Seq::ZERO);
    spans.map(|(floor, end)| (Span::new(&floor.low, end), floor.below)).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::format::key::user_key;
    use crate::format::names::TableId;
    use crate::fs::MemFs;
    use crate::lsm::write::batch::{Batch, Gate, TableChange};
    use crate::options::{Background, Durability, Options};
    use crate::rng::Rng;

    const KEYS: [&[u8]; 10] =
        [b"", b"\0", b"a", b"a\0", b"a\x01", b"ab", b"b", b"m", b"\xff", b"\xff\xff"];

    fn random_span(rng: &mut Rng) -> Span {
        loop {
            let high = rng.chance(4, 5).then(|| *rng.pick(&KEYS));
            let low = KEYS[rng.index(KEYS.len())];
            let span = Span::new(low, high);
            if !span.is_empty() {
                return span;
            }
        }
    }

    /// Returns random range tombstones of drops and expiries in commit order, with Seqs 10 apart.
    fn random_range_tombstones(rng: &mut Rng, count: u64) -> Vec<RangeTombstone> {
        let range_tombstone = |i| {
            let from = Seq(10 + 10 * i);
            let below = if rng.chance(1, 3) { Seq(1 + rng.below(from.0)) } else { from };
            RangeTombstone { span: random_span(rng), below: below.min(from), from }
        };
        (0..count).map(range_tombstone).collect()
    }

    fn expected(range_tombstones: &[RangeTombstone], key: &[u8], at: Seq) -> Seq {
        let over = range_tombstones.iter().filter(|f| f.from <= at && f.span.contains(key));
        over.map(|range_tombstone| range_tombstone.below).max().unwrap_or_default()
    }

    #[test]
    fn trap_16_hidden_rows_agree_with_a_check_of_every_range_tombstone() {
        let mut rng = Rng::from_seed(16);
        for _ in 0..2_000 {
            let count = rng.below(8);
            let list = random_range_tombstones(&mut rng, count);
            let one_by_one = list.iter().fold(
                RangeTombstones::default(),
                |range_tombstones, range_tombstone| {
                    range_tombstones.with(std::slice::from_ref(range_tombstone))
                },
            );
            let at_once = RangeTombstones::new(list.clone(), Seq::ZERO);
            let at = Seq(rng.below(100));
            for range_tombstones in [&one_by_one, &at_once] {
                let whole = random_span(&mut rng);
                let mut floors = range_tombstones.floors_in(&whole, at);
                let mut spent = range_tombstones.spent(&whole, &Horizon::new(&[], 1_000));
                for key in KEYS {
                    let below = expected(&list, key, at);
                    assert_eq!(range_tombstones.floor(key, at), below, "{list:?} {key:?} at {at}");
                    if whole.contains(key) {
                        let in_order = floors.as_mut().map_or(Seq::ZERO, |f| f.below(key));
                        assert_eq!(in_order, below, "{list:?} {key:?} at {at}");
                        let seq = Seq(rng.below(100));
                        let gone = seq < expected(&list, key, Seq::MAX);
                        assert_eq!(spent.hides(key, seq, &Horizon::new(&[], 1_000)), gone);
                        let since = range_tombstones.hidden_since(key, seq);
                        assert_eq!(since.is_some(), gone);
                        let first = |from: Seq| seq < expected(&list, key, from);
                        assert!(since.is_none_or(|from| first(from) && !first(Seq(from.0 - 1))));
                    }
                }
            }
        }
    }

    #[test]
    fn hidden_spans_agree_with_a_check_of_every_range_tombstone() {
        let mut rng = Rng::from_seed(18);
        for _ in 0..500 {
            let count = rng.below(8);
            let list = random_range_tombstones(&mut rng, count);
            let spans = hidden_spans(list.iter());
            for key in KEYS {
                let over = spans.iter().filter(|(span, _)| span.contains(key));
                let over: Vec<Seq> = over.map(|(_, below)| *below).collect();
                let below = expected(&list, key, Seq::MAX);
                let found = over.first().copied().unwrap_or_default();
                assert!(over.len() <= 1 && found == below, "{list:?} {key:?}");
            }
        }
    }

    #[test]
    fn range_tombstones_added_together_hide_the_same_as_one_by_one() {
        let mut rng = Rng::from_seed(17);
        for _ in 0..2_000 {
            let (before, count) = (rng.below(5), 1 + rng.below(5));
            let mut list = random_range_tombstones(&mut rng, before);
            let seq = Seq(100);
            // Drops of one commit, and occasionally an expiry, which hides fewer entries.
            let new = |_| match rng.chance(1, 10) {
                true => RangeTombstone { span: random_span(&mut rng), below: Seq(40), from: seq },
                false => RangeTombstone::drop(random_span(&mut rng), seq),
            };
            let new: Vec<RangeTombstone> = (0..count).map(new).collect();
            let at_once = RangeTombstones::new(list.clone(), Seq::ZERO).with(&new);
            list.extend(new);
            assert_eq!((at_once.len(), at_once.newest), (list.len(), seq));
            let mut floors = at_once.floors_in(&Span::all(), seq).unwrap();
            for key in KEYS {
                let below = expected(&list, key, seq);
                assert_eq!(at_once.floor(key, seq), below, "{list:?} {key:?}");
                assert_eq!(floors.below(key), below, "{list:?} {key:?}");
            }
        }
    }

    #[test]
    fn an_added_range_tombstone_copies_few_others() {
        let key = |i: u32| format!("{i:06}").into_bytes();
        let (count, mut copied, mut parts) = (20_000, 0, 0);
        let mut all = RangeTombstones::default();
        for i in 0..count {
            let span = |i: u32| Span::new(&key(i), Some(&key(i + 1)));
            // Spans in no order of their keys.
            let new = RangeTombstone::drop(span(2 * (i * 7_919 % count)), Seq(u64::from(i) + 1));
            let next = all.with(&[new]);
            let is_new = |part: &&Arc<Part>| !all.parts.iter().any(|p| Arc::ptr_eq(p, part));
            copied += next.parts.iter().filter(is_new).map(|p| p.list.len()).sum::<usize>();
            parts = parts.max(next.parts.len());
            all = next;
        }
        assert_eq!(all.len(), count as usize);
        assert!(copied <= 32 * count as usize, "{copied} copied");
        assert!(parts <= 5, "{parts} parts");
        assert_eq!(all.floor(&key(2 * 7_919), Seq::MAX), Seq(2));
        assert_eq!(all.floor(&key(2 * 7_919 + 1), Seq::MAX), Seq::ZERO);
    }

    #[test]
    fn a_range_tombstone_is_covered_if_others_hide_all_that_it_hides() {
        let drop = |low: &str, high: &str, seq| {
            RangeTombstone::drop(Span::new(low.as_bytes(), Some(high.as_bytes())), Seq(seq))
        };
        let list = [("b", "d", 5), ("a", "c", 7), ("c", "e", 9), ("x", "y", 9), ("x", "y", 20)];
        let list: Vec<_> = list.iter().map(|(low, high, seq)| drop(low, high, *seq)).collect();
        let all = list
            .iter()
            .fold(RangeTombstones::default(), |all, new| all.with(std::slice::from_ref(new)));
        let covered = |at| all.iter().map(all.covered(Seq(at))).collect::<Vec<_>>();
        assert_eq!(covered(20), [true, false, false, true, false]);
        assert_eq!(covered(9)[..4], [true, false, false, false]);
        assert_eq!(covered(8)[..2], [false, false]);
    }

    #[test]
    fn trap_16_a_read_sees_a_range_tombstone_set_between_its_view_and_its_seq() {
        let options = Options::default().fs(Arc::new(MemFs::new()));
        let options = options.background(Background::Manual);
        let engine = crate::lsm::open("db".as_ref(), options).unwrap();
        let (gate, key) = (Arc::new(Gate::new(TableId(7))), user_key(TableId(7), "p", "r"));
        let is_done = std::cell::Cell::new(false);
        let (view, at) = engine.reader().pin_around(None, || {
            if !is_done.replace(true) {
                let change = TableChange::Fenced(Span::new(&key, None));
                engine.commit(&Batch::of_change(&gate, change), Durability::Sync).unwrap();
            }
        });
        assert_eq!(view.range_tombstones.floor(&key, at), at);
    }

    #[test]
    fn an_import_between_the_view_and_the_seq_is_in_the_view() {
        let options = || Options::default().fs(Arc::new(MemFs::new()));
        let open = || crate::lsm::open("db".as_ref(), options().background(Background::Manual));
        let (engine, source) = (open().unwrap(), open().unwrap());
        let (gate, span) = (Arc::new(Gate::new(TableId(7))), Span::new(&[0, 0, 0, 7], None));
        let is_done = std::cell::Cell::new(false);
        let (view, at) = engine.reader().pin_around(None, || {
            if !is_done.replace(true) {
                let mut rows = source.scan(&span, None).unwrap();
                engine.maintenance().ingest(&mut rows, &gate, &span, &mut |_| Ok(())).unwrap();
            }
        });
        assert_eq!(
            view.range_tombstones.newest, at,
            "else it would show later commits and not the rows"
        );
    }

    /// If the clock goes back between choosing an expiry's Seq and committing the expiry, the
    /// expiry might hide later commits. Such an expiry must be refused.
    #[test]
    fn an_expiry_of_future_commits_is_refused() {
        let options = Options::default().fs(Arc::new(MemFs::new()));
        let options = options.background(Background::Manual);
        let engine = crate::lsm::open("db".as_ref(), options).unwrap();
        let gate = Arc::new(Gate::new(TableId(7)));
        let expire = |below: Seq| {
            let change = TableChange::Expired(Span::new(b"a", None), below);
            engine.commit(&Batch::of_change(&gate, change), Durability::Sync)
        };
        let error = expire(Seq::MAX).unwrap_err();
        assert_eq!(error.kind(), crate::error::ErrorKind::InvalidInput);
        assert!(engine.reader().view.load().range_tombstones.is_empty());
        expire(Seq(5)).unwrap();
        assert_eq!(engine.reader().view.load().range_tombstones.len(), 1);
    }

    #[test]
    fn floors_can_be_rewound_and_state_the_key_up_to_which_they_apply() {
        let span = |low: &[u8], high: &[u8]| Span::new(low, Some(high));
        let list = vec![
            RangeTombstone::drop(span(b"b", b"d"), Seq(5)),
            RangeTombstone::drop(span(b"c", b"e"), Seq(9)),
        ];
        let range_tombstones = RangeTombstones::new(list, Seq::ZERO);
        let mut floors = range_tombstones.floors_in(&span(b"a", b"z"), Seq(20)).unwrap();
        let mut at = |key: &[u8]| {
            floors.rewind();
            (floors.below(key).0, floors.end().map(<[u8]>::to_vec))
        };
        assert_eq!(at(b"c"), (9, Some(b"e".to_vec())));
        assert_eq!(at(b"a"), (0, Some(b"b".to_vec())));
        assert_eq!(at(b"b"), (5, Some(b"c".to_vec())));
        assert_eq!(at(b"x"), (0, None));
        assert!(range_tombstones.floors_in(&span(b"e", b"z"), Seq(20)).is_none());
        assert!(range_tombstones.floors_in(&span(b"a", b"z"), Seq(4)).is_none());
    }

    #[test]
    fn trap_15_a_job_keeps_rows_for_snapshots_older_than_the_range_tombstone() {
        let range_tombstone = RangeTombstone::drop(Span::new(b"a", Some(b"b")), Seq(50));
        let range_tombstones = RangeTombstones::new(vec![range_tombstone], Seq::ZERO);
        let hides = |snapshots: &[u64], published, seq| {
            let horizon = Horizon::new(snapshots, published);
            range_tombstones.spent(&Span::all(), &horizon).hides(b"a", Seq(seq), &horizon)
        };
        assert!(hides(&[], 100, 49) && !hides(&[], 100, 50));
        assert!(!hides(&[49], 100, 49) && !hides(&[30], 100, 20) && hides(&[30], 100, 31));
        assert!(hides(&[50], 100, 49));
        assert!(!hides(&[], 49, 20), "it is not published");
    }

    #[test]
    fn trap_16_no_reader_sees_half_of_the_range_tombstones_of_a_commit() {
        let options = Options::default().fs(Arc::new(MemFs::new()));
        let engine =
            crate::lsm::open("db".as_ref(), options.background(Background::Manual)).unwrap();
        let (engine, gate) = (&engine, Arc::new(Gate::new(TableId(7))));
        let key = |i: u32| user_key(TableId(7), &format!("{i:04}"), "r");
        for _ in 0..50 {
            let before = engine.reader().view.load().range_tombstones.newest;
            let range_tombstone =
                |i: u32| TableChange::Fenced(Span::new(&key(2 * i), Some(&key(2 * i + 1))));
            let changes: Vec<_> = (0..100).map(range_tombstone).collect();
            let (view, at) = std::thread::scope(|scope| {
                let created = Batch::of_change(&gate, TableChange::Created(TableId(7)));
                let batch = Batch { changes, ..created };
                let committer = std::cell::Cell::new(Some(
                    scope.spawn(move || engine.commit(&batch, Durability::Sync)),
                ));
                // Pin the first view that has any of the range tombstones. They are published only
                // later.
                while engine.reader().view.load().range_tombstones.newest == before {
                    std::hint::spin_loop();
                }
                engine.reader().pin_around(None, || {
                    if let Some(committer) = committer.take() {
                        committer.join().unwrap().unwrap();
                    }
                })
            });
            let floors = [0, 198].map(|i| view.range_tombstones.floor(&key(i), at));
            assert_eq!(floors, [at, at]);
        }
    }
}

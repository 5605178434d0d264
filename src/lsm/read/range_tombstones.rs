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

use crate::format::edit::RangeTombstone;
use crate::format::span::Span;
use crate::manifest::FileReference;
use crate::model::Seq;
use crate::sort::sort_by;

use super::snapshot::Horizon;

/// The maximum total size in bytes of the range tombstones in one log. A flush writes them to the
/// manifest in one edit, which can hold four times as much.
pub(in crate::lsm) const RANGE_TOMBSTONE_BYTES_MAX: usize = 4 << 20;

/// The range tombstones of a view. Immutable. A point read does a binary search, or nothing if
/// there are none.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeTombstones {
    /// The range tombstones, ascending by `from`.
    list: Vec<Arc<RangeTombstone>>,
    /// The floors of readers that see all range tombstones.
    floors: Arc<[Floor]>,
    /// The highest Seq of a range tombstone that was ever in this list, or of an import.
    pub(crate) newest: Seq,
}

/// A floor: from key `low` up to that of the next floor, entries below Seq `below` are hidden.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Floor {
    low: Arc<[u8]>,
    below: Seq,
}

/// The floors that a reader sees. Keys must be queried in order.
#[derive(Clone, Debug)]
pub(crate) struct Floors {
    floors: Arc<[Floor]>,
    /// The number of floors that begin at or before the last key queried; `None` if unknown.
    begun: Option<usize>,
}

/// Decides which entries a job may drop. Keys must be queried in order.
pub(crate) struct Spent {
    /// The range tombstones that overlap the job's keys.
    range_tombstones: Vec<RangeTombstone>,
    /// `below` and `from` of the range tombstones that contain the current key.
    over: Vec<(Seq, Seq)>,
    /// The key up to which `over` is valid.
    until: Option<Box<[u8]>>,
    is_started: bool,
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
        Self { list, floors, newest }
    }

    /// Adds the range tombstones of a new commit. Copies pointers to the existing ones.
    pub(crate) fn with(&self, range_tombstones: &[RangeTombstone]) -> Self {
        let last = self.list.last().map_or(Seq::ZERO, |last| last.from);
        let is_newer = |new: &RangeTombstone| new.from >= last;
        debug_assert!(range_tombstones.iter().all(is_newer), "tombstones come in commit order");
        let new = range_tombstones.iter().cloned().map(Arc::new);
        let list: Vec<_> = self.list.iter().cloned().chain(new).collect();
        let highest = self.floors.iter().map(|floor| floor.below).max().unwrap_or_default();
        let below = range_tombstones.first().map_or(Seq::ZERO, |first| first.below);
        let is_highest = |new: &RangeTombstone| new.below == below && below >= highest;
        if !range_tombstones.iter().all(is_highest) {
            return Self::of(list, self.newest);
        }
        let floors = with_highest(&self.floors, range_tombstones, below).into();
        let newest = range_tombstones.iter().map(|new| new.from).fold(self.newest, Seq::max);
        Self { list, floors, newest }
    }

    /// Removes the range tombstones for which `gone` returns true.
    pub(crate) fn without(&self, gone: impl Fn(&RangeTombstone) -> bool) -> Self {
        let list =
            self.list.iter().filter(|range_tombstone| !gone(range_tombstone)).cloned().collect();
        Self::of(list, self.newest)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the same range tombstones, with `newest` raised to `seq`, at which an import becomes
    /// visible.
    pub(crate) fn with_newest(&self, seq: Seq) -> Self {
        Self { newest: self.newest.max(seq), ..self.clone() }
    }

    /// Returns the range tombstones, ascending by `from`.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &RangeTombstone> {
        self.list.iter().map(Arc::as_ref)
    }

    /// Returns the Seq below which entries of `key` are hidden from a reader at `at`.
    #[inline]
    pub(crate) fn floor(&self, key: &[u8], at: Seq) -> Seq {
        if self.list.is_empty() { Seq::ZERO } else { self.floor_among(key, at) }
    }

    fn floor_among(&self, key: &[u8], at: Seq) -> Seq {
        if self.sees_all(at) {
            let behind = self.floors.partition_point(|floor| *floor.low <= *key);
            return behind.checked_sub(1).map_or(Seq::ZERO, |i| self.floors[i].below);
        }
        let over = self.list.iter().filter(|f| f.from <= at && f.span.contains(key));
        over.map(|range_tombstone| range_tombstone.below).max().unwrap_or_default()
    }

    /// Returns the floors of a reader at `at`, or `None` if it sees no range tombstone in `span`.
    pub(crate) fn floors_in(&self, span: &Span, at: Seq) -> Option<Floors> {
        let mut over = self.list.iter().filter(|f| f.from <= at && f.span.overlaps(span));
        over.next()?;
        let floors = if self.sees_all(at) {
            Arc::clone(&self.floors)
        } else {
            floors(self.iter().filter(|range_tombstone| range_tombstone.from <= at)).into()
        };
        Some(Floors { floors, begun: None })
    }

    fn sees_all(&self, at: Seq) -> bool {
        self.list.last().is_none_or(|last| last.from <= at)
    }

    /// Returns the Seq of the oldest commit, published or not, that hides the entry of `key` with
    /// the Seq `seq`.
    pub(crate) fn hidden_since(&self, key: &[u8], seq: Seq) -> Option<Seq> {
        let hides = |range_tombstone: &&RangeTombstone| {
            range_tombstone.below > seq && range_tombstone.span.contains(key)
        };
        self.iter().find(hides).map(|range_tombstone| range_tombstone.from)
    }

    /// True if one range tombstone hides, from a reader at `at`, all entries in `clip` that have a
    /// Seq up to `seq_max`.
    pub(crate) fn covers(&self, clip: &Span, seq_max: Seq, at: Seq) -> bool {
        let covers = |f: &RangeTombstone| f.from <= at && f.below > seq_max && f.span.covers(clip);
        self.iter().any(covers)
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
        let range_tombstones = inside.cloned().collect();
        Spent { range_tombstones, over: Vec::new(), until: None, is_started: false }
    }
}

impl Floors {
    /// Returns the Seq below which entries of `key` are hidden. Fast if keys ascend. Before
    /// querying a lower key, call [`rewind`](Self::rewind).
    #[inline]
    pub(crate) fn below(&mut self, key: &[u8]) -> Seq {
        let begins = |floor: &Floor| *floor.low <= *key;
        let mut begun = self.begun.unwrap_or_else(|| self.floors.partition_point(begins));
        while self.floors.get(begun).is_some_and(begins) {
            begun += 1;
        }
        self.begun = Some(begun);
        begun.checked_sub(1).map_or(Seq::ZERO, |at| self.floors[at].below)
    }

    /// Returns the key up to which the last result of [`below`](Self::below) is valid.
    #[inline]
    pub(crate) fn end(&self) -> Option<&[u8]> {
        self.floors.get(self.begun?).map(|next| &*next.low)
    }

    /// Returns the last result of [`below`](Self::below) again.
    pub(crate) fn last(&self) -> Seq {
        let at = self.begun.and_then(|begun| begun.checked_sub(1));
        at.map_or(Seq::ZERO, |at| self.floors[at].below)
    }

    /// Allows any key to be queried next.
    pub(crate) fn rewind(&mut self) {
        self.begun = None;
    }
}

impl Spent {
    /// True if no reader can see the entry of `key` with the Seq `seq` any more. Keys must ascend.
    pub(crate) fn hides(&mut self, key: &[u8], seq: Seq, horizon: &Horizon) -> bool {
        if self.range_tombstones.is_empty() {
            return false;
        }
        if !self.is_started || self.until.as_deref().is_some_and(|until| until <= key) {
            self.go_to(key);
        }
        let hides = |(below, from): &(Seq, Seq)| seq < *below && horizon.hides(*from, seq);
        self.over.iter().any(hides)
    }

    fn go_to(&mut self, key: &[u8]) {
        self.is_started = true;
        let over = self
            .range_tombstones
            .iter()
            .filter(|range_tombstone| range_tombstone.span.contains(key));
        self.over =
            over.map(|range_tombstone| (range_tombstone.below, range_tombstone.from)).collect();
        let bounds = self.range_tombstones.iter().flat_map(bounds);
        self.until = bounds.filter(|bound| ***bound > *key).min().cloned();
    }
}

/// Returns the lower bound of the range tombstone's span, and the upper bound if there is one.
fn bounds(range_tombstone: &RangeTombstone) -> impl Iterator<Item = &Box<[u8]>> {
    let Span { low, high } = &range_tombstone.span;
    std::iter::once(low).chain(high)
}

/// Returns the range tombstones in the order of their lower bounds.
fn by_low<'f>(
    range_tombstones: impl Iterator<Item = &'f RangeTombstone>,
) -> Vec<&'f RangeTombstone> {
    let mut by_low: Vec<&RangeTombstone> = range_tombstones.collect();
    by_low.sort_unstable_by(|a, b| a.span.low.cmp(&b.span.low));
    by_low
}

/// Computes the floors: for each key, the greatest `below` of the range tombstones that contain it.
fn floors<'f>(range_tombstones: impl Iterator<Item = &'f RangeTombstone>) -> Vec<Floor> {
    let by_low = by_low(range_tombstones);
    let mut bounds: Vec<&Box<[u8]>> = by_low.iter().copied().flat_map(bounds).collect();
    bounds.sort_unstable();
    bounds.dedup();
    let mut next = by_low.into_iter().peekable();
    let mut over: Vec<&RangeTombstone> = Vec::new();
    let mut floors: Vec<Floor> = Vec::with_capacity(bounds.len());
    for bound in bounds {
        over.retain(|range_tombstone| !range_tombstone.span.ends_before(bound));
        while let Some(range_tombstone) =
            next.next_if(|range_tombstone| range_tombstone.span.low <= *bound)
        {
            over.push(range_tombstone);
        }
        let below =
            over.iter().map(|range_tombstone| range_tombstone.below).max().unwrap_or_default();
        if floors.last().map_or(Seq::ZERO, |last| last.below) != below {
            floors.push(Floor { low: bound.as_ref().into(), below });
        }
    }
    debug_assert!(floors.is_sorted_by(|a, b| a.low < b.low), "floors ascend");
    floors
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

/// Computes the floors after adding range tombstones that hide entries below `below`. No old floor
/// may be higher than `below`.
fn with_highest(old: &[Floor], range_tombstones: &[RangeTombstone], below: Seq) -> Vec<Floor> {
    let mut floors = Vec::with_capacity(old.len() + 2 * range_tombstones.len());
    let spans = by_low(range_tombstones.iter()).into_iter().map(|tombstone| &tombstone.span);
    let (mut spans, mut done) = (spans.peekable(), 0);
    while let Some(span) = spans.next() {
        let mut high = span.high.as_deref();
        // Join spans that overlap or touch.
        let goes_on =
            |next: &&Span, high: Option<&[u8]>| high.is_none_or(|high| *next.low <= *high);
        while let Some(next) = spans.next_if(|next| goes_on(next, high)) {
            high = high.and_then(|high| next.high.as_deref().map(|other| high.max(other)));
        }
        let from = done + old[done..].partition_point(|floor| *floor.low < *span.low);
        floors.extend_from_slice(&old[done..from]);
        floors.push(Floor { low: span.low.as_ref().into(), below });
        // An old floor that begins exactly at the end of the span stays unchanged.
        done = high.map_or(old.len(), |high| {
            from + old[from..].partition_point(|floor| *floor.low < *high)
        });
        let before = done.checked_sub(1).map_or(Seq::ZERO, |at| old[at].below);
        let is_free = |high: &&[u8]| old.get(done).is_none_or(|next| *next.low > **high);
        if let Some(high) = high.filter(is_free) {
            floors.push(Floor { low: high.into(), below: before });
        }
    }
    floors.extend_from_slice(&old[done..]);
    debug_assert!(floors.is_sorted_by(|a, b| a.low < b.low), "floors ascend");
    floors
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
            assert_eq!((at_once.iter().len(), at_once.newest), (list.len(), seq));
            let mut floors = at_once.floors_in(&Span::all(), seq).unwrap();
            for key in KEYS {
                let below = expected(&list, key, seq);
                assert_eq!(at_once.floor(key, seq), below, "{list:?} {key:?}");
                assert_eq!(floors.below(key), below, "{list:?} {key:?}");
            }
        }
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
        assert_eq!(engine.reader().view.load().range_tombstones.iter().len(), 1);
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

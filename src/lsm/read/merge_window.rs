//! Reads a merge in *windows*: all entries below some key (the *limit*) are sorted together.
//!
//! Invariants
//! * a window has all remaining entries below its limit, so all versions of each of its keys;
//! * a file contributes entries of its current block only. The last entry of a block is never in a
//!   window, because versions of its key may continue in the next block;
//! * entries with equal heads (the bytes after the common prefix of all keys, at most eight) are
//!   ordered by key and Seq. Different heads imply different keys.
//!
//! Not here: reading one file alone (`scan`), the order inside memtables (`memtable`).

use std::ops::ControlFlow;

use super::row_filter::{RowFilter, ScanRow, VisibleRun, Visit};
use super::view::memory_row;
use crate::codec::shared_len;
use crate::error::Result;
use crate::format::Kind;
use crate::memtable::{Entry, MemtableIter};
use crate::model::Seq;

use super::merge::{Merge, Source};
use super::window::{
    AHEAD, AHEAD_MIN, GROUP_SMALL, Heads, Item, Lane, Part, Window, compare_parts, merge_all,
};

impl Drop for Merge {
    fn drop(&mut self) {
        self.window.leave_room();
    }
}

impl Merge {
    /// Hint: the caller expects to read about `rows` rows.
    pub(in crate::lsm) fn expect(&mut self, rows: usize) {
        self.window.ahead = (rows / 2).clamp(AHEAD_MIN, AHEAD.0);
    }

    /// Opens a window over the next entries and returns their number, or 0 if the current entry
    /// must be read alone. With a `sieve` filter, the window has only rows that may match, possibly
    /// several versions of a key.
    ///
    /// A merge that moves entry by entry compares whole keys and fetches the key of each source
    /// repeatedly. In a window, all keys share the common prefix of its bounds. The eight bytes
    /// after that prefix, the *head* of a key, decide nearly every comparison, and each source is
    /// read in one pass. If few rows match a filter, the filter is evaluated before sorting. Then
    /// only matching rows are looked up in the other sources, which may hide them.
    pub(in crate::lsm) fn open_window<F: RowFilter>(
        &mut self,
        sieve: Option<&mut F>,
        at: Seq,
        decided: &[u8],
    ) -> Result<usize> {
        self.usable()?;
        let mut window = std::mem::take(&mut self.window);
        let opened = self.try_open(&mut window, sieve, at, decided);
        self.window = window;
        self.failed = opened.as_ref().err().cloned();
        opened
    }

    fn try_open<F: RowFilter>(
        &self,
        window: &mut Window,
        sieve: Option<&mut F>,
        at: Seq,
        decided: &[u8],
    ) -> Result<usize> {
        window.take_room();
        let has_limit = self.find_limit(window)?;
        let low = self.key();
        if has_limit && window.limit.as_slice() <= low {
            return Ok(0);
        }
        window.shared = shared_len(low, &window.limit);
        window.items.reserve(2 * window.ahead);
        window.places.reserve(2 * window.ahead);
        window.lanes.reserve(self.heap.len());
        window.ends.reserve(self.heap.len());
        let ahead = window.ahead;
        window.ahead = (2 * ahead).min(AHEAD.1);
        let limit = std::mem::take(&mut window.limit);
        let part = Part { limit: &limit, has_limit, ahead };
        let filled = match sieve {
            Some(filter) => self.sieve(window, part, filter, at, decided),
            None => self.fill(window, part, at),
        };
        window.limit = limit;
        let entries = filled?;
        debug_assert_eq!(window.lanes.len(), window.ends.len(), "each lane ends somewhere");
        window.merge_lanes();
        let mut items = std::mem::take(&mut window.items);
        self.sort_ties(window, window.shared, &mut items);
        window.items = items;
        Ok(entries)
    }

    /// Computes the limit of the window. Returns false if no source has a key above the window. The
    /// limit is then the greatest key of all sources, and the window includes this key.
    fn find_limit(&self, window: &mut Window) -> Result<bool> {
        let Window { limit, key, ahead, .. } = window;
        let mut least = |key: &[u8], has_limit: &mut bool| {
            if !*has_limit || key < limit.as_slice() {
                limit.clear();
                limit.extend_from_slice(key);
            }
            *has_limit = true;
        };
        let mut has_limit = false;
        if let Some(high) = &self.high {
            least(high, &mut has_limit);
        }
        for source in &self.heap {
            match &self.sources[*source] {
                Source::Files(files) => {
                    files.put_window_end(*ahead, key)?;
                    least(key, &mut has_limit);
                }
                Source::Memory(iter) => {
                    let ends = (0..iter.runs()).filter_map(|run| iter.entry_ahead(run, *ahead));
                    ends.for_each(|end| least(end.key, &mut has_limit));
                }
            }
        }
        if !has_limit {
            let memory = self.heap.iter().filter_map(|source| match &self.sources[*source] {
                Source::Memory(iter) => Some(iter),
                Source::Files(_) => None,
            });
            let last = |iter: &'_ MemtableIter| {
                (0..iter.runs()).filter_map(|run| iter.last_key(run)).max().map(<[u8]>::to_vec)
            };
            window.limit = memory.filter_map(last).max().unwrap_or_default();
        }
        Ok(has_limit)
    }

    /// Adds all entries below the limit that are not newer than `at`. Returns the number of entries
    /// below the limit, including newer ones.
    fn fill(&self, window: &mut Window, part: Part<'_>, at: Seq) -> Result<usize> {
        let Part { limit, ahead, .. } = part;
        for source in self.heap.iter().copied() {
            match &self.sources[source] {
                Source::Files(files) => {
                    let Some(run) = files.window(limit, ahead)? else { continue };
                    window.take_block(source, &run, at)?;
                }
                Source::Memory(iter) => {
                    window.take_entries(source, iter, part, |entry| Ok(entry.seq <= at))?;
                }
            }
        }
        Ok(window.lanes.iter().map(|lane| lane.len).sum())
    }

    /// Adds the rows below the limit that may match and are not newer than `at`; another source may
    /// hide them. Returns the number of entries below the limit.
    fn sieve<F: RowFilter>(
        &self,
        window: &mut Window,
        part: Part<'_>,
        filter: &mut F,
        at: Seq,
        decided: &[u8],
    ) -> Result<usize> {
        let Part { limit, ahead, .. } = part;
        for source in self.heap.iter().copied() {
            match &self.sources[source] {
                Source::Files(files) => {
                    let Some(run) = files.window(limit, ahead)? else { continue };
                    let (lane, heads) = window.begin_block(source, &run);
                    window.found.clear();
                    filter.sift(&VisibleRun::new(&run, at, decided), &mut window.found)?;
                    for found in 0..window.found.len() {
                        let (place, suffix) = run.place(usize::from(window.found[found]))?;
                        window.add_place(heads.of(suffix), lane, place);
                    }
                    window.ends.push(window.items.len());
                }
                Source::Memory(iter) => {
                    window.take_entries(source, iter, part, |entry| {
                        if entry.seq > at || entry.kind == Kind::Delete {
                            return Ok(false);
                        }
                        let row = memory_row(entry.row, &self.env.shapes)?;
                        filter.sift_row(&ScanRow { key: entry.key, seq: entry.seq, row })
                    })?;
                }
            }
        }
        Ok(window.lanes.iter().map(|lane| lane.len).sum())
    }

    /// Returns the number of items in the window.
    pub(in crate::lsm) fn window_items(&self) -> usize {
        self.window.items.len()
    }

    /// Moves to the next visible row of the window. Adds the number of entries examined to
    /// `entries`. Returns false at the window's end. `decided` is the last key before the window
    /// whose visible version was found.
    #[inline(always)]
    pub(in crate::lsm) fn next_in_window(&mut self, decided: &[u8], entries: &mut u64) -> bool {
        while let Some((item, kind)) = self.show_next() {
            *entries += 1;
            if self.is_decided(item, decided) {
                continue;
            }
            self.window.decided = Some(item);
            if kind == Kind::Put {
                return true;
            }
        }
        false
    }

    /// Calls `with` for the next visible rows of the window. Stops after `max` rows or when `with`
    /// breaks. The other arguments are as for [`next_in_window`](Self::next_in_window).
    #[inline]
    pub(in crate::lsm) fn visit_window(
        &mut self,
        decided: &[u8],
        entries: &mut u64,
        max: usize,
        with: &mut impl FnMut(ScanRow<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<Visit> {
        let mut visit = Visit::default();
        while visit.rows < max
            && let Some(item) = self.window.items.get(self.window.next).copied()
        {
            *entries += 1;
            let Lane { source, run, .. } = self.window.lanes[item.lane as usize];
            if self.window.decided.is_none_or(|last| last.head == item.head) {
                self.show_next();
                if self.is_decided(item, decided) {
                    continue;
                }
            } else {
                self.window.next += 1;
                self.shown = Some(source);
            }
            self.window.decided = Some(item);
            let at = item.at as usize;
            let row = match &mut self.sources[source] {
                Source::Files(files) => {
                    let place = self.window.places[at];
                    files.show(place);
                    if place.kind == Kind::Delete {
                        continue;
                    }
                    let (key, seq, row) = files.current()?;
                    ScanRow { key, seq, row }
                }
                Source::Memory(iter) => {
                    iter.show(run, at);
                    let Entry { key, seq, kind, row } = iter.entry();
                    if kind == Kind::Delete {
                        continue;
                    }
                    ScanRow { key, seq, row: memory_row(row, &self.env.shapes)? }
                }
            };
            visit.rows += 1;
            visit.is_over = with(row)?.is_break();
            if visit.is_over {
                break;
            }
        }
        Ok(visit)
    }

    /// Moves to the next row of a window opened with a `sieve` filter. Skips rows that another
    /// entry in the window's span hides. Returns false at the window's end.
    pub(in crate::lsm) fn next_sifted(&mut self, at: Seq, decided: &[u8]) -> Result<bool> {
        self.usable()?;
        while self.show_next().is_some() {
            if self.key() == decided {
                continue;
            }
            let hidden = self.is_hidden(at).inspect_err(|error| self.failed = Some(error.clone()));
            if !hidden? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves all sources past the entries of the window.
    pub(in crate::lsm) fn close_window(&mut self) -> Result<()> {
        self.usable()?;
        let mut window = std::mem::take(&mut self.window);
        debug_assert!(window.next <= window.items.len(), "what is handed out is in the window");
        let closed = self.pass_lanes(&window.lanes);
        window.clear();
        self.window = window;
        self.failed = closed.as_ref().err().cloned();
        closed
    }

    fn pass_lanes(&mut self, lanes: &[Lane]) -> Result<()> {
        self.shown = None;
        for group in lanes.chunk_by(|a, b| a.source == b.source) {
            match &mut self.sources[group[0].source] {
                Source::Files(files) => {
                    let Lane { first, len, .. } = group[0];
                    files.pass_to(&self.env, first + len)?;
                }
                Source::Memory(iter) => iter.pass(|run| group.get(run).map_or(0, |lane| lane.len)),
            }
        }
        self.order_sources();
        Ok(())
    }

    /// Shows the next item as the current entry.
    #[inline(always)]
    fn show_next(&mut self) -> Option<(Item, Kind)> {
        let item = *self.window.items.get(self.window.next)?;
        self.window.next += 1;
        let Lane { source, run, .. } = self.window.lanes[item.lane as usize];
        self.shown = Some(source);
        let kind = match &mut self.sources[source] {
            Source::Files(files) => {
                let place = self.window.places[item.at as usize];
                files.show(place);
                place.kind
            }
            Source::Memory(iter) => {
                iter.show(run, item.at as usize);
                iter.entry().kind
            }
        };
        Some((item, kind))
    }

    /// True if the visible version of the key of `item`, the current item, was already found.
    #[inline(always)]
    fn is_decided(&self, item: Item, before: &[u8]) -> bool {
        match self.window.decided {
            Some(last) if last.head != item.head => false,
            last => self.is_key_decided(last, before),
        }
    }

    /// True if the current key equals the key of `last`, or equals `before` if `last` is `None`.
    #[inline(never)]
    fn is_key_decided(&self, last: Option<Item>, before: &[u8]) -> bool {
        let Some(last) = last else { return self.key() == before };
        let (a, b, _) = self.entry(&self.window, last);
        self.key().strip_prefix(a) == Some(b)
    }

    /// True if a source has, below the limit, a version of the current key that is newer than the
    /// current one but not newer than `at`.
    fn is_hidden(&self, at: Seq) -> Result<bool> {
        let (key, seq) = (self.key(), self.seq());
        for lane in &self.window.lanes {
            let hides = match &self.sources[lane.source] {
                Source::Files(files) => {
                    files.iter().map_or(Ok(false), |iter| iter.hides(key, seq, at))?
                }
                Source::Memory(iter) => iter.hides(lane.run, lane.len, key, seq, at),
            };
            if hides {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sorts entries with equal heads by key and Seq.
    fn sort_ties(&self, window: &Window, shared: usize, items: &mut [Item]) {
        for group in items.chunk_by_mut(|a, b| a.head == b.head) {
            if group.len() > 1 {
                self.sort_group(window, shared, group);
            }
        }
    }

    /// Sorts one group of entries with equal heads. The entries of each lane (the window's entries
    /// of one file or one memtable run) are adjacent and already sorted.
    #[cold]
    fn sort_group(&self, window: &Window, shared: usize, group: &mut [Item]) {
        let entry = |item: &Item| self.entry(window, *item);
        if group.len() > GROUP_SMALL {
            let lanes = || group.chunk_by(|a, b| a.lane == b.lane);
            let key = |item: &Item| {
                let (a, b, _) = entry(item);
                [a, b].concat()
            };
            let low = lanes().filter_map(|lane| lane.first().map(key)).min().unwrap_or_default();
            let high = lanes().filter_map(|lane| lane.last().map(key)).max().unwrap_or_default();
            let common = shared_len(&low, &high);
            // If the keys have a longer common prefix, the eight bytes after it distinguish them,
            // unless a key ends with the prefix.
            if common > shared && common < low.len() {
                let mut ends: Vec<usize> = lanes().map(<[Item]>::len).collect();
                let mut end = 0;
                ends.iter_mut().for_each(|len| (end, *len) = (end + *len, end + *len));
                let mut items = group.to_vec();
                for item in &mut items {
                    let (a, b, _) = entry(item);
                    item.head = Heads::new(a, common).of(b);
                }
                merge_all(&mut items, &mut Vec::new(), &mut ends);
                group.copy_from_slice(&items);
                return self.sort_ties(window, common, group);
            }
        }
        group.sort_unstable_by(|a, b| {
            let ((a, a_end, newer), (b, b_end, older)) = (entry(a), entry(b));
            compare_parts((a, a_end), (b, b_end)).then(older.cmp(&newer))
        });
    }

    /// Returns the key of an item, in two parts, and its Seq.
    fn entry(&self, window: &Window, item: Item) -> (&[u8], &[u8], Seq) {
        let lane = window.lanes[item.lane as usize];
        let at = item.at as usize;
        let entry = match &self.sources[lane.source] {
            Source::Files(files) => files.iter().map(|iter| {
                let place = window.places[at];
                let (start, end) = iter.key_at(&place);
                (start, end, place.seq)
            }),
            Source::Memory(iter) => {
                iter.entry_ahead(lane.run, at).map(|entry| (entry.key, &[][..], entry.seq))
            }
        };
        entry.unwrap_or((&[], &[], Seq::ZERO))
    }
}

//! Merges the entries of memtables and files, which are sorted sources, into one order.
//!
//! Invariants
//! * entries are ordered by ascending user key, then by descending Seq;
//! * an error ends the iteration and is returned by every later call, so a scan never ends early
//!   without an error.
//!
//! Not here: merging many entries at a time (`merge_window`), the files of one source
//! (`concat_iter`), point reads (`view`), visibility of entries (`scan`).

use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::Kind;
use crate::format::span::Span;
use crate::manifest::FileReference;
use crate::memtable::MemtableIter;
use crate::model::{RowRef, Seq};
use crate::sst::{RunWalk, SstIter};

use super::concat_iter::{Around, ConcatIter, ReadCounts};
use super::range_tombstones::Floors;
use super::row_filter::{RowFilter, ScanRow, Visit};
use super::view::{View, memory_row};
use super::window::{AHEAD, Window};
use crate::lsm::Env;

/// A sorted sequence of entries.
#[expect(clippy::large_enum_variant, reason = "few, and each row of a scan passes through one")]
pub(in crate::lsm) enum Source {
    Memory(MemtableIter),
    Files(ConcatIter),
}

/// Merges the entries of several sources into one sequence, ordered by key and Seq.
pub(crate) struct Merge {
    pub(in crate::lsm) env: Arc<Env>,
    pub(super) sources: Vec<Source>,
    /// A binary heap of the indexes of sources that are not exhausted, with the least entry on top.
    pub(super) heap: Vec<usize>,
    pub(super) high: Option<Vec<u8>>,
    pub(super) window: Window,
    /// The source of the current entry, if a window (`merge_window`) provides that entry. The
    /// source itself is positioned on another entry.
    pub(super) shown: Option<usize>,
    pub(super) failed: Option<Error>,
}

impl Merge {
    /// Merges the memtables and files of `view` that can contain keys of `whole`, from the first
    /// entry at or above `low` up to `high`. Both bounds are in `whole`.
    pub(in crate::lsm) fn over_view(
        env: &Arc<Env>,
        view: &View,
        whole: &Span,
        (low, high): (&[u8], Option<&[u8]>),
        at: Seq,
    ) -> Result<Merge> {
        let memory = view.memtables.iter().filter(|slot| !slot.memtable.is_empty());
        let chains = view.chains(whole, at);
        let mut sources = Vec::with_capacity(view.memtables.len() + chains.len());
        sources.extend(memory.map(|slot| Source::Memory(slot.memtable.iter())));
        // A later source in the list is older where it overlaps an earlier one.
        sources.extend(chains.into_iter().map(|files| Source::Files(ConcatIter::new(files, true))));
        Merge::new(env, sources, low, high)
    }

    /// Merges files for a background job, without filling the block cache. Each file of `young` is
    /// a source of its own, and all files of `run` together are one source.
    pub(crate) fn over_files(
        env: &Arc<Env>,
        young: &[FileReference],
        run: &[FileReference],
    ) -> Result<Merge> {
        let mut sources: Vec<Source> = young
            .iter()
            .map(|file| Source::Files(ConcatIter::new([file.clone()].into(), false)))
            .collect();
        if !run.is_empty() {
            sources.push(Source::Files(ConcatIter::new(run.into(), false)));
        }
        Merge::new(env, sources, &[], None)
    }

    /// Merges a single memtable, for its flush.
    pub(crate) fn over_memtable(env: &Arc<Env>, iter: MemtableIter) -> Result<Merge> {
        Merge::new(env, vec![Source::Memory(iter)], &[], None)
    }

    fn new(env: &Arc<Env>, sources: Vec<Source>, low: &[u8], high: Option<&[u8]>) -> Result<Merge> {
        let mut merge = Merge {
            env: Arc::clone(env),
            heap: Vec::with_capacity(sources.len()),
            sources,
            high: high.map(<[u8]>::to_vec),
            window: Window { ahead: AHEAD.0, ..Window::default() },
            shown: None,
            failed: None,
        };
        merge.seek(low)?;
        Ok(merge)
    }

    /// Moves to the first entry of another span, which must be inside the span of the merge.
    pub(in crate::lsm) fn seek_span(&mut self, low: &[u8], high: Option<&[u8]>) -> Result<()> {
        self.usable()?;
        self.high = high.map(<[u8]>::to_vec);
        self.seek(low).inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Moves forward to the first entry at or above `low`, or to the end of the span. The current
    /// entry must be below `low`.
    pub(in crate::lsm) fn skip_to(&mut self, low: &[u8]) -> Result<()> {
        self.usable()?;
        if self.high.as_deref().is_some_and(|high| high <= low) {
            self.heap.clear();
            return Ok(());
        }
        self.seek(low).inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Moves the memtables past the versions of the current key that are newer than `to`. Versions
    /// in files, which are older, remain. Returns false if there is nothing to pass, or too little
    /// for a search.
    pub(in crate::lsm) fn pass_versions(&mut self, to: Seq) -> Result<bool> {
        self.usable()?;
        let Some(Source::Memory(top)) = self.heap.first().map(|top| &self.sources[*top]) else {
            return Ok(false);
        };
        if !top.has_more_versions() {
            return Ok(false);
        }
        let key = top.key().to_vec();
        let mut passed = false;
        for source in &self.heap {
            if let Source::Memory(iter) = &mut self.sources[*source]
                && iter.key() == key
            {
                passed |= iter.pass_versions(to);
            }
        }
        self.order_sources();
        Ok(passed)
    }

    /// Checks that no error has ended the iteration.
    ///
    /// # Errors
    /// The error that ended the iteration.
    #[inline]
    pub(super) fn usable(&self) -> Result<()> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Returns the file source that has the current entry, and a bound below which no other source
    /// has an entry: the least current key of the other sources, or the end of the span. Returns
    /// `None` if the current entry is in memory.
    pub(in crate::lsm) fn top_files(&mut self) -> Option<(&mut ConcatIter, Option<&[u8]>)> {
        let top = *self.heap.first()?;
        let (before, rest) = self.sources.split_at_mut(top);
        let (Source::Files(files), after) = rest.split_first_mut()? else { return None };
        let other = |child: usize| -> Option<&[u8]> {
            let source = *self.heap.get(child)?;
            let source =
                if source < top { before.get(source) } else { after.get(source - top - 1) };
            source.map(Source::key)
        };
        // The next-lowest source is one of the two children of the heap's root.
        let bounds = [other(1), other(2), self.high.as_deref()];
        Some((files, bounds.into_iter().flatten().min()))
    }

    /// True if only one source is left.
    pub(in crate::lsm) fn is_alone(&self) -> bool {
        self.heap.len() == 1
    }

    /// Moves past the current entry, and past following blocks that need not be read for `filter`.
    pub(in crate::lsm) fn pass(
        &mut self,
        filter: &mut impl RowFilter,
        at: Seq,
        floors: Option<&Floors>,
    ) -> Result<()> {
        match self.top() {
            Some(Source::Files(files)) if filter.asks_zones() => {
                let next = files.iter().map_or(0, |iter| iter.slot() + 1);
                self.leave_run(next, filter, at, floors)
            }
            _ => self.advance(),
        }
    }

    /// Returns the iterator of the file with the current entry; `None` if that entry is in memory.
    /// The caller may move the iterator only inside the current block, and only while the file's
    /// entry is the least of all sources.
    #[inline]
    pub(in crate::lsm) fn top_file(&mut self) -> Option<&mut SstIter> {
        match self.heap.first().map(|top| &mut self.sources[*top]) {
            Some(Source::Files(files)) => files.iter_mut(),
            _ => None,
        }
    }

    /// Calls `with` for the next rows of `walk` that are visible at `at`. Stops after `max` rows or
    /// when `with` breaks.
    #[inline]
    pub(in crate::lsm) fn visit_walk(
        &mut self,
        walk: &mut RunWalk,
        at: Seq,
        decided: &mut Vec<u8>,
        max: usize,
        with: &mut impl FnMut(ScanRow<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<Visit> {
        let mut visit = Visit::default();
        let Some(iter) = self.top_file() else { return Ok(visit) };
        while visit.rows < max && iter.next_visible(walk, at, decided)? {
            visit.rows += 1;
            let (key, seq, row) = (iter.key(), iter.seq(), iter.row()?);
            visit.is_over = with(ScanRow { key, seq, row })?.is_break();
            if visit.is_over {
                break;
            }
        }
        Ok(visit)
    }

    /// Moves past the entries before `slot` of the current block, and past following blocks that
    /// need not be read for `filter`.
    pub(in crate::lsm) fn leave_run(
        &mut self,
        slot: usize,
        filter: &mut impl RowFilter,
        at: Seq,
        floors: Option<&Floors>,
    ) -> Result<()> {
        self.usable()?;
        let Some(top) = self.heap.first().copied() else { return Ok(()) };
        let (newer, rest) = self.sources.split_at_mut(top);
        let Some((Source::Files(files), older)) = rest.split_first_mut() else { return Ok(()) };
        let high = self.high.as_deref();
        let floor_end = floors.and_then(Floors::end);
        let below = floors.map_or(Seq::ZERO, Floors::last);
        let around = || {
            let (newer, older) = (next_key(newer), next_key(older));
            Around { newer, older, high, at, below, floor_end }
        };
        let moved = files.leave_run(&self.env, slot, filter, around);
        self.restore_heap(moved)
    }

    /// Restores the heap order after the source on top has moved forward.
    fn restore_heap(&mut self, moved: Result<()>) -> Result<()> {
        if let Err(error) = moved {
            self.failed = Some(error.clone());
            return Err(error);
        }
        let Some(top) = self.heap.first().copied() else { return Ok(()) };
        if !self.sources[top].is_valid() {
            self.heap.swap_remove(0);
        }
        if self.heap.len() > 1 {
            self.sift_down(0);
        }
        Ok(())
    }

    /// Returns the counts of all files read so far.
    pub(in crate::lsm) fn counts(&self) -> ReadCounts {
        let files = self.sources.iter().filter_map(|source| match source {
            Source::Files(files) => Some(files.counts()),
            Source::Memory(_) => None,
        });
        files.fold(ReadCounts::default(), ReadCounts::plus)
    }

    /// Moves to the first entry at or above `low`.
    fn seek(&mut self, low: &[u8]) -> Result<()> {
        self.shown = None;
        for source in &mut self.sources {
            source.seek(&self.env, low)?;
        }
        self.order_sources();
        Ok(())
    }

    /// Builds the heap of the sources that are not exhausted.
    pub(super) fn order_sources(&mut self) {
        self.heap.clear();
        self.heap.extend((0..self.sources.len()).filter(|i| self.sources[*i].is_valid()));
        for i in (0..self.heap.len() / 2).rev() {
            self.sift_down(i);
        }
        debug_assert!((1..self.heap.len()).all(|i| !self.is_less(i, 0)), "the least is on top");
    }

    /// True if there is a current entry.
    pub(crate) fn is_valid(&self) -> bool {
        match (self.heap.first(), &self.high) {
            (Some(top), Some(high)) => self.sources[*top].key() < high.as_slice(),
            (top, _) => top.is_some(),
        }
    }

    /// Moves to the next entry. Requires a current entry.
    pub(crate) fn advance(&mut self) -> Result<()> {
        self.usable()?;
        let Some(top) = self.heap.first().copied() else { return Ok(()) };
        if let Source::Memory(iter) = &mut self.sources[top]
            && self.heap.len() == 1
        {
            // Flushes take this path: the only source is a memtable, and moving it cannot fail.
            iter.next();
            if !iter.valid() {
                self.heap.clear();
            }
            return Ok(());
        }
        let moved = self.sources[top].advance(&self.env);
        self.restore_heap(moved)
    }

    /// Returns key, Seq and kind of the current entry.
    #[inline]
    pub(crate) fn head(&self) -> (&[u8], Seq, Kind) {
        self.top().map_or((&[], Seq::ZERO, Kind::Delete), |source| {
            (source.key(), source.seq(), source.kind())
        })
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.top().map_or(&[], Source::key)
    }

    pub(crate) fn seq(&self) -> Seq {
        self.top().map_or(Seq::ZERO, Source::seq)
    }

    pub(crate) fn kind(&self) -> Kind {
        self.top().map_or(Kind::Delete, Source::kind)
    }

    /// Returns key, Seq and row of the current entry, which must be a put.
    #[inline(always)]
    pub(in crate::lsm) fn current(&self) -> Result<(&[u8], Seq, RowRef<'_>)> {
        match self.top() {
            Some(Source::Files(files)) => files.current(),
            Some(Source::Memory(iter)) => {
                let entry = iter.entry();
                Ok((entry.key, entry.seq, memory_row(entry.row, &self.env.shapes)?))
            }
            None => Err(Error::corrupt("merge".as_ref(), 0, "iterator", "no current entry")),
        }
    }

    #[inline]
    fn top(&self) -> Option<&Source> {
        self.shown.as_ref().or(self.heap.first()).map(|top| &self.sources[*top])
    }

    fn sift_down(&mut self, mut i: usize) {
        loop {
            let (left, right) = (2 * i + 1, 2 * i + 2);
            let mut least = i;
            for child in [left, right] {
                if child < self.heap.len() && self.is_less(child, least) {
                    least = child;
                }
            }
            if least == i {
                return;
            }
            self.heap.swap(i, least);
            i = least;
        }
    }

    fn is_less(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.sources[self.heap[a]], &self.sources[self.heap[b]]);
        a.key().cmp(b.key()).then_with(|| b.seq().cmp(&a.seq())) == Ordering::Less
    }
}

impl Source {
    fn seek(&mut self, env: &Env, low: &[u8]) -> Result<()> {
        match self {
            Source::Memory(iter) => {
                iter.seek(low);
                Ok(())
            }
            Source::Files(iter) => iter.seek(env, low),
        }
    }

    fn advance(&mut self, env: &Env) -> Result<()> {
        match self {
            Source::Memory(iter) => {
                iter.next();
                Ok(())
            }
            Source::Files(iter) => iter.advance(env),
        }
    }

    #[inline]
    fn is_valid(&self) -> bool {
        match self {
            Source::Memory(iter) => iter.valid(),
            Source::Files(files) => files.valid(),
        }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        match self {
            Source::Memory(iter) => iter.key(),
            Source::Files(files) => files.key(),
        }
    }

    #[inline]
    fn seq(&self) -> Seq {
        match self {
            Source::Memory(iter) => iter.entry().seq,
            Source::Files(files) => files.seq(),
        }
    }

    #[inline]
    fn kind(&self) -> Kind {
        match self {
            Source::Memory(iter) => iter.entry().kind,
            Source::Files(files) => files.kind(),
        }
    }
}

/// Returns the least current key of some sources.
fn next_key(sources: &[Source]) -> Option<&[u8]> {
    sources.iter().filter(|source| source.is_valid()).map(Source::key).min()
}

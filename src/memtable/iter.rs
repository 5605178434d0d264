//! Iterates over a memtable in order, by merging its sorted runs.
//!
//! Invariant: the live cursors form a binary heap. On top is the cursor with the smallest user key
//! and, among equal keys, the newest entry.
//!
//! Rows are opaque bytes here; `lsm::read::merge` chooses the versions that a reader sees.

use std::sync::Arc;

use super::arena::Handle;
use super::order::{self, Item, Run, common_prefix_of_runs};
use super::{Entry, Memtable};
use crate::error::Result;
use crate::model::Seq;

/// Iterates over the entries that were present when it was created, by ascending user key and then
/// descending Seq.
///
/// It has no position before [`MemtableIter::seek`]. All methods but `valid` and those that seek
/// require that it is valid.
pub(crate) struct MemtableIter {
    memtable: Arc<Memtable>,
    cursors: Vec<Cursor>,
    /// The number of cursors that are not at their end, which come first in `cursors`.
    live: usize,
    /// The length of the common prefix of all keys. The heads of items (see `order`) begin after
    /// it.
    skip: usize,
    /// The entry to return as the current one, if [`show`](MemtableIter::show) has chosen one.
    shown: Option<Handle>,
}

struct Cursor {
    item: Item,
    at: usize,
    run: Arc<Run>,
}

impl Memtable {
    /// Creates an iterator over all entries inserted before this call.
    pub(crate) fn iter(self: &Arc<Self>) -> MemtableIter {
        let runs = self.order.runs(&self.arena, &self.newest);
        let memtable = Arc::clone(self);
        let skip = common_prefix_of_runs(&memtable.arena, &runs);
        let cursor = |run: Arc<Run>| {
            let item = run.item(&memtable.arena, 0, skip)?;
            Some(Cursor { item, at: 0, run })
        };
        let cursors = runs.into_iter().filter_map(cursor).collect();
        MemtableIter { memtable, cursors, live: 0, skip, shown: None }
    }
}

impl MemtableIter {
    /// Moves to the first entry whose key is at or above `key`; the empty key is below all others.
    pub(crate) fn seek(&mut self, key: &[u8]) {
        self.seek_version(key, Seq::MAX);
    }

    /// Moves to the first entry at or after (`key`, `at`): the newest version of `key` that is not
    /// newer than `at` or, without one, the next entry.
    pub(crate) fn seek_version(&mut self, key: &[u8], at: Seq) {
        let arena = &self.memtable.arena;
        for cursor in &mut self.cursors {
            cursor.at = cursor.run.lower_bound(arena, key, at);
        }
        self.rebuild_heap();
    }

    /// Rebuilds the heap of cursors.
    fn rebuild_heap(&mut self) {
        self.shown = None;
        self.live = 0;
        for index in 0..self.cursors.len() {
            let cursor = &mut self.cursors[index];
            if let Some(item) = cursor.run.item(&self.memtable.arena, cursor.at, self.skip) {
                cursor.item = item;
                self.cursors.swap(index, self.live);
                self.live += 1;
            }
        }
        debug_assert!(self.live <= self.cursors.len(), "live cursors come first");
        for index in (0..self.live / 2).rev() {
            self.sift_down(index);
        }
    }

    /// True if the iterator is on an entry: false at the end and before the first `seek`.
    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.live > 0
    }

    /// Moves to the next entry.
    pub(crate) fn next(&mut self) {
        debug_assert!(self.valid(), "next after the end");
        let Some(cursor) = self.cursors.first_mut() else { return };
        cursor.at += 1;
        if let Some(item) = cursor.run.item(&self.memtable.arena, cursor.at, self.skip) {
            cursor.item = item;
        } else {
            self.live -= 1;
            self.cursors.swap(0, self.live);
        }
        self.sift_down(0);
    }

    /// True if the entry after the current one, in the same run, has the same key.
    pub(crate) fn has_more_versions(&self) -> bool {
        let (arena, cursor) = (&self.memtable.arena, &self.cursors[0]);
        let next = cursor.run.item(arena, cursor.at + 1, self.skip);
        next.is_some_and(|next| arena.node(next.node).key() == arena.node(cursor.item.node).key())
    }

    /// Moves past the versions of the current key that are newer than `to`. Returns false if the
    /// current entry is not newer.
    pub(crate) fn pass_versions(&mut self, to: Seq) -> bool {
        if self.entry().seq <= to {
            return false;
        }
        let arena = &self.memtable.arena;
        let key = arena.node(self.cursors[0].item.node).key();
        // Only cursors on the key must move, because all others are above it.
        for cursor in &mut self.cursors[..self.live] {
            if arena.node(cursor.item.node).key() == key {
                cursor.at = cursor.at.max(cursor.run.lower_bound(arena, key, to));
            }
        }
        self.rebuild_heap();
        true
    }

    /// Moves to the last entry with a key below `key`, or to the last entry of all. Afterwards only
    /// [`prev`](Self::prev) may move the iterator.
    pub(crate) fn seek_below(&mut self, key: Option<&[u8]>) {
        let arena = &self.memtable.arena;
        for cursor in &mut self.cursors {
            let bound = key.map(|key| cursor.run.lower_bound(arena, key, Seq::MAX));
            // Here `at` is the position after the cursor's entry; 0 means before the first entry.
            cursor.at = bound.unwrap_or(cursor.run.len());
        }
        self.live = self.cursors.len();
        self.show_greatest();
    }

    /// Moves to the previous entry. [`seek_below`](Self::seek_below) must have been called before.
    pub(crate) fn prev(&mut self) {
        if let Some(first) = self.cursors.first_mut() {
            first.at = first.at.saturating_sub(1);
        }
        self.show_greatest();
    }

    /// Shows the greatest entry before the cursors' positions, or ends the iteration.
    fn show_greatest(&mut self) {
        let arena = &self.memtable.arena;
        let mut greatest: Option<usize> = None;
        for index in 0..self.cursors.len() {
            let cursor = &mut self.cursors[index];
            let before = cursor.at.checked_sub(1);
            let Some(item) = before.and_then(|at| cursor.run.item(arena, at, self.skip)) else {
                continue;
            };
            cursor.item = item;
            let best = greatest.map(|best| &self.cursors[best].item);
            if best.is_none_or(|best| order::compare(arena, &item, best).is_gt()) {
                greatest = Some(index);
            }
        }
        self.live = usize::from(greatest.is_some());
        if let Some(greatest) = greatest {
            self.cursors.swap(0, greatest);
        }
    }

    #[inline]
    pub(crate) fn entry(&self) -> Entry<'_> {
        debug_assert!(self.valid(), "no entry after the end");
        let node = self.shown.unwrap_or_else(|| self.cursors[0].item.node);
        Entry::of(self.memtable.arena.node(node))
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.entry().key
    }

    fn sift_down(&mut self, mut at: usize) {
        let arena = &self.memtable.arena;
        let heap = &mut self.cursors[..self.live];
        let less = |a: &Cursor, b: &Cursor| order::compare(arena, &a.item, &b.item).is_lt();
        loop {
            let mut least = 2 * at + 1;
            if least >= heap.len() {
                return;
            }
            if least + 1 < heap.len() && less(&heap[least + 1], &heap[least]) {
                least += 1;
            }
            if !less(&heap[least], &heap[at]) {
                return;
            }
            heap.swap(at, least);
            at = least;
        }
    }
}

/// Methods that read ahead in each run separately. Runs are numbered from 0, and each move
/// renumbers them.
impl MemtableIter {
    /// Returns how many runs have remaining entries.
    pub(crate) fn runs(&self) -> usize {
        self.live
    }

    /// Returns the last key of `run`.
    pub(crate) fn last_key(&self, run: usize) -> Option<&[u8]> {
        let item = self.ahead(run, 0).last()?;
        Some(self.memtable.arena.node(item.node).key())
    }

    /// Calls `with` with the entries of `run` below `limit`, in order, and returns their number. It
    /// is fastest if `guess` equals that number.
    #[inline]
    pub(crate) fn visit_below<'a>(
        &'a self,
        run: usize,
        limit: Option<&[u8]>,
        guess: usize,
        mut with: impl FnMut(Entry<'a>) -> Result<()>,
    ) -> Result<usize> {
        let Some(cursor) = self.cursors.get(run).filter(|_| run < self.live) else { return Ok(0) };
        let arena = &self.memtable.arena;
        let ahead = cursor.run.items_from(cursor.at);
        let len =
            limit.map_or(ahead.len(), |limit| cursor.run.below(arena, cursor.at, limit, guess));
        for (at, item) in ahead[..len].iter().enumerate() {
            order::prefetch(arena, &ahead[at..]);
            with(Entry::of(arena.node(item.node)))?;
        }
        Ok(len)
    }

    /// Returns the entry `ahead` positions after the current one of `run`, if it exists.
    #[inline]
    pub(crate) fn entry_ahead(&self, run: usize, ahead: usize) -> Option<Entry<'_>> {
        let item = self.ahead(run, ahead).first()?;
        Some(Entry::of(self.memtable.arena.node(item.node)))
    }

    /// True if one of the next `len` entries of `run` has the key `key` and a Seq above `seq`, but
    /// not above `at`.
    pub(crate) fn hides(&self, run: usize, len: usize, key: &[u8], seq: Seq, at: Seq) -> bool {
        let items = self.ahead(run, 0);
        let items = items.get(..len).unwrap_or(items);
        let entry = |item: &Item| Entry::of(self.memtable.arena.node(item.node));
        let from = items.partition_point(|item| entry(item).key < key);
        let versions = items[from..].iter().map(entry).take_while(|entry| entry.key == key);
        versions.into_iter().any(|entry| entry.seq <= at && entry.seq > seq)
    }

    /// Shows the entry `ahead` positions after the current one of `run` as the current entry, until
    /// the next move.
    #[inline]
    pub(crate) fn show(&mut self, run: usize, ahead: usize) {
        self.shown = self.ahead(run, ahead).first().map(|item| item.node);
        debug_assert!(self.shown.is_some(), "the entry to show is in its run");
    }

    /// Skips the next `taken(run)` entries of each run.
    pub(crate) fn pass(&mut self, taken: impl Fn(usize) -> usize) {
        for (run, cursor) in self.cursors[..self.live].iter_mut().enumerate() {
            cursor.at += taken(run);
            debug_assert!(cursor.at <= cursor.run.len(), "no more is passed than there is");
        }
        self.rebuild_heap();
    }

    #[inline]
    fn ahead(&self, run: usize, ahead: usize) -> &[Item] {
        let cursor = self.cursors.get(run).filter(|_| run < self.live);
        cursor.map_or(&[], |cursor| cursor.run.items_from(cursor.at + ahead))
    }
}

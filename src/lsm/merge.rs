//! Sorted reading over many sources: all entries in one order.
//!
//! Invariants
//! * entries come by user key ascending, then Seq descending;
//! * an error ends the iteration and is answered ever after: a scan never just stops early;
//! * a file is opened when its turn comes, and read only inside its reference's clip.
//!
//! Not here: which sources a key has (`manifest::Version`), points (`view`), which entries a reader sees (`scan`).

use std::cmp::Ordering;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::Kind;
use crate::format::span::Span;
use crate::manifest::{FileEntry, Version};
use crate::memtable::MemtableIter;
use crate::model::{RowRef, Seq};
use crate::planted::planted;
use crate::ranges::Reference;
use crate::sst::{BlockRun, SstIter};

use super::Env;
use super::view::{View, memory_row};

/// One sorted sequence of entries.
pub(super) enum Source {
    Memory(MemtableIter),
    Files(FilesIter),
}

/// Files that do not overlap, one after the other.
pub(super) struct FilesIter {
    /// Ascending.
    files: Vec<Reference<Arc<FileEntry>>>,
    /// The file being read; all read when it is the count.
    at: usize,
    iter: Option<SstIter>,
    fill_cache: bool,
    /// Of the files left behind.
    counts: ReadCounts,
}

/// What was read of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadCounts {
    pub(crate) files: u64,
    pub(crate) blocks: u64,
    /// Because no row in them could match.
    pub(crate) files_skipped: u64,
    pub(crate) blocks_skipped: u64,
}

/// All entries of several sources in one order.
pub(crate) struct Merge {
    env: Arc<Env>,
    sources: Vec<Source>,
    /// A binary heap of the sources that are not used up, least entry first.
    heap: Vec<usize>,
    high: Option<Vec<u8>>,
    failed: Option<Error>,
}

impl Merge {
    /// Over the memtables and files of `view` that can hold keys of `whole`, from the first entry of `span` on, which is
    /// a part of it.
    pub(super) fn over_view(
        env: &Arc<Env>,
        view: &View,
        whole: &Span,
        span: &Span,
    ) -> Result<Merge> {
        let memory = view.memtables.iter().filter(|slot| !slot.memtable.is_empty());
        let mut sources: Vec<Source> =
            memory.map(|slot| Source::Memory(slot.memtable.iter())).collect();
        sources.extend(file_sources(&view.version, whole));
        Merge::new(env, sources, &span.low, span.high.as_deref())
    }

    /// Over files only, each a source of its own, around the cache; for jobs.
    pub(crate) fn over_files(
        env: &Arc<Env>,
        young: &[Reference<Arc<FileEntry>>],
        run: &[Reference<Arc<FileEntry>>],
    ) -> Result<Merge> {
        let mut sources: Vec<Source> = young
            .iter()
            .map(|file| Source::Files(FilesIter::new(vec![file.clone()], false)))
            .collect();
        if !run.is_empty() {
            sources.push(Source::Files(FilesIter::new(run.to_vec(), false)));
        }
        Merge::new(env, sources, &[], None)
    }

    /// Over one memtable; for its flush.
    pub(crate) fn over_memtable(env: &Arc<Env>, iter: MemtableIter) -> Result<Merge> {
        Merge::new(env, vec![Source::Memory(iter)], &[], None)
    }

    fn new(env: &Arc<Env>, sources: Vec<Source>, low: &[u8], high: Option<&[u8]>) -> Result<Merge> {
        let mut merge = Merge {
            env: Arc::clone(env),
            heap: Vec::with_capacity(sources.len()),
            sources,
            high: high.map(<[u8]>::to_vec),
            failed: None,
        };
        merge.seek(low)?;
        Ok(merge)
    }

    /// Goes to the first entry of another span. Requires: the span lies in the one the merge was made for.
    pub(super) fn seek_span(&mut self, span: &Span) -> Result<()> {
        self.high = span.high.as_deref().map(<[u8]>::to_vec);
        self.seek(&span.low)
    }

    /// The files of the source that has the current entry, and where its entries stop being the least: at the next
    /// entry of another source, or at the end of the span. `None` if the entry is in memory.
    pub(super) fn top_files(&mut self) -> Option<(&mut FilesIter, Option<&[u8]>)> {
        let top = *self.heap.first()?;
        let (before, rest) = self.sources.split_at_mut(top);
        let (Source::Files(files), after) = rest.split_first_mut()? else { return None };
        let other = |child: usize| -> Option<&[u8]> {
            let source = *self.heap.get(child)?;
            let source =
                if source < top { before.get(source) } else { after.get(source - top - 1) };
            source.map(Source::key)
        };
        // The children of a heap's root: the least of the others is one of them.
        let bounds = [other(1), other(2), self.high.as_deref()];
        Some((files, bounds.into_iter().flatten().min()))
    }

    /// Goes to another entry of the block on top. Requires: it is still the least.
    #[inline]
    pub(super) fn go_to_slot(&mut self, slot: usize) -> Result<()> {
        let Some(Source::Files(files)) = self.heap.first().map(|top| &mut self.sources[*top])
        else {
            return Ok(());
        };
        files.go_to_slot(slot)
    }

    /// Leaves the entries before `slot` of the block on top behind.
    pub(super) fn leave_run(&mut self, slot: usize) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let Some(Source::Files(files)) = self.heap.first().map(|top| &mut self.sources[*top])
        else {
            return Ok(());
        };
        let moved = files.leave_run(&self.env, slot);
        self.settle_top(moved)
    }

    /// Puts the heap in order after the source on top was moved forwards.
    fn settle_top(&mut self, moved: Result<()>) -> Result<()> {
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

    /// What was read of all files so far.
    pub(super) fn counts(&self) -> ReadCounts {
        let files = self.sources.iter().filter_map(|source| match source {
            Source::Files(files) => Some(files.counts()),
            Source::Memory(_) => None,
        });
        files.fold(ReadCounts::default(), ReadCounts::plus)
    }

    /// Goes to the first entry at or above `low`.
    fn seek(&mut self, low: &[u8]) -> Result<()> {
        for source in &mut self.sources {
            source.seek(&self.env, low)?;
        }
        self.heap.clear();
        self.heap.extend((0..self.sources.len()).filter(|i| self.sources[*i].is_valid()));
        for i in (0..self.heap.len() / 2).rev() {
            self.sift_down(i);
        }
        Ok(())
    }

    /// True if there is an entry to look at.
    pub(crate) fn is_valid(&self) -> bool {
        match (self.heap.first(), &self.high) {
            (Some(top), Some(high)) => self.sources[*top].key() < high.as_slice(),
            (top, _) => top.is_some(),
        }
    }

    /// Goes to the next entry. Requires that there is a current one.
    pub(crate) fn advance(&mut self) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let Some(top) = self.heap.first().copied() else { return Ok(()) };
        let moved = self.sources[top].advance(&self.env);
        if moved.is_err() && planted!("swallow-iterator-error") {
            self.heap.clear();
            return Ok(());
        }
        self.settle_top(moved)
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

    /// The row of a put; requires one.
    pub(crate) fn row(&self) -> Result<RowRef<'_>> {
        match self.top() {
            Some(source) => source.row(&self.env),
            None => Err(Error::corrupt("merge".as_ref(), 0, "iterator", "no current entry")),
        }
    }

    /// Key, Seq and row of a put; requires one.
    #[inline]
    pub(super) fn current(&self) -> Result<(&[u8], Seq, RowRef<'_>)> {
        match self.top() {
            Some(Source::Files(FilesIter { iter: Some(iter), .. })) => {
                Ok((iter.key(), iter.seq(), iter.row()?))
            }
            Some(source) => Ok((source.key(), source.seq(), source.row(&self.env)?)),
            None => Err(Error::corrupt("merge".as_ref(), 0, "iterator", "no current entry")),
        }
    }

    #[inline]
    fn top(&self) -> Option<&Source> {
        self.heap.first().map(|top| &self.sources[*top])
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
            Source::Files(iter) => iter.iter.as_ref().is_some_and(SstIter::valid),
        }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        match self {
            Source::Memory(iter) => iter.key(),
            Source::Files(iter) => iter.iter.as_ref().map_or(&[], SstIter::key),
        }
    }

    #[inline]
    fn seq(&self) -> Seq {
        match self {
            Source::Memory(iter) => iter.seq(),
            Source::Files(iter) => iter.iter.as_ref().map_or(Seq::ZERO, SstIter::seq),
        }
    }

    #[inline]
    fn kind(&self) -> Kind {
        match self {
            Source::Memory(iter) => iter.kind(),
            Source::Files(iter) => iter.iter.as_ref().map_or(Kind::Delete, SstIter::kind),
        }
    }

    fn row<'a>(&'a self, env: &'a Env) -> Result<RowRef<'a>> {
        match self {
            Source::Memory(iter) => memory_row(iter.row(), &env.shapes),
            Source::Files(FilesIter { iter: Some(iter), .. }) => iter.row(),
            Source::Files(_) => {
                Err(Error::corrupt("merge".as_ref(), 0, "iterator", "no current entry"))
            }
        }
    }
}

impl FilesIter {
    fn new(files: Vec<Reference<Arc<FileEntry>>>, fill_cache: bool) -> Self {
        Self { files, at: 0, iter: None, fill_cache, counts: ReadCounts::default() }
    }

    /// The entries from the current one to the end of its block, as far as their keys are below `limit` and inside
    /// the file's clip.
    pub(super) fn rest_of_block(&self, limit: Option<&[u8]>) -> Result<Option<BlockRun<'_>>> {
        let Some(iter) = &self.iter else { return Ok(None) };
        let clip = self.files.get(self.at).and_then(|file| file.clip.high.as_deref());
        let limit = [limit, clip].into_iter().flatten().min();
        iter.rest_of_block(limit).map(Some)
    }

    /// Goes to another entry of the current block.
    #[inline]
    pub(super) fn go_to_slot(&mut self, slot: usize) -> Result<()> {
        self.iter.as_mut().map_or(Ok(()), |iter| iter.go_to_slot(slot))
    }

    /// Goes to the entry in `slot` of the current block, or to the first of the next block if there is no such slot.
    pub(super) fn leave_run(&mut self, env: &Env, slot: usize) -> Result<()> {
        if let Some(iter) = &mut self.iter {
            iter.leave_run(slot)?;
            if self.is_inside() {
                return Ok(());
            }
            self.at += 1;
        }
        self.open(env, &[])
    }

    fn counts(&self) -> ReadCounts {
        let current = self.iter.as_ref().map(|iter| ReadCounts {
            files: 1,
            blocks: iter.loads(),
            ..ReadCounts::default()
        });
        self.counts.plus(current.unwrap_or_default())
    }

    fn seek(&mut self, env: &Env, low: &[u8]) -> Result<()> {
        self.at = self.files.partition_point(|file| file.clip.ends_before(low));
        self.open(env, low)
    }

    fn advance(&mut self, env: &Env) -> Result<()> {
        if let Some(iter) = &mut self.iter {
            iter.next()?;
            if self.is_inside() {
                return Ok(());
            }
            self.at += 1;
        }
        self.open(env, &[])
    }

    /// Opens files from the current one on until one has an entry at or above `low` inside its clip.
    fn open(&mut self, env: &Env, low: &[u8]) -> Result<()> {
        self.leave_file();
        while let Some(file) = self.files.get(self.at) {
            let mut iter = env.open_sst(&file.file)?.iter(self.fill_cache);
            iter.seek(low.max(&file.clip.low))?;
            self.iter = Some(iter);
            if self.is_inside() {
                return Ok(());
            }
            self.at += 1;
            self.leave_file();
        }
        Ok(())
    }

    fn leave_file(&mut self) {
        self.counts = self.counts();
        self.iter = None;
    }

    /// True if the current entry lies inside the current file's clip.
    fn is_inside(&self) -> bool {
        let Some(iter) = self.iter.as_ref().filter(|iter| iter.valid()) else { return false };
        let high = self.files.get(self.at).and_then(|file| file.clip.high.as_deref());
        high.is_none_or(|high| iter.key() < high)
    }
}

impl ReadCounts {
    pub(crate) fn plus(self, other: ReadCounts) -> ReadCounts {
        ReadCounts {
            files: self.files + other.files,
            blocks: self.blocks + other.blocks,
            files_skipped: self.files_skipped + other.files_skipped,
            blocks_skipped: self.blocks_skipped + other.blocks_skipped,
        }
    }
}

/// The files that can hold keys of a span: each young one, and the runs one after the other.
fn file_sources(version: &Version, span: &Span) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut run = Vec::new();
    for range in version.ranges_in(span) {
        let inside = |file: &&Reference<Arc<FileEntry>>| file.clip.overlaps(span);
        for file in range.young.iter().filter(inside) {
            sources.push(Source::Files(FilesIter::new(vec![file.clone()], true)));
        }
        run.extend(range.run_in(span).iter().cloned());
    }
    if !run.is_empty() {
        sources.push(Source::Files(FilesIter::new(run, true)));
    }
    sources
}

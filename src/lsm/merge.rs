//! Sorted reading over many sources: all entries for jobs, the visible ones for scans.
//!
//! Invariants
//! * entries come by user key ascending, then Seq descending;
//! * an error ends the iteration and is answered ever after: a scan never just stops early;
//! * a file is opened when its turn comes, and read only inside its reference's clip.
//!
//! Not here: which sources a key has (`manifest::Version`), points (`view`).

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
use crate::sst::SstIter;

use super::view::{View, memory_row};
use super::{Engine, Env};

/// One sorted sequence of entries.
enum Source {
    Memory(MemtableIter),
    Files(FilesIter),
}

/// Files that do not overlap, one after the other.
struct FilesIter {
    /// Ascending.
    files: Vec<Reference<Arc<FileEntry>>>,
    /// The file being read; all read when it is the count.
    at: usize,
    iter: Option<SstIter>,
    fill_cache: bool,
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

/// The rows of a key span as of one Seq.
pub(crate) struct Scan {
    merge: Merge,
    at: Seq,
    /// The key of the entry that decided last; older versions of it are skipped.
    decided: Vec<u8>,
    is_first: bool,
}

/// A visible row.
pub(crate) struct ScanRow<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) seq: Seq,
    pub(crate) row: RowRef<'a>,
}

impl Merge {
    /// Over the memtables and files of `view` that can hold keys of `span`.
    fn over_view(env: &Arc<Env>, view: &View, span: &Span) -> Result<Merge> {
        let memory = view.memtables.iter().filter(|slot| !slot.memtable.is_empty());
        let mut sources: Vec<Source> =
            memory.map(|slot| Source::Memory(slot.memtable.iter())).collect();
        sources.extend(file_sources(&view.version, span));
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
        if let Err(error) = self.sources[top].advance(&self.env) {
            if planted!("swallow-iterator-error") {
                self.heap.clear();
                return Ok(());
            }
            self.failed = Some(error.clone());
            return Err(error);
        }
        if !self.sources[top].is_valid() {
            self.heap.swap_remove(0);
        }
        if self.heap.len() > 1 {
            self.sift_down(0);
        }
        Ok(())
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
        Self { files, at: 0, iter: None, fill_cache }
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
        self.iter = None;
        while let Some(file) = self.files.get(self.at) {
            let mut iter = env.open_sst(&file.file)?.iter(self.fill_cache);
            iter.seek(low.max(&file.clip.low))?;
            self.iter = Some(iter);
            if self.is_inside() {
                return Ok(());
            }
            self.at += 1;
        }
        self.iter = None;
        Ok(())
    }

    /// True if the current entry lies inside the current file's clip.
    fn is_inside(&self) -> bool {
        let Some(iter) = self.iter.as_ref().filter(|iter| iter.valid()) else { return false };
        let high = self.files.get(self.at).and_then(|file| file.clip.high.as_deref());
        high.is_none_or(|high| iter.key() < high)
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

impl Scan {
    /// Goes to the next visible row; false at the end.
    ///
    /// # Errors
    /// Damage and disk errors, now and at every later call.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<bool> {
        if self.is_first {
            self.is_first = false;
        } else {
            self.merge.advance()?;
        }
        while self.merge.is_valid() {
            let key = self.merge.key();
            if self.merge.seq() <= self.at && key != self.decided.as_slice() {
                self.decided.clear();
                self.decided.extend_from_slice(key);
                if self.merge.kind() == Kind::Put {
                    return Ok(true);
                }
            }
            self.merge.advance()?;
        }
        Ok(false)
    }

    /// The current row. Requires that the last [`advance`](Self::advance) answered true.
    #[inline]
    pub(crate) fn row(&self) -> Result<ScanRow<'_>> {
        Ok(ScanRow { key: self.merge.key(), seq: self.merge.seq(), row: self.merge.row()? })
    }
}

impl Engine {
    /// The rows of `span` as of `at`, or as of now.
    pub(crate) fn scan(&self, span: &Span, at: Option<Seq>) -> Result<Scan> {
        // The view before the Seq: see `view`.
        let view = self.view.load_full();
        let at = at.filter(|_| !planted!("scan-ignores-snapshot"));
        let at = at.unwrap_or_else(|| self.rounds.published());
        let merge = Merge::over_view(&self.env, &view, span)?;
        Ok(Scan { merge, at, decided: Vec::new(), is_first: true })
    }
}

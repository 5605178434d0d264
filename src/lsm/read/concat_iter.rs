//! Reads non-overlapping files one after the other, as one source of a merge. Skips blocks and
//! files that a filter does not need: `query` evaluates it on the least and greatest values.
//!
//! Invariants
//! * a file is opened when it is reached, and read only inside its reference's clip;
//! * a block is skipped only if none of its rows can match, no older source has a key in its span,
//!   and the next block has no version of its last key. Otherwise a row hidden by the block might
//!   reappear;
//! * the rows of a block are counted without reading it only if all of them match and are visible,
//!   and neither a key of another source nor a bound of the scan is in the block's span.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::Kind;
use crate::format::row_block::EntryPlace;
use crate::format::zones::{ZONE_BLOCKS, ZoneSet, flag};
use crate::manifest::{FileEntry, FileReference};
use crate::model::{RowRef, Seq};
use crate::ranges::Chain;
use crate::sst::{BlockRun, Sst, SstIter};

use super::row_filter::{RowFilter, ZoneMatch};
use crate::lsm::Env;

/// A source of a merge: files in key order.
pub(in crate::lsm) struct ConcatIter {
    /// The files, in ascending key order.
    files: Chain<Arc<FileEntry>>,
    /// The index of the file being read; the number of files once the end is reached.
    at: usize,
    iter: Option<SstIter>,
    fill_cache: bool,
    zones: Option<Box<PageMatch>>,
    /// The files and blocks read or skipped before the current file.
    counts: ReadCounts,
}

/// The numbers of files and blocks that a scan has read and skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadCounts {
    pub(crate) files: u64,
    pub(crate) blocks: u64,
    /// Files and blocks that were not read. A block need not be read if none of its rows can match,
    /// or if only the number of matching rows is requested and the zones show it.
    pub(crate) files_skipped: u64,
    pub(crate) blocks_skipped: u64,
}

/// The current keys of the other sources of a merge, and the bounds of a scan.
pub(in crate::lsm) struct Around<'k> {
    /// The least current key of all newer sources.
    pub(in crate::lsm) newer: Option<&'k [u8]>,
    /// The least current key of all older sources.
    pub(in crate::lsm) older: Option<&'k [u8]>,
    /// The end of the scan.
    pub(in crate::lsm) high: Option<&'k [u8]>,
    pub(in crate::lsm) at: Seq,
    /// Entries below this Seq are hidden if their keys are between the current key and `floor_end`.
    pub(in crate::lsm) below: Seq,
    pub(in crate::lsm) floor_end: Option<&'k [u8]>,
}

/// The filter's result for one page of the current file's zones. Bit i is for block i of the page.
struct PageMatch {
    number: usize,
    /// Blocks that have no matching row, and whose last key has no versions in the next block.
    skippable: u64,
    /// Blocks in which every entry is a visible, matching row, and no two entries have the same
    /// key.
    countable: u64,
    entries: [u32; ZONE_BLOCKS],
}

/// After this many skipped blocks, one is read anyway, so that a reader can check its time budget.
const PASS_BLOCKS: usize = 4_096;
/// After this many skipped files, one is read anyway.
const PASS_FILES: usize = 64;

impl ConcatIter {
    pub(in crate::lsm) fn new(files: Chain<Arc<FileEntry>>, fill_cache: bool) -> Self {
        let ascend = |files: &Chain<_>| {
            files.is_sorted_by(|a: &FileReference, b| a.clip.ends_before(&b.clip.low))
        };
        debug_assert!(ascend(&files), "files of a source do not overlap");
        let counts = ReadCounts::default();
        Self { files, at: 0, iter: None, fill_cache, zones: None, counts }
    }

    #[inline]
    pub(in crate::lsm) fn valid(&self) -> bool {
        self.iter.as_ref().is_some_and(SstIter::valid)
    }

    #[inline]
    pub(in crate::lsm) fn key(&self) -> &[u8] {
        self.iter.as_ref().map_or(&[], SstIter::key)
    }

    #[inline]
    pub(in crate::lsm) fn seq(&self) -> Seq {
        self.iter.as_ref().map_or(Seq::ZERO, SstIter::seq)
    }

    /// Returns the least Seq in the file being read.
    pub(in crate::lsm) fn seq_min(&self) -> Seq {
        self.files.get(self.at).map_or(Seq::ZERO, |file| file.file.meta.seq_min)
    }

    #[inline]
    pub(in crate::lsm) fn kind(&self) -> Kind {
        self.iter.as_ref().map_or(Kind::Delete, SstIter::kind)
    }

    /// Returns key, Seq and row of the current entry, which must be a put.
    #[inline(always)]
    pub(in crate::lsm) fn current(&self) -> Result<(&[u8], Seq, RowRef<'_>)> {
        match &self.iter {
            Some(iter) => Ok((iter.key(), iter.seq(), iter.row()?)),
            None => Err(Error::corrupt("merge".as_ref(), 0, "iterator", "no current entry")),
        }
    }

    /// Returns the entries from the current one to the end of its block, if their keys are below
    /// `limit` and inside the file's clip.
    pub(in crate::lsm) fn rest_of_block(
        &self,
        limit: Option<&[u8]>,
    ) -> Result<Option<BlockRun<'_>>> {
        let Some(iter) = &self.iter else { return Ok(None) };
        iter.rest_of_block([limit, self.clip_high()].into_iter().flatten().min()).map(Some)
    }

    /// Returns the iterator of the file being read; `None` at the end of the source.
    #[inline]
    pub(in crate::lsm) fn iter(&self) -> Option<&SstIter> {
        self.iter.as_ref()
    }

    /// Makes the entry at `place` in the current block the current entry until the next move.
    #[inline(always)]
    pub(in crate::lsm) fn show(&mut self, place: EntryPlace) {
        if let Some(iter) = &mut self.iter {
            iter.show(place);
        }
    }

    /// Writes to `out` an exclusive upper bound for a window of about `ahead` entries of this
    /// source. The bound is never beyond the current block.
    pub(in crate::lsm) fn put_window_end(&self, ahead: usize, out: &mut Vec<u8>) -> Result<()> {
        let Some(iter) = &self.iter else { return Ok(()) };
        iter.put_key_ahead(ahead, out)?;
        if let Some(high) = self.clip_high().filter(|high| *high < out.as_slice()) {
            out.clear();
            out.extend_from_slice(high);
        }
        Ok(())
    }

    /// Returns the entries from the current one up to `limit` (exclusive), which must not exceed
    /// the bound of [`put_window_end`](Self::put_window_end); `None` if there are none.
    pub(in crate::lsm) fn window(
        &self,
        limit: &[u8],
        ahead: usize,
    ) -> Result<Option<BlockRun<'_>>> {
        let Some(iter) = &self.iter else { return Ok(None) };
        let run = iter.window(limit, ahead)?;
        Ok(Some(run).filter(|run| !run.is_empty()))
    }

    /// Returns the iterator of the file being read, for moves inside its current block.
    #[inline]
    pub(in crate::lsm) fn iter_mut(&mut self) -> Option<&mut SstIter> {
        self.iter.as_mut()
    }

    /// Moves to the entry in `slot` of the current block. If the block has no such slot, moves to
    /// the first later entry that must be read for `filter`.
    pub(in crate::lsm) fn leave_run<'k>(
        &mut self,
        env: &Env,
        slot: usize,
        filter: &mut impl RowFilter,
        around: impl FnOnce() -> Around<'k>,
    ) -> Result<()> {
        match &self.iter {
            Some(iter) if iter.has_slot(slot) => self.pass_to(env, slot),
            Some(_) => self.leave_block(env, filter, &around()),
            None => Ok(()),
        }
    }

    /// Moves to the entry in `slot` of the current block, or to the next file if the clip ends
    /// before that entry.
    pub(in crate::lsm) fn pass_to(&mut self, env: &Env, slot: usize) -> Result<()> {
        self.iter.as_mut().map_or(Ok(()), |iter| iter.go_to_slot(slot))?;
        if self.is_inside() {
            return Ok(());
        }
        self.at += 1;
        self.open(env, &[])
    }

    fn leave_block(
        &mut self,
        env: &Env,
        filter: &mut impl RowFilter,
        around: &Around<'_>,
    ) -> Result<()> {
        if let Some(next) = self.next_block(filter, around)?
            && let Some(iter) = &mut self.iter
        {
            iter.go_to_block(next)?;
            if self.is_inside() {
                return Ok(());
            }
        }
        self.at += 1;
        self.skip_files(env, filter, around)?;
        self.open(env, &[])
    }

    pub(in crate::lsm) fn seek(&mut self, env: &Env, low: &[u8]) -> Result<()> {
        self.at = self.files.partition_point(|file| file.clip.ends_before(low));
        self.open(env, low)
    }

    pub(in crate::lsm) fn advance(&mut self, env: &Env) -> Result<()> {
        if let Some(iter) = &mut self.iter {
            iter.next()?;
            if self.is_inside() {
                return Ok(());
            }
            self.at += 1;
        }
        self.open(env, &[])
    }

    pub(in crate::lsm) fn counts(&self) -> ReadCounts {
        let current = self.iter.as_ref().map(|iter| ReadCounts {
            files: 1,
            blocks: iter.loads(),
            ..ReadCounts::default()
        });
        self.counts.plus(current.unwrap_or_default())
    }

    /// Opens the current file or later ones, until one has an entry at or above `low` inside its
    /// clip.
    fn open(&mut self, env: &Env, low: &[u8]) -> Result<()> {
        self.leave_file();
        while let Some(file) = self.files.get(self.at) {
            let sst = match env.open_sst(&file.file) {
                // The file cannot be opened. Skip it if it has no key at or above `low`.
                Err(_) if *file.file.meta.key_max < *low => {
                    self.at += 1;
                    continue;
                }
                opened => opened?,
            };
            let mut iter = sst.iter(self.fill_cache);
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
        self.zones = None;
    }

    /// True if the current entry is inside the clip of the current file (the key span for which the
    /// file is used).
    fn is_inside(&self) -> bool {
        let Some(iter) = self.iter.as_ref().filter(|iter| iter.valid()) else { return false };
        self.clip_high().is_none_or(|high| iter.key() < high)
    }

    fn clip_high(&self) -> Option<&[u8]> {
        self.files.get(self.at).and_then(|file| file.clip.high.as_deref())
    }

    /// Skips files without a matching row. Does so only if no older source is left: then an entry
    /// of a skipped file could hide only entries of the same source. Those are in the same file,
    /// because a source has all versions of a key in one file, so they are skipped too.
    fn skip_files(
        &mut self,
        env: &Env,
        filter: &mut impl RowFilter,
        around: &Around<'_>,
    ) -> Result<()> {
        if around.older.is_some() || !filter.asks_zones() {
            return Ok(());
        }
        for _ in 0..PASS_FILES {
            let Some(file) = self.files.get(self.at) else { return Ok(()) };
            if around.high.is_some_and(|high| high <= &*file.clip.low) {
                return Ok(());
            }
            let sst = env.open_sst(&file.file)?;
            let matched = sst.zone_summary(|zones| filter.match_zones(zones))?.flatten();
            if matched.is_none_or(|matched| matched.maybe & 1 != 0) {
                return Ok(());
            }
            self.counts.files_skipped += 1;
            self.counts.blocks_skipped += sst.block_count() as u64;
            self.at += 1;
        }
        // Read the next file even if it has no matching row, so that the caller can check its time
        // budget.
        Ok(())
    }

    /// Returns the next block of the current file that must be read, if any.
    fn next_block(
        &mut self,
        filter: &mut impl RowFilter,
        around: &Around<'_>,
    ) -> Result<Option<usize>> {
        let Some(iter) = &self.iter else { return Ok(None) };
        let mut block = iter.block_number() + 1;
        if !filter.asks_zones() {
            return Ok((block < iter.sst().block_count()).then_some(block));
        }
        let sst = Arc::clone(iter.sst());
        let pass_max = block + PASS_BLOCKS;
        while block < sst.block_count() {
            if block == pass_max {
                return Ok(Some(block));
            }
            if !self.match_page(&sst, block / ZONE_BLOCKS, filter, around)? {
                return Ok(Some(block));
            }
            match self.unread_rows(&sst, block, around)? {
                Some(rows) if rows == 0 || filter.take_unseen(rows) => {}
                _ => return Ok(Some(block)),
            }
            self.counts.blocks_skipped += 1;
            block += 1;
        }
        Ok(None)
    }

    /// Evaluates the filter on page `number` of the zones, which describes blocks 64 × `number` to
    /// 64 × `number` + 63. Returns false if there is no result, so the blocks must be read.
    fn match_page(
        &mut self,
        sst: &Sst,
        number: usize,
        filter: &mut impl RowFilter,
        around: &Around<'_>,
    ) -> Result<bool> {
        if self.zones.as_ref().is_some_and(|zones| zones.number == number) {
            return Ok(true);
        }
        // If the scan ends before this page, do not read the page.
        let before = (number * ZONE_BLOCKS).saturating_sub(1);
        if let Some(high) = around.high
            && !sst.ends_before(before, high)?
        {
            return Ok(false);
        }
        let matched = sst.zone_page(number, |zones| {
            filter
                .match_zones(zones)
                .map(|matched| PageMatch::new(number, zones, matched, around.at))
        })?;
        self.zones = matched.flatten().map(Box::new);
        Ok(self.zones.is_some())
    }

    /// Returns the number of matching rows in the block if this is known without reading the block.
    /// Otherwise returns `None`.
    fn unread_rows(&self, sst: &Sst, block: usize, around: &Around<'_>) -> Result<Option<u64>> {
        let Some(page) = &self.zones else { return Ok(None) };
        let bit = block % ZONE_BLOCKS;
        let ends_before =
            |key: Option<&[u8]>| key.map_or(Ok(true), |key| sst.ends_before(block, key));
        if page.skippable >> bit & 1 != 0 {
            return Ok(ends_before(around.older)?.then_some(0));
        }
        if page.countable >> bit & 1 != 0 {
            if self.seq_min() < around.below {
                return Ok(None);
            }
            let bounds =
                [around.newer, around.older, around.high, around.floor_end, self.clip_high()];
            if ends_before(bounds.into_iter().flatten().min())? {
                return Ok(Some(page.entries[bit].into()));
            }
        }
        Ok(None)
    }
}

impl PageMatch {
    fn new(number: usize, zones: &ZoneSet<'_>, matched: ZoneMatch, at: Seq) -> Self {
        let mut page = Self { number, skippable: 0, countable: 0, entries: [0; ZONE_BLOCKS] };
        for i in 0..zones.len().min(ZONE_BLOCKS) {
            let Some(meta) = zones.meta(i) else { continue };
            let ends = meta.flags & flag::GOES_ON == 0;
            page.skippable |= u64::from(matched.maybe >> i & 1 == 0 && ends) << i;
            let plain = meta.flags == 0 && meta.seq_max <= at;
            page.countable |= u64::from(matched.surely >> i & 1 != 0 && plain) << i;
            page.entries[i] = meta.entries;
        }
        page
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

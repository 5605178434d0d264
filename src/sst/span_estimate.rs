//! Estimates how much of a file is inside a span of keys (a key range), and where the tombstones in
//! the span end. Uses the indexes and zones, and reads no rows.
//!
//! Invariant: the estimates for adjacent spans add up to the file's length, except that an estimate
//! below half a block counts as half a block.
//!
//! `lsm::background::compaction` uses the estimates.

use super::Sst;
use super::cache::Area;
use crate::error::Result;
use crate::format::block::{HEADER_BYTES, is_compressed};
use crate::format::span::Span;
use crate::format::sparse_index::SparsePage;
use crate::format::zones::{ZONE_BLOCKS, ZoneMeta, flag};
use crate::model::Seq;

use super::reader::contents_at;

/// The number of blocks examined to find out whether a file is compressed.
const LOOK_BLOCKS: usize = 4;

/// The estimated part of a file inside a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SstPart {
    /// The bytes of the rows in the span, plus a proportional part of the indexes.
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
    /// An upper bound for the number of tombstones among the entries.
    pub(crate) tombstones: u64,
}

#[cfg(feature = "cli")]
impl SstPart {
    /// The number of entries that are not tombstones.
    pub(crate) fn puts(&self) -> u64 {
        self.entries.saturating_sub(self.tombstones)
    }
}

impl Sst {
    /// Estimates the part of the file in `span`, accurate to about a block.
    pub(crate) fn part(&self, span: &Span) -> Result<SstPart> {
        let (from, to) = (self.first_block(&span.low)?, self.end_block(span)?);
        let inside = self.blocks_bytes(from, to).max(self.bytes_least());
        let share = |whole: u64| share(whole, inside, self.rows_bytes());
        let tombstones = match self.meta.tombstones {
            0 => 0,
            all => self.spent_blocks(from, to)?.map_or(share(all), |spent| spent.entries.min(all)),
        };
        Ok(SstPart { bytes: share(self.meta.bytes), entries: share(self.meta.entries), tombstones })
    }

    /// Estimates the bytes of the entries in `span` with Seqs below `below`. Assumes that the
    /// entries of a block are spread evenly over its Seqs. In a file without zones, assumes this of
    /// the whole file.
    pub(crate) fn bytes_older(&self, span: &Span, below: Seq) -> Result<u64> {
        let (from, to) = (self.first_block(&span.low)?, self.end_block(span)?);
        let older = |bytes: u64, first: Seq, last: Seq| {
            let seqs = last.0.saturating_sub(first.0).saturating_add(1);
            share(bytes, below.0.saturating_sub(first.0), seqs)
        };
        let (first, last) = (self.meta.seq_min, self.meta.seq_max);
        let mut inside = 0;
        let add = |block: usize, zone: ZoneMeta| {
            inside += older(self.blocks_bytes(block, block + 1), zone.seq_min, zone.seq_max);
        };
        if last < below || !self.for_zones(from, to, add)? {
            inside = older(self.blocks_bytes(from, to), first, last);
        }
        let least = if first < below { self.bytes_least() } else { 0 };
        Ok(share(self.meta.bytes, inside.max(least), self.rows_bytes()))
    }

    /// Returns the key of a block boundary in `span` such that about `bytes` bytes of the span are
    /// below it. `None` if the span contains no block boundary.
    pub(crate) fn key_at(&self, span: &Span, bytes: u64) -> Result<Option<Box<[u8]>>> {
        let from = self.first_block(&span.low)?;
        let rows = u128::from(bytes) * u128::from(self.rows_bytes());
        let rows = u64::try_from(rows / u128::from(self.meta.bytes.max(1))).unwrap_or(u64::MAX);
        let start = self.handles.blocks.get(from).copied().unwrap_or_default();
        let wanted = self.handles.blocks.partition_point(|at| *at < start.saturating_add(rows));
        for block in [wanted, wanted.saturating_sub(1), from + 1] {
            if let Some(key) = self.separator(block)?
                && *key > *span.low
                && span.contains(&key)
            {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    /// Returns the key of a block boundary above all tombstones in `span`. `None` if there are no
    /// tombstones, if the boundary would be the end of the file, or if the file has no zones.
    pub(crate) fn tombstones_end(&self, span: &Span) -> Result<Option<Box<[u8]>>> {
        let (from, to) = (self.first_block(&span.low)?, self.end_block(span)?);
        match self.spent_blocks(from, to)? {
            Some(spent) if spent.entries > 0 => self.separator(spent.end),
            _ => Ok(None),
        }
    }

    /// True if any of the first few blocks is compressed. Blocks that compression does not shrink
    /// are stored uncompressed even in a compressed file.
    pub(crate) fn is_compressed(&self) -> Result<bool> {
        for block in 0..self.handles.len().min(LOOK_BLOCKS) {
            let at = self.block_range(block)?.start;
            if is_compressed(&self.source.read(at..at + HEADER_BYTES as u64)?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the first block whose separator is at or above `key`. The block before it may also
    /// contain the key.
    fn first_block(&self, key: &[u8]) -> Result<usize> {
        if *key <= *self.meta.key_min {
            return Ok(0);
        }
        Ok((self.block_of(key, true)? + 1).min(self.handles.len()))
    }

    fn end_block(&self, span: &Span) -> Result<usize> {
        match &span.high {
            Some(high) if **high <= *self.meta.key_max => self.first_block(high),
            _ => Ok(self.handles.len()),
        }
    }

    fn rows_bytes(&self) -> u64 {
        let rows = self.handles.rows();
        rows.end.saturating_sub(rows.start)
    }

    /// Returns the bytes of the blocks `from` to `to - 1`.
    fn blocks_bytes(&self, from: usize, to: usize) -> u64 {
        let offset = |block: usize| self.handles.blocks.get(block).copied().unwrap_or_default();
        offset(to).saturating_sub(offset(from))
    }

    /// Returns the least estimate, half a block: a part shorter than a block must not be estimated
    /// as empty.
    fn bytes_least(&self) -> u64 {
        self.rows_bytes() / (2 * self.handles.len().max(1) as u64)
    }

    /// Calls `with` with the number and the zone of each of the blocks `from` to `to - 1`. Returns
    /// false for a file without zones.
    fn for_zones(
        &self,
        from: usize,
        to: usize,
        mut with: impl FnMut(usize, ZoneMeta),
    ) -> Result<bool> {
        for page in from / ZONE_BLOCKS..to.div_ceil(ZONE_BLOCKS) {
            let first = page * ZONE_BLOCKS;
            let found = self.zone_page(page, |zones| {
                for block in from.max(first)..to.min(first + zones.len()) {
                    zones.meta(block - first).into_iter().for_each(|zone| with(block, zone));
                }
            })?;
            if found.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Summarizes those of the blocks `from - 1` to `to - 1` that have tombstones. Returns `None`
    /// for a file without zones.
    fn spent_blocks(&self, from: usize, to: usize) -> Result<Option<Spent>> {
        let mut spent = Spent { entries: 0, end: 0 };
        let has_zones = self.for_zones(from.saturating_sub(1), to, |block, zone| {
            if zone.flags & flag::TOMBSTONES != 0 {
                spent.entries += u64::from(zone.entries);
                spent.end = block + 1;
            }
        })?;
        Ok(has_zones.then_some(spent))
    }

    /// Returns the separator before block `block`: a key above all keys of earlier blocks. If
    /// versions of the last earlier key continue in `block`, the separator equals that key.
    pub(super) fn separator(&self, block: usize) -> Result<Option<Box<[u8]>>> {
        if block == 0 || block >= self.handles.len() {
            return Ok(None);
        }
        let (number, index) = (block / self.handles.fanout, block % self.handles.fanout);
        let range = self.handles.page(number).unwrap_or_default();
        let contents = self.source.block(Area::Sparse, number, range.clone(), true)?;
        let separator = SparsePage::parse(&contents).and_then(|page| page.separator(index));
        let (prefix, suffix) =
            separator.map_err(|error| self.source.decode(contents_at(&range), error))?;
        Ok(Some([prefix, suffix].concat().into()))
    }
}

/// Returns `whole` * `part` / `of`, at most `whole`.
fn share(whole: u64, part: u64, of: u64) -> u64 {
    let share = u128::from(whole) * u128::from(part) / u128::from(of.max(1));
    u64::try_from(share).unwrap_or(u64::MAX).min(whole)
}

/// A summary of the blocks that have tombstones.
struct Spent {
    /// The number of entries in these blocks, tombstones or not.
    entries: u64,
    /// The number of the block after the last of these blocks.
    end: usize,
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::super::{BlockCache, SstOptions, SstShared, SstWriter};
    use super::*;
    use crate::codec::HashSeed;
    use crate::format::Kind;
    use crate::format::names::{FileId, FileNumber};
    use crate::fs::{Fs, MemFs};
    use crate::model::Shapes;
    use crate::options::{Codec, IoMode};

    fn key(number: u64) -> Vec<u8> {
        format!("key{number:06}").into_bytes()
    }

    /// Creates a file of 20,000 keys with empty rows; keys 5,000 to 7,000 are tombstones.
    fn file() -> Sst {
        let fs: Arc<dyn Fs> = Arc::new(MemFs::new());
        let dir = Path::new("db");
        fs.create_dir_all(dir).unwrap();
        let seed = HashSeed(9);
        let options = SstOptions { block_bytes: 512, codec: Codec::None, seed };
        let (number, id) = (FileNumber(7), FileId(8));
        let mut writer = SstWriter::create(Arc::clone(&fs), dir, number, id, options).unwrap();
        let shape = Arc::new(crate::model::Shape::new(Vec::new()));
        let row = crate::model::Row { shape, body: Vec::new() };
        for number in 0..20_000 {
            let deletes = (5_000..7_000).contains(&number);
            let (kind, row) =
                if deletes { (Kind::Delete, None) } else { (Kind::Put, Some(row.as_ref())) };
            writer.add(&key(number), Seq(number), kind, row.as_ref()).unwrap();
        }
        let meta = writer.finish().unwrap();
        let cache = Arc::new(BlockCache::new(1 << 20));
        let shared =
            SstShared { cache, shapes: Arc::new(Shapes::new(1 << 20)), mode: IoMode::Pread, seed };
        Sst::open(&*fs, dir, &meta, &shared).unwrap()
    }

    #[test]
    fn parts_add_up_and_have_about_the_expected_sizes() {
        let sst = file();
        let bounds: Vec<Vec<u8>> = [0, 10, 3_333, 5_000, 7_000, 19_000].map(key).to_vec();
        let highs = bounds[1..].iter().map(|key| Some(key.as_slice())).chain([None]);
        let spans = bounds.iter().zip(highs).map(|(low, high)| Span::new(low, high));
        let parts: Vec<SstPart> = spans.map(|span| sst.part(&span).unwrap()).collect();
        let counted: u64 = parts.iter().map(|part| part.entries).sum();
        assert!(counted.abs_diff(20_000) < 300, "{parts:?}");
        for (part, expected) in parts.iter().zip([10, 3_323, 1_667, 2_000, 12_000, 1_000]) {
            // The estimate is inexact, because it uses bytes, and a tombstone is one byte shorter
            // than a row.
            assert!(part.entries.abs_diff(expected) <= 250, "{expected}: {part:?}");
            assert!(part.bytes > 0, "{part:?}");
        }
        let spent: Vec<u64> = parts.iter().map(|part| part.tombstones).collect();
        assert!(spent[0] == 0 && spent[1] == 0 && spent[3] == 2_000 && spent[5] == 0, "{spent:?}");
        let whole = sst.part(&Span::new(&[], None)).unwrap();
        assert_eq!((whole.bytes, whole.tombstones), (sst.meta.bytes, 2_000));
    }

    /// The Seq of each entry is the number of its key.
    #[test]
    fn older_entries_are_estimated_from_the_seqs_of_blocks() {
        let sst = file();
        let older = |low, high, below| {
            let span = Span::new(&key(low), Some(&key(high)));
            sst.bytes_older(&span, Seq(below)).unwrap()
        };
        let part = |low, high| sst.part(&Span::new(&key(low), Some(&key(high)))).unwrap().bytes;
        let slack = 4 * sst.meta.bytes / sst.block_count() as u64;
        for (low, high, below, end) in
            [(0, 20_000, 3_000, 3_000), (2_000, 9_000, 4_000, 4_000), (100, 4_000, 9_000, 4_000)]
        {
            let (found, expected) = (older(low, high, below), part(low, end));
            assert!(found.abs_diff(expected) <= slack, "{low}..{high} below {below}: {found}");
        }
        assert!(older(10_000, 20_000, 9_000) <= slack, "no entry there is as old");
        assert_eq!(older(0, 20_000, 0), 0);
        assert_eq!(sst.bytes_older(&Span::all(), Seq::MAX).unwrap(), sst.meta.bytes);
    }

    #[test]
    fn a_cut_leaves_about_the_wanted_bytes_below_it() {
        let sst = file();
        for (low, high) in [(0, 20_000), (3_000, 9_000), (19_900, 20_000)] {
            let span = Span::new(&key(low), Some(&key(high)));
            let whole = sst.part(&span).unwrap().bytes;
            for share in 1..10 {
                let found = sst.key_at(&span, whole * share / 10).unwrap().unwrap();
                assert!(span.contains(&found) && *found > *span.low);
                let below = sst.part(&Span::new(&span.low, Some(&found))).unwrap().bytes;
                let slack = whole / 20 + 4 * sst.meta.bytes / sst.block_count() as u64;
                assert!(below.abs_diff(whole * share / 10) <= slack, "{low}: {share} tenths");
            }
        }
        assert_eq!(sst.key_at(&Span::new(&key(40), Some(&key(41))), 1).unwrap(), None);
    }

    #[test]
    fn tombstones_end_behind_the_last_one() {
        let sst = file();
        let end = |low, high| sst.tombstones_end(&Span::new(&key(low), Some(&key(high)))).unwrap();
        let found = end(0, 20_000).unwrap();
        assert!(*found > *key(6_999) && *found < *key(7_200), "{}", found.escape_ascii());
        assert_eq!(end(0, 20_000), end(6_000, 10_000));
        assert_eq!((end(0, 4_000), end(8_000, 20_000)), (None, None));
    }
}

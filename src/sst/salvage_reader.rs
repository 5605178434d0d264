//! Reads the undamaged blocks of a possibly damaged file. A block's checksum covers the file's id
//! and the block's number, so each block proves where it belongs. `check` decides what a loss means
//! for other files.
//!
//! Invariants
//! * only blocks with a valid checksum are returned, in ascending key order. A block out of order
//!   counts as damaged;
//! * if a block is missing before a returned block or before the end, the gap is reported. The keys
//!   of the lost entries are between the keys of the returned blocks around the gap;
//! * only one block is in memory at a time.

use std::cell::Cell;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::page_alignment::OS_PAGE_BYTES;
use super::reader::open_file;
use super::shapes::decode_table;
use crate::codec::DecodeError;
use crate::error::{Doing, Error, Result};
use crate::format::Kind;
use crate::format::block::{
    BlockKind, BlockPlace, HEADER_BYTES as BLOCK_HEADER_BYTES, StoredBlock,
};
use crate::format::file_meta::{FileMeta, Section};
use crate::format::names::FileId;
use crate::format::row::decode_row;
use crate::format::row_block::RowBlock;
use crate::format::sparse_index::Handles;
use crate::format::sst::{HEADER_BYTES, TAIL_BYTES, Tail, file_id, section};
use crate::format::stats::SstStats;
use crate::fs::{FileRead, Fs};
use crate::model::{Row, Seq, Shape, Shapes};

/// Reads the blocks of a possibly damaged file. Uses the first intact source for each fact:
///
/// 1. The file's id: from the manifest, the footer, or the header.
/// 2. The position of the rows: from the manifest's copy of the directory, or from the file's own.
/// 3. The positions of blocks: from the handles section. If it is damaged, the blocks are *walked*:
///    each block is expected where the previous one ends. After a damaged block, every offset is
///    tried as the start of a block.
pub(crate) struct SalvageReader {
    input: Input,
    id: FileId,
    rows: RowsAt,
    /// The shapes of rows. If the section is damaged, this is `None`, and rows that refer to a
    /// shape by number are unreadable, but not their keys.
    shapes: Option<Box<[Arc<Shape>]>>,
    pub(crate) stats: Option<SstStats>,
    /// The problems found so far.
    pub(crate) problems: Vec<Error>,
    last: Option<(Vec<u8>, Seq)>,
    /// True if a block was lost directly before the block returned last, or before the end.
    pub(crate) has_gap: bool,
    /// The number of bytes that the search for blocks may still checksum.
    search_left: Cell<u64>,
}

/// How blocks of rows are found.
enum RowsAt {
    /// By the handles.
    Known { handles: Handles, next: usize },
    /// By walking: the next block is expected at offset `next` with number `number`, and the rows
    /// end at `end`. `is_cut` is true if there may have been more blocks after `end`.
    Walk { next: u64, end: u64, number: usize, is_cut: bool },
}

/// An entry of a possibly damaged file.
#[derive(Clone, Debug)]
pub(crate) struct RemainingEntry {
    pub(crate) key: Vec<u8>,
    pub(crate) seq: Seq,
    pub(crate) kind: Kind,
    /// The row. `None` for a tombstone, and for a put whose row is unreadable and therefore lost.
    pub(crate) row: Option<Row>,
}

/// The maximum number of problems in the list. More would add no information.
const PROBLEMS_MAX: usize = 20;
/// If the handles section is damaged, the search tries to read a block at each offset, with this
/// many consecutive block numbers. If more consecutive blocks are lost, the blocks after them are
/// not found.
const LOST_BLOCKS_MAX: usize = 64;
/// The search may checksum at most the file's length times this number. Without this limit, its
/// cost would be quadratic if every offset looked like a block header.
const SEARCH_TIMES: u64 = 2 * LOST_BLOCKS_MAX as u64;
/// The length of a file without rows: its header and tail.
const ENDS_BYTES: u64 = (HEADER_BYTES + TAIL_BYTES) as u64;

impl SalvageReader {
    /// Opens the file `path`. `meta` is its description in the manifest, if there is one.
    ///
    /// # Errors
    /// An error if the file is missing or unreadable, or if its id cannot be found.
    pub(crate) fn open(
        fs: &dyn Fs,
        path: &Path,
        meta: Option<&FileMeta>,
        shapes: &Shapes,
    ) -> Result<SalvageReader> {
        let file = open_file(fs, path)?;
        let len = file.len().doing("look at", path)?;
        let (input, mut problems) = (Input { path: path.to_owned(), file, len }, Vec::new());
        let (id, sections) = match (meta, input.directory(meta, &mut problems)) {
            (Some(meta), _) => (meta.id, meta.sections.clone()),
            (None, Some(found)) => found,
            (None, None) => {
                let problem = "neither header nor footer says which file it is";
                let last = problems.pop();
                return Err(last.unwrap_or_else(|| Error::corrupt(path, 0, "sst", problem)));
            }
        };
        let mut remains = SalvageReader {
            input,
            id,
            rows: RowsAt::Walk { next: HEADER_BYTES as u64, end: len, number: 0, is_cut: true },
            shapes: None,
            stats: None,
            problems,
            last: None,
            has_gap: false,
            search_left: Cell::new(len.saturating_mul(SEARCH_TIMES)),
        };
        remains.read_sections(&sections, shapes);
        Ok(remains)
    }

    /// Returns the entries of the next readable block, or `None` after the last one. Sets
    /// [`has_gap`](Self::has_gap) if a block was lost before these entries or before the end.
    pub(crate) fn next_block(&mut self) -> Option<Vec<RemainingEntry>> {
        self.has_gap = false;
        loop {
            let (number, range) = match &mut self.rows {
                RowsAt::Known { handles, next } => {
                    let range = handles.block(*next)?;
                    *next += 1;
                    (*next - 1, range)
                }
                RowsAt::Walk { .. } => self.find_block()?,
            };
            let entries = self.read(BlockKind::Rows, number, &range);
            match entries.and_then(|block| self.entries(&block, &range)) {
                Ok(entries) => return Some(entries),
                Err(error) => {
                    self.has_gap = true;
                    self.record_problem(error);
                }
            }
        }
    }

    /// Reads the sections that describe rows and blocks.
    fn read_sections(&mut self, sections: &[Section], shapes: &Shapes) {
        let of = |kind: u16| sections.iter().find(|section| section.kind == kind);
        let range = |section: &Section| section.offset..section.offset + section.len;
        if let Some(at) = of(section::STATISTICS).map(range) {
            self.stats = self.single(BlockKind::Stats, &at, SstStats::decode);
        }
        if let Some(at) = of(section::SHAPES).map(range) {
            self.shapes = self.single(BlockKind::Shapes, &at, |bytes| decode_table(bytes, shapes));
        }
        let (Some(rows), Some(sparse)) =
            (of(section::ROWS).map(range), of(section::SPARSE_INDEX).map(range))
        else {
            return;
        };
        let handles = of(section::HANDLES).map(range).and_then(|at| {
            self.single(BlockKind::Handles, &at, |bytes| {
                Handles::decode(bytes, rows.clone(), sparse.clone())
            })
        });
        self.rows = match handles {
            Some(handles) => RowsAt::Known { handles, next: 0 },
            None => {
                let (next, end, is_cut) =
                    (rows.start, rows.end.min(self.input.len), rows.end > self.input.len);
                RowsAt::Walk { next, end, number: 0, is_cut }
            }
        };
    }

    /// Reads and decodes a section that consists of one block, at `range`.
    fn single<T>(
        &mut self,
        kind: BlockKind,
        range: &Range<u64>,
        decode: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
    ) -> Option<T> {
        let read = self.read(kind, 0, range);
        let decoded = read.and_then(|bytes| {
            decode(&bytes).map_err(|error| Error::decode(&self.input.path, range.start, error))
        });
        decoded.map_err(|error| self.record_problem(error)).ok()
    }

    /// Reads and checks block `number` of `kind`, which fills `range`.
    fn read(&self, kind: BlockKind, number: usize, range: &Range<u64>) -> Result<Vec<u8>> {
        let bytes = self.input.read(range)?;
        let block = StoredBlock::open(BlockPlace::new(kind, self.id, number), &bytes);
        let raw = block.and_then(|block| block.decompress());
        raw.map_err(|error| error.into_error(&self.input.path, range.start))
    }

    fn entries(&mut self, block: &[u8], range: &Range<u64>) -> Result<Vec<RemainingEntry>> {
        let bad = |error| Error::decode(&self.input.path, range.start, error);
        let block = RowBlock::parse(block).map_err(bad)?;
        block.check().map_err(bad)?;
        let mut entries = Vec::with_capacity(block.len());
        for slot in 0..block.len() {
            let entry = block.entry(slot).map_err(bad)?;
            let key = [block.prefix(), entry.suffix].concat();
            let row = match entry.kind {
                Kind::Put => self.row(entry.row).map_err(bad),
                Kind::Delete => Ok(None),
            };
            let row = row.unwrap_or_else(|error| {
                if self.problems.len() < PROBLEMS_MAX {
                    self.problems.push(error);
                }
                None
            });
            entries.push(RemainingEntry { key, seq: entry.seq, kind: entry.kind, row });
        }
        if let (Some(first), Some((key, seq))) = (entries.first(), &self.last)
            && (first.key < *key || first.key == *key && first.seq >= *seq)
        {
            let problem = "entries out of order between blocks";
            return Err(bad(DecodeError::new("row block", 0, problem)));
        }
        self.last = entries.last().map(|last| (last.key.clone(), last.seq));
        Ok(entries)
    }

    fn row(&self, bytes: &[u8]) -> Result<Option<Row>, DecodeError> {
        let shapes = self.shapes.as_deref().unwrap_or_default();
        let row = decode_row(bytes, |number| shapes.get(number as usize))?;
        row.check()?;
        Ok(Some(row.to_row()))
    }

    /// Finds the next block by walking. Returns its number and range, or `None` at the end. If
    /// bytes had to be skipped, sets `has_gap`.
    fn find_block(&mut self) -> Option<(usize, Range<u64>)> {
        let RowsAt::Walk { next, end, number, is_cut } = &self.rows else { return None };
        let (next, end, number, is_cut) = (*next, *end, *number, *is_cut);
        if next >= end {
            self.has_gap |= is_cut;
            return None;
        }
        let found = self.block_near(next, end, number).or_else(|| {
            self.has_gap = true;
            let rest = self.input.read(&(next..end)).ok()?;
            let mut places = (0..rest.len()).take_while(|_| self.search_left.get() > 0);
            places.find_map(|at| self.block_at(&rest[at..], next + at as u64, number))
        });
        if found.is_none() && self.search_left.get() == 0 {
            let problem = "what looks like blocks and is none fills it: no more are looked for";
            self.record_problem(Error::corrupt(&self.input.path, next, "sst", problem));
        }
        let (number, next) = found.as_ref().map_or((number, end), |(n, at)| (n + 1, at.end));
        self.rows = RowsAt::Walk { next, end, number, is_cut };
        found
    }

    /// Returns block `number` if it begins at `next`, where it is expected.
    fn block_near(&self, next: u64, end: u64, number: usize) -> Option<(usize, Range<u64>)> {
        let header = self.input.read(&(next..end.min(next + BLOCK_HEADER_BYTES as u64))).ok()?;
        let lens = block_lens(&header, next)?;
        let len = lens.into_iter().max().unwrap_or_default() as u64;
        let bytes = self.input.read(&(next..end.min(next + len))).ok()?;
        self.block_at(&bytes, next, number).filter(|(found, _)| *found == number)
    }

    /// Returns the number and range of the block at the start of `bytes`, which are at offset `at`.
    /// The block must be block `number` or one of the [`LOST_BLOCKS_MAX`] - 1 blocks after it.
    fn block_at(&self, bytes: &[u8], at: u64, number: usize) -> Option<(usize, Range<u64>)> {
        let lens = block_lens(bytes, at)?;
        (number..number + LOST_BLOCKS_MAX).find_map(|number| {
            let place = BlockPlace::new(BlockKind::Rows, self.id, number);
            let is_it = |len: &usize| {
                let Some(bytes) = bytes.get(..*len) else { return false };
                let Some(left) = self.search_left.get().checked_sub(*len as u64) else {
                    self.search_left.set(0);
                    return false;
                };
                self.search_left.set(left);
                StoredBlock::open(place, bytes).is_ok()
            };
            let len = lens.into_iter().find(is_it)?;
            Some((number, at..at + len as u64))
        })
    }

    fn record_problem(&mut self, error: Error) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(error);
        }
    }
}

/// Returns the possible lengths of the block that begins with `bytes`: without and with padding.
/// `at` is the offset of `bytes`. `None` if they do not begin with the header of a block of rows.
fn block_lens(bytes: &[u8], at: u64) -> Option<[usize; 2]> {
    let (header, _) = bytes.split_first_chunk::<BLOCK_HEADER_BYTES>()?;
    let [kind, 0..=2, 0..=3, 0, 0, 0, 0, 0, 0, 0, 0, 0, _, _, _, _, l0, l1, l2, l3, ..] = *header
    else {
        return None;
    };
    let stored = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    let len = BLOCK_HEADER_BYTES.checked_add(stored)?;
    // With padding, the block ends at a page boundary.
    let end = (at + len as u64).next_multiple_of(OS_PAGE_BYTES);
    let padded = usize::try_from(end - at).ok()?;
    (kind == BlockKind::Rows as u8).then_some([len, padded])
}

/// The file, which is read in parts.
struct Input {
    path: PathBuf,
    file: Arc<dyn FileRead>,
    len: u64,
}

impl Input {
    /// Reads the id and the sections from the footer. If it is damaged, reads only the id from the
    /// header. Adds problems to `problems`.
    fn directory(
        &self,
        meta: Option<&FileMeta>,
        problems: &mut Vec<Error>,
    ) -> Option<(FileId, Vec<Section>)> {
        if let Some(meta) = meta.filter(|meta| meta.bytes != self.len) {
            let problem = format!("{} bytes long, {} expected", self.len, meta.bytes);
            problems.push(Error::corrupt(&self.path, self.len.min(meta.bytes), "sst", problem));
        }
        let header = self.header().map_err(|error| problems.push(error)).ok();
        let footer = self.footer().map_err(|error| problems.push(error)).ok();
        footer.or(header.map(|id| (id, Vec::new())))
    }

    fn header(&self) -> Result<FileId> {
        let bytes = self.read(&(0..HEADER_BYTES as u64))?;
        file_id(&bytes).map_err(|error| error.into_error(&self.path, 0))
    }

    fn footer(&self) -> Result<(FileId, Vec<Section>)> {
        let wrong = |problem| Error::corrupt(&self.path, self.len, "sst footer", problem);
        if self.len < ENDS_BYTES {
            return Err(wrong("the file is too short for one"));
        }
        let tail_at = self.len - TAIL_BYTES as u64;
        let tail = self.read(&(tail_at..self.len))?;
        let tail = Tail::decode(&tail).map_err(|e| Error::decode(&self.path, tail_at, e))?;
        let at = tail_at.checked_sub(tail.directory_len as u64);
        let at = at.ok_or_else(|| wrong("the directory is longer than the file"))?;
        let sections = tail.sections(tail.file, &self.read(&(at..tail_at))?);
        Ok((tail.file, sections.map_err(|error| error.into_error(&self.path, at))?))
    }

    fn read(&self, range: &Range<u64>) -> Result<Vec<u8>> {
        let count = range.end.checked_sub(range.start).filter(|_| range.end <= self.len);
        let Some(count) = count.and_then(|count| usize::try_from(count).ok()) else {
            let problem = "the file ends before this part of it";
            return Err(Error::corrupt(&self.path, range.start, "sst", problem));
        };
        let mut bytes = vec![0; count];
        self.file.read_at(range.start, &mut bytes).doing("read", &self.path)?;
        Ok(bytes)
    }
}

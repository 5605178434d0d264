//! What can still be read of a file that may be damaged, block by block; each proves itself by its checksum, which covers the
//! file's id and the block's number.
//!
//! 1. Which file it is: what the manifest says, else its header, else its tail, whichever is whole.
//! 2. Where its rows are: the manifest's copy of the directory, else the file's own.
//! 3. Where each block is: the handles. If they are damaged, one block follows the other; behind a damaged one the next
//!    is found by trying every place that could be the header of one.
//!
//! Invariants
//! * nothing is given whose checksum did not match, and keys only ascend: what is out of order counts as damaged;
//! * where blocks are missing between two that are given, that is said: the loss lies between their keys;
//! * memory: one block.
//!
//! Not here: what a loss means for other files (`check`).

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

/// A file from which blocks are read that may be damaged.
pub(crate) struct SalvageReader {
    input: Input,
    id: FileId,
    rows: RowsAt,
    /// `None`: the rows that are numbered by it cannot be read, but their keys can.
    shapes: Option<Box<[Arc<Shape>]>>,
    pub(crate) stats: Option<SstStats>,
    /// What is wrong, as far as it was met.
    pub(crate) problems: Vec<Error>,
    last: Option<(Vec<u8>, Seq)>,
    /// A block before the next one was lost.
    pub(crate) has_gap: bool,
    /// So many bytes may still be held against checksums while blocks are looked for.
    search_left: Cell<u64>,
}

/// Where blocks of rows are.
enum RowsAt {
    /// Block by block.
    Known { handles: Handles, next: usize },
    /// Somewhere from `next` to `end`, from this number on; `is_cut`: there were more behind it, or may have been.
    Walk { next: u64, end: u64, number: usize, is_cut: bool },
}

/// An entry of such a file.
#[derive(Clone, Debug)]
pub(crate) struct RemainingEntry {
    pub(crate) key: Vec<u8>,
    pub(crate) seq: Seq,
    pub(crate) kind: Kind,
    /// `None` for a tombstone, and for a row that cannot be read: then what the key had is known to be lost.
    pub(crate) row: Option<Row>,
}

/// More problems than this do not describe a file better.
const PROBLEMS_MAX: usize = 20;
/// So many blocks in a row may be lost where there are no handles; what lies behind more is not found.
const LOST_BLOCKS_MAX: usize = 64;
/// Looking for blocks costs so many times the bytes of the file at most: bytes that look like a header at every place would
/// cost the square of them.
const SEARCH_TIMES: u64 = 2 * LOST_BLOCKS_MAX as u64;
/// A file of fewer bytes holds no row.
const ENDS_BYTES: u64 = (HEADER_BYTES + TAIL_BYTES) as u64;

impl SalvageReader {
    /// Looks at `path`, of which the manifest says `meta`, if it is known there.
    ///
    /// # Errors
    /// If it is missing, cannot be read at all, or nothing says which file it is.
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

    /// The entries of the next block that can be read; `None` behind the last. [`has_gap`](Self::has_gap) says then
    /// whether one before it, or before the end, was lost.
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

    /// Reads what describes the rows.
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

    /// What `decode` makes of the only block of its kind, in `range`.
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

    /// The contents of block `number` of `kind`, which fills `range`.
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

    /// Number and place of the next block by walking; `None` at the end. What is passed over counts as a gap.
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

    /// Block `number`, if it stands where it should.
    fn block_near(&self, next: u64, end: u64, number: usize) -> Option<(usize, Range<u64>)> {
        let header = self.input.read(&(next..end.min(next + BLOCK_HEADER_BYTES as u64))).ok()?;
        let lens = block_lens(&header, next)?;
        let len = lens.into_iter().max().unwrap_or_default() as u64;
        let bytes = self.input.read(&(next..end.min(next + len))).ok()?;
        self.block_at(&bytes, next, number).filter(|(found, _)| *found == number)
    }

    /// The block that begins with `bytes`, which stand at `at`, if it is block `number` or one of those after it.
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

/// How long the block of rows that begins with `bytes`, which stand at `at`, may be; `None` if they cannot be one's header.
fn block_lens(bytes: &[u8], at: u64) -> Option<[usize; 2]> {
    let (header, _) = bytes.split_first_chunk::<BLOCK_HEADER_BYTES>()?;
    let [kind, 0..=2, 0..=3, 0, 0, 0, 0, 0, 0, 0, 0, 0, _, _, _, _, l0, l1, l2, l3, ..] = *header
    else {
        return None;
    };
    let stored = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    let len = BLOCK_HEADER_BYTES.checked_add(stored)?;
    // Padding ends at a page.
    let end = (at + len as u64).next_multiple_of(OS_PAGE_BYTES);
    let padded = usize::try_from(end - at).ok()?;
    (kind == BlockKind::Rows as u8).then_some([len, padded])
}

/// The file, read part by part.
struct Input {
    path: PathBuf,
    file: Arc<dyn FileRead>,
    len: u64,
}

impl Input {
    /// Id and sections by the file's own footer, or, without sections, by its header. Problems are
    /// added to `problems`.
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

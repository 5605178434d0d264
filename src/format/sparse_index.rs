//! The sparse index of an SST locates the block of a key. FORMAT.md §sparse_index.
//!
//! Invariants
//! * the separator of a block is at most the block's first key. It is above every key of earlier
//!   blocks, except a key that continues into this block;
//! * separators never descend, and the first one is empty;
//! * handles (the offsets of blocks and pages) ascend, without gaps between blocks or between
//!   pages.
//!
//! Module `block` encodes the frame (header and checksum) of pages and handles.

use std::ops::Range;

use crate::codec::{Cursor, DecodeError, shared_len};
use crate::format::block::HEADER_BYTES;
use crate::format::hash_index::LocationSplit;

/// The maximum number of separators in a page: about 4 KiB with keys of 30 bytes.
pub(crate) const FANOUT: usize = 128;

/// A page with the separators of [`FANOUT`] adjacent blocks, or the root. The root has the same
/// layout and contains the first separator of each page below it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SparsePage<'a> {
    /// The end offset of each suffix, in four bytes.
    ends: &'a [u8],
    prefix: &'a [u8],
    suffixes: &'a [u8],
}

/// The offsets of the blocks of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handles {
    pub(crate) split: LocationSplit,
    /// The number of blocks that a page of the sparse index covers.
    pub(crate) fanout: usize,
    /// The start of each block, and the end of the last one.
    pub(crate) blocks: Box<[u64]>,
    /// The start of each page of the sparse index, with the root as the last page, and the end of
    /// the root.
    pub(crate) pages: Box<[u64]>,
}

const STRUCTURE: &str = "sparse index page";
const STRUCTURE_HANDLES: &str = "block handles";
const SLOT_BITS_MAX: u8 = 16;

impl<'a> SparsePage<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(STRUCTURE, bytes);
        let count = cursor.u32()? as usize;
        let prefix_len = usize::from(cursor.u16()?);
        if cursor.u16()? != 0 || count == 0 {
            return Err(cursor.error("reserved bytes in use, or no separators"));
        }
        let Some(ends_len) = count.checked_mul(4) else {
            return Err(cursor.error("impossible count"));
        };
        let ends = cursor.take(ends_len)?;
        let prefix = cursor.take(prefix_len)?;
        Ok(Self { ends, prefix, suffixes: cursor.rest() })
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len() / 4
    }

    /// Returns separator `i` as prefix and suffix.
    pub(crate) fn separator(&self, i: usize) -> Result<(&'a [u8], &'a [u8]), DecodeError> {
        let start = i.checked_sub(1).map_or(Some(0), |i| self.end(i));
        let suffix = start.zip(self.end(i)).and_then(|(start, end)| self.suffixes.get(start..end));
        let suffix = suffix.ok_or_else(|| {
            DecodeError::new(STRUCTURE, 8 + 4 * i, "a separator ends beyond the page")
        })?;
        Ok((self.prefix, suffix))
    }

    /// Returns the index of the last separator below `key`, or 0 if there is none. Blocks before
    /// this index cannot contain `key`. In the root, the index is that of a page instead of a
    /// block.
    pub(crate) fn find(&self, key: &[u8]) -> Result<usize, DecodeError> {
        let Some(suffix) = key.strip_prefix(self.prefix) else {
            return Ok(if key < self.prefix { 0 } else { self.len() - 1 });
        };
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.separator(middle)?.1 < suffix {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low.saturating_sub(1))
    }

    /// Checks what look-ups rely on: separators are in order, and no bytes follow the last
    /// separator.
    pub(crate) fn check(&self) -> Result<(), DecodeError> {
        let mut previous = &[][..];
        for i in 0..self.len() {
            let (_, suffix) = self.separator(i)?;
            if suffix < previous {
                return Err(DecodeError::new(STRUCTURE, 8 + 4 * i, "separators descend"));
            }
            previous = suffix;
        }
        if self.end(self.len() - 1) != Some(self.suffixes.len()) {
            return Err(DecodeError::new(STRUCTURE, 0, "bytes after the last separator"));
        }
        Ok(())
    }

    fn end(&self, i: usize) -> Option<usize> {
        let end = self.ends.get(i * 4..).and_then(<[u8]>::first_chunk)?;
        Some(u32::from_le_bytes(*end) as usize)
    }
}

/// Builds a page from separators.
#[derive(Default)]
pub(crate) struct SparseBuilder {
    keys: Vec<u8>,
    ends: Vec<usize>,
    prefix_len: usize,
}

impl SparseBuilder {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.keys.len() + self.ends.len() * size_of::<usize>()
    }

    /// Returns the first separator; empty if there is none.
    pub(crate) fn first(&self) -> &[u8] {
        let end = self.ends.first().copied().unwrap_or(0);
        self.keys.get(..end).unwrap_or_default()
    }

    /// Adds a separator.
    ///
    /// Requires: the separator is not below the previous one.
    pub(crate) fn add(&mut self, separator: &[u8]) {
        self.prefix_len = match self.ends.is_empty() {
            true => separator.len(),
            false => shared_len(self.first(), separator).min(self.prefix_len),
        };
        self.keys.extend_from_slice(separator);
        self.ends.push(self.keys.len());
    }

    /// Appends the page to `out` and begins the next one.
    ///
    /// Requires: at least one separator was added.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        let len32 = |len: usize| u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
        let prefix_len = u16::try_from(self.prefix_len).unwrap_or(u16::MAX);
        out.extend_from_slice(&len32(self.len()));
        out.extend_from_slice(&prefix_len.to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        for (i, end) in self.ends.iter().enumerate() {
            out.extend_from_slice(&len32(end - (i + 1) * usize::from(prefix_len)));
        }
        out.extend_from_slice(self.keys.get(..usize::from(prefix_len)).unwrap_or_default());
        let mut start = 0;
        for end in &self.ends {
            let suffix = self.keys.get(start + usize::from(prefix_len)..*end);
            out.extend_from_slice(suffix.unwrap_or_default());
            start = *end;
        }
        self.keys.clear();
        self.ends.clear();
    }
}

/// Returns the shortest prefix of `first` that is above `last`. `last` is the last key of a block,
/// and `first` is the first key of the next block.
pub(crate) fn separator<'a>(last: &[u8], first: &'a [u8]) -> &'a [u8] {
    first.get(..=shared_len(last, first)).unwrap_or(first)
}

impl Handles {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let len32 = |len: usize| u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
        out.extend_from_slice(&len32(self.blocks.len() - 1));
        out.extend_from_slice(&len32(self.pages.len() - 2));
        out.extend_from_slice(&len32(self.fanout));
        out.extend_from_slice(&[self.split.slot_bits, 0, 0, 0]);
        for offset in self.blocks.iter().chain(&self.pages) {
            out.extend_from_slice(&offset.to_le_bytes());
        }
    }

    /// Decodes the handles from `bytes`. Checks that the blocks fill the file range `rows` and the
    /// pages fill the range `sparse`.
    pub(crate) fn decode(
        bytes: &[u8],
        rows: Range<u64>,
        sparse: Range<u64>,
    ) -> Result<Handles, DecodeError> {
        let mut cursor = Cursor::new(STRUCTURE_HANDLES, bytes);
        let (blocks, pages) = (cursor.u32()? as usize, cursor.u32()? as usize);
        let (fanout, slot_bits) = (cursor.u32()? as usize, cursor.u8()?);
        let reserved = cursor.take(3)?;
        if blocks == 0 || fanout == 0 || pages != blocks.div_ceil(fanout) {
            return Err(cursor.error("impossible numbers of blocks and pages"));
        }
        if slot_bits > SLOT_BITS_MAX || reserved != [0; 3] {
            return Err(cursor.error("impossible split, or reserved bytes in use"));
        }
        let blocks = offsets(&mut cursor, blocks, rows)?;
        let pages = offsets(&mut cursor, pages + 1, sparse)?;
        cursor.finish()?;
        Ok(Handles { split: LocationSplit { slot_bits }, fanout, blocks, pages })
    }

    /// Returns the number of blocks.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.blocks.len() - 1
    }

    /// Returns the byte range of block `i`.
    #[inline]
    pub(crate) fn block(&self, i: usize) -> Option<Range<u64>> {
        Some(*self.blocks.get(i)?..*self.blocks.get(i + 1)?)
    }

    /// Returns the byte range of all blocks.
    pub(crate) fn rows(&self) -> Range<u64> {
        let ends = self.blocks.first().zip(self.blocks.last());
        ends.map_or(0..0, |(start, end)| *start..*end)
    }

    /// Returns the byte range of page `i` of the sparse index.
    pub(crate) fn page(&self, i: usize) -> Option<Range<u64>> {
        Some(*self.pages.get(i)?..*self.pages.get(i + 1)?)
    }

    /// Returns the number of pages of the sparse index below its root.
    pub(crate) fn page_count(&self) -> usize {
        self.pages.len() - 2
    }
}

/// Reads `count` start offsets and one end offset. They must ascend from `span.start` to
/// `span.end`.
pub(super) fn offsets(
    cursor: &mut Cursor<'_>,
    count: usize,
    span: Range<u64>,
) -> Result<Box<[u64]>, DecodeError> {
    let Some(bytes) = count.checked_add(1).and_then(|count| count.checked_mul(8)) else {
        return Err(cursor.error("impossible count"));
    };
    let offsets = cursor.take(bytes)?.as_chunks::<8>().0.iter();
    let offsets: Box<[u64]> = offsets.map(|offset| u64::from_le_bytes(*offset)).collect();
    let header = HEADER_BYTES as u64;
    let apart = offsets.is_sorted_by(|a, b| a.checked_add(header).is_some_and(|a| a <= *b));
    if !apart || offsets.first() != Some(&span.start) || offsets.last() != Some(&span.end) {
        return Err(cursor.error("offsets do not divide their section into blocks"));
    }
    Ok(offsets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(separators: &[&str]) -> Vec<u8> {
        let mut builder = SparseBuilder::default();
        for separator in separators {
            builder.add(separator.as_bytes());
        }
        let mut out = Vec::new();
        builder.finish(&mut out);
        out
    }

    #[track_caller]
    fn check_find(separators: &[&str], key: &str, expected: usize) {
        let bytes = page(separators);
        let page = SparsePage::parse(&bytes).unwrap();
        assert_eq!(page.check(), Ok(()));
        assert_eq!(page.len(), separators.len());
        for (i, separator) in separators.iter().enumerate() {
            let (prefix, suffix) = page.separator(i).unwrap();
            assert_eq!([prefix, suffix].concat(), separator.as_bytes());
        }
        assert_eq!(page.find(key.as_bytes()), Ok(expected));
    }

    #[test]
    fn finds_the_block_a_key_belongs_in() {
        check_find(&[""], "", 0);
        check_find(&[""], "x", 0);
        check_find(&["", "b", "c"], "a", 0);
        check_find(&["", "b", "c"], "bb", 1);
        check_find(&["", "b", "c"], "z", 2);
        check_find(&["pq", "pr", "pz"], "a", 0);
        check_find(&["pq", "pr", "pz"], "prr", 1);
        check_find(&["pq", "pr", "pz"], "q", 2);
    }

    #[test]
    fn versions_that_continue_in_the_next_block_are_found_from_the_first_block() {
        check_find(&["", "k", "k", "k", "l"], "k", 0);
        check_find(&["", "k", "k", "k", "l"], "kk", 3);
    }

    #[test]
    fn separators_are_short() {
        #[track_caller]
        fn check(last: &str, first: &str, expected: &str) {
            assert_eq!(separator(last.as_bytes(), first.as_bytes()), expected.as_bytes());
        }
        check("", "abc", "a");
        check("abc", "abd", "abd");
        check("abc", "b", "b");
        check("abc", "abcdef", "abcd");
        check("abc", "abc", "abc");
    }

    #[test]
    fn the_bytes_of_a_page() {
        let expected = [2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, b'k', b'1', b'2', b'3'];
        assert_eq!(page(&["k1", "k23"]), expected);
    }

    fn handles() -> Handles {
        let split = LocationSplit { slot_bits: 9 };
        Handles { split, fanout: 128, blocks: [32, 100, 200].into(), pages: [200, 250, 290].into() }
    }

    #[test]
    fn handles_round_trip() {
        let mut out = Vec::new();
        handles().encode(&mut out);
        assert_eq!(out[..16], [2, 0, 0, 0, 1, 0, 0, 0, 128, 0, 0, 0, 9, 0, 0, 0]);
        assert_eq!(Handles::decode(&out, 32..200, 200..290), Ok(handles()));
        assert!(Handles::decode(&out, 32..201, 200..290).is_err());
        assert!(Handles::decode(&out, 32..200, 199..290).is_err());
        assert_eq!((handles().block(1), handles().block(2)), (Some(100..200), None));
        assert_eq!((handles().page(1), handles().page_count()), (Some(250..290), 1));
    }

    #[test]
    fn trap_23_hostile_pages_and_handles_never_panic() {
        let visit = |bytes: &[u8]| {
            let _ = Handles::decode(bytes, 32..200, 200..290);
            let Ok(page) = SparsePage::parse(bytes) else { return };
            let _ = (page.check(), page.find(b"k12"), page.separator(1), page.separator(9));
        };
        let mut encoded = Vec::new();
        handles().encode(&mut encoded);
        for bytes in [page(&["k1", "k2", "k3"]), encoded] {
            for at in 0..bytes.len() {
                visit(&bytes[..at]);
                for value in 0..=255 {
                    let mut bytes = bytes.clone();
                    bytes[at] = value;
                    visit(&bytes);
                }
            }
        }
    }
}

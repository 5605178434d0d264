//! Ends the blocks of rows in a table file at page boundaries of the operating system, where this
//! costs little.
//!
//! Invariants
//! * padding is at most 1/32 of the target size of a block; a padded block has half of that on
//!   average;
//! * only uncompressed blocks with a target size of whole pages are padded.
//!
//! `format::block` encodes the padding.

use crate::format::block::{HEADER_BYTES, Packing};

/// The size of a page on most systems, in bytes.
pub(super) const OS_PAGE_BYTES: u64 = 4096;
/// The maximum padding is the target size of a block divided by this.
const PADDING_SHARE: u64 = 32;

/// Determines where the blocks of a file end.
///
/// The operating system reads whole pages. A block that extends over one page more than necessary
/// costs one more read for every get of its rows. So blocks end before a page boundary, and a small
/// gap up to the boundary is filled with zeros. A large gap, which a long row leaves, is not
/// filled; then the next block may extend over one page more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pages {
    block_bytes: usize,
    is_padded: bool,
}

impl Pages {
    /// Creates a layout with blocks of about `block_bytes` bytes.
    pub(super) fn new(block_bytes: usize, packing: Packing) -> Self {
        let is_whole = (block_bytes as u64).is_multiple_of(OS_PAGE_BYTES);
        Self { block_bytes, is_padded: packing == Packing::Plain && is_whole && block_bytes > 0 }
    }

    /// Returns the maximum length of the contents of a block that begins at `start`, chosen so that
    /// a full block ends at a page boundary. If `start` is not at a boundary, the block may be up
    /// to half a page shorter or longer than its target.
    pub(super) fn room(&self, start: u64) -> usize {
        if !self.is_padded {
            return self.block_bytes;
        }
        let into = start % OS_PAGE_BYTES;
        let bytes = if into < OS_PAGE_BYTES / 2 {
            self.block_bytes as u64 - into
        } else {
            self.block_bytes as u64 + (OS_PAGE_BYTES - into)
        };
        debug_assert!(bytes > HEADER_BYTES as u64, "a block has room for an entry");
        usize::try_from(bytes).unwrap_or(usize::MAX).saturating_sub(HEADER_BYTES)
    }

    /// Returns the number of zeros to write after a block that ends at `end`.
    pub(super) fn padding(&self, end: u64) -> usize {
        let gap = end.next_multiple_of(OS_PAGE_BYTES) - end;
        let is_small = gap <= self.block_bytes as u64 / PADDING_SHARE;
        if self.is_padded && is_small { usize::try_from(gap).unwrap_or(0) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_at_least_a_page_fill_whole_pages() {
        let pages = Pages::new(8192, Packing::Plain);
        assert_eq!(pages.room(4096), 8192 - HEADER_BYTES);
        assert_eq!(pages.room(4096 + 32), 8192 - 32 - HEADER_BYTES);
        assert_eq!(pages.room(4096 - 100), 8192 + 100 - HEADER_BYTES);
        assert_eq!(pages.padding(12_288), 0);
        assert_eq!(pages.padding(12_288 - 256), 256);
        assert_eq!(pages.padding(12_288 - 257), 0);
        assert_eq!(Pages::new(4096, Packing::Plain).padding(4096 - 129), 0);
    }

    #[test]
    fn compressed_blocks_and_odd_sizes_are_not_aligned() {
        for pages in [Pages::new(8192, Packing::Columns), Pages::new(512, Packing::Plain)] {
            assert_eq!(pages.room(5000), pages.block_bytes);
            assert_eq!(pages.padding(4096 - 1), 0);
        }
    }
}

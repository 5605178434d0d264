//! Where blocks of rows end: at pages of the system, as far as that costs next to nothing.
//!
//! What is not in memory is read in pages. A block that lies across them has one more read for it, at every get of its
//! rows, than it needs; so blocks end before a multiple of the page, and a small gap up to it is filled with zeros. A
//! large gap, before a long row, is not: there the block after it lies across a page more.
//!
//! Invariants
//! * padding is at most a thirty-second of a block, half of that on average where there is any;
//! * only blocks stored as they are, whose target is a number of pages, are padded.
//!
//! Not here: how padding is stored (`format::block`).

use crate::format::block::{HEADER_BYTES, Packing};

/// What most systems read at least.
pub(super) const OS_PAGE_BYTES: u64 = 4096;
/// What share of a block padding may be.
const PADDING_SHARE: u64 = 32;

/// Lays out the blocks of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pages {
    block_bytes: usize,
    is_padded: bool,
}

impl Pages {
    /// Blocks of about `block_bytes`.
    pub(super) fn new(block_bytes: usize, packing: Packing) -> Self {
        let is_whole = (block_bytes as u64).is_multiple_of(OS_PAGE_BYTES);
        Self { block_bytes, is_padded: packing == Packing::Plain && is_whole && block_bytes > 0 }
    }

    /// How long the contents of a block that begins at `start` may become: so that its end is that of the last page, if
    /// it began at a page's start, or little before or after it.
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

    /// How many zeros follow a block that ends at `end`.
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
    fn a_block_from_a_page_on_fills_whole_pages() {
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
    fn compressed_and_odd_blocks_are_as_they_come() {
        for pages in [Pages::new(8192, Packing::Columns), Pages::new(512, Packing::Plain)] {
            assert_eq!(pages.room(5000), pages.block_bytes);
            assert_eq!(pages.padding(4096 - 1), 0);
        }
    }
}

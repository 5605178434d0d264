//! Readahead for iteration over the rows of a table file.
//!
//! Invariants
//! * the requests depend only on the blocks visited;
//! * a visited block is always within the range requested so far.
//!
//! `fs` passes the requests to the operating system; `source` requests single blocks when they are
//! first read.

use std::ops::Range;

/// The size of the first window after a seek, in bytes. It contains the first block, and suffices
/// to read about 100 short rows.
const FIRST_BYTES: u64 = 48 << 10;
/// A window of at least this size is not read to its end before the next one is requested.
const EARLY_BYTES: u64 = 256 << 10;
const WINDOW_BYTES_MAX: u64 = 1 << 20;

/// Decides which byte ranges of a file an iteration requests before it reads them.
///
/// The operating system is told at opening that the file is read at random, so that a get reads
/// only the pages that it touches. An iteration therefore requests *windows* of rows itself. The
/// first window after a seek is small, because most scans are short. Each window that is read to
/// its end doubles the next one, up to 1 MiB. If a window has 256 KiB or more, the next one is
/// requested when half of it is left, so that the disk works while rows are read.
#[derive(Clone, Debug)]
pub(super) struct Readahead {
    /// The byte range of the rows in the file.
    rows: Range<u64>,
    /// The byte range requested since the last seek or jump.
    asked: Range<u64>,
    /// The length of the last window, or 0 before the first.
    window: u64,
    /// The start of the block visited last, which shows whether the iteration moves backwards.
    last: u64,
    /// The length of the first window.
    first: u64,
}

impl Readahead {
    /// Creates the readahead for an iteration over `rows`. `is_whole` should be true if the
    /// iteration will continue to the end of the rows.
    pub(super) fn new(rows: Range<u64>, is_whole: bool) -> Self {
        let first = if is_whole { WINDOW_BYTES_MAX } else { FIRST_BYTES };
        Self { rows, asked: 0..0, window: 0, last: 0, first }
    }

    /// Resets the window size: the next visited block starts a window of the initial size.
    pub(super) fn seek(&mut self) {
        self.window = 0;
    }

    /// Visits `block`. Returns the byte range to request before the block is read, if any.
    #[inline]
    pub(super) fn visit(&mut self, block: &Range<u64>) -> Option<Range<u64>> {
        let is_back = block.start < self.last;
        self.last = block.start;
        let is_inside = self.asked.start <= block.start && block.end <= self.asked.end;
        if self.window == 0 || !is_inside {
            return self.ask(block, is_back);
        }
        let left =
            if is_back { block.start - self.asked.start } else { self.asked.end - block.end };
        if self.window >= EARLY_BYTES && left < self.window / 2 {
            return self.ask(block, is_back);
        }
        None
    }

    #[cold]
    fn ask(&mut self, block: &Range<u64>, is_back: bool) -> Option<Range<u64>> {
        let Range { start, end } = self.asked;
        let goes_on = self.window > 0 && block.start <= end && block.end >= start;
        let wanted = if goes_on {
            self.window = (2 * self.window).clamp(FIRST_BYTES, WINDOW_BYTES_MAX);
            match is_back {
                true => start.saturating_sub(self.window).min(block.start)..start,
                false => end..(end + self.window).max(block.end),
            }
        } else {
            // This block does not adjoin the requested range. After a jump, more blocks may be
            // skipped, so request only this block.
            let is_jump = self.window > 0;
            self.window = if is_jump { block.end - block.start } else { self.first };
            self.asked = block.clone();
            block.start..(block.start + self.window).max(block.end)
        };
        let wanted = wanted.start.max(self.rows.start)..wanted.end.min(self.rows.end);
        self.asked = self.asked.start.min(wanted.start)..self.asked.end.max(wanted.end);
        (wanted.start < wanted.end).then_some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    /// Returns the byte range of a block of 16 KiB; the first one is at 4 KiB.
    fn block(number: u64) -> Range<u64> {
        let start = 4 * KIB + number * 16 * KIB;
        start..start + 16 * KIB
    }

    fn ahead(blocks: u64, is_whole: bool) -> Readahead {
        Readahead::new(block(0).start..block(blocks).start, is_whole)
    }

    /// Visits `blocks` and returns the sizes of the windows requested, in KiB.
    fn windows(ahead: &mut Readahead, blocks: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut windows = Vec::new();
        for number in blocks {
            if let Some(window) = ahead.visit(&block(number)) {
                windows.push((window.end - window.start) / KIB);
            }
            let Range { start, end } = ahead.asked;
            assert!(start <= block(number).start && block(number).end <= end, "{number}");
        }
        windows
    }

    #[test]
    fn windows_grow_to_a_megabyte() {
        let expected = [48, 96, 192, 384, 768, 1024, 1024, 1024];
        assert_eq!(windows(&mut ahead(10_000, false), 100..300)[..8], expected);
        assert_eq!(windows(&mut ahead(10_000, true), 0..200), [1024, 1024, 1024, 1024]);
        let expected = [48, 96, 192, 384, 768, 1024, 1024];
        assert_eq!(windows(&mut ahead(10_000, false), (5_000..5_200).rev())[..7], expected);
    }

    #[test]
    fn large_windows_are_requested_early_and_small_ones_are_not() {
        let mut ahead = ahead(10_000, false);
        // The first three windows, of 48, 96 and 192 KiB, contain 21 blocks.
        assert_eq!(windows(&mut ahead, 0..21), [48, 96, 192]);
        assert_eq!(windows(&mut ahead, 21..33), [384]);
        // The last window has 24 blocks; at this visit less than half of them are left.
        assert_eq!(windows(&mut ahead, 33..34), [768]);
    }

    #[test]
    fn nothing_after_the_rows_is_requested() {
        assert_eq!(windows(&mut ahead(1, true), 0..1), [16]);
        assert_eq!(windows(&mut ahead(10, false), 0..10), [48, 96, 16]);
        assert_eq!(windows(&mut ahead(10, false), (0..10).rev()), [16, 96, 48]);
        // At the end of the rows no empty range is requested.
        assert_eq!(windows(&mut ahead(64, true), 0..64), [1024]);
    }

    #[test]
    fn skipped_blocks_are_not_requested() {
        let mut ahead = ahead(10_000, false);
        assert_eq!(windows(&mut ahead, [0, 100, 200].into_iter()), [48, 16, 16]);
        assert_eq!(windows(&mut ahead, 201..204), [48]);
        ahead.seek();
        assert_eq!(windows(&mut ahead, 700..701), [48]);
    }

    #[test]
    fn a_block_longer_than_a_window_is_requested_whole() {
        let lens = [5 << 20, 100, 3 << 20, 100, 100 << 10];
        let rows = 0..lens.iter().sum();
        let mut ahead = Readahead::new(rows.clone(), false);
        let mut at = rows.start;
        for len in lens {
            ahead.visit(&(at..at + len));
            assert!(ahead.asked.start <= at && at + len <= ahead.asked.end);
            at += len;
        }
        let mut ahead = Readahead::new(rows, false);
        for len in lens.into_iter().rev() {
            at -= len;
            ahead.visit(&(at..at + len));
            assert!(ahead.asked.start <= at && at + len <= ahead.asked.end);
        }
    }
}

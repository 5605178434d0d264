//! The wear account: bytes and syncs since the database was created, by cause. FORMAT.md §edit.
//!
//! Invariant: an account only grows; sums saturate at `u64::MAX`.
//!
//! `write_accounting` counts the bytes and syncs; `manifest` and `lsm::recovery::replay` restore
//! the account after a restart.

use std::ops::Range;

use crate::codec::{Cursor, DecodeError};
use crate::format::field::Content;
use crate::format::record::Position;

/// The binary logarithm of the smallest page size that is counted, 512 bytes.
const PAGE_BITS_MIN: u32 = 9;
/// The binary logarithm of the greatest page size that is counted, 1 MiB.
const PAGE_BITS_MAX: u32 = 20;
/// The number of page sizes: one for each power of two from the smallest to the greatest.
const PAGE_SIZES: usize = (PAGE_BITS_MAX - PAGE_BITS_MIN) as usize + 1;

/// Bytes handed to the file system, and syncs, since the database was created, by cause.
///
/// The account persists across restarts: edits of the manifest include it. It is exact after every
/// close. After a kill or a power failure, writes since the last edit are derived from the files
/// found: commits and logs to the byte, each log as one write and one sync. Unfinished table files,
/// and the writes of a session that only opened the database, are then missing, so every figure is
/// a lower bound.
///
/// No figure includes the file system's own writes, such as inodes and its journal. Reserved space
/// is counted only when it is written.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// let db = rowstone::Db::open_in_memory()?;
/// let readings = db.create_table("Readings")?;
/// let before = db.wear();
/// readings.insert(rowstone::Entity::new("boiler", "1").with("Celsius", 71.5))?;
/// let wear = db.wear().since(&before);
/// assert_eq!((wear.log_syncs, wear.flush_bytes), (1, 0));
/// assert!(wear.user_bytes > 0 && wear.log_bytes > wear.user_bytes);
/// // One page for a few dozen bytes, or two if the record crosses a page boundary.
/// assert!(wear.flash_bytes(4096) >= 4096);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wear {
    /// Bytes that the user asked to write: the keys and encoded rows of each commit, and the key of
    /// each delete, plus a few bytes of the catalog. Rows that are added as files (imported ranges,
    /// restored tables) count as `import_bytes` instead.
    pub user_bytes: u64,
    /// Bytes written to logs.
    pub log_bytes: u64,
    /// Bytes of table files written by memtable flushes.
    pub flush_bytes: u64,
    /// Bytes of table files written by compactions.
    pub compaction_bytes: u64,
    /// Bytes of table files that were imported, restored into the open database, or healed
    /// (replaced by an intact copy).
    pub import_bytes: u64,
    /// Bytes written to the manifest, and to CURRENT, which names it.
    pub manifest_bytes: u64,
    /// Bytes written outside the database's directory: backups, and checkpoints where files cannot
    /// be linked.
    pub copy_bytes: u64,
    /// Syncs of logs.
    pub log_syncs: u64,
    /// Syncs of table files.
    pub table_syncs: u64,
    /// Syncs of the manifest and of CURRENT.
    pub manifest_syncs: u64,
    /// Syncs of files outside the database's directory.
    pub copy_syncs: u64,
    /// Syncs of directories.
    pub directory_syncs: u64,
    /// Write calls that wrote at least one byte.
    pub writes: u64,
    /// The number of pages written, for each page size; see [`flash_bytes`](Self::flash_bytes).
    pub(super) pages: [u64; PAGE_SIZES],
}

/// The account as stored in the manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) wear: Wear,
    /// The position in the logs up to which written bytes are included in `wear.log_bytes`.
    pub(crate) log_end: Position,
    /// The position in the logs up to which commits are included in `wear.user_bytes`.
    pub(crate) user_end: Position,
}

impl Wear {
    /// The number of fields of [`Wear`] except `pages`.
    const FIGURES: usize = 13;

    /// Returns the sum of all bytes written.
    pub fn written(&self) -> u64 {
        self.causes().iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// Returns the bytes written, by cause.
    pub fn causes(&self) -> [(&'static str, u64); 6] {
        [
            ("log", self.log_bytes),
            ("flush", self.flush_bytes),
            ("compaction", self.compaction_bytes),
            ("import", self.import_bytes),
            ("manifest", self.manifest_bytes),
            ("copy", self.copy_bytes),
        ]
    }

    /// Returns the sum of all syncs.
    pub fn syncs(&self) -> u64 {
        let syncs = [self.log_syncs, self.table_syncs, self.manifest_syncs, self.copy_syncs];
        syncs.iter().fold(self.directory_syncs, |sum, syncs| sum.saturating_add(*syncs))
    }

    /// Returns the bytes written per byte that the user asked to write; `None` if the user wrote
    /// nothing.
    pub fn amplification(&self) -> Option<f64> {
        (self.user_bytes > 0).then(|| self.written() as f64 / self.user_bytes as f64)
    }

    /// Estimates the bytes written by a medium that can only write whole pages of `page_size`
    /// bytes. The bytes written to a file between two syncs are rounded up to whole pages, so a
    /// page that is filled in steps counts once per sync. Each sync of a directory counts as one
    /// page.
    ///
    /// `page_size` is rounded up to a power of two and clamped to 512 bytes to 1 MiB. The estimate
    /// is a lower bound. It excludes the file system's own writes, pages that the system writes
    /// back early, and data that a flash controller moves when it erases blocks.
    pub fn flash_bytes(&self, page_size: u64) -> u64 {
        let size = page_size.clamp(1 << PAGE_BITS_MIN, 1 << PAGE_BITS_MAX).next_power_of_two();
        let at = (size.trailing_zeros() - PAGE_BITS_MIN) as usize;
        self.pages[at].saturating_mul(size)
    }

    /// Returns the growth since `earlier`, an account of the same database.
    pub fn since(&self, earlier: &Wear) -> Wear {
        self.zip(earlier, u64::saturating_sub)
    }

    /// Returns the sum of both accounts.
    pub(crate) fn plus(&self, other: &Wear) -> Wear {
        self.zip(other, u64::saturating_add)
    }

    /// Counts the pages covered by the byte range `written`, which one sync makes durable.
    pub(crate) fn count_pages(&mut self, written: &Range<u64>) {
        for (bits, pages) in (PAGE_BITS_MIN..).zip(&mut self.pages) {
            let (first, last) = (written.start >> bits, written.end.saturating_sub(1) >> bits);
            let touched = if written.is_empty() { 0 } else { last - first + 1 };
            *pages = pages.saturating_add(touched);
        }
    }

    /// Counts a sync of a directory.
    pub(crate) fn count_directory(&mut self) {
        self.directory_syncs = self.directory_syncs.saturating_add(1);
        self.count_pages(&(0..1));
    }

    /// Counts a manifest record, which is written and synced separately.
    pub(crate) fn count_edit(&mut self, record: &Range<u64>) {
        self.manifest_bytes = self.manifest_bytes.saturating_add(record.end - record.start);
        self.manifest_syncs = self.manifest_syncs.saturating_add(1);
        self.writes = self.writes.saturating_add(1);
        self.count_pages(record);
    }

    /// Counts records at the end of a log as one write and one sync. Recovery calls this for
    /// records that the stored account does not include.
    pub(crate) fn count_found(&mut self, records: &Range<u64>) {
        if !records.is_empty() {
            self.log_bytes = self.log_bytes.saturating_add(records.end - records.start);
            self.log_syncs = self.log_syncs.saturating_add(1);
            self.writes = self.writes.saturating_add(1);
            self.count_pages(records);
        }
    }

    fn zip(&self, other: &Wear, with: impl Fn(u64, u64) -> u64) -> Wear {
        let mut result = *self;
        let mut other = *other;
        let others = other.figures().map(|figure| *figure);
        result.figures().into_iter().zip(others).for_each(|(a, b)| *a = with(*a, b));
        result.pages.iter_mut().zip(other.pages).for_each(|(a, b)| *a = with(*a, b));
        result
    }

    /// Returns all figures except the pages, in the order in which they are stored.
    fn figures(&mut self) -> [&mut u64; Self::FIGURES] {
        [
            &mut self.user_bytes,
            &mut self.log_bytes,
            &mut self.flush_bytes,
            &mut self.compaction_bytes,
            &mut self.import_bytes,
            &mut self.manifest_bytes,
            &mut self.copy_bytes,
            &mut self.log_syncs,
            &mut self.table_syncs,
            &mut self.manifest_syncs,
            &mut self.copy_syncs,
            &mut self.directory_syncs,
            &mut self.writes,
        ]
    }
}

impl Content for Account {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut wear = self.wear;
        wear.figures().into_iter().for_each(|figure| figure.encode(out));
        (self.log_end, self.user_end).encode(out);
        wear.pages.iter().for_each(|pages| pages.encode(out));
    }

    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let mut wear = Wear::default();
        for figure in wear.figures() {
            *figure = cursor.varint()?;
        }
        let (log_end, user_end) = Content::decode(cursor)?;
        for pages in &mut wear.pages {
            *pages = cursor.varint()?;
        }
        Ok(Self { wear, log_end, user_end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_with_written_bytes_is_counted() {
        #[track_caller]
        fn check(written: Range<u64>, page_size: u64, expected: u64) {
            let mut wear = Wear::default();
            wear.count_pages(&written);
            assert_eq!(wear.flash_bytes(page_size), expected);
        }
        check(0..0, 4096, 0);
        check(4096..4096, 4096, 0);
        check(0..1, 4096, 4096);
        check(0..4096, 4096, 4096);
        check(4095..4097, 4096, 8192);
        check(100..200, 512, 512);
        check(0..1 << 20, 512, 1 << 20);
        check(0..1, 1 << 20, 1 << 20);
        // Other page sizes are clamped and rounded up.
        check(0..1, 0, 512);
        check(0..1, 3000, 4096);
        check(0..1, u64::MAX, 1 << 20);
        check(u64::MAX - 1..u64::MAX, 1 << 20, 1 << 20);
    }

    #[test]
    fn sums_that_do_not_fit_stay_at_the_greatest_number() {
        let mut wear = Wear { log_bytes: u64::MAX, flush_bytes: 1, ..Wear::default() };
        wear.count_found(&(0..10));
        assert_eq!((wear.log_bytes, wear.written()), (u64::MAX, u64::MAX));
        assert_eq!(wear.plus(&wear).log_bytes, u64::MAX);
        assert_eq!(wear.since(&wear), Wear::default());
    }
}

//! Defines the rows that a scan returns, and the trait of the filters that select among them.
//!
//! Not here: visibility of rows (`scan`), the meaning of a filter (`query`).

use crate::codec::DecodeError;
use crate::error::Result;
use crate::format::Kind;
use crate::format::row_block::BlockEntry;
use crate::format::zones::ZoneSet;
use crate::model::{RowRef, Seq};
use crate::sst::BlockRun;

/// A visible row.
pub(crate) struct ScanRow<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) seq: Seq,
    pub(crate) row: RowRef<'a>,
}

/// The result of visiting several rows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Visit {
    /// The number of rows visited.
    pub(crate) rows: usize,
    /// True if the visitor wants no more rows.
    pub(crate) is_over: bool,
}

/// Consecutive entries of one block, with no entry of another source between them.
pub(crate) struct VisibleRun<'a> {
    run: &'a BlockRun<'a>,
    at: Seq,
    decided: &'a [u8],
}

/// A condition on rows. If a method returns an error, the scan ends.
pub(crate) trait RowFilter {
    /// Appends the slots of the visible matching rows of `run`, ascending.
    fn select(&mut self, run: &VisibleRun<'_>, found: &mut Vec<u16>) -> Result<()>;

    /// True if the row matches.
    fn matches(&mut self, row: &ScanRow<'_>) -> Result<bool>;

    /// True if [`sift`](Self::sift) excludes most rows, so that it is worth calling.
    fn can_sift(&self) -> bool {
        false
    }

    /// Appends the slots of the rows of `run` that may match, ascending. It is also called for
    /// hidden rows, so it must have no other effect. Rows that turn out to be visible are then
    /// passed to [`matches`](Self::matches).
    fn sift(&mut self, _run: &VisibleRun<'_>, _found: &mut Vec<u16>) -> Result<()> {
        Ok(())
    }

    /// As [`sift`](Self::sift), for a single row.
    fn sift_row(&mut self, _row: &ScanRow<'_>) -> Result<bool> {
        Ok(true)
    }

    /// True if every row matches; the filter is then not evaluated.
    fn takes_all(&self) -> bool {
        false
    }

    /// False if the zones (summaries of the values in each block) have no property that can decide
    /// the filter. Zones are then not read.
    fn asks_zones(&self) -> bool;

    /// Evaluates the filter on zones. Returns `None` if the zones cannot decide it.
    fn match_zones(&mut self, zones: &ZoneSet<'_>) -> Option<ZoneMatch>;

    /// Returns about how many rows a reader with a time budget reads between two checks of its
    /// clock.
    fn stretch(&self) -> u64;

    /// Counts `rows` matching rows without reading them. Returns false if the rows must be read.
    fn take_unseen(&mut self, _rows: u64) -> bool {
        false
    }
}

/// The result of evaluating zones: one bit for each block, the first block in the lowest bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZoneMatch {
    /// Set if some row of the block may match.
    pub(crate) maybe: u64,
    /// Set if every row of the block matches.
    pub(crate) surely: u64,
}

/// The result of a step of a filtered scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The scan is positioned on a matching row.
    Row,
    /// The scan has examined many entries without a result. It is positioned on an entry that it
    /// has not examined yet, with the key `Scan::key`.
    Pause,
    End,
}

impl<'a> VisibleRun<'a> {
    /// Wraps the entries of `run` for a reader at `at`. The visible version of the key `decided`
    /// was found before the run, so entries of the run with this key are skipped.
    pub(in crate::lsm) fn new(run: &'a BlockRun<'a>, at: Seq, decided: &'a [u8]) -> Self {
        Self { run, at, decided }
    }

    /// Calls `with` with the slot and the entry of each visible row.
    #[inline]
    pub(crate) fn visit(
        &self,
        mut with: impl FnMut(u16, &BlockEntry<'a>) -> Result<(), DecodeError>,
    ) -> Result<()> {
        // The Seq of the visible version of `decided` is unknown, so compare the key itself.
        let before = self.decided.strip_prefix(self.run.prefix());
        let mut decided = before.map(|key| (key, Seq(u64::MAX)));
        self.run.visit(|slot, entry| {
            // The versions of a key have descending Seqs, so a higher Seq means another key.
            let is_decided = |(key, seq)| seq > entry.seq && is_same(key, entry.suffix);
            if entry.seq > self.at || decided.is_some_and(is_decided) {
                return Ok(());
            }
            decided = Some((entry.suffix, entry.seq));
            if entry.kind == Kind::Delete {
                return Ok(());
            }
            // A block has fewer slots than `u16::MAX`, so this cannot fail.
            with(u16::try_from(slot).unwrap_or(u16::MAX), &entry)
        })
    }

    /// As [`visit`](Self::visit), but includes rows that a newer version in the run hides. Excludes
    /// rows newer than the reader's Seq.
    #[inline]
    pub(crate) fn visit_puts(
        &self,
        mut with: impl FnMut(u16, &BlockEntry<'a>) -> Result<(), DecodeError>,
    ) -> Result<()> {
        self.run.visit(|slot, entry| {
            if entry.seq > self.at || entry.kind == Kind::Delete {
                return Ok(());
            }
            with(u16::try_from(slot).unwrap_or(u16::MAX), &entry)
        })
    }

    /// Decodes the row of an entry, which must be a put.
    #[inline]
    pub(crate) fn row(&self, entry: &BlockEntry<'a>) -> Result<RowRef<'a>, DecodeError> {
        self.run.row(entry)
    }

    /// Returns the prefix shared by all keys of the run.
    pub(crate) fn prefix(&self) -> &'a [u8] {
        self.run.prefix()
    }
}

/// True if the keys are equal. Compares the last bytes first, because adjacent keys usually differ
/// there.
#[inline]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.last() == b.last() && a == b
}

//! Rows as a scan hands them out, and what may be asked of them before.
//!
//! Not here: which rows are visible (`scan`), what a filter says (`query`).

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

/// What came of handing out many rows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Visit {
    /// How many were handed out.
    pub(crate) rows: usize,
    /// Whoever took them wants no more.
    pub(crate) is_over: bool,
}

/// Entries of one block that no other source comes between.
pub(crate) struct VisibleRun<'a> {
    run: &'a BlockRun<'a>,
    at: Seq,
    decided: &'a [u8],
}

/// What is asked of rows. Errors end the scan.
pub(crate) trait RowFilter {
    /// Appends the slots of the visible rows of `run` that match, ascending.
    fn select(&mut self, run: &VisibleRun<'_>, found: &mut Vec<u16>) -> Result<()>;

    /// True if the row matches.
    fn matches(&mut self, row: &ScanRow<'_>) -> Result<bool>;

    /// True if [`sift`](Self::sift) spares looking at most rows.
    fn can_sift(&self) -> bool {
        false
    }

    /// Appends the slots of the rows of `run` that may match, ascending, before it is known whether they are hidden by
    /// rows of the run or elsewhere. Nothing follows from that: those which are not are asked by [`matches`](Self::matches).
    fn sift(&mut self, _run: &VisibleRun<'_>, _found: &mut Vec<u16>) -> Result<()> {
        Ok(())
    }

    /// The same for one row.
    fn sift_row(&mut self, _row: &ScanRow<'_>) -> Result<bool> {
        Ok(true)
    }

    /// True if every row matches: nothing is asked then.
    fn takes_all(&self) -> bool {
        false
    }

    /// False if zones cannot decide the filter: they are not read then.
    fn asks_zones(&self) -> bool;

    /// Matches the filter against zones; `None` if they cannot decide it.
    fn match_zones(&mut self, zones: &ZoneSet<'_>) -> Option<ZoneMatch>;

    /// After about how many rows a reader with a time budget wants to look at its clock.
    fn stretch(&self) -> u64;

    /// Takes `rows` rows that match without seeing them; false if it must see them.
    fn take_unseen(&mut self, _rows: u64) -> bool {
        false
    }
}

/// The blocks that a filter may match by their zones: one bit for each, the lowest for the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZoneMatch {
    /// Some row may match.
    pub(crate) maybe: u64,
    /// Every row does.
    pub(crate) surely: u64,
}

/// Where a filtered scan stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// On a row that matches.
    Row,
    /// Nowhere yet, after much work: at an entry not looked at, whose key [`Scan::key`] tells.
    Pause,
    End,
}

impl<'a> VisibleRun<'a> {
    /// What a reader at `at` sees of `run` if it decided about the key `decided` before.
    pub(in crate::lsm) fn new(run: &'a BlockRun<'a>, at: Seq, decided: &'a [u8]) -> Self {
        Self { run, at, decided }
    }

    /// Calls `with` with the slot and the entry of each visible row.
    #[inline]
    pub(crate) fn visit(
        &self,
        mut with: impl FnMut(u16, &BlockEntry<'a>) -> Result<(), DecodeError>,
    ) -> Result<()> {
        // By which Seq the key before the run was decided is not known: that key is compared.
        let before = self.decided.strip_prefix(self.run.prefix());
        let mut decided = before.map(|key| (key, Seq(u64::MAX)));
        self.run.visit(|slot, entry| {
            // Seqs of a key descend.
            let is_decided = |(key, seq)| seq > entry.seq && is_same(key, entry.suffix);
            if entry.seq > self.at || decided.is_some_and(is_decided) {
                return Ok(());
            }
            decided = Some((entry.suffix, entry.seq));
            if entry.kind == Kind::Delete {
                return Ok(());
            }
            // A block has fewer slots than that.
            let slot = u16::try_from(slot).unwrap_or(u16::MAX);
            with(slot, &entry)
        })
    }

    /// The same of each row that is not newer than the read, also of those which a newer version in the run hides.
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

    /// The row of an entry. Requires: not a tombstone.
    #[inline]
    pub(crate) fn row(&self, entry: &BlockEntry<'a>) -> Result<RowRef<'a>, DecodeError> {
        self.run.row(entry)
    }

    /// What every key of the run begins with.
    pub(crate) fn prefix(&self) -> &'a [u8] {
        self.run.prefix()
    }
}

/// True for equal keys. Neighbours mostly differ in their last byte.
#[inline]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.last() == b.last() && a == b
}

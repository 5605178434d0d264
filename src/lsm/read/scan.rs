//! Reads a key span in order: selects the visible entries of a merge, one by one or by blocks.
//!
//! Invariants
//! * a reader sees the newest version of a key at or below its Seq, and nothing if that is a
//!   tombstone. This version is found before any filter is evaluated;
//! * a block is skipped only if no visible row in it can match (`concat_iter`);
//! * if one file has all entries of a key span, a filter may be evaluated on a whole block. The
//!   result is the same as row by row.
//!
//! Not here: the order of entries (`merge`), point reads (`view`).

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::error::Result;
use crate::format::Kind;
use crate::format::span::Span;
use crate::model::{RowRef, Seq};
use crate::sst::{BlockRun, RunWalk};

use super::concat_iter::ReadCounts;
use super::gap_cache::{Head, Pinned};
use super::load_sampling::Operation;
use super::merge::Merge;
use super::range_tombstones::Floors;
use super::row_filter::{RowFilter, ScanRow, Step, VisibleRun, Visit};
use super::view::{Slot, View};
use crate::lsm::Env;
use crate::sort::sort_by;

/// The state of the database at one Seq, pinned for any number of reads.
#[derive(Clone)]
pub(crate) struct ReadView {
    pub(super) env: Arc<Env>,
    pub(super) view: Arc<View>,
    pub(super) at: Seq,
    pinned: Pinned,
}

/// Scans the rows of a key span as of one Seq.
pub(crate) struct Scan {
    merge: Merge,
    at: Seq,
    /// The floors of the span; `None` if there are none. A floor is the Seq below which range
    /// tombstones hide all entries of a key.
    floors: Option<Floors>,
    /// The last decided key: its visible version, if any, was found, and its older versions are
    /// skipped.
    decided: Vec<u8>,
    /// True if the current entry was not examined yet.
    is_fresh: bool,
    batch: Batch,
    head: Head,
    /// The number of entries examined so far.
    pub(crate) rows: u64,
    /// The number of consecutive dead versions examined: newer than the scan, or older than the
    /// decided version.
    versions: u32,
    /// The number of entries to examine one by one before the next attempt to open a batch.
    single: u32,
    /// The number of consecutive attempts that opened no batch.
    misses: u32,
}

/// A batch: entries whose visibility is decided together.
#[derive(Default)]
struct Batch {
    open: Open,
    /// The number of further windows to open without sifting (evaluating the filter before
    /// sorting), because too many rows of the last sifted window matched.
    plain: u32,
    walk: RunWalk,
    /// The matching slots of the run.
    found: Vec<u16>,
    /// How many slots of `found` were returned.
    handed: usize,
    /// The slot after the last slot of the run.
    end: usize,
}

/// The kind of batch that is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Open {
    #[default]
    Nothing,
    /// A run of one block. `found` lists the slots of its matching rows.
    Found,
    /// A run in which every visible row matches. Visibility is decided while rows are returned.
    Walk,
    /// A sorted window, on whose rows the filter must still be evaluated.
    Window,
    /// A window of rows that may match, some of which may be hidden.
    Sifted,
}

/// If a scan has several sources, shorter runs of rows from one source are not read as a batch.
const RUN_MIN: usize = 16;
/// Limits how many entries are read one by one between two attempts to open a batch: at most
/// 2^`MISSES_MAX` - 1.
const MISSES_MAX: u32 = 6;
/// If more than 1/`SIFT_SHARE` of the entries of a sifted window may match, the next windows are
/// not sifted.
const SIFT_SHARE: u64 = 8;
/// After this many consecutive dead versions, a scan searches for the next key instead of moving
/// entry by entry.
pub(super) const VERSIONS_MAX: u32 = 8;
/// If at most this many rows are expected, no batch is opened for them.
const FEW_ROWS: usize = 8;
/// The number of windows without sifting before sifting is tried again.
const PLAIN_WINDOWS: u32 = 16;

impl ReadView {
    /// Calls `with` with the newest row of `key`. Returns `None` if no row is visible.
    #[inline]
    pub(crate) fn get<R>(
        &self,
        key: &[u8],
        with: impl FnOnce(Seq, RowRef<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        self.view.record_rows(&self.env, 1, key, Operation::Get);
        let found = self.view.read(&self.env, self.env.hash(key), key, self.at, |current| {
            current.row.map(|row| with(current.seq, row)).transpose()
        })?;
        Ok(found.flatten())
    }

    /// Returns how many different ranges the spans touch.
    pub(crate) fn ranges<'s>(&self, spans: impl Iterator<Item = &'s Span>) -> usize {
        let ranges = spans.flat_map(|span| self.view.version.ranges_in(span));
        let mut ids: Vec<_> = ranges.map(|range| range.id).collect();
        sort_by(&mut ids, Ord::cmp);
        ids.dedup();
        ids.len()
    }

    /// Counts `rows` rows that a scan read. `key` is the key of the last of them.
    #[inline]
    pub(crate) fn record_rows(&self, rows: u32, key: &[u8]) {
        self.view.record_rows(&self.env, rows, key, Operation::Scan);
    }

    /// Returns this view with only the entries of `span`, which are few. The memtables need not be
    /// sorted to scan them.
    pub(crate) fn part(&self, span: &Span) -> Self {
        let part = |slot: &Arc<Slot>| {
            if slot.memtable.is_empty() {
                return Arc::clone(slot);
            }
            let memtable = slot.memtable.part(span, |key| self.env.hash(key));
            Arc::new(Slot { memtable: Arc::new(memtable), logs: Vec::new() })
        };
        let memtables = self.view.memtables.iter().map(part).collect();
        Self { view: Arc::new(View { memtables, ..View::clone(&self.view) }), ..self.clone() }
    }

    /// Scans `span`, a part of `whole`. [`Scan::seek`] continues with other parts.
    pub(crate) fn scan(&self, whole: &Span, span: &Span) -> Result<Scan> {
        let mut head = Head::new(self.pinned);
        let begin = head.begin(&self.env.gaps, &span.low, self.at);
        let part = part_from(span, begin.as_deref());
        let merge = Merge::over_view(&self.env, &self.view, whole, part, self.at)?;
        Ok(Scan::new(merge, self.at, self.view.range_tombstones.floors_in(whole, self.at), head))
    }

    /// Creates a read view at `at`. `is_newest` may be true only if `at` is the published Seq.
    pub(in crate::lsm) fn of(env: &Arc<Env>, view: Arc<View>, at: Seq, is_newest: bool) -> Self {
        let memtables = view.memtables.iter().map(|slot| &*slot.memtable);
        let pinned = Pinned::new(memtables, view.range_tombstones.newest, at, is_newest);
        Self { env: Arc::clone(env), view, at, pinned }
    }
}

impl Scan {
    fn new(merge: Merge, at: Seq, floors: Option<Floors>, head: Head) -> Self {
        let (decided, batch) = (Vec::new(), Batch::default());
        Self {
            merge,
            at,
            floors,
            decided,
            is_fresh: true,
            batch,
            head,
            rows: 0,
            versions: 0,
            single: 0,
            misses: 0,
        }
    }

    /// Moves to the next visible row. Returns false at the end.
    ///
    /// # Errors
    /// Damage and disk errors, which every later call returns too.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<bool> {
        self.leave_current()?;
        while self.merge.is_valid() {
            self.rows += 1;
            if self.decide() {
                self.is_fresh = false;
                self.leave_head();
                return Ok(true);
            }
            if !self.pass_gap()? && !self.pass_versions()? {
                self.merge.advance()?;
            }
        }
        self.leave_head();
        Ok(false)
    }

    /// Moves to the next visible row that matches. Pauses after about `rows_max` entries.
    ///
    /// # Errors
    /// As [`advance`](Self::advance), and errors of the filter.
    #[inline]
    pub(crate) fn advance_where(
        &mut self,
        filter: &mut impl RowFilter,
        rows_max: u64,
    ) -> Result<Step> {
        let pause_at = self.rows.saturating_add(rows_max);
        loop {
            if self.batch.open != Open::Nothing {
                if self.next_in_batch(filter)? {
                    return Ok(Step::Row);
                }
                self.close_batch(filter)?;
            }
            if !self.is_fresh {
                self.is_fresh = true;
                // Skip no block before the first visible row. A block without matching rows may
                // have a visible row, at which the gap (`gap_cache`) must end.
                match self.head.is_open {
                    true => self.merge.advance()?,
                    false => self.merge.pass(filter, self.at, self.floors.as_ref())?,
                }
            }
            if !self.merge.is_valid() {
                self.leave_head();
                return Ok(Step::End);
            }
            // Do not pause among older versions of a returned row: a scan that continues from this
            // key would return the row again.
            if self.rows >= pause_at && self.merge.key() != self.decided.as_slice() {
                return Ok(Step::Pause);
            }
            if self.open_batch(filter)? {
                continue;
            }
            self.rows += 1;
            self.is_fresh = false;
            if !self.decide() {
                self.is_fresh = self.pass_gap()? || self.pass_versions()?;
                continue;
            }
            self.leave_head();
            if filter.matches(&self.row()?)? {
                return Ok(Step::Row);
            }
        }
    }

    /// Hint: the caller expects to read about `rows` rows.
    pub(crate) fn expect(&mut self, rows: usize) {
        if rows <= FEW_ROWS {
            self.single = rows as u32;
        }
        self.merge.expect(rows);
    }

    /// Continues with another part of the span for which the scan was created.
    pub(crate) fn seek(&mut self, span: &Span) -> Result<()> {
        self.batch.open = Open::Nothing;
        self.is_fresh = true;
        self.decided.clear();
        if let Some(floors) = &mut self.floors {
            floors.rewind();
        }
        let begin = self.head.begin(&self.merge.env.gaps, &span.low, self.at);
        let (low, high) = part_from(span, begin.as_deref());
        self.merge.seek_span(low, high)
    }

    /// Returns the current row. The scan must be positioned on a row.
    #[inline(always)]
    pub(crate) fn row(&self) -> Result<ScanRow<'_>> {
        let (key, seq, row) = self.merge.current()?;
        Ok(ScanRow { key, seq, row })
    }

    /// True if there is a current entry.
    pub(crate) fn is_valid(&self) -> bool {
        matches!(self.batch.open, Open::Window | Open::Sifted) || self.merge.is_valid()
    }

    /// Returns the key of the current entry. Requires a current entry.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.merge.key()
    }

    /// Returns the counts of files and blocks.
    pub(crate) fn counts(&self) -> ReadCounts {
        self.merge.counts()
    }

    /// Decides the current entry: returns true if it is a visible row.
    #[inline]
    fn decide(&mut self) -> bool {
        let key = self.merge.key();
        if self.merge.seq() > self.at || key == self.decided.as_slice() {
            self.versions += 1;
            return false;
        }
        self.versions = 0;
        self.decided.clear();
        self.decided.extend_from_slice(key);
        let is_hidden = |floors: &mut Floors| self.merge.seq() < floors.below(key);
        self.merge.kind() == Kind::Put && !self.floors.as_mut().is_some_and(is_hidden)
    }

    /// True if the current entry is not a visible row. The entry must not be in a batch. Does not
    /// detect entries hidden by range tombstones.
    fn is_dead(&self) -> bool {
        let (merge, key) = (&self.merge, self.merge.key());
        merge.kind() == Kind::Delete || merge.seq() > self.at || key == self.decided.as_slice()
    }

    /// The current entry must be dead, that is, not a visible row. If it is in a gap, skips the gap
    /// and returns true.
    #[inline]
    fn pass_gap(&mut self) -> Result<bool> {
        if self.head.is_open { self.pass_gap_at_head() } else { Ok(false) }
    }

    #[cold]
    fn pass_gap_at_head(&mut self) -> Result<bool> {
        let end = self.head.pass(&self.merge.env.gaps, self.merge.key(), self.at);
        let Some(end) = end else { return Ok(false) };
        // If the skip fails, later calls must not examine the entry again.
        self.is_fresh = false;
        self.merge.skip_to(&end)?;
        self.is_fresh = true;
        Ok(true)
    }

    /// If many consecutive entries were dead versions, passes the further dead versions of the
    /// current key in memtables. Returns true if the scan is on another entry.
    #[inline]
    fn pass_versions(&mut self) -> Result<bool> {
        if self.versions >= VERSIONS_MAX { self.pass_more_versions() } else { Ok(false) }
    }

    #[cold]
    fn pass_more_versions(&mut self) -> Result<bool> {
        self.versions = 0;
        let is_decided = self.merge.key() == self.decided.as_slice();
        let to = if is_decided { Seq::ZERO } else { self.at };
        // If the move fails, later calls must not examine the entry again.
        self.is_fresh = false;
        let passed = self.merge.pass_versions(to)?;
        self.is_fresh = true;
        Ok(passed)
    }

    /// Ends the head of the scan (the part before its first row) at the first visible row or at the
    /// end of the scan.
    #[inline]
    fn leave_head(&mut self) {
        if self.head.is_open {
            self.close_head();
        }
    }

    #[cold]
    fn close_head(&mut self) {
        let env = &self.merge.env;
        let min = env.options.gap_entries_min;
        if self.merge.is_valid() {
            self.head.end_at_row(&env.gaps, self.merge.key(), self.at, min);
        } else {
            self.head.end(&env.gaps, &self.decided, self.at, min);
        }
    }

    #[inline]
    fn leave_current(&mut self) -> Result<()> {
        if !self.is_fresh {
            self.is_fresh = true;
            self.merge.advance()?;
        }
        Ok(())
    }

    /// Moves to the next matching row of the open batch. Returns false if no batch is open or no
    /// row is left.
    ///
    /// # Errors
    /// As [`advance_where`](Self::advance_where).
    #[inline]
    pub(crate) fn next_in_batch(&mut self, filter: &mut impl RowFilter) -> Result<bool> {
        match self.batch.open {
            Open::Nothing => Ok(false),
            Open::Walk => {
                let before = self.batch.walk.slots.start;
                let Some(iter) = self.merge.top_file() else { return Ok(false) };
                let found = iter.next_visible(&mut self.batch.walk, self.at, &mut self.decided)?;
                self.rows += (self.batch.walk.slots.start - before) as u64;
                Ok(found)
            }
            Open::Found => {
                let Some(slot) = self.batch.found.get(self.batch.handed) else { return Ok(false) };
                self.batch.handed += 1;
                self.merge.top_file().map_or(Ok(()), |iter| iter.go_to_slot(usize::from(*slot)))?;
                Ok(true)
            }
            Open::Window => self.hand_out_window(filter),
            Open::Sifted => self.hand_out_sifted(filter),
        }
    }

    /// Calls `with` for the rows to which [`next_in_batch`](Self::next_in_batch) would move. Stops
    /// after `max` rows or when `with` breaks. For each row, this costs a third of a call of
    /// `next_in_batch`. Visits nothing if the kind of batch does not permit it.
    ///
    /// # Errors
    /// As [`advance_where`](Self::advance_where), and errors of `with`.
    #[inline]
    pub(crate) fn visit_batch(
        &mut self,
        filter: &mut impl RowFilter,
        max: usize,
        with: &mut impl FnMut(ScanRow<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<Visit> {
        if self.batch.open == Open::Window && self.floors.is_none() && filter.takes_all() {
            return self.merge.visit_window(&self.decided, &mut self.rows, max, with);
        }
        if self.batch.open == Open::Walk {
            let before = self.batch.walk.slots.start;
            let walk = &mut self.batch.walk;
            let visit = self.merge.visit_walk(walk, self.at, &mut self.decided, max, with);
            self.rows += (self.batch.walk.slots.start - before) as u64;
            return visit;
        }
        Ok(Visit::default())
    }

    #[inline]
    fn hand_out_window(&mut self, filter: &mut impl RowFilter) -> Result<bool> {
        loop {
            if !self.merge.next_in_window(&self.decided, &mut self.rows) {
                return Ok(false);
            }
            if self.is_above_floor() && (filter.takes_all() || filter.matches(&self.row()?)?) {
                return Ok(true);
            }
        }
    }

    fn hand_out_sifted(&mut self, filter: &mut impl RowFilter) -> Result<bool> {
        while self.merge.next_sifted(self.at, &self.decided)? {
            if self.is_above_floor() && filter.matches(&self.row()?)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True if no range tombstone hides the current entry.
    #[inline]
    fn is_above_floor(&mut self) -> bool {
        let Some(floors) = &mut self.floors else { return true };
        self.merge.seq() >= floors.below(self.merge.key())
    }

    /// Opens a batch. Returns false if the current entry must be read alone.
    fn open_batch(&mut self, filter: &mut impl RowFilter) -> Result<bool> {
        debug_assert!(self.batch.open == Open::Nothing, "one batch is open at a time");
        if self.single > 0 {
            // Dead entries before the first row do not reduce `single`.
            self.single -= u32::from(!self.head.is_open);
            return Ok(false);
        }
        if self.head.is_open {
            // Examine dead entries before the first row one by one, because the gap cache needs
            // their number.
            if self.is_dead() || !self.is_above_floor() {
                return Ok(false);
            }
            self.leave_head();
        }
        if self.open_run(filter)? || self.open_window(filter)? {
            self.misses = 0;
            return Ok(true);
        }
        // Usually no batch opens because the entry is the last of its block. A key with many
        // versions never fits in a window, so do not try again at each version.
        self.single = (1 << self.misses) - 1;
        self.misses = (self.misses + 1).min(MISSES_MAX);
        Ok(false)
    }

    /// Opens a run: if many entries from the current one on are in one block, and no other source
    /// has entries between them, evaluates the filter on all of them.
    fn open_run(&mut self, filter: &mut impl RowFilter) -> Result<bool> {
        let is_alone = self.merge.is_alone();
        let Some((files, limit)) = self.merge.top_files() else { return Ok(false) };
        // The run may extend to the key at which the floor changes, if all entries of the file are
        // above the floor.
        let mut limit = limit;
        if let Some(floors) = &mut self.floors {
            if floors.below(files.key()) > files.seq_min() {
                return Ok(false);
            }
            limit = [limit, floors.end()].into_iter().flatten().min();
        }
        let Some(run) = files.rest_of_block(limit)? else { return Ok(false) };
        let (len, end) = (run.slots.len(), run.slots.end);
        if len < if is_alone { 1 } else { RUN_MIN } {
            return Ok(false);
        }
        (self.batch.handed, self.batch.end) = (0, end);
        if filter.takes_all() {
            self.batch.walk = RunWalk::new(run.slots);
            self.batch.open = Open::Walk;
            return Ok(true);
        }
        self.batch.found.clear();
        self.batch.found.reserve(len);
        filter.select(&VisibleRun::new(&run, self.at, &self.decided), &mut self.batch.found)?;
        debug_assert!(self.batch.found.is_sorted(), "a filter finds slots in order");
        if let Some(suffix) = last_decided(&run, self.at)? {
            self.decided.clear();
            self.decided.extend_from_slice(run.prefix());
            self.decided.extend_from_slice(suffix);
        }
        self.rows += len as u64;
        self.batch.open = Open::Found;
        Ok(true)
    }

    /// Opens a window over the next entries of all sources. Returns false if the current entry must
    /// be read alone.
    fn open_window(&mut self, filter: &mut impl RowFilter) -> Result<bool> {
        let sifts = self.batch.plain == 0 && filter.can_sift();
        let sieve = sifts.then_some(filter);
        let entries = self.merge.open_window(sieve, self.at, &self.decided)? as u64;
        if entries == 0 {
            return Ok(false);
        }
        if !sifts {
            self.batch.plain = self.batch.plain.saturating_sub(1);
            self.batch.open = Open::Window;
            return Ok(true);
        }
        self.rows += entries;
        // Each sifted row is evaluated again and looked up in all other sources, so sifting pays
        // only if few rows match.
        if SIFT_SHARE * self.merge.window_items() as u64 > entries {
            self.batch.plain = PLAIN_WINDOWS;
        }
        self.batch.open = Open::Sifted;
        Ok(true)
    }

    fn close_batch(&mut self, filter: &mut impl RowFilter) -> Result<()> {
        let open = std::mem::take(&mut self.batch.open);
        self.is_fresh = true;
        if matches!(open, Open::Window | Open::Sifted) {
            return self.merge.close_window();
        }
        self.merge.leave_run(self.batch.end, filter, self.at, self.floors.as_ref())
    }
}

/// Returns the bounds of the part of `span` at or above `begin`.
fn part_from<'s>(span: &'s Span, begin: Option<&'s [u8]>) -> (&'s [u8], Option<&'s [u8]>) {
    let high = span.high.as_deref();
    let low = begin.unwrap_or(&span.low);
    (high.map_or(low, |high| low.min(high)), high)
}

/// Returns the suffix of the last key in the run that has an entry at or below `at`, if any.
fn last_decided<'a>(run: &BlockRun<'a>, at: Seq) -> Result<Option<&'a [u8]>> {
    for slot in run.slots.clone().rev() {
        let entry = run.entry(slot)?;
        if entry.seq <= at {
            return Ok(Some(entry.suffix));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;

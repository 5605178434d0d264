//! Reading a key span in order: which entries of a merge a reader sees, one by one or a block at a time.
//!
//! Invariants
//! * a reader sees the newest version of a key at or below its Seq, and nothing if that is a tombstone; what decides
//!   about a key is found before any filter is asked;
//! * a block is passed over only if no row of it that decides about its key can match (`files`);
//! * where one file alone has the entries of a stretch of keys, a filter is asked about a whole block at once; the
//!   answer is the same as row by row.
//!
//! Not here: the order of entries (`merge`), points (`view`), what a filter means (`query`).

use std::sync::Arc;

use crate::codec::DecodeError;
use crate::error::Result;
use crate::format::Kind;
use crate::format::row_block::BlockEntry;
use crate::format::span::Span;
use crate::format::zones::ZoneSet;
use crate::manifest::{FileEntry, Version};
use crate::memtable::Memtable;
use crate::model::{RowRef, Seq};
use crate::planted::planted;
use crate::ranges::Reference;
use crate::sst::{BlockRun, RunWalk};

use super::fences::Floors;
use super::files::ReadCounts;
use super::gaps::{Head, Pinned};
use super::merge::Merge;
use super::view::View;
use super::{Engine, Env};

/// One state of the database, held for as many reads as needed.
#[derive(Clone)]
pub(crate) struct ReadView {
    env: Arc<Env>,
    view: Arc<View>,
    at: Seq,
    pinned: Pinned,
}

/// The rows of a key span as of one Seq.
pub(crate) struct Scan {
    merge: Merge,
    at: Seq,
    /// What fences hide; `None` without any.
    floors: Option<Floors>,
    /// The key of the entry that decided last; older versions of it are skipped.
    decided: Vec<u8>,
    /// True if the current entry was not looked at yet.
    is_fresh: bool,
    batch: Batch,
    head: Head,
    /// Entries looked at.
    rows: u64,
    /// Do not try for a batch before this many more entries.
    single: u32,
}

/// A run of entries, and what a filter found in it.
#[derive(Default)]
struct Batch {
    is_open: bool,
    /// Every visible row matches: the run is walked, and nothing is known before of what is found in it.
    takes_all: bool,
    walk: RunWalk,
    found: Vec<u16>,
    /// How many of them were handed out.
    handed: usize,
    /// The slot behind the run.
    end: usize,
}

/// A visible row.
pub(crate) struct ScanRow<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) seq: Seq,
    pub(crate) row: RowRef<'a>,
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

    /// True if every row matches: nothing is asked then.
    fn takes_all(&self) -> bool {
        false
    }

    /// False if zones say nothing about what is asked: they are not read then.
    fn asks_zones(&self) -> bool;

    /// What zones say about rows; `None` if they say nothing about what is asked.
    fn judge(&mut self, zones: &ZoneSet<'_>) -> Option<Judgement>;

    /// After about how many rows a reader with a time budget wants to look at its clock.
    fn stretch(&self) -> u64;

    /// Takes `rows` rows that match without seeing them; false if it must see them.
    fn take_unseen(&mut self, _rows: u64) -> bool {
        false
    }
}

/// What zones say of blocks: a bit for each, the first one the lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Judgement {
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

/// Runs shorter than this are not worth a batch.
const RUN_MIN: usize = 4;
/// How many entries go one by one after such a run.
const SINGLES: u32 = 16;

impl ReadView {
    /// Calls `with` with the newest row of `key`; `None` if there is none.
    #[inline]
    pub(crate) fn get<R>(
        &self,
        key: &[u8],
        with: impl FnOnce(Seq, RowRef<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        self.env.note_read(&self.view.version, key);
        let found = self.view.read(&self.env, self.env.hash(key), key, self.at, |current| {
            current.row.map(|row| with(current.seq, row)).transpose()
        })?;
        Ok(found.flatten())
    }

    /// How many ranges the spans touch. Requires: ascending, or descending.
    pub(crate) fn ranges<'s>(&self, spans: impl Iterator<Item = &'s Span>) -> usize {
        let ranges = spans.flat_map(|span| self.view.version.ranges_in(span));
        let mut ids: Vec<_> = ranges.map(|range| range.id).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.len()
    }

    /// Counts rows that were passed, the last of them at `key`.
    #[inline]
    pub(crate) fn note_rows(&self, rows: u32, key: &[u8]) {
        self.env.note_rows(&self.view.version, rows, key);
    }

    pub(super) fn env(&self) -> &Env {
        &self.env
    }

    pub(super) fn version(&self) -> &Version {
        &self.view.version
    }

    /// False if nothing of a file can be seen.
    pub(super) fn can_see(&self, file: &Reference<Arc<FileEntry>>) -> bool {
        self.view.can_see(file, self.at)
    }

    /// Those that hold anything.
    pub(super) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        let memtables = self.view.memtables.iter().map(|slot| &slot.memtable);
        memtables.filter(|memtable| !memtable.is_empty())
    }

    /// The rows of `span`, which is a part of `whole`; [`Scan::seek`] goes on with other parts.
    pub(crate) fn scan(&self, whole: &Span, span: &Span) -> Result<Scan> {
        let mut head = Head::new(self.pinned);
        let begin = head.begin(&self.env.gaps, &span.low, self.at);
        let part = part_from(span, begin.as_deref());
        let merge = Merge::over_view(&self.env, &self.view, whole, part, self.at)?;
        Ok(Scan::new(merge, self.at, self.view.fences.floors_in(whole, self.at), head))
    }
}

#[cfg(test)]
impl ReadView {
    /// A read at `at` in this view; as of what was published if `is_newest`.
    #[cfg(not(loom))]
    pub(super) fn of(engine: &Engine, view: Arc<View>, at: Seq, is_newest: bool) -> Self {
        let pinned = Pinned::new(&view, at, is_newest);
        Self { env: Arc::clone(&engine.env), view, at, pinned }
    }

    /// The rows of these references, whatever ranges they belong to.
    pub(crate) fn scan_references(&self, files: &[Reference<Arc<FileEntry>>]) -> Result<Scan> {
        Ok(Scan::new(Merge::over_files(&self.env, &[], files)?, self.at, None, Head::closed()))
    }

    /// All references of the ranges in `span`.
    pub(crate) fn references(&self, span: &Span) -> Vec<Reference<Arc<FileEntry>>> {
        let ranges = self.version().ranges_in(span).iter();
        ranges
            .flat_map(|range| range.references().map(|(_, reference)| reference.clone()))
            .collect()
    }
}

impl Scan {
    fn new(merge: Merge, at: Seq, floors: Option<Floors>, head: Head) -> Self {
        let (decided, batch) = (Vec::new(), Batch::default());
        Self { merge, at, floors, decided, is_fresh: true, batch, head, rows: 0, single: 0 }
    }

    /// Goes to the next visible row; false at the end.
    ///
    /// # Errors
    /// Damage and disk errors, now and at every later call.
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
            if !self.pass_gap()? {
                self.merge.advance()?;
            }
        }
        self.leave_head();
        Ok(false)
    }

    /// Goes to the next visible row that matches, or pauses after about `rows_max` entries.
    ///
    /// # Errors
    /// As [`advance`](Self::advance), and those of the filter.
    #[inline]
    pub(crate) fn advance_where(
        &mut self,
        filter: &mut impl RowFilter,
        rows_max: u64,
    ) -> Result<Step> {
        let pause_at = self.rows.saturating_add(rows_max);
        loop {
            if self.batch.is_open && self.hand_out(filter)? {
                return Ok(Step::Row);
            }
            self.leave_current()?;
            if !self.merge.is_valid() {
                self.leave_head();
                return Ok(Step::End);
            }
            // Not among the older versions of a row that was seen: who goes on from its key would see it again.
            if self.rows >= pause_at && self.merge.key() != self.decided.as_slice() {
                return Ok(Step::Pause);
            }
            if self.open_batch(filter)? {
                continue;
            }
            self.rows += 1;
            self.is_fresh = false;
            if !self.decide() {
                self.is_fresh = self.pass_gap()?;
                continue;
            }
            self.leave_head();
            if filter.matches(&self.row()?)? {
                return Ok(Step::Row);
            }
        }
    }

    /// Goes on with another part of the span that the scan was made for.
    pub(crate) fn seek(&mut self, span: &Span) -> Result<()> {
        self.batch.is_open = false;
        self.is_fresh = true;
        self.decided.clear();
        if let Some(floors) = &mut self.floors {
            floors.rewind();
        }
        let begin = self.head.begin(&self.merge.env().gaps, &span.low, self.at);
        let (low, high) = part_from(span, begin.as_deref());
        self.merge.seek_span(low, high)
    }

    /// The current row. Requires that the scan stands on one.
    #[inline]
    pub(crate) fn row(&self) -> Result<ScanRow<'_>> {
        let (key, seq, row) = self.merge.current()?;
        Ok(ScanRow { key, seq, row })
    }

    /// True if there is a current entry.
    pub(crate) fn is_valid(&self) -> bool {
        self.merge.is_valid()
    }

    /// The key of the current entry. Requires that there is one.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.merge.key()
    }

    /// How many entries were looked at.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// What was read of files.
    pub(crate) fn counts(&self) -> ReadCounts {
        self.merge.counts()
    }

    /// Decides about the current entry: true if it is a visible row.
    #[inline]
    fn decide(&mut self) -> bool {
        let key = self.merge.key();
        if self.merge.seq() > self.at || key == self.decided.as_slice() {
            return false;
        }
        self.decided.clear();
        self.decided.extend_from_slice(key);
        let is_hidden = |floors: &mut Floors| self.merge.seq() < floors.below(key);
        self.merge.kind() == Kind::Put && !self.floors.as_mut().is_some_and(is_hidden)
    }

    /// True if the current entry, which no batch holds, is no row: what fences hide may seem to be one.
    fn is_dead(&self) -> bool {
        let (merge, key) = (&self.merge, self.merge.key());
        merge.kind() == Kind::Delete || merge.seq() > self.at || key == self.decided.as_slice()
    }

    /// The current entry is dead; true if the scan left it and a gap that it is in behind.
    #[inline]
    fn pass_gap(&mut self) -> Result<bool> {
        if self.head.is_open { self.pass_gap_at_head() } else { Ok(false) }
    }

    #[cold]
    fn pass_gap_at_head(&mut self) -> Result<bool> {
        let end = self.head.pass(&self.merge.env().gaps, self.merge.key(), self.at);
        let Some(end) = end else { return Ok(false) };
        // Should it fail, no later call begins with where it left off.
        self.is_fresh = false;
        self.merge.skip_to(&end)?;
        self.is_fresh = true;
        Ok(true)
    }

    /// The scan stands at a visible row or at its end.
    #[inline]
    fn leave_head(&mut self) {
        if self.head.is_open {
            self.close_head();
        }
    }

    #[cold]
    fn close_head(&mut self) {
        let env = self.merge.env();
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

    /// Goes to the next row that the filter found; false if it found no more, and the run is left behind.
    #[inline]
    fn hand_out(&mut self, filter: &mut impl RowFilter) -> Result<bool> {
        if self.batch.takes_all {
            let before = self.batch.walk.slots.start;
            let found =
                self.merge.next_visible(&mut self.batch.walk, self.at, &mut self.decided)?;
            self.rows += (self.batch.walk.slots.start - before) as u64;
            return if found { Ok(true) } else { self.close_batch(filter).map(|()| false) };
        }
        let Some(slot) = self.batch.found.get(self.batch.handed) else {
            return self.close_batch(filter).map(|()| false);
        };
        self.batch.handed += 1;
        self.merge.go_to_slot(usize::from(*slot))?;
        Ok(true)
    }

    /// Asks the filter about the entries from the current one on; false if it is better to go one by one.
    fn open_batch(&mut self, filter: &mut impl RowFilter) -> Result<bool> {
        if self.single > 0 {
            self.single -= 1;
            return Ok(false);
        }
        // At the head the dead are counted.
        if self.head.is_open && self.is_dead() {
            return Ok(false);
        }
        let Some((files, limit)) = self.merge.top_files() else { return Ok(false) };
        // Up to where the floor is the same, and only over entries that are all above it.
        let mut limit = limit;
        if let Some(floors) = &mut self.floors {
            if floors.below(files.key()) > files.seq_min() && !planted!("batch-ignores-fences") {
                return Ok(false);
            }
            limit = [limit, floors.end()].into_iter().flatten().min();
        }
        let Some(run) = files.rest_of_block(limit)? else { return Ok(false) };
        let (len, end) = (run.slots.len(), run.slots.end);
        if len < RUN_MIN {
            self.single = SINGLES;
            return Ok(false);
        }
        self.batch.takes_all = filter.takes_all();
        if self.batch.takes_all {
            self.batch.walk = RunWalk::new(run.slots);
        } else {
            self.batch.found.clear();
            self.batch.found.reserve(len);
            let visible = VisibleRun { run: &run, at: self.at, decided: &self.decided };
            filter.select(&visible, &mut self.batch.found)?;
            if let Some(suffix) = last_decided(&run, self.at)?
                && !planted!("batch-forgets-decided")
            {
                self.decided.clear();
                self.decided.extend_from_slice(run.prefix());
                self.decided.extend_from_slice(suffix);
            }
            self.rows += len as u64;
        }
        // The first entry is a visible row: no tombstone, and nothing of the run lies below a floor.
        self.leave_head();
        (self.batch.is_open, self.batch.handed, self.batch.end) = (true, 0, end);
        Ok(true)
    }

    fn close_batch(&mut self, filter: &mut impl RowFilter) -> Result<()> {
        self.batch.is_open = false;
        self.is_fresh = true;
        self.merge.leave_run(self.batch.end, filter, self.at, self.floors.as_ref())
    }
}

impl<'a> VisibleRun<'a> {
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

/// What of `span` is not before `begin`.
fn part_from<'s>(span: &'s Span, begin: Option<&'s [u8]>) -> (&'s [u8], Option<&'s [u8]>) {
    let high = span.high.as_deref();
    let low = begin.unwrap_or(&span.low);
    (high.map_or(low, |high| low.min(high)), high)
}

/// The end of the last key about which the run decides anything.
fn last_decided<'a>(run: &BlockRun<'a>, at: Seq) -> Result<Option<&'a [u8]>> {
    for slot in run.slots.clone().rev() {
        let entry = run.entry(slot)?;
        if entry.seq <= at {
            return Ok(Some(entry.suffix));
        }
    }
    Ok(None)
}

/// True for equal keys. Neighbours mostly differ in their last byte.
#[inline]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.last() == b.last() && a == b
}

impl Engine {
    /// The state as of `at`, or as of now.
    pub(crate) fn read_view(&self, at: Option<Seq>) -> ReadView {
        let at = at.filter(|_| !planted!("scan-ignores-snapshot"));
        self.settle_gaps();
        let is_newest = at.is_none();
        let (view, at) = self.pin_read(at);
        let pinned = Pinned::new(&view, at, is_newest);
        ReadView { env: Arc::clone(&self.env), view: Arc::clone(&view), at, pinned }
    }

    /// The rows of `span` as of `at`, or as of now.
    pub(crate) fn scan(&self, span: &Span, at: Option<Seq>) -> Result<Scan> {
        self.read_view(at).scan(span, span)
    }
}

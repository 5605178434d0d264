//! Writes sorted entries to new table files. Leaves out entries that no reader can see any more.
//!
//! Invariants
//! * All versions of a user key are in one file.
//! * The parts of a file are disjoint, ascend, and hold all its keys. No part crosses the start of
//!   a range or a table.
//! * A version is left out only if a newer one hides it from every snapshot and every later reader.
//! * A tombstone is left out only if all readers see it and no older source can hold its key.
//!
//! `flush` and `compaction` choose the entries; `sst` encodes the files.

use std::sync::Arc;

use crate::error::Result;
use crate::format::Kind;
use crate::format::key::table_of;
use crate::format::names::TableId;
use crate::format::span::Span;
use crate::model::{RowRef, Seq};
use crate::mutants::mutant;
use crate::options::Codec;
use crate::ranges::Range;
use crate::sst::{SstOptions, SstWriter};
use crate::sync::Ordering;
use crate::write_accounting::Cause;

use super::maintenance::Maintenance;
use super::new_file::{NewFile, Part, share};
use crate::lsm::read::merge::Merge;
use crate::lsm::read::range_tombstones::{RangeTombstones, Spent};
use crate::lsm::read::snapshot::Horizon;
use crate::lsm::write::admission::Held;

/// The two sizes at which the current file ends and the next one begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// A file of at least this many bytes ends at the next user key.
    pub(crate) file_bytes: u64,
    /// A file of at least this many bytes ends at the start of the next range or table.
    pub(crate) boundary_bytes: u64,
}

/// The start keys of ranges, ascending. The writer compares each written key with them in one
/// ascending pass.
#[derive(Default)]
pub(crate) struct Boundaries {
    starts: Vec<Box<[u8]>>,
    /// The index of the first start key that is above all keys passed so far.
    next: usize,
}

/// A file to which entries are being added.
struct OpenFile {
    writer: SstWriter,
    /// The parts so far. Until the file is finished, their `bytes` are relative weights, because
    /// the sizes in the file are not known yet.
    parts: Vec<Part>,
}

/// Writes the files of one job. If `finish` does not return the files to the caller, dropping the
/// writer removes them.
pub(crate) struct OutputWriter<'e> {
    maintenance: &'e Maintenance,
    cut: Cut,
    codec: Codec,
    cause: Cause,
    boundaries: Boundaries,
    file: Option<OpenFile>,
    tombstones_applied: Option<Seq>,
    files: Vec<NewFile>,
    /// The space reserved for the current file of an import.
    room: Held<'e>,
    /// The number of bytes written when the callback `between` was last called.
    reported: u64,
    /// The memory last recorded for the file being written, in bytes.
    counted_memory: usize,
    /// The number of tombstones left out.
    pub(crate) spent: u64,
    handed_over: bool,
}

/// A function that returns whether a source older than the written entries may hold the key.
type MayHold<'e> = dyn Fn(&[u8]) -> bool + 'e;

/// Decides which entries of a sorted sequence to keep.
pub(crate) struct Retention<'e> {
    horizon: Horizon,
    /// Dropped tables whose rows no reader can see any more.
    dead: Vec<TableId>,
    /// Returns whether a source older than the written entries may hold a key.
    older: Box<MayHold<'e>>,
    spent: Option<Spent>,
    /// All range tombstones up to this Seq are applied to the kept entries.
    tombstones_applied: Seq,
    key: Vec<u8>,
    newer: Option<Seq>,
    is_dead: bool,
}

impl<'e> Retention<'e> {
    /// Creates the retention rules for one job. Entries in `span` that `range_tombstones` hide from
    /// all readers are left out, too. The caller must have read `range_tombstones` after `horizon`.
    pub(crate) fn new(
        horizon: Horizon,
        dead: Vec<TableId>,
        (range_tombstones, span): (&RangeTombstones, &Span),
        older: impl Fn(&[u8]) -> bool + 'e,
    ) -> Self {
        debug_assert!(dead.is_sorted(), "dead tables are in order");
        let has_any = !range_tombstones.is_empty();
        Self {
            spent: has_any.then(|| range_tombstones.spent(span, &horizon)),
            tombstones_applied: if has_any { horizon.oldest() } else { Seq::ZERO },
            horizon,
            dead,
            older: Box::new(older),
            key: Vec::new(),
            newer: None,
            is_dead: false,
        }
    }

    /// Decides whether to keep the next entry.
    pub(crate) fn keeps(&mut self, key: &[u8], seq: Seq, kind: Kind) -> bool {
        if self.key != key || self.newer.is_none() {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.newer = None;
            self.is_dead =
                table_of(key).is_some_and(|table| self.dead.binary_search(&table).is_ok());
        }
        let hidden = self.newer.is_some_and(|newer| self.horizon.hides(newer, seq));
        self.newer = Some(seq);
        let is_spent = |spent: &mut Spent| spent.hides(key, seq, &self.horizon);
        if self.is_dead || hidden || self.spent.as_mut().is_some_and(is_spent) {
            return false;
        }
        // If all readers see the tombstone and no older source can hold its key, it hides only
        // versions that this job leaves out, too. So leave out the tombstone.
        let is_spent = kind == Kind::Delete && self.horizon.all_see(seq) && !(self.older)(key);
        !is_spent
    }
}

impl<'e> OutputWriter<'e> {
    /// Creates a writer. `boundaries` are the starts of the ranges to which the entries may belong.
    pub(crate) fn new(
        maintenance: &'e Maintenance,
        cut: Cut,
        (codec, cause): (Codec, Cause),
        boundaries: Boundaries,
    ) -> Self {
        Self {
            maintenance,
            cut,
            codec,
            cause,
            boundaries,
            file: None,
            tombstones_applied: None,
            files: Vec::new(),
            room: Held::NONE,
            reported: 0,
            counted_memory: 0,
            spent: 0,
            handed_over: false,
        }
    }

    /// Writes the entries that `retention` keeps. Calls `between` at intervals with the bytes
    /// written since the last call, so that a long job can yield. All keys must be above those
    /// written before.
    ///
    /// # Errors
    /// Errors of reading, writing and `between`. The files are then removed when `self` is dropped.
    pub(crate) fn write(
        &mut self,
        mut entries: Merge,
        mut retention: Retention<'_>,
        mut between: impl FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        // A file records up to which Seq range tombstones were applied to it. Several calls of
        // `write` may fill one file, so use the lowest Seq of all calls.
        self.tombstones_applied = Some(
            self.tombstones_applied
                .map_or(retention.tombstones_applied, |seq| seq.min(retention.tombstones_applied)),
        );
        let mut count = 0u32;
        while entries.is_valid() {
            let (key, seq, kind) = entries.head();
            if retention.keeps(key, seq, kind) {
                let row = match kind {
                    Kind::Put => Some(entries.current()?.2),
                    Kind::Delete => None,
                };
                self.add(key, seq, kind, row.as_ref())?;
            } else {
                self.spent += u64::from(kind == Kind::Delete);
            }
            entries.advance()?;
            count = count.wrapping_add(1);
            if count.is_multiple_of(1024) {
                let written = self.written();
                between(written.saturating_sub(self.reported))?;
                self.reported = written;
                self.record_memory();
            }
        }
        Ok(())
    }

    /// Ends the last file, makes the names of all files durable, and returns the files.
    pub(crate) fn finish(mut self) -> Result<Vec<NewFile>> {
        self.end_file()?;
        debug_assert!(self.file.is_none(), "the last file has ended");
        if !self.files.is_empty() && !mutant!("unsynced-names") {
            self.maintenance.env().sync_dir()?;
        }
        self.handed_over = true;
        Ok(std::mem::take(&mut self.files))
    }

    /// Adds an entry, which must follow all earlier ones in order. `row` is required for a put.
    pub(super) fn add(
        &mut self,
        key: &[u8],
        seq: Seq,
        kind: Kind,
        row: Option<&RowRef<'_>>,
    ) -> Result<()> {
        // Compare with the last key that was written, not the last key that was read: a range
        // tombstone may hide the newest version of a key but not an older one that a snapshot
        // reads.
        let is_new_key = self.file.as_ref().is_none_or(|file| file.writer.last_key() != key);
        let begins_part = is_new_key && self.begins_part(key);
        if let Some(file) = self.file.as_ref().filter(|_| is_new_key) {
            let bytes = file.writer.bytes();
            // End the file after the catalog: its few rows must not keep a large file of other
            // tables alive.
            let is_catalog = table_of(file.writer.last_key()) == Some(TableId::CATALOG);
            let ends = bytes >= self.cut.file_bytes
                || (begins_part
                    && (is_catalog
                        || bytes >= self.cut.boundary_bytes
                        || self.needs_own_file(file.writer.last_key(), key)));
            if ends {
                self.end_file()?;
            }
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                if self.cause == Cause::Import {
                    self.room = self.maintenance.admit_file(self.cut.file_bytes)?;
                }
                let writer = self.maintenance.new_sst(self.codec, self.cause)?;
                none.insert(OpenFile { writer, parts: Vec::new() })
            }
        };
        if is_new_key {
            file.begin_key(key, begins_part);
        }
        if let Some(part) = file.parts.last_mut() {
            part.bytes += key.len() as u64 + row.map_or(0, |row| row.body.len() as u64);
        }
        file.writer.add(key, seq, kind, row)
    }

    /// True if the new key `key` is in another range or table than the previous key.
    fn begins_part(&mut self, key: &[u8]) -> bool {
        let passed = self.boundaries.pass(key);
        let before = self.file.as_ref().and_then(|file| table_of(file.writer.last_key()));
        passed || before != table_of(key)
    }

    /// True if the keys are in different tables and one of the tables is under FIFO eviction. In a
    /// shared file, rows of the other table would keep the file alive after the eviction.
    fn needs_own_file(&self, before: &[u8], next: &[u8]) -> bool {
        let (before, next) = (table_of(before), table_of(next));
        let is_fifo = |table: Option<TableId>| table.is_some_and(|id| self.maintenance.is_fifo(id));
        before != next && (is_fifo(before) || is_fifo(next))
    }

    /// Records the memory that the file being written uses.
    fn record_memory(&mut self) {
        let now = self.file.as_ref().map_or(0, |file| file.writer.memory_bytes());
        let writing = &self.maintenance.state.writing;
        writing.fetch_add(now, Ordering::Relaxed);
        let before = std::mem::replace(&mut self.counted_memory, now);
        let all = writing.fetch_sub(before, Ordering::Relaxed);
        debug_assert!(all >= before, "the total has what a file took");
    }

    fn written(&self) -> u64 {
        let done: u64 = self.files.iter().map(|file| file.meta.bytes).sum();
        done + self.file.as_ref().map_or(0, |file| file.writer.bytes())
    }

    fn end_file(&mut self) -> Result<()> {
        if let Some(file) = self.file.take() {
            let mut file = file.finish()?;
            file.meta.tombstones_applied = self.tombstones_applied.unwrap_or_default();
            self.files.push(file);
        }
        self.room = Held::NONE;
        self.record_memory();
        Ok(())
    }
}

impl OpenFile {
    fn begin_key(&mut self, key: &[u8], begins_part: bool) {
        if begins_part || self.parts.is_empty() {
            self.end_part();
            self.parts.push(Part { low: key.into(), high: Box::default(), bytes: 0 });
        }
    }

    fn end_part(&mut self) {
        if let Some(part) = self.parts.last_mut() {
            part.high = self.writer.last_key().into();
        }
    }

    fn finish(mut self) -> Result<NewFile> {
        self.end_part();
        let meta = self.writer.finish()?;
        debug_assert!(!self.parts.is_empty(), "a file has a part");
        let weight: u64 = self.parts.iter().map(|part| part.bytes).sum();
        for part in &mut self.parts {
            part.bytes = share(meta.bytes, part.bytes, weight);
        }
        let bytes = |parts: &[Part]| parts.iter().map(|part| part.bytes).sum::<u64>();
        debug_assert!(bytes(&self.parts) <= meta.bytes, "parts share the bytes of their file");
        Ok(NewFile { meta, parts: self.parts, sst: None })
    }
}

impl Boundaries {
    /// Returns the starts of `ranges`, which must ascend.
    pub(crate) fn of<'r, F: 'r>(ranges: impl IntoIterator<Item = &'r Arc<Range<F>>>) -> Self {
        let starts: Vec<_> = ranges.into_iter().map(|range| range.span.low.clone()).collect();
        debug_assert!(starts.is_sorted(), "ranges ascend");
        Self { starts, next: 0 }
    }

    /// Moves to `key`. Returns true if a range starts at `key`, or between the previous key and
    /// `key`.
    fn pass(&mut self, key: &[u8]) -> bool {
        let before = self.next;
        while self.starts.get(self.next).is_some_and(|start| **start <= *key) {
            self.next += 1;
        }
        self.next > before
    }
}

impl Drop for OutputWriter<'_> {
    fn drop(&mut self) {
        self.file = None;
        self.record_memory();
        if !self.handed_over {
            self.maintenance.discard(&self.files);
        }
    }
}

impl Maintenance {
    /// Returns the retention rules for a job that starts now. The rules drop entries that no reader
    /// can see, including those of dropped tables, and entries of `span` hidden by range
    /// tombstones. `older` returns whether an older source may hold a key.
    pub(super) fn retention<'e>(
        &self,
        span: &Span,
        older: impl Fn(&[u8]) -> bool + 'e,
    ) -> Retention<'e> {
        let horizon = self.reader().horizon();
        let dead = self.reader().dropped.dead(&horizon);
        // Range tombstones must be read after the horizon.
        let range_tombstones = &self.reader().view.load().range_tombstones;
        Retention::new(horizon, dead, (range_tombstones, span), older)
    }

    fn new_sst(&self, codec: Codec, cause: Cause) -> Result<SstWriter> {
        let (number, id) = self.new_file()?;
        // A compressed block of twice the size takes about as long to read, and compresses better.
        let blocks = if codec == Codec::None { 1 } else { 2 };
        let block_bytes = blocks * self.env().options.block_bytes;
        let options = SstOptions { block_bytes, codec, seed: self.env().seed };
        let fs = self.env().meter.count(&self.env().options.fs, cause);
        SstWriter::create(fs, &self.env().dir, number, id, options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retention(snapshots: &[u64], dead: Vec<TableId>, older: bool) -> Retention<'static> {
        let none = (&RangeTombstones::default(), &Span::all());
        Retention::new(Horizon::new(snapshots, 100), dead, none, move |_| older)
    }

    /// Checks retention for versions of one key, given from new to old: exactly the versions with
    /// the Seqs in `kept` must be kept.
    #[track_caller]
    fn check(snapshots: &[u64], older: bool, entries: &[(u64, Kind)], kept: &[u64]) {
        let mut retention = retention(snapshots, Vec::new(), older);
        let keeps =
            |(seq, kind): &(u64, Kind)| retention.keeps(b"key", Seq(*seq), *kind).then_some(*seq);
        let got: Vec<u64> = entries.iter().filter_map(keeps).collect();
        assert_eq!(got, kept);
    }

    #[test]
    fn only_the_newest_version_is_kept_without_snapshots() {
        check(&[], false, &[(30, Kind::Put), (20, Kind::Delete), (10, Kind::Put)], &[30]);
    }

    #[test]
    fn trap_14_a_tombstone_stays_while_an_older_source_may_hold_its_key() {
        check(&[], true, &[(30, Kind::Delete), (10, Kind::Put)], &[30]);
        check(&[], false, &[(30, Kind::Delete), (10, Kind::Put)], &[]);
    }

    #[test]
    fn trap_14_a_tombstone_stays_while_a_snapshot_reads_below_it() {
        check(&[10], false, &[(30, Kind::Delete), (10, Kind::Put)], &[30, 10]);
        check(&[29], false, &[(30, Kind::Delete), (10, Kind::Put)], &[30, 10]);
        check(&[30], false, &[(30, Kind::Delete), (10, Kind::Put)], &[]);
    }

    #[test]
    fn trap_15_each_snapshot_keeps_its_version() {
        let versions = [(50, Kind::Put), (40, Kind::Put), (30, Kind::Put), (20, Kind::Put)];
        check(&[35, 45], false, &versions, &[50, 40, 30]);
        check(&[20], false, &versions, &[50, 20]);
        check(&[19], false, &versions, &[50]);
    }

    #[test]
    fn rows_of_dropped_tables_are_removed() {
        let dead = crate::format::key::user_key(TableId(7), "p", "r");
        let alive = crate::format::key::user_key(TableId(8), "p", "r");
        let mut retention = retention(&[], vec![TableId(7)], true);
        assert!(!retention.keeps(&dead, Seq(10), Kind::Put));
        assert!(retention.keeps(&alive, Seq(10), Kind::Put));
    }
}

//! The active log and its buffer. Records are appended in memory; commit groups write and sync
//! them.
//!
//! Invariants
//! * if there is no space for a commit, it is refused before any byte of its record is queued;
//! * a sync of a log follows the syncs of all older logs that have unsynced bytes;
//! * no record follows the closing record.
//!
//! Locks: the commit lock guards all of a [`LogQueue`]; writes and syncs run without it.
//! Not here: the commit path (`commit`), the next log (`wal_switch`), the leader (`group_commit`).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::error::{Error, ErrorKind, Result};
use crate::format::Kind;
use crate::format::names::FileNumber;
use crate::format::record::{self, Position, RECORD_HEADER_BYTES, RecordKind};
use crate::format::shape::encode_shape;
use crate::format::wal::{self, Predecessor, ShapeDefinition, WalEntry};
use crate::log::LogFile;
use crate::memtable::NewEntry;
use crate::model::{Seq, ShapeId, Shapes};
use crate::mutants::mutant;
use crate::options::{Durability, Options};
use crate::write_accounting::Meter;

use super::batch::{Batch, Op, PackedRow, TableChange};
use super::group_commit::Queue;

/// The largest size of a record without entries, in bytes.
const EMPTY_RECORD_BYTES: u64 = 128;
/// The log space kept free after every commit and every Seq reservation, in bytes. Records of
/// durable offsets and lengths use it only while the closing record still fits. So a full disk
/// never prevents a sync or a close.
const ROOM_BEHIND: u64 = 3 * EMPTY_RECORD_BYTES;
/// The allocation of a log grows by doubling, but by at most this many bytes at a time.
const ALLOCATE_STEP_MAX: u64 = 16 << 20;
/// If the disk has no space for a full step, space is allocated up to the next multiple of this
/// many bytes after the record.
const NEAR_BYTES: u64 = 16 << 10;
/// A buffer is kept for reuse if its capacity is at most this many times the size of a full log
/// buffer.
pub(in crate::lsm) const SPARE_BUFFERS: usize = 4;

/// The Seqs in use when a queue is created.
#[derive(Clone, Copy)]
pub(in crate::lsm) struct LastSeqs {
    /// The last Seq found in the logs and files.
    pub(in crate::lsm) used: Seq,
    /// The last Seq that may have been assigned, including to lost commits.
    pub(in crate::lsm) given_out: Seq,
}

/// Bytes queued for one log. The leader adds the durable offset and checksums, and writes them to
/// `log` at `offset`.
pub(crate) struct Segment {
    log: Arc<LogFile>,
    offset: u64,
    pub(super) bytes: Vec<u8>,
    /// The bytes of keys and rows in `bytes`.
    user_bytes: u64,
}

/// Logs with unsynced bytes, oldest first, and the end of the last commit group taken for each.
type UnsyncedLogs = SmallVec<[(Arc<LogFile>, u64); 1]>;

/// The log's part of the state under the commit lock: the active log and the records queued for it.
pub(crate) struct LogQueue {
    pub(super) log: Arc<LogFile>,
    /// The offset of the next record, after all written and queued bytes.
    pub(super) end: u64,
    pub(super) allocated: u64,
    /// The allocated length of the log that a sync has made durable.
    durable_len: u64,
    /// The greatest durable length that the manifest or a queued record states for the log.
    stated_len: u64,
    /// The value of `allocated` when the background was last signalled to allocate more space; 0
    /// for a new log.
    pub(super) short_of: u64,
    /// The value of `allocated` when a committer was last asked to allocate more space; 0 for a new
    /// log.
    nearly_full_of: u64,
    /// Queued bytes, oldest log first.
    pub(super) segments: SmallVec<[Segment; 1]>,
    /// Logs with bytes that are written but not synced. The end of a concurrent sync removes a log
    /// only if no commit group has written to it since the sync began.
    pub(super) unsynced: UnsyncedLogs,
    /// Bytes of weak commits queued since the last sync was requested, and when the first commit
    /// since then was queued.
    pub(in crate::lsm) undurable: Option<(u64, Duration)>,
    /// The end of the last commit group written, and what the logs contain up to there.
    written_up_to: Extent,
    /// Bytes of weak commits queued since opening, and how many of them are durable.
    weak_queued: u64,
    weak_durable: u64,
    /// The position up to which the logs are durable.
    pub(super) durable: Position,
    /// The largest durable offset that a written record states.
    pub(super) durable_claimed: Position,
    /// The end of the last commit queued.
    pub(in crate::lsm) committed: Position,
    /// For each shape number, true if the active log defines the shape.
    pub(super) shapes: Vec<bool>,
    /// The durable Seq reservation. A greater one is in effect only after the sync of its record.
    pub(in crate::lsm) seq_reservation: Seq,
    pub(super) seq_reservation_queued: Seq,
    /// The next log, prepared in the background.
    pub(super) next: Option<NextLog>,
    /// True if an earlier session wrote the log, so that nothing is appended to it.
    pub(in crate::lsm) is_ended: bool,
    /// Logs without a record. The manifest edit that adds the next log removes them.
    pub(super) unused: Vec<FileNumber>,
    /// True if a commit was queued since the last record without entries, so that another such
    /// record must state the new durable offset.
    pub(super) durable_record_due: bool,
    /// An empty buffer for reuse.
    pub(super) spare: Vec<u8>,
    /// The largest capacity of a buffer that is kept for reuse. Larger buffers are freed.
    pub(in crate::lsm) spare_bytes_max: usize,
    pub(in crate::lsm) closing: Closing,
    /// The last Seq in use, by a queued commit or by rows of ingested files.
    pub(in crate::lsm) last: Seq,
    /// Bytes of written keys and rows that the write accounting does not include yet, and the log
    /// position at which they end.
    pub(super) unaccounted_user: (u64, Position),
    /// Bytes written to logs since opening.
    pub(crate) written: u64,
    /// Log syncs since opening.
    pub(crate) syncs: u64,
    /// Commits since opening.
    pub(crate) commits: u64,
}

/// The progress of closing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::lsm) enum Closing {
    No,
    /// No more commits are accepted.
    Commits,
    /// The closing record is queued. No record follows it.
    Log,
}

/// A log that the manifest names and that has no records yet.
pub(crate) struct NextLog {
    pub(crate) log: Arc<LogFile>,
    pub(crate) allocated: u64,
    /// The end of the manifest after the edit that names the log.
    pub(crate) manifest: Position,
}

/// The contents of the logs up to a position.
#[derive(Clone, Copy, Default)]
struct Extent {
    end: Position,
    /// The last Seq reservation that a record before `end` states.
    seq_reservation: Seq,
    /// Bytes of weak commits before `end`, counted since opening.
    weak_bytes: u64,
}

/// A concurrent sync: the logs to sync, and what is durable afterwards.
pub(crate) struct Syncing {
    logs: UnsyncedLogs,
    extent: Extent,
    durable_len: u64,
}

/// The data that a leader needs to write a commit group.
pub(crate) struct CommitGroup {
    segments: SmallVec<[Segment; 1]>,
    sync: UnsyncedLogs,
    durable_up_to: Position,
    /// The part of the result that is known before writing.
    done: Done,
}

/// The result of writing a commit group.
#[derive(Default)]
pub(crate) struct Done {
    extent: Extent,
    is_sync: bool,
    /// The length of the log in which `extent` ends, if a sync covers that length; otherwise 0.
    durable_len: u64,
    /// The durable offset that the written records state, if any were written.
    durable_claimed: Option<Position>,
    user_bytes: u64,
    written: u64,
    syncs: u64,
    spare: Vec<u8>,
}

/// Returns the error with which every operation fails after a close.
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::InvalidInput, "the database was closed")
}

/// A row to be written: the row of the batch, or the result of a merge.
pub(super) type ResolvedRow<'b> = Cow<'b, PackedRow<'b>>;

/// Returns the memtable entry that `op` writes: its row, or a tombstone.
#[inline]
pub(super) fn new_entry<'r>(op: &'r Op<'_>, row: &'r Option<ResolvedRow<'_>>) -> NewEntry<'r> {
    let (kind, row) = match row {
        Some(row) => (Kind::Put, row.parts()),
        None => (Kind::Delete, [&[][..]; 2]),
    };
    NewEntry { hash: op.hash, key: &op.key, kind, row }
}

/// Encodes the definition of a shape for a log record.
fn encoded_shape(shapes: &Shapes, id: ShapeId) -> Option<(ShapeId, Vec<u8>)> {
    let shape = shapes.get(id)?;
    let mut bytes = Vec::new();
    encode_shape(&mut bytes, shape);
    Some((id, bytes))
}

impl LogQueue {
    /// Creates a queue for a new log, and queues the log's first record, which names `predecessor`.
    pub(crate) fn new(
        next: NextLog,
        predecessor: Option<Predecessor>,
        durable: Position,
        seqs: LastSeqs,
    ) -> Result<Self> {
        let mut queue = Self::at(next.log, LogFile::START, durable, seqs);
        (queue.allocated, queue.stated_len) = (next.allocated, next.allocated);
        queue.append_open(predecessor, next.manifest)?;
        Ok(queue)
    }

    /// Creates a queue after a log of an earlier session, which ends at `end`. The logs are known
    /// to be durable up to `durable`. Nothing is appended to that log, because the first commit
    /// begins a new one. The `unused` logs are removed at that time.
    pub(crate) fn behind(
        log: Arc<LogFile>,
        end: u64,
        durable: Position,
        unused: Vec<FileNumber>,
        seqs: LastSeqs,
    ) -> Self {
        let at = Self::at(log, end, durable, seqs);
        let end = at.position();
        let written_up_to = Extent { end, ..Extent::default() };
        Self { is_ended: true, committed: end, written_up_to, unused, ..at }
    }

    fn at(log: Arc<LogFile>, end: u64, durable: Position, seqs: LastSeqs) -> Self {
        Self {
            log,
            end,
            allocated: 0,
            durable_len: 0,
            stated_len: 0,
            short_of: 0,
            nearly_full_of: 0,
            segments: SmallVec::new(),
            unsynced: SmallVec::new(),
            undurable: None,
            written_up_to: Extent { end: durable, ..Extent::default() },
            weak_queued: 0,
            weak_durable: 0,
            durable,
            // The first log of a database has no durable offset to state.
            durable_claimed: if durable.offset == 0 { durable } else { Position::default() },
            committed: durable,
            shapes: Vec::new(),
            seq_reservation: Seq::ZERO,
            // Seqs up to this one may have been observed, even if their commits were lost.
            seq_reservation_queued: seqs.given_out,
            next: None,
            is_ended: false,
            unused: Vec::new(),
            durable_record_due: false,
            spare: Vec::new(),
            spare_bytes_max: 0,
            closing: Closing::No,
            last: seqs.used,
            unaccounted_user: (0, Position::default()),
            written: 0,
            syncs: 0,
            commits: 0,
        }
    }

    /// Returns an error if closing has progressed beyond `allowed`.
    pub(super) fn check_open(&self, allowed: Closing) -> Result<()> {
        if self.closing > allowed { Err(closed()) } else { Ok(()) }
    }

    pub(in crate::lsm) fn position(&self) -> Position {
        Position { file: self.log.header().number, offset: self.end }
    }

    pub(super) fn queued_bytes(&self) -> usize {
        self.segments.iter().map(|segment| segment.bytes.len()).sum()
    }

    /// True if the logs of earlier sessions have records that may exist only in the page cache.
    pub(in crate::lsm) fn is_unconfirmed(&self) -> bool {
        self.is_ended && self.durable < self.position()
    }

    /// Records that the logs of earlier sessions are durable.
    pub(super) fn confirmed(&mut self) {
        if self.is_ended {
            self.durable = self.position();
        }
    }

    /// Makes `next` the active log. Its first record states where the old log ends.
    pub(super) fn switch_to(&mut self, next: NextLog) -> Result<()> {
        let header = self.log.header();
        debug_assert!(next.log.header().number > header.number, "logs are numbered in order");
        debug_assert!(self.closing < Closing::Log, "no log follows the closing record");
        debug_assert!(!self.is_unconfirmed(), "no record depends on one that is not durable");
        let predecessor =
            Predecessor { number: header.number, id: header.id, accepted_end: self.end };
        self.log = next.log;
        self.is_ended = false;
        self.end = LogFile::START;
        (self.allocated, self.short_of, self.nearly_full_of) = (next.allocated, 0, 0);
        (self.durable_len, self.stated_len) = (0, next.allocated);
        self.shapes.clear();
        self.append_open(Some(predecessor), next.manifest)
    }

    fn append_open(&mut self, predecessor: Option<Predecessor>, manifest: Position) -> Result<()> {
        // State the last Seq in use, not the last one assigned, so that change feeds that have read
        // up to the last Seq in use can continue with this log.
        let last = self.last;
        self.append_empty(RecordKind::Open, last, |out| {
            wal::Open { predecessor, manifest }.encode(out);
        })?;
        // Repeat the Seq reservation, because the log that first stated it may be removed.
        let (durable, queued) = (self.seq_reservation, self.seq_reservation_queued);
        debug_assert!(durable <= queued, "a durable reservation was queued before");
        let seq_reservation = self.seq_reservation.max(self.seq_reservation_queued);
        if seq_reservation > Seq::ZERO {
            self.append_durable_record(last, seq_reservation)
        } else {
            Ok(())
        }
    }

    fn append_durable_record(&mut self, last: Seq, seq_reservation: Seq) -> Result<()> {
        let len = (self.durable_len > self.stated_len).then_some(self.durable_len);
        self.append_empty(RecordKind::DurableUpTo, last, |out| {
            wal::DurableUpTo { seq_reservation, len }.encode(out);
        })?;
        self.stated_len = len.unwrap_or(self.stated_len);
        if mutant!("early-reservation") {
            self.seq_reservation = self.seq_reservation.max(seq_reservation);
        }
        self.seq_reservation_queued = self.seq_reservation_queued.max(seq_reservation);
        Ok(())
    }

    /// Queues a record with a higher Seq reservation. No commit need follow, so this keeps as much
    /// space free as a commit does.
    pub(super) fn append_seq_reservation(&mut self, last: Seq, seq_reservation: Seq) -> Result<()> {
        self.reserve_to(self.end + EMPTY_RECORD_BYTES + ROOM_BEHIND)?;
        self.append_durable_record(last, seq_reservation)
    }

    /// Queues the record of the batch and returns its length in bytes.
    pub(super) fn append(
        &mut self,
        registry: &Shapes,
        batch: &Batch<'_>,
        rows: &[Option<ResolvedRow<'_>>],
        seq: Seq,
    ) -> Result<u64> {
        debug_assert_eq!(batch.ops.len(), rows.len(), "each operation has its row");
        debug_assert!(!self.is_ended, "a log of an earlier session takes no commit");
        debug_assert!(seq > self.last, "Seqs of commits grow");
        let kind = if batch.changes.is_empty() { RecordKind::Group } else { RecordKind::Catalog };
        let new_shapes = self.new_shapes(rows);
        let defined: Vec<_> =
            new_shapes.iter().filter_map(|id| encoded_shape(registry, *id)).collect();
        let user_bytes = batch.ops.iter().map(|op| op.key.len()).sum::<usize>()
            + rows.iter().flatten().map(|row| row.len()).sum::<usize>();
        let payload = user_bytes
            + 12 * batch.ops.len()
            + defined.iter().map(|(_, shape)| shape.len() + 12).sum::<usize>();
        let changes: usize = batch.changes.iter().map(TableChange::bytes_max).sum();
        self.reserve((payload + 64 + changes) as u64)?;
        let changes: Vec<_> = batch.changes.iter().map(TableChange::logged).collect();
        let before = self.end;
        self.append_record(kind, seq, |out| {
            let shapes = defined.iter().map(|(id, shape)| ShapeDefinition { number: id.0, shape });
            let (prefix, len) = match batch.ops.first() {
                Some(op) => (&op.key[..batch.prefix_len], batch.prefix_len),
                None => (&[][..], 0),
            };
            let entries = batch.ops.iter().zip(rows).map(|(op, row)| {
                let NewEntry { key, kind, row: [head, row], .. } = new_entry(op, row);
                WalEntry { kind, key_suffix: &key[len..], head, row }
            });
            wal::put_group(out, shapes, prefix, entries, &changes);
        })?;
        self.last = seq;
        if let Some(segment) = self.segments.last_mut() {
            segment.user_bytes += user_bytes as u64;
        }
        for id in new_shapes {
            self.shapes[id.0 as usize] = true;
        }
        self.committed = self.position();
        Ok(self.end - before)
    }

    /// Returns the shapes of `rows` that this log does not define yet.
    fn new_shapes(&mut self, rows: &[Option<ResolvedRow<'_>>]) -> Vec<ShapeId> {
        let mut new = Vec::new();
        for id in rows.iter().flatten().filter_map(|row| row.shape) {
            let index = id.0 as usize;
            if index >= self.shapes.len() {
                self.shapes.resize(index + 1, false);
            }
            if !self.shapes[index] && !new.contains(&id) {
                new.push(id);
            }
        }
        new
    }

    /// Queues a record without entries.
    pub(super) fn append_empty(
        &mut self,
        kind: RecordKind,
        seq: Seq,
        payload: impl FnOnce(&mut Vec<u8>),
    ) -> Result<()> {
        self.reserve_to(self.end + EMPTY_RECORD_BYTES)?;
        self.append_record(kind, seq, payload)
    }

    /// Queues a record. The space for it must already be allocated.
    fn append_record(
        &mut self,
        kind: RecordKind,
        seq: Seq,
        payload: impl FnOnce(&mut Vec<u8>),
    ) -> Result<()> {
        let offset = self.end;
        let last = self.segments.last_mut().filter(|last| Arc::ptr_eq(&last.log, &self.log));
        let (first, is_known) = (last.as_ref().map_or(offset, |last| last.offset), last.is_some());
        let bytes = last.map_or(&mut self.spare, |last| &mut last.bytes);
        debug_assert_eq!(first + bytes.len() as u64, offset, "queued records are contiguous");
        let start = record::begin(bytes, kind, seq);
        payload(bytes);
        if let Err(error) = record::end(bytes, start) {
            self.spare.shrink_to(self.spare_bytes_max);
            return Err(error);
        }
        self.end += (bytes.len() - start) as u64;
        // Add a segment only now that it has a record, because writing a segment states a durable
        // offset.
        if !is_known {
            let (log, bytes) = (Arc::clone(&self.log), std::mem::take(&mut self.spare));
            self.segments.push(Segment { log, offset, bytes, user_bytes: 0 });
        }
        debug_assert!(self.end <= self.allocated, "records fit what is allocated");
        Ok(())
    }

    /// True if at least three quarters of the allocation are used.
    pub(super) fn is_short(&self) -> bool {
        self.end + self.allocated / 4 >= self.allocated
    }

    /// Returns true, once for each allocation, if the background has not allocated more space
    /// although at least seven eighths of the allocation are used.
    pub(super) fn becomes_nearly_full(&mut self) -> bool {
        let is_nearly_full = self.end + self.allocated / 8 >= self.allocated;
        let is_news = is_nearly_full && self.nearly_full_of < self.allocated;
        if is_news {
            self.nearly_full_of = self.allocated;
        }
        is_news
    }

    /// Counts a commit. Returns true if the background must be signalled, because a background sync
    /// is needed (now or later) or because the allocated space runs short.
    pub(super) fn record_commit(
        &mut self,
        weak_bytes: u64,
        now: Duration,
        options: &Options,
    ) -> bool {
        self.commits += 1;
        self.durable_record_due = true;
        let (before, since) = self.undurable.unwrap_or((0, now));
        let after = before + weak_bytes;
        self.weak_queued += weak_bytes;
        self.undurable = Some((after, since));
        let is_full = |bytes: u64| bytes >= options.weak_sync_bytes;
        let must_sync = weak_bytes > 0 && (before == 0 || is_full(after) && !is_full(before));
        // Signal once for each allocation. The background then allocates ahead, so that committers
        // do not have to allocate.
        let is_short = self.is_short() && self.short_of < self.allocated;
        if is_short {
            self.short_of = self.allocated;
        }
        must_sync || is_short
    }

    /// Returns the bytes of weak commits that are not durable.
    pub(in crate::lsm) fn unsynced_bytes(&self) -> u64 {
        self.weak_queued.saturating_sub(self.weak_durable)
    }

    /// Returns the position up to which the logs are durable, or `None` if a written record states
    /// this position already, or states that all commits are durable.
    pub(in crate::lsm) fn durable_unclaimed(&self) -> Option<Position> {
        let is_claimed_durable =
            self.committed <= self.durable_claimed || self.durable <= self.durable_claimed;
        (!is_claimed_durable).then_some(self.durable)
    }

    /// True if all commits are durable, and a written record states this.
    pub(super) fn is_all_claimed_durable(&self) -> bool {
        self.segments.is_empty() && self.committed <= self.durable_claimed
    }

    /// Allocates enough log space for a record with a payload of `payload` bytes, and for
    /// `ROOM_BEHIND` more bytes.
    pub(super) fn reserve(&mut self, payload: u64) -> Result<()> {
        self.reserve_to(self.end + RECORD_HEADER_BYTES as u64 + payload + 8 + ROOM_BEHIND)
    }

    pub(super) fn reserve_to(&mut self, want: u64) -> Result<()> {
        if want > self.allocated {
            let len = next_allocation(self.allocated, want);
            self.allocated = self.allocate(want, len)?;
        }
        Ok(())
    }

    /// Allocates up to `ahead` or, if space is short, less but at least up to `want`. Returns the
    /// new end.
    fn allocate(&self, want: u64, ahead: u64) -> Result<u64> {
        debug_assert!(want <= ahead, "an allocation ahead covers what is needed");
        // A nearly full disk may still have space for this record, which the space limit has
        // admitted. Try to cover the next few records too.
        let near = want.next_multiple_of(NEAR_BYTES).min(ahead);
        let is_full = |error: &Error| error.kind() == ErrorKind::StorageFull;
        let mut allocated = self.log.allocate_ahead(ahead).map(|()| ahead);
        for len in [near, want] {
            if !allocated.as_ref().is_err_and(is_full) {
                break;
            }
            allocated = self.log.allocate(len).map(|()| len);
        }
        allocated
    }

    /// Returns the allocated length of the active log, if it is one of `logs`; otherwise 0.
    fn len_covered_by(&self, logs: &UnsyncedLogs) -> u64 {
        let is_covered = logs.last().is_some_and(|(log, _)| Arc::ptr_eq(log, &self.log));
        if is_covered { self.allocated } else { 0 }
    }

    /// Records that the logs are durable up to the end of `extent`, and that the log in which it
    /// ends has the durable length `len`. Returns true if it queued a record that must be written
    /// immediately.
    fn became_durable(&mut self, extent: Extent, len: u64) -> bool {
        debug_assert!(self.durable <= extent.end, "the durable offset only rises");
        debug_assert!(self.durable_claimed <= self.durable, "records claim what is durable");
        self.durable = extent.end;
        self.seq_reservation = self.seq_reservation.max(extent.seq_reservation);
        self.weak_durable = extent.weak_bytes;
        if extent.end.file == self.log.header().number {
            self.durable_len = self.durable_len.max(len);
        }
        let is_all = self.committed <= self.durable;
        if is_all {
            self.undurable = None;
        }
        let is_idle = self.segments.is_empty();
        let is_longer = self.durable_len > self.stated_len && self.closing < Closing::Log;
        let is_due = is_longer || is_idle && self.durable_record_due;
        // Keep space for the closing record.
        if !is_due || self.end + 2 * EMPTY_RECORD_BYTES > self.allocated {
            return false;
        }
        // Append an empty record, which need not be synced, to state the durable offset and the
        // durable length. Recovery that finds this record reports corruption if bytes that were
        // just synced are missing. Queued commits are written before this record.
        self.durable_record_due &= !(is_idle && is_all);
        self.append_durable_record(self.last, self.seq_reservation).is_ok() && is_idle
    }

    /// Frees the preallocated space. Nothing may be appended afterwards.
    pub(in crate::lsm) fn trim(&self) {
        if !self.is_ended && self.segments.is_empty() {
            self.log.trim(self.end);
        }
    }

    /// Moves the count of written user bytes into the write accounting.
    pub(in crate::lsm) fn account_user_bytes(&mut self, meter: &Meter) {
        let (bytes, end) = self.unaccounted_user;
        self.unaccounted_user = (0, end);
        meter.record_user(bytes, end);
    }

    /// Returns the memory used by the queue's buffers, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let queued = self.segments.iter().map(|segment| segment.bytes.capacity());
        queued.sum::<usize>() + self.spare.capacity()
    }
}

impl Queue for LogQueue {
    type CommitGroup = CommitGroup;
    type Done = Done;
    type Syncing = Syncing;

    fn take(&mut self, need: Durability) -> CommitGroup {
        let is_sync = need == Durability::Sync;
        let segments = std::mem::take(&mut self.segments);
        for segment in &segments {
            let end = segment.offset + segment.bytes.len() as u64;
            match self.unsynced.last_mut() {
                Some((log, known)) if Arc::ptr_eq(log, &segment.log) => *known = end,
                _ => self.unsynced.push((Arc::clone(&segment.log), end)),
            }
        }
        let in_order = |logs: &UnsyncedLogs| logs.is_sorted_by_key(|(log, _)| log.header().number);
        debug_assert!(in_order(&self.unsynced), "logs are written and synced oldest first");
        let mut sync = if is_sync { std::mem::take(&mut self.unsynced) } else { SmallVec::new() };
        if mutant!("unsynced-old-logs") {
            sync.retain(|(log, _)| Arc::ptr_eq(log, &self.log));
        }
        if is_sync {
            self.undurable = None;
        }
        let durable_up_to = self.durable;
        let extent = Extent {
            end: self.position(),
            seq_reservation: self.seq_reservation_queued,
            weak_bytes: self.weak_queued,
        };
        let done = Done {
            durable_len: self.len_covered_by(&sync),
            extent,
            is_sync,
            durable_claimed: (!segments.is_empty()).then_some(durable_up_to),
            ..Done::default()
        };
        CommitGroup { segments, sync, durable_up_to, done }
    }

    fn carry_out(group: CommitGroup) -> Result<Done> {
        let CommitGroup { segments, sync, durable_up_to, mut done } = group;
        for mut segment in segments {
            let header = segment.log.header();
            let at = Position { file: header.number, offset: segment.offset };
            record::seal(&mut segment.bytes, at, header.id, durable_up_to);
            segment.log.write_at(segment.offset, &segment.bytes)?;
            done.written += segment.bytes.len() as u64;
            done.user_bytes += segment.user_bytes;
            segment.bytes.clear();
            done.spare = segment.bytes;
        }
        for (log, _) in sync.iter().filter(|_| !mutant!("unsynced-log")) {
            log.sync()?;
            done.syncs += 1;
        }
        Ok(done)
    }

    fn finished(&mut self, done: Done) -> bool {
        let end = done.extent.end;
        debug_assert!(self.unaccounted_user.1 <= end, "commit groups end in order");
        self.unaccounted_user = (self.unaccounted_user.0 + done.user_bytes, end);
        self.written_up_to = done.extent;
        self.written += done.written;
        self.syncs += done.syncs;
        self.durable_claimed = self.durable_claimed.max(done.durable_claimed.unwrap_or_default());
        if done.spare.capacity() > self.spare.capacity()
            && done.spare.capacity() <= self.spare_bytes_max
        {
            self.spare = done.spare;
        }
        (done.is_sync || mutant!("early-durable"))
            && self.became_durable(done.extent, done.durable_len)
    }

    fn end(&self) -> Position {
        self.position()
    }

    fn durable(&self) -> Position {
        self.durable
    }

    fn begin_sync(&self) -> Syncing {
        let extent = self.written_up_to;
        // A later log has no bytes yet of a finished commit group.
        let mut logs = self.unsynced.clone();
        logs.retain(|(log, _)| log.header().number <= extent.end.file);
        debug_assert!(!logs.is_empty(), "bytes that are not durable are in an unsynced log");
        if mutant!("unsynced-old-logs") {
            logs.retain(|(log, _)| Arc::ptr_eq(log, &self.log));
        }
        let is_active = extent.end.file == self.log.header().number;
        let durable_len = if is_active { self.len_covered_by(&logs) } else { 0 };
        Syncing { logs, extent, durable_len }
    }

    fn sync(syncing: &Syncing) -> Result<()> {
        let mut logs = syncing.logs.iter().filter(|_| !mutant!("unsynced-log"));
        logs.try_for_each(|(log, _)| log.sync())
    }

    fn synced(&mut self, syncing: Syncing) {
        let Syncing { logs, mut extent, durable_len } = syncing;
        self.syncs += logs.len() as u64;
        if mutant!("sync-later-writes") {
            extent = self.written_up_to;
        }
        self.unsynced.retain(|(log, end)| {
            let end = if mutant!("forget-log") { 0 } else { *end };
            extent.end < Position { file: log.header().number, offset: end }
        });
        self.became_durable(extent, durable_len);
    }
}

/// Doubles the allocation, but adds at most 16 MiB at a time, until `want` fits.
pub(super) fn next_allocation(allocated: u64, want: u64) -> u64 {
    let mut len = allocated.max(4096);
    while len <= want {
        len += len.min(ALLOCATE_STEP_MAX);
    }
    len
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::format::key::user_key;
    use crate::format::names::TableId;
    use crate::format::span::Span;
    use crate::fs::MemFs;
    use crate::lsm::write::batch::Gate;
    use crate::options::Background;

    #[test]
    fn an_append_that_is_too_large_leaves_no_segment() {
        let options = Options::default().fs(Arc::new(MemFs::new()));
        let engine =
            crate::lsm::open("db".as_ref(), options.background(Background::Manual)).unwrap();
        let group_commit = &engine.writer().group_commit;
        group_commit.flush(Durability::Buffered).unwrap();
        assert!(group_commit.lock().queue.segments.is_empty());
        let spans = (0..2_500).map(|i| {
            let key = |end| user_key(TableId(7), &format!("{i:04}{}", "x".repeat(4_000)), end);
            TableChange::Fenced(Span::new(&key("a"), Some(&key("b"))))
        });
        let batch = Batch::of_changes(&Arc::new(Gate::new(TableId(7))), spans.collect());
        let refused = engine.commit(&batch, Durability::Buffered).unwrap_err();
        assert_eq!(refused.code(), "RequestBodyTooLarge");
        let queue = &group_commit.lock().queue;
        assert!(queue.segments.is_empty() && queue.spare.capacity() <= queue.spare_bytes_max);
    }
}

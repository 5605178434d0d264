//! The active log and what is queued for it: records are appended in memory, and a commit group writes and syncs them.
//!
//! Invariants
//! * running out of space is found before a byte of a record is queued, and refuses only this commit;
//! * a `Sync` commit group syncs every older log that has unsynced bytes before its own;
//! * nothing follows the closing record.
//!
//! Locks: the commit lock guards all of a [`LogQueue`]; [`Queue::carry_out`] runs without it.
//!
//! Not here: what is committed (`commit`), the next log (`wal_switch`), who writes (`group_commit`).

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

/// The most that a record without entries takes.
const EMPTY_RECORD_BYTES: u64 = 128;
/// Kept free behind every commit, so that a full disk keeps nobody from syncing and closing.
const ROOM_BEHIND: u64 = 2 * EMPTY_RECORD_BYTES;
/// Space is reserved in doubling steps up to this.
const ALLOCATE_STEP_MAX: u64 = 16 << 20;
/// Where there is no space for such a step, for this much more at least.
const NEAR_BYTES: u64 = 16 << 10;
/// A buffer that is kept may be as long as so many full ones.
pub(in crate::lsm) const SPARE_BUFFERS: usize = 4;

/// Where numbers of commits have come to when a queue begins.
#[derive(Clone, Copy)]
pub(in crate::lsm) struct LastSeqs {
    /// The last that something has which is left.
    pub(in crate::lsm) used: Seq,
    /// Up to here they may have been given out.
    pub(in crate::lsm) given_out: Seq,
}

/// Sealed by a leader and written at `offset` of `log`.
pub(crate) struct Segment {
    log: Arc<LogFile>,
    offset: u64,
    pub(super) bytes: Vec<u8>,
    /// Keys and rows in it.
    user_bytes: u64,
}

/// What the commit lock guards besides the commit group: the active log and what is queued for it.
pub(crate) struct LogQueue {
    pub(super) log: Arc<LogFile>,
    /// Where the next record goes: written and queued bytes together.
    pub(super) end: u64,
    pub(super) allocated: u64,
    /// The background was told that this much is nearly used; 0 for a new log.
    pub(super) short_of: u64,
    /// To be written, oldest log first.
    pub(super) segments: SmallVec<[Segment; 1]>,
    /// Logs with bytes that were written and not synced, oldest first.
    pub(super) unsynced: SmallVec<[Arc<LogFile>; 1]>,
    /// Bytes of weak commits since the last sync, and since when any commit was queued.
    pub(super) undurable: Option<(u64, Duration)>,
    /// The log is durable up to here.
    pub(super) durable: Position,
    /// Some record that was written says so up to here.
    pub(super) durable_claimed: Position,
    /// Where the last commit ends that was queued.
    pub(in crate::lsm) committed: Position,
    /// By number: shapes that the active log defines.
    pub(super) shapes: Vec<bool>,
    pub(super) seq_reservation: Seq,
    pub(super) seq_reservation_queued: Seq,
    /// The next log, prepared in the background.
    pub(super) next: Option<NextLog>,
    /// The log is one of an earlier opening, closed in order: nothing is appended to it.
    pub(in crate::lsm) is_ended: bool,
    /// Logs without a record, which the next one's edit forgets.
    pub(super) unused: Vec<FileNumber>,
    /// A commit was queued since the last empty record.
    pub(super) durable_record_due: bool,
    /// An empty buffer to fill next.
    pub(super) spare: Vec<u8>,
    /// One that has grown beyond this is given back.
    pub(in crate::lsm) spare_bytes_max: usize,
    pub(in crate::lsm) closing: Closing,
    /// The last Seq that something has: of a commit that was queued, or of rows that came in as files.
    pub(in crate::lsm) last: Seq,
    /// Keys and rows that were written and that the account does not have yet, and where the logs ended behind them.
    pub(super) unaccounted_user: (u64, Position),
    /// Bytes handed to the file system for logs, since opening.
    pub(crate) written: u64,
    /// Log syncs since opening.
    pub(crate) syncs: u64,
    /// Commits since opening.
    pub(crate) commits: u64,
}

/// How far closing has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::lsm) enum Closing {
    No,
    /// No commit enters any more.
    Commits,
    /// The closing record is queued: nothing follows it.
    Log,
}

/// A log that is named in the manifest and holds no record yet.
pub(crate) struct NextLog {
    pub(crate) log: Arc<LogFile>,
    pub(crate) allocated: u64,
    /// The manifest as of its naming.
    pub(crate) manifest: Position,
}

/// Everything a leader needs.
pub(crate) struct CommitGroup {
    segments: SmallVec<[Segment; 1]>,
    sync: SmallVec<[Arc<LogFile>; 1]>,
    durable_up_to: Position,
    /// What is known before.
    done: Done,
}

/// What a commit group came to.
#[derive(Default)]
pub(crate) struct Done {
    end: Position,
    seq_reservation: Seq,
    is_sync: bool,
    /// What the records that were written promise.
    durable_claimed: Option<Position>,
    user_bytes: u64,
    written: u64,
    syncs: u64,
    spare: Vec<u8>,
}

/// What everybody is answered after a close.
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::InvalidInput, "the database was closed")
}

/// A row to be written: the caller's, or one that a merge made.
pub(super) type ResolvedRow<'b> = Cow<'b, PackedRow<'b>>;

/// What `op` writes: its row, or a tombstone.
#[inline]
pub(super) fn new_entry<'r>(op: &'r Op<'_>, row: &'r Option<ResolvedRow<'_>>) -> NewEntry<'r> {
    let (kind, row) = match row {
        Some(row) => (Kind::Put, row.parts()),
        None => (Kind::Delete, [&[][..]; 2]),
    };
    NewEntry { hash: op.hash, key: &op.key, kind, row }
}

/// A shape as the log defines it.
fn encoded_shape(shapes: &Shapes, id: ShapeId) -> Option<(ShapeId, Vec<u8>)> {
    let shape = shapes.get(id)?;
    let mut bytes = Vec::new();
    encode_shape(&mut bytes, shape);
    Some((id, bytes))
}

impl LogQueue {
    /// A queue whose first record, which names `predecessor`, is queued.
    pub(crate) fn new(
        next: NextLog,
        predecessor: Option<Predecessor>,
        durable: Position,
        seqs: LastSeqs,
    ) -> Result<Self> {
        let mut queue = Self::at(next.log, LogFile::START, durable, seqs);
        queue.allocated = next.allocated;
        queue.append_open(predecessor, next.manifest)?;
        Ok(queue)
    }

    /// A queue behind a log that was closed in order at `end`, where nothing follows: the first commit goes to a new one.
    /// `unused` are logs that go then.
    pub(crate) fn behind(
        log: Arc<LogFile>,
        end: u64,
        unused: Vec<FileNumber>,
        seqs: LastSeqs,
    ) -> Self {
        let durable = Position { file: log.header().number, offset: end };
        Self { is_ended: true, unused, ..Self::at(log, end, durable, seqs) }
    }

    fn at(log: Arc<LogFile>, end: u64, durable: Position, seqs: LastSeqs) -> Self {
        Self {
            log,
            end,
            allocated: 0,
            short_of: 0,
            segments: SmallVec::new(),
            unsynced: SmallVec::new(),
            undurable: None,
            durable,
            // Of a database's first log nothing needs a promise.
            durable_claimed: if durable.offset == 0 { durable } else { Position::default() },
            committed: durable,
            shapes: Vec::new(),
            seq_reservation: Seq::ZERO,
            // Numbers up to here may have been seen although no commit that is left has them.
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

    /// Refuses once closing has come further than `allowed`.
    pub(super) fn check_open(&self, allowed: Closing) -> Result<()> {
        if self.closing > allowed { Err(closed()) } else { Ok(()) }
    }

    pub(in crate::lsm) fn position(&self) -> Position {
        Position { file: self.log.header().number, offset: self.end }
    }

    pub(super) fn queued_bytes(&self) -> usize {
        self.segments.iter().map(|segment| segment.bytes.len()).sum()
    }

    /// Goes on in `next`, whose first record says where this log ends.
    pub(super) fn switch_to(&mut self, next: NextLog) -> Result<()> {
        let header = self.log.header();
        let predecessor =
            Predecessor { number: header.number, id: header.id, accepted_end: self.end };
        self.log = next.log;
        self.is_ended = false;
        self.end = LogFile::START;
        (self.allocated, self.short_of) = (next.allocated, 0);
        self.shapes.clear();
        self.append_open(Some(predecessor), next.manifest)
    }

    fn append_open(&mut self, predecessor: Option<Predecessor>, manifest: Position) -> Result<()> {
        // Not what was only given out: whoever has seen the last there is can go on with this log.
        let last = self.last;
        self.append_empty(RecordKind::Open, last, |out| {
            wal::Open { predecessor, manifest }.encode(out);
        })?;
        // The seq reservation must outlive the log that first named it.
        let seq_reservation = self.seq_reservation.max(self.seq_reservation_queued);
        if seq_reservation > Seq::ZERO {
            self.append_durable_record(last, seq_reservation)
        } else {
            Ok(())
        }
    }

    pub(super) fn append_durable_record(&mut self, last: Seq, seq_reservation: Seq) -> Result<()> {
        self.append_empty(RecordKind::DurableUpTo, last, |out| {
            wal::DurableUpTo { seq_reservation }.encode(out);
        })?;
        self.seq_reservation_queued = self.seq_reservation_queued.max(seq_reservation);
        Ok(())
    }

    /// Queues the batch's record; returns its length.
    pub(super) fn append(
        &mut self,
        registry: &Shapes,
        batch: &Batch<'_>,
        rows: &[Option<ResolvedRow<'_>>],
        seq: Seq,
    ) -> Result<u64> {
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
        self.last = seq;
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
        if let Some(segment) = self.segments.last_mut() {
            segment.user_bytes += user_bytes as u64;
        }
        for id in new_shapes {
            self.shapes[id.0 as usize] = true;
        }
        self.committed = self.position();
        Ok(self.end - before)
    }

    /// The shapes of `rows` that this log does not define yet.
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

    /// Queues a record that there is room for.
    fn append_record(
        &mut self,
        kind: RecordKind,
        seq: Seq,
        payload: impl FnOnce(&mut Vec<u8>),
    ) -> Result<()> {
        let offset = self.end;
        let known = self.segments.last().is_some_and(|last| Arc::ptr_eq(&last.log, &self.log));
        if !known {
            let bytes = std::mem::take(&mut self.spare);
            let log = Arc::clone(&self.log);
            self.segments.push(Segment { log, offset, bytes, user_bytes: 0 });
        }
        let Some(segment) = self.segments.last_mut() else { return Ok(()) };
        let start = record::begin(&mut segment.bytes, kind, seq);
        payload(&mut segment.bytes);
        record::end(&mut segment.bytes, start)?;
        self.end += (segment.bytes.len() - start) as u64;
        Ok(())
    }

    /// True if three quarters of what is allocated are used.
    pub(super) fn is_short(&self) -> bool {
        self.end + self.allocated / 4 >= self.allocated
    }

    /// True if the background must learn of it: its sync has something to do from now on, or at once, or space runs short.
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
        self.undurable = Some((after, since));
        let is_full = |bytes: u64| bytes >= options.weak_sync_bytes;
        let must_sync = weak_bytes > 0 && (before == 0 || is_full(after) && !is_full(before));
        // Once for what is allocated: space is reserved ahead, not by the commit that needs it.
        let is_short = self.is_short() && self.short_of < self.allocated;
        if is_short {
            self.short_of = self.allocated;
        }
        must_sync || is_short
    }

    /// Up to where the logs are durable, if no record of theirs says so yet of some commit.
    pub(in crate::lsm) fn durable_unclaimed(&self) -> Option<Position> {
        let is_claimed_durable =
            self.committed <= self.durable_claimed || self.durable <= self.durable_claimed;
        (!is_claimed_durable).then_some(self.durable)
    }

    /// Makes sure that a commit with `payload` bytes, and empty records behind it, fit what is allocated.
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

    /// Allocates up to `ahead`, or as far as there is space, at least up to `want`; returns where to.
    fn allocate(&self, want: u64, ahead: u64) -> Result<u64> {
        // A nearly full disk may still hold this one record, and a limit has let it pass; with the next few, if it can.
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

    /// Gives back what was allocated ahead. Requires: nothing is appended any more.
    pub(in crate::lsm) fn trim(&self) {
        if !self.is_ended && self.segments.is_empty() {
            self.log.trim(self.end);
        }
        if let Some(next) = &self.next {
            next.log.trim(LogFile::START);
        }
    }

    /// Moves what users have written into the account.
    pub(in crate::lsm) fn account_user_bytes(&mut self, meter: &Meter) {
        let (bytes, end) = self.unaccounted_user;
        self.unaccounted_user = (0, end);
        meter.record_user(bytes, end);
    }

    /// What its buffers take.
    pub(crate) fn memory_bytes(&self) -> usize {
        let queued = self.segments.iter().map(|segment| segment.bytes.capacity());
        queued.sum::<usize>() + self.spare.capacity()
    }
}

impl Queue for LogQueue {
    type CommitGroup = CommitGroup;
    type Done = Done;

    fn take(&mut self, need: Durability) -> CommitGroup {
        let is_sync = need == Durability::Sync;
        let segments = std::mem::take(&mut self.segments);
        for segment in &segments {
            if !self.unsynced.iter().any(|log| Arc::ptr_eq(log, &segment.log)) {
                self.unsynced.push(Arc::clone(&segment.log));
            }
        }
        let mut sync = if is_sync { std::mem::take(&mut self.unsynced) } else { SmallVec::new() };
        if mutant!("unsynced-old-logs") {
            sync.retain(|log| Arc::ptr_eq(log, &self.log));
        }
        if is_sync {
            self.undurable = None;
        }
        let durable_up_to = self.durable;
        let done = Done {
            end: self.position(),
            seq_reservation: self.seq_reservation_queued,
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
        for log in sync.iter().filter(|_| !mutant!("unsynced-log")) {
            log.sync()?;
            done.syncs += 1;
        }
        Ok(done)
    }

    fn finished(&mut self, done: Done) -> bool {
        self.unaccounted_user = (self.unaccounted_user.0 + done.user_bytes, done.end);
        self.written += done.written;
        self.syncs += done.syncs;
        self.durable_claimed = self.durable_claimed.max(done.durable_claimed.unwrap_or_default());
        if done.spare.capacity() > self.spare.capacity()
            && done.spare.capacity() <= self.spare_bytes_max
        {
            self.spare = done.spare;
        }
        if !done.is_sync && !mutant!("early-durable") {
            return false;
        }
        self.durable = done.end;
        self.seq_reservation = self.seq_reservation.max(done.seq_reservation);
        let idle = self.segments.is_empty() && self.durable_record_due;
        if !idle || self.end + EMPTY_RECORD_BYTES > self.allocated {
            return false;
        }
        // An unsynced empty record tells recovery that what was just synced must be there.
        self.durable_record_due = false;
        self.append_durable_record(self.last, self.seq_reservation).is_ok()
    }
}

/// Doubles what is allocated, in steps of at most 16 MiB, until `want` fits.
pub(super) fn next_allocation(allocated: u64, want: u64) -> u64 {
    let mut len = allocated.max(4096);
    while len <= want {
        len += len.min(ALLOCATE_STEP_MAX);
    }
    len
}

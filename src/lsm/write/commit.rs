//! The way of a write: decided, logged and put into the memtable under a short lock; written, synced and published by
//! its commit group.
//!
//! 1. Outside the lock, the current entries of keys that have a condition are looked up in a pinned view.
//! 2. Under the commit lock the batch gets its Seq. The newest entry of each key in the memtables, published or
//!    not, decides; if there is none, the look-up stands only while every memtable newer than its view is still there.
//! 3. Space in the log is reserved, the record is appended to the buffer, the entries to the memtable.
//! 4. The commit group's leader seals, writes and syncs (`group_commit`), and publishes.
//!
//! Invariants
//! * one log to a memtable that takes writes; a group never spans two records, files or memtables;
//! * running out of space is found before a byte of a record is queued, and refuses only this commit;
//! * a commit weaker than `Sync` takes a number below the durable seq reservation, so that no number is used twice
//!   whatever a power cut takes;
//! * a `Sync` commit group syncs every older log that has unsynced bytes before its own.
//!
//! Locks: `Engine::install` (manifest) before the commit lock before nothing.
//!
//! Not here: commit groups and publication (`group_commit`), what a condition means (`batch`),
//! an insert whose row is not made yet (`insert`), the next log and the last record (`wal_switch`).

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::clock::TICKS_PER_SECOND;
use crate::error::{Code, Error, ErrorKind, Result};
use crate::executor::Lane;
use crate::format::Kind;
use crate::format::names::FileNumber;
use crate::format::record::{self, Position, RecordKind};
use crate::format::wal::{self, Predecessor, ShapeDefinition, WalEntry};
use crate::log::LogFile;
use crate::memtable::NewEntry;
use crate::model::{RowRef, Seq, ShapeId};
use crate::mutants::mutant;
use crate::options::{Durability, Options};
use crate::sync::MutexGuard;

use super::batch::{Action, Batch, Op, PackedRow, TableChange};
use super::group_commit::{Queue, State};
use super::look_up::PreRead;
use super::wal_switch::LastSeqs;
use crate::lsm::background::space_limit::Admitted;
use crate::lsm::read::view::{Current, View};
use crate::lsm::{CommitTicket, Engine, Handle};

/// The most that a record without entries takes.
pub(super) const EMPTY_RECORD_BYTES: u64 = 128;
/// How far the seq reservation of weak commits lies ahead.
pub(super) const SEQ_RESERVATION_TICKS: u64 = 5 * TICKS_PER_SECOND;
/// Weak commits, and tickets that were dropped, wait this long for the background sync.
pub(crate) const WEAK_SYNC_EVERY: Duration = Duration::from_secs(1);

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
    pub(super) committed: Position,
    /// By number: shapes that the active log defines.
    pub(super) shapes: Vec<bool>,
    pub(super) seq_reservation: Seq,
    pub(super) seq_reservation_queued: Seq,
    /// The next log, prepared in the background.
    pub(super) next: Option<NextLog>,
    /// The log is one of an earlier opening, closed in order: nothing is appended to it.
    pub(super) is_ended: bool,
    /// Logs without a record, which the next one's edit forgets.
    pub(super) unused: Vec<FileNumber>,
    /// A commit was queued since the last empty record.
    pub(super) durable_record_due: bool,
    /// An empty buffer to fill next.
    pub(super) spare: Vec<u8>,
    /// One that has grown beyond this is given back.
    pub(super) spare_bytes_max: usize,
    pub(super) closing: Closing,
    /// The last Seq that something has: of a commit that was queued, or of rows that came in as files.
    pub(super) last: Seq,
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
pub(super) enum Closing {
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
    end: Position,
    seq_reservation: Seq,
    is_sync: bool,
}

/// What a commit group came to.
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

/// Why a commit must begin again, outside the lock.
pub(super) enum RetryReason {
    /// The look-up no longer stands.
    LookUp,
    /// No next log is prepared.
    Log,
    /// Too many memtables wait for their flush.
    FrozenMemtables,
    /// Merged with what is there it takes so many bytes, more than were admitted.
    Larger(u64),
    /// The durable seq reservation is too low.
    SeqReservation,
    /// Refused because of a commit that is not published yet: wait for it.
    After(Seq, Error),
    Refused(Error),
}

impl From<Error> for RetryReason {
    fn from(error: Error) -> Self {
        RetryReason::Refused(error)
    }
}

impl Engine {
    /// Commits `batch` and waits until it is as durable as asked. The Seq is the ETag of all it wrote.
    ///
    /// # Errors
    /// The service's code for an unmet condition; `StorageFull` (nothing was written), `Poisoned`, `Io`.
    pub(crate) fn commit(&self, batch: &Batch<'_>, durability: Durability) -> Result<Seq> {
        let seq = self.submit(batch, durability)?;
        self.wait_published(batch, seq)
    }

    fn submit(&self, batch: &Batch<'_>, durability: Durability) -> Result<Seq> {
        self.submit_around(batch, durability, None, || {})
    }

    /// `pre_read`: what a look-up found already. Calls `between` between the look-up and the decision, for tests.
    pub(super) fn submit_around(
        &self,
        batch: &Batch<'_>,
        durability: Durability,
        mut pre_read: Option<PreRead>,
        between: impl Fn(),
    ) -> Result<Seq> {
        let mut admitted = self.limit_rate(batch).and_then(|()| self.admit(batch, 0))?;
        self.delay(batch);
        let drops = batch.changes.iter().any(TableChange::must_be_durable);
        let is_weak = !drops && batch.closes.is_none();
        let durability = if is_weak { durability } else { Durability::Sync };
        loop {
            let pre_read = pre_read.take().map_or_else(|| self.look_up(batch), Ok)?;
            between();
            let mut state = self.group_commit.lock();
            let again = match self.try_submit(&mut state, batch, &pre_read, durability, &admitted) {
                Ok(seq) => {
                    let queued = state.queue.queued_bytes();
                    // Log and memtable have it: who looks now must not count it twice.
                    drop(admitted);
                    drop(state);
                    self.record_writes(batch);
                    if queued >= self.env.options.log_buffer_bytes {
                        // Its failure answers those who wait for the commit group: this commit may be visible already.
                        drop(self.drive(queued));
                    }
                    return Ok(seq);
                }
                Err(again) => again,
            };
            drop(state);
            match again {
                RetryReason::LookUp => {}
                RetryReason::Log => self.prepare_log()?,
                RetryReason::FrozenMemtables => self.make_room()?,
                RetryReason::Larger(bytes) => {
                    // Not beside itself.
                    drop(admitted);
                    admitted = self.admit(batch, bytes)?;
                }
                RetryReason::SeqReservation => self.reserve_seqs()?,
                RetryReason::After(seq, error) => {
                    drop(admitted);
                    self.group_commit.wait(seq)?;
                    return Err(error);
                }
                RetryReason::Refused(error) => return Err(self.poison_on_log_failure(error)),
            }
        }
    }

    /// Counts the writes of a batch. Any of its keys does: a batch is of one partition.
    #[inline]
    fn record_writes(&self, batch: &Batch<'_>) {
        let ops = batch.ops.len() as u32;
        self.env.record_writes(ops, || self.view.load(), |index| &batch.ops[index].key);
    }

    /// A full buffer is driven by the one who filled it; if it is twice as full, he waits for the commit group under way.
    fn drive(&self, queued: usize) -> Result<()> {
        if queued >= 2 * self.env.options.log_buffer_bytes || self.group_commit.is_idle() {
            self.group_commit.flush(Durability::Buffered)?;
        }
        Ok(())
    }

    fn try_submit(
        &self,
        state: &mut MutexGuard<'_, State<LogQueue>>,
        batch: &Batch<'_>,
        pre_read: &PreRead,
        durability: Durability,
        admitted: &Admitted<'_>,
    ) -> Result<Seq, RetryReason> {
        if let Some(error) = state.failed() {
            return Err(error.clone().into());
        }
        if !mutant!("late-commit") {
            state.queue.check_open(Closing::No)?;
        }
        if let Some(at) = batch.gate.dropped_at() {
            return Err(self.refused_since(at, Code::TableNotFound));
        }
        if let Some(at) = self.gates.closed_to(batch.ops.iter().map(|op| &*op.key)) {
            return Err(self.refused_since(at, Code::ServerBusy));
        }
        let seq = Seq(self.env.clock.now().max(state.last().0.saturating_add(1)));
        if seq > Seq::MAX {
            let problem = "the clock or the last commit is beyond the year 9999";
            return Err(Error::new(ErrorKind::Unsupported, problem).into());
        }
        if batch.changes.iter().any(|change| change.is_ahead_of(seq)) {
            let problem = "the clock went back: rows would expire that are not written yet";
            return Err(Error::new(ErrorKind::InvalidInput, problem).into());
        }
        if durability < Durability::Sync && seq > state.queue.seq_reservation {
            return Err(RetryReason::SeqReservation);
        }
        self.switch_if_full(state)?;
        let view = self.view.load();
        let rows = self.resolve(&view, batch, pre_read)?;
        let lens = rows.iter().map(|row| row.as_ref().map_or(0, |row| row.get().len()));
        if let Some(bytes) = admitted.exceeded_by(batch, lens) {
            return Err(RetryReason::Larger(bytes));
        }
        if !self.begin_log(state)? {
            return Err(RetryReason::Log);
        }
        let slot = view.active();
        let start = state.queue.append(self, batch, &rows, seq)?;
        self.insert(&view, batch, &rows, seq);
        for change in &batch.changes {
            if let TableChange::Dropped(gate) = change {
                gate.close(seq);
                self.state.record_dropped(gate.table, seq);
            }
        }
        let mut range_tombstones = Vec::new();
        for change in &batch.changes {
            let Some(range_tombstone) = change.range_tombstone(seq) else { continue };
            range_tombstones.push(range_tombstone);
            slot.memtable.note(seq, change.bytes_max());
        }
        self.add_range_tombstones(&range_tombstones);
        if let Some(gate) = &batch.closes {
            self.gates.close(gate, seq);
        }
        let weak_bytes = if durability < Durability::Sync { start } else { 0 };
        if state.queue.record_commit(weak_bytes, self.env.clock.monotonic(), &self.env.options) {
            self.executor.signal(Lane::Log);
        }
        self.group_commit.queued(state, seq, durability);
        Ok(seq)
    }

    /// The commit `at` is why; nobody learns of it before it is published.
    fn refused_since(&self, at: Seq, code: Code) -> RetryReason {
        let error = Error::refused(code);
        let is_seen = at <= self.group_commit.published();
        if is_seen { RetryReason::Refused(error) } else { RetryReason::After(at, error) }
    }

    /// Puts what was decided into the memtable, not yet visible. Requires the commit lock.
    fn insert(&self, view: &View, batch: &Batch<'_>, rows: &[Option<ResolvedRow<'_>>], seq: Seq) {
        let puts = batch.ops.iter().zip(rows).filter(|(_, row)| row.is_some());
        self.env.gaps.settle(view, puts.map(|(op, _)| &*op.key));
        let entries = batch.ops.iter().zip(rows).map(|(op, row)| new_entry(op, row));
        view.active().memtable.insert_all(seq, entries);
    }

    /// Evaluates conditions and merges on the newest entries. `None` stands for a tombstone.
    fn resolve<'b>(
        &self,
        view: &View,
        batch: &'b Batch<'_>,
        pre_read: &PreRead,
    ) -> Result<SmallVec<[Option<ResolvedRow<'b>>; 1]>, RetryReason> {
        let mut rows = SmallVec::with_capacity(batch.ops.len());
        for (index, op) in batch.ops.iter().enumerate() {
            let row = if op.needs_current() {
                let in_memory = view.newest_in_memory(op.hash, &op.key, &self.env.shapes)?;
                if in_memory.is_none() && !(pre_read.stands(view) && pre_read.is_whole(index, op)) {
                    return Err(RetryReason::LookUp);
                }
                let before = in_memory.is_none().then(|| pre_read.hidden_since(index)).flatten();
                let current = in_memory.or_else(|| pre_read.current(index));
                let now = |c: &Current<'_>| view.range_tombstones.hidden_since(&op.key, c.seq);
                let hidden = before.or_else(|| current.as_ref().and_then(now));
                let reason = hidden.or(current.as_ref().map(|c| c.seq));
                let current = current.filter(|_| hidden.is_none());
                self.decide_one(batch, op, current.as_ref()).map_err(|error| {
                    let error = if batch.is_group { error.at_index(index) } else { error };
                    match reason {
                        Some(seq) if seq > self.group_commit.published() => {
                            RetryReason::After(seq, error)
                        }
                        _ => RetryReason::Refused(error),
                    }
                })?
            } else {
                self.decide_one(batch, op, None)?
            };
            rows.push(row);
        }
        Ok(rows)
    }

    fn decide_one<'b>(
        &self,
        batch: &Batch<'_>,
        op: &'b Op<'_>,
        current: Option<&Current<'_>>,
    ) -> Result<Option<ResolvedRow<'b>>> {
        op.check(current).map_err(Error::refused)?;
        Ok(match &op.action {
            Action::Put(row) => Some(ResolvedRow::Given(row)),
            Action::Delete => None,
            Action::Merge(patch) => {
                let check = |row: &RowRef<'_>| (batch.check_merged)(&op.key, row);
                Some(ResolvedRow::Made(Op::merged(patch, current, &self.env.shapes, check)?))
            }
        })
    }
}

/// What everybody is answered after a close.
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::InvalidInput, "the database was closed")
}

impl Handle {
    /// Commits `batch` without waiting.
    pub(crate) fn commit_async(
        self: &Arc<Self>,
        batch: &Batch<'_>,
        durability: Durability,
    ) -> Result<CommitTicket> {
        Ok(CommitTicket::new(Arc::clone(self), self.submit(batch, durability)?))
    }
}

/// A row to be written: the caller's, or one that a merge made.
enum ResolvedRow<'b> {
    Given(&'b PackedRow<'b>),
    Made(PackedRow<'static>),
}

/// What `op` writes: its row, or a tombstone.
#[inline]
fn new_entry<'r>(op: &'r Op<'_>, row: &'r Option<ResolvedRow<'_>>) -> NewEntry<'r> {
    let (kind, row) = match row {
        Some(row) => (Kind::Put, row.get().parts()),
        None => (Kind::Delete, [&[][..]; 2]),
    };
    NewEntry { hash: op.hash, key: &op.key, kind, row }
}

impl ResolvedRow<'_> {
    fn get(&self) -> &PackedRow<'_> {
        match self {
            ResolvedRow::Given(row) => row,
            ResolvedRow::Made(row) => row,
        }
    }
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

    fn queued_bytes(&self) -> usize {
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
    fn append(
        &mut self,
        engine: &Engine,
        batch: &Batch<'_>,
        rows: &[Option<ResolvedRow<'_>>],
        seq: Seq,
    ) -> Result<u64> {
        let kind = if batch.changes.is_empty() { RecordKind::Group } else { RecordKind::Catalog };
        let new_shapes = self.new_shapes(rows);
        let defined: Vec<_> =
            new_shapes.iter().filter_map(|id| engine.encoded_shape(*id)).collect();
        let user_bytes = batch.ops.iter().map(|op| op.key.len()).sum::<usize>()
            + rows.iter().flatten().map(|row| row.get().len()).sum::<usize>();
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
        for id in rows.iter().flatten().filter_map(|row| row.get().shape) {
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
    fn record_commit(&mut self, weak_bytes: u64, now: Duration, options: &Options) -> bool {
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
        let end = self.position();
        CommitGroup {
            segments,
            sync,
            durable_up_to: self.durable,
            end,
            seq_reservation: self.seq_reservation_queued,
            is_sync,
        }
    }

    fn carry_out(group: CommitGroup) -> Result<Done> {
        let mut done = Done {
            end: group.end,
            seq_reservation: group.seq_reservation,
            is_sync: group.is_sync,
            durable_claimed: (!group.segments.is_empty()).then_some(group.durable_up_to),
            user_bytes: 0,
            written: 0,
            syncs: 0,
            spare: Vec::new(),
        };
        for mut segment in group.segments {
            let header = segment.log.header();
            let at = Position { file: header.number, offset: segment.offset };
            record::seal(&mut segment.bytes, at, header.id, group.durable_up_to);
            segment.log.write_at(segment.offset, &segment.bytes)?;
            done.written += segment.bytes.len() as u64;
            done.user_bytes += segment.user_bytes;
            segment.bytes.clear();
            done.spare = segment.bytes;
        }
        for log in group.sync.iter().filter(|_| !mutant!("unsynced-log")) {
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::batch::{Condition, Gate};
    use smallvec::smallvec;

    use super::*;
    use crate::format::key::user_key;
    use crate::format::names::TableId;
    use crate::format::span::Span;
    use crate::fs::MemFs;
    use crate::options::Background;

    /// A look-up copies no row that is in memory: a flush that takes it away meanwhile must not take its properties.
    #[test]
    fn a_merge_keeps_a_row_that_is_flushed_between_look_up_and_decision() {
        let options = Options::default().fs(Arc::new(MemFs::new()));
        let engine = Engine::open("db".as_ref(), options.background(Background::Manual)).unwrap();
        let (gate, key) = (Arc::new(Gate::new(TableId(7))), user_key(TableId(7), "p", "r"));
        let shapes = &engine.env.shapes;
        let batch = |action| Batch {
            ops: smallvec![Op {
                key: key.clone().into(),
                hash: engine.env.hash(&key),
                condition: Condition::Any,
                action,
            }],
            changes: Vec::new(),
            ..Batch::of_change(&gate, TableChange::Created(TableId(7)))
        };
        let row = |entity: crate::model::Entity| entity.to_row(shapes).unwrap();
        let entity = || crate::model::Entity::new("p", "r");
        let put = PackedRow::of(row(entity().with("A", 1).with("B", 2)), shapes);
        engine.commit(&batch(Action::Put(put)), Durability::Sync).unwrap();
        engine.freeze().unwrap();
        let merge = batch(Action::Merge(row(entity().with("B", 3))));
        // The memtable that takes writes stays: only the frozen one goes.
        let flush =
            || assert!(engine.view.load().frozen().is_empty() || engine.flush_one().unwrap());
        engine.submit_around(&merge, Durability::Sync, None, flush).unwrap();
        let view = engine.view.load();
        assert_eq!(view.memtables.len(), 1);
        let now = view.newest_in_memory(engine.env.hash(&key), &key, shapes).unwrap().unwrap();
        let expected = row(entity().with("A", 1).with("B", 3));
        assert_eq!(now.row.map(|row| row.to_row()), Some(expected));
    }

    #[test]
    fn trap_16_what_a_fence_hid_at_the_look_up_stays_hidden_when_the_fence_leaves() {
        let options = Options::default().fs(Arc::new(MemFs::new()));
        let engine = Engine::open("db".as_ref(), options.background(Background::Manual)).unwrap();
        let (gate, key) = (Arc::new(Gate::new(TableId(7))), user_key(TableId(7), "p", "r"));
        let delete_if = |condition| Batch {
            ops: smallvec![Op {
                key: key.clone().into(),
                hash: engine.env.hash(&key),
                condition,
                action: Action::Delete,
            }],
            changes: Vec::new(),
            ..Batch::of_change(&gate, TableChange::Created(TableId(7)))
        };
        let row = crate::model::Entity::new("p", "r").to_row(&engine.env.shapes).unwrap();
        let mut put = delete_if(Condition::Any);
        put.ops[0].action = Action::Put(PackedRow::of(row, &engine.env.shapes));
        engine.commit(&put, Durability::Sync).unwrap();
        engine.flush_all().unwrap();
        let tombstones_applied = TableChange::Fenced(Span::new(&key, None));
        engine.commit(&Batch::of_change(&gate, tombstones_applied), Durability::Sync).unwrap();
        engine.flush_all().unwrap();
        assert!(!engine.view.load().range_tombstones.is_empty());
        let delete = delete_if(Condition::Present);
        let result = engine.submit_around(&delete, Durability::Sync, None, || {
            while engine.reclaim().unwrap() {}
            assert!(engine.view.load().range_tombstones.is_empty());
        });
        assert_eq!(result.map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    }
}

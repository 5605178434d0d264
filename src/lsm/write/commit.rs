//! The commit path. Under the commit lock a batch is validated, appended to the log buffer and
//! inserted into the memtable. The leader of its commit group then writes, syncs and publishes it.
//!
//! Invariants
//! * only one log is appended to; no entity group spans two log records, logs or memtables;
//! * a pre-read (made before locking) is used only if all later entries are still in memtables;
//! * a commit weaker than `Sync` uses a Seq within the durable reservation, so that no Seq is
//!   reused after a power cut.
//!
//! Not here: logs (`log_queue`), groups (`group_commit`), conditions (`batch`), delays (`delay`).

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::error::{Code, Error, ErrorKind, Result};
use crate::executor::Lane;
use crate::model::{RowRef, Seq};
use crate::mutants::mutant;
use crate::options::{Background, Durability};
use crate::sync::MutexGuard;

use super::admission::Admitted;
use super::batch::{Action, Batch, Op, TableChange};
use super::group_commit::State;
use super::log_queue::{Closing, LogQueue, ResolvedRow, new_entry};
use super::look_up::PreRead;
use super::retry::{RetryReason, Unblock};
use super::writer::Writer;
use crate::lsm::read::load_sampling::Operation;
use crate::lsm::read::view::{Current, View};

/// A batch that is being submitted, with the durability that it needs and the bytes admitted for
/// it.
struct PendingWrite<'w, 'b> {
    batch: &'w Batch<'b>,
    durability: Durability,
    admitted: Admitted<'w>,
}

/// The row that each operation writes; `None` for a tombstone.
type ResolvedRows<'b> = SmallVec<[Option<ResolvedRow<'b>>; 1]>;

impl Writer {
    /// Commits `batch` and waits until it is as durable as requested. The returned Seq is the ETag
    /// of every entity that the batch writes.
    ///
    /// # Errors
    /// The Azure error code for an unmet condition; `StorageFull` (nothing was written),
    /// `Poisoned`, `Io`.
    pub(in crate::lsm) fn commit(
        &self,
        help: &impl Unblock,
        batch: &Batch<'_>,
        durability: Durability,
    ) -> Result<Seq> {
        let seq = self.submit(help, batch, durability)?;
        self.wait_published(batch, seq)
    }

    /// As [`commit`](Self::commit), but does not wait.
    pub(in crate::lsm) fn submit(
        &self,
        help: &impl Unblock,
        batch: &Batch<'_>,
        durability: Durability,
    ) -> Result<Seq> {
        self.submit_around(help, batch, durability, None, || {})
    }

    /// As [`submit`](Self::submit), optionally with a pre-read made by the caller. Tests use
    /// `between`, which runs after each pre-read and before the commit lock is taken.
    pub(in crate::lsm) fn submit_around(
        &self,
        help: &impl Unblock,
        batch: &Batch<'_>,
        durability: Durability,
        mut pre_read: Option<PreRead>,
        between: impl Fn(),
    ) -> Result<Seq> {
        self.limit_rate(batch)?;
        let admitted = self.admit(help, batch, 0)?;
        self.delay(batch);
        let drops = batch.changes.iter().any(TableChange::must_be_durable);
        let is_weak = !drops && batch.closes.is_none();
        let durability = if is_weak { durability } else { Durability::Sync };
        let mut write = PendingWrite { batch, durability, admitted };
        loop {
            let pre_read = pre_read.take().map_or_else(|| self.look_up(batch), Ok)?;
            between();
            let mut state = self.group_commit.lock();
            match self.try_submit(&mut state, &write, &pre_read) {
                Ok(seq) => {
                    self.submitted(help, state, write);
                    return Ok(seq);
                }
                Err(reason) => {
                    drop(state);
                    write = self.unblock(help, reason, write)?;
                }
            }
        }
    }

    /// Evaluates `batch` as [`submit`](Self::submit) does, but neither admits nor writes it.
    ///
    /// # Errors
    /// The refusal because of a failure or a close, of the table, of a gate, or of the first
    /// operation whose condition does not hold.
    pub(in crate::lsm) fn evaluate(&self, help: &impl Unblock, batch: &Batch<'_>) -> Result<()> {
        let (durability, admitted) = (Durability::Buffered, Admitted::ALL);
        let mut write = PendingWrite { batch, durability, admitted };
        loop {
            let pre_read = self.look_up(batch)?;
            let state = self.group_commit.lock();
            let view = self.reader.view.load();
            let resolved = self
                .check_admission(&state, batch)
                .and_then(|()| self.resolve(&view, &write, &pre_read).map(drop));
            drop(state);
            match resolved {
                Ok(()) => return Ok(()),
                Err(reason) => write = self.unblock(help, reason, write)?,
            }
        }
    }

    /// Finishes a submission after the batch was queued: releases its admission, allocates log
    /// space if the background could not, and flushes a full log buffer.
    fn submitted(
        &self,
        help: &impl Unblock,
        mut state: MutexGuard<'_, State<LogQueue>>,
        write: PendingWrite<'_, '_>,
    ) {
        let queued = state.queue.queued_bytes();
        // The background thread that allocates may be in the sync. Without space ahead, the next
        // commits would allocate while they hold the lock.
        let must_allocate = state.syncing && state.queue.becomes_nearly_full();
        // The log and the memtable now count these bytes. Release the admission while the lock is
        // still held, so that no reader of the counters sees the bytes twice.
        drop(write.admitted);
        drop(state);
        self.record_writes(write.batch);
        if must_allocate {
            // A failure ends writing. It is not returned, because the commit is queued already.
            drop(help.allocate_log());
        }
        if queued >= self.reader.env.options.log_buffer_bytes {
            // If this fails, the waiters of the commit group get the error. It is not returned
            // here, because this commit may already be visible.
            drop(self.flush_full_buffer(queued));
        }
    }

    /// Removes the reason that stopped the attempt, so that the caller can try again, or returns
    /// the final error.
    fn unblock<'w, 'b>(
        &'w self,
        help: &impl Unblock,
        reason: RetryReason,
        mut write: PendingWrite<'w, 'b>,
    ) -> Result<PendingWrite<'w, 'b>> {
        match reason {
            RetryReason::LookUp => {}
            RetryReason::Log => help.prepare_log()?,
            RetryReason::FrozenMemtables => help.make_room()?,
            RetryReason::SeqReservation => self.sync_for_weak_commit(|| self.reserve_seqs(help))?,
            RetryReason::UnsyncedBytes => {
                self.sync_for_weak_commit(|| self.sync_before_weak_commits())?;
            }
            RetryReason::Larger(bytes) => {
                // Release the first admission, so that its bytes are not counted twice.
                write.admitted = Admitted::ALL;
                write.admitted = self.admit(help, write.batch, bytes)?;
            }
            RetryReason::After(seq, error) => {
                drop(write);
                self.group_commit.wait(seq)?;
                return Err(error);
            }
            RetryReason::Refused(error) => return Err(self.poison_on_log_failure(error)),
        }
        Ok(write)
    }

    /// Tries to queue the batch under the commit lock.
    fn try_submit(
        &self,
        state: &mut MutexGuard<'_, State<LogQueue>>,
        write: &PendingWrite<'_, '_>,
        pre_read: &PreRead,
    ) -> Result<Seq, RetryReason> {
        self.check_admission(state, write.batch)?;
        let seq = self.assign_seq(state, write)?;
        self.switch_if_full(state)?;
        let view = self.reader.view.load();
        let rows = self.resolve(&view, write, pre_read)?;
        if !self.begin_log(state)? {
            return Err(RetryReason::Log);
        }
        let bytes = self.append(state, &view, (write.batch, &rows), seq)?;
        self.apply_table_changes(&view, write.batch, seq);
        self.enqueue(state, seq, write.durability, bytes);
        Ok(seq)
    }

    /// Refuses the batch after a failure or a close, if its table is dropped, or if a closed gate
    /// covers one of its keys.
    fn check_admission(
        &self,
        state: &State<LogQueue>,
        batch: &Batch<'_>,
    ) -> Result<(), RetryReason> {
        state.check()?;
        if !mutant!("late-commit") {
            state.queue.check_open(Closing::No)?;
        }
        if let Some(at) = batch.gate.dropped_at() {
            return Err(self.refused_since(at, Code::TableNotFound));
        }
        match self.gates.closed_to(batch.ops.iter().map(|op| &*op.key)) {
            Some(at) => Err(self.refused_since(at, Code::ServerBusy)),
            None => Ok(()),
        }
    }

    /// Returns the next Seq, which is greater than the last one and not less than the clock. For a
    /// commit weaker than `Sync` it must be within the durable Seq reservation, and not too many
    /// bytes of such commits may be unsynced.
    fn assign_seq(
        &self,
        state: &State<LogQueue>,
        write: &PendingWrite<'_, '_>,
    ) -> Result<Seq, RetryReason> {
        let seq = Seq(self.reader.env.clock.now().max(state.last.0.saturating_add(1)));
        if seq > Seq::MAX {
            let problem = "the clock or the last commit is beyond the year 9999";
            return Err(Error::new(ErrorKind::Unsupported, problem).into());
        }
        if write.batch.changes.iter().any(|change| change.is_ahead_of(seq)) {
            let problem = "the clock went back: rows would expire that are not written yet";
            return Err(Error::new(ErrorKind::InvalidInput, problem).into());
        }
        let is_weak = write.durability < Durability::Sync;
        if is_weak && seq > state.queue.seq_reservation {
            return Err(RetryReason::SeqReservation);
        }
        if is_weak && self.has_unsynced_max(&state.queue) {
            return Err(RetryReason::UnsyncedBytes);
        }
        Ok(seq)
    }

    /// Evaluates conditions and merges against the newest entries. Returns the resulting rows.
    fn resolve<'b>(
        &self,
        view: &View,
        write: &'b PendingWrite<'_, '_>,
        pre_read: &PreRead,
    ) -> Result<ResolvedRows<'b>, RetryReason> {
        let batch = write.batch;
        let mut rows = SmallVec::with_capacity(batch.ops.len());
        for (index, op) in batch.ops.iter().enumerate() {
            rows.push(match op.needs_current() {
                true => self.resolve_current(view, batch, index, pre_read)?,
                false => self.resolve_op(batch, op, None)?,
            });
        }
        let lens = rows
            .iter()
            .map(|row: &Option<ResolvedRow<'_>>| row.as_ref().map_or(0, |row| row.len()));
        match write.admitted.exceeded_by(batch, lens) {
            Some(bytes) => Err(RetryReason::Larger(bytes)),
            None => Ok(rows),
        }
    }

    /// Resolves operation `index`, which depends on the newest entry of its key: the entry in
    /// memory or else the pre-read one.
    fn resolve_current<'b>(
        &self,
        view: &View,
        batch: &'b Batch<'_>,
        index: usize,
        pre_read: &PreRead,
    ) -> Result<Option<ResolvedRow<'b>>, RetryReason> {
        let op = &batch.ops[index];
        let in_memory = view.newest_in_memory(op.hash, &op.key, &self.reader.env.shapes)?;
        if in_memory.is_none() && !(pre_read.is_current(view) && pre_read.is_whole(index, op)) {
            return Err(RetryReason::LookUp);
        }
        let before = in_memory.is_none().then(|| pre_read.hidden_since(index)).flatten();
        let current = in_memory.or_else(|| pre_read.current(index));
        let now = |c: &Current<'_>| view.range_tombstones.hidden_since(&op.key, c.seq);
        let hidden = before.or_else(|| current.as_ref().and_then(now));
        let reason = hidden.or(current.as_ref().map(|c| c.seq));
        let current = current.filter(|_| hidden.is_none());
        self.resolve_op(batch, op, current.as_ref()).map_err(|error| {
            let error = if batch.is_group { error.at_index(index) } else { error };
            match reason {
                Some(seq) if seq > self.reader.published() => RetryReason::After(seq, error),
                _ => RetryReason::Refused(error),
            }
        })
    }

    fn resolve_op<'b>(
        &self,
        batch: &Batch<'_>,
        op: &'b Op<'_>,
        current: Option<&Current<'_>>,
    ) -> Result<Option<ResolvedRow<'b>>> {
        op.check(current).map_err(Error::refused)?;
        Ok(match &op.action {
            Action::Put(row) => Some(Cow::Borrowed(row)),
            Action::Delete => None,
            Action::Merge(patch) => {
                let check = |row: &RowRef<'_>| (batch.check_merged)(&op.key, row);
                Some(Cow::Owned(Op::merged(patch, current, &self.reader.env.shapes, check)?))
            }
        })
    }

    /// Appends the record to the log buffer and inserts the entries into the memtable, where they
    /// are not visible yet. Returns the length of the record in bytes.
    fn append(
        &self,
        state: &mut State<LogQueue>,
        view: &View,
        (batch, rows): (&Batch<'_>, &[Option<ResolvedRow<'_>>]),
        seq: Seq,
    ) -> Result<u64> {
        let env = &*self.reader.env;
        let bytes = state.queue.append(&env.shapes, batch, rows, seq)?;
        let active = &view.active().memtable;
        let puts = batch.ops.iter().zip(rows).filter(|(_, row)| row.is_some());
        env.gaps.apply_offers(active, view.range_tombstones.newest, puts.map(|(op, _)| &*op.key));
        active.insert_all(seq, batch.ops.iter().zip(rows).map(|(op, row)| new_entry(op, row)));
        Ok(bytes)
    }

    /// Applies the changes of commit `seq` other than rows: table drops, range tombstones and a
    /// closing gate.
    fn apply_table_changes(&self, view: &View, batch: &Batch<'_>, seq: Seq) {
        let mut range_tombstones = Vec::new();
        for change in &batch.changes {
            if let TableChange::Dropped(gate) = change {
                gate.close(seq);
                self.reader.dropped.record(gate.table, seq);
            }
            if let Some(range_tombstone) = change.logged().into_tombstone(seq) {
                range_tombstones.push(range_tombstone);
                view.active().memtable.record_bytes(seq, change.bytes_max());
            }
        }
        self.reader.add_range_tombstones(&range_tombstones);
        if let Some(gate) = &batch.closes {
            self.gates.close(gate, seq);
        }
    }

    /// Adds the commit to the commit group being filled.
    fn enqueue(&self, state: &mut State<LogQueue>, seq: Seq, durability: Durability, bytes: u64) {
        let env = &*self.reader.env;
        let weak_bytes = if durability < Durability::Sync { bytes } else { 0 };
        if state.queue.record_commit(weak_bytes, env.clock.monotonic(), &env.options) {
            self.executor.signal(Lane::Log);
        }
        self.group_commit.queued(state, seq, durability);
    }

    /// Returns a refusal that depends on commit `at`. It is reported only after `at` is published.
    fn refused_since(&self, at: Seq, code: Code) -> RetryReason {
        let error = Error::refused(code);
        let is_seen = at <= self.reader.published();
        if is_seen { RetryReason::Refused(error) } else { RetryReason::After(at, error) }
    }

    /// Samples the load of a batch. All keys are in one partition, so one key represents the batch.
    #[inline]
    fn record_writes(&self, batch: &Batch<'_>) {
        let (env, ops) = (&*self.reader.env, batch.ops.len());
        if ops > 0
            && let Some(due) = env.loads.take(ops as u32)
        {
            let key = &batch.ops[due.over as usize % ops].key;
            self.reader.view.load().sample(env, &due, key, Operation::Write);
        }
    }

    /// Flushes the full log buffer unless a leader is active. At twice the limit the committer
    /// first waits for the commit group in progress.
    fn flush_full_buffer(&self, queued: usize) -> Result<()> {
        let most = self.reader.env.options.log_buffer_bytes;
        if queued >= 2 * most || !self.group_commit.lock().leading {
            self.group_commit.flush(Durability::Buffered)?;
        }
        Ok(())
    }

    /// Waits until `seq` is published. First waits up to `max_commit_delay` for another committer
    /// to lead the commit group.
    fn wait_published(&self, batch: &Batch<'_>, seq: Seq) -> Result<Seq> {
        let options = &self.reader.env.options;
        let is_plain = batch.changes.is_empty() && batch.closes.is_none();
        // Without background threads there may be no other committer.
        let is_shared = options.background != Background::Manual;
        if is_plain && is_shared && !options.max_commit_delay.is_zero() {
            self.group_commit.wait_for_leader(seq, options.max_commit_delay);
        }
        self.group_commit.wait(seq).map(|()| seq)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::batch::{Condition, Gate, PackedRow};
    use smallvec::smallvec;
    use std::sync::Arc;

    use super::*;
    use crate::format::key::user_key;
    use crate::format::names::TableId;
    use crate::format::span::Span;
    use crate::fs::MemFs;
    use crate::options::Options;

    /// A pre-read does not copy a row that is in memory. If a flush moves the row to a file before
    /// the decision, the merge must still keep the row's properties.
    #[test]
    fn a_merge_keeps_a_row_that_is_flushed_between_look_up_and_decision() {
        let options = Options::default().fs(Arc::new(MemFs::new()));
        let engine =
            crate::lsm::open("db".as_ref(), options.background(Background::Manual)).unwrap();
        let (gate, key) = (Arc::new(Gate::new(TableId(7))), user_key(TableId(7), "p", "r"));
        let shapes = &engine.env().shapes;
        let batch = |action| Batch {
            ops: smallvec![Op {
                key: key.clone().into(),
                hash: engine.env().hash(&key),
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
        engine.maintenance().freeze().unwrap();
        let merge = batch(Action::Merge(row(entity().with("B", 3))));
        // Flush only the frozen memtable; the active one stays in memory.
        let flush = || {
            assert!(
                engine.reader().view.load().frozen().is_empty()
                    || engine.maintenance().flush_one().unwrap()
            )
        };
        engine
            .writer()
            .submit_around(engine.maintenance(), &merge, Durability::Sync, None, flush)
            .unwrap();
        let view = engine.reader().view.load();
        assert_eq!(view.memtables.len(), 1);
        let now = view.newest_in_memory(engine.env().hash(&key), &key, shapes).unwrap().unwrap();
        let expected = row(entity().with("A", 1).with("B", 3));
        assert_eq!(now.row.map(|row| row.to_row()), Some(expected));
    }

    #[test]
    fn trap_16_a_hidden_row_stays_hidden_when_its_range_tombstone_is_removed() {
        let options = Options::default().fs(Arc::new(MemFs::new()));
        let engine =
            crate::lsm::open("db".as_ref(), options.background(Background::Manual)).unwrap();
        let (gate, key) = (Arc::new(Gate::new(TableId(7))), user_key(TableId(7), "p", "r"));
        let delete_if = |condition| Batch {
            ops: smallvec![Op {
                key: key.clone().into(),
                hash: engine.env().hash(&key),
                condition,
                action: Action::Delete,
            }],
            changes: Vec::new(),
            ..Batch::of_change(&gate, TableChange::Created(TableId(7)))
        };
        let row = crate::model::Entity::new("p", "r").to_row(&engine.env().shapes).unwrap();
        let mut put = delete_if(Condition::Any);
        put.ops[0].action = Action::Put(PackedRow::of(row, &engine.env().shapes));
        engine.commit(&put, Durability::Sync).unwrap();
        engine.maintenance().flush_all().unwrap();
        let tombstones_applied = TableChange::Fenced(Span::new(&key, None));
        engine.commit(&Batch::of_change(&gate, tombstones_applied), Durability::Sync).unwrap();
        engine.maintenance().flush_all().unwrap();
        assert!(!engine.reader().view.load().range_tombstones.is_empty());
        let delete = delete_if(Condition::Present);
        let result = engine.writer().submit_around(
            engine.maintenance(),
            &delete,
            Durability::Sync,
            None,
            || {
                while engine.maintenance().reclaim().unwrap() {}
                assert!(engine.reader().view.load().range_tombstones.is_empty());
            },
        );
        assert_eq!(result.map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    }
}

//! Rotation of the memtable: freezes the active one, and continues in a new memtable and the next
//! log.
//!
//! Not here: flushing frozen memtables (`flush`), preparing the next log (`wal_switch`).

use std::sync::Arc;

use crate::error::Result;
use crate::executor::Lane;
use crate::memtable::Memtable;
use crate::sync::MutexGuard;

use super::group_commit::State;
use super::log_queue::{Closing, LogQueue};
use super::retry::{RetryReason, Unblock};
use super::writer::Writer;
use crate::lsm::read::range_tombstones::RANGE_TOMBSTONE_BYTES_MAX;
use crate::lsm::read::view::{Slot, View};

impl Writer {
    /// If the active memtable is full, freezes it and continues in the next log.
    pub(super) fn switch_if_full(
        &self,
        state: &mut MutexGuard<'_, State<LogQueue>>,
    ) -> Result<(), RetryReason> {
        let view = self.reader.view.load();
        let memtable = &view.active().memtable;
        let is_full = memtable.bytes() >= self.reader.env.options.memtable_bytes
            || memtable.other_bytes() >= RANGE_TOMBSTONE_BYTES_MAX;
        if !is_full {
            return Ok(());
        }
        self.switch(state, &view)
    }

    /// Freezes the active memtable. Requires the commit lock.
    fn switch(
        &self,
        state: &mut MutexGuard<'_, State<LogQueue>>,
        view: &View,
    ) -> Result<(), RetryReason> {
        state.check()?;
        state.queue.check_open(Closing::Commits)?;
        if view.memtables.len() > self.reader.env.options.frozen_max {
            return Err(RetryReason::FrozenMemtables);
        }
        let Some(next) = state.queue.next.take() else { return Err(RetryReason::Log) };
        let number = next.log.header().number;
        state.queue.switch_to(next)?;
        let id = view.active().memtable.id + 1;
        // Size the new memtable for as many keys as the frozen one has, because it will probably be
        // similar.
        let keys = view.active().memtable.keys();
        let memtable = Memtable::new(id, self.reader.env.options.memtable_bytes, keys);
        let slot = Arc::new(Slot { memtable: Arc::new(memtable), logs: vec![number] });
        self.reader.change_view(|view| view.with_active(&slot));
        self.executor.signal(Lane::Flush);
        self.executor.signal(Lane::Log);
        Ok(())
    }

    /// Freezes the active memtable if it has entries, so that a flush covers all earlier commits.
    pub(in crate::lsm) fn freeze(&self, help: &impl Unblock) -> Result<()> {
        while !self.freeze_if_room(help)? {
            help.make_room()?;
        }
        Ok(())
    }

    /// As [`freeze`](Self::freeze), for the flusher, which must not wait for a flush. Returns false
    /// if the maximum number of memtables is already frozen.
    pub(in crate::lsm) fn freeze_if_room(&self, help: &impl Unblock) -> Result<bool> {
        loop {
            let mut state = self.group_commit.lock();
            let view = self.reader.view.load_full();
            if view.active().memtable.seq_max().is_none() {
                return Ok(true);
            }
            let again = match self.switch(&mut state, &view) {
                Ok(()) => return Ok(true),
                Err(again) => again,
            };
            drop(state);
            match again {
                RetryReason::Log => help.prepare_log()?,
                RetryReason::FrozenMemtables => return Ok(false),
                RetryReason::Refused(error) | RetryReason::After(_, error) => return Err(error),
                RetryReason::LookUp
                | RetryReason::SeqReservation
                | RetryReason::UnsyncedBytes
                | RetryReason::Larger(_) => {}
            }
        }
    }
}

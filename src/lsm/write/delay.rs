//! Delays writes so that background work keeps up.
//!
//! A write is delayed if the key ranges that it touches have too many unmerged files or bytes, or
//! if the memory for memtables is nearly exhausted.
//!
//! Not here: the length of delays (`backpressure`), the pace of background work (`backlog`).

use std::sync::Arc;
use std::time::Duration;

use crate::executor::Lane;
use crate::manifest::FileRange;
use crate::options::Background;

use super::backpressure::{
    RangeDebt, SOURCES_FREE, SOURCES_UNREAD, flush_bytes_max, memory_delay, range_delay,
};
use super::batch::{Batch, Op};
use super::events::emit;
use super::writer::Writer;
use crate::lsm::Env;
use crate::lsm::read::load_sampling::Readers;
use crate::lsm::read::view::View;

/// A delay caused by a range is ignored if it is shorter than this.
const DELAY_MIN: Duration = Duration::from_micros(30);

impl Writer {
    /// Delays a write if the ranges that `batch` touches have a compaction backlog, or if memory is
    /// nearly exhausted.
    pub(super) fn delay(&self, batch: &Batch<'_>) {
        if self.reader.env.options.background == Background::Manual || batch.ops.is_empty() {
            return;
        }
        let view = self.reader.view.load();
        let by_range = self.range_pressure(&view, batch);
        let delay = by_range.max(self.memory_pressure(&view, batch));
        if delay.is_zero() {
            return;
        }
        drop(view);
        let cause = if by_range < delay { "memory" } else { "ranges" };
        self.executor.signal(if by_range.is_zero() { Lane::Flush } else { Lane::Compact });
        let Some(pause) = self.backlog.owe(delay) else { return };
        let since = self.reader.env.clock.monotonic();
        self.backlog.pause(pause);
        let waited = self.reader.env.clock.monotonic().saturating_sub(since);
        self.backlog.paid(pause, waited);
        self.stalled(cause, waited);
    }

    fn range_pressure(&self, view: &View, batch: &Batch<'_>) -> Duration {
        // The files of a FIFO table overlap and are never merged, so they are not a compaction
        // backlog.
        if batch.gate.is_fifo() {
            return Duration::ZERO;
        }
        let share = range_debt(&self.reader.env, view, batch);
        if range_delay(share, None) < DELAY_MIN {
            return Duration::ZERO;
        }
        let bytes = batch.ops.iter().map(Op::memtable_bytes).sum();
        range_delay(share, self.backlog.merge_time(bytes))
    }

    fn memory_pressure(&self, view: &View, batch: &Batch<'_>) -> Duration {
        // While no frozen memtable waits for its flush, the active one may fill without delays.
        if view.frozen().is_empty() {
            return Duration::ZERO;
        }
        let used: usize = view.memtables.iter().map(|slot| slot.memtable.bytes()).sum();
        let options = &self.reader.env.options;
        let most = options.memtable_bytes.saturating_mul(options.frozen_max + 1);
        if memory_delay(used as u64, most as u64, None).is_zero() {
            return Duration::ZERO;
        }
        let bytes = batch.ops.iter().map(Op::memtable_bytes).sum();
        memory_delay(used as u64, most as u64, self.backlog.flush_time(bytes))
    }

    /// Counts a delayed write and emits an event. The cause is `memtables` if too many memtables
    /// wait for their flush, `ranges` if a range that the write touches has too large a compaction
    /// backlog, `memory` if memory is nearly exhausted, or `log` if syncs of the log are behind:
    /// too many of its bytes are unsynced, or the Seq reservation was not extended in time.
    pub(crate) fn stalled(&self, cause: &'static str, time: Duration) {
        self.backlog.record_stall(time);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        emit!(WARN, "stalled", self.reader.env, cause = cause, micros = micros);
    }
}

/// Returns the largest compaction debt among the ranges that `batch` touches.
fn range_debt(env: &Env, view: &View, batch: &Batch<'_>) -> RangeDebt {
    let memtable_bytes = env.options.memtable_bytes as u64;
    let mut most = RangeDebt::default();
    let mut last: Option<&Arc<FileRange>> = None;
    for op in &batch.ops {
        if last.is_some_and(|range| range.span.contains(&op.key)) {
            continue;
        }
        last = view.version.range_for(&op.key);
        let Some(range) = last.filter(|range| !range.young.is_empty()) else { continue };
        // Count the sources (overlapping files at the key) only if the range has enough young files
        // to exceed the limit. Most ranges have few.
        let is_deep = range.young.len() >= SOURCES_FREE;
        let sources = if is_deep { range.sources(&op.key).count() } else { 0 };
        let is_behind = sources > SOURCES_FREE && env.readers(range) > Readers::Few;
        let sources = if is_behind { sources } else { sources.saturating_sub(SOURCES_UNREAD) };
        // A file that is too large to come from a flush was merged already, so it is not part of
        // the backlog.
        let flush_bytes = flush_bytes_max(memtable_bytes);
        let waiting = range.young.iter().filter(|file| file.file.meta.bytes <= flush_bytes);
        let debt = waiting.map(|file| file.bytes).sum();
        most = most.max(RangeDebt::of(sources, debt, memtable_bytes));
    }
    most
}

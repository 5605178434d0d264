//! What waits to be flushed and merged, as writers see it: background work fills it in, and a writer's delay reads it.
//!
//! Locks: its own, one of the small ones.
//!
//! Not here: how long a delay is (`backpressure`), which writes are delayed (`delay`).

use std::time::Duration;

use crate::error::{Error, Result};
use crate::sync::{Condvar, Mutex};

use super::backpressure::DELAY_MAX;

/// See the module.
#[derive(Default)]
pub(in crate::lsm) struct Backlog {
    state: Mutex<State>,
    /// Signalled when a flush ended, well or not.
    attempted: Condvar,
}

#[derive(Default)]
struct State {
    /// Why the last flush failed.
    flush_error: Option<Error>,
    /// How many flushes were tried.
    attempts: u64,
    /// How long a flush takes for each MiB of memtables, lately; zero before the first.
    flush_mib: Duration,
    /// How long jobs take for each MiB of young files, lately; zero before the first.
    merge_mib: Duration,
    /// Seconds that writers are to be delayed and were not yet; below zero if they were delayed for too long.
    owed: f64,
    /// How often a write was delayed, and for how many microseconds in all.
    stalls: [u64; 2],
}

/// A shorter pause takes about this long all the same.
const PAUSE_MIN: Duration = Duration::from_micros(200);
const MIB: f64 = (1 << 20) as f64;

impl Backlog {
    /// A flush took `time` for a memtable of so many bytes.
    pub(in crate::lsm) fn record_flush_pace(&self, bytes: usize, time: Duration) {
        average(&mut self.state.lock().flush_mib, bytes as u64, time);
    }

    /// A job took `time`, which read so many bytes of young files; a join reads none.
    pub(in crate::lsm) fn record_merge_pace(&self, bytes: u64, time: Duration) {
        if bytes > 0 {
            average(&mut self.state.lock().merge_mib, bytes, time);
        }
    }

    /// How long it takes to merge so many bytes of young files; `None` before the first job.
    pub(super) fn merge_time(&self, bytes: usize) -> Option<Duration> {
        time_of(self.state.lock().merge_mib, bytes)
    }

    /// How long it takes to flush so many bytes of memtables; `None` before the first flush.
    pub(super) fn flush_time(&self, bytes: usize) -> Option<Duration> {
        time_of(self.state.lock().flush_mib, bytes)
    }

    /// Takes on a delay of a write. What is due is a pause once it is long enough to be one.
    pub(super) fn owe(&self, delay: Duration) -> Option<Duration> {
        let mut state = self.state.lock();
        state.owed += delay.as_secs_f64();
        if state.owed < PAUSE_MIN.as_secs_f64() {
            return None;
        }
        let pause = std::mem::take(&mut state.owed).min(DELAY_MAX.as_secs_f64());
        Some(Duration::from_secs_f64(pause))
    }

    /// A pause took longer than it was to: the next begins later.
    pub(super) fn paid(&self, pause: Duration, waited: Duration) {
        let over = waited.saturating_sub(pause).min(DELAY_MAX);
        self.state.lock().owed -= over.as_secs_f64();
    }

    /// A write was held up by what background work has not done yet.
    pub(super) fn record_stall(&self, time: Duration) {
        let stalls = &mut self.state.lock().stalls;
        stalls[0] += 1;
        stalls[1] += u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    }

    /// How often a write was delayed, and for how many microseconds in all.
    pub(in crate::lsm) fn stalls(&self) -> [u64; 2] {
        self.state.lock().stalls
    }

    /// A flush ended: writers that wait for room look again.
    pub(in crate::lsm) fn flush_attempted(&self, result: Result<(), Error>) {
        let mut state = self.state.lock();
        state.attempts += 1;
        state.flush_error = result.err();
        drop(state);
        self.attempted.notify_all();
    }

    /// Why the last flush failed, if it did.
    pub(in crate::lsm) fn flush_error(&self) -> Option<Error> {
        self.state.lock().flush_error.clone()
    }

    /// How many flushes were tried so far.
    pub(in crate::lsm) fn attempts(&self) -> u64 {
        self.state.lock().attempts
    }

    /// Waits until more than `seen` flushes were tried; the error of the last, if it failed.
    pub(in crate::lsm) fn wait_for_flush(&self, seen: u64) -> Result<()> {
        let mut state = self.state.lock();
        while state.attempts == seen {
            self.attempted.wait(&mut state);
        }
        state.flush_error.clone().map_or(Ok(()), Err)
    }

    /// Waits for a flush to end, at most for `time`.
    pub(in crate::lsm) fn pause(&self, time: Duration) {
        let mut state = self.state.lock();
        self.attempted.wait_for(&mut state, time);
    }
}

/// The time for `bytes` at `mib` for each MiB; `None` while that is not known.
fn time_of(mib: Duration, bytes: usize) -> Option<Duration> {
    (!mib.is_zero()).then(|| mib.mul_f64(bytes as f64 / MIB))
}

/// `mib` comes halfway to what each MiB of `bytes` took.
fn average(mib: &mut Duration, bytes: u64, time: Duration) {
    let now = time.mul_f64(MIB / (bytes as f64).max(MIB / 64.0));
    let before = if mib.is_zero() { now } else { *mib };
    *mib = (before + now) / 2;
}

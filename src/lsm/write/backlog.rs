//! The backlog of flushes and merges as writers see it. Background work updates it, and the delays
//! of writers depend on it.
//!
//! Locks: its own mutex. While it is held, no other lock is taken.
//!
//! Not here: the length of a delay (`backpressure`), the writes that are delayed (`delay`).

use std::time::Duration;

use crate::error::{Error, Result};
use crate::sync::{Condvar, Mutex};

use super::backpressure::DELAY_MAX;

/// The recent pace of background work and the delays that writers owe.
#[derive(Default)]
pub(in crate::lsm) struct Backlog {
    state: Mutex<State>,
    /// Signalled after each flush, successful or not.
    attempted: Condvar,
}

#[derive(Default)]
struct State {
    /// The error of the last flush, if it failed.
    flush_error: Option<Error>,
    /// The number of attempted flushes.
    attempts: u64,
    /// The recent flush time per MiB of memtables; zero before the first flush.
    flush_mib: Duration,
    /// The recent job time per MiB of young files; zero before the first job.
    merge_mib: Duration,
    /// Delay that writers have not yet waited for, in seconds; negative if pauses took longer than
    /// planned.
    owed: f64,
    /// The number of delayed writes, and the sum of their delays in microseconds.
    stalls: [u64; 2],
}

/// Shorter delays are added up until they reach this length, because even the shortest pause of a
/// thread takes about this long.
const PAUSE_MIN: Duration = Duration::from_micros(200);
const MIB: f64 = (1 << 20) as f64;

impl Backlog {
    /// Records that a flush took `time` for a memtable of `bytes` bytes.
    pub(in crate::lsm) fn record_flush_pace(&self, bytes: usize, time: Duration) {
        average(&mut self.state.lock().flush_mib, bytes as u64, time);
    }

    /// Records that a job took `time` to read `bytes` bytes of young files. Ignores jobs that read
    /// no young files.
    pub(in crate::lsm) fn record_merge_pace(&self, bytes: u64, time: Duration) {
        if bytes > 0 {
            average(&mut self.state.lock().merge_mib, bytes, time);
        }
    }

    /// Returns the expected time to merge `bytes` bytes of young files; `None` before the first
    /// job.
    pub(super) fn merge_time(&self, bytes: usize) -> Option<Duration> {
        time_of(self.state.lock().merge_mib, bytes)
    }

    /// Returns the expected time to flush `bytes` bytes of memtables; `None` before the first
    /// flush.
    pub(super) fn flush_time(&self, bytes: usize) -> Option<Duration> {
        time_of(self.state.lock().flush_mib, bytes)
    }

    /// Adds the delay of a write to the delay owed. If that is at least [`PAUSE_MIN`], clears it
    /// and returns the pause to wait.
    pub(super) fn owe(&self, delay: Duration) -> Option<Duration> {
        let mut state = self.state.lock();
        state.owed += delay.as_secs_f64();
        if state.owed < PAUSE_MIN.as_secs_f64() {
            return None;
        }
        let pause = std::mem::take(&mut state.owed).min(DELAY_MAX.as_secs_f64());
        Some(Duration::from_secs_f64(pause))
    }

    /// Credits the time by which a pause took longer than planned, so that the next pause starts
    /// later.
    pub(super) fn paid(&self, pause: Duration, waited: Duration) {
        self.state.lock().owed -= waited.saturating_sub(pause).min(DELAY_MAX).as_secs_f64();
    }

    /// Counts a write that the backlog has delayed.
    pub(super) fn record_stall(&self, time: Duration) {
        let stalls = &mut self.state.lock().stalls;
        stalls[0] += 1;
        stalls[1] += u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    }

    /// Returns the number of delayed writes, and the sum of their delays in microseconds.
    pub(in crate::lsm) fn stalls(&self) -> [u64; 2] {
        self.state.lock().stalls
    }

    /// Records the end of a flush and wakes the writers that wait for it.
    pub(in crate::lsm) fn flush_attempted(&self, result: Result<(), Error>) {
        let mut state = self.state.lock();
        state.attempts += 1;
        state.flush_error = result.err();
        drop(state);
        self.attempted.notify_all();
    }

    /// Wakes the writers that wait for a flush, so that they check again whether they must wait.
    pub(in crate::lsm) fn wake(&self) {
        self.state.lock().attempts += 1;
        self.attempted.notify_all();
    }

    /// Returns the error of the last flush, if it failed.
    pub(in crate::lsm) fn flush_error(&self) -> Option<Error> {
        self.state.lock().flush_error.clone()
    }

    /// Returns the number of attempted flushes.
    pub(in crate::lsm) fn attempts(&self) -> u64 {
        self.state.lock().attempts
    }

    /// Waits until more than `seen` flushes were attempted. Returns the error of the last one, if
    /// it failed.
    pub(in crate::lsm) fn wait_for_flush(&self, seen: u64) -> Result<()> {
        let mut state = self.state.lock();
        debug_assert!(seen <= state.attempts, "flush attempts are counted up");
        while state.attempts == seen {
            self.attempted.wait(&mut state);
        }
        state.flush_error.clone().map_or(Ok(()), Err)
    }

    /// Waits for the end of a flush, but at most for `time`.
    pub(in crate::lsm) fn pause(&self, time: Duration) {
        let mut state = self.state.lock();
        self.attempted.wait_for(&mut state, time);
    }
}

/// Returns the time for `bytes` at a pace of `mib` per MiB; `None` while the pace is unknown.
fn time_of(mib: Duration, bytes: usize) -> Option<Duration> {
    (!mib.is_zero()).then(|| mib.mul_f64(bytes as f64 / MIB))
}

/// Moves the average `mib` halfway to the time per MiB that the last `bytes` bytes took.
fn average(mib: &mut Duration, bytes: u64, time: Duration) {
    let now = time.mul_f64(MIB / (bytes as f64).max(MIB / 64.0));
    let before = if mib.is_zero() { now } else { *mib };
    *mib = (before + now) / 2;
}

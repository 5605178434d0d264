//! Reads the wall clock, from which Seqs (commit numbers) are derived, and the monotonic clock,
//! which measures intervals and rates. No other module reads the system's clocks.

use std::fmt;
use std::time::Duration;

use crate::sync::{AtomicU64, Ordering};

/// Ticks of 100 ns in a second.
pub(crate) const TICKS_PER_SECOND: u64 = 10_000_000;
/// Ticks from 1601-01-01 to 1970-01-01.
pub(crate) const TICKS_TO_UNIX_EPOCH: u64 = 11_644_473_600 * TICKS_PER_SECOND;

/// Returns a duration in ticks, rounded down and saturated at `u64::MAX`.
pub(crate) fn ticks_in(time: Duration) -> u64 {
    u64::try_from(time.as_nanos() / 100).unwrap_or(u64::MAX)
}

/// The source of time of a database.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns the wall clock in ticks of 100 ns since 1601-01-01 UTC. It may jump forward or back.
    fn now(&self) -> u64;
    /// Returns the time since a fixed moment; it never decreases.
    fn monotonic(&self) -> Duration;
}

/// The system's clock.
#[derive(Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl SystemClock {
    /// Creates a clock whose monotonic time starts now.
    #[expect(clippy::disallowed_methods, reason = "this is the module that may")]
    pub fn new() -> Self {
        Self { start: std::time::Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the module that may")]
    fn now(&self) -> u64 {
        // A clock before 1970 reads as 1970. That is harmless, because Seqs only need to increase.
        let since = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        TICKS_TO_UNIX_EPOCH
            .saturating_add(since.as_secs().saturating_mul(TICKS_PER_SECOND))
            .saturating_add(u64::from(since.subsec_nanos()) / 100)
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A clock that changes only on request, for tests and simulations.
#[derive(Debug)]
pub struct ManualClock {
    now: AtomicU64,
    monotonic_nanos: AtomicU64,
}

impl ManualClock {
    /// Creates a clock at `now`, in ticks of 100 ns since 1601-01-01 UTC.
    pub fn new(now: u64) -> Self {
        Self { now: AtomicU64::new(now), monotonic_nanos: AtomicU64::new(0) }
    }

    /// Advances the wall clock and the monotonic clock by `by`.
    pub fn advance(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.now.fetch_add(nanos / 100, Ordering::SeqCst);
        self.monotonic_nanos.fetch_add(nanos, Ordering::SeqCst);
    }

    /// Sets the wall clock to `now`, forward or back; the monotonic clock does not change.
    pub fn jump(&self, now: u64) {
        self.now.store(now, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.monotonic_nanos.load(Ordering::SeqCst))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_jumps_without_moving_monotonic_time() {
        let clock = ManualClock::new(1000);
        clock.advance(Duration::from_micros(1));
        assert_eq!((clock.now(), clock.monotonic()), (1010, Duration::from_micros(1)));
        clock.jump(5);
        assert_eq!((clock.now(), clock.monotonic()), (5, Duration::from_micros(1)));
    }

    #[test]
    fn the_system_clock_is_after_2020() {
        assert!(
            SystemClock::new().now() > TICKS_TO_UNIX_EPOCH + 50 * 365 * 86_400 * TICKS_PER_SECOND
        );
    }
}

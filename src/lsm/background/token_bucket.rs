//! The rate limit of background writes, a token bucket: time fills it, written bytes empty it. The
//! caller passes the time, so the module reads no clock.
//!
//! Invariants
//! * Over any period, the admitted bytes are at most the rate times the period plus one full
//!   bucket. Only bytes that are never delayed (flushes) may exceed this.
//! * The bucket holds only what a short time ([`BURST`]) fills, so that the burst after a long
//!   pause does not slow down commits.

use std::time::Duration;

/// The capacity of the bucket: the time in which an empty bucket becomes full.
const BURST: Duration = Duration::from_millis(250);

/// The rate limit and the state of the bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::lsm) struct Pace {
    bytes_per_second: u64,
    /// The time at which the tokens for all bytes taken so far will have accrued. Until then, the
    /// bucket is in debt.
    paid_until: Duration,
}

impl Pace {
    /// Creates a full bucket. A rate of zero means no limit.
    pub(in crate::lsm) fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second, paid_until: Duration::ZERO }
    }

    /// Takes `bytes` at time `now`. Returns how long to wait before taking more.
    pub(in crate::lsm) fn take(&mut self, bytes: u64, now: Duration) -> Duration {
        if self.bytes_per_second == 0 {
            return Duration::ZERO;
        }
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let from = self.paid_until.max(now.saturating_sub(BURST));
        self.paid_until = from.saturating_add(cost);
        debug_assert!(self.paid_until >= now.saturating_sub(BURST), "a bucket has a bottom");
        self.paid_until.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn no_limit_never_waits() {
        assert_eq!(Pace::new(0).take(u64::MAX, at(0)), Duration::ZERO);
    }

    #[test]
    fn a_burst_of_a_quarter_of_a_second_is_free_and_the_rest_waits() {
        let mut pace = Pace::new(100 * MIB);
        assert_eq!(pace.take(25 * MIB, at(1_000)), Duration::ZERO);
        assert_eq!(pace.take(10 * MIB, at(1_000)), at(100));
        assert_eq!(pace.take(10 * MIB, at(1_100)), at(100));
        // However long the pause, the bucket fills only to its capacity.
        assert_eq!(pace.take(35 * MIB, at(60_000)), at(100));
    }

    #[test]
    fn callers_that_wait_as_required_keep_the_rate() {
        let mut pace = Pace::new(10 * MIB);
        let (mut now, mut bytes) = (at(5_000), 0);
        while now < at(25_000) {
            bytes += 300_000;
            now += pace.take(300_000, now);
        }
        assert!(bytes <= 10 * MIB * 20 + 10 * MIB / 4 + 300_000, "{bytes}");
        assert!(bytes >= 10 * MIB * 20, "{bytes}");
    }
}

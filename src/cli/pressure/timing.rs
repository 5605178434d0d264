//! Collects the latencies of a stress test's requests, by kind.

use std::time::Duration;

use crate::cli::histogram::Histogram;

/// The latencies of all reads and writes, and the duration of the test.
#[derive(Clone, Debug, Default)]
pub(super) struct Timing {
    pub(super) reads: Histogram,
    pub(super) writes: Histogram,
    pub(super) elapsed: Duration,
}

impl Timing {
    pub(super) fn note(&mut self, is_read: bool, took: Duration) {
        if is_read { self.reads.note(took) } else { self.writes.note(took) }
    }

    /// Adds the requests of a concurrent client.
    pub(super) fn add(&mut self, other: &Timing) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.elapsed = self.elapsed.max(other.elapsed);
    }

    pub(super) fn per_second(&self) -> u64 {
        self.rate(&self.reads) + self.rate(&self.writes)
    }

    /// Returns the requests per second of one kind: `side` is `reads` or `writes`.
    pub(super) fn rate(&self, side: &Histogram) -> u64 {
        side.count() * 1_000 / self.elapsed.as_millis().max(1) as u64
    }
}

/// Returns the microseconds within which `percent` of the requests ended; 0 without requests.
pub(super) fn micros(side: &Histogram, percent: f64) -> u64 {
    side.percentile(percent).div_ceil(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_percentiles_of_two_clients() {
        let mut timing = Timing::default();
        (1..=1_000).for_each(|micros| timing.note(true, Duration::from_micros(micros)));
        timing.elapsed = Duration::from_secs(2);
        assert!((500..=516).contains(&micros(&timing.reads, 50.0)));
        assert!((990..=1_000).contains(&micros(&timing.reads, 99.0)));
        assert_eq!((timing.per_second(), micros(&timing.writes, 99.0)), (500, 0));
        let mut both = timing.clone();
        both.add(&timing);
        assert_eq!(both.per_second(), 1_000);
    }
}

//! Counts latencies in nanoseconds in a histogram of bounded size.
//!
//! Invariants
//! * a latency is rounded by at most 1/64; count, sum and maximum are exact;
//! * adding two histograms gives the histogram of all their latencies.

use std::time::Duration;

use hdrhistogram::Histogram as Counts;

/// Latencies of operations.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    counts: Counts<u64>,
    sum: u128,
    max: u64,
}

/// A row of the printed histogram: the number of latencies of at least `from` and below `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        let counts = Counts::new(2).expect("two significant digits are possible");
        Self { counts, sum: 0, max: 0 }
    }
}

impl Histogram {
    pub(super) fn note(&mut self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.counts.record(nanos).expect("the range grows by itself");
        self.sum += u128::from(nanos);
        self.max = self.max.max(nanos);
    }

    /// Adds the latencies of `other`.
    pub(super) fn add(&mut self, other: &Histogram) {
        self.counts += &other.counts;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    pub(super) fn count(&self) -> u64 {
        self.counts.len()
    }

    /// Returns the longest latency in nanoseconds.
    pub(super) fn max(&self) -> u64 {
        self.max
    }

    /// Returns the mean latency in nanoseconds; 0 without latencies.
    pub(super) fn mean(&self) -> u64 {
        self.sum.checked_div(u128::from(self.count())).unwrap_or(0) as u64
    }

    /// Returns the latency in nanoseconds that `percent` of the operations do not exceed, rounded
    /// up by at most 1/64; 0 without latencies.
    pub(super) fn percentile(&self, percent: f64) -> u64 {
        self.counts.value_at_percentile(percent).min(self.max)
    }

    /// Returns the non-empty rows of the printed histogram, in ascending order. Every factor of two
    /// is divided into four rows.
    pub(super) fn listing(&self) -> Vec<Bucket> {
        let mut rows: Vec<Bucket> = Vec::new();
        for found in self.counts.iter_recorded() {
            let (nanos, count) = (found.value_iterated_to(), found.count_at_value());
            let shift = (nanos | 1).ilog2().saturating_sub(2).max(3);
            let from = nanos >> shift << shift;
            match rows.last_mut().filter(|row| row.from == from) {
                Some(row) => row.count += count,
                None => rows.push(Bucket { from, to: from.saturating_add(1 << shift), count }),
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(nanos: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        nanos.into_iter().for_each(|nanos| histogram.note(Duration::from_nanos(nanos)));
        histogram
    }

    #[test]
    fn percentiles_of_known_times() {
        let times = of(1..=100_000);
        for (percent, exact) in [(50.0, 50_000), (75.0, 75_000), (99.0, 99_000), (99.99, 99_990)] {
            let found = times.percentile(percent);
            assert!(found >= exact && found <= exact + exact / 32, "{percent}: {found}");
        }
        assert_eq!((times.percentile(100.0), times.max()), (100_000, 100_000));
        assert_eq!((times.percentile(0.0), times.mean(), times.count()), (1, 50_000, 100_000));
        assert_eq!((of([7]).percentile(99.9), of([]).percentile(50.0), of([]).mean()), (7, 0, 0));
    }

    #[test]
    fn sums_have_the_operations_of_both() {
        let (mut low, high) = (of(0..500), of(500..1_000));
        low.add(&high);
        let all = of(0..1_000);
        assert_eq!(low.listing(), all.listing());
        assert_eq!((low.count(), low.mean(), low.max()), (1_000, all.mean(), 999));
        assert_eq!(low.percentile(99.0), all.percentile(99.0));
    }

    #[test]
    fn a_listing_has_every_operation_once_and_ascends() {
        let listing = of([3, 40, 41, 1_000_000]).listing();
        let counts: Vec<_> = listing.iter().map(|row| row.count).collect();
        assert_eq!(counts, [1, 2, 1]);
        assert!(listing.windows(2).all(|pair| pair[0].to <= pair[1].from));
        assert_eq!((listing[0], listing[1].from), (Bucket { from: 0, to: 8, count: 1 }, 40));
    }
}

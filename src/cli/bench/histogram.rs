//! How often an operation took how long: a log-linear histogram of nanoseconds in bounded memory.
//!
//! Invariants
//! * a time is known to a 32nd of itself; count, sum and the largest are exact;
//! * adding two histograms gives the histogram of both.

use std::time::Duration;

/// Steps of a doubling.
const STEPS: usize = 32;
const STEP_BITS: u32 = STEPS.ilog2();
/// Buckets for all of `u64`: the numbers below `STEPS`, and the doublings above.
const BUCKETS: usize = STEPS * (64 - STEP_BITS as usize + 1);
/// Buckets that a listing takes together: four rows a doubling.
const LISTED_TOGETHER: usize = STEPS / 4;

/// Times of operations.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    max: u64,
}

/// A row of a listing: times from `from` to below `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Bucket {
    pub(in crate::cli) from: u64,
    pub(in crate::cli) to: u64,
    pub(in crate::cli) count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], count: 0, sum: 0, max: 0 }
    }
}

impl Histogram {
    pub(in crate::cli) fn note(&mut self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanos)] += 1;
        self.count += 1;
        self.sum += u128::from(nanos);
        self.max = self.max.max(nanos);
    }

    /// The operations of `other` too.
    pub(in crate::cli) fn add(&mut self, other: &Histogram) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(sum, count)| *sum += count);
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    pub(in crate::cli) fn count(&self) -> u64 {
        self.count
    }

    /// Nanoseconds of the longest.
    pub(in crate::cli) fn max(&self) -> u64 {
        self.max
    }

    /// Nanoseconds on average; 0 without any.
    pub(in crate::cli) fn mean(&self) -> u64 {
        let mean = self.sum.checked_div(u128::from(self.count)).unwrap_or(0);
        u64::try_from(mean).unwrap_or(u64::MAX)
    }

    /// Nanoseconds within which `percent` of the operations ended, rounded up by at most a 32nd; 0 without any.
    pub(in crate::cli) fn percentile(&self, percent: f64) -> u64 {
        let rank = (self.count as f64 * percent / 100.0).ceil() as u64;
        let mut left = rank.clamp(1, self.count.max(1));
        for (at, count) in self.buckets.iter().enumerate() {
            if *count >= left {
                return last_of(at).min(self.max);
            }
            left -= count;
        }
        0
    }

    /// The rows that are not empty, ascending.
    pub(in crate::cli) fn listing(&self) -> Vec<Bucket> {
        let groups = self.buckets.chunks(LISTED_TOGETHER).enumerate();
        let rows = groups.map(|(group, counts)| {
            let first = group * LISTED_TOGETHER;
            let to = last_of(first + counts.len() - 1).saturating_add(1);
            Bucket { from: first_of(first), to, count: counts.iter().sum() }
        });
        rows.filter(|row| row.count > 0).collect()
    }
}

fn bucket(nanos: u64) -> usize {
    let doubling = (nanos | 1).ilog2().saturating_sub(STEP_BITS);
    match nanos {
        // The first doubling has its own unit, and is exact.
        _ if nanos < STEPS as u64 => nanos as usize,
        _ => (doubling as usize + 1) * STEPS + (nanos >> doubling) as usize - STEPS,
    }
}

fn first_of(bucket: usize) -> u64 {
    match (bucket / STEPS, bucket % STEPS) {
        (0, step) => step as u64,
        (doubling, step) => ((STEPS + step) as u64) << (doubling - 1),
    }
}

fn last_of(bucket: usize) -> u64 {
    match bucket + 1 {
        BUCKETS.. => u64::MAX,
        next => first_of(next) - 1,
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
    fn every_time_lies_in_its_bucket() {
        let powers = (0..64).map(|bit| 1u64 << bit);
        let around = powers.flat_map(|power| [power - 1, power, power | (power >> 1) | 1]);
        for nanos in (0..10_000).chain(around).chain([u64::MAX]) {
            let at = bucket(nanos);
            assert!(at < BUCKETS && first_of(at) <= nanos && nanos <= last_of(at), "{nanos}");
            assert!(last_of(at) - first_of(at) <= nanos / 32, "{nanos}");
        }
    }

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        let follow = |at: usize| last_of(at) + 1 == first_of(at + 1);
        assert!((0..BUCKETS - 1).all(follow));
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

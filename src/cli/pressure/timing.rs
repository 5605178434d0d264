//! How many requests there were and how long they took, in bounded memory.

use std::time::Duration;

/// Steps of a doubling: a time is known to an eighth of itself.
const STEPS: usize = 8;
/// Doublings of a microsecond: up to an hour.
const DOUBLINGS: usize = 32;

/// Requests of one kind.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub(super) count: u64,
    buckets: Vec<u64>,
}

/// All requests, and over which time they ran.
#[derive(Clone, Debug, Default)]
pub(super) struct Timing {
    pub(super) reads: Side,
    pub(super) writes: Side,
    pub(super) elapsed: Duration,
}

impl Default for Side {
    fn default() -> Self {
        Self { count: 0, buckets: vec![0; STEPS * DOUBLINGS] }
    }
}

impl Side {
    fn note(&mut self, took: Duration) {
        self.count += 1;
        let last = self.buckets.len() - 1;
        self.buckets[bucket(took).min(last)] += 1;
    }

    fn add(&mut self, other: &Side) {
        self.count += other.count;
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(sum, count)| *sum += count);
    }

    pub(super) fn per_second(&self, elapsed: Duration) -> u64 {
        let millis = elapsed.as_millis().max(1) as u64;
        self.count * 1000 / millis
    }

    /// The time below which `percent` of the requests stayed, to an eighth of itself; 0 without any.
    pub(super) fn micros(&self, percent: u64) -> u64 {
        let mut left = (self.count * percent).div_ceil(100);
        for (at, count) in self.buckets.iter().enumerate() {
            if left > 0 && *count >= left {
                return upper_micros(at);
            }
            left -= (*count).min(left);
        }
        0
    }
}

impl Timing {
    pub(super) fn note(&mut self, is_read: bool, took: Duration) {
        if is_read { self.reads.note(took) } else { self.writes.note(took) }
    }

    /// Requests of another client, at the same time.
    pub(super) fn add(&mut self, other: &Timing) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.elapsed = self.elapsed.max(other.elapsed);
    }

    pub(super) fn per_second(&self) -> u64 {
        self.reads.per_second(self.elapsed) + self.writes.per_second(self.elapsed)
    }
}

fn bucket(took: Duration) -> usize {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    if micros < STEPS as u64 {
        return micros as usize;
    }
    let doubling = micros.ilog2() as usize - STEPS.ilog2() as usize;
    let step = (micros >> doubling) as usize - STEPS;
    (doubling + 1) * STEPS + step
}

fn upper_micros(bucket: usize) -> u64 {
    let (doubling, step) = (bucket / STEPS, bucket % STEPS);
    match doubling {
        0 => step as u64,
        _ => ((STEPS + step + 1) as u64) << (doubling - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_known_to_an_eighth() {
        for micros in (0..5_000).chain([1 << 20, 3_600_000_000]) {
            let upper = upper_micros(bucket(Duration::from_micros(micros)));
            assert!(upper >= micros && upper <= micros + micros / 8 + 1, "{micros} {upper}");
        }
    }

    #[test]
    fn percentiles_of_many_times() {
        let mut timing = Timing::default();
        (1..=1_000).for_each(|micros| timing.note(true, Duration::from_micros(micros)));
        timing.elapsed = Duration::from_secs(2);
        assert!((500..=576).contains(&timing.reads.micros(50)));
        assert!((990..=1_120).contains(&timing.reads.micros(99)));
        assert_eq!((timing.per_second(), timing.writes.micros(99)), (500, 0));
        let mut both = timing.clone();
        both.add(&timing);
        assert_eq!(both.per_second(), 1_000);
    }
}

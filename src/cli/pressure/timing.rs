//! Collects the latencies of a stress test's requests, by kind.

use std::time::Duration;

use super::mix::Kind;
use crate::cli::histogram::Histogram;

/// The latencies of all requests, and the duration of the test.
#[derive(Clone, Debug, Default)]
pub(super) struct Timing {
    kinds: [Histogram; Kind::ALL.len()],
    entities: u64,
    pub(super) elapsed: Duration,
}

impl Timing {
    /// Records a request for `entities` entities.
    pub(super) fn note(&mut self, kind: Kind, entities: u64, took: Duration) {
        self.kinds[kind as usize].note(took);
        self.entities += entities;
    }

    /// Adds the requests of a concurrent client.
    pub(super) fn add(&mut self, other: &Timing) {
        self.kinds.iter_mut().zip(&other.kinds).for_each(|(kind, other)| kind.add(other));
        self.entities += other.entities;
        self.elapsed = self.elapsed.max(other.elapsed);
    }

    /// Returns the entities per second, by which the service counts.
    pub(super) fn entities_per_second(&self) -> u64 {
        self.per_second(self.entities)
    }

    /// Returns the requests of `kind` per second.
    pub(super) fn rate(&self, kind: Kind) -> u64 {
        self.per_second(self.kinds[kind as usize].count())
    }

    fn per_second(&self, count: u64) -> u64 {
        count * 1_000 / self.elapsed.as_millis().max(1) as u64
    }

    /// Returns the microseconds within which `percent` of the requests of `kind` ended; 0 without
    /// requests.
    pub(super) fn micros(&self, kind: Kind, percent: f64) -> u64 {
        self.kinds[kind as usize].percentile(percent).div_ceil(1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_percentiles_of_two_clients() {
        let mut timing = Timing::default();
        (1..=1_000).for_each(|micros| timing.note(Kind::Get, 1, Duration::from_micros(micros)));
        (0..100).for_each(|_| timing.note(Kind::Group, 10, Duration::from_micros(5)));
        timing.elapsed = Duration::from_secs(2);
        assert!((500..=516).contains(&timing.micros(Kind::Get, 50.0)));
        assert!((990..=1_000).contains(&timing.micros(Kind::Get, 99.0)));
        assert_eq!((timing.rate(Kind::Get), timing.rate(Kind::Group)), (500, 50));
        assert_eq!((timing.entities_per_second(), timing.micros(Kind::Put, 99.0)), (1_000, 0));
        let mut both = timing.clone();
        both.add(&timing);
        assert_eq!(both.entities_per_second(), 2_000);
    }
}

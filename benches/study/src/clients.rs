//! Runs concurrent clients, and collects their throughput and latencies. Each client sends its next
//! call when the previous one has ended.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::Outcome;

/// Latencies in nanoseconds, with a precision of three digits.
#[derive(Clone, Debug)]
pub(crate) struct Latencies(Histogram<u64>);

/// The counts and latencies of one or more clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// The number of entities that were inserted or found.
    pub(crate) operations: u64,
    /// One latency for each call.
    pub(crate) latencies: Latencies,
    /// The time from the start of the first call to the end of the last.
    pub(crate) elapsed: Duration,
}

/// Times the calls of one client. Each call starts when the previous one ends.
pub(crate) struct Watch {
    time: Duration,
    started: Instant,
    tally: Tally,
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new(3).expect("three digits are possible");
        Self(histogram)
    }
}

impl Latencies {
    pub(crate) fn note(&mut self, took: Duration) {
        self.note_many(took.as_nanos() as u64, 1);
    }

    /// Records `count` latencies of `nanos`.
    pub(crate) fn note_many(&mut self, nanos: u64, count: u64) {
        self.0.record_n(nanos, count).expect("the histogram grows by itself");
    }

    /// Returns the latencies in nanoseconds, each with the number of its calls.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()))
    }

    /// Returns the latency in nanoseconds that `percent` of the calls do not exceed; 0 without
    /// calls.
    pub(crate) fn percentile(&self, percent: f64) -> u64 {
        self.0.value_at_percentile(percent)
    }

    /// Returns the mean latency in nanoseconds; 0 without calls.
    pub(crate) fn mean(&self) -> u64 {
        self.0.mean() as u64
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }
}

impl Tally {
    pub(crate) fn per_second(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    pub(crate) fn add(&mut self, other: &Tally) {
        self.operations += other.operations;
        self.latencies.0 += &other.latencies.0;
        self.elapsed = self.elapsed.max(other.elapsed);
    }
}

impl Watch {
    /// Starts the clock of a client that runs for `time`.
    pub(crate) fn start(time: Duration) -> Self {
        Self { time, started: Instant::now(), tally: Tally::default() }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.tally.elapsed >= self.time
    }

    /// Records the end of a call that inserted or found `operations` entities.
    pub(crate) fn lap(&mut self, operations: u64) {
        let elapsed = self.started.elapsed();
        self.tally.latencies.note(elapsed - self.tally.elapsed);
        self.tally.elapsed = elapsed;
        self.tally.operations += operations;
    }

    pub(crate) fn end(self) -> Tally {
        self.tally
    }
}

/// Runs `client` on `count` threads, waits for all of them, and adds up their figures. Returns the
/// first failure if there is one.
pub(crate) fn run_clients(
    count: u32,
    client: impl Fn(u32) -> Outcome<Tally> + Sync,
) -> Outcome<Tally> {
    std::thread::scope(|scope| {
        let client = &client;
        let threads: Vec<_> =
            (0..count).map(|number| scope.spawn(move || client(number))).collect();
        let ends: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        let mut sum = Tally::default();
        for end in ends {
            sum.add(&end.unwrap_or_else(|_| Err("a client ended early".into()))?);
        }
        Ok(sum)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_up_and_take_as_long_as_the_longest() {
        let tally = |operations, seconds| Tally {
            operations,
            elapsed: Duration::from_secs(seconds),
            ..Tally::default()
        };
        let sum = run_clients(2, |number| Ok(tally(1_000, u64::from(number) + 1))).unwrap();
        assert_eq!((sum.operations, sum.elapsed), (2_000, Duration::from_secs(2)));
        assert_eq!(sum.per_second(), 1_000.0);
    }

    #[test]
    fn the_failure_of_one_client_is_the_outcome() {
        let failed = run_clients(3, |number| match number {
            1 => Err("one".into()),
            _ => Ok(Tally::default()),
        });
        assert_eq!(failed.unwrap_err().to_string(), "one");
    }
}

//! Runs concurrent clients, and counts and times the operations of each.
//!
//! Not here: the operations themselves (`workload`).

use std::time::Duration;

use crate::cli::failure::{Failure, Outcome};
use crate::cli::histogram::Histogram;
use crate::cli::progress::Progress;
use crate::clock::{Clock, SystemClock};

/// The totals of the operations of one client, or of several clients.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// The number of entities that were written, found or looked up. Rates are based on it.
    pub(super) operations: u64,
    /// Bytes of the keys and values that were written or read.
    pub(super) bytes: u64,
    /// Entities returned by reads.
    pub(super) found: u64,
    /// One latency per call of the database.
    pub(super) latencies: Histogram,
    /// The time from the start of the first operation to the end of the last.
    pub(super) elapsed: Duration,
}

/// The counts of one call of the database.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    pub(super) operations: u64,
    pub(super) bytes: u64,
    pub(super) found: u64,
}

/// Times one client's calls in a closed loop: each call begins when the previous one ends.
pub(super) struct Watch<'r> {
    clock: &'r SystemClock,
    progress: Option<&'r Progress>,
    /// The end time, if the run is limited by time.
    end: Option<Duration>,
    last: Duration,
    shown: u64,
    tally: Tally,
}

/// The number of operations between two updates of the progress bar.
const SHOWN_STEP: u64 = 1_000;

impl Tally {
    /// Adds the totals of a client that ran concurrently.
    pub(super) fn add(&mut self, other: &Tally) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.found += other.found;
        self.latencies.add(&other.latencies);
        self.elapsed = self.elapsed.max(other.elapsed);
    }

    pub(super) fn sum(tallies: &[Tally]) -> Tally {
        let mut sum = Tally::default();
        tallies.iter().for_each(|tally| sum.add(tally));
        sum
    }

    pub(super) fn per_second(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Returns the elapsed time in microseconds divided by the operations of all clients.
    pub(super) fn micros_per_operation(&self) -> f64 {
        self.elapsed.as_secs_f64() * 1e6 / self.operations.max(1) as f64
    }

    /// Returns millions of bytes per second.
    pub(super) fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

impl<'r> Watch<'r> {
    /// Starts the clock. The run ends after `time`, if it is given.
    pub(super) fn start(
        clock: &'r SystemClock,
        time: Option<Duration>,
        progress: Option<&'r Progress>,
    ) -> Self {
        let last = clock.monotonic();
        let end = time.map(|time| last + time);
        Self { clock, progress, end, last, shown: 0, tally: Tally::default() }
    }

    /// Whether the time of the run is over. Without a time limit it always returns true.
    pub(super) fn is_over(&self) -> bool {
        self.end.is_none_or(|end| self.last >= end)
    }

    /// Excludes the time since the last call from the measurement, and moves the end of the run by
    /// as much.
    pub(super) fn restart(&mut self) {
        let idle = self.split();
        self.end = self.end.map(|end| end + idle);
    }

    pub(super) fn lap(&mut self, done: Done) {
        let took = self.split();
        self.tally.latencies.note(took);
        self.count(done, took);
    }

    /// Counts the operations of a call and its time, but records no latency.
    pub(super) fn count_untimed(&mut self, done: Done) {
        let took = self.split();
        self.count(done, took);
    }

    /// Returns the time since `split` was last called, or since the start.
    fn split(&mut self) -> Duration {
        let now = self.clock.monotonic();
        now.saturating_sub(std::mem::replace(&mut self.last, now))
    }

    pub(super) fn end(self) -> Tally {
        if let Some(progress) = self.progress {
            progress.advance(self.tally.operations - self.shown);
        }
        self.tally
    }

    fn count(&mut self, done: Done, took: Duration) {
        let tally = &mut self.tally;
        tally.elapsed += took;
        tally.operations += done.operations;
        tally.bytes += done.bytes;
        tally.found += done.found;
        if tally.operations - self.shown >= SHOWN_STEP {
            if let Some(progress) = self.progress {
                progress.advance(tally.operations - self.shown);
            }
            self.shown = tally.operations;
        }
    }
}

/// Runs `client` on `count` threads, and waits for all of them; returns the first failure.
pub(super) fn run_clients<T: Send>(
    count: u32,
    client: impl Fn(u32) -> Outcome<T> + Sync,
) -> Outcome<Vec<T>> {
    std::thread::scope(|scope| {
        let client = &client;
        let threads: Vec<_> = (0..count)
            .map(|number| {
                let thread = std::thread::Builder::new().name(format!("bench-{number}"));
                thread.spawn_scoped(scope, move || client(number))
            })
            .collect();
        let ends = threads.into_iter().map(|thread| match thread {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|_| Err(Failure::Other("a client ended early".to_owned()))),
            Err(error) => Err(Failure::Other(format!(
                "cannot start a thread: {error}\n  try: fewer --threads"
            ))),
        });
        // Joins every thread, even if one has failed.
        ends.collect::<Vec<_>>().into_iter().collect()
    })
}

/// Returns the part of `count` items that client `number` of `clients` handles, as (start, end).
pub(super) fn share(count: u64, clients: u32, number: u32) -> (u64, u64) {
    let at = |number: u32| {
        let (clients, number) = (u128::from(clients.max(1)), u128::from(number));
        (u128::from(count) * number / clients) as u64
    };
    (at(number), at(number + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_clients_cover_everything_once() {
        for (count, clients) in [(10, 3), (2, 4), (0, 2), (u64::MAX, 7)] {
            let shares: Vec<_> = (0..clients).map(|number| share(count, clients, number)).collect();
            assert_eq!((shares[0].0, shares[clients as usize - 1].1), (0, count));
            assert!(shares.windows(2).all(|pair| pair[0].1 == pair[1].0));
        }
    }

    #[test]
    fn tallies_of_clients_add_up_and_last_as_long_as_the_longest() {
        let tally = |operations, seconds| Tally {
            operations,
            bytes: operations * 1_000,
            elapsed: Duration::from_secs(seconds),
            ..Tally::default()
        };
        let sum = Tally::sum(&[tally(1_000, 1), tally(3_000, 2)]);
        assert_eq!((sum.operations, sum.elapsed), (4_000, Duration::from_secs(2)));
        assert_eq!((sum.per_second(), sum.micros_per_operation()), (2_000.0, 500.0));
        assert_eq!(sum.megabytes_per_second(), 2.0);
    }

    #[test]
    fn a_failure_of_one_client_is_the_outcome() {
        let numbers = run_clients(3, Ok).unwrap();
        assert_eq!(numbers, [0, 1, 2]);
        let failed = run_clients(3, |number| match number {
            1 => Err(Failure::Usage("one".to_owned())),
            number => Ok(number),
        });
        assert!(matches!(failed, Err(Failure::Usage(text)) if text == "one"));
    }
}

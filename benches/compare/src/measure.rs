//! Times operations: each thread executes chunks of prepared operations until a budget is used up.
//!
//! Operations are prepared and answers are checked outside the measured time, so that neither is
//! charged to an engine. Background work of an engine continues between chunks; these pauses are
//! equally long for all engines.
//! Invariants
//! * the clock runs only during operations;
//! * the results of a chunk are checked before the next one is prepared.
//!
//! Not here: the operations (`workloads/`).

use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::process::{RunQueue, cpu_seconds};
use crate::store::Found;

/// Limits of a workload. It ends when the first of them is reached.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    pub ops: u64,
    pub time: Duration,
}

/// Timing of operations.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Operations that each thread prepares at a time.
    pub chunk: usize,
    /// One latency is measured per this many operations, because reading the clock costs about as
    /// much as a fast read.
    pub every: usize,
    /// Whether latencies exclude the time for which the thread waited for a processor.
    pub without_queue: bool,
}

/// Latencies in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub samples: u64,
    pub p50: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
    /// The share of the measured time that operations took beyond `p50`: what waits, for syncs,
    /// locks or background work, cost in all. `None` in lines of older runs.
    #[serde(default)]
    pub waits: Option<f64>,
}

/// The figures of a timed run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    pub ops: u64,
    /// The number of entities found or written.
    pub entities: u64,
    pub seconds: f64,
    /// Processor time of all threads, including the engine's, in the measured time.
    pub cpu_seconds: f64,
    pub latency: Latency,
}

type Make<'a, T> = Box<dyn FnMut(usize) -> Vec<T> + Send + 'a>;
type Act<'a, T> = Box<dyn FnMut(&T) -> Found + Send + 'a>;
type Check<'a, T> = Box<dyn FnMut(&[T], Found) + Send + 'a>;

/// The work of one thread: functions that prepare, execute and check operations.
pub struct Hand<'a, T> {
    /// Prepares at most the given number of operations. Returns none if no operations are left.
    pub make: Make<'a, T>,
    pub act: Act<'a, T>,
    /// Checks the combined results of the operations.
    pub check: Check<'a, T>,
}

impl Pace {
    /// For operations of about a microsecond or less.
    pub const FAST: Pace = Pace { chunk: 8_192, every: 16, without_queue: false };
    /// For writes without a sync, and for reads of many rows.
    pub const USUAL: Pace = Pace { chunk: 2_048, every: 1, without_queue: false };
    /// For operations that each take much of the time budget.
    pub const SLOW: Pace = Pace { chunk: 1, every: 1, without_queue: false };
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Self {
        let p50 = histogram.value_at_quantile(0.5);
        Self {
            samples: histogram.len(),
            p50,
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
            waits: waits(histogram, p50),
        }
    }
}

/// Returns the share of the total time that lies above `p50`; `None` without samples.
fn waits(histogram: &Histogram<u64>, p50: u64) -> Option<f64> {
    let sum = |of: &dyn Fn(u64) -> u64| -> f64 {
        let recorded = histogram.iter_recorded();
        recorded.map(|v| of(v.value_iterated_to()) as f64 * v.count_at_value() as f64).sum()
    };
    let total = sum(&|nanos| nanos);
    (total > 0.0).then(|| sum(&|nanos| nanos.saturating_sub(p50)) / total)
}

/// Summarizes latencies that the caller has measured.
pub fn latency_of(nanos: &[u64]) -> Latency {
    let mut latencies = histogram();
    nanos.iter().for_each(|nanos| latencies.saturating_record(*nanos));
    Latency::of(&latencies)
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("sound bounds")
}

/// The part of a chunk that one thread executed, with the time that it took.
struct Stretch {
    done: usize,
    time: Duration,
    found: Found,
}

/// State shared by the threads.
struct Shared {
    ops: u64,
    entities: u64,
    time: Duration,
    /// The longest time of a thread in the current chunk.
    longest: Duration,
    cpu_seconds: f64,
    latencies: Histogram<u64>,
}

/// Runs `hand` on this thread.
pub fn run<T>(mut hand: Hand<'_, T>, pace: Pace, budget: Budget) -> Timing {
    let mut latencies = histogram();
    let mut timing = Timing::default();
    let mut time = Duration::ZERO;
    let queue = pace.without_queue.then(RunQueue::of_this_thread).flatten();
    while timing.ops < budget.ops && time < budget.time {
        let left = (budget.ops - timing.ops).min(pace.chunk as u64) as usize;
        let items = (hand.make)(left);
        if items.is_empty() {
            break;
        }
        let (limit, cpu) = (budget.time - time, cpu_seconds());
        let stretch = stretch(&mut hand, &items, pace, limit, queue.as_ref(), &mut latencies);
        timing.cpu_seconds += cpu_seconds() - cpu;
        (hand.check)(&items[..stretch.done], stretch.found);
        timing.ops += stretch.done as u64;
        timing.entities += stretch.found.entities;
        time += stretch.time;
    }
    Timing { seconds: time.as_secs_f64(), latency: Latency::of(&latencies), ..timing }
}

/// Runs each of `hands` on its own thread, chunk after chunk, concurrently.
pub fn run_threads<T: Send>(hands: Vec<Hand<'_, T>>, pace: Pace, budget: Budget) -> Timing {
    let barrier = Barrier::new(hands.len());
    let shared = Mutex::new(Shared {
        ops: 0,
        entities: 0,
        time: Duration::ZERO,
        longest: Duration::ZERO,
        cpu_seconds: 0.0,
        latencies: histogram(),
    });
    std::thread::scope(|scope| {
        for hand in hands {
            let (barrier, shared) = (&barrier, &shared);
            scope.spawn(move || work(hand, pace, budget, barrier, shared));
        }
    });
    let shared = shared.into_inner().expect("no panic");
    Timing {
        ops: shared.ops,
        entities: shared.entities,
        seconds: shared.time.as_secs_f64(),
        cpu_seconds: shared.cpu_seconds,
        latency: Latency::of(&shared.latencies),
    }
}

/// Runs the chunks of one of several threads.
fn work<T>(
    mut hand: Hand<'_, T>,
    pace: Pace,
    budget: Budget,
    barrier: &Barrier,
    shared: &Mutex<Shared>,
) {
    let lock = || shared.lock().expect("no panic");
    let (mut latencies, mut last) = (histogram(), None);
    loop {
        let items = (hand.make)(pace.chunk);
        barrier.wait();
        // No thread changes these totals between the two barriers, so all threads make the same
        // decision.
        let (ops, time) = {
            let shared = lock();
            (shared.ops, shared.time)
        };
        // If the last chunk added no operations, none are left.
        if ops >= budget.ops || time >= budget.time || last == Some(ops) {
            break;
        }
        last = Some(ops);
        let is_leader = barrier.wait().is_leader();
        let cpu = cpu_seconds();
        let stretch = stretch(&mut hand, &items, pace, budget.time - time, None, &mut latencies);
        {
            let mut shared = lock();
            shared.longest = shared.longest.max(stretch.time);
            shared.ops += stretch.done as u64;
            shared.entities += stretch.found.entities;
        }
        barrier.wait();
        if is_leader {
            let mut shared = lock();
            shared.cpu_seconds += cpu_seconds() - cpu;
            let longest = std::mem::take(&mut shared.longest);
            shared.time += longest;
        }
        (hand.check)(&items[..stretch.done], stretch.found);
    }
    lock().latencies.add(&latencies).expect("equal bounds");
}

fn stretch<T>(
    hand: &mut Hand<'_, T>,
    items: &[T],
    pace: Pace,
    limit: Duration,
    queue: Option<&RunQueue>,
    latencies: &mut Histogram<u64>,
) -> Stretch {
    let mut found = Found::default();
    let mut waited = queue.map_or(0, RunQueue::waited_nanos);
    let (start, mut done) = (Instant::now(), 0);
    for group in items.chunks(pace.every) {
        let before = Instant::now();
        if before - start >= limit && done > 0 {
            break;
        }
        found.add((hand.act)(&group[0]));
        let mut nanos = before.elapsed().as_nanos() as u64;
        if let Some(queue) = queue {
            let now = queue.waited_nanos();
            nanos = nanos.saturating_sub(now - waited);
            waited = now;
        }
        latencies.saturating_record(nanos.max(1));
        for item in &group[1..] {
            found.add((hand.act)(item));
        }
        done += group.len();
    }
    Stretch { done, time: start.elapsed(), found }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    const LONG: Duration = Duration::from_secs(3600);

    fn hand<'a>(acted: &'a AtomicU64, checked: &'a AtomicU64) -> Hand<'a, u64> {
        let mut next = 0;
        Hand {
            make: Box::new(move |count| {
                next += count as u64;
                (next - count as u64..next).collect()
            }),
            act: Box::new(|item| {
                acted.fetch_add(1, Ordering::Relaxed);
                Found { entities: 1, digest: *item }
            }),
            check: Box::new(|items, found| {
                assert_eq!(found.entities, items.len() as u64);
                assert_eq!(found.digest, items.iter().sum::<u64>());
                checked.fetch_add(items.len() as u64, Ordering::Relaxed);
            }),
        }
    }

    #[test]
    fn all_operations_are_done_once_and_checked() {
        let (acted, checked) = (AtomicU64::new(0), AtomicU64::new(0));
        let pace = Pace { chunk: 64, every: 16, without_queue: false };
        let timing = run(hand(&acted, &checked), pace, Budget { ops: 1_000, time: LONG });
        assert_eq!((timing.ops, acted.into_inner(), checked.into_inner()), (1_000, 1_000, 1_000));
        assert_eq!(timing.latency.samples, 15 * 4 + 3);
    }

    #[test]
    fn threads_share_the_operations() {
        let (acted, checked) = (AtomicU64::new(0), AtomicU64::new(0));
        let hands = (0..3).map(|_| hand(&acted, &checked)).collect();
        let pace = Pace { chunk: 10, every: 1, without_queue: true };
        let timing = run_threads(hands, pace, Budget { ops: 100, time: LONG });
        assert_eq!((timing.ops, timing.latency.samples), (120, 120));
        assert_eq!((acted.into_inner(), checked.into_inner()), (120, 120));
    }

    #[test]
    fn waits_are_the_share_above_p50() {
        let latency = latency_of(&[100, 100, 100, 300]);
        assert_eq!((latency.p50, latency.waits), (100, Some(1.0 / 3.0)), "200 of 600 ns");
        assert_eq!(latency_of(&[]).waits, None);
    }
}

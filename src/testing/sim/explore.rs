//! Runs the simulation with many seeds on several threads. Each seed runs on one thread.
//!
//! Invariants
//! * the run of a seed depends on the seed alone, not on the number of threads or on other seeds;
//! * failures are reported in the order of their seeds.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::mutants::activate;
use crate::sync::Mutex;

use super::counts::Counts;
use super::program::{Failure, Mix, Program};

/// The number of steps of each generated program.
pub const STEPS: usize = 200;

/// Returns the program (database options and a list of steps) that is generated from `seed`.
///
/// ```
/// use rowstone::sim::{activate, explore};
///
/// let report = explore::program(42).run();
/// assert!(report.failure.is_none());
/// let mutant = activate("half-group"); // on this thread, until it is dropped
/// let failure = (0..50).find_map(|seed| explore::program(seed).run().failure);
/// assert!(failure.is_some());
/// ```
///
/// A failure names its seed, and `rowstone sim --seed n` runs it again. When the generator changes,
/// a seed denotes another program. [`Program::shrunk`] looks for fewer steps that fail in the same
/// way and prints them as a script. A script stays valid when the generator changes. Paste it into
/// a file under `tests/scripts`, run it with `rowstone sim --script`, or read it with
/// [`Program::from_script`].
pub fn program(seed: u64) -> Program {
    Program::random(seed, STEPS, Mix::ALL)
}

/// The results of an exploration so far.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    /// The number of seeds that were run.
    pub seeds: u64,
    /// The counts of events in these runs.
    pub counts: Counts,
    /// The seeds that failed, with the failures.
    pub failures: Vec<(u64, Failure)>,
}

/// Runs seeds from `first` on with `jobs` threads. `mutant`, if there is one, names a deliberate
/// bug that is active in every run. Ends after `count` seeds, or when `go_on` returns false, which
/// is called after every seed with the results so far.
pub fn explore(
    first: u64,
    count: u64,
    jobs: usize,
    mutant: Option<&'static str>,
    go_on: impl Fn(&Explored) -> bool + Sync,
) -> Explored {
    let next = AtomicU64::new(0);
    let ended = AtomicBool::new(false);
    let explored = Mutex::new(Explored::default());
    let work = || {
        let _active = mutant.map(activate);
        while !ended.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            let seed = first.wrapping_add(number);
            let report = program(seed).run();
            let mut explored = explored.lock();
            explored.seeds += 1;
            explored.counts.merge(&report.counts);
            explored.failures.extend(report.failure.map(|failure| (seed, failure)));
            if !go_on(&explored) {
                ended.store(true, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    let mut explored = explored.into_inner();
    explored.failures.sort_by_key(|(seed, _)| *seed);
    explored
}

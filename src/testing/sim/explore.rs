//! Many seeds: run by several threads, each seed by one, and what they came to.
//!
//! Invariants
//! * what a seed does depends on nothing else: not on the number of threads, nor on other seeds;
//! * failures are reported in the order of their seeds.
//!
//! Not here: the time that an exploration may take, and what it shows meanwhile (`cli`).

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::mutants::activate;
use crate::sync::Mutex;

use super::counts::Counts;
use super::program::{Failure, Mix, Program};

/// How many steps a program of an exploration has.
pub const STEPS: usize = 200;

/// The program that a seed stands for.
pub fn program(seed: u64) -> Program {
    Program::random(seed, STEPS, Mix::ALL)
}

/// What an exploration has come to so far.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    /// Seeds that were run.
    pub seeds: u64,
    /// What they met.
    pub counts: Counts,
    /// Those that failed.
    pub failures: Vec<(u64, Failure)>,
}

/// Runs seeds from `first` on with `jobs` threads, on each of them with `mutant` active if there is one, until `count`
/// were run or `go_on` says no; it is asked after every seed and sees what was found.
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

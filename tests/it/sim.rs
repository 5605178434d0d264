//! Tests of the simulation: seeds run without failure, replays are identical, and mutants are
//! detected.
//!
//! `SEEDS=n` sets the number of seeds. `.ci/run` calls `rowstone sim --mutants all`, which searches
//! for a seed that detects each mutant, with an optimised build.

use std::sync::LazyLock;

use rowstone::sim::counts::Event;
use rowstone::sim::explore::{Explored, STEPS, explore, program};
use rowstone::sim::program::{Mix, Program, quietly};
use rowstone::sim::{MUTANTS, activate};

use crate::say;

const SEEDS: u64 = 200;

/// The result of one run over many seeds, which several tests use.
static EXPLORED: LazyLock<Explored> = LazyLock::new(|| {
    let seeds = crate::cases("SEEDS", SEEDS);
    quietly(|| explore(1 << 32, seeds, 2, None, |found| found.failures.is_empty()))
});

#[test]
fn seeds_find_no_failure_and_cover_every_event() {
    if let Some((seed, failure)) = EXPLORED.failures.first() {
        panic!("{}", program(*seed).shrunk(failure));
    }
    say(EXPLORED.counts);
    // One event is rare: a job is declined because its inputs disappeared while it ran.
    let rare = [Event::CompactionDeclined];
    let missing: Vec<_> =
        EXPLORED.counts.missing().into_iter().filter(|event| !rare.contains(event)).collect();
    assert!(EXPLORED.seeds < SEEDS || missing.is_empty(), "never met: {missing:?}");
}

/// The queries of the seeds cover every case in which zones (statistics by which blocks are
/// skipped) could be wrong.
#[test]
fn trap_40_trap_53_queries_that_skip_blocks_find_all_rows() {
    assert_eq!(EXPLORED.failures.first(), None);
    for (event, least) in [
        (Event::Query, 500),
        (Event::QueryReverse, 50),
        (Event::PageResumed, 50),
        (Event::BlockSkipped, 25),
        (Event::BlockUnread, 25),
    ] {
        let count = EXPLORED.counts.get(event);
        assert!(EXPLORED.seeds < SEEDS || count >= least, "{}: {count}", event.name());
    }
}

#[test]
fn a_seed_replays_bit_for_bit() {
    for seed in 0..20 {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let one = program(seed).run_with(|at, lines| first.push((at, lines.to_vec())));
        let other = program(seed).run_with(|at, lines| second.push((at, lines.to_vec())));
        assert_eq!(first, second);
        assert_eq!((one.digest, one.counts), (other.digest, other.counts));
        assert_eq!(first.len(), STEPS);
    }
    assert_ne!(program(0).run().digest, program(1).run().digest);
}

/// The program of the first seed that detects a mutant is shrunk, printed, parsed and rerun.
#[test]
fn a_mutant_is_detected_and_its_script_reproduces_it() {
    for name in ["early-publish", "half-group", "unsynced-log"] {
        let mutant = MUTANTS.iter().find(|mutant| mutant.name == name).expect("in the list");
        let found =
            quietly(|| explore(0, 500, 1, Some(mutant.name), |found| found.failures.is_empty()));
        let (seed, failure) = found.failures.first().expect("detected within 500 seeds");
        let active = activate(mutant.name);
        let small = program(*seed).shrunk(failure);
        assert!(small.small.steps.len() < STEPS / 4, "{small}");
        let again = Program::from_script(&small.small.script()).unwrap();
        assert_eq!(again.run().failure.map(|f| f.kind()), Some(failure.kind()));
        drop(active);
        assert_eq!(again.run().failure, None, "without {name}");
    }
}

#[test]
fn any_bytes_are_a_program_that_ends() {
    let mut rng = rowstone::retry::Rng::from_seed(7);
    for length in [0usize, 1, 10, 1000] {
        let bytes: Vec<u8> = (0..length).map(|_| rng.next_u64() as u8).collect();
        let program = Program::from_bytes(&bytes, 100, Mix::ALL);
        assert!(program.steps.len() <= 100.min(length + 1));
        assert_eq!(program.run().failure, None);
    }
}

//! Runs random programs (sequences of operations) with random options on the engine and on a simple
//! model, the oracle, and compares the answers.
//!
//! `PROGRAMS=n` sets the number of programs, `SEED=n` runs only the program of this seed.

use crate::{cases, say};
use rowstone::sim::counts::{Counts, Event};
use rowstone::sim::program::{Mix, Program, check};

const PROGRAMS: u64 = 120;
const STEPS: usize = 500;

#[test]
fn programs_agree_with_the_oracle() {
    let counts = run(0, Mix::QUIET);
    print(counts, "quiet");
}

#[test]
fn programs_with_crashes_agree_with_the_oracle() {
    let counts = run(1_000_000, Mix::CRASHING);
    print(counts, "crashing");
}

/// Runs half of the programs. Each of the two tests runs one half.
fn run(first: u64, mix: Mix) -> Counts {
    if std::env::var_os("SEED").is_some() {
        let seed = cases("SEED", 0);
        return check(&Program::random(seed, STEPS, mix));
    }
    let programs = cases("PROGRAMS", PROGRAMS) / 2;
    let mut all = Counts::default();
    for seed in first..first + programs {
        all.merge(&check(&Program::random(seed, STEPS, mix)));
    }
    let [steps, commits, refusals] =
        [Event::Step, Event::Commit, Event::Refusal].map(|event| all.get(event));
    assert!(commits * 5 > steps && refusals > programs, "the programs do too little");
    all
}

fn print(counts: Counts, what: &str) {
    say(format!("{what}:\n{counts}"));
}

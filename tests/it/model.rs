//! Random programs with random options against the oracle.
//!
//! `PROGRAMS=n` changes how many, `SEED=n` runs one and nothing else.

use crate::say;
use rowstone::sim::program::{Mix, Program, check};
use rowstone::sim::runner::Counts;

const PROGRAMS: u64 = 1000;
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

/// Half of the programs each.
fn run(first: u64, mix: Mix) -> Counts {
    if let Some(seed) = number("SEED") {
        return check(&Program::random(seed, STEPS, mix));
    }
    let programs = number("PROGRAMS").unwrap_or(PROGRAMS) / 2;
    let mut all = Counts::default();
    for seed in first..first + programs {
        let counts = check(&Program::random(seed, STEPS, mix));
        all.steps += counts.steps;
        all.commits += counts.commits;
        all.refusals += counts.refusals;
        all.rows_read += counts.rows_read;
        all.recoveries += counts.recoveries;
    }
    assert!(all.commits * 5 > all.steps && all.refusals > programs, "the programs do too little");
    all
}

fn print(counts: Counts, what: &str) {
    let Counts { steps, commits, refusals, rows_read, recoveries } = counts;
    say(format!(
        "{what}: {steps} steps, {commits} commits, {refusals} refusals, {rows_read} rows read, \
         {recoveries} recoveries"
    ));
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

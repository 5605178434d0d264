//! `rowstone sim --transport`: replays a seed of the simulated transport, explores seeds, and
//! searches for seeds that detect its mutants.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::{HUNT_SEEDS, SEEDS, Sim, conclude};
use crate::cli::failure::{Failure, Outcome};
use crate::cli::output::{Output, print, with_thousands};
use crate::cli::progress::Progress;
use crate::mutants::activate;
use crate::testing::sim::program::quietly;
use crate::transport::{Explored, MUTANTS, explore, run};

impl Sim {
    pub(super) fn simulate_transport(&self) -> Outcome {
        match self.mutants.as_deref() {
            Some("list") => print(|output| {
                let mut all = MUTANTS.iter();
                all.try_for_each(|mutant| put_mutant(output, mutant.name, mutant.what))
            }),
            Some("all") => self.hunt_in_transport(),
            name => {
                let mutant = name.map(find_mutant).transpose()?;
                self.seed.map_or_else(
                    || self.explore_transport(mutant),
                    |seed| self.replay_transport(seed, mutant),
                )
            }
        }
    }

    fn replay_transport(&self, seed: u64, mutant: Option<&'static str>) -> Outcome {
        let _active = mutant.map(activate);
        let report = quietly(|| run(seed, self.trace));
        conclude(report.failure.is_none(), |output| {
            report.trace.iter().try_for_each(|line| writeln!(output, "{line}"))?;
            put_counts(output, &report.counts)?;
            writeln!(output, "digest {:016x}", report.digest)?;
            put_failure(output, report.failure.as_ref().map(|failure| (report.seed, failure)))
        })
    }

    fn explore_transport(&self, mutant: Option<&'static str>) -> Outcome {
        let explored = self.explored(self.seeds.unwrap_or(SEEDS), mutant);
        conclude(explored.failure.is_none(), |output| {
            put_counts(output, &explored.counts)?;
            writeln!(output, "{} seeds", with_thousands(explored.seeds))?;
            put_failure(output, explored.failure.as_ref().map(|(seed, failure)| (*seed, failure)))
        })
    }

    /// For each mutant, searches for a seed that detects it, and prints the first one found.
    fn hunt_in_transport(&self) -> Outcome {
        let mut missed = 0;
        let mut output = Output::standard();
        for mutant in MUTANTS {
            let count = self.seeds.unwrap_or(HUNT_SEEDS);
            let explored = self.explored(count, Some(mutant.name));
            let found =
                explored.failure.map(|(seed, failure)| format!("seed {seed:>4}: {failure}"));
            missed += usize::from(found.is_none());
            let found = found.unwrap_or_else(|| format!("NOT FOUND by {count} seeds"));
            put_mutant(&mut output, mutant.name, &found)?;
            output.flush()?;
        }
        output.finish()?;
        conclude(missed == 0, |output| {
            writeln!(output, "{} mutants, {missed} not found", MUTANTS.len())
        })
    }

    fn explored(&self, count: u64, mutant: Option<&'static str>) -> Explored {
        let bar = Progress::line("{wide_bar} {pos}/{len}");
        let first = self.first.unwrap_or(0);
        quietly(|| explore(first, count, self.jobs(), mutant, |done| bar.reach_of(done, count)))
    }
}

fn find_mutant(name: &str) -> Outcome<&'static str> {
    let found = MUTANTS.iter().find(|mutant| mutant.name == name).map(|mutant| mutant.name);
    found.ok_or_else(|| {
        Failure::Usage(format!(
            "there is no mutant `{name}`: see `rowstone sim --transport --mutants list`"
        ))
    })
}

fn put_mutant(output: &mut Output, name: &str, text: &str) -> io::Result<()> {
    writeln!(output, "{name:20}  {text}")
}

fn put_counts(output: &mut Output, counts: &BTreeMap<&'static str, u64>) -> io::Result<()> {
    counts.iter().try_for_each(|(name, count)| writeln!(output, "{count:>12}  {name}"))
}

fn put_failure(output: &mut Output, failure: Option<(u64, &String)>) -> io::Result<()> {
    failure.into_iter().try_for_each(|(seed, failure)| {
        writeln!(output, "\n{failure}\nreplay: rowstone sim --transport --seed {seed} --trace")
    })
}

//! A program: the options of a database and a list of steps. It is generated from a seed, run
//! against the oracle, shrunk when it fails, and printed as a script.
//!
//! Invariants
//! * the seed, or the bytes, decide everything: options, steps, faults, and the effects of power
//!   cuts;
//! * each step is self-contained, so that a program remains valid when steps are removed.
//!
//! `generate` chooses the steps; `runner` executes them and compares the answers.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::codec::{HashSeed, hash};
use crate::rng::Rng;

use super::counts::Counts;
use super::generate::{Generator, Source};
use super::parse;
use super::runner::Runner;
use super::step::{Config, Step};

pub use super::generate::Mix;

/// The maximum number of attempts to compact everything at the end. Power cuts may interrupt them.
const MERGES_MAX: usize = 4;

/// The options of a database, and the steps on it.
#[derive(Clone, Debug)]
pub struct Program {
    /// The seed of the program; 0 if it was made from bytes or a script.
    pub seed: u64,
    /// The options of the first opening.
    pub config: Config,
    /// The steps after the opening, in order.
    pub steps: Vec<Step>,
}

/// The failed step of a program, and the failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The index of the step, counted from 0. If the opening failed it is 0, and if a check at the
    /// end failed it is the last index.
    pub step: usize,
    /// The [kind](Self::kind), a colon, and the difference between engine and oracle.
    pub what: String,
}

/// The result of running a program.
#[derive(Clone, Debug)]
pub struct Report {
    /// The counts of events in the run.
    pub counts: Counts,
    /// A hash of the output lines of all steps, and of the contents of all files at the end. Equal
    /// runs have equal digests.
    pub digest: u64,
    /// The failure that ended the run, if any.
    pub failure: Option<Failure>,
}

/// A failing program, and the smallest program found that fails in the same way.
#[derive(Clone, Debug)]
pub struct Found {
    /// The seed of the original program.
    pub seed: u64,
    /// The failure of the original program.
    pub failure: Failure,
    /// The smallest program found.
    pub small: Program,
    /// The failure of the smallest program.
    pub small_failure: Failure,
}

impl Program {
    /// Returns the program for `seed`: `length` steps, weighted by `mix`, of which the first
    /// creates a table.
    pub fn random(seed: u64, length: usize, mix: Mix) -> Program {
        Self::generate(seed, Source::Seed(Rng::from_seed(seed)), length, mix)
    }

    /// Returns the program for `bytes`. It has at most `length` steps, and ends when the bytes are
    /// used up.
    pub fn from_bytes(bytes: &[u8], length: usize, mix: Mix) -> Program {
        Self::generate(0, Source::Bytes(bytes), length, mix)
    }

    fn generate(seed: u64, source: Source<'_>, length: usize, mix: Mix) -> Program {
        let mut generator = Generator::new(source, mix);
        let config = generator.config();
        let mut steps = vec![generator.first()];
        while steps.len() < length && !generator.is_spent() {
            generator.push_step(&mut steps);
        }
        steps.truncate(length);
        Program { seed, config, steps }
    }

    /// Runs the program; a panic of the engine counts as a failure.
    pub fn run(&self) -> Report {
        self.run_with(|_, _| {})
    }

    /// Runs the program, and passes the number and the lines of each step to `show`.
    pub fn run_with(&self, mut show: impl FnMut(usize, &[String])) -> Report {
        let mut runner = Runner::new(self.config.clone());
        let mut digest = Digest::default();
        let mut at = 0;
        let run = catch_unwind(AssertUnwindSafe(|| {
            self.run_steps(&mut runner, &mut at, |at, lines| {
                lines.iter().for_each(|line| digest.add(line.as_bytes()));
                show(at, lines);
            })
        }));
        let what = match run {
            Ok(Ok(())) => None,
            Ok(Err(what)) => Some(what),
            Err(panic) => Some(format!("panic: {}", panic_text(&*panic))),
        };
        let is_panic = what.as_ref().is_some_and(|what| what.starts_with("panic"));
        let counts = if is_panic { runner.counts } else { runner.counted() };
        for path in runner.engine.fs.paths() {
            digest.add(path.as_bytes());
            digest.add(&runner.engine.fs.read(&path).unwrap_or_default());
        }
        if is_panic {
            // After a panic, dropping the runner could panic again.
            std::mem::forget(runner);
        }
        let failure = what.map(|what| Failure { step: at, what });
        Report { counts, digest: digest.0, failure }
    }

    fn run_steps(
        &self,
        runner: &mut Runner,
        at: &mut usize,
        mut show: impl FnMut(usize, &[String]),
    ) -> Result<(), String> {
        let open = Step::Open(self.config.clone());
        runner.run(&open)?;
        for (number, step) in self.steps.iter().enumerate() {
            *at = number;
            let lines = runner.run(step)?;
            show(number, &lines);
        }
        runner.lift_cap()?;
        for step in [Step::Mend, Step::Settle] {
            runner.run(&step)?;
        }
        runner.compare()?;
        runner.run(&Step::Reopen)?;
        runner.compare()?;
        merge_all(runner)?;
        runner.run(&Step::Kill(None))?;
        Ok(())
    }

    /// Returns the smallest program found that still fails.
    pub fn shrink(&self, fails: impl Fn(&Program) -> Option<Failure>) -> (Program, Failure) {
        let mut failure = fails(self).expect("a program that fails");
        let mut best = self.clone();
        best.steps.truncate(failure.step + 1);
        if let Some(other) = fails(&best) {
            failure = other;
        } else {
            best = self.clone();
        }
        let mut chunk = best.steps.len().div_ceil(2);
        while chunk > 0 {
            let mut start = 0;
            let mut removed = false;
            while start < best.steps.len() {
                let mut smaller = best.clone();
                smaller.steps.drain(start..best.steps.len().min(start + chunk));
                match fails(&smaller) {
                    Some(other) => {
                        (best, failure, removed) = (smaller, other, true);
                    }
                    None => start += chunk,
                }
            }
            if !removed || chunk > 1 {
                chunk /= 2;
            }
        }
        (best, failure)
    }

    /// Shrinks the program to one that fails in the same way. Suppresses the messages of panics.
    pub fn shrunk(&self, failure: &Failure) -> Found {
        self.shrunk_by(failure, |program| program.run().failure)
    }

    fn shrunk_by(&self, failure: &Failure, fails: impl Fn(&Program) -> Option<Failure>) -> Found {
        // Programs that fail in other ways are ignored.
        let wanted = failure.kind();
        let fails = |program: &Program| fails(program).filter(|failure| failure.kind() == wanted);
        let (small, small_failure) = quietly(|| self.shrink(fails));
        Found { seed: self.seed, failure: failure.clone(), small, small_failure }
    }

    /// Parses a script, as printed by [`Program::script`]; its expected outputs are ignored.
    ///
    /// # Errors
    /// A line is not a step.
    pub fn from_script(text: &str) -> Result<Program, String> {
        let mut program = Program { seed: 0, config: Config::default(), steps: Vec::new() };
        let mut lines = text.lines().filter(|line| !line.starts_with('#')).peekable();
        while let Some(line) = lines.next() {
            if line.is_empty() {
                continue;
            }
            let input: Vec<&str> = lines.by_ref().take_while(|line| *line != "----").collect();
            let steps = parse::steps(line, &input)?.ok_or(format!("`{line}` is no step"))?;
            match steps.as_slice() {
                [Step::Open(config)] if program.steps.is_empty() => program.config = config.clone(),
                _ => program.steps.extend(steps),
            }
            lines.by_ref().take_while(|line| !line.is_empty()).for_each(drop);
        }
        Ok(program)
    }

    /// Returns the program as a script to paste under `tests/scripts`.
    pub fn script(&self) -> String {
        let mut text = format!("{}\n----\nall there\n", Step::Open(self.config.clone()));
        for step in &self.steps {
            text.push_str(&format!("\n{step}\n----\n"));
        }
        text
    }
}

impl Failure {
    /// Returns the kind of failure. While shrinking, failures of the same kind count as the same.
    pub fn kind(&self) -> String {
        self.what.split(':').next().unwrap_or_default().to_owned()
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Found { seed, failure, small, small_failure } = self;
        writeln!(f, "seed {seed}, step {}: {}", failure.step, failure.what)?;
        writeln!(
            f,
            "shrunk to {} steps, failing at step {}: {}\n",
            small.steps.len(),
            small_failure.step,
            small_failure.what
        )?;
        f.write_str(&small.script())
    }
}

/// A hash of everything added so far.
#[derive(Default)]
struct Digest(u64);

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        self.0 = hash(HashSeed(self.0), bytes);
    }
}

/// Compacts the whole database, so that no deleted data is left.
fn merge_all(runner: &mut Runner) -> Result<(), String> {
    // A planned kill or power cut may interrupt the compaction, which is then repeated after
    // reopening.
    for _ in 0..MERGES_MAX {
        let merged = runner.run(&Step::Compact)?;
        let settled = runner.run(&Step::Settle)?;
        if merged.is_empty() && settled.is_empty() {
            return runner.check_compacted();
        }
    }
    Err(format!("all was to be merged {MERGES_MAX} times, and never was"))
}

/// Runs the program. If it fails, shrinks it and panics.
///
/// # Panics
/// With the details that reproduce the failure.
pub fn check(program: &Program) -> Counts {
    let report = program.run();
    if let Some(failure) = report.failure {
        panic!("{}", program.shrunk(&failure));
    }
    report.counts
}

/// Shrinks the program to the smallest one for which `fails` returns a failure, and panics with the
/// details that reproduce the failure.
///
/// # Panics
/// Always.
pub fn report(
    program: &Program,
    failure: &Failure,
    fails: impl Fn(&Program) -> Option<Failure>,
) -> ! {
    panic!("{}", program.shrunk_by(failure, fails));
}

/// Runs `work` without printing the messages of its panics.
pub fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let done = work();
    std::panic::set_hook(hook);
    done
}

/// Returns the message of a panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_determines_the_program_and_its_script_parses_back() {
        let program = Program::random(3, 300, Mix::CRASHING);
        assert_eq!(program.steps, Program::random(3, 300, Mix::CRASHING).steps);
        for step in &program.steps {
            let text = step.to_string();
            let mut lines = text.split('\n');
            let (line, input) = (lines.next().unwrap(), lines.collect::<Vec<_>>());
            let read = parse::steps(line, &input).unwrap();
            assert_eq!(read, Some(vec![step.clone()]), "{text}");
        }
    }

    #[test]
    fn shrinking_keeps_the_failing_steps() {
        let program = Program::random(4, 200, Mix::QUIET);
        let flushes = |program: &Program| {
            let at: Vec<usize> =
                (0..program.steps.len()).filter(|&at| program.steps[at] == Step::Flush).collect();
            let failure = Failure { step: *at.get(1)?, what: "two flushes".to_owned() };
            Some(failure)
        };
        let (small, failure) = program.shrink(flushes);
        assert_eq!((small.steps, failure.step), (vec![Step::Flush, Step::Flush], 1));
    }
}

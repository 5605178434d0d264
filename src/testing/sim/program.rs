//! Programs: generated from a seed, run against the oracle, shrunk when they fail, printed as scripts.
//!
//! Invariants
//! * the seed, or the bytes, decide everything: options, steps, faults, and what a power cut leaves;
//! * a step stands for itself, so that a program stays one when steps are taken out.
//!
//! Not here: the choice of steps (`generate`), what a step does and what is compared (`runner`).

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

/// How often all is merged at the end until no power cut comes between.
const MERGES_MAX: usize = 4;

/// A database's options, and what is done to it.
#[derive(Clone, Debug)]
pub struct Program {
    /// What the program was made from; 0 if that was bytes or a script.
    pub seed: u64,
    /// The options of the first opening.
    pub config: Config,
    /// What is done after it, in order.
    pub steps: Vec<Step>,
}

/// A program's failure: which step, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The number of the step, counted from 0: 0 for the opening too, the last for the checks at the end.
    pub step: usize,
    /// The [kind](Self::kind), a colon, and how engine and oracle part.
    pub what: String,
}

/// What a program came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the run met.
    pub counts: Counts,
    /// The lines of every step, and at the end the bytes of every file: equal if the runs were.
    pub digest: u64,
    /// Where the run ended early, and why, if it did.
    pub failure: Option<Failure>,
}

/// A failing program, and the smallest one found that fails in the same way.
#[derive(Clone, Debug)]
pub struct Found {
    /// The seed of the program as it was made.
    pub seed: u64,
    /// How that failed.
    pub failure: Failure,
    /// The program with the fewest steps.
    pub small: Program,
    /// How that fails.
    pub small_failure: Failure,
}

impl Program {
    /// The program that `seed` decides: a table, and steps as `mix` weighs them, `length` in all.
    pub fn random(seed: u64, length: usize, mix: Mix) -> Program {
        Self::generate(seed, Source::Seed(Rng::from_seed(seed)), length, mix)
    }

    /// The program that `bytes` decide, of at most `length` steps; it ends with the bytes.
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

    /// Runs the program; a panic of the engine is a failure too.
    pub fn run(&self) -> Report {
        self.run_with(|_, _| {})
    }

    /// Runs the program, showing each step's number and lines.
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
            // What panicked once may do so again while it is put away.
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

    /// The smallest program found that still fails.
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

    /// Shrinks the program to one that fails in the same way; panics are kept quiet meanwhile.
    pub fn shrunk(&self, failure: &Failure) -> Found {
        self.shrunk_by(failure, |program| program.run().failure)
    }

    fn shrunk_by(&self, failure: &Failure, fails: impl Fn(&Program) -> Option<Failure>) -> Found {
        // Another failure met on the way is another story.
        let wanted = failure.kind();
        let fails = |program: &Program| fails(program).filter(|failure| failure.kind() == wanted);
        let (small, small_failure) = quietly(|| self.shrink(fails));
        Found { seed: self.seed, failure: failure.clone(), small, small_failure }
    }

    /// The program that a script stands for, as [`Program::script`] prints it; what it expects is not looked at.
    ///
    /// # Errors
    /// The line that is no step.
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

    /// The program as a script to paste under `tests/scripts`.
    pub fn script(&self) -> String {
        let mut text = format!("{}\n----\nall there\n", Step::Open(self.config.clone()));
        for step in &self.steps {
            text.push_str(&format!("\n{step}\n----\n"));
        }
        text
    }
}

impl Failure {
    /// What fails in the same way has the same kind.
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

/// What was seen so far, in a number.
#[derive(Default)]
struct Digest(u64);

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        self.0 = hash(HashSeed(self.0), bytes);
    }
}

/// Merges everything, after which nothing is left of what was deleted.
fn merge_all(runner: &mut Runner) -> Result<(), String> {
    // An end that is still to come may come on the way: then the session after it merges anew.
    for _ in 0..MERGES_MAX {
        let merged = runner.run(&Step::Compact)?;
        let settled = runner.run(&Step::Settle)?;
        if merged.is_empty() && settled.is_empty() {
            return runner.check_compacted();
        }
    }
    Err(format!("all was to be merged {MERGES_MAX} times, and never was"))
}

/// Panics with the shrunk program if `program` fails.
///
/// # Panics
/// With everything that is needed to see the failure again.
pub fn check(program: &Program) -> Counts {
    let report = program.run();
    if let Some(failure) = report.failure {
        panic!("{}", program.shrunk(&failure));
    }
    report.counts
}

/// Shrinks with a judge of one's own, and panics with everything that is needed to see the failure again.
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

/// Without the message of every panic on the way.
pub fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let done = work();
    std::panic::set_hook(hook);
    done
}

/// What a panic said.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides_the_program_and_its_script_reads_back() {
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
    fn shrinking_keeps_what_fails() {
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

//! `rowstone sim`: replays a seed, explores seeds, searches for seeds that detect mutants
//! (deliberate bugs), simulates a device, and prints the corruption ledger (the results of damaging
//! each byte of small databases). The file `transport` does the same for the simulated transport.
//!
//! Invariants
//! * the output of replaying a seed depends on the seed alone: no times, no rates;
//! * a failure is printed with everything needed to reproduce it.
//!
//! `testing::sim` defines programs: the random sequences of operations that a seed determines.

#[cfg(all(feature = "rest", feature = "remote"))]
mod transport;

use std::io::{self, Read, Write};
use std::num::NonZero;
use std::time::Duration;

use clap::Args;

use super::failure::{Failure, Outcome};
use super::files::open_input;
use super::output::{FormatArgs, Output, print, with_thousands};
use super::progress::Progress;
use crate::clock::{Clock, SystemClock};
use crate::json::{self, Object};
use crate::testing::sim::corruption_matrix::{Counts, Ledger, ledger};
use crate::testing::sim::counts::Event;
use crate::testing::sim::device::{Life, Report};
use crate::testing::sim::explore::{Explored, explore, program};
use crate::testing::sim::program::{Program, quietly};
use crate::testing::sim::step::Step;
use crate::testing::sim::{ActiveMutant, MUTANTS, Mutant, activate};

/// Run the database against a model on a failing disk.
///
/// The simulated disk fails, loses power and decays. A seed determines everything: options,
/// clients, faults, the clock, and the data left by a power cut. The same seed prints the same
/// output on every machine.
#[derive(Args)]
#[command(after_long_help = "\
A seed that fails prints the first step at which database and model differ, and a shrunk program in the form of a \
script, to be pasted under tests/scripts.\n\n\
With --device the database is that of a small unattended device: the profile for 64 MB of \
memory, its background work done by steps. Each second it stores a reading of a sensor, which \
expires after six hours, and now and then it replaces a setting or writes a group. The power \
fails every few seconds, at any file operation, also while it opens; it stays off for seconds, \
hours or days. The clock begins in 1970, or years off, until it is set, and jumps. Blocks of \
table files are unreadable for a time. Acknowledged rows must exist until they expire, and no \
entity tag may occur twice.\n\n\
Exits with status 1 if a seed failed.\n\n\
Examples:\n  \
rowstone sim --seed 42\n  \
rowstone sim --seed 42 --trace\n  \
rowstone sim --seeds 100000 --jobs 2\n  \
rowstone sim --minutes 10\n  \
rowstone sim --mutants list\n  \
rowstone sim --mutants early-publish\n  \
rowstone sim --mutants all\n  \
rowstone sim --ledger\n  \
rowstone sim --device 30 --seed 7\n  \
rowstone sim --device 0.5 --format json\n  \
rowstone sim --transport --seeds 100000\n  \
rowstone sim --transport --seed 7 --trace")]
pub(super) struct Sim {
    /// Replay this seed
    #[arg(long, conflicts_with_all = ["seeds", "minutes"])]
    seed: Option<u64>,
    /// Replay the program in this script, as printed by a failure; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "seeds", "minutes"])]
    script: Option<String>,
    /// Print every step and its result when replaying one program
    #[arg(long)]
    trace: bool,
    /// Explore this many seeds
    #[arg(long)]
    seeds: Option<u64>,
    /// The first seed to explore [default: 0, or for some mutants a seed that detects them]
    #[arg(long)]
    first: Option<u64>,
    /// Explore for this long
    #[arg(long)]
    minutes: Option<f64>,
    /// Threads, each with its own seed [default: the number of processors]
    #[arg(long)]
    jobs: Option<NonZero<usize>>,
    /// Stop after this many seeds have failed
    #[arg(long, default_value_t = 1)]
    failures: usize,
    /// Damage every byte and length of small databases, and print the results
    #[arg(long, group = "report")]
    #[arg(conflicts_with_all = ["seeds", "minutes", "script", "trace", "mutants"])]
    ledger: bool,
    /// Simulate a device for this many days; a month takes some minutes
    #[arg(long, value_name = "DAYS", group = "report", value_parser = days)]
    #[arg(conflicts_with_all = ["seeds", "minutes", "script", "trace", "ledger"])]
    device: Option<Duration>,
    /// Simulate clients of a Table service over a network that loses requests and answers
    #[cfg(all(feature = "rest", feature = "remote"))]
    #[arg(long, conflicts_with_all = ["minutes", "script", "ledger", "device", "failures"])]
    transport: bool,
    #[command(flatten)]
    format: FormatArgs,
    /// Activate a mutant, a deliberate bug that must be detected; `list` prints all names, `all`
    /// searches for a seed that detects each
    #[arg(long, value_name = "NAME", alias = "planted")]
    mutants: Option<String>,
}

/// Mutants are deliberate bugs. The device simulation must detect each of its mutants in one of
/// this many runs, each of which simulates a device for `HUNT_LIFE`.
const HUNT_LIVES: u64 = 40;
const HUNT_LIFE: Duration = Duration::from_secs(12 * 3_600);
/// The longest time for which a device can be simulated, in days. A longer time is probably a
/// mistake.
const DAYS_MAX: f64 = 3_650.0;
/// Seeds explored if neither a number nor a time is given.
const SEEDS: u64 = 1000;
/// Mutants outside of the device simulation must be detected within this many seeds.
const HUNT_SEEDS: u64 = 10_000;

impl Sim {
    pub(super) fn run(self) -> Outcome {
        if self.format.is_json()? && !self.ledger && self.device.is_none() {
            let text = "only the results of --ledger and --device are printed as JSON";
            return Err(Failure::Usage(text.into()));
        }
        #[cfg(all(feature = "rest", feature = "remote"))]
        if self.transport {
            return self.simulate_transport();
        }
        match self.mutants.as_deref() {
            Some("list") => return list_mutants(|mutant| mutant.what.to_owned()),
            Some("all") => return self.hunt(),
            _ => {}
        }
        if self.ledger {
            return self.damage_all();
        }
        let mutant = self.mutants.as_deref().map(find_mutant).transpose()?;
        let name = mutant.map(|mutant| mutant.name);
        if let Some(time) = self.device {
            return self.live(time, name);
        }
        match (&self.script, self.seed, mutant) {
            (Some(path), ..) => self.replay(&read_script(path)?, name),
            (None, Some(seed), _) => self.replay(&program(seed), name),
            (None, None, Some(Mutant { name, first_life: Some(first), .. })) => {
                self.explore_lives(name, *first)
            }
            (None, None, _) => self.explore(name),
        }
    }

    fn replay(&self, program: &Program, mutant: Option<&'static str>) -> Outcome {
        let _active = mutant.map(activate);
        let mut trace = Vec::new();
        let report = quietly(|| {
            program.run_with(|at, lines| {
                if self.trace {
                    trace.push((at, lines.to_vec()));
                }
            })
        });
        conclude(report.failure.is_none(), |output| {
            let open = Step::Open(program.config.clone()).to_string();
            writeln!(output, "seed {}\noptions {}", program.seed, open.replacen("open ", "", 1))?;
            for (at, lines) in &trace {
                let step = program.steps.get(*at).map(ToString::to_string).unwrap_or_default();
                writeln!(output, "\n# {at}\n{step}\n----")?;
                lines.iter().try_for_each(|line| writeln!(output, "{line}"))?;
            }
            writeln!(output, "{}digest {:016x}", report.counts, report.digest)?;
            let found = report.failure.iter().map(|failure| program.shrunk(failure));
            found.into_iter().try_for_each(|found| write!(output, "\n{found}"))
        })
    }

    /// For each mutant, searches for a seed that detects it, and prints the first one found.
    fn hunt(&self) -> Outcome {
        let mut missed = 0;
        list_mutants(|mutant| {
            let found = match mutant.first_life {
                Some(first) => self.hunt_by_lives(mutant.name, first),
                None => self.hunt_by_programs(mutant.name),
            };
            missed += usize::from(found.is_err());
            found.unwrap_or_else(|missed| missed)
        })?;
        conclude(missed == 0, |output| {
            writeln!(output, "{} mutants, {missed} not found", MUTANTS.len())
        })
    }

    /// Describes the first seed whose random operations detect `mutant`. Returns an error text if
    /// none of the seeds does.
    fn hunt_by_programs(&self, mutant: &'static str) -> Result<String, String> {
        let count = self.seeds.unwrap_or(HUNT_SEEDS);
        let explored = quietly(|| {
            explore(self.first.unwrap_or(0), count, self.jobs(), Some(mutant), |found| {
                found.failures.is_empty()
            })
        });
        match explored.failures.first() {
            Some((seed, failure)) => {
                Ok(format!("seed {seed:>4}, step {:>3}: {}", failure.step, failure.kind()))
            }
            None => Err(format!("NOT FOUND by {} seeds", explored.seeds)),
        }
    }

    /// Describes the first seed whose device simulation detects `mutant`. Returns an error text if
    /// none of the seeds does.
    fn hunt_by_lives(&self, mutant: &'static str, first: u64) -> Result<String, String> {
        let _active = activate(mutant);
        let life = |seed| Life::new(seed, HUNT_LIFE).run().failure.map(|failure| (seed, failure));
        let first = self.first.unwrap_or(first);
        let lives = first..first + HUNT_LIVES;
        match quietly(|| lives.into_iter().find_map(life)) {
            Some((seed, failure)) => Ok(format!("life {seed:>4}, {failure}")),
            None => Err(format!("NOT FOUND by {HUNT_LIVES} lives of devices")),
        }
    }

    /// Simulates devices from successive seeds until one simulation detects `mutant`. If a
    /// simulation detects it, the command fails, as for a real bug.
    fn explore_lives(&self, mutant: &'static str, first: u64) -> Outcome {
        let found = self.hunt_by_lives(mutant, first);
        conclude(found.is_err(), |output| {
            writeln!(output, "{}", found.unwrap_or_else(|missed| missed))
        })
    }

    /// Prints the corruption ledger of `--seed`, or of seed 1.
    fn damage_all(&self) -> Outcome {
        let bar = Progress::line("{wide_bar} {pos}/{len}");
        let ledger =
            quietly(|| ledger(self.seed.unwrap_or(1), &mut |done, all| bar.reach_of(done, all)));
        drop(bar);
        conclude(ledger.faults() == 0, |output| match self.format.is_json() {
            Ok(true) => output.object(|object| put_ledger(object, &ledger)),
            _ => write!(output, "{ledger}"),
        })
    }

    /// Simulates a device for `time` with `--seed`, or with seed 1.
    fn live(&self, time: Duration, mutant: Option<&'static str>) -> Outcome {
        let _active = mutant.map(activate);
        let days = |time: Duration| time.as_secs_f64() / 86_400.0;
        let bar = Progress::line("{wide_bar} {msg}, {eta} left");
        let life = Life::new(self.seed.unwrap_or(1), time);
        let report = quietly(|| {
            life.run_with(|lived| {
                bar.reach_of(lived.as_secs(), time.as_secs());
                bar.say(format!("{:.2} of {:.2} days", days(lived), days(time)));
            })
        });
        drop(bar);
        conclude(report.failure.is_none(), |output| match self.format.is_json() {
            Ok(true) => output.object(|object| put_report(object, &report)),
            _ => write!(output, "{report}"),
        })
    }

    fn jobs(&self) -> usize {
        self.jobs.or(std::thread::available_parallelism().ok()).map_or(1, NonZero::get)
    }

    fn explore(&self, mutant: Option<&'static str>) -> Outcome {
        let clock = SystemClock::new();
        // A time that is too long for a `Duration` counts as unlimited.
        let time = self.minutes.map(|minutes| {
            Duration::try_from_secs_f64(minutes.max(0.0) * 60.0).unwrap_or(Duration::MAX)
        });
        let count = self.seeds.unwrap_or(if time.is_some() { u64::MAX } else { SEEDS });
        let first = self.first.unwrap_or(0);
        let bar = Progress::line("{msg}");
        let explored = quietly(|| {
            explore(first, count, self.jobs(), mutant, |explored| {
                show(&bar, explored, clock.monotonic());
                explored.failures.len() < self.failures.max(1)
                    && time.is_none_or(|time| clock.monotonic() < time)
            })
        });
        drop(bar);
        let seconds = clock.monotonic().as_secs_f64();
        let rate = with_thousands((explored.seeds as f64 / seconds) as u64);
        let seeds = with_thousands(explored.seeds);
        let _active: Option<ActiveMutant> = mutant.map(activate);
        conclude(explored.failures.is_empty(), |output| {
            write!(output, "{}", explored.counts)?;
            writeln!(output, "{seeds} seeds from {first} on, {rate} a second")?;
            explored.failures.iter().try_for_each(|(seed, failure)| {
                writeln!(output, "\n{}", program(*seed).shrunk(failure))
            })
        })
    }
}

fn put_ledger(object: &mut Object<'_>, ledger: &Ledger) {
    let put_counts = |object: &mut Object<'_>, counts: &Counts| {
        counts.named().for_each(|(name, count)| object.raw(&name.replace(' ', "_"), count));
    };
    object.raw("seed", ledger.seed);
    put_counts(object, &ledger.total());
    let entries: Vec<_> = ledger.entries.iter().collect();
    object.objects("entries", &entries, |object, (heading, counts)| {
        object.text("file", heading.file.name());
        object.text("structure", heading.structure);
        object.text("damage", heading.damage);
        put_counts(object, counts);
    });
    let reasons = &ledger.reasons;
    let reasons =
        json::object(|object| reasons.iter().for_each(|(why, count)| object.raw(why, count)));
    object.raw("reasons", reasons);
}

fn put_report(object: &mut Object<'_>, report: &Report) {
    let figures = &report.figures;
    object.raw("seed", report.seed);
    figures.all().into_iter().for_each(|(name, _, count)| object.raw(name, count));
    object.raw("writes_per_commit", figures.per_commit(figures.writes));
    object.raw("syncs_per_commit", figures.per_commit(figures.syncs));
    object.text("digest", &format!("{:016x}", report.digest));
    let failure = report.failure.as_ref().map_or("null".to_owned(), |failure| {
        json::object(|object| {
            object.raw("boot", failure.boot);
            object.raw("second", failure.at.as_secs());
            object.text("what", &failure.what);
        })
    });
    object.raw("failure", failure);
}

/// Parses a length of simulated time, of 0.04 days (about an hour) or more.
fn days(text: &str) -> Result<Duration, String> {
    let days: f64 = text.parse().map_err(|_| "a number of days is wanted".to_owned())?;
    match days {
        0.04..=DAYS_MAX => Ok(Duration::from_secs_f64(days * 86_400.0)),
        _ => Err(format!("a life has from 0.04 to {DAYS_MAX} days")),
    }
}

fn read_script(path: &str) -> Outcome<Program> {
    let mut text = String::new();
    let read = open_input(path)?.reader.read_to_string(&mut text);
    read.map_err(|error| Failure::Other(format!("cannot read {path}: {error}")))?;
    Program::from_script(&text).map_err(|problem| {
        Failure::Usage(format!("{path} is no script of a simulation: {problem}"))
    })
}

fn find_mutant(name: &str) -> Outcome<&'static Mutant> {
    MUTANTS.iter().find(|mutant| mutant.name == name).ok_or_else(|| {
        Failure::Usage(format!("there is no mutant `{name}`: see `rowstone sim --mutants list`"))
    })
}

/// Prints the name of each mutant, and the text that `tell` returns for it.
fn list_mutants(mut tell: impl FnMut(&Mutant) -> String) -> Outcome {
    let mut output = Output::standard();
    let width = MUTANTS.iter().map(|mutant| mutant.name.len()).max().unwrap_or_default();
    for mutant in MUTANTS {
        writeln!(output, "{:width$}  {}", mutant.name, tell(mutant))?;
        output.flush()?;
    }
    output.finish()
}

/// Prints a result; the command ends with status 1 unless it `passed`.
fn conclude(passed: bool, write: impl FnOnce(&mut Output) -> io::Result<()>) -> Outcome {
    print(write)?;
    if passed { Ok(()) } else { Err(Failure::Problems) }
}

/// Updates the progress line: speed, coverage, and failures.
fn show(bar: &Progress, explored: &Explored, time: Duration) {
    // Updating after every seed would take as long as running the seed.
    if !explored.seeds.is_multiple_of(16) {
        return;
    }
    let rate = explored.seeds as f64 / time.as_secs_f64().max(0.001);
    let missing = explored.counts.missing();
    let met = Event::ALL.len() - missing.len();
    let first = missing.first().map(|event| format!(", no {} yet", event.name()));
    bar.say(format!(
        "{} seeds, {rate:.0} a second; {met} of {} kinds of events{}; {} failures",
        with_thousands(explored.seeds),
        Event::ALL.len(),
        first.unwrap_or_default(),
        explored.failures.len()
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sim::corruption_matrix::{FileKind, Heading};
    use crate::testing::sim::device::{self, Figures};

    #[test]
    fn ledgers_and_device_reports_have_a_json_form() {
        let mut ledger = Ledger { seed: 3, ..Ledger::default() };
        let heading = Heading { file: FileKind::Wal, structure: "open record", damage: "cut" };
        let counts = Counts { refused: 7, wrong: 1, ..Counts::default() };
        ledger.entries.insert(heading, counts);
        ledger.reasons.insert("space", 2);
        let json = json::object(|object| put_ledger(object, &ledger));
        assert!(json.starts_with("{\"seed\":3,\"corrected\":0,\"refused\":7,"), "{json}");
        let end = "\"torn_tail\":0,\"wrong\":1,\"crashed\":0}],\"reasons\":{\"space\":2}}";
        assert!(json.ends_with(end), "{json}");
        let (what, at) = ("reading \"1\" is gone".to_owned(), Duration::from_secs(86_405));
        let figures = Figures { boots: 1_234_567, commits: 4, syncs: 9, ..Figures::default() };
        let failure = Some(device::Failure { boot: 7, at, what });
        let report = Report { seed: 3, figures, digest: 255, failure };
        let json = json::object(|object| put_report(object, &report));
        assert!(json.starts_with("{\"seed\":3,\"simulated_seconds\":0,"), "{json}");
        let end = "\"syncs_per_commit\":2.25,\"digest\":\"00000000000000ff\",\"failure\":{\"boot\":7,\
                   \"second\":86405,\"what\":\"reading \\\"1\\\" is gone\"}}";
        assert!(json.ends_with(end), "{json}");
    }
}

//! Random programs: generated from a seed, run against the oracle, shrunk when they fail.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::options::{Durability, IoMode};

use super::runner::{Counts, Runner};
use super::step::{Condition, Config, Scan, Step, Verb, Write};
use super::value::Val;
use crate::rng::Rng;

/// A database's options, and what is done to it.
#[derive(Clone, Debug)]
pub struct Program {
    pub seed: u64,
    pub config: Config,
    pub steps: Vec<Step>,
}

/// A program's failure: which step, and how.
#[derive(Clone, Debug)]
pub struct Failure {
    pub step: usize,
    pub what: String,
}

/// How often each kind of step comes up, in parts of their sum.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    pub crashes: usize,
    pub reopens: usize,
    pub clock: usize,
    pub tables: usize,
}

impl Mix {
    pub const QUIET: Mix = Mix { crashes: 0, reopens: 2, clock: 2, tables: 4 };
    pub const CRASHING: Mix = Mix { crashes: 12, reopens: 4, clock: 2, tables: 4 };
}

const TABLES: [&str; 3] = ["Alpha", "beta", "Gamma"];
/// Keys that are prefixes of one another, empty, long, and beyond the basic plane.
const PARTITIONS: [&str; 6] = ["", "a", "ab", "b", "\u{ff5e}", "\u{1f600}"];
const NAMES: [&str; 6] = ["A", "B", "Count", "Note", "At", "_x"];

impl Program {
    pub fn random(seed: u64, length: usize, mix_of: Mix) -> Program {
        let mut rng = Rng::from_seed(seed);
        let mut generator = Generator { rng: rng.clone(), mix_of, snapshots: Vec::new(), names: 0 };
        let config = generator.config();
        let mut steps = vec![Step::CreateTable(TABLES[0].to_owned())];
        while steps.len() < length {
            steps.push(generator.step());
        }
        rng.next_u64();
        Program { seed, config, steps }
    }

    /// Runs the program; panics of the engine are failures too.
    pub fn run(&self) -> Result<Counts, Failure> {
        let mut at = 0;
        let run = catch_unwind(AssertUnwindSafe(|| self.run_steps(&mut at)));
        let what = match run {
            Ok(Ok(counts)) => return Ok(counts),
            Ok(Err(what)) => what,
            Err(panic) => format!("panic: {}", panic_text(&*panic)),
        };
        Err(Failure { step: at, what })
    }

    fn run_steps(&self, at: &mut usize) -> Result<Counts, String> {
        let mut runner = Runner::new(self.config.clone());
        runner.run(&Step::Open(self.config.clone()))?;
        for (number, step) in self.steps.iter().enumerate() {
            *at = number;
            runner.run(step)?;
        }
        runner.compare()?;
        runner.run(&Step::Reopen)?;
        runner.compare()?;
        Ok(runner.counts)
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

    /// The program as a script to paste under `tests/scripts`.
    pub fn script(&self) -> String {
        let mut text = format!("open {}\n----\nall there\n", self.config);
        for step in &self.steps {
            text.push_str(&format!("\n{step}\n----\n"));
        }
        text
    }
}

/// Panics with the shrunk program if `program` fails.
pub fn check(program: &Program) -> Counts {
    match program.run() {
        Ok(counts) => counts,
        Err(failure) => report(program, &failure, |program| program.run().err()),
    }
}

/// Shrinks and panics, with everything that is needed to see it again.
pub fn report(
    program: &Program,
    failure: &Failure,
    fails: impl Fn(&Program) -> Option<Failure>,
) -> ! {
    let first = format!("seed {}, step {}: {}", program.seed, failure.step, failure.what);
    eprintln!("{first}\nshrinking …");
    // Another failure met on the way is another story.
    let kind = |failure: &Failure| failure.what.split(':').next().unwrap_or_default().to_owned();
    let wanted = kind(failure);
    let fails = |program: &Program| fails(program).filter(|failure| kind(failure) == wanted);
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (small, failure) = program.shrink(fails);
    std::panic::set_hook(quiet);
    panic!(
        "{first}\nshrunk to {} steps, failing at step {}: {}\n\n{}",
        small.steps.len(),
        failure.step,
        failure.what,
        small.script()
    );
}

pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

struct Generator {
    rng: Rng,
    mix_of: Mix,
    snapshots: Vec<String>,
    names: usize,
}

impl Generator {
    fn config(&mut self) -> Config {
        let rng = &mut self.rng;
        let durabilities = [Durability::Sync, Durability::Os, Durability::Buffered];
        Config {
            durability: *rng.pick(&durabilities),
            io_mode: *rng.pick(&[IoMode::Mmap, IoMode::Pread]),
            memtable_bytes: *rng.pick(&[4 << 10, 16 << 10, 64 << 10]),
            block_bytes: *rng.pick(&[512, 1 << 10, 4 << 10]),
            run_file_bytes: *rng.pick(&[4 << 10, 64 << 10]),
            cache_bytes: *rng.pick(&[0, 8 << 10, 1 << 20]),
            compress: cfg!(feature = "zstd") && rng.chance(1, 4),
            seed: rng.next_u64(),
        }
    }

    fn step(&mut self) -> Step {
        let Mix { crashes, reopens, clock, tables } = self.mix_of;
        let weights = [360, 90, 120, 70, 30, 60, 90, 25, 8, crashes, reopens, clock, tables];
        let mut roll = self.rng.index(weights.iter().sum());
        let kind = weights.iter().position(|weight| {
            let hit = roll < *weight;
            roll = roll.saturating_sub(*weight);
            hit
        });
        match kind {
            Some(0) => self.write_step(),
            Some(1) => self.group_step(),
            Some(2) => self.get_step(),
            Some(3) => self.scan_step(),
            Some(4) => self.snapshot_step(),
            Some(5) => Step::Flush,
            Some(6) => Step::Background(1 + self.rng.index(4)),
            Some(7) => Step::Compact,
            Some(8) => {
                if self.rng.chance(1, 4) {
                    Step::Verify
                } else {
                    Step::Sync
                }
            }
            Some(9) if self.rng.chance(1, 3) => self.forgetting(Step::Kill),
            Some(9) => {
                let seed = self.rng.next_u64() >> 32;
                self.forgetting(Step::Crash(seed))
            }
            Some(10) => self.forgetting(Step::Reopen),
            Some(11) => Step::Clock(self.rng.index(4000) as i64 - 2000),
            _ => self.table_step(),
        }
    }

    /// Snapshots do not outlive the handle.
    fn forgetting(&mut self, step: Step) -> Step {
        self.snapshots.clear();
        step
    }

    fn table(&mut self) -> String {
        // Mostly the first, which is there from the start.
        let pick = self.rng.index(8).saturating_sub(5);
        TABLES[pick].to_owned()
    }

    fn table_step(&mut self) -> Step {
        let table = (*self.rng.pick(&TABLES)).to_owned();
        match self.rng.index(8) {
            0 => Step::DropTable(table),
            1 => Step::Tables,
            2 => Step::CreateTable(table.to_uppercase()),
            _ => Step::CreateTable(table),
        }
    }

    fn pk(&mut self) -> String {
        (*self.rng.pick(&PARTITIONS)).to_owned()
    }

    fn rk(&mut self) -> String {
        match self.rng.index(12) {
            0 => String::new(),
            1 => "r".repeat(1 + self.rng.index(3)),
            2 => format!("r{}", "x".repeat(self.rng.index(200))),
            _ => format!("r{:02}", self.rng.index(24)),
        }
    }

    fn durability(&mut self) -> Option<Durability> {
        let choices = [Durability::Sync, Durability::Os, Durability::Buffered];
        self.rng.chance(1, 3).then(|| *self.rng.pick(&choices))
    }

    fn write_step(&mut self) -> Step {
        let pk = self.pk();
        let write = self.write(pk);
        Step::Write { table: self.table(), write, durability: self.durability() }
    }

    fn write(&mut self, pk: String) -> Write {
        let verbs = [Verb::Upsert, Verb::Insert, Verb::UpsertMerge, Verb::Insert, Verb::Upsert];
        let verb =
            if self.rng.chance(1, 2) { *self.rng.pick(&verbs) } else { *self.rng.pick(&Verb::ALL) };
        let conditions = [Condition::Any, Condition::Current, Condition::Current, Condition::Stale];
        let conditional = verb.is_conditional() && self.rng.chance(1, 2);
        let condition = if conditional { *self.rng.pick(&conditions) } else { Condition::Any };
        let properties = if verb == Verb::Delete { Vec::new() } else { self.properties() };
        Write { verb, pk, rk: self.rk(), properties, condition }
    }

    fn properties(&mut self) -> Vec<(String, Val)> {
        let mut properties: Vec<(String, Val)> = Vec::new();
        for _ in 0..self.rng.index(5) {
            let name = (*self.rng.pick(&NAMES)).to_owned();
            let value = self.value();
            properties.retain(|(other, _)| *other != name);
            properties.push((name, value));
        }
        properties
    }

    fn value(&mut self) -> Val {
        let rng = &mut self.rng;
        match rng.index(8) {
            0 => Val::String("é x'".repeat(rng.index(40))),
            1 => Val::Binary(vec![rng.index(256) as u8; rng.index(300)]),
            2 => Val::Boolean(rng.chance(1, 2)),
            3 => Val::Int32(rng.next_u64() as i32),
            4 => Val::Int64(rng.next_u64() as i64),
            5 => Val::Double(rng.pick(&[0.0f64, -0.0, 1.5, f64::INFINITY, f64::NAN]).to_bits()),
            6 => Val::DateTime(rng.next_u64() % 2_650_467_744_000_000_000),
            _ => Val::Guid(std::array::from_fn(|_| rng.index(256) as u8)),
        }
    }

    fn group_step(&mut self) -> Step {
        let pk = self.pk();
        let mut writes: Vec<Write> = Vec::new();
        for _ in 0..1 + self.rng.index(6) {
            let write = self.write(pk.clone());
            if writes.iter().all(|other| other.rk != write.rk) {
                writes.push(write);
            }
        }
        Step::Group { table: self.table(), writes, durability: self.durability() }
    }

    fn select(&mut self) -> Option<Vec<String>> {
        let names = NAMES.iter().filter(|_| self.rng.chance(1, 3));
        let names: Vec<String> = names.map(|name| (*name).to_owned()).collect();
        (!names.is_empty() && self.rng.chance(1, 3)).then_some(names)
    }

    fn at(&mut self) -> Option<String> {
        let some = !self.snapshots.is_empty() && self.rng.chance(1, 2);
        some.then(|| self.rng.pick(&self.snapshots).clone())
    }

    fn get_step(&mut self) -> Step {
        let (table, pk, rk) = (self.table(), self.pk(), self.rk());
        Step::Get { table, pk, rk, select: self.select(), at: self.at() }
    }

    fn scan_step(&mut self) -> Step {
        let pk = self.rng.chance(2, 3).then(|| self.pk());
        let bounded = pk.is_some();
        let bound =
            |generator: &mut Self| (bounded && generator.rng.chance(1, 3)).then(|| generator.rk());
        let (from, to) = (bound(self), bound(self));
        // A span the wrong way round is a question of its own.
        let ordered = !matches!((&from, &to), (Some(from), Some(to)) if from > to);
        let to = to.filter(|_| ordered);
        let top = self.rng.chance(1, 4).then(|| self.rng.index(20));
        let page = self.rng.chance(1, 4).then(|| 1 + self.rng.index(10));
        let scan = Scan { pk, from, to, select: self.select(), top, page, at: self.at() };
        Step::Scan { table: self.table(), scan }
    }

    fn snapshot_step(&mut self) -> Step {
        if self.snapshots.len() > 2 || (!self.snapshots.is_empty() && self.rng.chance(1, 2)) {
            let at = self.rng.index(self.snapshots.len());
            return Step::Release(self.snapshots.remove(at));
        }
        self.names += 1;
        self.snapshots.push(format!("s{}", self.names));
        Step::Snapshot(format!("s{}", self.names))
    }
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
            let read = super::super::parse::steps(line, &input).unwrap();
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

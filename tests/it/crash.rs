//! Cuts the power or kills the process at every file operation of small histories, and again during
//! the recovery that follows.
//!
//! A recovered database must show the state after a prefix of the commits: without gaps, with whole
//! groups, and with every commit that was acknowledged as durable. Its files must be sound.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rowstone::Durability;
use rowstone::fs::{FaultFs, Fs, MemFs, OpKind};

use crate::{cases, say};
use rowstone::retry::Rng;
use rowstone::sim::engine::Engine;
use rowstone::sim::oracle::Oracle;
use rowstone::sim::program::{Failure, Mix, Program, panic_text, report};
use rowstone::sim::runner::Runner;
use rowstone::sim::step::{Condition, Config, Lane, Step, Verb, Write};
use rowstone::sim::value::Val;

const IMAGES: u64 = 10_000;
const STEPS: usize = 60;
const SEEDS_PER_OPERATION: u64 = 2;

/// The file system wrapper between the engine and the memory file system.
type Wrap = Option<fn(MemFs) -> Arc<dyn Fs>>;

/// The guarantees after `ops` file operations: the number of commits that must survive a kill, and
/// the number that must survive a power cut.
#[derive(Clone, Copy, Debug)]
struct Mark {
    ops: u64,
    process_floor: usize,
    power_floor: usize,
    /// The largest ETag that the database had returned.
    etag_max: u64,
}

/// A program that has run, with an image of the file system at every file operation.
struct Recording {
    config: Config,
    fs: MemFs,
    clock: Arc<rowstone::clock::ManualClock>,
    oracle: Oracle,
    marks: Vec<Mark>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    programs: u64,
    operations: u64,
    images: u64,
    second_crashes: u64,
}

impl Recording {
    fn of(program: &Program, wrap: Wrap, at: &mut usize) -> Result<Recording, String> {
        let mut runner = Runner::new(program.config.clone());
        if let Some(wrap) = wrap {
            runner.engine.wrap(wrap);
        }
        runner.engine.fs.record();
        let mut marks = vec![Mark { ops: 0, process_floor: 0, power_floor: 0, etag_max: 0 }];
        let open = Step::Open(program.config.clone());
        for (number, step) in std::iter::once(&open).chain(&program.steps).enumerate() {
            *at = number.saturating_sub(1);
            runner.run(step)?;
            let Oracle { process_floor, power_floor, etag_max, .. } = runner.oracle;
            let ops = runner.engine.fs.ops();
            marks.push(Mark { ops, process_floor, power_floor, etag_max });
        }
        // The runner is leaked, because dropping it could add file operations to the recorded
        // history.
        let fs = runner.engine.fs.clone();
        let (clock, oracle) = (runner.engine.clock.clone(), runner.oracle.clone());
        std::mem::forget(runner);
        Ok(Recording { config: program.config.clone(), fs, clock, oracle, marks })
    }

    /// Returns the guarantees after `op` file operations.
    fn durable_claimed(&self, op: u64) -> Mark {
        *self.marks.iter().rev().find(|mark| mark.ops <= op).unwrap()
    }

    /// Describes the last file operation before the image at `op`, and the next operation.
    fn operation(&self, op: u64) -> String {
        let log = self.fs.log();
        let line = |op: u64| log.get(op as usize).map_or("the end", String::as_str);
        let done = op.checked_sub(1).map_or("nothing", line);
        format!("operation {op} ({done}; next {})", line(op))
    }

    /// Opens `image` and checks it; the returned runner continues from the recovered prefix.
    fn recover(&self, image: MemFs, durable_claimed: Mark, power: bool) -> Result<Runner, String> {
        let engine = Engine::on(MemFs::new(), self.clock.clone(), self.config.clone());
        let mut runner = Runner::on(engine);
        runner.oracle = self.oracle.clone();
        runner.oracle.etag_max = durable_claimed.etag_max;
        runner.oracle.power_floor = durable_claimed.power_floor;
        runner.recover(
            image,
            if power { durable_claimed.power_floor } else { durable_claimed.process_floor },
        )?;
        Ok(runner)
    }

    fn check_moment(&self, op: u64, rng: &mut Rng, tally: &mut Tally) -> Result<(), String> {
        let durable_claimed = self.durable_claimed(op);
        let killed = self.fs.kill_image_at(op).expect("recorded");
        self.recover(killed, durable_claimed, false)
            .map_err(|what| format!("killed after {}: {what}", self.operation(op)))?;
        tally.images += 1;
        for _ in 0..SEEDS_PER_OPERATION {
            let seed = rng.next_u64() >> 32;
            let cut = self.fs.crash_image_at(op, seed).expect("recorded");
            self.check_power_cut(cut, durable_claimed, rng, tally).map_err(|what| {
                format!("power cut after {}, seed {seed}: {what}", self.operation(op))
            })?;
        }
        Ok(())
    }

    /// Recovers, then cuts the power during the recovery and after the first commit that follows
    /// the recovery.
    fn check_power_cut(
        &self,
        image: MemFs,
        durable_claimed: Mark,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Result<(), String> {
        image.record();
        let mut runner = self.recover(image.clone(), durable_claimed, true)?;
        tally.images += 1;
        if rng.chance(1, 4) {
            let moments: Vec<u64> = image.recorded().collect();
            let op = *rng.pick(&moments);
            let seed = rng.next_u64() >> 32;
            let again = image.crash_image_at(op, seed).expect("recorded");
            self.recover(again, durable_claimed, true).map_err(|what| {
                format!("again after operation {op} of recovery, seed {seed}: {what}")
            })?;
            tally.images += 1;
            tally.second_crashes += 1;
        }
        if rng.chance(1, 4) {
            continue_after_recovery(&mut runner, rng)
                .map_err(|what| format!("continuing after recovery: {what}"))?;
            tally.images += 1;
        }
        Ok(())
    }
}

/// Makes a commit in the recovered database that must survive another power cut.
fn continue_after_recovery(runner: &mut Runner, rng: &mut Rng) -> Result<(), String> {
    if runner.oracle.tables.is_empty() {
        runner.run(&Step::CreateTable("After".to_owned()))?;
        runner.run(&Step::Sync)?;
    }
    let table = runner.oracle.tables.values().next().unwrap().name.clone();
    let (pk, rk) = ("after".to_owned(), format!("r{}", rng.index(3)));
    let write =
        Write { verb: Verb::Upsert, pk, rk, properties: Vec::new(), condition: Condition::Any };
    runner.run(&Step::Write { table, write, durability: Some(rowstone::Durability::Sync) })?;
    runner.run(&Step::Crash { seed: rng.next_u64() >> 32, ops: None })?;
    runner.run(&Step::Verify)?;
    Ok(())
}

fn run_program(program: &Program, wrap: Wrap, tally: &mut Tally) -> Result<(), Failure> {
    let mut at = 0;
    let run = catch_unwind(AssertUnwindSafe(|| {
        let recording = Recording::of(program, wrap, &mut at)?;
        let mut rng = Rng::from_seed(program.seed ^ 0xc4a5);
        for op in recording.fs.recorded() {
            recording.check_moment(op, &mut rng, tally)?;
            tally.operations += 1;
        }
        tally.programs += 1;
        Ok::<(), String>(())
    }));
    let what = match run {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(what)) => what,
        Err(panic) => format!("panic: {}", panic_text(&*panic)),
    };
    Err(Failure { step: at.min(program.steps.len().saturating_sub(1)), what })
}

fn check(program: &Program, tally: &mut Tally) {
    if let Err(failure) = run_program(program, None, tally) {
        // The failure depends on the whole history: keep all steps, including the last.
        let whole = |program: &Program| {
            let failure = run_program(program, None, &mut Tally::default()).err()?;
            Some(Failure { step: program.steps.len().saturating_sub(1), ..failure })
        };
        report(program, &failure, whole);
    }
}

#[test]
fn every_moment_of_small_histories_recovers() {
    let mut tally = Tally::default();
    let mut seed = 0;
    let wanted = cases("IMAGES", IMAGES);
    while tally.images < wanted {
        let mix_of = Mix { crashes: 0, reopens: 12, clock: 2, tables: 20, ..Mix::PLAIN };
        check(&Program::random(0xc0_0000 + seed, STEPS, mix_of), &mut tally);
        seed += 1;
    }
    say(format!("crash images: {tally:?}"));
}

/// Creates a database and nothing else. After a power cut at any moment it can be opened again.
#[test]
fn trap_46_power_cut_while_the_database_is_created() {
    let mut tally = Tally::default();
    let program = Program { seed: 46, config: Config::default(), steps: Vec::new() };
    for seed in 0..cases("CUTS", 80) {
        check(&Program { seed, ..program.clone() }, &mut tally);
    }
    assert!(tally.images > 1000, "{tally:?}");
}

/// Synced data is durable at every later moment, whatever the default durability.
#[test]
fn trap_04_synced_data_survives_whatever_the_durability() {
    let mut tally = Tally::default();
    for durability in [Durability::Buffered, Durability::Os, Durability::Sync] {
        for seed in 0..3 {
            let mix_of = Mix { crashes: 0, reopens: 4, clock: 8, tables: 4, ..Mix::PLAIN };
            let mut program = Program::random(0x04_0000 + seed, STEPS / 2, mix_of);
            program.config.durability = durability;
            program.steps.push(Step::Sync);
            program.steps.extend(Program::random(0x04_1000 + seed, 10, mix_of).steps);
            check(&program, &mut tally);
        }
    }
    say(format!("crash images: {tally:?}"));
}

/// In these programs logs grow (in advance, or when a commit needs the space), the disk is nearly
/// full at times, and databases are closed. Whatever length a log has after a power cut, it must
/// not be reported as truncated by damage.
#[test]
fn trap_59_power_cuts_around_the_growth_of_logs() {
    let mut tally = Tally::default();
    for seed in 0..4 {
        let mut rng = Rng::from_seed(seed);
        let mut program = Program::random(0x03_0000 + seed, 4, Mix::QUIET);
        program.config.durability = *rng.pick(&[Durability::Os, Durability::Sync]);
        (program.config.cap, program.config.memtable_bytes) = (None, 64 << 10);
        for number in 0..30 {
            let text = "x".repeat(200 + rng.index(3000));
            let properties = vec![("N".to_owned(), Val::String(text))];
            let (pk, rk) = ("p".to_owned(), format!("r{:02}", number % 25));
            let write = Write { verb: Verb::Upsert, pk, rk, properties, condition: Condition::Any };
            let table = "Alpha".to_owned();
            program.steps.push(Step::Write { table, write, durability: None });
            program.steps.extend(match rng.below(10) {
                0..=2 => Some(Step::Background(1, Some(Lane::Log))),
                3 => Some(Step::Quota(Some(rng.below(12 << 10)))),
                4 | 5 => Some(Step::Quota(None)),
                6 => Some(Step::Sync),
                7 => Some(Step::Mend),
                _ => None,
            });
            if rng.chance(1, 8) {
                program.steps.extend([Step::Mend, Step::Reopen]);
            }
        }
        check(&program, &mut tally);
    }
    say(format!("crash images: {tally:?}"));
}

/// With several memtables and logs at the same time, a log is removed only after its whole content
/// is durable elsewhere.
#[test]
fn trap_08_a_log_is_removed_after_its_replacement_is_durable() {
    let mut tally = Tally::default();
    for seed in 0..3 {
        let mut rng = Rng::from_seed(seed);
        let mut program = Program::random(0x08_0000 + seed, 4, Mix::QUIET);
        program.config.memtable_bytes = 4 << 10;
        program.config.durability = *rng.pick(&[Durability::Os, Durability::Sync]);
        for number in 0..cases("STEPS", 32) {
            let properties = vec![("N".to_owned(), Val::String("x".repeat(400)))];
            let (pk, rk) = ("p".to_owned(), format!("r{:02}", number % 25));
            let write = Write { verb: Verb::Upsert, pk, rk, properties, condition: Condition::Any };
            let table = "Alpha".to_owned();
            program.steps.push(Step::Write { table, write, durability: None });
            if rng.chance(1, 4) {
                program.steps.push(Step::Background(1, None));
            }
        }
        check(&program, &mut tally);
    }
    say(format!("crash images: {tally:?}"));
}

/// A process that dies at any moment may leave files behind. Opening removes the unreferenced ones.
#[test]
fn trap_52_leftover_files_do_not_accumulate() {
    let mut rng = Rng::from_seed(52);
    let program = Program::random(0x52_0000, 400, Mix { crashes: 25, ..Mix::PLAIN });
    let mut runner = Runner::new(program.config.clone());
    runner.run(&Step::Open(program.config.clone())).unwrap();
    for step in &program.steps {
        runner.engine.fs.record();
        let etag_max = runner.oracle.etag_max;
        runner.run(step).unwrap();
        let moments: Vec<u64> = runner.engine.fs.recorded().collect();
        if moments.len() > 3 && rng.chance(1, 3) {
            // The process dies in the middle of the step.
            let image = runner.engine.fs.kill_image_at(*rng.pick(&moments)).expect("recorded");
            // The process died before it returned the ETags of the interrupted step.
            runner.oracle.etag_max = etag_max;
            runner.recover(image, 0).unwrap();
            let files = runner.engine.fs.paths().len() as u64;
            let stats = runner.engine.db().stats();
            let named = stats.get("files").unwrap() + stats.get("logs").unwrap();
            // In addition there may be the files that no manifest edit names: LOCK, CURRENT, the
            // manifest, the next log.
            assert!(
                files <= named + 4,
                "{files} files, {named} named: {:?}",
                runner.engine.fs.paths()
            );
        }
    }
}

/// Returns a file system that acknowledges operations of the kind `about` without carrying them
/// out.
fn lying(inner: MemFs, about: OpKind) -> Arc<dyn Fs> {
    let fs = FaultFs::new(Arc::new(inner));
    fs.guard_syncs(move |op, _| op != about);
    Arc::new(fs)
}

/// Checks the suite itself: it must detect a disk that does not sync.
#[test]
fn a_disk_that_does_not_sync_is_detected() {
    let liars: [fn(MemFs) -> Arc<dyn Fs>; 2] =
        [|fs| lying(fs, OpKind::Sync), |fs| lying(fs, OpKind::SyncDir)];
    for lie in liars {
        let noticed = (0..20).filter(|seed| {
            let mix_of = Mix { crashes: 0, reopens: 12, clock: 2, tables: 20, ..Mix::PLAIN };
            let program = Program::random(0xc1_0000 + seed, STEPS, mix_of);
            run_program(&program, Some(lie), &mut Tally::default()).is_err()
        });
        assert!(noticed.count() > 10);
    }
}

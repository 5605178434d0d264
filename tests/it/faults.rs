//! Makes the i-th file operation fail, for every i and every kind of failure. Then the process is
//! killed or the power is cut.
//!
//! Whatever fails, acknowledged writes must survive, and every other commit must exist as a whole
//! or not at all.

use std::sync::Arc;

use rowstone::fs::{Fault, FaultFs, FaultKind, Fs};
use rowstone::{Durability, options::IoMode};

use crate::say;
use rowstone::sim::engine::Engine;
use rowstone::sim::program::{Mix, Program};
use rowstone::sim::runner::{Runner, is_storage_error};
use rowstone::sim::step::{Config, Step};

/// Steps of a program, each with some file operations. `STEPS=n` sets another number.
const STEPS: u64 = 32;

/// How a file operation fails, and whether all later operations fail, too.
#[derive(Clone, Copy, Debug)]
struct Plan {
    kind: FaultKind,
    sticky: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    runs: u64,
    delivered: u64,
    recoveries: u64,
}

fn program(seed: u64, io_mode: IoMode) -> Program {
    let mix_of = Mix { crashes: 0, reopens: 10, clock: 2, tables: 15, ..Mix::PLAIN };
    let mut program =
        Program::random(0xfa_0000 + seed, crate::cases("STEPS", STEPS) as usize, mix_of);
    program.config = Config { io_mode, durability: Durability::Sync, ..program.config };
    program
}

/// Runs `program` with the fault at operation `nth`; false if the program has fewer operations.
fn run(program: &Program, plan: Plan, nth: u64, tally: &mut Tally) -> Result<bool, String> {
    let mut runner = Runner::on(Engine::new(program.config.clone()));
    runner.faults_expected = true;
    let memory = runner.engine.fs.clone();
    let faults = FaultFs::new(Arc::new(memory.clone()));
    let fault = Fault::new(plan.kind).nth(nth);
    faults.arm(if plan.sticky { fault.sticky() } else { fault });
    let fs: Arc<dyn Fs> = Arc::new(faults.clone());
    tally.runs += 1;
    match runner.engine.open_on(fs.clone()) {
        Ok(()) => run_steps(&mut runner, program, &fs)?,
        Err(error) if is_storage_error(&error) => {}
        Err(error) => return Err(format!("open: {error:?}")),
    }
    tally.delivered += faults.delivered();
    let delivered = faults.delivered() > 0;
    recover(&runner, &memory, false)?;
    recover(&runner, &memory, true)?;
    tally.recoveries += 2;
    Ok(delivered)
}

fn run_steps(runner: &mut Runner, program: &Program, fs: &Arc<dyn Fs>) -> Result<(), String> {
    for (number, step) in program.steps.iter().enumerate() {
        if *step == Step::Reopen {
            if !reopen(runner, fs)? {
                return Ok(());
            }
            continue;
        }
        runner.run(step).map_err(|what| format!("step {number}, {step}: {what}"))?;
    }
    Ok(())
}

/// Closes and reopens through the faulty file system; false if opening fails.
fn reopen(runner: &mut Runner, fs: &Arc<dyn Fs>) -> Result<bool, String> {
    match runner.engine.close() {
        Ok(()) => runner.oracle.all_durable(),
        Err(error) if is_storage_error(&error) => {}
        Err(error) => return Err(format!("close: {error:?}")),
    }
    match runner.engine.open_on(fs.clone()) {
        Ok(()) => {}
        Err(error) if is_storage_error(&error) => return Ok(false),
        Err(error) => return Err(format!("open: {error:?}")),
    }
    match runner.engine.state() {
        Ok(state) => {
            let prefix = runner.oracle.find(&state, runner.oracle.process_floor)?;
            runner.oracle.roll_back(prefix);
            Ok(true)
        }
        Err(error) if is_storage_error(&error) => Ok(false),
        Err(error) => Err(format!("read back: {error:?}")),
    }
}

/// Checks that the remaining files open without faults and that the database accepts writes.
fn recover(run: &Runner, memory: &rowstone::fs::MemFs, power: bool) -> Result<(), String> {
    let engine = Engine::on(memory.clone(), run.engine.clock.clone(), run.engine.config.clone());
    let mut runner = Runner::on(engine);
    runner.oracle = run.oracle.clone();
    let (image, floor) = if power {
        (memory.crash_image(7), runner.oracle.power_floor)
    } else {
        (memory.kill_image(), runner.oracle.process_floor)
    };
    let how = if power { "power cut" } else { "killed" };
    let done = runner.recover(image, floor).and_then(|_| {
        runner.run(&Step::CreateTable("Afterwards".to_owned()))?;
        runner.run(&Step::Flush)?;
        runner.run(&Step::Compact)?;
        runner.compare()
    });
    done.map(drop).map_err(|what| format!("{how}: {what}"))
}

fn sweep(plan: Plan, io_mode: IoMode) {
    let mut tally = Tally::default();
    for seed in 0..3 {
        let program = program(seed, io_mode);
        let mut nth = 0;
        loop {
            match run(&program, plan, nth, &mut tally) {
                Ok(true) => nth += 1,
                Ok(false) => break,
                Err(what) => panic!(
                    "{plan:?} at operation {nth} of seed {seed}, {io_mode:?}: {what}\n\n{}",
                    program.script()
                ),
            }
        }
        assert!(nth > 50, "the sweep ended after {nth} operations");
    }
    say(format!("{plan:?}, {io_mode:?}: {tally:?}"));
}

#[test]
fn trap_01_every_operation_fails_once() {
    sweep(Plan { kind: FaultKind::Eio, sticky: false }, IoMode::Pread);
}

#[test]
fn every_operation_fails_permanently() {
    sweep(Plan { kind: FaultKind::Eio, sticky: true }, IoMode::Mmap);
}

#[test]
fn trap_27_the_disk_is_full_once_and_permanently() {
    sweep(Plan { kind: FaultKind::Enospc, sticky: false }, IoMode::Mmap);
    sweep(Plan { kind: FaultKind::Enospc, sticky: true }, IoMode::Pread);
}

#[test]
fn every_write_is_cut_short() {
    sweep(Plan { kind: FaultKind::ShortWrite, sticky: false }, IoMode::Mmap);
}

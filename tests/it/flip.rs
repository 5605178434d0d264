//! Damage: every byte of a small database flipped, every file cut at every length.
//!
//! After a clean close the answer is right or an error that names the file. After a kill, moreover,
//! what no later record vouches for may be missing: some prefix of the commits is left.

use rowstone::fs::MemFs;
use rowstone::{Durability, Error, ErrorKind, IoMode};

use crate::say;
use rowstone::sim::engine::{Engine, PATH};
use rowstone::sim::program::{Mix, Program};
use rowstone::sim::runner::Runner;
use rowstone::sim::step::{Config, Step};

const STEPS: usize = 40;

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    right: u64,
    refused: u64,
    shorter: u64,
}

/// A database that was written and is not open any more.
struct Subject {
    runner: Runner,
    fs: MemFs,
    floor: usize,
}

impl Subject {
    fn new(seed: u64, io_mode: IoMode, clean: bool) -> Subject {
        let mix = Mix { crashes: 0, reopens: 0, clock: 0, tables: 6, ..Mix::PLAIN };
        let mut program = Program::random(0xf1_0000 + seed, STEPS, mix);
        program.config =
            Config { io_mode, durability: Durability::Sync, block_bytes: 512, ..program.config };
        let mut runner = Runner::new(program.config.clone());
        runner.run(&Step::Open(program.config.clone())).unwrap();
        for step in &program.steps {
            runner.run(step).unwrap();
        }
        if clean {
            runner.engine.close().unwrap();
            runner.oracle.all_durable();
        }
        let fs = runner.engine.fs.kill_image();
        let floor = if clean { runner.oracle.commits() } else { 0 };
        Subject { runner, fs, floor }
    }

    fn files(&self) -> Vec<String> {
        let files = self.fs.paths();
        files.into_iter().filter(|path| !path.ends_with("LOCK")).collect()
    }

    /// The damaged copy answers rightly, or with an error that names `file`.
    fn check(&self, damaged: MemFs, file: &str, tally: &mut Tally) -> Result<(), String> {
        let source = &self.runner.engine;
        let mut engine = Engine::on(damaged, source.clock.clone(), source.config.clone());
        let read = engine.open().and_then(|()| {
            let state = engine.state()?;
            let report = engine.db().verify()?;
            Ok((state, report.problems))
        });
        match read {
            Ok((state, problems)) => {
                let mut oracle = self.runner.oracle.clone();
                let commits = oracle.commits();
                let prefix = oracle.find(&state, self.floor)?;
                if problems.is_empty() && prefix == commits {
                    tally.right += 1;
                } else if problems.is_empty() {
                    tally.shorter += 1;
                } else if problems.iter().all(|problem| problem.contains(name(file))) {
                    tally.refused += 1;
                } else {
                    return Err(format!("verify names another file: {problems:?}"));
                }
                Ok(())
            }
            Err(error) if names(&error, file) => {
                tally.refused += 1;
                Ok(())
            }
            Err(error) => Err(format!("the error does not name the file: {error:?}")),
        }
    }

    fn check_all(&self, what: &str) {
        let mut tally = Tally::default();
        for file in self.files() {
            let len = self.fs.len(&file).unwrap();
            for offset in interesting(&self.fs.read(&file).unwrap()) {
                let mask = 1 << (offset % 8);
                let damaged = self.fs.kill_image();
                damaged.flip(&file, offset, mask).unwrap();
                let checked = self.check(damaged, &file, &mut tally);
                checked.unwrap_or_else(|why| {
                    panic!("{what}: {file}, byte {offset} of {len} ^ {mask:#x}: {why}")
                });
                let damaged = self.fs.kill_image();
                damaged.truncate(&file, offset).unwrap();
                let checked = self.check(damaged, &file, &mut tally);
                checked
                    .unwrap_or_else(|why| panic!("{what}: {file} cut at {offset} of {len}: {why}"));
            }
            let damaged = self.fs.kill_image();
            damaged.erase(&file).unwrap();
            let checked = self.check(damaged, &file, &mut tally);
            checked.unwrap_or_else(|why| panic!("{what}: {file} removed: {why}"));
        }
        say(format!("{what}: {tally:?}"));
        assert!(tally.refused > 100, "{tally:?}");
    }
}

fn name(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

/// Damage, a newer format, or a file that is gone: by name. Without CURRENT the directory is named, and
/// a manifest that lost its last edit may name a file that is gone: both of them are suspects then.
fn names(error: &Error, file: &str) -> bool {
    let kind = matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported);
    let text = error.chain();
    let current = file.ends_with("CURRENT") && text.contains(PATH);
    let manifest = file.contains("MANIFEST") && text.contains("the manifest names");
    kind && (text.contains(name(file)) || current || manifest)
}

/// Every offset, but of a long run of zeros only the first, the last and every 512th.
fn interesting(bytes: &[u8]) -> Vec<u64> {
    let zero = |at: usize| bytes.get(at).is_none_or(|byte| *byte == 0);
    let run = |at: usize| (at.saturating_sub(16)..=at + 16).all(zero);
    let chosen = |at: &usize| !run(*at) || at.is_multiple_of(512);
    (0..bytes.len()).filter(chosen).map(|at| at as u64).collect()
}

#[test]
fn trap_24_every_byte_of_a_closed_database() {
    Subject::new(1, IoMode::Mmap, true).check_all("closed, mapped");
    Subject::new(2, IoMode::Pread, true).check_all("closed, read");
}

#[test]
fn trap_03_every_byte_of_a_killed_database() {
    Subject::new(3, IoMode::Pread, false).check_all("killed, read");
}

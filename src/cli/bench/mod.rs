//! `rowstone bench`: runs the usual workloads of key-value store benchmarks, with the names and
//! options of db_bench.
//!
//! Files: `workload` (the operations of each benchmark), `stage` (opening the database), `entities`
//! (the written entities and their check), `clients` (threads and their latencies), `report`.
//!
//! Not here: other engines (`benches/compare`), the performance study of 2010 (`benches/study`),
//! micro-benchmarks (`benches`).

mod clients;
mod entities;
mod report;
mod settings;
mod stage;
mod workload;

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::EnumValueParser;

use self::report::Report;
use self::settings::Settings;
use self::stage::Stage;
use self::workload::{DEFAULT, Kind, Run};
use super::failure::{Failure, Outcome};
use super::open::Trimmed;
use super::output::Output;
use super::progress::Progress;
use crate::clock::SystemClock;

/// Measure this machine with the workloads of db_bench.
#[derive(Args)]
#[command(after_long_help = HELP)]
pub(super) struct Bench {
    /// A directory that is missing or empty, or was created by an earlier `bench`
    dir: PathBuf,
    /// The benchmarks to run, in this order, separated by commas [default:
    /// fillseq,fillbatch,fillsync, fillrandom,overwrite,readrandom,
    /// readmissing,readseq,readreverse, seekrandom,filterscan,compact,
    /// readrandom,readseq,filterscan, readwhilewriting]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    #[arg(value_parser = Trimmed(EnumValueParser::<Kind>::new()))]
    benchmarks: Vec<Kind>,
    #[command(flatten)]
    settings: Settings,
}

const HELP: &str = "\
Each fill benchmark begins with an empty table; the others take what the ones before left.
fillsync writes a thousandth of --num. An operation is an entity; in readseq and readreverse
every client reads all of them, and in filterscan an operation is an entity looked at. Each
call is timed for the percentiles, which costs some 30 ns, and each answer is compared with
what was written: the first that differs ends the run with status 1.

Differences from db_bench: keys have two parts, fillbatch groups have at most 100 entities of
one partition, values are typed, and --num and --reads count the operations of all clients.

Examples:
  rowstone bench /tmp/bench
  rowstone bench /tmp/bench --benchmarks fillrandom,readrandom \\
      --num 10000000 --threads 2
  rowstone bench /tmp/bench --benchmarks readrandom --use-existing-db \\
      --duration 30 --histogram
  rowstone bench /tmp/bench --benchmarks fillsync --threads 16 --format json";

impl Bench {
    pub(super) fn run(self) -> Outcome {
        let Self { dir, benchmarks, settings } = self;
        let kinds = if benchmarks.is_empty() { DEFAULT.to_vec() } else { benchmarks };
        settings.format.is_json()?;
        if !settings.use_existing_db && !kinds[0].is_fill() {
            return Err(Failure::Usage(format!(
                "{} has nothing to work on\n  try: fillseq before it, or --use-existing-db",
                kinds[0].name()
            )));
        }
        settings.run(&dir, &kinds)
    }
}

impl Settings {
    fn run(&self, dir: &Path, kinds: &[Kind]) -> Outcome {
        let clock = SystemClock::new();
        let mut stage = Stage::open(dir, self)?;
        let mut report = Report { settings: self, output: Output::standard() };
        let entities = &stage.entities;
        report.begin(&entities.shape, entities.entity_bytes())?;
        let mut is_clear = true;
        for kind in kinds {
            if kind.is_fill() && !self.use_existing_db && !std::mem::take(&mut is_clear) {
                stage = stage.clear(dir, self)?;
            }
            let run =
                Run { kind: *kind, settings: self, stage: &stage, clock: &clock, progress: None };
            let progress = Progress::new(run.time().is_none().then(|| run.count()));
            let ended = Run { progress: Some(&progress), ..run }.run();
            drop(progress);
            let (tally, beside) = ended?;
            report.benchmark(*kind, &tally, beside.as_ref())?;
        }
        report.end(&stage.db)?.finish()?;
        let Stage { db, table, .. } = stage;
        drop(table);
        Ok(db.close()?)
    }
}

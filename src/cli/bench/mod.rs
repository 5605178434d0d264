//! `bench`: the usual workloads of key-value store benchmarks, under the names and options of db_bench.
//!
//! Files: `workload` (the operations of each name), `stage` (the database), `entities` (written, read and checked),
//! `clients` (threads and their latencies), `histogram`, `report`.
//!
//! Not here: other engines (`benches/compare`), the performance study of 2010 (`benches/study`), micro-benchmarks
//! (`benches`).

mod clients;
mod entities;
mod histogram;
mod report;
mod stage;
mod workload;

use std::path::{Path, PathBuf};

use clap::Args;

use self::report::Report;
use self::stage::Stage;
use self::workload::{DEFAULT, Kind, Run};
use super::failure::{Failure, Outcome};
use super::import::Progress;
use super::output::Output;
use super::{DurabilityName, IoName};
use crate::clock::SystemClock;

/// Measure this machine with the workloads of db_bench.
#[derive(Args)]
#[command(after_long_help = HELP)]
pub(super) struct Bench {
    /// A directory that is missing or empty, or that an earlier `bench` made
    dir: PathBuf,
    /// What to run, in this order, separated by commas [default: fillseq,fillbatch,fillsync,
    /// fillrandom,overwrite,readrandom,readmissing,readseq,readreverse,seekrandom,filterscan,
    /// compact,readrandom,readseq,filterscan,readwhilewriting]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAMES")]
    benchmarks: Vec<Kind>,
    #[command(flatten)]
    settings: Settings,
}

/// How benchmarks run.
#[derive(Args, Debug)]
struct Settings {
    /// Entities there can be; what the fill benchmarks write [default: 1000000]
    #[arg(long, value_name = "N", value_parser = number::<1, { 1 << 40 }>)]
    num: Option<u64>,
    /// Operations of a read benchmark, of all clients together [default: as --num]
    #[arg(long, value_name = "N", value_parser = number::<1, { 1 << 40 }>)]
    reads: Option<u64>,
    /// Clients at the same time; they share the operations
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=1_024))]
    threads: u32,
    /// Bytes of the text in each entity [default: 100]
    #[arg(long, alias = "value_size", value_name = "BYTES",
        value_parser = clap::value_parser!(u32).range(0..=32_768))]
    value_size: Option<u32>,
    /// Entities of a group in fillbatch
    #[arg(long, alias = "batch_size", value_name = "N", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=100))]
    batch_size: u32,
    /// Entities that have the same PartitionKey [default: 1000]
    #[arg(long, value_name = "N", value_parser = number::<1, { 1 << 32 }>)]
    partition_rows: Option<u64>,
    /// Entities that seekrandom reads behind the first
    #[arg(long, alias = "seek_nexts", value_name = "N", default_value_t = 0)]
    seek_nexts: u32,
    /// Percent of the entities that match in filterscan
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent)]
    selectivity: f64,
    /// To what part of its size an entity's text can be compressed
    #[arg(long, alias = "compression_ratio", value_name = "RATIO", default_value_t = 0.5,
        value_parser = ratio)]
    compression_ratio: f64,
    /// Decides keys, values and their order
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Seconds that random reads, overwrite and filterscan run, instead of counts
    #[arg(long, value_name = "SECONDS", value_parser = number::<1, { 1 << 20 }>)]
    duration: Option<u64>,
    /// Most entities a second of the writer in readwhilewriting [default: as fast as it goes]
    #[arg(long, alias = "benchmark_write_rate_limit", value_name = "N",
        value_parser = number::<1, { 1 << 32 }>)]
    write_rate: Option<u64>,
    /// What a commit survives; fillsync always takes sync
    #[arg(long, value_enum, default_value_t = DurabilityName::Os)]
    durability: DurabilityName,
    /// How files are read
    #[arg(long, value_enum, default_value_t = IoName::Mmap)]
    io: IoName,
    /// Bytes of the block cache, as 32M; for --io pread and --compress
    #[arg(long, alias = "cache_size", value_name = "BYTES", value_parser = bytes)]
    cache_size: Option<u64>,
    /// Bytes of a memtable, as 64M
    #[arg(long, alias = "write_buffer_size", value_name = "BYTES", value_parser = bytes)]
    write_buffer_size: Option<u64>,
    /// Bytes of a block, as 16K
    #[arg(long, alias = "block_size", value_name = "BYTES", value_parser = bytes)]
    block_size: Option<u64>,
    /// Threads that merge files
    #[arg(long, alias = "max_background_compactions", value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    compaction_threads: Option<u32>,
    /// Most bytes a second of background work, as 100M
    #[arg(long, alias = "rate_limit", value_name = "BYTES", value_parser = bytes)]
    rate_limit: Option<u64>,
    /// Compress sorted files with zstd
    #[arg(long)]
    compress: bool,
    /// List how many operations took how long
    #[arg(long)]
    histogram: bool,
    /// Take the entities that are there; the fill benchmarks then write over them
    #[arg(long, alias = "use_existing_db")]
    use_existing_db: bool,
    /// Print JSON, an object a line
    #[arg(long)]
    json: bool,
}

const NUM: u64 = 1_000_000;
const VALUE_SIZE: u32 = 100;
const PARTITION_ROWS: u64 = 1_000;

const HELP: &str = "\
Each fill benchmark begins with an empty table; the others take what the ones before left.
fillsync writes a thousandth of --num. An operation is an entity; in readseq and readreverse
every client reads all of them, and in filterscan an operation is an entity looked at. Each
call is timed for the percentiles, which costs some 30 ns, and each answer is compared with
what was written: the first that differs ends the run with status 1.

What differs from db_bench: keys have two parts, fillbatch groups have at most 100 entities
of one partition, values are typed, and all clients together make up --num and --reads.

Examples:
  rowstone bench /tmp/bench
  rowstone bench /tmp/bench --benchmarks fillrandom,readrandom --num 10000000 --threads 2
  rowstone bench /tmp/bench --benchmarks readrandom --use-existing-db --duration 30 --histogram
  rowstone bench /tmp/bench --benchmarks fillsync --threads 16 --json";

impl Bench {
    pub(super) fn run(self) -> Outcome {
        let Self { dir, benchmarks, settings } = self;
        let kinds = if benchmarks.is_empty() { DEFAULT.to_vec() } else { benchmarks };
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
        report.begin(&entities.shape, entities.entity_bytes()).map_err(Failure::output)?;
        let mut is_clear = true;
        for kind in kinds {
            if kind.is_fill() && !self.use_existing_db && !std::mem::take(&mut is_clear) {
                stage = stage.clear(dir, self)?;
            }
            let run =
                Run { kind: *kind, settings: self, stage: &stage, clock: &clock, progress: None };
            let progress = Progress::new(run.time().is_none().then(|| run.count()));
            let ended = Run { progress: Some(&progress), ..run }.run();
            progress.end();
            let (tally, beside) = ended?;
            report.benchmark(*kind, &tally, beside.as_ref()).map_err(Failure::output)?;
        }
        let output = report.end(&stage.db).map_err(Failure::output)?;
        output.finish()?;
        let Stage { db, table, .. } = stage;
        drop(table);
        Ok(db.close()?)
    }
}

fn number<const LEAST: u64, const MOST: u64>(text: &str) -> Result<u64, String> {
    let number: u64 = text.replace('_', "").parse().map_err(|error| format!("{error}"))?;
    let is_within = (LEAST..=MOST).contains(&number);
    if is_within { Ok(number) } else { Err(format!("from {LEAST} to {MOST}")) }
}

/// A size, as 64M.
fn bytes(text: &str) -> Result<u64, String> {
    let shift = match text.to_ascii_uppercase().chars().last() {
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    let number: u64 = digits.parse().map_err(|_| "a number of bytes, as 64M".to_owned())?;
    let bytes = number.checked_mul(1 << shift).filter(|bytes| *bytes <= 1 << 40);
    bytes.ok_or_else(|| "at most 1024G".to_owned())
}

fn percent(text: &str) -> Result<f64, String> {
    between(text, 100.0)
}

fn ratio(text: &str) -> Result<f64, String> {
    between(text, 1.0)
}

fn between(text: &str, most: f64) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|error| format!("{error}"))?;
    let is_within = (0.0..=most).contains(&number);
    if is_within { Ok(number) } else { Err(format!("from 0 to {most}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes("64M"), Ok(64 << 20));
        assert_eq!(bytes("16k"), Ok(16 << 10));
        assert_eq!((bytes("2G"), bytes("512")), (Ok(2 << 30), Ok(512)));
        assert!(["", "M", "12X", "-1", "9999999G", "é"].iter().all(|text| bytes(text).is_err()));
    }

    #[test]
    fn numbers_have_limits() {
        assert_eq!(number::<1, 10>("1_0"), Ok(10));
        assert!(number::<1, 10>("11").is_err() && number::<1, 10>("x").is_err());
        assert_eq!((percent("0.1"), ratio("1")), (Ok(0.1), Ok(1.0)));
        assert!(percent("101").is_err() && ratio("NaN").is_err());
    }
}

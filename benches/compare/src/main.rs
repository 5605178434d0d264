//! Compares rowstone with RocksDB, fjall, LMDB, redb and SQLite: the same data, seeds, durability
//! and memory.
//!
//! The README.md of this package describes the usage; reports list the settings of each engine.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock, files and processes")]
#![cfg_attr(
    not(any(feature = "rocksdb", feature = "fjall", feature = "lmdb", feature = "redb")),
    expect(dead_code, reason = "only key-value stores encode entities")
)]

mod built;
mod cgroup;
mod choose;
mod device;
mod encoding;
mod engines;
mod flights;
mod limits;
mod measure;
mod oracle;
mod plan;
mod process;
mod reading;
mod report;
mod results;
mod rows;
mod run;
mod sheet;
mod store;
mod targets;
mod workloads;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::engines::Engine;
use crate::plan::{Form, Selection};
use crate::reading::Data;
use crate::results::{Line, Results};
use crate::workloads::Spec;

/// Compares rowstone with other storage engines.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures the figures that are missing, prints the table, and writes report.html,
    /// comparison.md and comparison.jsonl.
    Run(Run),
    /// Writes the same reports from existing figures.
    Report(Report),
    /// Simulates ten sensors that each write one row per second, kept for a week. Measures flash
    /// writes, memory and disk space of rowstone, SQLite and LMDB.
    DeviceDay(DeviceDay),
    #[command(hide = true)]
    DeviceChild { task: String },
    #[command(hide = true)]
    Child { spec: String },
    #[command(hide = true)]
    Die { spec: String, name: String, first: u64, writes: u64 },
}

#[derive(Args)]
struct Run {
    /// A directory on a real disk, for results and for the databases under test.
    dir: PathBuf,
    /// Measures all rows of the report in about ten minutes, with fewer entities and shorter
    /// measurements. Without it this takes hours.
    #[arg(long)]
    quick: bool,
    /// Measures only rows of the report with this word in their name, title or group.
    #[arg(long, default_value = "")]
    only: String,
    /// Only these engines, separated by commas.
    #[arg(long, value_delimiter = ',')]
    engines: Vec<Engine>,
    /// Entity counts for the rows of the report that are measured at several sizes; a number may
    /// end in k or m.
    #[arg(long, value_delimiter = ',', value_parser = size)]
    sizes: Vec<u64>,
    /// Number of entities in most other rows of the report.
    #[arg(long, value_parser = size)]
    entities: Option<u64>,
    #[arg(long)]
    repetitions: Option<u32>,
    /// Real flights: a CSV with the columns of nycflights13, gzipped or not.
    #[arg(long)]
    csv: Option<PathBuf>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct DeviceDay {
    /// A directory on a real disk, for `device-day.json` and the databases under test.
    dir: PathBuf,
    /// Keeps rows for one day and measures one hour, instead of seven days and twenty-four hours.
    #[arg(long)]
    quick: bool,
    /// Simulated days for which rows are kept.
    #[arg(long)]
    days: Option<u64>,
    /// Simulated hours to measure with each loss window (a minute, a second).
    #[arg(long)]
    hours: Option<u64>,
}

#[derive(Args)]
struct Report {
    /// The directory of a run.
    dir: PathBuf,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Run(run) => measure(run),
        Command::Report(report) => Results::read(&report.dir.join("results.jsonl"))
            .and_then(|results| report::write(&results, &report.dir)),
        Command::DeviceDay(day) => {
            let (days, hours) = if day.quick { (1, 1) } else { (7, 24) };
            device::run(&day.dir, day.days.unwrap_or(days), day.hours.unwrap_or(hours))
        }
        Command::DeviceChild { task } => device::child_main(&task),
        Command::Child { spec } => child(&spec),
        Command::Die { spec, name, first, writes } => {
            serde_json::from_str(&spec).map_err(io::Error::from).map(|spec| {
                workloads::die(&spec, &name, first, writes);
            })
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(run: Run) -> io::Result<()> {
    let mut form = if run.quick { Form::quick() } else { Form::full() };
    if !run.sizes.is_empty() {
        form.sizes = run.sizes;
    }
    form.entities = run.entities.unwrap_or(form.entities);
    form.repetitions = run.repetitions.unwrap_or(form.repetitions);
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/data/flights.csv.gz");
    let is_wanted = |engine: &Engine| run.engines.is_empty() || run.engines.contains(engine);
    let (built, left_out): (Vec<Engine>, Vec<Engine>) =
        Engine::ALL.into_iter().filter(is_wanted).partition(|engine| engine.is_built());
    for engine in left_out {
        eprintln!("{} is skipped: this build does not include it", engine.name());
    }
    let csv = run.csv.unwrap_or_else(|| PathBuf::from(sample));
    let flights = Data::real(run.seed, flights::read(&csv)?).rows().unwrap_or(0);
    let selection = Selection { word: run.only, engines: built, csv, flights, seed: run.seed };
    let results = run::run(&form, &selection, &run.dir)?;
    report::write(&results, &run.dir)
}

/// Runs one child process, which prints each result line as soon as it is measured.
fn child(spec: &str) -> io::Result<()> {
    let spec: Spec = serde_json::from_str(spec)?;
    // Without an exit, the other threads would wait forever for the one that panicked.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("    {panic}");
        std::process::exit(101);
    }));
    if let Some(group) = &spec.cgroup {
        cgroup::join(group)?;
    }
    let mut output = io::stdout();
    workloads::run(&spec, &mut |line: Line| {
        let text = serde_json::to_string(&line).expect("plain data");
        writeln!(output, "{text}").expect("the parent reads the output");
    });
    Ok(())
}

/// Parses `50m`, `200k` or a plain number.
fn size(text: &str) -> Result<u64, String> {
    let (digits, times) = match text.strip_suffix(['m', 'M']) {
        Some(digits) => (digits, 1_000_000),
        None => match text.strip_suffix(['k', 'K']) {
            Some(digits) => (digits, 1_000),
            None => (text, 1),
        },
    };
    digits.parse::<u64>().map(|number| number * times).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;

//! Repeats the performance study of 2010 on Azure Table storage in "How to get most out of Windows
//! Azure Tables", an article of the Windows Azure Storage team, on this machine, figure by figure.
//!
//! Files: `figures` (the measurements), `figure` (chart, table, JSON), `ground` (entities and
//! database), `clients` (threads and latencies), `vms` (client processes and their server),
//! `client` (the work of such a process), `saturation` (figure 15, on a virtual clock), `plot`
//! (SVG), `page` (HTML).

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock and writes its report")]

mod client;
mod clients;
mod figure;
mod figures;
mod ground;
mod page;
mod plot;
mod saturation;
#[cfg(test)]
mod tests;
mod vms;

use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use rowstone::{
    DateTime, Db, Durability, ErrorKind,
    clock::{Clock, SystemClock},
    options::Background,
};
use serde_json::json;

use self::figures::{Figures, NUMBERS};
use self::ground::{Ground, Scope};
use self::vms::Service;

/// The result of a fallible operation. Every error ends the run.
type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Measure the figures of the performance case study in "How to get most out of Windows Azure
/// Tables" (2010), and draw them with that study's numbers
#[derive(Parser, Debug)]
#[command(after_long_help = HELP)]
struct Study {
    /// A directory that is missing or empty, or that an earlier run made; the database that client
    /// processes use is DIR.served
    dir: PathBuf,
    /// Take fewer and shorter measurements, in about a minute
    #[arg(long)]
    quick: bool,
    /// The report, one HTML page
    #[arg(long, value_name = "FILE", default_value = "case-study.html")]
    out: PathBuf,
    /// Only these figures, separated by commas [default: 3 to 15]
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS",
        value_parser = clap::value_parser!(u32).range(3..=15))]
    figures: Vec<u32>,
    /// Durability of inserts; the inserts of the study were durable
    #[arg(long, value_enum, default_value_t = DurabilityName::Sync)]
    durability: DurabilityName,
    /// Measure all figures by threads of this process that call the library, without a server
    #[arg(long)]
    library: bool,
    /// Milliseconds of each measurement [default: 2000; with --quick 300]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=600_000))]
    point_millis: Option<u64>,
    /// Maximum number of entities that a measurement inserts [default: 300000; with --quick 50000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    inserts_max: Option<u64>,
    /// Number of entities that each client reads with GETs [default: 5000; with --quick 500]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rows: Option<u64>,
    /// Seed of keys and payloads
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print JSON, one object per figure
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DurabilityName {
    Sync,
    Os,
    Buffered,
}

/// The name of a table that this program creates to mark a database as its own.
const MARK_TABLE: &str = "RowstoneStudy";

/// The reasons why absolute numbers of 2010 and of this run differ.
const DIFFERENCES: [&str; 6] = [
    "The service of 2010 was behind a network, HTTP and authentication, and kept three copies of everything. Here there is one \
     disk; calls of client processes use HTTP and authentication over loopback, calls of threads stay within one process. Absolute times differ by orders of magnitude for that reason alone; compare the shapes.",
    "The study used up to 16 virtual machines of two sizes. Here a small one is a process with one thread on one processor and an \
     extra-large one a process with eight threads. Some figures, or all of them, use threads of one process instead; see \"clients\" \
     above. Clients and database share the processors of one machine.",
    "The study measured a live system for days. Here a point takes seconds or less, after a warm-up of a fifth of its time.",
    "Where the study was throttled, the server farm was the limit. Here only figure 15 throttles: the database's own throttle, \
     with a target that the study's partition showed, and clients on a virtual clock whose calls take as long as the study's.",
    "The study's text gives few numbers for its plots. Where it gives only a finding, no number is drawn.",
    "Reads are of data in memory. The study does not say whether the service's hot partitions were in memory.",
];

const HELP: &str = "\
The study's entities have 1,024 bytes in one property. PartitionKeys are random GUIDs, one for
each thread or one for all. Clients call, wait for the answer and call again. Each figure is a
table on the terminal, and all of them are one HTML page with plots. A run takes some minutes
and up to a few GB on disk; with --quick about a minute. The tables are dropped at the end.

Clients in figures 3 to 9, 12 and 14 are processes that call rowstone serve by HTTP. This program
starts the server and the clients as processes of its own. Clients have the two sizes of the study:
small, one thread on one processor (by taskset), and extra-large, eight threads. Figures 10, 11, 13
and 15 vary the number of threads; their clients are threads of this process that call the library.
With --library the clients of all figures are such threads.

Examples, behind cargo run --release --manifest-path benches/study/Cargo.toml --
  /tmp/study --quick
  /tmp/study --out report.html
  /tmp/study --figures 5,6,7 --json
  /tmp/study --quick --library";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next();
    let done = match arguments.next() {
        Some(first) if first == vms::SERVER => {
            return rowstone::cli::run(name.into_iter().chain(arguments));
        }
        Some(first) if first == vms::CLIENT => client::main(name.into_iter().chain(arguments)),
        _ => Study::parse().run(&mut io::stdout().lock()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

impl Study {
    fn run(&self, output: &mut dyn Write) -> Outcome {
        let db = self.open(&self.dir)?;
        // Creates the report file before the measurements, so that a run does not fail at its end.
        let failed = |error| format!("cannot write {}: {error}", self.out.display());
        let mut page = File::create(&self.out).map_err(failed)?;
        let ground = Ground::new(db, self.scope());
        let pressed = Duration::from_secs(if self.quick { 20 } else { 120 });
        let by_size = OnceCell::new();
        let service = self.service()?;
        let (service, is_quick) = (service.as_ref(), self.quick);
        let figures = Figures { ground: &ground, service, is_quick, pressed, by_size };
        let mut done = Vec::new();
        for number in self.numbers() {
            let figure = figures.measure(number)?;
            if self.json {
                writeln!(output, "{}", figure.json())?;
            } else {
                figure.print(output)?;
            }
            output.flush()?;
            done.push(figure);
        }
        ground.end()?;
        page.write_all(page::page(&self.facts(), &done).as_bytes()).map_err(failed)?;
        let (shown, count) = (self.out.display().to_string(), done.len());
        if self.json {
            writeln!(output, "{}", json!({ "report": shown, "figures": count }))?;
        } else {
            writeln!(output, "\n{count} figures are drawn in {shown}")?;
        }
        Ok(())
    }

    /// Opens the database. A directory that another program created is refused, because the study
    /// creates and drops tables.
    fn open(&self, dir: &Path) -> Outcome<Db> {
        refuse_others(dir)?;
        let db = Db::options().durability(self.durability.into()).open(dir)?;
        db.table_or_create(MARK_TABLE)?;
        Ok(db)
    }

    /// Starts the server of client processes on a database of its own. Returns `None` if all
    /// clients are threads.
    fn service(&self) -> Outcome<Option<Service>> {
        if self.library {
            return Ok(None);
        }
        // The path may end with a slash, or be `.`.
        let mut dir = self.dir.canonicalize()?.into_os_string();
        dir.push(".served");
        self.open(dir.as_ref())?.close()?;
        Service::start(dir.as_ref(), &self.durability_name(), self.scope()).map(Some)
    }

    fn durability_name(&self) -> String {
        format!("{:?}", self.durability).to_lowercase()
    }

    fn numbers(&self) -> Vec<u32> {
        if self.figures.is_empty() { NUMBERS.collect() } else { self.figures.clone() }
    }

    fn scope(&self) -> Scope {
        let pick = |quick, full| if self.quick { quick } else { full };
        Scope {
            time: Duration::from_millis(self.point_millis.unwrap_or(pick(300, 2_000))),
            inserts_max: self.inserts_max.unwrap_or(pick(50_000, 300_000)),
            rows: self.rows.unwrap_or(pick(500, 5_000)),
            seed: self.seed,
        }
    }

    /// Returns names and values about the run.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let scope = self.scope();
        let (os, architecture) = (std::env::consts::OS, std::env::consts::ARCH);
        let clients = if self.library {
            "threads of one process, without a server"
        } else {
            "figures 3 to 9, 12 and 14: processes that call rowstone serve by HTTP (3, 8 and 9 \
             extra-large, 4 small, the others both sizes); figures 10, 11, 13 and 15: threads of one \
             process, without a server"
        };
        let time = DateTime::from_ticks(SystemClock::new().now());
        vec![
            ("rowstone", rowstone_version().unwrap_or_default().to_owned()),
            ("when", time.map(|time| time.to_string()).unwrap_or_default()),
            ("machine", format!("{processors} processors, {os}, {architecture}")),
            ("durability", self.durability_name()),
            ("clients", clients.to_owned()),
            (
                "points",
                format!("{} ms, at most {} inserts", scope.time.as_millis(), scope.inserts_max),
            ),
            ("seed", self.seed.to_string()),
        ]
    }
}

impl From<DurabilityName> for Durability {
    fn from(name: DurabilityName) -> Self {
        match name {
            DurabilityName::Sync => Self::Sync,
            DurabilityName::Os => Self::Os,
            DurabilityName::Buffered => Self::Buffered,
        }
    }
}

/// Fails unless `dir` is missing, empty, or a database with the table [`MARK_TABLE`]. To check
/// this, opens the database without background work, and does not change it.
fn refuse_others(dir: &Path) -> Outcome {
    let shown = dir.display();
    match std::fs::read_dir(dir).map(|mut entries| entries.next().is_none()) {
        Ok(true) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("cannot read {shown}: {error}").into()),
        Ok(false) => {}
    }
    let options = Db::options().background(Background::Manual).create_if_missing(false);
    let db = options.open(dir).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::InvalidInput => {
            format!("{shown} is not empty and holds no database")
        }
        _ => error.to_string(),
    })?;
    let is_ours = db.tables()?.iter().any(|name| name == MARK_TABLE);
    db.close()?;
    if is_ours {
        return Ok(());
    }
    Err(format!("{shown} is a database that this program did not make").into())
}

fn rowstone_version() -> Option<&'static str> {
    let manifest = include_str!("../../../Cargo.toml");
    manifest.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'))
}

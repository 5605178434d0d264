//! `bench case-study`: the performance study of the hosted Table service of 2010, figure by figure, on this machine.
//!
//! Files: `figures` (what is measured), `figure` (chart, table, JSON), `ground` (entities and clients), `saturation` (figure 15,
//! by a virtual clock), `page`.

mod figure;
mod figures;
mod ground;
mod page;
mod saturation;

use std::cell::Cell;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use self::figure::Figure;
use self::figures::{Figures, NUMBERS};
use self::ground::{Ground, Scope};
use super::stage;
use crate::cli::DurabilityName;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::files;
use crate::cli::import::Progress;
use crate::cli::output::Output;
use crate::clock::{Clock, SystemClock};
use crate::db::Db;
use crate::wire::json::Object;

/// Measure the figures of the performance case study of 2010, and draw them beside that study's numbers.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub(super) struct Study {
    /// A directory that is missing or empty, or that an earlier `bench` made
    dir: PathBuf,
    /// Within about a minute: shorter points, and fewer
    #[arg(long)]
    quick: bool,
    /// Where the report goes, one HTML page
    #[arg(long, value_name = "FILE", default_value = "case-study.html")]
    out: PathBuf,
    /// Only these figures, separated by commas [default: 3 to 15]
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS",
        value_parser = clap::value_parser!(u32).range(3..=15))]
    figures: Vec<u32>,
    /// What an insert survives; the study's were durable
    #[arg(long, value_enum, default_value_t = DurabilityName::Sync)]
    durability: DurabilityName,
    /// Milliseconds of each point [default: 2000; with --quick 300]
    #[arg(long, value_name = "N", value_parser = super::number::<1, 600_000>)]
    point_millis: Option<u64>,
    /// Most entities that a point inserts [default: 300000; with --quick 50000]
    #[arg(long, value_name = "N", value_parser = super::number::<1, 100_000_000>)]
    inserts_max: Option<u64>,
    /// Entities of each client that GETs read [default: 5000; with --quick 500]
    #[arg(long, value_name = "N", value_parser = super::number::<1, 1_000_000>)]
    rows: Option<u64>,
    /// Decides keys and payloads
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print JSON, an object a figure
    #[arg(long)]
    json: bool,
}

/// Why a number of then and one of now are not the same thing.
const DIFFERENCES: [&str; 6] = [
    "Then a service behind a network, HTTP and authentication, with three copies of everything; here calls within one process, \
     on one disk. Absolute times differ by orders of magnitude for that reason alone; what can be compared is the shape.",
    "Then up to 16 virtual machines; here their threads are threads of one process, on the processors it has.",
    "Then a live system for days; here points of seconds or less, each after a fifth of its time that is not counted.",
    "Where the study throttled, its server farm was the limit. Here only figure 15 throttles: the database's own throttle with a \
     target that the study's partition showed, and clients by a virtual clock whose calls take as long as the study's.",
    "The study's text gives few numbers for its plots; where it gives only a finding, no number stands beside.",
    "Reads are of data in memory, as the service's hot partitions may have been or not: the study does not say.",
];

const HELP: &str = "\
The study's entities have 1,024 bytes in one property; PartitionKeys are random GUIDs, one for
each thread or one for all; clients call, wait for the answer and call again. Each figure is a
table on the terminal, and all of them are one HTML page with plots. Some minutes, and up to a
few GB on disk in between; with --quick about a minute. The tables are dropped at the end.

Examples:
  rowstone bench case-study /tmp/study --quick
  rowstone bench case-study /tmp/study --out report.html
  rowstone bench case-study /tmp/study --figures 5,6,7 --json";

impl Study {
    pub(super) fn run(self) -> Outcome {
        let db = self.open()?;
        // What cannot be written at the end is better known at the beginning.
        let mut page = files::create_output(&self.out)?;
        let (measured, total) = (Cell::new(0), self.numbers().len() as u64);
        let progress = Progress::of("points", None);
        let on_point = || {
            measured.set(measured.get() + 1);
            progress.reach(measured.get());
        };
        let ground = Ground::new(db, self.scope());
        let figures = Figures {
            ground: &ground,
            is_quick: self.quick,
            pressed: Duration::from_secs(if self.quick { 20 } else { 120 }),
            on_point: &on_point,
        };
        let mut output = Output::standard();
        let mut done = Vec::new();
        for number in self.numbers() {
            let figure = figures.measure(number)?;
            progress.aside(|| self.show(&figure, &mut output))?;
            done.push(figure);
        }
        progress.end();
        ground.end()?;
        let html = page::page(&self.facts(), &done);
        page.write_all(html.as_bytes()).and_then(|()| page.flush()).map_err(Failure::output)?;
        self.say_where(&mut output, total).map_err(Failure::output)?;
        output.finish()
    }

    fn show(&self, figure: &Figure, output: &mut Output) -> Outcome {
        if self.json {
            output.write_all(&figure.json()).map_err(Failure::output)?;
        } else {
            figure.print(output)?;
        }
        output.flush().map_err(Failure::output)
    }

    /// Nobody else's database: the study makes and drops tables.
    fn open(&self) -> Outcome<Db> {
        stage::refuse_others(&self.dir)?;
        let options = Db::options().durability(self.durability.into());
        let db = options.open(&self.dir).map_err(Failure::Open)?;
        stage::mark_as_ours(&db)?;
        Ok(db)
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

    /// About the run.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let scope = self.scope();
        let (os, architecture) = (std::env::consts::OS, std::env::consts::ARCH);
        let time = crate::model::DateTime::from_ticks(SystemClock::new().now());
        vec![
            ("rowstone", env!("CARGO_PKG_VERSION").to_owned()),
            ("when", time.map(|time| time.to_string()).unwrap_or_default()),
            ("machine", format!("{processors} processors, {os}, {architecture}")),
            ("durability", format!("{:?}", self.durability).to_lowercase()),
            (
                "points",
                format!("{} ms, at most {} inserts", scope.time.as_millis(), scope.inserts_max),
            ),
            ("seed", self.seed.to_string()),
        ]
    }

    fn say_where(&self, output: &mut Output, figures: u64) -> std::io::Result<()> {
        let shown = self.out.display().to_string();
        if !self.json {
            return writeln!(output, "\n{figures} figures are drawn in {shown}");
        }
        let mut line = Vec::new();
        let mut object = Object::begin(&mut line);
        object.text("report", &shown);
        object.raw("figures", figures);
        object.end();
        line.push(b'\n');
        output.write_all(&line)
    }
}

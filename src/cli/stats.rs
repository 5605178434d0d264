//! `stats`: prints the counters of a database, as text with units, as JSON or CSV, or for
//! Prometheus. With `--as-service`, the bytes of tables as Azure Table storage bills them.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::billing::PriceArgs;
use super::failure::{Failure, Outcome};
use super::layout::write_wrapped;
use super::open::open_to_read;
use super::output::{Format, Output, print, with_thousands, write_counters};
use crate::db;

/// Print counters of the database.
#[derive(Args)]
#[command(after_long_help = HELP)]
pub(super) struct Stats {
    /// The database
    db: PathBuf,
    /// How to print the counters
    #[arg(long, value_enum, default_value_t = StatsFormat::Table)]
    format: StatsFormat,
    /// The same as --format json
    #[arg(long, conflicts_with = "format", hide = true)]
    json: bool,
    /// Explain each counter
    #[arg(long)]
    explain: bool,
    /// Instead of counters, print the bytes of each table as Azure Table storage bills them, and
    /// the price for a month; reads all entities
    #[arg(long, conflicts_with = "explain")]
    as_service: bool,
    #[command(flatten)]
    prices: PriceArgs,
}

const HELP: &str = "\
Counters start at zero when the database is opened, so this command shows the work of opening it.
For the counters of a running server use `serve --metrics`, or {\"op\":\"stats\"} with `exec`.

Azure Table storage bills stored bytes, transactions and bytes out. `serve --metrics` counts the
transactions and bytes out of clients. Prices change and differ by region: the ones that
--as-service uses without --prices are an example, and it names their region and date.

Examples:
  rowstone stats shop
  rowstone stats shop --explain
  rowstone stats shop --format json
  rowstone stats shop --as-service --prices prices.json
  rowstone stats shop --format prometheus";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum StatsFormat {
    /// Aligned columns with units, for people
    Table,
    /// One JSON object
    #[value(alias = "ndjson")]
    Json,
    /// Comma-separated values with a header
    Csv,
    /// The text format of Prometheus, in base units
    Prometheus,
}

impl Stats {
    pub(super) fn run(mut self) -> Outcome {
        if self.json {
            self.format = StatsFormat::Json;
        }
        let format = self.bill_format()?;
        let db = open_to_read(&self.db)?;
        if let Some(format) = format {
            self.prices.print_tables(&db, format)?;
            return Ok(db.close()?);
        }
        let stats = db.stats();
        print(|output| match self.format {
            StatsFormat::Table => self.write_table(output, &stats),
            StatsFormat::Json => write_counters(output, stats.fields(), Format::Json),
            StatsFormat::Csv => write_counters(output, stats.fields(), Format::Csv),
            StatsFormat::Prometheus => output.write_all(stats.to_prometheus().as_bytes()),
        })?;
        Ok(db.close()?)
    }

    /// Returns the format of `--as-service`, if it is given.
    fn bill_format(&self) -> Outcome<Option<Format>> {
        match (self.as_service, self.format) {
            (false, _) if self.prices.is_given() => {
                Err(Failure::Usage("--prices is for --as-service".into()))
            }
            (false, _) => Ok(None),
            (true, StatsFormat::Table) => Ok(Some(Format::Table)),
            (true, StatsFormat::Json) => Ok(Some(Format::Json)),
            (true, StatsFormat::Csv) => Ok(Some(Format::Csv)),
            (true, StatsFormat::Prometheus) => Err(Failure::Usage(
                "--as-service has no format prometheus: `serve --metrics` exports transactions"
                    .into(),
            )),
        }
    }

    fn write_table(&self, output: &mut Output, stats: &db::Stats) -> std::io::Result<()> {
        let screen = output.screen();
        let width = stats.fields().iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        stats.fields().iter().try_for_each(|(name, value)| {
            let unit = db::Stats::unit(name).unwrap_or_default();
            let unit = if *value == 1 { singular(unit) } else { unit.to_owned() };
            let value = with_thousands(*value);
            match db::Stats::meaning(name).filter(|_| self.explain) {
                Some(meaning) if screen.columns.is_none() => {
                    writeln!(output, "{name:width$}  {value:>15}  {unit:12}  {meaning}")
                }
                Some(meaning) => {
                    writeln!(output, "{name:width$}  {value:>15}  {unit}")?;
                    write_wrapped(output, screen.at_most(usize::MAX), "    ", meaning)
                }
                None => writeln!(output, "{name:width$}  {value:>15}  {unit}"),
            }
        })
    }
}

/// Returns a unit of one: `entry` for `entries`.
fn singular(unit: &str) -> String {
    match unit.strip_suffix("ies") {
        Some(stem) => format!("{stem}y"),
        None if unit == "flushes" => "flush".to_owned(),
        None => unit.strip_suffix('s').unwrap_or(unit).to_owned(),
    }
}

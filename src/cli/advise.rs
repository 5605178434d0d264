//! `rowstone advise`: reports anti-patterns in the keys of a database, or of a file to be loaded.
//!
//! Not here: finding the anti-patterns (`db`), making keys from the rows of a file (`import`).

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use super::failure::Outcome;
use super::import::sample;
use super::layout::write_wrapped;
use super::open::open_to_read;
use super::output::{Format, Output, average, counted, print, with_thousands, without_control};
use super::partitions::{put_shape, shapes, size_text};
use super::writer::{Load, Loads};
use crate::db::advice::{Seen, advise};
use crate::db::{Advice, DataShape};
use crate::json;

/// The maximum width of a printed line, if the screen has room for it.
const LINE_CHARS: usize = 92;

/// Report anti-patterns of key design in tables or in a file.
///
/// Each has its evidence and a remedy.
#[derive(Args)]
#[command(after_long_help = ADVISE_HELP)]
pub(super) struct Advise {
    /// The database
    #[arg(required_unless_present = "sample", conflicts_with = "sample")]
    db: Option<PathBuf>,
    /// The table; all tables by default
    #[arg(conflicts_with = "sample")]
    table: Option<String>,
    /// Examine the keys that this CSV or NDJSON file would get; - for standard input
    #[arg(long, value_name = "FILE", requires = "partition_key")]
    sample: Option<String>,
    /// Template for the PartitionKey of a row of the file, with columns in braces
    #[arg(long, value_name = "TEMPLATE", requires = "sample")]
    partition_key: Option<String>,
    /// Template for the RowKey of a row of the file, with columns in braces; also counts rows with
    /// equal keys
    #[arg(long, value_name = "TEMPLATE", requires = "sample")]
    row_key: Option<String>,
    /// Read every key, not only the first million of each table
    #[arg(long)]
    exact: bool,
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

const ADVISE_HELP: &str = "\
Looks for: append-only and prepend-only PartitionKeys, one hot partition, an unbounded partition, one-row
partitions that are read by range, filters that scan the table.

Only the process that has the database open knows the load and the queries. If it listens on the
database's control socket, this command asks it. Otherwise the advice follows from the data alone, and
the output says so.

Examples:
  rowstone advise shop
  rowstone advise --sample flights.csv.gz --partition-key '{carrier}-{origin}' \\
      --row-key '{time_hour}-{flight}-{tailnum}'";

/// The advice about the keys of a table or a file, and the data that supports it.
struct Verdict {
    name: String,
    data: DataShape,
    /// The number of rows whose keys occurred in an earlier row, if they were counted.
    repeated: Option<u64>,
    advice: Vec<Advice>,
    is_sample: bool,
    is_load_known: bool,
}

impl Advise {
    pub(super) fn run(self) -> Outcome {
        let verdicts = match (&self.sample, &self.db) {
            (Some(sample), _) => vec![self.judge_sample(sample)?],
            (None, Some(db)) => self.judge_tables(db)?,
            (None, None) => Vec::new(),
        };
        print(|output| match self.format {
            Format::Table | Format::Csv => {
                verdicts.iter().try_for_each(|verdict| write_verdict(output, verdict))
            }
            format => output.items(&verdicts.iter().map(verdict_json).collect::<Vec<_>>(), format),
        })
    }

    fn judge_tables(&self, path: &Path) -> Outcome<Vec<Verdict>> {
        let db = open_to_read(path)?;
        let shapes = shapes(&db, self.table.as_ref(), self.exact)?.into_iter();
        let loads = Loads::of(path);
        let verdicts = shapes.map(|(name, data)| {
            let load = loads.of_table(&name);
            let is_load_known = load.is_some();
            let advice = judge(&data, load.unwrap_or_default());
            Verdict { name, data, repeated: None, advice, is_sample: false, is_load_known }
        });
        db.close()?;
        Ok(verdicts.collect())
    }

    fn judge_sample(&self, path: &str) -> Outcome<Verdict> {
        let partition_key = self.partition_key.as_deref().unwrap_or_default();
        let found = sample::read(path, partition_key, self.row_key.as_deref())?;
        let advice = judge(&found.data, Load::default());
        let (data, repeated, name) = (found.data, found.repeated, path.to_owned());
        Ok(Verdict { name, data, repeated, advice, is_sample: true, is_load_known: false })
    }
}

/// Returns the advice that follows from the data and the load. An unknown load has no ranges and no
/// queries.
fn judge(data: &DataShape, (ranges, queries): Load) -> Vec<Advice> {
    advise(&Seen { ranges: &ranges, data, queries: &queries })
}

fn write_verdict(output: &mut Output, verdict: &Verdict) -> io::Result<()> {
    let data = &verdict.data;
    let first = if data.complete { "" } else { "the first " };
    let rows = |count| match verdict.is_sample {
        true => counted(count, "row", "rows"),
        false => counted(count, "entity", "entities"),
    };
    let columns = output.screen().at_most(LINE_CHARS);
    writeln!(
        output,
        "{}: {first}{} in {}",
        verdict.name,
        rows(data.entities),
        counted(data.partitions, "partition", "partitions")
    )?;
    if let Some(largest) = data.largest.first() {
        writeln!(
            output,
            "  largest partition   '{}': {}, {}, {:.1} % of all bytes",
            without_control(&largest.partition_key),
            rows(largest.entities),
            size_text(largest.bytes),
            100.0 * largest.bytes as f64 / data.bytes.max(1) as f64
        )?;
        let times = largest.entities as f64 / data.median_entities.max(1) as f64;
        let (median, times) = (rows(data.median_entities), average(times));
        writeln!(output, "  in the middle       {median}: the largest has {times} times that")?;
        let singles = with_thousands(data.single_partitions);
        writeln!(output, "  one-row partitions  {singles}")?;
        let order = if verdict.is_sample { "order of the file" } else { "time of writing" };
        let share = 100.0 * data.ascending;
        writeln!(output, "  ascending           {share:.0} %: PartitionKeys against the {order}")?;
    }
    if let Some(repeated) = verdict.repeated {
        writeln!(output, "  repeated keys       {}", rows(repeated))?;
    }
    for advice in &verdict.advice {
        writeln!(output, "\n  {}", advice.pattern.name())?;
        write_wrapped(output, columns, "    seen:    ", &advice.evidence)?;
        write_wrapped(output, columns, "    remedy:  ", &advice.remedy)?;
    }
    if verdict.advice.is_empty() {
        let seen = if verdict.is_load_known { "data and the load" } else { "data" };
        writeln!(output, "\n  no anti-pattern seen in the {seen}")?;
    }
    if verdict.is_load_known {
        return Ok(());
    }
    let unknown = "Load and queries are not known here: hot partitions and filters that scan the \
        table are seen by the process that has the database open.";
    writeln!(output)?;
    write_wrapped(output, columns, "  ", unknown)
}

fn verdict_json(verdict: &Verdict) -> String {
    json::object(|object| {
        object.text(if verdict.is_sample { "sample" } else { "table" }, &verdict.name);
        object.raw("data", json::object(|object| put_shape(object, &verdict.data)));
        if let Some(repeated) = verdict.repeated {
            object.raw("repeated", repeated);
        }
        object.raw("load_known", verdict.is_load_known);
        object.objects("advice", &verdict.advice, |object, advice| {
            object.text("pattern", advice.pattern.name());
            object.text("evidence", &advice.evidence);
            object.text("remedy", &advice.remedy);
        });
    })
}

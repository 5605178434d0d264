//! `rowstone advise`: reports anti-patterns in the keys of a database, or of a file to be loaded.
//!
//! Not here: finding the anti-patterns (`db`), making keys from the rows of a file (`import`).

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use super::failure::Outcome;
use super::import::candidates::{Candidate, Ranking};
use super::import::sample::{self, Sample};
use super::layout::write_wrapped;
use super::open::open_to_read;
use super::output::{
    Format, Output, TableArgs, average, counted, with_thousands, without_control, write_cells,
};
use super::partitions::{put_shape, shapes, size_text};
use super::writer::{Load, Loads};
use crate::db::advice::{Seen, advise};
use crate::db::{Advice, DataShape};
use crate::json::{self, Object};

/// The maximum width of a printed line, if the screen has room for it.
const LINE_CHARS: usize = 92;
/// The maximum number of printed candidates, and the maximum length of a printed one in characters.
const CANDIDATES_MAX: usize = 12;
const TEMPLATE_CHARS: usize = 40;

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
    /// Examine the keys that this file of CSV, JSON or NDJSON would get, and rank keys that it
    /// could get; - for standard input
    #[arg(long, value_name = "FILE")]
    sample: Option<String>,
    /// Template for the PartitionKey of a row of the file, with columns in braces
    #[arg(long, value_name = "TEMPLATE", requires = "sample")]
    partition_key: Option<String>,
    /// Template for the RowKey of a row of the file, with columns in braces; also counts rows with
    /// equal keys
    #[arg(long, value_name = "TEMPLATE", requires = "partition_key")]
    row_key: Option<String>,
    /// Read every key, not only the first million of each table
    #[arg(long)]
    exact: bool,
    #[command(flatten)]
    format: TableArgs,
}

const ADVISE_HELP: &str = "\
Looks for: append-only and prepend-only PartitionKeys, one hot partition, an unbounded partition, one-row
partitions that are read by range, filters that scan the table.

Only the process that has the database open knows the load and the queries. If it listens on the
database's control socket, this command asks it. Otherwise the advice follows from the data alone, and
the output says so.

--sample reads the whole file in at most about 80 MiB of memory. It also ranks PartitionKeys that the
file's first 32 columns and pairs of them could form. Keys that spread new rows over several partitions
come first, and of these the one that changes most slowly, which has the fewest partitions. For each
it prints the number of partitions, the heaviest partition's share of the rows, and where new rows go.
The order of the file stands for the order of writing: of a sorted file, all rows go to the end.

CSV has a row for each piece of advice; with --sample and without --partition-key, for each candidate.

Examples:
  rowstone advise shop
  rowstone advise --sample flights.csv.gz
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
    /// Whether numbers of partitions and of repeated keys are estimates.
    is_estimate: bool,
    is_load_known: bool,
}

impl Advise {
    pub(super) fn run(self) -> Outcome {
        let verdicts = match (&self.sample, &self.db) {
            (Some(sample), _) => {
                let (rows, verdict, ranking) = self.judge_sample(sample)?;
                return self.print_sample(sample, rows, verdict.as_ref(), &ranking);
            }
            (None, Some(db)) => self.judge_tables(db)?,
            (None, None) => Vec::new(),
        };
        self.format.print(|output| match self.format.get() {
            Format::Table => verdicts.iter().try_for_each(|verdict| write_verdict(output, verdict)),
            Format::Csv => write_advice(output, "table", &verdicts),
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
            let (is_sample, is_estimate) = (false, false);
            Verdict { name, data, repeated: None, advice, is_sample, is_estimate, is_load_known }
        });
        db.close()?;
        Ok(verdicts.collect())
    }

    /// Returns the number of rows, the verdict on the requested keys, and the candidates.
    fn judge_sample(&self, path: &str) -> Outcome<(u64, Option<Verdict>, Ranking)> {
        let (pk, rk) = (self.partition_key.as_deref(), self.row_key.as_deref());
        let Sample { rows, data, repeated, is_estimate, ranking } = sample::read(path, pk, rk)?;
        let verdict = data.map(|data| {
            let advice = judge(&data, Load::default());
            let (name, is_sample, is_load_known) = (path.to_owned(), true, false);
            Verdict { name, data, repeated, advice, is_sample, is_estimate, is_load_known }
        });
        Ok((rows, verdict, ranking))
    }

    fn print_sample(
        &self,
        path: &str,
        rows: u64,
        verdict: Option<&Verdict>,
        ranking: &Ranking,
    ) -> Outcome {
        self.format.print(|output| match (self.format.get(), verdict) {
            (Format::Csv, Some(verdict)) => {
                write_advice(output, "sample", std::slice::from_ref(verdict))
            }
            (Format::Csv, None) => write_candidates(output, &ranking.candidates),
            (Format::Table, _) => {
                match verdict {
                    Some(verdict) => write_verdict(output, verdict)?,
                    None => writeln!(output, "{path}: {}", counted(rows, "row", "rows"))?,
                }
                write_ranking(output, rows, ranking)
            }
            (format, _) => {
                let item = json::object(|object| {
                    match verdict {
                        Some(verdict) => put_verdict(object, verdict),
                        None => object.text("sample", path),
                    }
                    object.raw("rows", rows);
                    object.objects("candidates", &ranking.candidates, put_candidate);
                });
                output.items(&[item], format)
            }
        })
    }
}

/// Prints the advice as CSV.
fn write_advice(output: &mut Output, of: &str, verdicts: &[Verdict]) -> io::Result<()> {
    let rows = verdicts.iter().flat_map(|verdict| {
        verdict.advice.iter().map(|advice| {
            let pattern = advice.pattern.name().to_owned();
            vec![verdict.name.clone(), pattern, advice.evidence.clone(), advice.remedy.clone()]
        })
    });
    let columns = [of, "pattern", "evidence", "remedy"];
    write_cells(output, &columns, rows.collect(), Vec::new(), Format::Csv)
}

/// Prints all candidates as CSV.
fn write_candidates(output: &mut Output, candidates: &[Candidate]) -> io::Result<()> {
    let row = |candidate: &Candidate| {
        let Candidate { template, partitions, heaviest, new_rows, .. } = candidate;
        let (partitions, heaviest) = (partitions.to_string(), heaviest.to_string());
        let spreads = candidate.is_fit().to_string();
        vec![template.clone(), partitions, heaviest, new_rows.name().to_owned(), spreads]
    };
    let columns = ["partition_key", "partitions", "heaviest", "new_rows", "spreads"];
    write_cells(output, &columns, candidates.iter().map(row).collect(), Vec::new(), Format::Csv)
}

/// Prints the best candidates.
fn write_ranking(output: &mut Output, rows: u64, ranking: &Ranking) -> io::Result<()> {
    if ranking.candidates.is_empty() {
        return writeln!(output, "\nno column can be a PartitionKey");
    }
    let of = match ranking.sampled < rows {
        true => format!(", new rows by a sample of {}", with_thousands(ranking.sampled)),
        false => String::new(),
    };
    writeln!(output)?;
    output.fold("", &format!("PartitionKeys that the columns could form, best first{of}"))?;
    writeln!(output)?;
    let row = |candidate: &Candidate| {
        let mut template = without_control(&candidate.template);
        if template.chars().count() > TEMPLATE_CHARS {
            template = template.chars().take(TEMPLATE_CHARS - 1).chain(['…']).collect();
        }
        vec![
            template,
            with_thousands(candidate.partitions),
            format!("{:.1} %", 100.0 * candidate.heaviest),
            candidate.new_rows.name().to_owned(),
        ]
    };
    let cells = ranking.candidates.iter().take(CANDIDATES_MAX).map(row).collect();
    let columns = ["PartitionKey", "partitions", "heaviest", "new rows go"];
    write_cells(output, &columns, cells, vec![false, true, true, false], Format::Table)?;
    match ranking.candidates.len().saturating_sub(CANDIDATES_MAX) {
        0 => Ok(()),
        more => writeln!(output, "\n{more} more with --format json"),
    }
}

fn put_candidate(object: &mut Object<'_>, candidate: &Candidate) {
    object.text("partition_key", &candidate.template);
    object.raw("partitions", candidate.partitions);
    object.raw("heaviest", candidate.heaviest);
    object.text("new_rows", candidate.new_rows.name());
    object.raw("spreads", candidate.is_fit());
}

/// Returns the advice that follows from the data and the load. An unknown load has no ranges and no
/// queries.
fn judge(data: &DataShape, (ranges, queries): Load) -> Vec<Advice> {
    advise(&Seen { ranges: &ranges, data, queries: &queries })
}

fn write_verdict(output: &mut Output, verdict: &Verdict) -> io::Result<()> {
    let data = &verdict.data;
    let first = if data.complete { "" } else { "the first " };
    let about = if verdict.is_estimate { "about " } else { "" };
    let rows = |count| match verdict.is_sample {
        true => counted(count, "row", "rows"),
        false => counted(count, "entity", "entities"),
    };
    let columns = output.screen().at_most(LINE_CHARS);
    let (entities, partitions) =
        (rows(data.entities), counted(data.partitions, "partition", "partitions"));
    output.fold("", &format!("{}: {first}{entities} in {about}{partitions}", verdict.name))?;
    if let Some(largest) = data.largest.first() {
        let text = format!(
            "'{}': {}, {}, {:.1} % of all bytes",
            without_control(&largest.partition_key),
            rows(largest.entities),
            size_text(largest.bytes),
            100.0 * largest.bytes as f64 / data.bytes.max(1) as f64
        );
        output.fold("  largest partition   ", &text)?;
        let times = largest.entities as f64 / data.median_entities.max(1) as f64;
        let (median, times) = (rows(data.median_entities), average(times));
        output.fold(
            "  in the middle       ",
            &format!("{median}: the largest has {times} times that"),
        )?;
        let singles = with_thousands(data.single_partitions);
        writeln!(output, "  one-row partitions  {about}{singles}")?;
        let order = if verdict.is_sample { "order of the file" } else { "time of writing" };
        let share = 100.0 * data.ascending;
        let text = format!("{share:.0} %: PartitionKeys against the {order}");
        output.fold("  ascending           ", &text)?;
    }
    if let Some(repeated) = verdict.repeated {
        writeln!(output, "  repeated keys       {about}{}", rows(repeated))?;
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
    json::object(|object| put_verdict(object, verdict))
}

fn put_verdict(object: &mut Object<'_>, verdict: &Verdict) {
    object.text(if verdict.is_sample { "sample" } else { "table" }, &verdict.name);
    object.raw("data", json::object(|object| put_shape(object, &verdict.data)));
    if let Some(repeated) = verdict.repeated {
        object.raw("repeated", repeated);
    }
    if verdict.is_sample {
        object.raw("estimated", verdict.is_estimate);
    }
    object.raw("load_known", verdict.is_load_known);
    object.objects("advice", &verdict.advice, |object, advice| {
        object.text("pattern", advice.pattern.name());
        object.text("evidence", &advice.evidence);
        object.text("remedy", &advice.remedy);
    });
}

#[cfg(test)]
mod tests {
    use super::super::import::candidates::NewRows;
    use super::*;
    use crate::db::AntiPattern;

    fn judged(partition_key: Option<&str>) -> (u64, Option<Verdict>, Ranking) {
        let row_key = partition_key.map(|_| "{time_hour}-{flight}-{tailnum}".to_owned());
        let partition_key = partition_key.map(str::to_owned);
        let (db, table, sample, exact) = (None, None, None, false);
        let advise = Advise {
            db,
            table,
            sample,
            partition_key,
            row_key,
            exact,
            format: TableArgs::default(),
        };
        let flights = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/flights.csv.gz");
        advise.judge_sample(flights).unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    #[test]
    fn the_hour_as_partition_key_of_the_sample_flights_is_append_only() {
        let (rows, verdict, _) = judged(Some("{time_hour}"));
        let verdict = verdict.expect("a verdict");
        assert_eq!((rows, verdict.data.partitions, verdict.is_estimate), (20_000, 436, false));
        assert!(verdict.data.ascending > 0.94, "{}", verdict.data.ascending);
        assert_eq!(verdict.advice[0].pattern, AntiPattern::AppendOnly);
        let verdict = judged(Some("{carrier}-{origin}")).1.expect("a verdict");
        assert_eq!((verdict.advice.len(), verdict.repeated), (0, Some(0)));
    }

    #[test]
    fn the_columns_of_the_sample_flights_are_ranked() {
        let (rows, verdict, ranking) = judged(None);
        assert_eq!((rows, verdict.is_none(), ranking.sampled), (20_000, true, 20_000));
        let of = |template: &str| {
            let found = ranking.candidates.iter().find(|c| c.template == template);
            found.unwrap_or_else(|| panic!("{template}: {:?}", ranking.candidates))
        };
        assert_eq!(ranking.candidates[0].template, "{origin}", "the slowest that spreads rows");
        for template in ["{carrier}", "{origin}", "{carrier}-{dest}"] {
            assert!(of(template).is_fit(), "{:?}", of(template));
        }
        assert_eq!((of("{time_hour}").partitions, of("{time_hour}").new_rows), (436, NewRows::End));
        assert_eq!((of("{year}").heaviest, of("{year}").is_fit()), (1.0, false));
        assert_eq!(judged(None).2.candidates, ranking.candidates, "equal files, equal ranks");
    }
}

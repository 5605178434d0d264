//! Implements `copy` and `check-refs`, which relate the entities of two tables.
//!
//! Invariants
//! * templates and filter are parsed before a database is created;
//! * a database is opened once, even if it contains both tables.
//!
//! Not here: moving whole files (`moving`), comparing tables (`compare`), copies and checks with a
//! Table service (`copy::stores`, `copy::references`), `--check` of a directory (`copy::dialect`).

#[cfg(feature = "remote")]
mod arguments;
mod dialect;
#[cfg(feature = "remote")]
mod references;
#[cfg(feature = "remote")]
mod stores;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

#[cfg(feature = "remote")]
use super::endpoint::AccountArgs;
use super::endpoint::Place;
use super::failure::{Failure, Outcome, eprint_line};
use super::files::{self, Overwrite};
use super::open::{Create, FilterArgs, Trimmed, open, open_table, open_to_read};
use super::output::{
    Format, FormatArgs, Output, TableArgs, print, with_thousands, without_control, write_cells,
    write_counters,
};
use super::progress::Progress;
use super::unmatched::note;
use super::writer::Writer;
use crate::clock::{Clock, SystemClock};
use crate::db::{CopyJob, CopySummary, Db, ReferenceCheck, References};
use crate::error::Code;
use crate::json::report::put_problem;
use crate::json::{self, Object};
use crate::model::{KeyTemplate, check_table_name};
use crate::query::Filter;
use crate::store::Dialect;
use crate::table::Table;

/// The maximum number of problems that are printed if no --rejects file is given.
const SHOWN_MAX: usize = 10;

/// Copy entities into another table or database.
///
/// Optionally under other keys, or as an archive: copied, then deleted.
#[derive(Args)]
#[command(after_long_help = COPY_HELP)]
pub(super) struct Copy {
    /// The database
    db: Place,
    /// The table
    table: String,
    /// The target database, created if it is missing [default with --into or --check: the same]
    #[arg(long, value_name = "DB", required_unless_present_any = ["into", "check"])]
    to: Option<Place>,
    /// The target table, created if it is missing [default: the same name]
    #[arg(long, value_name = "TABLE")]
    into: Option<String>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Properties to copy, separated by commas; all by default
    // With --then-delete, the other properties would be lost.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "then_delete")]
    #[arg(value_parser = Trimmed(NonEmptyStringValueParser::new()))]
    select: Option<Vec<String>>,
    /// PartitionKey of a copy, with properties in braces: '{carrier}-{origin}' [default: the
    /// entity's]
    #[arg(long, value_name = "TEMPLATE")]
    partition_key: Option<String>,
    /// RowKey of a copy, with properties in braces [default: the entity's]
    #[arg(long, value_name = "TEMPLATE")]
    row_key: Option<String>,
    /// Replace existing entities that differ, instead of reporting them
    #[arg(long)]
    replace: bool,
    /// Delete each entity whose copy is durable, unless it changed since it was read
    #[arg(long)]
    then_delete: bool,
    /// Copy nothing: report the entities that the service of --dialect would refuse
    #[arg(long, requires = "dialect", conflicts_with_all = ["then_delete", "replace", "to"])]
    check: bool,
    /// The service to which --check applies
    #[arg(long, value_enum, requires = "check")]
    dialect: Option<Dialect>,
    /// Report entities that were not copied or not deleted, one JSON object per line
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    #[cfg(feature = "remote")]
    #[command(flatten)]
    stores: arguments::StoreArgs,
    #[cfg(feature = "remote")]
    #[command(flatten)]
    account: AccountArgs,
    #[command(flatten)]
    format: FormatArgs,
}

const COPY_HELP: &str = "\
A copy that is there already, with the same properties, is no error, and nothing else is overwritten:
a run that was interrupted is simply repeated. With --then-delete an entity is in one table, in the
other, or for a moment in both, wherever a crash interrupts it.

Braces may name PartitionKey, RowKey and Timestamp too. Two entities that would get one key both stay
where they are, and are reported, as is what cannot be copied; the exit status is 3 then.
Within a table both keys must be made of properties that are copied. Copies have Timestamps of their
own; export-range moves entities with theirs.

With a Table service several parts of the table are copied at once. A killed copy with --state FILE
continues behind the last copied entity of each part when it is repeated. --dry-run counts the
transactions and bytes that Azure Table storage would bill, with their prices: the reads as they were
sent, and the groups that a copy would send, whose answers are estimated. Without a directory on both
sides, new keys exclude --replace and --then-delete, and an equal entity in the target is a conflict
too. A signature for the target without the permission to read is enough without --replace, --state
and new keys; each entity that is there already is then a conflict.

--check finds before a move which entities a service would refuse, and exits with 3 if there are any.
The rules of cosmos are from the documentation of Azure Cosmos DB for Table; rowstone was never run
against it.

Examples:
  rowstone copy flights Flights --check --dialect cosmos
  rowstone copy flights Flights --into ByDay --partition-key '{origin}' \\
      --row-key '{time_hour}-{carrier}{flight}'
  rowstone copy flights Flights --to archive --filter \"month lt 7\" --then-delete
  rowstone copy flights Flights --into Late --filter \"dep_delay gt 600\" \\
      --select dest,dep_delay
  rowstone copy flights Flights --to env:STORE --dry-run --prices prices.json
  rowstone copy flights Flights --to env:STORE --state flights.state
  rowstone copy env:STORE Flights --to flights";

/// Find entities that refer to missing ones.
#[derive(Args)]
#[command(
    override_usage = "rowstone check-refs [OPTIONS] --into <TABLE> \\\n       \
        --partition-key <TEMPLATE> --row-key <TEMPLATE> <DB> <TABLE>",
    after_long_help = REFS_HELP
)]
pub(super) struct CheckRefs {
    /// The database
    db: Place,
    /// The table of the referring entities
    table: String,
    /// The table of the referenced entities
    #[arg(long, value_name = "TABLE")]
    into: String,
    /// The database of that table [default: the same]
    #[arg(long, value_name = "DB")]
    to: Option<Place>,
    /// PartitionKey of the referenced entity, with properties in braces
    #[arg(long, value_name = "TEMPLATE")]
    partition_key: String,
    /// RowKey of the referenced entity, with properties in braces
    #[arg(long, value_name = "TEMPLATE")]
    row_key: String,
    #[command(flatten)]
    filter: FilterArgs,
    /// Show at most this many missing entities, those with the most references first
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    #[command(flatten)]
    format: TableArgs,
    #[cfg(feature = "remote")]
    #[command(flatten)]
    account: AccountArgs,
}

const REFS_HELP: &str = "\
An entity that lacks a property named in braces points to nothing; such entities are counted apart.
Each key is looked up about once, in bounded memory. At a Table service that is one request a key,
and what is written during the check may be missing from it or included.

Exit status: 0 nothing is missing, 1 something is, 2 a database cannot be opened, or a Table service
not be reached.

Examples:
  rowstone check-refs flights Flights --into Planes \\
      --partition-key all --row-key '{tailnum}'
  rowstone check-refs flights Flights --into Airports \\
      --partition-key all --row-key '{dest}' --top 100";

/// Opens the database `other`. Returns `db` if `other` is not given or is the same database.
pub(super) fn open_other(
    db: &Db,
    path: &Path,
    other: Option<&Path>,
    open: impl FnOnce(&Path) -> Outcome<Db>,
) -> Outcome<Db> {
    match other {
        Some(other) if !files::is_same(path, other) => open(other),
        _ => Ok(db.clone()),
    }
}

impl Copy {
    pub(super) fn run(self) -> Outcome {
        let clock = SystemClock::new();
        let filter = self.filter.read()?;
        self.check()?;
        #[cfg(feature = "remote")]
        if self.run_stores()? {
            return Ok(());
        }
        if let Some(dialect) = self.dialect {
            return self.run_check(dialect, filter);
        }
        self.check_apart()?;
        let db = match &self.to {
            // The process that has the source open cannot write to another database.
            Some(to) if !files::is_same(&self.db, to) => match self.then_delete {
                true => open(&self.db, Create::Never)?,
                false => open_to_read(&self.db)?,
            },
            _ => match Writer::open(&self.db, Create::Never)? {
                Writer::Here(db) => db,
                there => return self.ask(&there, &clock),
            },
        };
        let source = open_table(&db, &self.db, &self.table)?;
        let rejects =
            self.rejects.as_deref().map(|path| self.overwrite.create(path)).transpose()?;
        let rejects = rejects.map(|file| Arc::new(Mutex::new(file)));
        let create = |path: &Path| open(path, Create::IfMissing);
        let other = open_other(&db, &self.db, self.to.as_deref(), create)?;
        let target = other.table_or_create(self.target_name())?;
        let mut job = self.job(&source, &target, filter.clone())?;
        if let Some(file) = rejects.clone() {
            job = job.on_problem(move |problem| {
                if let Ok(mut file) = file.lock() {
                    let line = json::object(|object| put_problem(object, problem));
                    // Ignores a write error, because the final flush reports it.
                    drop(writeln!(file, "{line}"));
                }
            });
        }
        let summary = Progress::during("rows", Some(0), |bar| {
            job.run_with(|rows, of| bar.reach_of(rows, of))
        })?;
        drop(job);
        if let Some(Ok(mut file)) = rejects.as_ref().map(|file| file.lock()) {
            file.flush()?;
        }
        let seconds = clock.monotonic().as_secs_f64();
        print(|output| self.write(output, &summary, seconds))?;
        self.note(&source, &filter, summary.rows);
        drop((source, target));
        other.close()?;
        db.close()?;
        if summary.problem_count() > 0 { Err(Failure::Rejected) } else { Ok(()) }
    }

    /// Prints notes on what cannot match, unless the entities were deleted that would tell.
    fn note(&self, source: &Table, filter: &Filter, matched: u64) {
        if !self.then_delete {
            note(source, filter, self.select.as_deref(), matched > 0);
        }
    }

    /// Sends the copy to the process that has the database open, and reports the result. Source and
    /// target are tables of this database.
    fn ask(&self, db: &Writer, clock: &SystemClock) -> Outcome {
        let rejects =
            self.rejects.as_deref().map(|path| self.overwrite.create(path)).transpose()?;
        let put = |request: &mut Object<'_>| {
            request.text("table", &self.table);
            request.text("into", self.target_name());
            request.text("filter", self.filter.text());
            self.select.iter().for_each(|names| request.texts("select", names.iter()));
            self.partition_key.iter().for_each(|key| request.text("partition_key", key));
            self.row_key.iter().for_each(|key| request.text("row_key", key));
            request.raw("replace", self.replace);
            request.raw("then_delete", self.then_delete);
        };
        let copied = Progress::during("rows", Some(0), |bar| {
            db.ask_with("copy", put, |rows, of| bar.reach_of(rows, of))
        });
        let copied = copied.map_err(|failure| match failure {
            Failure::Operation(error) if error.code() == Code::TableNotFound.as_str() => {
                Failure::Operation(error.about(|| self.db.display().to_string()))
            }
            other => other,
        })?;
        let summary = copied.copied()?;
        if let Some(mut file) = rejects {
            for problem in &summary.problems {
                writeln!(file, "{}", json::object(|object| put_problem(object, problem)))?;
            }
            file.flush()?;
            if summary.problem_count() > summary.problems.len() as u64 {
                eprint_line("the --rejects file is incomplete: another process made the copy");
            }
        }
        let seconds = clock.monotonic().as_secs_f64();
        print(|output| self.write(output, &summary, seconds))?;
        if summary.problem_count() > 0 { Err(Failure::Rejected) } else { Ok(()) }
    }

    fn target_name(&self) -> &str {
        self.into.as_ref().unwrap_or(&self.table)
    }

    /// Checks as many arguments as possible before the target database is created.
    fn check(&self) -> Outcome {
        // clap does not enforce `requires` if another given option conflicts with `--check`.
        if self.dialect.is_some() && !self.check {
            return Err(Failure::Usage("--dialect is for --check".to_owned()));
        }
        let templates = [&self.partition_key, &self.row_key].into_iter().flatten();
        templates.into_iter().try_for_each(|text| KeyTemplate::parse(text).map(drop))?;
        Ok(check_table_name(self.target_name())?)
    }

    /// Fails if each entity would be copied onto itself.
    fn check_apart(&self) -> Outcome {
        let is_within = self.to.as_ref().is_none_or(|to| files::is_same(&self.db, to));
        let is_same = is_within && self.target_name().eq_ignore_ascii_case(&self.table);
        if is_same && !self.is_rekeyed() {
            let text = "source and target are the same table; use --into, or --partition-key and \
                        --row-key";
            return Err(Failure::Usage(text.to_owned()));
        }
        Ok(())
    }

    fn is_rekeyed(&self) -> bool {
        self.partition_key.is_some() || self.row_key.is_some()
    }

    fn job(&self, source: &Table, target: &Table, filter: Filter) -> Outcome<CopyJob> {
        let mut job = CopyJob::new(source, target).filter(filter)?;
        job = job.then_delete(self.then_delete).replace(self.replace);
        if let Some(names) = &self.select {
            job = job.select(&names.iter().map(String::as_str).collect::<Vec<_>>());
        }
        if let Some(template) = &self.partition_key {
            job = job.partition_key(template)?;
        }
        if let Some(template) = &self.row_key {
            job = job.row_key(template)?;
        }
        Ok(job)
    }

    fn write(&self, output: &mut Output, summary: &CopySummary, seconds: f64) -> io::Result<()> {
        let fields = summary.fields();
        match self.format.get() {
            Format::Json | Format::Ndjson => {
                output.object(|object| put_summary(object, summary, &fields, seconds))
            }
            Format::Table | Format::Csv => self.write_summary(output, summary, &fields),
        }
    }

    /// Writes counts as text or CSV, and prints problems if no file has them.
    fn write_summary(
        &self,
        output: &mut Output,
        summary: &CopySummary,
        fields: &[(&'static str, u64)],
    ) -> io::Result<()> {
        write_fields(output, fields, self.format.get())?;
        if self.format.get() == Format::Csv {
            return Ok(());
        }
        if self.rejects.is_none() {
            show_problems(summary);
        }
        if summary.conflicts > 0 && !self.replace && !self.is_rekeyed() {
            eprint_line(
                "conflicts: `rowstone compare` lists the differences; --replace overwrites the \
                 target's entities",
            );
        }
        Ok(())
    }
}

fn put_summary(
    object: &mut Object<'_>,
    summary: &CopySummary,
    fields: &[(&'static str, u64)],
    seconds: f64,
) {
    fields.iter().for_each(|(name, count)| object.raw(name, count));
    object.raw("seconds", format_args!("{seconds:.3}"));
    object.objects("problems", &summary.problems, put_problem);
}

/// Prints the first [`SHOWN_MAX`] problems on standard error.
fn show_problems(summary: &CopySummary) {
    for problem in summary.problems.iter().take(SHOWN_MAX) {
        let (pk, rk) = &problem.source;
        let target = problem.target.as_ref().filter(|target| **target != problem.source);
        let target = target.map(|(pk, rk)| format!(" for '{pk}' '{rk}'")).unwrap_or_default();
        let (kind, message) = (problem.kind.as_str(), &problem.message);
        let line = format!("{kind}: '{pk}' '{rk}'{target}: {message}");
        // Escapes control characters, because a rejected key may contain any character.
        eprint_line(&without_control(&line));
    }
    if summary.problem_count() > SHOWN_MAX as u64 {
        eprint_line("there are more: --rejects FILE writes all of them to a file");
    }
}

/// Writes counts with their names. The table format omits counts of zero.
fn write_fields(
    output: &mut Output,
    fields: &[(&'static str, u64)],
    format: Format,
) -> io::Result<()> {
    if format == Format::Csv {
        return write_counters(output, fields, format);
    }
    let shown = fields.iter().enumerate().filter(|(i, (_, value))| *i == 0 || *value > 0);
    let width = shown.clone().map(|(_, (name, _))| name.len()).fold(9, usize::max);
    shown.into_iter().try_for_each(|(_, (name, value))| {
        writeln!(output, "{name:<width$}  {:>12}", with_thousands(*value))
    })
}

impl CheckRefs {
    pub(super) fn run(self) -> Outcome {
        let filter = self.filter.read()?;
        #[cfg(feature = "remote")]
        if let Some(found) = self.search_stores()? {
            return self.report(&found);
        }
        let db = open_to_read(&self.db)?;
        let other = open_other(&db, &self.db, self.to.as_deref(), open_to_read)?;
        let (source, target) = (db.table(&self.table)?, other.table(&self.into)?);
        let check = ReferenceCheck::new(&source, &target, &self.partition_key, &self.row_key)?;
        let check = check.filter(filter)?;
        let found = Progress::during("rows", Some(0), |bar| {
            check.run_with(|rows, of| bar.reach_of(rows, of))
        })?;
        drop((check, source, target));
        other.close()?;
        db.close()?;
        self.report(&found)
    }

    fn report(&self, found: &References) -> Outcome {
        self.format.print(|output| self.write(output, found))?;
        if found.missing > 0 { Err(Failure::Problems) } else { Ok(()) }
    }

    fn write(&self, output: &mut Output, found: &References) -> io::Result<()> {
        let columns = ["PartitionKey", "RowKey", "rows", "first_pk", "first_rk"];
        let shown = found.targets.get(..self.top).unwrap_or(&found.targets);
        if matches!(self.format.get(), Format::Json | Format::Ndjson) {
            return output.object(|object| {
                found.fields().iter().for_each(|(name, count)| object.raw(name, count));
                object.raw("has_all_targets", found.has_all_targets);
                object.objects("missing_targets", shown, |object, target| {
                    object.text(columns[0], &target.partition_key);
                    object.text(columns[1], &target.row_key);
                    object.raw(columns[2], target.rows);
                    object.text(columns[3], &target.first.0);
                    object.text(columns[4], &target.first.1);
                });
            });
        }
        if self.format.get() == Format::Table {
            self.write_counts(output, found)?;
            if shown.is_empty() {
                return Ok(());
            }
            writeln!(output)?;
        }
        let cells = shown.iter().map(|target| {
            let (pk, rk) = target.first.clone();
            let (partition_key, row_key) = (&target.partition_key, &target.row_key);
            let rows = match self.format.get() {
                Format::Table => with_thousands(target.rows),
                _ => target.rows.to_string(),
            };
            vec![partition_key.clone(), row_key.clone(), rows, pk, rk]
        });
        let right = columns.map(|column| column == "rows").to_vec();
        write_cells(output, &columns, cells.collect(), right, self.format.get())
    }

    fn write_counts(&self, output: &mut Output, found: &References) -> io::Result<()> {
        let number = with_thousands;
        let least = if found.has_all_targets { "" } else { "at least " };
        let targets = number(found.targets.len() as u64);
        let into = &self.into;
        writeln!(output, "{:>12}  entities looked at", number(found.rows))?;
        writeln!(output, "{:>12}  point to one of {into}", number(found.found))?;
        writeln!(output, "{:>12}  point to nothing: a property is missing", number(found.without))?;
        writeln!(
            output,
            "{:>12}  point to {least}{targets} that {into} does not have",
            number(found.missing)
        )
    }
}

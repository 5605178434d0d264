//! `rowstone import`: loads CSV, JSON or Parquet into a table, and reports rejected rows by line.
//!
//! 1. CSV is read twice: once to infer the types of its columns from the whole input, and once to
//!    load it. Input that cannot be read again (standard input, gzip) is copied to an unnamed
//!    temporary file.
//! 2. JSON is read once, because each object contains its types.
//! 3. Parquet is read once, at several positions: input that is no file is copied like CSV.
//! 4. One thread parses, and another passes entities to the loader, which forms the groups.
//! 5. Ctrl-C and errors of the input end the load after all rows read are committed or rejected.
//! 6. The destination is a directory or a Table service (`sink`).

pub(super) mod candidates;
mod columns;
#[cfg(any(fuzzing, feature = "fuzzing"))]
pub(crate) mod direct;
mod infer;
mod loading;
#[cfg(feature = "parquet")]
mod parquet;
mod pipeline;
mod report;
mod rows;
pub(super) mod sample;
mod sink;
mod sketch;

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;

use clap::Args;

use self::columns::Choices;
use self::loading::{Loading, is_of_store};
use self::pipeline::{Batches, Parsed, parse_beside, read_ahead};
use self::report::{Rejects, Summary};
use self::rows::{
    InputFormat, MemberKeys, format_of, infer_columns, parse_csv, parse_json, parse_ndjson,
    unreadable,
};
use self::sink::{Destination, Mode, Sink};
use super::csv::{CsvReader, delimiter_of};
#[cfg(feature = "remote")]
use super::endpoint::AccountArgs;
use super::endpoint::Place;
use super::failure::{Failure, Outcome, eprint_line};
use super::files::{self, Input, Overwrite, STANDARD_INPUT, Spool};
#[cfg(not(feature = "parquet"))]
use super::help;
use super::interrupt::Interrupt;
use super::open::Create;
use super::output::{Format, print};
use super::progress::Progress;
use super::writer::Writer;
use crate::clock::{Clock, SystemClock};
use crate::error::Result;
use crate::model::check_table_name;
use crate::options::Durability;
use crate::table::LoadMode;

/// Load CSV, JSON or Parquet, also in gzip, into a table.
#[derive(Args)]
#[command(after_long_help = IMPORT_HELP)]
pub(super) struct Import {
    /// The database: a directory, created if it is missing or empty
    db: Place,
    /// The table, created if it is missing
    table: String,
    /// The file, or - for standard input; gzip is detected
    input: String,
    /// The format of the file; detected from its first bytes by default
    #[arg(long, value_enum)]
    input_format: Option<InputFormat>,
    #[command(flatten)]
    choices: Choices,
    /// The separator of fields [default: the most frequent in the header of , ; tab |]
    #[arg(long, value_parser = parse_delimiter)]
    delimiter: Option<u8>,
    /// How to treat existing entities
    #[arg(long, value_enum, default_value_t = LoadMode::Insert)]
    mode: LoadMode,
    /// Continue an interrupted import of the same input: skip each row that is in the table with
    /// equal properties
    #[arg(long)]
    resume: bool,
    /// The event that a loaded group survives [default: sync]
    #[arg(long, value_enum)]
    durability: Option<Durability>,
    /// Print after each group the number of the line (in JSON, of the element) up to which all rows
    /// are durable or rejected; at a Table service after several groups
    #[arg(long)]
    ack: bool,
    /// Report rejected rows, one JSON object per line
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Stop at the first rejected row; rows loaded before it are kept
    #[arg(long)]
    stop_on_error: bool,
    /// How to print the summary
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    #[cfg(feature = "remote")]
    #[command(flatten)]
    account: AccountArgs,
}

const IMPORT_HELP: &str = "\
CSV: the first line names the columns. Each becomes a property; the keys are put together from the
raw text of the columns that the templates name. A column is Boolean, Int32, Int64, Double, DateTime
(an ISO instant) or Guid if every value in it is, and else String; nothing is sampled. An empty field
is no value, except that with --null it is an empty text in a column of type String.

A column NAME@type, as Azure Storage Explorer and AzCopy write it, has the types of the values of
column NAME. An empty field with the type String is an empty text, and with another type no value.

NDJSON: an entity a line, as `export` writes it. With templates the keys come from its members.

JSON: an array, or an object with an array `items` or `value`; other members are ignored. Its size
is not limited. An integer without a type is an Int32: --type NAME=long admits greater ones. An array
or object as a value is rejected: --type NAME=string imports its JSON as text.

Parquet (feature parquet): each column is a property of its type; null is no value. Templates use the
text of values. Lists and nested columns must be left out with --skip. A text column X with a column
X@type beside it, as `export` writes it, has values of the types named there. Lines are rows.

An input without rows is no error: standard error says so, and the table is created.

Text must be UTF-8. A row that cannot be loaded is reported with its line (for JSON, with its element
and line) and the others are loaded; the exit status is 3 then.

To a Table service, groups of one partition are sent, of up to 100 rows and 4 MiB, four at once.
--resume finds the rows of an interrupted import by groups.

After Ctrl-C the rows up to the printed line are in or rejected, and the exit status is 130. Repeat
the command with --resume to go on; it also goes on after a crash. Modes other than insert need no
--resume: they write the rows again.

Examples:
  rowstone import flights Flights flights.csv.gz --null NA --durability os \\
      --partition-key '{carrier}-{origin}' \\
      --row-key '{time_hour}-{flight}-{tailnum}'
  rowstone import flights Airports airports.csv \\
      --partition-key all --row-key '{faa}'
  rowstone export shop parts | rowstone import copy parts -
  rowstone import env:STORE parts parts.csv --rejects bad.ndjson
  sqlite3 -json shop.db 'select * from parts' |
      rowstone import shop parts - --partition-key parts --row-key '{id}'";

impl Import {
    pub(super) fn run(self) -> Outcome {
        let clock = SystemClock::new();
        if let Some(rejects) = self.rejects.as_deref() {
            self.overwrite.check(rejects)?;
            if files::is_same(Path::new(&self.input), rejects) {
                let problem = format!("--rejects {} would replace the input", rejects.display());
                return Err(Failure::Usage(problem));
            }
        }
        if self.resume && self.mode != LoadMode::Insert {
            let problem = "--resume is for --mode insert; the other modes write each row again";
            return Err(Failure::Usage(problem.to_owned()));
        }
        check_table_name(&self.table)?;
        #[cfg(feature = "remote")]
        if let Some(service) = self.account.open(&self.db)? {
            service.refuse(&[("--durability", self.durability.is_some())])?;
        }
        // The input is opened first, so that a misspelt file name does not create a new database.
        let input = files::open_input(&self.input)?;
        let format = self.input_format.unwrap_or_else(|| format_of(&input.head));
        let is_blank = input.is_blank;
        let mut summary = match format {
            _ if is_blank => parse_beside(|_| Ok(()), |rows| self.load(rows, Some(0), "line"))?,
            InputFormat::Csv => self.load_csv(input)?,
            InputFormat::Ndjson | InputFormat::Json => self.load_json(input, format)?,
            InputFormat::Parquet => self.load_parquet(input)?,
        };
        if summary.rows == 0 {
            let from = if self.input == STANDARD_INPUT { "standard input" } else { &self.input };
            let how = match is_blank {
                true => "is empty, and not CSV with a header, JSON or NDJSON",
                false => "has no rows",
            };
            eprint_line(&format!("note: nothing to import: {from} {how}"));
        }
        summary.elapsed = clock.monotonic();
        print(|output| match self.format {
            Format::Table => Ok(output.fold("", &summary.text())?),
            format => output.records(&[summary.json()], format),
        })?;
        if summary.rejected > 0 { Err(Failure::Rejected) } else { Ok(()) }
    }

    fn load_csv(&self, input: Input) -> Outcome<Summary> {
        let mut choices = self.choices.clone();
        if choices.nulls.is_empty() {
            choices.nulls.push(String::new());
        }
        let delimiter = self.delimiter.unwrap_or_else(|| delimiter_of(&input.head));
        let mut spool = if input.repeatable { None } else { Some(Spool::create()?) };
        let (columns, rows) = read_ahead(input.reader, spool.as_mut(), |source| {
            infer_columns(CsvReader::new(source, delimiter), &choices, &self.input)
        })?;
        let again: Box<dyn Read + Send> = match spool {
            Some(spool) => Box::new(spool.rewind().map_err(|error| self.unreadable(&error))?),
            None => files::open_input(&self.input)?.reader,
        };
        let parse = |batches: &mut Batches| {
            let reader = CsvReader::new(again, delimiter);
            parse_csv(reader, &columns, |line, row| batches.push(line, row))
        };
        parse_beside(parse, |batches| self.load(batches, Some(rows), "line"))
    }

    fn load_json(&self, input: Input, format: InputFormat) -> Outcome<Summary> {
        let csv_only =
            [("--null", !self.choices.nulls.is_empty()), ("--delimiter", self.delimiter.is_some())];
        if let Some((option, _)) = csv_only.into_iter().find(|(_, given)| *given) {
            let name = if format == InputFormat::Json { "JSON" } else { "NDJSON" };
            return Err(Failure::Usage(format!(
                "{option} is for CSV, and {} is {name}",
                self.input
            )));
        }
        let Choices { partition_key, row_key, .. } = &self.choices;
        let keys = MemberKeys::new(partition_key.as_deref(), row_key.as_deref())?;
        let mut keys = keys.with(self.choices.clone());
        let is_json = format == InputFormat::Json;
        let parse = |batches: &mut Batches| match is_json {
            true => parse_json(input.reader, &mut keys, |number, row| batches.push(number, row)),
            false => parse_ndjson(input.reader, &mut keys, |line, row| batches.push(line, row)),
        };
        let unit = if is_json { "element" } else { "line" };
        parse_beside(parse, |batches| self.load(batches, None, unit))
    }

    #[cfg(feature = "parquet")]
    fn load_parquet(&self, input: Input) -> Outcome<Summary> {
        let Choices { types, nulls, renames, .. } = &self.choices;
        let others = [
            ("--type", !types.is_empty()),
            ("--null", !nulls.is_empty()),
            ("--rename", !renames.is_empty()),
        ];
        if let Some((option, _)) = others.into_iter().find(|(_, given)| *given) {
            let problem = format!("{option} is for CSV and JSON, and {} is Parquet", self.input);
            return Err(Failure::Usage(problem));
        }
        let file = input.into_file(&self.input)?;
        let source = parquet::Source::open(file, &self.choices, &self.input)?;
        let rows = source.rows();
        let parse =
            move |batches: &mut Batches| source.parse(|row, entity| batches.push(row, entity));
        parse_beside(parse, |batches| self.load(batches, Some(rows), "row"))
    }

    #[cfg(not(feature = "parquet"))]
    fn load_parquet(&self, _: Input) -> Outcome<Summary> {
        Err(help::needs(&format!("Parquet for {}", self.input), "parquet"))
    }

    /// Loads the parsed rows, which are numbered by `unit`. The database is opened only here, after
    /// the input proved to be readable.
    fn load(
        &self,
        batches: Receiver<io::Result<Vec<Parsed>>>,
        rows: Option<u64>,
        unit: &'static str,
    ) -> Outcome<Summary> {
        let rejects = Rejects::new(self.rejects.as_deref(), self.overwrite, unit)?;
        let to = self.destination()?;
        to.create_missing_table(&self.table)?;
        let mode = Mode { load: self.mode, resume: self.resume, ack: self.ack };
        let loading = Loading {
            to: &to,
            table: &self.table,
            mode,
            sink: Sink::new(&to, &self.table, mode)?,
            rejects,
            progress: Progress::new(rows),
            stop_on_error: self.stop_on_error,
            summary: Summary::default(),
            last: 0,
        };
        let interrupt = Interrupt::catch();
        let (loaded, summary, last) = loading.run(&batches, &interrupt);
        let counts = || format!("{}, up to {unit} {last}", summary.counts());
        let go_on = match self.mode {
            LoadMode::Insert => "repeat the command with --resume, or with --mode upsert",
            LoadMode::Upsert | LoadMode::UpsertMerge => "repeat the command",
        };
        let ended = match loaded {
            Ok(ended) => ended,
            Err(failure) => {
                if is_of_store(&failure) {
                    eprint_line(&format!("ended: {}\n  to go on: {go_on}", summary.counts()));
                }
                return Err(failure);
            }
        };
        to.close()?;
        if interrupt.is_raised() {
            Interrupt::end(&format!("interrupted: {}\n  to go on: {go_on}", counts()));
        }
        match ended {
            Err(error) if last > 0 => {
                let problem = format!("cannot read {}: {error}\n  {}", self.input, counts());
                Err(Failure::Other(format!("{problem}\n  to go on: {go_on}")))
            }
            ended => ended.map(|()| summary).map_err(|error| self.unreadable(&error)),
        }
    }

    /// Opens the database or the service.
    fn destination(&self) -> Outcome<Destination> {
        #[cfg(feature = "remote")]
        if let Some(service) = self.account.open(&self.db)? {
            return Ok(Destination::Service(service));
        }
        let durability = self.durability.unwrap_or(Durability::Sync);
        Writer::open_durable(&self.db, Create::IfMissing, durability).map(Destination::Database)
    }

    fn unreadable(&self, error: &io::Error) -> Failure {
        unreadable(&self.input, error)
    }
}

/// Parses a single ASCII character, or `\t` or `tab` for a tab.
fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" | b"tab" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Ok(*byte),
        _ => Err("expected one ASCII character, or \\t".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::columns::parse_type;
    use super::*;
    use crate::model::EdmType;

    #[test]
    fn options_are_parsed() {
        assert_eq!(parse_type("a=b=Edm.Int64"), Ok(("a=b".into(), EdmType::Int64)));
        assert!(parse_type("a").is_err());
        for name in ["Edm.Int64", "Int64", "long", "LONG"] {
            assert_eq!(
                parse_type(&format!("a={name}")),
                Ok(("a".into(), EdmType::Int64)),
                "{name}"
            );
        }
        for (name, edm) in [("int", EdmType::Int32), ("bool", EdmType::Boolean)] {
            assert_eq!(parse_type(&format!("a={name}")), Ok(("a".into(), edm)));
        }
        for name in ["double", "datetime", "guid", "binary", "string"] {
            assert!(parse_type(&format!("a={name}")).is_ok(), "{name}");
        }
        assert!(parse_type("a=number").unwrap_err().contains("Edm.Int64"));
        assert_eq!(parse_delimiter(";"), Ok(b';'));
        assert_eq!(parse_delimiter("\\t"), Ok(b'\t'));
        assert!(parse_delimiter("\"").is_err() && parse_delimiter(";;").is_err());
    }
}

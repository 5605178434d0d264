//! `import`: CSV and NDJSON into a table, rejected rows reported by line.
//!
//! 1. CSV is read twice: once for the types of its columns, over the whole input, and once to load it. What cannot
//!    be read again (standard input, gzip) is spooled to a file without a name.
//! 2. NDJSON is read once: each line says its types.
//! 3. Parsing runs on a thread of its own; the loader forms the groups.
//!
//! Not here: groups and their durability (`table`), JSON (`json`).

mod columns;
#[cfg(any(fuzzing, feature = "fuzzing"))]
pub(crate) mod direct;
mod infer;
mod pipeline;
mod report;
pub(super) mod sample;

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::mpsc::Receiver;

use clap::{Args, ValueEnum};

use self::columns::{Choices, Columns, Converter};
use self::pipeline::{Batches, Parsed, parse_beside, read_ahead};
pub(super) use self::report::Progress;
use self::report::{Rejects, Summary};
use super::csv::CsvReader;
use super::failure::{Failure, Outcome};
use super::files::{self, Input, Spool};
use super::output::Output;
use super::window::Lines;
use super::{Create, DurabilityName, open_durable};
use crate::clock::{Clock, SystemClock};
use crate::error::{Code, Error, Result};
use crate::json::odata::Members;
use crate::model::{EdmType, Entity, EntityEncoder, KeyPart, Template};
use crate::table::{LoadMode, Loader};

/// The longest line of NDJSON: ample for an entity of 1 MiB, however its text is escaped.
const LINE_BYTES_MAX: usize = 8 << 20;

/// Load CSV or NDJSON, also gzip, into a table.
#[derive(Args)]
#[command(after_long_help = IMPORT_HELP)]
pub(super) struct Import {
    /// The database: a directory, created if it is missing or empty
    db: PathBuf,
    /// The table, created if it is missing
    table: String,
    /// The file, or - for standard input; gzip is recognised
    input: String,
    /// What the file is; told from its first character by default
    #[arg(long, value_enum)]
    input_format: Option<InputFormat>,
    /// PartitionKey of a row, columns in braces: '{carrier}-{origin}'
    #[arg(long, value_name = "TEMPLATE")]
    partition_key: Option<String>,
    /// RowKey of a row, columns in braces
    #[arg(long, value_name = "TEMPLATE")]
    row_key: Option<String>,
    /// A text that stands for no value; may be repeated [default: the empty field]
    #[arg(long, value_name = "TEXT")]
    null: Vec<String>,
    /// The type of a column instead of the inferred one; may be repeated
    #[arg(long = "type", value_name = "COLUMN=Edm.TYPE", value_parser = parse_type)]
    types: Vec<(String, EdmType)>,
    /// A column that becomes no property; may be repeated
    #[arg(long, value_name = "COLUMN")]
    skip: Vec<String>,
    /// What separates fields
    #[arg(long, default_value = ",", value_parser = parse_delimiter)]
    delimiter: u8,
    /// What may be there already
    #[arg(long, value_enum, default_value_t = ImportMode::Insert)]
    mode: ImportMode,
    /// What a loaded group survives
    #[arg(long, value_enum, default_value_t = DurabilityName::Sync)]
    durability: DurabilityName,
    /// Print, per group, the last line up to which everything is loaded (or rejected) and durable
    #[arg(long)]
    ack: bool,
    /// Where rejected rows are reported, a line of JSON each
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,
    /// End at the first rejected row; what was loaded before it stays
    #[arg(long)]
    stop_on_error: bool,
    /// How to print the summary
    #[arg(long, value_enum, default_value_t = SummaryFormat::Text)]
    format: SummaryFormat,
}

const IMPORT_HELP: &str = "\
CSV: the first line names the columns. Each becomes a property; the keys are put together from the
raw text of the columns that the templates name. A column is Boolean, Int32, Int64, Double, DateTime
(an ISO instant) or Guid if every value in it is, and else String; nothing is sampled. An empty field
is no value, except that with --null it is an empty text in a column of type String.

NDJSON: an entity a line, as `export` writes it. With templates the keys come from its members.

A row that cannot be loaded is reported with its line number and the others are loaded; the exit
status is 3 then.

Examples:
  rowstone import flights Flights flights.csv.gz --partition-key '{carrier}-{origin}' \\
      --row-key '{time_hour}-{flight}-{tailnum}' --null NA --durability os
  rowstone import flights Airports airports.csv --partition-key all --row-key '{faa}'
  rowstone export shop parts | rowstone import copy parts -";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum InputFormat {
    /// Comma-separated values with a header
    Csv,
    /// One JSON object a line
    Ndjson,
}

/// How a row treats what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ImportMode {
    /// Must be new
    Insert,
    /// Insert or replace
    Upsert,
    /// Insert or merge
    UpsertMerge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SummaryFormat {
    /// For people
    #[value(alias = "table")]
    Text,
    /// One JSON object
    #[value(alias = "ndjson")]
    Json,
}

impl Import {
    pub(super) fn run(self) -> Outcome {
        let clock = SystemClock::new();
        // The input first: a misspelt name must not leave a new database behind.
        let input = files::open_input(&self.input)?;
        let format = self.input_format.unwrap_or_else(|| format_of(&input.head));
        let mut summary = match format {
            InputFormat::Csv => self.load_csv(input)?,
            InputFormat::Ndjson => self.load_ndjson(input)?,
        };
        summary.elapsed = clock.monotonic();
        let mut output = Output::standard();
        let text = match self.format {
            SummaryFormat::Text => summary.text(),
            SummaryFormat::Json => summary.json(),
        };
        writeln!(output, "{text}").map_err(Failure::output)?;
        output.finish()?;
        if summary.rejected > 0 { Err(Failure::Rejected) } else { Ok(()) }
    }

    fn load_csv(&self, input: Input) -> Outcome<Summary> {
        let mut spool = if input.repeatable { None } else { Some(Spool::create()?) };
        let (columns, rows) = read_ahead(input.reader, spool.as_mut(), |source| {
            infer(CsvReader::new(source, self.delimiter), &self.choices(), &self.input)
        })?;
        let again: Box<dyn Read + Send> = match spool {
            Some(spool) => Box::new(spool.rewind().map_err(|error| self.unreadable(&error))?),
            None => files::open_input(&self.input)?.reader,
        };
        let parse = |batches: &mut Batches| {
            let reader = CsvReader::new(again, self.delimiter);
            parse_csv(reader, &columns, |line, row| batches.push(line, row))
        };
        parse_beside(parse, |batches| self.load(batches, Some(rows)))
    }

    fn choices(&self) -> Choices {
        let default = if self.null.is_empty() { vec![String::new()] } else { Vec::new() };
        Choices {
            partition_key: self.partition_key.clone(),
            row_key: self.row_key.clone(),
            nulls: [self.null.clone(), default].concat(),
            types: self.types.clone(),
            skip: self.skip.clone(),
        }
    }

    fn load_ndjson(&self, input: Input) -> Outcome<Summary> {
        let csv_only = [
            ("--type", !self.types.is_empty()),
            ("--null", !self.null.is_empty()),
            ("--skip", !self.skip.is_empty()),
        ];
        if let Some((option, _)) = csv_only.into_iter().find(|(_, given)| *given) {
            return Err(Failure::Usage(format!(
                "{option} is for CSV, and {} is NDJSON",
                self.input
            )));
        }
        let mut keys = MemberKeys::new(self.partition_key.as_deref(), self.row_key.as_deref())?;
        let parse = |batches: &mut Batches| {
            parse_ndjson(input.reader, &mut keys, |line, row| batches.push(line, row))
        };
        parse_beside(parse, |batches| self.load(batches, None))
    }

    /// Loads what is parsed; opens the database only now, when the input has proved readable.
    fn load(
        &self,
        batches: Receiver<io::Result<Vec<Parsed>>>,
        rows: Option<u64>,
    ) -> Outcome<Summary> {
        let mut rejects = Rejects::new(self.rejects.as_deref())?;
        let db = open_durable(&self.db, Create::IfMissing, self.durability)?;
        let table = db.table_or_create(&self.table)?;
        let mut loader = table.loader().mode(self.mode.into());
        if self.ack {
            loader = loader.on_acknowledged(acknowledge);
        }
        let progress = Progress::new(rows);
        let mut summary = Summary::default();
        'input: for batch in batches {
            let batch = batch.map_err(|error| self.unreadable(&error))?;
            progress.advance(batch.len() as u64);
            for (line, row) in batch {
                summary.rows += 1;
                match row {
                    Ok(entity) => loader.push(line, entity)?,
                    Err(error) => rejects.add(line, &error, &progress)?,
                }
                if self.stop_on_error && rejects.count() > 0 {
                    break 'input;
                }
            }
            report(&mut loader, &mut rejects, &progress)?;
            if self.stop_on_error && rejects.count() > 0 {
                break;
            }
        }
        loader.flush()?;
        report(&mut loader, &mut rejects, &progress)?;
        let loaded = loader.finish()?;
        progress.end();
        rejects.finish()?;
        db.close()?;
        (summary.imported, summary.rejected) = (loaded.loaded, rejects.count());
        Ok(summary)
    }

    fn unreadable(&self, error: &io::Error) -> Failure {
        unreadable(&self.input, error)
    }
}

fn unreadable(input: &str, error: &io::Error) -> Failure {
    Failure::Other(format!("cannot read {input}: {error}"))
}

/// Reads all of a CSV file, called `input`, for its columns; also counts its rows.
fn infer<R: Read>(
    mut reader: CsvReader<R>,
    choices: &Choices,
    input: &str,
) -> Outcome<(Columns, u64)> {
    let header = reader.next().map_err(|error| unreadable(input, &error))?;
    let header = header.ok_or_else(|| {
        Failure::Other(format!("{input} is empty: CSV begins with a line of column names"))
    })?;
    let mut columns = Columns::new(&header, choices)?;
    let mut rows = 0;
    while let Some(row) = reader.next().map_err(|error| unreadable(input, &error))? {
        columns.see(&row);
        rows += 1;
    }
    columns.decide();
    Ok((columns, rows))
}

/// Hands each row behind the header, and its line, to `push`, until that has enough.
fn parse_csv<R: Read>(
    mut reader: CsvReader<R>,
    columns: &Columns,
    mut push: impl FnMut(u64, Result<Entity>) -> bool,
) -> io::Result<()> {
    let mut converter = Converter::new(columns);
    reader.next()?;
    while let Some(row) = reader.next()? {
        if !push(row.line, converter.entity(&row)) {
            break;
        }
    }
    Ok(())
}

/// Hands the entity of each line that is not empty to `push`, until that has enough.
fn parse_ndjson(
    source: impl Read,
    keys: &mut MemberKeys,
    mut push: impl FnMut(u64, Result<Entity>) -> bool,
) -> io::Result<()> {
    let mut lines = Lines::new(source, LINE_BYTES_MAX);
    while let Some(line) = lines.next()? {
        let row = match line.bytes {
            Some(bytes) if bytes.trim_ascii().is_empty() => continue,
            Some(bytes) => keys.entity(bytes),
            None => {
                let text = format!("the line is longer than {LINE_BYTES_MAX} bytes");
                Err(Error::refused_with(Code::InvalidInput, text))
            }
        };
        if !push(line.number, row) {
            break;
        }
    }
    Ok(())
}

/// Hands on what the loader has refused by now.
fn report(loader: &mut Loader, rejects: &mut Rejects, progress: &Progress) -> Outcome {
    loader
        .take_rejected()
        .into_iter()
        .try_for_each(|row| rejects.add(row.line, &row.error, progress))
}

/// Tells the reader of standard output, who may be gone, what is durable.
fn acknowledge(line: u64) {
    let mut output = io::stdout().lock();
    drop(writeln!(output, "{line}").and_then(|()| output.flush()));
}

/// NDJSON begins with an object; no sane header of CSV does.
fn format_of(head: &[u8]) -> InputFormat {
    match head.trim_ascii_start().first() {
        Some(b'{') => InputFormat::Ndjson,
        _ => InputFormat::Csv,
    }
}

/// Where the keys of an NDJSON line come from.
struct MemberKeys {
    names: Vec<String>,
    partition_key: Option<Template>,
    row_key: Option<Template>,
    encoder: EntityEncoder,
}

impl MemberKeys {
    fn new(partition_key: Option<&str>, row_key: Option<&str>) -> Outcome<Self> {
        let names = std::cell::RefCell::new(Vec::<String>::new());
        // Every name is a column: whether a line has it is seen when it is read.
        let column = |name: &str| {
            let mut names = names.borrow_mut();
            names.push(name.to_owned());
            Some(names.len() - 1)
        };
        let parse = |template: Option<&str>| {
            template.map(|text| Template::parse(text, column)).transpose().map_err(Failure::Usage)
        };
        let (partition_key, row_key) = (parse(partition_key)?, parse(row_key)?);
        let (names, encoder) = (names.into_inner(), EntityEncoder::default());
        Ok(Self { partition_key, row_key, names, encoder })
    }

    fn entity(&mut self, line: &[u8]) -> Result<Entity> {
        let text = std::str::from_utf8(line)
            .map_err(|_| Error::refused_with(Code::InvalidInput, "the line is not UTF-8"))?;
        let members = Members::read(text)?;
        let pk = self.key(&members, KeyPart::PartitionKey, self.partition_key.as_ref())?;
        let rk = self.key(&members, KeyPart::RowKey, self.row_key.as_ref())?;
        members.entity(&pk, &rk, &mut self.encoder)
    }

    fn key(
        &self,
        members: &Members<'_>,
        part: KeyPart,
        template: Option<&Template>,
    ) -> Result<String> {
        let Some(template) = template else { return members.key(part).map(str::to_owned) };
        let missing = std::cell::Cell::new(false);
        let mut key = Vec::new();
        template.expand(&mut key, |i| {
            let text = self.names.get(i).and_then(|name| members.raw(name));
            missing.set(missing.get() || text.is_none());
            text.unwrap_or_default().as_bytes()
        });
        match String::from_utf8(key) {
            Ok(key) if !missing.get() => Ok(key),
            _ => Err(Error::refused(Code::PropertiesNeedValue)),
        }
    }
}

impl From<ImportMode> for LoadMode {
    fn from(mode: ImportMode) -> Self {
        match mode {
            ImportMode::Insert => LoadMode::Insert,
            ImportMode::Upsert => LoadMode::Upsert,
            ImportMode::UpsertMerge => LoadMode::UpsertMerge,
        }
    }
}

/// `COLUMN=Edm.TYPE`; the column may hold an equals sign, the type not.
fn parse_type(text: &str) -> Result<(String, EdmType), String> {
    let known = || EdmType::ALL.map(EdmType::name).join(", ");
    let (column, edm) = text.rsplit_once('=').ok_or("expected COLUMN=Edm.TYPE")?;
    let edm = EdmType::from_name(edm).ok_or_else(|| format!("'{edm}' is none of {}", known()))?;
    Ok((column.to_owned(), edm))
}

/// A single ASCII character, `\t` or `tab` for a tab.
fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" | b"tab" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Ok(*byte),
        _ => Err("expected one ASCII character, or \\t".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed() {
        assert_eq!(parse_type("a=b=Edm.Int64"), Ok(("a=b".into(), EdmType::Int64)));
        assert!(parse_type("a").is_err());
        assert!(parse_type("a=Int64").unwrap_err().contains("Edm.Int64"));
        assert_eq!(parse_delimiter(";"), Ok(b';'));
        assert_eq!(parse_delimiter("\\t"), Ok(b'\t'));
        assert!(parse_delimiter("\"").is_err() && parse_delimiter(";;").is_err());
    }

    #[test]
    fn the_format_is_told_from_the_first_character() {
        assert_eq!(format_of(b" \n{\"a\":1}"), InputFormat::Ndjson);
        assert_eq!(format_of(b"a,b"), InputFormat::Csv);
        assert_eq!(format_of(b""), InputFormat::Csv);
    }

    #[test]
    fn ndjson_has_its_keys_or_makes_them_of_members() {
        let mut keys = MemberKeys::new(None, None).unwrap();
        let entity = keys.entity(br#"{"PartitionKey":"p","RowKey":"r","A":1}"#).unwrap();
        assert_eq!(format!("{entity:?}"), r#"{"PartitionKey": "p", "RowKey": "r", "A": Int32(1)}"#);
        let mut made = MemberKeys::new(Some("{A}-{B}"), Some("{A}{C}")).unwrap();
        let entity = made.entity(br#"{"A":1.50,"B":"x","C":true}"#).unwrap();
        assert_eq!((entity.partition_key(), entity.row_key()), ("1.50-x", "1.50true"));
        assert_eq!(entity.len(), 3);
        let mut code = |line: &[u8]| made.entity(line).unwrap_err().code();
        assert_eq!(code(br#"{"A":1,"B":null,"C":1}"#), "PropertiesNeedValue");
        assert_eq!(code(br#"{"A":1"#), "InvalidInput");
        assert_eq!(code(b"\xff"), "InvalidInput");
        assert!(MemberKeys::new(Some("{A"), None).is_err());
    }
}

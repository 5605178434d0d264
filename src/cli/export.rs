//! `rowstone export`: writes a table, or the entities that a filter matches, to a file.

use std::cell::Cell;
use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};

#[cfg(feature = "remote")]
use super::endpoint::AccountArgs;
use super::endpoint::Place;
use super::failure::{Failure, Outcome, eprint_line};
use super::files::Overwrite;
use super::help;
use super::open::{FilterArgs, open_to_read};
use super::output::{Format, Output, for_each_json, write_entities};
#[cfg(feature = "parquet")]
use super::parquet::write::write_entities as write_parquet;
use super::unmatched::note;
use crate::error::Result;
use crate::json::odata::Metadata;
use crate::model::Entity;

/// Write a table or a part of it as NDJSON, CSV or Parquet.
#[derive(Args)]
#[command(after_long_help = EXPORT_HELP)]
pub(super) struct Export {
    /// The database
    db: Place,
    /// The table
    table: String,
    #[command(flatten)]
    filter: FilterArgs,
    /// How to write the entities [default: by the extension of FILE, else ndjson]
    #[arg(long, value_enum)]
    format: Option<ExportFormat>,
    /// The same as --format json
    #[arg(long, conflicts_with = "format", hide = true)]
    json: bool,
    /// Omit the types from the JSON
    #[arg(long)]
    no_metadata: bool,
    /// The file to write; standard output by default
    #[arg(long, short, alias = "output", value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    #[cfg(feature = "remote")]
    #[command(flatten)]
    account: AccountArgs,
}

/// How entities are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExportFormat {
    Rows(Format),
    Parquet,
}

impl ValueEnum for ExportFormat {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self::Rows(Format::Table),
            Self::Rows(Format::Json),
            Self::Rows(Format::Ndjson),
            Self::Rows(Format::Csv),
            Self::Parquet,
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Rows(format) => format.to_possible_value(),
            Self::Parquet => Some(
                PossibleValue::new("parquet").help("Columns of typed values (feature parquet)"),
            ),
        }
    }
}

impl ExportFormat {
    /// The format that the extension of a file's name stands for.
    fn of_name(name: &Path) -> Option<Self> {
        let extension = name.extension()?.to_str()?.to_ascii_lowercase();
        Some(match &*extension {
            "json" => Self::Rows(Format::Json),
            "ndjson" | "jsonl" => Self::Rows(Format::Ndjson),
            "csv" => Self::Rows(Format::Csv),
            "parquet" => Self::Parquet,
            _ => return None,
        })
    }
}

const EXPORT_HELP: &str = "\
Without --format, the extension of FILE decides: .ndjson or .jsonl, .json, .csv, .parquet. Standard
output, and a file with another extension or none, gets NDJSON. A note on standard error says so if
FILE has an extension of another format, or an unknown one.

NDJSON keeps every type, and `import` restores it unchanged. CSV has the keys first and then a
column for each property that any entity has; its types are inferred when it is read again.

Parquet (feature parquet) has the same columns with their types, and `import` restores them. A
DateTime is a timestamp in microseconds, or in nanoseconds if a value has ticks of 100 ns. A property
with values of several types becomes a column of texts, and a column with @type at the end of its
name has their types; so does a DateTime with ticks if a value is outside of the years 1678 to 2261.

Examples:
  rowstone export shop parts > parts.ndjson
  rowstone export shop parts --out parts.csv
  rowstone export shop parts --out parts.parquet
  rowstone export shop parts --filter \"Price lt 0.5\" --out cheap.ndjson
  rowstone export shop parts | rowstone import other parts -";

impl Export {
    pub(super) fn run(self) -> Outcome {
        let filter = self.filter.read()?;
        let (format, note_on_name) = self.format();
        if format == ExportFormat::Parquet {
            if !cfg!(feature = "parquet") {
                return Err(help::needs("Parquet", "parquet"));
            }
            if self.out.is_none() && io::stdout().is_terminal() {
                return Err(Failure::Usage("Parquet is not text: name a file with --out".into()));
            }
        }
        #[cfg(feature = "remote")]
        if let Some(service) = self.account.open(&self.db)? {
            let rows = |top| service.rows(&self.table, self.filter.text(), None, top);
            if self.out.is_some() {
                // No file is made if the table is missing or the service is not reached.
                rows(Some(1)).next().transpose()?;
            }
            let entities = || Ok(rows(None));
            let mut output = Output::to_file(self.out.as_deref(), self.overwrite)?;
            note_on_name.iter().for_each(|note| eprint_line(note));
            self.write(&mut output, entities, format)?;
            return output.finish();
        }
        let db = open_to_read(&self.db)?;
        let table = db.table(&self.table)?;
        let query = table.query(filter.clone())?;
        let mut output = Output::to_file(self.out.as_deref(), self.overwrite)?;
        note_on_name.iter().for_each(|note| eprint_line(note));
        let matched = Cell::new(false);
        let entities = || Ok(query.clone().into_iter().inspect(|_| matched.set(true)));
        self.write(&mut output, entities, format)?;
        output.finish()?;
        note(&table, &filter, None, matched.get());
        Ok(db.close()?)
    }

    /// Returns the format, and a note if the extension of the file is not one of that format.
    fn format(&self) -> (ExportFormat, Option<String>) {
        let json = self.json.then_some(ExportFormat::Rows(Format::Json));
        let asked = self.format.or(json);
        let of_name = self.out.as_deref().and_then(ExportFormat::of_name);
        let format = asked.or(of_name).unwrap_or(ExportFormat::Rows(Format::Ndjson));
        // A table has no extension of its own.
        let fits = match asked {
            None => of_name.is_some(),
            Some(_) => of_name.is_none_or(|of_name| of_name == format),
        };
        let named = self.out.as_deref().filter(|name| !fits && name.extension().is_some());
        let note = named.map(|name| {
            let value = format.to_possible_value();
            let value = value.as_ref().map_or("", PossibleValue::get_name);
            let name = name.display();
            match asked {
                Some(_) => format!("note: {name} gets {value}, as --format says"),
                None => format!("note: {name} gets {value}: --format chooses another format"),
            }
        });
        (format, note)
    }

    fn write<I: Iterator<Item = Result<Entity>>>(
        &self,
        output: &mut Output,
        entities: impl Fn() -> Result<I>,
        format: ExportFormat,
    ) -> Outcome {
        match format {
            ExportFormat::Rows(format @ (Format::Csv | Format::Table)) => {
                write_entities(output, entities, None, format)
            }
            ExportFormat::Rows(format) => self.write_json(output, entities()?, format),
            #[cfg(feature = "parquet")]
            ExportFormat::Parquet => write_parquet(output, entities),
            #[cfg(not(feature = "parquet"))]
            ExportFormat::Parquet => Ok(()),
        }
    }

    fn write_json(
        &self,
        output: &mut Output,
        entities: impl Iterator<Item = Result<Entity>>,
        format: Format,
    ) -> Outcome {
        let metadata = if self.no_metadata { Metadata::NONE } else { Metadata::TYPES };
        let (begin, between, end): (&[u8], &[u8], &[u8]) = match format {
            Format::Json => (b"[\n", b",\n", b"\n]\n"),
            _ => (b"", b"\n", b"\n"),
        };
        let mut any = false;
        for_each_json(entities, None, metadata, |json, first| {
            any = true;
            output.write_all(if first { begin } else { between })?;
            output.write_all(json)
        })?;
        match (any, format) {
            (true, _) => output.write_all(end)?,
            (false, Format::Json) => output.write_all(b"[\n]\n")?,
            (false, _) => (),
        }
        Ok(())
    }
}

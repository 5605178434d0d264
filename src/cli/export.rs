//! `rowstone export`: writes a table, or the entities that a filter matches, to a file.

use std::cell::Cell;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::failure::Outcome;
use super::files::Overwrite;
use super::open::{FilterArgs, open_to_read};
use super::output::{Format, Output, for_each_json, write_entities};
use super::unmatched::note;
use crate::error::Result;
use crate::json::odata::Metadata;
use crate::model::Entity;

/// Write a table, or what a filter matches, as NDJSON or CSV.
#[derive(Args)]
#[command(after_long_help = EXPORT_HELP)]
pub(super) struct Export {
    /// The database
    db: PathBuf,
    /// The table
    table: String,
    #[command(flatten)]
    filter: FilterArgs,
    /// How to write the entities
    #[arg(long, value_enum, default_value_t = Format::Ndjson)]
    format: Format,
    /// Omit the types from the JSON
    #[arg(long)]
    no_metadata: bool,
    /// The file to write; standard output by default
    #[arg(long, short, alias = "output", value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
}

const EXPORT_HELP: &str = "\
NDJSON keeps every type, and `import` restores it unchanged. CSV has the keys first and then a
column for each property that any entity has; its types are inferred when it is read again.

Examples:
  rowstone export shop parts > parts.ndjson
  rowstone export shop parts --format csv --out parts.csv
  rowstone export shop parts --filter \"Price lt 0.5\" --out cheap.ndjson
  rowstone export shop parts | rowstone import other parts -";

impl Export {
    pub(super) fn run(self) -> Outcome {
        let filter = self.filter.read()?;
        let db = open_to_read(&self.db)?;
        let table = db.table(&self.table)?;
        let query = table.query(filter.clone())?;
        let mut output = Output::to_file(self.out.as_deref(), self.overwrite)?;
        let matched = Cell::new(false);
        let entities = || Ok(query.clone().into_iter().inspect(|_| matched.set(true)));
        match self.format {
            Format::Csv | Format::Table => {
                write_entities(&mut output, entities, None, self.format)?;
            }
            Format::Json | Format::Ndjson => self.write_json(&mut output, entities()?)?,
        }
        output.finish()?;
        note(&table, &filter, None, matched.get());
        Ok(db.close()?)
    }

    fn write_json(
        &self,
        output: &mut Output,
        entities: impl Iterator<Item = Result<Entity>>,
    ) -> Outcome {
        let metadata = if self.no_metadata { Metadata::NONE } else { Metadata::TYPES };
        let (begin, between, end): (&[u8], &[u8], &[u8]) = match self.format {
            Format::Json => (b"[\n", b",\n", b"\n]\n"),
            _ => (b"", b"\n", b"\n"),
        };
        let mut any = false;
        for_each_json(entities, None, metadata, |json, first| {
            any = true;
            output.write_all(if first { begin } else { between })?;
            output.write_all(json)
        })?;
        match (any, self.format) {
            (true, _) => output.write_all(end)?,
            (false, Format::Json) => output.write_all(b"[\n]\n")?,
            (false, _) => (),
        }
        Ok(())
    }
}

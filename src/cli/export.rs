//! `rowstone export`: writes a whole table as NDJSON or CSV.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::failure::Outcome;
use super::files::Overwrite;
use super::open::open_to_read;
use super::output::{Output, for_each_json, write_csv};
use crate::json::odata::Metadata;
use crate::query::KeyRange;

/// Write a whole table as NDJSON or CSV, in key order.
#[derive(Args)]
#[command(after_long_help = EXPORT_HELP)]
pub(super) struct Export {
    /// The database
    db: PathBuf,
    /// The table
    table: String,
    /// One JSON object per line with all types, or comma-separated columns
    #[arg(long, value_enum, default_value_t = ExportFormat::Ndjson)]
    format: ExportFormat,
    /// Omit the types from the JSON
    #[arg(long)]
    no_metadata: bool,
    /// The file to write; standard output by default
    #[arg(long, short)]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
}

const EXPORT_HELP: &str = "\
NDJSON keeps every type, and `import` restores it unchanged. CSV has the keys first and then a
column for each property that any entity has; its types are inferred when it is read again.

Examples:
  rowstone export shop parts > parts.ndjson
  rowstone export shop parts --format csv --output parts.csv
  rowstone export shop parts | rowstone import other parts -";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// One JSON object per line
    Ndjson,
    /// Comma-separated values with a header
    Csv,
}

impl Export {
    pub(super) fn run(self) -> Outcome {
        let db = open_to_read(&self.db)?;
        let table = db.table(&self.table)?;
        let mut output = Output::to_file(self.output.as_deref(), self.overwrite)?;
        let entities = || Ok(table.scan(KeyRange::all()).into_iter());
        match self.format {
            ExportFormat::Csv => write_csv(&mut output, entities, None)?,
            ExportFormat::Ndjson => {
                let metadata = if self.no_metadata { Metadata::NONE } else { Metadata::TYPES };
                for_each_json(entities()?, None, metadata, |json, _| {
                    output.write_all(json)?;
                    output.write_all(b"\n")
                })?;
            }
        }
        output.finish()?;
        Ok(db.close()?)
    }
}

//! `rowstone inspect`: shows one file of a database, as text or as one JSON object per line.
//!
//! `db::inspect` reads and parses the file.

use std::path::PathBuf;

use clap::Args;

use super::failure::{Failure, Outcome};
use super::output::{Output, TableArgs};
use crate::db::{InspectOptions, InspectedPart, InspectedValue, inspect};
use crate::error::Error;
use crate::fs::DiskFs;

/// Show the content of one file of a database or a backup.
///
/// The file is an SST, a log, a manifest, CURRENT, or a generation of a backup.
#[derive(Args)]
#[command(after_long_help = HELP)]
pub(super) struct Inspect {
    /// The file
    file: PathBuf,
    /// Show only this part in full: for an SST the block of rows, for a log the record, counted
    /// from 0
    #[arg(long, value_name = "N")]
    block: Option<u64>,
    /// Show only this row of the block, counted from 0: its bytes in hex and their meaning
    #[arg(long, value_name = "N", requires = "block")]
    row: Option<u64>,
    #[command(flatten)]
    format: TableArgs,
}

const HELP: &str = "\
Each line is a part of the file: the byte where it begins, what it is, and what it says; FORMAT.md
explains the words. The database need not be whole, and may be in use: nothing is written or locked.
A damaged file is shown as far as it can be read, and lines that begin with `damage` say where it
is not what was written; the exit status is 1 then. Places in a compressed block are places in
what it holds.

Examples:
  rowstone inspect flights/CURRENT
  rowstone inspect flights/000004.sst
  rowstone inspect flights/000004.sst --block 2 --row 7
  rowstone inspect flights/000003.wal --format json
  rowstone inspect backups/generations/000001.generation";

/// The position of the fields in the text of a part: behind its place and most of the names.
const FIELDS_AT: usize = 10 + 2 + 8 + 2;

impl Inspect {
    pub(super) fn run(self) -> Outcome {
        let options = InspectOptions { block: self.block, row: self.row };
        let as_json = self.format.is_json()?;
        let mut output = self.format.output();
        let mut written = Ok(());
        let damaged = inspect(&DiskFs::new(), &self.file, options, |part| {
            if written.is_ok() {
                written = write(&mut output, &part, as_json);
            }
            // The returned error only stops the inspection. The error of the output is in
            // `written`, and is returned below.
            let stop = |_| Error::io("write the output", std::io::ErrorKind::Other.into());
            written.as_ref().copied().map_err(stop)
        });
        written?;
        let damaged = damaged.map_err(Failure::Open)?;
        output.finish()?;
        if damaged > 0 { Err(Failure::Problems) } else { Ok(()) }
    }
}

fn write(output: &mut Output, part: &InspectedPart, as_json: bool) -> std::io::Result<()> {
    if !as_json {
        let text = part.to_string();
        let (lead, fields) = text.split_at_checked(FIELDS_AT).unwrap_or((&text, ""));
        return output.fold(lead, fields);
    }
    output.object(|object| {
        object.text("part", part.what);
        object.raw("at", part.at);
        part.fields.iter().for_each(|(name, value)| match value {
            InspectedValue::Number(number) => object.raw(name, number),
            InspectedValue::Text(text) => object.text(name, text),
        });
    })
}

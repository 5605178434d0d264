//! Implements the commands for a whole database: `verify`, `checkpoint`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::failure::{Failure, Outcome};
use super::open::{Create, open_to_read};
use super::output::{Format, print, write_counters, write_problems};
use super::progress::Progress;
use super::writer::Writer;
use crate::json::Object;
use crate::json::exec::Response;

/// Read and check the whole database: every checksum, the order of keys, and every reference.
#[derive(Args)]
#[command(
    after_long_help = "Files are read as they are on disk now: checksums, order, indexes, counts and bounds of \
    every table file, every record of logs and manifest, and whether all of them agree. Exits with status 1 if anything \
    is wrong, after listing all of it. Then: `rowstone heal` if there is a backup, `rowstone repair` if there is none.\n\n\
    Examples:\n  rowstone verify shop\n  rowstone verify shop --format json"
)]
pub(super) struct Verify {
    /// The database
    db: PathBuf,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// Copy the current state of the database to a new directory, where it can be opened.
#[derive(Args)]
#[command(
    after_long_help = "One moment of all tables, while they are in use. Table files are linked where \
    the file system can, so that a checkpoint on the same disk takes a moment; else they are \
    copied. The copy opens when it is finished, and is another incarnation of the database.\n\n\
    Example:\n  rowstone checkpoint shop shop-monday"
)]
pub(super) struct Checkpoint {
    /// The database
    db: PathBuf,
    /// The new directory
    target: PathBuf,
}

impl Verify {
    pub(super) fn run(self) -> Outcome {
        let db = open_to_read(&self.db)?;
        let report = Progress::during("bytes", db.stats().get("file_bytes"), |bar| {
            db.verify_with(|bytes| bar.advance(bytes))
        })?;
        print(|output| match self.format {
            Format::Json | Format::Ndjson => {
                output.write_all(&Response::verified(&report).into_line())
            }
            Format::Table | Format::Csv => {
                write_counters(output, &report.checked, self.format)?;
                report.torn.iter().try_for_each(|torn| writeln!(output, "note: {torn}"))?;
                write_problems(output, &report.problems)
            }
        })?;
        // If verification found problems, the command reports these, even if closing fails too.
        let closed = db.close();
        if !report.problems.is_empty() {
            return Err(Failure::Problems);
        }
        Ok(closed?)
    }
}

impl Checkpoint {
    pub(super) fn run(self) -> Outcome {
        let db = Writer::open(&self.db, Create::Never)?;
        let path = db.path(&self.target)?;
        Progress::during("bytes copied", None, |bar| {
            let put = |request: &mut Object<'_>| request.text("path", &path);
            db.ask_with("checkpoint", put, |bytes, _| bar.reach(bytes))
        })?;
        db.close()
    }
}

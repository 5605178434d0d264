//! Implements the commands for a whole database: `verify`, `compact`, `checkpoint`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::failure::{Failure, Outcome};
use super::moving::KeyArgs;
use super::open::{Create, open_to_read};
use super::output::{Format, FormatArgs, counted, print, write_counters, write_problems};
use super::progress::Progress;
use super::writer::Writer;
use crate::json::Object;
use crate::json::exec::Response;

/// Read and check the whole database.
///
/// Checked are every checksum, the order of keys, and every reference.
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
    #[command(flatten)]
    format: FormatArgs,
}

/// Copy the current state of the database to a new directory.
///
/// The copy is a database that can be opened.
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

/// Merge the files of the database, or of a range of keys.
#[derive(Args)]
#[command(after_long_help = COMPACT_HELP)]
pub(super) struct Compact {
    /// The database
    db: PathBuf,
    /// Only this table
    table: Option<String>,
    #[command(flatten)]
    keys: KeyArgs,
}

const COMPACT_HELP: &str = "\
Merges run by themselves. This command merges at once, so that deleted and expired entities give
their space back, and reads have the fewest files to look at. It rewrites what it merges, and needs
as much free space meanwhile.

Examples:
  rowstone compact shop
  rowstone compact shop parts --partition bolts";

impl Compact {
    pub(super) fn run(self) -> Outcome {
        if self.table.is_none() && self.keys.is_given() {
            return Err(Failure::Usage("a range of keys is one of a table: name it".into()));
        }
        let db = Writer::open(&self.db, Create::Never)?;
        let size = |db: &Writer| {
            let stats = db.ask("stats", |_| ())?;
            Ok(["files", "file_bytes"].map(|name| stats.number(name).unwrap_or_default()))
        };
        let before: Outcome<[u64; 2]> = size(&db);
        Progress::during("bytes merged", None, |bar| {
            let put = |request: &mut Object<'_>| {
                self.table.iter().for_each(|table| request.text("table", table));
                self.keys.put(request);
            };
            db.ask_with("compact", put, |bytes, _| bar.reach(bytes))
        })?;
        let say = |[files, bytes]: [u64; 2]| {
            format!("{} of {}", counted(files, "file", "files"), counted(bytes, "byte", "bytes"))
        };
        let (before, after) = (say(before?), say(size(&db)?));
        let done = match &self.table {
            None => format!("{before} merged into {after}"),
            // The counters of files are those of the database: a file may belong to many tables.
            Some(table) => format!(
                "merged the files of {table}; all tables together: {before} before, {after} now"
            ),
        };
        print(|output| output.fold("", &done))?;
        db.close()
    }
}

impl Verify {
    pub(super) fn run(self) -> Outcome {
        let is_json = self.format.is_json()?;
        let db = open_to_read(&self.db)?;
        let report = Progress::during("bytes", db.stats().get("file_bytes"), |bar| {
            db.verify_with(|bytes| bar.advance(bytes))
        })?;
        print(|output| match is_json {
            true => output.data(&Response::verified(&report).into_line()),
            false => {
                write_counters(output, &report.checked, Format::Table)?;
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

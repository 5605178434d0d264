//! Commands about backups: `backup`, `backups`, `restore`.
//!
//! Not here: copies on the same disk (`maintain`), what a backup is (`db`).

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::failure::{Failure, Outcome};
use super::import::Progress;
use super::moving::{KeyArgs, tell};
use super::open::{Create, open};
use super::output::{Output, with_thousands};
use crate::db::{Backup as Backups, BackupReport, Generation, Pruned};
use crate::json::Object;
use crate::model::check_table_name;

/// Back the database up into a directory, which keeps what it was at several moments.
#[derive(Args)]
#[command(after_long_help = BACKUP_HELP)]
pub(super) struct Backup {
    /// The database
    db: PathBuf,
    /// The directory of its backups, made by the first
    dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const BACKUP_HELP: &str = "\
Each backup is one moment of all tables. Only table files that no backup in the directory has
yet are copied, after a check; what is damaged does not get in. An interrupted backup is none.
Put the directory on another disk: files are copied, never linked.

Examples:
  rowstone backup shop /mnt/backups/shop
  rowstone backups list /mnt/backups/shop
  rowstone backups prune /mnt/backups/shop --keep 14
  rowstone restore /mnt/backups/shop shop-again";

/// List, verify or prune the backups in a directory.
#[derive(Args)]
#[command(after_long_help = BACKUPS_HELP)]
pub(super) struct BackupsCommand {
    #[command(subcommand)]
    command: Verb,
}

const BACKUPS_HELP: &str = "\
verify reads every byte, and exits with status 1 if anything is damaged or missing. A damaged
file that the database still has comes back: remove it from DIR/files, and back up again.

Examples:
  rowstone backups list /mnt/backups/shop
  rowstone backups verify /mnt/backups/shop --json
  rowstone backups prune /mnt/backups/shop --keep 14";

#[derive(Subcommand)]
enum Verb {
    List(List),
    Verify(Verify),
    Prune(Prune),
}

/// List the backups, oldest first
#[derive(Args)]
struct List {
    /// The directory of backups
    dir: PathBuf,
    /// Print JSON, one object a backup
    #[arg(long)]
    json: bool,
}

/// Read everything and hold it against its checksums
#[derive(Args)]
struct Verify {
    /// The directory of backups
    dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Remove all backups but the newest, and the files that only they had
#[derive(Args)]
struct Prune {
    /// The directory of backups
    dir: PathBuf,
    /// How many stay
    #[arg(long, value_name = "COUNT")]
    keep: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Make a database of a backup, or take a table or a range of keys out of it.
#[derive(Args)]
#[command(after_long_help = RESTORE_HELP)]
pub(super) struct Restore {
    /// The directory of backups
    dir: PathBuf,
    /// The database: a new directory; with --table one that is there, too
    path: PathBuf,
    /// Which backup, by its number [default: the newest]
    #[arg(long, value_name = "NUMBER")]
    generation: Option<u64>,
    /// Only this table, or a range of it, into the database at PATH
    #[arg(long)]
    table: Option<String>,
    /// The name that the table gets there [default: its own]
    #[arg(long, value_name = "TABLE", requires = "table")]
    into: Option<String>,
    #[command(flatten)]
    keys: KeyArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const RESTORE_HELP: &str = "\
A whole database goes into a new directory, with ETags and Timestamps, and is another
incarnation: whoever followed the changes of the old one is told so. Every file is held
against its checksum.

A table or range goes into a database at once or not at all; there must be no entities
between the first and the last of what comes in. Restore it under a new name to look first,
or delete the range.

Examples:
  rowstone restore /mnt/backups/shop shop-again
  rowstone restore /mnt/backups/shop shop-monday --generation 12
  rowstone restore /mnt/backups/shop shop --table parts --into partsBefore
  rowstone restore /mnt/backups/shop shop --table parts --partition bolts";

impl Backup {
    pub(super) fn run(self) -> Outcome {
        let db = open(&self.db, Create::Never)?;
        let bar = Bar::new();
        let made = db.backup_with(&self.dir, |done, total| bar.reach(done, total));
        bar.end();
        let made = made?;
        let mut output = Output::standard();
        let written = match self.json {
            true => output.write_all(&json_generation(&made)),
            false => writeln!(
                output,
                "backup {}: {} files of {} bytes, {} of them new, {} bytes copied",
                made.number,
                with_thousands(made.files),
                with_thousands(made.bytes),
                with_thousands(made.new_files),
                with_thousands(made.new_bytes)
            ),
        };
        written.map_err(Failure::output)?;
        output.finish()?;
        Ok(db.close()?)
    }
}

impl BackupsCommand {
    pub(super) fn run(self) -> Outcome {
        match self.command {
            Verb::List(List { dir, json }) => list(&dir, json),
            Verb::Verify(Verify { dir, json }) => verify(&dir, json),
            Verb::Prune(Prune { dir, keep, json }) => prune(&dir, keep, json),
        }
    }
}

fn backups(dir: &Path) -> Outcome<Backups> {
    Backups::open(dir).map_err(Failure::Open)
}

fn list(dir: &Path, json: bool) -> Outcome {
    let generations = backups(dir)?.generations()?;
    let mut output = Output::standard();
    write_list(&mut output, &generations, json).map_err(Failure::output)?;
    output.finish()
}

fn write_list(output: &mut Output, generations: &[Generation], json: bool) -> std::io::Result<()> {
    if json {
        return generations.iter().try_for_each(|made| output.write_all(&json_generation(made)));
    }
    let [number, taken, files, bytes, new] = ["Number", "Taken", "Files", "Bytes", "New bytes"];
    writeln!(output, "{number:>6}  {taken:28}  {files:>8}  {bytes:>18}  {new:>18}")?;
    generations.iter().try_for_each(|made| match &made.problem {
        Some(problem) => writeln!(output, "{:>6}  damaged: {problem}", made.number),
        None => writeln!(
            output,
            "{:>6}  {:28}  {:>8}  {:>18}  {:>18}",
            made.number,
            made.taken.to_string(),
            with_thousands(made.files),
            with_thousands(made.bytes),
            with_thousands(made.new_bytes)
        ),
    })
}

fn verify(dir: &Path, json: bool) -> Outcome {
    let backups = backups(dir)?;
    let bar = Bar::new();
    let report = backups.verify_with(|done, total| bar.reach(done, total));
    bar.end();
    let report = report?;
    let mut output = Output::standard();
    write_report(&mut output, &report, json).map_err(Failure::output)?;
    output.finish()?;
    if report.problems.is_empty() { Ok(()) } else { Err(Failure::Problems) }
}

fn write_report(output: &mut Output, report: &BackupReport, json: bool) -> std::io::Result<()> {
    let BackupReport { generations, files, bytes, problems } = report;
    if json {
        let mut line = Vec::new();
        let mut object = Object::begin(&mut line);
        object.raw("generations", generations);
        object.raw("files", files);
        object.raw("bytes", bytes);
        object.texts("problems", problems.iter());
        object.end();
        line.push(b'\n');
        return output.write_all(&line);
    }
    let [generations, files, bytes] = [*generations, *files, *bytes].map(with_thousands);
    writeln!(output, "{generations} backups of {files} files, {bytes} bytes read")?;
    problems.iter().try_for_each(|problem| writeln!(output, "problem: {problem}"))?;
    match problems.len() {
        0 => writeln!(output, "no problems"),
        1 => writeln!(output, "1 problem"),
        count => writeln!(output, "{count} problems"),
    }
}

fn prune(dir: &Path, keep: usize, json: bool) -> Outcome {
    let Pruned { generations, files, bytes, .. } = backups(dir)?.prune(keep)?;
    let mut output = Output::standard();
    let written = if json {
        let mut line = Vec::new();
        let mut object = Object::begin(&mut line);
        object.raw("generations", generations);
        object.raw("files", files);
        object.raw("bytes", bytes);
        object.end();
        line.push(b'\n');
        output.write_all(&line)
    } else {
        let [generations, files, bytes] = [generations, files, bytes].map(with_thousands);
        writeln!(output, "removed {generations} backups, {files} files of {bytes} bytes")
    };
    written.map_err(Failure::output)?;
    output.finish()
}

impl Restore {
    pub(super) fn run(self) -> Outcome {
        let backups = backups(&self.dir)?;
        match &self.table {
            Some(table) => self.restore_table(&backups, table),
            None if self.keys.is_given() => Err(Failure::Usage(
                "a range of keys is one of a table: name it with --table".into(),
            )),
            None => self.restore_all(&backups),
        }
    }

    fn restore_all(&self, backups: &Backups) -> Outcome {
        let bar = Bar::new();
        let made =
            backups.restore_with(self.generation, &self.path, |done, total| bar.reach(done, total));
        bar.end();
        let made = made?;
        let mut output = Output::standard();
        let written = match self.json {
            true => output.write_all(&json_generation(&made)),
            false => writeln!(
                output,
                "restored backup {} of {}: {} files of {} bytes",
                made.number,
                made.taken,
                with_thousands(made.files),
                with_thousands(made.bytes)
            ),
        };
        written.map_err(Failure::output)?;
        output.finish()
    }

    fn restore_table(&self, backups: &Backups, table: &str) -> Outcome {
        // Before a database is created for nothing.
        drop(backups.open_database(self.generation)?.table(table)?);
        let into = self.into.as_deref().unwrap_or(table);
        check_table_name(into)?;
        let db = open(&self.path, Create::IfMissing)?;
        let progress = Progress::new(None);
        let range = self.keys.range();
        let moved = backups.restore_into_with(self.generation, table, range, (&db, into), |rows| {
            progress.reach(rows);
        });
        progress.end();
        let moved = moved?;
        if self.json {
            let mut line = Vec::new();
            let mut object = Object::begin(&mut line);
            object.raw("entities", moved.entities);
            object.raw("files", moved.files);
            object.raw("bytes", moved.bytes);
            object.end();
            line.push(b'\n');
            let mut output = Output::standard();
            output.write_all(&line).map_err(Failure::output)?;
            output.finish()?;
        } else {
            tell("restored", &moved)?;
        }
        Ok(db.close()?)
    }
}

fn json_generation(made: &Generation) -> Vec<u8> {
    let mut line = Vec::new();
    let mut object = Object::begin(&mut line);
    object.raw("generation", made.number);
    match &made.problem {
        Some(problem) => object.text("problem", problem),
        None => {
            object.text("taken", &made.taken.to_string());
            object.raw("seq", made.seq.ticks());
            object.raw("files", made.files);
            object.raw("bytes", made.bytes);
            object.raw("new_files", made.new_files);
            object.raw("new_bytes", made.new_bytes);
        }
    }
    object.end();
    line.push(b'\n');
    line
}

/// A bar in bytes, whose length is known with the first of them.
struct Bar(std::cell::OnceCell<Progress>);

impl Bar {
    fn new() -> Self {
        Self(std::cell::OnceCell::new())
    }

    fn reach(&self, done: u64, total: u64) {
        self.0.get_or_init(|| Progress::of("bytes", Some(total))).reach(done);
    }

    fn end(&self) {
        if let Some(progress) = self.0.get() {
            progress.end();
        }
    }
}

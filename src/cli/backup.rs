//! Implements the commands for backups: `backup`, `backups`, `restore`.
//!
//! Not here: copies on the same disk (`maintain`), the format of backups (`db`).

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::failure::{Failure, Outcome};
use super::moving::{KeyArgs, tell};
use super::open::{Create, require_own_place};
use super::output::{
    Format, FormatArgs, Output, TableArgs, counted, print, with_thousands, write_cells,
    write_problems,
};
use super::progress::Progress;
use super::writer::Writer;
use crate::db::{Backup as Backups, BackupReport, Generation, Pruned};
use crate::json::{self, Object};
use crate::model::check_table_name;

/// Back the database up into a directory of several backups.
#[derive(Args)]
#[command(after_long_help = BACKUP_HELP)]
pub(super) struct Backup {
    /// The database
    db: PathBuf,
    /// The directory of its backups; the first backup creates it
    dir: PathBuf,
    #[command(flatten)]
    format: FormatArgs,
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
verify reads every byte, compares the backups with the facts in their files, and exits with status 1
if anything is damaged or missing. To replace a damaged file that the database still has, remove it
from DIR/files and back up again.

Examples:
  rowstone backups list /mnt/backups/shop
  rowstone backups verify /mnt/backups/shop --format json
  rowstone backups prune /mnt/backups/shop --keep 14";

#[derive(Subcommand)]
enum Verb {
    /// List the backups, oldest first
    List {
        /// The directory of backups
        dir: PathBuf,
        #[command(flatten)]
        format: TableArgs,
    },
    /// Read every backup completely and verify its checksums
    Verify {
        /// The directory of backups
        dir: PathBuf,
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Remove all but the newest backups, and the files that no other backup uses
    Prune {
        /// The directory of backups
        dir: PathBuf,
        /// The number of backups to keep
        #[arg(long, value_name = "COUNT")]
        keep: usize,
        #[command(flatten)]
        format: FormatArgs,
    },
}

/// Create a database from a backup, or restore a table or range.
#[derive(Args)]
#[command(after_long_help = RESTORE_HELP)]
pub(super) struct Restore {
    /// The directory of backups
    dir: PathBuf,
    /// The database: a new directory; with --table it may also be an existing database
    path: PathBuf,
    /// The number of the backup [default: the newest]
    #[arg(long, value_name = "NUMBER")]
    generation: Option<u64>,
    /// Restore only this table, or a range of it, into the database at PATH
    #[arg(long)]
    table: Option<String>,
    /// The name of the table in the database at PATH [default: the same]
    #[arg(long, value_name = "TABLE", requires = "table")]
    into: Option<String>,
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    format: FormatArgs,
}

const RESTORE_HELP: &str = "\
A whole database is restored into a new directory, with its ETags and Timestamps. It is a new
incarnation: consumers of the changes of the old one get an error. Every file is verified by its
checksum.

A table or range is restored atomically. The database must have no entities between the first
and the last restored entity: delete them first, or restore under a new name.

Examples:
  rowstone restore /mnt/backups/shop shop-again
  rowstone restore /mnt/backups/shop shop-monday --generation 12
  rowstone restore /mnt/backups/shop shop --table parts --into partsBefore
  rowstone restore /mnt/backups/shop shop --table parts --partition bolts";

impl Backup {
    pub(super) fn run(self) -> Outcome {
        let db = Writer::open(&self.db, Create::Never)?;
        let path = db.path(&self.dir)?;
        let made = Progress::during("bytes", Some(0), |bar| {
            let put = |request: &mut Object<'_>| request.text("path", &path);
            db.ask_with("backup", put, |done, total| bar.reach_of(done, total))
        })?;
        let number = |name: &str| made.number(name).unwrap_or_default();
        let counts = ["files", "bytes", "new_files", "new_bytes"];
        let record = json::object(|object| {
            object.raw("generation", number("generation"));
            object.text("taken", &made.text("taken").unwrap_or_default());
            object.raw("seq", number("seq"));
            counts.into_iter().for_each(|name| object.raw(name, number(name)));
        });
        print(|output| {
            if self.format.get() != Format::Table {
                return output.records(&[record], self.format.get());
            }
            let [bytes, new_bytes] = ["bytes", "new_bytes"].map(|name| bytes_text(number(name)));
            let files = counted(number("files"), "file", "files");
            let (number, new_files) = (number("generation"), with_thousands(number("new_files")));
            let done = format!(
                "backup {number}: {files} of {bytes}, {new_files} of them new, {new_bytes} copied"
            );
            Ok(output.fold("", &done)?)
        })?;
        db.close()
    }
}

impl BackupsCommand {
    pub(super) fn run(self) -> Outcome {
        match self.command {
            Verb::List { dir, format } => {
                let generations = backups(&dir)?.generations()?;
                format.print(|output| write_list(output, &generations, format.get()))
            }
            Verb::Verify { dir, format } => {
                let backups = backups(&dir)?;
                let report = Progress::during("bytes", Some(0), |bar| {
                    backups.verify_with(|done, total| bar.reach_of(done, total))
                })?;
                print(|output| write_report(output, &report, format.get()))?;
                if report.problems.is_empty() { Ok(()) } else { Err(Failure::Problems) }
            }
            Verb::Prune { dir, keep, format } => {
                let pruned = backups(&dir)?.prune(keep)?;
                print(|output| write_pruned(output, &pruned, format.get()))
            }
        }
    }
}

fn backups(dir: &Path) -> Outcome<Backups> {
    Backups::open(dir).map_err(Failure::Open)
}

fn write_list(output: &mut Output, generations: &[Generation], format: Format) -> Outcome {
    if format != Format::Table {
        let record = |made: &Generation| json::object(|object| put_generation(object, made));
        let records: Vec<_> = generations.iter().map(record).collect();
        return match format {
            Format::Json => Ok(output.items(&records, format)?),
            format => output.records(&records, format),
        };
    }
    let row = |made: &Generation| {
        let [taken, files, bytes, new] = match &made.problem {
            Some(_) => ["damaged".to_owned(), String::new(), String::new(), String::new()],
            None => {
                let [files, bytes, new] =
                    [made.files, made.bytes, made.new_bytes].map(with_thousands);
                [made.taken.to_string(), files, bytes, new]
            }
        };
        vec![made.number.to_string(), taken, files, bytes, new]
    };
    let columns = ["Number", "Taken", "Files", "Bytes", "New bytes"];
    let right = columns.map(|name| name != "Taken").to_vec();
    write_cells(output, &columns, generations.iter().map(row).collect(), right, format)?;
    let problems =
        generations.iter().filter_map(|made| Some((made.number, made.problem.as_ref()?)));
    Ok(problems.into_iter().try_for_each(|(number, problem)| {
        output.fold("", &format!("backup {number} is damaged: {problem}"))
    })?)
}

fn write_report(output: &mut Output, report: &BackupReport, format: Format) -> Outcome {
    let BackupReport { generations, files, bytes, problems } = report;
    if format != Format::Table {
        let record = json::object(|object| {
            object.raw("generations", generations);
            object.raw("files", files);
            object.raw("bytes", bytes);
            object.texts("problems", problems.iter());
        });
        return output.records(&[record], format);
    }
    let backups = counted(*generations, "backup", "backups");
    let (files, bytes) = (counted(*files, "file", "files"), bytes_text(*bytes));
    writeln!(output, "{backups} of {files}, {bytes} read")?;
    Ok(write_problems(output, problems)?)
}

fn write_pruned(output: &mut Output, pruned: &Pruned, format: Format) -> Outcome {
    let Pruned { generations, files, bytes, .. } = *pruned;
    if format != Format::Table {
        let record = json::object(|object| {
            object.raw("generations", generations);
            object.raw("files", files);
            object.raw("bytes", bytes);
        });
        return output.records(&[record], format);
    }
    let backups = counted(generations, "backup", "backups");
    let (files, bytes) = (counted(files, "file", "files"), bytes_text(bytes));
    Ok(writeln!(output, "removed {backups}, {files} of {bytes}")?)
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
        require_own_place(&self.path)?;
        let made = Progress::during("bytes", Some(0), |bar| {
            backups.restore_with(self.generation, &self.path, |done, of| bar.reach_of(done, of))
        })?;
        print(|output| match self.format.get() {
            Format::Table => {
                let (files, bytes) = (counted(made.files, "file", "files"), bytes_text(made.bytes));
                let (number, taken) = (made.number, &made.taken);
                let done = format!("restored backup {number} of {taken}: {files} of {bytes}");
                Ok(output.fold("", &done)?)
            }
            format => {
                output.records(&[json::object(|object| put_generation(object, &made))], format)
            }
        })
    }

    fn restore_table(&self, backups: &Backups, table: &str) -> Outcome {
        // Checked first: a missing table must not leave a new, empty database behind.
        drop(backups.open_database(self.generation)?.table(table)?);
        let into = self.into.as_deref().unwrap_or(table);
        check_table_name(into)?;
        let db = Writer::open(&self.path, Create::IfMissing)?;
        let path = db.path(&self.dir)?;
        let put = |request: &mut Object<'_>| {
            request.text("path", &path);
            self.generation.iter().for_each(|number| request.raw("generation", number));
            request.text("table", table);
            request.text("into", into);
            self.keys.put(request);
        };
        let restored = Progress::during("rows", None, |bar| {
            db.ask_with("restore", put, |rows, _| bar.reach(rows))
        })?;
        match self.format.get() {
            Format::Table => tell("restored", &restored.moved())?,
            format => print(|output| output.records(&[restored.without_ok().to_owned()], format))?,
        }
        db.close()
    }
}

fn bytes_text(bytes: u64) -> String {
    counted(bytes, "byte", "bytes")
}

fn put_generation(object: &mut Object<'_>, made: &Generation) {
    object.raw("generation", made.number);
    if let Some(problem) = &made.problem {
        let unknown = ["taken", "seq", "files", "bytes", "new_files", "new_bytes"];
        unknown.into_iter().for_each(|member| object.raw(member, "null"));
        return object.text("problem", problem);
    }
    object.text("taken", &made.taken.to_string());
    object.raw("seq", made.seq.ticks());
    object.raw("files", made.files);
    object.raw("bytes", made.bytes);
    object.raw("new_files", made.new_files);
    object.raw("new_bytes", made.new_bytes);
    object.raw("problem", "null");
}

//! Implements the commands for a damaged database: `heal`, `repair`, `salvage`.
//!
//! Not here: finding damage (`maintain`).

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::failure::{Failure, Outcome, eprint_line};
use super::files::Overwrite;
use super::open::{Trimmed, keeping};
use super::output::{Format, FormatArgs, Output, counted, print, with_thousands, write_cells};
use super::progress::Progress;
use super::writer::Writer;
use crate::db::{Db, HealReport, LostRange, RepairReport, RepairedTable, Salvaged, SuspectRows};
use crate::error::{Error, ErrorKind};
use crate::json::odata::{Metadata, entity_text};
use crate::json::report::put_healed;
use crate::json::{self, Object};
use crate::options::Durability;

/// Replace damaged table files by intact copies from a backup.
#[derive(Args)]
#[command(
    after_long_help = "Reads every table file. For each that is damaged or missing it looks in the directory \
    BACKUP, and in `files` below it, for a file with the same unique id, whatever its name, checks all of that, and puts \
    a copy in its place. Nothing else changes: rows written since the backup are in other files and in the log, and stay. \
    The backup is only read.\n\n\
    Without `--file` it also reads the manifest and the logs. Damage in them is printed as a problem and stays. If the \
    problem is in a log that is kept for the change feed, no table is affected, and the log is removed later.\n\n\
    Exits with status 1 if damage is left: then `rowstone repair` saves what can be proven.\n\n\
    Examples:\n  rowstone verify shop\n  rowstone heal shop --from shop-monday\n  \
    rowstone heal shop --from shop-monday --file 000012.sst"
)]
pub(super) struct Heal {
    /// The database
    db: PathBuf,
    /// A checkpoint, a backup, or any directory that contains table files
    #[arg(long, value_name = "BACKUP")]
    from: PathBuf,
    /// Only this file
    #[arg(long)]
    file: Option<String>,
    #[command(flatten)]
    format: FormatArgs,
}

impl Heal {
    pub(super) fn run(self) -> Outcome {
        let is_json = self.format.is_json()?;
        let healed = Progress::during("bytes", None, |bar| {
            let (file, advance) = (self.file.as_deref(), |bytes| bar.advance(bytes));
            keeping(Db::options()).heal(&self.db, file, &self.from, advance)
        });
        let report = match healed {
            // `Writer::open` is not used, because it also reads the catalog, which may be damaged.
            Err(error) if error.kind() == ErrorKind::Locked => self.ask(error)?,
            healed => healed.map_err(Failure::Open)?,
        };
        print(|output| write_healed(output, &report, is_json))?;
        if report.is_healed() { Ok(()) } else { Err(Failure::Problems) }
    }
}

impl Heal {
    /// Sends the request to the process that has the database open. `locked` is the error that
    /// opening the database returned.
    fn ask(&self, locked: Error) -> Outcome<HealReport> {
        let db = Writer::connect(&self.db, locked, Durability::Sync)?;
        let path = db.path(&self.from)?;
        let put = |request: &mut Object<'_>| {
            request.text("path", &path);
            self.file.iter().for_each(|file| request.text("file", file));
        };
        let answer = Progress::during("bytes", None, |bar| {
            db.ask_with("heal", put, |bytes, _| bar.reach(bytes))
        });
        match answer {
            Err(Failure::Operation(error)) => Err(Failure::Open(error)),
            answer => Ok(answer?.healed()?),
        }
    }
}

fn write_healed(output: &mut Output, report: &HealReport, is_json: bool) -> io::Result<()> {
    if is_json {
        return output.object(|object| {
            object.raw("ok", report.is_healed());
            put_healed(object, report);
        });
    }
    for file in &report.files {
        let damaged = &file.damaged;
        writeln!(output, "{}: {}", damaged.file, damaged.problem)?;
        match (&file.healed, &file.why) {
            (Some((from, now)), _) => writeln!(output, "  healed from {from}, now {now}")?,
            (None, Some(why)) => {
                let entries = counted(damaged.entries, "entry", "entries");
                writeln!(output, "  not healed, {entries}: {why}")?;
            }
            (None, None) => {}
        }
    }
    report.problems.iter().try_for_each(|problem| output.fold("problem: ", problem))?;
    let healed = report.files.iter().filter(|file| file.healed.is_some()).count();
    let (checked, damaged) = (counted(report.checked, "file", "files"), report.files.len());
    writeln!(output, "{checked} checked, {damaged} damaged, {healed} healed")
}

/// Build a new database from the sound rows of a damaged one.
///
/// The new database has the rows that are provably current.
#[derive(Args)]
#[command(
    after_long_help = "SOURCE is only read, and must not be open; TARGET must be missing or empty. Entities keep their \
    Timestamps and ETags. The report says what is lost: which file, which keys, how many entries.\n\n\
    A row is suspect if something newer of the same key may be among what is lost: it might be an old state, or deleted \
    since. Suspect rows are left out, and counted, unless `--keep-suspect` is given. If the manifest is damaged, nothing \
    says which files there were, and all rows are suspect.\n\n\
    If a log is damaged, the new database has the state of the moment before the first commit that is lost.\n\n\
    If there is a backup, try `rowstone heal` first: it loses nothing. For a look at each row, with all versions: \
    `rowstone salvage`.\n\n\
    Exits with status 1 if anything is lost or left out.\n\n\
    Examples:\n  rowstone repair shop shop-repaired\n  rowstone repair shop shop-repaired --keep-suspect --format json"
)]
pub(super) struct Repair {
    /// The damaged database
    source: PathBuf,
    /// The directory of the new database
    target: PathBuf,
    /// Include suspect rows too: the newest remaining version of each
    #[arg(long)]
    keep_suspect: bool,
    #[command(flatten)]
    format: FormatArgs,
}

/// Write every readable entity of a damaged database as NDJSON.
#[derive(Args)]
#[command(
    after_long_help = "One line for each version: its table, keys, Seq (the Timestamp in ticks), the file it was found \
    in, and what it is worth:\n  \
    live        the row of its key, proven\n  \
    suspect     the newest version that is left; something newer may be lost\n  \
    superseded  there is a newer one\n  \
    deleted     a deletion\n  \
    dropped     a drop of its table or of a span of keys took it\n  \
    unreadable  key and Seq are known, the row cannot be read\n\n\
    `entity` is as `export` writes it. Files that no manifest names, and logs after damage, are \
    read too. SOURCE is only read, and must not be open. Unreadable parts are reported on \
    standard error, with status 1.\n\n\
    Examples:\n  rowstone salvage shop --out shop.ndjson\n  \
    rowstone salvage shop --only live,suspect \\\n      | jq -c 'select(.table==\"parts\").entity' \\\n      \
    | rowstone import new parts -"
)]
pub(super) struct Salvage {
    /// The damaged database
    source: PathBuf,
    /// The file to write; standard output by default
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Only versions in these states
    #[arg(long, value_delimiter = ',', value_name = "STATE")]
    #[arg(value_parser = Trimmed(NonEmptyStringValueParser::new()))]
    only: Vec<String>,
}

impl Repair {
    pub(super) fn run(self) -> Outcome {
        let is_json = self.format.is_json()?;
        let suspect = match self.keep_suspect {
            true => SuspectRows::Keep,
            false => SuspectRows::LeaveOut,
        };
        let repaired = Progress::during("bytes", None, |bar| {
            let advance = |bytes, whole| bar.advance_of(bytes, whole);
            Db::options().repair(&self.source, &self.target, suspect, advance)
        });
        let report = repaired.map_err(Failure::Open)?;
        print(|output| match is_json {
            true => output.object(|object| put_repaired(object, &report)),
            false => write_repaired(output, &report, suspect),
        })?;
        if report.is_whole() { Ok(()) } else { Err(Failure::Problems) }
    }
}

fn put_repaired(object: &mut Object<'_>, report: &RepairReport) {
    object.raw("ok", report.is_whole());
    if let Some(doubt) = &report.doubt {
        object.text("doubt", doubt);
    }
    object.texts("notes", report.notes.iter());
    if let Some(as_of) = report.as_of {
        object.text("as_of", &as_of.to_string());
    }
    object.text("as_of_seq", &report.as_of_seq.to_string());
    object.raw("rows", report.rows());
    object.raw("suspect", report.suspect());
    object.objects("tables", &report.tables, |object, table| {
        object.text("name", &table.name);
        object.raw("name_lost", table.is_name_lost);
        object.raw("rows", table.rows);
        object.raw("suspect", table.suspect);
        object.raw("unreadable", table.unreadable);
    });
    object.objects("losses", &report.losses, |object, loss| {
        object.text("file", &loss.file);
        object.text("problem", &loss.problem);
        if let Some(entries) = loss.entries {
            object.raw("entries_at_most", entries);
        }
        object.objects("ranges", &loss.ranges, put_range);
    });
}

fn put_range(object: &mut Object<'_>, range: &LostRange) {
    let [first, last] = [&range.first, &range.last].map(|(pk, rk)| [pk.clone(), rk.clone()]);
    object.text("table", &range.table);
    object.texts("first", first.iter());
    object.text("last_table", &range.last_table);
    object.texts("last", last.iter());
}

fn write_repaired(
    output: &mut Output,
    report: &RepairReport,
    suspect: SuspectRows,
) -> io::Result<()> {
    if let Some(doubt) = &report.doubt {
        writeln!(output, "the manifest does not prove which files count: {doubt}")?;
    }
    report.notes.iter().try_for_each(|note| writeln!(output, "note: {note}"))?;
    for loss in &report.losses {
        writeln!(output, "lost: {}: {}", loss.file, loss.problem)?;
        for range in &loss.ranges {
            let ((pk, rk), (last_pk, last_rk)) = (&range.first, &range.last);
            let (table, last_table) = (&range.table, &range.last_table);
            let until = if table == last_table { String::new() } else { format!("{last_table}: ") };
            writeln!(output, "  {table}: ('{pk}', '{rk}') to {until}('{last_pk}', '{last_rk}')")?;
        }
        if let Some(entries) = loss.entries {
            let what = if loss.ranges.is_empty() {
                "commits can be read behind it"
            } else {
                "entries at most"
            };
            writeln!(output, "  {} {what}", with_thousands(entries))?;
        }
    }
    let row = |table: &RepairedTable| {
        let [rows, suspect, unreadable] =
            [table.rows, table.suspect, table.unreadable].map(with_thousands);
        let lost = if table.is_name_lost { "its name is lost" } else { "" };
        vec![table.name.clone(), rows, suspect, unreadable, lost.to_owned()]
    };
    let columns = ["table", "rows", "suspect", "unreadable", ""];
    let right = vec![false, true, true, true, false];
    let rows = report.tables.iter().map(row).collect();
    write_cells(output, &columns, rows, right, Format::Table)?;
    if let Some(as_of) = report.as_of {
        writeln!(output, "the state is that of {as_of}")?;
    }
    match (report.is_whole(), report.suspect(), suspect) {
        (true, ..) => writeln!(output, "nothing is lost"),
        (false, 1.., SuspectRows::LeaveOut) => {
            writeln!(output, "suspect rows were left out: `--keep-suspect` takes them")
        }
        _ => Ok(()),
    }
}

impl Salvage {
    pub(super) fn run(self) -> Outcome {
        const STATES: [&str; 6] =
            ["live", "suspect", "superseded", "deleted", "dropped", "unreadable"];
        if let Some(other) = self.only.iter().find(|state| !STATES.contains(&state.as_str())) {
            let states = STATES.join(", ");
            return Err(Failure::Usage(format!("{other} is no state: {states}")));
        }
        self.out.as_deref().map(|out| self.overwrite.check(out)).transpose()?;
        // The output is opened when the first entity is found. So if the source cannot be opened,
        // `--force` does not replace the output file of an earlier run.
        let mut output = None;
        let mut written = Ok(());
        let found = |found: Salvaged| {
            let is_meant = |state: &String| state == found.state.as_str();
            if self.only.is_empty() || self.only.iter().any(is_meant) {
                let line = json::object(|object| put_salvaged(object, &found));
                written = self.output(&mut output).and_then(|out| Ok(writeln!(out, "{line}")?));
            }
            // This error only stops the salvage. The actual error is in `written`, and is reported
            // below.
            let stop = |_| Error::io("write the output", io::ErrorKind::Other.into());
            written.as_ref().copied().map_err(stop)
        };
        let salvaged = Progress::during("bytes", None, |bar| {
            let advance = |bytes, whole| bar.advance_of(bytes, whole);
            Db::options().salvage(&self.source, found, advance)
        });
        written?;
        let report = salvaged.map_err(Failure::Open)?;
        self.output(&mut output)?;
        output.map_or(Ok(()), Output::finish)?;
        for (state, count) in &report.found {
            eprint_line(&format!("{state}: {}", with_thousands(*count)));
        }
        let doubt = report.doubt.iter().map(|doubt| format!("the manifest: {doubt}"));
        let problems: Vec<String> = doubt.chain(report.problems).collect();
        problems.iter().for_each(|problem| eprint_line(&format!("problem: {problem}")));
        if problems.is_empty() { Ok(()) } else { Err(Failure::Problems) }
    }

    /// Returns the output, and opens it on first use.
    fn output<'o>(&self, output: &'o mut Option<Output>) -> Outcome<&'o mut Output> {
        Ok(match output {
            Some(output) => output,
            none => none.insert(Output::to_file(self.out.as_deref(), self.overwrite)?),
        })
    }
}

fn put_salvaged(object: &mut Object<'_>, found: &Salvaged) {
    object.text("table", &found.table);
    object.text("state", found.state.as_str());
    object.text("seq", &found.seq.to_string());
    object.text("file", &found.file);
    match &found.entity {
        Some(entity) => object.raw("entity", entity_text(entity, Metadata::TYPES)),
        None => {
            object.text("PartitionKey", &found.partition_key);
            object.text("RowKey", &found.row_key);
        }
    }
}

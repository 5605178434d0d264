//! Commands for a damaged database: `heal`.
//!
//! Not here: finding damage (`maintain`).

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;

use super::failure::{Failure, Outcome};
use super::import::Progress;
use super::output::{Format, Output, with_thousands};
use crate::db::{Db, FileOutcome, HealReport};
use crate::wire::json::Object;

/// Replace damaged table files by sound copies from a backup.
#[derive(Args)]
#[command(
    after_long_help = "Reads every table file. For each that is damaged or missing it looks in the directory \
    BACKUP, and in `files` below it, for a file with the same unique id, whatever its name, checks all of that, and puts \
    a copy in its place. Nothing else changes: rows written since the backup are in other files and in the log, and stay. \
    The backup is only read.\n\n\
    Exits with status 1 if damage is left: then `rowstone repair` saves what can be proven.\n\n\
    Examples:\n  rowstone verify shop\n  rowstone heal shop --from shop-monday\n  \
    rowstone heal shop --from shop-monday --file 000012.sst"
)]
pub(super) struct Heal {
    /// The database
    db: PathBuf,
    /// A checkpoint, a backup, or any directory that holds table files
    #[arg(long, value_name = "BACKUP")]
    from: PathBuf,
    /// Only this file
    #[arg(long)]
    file: Option<String>,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

impl Heal {
    pub(super) fn run(self) -> Outcome {
        let progress = Progress::of("bytes", None);
        let healed = Db::options().heal(&self.db, self.file.as_deref(), &self.from, |bytes| {
            progress.advance(bytes);
        });
        progress.end();
        let report = healed.map_err(Failure::Open)?;
        let mut output = Output::standard();
        write_healed(&mut output, &report, self.format).map_err(Failure::output)?;
        output.finish()?;
        if report.is_healed() { Ok(()) } else { Err(Failure::Problems) }
    }
}

fn write_healed(output: &mut Output, report: &HealReport, format: Format) -> io::Result<()> {
    if matches!(format, Format::Json | Format::Ndjson) {
        let mut line = Vec::new();
        let mut object = Object::begin(&mut line);
        object.raw("ok", report.is_healed());
        object.raw("checked", report.checked);
        object.objects("files", &report.files, put_outcome);
        object.end();
        line.push(b'\n');
        return output.write_all(&line);
    }
    for file in &report.files {
        let damaged = &file.damaged;
        writeln!(output, "{}: {}", damaged.file, damaged.problem)?;
        match (&file.healed, &file.why) {
            (Some((from, now)), _) => writeln!(output, "  healed from {from}, now {now}")?,
            (None, Some(why)) => {
                let entries = with_thousands(damaged.entries);
                writeln!(output, "  not healed, {entries} entries: {why}")?;
            }
            (None, None) => {}
        }
    }
    let healed = report.files.iter().filter(|file| file.healed.is_some()).count();
    let (checked, damaged) = (with_thousands(report.checked), report.files.len());
    writeln!(output, "{checked} files checked, {damaged} damaged, {healed} healed")
}

fn put_outcome(object: &mut Object<'_>, outcome: &FileOutcome) {
    let damaged = &outcome.damaged;
    object.text("file", &damaged.file);
    object.text("keys", &damaged.keys);
    object.raw("entries", damaged.entries);
    object.raw("bytes", damaged.bytes);
    object.text("problem", &damaged.problem);
    if let Some((from, now)) = &outcome.healed {
        object.text("from", from);
        object.text("now", now);
    }
    if let Some(why) = &outcome.why {
        object.text("why", why);
    }
}

//! Opens the databases of commands, and defines the options that several commands share.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Args, Command};

use super::failure::{Failure, Outcome, eprint_line};
use crate::db::Db;
use crate::error::Result;
use crate::format::names::FileName;
use crate::fs::{DiskFs, Fs};
use crate::lsm::require_outside;
use crate::options::{Durability, OnFull, Options};
use crate::query::Filter;
use crate::table::Table;

/// Whether a command may create the database that it is given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Create {
    IfMissing,
    Never,
}

/// The option `--filter`.
#[derive(Args)]
pub(super) struct FilterArgs {
    /// Only entities that match this filter; all of them by default
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    filter: String,
}

impl FilterArgs {
    pub(super) fn text(&self) -> &str {
        &self.filter
    }

    /// Parses the filter; an error includes its position.
    pub(super) fn read(&self) -> Outcome<Filter> {
        let text = &self.filter;
        let failed = |(error, at)| Failure::Filter { error, text: text.clone(), at };
        Filter::parse_placed(text).map_err(failed)
    }
}

/// Parses an item of a list that is separated by commas. Ignores spaces around it.
#[derive(Clone)]
pub(in crate::cli) struct Trimmed<P>(pub(in crate::cli) P);

impl<P: TypedValueParser> TypedValueParser for Trimmed<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, clap::Error> {
        let value = value.to_str().map_or(value, |text| text.trim().as_ref());
        self.0.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.0.possible_values()
    }
}

/// Options of the commands that keep a database open to answer requests: `exec` and `serve`.
#[derive(Args)]
pub(in crate::cli) struct OpenArgs {
    /// The failure that acknowledged writes survive
    #[arg(long, value_enum, default_value_t = Durability::Sync)]
    durability: Durability,
    /// Open even if a log or the manifest is shorter than its durable length; the data that was cut
    /// off is lost. For file systems that lose the lengths of files in crashes, and for damaged
    /// files
    #[arg(long)]
    accept_short_logs: bool,
    /// Record the latest queries that took at least this long: `exec` returns them for the
    /// operation slow_queries, `serve` logs them and shows them on the web page at /stats
    #[arg(long, value_name = "MILLISECONDS")]
    slow_query: Option<u64>,
    /// Keep this many bytes of logs for `rowstone changes`, beyond those needed to open
    #[arg(long, value_name = "BYTES")]
    keep_changes: Option<u64>,
    /// Refuse writes before the database's files exceed this many bytes
    #[arg(long, value_name = "BYTES")]
    max_disk: Option<u64>,
    /// Near --max-disk drop the oldest rows of this table, as whole files, instead of refusing
    /// writes; may be repeated, and the tables may be created later
    #[arg(long, value_name = "TABLE", requires = "max_disk")]
    drop_oldest: Vec<String>,
}

impl OpenArgs {
    /// Opens the database at `path`, created if it is missing.
    pub(in crate::cli) fn open(&self, options: Options, path: &Path) -> Outcome<Db> {
        let on_full = match &*self.drop_oldest {
            [] => OnFull::Refuse,
            tables => OnFull::DropOldest(tables.to_vec()),
        };
        let slow = self.slow_query.map(Duration::from_millis);
        let options = options.control(true).accept_short_logs(self.accept_short_logs);
        let options = set(options, slow, Options::slow_query);
        let options = set(options, self.keep_changes, Options::keep_changes);
        let options =
            set(options, self.max_disk, |options, bytes| options.max_disk(bytes).on_full(on_full));
        open_with(options, path, Create::IfMissing, self.durability)
    }
}

/// Sets an option if a value was given.
pub(super) fn set<T>(
    options: Options,
    given: Option<T>,
    set: impl FnOnce(Options, T) -> Options,
) -> Options {
    match given {
        Some(value) => set(options, value),
        None => options,
    }
}

pub(super) fn open(path: &Path, create: Create) -> Outcome<Db> {
    open_durable(path, create, Durability::Sync)
}

/// Opens a database to read it, which takes no lock and changes nothing. If another process is
/// writing it, the state after the last durable commit is shown.
pub(super) fn open_to_read(path: &Path) -> Outcome<Db> {
    Db::open_read_only(path).map_err(Failure::Open).map(|db| noted(db, path))
}

/// Opens a table of the database at `path`. The error for a missing table names the database.
pub(super) fn open_table(db: &Db, path: &Path, name: &str) -> Result<Table> {
    db.table(name).map_err(|error| error.about(|| path.display().to_string()))
}

pub(super) fn open_durable(path: &Path, create: Create, durability: Durability) -> Outcome<Db> {
    open_with(Db::options(), path, create, durability).map(|db| noted(db, path))
}

/// Prints to standard error that the database was created, which logs a crash had cut off, and the
/// warnings from opening.
pub(super) fn noted(db: Db, path: &Path) -> Db {
    let opened = db.opened();
    if opened.created {
        eprint_line(&format!("note: created the database {}", path.display()));
    }
    opened
        .torn
        .iter()
        .chain(&opened.warnings)
        .for_each(|note| eprint_line(&format!("note: {note}")));
    db
}

/// Makes the database keep its logs: a command between two runs of a server must not remove logs
/// that the server keeps for consumers of changes.
pub(super) fn keeping(options: Options) -> Options {
    Options { keep_changes_on: true, ..options }
}

fn open_with(options: Options, path: &Path, create: Create, durability: Durability) -> Outcome<Db> {
    if create == Create::IfMissing {
        require_own_place(path)?;
    }
    keeping(options)
        .durability(durability)
        .create_if_missing(create == Create::IfMissing)
        .open(path)
        .map_err(Failure::Open)
}

/// Returns an error if `path` is no database yet, and is in the directory of another one.
pub(super) fn require_own_place(path: &Path) -> Outcome {
    let fs = DiskFs::new();
    let current = FileName::Current.to_string();
    let is_database = |dir: &&Path| fs.exists(&dir.join(&current)).unwrap_or(false);
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if is_database(&&*path) {
        return Ok(());
    }
    let mut outer = path.ancestors().skip(1).filter(is_database);
    Ok(outer.try_for_each(|outer| require_outside(&path, outer))?)
}

/// Parses a size such as 64M.
pub(super) fn read_bytes(text: &str) -> Result<u64, String> {
    let shift = match text.to_ascii_uppercase().chars().last() {
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    let number: u64 = digits.parse().map_err(|_| "a number of bytes, as 64M".to_owned())?;
    let bytes = number.checked_mul(1 << shift).filter(|bytes| *bytes <= 1 << 40);
    bytes.ok_or_else(|| "at most 1024G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(read_bytes("64M"), Ok(64 << 20));
        assert_eq!(read_bytes("16k"), Ok(16 << 10));
        assert_eq!((read_bytes("2G"), read_bytes("512")), (Ok(2 << 30), Ok(512)));
        assert!(
            ["", "M", "12X", "-1", "9999999G", "é"].iter().all(|text| read_bytes(text).is_err())
        );
    }
}

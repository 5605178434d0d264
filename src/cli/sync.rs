//! `rowstone sync`: carries the changes of a database to a Table service or another database.
//!
//! Not here: the steps of a sync (`store::sync`).

use std::cell::RefCell;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Mutex;

use clap::Args;

use super::changes::without_feed;
use super::endpoint::{AccountArgs, Place, Service};
use super::failure::{Failure, Outcome, eprint_line};
use super::files::{self, append, check_outside};
use super::interrupt::Interrupt;
use super::open::{Create, open};
use super::output::{Format, Output, counted, print, with_thousands, write_counters};
use super::progress::Progress;
use super::stats::StatsFormat;
use super::writer::CursorThere;
use crate::db::Db;
use crate::db::prometheus::{Exposition, Metric};
use crate::error::{Code, Error, ErrorKind};
use crate::json::{self, Object};
use crate::model::{KeyPart, check_key};
use crate::retry::RetryPolicy;
use crate::store::sync::{Report, SAME, Source, SyncJob, SyncProblem, SyncStatus, error_in};
use crate::store::{RemoteOptions, TableStore};

/// Carry changes to a Table service or another database.
///
/// Rows arrive in effect once, and in order within their partition.
#[derive(Args)]
#[command(after_long_help = HELP)]
pub(super) struct SyncCommand {
    /// The database; another process may have it open. Or a server with --extensions
    db: Place,
    /// The Table service, or the directory of another database, which is created if it is missing
    target: Place,
    /// Also carry later changes, until interrupted
    #[arg(long)]
    follow: bool,
    /// Print how far the sync is, and carry nothing
    #[arg(long, conflicts_with_all = ["follow", "resync", "rejects", "allow_drop", "split_groups"])]
    #[arg(conflicts_with_all = ["stamp", "delete_missing"])]
    status: bool,
    /// The name of the position at the target; databases with one target need names of their own
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = read_name)]
    name: String,
    /// Also save the position, and the last error, in this file [default: a process that has the
    /// database open saves the position in it, if it listens on the control socket]
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Append what the target refuses to this file, one JSON object per line, instead of ending
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,
    /// Begin again by comparing all rows, also after a restore or repair of the database; `keep`
    /// keeps rows that only the target has, `mirror` deletes them as --delete-missing, and with
    /// --allow-drop drops the tables that only the target has
    #[arg(long, value_name = "HOW", value_parser = ["keep", "mirror"])]
    resync: Option<String>,
    /// Delete the rows that a comparison of all rows finds at the target only; refused if a table
    /// has a time to live, or if a limit on disk use drops its rows
    #[arg(long)]
    delete_missing: bool,
    /// Give each row this property at the target: its Timestamp here, a space, and --name
    #[arg(long, value_name = "PROPERTY")]
    stamp: Option<String>,
    /// Delete the rows that expire, or that a limit on disk use drops, if their stamp is of this
    /// sync and shows that state
    #[arg(long, requires = "stamp")]
    expire: bool,
    /// Also drop at the target the tables that the database drops
    #[arg(long)]
    allow_drop: bool,
    /// Send a group that is too large for the target in parts
    #[arg(long)]
    split_groups: bool,
    #[command(flatten)]
    account: AccountArgs,
    /// How to print the result; `prometheus` is for --status
    #[arg(long, value_enum, default_value_t = StatsFormat::Table)]
    format: StatsFormat,
    /// The same as --format json
    #[arg(long, conflicts_with = "format", hide = true)]
    json: bool,
}

const HELP: &str = "\
The first run compares all rows with the target and writes those that differ. After that the change
feed is carried, from the position in the table rowstonesync of the target. If changes are no longer
kept, all rows are compared again: keep the changes of the longest time without a network, with
--keep-changes of the process that writes.

Rows that expire, or that a limit on disk use drops, stay at the target without --expire. Deletes
are carried. Rows and tables that only the target has stay, and are listed in the file of --rejects.

A sync may be killed at any time. The next one waits 40 seconds if the last one did not end in order,
since requests may still be under way; readers of the target may then see states of about the last
second again, with --state of up to five minutes. Only one sync of a name can run. Without --follow, a failing target ends the command
after three retries; with it, the command waits for the target.

The database may also be a Table service of `rowstone serve --extensions`, with the account's key.

Examples:
  rowstone sync station env:STORE --follow --name station-7
  rowstone sync station env:STORE --rejects rejects.ndjson
  rowstone sync station env:STORE --name station-7 --status --format prometheus
  rowstone sync station env:STORE --name station-7 --stamp Source --expire
  rowstone sync env:STATION env:STORE --follow
  rowstone sync station copy";

const TAKEOVER: &str =
    "the last sync did not end in order: waiting 40 s until its requests can no longer take effect";

/// The store to which changes are carried.
enum Target {
    Directory(Db),
    Service(Service),
}

impl Target {
    fn get(&self) -> &dyn TableStore {
        match self {
            Self::Directory(db) => db,
            Self::Service(service) => &**service,
        }
    }
}

impl SyncCommand {
    pub(super) fn run(self) -> Outcome {
        let paths = [&self.state, &self.rejects].into_iter().flatten();
        paths.into_iter().try_for_each(|path| check_outside(path))?;
        if self.format == StatsFormat::Prometheus && !self.status {
            return Err(Failure::Usage("--format prometheus is for --status".to_owned()));
        }
        // The sync repeats requests itself: each one must have ended when the next one is sent.
        let service_at = |place| {
            let options = RemoteOptions::new().retries(RetryPolicy::none());
            self.account.open_with(place, options)
        };
        let (from, service) = (service_at(&self.db)?, service_at(&self.target)?);
        let is_same = match (&from, &service) {
            (Some(from), Some(service)) => from.name == service.name,
            (None, None) => files::is_same(&self.db, &self.target),
            _ => false,
        };
        if is_same {
            return Err(Failure::Usage(SAME.to_owned()));
        }
        let source = match &from {
            Some(service) => served(service)?,
            None => Source::Follower(Db::follow(&*self.db).map_err(Failure::Open)?),
        };
        let target = match service {
            Some(service) => Target::Service(service),
            None if self.status => Target::Directory(super::open::open_to_read(&self.target)?),
            None => Target::Directory(open(&self.target, Create::IfMissing)?),
        };
        let done = match self.status {
            true => self.print_status(&source, target.get()),
            false => self.carry(source, &target),
        };
        match target {
            Target::Directory(db) => done.and(db.close().map_err(Failure::from)),
            Target::Service(_) => done,
        }
    }

    fn carry(&self, source: Source, target: &Target) -> Outcome {
        let is_served = matches!(source, Source::Remote(_));
        let rejects = self.rejects.as_deref().map(append).transpose()?.map(Mutex::new);
        let mut job = SyncJob::new(source, target.get())
            .name(&self.name)
            .resync(self.resync.is_some())
            .mirror(self.resync.as_deref() == Some("mirror"))
            .delete_missing(self.delete_missing)
            .allow_drop(self.allow_drop)
            .split_groups(self.split_groups);
        job = match &self.stamp {
            Some(property) if self.expire => job.stamp_and_expire(property)?,
            Some(property) => job.stamp(property)?,
            None => job,
        };
        job = match &self.state {
            Some(path) => job.state_file(path)?,
            None if is_served => job,
            None => {
                let cursor = CursorThere::new(&self.db, format!("sync-{}", self.name));
                let cursor = Mutex::new(cursor);
                job.process(Box::new(move |position| cursor.lock().ok()?.ask(position)))
            }
        };
        if self.follow {
            let [min, z, max] = [1, 1, 60].map(std::time::Duration::from_secs);
            let policy = RetryPolicy::exponential_within(z, min, max);
            job = job.retries(policy.with_retries(u32::MAX));
        }
        if let Some(file) = &rejects {
            job = job.on_problem(|problem| {
                let Ok(mut file) = file.lock() else { return Ok(()) };
                let line = json::object(|object| put_problem(object, problem));
                // Flushes before the position is saved.
                let written = writeln!(file, "{line}").and_then(|()| file.flush());
                written.map_err(|error| Error::io("write the rejects", error))
            });
        }
        let interrupt = Interrupt::catch().or_termination();
        let shown = RefCell::new(None);
        let progress = (!self.follow).then(|| Progress::new(None));
        let mut was_interrupted = false;
        job.run(self.follow, &mut |status| {
            progress.iter().for_each(|progress| progress.reach(status.rows));
            let error = status.error.as_ref().map(|error| format!("{error}; trying again"));
            let note = error.or_else(|| status.is_taking_over.then(|| TAKEOVER.to_owned()));
            if *shown.borrow() != note {
                note.iter().for_each(|note| eprint_line(&format!("note: {note}")));
                shown.replace(note);
            }
            was_interrupted = interrupt.is_raised();
            !was_interrupted
        })
        .map_err(explained)?;
        drop(progress);
        let status = job.status();
        print(|output| self.write(output, &status, target))?;
        if was_interrupted && !self.follow {
            Interrupt::end("interrupted: not all changes are carried; the same command goes on");
        }
        Ok(())
    }

    fn write(&self, output: &mut Output, status: &SyncStatus, target: &Target) -> io::Result<()> {
        let mut fields = vec![
            ("commits", status.commits),
            ("rows", status.rows),
            ("requests", status.requests),
            ("problems", status.problems),
        ];
        if let Target::Service(service) = target {
            let bill = service.bill();
            fields.extend([("transactions", bill.transactions), ("bytes_out", bill.bytes_out)]);
        }
        write_counters(output, &fields, self.format())
    }

    fn print_status(&self, source: &Source, target: &dyn TableStore) -> Outcome {
        let report = Report::read(source, target, &self.name)?;
        let error = self.state.as_deref().map(error_in).transpose()?.flatten();
        let position = report.position.map(|position| position.to_string());
        let lag = report.lag.map(|lag| {
            [("lag_groups", lag.groups), ("lag_bytes", lag.bytes), ("lag_seconds", lag.seconds)]
        });
        let (newest, problems) = (report.newest.to_string(), report.problems);
        if self.format == StatsFormat::Prometheus {
            let text = self.metrics(&report, error.is_some());
            return print(|output| output.data(text.as_bytes()));
        }
        if self.format() != Format::Table {
            let record = json::object(|object| {
                object.text("name", &self.name);
                position.iter().for_each(|position| object.text("position", position));
                object.text("newest", &newest);
                lag.iter().flatten().for_each(|(name, value)| object.raw(name, value));
                object.raw("open", report.is_open);
                object.raw("problems", problems);
                error.iter().for_each(|error| object.text("error", error));
            });
            return print(|output| output.records(&[record], self.format()));
        }
        print(|output| {
            writeln!(output, "position  {}", position.as_deref().unwrap_or("none"))?;
            writeln!(output, "newest    {newest}")?;
            match lag {
                Some([(_, groups), (_, bytes), (_, seconds)]) => {
                    let groups = counted(groups, "commit", "commits");
                    let bytes = counted(bytes, "byte", "bytes");
                    let seconds = with_thousands(seconds);
                    output.fold("behind    ", &format!("{groups}, {bytes}, {seconds} s"))?;
                }
                None => writeln!(output, "behind    not known: all rows will be compared")?,
            }
            let state = if report.is_open { "running or killed" } else { "ended" };
            writeln!(output, "sync      {state}")?;
            writeln!(output, "problems  {problems}")?;
            error.iter().try_for_each(|error| output.fold("error     ", error))
        })
    }
}

impl SyncCommand {
    fn format(&self) -> Format {
        match self.format {
            _ if self.json => Format::Json,
            StatsFormat::Json => Format::Json,
            StatsFormat::Csv => Format::Csv,
            StatsFormat::Table | StatsFormat::Prometheus => Format::Table,
        }
    }

    /// Returns the status as metrics. The lag is left out if it is not known, and so are failures
    /// without --state.
    fn metrics(&self, report: &Report, is_failing: bool) -> String {
        let mut out = Exposition::new();
        let mut put = |name: &str, kind, help, value: u64| {
            let name = format!("rowstone_sync_{name}");
            out.begin(&Metric { name: name.clone(), kind, help });
            out.sample(&name, &[("name", &*self.name)], value);
        };
        if let Some(lag) = report.lag {
            put("lag_groups", "gauge", "Commits that are not carried yet.", lag.groups);
            put("lag_bytes", "gauge", "Bytes of the entities of these commits.", lag.bytes);
            put("lag_seconds", "gauge", "Age of the oldest of these commits.", lag.seconds);
        }
        put("open", "gauge", "1 while a sync runs, or if it was killed.", report.is_open.into());
        put("problems_total", "counter", "Problems, as in --rejects.", report.problems);
        if self.state.is_some() {
            let help = "1 if nothing was carried since the last error.";
            put("failing", "gauge", help, is_failing.into());
        }
        out.into_text()
    }
}

/// Returns a server as a source. One that is away is waited for later.
fn served(service: &Service) -> Outcome<Source> {
    match service.remote().positions() {
        Err(error) if error.kind() != ErrorKind::Io => Err(without_feed(error, service)),
        _ => Ok(Source::Remote(service.remote().clone())),
    }
}

/// Reads the name of a position, which is a key at the target.
fn read_name(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("a name has at least one character".to_owned());
    }
    check_key(KeyPart::PartitionKey, text)
        .map_err(|_| "a name has at most 1,024 characters, and none of / \\ # ?".to_owned())?;
    Ok(text.to_owned())
}

fn put_problem(object: &mut Object<'_>, problem: &SyncProblem) {
    object.text("kind", problem.kind.name());
    object.text("table", &problem.table);
    if let Some((partition_key, row_key)) = &problem.row {
        object.text("PartitionKey", partition_key);
        object.text("RowKey", row_key);
    }
    object.text("message", &problem.message);
}

/// Adds the option that lets the sync go on.
fn explained(error: Error) -> Failure {
    let next = match error.kind() {
        _ if error.message() == SAME => return Failure::Usage(SAME.to_owned()),
        _ if error.code() == Code::RequestBodyTooLarge.as_str() => {
            "--split-groups sends such groups in parts"
        }
        ErrorKind::ChangesLost => {
            "--resync keep compares all rows and goes on; --name NAME is for another database"
        }
        // `check_tables` of a sync.
        ErrorKind::Unsupported if error.message().contains("cannot be deleted") => {
            "--resync keep keeps them; --stamp PROPERTY --expire deletes what expires"
        }
        ErrorKind::Unsupported => {
            "--allow-drop drops it; --rejects FILE keeps it, and records that"
        }
        ErrorKind::InvalidInput => "--rejects FILE records what is refused, and goes on",
        _ => return Failure::Operation(error),
    };
    Failure::Other(format!("{error}\n  try: {next}"))
}

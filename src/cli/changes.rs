//! `rowstone changes`: prints the change feed as lines of JSON.
//!
//! Invariants
//! * a database that another process has open for writing is only read; that process moves cursors;
//! * a cursor advances only past changes that were written to standard output.
//!
//! Not here: reading changes from the logs (`db::changes`), the form of a line (`json::changes`).

use std::io::Write;
use std::time::Duration;

use clap::Args;

use super::endpoint::Place;
#[cfg(feature = "remote")]
use super::endpoint::{AccountArgs, Service};
use super::failure::{Failure, Outcome};
use super::open::Create;
use super::output::{Output, print};
use super::writer::Writer;
use crate::db::{Change, Changes, Db, Position};
use crate::json::changes::put_commit;
use crate::options::Durability;
#[cfg(feature = "remote")]
use crate::{
    error::{Error, ErrorKind},
    json::{self, Scalar},
    retry::RetryPolicy,
    store::RemoteOptions,
};

/// The longest time after which --follow looks for new commits. Changes by another machine, on a
/// network file system, are found only by looking.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Print changes as JSON, one commit per line.
///
/// A line has each entity as it is after the commit.
#[derive(Args)]
#[command(after_long_help = HELP)]
pub(super) struct ChangesCommand {
    /// The database; another process may have it open
    db: Place,
    /// Only commits after this position, taken from an earlier line [default: the oldest kept]
    #[arg(long, value_name = "POSITION", conflicts_with = "cursor")]
    since: Option<String>,
    /// Continue at the cursor of this name, and advance it past the printed changes
    #[arg(long, value_name = "NAME", conflicts_with = "follow")]
    cursor: Option<String>,
    /// Only commits from now on
    #[arg(long, conflicts_with_all = ["since", "cursor"])]
    new: bool,
    /// Wait for further commits, until interrupted
    #[arg(long)]
    follow: bool,
    /// Only changes of this table
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Print only the positions before the oldest and after the newest change that is kept
    #[arg(long, conflicts_with_all = ["since", "cursor", "new", "follow", "table"])]
    positions: bool,
    #[cfg(feature = "remote")]
    #[command(flatten)]
    account: AccountArgs,
}

const HELP: &str = "\
A line is one commit: its position, its time, and what it did, in order:
  {\"position\":\"…\",\"timestamp\":\"…\",\"changes\":[
    {\"op\":\"put\",\"table\":\"parts\",\"entity\":{…}}]}
Operations: create-table drop-table put delete delete-range expire import.

Only durable commits are printed. Changes are kept until they are flushed to table files, or
as long as the database was opened to keep them. If requested changes are no longer kept, the
command exits with status 1 and ChangesLost; no change is omitted silently.

A cursor is stored in the database. If another process has it open, that process stores it, and
must listen on the control socket, as `serve` and `exec` do. Otherwise keep the position of the
last line and pass it to --since.

Of a Table service, this command requires `rowstone serve --extensions` and the account's key.

Examples:
  rowstone changes shop
  rowstone changes shop --cursor search > new.ndjson
  rowstone changes shop --since 5f3759df12345678-134000000000000000 \\
      --follow --table parts";

impl ChangesCommand {
    pub(super) fn run(self) -> Outcome {
        let since = self.since.as_deref().map(str::parse::<Position>).transpose();
        let since = since.map_err(|error| Failure::Usage(error.to_string()))?;
        #[cfg(feature = "remote")]
        if let Some(service) = self.account.open(&self.db)? {
            return self.run_at(&service, since);
        }
        if let Some(cursor) = &self.cursor {
            return self.run_with(cursor);
        }
        let db = self.follower()?;
        if self.positions {
            let (oldest, newest) = (db.oldest_position()?, db.position());
            print_positions([oldest, newest])?;
            return Ok(db.close()?);
        }
        let since = match since {
            Some(since) => since,
            None if self.new => db.position(),
            None => db.oldest_position()?,
        };
        let mut changes = db.changes(since)?;
        print(|output| self.print(&mut changes, output))?;
        Ok(db.close()?)
    }

    /// Opens a follower. It reads only durable commits: a consumer must not see a commit that a
    /// power cut may undo.
    fn follower(&self) -> Outcome<Db> {
        Ok(Db::follow(&*self.db).map_err(Failure::Open)?.db())
    }

    /// Prints the changes after a cursor, and advances it.
    fn run_with(&self, cursor: &str) -> Outcome {
        // A moved cursor is durable already.
        let writer = Writer::open_durable(&self.db, Create::Never, Durability::Buffered)?;
        let cursor = |position: Option<Position>| {
            let answer = writer.ask("cursor", |request| {
                request.text("name", cursor);
                position.iter().for_each(|at| request.text("position", &at.to_string()));
            })?;
            let position = answer.text("position").map(|text| text.parse::<Position>());
            Outcome::Ok(position.transpose()?)
        };
        let since = cursor(None)?;
        let db = match &writer {
            Writer::Here(db) => db.clone(),
            Writer::There(_) => self.follower()?,
        };
        // Store the oldest position now, because at the next run it may be a later one.
        let since = since.map_or_else(
            || {
                let oldest = db.oldest_position()?;
                cursor(Some(oldest))?;
                Outcome::Ok(oldest)
            },
            Ok,
        )?;
        let mut changes = db.changes(since)?;
        print(|output| {
            self.print(&mut changes, output)?;
            match changes.position() {
                position if position == since => Ok(()),
                position => cursor(Some(position)).map(drop),
            }
        })?;
        drop((changes, db));
        writer.close()
    }

    fn print(&self, changes: &mut Changes, output: &mut Output) -> Outcome {
        loop {
            for commit in changes.by_ref() {
                let commit = commit?;
                let is_wanted = |change: &&Change| {
                    let asked = self.table.as_ref();
                    asked.is_none_or(|table| table.eq_ignore_ascii_case(change.table()))
                };
                let changes: Vec<_> = commit.changes.iter().filter(is_wanted).collect();
                if !changes.is_empty() {
                    output.object(|object| put_commit(object, &commit, &changes))?;
                }
            }
            output.flush()?;
            if !self.follow {
                return Ok(());
            }
            changes.wait(LOOK_EVERY)?;
        }
    }
}

fn print_positions([oldest, newest]: [Position; 2]) -> Outcome {
    let line = format!("{{\"oldest\":\"{oldest}\",\"newest\":\"{newest}\"}}");
    print(|output| writeln!(output, "{line}"))
}

#[cfg(feature = "remote")]
impl ChangesCommand {
    /// Prints the feed of a Table service.
    fn run_at(&self, service: &Service, since: Option<Position>) -> Outcome {
        service.refuse(&[("--cursor", self.cursor.is_some())])?;
        let absent = |error| without_feed(error, service);
        let [oldest, newest] = service.remote().positions().map_err(absent)?;
        if self.positions {
            return print_positions([oldest, newest]);
        }
        let mut since = since.unwrap_or(if self.new { newest } else { oldest });
        // After the first answer, a failing service is waited for.
        let [min, z, max] = [1, 1, 60].map(Duration::from_secs);
        let retries = RetryPolicy::exponential_within(z, min, max).with_retries(u32::MAX);
        let patient = self.account.open_with(&self.db, RemoteOptions::new().retries(retries))?;
        let service = patient.as_ref().filter(|_| self.follow).unwrap_or(service);
        print(|output| {
            loop {
                let wait = if self.follow { Duration::MAX } else { Duration::ZERO };
                let page = service.remote().changes(since, wait)?;
                for line in page.lines.lines() {
                    self.print_line(output, line)?;
                }
                output.flush()?;
                let is_end = since == page.position && !self.follow;
                since = page.position;
                if is_end {
                    return Outcome::Ok(());
                }
            }
        })
    }

    /// Prints a commit without the changes of other tables.
    fn print_line(&self, output: &mut Output, line: &str) -> Outcome {
        let mut members = Vec::new();
        for (name, value) in json::read_object(line, COMMIT_MEMBERS_MAX)? {
            if name != "changes" {
                members.push((name, value.get().to_owned()));
                continue;
            }
            let mut changes = json::read_array(value.get(), usize::MAX)?;
            changes.retain(|change| self.is_wanted(change.get()));
            if changes.is_empty() {
                return Ok(());
            }
            members.push((name, json::array(changes.iter().map(|change| change.get()))));
        }
        Ok(output
            .object(|object| members.iter().for_each(|(name, json)| object.raw(name, json)))?)
    }

    fn is_wanted(&self, change: &str) -> bool {
        let Some(asked) = &self.table else { return true };
        let members = json::read_object(change, COMMIT_MEMBERS_MAX).unwrap_or_default();
        members.iter().any(|(name, value)| {
            let table = Scalar::read(value);
            name == "table"
                && matches!(table, Ok(Scalar::String(table)) if table.eq_ignore_ascii_case(asked))
        })
    }
}

/// The maximum number of members of a commit, and of a change.
#[cfg(feature = "remote")]
const COMMIT_MEMBERS_MAX: usize = 16;

/// Explains the error of a service that has no change feed.
#[cfg(feature = "remote")]
pub(super) fn without_feed(error: Error, service: &Service) -> Failure {
    let is_absent = [ErrorKind::NotFound, ErrorKind::InvalidInput, ErrorKind::NotImplemented];
    match is_absent.contains(&error.kind()) {
        true => Failure::Usage(format!(
            "{} has no change feed: only `rowstone serve --extensions` has",
            service.name
        )),
        false => error.into(),
    }
}

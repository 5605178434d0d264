//! `rowstone changes`: prints the change feed as lines of JSON.
//!
//! Invariants
//! * a database that another process has open for writing is only read;
//! * a cursor advances only past changes that were written to standard output.
//!
//! Not here: reading changes from the logs (`db::changes`), the form of a line (`json::changes`).

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::failure::{Failure, Outcome};
use super::open::{Create, open};
use super::output::{Output, print};
use crate::db::{Change, Changes, Cursor, Db, Position};
use crate::json::changes::put_commit;

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
    db: PathBuf,
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
}

const HELP: &str = "\
A line is one commit: its position, its time, and what it did, in order:
  {\"position\":\"…\",\"timestamp\":\"…\",\"changes\":[
    {\"op\":\"put\",\"table\":\"parts\",\"entity\":{…}}]}
Operations: create-table drop-table put delete delete-range expire import.

Only durable commits are printed. Changes are kept until they are flushed to table files, or
as long as the database was opened to keep them. If requested changes are no longer kept, the
command exits with status 1 and ChangesLost; no change is omitted silently.

A cursor is stored in the database, so --cursor requires that no other process has it open.
While another process writes, keep the position of the last line and pass it to --since.

Examples:
  rowstone changes shop
  rowstone changes shop --cursor search > new.ndjson
  rowstone changes shop --since 5f3759df12345678-134000000000000000 \\
      --follow --table parts";

impl ChangesCommand {
    pub(super) fn run(self) -> Outcome {
        let since = self.since.as_deref().map(str::parse::<Position>).transpose();
        let since = since.map_err(|error| Failure::Usage(error.to_string()))?;
        let db = match self.cursor {
            Some(_) => open(&self.db, Create::Never)?,
            // Reads only durable commits. A consumer must not see a commit that a power cut may
            // undo.
            None => Db::follow(&self.db).map_err(Failure::Open)?.db(),
        };
        if self.positions {
            let (oldest, newest) = (db.oldest_position()?, db.position());
            let line = format!("{{\"oldest\":\"{oldest}\",\"newest\":\"{newest}\"}}");
            print(|output| writeln!(output, "{line}"))?;
            return Ok(db.close()?);
        }
        let cursor = self.cursor.as_deref().map(|name| db.cursor(name)).transpose()?;
        let mut changes = match (&cursor, since) {
            (Some(cursor), _) => cursor.changes()?,
            (None, Some(since)) => db.changes(since)?,
            (None, None) if self.new => db.changes(db.position())?,
            (None, None) => db.changes(db.oldest_position()?)?,
        };
        print(|output| {
            self.print(&mut changes, output)?;
            cursor.map_or(Ok(()), |cursor| move_cursor(&cursor, &changes))
        })?;
        Ok(db.close()?)
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

fn move_cursor(cursor: &Cursor, changes: &Changes) -> Outcome {
    if cursor.position()? != Some(changes.position()) {
        cursor.commit(changes.position())?;
    }
    Ok(())
}

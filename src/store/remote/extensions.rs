//! The extensions of `rowstone serve --extensions`, which other services do not have.

use std::time::Duration;

use super::client::Remote;
use super::exchange::Write;
use super::request::Draft;
use super::response;
use crate::db::Position;
use crate::error::{Error, ErrorKind, Result, quoted};
use crate::json::answer::Answer;
use crate::json::{self, Object};
use crate::query::KeyRange;

/// A page of the change feed of a service.
pub(crate) struct ChangesPage {
    /// The commits, one JSON object per line.
    pub(crate) lines: String,
    /// The position after the page.
    pub(crate) position: Position,
}

impl Remote {
    /// Whether the service has extensions for this credential. Asks once.
    ///
    /// # Errors
    /// The service gave no answer.
    pub(crate) fn has_extensions(&self) -> Result<bool> {
        let draft = Draft::extension("GET", "positions", Vec::new());
        self.exchange().has_extensions(&draft)
    }

    /// Returns the positions before the oldest and after the newest change that is kept.
    pub(crate) fn positions(&self) -> Result<[Position; 2]> {
        let draft = Draft::extension("GET", "positions", Vec::new());
        let text = self.exchange().read(&draft, response::object)?;
        let answer = Answer::read(text)?;
        let position = |name| answer.text(name).and_then(|text| text.parse().ok());
        match (position("oldest"), position("newest")) {
            (Some(oldest), Some(newest)) => Ok([oldest, newest]),
            _ => Err(self.malformed("positions")),
        }
    }

    /// Reads the commits after a position. If there are none, the service waits for one, for
    /// `wait` and half of the time of a request at most, in whole seconds.
    ///
    /// # Errors
    /// `ChangesLost`.
    pub(crate) fn changes(&self, since: Position, wait: Duration) -> Result<ChangesPage> {
        let wait = wait.min(self.exchange().options.timeout / 2).as_secs();
        let query = vec![("since", since.to_string()), ("wait", wait.to_string())];
        let draft = Draft::extension("GET", "changes", query);
        let (lines, position) = self.exchange().read(&draft, response::changes)?;
        Ok(ChangesPage { lines, position })
    }

    /// Makes all commits durable.
    pub(crate) fn sync(&self) -> Result<()> {
        let draft = Draft::extension("POST", "exec", Vec::new());
        let draft = draft.with_json(json::object(|object| object.text("op", "sync")));
        Answer::read(self.exchange().read(&draft, response::object)?).map(drop)
    }

    /// Counts the entities that match a filter; `None` if the service has no extensions.
    ///
    /// # Errors
    /// As [`query`](crate::store::TableStore::query).
    pub(crate) fn count(&self, table: &str, filter: &str) -> Result<Option<u64>> {
        if !self.has_extensions()? {
            return Ok(None);
        }
        let draft = draft("count", table, |object| object.text("filter", filter));
        let answer = Answer::read(self.exchange().read(&draft, response::object)?)?;
        answer.number("count").map(Some).ok_or_else(|| self.malformed("a count"))
    }

    /// Deletes the entities of a range, whose bounds `put` adds.
    ///
    /// # Errors
    /// `NotFound` if the table does not exist; `OutcomeUnknown`.
    pub(crate) fn delete_range(
        &self,
        table: &str,
        put: impl FnOnce(&mut Object<'_>),
    ) -> Result<()> {
        let draft = draft("delete_range", table, put);
        let (object, table) = (format!("a range of {}", quoted("table", table)), table.to_owned());
        let (row, id, etag, is_once) = (None, None, None, false);
        let write = Write { draft, table, object, row, id, etag, is_once };
        self.exchange().write(&write, response::text, |_| String::new()).map(drop)
    }

    /// Deletes the entities of a range in one commit. Returns false, and does nothing, if the
    /// service has no extensions, and for a range that no request can name.
    pub(super) fn delete_range_at_once(&self, table: &str, range: &KeyRange) -> Result<bool> {
        let Some((partition, bounds)) = range.bounds() else { return Ok(false) };
        if !self.has_extensions()? {
            return Ok(false);
        }
        let names = match partition {
            Some(_) => ["from", "to"],
            None => ["from_partition", "to_partition"],
        };
        self.delete_range(table, |object| {
            partition.iter().for_each(|key| object.text("partition", key));
            for (name, bound) in names.into_iter().zip(&bounds) {
                bound.iter().for_each(|key| object.text(name, key));
            }
        })?;
        Ok(true)
    }

    fn malformed(&self, what: &str) -> Error {
        Error::new(ErrorKind::Io, format!("{} sent malformed {what}", self.name()))
    }
}

/// Returns a request to execute an operation of `rowstone exec`.
fn draft(op: &str, table: &str, put: impl FnOnce(&mut Object<'_>)) -> Draft {
    let body = json::object(|object| {
        object.text("op", op);
        object.text("table", table);
        put(object);
    });
    Draft::extension("POST", "exec", Vec::new()).with_json(body)
}

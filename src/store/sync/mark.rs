//! The position of a sync at its target: a row, which also keeps a second sync away.
//!
//! Invariants
//! * every write of the row has the ETag of the last one, so one sync at a time owns the row;
//! * a refused write is one's own if the row has the id of this writer and the number of the
//!   write: then only the answer was lost.

use crate::db::Position;
use crate::error::{Code, Error, ErrorKind, Result};
use crate::model::{ETag, Entity};
use crate::mutants::mutant;
use crate::rng::Rng;
use crate::store::groups::TRIES_MAX;
use crate::store::table_store::{Condition, TableStore};

/// The table of the rows. A table of this name at the source is not carried.
pub(super) const TABLE: &str = "rowstonesync";
const ROW_KEY: &str = "position";

/// The row at the target.
pub(super) struct Mark {
    /// The PartitionKey.
    name: String,
    /// The random id of this sync.
    writer: String,
    /// The number of the last write.
    number: i64,
    etag: Option<ETag>,
}

/// The contents of the row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// `None` until all rows were compared once.
    pub(super) position: Option<Position>,
    pub(super) writer: String,
    /// Whether the writer has not ended, or ended without notice.
    pub(super) is_open: bool,
    /// The number of problems so far.
    pub(super) problems: u64,
    number: i64,
}

impl Mark {
    pub(super) fn new(name: &str, rng: &mut Rng) -> Self {
        let writer = format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64());
        Self { name: name.to_owned(), writer, number: 0, etag: None }
    }

    /// Reads the row, and remembers its ETag for the next write.
    pub(super) fn read(&mut self, target: &dyn TableStore) -> Result<Option<Found>> {
        let row = read_row(target, &self.name)?;
        self.etag = row.as_ref().and_then(Entity::etag);
        row.as_ref().map(found_in).transpose()
    }

    /// Writes the row, which nothing else has written since it was read or written here.
    ///
    /// # Errors
    /// `Locked` if another sync has written it, or if it was deleted.
    pub(super) fn write(
        &mut self,
        target: &dyn TableStore,
        position: Option<Position>,
        (is_open, problems): (bool, u64),
    ) -> Result<()> {
        self.number += 1;
        let mut row = Entity::new(&*self.name, ROW_KEY)
            .with("Writer", &*self.writer)
            .with("Number", self.number)
            .with("Open", is_open)
            .with("Problems", i64::try_from(problems).unwrap_or(i64::MAX));
        if let Some(position) = position {
            row.set("Position", position.to_string());
        }
        let mut last = None;
        for _ in 0..TRIES_MAX {
            let written = match &self.etag {
                None => target.insert(TABLE, &row),
                Some(etag) => target.replace(TABLE, &row, &Condition::Match(etag.clone())),
            };
            let error = match written {
                Ok(etag) => {
                    self.etag = Some(etag);
                    return Ok(());
                }
                Err(error) => error,
            };
            match error.kind() {
                _ if error.code() == Code::TableNotFound.as_str() && self.etag.is_none() => {
                    super::send::create_table(target, TABLE)?;
                    // After the last try this error, which would end the sync, is no longer true.
                    continue;
                }
                ErrorKind::OutcomeUnknown
                | ErrorKind::AlreadyExists
                | ErrorKind::PreconditionFailed
                | ErrorKind::NotFound => {
                    if self.is_written(target)? {
                        return Ok(());
                    }
                }
                _ => return Err(error),
            }
            last = Some(error);
        }
        Err(last.unwrap_or_else(|| Error::new(ErrorKind::OutcomeUnknown, "no answer")))
    }

    /// Whether a store has a write of this row, so that it is the target itself.
    pub(super) fn is_in(&self, store: &dyn TableStore) -> Result<bool> {
        Ok(read_at(store, &self.name)?.is_some_and(|found| found.writer == self.writer))
    }

    /// Returns whether the row has the last write. If it has an earlier one of this writer, its
    /// ETag is taken for the next try.
    fn is_written(&mut self, target: &dyn TableStore) -> Result<bool> {
        let row = read_row(target, &self.name)?;
        let Some(row) = row else {
            return match self.etag {
                None => Ok(false),
                Some(_) => Err(self.taken("was deleted")),
            };
        };
        let found = found_in(&row)?;
        let is_own = found.writer == self.writer;
        if !is_own && !mutant!("ignored-rival") {
            return Err(self.taken("was written by another sync"));
        }
        self.etag = row.etag();
        Ok(is_own && found.number == self.number)
    }

    fn taken(&self, what: &str) -> Error {
        let text = format!(
            "the position row '{}' in table {TABLE} of the target {what}: only one sync of a name \
             may run",
            self.name
        );
        Error::new(ErrorKind::Locked, text)
    }
}

/// Reads the row of a name.
pub(super) fn read_at(target: &dyn TableStore, name: &str) -> Result<Option<Found>> {
    read_row(target, name)?.as_ref().map(found_in).transpose()
}

fn read_row(target: &dyn TableStore, name: &str) -> Result<Option<Entity>> {
    match target.get(TABLE, name, ROW_KEY, &[]) {
        Err(error) if error.code() == Code::TableNotFound.as_str() => Ok(None),
        row => row,
    }
}

fn found_in(row: &Entity) -> Result<Found> {
    let position = row.value("Position").map(|_| row.get::<String>("Position")?.parse());
    Ok(Found {
        position: position.transpose()?,
        writer: row.get("Writer")?,
        is_open: row.get("Open")?,
        problems: u64::try_from(row.get::<i64>("Problems")?).unwrap_or(0),
        number: row.get("Number")?,
    })
}

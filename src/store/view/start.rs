//! Takes a view over from an earlier runner.
//!
//! Invariant: both tables of a view have the same id, so tables of something else, and a table that
//! was deleted and created again, are noticed.

use super::index::PARTITION;
use super::mark::{Change, Mark, Runner, overtaken};
use super::{Running, View};
use crate::db::Position;
use crate::error::{Code, Error, ErrorKind, Result};
use crate::model::Entity;
use crate::rng::Rng;
use crate::store::pages::{PAGE_MAX, Side};
use crate::table::Operation;

/// The RowKeys of the id in the view's table and in the index, in the partition with the empty key.
const VIEW_ID: &str = "~view";
const INDEX_ID: &str = "~index";
const ID: &str = "Id";
/// The property of the index's row with the name of the source's table.
const SOURCE: &str = "Source";

/// The state of a view at its start.
struct Taken {
    position: Option<Position>,
    id: String,
    /// Whether the view's table has the id.
    is_stored: bool,
}

impl<'s> View<'s> {
    /// Takes the view over, and opens the feed.
    pub(super) fn start(&mut self) -> Result<Running<'s>> {
        for table in [&self.view, &self.index] {
            if table.eq_ignore_ascii_case(&self.table) {
                return refused(format!("table '{table}' is the source of the view: rename it"));
            }
            match self.target.create_table(table) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                created => created?,
            }
        }
        let mut rng = Rng::from_entropy();
        let writer = format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64());
        let place = self.tables().checkpoint();
        let epoch = Mark::read(self.target, place)?.epoch + 1;
        let runner = Runner { store: self.target, epoch, writer };
        let taken = runner.commit(place, |mark| self.take(mark, &runner.writer));
        // Another runner that started meanwhile may have written rows.
        let is_refused = taken.as_ref().is_err_and(|error| error.kind() == ErrorKind::InvalidInput);
        if is_refused && Mark::read(self.target, place)?.epoch >= epoch {
            return Err(overtaken(&self.view));
        }
        let taken = taken?;
        if !taken.is_stored {
            let row = Entity::new(PARTITION, VIEW_ID).with(ID, taken.id);
            match self.target.insert(&self.view, &row) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                inserted => inserted.map(drop)?,
            }
        }
        let state = self.source.view()?;
        let feed = taken.position.map(|position| state.changes(position)).transpose();
        let feed = match feed {
            Err(error) if error.kind() == ErrorKind::ChangesLost => None,
            feed => feed?,
        };
        self.is_rebuilt = false;
        let reached = taken.position.unwrap_or(state.position());
        Ok(Running { runner, feed, reached, commits: 0 })
    }

    /// Checks the tables. Returns a group that keeps the position, or removes it if all rows must
    /// be compared.
    fn take(&self, mark: &Mark, new_id: &str) -> Result<(Taken, Change)> {
        let listed = self.target.get(&self.index, PARTITION, INDEX_ID, &[])?;
        let stored = self.target.get(&self.view, PARTITION, VIEW_ID, &[])?;
        let (mut operations, is_stored) = (Vec::new(), stored.is_some());
        let id = match (&listed, &stored) {
            (Some(listed), _) => listed.get::<String>(ID)?,
            (None, _) => new_id.to_owned(),
        };
        match (&listed, &stored) {
            (None, None) => {
                self.check_empty(&self.index)?;
                let row = Entity::new(PARTITION, INDEX_ID);
                let row = row.with(ID, &*id).with(SOURCE, &*self.table);
                operations.push(Operation::Upsert(row));
            }
            (Some(_), None) => {}
            (Some(_), Some(stored)) if stored.get::<&str>(ID)? == id => {}
            (_, Some(_)) => {
                return refused(format!(
                    "table '{}' is no longer that of the view in table '{}': delete both",
                    self.index, self.view
                ));
            }
        }
        if !is_stored {
            self.check_empty(&self.view)?;
        }
        let source = listed.map(|row| row.get::<String>(SOURCE)).transpose()?;
        if let Some(source) = source.filter(|source| !source.eq_ignore_ascii_case(&self.table)) {
            return refused(format!(
                "the view in table '{}' is one of table '{source}', not of '{}': delete it and \
                 table '{}', or use another name",
                self.view, self.table, self.index
            ));
        }
        let position = mark.position.filter(|_| is_stored && !self.is_rebuilt);
        if let Some(position) = position {
            self.check(position, self.source.view()?.position())?;
        }
        Ok((Taken { position, id, is_stored }, Change { operations, position }))
    }

    fn check_empty(&self, table: &str) -> Result<()> {
        let side = Side { store: self.target, table };
        match side.rows("", &["PartitionKey".to_owned()], PAGE_MAX).next().transpose()? {
            None => Ok(()),
            Some(_) => refused(format!(
                "table '{table}' has rows that are not of the view in table '{}': delete it, or \
                 use another name",
                self.view
            )),
        }
    }
}

fn refused<T>(text: String) -> Result<T> {
    Err(Error::refused_with(Code::InvalidInput, text))
}

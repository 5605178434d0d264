//! The public interface of the change feed: starting positions, and cursors that store a position
//! under a name.
//!
//! `lsm::recovery::change_log` reads the logs, `feed` decodes their records.

mod feed;

pub use feed::{Change, Changes, Commit, Position};

use std::fmt;

use crate::error::{Error, ErrorKind, Result};
use crate::lsm::ChangeLog;

use super::Db;

/// A cursor is stored as a note (a named text in the catalog) whose name is this prefix and the
/// cursor's name.
const CURSOR: &str = "cursor-";
/// The longest name of a cursor, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// A position that the database stores under a name for a consumer of its changes.
///
/// A consumer that processes each commit and then [commits](Self::commit) its position sees every
/// commit at least once. After a crash only the commits after its last committed position are
/// repeated. A consumer that stores the position with its results in one transaction sees each
/// commit exactly once and needs no cursor.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// use rowstone::{Db, Entity, changes::Change};
/// let db = Db::open_in_memory()?;
/// let parts = db.create_table("parts")?;
/// parts.insert(Entity::new("bolts", "m4x20").with("Price", 0.12))?;
/// let cursor = db.cursor("search")?;
/// for commit in cursor.changes()? {
///     let commit = commit?;
///     for change in &commit.changes {
///         if let Change::Put { table, entity } = change {
///             println!("index {table}/{}", entity.row_key());
///         }
///     }
///     cursor.commit(commit.position)?;
/// }
/// assert_eq!(cursor.changes()?.count(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Cursor {
    db: Db,
    name: String,
}

impl Db {
    /// Returns the position after the last commit that readers see; all future commits are after
    /// it. To copy the database and then follow its changes, read the position first and copy
    /// afterwards. The feed repeats commits that are already in the copy, which does no harm. The
    /// copy may contain commits with a durability below `Sync`, which a power cut can revert. To
    /// avoid that, call [`sync`](Self::sync) first, or copy from a follower, which shows only
    /// durable data.
    pub fn position(&self) -> Position {
        Position {
            incarnation: self.engine.reader().incarnation(),
            seq: self.engine.reader().published(),
        }
    }

    /// Returns the oldest position from which changes are still kept. Earlier changes are no longer
    /// listed; the database contains only their result.
    ///
    /// # Errors
    /// `Corruption`, `Io`, `Poisoned`.
    pub fn oldest_position(&self) -> Result<Position> {
        self.engine.maintenance().confirm()?;
        let seq = ChangeLog::open(self.engine.env(), None)?.given;
        Ok(Position { incarnation: self.engine.reader().incarnation(), seq })
    }

    /// Returns the durable commits after `since`, without gaps. After the iterator has returned
    /// `None` it may be called again, and returns later commits, including those of another process
    /// if this database is read-only. Reads the logs that recovery needs and those that
    /// [`Options::keep_changes`](crate::Options::keep_changes) keeps.
    ///
    /// A table that was created before `since` but after a read-only database was opened is named
    /// by its number, such as `t5`. Open the database again to get its name.
    ///
    /// # Errors
    /// `ChangesLost` if a commit after `since` is no longer kept, or if `since` belongs to another
    /// history. Copy the database then, and continue from its [`position`](Self::position).
    /// `Corruption`, `Io`.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use rowstone::{Db, Entity, changes::Change};
    /// let db = Db::open_in_memory()?;
    /// let since = db.position();
    /// let parts = db.create_table("parts")?;
    /// parts.insert(Entity::new("bolts", "m4x20").with("Price", 0.12))?;
    /// parts.merge(Entity::new("bolts", "m4x20").with("Stock", 1_200))?;
    /// let mut changes = db.changes(since)?;
    /// let created = changes.next().transpose()?.map(|commit| commit.changes);
    /// assert_eq!(created, Some(vec![Change::TableCreated { table: "parts".into() }]));
    /// let Some(merged) = changes.last().transpose()? else { panic!("two writes") };
    /// let Change::Put { entity, .. } = &merged.changes[0] else { panic!("a write") };
    /// assert_eq!((entity.get::<f64>("Price")?, entity.get::<i32>("Stock")?), (0.12, 1_200));
    /// # Ok(())
    /// # }
    /// ```
    pub fn changes(&self, since: Position) -> Result<Changes> {
        if since.incarnation != self.engine.reader().incarnation() {
            let problem = format!(
                "{since} is a position of another history; this database was restored, or is another \
                 one: copy it and go on from {}",
                self.position()
            );
            return Err(Error::new(ErrorKind::ChangesLost, problem));
        }
        // A read-only database cannot refuse positions after its last commit: the writer may have
        // returned `since` for a commit that is not visible here yet.
        if self.engine.maintenance().writable().is_ok() && since > self.position() {
            let problem = format!(
                "{since} is of another history of this database, which ends at {}: copy it and go on from there",
                self.position()
            );
            return Err(Error::new(ErrorKind::ChangesLost, problem));
        }
        self.engine.maintenance().confirm()?;
        Changes::new(since, self.engine.env(), self.catalog.names_by_id())
    }

    /// Returns the cursor of this name. The cursor is created when a position is first committed to
    /// it; until then it is at the [oldest position](Self::oldest_position).
    ///
    /// # Errors
    /// `InvalidInput` for a name that is empty, longer than 200 bytes or has control characters.
    pub fn cursor(&self, name: &str) -> Result<Cursor> {
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len());
        if !is_name || name.chars().any(char::is_control) {
            let problem = "a cursor's name has 1 to 200 bytes and no control characters";
            return Err(Error::new(ErrorKind::InvalidInput, problem));
        }
        Ok(Cursor { db: self.clone(), name: name.to_owned() })
    }
}

impl Cursor {
    /// Returns the cursor's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a position is of the history of the cursor's database.
    #[cfg(feature = "remote")]
    pub(crate) fn has_history_of(&self, position: Position) -> bool {
        self.db.position().has_history_of(position)
    }

    /// Returns the last committed position; `None` if no position was committed.
    ///
    /// # Errors
    /// `Corruption` if the stored value is not a position.
    pub fn position(&self) -> Result<Option<Position>> {
        let text = self.db.catalog.note(None, &self.note())?;
        text.map(|text| text.parse()).transpose().map_err(|error: Error| {
            Error::corrupt("catalog".as_ref(), 0, "cursor", error.to_string())
        })
    }

    /// Returns the commits after the cursor's position, as from [`Db::changes`]. A cursor without a
    /// position starts at the oldest kept commit and stores that position, which costs a commit.
    ///
    /// # Errors
    /// As [`Db::changes`], and the errors that every write can return.
    pub fn changes(&self) -> Result<Changes> {
        if let Some(position) = self.position()? {
            return self.db.changes(position);
        }
        // Store the position now, because at the next call the oldest position may be a later one.
        let oldest = self.db.oldest_position()?;
        self.commit(oldest)?;
        self.db.changes(oldest)
    }

    /// Records that everything up to `position` has been processed. The record is durable on
    /// return; it costs a commit.
    ///
    /// # Errors
    /// `InvalidInput` for a position that is before the cursor's or of another history, and the
    /// errors that every write can return.
    pub fn commit(&self, position: Position) -> Result<()> {
        let known = self.position()?.filter(|known| known.incarnation == position.incarnation);
        if position.incarnation != self.db.engine.reader().incarnation() {
            let problem = format!("{position} is a position of another history of the database");
            return Err(Error::new(ErrorKind::InvalidInput, problem));
        }
        if let Some(known) = known.filter(|known| *known > position) {
            let problem = format!("the cursor {} is at {known}, after {position}", self.name);
            return Err(Error::new(ErrorKind::InvalidInput, problem));
        }
        self.db.catalog.set_note(None, &self.note(), Some(&position.to_string()))
    }

    /// Removes the cursor.
    ///
    /// # Errors
    /// The errors that every write can return.
    pub fn remove(&self) -> Result<()> {
        self.db.catalog.set_note(None, &self.note(), None)
    }

    fn note(&self) -> String {
        format!("{CURSOR}{}", self.name)
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("name", &self.name).finish_non_exhaustive()
    }
}

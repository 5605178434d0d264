//! The change feed as users have it: where it begins, and cursors that remember a position by name.
//!
//! Not here: reading logs (`lsm::recovery::change_log`), decoding their records (`feed`).

mod feed;

pub use feed::{Change, Changes, Commit, Position};

use std::fmt;

use crate::error::{Error, ErrorKind, Result};
use crate::lsm::ChangeLog;

use super::Db;

/// How names of cursors are told from other notes.
const CURSOR: &str = "cursor-";
/// The longest name of a cursor, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// A position that the database keeps under a name, for whoever deals with its changes.
///
/// A consumer that deals with each commit and then [commits](Self::commit) the position sees every commit at least once,
/// and after a crash again only those since the last position it committed. Whoever keeps the position beside his results,
/// in one transaction, sees each exactly once, and needs no cursor.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// use rowstone::{Change, Db, Entity};
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
    /// Behind the last commit that readers see: changes since here are those that come. Whoever copies the database and
    /// goes on from here takes the position first and copies then: what came in between comes again, which changes nothing.
    /// Commits weaker than `Sync` may be among what is copied and be taken back by a power cut: [`sync`](Self::sync) first,
    /// or copy from a reader, which shows what is durable.
    pub fn position(&self) -> Position {
        Position {
            incarnation: self.engine.reader().incarnation(),
            seq: self.engine.reader().published(),
        }
    }

    /// The oldest position from which changes are still kept. Everything before it is in the database, or gone.
    ///
    /// # Errors
    /// `Corruption`, `Io`.
    pub fn oldest_position(&self) -> Result<Position> {
        let seq = ChangeLog::open(self.engine.env(), None)?.given;
        Ok(Position { incarnation: self.engine.reader().incarnation(), seq })
    }

    /// The commits after `since`, as far as they are durable now; the result goes on with later ones when it is asked
    /// again, also those of another process if this database is read only. Reads the logs: those that recovery needs, and
    /// those that [`Options::keep_changes`](crate::Options::keep_changes) keeps. Never leaves one out.
    ///
    /// A table is called by the number that it has, such as `t5`, if its creation lies before `since` and it came after a
    /// read-only database was opened: open that anew.
    ///
    /// # Errors
    /// `ChangesLost` if some commit after `since` is no longer kept, or `since` is of another history: copy the database
    /// and go on from its [`position`](Self::position). `Corruption`, `Io`.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use rowstone::{Change, Db, Entity};
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
        // A reader cannot tell: the writer may have made it, and not be done yet with telling others.
        if self.engine.maintenance().writable().is_ok() && since > self.position() {
            let problem = format!(
                "{since} is of another history of this database, which ends at {}: copy it and go on from there",
                self.position()
            );
            return Err(Error::new(ErrorKind::ChangesLost, problem));
        }
        Changes::new(since, self.engine.env(), self.catalog.names_by_id())
    }

    /// The cursor of this name. It is there once a position is committed to it; until then it stands at the
    /// [oldest position](Self::oldest_position).
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
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The position that was committed last; `None` if none was.
    ///
    /// # Errors
    /// `Corruption` if what is kept is no position.
    pub fn position(&self) -> Result<Option<Position>> {
        let text = self.db.catalog.note(None, &self.note())?;
        let read = text.map(|text| text.parse());
        read.transpose().map_err(|error: Error| {
            Error::corrupt("catalog".as_ref(), 0, "cursor", error.to_string())
        })
    }

    /// The commits after its position, as [`Db::changes`] gives them. A cursor without one begins with the oldest commit
    /// that is kept, and remembers that: it costs a commit.
    ///
    /// # Errors
    /// As [`Db::changes`], and as every write.
    pub fn changes(&self) -> Result<Changes> {
        match self.position()? {
            Some(position) => self.db.changes(position),
            // Noted, or the next reading would begin with what is the oldest then.
            None => {
                let oldest = self.db.oldest_position()?;
                self.commit(oldest)?;
                self.db.changes(oldest)
            }
        }
    }

    /// Everything up to `position` has been dealt with. Durable when this returns; costs a commit.
    ///
    /// # Errors
    /// `InvalidInput` for a position that is before the cursor's, or of another history; as every write.
    pub fn commit(&self, position: Position) -> Result<()> {
        let known = self.position()?.filter(|known| known.incarnation == position.incarnation);
        if position.incarnation != self.db.engine.reader().incarnation() {
            let problem = format!("{position} is a position of another history of the database");
            return Err(Error::new(ErrorKind::InvalidInput, problem));
        }
        if let Some(known) = known.filter(|known| *known > position) {
            let problem = format!("the cursor {} stands at {known}, behind {position}", self.name);
            return Err(Error::new(ErrorKind::InvalidInput, problem));
        }
        self.db.catalog.set_note(None, &self.note(), Some(&position.to_string()))
    }

    /// Forgets the cursor.
    ///
    /// # Errors
    /// As every write.
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

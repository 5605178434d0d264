//! The change feed as users have it: positions, commits, and cursors that remember a position by name.
//!
//! Not here: reading logs (`lsm::recovery::change_log`), what a record says (`changes`).

use std::fmt;
use std::str::FromStr;

use crate::changes::{Feed, LoggedChange, LoggedCommit};
use crate::error::{Error, ErrorKind, Result};
use crate::lsm::ChangeLog;
use crate::model::{DateTime, Entity, Seq};
use crate::query::KeyRange;

use super::Db;

/// How names of cursors are told from other notes.
const CURSOR: &str = "cursor-";
/// The longest name of a cursor, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// A place between two commits of one history of a database: everything up to a commit came before it.
///
/// Positions of one history are ordered; a restored database begins another one. The text form, by [`Display`](fmt::Display)
/// and [`FromStr`], is the history in 16 hexadecimal digits, `-`, and the commit's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    incarnation: u64,
    seq: Seq,
}

/// What one commit did, all of it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Commit {
    /// Behind this commit: what to go on from when it has been dealt with.
    pub position: Position,
    /// When it was made: the Timestamp of every entity that it wrote, and as an ETag their tag.
    pub timestamp: DateTime,
    /// At least one, in the order in which they take effect. An entity group is one commit.
    pub changes: Vec<Change>,
}

/// One thing that a commit did. Tables are named as they were created.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// A table was created.
    TableCreated {
        /// Its name.
        table: String,
    },
    /// A table was deleted, with all that was in it.
    TableDropped {
        /// Its name; in lower case if it was created before the oldest change that is kept.
        table: String,
    },
    /// An entity was written: inserted, replaced or merged.
    Put {
        /// Its table.
        table: String,
        /// All of it, as it is after the commit.
        entity: Entity,
    },
    /// An entity was deleted.
    Deleted {
        /// Its table.
        table: String,
        /// Its PartitionKey.
        partition_key: String,
        /// Its RowKey.
        row_key: String,
    },
    /// All entities of a range were deleted at once.
    RangeDeleted {
        /// Their table.
        table: String,
        /// The range.
        range: KeyRange,
    },
    /// Entities of a table outlived their time to live.
    Expired {
        /// Their table.
        table: String,
        /// Those with a Timestamp before this are gone.
        before: DateTime,
    },
    /// The entities of a range came in from another database, with Timestamps of their own. They are not listed: read the
    /// range, in which there was nothing before.
    Imported {
        /// Their table.
        table: String,
        /// Where they lie.
        range: KeyRange,
    },
}

/// The commits from a position on, in order. `None` means that no other commit is durable now: ask again later.
///
/// Only what is durable is given: nothing that was given is taken back by a power cut. After `ChangesLost` it does not go
/// on; after another error it may be asked again.
pub struct Changes {
    feed: Feed,
    incarnation: u64,
}

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
        let seq = ChangeLog::open(self.engine.env(), None)?.given();
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
        let incarnation = self.engine.reader().incarnation();
        if since.incarnation != incarnation {
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
        let names = self.catalog.names_by_id();
        let feed = Feed::new(ChangeLog::open(self.engine.env(), Some(since.seq))?, names);
        Ok(Changes { feed, incarnation })
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

impl Position {
    /// The number of the commit that it lies behind: the Seq of every entity that this wrote.
    pub fn seq(self) -> Seq {
        self.seq
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.incarnation, self.seq)
    }
}

impl FromStr for Position {
    type Err = Error;

    /// # Errors
    /// `InvalidInput` for what [`Display`](fmt::Display) does not write.
    fn from_str(text: &str) -> Result<Self> {
        let parts = text.split_once('-').filter(|(history, seq)| {
            let is_hex = history.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            history.len() == 16 && is_hex && seq.bytes().all(|b| b.is_ascii_digit())
        });
        let read = |(history, seq): (&str, &str)| {
            let incarnation = u64::from_str_radix(history, 16).ok()?;
            let seq = seq.parse().ok().map(Seq).filter(|seq| *seq <= Seq::MAX)?;
            Some(Position { incarnation, seq })
        };
        parts.and_then(read).ok_or_else(|| {
            let problem = format!(
                "{text:?} is no position: 16 hexadecimal digits, a hyphen and a number, as `changes` prints it"
            );
            Error::new(ErrorKind::InvalidInput, problem)
        })
    }
}

impl Changes {
    /// Behind everything that was given, and behind commits that say nothing about tables and entities.
    pub fn position(&self) -> Position {
        Position { incarnation: self.incarnation, seq: self.feed.given() }
    }

    fn commit(&self, commit: LoggedCommit) -> Result<Commit> {
        let LoggedCommit { seq, changes } = commit;
        let changes = changes.into_iter().map(Change::of).collect::<Result<Vec<_>>>()?;
        let position = Position { incarnation: self.incarnation, seq };
        Ok(Commit { position, timestamp: time_of(seq), changes })
    }
}

impl Iterator for Changes {
    type Item = Result<Commit>;

    fn next(&mut self) -> Option<Self::Item> {
        let commit = self.feed.next().transpose()?;
        Some(commit.and_then(|commit| self.commit(commit)))
    }
}

impl Change {
    /// The table that it is about.
    pub fn table(&self) -> &str {
        match self {
            Change::TableCreated { table }
            | Change::TableDropped { table }
            | Change::Put { table, .. }
            | Change::Deleted { table, .. }
            | Change::RangeDeleted { table, .. }
            | Change::Expired { table, .. }
            | Change::Imported { table, .. } => table,
        }
    }

    fn of(change: LoggedChange) -> Result<Self> {
        Ok(match change {
            LoggedChange::Created(name) => Change::TableCreated { table: (*name).to_owned() },
            LoggedChange::Dropped(name) => Change::TableDropped { table: (*name).to_owned() },
            LoggedChange::Put { table, entity } => {
                Change::Put { table: (*table).to_owned(), entity }
            }
            LoggedChange::Deleted { table, partition_key, row_key } => {
                Change::Deleted { table: (*table).to_owned(), partition_key, row_key }
            }
            LoggedChange::SpanDeleted { table, id, span } => {
                let range = KeyRange::of_span(&span, id)?;
                Change::RangeDeleted { table: (*table).to_owned(), range }
            }
            LoggedChange::Expired { table, below, .. } => {
                Change::Expired { table: (*table).to_owned(), before: time_of(below) }
            }
            LoggedChange::Imported { table, id, span } => {
                let range = KeyRange::of_span(&span, id)?;
                Change::Imported { table: (*table).to_owned(), range }
            }
        })
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
        let text = self.db.note(None, &self.note())?;
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
        self.db.set_note(None, &self.note(), Some(&position.to_string()))
    }

    /// Forgets the cursor.
    ///
    /// # Errors
    /// As every write.
    pub fn remove(&self) -> Result<()> {
        self.db.set_note(None, &self.note(), None)
    }

    fn note(&self) -> String {
        format!("{CURSOR}{}", self.name)
    }
}

fn time_of(seq: Seq) -> DateTime {
    DateTime::from_ticks(seq.ticks()).unwrap_or(DateTime::MAX)
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("position", &self.position()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("name", &self.name).finish_non_exhaustive()
    }
}

//! Implements the change feed, which returns the commits of the logs in order. Each commit lists
//! all its changes of tables and entities.
//!
//! Invariants
//! * an entity is returned as it was after its commit, because the log contains whole rows;
//! * a commit with internal changes only (gates, notes, cursors) is skipped;
//! * a table has the name it was created with; if it was created before the oldest log and has been
//!   dropped, only its lower-case name is known.
//!
//! `lsm::recovery::change_log` decides which commits are durable and kept.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::codec::DecodeError;
use crate::error::{Error, ErrorKind, Result};
use crate::format::Kind;
use crate::format::key::{decode_part, decode_user_key, table_of};
use crate::format::names::TableId;
use crate::format::row::decode_row;
use crate::format::shape::decode_shape;
use crate::format::span::Span;
use crate::format::wal::{self, Group};
use crate::fs::Watch;
use crate::lsm::{ChangeLog, Env, Logged, More};
use crate::model::{DateTime, Entity, Seq, Shape};
use crate::query::KeyRange;

/// The number of commits, of changes, and of bytes of entities at which one read ends.
const BATCH_COMMITS: usize = 256;
const BATCH_ENTRIES: usize = 4_096;
const BATCH_BYTES: usize = 1 << 20;

/// A position in the history of a database, between the commit with a given Seq and the next one.
///
/// Positions of one history are ordered; a restored database begins another history. The text form,
/// by [`Display`](fmt::Display) and [`FromStr`], is the history in 16 hexadecimal digits, `-`, and
/// the commit's Seq.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub(super) incarnation: u64,
    pub(super) seq: Seq,
}

/// All changes of one commit.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Commit {
    /// The position after this commit, from which to continue when the commit has been processed.
    pub position: Position,
    /// The time of the commit, which is the Timestamp of every entity that it wrote. Their ETags
    /// contain the same time.
    pub timestamp: DateTime,
    /// At least one change, in order of effect. An entity group is one commit.
    pub changes: Vec<Change>,
}

/// One change of a commit. A table's name is spelled as it was when the table was created.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// A table was created.
    TableCreated {
        /// The table's name.
        table: String,
    },
    /// A table was deleted with all its contents.
    TableDropped {
        /// The table's name, in lower case if it was created before the oldest kept change.
        table: String,
    },
    /// An entity was written: inserted, replaced or merged.
    Put {
        /// The entity's table.
        table: String,
        /// The whole entity after the commit.
        entity: Entity,
    },
    /// An entity was deleted.
    Deleted {
        /// The entity's table.
        table: String,
        /// The entity's PartitionKey.
        partition_key: String,
        /// The entity's RowKey.
        row_key: String,
    },
    /// All entities of a range were deleted together.
    RangeDeleted {
        /// The entities' table.
        table: String,
        /// The key range.
        range: KeyRange,
    },
    /// Entities of a table reached their time to live.
    Expired {
        /// The entities' table.
        table: String,
        /// Entities with an earlier Timestamp have expired.
        before: DateTime,
    },
    /// The entities of a range were imported from another database, with their own Timestamps. The
    /// feed does not list them: read the range, which had no entities before the import.
    Imported {
        /// The entities' table.
        table: String,
        /// The key range that contains the entities.
        range: KeyRange,
    },
}

/// The commits after a position, in order. `None` means that no further commit is durable yet; call
/// again later.
///
/// Only durable commits are returned, so a power cut never reverts a returned commit. After
/// `ChangesLost` the iterator cannot continue; after another error the call may be retried.
pub struct Changes {
    incarnation: u64,
    log: ChangeLog,
    tables: Tables,
    shapes: Shapes,
    /// Commits that were read and not returned yet.
    ready: VecDeque<Commit>,
    given: Seq,
    /// Created by the first [`wait`](Self::wait).
    watch: Option<Box<dyn Watch>>,
}

/// The shapes (names and types of a row's properties) that the current log defines, by number.
type Shapes = BTreeMap<u32, Arc<Shape>>;

/// The known names of tables.
struct Tables {
    names: BTreeMap<TableId, Arc<str>>,
    /// Whether the rest of the logs was searched for the names of dropped tables.
    is_looked_ahead: bool,
}

const TABLES: &[u8] = b"table";

impl Position {
    /// Returns the Seq of the commit before this position, which is also the Seq of every entity
    /// that the commit wrote.
    pub fn seq(self) -> Seq {
        self.seq
    }

    /// Whether both positions are of one history.
    pub(crate) fn has_history_of(self, other: Position) -> bool {
        self.incarnation == other.incarnation
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
    /// `InvalidInput` for a text that is not a position as printed by [`Display`](fmt::Display).
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

impl Change {
    /// Returns the table that changed.
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

    /// Returns about how many bytes of memory the entity takes.
    fn size(&self) -> usize {
        match self {
            Change::Put { entity, .. } => entity.size_at_most(),
            _ => 0,
        }
    }
}

impl Changes {
    /// Creates a feed of the commits after `since`. `names` contains the names of the current
    /// tables.
    pub(super) fn new(
        since: Position,
        env: &Env,
        names: BTreeMap<TableId, Arc<str>>,
    ) -> Result<Self> {
        let log = ChangeLog::open(env, Some(since.seq))?;
        let (incarnation, given) = (since.incarnation, log.given);
        let tables = Tables { names, is_looked_ahead: false };
        let (shapes, ready) = (Shapes::new(), VecDeque::new());
        Ok(Self { incarnation, log, tables, shapes, ready, given, watch: None })
    }

    /// Returns the position after the last returned commit, and after any skipped commits that
    /// follow it.
    pub fn position(&self) -> Position {
        let seq = if self.ready.is_empty() { self.log.given } else { self.given };
        Position { incarnation: self.incarnation, seq }
    }

    /// Waits until the database's files have changed since the last `wait`, for `at_most` at the
    /// most. Call it when the iterator has returned `None`, and call the iterator again afterwards;
    /// there may be no new commit yet. The first call returns at once. On Linux a commit by any
    /// process of this machine ends the wait; elsewhere, and with a database in memory, the wait
    /// ends after a tenth of a second.
    ///
    /// # Errors
    /// `Io`.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use std::time::Duration;
    /// use rowstone::{Db, Entity};
    /// let db = Db::open_in_memory()?;
    /// let mut changes = db.changes(db.position())?;
    /// let writer = std::thread::spawn({
    ///     let db = db.clone();
    ///     move || db.create_table("parts")?.insert(Entity::new("bolts", "m4x20"))
    /// });
    /// let mut commits = 0;
    /// while commits < 2 {
    ///     changes.wait(Duration::from_secs(60))?;
    ///     commits += changes.by_ref().count();
    /// }
    /// # writer.join().expect("no panic")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait(&mut self, at_most: Duration) -> Result<()> {
        let Some(watch) = &mut self.watch else {
            // A change before the watch was created is found by reading once more.
            self.watch = Some(self.log.watch()?);
            return Ok(());
        };
        watch.wait(at_most).map_err(|error| Error::io("wait for changes", error))?;
        Ok(())
    }

    fn read(&mut self) -> Result<()> {
        let before = self.log.clone();
        let Self { incarnation, log, tables, shapes, ready, .. } = self;
        let (mut entries, mut bytes) = (0, 0);
        log.read(&mut |logged| {
            let (seq, changes) = match logged {
                Logged::Log => {
                    shapes.clear();
                    return Ok(More::Yes);
                }
                Logged::Import(import) => {
                    let (table, range) = tables.range(&import.span, &before)?;
                    (import.seq, vec![Change::Imported { table, range }])
                }
                Logged::Commit { group, is_new: false, path, at, .. } => {
                    define(shapes, group).map_err(|error| Error::decode(path, at, error))?;
                    return Ok(More::Yes);
                }
                Logged::Commit { seq, group, is_new: true, path, at } => {
                    let damage = |error| Error::decode(path, at, error);
                    define(shapes, group).map_err(damage)?;
                    (seq, changes(group, seq, shapes, tables, &before, &damage)?)
                }
            };
            entries += changes.len();
            bytes += changes.iter().map(Change::size).sum::<usize>();
            if !changes.is_empty() {
                let position = Position { incarnation: *incarnation, seq };
                ready.push_back(Commit { position, timestamp: time_of(seq), changes });
            }
            let is_enough = entries >= BATCH_ENTRIES || bytes >= BATCH_BYTES;
            Ok(if is_enough || ready.len() >= BATCH_COMMITS { More::No } else { More::Yes })
        })
    }
}

impl Iterator for Changes {
    type Item = Result<Commit>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty()
            && let Err(error) = self.read()
        {
            return Some(Err(error));
        }
        let commit = self.ready.pop_front()?;
        self.given = commit.position.seq;
        Some(Ok(commit))
    }
}

impl Tables {
    fn name(&mut self, id: TableId, from: &ChangeLog) -> Result<String> {
        if !self.names.contains_key(&id) && !self.is_looked_ahead {
            match self.look_ahead(from) {
                // If a log was removed while it was read, the name of the table stays unknown.
                Err(error) if error.kind() != ErrorKind::ChangesLost => return Err(error),
                _ => self.is_looked_ahead = true,
            }
        }
        Ok(self.names.entry(id).or_insert_with(|| id.to_string().into()).to_string())
    }

    /// Returns the table that contains a span, and the span as a key range of that table.
    fn range(&mut self, span: &Span, from: &ChangeLog) -> Result<(String, KeyRange)> {
        let id = table_of(&span.low).unwrap_or(TableId::CATALOG);
        Ok((self.name(id, from)?, KeyRange::of_span(span, id)?))
    }

    /// Adds the lower-case names of the tables that commits after `from` drop.
    fn look_ahead(&mut self, from: &ChangeLog) -> Result<()> {
        let names = &mut self.names;
        from.clone().read(&mut |logged| {
            let Logged::Commit { group, .. } = logged else { return Ok(More::Yes) };
            let dropped = group.changes().filter_map(|change| match change {
                wal::Change::Dropped(id) => Some(id),
                _ => None,
            });
            for id in dropped {
                if let Some(lower) = dropped_name(group) {
                    names.entry(id).or_insert(lower);
                }
            }
            Ok(More::Yes)
        })
    }
}

/// Returns the lower-case name of the table that `group` drops.
fn dropped_name(group: &Group<'_>) -> Option<Arc<str>> {
    let mut deleted = group.entries().filter(|entry| entry.kind == Kind::Delete);
    deleted.find_map(|entry| {
        let key = [group.key_prefix, entry.key_suffix].concat();
        let (table, partition, row) = decode_user_key(&key).ok()?;
        let is_name = table == TableId::CATALOG && partition == TABLES;
        let name = is_name.then(|| decode_part(row).ok()).flatten()?;
        Some(Arc::from(&*name))
    })
}

fn define(shapes: &mut Shapes, group: &Group<'_>) -> Result<(), DecodeError> {
    for definition in group.shapes() {
        shapes.insert(definition.number, Arc::new(decode_shape(definition.shape)?));
    }
    Ok(())
}

/// Returns the changes of a group, without internal catalog rows.
fn changes(
    group: &Group<'_>,
    seq: Seq,
    shapes: &Shapes,
    tables: &mut Tables,
    from: &ChangeLog,
    damage: &dyn Fn(DecodeError) -> Error,
) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    let mut key = group.key_prefix.to_vec();
    let mut created: BTreeMap<TableId, Arc<str>> = BTreeMap::new();
    for entry in group.entries() {
        key.truncate(group.key_prefix.len());
        key.extend_from_slice(entry.key_suffix);
        let (id, partition, row) = decode_user_key(&key).map_err(damage)?;
        let entity = match entry.kind {
            Kind::Put => {
                let row_ref =
                    decode_row(entry.row, |number| shapes.get(&number)).map_err(damage)?;
                Some(Entity::from_row(partition, row, seq, &row_ref).map_err(damage)?)
            }
            Kind::Delete => None,
        };
        match entity {
            Some(entity) if id == TableId::CATALOG => {
                created.extend(named(partition, &entity));
            }
            None if id == TableId::CATALOG => {}
            Some(entity) => {
                changes.push(Change::Put { table: tables.name(id, from)?, entity });
            }
            None => changes.push(Change::Deleted {
                table: tables.name(id, from)?,
                partition_key: decode_part(partition).map_err(damage)?.into_owned(),
                row_key: decode_part(row).map_err(damage)?.into_owned(),
            }),
        }
    }
    for change in group.changes() {
        changes.push(match change {
            wal::Change::Created(id) => {
                let name = created.get(&id).cloned().unwrap_or_else(|| id.to_string().into());
                tables.names.insert(id, Arc::clone(&name));
                Change::TableCreated { table: name.to_string() }
            }
            wal::Change::Dropped(id) => {
                let known = tables.names.get(&id).cloned().or_else(|| dropped_name(group));
                let table = known.map_or_else(|| id.to_string(), |name| name.to_string());
                Change::TableDropped { table }
            }
            wal::Change::RangeTombstone(span) => {
                let (table, range) = tables.range(&span, from)?;
                Change::RangeDeleted { table, range }
            }
            wal::Change::Ttl(below, span) => {
                let id = table_of(&span.low).unwrap_or(TableId::CATALOG);
                Change::Expired { table: tables.name(id, from)?, before: time_of(below) }
            }
        });
    }
    Ok(changes)
}

/// Returns the number and name of a table from its catalog row.
fn named(partition: &[u8], row: &Entity) -> Option<(TableId, Arc<str>)> {
    if partition != TABLES {
        return None;
    }
    let id = u32::try_from(row.get::<i64>("Id").ok()?).ok()?;
    let name: String = row.get("Name").ok()?;
    Some((TableId(id), name.into()))
}

fn time_of(seq: Seq) -> DateTime {
    DateTime::from_ticks(seq.ticks()).unwrap_or(DateTime::MAX)
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("position", &self.position()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Db;

    #[test]
    fn the_commits_in_memory_are_bounded() {
        let db = Db::open_in_memory().unwrap();
        let table = db.create_table("Tab").unwrap();
        let since = db.position();
        for row in 0..40 {
            let entity = Entity::new("p", row.to_string());
            table.insert(entity.with("A", vec![0; 60_000])).unwrap();
        }
        db.sync().unwrap();
        let mut changes = db.changes(since).unwrap();
        let mut count = 0;
        while let Some(commit) = changes.next() {
            count += commit.unwrap().changes.len();
            let bytes: usize =
                changes.ready.iter().flat_map(|commit| &commit.changes).map(Change::size).sum();
            assert!(bytes < BATCH_BYTES, "{bytes}");
        }
        assert_eq!(count, 40);
    }
}

//! The change feed: the commits of the logs in words of tables and entities, in order, each whole.
//!
//! Invariants
//! * an entity is given as it was after its commit, whatever kind of write made it so: the log holds whole rows;
//! * a commit in which only the database keeps house (gates, notes, cursors) is passed over, and its Seq counts as given;
//! * a table has the name that it was created with; one that was created before the oldest log and dropped since, its name
//!   in lower case, which is all that is left of it.
//!
//! Not here: which commits are durable, and which are still there (`lsm::recovery::change_log`); positions and cursors (`db`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::codec::DecodeError;
use crate::error::{Error, ErrorKind, Result};
use crate::format::Kind;
use crate::format::key::{decode_part, decode_user_key, table_of};
use crate::format::names::TableId;
use crate::format::row::decode_row;
use crate::format::shape::decode_shape;
use crate::format::span::Span;
use crate::format::wal::{Change, Group};
use crate::lsm::{ChangeLog, Logged, More};
use crate::model::{Entity, Seq, Shape};

/// Commits that are read at a time, and about how many bytes of entities.
const BATCH_COMMITS: usize = 256;
const BATCH_ENTRIES: usize = 4_096;

/// See the module.
pub(crate) struct Feed {
    log: ChangeLog,
    tables: Tables,
    shapes: Shapes,
    /// Read, and not given yet.
    ready: VecDeque<LoggedCommit>,
    given: Seq,
}

/// One commit that says something about tables or entities.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LoggedCommit {
    pub(crate) seq: Seq,
    pub(crate) changes: Vec<LoggedChange>,
}

/// What a commit did, in the order in which it did it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LoggedChange {
    Created(Arc<str>),
    Dropped(Arc<str>),
    Put {
        table: Arc<str>,
        entity: Entity,
    },
    Deleted {
        table: Arc<str>,
        partition_key: String,
        row_key: String,
    },
    /// All entities of the span are gone.
    SpanDeleted {
        table: Arc<str>,
        id: TableId,
        span: Span,
    },
    /// Those with a Seq below `below` are gone.
    Expired {
        table: Arc<str>,
        id: TableId,
        span: Span,
        below: Seq,
    },
    /// Entities came in with Seqs of their own.
    Imported {
        table: Arc<str>,
        id: TableId,
        span: Span,
    },
}

/// The shapes of the log under way, by number.
type Shapes = BTreeMap<u32, Arc<Shape>>;

/// The names of tables as they come up.
struct Tables {
    names: BTreeMap<TableId, Arc<str>>,
    /// What was found of tables that are not there any more.
    is_looked_ahead: bool,
}

const TABLES: &[u8] = b"table";

impl Feed {
    /// What follows in `log`; `names` are those of the tables there are now.
    pub(crate) fn new(log: ChangeLog, names: BTreeMap<TableId, Arc<str>>) -> Self {
        let given = log.given();
        let tables = Tables { names, is_looked_ahead: false };
        Self { log, tables, shapes: Shapes::new(), ready: VecDeque::new(), given }
    }

    /// Everything up to here was given.
    pub(crate) fn given(&self) -> Seq {
        if self.ready.is_empty() { self.log.given() } else { self.given }
    }

    /// The next commit; `None` if no other is durable now.
    ///
    /// # Errors
    /// `ChangesLost`, `Corruption`, `Io`.
    pub(crate) fn next(&mut self) -> Result<Option<LoggedCommit>> {
        if self.ready.is_empty() {
            self.read()?;
        }
        let next = self.ready.pop_front();
        if let Some(commit) = &next {
            self.given = commit.seq;
        }
        Ok(next)
    }

    fn read(&mut self) -> Result<()> {
        let before = self.log.clone();
        let Self { log, tables, shapes, ready, .. } = self;
        let mut entries = 0;
        log.read(&mut |logged| {
            let commit = match logged {
                Logged::Log => {
                    shapes.clear();
                    return Ok(More::Yes);
                }
                Logged::Import(import) => {
                    let (seq, span) = (import.seq, import.span.clone());
                    let id = table_of(&span.low).unwrap_or(TableId::CATALOG);
                    let table = tables.name(id, &before)?;
                    let changes = vec![LoggedChange::Imported { table, id, span }];
                    LoggedCommit { seq, changes }
                }
                Logged::Commit { group, is_new: false, path, at, .. } => {
                    define(shapes, group).map_err(|error| Error::decode(path, at, error))?;
                    return Ok(More::Yes);
                }
                Logged::Commit { seq, group, is_new: true, path, at } => {
                    let damage = |error| Error::decode(path, at, error);
                    define(shapes, group).map_err(damage)?;
                    let changes = changes(group, seq, shapes, tables, &before, &damage)?;
                    LoggedCommit { seq, changes }
                }
            };
            entries += commit.changes.len();
            if !commit.changes.is_empty() {
                ready.push_back(commit);
            }
            let is_enough = ready.len() >= BATCH_COMMITS || entries >= BATCH_ENTRIES;
            Ok(if is_enough { More::No } else { More::Yes })
        })
    }
}

impl Tables {
    fn name(&mut self, id: TableId, from: &ChangeLog) -> Result<Arc<str>> {
        if !self.names.contains_key(&id) && !self.is_looked_ahead {
            match self.look_ahead(from) {
                // What is kept may have gone since: then nobody says the name any more.
                Err(error) if error.kind() != ErrorKind::ChangesLost => return Err(error),
                _ => self.is_looked_ahead = true,
            }
        }
        let name = self.names.entry(id);
        Ok(Arc::clone(name.or_insert_with(|| id.to_string().into())))
    }

    /// Learns the names of tables that are dropped further on.
    fn look_ahead(&mut self, from: &ChangeLog) -> Result<()> {
        let names = &mut self.names;
        from.clone().read(&mut |logged| {
            let Logged::Commit { group, .. } = logged else { return Ok(More::Yes) };
            let dropped = group.changes().filter_map(|change| match change {
                Change::Dropped(id) => Some(id),
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

/// The lower-case name of the table that `group` drops.
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

/// What a group says, without the rows by which the database keeps house.
fn changes(
    group: &Group<'_>,
    seq: Seq,
    shapes: &Shapes,
    tables: &mut Tables,
    from: &ChangeLog,
    damage: &dyn Fn(DecodeError) -> Error,
) -> Result<Vec<LoggedChange>> {
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
                changes.push(LoggedChange::Put { table: tables.name(id, from)?, entity });
            }
            None => changes.push(LoggedChange::Deleted {
                table: tables.name(id, from)?,
                partition_key: decode_part(partition).map_err(damage)?.into_owned(),
                row_key: decode_part(row).map_err(damage)?.into_owned(),
            }),
        }
    }
    for change in group.changes() {
        changes.push(match change {
            Change::Created(id) => {
                let name = created.get(&id).cloned().unwrap_or_else(|| id.to_string().into());
                tables.names.insert(id, Arc::clone(&name));
                LoggedChange::Created(name)
            }
            Change::Dropped(id) => {
                let known = tables.names.get(&id).cloned().or_else(|| dropped_name(group));
                LoggedChange::Dropped(known.unwrap_or_else(|| id.to_string().into()))
            }
            Change::RangeTombstone(span) => {
                let id = table_of(&span.low).unwrap_or(TableId::CATALOG);
                LoggedChange::SpanDeleted { table: tables.name(id, from)?, id, span }
            }
            Change::Ttl(below, span) => {
                let id = table_of(&span.low).unwrap_or(TableId::CATALOG);
                LoggedChange::Expired { table: tables.name(id, from)?, id, span, below }
            }
        });
    }
    Ok(changes)
}

/// The number and the name in a table's row of the catalog.
fn named(partition: &[u8], row: &Entity) -> Option<(TableId, Arc<str>)> {
    if partition != TABLES {
        return None;
    }
    let id = u32::try_from(row.get::<i64>("Id").ok()?).ok()?;
    let name: String = row.get("Name").ok()?;
    Some((TableId(id), name.into()))
}

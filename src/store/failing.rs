//! A store for tests that fails groups.

use std::sync::atomic::{AtomicU64, Ordering};

use super::pages::Side;
use super::{Condition, EntityPage, PageQuery, TableStore};
use crate::db::Db;
use crate::error::{Code, Error, ErrorKind, Result};
use crate::json::odata::{Metadata, entity_text};
use crate::model::{DateTime, ETag, Entity};
use crate::table::EntityGroup;

/// A store that fails a group, before or after it is committed, or writes to it first.
pub(super) struct Failing {
    pub(super) db: Db,
    pub(super) groups: AtomicU64,
    pub(super) reads: AtomicU64,
    /// The size of the largest group as JSON, in bytes.
    pub(super) largest: AtomicU64,
    pub(super) fail: Fail,
}

#[derive(Clone, Copy)]
pub(super) enum Fail {
    Never,
    /// The group with this number fails, and all later ones.
    From(u64),
    /// Groups of more operations are refused as a whole.
    Over(usize),
    /// Each second group is committed, but its answer is lost.
    Lost,
    /// Each second group is not committed, and its answer is lost.
    Unsent,
    /// Each group is preceded by a write of one of its entities and a deletion of another.
    Races,
    /// The RowKey `001` is refused in each group of more operations than this.
    Refuses(usize),
    /// Each group has an entity that exists, but is not found; queries ignore their filters.
    Lies,
    /// Queries are refused as too frequent.
    Busy,
    /// Pages after the first have the entities in reverse order.
    Disorder,
    /// The positions of pages are a cycle, in which there is one entity or none.
    Repeats(bool),
}

impl Failing {
    fn query_of_cycle(
        &self,
        table: &str,
        page: &PageQuery<'_>,
        has_entity: bool,
    ) -> Result<EntityPage> {
        let next = match page.continuation.map(ToString::to_string) {
            Some(text) if text == "61.62.63" => "61.62.64",
            _ => "61.62.63",
        };
        let mut found = self.db.query(table, &PageQuery { top: 1, ..PageQuery::default() })?;
        found.entities.retain(|_| has_entity);
        found.next = Some(next.parse()?);
        Ok(found)
    }
}

impl TableStore for Failing {
    fn create_table(&self, table: &str) -> Result<()> {
        TableStore::create_table(&self.db, table)
    }

    fn delete_table(&self, table: &str) -> Result<()> {
        TableStore::delete_table(&self.db, table)
    }

    fn tables(&self) -> Result<Vec<String>> {
        TableStore::tables(&self.db)
    }

    fn get(&self, table: &str, pk: &str, rk: &str, select: &[&str]) -> Result<Option<Entity>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.db.get(table, pk, rk, select)
    }

    fn insert(&self, table: &str, entity: &Entity) -> Result<ETag> {
        self.db.insert(table, entity)
    }

    fn replace(&self, table: &str, entity: &Entity, condition: &Condition) -> Result<ETag> {
        self.db.replace(table, entity, condition)
    }

    fn merge(&self, table: &str, entity: &Entity, condition: &Condition) -> Result<ETag> {
        self.db.merge(table, entity, condition)
    }

    fn delete(&self, table: &str, pk: &str, rk: &str, condition: &Condition) -> Result<()> {
        self.db.delete(table, pk, rk, condition)
    }

    fn commit(&self, table: &str, group: &EntityGroup) -> Result<Vec<Option<ETag>>> {
        let number = self.groups.fetch_add(1, Ordering::Relaxed);
        let json = group.operations().map(|operation| {
            operation.entity().map_or(0, |entity| entity_text(entity, Metadata::TYPES).len())
        });
        let json: usize = json.sum();
        self.largest.fetch_max(json as u64, Ordering::Relaxed);
        match self.fail {
            Fail::From(first) if number >= first => {
                return Err(Error::new(ErrorKind::Io, "the group fails"));
            }
            Fail::Over(most) if group.len() > most => {
                return Err(Error::refused(Code::RequestBodyTooLarge));
            }
            Fail::Refuses(most) if group.len() > most => {
                let is_refused = |keys: (&str, &str)| keys.1 == "001";
                let mut operations = group.operations();
                if let Some(index) = operations.position(|op| is_refused(op.keys())) {
                    return Err(Error::refused(Code::InvalidInput).at_index(index));
                }
            }
            Fail::Lies => return Err(Error::refused(Code::EntityAlreadyExists).at_index(0)),
            Fail::Unsent if number % 2 == 1 => {
                return Err(Error::new(ErrorKind::OutcomeUnknown, "lost"));
            }
            Fail::Races if number == 0 => {
                let keys: Vec<_> = (0..2).filter_map(|index| group.keys(index)).collect();
                let (pk, rk) = keys[0];
                self.db.upsert(table, &Entity::new(pk, rk).with("New", true))?;
                self.db.delete(table, keys[1].0, keys[1].1, &Condition::Any)?;
            }
            _ => {}
        }
        let done = self.db.commit(table, group);
        match self.fail {
            Fail::Lost if number % 2 == 1 => Err(Error::new(ErrorKind::OutcomeUnknown, "lost")),
            _ => done,
        }
    }

    fn now(&self) -> Result<DateTime> {
        self.db.now()
    }

    fn query(&self, table: &str, page: &PageQuery<'_>) -> Result<EntityPage> {
        let number = self.reads.fetch_add(1, Ordering::Relaxed);
        if let Fail::Repeats(has_entity) = self.fail {
            return self.query_of_cycle(table, page, has_entity);
        }
        let page = match self.fail {
            Fail::Busy => return Err(Error::refused(Code::ServerBusy)),
            Fail::Lies => PageQuery { filter: "", ..*page },
            _ => *page,
        };
        let mut found = self.db.query(table, &page)?;
        if matches!(self.fail, Fail::Disorder) && number > 0 {
            found.entities.reverse();
        }
        Ok(found)
    }
}

/// Returns a store with an empty table.
pub(super) fn failing(fail: Fail) -> Failing {
    let db = Db::open_in_memory().unwrap();
    db.create_table("Tab").unwrap();
    let [groups, reads, largest] = [(); 3].map(|()| AtomicU64::new(0));
    Failing { db, groups, reads, largest, fail }
}

/// Returns all entities of the table.
pub(super) fn entities(store: &Failing) -> Vec<Entity> {
    let side = Side { store: &store.db, table: "Tab" };
    side.rows("", &[], 1_000).collect::<Result<_>>().unwrap()
}

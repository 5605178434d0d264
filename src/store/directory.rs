//! A database in a directory is a store of tables.

use super::continuation::Continuation;
use super::table_store::{Condition, EntityPage, PageQuery, TableStore};
use crate::db::Db;
use crate::error::{Code, Result};
use crate::model::{DateTime, ETag, Entity};
use crate::query::{KeyRange, Token};
use crate::table::EntityGroup;

impl TableStore for Db {
    fn create_table(&self, table: &str) -> Result<()> {
        Db::create_table(self, table).map(drop)
    }

    fn delete_table(&self, table: &str) -> Result<()> {
        Db::delete_table(self, table)
    }

    fn tables(&self) -> Result<Vec<String>> {
        Db::tables(self)
    }

    fn get(
        &self,
        table: &str,
        partition_key: &str,
        row_key: &str,
        select: &[&str],
    ) -> Result<Option<Entity>> {
        let table = self.table(table)?;
        match select {
            [] => table.get(partition_key, row_key),
            select if select.contains(&"*") => table.get(partition_key, row_key),
            select => table.get_select(partition_key, row_key, select),
        }
    }

    fn insert(&self, table: &str, entity: &Entity) -> Result<ETag> {
        self.table(table)?.insert(entity)
    }

    fn replace(&self, table: &str, entity: &Entity, condition: &Condition) -> Result<ETag> {
        let table = self.table(table)?;
        match condition {
            Condition::None => table.upsert(entity),
            Condition::Any => table.replace(entity),
            Condition::Match(etag) => table.replace_if(entity, etag),
        }
    }

    fn merge(&self, table: &str, entity: &Entity, condition: &Condition) -> Result<ETag> {
        let table = self.table(table)?;
        match condition {
            Condition::None => table.upsert_merge(entity),
            Condition::Any => table.merge(entity),
            Condition::Match(etag) => table.merge_if(entity, etag),
        }
    }

    fn delete(
        &self,
        table: &str,
        partition_key: &str,
        row_key: &str,
        condition: &Condition,
    ) -> Result<()> {
        let table = self.table(table)?;
        match condition {
            Condition::Match(etag) => table.delete_if(partition_key, row_key, etag),
            Condition::Any => table.delete(partition_key, row_key),
            Condition::None => match table.delete(partition_key, row_key) {
                Err(error) if error.code() == Code::ResourceNotFound.as_str() => Ok(()),
                done => done,
            },
        }
    }

    fn commit(&self, table: &str, group: &EntityGroup) -> Result<Vec<Option<ETag>>> {
        // As in the answer of a service, the first operation fails.
        self.table(table).map_err(|error| error.at_index(0))?.commit(group)
    }

    fn delete_range(&self, table: &str, range: &KeyRange) -> Result<bool> {
        self.table(table)?.delete_range(range).map(|()| true)
    }

    fn now(&self) -> Result<DateTime> {
        Ok(DateTime::from_ticks(self.engine().reader().session_time()).unwrap_or(DateTime::MAX))
    }

    fn query(&self, table: &str, page: &PageQuery<'_>) -> Result<EntityPage> {
        let store = self.incarnation().to_string();
        let mut query = self.table(table)?.query(page.filter)?;
        if !page.select.is_empty() {
            query = query.select(page.select);
        }
        if let Some(continuation) = page.continuation {
            let (partition_key, row_key) = continuation.of(&store)?;
            let (partition_key, row_key) = (partition_key.to_owned(), row_key.to_owned());
            query = query.after(Token { partition_key, row_key });
        }
        let found = query.page(if page.top == 0 { 1_000 } else { page.top })?;
        let next = found.next().cloned().map(|Token { partition_key, row_key }| {
            Continuation::new(&store, partition_key, row_key)
        });
        Ok(EntityPage { entities: found.into_entities(), next })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::clock::{ManualClock, TICKS_PER_SECOND};
    use crate::fs::MemFs;
    use crate::options::Options;

    const NOW: u64 = 134_000_000_000_000_000;

    #[test]
    fn the_time_of_a_store_is_never_behind_and_keeps_only_the_lead_of_a_commit() {
        let clock = Arc::new(ManualClock::new(NOW));
        let fs = MemFs::new();
        let open = || {
            let options = Options::new().fs(Arc::new(fs.clone())).clock(Arc::clone(&clock) as _);
            options.open("db").unwrap()
        };
        let year = 365 * 86_400 * TICKS_PER_SECOND;
        let db = open();
        let now = |db: &Db| db.now().unwrap().ticks();
        Db::create_table(&db, "Tab").unwrap();
        db.set_ttl("Tab", Some(Duration::from_secs(3_600))).unwrap();
        // The clock is wrong for a while without a commit.
        clock.jump(NOW + year);
        assert_eq!(now(&db), NOW + year);
        clock.jump(NOW);
        assert!(now(&db) < NOW + TICKS_PER_SECOND, "a deadline would be a year away");
        // It is not behind the last commit, though the wall clock is.
        clock.jump(NOW + year);
        let etag = db.insert("Tab", &Entity::new("p", "r")).unwrap();
        clock.jump(NOW);
        assert_eq!(now(&db), NOW + year);
        clock.advance(Duration::from_secs(1));
        assert_eq!(now(&db), NOW + year + TICKS_PER_SECOND, "it does not stand still");
        db.close().unwrap();
        let db = open();
        let written = db.get("Tab", "p", "r", &[]).unwrap().unwrap();
        assert_eq!(written.etag(), Some(etag));
        assert!(db.now().unwrap() >= written.timestamp().unwrap());
        assert!(now(&db) < NOW + year + TICKS_PER_SECOND);
    }
}

//! A database in a directory is a store of tables.

use super::continuation::Continuation;
use super::table_store::{Condition, EntityPage, PageQuery, TableStore};
use crate::db::Db;
use crate::error::{Code, Result};
use crate::model::{ETag, Entity};
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

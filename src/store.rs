//! One interface to a database in a directory and to a Table service.
//!
//! Invariants
//! * [`TableStore`] has only verbs that both have, with the same errors;
//! * ETags and continuations are opaque, and a continuation is accepted only by its own store.

use std::fmt;
use std::str::FromStr;

use crate::db::Db;
use crate::error::{Code, Error, Result};
use crate::model::{ETag, Entity};
use crate::query::Token;
#[cfg(feature = "remote")]
pub use crate::remote::Remote;
use crate::table::EntityGroup;

/// A store of tables: a [`Db`], or a Table service at another address.
///
/// All verbs block. They take the name of the table, so that no handle costs a round trip. The
/// kinds and codes of their errors, and the index of the operation that fails in a group, are those
/// of the methods of [`Table`] with the same name. Durability, snapshots and the change feed are
/// methods of [`Db`] only.
///
/// ```
/// use rowstone::store::{Condition, TableStore};
/// use rowstone::{Db, Entity};
///
/// fn raise(store: &dyn TableStore) -> rowstone::Result<()> {
///     let mut part = store.get("parts", "bolts", "m4x20", &[])?.expect("it was inserted");
///     let price: f64 = part.get("Price")?;
///     part.set("Price", price * 1.1);
///     let read = part.etag().expect("it was read");
///     store.replace("parts", &part, &Condition::Match(read)).map(drop)
/// }
///
/// # fn main() -> rowstone::Result<()> {
/// let store = Db::open_in_memory()?;
/// TableStore::create_table(&store, "parts")?;
/// store.insert("parts", &Entity::new("bolts", "m4x20").with("Price", 0.12))?;
/// raise(&store)
/// # }
/// ```
pub trait TableStore: Send + Sync {
    /// Creates a table.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidInput` for a name that breaks the rules.
    fn create_table(&self, table: &str) -> Result<()>;

    /// Deletes a table with all its entities.
    ///
    /// # Errors
    /// `NotFound` if it does not exist.
    fn delete_table(&self, table: &str) -> Result<()>;

    /// Returns the names of all tables, in order.
    fn tables(&self) -> Result<Vec<String>>;

    /// Reads an entity with the properties in `select`, or with all if it is empty.
    ///
    /// # Errors
    /// `NotFound` if the table does not exist. A missing entity is `None`.
    fn get(
        &self,
        table: &str,
        partition_key: &str,
        row_key: &str,
        select: &[&str],
    ) -> Result<Option<Entity>>;

    /// Inserts an entity, which must not exist.
    fn insert(&self, table: &str, entity: &Entity) -> Result<ETag>;

    /// Replaces an entity.
    fn replace(&self, table: &str, entity: &Entity, condition: &Condition) -> Result<ETag>;

    /// Sets the given properties of an entity, and keeps its other properties.
    fn merge(&self, table: &str, entity: &Entity, condition: &Condition) -> Result<ETag>;

    /// Deletes an entity.
    fn delete(
        &self,
        table: &str,
        partition_key: &str,
        row_key: &str,
        condition: &Condition,
    ) -> Result<()>;

    /// Commits a group atomically. Returns the ETags in the order of the operations; `None` for a
    /// delete.
    fn commit(&self, table: &str, group: &EntityGroup) -> Result<Vec<Option<ETag>>>;

    /// Reads a page of at most 1,000 entities that match a filter.
    ///
    /// # Errors
    /// `InvalidInput` for a malformed filter and for a continuation of another store.
    fn query(&self, table: &str, page: &PageQuery<'_>) -> Result<EntityPage>;

    /// Inserts an entity or replaces it: [`replace`](Self::replace) with [`Condition::None`].
    fn upsert(&self, table: &str, entity: &Entity) -> Result<ETag> {
        self.replace(table, entity, &Condition::None)
    }

    /// Inserts an entity or merges it: [`merge`](Self::merge) with [`Condition::None`].
    fn upsert_merge(&self, table: &str, entity: &Entity) -> Result<ETag> {
        self.merge(table, entity, &Condition::None)
    }
}

/// The state in which an entity must be for a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The entity may be missing. A replace or a merge then inserts it, and a delete does nothing.
    None,
    /// The entity exists.
    Any,
    /// The entity exists and has this ETag.
    Match(ETag),
}

/// A request for a page of a query.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageQuery<'a> {
    /// The filter; all entities match the empty text.
    pub filter: &'a str,
    /// The properties that are returned; all if this is empty.
    pub select: &'a [&'a str],
    /// The maximum number of entities, at most 1,000; 0 means 1,000.
    pub top: usize,
    /// The position at which the page begins; the first page has none.
    pub continuation: Option<&'a Continuation>,
}

/// The entities of a page, in key order, and the position of the next page.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EntityPage {
    /// The entities. A page may be short or empty and still have a next one.
    pub entities: Vec<Entity>,
    /// The position of the next page; `None` after the last one.
    pub next: Option<Continuation>,
}

/// The position of a page of a query. It prints as a text without spaces, which parses back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// The store that returned the position.
    store: String,
    partition: String,
    row: String,
}

impl Continuation {
    #[cfg(feature = "remote")]
    pub(crate) fn new(store: &str, partition: String, row: String) -> Self {
        Self { store: store.to_owned(), partition, row }
    }

    /// Checks that the store with this name returned the continuation.
    pub(crate) fn of(&self, store: &str) -> Result<(&str, &str)> {
        match self.store == store {
            true => Ok((&self.partition, &self.row)),
            false => Err(Error::refused_with(
                Code::InvalidInput,
                "the continuation is of another store: begin again without one",
            )),
        }
    }
}

/// Each part is written in hexadecimal digits, because a key may be any text.
impl fmt::Display for Continuation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in [&self.store, &self.partition, &self.row].into_iter().enumerate() {
            f.write_str(if i > 0 { "." } else { "" })?;
            part.bytes().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        }
        Ok(())
    }
}

impl FromStr for Continuation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let malformed = || Error::refused_with(Code::InvalidInput, "not a continuation");
        let part = |text: &str| {
            let (digits, _) = text.as_bytes().as_chunks::<2>();
            let byte = |two: &[u8; 2]| {
                let hex = std::str::from_utf8(two).ok().filter(|two| !two.starts_with('+'))?;
                u8::from_str_radix(hex, 16).ok()
            };
            let bytes: Option<Vec<u8>> = digits.iter().map(byte).collect();
            let is_even = text.len() % 2 == 0;
            String::from_utf8(bytes.filter(|_| is_even)?).ok()
        };
        let mut parts = text.split('.').map(part);
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(Some(store)), Some(Some(partition)), Some(Some(row)), None) => {
                Ok(Continuation { store, partition, row })
            }
            _ => Err(malformed()),
        }
    }
}

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
        self.table(table)?.commit(group)
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
        let next = found.next().cloned().map(|Token { partition_key, row_key }| Continuation {
            store,
            partition: partition_key,
            row: row_key,
        });
        Ok(EntityPage { entities: found.into_entities(), next })
    }
}

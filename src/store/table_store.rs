//! The interface of a store of tables.

use super::continuation::Continuation;
use crate::error::Result;
use crate::model::{DateTime, ETag, Entity};
use crate::query::KeyRange;
use crate::table::EntityGroup;

/// A store of tables: a [`Db`](crate::Db), or a Table service at another address.
///
/// All verbs block. They take the name of the table, so that no handle costs a round trip. The
/// kinds and codes of their errors, and the index of the operation that fails in a group, are those
/// of the methods of [`Table`](crate::Table) with the same name. [`update`](super::update()) and
/// [`transact`](super::transact) are verbs with a closure. Durability, snapshots and the change
/// feed are methods of [`Db`](crate::Db) only.
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

    /// Reads an entity with the properties in `select`, or with all if it is empty or has `*`.
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

    /// Deletes an entity, or does nothing if it is missing: [`delete`](Self::delete) with
    /// [`Condition::None`].
    ///
    /// # Errors
    /// `NotFound` if the table does not exist.
    fn delete_if_exists(&self, table: &str, partition_key: &str, row_key: &str) -> Result<()> {
        self.delete(table, partition_key, row_key, &Condition::None)
    }

    /// Commits a group atomically. Returns the ETags in the order of the operations; `None` for a
    /// delete. After a lost answer, a `Remote` may know only one of the ETags.
    fn commit(&self, table: &str, group: &EntityGroup) -> Result<Vec<Option<ETag>>>;

    /// Returns the store's time in UTC, by which deadlines that are stored in entities are
    /// compared, whatever the clocks of the clients show.
    ///
    /// * The time of a database is the wall clock of its machine, or the last Timestamp plus the
    ///   monotonic time since, if that is later. So it is never behind the Timestamp of an entity
    ///   that can be read, and advances at least as fast as the monotonic clock after a commit. It
    ///   decreases only if the wall clock was ahead for a while without a commit, or if the
    ///   database is opened again after the wall clock was set back, and then not below the last
    ///   Timestamp. It is not the clock by which rows [expire](crate::Db::set_ttl).
    /// * The time of an endpoint is the latest `Date` of an answer plus the monotonic time since.
    ///   If there was no answer for a minute, a request is sent. With `rowstone serve` this is the
    ///   time of the database, late by at most about a second and the time of the answer, but never
    ///   ahead. It decreases only if the service's clock was set back or is slower than this
    ///   machine's.
    ///
    /// # Errors
    /// `Io` if the endpoint sends no date. Those of a read.
    fn now(&self) -> Result<DateTime>;

    /// Reads a page of at most 1,000 entities that match a filter.
    ///
    /// # Errors
    /// `InvalidInput` for a malformed filter and for a continuation of another store.
    fn query(&self, table: &str, page: &PageQuery<'_>) -> Result<EntityPage>;

    /// Deletes all entities of a range in one commit, if the store can; Azure Table storage cannot.
    /// Returns whether it was done.
    ///
    /// # Errors
    /// `NotFound` if the table does not exist.
    fn delete_range(&self, table: &str, range: &KeyRange) -> Result<bool> {
        let _ = (table, range);
        Ok(false)
    }

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
    /// The properties that are returned; all if this is empty or has `*`. Keys, ETag and Timestamp
    /// are always returned.
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

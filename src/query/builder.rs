//! A query under construction: the table, the filter or key range, and the requested result.
//!
//! `begin` and `exec` execute it; `entities`, `page`, `aggregate` and `explain` return its results.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::model::Projector;
use crate::table::{Snapshot, Table, TableView};

use super::filter::Filter;
use super::key_range::KeyRange;
use super::token::Token;

/// Reads the entities that match a filter, in ascending order of PartitionKey and RowKey (ordinal
/// UTF-16).
///
/// All entities of one iteration, or of one page, are from a single state of the table. Only keys
/// that can meet the filter's conditions on keys are read; see [`explain`](Self::explain).
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// # use rowstone::{Db, Entity};
/// let parts = Db::open_in_memory()?.create_table("parts")?;
/// parts.insert(Entity::new("bolts", "m4x20").with("Price", 0.12))?;
/// parts.insert(Entity::new("bolts", "m4x25").with("Price", 0.71))?;
/// let cheap = parts.query("PartitionKey eq 'bolts' and Price lt 0.5")?;
/// for entity in cheap.top(10) {
///     assert_eq!(entity?.row_key(), "m4x20");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Query {
    pub(super) table: Table,
    pub(super) range: KeyRange,
    pub(super) filter: Filter,
    pub(super) at: Option<Snapshot>,
    pub(super) select: Option<Vec<String>>,
    pub(super) top: Option<usize>,
    pub(super) from: Option<Token>,
    pub(super) reverse: bool,
    pub(super) limits: Limits,
}

/// The limits of a page other than its number of entities.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) time: Duration,
    pub(super) bytes: usize,
    /// The seed of [`Query::service_like`], which determines where pages end early.
    pub(super) seed: Option<u64>,
}

impl Table {
    /// Reads the entities that match `filter`, which is a text or a [`Filter`] with bound values.
    ///
    /// # Errors
    /// `InvalidInput` with the position of the problem, `NotImplemented` for functions and
    /// arithmetic.
    pub fn query<F>(&self, filter: F) -> Result<Query>
    where
        F: TryInto<Filter>,
        Error: From<F::Error>,
    {
        let filter = filter.try_into()?;
        filter.check()?;
        Ok(Query::new(self, KeyRange::all(), filter))
    }

    /// Reads the entities of a key range.
    pub fn scan(&self, range: KeyRange) -> Query {
        Query::new(self, range, Filter::all())
    }
}

impl TableView<'_> {
    /// Reads the entities that match `filter` as of the snapshot. The query keeps the snapshot.
    ///
    /// # Errors
    /// As [`Table::query`].
    pub fn query<F>(&self, filter: F) -> Result<Query>
    where
        F: TryInto<Filter>,
        Error: From<F::Error>,
    {
        Ok(Query { at: Some(self.snapshot.clone()), ..self.table.query(filter)? })
    }

    /// Reads the entities of a key range as of the snapshot. The query keeps the snapshot.
    pub fn scan(&self, range: KeyRange) -> Query {
        Query { at: Some(self.snapshot.clone()), ..self.table.scan(range) }
    }
}

impl Query {
    fn new(table: &Table, range: KeyRange, filter: Filter) -> Self {
        Self {
            table: table.clone(),
            range,
            filter,
            at: None,
            select: None,
            top: None,
            from: None,
            reverse: false,
            limits: Limits::default(),
        }
    }

    /// Returns only these properties; `*` returns all. Keys and Timestamp are always returned. An
    /// entity without any of these properties is returned, too.
    pub fn select(mut self, names: &[&str]) -> Self {
        let all = names.contains(&"*");
        self.select = (!all).then(|| names.iter().map(|name| (*name).to_owned()).collect());
        self
    }

    /// Returns only these properties, or all if `names` is empty or `None`.
    #[cfg(any(feature = "cli", feature = "sim"))]
    pub(crate) fn select_some(self, names: Option<&[String]>) -> Self {
        let Some(names) = names else { return self };
        self.select(&names.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Returns the filter, whose depth was checked when the query was created.
    pub(crate) fn into_filter(self) -> Filter {
        self.filter
    }

    /// Returns at most `count` entities.
    pub fn top(mut self, count: usize) -> Self {
        self.top = Some(count);
        self
    }

    /// Continues where a page ended: at the key in `token` or, if its entity was deleted, at the
    /// next key in the direction of reading. The keys in a token may be any texts, even texts that
    /// no entity can have as keys.
    pub fn after(mut self, token: Token) -> Self {
        self.from = Some(token);
        self
    }

    /// Reads from the last key to the first. This is an extension: Azure Table storage has no
    /// descending order. If RowKeys ascend with time, `reverse` and [`top`](Self::top) return the
    /// newest entities of a partition. An entity costs about as much as a [`Table::get`], and no
    /// blocks are skipped.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// # use rowstone::{Db, Entity, Filter};
    /// let log = Db::open_in_memory()?.create_table("log")?;
    /// for second in 0..60 {
    ///     log.insert(Entity::new("door", &format!("{second:04}")).with("Open", second % 7 == 0))?;
    /// }
    /// let newest = log.query(Filter::partition("door"))?.reverse().top(2);
    /// let keys = newest.into_iter().map(|e| Ok(e?.row_key().to_owned()));
    /// let keys = keys.collect::<rowstone::Result<Vec<_>>>()?;
    /// assert_eq!(keys, ["0059", "0058"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn reverse(mut self) -> Self {
        self.reverse = true;
        self
    }

    /// Sets the maximum time for reading a page. A page that takes longer ends early, with a token.
    /// Default: 5 s. The clock is read after every few thousand rows, or fewer if the filter is
    /// long. The time for planning is not included. Counts, aggregates and iteration have no such
    /// limit.
    pub fn time_budget(mut self, time: Duration) -> Self {
        self.limits.time = time;
        self
    }

    /// Sets the maximum size of a page in bytes. A page ends with the entity at which the sum of
    /// the sizes ([`Entity::size`](crate::Entity::size)) reaches this number. Default: 4 MiB.
    pub fn byte_budget(mut self, bytes: usize) -> Self {
        self.limits.bytes = bytes;
        self
    }

    /// Ends some pages early, as Azure Table storage may do under load: such a page is short or
    /// empty, or ends between two partitions. The seed determines where pages end. Use this to test
    /// an application: a reader that follows the tokens must get the same entities. A query for a
    /// single entity is never cut short, as in Azure Table storage. This has no effect on reverse
    /// queries.
    pub fn service_like(mut self, seed: u64) -> Self {
        self.limits.seed = Some(seed);
        self
    }

    pub(super) fn projector(&self) -> Option<Projector> {
        self.select.as_ref().map(|names| Projector::new(names))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { time: Duration::from_secs(5), bytes: 4 << 20, seed: None }
    }
}

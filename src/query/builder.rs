//! A query under construction: the table, the filter or key range, and the requested result.
//!
//! Not here: its execution (`begin`, `exec`), and the ways to read it: `entities`, `page`,
//! `aggregate`, `explain`.

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
/// All entities of one iteration, or of one page, are from a single state of the table. The
/// filter's conditions on keys become key intervals, and nothing else is read; see
/// [`explain`](Self::explain).
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

/// The conditions under which a page ends before it is full.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) time: Duration,
    pub(super) bytes: usize,
    /// Pages end early as those of a busy service.
    pub(super) seed: Option<u64>,
}

impl Table {
    /// Reads the entities that match `filter`: its text, or a [`Filter`] with bound values.
    ///
    /// # Errors
    /// `InvalidInput` with the position, `NotImplemented` for functions and arithmetic.
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
    /// Reads the entities that match `filter` as of the snapshot, which the query keeps.
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

    /// Reads the entities of a key range as of the snapshot, which the query keeps.
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

    /// Returns only these properties; `*` returns all. Keys and Timestamp are always known. An
    /// entity without any of these properties is returned with none.
    pub fn select(mut self, names: &[&str]) -> Self {
        let all = names.contains(&"*");
        self.select = (!all).then(|| names.iter().map(|name| (*name).to_owned()).collect());
        self
    }

    /// Only these properties, if any are named.
    #[cfg(any(feature = "cli", feature = "sim"))]
    pub(crate) fn select_some(self, names: Option<&[String]>) -> Self {
        let Some(names) = names else { return self };
        self.select(&names.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The filter, which was checked.
    pub(crate) fn into_filter(self) -> Filter {
        self.filter
    }

    /// Returns at most `count` entities.
    pub fn top(mut self, count: usize) -> Self {
        self.top = Some(count);
        self
    }

    /// Continues where a page ended: at the key in `token` or, if that was deleted, at the next key
    /// in the direction of reading. Any texts are accepted, even if they cannot be keys.
    pub fn after(mut self, token: Token) -> Self {
        self.from = Some(token);
        self
    }

    /// Reads from the last key to the first, an extension: the service has no descending order.
    /// With [`top`](Self::top) this returns the newest n entities of a partition with RowKeys that
    /// ascend with time. An entity costs about as much as a [`Table::get`], and zones skip nothing.
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

    /// The time for reading a page, after which it ends early with a token; 5 s by default. The
    /// clock is read between stretches of some thousands of rows, or fewer if the filter is long.
    /// Counts, aggregates and iteration have no such budget, and planning is not included in it.
    pub fn time_budget(mut self, time: Duration) -> Self {
        self.limits.time = time;
        self
    }

    /// The size of a page: it ends with the entity at which the sum of sizes, by the size formula,
    /// reaches this many bytes; 4 MiB by default.
    pub fn byte_budget(mut self, bytes: usize) -> Self {
        self.limits.bytes = bytes;
        self
    }

    /// Ends pages as a busy service does, controlled by a seed: short pages, empty ones, and ones
    /// that end between two partitions. For tests of applications: a reader that follows the tokens
    /// sees the same entities. A query for a single point is answered completely, as by the
    /// service. No effect in reverse.
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

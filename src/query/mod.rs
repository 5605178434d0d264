//! Reading many entities: filters and key ranges, in order, page by page or one by one.
//!
//! A filter's text becomes a tree (`parse`, `filter`); `plan` turns what it says about keys into intervals, and `eval`
//! compiles the rest for each shape; `exec` carries the plan out in one state of the database.
//!
//! Not here: points by their keys (`table`).

mod aggregate;
mod compare;
mod eval;
mod exec;
mod explain;
pub(crate) mod filter;
mod key_range;
mod key_set;
mod page;
mod parse;
mod plan;
mod prune;
mod slow;
mod spans;

pub use aggregate::{Aggregate, Number};
pub use explain::Explain;
pub use filter::{Filter, Prop, prop};
pub use key_range::KeyRange;
pub use page::{Page, Token};

use std::ops::ControlFlow;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::format::key::{TABLE_ID_BYTES, decode_part};
use crate::lsm::{RowFilter, ScanRow, Step};
use crate::model::{Entity, Projector};
use crate::table::{Breadth, RowView, Snapshot, Table, TableView};

use eval::Evaluator;
use exec::Cursor;
use filter::Node;
use page::Limits;
use plan::{Class, Plan, plan};

/// Reads the entities that meet a filter, in ascending order of PartitionKey and RowKey (ordinal UTF-16).
///
/// All of one iteration, and all of one page, comes from one state of the table. What the filter says about keys
/// becomes intervals of keys, and nothing else is read; see [`explain`](Self::explain).
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
    table: Table,
    range: KeyRange,
    filter: Filter,
    at: Option<Snapshot>,
    select: Option<Vec<String>>,
    top: Option<usize>,
    from: Option<Token>,
    reverse: bool,
    limits: Limits,
}

/// The entities of a query, one by one.
pub struct Entities {
    cursor: Result<Cursor<Evaluator>>,
    projector: Option<Projector>,
    left: usize,
    /// How many were asked for.
    top: usize,
    table: Table,
    /// A row was handed out.
    is_begun: bool,
}

impl Table {
    /// Reads the entities that meet `filter`: its text, or a [`Filter`] with bound values.
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
    /// Reads the entities that meet `filter` as of the snapshot, which the query keeps.
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

    /// Only these properties; `*` is all. Keys and Timestamp are always known. An entity without any of them has none.
    pub fn select(mut self, names: &[&str]) -> Self {
        let all = names.contains(&"*");
        self.select = (!all).then(|| names.iter().map(|name| (*name).to_owned()).collect());
        self
    }

    /// The filter, which was checked.
    pub(crate) fn into_filter(self) -> Filter {
        self.filter
    }

    /// At most `count` entities.
    pub fn top(mut self, count: usize) -> Self {
        self.top = Some(count);
        self
    }

    /// Goes on where a page ended: at the key in `token` or, if that is gone, at the next one in the direction of
    /// reading. Any texts will do, also such as no key can be.
    pub fn after(mut self, token: Token) -> Self {
        self.from = Some(token);
        self
    }

    /// From the last key to the first: beyond the service, which has no descending order. With [`top`](Self::top) it
    /// gives the newest n of a partition whose RowKeys ascend with time. An entity costs about as much as a
    /// [`Table::get`], and zones skip nothing.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// # use rowstone::{Db, Entity, Filter};
    /// let log = Db::open_in_memory()?.create_table("log")?;
    /// for second in 0..60 {
    ///     log.insert(Entity::new("door", &format!("{second:04}")).with("Open", second % 7 == 0))?;
    /// }
    /// let newest = log.query(Filter::partition("door"))?.reverse().top(2);
    /// let keys: Vec<_> = newest.into_iter().map(|e| Ok(e?.row_key().to_owned())).collect::<rowstone::Result<_>>()?;
    /// assert_eq!(keys, ["0059", "0058"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn reverse(mut self) -> Self {
        self.reverse = true;
        self
    }

    /// How long reading a page may take before it ends early, with a token; 5 s unless told otherwise. The clock is
    /// looked at between stretches of some thousands of rows, of fewer if the filter is long. Counts, aggregates and
    /// iteration have no such budget, and planning is outside of it.
    pub fn time_budget(mut self, time: Duration) -> Self {
        self.limits.time = time;
        self
    }

    /// A page ends with the entity that brings it to this many bytes by the size formula; 4 MiB unless told otherwise.
    pub fn byte_budget(mut self, bytes: usize) -> Self {
        self.limits.bytes = bytes;
        self
    }

    /// Pages as a busy service cuts them, by a seed: short ones, empty ones, and ones that end between two partitions.
    /// For tests of applications: all that a reader who follows tokens sees is the same. A query for one point is
    /// answered whole, as there. In reverse this does nothing.
    pub fn service_like(mut self, seed: u64) -> Self {
        self.limits.seed = Some(seed);
        self
    }

    /// One page of at most `count` entities, and where the next one begins. A [`top`](Self::top) bounds
    /// each page, not their sum: a token follows as long as there is more. A page may be short, or empty, and have a
    /// token all the same.
    ///
    /// # Errors
    /// `InvalidInput` for more than 1,000; `Corruption`, `Io`; `NotFound` once the table was dropped.
    pub fn page(self, count: usize) -> Result<Page> {
        page::read(&self, count, None)
    }

    /// As [`page`](Self::page), but calls `with` with each row where it lies, without copying it; gives where the next page
    /// begins. Rows have all properties, whatever is [selected](Self::select): it decides what counts for the bytes of a page.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// # use rowstone::{Db, Entity};
    /// let parts = Db::open_in_memory()?.create_table("parts")?;
    /// parts.insert(Entity::new("bolts", "m4x20").with("Stock", 1_200))?;
    /// parts.insert(Entity::new("bolts", "m4x25").with("Stock", 300))?;
    /// let mut keys = Vec::new();
    /// let next = parts.query("Stock gt 0")?.page_rows(1, |row| {
    ///     keys.push(row.row_key()?.into_owned());
    ///     Ok(())
    /// })?;
    /// assert_eq!(keys, ["m4x20"]);
    /// assert_eq!(next.map(|token| token.row_key), Some("m4x25".to_owned()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`page`](Self::page), and those of `with`.
    pub fn page_rows(
        self,
        count: usize,
        mut with: impl FnMut(&RowView<'_>) -> Result<()>,
    ) -> Result<Option<Token>> {
        self.page_texts(count, |row| with(row).map(|()| (0, None)))
    }

    /// The same for a page that becomes a text: `with` tells the bytes of it that a row takes, so that a page ends whose
    /// rows are small and their texts are not, and the size of the row if it knows it. It is left to `with` to check the
    /// values that it writes.
    pub(crate) fn page_texts(
        self,
        count: usize,
        with: impl FnMut(&RowView<'_>) -> Result<(usize, Option<usize>)>,
    ) -> Result<Option<Token>> {
        page::read_rows(&self, count, |row| row.size(), with)
    }

    /// A page, and what it took.
    ///
    /// # Errors
    /// As [`page`](Self::page).
    pub fn page_explained(self, count: usize) -> Result<(Page, Explain)> {
        let mut explain = Explain::new(&self);
        let page = page::read(&self, count, Some(&mut explain))?;
        Ok((page, explain))
    }

    /// Reads all that the query would, and says what it took: intervals, files, blocks, rows, time.
    ///
    /// # Errors
    /// As [`page`](Self::page).
    pub fn explain(self) -> Result<Explain> {
        explain::run(&self)
    }

    /// How many entities there are, beyond the service: nothing is copied, and blocks all of whose rows match are not
    /// read. [`top`](Self::top) and the budgets of pages do not count here.
    ///
    /// # Errors
    /// As [`page`](Self::page).
    pub fn count(self) -> Result<u64> {
        aggregate::count(&self)
    }

    /// The count, and how many blocks of rows were not read for it.
    #[cfg(feature = "sim")]
    pub(crate) fn count_explained(self) -> Result<(u64, u64)> {
        aggregate::count_explained(&self)
    }

    /// The same for each PartitionKey that has any, in the order of reading; all of them are in the answer at once.
    ///
    /// # Errors
    /// As [`page`](Self::page).
    pub fn count_by_partition(self) -> Result<Vec<(String, u64)>> {
        aggregate::count_by_partition(&self)
    }

    /// Least, greatest, sum and average of a numeric property, beyond the service: nothing is copied. Keys and Timestamp
    /// are no properties here. [`top`](Self::top) and the budgets of pages do not count here.
    ///
    /// # Errors
    /// As [`page`](Self::page).
    pub fn aggregate(self, property: &str) -> Result<Aggregate> {
        aggregate::of_property(&self, property)
    }

    /// The same for each PartitionKey that has any entity, in the order of reading; all of them are in the answer at
    /// once.
    ///
    /// # Errors
    /// As [`page`](Self::page).
    pub fn aggregate_by_partition(self, property: &str) -> Result<Vec<(String, Aggregate)>> {
        aggregate::by_partition(&self, property)
    }

    /// Calls `with` with each row where it lies, without copying it, until it breaks.
    ///
    /// # Errors
    /// As [`page`](Self::page), and those of `with`.
    pub fn for_each_row(
        self,
        mut with: impl FnMut(&RowView<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut cursor = self.begin()?;
        let top = self.top.unwrap_or(usize::MAX);
        let mut left = top;
        while left > 0 {
            match cursor.advance()? {
                Step::End => break,
                Step::Pause => continue,
                Step::Row => left -= 1,
            }
            let row = cursor.row()?;
            if top - left > 1 {
                self.table.engine.book_row(row.key);
            }
            if with(&RowView::new(row.key, row.seq, row.row))?.is_break() {
                break;
            }
            let engine = &self.table.engine;
            let visit = cursor.visit_batch(left, &mut |row: ScanRow<'_>| {
                engine.book_row(row.key);
                with(&RowView::new(row.key, row.seq, row.row))
            })?;
            left -= visit.rows;
            if visit.is_over {
                break;
            }
        }
        cursor.finish((top - left) as u64);
        Ok(())
    }

    fn begin(&self) -> Result<Cursor<Evaluator>> {
        match self.filter.node() {
            Node::All => {
                let class = Class::of_range(&self.range);
                self.begin_over(std::slice::from_ref(&self.range), class, None, |all| all)
            }
            node => self.begin_with(&plan(node), |evaluator| evaluator),
        }
    }

    fn plan(&self) -> Plan {
        match self.filter.node() {
            Node::All => Plan::of_range(&self.range),
            node => plan(node),
        }
    }

    /// Begins to carry `plan` out; `wrap` makes what is asked of rows out of the rest of the filter.
    fn begin_with<F: RowFilter>(
        &self,
        plan: &Plan,
        wrap: impl FnOnce(Evaluator) -> F,
    ) -> Result<Cursor<F>> {
        self.begin_over(&plan.intervals, plan.class, plan.rest.clone(), wrap)
    }

    /// Begins to read `intervals`, which are of this class, and to ask their rows for `rest`.
    fn begin_over<F: RowFilter>(
        &self,
        intervals: &[KeyRange],
        class: Class,
        rest: Option<Node>,
        wrap: impl FnOnce(Evaluator) -> F,
    ) -> Result<Cursor<F>> {
        let at = self.at.as_ref().map(Snapshot::seq);
        let view = self.table.engine.read_view(at);
        if at.is_none() {
            self.table.entry.gate.check(self.table.engine.published())?;
        }
        let breadth = self.breadth(class);
        self.table.entry.queries.note(breadth);
        self.table.entry.log.queries.note(breadth);
        let filter = wrap(Evaluator::new(rest));
        let table = self.table.entry.gate.table;
        let cursor = Cursor::new(view, filter, table, intervals, self);
        let engine = &self.table.engine;
        engine.throttle_query(|| cursor.partition())?;
        engine.admit_read(|span| cursor.touches(span))?;
        Ok(cursor)
    }

    /// How widely the query reads, for the counters of its table.
    fn breadth(&self, class: Class) -> Breadth {
        match class {
            Class::Empty | Class::Point => Breadth::Points,
            Class::RowRange => Breadth::RowRange,
            Class::Partition => Breadth::Partition,
            Class::PartitionRange => Breadth::PartitionRange,
            Class::Table if matches!(self.filter.node(), Node::All) => Breadth::Table,
            Class::Table => Breadth::TableScan,
        }
    }

    fn projector(&self) -> Option<Projector> {
        self.select.as_ref().map(|names| Projector::new(names))
    }
}

impl IntoIterator for Query {
    type Item = Result<Entity>;
    type IntoIter = Entities;

    fn into_iter(self) -> Entities {
        let cursor = self.begin();
        let top = self.top.unwrap_or(usize::MAX);
        let projector = self.projector();
        Entities { cursor, projector, left: top, top, table: self.table, is_begun: false }
    }
}

impl Drop for Entities {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Entities {
    /// The query is over: a slow one is kept.
    fn finish(&mut self) {
        let returned = (self.top - self.left) as u64;
        if let Ok(cursor) = &mut self.cursor {
            cursor.finish(returned);
        }
    }
}

impl Iterator for Entities {
    type Item = Result<Entity>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let next = match &mut self.cursor {
            Ok(cursor) => {
                let is_begun = std::mem::replace(&mut self.is_begun, true);
                let booked = is_begun.then_some(&self.table);
                advance(cursor, &mut self.projector, booked)
            }
            Err(error) => Err(error.clone()),
        };
        match next {
            Ok(Some(entity)) => Some(Ok(entity)),
            Ok(None) => {
                // The end was counted as an entity.
                self.left += 1;
                self.finish();
                self.left = 0;
                None
            }
            Err(error) => {
                // Answered again at every call: a scan in error never looks complete, nor goes on behind a bad row.
                self.left += 1;
                self.cursor = Err(error.clone());
                Some(Err(error))
            }
        }
    }
}

impl std::fmt::Debug for Entities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entities").field("left", &self.left).finish_non_exhaustive()
    }
}

/// The next entity, which is booked as read of `booked`.
#[inline]
fn advance(
    cursor: &mut Cursor<Evaluator>,
    projector: &mut Option<Projector>,
    booked: Option<&Table>,
) -> Result<Option<Entity>> {
    loop {
        match cursor.advance()? {
            Step::Row => {
                let row = cursor.row()?;
                if let Some(table) = booked {
                    table.engine.book_row(row.key);
                }
                return entity(row, projector).map(Some);
            }
            Step::Pause => {}
            Step::End => return Ok(None),
        }
    }
}

/// A row as an entity of its own.
#[inline]
fn entity(row: ScanRow<'_>, projector: &mut Option<Projector>) -> Result<Entity> {
    projected(&RowView::new(row.key, row.seq, row.row), projector)
}

/// The same of a view.
#[inline]
fn projected(row: &RowView<'_>, projector: &mut Option<Projector>) -> Result<Entity> {
    match projector {
        Some(projector) => row.project(projector),
        None => row.to_entity(),
    }
}

/// A row's key, or a bound, as a token. What follows the whole of a key in a bound, U+0001, no key holds: there it is
/// the last character of the token.
fn token(bound: &[u8]) -> Result<Token> {
    let damaged = |error| Error::decode("row".as_ref(), 0, error);
    let texts = bound.get(TABLE_ID_BYTES..).unwrap_or_default();
    let end = texts.iter().position(|byte| *byte == 0).unwrap_or(texts.len());
    let text = |part: Option<&[u8]>| {
        let text = decode_part(part.unwrap_or_default()).map_err(damaged);
        text.map(std::borrow::Cow::into_owned)
    };
    Ok(Token { partition_key: text(texts.get(..end))?, row_key: text(texts.get(end + 1..))? })
}

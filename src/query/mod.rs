//! Reading many entities: key ranges in order, page by page or one by one.
//!
//! Not here: filters over properties, which a later version brings; points (`table`).

mod compare;
mod filter;
mod key_range;
mod key_set;
mod page;
mod parse;
mod plan;

pub use filter::{Filter, Prop, prop};
pub use key_range::KeyRange;
pub use page::{Page, Token};

use std::ops::ControlFlow;

use crate::error::{Error, ErrorKind, Result};
use crate::format::key::{decode_part, decode_user_key, user_key};
use crate::format::span::Span;
use crate::lsm::Scan;
use crate::model::{Entity, Projector, Seq};
use crate::table::{RowView, Table, TableView};

/// A scan over a key range, in ascending order of PartitionKey and RowKey (ordinal UTF-16).
///
/// All of one iteration, and all of one page, comes from one state of the table.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// # use rowstone::{Db, Entity, KeyRange};
/// let parts = Db::open_in_memory()?.create_table("parts")?;
/// parts.insert(Entity::new("bolts", "m4x20"))?;
/// parts.insert(Entity::new("nuts", "m4"))?;
/// for entity in parts.scan(KeyRange::partition("bolts")).top(10) {
///     println!("{}", entity?.row_key());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Query {
    table: Table,
    range: KeyRange,
    at: Option<Seq>,
    select: Option<Vec<String>>,
    top: Option<usize>,
    from: Option<Token>,
}

/// A query at a snapshot, which it keeps.
#[derive(Debug)]
pub struct QueryView<'s> {
    query: Query,
    view: std::marker::PhantomData<&'s ()>,
}

/// The entities of a query, one by one.
pub struct Entities {
    scan: Result<Scan>,
    projector: Option<Projector>,
    left: usize,
}

impl Table {
    /// Reads the entities of a key range.
    pub fn scan(&self, range: KeyRange) -> Query {
        Query { table: self.clone(), range, at: None, select: None, top: None, from: None }
    }
}

impl<'s> TableView<'s> {
    /// Reads the entities of a key range as of the snapshot.
    pub fn scan(&self, range: KeyRange) -> QueryView<'s> {
        let mut query = self.table.scan(range);
        query.at = Some(self.snapshot.seq());
        QueryView { query, view: std::marker::PhantomData }
    }
}

impl Query {
    /// Only these properties; keys and Timestamp are always known. An entity without any of them has none.
    pub fn select(mut self, names: &[&str]) -> Self {
        self.select = Some(names.iter().map(|name| (*name).to_owned()).collect());
        self
    }

    /// At most `count` entities.
    pub fn top(mut self, count: usize) -> Self {
        self.top = Some(count);
        self
    }

    /// Goes on where a page ended: at the key in `token` or, if that is gone, at the next one.
    pub fn after(mut self, token: Token) -> Self {
        self.from = Some(token);
        self
    }

    /// One page of at most `count` entities and about 4 MiB, and where the next one begins. A [`top`](Self::top) bounds
    /// each page, not their sum: a token follows as long as there is more.
    ///
    /// # Errors
    /// `InvalidInput` for more than 1,000; `Corruption`, `Io`; `NotFound` once the table was dropped.
    pub fn page(self, count: usize) -> Result<Page> {
        page::read(self, count)
    }

    /// Calls `with` with each row where it lies, without copying it, until it breaks.
    ///
    /// # Errors
    /// As [`page`](Self::page), and those of `with`.
    pub fn for_each_row(
        self,
        mut with: impl FnMut(&RowView<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut scan = self.begin()?;
        let mut left = self.top.unwrap_or(usize::MAX);
        while left > 0 && scan.advance()? {
            left -= 1;
            let row = scan.row()?;
            if with(&RowView::new(row.key, row.seq, row.row))?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn begin(&self) -> Result<Scan> {
        let scan = self.table.engine.scan(&self.span(), self.at)?;
        if self.at.is_none() {
            self.table.entry.gate.check(self.table.engine.published())?;
        }
        Ok(scan)
    }

    fn span(&self) -> Span {
        let table = self.table.entry.gate.table;
        let mut span = self.range.span(table);
        if let Some(token) = &self.from {
            let from = user_key(table, &token.partition_key, &token.row_key);
            if from.as_slice() > &*span.low {
                span.low = from.into();
            }
        }
        span
    }

    fn projector(&self) -> Option<Projector> {
        let names = self.select.as_ref()?;
        Some(Projector::new(&names.iter().map(String::as_str).collect::<Vec<_>>()))
    }
}

impl QueryView<'_> {
    /// As [`Query::select`].
    pub fn select(mut self, names: &[&str]) -> Self {
        self.query = self.query.select(names);
        self
    }

    /// As [`Query::top`].
    pub fn top(mut self, count: usize) -> Self {
        self.query = self.query.top(count);
        self
    }

    /// As [`Query::after`].
    pub fn after(mut self, token: Token) -> Self {
        self.query = self.query.after(token);
        self
    }

    /// As [`Query::page`].
    ///
    /// # Errors
    /// As there.
    pub fn page(self, count: usize) -> Result<Page> {
        self.query.page(count)
    }

    /// As [`Query::for_each_row`].
    ///
    /// # Errors
    /// As there.
    pub fn for_each_row(
        self,
        with: impl FnMut(&RowView<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.query.for_each_row(with)
    }
}

impl IntoIterator for Query {
    type Item = Result<Entity>;
    type IntoIter = Entities;

    fn into_iter(self) -> Entities {
        let scan = self.begin();
        let left = self.top.unwrap_or(usize::MAX);
        Entities { scan, projector: self.projector(), left }
    }
}

impl IntoIterator for QueryView<'_> {
    type Item = Result<Entity>;
    type IntoIter = Entities;

    fn into_iter(self) -> Entities {
        self.query.into_iter()
    }
}

impl Iterator for Entities {
    type Item = Result<Entity>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let next = match &mut self.scan {
            Ok(scan) => advance(scan, &mut self.projector),
            Err(error) => Err(error.clone()),
        };
        match next {
            Ok(Some(entity)) => Some(Ok(entity)),
            Ok(None) => {
                self.left = 0;
                None
            }
            Err(error) => {
                // Answered again at every call: a scan in error never looks complete, nor goes on behind a bad row.
                self.left += 1;
                self.scan = Err(error.clone());
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

fn advance(scan: &mut Scan, projector: &mut Option<Projector>) -> Result<Option<Entity>> {
    if !scan.advance()? {
        return Ok(None);
    }
    let row = scan.row()?;
    let view = RowView::new(row.key, row.seq, row.row);
    match projector {
        Some(projector) => view.project(projector).map(Some),
        None => view.to_entity().map(Some),
    }
}

/// The keys of a row as a token.
fn token(key: &[u8]) -> Result<Token> {
    let damaged = |error| Error::decode("row".as_ref(), 0, error);
    let (_, partition_key, row_key) = decode_user_key(key).map_err(damaged)?;
    Ok(Token {
        partition_key: decode_part(partition_key).map_err(damaged)?.into_owned(),
        row_key: decode_part(row_key).map_err(damaged)?.into_owned(),
    })
}

fn too_many() -> Error {
    Error::new(ErrorKind::InvalidInput, "a page holds at most 1,000 entities")
}

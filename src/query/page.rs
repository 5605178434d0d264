//! Reads the results of a query page by page. Each page except the last has a token, the position
//! at which the next page begins.
//!
//! Invariants
//! * a token is a key and not a state: it stays valid whatever happens to the table;
//! * a page with a token has made progress, so following the tokens reaches the end.

use std::ops::ControlFlow::{Break, Continue};

use crate::codec::{HashSeed, hash};
use crate::error::{Error, ErrorKind, Result};
use crate::lsm::{ScanRow, Step};
use crate::model::Entity;
use crate::rng::Rng;
use crate::table::RowView;

use super::builder::Query;
use super::entities::projected;
use super::eval::Evaluator;
use super::exec::Cursor;
use super::explain::{Explain, Watch};
use super::plan::Class;
use super::token::{Token, token};

/// The maximum number of entities in a page.
const PAGE_ENTITIES_MAX: usize = 1_000;
/// The number of rows between reads of the clock.
const CLOCK_ROWS: usize = 64;

/// The entities of a page, and the start of the next page.
#[derive(Clone, Debug)]
pub struct Page {
    entities: Vec<Entity>,
    next: Option<Token>,
}

/// Where a page ends early if [`Query::service_like`] was called.
enum EarlyEnd {
    Never,
    /// Before this entity of the page, counted from 0.
    Before(usize),
    /// At the beginning of the next partition.
    AtPartition,
}

impl Page {
    /// Returns the entities, in key order.
    pub fn entities(&self) -> &[Entity] {
        &self.entities
    }

    /// Returns the entities by value.
    pub fn into_entities(self) -> Vec<Entity> {
        self.entities
    }

    /// Returns the start of the next page; `None` after the last one.
    pub fn next(&self) -> Option<&Token> {
        self.next.as_ref()
    }
}

impl Query {
    /// Reads one page of at most `count` entities, and returns the start of the next page.
    /// [`top`](Self::top) bounds the entities of each page, not of all pages together: there is a
    /// token as long as there are more entities. A page may be short or empty and still have a
    /// token.
    ///
    /// # Errors
    /// `InvalidInput` if `count` is above 1,000; `Corruption`, `Io`; `NotFound` if the table was
    /// dropped.
    pub fn page(self, count: usize) -> Result<Page> {
        read(&self, count, None)
    }

    /// As [`page`](Self::page), but calls `with` with each row in place, without copying it, and
    /// returns the start of the next page. Rows have all properties. [`select`](Self::select) only
    /// affects the number of bytes by which a row counts against the page's budget.
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
    /// As [`page`](Self::page), and errors of `with`.
    pub fn page_rows(
        self,
        count: usize,
        mut with: impl FnMut(&RowView<'_>) -> Result<()>,
    ) -> Result<Option<Token>> {
        self.page_texts(count, |row| with(row).map(|()| (0, None)))
    }

    /// As [`page_rows`](Self::page_rows), for callers that write the page as text. `with` writes
    /// one row, and must check its values. It returns the number of bytes written, and the size of
    /// the row if known. The larger of the two counts against the page's budget.
    pub(crate) fn page_texts(
        self,
        count: usize,
        mut with: impl FnMut(&RowView<'_>) -> Result<(usize, Option<usize>)>,
    ) -> Result<Option<Token>> {
        let Some(mut projector) = self.projector() else {
            return visit(&self, count, None, |row| {
                let (bytes, known) = with(row)?;
                Ok(bytes.max(known.map_or_else(|| row.size(), Ok)?))
            });
        };
        visit(&self, count, None, |row| {
            let (bytes, _) = with(row)?;
            Ok(bytes.max(row.projected_size(&mut projector)?))
        })
    }

    /// As [`page`](Self::page); also returns the cost.
    ///
    /// # Errors
    /// As [`page`](Self::page).
    pub fn page_explained(self, count: usize) -> Result<(Page, Explain)> {
        let mut explain = Explain::new(&self);
        let page = read(&self, count, Some(&mut explain))?;
        Ok((page, explain))
    }
}

/// Reads a page, and records its cost in `explain`.
fn read(query: &Query, count: usize, explain: Option<&mut Explain>) -> Result<Page> {
    let (mut entities, mut projector) = (Vec::new(), query.projector());
    let next = visit(query, count, explain, |row| {
        let entity = projected(row, &mut projector)?;
        let size = entity.size();
        entities.push(entity);
        Ok(size)
    })?;
    Ok(Page { entities, next })
}

/// Passes the rows of a page to `take`, which returns their sizes, and records the cost in
/// `explain`. Returns the token after the rows.
fn visit(
    query: &Query,
    count: usize,
    explain: Option<&mut Explain>,
    take: impl FnMut(&RowView<'_>) -> Result<usize>,
) -> Result<Option<Token>> {
    if count > PAGE_ENTITIES_MAX {
        return Err(Error::new(ErrorKind::InvalidInput, "a page holds at most 1,000 entities"));
    }
    let mut watch = Watch::new(query, explain.is_some());
    let plan = query.plan();
    watch.lap(|laps| &mut laps.planning);
    let mut cursor = query.begin_with(&plan, |evaluator| evaluator)?;
    let mut reader = Reader {
        query,
        count: count.min(query.top.unwrap_or(count)),
        take,
        len: 0,
        last_partition: None,
        next: None,
        early_end: early_end(query, count, plan.class == Class::Point && plan.intervals.len() == 1),
        bytes: 0,
    };
    if reader.count > 0 {
        reader.fill(&mut cursor, &mut watch)?;
    }
    cursor.finish(reader.len as u64);
    if let Some(explain) = explain {
        explain.record(plan, cursor.work(reader.len as u64), watch.laps);
    }
    Ok(reader.next)
}

struct Reader<'q, T> {
    query: &'q Query,
    count: usize,
    take: T,
    /// The number of rows taken.
    len: usize,
    /// The PartitionKey of the last row, if the page ends early between partitions.
    last_partition: Option<String>,
    next: Option<Token>,
    early_end: EarlyEnd,
    bytes: usize,
}

impl<T: FnMut(&RowView<'_>) -> Result<usize>> Reader<'_, T> {
    fn fill(&mut self, cursor: &mut Cursor<Evaluator>, watch: &mut Watch<'_>) -> Result<()> {
        let deadline = watch.now().saturating_add(self.query.limits.time);
        loop {
            let step = cursor.advance()?;
            watch.lap(|laps| &mut laps.finding);
            let full = self.is_full();
            let late = || watch.now() >= deadline;
            // At a row, the clock is read only after every `CLOCK_ROWS` rows, and never before the
            // first one. So a page that has found a row returns it.
            let is_time_to_look = self.len > 0 && self.len.is_multiple_of(CLOCK_ROWS);
            match step {
                Step::End => return Ok(()),
                Step::Pause if full || late() => return self.end_at(cursor.position()),
                Step::Pause => {}
                Step::Row if full || is_time_to_look && late() => {
                    return self.end_at(cursor.position());
                }
                Step::Row => {
                    if let Some(next) = self.ends_early(cursor)? {
                        self.next = Some(next);
                        return Ok(());
                    }
                    self.take_row(cursor.row()?)?;
                    watch.lap(|laps| &mut laps.building);
                    let unasked = self.unasked(watch);
                    cursor.visit_batch(unasked, &mut |row| {
                        self.take_row(row)?;
                        Ok(if self.is_full() { Break(()) } else { Continue(()) })
                    })?;
                }
            }
        }
    }

    // Always inlined: otherwise the row would pass through memory, which takes longer.
    #[inline(always)]
    fn take_row(&mut self, row: ScanRow<'_>) -> Result<()> {
        debug_assert!(self.len < self.count, "a page takes no row beyond its count");
        if self.len > 0 {
            self.query.table.engine.writer().book_row(row.key);
        }
        let row = RowView::new(row.key, row.seq, row.row);
        self.bytes += (self.take)(&row)?;
        self.len += 1;
        if matches!(self.early_end, EarlyEnd::AtPartition) {
            self.last_partition = Some(row.partition_key()?.into_owned());
        }
        Ok(())
    }

    /// Returns for how many of the next rows only the byte budget of the page must be checked; 0 if
    /// other checks are needed for each row.
    fn unasked(&self, watch: &Watch<'_>) -> usize {
        if watch.is_on() || !matches!(self.early_end, EarlyEnd::Never) || self.is_full() {
            return 0;
        }
        (self.count - self.len).min(CLOCK_ROWS - self.len % CLOCK_ROWS)
    }

    /// Whether the page is full. Its size is ignored before its first entity, because a page must
    /// make progress.
    fn is_full(&self) -> bool {
        self.len >= self.count || self.len > 0 && self.bytes >= self.query.limits.bytes
    }

    fn end_at(&mut self, position: Option<&[u8]>) -> Result<()> {
        self.next = position.map(token).transpose()?;
        Ok(())
    }

    /// Returns the token if a service-like page ends early before the current row.
    fn ends_early(&self, cursor: &Cursor<Evaluator>) -> Result<Option<Token>> {
        let (len, last) = (self.len, &self.last_partition);
        let mut next = match self.early_end {
            EarlyEnd::Before(end) if len >= end => token(cursor.row()?.key)?,
            EarlyEnd::AtPartition if last.is_some() => token(cursor.row()?.key)?,
            _ => return Ok(None),
        };
        if matches!(self.early_end, EarlyEnd::AtPartition) {
            let same = last.as_ref() == Some(&next.partition_key);
            next.row_key.clear();
            return Ok((!same).then_some(next));
        }
        let moved = len > 0 || self.query.from.as_ref() != Some(&next);
        Ok(moved.then_some(next))
    }
}

/// Returns where a service-like page that begins at the query's token ends early. The result
/// depends only on the seed and the token.
fn early_end(query: &Query, count: usize, is_one_point: bool) -> EarlyEnd {
    let Some(seed) = query.limits.seed.filter(|_| !query.reverse && !is_one_point) else {
        return EarlyEnd::Never;
    };
    let place = query.from.as_ref().map_or(0, |from| {
        let row = hash(HashSeed(seed), from.row_key.as_bytes());
        hash(HashSeed(row), from.partition_key.as_bytes())
    });
    let mut rng = Rng::from_seed(seed ^ place);
    match rng.below(4) {
        0 => EarlyEnd::Never,
        1 => EarlyEnd::Before(0),
        2 => EarlyEnd::AtPartition,
        _ => EarlyEnd::Before(1 + rng.below(count.max(1) as u64) as usize),
    }
}

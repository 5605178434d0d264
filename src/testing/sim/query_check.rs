//! Compares the answers of engine and oracle to queries with filters.
//!
//! Invariants
//! * the oracle evaluates the filter on every row of the state, without a plan;
//! * a page shows the current state from its start token on, and reading page after page reaches
//!   the end of the table.

use crate::error::Result as EngineResult;
use crate::query::{Aggregate, Number, Query as EngineQuery, Token};

use super::counts::Event;
use super::engine::{Engine, Pinned};
use super::oracle::{Tables, first_difference};
use super::query::{Query, Want};
use super::row::{Key, Row, key};
use super::runner::{Outcome, Runner, line, no_snapshot, project};
use super::runner_state::{Ask, Paging};
use super::value::Val;

#[derive(Debug, PartialEq)]
enum Answer {
    Rows(Vec<Row>),
    Count(u64),
    Counts(Vec<(String, u64)>),
    Sums(Sums),
}

/// Aggregates of a property over some rows: the counts of [`Aggregate`] in their order, then
/// minimum, maximum and sum.
#[derive(Debug, PartialEq)]
struct Sums {
    counts: [u64; 6],
    values: [Option<Sum>; 3],
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sum {
    Integer(i128),
    /// A double; `None` is NaN.
    Double(Option<f64>),
}

/// A page that the engine returned, and the number of blocks that were skipped while reading it.
struct Page {
    rows: Vec<Row>,
    next: Option<Token>,
    skipped: u64,
}

impl Query {
    /// Returns the matching rows in the query's order, with all properties; `None` if there is no
    /// such table.
    fn matching(&self, tables: &Tables, table: &str) -> Option<Vec<Row>> {
        let rows = tables.get(&table.to_lowercase())?.rows.values();
        let met = rows.filter(|row| self.filter.as_ref().is_none_or(|filter| filter.holds(row)));
        let mut met: Vec<Row> = met.map(|row| (**row).clone()).collect();
        if self.reverse {
            met.reverse();
        }
        Some(met)
    }

    fn expected(&self, rows: &[Row]) -> Answer {
        let top = self.top.unwrap_or(usize::MAX);
        match &self.want {
            Want::Rows => {
                let rows = rows.iter().take(top);
                Answer::Rows(rows.map(|row| project(row, self.select.as_deref())).collect())
            }
            Want::Count => Answer::Count(rows.len() as u64),
            Want::Explain => Answer::Count(rows.len().min(top) as u64),
            Want::CountByPartition => {
                let mut counts: Vec<(String, u64)> = Vec::new();
                for row in rows {
                    match counts.last_mut() {
                        Some((pk, count)) if *pk == row.pk => *count += 1,
                        _ => counts.push((row.pk.clone(), 1)),
                    }
                }
                Answer::Counts(counts)
            }
            Want::Aggregate(name) => {
                Answer::Sums(Sums::expected(rows.iter().map(|row| row.properties.get(name))))
            }
        }
    }

    /// Returns the part of `rows` that the query certainly reads: at most `top` rows if it returns
    /// rows, and otherwise all.
    fn shown<'r>(&self, rows: Option<&'r [Row]>, top: Option<usize>) -> &'r [Row] {
        let rows = rows.unwrap_or_default();
        match (self.want == Want::Rows || self.want == Want::Explain, top) {
            (true, Some(top)) => &rows[..rows.len().min(self.page_len(top))],
            _ => rows,
        }
    }

    /// Returns the maximum number of rows of a page.
    fn page_len(&self, page: usize) -> usize {
        self.top.map_or(page, |top| top.min(page))
    }

    /// Whether a reader gets `a` before `b`.
    fn is_before(&self, a: &Key, b: &Key) -> bool {
        if self.reverse { a > b } else { a < b }
    }

    /// Checks that a page is a prefix of `rows`, which are all rows from `from` on, and that the
    /// token of the page is the start of the remaining rows.
    fn check_page(&self, page: &Page, from: Option<&Token>, rows: &[Row]) -> Result<(), String> {
        let len = self.page_len(self.page.unwrap_or(usize::MAX));
        let found = page.rows.len();
        let expected = rows.iter().take(found).map(|row| project(row, self.select.as_deref()));
        let expected: Vec<Row> = expected.collect();
        if let Some(at) = first_difference(&page.rows, &expected) {
            let (found, expected) = (page.rows.get(at), expected.get(at));
            return Err(format!("page: row {at}: {found:?}, expected {expected:?}"));
        }
        if found > len {
            return Err(format!("page: {found} rows, at most {len}"));
        }
        let row_key = |row: &Row| key(&row.pk, &row.rk);
        let (last, left) = (page.rows.last().map(row_key), rows.get(found).map(row_key));
        let (next, left) = match (&page.next, left) {
            (None, None) => return Ok(()),
            (None, Some(_)) if len == 0 => return Ok(()),
            (None, Some(left)) => return Err(format!("page: the end before {left:?}")),
            (Some(next), None) => return Err(format!("page: a token {next:?} to nothing")),
            (Some(next), Some(left)) => (key(&next.partition_key, &next.row_key), left),
        };
        let from = from.map(|from| key(&from.partition_key, &from.row_key));
        let moved = last.or(from).is_none_or(|before| self.is_before(&before, &next));
        let exact = self.busy.is_some() || (next == left && found == len);
        match moved && exact && !self.is_before(&left, &next) {
            true => Ok(()),
            false => Err(format!("page: {found} of {len} rows, token {next:?}, next {left:?}")),
        }
    }
}

impl Sums {
    /// Computes the sums as in docs/SEMANTICS.md: integers exactly, doubles in the order of their
    /// rows.
    fn expected<'v>(values: impl Iterator<Item = Option<&'v Val>>) -> Sums {
        let (mut integers, mut doubles, mut counts) = (Vec::new(), Vec::new(), [0; 6]);
        for value in values {
            counts[0] += 1;
            match value {
                Some(Val::Int32(value)) => integers.push(i128::from(*value)),
                Some(Val::Int64(value)) => integers.push(i128::from(*value)),
                Some(Val::Double(bits)) if f64::from_bits(*bits).is_nan() => counts[3] += 1,
                Some(Val::Double(bits)) => doubles.push(f64::from_bits(*bits)),
                Some(_) => counts[5] += 1,
                None => counts[4] += 1,
            }
        }
        (counts[1], counts[2]) = (integers.len() as u64, doubles.len() as u64);
        let least = doubles.iter().copied().reduce(f64::min);
        let greatest = doubles.iter().copied().reduce(f64::max);
        let sum = (!doubles.is_empty()).then(|| doubles.iter().fold(0.0, |a, b| a + b));
        let whole = (!integers.is_empty()).then(|| integers.iter().sum());
        let values = [
            both(integers.iter().min().copied(), least, f64::min),
            both(integers.iter().max().copied(), greatest, f64::max),
            both(whole, sum, |a, b| a + b),
        ];
        Sums { counts, values }
    }

    fn found(found: &Aggregate) -> Sums {
        let (integers, doubles) = (found.integers(), found.doubles());
        let (nans, missing, others) = (found.nans(), found.missing(), found.others());
        let sum = |number| match number {
            Number::Integer(value) => Sum::Integer(value),
            Number::Double(value) => Sum::Double((!value.is_nan()).then_some(value)),
        };
        Sums {
            counts: [found.rows(), integers, doubles, nans, missing, others],
            values: [found.min(), found.max(), found.sum()].map(|number| number.map(sum)),
        }
    }
}

fn both(a: Option<i128>, b: Option<f64>, join: fn(f64, f64) -> f64) -> Option<Sum> {
    let double = |value: f64| Sum::Double((!value.is_nan()).then_some(value));
    match (a, b) {
        (None, None) => None,
        (Some(a), None) => Some(Sum::Integer(a)),
        (None, Some(b)) => Some(double(b)),
        (Some(a), Some(b)) => Some(double(join(a as f64, b))),
    }
}

impl Engine {
    fn begin(&self, table: &str, query: &Query, at: Option<&Pinned>) -> EngineResult<EngineQuery> {
        let (table, at) = self.table_at(table, at)?;
        let filter = query.filter.as_ref().map(ToString::to_string).unwrap_or_default();
        let begun = match at {
            None => table.query(filter)?,
            Some(snapshot) => table.at(snapshot).query(filter)?,
        };
        let mut begun = begun.select_some(query.select.as_deref());
        if let Some(top) = query.top {
            begun = begun.top(top);
        }
        if let Some(seed) = query.busy {
            begun = begun.service_like(seed);
        }
        Ok(if query.reverse { begun.reverse() } else { begun })
    }

    fn page(
        &self,
        table: &str,
        query: &Query,
        at: Option<&Pinned>,
        from: Option<&Token>,
    ) -> EngineResult<Page> {
        let mut begun = self.begin(table, query, at)?;
        if let Some(token) = from {
            begun = begun.after(token.clone());
        }
        let (page, explain) = begun.page_explained(query.page.unwrap_or(1_000))?;
        let rows = page.entities().iter().map(Row::of).collect();
        Ok(Page { rows, next: page.next().cloned(), skipped: explain.blocks_skipped() })
    }

    /// Returns the answer to a query that is not read by pages, and the number of skipped blocks if
    /// known.
    fn answer(
        &self,
        table: &str,
        query: &Query,
        at: Option<&Pinned>,
    ) -> EngineResult<(Answer, u64)> {
        let begun = self.begin(table, query, at)?;
        Ok(match &query.want {
            Want::Rows => {
                let rows = begun.into_iter().map(|entity| entity.map(|e| Row::of(&e)));
                (Answer::Rows(rows.collect::<EngineResult<_>>()?), 0)
            }
            Want::Count => {
                let (count, skipped) = begun.count_explained()?;
                (Answer::Count(count), skipped)
            }
            Want::CountByPartition => (Answer::Counts(begun.count_by_partition()?), 0),
            Want::Explain => {
                let explain = begun.explain()?;
                (Answer::Count(explain.rows_returned()), explain.blocks_skipped())
            }
            Want::Aggregate(name) => (Answer::Sums(Sums::found(&begun.aggregate(name)?)), 0),
        })
    }
}

impl Runner {
    pub(super) fn query(&mut self, table: &str, query: &Query) -> Outcome {
        let visible = self.visible()?;
        let Some((pinned, tables)) = self.state_at(&query.at, table, visible) else {
            return no_snapshot();
        };
        let rows = query.matching(&tables, table);
        if query.page.is_some() && query.want == Want::Rows {
            return self.query_pages(table, query, rows);
        }
        let shown = query.shown(rows.as_deref(), query.top);
        let ask = Ask::query(0, shown.len() + 2);
        let held = self.held(table, query.at.as_ref(), shown).max(self.asks(&ask));
        let found = self.engine.answer(table, query, pinned);
        self.asked(&ask, found.as_ref().err());
        match (found, rows) {
            (Ok((found, skipped)), Some(rows)) => {
                held.check_served()?;
                let expected = query.expected(&rows);
                if found != expected {
                    return Err(differs(&found, &expected));
                }
                self.record_query(query);
                let unread = query.want == Want::Count && query.filter.is_none();
                let event = if unread { Event::BlockUnread } else { Event::BlockSkipped };
                if query.want != Want::Count || unread {
                    self.counts.add(event, skipped);
                }
                self.counts.add(Event::Row, rows.len() as u64);
                Ok(found.lines())
            }
            (Ok(_), None) => Err("query: a table that is not there was read".to_owned()),
            (Err(error), rows) => self.read_refused(&error, rows.is_none(), held),
        }
    }

    /// Reads all pages in one step.
    fn query_pages(&mut self, table: &str, query: &Query, rows: Option<Vec<Row>>) -> Outcome {
        let (mut lines, mut token, mut read, mut skipped) = (Vec::new(), None, 0, 0);
        loop {
            let rest = rows.as_deref().map(|rows| rows.get(read..).unwrap_or_default());
            let page = match self.page(table, query, rest, token.as_ref(), query.top)? {
                Ok(page) => page,
                Err(lines) => return Ok(lines),
            };
            read += page.rows.len();
            skipped += page.skipped;
            lines.extend(page.rows.iter().map(Row::to_string));
            token = page.next;
            if token.is_none() {
                break;
            }
        }
        self.record_query(query);
        self.counts.add(Event::BlockSkipped, skipped);
        self.counts.add(Event::Row, read as u64);
        Ok(lines)
    }

    /// Reads a page and compares it with `rows`, which are all rows from `token` on. If the page is
    /// refused, returns the lines of the refusal instead.
    fn page(
        &mut self,
        table: &str,
        query: &Query,
        rows: Option<&[Row]>,
        token: Option<&Token>,
        most: Option<usize>,
    ) -> Result<Result<Page, Vec<String>>, String> {
        let shown = query.shown(rows, most);
        let ask = Ask::query(0, shown.len() + 2);
        let held = self.held(table, query.at.as_ref(), shown).max(self.asks(&ask));
        let pinned = query.at.as_ref().and_then(|at| self.snapshots.get(at));
        let found = self.engine.page(table, query, pinned.map(|(pinned, _)| pinned), token);
        self.asked(&ask, found.as_ref().err());
        match (found, rows) {
            (Ok(page), Some(rows)) => {
                held.check_served()?;
                query.check_page(&page, token, rows)?;
                Ok(Ok(page))
            }
            (Ok(_), None) => Err("page: a table that is not there was read".to_owned()),
            (Err(error), rows) => self.read_refused(&error, rows.is_none(), held).map(Err),
        }
    }

    /// Reads the first page of a query whose pages are interleaved with other steps.
    pub(super) fn pages(&mut self, name: &str, table: &str, query: &Query) -> Outcome {
        let paging = Paging { table: table.to_owned(), query: query.clone(), token: None };
        self.next_page(name, paging)
    }

    /// Reads the next page, from the current state.
    pub(super) fn resume(&mut self, name: &str) -> Outcome {
        let Some(paging) = self.pagings.remove(name) else { return line("no such pages") };
        self.counts.note(Event::PageResumed);
        self.next_page(name, paging)
    }

    fn next_page(&mut self, name: &str, mut paging: Paging) -> Outcome {
        let visible = self.visible()?;
        let Paging { table, query, token } = &paging;
        let Some((_, tables)) = self.state_at(&query.at, table, visible) else {
            return no_snapshot();
        };
        let mut rows = query.matching(&tables, table);
        let from = token.as_ref().map(|from| key(&from.partition_key, &from.row_key));
        if let (Some(rows), Some(from)) = (&mut rows, from) {
            rows.retain(|row| !query.is_before(&key(&row.pk, &row.rk), &from));
        }
        let page = self.page(table, query, rows.as_deref(), token.as_ref(), query.page)?;
        let (mut lines, is_last) = match page {
            Ok(page) => {
                self.record_query(query);
                self.counts.add(Event::BlockSkipped, page.skipped);
                let lines: Vec<String> = page.rows.iter().map(Row::to_string).collect();
                paging.token = page.next;
                (lines, paging.token.is_none())
            }
            // The token stays valid after a refusal.
            Err(lines) => (lines, false),
        };
        if is_last {
            lines.push("the end".to_owned());
        } else {
            self.pagings.insert(name.to_owned(), paging);
        }
        Ok(lines)
    }

    fn record_query(&mut self, query: &Query) {
        self.counts.note(Event::Query);
        if query.reverse {
            self.counts.note(Event::QueryReverse);
        }
    }
}

fn differs(found: &Answer, expected: &Answer) -> String {
    if let (Answer::Rows(found), Answer::Rows(expected)) = (found, expected)
        && let Some(at) = first_difference(found, expected)
    {
        let (found, expected) = (found.get(at), expected.get(at));
        return format!("query: row {at}: {found:?}, expected {expected:?}");
    }
    format!("query: {found:?}, expected {expected:?}")
}

impl Answer {
    fn lines(&self) -> Vec<String> {
        match self {
            Answer::Rows(rows) => rows.iter().map(Row::to_string).collect(),
            Answer::Count(count) => vec![count.to_string()],
            Answer::Counts(counts) => {
                counts.iter().map(|(pk, count)| format!("'{pk}' {count}")).collect()
            }
            Answer::Sums(Sums { counts, values }) => vec![format!("{counts:?} {values:?}")],
        }
    }
}

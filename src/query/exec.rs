//! Executes a plan: reads its intervals one after another, in one state of the database.
//!
//! Invariants
//! * a cursor reads a single state: a view and a Seq, pinned when the query begins;
//! * rows are returned in ascending or descending key order, each at most once;
//! * a cursor that has examined many rows without a match pauses, so that its caller can check a
//!   budget.
//!
//! `page` decides where a page ends; `explain` reports on a plan.

use std::ops::ControlFlow;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::format::key::{after_row, before_row, partition_of};
use crate::format::names::TableId;
use crate::format::span::Span;
use crate::lsm::{ReadCounts, ReadView, ReverseScan, RowFilter, Scan, ScanRow, Step, Visit};
use crate::model::{KeyPart, Row, RowRef, Seq, check_key};

use super::builder::Query;
use super::key_range::KeyRange;
use super::token::token;
use super::tree::Node;

/// A query being executed.
pub(super) struct Cursor<F> {
    view: ReadView,
    filter: F,
    intervals: Intervals,
    /// Created for the first interval that is not a point, and reused for all later ones.
    scan: Option<Box<Scan>>,
    /// The source of the current row.
    place: Place,
    counts: Counts,
    /// The number of examined rows that are not yet added to the load of their range.
    uncounted: u64,
    /// The maximum number of rows that the caller requests. `None` if there is no limit, or if the
    /// filter may reject rows that are read.
    rows_max: Option<usize>,
    /// Present only if slow queries are logged.
    pub(super) slow: Option<Box<SlowWatch>>,
}

/// A running query, which is logged at its end if it was slow.
pub(super) struct SlowWatch {
    pub(super) query: Query,
    pub(super) since: Duration,
}

/// The work that a cursor has done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// The number of rows and tombstones examined, visible or not.
    pub(super) rows: u64,
    pub(super) points: u64,
    pub(super) read: ReadCounts,
}

/// The work of a finished query.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    /// The number of ranges of the table that the intervals touch.
    pub(super) ranges: usize,
    pub(super) counts: Counts,
    /// The number of rows returned.
    pub(super) returned: u64,
}

/// The intervals of the query in the order of reading, and how many of them were begun.
struct Intervals {
    spans: Vec<Interval>,
    /// The number of intervals begun.
    taken: usize,
    reverse: bool,
}

/// A span of keys to read, within one table.
struct Interval {
    span: Span,
    is_point: bool,
}

enum Place {
    /// The cursor is between two intervals.
    Between,
    Point(Point),
    /// `Cursor::scan` is on the current row.
    Scan,
    Reverse(Box<ReverseScan>),
}

/// A row found by its key, copied so that its source need not be pinned.
struct Point {
    key: Box<[u8]>,
    seq: Seq,
    row: Row,
}

/// The cost of a point lookup, in examined rows.
const POINT_COST: u64 = 4;
/// The number of examined rows that are added to the load of a range at a time.
const PORTION: u64 = 16;
/// Rows counted for each scan in addition to its full portions: half a portion, the average
/// remainder.
const SCAN_COST: u64 = PORTION / 2;
/// The cost of beginning an interval, in examined rows.
const SEEK_COST: u64 = 32;

impl SlowWatch {
    /// Starts to measure a query. Returns `None` if slow queries are not logged.
    #[inline]
    fn begin(query: &Query) -> Option<Box<Self>> {
        query.table.engine.env().options.slow_query?;
        let since = query.table.engine.env().clock.monotonic();
        Some(Box::new(Self { query: query.clone(), since }))
    }
}

impl<F: RowFilter> Cursor<F> {
    /// Creates a cursor over the intervals of a plan in `table`. The intervals are restricted to
    /// the query's key range, and to the part from the query's token on, in the direction of
    /// reading.
    pub(super) fn new(
        view: ReadView,
        filter: F,
        table: TableId,
        intervals: &[KeyRange],
        query: &Query,
    ) -> Self {
        let reverse = query.reverse;
        let bound = bound(query, table);
        let cut = |interval: &KeyRange| {
            let whole = interval.span(table);
            let cut = bound.as_ref().map(|bound| whole.intersect(bound));
            let is_point = match interval.as_point() {
                // No entity can have such keys.
                Some((pk, rk)) if !is_possible(pk, rk) => return None,
                Some(_) => !matches!(&cut, Some(cut) if cut.as_ref() != Some(&whole)),
                None => false,
            };
            let span = cut.unwrap_or(Some(whole)).filter(|span| !span.is_empty())?;
            Some(Interval { span, is_point })
        };
        let mut spans: Vec<Interval> = intervals.iter().filter_map(cut).collect();
        let ascend = |a: &Interval, b: &Interval| a.span.ends_before(&b.span.low);
        debug_assert!(spans.is_sorted_by(ascend), "intervals ascend and are disjoint");
        if reverse {
            spans.reverse();
        }
        let intervals = Intervals { spans, taken: 0, reverse };
        let place = Place::Between;
        let counts = Counts::default();
        let rows_max = query.top.filter(|_| matches!(query.filter.node(), Node::All));
        let (scan, uncounted, slow) = (None, SCAN_COST, SlowWatch::begin(query));
        Self { view, filter, intervals, scan, place, counts, uncounted, rows_max, slow }
    }

    /// Advances to the next matching row.
    ///
    /// # Errors
    /// Damage and disk errors. The cursor must not be used after an error.
    #[inline]
    pub(super) fn advance(&mut self) -> Result<Step> {
        if let (Place::Scan, Some(scan)) = (&self.place, &mut self.scan) {
            let before = scan.rows;
            let found = scan.next_in_batch(&mut self.filter)?;
            self.uncounted += scan.rows - before;
            if found {
                if self.uncounted >= PORTION {
                    self.count_rows();
                }
                return Ok(Step::Row);
            }
        }
        self.advance_further()
    }

    /// Calls `with` with up to `max` matching rows, until `with` breaks. Only rows for which the
    /// filter's result is already known are considered. A following [`advance`](Self::advance)
    /// continues after these rows.
    ///
    /// # Errors
    /// As [`advance`](Self::advance), and errors of `with`.
    #[inline]
    pub(super) fn visit_batch(
        &mut self,
        max: usize,
        with: &mut impl FnMut(ScanRow<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<Visit> {
        let mut all = Visit::default();
        while let (Place::Scan, Some(scan)) = (&self.place, &mut self.scan) {
            let (before, portion) = (scan.rows, (max - all.rows).min(PORTION as usize));
            let visit = scan.visit_batch(&mut self.filter, portion, with)?;
            self.uncounted += scan.rows - before;
            if self.uncounted >= PORTION {
                self.count_rows();
            }
            all = Visit { rows: all.rows + visit.rows, is_over: visit.is_over };
            if visit.is_over || visit.rows < portion || all.rows == max {
                break;
            }
        }
        debug_assert!(all.rows <= max, "no more rows are visited than asked for");
        Ok(all)
    }

    /// As [`advance`](Self::advance). Requires: there are no more rows for which the filter's
    /// result is already known.
    fn advance_further(&mut self) -> Result<Step> {
        let mut left = self.filter.stretch();
        loop {
            let step = self.advance_in_place(&mut left)?;
            if step != Step::End {
                return Ok(step);
            }
            if self.intervals.taken >= self.intervals.spans.len() {
                self.end_interval();
                return Ok(Step::End);
            }
            if left == 0 && self.intervals.position().is_some_and(is_nameable) {
                self.end_interval();
                return Ok(Step::Pause);
            }
            left = left.saturating_sub(self.next_interval()?);
            if matches!(self.place, Place::Point(_)) {
                return Ok(Step::Row);
            }
        }
    }

    /// Continues in the current interval, and subtracts the number of examined rows from `left`.
    fn advance_in_place(&mut self, left: &mut u64) -> Result<Step> {
        let (step, looked) = match (&mut self.place, &mut self.scan) {
            (Place::Scan, Some(scan)) => {
                let before = scan.rows;
                (scan.advance_where(&mut self.filter, *left)?, scan.rows - before)
            }
            (Place::Reverse(scan), _) => {
                let before = scan.rows;
                (scan.advance_where(&mut self.filter, *left)?, scan.rows - before)
            }
            _ => (Step::End, 0),
        };
        *left = left.saturating_sub(looked);
        self.uncounted += looked;
        if self.uncounted >= PORTION {
            self.count_rows();
        }
        Ok(step)
    }

    /// Adds the examined rows to the load at the cursor's position.
    fn count_rows(&mut self) {
        let key = match (&self.place, &self.scan) {
            (Place::Scan, Some(scan)) if scan.is_valid() => scan.key(),
            (Place::Reverse(scan), _) if scan.is_valid() => scan.key(),
            // Between intervals there is no current row. The rows are then counted for the range in
            // which the last interval starts. Rows were read from that range, too.
            _ => match self.intervals.current() {
                Some(interval) => &interval.span.low,
                None => return,
            },
        };
        self.view.record_rows(u32::try_from(self.uncounted).unwrap_or(u32::MAX), key);
        self.uncounted = 0;
    }

    /// Returns the current row. Requires that the cursor is on a row.
    #[inline(always)]
    pub(super) fn row(&self) -> Result<ScanRow<'_>> {
        match (&self.place, &self.scan) {
            (Place::Scan, Some(scan)) => scan.row(),
            (Place::Reverse(scan), _) => scan.row(),
            (Place::Point(point), _) => Ok(point.row()),
            _ => Err(Error::corrupt("query".as_ref(), 0, "cursor", "on no row")),
        }
    }

    /// Returns the key, or a bound, from which a reader that stops now can continue; `None` at the
    /// end. In the direction of reading, all matching rows before this position were returned. Of
    /// the rows at or after it, at most the current one was returned.
    pub(super) fn position(&self) -> Option<&[u8]> {
        match (&self.place, &self.scan) {
            (Place::Scan, Some(scan)) if scan.is_valid() => Some(scan.key()),
            (Place::Reverse(scan), _) if scan.is_valid() => Some(scan.key()),
            (Place::Point(point), _) => Some(&point.key),
            _ => self.intervals.position(),
        }
    }

    /// Returns the filter, with its state.
    pub(super) fn into_filter(self) -> F {
        self.filter
    }

    pub(super) fn counts(&self) -> Counts {
        let mut counts = self.counts;
        if let Some(scan) = &self.scan {
            counts.rows += scan.rows;
            counts.read = scan.counts();
        }
        if let Place::Reverse(scan) = &self.place {
            counts.rows += scan.rows;
        }
        counts
    }

    /// Returns the work of the query, which returned `returned` rows.
    pub(super) fn work(&self, returned: u64) -> Work {
        let ranges = self.view.ranges(self.intervals.spans.iter().map(|interval| &interval.span));
        Work { ranges, counts: self.counts(), returned }
    }

    /// Whether `span` may contain a key that the query reads.
    pub(super) fn touches(&self, span: &Span) -> bool {
        self.intervals.spans.iter().any(|interval| interval.span.overlaps(span))
    }

    /// Returns a key, or a bound, in the partition that contains all intervals; `None` if the
    /// intervals are in several partitions.
    pub(super) fn partition(&self) -> Option<Vec<u8>> {
        let mut lows = self.intervals.spans.iter().map(|interval| &*interval.span.low);
        let first = partition_of(lows.next()?)?;
        let end = after_prefix(first);
        let in_it = |interval: &Interval| {
            partition_of(&interval.span.low) == Some(first)
                && interval.span.high.as_deref().is_some_and(|high| high <= end.as_slice())
        };
        self.intervals.spans.iter().all(in_it).then(|| first.to_vec())
    }

    /// Begins the next interval, which must exist. Returns the cost as a number of rows.
    fn next_interval(&mut self) -> Result<u64> {
        self.end_interval();
        debug_assert!(self.intervals.taken < self.intervals.spans.len(), "an interval is left");
        let Some(interval) = self.intervals.spans.get(self.intervals.taken) else { return Ok(0) };
        self.intervals.taken += 1;
        if interval.is_point {
            self.counts.points += 1;
            self.counts.rows += 1;
            if let Some(point) = look_up(&self.view, &interval.span.low, &mut self.filter)? {
                self.place = Place::Point(point);
            }
            return Ok(POINT_COST);
        }
        if self.intervals.reverse {
            self.place = Place::Reverse(Box::new(self.view.scan_reverse(&interval.span)?));
            return Ok(SEEK_COST);
        }
        match &mut self.scan {
            Some(scan) => scan.seek(&interval.span)?,
            None => {
                let last = self.intervals.spans.last().filter(|_| self.intervals.spans.len() > 1);
                let high = last.map(|last| last.span.high.as_deref());
                let whole = high.map(|high| Span::new(&interval.span.low, high));
                let whole = whole.as_ref().unwrap_or(&interval.span);
                let mut scan = Box::new(self.view.scan(whole, &interval.span)?);
                if let Some(rows) = self.rows_max {
                    scan.expect(rows);
                }
                self.scan = Some(scan);
            }
        }
        self.place = Place::Scan;
        Ok(SEEK_COST)
    }

    fn end_interval(&mut self) {
        if let Place::Reverse(scan) = &self.place {
            self.counts.rows += scan.rows;
        }
        self.place = Place::Between;
    }
}

impl Intervals {
    /// Returns the interval that was begun last.
    fn current(&self) -> Option<&Interval> {
        self.spans.get(self.taken.checked_sub(1)?)
    }

    /// Returns the position from which to continue between two intervals; `None` at the end.
    fn position(&self) -> Option<&[u8]> {
        let next = self.spans.get(self.taken)?;
        if !self.reverse {
            return Some(&next.span.low);
        }
        // A reverse reader that continues at a position also reads the key at the position. So the
        // next interval's upper bound, which is exclusive, cannot be the position. Use the lower
        // bound of the finished interval: a cursor pauses only after many rows without a match, so
        // no row at that key was returned.
        let left = self.taken.checked_sub(1).and_then(|left| self.spans.get(left));
        left.map(|left| &*left.span.low)
    }
}

impl Point {
    fn row(&self) -> ScanRow<'_> {
        ScanRow { key: &self.key, seq: self.seq, row: self.row.as_ref() }
    }
}

/// Returns the span to which the plan's intervals must be restricted; `None` if they need no
/// restriction.
fn bound(query: &Query, table: TableId) -> Option<Span> {
    // Without a filter, the plan consists of the query's range already.
    let range = match query.filter.node() {
        Node::All => None,
        _ => Some(query.range.span(table)),
    };
    let Some(from) = &query.from else { return range };
    let (pk, rk) = (&from.partition_key, &from.row_key);
    // The row with the token's key was not returned yet, so it is part of the span.
    let part = match query.reverse {
        true => Span::new(&[], Some(&after_row(table, pk, rk))),
        false => Span::new(&before_row(table, pk, rk), None),
    };
    let Some(range) = range else { return Some(part) };
    // The range and the part after the token may be disjoint. Then there is no key to read, so
    // return an empty span.
    Some(range.intersect(&part).unwrap_or_else(|| Span::new(&[], Some(&[]))))
}

/// Returns the bound after all keys that begin with `prefix`, an encoded PartitionKey with its
/// separator.
fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

fn is_possible(pk: &str, rk: &str) -> bool {
    check_key(KeyPart::PartitionKey, pk).is_ok() && check_key(KeyPart::RowKey, rk).is_ok()
}

/// Whether a token can express this bound. The bound may come from a literal of the filter, and a
/// literal may contain characters that neither tokens nor keys may contain.
fn is_nameable(bound: &[u8]) -> bool {
    let key = |text: &str| text.strip_suffix('\u{1}').unwrap_or(text).to_owned();
    token(bound).is_ok_and(|at| is_possible(&key(&at.partition_key), &key(&at.row_key)))
}

fn look_up(view: &ReadView, key: &[u8], filter: &mut impl RowFilter) -> Result<Option<Point>> {
    let found = view.get(key, |seq, row: RowRef<'_>| {
        let row = ScanRow { key, seq, row };
        Ok(filter.matches(&row)?.then(|| Point { key: key.into(), seq, row: row.row.to_row() }))
    })?;
    Ok(found.flatten())
}

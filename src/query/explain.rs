//! Reports the cost of a query: its plan in the terms of Azure Table storage, the data read and
//! skipped, and the time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::codec::text::with_thousands;
use crate::error::Result;
use crate::lsm::Step;

use super::builder::Query;
use super::exec::Work;
use super::plan::{Class, Plan};

/// The cost of a query.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// # use rowstone::{Db, Entity};
/// let parts = Db::open_in_memory()?.create_table("parts")?;
/// parts.insert(Entity::new("bolts", "m4x20").with("Price", 0.12))?;
/// let explain = parts.query("PartitionKey eq 'bolts' and RowKey eq 'm4x20'")?.explain()?;
/// assert_eq!(explain.class(), "Point query");
/// assert_eq!((explain.intervals().len(), explain.rows_returned()), (1, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Explain {
    filter: String,
    plan: Option<Arc<Plan>>,
    work: Work,
    laps: Laps,
}

/// The time spent in each phase of a query.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Laps {
    pub(super) planning: Duration,
    pub(super) finding: Duration,
    pub(super) building: Duration,
}

/// Measures the time of each phase of a query. If `on` is false, the clock is not read for each
/// row.
pub(super) struct Watch<'q> {
    clock: &'q dyn Clock,
    on: bool,
    last: Duration,
    pub(super) laps: Laps,
}

/// The maximum number of intervals that the text of an [`Explain`] lists.
const INTERVALS_SHOWN: usize = 8;

impl Explain {
    pub(super) fn new(query: &Query) -> Self {
        Self {
            filter: query.filter.to_string(),
            plan: None,
            work: Work::default(),
            laps: Laps::default(),
        }
    }

    pub(super) fn record(&mut self, plan: Plan, work: Work, laps: Laps) {
        self.plan = Some(Arc::new(plan));
        self.work = work;
        self.laps = laps;
    }

    /// Returns the explanation of a finished query. Only its total time was measured, not its
    /// phases.
    pub(super) fn of_slow(query: &Query, work: Work, took: Duration) -> Self {
        let mut explain = Self::new(query);
        let laps = Laps { finding: took, ..Laps::default() };
        explain.record(query.plan(), work, laps);
        explain
    }

    /// Returns the filter's text; empty if all entities were requested.
    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// Returns the class of the plan, in the terms of Azure Table storage: `Point query`, `Row
    /// range scan`, `Partition scan`, …
    pub fn class(&self) -> &'static str {
        self.class_of(|plan| plan.class).0
    }

    /// Returns a text that rates the class: its cost, and when such a query is appropriate.
    pub fn rating(&self) -> &'static str {
        self.class_of(|plan| plan.class).1
    }

    /// Returns the class of the same filter in Azure Table storage, which reads whole partitions or
    /// tables for many filters with `or`.
    pub fn service_class(&self) -> &'static str {
        self.class_of(|plan| plan.service_class).0
    }

    /// Returns the key intervals that the plan reads, in order. If the query has a token, the parts
    /// of intervals before the token were not read.
    pub fn intervals(&self) -> Vec<String> {
        let plan = self.plan.iter();
        plan.flat_map(|plan| &plan.intervals).map(ToString::to_string).collect()
    }

    /// Returns the part of the filter that is evaluated on each row in the intervals; `None` if
    /// there is none.
    pub fn rest(&self) -> Option<String> {
        self.plan.as_ref()?.rest.as_ref().map(ToString::to_string)
    }

    /// Returns the number of ranges of the table that the intervals touch.
    pub fn ranges(&self) -> u64 {
        self.work.ranges as u64
    }

    /// Returns the number of table files read forwards. Point lookups and reverse scans use the
    /// index of each file and are not counted here.
    pub fn files_read(&self) -> u64 {
        self.work.counts.read.files
    }

    /// Returns the number of table files in the intervals that were skipped because no row could
    /// match.
    pub fn files_skipped(&self) -> u64 {
        self.work.counts.read.files_skipped
    }

    /// Returns the number of blocks of rows read. Blocks read by point lookups and reverse scans
    /// are not counted.
    pub fn blocks_read(&self) -> u64 {
        self.work.counts.read.blocks
    }

    /// Returns the number of blocks of rows that were skipped because no row could match. A query
    /// that only counts entities also skips blocks in which every row matches; these blocks are
    /// included.
    pub fn blocks_skipped(&self) -> u64 {
        self.work.counts.read.blocks_skipped
    }

    /// Returns the number of entities looked up by their keys.
    pub fn points(&self) -> u64 {
        self.work.counts.points
    }

    /// Returns the number of row versions examined, including invisible ones and tombstones.
    pub fn rows_looked_at(&self) -> u64 {
        self.work.counts.rows
    }

    /// Returns the number of entities returned.
    pub fn rows_returned(&self) -> u64 {
        self.work.returned
    }

    /// Returns the time for planning.
    pub fn planning_time(&self) -> Duration {
        self.laps.planning
    }

    /// Returns the time for finding rows: seeking, reading, evaluating.
    pub fn finding_time(&self) -> Duration {
        self.laps.finding
    }

    /// Returns the time for building entities from the found rows.
    pub fn building_time(&self) -> Duration {
        self.laps.building
    }

    fn class_of(&self, of: impl Fn(&Plan) -> Class) -> (&'static str, &'static str) {
        self.plan.as_ref().map_or(("", ""), |plan| (of(plan).word(), of(plan).rating()))
    }
}

impl fmt::Display for Explain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filter = if self.filter.is_empty() { "(all)" } else { &self.filter };
        writeln!(f, "filter     {filter}")?;
        writeln!(f, "class      {}: {}", self.class(), self.rating())?;
        if self.service_class() != self.class() {
            writeln!(f, "service    {}", self.service_class())?;
        }
        let intervals = self.intervals();
        let number = |count: usize| with_thousands(count as u64);
        writeln!(f, "intervals  {}", number(intervals.len()))?;
        for interval in intervals.iter().take(INTERVALS_SHOWN) {
            writeln!(f, "           {interval}")?;
        }
        if intervals.len() > INTERVALS_SHOWN {
            writeln!(f, "           … {} more", number(intervals.len() - INTERVALS_SHOWN))?;
        }
        writeln!(f, "evaluated  {}", self.rest().as_deref().unwrap_or("nothing: the keys decide"))?;
        writeln!(f, "ranges     {}", number(self.work.ranges))?;
        for (name, read, how, rest, what) in [
            ("files", self.files_read(), "read", self.files_skipped(), "skipped"),
            ("blocks", self.blocks_read(), "read", self.blocks_skipped(), "skipped"),
            ("rows", self.rows_looked_at(), "looked at", self.rows_returned(), "returned"),
        ] {
            let [read, rest] = [read, rest].map(with_thousands);
            writeln!(f, "{name:<9}  {read} {how}, {rest} {what}")?;
        }
        write!(
            f,
            "time       {:?} planning, {:?} finding, {:?} building",
            self.laps.planning, self.laps.finding, self.laps.building
        )
    }
}

impl<'q> Watch<'q> {
    pub(super) fn new(query: &'q Query, on: bool) -> Self {
        let clock = &*query.table.engine.env().clock;
        let last = if on { clock.monotonic() } else { Duration::ZERO };
        Self { clock, on, last, laps: Laps::default() }
    }

    /// Whether the time for each row is measured.
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    pub(super) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Adds the time since the last call to the phase that `of` selects.
    pub(super) fn lap(&mut self, of: impl FnOnce(&mut Laps) -> &mut Duration) {
        if self.on {
            let last = std::mem::replace(&mut self.last, self.clock.monotonic());
            *of(&mut self.laps) += self.last.saturating_sub(last);
        }
    }
}

impl Query {
    /// Executes the query without returning entities, and reports its cost: intervals, files,
    /// blocks, rows, time.
    ///
    /// # Errors
    /// As [`page`](Self::page).
    pub fn explain(self) -> Result<Explain> {
        let mut explain = Explain::new(&self);
        let mut watch = Watch::new(&self, true);
        let plan = self.plan();
        watch.lap(|laps| &mut laps.planning);
        let mut cursor = self.begin_with(&plan, |evaluator| evaluator)?;
        let mut returned = 0;
        let top = self.top.map_or(u64::MAX, |top| top as u64);
        while returned < top {
            match cursor.advance()? {
                Step::End => break,
                Step::Pause => {}
                Step::Row => returned += 1,
            }
        }
        watch.lap(|laps| &mut laps.finding);
        cursor.finish(returned);
        explain.record(plan, cursor.work(returned), watch.laps);
        Ok(explain)
    }
}

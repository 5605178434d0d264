//! Ends a query, and adds it to the slow-query log if it was slow.
//!
//! The log does not contain queries that ended with an error. If the caller did not read a query to
//! the end, the log contains the work done until then.
//!
//! `table::slow` stores the log, and `explain` creates the explanations in it.

use std::sync::OnceLock;
use std::time::Duration;

use crate::lsm::RowFilter;
use crate::model::{DateTime, Seq};
use crate::options::Options;
use crate::table::SlowQuery;

use super::builder::Query;
use super::exec::{Cursor, SlowWatch, Work};
use super::explain::Explain;

/// Logs a slow query. Only [`Options::slow_query`] refers to the function, so that programs that do
/// not call it do not contain the code of explanations.
static LOG: OnceLock<fn(&Query, Work, Duration)> = OnceLock::new();

impl Options {
    /// Keeps the last 128 queries that took at least this long, each with an explanation, for
    /// `Db::slow_queries`. A query is measured from its beginning to its end, including the
    /// caller's work between rows. Point reads are not measured. The cost is two reads of the clock
    /// and a copy of the filter per query, and at most about 1 MiB of memory. Default: no query is
    /// kept.
    pub fn slow_query(mut self, took: Duration) -> Self {
        LOG.get_or_init(|| log);
        self.slow_query = Some(took);
        self
    }
}

impl<F: RowFilter> Cursor<F> {
    /// Ends the query, which returned `returned` rows.
    #[inline]
    pub(super) fn finish(&mut self, returned: u64) {
        if let Some(slow) = self.slow.take() {
            slow.end(self, returned);
        }
    }
}

impl SlowWatch {
    /// Logs the query if it was slow.
    fn end<F: RowFilter>(self, cursor: &Cursor<F>, returned: u64) {
        let env = self.query.table.engine.env();
        let took = env.clock.monotonic().saturating_sub(self.since);
        if env.options.slow_query.is_some_and(|long| took >= long)
            && let Some(log) = LOG.get()
        {
            log(&self.query, cursor.work(returned), took);
        }
    }
}

fn log(query: &Query, work: Work, took: Duration) {
    let Query { table, .. } = query;
    let env = &table.engine.env();
    let explain = Explain::of_slow(query, work, took);
    #[cfg(feature = "events")]
    tracing::warn!(
        target: "rowstone",
        event = "slow_query",
        db = %env.dir.display(),
        table = table.name(),
        filter = explain.filter(),
        class = explain.class(),
        micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        rows_looked_at = explain.rows_looked_at(),
        rows_returned = explain.rows_returned(),
    );
    table.entry.log.keep(SlowQuery {
        at: DateTime::from(Seq(env.clock.now())),
        table: table.entry.name.clone(),
        filter: explain.filter().to_owned(),
        class: explain.class(),
        took,
        rows_looked_at: explain.rows_looked_at(),
        rows_returned: explain.rows_returned(),
        explanation: explain.to_string(),
    });
}

//! Ends a query, and adds it to the slow-query log if it was slow.
//!
//! The log does not contain queries that ended with an error. If the caller did not read a query to
//! the end, the log contains the work done until then.
//!
//! `table::slow` stores the log, and `explain` creates the explanations in it.

use crate::lsm::RowFilter;
use crate::model::{DateTime, Seq};
use crate::table::SlowQuery;

use super::builder::Query;
use super::exec::{Cursor, SlowWatch};
use super::explain::Explain;

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
        let Query { table, .. } = &self.query;
        let env = &table.engine.env();
        let took = env.clock.monotonic().saturating_sub(self.since);
        if env.options.slow_query.is_none_or(|long| took < long) {
            return;
        }
        let explain = Explain::of_slow(&self.query, cursor, took, returned);
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
            rows_returned = returned,
        );
        table.entry.log.keep(SlowQuery {
            at: DateTime::from(Seq(env.clock.now())),
            table: table.entry.name.clone(),
            filter: explain.filter().to_owned(),
            class: explain.class(),
            took,
            rows_looked_at: explain.rows_looked_at(),
            rows_returned: returned,
            explanation: explain.to_string(),
        });
    }
}

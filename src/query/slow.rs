//! Who measures queries for the slow-query log, from their beginning to their end.
//!
//! A query that ends in an error is not in it; one whose results nobody fetched to the end is, with what it did until then.
//!
//! Not here: what is kept (`table::slow`), what an explanation says (`explain`).

use std::time::Duration;

use crate::lsm::RowFilter;
use crate::model::{DateTime, Seq};
use crate::table::SlowQuery;

use super::Query;
use super::exec::Cursor;
use super::explain::Explain;

/// A query under way, if slow ones are kept.
pub(super) struct SlowWatch {
    query: Query,
    since: Duration,
}

impl SlowWatch {
    /// Begins to measure; `None` if nobody wants to know.
    #[inline]
    pub(super) fn begin(query: &Query) -> Option<Box<Self>> {
        query.table.engine.env.options.slow_query?;
        let since = query.table.engine.env.clock.monotonic();
        Some(Box::new(Self { query: query.clone(), since }))
    }

    /// Keeps the query if it took long.
    pub(super) fn end<F: RowFilter>(self, cursor: &Cursor<F>, returned: u64) {
        let Query { table, .. } = &self.query;
        let env = &table.engine.env;
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

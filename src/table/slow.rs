//! Statistics of a database's queries: the number of queries by class, and the most recent slow
//! queries.
//!
//! Memory is bounded: the last [`KEPT`] slow queries are kept, each with at most [`TEXT_BYTES`] of
//! its filter and of its explanation. `query::plan` defines the classes; `query::exec` measures
//! queries.

use std::collections::VecDeque;
use std::time::Duration;

use crate::model::DateTime;
use crate::sync::{AtomicU64, Mutex, Ordering};

use super::counts::Queries;

/// Maximum number of slow queries that are kept.
const KEPT: usize = 128;
/// Maximum length of a stored filter, and of a stored explanation, in bytes.
const TEXT_BYTES: usize = 4 << 10;

/// A query that took longer than the limit; see
/// [`Options::slow_query`](crate::Options::slow_query).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowQuery {
    /// The time at which the query ended.
    pub at: DateTime,
    /// The name of the table.
    pub table: String,
    /// The filter's text, at most 4 KiB; empty for a query without a filter.
    pub filter: String,
    /// The class of the query, in the terms of Azure Table storage: `Point query`, `Partition
    /// scan`, ….
    pub class: &'static str,
    /// The time from the query's start to its end, including the caller's work between rows.
    pub took: Duration,
    /// The number of row versions examined.
    pub rows_looked_at: u64,
    /// The number of entities returned or counted.
    pub rows_returned: u64,
    /// The output of `Query::explain` for the query, at most 4 KiB.
    pub explanation: String,
}

/// Statistics of the queries since the database was opened.
#[derive(Debug, Default)]
pub(crate) struct QueryLog {
    pub(crate) queries: Queries,
    slow: Mutex<VecDeque<SlowQuery>>,
    slow_count: AtomicU64,
}

impl QueryLog {
    /// Stores a slow query; evicts the oldest if the limit is reached.
    pub(crate) fn keep(&self, mut query: SlowQuery) {
        cut(&mut query.filter);
        cut(&mut query.explanation);
        self.slow_count.fetch_add(1, Ordering::Relaxed);
        let mut slow = self.slow.lock();
        if slow.len() == KEPT {
            slow.pop_front();
        }
        slow.push_back(query);
        debug_assert!(slow.len() <= KEPT, "the last ones are kept");
    }

    /// Returns the stored slow queries, oldest first.
    pub(crate) fn slow(&self) -> Vec<SlowQuery> {
        self.slow.lock().iter().cloned().collect()
    }

    /// Returns the fields about queries for `Stats::fields`: names and values.
    pub(crate) fn fields(&self) -> [(&'static str, u64); 6] {
        let counts = self.queries.counts();
        [
            ("queries_point", counts.points),
            ("queries_row_range", counts.row_ranges),
            ("queries_partition", counts.partitions),
            ("queries_partition_range", counts.partition_ranges),
            ("queries_table", counts.tables + counts.table_scans),
            ("queries_slow", self.slow_count.load(Ordering::Relaxed)),
        ]
    }
}

/// Truncates `text` to at most [`TEXT_BYTES`], and shrinks its allocation.
fn cut(text: &mut String) {
    let mut end = TEXT_BYTES.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.shrink_to_fit();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_entries_are_kept_and_their_texts_truncated() {
        let log = QueryLog::default();
        for i in 0..2 * KEPT as u64 + 3 {
            log.keep(SlowQuery {
                at: DateTime::from(crate::model::Seq(i)),
                table: "things".to_owned(),
                filter: "é".repeat(TEXT_BYTES),
                class: "Full table scan",
                took: Duration::from_secs(i),
                rows_looked_at: 0,
                rows_returned: 0,
                explanation: "x".repeat(10),
            });
        }
        let kept = log.slow();
        assert_eq!((kept.len(), log.fields()[5].1), (KEPT, 2 * KEPT as u64 + 3));
        assert_eq!(kept[0].took, Duration::from_secs(KEPT as u64 + 3));
        assert!(kept.iter().all(|query| query.filter.len() == TEXT_BYTES));
        assert!(kept.iter().all(|query| query.explanation.len() == 10));
    }
}

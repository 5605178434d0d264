//! What was asked of a database: queries by class, and the last slow ones.
//!
//! Invariants
//! * memory is bounded: the last [`KEPT`] are kept, and of each at most [`TEXT_BYTES`] of its two texts.
//!
//! Not here: what the classes are (`query::plan`), who measures (`query::exec`).

use std::collections::VecDeque;
use std::time::Duration;

use crate::model::DateTime;
use crate::sync::{AtomicU64, Mutex, Ordering};

use super::counts::Queries;

/// Slow queries that are kept.
const KEPT: usize = 128;
/// Bytes of a filter, and of an explanation, that are kept.
const TEXT_BYTES: usize = 4 << 10;

/// A query that took long; see [`Options::slow_query`](crate::Options::slow_query).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowQuery {
    /// When it ended.
    pub at: DateTime,
    /// The table.
    pub table: String,
    /// The filter's text, at most 4 KiB of it; empty if all entities were asked for.
    pub filter: String,
    /// How widely it read, in the service's words: `Point query`, `Partition scan`, ….
    pub class: &'static str,
    /// From its beginning to its end, what the caller did between rows included.
    pub took: Duration,
    /// Versions of rows that were looked at.
    pub rows_looked_at: u64,
    /// Entities returned, or counted.
    pub rows_returned: u64,
    /// What `Query::explain` says of it, at most 4 KiB.
    pub explanation: String,
}

/// What a database has been asked since it was opened.
#[derive(Debug, Default)]
pub(crate) struct QueryLog {
    pub(crate) queries: Queries,
    slow: Mutex<VecDeque<SlowQuery>>,
    slow_count: AtomicU64,
}

impl QueryLog {
    /// Keeps a slow query, and forgets the oldest if there are too many.
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

    /// The last ones, oldest first.
    pub(crate) fn slow(&self) -> Vec<SlowQuery> {
        self.slow.lock().iter().cloned().collect()
    }

    /// What `Stats::fields` says of queries.
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

/// At most [`TEXT_BYTES`], and as much memory.
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
    fn the_last_are_kept_and_their_texts_cut() {
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

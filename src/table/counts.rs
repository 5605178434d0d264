//! The number of queries of a table, by class.
//!
//! Not here: the definition of the classes (`query::plan`).

use crate::sync::{AtomicU64, Ordering};

/// Counters of a table since the database was opened.
#[derive(Debug, Default)]
pub(crate) struct Queries([AtomicU64; 6]);

/// Numbers of queries by the span that they read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueryCounts {
    /// Nothing, or single keys.
    pub(crate) points: u64,
    /// A range of rows within one partition.
    pub(crate) row_ranges: u64,
    /// One whole partition.
    pub(crate) partitions: u64,
    /// More than one partition.
    pub(crate) partition_ranges: u64,
    /// The whole table, for a filter that bounds no key.
    pub(crate) table_scans: u64,
    /// The whole table, because there was no filter.
    pub(crate) tables: u64,
}

/// The counter of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breadth {
    Points,
    RowRange,
    Partition,
    PartitionRange,
    TableScan,
    Table,
}

impl Queries {
    #[inline]
    pub(crate) fn record(&self, breadth: Breadth) {
        self.0[breadth as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> QueryCounts {
        let counts = self.0.each_ref().map(|counter| counter.load(Ordering::Relaxed));
        let [points, row_ranges, partitions, partition_ranges, table_scans, tables] = counts;
        QueryCounts { points, row_ranges, partitions, partition_ranges, table_scans, tables }
    }
}

impl QueryCounts {
    /// The total number of queries.
    pub(crate) fn all(&self) -> u64 {
        let narrow = self.points + self.row_ranges + self.partitions;
        narrow + self.partition_ranges + self.table_scans + self.tables
    }
}

//! Counts the queries of a table by class: the kind of key range that a query reads. `query::plan`
//! determines the class.

use crate::sync::{AtomicU64, Ordering};

/// The query counters of a table since the database was opened.
#[derive(Debug, Default)]
pub(crate) struct Queries([AtomicU64; 6]);

/// The number of queries by class, that is, by the kind of key range that they read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueryCounts {
    /// Queries that read nothing or single keys.
    pub(crate) points: u64,
    /// Queries that read a range of rows within one partition.
    pub(crate) row_ranges: u64,
    /// Queries that read one whole partition.
    pub(crate) partitions: u64,
    /// Queries that read more than one partition.
    pub(crate) partition_ranges: u64,
    /// Queries that read the whole table because their filter does not restrict the keys.
    pub(crate) table_scans: u64,
    /// Queries that read the whole table because they have no filter.
    pub(crate) tables: u64,
}

/// The class of a query: the kind of key range that it reads.
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
    /// Returns the total number of queries.
    pub(crate) fn all(&self) -> u64 {
        let narrow = self.points + self.row_ranges + self.partitions;
        narrow + self.partition_ranges + self.table_scans + self.tables
    }
}

//! How many queries of each class a table has had.
//!
//! Not here: what the classes are (`query::plan`).

use crate::sync::{AtomicU64, Ordering};

/// Counters of a table, since the database was opened.
#[derive(Debug, Default)]
pub(crate) struct Queries {
    points: AtomicU64,
    row_ranges: AtomicU64,
    partitions: AtomicU64,
    partition_ranges: AtomicU64,
    table_scans: AtomicU64,
    tables: AtomicU64,
}

/// Queries by how widely they read.
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
    /// The whole table, because all of it was asked for.
    pub(crate) tables: u64,
}

/// Which counter a query belongs to.
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
    pub(crate) fn note(&self, breadth: Breadth) {
        let counter = match breadth {
            Breadth::Points => &self.points,
            Breadth::RowRange => &self.row_ranges,
            Breadth::Partition => &self.partitions,
            Breadth::PartitionRange => &self.partition_ranges,
            Breadth::TableScan => &self.table_scans,
            Breadth::Table => &self.tables,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> QueryCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        QueryCounts {
            points: of(&self.points),
            row_ranges: of(&self.row_ranges),
            partitions: of(&self.partitions),
            partition_ranges: of(&self.partition_ranges),
            table_scans: of(&self.table_scans),
            tables: of(&self.tables),
        }
    }
}

impl QueryCounts {
    /// Queries in all.
    pub(crate) fn all(&self) -> u64 {
        let narrow = self.points + self.row_ranges + self.partitions;
        narrow + self.partition_ranges + self.table_scans + self.tables
    }
}

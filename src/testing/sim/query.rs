//! Queries with filters, as steps of a program.
//!
//! Not here: the answers (`query_check`), the meaning of a condition (`expr`), scans of key ranges
//! (`step`), the text (`parse`).

use super::expr::Expr;

/// A query on a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// `None` matches every row.
    pub filter: Option<Expr>,
    /// The requested result.
    pub want: Want,
    /// The properties to read; `None` reads all.
    pub select: Option<Vec<String>>,
    /// The maximum number of rows, in all or in each page.
    pub top: Option<usize>,
    /// Reads page by page of this size, each page from the token of the previous one.
    pub page: Option<usize>,
    /// From the last row to the first.
    pub reverse: bool,
    /// Pages end early, controlled by this seed.
    pub busy: Option<u64>,
    /// The name of a snapshot; `None` reads the current state.
    pub at: Option<String>,
}

/// The requested result of the matching rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Want {
    /// The rows.
    #[default]
    Rows,
    /// The number of rows.
    Count,
    /// The number of rows of each partition.
    CountByPartition,
    /// The number of returned rows according to `explain`.
    Explain,
    /// Least, greatest and sum of this property.
    Aggregate(String),
}

//! Queries with filters, as steps ask them.
//!
//! Not here: the answers (`query_check`), what a condition means (`expr`), scans of key ranges
//! (`step`), the text (`parse`).

use super::expr::Expr;

/// What is asked of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Every row if there is none.
    pub filter: Option<Expr>,
    /// What is wanted of the rows.
    pub want: Want,
    /// The properties to read; all if there are none.
    pub select: Option<Vec<String>>,
    /// How many rows at most, or in each page.
    pub top: Option<usize>,
    /// Page by page of this size, each page from the token of the one before.
    pub page: Option<usize>,
    /// From the last to the first.
    pub reverse: bool,
    /// Pages end early, as this seed says.
    pub busy: Option<u64>,
    /// The name of a snapshot; what is visible now if there is none.
    pub at: Option<String>,
}

/// What is wanted of the rows that meet a filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Want {
    /// The rows.
    #[default]
    Rows,
    /// How many there are.
    Count,
    /// The same for each partition.
    CountByPartition,
    /// What `explain` says was returned.
    Explain,
    /// Least, greatest, sum of this property.
    Aggregate(String),
}

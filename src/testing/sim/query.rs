//! Queries with filters, which are steps of a program. `query_check` executes them and compares the
//! answers.

use super::expr::Expr;

/// A query on a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// The filter; `None` matches every row.
    pub filter: Option<Expr>,
    /// The requested result.
    pub want: Want,
    /// The properties to read; `None` reads all.
    pub select: Option<Vec<String>>,
    /// The maximum number of rows, in total or per page.
    pub top: Option<usize>,
    /// The size of a page, if the query is read by pages.
    pub page: Option<usize>,
    /// Whether rows are read from the last to the first.
    pub reverse: bool,
    /// The seed that decides which pages end early.
    pub busy: Option<u64>,
    /// The name of a snapshot; `None` reads the current state.
    pub at: Option<String>,
}

/// The result that a query returns for the matching rows.
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
    /// Minimum, maximum and sum of this property.
    Aggregate(String),
}

//! Queries with filters: what a step asks, and its text.
//!
//! Not here: the answers (`query_check`), what a condition means (`expr`), scans of key ranges (`step`).

use std::fmt;

use super::expr::Expr;
use super::words::{option, words};

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

impl fmt::Display for Query {
    /// The options, and the filter in a line of its own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.want {
            Want::Rows => {}
            Want::Count => f.write_str(" want=count")?,
            Want::CountByPartition => f.write_str(" want=counts")?,
            Want::Explain => f.write_str(" want=explain")?,
            Want::Aggregate(name) => write!(f, " of={name}")?,
        }
        option(f, "select", words(&self.select))?;
        option(f, "top", self.top)?;
        option(f, "page", self.page)?;
        option(f, "reverse", self.reverse.then_some(true))?;
        option(f, "busy", self.busy)?;
        option(f, "at", self.at.as_ref())?;
        self.filter.as_ref().map_or(Ok(()), |filter| write!(f, "\n{filter}"))
    }
}

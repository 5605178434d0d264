//! The problems of a sync: what it does not carry, or what only the target has.

use std::fmt;

use crate::error::Result;

/// A row, table or change of which source and target keep different states.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SyncProblem {
    /// The reason.
    pub kind: SyncProblemKind,
    /// The table.
    pub table: String,
    /// The PartitionKey and the RowKey; `None` for a whole table.
    pub row: Option<(String, String)>,
    /// An explanation for people.
    pub message: String,
}

/// The kinds of [`SyncProblem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncProblemKind {
    /// The target refuses the row, or its table.
    Refused,
    /// The source dropped the table, and the target keeps it.
    Kept,
    /// A comparison found the row or table at the target only. It stays there.
    OnlyAtTarget,
}

/// Receives problems.
pub(super) type Report<'s> = dyn Fn(&SyncProblem) -> Result<()> + Send + Sync + 's;

impl SyncProblemKind {
    /// Returns the name: `refused`, `kept` or `only-at-target`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Kept => "kept",
            Self::OnlyAtTarget => "only-at-target",
        }
    }
}

impl fmt::Display for SyncProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.table, self.message)
    }
}

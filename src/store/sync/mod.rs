//! Carries the changes of a database to a Table service or another database: a [`SyncJob`] reads
//! the change feed of its [`Source`] and writes to a [`TableStore`](super::TableStore).
//! docs/OPERATIONS.md explains what it carries, and what it does not: rows that expire at the
//! source stay at the target, unless that is asked for.
//!
//! Files: `job` (the steps), `window` (commits that are carried together), `plan` (which of them
//! share a group), `send` (groups), `barrier` (tables and ranges), `snapshot` (the comparison at
//! the start), `mark` and `saved` (positions at the target and at the source), `problem`, `stamp`
//! (a property of each carried row), `state` (as another process sees it).

mod barrier;
mod job;
mod mark;
mod plan;
mod problem;
mod saved;
mod send;
mod snapshot;
mod stamp;
mod state;
#[cfg(test)]
mod tests;
mod window;

#[cfg(any(feature = "cli", test))]
pub(crate) use self::job::SAME;
pub use self::job::{Step, SyncJob, SyncStatus};
pub use self::problem::{SyncProblem, SyncProblemKind};
pub(crate) use self::state::{Report, error_in};
#[cfg(feature = "sim")]
pub(crate) use crate::store::pages::contains;
pub use crate::store::source::{Lag, Source};

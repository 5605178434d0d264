//! One table of an open database, as the catalog holds it.

use std::sync::Arc;
use std::time::Duration;

use crate::lsm::Gate;
use crate::sync::{AtomicU64, Ordering};

use super::counts::Queries;
use super::slow::QueryLog;

/// One table.
#[derive(Debug)]
pub(crate) struct TableEntry {
    /// In the case it was created with.
    pub(crate) name: String,
    pub(crate) gate: Arc<Gate>,
    /// How long rows live, in seconds; 0: for ever.
    pub(super) ttl: AtomicU64,
    /// What was asked since opening.
    pub(crate) queries: Queries,
    /// What was asked of the database.
    pub(crate) log: Arc<QueryLog>,
}

impl TableEntry {
    /// How long rows live; `None`: for ever.
    pub(crate) fn ttl(&self) -> Option<Duration> {
        let seconds = self.ttl.load(Ordering::Acquire);
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }
}

//! The state of a table in an open database. The catalog has one [`TableEntry`] per table.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Result, quoted};
use crate::lsm::Gate;
use crate::model::Seq;
use crate::sync::{AtomicU64, Ordering};

use super::counts::Queries;
use super::slow::QueryLog;

/// One table.
#[derive(Debug)]
pub(crate) struct TableEntry {
    /// The name as spelled at creation.
    pub(crate) name: String,
    pub(crate) gate: Arc<Gate>,
    /// The time to live of rows in seconds; 0 means unlimited.
    pub(super) ttl: AtomicU64,
    /// The number of queries of this table since the database was opened, by class.
    pub(crate) queries: Queries,
    /// Statistics of the queries of all tables in the database.
    pub(crate) log: Arc<QueryLog>,
}

impl TableEntry {
    /// As [`Gate::check`]; the error names the table.
    pub(crate) fn check(&self, published: Seq) -> Result<()> {
        self.gate.check(published).map_err(|error| error.about(|| quoted("table", &self.name)))
    }

    /// Returns the time to live of rows; `None` means unlimited.
    pub(crate) fn ttl(&self) -> Option<Duration> {
        let seconds = self.ttl.load(Ordering::Acquire);
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }
}

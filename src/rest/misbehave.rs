//! Misbehaves on purpose: carries out the decisions of `behave` about requests and their answers.
//!
//! Invariant: a request is decided about once, after its client is authenticated and before it has
//! an effect. Requests for settings and for the page are never changed.
//!
//! `http::server` delays and cuts answers.

use crate::behave::{Asked, Decision, Fate, Operation};
use crate::rest::protocol::fault::Fault;
use crate::table;

use super::context::{Commits, Misbehaving, RequestContext};
use super::reply::{Delivery, End};

impl From<&Decision> for Delivery {
    fn from(decision: &Decision) -> Self {
        let end = match decision.fate {
            Some(Fate::Lost) => End::Lost,
            Some(Fate::Cut(number)) => End::Cut(number),
            _ => End::Whole,
        };
        Delivery { delay: decision.delay, end }
    }
}

impl RequestContext<'_> {
    /// Decides about the request. Returns the maximum number of entities of a page.
    ///
    /// # Errors
    /// That with which the request is refused.
    pub(super) fn misbehave(
        &self,
        operation: Operation,
        table: &str,
        partition: Option<&str>,
        rest: &[&str],
    ) -> Result<usize, Fault> {
        // A request whose commit failed was decided about before.
        let Some(Misbehaving { behaviour, decided }) = self.misbehaving else {
            return Ok(usize::MAX);
        };
        if matches!(self.commits, Commits::Failed(_)) {
            return Ok(usize::MAX);
        }
        let asked = Asked { account: &self.account.name, operation, table, partition, rest };
        match decided.get_or_init(|| behaviour.decide(&asked)).fate {
            Some(Fate::Refused(code)) => Err(Fault::from(code)),
            Some(Fate::Page(most)) => Ok(most),
            _ => Ok(usize::MAX),
        }
    }

    /// Records that the request deleted a table.
    pub(super) fn table_deleted(&self, table: &str) {
        if let Some(Misbehaving { behaviour, .. }) = self.misbehaving {
            behaviour.table_deleted(&self.account.name, table);
        }
    }
}

/// Returns the name of an operation in rules.
pub(super) fn name_of(operation: &table::Operation) -> Operation {
    match operation {
        table::Operation::Insert(_) => Operation::Insert,
        table::Operation::Replace(..) | table::Operation::Upsert(_) => Operation::Replace,
        table::Operation::Merge(..) | table::Operation::UpsertMerge(_) => Operation::Merge,
        table::Operation::Delete { .. } => Operation::Delete,
    }
}

//! Misbehaves on purpose: carries out the decisions of `behave` about requests and their answers.
//!
//! Invariant: a request is decided about once, after its client is authenticated and before it has
//! an effect. Requests for settings, for the page and for extensions are never changed.
//!
//! `http::server` delays and cuts answers.

use std::cell::OnceCell;
use std::time::Duration;

use crate::behave::{Asked, Behaviour, Decision, Fate, Operation};
use crate::rest::protocol::fault::Fault;
use crate::table;

use super::context::{Commits, RequestContext};

/// How an answer is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// The time to wait before the answer is sent.
    pub(crate) delay: Duration,
    pub(crate) end: End,
}

/// Where an answer ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    #[default]
    Whole,
    /// In the body, at a place that this number selects.
    Cut(u64),
    /// Before its first byte.
    Lost,
}

impl End {
    /// Returns the number of bytes to send of a body of `len` bytes; `None` if nothing is sent.
    pub(super) fn sent(self, len: usize) -> Option<usize> {
        match self {
            End::Whole => Some(len),
            End::Cut(number) if len > 1 => Some(1 + (number % (len as u64 - 1)) as usize),
            End::Cut(_) | End::Lost => None,
        }
    }
}

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

/// The rules of a server that misbehaves, and the decision about one request.
#[derive(Clone, Copy)]
pub(super) struct Misbehaving<'a> {
    pub(super) behaviour: &'a Behaviour,
    pub(super) decided: &'a OnceCell<Decision>,
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

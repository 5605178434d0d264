//! The state that a runner keeps between steps, in addition to engine and oracle.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::db::Position;
use crate::error::Error;
use crate::query::Token;
use crate::table::Ticket;

use super::oracle::Refusal;
use super::query::Query;
use super::row::{Key, Row};
use super::step::Write;

/// Whether the engine may or must answer a request with `ServerBusy`: because a gate is closed to
/// the rows that the request reads, or because the request exceeds a scalability target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Held {
    /// The engine must answer the request.
    #[default]
    No,
    /// The engine may answer or refuse the request.
    May,
    /// The engine must refuse the request with `ServerBusy`.
    Must,
}

impl Held {
    /// Returns the expected outcome of a write: `ServerBusy` if a gate or target had to refuse the
    /// write, or was free to refuse it and did; otherwise `expected`. Gates and targets are checked
    /// before the write's condition.
    pub(super) fn or_refused(
        self,
        expected: Result<(), Refusal>,
        error: Option<&Error>,
    ) -> Result<(), Refusal> {
        let is_busy = error.is_some_and(|error| error.code() == "ServerBusy");
        let is_there = !expected.is_err_and(|refusal| refusal.code == "TableNotFound");
        match is_there && (self == Held::Must || (self == Held::May && is_busy)) {
            true => Err(Refusal { code: "ServerBusy", index: None }),
            false => expected,
        }
    }

    /// Checks that a read was allowed to be answered.
    ///
    /// # Errors
    /// The read had to be refused.
    pub(super) fn check_served(self) -> Result<(), String> {
        match self {
            Held::Must => Err("held: a read was answered that had to be refused".to_owned()),
            Held::No | Held::May => Ok(()),
        }
    }
}

/// The use of the scalability targets so far. For each target there are bounds of the time, in
/// nanoseconds, at which its rate limiter becomes idle; the exact time is unknown. Closing the
/// database discards the bounds.
#[derive(Clone, Debug, Default)]
pub(super) struct Used {
    pub(super) database: [u64; 2],
    /// Lower bounds by table and PartitionKey.
    pub(super) partitions: BTreeMap<(String, String), u64>,
    pub(super) any_partition: u64,
}

/// The load of a request on the scalability targets.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    /// Table and PartitionKey of a point request.
    pub(super) partition: Option<(String, String)>,
    /// The number of entities that the targets must still permit before the request begins.
    pub(super) entities: u64,
    /// The least and the greatest cost, in entities.
    pub(super) costs: [u64; 2],
}

impl Ask {
    /// Returns the load of a request for entities of one partition, which are charged together.
    pub(super) fn points(table: &str, pk: &str, entities: u64) -> Self {
        let partition = Some((table.to_lowercase(), pk.to_owned()));
        Self { partition, entities, costs: [entities; 2] }
    }

    pub(super) fn writes(table: &str, writes: &[Write]) -> Self {
        let pk = writes.first().map(|write| write.pk.as_str()).unwrap_or_default();
        Self::points(table, pk, writes.len() as u64)
    }

    /// Returns the load of a query with this minimum and maximum cost, in entities.
    pub(super) fn query(least: usize, most: usize) -> Self {
        let entities = least.min(1) as u64;
        Self { partition: None, entities, costs: [least as u64, most as u64] }
    }
}

/// A paged query that is interleaved with other steps.
pub(super) struct Paging {
    pub(super) table: String,
    pub(super) query: Query,
    pub(super) token: Option<Token>,
}

/// A commit that was submitted and is not answered yet.
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    pub(super) seq: u64,
    pub(super) has_tag: Vec<bool>,
}

/// The state that a consumer has rebuilt from the change feed.
#[derive(Clone, Debug)]
pub(super) struct Fed {
    pub(super) position: Position,
    /// Rows by the lower-case name of the table.
    pub(super) tables: BTreeMap<String, BTreeMap<Key, Rc<Row>>>,
}

/// The faults, space limits and damage of the disk that are not undone yet.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// The number of faults that the engine had met when it was last known to work.
    pub(super) faults_before: u64,
    /// Whether a limit on space is in force.
    pub(super) is_limited: bool,
    /// Whether a limit on space was in force since the engine was last known to work.
    pub(super) was_limited: bool,
    pub(super) rot: Option<Rot>,
}

/// A flipped bit.
#[derive(Clone, Debug)]
pub(super) struct Rot {
    pub(super) path: String,
    pub(super) offset: u64,
    pub(super) mask: u8,
    pub(super) rotten: u8,
}

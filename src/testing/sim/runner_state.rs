//! What a runner keeps between steps, beside engine and oracle, and what it asks itself about a request.

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

/// What is due to a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Held {
    /// An answer.
    #[default]
    No,
    /// An answer, or `ServerBusy`.
    May,
    /// `ServerBusy`.
    Must,
}

impl Held {
    /// What is due to a write: what the semantics say, unless it was, or had to be, refused before.
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

    /// # Errors
    /// The read was answered and should not have been.
    pub(super) fn check_served(self) -> Result<(), String> {
        match self {
            Held::Must => Err("held: a read was answered that had to be refused".to_owned()),
            Held::No | Held::May => Ok(()),
        }
    }
}

/// Up to when what is used up, in nanoseconds; forgotten when the database is closed.
#[derive(Clone, Debug, Default)]
pub(super) struct Used {
    pub(super) database: [u64; 2],
    /// By table and PartitionKey.
    pub(super) partitions: BTreeMap<(String, String), u64>,
    pub(super) any_partition: u64,
}

/// What a request asks for.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    /// Table and PartitionKey, of points.
    pub(super) partition: Option<(String, String)>,
    /// Entities that must be free at once.
    pub(super) entities: u64,
    /// What it costs at least and at most.
    pub(super) costs: [u64; 2],
}

impl Ask {
    /// Entities of one partition, all at once.
    pub(super) fn points(table: &str, pk: &str, entities: u64) -> Self {
        let partition = Some((table.to_lowercase(), pk.to_owned()));
        Self { partition, entities, costs: [entities; 2] }
    }

    pub(super) fn writes(table: &str, writes: &[Write]) -> Self {
        let pk = writes.first().map(|write| write.pk.as_str()).unwrap_or_default();
        Self::points(table, pk, writes.len() as u64)
    }

    /// A query that costs so much, at least and at most.
    pub(super) fn query(least: usize, most: usize) -> Self {
        let entities = least.min(1) as u64;
        Self { partition: None, entities, costs: [least as u64, most as u64] }
    }
}

/// Pages that other steps come between.
pub(super) struct Paging {
    pub(super) table: String,
    pub(super) query: Query,
    pub(super) token: Option<Token>,
}

/// A commit that was submitted.
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    pub(super) seq: u64,
    pub(super) has_tag: Vec<bool>,
}

/// What a consumer has made of the feed.
#[derive(Clone, Debug)]
pub(super) struct Fed {
    pub(super) position: Position,
    /// By lower-case name.
    pub(super) tables: BTreeMap<String, BTreeMap<Key, Rc<Row>>>,
}

/// What was done to the disk and is not undone.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// Faults that the engine had met when it was last known to be well.
    pub(super) faults_before: u64,
    /// There is a limit on space.
    pub(super) is_limited: bool,
    /// There was one since then.
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

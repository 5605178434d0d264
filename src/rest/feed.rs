//! Reads the change feed for requests: a page of commits after a position.
//!
//! Invariants
//! * a page ends at a commit, and its position is the `since` of the next page;
//! * a request that waits for a commit holds no thread.
//!
//! `http::server` waits, `http::bell` wakes it, `json::changes` writes the commits.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderName;
use tokio::sync::watch;

use crate::db::{Changes, Commit, Db, Position};
use crate::error::{Error, ErrorKind};
use crate::json;
use crate::json::changes::put_commit;
use crate::rest::protocol::fault::{Fault, Known};
use crate::sync::Mutex;

use super::http::bell::Bell;
use super::http::body::Share;
use super::reply::Reply;
use super::request::Request;

/// The header with the position after a page.
const POSITION: HeaderName = HeaderName::from_static("x-rowstone-position");
/// The header with the number of commits in a page. Without it, a reader could not notice that a
/// proxy has cut the page between two commits.
const COMMITS: HeaderName = HeaderName::from_static("x-rowstone-commits");
const NDJSON: &str = "application/x-ndjson";
/// A page ends with the commit that reaches this size, in bytes.
const PAGE_BYTES: usize = 4 << 20;
/// The maximum number of feeds between two requests that an account keeps. Without one, the next
/// page reads the log from its start.
const KEPT_MAX: usize = 8;

/// The readers of the changes of an account.
#[derive(Debug, Default)]
pub(super) struct Readers {
    kept: Mutex<VecDeque<Changes>>,
    bell: Arc<Bell>,
}

/// The changes after a position, while a request reads them.
pub(super) struct Feed {
    db: Db,
    readers: Arc<Readers>,
    changes: Changes,
    /// The next commit, if it was read.
    next: Option<Commit>,
    /// The maximum time for which the request waits for a commit.
    pub(super) wait: Duration,
}

impl Feed {
    /// Begins after `since`, or at the oldest kept change.
    ///
    /// # Errors
    /// `ChangesLost`.
    pub(super) fn open(
        db: &Db,
        readers: &Arc<Readers>,
        since: Option<Position>,
        wait: Duration,
    ) -> Result<Self, Fault> {
        let since = since.map_or_else(|| db.oldest_position(), Ok).map_err(fault)?;
        let kept = {
            let mut kept = readers.kept.lock();
            let found = kept.iter().position(|changes| changes.position() == since);
            found.and_then(|at| kept.remove(at))
        };
        let changes = kept.map_or_else(|| db.changes(since), Ok).map_err(fault)?;
        Ok(Self { db: db.clone(), readers: Arc::clone(readers), changes, next: None, wait })
    }

    /// Returns a receiver that is told of changes after this call.
    pub(super) fn listen(&self) -> watch::Receiver<u64> {
        self.readers.bell.listen(&self.db)
    }

    /// Whether there are commits that were not read. They may not be durable yet.
    pub(super) fn is_behind(&self) -> bool {
        self.db.position() > self.changes.position()
    }

    /// Reads the next commit. Returns whether there is one.
    ///
    /// # Errors
    /// `ChangesLost`; errors of the storage.
    pub(super) fn look(&mut self) -> Result<bool, Fault> {
        if self.next.is_none() {
            self.next = self.changes.next().transpose().map_err(fault)?;
        }
        Ok(self.next.is_some())
    }

    /// Answers with the commits that are there.
    ///
    /// # Errors
    /// As [`look`](Self::look); `ServerBusy`.
    pub(super) fn reply(mut self, request: &Request) -> Result<Reply, Fault> {
        let (mut body, mut share, mut commits) = (Vec::new(), Share::default(), 0);
        while body.len() < PAGE_BYTES && self.look()? {
            let Some(commit) = self.next.take() else { break };
            let changes: Vec<_> = commit.changes.iter().collect();
            let line = json::object(|object| put_commit(object, &commit, &changes));
            request.grow(&mut share, body.len() + line.len() + 1)?;
            body.extend_from_slice(line.as_bytes());
            body.push(b'\n');
            commits += 1;
        }
        let reply = Reply::uncached(200).with(POSITION, self.changes.position().to_string());
        let reply = reply.with(COMMITS, commits.to_string());
        let mut kept = self.readers.kept.lock();
        kept.push_back(self.changes);
        if kept.len() > KEPT_MAX {
            kept.pop_front();
        }
        Ok(Reply { share, ..reply.with_body(NDJSON, body) })
    }
}

/// Converts an error of the change feed.
fn fault(error: Error) -> Fault {
    match error.kind() {
        ErrorKind::ChangesLost => Fault::from(Known::ChangesLost).with_message(error.message()),
        _ => error.into(),
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("changes", &self.changes).finish_non_exhaustive()
    }
}

//! Reads the change feed of `rowstone serve --extensions` commit by commit.
//!
//! Invariant: after an error, the next call continues with the same commit.

use std::time::Duration;

use super::client::Remote;
use super::extensions::ChangesPage;
use crate::db::{Commit, Position};
use crate::error::{Error, ErrorKind, Result};
use crate::json::changes::read_commit;

/// The commits after a position, in order.
pub(crate) struct RemoteChanges {
    remote: Remote,
    page: ChangesPage,
    /// The length of the lines of the page that were returned.
    at: usize,
}

impl RemoteChanges {
    pub(crate) fn new(remote: Remote, since: Position) -> Self {
        let page = ChangesPage { lines: String::new(), position: since };
        Self { remote, page, at: 0 }
    }

    /// Returns the next commit; `None` if there is none yet.
    ///
    /// # Errors
    /// `ChangesLost`; `Io` if the service is not reached.
    pub(crate) fn next(&mut self) -> Result<Option<Commit>> {
        self.read(Duration::ZERO)?;
        let rest = self.page.lines.get(self.at..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        let line = rest.split('\n').next().unwrap_or_default();
        let commit = read_commit(line).map_err(|error| {
            let text = format!("{} sent a malformed commit", self.remote.name());
            Error::new(ErrorKind::Io, format!("{text}: {}", error.message()))
        })?;
        self.at = (self.at + line.len() + 1).min(self.page.lines.len());
        Ok(Some(commit))
    }

    /// Waits for a commit, for `at_most` at the most.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub(crate) fn wait(&mut self, at_most: Duration) -> Result<()> {
        self.read(at_most)
    }

    /// Reads a page if all commits of the last one were returned.
    fn read(&mut self, wait: Duration) -> Result<()> {
        if self.at == self.page.lines.len() {
            self.page = self.remote.changes(self.page.position, wait)?;
            self.at = 0;
        }
        Ok(())
    }
}

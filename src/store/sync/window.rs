//! The commits of the feed that are carried together: as many as memory allows, or one with a
//! barrier.

use std::collections::VecDeque;

use super::barrier::is_barrier;
use super::plan::{Plan, Write};
use super::snapshot::is_carried;
use super::stamp::Stamp;
use crate::db::{Change, Commit, Position};
use crate::error::Result;
use crate::mutants::mutant;
use crate::store::continuation::Continuation;
use crate::store::source::Feed;

/// The maximum length of the writes of a window as JSON. One commit may be longer.
const WINDOW_BYTES: usize = 2 << 20;

/// The changes that are being carried.
#[derive(Default)]
pub(super) struct Window {
    pub(super) plan: Plan,
    pub(super) barriers: VecDeque<Change>,
    /// The position in a barrier.
    pub(super) next: Option<Continuation>,
    /// The position after the window; `None` for a page of a comparison.
    pub(super) end: Option<Position>,
    pub(super) commits: u64,
    /// A commit that was read and is not part of the window.
    pub(super) held: Option<Commit>,
}

impl Window {
    pub(super) fn is_empty(&self) -> bool {
        self.plan.is_empty() && self.barriers.is_empty() && self.end.is_none()
    }

    /// Reads commits, up to the size of a window or to a commit with a barrier, which has a window
    /// of its own.
    pub(super) fn fill(&mut self, changes: &mut dyn Feed, stamp: Option<&Stamp>) -> Result<()> {
        let is_barrier = |change: &Change| is_barrier(change, stamp);
        loop {
            let commit = match self.held.take() {
                Some(commit) => commit,
                None => match changes.next()? {
                    Some(commit) => commit,
                    None => return Ok(()),
                },
            };
            let has_barrier = commit.changes.iter().any(&is_barrier) && !mutant!("past-barrier");
            if has_barrier && self.end.is_some() {
                self.held = Some(commit);
                return Ok(());
            }
            self.add(commit, stamp);
            if has_barrier || self.plan.bytes() >= WINDOW_BYTES {
                return Ok(());
            }
        }
    }

    fn add(&mut self, commit: Commit, stamp: Option<&Stamp>) {
        (self.end, self.commits) = (Some(commit.position), self.commits + 1);
        let mut writes = Vec::new();
        for change in commit.changes.into_iter().filter(|change| is_carried(change.table())) {
            match change {
                Change::Put { table, entity } => writes.push(Write::put(&table, entity, stamp)),
                Change::Deleted { table, partition_key, row_key } => {
                    writes.push(Write::delete(&table, &partition_key, &row_key));
                }
                barrier if is_barrier(&barrier, stamp) => self.barriers.push_back(barrier),
                _ => {}
            }
        }
        self.plan.add(writes);
    }
}

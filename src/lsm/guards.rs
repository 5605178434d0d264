//! Handles that keep a database open: guards of snapshots, and tickets of commits that may not be
//! durable yet.
//!
//! `snapshot` decides which versions are kept for snapshots; `group_commit` forms commit groups.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::error::Result;
use crate::executor::Lane;
use crate::model::Seq;
use crate::options::Durability;

use crate::lsm::Engine;
use crate::lsm::write::batch::Batch;

/// A registered snapshot. The state at `seq` stays readable until the guard is dropped.
pub(crate) struct SnapshotGuard {
    engine: Arc<Engine>,
    pub(crate) seq: Seq,
}

impl SnapshotGuard {
    /// Takes a snapshot at the published Seq.
    pub(crate) fn take(engine: &Arc<Engine>) -> Self {
        let reader = engine.reader();
        Self { engine: Arc::clone(engine), seq: reader.snapshots.register(&reader.published) }
    }
}

impl Drop for SnapshotGuard {
    fn drop(&mut self) {
        let reader = self.engine.reader();
        if reader.snapshots.release(self.seq) {
            let executor = &self.engine.maintenance().executor;
            for lane in [Lane::Flush, Lane::Compact] {
                executor.signal(lane);
            }
        }
    }
}

/// A commit that was accepted but may not yet be as durable as requested.
///
/// Dropping a ticket does not cancel the commit: the next commit or a background thread syncs it.
#[must_use = "the commit is not durable until the ticket is waited for"]
pub(crate) struct CommitTicket {
    engine: Arc<Engine>,
    /// The Seq of the commit.
    pub(crate) seq: Seq,
}

impl CommitTicket {
    /// Commits `batch` without waiting.
    ///
    /// # Errors
    /// The errors of [`Engine::commit`] that are known before the commit is durable.
    pub(crate) fn submit(
        engine: &Arc<Engine>,
        batch: &Batch<'_>,
        durability: Durability,
    ) -> Result<Self> {
        let seq = engine.writer().submit(engine.maintenance(), batch, durability)?;
        Ok(Self { engine: Arc::clone(engine), seq })
    }

    /// Blocks until the commit is as durable as requested, and visible.
    ///
    /// # Errors
    /// `Poisoned`. Whether the commit survived is known only after the database is opened again.
    pub(crate) fn wait(&self) -> Result<()> {
        self.engine.writer().group_commit.wait(self.seq)
    }
}

impl Drop for CommitTicket {
    fn drop(&mut self) {
        if self.engine.reader().published() < self.seq {
            // Possibly no thread waits for this commit any more. Wake the background thread for the
            // log, which syncs the commit unless another commit does so first.
            self.engine.maintenance().executor.signal(Lane::Log);
        }
    }
}

impl Future for CommitTicket {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let group_commit = &this.engine.writer().group_commit;
        if let Some(result) = group_commit.poll(this.seq, context.waker()) {
            return Poll::Ready(result);
        }
        if this.engine.maintenance().executor.signal(Lane::Log) {
            return Poll::Pending;
        }
        // Without background threads this task must lead a commit group itself.
        Poll::Ready(this.wait())
    }
}

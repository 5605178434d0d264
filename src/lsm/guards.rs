//! Values that keep a database open: a snapshot, and a commit whose durability is waited for.
//!
//! Not here: what jobs keep for snapshots (`snapshot`), commit groups (`group_commit`).

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

/// Keeps a Seq readable until it is dropped.
pub(crate) struct SnapshotGuard {
    engine: Arc<Engine>,
    pub(crate) seq: Seq,
}

impl SnapshotGuard {
    /// Of the published Seq.
    pub(crate) fn take(engine: &Arc<Engine>) -> Self {
        let reader = engine.reader();
        Self { engine: Arc::clone(engine), seq: reader.snapshots.register(&reader.published) }
    }
}

impl Drop for SnapshotGuard {
    fn drop(&mut self) {
        let reader = self.engine.reader();
        if reader.snapshots.release(self.seq) && reader.has_drops() {
            self.engine.maintenance().executor.signal(Lane::Flush);
        }
    }
}

/// A commit that was accepted and is not yet known to be as durable as it asked.
///
/// Dropping a ticket does not take the commit back: it is driven by the next committer or in the background.
#[must_use = "the commit is not durable until the ticket is waited for"]
pub(crate) struct CommitTicket {
    engine: Arc<Engine>,
    /// The commit's number.
    pub(crate) seq: Seq,
}

impl CommitTicket {
    /// Commits `batch` without waiting.
    ///
    /// # Errors
    /// As [`Engine::commit`], for what is known before the commit is durable.
    pub(crate) fn submit(
        engine: &Arc<Engine>,
        batch: &Batch<'_>,
        durability: Durability,
    ) -> Result<Self> {
        let seq = engine.writer().submit(engine.maintenance(), batch, durability)?;
        Ok(Self { engine: Arc::clone(engine), seq })
    }

    /// Blocks until the commit is as durable as it asked, and visible.
    ///
    /// # Errors
    /// `Poisoned`: whether the commit survives is decided when the database is opened anew.
    pub(crate) fn wait(&self) -> Result<()> {
        self.engine.writer().group_commit.wait(self.seq)
    }
}

impl Drop for CommitTicket {
    fn drop(&mut self) {
        if self.engine.reader().published() < self.seq {
            // Nobody waits any more: the background sync takes it, if no other commit does.
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
        // Nobody runs steps for us: lead a commit group here rather than never.
        Poll::Ready(this.wait())
    }
}

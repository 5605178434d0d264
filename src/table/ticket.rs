//! The handle of a commit that was submitted and can be waited for.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::Result;
use crate::lsm::CommitTicket;
use crate::model::ETag;

/// A commit that was accepted and may not be durable yet. Block on [`wait`](Self::wait), or await
/// the ticket as a future; no async runtime is needed.
///
/// Dropping a ticket does not cancel the commit.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// # use rowstone::{Db, Entity, EntityGroup};
/// # let parts = Db::open_in_memory()?.create_table("parts")?;
/// let mut tickets = Vec::new();
/// for i in 0..8 {
///     let mut group = EntityGroup::new("bolts");
///     group.insert(Entity::new("bolts", format!("{i:04}")).with("Stock", i))?;
///     tickets.push(parts.commit_async(group)?);
/// }
/// for ticket in tickets {
///     ticket.wait()?; // eight commits, about one sync
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "the commit is not durable until the ticket is waited for"]
pub struct Ticket {
    pub(crate) commit: CommitTicket,
    /// The ETag of each operation of the group; `None` for a delete.
    pub(crate) etags: Vec<Option<ETag>>,
}

impl Ticket {
    pub(super) fn new(commit: CommitTicket, etags: Vec<Option<ETag>>) -> Self {
        Self { commit, etags }
    }

    /// Returns the commit's sequence number (Seq), which is known before the commit is durable.
    #[cfg(feature = "sim")]
    pub(crate) fn seq(&self) -> crate::model::Seq {
        self.commit.seq
    }

    /// Blocks until the commit is visible and has the requested durability.
    ///
    /// # Errors
    /// `Poisoned` after a failed write or sync. Then only reopening the database shows whether the
    /// commit survived.
    pub fn wait(self) -> Result<Vec<Option<ETag>>> {
        self.commit.wait()?;
        Ok(self.etags)
    }
}

impl Future for Ticket {
    type Output = Result<Vec<Option<ETag>>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        Pin::new(&mut this.commit).poll(context).map_ok(|()| std::mem::take(&mut this.etags))
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("seq", &self.commit.seq).finish_non_exhaustive()
    }
}

//! Commits an insert. Builds its row only after a pre-read has found no entity with the same key.
//!
//! Not here: the second check, under the commit lock, of an insert that the pre-read did not refuse
//! (`commit`).

use crate::error::{Code, Error, Result};
use crate::format::Kind;
use crate::model::Seq;
use crate::options::Durability;

use super::batch::{Action, Batch};
use super::log_queue::Closing;
use super::look_up::PreRead;
use super::retry::Unblock;
use super::writer::Writer;

impl Writer {
    /// Commits `batch`, which is a single insert, and waits until it is as durable as requested.
    /// `put` builds its row, and is called only if the pre-read finds no visible entity.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(in crate::lsm) fn commit_insert<'a>(
        &self,
        help: &impl Unblock,
        mut batch: Batch<'a>,
        durability: Durability,
        put: impl FnOnce() -> Action<'a>,
    ) -> Result<Seq> {
        let pre_read = self.look_up(&batch)?;
        if self.is_taken(&batch, &pre_read) {
            return Err(Error::refused(Code::EntityAlreadyExists));
        }
        if let [op] = batch.ops.as_mut_slice() {
            op.action = put();
        }
        let seq = self.submit_around(help, &batch, durability, Some(pre_read), || {})?;
        self.group_commit.wait(seq)?;
        Ok(seq)
    }

    /// True if the insert in `batch` can be refused without the commit lock: its key has an entity
    /// that every reader sees, and nothing else would refuse the insert. A later delete does not
    /// matter, because the refusal was correct at the time of the pre-read.
    fn is_taken(&self, batch: &Batch<'_>, pre_read: &PreRead) -> bool {
        let hidden = pre_read.hidden_since(0);
        let is_there = pre_read.current(0).is_some_and(|current| {
            let is_seen = current.seq <= self.reader.published();
            current.kind == Kind::Put && is_seen && hidden.is_none()
        });
        if !is_there || self.rate_limit.is_some() || batch.gate.dropped_at().is_some() {
            return false;
        }
        let state = self.group_commit.lock();
        state.failed.is_none()
            && state.queue.check_open(Closing::No).is_ok()
            && self.gates.closed_to(batch.ops.iter().map(|op| &*op.key)).is_none()
    }
}

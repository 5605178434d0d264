//! Makes the *pre-read* of a commit: before the commit lock is taken, reads the newest entries of
//! the keys that the batch depends on.
//!
//! Invariant: a pre-read is used only while everything written after it is still in memtables of
//! the current view, see [`PreRead::is_current`].
//!
//! Not here: evaluating conditions under the lock (`commit`), reads (`view`).

use smallvec::SmallVec;

use crate::error::Result;
use crate::format::Kind;
use crate::model::{Row, Seq};

use super::batch::{Batch, Op};
use super::writer::Writer;
use crate::lsm::Env;
use crate::lsm::read::view::{Current, View};

/// The entries that a commit found for its keys before it took the commit lock.
pub(crate) struct PreRead {
    /// The id of the newest memtable in the view that was read.
    memtable: u64,
    /// The entry found for each operation; `None` if the key has no entry or the operation needs
    /// none.
    found: SmallVec<[Option<PreReadHit>; 1]>,
}

/// The newest entry of a key in the view that was read.
struct PreReadHit {
    seq: Seq,
    kind: Kind,
    /// The row, if it is in a file. A row in memory is not copied, because it is usually still in
    /// memory when the commit is decided.
    row: Option<Row>,
    /// The Seq of the commit whose range tombstone hid the entry. That range tombstone may have
    /// been removed since, together with the entry.
    hidden: Option<Seq>,
}

impl PreRead {
    /// True if everything written since the pre-read is in the memtables of `view`.
    pub(crate) fn is_current(&self, view: &View) -> bool {
        view.memtables.last().is_some_and(|oldest| oldest.memtable.id <= self.memtable)
    }

    /// False if operation `index`, which is `op`, needs a row that the pre-read did not copy
    /// because the row was in memory.
    pub(crate) fn is_whole(&self, index: usize, op: &Op<'_>) -> bool {
        let found = self.found.get(index).and_then(Option::as_ref);
        found.is_none_or(|found| {
            found.kind == Kind::Delete || found.row.is_some() || !op.needs_row()
        })
    }

    /// Returns the entry found for operation `index`.
    pub(crate) fn current(&self, index: usize) -> Option<Current<'_>> {
        let found = self.found.get(index)?.as_ref()?;
        let row = found.row.as_ref().map(Row::as_ref);
        Some(Current { seq: found.seq, kind: found.kind, row, is_checked: false })
    }

    /// Returns the commit of the range tombstone that hid the entry at the pre-read, if any.
    pub(crate) fn hidden_since(&self, index: usize) -> Option<Seq> {
        self.found.get(index)?.as_ref()?.hidden
    }
}

impl PreReadHit {
    /// Finds the newest entry of the operation's key. Range tombstones are only recorded here; the
    /// decision under the commit lock applies them.
    #[inline]
    fn newest(view: &View, env: &Env, op: &Op<'_>) -> Result<Option<Self>> {
        let hidden = |seq| view.range_tombstones.hidden_since(&op.key, seq);
        let mut in_memory = view.memtables.iter();
        if let Some(entry) = in_memory.find_map(|slot| slot.memtable.newest(op.hash, &op.key)) {
            let (seq, kind) = (entry.seq, entry.kind);
            return Ok(Some(Self { seq, kind, row: None, hidden: hidden(seq) }));
        }
        let Some(hit) = view.find_in_files(env, op.hash, &op.key, Seq(u64::MAX))? else {
            return Ok(None);
        };
        let (seq, kind) = (hit.seq, hit.kind);
        let row = match kind {
            Kind::Put if op.needs_row() => Some(hit.row()?.to_row()),
            _ => None,
        };
        Ok(Some(Self { seq, kind, row, hidden: hidden(seq) }))
    }
}

impl Writer {
    /// Reads, outside the commit lock, the newest entry of each key in `batch` whose operation
    /// depends on that entry.
    pub(crate) fn look_up(&self, batch: &Batch<'_>) -> Result<PreRead> {
        let view = self.reader.view.load();
        let memtable = view.active().memtable.id;
        let mut found = SmallVec::new();
        if batch.ops.iter().any(|op| op.needs_current()) {
            found.reserve(batch.ops.len());
            for op in &batch.ops {
                found.push(if op.needs_current() {
                    PreReadHit::newest(&view, &self.reader.env, op)?
                } else {
                    None
                });
            }
        }
        Ok(PreRead { memtable, found })
    }
}

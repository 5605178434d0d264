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
use crate::format::span::Span;
use crate::manifest::FileReference;
use crate::model::{Row, Seq};

use super::batch::{Batch, Op};
use super::writer::Writer;
use crate::lsm::Env;
use crate::lsm::read::view::{Current, View, find_in};

/// The entries that a commit found for its keys before it took the commit lock.
pub(crate) struct PreRead {
    /// The id of the newest memtable in the view that was read.
    memtable: u64,
    /// The entry found for each operation; `None` if the key has no entry or the operation needs
    /// none. Empty if the files and the frozen memtables have no entry for any operation.
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

/// Batches with fewer operations look up each key in every file.
const GROUP_LEAST: usize = 8;

/// Returns the span of the keys that the operations of a group depend on. `None` for a small batch.
fn span_of(batch: &Batch<'_>) -> Option<Span> {
    if batch.ops.len() < GROUP_LEAST {
        return None;
    }
    let mut keys = batch.ops.iter().filter(|op| op.needs_current()).map(|op| &*op.key);
    let first = keys.next()?;
    let (mut low, mut high) = (first, first);
    for key in keys {
        // Most groups are in ascending order, so the first comparison usually suffices.
        if key > high {
            high = key;
        } else if key < low {
            low = key;
        }
    }
    Some(Span::inclusive(low, high))
}

impl PreReadHit {
    /// Finds the newest entry of the operation's key, in memory and in `files` or, if that is
    /// `None`, in all files. Range tombstones are only recorded here; the decision under the commit
    /// lock applies them.
    #[inline]
    fn newest(
        view: &View,
        env: &Env,
        op: &Op<'_>,
        files: Option<&[&FileReference]>,
    ) -> Result<Option<Self>> {
        let hidden = |seq| view.range_tombstones.hidden_since(&op.key, seq);
        let mut in_memory = view.memtables.iter();
        if let Some(entry) = in_memory.find_map(|slot| slot.memtable.newest(op.hash, &op.key)) {
            let (seq, kind) = (entry.seq, entry.kind);
            return Ok(Some(Self { seq, kind, row: None, hidden: hidden(seq) }));
        }
        let key = (op.hash, &*op.key, Seq(u64::MAX));
        let hit = match files {
            Some(files) => find_in(env, files.iter().copied(), key)?,
            None => view.find_in_files(env, key.0, key.1, key.2)?,
        };
        let Some(hit) = hit else { return Ok(None) };
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
        let (view, env) = (self.reader.view.load(), &*self.reader.env);
        let mut pre_read = PreRead { memtable: view.active().memtable.id, found: SmallVec::new() };
        if !batch.ops.iter().any(|op| op.needs_current()) {
            return Ok(pre_read);
        }
        let files = span_of(batch).map(|span| view.files_in(env, &span));
        // Under the commit lock the active memtable is read again anyway.
        if view.frozen().is_empty() && files.as_ref().is_some_and(Vec::is_empty) {
            return Ok(pre_read);
        }
        pre_read.found.reserve(batch.ops.len());
        for op in &batch.ops {
            pre_read.found.push(match op.needs_current() {
                true => PreReadHit::newest(&view, env, op, files.as_deref())?,
                false => None,
            });
        }
        Ok(pre_read)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::super::batch::{Action, Condition, Gate, PackedRow};
    use super::*;
    use crate::error::{Code, Error};
    use crate::format::key::user_key;
    use crate::format::names::TableId;
    use crate::fs::MemFs;
    use crate::lsm::Engine;
    use crate::model::Entity;
    use crate::options::{Background, Durability, Options};

    fn engine() -> Arc<Engine> {
        let options = Options::default().fs(Arc::new(MemFs::new()));
        crate::lsm::open("db".as_ref(), options.background(Background::Manual)).unwrap()
    }

    /// Returns a group that inserts rows if they are absent.
    fn inserts(engine: &Engine, rows: impl Iterator<Item = u32>) -> Batch<'static> {
        let (env, table) = (engine.env(), TableId(7));
        let op = |row: u32| {
            let row = format!("{row:04}");
            let key = user_key(table, "p", &row);
            let row = Entity::new("p", row).to_row(&env.shapes).unwrap();
            let action = Action::Put(PackedRow::of(row, &env.shapes));
            Op { hash: env.hash(&key), key: key.into(), condition: Condition::Absent, action }
        };
        Batch {
            ops: rows.map(op).collect(),
            is_group: true,
            ..Batch::of_changes(&Arc::new(Gate::new(table)), Vec::new())
        }
    }

    fn write(engine: &Engine, rows: impl Iterator<Item = u32>) {
        engine.commit(&inserts(engine, rows), Durability::Os).unwrap();
    }

    #[test]
    fn a_group_looks_up_keys_only_in_files_with_keys_in_its_span() {
        let engine = engine();
        for low in [100, 500] {
            write(&engine, (low..low + 400).step_by(20));
            engine.maintenance().flush_all().unwrap();
        }
        let found = |rows: &mut dyn Iterator<Item = u32>| {
            engine.writer().look_up(&inserts(&engine, rows)).unwrap().found
        };
        for rows in [0..100, 101..120, 481..500, 881..900] {
            assert!(found(&mut rows.clone()).is_empty(), "{rows:?}");
            assert!(found(&mut rows.clone().rev()).is_empty(), "{rows:?}");
        }
        for row in [100, 300, 480, 500, 880] {
            let near = found(&mut (row - 10..row + 10));
            let hits: Vec<_> = near.iter().map(Option::is_some).collect();
            let expected: Vec<_> = (row - 10..row + 10).map(|other| other == row).collect();
            assert_eq!(hits, expected, "{row}");
        }
    }

    /// The pre-read of a group does not read the active memtable. If that is flushed before the
    /// decision, the group must still find the row.
    #[test]
    fn a_group_finds_a_row_that_is_flushed_between_look_up_and_decision() {
        for is_frozen in [false, true] {
            let engine = engine();
            write(&engine, [100, 900].into_iter());
            engine.maintenance().flush_all().unwrap();
            write(&engine, std::iter::once(305));
            if is_frozen {
                engine.maintenance().freeze().unwrap();
            }
            let group = inserts(&engine, 300..310);
            let flush = || engine.maintenance().flush_all().unwrap();
            let (help, durability) = (engine.maintenance(), Durability::Os);
            let refused = engine.writer().submit_around(help, &group, durability, None, flush);
            let error = refused.unwrap_err();
            assert_eq!(error.code(), Error::refused(Code::EntityAlreadyExists).code());
            assert_eq!(error.index(), Some(5));
        }
    }
}

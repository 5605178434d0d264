//! Checks the limit on disk use (`Options::max_disk`). The accounted bytes equal the size of the
//! files and never exceed the limit. A refused write has no effect. Eviction removes the oldest
//! rows of the tables that permit it.

use crate::error::{Error, ErrorKind};
use crate::lsm::Evicted;
use crate::options::Durability;

use super::counts::Event;
use super::engine::PATH;
use super::generate::RING;
use super::oracle::{Change, Refusal};
use super::runner::{Outcome, Runner};
use super::step::Step;

/// Errors that the limit causes contain this text.
const OPTION: &str = "Options::max_disk";
/// Errors of log writes contain this text. The limit should have refused such writes earlier.
const LOG: &str = ".wal";
/// The unit in which a manifest reserves space, in bytes.
const MANIFEST_BYTES: u64 = 64 << 10;
/// The maximum number of bytes that the engine adds for a row when it checks the limit, unless the
/// generator makes large rows.
const ROW_BYTES: u64 = 4 << 10;

/// Returns the maximum number of bytes that the engine adds to the size of the files when it checks
/// the limit before `change`: the space that the manifest reserves again after a close, and twice
/// the size of each row, with a kibibyte for the row that it is merged into.
fn admitted_for(change: &Change) -> u64 {
    let rows = match change {
        Change::Rows { writes, .. } => writes.len() as u64,
        _ => 1,
    };
    MANIFEST_BYTES + rows * ROW_BYTES
}

impl Runner {
    /// Whether the error is a refusal by the limit, as opposed to a full disk.
    pub(super) fn is_of_cap(&self, error: &Error) -> bool {
        let is_capped = self.engine.config.cap.is_some();
        is_capped && error.kind() == ErrorKind::StorageFull && error.chain().contains(OPTION)
    }

    /// Returns whether the limit refused `change`. Returns an error if this refusal was wrong.
    pub(super) fn is_near_cap(&mut self, error: &Error, change: &Change) -> Result<bool, String> {
        if !self.is_of_cap(error) {
            return Ok(false);
        }
        if matches!(change, Change::Drop(_) | Change::DropRange { .. } | Change::Expire { .. }) {
            return Err(format!("cap: what makes room is refused: {error:?}"));
        }
        if error.chain().contains(LOG) {
            return Err(format!("cap: what was let pass is refused by the log: {error:?}"));
        }
        // Fails if so little space is used that a refusal is wrong. The bound is lower if tables
        // evict their oldest rows, because the generator then makes larger rows.
        let part = if self.engine.config.ring { 6 } else { 3 };
        if let Some([used, limit, ..]) = self.engine.db().engine().maintenance().disk_use()
            && used + admitted_for(change) < limit / part
        {
            return Err(format!("cap: {used} of {limit} bytes are used, and it says {error:?}"));
        }
        self.counts.note(Event::Capped);
        Ok(true)
    }

    /// Records the rows that the engine evicted to make room since this function was last called,
    /// and returns whether there are any. Only tables that permit eviction may lose rows, and no
    /// row of the last commit may be lost.
    pub(super) fn record_given(&mut self) -> Result<bool, String> {
        if !self.engine.is_open() {
            return Ok(false);
        }
        let given = self.engine.db().engine().maintenance().take_evicted();
        for Evicted { tables, below, seq } in &given {
            let below = below.ticks();
            let id_of = |name: &str| self.engine.db().table(name).ok().map(|t| t.entry.gate.table);
            let name_of = |id| RING.into_iter().find(|name| id_of(name) == Some(id));
            let named: Option<Vec<String>> =
                tables.iter().map(|id| name_of(*id).map(str::to_owned)).collect();
            let Some(named) = named.filter(|_| self.engine.config.ring) else {
                return Err(format!("ring: of {tables:?} some were not to give anything"));
            };
            if below > self.oracle.last_seq() {
                return Err(format!("ring: all below {below} is evicted, also the last commit"));
            }
            let goes = |name: &String| self.oracle.count_below(name, below);
            if named.iter().map(goes).sum::<usize>() > 0 {
                self.counts.note(Event::Given);
            }
            let change = Change::Oldest { tables: named, below };
            match seq {
                Some(seq) => {
                    self.accepted(&change, 0, seq.ticks(), Durability::Sync)?;
                    self.oracle.show(self.oracle.commits());
                }
                None => self.oracle.pending.push(change),
            }
        }
        Ok(!given.is_empty())
    }

    /// Flushes. This must succeed, because the memtable always fits within the limit.
    pub(super) fn flush(&mut self) -> Outcome {
        let flushed = self.engine.db().flush();
        if let Err(error) = &flushed
            && self.is_of_cap(error)
            && !self.is_disk_troubled()
        {
            return Err(format!("cap: a flush has no room: {error:?}"));
        }
        self.excuse(flushed)
    }

    /// Returns the expected outcome of `change`. The change is evaluated without the rows that were
    /// evicted to make space for it.
    pub(super) fn judge(
        &mut self,
        change: &Change,
        expected: Result<(), Refusal>,
    ) -> Result<Result<(), Refusal>, String> {
        Ok(if self.record_given()? { self.oracle.check(change) } else { expected })
    }

    /// Checks the accounted bytes against the files and the limit.
    pub(super) fn check_cap(&mut self) -> Result<(), String> {
        self.record_given()?;
        if !self.engine.is_open() || self.may_differ_on_disk() {
            return Ok(());
        }
        let Some([used, limit, ..]) = self.engine.db().engine().maintenance().disk_use() else {
            return Ok(());
        };
        let (fs, inside) = (&self.engine.fs, format!("{PATH}/"));
        let paths = fs.paths().into_iter().filter(|path| path.starts_with(&inside));
        let found: u64 = paths.map(|path| fs.len(path).unwrap_or_default()).sum();
        if found != used {
            return Err(format!("cap: the files take {found} bytes, and {used} are counted"));
        }
        if used > limit {
            return Err(format!("cap: {used} bytes are used, of {limit}"));
        }
        Ok(())
    }

    /// If there is a limit, reopens the database without it.
    pub(super) fn lift_cap(&mut self) -> Outcome {
        match self.engine.config.cap.take() {
            Some(_) => self.run(&Step::Reopen),
            None => Ok(Vec::new()),
        }
    }
}

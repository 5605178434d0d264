//! What a read looks at: the memtables and the version, pinned together.
//!
//! Invariants
//! * memtables stand newest first, and each is newer than every file of the version;
//! * a reader pins the view first and takes the published Seq afterwards, so that no version of a row that is
//!   visible at that Seq was dropped from the view (a job keeps what is visible at the Seq it started at).
//!
//! Not here: scans (`merge`), the current view (`Engine::view`).

use std::sync::Arc;

use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::format::Kind;
use crate::format::names::FileNumber;
use crate::format::row::{decode_common_row, decode_row};
use crate::manifest::{FileEntry, Version};
use crate::memtable::{Entry, Memtable};
use crate::model::{Row, RowRef, Seq, ShapeId, Shapes};
use crate::ranges::Reference;
use crate::sst::{Hit, Sst};

use super::range_tombstones::RangeTombstones;
use crate::lsm::write::batch::{Batch, Current, Op};
use crate::lsm::write::commit::RANGE_TOMBSTONE_BYTES_MAX;
use crate::lsm::{Engine, Env};

/// An immutable pairing of memtables and version.
pub(crate) struct View {
    /// Newest first; the first takes writes.
    pub(crate) memtables: Vec<Arc<Slot>>,
    pub(crate) version: Arc<Version>,
    /// Those of the version, and younger ones.
    pub(crate) range_tombstones: Arc<RangeTombstones>,
}

/// A memtable and the logs that hold what it holds.
pub(crate) struct Slot {
    pub(crate) memtable: Arc<Memtable>,
    /// In order of writing. Recovery may leave several small logs to one memtable.
    pub(crate) logs: Vec<FileNumber>,
}

/// What a commit saw of its keys before it took the lock.
pub(crate) struct PreRead {
    /// The id of the newest memtable in the view that was looked at.
    memtable: u64,
    /// By operation; `None` where there is no entry or none was needed.
    found: SmallVec<[Option<PreReadHit>; 1]>,
}

/// The newest entry of a key in the view that was looked at.
struct PreReadHit {
    seq: Seq,
    kind: Kind,
    /// That of a file. One that is in memory is most often still there when it is decided about, and is not copied.
    row: Option<Row>,
    /// The commit of a range tombstone that hides it there. The range tombstone may have left since, and the entry with it.
    hidden: Option<Seq>,
}

impl Slot {
    /// True if rows or range tombstones take half of what they may.
    pub(crate) fn is_half_full(&self, memtable_bytes: usize) -> bool {
        self.memtable.bytes() >= memtable_bytes / 2
            || self.memtable.noted_bytes() >= RANGE_TOMBSTONE_BYTES_MAX / 2
    }
}

impl View {
    /// The memtable that takes writes.
    pub(crate) fn active(&self) -> &Slot {
        &self.memtables[0]
    }

    /// The memtables that only wait for their flush.
    pub(crate) fn frozen(&self) -> &[Arc<Slot>] {
        &self.memtables[1..]
    }

    /// The same files under a new memtable.
    pub(crate) fn with_active(&self, slot: &Arc<Slot>) -> View {
        let mut memtables = Vec::with_capacity(self.memtables.len() + 1);
        memtables.push(Arc::clone(slot));
        memtables.extend(self.memtables.iter().cloned());
        View {
            memtables,
            version: Arc::clone(&self.version),
            range_tombstones: Arc::clone(&self.range_tombstones),
        }
    }

    /// The same, its active memtable in the log `number` too.
    pub(crate) fn with_log(&self, number: FileNumber) -> View {
        let mut memtables = self.memtables.clone();
        if let Some(active) = memtables.first_mut() {
            let logs = active.logs.iter().copied().chain([number]).collect();
            *active = Arc::new(Slot { memtable: Arc::clone(&active.memtable), logs });
        }
        View {
            memtables,
            version: Arc::clone(&self.version),
            range_tombstones: Arc::clone(&self.range_tombstones),
        }
    }

    /// The same memtables and files under other range tombstones.
    pub(crate) fn with_range_tombstones(&self, range_tombstones: Arc<RangeTombstones>) -> View {
        let memtables = self.memtables.clone();
        View { memtables, version: Arc::clone(&self.version), range_tombstones }
    }

    /// The same memtables, less `flushed`, over a new version.
    pub(crate) fn with_version(&self, version: &Arc<Version>, flushed: Option<u64>) -> View {
        let stays = |slot: &&Arc<Slot>| Some(slot.memtable.id()) != flushed;
        View {
            memtables: self.memtables.iter().filter(stays).cloned().collect(),
            version: Arc::clone(version),
            range_tombstones: Arc::clone(&self.range_tombstones),
        }
    }

    /// False if a reader at `at` sees nothing of a file: range tombstones hide it, or it came in later.
    #[inline]
    pub(crate) fn can_see(&self, file: &Reference<Arc<FileEntry>>, at: Seq) -> bool {
        let meta = &file.file.meta;
        file.file.is_visible(at)
            && (self.range_tombstones.is_empty()
                || !self.range_tombstones.covers(&file.clip, meta.seq_max, at))
    }

    /// The newest entry of a key in the memtables, published or not.
    pub(crate) fn newest_in_memory<'a>(
        &'a self,
        hash: u64,
        key: &[u8],
        shapes: &'a Shapes,
    ) -> Result<Option<Current<'a>>> {
        let found = self.memtables.iter().find_map(|slot| slot.memtable.newest(hash, key));
        found.map(|entry| current(entry, shapes)).transpose()
    }

    /// Calls `with` with the newest entry of a key at or below `at`, if there is one that no range tombstone hides.
    #[inline]
    pub(crate) fn read<R>(
        &self,
        env: &Env,
        hash: u64,
        key: &[u8],
        at: Seq,
        with: impl FnOnce(Current<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        let below = self.range_tombstones.floor(key, at);
        let found = self.read_through(env, hash, key, at, |current| {
            (current.seq >= below).then(|| with(current)).transpose()
        })?;
        Ok(found.flatten())
    }

    /// As [`read`](Self::read), also what range tombstones hide.
    #[inline]
    fn read_through<R>(
        &self,
        env: &Env,
        hash: u64,
        key: &[u8],
        at: Seq,
        with: impl FnOnce(Current<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        for slot in &self.memtables {
            if let Some(entry) = slot.memtable.get(hash, key, at) {
                return with(current(entry, &env.shapes)?).map(Some);
            }
        }
        let Some(hit) = self.find_in_files(env, hash, key, at)? else { return Ok(None) };
        let row = match hit.kind {
            Kind::Put => Some(hit.row()?),
            Kind::Delete => None,
        };
        with(Current { seq: hit.seq, kind: hit.kind, row, is_checked: false }).map(Some)
    }

    /// The newest entry of an operation's key. What range tombstones hide is decided under the lock, also by what is known here.
    #[inline]
    fn found(&self, env: &Env, op: &Op<'_>) -> Result<Option<PreReadHit>> {
        let hidden = |seq| self.range_tombstones.hidden_since(&op.key, seq);
        let mut in_memory = self.memtables.iter();
        if let Some(entry) = in_memory.find_map(|slot| slot.memtable.newest(op.hash, &op.key)) {
            let (seq, kind) = (entry.seq, entry.kind);
            return Ok(Some(PreReadHit { seq, kind, row: None, hidden: hidden(seq) }));
        }
        let Some(hit) = self.find_in_files(env, op.hash, &op.key, Seq(u64::MAX))? else {
            return Ok(None);
        };
        let (seq, kind) = (hit.seq, hit.kind);
        let row = match kind {
            Kind::Put if op.needs_row() => Some(hit.row()?.to_row()),
            _ => None,
        };
        Ok(Some(PreReadHit { seq, kind, row, hidden: hidden(seq) }))
    }

    /// The newest entry of a key at or below `at` in the files.
    fn find_in_files(&self, env: &Env, hash: u64, key: &[u8], at: Seq) -> Result<Option<Hit<'_>>> {
        let Some(range) = self.version.range_for(key) else { return Ok(None) };
        // A file is asked by its own bounds first: whether the clip holds the key matters only if the file may. Then it
        // comes first: damage in what was merged away concerns nobody.
        for file in &range.young {
            let counts = || file.clip.contains(key);
            if file.file.is_visible(at)
                && let Some(sst) = open_for(env, file, key)?
                && let Some(hit) = sst.get_if(hash, key, at, counts)?
            {
                return Ok(Some(hit));
            }
        }
        let run = range.run_at(key).filter(|file| file.file.is_visible(at));
        match run.map(|file| open_for(env, file, key)).transpose()?.flatten() {
            Some(sst) => sst.get(hash, key, at),
            None => Ok(None),
        }
    }
}

/// The reader of a file that may hold `key`; `None` for one that cannot be opened and does not.
#[inline]
fn open_for<'a>(
    env: &Env,
    file: &'a Reference<Arc<FileEntry>>,
    key: &[u8],
) -> Result<Option<&'a Arc<Sst>>> {
    match env.open_sst(&file.file) {
        Ok(sst) => Ok(Some(sst)),
        Err(_) if !file.file.meta.covers(key) || !file.clip.contains(key) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A memtable's entry with its row decoded.
pub(crate) fn current<'a>(entry: Entry<'a>, shapes: &'a Shapes) -> Result<Current<'a>> {
    let row = match entry.kind {
        Kind::Put => Some(memory_row(entry.row, shapes)?),
        Kind::Delete => None,
    };
    Ok(Current { seq: entry.seq, kind: entry.kind, row, is_checked: true })
}

/// A row as memtables and logs frame it: numbered by the registry.
#[inline(always)]
pub(crate) fn memory_row<'a>(row: &'a [u8], shapes: &'a Shapes) -> Result<RowRef<'a>> {
    match decode_common_row(row, |number| shapes.get(ShapeId(number))) {
        Some(row) => Ok(row),
        None => rare_memory_row(row, shapes),
    }
}

#[cold]
#[inline(never)]
fn rare_memory_row<'a>(row: &'a [u8], shapes: &'a Shapes) -> Result<RowRef<'a>> {
    // Only rows that were encoded or verified by this process are in a memtable.
    decode_row(row, |number| shapes.get(ShapeId(number)))
        .map_err(|error| Error::decode("memtable".as_ref(), 0, error))
}

impl PreRead {
    /// True if everything written since the look-up is in the memtables of `view`.
    pub(crate) fn stands(&self, view: &View) -> bool {
        view.memtables.last().is_some_and(|oldest| oldest.memtable.id() <= self.memtable)
    }

    /// False if `op`, the operation `index`, needs a row that was left in memory.
    pub(crate) fn is_whole(&self, index: usize, op: &Op<'_>) -> bool {
        let found = self.found.get(index).and_then(Option::as_ref);
        found.is_none_or(|found| {
            found.kind == Kind::Delete || found.row.is_some() || !op.needs_row()
        })
    }

    /// What was found for operation `index`.
    pub(crate) fn current(&self, index: usize) -> Option<Current<'_>> {
        let found = self.found.get(index)?.as_ref()?;
        let row = found.row.as_ref().map(Row::as_ref);
        Some(Current { seq: found.seq, kind: found.kind, row, is_checked: false })
    }

    /// The commit that hides it, if one did already.
    pub(crate) fn hidden_since(&self, index: usize) -> Option<Seq> {
        self.found.get(index)?.as_ref()?.hidden
    }
}

impl Engine {
    /// Looks up the keys of `batch` whose newest entry matters, outside the commit lock.
    pub(crate) fn look_up(&self, batch: &Batch<'_>) -> Result<PreRead> {
        let view = self.view.load();
        let memtable = view.active().memtable.id();
        let mut found = SmallVec::new();
        if batch.ops.iter().any(|op| op.needs_current()) {
            found.reserve(batch.ops.len());
            for op in &batch.ops {
                found.push(if op.needs_current() { view.found(&self.env, op)? } else { None });
            }
        }
        Ok(PreRead { memtable, found })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

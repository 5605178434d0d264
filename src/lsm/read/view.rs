//! A view: the memtables and the version that a read uses, pinned together.
//!
//! Invariants
//! * memtables are ordered newest first, and each is newer than every file of the version;
//! * a reader pins the view first and loads the published Seq afterwards. The view then has all row
//!   versions visible at that Seq, because a job keeps all versions that are visible at the Seq
//!   published when the job started.
//!
//! Not here: scans (`merge`), the current view (`Reader::view`).

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::Kind;
use crate::format::names::FileNumber;
use crate::format::row::{decode_common_row, decode_row};
use crate::format::span::Span;
use crate::manifest::{FileEntry, FileReference, Version};
use crate::memtable::{Entry, Memtable};
use crate::model::{RowRef, Seq, ShapeId, Shapes};
use crate::ranges::{Chain, chains};
use crate::sst::{Hit, Sst};

use super::load_sampling::{Due, Memory, Operation, Place, memory_rows_of};
use super::range_tombstones::{RANGE_TOMBSTONE_BYTES_MAX, RangeTombstones};
use crate::lsm::Env;

/// The memtables and a version. Immutable.
#[derive(Clone)]
pub(crate) struct View {
    /// The memtables, newest first. The first one accepts writes.
    pub(crate) memtables: Vec<Arc<Slot>>,
    pub(crate) version: Arc<Version>,
    /// The range tombstones of the version, and newer ones that are not flushed yet.
    pub(crate) range_tombstones: Arc<RangeTombstones>,
}

/// A memtable and the logs that contain its entries.
pub(crate) struct Slot {
    pub(crate) memtable: Arc<Memtable>,
    /// The logs in the order of writing. Recovery may assign several small logs to one memtable.
    pub(crate) logs: Vec<FileNumber>,
}

/// The newest entry of a key, as needed to evaluate conditions.
pub(crate) struct Current<'a> {
    pub(crate) seq: Seq,
    pub(crate) kind: Kind,
    pub(crate) row: Option<RowRef<'a>>,
    /// True if the row's body is known to fit its shape. Memory contains only rows that this
    /// process has encoded or checked.
    pub(crate) is_checked: bool,
}

impl Slot {
    /// True if rows or range tombstones use at least half of their limit.
    pub(crate) fn is_half_full(&self, memtable_bytes: usize) -> bool {
        self.memtable.bytes() >= memtable_bytes / 2
            || self.memtable.other_bytes() >= RANGE_TOMBSTONE_BYTES_MAX / 2
    }

    /// True if replay must continue in another memtable. The limit is a quarter above the usual
    /// one, because the commits of a memtable may take more memory when they are replayed.
    pub(crate) fn is_overfull(&self, memtable_bytes: usize) -> bool {
        self.memtable.seq_max().is_some()
            && (self.memtable.bytes() >= memtable_bytes.saturating_add(memtable_bytes / 4)
                || self.memtable.other_bytes() >= RANGE_TOMBSTONE_BYTES_MAX)
    }
}

impl View {
    /// Returns the memtable that accepts writes.
    pub(crate) fn active(&self) -> &Slot {
        &self.memtables[0]
    }

    /// Returns the memtables that wait for their flush.
    pub(crate) fn frozen(&self) -> &[Arc<Slot>] {
        &self.memtables[1..]
    }

    /// Returns the view with a new active memtable.
    pub(crate) fn with_active(&self, slot: &Arc<Slot>) -> View {
        let newest = self.active().memtable.id;
        debug_assert!(slot.memtable.id > newest, "memtables are numbered in order");
        let mut view = self.clone();
        view.memtables.insert(0, Arc::clone(slot));
        view
    }

    /// Returns the view with log `number` added to the active memtable.
    pub(crate) fn with_log(&self, number: FileNumber) -> View {
        let mut view = self.clone();
        if let Some(active) = view.memtables.first_mut() {
            let is_next = active.logs.last().is_none_or(|last| *last < number);
            debug_assert!(is_next, "logs are numbered in order");
            let logs = active.logs.iter().copied().chain([number]).collect();
            *active = Arc::new(Slot { memtable: Arc::clone(&active.memtable), logs });
        }
        view
    }

    /// Returns the view with other range tombstones.
    pub(crate) fn with_range_tombstones(&self, range_tombstones: Arc<RangeTombstones>) -> View {
        View { range_tombstones, ..self.clone() }
    }

    /// Returns the view with a new version, and without the memtable `flushed`.
    pub(crate) fn with_version(&self, version: &Arc<Version>, flushed: Option<u64>) -> View {
        debug_assert!(flushed != Some(self.active().memtable.id), "a flushed memtable was frozen");
        let mut view = View { version: Arc::clone(version), ..self.clone() };
        view.memtables.retain(|slot| Some(slot.memtable.id) != flushed);
        view
    }

    /// Returns the files that a reader at `at` needs for keys of `span`, grouped into as few
    /// sources as possible. Files without a key in the span are not opened, because they may be
    /// damaged.
    pub(super) fn chains(&self, span: &Span, at: Seq) -> Vec<Chain<Arc<FileEntry>>> {
        let sees = |file: &FileReference| file.file.has_keys_in(span) && self.can_see(file, at);
        chains(self.version.ranges_in(span), span, sees)
    }

    /// False if a reader at `at` sees nothing of a file, because range tombstones hide all of it or
    /// it was imported later.
    #[inline]
    fn can_see(&self, file: &FileReference, at: Seq) -> bool {
        let meta = &file.file.meta;
        file.file.is_visible(at)
            && (self.range_tombstones.is_empty()
                || !self.range_tombstones.covers(&file.clip, meta.seq_max, at))
    }

    /// Returns the newest entry of a key in the memtables, published or not.
    pub(crate) fn newest_in_memory<'a>(
        &'a self,
        hash: u64,
        key: &[u8],
        shapes: &'a Shapes,
    ) -> Result<Option<Current<'a>>> {
        let found = self.memtables.iter().find_map(|slot| slot.memtable.newest(hash, key));
        found.map(|entry| current(entry, shapes)).transpose()
    }

    /// Calls `with` with the newest entry of a key at or below `at`, unless a range tombstone hides
    /// it.
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

    /// As [`read`](Self::read), but ignores range tombstones.
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

    /// Counts `rows` rows that were read. `key` is the key of the last of them.
    #[inline]
    pub(in crate::lsm) fn record_rows(&self, env: &Env, rows: u32, key: &[u8], by: Operation) {
        if let Some(due) = env.loads.take(rows) {
            self.sample(env, &due, key, by);
        }
    }

    /// Records a sampled operation at `key`, weighted by all operations that `due` represents.
    #[cold]
    pub(in crate::lsm) fn sample(&self, env: &Env, due: &Due, key: &[u8], by: Operation) {
        let (price, memtable) = (env.merge_price(), &self.active().memtable);
        let place = self.version.range_for(key).map(|range| Place::new(range, key, price));
        let has_row = by == Operation::Scan && memtable.newest(env.hash(key), key).is_some();
        let written = self.version.flushed_seq.max(self.range_tombstones.newest);
        let memory = Memory {
            newest: memtable.seq_max().unwrap_or_default().max(written),
            price: if has_row { memory_rows_of(memtable, price) } else { f64::INFINITY },
        };
        env.loads.sample(due, place.as_ref(), &memory, key, by, env.seconds());
    }

    /// Finds the newest entry of a key at or below `at` in the files.
    pub(in crate::lsm) fn find_in_files(
        &self,
        env: &Env,
        hash: u64,
        key: &[u8],
        at: Seq,
    ) -> Result<Option<Hit<'_>>> {
        let Some(range) = self.version.range_for(key) else { return Ok(None) };
        if let Some(hit) = find_in(env, range.young.iter(), (hash, key, at))? {
            return Ok(Some(hit));
        }
        let run = range.run_at(key).filter(|file| file.file.is_visible(at));
        match run.map(|file| open_for(env, file, key)).transpose()?.flatten() {
            Some(sst) => sst.get(hash, key, at),
            None => Ok(None),
        }
    }

    /// Returns the files that may hold keys of `span`; of those that may hold the same key, the
    /// newest first. Seeks in each file once.
    pub(in crate::lsm) fn files_in(&self, env: &Env, span: &Span) -> Vec<&FileReference> {
        let ranges = self.version.ranges_in(span).iter();
        let files = ranges.flat_map(|range| range.young.iter().chain(range.run_in(span)));
        files.filter(|file| file.clip.overlaps(span) && may_hold(env, file, span)).collect()
    }
}

/// False if `file` has no key in `span`. An error is left to the look-up of a key that needs the
/// damaged part.
fn may_hold(env: &Env, file: &FileReference, span: &Span) -> bool {
    file.file.has_keys_in(span)
        && env.open_sst(&file.file).and_then(|sst| sst.may_hold(span)).unwrap_or(true)
}

/// Finds the newest entry of a key at or below a Seq in `files`, which are ordered newest first.
#[inline]
pub(in crate::lsm) fn find_in<'a>(
    env: &Env,
    files: impl Iterator<Item = &'a FileReference>,
    (hash, key, at): (u64, &[u8], Seq),
) -> Result<Option<Hit<'a>>> {
    // Check the file's own bounds first: the clip (the key span for which the file is still used)
    // matters only if the file may contain the key. Check the clip before reading any block of
    // rows, so that damage outside the clip has no effect.
    for file in files {
        let counts = || file.clip.contains(key);
        if file.file.is_visible(at)
            && let Some(sst) = open_for(env, file, key)?
            && let Some(hit) = sst.get_if(hash, key, at, counts)?
        {
            return Ok(Some(hit));
        }
    }
    Ok(None)
}

/// Returns the reader of a file that may hold `key`. Returns `None` if the file cannot be opened,
/// but its key bounds show that it does not hold `key`.
#[inline]
fn open_for<'a>(env: &Env, file: &'a FileReference, key: &[u8]) -> Result<Option<&'a Arc<Sst>>> {
    match env.open_sst(&file.file) {
        Ok(sst) => Ok(Some(sst)),
        Err(_) if !file.file.meta.covers(key) || !file.clip.contains(key) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Decodes a memtable's entry.
pub(crate) fn current<'a>(entry: Entry<'a>, shapes: &'a Shapes) -> Result<Current<'a>> {
    let row = match entry.kind {
        Kind::Put => Some(memory_row(entry.row, shapes)?),
        Kind::Delete => None,
    };
    Ok(Current { seq: entry.seq, kind: entry.kind, row, is_checked: true })
}

/// Decodes a row of a memtable or log. Such a row contains the number of its shape in the registry
/// `shapes`.
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
    // A memtable contains only rows that this process has encoded or verified.
    decode_row(row, |number| shapes.get(ShapeId(number)))
        .map_err(|error| Error::decode("memtable".as_ref(), 0, error))
}

#[cfg(all(test, not(loom)))]
mod tests;

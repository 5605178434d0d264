//! Admits writes only while disk use is below its limit.
//!
//! Invariants
//! * all files of the directory together use at most the limit L, because `fs::metered` refuses
//!   writes beyond L. Only the manifest may exceed L, if it outgrows the margin M;
//! * an admitted write is not refused later: its log may grow up to L, while the preallocation of
//!   logs stops earlier.
//!
//! Not here: counting files (`fs::metered`), freeing space and merges near the limit
//! (`space_limit`).

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Doing, Error, ErrorKind, Result};
use crate::format::names::{FileName, TableId};
use crate::fs::{Meter, MeterLimits, Metered, MeteredFs};
use crate::options::Options;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

use super::batch::{Action, Batch, Op, TableChange};
use super::retry::Unblock;
use crate::lsm::Reader;
use crate::lsm::read::view::View;

/// The approximate maximum number of full files of a range's run that one job reads. A file across
/// the boundary between two jobs is read by both jobs; with this many files for each job, such
/// files are a small share of the work. A job of this size takes less than a second on a slow disk.
pub(in crate::lsm) const JOB_RUN_FILES: u64 = 4;
/// The bytes kept for manifests: twice the step in which a manifest reserves space, because both
/// the old and the new manifest exist during a roll-over.
const MANIFEST_BYTES: u64 = 128 << 10;
/// The maximum number of logs that exist at a time: the active one, the next one, and those of
/// frozen memtables.
const LOGS: u64 = 8;
/// Shares of the limit: the smallest margin is 1/64, the reserve is between 1/8 and 1/4.
const MARGIN_PART: u64 = 64;
const RESERVE_PART_MIN: u64 = 8;
const RESERVE_PART_MAX: u64 = 4;
/// The size of a table file with hardly any rows, in bytes.
const TABLE_BYTES: u64 = 4 << 10;
/// The bytes admitted for each operation that merges properties into a row, in addition to these
/// properties. They stand for the row's other properties, so that few operations need a second
/// admission once the current row is known.
const MERGED_BYTES: u64 = 1 << 10;
/// Catalog rows up to this size, such as gates (blocks of writes to a key range), are admitted like
/// deletions.
const CATALOG_BYTES: u64 = 4 << 10;

/// Counts disk use and admits writes below the limit.
///
/// A margin M of the limit L is kept for the manifest, for logs created when opening, and for
/// commits that free whole files. Table files use at most L - M. A reserve R is kept for deletions
/// and merges, half for each.
///
/// * Rows are refused while tables, logs and manifest use more than L - M - R.
/// * Deletions are refused while all files use more than L - M - R/2.
///
/// Both sums include the coming flush of the memtables, and admitted commits that are not yet in
/// the log and the memtable.
pub(crate) struct SpaceLimit {
    meter: Arc<Meter>,
    pub(in crate::lsm) limit: u64,
    margin: u64,
    pub(in crate::lsm) reserve: u64,
    /// Bytes that merges in progress may write.
    planned: Mutex<u64>,
    /// Bytes of admitted commits that neither log nor memtable contains yet, and of files being
    /// imported.
    admitted: Mutex<u64>,
    /// Writes refused since opening.
    refusals: AtomicU64,
    /// When a flush was last requested, in nanoseconds of the monotonic clock; 0 if never.
    pub(in crate::lsm) asked: AtomicU64,
    /// True while a requested flush is pending.
    pub(in crate::lsm) wants_flush: AtomicBool,
}

/// A share of a counter, such as the bytes that a merge in progress may write. Dropping it returns
/// the share.
pub(in crate::lsm) struct Held<'a> {
    /// `None` if there is no limit.
    count: Option<&'a Mutex<u64>>,
    bytes: u64,
}

/// The bytes admitted for a commit, held until its log and its memtable contain them.
pub(in crate::lsm) struct Admitted<'a> {
    /// `None` if the limit does not apply to the commit.
    held: Option<Held<'a>>,
    /// The bytes admitted for the commit's operations.
    bytes: u64,
}

/// Disk use by category, in bytes.
#[derive(Clone, Copy, Debug)]
pub(in crate::lsm) struct Taken {
    /// Bytes of all files in the directory.
    pub(in crate::lsm) all: u64,
    /// Bytes of the files in use: table files of the current version, logs, manifest.
    pub(in crate::lsm) live: u64,
    /// Bytes of the coming flush of the memtables, including the manifest's growth.
    pub(in crate::lsm) flush: u64,
}

impl SpaceLimit {
    /// Counts the files of `dir` and wraps the file system of `options` in a meter. Returns `None`
    /// if `options` set no limit.
    ///
    /// # Errors
    /// `InvalidInput` if the limit leaves too little space for rows.
    pub(in crate::lsm) fn begin(dir: &Path, options: &mut Options) -> Result<Option<SpaceLimit>> {
        let Some(limit) = options.max_disk else { return Ok(None) };
        let margin = (limit / MARGIN_PART).max(margin_least(options));
        let least = least_limit(options);
        if limit < least {
            let kept =
                |bytes| format!(", and {bytes} bytes of logs to keep (Options::keep_changes)");
            let kept = options.keep_changes_bytes.map(kept).unwrap_or_default();
            let problem = format!(
                "a limit on disk use of {limit} bytes is too small: with these memtables, logs and table files{kept} it has to \
                 be {least} at least"
            );
            return Err(Error::new(ErrorKind::InvalidInput, problem));
        }
        let counted = MeteredFs::new(Arc::clone(&options.fs), dir, metered);
        let fs = counted.doing("count files of", dir)?;
        let meter = Arc::clone(fs.meter());
        options.fs = Arc::new(fs);
        let reserve = options.run_file_bytes.saturating_mul(2 * JOB_RUN_FILES);
        let reserve = reserve.clamp(limit / RESERVE_PART_MIN, limit / RESERVE_PART_MAX);
        Ok(Some(SpaceLimit {
            meter,
            limit,
            margin,
            reserve,
            planned: Mutex::new(0),
            admitted: Mutex::new(0),
            refusals: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            wants_flush: AtomicBool::new(false),
        }))
    }

    /// Enforces the limit from now on. Called at the end of opening, which must be able to write
    /// all that it needs.
    pub(in crate::lsm) fn enforce(&self) {
        let tables = self.limit - self.margin;
        // A database that already uses more than the limit must be able to shrink: its deletions
        // are logged too.
        let logs = self.limit.max(self.meter.total().saturating_add(self.margin));
        self.meter.limit(MeterLimits { tables, logs, logs_ahead: self.for_rows() });
    }

    /// Returns the maximum number of bytes that one merge may read, and therefore write. The result
    /// is at least `least`; whether a merge of that size fits is decided by [`plan`](Self::plan).
    pub(in crate::lsm) fn job_bytes_max(&self, view: &View, least: u64) -> u64 {
        let left = self.left_beside(self.taken(view), *self.planned.lock());
        left.min(self.reserve / 2).max(least)
    }

    /// Returns the bytes of all files, the limit, and the number of refused writes.
    pub(in crate::lsm) fn figures(&self) -> [u64; 3] {
        [self.meter.total(), self.limit, self.refusals.load(Ordering::Relaxed)]
    }

    pub(in crate::lsm) fn taken(&self, view: &View) -> Taken {
        let all = self.meter.total();
        let memory = view.memtables.iter().filter(|slot| !slot.memtable.is_empty());
        let flush = memory.map(|slot| slot.memtable.bytes() as u64 + TABLE_BYTES).sum::<u64>();
        // A clean close releases the manifest's preallocated space, and the next edit reserves it
        // again.
        let manifest = (MANIFEST_BYTES / 2).saturating_sub(self.meter.others());
        let live = all.saturating_sub(self.meter.tables()) + view.version.file_bytes;
        Taken { all, live, flush: flush + flush / 8 + manifest }
    }

    /// Returns how many bytes rows may use.
    pub(in crate::lsm) fn for_rows(&self) -> u64 {
        self.limit - self.margin - self.reserve
    }

    /// Returns how many bytes are left for a merge besides the `planned` bytes of merges in
    /// progress.
    fn left_beside(&self, taken: Taken, planned: u64) -> u64 {
        let used = taken.all + taken.flush + *self.admitted.lock() + planned;
        (self.limit - self.margin).saturating_sub(used)
    }

    pub(in crate::lsm) fn refusal(&self, taken: Taken, evicts: bool) -> Error {
        self.refusals.fetch_add(1, Ordering::Relaxed);
        let (used, limit) = (taken.all, self.limit);
        let few = "; the oldest rows of the tables of Options::on_full are too few, or snapshots and reads keep them";
        let given = if evicts { few } else { "" };
        let problem = format!(
            "the database takes {used} of {limit} bytes of disk that it may (Options::max_disk), and keeps the rest for \
             flushes and merges: delete rows, ranges or tables, which is still possible, or open it with a higher limit{given}"
        );
        Error::new(ErrorKind::StorageFull, problem)
    }
}

impl<'a> Held<'a> {
    /// The empty share, used if there is no limit.
    pub(in crate::lsm) const NONE: Self = Self { count: None, bytes: 0 };

    /// Adds `bytes` to the counter if `fits` accepts the sum of the other shares. The check and the
    /// addition are atomic, so of two concurrent callers only one gets the last space.
    pub(in crate::lsm) fn take(
        count: &'a Mutex<u64>,
        bytes: u64,
        fits: impl Fn(u64) -> bool,
    ) -> Option<Self> {
        // While this lock is held, no other caller returns its share. So the bytes of other callers
        // are counted either here or where they were written.
        let mut held = count.lock();
        if !fits(*held) {
            return None;
        }
        *held = held.saturating_add(bytes);
        Some(Self { count: Some(count), bytes })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.count {
            let mut held = count.lock();
            debug_assert!(*held >= self.bytes, "a share that is given back was counted");
            *held -= self.bytes;
        }
    }
}

impl Admitted<'_> {
    /// The admission of a commit to which no limit applies.
    pub(super) const ALL: Self = Self { held: None, bytes: 0 };

    /// Returns the bytes of `batch` with rows of these lengths, if they exceed the admitted bytes.
    #[inline]
    pub(in crate::lsm) fn exceeded_by(
        &self,
        batch: &Batch<'_>,
        rows: impl Iterator<Item = usize>,
    ) -> Option<u64> {
        self.held.as_ref()?;
        let bytes = batch.ops.iter().zip(rows).map(|(op, row)| op.bytes_with(row) as u64).sum();
        (bytes > self.bytes).then_some(bytes)
    }
}

impl SpaceLimit {
    /// Admits `batch`, which takes at least `least` bytes. The caller holds the result until the
    /// batch is queued.
    ///
    /// # Errors
    /// `StorageFull` if the limit leaves no space for the batch.
    pub(super) fn admit<'a>(
        &'a self,
        reader: &Reader,
        help: &impl Unblock,
        batch: &Batch<'_>,
        least: u64,
    ) -> Result<Admitted<'a>> {
        let Some((bytes, has_rows)) = demand(batch) else { return Ok(Admitted::ALL) };
        let bytes = bytes.max(least);
        let most = if has_rows { self.for_rows() } else { u64::MAX };
        // The bytes are counted twice: once for the log, and once for the memtable, which becomes a
        // table file.
        let for_deletes = self.limit - self.margin - self.reserve / 2;
        let held = self.take_room(reader, help, 2 * bytes, [for_deletes, most])?;
        Ok(Admitted { held: Some(held), bytes })
    }

    /// As [`admit`](Self::admit), for an imported table file with rows of about `bytes` bytes. Here
    /// the limit for rows applies to all files, because no version names the imported files until
    /// the last one is written.
    pub(in crate::lsm) fn admit_file(
        &self,
        reader: &Reader,
        help: &impl Unblock,
        bytes: u64,
    ) -> Result<Held<'_>> {
        self.take_room(reader, help, bytes.saturating_add(TABLE_BYTES), [self.for_rows(); 2])
    }

    /// Reserves `needs` bytes if afterwards all files fit in `most[0]` bytes and the files in use
    /// fit in `most[1]`.
    fn take_room(
        &self,
        reader: &Reader,
        help: &impl Unblock,
        needs: u64,
        most: [u64; 2],
    ) -> Result<Held<'_>> {
        let held = Cell::new(None);
        let fits = || {
            let fits = |others: u64| {
                let taken = self.taken(&reader.view.load());
                let more = taken.flush.saturating_add(others).saturating_add(needs);
                let all = [taken.all, taken.live].map(|bytes| bytes.saturating_add(more));
                all[0] <= most[0] && all[1] <= most[1]
            };
            let taken = Held::take(&self.admitted, needs, fits);
            let is_taken = taken.is_some();
            held.set(taken);
            is_taken
        };
        if !fits() {
            // If this frees too little, only readers that release files could free more.
            help.free_space(needs, most[0].min(most[1]), &fits)?;
        }
        held.take().ok_or_else(|| self.refusal(self.taken(&reader.view.load()), false))
    }

    /// Reserves space for a merge that reads `bytes`, in addition to the merges in progress.
    /// Returns `None` if the merge must not start.
    pub(in crate::lsm) fn plan(&self, reader: &Reader, bytes: u64) -> Option<Held<'_>> {
        let least = bytes.saturating_add(TABLE_BYTES);
        // Concurrent merges share half of the reserve. A larger merge must run alone.
        let fits = |others: u64| {
            let is_alone = others == 0 || others.saturating_add(bytes) <= self.reserve / 2;
            // Load the view now, so that it contains the files that other jobs have installed.
            is_alone && least <= self.left_beside(self.taken(&reader.view.load()), others)
        };
        Held::take(&self.planned, bytes, fits)
    }

    /// Returns how many bytes must be freed so that the files and `needs` more bytes fit in `most`.
    pub(in crate::lsm) fn missing(&self, view: &View, needs: u64, most: u64) -> u64 {
        let taken = self.taken(view);
        let others = *self.admitted.lock();
        (taken.live + taken.flush + others + needs).saturating_sub(most)
    }
}

fn margin_least(options: &Options) -> u64 {
    MANIFEST_BYTES + LOGS * options.log_allocate_bytes
}

/// Returns the smallest limit that leaves enough space for rows besides memtables, logs and merges.
pub(crate) fn least_limit(options: &Options) -> u64 {
    let memtables = (options.frozen_max as u64 + 1).saturating_mul(options.memtable_bytes as u64);
    // Each memtable is counted three times: in memory, in its log, and in the table file being
    // written.
    let fixed =
        memtables.saturating_mul(3).saturating_add(options.run_file_bytes.saturating_mul(2));
    // Logs retained for the change feed use part of the space for rows, which is at least 3/4 of
    // the limit, minus the margin. So raising the limit by 1.5 times the bytes of these logs makes
    // up for them.
    let kept = options.keep_changes_bytes.unwrap_or(0);
    let fixed = fixed.saturating_add(kept.saturating_add(kept / 2));
    // Use the least margin. The margin is larger, namely 1/64 of the limit, only for limits far
    // above the value returned here.
    fixed.saturating_add(margin_least(options).saturating_mul(2))
}

/// Returns the category of limit that applies to the file `name`.
fn metered(name: &str) -> Metered {
    match FileName::parse(name) {
        Some(FileName::Sst(_)) => Metered::Table,
        Some(FileName::Temporary) if name.ends_with(".sst.tmp") => Metered::Table,
        Some(FileName::Wal(_)) => Metered::Log,
        _ => Metered::Other,
    }
}

/// Estimates the bytes that `batch` takes, and returns whether it writes rows. A batch that writes
/// no rows only deletes rows, or changes a few bytes of the catalog. Returns `None` if the batch
/// removes whole files or changes nothing on disk.
fn demand(batch: &Batch<'_>) -> Option<(u64, bool)> {
    let is_new = |change: &TableChange| matches!(change, TableChange::Created(_));
    let creates = batch.changes.iter().any(is_new);
    let writes = batch.ops.iter().any(|op| !matches!(op.action, Action::Delete));
    let merges = batch.ops.iter().filter(|op| matches!(op.action, Action::Merge(_))).count() as u64;
    let bytes: u64 = batch.ops.iter().map(|op| Op::memtable_bytes(op) as u64).sum();
    if !creates && (!batch.changes.is_empty() || batch.ops.is_empty()) {
        return None;
    }
    let is_small = batch.gate.table == TableId::CATALOG && bytes <= CATALOG_BYTES && !creates;
    let has_rows = writes && !is_small;
    Some((if has_rows { bytes + merges * MERGED_BYTES } else { bytes }, has_rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_commits_only_one_is_admitted_to_the_last_space() {
        let count = Mutex::new(0);
        let fits = |others: u64| others + 6 <= 10;
        let held = Held::take(&count, 6, fits).unwrap();
        assert!(Held::take(&count, 6, fits).is_none());
        drop(held);
        assert_eq!(*count.lock(), 0);
        drop(Held::take(&count, 6, fits).unwrap());
        assert_eq!(*count.lock(), 0);
    }
}

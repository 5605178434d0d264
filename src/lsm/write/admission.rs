//! What is admitted below the limit on disk use.
//!
//! Of the limit L a margin M is kept for the manifest, for the logs of openings, and for commits that free whole files: tables
//! stay below L - M. Of the rest a reserve R is kept for deletions and merges, half of it for each: rows are refused while
//! tables, logs and manifest take more than L - M - R, deletions while all files take more than L - M - R/2, the flush of what
//! is in memory counted with both. What was admitted counts until it is in the log and in memory.
//!
//! Invariants
//! * all files of the directory together take at most L, but for a manifest that outgrows M: `fs::metered` refuses the rest;
//! * what is admitted here is not refused below: logs may grow for it up to L, and only what they reserve ahead ends earlier.
//!
//! Not here: counting (`fs::metered`), making room and merges near the limit (`space_limit`).

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

/// A job reads at most about so many full files of the run: long enough that the parts of files around a cut, which are
/// read twice, are few; short enough to be over in a second on a slow disk.
pub(in crate::lsm) const JOB_RUN_FILES: u64 = 4;
/// What a manifest reserves at a time, twice: the old and the new one of a roll-over.
const MANIFEST_BYTES: u64 = 128 << 10;
/// Logs that are there at the same time: one that takes commits, the next one, and those of frozen memtables.
const LOGS: u64 = 8;
/// Part of the limit that is kept for the manifest at least, and for merges at least and at most.
const MARGIN_PART: u64 = 64;
const RESERVE_PART_MIN: u64 = 8;
const RESERVE_PART_MAX: u64 = 4;
/// What a table file takes however few rows it has.
const TABLE_BYTES: u64 = 4 << 10;
/// Each merge is taken for so much more than its patch: few have to ask again once the row is known.
const MERGED_BYTES: u64 = 1 << 10;
/// Rows of the catalog of so few bytes pass as deletions do: gates, retention.
const CATALOG_BYTES: u64 = 4 << 10;
/// See the module.
pub(crate) struct SpaceLimit {
    meter: Arc<Meter>,
    pub(in crate::lsm) limit: u64,
    margin: u64,
    pub(in crate::lsm) reserve: u64,
    /// What merges under way may write.
    planned: Mutex<u64>,
    /// What commits take that were let pass, and that neither log nor memtable has yet.
    admitted: Mutex<u64>,
    /// Writes refused since opening.
    refusals: AtomicU64,
    /// When a flush was asked for last, in nanoseconds of the monotonic clock; 0: never.
    pub(in crate::lsm) asked: AtomicU64,
    /// It is still to be done.
    pub(in crate::lsm) wants_flush: AtomicBool,
}

/// A part of a count that others must see, such as what table files that are being written may
/// take; given back when this is dropped.
pub(in crate::lsm) struct Held<'a> {
    /// `None` where there is no limit.
    count: Option<&'a Mutex<u64>>,
    bytes: u64,
}

/// What a commit takes until its log and its memtable have it.
pub(in crate::lsm) struct Admitted<'a> {
    /// `None`: it may take whatever it likes.
    held: Option<Held<'a>>,
    /// Of its rows.
    bytes: u64,
}

/// How much is taken, and of what.
#[derive(Clone, Copy, Debug)]
pub(in crate::lsm) struct Taken {
    /// By all files.
    pub(in crate::lsm) all: u64,
    /// By those that stay: tables in use, logs, manifest.
    pub(in crate::lsm) live: u64,
    /// By the flush of what is in memory, and by what names it then.
    pub(in crate::lsm) flush: u64,
}

impl SpaceLimit {
    /// For what is in `dir`, by the limit of `options`, whose file system it stands before; `None` without a limit.
    ///
    /// # Errors
    /// `InvalidInput` for a limit that leaves no room for rows.
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

    /// From now on nothing grows beyond the limit: before, what an opening needs has to be there.
    pub(in crate::lsm) fn enforce(&self) {
        let tables = self.limit - self.margin;
        // A database that takes more already is to be shrunk: that, too, is written to a log.
        let logs = self.limit.max(self.meter.total().saturating_add(self.margin));
        self.meter.limit(MeterLimits { tables, logs, logs_ahead: self.for_rows() });
    }

    /// What merges may read, and so write, at a time; one may always be as large as `least`, if there is room for it.
    pub(in crate::lsm) fn job_bytes_max(&self, view: &View, least: u64) -> u64 {
        let left = self.left_beside(self.taken(view), *self.planned.lock());
        left.min(self.reserve / 2).max(least)
    }

    /// What all files take, the limit, and how many writes it refused.
    pub(in crate::lsm) fn figures(&self) -> [u64; 3] {
        [self.meter.total(), self.limit, self.refusals.load(Ordering::Relaxed)]
    }

    pub(in crate::lsm) fn taken(&self, view: &View) -> Taken {
        let all = self.meter.total();
        let memory = view.memtables.iter().filter(|slot| !slot.memtable.is_empty());
        let files = memory.map(|slot| slot.memtable.bytes() as u64 + TABLE_BYTES);
        let flush = files.sum::<u64>();
        // A manifest that was closed has given back what it had reserved, and takes it again with the next edit.
        let manifest = (MANIFEST_BYTES / 2).saturating_sub(self.meter.others());
        let live = all.saturating_sub(self.meter.tables()) + view.version.file_bytes;
        Taken { all, live, flush: flush + flush / 8 + manifest }
    }

    /// What rows may take.
    pub(in crate::lsm) fn for_rows(&self) -> u64 {
        self.limit - self.margin - self.reserve
    }

    /// What is left for merges beside those that may write `planned` bytes.
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
    /// Where there is no limit.
    pub(in crate::lsm) const NONE: Self = Self { count: None, bytes: 0 };

    /// Adds `bytes` if that `fits` beside what others hold: of two that look at the same time only one takes the last room.
    pub(in crate::lsm) fn take(
        count: &'a Mutex<u64>,
        bytes: u64,
        fits: impl Fn(u64) -> bool,
    ) -> Option<Self> {
        // Nobody gives anything back while this looks: what others hold is counted here, or where it went.
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
            *count.lock() -= self.bytes;
        }
    }
}

impl Admitted<'_> {
    /// Where there is no limit, or nothing that it would be about.
    pub(super) const ALL: Self = Self { held: None, bytes: 0 };

    /// What `batch` takes with rows that turned out to be so long, if that is more than was let pass.
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
    /// Lets `batch` pass, which takes at least `least` bytes: to be held until it is queued.
    ///
    /// # Errors
    /// `StorageFull` where the limit leaves no room for it.
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
        // In the log and in memory, from where it goes to a table.
        let for_deletes = self.limit - self.margin - self.reserve / 2;
        let held = self.take_room(reader, help, 2 * bytes, [for_deletes, most])?;
        Ok(Admitted { held: Some(held), bytes })
    }

    /// As [`admit`](Self::admit), for a table file of about so many bytes of rows that come in. All files count as rows do, for
    /// no version names it before the last of them is written.
    pub(in crate::lsm) fn admit_file(
        &self,
        reader: &Reader,
        help: &impl Unblock,
        bytes: u64,
    ) -> Result<Held<'_>> {
        let needs = bytes.saturating_add(TABLE_BYTES);
        self.take_room(reader, help, needs, [self.for_rows(); 2])
    }

    /// Takes so many bytes, if all files stay below the first limit with them, and those that stay below the second.
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
            // Beyond that only the holders of files could make room.
            help.free_space(needs, most[0].min(most[1]), &fits)?;
        }
        held.take().ok_or_else(|| self.refusal(self.taken(&reader.view.load()), false))
    }

    /// Room for a merge that reads `bytes`, beside the others; `None` if it must not begin.
    pub(in crate::lsm) fn plan(&self, reader: &Reader, bytes: u64) -> Option<Held<'_>> {
        let least = bytes.saturating_add(TABLE_BYTES);
        // All together are to stay in their half of the reserve, as each is picked to, or one that has to be larger alone.
        let fits = |others: u64| {
            let is_alone = others == 0 || others.saturating_add(bytes) <= self.reserve / 2;
            // The view as of now: what others planned and installed meanwhile is in it.
            is_alone && least <= self.left_beside(self.taken(&reader.view.load()), others)
        };
        Held::take(&self.planned, bytes, fits)
    }

    /// So many bytes are missing for `needs` more where files may take `most`.
    pub(in crate::lsm) fn missing(&self, view: &View, needs: u64, most: u64) -> u64 {
        let taken = self.taken(view);
        let others = *self.admitted.lock();
        (taken.live + taken.flush + others + needs).saturating_sub(most)
    }
}

fn margin_least(options: &Options) -> u64 {
    MANIFEST_BYTES + LOGS * options.log_allocate_bytes
}

/// The smallest limit that leaves as much room for rows as memtables, logs and merges need around them.
pub(crate) fn least_limit(options: &Options) -> u64 {
    let memtables = (options.frozen_max as u64 + 1).saturating_mul(options.memtable_bytes as u64);
    // Each is in its log and in a table that is being written.
    let fixed =
        memtables.saturating_mul(3).saturating_add(options.run_file_bytes.saturating_mul(2));
    // Rows have three quarters of a limit at least, but for the margin: one and a half times this leaves the rest of it.
    let kept = options.keep_changes_bytes.unwrap_or(0);
    let fixed = fixed.saturating_add(kept.saturating_add(kept / 2));
    // Where the margin is a share of the limit, the limit is far above this.
    fixed.saturating_add(margin_least(options).saturating_mul(2))
}

/// What limit a file is held to.
fn metered(name: &str) -> Metered {
    match FileName::parse(name) {
        Some(FileName::Sst(_)) => Metered::Table,
        Some(FileName::Temporary) if name.ends_with(".sst.tmp") => Metered::Table,
        Some(FileName::Wal(_)) => Metered::Log,
        _ => Metered::Other,
    }
}

/// About how many bytes `batch` takes, and whether it writes rows: else it deletes, or changes a
/// few bytes of the catalog. `None` if whole files go with it, or nothing changes on the disk.
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
    fn of_two_that_want_the_last_room_one_takes_it() {
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

//! Enforces the limit on disk use: frees space for a write, and decides which merges may begin. A
//! merge begins only if there is space for its output and for a flush of all data in memory. A
//! merge whose inputs can be cut at a key needs at most half of the reserved space (`admission`).
//!
//! Invariants
//! * A write that would fit is not refused because of files that only readers hold, or of merge
//!   outputs whose inputs are not removed yet.
//! * A refusal changes nothing. Operations that free space without writing rows are never refused.
//!
//! `admission` admits writes; `fifo_eviction` chooses rows to evict.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::executor::Lane;
use crate::options::Background;
use crate::sync::Ordering;

use super::fifo_tables::FifoEviction;
use super::maintenance::Maintenance;
use crate::lsm::write::admission::{Held, SpaceLimit};

/// Logs retained for the change feed may use at most 1/4 of the limit on disk use, unless the
/// options set another bound.
const KEPT_PART: u64 = 4;
/// A refused write requests a flush, so that merges can drop deleted entries that are still in
/// memory. Requests are at least `ASK_EVERY` apart, unless the active memtable has at least
/// 1/`ASK_PART` of its full size.
const ASK_PART: usize = 16;
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The maximum number of evictions by one write. Each eviction frees more than one write needs, so
/// the limit is reached only if other writers take the freed space every time.
const EVICT_TIMES: usize = 64;

/// A write checks repeatedly, for about one second in total, whether the dropped files are
/// released. The pauses between the checks grow from `PAUSE_MIN` to `PAUSE_MAX`.
const PAUSES: usize = 28;
const PAUSE_MIN: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(50);

impl Maintenance {
    /// Frees space until `fits` returns true. The caller wants to write `needs` more bytes, after
    /// which all files together may have at most `most` bytes.
    ///
    /// # Errors
    /// `StorageFull` if nothing more can be freed now. In this case merges are requested, because
    /// they may free space later.
    pub(super) fn make_space(&self, needs: u64, most: u64, fits: &dyn Fn() -> bool) -> Result<()> {
        let Some(space_limit) = &self.writer.space_limit else { return Ok(()) };
        let has_room = self.remove_unheld() && fits()
            || self.forget_kept_logs()? && fits()
            || self.evict_oldest(space_limit, (needs, most), fits)?;
        if has_room {
            return Ok(());
        }
        self.ask_for_room(space_limit);
        Err(self.space_refusal(space_limit))
    }

    fn space_refusal(&self, space_limit: &SpaceLimit) -> Error {
        let evicts = self.eviction.as_ref().is_some_and(|eviction| !eviction.is_empty());
        space_limit.refusal(space_limit.taken(&self.reader().view.load()), evicts)
    }

    /// Returns the bytes of all files, the limit in bytes, the number of refused writes, and the
    /// files and bytes evicted; `None` without a limit.
    pub(crate) fn disk_use(&self) -> Option<[u64; 5]> {
        let [total, limit, refusals] = self.writer.space_limit.as_ref()?.figures();
        let [files, bytes] = self.eviction.as_ref().map_or([0; 2], FifoEviction::figures);
        Some([total, limit, refusals, files, bytes])
    }

    /// Evicts the oldest files of tables under FIFO eviction, if this can make space for `needs`
    /// more bytes within `most`. Returns true as soon as `fits` returns true.
    fn evict_oldest(
        &self,
        space_limit: &SpaceLimit,
        (needs, most): (u64, u64),
        fits: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let Some(eviction) = self.eviction.as_ref().filter(|eviction| !eviction.is_empty()) else {
            return Ok(false);
        };
        // Files that only readers and jobs hold are not counted here, because an eviction would not
        // free them.
        let missing = || space_limit.missing(&self.reader().view.load(), needs, most);
        for _ in 0..EVICT_TIMES {
            let alone = eviction.dropping.lock();
            // Another thread may have dropped files already, or files may be hidden but not
            // reclaimed yet.
            while self.reclaim()? {}
            self.remove_unheld();
            if fits() {
                return Ok(true);
            }
            match missing() {
                0 => {
                    drop(alone);
                    let outcome = || match fits() {
                        true => Some(true),
                        // Other writers have taken the freed space, so evict again.
                        false => (missing() > 0).then_some(false),
                    };
                    match self.wait_for_held(outcome) {
                        Some(false) => {}
                        outcome => return Ok(outcome.is_some()),
                    }
                }
                missing if !self.evict(eviction, missing, space_limit.limit)? => {
                    return Ok(false);
                }
                // Check immediately, before another writer takes the space.
                _ if fits() => return Ok(true),
                _ => {}
            }
        }
        Ok(false)
    }

    /// Waits until jobs, other writers and file removals release the dropped files. Returns when
    /// `outcome` returns a result. The wait is bounded, because a reader may hold a file for long.
    fn wait_for_held<T>(&self, outcome: impl Fn() -> Option<T>) -> Option<T> {
        let is_shared = self.env().options.background != Background::Manual;
        let mut pause = PAUSE_MIN;
        for _ in 0..if is_shared { PAUSES } else { 0 } {
            let known = outcome();
            if known.is_some() {
                return known;
            }
            self.writer.backlog.pause(pause);
            pause = (2 * pause).min(PAUSE_MAX);
            self.remove_unheld();
        }
        outcome()
    }

    /// Requests a flush and merges, because merges can drop deleted entries, and some of these may
    /// still be in memory.
    fn ask_for_room(&self, space_limit: &SpaceLimit) {
        let now = self.env().clock.monotonic();
        let ticks = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let asked = space_limit.asked.load(Ordering::Acquire);
        let is_due = asked == 0 || ticks(now).saturating_sub(asked) >= ticks(ASK_EVERY);
        let in_memory = self.reader().view.load().active().memtable.payload_bytes();
        if is_due || in_memory >= self.env().options.memtable_bytes / ASK_PART {
            space_limit.asked.store(ticks(now).max(1), Ordering::Release);
            space_limit.wants_flush.store(true, Ordering::Release);
            self.executor.signal(Lane::Flush);
            self.executor.signal(Lane::Compact);
        }
    }

    /// Carries out the flush that a refused write requested. Returns false if none was requested or
    /// there is nothing to flush.
    pub(in crate::lsm) fn flush_for_room(&self) -> Result<bool> {
        let Some(space_limit) = &self.writer.space_limit else { return Ok(false) };
        if !space_limit.wants_flush.swap(false, Ordering::AcqRel)
            || self.reader().view.load().active().memtable.is_empty()
        {
            return Ok(false);
        }
        // If another memtable may not be frozen now, leave the request for later. In any case flush
        // the oldest frozen memtable here, because no other thread does.
        if !self.writer.freeze_if_room(self)? {
            space_limit.wants_flush.store(true, Ordering::Release);
        }
        self.flush_one()
    }

    /// True if writes are refused, or soon will be. Merges then drop tombstones of any age.
    pub(in crate::lsm) fn is_short_of_room(&self) -> bool {
        self.writer.space_limit.as_ref().is_some_and(|space_limit| {
            let taken = space_limit.taken(&self.reader().view.load());
            self.eviction.as_ref().is_none_or(FifoEviction::is_spent)
                && taken.live + taken.flush + space_limit.reserve / 4 > space_limit.for_rows()
        })
    }

    /// Reserves space for a merge that reads `bytes`. Returns `None` if there is too little space
    /// to begin.
    pub(in crate::lsm) fn plan(&self, bytes: u64) -> Option<Held<'_>> {
        let Some(space_limit) = &self.writer.space_limit else { return Some(Held::NONE) };
        let take = || space_limit.plan(self.reader(), bytes);
        take().or_else(|| if self.remove_unheld() { take() } else { None })
    }

    /// Admits a table file of about `bytes` bytes with imported rows. The caller holds the result
    /// until the file is written.
    pub(super) fn admit_file(&self, bytes: u64) -> Result<Held<'_>> {
        match &self.writer.space_limit {
            Some(space_limit) => space_limit.admit_file(self.reader(), self, bytes),
            None => Ok(Held::NONE),
        }
    }

    /// Returns how many bytes of logs may be retained for the change feed if the options set no
    /// bound. Without a bound these logs would use up the space for rows.
    pub(in crate::lsm) fn kept_logs_max(&self) -> u64 {
        self.writer
            .space_limit
            .as_ref()
            .map_or(u64::MAX, |space_limit| space_limit.limit / KEPT_PART)
    }

    /// Returns the error for a merge that a caller requested and that lacks space.
    pub(in crate::lsm) fn no_room(&self) -> Error {
        let message = "there is no room below the limit on disk use (Options::max_disk) to merge";
        match &self.writer.space_limit {
            Some(space_limit) => self.space_refusal(space_limit),
            None => Error::new(ErrorKind::StorageFull, message),
        }
    }
}

#[cfg(all(test, feature = "sim", not(loom)))]
mod tests {
    use std::sync::Arc;

    use crate::fs::MemFs;
    use crate::lsm::background::compaction::plan::Activity;
    use crate::lsm::write::admission::least_limit;
    use crate::model::Entity;
    use crate::options::Options;

    use super::*;

    /// Logs retained for the change feed leave space for rows. This also holds if an earlier
    /// session retained them and this one sets no bound (`keep_changes_on`).
    #[test]
    fn logs_kept_by_an_earlier_session_leave_space_for_rows() {
        let fs = MemFs::new();
        let options = || {
            let options = Options::edge().fs(Arc::new(fs.clone())).background(Background::Manual);
            options.memtable_bytes(64 << 10).run_file_bytes(64 << 10)
        };
        let line = "x".repeat(2_000);
        let inherits = Options { keep_changes_on: true, ..options().max_disk(4 << 20) };
        for (options, rows) in [(options().keep_changes(8 << 20), 6_000), (inherits, 5_000)] {
            let db = options.open("db").unwrap();
            let table = db.table_or_create("log").unwrap();
            for i in 0..rows {
                let row = Entity::new("p", format!("{}", i % 50)).with("Line", &*line);
                table.upsert(row).unwrap();
                while db.step(Duration::ZERO) {}
            }
            assert!(!db.engine().reader().view.load().version.kept_logs.is_empty());
            db.close().unwrap();
        }
    }

    #[test]
    fn a_full_database_frees_space_as_if_it_were_idle() {
        let options = Options::edge().fs(Arc::new(MemFs::new())).background(Background::Manual);
        let options = options.memtable_bytes(64 << 10).run_file_bytes(64 << 10);
        let db = options.max_disk(4 << 20).open("db").unwrap();
        let table = db.create_table("log").unwrap();
        let line = "x".repeat(2_000);
        let put = |i: u32| table.upsert(Entity::new("p", format!("{i:06}")).with("Line", &*line));
        put(0).unwrap();
        assert_eq!(db.engine().maintenance().activity(), Activity::Writing);
        let mut rows = 1;
        while put(rows).is_ok() {
            rows += 1;
            while db.step(Duration::ZERO) {}
        }
        assert!(rows > 500, "{rows} rows");
        assert_eq!(db.engine().maintenance().activity(), Activity::Idle);
        db.close().unwrap();
    }

    /// A refused write requests a flush although no further memtable may be frozen. The flush must
    /// not wait until one may be frozen, because it would wait for itself.
    #[test]
    fn the_flush_after_a_refused_write_does_not_wait_for_earlier_flushes() {
        let options = Options::edge().fs(Arc::new(MemFs::new())).background(Background::Manual);
        let least = least_limit(&options);
        let db = options.max_disk(least).open("db").unwrap();
        let table = db.create_table("log").unwrap();
        let put = |key: &str| table.upsert(Entity::new("p", key).with("N", 1)).unwrap();
        let engine = db.engine();
        while engine.maintenance().flush_one().unwrap() {}
        let most = engine.env().options.frozen_max;
        for frozen in 0..most {
            put(&format!("{frozen}"));
            engine.maintenance().freeze().unwrap();
        }
        put("active");
        let waiting = || engine.reader().view.load().frozen().len();
        assert_eq!(waiting(), most);
        engine.writer().space_limit.as_ref().unwrap().wants_flush.store(true, Ordering::Release);
        // The oldest frozen memtable is flushed and the active one stays. Freezing the active one
        // first would wait for this flush.
        assert!(engine.maintenance().flush_for_room().unwrap());
        assert_eq!(waiting(), most - 1);
        assert!(!engine.reader().view.load().active().memtable.is_empty());
        // Once no memtable is frozen, the active one is flushed.
        while engine.maintenance().flush_one().unwrap() {}
        assert!(engine.maintenance().flush_for_room().unwrap());
        assert!(engine.reader().view.load().active().memtable.is_empty() && waiting() == 0);
        assert!(!engine.maintenance().flush_for_room().unwrap(), "asked once");
        db.close().unwrap();
    }
}

//! Near the limit on disk use: how room is made for a write, and which merges begin.
//!
//! A merge that might not fit beside the flush of what is in memory is not begun, and none is picked that is larger than its
//! half of the reserve, or than what is left of that.
//!
//! Invariants
//! * what merges write before their inputs go, and files that readers hold, refuse no write that fits afterwards;
//! * a refusal changes nothing, and what frees space without writing rows is never refused.
//!
//! Not here: what is admitted (`admission`), which rows go to make room (`fifo_eviction`).

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::executor::Lane;
use crate::options::Background;
use crate::sync::Ordering;

use super::fifo_tables::FifoEviction;
use super::maintenance::Maintenance;
use crate::lsm::write::admission::{Held, SpaceLimit};

/// The part of the limit that logs kept for the change feed may take where nothing else bounds them.
const KEPT_PART: u64 = 4;
/// How often a refused write has what is in memory flushed, so that merges can take out what was deleted; where that is this
/// part of a memtable, at once.
const ASK_PART: usize = 16;
const ASK_EVERY: Duration = Duration::from_secs(1);

/// How often a write has the oldest files dropped for it while others take what that gives: each drop gives more than one
/// write takes, so that many writers would have to be faster again and again.
const EVICT_TIMES: usize = 64;

/// How often, and how long at a time, a write waits for others to let go of what was dropped: a second in all.
const PAUSES: usize = 28;
const PAUSE_MIN: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(50);

impl Maintenance {
    /// Frees space until `needs` bytes more than now `fits`, with all files within `most` bytes.
    ///
    /// # Errors
    /// `StorageFull` if there is no more to free; merges are asked for space then.
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

    /// What all files take, the limit, how many writes it refused, and how many files and bytes it made go, if there is one.
    pub(crate) fn disk_use(&self) -> Option<[u64; 5]> {
        let [total, limit, refusals] = self.writer.space_limit.as_ref()?.figures();
        let [files, bytes] = self.eviction.as_ref().map_or([0; 2], FifoEviction::figures);
        Some([total, limit, refusals, files, bytes])
    }

    /// Evicts the oldest files of tables with FIFO eviction if that can free the bytes missing for `needs`, of `most` in
    /// total. True if there is space then, as of `fits`.
    fn evict_oldest(
        &self,
        space_limit: &SpaceLimit,
        (needs, most): (u64, u64),
        fits: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let Some(eviction) = self.eviction.as_ref().filter(|eviction| !eviction.is_empty()) else {
            return Ok(false);
        };
        // What readers and jobs hold although no version has it is none of this: more of it would help nobody.
        let missing = || space_limit.missing(&self.reader().view.load(), needs, most);
        for _ in 0..EVICT_TIMES {
            let alone = eviction.dropping.lock();
            // What others have dropped meanwhile, or what was hidden and not taken back yet.
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
                        // Others took what was let go.
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
                // Before anybody else can take it.
                _ if fits() => return Ok(true),
                _ => {}
            }
        }
        Ok(false)
    }

    /// Waits for those who hold what was dropped for a moment: jobs, other writers, who removes files; until there is an
    /// `outcome`. Not for long: what readers hold nobody waits for.
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

    /// Has merges take out what was deleted, which may still be in memory.
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

    /// Flushes what is in memory if a refused write asked for it; false if there is nothing to do.
    pub(in crate::lsm) fn flush_for_room(&self) -> Result<bool> {
        let Some(space_limit) = &self.writer.space_limit else { return Ok(false) };
        if !space_limit.wants_flush.swap(false, Ordering::AcqRel)
            || self.reader().view.load().active().memtable.is_empty()
        {
            return Ok(false);
        }
        // Writers may have frozen others meanwhile: those first, for nobody else flushes them.
        if !self.writer.freeze_if_room(self)? {
            space_limit.wants_flush.store(true, Ordering::Release);
        }
        self.flush_one()
    }

    /// True if writes are refused, or soon will be: merges are to take out whatever they can.
    pub(in crate::lsm) fn is_short_of_room(&self) -> bool {
        self.writer.space_limit.as_ref().is_some_and(|space_limit| {
            let taken = space_limit.taken(&self.reader().view.load());
            self.eviction.as_ref().is_none_or(FifoEviction::is_spent)
                && taken.live + taken.flush + space_limit.reserve / 4 > space_limit.for_rows()
        })
    }

    /// Room for a merge that reads `bytes`; `None` if it must not begin.
    pub(in crate::lsm) fn plan(&self, bytes: u64) -> Option<Held<'_>> {
        let Some(space_limit) = &self.writer.space_limit else { return Some(Held::NONE) };
        let take = || space_limit.plan(self.reader(), bytes);
        take().or_else(|| if self.remove_unheld() { take() } else { None })
    }

    /// Lets a table file of about so many bytes be written with rows that come in: to be held until it is written.
    ///
    /// # Errors
    /// `StorageFull` where the limit on disk use leaves no room for it.
    pub(super) fn admit_file(&self, bytes: u64) -> Result<Held<'_>> {
        match &self.writer.space_limit {
            Some(space_limit) => space_limit.admit_file(self.reader(), self, bytes),
            None => Ok(Held::NONE),
        }
    }

    /// What logs may take that are kept for the change feed without a bound of their own: without one they would take the
    /// room of rows until there is none.
    pub(in crate::lsm) fn kept_logs_max(&self) -> u64 {
        self.writer
            .space_limit
            .as_ref()
            .map_or(u64::MAX, |space_limit| space_limit.limit / KEPT_PART)
    }

    /// What an explicit merge is answered that has no room.
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
    use crate::lsm::write::admission::least_limit;
    use crate::model::Entity;
    use crate::options::Options;

    use super::*;

    /// A command is to keep what a server keeps, however much that is.
    #[test]
    fn logs_kept_by_whoever_had_it_open_before_leave_room_for_rows() {
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

    /// Writers froze memtables between its two looks.
    #[test]
    fn the_flush_that_a_refused_write_asks_for_waits_for_no_flush() {
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
        // One that is frozen goes first, and the active one stays: to freeze it would be to wait for this very flush.
        assert!(engine.maintenance().flush_for_room().unwrap());
        assert_eq!(waiting(), most - 1);
        assert!(!engine.reader().view.load().active().memtable.is_empty());
        // Then it is its turn.
        while engine.maintenance().flush_one().unwrap() {}
        assert!(engine.maintenance().flush_for_room().unwrap());
        assert!(engine.reader().view.load().active().memtable.is_empty() && waiting() == 0);
        assert!(!engine.maintenance().flush_for_room().unwrap(), "asked once");
        db.close().unwrap();
    }
}

//! The limit on disk use: what is still admitted near it, and what begins.
//!
//! Of the limit L a margin M is kept for the manifest, for the logs of openings, and for commits that free whole files: tables
//! stay below L - M. Of the rest a reserve R is kept for deletions and merges, half of it for each: rows are refused while
//! tables, logs and manifest take more than L - M - R, deletions while all files take more than L - M - R/2, the flush of what
//! is in memory counted with both. A merge that might not fit beside that flush is not begun, and none is picked that is
//! larger than its half, or than what is left of that. What was admitted counts until it is in the log and in memory.
//!
//! Invariants
//! * all files of the directory together take at most L, but for a manifest that outgrows M: `fs::metered` refuses the rest;
//! * what merges write before their inputs go, and files that readers hold, refuse no write that fits afterwards;
//! * what is admitted here is not refused below: logs may grow for it up to L, and only what they reserve ahead ends earlier;
//! * a refusal changes nothing, and what frees space without writing rows is never refused.
//!
//! Not here: counting (`fs::metered`), which rows go to make room (`fifo_eviction`).

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Doing, Error, ErrorKind, Result};
use crate::executor::Lane;
use crate::format::names::{FileName, TableId};
use crate::fs::{Meter, MeterLimits, Metered, MeteredFs};
use crate::options::{Background, Options};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

use super::compaction::picker::JOB_RUN_FILES;
use super::fifo_eviction::FifoEviction;
use crate::lsm::Engine;
use crate::lsm::read::view::View;
use crate::lsm::write::batch::{Action, Batch, Op, TableChange};

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
/// The part of the limit that logs kept for the change feed may take where nothing else bounds them.
const KEPT_PART: u64 = 4;
/// Rows of the catalog of so few bytes pass as deletions do: gates, retention.
const CATALOG_BYTES: u64 = 4 << 10;
/// How often a refused write has what is in memory flushed, so that merges can take out what was deleted; where that is this
/// part of a memtable, at once.
const ASK_PART: usize = 16;
const ASK_EVERY: Duration = Duration::from_secs(1);

/// How often a write has the oldest files dropped for it while others take what that gives: each drop gives more than one
/// write takes, so that many writers would have to be faster again and again.
const GIVE_TIMES: usize = 64;

/// How often, and how long at a time, a write waits for others to let go of what was dropped: a second in all.
const PAUSES: usize = 28;
const PAUSE_MIN: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// See the module.
pub(crate) struct SpaceLimit {
    meter: Arc<Meter>,
    limit: u64,
    margin: u64,
    reserve: u64,
    /// What merges under way may write.
    planned: Mutex<u64>,
    /// What commits take that were let pass, and that neither log nor memtable has yet.
    admitted: Mutex<u64>,
    /// Writes refused since opening.
    refusals: AtomicU64,
    /// When a flush was asked for last, in nanoseconds of the monotonic clock; 0: never.
    asked: AtomicU64,
    /// It is still to be done.
    wants_flush: AtomicBool,
    pub(in crate::lsm) eviction: FifoEviction,
}

/// A part of a count that others must see; given back when this goes.
struct Held<'a> {
    count: &'a Mutex<u64>,
    bytes: u64,
}

/// What table files that are being written may take.
pub(in crate::lsm) struct Planned<'a> {
    _held: Option<Held<'a>>,
}

/// What a commit takes until its log and its memtable have it.
pub(in crate::lsm) struct Admitted<'a> {
    /// `None`: it may take whatever it likes.
    held: Option<Held<'a>>,
    /// Of its rows.
    bytes: u64,
}

/// What a commit asks for.
enum Demand {
    /// Whole files go with it, or nothing changes on the disk.
    Nothing,
    /// It deletes rows, or changes a few bytes of the catalog.
    Little(u64),
    Rows(u64),
}

/// How much is taken, and of what.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// By all files.
    all: u64,
    /// By those that stay: tables in use, logs, manifest.
    live: u64,
    /// By the flush of what is in memory, and by what names it then.
    flush: u64,
}

impl SpaceLimit {
    /// For what is in `dir`, by the limit of `options`, whose file system it stands before; `None` without a limit.
    ///
    /// # Errors
    /// `InvalidInput` for a limit that leaves no room for rows.
    pub(in crate::lsm) fn begin(dir: &Path, options: &mut Options) -> Result<Option<SpaceLimit>> {
        let eviction = FifoEviction::begin(options)?;
        let Some(limit) = options.max_disk else { return Ok(None) };
        let margin = (limit / MARGIN_PART).max(margin_least(options));
        let least = least_limit(options);
        if limit < least {
            let kept = match options.keep_changes_bytes {
                Some(bytes) => {
                    format!(", and {bytes} bytes of logs to keep (Options::keep_changes)")
                }
                None => String::new(),
            };
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
            eviction,
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
        self.left(self.taken(view)).min(self.reserve / 2).max(least)
    }

    /// What all files take, the limit, how many writes it refused, and how many files and bytes it made go.
    pub(in crate::lsm) fn figures(&self) -> [u64; 5] {
        let [files, bytes] = self.eviction.figures();
        [self.meter.total(), self.limit, self.refusals.load(Ordering::Relaxed), files, bytes]
    }

    fn taken(&self, view: &View) -> Taken {
        let all = self.meter.total();
        let memory = view.memtables.iter().filter(|slot| !slot.memtable.is_empty());
        let files = memory.map(|slot| slot.memtable.bytes() as u64 + TABLE_BYTES);
        let flush = files.sum::<u64>();
        // A manifest that was closed has given back what it had reserved, and takes it again with the next edit.
        let manifest = (MANIFEST_BYTES / 2).saturating_sub(self.meter.others());
        let live = all.saturating_sub(self.meter.tables()) + view.version.file_bytes();
        Taken { all, live, flush: flush + flush / 8 + manifest }
    }

    pub(in crate::lsm) fn limit(&self) -> u64 {
        self.limit
    }

    /// What rows may take.
    fn for_rows(&self) -> u64 {
        self.limit - self.margin - self.reserve
    }

    /// What all files may take with deletions.
    fn for_deletes(&self) -> u64 {
        self.limit - self.margin - self.reserve / 2
    }

    /// What is left for merges.
    fn left(&self, taken: Taken) -> u64 {
        self.left_beside(taken, *self.planned.lock())
    }

    fn left_beside(&self, taken: Taken, planned: u64) -> u64 {
        let used = taken.all + taken.flush + *self.admitted.lock() + planned;
        (self.limit - self.margin).saturating_sub(used)
    }

    fn refusal(&self, taken: Taken) -> Error {
        self.refusals.fetch_add(1, Ordering::Relaxed);
        let (used, limit) = (taken.all, self.limit);
        let given = match self.eviction.is_empty() {
            true => "",
            false => {
                "; the oldest rows of the tables of Options::on_full are too few, or snapshots and reads keep them"
            }
        };
        let problem = format!(
            "the database takes {used} of {limit} bytes of disk that it may (Options::max_disk), and keeps the rest for \
             flushes and merges: delete rows, ranges or tables, which is still possible, or open it with a higher limit{given}"
        );
        Error::new(ErrorKind::StorageFull, problem)
    }
}

impl<'a> Held<'a> {
    /// Adds `bytes` if that `fits` beside what others hold: of two that look at the same time only one takes the last room.
    fn take(count: &'a Mutex<u64>, bytes: u64, fits: impl Fn(u64) -> bool) -> Option<Self> {
        // Nobody gives anything back while this looks: what others hold is counted here, or where it went.
        let mut held = count.lock();
        if !fits(*held) {
            return None;
        }
        *held = held.saturating_add(bytes);
        Some(Self { count, bytes })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.count.lock() -= self.bytes;
    }
}

impl Admitted<'_> {
    /// Where there is no limit, or nothing that it would be about.
    const ALL: Self = Self { held: None, bytes: 0 };

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

impl Engine {
    /// Lets `batch` pass, which takes at least `least` bytes: to be held until it is queued.
    ///
    /// # Errors
    /// `StorageFull` where the limit on disk use leaves no room for it.
    #[inline]
    pub(in crate::lsm) fn admit(&self, batch: &Batch<'_>, least: u64) -> Result<Admitted<'_>> {
        match &self.env.space_limit {
            None => Ok(Admitted::ALL),
            Some(space_limit) => self.admit_to(space_limit, batch, least),
        }
    }

    fn admit_to<'a>(
        &'a self,
        space_limit: &'a SpaceLimit,
        batch: &Batch<'_>,
        least: u64,
    ) -> Result<Admitted<'a>> {
        let (bytes, most) = match demand(batch) {
            Demand::Nothing => return Ok(Admitted::ALL),
            Demand::Little(bytes) => (bytes.max(least), u64::MAX),
            Demand::Rows(bytes) => (bytes.max(least), space_limit.for_rows()),
        };
        // In the log and in memory, from where it goes to a table.
        let held = self.take_room(space_limit, 2 * bytes, [space_limit.for_deletes(), most])?;
        Ok(Admitted { held: Some(held), bytes })
    }

    /// Lets a table file of about so many bytes be written with rows that come in: to be held until it is written. All files
    /// count as rows do, for no version names it before the last of them is written.
    ///
    /// # Errors
    /// As of [`Engine::admit`].
    pub(in crate::lsm) fn admit_file(&self, bytes: u64) -> Result<Planned<'_>> {
        let Some(space_limit) = &self.env.space_limit else { return Ok(Planned { _held: None }) };
        let held = self.take_room(
            space_limit,
            bytes.saturating_add(TABLE_BYTES),
            [space_limit.for_rows(); 2],
        )?;
        Ok(Planned { _held: Some(held) })
    }

    /// Takes so many bytes, if all files stay below the first limit with them, and those that stay below the second.
    fn take_room<'a>(
        &'a self,
        space_limit: &'a SpaceLimit,
        needs: u64,
        most: [u64; 2],
    ) -> Result<Held<'a>> {
        let held = Cell::new(None);
        let fits = || {
            let fits = |others: u64| {
                let taken = space_limit.taken(&self.view.load());
                let more = taken.flush.saturating_add(others).saturating_add(needs);
                let all = [taken.all, taken.live].map(|bytes| bytes.saturating_add(more));
                all[0] <= most[0] && all[1] <= most[1]
            };
            let taken = Held::take(&space_limit.admitted, needs, fits);
            let is_taken = taken.is_some();
            held.set(taken);
            is_taken
        };
        // Beyond that nobody but those who hold files could make room.
        let within = most[0].min(most[1]);
        let has_room = fits()
            || self.remove_unheld() && fits()
            || self.forget_kept_logs()? && fits()
            || self.give_oldest(space_limit, (needs, within), &fits)?;
        if let Some(held) = held.take().filter(|_| has_room) {
            return Ok(held);
        }
        self.ask_for_room(space_limit);
        Err(space_limit.refusal(space_limit.taken(&self.view.load())))
    }

    /// Drops the oldest files of tables that give them, if what is missing for so much more, of `most` in all, can be had
    /// so; true if there is room, as of `fits`.
    fn give_oldest(
        &self,
        space_limit: &SpaceLimit,
        (needs, most): (u64, u64),
        fits: &dyn Fn() -> bool,
    ) -> Result<bool> {
        if space_limit.eviction.is_empty() {
            return Ok(false);
        }
        // What readers and jobs hold although no version has it is none of this: more of it would help nobody.
        let missing = || {
            let taken = space_limit.taken(&self.view.load());
            let others = *space_limit.admitted.lock();
            (taken.live + taken.flush + others + needs).saturating_sub(most)
        };
        for _ in 0..GIVE_TIMES {
            let alone = space_limit.eviction.dropping.lock();
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
                missing if !self.give(&space_limit.eviction, missing, space_limit.limit)? => {
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
        let is_shared = self.env.options.background != Background::Manual;
        let mut pause = PAUSE_MIN;
        for _ in 0..if is_shared { PAUSES } else { 0 } {
            let known = outcome();
            if known.is_some() {
                return known;
            }
            self.state.pause(pause);
            pause = (2 * pause).min(PAUSE_MAX);
            self.remove_unheld();
        }
        outcome()
    }

    /// Has merges take out what was deleted, which may still be in memory.
    fn ask_for_room(&self, space_limit: &SpaceLimit) {
        let now = self.env.clock.monotonic();
        let ticks = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let asked = space_limit.asked.load(Ordering::Acquire);
        let is_due = asked == 0 || ticks(now).saturating_sub(asked) >= ticks(ASK_EVERY);
        let in_memory = self.view.load().active().memtable.payload_bytes();
        if is_due || in_memory >= self.env.options.memtable_bytes / ASK_PART {
            space_limit.asked.store(ticks(now).max(1), Ordering::Release);
            space_limit.wants_flush.store(true, Ordering::Release);
            self.executor.signal(Lane::Flush);
            self.executor.signal(Lane::Compact);
        }
    }

    /// Flushes what is in memory if a refused write asked for it; false if there is nothing to do.
    pub(in crate::lsm) fn flush_for_room(&self) -> Result<bool> {
        let Some(space_limit) = &self.env.space_limit else { return Ok(false) };
        if !space_limit.wants_flush.swap(false, Ordering::AcqRel)
            || self.view.load().active().memtable.is_empty()
        {
            return Ok(false);
        }
        // Writers may have frozen others meanwhile: those first, for nobody else flushes them.
        if !self.freeze_if_room()? {
            space_limit.wants_flush.store(true, Ordering::Release);
        }
        self.flush_one()
    }

    /// True if writes are refused, or soon will be: merges are to take out whatever they can.
    pub(in crate::lsm) fn is_short_of_room(&self) -> bool {
        self.env.space_limit.as_ref().is_some_and(|space_limit| {
            let taken = space_limit.taken(&self.view.load());
            space_limit.eviction.is_spent()
                && taken.live + taken.flush + space_limit.reserve / 4 > space_limit.for_rows()
        })
    }

    /// Room for a merge that reads `bytes`; `None` if it must not begin.
    pub(in crate::lsm) fn plan(&self, bytes: u64) -> Option<Planned<'_>> {
        let Some(space_limit) = &self.env.space_limit else { return Some(Planned { _held: None }) };
        let least = bytes.saturating_add(TABLE_BYTES);
        // All together are to stay in their half of the reserve, as each is picked to, or one that has to be larger alone.
        let fits = |others: u64| {
            let is_alone = others == 0 || others.saturating_add(bytes) <= space_limit.reserve / 2;
            is_alone
                && least <= space_limit.left_beside(space_limit.taken(&self.view.load()), others)
        };
        let take = || Held::take(&space_limit.planned, bytes, fits);
        let held = take().or_else(|| if self.remove_unheld() { take() } else { None })?;
        Some(Planned { _held: Some(held) })
    }

    /// What logs may take that are kept for the change feed without a bound of their own: without one they would take the
    /// room of rows until there is none.
    pub(in crate::lsm) fn kept_logs_max(&self) -> u64 {
        self.env.space_limit.as_ref().map_or(u64::MAX, |space_limit| space_limit.limit / KEPT_PART)
    }

    /// What an explicit merge is answered that has no room.
    pub(in crate::lsm) fn no_room(&self) -> Error {
        let message = "there is no room below the limit on disk use (Options::max_disk) to merge";
        match &self.env.space_limit {
            Some(space_limit) => space_limit.refusal(space_limit.taken(&self.view.load())),
            None => Error::new(ErrorKind::StorageFull, message),
        }
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

fn demand(batch: &Batch<'_>) -> Demand {
    let is_new = |change: &TableChange| matches!(change, TableChange::Created(_));
    let creates = batch.changes.iter().any(is_new);
    let writes = batch.ops.iter().any(|op| !matches!(op.action, Action::Delete));
    let merges = batch.ops.iter().filter(|op| matches!(op.action, Action::Merge(_))).count() as u64;
    let bytes: u64 = batch.ops.iter().map(|op| Op::memtable_bytes(op) as u64).sum();
    if !creates && (!batch.changes.is_empty() || batch.ops.is_empty()) {
        return Demand::Nothing;
    }
    let with_rows = bytes + merges * MERGED_BYTES;
    let is_small = batch.gate.table == TableId::CATALOG && bytes <= CATALOG_BYTES && !creates;
    if writes && !is_small { Demand::Rows(with_rows) } else { Demand::Little(bytes) }
}

#[cfg(all(test, feature = "sim", not(loom)))]
mod tests {
    use crate::fs::MemFs;
    use crate::model::Entity;
    use crate::options::Background;

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
            assert!(!db.engine().view.load().version.kept_logs().is_empty());
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
        while engine.flush_one().unwrap() {}
        let most = engine.env.options.frozen_max;
        for frozen in 0..most {
            put(&format!("{frozen}"));
            engine.freeze().unwrap();
        }
        put("active");
        let waiting = || engine.view.load().frozen().len();
        assert_eq!(waiting(), most);
        engine.env.space_limit.as_ref().unwrap().wants_flush.store(true, Ordering::Release);
        // One that is frozen goes first, and the active one stays: to freeze it would be to wait for this very flush.
        assert!(engine.flush_for_room().unwrap());
        assert_eq!(waiting(), most - 1);
        assert!(!engine.view.load().active().memtable.is_empty());
        // Then it is its turn.
        while engine.flush_one().unwrap() {}
        assert!(engine.flush_for_room().unwrap());
        assert!(engine.view.load().active().memtable.is_empty() && waiting() == 0);
        assert!(!engine.flush_for_room().unwrap(), "asked once");
        db.close().unwrap();
    }
}

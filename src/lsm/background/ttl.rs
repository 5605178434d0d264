//! Expires rows. Each table with a time to live has a range tombstone that hides all rows with a
//! Seq below a bound. The bound follows *lived time*, a clock that ignores wrong wall clocks
//! (`ttl_clock`). A row with a Timestamp in the future expires if *marks* prove its age.
//!
//! Invariants
//! * No row expires early. Lived time follows the monotonic clock and is never ahead of the Seqs.
//!   It ignores a jump of the wall clock by more than one day, unless the options say otherwise.
//! * The bound of a table's range tombstone only increases, by ordinary commits.
//!
//! `range_tombstones` hides the rows; `reclaim` frees their space.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{TICKS_PER_SECOND, ticks_in};
use crate::error::{ErrorKind, Result};
use crate::format::edit::{LivedTime, VersionEdit};
use crate::format::names::TableId;
use crate::format::span::whole_table;
use crate::model::Seq;
use crate::options::Durability;

use super::maintenance::Maintenance;
use crate::lsm::Env;
use crate::lsm::read::view::View;
use crate::lsm::write::batch::{Batch, Gate, TableChange};

use super::ttl_clock::{JUMP_MAX, LivedClock, Shown};
use super::ttl_tables::{Retained, TtlState};

/// The range tombstone of a table is advanced when it lags by 1/`STEPS` of the time to live. So a
/// row may stay visible after its time to live for up to 1/64 of that time.
const STEPS: u64 = 64;
/// The least step by which a range tombstone advances, in ticks.
const STEP_MIN: u64 = TICKS_PER_SECOND;
/// The clock is persisted at least once in this period, a quarter of `JUMP_MAX`. After a crash up
/// to this much time is missing from the persisted clock. The next opening accepts a jump of at
/// most one day. So after a crash the database may stay closed for at most one day minus this
/// period.
const WRITE_DOWN_EVERY: u64 = JUMP_MAX / 4;
/// A close that has nothing else to write does not persist the clock if the persisted one lags by
/// less than this.
const LEFT_AT_CLOSE: u64 = JUMP_MAX / 24;

impl Maintenance {
    /// Sets the time to live of the rows in the table of `gate`; with `None` they do not expire.
    pub(crate) fn set_ttl(&self, gate: &Arc<Gate>, ttl: Option<Duration>) {
        let mut state = self.ttl.0.lock();
        match ttl.map(ticks_in) {
            Some(ttl) => {
                state.tables.insert(gate.table, Retained { gate: Arc::clone(gate), ttl, below: 0 });
            }
            None => drop(state.tables.remove(&gate.table)),
        }
    }

    /// Advances the range tombstones that are due. Returns the time until the next one is due, if
    /// any table has a time to live.
    ///
    /// # Errors
    /// As for every commit. The step is retried.
    pub(in crate::lsm) fn expire(&self) -> Result<Option<Duration>> {
        self.write_clock_down()?;
        let (due, next) = self.due();
        for (gate, below) in due {
            let change = TableChange::Expired(whole_table(gate.table), Seq(below));
            let batch = Batch::of_change(&gate, change);
            match self.commit(&batch, Durability::Sync) {
                Ok(_) => {
                    let mut state = self.ttl.0.lock();
                    let retained = state.tables.get_mut(&gate.table);
                    retained.into_iter().for_each(|retained| retained.below = below);
                }
                // The table was dropped, and its rows with it.
                Err(error) if error.kind() == ErrorKind::NotFound => self.set_ttl(&gate, None),
                Err(error) => return Err(error),
            }
        }
        Ok(next)
    }

    /// Returns the state of the clock for expiry, to be persisted with the next edit; `None` if no
    /// rows expire.
    pub(in crate::lsm) fn expiry_clock(&self) -> Option<LivedTime> {
        let mut state = self.ttl.0.lock();
        if state.tables.is_empty() {
            return None;
        }
        self.read(&mut state.clock);
        Some(state.clock.time().clone())
    }

    /// Returns how far lived time lags behind the wall clock.
    pub(in crate::lsm) fn expiry_lag(&self) -> Duration {
        let wall = self.env().clock.now();
        let lag = self.expiry_clock().map_or(0, |time| wall.saturating_sub(time.now));
        Duration::from_nanos(lag.saturating_mul(100))
    }

    /// Reads the wall clock and the monotonic clock, and returns lived time.
    fn read(&self, clock: &mut LivedClock) -> u64 {
        let Env { clock: clocks, options, .. } = &**self.env();
        let (wall, monotonic) = (clocks.now(), clocks.monotonic());
        clock.read(
            Shown { wall, monotonic, last: self.reader().published() },
            options.trust_clock_jumps,
        )
    }

    /// True if a close must persist the clock even if it has nothing else to write. `known` is the
    /// lived time persisted last.
    pub(in crate::lsm) fn wants_clock_at_close(&self, known: u64) -> bool {
        let is_due = |clock: u64| known == 0 || clock.abs_diff(known) >= LEFT_AT_CLOSE;
        self.expiry_clock().is_some_and(|time| is_due(time.now))
    }

    fn write_clock_down(&self) -> Result<()> {
        let Some(clock) = self.expiry_clock() else { return Ok(()) };
        // While Seqs are unreliable, the next opening cannot find out from them how long this
        // session lasted. So persist the clock as soon as the persisted clock lags by half of the
        // session's duration.
        let up = ticks_in(self.ttl.0.lock().clock.up);
        let every = match clock.unsure {
            Some(_) => (up / 2).clamp(TICKS_PER_SECOND, WRITE_DOWN_EVERY),
            None => WRITE_DOWN_EVERY,
        };
        let is_due = |known: u64| known == 0 || clock.now.abs_diff(known) >= every;
        let view = self.reader().view.load();
        let known = &view.version.clock;
        let turns_wrong = clock.unsure.is_some() && known.unsure.is_none();
        let is_due = is_due(known.now) || turns_wrong;
        drop(view);
        if is_due { self.append_clock(clock) } else { Ok(()) }
    }

    /// Persists the clock before the first row can expire. Otherwise an opening that finds a time
    /// to live but no persisted clock would start from the wall clock, which may be decades ahead
    /// of the first rows.
    ///
    /// # Errors
    /// As for every edit of the manifest; `InvalidInput` in a read-only session.
    pub(crate) fn begin_clock(&self) -> Result<()> {
        self.writable()?;
        if self.reader().view.load().version.clock.now > 0 {
            return Ok(());
        }
        let clock = {
            let mut state = self.ttl.0.lock();
            self.read(&mut state.clock);
            state.clock.time().clone()
        };
        self.append_clock(clock)
    }

    fn append_clock(&self, clock: LivedTime) -> Result<()> {
        let mut manifest = self.install.lock();
        let edit = VersionEdit { clock: Some(clock), ..VersionEdit::default() };
        let version = self.append_edit(&mut manifest, &edit)?;
        self.reader().change_view(|view| view.with_version(&version, None));
        Ok(())
    }

    /// Returns the range tombstones to advance, with their new bounds, and the time until the next
    /// one is due.
    fn due(&self) -> (Vec<(Arc<Gate>, u64)>, Option<Duration>) {
        let mut state = self.ttl.0.lock();
        let TtlState { clock, tables } = &mut *state;
        let Some(least) = tables.values().map(|retained| retained.ttl).min() else {
            return (Vec::new(), None);
        };
        let longest = tables.values().map(|retained| retained.ttl).max().unwrap_or(least);
        let published = self.reader().published();
        let lived = self.read(clock);
        clock.mark(published, step_of(least));
        clock.forget_before(lived.saturating_sub(longest));
        let view = self.reader().view.load();
        let mut due = Vec::new();
        let mut next = u64::MAX;
        for retained in tables.values_mut() {
            let step = step_of(retained.ttl);
            let born = lived.saturating_sub(retained.ttl);
            let given = clock.given_by(born);
            // The bound must not exceed the Seq that the commit of the range tombstone will get.
            let below = if given > born { given.min(published.0) } else { given };
            let since = below.saturating_sub(retained.below);
            // A bound that is derived from marks advances only when the next mark is old enough. So
            // commit such a bound even if it advances by one tick.
            let is_due = since >= if given > born { 1 } else { step };
            if is_due {
                // If the table has no row that old, the commit would hide nothing.
                if may_hold(&view, retained.gate.table, Seq(below)) {
                    due.push((Arc::clone(&retained.gate), below));
                } else {
                    retained.below = below;
                }
            }
            next = next.min(if is_due { step } else { step.saturating_sub(since).max(1) });
        }
        (due, Some(Duration::from_nanos(next.saturating_mul(100))))
    }
}

/// Returns approximately how many ticks the range tombstone of a table with the time to live `ttl`
/// may lag.
fn step_of(ttl: u64) -> u64 {
    (ttl / STEPS).max(STEP_MIN)
}

/// True if the table may hold an entry with a Seq below `below` that is not hidden already.
fn may_hold(view: &View, table: TableId, below: Seq) -> bool {
    let whole = whole_table(table);
    let hidden = |seq_max: Seq| view.range_tombstones.covers(&whole, seq_max, Seq(u64::MAX));
    let is_old = |seq_min: Seq, seq_max: Seq| seq_min < below && !hidden(seq_max);
    let mut memtables = view.memtables.iter().map(|slot| &slot.memtable);
    let in_memory = memtables.any(|memtable| {
        !memtable.is_empty() && is_old(memtable.seq_min(), memtable.seq_max().unwrap_or(Seq::MAX))
    });
    let mut files = view.version.ranges_in(&whole).iter().flat_map(|range| range.references());
    in_memory || files.any(|(_, file)| is_old(file.file.meta.seq_min, file.file.meta.seq_max))
}

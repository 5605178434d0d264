//! Retention by Timestamp: per table a fence that follows the clock.
//!
//! Invariants
//! * nothing expires early: the clock that counts follows monotonic time, a jump of the wall clock by more than a day
//!   is not believed unless the options say so, also not over an opening, and it is never ahead of the Seqs;
//! * a table's fence only moves up, by commits like any other.
//!
//! Not here: what a fence hides (`fences`), how its space comes back (`reclaim`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::TICKS_PER_SECOND;
use crate::error::{ErrorKind, Result};
use crate::format::edit::VersionEdit;
use crate::format::names::TableId;
use crate::model::Seq;
use crate::options::Durability;
use crate::sync::Mutex;

use super::Engine;
use super::background::whole_table;
use super::batch::{Batch, Gate, Ops, TableChange};
use super::view::View;

/// Jumps of the wall clock up to this are believed.
const JUMP_MAX: u64 = 86_400 * TICKS_PER_SECOND;
/// A fence moves when it is behind by this part of the time to live: so much longer a row may live.
const STEPS: u64 = 64;
/// And not more often than this.
const STEP_MIN: u64 = TICKS_PER_SECOND;
/// The clock is written down at least this often: what is off for less than a day less this goes on where it was.
const WRITE_DOWN_EVERY: u64 = JUMP_MAX / 4;
/// By so much the clock written down may be behind at a close after which nothing else is to be written.
const LEFT_AT_CLOSE: u64 = JUMP_MAX / 24;

/// Which tables forget what is old.
pub(crate) struct Expiry(Mutex<State>);

struct State {
    clock: BelievedClock,
    tables: BTreeMap<TableId, Retained>,
}

/// A table with a time to live.
struct Retained {
    gate: Arc<Gate>,
    /// In ticks.
    ttl: u64,
    /// How far its fence has come since opening.
    below: u64,
}

/// The wall clock as far as monotonic time bears it out.
struct BelievedClock {
    now: u64,
    monotonic: Duration,
}

impl BelievedClock {
    /// At opening, `known` being what the database was last told of time; zero: nothing.
    fn new(wall: u64, monotonic: Duration, known: Seq, trusts_jumps: bool) -> Self {
        let believed = known == Seq::ZERO || trusts_jumps || wall.abs_diff(known.0) <= JUMP_MAX;
        Self { now: if believed { wall } else { known.0 }, monotonic }
    }

    fn read(&mut self, wall: u64, monotonic: Duration, trusts_jumps: bool) -> u64 {
        let passed = monotonic.saturating_sub(self.monotonic).as_nanos() / 100;
        let expected = self.now.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX));
        let believed = trusts_jumps || wall.abs_diff(expected) <= JUMP_MAX;
        (self.now, self.monotonic) = (if believed { wall } else { expected }, monotonic);
        self.now
    }
}

impl Expiry {
    /// `known` is what the database was last told of time; zero: nothing.
    pub(super) fn new(wall: u64, monotonic: Duration, known: Seq, trusts_jumps: bool) -> Self {
        let clock = BelievedClock::new(wall, monotonic, known, trusts_jumps);
        Self(Mutex::new(State { clock, tables: BTreeMap::new() }))
    }
}

impl Engine {
    /// Rows of the table behind `gate` go `ttl` after they were written; `None`: they stay.
    pub(crate) fn set_ttl(&self, gate: &Arc<Gate>, ttl: Option<Duration>) {
        let mut state = self.expiry.0.lock();
        let ticks = |ttl: Duration| u64::try_from(ttl.as_nanos() / 100).unwrap_or(u64::MAX);
        match ttl.map(ticks) {
            Some(ttl) => {
                let retained = Retained { gate: Arc::clone(gate), ttl, below: 0 };
                state.tables.insert(gate.table, retained);
            }
            None => drop(state.tables.remove(&gate.table)),
        }
    }

    /// Moves the fences up that are due; how long until the next is, if any table has one.
    ///
    /// # Errors
    /// As every commit; it is tried again.
    pub(super) fn expire(&self) -> Result<Option<Duration>> {
        self.write_clock_down()?;
        let (due, next) = self.due();
        for (gate, below) in due {
            let span = whole_table(gate.table);
            let change = TableChange::Expired(span, Seq(below));
            let batch = Batch::of_change(&gate, change);
            match self.commit(&batch, Durability::Sync) {
                Ok(_) => self.note_expired(&gate, below),
                // The table is gone, and its rows with it.
                Err(error) if error.kind() == ErrorKind::NotFound => self.set_ttl(&gate, None),
                Err(error) => return Err(error),
            }
        }
        Ok(next)
    }

    /// The time by which rows expire, if any do: to be written down with the next edit.
    pub(super) fn expiry_clock(&self) -> Option<u64> {
        let mut state = self.expiry.0.lock();
        if state.tables.is_empty() { None } else { Some(self.believed(&mut state.clock)) }
    }

    /// How far the clock that rows expire by is behind the wall clock.
    pub(super) fn expiry_lag(&self) -> Duration {
        let lag = self.expiry_clock().map_or(0, |now| self.env.clock.now().saturating_sub(now));
        Duration::from_nanos(lag.saturating_mul(100))
    }

    fn believed(&self, clock: &mut BelievedClock) -> u64 {
        let env = &self.env;
        let wall = env.clock.now();
        let now = clock.read(wall, env.clock.monotonic(), env.options.trust_clock_jumps);
        // A row that is written now gets this Timestamp: the clock it expires by must not be ahead of that.
        now.min(wall.max(self.published().0))
    }

    /// True if a close is to write the clock down though nothing else was written; `known` is what was written last.
    pub(super) fn wants_clock_at_close(&self, known: u64) -> bool {
        let is_due = |clock: u64| known == 0 || clock.abs_diff(known) >= LEFT_AT_CLOSE;
        self.expiry_clock().is_some_and(is_due)
    }

    fn write_clock_down(&self) -> Result<()> {
        let Some(clock) = self.expiry_clock() else { return Ok(()) };
        let is_due = |known: u64| known == 0 || clock.abs_diff(known) >= WRITE_DOWN_EVERY;
        if !is_due(self.view.load().version.clock()) {
            return Ok(());
        }
        let mut manifest = self.install.lock();
        let edit = VersionEdit { clock: Some(clock), ..VersionEdit::default() };
        let version = self.append_edit(&mut manifest, &edit)?;
        self.change_view(|view| view.with_version(&version, None));
        Ok(())
    }

    /// Fences that are to move, and where to.
    fn due(&self) -> (Vec<(Arc<Gate>, u64)>, Option<Duration>) {
        let mut state = self.expiry.0.lock();
        let State { clock, tables } = &mut *state;
        if tables.is_empty() {
            return (Vec::new(), None);
        }
        let now = self.believed(clock);
        let view = self.view.load();
        let mut due = Vec::new();
        let mut next = u64::MAX;
        for retained in tables.values_mut() {
            let step = (retained.ttl / STEPS).max(STEP_MIN);
            let below = now.saturating_sub(retained.ttl);
            let since = below.saturating_sub(retained.below);
            if since >= step {
                // Where nothing is that old there is nothing to commit.
                if may_hold(&view, retained.gate.table, Seq(below)) {
                    due.push((Arc::clone(&retained.gate), below));
                } else {
                    retained.below = below;
                }
            }
            next = next.min(if since >= step { step } else { step - since });
        }
        (due, Some(Duration::from_nanos(next.saturating_mul(100))))
    }

    fn note_expired(&self, gate: &Gate, below: u64) {
        if let Some(retained) = self.expiry.0.lock().tables.get_mut(&gate.table) {
            retained.below = below;
        }
    }
}

/// False if the table holds no entry below `below` that is not hidden already.
fn may_hold(view: &View, table: TableId, below: Seq) -> bool {
    let whole = whole_table(table);
    let hidden = |seq_max: Seq| view.fences.covers(&whole, seq_max, Seq(u64::MAX));
    let is_old = |seq_min: Seq, seq_max: Seq| seq_min < below && !hidden(seq_max);
    let mut memtables = view.memtables.iter().map(|slot| &slot.memtable);
    let in_memory = memtables.any(|memtable| {
        !memtable.is_empty() && is_old(memtable.seq_min(), memtable.seq_max().unwrap_or(Seq::MAX))
    });
    let ranges = view.version.ranges_in(&whole).iter();
    let mut files = ranges.flat_map(|range| range.references());
    in_memory || files.any(|(_, file)| is_old(file.file.meta.seq_min, file.file.meta.seq_max))
}

impl Batch<'_> {
    /// A batch that writes no entity.
    pub(crate) fn of_change(gate: &Arc<Gate>, change: TableChange) -> Self {
        Self::of_changes(gate, vec![change])
    }

    /// A batch of several changes that come with one commit.
    pub(crate) fn of_changes(gate: &Arc<Gate>, changes: Vec<TableChange>) -> Self {
        Batch {
            gate: Arc::clone(gate),
            ops: Ops::new(),
            prefix_len: 0,
            is_group: false,
            changes,
            closes: None,
            check_merged: |_, _| Ok(()),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const DAY: u64 = JUMP_MAX;
    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_clock_that_jumps_by_more_than_a_day_is_not_believed() {
        let mut clock = BelievedClock::new(100 * DAY, Duration::ZERO, Seq(100 * DAY), false);
        assert_eq!(clock.read(100 * DAY + 7, Duration::ZERO, false), 100 * DAY + 7);
        let hour = DAY / 24;
        assert_eq!(clock.read(300 * DAY, HOUR, false), 100 * DAY + 7 + hour);
        // Back in step, it is believed again.
        assert_eq!(clock.read(101 * DAY, 2 * HOUR, false), 101 * DAY);
        assert_eq!(clock.read(7, 2 * HOUR, false), 101 * DAY);
        assert_eq!(clock.read(7, 2 * HOUR, true), 7);
    }

    #[test]
    fn after_an_opening_the_last_commit_is_what_is_known_of_time() {
        let read = |wall, last, trusts| {
            BelievedClock::new(wall, HOUR, Seq(last), trusts).read(wall, HOUR, trusts)
        };
        assert_eq!(read(100 * DAY, 0, false), 100 * DAY);
        assert_eq!(read(100 * DAY, 99 * DAY, false), 100 * DAY);
        assert_eq!(read(100 * DAY, 98 * DAY, false), 98 * DAY);
        assert_eq!(read(100 * DAY, 98 * DAY, true), 100 * DAY);
        assert_eq!(read(DAY, 100 * DAY, false), 100 * DAY);
    }
}

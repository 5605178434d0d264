//! The tables with a time to live, and the clock by which their rows expire.
//!
//! `ttl` advances the range tombstones of these tables.

use std::sync::Arc;

use crate::format::edit::LivedTime;
use crate::format::names::TableId;
use crate::model::Seq;
use crate::options::Options;
use crate::sync::Mutex;

use super::ttl_clock::{LivedClock, Shown};
use crate::lsm::write::batch::Gate;
use crate::sort::SortedMap;

/// The tables with a time to live, and the clock that measures the age of their rows.
pub(crate) struct Ttl(pub(super) Mutex<TtlState>);

pub(super) struct TtlState {
    pub(super) clock: LivedClock,
    pub(super) tables: SortedMap<TableId, Retained>,
}

/// A table with a time to live.
pub(super) struct Retained {
    pub(super) gate: Arc<Gate>,
    /// The time to live, in ticks.
    pub(super) ttl: u64,
    /// The bound of the table's range tombstone, as far as this session has advanced it.
    pub(super) below: u64,
}

impl Ttl {
    /// Creates the state. `known` is the persisted clock and `last` the last commit.
    pub(in crate::lsm) fn new(options: &Options, known: LivedTime, last: Seq) -> Self {
        let (wall, monotonic) = (options.clock.now(), options.clock.monotonic());
        let shown = Shown { wall, monotonic, last };
        let clock = LivedClock::new(shown, known, options.trust_clock_jumps);
        Self(Mutex::new(TtlState { clock, tables: SortedMap::default() }))
    }

    /// Returns the clock's state, to be persisted with the log that an opening begins. Returns
    /// `None` if no clock was persisted before, or if `known` already says since when Seqs are
    /// unreliable.
    pub(in crate::lsm) fn news(&self, known: &LivedTime) -> Option<LivedTime> {
        let state = self.0.lock();
        let time = state.clock.time();
        (known.now > 0 && time.unsure != known.unsure).then(|| time.clone())
    }
}

//! Tables with a time to live, and the clock that their rows expire by.
//!
//! Not here: moving their range tombstones up (`ttl`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::format::edit::LivedTime;
use crate::format::names::TableId;
use crate::model::Seq;
use crate::options::Options;
use crate::sync::Mutex;

use super::ttl_clock::{LivedClock, Shown};
use crate::lsm::write::batch::Gate;

/// Which tables forget what is old.
pub(crate) struct Ttl(pub(super) Mutex<TtlState>);

pub(super) struct TtlState {
    pub(super) clock: LivedClock,
    pub(super) tables: BTreeMap<TableId, Retained>,
}

/// A table with a time to live.
pub(super) struct Retained {
    pub(super) gate: Arc<Gate>,
    /// In ticks.
    pub(super) ttl: u64,
    /// How far its range tombstone has come since opening.
    pub(super) below: u64,
}

impl Ttl {
    /// `known` is what the database was last told of time, `last` its last commit.
    pub(in crate::lsm) fn new(options: &Options, known: LivedTime, last: Seq) -> Self {
        let (wall, monotonic) = (options.clock.now(), options.clock.monotonic());
        let shown = Shown { wall, monotonic, last };
        let clock = LivedClock::new(shown, known, options.trust_clock_jumps);
        Self(Mutex::new(TtlState { clock, tables: BTreeMap::new() }))
    }

    /// What is to be written down with the log that an opening begins, where it differs from `known` and rows expire.
    pub(in crate::lsm) fn news(&self, known: &LivedTime) -> Option<LivedTime> {
        let state = self.0.lock();
        let time = state.clock.time();
        (known.now > 0 && time.unsure != known.unsure).then(|| time.clone())
    }
}

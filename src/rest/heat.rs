//! The load of the ranges of all tables over the last day, which the page shows as a map.
//!
//! Invariants
//! * a sample is kept for at most a day;
//! * the samples of all accounts take at most some [`BYTES_MAX`]; the oldest are dropped first.
//!
//! `http::process` has a sample taken every minute, and `page` answers the requests for them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem::size_of;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::db::{Db, RangeBound};
use crate::format::span::Span;
use crate::json;
use crate::sync::Mutex;

use super::accounts::Accounts;

/// The time between two samples. It is also the half-life of the loads that the engine measures.
pub(super) const SAMPLE_TIME: Duration = Duration::from_secs(60);
const KEPT_TIME: Duration = Duration::from_secs(86_400);
const BYTES_MAX: usize = 8 << 20;
/// A table whose ranges all have fewer operations per second is idle, and takes no sample.
const IDLE: f32 = 0.05;

/// The samples of all tables.
#[derive(Debug)]
pub(super) struct HeatHistory {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The oldest is first.
    samples: VecDeque<Sample>,
    /// The bytes of all samples.
    bytes: usize,
    /// The ranges of the latest sample of each table.
    latest: BTreeSet<Arc<TableRanges>>,
}

#[derive(Debug)]
struct Sample {
    time: Duration,
    ranges: Arc<TableRanges>,
    /// The operations per second of each range.
    heats: Box<[f32]>,
    /// The bytes of the sample, and of `ranges` if it is the first sample that has them.
    bytes: usize,
}

/// The ranges of a table; they are shared by the samples between which they do not change.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TableRanges {
    account: String,
    table: Arc<str>,
    /// The first key of each range; empty at the start of the table.
    lows: Vec<String>,
}

impl HeatHistory {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Mutex::default() }
    }

    /// Takes a sample of each table that is not idle.
    pub(super) fn record(&self, accounts: &Accounts) {
        let known = std::mem::take(&mut self.state.lock().latest);
        let time = self.clock.monotonic();
        let samples: Vec<_> = accounts
            .iter()
            .flat_map(|account| loads(&account.name, &account.db))
            .filter(|(_, heats)| heats.iter().any(|heat| *heat >= IDLE))
            .map(|(ranges, heats)| Sample::new(time, ranges, heats, &known))
            .collect();
        let mut state = self.state.lock();
        samples.into_iter().for_each(|sample| state.push(sample));
        state.shrink(time.saturating_sub(KEPT_TIME), BYTES_MAX);
    }

    /// Returns the samples of a table as JSON, the oldest first: the age in seconds, the operations
    /// per second of each range, and the ranges if they differ from those of the sample before.
    pub(super) fn of_table(&self, account: &str, table: &str) -> String {
        let (now, state) = (self.clock.monotonic(), self.state.lock());
        let samples = state.samples.iter().filter(|sample| {
            let ranges = &sample.ranges;
            ranges.account == account && ranges.table.eq_ignore_ascii_case(table)
        });
        let mut shown = None;
        json::array(samples.map(|sample| {
            let is_shown = shown.replace(&sample.ranges).is_some_and(|it| *it == sample.ranges);
            json::object(|object| {
                object.raw("ago", now.saturating_sub(sample.time).as_secs());
                if !is_shown {
                    object.texts("lows", sample.ranges.lows.iter());
                }
                let heats = sample.heats.iter().map(|heat| format!("{heat:.1}"));
                object.raw("heats", json::array(heats));
            })
        }))
    }
}

impl State {
    fn push(&mut self, sample: Sample) {
        self.latest.insert(Arc::clone(&sample.ranges));
        self.bytes += sample.bytes;
        self.samples.push_back(sample);
    }

    /// Drops the samples from before `oldest`, and the oldest ones until `bytes_max` suffice.
    fn shrink(&mut self, oldest: Duration, bytes_max: usize) {
        while let Some(sample) = self.samples.front()
            && (sample.time < oldest || self.bytes > bytes_max)
        {
            self.bytes -= sample.bytes;
            self.samples.pop_front();
        }
    }
}

impl Sample {
    /// Creates a sample, which shares its ranges with `known` if they are there.
    fn new(
        time: Duration,
        ranges: TableRanges,
        heats: Vec<f32>,
        known: &BTreeSet<Arc<TableRanges>>,
    ) -> Self {
        let own = size_of::<Self>() + heats.len() * size_of::<f32>();
        let heats = heats.into();
        match known.get(&ranges) {
            Some(ranges) => Self { time, ranges: Arc::clone(ranges), heats, bytes: own },
            None => {
                let bytes = own + ranges.bytes();
                Self { time, ranges: Arc::new(ranges), heats, bytes }
            }
        }
    }
}

impl TableRanges {
    fn bytes(&self) -> usize {
        let lows = self.lows.iter().map(|low| size_of::<String>() + low.len());
        size_of::<Self>() + lows.sum::<usize>()
    }
}

/// Returns the ranges of each table and their operations per second.
fn loads(account: &str, db: &Db) -> impl Iterator<Item = (TableRanges, Vec<f32>)> {
    let mut tables = BTreeMap::<Arc<str>, (Vec<String>, Vec<f32>)>::new();
    for (table, range) in db.ranges_in(&Span::all()) {
        let (lows, heats) = tables.entry(table).or_default();
        lows.push(range.low.as_ref().map(shown).unwrap_or_default());
        heats.push((range.reads + range.writes) as f32);
    }
    let account = account.to_owned();
    tables.into_iter().map(move |(table, (lows, heats))| {
        (TableRanges { account: account.clone(), table, lows }, heats)
    })
}

/// Returns a bound as the page shows it.
pub(super) fn shown(RangeBound { partition_key, row_key }: &RangeBound) -> String {
    format!("{partition_key} {row_key}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    /// Adds a sample of a table with these ranges.
    fn add(state: &mut State, minute: u64, lows: &[&str]) {
        let lows = lows.iter().map(|low| (*low).to_owned()).collect();
        let ranges = TableRanges { account: "a".to_owned(), table: "t".into(), lows };
        let heats = vec![0.5, minute as f32];
        let time = Duration::from_secs(60 * minute);
        state.push(Sample::new(time, ranges, heats, &state.latest));
    }

    #[test]
    fn samples_are_kept_for_a_day_and_within_their_memory() {
        let mut state = State::default();
        (0..2_000).for_each(|minute| add(&mut state, minute, &["", "m"]));
        state.shrink(Duration::from_secs(60 * 2_000) - KEPT_TIME, BYTES_MAX);
        assert_eq!(state.samples.len(), 1_440);
        let ranges = |at: usize| Arc::as_ptr(&state.samples[at].ranges);
        assert_eq!(ranges(0), ranges(1_439), "equal ranges are stored once");
        state.shrink(Duration::ZERO, state.bytes / 2);
        assert_eq!(state.samples.len(), 720);
        assert_eq!(state.samples.back().unwrap().heats[1], 1_999.0);
        state.shrink(Duration::MAX, 0);
        assert!(state.samples.is_empty());
    }

    #[test]
    fn ranges_are_written_where_they_change() {
        let clock = Arc::new(ManualClock::new(0));
        let history = HeatHistory::new(Arc::clone(&clock) as Arc<dyn Clock>);
        {
            let mut state = history.state.lock();
            (0..2).for_each(|minute| add(&mut state, minute, &["", "m"]));
            add(&mut state, 2, &["", "n"]);
        }
        clock.advance(Duration::from_secs(125));
        let all = concat!(
            r#"[{"ago":125,"lows":["","m"],"heats":[0.5,0.0]},{"ago":65,"heats":[0.5,1.0]},"#,
            r#"{"ago":5,"lows":["","n"],"heats":[0.5,2.0]}]"#
        );
        assert_eq!(history.of_table("a", "T"), all);
        assert_eq!(history.of_table("a", "u"), "[]");
        assert_eq!(history.of_table("b", "t"), "[]");
    }
}

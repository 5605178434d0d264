//! Simulates hours of load: the decisions must come to an end and not oscillate. Without hysteresis
//! they do oscillate under the same loads, which proves that the tests would detect it.
//!
//! Each second of a simulation has a few sampled operations, whose weights add up to the rate of
//! all operations. Decisions are made once a minute, as in the background work of a database. Rows
//! have 64 bytes, and a range is split at 1 MiB.

use std::collections::BTreeSet;

use super::*;
use crate::format::key::user_key;
use crate::ranges::load::RangeLoad;
use crate::rng::Rng;

const HOUR: u64 = 3_600;
/// The number of sampled operations per second.
const SAMPLED: u64 = 12;
const ROW_BYTES: u64 = 64;
const DECIDE_EVERY: u64 = 60;

enum Op {
    Read(Vec<u8>),
    Insert(Vec<u8>),
    Delete(Vec<u8>),
}

/// A load: returns its `i`-th operation, which happens in second `now`.
type Trace = fn(now: u64, i: u64, rng: &mut Rng) -> Op;

struct Run {
    trace: Trace,
    hours: u64,
    rate: f64,
    /// The maximum deviation of each minute's rate, as a fraction.
    noise: f64,
    limits: Limits,
    /// True to treat ascending and descending inserts as ordinary writes.
    is_blind: bool,
    rows: u64,
}

struct Simulated {
    id: RangeId,
    low: Vec<u8>,
    load: RangeLoad,
    rows: u64,
    made: u64,
}

#[derive(Debug, PartialEq)]
enum Event {
    Split { at: Vec<u8> },
    Merge { low: Vec<u8>, at: Vec<u8>, high: Option<Vec<u8>> },
}

struct World {
    rows: BTreeSet<Vec<u8>>,
    ranges: Vec<Simulated>,
    events: Vec<(u64, Event)>,
    next_id: u64,
}

/// The result of a run.
struct Outcome {
    splits: usize,
    merges: usize,
    ranges: usize,
    /// The time of the last decision, in seconds.
    last: u64,
    /// How many times ranges were merged at a former cut, and the merged range was split again.
    flaps: usize,
}

impl World {
    fn new(rows: u64) -> Self {
        let rows: BTreeSet<_> = (0..rows).map(|i| row(i % 4_096, i / 4_096)).collect();
        let load = RangeLoad::new(1, 0.0);
        let len = rows.len() as u64;
        let first = Simulated { id: RangeId(1), low: Vec::new(), load, rows: len, made: 0 };
        Self { rows, ranges: vec![first], events: Vec::new(), next_id: 2 }
    }

    fn apply(&mut self, op: Op, weight: f64, now: u64) {
        let (Op::Read(key) | Op::Insert(key) | Op::Delete(key)) = &op;
        let at = self.ranges.partition_point(|range| range.low <= *key) - 1;
        let range = &mut self.ranges[at];
        match &op {
            Op::Read(key) => range.load.read(key, weight, now as f64),
            Op::Insert(key) | Op::Delete(key) => range.load.write(key, weight, now as f64),
        }
        match op {
            Op::Insert(key) => range.rows += u64::from(self.rows.insert(key)),
            Op::Delete(key) => range.rows -= u64::from(self.rows.remove(&key)),
            Op::Read(_) => {}
        }
    }

    fn decide(&mut self, run: &Run, now: u64) -> bool {
        let state = |range: &mut Simulated| {
            let bytes = range.rows * ROW_BYTES;
            // Without hysteresis the size is not recorded. Otherwise a larger size in the last hour
            // would prevent a merge.
            if run.limits.cold_minutes > 1 {
                range.load.record_bytes(bytes, now as f64);
            }
            let mut load = range.load.summary(now as f64);
            if run.is_blind {
                load.ascending = 0.0;
                load.windows.clear();
                load.samples.iter_mut().for_each(|sample| sample.access = Access::Write);
            }
            let age = (now - range.made) as f64;
            RangeState { id: range.id, table: TableId(1), bytes, load, age }
        };
        let states: Vec<_> = self.ranges.iter_mut().map(state).collect();
        let recent =
            |event: &&(u64, Event)| event.0 + 60 > now && matches!(event.1, Event::Split { .. });
        let pace = Pace {
            database_splits: self.ranges.len() - 1,
            splits_last_minute: self.events.iter().rev().take(100).filter(recent).count(),
        };
        match next(&states, pace, &run.limits) {
            Some(Decision::SplitBySize { range }) => {
                let at = self.position(range);
                let candidates = self.candidates(at);
                let bytes = states[at].bytes;
                let Some(cut) = cut_by_size(&candidates, bytes, states[at].load.ascending) else {
                    return false;
                };
                self.split(at, &cut, now);
            }
            Some(Decision::SplitByLoad { range, at }) => self.split(self.position(range), &at, now),
            Some(Decision::Merge { lower, .. }) => self.merge(self.position(lower), now),
            None => return false,
        }
        true
    }

    fn position(&self, id: RangeId) -> usize {
        self.ranges.iter().position(|range| range.id == id).unwrap()
    }

    fn high(&self, at: usize) -> Option<Vec<u8>> {
        self.ranges.get(at + 1).map(|range| range.low.clone())
    }

    fn rows_of(&self, at: usize) -> impl Iterator<Item = &Vec<u8>> {
        let high = self.high(at);
        let rows = self.rows.range(self.ranges[at].low.clone()..);
        rows.take_while(move |key| high.as_ref().is_none_or(|high| *key < high))
    }

    fn candidates(&self, at: usize) -> Vec<Candidate> {
        let rows = self.rows_of(at).enumerate().skip(1).step_by(64);
        let candidate = |(i, key): (usize, &Vec<u8>)| Candidate {
            key: key.as_slice().into(),
            below: i as u64 * ROW_BYTES,
        };
        rows.map(candidate).collect()
    }

    fn split(&mut self, at: usize, cut: &[u8], now: u64) {
        assert!(*cut > *self.ranges[at].low, "a cut is inside its range");
        assert!(self.high(at).is_none_or(|high| *cut < *high));
        let (lower, upper) = self.ranges[at].load.clone().split(cut, now as f64);
        let (ids, low) = (self.next_id, self.ranges[at].low.clone());
        self.next_id += 2;
        let made = |id, low, load| Simulated { id: RangeId(id), low, load, rows: 0, made: now };
        let parts = [made(ids, low, lower), made(ids + 1, cut.to_vec(), upper)];
        self.ranges.splice(at..=at, parts);
        for part in [at, at + 1] {
            self.ranges[part].rows = self.rows_of(part).count() as u64;
        }
        self.events.push((now, Event::Split { at: cut.to_vec() }));
    }

    fn merge(&mut self, at: usize, now: u64) {
        let upper = self.ranges.remove(at + 1);
        let high = self.high(at);
        let lower = &mut self.ranges[at];
        let event = Event::Merge { low: lower.low.clone(), at: upper.low, high };
        lower.id = RangeId(self.next_id);
        lower.load = lower.load.clone().join(upper.load, now as f64);
        lower.rows += upper.rows;
        lower.made = now;
        self.next_id += 1;
        self.events.push((now, event));
    }

    fn outcome(&self) -> Outcome {
        let is_split = |event: &Event| matches!(event, Event::Split { .. });
        let splits = self.events.iter().filter(|(_, event)| is_split(event)).count();
        Outcome {
            splits,
            merges: self.events.len() - splits,
            ranges: self.ranges.len(),
            last: self.events.last().map_or(0, |(now, _)| *now),
            flaps: self.flaps(),
        }
    }

    /// Counts the merges that undo a split and are undone by a later split.
    fn flaps(&self) -> usize {
        let merges = self.events.iter().enumerate();
        let undone = merges.filter(|(i, (_, event))| {
            let Event::Merge { low, at, high } = event else { return false };
            let is_inside =
                |cut: &Vec<u8>| cut > low && high.as_ref().is_none_or(|high| cut < high);
            let divides = |(_, event): &(u64, Event)| match event {
                Event::Split { at } => is_inside(at),
                Event::Merge { .. } => false,
            };
            let was_cut = self.events[..*i]
                .iter()
                .any(|(_, event)| matches!(event, Event::Split { at: cut } if cut == at));
            was_cut && self.events[*i..].iter().any(divides)
        });
        undone.count()
    }
}

impl Run {
    /// Creates a run of eight hours with `rate` operations per second on 32,768 rows. The rate of
    /// each minute deviates by up to half.
    fn new(trace: Trace, rate: f64) -> Self {
        let limits = Limits::for_files(64 << 10);
        Self { trace, hours: 8, rate, noise: 0.5, limits, is_blind: false, rows: 32_768 }
    }

    fn hours(self, hours: u64) -> Self {
        Self { hours, ..self }
    }

    fn noise(self, noise: f64) -> Self {
        Self { noise, ..self }
    }

    fn rows(self, rows: u64) -> Self {
        Self { rows, ..self }
    }

    fn blind(self) -> Self {
        Self { is_blind: true, ..self }
    }

    /// Removes the hysteresis: merges ranges as soon as they are below the thresholds for a split,
    /// and decides by the last minute alone.
    fn without_hysteresis(mut self) -> Self {
        let limits = &mut self.limits;
        limits.merge_ops = limits.split_ops;
        limits.merge_bytes = limits.split_bytes;
        (limits.hot_minutes, limits.cold_minutes) = (1, 1);
        self
    }

    fn go(&self, seed: u64) -> Outcome {
        let mut rng = Rng::from_seed(seed);
        let mut world = World::new(self.rows);
        let mut noise = 1.0;
        for now in 0..self.hours * HOUR {
            if now % 60 == 0 {
                noise = 1.0 + self.noise * (rng.below(2_001) as f64 / 1_000.0 - 1.0);
            }
            let weight = self.rate * noise / SAMPLED as f64;
            for i in now * SAMPLED..(now + 1) * SAMPLED {
                let op = (self.trace)(now, i, &mut rng);
                world.apply(op, weight, now);
            }
            if now % DECIDE_EVERY == 0 {
                world.decide(self, now);
            }
        }
        world.outcome()
    }

    /// Runs with two seeds. Each run must have no oscillation, at most `decisions` decisions, and
    /// no decision after `settled` minutes.
    #[track_caller]
    fn check(&self, decisions: usize, settled: u64) {
        for seed in 0..2 {
            let found = self.go(seed);
            let count = found.splits + found.merges;
            assert_eq!(found.flaps, 0, "seed {seed}: {count} decisions");
            assert!(count <= decisions, "seed {seed}: {count} decisions, {} ranges", found.ranges);
            assert!(found.last <= settled * 60, "seed {seed}: the last after {} s", found.last);
        }
    }
}

/// Returns the key of row `rk` of partition `pk`.
fn row(pk: u64, rk: u64) -> Vec<u8> {
    user_key(TableId(1), &format!("{pk:08}"), &format!("{rk:04}"))
}

fn any_row(partitions: u64, rng: &mut Rng) -> Vec<u8> {
    row(rng.below(partitions), rng.below(8))
}

fn uniform(_: u64, i: u64, rng: &mut Rng) -> Op {
    let key = any_row(4_096, rng);
    if i.is_multiple_of(3) { Op::Insert(key) } else { Op::Read(key) }
}

/// Returns an operation on a partition, nearly by Zipf's law: partition k of a permutation has a
/// frequency of about 1 / k.
fn zipfian(_: u64, i: u64, rng: &mut Rng) -> Op {
    // Choose each power of two with the same probability.
    let magnitude = rng.below(13);
    let rank = (1 << magnitude) - 1 + rng.below(1 << magnitude);
    let key = row(rank.wrapping_mul(2_654_435_761) % 4_096, rng.below(8));
    if i.is_multiple_of(3) { Op::Insert(key) } else { Op::Read(key) }
}

/// Returns an operation of a load that is mostly on one of four hot spots in turn. Each is hot for
/// ten minutes.
fn shifting(now: u64, i: u64, rng: &mut Rng) -> Op {
    let spot = now / 600 % 4 * 1_024;
    let pk = if i.is_multiple_of(10) { rng.below(4_096) } else { spot + rng.below(200) };
    Op::Read(row(pk, rng.below(8)))
}

/// As `shifting`, but each spot is hot for two hours out of every eight.
fn slowly_shifting(now: u64, i: u64, rng: &mut Rng) -> Op {
    shifting(now / 12, i, rng)
}

fn ascending(_: u64, i: u64, _: &mut Rng) -> Op {
    Op::Insert(row(10_000 + i, 0))
}

/// Returns an operation of a load that appends rows and reads the last 200 of them, which were
/// appended within about 20 seconds.
fn newest_read(_: u64, i: u64, rng: &mut Rng) -> Op {
    let is_read = rng.below(10) < 5 + i / 20_000 % 5;
    if is_read { Op::Read(row(10_000 + i - rng.below(200), 0)) } else { ascending(0, i, rng) }
}

fn descending(_: u64, i: u64, _: &mut Rng) -> Op {
    Op::Insert(row(90_000_000 - i, 0))
}

/// Returns an operation of a load that is nearly all on one partition.
fn one_partition(_: u64, i: u64, rng: &mut Rng) -> Op {
    if i.is_multiple_of(10) {
        Op::Read(any_row(4_096, rng))
    } else {
        Op::Insert(row(2_000, i % 64))
    }
}

/// Returns an operation of a load that inserts rows for half an hour and then deletes them for half
/// an hour.
fn tidal(now: u64, i: u64, _: &mut Rng) -> Op {
    let turn = i % (1_800 * SAMPLED);
    let key = row(turn.wrapping_mul(7_919) % 21_600, 9);
    if (now / 1_800).is_multiple_of(2) { Op::Insert(key) } else { Op::Delete(key) }
}

fn quiet(_: u64, _: u64, rng: &mut Rng) -> Op {
    Op::Read(any_row(4_096, rng))
}

#[test]
fn uniform_load_settles() {
    Run::new(uniform, 9_000.0).check(12, 180);
    Run::new(quiet, 1_000.0).check(1, 1);
}

#[test]
fn uniform_load_near_the_threshold_settles() {
    Run::new(uniform, 2_000.0).noise(0.9).rows(8_192).hours(12).check(3, 12 * 60);
}

#[test]
fn skewed_load_settles() {
    Run::new(zipfian, 9_000.0).check(14, 240);
}

#[test]
fn a_hotspot_that_returns_within_the_hour_does_not_flap() {
    Run::new(shifting, 9_000.0).hours(9).check(24, 8 * 60);
}

/// The hot spot moves every two hours. Ranges are split and merged accordingly, with at most ten
/// decisions for each move.
#[test]
fn a_hotspot_that_moves_every_two_hours_is_followed_at_a_bounded_pace() {
    let found = Run::new(slowly_shifting, 9_000.0).hours(24).go(1);
    let changes = 12;
    assert!(found.splits + found.merges <= 10 * changes, "{} and {}", found.splits, found.merges);
    assert!(found.ranges <= 16);
}

/// Ascending and descending inserts cause splits by size only, at most about two per MiB of data,
/// and no merges. With ascending inserts, the ranges that remain must be nearly full.
#[test]
fn directed_load_is_cut_by_size_alone() {
    for trace in [ascending as Trace, descending] {
        let found = Run::new(trace, 9_000.0).rows(0).go(1);
        let data = 8 * HOUR * SAMPLED * ROW_BYTES;
        let full = (data >> 20) as usize;
        assert!(found.splits <= 2 * full + 1, "{} splits for {full} MiB", found.splits);
        assert_eq!((found.merges, found.flaps), (0, 0));
    }
    let up = Run::new(ascending, 9_000.0).rows(0).go(1);
    assert!(up.ranges as u64 <= ((8 * HOUR * SAMPLED * ROW_BYTES) >> 20) * 10 / 8);
}

/// The load appends rows and reads new ones; 50 to 90 % of the operations are reads. Without splits
/// by size there must be no split at all.
#[test]
fn appended_rows_that_are_read_while_new_are_never_cut_for_their_load() {
    for seed in 0..2 {
        let mut run = Run::new(newest_read, 9_000.0).hours(4);
        run.limits.split_bytes = u64::MAX;
        assert_eq!(run.go(seed).splits, 0, "seed {seed}");
    }
}

#[test]
fn one_hot_partition_is_left_alone() {
    Run::new(one_partition, 20_000.0).check(3, 3);
}

#[test]
fn an_oscillating_size_does_not_flap() {
    Run::new(tidal, 100.0).rows(0).hours(12).check(4, 60);
}

/// The same loads must oscillate if there is no hysteresis.
#[test]
fn without_hysteresis_these_traces_flap() {
    let flaps = |run: Run| run.hours(4).without_hysteresis().go(1).flaps;
    assert!(flaps(Run::new(uniform, 9_000.0)) > 5);
    assert!(flaps(Run::new(uniform, 2_000.0).noise(0.9).rows(8_192)) > 3);
    assert!(flaps(Run::new(zipfian, 9_000.0)) > 5);
    assert!(flaps(Run::new(shifting, 9_000.0)) > 5);
    assert!(flaps(Run::new(tidal, 100.0).rows(0)) > 2);
}

/// If ascending inserts are treated as ordinary writes, the range with the newest rows is split
/// again and again.
#[test]
fn without_direction_appended_load_is_split_again_and_again() {
    let blind = Run::new(ascending, 9_000.0).rows(0).blind().go(1);
    let seeing = Run::new(ascending, 9_000.0).rows(0).go(1);
    assert!(blind.splits > seeing.splits * 3 / 2, "{} and {}", blind.splits, seeing.splits);
}

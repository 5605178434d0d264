//! Measures the load of one range: rates now and in the last hour, the pattern of writes, the
//! heaviest partitions, and a sample of accessed keys. `lsm::load_sampling` chooses the operations
//! to record; each recorded operation stands for `weight` operations. `decide` uses the load.
//!
//! Invariants
//! * time is an argument and advances in steps of [`STEP_SECONDS`]; results depend only on the
//!   calls;
//! * the size is bounded: about 12 KiB for a busy range, a few hundred bytes for a quiet one;
//! * values decay with the half-life [`HALF_LIFE_SECONDS`], except values kept per minute, and the
//!   count of distinct partitions, which covers the last one to two [`GENERATION_SECONDS`].

use crate::format::key::partition_of;
use crate::rng::Rng;
use crate::sort::sort_by;

use super::sketch::{Distinct, Heaviest, Heavy, partition_hash};

/// The interval in seconds at which averages are updated, small compared with the half-life. With
/// fixed steps, no exponential function is needed, whose last bit differs between machines.
pub(crate) const STEP_SECONDS: f64 = 5.0;
/// The half-life of averages and weights in seconds. A change of load is visible within a minute or
/// two; a burst of one second is not.
pub(crate) const HALF_LIFE_SECONDS: f64 = 60.0;
const _: () = assert!(HALF_LIFE_SECONDS / STEP_SECONDS == 12.0, "FADE depends on them");
/// The decay in one step: 2^(-1/12).
const FADE: f64 = 0.943_874_312_681_693_5;
/// A value that has decayed by this many steps is treated as zero.
const FADED_STEPS: u64 = 1_000;
/// The number of past minutes whose rates are kept. `decide` merges a range only if it was cold for
/// this long.
pub(crate) const HISTORY_MINUTES: usize = 60;
const STEPS_PER_MINUTE: u64 = 12;
/// The time in seconds after which counting distinct partitions restarts. Each such period is a
/// *generation*.
pub(crate) const GENERATION_SECONDS: f64 = 600.0;
/// The number of sampled keys kept. With this number, a share of 20 % differs from one of 35 % by
/// three standard deviations.
pub(crate) const SAMPLES: usize = 64;
/// The number of past minutes for which sampled keys are kept separately, in addition to the sample
/// of the whole load.
pub(crate) const WINDOWS: usize = 5;
/// The number of sampled keys kept for each of the [`WINDOWS`] minutes.
const WINDOW_KEYS: usize = 16;
/// The minimum time in seconds between the starts of two *turns*. During a turn the files of a
/// range are merged to speed up its reads.
pub(crate) const TURN_SECONDS: f64 = 3_600.0;
/// A write is ascending (descending) if its key is above (below) the keys of this many preceding
/// sampled writes. In random order this applies to 1 write in 16.
const RECENT_WRITES: usize = 15;

/// The statistics of the load of one range.
#[derive(Clone, Debug)]
pub(crate) struct RangeLoad {
    /// The current step, counted from the start of the clock. All values are as of the start of
    /// this step.
    step: u64,
    reads: Average,
    writes: Average,
    ascending: Average,
    descending: Average,
    history: History,
    heaviest: Heaviest,
    /// The distinct partitions of the current generation and of the previous one.
    distinct: [Distinct; 2],
    generation: u64,
    /// When a range is split, its load is divided. These are the estimated numbers of distinct
    /// partitions that this load received then, for the current and the previous generation. They
    /// count until these generations have passed.
    inherited: [f64; 2],
    samples: Vec<Sample>,
    /// The decayed weight of all operations from which the samples were chosen.
    sampled: f64,
    /// The sampled keys of the current minute and of the minutes before it, newest first.
    windows: [Window; WINDOWS + 1],
    window_rng: Rng,
    recent: Vec<Box<[u8]>>,
    next_recent: usize,
    /// The largest sizes in the current and in the previous hour, in bytes.
    peaks: [u64; 2],
    hour: u64,
    loss: Loss,
    rng: Rng,
}

/// The cost of overlapping files for readers. Each row that a reader looks up in more than one file
/// adds the number of files beyond the first, or a multiple of it (see `lsm::load_sampling`).
#[derive(Clone, Debug, Default)]
struct Loss {
    rows: f64,
    /// When the last [turn](RangeLoad::begin_turn) started; `None` if there was none.
    turn: Option<f64>,
    in_turn: bool,
}

/// Keys accessed in one minute.
#[derive(Clone, Debug, Default)]
struct Window {
    keys: Vec<Box<[u8]>>,
    /// The weight of all operations from which the keys were chosen.
    weight: f64,
}

/// A sampled key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) key: Box<[u8]>,
    pub(crate) access: Access,
}

/// The kind of an access to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// A write that is neither ascending nor descending, or that follows too few writes to tell.
    Write,
    /// A write above all recently written keys. If most writes are ascending, the next ones are
    /// expected to have even higher keys.
    Ascending,
    /// A write below all recently written keys.
    Descending,
}

/// The load at a point in time.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadSummary {
    /// Operations per second, as decaying averages. A scan counts as one read for each row visited.
    pub(crate) reads: f64,
    pub(crate) writes: f64,
    /// The shares of the writes that are ascending and descending, 0 to 1.
    pub(crate) ascending: f64,
    pub(crate) descending: f64,
    /// The number of distinct partitions that were accessed in the last 10 to 20 minutes. Only
    /// recorded operations count.
    pub(crate) distinct: f64,
    /// The heaviest partitions, heaviest first, each with its share of all operations, 0 to 1.
    pub(crate) heaviest: Vec<(Heavy, f64)>,
    /// The sampled keys, in order.
    pub(crate) samples: Vec<Sample>,
    /// Keys accessed in each of the last [`WINDOWS`] full minutes, newest first; each in key order.
    pub(crate) windows: Vec<Vec<Box<[u8]>>>,
    /// The sum of reads and writes per second in each of the last [`HISTORY_MINUTES`] full minutes,
    /// newest first. Minutes before the first operation are zeros; an empty list means all zeros.
    pub(crate) minutes: Vec<f64>,
    /// The largest size recorded in the last one to two hours, in bytes.
    pub(crate) bytes_peak: u64,
}

/// A decaying average of operations per second.
#[derive(Clone, Copy, Debug, Default)]
struct Average {
    faded: f64,
    /// The operations in the current step.
    now: f64,
}

/// Counts operations in each of the last minutes.
#[derive(Clone, Debug)]
struct History {
    minutes: [f32; HISTORY_MINUTES],
    /// The operations in the current minute.
    now: f64,
    minute: u64,
}

impl RangeLoad {
    /// Creates the load of a range without accesses so far. `seed` determines which keys are
    /// sampled.
    pub(crate) fn new(seed: u64, now: f64) -> Self {
        let step = step_at(now);
        Self {
            step,
            reads: Average::default(),
            writes: Average::default(),
            ascending: Average::default(),
            descending: Average::default(),
            history: History {
                minutes: [0.0; HISTORY_MINUTES],
                now: 0.0,
                minute: step / STEPS_PER_MINUTE,
            },
            heaviest: Heaviest::default(),
            distinct: [Distinct::default(), Distinct::default()],
            generation: generation_at(now),
            inherited: [0.0; 2],
            samples: Vec::new(),
            sampled: 0.0,
            windows: Default::default(),
            window_rng: Rng::from_seed(!seed),
            recent: Vec::new(),
            next_recent: 0,
            peaks: [0; 2],
            hour: hour_at(now),
            loss: Loss::default(),
            rng: Rng::from_seed(seed),
        }
    }

    /// Records a sampled read of `key`, which stands for `weight` reads.
    pub(crate) fn read(&mut self, key: &[u8], weight: f64, now: f64) {
        self.advance(now);
        self.reads.now += weight;
        self.record(key, Access::Read, weight);
    }

    /// Records a sampled write of `key`, which stands for `weight` writes.
    pub(crate) fn write(&mut self, key: &[u8], weight: f64, now: f64) {
        self.advance(now);
        self.writes.now += weight;
        let access = self.direction(key);
        match access {
            Access::Ascending => self.ascending.now += weight,
            Access::Descending => self.descending.now += weight,
            Access::Read | Access::Write => {}
        }
        self.record(key, access, weight);
    }

    /// Records the current size of the range in bytes.
    pub(crate) fn record_bytes(&mut self, bytes: u64, now: f64) {
        self.advance(now);
        self.peaks[0] = self.peaks[0].max(bytes);
    }

    /// Returns the load as of `now`.
    pub(crate) fn summary(&self, now: f64) -> LoadSummary {
        let mut load = self.clone();
        load.advance(now);
        let (reads, writes) = (load.reads.rate(), load.writes.rate());
        let share = |part: Average| if writes > 0.0 { part.rate() / writes } else { 0.0 };
        let total = load.heaviest.total.max(f64::MIN_POSITIVE);
        let ranked = load.heaviest.ranked().into_iter();
        let heaviest = ranked.map(|heavy| {
            let share = ((heavy.weight - heavy.over) / total).clamp(0.0, 1.0);
            (heavy, share)
        });
        let mut samples = load.samples.clone();
        sort_by(&mut samples, |a, b| a.key.cmp(&b.key));
        let [_, full @ ..] = load.windows.clone();
        let windows = full.map(|mut window| {
            sort_by(&mut window.keys, Ord::cmp);
            window.keys
        });
        LoadSummary {
            reads,
            writes,
            ascending: share(load.ascending),
            descending: share(load.descending),
            distinct: load.partitions(),
            heaviest: heaviest.collect(),
            samples,
            windows: windows.into(),
            minutes: load.history.rates().collect(),
            bytes_peak: load.peaks[0].max(load.peaks[1]),
        }
    }

    /// Returns reads and writes per second, at less cost than the whole summary.
    pub(crate) fn rates(&self, now: f64) -> [f64; 2] {
        let steps = step_at(now).saturating_sub(self.step);
        [self.reads, self.writes].map(|mut average| {
            if steps > 0 {
                average.advance(fade(steps));
            }
            average.rate()
        })
    }

    /// Adds to the cost of overlapping files for readers: `rows` is the number of additional files
    /// searched, summed over the rows looked up.
    pub(crate) fn lose(&mut self, rows: f64) {
        self.loss.rows += rows;
    }

    /// Returns the cost of overlapping files for readers. It is counted from the time when the
    /// range last had no files above its sorted run.
    pub(crate) fn lost(&self) -> f64 {
        self.loss.rows
    }

    /// Starts a turn, in which the range is merged to speed up reads, however much the merge
    /// writes. Returns false during a turn, and within [`TURN_SECONDS`] after the start of the last
    /// turn.
    pub(crate) fn begin_turn(&mut self, now: f64) -> bool {
        let had_one = self.loss.turn.is_some_and(|turn| now < turn + TURN_SECONDS);
        if !had_one && !self.loss.in_turn {
            self.loss.turn = Some(now);
            self.loss.in_turn = true;
            return true;
        }
        false
    }

    pub(crate) fn is_in_turn(&self) -> bool {
        self.loss.in_turn
    }

    /// Records that no file overlaps the run any more. Resets the cost of overlapping files, and
    /// ends the turn.
    pub(crate) fn record_merged(&mut self) {
        self.loss.rows = 0.0;
        self.loss.in_turn = false;
    }

    /// Splits the load of a range that is split at key `at`. Statistics about a key are assigned to
    /// the side of the key. All others are divided in the ratio of the sampled keys on the two
    /// sides.
    pub(crate) fn split(mut self, at: &[u8], now: f64) -> (RangeLoad, RangeLoad) {
        self.advance(now);
        let is_left = |key: &[u8]| key < at;
        let on_left = self.samples.iter().filter(|sample| is_left(&sample.key)).count();
        let share = match self.samples.len() {
            0 => 0.5,
            all => on_left as f64 / all as f64,
        };
        let (mut left, mut right) = (self.clone(), self.clone());
        let partitions = self.partitions();
        (left.heaviest, right.heaviest) = self.heaviest.split(at, share);
        left.take_part(share, partitions, is_left);
        right.take_part(1.0 - share, partitions, |key| !is_left(key));
        right.rng = Rng::from_seed(self.rng.next_u64());
        (left, right)
    }

    /// Merges the loads of two neighbours that become one range. `self` is the load of the lower
    /// one.
    pub(crate) fn join(mut self, mut upper: RangeLoad, now: f64) -> RangeLoad {
        self.advance(now);
        upper.advance(now);
        for (own, other) in self.averages().into_iter().zip(upper.averages()) {
            own.faded += other.faded;
            own.now += other.now;
        }
        self.history.join(&upper.history);
        self.heaviest.join(&upper.heaviest);
        for (own, other) in self.distinct.iter_mut().zip(&upper.distinct) {
            own.join(other);
        }
        for (own, other) in self.inherited.iter_mut().zip(upper.inherited) {
            *own += other;
        }
        for (own, other) in self.peaks.iter_mut().zip(upper.peaks) {
            *own = own.saturating_add(other);
        }
        // Take samples from both sides in the ratio of the weights from which they were chosen.
        let all = self.sampled + upper.sampled;
        let share = |own: f64, all: f64| if all > 0.0 { own / all } else { 0.5 };
        join_samples(&mut self.samples, upper.samples, SAMPLES, share(self.sampled, all));
        self.sampled = all;
        for (own, other) in self.windows.iter_mut().zip(upper.windows) {
            let all = own.weight + other.weight;
            join_samples(&mut own.keys, other.keys, WINDOW_KEYS, share(own.weight, all));
            own.weight = all;
        }
        self.loss.rows += upper.loss.rows;
        self.loss.turn = self.loss.turn.into_iter().chain(upper.loss.turn).reduce(f64::max);
        self.loss.in_turn &= upper.loss.in_turn;
        // The recent writes of the two sides cannot be combined. Keep those of the side with more
        // writes.
        if upper.writes.rate() > self.writes.rate() {
            (self.recent, self.next_recent) = (upper.recent, upper.next_recent);
        }
        self
    }

    /// True if the load can be discarded, because all rates were zero for an hour. The only other
    /// information lost is the recorded cost of overlapping files.
    pub(crate) fn is_idle(&mut self, now: f64) -> bool {
        self.advance(now);
        // The rates do not include operations of the current step yet, so check these separately.
        let is_cold = [self.reads, self.writes].iter().all(|average| average.now == 0.0)
            && self.reads.rate() + self.writes.rate() < 1e-3;
        is_cold && self.history.rates().all(|rate| rate < 1e-3)
    }

    /// Reduces the load of a range that was split to the part on one side.
    fn take_part(&mut self, share: f64, partitions: f64, is_here: impl Fn(&[u8]) -> bool) {
        debug_assert!((0.0..=1.0).contains(&share), "a share is a part of one");
        for average in self.averages() {
            average.faded *= share;
            average.now *= share;
        }
        self.history.scale(share);
        self.loss.rows *= share;
        self.samples.retain(|sample| is_here(&sample.key));
        self.sampled *= share;
        for window in &mut self.windows {
            window.keys.retain(|key| is_here(key));
            window.weight *= share;
        }
        self.recent.retain(|key| is_here(key));
        self.next_recent = 0;
        // The size of each part in the last hours is unknown. This is harmless, because a range
        // younger than an hour is not merged.
        self.peaks = [0; 2];
        self.distinct = [Distinct::default(), Distinct::default()];
        for sample in &self.samples {
            self.distinct[0].add(partition_hash(partition(&sample.key)));
        }
        self.inherited = [(partitions * share).max(self.distinct[0].count()), 0.0];
    }

    /// Returns the number of partitions accessed in the current or the previous generation.
    fn partitions(&self) -> f64 {
        let mut both = self.distinct[0].clone();
        both.join(&self.distinct[1]);
        both.count().max(self.inherited[0]).max(self.inherited[1])
    }

    fn averages(&mut self) -> [&mut Average; 4] {
        [&mut self.reads, &mut self.writes, &mut self.ascending, &mut self.descending]
    }

    /// Decays all values up to `now`. Does nothing if `now` is not after the current step.
    fn advance(&mut self, now: f64) {
        let step = step_at(now);
        if step <= self.step {
            return;
        }
        let steps = step - self.step;
        self.step = step;
        let fade = fade(steps);
        for average in self.averages() {
            average.advance(fade);
        }
        let minute = step / STEPS_PER_MINUTE;
        let passed = minute.saturating_sub(self.history.minute).min(self.windows.len() as u64);
        self.windows.rotate_right(passed as usize);
        self.windows[..passed as usize].fill_with(Window::default);
        self.history.advance(minute);
        self.heaviest.scale(fade);
        self.sampled *= fade;
        let generation = generation_at(now);
        if generation > self.generation {
            let ended = std::mem::take(&mut self.distinct[0]);
            let inherited = std::mem::take(&mut self.inherited[0]);
            let is_next = generation == self.generation + 1;
            self.distinct[1] = if is_next { ended } else { Distinct::default() };
            self.inherited[1] = if is_next { inherited } else { 0.0 };
            self.generation = generation;
        }
        let hour = hour_at(now);
        if hour > self.hour {
            self.peaks = [0, if hour == self.hour + 1 { self.peaks[0] } else { 0 }];
            self.hour = hour;
        }
    }

    /// Classifies a written key relative to the recently written ones.
    fn direction(&mut self, key: &[u8]) -> Access {
        debug_assert!(self.recent.len() <= RECENT_WRITES, "few recent keys are kept");
        let is_known = self.recent.len() == RECENT_WRITES;
        let access = if is_known && self.recent.iter().all(|other| key > &**other) {
            Access::Ascending
        } else if is_known && self.recent.iter().all(|other| key < &**other) {
            Access::Descending
        } else {
            Access::Write
        };
        if !is_known {
            self.recent.push(key.into());
        } else if let Some(slot) = self.recent.get_mut(self.next_recent) {
            *slot = key.into();
            self.next_recent = (self.next_recent + 1) % RECENT_WRITES;
        }
        access
    }

    /// Records a key. Counts its partition, and adds the key to the sample with a probability that
    /// gives each unit of decayed weight the same chance. Does the same for the sample of the
    /// current minute.
    fn record(&mut self, key: &[u8], access: Access, weight: f64) {
        self.history.now += weight;
        let partition = partition(key);
        let hash = partition_hash(partition);
        self.distinct[0].add(hash);
        self.heaviest.add(partition, hash, weight);
        self.sampled += weight;
        let sample = || Sample { key: key.into(), access };
        let share = weight / self.sampled;
        add_sample(&mut self.samples, SAMPLES, share, &mut self.rng, sample);
        let [window, ..] = &mut self.windows;
        window.weight += weight;
        let share = weight / window.weight;
        add_sample(&mut window.keys, WINDOW_KEYS, share, &mut self.window_rng, || key.into());
    }
}

impl LoadSummary {
    /// Returns the sum of reads and writes per second.
    pub(crate) fn ops(&self) -> f64 {
        self.reads + self.writes
    }
}

impl Average {
    /// Ends the current step, and skips the steps without operations after it.
    fn advance(&mut self, fade: f64) {
        self.faded = self.faded * fade + self.now / STEP_SECONDS * (1.0 - FADE) * (fade / FADE);
        self.now = 0.0;
    }

    fn rate(&self) -> f64 {
        self.faded
    }
}

impl History {
    fn advance(&mut self, minute: u64) {
        if minute <= self.minute {
            return;
        }
        let passed = usize::try_from(minute - self.minute).unwrap_or(usize::MAX);
        let passed = passed.min(HISTORY_MINUTES);
        self.minutes.rotate_right(passed);
        self.minutes[..passed].fill(0.0);
        // If there were minutes without operations, the minute that ends now is further back in the
        // list.
        let ended = (minute - self.minute - 1) as usize;
        if ended < HISTORY_MINUTES {
            self.minutes[ended] = (self.now / 60.0) as f32;
        }
        self.now = 0.0;
        self.minute = minute;
    }

    /// Returns the rates of the full minutes, newest first.
    fn rates(&self) -> impl Iterator<Item = f64> {
        self.minutes.iter().map(|rate| f64::from(*rate))
    }

    fn scale(&mut self, share: f64) {
        self.now *= share;
        self.minutes.iter_mut().for_each(|rate| *rate *= share as f32);
    }

    fn join(&mut self, other: &History) {
        self.now += other.now;
        for (own, other) in self.minutes.iter_mut().zip(other.minutes) {
            *own += other;
        }
    }
}

/// Adds an item to a sample of at most `max` items. The probability is chosen so that each unit of
/// weight has the same chance to be in the sample. `share` is the weight of the item divided by the
/// weight of all items so far.
fn add_sample<T>(
    samples: &mut Vec<T>,
    max: usize,
    share: f64,
    rng: &mut Rng,
    item: impl FnOnce() -> T,
) {
    if samples.len() < max {
        return samples.push(item());
    }
    // 53 bits of the random number make a fraction that is exact on every machine.
    let chance = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    if chance < max as f64 * share {
        let at = rng.index(max);
        samples[at] = item();
    }
}

/// Combines two samples into one of at most `max` items. `share` is the fraction of the result that
/// comes from the first sample.
fn join_samples<T>(own: &mut Vec<T>, other: Vec<T>, max: usize, share: f64) {
    let room = max.min(own.len() + other.len());
    own.truncate((room as f64 * share).round() as usize);
    let theirs = room - own.len();
    own.extend(other.into_iter().take(theirs));
    debug_assert!(own.len() <= max, "samples are few");
}

/// Returns the part of `key` that all keys of its partition begin with, or the whole key if it is
/// not valid.
pub(super) fn partition(key: &[u8]) -> &[u8] {
    partition_of(key).unwrap_or(key)
}

fn step_at(now: f64) -> u64 {
    // The conversion saturates, so a time before the start of the clock becomes the start.
    (now / STEP_SECONDS) as u64
}

fn hour_at(now: f64) -> u64 {
    (now / (HISTORY_MINUTES as f64 * 60.0)) as u64
}

fn generation_at(now: f64) -> u64 {
    (now / GENERATION_SECONDS) as u64
}

/// Returns [`FADE`] to the power of `steps`, by multiplications only.
fn fade(steps: u64) -> f64 {
    if steps > FADED_STEPS {
        return 0.0;
    }
    let (mut rest, mut square, mut fade) = (steps, FADE, 1.0);
    while rest > 0 {
        if rest % 2 == 1 {
            fade *= square;
        }
        square *= square;
        rest /= 2;
    }
    fade
}

#[cfg(test)]
mod tests;

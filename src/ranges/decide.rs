//! Which ranges should be divided, where, and which should be joined: pure functions of sizes, loads and ages.
//!
//! A hosted service splits ranges to move partitions to other servers. In one process a range buys smaller merges, delay
//! that does not spread to its neighbours, and insight. So ranges are cut by size first of all; by load only where a
//! service would do it and the cut helps; and they are joined late, for a range too many costs some hundred bytes.
//!
//! Invariants
//! * a split by load needs a cut that leaves each side [`DIVIDES_SHARE`] of the load to come: appending (prepending)
//!   load is taken to come at the upper (lower) end, and one partition is never cut for its load;
//! * nothing is decided about a load that has not lasted, nor about a range that is younger than that;
//! * hysteresis: two ranges are joined only if together they are below what is divided by a factor of four in bytes and of
//!   eight in load, and have been so for an hour.
//!
//! Not here: carrying it out (`lsm::range_split`), statistics (`load`).

use crate::format::names::{RangeId, TableId};

use super::load::{Access, HISTORY_MINUTES, LoadSummary, Sample, partition};

/// A range of this many full files is divided: a merge through the whole of it stays a matter of seconds.
const SPLIT_RUN_FILES: u64 = 16;
/// Two ranges are joined if together they are this part of what is divided.
const MERGE_PART: u64 = 4;
/// Operations a second from which a load is divided: what the service promises for one partition, so that the map is
/// the one that an application would meet there.
const SPLIT_OPS: f64 = 2_000.0;
/// Two ranges are joined if together they have this part of it.
const MERGE_OPS_PART: f64 = 8.0;
/// Below this a load is not divided: a flush cuts its files at range boundaries from 1 MB on, so smaller parts would
/// share their files all the same.
const LOAD_SPLIT_BYTES_MIN: u64 = 4 << 20;
/// A load must have lasted for so many minutes, as the service waits five to ten.
const HOT_MINUTES: usize = 5;
/// And in none of them fall below this part of the threshold: a burst of seconds is none.
const HOT_PART: f64 = 0.5;
/// Ranges must have been cold for so many minutes before they are joined.
const COLD_MINUTES: usize = HISTORY_MINUTES;
/// What the smaller side of a divided load must have: with less, the larger side is as hot as before.
pub(crate) const DIVIDES_SHARE: f64 = 0.25;
/// Fewer sampled keys say nothing about shares: the standard error would be above 9 %.
const SAMPLES_MIN: usize = 32;
/// From this share of all operations on, one partition is the load.
pub(crate) const ONE_PARTITION_SHARE: f64 = 0.75;
/// From this share of writes on, inserts are called ascending (descending). By chance it is 1 in 16.
pub(crate) const DIRECTED_SHARE: f64 = 0.5;
/// Where a range that grows at its end is cut: the lower part comes to rest nearly full.
const ASCENDING_CUT: f64 = 0.875;
/// A boundary between partitions is taken if it leaves each side this part of the bytes; else the cut goes
/// through a partition.
const SIZE_SHARE_MIN: f64 = 0.2;
/// Caps: a map is read whole, and an edit is written for each split.
const TABLE_RANGES_MAX: usize = 1_024;
/// Beyond the first range of each table.
const DATABASE_SPLITS_MAX: usize = 8_192;
/// One in two seconds: 16 GB of new data in a minute at the default size.
const SPLITS_PER_MINUTE: usize = 30;

/// The thresholds in use.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limits {
    pub(crate) split_bytes: u64,
    pub(crate) merge_bytes: u64,
    pub(crate) split_ops: f64,
    pub(crate) merge_ops: f64,
    pub(crate) load_split_bytes_min: u64,
    pub(crate) hot_minutes: usize,
    pub(crate) cold_minutes: usize,
    pub(crate) table_ranges_max: usize,
    pub(crate) database_splits_max: usize,
    pub(crate) splits_per_minute: usize,
}

/// A range as decisions see it.
#[derive(Clone, Debug)]
pub(crate) struct RangeState {
    pub(crate) id: RangeId,
    pub(crate) table: TableId,
    /// Of all its references, clipped as well as is known without reading.
    pub(crate) bytes: u64,
    pub(crate) load: LoadSummary,
    /// Seconds since it was split or joined, created, or the database was opened.
    pub(crate) age: f64,
}

/// What the caps look at, besides the map itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Ranges of the whole database beyond the first of each table.
    pub(crate) database_splits: usize,
    /// Splits in the last minute.
    pub(crate) splits_last_minute: usize,
}

/// A key that a range may be cut at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) key: Box<[u8]>,
    /// About how many bytes of the range are below it.
    pub(crate) below: u64,
}

/// What kind of load a range has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LoadShape {
    /// Too few operations to say.
    Unknown,
    /// Inserts come above all others, so that the last range takes them all: no cut helps.
    Ascending,
    /// Below all others.
    Descending,
    /// One partition is the load.
    OnePartition,
    /// Cut here, the lower side has this share.
    Divides { at: Box<[u8]>, lower_share: f64 },
    /// No cut leaves both sides enough.
    Uneven,
}

impl Limits {
    /// The limits of a database whose full files have this size.
    pub(crate) fn for_files(run_file_bytes: u64) -> Self {
        let split_bytes = run_file_bytes.saturating_mul(SPLIT_RUN_FILES);
        Self {
            split_bytes,
            merge_bytes: split_bytes / MERGE_PART,
            split_ops: SPLIT_OPS,
            merge_ops: SPLIT_OPS / MERGE_OPS_PART,
            load_split_bytes_min: LOAD_SPLIT_BYTES_MIN.min(split_bytes / MERGE_PART),
            hot_minutes: HOT_MINUTES,
            cold_minutes: COLD_MINUTES,
            table_ranges_max: TABLE_RANGES_MAX,
            database_splits_max: DATABASE_SPLITS_MAX,
            splits_per_minute: SPLITS_PER_MINUTE,
        }
    }
}

/// True if the caps let a table with so many ranges have one more.
pub(crate) fn may_split(table_ranges: usize, pace: Pace, limits: &Limits) -> bool {
    table_ranges < limits.table_ranges_max
        && pace.database_splits < limits.database_splits_max
        && pace.splits_last_minute < limits.splits_per_minute
}

/// True if a range of so many bytes is to be divided.
pub(crate) fn is_too_large(bytes: u64, limits: &Limits) -> bool {
    bytes > limits.split_bytes
}

/// Where to cut a range of `bytes`, of whose inserts `ascending` come at the end: between two partitions if one such
/// place divides well enough, else at a key. `candidates` ascend and lie above the start of the range; `None` if there are none.
pub(crate) fn cut_by_size(
    candidates: &[Candidate],
    bytes: u64,
    ascending: f64,
) -> Option<Box<[u8]>> {
    let part = if ascending >= DIRECTED_SHARE { ASCENDING_CUT } else { 0.5 };
    let target = bytes as f64 * part;
    let distance = |candidate: &Candidate| (candidate.below as f64 - target).abs();
    let nearest = |a: &&Candidate, b: &&Candidate| distance(a).total_cmp(&distance(b));
    let least = bytes as f64 * SIZE_SHARE_MIN.min(1.0 - part);
    let divides = |candidate: &Candidate| {
        let below = candidate.below as f64;
        below >= least && bytes as f64 - below >= least
    };
    // A partition that begins after one candidate and not after the next begins between the two.
    let pairs =
        candidates.windows(2).filter(|pair| partition(&pair[0].key) != partition(&pair[1].key));
    let between = pairs.map(|pair| &pair[1]).filter(|candidate| divides(candidate)).min_by(nearest);
    match between {
        Some(candidate) => Some(partition(&candidate.key).into()),
        None => candidates.iter().min_by(nearest).map(|candidate| candidate.key.clone()),
    }
}

/// Where to cut a range for its load, if that has lasted and divides.
pub(crate) fn split_by_load(range: &RangeState, limits: &Limits) -> Option<Box<[u8]>> {
    let has_lasted = range.age >= limits.hot_minutes as f64 * 60.0 && is_hot(&range.load, limits);
    if !has_lasted || range.bytes < limits.load_split_bytes_min {
        return None;
    }
    match shape(&range.load) {
        LoadShape::Divides { at, .. } => Some(at),
        _ => None,
    }
}

/// True if two neighbours are small and have been cold for long.
pub(crate) fn should_merge(lower: &RangeState, upper: &RangeState, limits: &Limits) -> bool {
    let peak = |range: &RangeState| range.bytes.max(range.load.bytes_peak);
    let bytes = peak(lower).saturating_add(peak(upper));
    let age = lower.age.min(upper.age);
    lower.table == upper.table
        && bytes <= limits.merge_bytes
        && age >= limits.cold_minutes as f64 * 60.0
        && lower.load.ops() + upper.load.ops() < limits.merge_ops
        && are_cold(&lower.load.minutes, &upper.load.minutes, limits)
}

/// What kind of load it is.
pub(crate) fn shape(load: &LoadSummary) -> LoadShape {
    let is = |access: Access| load.samples.iter().filter(|s| s.access == access).count();
    let (all, ascending, descending) =
        (load.samples.len(), is(Access::Ascending), is(Access::Descending));
    if all < SAMPLES_MIN {
        return LoadShape::Unknown;
    }
    if load.heaviest.first().is_some_and(|(_, share)| *share >= ONE_PARTITION_SHARE) {
        return LoadShape::OnePartition;
    }
    if let Some((at, lower_share)) = best_cut(&load.samples) {
        return LoadShape::Divides { at, lower_share };
    }
    let directed = |count: usize| count as f64 >= DIRECTED_SHARE * all as f64;
    if directed(ascending) {
        LoadShape::Ascending
    } else if directed(descending) {
        LoadShape::Descending
    } else {
        LoadShape::Uneven
    }
}

/// The start of the partition at which the samples, sorted by key, divide best, with the lower side's share.
fn best_cut(samples: &[Sample]) -> Option<(Box<[u8]>, f64)> {
    let all = samples.len() as f64;
    debug_assert!(samples.is_sorted_by(|a, b| a.key <= b.key), "samples are in order of keys");
    // Ascending inserts will come above any cut, descending ones below it.
    let mut lower = samples.iter().filter(|s| s.access == Access::Descending).count();
    let mut best: Option<(&Sample, f64)> = None;
    for pair in samples.windows(2) {
        let [below, above] = pair else { continue };
        lower += usize::from(matches!(below.access, Access::Read | Access::Write));
        let share = lower as f64 / all;
        let is_better = |best: f64| (share - 0.5).abs() < (best - 0.5).abs();
        if partition(&below.key) != partition(&above.key) && best.is_none_or(|b| is_better(b.1)) {
            best = Some((above, share));
        }
    }
    let (above, share) = best?;
    let divides = share.min(1.0 - share) >= DIVIDES_SHARE;
    divides.then(|| (partition(&above.key).into(), share))
}

/// True if the last minutes were hot, all of them.
fn is_hot(load: &LoadSummary, limits: &Limits) -> bool {
    let Some(minutes) = load.minutes.get(..limits.hot_minutes) else { return false };
    let mean = minutes.iter().sum::<f64>() / minutes.len().max(1) as f64;
    let lowest = limits.split_ops * HOT_PART;
    mean >= limits.split_ops && minutes.iter().all(|rate| *rate >= lowest)
}

/// True if two ranges were cold in each of the last minutes, taken together.
fn are_cold(lower: &[f64], upper: &[f64], limits: &Limits) -> bool {
    let rate = |minutes: &[f64], at: usize| minutes.get(at).copied().unwrap_or(0.0);
    (0..limits.cold_minutes).all(|at| rate(lower, at) + rate(upper, at) < limits.merge_ops)
}

#[cfg(test)]
mod tests;

//! Decides which ranges to split, where, and which neighbours to merge: pure functions of the
//! statistics that `load` collects. `lsm::range_split` applies the decisions. Ranges are split
//! mainly by size; by load only where Azure Table storage would split, too, and a split helps.
//!
//! Invariants
//! * a split by load leaves each side [`DIVIDES_SHARE`] of the expected load, and [`LASTING_SHARE`]
//!   of the load of each of the last minutes. A single partition is never cut for its load;
//! * a range is split by load only if both the load and the range have existed for minutes;
//! * two ranges are merged only if together they have at most a quarter of the bytes and less than
//!   an eighth of the load at which a range is split, both for a whole hour.

use crate::format::names::{RangeId, TableId};

use super::load::{Access, HISTORY_MINUTES, LoadSummary, WINDOWS, partition};

/// A range is split if it is larger than this number of full table files, so that merging the whole
/// range takes only seconds.
const SPLIT_RUN_FILES: u64 = 16;
/// Two ranges are merged if their combined size is at most the size at which a range is split,
/// divided by this number.
const MERGE_PART: u64 = 4;
/// The load from which a range is split, in operations per second. It is the scalability target of
/// Azure Table storage for one partition, so that rowstone splits where Azure Table storage might.
const SPLIT_OPS: f64 = 2_000.0;
/// Two ranges are merged if their combined load is below the load at which a range is split,
/// divided by this number.
const MERGE_OPS_PART: f64 = 8.0;
/// The minimum size of a range that is split by load, in bytes. It is well above 1 MiB: at a range
/// boundary, a flush starts a new file only if the current file has at least 1 MiB, so the flushed
/// rows of small ranges would still share files.
const LOAD_SPLIT_BYTES_MIN: u64 = 4 << 20;
/// The number of minutes that a load must last before a split. Azure Table storage waits five to
/// ten minutes.
const HOT_MINUTES: usize = WINDOWS;
/// The minimum load in each of the [`HOT_MINUTES`], as a fraction of the load at which a range is
/// split. It prevents splits because of a burst of a few seconds.
const HOT_PART: f64 = 0.5;
/// The number of minutes that ranges must be cold (small and with little load) before they are
/// merged.
const COLD_MINUTES: usize = HISTORY_MINUTES;
/// The minimum share of the load on the smaller side of a cut. With less, the larger side would be
/// nearly as hot as the whole range.
pub(crate) const DIVIDES_SHARE: f64 = 0.25;
/// The minimum share of the load on each side of a cut, in each of the last minutes. If 16 keys are
/// sampled in a minute, each side must have two of them. A side with [`DIVIDES_SHARE`] of the load
/// has at least two sampled keys in 94 % of the minutes.
const LASTING_SHARE: f64 = 0.1;
/// The minimum number of sampled keys from which the load on each side of a cut is estimated. With
/// fewer, the standard error of a side's share exceeds 9 %.
const SAMPLES_MIN: usize = 32;
/// A partition with at least this share of all operations is treated as if it had the whole load.
pub(crate) const ONE_PARTITION_SHARE: f64 = 0.75;
/// The minimum share of ascending (descending) inserts for which a load is considered ascending
/// (descending). Of writes in random order, 1 in 16 counts as ascending.
pub(crate) const DIRECTED_SHARE: f64 = 0.5;
/// The share of the bytes to leave below the cut of a range with ascending inserts. The lower part
/// will not grow any more, so it should be nearly full.
const ASCENDING_CUT: f64 = 0.875;
/// The minimum share of the bytes on each side of a cut between two partitions; 1 -
/// [`ASCENDING_CUT`] with ascending inserts. If no partition boundary leaves that much, the cut is
/// inside a partition.
const SIZE_SHARE_MIN: f64 = 0.2;
/// The maximum number of ranges of a table. The list of a table's ranges is often read as a whole,
/// and each split appends an edit to the manifest.
const TABLE_RANGES_MAX: usize = 1_024;
/// The maximum number of ranges of a database, not counting the first range of each table.
const DATABASE_SPLITS_MAX: usize = 8_192;
/// The maximum number of splits per minute. At the default size of ranges this is enough for 16 GB
/// of new data per minute.
const SPLITS_PER_MINUTE: usize = 30;

/// The thresholds for decisions.
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

/// The state of a range on which decisions depend.
#[derive(Clone, Debug)]
pub(crate) struct RangeState {
    pub(crate) id: RangeId,
    pub(crate) table: TableId,
    /// The bytes of all files of the range, counting only the keys in its part (*clip*) of each
    /// file. Estimated without reading files.
    pub(crate) bytes: u64,
    pub(crate) load: LoadSummary,
    /// Seconds since the range was split, merged or created, or since the database was opened.
    pub(crate) age: f64,
}

/// The counts that limit the number of splits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    /// The number of ranges of the whole database, not counting the first range of each table.
    pub(crate) database_splits: usize,
    /// The number of splits in the last minute.
    pub(crate) splits_last_minute: usize,
}

/// A key at which a range may be cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) key: Box<[u8]>,
    /// The approximate bytes of the range below the key.
    pub(crate) below: u64,
}

/// The pattern of a range's load.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LoadShape {
    /// There are too few operations to classify the load.
    Unknown,
    /// Inserts are above all other keys. After any cut, the upper range would receive all inserts,
    /// and all reads of new rows, so no cut helps.
    Ascending,
    /// Inserts are below all other keys.
    Descending,
    /// One partition has at least [`ONE_PARTITION_SHARE`] of the load.
    OnePartition,
    /// A cut at the key `at` divides the load: the share `lower_share` is on the lower side.
    Divides { at: Box<[u8]>, lower_share: f64 },
    /// No cut leaves enough load on both sides.
    Uneven,
}

impl Limits {
    /// Returns the limits for a database whose full table files have `run_file_bytes` bytes.
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

/// True if the limits allow one more range in a table with `table_ranges` ranges.
pub(crate) fn may_split(table_ranges: usize, pace: Pace, limits: &Limits) -> bool {
    table_ranges < limits.table_ranges_max
        && pace.database_splits < limits.database_splits_max
        && pace.splits_last_minute < limits.splits_per_minute
}

/// True if a range of this size must be split.
pub(crate) fn is_too_large(bytes: u64, limits: &Limits) -> bool {
    bytes > limits.split_bytes
}

/// Returns the key at which to cut a range of `bytes` because of its size, or `None` without
/// candidates. `ascending` is the share of writes above all recently written keys. The cut is
/// between two partitions if that divides the range well enough, otherwise inside a partition.
/// `candidates` must ascend and be above the start of the range.
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
    // If two adjacent candidates are in different partitions, a partition boundary is between them.
    let pairs =
        candidates.windows(2).filter(|pair| partition(&pair[0].key) != partition(&pair[1].key));
    match pairs.map(|pair| &pair[1]).filter(|candidate| divides(candidate)).min_by(nearest) {
        Some(candidate) => Some(partition(&candidate.key).into()),
        None => candidates.iter().min_by(nearest).map(|candidate| candidate.key.clone()),
    }
}

/// Returns the key at which to cut a range because of its load, if the load has lasted and can be
/// divided.
pub(crate) fn split_by_load(range: &RangeState, limits: &Limits) -> Option<Box<[u8]>> {
    let has_lasted = range.age >= limits.hot_minutes as f64 * 60.0 && is_hot(&range.load, limits);
    if !has_lasted || range.bytes < limits.load_split_bytes_min {
        return None;
    }
    match shape_in(&range.load, limits.hot_minutes) {
        LoadShape::Divides { at, .. } => Some(at),
        _ => None,
    }
}

/// True if two neighbours are small and have been cold long enough to be merged.
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

/// Classifies a load.
pub(crate) fn shape(load: &LoadSummary) -> LoadShape {
    shape_in(load, HOT_MINUTES)
}

/// Classifies a load. The result is `Divides` only if the cut would also have divided the load of
/// each of the last `minutes`, as far as these were recorded.
fn shape_in(load: &LoadSummary, minutes: usize) -> LoadShape {
    let is = |access: Access| load.samples.iter().filter(|s| s.access == access).count();
    let (all, ascending, descending) =
        (load.samples.len(), is(Access::Ascending), is(Access::Descending));
    if all < SAMPLES_MIN {
        return LoadShape::Unknown;
    }
    if load.heaviest.first().is_some_and(|(_, share)| *share >= ONE_PARTITION_SHARE) {
        return LoadShape::OnePartition;
    }
    if let Some((at, lower_share)) = best_cut(load, minutes) {
        return LoadShape::Divides { at, lower_share };
    }
    // If new rows are inserted in order and read, the reads move along with the inserts. Then some
    // cut divides the load now, but did not divide it in each of the last minutes.
    let moves = best_cut(load, 0).is_some();
    let directed = |count: usize, share: f64| {
        count as f64 >= DIRECTED_SHARE * all as f64 || moves && share >= DIRECTED_SHARE
    };
    if directed(ascending, load.ascending) {
        LoadShape::Ascending
    } else if directed(descending, load.descending) {
        LoadShape::Descending
    } else {
        LoadShape::Uneven
    }
}

/// Returns the cut that divides the sampled load best, and the share of the load below it. The cut
/// is at the start of a partition. It must also divide the load in each of the last `minutes`.
fn best_cut(load: &LoadSummary, minutes: usize) -> Option<(Box<[u8]>, f64)> {
    let samples = &load.samples;
    let all = samples.len() as f64;
    debug_assert!(samples.is_sorted_by(|a, b| a.key <= b.key), "samples are in order of keys");
    // Future ascending inserts will be above any cut. So the sampled ascending inserts count above
    // every cut, and the descending ones below.
    let mut lower = samples.iter().filter(|s| s.access == Access::Descending).count();
    let mut best: Option<(&[u8], f64)> = None;
    for pair in samples.windows(2) {
        let [below, above] = pair else { continue };
        lower += usize::from(matches!(below.access, Access::Read | Access::Write));
        let share = lower as f64 / all;
        let is_better = |best: f64| (share - 0.5).abs() < (best - 0.5).abs();
        let at = partition(&above.key);
        if partition(&below.key) != at
            && best.is_none_or(|best| is_better(best.1))
            && has_lasted(load, at, minutes)
        {
            best = Some((at, share));
        }
    }
    let (at, share) = best?;
    let divides = share.min(1.0 - share) >= DIVIDES_SHARE;
    divides.then(|| (at.into(), share))
}

/// True if, in each of the last `minutes` that were recorded, each side of a cut at the key `at`
/// had at least [`LASTING_SHARE`] of the load.
fn has_lasted(load: &LoadSummary, at: &[u8], minutes: usize) -> bool {
    load.windows.iter().take(minutes).all(|keys| {
        let (all, below) = (keys.len(), keys.partition_point(|key| **key < *at));
        below.min(all - below) as f64 >= LASTING_SHARE * all as f64
    })
}

/// True if the load was high enough for a split in each of the last minutes.
fn is_hot(load: &LoadSummary, limits: &Limits) -> bool {
    let Some(minutes) = load.minutes.get(..limits.hot_minutes) else { return false };
    let mean = minutes.iter().sum::<f64>() / minutes.len().max(1) as f64;
    let lowest = limits.split_ops * HOT_PART;
    mean >= limits.split_ops && minutes.iter().all(|rate| *rate >= lowest)
}

/// True if the two loads together were low enough for a merge in each of the last minutes.
fn are_cold(lower: &[f64], upper: &[f64], limits: &Limits) -> bool {
    let rate = |minutes: &[f64], at: usize| minutes.get(at).copied().unwrap_or(0.0);
    (0..limits.cold_minutes).all(|at| rate(lower, at) + rate(upper, at) < limits.merge_ops)
}

#[cfg(test)]
mod tests;

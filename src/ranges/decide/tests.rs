//! Tests each decision in isolation, at its thresholds.

mod load_traces;

use super::*;
use crate::format::key::user_key;
use crate::ranges::load::RangeLoad;

/// The next decision for a table. Only tests decide in this order; the engine calls the individual
/// functions.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Decision {
    /// Splits at the key that [`cut_by_size`] returns.
    SplitBySize {
        range: RangeId,
    },
    SplitByLoad {
        range: RangeId,
        at: Box<[u8]>,
    },
    /// Merges two neighbours.
    Merge {
        lower: RangeId,
        upper: RangeId,
    },
}

/// Returns the next decision for the ranges of one table, which are in key order: a split of the
/// largest range that is too large, or else a split of the hottest range with a divisible load, or
/// else a merge of the first two neighbours that should be merged.
pub(super) fn next(ranges: &[RangeState], pace: Pace, limits: &Limits) -> Option<Decision> {
    if may_split(ranges.len(), pace, limits) {
        let too_large = ranges.iter().filter(|range| is_too_large(range.bytes, limits));
        if let Some(range) = too_large.max_by_key(|range| range.bytes) {
            return Some(Decision::SplitBySize { range: range.id });
        }
        let hot = ranges.iter().filter_map(|range| Some((range, split_by_load(range, limits)?)));
        let hottest = hot.max_by(|a, b| a.0.load.ops().total_cmp(&b.0.load.ops()));
        if let Some((range, at)) = hottest {
            return Some(Decision::SplitByLoad { range: range.id, at });
        }
    }
    let mut pairs = ranges.windows(2).filter_map(|pair| <&[_; 2]>::try_from(pair).ok());
    let cold = pairs.find(|[lower, upper]| should_merge(lower, upper, limits));
    cold.map(|[lower, upper]| Decision::Merge { lower: lower.id, upper: upper.id })
}

const LIMITS: fn() -> Limits = || Limits::for_files(32 << 20);

fn key(pk: &str, rk: &str) -> Box<[u8]> {
    user_key(TableId(1), pk, rk).into()
}

fn state(id: u64, bytes: u64, load: LoadSummary) -> RangeState {
    RangeState { id: RangeId(id), table: TableId(1), bytes, load, age: 1e6 }
}

fn cold(id: u64, bytes: u64) -> RangeState {
    state(id, bytes, LoadSummary::default())
}

/// Returns the load after ten minutes of `per_second` operations per second. `of` returns the key
/// of the i-th operation, and whether it is a write.
fn hot(per_second: f64, of: impl Fn(u64) -> (Vec<u8>, bool)) -> LoadSummary {
    let mut load = RangeLoad::new(7, 0.0);
    for i in 0..6_000u64 {
        let (key, is_write) = of(i);
        let (weight, now) = (per_second / 10.0, i as f64 / 10.0);
        if is_write { load.write(&key, weight, now) } else { load.read(&key, weight, now) }
    }
    load.summary(600.0)
}

fn scattered(i: u64) -> (Vec<u8>, bool) {
    let pk = format!("p{:04}", (i * 7_919) % 1_000);
    (user_key(TableId(1), &pk, "r"), i.is_multiple_of(2))
}

fn appended(i: u64) -> (Vec<u8>, bool) {
    (user_key(TableId(1), &format!("{i:08}"), "r"), true)
}

#[test]
fn the_largest_range_is_cut_first_and_not_at_its_limit() {
    let limits = LIMITS();
    let sizes = |sizes: &[u64]| {
        let ranges: Vec<_> = (1..).zip(sizes).map(|(id, bytes)| cold(id, *bytes)).collect();
        next(&ranges, Pace::default(), &limits)
    };
    let split = |id: u64| Some(Decision::SplitBySize { range: RangeId(id) });
    let max = limits.split_bytes;
    assert_eq!(sizes(&[max, max]), None);
    assert_eq!(sizes(&[max + 1, max + 2, max]), split(2));
}

#[test]
fn limits_prevent_splits_but_not_merges() {
    let mut limits = LIMITS();
    limits.table_ranges_max = 3;
    let ranges = [cold(1, u64::MAX), cold(2, 0), cold(3, 0)];
    let merge = Decision::Merge { lower: RangeId(2), upper: RangeId(3) };
    assert_eq!(next(&ranges, Pace::default(), &limits), Some(merge));
    let pace = |database_splits, splits_last_minute| Pace { database_splits, splits_last_minute };
    assert!(may_split(2, pace(0, 0), &limits));
    assert!(!may_split(3, pace(0, 0), &limits));
    assert!(!may_split(2, pace(DATABASE_SPLITS_MAX, 0), &limits));
    assert!(!may_split(2, pace(0, SPLITS_PER_MINUTE), &limits));
}

fn candidates(keys: &[(&str, &str)]) -> Vec<Candidate> {
    let below = |i: usize| (i as u64 + 1) * 10;
    let keys = keys.iter().enumerate();
    keys.map(|(i, (pk, rk))| Candidate { key: key(pk, rk), below: below(i) }).collect()
}

#[track_caller]
fn check_cut(keys: &[(&str, &str)], ascending: f64, expected: Option<(&str, Option<&str>)>) {
    let bytes = keys.len() as u64 * 10 + 10;
    let expected = expected.map(|(pk, rk)| match rk {
        Some(rk) => key(pk, rk),
        None => key(pk, ""),
    });
    assert_eq!(cut_by_size(&candidates(keys), bytes, ascending), expected);
}

#[test]
fn a_size_cut_is_between_partitions_if_that_divides_the_range() {
    check_cut(&[("a", "1"), ("b", "1"), ("c", "1")], 0.0, Some(("b", None)));
    check_cut(
        &[("a", "1"), ("a", "2"), ("a", "3"), ("b", "4"), ("b", "5")],
        0.0,
        Some(("b", None)),
    );
    // A single partition larger than a range is cut by RowKey.
    check_cut(&[("a", "1"), ("a", "2"), ("a", "3")], 0.0, Some(("a", Some("2"))));
    // A partition boundary too far from the middle is not used; the partition is cut instead.
    let mut keys = vec![("a", "1")];
    let rows: Vec<String> = (0..20).map(|i| format!("{i:02}")).collect();
    keys.extend(rows.iter().map(|rk| ("b", rk.as_str())));
    check_cut(&keys, 0.0, Some(("b", Some("09"))));
    check_cut(&[], 0.0, None);
    check_cut(&[("a", "1")], 0.0, Some(("a", Some("1"))));
}

#[test]
fn ascending_data_is_cut_near_its_end() {
    let pks: Vec<String> = (0..15).map(|i| format!("{i:02}")).collect();
    let keys: Vec<_> = pks.iter().map(|pk| (pk.as_str(), "")).collect();
    check_cut(&keys, 0.9, Some(("13", None)));
    check_cut(&keys, 0.1, Some(("07", None)));
}

#[test]
fn a_scattered_load_divides_near_its_middle() {
    let LoadShape::Divides { at, lower_share } = shape(&hot(5_000.0, scattered)) else {
        panic!("the cut does not divide the load");
    };
    assert!((0.4..=0.6).contains(&lower_share));
    assert!(*at > *key("p0300", "") && *at < *key("p0700", ""));
    assert_eq!(partition(&at), &*at);
}

#[test]
fn loads_that_a_split_would_not_divide_are_recognized() {
    let descending = |i: u64| (user_key(TableId(1), &format!("{:08}", 99_999 - i), ""), true);
    let one = |i: u64| {
        (
            user_key(TableId(1), if i.is_multiple_of(10) { "b" } else { "hot" }, &i.to_string()),
            false,
        )
    };
    let few = |i: u64| (user_key(TableId(1), &format!("p{:03}", i % 5 / 4), "r"), false);
    assert_eq!(shape(&hot(5_000.0, appended)), LoadShape::Ascending);
    assert_eq!(shape(&hot(5_000.0, descending)), LoadShape::Descending);
    assert_eq!(shape(&hot(5_000.0, one)), LoadShape::OnePartition);
    assert_eq!(shape(&hot(5_000.0, few)), LoadShape::OnePartition);
    assert_eq!(shape(&LoadSummary::default()), LoadShape::Unknown);
    for load in [hot(5_000.0, appended), hot(5_000.0, descending), hot(5_000.0, one)] {
        assert_eq!(split_by_load(&state(1, 1 << 30, load), &LIMITS()), None);
    }
}

/// One client reads old rows and another appends rows. The cut is between the old and the appended
/// rows.
#[test]
fn an_appended_tail_is_separated_from_rows_that_are_read() {
    let tail = |i: u64| (user_key(TableId(1), &format!("q{i:08}"), "r"), true);
    let mixed = |i: u64| if i.is_multiple_of(2) { tail(i) } else { (scattered(i).0, false) };
    let LoadShape::Divides { lower_share, .. } = shape(&hot(5_000.0, mixed)) else {
        panic!("the cut does not divide the load");
    };
    assert!((0.35..=0.65).contains(&lower_share));
}

/// Rows are appended, and the last 150 of them are read. The range must not be cut, because soon
/// after a cut the whole load would be above it.
#[test]
fn appended_rows_that_are_read_while_new_are_not_cut() {
    for reads in [5, 7, 9] {
        let newest = |i: u64| match i % 10 < reads {
            true => (appended(1_000 + i - i * 7_919 % 150).0, false),
            false => appended(1_000 + i),
        };
        let load = hot(5_000.0, newest);
        assert_eq!(shape(&load), LoadShape::Ascending, "{reads} reads of 10");
        assert_eq!(split_by_load(&state(1, 1 << 30, load), &LIMITS()), None);
    }
}

#[test]
fn a_hot_range_is_split_only_if_the_load_lasted_and_the_range_is_large() {
    let limits = LIMITS();
    let range = state(1, 64 << 20, hot(2_500.0, scattered));
    let splits = |range: &RangeState| split_by_load(range, &limits).is_some();
    assert!(splits(&range));
    assert!(!splits(&RangeState { age: 299.0, ..range.clone() }));
    assert!(!splits(&RangeState { bytes: (4 << 20) - 1, ..range.clone() }));
    assert!(!splits(&state(1, 64 << 20, hot(1_900.0, scattered))));
    let mut burst = range.clone();
    burst.load.minutes[..5].copy_from_slice(&[1e6, 0.0, 1e6, 1e6, 1e6]);
    assert!(!splits(&burst));
}

#[test]
fn neighbours_are_merged_when_small_and_cold_for_an_hour() {
    let limits = LIMITS();
    let half = limits.merge_bytes / 2;
    let merges = |a: &RangeState, b: &RangeState| should_merge(a, b, &limits);
    assert!(merges(&cold(1, half), &cold(2, half)));
    assert!(!merges(&cold(1, half), &cold(2, half + 1)));
    assert!(!merges(&cold(1, 0), &RangeState { age: 3_599.0, ..cold(2, 0) }));
    assert!(!merges(&cold(1, 0), &RangeState { table: TableId(2), ..cold(2, 0) }));
    let mut shrunk = cold(2, 0);
    shrunk.load.bytes_peak = limits.merge_bytes + 1;
    assert!(!merges(&cold(1, 0), &shrunk));
    let mut warm = cold(2, 0);
    warm.load.minutes = vec![0.0; HISTORY_MINUTES];
    assert!(merges(&cold(1, 0), &warm));
    warm.load.minutes[HISTORY_MINUTES - 1] = limits.merge_ops;
    assert!(!merges(&cold(1, 0), &warm));
    warm.load.minutes.clear();
    warm.load.reads = limits.merge_ops;
    assert!(!merges(&cold(1, 0), &warm));
}

//! Compares rates with values computed by hand. Also tests the directions of writes, samples, and
//! splitting and joining loads.

use super::*;
use crate::format::key::user_key;
use crate::format::names::TableId;

fn key(pk: &str, rk: u64) -> Vec<u8> {
    user_key(TableId(1), pk, &format!("{rk:08}"))
}

fn load() -> RangeLoad {
    RangeLoad::new(1, 0.0)
}

/// Writes `per_second` keys in each of `seconds` seconds; `of` returns the i-th key.
fn write(
    load: &mut RangeLoad,
    from: u64,
    seconds: u64,
    per_second: u64,
    of: impl Fn(u64) -> Vec<u8>,
) {
    for i in 0..seconds * per_second {
        load.write(&of(i), 1.0, (from + i / per_second) as f64);
    }
}

#[test]
fn half_of_a_steady_rate_is_reached_in_a_half_life() {
    let mut load = load();
    write(&mut load, 0, 60, 100, |i| key("p", i));
    let half = load.summary(60.0).writes;
    assert!((half - 50.0).abs() < 0.5, "{half}");
    write(&mut load, 60, 600, 100, |i| key("p", i));
    let full = load.summary(660.0).writes;
    assert!((full - 100.0).abs() < 0.2, "{full}");
    let later = load.summary(660.0 + 2.0 * HALF_LIFE_SECONDS).writes;
    assert!((later - 25.0).abs() < 0.2, "{later}");
}

#[test]
fn a_sampled_operation_counts_with_its_weight() {
    let (mut one, mut many) = (load(), load());
    for second in 0..300 {
        (0..50).for_each(|_| one.read(&key("p", 1), 1.0, f64::from(second)));
        many.read(&key("p", 1), 50.0, f64::from(second));
    }
    let (one, many) = (one.summary(300.0), many.summary(300.0));
    assert!((one.reads - many.reads).abs() < 1e-6);
    assert_eq!(one.minutes, many.minutes);
    assert_eq!(one.minutes[..6], [50.0, 50.0, 50.0, 50.0, 50.0, 0.0]);
}

#[test]
fn minutes_without_load_are_recorded_as_zero() {
    let mut load = load();
    write(&mut load, 0, 60, 10, |i| key("p", i));
    write(&mut load, 180, 60, 20, |i| key("p", i));
    let minutes = load.summary(300.0).minutes;
    assert_eq!(minutes[..6], [0.0, 20.0, 0.0, 0.0, 10.0, 0.0]);
    assert!(load.summary(10_000.0).minutes.iter().all(|rate| *rate == 0.0));
}

#[test]
fn ascending_and_descending_load_differ_from_random_load() {
    let shares = |of: fn(u64) -> Vec<u8>| {
        let mut load = load();
        write(&mut load, 0, 300, 20, of);
        let summary = load.summary(300.0);
        (summary.ascending, summary.descending)
    };
    let scattered = |i: u64| key("p", i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40);
    let (up, down) = shares(scattered);
    assert!((0.03..0.1).contains(&up) && (0.03..0.1).contains(&down), "{up} {down}");
    assert!(shares(|i| key("p", i)).0 > 0.99);
    assert!(shares(|i| key("p", 99_999_999 - i)).1 > 0.99);
    // Adjacent keys are swapped, as when several threads write ascending keys.
    assert!(shares(|i| key("p", i ^ 1)).0 > 0.45);
    // The keys of each of a thousand devices ascend, but the load as a whole does not.
    assert!(shares(|i| key(&format!("device{:03}", i * 617 % 1_000), i)).0 < 0.1);
}

#[test]
fn a_clock_that_stops_or_runs_backwards_changes_nothing() {
    let mut load = load();
    write(&mut load, 100, 60, 10, |i| key("p", i));
    let before = load.summary(160.0);
    load.advance(3.0);
    let after = load.summary(160.0);
    assert_eq!((before.writes, before.minutes), (after.writes, after.minutes));
}

/// The sample follows the load within minutes, and each operation of these minutes has the same
/// chance to be in it.
#[test]
fn the_sample_reflects_the_load_of_the_last_minutes() {
    let mut load = load();
    write(&mut load, 0, 600, 50, |i| key("old", i));
    write(&mut load, 600, 600, 50, |i| key(if i % 4 == 0 { "a" } else { "b" }, i));
    let summary = load.summary(1_200.0);
    let of = |pk: &str| {
        let start = key(pk, 0);
        let is = |s: &&Sample| partition(&s.key) == partition(&start);
        summary.samples.iter().filter(is).count()
    };
    assert_eq!(summary.samples.len(), SAMPLES);
    assert!(of("old") <= 1, "{}", of("old"));
    assert!((6..=27).contains(&of("a")), "{}", of("a"));
}

#[test]
fn distinct_partitions_are_those_of_the_last_generations() {
    let mut load = load();
    write(&mut load, 0, 100, 10, |i| key(&format!("{i}"), 0));
    let at = |load: &RangeLoad, now: f64| load.summary(now).distinct;
    assert!((at(&load, 100.0) / 1_000.0 - 1.0).abs() < 0.15);
    assert!(at(&load, 700.0) > 500.0);
    assert!(at(&load, 1_300.0) < 1.0);
}

#[test]
fn a_split_divides_the_load_by_its_sample_and_a_join_adds_it() {
    let mut load = load();
    for i in 0..6_000u64 {
        let pk = format!("p{:03}", i * 617 % 400);
        load.write(&key(&pk, i), 1.0, i as f64 / 20.0);
    }
    let whole = load.summary(300.0);
    let at = key("p100", 0);
    let (left, right) = load.split(partition(&at), 300.0);
    let (l, r) = (left.summary(300.0), right.summary(300.0));
    let share = l.writes / whole.writes;
    assert!((0.1..0.4).contains(&share), "{share}");
    assert!((l.writes + r.writes - whole.writes).abs() < 1e-6);
    assert!(l.samples.iter().all(|s| *s.key < *partition(&at)) && !l.samples.is_empty());
    assert!(r.samples.iter().all(|s| *s.key >= *partition(&at)) && !r.samples.is_empty());
    assert!((l.distinct + r.distinct - whole.distinct).abs() < 0.02 * whole.distinct);

    let joined = left.join(right, 300.0).summary(300.0);
    assert!((joined.writes - whole.writes).abs() < 1e-6);
    assert!((joined.minutes[0] - whole.minutes[0]).abs() < 1e-3);
    assert_eq!(joined.samples, whole.samples);
    assert!((joined.heaviest[0].1 - whole.heaviest[0].1).abs() < 0.05);
}

#[test]
fn equal_calls_give_equal_loads() {
    let run = || {
        let mut load = load();
        write(&mut load, 0, 200, 30, |i| key(&format!("{}", i % 77), i));
        let (left, right) = load.split(&key("4", 0), 200.0);
        format!("{:?}", right.join(left, 210.0).summary(220.0))
    };
    assert_eq!(run(), run());
}

#[test]
fn a_load_that_has_faded_is_idle() {
    let mut load = load();
    write(&mut load, 0, 10, 100, |i| key("p", i));
    assert!(!load.is_idle(100.0));
    assert!(!load.is_idle(1_800.0));
    assert!(load.is_idle(3_700.0));
}

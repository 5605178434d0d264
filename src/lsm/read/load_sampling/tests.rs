//! Tests that sampling neither loses an operation nor counts it twice at any rate, and that a
//! program which cycles through its keys is sampled evenly.

use super::*;

/// Counts `ops` operations at `per_second`. Returns their total weight and the number of samples.
fn count(
    loads: &LoadSampling,
    ops: u64,
    per_second: f64,
    mut with: impl FnMut(u64, f64),
) -> (f64, u64) {
    let (mut counted, mut samples) = (0.0, 0);
    for i in 0..ops {
        if let Some(due) = loads.take(1) {
            let now = i as f64 / per_second;
            let counter = &loads.counters[due.slot].0;
            let weight = loads.sampled.lock().set_counter(&due, now, counter);
            with(i, weight);
            counted += weight;
            samples += 1;
        }
    }
    (counted, samples)
}

fn loads() -> LoadSampling {
    LoadSampling::new(Background::Manual, 0.0)
}

/// The price of a flush that no reads pay.
const IN_MEMORY: Option<f64> = Some(f64::INFINITY);

/// Returns the state of memory at second `now` if something is written every second.
fn written(now: u64) -> Memory {
    Memory { newest: Seq(now + 1), price: f64::INFINITY }
}

#[test]
fn every_operation_is_counted_once_and_few_are_sampled() {
    for (per_second, samples_max) in [(5.0, 100_000), (2e3, 80_000), (5e6, 200)] {
        let (counted, samples) = count(&loads(), 100_000, per_second, |_, _| {});
        assert!((100_000.0 - 2.0 * GAP_MAX..=100_000.0).contains(&counted), "{counted}");
        assert!(samples <= samples_max, "{samples} at {per_second}");
    }
}

#[test]
fn a_slow_load_after_a_fast_one_is_sampled_in_full() {
    let loads = loads();
    count(&loads, 1_000_000, 1e7, |_, _| {});
    let (_, samples) = count(&loads, 3_000, 1.0, |_, _| {});
    assert!(samples > 900, "{samples}");
}

#[test]
fn keys_read_in_a_cycle_are_sampled_equally() {
    let mut weights = [0.0; 64];
    count(&loads(), 4_000_000, 1e7, |i, weight| weights[(i % 64) as usize] += weight);
    let mean = 4_000_000.0 / 64.0;
    assert!(weights.iter().all(|weight| (0.3..2.0).contains(&(weight / mean))), "{weights:?}");
}

#[test]
fn nothing_is_counted_while_sampling_is_off() {
    let loads = loads();
    loads.switch(false);
    assert_eq!(count(&loads, 1_000, 1.0, |_, _| {}).1, 0);
}

#[test]
fn loads_follow_splits_and_merges_of_ranges() {
    let loads = loads();
    let due = || Due { slot: 0, over: 0 };
    let key = |i: u64| crate::format::key::user_key(Default::default(), &format!("{i:03}"), "");
    for i in 0..600 {
        let place = Place { range: RangeId(1), over: 0.0, price: f64::INFINITY, is_long: false };
        loads.sample(&due(), Some(&place), &written(i), &key(i % 100), Operation::Get, i as f64);
    }
    let reads = |id: u64| {
        let sampled = loads.sampled.lock();
        sampled.ranges.get(&RangeId(id)).map(|load| load.summary(600.0).reads)
    };
    let whole = reads(1).unwrap();
    loads.split(RangeId(1), &key(50), [RangeId(2), RangeId(3)], 600.0);
    let (lower, upper) = (reads(2).unwrap(), reads(3).unwrap());
    assert!(reads(1).is_none() && lower > 0.0 && upper > 0.0);
    assert!((lower + upper - whole).abs() < 1e-6 * whole);
    loads.join(RangeId(2), RangeId(3), RangeId(4), 600.0);
    assert!((reads(4).unwrap() - whole).abs() < 1e-6 * whole);
    loads.join(RangeId(9), RangeId(4), RangeId(5), 600.0);
    assert!(reads(5).is_some());
}

#[test]
fn ranges_whose_readers_lost_enough_rows_merge_once_an_hour_with_one_flush() {
    let loads = loads();
    let (ids, clock) = ([RangeId(1), RangeId(2)], std::cell::Cell::new(0));
    let read = |range: RangeId, times: u64, price: f64| {
        let place = Place { range, over: 2.0, price, is_long: false };
        let due = || Due { slot: 0, over: 0 };
        let memory = || written(clock.replace(clock.get() + 1));
        (0..times).for_each(|i| {
            loads.sample(&due(), Some(&place), &memory(), b"k", Operation::Get, i as f64);
        });
    };
    let losing = || loads.sampled.lock().losing.iter().copied().collect::<Vec<_>>();
    let lost = |id: &RangeId| loads.sampled.lock().ranges.get(id).unwrap().lost();
    let in_turn = |id: &RangeId| loads.sampled.lock().ranges.get(id).unwrap().is_in_turn();
    read(ids[0], 1_000, f64::INFINITY);
    assert!(losing().is_empty() && lost(&ids[0]) >= 2_000.0, "{}", lost(&ids[0]));
    // A range is losing as soon as its accumulated cost exceeds its price, even if the cost hardly
    // rose: a split may have lowered the price.
    read(ids[0], 1, 1_000.0);
    assert_eq!(losing(), [ids[0]]);
    assert!(!loads.begin_turns(|_| Some(1e6), IN_MEMORY, 0.0), "the price has risen");
    assert!(losing().is_empty() && !in_turn(&ids[0]));
    read(ids[0], 1, 1_000.0);
    assert!(!loads.begin_turns(|_| None, IN_MEMORY, 0.0), "no file overlaps the run");
    assert!(losing().is_empty() && lost(&ids[0]) < 1.0, "a merge would not help");
    read(ids[0], 1_000, 1_000.0);
    assert!(loads.begin_turns(|_| Some(1_000.0), IN_MEMORY, 0.0) && in_turn(&ids[0]));
    assert_eq!(loads.frozen_for_readers(), Some(u64::MAX), "the flush may freeze any memtable");
    loads.record_frozen(Some(7));
    assert_eq!(loads.frozen_for_readers(), Some(7));
    assert!(
        !loads.begin_turns(|_| Some(1_000.0), IN_MEMORY, 1.0),
        "the range already has its turn"
    );
    read(ids[1], 1_000, 500.0);
    assert!(
        !loads.begin_turns(|_| Some(500.0), IN_MEMORY, 2.0),
        "there was a flush for another range just before"
    );
    assert!(in_turn(&ids[1]));
    ids.iter().for_each(|id| loads.record_merged(*id));
    assert!(losing().is_empty() && lost(&ids[0]) < 1.0 && !in_turn(&ids[0]));
    read(ids[0], 1_000, 500.0);
    assert!(
        !loads.begin_turns(|_| Some(500.0), IN_MEMORY, TURN_SECONDS - 1.0) && !in_turn(&ids[0])
    );
    assert!(loads.begin_turns(|_| Some(500.0), IN_MEMORY, TURN_SECONDS) && in_turn(&ids[0]));
    loads.record_frozen(None);
    assert_eq!(loads.frozen_for_readers(), None, "no memtable was frozen");
}

#[test]
fn during_a_pause_in_writing_reads_of_short_rows_count_eight_times() {
    let loads = loads();
    let read = |over: f64, is_long: bool, newest: u64, now: f64| {
        let range = RangeId(1);
        let place = Place { range, over, price: f64::INFINITY, is_long };
        let memory = Memory { newest: Seq(newest), price: f64::INFINITY };
        let lost = || loads.sampled.lock().ranges.get(&range).map_or(0.0, RangeLoad::lost);
        let before = lost();
        // The counter is set to 1 each time, so each read has the weight 1.
        loads.sampled.lock().gaps[0].set = 1;
        let due = Due { slot: 0, over: 0 };
        loads.sample(&due, Some(&place), &memory, b"k", Operation::Get, now);
        lost() - before
    };
    assert_eq!(read(2.0, false, 5, 9.0), 2.0, "a sample sees the write");
    assert_eq!(read(2.0, false, 5, 9.0625), 2.0);
    assert_eq!(read(2.0, false, 5, 9.125), 16.0, "nothing was written for 0.1 s");
    assert_eq!(read(2.0, true, 5, 9.125), 2.0, "merging long rows costs more");
    assert_eq!(read(0.0, false, 5, 9.125), 0.0, "the key is in one file");
    assert_eq!(read(2.0, false, 4, 9.125), 16.0, "the view is older");
    assert_eq!(read(2.0, false, 6, 9.25), 2.0, "the pause has ended");
}

#[test]
fn rows_scanned_in_memory_during_a_pause_flush_the_memtable_once_an_hour() {
    let loads = loads();
    let scan = |price: f64, now: f64| {
        loads.sampled.lock().gaps[0].set = 1;
        let memory = Memory { newest: Seq(5), price };
        let due = Due { slot: 0, over: 0 };
        loads.sample(&due, None, &memory, b"k", Operation::Scan, now);
        loads.begin_turns(|_| None, Some(price), now)
    };
    assert!(!scan(4.0, 0.05), "there was a write just before");
    assert!(!scan(9.0, 1.0) && scan(16.0, 1.0), "each row counts eight times");
    assert!(!(0..9).any(|_| scan(16.0, 2.0)), "a memtable was frozen just before");
    assert!(!loads.begin_turns(|_| None, None, 3_601.0), "the memtable is empty");
    assert!(scan(16.0, 3_601.0));
    assert!(!(0..9).any(|_| scan(f64::INFINITY, 9_999.0)), "no row was read from memory");
}

#[test]
fn the_rows_lost_by_readers_follow_splits_and_merges() {
    let mut load = RangeLoad::new(1, 0.0);
    load.read(b"a", 1.0, 0.0);
    load.lose(1_000.0);
    assert!(load.begin_turn(0.0));
    let (lower, mut upper) = load.split(b"m", 0.0);
    assert!(lower.lost() + upper.lost() == 1_000.0 && lower.is_in_turn());
    upper.record_merged();
    let mut joined = lower.join(upper, 0.0);
    assert!(!joined.is_in_turn(), "one part of the range was merged");
    assert!(!joined.begin_turn(1.0) && joined.begin_turn(TURN_SECONDS));
}

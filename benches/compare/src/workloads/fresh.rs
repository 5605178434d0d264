//! Measures the rows of the report that start with an empty database: loads, durable commits,
//! inserts, a queue.
//!
//! Invariants
//! * each row of the report has its own database, which is removed afterwards;
//! * all written data are read back and compared outside the measured time.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Instant;

use super::{Bench, Feed, load_all};
use crate::choose::Permutation;
use crate::measure::{Budget, Hand, Pace, Timing, latency_of, run, run_threads};
use crate::process;
use crate::reading::Reading;
use crate::results::Figures;
use crate::store::Durability::{self, Os, Sync};
use crate::store::{Found, Store};

const GROUP: u64 = 100;
/// Commits write entities with numbers below this limit, which is more than any engine can commit
/// within the measured time.
const COMMIT_SPACE: u64 = 1 << 24;
/// The number of entries in a queue.
const QUEUE_DEPTH: u64 = 1_000;
/// The maximum number of entities prepared for the benchmark of one thread with several commits in
/// flight.
const TICKETS_MAX: u64 = 300_000;

/// Measures one row of the report on its own database. `work` returns the contents that the
/// database must have afterwards.
fn fresh(
    bench: &mut Bench<'_>,
    row: &str,
    work: impl FnOnce(&Bench<'_>, &dyn Store) -> (Timing, Found),
) {
    if !bench.wants(row) {
        return;
    }
    let store = bench.spec.open(row);
    let mut written = Found::default();
    let loading = |bench: &Bench<'_>| {
        let (timing, found) = work(bench, &*store);
        written = found;
        timing
    };
    bench.row(row, &*store, true, loading);
    assert_eq!(store.scan(), written, "{row}: what was written is not what is there");
    store.close();
    drop(std::fs::remove_dir_all(bench.spec.dir.join(row)));
}

pub fn loads(bench: &mut Bench<'_>) {
    let count = bench.spec.entities;
    for (row, is_random, durability) in [
        ("load-ascending", false, Os),
        ("load-random", true, Os),
        ("load-ascending-sync", false, Sync),
        ("load-random-sync", true, Sync),
    ] {
        fresh(bench, row, |bench, store| {
            let order = Permutation::new(bench.spec.seed, count);
            let number = |place| if is_random { order.at(place) } else { place };
            let act = |reading: &Reading| {
                store.put(reading, durability);
                1
            };
            write(
                bench,
                count,
                durability,
                |place| bench.data.reading(number(place)),
                sum_of_one,
                act,
            )
        });
    }
    for (row, is_random, durability) in [
        ("load-groups", false, Os),
        ("load-groups-random", true, Os),
        ("load-groups-sync", false, Sync),
    ] {
        fresh(bench, row, |bench, store| {
            groups(bench, is_random, durability, |group| {
                store.put_group(group, durability);
            })
        });
    }
    fresh(bench, "load-bulk", |bench, store| {
        let timing = load_all(bench.spec, &bench.data, store, count);
        (timing, written(bench, count))
    });
}

/// Returns the expected contents of a database after `count` entities were loaded.
fn written(bench: &Bench<'_>, count: u64) -> Found {
    let mut found = Found::default();
    for number in 0..count {
        found.add(Found { entities: 1, digest: bench.data.reading(number).digest() });
    }
    found
}

pub fn inserts(bench: &mut Bench<'_>) {
    let count = bench.spec.entities;
    fresh(bench, "insert", |bench, store| {
        let order = Permutation::new(bench.spec.seed, count);
        let act = |reading: &Reading| {
            assert!(store.insert(reading, Os), "the key was free");
            1
        };
        write(bench, count, Os, |place| bench.data.reading(order.at(place)), sum_of_one, act)
    });
    fresh(bench, "insert-groups", |bench, store| {
        groups(bench, true, Os, |group| {
            assert!(store.insert_group(group, Os), "the keys were free");
        })
    });
}

fn sum_of_one(reading: &Reading) -> Found {
    Found { entities: 1, digest: reading.digest() }
}

fn groups(
    bench: &Bench<'_>,
    is_random: bool,
    durability: Durability,
    write_group: impl Fn(&[Reading]) + Send + std::marker::Sync,
) -> (Timing, Found) {
    let count = bench.spec.entities / GROUP;
    let order = Permutation::new(bench.spec.seed, count);
    let make = |place| -> Vec<Reading> {
        let group = if is_random { order.at(place) } else { place };
        (group * GROUP..(group + 1) * GROUP).map(|number| bench.data.reading(number)).collect()
    };
    let sum = |group: &Vec<Reading>| {
        let mut found = Found::default();
        group.iter().for_each(|reading| found.add(sum_of_one(reading)));
        found
    };
    write(bench, count, durability, make, sum, |group| {
        write_group(group);
        GROUP
    })
}

/// Writes up to `count` items until the time for loads ends. Each call of `act` returns the number
/// of entities that it wrote.
fn write<T>(
    bench: &Bench<'_>,
    count: u64,
    durability: Durability,
    make: impl Fn(u64) -> T + Send + std::marker::Sync,
    sum: impl Fn(&T) -> Found + Send + std::marker::Sync,
    act: impl Fn(&T) -> u64 + Send + std::marker::Sync,
) -> (Timing, Found) {
    let (mut place, mut all) = (0, Found::default());
    let hand = Hand {
        make: Box::new(|wanted| {
            let end = (place + wanted as u64).min(count);
            (std::mem::replace(&mut place, end)..end).map(&make).collect()
        }),
        act: Box::new(|item| Found { entities: act(item), digest: 0 }),
        check: Box::new(|items, _| items.iter().for_each(|item| all.add(sum(item)))),
    };
    // A load that syncs every write is measured as long as rows other than loads.
    let time = if durability == Sync { bench.spec.time } else { bench.spec.load_time };
    let timing = run(hand, Pace { chunk: 512, ..Pace::USUAL }, Budget { ops: count, time });
    (timing, all)
}

pub fn commits(bench: &mut Bench<'_>) {
    for threads in [1, 4, 16, 64] {
        fresh(bench, &format!("commits-{threads}"), |bench, store| {
            commit_by_threads(bench, store, threads)
        });
    }
    for in_flight in [4, 16, 64] {
        tickets(bench, &format!("tickets-{in_flight}"), in_flight);
    }
}

fn commit_by_threads(bench: &Bench<'_>, store: &dyn Store, threads: u64) -> (Timing, Found) {
    let order = Permutation::new(bench.spec.seed, COMMIT_SPACE);
    let all = Mutex::new(Found::default());
    let hand = |thread: u64| {
        let (order, all) = (&order, &all);
        let mut place = thread;
        Hand {
            make: Box::new(move |count| {
                let places = (0..count as u64).map(|i| place + i * threads);
                let readings = places.map(|place| bench.data.reading(order.at(place))).collect();
                place += count as u64 * threads;
                readings
            }),
            act: Box::new(move |reading: &Reading| {
                store.put(reading, Sync);
                Found { entities: 1, digest: 0 }
            }),
            check: Box::new(move |readings: &[Reading], _| {
                let mut all = all.lock().expect("no panic");
                readings.iter().for_each(|reading| all.add(sum_of_one(reading)));
            }),
        }
    };
    let pace = Pace { chunk: 4_096, ..Pace::USUAL };
    let timing = run_threads((0..threads).map(hand).collect(), pace, bench.budget());
    (timing, all.into_inner().expect("no panic"))
}

fn tickets(bench: &mut Bench<'_>, row: &str, in_flight: usize) {
    if !bench.wants(row) {
        return;
    }
    let mut is_supported = true;
    let store = bench.spec.open(row);
    let mut written = Found::default();
    let before = process::written_bytes();
    let order = Permutation::new(bench.spec.seed, COMMIT_SPACE);
    let readings: Vec<_> =
        (0..TICKETS_MAX).map(|place| bench.data.reading(order.at(place))).collect();
    let (started, latencies) = (RefCell::new(VecDeque::new()), RefCell::new(Vec::new()));
    let (start, cpu) = (Instant::now(), process::cpu_seconds());
    let (mut place, time) = (0, bench.spec.time);
    let mut next = || {
        let now = Instant::now();
        // Returns at least one reading, even if the machine is so slow that the time is already
        // over.
        let is_time_left = place == 0 || now - start < time;
        let reading = is_time_left.then(|| readings.get(place)).flatten()?;
        place += 1;
        started.borrow_mut().push_back(now);
        Some(reading.clone())
    };
    let mut each = |_| {
        let begun: Instant = started.borrow_mut().pop_front().expect("one is under way");
        latencies.borrow_mut().push(begun.elapsed().as_nanos() as u64);
    };
    is_supported &= store.put_in_flight(&mut std::iter::from_fn(&mut next), in_flight, &mut each);
    let (seconds, cpu_seconds) = (start.elapsed().as_secs_f64(), process::cpu_seconds() - cpu);
    if is_supported {
        let latency = latency_of(&latencies.borrow());
        let ops = latency.samples;
        assert_eq!(ops, place as u64, "every commit was acknowledged once");
        readings[..place].iter().for_each(|reading| written.add(sum_of_one(reading)));
        let timing = Timing { ops, entities: ops, seconds, cpu_seconds, latency };
        store.settle();
        let figures = bench.figures(row, &timing);
        let written_bytes = process::written_bytes() - before;
        bench.emit(row, Figures { written_bytes, ..figures });
        assert_eq!(store.scan(), written, "{row}: what was written is not what is there");
    } else {
        bench.unsupported(row);
    }
    store.close();
    drop(std::fs::remove_dir_all(bench.spec.dir.join(row)));
}

/// Measures a queue of constant length: each step inserts an entry at its end and takes the entry
/// at its head.
pub fn queue(bench: &mut Bench<'_>) {
    fresh(bench, "queue", |bench, store| {
        let data = &bench.data;
        let device = crate::reading::Data::queue_device(0);
        let head = |number| Feed::new(number, bench.spec.load_time, |n| data.queued(0, n));
        store.load(&mut head(QUEUE_DEPTH), Os);
        let mut next = QUEUE_DEPTH;
        let mut taken = 0;
        let hand = Hand {
            make: Box::new(|count| {
                let first = next;
                next += count as u64;
                (first..next).map(|number| data.queued(0, number)).collect()
            }),
            act: Box::new(|reading: &Reading| {
                store.put(reading, Os);
                Found::one(store.take_first(device, Os))
            }),
            check: Box::new(|readings: &[Reading], found| {
                let mut expected = Found::default();
                for number in taken..taken + readings.len() as u64 {
                    expected.add(sum_of_one(&data.queued(0, number)));
                }
                taken += readings.len() as u64;
                assert_eq!(found, expected, "the heads of the queue");
            }),
        };
        let timing = run(hand, Pace { chunk: 512, ..Pace::USUAL }, bench.budget());
        let mut left = Found::default();
        (taken..taken + QUEUE_DEPTH).for_each(|n| left.add(sum_of_one(&data.queued(0, n))));
        (timing, left)
    });
}

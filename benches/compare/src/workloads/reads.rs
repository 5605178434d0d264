//! Measures the rows of the report that only read: point reads, ranges, scans, filters.

use rowstone::retry::Rng;

use super::Bench;
use crate::measure::{Budget, Hand, Pace, Timing, run, run_threads};
use crate::oracle::Oracle;
use crate::reading::{Digest, Key};
use crate::rows::Session;
use crate::store::{Filter, Found, Store};

type Read = fn(&dyn Store, &Key) -> Option<Digest>;

/// The key of a point read, and the number of its entity.
struct Point {
    number: u64,
    key: Key,
}

/// Whether point reads ask for existing keys or for missing keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    Hit,
    Miss,
}

/// Measures point reads of random entities by `threads` threads; all entities are equally likely.
pub fn points(
    bench: &mut Bench<'_>,
    row: &str,
    store: &dyn Store,
    oracle: &Oracle,
    keys: Keys,
    threads: u64,
) {
    bench.row(row, store, false, |bench| {
        read_points(bench, store, oracle, keys, threads, |s, k| s.get(k))
    });
}

/// Measures point reads that read values in place, if the engine can.
pub fn views(bench: &mut Bench<'_>, row: &str, store: &dyn Store, oracle: &Oracle) {
    bench.row(row, store, false, |bench| {
        read_points(bench, store, oracle, Keys::Hit, 1, |s, k| s.get_view(k))
    });
}

fn read_points(
    bench: &Bench<'_>,
    store: &dyn Store,
    oracle: &Oracle,
    keys: Keys,
    threads: u64,
    read: Read,
) -> Timing {
    let hand = |thread: u64| {
        let mut rng = Rng::from_seed(bench.spec.seed ^ 0x70 ^ thread << 32);
        Hand {
            make: Box::new(move |count| {
                let point = |()| {
                    let number = rng.below(oracle.count);
                    let key = match keys {
                        Keys::Hit => oracle.data.key(number),
                        Keys::Miss => oracle.data.missing_key(number),
                    };
                    Point { number, key }
                };
                std::iter::repeat_n((), count).map(point).collect()
            }),
            act: Box::new(move |point: &Point| Found::one(read(store, &point.key))),
            check: Box::new(move |points: &[Point], found| {
                let mut expected = Found::default();
                if keys == Keys::Hit {
                    points
                        .iter()
                        .for_each(|point| expected.add(Found::one(oracle.digest(point.number))));
                }
                assert_eq!(found, expected, "points");
            }),
        }
    };
    if threads == 1 {
        run(hand(0), Pace::FAST, bench.budget())
    } else {
        let pace = Pace { chunk: 32_768, ..Pace::FAST };
        run_threads((0..threads).map(hand).collect(), pace, bench.budget())
    }
}

/// Measures reads of ranges of 100 rows from random keys; near the end of a partition the ranges
/// are shorter.
pub fn ranges(bench: &mut Bench<'_>, row: &str, store: &dyn Store, oracle: &Oracle) {
    bench.row(row, store, false, |bench| {
        let mut rng = Rng::from_seed(bench.spec.seed ^ 0x72);
        let hand = Hand {
            make: Box::new(move |count| {
                let numbers = std::iter::repeat_with(|| rng.below(oracle.count)).take(count);
                numbers.map(|number| Point { number, key: oracle.data.key(number) }).collect()
            }),
            act: Box::new(|point: &Point| store.range(&point.key, 100)),
            check: Box::new(|points: &[Point], found| {
                let mut expected = Found::default();
                points.iter().for_each(|point| expected.add(oracle.range(point.number, 100)));
                assert_eq!(found, expected, "ranges");
            }),
        };
        run(hand, Pace { chunk: 512, ..Pace::USUAL }, bench.budget())
    });
}

/// Measures full scans, one after the other.
pub fn scans(bench: &mut Bench<'_>, row: &str, store: &dyn Store, oracle: &Oracle) {
    bench.row(row, store, false, |bench| {
        let expected = oracle.all();
        repeated(bench, expected, || store.scan())
    });
}

/// Measures one full scan of a database that was just opened: the cost of first accesses to blocks
/// is included.
pub fn first_scan(bench: &mut Bench<'_>, row: &str, store: &dyn Store, oracle: &Oracle) {
    let expected = oracle.all();
    if !bench.wants(row) {
        assert_eq!(store.scan(), expected, "a scan");
        return;
    }
    bench.row(row, store, false, |bench| {
        let budget = Budget { ops: 1, ..bench.budget() };
        run(whole(expected, || store.scan()), Pace::SLOW, budget)
    });
}

/// Measures filters over all entities. The rate counts all entities, including those that do not
/// match.
pub fn filters(
    bench: &mut Bench<'_>,
    row: &str,
    store: &dyn Store,
    oracle: &Oracle,
    filter: Filter,
) {
    bench.row(row, store, false, |bench| {
        let expected = oracle.matching(filter);
        let timing = repeated(bench, expected, || store.filter(filter));
        Timing { entities: timing.ops * oracle.all().entities, ..timing }
    });
}

/// Returns the filter that matches the lowest `thousandths` of every thousand temperatures.
pub fn coldest(oracle: &Oracle, thousandths: u64) -> Filter {
    Filter::Below(oracle.data.temperature_below(thousandths))
}

fn repeated(bench: &Bench<'_>, expected: Found, act: impl Fn() -> Found + Send + Sync) -> Timing {
    // The first pass is not measured, because it fills caches.
    if bench.spec.session != Session::Cold {
        assert_eq!(act(), expected, "a scan");
    }
    run(whole(expected, act), Pace::SLOW, bench.budget())
}

/// Returns operations that each visit all entities and have the same result.
fn whole<'a>(expected: Found, act: impl Fn() -> Found + Send + 'a) -> Hand<'a, ()> {
    Hand {
        make: Box::new(|_| vec![()]),
        act: Box::new(move |()| act()),
        check: Box::new(move |_, found| assert_eq!(found, expected, "a scan")),
    }
}

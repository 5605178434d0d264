//! Measures the rows of the report that change existing entities: refused inserts, replacements
//! with an ETag, deletes, and merges. Merges are also measured on sheets, which have many or large
//! properties.

use rowstone::retry::Rng;

use super::Bench;
use crate::choose::Permutation;
use crate::measure::{Budget, Hand, Pace, run};
use crate::oracle::Oracle;
use crate::reading::{Key, Reading};
use crate::sheet::{Item, Kind, OwnedItem, Sheet, digest};
use crate::store::Durability::Os;
use crate::store::{Change, Found, Store};

const PACE: Pace = Pace { chunk: 512, ..Pace::USUAL };

/// A write of the next revision of an entity.
struct Replacement {
    number: u64,
    revision: u32,
    reading: Reading,
}

struct Merge {
    number: u64,
    revision: u32,
    key: Key,
    temperature: f64,
}

/// Measures inserts of existing keys: all are refused, and nothing changes.
pub fn refused(bench: &mut Bench<'_>, row: &str, store: &dyn Store, oracle: &Oracle) {
    bench.row(row, store, true, |bench| {
        let mut rng = Rng::from_seed(bench.spec.seed ^ 0x69);
        let hand = Hand {
            make: Box::new(|count| {
                let numbers = std::iter::repeat_with(|| rng.below(oracle.count)).take(count);
                numbers.map(|number| oracle.data.reading(number)).collect()
            }),
            act: Box::new(|reading: &Reading| Found {
                entities: u64::from(!store.insert(reading, Os)),
                digest: 0,
            }),
            check: Box::new(|readings: &[Reading], found| {
                assert_eq!(found.entities, readings.len() as u64, "the keys exist");
            }),
        };
        run(hand, PACE, bench.budget())
    });
}

/// Measures reading an entity's version and then replacing the entity if the version is unchanged.
pub fn replaces(bench: &mut Bench<'_>, row: &str, store: &dyn Store, oracle: &mut Oracle) {
    if !bench.wants(row) {
        return;
    }
    let oracle = std::sync::Mutex::new(oracle);
    bench.row(row, store, true, |bench| {
        let mut rng = Rng::from_seed(bench.spec.seed ^ 0x65);
        let hand = Hand {
            make: Box::new(|count| {
                let oracle = oracle.lock().expect("no panic");
                let change = |number| {
                    let revision = oracle.revision(number) + 1;
                    Replacement { number, revision, reading: oracle.data.revised(number, revision) }
                };
                distinct(&mut rng, oracle.count, count).map(change).collect()
            }),
            act: Box::new(|change: &Replacement| {
                let version = store.version(&change.reading.key).expect("it exists");
                assert!(store.replace_if(&change.reading, version, Os), "there is no other writer");
                Found { entities: 1, digest: 0 }
            }),
            check: Box::new(|changes: &[Replacement], _| {
                let mut oracle = oracle.lock().expect("no panic");
                let mut found = Found::default();
                for change in changes {
                    oracle.replaced(change.number, change.revision);
                    found.add(Found::one(store.get(&change.reading.key)));
                }
                assert_eq!(found, sum(&oracle, changes.iter().map(|change| change.number)));
            }),
        };
        run(hand, PACE, bench.budget())
    });
}

/// Measures setting one property of random entities; all entities are equally likely.
pub fn merges(bench: &mut Bench<'_>, row: &str, store: &dyn Store, oracle: &mut Oracle) {
    if !bench.wants(row) {
        return;
    }
    let oracle = std::sync::Mutex::new(oracle);
    bench.row(row, store, true, |bench| {
        let mut rng = Rng::from_seed(bench.spec.seed ^ 0x6d);
        let hand = Hand {
            make: Box::new(|count| {
                let oracle = oracle.lock().expect("no panic");
                let merge = |number| {
                    let revision = oracle.revision(number) + 1;
                    let temperature = oracle.data.temperature(number, revision);
                    Merge { number, revision, key: oracle.data.key(number), temperature }
                };
                distinct(&mut rng, oracle.count, count).map(merge).collect()
            }),
            act: Box::new(|merge: &Merge| {
                assert!(
                    store.merge(&merge.key, Change::Temperature(merge.temperature), Os),
                    "it exists"
                );
                Found { entities: 1, digest: 0 }
            }),
            check: Box::new(|merges: &[Merge], _| {
                let mut oracle = oracle.lock().expect("no panic");
                let mut found = Found::default();
                for merge in merges {
                    oracle.merged(merge.number, merge.revision);
                    found.add(Found::one(store.get(&merge.key)));
                }
                assert_eq!(found, sum(&oracle, merges.iter().map(|merge| merge.number)));
            }),
        };
        run(hand, PACE, bench.budget())
    });
}

/// Writes `count` sheets, and then measures setting the counters of random sheets.
pub fn sheet_merges(bench: &mut Bench<'_>, row: &str, kind: Kind, count: u64) {
    if !bench.wants(row) {
        return;
    }
    let store = bench.spec.open(row);
    let seed = bench.spec.seed;
    for number in 0..count {
        store.put_sheet(&Sheet::new(seed, kind, number), Os);
    }
    store.sync();
    store.settle();
    // Closures for expected digests: the term of a counter, and the digest of a sheet without its
    // counter.
    let counter = |value| {
        let before = std::iter::repeat_n(Item::Whole(0), kind.counter());
        digest(before.clone().chain([Item::Whole(value)])).wrapping_sub(digest(before))
    };
    let without_counter = |number| {
        let mut sheet = Sheet::new(seed, kind, number);
        sheet.items[kind.counter()] = OwnedItem::Whole(0);
        sheet.digest().wrapping_sub(counter(0))
    };
    let rest: Vec<_> = (0..count).map(without_counter).collect();
    bench.begin();
    bench.raw_bytes_each = Sheet::new(seed, kind, 0).raw_bytes() as f64;
    // Limits the number of operations on large entities. More of them would fill the disk's queue,
    // and the figure would include the wait for the disk.
    let (chunk, ops) = if kind == Kind::Large { (16, 512) } else { (256, u64::MAX) };
    let budget = Budget { ops, ..bench.budget() };
    bench.row(row, &*store, true, |_| {
        let (mut rng, mut value) = (Rng::from_seed(seed ^ 0x73), 1_i64 << 40);
        let hand = Hand {
            make: Box::new(|wanted| {
                let merge = |number| {
                    value += 1;
                    (number, kind.key(number), value)
                };
                distinct(&mut rng, count, wanted).map(merge).collect()
            }),
            act: Box::new(|(_, key, value): &(u64, Key, i64)| {
                assert!(store.merge(key, Change::Counter(kind, *value), Os), "it exists");
                Found { entities: 1, digest: 0 }
            }),
            check: Box::new(|merges: &[(u64, Key, i64)], _| {
                for (number, key, value) in merges {
                    let expected = rest[*number as usize].wrapping_add(counter(*value));
                    assert_eq!(store.get_sheet(kind, key), Some(expected), "of {number}");
                }
            }),
        };
        run(hand, Pace { chunk, ..Pace::USUAL }, budget)
    });
    store.close();
}

/// Measures deletes of random entities, one by one; all entities are equally likely.
pub fn deletes(bench: &mut Bench<'_>, row: &str, store: &dyn Store, oracle: &mut Oracle) {
    if !bench.wants(row) {
        return;
    }
    let count = bench.spec.entities;
    // Deletes at most a quarter of the entities, because later rows of the report need the others.
    let budget = Budget { ops: count / 4, ..bench.budget() };
    let order = Permutation::new(bench.spec.seed ^ 0x64, count);
    let oracle = std::sync::Mutex::new(oracle);
    bench.row(row, store, true, |_| {
        let mut place = 0;
        let hand = Hand {
            make: Box::new(|wanted| {
                let oracle = oracle.lock().expect("no panic");
                let places = place..place + wanted as u64;
                place = places.end;
                let numbers = places.map(|place| order.at(place));
                numbers.map(|number| (number, oracle.data.key(number))).collect()
            }),
            act: Box::new(|(_, key): &(u64, Key)| {
                store.delete(key, Os);
                Found { entities: 1, digest: 0 }
            }),
            check: Box::new(|deletes: &[(u64, Key)], _| {
                let mut oracle = oracle.lock().expect("no panic");
                for (number, key) in deletes {
                    oracle.deleted(*number);
                    assert_eq!(store.get(key), None, "it was deleted");
                }
            }),
        };
        run(hand, PACE, budget)
    });
}

/// Returns distinct numbers of random entities. The new revisions of a chunk are chosen before it
/// is written, so a second write of an entity in one chunk would get the same revision.
fn distinct(rng: &mut Rng, count: u64, wanted: usize) -> impl Iterator<Item = u64> {
    let mut seen = std::collections::HashSet::new();
    let wanted = wanted.min(count as usize / 2);
    std::iter::repeat_with(move || rng.below(count)).filter(move |n| seen.insert(*n)).take(wanted)
}

fn sum(oracle: &Oracle, numbers: impl Iterator<Item = u64>) -> Found {
    let mut found = Found::default();
    numbers.for_each(|number| found.add(Found::one(oracle.digest(number))));
    found
}

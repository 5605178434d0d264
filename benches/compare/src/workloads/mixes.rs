//! Measures the YCSB workloads A to F, and reads with a concurrent writer.
//!
//! Unlike in YCSB, the entities are the same readings as in all other rows of the report, and an
//! update writes the whole entity. Keys are drawn by zipfian rank. The ranks are scattered over all
//! keys, except in workload D, where the latest key has rank 0.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rowstone::retry::Rng;

use super::Bench;
use crate::choose::{Permutation, Zipfian};
use crate::measure::{Hand, Pace, Timing, run};
use crate::oracle::Oracle;
use crate::process;
use crate::reading::{Key, Reading};
use crate::results::Figures;
use crate::store::Durability::Os;
use crate::store::{Found, Store};

/// The target rate of the concurrent writer. A slower engine does fewer writes.
const WRITES_PER_SECOND: u32 = 20_000;

/// Shares of operations in percent. The remaining operations are reads.
#[derive(Clone, Copy)]
struct Mix {
    updates: u64,
    inserts: u64,
    ranges: u64,
    modifies: u64,
    latest: bool,
}

enum Op {
    Read {
        number: u64,
        key: Key,
    },
    Update {
        number: u64,
        revision: u32,
        reading: Reading,
    },
    /// Reads an entity, changes it and writes it back.
    Modify {
        number: u64,
        revision: u32,
        reading: Reading,
    },
    Insert {
        reading: Reading,
    },
    Range {
        number: u64,
        key: Key,
        limit: usize,
    },
}

const READS: Mix = Mix { updates: 0, inserts: 0, ranges: 0, modifies: 0, latest: false };

const MIXES: [(&str, Mix); 6] = [
    ("ycsb-a", Mix { updates: 50, ..READS }),
    ("ycsb-b", Mix { updates: 5, ..READS }),
    ("ycsb-c", READS),
    ("ycsb-d", Mix { inserts: 5, latest: true, ..READS }),
    ("ycsb-e", Mix { inserts: 5, ranges: 95, ..READS }),
    ("ycsb-f", Mix { modifies: 50, ..READS }),
];

pub fn ycsb(bench: &mut Bench<'_>, store: &dyn Store, oracle: &mut Oracle) {
    if !MIXES.iter().any(|(row, _)| bench.wants(row)) {
        return;
    }
    let zipfian = Zipfian::new(oracle.count);
    let scattered = Permutation::new(bench.spec.seed ^ 0x79, oracle.count);
    for (row, mix) in MIXES {
        let writes = mix.updates + mix.inserts + mix.modifies > 0;
        let oracle = Mutex::new(&mut *oracle);
        bench.row(row, store, writes, |bench| {
            let mut rng = Rng::from_seed(bench.spec.seed ^ 0x79);
            let hand = Hand {
                make: Box::new(|count| {
                    let oracle = oracle.lock().expect("no panic");
                    prepare(mix, &oracle, &mut rng, &zipfian, &scattered, count)
                }),
                act: Box::new(|op| act(store, op)),
                check: Box::new(|ops: &[Op], found| {
                    let mut oracle = oracle.lock().expect("no panic");
                    assert_eq!(found, expected(&mut oracle, ops), "{row}");
                }),
            };
            let pace = if writes { Pace { chunk: 1_024, ..Pace::USUAL } } else { Pace::FAST };
            let timing = run(hand, pace, bench.budget());
            Timing { entities: timing.ops, ..timing }
        });
    }
}

fn prepare(
    mix: Mix,
    oracle: &Oracle,
    rng: &mut Rng,
    zipfian: &Zipfian,
    scattered: &Permutation,
    count: usize,
) -> Vec<Op> {
    let data = &oracle.data;
    let mut inserted = 0;
    // Tracks the revisions of entities, because a chunk may write the same entity several times.
    let mut revisions = std::collections::HashMap::new();
    let mut ops = Vec::with_capacity(count);
    while ops.len() < count {
        let rank = zipfian.rank(rng);
        let number = if mix.latest { oracle.count - 1 - rank } else { scattered.at(rank) };
        let percent = rng.below(100);
        let mut revised = || {
            let revision = revisions.entry(number).or_insert_with(|| oracle.revision(number));
            *revision += 1;
            (*revision, data.revised(number, *revision))
        };
        ops.push(if percent < mix.updates {
            let (revision, reading) = revised();
            Op::Update { number, revision, reading }
        } else if percent < mix.updates + mix.modifies {
            let (revision, reading) = revised();
            Op::Modify { number, revision, reading }
        } else if percent < mix.updates + mix.modifies + mix.inserts {
            inserted += 1;
            Op::Insert { reading: data.reading(oracle.count + inserted - 1) }
        } else if percent < mix.updates + mix.modifies + mix.inserts + mix.ranges {
            Op::Range { number, key: data.key(number), limit: 1 + rng.index(100) }
        } else {
            Op::Read { number, key: data.key(number) }
        });
    }
    ops
}

fn act(store: &dyn Store, op: &Op) -> Found {
    match op {
        Op::Read { key, .. } => Found::one(store.get(key)),
        Op::Range { key, limit, .. } => store.range(key, *limit),
        Op::Update { reading, .. } | Op::Insert { reading } => {
            store.put(reading, Os);
            Found::default()
        }
        Op::Modify { reading, .. } => {
            let found = Found::one(store.get(&reading.key));
            store.put(reading, Os);
            found
        }
    }
}

/// Returns the expected sum of the results of `ops`, and applies their writes to the oracle.
fn expected(oracle: &mut Oracle, ops: &[Op]) -> Found {
    let mut expected = Found::default();
    for op in ops {
        match op {
            Op::Read { number, .. } => expected.add(Found::one(oracle.digest(*number))),
            Op::Range { number, limit, .. } => expected.add(oracle.range(*number, *limit as u64)),
            Op::Update { number, revision, .. } => oracle.replaced(*number, *revision),
            Op::Modify { number, revision, .. } => {
                expected.add(Found::one(oracle.digest(*number)));
                oracle.replaced(*number, *revision);
            }
            Op::Insert { .. } => oracle.inserted(),
        }
    }
    expected
}

/// Measures reads of one thread while another thread rewrites entities, at a steady pace or as fast
/// as it can. It rewrites each entity with the same values, so the expected answers stay the same.
pub fn reads_with_writer(bench: &mut Bench<'_>, store: &dyn Store, oracle: &Oracle) {
    const ROWS: [(&str, bool, Option<u32>); 3] = [
        ("reads-with-writer", false, Some(WRITES_PER_SECOND)),
        ("reads-with-writer-p999", true, Some(WRITES_PER_SECOND)),
        ("reads-with-writer-unbounded", false, None),
    ];
    for (row, without_queue, pace) in ROWS {
        if !bench.wants(row) {
            continue;
        }
        let (is_over, writes) = (AtomicBool::new(false), AtomicU64::new(0));
        let mut timing = Timing::default();
        let written = process::written_bytes();
        std::thread::scope(|scope| {
            scope.spawn(|| rewrite(bench.spec.seed, store, oracle, pace, &is_over, &writes));
            timing = read_with_writer(bench, store, oracle, without_queue);
            is_over.store(true, Ordering::Relaxed);
        });
        let rate = writes.into_inner() as f64 / timing.seconds.max(1e-9);
        store.settle();
        let mut figures = bench.figures(row, &timing);
        figures.written_bytes = process::written_bytes() - written;
        let value = if without_queue { timing.latency.p999 as f64 / 1e3 } else { figures.value };
        let note = format!("with {rate:.0} concurrent writes/s");
        bench.emit(row, Figures { value, note: Some(note), ..figures });
    }
}

fn read_with_writer(
    bench: &Bench<'_>,
    store: &dyn Store,
    oracle: &Oracle,
    without_queue: bool,
) -> Timing {
    let mut rng = Rng::from_seed(bench.spec.seed ^ 0x62);
    let hand = Hand {
        make: Box::new(|count| {
            let numbers = std::iter::repeat_with(|| rng.below(oracle.count)).take(count);
            numbers.map(|number| (number, oracle.data.key(number))).collect()
        }),
        act: Box::new(|(_, key): &(u64, Key)| Found::one(store.get(key))),
        check: Box::new(|reads: &[(u64, Key)], found| {
            let mut expected = Found::default();
            reads.iter().for_each(|(number, _)| expected.add(Found::one(oracle.digest(*number))));
            assert_eq!(found, expected, "reads with a concurrent writer");
        }),
    };
    let every = if without_queue { 1 } else { Pace::FAST.every };
    run(hand, Pace { every, without_queue, ..Pace::FAST }, bench.budget())
}

/// Rewrites random entities, `pace` of them per second or as many as it can.
fn rewrite(
    seed: u64,
    store: &dyn Store,
    oracle: &Oracle,
    pace: Option<u32>,
    is_over: &AtomicBool,
    writes: &AtomicU64,
) {
    let mut rng = Rng::from_seed(seed ^ 0x77);
    let (start, gap) = (Instant::now(), pace.map(|pace| Duration::from_secs(1) / pace));
    let mut done = 0_u32;
    while !is_over.load(Ordering::Relaxed) {
        let early = gap.and_then(|gap| {
            let due = start + gap * done;
            due.checked_duration_since(Instant::now()).map(|early| early.max(gap * 10))
        });
        if let Some(early) = early {
            // Sleeps until several writes are due, because one wake-up costs more than a write.
            std::thread::park_timeout(early);
            continue;
        }
        store.put(&oracle.current(rng.below(oracle.count)), Os);
        done += 1;
        writes.fetch_add(1, Ordering::Relaxed);
    }
}

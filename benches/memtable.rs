//! Compares the memtable with `crossbeam-skiplist` and a `BTreeMap` in a reader-writer lock, at
//! 400,000 entries.
//!
//! * `cargo bench --bench memtable` measures each alone, with criterion.
//! * `cargo bench --bench memtable -- paired 9` measures them in turns, in nine rounds, and prints
//!   median, lowest and highest. On a busy machine only these figures are comparable. Two more
//!   words select data structures and cases by name.
//!
//! The memtable is fastest at point operations. A B-tree is faster at scans, and the memtable's
//! first scan sorts all entries that are not yet sorted: see `paired`.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Bound;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use crossbeam_skiplist::SkipMap;
use rowstone::bench_support::Memtable;

const ENTRIES: usize = 400_000;
const DEVICES: usize = 1_000;
const ROW_BYTES: usize = 100;
const SCAN_LEN: usize = 100;
const SCANS: usize = 4_000;
/// The default memtable size of a database.
const BYTES_HINT: usize = 64 << 20;
/// The number of inserts between background steps. The engine also runs a step when 4,096 entries
/// are not yet sorted.
const STEP_EVERY: usize = 4_096;

/// One of the data structures that are compared. One thread inserts; any thread may read.
trait Contender: Send + Sync {
    fn insert(&self, key: &[u8], seq: u64, row: &[u8]);
    fn get(&self, key: &[u8]) -> Option<usize>;
    fn scan(&self, from: &[u8], len: usize) -> usize;
    fn step(&self) {}
    fn bytes(&self) -> Option<usize> {
        None
    }
}

type Make = fn() -> Box<dyn Contender>;

const CONTENDERS: [(&str, Make); 3] = [
    ("memtable", || Box::new(Memtable::new(BYTES_HINT))),
    ("skiplist", || Box::new(SkipMap::<Key, Box<[u8]>>::new())),
    ("btreemap", || Box::new(RwLock::new(BTreeMap::<Key, Box<[u8]>>::new()))),
];

/// A measurement. Its function returns the total time of its operations; [`CASES`] has their
/// number.
enum Case {
    /// Starts with an empty data structure.
    Fresh(fn(Make, &Load) -> Duration),
    /// Reads a data structure that was filled in random order and scanned once.
    Filled(fn(&dyn Contender, &Load) -> Duration),
}

const CASES: [(&str, usize, Case); 10] = [
    ("insert, random", ENTRIES, Case::Fresh(|make, load| fill(&*make(), &load.random, false))),
    (
        "insert, ascending",
        ENTRIES,
        Case::Fresh(|make, load| fill(&*make(), &load.ascending, false)),
    ),
    (
        "insert, random, with steps",
        ENTRIES,
        Case::Fresh(|make, load| fill(&*make(), &load.random, true)),
    ),
    ("get, hit", ENTRIES, Case::Filled(|map, load| gets(map, &load.hits))),
    ("get, miss", ENTRIES, Case::Filled(|map, load| gets(map, &load.misses))),
    ("get, hit, during inserts", ENTRIES, Case::Fresh(gets_during_inserts)),
    (
        "first scan of 100, no steps before",
        1,
        Case::Fresh(|make, load| first_scan(make, load, false)),
    ),
    ("first scan of 100, steps before", 1, Case::Fresh(|make, load| first_scan(make, load, true))),
    ("later scan of 100", SCANS, Case::Filled(scans)),
    ("all in order, steps before", ENTRIES, Case::Fresh(flush)),
];

/// Lists of keys in the engine's format: table id, partition key, a zero byte, row key.
struct Load {
    ascending: Vec<Vec<u8>>,
    random: Vec<Vec<u8>>,
    hits: Vec<Vec<u8>>,
    misses: Vec<Vec<u8>>,
}

impl Load {
    fn new() -> Self {
        let key = |n: usize| {
            let (device, tick) = (n / (ENTRIES / DEVICES), n % (ENTRIES / DEVICES));
            let text = format!("\0\0\0\u{1}device-{device:05}\0{:019}", 2_517_000_000 + tick * 60);
            text.into_bytes()
        };
        let ascending: Vec<_> = (0..ENTRIES).map(key).collect();
        let random = shuffled(&ascending, 1);
        let hits = shuffled(&ascending, 2);
        let misses = hits.iter().map(|key| [key, &b"x"[..]].concat()).collect();
        Self { ascending, random, hits, misses }
    }
}

fn shuffled(keys: &[Vec<u8>], mut state: u64) -> Vec<Vec<u8>> {
    let mut keys = keys.to_vec();
    for at in (1..keys.len()).rev() {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        keys.swap(at, (state >> 33) as usize % (at + 1));
    }
    // Copies the keys in this order to new memory, so that reading them later is sequential and
    // causes no cache misses that would be charged to the data structures.
    keys.iter().map(|key| key.to_vec()).collect()
}

fn fill(map: &dyn Contender, keys: &[Vec<u8>], steps: bool) -> Duration {
    let start = Instant::now();
    for (at, key) in keys.iter().enumerate() {
        map.insert(key, at as u64 + 1, &[7; ROW_BYTES]);
        if steps && at % STEP_EVERY == STEP_EVERY - 1 {
            map.step();
        }
    }
    start.elapsed()
}

fn gets(map: &dyn Contender, keys: &[Vec<u8>]) -> Duration {
    let start = Instant::now();
    for key in keys {
        black_box(map.get(key));
    }
    start.elapsed()
}

/// Measures gets of the first half of the keys, while a second thread inserts the other half.
fn gets_during_inserts(make: Make, load: &Load) -> Duration {
    let map = make();
    let (before, during) = load.random.split_at(ENTRIES / 2);
    fill(&*map, before, false);
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for (at, key) in during.iter().enumerate() {
                map.insert(key, (ENTRIES + at) as u64, &[7; ROW_BYTES]);
            }
            done.store(true, Ordering::Release);
        });
        let (start, mut count) = (Instant::now(), 0);
        while !done.load(Ordering::Acquire) {
            for at in count..count + 100 {
                black_box(map.get(&before[at * 7 % before.len()]));
            }
            count += 100;
        }
        start.elapsed().mul_f64(ENTRIES as f64 / count as f64)
    })
}

fn first_scan(make: Make, load: &Load, steps: bool) -> Duration {
    let map = make();
    fill(&*map, &load.random, steps);
    let start = Instant::now();
    black_box(map.scan(&load.hits[0], SCAN_LEN));
    start.elapsed()
}

fn scans(map: &dyn Contender, load: &Load) -> Duration {
    let start = Instant::now();
    for key in &load.hits[..SCANS] {
        black_box(map.scan(key, SCAN_LEN));
    }
    start.elapsed()
}

fn flush(make: Make, load: &Load) -> Duration {
    let map = make();
    fill(&*map, &load.random, true);
    let start = Instant::now();
    black_box(map.scan(b"", usize::MAX));
    start.elapsed()
}

fn filled(make: Make, load: &Load) -> Box<dyn Contender> {
    let map = make();
    fill(&*map, &load.random, true);
    map.scan(b"", 1);
    map
}

impl Contender for Memtable {
    fn insert(&self, key: &[u8], seq: u64, row: &[u8]) {
        Memtable::insert(self, key, seq, row);
    }

    fn get(&self, key: &[u8]) -> Option<usize> {
        Memtable::get(self, key)
    }

    fn scan(&self, from: &[u8], len: usize) -> usize {
        Memtable::scan(self, from, len)
    }

    fn step(&self) {
        while self.sort_step(usize::MAX) {}
    }

    fn bytes(&self) -> Option<usize> {
        Some(Memtable::bytes(self))
    }
}

/// A key of the skip list and the B-tree. It sorts by user key; among equal user keys, the newest
/// version is first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key(Box<[u8]>, Reverse<u64>);

/// Allows a lookup in these maps with a borrowed key.
trait Parts {
    fn parts(&self) -> (&[u8], Reverse<u64>);
}

impl Parts for Key {
    fn parts(&self) -> (&[u8], Reverse<u64>) {
        (&self.0, self.1)
    }
}

impl Parts for (&[u8], Reverse<u64>) {
    fn parts(&self) -> (&[u8], Reverse<u64>) {
        *self
    }
}

impl<'a> Borrow<dyn Parts + 'a> for Key {
    fn borrow(&self) -> &(dyn Parts + 'a) {
        self
    }
}

impl PartialEq for dyn Parts + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn Parts + '_ {}

impl PartialOrd for dyn Parts + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for dyn Parts + '_ {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl Contender for SkipMap<Key, Box<[u8]>> {
    fn insert(&self, key: &[u8], seq: u64, row: &[u8]) {
        SkipMap::insert(self, Key(key.into(), Reverse(seq)), row.into());
    }

    fn get(&self, key: &[u8]) -> Option<usize> {
        let from = (key, Reverse(u64::MAX));
        let entry = self.lower_bound::<dyn Parts>(Bound::Included(&from))?;
        (*entry.key().0 == *key).then(|| entry.value().len())
    }

    fn scan(&self, from: &[u8], len: usize) -> usize {
        let from = (from, Reverse(u64::MAX));
        let range =
            self.range::<dyn Parts, _>((Bound::Included(&from as &dyn Parts), Bound::Unbounded));
        range.take(len).map(|entry| entry.key().0.len() + entry.value().len()).sum()
    }
}

impl Contender for RwLock<BTreeMap<Key, Box<[u8]>>> {
    fn insert(&self, key: &[u8], seq: u64, row: &[u8]) {
        let mut map = self.write().expect("no panic");
        map.insert(Key(key.into(), Reverse(seq)), row.into());
    }

    fn get(&self, key: &[u8]) -> Option<usize> {
        let map = self.read().expect("no panic");
        let from = (key, Reverse(u64::MAX));
        let mut range =
            map.range::<dyn Parts, _>((Bound::Included(&from as &dyn Parts), Bound::Unbounded));
        let (found, row) = range.next()?;
        (*found.0 == *key).then_some(row.len())
    }

    fn scan(&self, from: &[u8], len: usize) -> usize {
        let map = self.read().expect("no panic");
        let from = (from, Reverse(u64::MAX));
        let range =
            map.range::<dyn Parts, _>((Bound::Included(&from as &dyn Parts), Bound::Unbounded));
        range.take(len).map(|(key, row)| key.0.len() + row.len()).sum()
    }
}

fn main() {
    let load = Load::new();
    // Removes the argument `--bench`, which cargo adds.
    let arguments: Vec<String> = std::env::args().filter(|word| word != "--bench").collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "paired") {
        let rounds = arguments.get(at + 1).and_then(|rounds| rounds.parse().ok());
        let word = |at| arguments.get(at).map_or("", |word: &String| word);
        return paired(&load, rounds.unwrap_or(5), word(at + 2), word(at + 3));
    }
    let mut criterion = Criterion::default().configure_from_args().sample_size(10);
    for (case, operations, run) in &CASES {
        let mut group = criterion.benchmark_group(*case);
        group.throughput(Throughput::Elements(*operations as u64));
        for (name, make) in CONTENDERS {
            group.bench_function(name, |bencher| match run {
                Case::Fresh(run) => {
                    bencher.iter_custom(|times| (0..times).map(|_| run(make, &load)).sum());
                }
                Case::Filled(run) => {
                    let map = filled(make, &load);
                    bencher.iter_custom(|times| (0..times).map(|_| run(&*map, &load)).sum());
                }
            });
        }
        group.finish();
    }
    criterion.final_summary();
}

/// Runs every case whose name contains `case` with every contender whose name contains `contender`,
/// in turn, `rounds` times. Prints median, lowest and highest, in ns per operation.
///
/// Results of five rounds on a mostly idle virtual machine with two x86-64 cores (load 2): median
/// (lowest). Keys have 36 bytes, with a shared prefix and zero-padded numbers; rows have 100 bytes.
/// An entry takes 226 bytes, including its share of the sorted runs. "Steps" are the engine's
/// background steps.
///
/// | | memtable | crossbeam-skiplist | `RwLock<BTreeMap>` |
/// | --- | --- | --- | --- |
/// | insert, random | 125 (114) | 1,499 (1,474) | 1,212 (1,117) |
/// | insert, ascending | 137 (128) | 195 (190) | 415 (409) |
/// | insert, random, with background steps | 371 (366) | 1,636 (1,595) | 1,251 (1,227) |
/// | get, hit | 133 (123) | 2,203 (2,136) | 962 (935) |
/// | get, miss | 42 (39) | 2,145 (2,068) | 856 (816) |
/// | get, hit, during inserts | 225 (204) | 3,690 (3,494) | 2,062 (2,035) |
/// | first scan of 100, unsorted | 64.8 ms (60.6 ms) | 16,784 (15,696) | 5,573 (5,358) |
/// | first scan of 100, after steps | 355,707 (313,282) | 17,685 (16,705) | 5,656 (5,485) |
/// | later scan of 100 | 13,158 (12,109) | 18,617 (17,044) | 3,340 (3,279) |
/// | all in order, an entry | 37 (36) | 138 (125) | 21 (20) |
fn paired(load: &Load, rounds: usize, contender: &str, case: &str) {
    let makes = CONTENDERS.iter().filter(|(name, _)| name.contains(contender));
    let maps: Vec<_> = makes.map(|(name, make)| (name, make, filled(*make, load))).collect();
    for (case, operations, run) in CASES.iter().filter(|(name, ..)| name.contains(case)) {
        let mut figures = vec![Vec::new(); maps.len()];
        for _ in 0..rounds {
            for ((_, make, map), figures) in maps.iter().zip(&mut figures) {
                let time = match run {
                    Case::Fresh(run) => run(**make, load),
                    Case::Filled(run) => run(&**map, load),
                };
                figures.push(time.as_nanos() as usize / operations);
            }
        }
        print!("{case:36}");
        for ((name, ..), figures) in maps.iter().zip(&mut figures) {
            figures.sort_unstable();
            print!(" {name} {:9} ({}..{})", figures[rounds / 2], figures[0], figures[rounds - 1]);
        }
        println!();
    }
    let bytes = maps.iter().filter_map(|(name, _, map)| Some((name, map.bytes()? / ENTRIES)));
    bytes.for_each(|(name, bytes)| println!("{name}: {bytes} bytes an entry"));
}

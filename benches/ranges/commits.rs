//! Measures the latency of durable commits during compaction. For comparison it measures plain
//! appends and syncs on the same device, in alternating slices of time.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rowstone::{Db, Durability, Table, retry::Rng, stats::Stats};

use super::amplification::{MEMTABLE_BYTES, NOTE_BYTES, entity, pause, rest};

const DEVICE_WRITE: [u8; 4096] = [7; 4096];
/// The file for measuring the device is truncated to zero bytes when it reaches this size.
const DEVICE_BYTES: u64 = 64 << 20;
const INSERT_SLICE: Duration = Duration::from_millis(500);
const DEVICE_SLICE: Duration = Duration::from_millis(250);
/// A commit counts as slow if it exceeds the slowest sync of the device by more than this.
const SLOW: Duration = Duration::from_millis(50);
/// Upserts per second of the paced load.
const PACE: u64 = 60_000;

/// Sorted latencies.
struct Latencies(Vec<Duration>);

/// A file on the measured device, which is appended to and synced like a write-ahead log.
struct Device {
    file: File,
    written: u64,
}

/// The results of one phase.
struct Phase {
    inserts: Latencies,
    device: Latencies,
    loaded_mb_per_second: f64,
    compacted_mb_per_second: f64,
}

struct Bench {
    db: Db,
    busy: Table,
    watched: Table,
    device: PathBuf,
    /// The number of distinct keys that the concurrent load upserts.
    keys: u64,
    inserted: u64,
}

/// Measures durable inserts by one and by four threads while random rows of another table are
/// overwritten, at a fixed pace and at full speed.
pub fn run(dir: &Path, quick: bool) {
    let options = Db::options().memtable_bytes(MEMTABLE_BYTES);
    let db = options.open(dir.join("commits")).expect("room on the disk");
    let busy = db.create_table("Busy").expect("a new database").with_durability(Durability::Os);
    let watched = db.create_table("Watched").expect("a new database");
    let keys = if quick { 500_000 } else { 5_000_000 };
    let phase = Duration::from_secs(if quick { 9 } else { 45 });
    let device = dir.join("device");
    let mut bench = Bench { db, busy, watched, device, keys, inserted: 0 };
    (0..keys).for_each(|key| upsert(&bench.busy, key, key));
    bench.db.flush().expect("room on the disk");
    rest(&bench.db);

    let alone = bench.measure(1, None, phase / 3);
    let alone_p99 = alone.device.at(99.0);
    alone.print("1 thread, no load", alone_p99);
    bench.measure(4, None, phase / 3).print("4 threads, no load", alone_p99);
    for (name, pace) in [("load of 60,000/s", PACE), ("load as fast as it goes", u64::MAX)] {
        for (threads, of) in [(1, "1 thread"), (4, "4 threads")] {
            let name = format!("{of}, {name}");
            bench.measure(threads, Some(pace), phase).print(&name, alone_p99);
        }
    }
    let Bench { db, busy, watched, .. } = bench;
    drop((busy, watched));
    db.close().expect("nothing keeps it from closing");
}

impl Bench {
    /// Measures inserts by `threads` threads and syncs of the device, in alternating slices of
    /// time. Meanwhile a load runs, of `pace` upserts per second.
    fn measure(&mut self, threads: u64, pace: Option<u64>, time: Duration) -> Phase {
        let mut device = Device::new(&self.device);
        let (mut inserts, mut syncs) = (Vec::new(), Vec::new());
        let (ended, before, start) = (AtomicBool::new(false), self.db.stats(), Instant::now());
        let (busy, keys, ended) = (&self.busy, self.keys, &ended);
        std::thread::scope(|scope| {
            if let Some(pace) = pace {
                scope.spawn(move || load(busy, keys, pace, ended));
            }
            while start.elapsed() < time {
                let first = self.inserted;
                let slices: Vec<_> = std::thread::scope(|scope| {
                    let insert = |thread| insert_slice(&self.watched, first, thread);
                    let slices: Vec<_> =
                        (0..threads).map(|thread| scope.spawn(move || insert(thread))).collect();
                    slices.into_iter().map(|slice| slice.join().expect("it ended")).collect()
                });
                self.inserted += slices.iter().map(Vec::len).max().unwrap_or(0) as u64;
                inserts.extend(slices.into_iter().flatten());
                device.slice(&mut syncs);
            }
            ended.store(true, Ordering::Relaxed);
        });
        let (after, seconds) = (self.db.stats(), start.elapsed().as_secs_f64());
        let rate = |name| since(&before, &after, name) / 1e6 / seconds;
        Phase {
            inserts: Latencies::new(inserts),
            device: Latencies::new(syncs),
            loaded_mb_per_second: rate("log_bytes"),
            compacted_mb_per_second: rate("compaction_bytes"),
        }
    }
}

/// Upserts random keys until `ended` is set.
fn load(table: &Table, keys: u64, pace: u64, ended: &AtomicBool) {
    let (mut rng, start, mut count) = (Rng::from_seed(3), Instant::now(), 0u64);
    while !ended.load(Ordering::Relaxed) {
        for _ in 0..64 {
            upsert(table, rng.below(keys), rng.next_u64());
        }
        count += 64;
        let due = Duration::from_secs_f64(count as f64 / pace as f64);
        let early = due.saturating_sub(start.elapsed());
        if !early.is_zero() {
            pause(early);
        }
    }
}

fn upsert(table: &Table, key: u64, seed: u64) {
    let mut note = [0; NOTE_BYTES];
    note[..8].copy_from_slice(&seed.to_le_bytes());
    table.upsert(entity(key, &note)).expect("room on the disk");
}

/// Runs single durable inserts, one after the other, for one slice of time. Returns their
/// latencies.
fn insert_slice(table: &Table, first: u64, thread: u64) -> Vec<Duration> {
    let (start, mut latencies) = (Instant::now(), Vec::new());
    while start.elapsed() < INSERT_SLICE {
        let key = (thread << 32) + first + latencies.len() as u64;
        let row = entity(key, &[1; NOTE_BYTES]);
        let begin = Instant::now();
        table.insert(row).expect("a new key");
        latencies.push(begin.elapsed());
    }
    latencies
}

impl Device {
    fn new(path: &Path) -> Self {
        let options = OpenOptions::new().create(true).write(true).truncate(true).open(path);
        Self { file: options.expect("room on the disk"), written: 0 }
    }

    /// Appends and syncs alternately for one slice of time, and records the latencies.
    fn slice(&mut self, latencies: &mut Vec<Duration>) {
        let start = Instant::now();
        while start.elapsed() < DEVICE_SLICE {
            if self.written >= DEVICE_BYTES {
                self.file.set_len(0).expect("a file of our own");
                std::io::Seek::rewind(&mut self.file).expect("a file of our own");
                self.file.sync_all().expect("the disk works");
                self.written = 0;
            }
            let begin = Instant::now();
            self.file.write_all(&DEVICE_WRITE).expect("room on the disk");
            self.file.sync_data().expect("the disk works");
            latencies.push(begin.elapsed());
            self.written += DEVICE_WRITE.len() as u64;
        }
    }
}

impl Latencies {
    fn new(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        Self(all)
    }

    fn at(&self, percent: f64) -> Duration {
        let place = (self.0.len() as f64 * percent / 100.0) as usize;
        self.0.get(place.min(self.0.len().saturating_sub(1))).copied().unwrap_or_default()
    }

    fn text(&self) -> String {
        let ms = |percent| self.at(percent).as_secs_f64() * 1e3;
        let (p50, p99, p999, max) = (ms(50.0), ms(99.0), ms(99.9), ms(100.0));
        format!("p50 {p50:.3}, p99 {p99:.3}, p99.9 {p999:.3}, max {max:.2} ms of {}", self.0.len())
    }
}

impl Phase {
    /// Prints the results. `alone` is the p99 latency of the device when no load runs.
    fn print(&self, name: &str, alone: Duration) {
        let times = |device: Duration| {
            self.inserts.at(99.9).as_secs_f64() / device.as_secs_f64().max(f64::EPSILON)
        };
        let bound = self.device.at(100.0) + SLOW;
        let slow = self.inserts.0.iter().filter(|latency| **latency > bound).count();
        println!("commits-during-compaction, {name}: {}", self.inserts.text());
        println!("  device meanwhile: {}", self.device.text());
        println!(
            "  p99.9 is {:.1} x the device's p99 meanwhile, {:.1} x its p99 without load; {slow} above {:.0} ms; \
             log {:.1} MB/s, compaction {:.1} MB/s",
            times(self.device.at(99.0)),
            times(alone),
            bound.as_secs_f64() * 1e3,
            self.loaded_mb_per_second,
            self.compacted_mb_per_second,
        );
    }
}

fn since(before: &Stats, after: &Stats, name: &str) -> f64 {
    let of = |stats: &Stats| stats.get(name).expect("a documented name");
    (of(after) - of(before)) as f64
}

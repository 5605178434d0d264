//! Measures the physical limits of the machine (memory, disk, checksums, compression) in the same
//! run as the engines.
//!
//! Not here: which limit applies to a row of the report (`rows.rs`).

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rowstone::fs::{DiskFs, Fs};
use rowstone::retry::Rng;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::built::Built;
use crate::flights;
use crate::plan::RAW_BYTES;
use crate::process::{available_bytes, drop_cached};
use crate::reading::{Data, Reading};

/// The limits: rates are per second, sizes in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Processor, memory, system, file system.
    pub machine: String,
    /// The builds that measured these limits and the figures of the run. There are several if a
    /// later build resumed the run.
    #[serde(default)]
    pub built: Vec<Built>,
    pub memory_read_bytes: f64,
    pub memory_copy_bytes: f64,
    /// Random accesses of one thread to memory, each dependent on the one before: every cache line
    /// holds the number of the next one.
    pub memory_accesses: f64,
    /// Dependent accesses over 4 GiB, where most also miss the TLB.
    #[serde(default)]
    pub far_accesses: f64,
    /// For each measured number of entities, the dependent accesses to a memory region of the size
    /// of their raw bytes. `None` if the machine had less memory available.
    #[serde(default, deserialize_with = "by_entities")]
    pub sized_accesses: BTreeMap<u64, Option<f64>>,
    /// Sequential write of a new file, synced at its end.
    pub write_bytes: f64,
    /// Sequential read of a file outside the page cache.
    pub read_bytes: f64,
    /// Reads of random pages of 4 KiB, by one thread and by two.
    pub random_reads: [f64; 2],
    /// Synced writes of 256 bytes into allocated blocks, by one thread and by four, each with its
    /// own file.
    pub syncs: [f64; 2],
    /// Files of 4 KiB in the page cache that are opened, read and closed per second.
    #[serde(default)]
    pub file_opens: f64,
    pub crc32_bytes: f64,
    pub lz4_compress_bytes: f64,
    pub lz4_decompress_bytes: f64,
    /// The level of zstd in the following fields.
    #[serde(default = "level_before")]
    pub zstd_level: i32,
    pub zstd_compress_bytes: f64,
    pub zstd_decompress_bytes: f64,
    /// Compressed bytes per entity, if zstd compresses 10,000 entities as one piece of JSON.
    pub zstd_entity_bytes: f64,
    /// Compressed bytes per flight, measured like `zstd_entity_bytes`; 0 without flights.
    #[serde(default)]
    pub zstd_flight_bytes: f64,
}

/// The level of rowstone's compressed files, `ZSTD_LEVEL` in its `format/block.rs`. The limits must
/// be measured with the same level.
const ZSTD_LEVEL: i32 = 6;

/// Returns the compression level for result lines that record none.
fn level_before() -> i32 {
    3
}

/// Measures each limit for about `time`, in files in `dir`; `flights` is the CSV of real data.
pub fn measure(dir: &Path, time: Duration, flights: &Path) -> io::Result<Limits> {
    let memory = vec![1_u64; 16 << 20];
    let mut copy = vec![0_u64; 16 << 20];
    let bytes = (memory.len() * 8) as f64;
    let memory_read_bytes = rate(time, bytes, || {
        black_box(memory.iter().fold(0_u64, |sum, number| sum.wrapping_add(*number)));
    });
    let memory_copy_bytes = rate(time, bytes, || {
        copy.copy_from_slice(black_box(&memory));
        black_box(&mut copy);
    });
    drop((memory, copy));
    let data = Data::telemetry(1);
    let json = json((0..SAMPLE).map(|number| data.reading(number)));
    let crc32_bytes = rate(time, json.len() as f64, || {
        black_box(crc32fast::hash(black_box(&json)));
    });
    let lz4 = lz4_flex::block::compress(&json);
    let zstd = zstd::bulk::compress(&json, ZSTD_LEVEL)?;
    let [lz4_compress_bytes, lz4_decompress_bytes, zstd_compress_bytes, zstd_decompress_bytes] =
        compression(&json, &lz4, &zstd, time);
    // Measured before the large file is written, which may keep the disk busy for a while.
    let syncs = [syncs(dir, time, 1)?, syncs(dir, time, 4)?];
    Ok(Limits {
        machine: machine(dir),
        built: Vec::new(),
        memory_read_bytes,
        memory_copy_bytes,
        memory_accesses: accesses(time),
        far_accesses: accesses_over(4 << 30, time),
        sized_accesses: BTreeMap::new(),
        write_bytes: sequential_write(dir, time)?,
        read_bytes: sequential_read(dir, time)?,
        random_reads: [random_reads(dir, time, 1)?, random_reads(dir, time, 2)?],
        syncs,
        file_opens: file_opens(dir, time)?,
        crc32_bytes,
        lz4_compress_bytes,
        lz4_decompress_bytes,
        zstd_level: ZSTD_LEVEL,
        zstd_compress_bytes,
        zstd_decompress_bytes,
        zstd_entity_bytes: zstd.len() as f64 / SAMPLE as f64,
        zstd_flight_bytes: flight_bytes(flights)?,
    })
}

impl Limits {
    /// Returns the rate of dependent accesses to a memory region of the size of the raw bytes of
    /// `entities` entities, if it was measured.
    pub fn accesses_over(&self, entities: u64) -> Option<f64> {
        self.sized_accesses.get(&entities).copied().flatten()
    }

    /// Measures the dependent accesses for each of `sizes` that has no entry yet. Returns whether
    /// any size was missing.
    pub fn add_sizes(&mut self, sizes: &[u64], time: Duration) -> bool {
        let before = self.sized_accesses.len();
        for entities in sizes.iter().copied() {
            let missing = || {
                let bytes = entities * RAW_BYTES;
                let is_there = bytes + SPARE_BYTES <= available_bytes();
                if !is_there {
                    eprintln!(
                        "    accesses over {bytes} bytes are NOT measured: too little memory"
                    );
                }
                // Rounded, because `serde_json` restores the last bit of a float only with a cargo
                // feature. That feature would slow down the other engines, which decode JSON with
                // this crate.
                is_there.then(|| accesses_over(bytes, time).round())
            };
            self.sized_accesses.entry(entities).or_insert_with(missing);
        }
        self.sized_accesses.len() > before
    }
}

/// Reads a map with numbers as keys. In JSON the keys are texts, and serde does not convert them
/// inside an internally tagged enum.
fn by_entities<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<u64, Option<f64>>, D::Error> {
    let texts = BTreeMap::<String, Option<f64>>::deserialize(deserializer)?;
    let number = |(text, value): (String, _)| Ok((text.parse().map_err(Error::custom)?, value));
    texts.into_iter().map(number).collect()
}

/// Memory reserved for the system during the measurement: page tables and other processes.
const SPARE_BYTES: u64 = 512 << 20;
const SAMPLE: u64 = 10_000;
const PAGE_BYTES: u64 = 4096;
const FILE_BYTES: u64 = 256 << 20;
const SYNCED_BYTES: u64 = 4 << 20;

/// Describes the machine in one line.
fn machine(dir: &Path) -> String {
    let field = |path: &str, name: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let value = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("");
        value.trim_start_matches([' ', '\t', ':']).to_owned()
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let kilobytes = field("/proc/meminfo", "MemTotal:").replace(" kB", "");
    let gigabytes = kilobytes.trim().parse::<f64>().unwrap_or(0.0) / (1 << 20) as f64;
    format!(
        "{}, {processors} processors, {gigabytes:.0} GiB of memory, Linux {}, {}",
        field("/proc/cpuinfo", "model name"),
        field("/proc/sys/kernel/osrelease", ""),
        DiskFs::new().kind(dir),
    )
}

/// Returns entities as JSON, concatenated.
fn json(readings: impl Iterator<Item = Reading>) -> Vec<u8> {
    let mut json = Vec::new();
    for reading in readings {
        json.extend_from_slice(reading.key.partition.as_bytes());
        json.extend_from_slice(reading.key.row.as_bytes());
        serde_json::to_writer(&mut json, &reading.properties()).expect("writing to memory");
    }
    json
}

/// Returns `zstd_flight_bytes`: the mean size of a flight in a sample that is compressed as a
/// whole; 0 if there is no file of flights.
fn flight_bytes(csv: &Path) -> io::Result<f64> {
    if !csv.exists() {
        return Ok(0.0);
    }
    let flights: Vec<Reading> = flights::read(csv)?.into_iter().take(SAMPLE as usize).collect();
    let count = flights.len().max(1) as f64;
    Ok(zstd::bulk::compress(&json(flights.into_iter()), ZSTD_LEVEL)?.len() as f64 / count)
}

/// Runs `round` repeatedly for about `time`; returns `amount` times the rounds per second.
fn rate(time: Duration, amount: f64, mut round: impl FnMut()) -> f64 {
    round();
    let (start, mut rounds) = (Instant::now(), 0);
    while start.elapsed() < time {
        round();
        rounds += 1;
    }
    amount * f64::from(rounds) / start.elapsed().as_secs_f64()
}

fn compression(json: &[u8], lz4: &[u8], zstd: &[u8], time: Duration) -> [f64; 4] {
    let bytes = json.len() as f64;
    [
        rate(time, bytes, || {
            black_box(lz4_flex::block::compress(black_box(json)));
        }),
        rate(time, bytes, || {
            let back = lz4_flex::block::decompress(black_box(lz4), json.len());
            black_box(back.expect("as compressed"));
        }),
        rate(time, bytes, || {
            black_box(zstd::bulk::compress(black_box(json), ZSTD_LEVEL).expect("memory"));
        }),
        rate(time, bytes, || {
            let back = zstd::bulk::decompress(black_box(zstd), json.len());
            black_box(back.expect("as compressed"));
        }),
    ]
}

/// Follows a cycle through 256 MiB, one cache line at a time; returns the accesses per second.
fn accesses(time: Duration) -> f64 {
    const LINES: usize = 4 << 20;
    let mut order: Vec<u32> = (0..LINES as u32).collect();
    let mut rng = Rng::from_seed(1);
    // Sattolo's algorithm: one cycle through all lines.
    for last in (1..LINES).rev() {
        order.swap(last, rng.index(last));
    }
    let mut lines = vec![[0_u32; 16]; LINES];
    for (line, next) in lines.iter_mut().zip(order) {
        line[0] = next;
    }
    let mut at = 0;
    rate(time, 100_000.0, || {
        for _ in 0..100_000 {
            at = lines[at as usize][0];
        }
        black_box(at);
    })
}

/// Follows a cycle through `bytes`, one cache line at a time; returns the accesses per second.
fn accesses_over(bytes: u64, time: Duration) -> f64 {
    let count = bytes / size_of::<Line>() as u64;
    // The system zeroes these pages on first access. The loop below accesses them in order, which
    // is cheap.
    let mut lines: Vec<Line> = vec![[0; 8]; count as usize];
    for (line, place) in lines.iter_mut().zip(0..) {
        line[0] = after(place, count);
    }
    let mut at = 0;
    rate(time, 100_000.0, || {
        for _ in 0..100_000 {
            at = lines[at as usize][0];
        }
        black_box(at);
    })
}

type Line = [u64; 8];

/// Returns the successor of `line` in one cycle through all `count` lines, mostly a distant line. A
/// linear congruential generator visits all numbers below the next power of two; numbers of `count`
/// or more are skipped.
fn after(line: u64, count: u64) -> u64 {
    const FACTOR: u64 = 6_364_136_223_846_793_005;
    let period = count.next_power_of_two();
    let step = |line: u64| {
        line.wrapping_mul(FACTOR).wrapping_add(1_442_695_040_888_963_407) & (period - 1)
    };
    let mut next = step(line);
    while next >= count {
        next = step(next);
    }
    next
}

fn file_opens(dir: &Path, time: Duration) -> io::Result<f64> {
    let path = dir.join("limit.small");
    std::fs::write(&path, [7; PAGE_BYTES as usize])?;
    let (start, mut opened) = (Instant::now(), 0_u32);
    while start.elapsed() < time {
        let mut page = [0; PAGE_BYTES as usize];
        File::open(&path)?.read_exact_at(&mut page, 0)?;
        black_box(page);
        opened += 1;
    }
    Ok(f64::from(opened) / start.elapsed().as_secs_f64())
}

fn sequential_write(dir: &Path, time: Duration) -> io::Result<f64> {
    let path = dir.join("limit.sequential");
    let block = vec![0x5a_u8; 1 << 20];
    let mut file = File::create(&path)?;
    let (start, mut written) = (Instant::now(), 0);
    while written < FILE_BYTES || (start.elapsed() < time && written < 4 * FILE_BYTES) {
        file.write_all(&block)?;
        written += block.len() as u64;
    }
    file.sync_all()?;
    Ok(written as f64 / start.elapsed().as_secs_f64())
}

fn sequential_read(dir: &Path, time: Duration) -> io::Result<f64> {
    drop_cached(dir);
    let file = File::open(dir.join("limit.sequential"))?;
    let (mut block, mut at) = (vec![0_u8; 1 << 20], 0);
    let start = Instant::now();
    while start.elapsed() < time {
        let read = file.read_at(&mut block, at)?;
        if read == 0 {
            break;
        }
        at += read as u64;
    }
    Ok(at as f64 / start.elapsed().as_secs_f64())
}

fn random_reads(dir: &Path, time: Duration, threads: u64) -> io::Result<f64> {
    drop_cached(dir);
    let file = File::open(dir.join("limit.sequential"))?;
    // Disables readahead around the requested page.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
    let pages = file.metadata()?.len() / PAGE_BYTES;
    let read = AtomicU64::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for seed in 0..threads {
            let (file, read) = (&file, &read);
            scope.spawn(move || {
                let (mut rng, mut page) = (Rng::from_seed(seed), [0; PAGE_BYTES as usize]);
                // So few reads that hardly any page is read twice.
                for _ in 0..pages / 16 / threads {
                    if start.elapsed() >= time {
                        break;
                    }
                    file.read_exact_at(&mut page, rng.below(pages) * PAGE_BYTES).expect("a page");
                    read.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    Ok(read.into_inner() as f64 / start.elapsed().as_secs_f64())
}

fn syncs(dir: &Path, time: Duration, threads: u64) -> io::Result<f64> {
    let open = |thread| {
        let path = dir.join(format!("limit.sync-{thread}"));
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
        file.write_all(&vec![0; SYNCED_BYTES as usize])?;
        file.sync_all().map(|()| file)
    };
    let files = (0..threads).map(open).collect::<io::Result<Vec<File>>>()?;
    let done = AtomicU64::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for file in files {
            let done = &done;
            scope.spawn(move || {
                let mut at = 0;
                while start.elapsed() < time {
                    file.write_all_at(&[7; 256], at % SYNCED_BYTES).expect("room on the disk");
                    file.sync_data().expect("a sync");
                    at += 256;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    Ok(done.into_inner() as f64 / start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_visited_once_before_any_repeats() {
        for count in [1, 2, 1_000, 1_024, 1_025, 1_640] {
            let mut line = 0;
            let steps = (1..=count).find(|_| {
                line = after(line, count);
                line == 0
            });
            assert_eq!(steps, Some(count));
        }
    }

    #[test]
    fn sizes_are_measured_once_and_stored() {
        let mut limits = Limits { machine: "a machine".into(), ..Limits::default() };
        // The second size exceeds the memory of any machine.
        let sizes = [500, 1 << 50];
        assert!(limits.add_sizes(&sizes, Duration::from_millis(1)));
        assert!(!limits.add_sizes(&sizes, Duration::from_millis(1)));
        assert!(limits.sized_accesses[&500].is_some_and(|rate| rate > 0.0));
        assert_eq!(limits.sized_accesses[&(1 << 50)], None);
        let line = crate::results::Line::Limits { form: "tiny".into(), limits };
        let text = serde_json::to_string(&line).expect("plain data");
        assert_eq!(serde_json::from_str::<crate::results::Line>(&text).expect("as written"), line);
    }
}

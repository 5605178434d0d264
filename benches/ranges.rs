//! Measures the costs of key ranges and compaction on a real disk: bytes written, latencies, space,
//! large loads.
//!
//! `cargo bench --bench ranges` takes long, `-- quick` about four minutes. A further argument
//! selects the measurements whose names contain it. It prints the file system, and refuses a file
//! system in memory. All reads find their data in the page cache.
//!
//! Not here: write amplification (`amplification`), commits during compaction (`commits`), drops
//! and queues (`space`).

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock and pauses")]

#[path = "ranges/amplification.rs"]
mod amplification;
#[path = "ranges/commits.rs"]
mod commits;
#[path = "ranges/space.rs"]
mod space;

use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rowstone::fs::{DiskFs, Fs};
use rowstone::{Db, Durability, Entity, KeyRange, Table, retry::Rng};

use amplification::{Load, MEMTABLE_BYTES, drive, rest, row_bytes};

const PARTITIONS: u64 = 10;
const GETS: usize = 200_000;
const RANGES: usize = 5_000;
const RANGE_ROWS: u64 = 100;
const ROUNDS: usize = 3;

type Measure = fn(&Path, bool);

const MEASURES: [(&str, Measure); 5] = [
    ("write-amplification", write_amplification),
    ("commits-during-compaction", commits::run),
    ("sustained", sustained),
    ("drop", space::drops),
    ("queue", space::queues),
];

fn main() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench-ranges");
    let quick = std::env::args().any(|argument| argument == "quick");
    let mut words = std::env::args().skip(1);
    let word = words.rfind(|word| word != "quick" && !word.starts_with('-')).unwrap_or_default();
    for (name, measure) in MEASURES.iter().filter(|(name, _)| name.contains(&word)) {
        drop(std::fs::remove_dir_all(&dir));
        std::fs::create_dir_all(&dir).expect("the target directory can be written");
        let kind = DiskFs::new().kind(&dir);
        assert!(!matches!(kind.as_str(), "tmpfs" | "ramfs"), "{} is in memory", dir.display());
        let start = Instant::now();
        println!("--- {name}, on {kind}");
        measure(&dir, quick);
        println!("--- {name} took {:.0} s", start.elapsed().as_secs_f64());
    }
    drop(std::fs::remove_dir_all(&dir));
}

/// Measures write amplification: upserts 160 MiB of raw bytes, ten times the memtable size, into an
/// empty table. The variable `TIMES` sets another factor than ten. Keys ascend, or are uniform or
/// zipfian over half as many keys as upserts; ascending keys are also bulk-loaded. The result is
/// the bytes written until background work has ended, divided by the raw bytes of the encoded keys
/// and rows. Both the database and the operating system count the bytes.
fn write_amplification(dir: &Path, _quick: bool) {
    let times = std::env::var("TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(10);
    let row_bytes = row_bytes();
    for load in Load::all(times * MEMTABLE_BYTES as u64, row_bytes) {
        let Load { writes, keys, .. } = load;
        println!("{}: {writes} upserts of {row_bytes} bytes, {keys} keys", load.name);
        let written = drive(&dir.join(load.name), &load, false);
        written.print("rowstone", &load, writes * row_bytes);
        if load.name == "ascending" {
            let written = drive(&dir.join("bulk"), &load, true);
            written.print("rowstone in bulk", &load, writes * row_bytes);
        }
    }
}

/// Seconds per operation, for each kind of read.
struct Costs {
    hit: f64,
    miss: f64,
    range: f64,
    scan: f64,
}

/// Upserts 20 million (quick: 2 million) small rows in random order, then reads. Compares the costs
/// with those in a table that has a twentieth of the rows. Reads start when background work has
/// ended, without a full compaction.
fn sustained(dir: &Path, quick: bool) {
    let (rows, time) = if quick { (2_000_000, 60) } else { (20_000_000, 1_200) };
    let few = loaded_costs(dir, rows / 20, Duration::from_secs(time));
    let many = loaded_costs(dir, rows, Duration::from_secs(time));
    let line = |name: &str, few: f64, many: f64| {
        let (few, many, ratio) = (few * 1e9, many * 1e9, many / few);
        println!("sustained, {name}: {few:.0} ns, then {many:.0} ns: {ratio:.2} x");
    };
    line("point get, hit", few.hit, many.hit);
    line("point get, miss", few.miss, many.miss);
    line("row range of 100", few.range, many.range);
    line("full scan, a row", few.scan, many.scan);
}

/// Loads `rows` rows in random order into a new database, waits until background work has ended,
/// and measures reads.
fn loaded_costs(dir: &Path, rows: u64, time: Duration) -> Costs {
    let path = dir.join(format!("sustained-{rows}"));
    let db = Db::options().durability(Durability::Os).open(path).expect("room on the disk");
    let table = db.create_table("Sustained").expect("a new database");
    let start = Instant::now();
    let loaded = load_shuffled(&table, rows, time);
    let seconds = start.elapsed().as_secs_f64();
    let short = if loaded < rows { ", CUT SHORT by its time" } else { "" };
    db.flush().expect("room on the disk");
    let resting = rest(&db).as_secs_f64();
    println!(
        "sustained: {loaded} rows at {:.0}/s{short}, at rest {resting:.1} s later; {} ranges, {} files, {} MB, at most \
         {} sources a point and {} a scan, {:.1} s of stalls",
        loaded as f64 / seconds,
        stat(&db, "ranges"),
        stat(&db, "files"),
        stat(&db, "file_bytes") / 1_000_000,
        stat(&db, "sources_max"),
        stat(&db, "scan_sources_max"),
        stat(&db, "stall_micros") as f64 / 1e6,
    );
    let costs = costs(&table, rows, loaded);
    drop(table);
    db.close().expect("nothing keeps it from closing");
    costs
}

fn costs(table: &Table, rows: u64, loaded: u64) -> Costs {
    let (order, mut rng) = (shuffled(rows), Rng::from_seed(5));
    let hits: Vec<_> = (0..GETS).map(|_| key(rows, order[rng.below(loaded) as usize])).collect();
    let misses: Vec<_> = hits.iter().map(|(p, r)| (p.clone(), format!("{r}~"))).collect();
    let get = |keys: &[(String, String)], expected: usize| {
        let found = keys.iter().filter(|(partition, row)| {
            let found = table.with_row(partition, row, |row| Ok(black_box(row.len())));
            found.expect("a sound database").is_some()
        });
        assert_eq!(found.count(), expected);
    };
    let each = rows / PARTITIONS;
    let ranges: Vec<_> = (0..RANGES)
        .map(|_| {
            let first = rng.below(each - RANGE_ROWS);
            let (low, high) = (row_key(first), row_key(first + RANGE_ROWS));
            KeyRange::rows(partition_key(rng.below(PARTITIONS)), low.as_str()..high.as_str())
        })
        .collect();
    Costs {
        hit: best(GETS, || get(&hits, GETS)),
        miss: best(GETS, || get(&misses, 0)),
        range: best(RANGES, || {
            let found: u64 = ranges.iter().map(|range| views(table, range.clone())).sum();
            assert!(loaded < rows || found == RANGES as u64 * RANGE_ROWS);
        }),
        scan: best(loaded as usize, || assert_eq!(views(table, KeyRange::all()), loaded)),
    }
}

/// Reads the rows of a range in place, and returns their number.
fn views(table: &Table, range: KeyRange) -> u64 {
    let mut rows = 0;
    let done = table.scan(range).for_each_row(|row| {
        black_box(row.etag());
        rows += 1;
        Ok(ControlFlow::Continue(()))
    });
    done.expect("a sound database");
    rows
}

/// Runs some rounds of `count` operations each. Returns the seconds per operation of the fastest
/// round.
fn best(count: usize, mut round: impl FnMut()) -> f64 {
    round();
    let rounds = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        round();
        start.elapsed().as_secs_f64() / count as f64
    });
    rounds.fold(f64::INFINITY, f64::min)
}

/// Upserts up to `rows` keys in random order within `time`; returns the number of upserts.
fn load_shuffled(table: &Table, rows: u64, time: Duration) -> u64 {
    let start = Instant::now();
    for (i, number) in shuffled(rows).into_iter().enumerate() {
        if i % 1_024 == 0 && start.elapsed() > time {
            return i as u64;
        }
        let (partition, row) = key(rows, number);
        let row =
            Entity::new(partition, row).with("Value", i64::from(number)).with("State", "open");
        table.upsert(row).expect("room on the disk");
    }
    rows
}

/// Returns the numbers below `count` in random order, which is the same in each call.
fn shuffled(count: u64) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..u32::try_from(count).expect("below four billion")).collect();
    let mut rng = Rng::from_seed(4);
    for i in (1..numbers.len()).rev() {
        numbers.swap(i, rng.index(i + 1));
    }
    numbers
}

/// Returns the key of a number below `rows`, in one of ten partitions.
fn key(rows: u64, number: u32) -> (String, String) {
    let each = rows / PARTITIONS;
    (partition_key(u64::from(number) / each), row_key(u64::from(number) % each))
}

fn partition_key(partition: u64) -> String {
    format!("device-{partition}")
}

fn row_key(row: u64) -> String {
    format!("{row:09}")
}

fn stat(db: &Db, name: &str) -> u64 {
    db.stats().get(name).expect("a documented name")
}

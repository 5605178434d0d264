//! Measures queries over 1,000,000 telemetry entities on a real disk, compared with the same rows
//! in a `BTreeMap`.
//!
//! `cargo bench --bench query -- quick` prints median and best of several rounds; without `quick`
//! criterion measures. A further argument selects the measurements whose names contain it. The
//! table files are memory-mapped, compacted, uncompressed and in the page cache. One thread reads.
//!
//! Scan rates count all rows of the scanned range, including rows of skipped blocks. The printed
//! counts show how many blocks were read. The `BTreeMap` decodes into a struct with known fields
//! and borrows its texts, which an entity cannot do, so the comparison favours the `BTreeMap`.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock and the data")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use criterion::{Criterion, Throughput};
use rowstone::fs::{DiskFs, Fs};
use rowstone::{
    DateTime, Db, Durability, Entity, Filter, Guid, KeyRange, Query, Table, options::Codec,
    retry::Rng,
};
use serde::{Deserialize, Serialize};

const PARTITIONS: u64 = 10;
const ROWS: u64 = 100_000;
const POINTS: usize = 100_000;
const RANGES: usize = 10_000;
const ROUNDS: usize = 15;
/// 2024-01-01 in ticks of 100 ns since 1601.
const START: u64 = 133_485_408_000_000_000;

/// A reading, encoded into the values of the `BTreeMap`.
#[derive(Serialize, Deserialize)]
struct Reading<'a> {
    sequence: i64,
    recorded: u64,
    load: i32,
    bucket: i32,
    temperature: f64,
    voltage: f64,
    alarm: bool,
    trace: (u64, u64),
    #[serde(borrow)]
    site: &'a str,
    #[serde(borrow)]
    note: &'a str,
}

type Rows = BTreeMap<(String, String), Vec<u8>>;
type Decode = fn(&[u8]) -> Reading<'_>;

/// Runs measurements, either with criterion or in a few quick rounds.
struct Bench {
    criterion: Option<Criterion>,
    /// Only measurements with this word in their name run.
    word: String,
}

fn main() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench-query");
    drop(std::fs::remove_dir_all(&dir));
    std::fs::create_dir_all(&dir).expect("the target directory can be written");
    let kind = DiskFs::new().kind(&dir);
    println!("file system: {kind}");
    assert!(!matches!(kind.as_str(), "tmpfs" | "ramfs"), "{} is in memory", dir.display());

    let quick = std::env::args().any(|argument| argument == "quick");
    let mut words = std::env::args().skip(1);
    let word = words.rfind(|word| word != "quick" && !word.starts_with('-'));
    let criterion = (!quick).then(Criterion::default);
    let mut bench = Bench { criterion, word: word.unwrap_or_default() };
    let db = Db::options().durability(Durability::Os).codec(Codec::None);
    let db = db.open(dir.join("telemetry")).expect("room on the disk");
    let table = load(&db);
    partition_scans(&mut bench, &table);
    table_scans(&mut bench, &table);
    points(&mut bench, &table);
    row_ranges(&mut bench, &table);
    aggregates(&mut bench, &table);
    newest(&mut bench, &table);
    drop(table);
    db.close().expect("nothing keeps it from closing");

    let json = |reading: &Reading<'_>| serde_json::to_vec(reading).expect("writing to memory");
    let from_json: Decode = |bytes| serde_json::from_slice(bytes).expect("as written");
    maps(&mut bench, "json", json, from_json);
    let binary = |reading: &Reading<'_>| postcard::to_stdvec(reading).expect("writing to memory");
    let from_binary: Decode = |bytes| postcard::from_bytes(bytes).expect("as written");
    maps(&mut bench, "postcard", binary, from_binary);
    flights(&mut bench, &dir);
    if let Some(criterion) = bench.criterion {
        criterion.final_summary();
    }
}

impl Bench {
    /// Measures `round`, which processes `count` items; returns the seconds of the best round.
    fn run(&mut self, name: &str, count: u64, unit: &str, mut round: impl FnMut()) -> f64 {
        if !name.contains(&self.word) {
            return 0.0;
        }
        if let Some(criterion) = &mut self.criterion {
            let mut group = criterion.benchmark_group("query");
            group.throughput(Throughput::Elements(count)).sample_size(20);
            group.bench_function(name, |bencher| bencher.iter(&mut round));
            group.finish();
            return 0.0;
        }
        round();
        let mut seconds: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let start = Instant::now();
                round();
                start.elapsed().as_secs_f64()
            })
            .collect();
        seconds.sort_by(f64::total_cmp);
        let (median, best) = (seconds[ROUNDS / 2], seconds[0]);
        let of = |s: f64| (count as f64 / s / 1e6, s * 1e9 / count as f64);
        let ((rate, each), (best_rate, best_each)) = (of(median), of(best));
        println!(
            "{name}: median {rate:.3} M {unit}/s ({each:.1} ns), best {best_rate:.3} M/s ({best_each:.1} ns)"
        );
        best
    }
}

fn partition_key(partition: u64) -> String {
    format!("device-{partition}")
}

fn row_key(row: u64) -> String {
    format!("{row:09}")
}

/// Calls `with` with the keys and the reading of each row: ten partitions of 100,000 rows, ten
/// typed properties. `Sequence` and `Recorded` ascend with the RowKey. All other properties are
/// random, so that every block holds nearly all of their values.
fn each_reading(mut with: impl FnMut(String, String, &Reading<'_>)) {
    let mut rng = Rng::from_seed(4);
    for partition in 0..PARTITIONS {
        for row in 0..ROWS {
            let (site, note) = (rng.below(1_000), rng.below(100_000));
            let reading = Reading {
                sequence: row as i64,
                recorded: START + row * 10_000_000,
                load: rng.below(1_000) as i32,
                bucket: rng.below(100) as i32,
                temperature: rng.below(100_000) as f64 / 1e3,
                voltage: 220.0 + rng.below(20_000) as f64 / 1e3,
                alarm: rng.chance(1, 50),
                trace: (rng.next_u64(), rng.next_u64()),
                site: &format!("site-{site:03}"),
                note: &format!("checked by {note}"),
            };
            with(partition_key(partition), row_key(row), &reading);
        }
    }
}

fn entity(pk: String, rk: String, reading: &Reading<'_>) -> Entity {
    let mut trace = [0; 16];
    trace[..8].copy_from_slice(&reading.trace.0.to_le_bytes());
    trace[8..].copy_from_slice(&reading.trace.1.to_le_bytes());
    Entity::new(pk, rk)
        .with("Sequence", reading.sequence)
        .with("Recorded", DateTime::from_ticks(reading.recorded).expect("a year of these"))
        .with("Load", reading.load)
        .with("Bucket", reading.bucket)
        .with("Temperature", reading.temperature)
        .with("Voltage", reading.voltage)
        .with("Alarm", reading.alarm)
        .with("Trace", Guid::from_bytes(trace))
        .with("Site", reading.site)
        .with("Note", reading.note)
}

fn load(db: &Db) -> Table {
    let table = db.create_table("Telemetry").expect("a new database");
    let mut loader = table.loader();
    let (start, mut line) = (Instant::now(), 0);
    each_reading(|pk, rk, reading| {
        loader.push(line, entity(pk, rk, reading)).expect("room on the disk");
        line += 1;
    });
    let loaded = loader.finish().expect("room on the disk").loaded;
    assert_eq!(loaded, PARTITIONS * ROWS);
    db.compact().expect("room on the disk");
    println!("{loaded} entities loaded and compacted in {:.1} s", start.elapsed().as_secs_f64());
    table
}

fn query(table: &Table, text: &str) -> Query {
    table.query(text).expect("a filter")
}

/// Reads all rows of a query in place, and returns their number.
fn views(query: Query) -> u64 {
    let mut rows = 0;
    let done = query.for_each_row(|row| {
        black_box(row.etag());
        rows += 1;
        Ok(ControlFlow::Continue(()))
    });
    done.expect("a sound database");
    rows
}

/// Returns a short text with the number of blocks that a query reads and the number of rows found.
fn took(query: Query) -> String {
    let explain = query.explain().expect("a sound database");
    format!(
        "{} of {} blocks read, {} rows found",
        explain.blocks_read(),
        explain.blocks_read() + explain.blocks_skipped(),
        explain.rows_returned()
    )
}

/// The filters: the kind of each, the share of rows that match, and a condition that is combined
/// with the condition on the partition. A zone holds the smallest and largest value of a property
/// in a block.
/// * "tail": the smallest values of a random property. Zones skip the blocks without a matching
///   value: some blocks at 1 %, most at 0.1 %;
/// * "half" and "middle": the wanted values are within the range of values of every block. Zones
///   can skip no block, so the figure is the rate of evaluation alone;
/// * "clustered": a property that ascends with the key, so that zones skip nearly all blocks.
const SCANS: [(&str, &str, &str); 9] = [
    ("tail", "0.1 %", "Load lt 1"),
    ("tail", "1 %", "Bucket lt 1"),
    ("half", "50 %", "Load lt 500"),
    ("middle", "0.1 %", "Load eq 500"),
    ("middle", "1 %", "Bucket eq 50"),
    ("middle, text", "0.1 %", "Site eq 'site-500'"),
    ("middle, two terms", "0.05 %", "Temperature gt 50.0 and Load eq 500"),
    ("clustered", "0.1 %", "Sequence ge 50000 and Sequence lt 50100"),
    ("clustered", "1 %", "Recorded ge datetime'2024-01-01T13:53:20Z' and Sequence lt 51000"),
];

/// Scans one partition repeatedly. Then scans all ten in turn, whose data exceed the processor
/// caches.
fn partition_scans(bench: &mut Bench, table: &Table) {
    for (kind, share, filter) in SCANS {
        let text =
            |partition: u64| format!("PartitionKey eq '{}' and {filter}", partition_key(partition));
        println!("{filter}: {}", took(query(table, &text(3))));
        let texts: Vec<_> = (0..PARTITIONS).map(text).collect();
        let name = format!("partition scan, {kind}, {share}");
        bench.run(&format!("{name}, one partition"), ROWS * 10, "rows", || {
            for _ in 0..10 {
                black_box(views(query(table, &texts[3])));
            }
        });
        let best = bench.run(&format!("{name}, ten in turn"), ROWS * PARTITIONS, "rows", || {
            for text in &texts {
                black_box(views(query(table, text)));
            }
        });
        let found: u64 = texts.iter().map(|text| views(query(table, text))).sum();
        if best > 0.0 {
            println!("  {found} entities returned, best {:.3} M/s", found as f64 / best / 1e6);
        }
    }
}

fn table_scans(bench: &mut Bench, table: &Table) {
    let rows = ROWS * PARTITIONS;
    bench.run("table scan, middle, 0.1 %", rows, "rows", || {
        black_box(views(query(table, "Load eq 500")));
    });
    bench.run("table scan, all, views", rows, "rows", || {
        assert_eq!(views(table.scan(KeyRange::all())), rows);
    });
    bench.run("table scan, all, owned", rows, "rows", || {
        assert_eq!(table.scan(KeyRange::all()).into_iter().map(black_box).count() as u64, rows);
    });
}

/// Returns keys in random order.
fn random_keys(count: usize) -> Vec<(String, String)> {
    let mut rng = Rng::from_seed(5);
    (0..count).map(|_| (partition_key(rng.below(PARTITIONS)), row_key(rng.below(ROWS)))).collect()
}

fn points(bench: &mut Bench, table: &Table) {
    let keys = random_keys(POINTS);
    let count = POINTS as u64;
    let texts: Vec<_> = keys
        .iter()
        .map(|(pk, rk)| format!("PartitionKey eq '{pk}' and RowKey eq '{rk}'"))
        .collect();
    let get = bench.run("point, get", count, "reads", || {
        for (pk, rk) in &keys {
            black_box(table.get(pk, rk).expect("a sound database").expect("it is there"));
        }
    });
    let text = bench.run("point, through text", count, "reads", || {
        for text in &texts {
            let mut found = query(table, text).into_iter();
            black_box(found.next().expect("it is there").expect("a sound database"));
        }
    });
    bench.run("point, parsed only", count, "texts", || {
        for text in &texts {
            black_box(text.parse::<Filter>().expect("a filter"));
        }
    });
    if text > 0.0 {
        println!("  through text costs {:.0} ns more", (text - get) * 1e9 / count as f64);
    }
}

fn row_ranges(bench: &mut Bench, table: &Table) {
    let mut rng = Rng::from_seed(6);
    let ranges: Vec<_> = (0..RANGES)
        .map(|_| {
            let low = rng.below(ROWS - 100);
            (partition_key(rng.below(PARTITIONS)), row_key(low), row_key(low + 100))
        })
        .collect();
    let texts: Vec<_> = ranges
        .iter()
        .map(|(pk, low, high)| {
            format!("PartitionKey eq '{pk}' and RowKey ge '{low}' and RowKey lt '{high}'")
        })
        .collect();
    let range = |(pk, low, high): &(String, String, String)| {
        table.scan(KeyRange::rows(pk.as_str(), low.as_str()..high.as_str()))
    };
    let count = RANGES as u64;
    bench.run("row range of 100, through text, views", count, "queries", || {
        for text in &texts {
            assert_eq!(views(query(table, text)), 100);
        }
    });
    bench.run("row range of 100, scan, views", count, "queries", || {
        for keys in &ranges {
            assert_eq!(views(range(keys)), 100);
        }
    });
    bench.run("row range of 100, through text, owned", count, "queries", || {
        for text in &texts {
            assert_eq!(query(table, text).into_iter().map(black_box).count(), 100);
        }
    });
    bench.run("row range of 100, counted", count, "queries", || {
        for keys in &ranges {
            assert_eq!(range(keys).count().expect("a sound database"), 100);
        }
    });
}

fn aggregates(bench: &mut Bench, table: &Table) {
    let partitions: Vec<_> = (0..PARTITIONS).map(partition_key).collect();
    let rows = ROWS * PARTITIONS;
    let filtered = |pk: &String, rest: &str| query(table, &format!("PartitionKey eq '{pk}'{rest}"));
    bench.run("count of a partition", rows, "rows", || {
        for pk in &partitions {
            assert_eq!(filtered(pk, "").count().expect("a sound database"), ROWS);
        }
    });
    bench.run("count of a partition, middle, 0.1 %", rows, "rows", || {
        for pk in &partitions {
            black_box(filtered(pk, " and Load eq 500").count().expect("a sound database"));
        }
    });
    bench.run("count of a partition, 50 %", rows, "rows", || {
        for pk in &partitions {
            black_box(filtered(pk, " and Load lt 500").count().expect("a sound database"));
        }
    });
    bench.run("aggregate of a partition", rows, "rows", || {
        for pk in &partitions {
            black_box(filtered(pk, "").aggregate("Temperature").expect("a sound database"));
        }
    });
    bench.run("aggregate of a partition, 50 %", rows, "rows", || {
        for pk in &partitions {
            let half = filtered(pk, " and Load lt 500");
            black_box(half.aggregate("Temperature").expect("a sound database"));
        }
    });
}

fn newest(bench: &mut Bench, table: &Table) {
    let partitions: Vec<_> = (0..PARTITIONS).map(partition_key).collect();
    bench.run("newest 100 of a partition, views", 100 * PARTITIONS, "queries", || {
        for pk in partitions.iter().cycle().take(partitions.len() * 100) {
            let all = table.query(Filter::partition(pk.as_str())).expect("a filter");
            assert_eq!(views(all.reverse().top(100)), 100);
        }
    });
}

/// Measures a `BTreeMap` from keys to the same rows, encoded by `encode`.
fn maps(bench: &mut Bench, name: &str, encode: impl Fn(&Reading<'_>) -> Vec<u8>, decode: Decode) {
    let mut map = Rows::new();
    each_reading(|pk, rk, reading| drop(map.insert((pk, rk), encode(reading))));
    let bytes: usize = map.values().map(Vec::len).sum();
    println!("BTreeMap of {name}: {} bytes a row", bytes / map.len());
    let partition = |partition: u64| {
        let low = (partition_key(partition), String::new());
        map.range(low..(partition_key(partition) + "\0", String::new()))
    };
    bench.run(&format!("BTreeMap of {name}, partition scan, 1 %"), ROWS, "rows", || {
        let decoded = partition(3).map(|(_, bytes)| decode(bytes));
        black_box(decoded.filter(|reading| reading.bucket == 50).map(black_box).count());
    });
    bench.run(&format!("BTreeMap of {name}, count of a partition"), ROWS, "rows", || {
        assert_eq!(partition(3).count() as u64, ROWS);
    });
    let keys = random_keys(POINTS);
    bench.run(&format!("BTreeMap of {name}, point"), POINTS as u64, "reads", || {
        for key in &keys {
            black_box(decode(map.get(key).expect("it is there")));
        }
    });
}

/// Measures the flights of `examples/data`, or those of the file that `FLIGHTS` names.
fn flights(bench: &mut Bench, dir: &Path) {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data/flights.csv.gz");
    let data = std::env::var_os("FLIGHTS").map_or(sample, PathBuf::from);
    let path = dir.join("flights");
    let done = Command::new(env!("CARGO_BIN_EXE_rowstone"))
        .arg("import")
        .arg(&path)
        .arg("Flights")
        .arg(&data)
        .args(["--partition-key", "{carrier}-{origin}"])
        .args(["--row-key", "{time_hour}-{flight}-{tailnum}"])
        .args(["--null", "NA", "--durability", "os"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("the binary runs");
    assert!(done.success(), "import of {}", data.display());
    let db = Db::open(&path).expect("the import made it");
    db.compact().expect("room on the disk");
    let table = db.table("Flights").expect("the import made it");
    let rows = table.scan(KeyRange::all()).count().expect("a sound database");
    let text = "dep_delay gt 120 and origin eq 'JFK'";
    println!("{rows} flights, {text}: {}", took(query(&table, text)));
    let best = bench.run("flights, late from JFK", rows, "rows", || {
        black_box(views(query(&table, text)));
    });
    if best > 0.0 {
        println!("  best {:.2} ms", best * 1e3);
    }
    drop(table);
    db.close().expect("nothing keeps it from closing");
}

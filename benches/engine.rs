//! Measures the engine on a real disk: import, point reads, scans, durable commits, bytes written.
//!
//! `cargo bench --bench engine` prints the file system that it runs on, and refuses a file system
//! in memory. The data are the flights of `examples/data`, or of the file that the environment
//! variable `FLIGHTS` names. `-- quick` skips the criterion measurements. README.md has the figures
//! of a run over the flights of a full year.
//!
//! One thread reads random flights from a compacted table whose files are in the page cache.
//! Durable commits are single inserts with durability `sync`, from threads and with tickets. Bytes
//! written to logs and table files are compared with the bytes of the encoded keys and rows.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock and the data")]

use std::collections::VecDeque;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use criterion::{Criterion, Throughput};
use rowstone::fs::{DiskFs, Fs};
use rowstone::{Db, Durability, Entity, EntityGroup, KeyRange, Table, retry::Rng, stats::Stats};

const IMPORTS: usize = 5;
const GETS: usize = 100_000;
const DURABLE_INSERTS: u64 = 32_000;
const ASCENDING_ROWS: u64 = 1_000_000;

fn main() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench-engine");
    drop(std::fs::remove_dir_all(&dir));
    std::fs::create_dir_all(&dir).expect("the target directory can be written");
    let kind = DiskFs::new().kind(&dir);
    println!("file system: {kind}");
    assert!(!matches!(kind.as_str(), "tmpfs" | "ramfs"), "{} is in memory", dir.display());

    let flights = import(&dir);
    let db = Db::open(&flights).expect("the import made it");
    db.compact().expect("room on the disk");
    let table = db.table("Flights").expect("the import made it");
    reads(&table);
    if !std::env::args().any(|argument| argument == "quick") {
        criterion_reads(&table);
    }
    durable_commits(&dir.join("durable"));
    ascending_load(&dir.join("ascending"));
}

/// Imports the flights a few times with durability `os`, each time in a new process of the
/// `rowstone` binary. Returns the last database.
fn import(dir: &Path) -> PathBuf {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data/flights.csv.gz");
    let data = std::env::var_os("FLIGHTS").map_or(sample, PathBuf::from);
    let mut seconds = Vec::new();
    for i in 0..IMPORTS {
        let start = Instant::now();
        let done = Command::new(env!("CARGO_BIN_EXE_rowstone"))
            .arg("import")
            .arg(dir.join(format!("flights-{i}")))
            .arg("Flights")
            .arg(&data)
            .args(["--partition-key", "{carrier}-{origin}"])
            .args(["--row-key", "{time_hour}-{flight}-{tailnum}"])
            .args(["--null", "NA", "--durability", "os"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .expect("the binary runs");
        seconds.push(start.elapsed().as_secs_f64());
        assert!(done.success(), "import of {}", data.display());
    }
    let path = dir.join(format!("flights-{}", IMPORTS - 1));
    let db = Db::open(&path).expect("the import made it");
    let table = db.table("Flights").expect("the import made it");
    let rows = table.scan(KeyRange::all()).into_iter().count() as f64;
    seconds.sort_by(f64::total_cmp);
    let rate = |s: f64| rows / s;
    println!(
        "import of {rows} flights: median {:.0} entities/s ({:.0} to {:.0})",
        rate(seconds[IMPORTS / 2]),
        rate(seconds[IMPORTS - 1]),
        rate(seconds[0]),
    );
    drop(table);
    db.close().expect("nothing keeps it from closing");
    path
}

/// Returns the keys of `count` flights, in random order.
fn random_keys(table: &Table, count: usize) -> Vec<(String, String)> {
    let mut keys = Vec::new();
    table
        .scan(KeyRange::all())
        .for_each_row(|row| {
            keys.push((row.partition_key()?.into_owned(), row.row_key()?.into_owned()));
            Ok(ControlFlow::Continue(()))
        })
        .expect("a sound database");
    let mut rng = Rng::from_seed(1);
    (0..count).map(|_| rng.pick(&keys).clone()).collect()
}

fn get_owned(table: &Table, keys: &[(String, String)]) {
    for (partition, row) in keys {
        black_box(table.get(partition, row).expect("a sound database"));
    }
}

fn get_views(table: &Table, keys: &[(String, String)]) {
    for (partition, row) in keys {
        let found = table.with_row(partition, row, |row| Ok(black_box(row.len())));
        black_box(found.expect("a sound database"));
    }
}

fn scan_owned(table: &Table) -> u64 {
    let mut rows = 0;
    for entity in table.scan(KeyRange::all()) {
        black_box(entity.expect("a sound database"));
        rows += 1;
    }
    rows
}

fn scan_views(table: &Table) -> u64 {
    let mut rows = 0;
    let counted = table.scan(KeyRange::all()).for_each_row(|row| {
        black_box(row.etag());
        rows += 1;
        Ok(ControlFlow::Continue(()))
    });
    counted.expect("a sound database");
    rows
}

/// Reports the fastest of several rounds, because on a shared machine other processes slow some
/// rounds down.
fn best(name: &str, mut round: impl FnMut() -> u64) {
    let mut rates: Vec<f64> = (0..9)
        .map(|_| {
            let start = Instant::now();
            let count = round();
            count as f64 / start.elapsed().as_secs_f64()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    println!("{name}: median {:.0}/s, best {:.0}/s", rates[4], rates[8]);
}

fn reads(table: &Table) {
    let keys = random_keys(table, GETS);
    let absent: Vec<_> = keys.iter().map(|(p, r)| (p.clone(), format!("{r}~"))).collect();
    let count = GETS as u64;
    best("get hit, owned", || {
        get_owned(table, &keys);
        count
    });
    best("get hit, view", || {
        get_views(table, &keys);
        count
    });
    best("get miss", || {
        get_views(table, &absent);
        count
    });
    best("scan, owned", || scan_owned(table));
    best("scan, views", || scan_views(table));
}

fn criterion_reads(table: &Table) {
    let keys = random_keys(table, GETS);
    let mut criterion = Criterion::default();
    let mut group = criterion.benchmark_group("flights");
    group.throughput(Throughput::Elements(GETS as u64));
    group.bench_function("get hit owned", |b| b.iter(|| get_owned(table, &keys)));
    group.bench_function("get hit view", |b| b.iter(|| get_views(table, &keys)));
    group.throughput(Throughput::Elements(scan_views(table)));
    group.bench_function("scan owned", |b| b.iter(|| scan_owned(table)));
    group.bench_function("scan views", |b| b.iter(|| scan_views(table)));
    group.finish();
    criterion.final_summary();
}

fn row(partition: &str, i: u64) -> Entity {
    Entity::new(partition, format!("{i:09}")).with("Value", i as i64).with("State", "open")
}

fn since(before: &Stats, after: &Stats, name: &str) -> f64 {
    let of = |stats: &Stats| stats.get(name).unwrap_or(0);
    (of(after) - of(before)) as f64
}

fn durable_commits(path: &Path) {
    let db = Db::open(path).expect("room on the disk");
    let table = db.create_table("Durable").expect("a new database");
    let mut single = 0.0;
    for threads in [1, 8, 32] {
        let each = DURABLE_INSERTS / threads;
        let rate = commits(&db, &format!("{threads} threads"), single, || {
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    let table = &table;
                    scope.spawn(move || {
                        let partition = format!("threads-{threads}-{thread}");
                        for i in 0..each {
                            table.insert(row(&partition, i)).expect("a new key");
                        }
                    });
                }
            });
            each * threads
        });
        if threads == 1 {
            single = rate;
        }
    }
    for tickets in [8, 32] {
        commits(&db, &format!("{tickets} tickets"), single, || {
            let partition = format!("tickets-{tickets}");
            let mut waiting = VecDeque::new();
            let mut i = 0;
            while i < 5 * DURABLE_INSERTS {
                for _ in 0..tickets {
                    let mut group = EntityGroup::new(partition.as_str());
                    group.insert(row(&partition, i)).expect("one row");
                    waiting.push_back(table.commit_async(group).expect("a new key"));
                    i += 1;
                }
                while let Some(ticket) = waiting.pop_front() {
                    ticket.wait().expect("the disk works");
                }
            }
            i
        });
    }
    db.close().expect("nothing keeps it from closing");
}

fn commits(db: &Db, name: &str, single: f64, run: impl FnOnce() -> u64) -> f64 {
    let (before, start) = (db.stats(), Instant::now());
    let count = run();
    let rate = count as f64 / start.elapsed().as_secs_f64();
    let after = db.stats();
    let per_sync = since(&before, &after, "commits") / since(&before, &after, "log_syncs");
    let times = if single > 0.0 { rate / single } else { 1.0 };
    println!("durable inserts, {name}: {rate:.0}/s, {times:.1} x one writer, {per_sync:.1} a sync");
    rate
}

fn ascending_load(path: &Path) {
    let db = Db::options().durability(Durability::Os).open(path).expect("room on the disk");
    let table = db.create_table("Ascending").expect("a new database");
    let (start, mut loader) = (Instant::now(), table.loader());
    for i in 0..ASCENDING_ROWS {
        loader.push(i, row("telemetry", i)).expect("room on the disk");
    }
    loader.finish().expect("room on the disk");
    let rate = ASCENDING_ROWS as f64 / start.elapsed().as_secs_f64();
    db.flush().expect("room on the disk");
    let stats = db.stats();
    let of = |name| stats.get(name).unwrap_or(0) as f64;
    let written = of("log_bytes") + of("flush_bytes") + of("compaction_bytes");
    let amplification = written / of("raw_bytes");
    println!(
        "ascending load: {rate:.0} entities/s, {amplification:.2} bytes written a byte of keys and rows"
    );
    db.close().expect("nothing keeps it from closing");
}

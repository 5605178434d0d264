//! Measures write amplification: defines the loads, and runs a load on a new database.
//!
//! A load consists of single upserts by one thread with durability `os`. Rows have random bytes, so
//! that compression has no effect on the bytes written.
//!
//! Not here: other engines, which `benches/compare` measures with its own loads.

use std::path::Path;
use std::time::{Duration, Instant};

use rowstone::{Binary, Db, Durability, Entity, KeyRange, retry::Rng};

/// The memtable size.
pub const MEMTABLE_BYTES: usize = 16 << 20;
const PARTITION_ROWS: u64 = 1_000;
/// The number of random bytes in each row. An encoded row has about 120 bytes with its keys and the
/// other properties.
pub const NOTE_BYTES: usize = 72;
/// The skew of the zipfian keys, as in YCSB.
const THETA: f64 = 0.99;
/// Background work counts as finished when nothing has changed for this time.
const QUIET: Duration = Duration::from_secs(2);
const REST_MAX: Duration = Duration::from_secs(600);

/// A sequence of upserts: how many there are, and the order of their keys.
pub struct Load {
    pub name: &'static str,
    /// The number of upserts.
    pub writes: u64,
    /// The number of distinct keys.
    pub keys: u64,
    order: Order,
}

enum Order {
    Ascending,
    Uniform,
    Zipfian(Zipfian),
}

/// Bytes written for a load, by purpose.
#[derive(Default)]
pub struct Written {
    pub log: u64,
    pub flush: u64,
    pub compaction: u64,
    /// All bytes that the process wrote, if the operating system counts them.
    pub process: Option<u64>,
    /// Time until the last write returned.
    pub loading: Duration,
    /// Time from the last write until background work was at rest.
    pub resting: Duration,
}

impl Load {
    /// Returns the three loads. Each has about `bytes` raw bytes in rows of `row_bytes`.
    pub fn all(bytes: u64, row_bytes: u64) -> [Self; 3] {
        let writes = bytes / row_bytes;
        let keys = writes / 2;
        [
            Self { name: "ascending", writes, keys: writes, order: Order::Ascending },
            Self { name: "uniform", writes, keys, order: Order::Uniform },
            Self { name: "zipfian", writes, keys, order: Order::Zipfian(Zipfian::new(keys)) },
        ]
    }

    /// Calls `with` for each write, with the number of the key and random bytes. Every call of
    /// `each` generates the same sequence.
    pub fn each(&self, mut with: impl FnMut(u64, &[u8; NOTE_BYTES])) {
        let (mut keys, mut notes) = (Rng::from_seed(1), Rng::from_seed(2));
        let mut note = [0; NOTE_BYTES];
        for i in 0..self.writes {
            for part in note.chunks_mut(8) {
                part.copy_from_slice(&notes.next_u64().to_le_bytes());
            }
            let key = match &self.order {
                Order::Ascending => i,
                Order::Uniform => keys.below(self.keys),
                Order::Zipfian(zipfian) => zipfian.scattered(&mut keys),
            };
            with(key, &note);
        }
    }
}

impl Written {
    /// Prints one line of the report.
    pub fn print(&self, side: &str, load: &Load, raw: u64) {
        let of = |bytes: u64| bytes as f64 / raw as f64;
        let process = self.process.map_or(String::new(), |bytes| {
            format!("; {:.2} handed over by the process", of(bytes))
        });
        println!(
            "write-amplification, {}, {side}: {:.2} ({:.2} without the log): log {:.2}, flush {:.2}, \
             compaction {:.2}{process}; {:.0} rows/s, at rest {:.1} s later",
            load.name,
            of(self.log + self.flush + self.compaction),
            of(self.flush + self.compaction),
            of(self.log),
            of(self.flush),
            of(self.compaction),
            load.writes as f64 / self.loading.as_secs_f64(),
            self.resting.as_secs_f64(),
        );
    }
}

/// Returns the PartitionKey and the RowKey of key `number`.
pub fn key(number: u64) -> (String, String) {
    (format!("device-{:05}", number / PARTITION_ROWS), format!("{:09}", number % PARTITION_ROWS))
}

/// Returns the entity of key `number`, with `note` as its random bytes.
pub fn entity(number: u64, note: &[u8; NOTE_BYTES]) -> Entity {
    let (partition, row) = key(number);
    Entity::new(partition, row)
        .with("Sequence", i64::from_le_bytes(note[..8].try_into().expect("eight bytes")))
        .with("Load", number as f64)
        .with("Note", Binary(note.to_vec()))
}

/// Returns the encoded bytes of an entity's key and row.
pub fn row_bytes() -> u64 {
    let db = Db::open_in_memory().expect("memory");
    let table = db.create_table("Sized").expect("a new database");
    db.flush().expect("memory");
    let before = db.stats();
    for number in 0..PARTITION_ROWS {
        table.upsert(entity(number, &[255; NOTE_BYTES])).expect("memory");
    }
    db.flush().expect("memory");
    let after = db.stats();
    let of = |name| after.get(name).unwrap_or(0) - before.get(name).unwrap_or(0);
    of("raw_bytes") / of("entries")
}

/// Runs `load` on a new database in `dir`: by single upserts, or, if `is_bulk` is set, with the
/// bulk loader.
pub fn drive(dir: &Path, load: &Load, is_bulk: bool) -> Written {
    let options = Db::options().memtable_bytes(MEMTABLE_BYTES).durability(Durability::Os);
    let db = options.open(dir).expect("room on the disk");
    let table = db.create_table("Readings").expect("a new database");
    let (before, start) = (process_written(), Instant::now());
    if is_bulk {
        let mut loader = table.loader();
        load.each(|key, note| loader.push(key, entity(key, note)).expect("room on the disk"));
        loader.finish().expect("room on the disk");
    } else {
        load.each(|key, note| {
            table.upsert(entity(key, note)).expect("room on the disk");
        });
    }
    let loading = start.elapsed();
    db.flush().expect("room on the disk");
    let resting = rest(&db);
    let process = before.and_then(|before| Some(process_written()? - before));
    let stats = db.stats();
    let of = |name| stats.get(name).expect("a documented name");
    let (log, flush, compaction) = (of("log_bytes"), of("flush_bytes"), of("compaction_bytes"));
    let rows = table.scan(KeyRange::all()).count().expect("a sound database");
    println!(
        "  rowstone: {rows} rows, {:.0} MB in {} files of {} ranges; {} flushes, {} jobs ({:.0} MB into runs, {:.0} MB \
         among young files), {} joins; {} stalls of {:.1} s together",
        of("file_bytes") as f64 / 1e6,
        of("files"),
        of("ranges"),
        of("flushes"),
        of("compaction_jobs"),
        of("compaction_run_bytes") as f64 / 1e6,
        of("compaction_young_bytes") as f64 / 1e6,
        of("joins"),
        of("stalls"),
        of("stall_micros") as f64 / 1e6,
    );
    db.close().expect("nothing keeps it from closing");
    Written { log, flush, compaction, process, loading, resting }
}

/// Waits until background work has ended: no counter changes and nothing is written for a while.
/// Returns the time from the call to the last change.
pub fn rest(db: &Db) -> Duration {
    let start = Instant::now();
    let mut seen = (db.stats(), process_written());
    let mut since = start;
    while since.elapsed() < QUIET {
        pause(Duration::from_millis(20));
        let now = (db.stats(), process_written());
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        if start.elapsed() > REST_MAX {
            println!("  NOT AT REST after {:.0} s", REST_MAX.as_secs_f64());
            break;
        }
    }
    since - start
}

/// Returns the bytes that this process has written so far.
pub fn process_written() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse().ok())
}

pub fn pause(time: Duration) {
    std::thread::park_timeout(time);
}

/// Draws ranks by the method of Gray and others, "Quickly generating billion-record synthetic
/// databases".
struct Zipfian {
    count: u64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipfian {
    fn new(count: u64) -> Self {
        let sum = |n: u64| (1..=n).map(|rank| (rank as f64).powf(-THETA)).sum::<f64>();
        let zeta = sum(count);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - THETA)) / (1.0 - sum(2) / zeta);
        Self { count, zeta, alpha: 1.0 / (1.0 - THETA), eta }
    }

    fn rank(&self, rng: &mut Rng) -> u64 {
        let chance = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let scaled = chance * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(THETA) {
            return 1;
        }
        let rank = self.count as f64 * (self.eta * chance - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.count - 1)
    }

    /// Returns a key by its zipfian rank. Multiplying the rank by a prime scatters the hot keys
    /// over all partitions, and still reaches every key.
    fn scattered(&self, rng: &mut Rng) -> u64 {
        self.rank(rng) * 2_654_435_761 % self.count
    }
}

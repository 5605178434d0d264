//! Defines the cases of `benches/instructions.rs`. Each creates its database in the current
//! directory, and passes the function to be counted to `measured_part`.
//!
//! Entities have ten properties of eight types. One-time costs, such as the checksum of a block,
//! are paid before the measured part, unless the case measures them.
//!
//! Not here: counting and comparing (`instructions.rs`).

use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rowstone::bench_support::LogRecord;
use rowstone::{
    Binary, DateTime, Db, Durability, Entity, EntityEncoder, EntityGroup, Guid, KeyRange, Options,
    Query, RowDecoder, RowView, Table, ValueRef,
    clock::Clock,
    options::{Background, Codec},
};

use super::measured_part;

/// A case to count.
pub struct Case {
    pub name: &'static str,
    /// The number of operations in the counted part. It is the argument of `run`.
    pub operations: u64,
    pub run: fn(u64),
}

/// The number of rows in a table that cases read.
const ROWS: u64 = 10_000;
const PARTITION_ROWS: u64 = 1_000;
const SITES: [&str; 3] = ["site-100", "site-250", "site-499"];
/// 2024-01-01 in ticks of 100 ns since 1601.
const START: u64 = 133_485_408_000_000_000;

const fn case(name: &'static str, operations: u64, run: fn(u64)) -> Case {
    Case { name, operations, run }
}

pub const CASES: &[Case] = &[
    case("build an entity", 1_000, build),
    case("upsert, built and handed to the system", 2_000, upsert),
    case("upsert in a group of 100, an entity", 2_000, groups),
    case("upsert of properties in a group of 100, an entity", 2_000, property_groups),
    case("insert if absent, above a file", 2_000, insert),
    case("insert if absent in a group of 100, above a file, an entity", 2_000, insert_groups),
    case("merge of one property, from a file", 1_000, merge),
    case("merge of one property of 252, in memory", 200, merge_wide),
    case("replace by ETag, in memory", 1_000, replace),
    case("delete, from a file", 1_000, delete),
    case("get, in memory, owned", 1_000, |n| get(&memory(), n, false)),
    case("get, in memory, view", 1_000, |n| get(&memory(), n, true)),
    case("get, in a file, owned", 1_000, |n| get(&file(), n, false)),
    case("get, in a file, view", 1_000, |n| get(&file(), n, true)),
    case("get, in a compressed file, owned", 1_000, |n| get(&compressed(), n, false)),
    case("get, in a compressed file, view", 1_000, |n| get(&compressed(), n, true)),
    case("get, missing in a file", 1_000, miss),
    case("range of 100 in a file, views", 50, |n| ranges(&file(), n)),
    case("range of 100 in a compressed file, views", 50, |n| ranges(&compressed(), n)),
    case("scan of a file, owned, a row", ROWS, scan_owned),
    case("scan of a file, views, a row", ROWS, |_| scan_views(&file())),
    case("scan of a file, all properties in turn, a row", ROWS, scan_properties),
    case("scan of a file, all properties decoded, a row", ROWS, scan_decoded),
    case("scan of memory, views, a row", ROWS, |_| scan_views(&memory())),
    case("scan of four files and memory, views, a row", ROWS, |_| scan_views(&layers())),
    case("filter that takes 0.1 %, a row", ROWS, |_| filter("Load eq 500")),
    case("filter that takes half, views, a row", ROWS, |_| filter("Load lt 500")),
    case("filter on a text, views, a row", ROWS, |_| filter("Site ge 'site-495'")),
    case("flush, a row", ROWS, flush),
    case("merge of five files, a row", ROWS, compact),
    case("log record of one row", 1_000, |n| record(n, 1)),
    case("log record of 100 rows", 50, |n| record(n, 100)),
    case("recovery, a commit", 1_000, recover),
    case("open after a close", 1, open),
];

/// A clock that advances by a fixed time with every read, so that all runs see the same times.
#[derive(Debug)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> u64 {
        self.0.fetch_add(70, Ordering::Relaxed)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos((self.0.load(Ordering::Relaxed) - START) * 100)
    }
}

/// A database and the table that a case uses.
struct Ground {
    db: Db,
    table: Table,
}

fn options() -> Options {
    let clock = Arc::new(Ticking(AtomicU64::new(START)));
    let options = Db::options().background(Background::Manual).durability(Durability::Os);
    options.seed(1).clock(clock)
}

fn empty() -> Ground {
    opened(options())
}

fn opened(options: Options) -> Ground {
    let db = options.open("db").expect("room on the disk");
    let table = db.create_table("Readings").expect("a new database");
    Ground { db, table }
}

fn memory() -> Ground {
    let ground = empty();
    ground.load((0..ROWS).map(mixed));
    ground
}

fn file() -> Ground {
    let ground = memory();
    ground.db.compact().expect("room on the disk");
    ground
}

/// Creates a database with one compressed file. Blocks that were read once stay in the cache.
fn compressed() -> Ground {
    let ground = opened(options().codec(Codec::Zstd));
    // Compaction compresses, and a flush does not. So two flushed files are merged.
    ground.load((0..ROWS).map(mixed).filter(|i| i % 2 == 0));
    ground.db.flush().expect("room on the disk");
    ground.load((0..ROWS).map(mixed).filter(|i| i % 2 == 1));
    ground.db.compact().expect("room on the disk");
    ground
}

/// Creates a database with four table files and a memtable, each with a different fifth of the
/// rows.
fn layers() -> Ground {
    let ground = empty();
    for layer in 0..5 {
        ground.load((0..ROWS).filter(|i| i % 5 == layer));
        if layer < 4 {
            ground.db.flush().expect("room on the disk");
        }
    }
    ground
}

impl Ground {
    fn load(&self, rows: impl Iterator<Item = u64>) {
        let mut loader = self.table.loader();
        for i in rows {
            loader.push(i, entity(i)).expect("room on the disk");
        }
        loader.finish().expect("room on the disk");
    }
}

/// Maps row number `i` to another one, which gives a fixed pseudo-random order.
fn mixed(i: u64) -> u64 {
    i * 7_919 % ROWS
}

fn partition_key(i: u64) -> String {
    format!("device-{:04}", i / PARTITION_ROWS)
}

fn row_key(i: u64) -> String {
    format!("{:012}", i % PARTITION_ROWS)
}

fn keys(count: u64) -> Vec<(String, String)> {
    (0..count).map(|i| (partition_key(mixed(i)), row_key(mixed(i)))).collect()
}

fn entity(i: u64) -> Entity {
    entity_in(&partition_key(i), &row_key(i), i)
}

/// Returns the pseudo-random number from which the values of row `i` are made.
fn u64_of(i: u64) -> u64 {
    (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn recorded(i: u64) -> DateTime {
    DateTime::from_ticks(START + i * 10_000_000).expect("a date")
}

fn entity_in(partition_key: &str, row_key: &str, i: u64) -> Entity {
    let random = u64_of(i);
    Entity::new(partition_key, row_key)
        .with("Alarm", random.is_multiple_of(10))
        .with("Load", (random >> 40) as i32 % 1_000)
        .with("Note", "nothing to report")
        .with("Recorded", recorded(i))
        .with("Sequence", i as i64)
        .with("Signature", Binary(random.to_le_bytes().to_vec()))
        .with("Site", SITES[(random >> 50) as usize % 3])
        .with("Temperature", (random >> 30) as f64 / 1e9)
        .with("Trace", Guid::from_bytes([i as u8; 16]))
        .with("Voltage", 3.3)
}

fn build(n: u64) {
    let keys = keys(n);
    measured_part(&mut || {
        for (i, (partition_key, row_key)) in (0..).zip(&keys) {
            black_box(entity_in(partition_key, row_key, i));
        }
    });
}

fn upsert(n: u64) {
    let ground = empty();
    let keys = keys(n);
    ground.table.upsert(entity(ROWS)).expect("room on the disk");
    measured_part(&mut || {
        for (i, (partition_key, row_key)) in (0..).zip(&keys) {
            let entity = entity_in(partition_key, row_key, i);
            ground.table.upsert(entity).expect("room on the disk");
        }
    });
}

fn groups(n: u64) {
    let ground = empty();
    ground.table.upsert(entity(ROWS)).expect("room on the disk");
    let keys: Vec<_> = (0..n).map(|i| (partition_key(i), row_key(i))).collect();
    measured_part(&mut || {
        for chunk in keys.chunks(100) {
            let mut group = EntityGroup::new(chunk[0].0.as_str());
            for (i, (partition_key, row_key)) in (0..).zip(chunk) {
                group.upsert(entity_in(partition_key, row_key, i)).expect("one partition");
            }
            ground.table.commit(group).expect("room on the disk");
        }
    });
}

/// Upserts groups of properties, from which no entity is built.
fn property_groups(n: u64) {
    let ground = empty();
    ground.table.upsert(entity(ROWS)).expect("room on the disk");
    let keys: Vec<_> = (0..n).map(|i| (partition_key(i), row_key(i))).collect();
    let (mut encoder, mut group) = (EntityEncoder::default(), EntityGroup::new(""));
    measured_part(&mut || {
        for chunk in keys.chunks(100) {
            group.reset(&chunk[0].0);
            for (i, (_, row_key)) in (0..).zip(chunk) {
                let random = u64_of(i);
                let signature = random.to_le_bytes();
                let mut row = [
                    ("Alarm", ValueRef::Boolean(random.is_multiple_of(10))),
                    ("Load", ValueRef::Int32((random >> 40) as i32 % 1_000)),
                    ("Note", ValueRef::String("nothing to report")),
                    ("Recorded", ValueRef::DateTime(recorded(i))),
                    ("Sequence", ValueRef::Int64(i as i64)),
                    ("Signature", ValueRef::Binary(&signature)),
                    ("Site", ValueRef::String(SITES[(random >> 50) as usize % 3])),
                    ("Temperature", ValueRef::Double((random >> 30) as f64 / 1e9)),
                    ("Trace", ValueRef::Guid(Guid::from_bytes([i as u8; 16]))),
                    ("Voltage", ValueRef::Double(3.3)),
                ];
                group.upsert_properties(&mut encoder, row_key, &mut row).expect("one partition");
            }
            ground.table.commit(&group).expect("room on the disk");
        }
    });
}

fn insert(n: u64) {
    let ground = file();
    let keys = keys(n);
    measured_part(&mut || {
        for (i, (partition_key, row_key)) in (0..).zip(&keys) {
            let row_key = format!("{row_key}x");
            ground.table.insert(entity_in(partition_key, &row_key, i)).expect("a new key");
        }
    });
}

/// Inserts groups, each between two keys of the file.
fn insert_groups(n: u64) {
    let ground = file();
    let groups: Vec<_> = keys(n / 100)
        .into_iter()
        .map(|(partition_key, row_key)| {
            let rows: Vec<_> = (0..100).map(|i| format!("{row_key}-{i:03}")).collect();
            (partition_key, rows)
        })
        .collect();
    measured_part(&mut || {
        for (partition_key, row_keys) in &groups {
            let mut group = EntityGroup::new(partition_key.as_str());
            for (i, row_key) in (0..).zip(row_keys) {
                group.insert(entity_in(partition_key, row_key, i)).expect("one partition");
            }
            ground.table.commit(group).expect("room on the disk");
        }
    });
}

fn merge(n: u64) {
    let ground = file();
    let keys = keys(n);
    get_all(&ground, &keys, true);
    measured_part(&mut || {
        for (i, (partition_key, row_key)) in (0_i32..).zip(&keys) {
            let patch = Entity::new(partition_key.as_str(), row_key.as_str()).with("Load", i);
            ground.table.merge(patch).expect("the row is there");
        }
    });
}

fn merge_wide(n: u64) {
    let ground = empty();
    let keys = keys(n);
    for (partition_key, row_key) in &keys {
        let empty = Entity::new(partition_key.as_str(), row_key.as_str());
        let wide = (0..252).fold(empty, |entity, i| entity.with(format!("P{i:03}"), i));
        ground.table.insert(wide).expect("a new key");
    }
    measured_part(&mut || {
        for (i, (partition_key, row_key)) in (0_i32..).zip(&keys) {
            let patch = Entity::new(partition_key.as_str(), row_key.as_str()).with("P100", i);
            ground.table.merge(patch).expect("the row is there");
        }
    });
}

fn replace(n: u64) {
    let ground = memory();
    let etag = |(partition_key, row_key): &(String, String)| {
        let found = ground.table.with_row(partition_key, row_key, |row| Ok(row.etag()));
        found.expect("sound").expect("loaded")
    };
    let keys = keys(n);
    let etags: Vec<_> = keys.iter().map(etag).collect();
    measured_part(&mut || {
        for ((i, (partition_key, row_key)), etag) in (0..).zip(&keys).zip(&etags) {
            let entity = entity_in(partition_key, row_key, i);
            ground.table.replace_if(entity, etag).expect("there is no other writer");
        }
    });
}

fn delete(n: u64) {
    let ground = file();
    let keys = keys(n);
    get_all(&ground, &keys, true);
    measured_part(&mut || {
        for (partition_key, row_key) in &keys {
            ground.table.delete(partition_key, row_key).expect("the row is there");
        }
    });
}

fn get(ground: &Ground, n: u64, view: bool) {
    let keys = keys(n);
    let found = get_all(ground, &keys, view);
    assert_eq!(found as u64, n);
    measured_part(&mut || _ = black_box(get_all(ground, &keys, view)));
}

/// Gets `keys` one by one, in place if `view` is set. Returns the number of keys found.
fn get_all(ground: &Ground, keys: &[(String, String)], view: bool) -> usize {
    let found = |(partition_key, row_key): &&(String, String)| {
        if view {
            let row = ground.table.with_row(partition_key, row_key, |row| {
                Ok(black_box(row.value("Load")?).is_some())
            });
            return row.expect("sound").is_some();
        }
        black_box(ground.table.get(partition_key, row_key).expect("sound")).is_some()
    };
    keys.iter().filter(found).count()
}

fn miss(n: u64) {
    let ground = file();
    let mut keys = keys(n);
    keys.iter_mut().for_each(|(_, row_key)| row_key.push('x'));
    assert_eq!(get_all(&ground, &keys, true), 0);
    measured_part(&mut || _ = black_box(get_all(&ground, &keys, true)));
}

/// Reads all rows of the query in place, and returns their number.
fn views(query: Query) -> u64 {
    let mut rows = 0;
    let done = query.for_each_row(|row| {
        black_box(row.value("Load")?);
        rows += 1;
        Ok(ControlFlow::Continue(()))
    });
    done.expect("sound");
    rows
}

fn ranges(ground: &Ground, n: u64) {
    let range = |i: u64| {
        let from = mixed(i) / 100 * 100;
        let (low, high) = (row_key(from), format!("{:012}", from % PARTITION_ROWS + 100));
        KeyRange::rows(partition_key(from), low.as_str()..high.as_str())
    };
    let ranges: Vec<_> = (0..n).map(range).collect();
    let query = |range: &KeyRange| assert_eq!(views(ground.table.scan(range.clone())), 100);
    ranges.iter().for_each(query);
    measured_part(&mut || ranges.iter().for_each(query));
}

fn scan_owned(n: u64) {
    let ground = file();
    let scan = || ground.table.scan(KeyRange::all()).into_iter().map(black_box).count() as u64;
    assert_eq!(scan(), n);
    measured_part(&mut || _ = black_box(scan()));
}

fn scan_views(ground: &Ground) {
    let scan = || views(ground.table.scan(KeyRange::all()));
    assert_eq!(scan(), ROWS);
    measured_part(&mut || _ = black_box(scan()));
}

fn scan_properties(_: u64) {
    let ground = file();
    scan_all(&ground, &mut |row| {
        for property in row.properties() {
            black_box(property?.1);
        }
        Ok(())
    });
}

fn scan_decoded(_: u64) {
    type All<'r> = (bool, i32, &'r str, DateTime, i64, &'r [u8], &'r str, f64, Guid, f64);
    let mut decoder = RowDecoder::new([
        "Alarm",
        "Load",
        "Note",
        "Recorded",
        "Sequence",
        "Signature",
        "Site",
        "Temperature",
        "Trace",
        "Voltage",
    ]);
    let ground = file();
    scan_all(&ground, &mut |row| {
        let all: All<'_> = decoder.decode(row)?;
        black_box((all.0, all.1, all.2, all.3, all.4));
        black_box((all.5, all.6, all.7, all.8, all.9));
        Ok(())
    });
}

fn scan_all(ground: &Ground, with: &mut impl FnMut(&RowView<'_>) -> rowstone::Result<()>) {
    let mut scan = || {
        let query = ground.table.scan(KeyRange::all());
        let done = query.for_each_row(|row| with(row).map(|()| ControlFlow::Continue(())));
        done.expect("sound");
    };
    scan();
    measured_part(&mut scan);
}

fn filter(text: &str) {
    let ground = file();
    let query = || views(ground.table.query(text).expect("a filter"));
    assert!(query() < ROWS);
    measured_part(&mut || _ = black_box(query()));
}

fn flush(_: u64) {
    let ground = memory();
    measured_part(&mut || ground.db.flush().expect("room on the disk"));
}

fn compact(_: u64) {
    let ground = layers();
    ground.db.flush().expect("room on the disk");
    measured_part(&mut || ground.db.compact().expect("room on the disk"));
}

fn record(n: u64, rows: usize) {
    let mut record = LogRecord::new(rows, 120);
    measured_part(&mut || {
        for _ in 0..n {
            black_box(record.encode());
        }
    });
}

/// Measures recovery after a crash: opens a copy of a database's files that was made after `n`
/// commits, while the database was still open.
fn recover(n: u64) {
    let ground = empty();
    for i in 0..n {
        ground.table.upsert(entity(mixed(i))).expect("room on the disk");
    }
    std::fs::create_dir_all("copy").expect("room on the disk");
    for entry in std::fs::read_dir("db").expect("the database") {
        let path = entry.expect("the database").path();
        let copy = Path::new("copy").join(path.file_name().expect("a file"));
        std::fs::copy(&path, copy).expect("room on the disk");
    }
    let mut opened = None;
    measured_part(&mut || opened = Some(options().open("copy").expect("sound")));
    let replayed = opened.expect("opened").opened().replayed;
    assert!(replayed >= n, "{replayed} commits were recovered");
}

fn open(_: u64) {
    let Ground { db, table } = file();
    drop(table);
    db.close().expect("nothing keeps it from closing");
    let mut opened = None;
    measured_part(&mut || opened = Some(options().open("db").expect("sound")));
    drop(black_box(opened));
}

//! Measures parts of the engine one by one: log records, rows, shapes, filters, merging, commits in
//! memory.
//!
//! Run it with `cargo bench --bench structures`. docs/BENCHMARKS.md explains how to keep a baseline
//! and compare with it.
//!
//! Not here: the memtable and files, which have their own benchmarks; instruction counts
//! (`instructions`).

use std::hint::black_box;
use std::ops::ControlFlow;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use rowstone::bench_support::{LogRecord, RowPath};
use rowstone::{
    DateTime, Db, Durability, Entity, EntityGroup, Filter, Guid, KeyRange, Options, Table,
    options::Background, prop,
};

const ROWS: u64 = 20_000;
/// 2024-01-01 in ticks of 100 ns since 1601.
const START: u64 = 133_485_408_000_000_000;

type Group<'a> = BenchmarkGroup<'a, WallTime>;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("record");
    for rows in [1, 100] {
        records(&mut group, rows);
    }
    group.finish();
    let mut group = criterion.benchmark_group("row");
    rows(&mut group, "10", &reading(1), &Entity::new("p", "r").with("Load", 1));
    let wide = (0..252).fold(Entity::new("p", "r"), |row, i| row.with(format!("P{i:03}"), i));
    rows(&mut group, "252", &wide, &Entity::new("p", "r").with("P100", 1));
    group.finish();
    filters(&mut criterion);
    scans(&mut criterion);
    commits(&mut criterion);
    criterion.final_summary();
}

/// Returns an entity of ten properties.
fn reading(i: u64) -> Entity {
    let mixed = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Entity::new(format!("device-{:02}", i / 1_000), format!("{:012}", i % 1_000))
        .with("Alarm", mixed.is_multiple_of(10))
        .with("Bucket", (mixed % 100) as i32)
        .with("Load", (mixed >> 20) as i32 % 1_000)
        .with("Note", "nothing to report")
        .with("Recorded", DateTime::from_ticks(START + i * 10_000_000).expect("a date"))
        .with("Sequence", i as i64)
        .with("Site", format!("site-{:03}", mixed % 500))
        .with("Temperature", (mixed % 1_000) as f64 / 10.0)
        .with("Trace", Guid::from_bytes([i as u8; 16]))
        .with("Voltage", 3.3)
}

fn records(group: &mut Group<'_>, rows: usize) {
    let mut record = LogRecord::new(rows, 120);
    group.throughput(Throughput::Elements(rows as u64));
    group.bench_function(format!("encode/{rows}"), |bencher| bencher.iter(|| record.encode()));
    group.bench_function(format!("decode/{rows}"), |bencher| bencher.iter(|| record.decode()));
}

/// Measures operations on rows; `name` is the number of properties of the entity.
fn rows(group: &mut Group<'_>, name: &str, entity: &Entity, patch: &Entity) {
    let row = RowPath::new(entity.clone(), patch);
    let last = entity.properties().last().expect("properties").0;
    group.bench_function(format!("build/{name}"), |bencher| {
        bencher.iter(|| {
            let empty = Entity::new(entity.partition_key(), entity.row_key());
            entity.properties().fold(empty, |made, (name, value)| made.with(name, value.to_value()))
        });
    });
    group.bench_function(format!("encode/{name}"), |bencher| bencher.iter(|| row.encode()));
    group.bench_function(format!("shape number/{name}"), |bencher| bencher.iter(|| row.number()));
    group.bench_function(format!("find/{name}"), |bencher| bencher.iter(|| row.find(last)));
    group.bench_function(format!("check/{name}"), |bencher| bencher.iter(|| row.check()));
    group.bench_function(format!("merge/{name}"), |bencher| bencher.iter(|| row.merge()));
}

fn options() -> Options {
    Db::options().background(Background::Manual).durability(Durability::Os).seed(1)
}

fn filled(db: &Db, rows: impl Iterator<Item = u64>) -> Table {
    let (table, mut loader) = (db.table_or_create("Readings").expect("memory"), None);
    for i in rows {
        let loader = loader.get_or_insert_with(|| table.loader());
        loader.push(i, reading(i)).expect("memory");
    }
    loader.map(|loader| loader.finish().expect("memory"));
    table
}

fn filters(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("filter");
    group.bench_function("parse", |bencher| {
        let text = "PartitionKey eq 'device-07' and RowKey ge '000000000100' and Load lt 500";
        bencher.iter(|| black_box(text).parse::<Filter>().expect("a filter"));
    });
    let filter = prop("Load").lt(500).and(prop("Site").ge("site-250"));
    let entity = reading(7);
    group.bench_function("match an entity", |bencher| bencher.iter(|| filter.matches(&entity)));
    let db = options().open_in_memory().expect("memory");
    let table = filled(&db, 0..ROWS);
    db.compact().expect("memory");
    group.throughput(Throughput::Elements(ROWS));
    // Zones (the value range of each property in a block) can skip no block for the first filter,
    // and nearly all blocks for the second.
    for text in ["Load eq 500", "Sequence eq 500L"] {
        group.bench_function(format!("count/{text}"), |bencher| {
            bencher.iter(|| table.query(text).expect("a filter").count().expect("sound"));
        });
    }
    group.finish();
}

/// Measures scans that merge several sorted sources. The rows of one table are distributed over the
/// sources in turn.
fn scans(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("merge of sources");
    group.throughput(Throughput::Elements(ROWS));
    for sources in [1, 4] {
        let db = options().open_in_memory().expect("memory");
        for source in 0..sources {
            filled(&db, (0..ROWS).filter(|i| i % sources == source));
            if source + 1 < sources {
                db.flush().expect("memory");
            }
        }
        let table = db.table("Readings").expect("made above");
        group.bench_function(format!("{sources}"), |bencher| {
            bencher.iter(|| {
                let mut rows = 0;
                let looked = table.scan(KeyRange::all()).for_each_row(|row| {
                    rows += row.len();
                    Ok(ControlFlow::Continue(()))
                });
                looked.expect("sound");
                rows
            });
        });
    }
    group.finish();
}

/// Measures the cost of a commit without the disk: the log is in memory.
fn commits(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("commit in memory");
    for rows in [1, 100] {
        let db = options().memtable_bytes(16 << 20).open_in_memory().expect("memory");
        let table = db.create_table("Readings").expect("memory");
        group.throughput(Throughput::Elements(rows));
        let mut next = 0;
        group.bench_function(format!("upsert/{rows}"), |bencher| {
            bencher.iter(|| {
                next = (next + rows) % ROWS;
                if rows == 1 {
                    table.upsert(reading(next)).expect("memory");
                    return;
                }
                let mut group = EntityGroup::new(format!("device-{:02}", next / 1_000));
                for i in next..next + rows {
                    group.upsert(reading(i)).expect("one partition");
                }
                table.commit(group).expect("memory");
            });
        });
    }
    group.finish();
}

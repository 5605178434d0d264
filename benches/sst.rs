//! One SST of 340,000 rows of 100 bytes: point reads, scans, seeks, building.
//!
//! `cargo bench --bench sst` measures with criterion. PLACEHOLDER

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rowstone::bench_support::{SstFile, SstShape};

const ROWS: u64 = 340_000;
const ROW_BYTES: usize = 100;
const SEEKS: usize = 1_000;

/// Keys of a telemetry table: a thousand devices, each with its readings in order.
fn key(i: u64, out: &mut Vec<u8>) {
    use std::io::Write;
    out.clear();
    // The table's number, the partition, a zero, the row key: what the engine hands down.
    let written = write!(out, "\0\0\0\x01device-{:04}\0{:012}", i / 340, i % 340 * 1_000);
    written.expect("writing to memory");
}

/// A key between two of the file.
fn absent(i: u64, out: &mut Vec<u8>) {
    key(i, out);
    out.push(b'x');
}

/// All keys, in order.
fn keys(make: fn(u64, &mut Vec<u8>)) -> Vec<Vec<u8>> {
    let make = |i| {
        let mut out = Vec::new();
        make(i, &mut out);
        out
    };
    (0..ROWS).map(make).collect()
}

/// All keys, in an order that caches do not foresee.
fn shuffled(make: fn(u64, &mut Vec<u8>)) -> Vec<Vec<u8>> {
    // A step without a common factor with ROWS visits every key once.
    let keys = keys(make);
    (0..ROWS).map(|i| keys[(i * 123_457 % ROWS) as usize].clone()).collect()
}

fn gets(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("get");
    group.throughput(Throughput::Elements(1));
    let (all, present, absent) = (keys(key), shuffled(key), shuffled(absent));
    for shape in [SstShape::Mapped, SstShape::Cached] {
        let file = SstFile::build(shape, &all, ROW_BYTES);
        for (name, keys, expected) in [("hit", &present, true), ("miss", &absent, false)] {
            let mut i = 0;
            group.bench_function(format!("{name}/{shape:?}"), |bencher| {
                bencher.iter(|| {
                    i = if i + 1 == keys.len() { 0 } else { i + 1 };
                    assert_eq!(file.get(black_box(&keys[i])).is_some(), expected);
                });
            });
        }
    }
    group.finish();
}

fn scans(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("scan");
    group.throughput(Throughput::Elements(ROWS));
    let all = keys(key);
    for shape in [SstShape::Mapped, SstShape::Cached, SstShape::MappedZstd] {
        let file = SstFile::build(shape, &all, ROW_BYTES);
        group.bench_function(format!("{shape:?}"), |bencher| bencher.iter(|| file.scan()));
    }
    group.finish();
}

fn seeks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("seek");
    group.throughput(Throughput::Elements(SEEKS as u64));
    let file = SstFile::build(SstShape::Mapped, &keys(key), ROW_BYTES);
    let keys = shuffled(key);
    group.bench_function("Mapped", |bencher| {
        bencher.iter(|| file.seeks(keys.iter().take(SEEKS).map(Vec::as_slice)));
    });
    group.finish();
}

fn builds(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("build");
    group.sample_size(10);
    group.throughput(Throughput::Elements(ROWS));
    let all = keys(key);
    for shape in [SstShape::Mapped, SstShape::MappedZstd] {
        group.bench_function(format!("{shape:?}"), |bencher| {
            bencher.iter(|| SstFile::build(shape, &all, ROW_BYTES).bytes());
        });
    }
    group.finish();
}

criterion_group!(benches, gets, scans, seeks, builds);
criterion_main!(benches);

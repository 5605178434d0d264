//! Runs each session: measures its rows of the report, in order.

use std::time::Instant;

use super::reads::{self, Keys};
use super::{Bench, Emit, Spec, fill, fresh, life, load_all, mixes, updates};
use crate::flights;
use crate::measure::Timing;
use crate::oracle::Oracle;
use crate::process::{self, disk_bytes};
use crate::reading::Data;
use crate::results::Figures;
use crate::rows::Session;
use crate::sheet::Kind;
use crate::store::{Filter, Store};

/// The database shared by most rows.
const BASE: &str = "base";
/// Matches one of a hundred humidities, which are equally frequent between 0 and 100.
const BETWEEN: Filter = Filter::Between(49.5, 50.5);

/// Runs the session of `spec`, and passes every figure to `emit`.
pub fn run(spec: &Spec, emit: &mut Emit<'_>) {
    let data = match spec.session {
        Session::Amplification => Data::payload(spec.seed),
        Session::Flights => {
            let path = spec.csv.as_deref().expect("the file of flights is told");
            Data::real(spec.seed, flights::read(path).expect("flights can be read"))
        }
        _ => Data::telemetry(spec.seed),
    };
    let mut bench = Bench::new(spec, data, emit);
    match spec.session {
        Session::Load => fresh::loads(&mut bench),
        Session::Commit => {
            fresh::commits(&mut bench);
            fresh::inserts(&mut bench);
            fresh::queue(&mut bench);
        }
        Session::Serve => serve(&mut bench),
        Session::ColdLoad => {
            let store = spec.open(BASE);
            load_all(spec, &bench.data, &*store, spec.entities);
            store.settle();
            store.close();
        }
        Session::Cold => cold(&mut bench),
        Session::Amplification => fill::amplification(&mut bench),
        Session::Compressed => compressed(&mut bench),
        Session::Growth => growth(&mut bench),
        Session::Sheets => sheets(&mut bench),
        Session::Flights => real(&mut bench),
    }
}

/// Loads a database with all entities in random order. Returns it with its expected contents.
fn loaded(bench: &mut Bench<'_>, row: Option<&str>) -> (Box<dyn Store>, Oracle) {
    let oracle = Oracle::new(&bench.data, bench.spec.entities);
    bench.begin();
    let store = bench.spec.open(BASE);
    let load = |bench: &Bench<'_>| load_all(bench.spec, &bench.data, &*store, bench.spec.entities);
    match row {
        Some(row) if bench.wants(row) => bench.row(row, &*store, true, load),
        _ => drop(load(bench)),
    }
    store.settle();
    (store, oracle)
}

fn serve(bench: &mut Bench<'_>) {
    let (owned, mut oracle) = loaded(bench, None);
    let store = &*owned;
    assert_eq!(store.scan(), oracle.all(), "what was loaded is not what is there");
    reads::points(bench, "get-hit", store, &oracle, Keys::Hit, 1);
    reads::points(bench, "get-hit-2", store, &oracle, Keys::Hit, 2);
    reads::views(bench, "get-view", store, &oracle);
    reads::points(bench, "get-miss", store, &oracle, Keys::Miss, 1);
    reads::points(bench, "get-miss-2", store, &oracle, Keys::Miss, 2);
    reads::ranges(bench, "range-100", store, &oracle);
    reads::scans(bench, "scan", store, &oracle);
    reads::filters(bench, "filter-0.1", store, &oracle, reads::coldest(&oracle, 1));
    reads::filters(bench, "filter-1", store, &oracle, reads::coldest(&oracle, 10));
    reads::filters(bench, "filter-50", store, &oracle, reads::coldest(&oracle, 500));
    reads::filters(bench, "filter-between", store, &oracle, BETWEEN);
    updates::refused(bench, "insert-refused", store, &oracle);
    let owned = at_rest(bench, "disk", owned, &oracle);
    let store = &*owned;
    reads::points(bench, "get-hit-compacted", store, &oracle, Keys::Hit, 1);
    reads::points(bench, "get-miss-compacted", store, &oracle, Keys::Miss, 1);
    reads::scans(bench, "scan-compacted", store, &oracle);
    reads::filters(bench, "filter-0.1-compacted", store, &oracle, reads::coldest(&oracle, 1));
    updates::replaces(bench, "replace", store, &mut oracle);
    updates::merges(bench, "merge", store, &mut oracle);
    mixes::ycsb(bench, store, &mut oracle);
    mixes::reads_with_writer(bench, store, &oracle);
    updates::deletes(bench, "delete", store, &mut oracle);
    life::drop_tenth(bench, store, &mut oracle);
    life::open_again(bench, BASE, owned, &mut oracle);
}

/// Measures the size of the database at rest: compacts and closes it, then opens and closes it once
/// more, which removes preallocated space and obsolete files. Reopens it for the following rows.
fn at_rest(
    bench: &mut Bench<'_>,
    row: &str,
    store: Box<dyn Store>,
    oracle: &Oracle,
) -> Box<dyn Store> {
    compact(bench, "compressed-compact", &*store);
    store.close();
    let store = bench.spec.open(BASE);
    store.settle();
    store.close();
    if bench.wants(row) {
        disk(bench, row);
    }
    let store = bench.spec.open(BASE);
    // Called even if the row is not selected, because the scan checks the contents after the
    // compaction.
    reads::first_scan(bench, "scan-first", &*store, oracle);
    store
}

/// Compacts the database. For engines that compress, `row` measures the time until the result is
/// durable. The time until the engine is idle is excluded, because it depends on the polling
/// interval.
fn compact(bench: &mut Bench<'_>, row: &str, store: &dyn Store) {
    let entities = bench.spec.entities;
    let merge = |_: &Bench<'_>| {
        let (start, cpu) = (Instant::now(), process::cpu_seconds());
        store.compact();
        store.sync();
        let seconds = start.elapsed().as_secs_f64();
        let cpu_seconds = process::cpu_seconds() - cpu;
        Timing { ops: entities, entities, seconds, cpu_seconds, ..Timing::default() }
    };
    match (bench.wants(row), store.packs_with()) {
        (true, Some(with)) => {
            let figures = bench.measured(row, store, true, merge);
            bench.emit(row, Figures { note: Some(with.to_owned()), ..figures });
        }
        (is_wanted, _) => {
            merge(bench);
            store.settle();
            if is_wanted {
                bench.unsupported(row);
            }
        }
    }
}

fn disk(bench: &mut Bench<'_>, row: &str) {
    let bytes = disk_bytes(&bench.spec.dir.join(BASE));
    let entities = bench.spec.entities;
    bench.emit(
        row,
        Figures {
            value: bytes as f64 / entities as f64,
            entities,
            disk_bytes: Some(bytes),
            raw_bytes_each: bench.raw_bytes_each,
            ..Figures::default()
        },
    );
}

fn compressed(bench: &mut Bench<'_>) {
    let (store, oracle) = loaded(bench, None);
    let store = at_rest(bench, "disk-compressed", store, &oracle);
    let reader = &*store;
    reads::points(bench, "compressed-get-hit", reader, &oracle, Keys::Hit, 1);
    reads::points(bench, "compressed-get-miss", reader, &oracle, Keys::Miss, 1);
    reads::ranges(bench, "compressed-range-100", reader, &oracle);
    reads::scans(bench, "compressed-scan", reader, &oracle);
    reads::filters(bench, "compressed-filter-1", reader, &oracle, reads::coldest(&oracle, 10));
    store.close();
}

/// Measures reads of a database that another process loaded, after its page cache was dropped.
fn cold(bench: &mut Bench<'_>) {
    let oracle = Oracle::new(&bench.data, bench.spec.entities);
    bench.begin();
    let store = bench.spec.open(BASE);
    let reader = &*store;
    reads::points(bench, "cold-get-hit", reader, &oracle, Keys::Hit, 1);
    reads::points(bench, "cold-get-hit-2", reader, &oracle, Keys::Hit, 2);
    reads::points(bench, "cold-get-miss", reader, &oracle, Keys::Miss, 1);
    reads::points(bench, "cold-get-miss-2", reader, &oracle, Keys::Miss, 2);
    reads::ranges(bench, "cold-range-100", reader, &oracle);
    reads::scans(bench, "cold-scan", reader, &oracle);
    store.close();
}

fn growth(bench: &mut Bench<'_>) {
    let (store, mut oracle) = loaded(bench, Some("growth-load"));
    let reader = &*store;
    reads::points(bench, "growth-get-hit", reader, &oracle, Keys::Hit, 1);
    reads::points(bench, "growth-get-miss", reader, &oracle, Keys::Miss, 1);
    reads::ranges(bench, "growth-range-100", reader, &oracle);
    touched(bench, "growth-get-hit-touched", reader, &oracle);
    updates::merges(bench, "growth-merge", reader, &mut oracle);
    store.close();
}

/// Measures point reads after a scan has read every block. Without the scan, most gets in a large
/// database would be the first access to their block.
fn touched(bench: &mut Bench<'_>, row: &str, store: &dyn Store, oracle: &Oracle) {
    if bench.wants(row) {
        assert_eq!(store.scan(), oracle.all(), "what was loaded is not what is there");
        reads::points(bench, row, store, oracle, Keys::Hit, 1);
    }
}

/// Measures sheets: entities of 252 properties, and entities near 1 MiB. This session has fewer
/// entities than others, so that all of them fit into memory and no measurement takes long.
fn sheets(bench: &mut Bench<'_>) {
    let entities = bench.spec.entities;
    updates::sheet_merges(bench, "merge-wide", Kind::Wide, (entities / 100).clamp(10, 2_000));
    updates::sheet_merges(bench, "merge-large", Kind::Large, (entities / 3_000).clamp(4, 64));
}

fn real(bench: &mut Bench<'_>) {
    let (store, oracle) = loaded(bench, Some("flights-load"));
    let reader = &*store;
    assert_eq!(reader.scan(), oracle.all(), "what was loaded is not what is there");
    reads::points(bench, "flights-get-hit", reader, &oracle, Keys::Hit, 1);
    reads::scans(bench, "flights-scan", reader, &oracle);
    reads::filters(bench, "flights-filter-1", reader, &oracle, reads::coldest(&oracle, 10));
    at_rest(bench, "flights-disk", store, &oracle).close();
}

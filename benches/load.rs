//! Measures the cost of counting the load of key ranges. The same work runs with and without the
//! counting, alternately in one process.
//!
//! Run it with `cargo bench --bench load`. Rounds of three series alternate: one with counting, and
//! two without. The difference between the two series without counting is the noise. A cost below
//! it cannot be measured.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use rowstone::bench_support::count_loads;
use rowstone::{Db, Durability, Entity, Table, retry::Rng};

const ROWS: u64 = 300_000;
const GETS: u64 = 50_000;
const PUTS: u64 = 20_000;
const ROUNDS: usize = 120;

fn main() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench-load");
    drop(std::fs::remove_dir_all(&dir));
    let options = Db::options().durability(Durability::Buffered);
    let db = options.open(&dir).expect("room on the disk");
    let table = db.create_table("Readings").expect("a new database");
    (0..ROWS).for_each(|i| put(&table, i));
    db.compact().expect("room on the disk");
    let mut rng = Rng::from_seed(1);
    let keys: Vec<_> = (0..GETS).map(|_| key(rng.below(ROWS))).collect();
    measure(&db, "point get, warm, as a row view", GETS, || {
        for (partition, row) in &keys {
            let found = table.with_row(partition, row, |row| Ok(black_box(row.len())));
            black_box(found.expect("a sound database"));
        }
    });
    measure(&db, "put, buffered", PUTS, || (0..PUTS).for_each(|_| put(&table, rng.below(ROWS))));
    measure(&db, "query of a partition", 300, || {
        let query = table.query("PartitionKey eq 'device-0100' and Value lt 0").expect("a filter");
        (0..300).for_each(|_| drop(black_box(query.clone().count())));
    });
    db.close().expect("nothing keeps it from closing");
}

fn key(i: u64) -> (String, String) {
    (format!("device-{:04}", i % 1_000), format!("{i:09}"))
}

fn put(table: &Table, i: u64) {
    let (partition, row) = key(i);
    let entity = Entity::new(partition, row).with("Value", i as i64).with("State", "open");
    black_box(table.upsert(entity).expect("room on the disk"));
}

fn measure(db: &Db, name: &str, ops: u64, mut round: impl FnMut()) {
    let mut nanos = [const { Vec::new() }; 3];
    for i in 0..ROUNDS + 3 {
        // Rotates the order, so that each series is first, second and third equally often.
        for place in 0..3 {
            let series = (place + i) % 3;
            count_loads(db, series == 0);
            let start = Instant::now();
            round();
            if i >= 3 {
                nanos[series].push(start.elapsed().as_nanos() as f64 / ops as f64);
            }
        }
    }
    count_loads(db, true);
    let [counted, without, again] = nanos.map(|mut rounds: Vec<f64>| {
        rounds.sort_by(f64::total_cmp);
        rounds[rounds.len() / 2]
    });
    let percent = |a: f64, b: f64| 100.0 * (a / b - 1.0);
    println!(
        "{name}: {counted:.1} ns counted, {without:.1} and {again:.1} ns not: {:+.2} %, noise {:+.2} %",
        percent(counted, f64::midpoint(without, again)),
        percent(again, without)
    );
}

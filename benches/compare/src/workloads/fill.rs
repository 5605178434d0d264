//! Measures write amplification: fills a database with entities of about 1 KiB in random order.

use super::Bench;
use crate::choose::Permutation;
use crate::measure::{Budget, Hand, Pace, run};
use crate::process::{Memory, disk_bytes, written_bytes};
use crate::reading::Reading;
use crate::results::Figures;
use crate::store::Durability::Os;
use crate::store::Found;

const NAME: &str = "fill";

pub fn amplification(bench: &mut Bench<'_>) {
    let store = bench.spec.open(NAME);
    let count = bench.spec.entities;
    let order = Permutation::new(bench.spec.seed, count);
    Memory::reset_peak();
    let before = written_bytes();
    let (mut place, mut all) = (0, Found::default());
    let hand = Hand {
        make: Box::new(|wanted| {
            let end = (place + wanted as u64).min(count);
            let places = std::mem::replace(&mut place, end)..end;
            places.map(|place| bench.data.reading(order.at(place))).collect()
        }),
        act: Box::new(|reading: &Reading| {
            store.put(reading, Os);
            Found { entities: 1, digest: 0 }
        }),
        check: Box::new(|readings: &[Reading], _| {
            let add = |reading: &Reading| all.add(Found::one(Some(reading.digest())));
            readings.iter().for_each(add);
        }),
    };
    let budget = Budget { ops: count, time: bench.spec.load_time * 2 };
    let timing = run(hand, Pace { chunk: 512, ..Pace::USUAL }, budget);
    store.sync();
    store.settle();
    let written_bytes = written_bytes() - before;
    assert_eq!(store.scan(), all, "what was written is not what is there");
    store.close();
    // Opens and closes the database once more, so that the measured size includes neither
    // preallocated space nor obsolete files.
    let store = bench.spec.open(NAME);
    store.settle();
    store.close();
    let disk = disk_bytes(&bench.spec.dir.join(NAME));
    let raw = bench.raw_bytes_each * timing.ops as f64;
    let note = (timing.ops < count)
        .then(|| format!("stopped at the time limit after {} of {count} entities", timing.ops));
    let figures = Figures {
        written_bytes,
        disk_bytes: Some(disk),
        note,
        ..bench.figures("fill-payload", &timing)
    };
    let rows = [
        ("amplification", written_bytes as f64 / raw),
        ("disk-payload", disk as f64 / raw),
        ("fill-payload", figures.value),
    ];
    for (row, value) in rows {
        if bench.wants(row) {
            bench.emit(row, Figures { value, ..figures.clone() });
        }
    }
}

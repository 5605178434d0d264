//! The example `big`: wide partitions, and a file that is stored by a writer that stops.

#[path = "../../../examples/big.rs"]
mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rowstone::large::LargeValues;
use rowstone::store::TableStore;

use super::lossy::{Loss, Lossy, billed};
use super::{Flights, check, over_directory, over_endpoint, shared};

/// The number of bytes of a chunk.
const CHUNK: usize = 960 << 10;
const NAME: &str = "flights.csv.gz";

fn run(store: &dyn TableStore) {
    let flights = Flights::read();
    // The sample has fewer days than an entity has properties.
    let period = if flights.is_year() { program::PROPERTIES_MAX } else { 10 };
    let mut days = BTreeMap::<_, BTreeSet<_>>::new();
    let dates = flights.column("month").zip(flights.column("day"));
    for (dest, day) in flights.column("dest").zip(dates) {
        days.entry(dest).or_default().insert(day);
    }
    let (rows, requests) = billed(store, |store| program::load_delays(store, period));
    // A group for each destination, after the creation of the table.
    check(requests - 1, days.len(), 105);
    assert!(rows.unwrap() > days.len());
    let counted = days.values().filter(|days| days.len() as u64 > period).count();
    check(program::wide(store, period).unwrap(), counted, 84);
    assert!(counted > 50);

    let (delays, requests) = billed(store, |store| program::delays(store, "IAH"));
    let delays = delays.unwrap();
    assert_eq!(requests, 1);
    check(delays.len(), days["IAH"].len(), 365);
    let known = flights.column("dest").zip(flights.column("dep_delay"));
    let minutes =
        known.filter_map(|(dest, delay)| delay.parse::<i32>().ok().filter(|_| dest == "IAH"));
    assert_eq!(delays.values().sum::<i32>(), minutes.sum::<i32>());
    file(store);
}

#[expect(clippy::disallowed_methods, reason = "the file is the user's, not the engine's")]
fn file(store: &dyn TableStore) {
    let file = std::fs::read(shared::flights_path()).unwrap();
    let sum = |bytes: &[u8]| {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        (crc.sum(), bytes.len() as u64)
    };
    let (stored, requests) = billed(store, |store| program::store_file(store, NAME, &file[..]));
    assert_eq!(stored.unwrap(), sum(&file));
    // The first group also has the mark. A file below the size of a chunk has no chunks.
    let (chunks, groups) = match file.len() {
        0..CHUNK => (0, 0),
        len => (len.div_ceil(CHUNK), (len.div_ceil(CHUNK) + 1).div_ceil(3)),
    };
    // One request creates the table, and two are for the manifest.
    check(requests - 1, groups + 2, 6);
    let (read, requests) = billed(store, |store| program::read_file(store, NAME));
    assert_eq!(read.unwrap(), sum(&file));
    check(requests, 1 + chunks.div_ceil(4), 4);

    // A writer stops after each of its writes.
    let other = file.iter().cycle().take(4 * CHUNK).copied().collect::<Vec<_>>();
    for count in 0..3 {
        for loss in [Loss::After(count), Loss::AnswerAfter(count)] {
            let done = program::store_file(&Lossy::new(store, loss), NAME, &other[..]);
            // The last write is that of the manifest, which tells that it took effect.
            let is_new = matches!(loss, Loss::AnswerAfter(2));
            assert_eq!(done.is_ok(), is_new);
            let expected = if is_new { &other } else { &file };
            assert_eq!(program::read_file(store, NAME).unwrap(), sum(expected));
        }
    }
    // Only the chunks that are in use stay.
    LargeValues::new(store, "Files").sweep(Duration::ZERO).unwrap();
    assert_eq!(program::read_file(store, NAME).unwrap(), sum(&other));
    assert_eq!(shared::count(store, "Files", "").unwrap(), 5);
}

#[test]
fn big_runs_over_a_directory() {
    over_directory(run);
}

#[test]
fn big_runs_over_an_endpoint() {
    over_endpoint(run);
}

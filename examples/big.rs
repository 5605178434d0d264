//! Stores more than an entity can hold. Patterns:
//! * *several entities of one partition* have more than 252 properties: the delay of each day, 252
//!   days an entity. The day determines the RowKey, so a change of a day needs no search;
//! * *large values*: a file in chunks with a manifest row, by `rowstone::large`. A reader finds the
//!   old or the new file, whatever happens to the writer.
//!
//! Choose one row for each value instead (see `timeseries`) if readers want only some of them. Keep
//! files of gigabytes in a blob store, and their addresses here.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use flate2::{CrcReader, CrcWriter};
use rowstone::keys::pad;
use rowstone::large::LargeValues;
use rowstone::store::TableStore;
use rowstone::{DateTime, Entity, Filter, ValueRef};

mod cookbook;
use cookbook::{Groups, Result};

/// PartitionKey: the destination. RowKey: the number of the period of days. A property for each day
/// with a flight: the sum of the delays in minutes.
const DELAYS: &str = "DelaysByDay";
/// PartitionKey: [`PARTITION`]. The name is that of the file.
const FILES: &str = "Files";
const PARTITION: &str = "flights";
/// The maximum number of properties of an entity.
pub const PROPERTIES_MAX: u64 = 252;
const TICKS_PER_DAY: u64 = 86_400 * 10_000_000;

/// A checksum (CRC-32) and a length in bytes.
pub type Sum = (u32, u64);

#[expect(clippy::disallowed_methods, reason = "the file is the user's, not the engine's")]
fn main() -> Result<()> {
    let store = &*cookbook::store_of_arguments()?;
    println!("{} entities with delays", load_delays(store, PROPERTIES_MAX)?);
    println!("{} days with flights to IAH", delays(store, "IAH")?.len());
    println!("{} destinations with more than 252 days", wide(store, PROPERTIES_MAX)?);
    let file = File::open(cookbook::flights_path())?;
    println!("stored: {:?}", store_file(store, "flights.csv.gz", file)?);
    println!("read: {:?}", read_file(store, "flights.csv.gz")?);
    let day = Duration::from_secs(86_400);
    println!("{} old chunks deleted", LargeValues::new(store, FILES).sweep(day)?);
    Ok(())
}

/// Stores the delays of each destination, with the properties of `period` days in an entity.
/// Returns the number of entities.
pub fn load_delays(store: &dyn TableStore, period: u64) -> Result<usize> {
    let mut sums = BTreeMap::<(String, String), BTreeMap<String, i32>>::new();
    cookbook::for_each_flight(|flight| {
        let date: DateTime = format!("{}T00:00Z", flight.day).parse()?;
        let row = pad(date.ticks() / TICKS_PER_DAY / period, 8)?;
        let day = format!("D{}", flight.day.replace('-', "_"));
        let days = sums.entry((flight.dest, row)).or_default();
        *days.entry(day).or_default() += flight.dep_delay.unwrap_or(0);
        Ok(())
    })?;
    // The entities of a destination are one group.
    let mut groups = Groups::new(store, DELAYS)?;
    for ((dest, row), days) in sums {
        let entity = Entity::new(dest, row);
        groups.upsert(days.iter().fold(entity, |entity, (day, delay)| entity.with(day, *delay)))?;
    }
    groups.finish()
}

/// Reads the delays of a destination by day: a range of its partition.
pub fn delays(store: &dyn TableStore, dest: &str) -> Result<BTreeMap<String, i32>> {
    let mut days = BTreeMap::new();
    cookbook::for_each(store, DELAYS, &Filter::partition(dest).to_string(), &[], |row| {
        days.extend(row.properties().filter_map(|(day, delay)| match delay {
            ValueRef::Int32(delay) => Some((day.to_owned(), delay)),
            _ => None,
        }));
        Ok(())
    })?;
    Ok(days)
}

/// Counts the destinations with more than `most` days.
pub fn wide(store: &dyn TableStore, most: u64) -> Result<usize> {
    let mut days = BTreeMap::<String, usize>::new();
    cookbook::for_each(store, DELAYS, "", &[], |row| {
        *days.entry(row.partition_key().to_owned()).or_default() += row.len();
        Ok(())
    })?;
    Ok(days.values().filter(|days| **days as u64 > most).count())
}

/// Stores a file, or replaces it.
pub fn store_file(store: &dyn TableStore, name: &str, file: impl Read) -> Result<Sum> {
    cookbook::create_table(store, FILES)?;
    let mut file = CrcReader::new(file);
    LargeValues::new(store, FILES).put(PARTITION, name, &mut file)?;
    Ok((file.crc().sum(), file.crc().amount().into()))
}

/// Reads a file back.
pub fn read_file(store: &dyn TableStore, name: &str) -> Result<Sum> {
    let mut sink = CrcWriter::new(io::sink());
    let found = LargeValues::new(store, FILES).get(PARTITION, name, &mut sink)?;
    let length = found.ok_or("the file is missing")?.length;
    Ok((sink.crc().sum(), length))
}

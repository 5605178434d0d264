//! Events and readings by time. Patterns:
//! * *log tail*: the RowKey begins with the reversed time, so the newest events are the first;
//! * *data series* in *wide rows*: a day of readings is one row with a property for each hour. A
//!   reading is a merge, which needs no read, and which may be repeated.
//!
//! Choose one row an event if events are read or expire one by one, and one row a day if readers
//! want whole days. Do not use the time as PartitionKey (*append-only*): all writes would go to the
//! last partition. `rowstone advise` reports such tables.

use rowstone::keys::{prefix_end, reverse_date};
use rowstone::store::{PageQuery, TableStore};
use rowstone::{DateTime, Entity, Filter, prop};

mod cookbook;
use cookbook::{Groups, Result};

/// PartitionKey: the airport of origin. RowKey: `{reversed time}-{carrier}{flight}`.
const LOG: &str = "Departures";
/// PartitionKey: the airport. RowKey: the day. A property for each hour with a reading.
const WEATHER: &str = "Weather";

/// The number of origin-days, and of those with a reading for each of 24 hours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Days {
    pub days: usize,
    pub full: usize,
}

fn main() -> Result<()> {
    let store = &*cookbook::store_of_arguments()?;
    println!("{} departures logged", load_log(store)?);
    for departure in newest(store, "JFK", 3)? {
        println!("newest: {} to {}", departure.0, departure.1);
    }
    let (from, to) = ("2013-02-08T18:00Z".parse()?, "2013-02-08T21:00Z".parse()?);
    println!("in three hours: {}", between(store, from, to)?);
    println!("{} readings merged", merge_weather(store)?);
    println!("{:?}", days(store)?);
    Ok(())
}

/// Logs each departure. The flights of an hour have the same time, so the key also has the flight.
pub fn load_log(store: &dyn TableStore) -> Result<usize> {
    let mut log = Groups::new(store, LOG)?;
    cookbook::for_each_flight(|flight| {
        let time = reverse_date(flight.time_hour.parse()?);
        let row = format!("{time}-{}{}-{}", flight.carrier, flight.flight, flight.tailnum);
        let event = Entity::new(&flight.origin, row).with("Dest", flight.dest);
        log.upsert(event.with("Time", flight.time_hour.parse::<DateTime>()?))
    })?;
    log.finish()
}

/// Returns time and destination of the newest departures from an airport.
pub fn newest(
    store: &dyn TableStore,
    origin: &str,
    count: usize,
) -> Result<Vec<(DateTime, String)>> {
    let filter = Filter::partition(origin).to_string();
    let page =
        store.query(LOG, &PageQuery { filter: &filter, top: count, ..PageQuery::default() })?;
    let read = |event: &Entity| Ok((event.get("Time")?, event.get::<String>("Dest")?));
    page.entities.iter().map(read).collect()
}

/// Counts the departures from `from` to before `to`. The keys are in the other order.
pub fn between(store: &dyn TableStore, from: DateTime, to: DateTime) -> Result<usize> {
    let (Some(first), Some(end)) = (prefix_end(&reverse_date(to)), prefix_end(&reverse_date(from)))
    else {
        return Err("a key of digits has an end".into());
    };
    let rows = prop("RowKey").ge(first).and(prop("RowKey").lt(end));
    let mut count = 0;
    for origin in ["EWR", "JFK", "LGA"] {
        let filter = Filter::partition(origin).and(rows.clone()).to_string();
        count += cookbook::count(store, LOG, &filter)?;
    }
    Ok(count)
}

/// Merges each reading of the weather into the row of its day; returns the number of merges.
pub fn merge_weather(store: &dyn TableStore) -> Result<usize> {
    cookbook::create_table(store, WEATHER)?;
    let mut merges = 0;
    cookbook::for_each_reading(|reading| {
        let hour = &reading.time_hour["2013-01-01T".len()..][..2];
        let mut row = Entity::new(reading.origin, reading.day);
        // A reading without a temperature is a reading, too.
        row.set(format!("Hour{hour}"), reading.temp.unwrap_or(f64::NAN));
        store.upsert_merge(WEATHER, &row)?;
        merges += 1;
        Ok(())
    })?;
    Ok(merges)
}

/// Counts the days of all airports.
pub fn days(store: &dyn TableStore) -> Result<Days> {
    let mut days = Days::default();
    cookbook::for_each(store, WEATHER, "", &[], |day| {
        days.days += 1;
        days.full += usize::from(day.len() == 24);
        Ok(())
    })?;
    Ok(days)
}

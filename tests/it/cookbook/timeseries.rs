//! The example `timeseries`: logs, wide rows, and advice.

#[path = "../../../examples/timeseries.rs"]
mod program;

use std::collections::{BTreeMap, BTreeSet};

use rowstone::advice::AntiPattern;
use rowstone::store::TableStore;
use rowstone::{Db, Entity};

use super::lossy::billed;
use super::{Flights, check, over_directory, over_endpoint};

/// Counts the departures from hour to hour, and returns the latest hour of an airport.
fn departures<'f>(flights: &'f Flights, from: &str, to: &str) -> (usize, &'f str) {
    let hours = || flights.column("time_hour");
    let count = hours().filter(|hour| (from..to).contains(hour)).count();
    let of_jfk = hours().zip(flights.column("origin")).filter(|(_, origin)| *origin == "JFK");
    (count, of_jfk.map(|(hour, _)| hour).max().unwrap())
}

fn run(store: &dyn TableStore) {
    let flights = Flights::read();
    check(program::load_log(store).unwrap(), flights.rows.len(), 336_776);
    let day = if flights.is_year() { "2013-02-08" } else { "2013-01-08" };
    let [from, to] = ["18", "21"].map(|hour| format!("{day}T{hour}:00:00Z"));
    let (counted, latest) = departures(&flights, &from, &to);
    let [first, end] = [&from, &to].map(|time| time.parse().unwrap());
    let (found, requests) = billed(store, |store| program::between(store, first, end));
    let found = found.unwrap();
    assert_eq!(requests, 3);
    assert!(counted > 100);
    check(found, counted, 172);
    let newest = program::newest(store, "JFK", 10).unwrap();
    assert_eq!(newest.len(), 10);
    assert_eq!(newest[0].0.to_string(), latest);
    assert!(newest.is_sorted_by(|a, b| a.0 >= b.0), "{newest:?}");
    weather(store);
}

fn weather(store: &dyn TableStore) {
    let readings = Flights::of("weather.csv.gz");
    check(program::merge_weather(store).unwrap(), readings.rows.len(), 26_115);
    let (days, requests) = billed(store, program::days);
    let days = days.unwrap();
    check(requests, days.days.div_ceil(1_000), 2);
    let mut hours = BTreeMap::<_, BTreeSet<_>>::new();
    let keys = readings.column("month").zip(readings.column("day"));
    let rows = keys.zip(readings.column("origin")).zip(readings.column("time_hour"));
    for (key, hour) in rows {
        hours.entry(key).or_default().insert(&hour[11..13]);
    }
    check(days.days, hours.len(), 1_092);
    check(days.full, hours.values().filter(|hours| hours.len() == 24).count(), 1_043);
}

#[test]
fn timeseries_runs_over_a_directory() {
    over_directory(run);
}

#[test]
fn timeseries_runs_over_an_endpoint() {
    over_endpoint(run);
}

#[test]
fn times_as_partitions_are_reported_as_append_only() {
    let db = Db::open_in_memory().unwrap();
    let table = db.create_table("Hours").unwrap();
    let flights = Flights::read();
    let hours: BTreeSet<_> = flights.column("time_hour").collect();
    for hour in hours {
        table.insert(Entity::new(hour, "0")).unwrap();
    }
    let advice = db.advise("Hours", u64::MAX).unwrap();
    assert!(advice.iter().any(|advice| advice.pattern == AntiPattern::AppendOnly), "{advice:?}");
}

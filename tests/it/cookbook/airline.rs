//! The example `airline`: counts, series and orphans of airlines.

#[path = "../../../examples/airline.rs"]
mod program;

use std::collections::BTreeSet;

use rowstone::store::TableStore;

use super::lossy::billed;
use super::{Flights, check, over_directory, over_endpoint};

/// The year has 11 months of N725MQ, the sample one.
fn months(flights: &Flights) -> usize {
    let tails = flights.column("tailnum").zip(flights.column("month"));
    let months: BTreeSet<_> = tails.filter(|(tail, _)| *tail == "N725MQ").collect();
    months.len()
}

/// Counts the flights to airports that are not listed.
fn orphans(flights: &Flights) -> usize {
    let listed = Flights::airports();
    flights.column("dest").filter(|dest| !listed.contains(*dest)).count()
}

fn run(store: &dyn TableStore) {
    let flights = Flights::read();
    let of_ua = flights.count(&[("carrier", "UA")]);
    let last = program::load(store).unwrap().unwrap();
    assert_eq!(program::flights(store, "UA").unwrap(), of_ua as i64 - 1);
    for expected in [4, 1] {
        let (added, requests) = billed(store, |store| program::add(store, &last));
        added.unwrap();
        assert_eq!(requests, expected);
        check(program::flights(store, "UA").unwrap() as usize, of_ua, 58_665);
    }
    let (series, requests) = billed(store, |store| program::months(store, "MQ", "N725MQ"));
    let series = series.unwrap();
    assert_eq!(requests, 1);
    check(series.len(), months(&flights), 11);
    let of_tail = flights.count(&[("carrier", "MQ"), ("tailnum", "N725MQ")]);
    check(series.values().sum::<i64>() as usize, of_tail, 575);
    let (counted, requests) = billed(store, program::orphans);
    let (_, flown) = counted.unwrap();
    let carriers: BTreeSet<_> = flights.column("carrier").collect();
    assert_eq!(requests, 2 * carriers.len() + 1);
    check(flown as usize, orphans(&flights), 7_602);
}

#[test]
fn airline_runs_over_a_directory() {
    over_directory(run);
}

#[test]
fn airline_runs_over_an_endpoint() {
    over_endpoint(run);
}

//! The example `reading`: scans, pages and parallel reads.

#[path = "../../../examples/reading.rs"]
mod program;

use rowstone::store::TableStore;

use super::lossy::billed;
use super::{Flights, check, over_directory, over_endpoint, shared};

fn run(store: &dyn TableStore) {
    let flights = Flights::read();
    let all = flights.rows.len();
    check(shared::load_flights(store, "Flights").unwrap(), all, 336_776);
    let (carriers, requests) = billed(store, program::carriers);
    let carriers = carriers.unwrap();
    assert_eq!(requests, carriers.len() + 1);
    let counted: std::collections::BTreeSet<_> = flights.column("carrier").collect();
    assert!(carriers.iter().eq(&counted), "{carriers:?}");
    check(carriers.len(), counted.len(), 16);
    let (scan, requests) = billed(store, |store| program::totals(store, ""));
    let scan = scan.unwrap();
    check(requests, all.div_ceil(1_000), 337);
    let miles = flights.column("distance").map(|miles| miles.parse::<i64>().unwrap()).sum();
    assert_eq!(scan, program::Totals { flights: all, miles });
    let filters = program::filters(&carriers);
    let (sum, requests) = billed(store, |store| program::parallel(store, &filters));
    assert_eq!(sum.unwrap(), scan);
    let pages_of = |carrier: &String| flights.count(&[("carrier", carrier)]).div_ceil(1_000);
    check(requests, carriers.iter().map(pages_of).sum(), 346);
    let parts = rowstone::store::split(store, "Flights", 16).unwrap();
    assert!((8..=32).contains(&parts.len()), "{parts:?}");
    assert_eq!(program::parallel(store, &parts).unwrap(), scan);
    pages(store);
}

/// The pages of any size have all keys once, in order.
fn pages(store: &dyn TableStore) {
    let (first, next) = program::page(store, 3, None).unwrap();
    let (second, _) = program::page(store, 3, next).unwrap();
    let (both, _) = program::page(store, 6, None).unwrap();
    assert_eq!([first, second].concat(), both);
}

#[test]
fn reading_runs_over_a_directory() {
    over_directory(run);
}

#[test]
fn reading_runs_over_an_endpoint() {
    over_endpoint(run);
}

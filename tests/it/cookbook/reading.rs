#[path = "../../../examples/reading.rs"]
mod program;

use rowstone::store::TableStore;

use super::{Flights, check, over_directory, over_endpoint, shared};

fn run(store: &dyn TableStore) {
    let flights = Flights::read();
    let all = flights.rows.len();
    check(shared::load_flights(store, "Flights").unwrap(), all, 336_776);
    let carriers = program::carriers(store).unwrap();
    let counted: std::collections::BTreeSet<_> = flights.column("carrier").collect();
    assert!(carriers.iter().eq(&counted), "{carriers:?}");
    check(carriers.len(), counted.len(), 16);
    let scan = program::totals(store, "").unwrap();
    let miles = flights.column("distance").map(|miles| miles.parse::<i64>().unwrap()).sum();
    assert_eq!(scan, program::Totals { flights: all, miles });
    assert_eq!(program::parallel(store, &carriers).unwrap(), scan);
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

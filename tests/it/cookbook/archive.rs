//! The example `archive`: a move between databases that is stopped at each write.

#[path = "../../../examples/archive.rs"]
mod program;

use std::collections::{BTreeMap, BTreeSet};

use rowstone::Db;
use rowstone::store::TableStore;

use super::lossy::{Loss, Lossy, billed};
use super::{Flights, check, over_directory, over_endpoint, shared};
use program::Month;

/// A part of the sample, which has no other month.
const WEEK: Month = Month { table: "Flights201301", from: "2013-01-01T05", to: "2013-01-08T05" };

/// Returns the keys of the flights in either database.
fn union(store: &dyn TableStore, archive: &dyn TableStore) -> usize {
    let mut keys = BTreeSet::new();
    let mut add = |store: &dyn TableStore, table: &str| {
        shared::for_each(store, table, "", &["RowKey"], |flight| {
            keys.insert((flight.partition_key().to_owned(), flight.row_key().to_owned()));
            Ok(())
        })
    };
    add(store, "Flights").unwrap();
    if archive.tables().unwrap().iter().any(|table| table == WEEK.table) {
        add(archive, WEEK.table).unwrap();
    }
    keys.len()
}

fn run(store: &dyn TableStore) {
    let flights = Flights::read();
    let all = flights.rows.len();
    check(shared::load_flights(store, "Flights").unwrap(), all, 336_776);
    let month = if flights.is_year() { program::JANUARY } else { WEEK };
    let archive = Db::open_in_memory().unwrap();
    // The ordering of jobs is stopped, too.
    program::order(&Lossy::new(store, Loss::AnswerAfter(3)), month).unwrap_err();
    program::order(store, month).unwrap();
    stop_after_each_step(store, &archive, all);
    let moved = shared::count(&archive, month.table, "").unwrap();
    let hours = flights.column("time_hour");
    let counted = hours.filter(|hour| (month.from..month.to).contains(hour)).count();
    check(moved, counted, 27_004);
    assert_eq!(shared::count(store, "Flights", "").unwrap(), all - moved);
    assert_eq!(shared::count(store, "ArchiveJobs", "").unwrap(), 0);
    TableStore::delete_table(&archive, month.table).unwrap();
    assert!(TableStore::tables(&archive).unwrap().is_empty());
    costs(store, &flights, month);
}

/// Counts the requests of a move, after that of the month `before`.
fn costs(store: &dyn TableStore, flights: &Flights, before: Month) {
    let to = if flights.is_year() { "2013-03-01T05" } else { "2013-01-15T05" };
    let month = Month { table: "FlightsMoved", from: before.to, to };
    let archive = Db::open_in_memory().unwrap();
    let (of_store, of_archive) = billed(&archive, |archive| {
        let move_month = |store: &dyn TableStore| {
            program::order(store, month).and_then(|()| program::work(store, archive)).unwrap()
        };
        billed(store, move_month).1
    });
    let mut moved = BTreeMap::<_, usize>::new();
    let partitions = flights.column("carrier").zip(flights.column("origin"));
    for (partition, hour) in partitions.zip(flights.column("time_hour")) {
        if !(before.from..before.to).contains(&hour) {
            let count = moved.entry(partition).or_default();
            *count += usize::from((month.from..month.to).contains(&hour));
        }
    }
    let groups: usize = moved.values().map(|count| count.div_ceil(100)).sum();
    // Three requests create the table of jobs, find the end of the partitions, and read the jobs.
    assert_eq!(of_store + of_archive, 3 * groups + 5 * moved.len() + 3);
}

/// Stops the work at a write to either database, before or after the write has its effect, and
/// continues; at last to the end.
fn stop_after_each_step(store: &dyn TableStore, archive: &dyn TableStore, all: usize) {
    for stop in 0..12 {
        let loss = if stop % 2 == 0 { Loss::After } else { Loss::AnswerAfter };
        let all_pass = Loss::After(usize::MAX);
        let (of_store, of_archive) = match stop / 2 % 2 {
            0 => (loss(stop % 3), all_pass),
            _ => (all_pass, loss(stop % 3)),
        };
        let stores = (Lossy::new(store, of_store), Lossy::new(archive, of_archive));
        program::work(&stores.0, &stores.1).unwrap_err();
        assert_eq!(union(store, archive), all, "stop {stop}");
    }
    program::work(store, archive).unwrap();
    assert_eq!(union(store, archive), all);
}

#[test]
fn archive_runs_over_a_directory() {
    over_directory(run);
}

#[test]
fn archive_runs_over_an_endpoint() {
    over_endpoint(run);
}

//! The program `views`, stopped several times.

#[path = "../../../examples/views.rs"]
mod program;

use std::collections::BTreeMap;

use rowstone::Db;
use rowstone::store::TableStore;

use super::lossy::{Loss, Lossy};
use super::{Flights, over_directory, over_endpoint, shared};
use program::Total;

/// Stops views of the first flights of the file until they are complete, and changes two flights.
fn run(target: &dyn TableStore, most: usize) {
    let (flights, db) = (Flights::read(), Db::open_in_memory().unwrap());
    let mut groups = shared::Groups::new(&db, program::FLIGHTS).unwrap();
    let mut loaded = Vec::new();
    shared::for_each_flight(|flight| {
        if loaded.len() == most {
            return Ok(());
        }
        groups.upsert(flight.entity()?)?;
        loaded.push(flight);
        Ok(())
    })
    .unwrap();
    groups.finish().unwrap();
    for stop in 1..3 {
        let lossy = Lossy::new(target, [Loss::After, Loss::AnswerAfter][stop % 2](stop * 2));
        program::view(&db, &lossy).catch_up().unwrap_err();
    }
    let mut view = program::view(&db, target);
    view.catch_up().unwrap();
    let mut expected = BTreeMap::<String, Total>::new();
    let columns = flights.column("origin").zip(flights.column("dep_delay"));
    for (origin, delay) in columns.take(most) {
        if let Ok(delay) = delay.parse::<i64>() {
            let total = expected.entry(origin.to_owned()).or_default();
            *total = Total { delay: total.delay + delay, flights: total.flights + 1 };
        }
    }
    assert_eq!(program::totals(target).unwrap(), expected);
    if flights.is_year() && most > 336_000 {
        let delays: Vec<i64> = expected.values().map(|total| total.delay).collect();
        assert_eq!(delays, [1_776_635, 1_325_264, 1_050_301]);
    }

    // One flight departs elsewhere, and another one is deleted.
    let mut known = loaded.iter().filter(|flight| flight.dep_delay.is_some());
    let [moved, deleted] = [(); 2].map(|()| known.next().unwrap());
    let entity = moved.entity().unwrap().with("origin", "BOS").with("dep_delay", 7);
    db.upsert(program::FLIGHTS, &entity).unwrap();
    let table = db.table(program::FLIGHTS).unwrap();
    table.delete(&deleted.partition_key(), &deleted.row_key()).unwrap();
    view.catch_up().unwrap();
    for flight in [moved, deleted] {
        let total = expected.get_mut(&flight.origin).unwrap();
        total.delay -= i64::from(flight.dep_delay.unwrap());
        total.flights -= 1;
    }
    expected.insert("BOS".to_owned(), Total { delay: 7, flights: 1 });
    assert_eq!(program::totals(target).unwrap(), expected);
}

#[test]
fn views_runs_over_a_directory() {
    over_directory(|target| run(target, usize::MAX));
}

/// Each flight costs two reads at the endpoint.
#[test]
fn views_runs_over_an_endpoint() {
    over_endpoint(|target| run(target, 500));
}

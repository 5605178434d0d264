//! The example `queue`: messages of a consumer that dies, a poison message, and what requests cost.

#[path = "../../../examples/queue.rs"]
mod program;

use std::collections::BTreeMap;
use std::time::Duration;

use rowstone::queue::{Options, Queue};
use rowstone::store::TableStore;

use super::lossy::billed;
use super::{Flights, over_directory, over_endpoint};

fn run(store: &dyn TableStore) {
    let queue = program::open(store, Options::default()).unwrap();
    assert_eq!(program::produce(&queue).unwrap(), program::FLIGHTS + 1);
    assert!(program::die(&queue).unwrap().len() <= 32);
    let mut processed = 0;
    while processed < program::FLIGHTS {
        processed += program::consume(store, &queue).unwrap();
    }
    assert_eq!(processed, program::FLIGHTS);
    while program::poison(&queue).unwrap().is_empty() {
        assert_eq!(program::consume(store, &queue).unwrap(), 0);
    }
    assert_eq!(program::poison(&queue).unwrap(), ["a flight to nowhere"]);
    assert_eq!(program::distances(store).unwrap(), counted());
    costs(store);
}

/// Adds up the distances of the file.
fn counted() -> BTreeMap<String, i64> {
    let flights = Flights::read();
    let mut distances = BTreeMap::new();
    let columns = flights.column("carrier").zip(flights.column("distance"));
    for (carrier, distance) in columns.take(program::FLIGHTS) {
        *distances.entry(carrier.to_owned()).or_default() += distance.parse::<i64>().unwrap();
    }
    distances
}

/// Counts the requests for messages of one bucket.
fn costs(store: &dyn TableStore) {
    let options = Options { buckets: 1, ..Options::default() };
    let timeout = Duration::from_secs(60);
    let requests = |run: &dyn Fn(&Queue<'_>)| {
        billed(store, |store| {
            run(&Queue::open(store, "Queues", "costs", options).unwrap());
        })
        .1
    };
    assert_eq!(requests(&|queue| drop(queue.put_many(&["a"; 200]).unwrap())), 2);
    let claim_32 = |queue: &Queue<'_>| {
        let claimed = queue.claim(32, timeout).unwrap();
        assert_eq!(claimed.len(), 32);
        claimed
    };
    assert_eq!(requests(&|queue| drop(claim_32(queue))), 2);
    assert_eq!(requests(&|queue| assert!(queue.delete_many(&claim_32(queue)).is_ok())), 3);
    let update = |queue: &Queue<'_>| {
        let message = queue.claim(1, timeout).unwrap().pop().unwrap();
        queue.delete(&queue.extend(&message, timeout).unwrap()).unwrap();
    };
    assert_eq!(requests(&update), 4);
}

#[test]
fn queue_runs_over_a_directory() {
    over_directory(run);
}

#[test]
fn queue_runs_over_an_endpoint() {
    over_endpoint(run);
}

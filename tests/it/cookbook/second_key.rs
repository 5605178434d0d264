//! The example `second_key`: indexes, and lists with two writers.

#[path = "../../../examples/second_key.rs"]
mod program;

use rowstone::store::TableStore;

use super::lossy::billed;
use super::{Flights, check, over_directory, over_endpoint};

fn run(store: &dyn TableStore) {
    let flights = Flights::read();
    check(program::load(store).unwrap(), flights.rows.len(), 336_776);
    let (of_tail, requests) = billed(store, |store| program::by_tail(store, "MQ", "N725MQ"));
    let of_tail = of_tail.unwrap();
    let counted = flights.count(&[("carrier", "MQ"), ("tailnum", "N725MQ")]);
    check(of_tail.len(), counted, 575);
    assert!(of_tail.iter().all(|flight| flight.tailnum == "N725MQ"));
    assert_eq!(requests, 1 + of_tail.len());
    let (to_iah, requests) = billed(store, |store| program::by_destination(store, "IAH"));
    let to_iah = to_iah.unwrap();
    assert_eq!(requests, to_iah.div_ceil(1_000));
    check(to_iah, flights.count(&[("dest", "IAH")]), 7_198);
    let ids = program::ids("UA", "IAH").unwrap();
    for _ in 0..2 {
        program::append_by_two(store, "UA_IAH", &ids).unwrap();
        let (listed, requests) = billed(store, |store| program::list(store, "UA_IAH"));
        let listed = listed.unwrap();
        assert_eq!(requests, 1);
        let counted = flights.count(&[("carrier", "UA"), ("dest", "IAH")]);
        check(listed.len(), counted, 6_924);
        assert!(ids.iter().all(|id| listed.contains(id)));
    }
}

#[test]
fn second_keys_run_over_a_directory() {
    over_directory(run);
}

#[test]
fn second_keys_run_over_an_endpoint() {
    over_endpoint(run);
}

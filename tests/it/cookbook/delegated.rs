//! The example `delegated`: signatures for partitions.

#[path = "../../../examples/delegated.rs"]
mod program;

use rowstone::store::{Remote, TableStore};
use rowstone::{DateTime, ErrorKind};

use super::lossy::billed;
use super::{Flights, check};
use crate::rest::Place;

const TABLE: &str = "FlightsOfCarriers";

#[test]
fn a_delegated_reader_sees_one_partition_and_nothing_else() {
    let place = Place::new();
    let server = place.serve("--log off --durability buffered");
    let owner = Remote::open(&server.connection()).unwrap();
    let flights = Flights::read();
    check(program::load(&owner).unwrap(), flights.rows.len(), 336_776);
    let expiry = DateTime::MAX;
    let url = owner.shared_access(TABLE, "UA"..="UA", "r", expiry).unwrap();
    let reader = Remote::open(&url).unwrap();
    let (seen, requests) = billed(&reader, program::seen);
    check(seen.unwrap(), flights.count(&[("carrier", "UA")]), 58_665);
    check(requests, flights.count(&[("carrier", "UA")]).div_ceil(1_000), 59);
    for carrier in ["UA", "AA"] {
        refused(program::write(&reader, carrier));
    }
    refused(reader.tables());
    refused(reader.get(TABLE, "AA", "new", &[]));
    let writer = owner.shared_access(TABLE, "UA"..="US", "au", expiry).unwrap();
    let writer = Remote::open(&writer).unwrap();
    program::write(&writer, "UA").unwrap();
    refused(program::write(&writer, "AA"));
    refused(writer.get(TABLE, "UA", "new", &[]));
    refusals(&owner, &reader, expiry);
    server.stop();
}

/// The service answers 403.
#[track_caller]
fn refused<T: std::fmt::Debug>(done: rowstone::Result<T>) {
    let error = done.unwrap_err();
    assert!(error.to_string().contains("not authorized"), "{error}");
}

/// Signatures that would grant more than was meant are not made.
fn refusals(owner: &Remote, reader: &Remote, expiry: DateTime) {
    for (store, partitions, permissions) in [
        (owner, ""..="UA", "r"),
        (owner, "UA"..="", "r"),
        (owner, "UA"..="UA", ""),
        (owner, "UA"..="UA", "dr"),
        (reader, "UA"..="UA", "r"),
    ] {
        let made = store.shared_access(TABLE, partitions, permissions, expiry);
        assert_eq!(made.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

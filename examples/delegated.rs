//! Gives another program access to one partition, without the key of the account: *valet key*.
//!
//! The owner makes a shared access signature for a partition, a time and some permissions; the
//! other program opens the URL. The argument is an endpoint, because a directory has no signatures.
//!
//! Do not use it for a long time without a stored access policy: only a new key of the account
//! withdraws a signature. Do not log the URL: no other secret is needed. The PartitionKey must
//! divide the data by owner, as the carrier does here.

use std::env;

use rowstone::store::{Remote, TableStore};
use rowstone::{DateTime, ETag, Entity};

mod cookbook;
use cookbook::{Groups, Result};

/// PartitionKey: the carrier. RowKey: the id of the flight.
const FLIGHTS: &str = "FlightsOfCarriers";
/// The number of ticks of an hour.
const HOUR: u64 = 3_600 * 10_000_000;

fn main() -> Result<()> {
    let text = env::args().nth(1).ok_or("usage: delegated ENDPOINT")?;
    let owner =
        Remote::open(&text).map_err(|error| format!("a directory has no signatures: {error}"))?;
    println!("{} flights loaded", load(&owner)?);
    let expiry = DateTime::from_ticks(DateTime::now().ticks() + HOUR).ok_or("no such time")?;
    let reader = Remote::open(&owner.shared_access(FLIGHTS, "UA"..="UA", "r", expiry)?)?;
    println!("the reader of UA sees {} flights", seen(&reader)?);
    if let Err(refusal) = write(&reader, "UA") {
        println!("it cannot write: {refusal}");
    }
    Ok(())
}

/// Loads the flights with the carrier as PartitionKey.
pub fn load(owner: &dyn TableStore) -> Result<usize> {
    let mut groups = Groups::new(owner, FLIGHTS)?;
    cookbook::for_each_flight(|flight| {
        let entity = Entity::from_serde(&*flight.carrier, flight.id(), &flight)?;
        groups.upsert(entity)
    })?;
    groups.finish()
}

/// Counts all flights that a reader sees.
pub fn seen(reader: &dyn TableStore) -> Result<usize> {
    cookbook::count(reader, FLIGHTS, "")
}

/// Tries to write a row of a carrier.
pub fn write(writer: &dyn TableStore, carrier: &str) -> Result<ETag, rowstone::Error> {
    writer.upsert(FLIGHTS, &Entity::new(carrier, "new"))
}

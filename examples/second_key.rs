//! Finds entities by other keys than their own: three forms of a second key.
//! * *Intra-partition index*: a second row of the partition, written in the same group.
//! * *Inter-partition index*: a copy under the other key. It is written later, and loading again
//!   completes it, because upserts may be repeated.
//! * *Index entity*: a row with a list of ids. Writers add to it on the condition of its ETag.
//!
//! Do not use a second key for a question that is asked rarely: each costs its writes for ever, and
//! a scan costs one request per 1,000 entities. A list must not grow without limit: these lists end
//! with each month, because a text has at most 32,768 characters.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use rowstone::store::{TableStore, update};
use rowstone::{Entity, ErrorKind, Filter};

mod cookbook;
use cookbook::{Flight, Groups, Result};

/// PartitionKey: the carrier. RowKey: `id_{id}`, and `tail_{tailnum}_{id}`, which has the id.
const FLIGHTS: &str = "FlightsByCarrier";
/// PartitionKey: `dest_{dest}`. RowKey: `{carrier}_{id}`.
const DESTINATIONS: &str = "FlightsByDest";
/// PartitionKey: `{carrier}_{dest}`. RowKey: the month. The property `Ids` is the list.
const LISTS: &str = "FlightLists";
/// The number of ids that one update adds to a list.
const IDS_MAX: usize = 50;

fn main() -> Result<()> {
    let store = &*cookbook::store_of_arguments()?;
    println!("{} flights have second keys", load(store)?);
    println!("flights of N725MQ: {}", by_tail(store, "MQ", "N725MQ")?.len());
    println!("flights to IAH: {}", by_destination(store, "IAH")?);
    let ids = ids("UA", "IAH")?;
    append_by_two(store, "UA_IAH", &ids)?;
    println!("UA to IAH: {} ids in the lists", list(store, "UA_IAH")?.len());
    Ok(())
}

/// Writes each flight with its entity of the index in one group, then its copy.
pub fn load(store: &dyn TableStore) -> Result<usize> {
    let mut flights = Groups::new(store, FLIGHTS)?;
    cookbook::for_each_flight(|flight| {
        let (carrier, id) = (&flight.carrier, flight.id());
        let by_tail = Entity::new(carrier, format!("tail_{}_{id}", flight.tailnum));
        let by_id = Entity::from_serde(carrier, format!("id_{id}"), &flight)?;
        flights.upsert_all([by_id, by_tail.with("Id", id)])
    })?;
    flights.finish()?;
    let mut copies = Groups::new(store, DESTINATIONS)?;
    cookbook::for_each_flight(|flight| {
        let keys = (format!("dest_{}", flight.dest), format!("{}_{}", flight.carrier, flight.id()));
        copies.upsert(Entity::from_serde(keys.0, keys.1, &flight)?)
    })?;
    copies.finish()
}

/// Reads the flights of an aircraft: a range of the index, then a point for each flight.
pub fn by_tail(store: &dyn TableStore, carrier: &str, tail: &str) -> Result<Vec<Flight>> {
    let filter = Filter::row_prefix(carrier, &format!("tail_{tail}_")).to_string();
    let mut flights = Vec::new();
    cookbook::for_each(store, FLIGHTS, &filter, &["Id"], |entry| {
        let row = format!("id_{}", entry.get::<&str>("Id")?);
        let flight = store.get(FLIGHTS, carrier, &row, &[])?.ok_or("an index without a flight")?;
        flights.push(flight.to()?);
        Ok(())
    })?;
    Ok(flights)
}

/// Counts the flights to an airport: one partition of the copies.
pub fn by_destination(store: &dyn TableStore, dest: &str) -> Result<usize> {
    let filter = Filter::partition(format!("dest_{dest}")).to_string();
    cookbook::count(store, DESTINATIONS, &filter)
}

/// Returns the ids of the flights of a carrier to an airport.
pub fn ids(carrier: &str, dest: &str) -> Result<Vec<String>> {
    let mut ids = Vec::new();
    cookbook::for_each_flight(|flight| {
        if (&*flight.carrier, &*flight.dest) == (carrier, dest) {
            ids.push(flight.id());
        }
        Ok(())
    })?;
    Ok(ids)
}

/// Two writers add alternate ids to the lists of a partition at the same time.
pub fn append_by_two(store: &dyn TableStore, partition: &str, ids: &[String]) -> Result<()> {
    cookbook::create_table(store, LISTS)?;
    thread::scope(|scope| {
        let writers = [0, 1].map(|first| {
            let ids: Vec<&str> = ids.iter().skip(first).step_by(2).map(String::as_str).collect();
            scope.spawn(move || append(store, partition, &ids))
        });
        writers.into_iter().try_for_each(|writer| writer.join().expect("a writer panicked"))
    })
}

/// Adds ids to the list of each month. If this is repeated, the ids are not added again.
fn append(store: &dyn TableStore, partition: &str, ids: &[&str]) -> Result<()> {
    let mut months: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for id in ids {
        months.entry(&id[.."2013-01".len()]).or_default().push(id);
    }
    for (month, ids) in months {
        match store.insert(LISTS, &Entity::new(partition, month).with("Ids", "")) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            done => drop(done?),
        }
        for ids in ids.chunks(IDS_MAX) {
            update(store, LISTS, partition, month, |entity| {
                let mut list: BTreeSet<&str> = split(entity.get("Ids")?).collect();
                list.extend(ids);
                let text = list.into_iter().collect::<Vec<_>>().join(" ");
                entity.set("Ids", text);
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// Returns the ids of all lists of a partition.
pub fn list(store: &dyn TableStore, partition: &str) -> Result<BTreeSet<String>> {
    let mut ids = BTreeSet::new();
    cookbook::for_each(store, LISTS, &Filter::partition(partition).to_string(), &[], |entity| {
        ids.extend(split(entity.get("Ids")?).map(str::to_owned));
        Ok(())
    })?;
    Ok(ids)
}

fn split(ids: &str) -> impl Iterator<Item = &str> {
    ids.split(' ').filter(|id| !id.is_empty())
}

//! Moves old entities into another database, and drops them later as a whole table. Patterns:
//! * *eventually consistent transaction*: a job for each partition is stored before the work and
//!   deleted after it. Each step may be repeated, so a process that was killed at any point is
//!   followed by one that continues. An entity is deleted only after its copy is stored, and only
//!   if it has not changed since, so the union of both databases is complete at any time;
//! * *high volume delete*: a table for each month. Deleting it is one request.
//!
//! Do not use it if a reader must never see an entity in both databases. The arguments are the
//! store and the archive.

use std::env;

use rowstone::store::{PageQuery, TableStore, open_store};
use rowstone::{Entity, EntityGroup, Filter, prop};

mod cookbook;
use cookbook::Result;

/// The table of the flights: PartitionKey `{carrier}-{origin}`, RowKey `{time_hour}-…`.
const FLIGHTS: &str = "Flights";
/// The jobs: PartitionKey is the table of the archive, RowKey the partition to be moved.
const JOBS: &str = "ArchiveJobs";
/// The maximum number of operations of a group.
const GROUP_MAX: usize = 100;

/// A month: the table of its flights in the archive, and its RowKeys from `from` to before `to`.
#[derive(Clone, Copy, Debug)]
pub struct Month {
    pub table: &'static str,
    pub from: &'static str,
    pub to: &'static str,
}

/// January by the time of New York, which is five hours behind UTC.
pub const JANUARY: Month =
    Month { table: "Flights201301", from: "2013-01-01T05", to: "2013-02-01T05" };

fn main() -> Result<()> {
    let store = &*cookbook::store_of_arguments()?;
    let archive = env::args().nth(2).ok_or("usage: archive STORE ARCHIVE")?;
    let archive = &*open_store(&archive)?;
    println!("{} flights loaded", cookbook::load_flights(store, FLIGHTS)?);
    order(store, JANUARY)?;
    println!("{} flights moved", work(store, archive)?);
    let left = cookbook::count(store, FLIGHTS, "")?;
    println!("{left} left, {} in the archive", cookbook::count(archive, JANUARY.table, "")?);
    archive.delete_table(JANUARY.table)?;
    println!("the month is deleted");
    Ok(())
}

/// Writes a job for each partition of the flights.
pub fn order(store: &dyn TableStore, month: Month) -> Result<()> {
    cookbook::create_table(store, JOBS)?;
    for partition in partitions(store)? {
        let job = Entity::new(month.table, partition).with("From", month.from).with("To", month.to);
        store.upsert(JOBS, &job)?;
    }
    Ok(())
}

/// Does all jobs, including those of a process that was killed. Returns the number of the flights
/// that were moved.
pub fn work(store: &dyn TableStore, archive: &dyn TableStore) -> Result<usize> {
    let mut moved = 0;
    cookbook::for_each(store, JOBS, "", &[], |job| {
        let (table, partition) = (job.partition_key(), job.row_key());
        let rows = prop("RowKey").ge(job.get::<&str>("From")?);
        let rows = rows.and(prop("RowKey").lt(job.get::<&str>("To")?));
        let filter = Filter::partition(partition).and(rows).to_string();
        cookbook::create_table(archive, table)?;
        while let Some(count) = move_some(store, archive, table, &filter)? {
            moved += count;
        }
        Ok(store.delete_if_exists(JOBS, table, partition)?)
    })?;
    Ok(moved)
}

/// Copies and deletes as many flights as a group has; `None` if there are none left.
fn move_some(
    store: &dyn TableStore,
    archive: &dyn TableStore,
    table: &str,
    filter: &str,
) -> Result<Option<usize>> {
    let query = PageQuery { filter, top: GROUP_MAX, ..PageQuery::default() };
    let page = store.query(FLIGHTS, &query)?;
    let Some(first) = page.entities.first() else {
        return Ok(None);
    };
    let [mut copies, mut deletes] = [(); 2].map(|()| EntityGroup::new(first.partition_key()));
    for flight in &page.entities {
        copies.upsert(flight)?;
        deletes.delete_if(flight.row_key(), flight.etag().ok_or("it was read")?)?;
    }
    archive.commit(table, &copies)?;
    store.commit(FLIGHTS, &deletes)?;
    Ok(Some(deletes.len()))
}

/// Returns the partitions of the flights, one request for each.
fn partitions(store: &dyn TableStore) -> Result<Vec<String>> {
    let mut partitions: Vec<String> = Vec::new();
    loop {
        let after = partitions.last().map(|last| prop("PartitionKey").gt(last.as_str()));
        let filter = after.map(|after| after.to_string()).unwrap_or_default();
        let query =
            PageQuery { filter: &filter, select: &["PartitionKey"], top: 1, continuation: None };
        let page = store.query(FLIGHTS, &query)?;
        let Some(first) = page.entities.first() else { return Ok(partitions) };
        partitions.push(first.partition_key().to_owned());
    }
}

//! Sums the delays of departures by airport, and keeps the sums as flights change:
//! `cargo run --example views --features remote,serde -- DIRECTORY [STORE]`.
//!
//! Pattern: *materialized view*. A view reads the change feed of a database and stores sums, in the
//! same database or in another store. It may be stopped at any time. Each flight counts once, by
//! its newest state: one that is replaced or deleted is subtracted.
//!
//! Do not use it if a query of one partition is fast enough, or if readers must see a flight and
//! the sums of the same moment: a view is later than its source.

use std::collections::BTreeMap;
use std::env;

use rowstone::store::{TableStore, open_store};
use rowstone::view::{Source, View};
use rowstone::{Db, Entity};

mod cookbook;
use cookbook::Result;

pub const FLIGHTS: &str = "Flights";
/// The view: PartitionKey is the airport, RowKey [`TOTAL`].
const DELAYS: &str = "Delays";
const TOTAL: &str = "total";

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let db = Db::open(arguments.next().ok_or("usage: views DIRECTORY [STORE]")?)?;
    let other = arguments.next().map(|name| open_store(&name)).transpose()?;
    let target = other.as_deref().unwrap_or(&db);
    println!("{} flights loaded", cookbook::load_flights(&db, FLIGHTS)?);
    view(&db, target).catch_up()?;
    for (origin, total) in totals(target)? {
        println!("{origin}: {} min. by {} flights", total.delay, total.flights);
    }
    Ok(db.close()?)
}

/// The sum of an airport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    pub delay: i64,
    /// The number of flights with a known delay.
    pub flights: i64,
}

/// Returns the view of the flights of a database.
pub fn view<'s>(db: &Db, target: &'s dyn TableStore) -> View<'s> {
    View::new(Source::Db(db.clone()), FLIGHTS, target, DELAYS, |flight| {
        // A flight that was cancelled has no delay.
        let Ok(delay) = flight.get::<i32>("dep_delay") else { return Ok(Vec::new()) };
        let row = Entity::new(flight.get::<&str>("origin")?, TOTAL);
        Ok(vec![row.with("Delay", delay)])
    })
}

/// Returns the sums of all airports.
pub fn totals(target: &dyn TableStore) -> Result<BTreeMap<String, Total>> {
    let mut totals = BTreeMap::new();
    let filter = format!("RowKey eq '{TOTAL}'");
    cookbook::for_each(target, DELAYS, &filter, &[], |row| {
        let total = Total { delay: row.get("Delay")?, flights: row.get("Rows")? };
        totals.insert(row.partition_key().to_owned(), total);
        Ok(())
    })?;
    Ok(totals)
}

//! Rows of several kinds in the partition of an airline answer questions without joins. Patterns:
//! * *heterogeneous types*: the RowKey begins with the kind, so one range has one kind;
//! * *denormalization*: the airline has the count of its flights, a route the name of its airport;
//! * *data series* with a *compound key*: `tail_{tailnum}_{month}` has a property for each day.
//!
//! A new flight, the count and the series change in one group; a flight that was added before
//! changes nothing. Do not denormalize what changes often: a new name is written to each route. Do
//! not keep a series of more than 252 points in one row, the maximum number of properties.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use rowstone::store::{PageQuery, TableStore, transact};
use rowstone::{Entity, EntityGroup, Filter};

mod cookbook;
use cookbook::{Flight, Groups, Result};

/// PartitionKey: the carrier. RowKey: `airline`, `flight_{id}`, `route_{origin}_{dest}`,
/// `tail_{tailnum}_{month}`.
const AIRLINES: &str = "Airlines";

fn main() -> Result<()> {
    let store = &*cookbook::store_of_arguments()?;
    let last = load(store)?.ok_or("no flight of UA")?;
    for _ in 0..2 {
        add(store, &last)?;
        println!("UA has {} flights", flights(store, "UA")?);
    }
    println!("N725MQ flew in {} months", months(store, "MQ", "N725MQ")?.len());
    let (routes, flights) = orphans(store)?;
    println!("{flights} flights on {routes} routes go to airports that are not listed");
    Ok(())
}

/// The rows of one carrier, before they are written.
#[derive(Default)]
struct Airline {
    flights: i64,
    routes: BTreeMap<(String, String), i64>,
    /// By aircraft and month: the flights of each day.
    series: BTreeMap<(String, String), BTreeMap<String, i32>>,
}

impl Airline {
    fn add(&mut self, flight: &Flight) {
        self.flights += 1;
        *self.routes.entry((flight.origin.clone(), flight.dest.clone())).or_default() += 1;
        let (month, day) = month_and_day(flight);
        let series = self.series.entry((flight.tailnum.clone(), month.to_owned())).or_default();
        *series.entry(day).or_default() += 1;
    }

    fn write(self, carrier: &str, airports: &[(String, String)], to: &mut Groups) -> Result<()> {
        to.upsert(Entity::new(carrier, "airline").with("Flights", self.flights))?;
        for ((origin, dest), flights) in self.routes {
            let mut route = Entity::new(carrier, format!("route_{origin}_{dest}"));
            route.set("Flights", flights);
            if let Some((_, name)) = airports.iter().find(|(faa, _)| *faa == dest) {
                route.set("DestName", name.as_str());
            }
            to.upsert(route)?;
        }
        for ((tail, month), days) in self.series {
            let row = Entity::new(carrier, format!("tail_{tail}_{month}"));
            to.upsert(days.iter().fold(row, |row, (day, flights)| row.with(day, *flights)))?;
        }
        Ok(())
    }
}

/// Returns the month, and the name of the property of the day.
fn month_and_day(flight: &Flight) -> (&str, String) {
    let (month, day) = flight.day.split_at("2013-01".len());
    (month, day.replace('-', "Day"))
}

/// Writes the rows of all carriers, but without the last flight of UA, which is returned.
pub fn load(store: &dyn TableStore) -> Result<Option<Flight>> {
    let (mut airlines, mut last) = (BTreeMap::<String, Airline>::new(), None);
    cookbook::for_each_flight(|flight| {
        let flight = match &*flight.carrier {
            "UA" => last.replace(flight),
            _ => Some(flight),
        };
        if let Some(flight) = flight {
            airlines.entry(flight.carrier.clone()).or_default().add(&flight);
        }
        Ok(())
    })?;
    let airports = airports()?;
    let mut groups = Groups::new(store, AIRLINES)?;
    for (carrier, airline) in airlines {
        airline.write(&carrier, &airports, &mut groups)?;
    }
    groups.finish()?;
    Ok(last)
}

/// Adds a flight: its row, the count of the airline and the series of the aircraft change together.
pub fn add(store: &dyn TableStore, flight: &Flight) -> Result<()> {
    let carrier = flight.carrier.as_str();
    let row = format!("flight_{}", flight.id());
    let (month, day) = month_and_day(flight);
    let tail = format!("tail_{}_{month}", flight.tailnum);
    let entity = Entity::from_serde(carrier, &row, flight)?;
    transact(store, AIRLINES, carrier, |view| {
        let mut group = EntityGroup::new(carrier);
        if view.get(&row)?.is_some() {
            return Ok(group);
        }
        let airline = view.get("airline")?;
        let flights = airline.map_or(Ok(0), |airline| airline.get::<i64>("Flights"))?;
        let series = view.get(&tail)?;
        let days = series.and_then(|series| series.get::<Option<i32>>(&day).ok().flatten());
        group.insert(&entity)?;
        group.upsert_merge(Entity::new(carrier, "airline").with("Flights", flights + 1))?;
        group.upsert_merge(Entity::new(carrier, &tail).with(&day, days.unwrap_or(0) + 1))?;
        Ok(group)
    })?;
    Ok(())
}

/// Returns the number of flights of an airline, by a point.
pub fn flights(store: &dyn TableStore, carrier: &str) -> Result<i64> {
    let airline =
        store.get(AIRLINES, carrier, "airline", &["Flights"])?.ok_or("no such airline")?;
    Ok(airline.get("Flights")?)
}

/// Returns the months in which an aircraft flew, with its flights, by one range.
pub fn months(store: &dyn TableStore, carrier: &str, tail: &str) -> Result<BTreeMap<String, i64>> {
    let prefix = format!("tail_{tail}_");
    let filter = Filter::row_prefix(carrier, &prefix).to_string();
    let mut months = BTreeMap::new();
    cookbook::for_each(store, AIRLINES, &filter, &[], |row| {
        let days = row.properties().map(|(day, _)| row.get::<i32>(day).map(i64::from));
        months.insert(row.row_key()[prefix.len()..].to_owned(), days.sum::<Result<_, _>>()?);
        Ok(())
    })?;
    Ok(months)
}

/// Counts the routes without the name of an airport, and their flights: the orphans.
pub fn orphans(store: &dyn TableStore) -> Result<(usize, i64)> {
    let (mut routes, mut flights) = (0, 0);
    for carrier in carriers(store)? {
        let filter = Filter::row_prefix(carrier, "route_").to_string();
        cookbook::for_each(store, AIRLINES, &filter, &["DestName", "Flights"], |route| {
            if route.value("DestName").is_none() {
                routes += 1;
                flights += route.get::<i64>("Flights")?;
            }
            Ok(())
        })?;
    }
    Ok((routes, flights))
}

/// Returns the carriers: one request for each partition.
fn carriers(store: &dyn TableStore) -> Result<BTreeSet<String>> {
    let mut carriers = BTreeSet::new();
    loop {
        let after = carriers.last().map(|last| format!("PartitionKey gt '{last}'"));
        let filter = after.unwrap_or_default();
        let query = PageQuery { filter: &filter, top: 1, ..PageQuery::default() };
        let page = store.query(AIRLINES, &query)?;
        let Some(first) = page.entities.first() else { return Ok(carriers) };
        carriers.insert(first.partition_key().to_owned());
    }
}

/// Returns the codes and names of the airports.
fn airports() -> Result<Vec<(String, String)>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data/airports.csv");
    let text = fs::read_to_string(path)?;
    let fields = text.lines().skip(1).filter_map(|line| {
        let mut fields = line.split(',');
        Some((fields.next()?.to_owned(), fields.next()?.trim_matches('"').to_owned()))
    });
    Ok(fields.collect())
}

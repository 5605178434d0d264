//! Shared by the programs of the cookbook: the flights and the weather of a year, as rows of two
//! CSV files, and writes and reads that any store has.
//!
//! The files are those of `examples/data`. If the variable ROWSTONE_FLIGHTS is set, it names
//! another file of flights, such as that of the whole year; `weather.csv.gz` is in the same
//! directory.

#![expect(dead_code, reason = "each program uses a part of it")]

use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use flate2::read::GzDecoder;
use rowstone::store::{PageQuery, TableStore, open_store};
use rowstone::{Entity, EntityGroup, ErrorKind};
use serde::{Deserialize, Serialize};

pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// The maximum number of operations of a group.
const GROUP_MAX: usize = 100;

/// A flight. A field that is `None` becomes no property.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flight {
    pub carrier: String,
    pub flight: i32,
    /// The aircraft; `NA` if it is unknown.
    pub tailnum: String,
    pub origin: String,
    pub dest: String,
    /// Year, month and day of the departure by local time.
    pub day: String,
    /// The hour of the departure by UTC, such as `2013-01-01T10:00:00Z`.
    pub time_hour: String,
    pub dep_delay: Option<i32>,
    pub distance: i32,
}

impl Flight {
    pub fn partition_key(&self) -> String {
        format!("{}-{}", self.carrier, self.origin)
    }

    /// Returns a key that is unique in the partition and sorts by time.
    pub fn row_key(&self) -> String {
        format!("{}-{}-{}", self.time_hour, self.flight, self.tailnum)
    }

    /// Returns a key that is unique among the flights of the carrier.
    pub fn id(&self) -> String {
        format!("{}-{}", self.row_key(), self.origin)
    }

    pub fn entity(&self) -> Result<Entity> {
        Ok(Entity::from_serde(self.partition_key(), self.row_key(), self)?)
    }

    fn of_row(row: &Row) -> Result<Flight> {
        Ok(Flight {
            carrier: row.text("carrier")?,
            flight: row.number("flight")?,
            tailnum: row.text("tailnum")?,
            origin: row.text("origin")?,
            dest: row.text("dest")?,
            day: row.day()?,
            time_hour: row.text("time_hour")?,
            dep_delay: row.number("dep_delay").ok(),
            distance: row.number("distance")?,
        })
    }
}

/// A reading of the weather at an airport.
#[derive(Clone, Debug)]
pub struct Reading {
    pub origin: String,
    /// Year, month and day by local time.
    pub day: String,
    /// The hour by UTC.
    pub time_hour: String,
    /// The temperature in degrees Fahrenheit.
    pub temp: Option<f64>,
}

/// A row of a CSV file without quoted fields.
struct Row<'c> {
    columns: &'c BTreeMap<String, usize>,
    fields: Vec<String>,
}

impl Row<'_> {
    fn text(&self, name: &str) -> Result<String> {
        let field = self.columns.get(name).and_then(|index| self.fields.get(*index));
        field.cloned().ok_or_else(|| format!("a row has no {name}").into())
    }

    fn number<T: FromStr>(&self, name: &str) -> Result<T> {
        let text = self.text(name)?;
        text.parse().map_err(|_| format!("{name} is {text}, not a number").into())
    }

    fn day(&self) -> Result<String> {
        let number = |name| self.number::<u32>(name);
        Ok(format!("{}-{:02}-{:02}", number("year")?, number("month")?, number("day")?))
    }
}

/// Returns the file of the flights.
pub fn flights_path() -> PathBuf {
    let sample = || Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data/flights.csv.gz");
    env::var_os("ROWSTONE_FLIGHTS").map_or_else(sample, PathBuf::from)
}

/// Calls `each` with every flight, in the order of the file.
pub fn for_each_flight(mut each: impl FnMut(Flight) -> Result<()>) -> Result<()> {
    for_each_row(&flights_path(), |row| each(Flight::of_row(row)?))
}

/// Calls `each` with every reading of the weather, in the order of the file.
pub fn for_each_reading(mut each: impl FnMut(Reading) -> Result<()>) -> Result<()> {
    for_each_row(&flights_path().with_file_name("weather.csv.gz"), |row| {
        each(Reading {
            origin: row.text("origin")?,
            day: row.day()?,
            time_hour: row.text("time_hour")?,
            temp: row.number("temp").ok(),
        })
    })
}

#[expect(clippy::disallowed_methods, reason = "the file is the user's, not the engine's")]
fn for_each_row(path: &Path, mut each: impl FnMut(&Row<'_>) -> Result<()>) -> Result<()> {
    let mut lines = BufReader::new(GzDecoder::new(File::open(path)?)).lines();
    let split = |line: String| line.split(',').map(str::to_owned).collect::<Vec<_>>();
    let head = split(lines.next().transpose()?.unwrap_or_default());
    let columns = head.into_iter().enumerate().map(|(index, name)| (name, index)).collect();
    for line in lines {
        each(&Row { columns: &columns, fields: split(line?) })?;
    }
    Ok(())
}

/// Upserts entities by groups: one open group for each partition, committed when it is full. The
/// order of the entities in a file does not matter.
pub struct Groups<'s> {
    store: &'s dyn TableStore,
    table: &'s str,
    open: BTreeMap<String, EntityGroup>,
    entities: usize,
}

impl<'s> Groups<'s> {
    /// Creates the table if it is missing.
    pub fn new(store: &'s dyn TableStore, table: &'s str) -> Result<Self> {
        create_table(store, table)?;
        Ok(Groups { store, table, open: BTreeMap::new(), entities: 0 })
    }

    pub fn upsert(&mut self, entity: Entity) -> Result<()> {
        self.upsert_all([entity])
    }

    /// Upserts entities of one partition in the same group.
    pub fn upsert_all<const N: usize>(&mut self, entities: [Entity; N]) -> Result<()> {
        let key = entities[0].partition_key().to_owned();
        let group = self.open.entry(key).or_insert_with_key(|key| EntityGroup::new(key));
        for entity in entities {
            group.upsert(entity)?;
        }
        self.entities += N;
        if group.len() + N > GROUP_MAX {
            self.store.commit(self.table, group)?;
            let key = group.partition_key().to_owned();
            group.reset(key);
        }
        Ok(())
    }

    /// Commits the open groups; returns the number of all entities.
    pub fn finish(self) -> Result<usize> {
        for group in self.open.values().filter(|group| !group.is_empty()) {
            self.store.commit(self.table, group)?;
        }
        Ok(self.entities)
    }
}

/// Loads the flights into a table; returns their number.
pub fn load_flights(store: &dyn TableStore, table: &str) -> Result<usize> {
    let mut groups = Groups::new(store, table)?;
    for_each_flight(|flight| groups.upsert(flight.entity()?))?;
    groups.finish()
}

/// Creates a table if it is missing.
pub fn create_table(store: &dyn TableStore, table: &str) -> Result<()> {
    match store.create_table(table) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        done => Ok(done?),
    }
}

/// Calls `each` with every entity that matches a filter, page by page. A page may be short or empty
/// and still have a next one.
pub fn for_each(
    store: &dyn TableStore,
    table: &str,
    filter: &str,
    select: &[&str],
    mut each: impl FnMut(&Entity) -> Result<()>,
) -> Result<()> {
    let mut next = None;
    loop {
        let query = PageQuery { filter, select, continuation: next.as_ref(), top: 0 };
        let page = store.query(table, &query)?;
        page.entities.iter().try_for_each(&mut each)?;
        next = page.next;
        if next.is_none() {
            return Ok(());
        }
    }
}

/// Counts the entities that match a filter. Only their keys are sent.
pub fn count(store: &dyn TableStore, table: &str, filter: &str) -> Result<usize> {
    let mut count = 0;
    for_each(store, table, filter, &["PartitionKey"], |_| {
        count += 1;
        Ok(())
    })?;
    Ok(count)
}

/// Opens the store that the first argument of the program names.
pub fn store_of_arguments() -> Result<Box<dyn TableStore>> {
    let Some(name) = env::args().nth(1) else {
        eprintln!("usage: PROGRAM STORE, which is a directory or the endpoint of a service");
        std::process::exit(2);
    };
    Ok(open_store(&name)?)
}

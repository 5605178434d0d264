//! The programs of the cookbook (`examples/`), each over a directory and over an endpoint.
//!
//! The figures are those of the file of flights: of the sample, or of the whole year if the
//! variable ROWSTONE_FLIGHTS names its file. Each test counts the lines of the file itself, and
//! asserts the figures of the year as constants.

#![expect(
    dead_code,
    clippy::duplicate_mod,
    reason = "`main` is for the programs, each of which includes the shared module"
)]

#[path = "../../examples/cookbook/mod.rs"]
mod shared;

mod airline;
mod archive;
mod big;
mod delegated;
mod keys;
mod ledger;
mod lossy;
mod queue;
mod reading;
mod second_key;
mod timeseries;
mod views;

use std::collections::BTreeSet;
use std::io::BufRead;

use rowstone::Db;
use rowstone::store::{Remote, TableStore};

use crate::rest::Place;

/// The lines of the file of flights.
struct Flights {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Flights {
    fn read() -> Self {
        Self::of("flights.csv.gz")
    }

    #[expect(clippy::disallowed_methods, reason = "the file is the user's, not the engine's")]
    fn of(name: &str) -> Self {
        let path = match name {
            "flights.csv.gz" => shared::flights_path(),
            _ => shared::flights_path().with_file_name(name),
        };
        let file = std::fs::File::open(path).unwrap();
        let lines = std::io::BufReader::new(flate2::read::GzDecoder::new(file)).lines();
        let fields = |line: String| line.split(',').map(str::to_owned).collect();
        let mut rows = lines.map(|line| fields(line.unwrap()));
        Self { columns: rows.next().unwrap(), rows: rows.collect() }
    }

    /// Returns the fields of a column.
    fn column(&self, name: &str) -> impl Iterator<Item = &str> {
        let index = self.columns.iter().position(|column| column == name).unwrap();
        self.rows.iter().map(move |row| &*row[index])
    }

    /// Counts the rows with these values in these columns.
    fn count(&self, conditions: &[(&str, &str)]) -> usize {
        let index = |name| self.columns.iter().position(|column| column == name).unwrap();
        let conditions: Vec<_> =
            conditions.iter().map(|(name, value)| (index(*name), *value)).collect();
        let rows = self.rows.iter();
        rows.filter(|row| conditions.iter().all(|(index, value)| row[*index] == *value)).count()
    }

    /// Returns the codes of the listed airports.
    fn airports() -> BTreeSet<String> {
        let text = include_str!("../../examples/data/airports.csv");
        let codes = text.lines().skip(1).filter_map(|line| line.split(',').next());
        codes.map(str::to_owned).collect()
    }

    fn is_year(&self) -> bool {
        std::env::var_os("ROWSTONE_FLIGHTS").is_some()
    }
}

/// Asserts a figure: that of an independent count, and in the long form that of the year.
#[track_caller]
fn check(figure: usize, counted: usize, year: usize) {
    assert_eq!(figure, counted);
    if std::env::var_os("ROWSTONE_FLIGHTS").is_some() {
        assert_eq!(figure, year);
    }
}

fn over_directory(run: impl FnOnce(&dyn TableStore)) {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(directory.path()).unwrap();
    run(&db);
    db.close().unwrap();
}

fn over_endpoint(run: impl FnOnce(&dyn TableStore)) {
    let place = Place::new();
    let server = place.serve("--log off --durability buffered");
    run(&Remote::open(&server.connection()).unwrap());
    server.stop();
}

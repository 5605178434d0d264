//! Reads real flights: each row of the data set nycflights13 becomes a reading, with ten of its
//! columns as the ten properties. A missing value (`NA` or empty) is read as 0, or as an empty
//! text.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::reading::{Key, Reading};

/// Reads a CSV file with the columns of the data set. A file name that ends in `.gz` means gzip.
///
/// | property | column | | property | column |
/// | --- | --- | --- | --- | --- |
/// | keys | carrier-origin, time_hour-flight-tailnum | | note | dest |
/// | at | time_hour | | online | `dep_delay` is not above 0 |
/// | battery | distance | | pressure | arr_delay |
/// | counter | flight | | site | origin |
/// | firmware | tailnum | | temperature | dep_delay |
/// | humidity | air_time | | | |
pub fn read(path: &Path) -> io::Result<Vec<Reading>> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(named)?;
    let is_zipped = path.extension().is_some_and(|extension| extension == "gz");
    let reader: Box<dyn Read> =
        if is_zipped { Box::new(flate2::read::GzDecoder::new(file)) } else { Box::new(file) };
    let mut lines = BufReader::new(reader).lines();
    let header = lines.next().ok_or_else(|| invalid("an empty file"))??;
    let columns: Vec<&str> = header.split(',').collect();
    let mut rows = Vec::new();
    for line in lines {
        let line = line?;
        let fields: Vec<&str> = line.split(',').collect();
        let of = |name: &str| {
            let place = columns.iter().position(|column| *column == name);
            let field = place.and_then(|place| fields.get(place)).copied();
            field.map(|field| if field == "NA" { "" } else { field }).ok_or_else(|| invalid(name))
        };
        rows.push(reading(of)?);
    }
    number_partitions(&mut rows);
    Ok(rows)
}

fn reading<'a>(of: impl Fn(&str) -> io::Result<&'a str>) -> io::Result<Reading> {
    let number = |name: &str| of(name).map(|field| field.parse::<f64>().unwrap_or(0.0));
    let (carrier, origin, hour) = (of("carrier")?, of("origin")?, of("time_hour")?);
    let (flight, tail, delay) = (of("flight")?, of("tailnum")?, number("dep_delay")?);
    // Some copies of the data set separate date and time by a blank, and have no time zone.
    let time = hour.trim_end_matches('Z').replace(' ', "T") + "Z";
    let at: rowstone::DateTime = time.parse().map_err(|_| invalid("time_hour"))?;
    Ok(Reading {
        key: Key {
            device: 0,
            partition: format!("{carrier}-{origin}"),
            row: format!("{hour}-{flight}-{tail}"),
        },
        at: at.ticks() as i64,
        battery: number("distance")? as i32,
        counter: flight.parse().unwrap_or(0),
        firmware: tail.to_owned(),
        humidity: number("air_time")?,
        note: of("dest")?.to_owned(),
        online: delay <= 0.0,
        pressure: number("arr_delay")?,
        site: origin.to_owned(),
        temperature: delay,
    })
}

/// Numbers the partitions in the order of their keys.
fn number_partitions(rows: &mut [Reading]) {
    let mut names: Vec<String> = rows.iter().map(|row| row.key.partition.clone()).collect();
    names.sort_unstable();
    names.dedup();
    for row in rows {
        let place = names.binary_search(&row.key.partition).expect("it is among them");
        row.key.device = place as u32;
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no flights: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_read() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/data/flights.csv.gz");
        let rows = read(&path).expect("the repository has it");
        assert!(rows.len() > 10_000);
        assert_eq!((&*rows[0].key.partition, rows[0].counter), ("UA-EWR", 1545));
        assert_eq!((rows[0].temperature, &*rows[0].note), (2.0, "IAH"));
    }
}

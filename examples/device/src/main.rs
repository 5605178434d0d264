//! Shows a device that keeps the readings of a sensor. It opens a database, writes a few rows, and
//! reads the rows of the last hour.
//!
//! The size of this program, built with `cargo build --profile size`, shows how much the library
//! adds to a program.

use std::error::Error;

use rowstone::{Entity, Options};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: rowstone-device DIRECTORY")?;
    let db = Options::edge().open(path)?;
    let readings = db.table_or_create("Readings")?;
    for second in 0..10 {
        let row = format!("2024-01-31T11:59:{second:02}");
        readings.upsert(Entity::new("sensor-1", row).with("Celsius", 21.5).with("Ok", true))?;
    }
    let last = readings
        .query("PartitionKey eq 'sensor-1' and RowKey ge '2024-01-31T11' and Ok eq true")?;
    println!("{} readings in the last hour", last.count()?);
    db.close()?;
    Ok(())
}

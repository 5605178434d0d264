//! Shows a device that keeps the readings of a sensor. It opens a database, writes a few rows, and
//! reads the rows of the last hour. With the feature `upload` it then carries all rows that are new
//! to a Table service, and ends; what could not be sent is sent by the next run.
//!
//! The size of this program, built with `cargo build --profile size`, shows how much the library
//! adds to a program.

use std::error::Error;

#[cfg(feature = "upload")]
use rowstone::{
    Db, RetryPolicy,
    store::sync::{Source, SyncJob},
    store::{Remote, RemoteOptions},
};
use rowstone::{Entity, Options};

/// The maximum size of the logs that keep what was not sent yet, in bytes.
const KEPT_BYTES: u64 = 8 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: rowstone-device DIRECTORY [SERVICE]")?;
    let options = Options::edge();
    let options = if cfg!(feature = "upload") { options.keep_changes(KEPT_BYTES) } else { options };
    let db = options.open(path)?;
    let readings = db.table_or_create("Readings")?;
    for second in 0..10 {
        let row = format!("2024-01-31T11:59:{second:02}");
        readings.upsert(Entity::new("sensor-1", row).with("Celsius", 21.5).with("Ok", true))?;
    }
    let last = readings
        .query("PartitionKey eq 'sensor-1' and RowKey ge '2024-01-31T11' and Ok eq true")?;
    println!("{} readings in the last hour", last.count()?);
    #[cfg(feature = "upload")]
    if let Some(service) = std::env::args().nth(2) {
        // Being offline is usual.
        if let Err(error) = upload(&db, &service) {
            eprintln!("not sent: {error}");
        }
    }
    db.close()?;
    Ok(())
}

/// Carries the changes to a service: `env:NAME`, `file:PATH` or `UseDevelopmentStorage=true`.
#[cfg(feature = "upload")]
fn upload(db: &Db, service: &str) -> rowstone::Result<()> {
    // The sync repeats requests itself: each one must have ended when the next one is sent.
    let service = Remote::open_with(service, RemoteOptions::new().retries(RetryPolicy::none()))?;
    // Devices with one target need names of their own.
    let mut sync = SyncJob::new(Source::Db(db.clone()), &service).name("station-1");
    sync.run(false, &mut |_| true)?;
    println!("{} readings sent", sync.status().rows);
    Ok(())
}

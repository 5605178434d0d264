//! Tests that commands that read a database take no lock and change nothing.

use super::*;
use rowstone::{Db, Durability, Entity, Options};

const COMMANDS: [&str; 15] = [
    "tables db",
    "get db parts p r0039",
    "query db parts",
    "export db parts",
    "stats db",
    "partitions db",
    "advise db",
    "verify db",
    "compare db db",
    "check-refs db parts --into parts --partition-key p --row-key r0001",
    "inspect db/CURRENT",
    "gate list db",
    "wear db",
    "changes db --positions",
    "copy db parts --to other",
];

/// Opens a database and writes 40 rows of which only the first 20 are durable.
fn written(path: &Path) -> Db {
    let db = Options::new().background(rowstone::options::Background::Manual).open(path).unwrap();
    let parts = db.create_table("parts").unwrap().with_durability(Durability::Os);
    for row in 0..40 {
        if row == 20 {
            db.flush().unwrap();
        }
        parts.upsert(Entity::new("p", format!("r{row:04}")).with("V", row)).unwrap();
    }
    db
}

fn files(dir: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<_> =
        entries.map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap())).collect();
    files.sort();
    files
}

/// The test copies the files of an open database, which are those that a killed process would
/// leave.
#[test]
fn trap_62_reading_commands_change_nothing_in_a_killed_database() {
    let place = Place::new();
    let writer = written(&place.path("source"));
    std::fs::create_dir(place.path("db")).unwrap();
    for (name, bytes) in files(&place.path("source")) {
        if name != "LOCK" {
            std::fs::write(place.path("db").join(name), bytes).unwrap();
        }
    }
    writer.close().unwrap();
    place.write("db/000777.sst", "an orphan");
    let before = files(&place.path("db"));
    for command in COMMANDS {
        let run = place.run(command);
        assert_eq!(run.status, Some(0), "{command}: {run:?}");
        assert!(files(&place.path("db")) == before, "{command}");
    }
    assert_eq!(place.ok("export db parts").lines().count(), 40);
    assert_eq!(place.ok("export other parts").lines().count(), 40);
}

#[test]
fn trap_62_reading_commands_work_beside_a_writer() {
    let place = Place::new();
    let writer = written(&place.path("db"));
    writer.sync().unwrap();
    let before = files(&place.path("db"));
    for command in COMMANDS {
        let run = place.run(command);
        assert_eq!(run.status, Some(0), "{command}: {run:?}");
        assert!(files(&place.path("db")) == before, "{command}");
    }
    assert_eq!(place.ok("export db parts").lines().count(), 40);
    place.fails("create-table db others", 2, &["open in another process"]);
    writer.close().unwrap();
}

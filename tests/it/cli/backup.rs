//! Tests of the commands `backup`, `backups` and `restore`, run as processes.

use super::*;

/// Creates a table of 78 rows: partitions `a` to `z`, with three rows each.
fn letters() -> Place {
    let place = Place::new();
    let lines: Vec<String> = (b'a'..=b'z')
        .flat_map(|pk| (1..=3).map(move |rk| (pk as char, rk)))
        .map(|(pk, rk)| format!(r#"{{"PartitionKey":"{pk}","RowKey":"{rk}","A":{rk}}}"#))
        .collect();
    place.feed("import db Parts -", lines.join("\n")).ok();
    place
}

#[test]
fn a_database_is_restored_as_a_whole_and_in_parts() {
    let place = letters();
    let first = place.ok("backup db kept");
    assert!(first.starts_with("backup 1: ") && first.contains("bytes copied"), "{first}");
    place.ok("delete db Parts a 1");
    let second = place.ok("backup db kept --json");
    assert!(second.starts_with(r#"{"generation":2,"taken":""#), "{second}");
    assert!(second.ends_with("}\n"), "{second}");
    assert!(place.ok("backup db kept --json").contains(r#""new_files":0,"new_bytes":0}"#));
    assert_eq!(place.ok("backups list kept").lines().count(), 5);
    let list = place.ok("backups list kept --json");
    assert!(
        list.starts_with("[\n{\"generation\":1,") && list.ends_with("\"problem\":null}\n]\n"),
        "{list}"
    );
    assert!(place.ok("backups verify kept").starts_with("3 backups of "));
    assert!(place.ok("backups verify kept --json").contains(r#""problems":[]}"#));
    // Restores a whole backup.
    assert!(place.ok("restore kept again --generation 1").starts_with("restored backup 1 of "));
    assert!(place.ok("get again Parts a 1").contains('1'));
    place.ok("verify again");
    place.fails("restore kept again", 1, &["again", "not empty", "name a new directory"]);
    place.fails("restore kept more --generation 9", 1, &["no backup 9"]);
    // Restores a partition, a table under a new name, and a table into a new database.
    let room = ["EntityAlreadyExists", "rowstone delete DB TABLE --partition"];
    place.fails("restore kept db --table Parts --partition a", 1, &room);
    place.fails("restore kept none --table Partz", 1, &["TableNotFound"]);
    place.fails("restore kept none --table Parts --generation 9", 1, &["no backup 9"]);
    place.fails("restore kept none --table Parts --into no-name", 1, &["resource name"]);
    assert!(!place.path("none").exists(), "created by a failed command");
    place.ok("delete db Parts a 2");
    place.ok("delete db Parts a 3");
    let moved = place.ok("restore kept db --generation 1 --table Parts --partition a");
    assert!(moved.starts_with("restored 3 entities in "), "{moved}");
    let moved = place.ok("restore kept db --table Parts --into Before --json");
    assert!(moved.starts_with(r#"{"entities":77,"#), "{moved}");
    place.ok("restore kept new --table Parts");
    assert!(place.ok("tables new --format csv").contains("\nParts,77,true,"));
    place.fails("restore kept more --partition a", 2, &["--table"]);
    // Removes all backups but the newest.
    assert!(place.ok("backups prune kept --keep 1").starts_with("removed 2 backups, "));
    assert!(place.ok("backups prune kept --keep 1 --json").starts_with(r#"{"generations":0,"#));
    place.fails("backups prune kept --keep 0", 1, &["at least one"]);
    place.ok("restore kept more");
    place.ok("verify db");
}

#[test]
fn damaged_backups_are_reported_by_file() {
    let place = letters();
    place.ok("backup db kept");
    place.fails("backups list db", 2, &["there are no backups"]);
    place.fails("backup db db", 1, &["is in the database"]);
    place.fails("get kept Parts a 1", 2, &["kept"]);
    let files = std::fs::read_dir(place.path("kept/files")).unwrap();
    for path in files.map(|entry| entry.unwrap().path()) {
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    let run = place.run("backups verify kept");
    assert_eq!(run.status, Some(1), "{run:?}");
    assert!(run.out.contains("problem: ") && run.out.contains(".sst"), "{}", run.out);
    assert!(run.out.contains("backups that need it: 1"), "{}", run.out);
    place.fails("restore kept again", 1, &["kept/files/", "checksum", "backups verify"]);
    place.fails("repair kept again", 2, &["no database in kept"]);
    assert!(!place.path("again/CURRENT").exists());
}

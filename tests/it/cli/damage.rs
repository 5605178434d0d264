//! A damaged database and the commands for it: verify, heal, repair, salvage.

use super::*;

/// A database with a backup that shares no bytes with it, and one damaged table file.
fn damaged() -> Place {
    let place = Place::new();
    let rows: Vec<String> = (0..5_000)
        .map(|i| format!(r#"{{"PartitionKey":"p{}","RowKey":"r{i:04}","V":{i}}}"#, i % 3))
        .collect();
    place.write("rows.ndjson", rows.join("\n"));
    place.ok("import db things rows.ndjson");
    place.ok("checkpoint db backup");
    // A checkpoint on the same disk shares files by links: one for real is elsewhere.
    let (db, backup) = (place.path("db"), place.path("backup"));
    let largest = std::fs::read_dir(&db).unwrap().map(|entry| entry.unwrap().path());
    let largest = largest.filter(|path| path.extension().is_some_and(|e| e == "sst"));
    let largest = largest.max_by_key(|path| path.metadata().unwrap().len());
    let path = largest.unwrap_or_else(|| panic!("no table file in {}", backup.display()));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[200] ^= 1;
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, bytes).unwrap();
    place
}

#[test]
fn a_damaged_file_is_found_and_healed() {
    let place = damaged();
    let run = place.run("verify db");
    assert_eq!(run.status, Some(1), "{run:?}");
    assert!(run.out.contains("(the file holds keys t1/p0/r0000 to t1/p2/r4997)"), "{run:?}");
    let run = place.run("get db things p0 r0000");
    assert_eq!(run.status, Some(1), "{run:?}");
    assert!(run.err.contains("rowstone heal DB --from BACKUP"), "{run:?}");
    let run = place.run("heal db --from elsewhere");
    assert_eq!(run.status, Some(2), "{run:?}");
    let json = place.ok("heal db --from backup --format json");
    assert!(json.starts_with(r#"{"ok":true,"checked":"#) && json.contains(r#""now":"#), "{json}");
    assert!(place.ok("verify db").ends_with("no problems\n"));
    assert!(place.ok("heal db --from backup").ends_with("0 damaged, 0 healed\n"));
}

#[test]
fn a_damaged_database_is_repaired_into_a_new_one_and_salvaged() {
    let place = damaged();
    let run = place.run("repair db new");
    assert_eq!(run.status, Some(1), "{run:?}");
    for part in
        ["lost: ", "things: ('p0', 'r0000') to ('p", "entries at most", "the state is that of "]
    {
        assert!(run.out.contains(part), "{part}: {run:?}");
    }
    assert!(place.ok("verify new").ends_with("no problems\n"));
    let left = place.ok("export new things").lines().count();
    assert!(left > 10 && left < 5_000, "{left} rows");
    let again = place.run("repair db new --format json");
    assert_eq!(again.status, Some(2), "{again:?}");
    let run = place.run("repair db newer --format json");
    assert!(run.out.starts_with(r#"{"ok":false,"notes":[]"#) && run.out.contains(r#""ranges":[{"#));
    let run = place.run("salvage db --out all.ndjson --only live");
    assert_eq!(run.status, Some(1), "{run:?}");
    let salvaged = place.read("all.ndjson");
    assert_eq!(salvaged.lines().count(), left, "{run:?}");
    assert!(salvaged.starts_with(r#"{"table":"things","state":"live","seq":""#), "{salvaged}");
    assert_eq!(place.run("salvage db --only alive").status, Some(2));
}

#[test]
fn a_sound_database_is_repaired_whole() {
    let place = Place::new();
    place.ok(r#"put db things {"PartitionKey":"p","RowKey":"r"}"#);
    let text = place.ok("repair db copy");
    assert!(text.ends_with("nothing is lost\n"), "{text}");
    assert_eq!(place.ok("export db things"), place.ok("export copy things"));
    std::fs::remove_file(place.path("db/CURRENT")).unwrap();
    let run = place.run("tables db");
    assert!(run.status == Some(2) && run.err.contains("rowstone repair DB NEW"), "{run:?}");
    let text = place.ok("repair db other");
    assert!(text.contains("CURRENT") && text.ends_with("nothing is lost\n"), "{text}");
    assert_eq!(place.run("repair nowhere new").status, Some(2));
}

//! Tests the commands for a damaged database: verify, heal, repair, salvage.

use super::*;

/// Creates a database with one damaged table file, and a backup that shares no bytes with it.
fn damaged() -> Place {
    let place = Place::new();
    let rows: Vec<String> = (0..5_000)
        .map(|i| format!(r#"{{"PartitionKey":"p{}","RowKey":"r{i:04}","V":{i}}}"#, i % 3))
        .collect();
    place.write("rows.ndjson", rows.join("\n"));
    place.ok("import db things rows.ndjson");
    place.ok("checkpoint db backup");
    // A checkpoint on the same disk shares files by hard links. This copy shares none, like a real
    // backup.
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
    place.fails("heal db --from backup --file 999999.sst", 2, &["no table file 999999.sst"]);
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

/// `heal` also reads a backup directory, in which files have other names and are in a subdirectory.
#[test]
fn a_damaged_file_is_healed_from_a_directory_of_backups() {
    let place = damaged();
    place.ok("backup backup kept");
    place.ok(r#"put db things {"PartitionKey":"p0","RowKey":"since"}"#);
    let healed = place.ok("heal db --from kept");
    assert!(healed.contains("healed from kept/files/"), "{healed}");
    assert!(place.ok("verify db").ends_with("no problems\n"));
    assert_eq!(place.ok("export db things").lines().count(), 5_001);
}

#[test]
fn salvage_overwrites_no_needed_file() {
    let place = damaged();
    place.write("all.ndjson", "of yesterday");
    let current = std::fs::read(place.path("db/CURRENT")).unwrap();
    let refused = ["in the directory of a database"];
    place.fails("salvage db --out db/CURRENT --force", 2, &refused);
    place.fails("salvage db --out all.ndjson", 2, &["all.ndjson exists", "--force"]);
    let dir = place.path("db");
    let mut inside = place.command("salvage . --out CURRENT --force");
    Run::of(inside.current_dir(&dir).output().unwrap()).fails(2, &refused);
    assert_eq!(std::fs::read(place.path("db/CURRENT")).unwrap(), current);
    // While another process has the database open, `salvage` fails and leaves the output file
    // unchanged.
    let mut command = place.command("exec db");
    let mut open = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = open.stdin.take().unwrap();
    stdin.write_all(b"{\"op\":\"tables\"}\n").unwrap();
    let mut answer = [0; 5];
    std::io::Read::read_exact(&mut open.stdout.take().unwrap(), &mut answer).unwrap();
    place.fails("salvage db --out all.ndjson --force", 2, &["is open"]);
    assert_eq!(place.read("all.ndjson"), "of yesterday");
    drop(stdin);
    open.wait().unwrap();
    place.run("salvage db --out all.ndjson --force --only dropped");
    assert_eq!(place.read("all.ndjson"), "");
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

/// After a writer was killed, a command opens the database before the next writer does. The command
/// keeps the killed writer's logs for the change feed.
#[test]
fn commands_keep_the_change_log() {
    let place = Place::new();
    let options = rowstone::Db::options().keep_changes(1 << 30);
    let db = options.open(place.path("db")).unwrap();
    let table = db.create_table("things").unwrap();
    let big = |i: u32| {
        let row = rowstone::Entity::new("p", format!("{i:06}")).with("Text", "x".repeat(10_000));
        table.insert(row).unwrap();
    };
    (0..40).for_each(big);
    db.flush().unwrap();
    (40..80).for_each(big);
    let oldest = db.oldest_position().unwrap();
    for (name, command) in
        [("a", "tables a"), ("b", "get b things p 000001"), ("c", "heal c --from db")]
    {
        let killed = place.path(name);
        std::fs::create_dir(&killed).unwrap();
        for file in std::fs::read_dir(place.path("db")).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), killed.join(file.file_name())).unwrap();
        }
        place.ok(command);
        let reader = rowstone::Db::open_read_only(&killed).unwrap();
        assert_eq!(reader.oldest_position().unwrap(), oldest, "{command}");
    }
}

//! Tests that every bad input yields an error that names the input and the position in it, and an
//! exit status, and never a panic.

use std::process::Stdio;

use super::{Place, Run, parts, sample};

#[test]
fn usage() {
    for names in ["", ",", "A,", "A, ,B"] {
        let place = Place::new();
        for command in ["query db Tab", "scan db Tab", "get db Tab p r", "copy db Tab --to new"] {
            let run = Run::of(place.command(command).args(["--select", names]).output().unwrap());
            run.fails(2, &["a value is required for '--select <"]);
        }
    }
    let place = Place::new();
    place.fails("", 2, &["Usage"]);
    place.fails("explode db", 2, &["explode"]);
    place.fails("scan db", 2, &["<TABLE>"]);
    place.fails("scan db Tab --formt json", 2, &["--formt", "--format"]);
    place.fails("scan db Tab --top many", 2, &["--top", "many"]);
    place.fails("put db Tab {} --durability maybe", 2, &["maybe", "sync", "os", "buffered"]);
    place.fails("import db Tab a.csv --type a=Int33", 2, &["Int33", "Edm.Int32"]);
    assert!(!place.path("db").exists());
}

/// Such a path was made a directory, whose name held the key of the account.
#[test]
fn a_url_or_connection_string_is_no_path() {
    let place = parts();
    let keys = "DefaultEndpointsProtocol=https;AccountName=acme;AccountKey=c2VjcmV0;";
    for (path, kind) in [("https://acme.table.core.windows.net", "a URL"), (keys, "a connection")] {
        for arguments in [
            "create-table PATH Tab",
            "put PATH Tab {\"PartitionKey\":\"p\",\"RowKey\":\"r\"}",
            "exec PATH",
            "import PATH Tab -",
            "import db Tab PATH",
            "tables PATH",
            "backup db PATH",
            "restore PATH db",
            "gate list PATH",
            "copy db parts --to PATH",
            "export db parts --out PATH",
            "bench PATH",
            "describe PATH parts",
        ] {
            let run = place.run(&arguments.replace("PATH", path));
            assert!(!run.err.contains("c2VjcmV0") && !run.created, "{arguments}: {run:?}");
            run.fails(2, &[kind, "must be a "]);
        }
        place.fails(&format!("stats {path}"), 2, &["must be a path", "try: `rowstone help copy`"]);
    }
    assert_eq!(std::fs::read_dir(place.path("")).unwrap().count(), 1);
    assert_eq!(place.tables(), "parts\n");
}

#[test]
fn a_missing_database_is_not_created_by_reading() {
    let place = Place::new();
    for arguments in [
        "tables db",
        "scan db Tab",
        "get db Tab p r",
        "delete db Tab p r",
        "drop-table db Tab",
        "export db Tab",
        "stats db",
        "wear db",
        "verify db",
        "checkpoint db copy",
        "backup db copy",
        "restore db copy",
        "backups list db",
        "describe db Tab",
        "query db Tab",
        "partitions db",
        "changes db",
        "gate list db",
    ] {
        place.fails(arguments, 2, &["there ", " in db", "try: name the directory"]);
        assert!(!place.path("db").exists() && !place.path("copy").exists(), "{arguments}");
    }
}

#[test]
fn an_empty_directory_becomes_a_database() {
    let place = Place::new();
    std::fs::create_dir(place.path("db")).unwrap();
    place.fails("tables db", 2, &["db"]);
    place.ok("create-table db Tab");
    assert_eq!(place.tables(), "Tab\n");
    place.fails("create-table db tab", 1, &["TableAlreadyExists"]);
    for name in ["x", "9ab", "a-b", "tables"] {
        place.fails(&format!("create-table db {name}"), 1, &["error: "]);
    }
    let run = place.feed("exec new/deep/db", r#"{"op":"tables"}"#);
    assert_eq!(run.ok(), "{\"ok\":true,\"tables\":[]}\n");
}

#[test]
fn a_foreign_directory_or_file_is_left_alone() {
    let place = Place::new();
    std::fs::create_dir(place.path("home")).unwrap();
    place.write("home/notes.txt", "mine");
    place.write("file", "mine");
    for path in ["home", "file"] {
        for arguments in ["tables PATH", "create-table PATH Tab", "exec PATH", "put PATH Tab {}"] {
            let arguments = arguments.replace("PATH", path);
            let entity = r#"{"PartitionKey":"p","RowKey":"r"}"#;
            let run = place.feed(&arguments.replace("{}", "-"), entity);
            run.fails(2, &[path]);
        }
    }
    assert_eq!(place.read("home/notes.txt"), "mine");
    assert_eq!(std::fs::read_dir(place.path("home")).unwrap().count(), 1);
    assert_eq!(place.read("file"), "mine");
}

#[test]
fn entities_that_break_a_rule() {
    let place = Place::new();
    let put = |entity: &str| place.feed("put db Tab -", entity);
    put("nonsense").fails(1, &["InvalidInput", "not JSON"]);
    put("").fails(1, &["InvalidInput"]);
    put(r#"{"RowKey":"r"}"#).fails(1, &["PropertiesNeedValue"]);
    put(r#"{"PartitionKey":"p","RowKey":"r","A":1,"A":2}"#).fails(1, &["DuplicateProperties"]);
    assert!(!place.path("db").exists());
    let key = "k".repeat(1025);
    put(&format!(r#"{{"PartitionKey":"p","RowKey":"{key}"}}"#))
        .fails(1, &["PropertyValueTooLarge"]);
    put(r#"{"PartitionKey":"a/b","RowKey":"r"}"#).fails(1, &["OutOfRangeInput", "'a/b'", "try: "]);
    put(r#"{"PartitionKey":"p","RowKey":"r","a b":1}"#).fails(1, &["PropertyNameInvalid"]);
    let text = "x".repeat(32_769);
    put(&format!(r#"{{"PartitionKey":"p","RowKey":"r","A":"{text}"}}"#))
        .fails(1, &["PropertyValueTooLarge"]);
    let many: Vec<_> = (0..253).map(|i| format!(r#""P{i}":1"#)).collect();
    put(&format!(r#"{{"PartitionKey":"p","RowKey":"r",{}}}"#, many.join(",")))
        .fails(1, &["TooManyProperties"]);
}

#[test]
fn files_that_cannot_be_read() {
    let place = Place::new();
    let keys = "--partition-key {p} --row-key {r}";
    let import = |file: &str| place.run(&format!("import db Tab {file} {keys}"));
    import("none.csv").fails(1, &["cannot read none.csv"]);
    import(".").fails(1, &["it is a directory"]);
    let whole = std::fs::read(sample("flights.csv.gz")).unwrap();
    place.write("cut.csv.gz", &whole[..whole.len() / 2]);
    place
        .run("import db Tab cut.csv.gz --partition-key {carrier} --row-key {flight}")
        .fails(1, &["cannot read cut.csv.gz"]);
    place.write("flipped.gz", [&whole[..1000], &[whole[1000] ^ 0x55], &whole[1001..]].concat());
    place
        .run("import db Tab flipped.gz --partition-key {carrier} --row-key {flight}")
        .fails(1, &["cannot read flipped.gz"]);
    place.write("twice.csv", "p,r,p\n");
    import("twice.csv").fails(1, &["column 'p' is there twice"]);
    place.write("name.csv", "p,r,first name\n");
    import("name.csv").fails(1, &["'first name'", "--skip"]);
    place.write("other.csv", "a,b\n1,2\n");
    import("other.csv").fails(2, &["no column 'p'\n", "columns: a, b"]);
    place.run("import db Tab other.csv").fails(2, &["--partition-key is needed", "'{a}'"]);
    place.write("rows.sqlite", b"SQLite format 3\0\x10\0");
    for command in ["import db Tab rows.sqlite", "advise --sample rows.sqlite"] {
        place.fails(command, 1, &["rows.sqlite: it is a SQLite", "sqlite3 -json rows.sqlite "]);
    }
    place.run("import db Tab other.csv --partition-key {a --row-key {b}").fails(2, &["lone brace"]);
    assert!(!place.path("db").exists());
    place.write("good.csv", "p,r\n1,2\n");
    place
        .run(&format!("import db Tab good.csv {keys} --rejects no/such/dir/file"))
        .fails(1, &["cannot write no/such/dir/file"]);
}

#[test]
fn no_command_overwrites_a_file_or_a_part_of_a_database() {
    let place = parts();
    let current = std::fs::read(place.path("db/CURRENT")).unwrap();
    place.write("rows", "{}");
    place.write("old", "of yesterday");
    for command in [
        "export db parts -o",
        "import db parts rows --rejects",
        "copy db parts --into other --rejects",
        "salvage db --out",
    ] {
        place.fails(&format!("{command} old"), 2, &["old exists", "--force"]);
        for file in ["db/CURRENT", "db/new"] {
            let refused = ["in the directory of a database", "elsewhere"];
            place.fails(&format!("{command} {file} --force"), 2, &refused);
        }
    }
    assert_eq!(place.read("old"), "of yesterday");
    assert_eq!(std::fs::read(place.path("db/CURRENT")).unwrap(), current);
    assert!(!place.path("db/new").exists());
    assert_eq!(place.tables(), "parts\n");
    place.ok("export db parts -o old --force");
    assert_eq!(place.read("old"), place.ok("export db parts"));
    #[cfg(unix)]
    assert_eq!(place.ok("export db parts -o /dev/null"), "");
    for target in ["checkpoint db", "backup db", "export-range db parts", "repair db"] {
        let run = place.run(&format!("{target} old"));
        assert!(run.status.is_none_or(|status| status != 0), "{target}: {run:?}");
    }
    assert_eq!(place.read("old"), place.ok("export db parts"));
}

#[test]
fn trap_34_a_second_process_is_refused() {
    let place = parts();
    let mut command = place.command("exec db");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = command.spawn().unwrap();
    let mut requests = holder.stdin.take().unwrap();
    let mut line = String::new();
    std::io::Write::write_all(&mut requests, b"{\"op\":\"tables\"}\n").unwrap();
    let mut responses = std::io::BufReader::new(holder.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut responses, &mut line).unwrap();
    place.feed("exec db", "").fails(2, &["db", "try: "]);
    // A reader does not need the lock.
    assert_eq!(place.tables(), "parts\n");
    drop(requests);
    assert_eq!(holder.wait().unwrap().code(), Some(0));
    assert_eq!(place.tables(), "parts\n");
}

#[test]
fn a_damaged_database_is_named() {
    let place = parts();
    let current = place.path("db/CURRENT");
    let whole = std::fs::read(&current).unwrap();
    std::fs::write(&current, &whole[..whole.len() / 2]).unwrap();
    place.fails("tables db", 2, &["CURRENT"]);
    std::fs::remove_file(&current).unwrap();
    place.fails("tables db", 2, &["db"]);
    place.fails("create-table db Other", 2, &["db"]);
}

#[test]
fn a_file_is_no_database() {
    let place = parts();
    place.write("file", "");
    for command in ["tables file", "scan file parts", "exec file", "repair file new"] {
        place.fails(command, 2, &["file", "try: a database is a directory"]);
    }
    place.fails("inspect db", 2, &["db", "try: name a file in it"]);
    let advice = ["(PropertiesNeedValue)", "try: an entity needs a PartitionKey"];
    place.fails("put db parts {}", 1, &advice);
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_ends_the_command_without_error() {
    use std::io::Read;
    let place = Place::new();
    let keys =
        "--partition-key {carrier} --row-key {time_hour}-{origin}-{flight}-{tailnum} --null NA";
    place.ok(&format!("import db Flights {} {keys} --durability os", sample("flights.csv.gz")));
    for arguments in [
        "scan db Flights",
        "scan db Flights --format json",
        "scan db Flights --format csv",
        "export db Flights",
        "help",
        "query --help",
    ] {
        let mut command = place.command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut some = [0; 100];
        // Reads only the start of the output, so the program's further writes fail with a broken
        // pipe.
        child.stdout.take().unwrap().read_exact(&mut some).unwrap();
        let run = Run::of(child.wait_with_output().unwrap());
        assert_eq!((run.status, &*run.err), (Some(0), ""), "{arguments}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let place = parts();
    for arguments in ["scan db parts", "export db parts", "stats db", "wear db", "tables db"] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = place.command(arguments);
        let run = Run::of(command.stdout(full).output().unwrap());
        run.fails(1, &["cannot write the output"]);
    }
}

#[cfg(unix)]
#[test]
fn a_read_only_directory_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let home = place.path("home");
    std::fs::create_dir(&home).unwrap();
    let allow = |mode| std::fs::set_permissions(&home, PermissionsExt::from_mode(mode)).unwrap();
    allow(0o555);
    // If the superuser runs this test, the directory can be written in spite of its mode.
    let superuser = std::fs::write(place.path("home/probe"), "").is_ok();
    let run = place.run("create-table home/db Tab");
    allow(0o755);
    if !superuser {
        run.fails(2, &["home/db"]);
    }
}

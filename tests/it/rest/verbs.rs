//! Commands over a service, compared with the same commands over a directory; `import` and
//! `check-refs` over a service.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Output, Stdio};

use super::stores::Stores;

const FLIGHT_KEYS: &str =
    "--partition-key {carrier}-{origin} --row-key {time_hour}-{flight}-{tailnum} --null NA";

/// The sample of flights, in parts of which some entities share a partition.
const FLIGHTS: usize = 2_000;

/// Writes the first flights as a file, and returns the path of the airports.
fn samples(stores: &Stores) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data");
    let packed = std::fs::File::open(data.join("flights.csv.gz")).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').take(FLIGHTS + 1).collect();
    stores.place.write("flights.csv", lines.concat());
    data.join("airports.csv").to_str().unwrap().to_owned()
}

/// Removes the ETags and Timestamps, which differ between stores, from an output.
fn without_times(output: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(output).into_owned();
    for (start, end) in [("\"odata.etag\":\"", "'\\\"\""), ("\"Timestamp\":\"", "\"")] {
        while let Some(at) = text.find(start) {
            let from = at + start.len();
            let to = text[from..].find(end).map_or(text.len(), |len| from + len + end.len());
            text.replace_range(at..to, "");
        }
    }
    let is_time = |line: &&str| line.starts_with("Timestamp ") || line.starts_with("etag: ");
    text.split_inclusive('\n').filter(|line| !is_time(line)).collect()
}

/// Runs a command over the directory and over the service, where `DB` is, with spaces for `~`.
fn both(stores: &Stores, arguments: &str) -> [Output; 2] {
    ["src", "env:STORE"].map(|place| {
        let mut command = stores.command("");
        let words = arguments.split(' ').map(|word| match word {
            "DB" => place.to_owned(),
            word => word.replace('~', " "),
        });
        command.args(words).output().unwrap()
    })
}

/// Checks that a command has this status and the same output over the directory and the service.
#[track_caller]
fn same(stores: &Stores, arguments: &str, status: i32) -> String {
    let outputs = both(stores, arguments);
    let [of_directory, of_service] = outputs.each_ref().map(|output| {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        // The code ends the first line of an error.
        let code = errors.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
        let code = code.rsplit(' ').next().unwrap_or_default().to_owned();
        (output.status.code(), without_times(&output.stdout), code)
    });
    assert_eq!(of_directory, of_service, "{arguments}: {outputs:?}");
    assert_eq!(of_service.0, Some(status), "{arguments}: {outputs:?}");
    of_service.1
}

#[test]
fn reading_verbs_print_the_same_over_a_service_and_a_directory() {
    let stores = Stores::new(40);
    samples(&stores);
    for output in both(&stores, &format!("import DB Flights flights.csv {FLIGHT_KEYS}")) {
        assert!(output.status.success(), "{output:?}");
    }
    stores.ok("copy src Tab --to env:STORE");
    let flight = "UA-EWR 2013-01-01T10:00:00Z-1545-N14228";
    let one = same(&stores, &format!("get DB Flights {flight}"), 0);
    assert!(one.contains("N14228"), "{one}");
    for (arguments, status) in [
        ("get DB Tab it's~0 000003~\u{e9} --format json", 0),
        ("get DB Tab it's~0 000003~\u{e9} --format csv --select Text,Long,Nothing", 0),
        ("get DB Tab it's~0 missing", 1),
        ("get DB Tab a/b c", 1),
        ("get DB None it's~0 missing", 1),
        ("scan DB Tab", 0),
        ("scan DB Flights --top 3 --format csv", 0),
        ("scan DB Flights --partition UA-EWR --from 2013-01-01T11 --format ndjson", 0),
        ("scan DB Flights --select dest,carrier --format json", 0),
        ("scan DB Flights --top 0", 0),
        ("scan DB None", 1),
        ("query DB Flights --count", 0),
        ("query DB Flights --count --format json --filter dest~eq~'IAH'", 0),
        ("query DB Flights --filter dest~eq~'IAH'~and~distance~gt~1000 --format ndjson", 0),
        ("query DB Flights --filter dest~eq~'none'", 0),
        ("query DB Flights --filter distance~gt --count", 2),
        ("query DB Flights --select dest --top 7 --format csv", 0),
        ("query DB Tab --filter Guid~ne~guid'00000000-0000-0000-0000-000000000000'", 0),
        ("query DB None", 1),
        ("export DB Tab", 0),
        ("export DB Tab --no-metadata --format json", 0),
        ("export DB Flights --format csv", 0),
        ("export DB Flights --format table --filter dest~eq~'IAH'", 0),
        ("export DB None", 1),
        ("compare DB DB", 0),
        ("compare DB DB --table Tab --with None", 2),
    ] {
        same(&stores, arguments, status);
    }
    #[cfg(feature = "parquet")]
    for table in ["Tab", "Flights"] {
        let [a, b] = both(&stores, &format!("export DB {table} --format parquet"));
        assert!(a.status.success() && a.stdout == b.stdout && !a.stdout.is_empty(), "{b:?}");
    }
}

#[test]
fn writing_verbs_do_the_same_over_a_service_and_a_directory() {
    let stores = Stores::new(1);
    stores.ok("copy src Tab --to env:STORE");
    let row = |key: &str| format!(r#"{{"PartitionKey":"p","RowKey":"{key}","N":1}}"#);
    for (arguments, status) in [
        ("create-table DB Parts".to_owned(), 0),
        ("create-table DB Parts".to_owned(), 1),
        ("create-table DB a-b".to_owned(), 1),
        (format!("put DB Parts {} --mode replace", row("r")), 1),
        (format!("put DB Parts {} --mode insert", row("a/b")), 1),
        (format!("put DB Made {} --mode merge", row("r")), 1),
        ("delete DB Parts p r".to_owned(), 1),
        ("delete DB None p r".to_owned(), 1),
        ("drop-table DB Parts".to_owned(), 2),
    ] {
        same(&stores, &arguments, status);
    }
    // The outputs are ETags, or the directory tells more.
    for (arguments, status) in [
        (format!("put DB Parts {} --mode insert", row("r")), 0),
        (format!("put DB Parts {} --mode insert", row("r")), 1),
        (format!("put DB Parts {} --mode upsert-merge", row("s").replace("\"N\"", "\"M\"")), 0),
        (format!("put DB Parts {} --mode merge", row("r").replace("\"N\"", "\"M\"")), 0),
        ("delete DB Parts p s".to_owned(), 0),
        ("drop-table DB None --yes".to_owned(), 1),
        ("drop-table DB Tab --yes".to_owned(), 0),
    ] {
        for output in both(&stores, &arguments) {
            assert_eq!(output.status.code(), Some(status), "{arguments}: {output:?}");
        }
    }
    assert_eq!(stores.ok("tables env:STORE --format csv"), "TableName\nMade\nParts\n");
    stores.ok("compare src env:STORE");
    assert!(same(&stores, "export DB Parts", 0).contains("\"M\":1,\"N\":1"));
}

#[test]
fn an_import_into_a_service_is_that_into_a_directory() {
    let stores = Stores::new(0);
    samples(&stores);
    let import = format!("flights.csv {FLIGHT_KEYS}");
    stores.ok(&format!("import src Flights {import}"));
    let said = stores.ok(&format!("import env:STORE Flights {import} --ack"));
    let last = format!("{}\n", FLIGHTS + 1);
    assert!(said.starts_with(&last), "{said}");
    assert!(said.contains("2,000 rows read, 2,000 imported in "), "{said}");
    stores.ok("compare src env:STORE --table Flights");
    // All rows are present. Without --resume they are in the way.
    let again = stores.ok(&format!("import env:STORE Flights {import} --resume --format json"));
    let counts = r#"{"rows":2000,"imported":0,"rejected":0,"present":2000,"#;
    assert!(again.starts_with(counts), "{again}");
    // Rows that are rejected, and rows under one key.
    let long = "k".repeat(1_025);
    let text = "t".repeat(32_769);
    let rows = format!(
        "p,r,a,t\nx,1,5,\nx,2\nx,a/b,6,\n{long},1,7,\nx,3,8,{text}\nx,1,9,\nx,4,bad,\nx,5,10,\n"
    );
    stores.place.write("rows.csv", rows);
    let keys =
        "rows.csv --partition-key {p} --row-key {r} --type a=Edm.Int32 --format json --force";
    let reports = ["src", "env:STORE"].map(|place| {
        let import = format!("import {place} Rows {keys} --rejects bad");
        let output = stores.run(&import);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with(r#"{"rows":8,"imported":2,"rejected":6,"#), "{text}");
        let report = std::fs::read_to_string(stores.place.path("bad")).unwrap();
        // The messages of a service name more.
        let codes =
            report.lines().map(|line| line.split(",\"message\"").next().unwrap().to_owned());
        let mut codes: Vec<_> = codes.collect();
        codes.sort();
        codes
    });
    assert_eq!(reports[0], reports[1]);
    stores.ok("compare src env:STORE --table Rows");
    // The modes.
    stores.place.write("more.csv", "p,r,b\nx,1,2.5\nz,1,1.5\nx,1,3.5\n");
    for mode in ["upsert-merge", "upsert"] {
        for place in ["src", "env:STORE"] {
            let keys = "--partition-key {p} --row-key {r} --skip p --skip r";
            stores.ok(&format!("import {place} Rows more.csv {keys} --mode {mode}"));
        }
        stores.ok("compare src env:STORE --table Rows");
    }
    let import = format!("import env:STORE New {import}");
    stores.fails(&format!("{import} --durability os"), 2, "--durability is for a directory");
    stores.fails(&import.replace("STORE", "MISSING"), 2, "MISSING is not set (export it)");
    stores.fails(&import.replace("flights.csv", "missing.csv"), 1, "missing.csv");
    assert!(!stores.ok("tables env:STORE").contains("New"));
}

/// An import is ended while it waits for more rows, by Ctrl-C and by a kill, and is then resumed.
#[cfg(unix)]
#[test]
fn an_import_into_a_service_that_was_ended_is_resumed() {
    let stores = Stores::new(0);
    let row = |i| format!("{{\"PartitionKey\":\"{}\",\"RowKey\":\"{i}\",\"A\":{i}}}\n", i % 7);
    let rows: String = (0..12_000).map(row).collect();
    stores.place.write("rows.ndjson", &rows);
    stores.ok("import src Rows rows.ndjson --durability os");
    for signal in ["-INT", "-KILL"] {
        let table = format!("Rows{}", &signal[1..]);
        let mut command = stores.command(&format!("import env:STORE {table} - --ack"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Standard input stays open: the import must not wait for its end.
        let mut input = child.stdin.take().unwrap();
        input.write_all(rows.as_bytes()).unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let mut kill = std::process::Command::new("kill");
        assert!(kill.args([signal, &child.id().to_string()]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        drop(input);
        if signal == "-INT" {
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(130), "{text}");
            let (_, line) = text.split_once(" imported, up to line ").unwrap();
            let loaded = stores.ok(&format!("query env:STORE {table} --count --format csv"));
            assert_eq!(line.lines().next(), loaded.lines().nth(1));
            assert!(text.contains("--resume"), "{text}");
        }
        let import = format!("import env:STORE {table} rows.ndjson --resume --format json");
        let resumed = stores.ok(&import);
        assert!(resumed.contains("\"rejected\":0,\"present\":1"), "{resumed}");
        stores.ok(&format!("compare src env:STORE --table Rows --with {table}"));
    }
}

#[test]
fn references_are_checked_over_a_service_as_over_a_directory() {
    let stores = Stores::new(0);
    let airports = samples(&stores);
    for place in ["src", "env:STORE"] {
        stores.ok(&format!("import {place} Flights flights.csv {FLIGHT_KEYS}"));
        let keys = "--partition-key all --row-key {faa}";
        stores.ok(&format!("import {place} Airports {airports} {keys}"));
    }
    let into = "--into Airports --partition-key all --row-key";
    let missing = same(&stores, &format!("check-refs DB Flights {into} {{dest}}"), 1);
    assert!(missing.contains("SJU"), "{missing}");
    let json = format!("check-refs DB Flights {into} {{dest}} --format json --top 2");
    let json = same(&stores, &json, 1);
    assert!(json.contains(r#""has_all_targets":true"#), "{json}");
    // References that are no keys, and rows without the property.
    same(&stores, &format!("check-refs DB Flights {into} {{tailnum}}-{{dest}} --format csv"), 1);
    let mut command = stores.command(&format!("check-refs env:STORE Flights {into} {{origin}}"));
    let output = command.args(["--filter", "dest eq 'IAH'"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    same(&stores, "check-refs DB Flights --into None --partition-key a --row-key b", 1);
    same(&stores, "check-refs DB None --into Airports --partition-key a --row-key b", 1);
    // The two tables may be in different stores.
    for (from, to) in [("src", "env:STORE"), ("env:STORE", "src")] {
        let check = format!("check-refs {from} Flights {into} {{dest}} --to {to} --format json");
        let output = stores.run(&format!("{check} --top 2"));
        assert_eq!((output.status.code(), &*output.stdout), (Some(1), json.as_bytes()));
    }
}

/// A key that the service refuses is an error of the whole command.
#[test]
fn a_refused_key_ends_a_command_and_rejects_no_row() {
    let stores = Stores::new(200);
    stores.place.write("rows.csv", "PartitionKey,RowKey\np,1\np,2\n");
    let name = "AccountName=devstoreaccount1;AccountKey=d3Jvbmc=";
    let url = stores.url();
    for (arguments, status) in [
        ("tables env:STORE", 1),
        ("get env:STORE Tab p r", 1),
        ("query env:STORE Tab --count", 1),
        ("export env:STORE Tab --out rows.ndjson", 1),
        ("put env:STORE Tab {\"PartitionKey\":\"p\",\"RowKey\":\"r\"}", 1),
        ("import env:STORE Tab rows.csv", 1),
        ("copy src Tab --to env:STORE", 1),
        ("compare src env:STORE", 2),
        ("check-refs env:STORE Tab --into Tab --partition-key a --row-key b", 2),
    ] {
        let mut command = stores.command(arguments);
        command.env("STORE", format!("{name};TableEndpoint={url}"));
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments}: {text}");
        assert!(
            text.contains("AuthenticationFailed") && text.contains(&url),
            "{arguments}: {text}"
        );
        assert!(text.contains("to the credential of env:STORE: "), "{arguments}: {text}");
        assert!(!text.contains("d3Jvbmc"), "{arguments}: {text}");
    }
    stores.place.write("wrong", name);
    let tables = format!("tables {url} --account-file wrong");
    stores.fails(&tables, 1, "to the credential of file:wrong: ");
    assert!(!stores.place.path("rows.ndjson").exists(), "made by a failed command");
}

/// A signature for a part of a table may neither create tables nor read other partitions.
#[test]
fn signatures_for_a_part_of_a_table_are_enough() {
    let stores = Stores::new(10);
    stores.place.write("rows.csv", "PartitionKey,RowKey\np,1\np,2\n");
    stores.ok("create-table env:STORE Rows");
    let run = |permissions: &str, arguments: &str| {
        let bounds = "--expiry 2100-01-01 --start-partition p --end-partition p";
        let token = stores.place.sas(&format!("Rows --permissions {permissions} {bounds}"));
        let mut command = stores.command(arguments);
        command.env("STORE", format!("{}?{token}", stores.url())).output().unwrap()
    };
    let output = run("raud", "import env:STORE Rows rows.csv");
    assert!(output.status.success(), "{output:?}");
    // A permission that is missing is an error of the command, and rejects no row.
    for arguments in
        ["import env:STORE Rows rows.csv --mode upsert", "copy src Tab --to env:STORE --into Rows"]
    {
        let output = run("r", arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments}: {text}");
        assert!(text.contains("answered 403 Auth"), "{arguments}: {text}");
        assert!(!text.contains("sig="), "{arguments}: {text}");
    }
}

//! Tests of the commands `copy` and `check-refs`, run as processes.

use super::{Place, sample};

const ORDERS: &str = r#"{"PartitionKey":"open","RowKey":"17","Year":2012,"Part":"m4"}
{"PartitionKey":"open","RowKey":"18","Year":2013,"Part":"m5"}
{"PartitionKey":"open","RowKey":"19","Year":2013,"Part":"m4"}
{"PartitionKey":"open","RowKey":"20","Year":2013}
"#;

fn orders() -> Place {
    let place = Place::new();
    place.feed("import db Orders -", ORDERS).ok();
    place
}

#[test]
fn entities_are_archived_in_another_database_under_other_keys() {
    let place = orders();
    let mut command = place.command("copy db Orders --to old --into Archive --then-delete");
    command.args(["--filter", "Year eq 2013", "--partition-key", "{Year}"]);
    let run = super::Run::of(command.output().unwrap());
    let said = run.ok();
    let counts: Vec<Vec<_>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(counts, [["rows", "3"], ["copied", "3"], ["deleted", "3"]]);
    assert_eq!(place.ok("query db Orders --count"), "1\n");
    assert!(place.ok("scan old Archive --select PartitionKey,RowKey").contains("2013          20"));
    // A second run has nothing to do.
    let run = super::Run::of(command.output().unwrap());
    assert!(run.ok().starts_with("rows "));
}

#[test]
fn rows_that_cannot_be_copied_are_reported() {
    let place = orders();
    let copy = "copy db Orders --into ByPart --partition-key all --row-key {Part}";
    let shared = "shared: 'open' '17' for 'all' 'm4': another row would get the same key";
    let refused = "refused: 'open' '20': it has no property 'Part'";
    place.fails(copy, 3, &[shared, refused]);
    let run = place.run(&format!("{copy} --format json --rejects bad"));
    assert_eq!(run.status, Some(3));
    assert!(run.out.starts_with(r#"{"rows":4,"copied":0,"present":1,"#), "{}", run.out);
    let bad = place.read("bad");
    assert_eq!(bad.lines().count(), 3);
    assert!(bad.contains(r#""kind":"refused","PartitionKey":"open","RowKey":"20","message":"#));
    place.fails("copy db Orders", 2, &["--to"]);
    let projected = "copy db Orders --into Other --select Year --then-delete";
    place.fails(projected, 2, &["--select", "cannot be used with"]);
    place.fails("copy db Orders --into Orders --row-key {Year}", 1, &["both keys"]);
    place.fails("copy db Orders --into Other --row-key {", 1, &["lone brace"]);
    place.fails("copy db Orders --to new --row-key {", 1, &["lone brace"]);
    place.fails("copy db Orders --to new --into no-name", 1, &["resource name"]);
    assert!(!place.path("new").exists(), "created by a failed command");
    place.fails("copy db Orders --into Other --filter A=1", 2, &["A=1"]);
}

#[test]
fn refused_copies_say_what_to_do() {
    let place = orders();
    let other = r#"{"PartitionKey":"open","RowKey":"17","Year":1}"#;
    place.feed("put new Orders -", other).ok();
    let run = place.run("copy db Orders --to new");
    let said = "conflict: 'open' '17': the target has other properties under the key\n\
        conflicts: `rowstone compare` lists the differences; --replace overwrites the target's \
        entities\n";
    assert_eq!((run.status, &*run.err), (Some(3), said));
    place.ok("copy db Orders --to new --replace");
    let missing = "The table specified does not exist. (table 'None' of";
    place.fails("copy db None --to new", 1, &[&format!("{missing} db)")]);
    place.fails("copy db None --check --dialect azure", 1, &[&format!("{missing} db)")]);
    place.fails("compare db new --table None", 2, &[&format!("{missing} db)")]);
    place.fails("compare db new --table Orders --with None", 2, &[&format!("{missing} new)")]);
    for target in ["--to db", "--to ./db --into orders", "--into Orders"] {
        let same = "source and target are the same table; use --into, or --partition-key and";
        place.fails(&format!("copy db Orders {target}"), 2, &[same]);
    }
    let help = place.ok("copy --help");
    let help: Vec<_> = help.split_whitespace().collect();
    assert!(help.join(" ").contains("[default with --into or --check: the same]"));
}

#[test]
fn entities_that_a_service_would_refuse_are_listed_before_a_copy() {
    let place = orders();
    place.ok("copy db Orders --check --dialect azure");
    place.ok("copy db Orders --check --dialect rowstone");
    let long = "r".repeat(256);
    place.put("Orders", &format!(r#"{{"PartitionKey":"open","RowKey":"{long}","Year":2014}}"#));
    place.put("Orders", r#"{"PartitionKey":"","RowKey":"21","Id":7,"Year":2014}"#);
    assert!(place.ok("copy db Orders --check --dialect azurite").starts_with("rows "));
    let run = place.run("copy db Orders --check --dialect cosmos --format json --rejects bad");
    assert_eq!(run.status, Some(3), "{run:?}");
    assert!(run.err.contains("never run against it"), "{}", run.err);
    assert!(run.out.starts_with(r#"{"rows":6,"copied":0,"#), "{}", run.out);
    assert!(run.out.contains(r#""refused":2,"#), "{}", run.out);
    let bad = place.read("bad");
    let bad: Vec<_> = bad.lines().collect();
    assert_eq!(bad.len(), 2);
    assert!(bad[0].contains("PartitionKey is empty") && bad[0].contains("property 'Id'"));
    assert!(bad[1].contains("RowKey has 256 bytes; cosmos accepts 255"), "{}", bad[1]);
    // The rules apply to the copies: their keys, their properties, and only those that match.
    let copies = "copy db Orders --check --dialect cosmos --partition-key {Year} --row-key 1";
    let run = place.run(&format!("{copies} --select Year --format json"));
    assert_eq!(run.status, Some(3), "{run:?}");
    assert!(run.out.contains(r#""shared":5,"refused":0,"#), "{}", run.out);
    place.fails(&format!("{copies} --filter A=1"), 2, &["A=1"]);
    place.ok("copy db Orders --check --dialect azure --partition-key {Year} --row-key a{RowKey}");
    let part = "copy db Orders --check --dialect azure --row-key {Part}";
    place.fails(part, 3, &["refused: 'open' '20': it has no property 'Part'"]);
    for (arguments, text) in [
        ("--check", "--dialect"),
        ("--dialect azure --into Other", "--check"),
        ("--dialect azure --to other", "--check"),
        ("--check --dialect mongo", "cosmos"),
        ("--check --dialect azure --to other", "--to"),
    ] {
        place.fails(&format!("copy db Orders {arguments}"), 2, &[text]);
    }
    assert!(!place.path("other").exists(), "created by a failed command");
}

#[test]
fn unlisted_airports_and_carriers_are_found() {
    let place = Place::new();
    let (flights, airports) = (sample("flights.csv.gz"), sample("airports.csv"));
    place.ok(&format!("import db Airports {airports} --partition-key all --row-key {{faa}}"));
    let keys = "--partition-key {carrier}-{origin} --row-key {time_hour}-{flight}-{tailnum}";
    place.ok(&format!("import db Flights {flights} {keys} --null NA"));
    let check = "check-refs db Flights --into Airports --partition-key all --row-key {dest}";
    let run = place.run(check);
    assert_eq!((run.status, &*run.err), (Some(1), ""));
    assert!(run.out.contains("that Airports does not have"), "{}", run.out);
    assert!(run.out.contains("SJU"), "{}", run.out);
    let json = place.run(&format!("{check} --format json --top 1"));
    assert!(json.out.contains(r#""has_all_targets":true"#), "{}", json.out);
    let origins = "check-refs db Flights --into Airports --partition-key all --row-key {origin}";
    assert!(place.ok(origins).contains("point to one of Airports"));
    place.fails("check-refs db Flights --into Planes --partition-key a --row-key b", 1, &["Table"]);
}

#[test]
fn reports_about_rows_are_escaped_for_the_terminal() {
    let place = Place::new();
    place.put("Orders", r#"{"PartitionKey":"p","RowKey":"r","To":"\u001b[2J"}"#);
    place.fails("copy db Orders --into Other --row-key {To}", 3, &["for 'p' '\\u{1b}[2J'"]);
    assert!(!place.run("copy db Orders --into Other --row-key {To}").err.contains('\u{1b}'));
}

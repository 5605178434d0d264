//! Tests of `inspect`, `stats` and the slow-query log, run as processes.

use serde_json::json;

use super::{Place, parts};

/// Returns the files of `db` with names that contain `end`.
fn files(place: &Place, end: &str) -> Vec<String> {
    let names = std::fs::read_dir(place.path("db")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.contains(end)).collect();
    names.sort();
    names
}

#[test]
fn files_are_shown_and_damage_has_a_status() {
    let place = parts();
    place.feed("exec db", "{\"op\":\"flush\"}\n").ok();
    let current = place.ok("inspect db/CURRENT");
    assert!(current.contains("current") && current.contains("manifest MANIFEST-"), "{current}");
    let sst = files(&place, ".sst").remove(0);
    let outline = place.ok(&format!("inspect db/{sst}"));
    assert!(outline.contains("block") && outline.contains("section"), "{outline}");
    let json = place.ok(&format!("inspect db/{sst} --block 0 --json"));
    assert!(
        json.lines().all(|line| line.starts_with("{\"part\":\"") && line.ends_with('}')),
        "{json}"
    );
    let row = place.ok(&format!("inspect db/{sst} --block 0 --row 0"));
    assert!(row.contains("hex") && row.contains("means"), "{row}");
    let manifest = place.ok(&format!("inspect db/{}", files(&place, "MANIFEST").remove(0)));
    assert!(manifest.contains("add file"), "{manifest}");
    let mut bytes = std::fs::read(place.path("db").join(&sst)).unwrap();
    bytes[60] ^= 1;
    place.write("bad.sst", bytes);
    let run = place.run("inspect bad.sst");
    assert_eq!((run.status, run.out.contains("damage")), (Some(1), true), "{run:?}");
    place.fails("inspect db/LOCK", 2, &["no file with an inside"]);
    place.fails("inspect db/none", 2, &["none"]);
    place.fails("inspect db/CURRENT --row 1", 2, &["--block"]);
}

#[test]
fn counters_have_units_and_a_prometheus_format() {
    let place = parts();
    let table = place.ok("stats db");
    assert!(
        table.lines().any(|line| line.starts_with("tables ") && line.ends_with("1  table")),
        "{table}"
    );
    assert!(place.ok("stats db --explain").contains("Number of tables."));
    let text = place.ok("stats db --format prometheus");
    assert!(text.contains("# TYPE rowstone_tables gauge\nrowstone_tables 1\n"), "{text}");
}

#[test]
fn bytes_and_prices_are_those_of_the_service() {
    let place = parts();
    // 4 + 2 * 10 for the keys, and 8 + 2 * 5 + 8 for the price; 4 + 12 + 22 + 24 for the nuts.
    let csv = place.ok("stats db --as-service --format csv");
    assert_eq!(csv, "TableName,Entities,ServiceBytes\nparts,2,112\n");
    let json = place.ok("stats db --as-service --format json");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["bytes_stored"], &json["tables"][0]["ServiceBytes"]),
        (&json!(112), &json!(112))
    );
    assert_eq!(json["prices_are_an_example"], true);
    let example = place.ok("stats db --as-service");
    assert!(example.contains("an example: use --prices FILE"), "{example}");
    assert!(example.contains(" 112  less than 0.0001 USD a month\n"), "{example}");
    let prices = r#"{"region":"Here","date":"2030-01-02","currency":"EUR","gib_month":1073741824,
        "transactions_10000":0.5,"gib_out":0.25}"#;
    place.write("prices.json", prices);
    let table = place.ok("stats db --as-service --prices prices.json");
    let out = "  0.25 EUR for a GiB out\n";
    for text in
        ["parts", "112.0000 EUR a month\n", "prices of Here, 2030-01-02:\n", "0.5 EUR for", out]
    {
        assert!(table.contains(text), "{text} is not in {table}");
    }
    place.ok("drop-table db parts --yes");
    let empty = place.ok("stats db --as-service");
    assert!(empty.starts_with("bytes stored ") && empty.contains(" 0  0.0000 USD a month\n"));
    place.write("bad.json", prices.replace("0.5", "-1"));
    let bad = "stats db --as-service --prices bad.json";
    place.fails(bad, 2, &["bad.json", "'transactions_10000', a number"]);
    place.fails("stats db --prices prices.json", 2, &["--as-service"]);
    place.fails("stats db --as-service --format prometheus", 2, &["serve --metrics"]);
}

#[test]
fn wear_is_reported_by_cause_and_in_pages() {
    let place = parts();
    let table = place.ok("wear db --page-size 4k");
    let line = |what: &str| table.lines().find(|line| line.starts_with(what)).unwrap_or_default();
    for what in ["asked for", "log", "manifest", "written", "in pages of 4,096"] {
        assert!(line(what).chars().any(|c| c.is_ascii_digit()), "{what}: {table}");
    }
    let json = place.ok("wear db --json");
    assert!(
        json.starts_with("{\"user_bytes\":") && json.contains("\"page_size\":16384,"),
        "{json}"
    );
    // The command only reads, so it adds nothing to the wear account.
    assert_eq!(place.ok("wear db --json"), json);
    place.fails("wear db --page-size 3000", 2, &["3000", "power of two"]);
}

#[test]
fn exec_keeps_slow_queries() {
    let place = parts();
    let lines = "{\"op\":\"count\",\"table\":\"parts\",\"filter\":\"Stock gt 1\"}\n{\"op\":\"slow_queries\"}\n";
    let said = place.feed("exec db --slow-query 0", lines).ok();
    let slow = said.lines().nth(1).unwrap();
    assert!(
        slow.contains(r#""filter":"Stock gt 1","class":"Full table scan","took_us":"#),
        "{slow}"
    );
    let none = place.feed("exec db", lines).ok();
    assert_eq!(none.lines().nth(1), Some(r#"{"ok":true,"queries":[]}"#));
}

#[test]
fn a_backup_is_shown() {
    let place = parts();
    place.ok("backup db kept");
    let text = place.ok("inspect kept/generations/000001.generation");
    assert!(text.contains("header    backup 1  taken ") && text.contains("stored "), "{text}");
}

#[test]
fn exec_keeps_a_limit_on_disk_use_and_reports_evictions() {
    let place = parts();
    place.fails("exec db --drop-oldest parts", 2, &["--max-disk"]);
    place.fails("exec db --max-disk 100000 --drop-oldest parts", 2, &["at least", "--max-disk"]);
    place.fails("exec db --max-disk 1000000000 --drop-oldest a/b", 2, &["table"]);
    let lines = "{\"op\":\"stats\"}\n";
    let said = place.feed("exec db --max-disk 1000000000 --drop-oldest PARTS", lines).ok();
    assert!(said.contains(r#""disk_limit_bytes":1000000000"#), "{said}");
    assert!(said.contains(r#""oldest_files_dropped":0"#), "{said}");
}

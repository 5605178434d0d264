//! Commands over the URL of a server: the verbs of a store, `copy` there and back, `compare`, and
//! copies that are killed.
//!
//! `ROWSTONE_KILLS=200` sets the number of kills.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rowstone::retry::Rng;
use rowstone::{DateTime, Db, Entity, Guid};

use super::{Place, Server};

/// The default number of kills of `copy`.
const KILLS: u64 = 10;
/// The maximum number of kills of one copy, so that copies of all directions are killed.
const KILLS_OF_COPY: u64 = 3;
/// The maximum time before a kill, after the first position is saved.
const LIFE_MILLIS: u64 = 100;
/// The number of entities of a copy that is killed.
const ROWS: u32 = 4_000;

/// A server, and a directory with a table to copy.
pub(super) struct Stores {
    pub(super) place: Place,
    server: Server,
}

impl Stores {
    pub(super) fn new(rows: u32) -> Self {
        Self::with(rows, "")
    }

    /// As [`new`](Self::new), with options of the server.
    pub(super) fn with(rows: u32, options: &str) -> Self {
        let place = Place::new();
        let db = Db::open(place.path("src")).unwrap();
        let mut loader = db.create_table("Tab").unwrap().loader();
        for i in 0..rows {
            let entity = Entity::new(format!("it's {}", i / 700), format!("{i:06} \u{e9}"))
                .with("Text", "\u{1f600}\"\\\n".repeat(i as usize % 7))
                .with("Int", i as i32)
                .with("Long", i64::from(i) << 40)
                .with("Double", f64::from(i) / 3.0)
                .with("NaN", f64::NAN)
                .with("Flag", i % 2 == 0)
                .with("Bytes", vec![i as u8; 5])
                .with("Guid", Guid::from_bytes([i as u8; 16]))
                .with("Time", "2013-01-01T10:00:00.1234567Z".parse::<DateTime>().unwrap());
            loader.push(u64::from(i), entity).unwrap();
        }
        assert_eq!(loader.finish().unwrap().loaded, u64::from(rows));
        db.close().unwrap();
        let server = place.serve(options);
        Self { place, server }
    }

    /// Returns the URL of the account.
    pub(super) fn url(&self) -> String {
        format!("http://{}/devstoreaccount1", self.server.at)
    }

    /// Returns a command in whose environment `STORE` names the server.
    pub(super) fn command(&self, arguments: &str) -> Command {
        let mut command = self.place.command(arguments);
        command.env("STORE", format!("UseDevelopmentStorage=true;TableEndpoint={}", self.url()));
        command
    }

    #[track_caller]
    pub(super) fn run(&self, arguments: &str) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that succeeds, and returns its output.
    #[track_caller]
    pub(super) fn ok(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that fails with this status and text.
    #[track_caller]
    pub(super) fn fails(&self, arguments: &str, status: i32, text: &str) {
        let output = self.run(arguments);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments}: {err}");
        assert!(err.contains(text), "{arguments}: {err}");
    }
}

#[test]
fn verbs_work_over_a_service() {
    let stores = Stores::new(0);
    stores.ok("create-table env:STORE Tab");
    stores.fails("create-table env:STORE Tab", 1, "TableAlreadyExists");
    for (row, n) in [("a", 1), ("b", 2), ("c", 3)] {
        let entity = format!(r#"{{"PartitionKey":"p","RowKey":"{row}","N":{n}}}"#);
        stores.ok(&format!("put env:STORE Tab {entity}"));
    }
    let entity = r#"{"PartitionKey":"p","RowKey":"a","N":4}"#;
    let etag = stores.ok(&format!("put env:STORE Tab {entity} --mode replace"));
    let replace = format!("put env:STORE Tab {entity} --mode replace --etag");
    stores.fails(&format!("{replace} W/\"datetime'2020-01-01T00%3A00%3A00Z'\""), 1, "Condition");
    stores.ok(&format!("{replace} {}", etag.trim()));
    stores.ok(r#"put env:STORE Made {"PartitionKey":"p","RowKey":"a"}"#);
    assert_eq!(stores.ok("tables env:STORE --format csv"), "TableName\nMade\nTab\n");
    stores.ok("drop-table env:STORE Made --yes");
    assert_eq!(stores.ok("tables env:STORE --format ndjson"), "{\"TableName\":\"Tab\"}\n");
    assert!(stores.ok("get env:STORE Tab p a --format json").contains("\"N\":4"));
    stores.fails("get env:STORE Tab p x", 1, "ResourceNotFound");
    stores.ok("delete env:STORE Tab p b");
    stores.fails("delete env:STORE Tab p b", 1, "ResourceNotFound");
    assert_eq!(stores.ok("query env:STORE Tab --count"), "2\n");
    let csv = "query env:STORE Tab --select RowKey,N --format csv";
    assert_eq!(stores.ok(csv), "RowKey,N\na,4\nc,3\n");
    let mut command = stores.command(csv);
    let output = command.args(["--filter", "N lt 4"]).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "RowKey,N\nc,3\n");
    let scan = "scan env:STORE Tab --partition p --from b --select RowKey --format csv";
    assert_eq!(stores.ok(scan), "RowKey\nc\n");
    assert_eq!(stores.ok("scan env:STORE Tab --top 1 --format ndjson").lines().count(), 1);
    assert_eq!(stores.ok("export env:STORE Tab").lines().count(), 2);
}

#[test]
fn what_only_a_directory_has_is_refused_at_a_service() {
    let stores = Stores::new(1);
    for (arguments, text) in [
        ("create-table env:STORE Tab --ttl 1d", "--ttl"),
        ("tables env:STORE --exact", "--exact"),
        ("put env:STORE Tab {\"PartitionKey\":\"p\",\"RowKey\":\"r\"} --durability os", "--durab"),
        ("delete env:STORE Tab --partition p --yes", "a range"),
        ("query env:STORE Tab --explain", "--explain"),
        ("query env:STORE Tab --reverse", "--reverse"),
        ("query env:STORE Tab --order-by N", "--order-by"),
        ("drop-table env:STORE Tab", "--yes"),
        ("import env:STORE Tab file --durability os", "--durability"),
        ("copy src Tab --to other --state file", "--state"),
        ("copy src Tab --to env:STORE --state src/000123.sst", "in the directory of a database"),
        ("copy env:STORE Tab --into Tab", "both the table Tab"),
        ("copy env:STORE Tab --into tAB --then-delete", "both the table Tab"),
        ("copy env:MISSING Tab --to other", "MISSING is not set (export it)"),
        ("scan http://127.0.0.1:1/devstoreaccount1 Tab", "--account-file"),
        // Other verbs accept a path only.
        ("stats env:STORE", "must be a path"),
        ("exec UseDevelopmentStorage=true", "must be a path"),
        ("backup file:secret there", "must be a path"),
        ("backup src env:STORE", "must be a path"),
        ("stress env:STORE --seconds 1", "must be a path"),
        ("stress env:STORE --partition p --rate 1 --durability os", "--durability"),
    ] {
        stores.fails(arguments, 2, text);
    }
    stores.fails("export env:STORE None --out file", 1, "TableNotFound");
    stores.fails("copy env:STORE None --to fresh", 1, "TableNotFound");
    for arguments in [
        "tables http://127.0.0.1:1/a --account-file AccountName=a;AccountKey=c2VjcmV0",
        "tables http://127.0.0.1:1/a --account-file env:sv=1&sig=c2VjcmV0",
        "tables file:AccountName=a;AccountKey=c2VjcmV0",
        "tables env:AccountKey=c2VjcmV0",
    ] {
        let output = stores.run(arguments);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {err}");
        assert!(!err.contains("c2VjcmV0"), "{err}");
    }
    let mut names: Vec<_> = std::fs::read_dir(stores.place.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["db", "src"]);
    // The account of a URL is in a file.
    stores.place.write("account", "UseDevelopmentStorage=true\n");
    let url = stores.url();
    stores.ok(&format!("create-table {url} Tab --account-file account"));
}

#[test]
fn errors_name_the_store() {
    let stores = Stores::new(1);
    stores.ok("create-table env:STORE Tab");
    let of_service = format!("(table 'None' of {})", stores.url());
    for (arguments, status, text) in [
        ("copy env:STORE None --to back", 1, &*of_service),
        ("copy src None --to env:STORE", 1, "(table 'None' of src)"),
        ("copy src None --to env:STORE --dry-run", 1, "(table 'None' of src)"),
        ("compare src env:STORE --table None", 2, "(table 'None' of src)"),
        ("compare src env:STORE --table Tab --with None", 2, &*of_service),
        ("compare env:STORE src --table Tab --with None", 2, "(table 'None' of src)"),
    ] {
        stores.fails(arguments, status, text);
    }
    let mut command = stores.command("tables env:EMPTY");
    let output = command.env("EMPTY", " ").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("the environment variable EMPTY is empty"), "{text}");
}

#[test]
fn tables_are_copied_there_and_back() {
    let stores = Stores::new(3_000);
    let dry = stores.ok("copy src Tab --to env:STORE --dry-run --format json");
    assert!(dry.starts_with(r#"{"rows":3000,"copied":0,"#), "{dry}");
    assert_eq!(stores.ok("tables env:STORE --format csv"), "TableName\n");
    let there = stores.ok("copy src Tab --to env:STORE --format json");
    assert!(there.starts_with(r#"{"rows":3000,"copied":3000,"#), "{there}");
    stores.ok("compare src env:STORE");
    stores.ok("copy env:STORE Tab --to back --state position");
    assert!(!stores.place.path("position").exists());
    stores.ok("compare src back --table Tab");
    stores.ok("compare env:STORE back --table Tab");
    // Differences on both sides.
    stores.ok(r#"put env:STORE Tab {"PartitionKey":"z","RowKey":"r"}"#);
    stores.ok(r#"put back Tab {"PartitionKey":"a","RowKey":"r","N":1}"#);
    let output = stores.run("compare env:STORE back");
    assert_eq!(output.status.code(), Some(1));
    let lines = String::from_utf8(output.stdout).unwrap();
    assert_eq!(lines.lines().count(), 2, "{lines}");
    assert!(lines.contains("only-a") && lines.contains("only-b"), "{lines}");
    stores.fails("compare src env:STORE --table Missing", 2, "TableNotFound");
    stores.fails("compare src back --table Missing", 2, "TableNotFound");
    // Present entities are no error, others are conflicts.
    let again = stores.ok("copy src Tab --to env:STORE --format json");
    assert!(again.starts_with(r#"{"rows":3000,"copied":0,"present":3000,"#), "{again}");
    let entity = r#"{"PartitionKey":"a","RowKey":"r","N":2}"#;
    stores.ok(&format!("put env:STORE Tab {entity}"));
    stores.fails("copy back Tab --to env:STORE --rejects bad", 3, "");
    assert!(std::fs::read_to_string(stores.place.path("bad")).unwrap().contains("conflict"));
    stores.ok("copy back Tab --to env:STORE --replace");
    // All entities are moved to another table of the service.
    stores.ok("copy env:STORE Tab --into Moved --then-delete");
    assert_eq!(stores.ok("query env:STORE Tab --count"), "0\n");
    assert_eq!(stores.ok("query env:STORE Moved --count"), "3002\n");
}

/// `compare` finds a table by a name that differs only by case, and its requests do not drop it.
#[test]
fn tables_are_compared_whatever_the_case_of_their_names() {
    let stores = Stores::new(0);
    stores.ok(r#"put there Parts {"PartitionKey":"p","RowKey":"a","N":1}"#);
    stores.ok(r#"put env:STORE parts {"PartitionKey":"p","RowKey":"a","N":1}"#);
    stores.ok("compare there env:STORE");
    stores.ok("compare env:STORE there");
    stores.ok(r#"put env:STORE parts {"PartitionKey":"p","RowKey":"b","N":2}"#);
    let output = stores.run("compare env:STORE there --requests");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let requests = String::from_utf8(output.stdout).unwrap();
    assert!(requests.contains(r#""op":"upsert_replace","table":"Parts""#), "{requests}");
    assert_eq!(requests.lines().count(), 1, "{requests}");
}

/// The dry run of a copy states what the service would bill, and its price.
#[test]
fn a_dry_run_has_the_bill_of_the_copy() {
    let stores = Stores::new(1_000);
    let prices = r#"{"region":"here","date":"2026-01-01","currency":"EUR","gib_month":1,
        "transactions_10000":100}"#;
    stores.place.write("prices", prices);
    let dry = "copy src Tab --to env:STORE --workers 1 --dry-run --prices prices --format";
    // A page of 100 entities, one of 900 in two partitions, in groups of at most 100.
    let json = stores.ok(&format!("{dry} json"));
    let bytes_out = |json: &str| -> u64 {
        let text = json.split_once("\"bytes_out\":").unwrap().1;
        text.split(&[',', '}']).next().unwrap().parse().unwrap()
    };
    let expected = bytes_out(&json);
    for member in [
        r#""rows":1000,"#,
        r#""entities":1000,"#,
        r#""transactions":10,"#,
        r#""transaction_price":0.1,"#,
        r#""currency":"EUR","#,
        r#""prices_are_an_example":false"#,
    ] {
        assert!(json.contains(member), "{member} {json}");
    }
    let text = stores.ok(&format!("{dry} table"));
    assert!(
        text.contains("0.1000 EUR\n") && text.contains("prices of here, 2026-01-01:"),
        "{text}"
    );
    let csv = format!("\ntransactions,10\nbytes_out,{expected}\n");
    assert!(stores.ok(&format!("{dry} csv")).contains(&csv));
    assert_eq!(stores.ok("tables env:STORE --format csv"), "TableName\n");
    // The copy also looks for the table and creates it. Without prices, it states only counts.
    let real = stores.ok("copy src Tab --to env:STORE --workers 1 --format json");
    assert!(real.contains(r#""transactions":12,"#) && !real.contains("price"), "{real}");
    check_near(expected, bytes_out(&real));
    // Reads of a service are billed, and its answers.
    let json = stores.ok("copy env:STORE Tab --to new --dry-run --format json --workers 1");
    assert!(
        json.contains(r#""transactions":2,"#) && json.contains(r#""bytes_stored":0,"#),
        "{json}"
    );
    assert!(!json.contains(r#""bytes_out":0,"#) && json.contains("_an_example\":true"), "{json}");
    assert!(!stores.place.path("new").exists());
    stores.fails("copy src Tab --into Tab2 --prices prices", 2, "--prices is for");
    // Groups of deletes are billed, and their answers.
    let within = "copy env:STORE Tab --into Moved --then-delete --workers 1 --format json";
    let expected = bytes_out(&stores.ok(&format!("{within} --dry-run")));
    check_near(expected, bytes_out(&stores.ok(within)));
}

/// The answers of a dry run are estimated.
#[track_caller]
fn check_near(expected: u64, real: u64) {
    assert!(expected.abs_diff(real) < real / 20, "{expected} {real}");
}

/// A copy that cannot begin creates no target.
#[test]
fn a_copy_that_cannot_begin_creates_nothing() {
    let stores = Stores::new(0);
    stores.ok("create-table env:STORE Tab");
    stores.place.write("rows.ndjson", "{}\n");
    let account = "AccountName=devstoreaccount1;AccountKey=c2VjcmV0";
    stores.place.write("wrong", format!("{account};TableEndpoint={}", stores.url()));
    for (arguments, text) in [
        ("file:wrong Tab", "403"),
        ("env:STORE Tab --state new/x", "is in the target new"),
        ("env:STORE Tab --rejects new/x", "is in the target new"),
        ("env:STORE Tab --state missing/x", "missing/x"),
        ("env:STORE Tab --rejects missing/x", "missing/x"),
        ("env:STORE Tab --state rows.ndjson", "is not a file of positions"),
        ("env:STORE Tab --prices missing", "missing"),
    ] {
        let output = stores.run(&format!("copy {arguments} --to new"));
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && err.contains(text), "{arguments}: {err}");
        assert!(!stores.place.path("new").exists(), "{arguments}: {err}");
    }
    assert!(!stores.place.path("rows.ndjson.rowstone-lock").exists());
}

#[test]
fn a_table_of_a_service_is_checked_against_a_dialect() {
    let stores = Stores::new(0);
    stores.ok("create-table env:STORE Tab");
    for (row, name) in [("a", "Name"), ("b", "ResourceId")] {
        let entity = format!(r#"{{"PartitionKey":"p","RowKey":"{row}","{name}":1}}"#);
        stores.ok(&format!("put env:STORE Tab {entity}"));
    }
    let check = "copy env:STORE Tab --check --dialect";
    stores.ok(&format!("{check} azure"));
    stores.fails(&format!("{check} cosmos"), 3, "never run against it");
    stores.fails(&format!("{check} cosmos --rejects bad"), 3, "");
    let bad = std::fs::read_to_string(stores.place.path("bad")).unwrap();
    assert_eq!(bad.lines().count(), 1, "{bad}");
    assert!(bad.contains("'ResourceId' is reserved in cosmos"), "{bad}");
    assert_eq!(stores.ok("tables env:STORE --format csv"), "TableName\nTab\n");
}

/// Cosmos DB returns entities in no order, so a copy or comparison could miss some.
#[test]
fn a_service_without_key_order_is_refused_before_it_is_asked() {
    let stores = Stores::new(1);
    let address = "https://acme.table.cosmos.azure.com:443/";
    let text = format!("AccountName=acme;AccountKey=c2VjcmV0;TableEndpoint={address}");
    stores.place.write("cosmos", text);
    for arguments in [
        "copy file:cosmos Tab --to back",
        "copy file:cosmos Tab --to back --dry-run",
        "copy file:cosmos Tab --check --dialect azure",
        "compare src file:cosmos",
        "compare file:cosmos src",
    ] {
        stores.fails(arguments, 2, "does not sort query results by key");
    }
    assert!(!stores.place.path("back").exists());
    // As a target it may be in any order. A dry run sends nothing to it.
    let dry = stores.ok("copy src Tab --to file:cosmos --dry-run --format json");
    assert!(dry.contains(r#""transactions":1,"#), "{dry}");
}

/// A signature for the entities of one table copies into it. A signature that may not write ends
/// the copy, which another signature continues unless the table was deleted.
#[test]
fn a_copy_with_a_signature_for_one_table() {
    let stores = Stores::new(1_500);
    stores.ok("create-table env:STORE Tab");
    let run = |letters: &str, arguments: &str| {
        let token = format!("Tab --permissions {letters} --expiry 2100-01-01");
        let (token, at) = (stores.place.sas(&token), stores.server.at);
        let text = format!("http://{at}/devstoreaccount1?{token}");
        let output = stores.command(arguments).env("SIGNED", text).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let copy = "copy src Tab --to env:SIGNED --state position";
    let (status, text) = run("r", copy);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("403 AuthorizationPermissionMismatch"), "{text}");
    assert!(stores.place.path("position").exists());
    stores.ok("drop-table env:STORE Tab --yes");
    stores.fails("copy src Tab --to env:STORE --state position", 1, "remove its --state file");
    assert_eq!(stores.ok("tables env:STORE --format csv"), "TableName\n");
    stores.ok("create-table env:STORE Tab");
    let (status, text) = run("raud", copy);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("continued: the counts are of this run only"), "{text}");
    stores.ok("compare src env:STORE --table Tab");
}

/// The requests of the stress test are those of the verbs, and its errors are counted.
#[test]
fn a_partition_of_a_service_is_stressed() {
    let stores = Stores::new(0);
    let stress = "stress env:STORE --partition m --rate 1 --peak-seconds 1 --clients 2 --entities 20 \
                  --queries 10 --groups 10 --deletes 10 --reads 40";
    let told = stores.ok(stress);
    let url = stores.url();
    assert!(told.contains(&format!("as fast as possible, at {url}:")), "{told}");
    assert!(told.contains("0.0 % ServerBusy   pass\n") && !told.contains("answers were"), "{told}");
    let others = stores.ok("scan env:STORE StressTest --from-partition n --format ndjson");
    assert!(others.is_empty(), "{others}");
    let other = stores.ok("scan env:STORE StressTest --partition m~8 --format ndjson");
    assert_eq!(other.lines().count(), 20);
    stores.fails(stress, 1, "TableAlreadyExists");
    stores.fails(&stress.replace("env:STORE", "env:MISSING"), 2, "MISSING is not set");
}

/// A signature that permits only to add entities is enough for a copy that compares nothing.
#[test]
fn a_copy_with_a_signature_that_may_not_read() {
    let stores = Stores::new(150);
    stores.ok("create-table env:STORE Tab");
    let token = stores.place.sas("Tab --permissions a --expiry 2100-01-01");
    let text = format!("http://{}/devstoreaccount1?{token}", stores.server.at);
    let run = |arguments: &str| {
        let output = stores.command(arguments).env("SIGNED", &text).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    for option in ["--replace", "--state position", "--row-key x{RowKey}"] {
        let (status, text) = run(&format!("copy src Tab --to env:SIGNED {option}"));
        assert_eq!(status, Some(2), "{text}");
        assert!(text.contains("has no permission to read (r)"), "{text}");
    }
    assert!(stores.ok("scan env:STORE Tab --format ndjson").is_empty());
    let (status, text) = run("copy src Tab --to env:SIGNED --format json");
    assert_eq!(status, Some(0), "{text}");
    stores.ok("compare src env:STORE --table Tab");
    let (status, text) = run("copy src Tab --to env:SIGNED --format json --rejects rejects");
    assert_eq!(status, Some(3), "{text}");
    assert!(text.contains(r#""conflicts":150"#), "{text}");
}

#[test]
fn requests_for_a_range_drop_no_table() {
    let stores = Stores::new(3);
    for row in ["in a", "in b", "out a"] {
        let (partition, row) = row.split_once(' ').unwrap();
        let entity = format!(r#"{{"PartitionKey":"{partition}","RowKey":"{row}"}}"#);
        stores.ok(&format!("put other Own {entity}"));
    }
    for a in ["src", "env:STORE"] {
        let output = stores.run(&format!("compare {a} other --partition in --requests"));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        let deletes = text.lines().filter(|line| line.contains(r#""delete","table":"Own""#));
        assert_eq!((deletes.count(), text.contains("delete_table")), (2, false), "{text}");
    }
}

#[test]
fn a_signature_for_a_range_of_keys_is_noted() {
    let stores = Stores::new(8);
    stores.ok("copy src Tab --to env:STORE");
    let token = stores.place.sas("Tab --permissions r --start-partition a --expiry 2100-01-01");
    let text = format!("http://{}/devstoreaccount1?{token}", stores.server.at);
    let run = |arguments: &str| {
        let output = stores.command(arguments).env("SIGNED", &text).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, err) = run("copy env:SIGNED Tab --to copy");
    assert_eq!(status, Some(0), "{err}");
    assert!(err.contains("covers only a range of keys"), "{err}");
    let (status, err) = run("compare src env:SIGNED --table Tab --requests");
    assert_eq!(status, Some(2), "{err}");
    assert!(err.contains("--requests would"), "{err}");
    let (status, err) = run("copy src Tab --to env:STORE --into Two --state f --rejects ./f");
    assert_eq!(status, Some(2), "{err}");
}

/// Copies to the server, from it and within it are killed at random moments, and continue from
/// their files of positions.
#[test]
fn a_killed_copy_continues_and_loses_nothing() {
    let kills = crate::cases("ROWSTONE_KILLS", KILLS);
    let stores = Stores::new(ROWS);
    stores.ok("copy src Tab --to env:STORE");
    let mut rng = Rng::from_entropy();
    let (mut killed, mut number) = (0, 0);
    while killed < kills {
        number += 1;
        let with = format!("compare src env:STORE --table Tab --with Tab{number}");
        let (copy, compare) = match number % 4 {
            0 => (format!("copy src Tab --to env:STORE --into Tab{number}"), with),
            1 => (
                format!("copy env:STORE Tab --to back{number}"),
                format!("compare src back{number} --table Tab"),
            ),
            // Its own copies are not conflicts, so it succeeds.
            2 => {
                let keys = "--partition-key x{PartitionKey}";
                let copy = format!("copy src Tab --to env:STORE --into Tab{number} {keys}");
                (copy, format!("query env:STORE Tab{number} --count"))
            }
            _ => {
                stores.ok(&format!("copy src Tab --to env:STORE --into Old{number}"));
                (format!("copy env:STORE Old{number} --into Tab{number} --then-delete"), with)
            }
        };
        let position = stores.place.path(&format!("position{number}"));
        let copy = format!("{copy} --state position{number} --format json");
        let most = kills.min(killed + KILLS_OF_COPY);
        loop {
            let is_continued = position.exists();
            let mut command = stores.command(&copy);
            command.stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            if killed < most {
                // The position of the first page is saved at once.
                while !position.exists() && child.try_wait().unwrap().is_none() {
                    std::thread::park_timeout(Duration::from_millis(1));
                }
                std::thread::park_timeout(Duration::from_millis(rng.below(LIFE_MILLIS)));
                drop(child.kill());
            }
            let output = child.wait_with_output().unwrap();
            // The file is removed after the outcome is printed.
            let is_reported = !output.stdout.is_empty() && !position.exists();
            if output.status.success() || is_reported && output.status.code().is_none() {
                let text = String::from_utf8(output.stdout).unwrap();
                let rows = text.strip_prefix("{\"rows\":").and_then(|text| text.split_once(','));
                let rows: u32 = rows.unwrap().0.parse().unwrap();
                // Under new keys the file exists before the first page is written.
                assert!(!is_continued || rows < ROWS || number % 4 == 2, "{rows} rows");
                break;
            }
            assert_eq!(output.status.code(), None, "a copy failed: {output:?}");
            killed += 1;
        }
        let compared = stores.ok(&compare);
        assert!(compared.is_empty() || compared == format!("{ROWS}\n"), "{compared}");
        assert!(!position.exists());
    }
    crate::say(format_args!("{killed} kills, {number} copies"));
}

//! Tests that run the binary as a process: its output, its refusals, and its exit status.
//!
//! Unit tests next to the code cover the parsing of options and the codecs.
#![expect(clippy::disallowed_methods, reason = "input and reports are the user's files")]

mod backup;
mod bad_input;
mod bench;
mod changes;
#[cfg(target_os = "linux")]
mod control;
mod copy;
mod damage;
mod exec;
mod import;
mod inspect;
mod moving;
mod printed;
mod query;
mod reading;
#[cfg(feature = "shell")]
mod shell;
#[cfg(unix)]
mod stress;
#[cfg(all(target_os = "linux", feature = "shell"))]
mod terminal;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A directory for one test; the database is `db` in it.
struct Place(tempfile::TempDir);

/// The result of a run of the binary.
#[derive(Debug)]
struct Run {
    status: Option<i32>,
    out: String,
    /// Standard error, without the note that the database was created.
    err: String,
    created: bool,
}

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Returns a command that runs in this directory, with arguments split at spaces.
    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rowstone"));
        command.args(arguments.split_whitespace()).current_dir(self.0.path());
        command.env_remove("COLUMNS");
        command
    }

    fn run(&self, arguments: &str) -> Run {
        Run::of(self.command(arguments).output().unwrap())
    }

    fn feed(&self, arguments: &str, input: impl AsRef<[u8]>) -> Run {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            let input = input.as_ref();
            // The process may exit before it has read everything.
            scope.spawn(move || drop(stdin.write_all(input)));
            Run::of(child.wait_with_output().unwrap())
        })
    }

    /// Runs a command, and expects status 0 and an empty standard error.
    #[track_caller]
    fn ok(&self, arguments: &str) -> String {
        self.run(arguments).ok()
    }

    /// Runs a command, and expects this status and each of these texts on standard error.
    #[track_caller]
    fn fails(&self, arguments: &str, status: i32, texts: &[&str]) {
        self.run(arguments).fails(status, texts);
    }

    /// Returns the names of the tables, a line each.
    #[track_caller]
    fn tables(&self) -> String {
        let csv = self.ok("tables db --format csv");
        csv.lines().skip(1).map(|line| format!("{}\n", line.split(',').next().unwrap())).collect()
    }

    #[track_caller]
    fn put(&self, table: &str, entity: &str) {
        self.feed(&format!("put db {table} -"), entity).ok();
    }
}

impl Run {
    fn of(output: Output) -> Self {
        let all = String::from_utf8(output.stderr).unwrap();
        let is_other = |line: &&str| !line.starts_with("note: created the database ");
        let err: String = all.split_inclusive('\n').filter(is_other).collect();
        Self {
            status: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            created: err != all,
            err,
        }
    }

    #[track_caller]
    fn ok(self) -> String {
        assert_eq!((self.status, &*self.err), (Some(0), ""), "{}", self.out);
        self.out
    }

    #[track_caller]
    fn fails(self, status: i32, texts: &[&str]) {
        assert_eq!(self.status, Some(status), "{self:?}");
        for text in texts {
            assert!(self.err.contains(text), "'{text}' is not in {}", self.err);
        }
        assert!(!self.err.contains("panicked"), "{}", self.err);
    }
}

/// Returns the path of a file of the sample data in the repository.
fn sample(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data").join(name);
    path.to_str().unwrap().to_owned()
}

/// Creates a database with two entities of different shapes.
fn parts() -> Place {
    let place = Place::new();
    place.put("parts", r#"{"PartitionKey":"bolts","RowKey":"m4x20","Price":0.12}"#);
    place.put(
        "parts",
        r#"{"PartitionKey":"nuts","RowKey":"m4","Stock":5,"Made@odata.type":"Edm.DateTime","Made":"2024-05-01T10:00:00Z"}"#,
    );
    place
}

#[test]
fn a_first_look() {
    let place = parts();
    let table = [
        "PartitionKey  RowKey  Made                  Price  Stock",
        "------------  ------  --------------------  -----  -----",
        "bolts         m4x20                          0.12",
        "nuts          m4      2024-05-01T10:00:00Z             5",
        "",
        "2 entities\n",
    ];
    assert_eq!(place.ok("scan db parts"), table.join("\n"));
    let nut = place.ok("get db parts nuts m4 --format json --select Stock,Made,Nope");
    let (etag, rest) = nut.split_once(",\"Stock\"").unwrap();
    assert!(etag.starts_with(r#"{"odata.etag":"W/\"datetime'20"#), "{nut}");
    let made = r#""Made@odata.type":"Edm.DateTime","Made":"2024-05-01T10:00:00Z""#;
    assert_eq!(rest, format!(":5,{made},\"Nope\":null}}\n"));
    assert!(place.ok("get db parts nuts m4").contains("Stock         5  (Edm.Int32)"));
    assert_eq!(
        place.ok("tables db"),
        "TableName  Entities  Bytes\n---------  --------  -----\nparts             2      0\n"
    );
    let json = "[{\"TableName\":\"parts\",\"Entities\":2,\"Exact\":true,\"Bytes\":0}]\n";
    assert_eq!(place.ok("tables db --format json"), json);
    assert!(place.ok("verify db").ends_with("no problems\n"));
    assert!(place.ok("stats db --format json").starts_with("{\""));
    assert_eq!(place.ok("delete db parts nuts m4"), "");
    place.fails("get db parts nuts m4", 1, &["ResourceNotFound", "'nuts' 'm4'"]);
    place.fails("delete db parts nuts m4", 1, &["ResourceNotFound"]);
    place.fails("drop-table db parts", 2, &["1 entity of parts", "--yes"]);
    let dropped = place.ok("drop-table db parts --yes");
    assert!(dropped.starts_with("removed 1 entity of parts; 0 bytes "), "{dropped}");
    assert_eq!(place.tables(), "");
    place.fails("scan db parts", 1, &["TableNotFound", "try: `rowstone tables DB`"]);
}

#[test]
fn scans_accept_ranges() {
    let place = Place::new();
    for (pk, rk) in [("a", "1"), ("b", "1"), ("b", "2"), ("b", "3"), ("c", "1")] {
        place.put("T1x", &format!(r#"{{"PartitionKey":"{pk}","RowKey":"{rk}","A":1}}"#));
    }
    let keys = |arguments: &str| {
        let csv = place.ok(&format!("scan db T1x --format csv {arguments}"));
        let rows = csv.lines().skip(1).map(|line| line.replace(",1", "").replace(',', ""));
        rows.collect::<Vec<_>>().join(" ")
    };
    let csv = |arguments: &str| {
        let text =
            place.ok(&format!("scan db T1x --format csv --select PartitionKey,RowKey {arguments}"));
        text.lines().skip(1).map(|line| line.replace(',', "")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(csv(""), "a1 b1 b2 b3 c1");
    assert_eq!(csv("--partition b"), "b1 b2 b3");
    assert_eq!(csv("--partition b --from 2"), "b2 b3");
    assert_eq!(csv("--partition b --to 2"), "b1");
    assert_eq!(csv("--partition b --from 2 --to 3"), "b2");
    assert_eq!(csv("--top 2"), "a1 b1");
    assert_eq!(csv("--top 0"), "");
    assert_eq!(csv("--partition nobody"), "");
    assert_eq!(keys("--top 1"), "a");
    place.fails("scan db T1x --from 2", 2, &["--partition"]);
}

#[test]
fn puts_have_modes_and_conditions() {
    let place = parts();
    let bolt = |rest: &str| format!(r#"{{"PartitionKey":"bolts","RowKey":"m4x20"{rest}}}"#);
    let put = |arguments: &str, rest: &str| {
        place.feed(&format!("put db parts - {arguments}"), bolt(rest))
    };
    put("--mode insert", "").fails(1, &["EntityAlreadyExists", "--mode upsert"]);
    let etag = put("--mode merge", r#","Stock":1"#).ok();
    let show = || place.ok("get db parts bolts m4x20 --format ndjson --select Price,Stock");
    assert!(show().contains(r#""Price":0.12,"Stock":1}"#));
    let newer = put(&format!("--mode replace --etag {etag}"), r#","Stock":2"#).ok();
    assert_ne!(newer, etag);
    assert!(show().contains(r#""Price":null,"Stock":2}"#));
    put(&format!("--mode merge --etag {etag}"), "").fails(1, &["UpdateConditionNotSatisfied"]);
    put("--mode merge --etag nonsense", "").fails(1, &["InvalidInput", "nonsense"]);
    put("--etag *", "").fails(2, &["--mode replace"]);
    place.fails(&format!("delete db parts bolts m4x20 --etag {etag}"), 1, &["Update"]);
    place.ok(&format!("delete db parts bolts m4x20 --etag {newer}"));
    put("--mode replace", "").fails(1, &["ResourceNotFound"]);
}

/// The rows of both tables are in one table file, so removing rows must rewrite it.
#[test]
fn removed_rows_give_their_space_back_before_the_command_ends() {
    let place = Place::new();
    let row = |i: u32| {
        format!(r#"{{"PartitionKey":"p{}","RowKey":"{i:05}","Text":"{i:0200}"}}"#, i % 4) + "\n"
    };
    let rows: String = (0..2_000).map(row).collect();
    place.feed("import db keep -", &rows).ok();
    place.feed("import db gone -", &rows).ok();
    place.ok("checkpoint db copy");
    let bytes = || {
        let files = std::fs::read_dir(place.path("db")).unwrap().map(|file| file.unwrap());
        let tables = files.filter(|file| file.file_name().to_str().unwrap().ends_with(".sst"));
        tables.map(|file| file.metadata().unwrap().len()).sum::<u64>()
    };
    let whole = bytes();
    let question = ["500 entities of keep, about ", "bytes in files would be removed", "--yes"];
    place.fails("delete db keep --partition p1", 2, &question);
    place.fails("drop-table db gone", 2, &["2,000 entities of gone"]);
    let out = place.ok("drop-table db gone --yes");
    assert!(out.starts_with("removed 2,000 entities of gone; "), "{out}");
    let half = bytes();
    assert!(half < whole * 6 / 10, "{half} of {whole} bytes are left");
    let out = place.ok("delete db keep --partition p1 --yes");
    assert!(out.starts_with("removed 500 entities of keep; "), "{out}");
    let left = bytes();
    assert!(left < half * 85 / 100, "{left} of {half} bytes are left");
    assert!(place.ok("verify db").ends_with("no problems\n"));
    assert_eq!(place.ok("export db keep").lines().count(), 1_500);
}

#[test]
fn a_checkpoint_is_a_database() {
    let place = parts();
    place.ok("checkpoint db copy");
    assert_eq!(place.ok("scan copy parts"), place.ok("scan db parts"));
    place.ok("drop-table copy parts --yes");
    assert_eq!(place.tables(), "parts\n");
    place.run("checkpoint db copy").fails(1, &["copy"]);
}

#[test]
fn exports_can_be_imported_unchanged() {
    let place = parts();
    place.put(
        "parts",
        r#"{"PartitionKey":"é,\"","RowKey":"","Big@odata.type":"Edm.Int64","Big":"5","Whole":5.0,"Nan@odata.type":"Edm.Double","Nan":"NaN","Text":"two\nlines","Id@odata.type":"Edm.Guid","Id":"0f8fad5b-d9cb-469f-a165-70867728950e","Blob@odata.type":"Edm.Binary","Blob":"AQID","Yes":true}"#,
    );
    let exported = place.ok("export db parts");
    assert_eq!(exported.lines().count(), 3);
    place.feed("import copy parts -", &exported).ok();
    let without_times = |text: &str| {
        let lines = text.lines().map(|line| {
            let (before, rest) = line.split_once("\"Timestamp\":\"").unwrap();
            format!("{before}{}\n", rest.split_once('"').unwrap().1)
        });
        lines.collect::<String>()
    };
    assert_eq!(without_times(&place.ok("export copy parts")), without_times(&exported));
    let csv = place.ok("export db parts --format csv");
    assert_eq!(
        csv.lines().next(),
        Some("PartitionKey,RowKey,Big,Blob,Id,Made,Nan,Price,Stock,Text,Whole,Yes")
    );
    place.feed("import csv parts -", &csv).ok();
    assert_eq!(place.ok("export csv parts --format csv"), csv);
    place.ok("export db parts --format csv --out out.csv");
    assert_eq!(place.read("out.csv"), csv);
    place.ok("export db parts --out Out2.CSV");
    assert_eq!(place.read("Out2.CSV"), csv);
    place.ok("export db parts --out out.json");
    assert_eq!(place.read("out.json"), place.ok("export db parts --json"));
    for name in ["out.ndjson", "out.jsonl", "out"] {
        place.ok(&format!("export db parts --out {name}"));
        assert_eq!(place.read(name), exported, "{name}");
    }
    for (arguments, note) in [
        ("--out out.txt", "note: out.txt gets ndjson: --format chooses another format\n"),
        ("--out wrong.csv --format ndjson", "note: wrong.csv gets ndjson, as --format says\n"),
        ("--out out.md --format table", ""),
    ] {
        let run = place.run(&format!("export db parts {arguments}"));
        assert_eq!((run.status, &*run.err), (Some(0), note), "{arguments}");
    }
    assert_eq!((place.read("out.txt"), place.read("wrong.csv")), (exported.clone(), exported));
    #[cfg(feature = "parquet")]
    {
        place.ok("export db parts --out out.parquet");
        assert!(std::fs::read(place.path("out.parquet")).unwrap().starts_with(b"PAR1"));
    }
    assert!(!place.ok("export db parts --no-metadata").contains("odata"));
}

#[test]
fn help_has_examples() {
    let place = Place::new();
    for command in [
        "create-table",
        "drop-table",
        "tables",
        "describe",
        "compact",
        "import",
        "export",
        "put",
        "get",
        "delete",
        "scan",
        "query",
        "exec",
        "stats",
        "wear",
        "inspect",
        "verify",
        "heal",
        "repair",
        "salvage",
        "checkpoint",
        "backup",
        "backups",
        "restore",
        "copy",
        "check-refs",
        #[cfg(unix)]
        "stress",
    ] {
        let help = place.ok(&format!("{command} --help"));
        assert!(help.contains(&format!("rowstone {command} ")), "{help}");
        assert!(help.contains("Example"), "{help}");
    }
    let help = place.ok("--help");
    assert!(
        help.contains("Exit status") && help.contains("\nCare and backups:\n  compact "),
        "{help}"
    );
    for status in ["`compare`: there are differences", "rows, or a copy left entities out"] {
        assert!(help.contains(status), "{help}");
    }
    assert!(place.ok("-V").starts_with("rowstone "));
    let lone = Run::of(place.command("backups").output().unwrap());
    assert!(lone.status == Some(2) && lone.err.starts_with("List"), "{lone:?}");
    let version = place.ok("--version");
    assert!(version.contains("\nfeatures: bench cli ") && version.contains(" zstd\n"), "{version}");
}

/// Only commands whose help says so create a database, and they say that they did.
#[test]
fn the_creation_of_a_database_is_said_once() {
    let place = Place::new();
    let row = r#"{"PartitionKey":"p","RowKey":"r"}"#;
    for first in ["create-table a Tab", "exec b", "import c Tab -"] {
        assert!(place.feed(first, row).created, "{first}");
        assert!(!place.feed(first, row).created, "{first}");
    }
    place.ok("create-table a Full");
    place.feed("put a Full -", row).ok();
    for command in ["copy a Full --to d", "import-range e Full a"] {
        assert!(place.run(command).created, "{command}");
    }
}

#[test]
fn tables_are_described_and_compacted() {
    let place = parts();
    place.put("parts", r#"{"PartitionKey":"nuts","RowKey":"m5","Stock":700,"Price":"dear"}"#);
    let lines = [
        "property,type,entities,least,greatest,bounds_exact",
        "PartitionKey,Edm.String,3,bolts,nuts,true",
        "RowKey,Edm.String,3,m4,m5,true",
        "Made,Edm.DateTime,1,2024-05-01T10:00:00Z,2024-05-01T10:00:00Z,true",
        "Price,Edm.String,1,dear,dear,true",
        "Price,Edm.Double,1,0.12,0.12,true",
        "Stock,Edm.Int32,2,5,700,true",
        "",
    ];
    let csv = place.ok("describe db parts --format csv");
    let without_times = csv.split_inclusive('\n').filter(|line| !line.starts_with("Timestamp"));
    assert_eq!(without_times.collect::<String>(), lines.join("\n"));
    let shown = place.ok("describe db parts");
    assert!(shown.starts_with("parts: 3 entities\n\nProperty "), "{shown}");
    let json = place.ok("describe db parts --format json");
    assert!(json.starts_with(r#"{"entities":3,"exact":true,"properties":[{"#), "{json}");
    assert!(place.ok("compact db").contains(" merged into 2 files of "));
    let compacted = place.ok("compact db parts --partition nuts");
    assert!(compacted.starts_with("merged the files of parts; all tables together: 2 files of "));
    place.fails("compact db --partition nuts", 2, &["a range of keys is one of a table"]);
    place.fails("compact db nothing", 1, &["TableNotFound"]);
    assert!(place.ok("scan db parts").ends_with("3 entities\n"));
    place.ok("delete-table db parts --yes");
}

/// Without a terminal, the width is that of `COLUMNS`, or unlimited.
#[test]
fn tables_fit_the_terminal() {
    let place = parts();
    let run = |columns: &str, arguments: &str| {
        let mut command = place.command(arguments);
        Run::of(command.env("COLUMNS", columns).output().unwrap()).ok()
    };
    let whole = place.ok("scan db parts");
    assert_eq!(
        (run("56", "scan db parts"), run("", "scan db parts")),
        (whole.clone(), whole.clone())
    );
    let cut = run("50", "scan db parts");
    assert!(cut.lines().all(|line| line.chars().count() <= 50), "{cut}");
    assert!(cut.contains("\nnuts          m4      2024-05-01T10…"), "{cut}");
    let records = run("30", "scan db parts");
    let first =
        "PartitionKey  bolts\nRowKey        m4x20\nPrice         0.12\n\nPartitionKey  nuts\n";
    assert!(records.starts_with(first) && records.ends_with("\n\n2 entities\n"), "{records}");
    assert_eq!(run("30", "scan db parts --wide"), whole);
    assert_eq!(run("30", "scan db parts --format csv"), place.ok("scan db parts --format csv"));
    assert_eq!(run("30", "export db parts --format table"), whole);
    place.ok("compact db");
    place.put(
        "parts",
        &format!(
            r#"{{"PartitionKey":"long words","RowKey":"r","Text":"{}"}}"#,
            "é one  two ".repeat(90)
        ),
    );
    place.ok("backup db kept");
    let fits = |columns: usize, arguments: &str| {
        let words = arguments.split(' ').map(|word| word.replace('~', " "));
        let mut command = place.command("");
        command.args(words).env("COLUMNS", columns.to_string());
        let text = Run::of(command.output().unwrap()).out;
        let long = text.lines().find(|line| line.chars().count() > columns);
        assert_eq!(long, None, "{arguments}");
    };
    for arguments in [
        "query db parts",
        "get db parts long~words r",
        "get db parts long~words r --select Text",
        "query db parts --aggregate Stock --by-partition",
        "tables db",
        "describe db parts",
        "partitions db",
        "stats db --explain",
        "wear db",
        "backups list kept",
        "advise db",
        "inspect db/MANIFEST-000001",
        "inspect kept/generations/000001.generation",
        "query db parts --filter A~lt~1~and~PartitionKey~ge~'bolts'~and~RowKey~gt~'m4'~and~A~ne~7 --explain",
        "backup db kept",
        "restore kept again",
        "restore kept db --table parts --into moved",
        "bench bench --num 20 --histogram",
        "compact db",
        "compare db again --format table",
    ] {
        fits(72, arguments);
    }
    fits(52, "get db parts long~words r");
    for arguments in ["query db parts", "describe db parts", "partitions db"] {
        fits(40, arguments);
    }
}

/// Repeated writes of the same entities count once, in each command.
#[test]
fn counts_do_not_depend_on_merges() {
    let place = Place::new();
    let row = |i| format!("{{\"PartitionKey\":\"p\",\"RowKey\":\"{i:05}\",\"A\":{i}}}\n");
    let rows: String = (0..6_000).map(row).collect();
    for _ in 0..2 {
        place.feed("import db Tab - --mode upsert --durability os", &rows).ok();
        place.ok("backup db kept");
        assert!(place.ok("tables db --format csv").contains("\nTab,6000,true,"));
        let shown = place.ok("partitions db");
        assert!(shown.starts_with("Tab: 6,000 entities in 1 range of 1 partition\n"), "{shown}");
        assert!(shown.contains("  entries  ") && shown.contains("\nranges: estimates "), "{shown}");
    }
    let json = place.ok("partitions db --format json");
    assert!(json.contains(r#""ranges_are_estimates":true,"ranges":[{"#), "{json}");
    assert_eq!(place.ok("query db Tab --count"), "6000\n");
    assert_eq!(place.ok("query db Tab --count --format csv"), "count\n6000\n");
    let explained = place.ok("query db Tab --explain");
    assert!(explained.contains(" looked at, 6,000 returned\n"), "{explained}");
    assert!(
        place.ok("query db Tab --aggregate A").starts_with("rows      6,000\nintegers  6,000\n")
    );
}

/// Each command that prints data takes --format, and refuses CSV if its result has no rows.
#[test]
fn formats_have_one_meaning() {
    let place = parts();
    place.ok("backup db kept");
    let rows = [
        ("tables db", "TableName,Entities,Exact,Bytes"),
        ("describe db parts", "property,type,entities,least,greatest,bounds_exact"),
        ("partitions db", "table,id,low_partition_key,"),
        ("query db parts --top 1", "PartitionKey,RowKey,Price"),
        ("query db parts --count", "count"),
        ("scan db parts --top 1", "PartitionKey,RowKey,Price"),
        ("get db parts bolts m4x20", "PartitionKey,RowKey,Price"),
        ("export db parts", "PartitionKey,RowKey,"),
        ("advise db", "table,pattern,evidence,remedy"),
        ("stats db", "name,value"),
        ("stats db --as-service", "TableName,Entities,ServiceBytes"),
        ("wear db", "user_bytes,"),
        ("backups list kept", "generation,"),
        ("backups verify kept", "generations,"),
        ("gate list db", "table,mode,range"),
        ("compare db db", "table,difference,PartitionKey,RowKey"),
        ("check-refs db parts --into parts --partition-key x --row-key y", "PartitionKey,RowKey,"),
    ];
    let run = |arguments: String| place.run(&arguments);
    for (command, header) in rows {
        let csv = run(format!("{command} --format csv")).out;
        assert!(csv.starts_with(header), "{command}: {csv}");
        let json = run(format!("{command} --format json")).out;
        assert!(json.starts_with(['{', '[']), "{command}: {json}");
        let alias = run(format!("{command} --json"));
        assert_eq!(alias.out.len(), json.len(), "{command}: {alias:?}");
    }
    place.ok("query db parts --explain --format json");
    for command in ["verify db", "heal db --from kept", "repair db new", "inspect db/CURRENT"] {
        let refused = ["this result is text or JSON, not CSV"];
        place.fails(&format!("{command} --format csv"), 2, &refused);
    }
    assert!(!place.path("new").exists());
    place.fails("compare db db --requests --format csv", 2, &["--requests prints NDJSON only"]);
    place.put("other", r#"{"PartitionKey":"nuts","RowKey":"m4,5"}"#);
    let compare = |format: &str| {
        let arguments = "compare db db --table parts --with other --format";
        place.run(&format!("{arguments} {format}")).out
    };
    assert!(compare("csv").ends_with("parts,only-a,nuts,m4\nparts,only-b,nuts,\"m4,5\"\n"));
    assert!(compare("table").ends_with("only-b        parts 'nuts' 'm4,5'\n"));
    let lines = compare("ndjson").trim_end().replace('\n', ",\n");
    assert_eq!(compare("json"), format!("[\n{lines}\n]\n"));
    assert_eq!(place.run("compare db db --json").out, "[\n]\n");
}

/// Tables are cut to their screen; CSV and JSON have whole keys and plain numbers.
#[test]
fn keys_in_csv_are_whole() {
    let place = Place::new();
    let key = "a rather long PartitionKey, with a comma ".repeat(3);
    place.put("Tab", &format!(r#"{{"PartitionKey":"{key}","RowKey":"r"}}"#));
    let mut command = place.command("compact db");
    assert!(command.status().unwrap().success());
    let mut gate = place.command("gate set db Tab --mode read-only --from-partition");
    assert!(gate.arg(&key).status().unwrap().success());
    assert!(place.ok("gate list db --format csv").contains(&key));
    let data = place.ok("partitions db --format json");
    assert!(data.contains(&key), "{data}");
    let shown = place.ok("partitions db");
    assert!(!shown.contains(&key) && place.ok("partitions db --wide").contains(&key), "{shown}");
    let csv = place.ok("partitions db --format csv");
    assert!(!csv.contains(" B") && csv.lines().count() == 2, "{csv}");
}

/// A table that cannot be counted is listed, and reported.
#[test]
fn tables_report_what_cannot_be_counted() {
    let place = parts();
    assert_eq!(place.ok("tables db --exact"), place.ok("tables db"));
    place.ok("gate set db parts --mode offline");
    let run = place.run("tables db");
    assert!(run.out.contains(" about 0 "), "{run:?}");
    run.fails(1, &["error: count the entities of parts: ", "(ServerBusy)"]);
}

#[test]
fn exports_are_filtered_and_have_every_format() {
    let place = parts();
    let export = |arguments: &[&str]| {
        let mut command = place.command("export db parts --filter");
        Run::of(command.args(arguments).output().unwrap())
    };
    let bolts = export(&["Price lt 0.5", "--no-metadata"]).ok();
    assert_eq!(bolts.lines().count(), 1);
    let json = export(&["Price lt 0.5", "--no-metadata", "--format", "json"]).ok();
    assert_eq!(json, format!("[\n{bolts}]\n"));
    assert_eq!(export(&["Price gt 5.0", "--format", "json"]).ok(), "[\n]\n");
    assert!(export(&["Price lt 0.5", "--format", "table"]).ok().ends_with("\n\n1 entity\n"));
    let csv = export(&["Stock gt 1", "--format", "csv"]).ok();
    assert!(csv.starts_with("PartitionKey,RowKey,Made,Stock\nnuts,m4,"), "{csv}");
    let note = "note: no entity has the property Prise; the nearest is Price\n";
    assert_eq!(export(&["Prise gt 1"]).err, note);
    for (into, option) in [("few", "--filter=Prise gt 1"), ("bare", "--select=Prise")] {
        let mut copy = place.command(&format!("copy db parts --into {into}"));
        let copied = Run::of(copy.arg(option).output().unwrap());
        assert!(copied.status == Some(0) && copied.err.ends_with(note), "{copied:?}");
    }
    export(&["Price gt )"]).fails(2, &["Syntax error"]);
}

#[test]
fn a_refused_table_name_makes_no_database() {
    let place = Place::new();
    let row = r#"{"PartitionKey":"p","RowKey":"r"}"#;
    for command in ["create-table none T", "put none T -", "import none T -"] {
        place.feed(command, row).fails(1, &["not within the permissible limits. (table 'T')"]);
        assert!(!place.path("none").exists(), "{command}");
    }
}

/// `--format` has the same values where `--json` was, and `--json` stays.
#[test]
fn formats_are_the_same_everywhere() {
    let place = parts();
    let backup = place.ok("backup db kept --format csv");
    assert!(backup.starts_with("generation,taken,seq,files,bytes,new_files,new_bytes\n1,20"));
    let list = place.ok("backups list kept --format csv");
    let header = backup.lines().next().unwrap().to_owned() + ",problem";
    assert_eq!((list.lines().count(), list.lines().next()), (2, Some(&*header)));
    assert_eq!(place.ok("backups list kept --json"), place.ok("backups list kept --format json"));
    assert!(place.ok("backups verify kept").starts_with("1 backup of "));
    assert!(place.ok("wear db --format csv").starts_with("user_bytes,"));
    assert_eq!(place.ok("wear db --format json"), place.ok("wear db --json"));
    place.fails("wear db --format json --json", 2, &["--json"]);
    place.fails("inspect db/CURRENT --format csv", 2, &["text or JSON"]);
    assert!(place.ok("inspect db/CURRENT --format json").starts_with("{\"part\":"));
    let rows = r#"{"PartitionKey":"p","RowKey":"r"}"#;
    let import =
        |format: &str| place.feed(&format!("import db Tab - --mode upsert {format}"), rows);
    assert!(import("--format table").ok().starts_with("1 row read, 1 imported in "));
    assert!(import("--format text").ok().starts_with("1 row read, "));
    assert!(import("--format csv").ok().starts_with("rows,imported,rejected,seconds,rate\n1,1,0,"));
}

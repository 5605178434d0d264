//! Tests commands that write while another process has the database open and executes them.

use super::*;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, ChildStdout};

/// A running process `exec db`, which has the database open.
struct Holder {
    child: Child,
    requests: Option<ChildStdin>,
    responses: BufReader<ChildStdout>,
}

impl Holder {
    /// Starts the process, and waits until the database is open.
    fn start(place: &Place, arguments: &str) -> Self {
        let mut command = place.command(&format!("exec db {arguments}"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let requests = child.stdin.take();
        let responses = BufReader::new(child.stdout.take().unwrap());
        let mut holder = Holder { child, requests, responses };
        holder.ask(r#"{"op":"tables"}"#);
        holder
    }

    #[track_caller]
    fn ask(&mut self, request: &str) -> String {
        writeln!(self.requests.as_ref().unwrap(), "{request}").unwrap();
        let mut line = String::new();
        self.responses.read_line(&mut line).unwrap();
        assert!(line.starts_with(r#"{"ok":true"#), "{line}");
        line
    }

    fn end(mut self) {
        drop(self.requests.take());
        assert!(self.child.wait().unwrap().success());
    }
}

const COMMANDS: &[&str] = &[
    "create-table db parts --ttl 7d",
    "create-table db parts",
    "ttl db parts",
    "ttl db parts never",
    "ttl db parts",
    r#"put db parts {"PartitionKey":"a","RowKey":"r","A":1} --mode insert"#,
    r#"put db parts {"PartitionKey":"b","RowKey":"r","A":1} --mode insert"#,
    r#"put db parts {"PartitionKey":"c","RowKey":"r","A":1} --mode insert"#,
    r#"put db parts {"PartitionKey":"a","RowKey":"r","A":1} --mode insert"#,
    r#"put db parts {"PartitionKey":"a","RowKey":"r"} --mode replace --etag W/"0""#,
    r#"put db parts {"PartitionKey":"a","RowKey":"r","B":2} --mode merge"#,
    "gate set db parts --partition b",
    r#"put db parts {"PartitionKey":"b","RowKey":"r"}"#,
    "gate list db",
    "gate lift db parts --partition b",
    "gate lift db parts --partition b",
    "delete db parts c r",
    "delete db parts c r",
    "delete db parts --partition b",
    "delete db parts --partition b --yes",
    "checkpoint db copy",
    "checkpoint db copy",
    "scan copy parts --format csv",
    "backup db backups",
    "export-range db parts moving --partition a",
    "import-range db others moving",
    "import-range db others moving",
    "restore backups db --table parts --into before",
    "restore backups db --table parts --into before",
    "scan db before --format csv",
    "copy db parts --into more --partition-key {PartitionKey}-x --rejects rejects",
    "copy db parts --into more --partition-key {Nope}",
    "copy db nowhere --into more",
    "heal db --from copy --file 000777.sst",
    "import db loaded rows.ndjson --format json",
    "import db loaded rows.ndjson --rejects rejected",
    "import db loaded rows.ndjson --format json --resume",
    "import db loaded rows.csv --partition-key {A} --row-key {B} --mode upsert",
    "export db loaded --no-metadata",
    "drop-table db parts",
    "drop-table db parts --yes",
    "drop-table db parts --yes",
    "tables db",
    "export db others --no-metadata",
    "scan db more --format csv",
];

/// Runs all commands. Returns each with its status and output, without ETags, Timestamps, durations
/// and sizes of files.
fn outputs(place: &Place) -> Vec<(&'static str, Option<i32>, String, String)> {
    let row = |pk: &str| format!("{{\"PartitionKey\":\"{pk}\",\"RowKey\":\"r\",\"A\":1}}\n");
    place.write("rows.ndjson", row("x") + &row("/") + &row("y"));
    place.write("rows.csv", "A,B\n1,2\n1,3\n");
    let before = |text: String, end: &str| text.split(end).next().unwrap().to_owned();
    let without_sizes = |text: String| match text.contains(" bytes") {
        true => text.lines().next().unwrap().replace(|c: char| c.is_ascii_digit() || c == ',', ""),
        false => text,
    };
    let run = |command: &&'static str| {
        let Run { status, out, err, .. } = place.run(command);
        let out = match command.split(' ').next() {
            Some("put") => String::new(),
            Some("import") => before(before(out, " in "), "\"seconds\""),
            // The sizes depend on what was flushed.
            Some("tables") => out.lines().filter_map(|line| line.split(' ').next()).collect(),
            _ => before(out, "Timestamp"),
        };
        (*command, status, without_sizes(out), without_sizes(err))
    };
    COMMANDS.iter().map(run).collect()
}

/// Each command must have the same output and status as without the other process.
#[test]
fn commands_that_write_are_executed_by_the_process_that_has_the_database_open() {
    let alone = Place::new();
    alone.ok("create-table db first");
    let expected = outputs(&alone);
    let place = Place::new();
    place.ok("create-table db first");
    let mut holder = Holder::start(&place, "");
    for (found, expected) in outputs(&place).iter().zip(&expected) {
        assert_eq!(found, expected);
    }
    let tables = holder.ask(r#"{"op":"tables"}"#);
    assert!(tables.contains(r#"["before","first","loaded","more","others"]"#), "{tables}");
    assert!(place.path("db/CONTROL").exists());
    assert!(place.ok("compact db").contains(" merged into "));
    assert!(place.ok("describe db others").starts_with("others: "));
    // No request corresponds to `exec`, so it is refused.
    place.feed("exec db", "").fails(2, &["open in another process", "try: "]);
    holder.end();
    assert!(!place.path("db/CONTROL").exists());
    assert!(place.ok("verify db").ends_with("no problems\n"));
    assert!(place.ok("verify moving").ends_with("no problems\n"));
    place.ok("backups verify backups");
}

/// Another process cannot write to the target, so it must not delete from the source.
#[test]
fn an_archive_into_another_database_needs_the_lock_of_the_source() {
    let place = parts();
    let holder = Holder::start(&place, "");
    let before = place.ok("scan db parts");
    let archive = "copy db parts --to archive --into old --then-delete";
    place.fails(archive, 2, &["open in another process"]);
    assert_eq!(place.ok("scan db parts"), before);
    assert_eq!(place.tables(), "parts\n");
    holder.end();
    place.ok(archive);
    assert_eq!(place.ok("scan archive old"), before);
}

/// Only the process that has the database open knows its load.
#[test]
fn partitions_and_advise_show_the_load_of_the_process_that_has_the_database_open() {
    let place = Place::new();
    let mut holder = Holder::start(&place, "");
    holder.ask(r#"{"op":"create_table","table":"parts"}"#);
    let entity = |i: u32| format!(r#"{{"PartitionKey":"p","RowKey":"{i:05}"}}"#);
    let entities: Vec<String> = (0..5_000).map(entity).collect();
    let entities = entities.join(",");
    holder.ask(&format!(
        r#"{{"op":"load","table":"parts","mode":"insert","entities":[{entities}]}}"#
    ));
    holder.ask(r#"{"op":"flush"}"#);
    for _ in 0..10 {
        holder.ask(r#"{"op":"count","table":"parts","filter":"A eq 1"}"#);
    }
    let known = place.ok("advise db --format json");
    assert!(known.contains(r#""load_known":true"#) && known.contains("10 of 10"), "{known}");
    let shown = place.ok("partitions db --format json");
    assert!(shown.contains(r#""entities":5000"#), "{shown}");
    assert!(
        shown.contains(r#""load":""#) && !shown.contains(r#""reads_per_second":null"#),
        "{shown}"
    );
    holder.end();
    assert!(place.ok("advise db --format json").contains(r#""load_known":false"#));
    let shown = place.ok("partitions db --format json");
    assert!(shown.contains(r#""reads_per_second":null"#), "{shown}");
    let shown = place.ok("partitions db --format csv");
    assert!(shown.lines().nth(1).is_some_and(|line| line.ends_with(",,,")), "{shown}");
}

/// A killed process leaves its socket. Commands must open the database nevertheless, and the next
/// process that listens must replace the socket.
#[test]
fn the_socket_of_a_killed_process_is_replaced() {
    let place = parts();
    let mut holder = Holder::start(&place, "--durability os");
    holder.child.kill().unwrap();
    holder.child.wait().unwrap();
    assert!(place.path("db/CONTROL").exists());
    place.put("parts", r#"{"PartitionKey":"p","RowKey":"r"}"#);
    assert!(place.ok("verify db").ends_with("no problems\n"));
    place.ok("checkpoint db copy");
    assert!(!place.path("copy/CONTROL").exists());
    let holder = Holder::start(&place, "");
    place.put("parts", r#"{"PartitionKey":"p","RowKey":"s"}"#);
    holder.end();
    assert!(!place.path("db/CONTROL").exists());
    assert!(place.ok("scan db parts").ends_with("4 entities\n"));
}

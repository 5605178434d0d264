//! Moves a range with the binary alone, as docs/SEMANTICS.md describes: offline, and online with a
//! short gate.

use super::{Place, Run};

const UPPER: &str = "--from-partition m";

/// Creates `db` with partitions a to z, three rows each.
fn letters() -> Place {
    let place = Place::new();
    let mut lines = String::new();
    for pk in 'a'..='z' {
        for rk in 1..=3 {
            lines += &format!(r#"{{"PartitionKey":"{pk}","RowKey":"{rk}","A":{rk},"B":0.5}}"#);
            lines.push('\n');
        }
    }
    place.feed("import db Parts -", lines).ok();
    place
}

#[track_caller]
fn check_equal(place: &Place, arguments: &str, entities: u32) {
    let run = place.run(&format!("compare {arguments}"));
    let said = format!("{entities} entities compared, 0 differences\n");
    assert_eq!((run.status, &*run.out, &*run.err), (Some(0), "", &*said));
}

fn etags(place: &Place, db: &str) -> Vec<String> {
    let out = place.ok(&format!("query {db} Parts --format ndjson"));
    let lines = out.lines().filter(|line| line.contains(r#""PartitionKey":"m""#));
    lines.map(str::to_owned).collect()
}

/// The offline procedure of a migration: the range refuses writes from the first step until the new
/// database serves it.
#[test]
fn a_range_is_moved_offline() {
    let place = letters();
    // 1. Close the range to writes.
    place.ok(&format!("gate set db Parts {UPPER}"));
    let list = [
        "table  mode      range",
        "-----  --------  -----------",
        "Parts  ReadOnly  ['m' … end)\n",
    ];
    assert_eq!(place.ok("gate list db"), list.join("\n"));
    let busy = ["ServerBusy", "try: run the command again"];
    let put = r#"{"PartitionKey":"m","RowKey":"4"}"#;
    place.feed("put db Parts -", put).fails(1, &busy);
    place.feed("put db Parts -", r#"{"PartitionKey":"b","RowKey":"4"}"#).ok();
    // 2. Export the range and verify the copy.
    let said = place.ok(&format!("export-range db Parts moving {UPPER}"));
    assert!(said.starts_with("exported 42 entities in 1 file of "), "{said}");
    check_equal(&place, &format!("db moving --table Parts {UPPER}"), 42);
    place.ok("verify moving");
    // 3. Import the copy into the other database and verify it there.
    place.ok("create-table other Beside");
    let said = place.ok("import-range other Parts moving");
    assert!(said.starts_with("imported 42 entities in 1 file of "), "{said}");
    check_equal(&place, &format!("db other --table Parts {UPPER}"), 42);
    place.ok("verify other");
    assert_eq!(etags(&place, "other"), etags(&place, "db"));
    // 4. Take the range offline in the old database, which then refuses all requests for it. The
    //    new database serves them.
    place.ok(&format!("gate set db Parts --mode offline {UPPER}"));
    place.feed("put other Parts -", put).ok();
    place.fails("get db Parts m 1", 1, &busy);
    assert!(place.ok("get db Parts b 1").contains("0.5"));
    // 5. Drop the table, and with it the old rows, which the gate hides.
    place.ok("drop-table db Parts --yes");
    assert_eq!(place.ok("gate list db"), "");
    place.ok("verify db");
}

/// Most rows are moved while writes continue. The gate is closed only while the changes made in the
/// meantime are transferred.
#[test]
fn a_range_is_moved_online_with_a_short_gate() {
    let place = letters();
    place.ok(&format!("export-range db Parts moving {UPPER}"));
    place.ok("import-range other Parts moving");
    // Three writes during the move: a replacement, an insert and a delete.
    place.feed("put db Parts - --mode upsert", r#"{"PartitionKey":"m","RowKey":"1","A":7}"#).ok();
    place.feed("put db Parts -", r#"{"PartitionKey":"y","RowKey":"4","A":"new"}"#).ok();
    place.ok("delete db Parts z 3");
    // Close the gate, and transfer the differences.
    place.ok(&format!("gate set db Parts {UPPER}"));
    let run = place.run(&format!("compare db other --table Parts {UPPER} --requests"));
    let expected = [
        r#"{"op":"upsert_replace","table":"Parts","entity":{"PartitionKey":"m","RowKey":"1","A":7}}"#,
        r#"{"op":"upsert_replace","table":"Parts","entity":{"PartitionKey":"y","RowKey":"4","A":"new"}}"#,
        r#"{"op":"delete","table":"Parts","pk":"z","rk":"3","etag":"*"}"#,
    ];
    assert_eq!((run.status, without_timestamps(&run.out)), (Some(1), expected.join("\n")));
    let answers = place.feed("exec other", &run.out).ok();
    assert!(answers.lines().all(|line| line.starts_with(r#"{"ok":true"#)), "{answers}");
    check_equal(&place, &format!("db other --table Parts {UPPER}"), 42);
    place.ok(&format!("gate set db Parts --mode offline {UPPER}"));
    place.ok("verify other");
}

/// Removes the Timestamps, which differ between runs.
fn without_timestamps(out: &str) -> String {
    let line = |line: &str| match (line.find(r#","Timestamp""#), line.find(r#"Z","#)) {
        (Some(from), Some(to)) if from < to => format!("{}{}", &line[..from], &line[to + 2..]),
        _ => line.to_owned(),
    };
    out.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn differences_are_reported_one_per_line() {
    let place = letters();
    place.ok("checkpoint db copy");
    check_equal(&place, "db copy", 78);
    check_equal(&place, "db db --table Parts --with parts", 78);
    place.ok("delete db Parts a 1");
    place.ok("delete copy Parts a 2");
    let wider = r#"{"PartitionKey":"b","RowKey":"1","A@odata.type":"Edm.Int64","A":"1","B":0.5}"#;
    place.feed("put copy Parts - --mode upsert", wider).ok();
    place.ok("create-table db Mine");
    place.ok("create-table copy Other");
    let run = place.run("compare db copy");
    let words: Vec<&str> = run.out.lines().filter_map(|line| line.split('"').nth(7)).collect();
    assert_eq!(words, ["table-only-a", "only-b", "only-a", "differs", "table-only-b"], "{run:?}");
    assert_eq!(run.status, Some(1));
    assert!(run.err.contains("78 entities compared, 5 differences"), "{}", run.err);
    let run = place.run("compare db copy --top 1");
    assert_eq!((run.status, run.out.lines().count()), (Some(1), 1));
    check_equal(&place, "db copy --table Parts --partition c", 3);
    place.fails("compare db nowhere", 2, &["there is no database"]);
    // The differences are printed as requests, which make one database equal to the other.
    let requests = place.run("compare db copy --requests").out;
    place.feed("exec copy", requests).ok();
    check_equal(&place, "db copy", 77);
}

#[test]
fn refused_moves_are_explained() {
    let place = letters();
    place.fails("export-range db Parts db", 1, &["exists and is not empty"]);
    place.fails("export-range db None moving", 1, &["TableNotFound"]);
    place.ok("export-range db Parts moving --partition c --from 2");
    place.fails(
        "import-range db Parts moving",
        1,
        &["there are entities where the range is to go"],
    );
    place.fails("import-range db Parts nowhere", 2, &["there is no database"]);
    place.fails("gate lift db Parts --partition c", 1, &["there is no gate with this span"]);
    place.fails("gate set db Parts --partition c --from-partition d", 2, &["cannot be used with"]);
    place.ok("gate set db Parts --mode offline --partition c --from 2 --to 3");
    let json = "[{\"table\":\"Parts\",\"mode\":\"Offline\",\"range\":\"['c', '2' … 'c', '3')\"}]\n";
    assert_eq!(place.ok("gate list db --format json"), json);
    assert_eq!(place.ok("gate list db --json"), json);
    assert!(place.ok("gate list db --format csv").starts_with("table,mode,range\n"));
    place.fails("scan db Parts", 1, &["ServerBusy"]);
    place.ok("gate lift db Parts --partition c --from 2 --to 3");
    place.ok("scan db Parts");
}

#[test]
fn stress_on_one_partition_has_a_verdict() {
    let place = letters();
    let stress = |name: &str, arguments: &str| {
        let quick = "--peak-seconds 1 --clients 2 --entities 50 --durability buffered";
        place.run(&format!("stress {name} --partition m {quick} {arguments}"))
    };
    let run = stress("calm", "--rate 300");
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.out.contains("0.0 % ServerBusy   pass\n") && !run.out.contains("finer"), "{run:?}");
    let run: Run = stress("peak", "--rate 3000 --reads 80 --json");
    assert_eq!(run.status, Some(1), "{run:?}");
    for part in
        [r#""verdict_at_500":"fail""#, r#""verdict_at_2000":"fail""#, "add a bucket at the end"]
    {
        assert!(run.out.contains(part), "{part}: {run:?}");
    }
    let run = stress("sampled", "--rate 700 --sample db --sample-table Parts");
    assert_eq!(run.status, Some(0), "the rate is below the present target of 2,000: {run:?}");
    let text = "add a bucket at the end, 'm;00' to 'm;01'";
    assert!(run.out.contains("fail") && run.out.contains(text), "{run:?}");
    stress("calm", "--rate 300").fails(1, &["TableAlreadyExists"]);
    place.fails("stress nowhere --partition m", 2, &["--rate"]);
    place.fails("stress nowhere --partition m/x --rate 5", 1, &["PartitionKey"]);
    assert!(!place.path("nowhere").exists());
    assert!(place.ok("tables calm").contains("StressTest"));
}

//! Tests `rowstone changes`: lines of JSON, cursors, and reads while another process has the
//! database open.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use super::Place;

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

/// Returns the position in a line.
fn position(line: &str) -> &str {
    line.split('"').nth(3).unwrap()
}

#[test]
fn commits_are_printed_one_per_line() {
    let place = Place::new();
    place.put("parts", r#"{"PartitionKey":"bolts","RowKey":"m4x20","Price":0.12}"#);
    place.ok("delete db parts bolts m4x20");
    place.ok("delete db parts --partition bolts --yes");
    place.ok("drop-table db parts --yes");
    let out = place.ok("changes db");
    let found = lines(&out);
    let ops = found.iter().map(|line| line.split(r#""op":""#).nth(1).unwrap());
    let ops: Vec<&str> = ops.map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(ops, ["create-table", "put", "delete", "delete-range", "drop-table"], "{out}");
    assert!(found[1].contains(r#""table":"parts","entity":{"#), "{out}");
    assert!(found[1].contains(r#""Price":0.12"#), "{out}");
    assert!(found[2].contains(r#""PartitionKey":"bolts","RowKey":"m4x20""#), "{out}");
    let since = place.ok(&format!("changes db --since {}", position(found[2])));
    assert_eq!(lines(&since), found[3..]);
    assert_eq!(place.ok("changes db --new"), "");
    assert_eq!(place.ok("changes db --table other"), "");
    let newest = place.ok("changes db --positions");
    assert!(newest.contains(position(found[4])), "{newest}");
}

#[test]
fn a_cursor_returns_each_commit_once_across_sessions() {
    let place = Place::new();
    let insert = |row: u32| {
        let entity = format!(r#"{{"PartitionKey":"p","RowKey":"{row}"}}"#);
        format!(r#"{{"op":"insert","table":"parts","entity":{entity}}}"#)
    };
    let create = r#"{"op":"create_table","table":"parts"}"#;
    let requests = [create, &insert(0), &insert(1), r#"{"op":"flush"}"#, &insert(2)].join("\n");
    place.feed("exec db --keep-changes 1000000", requests).ok();
    assert_eq!(lines(&place.ok("changes db --cursor search")).len(), 4);
    assert_eq!(place.ok("changes db --cursor search"), "");
    // Each command leaves a log, and some commands flush when they close the database.
    for row in 3..12 {
        place.put("parts", &format!(r#"{{"PartitionKey":"p","RowKey":"{row}"}}"#));
    }
    assert_eq!(lines(&place.ok("changes db --cursor search")).len(), 9);
    assert_eq!(lines(&place.ok("changes db --cursor other")).len(), 13);
}

#[test]
fn unkept_and_invalid_positions_are_refused() {
    let place = Place::new();
    place.put("parts", r#"{"PartitionKey":"p","RowKey":"0"}"#);
    let first = place.ok("changes db");
    let first = position(lines(&first)[0]).to_owned();
    place.feed("exec db", r#"{"op":"flush"}"#).ok();
    place.fails(&format!("changes db --since {first}"), 1, &["no longer kept", "keep_changes"]);
    place.fails("changes db --since yesterday", 2, &["is no position"]);
    place.fails("changes none", 2, &["no database"]);
    let other = format!("0000000000000000-{}", first.split('-').nth(1).unwrap());
    place.fails(&format!("changes db --since {other}"), 1, &["another history"]);
}

#[test]
fn trap_33_commands_read_while_another_process_writes() {
    let place = Place::new();
    let mut writer = place.command("exec db --keep-changes 1000000");
    let mut writer = writer.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, output) = (writer.stdin.take().unwrap(), writer.stdout.take().unwrap());
    let mut answers = BufReader::new(output).lines();
    let mut ask = |request: &str| {
        writeln!(input, "{request}").unwrap();
        let answer = answers.next().unwrap().unwrap();
        assert!(answer.starts_with(r#"{"ok":true"#), "{answer}");
    };
    ask(r#"{"op":"create_table","table":"parts"}"#);
    ask(r#"{"op":"insert","table":"parts","entity":{"PartitionKey":"p","RowKey":"a","N":1}}"#);
    // A second process may read the database, and the first one moves its cursors.
    assert_eq!(lines(&place.ok("changes db --cursor search")).len(), 2);
    assert_eq!(place.ok("changes db --cursor search"), "");
    assert!(place.ok("get db parts p a --format json").contains("\"N\":1"));
    assert!(place.ok("tables db").contains("parts"));
    ask(r#"{"op":"flush"}"#);
    ask(r#"{"op":"insert","table":"parts","entity":{"PartitionKey":"p","RowKey":"c","N":2}}"#);
    ask(r#"{"op":"compact"}"#);
    assert_eq!(lines(&place.ok("scan db parts --format ndjson")).len(), 2);
    assert_eq!(lines(&place.ok("query db parts --format ndjson")).len(), 2);
    assert_eq!(lines(&place.ok("changes db")).len(), 3);
    // A follower receives later commits.
    let positions = place.ok("changes db --positions");
    let newest = positions.split('"').nth(7).unwrap();
    let mut follower = place.command(&format!("changes db --since {newest} --follow"));
    let mut follower = follower.stdout(Stdio::piped()).spawn().unwrap();
    let mut followed = BufReader::new(follower.stdout.take().unwrap()).lines();
    for row in ["x", "y"] {
        let entity = format!(r#"{{"PartitionKey":"q","RowKey":"{row}"}}"#);
        ask(&format!(r#"{{"op":"insert","table":"parts","entity":{entity}}}"#));
        let line = followed.next().unwrap().unwrap();
        assert!(line.contains(&format!(r#""RowKey":"{row}""#)), "{line}");
    }
    follower.kill().unwrap();
    follower.wait().unwrap();
    drop(input);
    assert!(writer.wait().unwrap().success());
}

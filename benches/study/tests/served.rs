//! Tests the program with clients and server as processes, which is the default.

use std::path::Path;
use std::process::{Command, Output};

/// Runs the program on `dir` and returns its output.
fn run(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rowstone-study"));
    command.current_dir(dir).args(arguments).args(["--quick", "--point-millis", "5"]);
    command.args(["--inserts-max", "300", "--rows", "20", "--durability", "os"]);
    command.output().expect("the program starts")
}

/// Figure 3 has an extra-large client, figure 4 a small one, and figure 8 several extra-large ones,
/// which have eight threads each.
#[test]
fn client_processes_call_a_server_that_the_program_starts() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["db/", "--figures", "3,4,8", "--json", "--out", "a.html"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let problems = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{problems}");
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let figures: Vec<_> = lines.collect();
    assert_eq!(figures.len(), 4, "{text}");
    let rows = figures[2]["rows"].as_array().unwrap().iter();
    let threads: Vec<_> = rows.filter(|row| !row[1].is_null()).map(|row| &row[0]).collect();
    assert_eq!(threads, ["8", "16", "32"], "{text}");
    let page = std::fs::read_to_string(dir.path().join("a.html")).unwrap();
    assert!(page.contains("processes that call rowstone serve by HTTP"));
    // The server had a database of its own, beside the other one.
    assert!(dir.path().join("db.served").is_dir());
}

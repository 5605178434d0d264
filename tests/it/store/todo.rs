//! The example `todo`, one program over each store.

use std::path::PathBuf;
use std::process::Command;

/// The output over each store.
const OUTPUT: &str = "\
4 tasks
painting took 10 hours
open: call the plumber (0.5 hours)
open: mow the lawn (1.5 hours)
open: repair the bicycle (3 hours)
";

/// Runs the example over a store, twice. `connection` becomes the variable CONNECTION.
pub(super) fn check(store: &str, connection: Option<&str>) {
    for _ in 0..2 {
        let mut command = Command::new(program());
        command.arg(store).envs(connection.map(|text| ("CONNECTION", text)));
        let output = command.output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), &*error), (Some(0), ""), "{store}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), OUTPUT, "{store}");
    }
}

/// Returns the program, which `cargo test` builds beside this one.
fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let profile = own.ancestors().nth(2).unwrap();
    let path = profile.join("examples").join(format!("todo{}", std::env::consts::EXE_SUFFIX));
    assert!(path.exists(), "build it: cargo build --all-features --example todo");
    path
}

#[test]
fn todo_runs_over_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    check(directory.path().join("db").to_str().unwrap(), None);
}

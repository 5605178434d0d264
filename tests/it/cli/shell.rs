//! Tests `shell` with lines from a pipe, and `completions` and `man`.

use super::{Place, parts};

#[test]
fn a_script_runs_to_its_end_and_names_the_lines_that_failed() {
    let place = parts();
    let script = b"tables --format csv\r\n\
        # a comment\n\
        \n\
        query parts --filter \"Price lt 0.5 and PartitionKey eq 'bolts'\" --select RowKey \
        --format csv\n\
        query nowhere\n\
        get parts 'not closed\n\
        \\x\n\
        put parts '{\"PartitionKey\":\"bolts\",\"RowKey\":\"new\"}'\n\
        serve\n\
        \xff\n\
        get parts bolts new --select RowKey\n\
        query parts --order-by --top\n\
        \\d parts\n\
        \\q\n\
        create-table after\n";
    let run = place.feed("shell db", script);
    let failed = [
        "line 5: error: The table specified does not exist",
        "line 6: error: a quote is not closed",
        "line 7: error: \\x is no command of the shell",
        "line 9: error: unrecognized subcommand 'serve'",
        "line 10: error: this line is not UTF-8",
        "line 12: error: ",
        "error: 6 lines failed",
    ];
    assert!(run.out.starts_with("TableName,"), "{}", run.out);
    assert!(run.out.contains("\nparts,2,"), "{}", run.out);
    assert!(run.out.contains("\nRowKey\nm4x20\n"), "{}", run.out);
    assert!(run.out.contains("\nRowKey  new\n"), "{}", run.out);
    assert!(run.out.contains("parts: 3 entities\n"), "{}", run.out);
    run.fails(1, &failed);
    assert_eq!(place.tables(), "parts\n");
}

#[test]
fn a_script_without_errors_succeeds_and_can_time_commands() {
    let place = parts();
    assert_eq!(place.feed("shell db", "").ok(), "");
    let run = place.feed("shell db", "\\timing\ntables --format csv\n\\timing\nttl parts\nexit");
    assert_eq!((run.status, run.err.matches("time: ").count()), (Some(0), 1), "{run:?}");
    assert!(run.out.ends_with("never\n"), "{}", run.out);
    let rows = "import parts - --format csv\nPartitionKey,RowKey\nbolts,m5\n";
    let run = place.feed("shell db", rows);
    assert_eq!(run.status, Some(0), "{run:?}");
    place.ok("get db parts bolts m5");
}

#[test]
fn help_of_the_shell_has_no_database() {
    let place = parts();
    let help = place.feed("shell db", "help query").ok();
    assert!(help.contains("Usage: query [OPTIONS] <TABLE>\n") && !help.contains("--db"), "{help}");
    let list = place.feed("shell db", "\\?").ok();
    for name in ["query ", "describe ", "gate ", "\\timing"] {
        assert!(list.contains(name), "{list}");
    }
    assert!(!list.contains("restore"), "{list}");
    // The examples have a database.
    assert!(help.contains("\nExamples outside of this shell:\n  rowstone query "), "{help}");
    let usage = ["Usage: COMMAND [ARGUMENTS]\n"];
    place.feed("shell db", "serve").fails(1, &usage);
}

#[test]
fn a_database_may_be_called_like_an_option() {
    let place = Place::new();
    place.ok("create-table -- -dash parts");
    let tables = place.feed("shell -- -dash", "tables --format csv").ok();
    assert!(tables.contains("\nparts,0,"), "{tables}");
    // As a session at a terminal starts a command.
    assert_eq!(place.ok("shell -- -dash tables --format csv"), tables);
}

#[test]
fn a_shell_needs_a_database_and_makes_none() {
    let place = Place::new();
    place.feed("shell db", "create-table parts").fails(2, &["db"]);
    assert!(!place.path("db").exists());
}

#[test]
fn completions_and_pages_have_all_commands_and_the_same_bytes_each_time() {
    let place = Place::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = place.ok(&format!("completions {shell}"));
        assert!(script.contains("order-by") && script.contains("check-refs"), "{shell}");
        assert_eq!(script, place.ok(&format!("completions {shell}")));
    }
    place.ok("man --out one/deep");
    place.ok("man --out two");
    let names = |dir: &str| {
        let names = std::fs::read_dir(place.path(dir)).unwrap();
        let mut names: Vec<_> = names.map(|name| name.unwrap().file_name()).collect();
        names.sort();
        names.into_iter().map(|name| name.into_string().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(names("two"), names("one/deep"));
    for name in names("two") {
        assert_eq!(place.read(&format!("two/{name}")), place.read(&format!("one/deep/{name}")));
    }
    let page = place.read("two/rowstone-query.1");
    assert!(page.contains("order\\-by") && page.contains("rowstone query"), "{page}");
    let example = "\n.nf\n  rowstone query flights Flights \\-\\-order\\-by";
    assert!(page.contains(example), "{page}");
    assert!(names("two").contains(&"rowstone.1".to_owned()));
    place.fails("man --out two", 2, &["two/", "exists", "--force"]);
    place.ok("man --out two --force");
}

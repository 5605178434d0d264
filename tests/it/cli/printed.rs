//! Tests that output for people controls no terminal, and that no message has a secret.

use super::{Place, Run, parts};

/// Characters that change the colour, the line, the bell and the direction of a terminal.
const WILD: &str = "a\u{1b}[31m\rb\u{7}c\u{9b}7md\u{202e}e";
/// The account's key and the signature of the tests.
const KEY: &str =
    "k3y/AAAABBBBCCCCDDDDEEEEFFFFGGGGHHHHIIIIJJJJKKKKLLLLMMMMNNNNOOOOPPPPQQQQRRRRSSSSTTTTUU==";
const SIGNATURE: &str = "s1gn%2BatureAAAABBBBCCCC%3D";

fn run(place: &Place, arguments: &[&str]) -> Run {
    Run::of(place.command("").args(arguments).output().unwrap())
}

/// Checks that the output for people has `shown` and no control characters, and returns the status.
#[track_caller]
fn is_plain(run: &Run, shown: &str) -> Option<i32> {
    let is_control = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
    for text in [&run.out, &run.err] {
        assert!(!text.contains(is_control), "{text:?}");
        assert!(!text.contains("panicked"), "{text}");
    }
    assert!(run.out.contains(shown) || run.err.contains(shown), "'{shown}' is not in {run:?}");
    run.status
}

/// A database with a value, and a key as far as keys may, that would control a terminal.
fn wild() -> Place {
    let place = Place::new();
    let value = WILD.escape_default().to_string().replace("\\u{1b}", "\\u001b");
    let value = value.replace("\\u{7}", "\\u0007").replace("\\u{9b}", "\u{9b}");
    let value = value.replace("\\u{202e}", "\u{202e}");
    place.put("parts", &format!(r#"{{"PartitionKey":"p\u202e","RowKey":"r","A":"{value}"}}"#));
    place
}

#[test]
fn values_and_keys_control_no_terminal() {
    let place = wild();
    let shown = "a\\u{1b}[31m\\rb\\u{7}c\\u{9b}7md\\u{202e}e";
    let row = ["p\u{202e}", "r"];
    for arguments in [
        &["scan", "db", "parts"][..],
        &["get", "db", "parts", row[0], row[1]],
        &["query", "db", "parts", "--order-by", "A"],
    ] {
        assert_eq!(is_plain(&run(&place, arguments), shown), Some(0), "{arguments:?}");
    }
    for arguments in [
        &["describe", "db", "parts"][..],
        &["query", "db", "parts", "--explain", "--filter", "PartitionKey eq 'p\u{202e}'"],
        &["query", "db", "parts", "--group-by", "PartitionKey", "--count"],
        &["changes", "db", "--cursor", "\u{1b}"],
        &["verify", "db"],
        &["stats", "db"],
    ] {
        is_plain(&run(&place, arguments), "");
    }
    place.ok("compact db");
    for command in ["partitions db parts", "advise db parts", "gate list db", "verify db"] {
        assert_eq!(is_plain(&place.run(command), ""), Some(0), "{command}");
    }
}

/// Programs get the data as it is.
#[test]
fn data_is_exact() {
    let place = wild();
    for command in ["scan db parts --format", "query db parts --format", "export db parts --format"]
    {
        let csv = place.ok(&format!("{command} csv"));
        assert!(csv.contains(WILD) && csv.contains("p\u{202e}"), "{csv:?}");
        for format in ["json", "ndjson"] {
            let json = place.ok(&format!("{command} {format}"));
            let list = format!("[{}]", json.trim_matches(['[', ']', '\n']).replace("}\n{", "},{"));
            let rows: serde_json::Value = serde_json::from_str(&list).unwrap();
            assert_eq!(
                (&rows[0]["A"], &rows[0]["PartitionKey"]),
                (&WILD.into(), &"p\u{202e}".into())
            );
        }
    }
    let gate = |verb: &str| {
        let place =
            place.command(&format!("gate {verb} db parts --partition")).arg("p\u{202e}").output();
        Run::of(place.unwrap())
    };
    gate("set").ok();
    for format in ["csv", "json", "ndjson"] {
        let list = place.ok(&format!("gate list db --format {format}"));
        assert!(list.contains("p\u{202e}"), "{list}");
    }
    is_plain(&place.run("gate list db"), "p\\u{202e}");
    place.ok("export db parts --out out.ndjson");
    assert!(place.read("out.ndjson").contains("p\u{202e}"));
}

#[test]
fn arguments_control_no_terminal_in_messages() {
    let place = parts();
    let name = format!("x{WILD}");
    let filter = format!("{name} eq 1");
    place.write(&name, "a,b\n\u{1b}[31m,\"\n");
    std::fs::create_dir(place.path("full")).unwrap();
    place.write(&format!("full/{name}"), "");
    let name = &*name;
    for arguments in [
        &[name][..],
        &["scan", name, "parts"],
        &["scan", "db", name],
        &["scan", "db", "parts", name],
        &["scan", "db", "parts", "--format", name],
        &["scan", "db", "parts", &format!("--{name}")],
        &["get", "db", "parts", name, "r"],
        &["get", "db", "parts", "bolts", name],
        &["delete", "db", "parts", "bolts", name],
        &["put", "db", name, "{}"],
        &["put", "db", "parts", name],
        &[
            "put",
            "db",
            "parts",
            "{\"PartitionKey\":\"\u{9b}\",\"RowKey\":\"\u{202e}\",\"\u{7f}\":1}",
        ],
        &["query", "db", "parts", "--filter", &filter],
        &["query", "db", "parts", "--order-by", name],
        &["create-table", "db", name],
        &["import", "db", "parts", name],
        &["import", "db", "parts", &format!("{name}.csv")],
        &["export", "db", "parts", "--out", &format!("{name}/{name}")],
        &["copy", "db", "parts", "--to", name, "--map", name],
        &["compare", "db", "parts", name],
        &["inspect", name],
        &["restore", name, "new"],
        &["repair", name, "new"],
        &["salvage", name],
        &["checkpoint", "db", "full"],
        &["serve", name, "--accounts", name],
    ] {
        let run = run(&place, arguments);
        assert!(matches!(is_plain(&run, "error: "), Some(1..=3)), "{arguments:?}: {run:?}");
    }
    // Advice is a word of a shell that names the same column.
    place.write("a.csv", "PartitionKey,RowKey,N\u{1b}[31m\np,r,1\n");
    let advised = run(&place, &["import", "db", "parts", "a.csv"]);
    assert_eq!(is_plain(&advised, "try: --rename $'N\\u001b[31m'=NEW, or "), Some(1));
    let run = run(&place, &["create-table", &format!("new{name}"), "parts"]);
    assert_eq!(is_plain(&run, ""), Some(0));
}

/// `cli` tests the messages of the parser with a secret at every place of every command.
#[test]
fn messages_mask_keys_and_signatures() {
    let place = parts();
    let account = format!("DefaultEndpointsProtocol=https;AccountName=a;AccountKey={KEY};X=y");
    let signed = format!("https://a.table.core.windows.net/?sv=2019-02-02&sig={SIGNATURE}");
    let bare = format!("?sv=2019-02-02&sig={SIGNATURE}");
    for secret in [&*account, &signed, &bare] {
        let filter = format!("A eq '{secret}");
        for arguments in [
            &[secret][..],
            &["scan", secret, "parts"],
            &["scan", "db", secret],
            &["get", "db", "parts", secret, "r"],
            &["get", "db", secret, "p", "r"],
            &["put", "db", "parts", secret],
            &["put", "db", secret, "{}"],
            &["query", "db", "parts", "--filter", secret],
            &["query", "db", "parts", "--filter", &filter],
            &["query", "db", "parts", "--order-by", secret],
            &["create-table", "db", secret],
            &["import", "db", "parts", secret],
            &["export", "db", "parts", "--out", secret],
            &["copy", "db", "parts", "--to", secret],
            &["copy", secret, "parts", "--to", "db"],
            &["compare", "db", "parts", secret],
            &["serve", "db", "--listen", secret],
            &["sas", "parts", "--permissions", secret],
            &["sas", "--account", secret, "parts", "--permissions", "r"],
            &["sas", "parts", "--expiry", secret],
        ] {
            let run = run(&place, arguments);
            let text = format!("{}{}", run.out, run.err);
            assert!(matches!(run.status, Some(0..=2)), "{arguments:?}: {run:?}");
            for part in [KEY, &KEY[..12], SIGNATURE, &SIGNATURE[..12]] {
                assert!(!text.contains(part), "{arguments:?}: {text}");
            }
        }
    }
    let names = std::fs::read_dir(place.path("")).unwrap();
    assert_eq!(names.count(), 1, "a secret became the name of a file");
}

//! The extensions of `serve --extensions`: change feed, range deletes, counts, reverse order.

use super::client::{Answer, Client, Key};
use super::{Place, Server};

const CHANGES: &str = "/$rowstone/changes";
const EXEC: &str = "/$rowstone/exec";
const POSITION: &str = "x-rowstone-position";

fn put(server: &Server, partition: &str, row: &str) {
    let target = format!("/people(PartitionKey='{partition}',RowKey='{row}')");
    server.ask("PUT", &target, r#"{"N":1}"#).is(204);
}

/// Returns the newest position.
fn newest(server: &Server) -> String {
    let answer = server.ask("GET", "/$rowstone/positions", "");
    let positions: serde_json::Value = serde_json::from_str(answer.is(200).text()).unwrap();
    positions["newest"].as_str().unwrap().to_owned()
}

/// Returns the path of the changes after a position, with a wait of at most `wait` seconds.
fn after(position: &str, wait: u64) -> String {
    format!("{CHANGES}?since={position}&wait={wait}")
}

/// Returns all commits after a position. The feed may have the last one only shortly after its
/// answer.
fn read(server: &Server, since: &str) -> String {
    let (mut commits, mut since) = (String::new(), since.to_owned());
    while since != newest(server) {
        let page = server.ask("GET", &after(&since, 30), "");
        commits.push_str(page.is(200).text());
        since = position(&page).to_owned();
    }
    commits
}

/// Returns the RowKeys of the entities that commits wrote.
fn rows(commits: &str) -> Vec<String> {
    let commits = commits.lines().map(|line| serde_json::from_str(line).unwrap());
    let rows = |commit: serde_json::Value| {
        let changes = commit["changes"].as_array().unwrap().clone();
        changes.into_iter().filter_map(|change| change["entity"]["RowKey"].as_str().map(Into::into))
    };
    commits.flat_map(rows).collect()
}

fn position(page: &Answer) -> &str {
    page.header(POSITION).unwrap()
}

#[test]
fn the_feed_has_each_commit_once() {
    let place = Place::new();
    let server = place.serve("--extensions");
    let begin = newest(&server);
    let server = server.with_table();
    put(&server, "p", "a");
    let commits = read(&server, &begin);
    let created = r#""changes":[{"op":"create-table","table":"people"}]}"#;
    assert!(commits.lines().next().unwrap().ends_with(created), "{commits}");
    assert_eq!(rows(&commits), ["a"]);
    // The same position again, the end, and all that is kept.
    assert_eq!(server.ask("GET", &after(&begin, 0), "").text(), commits);
    let end = newest(&server);
    let last = server.ask("GET", &after(&end, 0), "");
    assert_eq!((last.is(200).text(), position(&last)), ("", &*end));
    assert_eq!(server.ask("GET", CHANGES, "").text(), commits);
    // Positions stay valid after a restart.
    server.stop();
    let server = place.serve("--extensions");
    put(&server, "p", "b");
    assert_eq!(rows(&read(&server, &end)), ["b"]);
    assert_eq!(rows(&read(&server, &begin)), ["a", "b"]);
}

#[test]
fn a_request_waits_for_a_commit() {
    let place = Place::new();
    let server = place.serve("--extensions").with_table();
    let mut since = newest(&server);
    let mut client = server.client();
    for row in ["a", "b", "c"] {
        client.send(Key::development().request("GET", &after(&since, 30), "", b""));
        put(&server, "p", row);
        let page = client.answer();
        assert_eq!(rows(page.is(200).text()), [row]);
        since = position(&page).to_owned();
    }
    // Without a commit the page is empty.
    let page = client.ask("GET", &after(&since, 1), "");
    assert_eq!((page.is(200).text(), position(&page)), ("", &*since));
}

#[test]
fn requests_that_wait_do_not_stop_others() {
    let place = Place::new();
    let server = place.serve("--extensions --requests-max 64").with_table();
    let since = newest(&server);
    let request = Key::development().request("GET", &after(&since, 30), "", b"");
    let mut waiting: Vec<Client> = (0..100).map(|_| server.client()).collect();
    waiting.iter_mut().for_each(|client| client.send(&request));
    server.is_well();
    put(&server, "p", "a");
    for client in &mut waiting {
        assert_eq!(rows(client.answer().is(200).text()), ["a"]);
    }
}

#[test]
fn lost_changes_and_bad_input_have_the_form_of_the_service() {
    let place = Place::new();
    let server = place.serve("--extensions").with_table();
    let newest = newest(&server);
    let (history, seq) = newest.split_once('-').unwrap();
    let later = seq.parse::<u64>().unwrap() + 1;
    for lost in [format!("0123456789abcdef-{seq}"), format!("{history}-{later}")] {
        server.ask("GET", &after(&lost, 30), "").is_error(410, "ChangesLost");
    }
    let get = |query: &str| server.ask("GET", &format!("{CHANGES}?{query}"), "");
    get("since=x").is_error(400, "InvalidInput");
    get(&format!("since={newest}&since={newest}")).is_error(400, "InvalidInput");
    get("wait=x").is_error(400, "InvalidQueryParameterValue");
    get("wait=").is_error(400, "InvalidQueryParameterValue");
    server.ask("POST", CHANGES, "").is_error(405, "MethodNotAllowed");
    server.ask("GET", EXEC, "").is_error(405, "MethodNotAllowed");
    let exec = |body: &str| server.ask("POST", EXEC, body);
    exec("{").is_error(400, "InvalidInput");
    exec(r#"{"op":"stats"}"#).is_error(501, "NotImplemented");
    exec(r#"{"op":"delete_range","table":"people","reclaim":true}"#)
        .is_error(501, "NotImplemented");
    exec(r#"{"op":"delete_range","table":"people","partition":null}"#)
        .is_error(400, "InvalidInput");
    exec(r#"{"op":"count","table":"none"}"#).is_error(404, "TableNotFound");
    exec(r#"{"op":"count","table":"people","filter":"N gt"}"#).is_error(400, "InvalidInput");
    server.ask("GET", "/$rowstone/reverse/none", "").is_error(404, "TableNotFound");
}

#[test]
fn ranges_are_deleted_and_counted() {
    let place = Place::new();
    let server = place.serve("--extensions").with_table();
    for (partition, row) in [("p", "a"), ("p", "b"), ("p", "c"), ("q", "a")] {
        put(&server, partition, row);
    }
    let since = newest(&server);
    let exec = |body: &str| server.ask("POST", EXEC, body).is(200).text().to_owned();
    let count = || exec(r#"{"op":"count","table":"people","filter":"N eq 1"}"#);
    assert_eq!(count(), "{\"ok\":true,\"count\":4}\n");
    let delete = r#"{"op":"delete_range","table":"people","partition":"p","from":"b"}"#;
    assert_eq!(exec(delete), "{\"ok\":true}\n");
    assert_eq!(count(), "{\"ok\":true,\"count\":2}\n");
    exec(r#"{"op":"delete_range","table":"people","partition":"p"}"#);
    assert_eq!(count(), "{\"ok\":true,\"count\":1}\n");
    // A range is one commit.
    let commits = read(&server, &since);
    assert_eq!(commits.lines().count(), 2, "{commits}");
}

#[test]
fn a_query_has_the_reverse_order() {
    let place = Place::new();
    let server = place.serve("--extensions").with_table();
    for row in ["a", "b", "c", "d"] {
        put(&server, "p", row);
    }
    let mut seen = Vec::new();
    let mut query = "$top=3&$select=RowKey&$filter=RowKey%20ne%20'c'".to_owned();
    loop {
        let page = server.ask("GET", &format!("/$rowstone/reverse/people?{query}"), "");
        let set: serde_json::Value = serde_json::from_str(page.is(200).text()).unwrap();
        let rows = set["value"].as_array().unwrap().iter();
        seen.extend(rows.map(|row| row["RowKey"].as_str().unwrap().to_owned()));
        let next = |name| page.header(&format!("x-ms-continuation-{name}")).map(str::to_owned);
        let Some(partition) = next("NextPartitionKey") else { break };
        let row = next("NextRowKey").unwrap_or_default();
        query = format!("$top=1&NextPartitionKey={partition}&NextRowKey={row}");
    }
    assert_eq!(seen, ["d", "b", "a"]);
}

#[test]
fn only_the_owner_has_extensions() {
    let place = Place::new();
    let server = place.serve("--extensions").with_table();
    let token = place.sas("--account-wide --permissions rwdlau --expiry 2100-01-01");
    let wrong = || Client::connect(server.at, Key::new("devstoreaccount1", "d3Jvbmc="));
    for (method, path) in [
        ("GET", "/$rowstone/positions"),
        ("GET", CHANGES),
        ("GET", "/$rowstone/reverse/people"),
        ("POST", EXEC),
    ] {
        let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
        let ask = |query: &str| {
            let mut client = server.client();
            let host = "Host: localhost\r\n";
            client.send(format!(
                "{method} /devstoreaccount1{path}{query} HTTP/1.1\r\n{host}{length}\r\n"
            ));
            client.answer()
        };
        ask(&format!("?{token}")).is_error(403, "AuthorizationFailure");
        ask("").is_error(403, "AuthenticationFailed");
        wrong().ask(method, path, "").is_error(403, "AuthenticationFailed");
    }
}

#[test]
fn extensions_are_absent_by_default() {
    let place = Place::new();
    let server = place.serve("").with_table();
    for path in ["/$rowstone/positions", CHANGES, "/$rowstone/reverse/people", EXEC] {
        server.ask("GET", path, "").is_error(404, "ResourceNotFound");
        server.ask("POST", path, "").is_error(400, "InvalidUri");
    }
}

#[cfg(feature = "remote")]
mod commands {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::super::{Place, Server};
    use super::{newest, put, read};

    /// Returns a command in whose environment `STORE` names the server.
    fn command(place: &Place, server: &Server, arguments: &str) -> Command {
        let mut command = place.command(arguments);
        command.env("STORE", server.connection());
        command
    }

    #[track_caller]
    fn run(place: &Place, server: &Server, arguments: &str, status: i32) -> String {
        let output = command(place, server, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments}: {output:?}");
        let out = if status == 0 { output.stdout } else { output.stderr };
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn changes_prints_the_feed_of_a_service() {
        let place = Place::new();
        let server = place.serve("--extensions").with_table();
        put(&server, "p", "a");
        let begin = newest(&server);
        server.ask("POST", "/Tables", r#"{"TableName":"other"}"#).is(201);
        read(&server, &begin);
        for arguments in ["", "--positions", "--new", "--table people", "--table OTHER"] {
            let [here, there] = ["db", "env:STORE"]
                .map(|at| run(&place, &server, &format!("changes {at} {arguments}"), 0));
            assert_eq!(there, here, "{arguments}");
        }
        let mut following = command(&place, &server, "changes env:STORE --follow --table people");
        let mut child = following.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.next().unwrap().contains("create-table"));
        assert!(lines.next().unwrap().contains("\"RowKey\":\"a\""));
        put(&server, "p", "b");
        assert!(lines.next().unwrap().contains("\"RowKey\":\"b\""));
        // The command waits for a server that is started again.
        let listen = format!("--extensions --listen {}", server.at);
        server.stop();
        let server = place.serve(&listen);
        put(&server, "p", "c");
        assert!(lines.next().unwrap().contains("\"RowKey\":\"c\""));
        child.kill().unwrap();
        child.wait().unwrap();
        let lost = "changes env:STORE --since 0123456789abcdef-5";
        let lost = run(&place, &server, lost, 1);
        assert!(lost.contains("another history"), "{lost}");
    }

    #[test]
    fn a_sync_refuses_the_source_under_another_name() {
        let place = Place::new();
        let server = place.serve("--extensions").with_table();
        put(&server, "p", "a");
        let sync = |source: &str| {
            let mut command = command(&place, &server, &format!("sync {source} env:OTHER"));
            let other = server.connection().replace("127.0.0.1", "localhost");
            assert_ne!(other, server.connection());
            let output = command.env("OTHER", other).output().unwrap();
            let text = String::from_utf8(output.stderr).unwrap();
            assert!(text.contains("source and target are the same database"), "{source}: {text}");
            assert_eq!(output.status.code(), Some(2));
        };
        sync("env:STORE");
        sync("db");
    }

    #[test]
    fn counts_and_range_deletes_of_a_service() {
        let place = Place::new();
        let server = place.serve("--extensions").with_table();
        for (partition, row) in [("p", "a"), ("p", "b"), ("q", "a")] {
            put(&server, partition, row);
        }
        assert_eq!(run(&place, &server, "query env:STORE people --count", 0), "3\n");
        let delete = "delete env:STORE people --partition p";
        let refused = run(&place, &server, delete, 2);
        assert!(refused.contains("2 entities of people would be removed"), "{refused}");
        let removed = run(&place, &server, &format!("{delete} --yes"), 0);
        assert_eq!(removed, "removed 2 entities of people\n");
        assert_eq!(run(&place, &server, "query env:STORE people --count", 0), "1\n");
    }

    #[test]
    fn the_last_entities_of_a_service_come_first() {
        let place = Place::new();
        let server = place.serve("--extensions").with_table();
        let row = |n| format!("{n:04}");
        for n in 0..120 {
            put(&server, "p", &row(n));
        }
        let query = "query env:STORE people --reverse --select RowKey --format csv";
        let all: String = (0..120).rev().map(|n| row(n) + "\n").collect();
        assert_eq!(run(&place, &server, query, 0), format!("RowKey\n{all}"));
        let last = run(&place, &server, &format!("{query} --top 2"), 0);
        assert_eq!(last, "RowKey\n0119\n0118\n");
    }

    #[test]
    fn a_service_without_extensions_is_asked_in_the_usual_way() {
        let place = Place::new();
        let server = place.serve("").with_table();
        put(&server, "p", "a");
        assert_eq!(run(&place, &server, "query env:STORE people --count", 0), "1\n");
        let refused = run(&place, &server, "delete env:STORE people --partition p --yes", 2);
        assert!(refused.contains("a range is for a directory"), "{refused}");
        let refused = run(&place, &server, "query env:STORE people --reverse", 2);
        assert!(refused.contains("--reverse is for a directory"), "{refused}");
        let refused = run(&place, &server, "changes env:STORE", 2);
        assert!(refused.contains("has no change feed"), "{refused}");
    }
}

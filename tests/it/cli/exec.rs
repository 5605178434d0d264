//! Tests that `exec` writes one response line per request line, whatever the request is.

use super::{Place, Run};

/// Runs the requests and returns the responses, with ETags and times masked.
fn transcript(place: &Place, requests: &[&str]) -> Vec<String> {
    let out = exec(place, requests.join("\n")).ok();
    out.lines().map(mask).collect()
}

fn exec(place: &Place, requests: impl AsRef<[u8]>) -> Run {
    place.feed("exec db", requests)
}

/// Replaces every ETag and every Timestamp with `T`.
fn mask(line: &str) -> String {
    let line = replace_between(line, "W/\\\"datetime'", "'\\\"", "T");
    replace_between(&line, "\"Timestamp\":\"", "\"", "\"Timestamp\":\"T\"")
}

fn replace_between(text: &str, before: &str, after: &str, with: &str) -> String {
    let mut parts = text.split(before);
    let mut replaced = parts.next().unwrap().to_owned();
    for part in parts {
        replaced.push_str(with);
        replaced.push_str(part.split_once(after).unwrap().1);
    }
    replaced
}

#[track_caller]
fn check(pairs: &[(&str, &str)]) {
    let place = Place::new();
    let requests: Vec<_> = pairs.iter().map(|(request, _)| *request).collect();
    let responses = transcript(&place, &requests);
    for ((request, expected), response) in pairs.iter().zip(&responses) {
        assert_eq!(response, expected, "{request}");
    }
    assert_eq!(responses.len(), pairs.len());
}

const OK: &str = r#"{"ok":true}"#;
const ETAG: &str = r#"{"ok":true,"etag":"T"}"#;

#[test]
fn entities_are_written_read_and_deleted() {
    check(&[
        (r#"{"op":"create_table","table":"Tab"}"#, OK),
        (
            r#"{"op":"create_table","table":"tAB"}"#,
            r#"{"ok":false,"error":{"code":"TableAlreadyExists","status":409,"message":"The table specified already exists.","object":"table 'tAB'"}}"#,
        ),
        (r#"{"op":"tables"}"#, r#"{"ok":true,"tables":["Tab"]}"#),
        (r#"{"op":"insert","table":"tab","entity":{"PartitionKey":"p","RowKey":"r","A":1}}"#, ETAG),
        (
            r#"{"op":"insert","table":"Tab","entity":{"PartitionKey":"p","RowKey":"r"}}"#,
            r#"{"ok":false,"error":{"code":"EntityAlreadyExists","status":409,"message":"The specified entity already exists.","object":"entity 'p' 'r' of table 'Tab'"}}"#,
        ),
        (
            r#"{"op":"merge","table":"Tab","entity":{"PartitionKey":"p","RowKey":"r","B":2.0},"etag":"*"}"#,
            ETAG,
        ),
        (
            r#"{"op":"get","table":"Tab","pk":"p","rk":"r"}"#,
            r#"{"ok":true,"entity":{"odata.etag":"T","PartitionKey":"p","RowKey":"r","Timestamp":"T","A":1,"B":2.0}}"#,
        ),
        (
            r#"{"op":"get","table":"Tab","pk":"p","rk":"r","select":["B","C","RowKey"]}"#,
            r#"{"ok":true,"entity":{"odata.etag":"T","RowKey":"r","B":2.0,"C":null}}"#,
        ),
        (
            r#"{"op":"replace","table":"Tab","entity":{"PartitionKey":"p","RowKey":"r"},"etag":"W/\"datetime'2020-01-01T00%3A00%3A00Z'\""}"#,
            r#"{"ok":false,"error":{"code":"UpdateConditionNotSatisfied","status":412,"message":"The update condition specified in the request was not satisfied.","object":"entity 'p' 'r' of table 'Tab'"}}"#,
        ),
        (
            r#"{"op":"upsert_replace","table":"Tab","entity":{"PartitionKey":"p","RowKey":"r"}}"#,
            ETAG,
        ),
        (r#"{"op":"upsert_merge","table":"Tab","entity":{"PartitionKey":"p","RowKey":"s"}}"#, ETAG),
        (r#"{"op":"delete","table":"Tab","pk":"p","rk":"r","etag":"*"}"#, OK),
        (
            r#"{"op":"get","table":"Tab","pk":"p","rk":"r"}"#,
            r#"{"ok":false,"error":{"code":"ResourceNotFound","status":404,"message":"The specified resource does not exist."}}"#,
        ),
        (r#"{"op":"delete_table","table":"TAB"}"#, OK),
        (
            r#"{"op":"query","table":"Tab"}"#,
            r#"{"ok":false,"error":{"code":"TableNotFound","status":404,"message":"The table specified does not exist.","object":"table 'Tab'"}}"#,
        ),
    ]);
}

#[test]
fn queries_are_paged() {
    let insert = |pk: &str, rk: &str| {
        format!(
            r#"{{"op":"insert","table":"Tab","entity":{{"PartitionKey":"{pk}","RowKey":"{rk}"}}}}"#
        )
    };
    let inserts: Vec<_> =
        [("p", "1"), ("p", "2"), ("q", "1")].iter().map(|(pk, rk)| insert(pk, rk)).collect();
    let row = |pk: &str, rk: &str| {
        format!(r#"{{"odata.etag":"T","PartitionKey":"{pk}","RowKey":"{rk}"}}"#)
    };
    let select = r#""select":["PartitionKey","RowKey"]"#;
    let query = |rest: &str| format!(r#"{{"op":"query","table":"Tab",{select}{rest}}}"#);
    let all = format!(
        r#"{{"ok":true,"entities":[{},{},{}],"next":null}}"#,
        row("p", "1"),
        row("p", "2"),
        row("q", "1")
    );
    let two = |next: &str| {
        format!(r#"{{"ok":true,"entities":[{},{}],"next":{next}}}"#, row("p", "1"), row("p", "2"))
    };
    let one =
        |pk: &str, rk: &str| format!(r#"{{"ok":true,"entities":[{}],"next":null}}"#, row(pk, rk));
    let none = r#"{"ok":true,"entities":[],"next":null}"#;
    let last =
        format!(r#"{{"ok":true,"entities":[{}],"next":{{"pk":"p","rk":"2"}}}}"#, row("q", "1"));
    let broken = r#"{"ok":false,"error":{"code":"InvalidInput","status":400,"message":"Syntax error at position 10 in 'RowKey gt '."}}"#;
    let not = r#"{"ok":false,"error":{"code":"NotImplemented","status":501,"message":"The requested operation is not implemented on the specified resource."}}"#;
    check(&[
        (r#"{"op":"create_table","table":"Tab"}"#, OK),
        (&inserts[0], ETAG),
        (&inserts[1], ETAG),
        (&inserts[2], ETAG),
        (&query(""), &all),
        (&query(r#","top":2"#), &two(r#"{"pk":"q","rk":"1"}"#)),
        (&query(r#","top":2,"next":{"pk":"q","rk":"1"}"#), &one("q", "1")),
        (&query(r#","top":0"#), none),
        (&query(r#","filter":"PartitionKey eq 'p'""#), &two("null")),
        (&query(r#","filter":"(RowKey eq '2') and (PartitionKey eq 'p')""#), &one("p", "2")),
        (&query(r#","filter":"PartitionKey eq 'p' and RowKey eq '3'""#), none),
        (&query(r#","filter":"PartitionKey eq 'a/b'""#), none),
        (&query(r#","filter":"PartitionKey eq '\u0000'""#), none),
        (&query(r#","filter":"RowKey gt '1'""#), &one("p", "2")),
        (&query(r#","filter":"PartitionKey ne 'p' or RowKey ge '3'""#), &one("q", "1")),
        (&query(r#","filter":"A eq 1""#), none),
        (&query(r#","filter":"not (A eq 1)""#), &all),
        (&query(r#","next":{"pk":"q"}"#), &one("q", "1")),
        (&query(r#","next":{"pk":"q","rk":""}"#), &one("q", "1")),
        (&query(r#","next":{"pk":"q","rk":"2"}"#), none),
        (&query(r#","reverse":true,"top":1"#), &last),
        (&query(r#","reverse":true,"next":{"pk":"p","rk":"1"}"#), &one("p", "1")),
        (&query(r#","filter":"startswith(RowKey, '1')""#), not),
        (&query(r#","filter":"RowKey gt ""#), broken),
    ]);
}

#[test]
fn a_filter_is_parsed_before_its_table_is_looked_up() {
    let query =
        |filter: &str| format!(r#"{{"op":"query","table":"Nope","filter":"{filter}","top":0}}"#);
    let place = Place::new();
    let requests = [query("A gt"), query("f(A)"), query("A gt 1")];
    let responses = transcript(&place, &requests.each_ref().map(String::as_str));
    let codes: Vec<_> = responses.iter().map(|line| line.split('"').nth(7).unwrap()).collect();
    assert_eq!(codes, ["InvalidInput", "NotImplemented", "TableNotFound"]);
}

/// Returns requests that fill table `Tab` with 3 partitions of 40 rows each.
fn filled() -> Vec<String> {
    let mut requests = vec![r#"{"op":"create_table","table":"Tab"}"#.to_owned()];
    for pk in ["a", "bé", "c"] {
        let row = |i: u32| {
            let value = if i.is_multiple_of(10) { "\"x\"".to_owned() } else { i.to_string() };
            format!(
                r#"{{"op":"insert","entity":{{"PartitionKey":"{pk}","RowKey":"{i:02}","A":{value}}}}}"#
            )
        };
        let rows: Vec<_> = (0..40).map(row).collect();
        requests.push(format!(r#"{{"op":"group","table":"Tab","ops":[{}]}}"#, rows.join(",")));
    }
    requests
}

#[test]
fn the_pages_of_a_filter_are_complete() {
    let place = Place::new();
    let filled = filled();
    transcript(&place, &filled.iter().map(String::as_str).collect::<Vec<_>>());
    let filter = r#""filter":"(A gt 5 or A eq 'x') and PartitionKey ne 'c' or RowKey eq '39'""#;
    for (count, direction) in [(7, ""), (7, r#","reverse":true"#), (1, ""), (1000, "")] {
        let query = |rest: &str| {
            let line = format!(
                r#"{{"op":"query","table":"Tab","select":["PartitionKey","RowKey"],{filter}{direction}{rest}}}"#
            );
            let [response] = &transcript(&place, &[&line])[..] else { panic!() };
            let list = response.strip_prefix(r#"{"ok":true,"entities":["#).unwrap();
            let (list, next) = list.split_once(r#"],"next":"#).unwrap();
            (list.to_owned(), next.strip_suffix('}').unwrap().to_owned())
        };
        let (whole, end) = query("");
        assert_eq!(end, "null");
        assert_eq!(whole.matches("PartitionKey").count(), 35 + 35 + 1);
        let (mut pages, mut next) = (Vec::new(), String::new());
        loop {
            let (list, following) = query(&format!(r#","top":{count}{next}"#));
            assert!(list.matches("PartitionKey").count() <= count);
            pages.push(list);
            if following == "null" {
                break;
            }
            next = format!(r#","next":{following}"#);
        }
        assert_eq!(pages.join(","), whole, "{count} {direction}");
        assert_eq!(pages.len(), 71usize.div_ceil(count), "{count} {direction}");
    }
}

#[test]
fn aggregates_over_a_filter() {
    let place = Place::new();
    let mut requests = filled();
    let filter = r#""table":"Tab","filter":"RowKey lt '11' and PartitionKey lt 'c'""#;
    requests.extend([
        format!(r#"{{"op":"count",{filter}}}"#),
        format!(r#"{{"op":"count",{filter},"by_partition":true}}"#),
        format!(r#"{{"op":"aggregate",{filter},"property":"A"}}"#),
        format!(r#"{{"op":"aggregate",{filter},"property":"A","by_partition":true}}"#),
        r#"{"op":"count","table":"Nope"}"#.to_owned(),
        r#"{"op":"count","table":"Tab","filter":"A gt"}"#.to_owned(),
    ]);
    let responses = transcript(&place, &requests.iter().map(String::as_str).collect::<Vec<_>>());
    let of = |pk: &str, n: u32| {
        let (rows, integers, others, sum) = (11 * n, 9 * n, 2 * n, 45 * n);
        format!(
            r#"{{{pk}"rows":{rows},"integers":{integers},"doubles":0,"nans":0,"missing":0,"others":{others},"min":1,"max":9,"sum":{sum},"avg":5.0}}"#
        )
    };
    let (a, b) = (of(r#""pk":"a","#, 1), of(r#""pk":"bé","#, 1));
    assert_eq!(
        responses[4..8],
        [
            r#"{"ok":true,"count":22}"#.to_owned(),
            r#"{"ok":true,"counts":[{"pk":"a","count":11},{"pk":"bé","count":11}]}"#.to_owned(),
            format!(r#"{{"ok":true,"aggregate":{}}}"#, of("", 2)),
            format!(r#"{{"ok":true,"aggregates":[{a},{b}]}}"#),
        ]
    );
    assert!(responses[8].contains("TableNotFound"), "{}", responses[8]);
    assert!(responses[9].contains("Syntax error at position 4 in 'A gt'."), "{}", responses[9]);
}

#[test]
fn an_explanation_has_every_member() {
    let place = Place::new();
    let mut requests = filled();
    let filter = "PartitionKey eq 'a' and (RowKey ge '30' or RowKey lt '05') and A gt 3";
    for top in ["", r#","top":2"#, r#","top":0"#] {
        requests.push(format!(
            r#"{{"op":"query","table":"Tab","select":["RowKey"],"filter":"{filter}","explain":true{top}}}"#
        ));
    }
    let responses = transcript(&place, &requests.iter().map(String::as_str).collect::<Vec<_>>());
    let explained = |at: usize| {
        let (page, explain) = responses[at].split_once(r#","explain":"#).unwrap();
        let (counted, times) = explain.split_once(r#","planning_us":"#).unwrap();
        let names: Vec<_> = times.split('"').skip(1).step_by(2).collect();
        assert_eq!(names, ["finding_us", "building_us"], "{times}");
        (page.to_owned(), counted.to_owned())
    };
    let (page, counted) = explained(4);
    assert!(page.ends_with(r#"],"next":null"#), "{page}");
    let expected = [
        format!(
            r#"{{"filter":"{filter}","class":"Row range scan","rating":"good: cost is the rows in the range""#
        ),
        r#""service_class":"Partition scan","intervals":2"#.to_owned(),
        r#""interval_list":["['a' … 'a', '05')","['a', '30' … 'a']"],"rest":"A gt 3","ranges":0"#
            .to_owned(),
        r#""files_read":0,"files_skipped":0,"blocks_read":0,"blocks_skipped":0,"points":0"#
            .to_owned(),
        r#""rows_looked_at":15,"rows_returned":10"#.to_owned(),
    ];
    assert_eq!(counted, expected.join(","));
    let (page, counted) = explained(5);
    assert!(page.ends_with(r#""next":{"pk":"a","rk":"32"}"#), "{page}");
    assert!(counted.ends_with(r#""rows_returned":2"#), "{counted}");
    let (page, counted) = explained(6);
    assert_eq!(page, r#"{"ok":true,"entities":[],"next":null"#);
    assert!(counted.ends_with(r#""rows_looked_at":0,"rows_returned":0"#), "{counted}");
}

#[test]
fn groups_are_all_or_nothing() {
    check(&[
        (r#"{"op":"create_table","table":"Tab"}"#, OK),
        (
            r#"{"op":"group","table":"Tab","ops":[{"op":"insert","entity":{"PartitionKey":"p","RowKey":"a"}},{"op":"insert","entity":{"PartitionKey":"p","RowKey":"b"}}]}"#,
            r#"{"ok":true,"etags":["T","T"]}"#,
        ),
        (
            r#"{"op":"group","table":"Tab","ops":[{"op":"delete","pk":"p","rk":"a","etag":"*"},{"op":"insert","entity":{"PartitionKey":"p","RowKey":"b"}}]}"#,
            r#"{"ok":false,"error":{"code":"EntityAlreadyExists","status":409,"message":"The specified entity already exists.","object":"entity 'p' 'b' of table 'Tab'","index":1}}"#,
        ),
        // The error is that of the first operation that fails, and not of a malformed one after it.
        (
            r#"{"op":"group","table":"Tab","ops":[{"op":"insert","entity":{"PartitionKey":"p","RowKey":"b"}},{"op":"explode"}]}"#,
            r#"{"ok":false,"error":{"code":"EntityAlreadyExists","status":409,"message":"The specified entity already exists.","object":"entity 'p' 'b' of table 'Tab'","index":0}}"#,
        ),
        (
            r#"{"op":"group","table":"Tab","ops":[{"op":"delete","pk":"p","rk":"a","etag":"*"},{"op":"explode"}]}"#,
            r#"{"ok":false,"error":{"code":"InvalidInput","status":400,"message":"unknown operation 'explode'","index":1}}"#,
        ),
        (
            r#"{"op":"group","table":"Tab","ops":[{"op":"delete","pk":"p","rk":"a","etag":"*"},{"op":"upsert_merge","entity":{"PartitionKey":"p","RowKey":"c"}}]}"#,
            r#"{"ok":true,"etags":[null,"T"]}"#,
        ),
        (
            r#"{"op":"group","table":"Tab","ops":[{"op":"delete","pk":"p","rk":"b","etag":"*"},{"op":"delete","pk":"q","rk":"b","etag":"*"}]}"#,
            r#"{"ok":false,"error":{"code":"CommandsInBatchActOnDifferentPartitions","status":400,"message":"All commands in a batch must operate on same entity group.","object":"entity 'q' 'b'","index":1}}"#,
        ),
        (
            r#"{"op":"group","table":"Tab","ops":[{"op":"delete","pk":"p","rk":"b","etag":"*"},{"op":"delete","pk":"p","rk":"b","etag":"*"}]}"#,
            r#"{"ok":false,"error":{"code":"InvalidDuplicateRow","status":400,"message":"The batch request contains multiple changes with same row key. An entity can appear only once in a batch request.","object":"entity 'p' 'b'","index":1}}"#,
        ),
    ]);
}

#[test]
fn a_group_is_bounded_in_count_and_size() {
    let place = Place::new();
    let delete = |i: usize| format!(r#"{{"op":"delete","pk":"p","rk":"{i}","etag":"*"}}"#);
    let group =
        |ops: &[String]| format!(r#"{{"op":"group","table":"Tab","ops":[{}]}}"#, ops.join(","));
    let text = "x".repeat(30_000);
    let large = |i: usize| {
        let texts: Vec<_> = (0..17).map(|j| format!(r#""T{j}":"{text}""#)).collect();
        format!(
            r#"{{"op":"insert","entity":{{"PartitionKey":"p","RowKey":"{i}",{}}}}}"#,
            texts.join(",")
        )
    };
    let of =
        |count: usize, op: &dyn Fn(usize) -> String| group(&(0..count).map(op).collect::<Vec<_>>());
    let requests = [
        r#"{"op":"create_table","table":"Tab"}"#.to_owned(),
        of(0, &delete),
        of(101, &delete),
        of(4, &large),
        of(5, &large),
    ];
    let out = exec(&place, requests.join("\n")).ok();
    let codes: Vec<_> = out.lines().map(|line| line.split('"').nth(7).unwrap_or("ok")).collect();
    assert_eq!(codes[..3], ["ok", "InvalidInput", "InvalidInput"]);
    assert!(out.lines().nth(3).unwrap().starts_with(r#"{"ok":true,"etags""#), "{out}");
    assert!(out.lines().nth(4).unwrap().contains(r#""code":"RequestBodyTooLarge","status":413"#));
}

#[test]
fn an_invalid_line_is_answered_and_the_next_is_read() {
    let place = Place::new();
    let long = format!(r#"{{"op":"tables","pad":"{}"}}"#, "x".repeat(20 << 20));
    let lines: [&[u8]; 9] = [
        b"hello",
        b"",
        b"{}",
        b"\xff\xfe",
        br#"{"op":"tables"} garbage"#,
        br#"{"op":"explode"}"#,
        long.as_bytes(),
        &b"[".repeat(100_000),
        br#"{"op":"tables"}"#,
    ];
    let out = exec(&place, lines.join(&b'\n')).ok();
    let responses: Vec<_> = out.lines().collect();
    assert_eq!(responses.len(), lines.len());
    for response in &responses[..8] {
        let expected = r#"{"ok":false,"error":{"code":"InvalidInput","status":400,"message":""#;
        assert!(response.starts_with(expected), "{response}");
    }
    assert_eq!(responses[8], r#"{"ok":true,"tables":[]}"#);
}

#[test]
fn maintenance_is_answered() {
    let place = Place::new();
    let responses = transcript(
        &place,
        &[
            r#"{"op":"create_table","table":"Tab"}"#,
            r#"{"op":"insert","table":"Tab","entity":{"PartitionKey":"p","RowKey":"r"}}"#,
            r#"{"op":"flush"}"#,
            r#"{"op":"compact"}"#,
            r#"{"op":"checkpoint","path":"copy"}"#,
            r#"{"op":"verify"}"#,
            r#"{"op":"stats"}"#,
            r#"{"op":"backup","path":"kept"}"#,
            r#"{"op":"insert","table":"Tab","entity":{"PartitionKey":"p","RowKey":"s"}}"#,
            r#"{"op":"backup","path":"kept"}"#,
            r#"{"op":"backup","path":"db"}"#,
        ],
    );
    assert!(responses[7].starts_with(r#"{"ok":true,"generation":1,"files":"#), "{}", responses[7]);
    assert!(responses[9].starts_with(r#"{"ok":true,"generation":2,"files":"#), "{}", responses[9]);
    assert!(responses[10].contains("is in the database"), "{}", responses[10]);
    place.ok("restore kept again");
    assert_eq!(place.ok("scan again Tab"), place.ok("scan db Tab"));
    assert_eq!(responses[2..5], [OK, OK, OK]);
    assert!(responses[5].starts_with(r#"{"ok":true,"checked":{""#), "{}", responses[5]);
    assert!(responses[5].ends_with(r#"},"problems":[]}"#), "{}", responses[5]);
    assert!(responses[6].starts_with(r#"{"ok":true,""#), "{}", responses[6]);
    assert!(!responses[6].contains('['), "flat: {}", responses[6]);
    assert!(
        place.ok("scan copy Tab").ends_with("1 entity\n"),
        "the copy has the state at its creation"
    );
}

#[test]
fn a_response_is_written_before_the_next_request_is_read() {
    use std::io::{BufRead, BufReader, Write};
    let place = Place::new();
    let mut command = place.command("exec db --durability os");
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut requests = child.stdin.take().unwrap();
    let mut responses = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        requests.write_all(b"{\"op\":\"tables\"}\n").unwrap();
        assert_eq!(responses.next().unwrap().unwrap(), r#"{"ok":true,"tables":[]}"#);
    }
    drop(requests);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

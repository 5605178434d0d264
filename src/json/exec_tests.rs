//! Tests of requests (every valid and every refused form) and of responses (every form).

use super::*;
use crate::error::ErrorKind;
use crate::model::Seq;

const ETAG: &str = r#"W/\"datetime'2022-02-01T20%3A52%3A48.011206Z'\""#;

/// Parses the request in `line` and compares its debug output with `text`.
#[track_caller]
fn check(line: &str, text: &str) {
    let request = read_request(line.as_bytes()).unwrap_or_else(|error| panic!("{line}: {error:?}"));
    assert_eq!(format!("{request:?}"), text, "{line}");
}

#[track_caller]
fn refused(line: &str, code: &str, message: &str) {
    let error = read_request(line.as_bytes()).map(|request| panic!("{request:?}")).unwrap_err();
    assert_eq!(error.code(), code, "{line}: {error}");
    assert!(error.message().contains(message), "{line}: {error}");
}

#[test]
fn tables_and_maintenance() {
    check(r#"{"op":"create_table","table":"T"}"#, r#"CreateTable { table: "T" }"#);
    check(r#" {"table":"T" , "op":"delete_table"} "#, r#"DeleteTable { table: "T" }"#);
    check(r#"{"op":"tables"}"#, "Tables");
    check(r#"{"op":"flush"}"#, "Flush");
    check(r#"{"op":"compact"}"#, "Compact");
    check(r#"{"op":"stats"}"#, "Stats");
    check(r#"{"op":"verify"}"#, "Verify");
    check(r#"{"op":"slow_queries"}"#, "SlowQueries");
    check(r#"{"op":"cursor","name":"N"}"#, r#"Cursor { name: "N", position: None }"#);
    let cursor = r#"{"op":"cursor","name":"N","position":"#;
    check(
        &format!(r#"{cursor}"00000000000000ff-7"}}"#),
        r#"Cursor { name: "N", position: Some(Position { incarnation: 255, seq: Seq(7) }) }"#,
    );
    refused(&format!(r#"{cursor}"7"}}"#), "InvalidInput", "is no position");
    check(r#"{"op":"checkpoint","path":"a/b"}"#, r#"Checkpoint { path: "a/b" }"#);
    check(r#"{"op":"backup","path":"a/b"}"#, r#"Backup { path: "a/b" }"#);
}

#[test]
fn requests_with_ranges_are_parsed_and_invalid_ones_are_refused() {
    let range = |text: &str| {
        read_request(text.as_bytes()).map(|request| match request {
            Request::DeleteRange { range, .. } => range.to_string(),
            other => panic!("{other:?}"),
        })
    };
    let delete = |rest: &str| format!(r#"{{"op":"delete_range","table":"T"{rest}}}"#);
    for (rest, shown) in [
        ("", "(start … end)"),
        (r#","partition":"p""#, "['p' … 'p']"),
        (r#","partition":"p","from":"a","to":"b""#, "['p', 'a' … 'p', 'b')"),
        (r#","from_partition":"m","to_partition":"n""#, "['m' … 'n')"),
    ] {
        assert_eq!(range(&delete(rest)).unwrap(), shown);
    }
    refused(&delete(r#","from":"a""#), "InvalidInput", "'partition', which is missing");
    refused(&delete(r#","partition":"p","to_partition":"q""#), "InvalidInput", "does not go");
    let reclaims =
        |text: &str| matches!(read_request(text.as_bytes()).unwrap(), Request::Reclaim { .. });
    assert!(reclaims(&delete(r#","partition":"p","reclaim":true"#)));
    assert!(reclaims(r#"{"op":"delete_table","table":"T","reclaim":true}"#));
    check(r#"{"op":"ttl","table":"T"}"#, r#"Ttl { table: "T", seconds: None }"#);
    check(r#"{"op":"ttl","table":"T","seconds":60}"#, r#"Ttl { table: "T", seconds: Some(60) }"#);
    refused(r#"{"op":"ttl","table":"T","seconds":-1}"#, "InvalidInput", "'seconds' is not");
    refused(r#"{"op":"gate","table":"T","mode":"open"}"#, "InvalidInput", "'open' is not a mode");
    refused(r#"{"op":"compact","partition":"p"}"#, "InvalidInput", "'partition' means nothing");
    refused(r#"{"op":"load","table":"T","mode":"x"}"#, "InvalidInput", "'x' is not a mode");
    for bound in ["partition", "from_partition", "to"] {
        let request = format!(r#"{{"op":"delete_range","table":"T","{bound}":null}}"#);
        refused(&request, "InvalidInput", "is null");
    }
    let entities = vec!["0"; 65_537].join(",");
    let load = format!(r#"{{"op":"load","table":"T","mode":"insert","entities":[{entities}]}}"#);
    refused(&load, "InvalidInput", "more than 65536");
    let load = r#"{"op":"load","table":"T","mode":"upsert","entities":[
        {"PartitionKey":"p","RowKey":"r"},{"RowKey":"r"}]}"#;
    let Ok(Request::Load { mode, entities, .. }) = read_request(load.as_bytes()) else { panic!() };
    assert_eq!((mode, entities[0].is_ok(), entities[1].is_ok()), (LoadMode::Upsert, true, false));
}

/// A client must read the same errors and reports that the server wrote.
#[test]
fn responses_are_read_as_they_were_written() {
    let read = |response: Response| Answer::read(String::from_utf8(response.into_line()).unwrap());
    for error in [
        Error::refused(Code::EntityAlreadyExists).about(|| "entity 'a' '1'".to_owned()),
        Error::new(ErrorKind::Busy, "a gate"),
        Error::new(ErrorKind::Locked, "is open"),
        Error::corrupt("db/1.sst".as_ref(), 7, "block", "checksum"),
        Error::io("read x", std::io::ErrorKind::NotFound.into()),
    ] {
        let again = read(Response::error(&error)).unwrap_err();
        assert_eq!((again.kind(), again.code()), (error.kind(), error.code()));
        assert_eq!(again.to_string(), error.to_string());
    }
    let rejected = Error::refused(Code::EntityTooLarge);
    let response = Response::ok().loaded(7, &[Rejected { line: 3, error: rejected }]);
    let answer = read(response).unwrap();
    let found = answer.rejected().unwrap();
    assert_eq!((answer.number("loaded"), found.len(), found[0].line), (Some(7), 1, 3));
    assert_eq!(found[0].error.code(), "EntityTooLarge");
    let range = PartitionRange {
        id: 4,
        low: Some(crate::db::RangeBound { partition_key: "a\"".into(), row_key: "b".into() }),
        reads: 0.25,
        pattern: crate::db::LoadPattern::OnePartition,
        heaviest: vec![("p".into(), 0.5)],
        ..PartitionRange::default()
    };
    let queries = QueryCounts { points: 1, tables: 9, ..QueryCounts::default() };
    let answer = read(Response::ok().load(std::slice::from_ref(&range), &queries)).unwrap();
    assert_eq!(answer.load().unwrap(), (vec![range], queries));
    let path = read(Response::ok().text("path", "/a \"b\"/c")).unwrap();
    assert_eq!(path.replacing("/a \"b\"", "x").text("path").unwrap(), "x/c");
    assert_eq!(read_progress("{\"progress\":[3,10]}\n"), Some((3, 10)));
    assert_eq!(read_progress(r#"{"ok":true}"#), None);
}

#[test]
fn writes() {
    let entity = r#"{"PartitionKey":"p","RowKey":"r","A":1}"#;
    let shown = r#"{"PartitionKey": "p", "RowKey": "r", "A": Int32(1)}"#;
    for (op, name) in
        [("insert", "Insert"), ("upsert_replace", "Upsert"), ("upsert_merge", "UpsertMerge")]
    {
        check(
            &format!(r#"{{"op":"{op}","table":"T","entity":{entity}}}"#),
            &format!(r#"Write {{ table: "T", write: {name}({shown}) }}"#),
        );
    }
    for (op, name) in [("replace", "Replace"), ("merge", "Merge")] {
        check(
            &format!(r#"{{"op":"{op}","table":"T","entity":{entity},"etag":"*"}}"#),
            &format!(r#"Write {{ table: "T", write: {name}({shown}, None) }}"#),
        );
    }
    let line = format!(r#"{{"op":"delete","table":"T","pk":"p","rk":"r","etag":"{ETAG}"}}"#);
    let Ok(Request::Write { write, .. }) = read_request(line.as_bytes()) else { panic!("{line}") };
    let Operation::Delete { partition_key, row_key, etag: Some(etag) } = write else {
        panic!("{line}: {write:?}");
    };
    assert_eq!((&*partition_key, &*row_key), ("p", "r"));
    assert_eq!(etag.to_string(), ETAG.replace('\\', ""));
}

#[test]
fn reads() {
    check(
        r#"{"op":"get","table":"T","pk":"","rk":"é","select":["A"]}"#,
        r#"Get { table: "T", key: Key { pk: "", rk: "é" }, select: Some(["A"]) }"#,
    );
    let query = |filter: &str, rest: &str| {
        let filter: Filter = filter.parse().unwrap();
        format!(r#"Query {{ table: "T", query: Query {{ filter: {filter:?}, {rest} }} }}"#)
    };
    let plain = "select: None, top: 1000, next: None, reverse: false, explain: false";
    check(r#"{"op":"query","table":"T"}"#, &query("", plain));
    check(
        r#"{"op":"query","table":"T","filter":" ","select":null,"top":null,"next":null,"reverse":null,"explain":null}"#,
        &query("", plain),
    );
    check(
        r#"{"op":"query","table":"T","filter":"A gt 1","select":["*","A"],"top":0,"next":{"pk":"a","rk":"b"},"reverse":true,"explain":true}"#,
        &query(
            "A gt 1",
            r#"select: None, top: 0, next: Some(Token { partition_key: "a", row_key: "b" }), reverse: true, explain: true"#,
        ),
    );
    for next in [r#"{"pk":"a"}"#, r#"{"pk":"a","rk":null}"#, r#"{"pk":"a","rk":""}"#] {
        check(
            &format!(
                r#"{{"op":"query","table":"T","reverse":false,"explain":false,"next":{next}}}"#
            ),
            &query(
                "",
                &plain.replace(
                    "next: None",
                    r#"next: Some(Token { partition_key: "a", row_key: "" })"#,
                ),
            ),
        );
    }
}

#[test]
fn aggregates() {
    let filter: Filter = "A gt 1".parse().unwrap();
    check(
        r#"{"op":"count","table":"T"}"#,
        &format!(r#"Count {{ table: "T", filter: {:?}, by_partition: false }}"#, Filter::all()),
    );
    check(
        r#"{"op":"aggregate","table":"T","filter":"A gt 1","property":"B","by_partition":true}"#,
        &format!(
            r#"Aggregate {{ table: "T", filter: {filter:?}, property: "B", by_partition: true }}"#
        ),
    );
    refused(r#"{"op":"aggregate","table":"T"}"#, "InvalidInput", "'property' is missing");
    refused(r#"{"op":"count","table":"T","top":5}"#, "InvalidInput", "'top' means nothing here");
    refused(
        r#"{"op":"count","table":"T","by_partition":1}"#,
        "InvalidInput",
        "'by_partition' is neither true nor false",
    );
}

#[test]
fn etag_rules() {
    let with = |op: &str, etag: &str| match op {
        "delete" => format!(r#"{{"op":"delete","table":"T","pk":"p","rk":"r"{etag}}}"#),
        _ => {
            let entity = r#"{"PartitionKey":"p","RowKey":"r"}"#;
            format!(r#"{{"op":"{op}","table":"T","entity":{entity}{etag}}}"#)
        }
    };
    for op in ["replace", "merge", "delete"] {
        refused(&with(op, ""), "InvalidInput", "'etag' is missing");
        refused(&with(op, r#","etag":null"#), "InvalidInput", "'etag' is missing");
        refused(&with(op, r#","etag":"test""#), "InvalidInput", "etag value 'test'");
        refused(&with(op, r#","etag":"""#), "InvalidInput", "etag value ''");
        refused(&with(op, r#","etag":"W/\"wrong\"""#), "InvalidInput", "not valid");
        refused(&with(op, r#","etag":5"#), "InvalidInput", "not a string");
        assert!(read_request(with(op, &format!(r#","etag":"{ETAG}""#)).as_bytes()).is_ok());
    }
    refused(&with("insert", r#","etag":"*""#), "InvalidInput", "'etag' means nothing here");
    assert!(read_request(with("insert", r#","etag":null"#).as_bytes()).is_ok());
}

#[test]
fn forbidden_key_characters_are_out_of_range() {
    for key in ["a/b", "a\\\\b", "a#", "?", "\\u0000", "\\t", "\u{7f}", "\u{9f}"] {
        for line in [
            format!(r#"{{"op":"get","table":"T","pk":"{key}","rk":"r"}}"#),
            format!(r#"{{"op":"delete","table":"T","pk":"p","rk":"{key}","etag":"*"}}"#),
            format!(r#"{{"op":"query","table":"T","next":{{"pk":"{key}","rk":""}}}}"#),
        ] {
            refused(&line, "OutOfRangeInput", "is out of range");
        }
    }
}

#[test]
fn groups() {
    let line = r#"{"op":"group","table":"T","ops":[
        {"op":"insert","entity":{"PartitionKey":"p","RowKey":"r"}},
        {"op":"delete","pk":"p","rk":"s","etag":"*"}]}"#;
    check(
        line,
        r#"Group { table: "T", writes: [Ok(Insert({"PartitionKey": "p", "RowKey": "r"})), Ok(Delete { partition_key: "p", row_key: "s", etag: None })] }"#,
    );
    check(r#"{"op":"group","table":"T","ops":[]}"#, r#"Group { table: "T", writes: [] }"#);
    let delete = r#"{"op":"delete","pk":"p","rk":"s","etag":"*"}"#;
    for (bad, code) in [
        (r#"{"op":"delete","pk":"p","rk":"s"}"#, "InvalidInput"),
        (r#"{"op":"get","pk":"p","rk":"s"}"#, "InvalidInput"),
        (r#"{"op":"insert","entity":{"PartitionKey":"p"}}"#, "PropertiesNeedValue"),
        (r#"{"op":"insert","entity":{"a":1,"a":2}}"#, "DuplicatePropertiesSpecified"),
        (r#"{"op":"delete","pk":"p","rk":"?","etag":"*"}"#, "OutOfRangeInput"),
        ("5", "InvalidInput"),
    ] {
        let line = format!(r#"{{"op":"group","table":"T","ops":[{delete},{bad},{bad}]}}"#);
        let Ok(Request::Group { writes, .. }) = read_request(line.as_bytes()) else { panic!() };
        let found: Vec<_> = writes.iter().map(|write| write.as_ref().err()).collect();
        let [None, Some(error), Some(_)] = found[..] else { panic!("{bad}: {found:?}") };
        assert_eq!(error.code(), code, "{bad}: {error}");
    }
    let many = vec![delete; 5000].join(",");
    let line = format!(r#"{{"op":"group","table":"T","ops":[{many}]}}"#);
    let Ok(Request::Group { writes, .. }) = read_request(line.as_bytes()) else { panic!() };
    assert_eq!(writes.len(), OPERATIONS_MAX);
}

#[test]
fn lines_without_a_valid_request_are_refused() {
    refused("", "InvalidInput", "not JSON");
    refused("hello", "InvalidInput", "not JSON");
    refused("[]", "InvalidInput", "an object is missing");
    refused("{}", "InvalidInput", "'op' is missing");
    refused(r#"{"op":5}"#, "InvalidInput", "'op' is not a string");
    refused(r#"{"op":"drop","table":"T"}"#, "InvalidInput", "unknown operation 'drop'");
    refused(r#"{"op":"tables"} x"#, "InvalidInput", "trailing characters at line 1 column 17");
    refused(r#"{"op":"tables","op":"tables"}"#, "InvalidInput", "'op' is there twice");
    refused(r#"{"op":"tables","fliter":"x"}"#, "InvalidInput", "'fliter' means nothing here");
    refused(r#"{"op":"create_table"}"#, "InvalidInput", "'table' is missing");
    refused(r#"{"op":"create_table","table":7}"#, "InvalidInput", "'table' is not a string");
    refused(r#"{"op":"insert","table":"T"}"#, "InvalidInput", "'entity' is missing");
    refused(r#"{"op":"insert","table":"T","entity":[]}"#, "InvalidInput", "an object is missing");
    refused(r#"{"op":"get","table":"T","pk":"p"}"#, "InvalidInput", "'rk' is missing");
    refused(r#"{"op":"group","table":"T"}"#, "InvalidInput", "'ops' is missing");
    refused(r#"{"op":"group","table":"T","ops":{}}"#, "InvalidInput", "an array is missing");
    refused(r#"{"op":"checkpoint"}"#, "InvalidInput", "'path' is missing");
    let error = read_request(b"{\"op\":\"\xff\"}").unwrap_err();
    assert_eq!((error.code(), error.message()), ("InvalidInput", "not UTF-8 at byte 7"));
}

#[test]
fn malformed_queries_are_refused() {
    let query = |rest: &str| format!(r#"{{"op":"query","table":"T",{rest}}}"#);
    for top in ["-1", "1001", "1.5", "\"5\"", "1e2", "[]"] {
        refused(&query(&format!(r#""top":{top}"#)), "InvalidInput", "'top' is not a number");
    }
    refused(&query(r#""select":"A""#), "InvalidInput", "an array is missing");
    refused(&query(r#""select":[5]"#), "InvalidInput", "not a list of names");
    refused(&query(r#""next":"a""#), "InvalidInput", "an object is missing");
    refused(&query(r#""next":{"rk":"a"}"#), "InvalidInput", "'pk' is missing");
    refused(&query(r#""next":{"pk":"a","rk":5}"#), "InvalidInput", "'rk' is not a string");
    refused(&query(r#""next":{"pk":"a","x":""}"#), "InvalidInput", "'x' means nothing here");
    refused(&query(r#""filter":5"#), "InvalidInput", "'filter' is not a string");
    refused(&query(r#""filter":"startswith(A, 'x')""#), "NotImplemented", "not implemented");
    refused(&query(r#""filter":"A gt""#), "InvalidInput", "Syntax error at position 4");
    for name in ["explain", "reverse"] {
        let text = format!("'{name}' is neither true nor false");
        refused(&query(&format!(r#""{name}":"true""#)), "InvalidInput", &text);
    }
    let names = vec!["\"A\""; SELECT_MAX + 1].join(",");
    refused(&query(&format!(r#""select":[{names}]"#)), "InvalidInput", "more than 255");
}

#[test]
fn every_cut_of_a_request_is_refused() {
    let line = format!(
        r#"{{"op":"group","table":"T","ops":[{{"op":"delete","pk":"p","rk":"s","etag":"{ETAG}"}}]}}"#
    );
    for end in 0..line.len() {
        assert!(read_request(&line.as_bytes()[..end]).is_err());
    }
}

#[track_caller]
fn answers(response: Response, expected: &str) {
    let line = String::from_utf8(response.into_line()).unwrap();
    assert_eq!(line, format!("{expected}\n"));
}

#[test]
fn responses() {
    let etag = ETag::from(Seq::MAX);
    let shown = r#"W/\"datetime'9999-12-31T23%3A59%3A59.9999999Z'\""#;
    answers(Response::ok(), r#"{"ok":true}"#);
    answers(Response::ok().etag(etag.clone()), &format!(r#"{{"ok":true,"etag":"{shown}"}}"#));
    answers(
        Response::ok().etags(&[Some(etag), None]),
        &format!(r#"{{"ok":true,"etags":["{shown}",null]}}"#),
    );
    answers(Response::ok().tables(&["B".into(), "a".into()]), r#"{"ok":true,"tables":["B","a"]}"#);
    answers(Response::ok().counters([("a", 1), ("b", 2)]), r#"{"ok":true,"a":1,"b":2}"#);
    let entity = Entity::new("p", "r").with("A", 1).at(Seq::MAX);
    let time = "9999-12-31T23:59:59.9999999Z";
    let keys =
        format!(r#""odata.etag":"{shown}","PartitionKey":"p","RowKey":"r","Timestamp":"{time}""#);
    answers(
        Response::ok().entity(&entity, &None),
        &format!(r#"{{"ok":true,"entity":{{{keys},"A":1}}}}"#),
    );
    let next = Token { partition_key: "p".into(), row_key: "r\"".into() };
    answers(
        Response::ok().page(&[entity], &Some(vec!["A".into(), "B".into()]), Some(&next)),
        &format!(
            r#"{{"ok":true,"entities":[{{"odata.etag":"{shown}","A":1,"B":null}}],"next":{{"pk":"p","rk":"r\""}}}}"#
        ),
    );
    answers(Response::ok().page(&[], &None, None), r#"{"ok":true,"entities":[],"next":null}"#);
    answers(Response::ok().counts(&[]), r#"{"ok":true,"counts":[]}"#);
    answers(
        Response::ok().counts(&[("a".into(), 1), ("\"".into(), 2)]),
        r#"{"ok":true,"counts":[{"pk":"a","count":1},{"pk":"\"","count":2}]}"#,
    );
}

#[test]
fn verifications() {
    let checked = vec![("files", 2), ("rows", 3)];
    answers(
        Response::verified(&VerifyReport { checked, ..VerifyReport::default() }),
        r#"{"ok":true,"checked":{"files":2,"rows":3},"problems":[]}"#,
    );
    let problems = vec!["000004.sst: \"bad\"".into()];
    let torn = Some("torn tail".into());
    answers(
        Response::verified(&VerifyReport { problems, torn, ..VerifyReport::default() }),
        r#"{"ok":false,"torn":"torn tail","checked":{},"problems":["000004.sst: \"bad\""]}"#,
    );
}

#[test]
fn errors() {
    answers(
        Response::error(&Error::refused(Code::EntityAlreadyExists).at_index(1)),
        r#"{"ok":false,"error":{"code":"EntityAlreadyExists","status":409,"message":"The specified entity already exists.","index":1}}"#,
    );
    let path = std::path::Path::new("000004.wal");
    let error = Error::corrupt(path, 32, "record", "checksum 1, stored 2").during("replay");
    answers(
        Response::error(&error),
        r#"{"ok":false,"error":{"code":"InternalError","status":500,"kind":"Corruption","message":"replay: record at byte 32 of 000004.wal: checksum 1, stored 2"}}"#,
    );
    let full = Error::io("allocate 000004.wal", std::io::ErrorKind::StorageFull.into());
    let line = Response::error(&full).into_line();
    assert!(
        String::from_utf8(line).unwrap().contains(r#""code":"StorageFull","status":507,"message""#)
    );
}

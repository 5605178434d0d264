//! Tests entity group transactions sent as batches: accepted input, refused input, and the exact
//! bytes of responses.

use super::*;

const CONTENT_TYPE: &str = "multipart/mixed; boundary=batch_B";
const JSON: &str = "Content-Type: application/json";

/// Returns an operation of a changeset: request line, headers, body.
fn operation(line: &str, headers: &[&str], body: &str) -> String {
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    format!(
        "Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
         {line} HTTP/1.1\r\n{headers}\r\n{body}"
    )
}

/// Returns a batch with one changeset of these operations.
pub(super) fn changeset(operations: &[String]) -> String {
    let inner: String =
        operations.iter().map(|operation| format!("--changeset_C\r\n{operation}\r\n")).collect();
    format!(
        "--batch_B\r\nContent-Type: multipart/mixed; boundary=changeset_C\r\n\r\n\
         {inner}--changeset_C--\r\n--batch_B--\r\n"
    )
}

pub(super) fn insert(rk: &str) -> String {
    let body = format!("{{\"PartitionKey\":\"p\",\"RowKey\":\"{rk}\"}}");
    operation(&format!("POST {BASE}people"), &[JSON, "Prefer: return-no-content"], &body)
}

fn with_keys(verb: &str, rk: &str, headers: &[&str], body: &str) -> String {
    operation(&format!("{verb} {BASE}{}", person(rk)), headers, body)
}

/// The part of a response to a batch that reports the failed operation.
#[derive(Debug, PartialEq, Eq)]
struct Failure {
    status: u16,
    code: String,
    text: String,
}

impl Site {
    pub(super) fn batch(&self, body: &str) -> Ask<'_> {
        self.ask("POST", "$batch").body(CONTENT_TYPE, body).header("DataServiceVersion", "3.0;")
    }

    /// Commits a changeset.
    #[track_caller]
    fn commit(&self, operations: &[String]) -> Got {
        let got = self.batch(&changeset(operations)).send().done(202);
        assert!(!got.has("odata.error"), "{}", got.body);
        got
    }

    /// Sends a changeset that must fail and change nothing.
    #[track_caller]
    fn fail(&self, operations: &[String]) -> Failure {
        let before = self.get("people()").send().body;
        let got = self.batch(&changeset(operations)).send().done(202);
        assert_eq!(self.get("people()").send().body, before);
        got.failure()
    }
}

impl Got {
    /// Returns the boundaries of the batch and of the changeset, and checks that they are GUIDs.
    fn boundaries(&self) -> [&str; 2] {
        let (_, batch) =
            self.header("Content-Type").unwrap().split_once("boundary=batchresponse_").unwrap();
        let (_, rest) = self.body.split_once("boundary=changesetresponse_").unwrap_or(("", batch));
        let changeset = rest.split("\r\n").next().unwrap();
        for id in [batch, changeset] {
            assert!(id.parse::<crate::model::Guid>().is_ok(), "{id}");
        }
        [batch, changeset]
    }

    /// Checks all bytes of a response to a failed changeset, and returns its only part.
    #[track_caller]
    fn failure(&self) -> Failure {
        let [batch, changeset] = self.boundaries();
        let start = format!(
            "--batchresponse_{batch}\r\nContent-Type: multipart/mixed; boundary=changesetresponse_{changeset}\r\n\r\n\
             --changesetresponse_{changeset}\r\nContent-Type: application/http\r\n\
             Content-Transfer-Encoding: binary\r\n\r\nHTTP/1.1 "
        );
        let rest = self.body.strip_prefix(&start).unwrap_or_else(|| panic!("{}", self.body));
        let (line, rest) = rest.split_once("\r\n").unwrap();
        let rest = rest
            .strip_prefix(
                "X-Content-Type-Options: nosniff\r\nDataServiceVersion: 3.0;\r\nContent-Type: application/json;\
                 odata=minimalmetadata;streaming=true;charset=utf-8\r\n\r\n",
            )
            .unwrap_or_else(|| panic!("{rest}"));
        let end = format!("\r\n--changesetresponse_{changeset}--\r\n--batchresponse_{batch}--\r\n");
        let json = rest.strip_suffix(&end).unwrap_or_else(|| panic!("{rest}"));
        let (_, rest) = json.split_once("{\"odata.error\":{\"code\":\"").unwrap();
        let (code, rest) =
            rest.split_once("\",\"message\":{\"lang\":\"en-US\",\"value\":\"").unwrap();
        let (text, rest) = rest.split_once("\\nRequestId:").unwrap();
        assert_eq!(
            rest,
            format!("{}\\nTime:{}\"}}}}}}", self.request_id, time::seven_digits(self.time))
        );
        let (status, reason) = line.split_once(' ').unwrap();
        let status_code = hyper::StatusCode::from_bytes(status.as_bytes()).unwrap();
        let reasons = [status_code.canonical_reason(), Some("Request Entity Too Large")];
        assert_eq!(Some(reason), reasons[usize::from(status == "413")]);
        Failure { status: status.parse().unwrap(), code: code.to_owned(), text: text.to_owned() }
    }
}

fn failure(status: u16, code: &str, text: &str) -> Failure {
    Failure { status, code: code.to_owned(), text: text.to_owned() }
}

#[test]
fn f31_batch_leniency_with_lines_and_headers() {
    let plain = changeset(&[insert("1"), insert("2")]);
    let json = "{\"PartitionKey\":\"p\",\"RowKey\":\"1\"}";
    let extra_lines = plain
        .replace("boundary=changeset_C\r\n\r\n", "boundary=changeset_C\r\n\r\n\r\n")
        .replace("binary\r\n\r\nPOST", "binary\r\n\r\n\r\nPOST");
    for (what, body) in [
        ("as it should be", plain.clone()),
        ("line feeds alone", plain.replace("\r\n", "\n")),
        ("extra empty lines, as of the JavaScript client", extra_lines),
        ("an empty line before the body", plain.replace("\r\n{", "\r\n\r\n{")),
        ("names in lower case", plain.replace("Content-", "content-").replace("Prefer", "prefer")),
        ("names in upper case", plain.replace("Content-Type", "CONTENT-TYPE")),
        ("a quoted boundary", plain.replace("boundary=changeset_C", "boundary=\"changeset_C\"")),
        ("no last dashes", plain.strip_suffix("--\r\n").unwrap().to_owned()),
        ("no last line end", plain.strip_suffix("\r\n").unwrap().to_owned()),
        ("a preamble", format!("Whatever\r\nit is\r\n{plain}")),
        ("an epilogue", format!("{plain}Whatever\r\n")),
        (
            "the length of a body",
            plain.replace(JSON, &format!("{JSON}\r\nContent-Length: {}", json.len())),
        ),
        ("a path as the address", plain.replace("http://127.0.0.1:10002", "")),
        ("another host", plain.replace("127.0.0.1:10002", "localhost")),
        ("a path without the account", plain.replace(BASE, "/")),
        ("parentheses", plain.replace("people HTTP", "people() HTTP")),
        ("no encoding", plain.replace("Content-Transfer-Encoding: binary\r\n", "")),
    ] {
        let site = Site::people();
        let got = site.batch(&body).send().done(202);
        assert!(!got.has("odata.error"), "{what}: {}", got.body);
        assert_eq!(site.rows(""), "1 2", "{what}");
    }
    let site = Site::people();
    let quoted = site.batch(&plain).header("Content-Type", "multipart/mixed; boundary=\"batch_B\"");
    quoted.send().done(202);
    assert_eq!(site.rows(""), "1 2");
}

#[test]
fn f31_batch_leniency_with_content_ids() {
    let site = Site::people();
    let outside = insert("1").replace("binary\r\n", "binary\r\nContent-ID: 7\r\n");
    let inside = insert("2").replace("Prefer:", "Content-ID: 8\r\nPrefer:");
    let got = site.commit(&[outside, inside, insert("3")]);
    for id in ["7", "8"] {
        let head = format!(
            "HTTP/1.1 204 No Content\r\nContent-ID: {id}\r\nX-Content-Type-Options: nosniff\r\n"
        );
        assert!(got.has(&head), "{}", got.body);
    }
    assert_eq!(got.body.matches("Content-ID").count(), 2);
}

#[test]
fn f31_batch_leniency_has_limits() {
    let plain = changeset(&[insert("1")]);
    let site = Site::people();
    for (what, body) in [
        ("nothing", String::new()),
        ("no boundary", "hello".to_owned()),
        ("another boundary", plain.replace("batch_B", "batch_X")),
        ("cut before the last delimiter of the changeset", plain[..plain.len() - 40].to_owned()),
        ("no boundary of the changeset", plain.replace("; boundary=changeset_C", "")),
        ("no request line", plain.replace("HTTP/1.1\r\n", "\r\n")),
        ("a header without a colon", plain.replace("Prefer:", "Prefer")),
        ("another kind of part", plain.replace("application/http", "text/plain")),
    ] {
        let got = site.batch(&body).send();
        assert_eq!(got.status, 400, "{what}");
        got.refused(400, "InvalidInput", "One of the request inputs is not valid.");
    }
    for media in
        ["application/json", "multipart/mixed", "multipart/form-data; boundary=batch_B", ""]
    {
        site.batch(&plain).header("Content-Type", media).send().fails(400, "InvalidInput");
    }
    let mut binary = site.batch(&plain);
    binary.request.body = [plain.as_bytes(), &[0xff, 0xfe]].concat().into();
    binary.send().fails(400, "InvalidInput");
    assert_eq!(site.rows(""), "");
}

#[test]
fn f32_batch_is_of_one_partition_and_table() {
    let site = Site::people();
    let text = "1:All commands in a batch must operate on same entity group.";
    let other = insert("2").replace("\"PartitionKey\":\"p\"", "\"PartitionKey\":\"q\"");
    let found = site.fail(&[insert("1"), other]);
    assert_eq!(found, failure(400, "CommandsInBatchActOnDifferentPartitions", text));
    site.post("Tables", r#"{"TableName":"others"}"#).send().done(201);
    let found = site.fail(&[insert("1"), insert("2").replace("/people ", "/others ")]);
    assert_eq!(found, failure(400, "CommandsInBatchActOnDifferentPartitions", text));
    // Table names are case-insensitive.
    site.commit(&[insert("1"), insert("2").replace("/people ", "/PEOPLE ")]);
    assert_eq!(site.rows(""), "1 2");
}

#[test]
fn f32_batch_has_each_row_once() {
    let site = Site::people();
    let text = "1:The batch request contains multiple changes with same row key. An entity can appear only once in a \
                batch request.";
    let found = site.fail(&[insert("1"), insert("1")]);
    assert_eq!(found, failure(400, "InvalidDuplicateRow", text));
    let found = site.fail(&[insert("1"), with_keys("DELETE", "1", &["If-Match: *"], "")]);
    assert_eq!(found, failure(400, "InvalidDuplicateRow", text));
}

#[test]
fn f32_batch_has_1_to_100_operations() {
    let site = Site::people();
    let many = |n: usize| (0..n).map(|i| insert(&format!("{i:03}"))).collect::<Vec<_>>();
    let text = "99:The batch request operation exceeds the maximum 100 changes per change set.";
    assert_eq!(site.fail(&many(101)), failure(400, "InvalidInput", text));
    assert_eq!(site.fail(&many(2000)), failure(400, "InvalidInput", text));
    let got = site.commit(&many(100));
    assert_eq!(got.body.matches("HTTP/1.1 204 No Content\r\n").count(), 100);
    assert_eq!(site.rows("").split(' ').count(), 100);
    site.batch(&changeset(&[])).send().fails(400, "InvalidInput");
}

#[test]
fn f32_batch_has_one_changeset_or_one_read() {
    let site = Site::people();
    site.insert("p", "r", "");
    let one = changeset(&[insert("1")]);
    let body = one.strip_suffix("--batch_B--\r\n").unwrap().to_owned() + &one;
    site.batch(&body).send().fails(400, "InvalidInput");
    let read = with_keys("GET", "r", &[], "");
    let outer = |parts: &[&str]| {
        let parts: String = parts.iter().map(|part| format!("--batch_B\r\n{part}\r\n")).collect();
        format!("{parts}--batch_B--\r\n")
    };
    site.batch(&outer(&[&read, &read])).send().fails(400, "InvalidInput");
    // A write must be in a changeset, and a read must not.
    site.batch(&outer(&[&insert("1")])).send().fails(400, "InvalidInput");
    let found = site.fail(&[insert("1"), read]);
    assert_eq!((found.status, &*found.code), (400, "InvalidInput"));
}

#[test]
fn f32_batch_takes_effect_whole_or_not() {
    let site = Site::people();
    for rk in ["a", "b", "c", "d", "e"] {
        site.insert("p", rk, "\"N\":1");
    }
    let etag = site.get(&person("b")).send().etag().to_owned();
    let etag = format!("If-Match: {etag}");
    let all = [
        insert("new"),
        with_keys("PUT", "a", &[JSON, "If-Match: *"], "{\"M\":2}"),
        with_keys("PATCH", "b", &[JSON, &etag], "{\"M\":2}"),
        with_keys("PUT", "c", &[JSON], "{\"M\":2}"),
        with_keys("MERGE", "d", &[JSON], "{\"M\":2}"),
        with_keys("DELETE", "e", &["If-Match: *"], ""),
        with_keys("POST", "f", &[JSON, "X-HTTP-Method: MERGE"], "{\"M\":2}"),
    ];
    // If only the last operation fails, nothing is changed.
    let mut failing = all.to_vec();
    failing.push(with_keys("DELETE", "none", &["If-Match: *"], ""));
    let found = site.fail(&failing);
    assert_eq!(found, failure(404, "ResourceNotFound", "7:The specified resource does not exist."));
    let got = site.commit(&all);
    assert_eq!(site.rows(""), "a b c d f new");
    let shown =
        |rk: &str| [site.bare(rk).member("N"), site.bare(rk).member("M")].map(|m| m.is_some());
    assert_eq!(
        ["a", "b", "c", "d", "f"].map(shown),
        [[false, true], [true, true], [false, true], [true, true], [false, true]]
    );
    // All entities were written by one commit, so they have one Timestamp.
    let list = site.get("people()").send();
    let mut times = list.values("Timestamp");
    times.dedup();
    assert_eq!(times.len(), 1, "{}", got.body);
}

#[test]
fn f32_batch_has_4_mib_of_body() {
    let site = Site::people();
    // Each text takes 32 KiB in the body, but 64 KiB in the size of the entity, which counts
    // UTF-16.
    let text = "x".repeat(32 << 10);
    let body =
        |rk: &str| format!("{{\"PartitionKey\":\"p\",\"RowKey\":\"{rk}\",\"A\":\"{text}\"}}");
    let line = format!("POST {BASE}people");
    let large = |rk: usize| {
        let headers = [JSON, "Prefer: return-no-content"];
        operation(&line, &headers, &body(&format!("{rk:03}")))
    };
    let whole = changeset(&(0..100).map(large).collect::<Vec<_>>());
    assert!((3 << 20..4 << 20).contains(&whole.len()));
    let got = site.batch(&whole).send().done(202);
    assert_eq!(got.body.matches("204 No Content").count(), 100, "{}", got.body);
}

#[test]
fn f32_batch_of_merges_into_large_entities() {
    let site = Site::people();
    let text = "x".repeat(32 << 10);
    let large: Vec<_> = (0..15).map(|i| format!("\"A{i:02}\":\"{text}\"")).collect();
    let large = format!("{{{}}}", large.join(","));
    for rk in 100..200 {
        site.put(&person(&rk.to_string()), &large).send().empty(204);
    }
    let merges = |rows: std::ops::Range<usize>| {
        let merge = |rk: usize| with_keys("PATCH", &rk.to_string(), &[JSON], "{\"B\":1}");
        rows.map(merge).collect::<Vec<_>>()
    };
    // 30 merges with small bodies result in 30 large entities, which one commit can hold.
    let got = site.commit(&merges(100..130));
    assert_eq!(got.body.matches("204 No Content").count(), 30);
    for rk in ["100", "129"] {
        let got = site.bare(rk);
        assert_eq!((got.member("B").as_deref(), got.has("\"A14\":")), (Some("1"), true));
    }
    // The Azure service could accept this batch. rowstone refuses it, because the merged entities,
    // 50 MB in total, do not fit into one commit.
    let text = "0:The request body is too large and exceeds the maximum permissible limit.";
    let found = site.batch(&changeset(&merges(100..200))).send().done(202).failure();
    assert_eq!(found, failure(413, "RequestBodyTooLarge", text));
    assert_eq!(site.bare("150").member("B"), None);
    site.patch(&person("150"), "{\"B\":1}").send().empty(204);
}

#[test]
fn f32_batch_is_seen_whole_or_not() {
    let site = Site::people();
    let write = |round: usize| {
        let body = format!("{{\"N\":{round}}}");
        site.commit(&[
            with_keys("PUT", "a", &[JSON], &body),
            with_keys("PUT", "b", &[JSON], &body),
        ]);
    };
    write(0);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut last = 0;
            while last < 100 {
                let got = site.get("people()").accept("application/json;odata=nometadata").send();
                let numbers: Vec<usize> = got
                    .body
                    .split("\"N\":")
                    .skip(1)
                    .map(|rest| rest.split('}').next().unwrap().parse().unwrap())
                    .collect();
                assert_eq!((numbers.len(), numbers[0]), (2, numbers[1]));
                assert!(numbers[0] >= last);
                last = numbers[0];
            }
        });
        (1..=100).for_each(write);
        reader.join().unwrap();
    });
}

#[test]
fn f33_batch_success_layout() {
    let site = Site::new();
    let host = "acme.table.core.windows.net";
    let acme = |method: &str, path: &str| {
        let ask = site.ask_path(method, path).header("Host", host).encrypted();
        ask.signed_by(ACME, key(ACME_KEYS[0]))
    };
    acme("POST", "/Tables").json(r#"{"TableName":"Devices"}"#).send().done(201);
    acme("PUT", "/Devices(PartitionKey='zone-7',RowKey='0041')").json("{}").send().empty(204);
    site.at(NOW);
    // The example request of the service's documentation, extended by operations of the kinds that
    // it lacks.
    let base = "https://acme.table.core.windows.net/Devices";
    let body = changeset(&[
        operation(
            &format!("POST {base}"),
            &[JSON, "Accept: application/json;odata=minimalmetadata", "Prefer: return-no-content"],
            "{\"PartitionKey\":\"zone-7\",\"RowKey\":\"0042\",\"Rpm\":1450}",
        ),
        operation(
            &format!("POST {base}"),
            &[JSON, "Accept: application/json;odata=nometadata"],
            "{\"PartitionKey\":\"zone-7\",\"RowKey\":\"0043\",\"Rpm\":1450}",
        ),
        operation(&format!("PUT {base}(PartitionKey='zone-7',RowKey='0044')"), &[JSON], "{}"),
        operation(
            &format!("DELETE {base}(PartitionKey='zone-7',RowKey='0041')"),
            &["If-Match: *"],
            "",
        ),
    ]);
    let ask = acme("POST", "/$batch").body(CONTENT_TYPE, &body).header("DataServiceVersion", "3.0");
    let got = ask.send().done(202);
    assert_eq!(got.header("Cache-Control"), Some("no-cache"));
    let [batch, changeset] = got.boundaries();
    assert_ne!(batch, changeset);
    let part = format!(
        "--changesetresponse_{changeset}\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    );
    let common = "X-Content-Type-Options: nosniff\r\nCache-Control: no-cache\r\n";
    let location = |rk: &str| format!("{base}(PartitionKey='zone-7',RowKey='{rk}')");
    let (first, second) = (location("0042"), location("0043"));
    assert_eq!(
        got.body,
        format!(
            "--batchresponse_{batch}\r\nContent-Type: multipart/mixed; boundary=changesetresponse_{changeset}\r\n\r\n\
             {part}HTTP/1.1 204 No Content\r\n{common}Preference-Applied: return-no-content\r\n\
             DataServiceVersion: 3.0;\r\nLocation: {first}\r\nDataServiceId: {first}\r\nETag: {NOW_ETAG}\r\n\r\n\r\n\
             {part}HTTP/1.1 201 Created\r\n{common}DataServiceVersion: 3.0;\r\n\
             Content-Type: application/json;odata=nometadata;streaming=true;charset=utf-8\r\nLocation: {second}\r\n\
             ETag: {NOW_ETAG}\r\n\r\n{{\"PartitionKey\":\"zone-7\",\"RowKey\":\"0043\",\
             \"Timestamp\":\"2024-02-03T04:05:06.1234567Z\",\"Rpm\":1450}}\r\n\
             {part}HTTP/1.1 204 No Content\r\n{common}DataServiceVersion: 1.0;\r\nETag: {NOW_ETAG}\r\n\r\n\r\n\
             {part}HTTP/1.1 204 No Content\r\n{common}DataServiceVersion: 1.0;\r\n\r\n\r\n\
             --changesetresponse_{changeset}--\r\n--batchresponse_{batch}--\r\n"
        )
    );
}

#[test]
fn f33_batch_success_echoes_inserted_entities() {
    let site = Site::people();
    let body =
        "{\"PartitionKey\":\"p\",\"RowKey\":\"1\",\"N@odata.type\":\"Edm.Int64\",\"N\":\"5\"}";
    let got = site.commit(&[operation(&format!("POST {BASE}people"), &[JSON], body)]);
    let etag = "\"odata.etag\":\"W/\\\"datetime'2024-02-03T04%3A05%3A06.1234567Z'\\\"\"";
    let echo = format!(
        "\r\n\r\n{{\"odata.metadata\":\"{BASE}$metadata#people/@Element\",{etag},\"PartitionKey\":\"p\",\
         \"RowKey\":\"1\",\"Timestamp\":\"2024-02-03T04:05:06.1234567Z\",\"N@odata.type\":\"Edm.Int64\",\"N\":\"5\"}}\r\n"
    );
    assert!(got.has(&echo), "{}", got.body);
    let preferred = insert("2").replace("return-no-content", "return-content");
    let got = site.commit(&[preferred]);
    assert!(
        got.has("201 Created") && got.has("Preference-Applied: return-content\r\n"),
        "{}",
        got.body
    );
    assert!(!got.has("DataServiceId"));
}

#[test]
fn f34_batch_failure_layout() {
    let site = Site::people();
    site.insert("p", "there", "");
    for (operations, found) in [
        (
            vec![insert("there")],
            failure(409, "EntityAlreadyExists", "0:The specified entity already exists."),
        ),
        (
            vec![insert("1"), with_keys("PUT", "none", &[JSON, "If-Match: *"], "{}")],
            failure(404, "ResourceNotFound", "1:The specified resource does not exist."),
        ),
        (
            vec![
                insert("1"),
                insert("2"),
                with_keys(
                    "MERGE",
                    "there",
                    &[JSON, "If-Match: W/\"datetime'2020-01-01T00%3A00%3A00Z'\""],
                    "{}",
                ),
                insert("there2"),
            ],
            failure(
                412,
                "UpdateConditionNotSatisfied",
                "2:The update condition specified in the request was not satisfied.",
            ),
        ),
    ] {
        assert_eq!(site.fail(&operations), found);
    }
}

#[test]
fn f34_batch_failure_of_a_read() {
    let site = Site::people();
    site.insert("p", "there", "");
    for (operations, found) in [
        (
            vec![insert("1"), insert("2").replace("/people ", "/nobody ")],
            failure(
                400,
                "CommandsInBatchActOnDifferentPartitions",
                "1:All commands in a batch must operate on same entity group.",
            ),
        ),
        (
            vec![insert("1").replace("/people ", "/nobody ")],
            failure(404, "TableNotFound", "0:The table specified does not exist."),
        ),
        (
            vec![insert("1").replace("/people ", "/my_table ")],
            failure(
                400,
                "InvalidResourceName",
                "0:The specifed resource name contains invalid characters.",
            ),
        ),
        (
            vec![insert("1"), with_keys("DELETE", "there", &[], "")],
            failure(
                400,
                "InvalidInput",
                "1:If-Match is missing: give the entity's etag, or * for any.",
            ),
        ),
        (
            vec![insert("1"), insert("2").replace("\"RowKey\"", "\"Row\"")],
            failure(
                400,
                "PropertiesNeedValue",
                "1:The values are not specified for all properties in the entity.",
            ),
        ),
        (
            vec![insert("1"), with_keys("PUT", "2", &[JSON], "{\"a-b\":1}")],
            failure(400, "PropertyNameInvalid", "1:The property name is invalid."),
        ),
        (
            vec![insert("1"), with_keys("LOOK", "2", &[JSON], "{}")],
            failure(
                405,
                "MethodNotAllowed",
                "1:The requested method is not allowed on the specified resource.",
            ),
        ),
    ] {
        assert_eq!(site.fail(&operations), found);
    }
}

#[test]
fn f34_batch_failure_is_that_of_the_first_operation() {
    let site = Site::people();
    site.insert("p", "there", "");
    let malformed = with_keys("PUT", "2", &[JSON], "{\"a-b\":1}");
    let there = failure(409, "EntityAlreadyExists", "0:The specified entity already exists.");
    let no_table = failure(404, "TableNotFound", "0:The table specified does not exist.");
    let invalid = failure(400, "PropertyNameInvalid", "1:The property name is invalid.");
    for (first, second, found) in [
        (insert("there"), malformed.clone(), &there),
        (insert("there"), with_keys("GET", "2", &[], ""), &there),
        (insert("there"), with_keys("PUT", "2", &[JSON], "{"), &there),
        (insert("there"), insert("2").replace("\"p\"", "\"q\""), &there),
        (insert("there"), insert("there"), &there),
        (insert("1").replace("/people ", "/nobody "), malformed.clone(), &no_table),
        (
            malformed.clone(),
            insert("there"),
            &failure(400, "PropertyNameInvalid", "0:The property name is invalid."),
        ),
        (insert("1"), malformed.clone(), &invalid),
    ] {
        assert_eq!(site.fail(&[first, second]), *found);
    }
    // The error of an operation that the data model refuses also gives way to an earlier one.
    let text = "x".repeat((32 << 10) + 1);
    let large = with_keys("PUT", "2", &[JSON], &format!("{{\"A\":\"{text}\"}}"));
    assert_eq!(site.fail(&[insert("there"), large]), there);
}

#[test]
fn f32_batch_operations_have_query_strings() {
    let site = Site::people();
    for (query, code) in [
        ("comp=acl", "InvalidQueryParameterValue"),
        ("timeout=0", "InvalidQueryParameterValue"),
        ("api-version=1", "InvalidQueryParameterValue"),
        ("$expand=A", "NotImplemented"),
    ] {
        let with = |line: &str| line.replace(" HTTP/1.1", &format!("?{query} HTTP/1.1"));
        let found = site.fail(&[insert("1"), with(&insert("2"))]);
        assert_eq!((&*found.code, &found.text[..2]), (code, "1:"), "{query}");
        let read = with(&with_keys("GET", "there", &[], ""));
        let got = site.batch(&format!("--batch_B\r\n{read}\r\n--batch_B--\r\n")).send();
        assert!(got.done(202).has(&format!("\"code\":\"{code}\"")), "{query}");
    }
    // Before this version, an update without `If-Match` was not an upsert.
    let old = with_keys("PUT", "1", &[JSON], "{}");
    let old = old.replace(" HTTP/1.1", "?api-version=2009-09-19 HTTP/1.1");
    assert_eq!(site.fail(&[insert("2"), old]).status, 400);
    let shown = operation(
        &format!("POST {BASE}people?$format=application/json;odata=nometadata"),
        &[JSON],
        "{\"PartitionKey\":\"p\",\"RowKey\":\"1\"}",
    );
    let got = site.commit(&[shown]);
    assert!(!got.has("odata.etag") && got.has("\"RowKey\":\"1\""), "{}", got.body);
}

#[test]
fn f34_batch_failure_of_an_address() {
    let site = Site::people();
    for (rk, code, text) in [
        ("a%2Fb", "InvalidInput", "Bad Request - Error in query syntax."),
        ("a%23b", "OutOfRangeInput", "One of the request inputs is out of range."),
    ] {
        let found = site.fail(&[insert("1"), with_keys("PUT", rk, &[JSON], "{}")]);
        assert_eq!(found, failure(400, code, &format!("1:{text}")));
    }
    // Outside of a batch, the error for `%00` in an address is an HTML page. In a batch, clients
    // expect an error in JSON.
    let found = site.fail(&[insert("1"), with_keys("PUT", "%00", &[JSON], "{}")]);
    assert_eq!((found.status, &*found.code), (400, "InvalidInput"));
    let found = site.fail(&[operation(&format!("PUT {BASE}people/x"), &[JSON], "{}")]);
    assert_eq!((found.status, &*found.code), (405, "MethodNotAllowed"));
}

#[test]
fn f34_batch_failure_of_the_envelope_is_plain() {
    let site = Site::people();
    let body = changeset(&[insert("1")]);
    let got = site.batch("nothing").send();
    got.refused(400, "InvalidInput", "One of the request inputs is not valid.");
    site.batch(&body).unsigned().send().fails(403, "AuthenticationFailed");
    site.batch(&body).header("x-ms-version", "1").send().fails(400, "InvalidHeaderValue");
    site.get("$batch").send().fails(405, "MethodNotAllowed");
    assert_eq!(site.rows(""), "");
}

#[test]
fn f35_query_in_a_batch() {
    let site = Site::people();
    site.insert("p", "r", "\"A\":1");
    let ask = |headers: &[&str], rk: &str| {
        let part = operation(&format!("GET {BASE}{}", person(rk)), headers, "");
        site.batch(&format!("--batch_B\r\n{part}\r\n--batch_B--\r\n"))
    };
    let got = ask(&["Accept: application/json;odata=nometadata"], "r").send().done(202);
    let [batch, _] = got.boundaries();
    assert_eq!(
        got.body,
        format!(
            "--batchresponse_{batch}\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
             HTTP/1.1 200 OK\r\nDataServiceVersion: 3.0;\r\n\
             Content-Type: application/json;odata=nometadata;streaming=true;charset=utf-8\r\n\
             X-Content-Type-Options: nosniff\r\nCache-Control: no-cache\r\nETag: {NOW_ETAG}\r\n\r\n\
             {{\"PartitionKey\":\"p\",\"RowKey\":\"r\",\"Timestamp\":\"2024-02-03T04:05:06.1234567Z\",\"A\":1}}\r\n\
             --batchresponse_{batch}--\r\n"
        )
    );
    let got = ask(&[], "r").send().done(202);
    assert!(
        got.has(&format!("\"odata.metadata\":\"{BASE}$metadata#people/@Element\"")),
        "{}",
        got.body
    );
    let got = ask(&[], "none").send().done(202);
    assert!(
        got.has("HTTP/1.1 404 Not Found\r\n") && got.has("\"code\":\"ResourceNotFound\""),
        "{}",
        got.body
    );
    assert!(!got.has("changesetresponse_"));
}

#[test]
fn f35_query_in_a_batch_must_address_one_entity() {
    let site = Site::people();
    for address in ["people()", "Tables", "people"] {
        let part = operation(&format!("GET {BASE}{address}"), &[], "");
        let got = site.batch(&format!("--batch_B\r\n{part}\r\n--batch_B--\r\n")).send();
        assert!(got.has("\"code\":\"InvalidInput\""), "{}", got.body);
    }
}

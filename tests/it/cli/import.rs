//! Tests `import` with the sample flights in every format, and with rows that cannot be loaded.

use super::{Place, sample};
use std::io::Write;

const FLIGHT_KEYS: &str =
    "--partition-key {carrier}-{origin} --row-key {time_hour}-{flight}-{tailnum} --null NA";

const SMALL: &str = "p,r,a,b\nx,1,5,NA\nx,2,6,0.5\ny,1,7,1\n";
const SMALL_KEYS: &str = "--partition-key {p} --row-key {r} --null NA --skip p --skip r";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(bytes).unwrap();
    gz.finish().unwrap()
}

#[test]
fn the_sample_flights() {
    let place = Place::new();
    let path = sample("flights.csv.gz");
    let text = place.ok(&format!("import db Flights {path} {FLIGHT_KEYS} --durability os"));
    assert!(text.starts_with("20,000 rows read, 20,000 imported in "), "{text}");
    let json = place.ok("get db Flights UA-EWR 2013-01-01T10:00:00Z-1545-N14228 --format json");
    let (_, properties) = json.split_once("Z\",\"air_time\"").unwrap();
    let expected = [
        r#":227,"arr_delay":11,"arr_time":830,"carrier":"UA","day":1,"dep_delay":2,"dep_time":517,"#,
        r#""dest":"IAH","distance":1400,"flight":1545,"hour":5,"minute":15,"month":1,"origin":"EWR","#,
        r#""sched_arr_time":819,"sched_dep_time":515,"tailnum":"N14228","#,
        r#""time_hour@odata.type":"Edm.DateTime","time_hour":"2013-01-01T10:00:00Z","year":2013}"#,
    ];
    assert_eq!(properties.trim_end(), expected.concat());
    // The key is built from the raw text, and NA is read as an absent value.
    let csv = place.ok("scan db Flights --format csv --select RowKey,tailnum,dep_time");
    assert_eq!(csv.lines().count(), 20_001);
    let unknown = csv.lines().filter(|line| line.contains("-NA,"));
    assert!(unknown.clone().count() > 50 && unknown.clone().all(|line| line.ends_with("-NA,,")));
    assert!(place.ok("verify db").ends_with("no problems\n"));
}

#[test]
fn the_same_rows_are_imported_from_every_format() {
    let place = Place::new();
    place.write("small.csv", SMALL);
    place.write("small.gz", gzip(SMALL.as_bytes()));
    place.ok(&format!("import db A11 small.csv {SMALL_KEYS}"));
    place.ok(&format!("import db B11 small.gz {SMALL_KEYS}"));
    place.feed(&format!("import db C11 - {SMALL_KEYS}"), SMALL).ok();
    place.feed(&format!("import db D11 - {SMALL_KEYS}"), gzip(SMALL.as_bytes())).ok();
    place.feed(&format!("import db E11 - {SMALL_KEYS}"), format!("\u{feff}{SMALL}")).ok();
    let semicolons = SMALL.replace(',', ";");
    place.feed(&format!("import db F11 - --delimiter ; {SMALL_KEYS}"), semicolons).ok();
    let ndjson = place.ok("export db A11");
    place.feed("import db G11 -", &ndjson).ok();
    place.feed("import db H11 -", gzip(ndjson.as_bytes())).ok();
    let expected = "PartitionKey,RowKey,a,b\nx,1,5,\nx,2,6,0.5\ny,1,7,1.0\n";
    for table in ["A11", "B11", "C11", "D11", "E11", "F11", "G11", "H11"] {
        assert_eq!(place.ok(&format!("export db {table} --format csv")), expected, "{table}");
    }
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_out_and_in() {
    let place = Place::new();
    let path = sample("flights.csv.gz");
    place.ok(&format!("import db A11 {path} {FLIGHT_KEYS} --durability os"));
    place.feed("put db A11 -", r#"{"PartitionKey":"p","RowKey":"r","flight":"a text"}"#).ok();
    place.ok("export db A11 --format parquet --out a.parquet");
    // The Timestamps are those of the imports.
    let rows = |table: &str| {
        let json = place.ok(&format!("export db {table}"));
        let without_time = |line: &str| {
            let (keys, rest) = line.split_once(",\"Timestamp\":\"").unwrap();
            format!("{keys}{}", rest.split_once('"').unwrap().1)
        };
        json.lines().map(without_time).collect::<Vec<_>>()
    };
    let expected = rows("A11");
    let piped = place.command("export db A11 --format parquet").output().unwrap().stdout;
    assert!(piped == std::fs::read(place.path("a.parquet")).unwrap());
    place.ok("import db B11 a.parquet --durability os");
    place.feed("import db C11 - --durability os", gzip(&piped)).ok();
    for table in ["B11", "C11"] {
        assert!(rows(table) == expected, "{table}");
    }
    let keys = "--partition-key {dest} --row-key {RowKey} --skip flight";
    let run = place.run(&format!("import db D11 a.parquet {keys}"));
    let rejected = "row 20001: column 'dest': a part of the key is null";
    run.fails(3, &[rejected]);
    place.fails("import db E11 a.parquet --type a=Edm.Int32", 2, &["--type is for CSV"]);
    place.write("bad.parquet", &piped[..piped.len() - 9]);
    place.fails("import db E11 bad.parquet", 1, &["cannot read bad.parquet", "PAR1"]);
    place.fails("advise --sample a.parquet --partition-key {dest}", 2, &["a.parquet is Parquet"]);
    assert!(!place.tables().contains("E11"));
}

#[test]
fn types_are_of_the_whole_column_and_can_be_given() {
    let place = Place::new();
    let mut csv = "k,n,t,z\n".to_owned();
    for i in 0..5000 {
        csv.push_str(&format!("{i:04},{i},2024-01-01T00:00:{:02}Z,{i:03}\n", i % 60));
    }
    csv.push_str("last,0.5,2024-01-01T00:00:00.5Z,7\n");
    place.write("a.csv", csv);
    let keys = "--partition-key p --row-key {k} --skip k";
    place.ok(&format!("import db A11 a.csv {keys} --durability os"));
    let row =
        |table: &str| place.ok(&format!("get db {table} p 0007 --format json --select n,t,z"));
    let times = r#""t@odata.type":"Edm.DateTime","t":"2024-01-01T00:00:07Z""#;
    assert!(
        row("A11").ends_with(&format!("\"n\":7.0,{times},\"z\":\"007\"}}\n")),
        "{}",
        row("A11")
    );
    let given = "--type n=Edm.String --type t=Edm.String --type z=Edm.Double";
    place
        .run(&format!("import db B11 a.csv {keys} {given} --durability os"))
        .fails(3, &["'000' is"]);
    assert!(place.ok("get db B11 p last --format json").contains(r#""n":"0.5""#));
}

#[test]
fn rejected_rows_are_reported_and_the_others_are_loaded() {
    let place = Place::new();
    let long = "k".repeat(1025);
    place.write(
        "a.csv",
        format!("p,r,a\nx,1,5\nx,2\nx,a/b,6\n{long},1,7\nx,\"3\"3,8\nx,1,9\nx,4,\"two\nlines\"\nx,5,10\n"),
    );
    let keys = "--partition-key {p} --row-key {r} --type a=Edm.Int32 --durability os";
    let run = place.run(&format!("import db Tab a.csv {keys} --rejects bad.ndjson --format json"));
    assert!(run.out.starts_with(r#"{"rows":8,"imported":2,"rejected":6,"seconds":"#), "{run:?}");
    run.fails(3, &[]);
    let mut report: Vec<_> = place.read("bad.ndjson").lines().map(str::to_owned).collect();
    report.sort();
    let starts = [
        r#"{"line":3,"code":"InvalidInput","message":"malformed CSV: 2 fields, the header has 3"}"#,
        r#"{"line":4,"code":"OutOfRangeInput","message":"The 'RowKey' parameter of value 'a/b'"#,
        r#"{"line":5,"code":"PropertyValueTooLarge","#,
        r#"{"line":6,"code":"InvalidInput","message":"malformed CSV: text after a closing quote"}"#,
        r#"{"line":7,"code":"EntityAlreadyExists","#,
        r#"{"line":8,"code":"InvalidInput","message":"column 'a': 'two\nlines' is not of type Edm.Int32"}"#,
    ];
    assert_eq!(report.len(), starts.len(), "{report:#?}");
    for (line, start) in report.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}\n{start}");
    }
    assert_eq!(place.ok("scan db Tab --format csv --select RowKey,a"), "RowKey,a\n1,5\n5,10\n");
}

#[test]
fn without_a_file_the_first_rejected_rows_are_shown() {
    let place = Place::new();
    let rows: Vec<_> = (0..30).map(|i| format!("x,{i},bad")).collect();
    place.write("a.csv", format!("p,r,a\n{}\n", rows.join("\n")));
    let keys = "--partition-key {p} --row-key {r} --type a=Edm.Int32";
    let run = place.run(&format!("import db Tab a.csv {keys}"));
    assert_eq!(run.err.lines().count(), 11, "{run:?}");
    assert!(run.out.starts_with("30 rows read, 0 imported, 30 rejected in "), "{run:?}");
    run.fails(
        3,
        &["line 2: column 'a': 'bad' is not of type Edm.Int32 (InvalidInput)", "--rejects"],
    );
    let run = place.run(&format!("import db Tab a.csv {keys} --stop-on-error"));
    assert_eq!(run.err.lines().count(), 1, "{run:?}");
    run.fails(3, &["line 2: "]);
}

#[test]
fn modes_decide_about_existing_entities() {
    let place = Place::new();
    place.write("a.csv", SMALL);
    place.write("b.csv", "p,r,b,c\nx,1,2.5,new\nz,1,1.5,new\n");
    place.ok(&format!("import db Tab a.csv {SMALL_KEYS}"));
    place
        .run(&format!("import db Tab b.csv {SMALL_KEYS}"))
        .fails(3, &["line 2: ", "EntityAlreadyExists"]);
    place.ok(&format!("import db Tab b.csv {SMALL_KEYS} --mode upsert-merge"));
    let row = || place.ok("scan db Tab --partition x --top 1 --format csv --select a,b,c");
    assert_eq!(row(), "a,b,c\n5,2.5,new\n");
    place.ok(&format!("import db Tab b.csv {SMALL_KEYS} --mode upsert"));
    assert_eq!(row(), "a,b,c\n,2.5,new\n");
}

#[test]
fn acknowledged_lines_only_grow_and_reach_the_last() {
    let place = Place::new();
    let rows: Vec<_> = (0..5000).map(|i| format!("p{},{i:05},{i}", i % 7)).collect();
    place.write("a.csv", format!("p,r,a\n{}\n", rows.join("\n")));
    let keys = "--partition-key {p} --row-key {r} --durability os --ack --format json";
    let out = place.ok(&format!("import db Tab a.csv {keys}"));
    let (lines, summary): (Vec<_>, Vec<_>) = out.lines().partition(|line| !line.starts_with('{'));
    assert_eq!(summary.len(), 1);
    let lines: Vec<u64> = lines.iter().map(|line| line.parse().unwrap()).collect();
    assert!(lines.len() > 10 && lines.is_sorted(), "{lines:?}");
    assert_eq!(lines.last(), Some(&5001));
}

#[test]
fn ndjson_lines_are_independent() {
    let place = Place::new();
    let lines = [
        r#"{"PartitionKey":"p","RowKey":"1","A":1}"#,
        "",
        r#"{"PartitionKey":"p","RowKey":"2","A":1,"A":2}"#,
        "nonsense",
        r#"{"PartitionKey":"p"}"#,
        r#"{"PartitionKey":"p","RowKey":"6","A@odata.type":"Edm.Int64","A":"7"}"#,
    ];
    let run = place.feed("import db Tab - --rejects bad.ndjson", lines.join("\n"));
    assert!(run.out.starts_with("5 rows read, 2 imported, 3 rejected in "), "{run:?}");
    run.fails(3, &[]);
    let codes: Vec<_> = place
        .read("bad.ndjson")
        .lines()
        .map(|line| line.split(",\"message\"").next().unwrap().to_owned())
        .collect();
    assert_eq!(
        codes,
        [
            r#"{"line":3,"code":"DuplicatePropertiesSpecified""#,
            r#"{"line":4,"code":"InvalidInput""#,
            r#"{"line":5,"code":"PropertiesNeedValue""#,
        ]
    );
    place.feed("import db Tab - --partition-key all --row-key {n}-{s}", r#"{"n":7,"s":"x"}"#).ok();
    assert!(place.ok("get db Tab all 7-x --format json").contains(r#""n":7,"s":"x""#));
    place.feed("import db Tab - --null NA", lines[0]).fails(2, &["--null is for CSV"]);
}

#[test]
fn trap_64_rejected_rows_never_replace_the_input() {
    let place = Place::new();
    place.write("rows.csv", "PartitionKey,RowKey\np,r\n");
    let command = "import db T rows.csv --rejects ./rows.csv --force";
    place.fails(command, 2, &["--rejects ./rows.csv would replace the input"]);
    assert_eq!(place.read("rows.csv"), "PartitionKey,RowKey\np,r\n");
    assert!(!place.path("db").exists());
}

const OBJECTS: [&str; 3] = [
    r#"{"PartitionKey":"p","RowKey":"1","A":"]},{","N@odata.type":"Edm.Int64","N":"7"}"#,
    r#"{"PartitionKey":"p","RowKey":"2","A":"\"[","B":0.5}"#,
    r#"{"PartitionKey":"p","RowKey":"3"}"#,
];

#[test]
fn json_documents_have_the_rows_of_ndjson() {
    let place = Place::new();
    place.feed("import db T10 -", OBJECTS.join("\n")).ok();
    let list = OBJECTS.join(",\n");
    let texts = [
        format!("[{list}]"),
        format!("\u{feff}\n[ {list}\n]\n"),
        format!("{{\"items\":[{list}]}}"),
        format!(
            "{{\"odata.metadata\":\"https://acme/$metadata#T\",\"value\":[{list}],\"next\":[1]}}"
        ),
        OBJECTS.map(|object| format!("{{\"value\":[{object}]}}")).join("\n"),
        OBJECTS.map(|object| object.replacen('{', "{\n  ", 1)).join("\n"),
    ];
    for (i, text) in texts.iter().enumerate() {
        let name = format!("T2{i}");
        place.feed(&format!("import db {name} -"), text).ok();
        let [expected, found] =
            ["T10", &name].map(|table| place.ok(&format!("export db {table} --format csv")));
        assert_eq!(found, expected, "{text}");
        assert!(
            place
                .ok(&format!("get db {name} p 1 --format json"))
                .contains(r#""Edm.Int64","N":"7""#)
        );
    }
    // A value that needs an option of `import` is no reason not to count a row.
    let large = r#"{"PartitionKey":"p","RowKey":"4","N":5000000000}"#;
    place.write("a.json", format!("[{list},\n{large}]"));
    let keys = "--partition-key {PartitionKey} --row-key {RowKey}";
    assert!(place.ok(&format!("advise --sample a.json {keys}")).contains("4 rows"));
}

#[test]
fn rejected_rows_say_how_to_load_them() {
    let place = Place::new();
    let large = r#"{"PartitionKey":"p","RowKey":"1","N":5000000000}"#;
    let slash = r#"{"PartitionKey":"a/b","RowKey":"2"}"#;
    place.feed("import db Tab -", format!("{large}\n{slash}")).fails(
        3,
        &[
            "line 1: The value of property 'N' is not of type Edm.Int32. (use --type N=long)",
            "line 2: The 'PartitionKey' parameter of value 'a/b' is out of range.",
            "; keys must not have / \\ # ? or control characters (OutOfRangeInput)",
        ],
    );
    place.feed("import db Tab - --type N=long", large).ok();
    let csv = "PartitionKey,RowKey,N\np,2,5000000000\np,3,x\n";
    place.feed("import db Tab - --type N=int", csv).fails(
        3,
        &[
            "line 2: column 'N': '5000000000' is not of type Edm.Int32 (use --type N=long)",
            "line 3: column 'N': 'x' is not of type Edm.Int32 (InvalidInput)",
        ],
    );
}

#[test]
fn errors_of_json_documents_name_element_and_line() {
    let place = Place::new();
    let [first, second, third] = OBJECTS;
    let bad = r#"{"PartitionKey":"p","RowKey":"4","A":{}}"#;
    let run = place.feed("import db Tab -", format!("[{first},{bad},\n{second},{bad},7,{first}]"));
    assert!(run.out.starts_with("6 rows read, 2 imported, 4 rejected in "), "{run:?}");
    let object = "Property 'A' is an array or object. (use --type A=string for its JSON as text, or \
         --skip A)";
    run.fails(
        3,
        &[
            &format!("element 2: line 1: {object}"),
            &format!("element 4: line 2: {object}"),
            "element 5: line 2: ",
            "element 6: The specified entity already exists. (entity 'p' '1' of table 'Tab')",
        ],
    );
    place.write("cut.json", format!("[{third},\n"));
    place.run("import db Tab cut.json").fails(
        1,
        &[
            "cannot read cut.json: line 2: the array is not closed after element 1",
            "1 row read, 1 imported, up to element 1",
            "--resume",
        ],
    );
    assert_eq!(place.ok("scan db Tab --format csv").lines().count(), 4);
    place.feed("import db Tab - --delimiter ;", "[]").fails(2, &["--delimiter is for CSV"]);
}

#[test]
fn objects_without_keys_say_what_they_have_and_what_to_do() {
    let place = Place::new();
    let rows = [r#"{"id":1,"partitionkey":2,"name":"a"}"#, r#"{"id":null,"name":"b","x":[1]}"#];
    let [first, second] = rows;
    let text = [
        "there is no member 'PartitionKey', the nearest is 'partitionkey', so --partition-key is \
         needed, such as '{partitionkey}'; members: id, partitionkey, name (PropertiesNeedValue)",
        "there is no member 'PartitionKey', so --partition-key is needed, such as '{name}'; \
         members: id, name, x (PropertiesNeedValue)",
    ];
    let [near, none] = text;
    let lines = [format!("line 1: {near}"), format!("line 2: {none}")];
    place.feed("import db T10 -", rows.join("\n")).fails(3, &lines.each_ref().map(|t| &**t));
    for document in [format!("[{first},\n{second}]"), format!("{{\"value\":[{first},\n{second}]}}")]
    {
        let elements = [format!("element 1: line 1: {near}"), format!("element 2: line 2: {none}")];
        place.feed("import db T10 -", document).fails(3, &elements.each_ref().map(|t| &**t));
    }
    place.feed("import db T10 - --partition-key {nam} --row-key {id}", first).fails(
        3,
        &["line 1: --partition-key: there is no member 'nam', the nearest is 'name'; members: id, "],
    );
    place
        .feed("import db T10 - --partition-key p --row-key {id}-{name}", second)
        .fails(3, &["line 1: --row-key: member 'id' is null; members: id, name, x (Prop"]);
    place
        .feed("import db T10 - --partition-key p --row-key {x}", second)
        .fails(3, &["--row-key: member 'x' is an array or object; members: "]);
    place.feed("import db T10 -", r#"{"PartitionKey":5}"#).fails(
        3,
        &["member 'PartitionKey' is not of type Edm.String, so --partition-key is needed, such as \
           '{PartitionKey}'; members: PartitionKey (InvalidInput)"],
    );
    place
        .feed(
            "import db T10 - --partition-key {PartitionKey} --row-key r",
            rows[0].replace("partitionkey", "PartitionKey"),
        )
        .ok();
    place.feed("import db T10 -", "[{}]").fails(3, &["so --partition-key is needed; members: "]);
    place.feed("import db T10 -", "Id,name\n1,a\n").fails(
        2,
        &["there is no column 'PartitionKey', so --partition-key is needed, such as '{Id}'\n"],
    );
    place.feed("import db T10 - --partition-key {Id} --row-key {nmae}", "Id,name\n1,a\n").fails(
        2,
        &["--row-key: there is no column 'nmae', the nearest is 'name'\n  columns: Id, n"],
    );
    // The examples form different keys.
    place.feed("import db T10 -", r#"{"PartitionKey":"a"}"#).fails(
        3,
        &["there is no member 'RowKey', so --row-key is needed; members: PartitionKey (Prop"],
    );
    let needs = |input: &str, status, text: &str| {
        place
            .feed("import db T10 - --partition-key {x}", input)
            .fails(status, &[&format!("so --row-key is needed{text}")]);
    };
    needs("x\n1\n", 2, "\n");
    needs("x,y\n1,2\n", 2, ", such as '{y}'\n");
    needs(r#"{"x":1}"#, 3, "; members: ");
    needs(r#"{"x":1,"y":2}"#, 3, ", such as '{y}'; members: ");
    place.write("a.json", format!("[{first}]"));
    let sample =
        ["a.json has no usable row: --partition-key: there is no member 'nam', the nearest"];
    place.fails("advise --sample a.json --partition-key {nam}", 1, &sample);
}

#[test]
fn an_input_without_rows_is_noted() {
    let place = Place::new();
    let empty = "is empty, and not CSV with a header, JSON or NDJSON";
    let inputs: [(&[u8], &str); 8] = [
        (b"", empty),
        (b" \r\n\n", empty),
        (b"\xef\xbb\xbf", empty),
        (&gzip(b""), empty),
        (b"[]", "has no rows"),
        (b"{\"value\":[]}", "has no rows"),
        (b"{\"items\":[ ]}\n", "has no rows"),
        (b"PartitionKey,RowKey\r\n", "has no rows"),
    ];
    for (i, (bytes, how)) in inputs.into_iter().enumerate() {
        let run = place.feed(&format!("import db Piped{i} -"), bytes);
        assert!(run.out.starts_with("0 rows read, 0 imported in "), "{run:?}");
        assert_eq!(run.err, format!("note: nothing to import: standard input {how}\n"));
        assert_eq!(run.status, Some(0));
        place.write("rows", bytes);
        let run = place.run(&format!("import db File{i} rows"));
        assert_eq!(run.err, format!("note: nothing to import: rows {how}\n"));
        assert_eq!(run.status, Some(0));
        let found = if how == empty { "rows is empty" } else { "rows has no usable row" };
        place.fails("advise --sample rows", 1, &[found]);
    }
    // The options of a format are no mistake where nothing has a format.
    let options = "--null NA --delimiter ; --partition-key {a} --row-key {b} --format json";
    let run = place.feed(&format!("import db Piped0 - {options}"), "");
    assert!(run.out.starts_with(r#"{"rows":0,"imported":0,"rejected":0,"#), "{run:?}");
    assert_eq!(place.tables().lines().count(), 16);
    let spaces =
        [" ".repeat(5000).as_bytes(), b"\n{\"PartitionKey\":\"p\",\"RowKey\":\"r\"}"].concat();
    place.feed("import db Spaces - --input-format ndjson", spaces).ok();
}

#[test]
fn nested_members_are_imported_as_text_on_request() {
    let place = Place::new();
    let row = r#"[{"PartitionKey":"p","RowKey":"1","Tags":[ "a",{"b":1} ],"More":{}}]"#;
    place.feed("import db Tab - --skip More", row).fails(
        3,
        &["element 1: line 1: Property 'Tags' is an array or object. (use --type Tags=string for "],
    );
    place.feed("import db Tab - --skip More --type Tags=string", row).ok();
    let found = place.ok("get db Tab p 1 --format json --select Tags");
    assert!(found.contains(r#""Tags":"[ \"a\",{\"b\":1} ]""#), "{found}");
}

#[test]
fn a_first_line_may_name_the_separator() {
    let place = Place::new();
    let csv = "sep=;\r\np;r;a,b,c,d\r\nx;1;1,5\r\nx;2/;2\r\n";
    let keys = "--partition-key {p} --row-key {r} --skip p --skip r";
    place.feed(&format!("import db A11 - {keys} --rename a,b,c,d=a"), csv).fails(3, &["line 4: "]);
    assert_eq!(place.ok("export db A11 --format csv"), "PartitionKey,RowKey,a\nx,1,\"1,5\"\n");
    let commas = csv.replace(";", ",").replacen("sep=,", "sep=;", 1).replace("a,b,c,d", "a");
    place
        .feed(&format!("import db B11 - {keys} --delimiter , "), commas.replace("1,5", "1"))
        .fails(3, &[""]);
    place.write("a.csv", csv);
    assert!(place.ok("advise --sample a.csv --partition-key {p}").contains("2 rows"));
}

/// The columns are those of a table that Azure Storage Explorer exported.
#[test]
fn columns_of_types_give_each_value_its_type() {
    let place = Place::new();
    let csv = "PartitionKey,RowKey,Timestamp,Id,Id@type,Name,Name@type,When,When@type,Raw,Raw@type\r\n\
        p,1,2024-01-01T00:00:00.123Z,5,Edm.Int64,,Edm.String,2024-01-01T00:00:00Z,Edm.DateTime,AQI=,Binary\r\n\
        p,2,2024-01-01T00:00:00.123Z,6,Edm.Int32,007,Edm.String,,,,\r\n\
        p,3,2024-01-01T00:00:00.123Z,,Edm.Int64,,,5,,,\r\n\
        p,4,2024-01-01T00:00:00.123Z,x,Edm.Int64,,,5,,,\r\n\
        p,5,2024-01-01T00:00:00.123Z,1,Edm.Int128,,,5,,,\r\n";
    place.feed("import db Tab -", csv).fails(
        3,
        &[
            "line 5: column 'Id': 'x' is not of type Edm.Int64",
            "line 6: column 'Id@type': 'Edm.Int128' is not a type",
        ],
    );
    let row = |key: &str| {
        let json = place.ok(&format!("get db Tab p {key} --format json --select Id,Name,When,Raw"));
        json.trim_end().rsplit_once("\"odata.etag\"").map(|(_, rest)| rest.to_owned()).unwrap()
    };
    for part in
        [r#""Id@odata.type":"Edm.Int64","Id":"5""#, r#""Name":"""#, r#""Edm.Binary","Raw":"AQI=""#]
    {
        assert!(row("1").contains(part), "{}", row("1"));
    }
    assert!(row("1").contains(r#""When@odata.type":"Edm.DateTime","#), "{}", row("1"));
    for part in [r#""Id":6"#, r#""Name":"007""#, r#""When":null"#, r#""Raw":null"#] {
        assert!(row("2").contains(part), "{}", row("2"));
    }
    for part in [r#""Id":null"#, r#""Name":null"#, r#""When":5"#] {
        assert!(row("3").contains(part), "{}", row("3"));
    }
}

#[test]
fn delimiters_are_detected_and_encodings_named() {
    let place = Place::new();
    place.write("a.csv", SMALL);
    place.ok(&format!("import db A11 a.csv {SMALL_KEYS}"));
    for (i, delimiter) in [";", "\t", "|"].into_iter().enumerate() {
        let text = SMALL.replace(',', delimiter);
        place.feed(&format!("import db B1{i} - {SMALL_KEYS}"), text).ok();
        let [found, expected] = [&format!("B1{i}"), "A11"]
            .map(|name| place.ok(&format!("export db {name} --format csv")));
        assert_eq!(found, expected);
    }
    place.feed("import db C11 - --delimiter |", SMALL).fails(2, &["columns: p,r,a,b"]);
    let wide: Vec<u8> =
        format!("\u{feff}{SMALL}").encode_utf16().flat_map(u16::to_le_bytes).collect();
    place.write("wide.csv", wide);
    place.fails(
        "import new T11 wide.csv",
        1,
        &["wide.csv: it is UTF-16", "iconv -f UTF-16 -t UTF-8 wide.csv"],
    );
    assert!(!place.path("new").exists());
    let latin = b"p,r,a\nx,1,good\nx,2,M\xfctter\n";
    let keys = "--partition-key {p} --row-key {r}";
    let hint = "try: iconv -f LATIN1 -t UTF-8";
    place.feed(&format!("import db D11 - {keys}"), latin).fails(3, &["line 3: column 'a'", hint]);
    let run = place.feed(&format!("import db D12 - {keys}"), b"{\"p\":\"\xfc\",\"r\":1}");
    assert!(!run.err.contains("iconv"), "{run:?}");
    run.fails(3, &["line 1: the text is not UTF-8 (BLOBs must be Base64, with --type "]);
}

#[test]
fn columns_and_members_are_renamed_and_typed() {
    let place = Place::new();
    let options = "--rename first=First --rename id=RowKey --partition-key all --type n=long \
        --type First=string --type ok=bool --skip junk";
    place.feed(&format!("import db A11 - {options}"), "id,first,n,ok,junk\n1,007,5,1,x\n").ok();
    let json = r#"[{"id":"1","first":7,"n":5,"ok":1,"junk":{"a":[]}}]"#;
    place.feed(&format!("import db B11 - {options}"), json.replace(":7,", ":\"007\",")).ok();
    let row = |table: &str| {
        place.ok(&format!("get db {table} all 1 --format json --select First,n,ok,id,junk"))
    };
    for table in ["A11", "B11"] {
        let typed = [r#""First":"007""#, r#""n@odata.type":"Edm.Int64","n":"5""#, r#""ok":true"#];
        let absent = [r#""id":null"#, r#""junk":null"#];
        for part in typed.into_iter().chain(absent) {
            assert!(row(table).contains(part), "{}", row(table));
        }
    }
    place.feed(&format!("import db C11 - {options}"), json).ok();
    assert!(row("C11").contains(r#""First":"7""#), "{}", row("C11"));
    place
        .feed("import db D11 - --rename x=y", "id,first\n")
        .fails(2, &["--rename: there is no column 'x'", "columns: id, first"]);
    place
        .feed("import db D11 - --rename a=B", r#"{"PartitionKey":"p","RowKey":"r","a":1,"B":2}"#)
        .fails(3, &["DuplicatePropertiesSpecified"]);
    place.fails("import db T11 - --rename x", 2, &["expected OLD=NEW"]);
}

/// The text is what `sqlite3 -json` 3.40 prints for a table of three rows.
#[test]
fn rows_of_sqlite_are_imported_from_its_json() {
    let place = Place::new();
    let json = concat!(
        r#"[{"id":1,"name":"bolt \"M4\"","price":0.5,"n":null},"#,
        "\n",
        r#"{"id":2,"name":"Mütter","price":2.0,"n":9007199254740993},"#,
        "\n",
        r#"{"id":3,"name":"a\nb","price":1.0000000000000000047e+300,"n":-1}]"#,
        "\n",
    );
    let keys = "--partition-key parts --row-key {id}";
    place.feed(&format!("import db T11 - {keys}"), json).fails(3, &["element 2: line 2: ", "'n'"]);
    let out = place.feed(&format!("import db Tab - {keys} --type n=long"), json).ok();
    assert!(out.starts_with("3 rows read, 3 imported in "), "{out}");
    let csv = place.ok("scan db Tab --format csv --select id,n,name,price");
    assert!(
        csv.starts_with(
            "id,n,name,price\n1,,\"bolt \"\"M4\"\"\",0.5\n2,9007199254740993,Mütter,2.0\n"
        ),
        "{csv}"
    );
}

/// Starts an import of 10,000 lines, ends it by `end` while it waits for more, and returns its
/// status and its standard error.
#[cfg(unix)]
fn interrupted(place: &Place, end: impl FnOnce(&mut std::process::Child)) -> super::Run {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    let rows = (0..10_000)
        .map(|i| format!("{{\"PartitionKey\":\"{}\",\"RowKey\":\"{i}\",\"A\":{i}}}\n", i % 7));
    let rows: String = rows.collect();
    place.write("rows.ndjson", &rows);
    let mut command = place.command("import db Tab - --durability os --ack");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(rows.as_bytes()).unwrap();
    let mut acks = BufReader::new(child.stdout.take().unwrap());
    acks.read_line(&mut String::new()).unwrap();
    end(&mut child);
    // Standard input stays open: the import must not wait for its end.
    let run = super::Run::of(child.wait_with_output().unwrap());
    drop(stdin);
    run
}

/// Resumes the import, and compares the table with that of an import without interruption.
#[cfg(unix)]
#[track_caller]
fn resumes(place: &Place) {
    place.ok("import whole Tab rows.ndjson --durability os");
    let out = place.ok("import db Tab rows.ndjson --durability os --resume --format json");
    assert!(
        out.starts_with("{\"rows\":10000,") && out.contains("\"rejected\":0,\"present\":"),
        "{out}"
    );
    assert_eq!(place.ok("export db Tab --format csv"), place.ok("export whole Tab --format csv"));
    let changed = r#"{"PartitionKey":"0","RowKey":"7","A":8}"#;
    let run = place.feed("import db Tab - --resume", changed);
    run.fails(3, &["EntityAlreadyExists", "(entity '0' '7' of table 'Tab')"]);
    place.fails("import db Tab rows.ndjson --resume --mode upsert", 2, &["--mode insert"]);
}

#[cfg(unix)]
#[test]
fn ctrl_c_says_what_is_in_and_a_repeat_resumes() {
    let place = Place::new();
    let run = interrupted(&place, |child| {
        let mut kill = std::process::Command::new("kill");
        assert!(kill.args(["-INT", &child.id().to_string()]).status().unwrap().success());
    });
    let (_, line) =
        run.err.split_once(" imported, up to line ").unwrap_or_else(|| panic!("{run:?}"));
    let rows: usize = line.lines().next().unwrap().parse().unwrap();
    run.fails(130, &["interrupted: ", " rows read, ", "--resume", "--mode upsert"]);
    let keys = place.ok("scan db Tab --format csv --select A");
    let mut keys: Vec<usize> = keys.lines().skip(1).map(|key| key.parse().unwrap()).collect();
    keys.sort_unstable();
    assert_eq!(keys, (0..rows).collect::<Vec<_>>());
    resumes(&place);
}

#[cfg(unix)]
#[test]
fn an_import_that_was_killed_is_resumed() {
    let place = Place::new();
    let run = interrupted(&place, |child| child.kill().unwrap());
    assert_eq!(run.status, None, "{run:?}");
    resumes(&place);
}

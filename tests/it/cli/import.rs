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

//! Tests the output of `query` in each format, and pages, aggregates, explanations and refusals.

use super::{Place, Run, parts};

const NAMES: &str = "--select PartitionKey,RowKey";

/// Creates 3 partitions of 12 rows; property `A` is a number in some rows and a text in others.
fn grid() -> Place {
    let place = Place::new();
    let mut lines = String::new();
    for pk in ["a", "b", "it's -"] {
        for i in 0..12 {
            let value = if i % 4 == 3 { "\"x\"".to_owned() } else { (i * 10).to_string() };
            lines +=
                &format!(r#"{{"PartitionKey":"{pk}","RowKey":"{i:02}","A":{value},"B":{i}.5}}"#);
            lines.push('\n');
        }
    }
    place.feed("import db Tab -", lines).ok();
    place
}

#[test]
fn the_limit_of_sql_is_accepted() {
    let place = parts();
    for command in ["query", "scan"] {
        let limited = place.ok(&format!("{command} db parts --limit 1 --format ndjson"));
        assert_eq!(limited.lines().count(), 1, "{command}: {limited}");
        assert!(!place.ok(&format!("{command} --help")).contains("--limit"));
    }
}

/// Runs `query` with a filter, which may contain spaces, and other arguments, which may not.
fn query(place: &Place, filter: &str, arguments: &str) -> Run {
    query_of(place, "Tab", filter, arguments)
}

fn query_of(place: &Place, table: &str, filter: &str, arguments: &str) -> Run {
    let mut command = place.command(&format!("query db {table} {arguments}"));
    Run::of(command.args(["--filter", filter]).output().unwrap())
}

/// Returns the matching keys, as CSV.
fn keys(place: &Place, filter: &str, arguments: &str) -> Vec<String> {
    let out = query(place, filter, &format!("--format csv {NAMES} {arguments}")).ok();
    out.lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn every_format_shows_what_was_found() {
    let place = grid();
    let filter = "A gt 80 and PartitionKey lt 'b' or A lt 1 and PartitionKey eq 'b'";
    let table = [
        "PartitionKey  RowKey    A     B",
        "------------  ------  ---  ----",
        "a             09       90   9.5",
        "a             10      100  10.5",
        "b             00        0   0.5",
        "",
        "3 entities\n",
    ];
    // Excludes the rows whose `A` is a text, because a value of another type counts as less than
    // the literal.
    let numbers = format!("({filter}) and (RowKey ne '03' and RowKey ne '07' and RowKey ne '11')");
    assert_eq!(query(&place, &numbers, "").ok(), table.join("\n"));
    assert_eq!(
        query(&place, &numbers, "--format csv").ok(),
        "PartitionKey,RowKey,A,B\na,09,90,9.5\na,10,100,10.5\nb,00,0,0.5\n"
    );
    let select = "--select A,RowKey,Nope";
    assert_eq!(
        query(&place, &numbers, &format!("--format csv {select}")).out,
        "A,RowKey,Nope\n90,09,\n100,10,\n0,00,\n"
    );
    let mut spaced = place.command("query db Tab --format csv --top 1 --select");
    assert_eq!(Run::of(spaced.arg(" A, RowKey ").output().unwrap()).ok(), "A,RowKey\n0,00\n");
    let json = query(&place, &numbers, &format!("--format ndjson {select}")).out;
    let lines: Vec<_> = json.lines().map(|line| line.split_once("\",").unwrap().1).collect();
    let row = |rk: &str, a: &str| format!(r#""RowKey":"{rk}","A":{a},"Nope":null}}"#);
    assert_eq!(lines, [row("09", "90"), row("10", "100"), row("00", "0")]);
    let array = query(&place, &numbers, &format!("--format json {select}")).out;
    assert_eq!(array, format!("[\n{}\n]\n", json.trim_end().replace('\n', ",\n")));
    let all = query(&place, &numbers, "--format ndjson --select *").ok();
    assert_eq!(all, query(&place, &numbers, "--format ndjson").ok());
}

#[test]
fn an_empty_result_is_no_failure() {
    let place = grid();
    for (format, expected) in [
        ("table", "0 entities\n"),
        ("csv", "PartitionKey,RowKey\n"),
        ("json", "[\n]\n"),
        ("ndjson", ""),
    ] {
        let arguments = format!("--format {format}");
        assert_eq!(query(&place, "A gt 1000", &arguments).ok(), expected);
        assert_eq!(query(&place, "", &format!("{arguments} --top 0")).ok(), expected);
    }
}

#[test]
fn top_reverse_and_next_select_results() {
    let place = grid();
    assert_eq!(keys(&place, "", "").len(), 36);
    assert_eq!(
        keys(&place, "A ge 90", ""),
        ["a,09", "a,10", "b,09", "b,10", "it's -,09", "it's -,10"]
    );
    assert_eq!(keys(&place, "A ge 90", "--top 3"), ["a,09", "a,10", "b,09"]);
    assert_eq!(keys(&place, "A ge 90", "--reverse --top 2"), ["it's -,10", "it's -,09"]);
    assert_eq!(keys(&place, "A ge 90", "--next-pk b --next-rk 10 --top 2"), ["b,10", "it's -,09"]);
    assert_eq!(keys(&place, "A ge 90", "--next-pk b --top 1"), ["b,09"]);
    assert_eq!(
        keys(&place, "A ge 90", "--next-pk b --next-rk 09 --reverse"),
        ["b,09", "a,10", "a,09"]
    );
    assert_eq!(keys(&place, "-1 lt A and PartitionKey eq 'b'", "--top 1"), ["b,00"]);
    let blank = place.ok(&format!("query db Tab --format csv {NAMES}"));
    assert_eq!(blank, query(&place, " ", &format!("--format csv {NAMES}")).ok());
}

#[test]
fn pages_report_the_continuation_and_are_complete() {
    let place = Place::new();
    let rows = |pk: &str| -> String {
        let row = |i| format!("{{\"PartitionKey\":\"{pk}\",\"RowKey\":\"{i:04}\",\"A\":{i}}}\n");
        (0..1500).map(row).collect()
    };
    // A masked key would name another entity.
    let first = "it's - sig=abcdef22gh";
    place.feed("import db Tab - --durability os", rows(first) + &rows("z")).ok();
    for (filter, direction) in [("A ge 250", ""), ("A ge 250", "--reverse"), ("A lt 10", "")] {
        let whole = keys(&place, filter, direction);
        let (mut all, mut next, mut pages) = (Vec::new(), Vec::new(), 0);
        loop {
            let arguments = format!("query db Tab --page --format csv {NAMES} {direction}");
            let mut command = place.command(&arguments);
            let run = Run::of(command.args(["--filter", filter]).args(&next).output().unwrap());
            assert_eq!(run.status, Some(0), "{run:?}");
            all.extend(run.out.lines().skip(1).map(str::to_owned));
            pages += 1;
            let Some((shown, how)) = run.err.split_once(" shown, there are more: go on with ")
            else {
                assert_eq!(run.err, "");
                break;
            };
            assert_eq!(shown, "1,000");
            // Unquotes the words as a shell does.
            let (pk, rk) = how.trim_end().split_once(" --next-rk=").unwrap();
            next = [pk.to_owned(), format!("--next-rk={rk}")]
                .map(|word| word.replace(r"'\''", "\0").replace('\'', "").replace('\0', "'"))
                .to_vec();
        }
        assert_eq!(all, whole, "{filter} {direction}");
        assert_eq!(pages, if whole.len() > 1000 { 3 } else { 1 }, "{filter} {direction}");
    }
    // A command that does not fit the terminal has its own line.
    let mut narrow = place.command("query db Tab --page --format csv");
    let run = Run::of(narrow.env("COLUMNS", "72").output().unwrap());
    let expected = "1,000 shown, there are more: go on with\n  --next-pk='it'\\''s - sig=abcdef22gh' --next-rk=1000\n";
    assert_eq!(run.err, expected);
    // The output is not limited, because standard output is not a terminal.
    assert!(query(&place, "", "").ok().ends_with("\n3,000 entities\n"));
}

#[test]
fn counts_and_aggregates_have_every_format() {
    let place = grid();
    let filter = "PartitionKey le 'b' and RowKey lt '04'";
    let run = |arguments: &str| query(&place, filter, arguments).ok();
    assert_eq!(run("--count"), "8\n");
    assert_eq!(run("--count --format json"), "{\"count\":8}\n");
    assert_eq!(run("--count --format ndjson"), "{\"count\":8}\n");
    assert_eq!(run("--count --format csv"), "count\n8\n");
    assert_eq!(run("--count --next-pk b --next-rk 02"), "2\n");
    let groups =
        "PartitionKey  count\n------------  -----\na                 4\nb                 4\n";
    assert_eq!(run("--count --by-partition"), groups);
    let (a, b) = (r#"{"PartitionKey":"a","count":4}"#, r#"{"PartitionKey":"b","count":4}"#);
    assert_eq!(run("--count --by-partition --format json"), format!("[\n{a},\n{b}\n]\n"));
    assert_eq!(run("--count --by-partition --format ndjson"), format!("{a}\n{b}\n"));
    assert_eq!(run("--count --by-partition --format csv"), "PartitionKey,count\na,4\nb,4\n");

    let lines = "rows      8\nintegers  6\ndoubles   0\nnans      0\nmissing   0\nothers    2\n\
        min       0\nmax       20\nsum       60\navg       10.0\n";
    assert_eq!(run("--aggregate A"), lines);
    let numbers = r#""nans":0,"missing":0,"others":1,"min":0,"max":20,"sum":30,"avg":10.0}"#;
    let group = |pk: &str| {
        format!(r#"{{"PartitionKey":"{pk}","rows":4,"integers":3,"doubles":0,{numbers}"#)
    };
    assert_eq!(
        run("--aggregate A --by-partition --format ndjson"),
        format!("{}\n{}\n", group("a"), group("b"))
    );
    assert_eq!(
        run("--aggregate B --format json"),
        "{\"rows\":8,\"integers\":0,\"doubles\":8,\"nans\":0,\"missing\":0,\"others\":0,\
         \"min\":0.5,\"max\":3.5,\"sum\":16.0,\"avg\":2.0}\n"
    );
    place.put(
        "Infinite",
        r#"{"PartitionKey":"p","RowKey":"r","B@odata.type":"Edm.Double","B":"-Infinity"}"#,
    );
    let infinite = query_of(&place, "Infinite", "", "--aggregate B").ok();
    assert!(infinite.ends_with("sum       -Infinity\navg       -Infinity\n"), "{infinite}");
    let header = "rows,integers,doubles,nans,missing,others,min,max,sum,avg";
    assert_eq!(
        query(&place, filter, "--aggregate Nope --format csv").out,
        format!("{header}\n8,0,0,0,8,0,,,,\n")
    );
    assert!(run("--aggregate A --by-partition").lines().nth(2).unwrap().starts_with("a     "));
    let none = query(&place, "PartitionKey eq 'x'", "--count --by-partition --format ndjson");
    assert_eq!(none.ok(), "");
}

#[test]
fn explanations_are_text_or_json() {
    let place = grid();
    let filter = "PartitionKey eq 'a' and (RowKey eq '01' or RowKey eq '02') and A gt 10";
    let text = query(&place, filter, "--explain").ok();
    for line in
        ["class      Point query: best", "service    Partition scan", "intervals  2", "1 returned"]
    {
        assert!(text.contains(line), "{text}");
    }
    for format in ["json", "ndjson"] {
        let json = query(&place, filter, &format!("--explain --format {format}")).ok();
        assert_eq!(json.lines().count(), 1, "{json}");
        for member in [
            r#"{"filter":"PartitionKey eq 'a' and (RowKey"#,
            r#""class":"Point query","rating":"best"#,
            r#""service_class":"Partition scan","intervals":2,"interval_list":["#,
            r#""rest":"A gt 10","ranges":"#,
            r#""points":2,"rows_looked_at":2,"rows_returned":1,"planning_us":"#,
        ] {
            assert!(json.contains(member), "'{member}' is not in {json}");
        }
    }
    let top = query(&place, "", "--explain --top 5").ok();
    assert!(top.contains("5 returned"), "{top}");
    assert!(top.contains("evaluated  nothing: the keys decide"), "{top}");
}

#[test]
fn refusals_are_explained() {
    let place = grid();
    let mark = "\n  A gt 1x and B eq 2\n       ^\n";
    query(&place, "A gt 1x and B eq 2", "")
        .fails(2, &["at position 5 in", "InvalidInput", mark, "try: Price gt 5"]);
    query(&place, "(A gt 1", "").fails(2, &["\n  (A gt 1\n         ^\n"]);
    query(&place, "A eq 99999999999", "").fails(2, &["Edm.Int32", "\n       ^\n"]);
    query(&place, "startswith(A,'x')", "")
        .fails(2, &["NotImplemented", "try: the filter language"]);
    let one = query(&place, "'a'", "");
    assert!(!one.err.contains('^'), "{one:?}");
    one.fails(2, &["must evaluate to a single boolean value"]);
    query(&place, "A gt 1", "--explain --format csv").fails(2, &["not CSV"]);
    query(&place, "A gt 1", "--by-partition").fails(2, &["--count or --aggregate"]);
    for arguments in [
        "--count --aggregate A",
        "--count --top 1",
        "--count --explain",
        "--aggregate A --select A",
        "--page --top 5",
        "--next-rk 5",
        "--top -1",
        "--format xml",
    ] {
        query(&place, "", arguments).fails(2, &["error: "]);
    }
    // The filter is checked first, then whether the database exists, then the table.
    place.fails("query nowhere Tab --filter )", 2, &["Syntax error at position 0"]);
    place.fails("query nowhere Tab", 2, &["nowhere"]);
    place.fails("query db Nope", 1, &["TableNotFound", "try: "]);
}

/// The exit status of such a query is 0.
#[test]
fn a_filter_that_cannot_match_is_noted() {
    let place = parts();
    let note = |filter: &str, arguments: &str| {
        let run = query_of(&place, "parts", filter, arguments);
        assert_eq!(run.status, Some(0), "{run:?}");
        run.err.trim_end().trim_start_matches("note: ").to_owned()
    };
    let prise = "no entity has the property Prise; the nearest is Price";
    let check = |filter: &str, arguments: &str, expected: &str| {
        assert_eq!(note(filter, arguments), expected, "{filter} {arguments}");
    };
    check("Prise lt 0.5", "", prise);
    check("Prise lt 0.5", "--count", prise);
    check("Prise lt 0.5 and Stock gt 1", "--format json", prise);
    check("not (Prise lt 0.5)", "", prise);
    check("Stock eq 5 or Prise lt 0.5", "--count --by-partition", prise);
    check("Colour eq 'red'", "", "no entity has the property Colour");
    let of = |name: &str, literal: &str, has: &str| {
        format!("no entity has a property {name} that compares with Edm.{literal}: it is Edm.{has}")
    };
    check("Price eq '0.12'", "", &of("Price", "String", "Double"));
    check("Stock eq 5L", "", &of("Stock", "Int64", "Int32"));
    check("Timestamp gt '2024-01-01'", "", &of("Timestamp", "String", "DateTime"));
    check("PartitionKey eq 5", "", &of("PartitionKey", "Int32", "String"));
    check("", "--select Price,Prise", prise);
    check("", "--aggregate Prise", prise);
    // These can match, even where nothing does.
    for filter in ["Price gt 5", "Stock gt 700", "PartitionKey eq 'screws'", "Price lt 0.5", ""] {
        check(filter, "", "");
    }
    check("", "--select PartitionKey,Timestamp,Stock", "");
    assert_eq!(place.run("scan db parts --select Prise").err, format!("note: {prise}\n"));
    let explained = query_of(&place, "parts", "Prise lt 0.5", "--explain").ok();
    assert!(explained.ends_with(&format!("\nnote       {prise}\n")), "{explained}");
    let json = query_of(&place, "parts", "Prise lt 0.5", "--explain --format json").ok();
    assert!(json.ends_with(&format!(",\"notes\":[\"{prise}\"]}}\n")), "{json}");
    place.ok("create-table db Empty");
    assert_eq!(query_of(&place, "Empty", "Prise lt 0.5", "").err, "");
}

/// Runs `query` with an order, which may contain spaces, and other arguments, which may not.
fn ordered(place: &Place, table: &str, order: &str, arguments: &str) -> Run {
    let mut command = place.command(&format!("query db {table} {arguments}"));
    Run::of(command.args(["--order-by", order]).output().unwrap())
}

/// In partition `a` three rows have a text as `A`, which precedes all numbers.
#[test]
fn rows_are_sorted_by_properties_of_any_type_and_need_not_show_them() {
    let place = grid();
    let rows = |order: &str, arguments: &str| {
        let mut command = place.command(&format!("query db Tab --format csv {arguments}"));
        command.args(["--filter", "PartitionKey eq 'a'", "--order-by", order]);
        let out = Run::of(command.output().unwrap()).ok();
        out.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let ascending = ["03", "07", "11", "00", "01", "02", "04", "05", "06", "08", "09", "10"];
    assert_eq!(rows("A", "--select RowKey"), ascending);
    assert_eq!(rows("A desc", "--select RowKey --top 4"), ["10", "09", "08", "06"]);
    assert_eq!(rows("A desc", "--select B --top 2"), ["10.5", "9.5"]);
    assert_eq!(rows("A, B desc", "--select RowKey --top 4"), ["11", "07", "03", "00"]);
    let last = ordered(&place, "Tab", "PartitionKey desc, RowKey desc", "--top 1 --format csv");
    assert_eq!(last.ok(), "PartitionKey,RowKey,A,B\nit's -,11,x,11.5\n");
    for (format, expected) in [
        ("table", "RowKey\n------\n10\n\n1 entity\n"),
        ("csv", "RowKey\n10\n"),
        ("ndjson", "\"RowKey\":\"10\"}\n"),
        ("json", "\"RowKey\":\"10\"}\n]\n"),
    ] {
        let arguments = format!("--top 1 --select RowKey --format {format}");
        let out = ordered(&place, "Tab", "A desc", &arguments).ok();
        assert!(out.ends_with(expected), "{out}");
    }
    let parts = parts();
    let keys = |order: &str| ordered(&parts, "parts", order, "--format csv --select RowKey").ok();
    assert_eq!(keys("Stock"), "RowKey\nm4x20\nm4\n");
    assert_eq!(keys("Stock desc"), "RowKey\nm4\nm4x20\n");
    let unknown = ordered(&parts, "parts", "Prise", "");
    assert!(unknown.err.contains("no entity has the property Prise; the nearest is Price"));
}

#[test]
fn an_order_excludes_pages_and_what_prints_no_rows() {
    let place = grid();
    for other in ["--page", "--next-pk a", "--reverse", "--explain", "--count", "--aggregate B"] {
        let name = other.split(' ').next().unwrap();
        let text = format!("'{name}");
        ordered(&place, "Tab", "A", other).fails(2, &["cannot be used with", "--order-by", &text]);
    }
    ordered(&place, "Tab", "A up", "").fails(2, &["'up' after the property A"]);
    assert!(place.ok("query --help").contains("rowstone's server has no such option"));
}

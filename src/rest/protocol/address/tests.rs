//! Tests addresses of every style, read and written, and the errors of malformed ones.

use super::*;
use crate::rng::Rng;

const LOCAL: &str = "127.0.0.1:10002";

/// Returns the resource and account that a path-style address names, in a short form.
fn path(path: &str) -> Result<String, String> {
    shown(read(path, "", LOCAL, Style::ByHost))
}

fn shown(target: Result<Target, Fault>) -> Result<String, String> {
    let target = target.map_err(|fault| format!("{} {}", fault.status, fault.code))?;
    let secondary = if target.secondary { " secondary" } else { "" };
    Ok(format!("{}{secondary} {:?}", target.account, target.resource))
}

#[track_caller]
fn check(text: &str, expected: &str) {
    assert_eq!(
        path(&format!("/acme/{text}")).as_deref(),
        Ok(&*format!("acme {expected}")),
        "{text}"
    );
}

#[track_caller]
fn check_key(text: &str, partition_key: &str, row_key: &str) {
    let target = read(&format!("/acme/{text}"), "", LOCAL, Style::ByHost).unwrap();
    let key = Key { partition_key: partition_key.into(), row_key: row_key.into() };
    assert_eq!(target.resource, Resource::Entity { table: "people".into(), key }, "{text}");
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    assert_eq!(path(&format!("/acme/{text}")).unwrap_err(), expected, "{text}");
}

#[test]
fn resources() {
    check("", "Service");
    check("Tables", "Tables");
    check("Tables()", "Tables");
    check("tables( )", "Tables");
    check("/Tables", "Tables");
    check("Tables('people')", "Table(\"people\")");
    check("Tables%28%27people%27%29", "Table(\"people\")");
    check("Tables( 'peo''ple' )", "Table(\"peo'ple\")");
    check("Tables(TableName = 'people')", "Table(\"people\")");
    check("people", "Entities(\"people\")");
    check("people()", "Entities(\"people\")");
    check("people/", "Entities(\"people\")");
    check("peo-ple", "Entities(\"peo-ple\")");
    check("$batch", "Batch");
    check("%24batch", "Batch");
    check("$metadata", "Metadata");
    check("$else", "Unknown(\"$else\")");
    check("$batch()", "Unknown(\"$batch()\")");
    check("a/b", "Unknown(\"a/b\")");
    check("(PartitionKey='p',RowKey='r')", "Unknown(\"(PartitionKey='p',RowKey='r')\")");
}

#[test]
fn accounts() {
    assert_eq!(path("/acme").as_deref(), Ok("acme Service"));
    assert_eq!(
        path("/acme-secondary/people").as_deref(),
        Ok("acme secondary Entities(\"people\")")
    );
    assert_eq!(path("/").as_deref(), Ok(" Unknown(\"\")"));
    assert_eq!(path("").as_deref(), Ok(" Unknown(\"\")"));
    let at = |host, style| shown(read("/people", "", host, style));
    let people = "acme Entities(\"people\")";
    for host in ["acme.table.core.windows.net", "ACME.Table.localhost:10002", "acme.z1.table.x:1"] {
        assert_eq!(at(host, Style::ByHost).as_deref(), Ok(people), "{host}");
    }
    let secondary = at("acme-secondary.table.core.windows.net", Style::ByHost);
    assert_eq!(secondary.as_deref(), Ok("acme secondary Entities(\"people\")"));
    for host in ["table.example.com", "localhost", "[::1]:10002", "127.0.0.1"] {
        assert_eq!(at(host, Style::ByHost).as_deref(), Ok("people Service"), "{host}");
    }
    assert_eq!(at("acme.table.x", Style::Path).as_deref(), Ok("people Service"));
    assert_eq!(at("", Style::ByHost), Err("400 HostInformationNotPresent".into()));
}

#[test]
fn keys() {
    check_key("people(PartitionKey='p',RowKey='r')", "p", "r");
    check_key("people(RowKey='r',PartitionKey='p')", "p", "r");
    check_key("people ( PartitionKey = 'p' , RowKey = 'r' ) ", "p", "r");
    check_key("people(PartitionKey='',RowKey='')", "", "");
    check_key("people(PartitionKey='A''a%22',RowKey='''')", "A'a\"", "'");
    check_key("people(PartitionKey=%27A%27%27a%27%2CRowKey=%27%25%2B+%20%27)", "A'a", "%++ ");
    check_key("people(PartitionKey='a%2Fb',RowKey='c/d')", "a/b", "c/d");
    check_key("people(PartitionKey=')',RowKey='(,=')", ")", "(,=");
    check_key("people(PartitionKey='%C3%A9',RowKey='%F0%9F%98%80')", "é", "😀");
    check_key("people(PartitionKey='a''''b',RowKey='x')", "a''b", "x");
}

#[test]
fn malformed_keys_are_refused() {
    for text in [
        "people(",
        "people)(",
        "people(PartitionKey='p',RowKey='r'",
        "people(PartitionKey='p',RowKey='r)",
        "people(PartitionKey='p',RowKey=5)",
        "people(PartitionKey='p',RowKey='r',)",
        "people(PartitionKey='p',RowKey='r',RowKey='r')",
        "people(PartitionKey='p',RowKey='r',Other='x')",
        "people(PartitionKey='p' RowKey='r')",
        "people(PartitionKey='p',RowKey='r'x)",
        "people(PartitionKey='p',RowKey='r')/Name",
        "people(partitionkey='p',RowKey='r')",
        "people('p')",
        "Tables(people)",
        "Tables('people','x')",
        "Tables(Name='people')",
    ] {
        refused(text, "400 InvalidInput");
        let fault = read(&format!("/acme/{text}"), "", LOCAL, Style::ByHost).unwrap_err();
        assert_eq!(fault.message, "Bad Request - Error in query syntax.");
    }
    refused("people(PartitionKey='p')", "400 InvalidInput");
    refused("people(RowKey='r')", "400 InvalidInput");
    for text in ["people%", "people%4", "people%zz", "%ff", "%ed%a0%80", "%+1"] {
        refused(text, "400 RequestUrlFailedToParse");
    }
    for text in ["people(PartitionKey='%00',RowKey='')", "a%1f", "%7f", "%C2%81", "%C2%9D", "\t"] {
        refused(text, "400 ");
        assert!(read(&format!("/acme/{text}"), "", LOCAL, Style::ByHost).unwrap_err().is_html());
    }
}

#[test]
fn keys_with_forbidden_characters_are_refused_by_writes_and_absent_in_reads() {
    let check = |text: &str, reads| {
        let key = Key { partition_key: "p".into(), row_key: text.into() };
        key.check(reads).map_err(|fault| format!("{} {}", fault.code, fault.message))
    };
    for fine in ["", "a%+ '\"&é😀", "\u{a0}"] {
        assert_eq!(check(fine, false), Ok(()));
    }
    for text in ["/", "a\\b", "/#"] {
        let expected = "InvalidInput Bad Request - Error in query syntax.";
        assert_eq!(check(text, false).unwrap_err(), expected);
    }
    for text in ["#", "?", "\u{80}", "\u{82}", "\u{9f}"] {
        let expected = "OutOfRangeInput One of the request inputs is out of range.";
        assert_eq!(check(text, false).unwrap_err(), expected);
        assert!(check(text, true).unwrap_err().starts_with("ResourceNotFound"));
    }
}

#[test]
fn keys_are_written_as_the_service_writes_them() {
    assert_eq!(
        entity_path("Devices", "zone-7", "0042"),
        "Devices(PartitionKey='zone-7',RowKey='0042')"
    );
    assert_eq!(
        entity_path("t", "A'a\"", "é 1/%"),
        "t(PartitionKey='A''a%22',RowKey='%C3%A9%201%2F%25')"
    );
    assert_eq!(table_path("people"), "Tables('people')");
    let target = read("/acme/people", "", LOCAL, Style::ByHost).unwrap();
    assert_eq!(target.base("http", LOCAL), "http://127.0.0.1:10002/acme/");
    let target = read("acme-secondary/people", "", LOCAL, Style::ByHost).unwrap();
    assert_eq!(target.base("http", LOCAL), "http://127.0.0.1:10002/acme-secondary/");
    let host = "acme.table.core.windows.net";
    let target = read("/people", "", host, Style::ByHost).unwrap();
    assert_eq!(target.base("https", host), "https://acme.table.core.windows.net/");
}

#[test]
fn random_keys_round_trip_in_addresses() {
    let mut rng = Rng::from_seed(7);
    let alphabet: Vec<char> = "ab'',()=%+& \"/#?é😀\u{ffff}".chars().collect();
    let mut text = || -> String {
        let len = rng.below(6);
        (0..len).map(|_| alphabet[rng.below(alphabet.len() as u64) as usize]).collect()
    };
    for _ in 0..5_000 {
        let (partition_key, row_key) = (text(), text());
        check_key(&entity_path("people", &partition_key, &row_key), &partition_key, &row_key);
    }
}

#[test]
fn any_bytes_of_a_path_are_read_or_refused() {
    let mut rng = Rng::from_seed(8);
    let pieces =
        ["people", "(", ")", "'", "PartitionKey=", "RowKey=", ",", "/", "%", "%27", "a", " "];
    for _ in 0..20_000 {
        let len = rng.below(12);
        let text: String =
            (0..len).map(|_| pieces[rng.below(pieces.len() as u64) as usize]).collect();
        if let Ok(Target { resource: Resource::Entity { table, key }, .. }) =
            read(&format!("/a/{text}"), "", LOCAL, Style::Path)
        {
            let written = entity_path(&table, &key.partition_key, &key.row_key);
            let again = read(&format!("/a/{written}"), "", LOCAL, Style::Path).unwrap();
            assert_eq!(again.resource, Resource::Entity { table, key });
        }
    }
    let quotes = format!("people(PartitionKey='{}", "'".repeat(4_000_000));
    refused(&quotes, "400 InvalidInput");
}

#[test]
fn addresses_inside_a_batch() {
    let key = "people(PartitionKey='a%2Fb',RowKey='http://x/y')";
    let expected = "acme Entity { table: \"people\", key: Key { partition_key: \"a/b\", row_key: \"http://x/y\" } }";
    for (outer, host, urls) in [
        (
            "/$batch",
            "acme.table.core.windows.net",
            vec![
                format!("https://acme.table.core.windows.net/{key}"),
                format!("/{key}"),
                key.into(),
            ],
        ),
        (
            "/acme/$batch",
            LOCAL,
            vec![
                format!("http://127.0.0.1:10002/acme/{key}"),
                format!("http://127.0.0.1:10002/acme-secondary/{key}"),
                format!("/acme/{key}"),
                format!("/{key}"),
                format!("acme/{key}"),
            ],
        ),
    ] {
        let outer = read(outer, "", host, Style::ByHost).unwrap();
        for url in urls {
            assert_eq!(shown(outer.read_inner(&url)).as_deref(), Ok(expected), "{url}");
        }
    }
    let outer = read("/acme/$batch", "", LOCAL, Style::ByHost).unwrap();
    let inner = outer.read_inner("http://h/acme/acme?$format=json").unwrap();
    assert_eq!(inner.resource, Resource::Entities("acme".into()));
    assert_eq!(inner.query.get(Parameter::Format), Some("json"));
    assert_eq!(outer.read_inner("http://h").unwrap().resource, Resource::Service);
    assert_eq!(outer.read_inner("").unwrap().resource, Resource::Service);
    assert!(outer.read_inner("http://h/acme/people(").is_err());
}

fn parameters(query: &str) -> Result<Parameters, String> {
    Parameters::read(query).map_err(|fault| format!("{} {}", fault.status, fault.code))
}

#[test]
fn parameters_are_decoded() {
    let read =
        parameters("$filter=A+eq%20'x%2By'&&%24top=5&unknown=1&unknown=2&timeout&sig=a%2Fb%3D")
            .unwrap();
    assert_eq!(read.filter(), Some("A eq 'x+y'"));
    assert_eq!(read.get(Parameter::Top), Some("5"));
    assert_eq!(read.get(Parameter::Timeout), Some(""));
    assert_eq!(read.get(Parameter::SasSignature), Some("a/b="));
    assert_eq!(read.get(Parameter::Select), None);
    assert_eq!(parameters("$filter=%20").unwrap().filter(), None);
    assert_eq!(parameters("a=b=c&restype=a=b").unwrap().get(Parameter::Restype), Some("a=b"));
}

#[test]
fn parameters_that_are_refused() {
    for query in ["$orderby=A", "$skip=5", "$count=true", "$expand=x", "$inlinecount", "$Filter=x"]
    {
        assert_eq!(parameters(query), Err("501 NotImplemented".into()), "{query}");
    }
    for query in
        ["$top=1&$top=1", "sv=1&sv=2", "comp=acl&comp=", "$filter=%", "$filter=%zz", "%ff=a"]
    {
        assert_eq!(parameters(query), Err("400 InvalidInput".into()), "{query}");
    }
}

#[test]
fn every_parameter_is_written_and_read_back() {
    for name in Parameter::ALL {
        let value = "a+b c/=&?'é%";
        let mut query = String::new();
        put_query(&mut query, [(name.as_str(), value), ("x y", "")]);
        assert!(
            query.is_ascii() && query.starts_with('?') && query.ends_with("&x%20y="),
            "{query}"
        );
        assert_eq!(parameters(&query[1..]).unwrap().get(*name), Some(value));
    }
    let mut none = String::new();
    put_query(&mut none, []);
    assert_eq!(none, "");
}

#[test]
fn select_top_and_timeout() {
    let select = |text: &str| parameters(&format!("$select={text}")).unwrap().select();
    let names = |text: &str| select(text).unwrap().map(|names| names.join("|"));
    assert_eq!(names("A,b , C%20").as_deref(), Some("A|b|C"));
    assert_eq!(names(""), None);
    assert_eq!(names("+"), None);
    assert_eq!(names("A,*"), None);
    assert_eq!(parameters("").unwrap().select(), Ok(None));
    assert!(select("A,,B").is_err() && select("A,").is_err());
    let many = |n: usize| vec!["A"; n].join(",");
    assert!(select(&many(255)).is_ok());
    assert_eq!(select(&many(256)).unwrap_err().code, "InvalidInput");
    assert!(select(&",".repeat(1_000_000)).is_err());

    let top = |text: &str| parameters(&format!("$top={text}")).unwrap().top();
    assert_eq!((top("0"), top("1000")), (Ok(Some(0)), Ok(Some(1000))));
    for text in ["", "-1", "1001", "x", "%2B5", "5.0", "99999999999999999999"] {
        assert_eq!(top(text).unwrap_err().code, "InvalidInput", "{text}");
    }
    let timeout = |text: &str| parameters(&format!("timeout={text}")).unwrap().timeout();
    assert_eq!((timeout("5"), timeout("31")), (Ok(5), Ok(30)));
    assert_eq!(timeout("99999999999999999999999"), Ok(30));
    assert_eq!(parameters("").unwrap().timeout(), Ok(30));
    for text in ["", "0", "-1", "x", "%2B5"] {
        assert_eq!(timeout(text).unwrap_err().code, "InvalidQueryParameterValue", "{text}");
    }
}

//! Tests of entities as JSON: the rules for inferred types, annotated types and refused input.

use super::*;

fn keyed(members: &str) -> String {
    let comma = if members.is_empty() { "" } else { "," };
    format!(r#"{{"PartitionKey":"p","RowKey":"r"{comma}{members}}}"#)
}

/// Reads an entity with `members` and the keys. Writing it, with types and without keys, must
/// produce `expected`.
#[track_caller]
fn check(members: &str, expected: &str) {
    let text = keyed(members);
    let entity = read_entity(&text).unwrap_or_else(|error| panic!("{members}: {error:?}"));
    let mut out = Vec::new();
    put_entity(&mut out, &entity, None, Metadata::TYPES);
    let out = String::from_utf8(out).unwrap();
    assert_eq!(out, keyed(expected));
    let mut again = Vec::new();
    put_entity(&mut again, &read_entity(&out).unwrap(), None, Metadata::TYPES);
    assert_eq!(String::from_utf8(again).unwrap(), out, "reads back as it was");
}

#[track_caller]
fn refused(members: &str, code: &str) {
    refused_whole(&keyed(members), code);
}

#[track_caller]
fn refused_whole(text: &str, code: &str) {
    match read_entity(text) {
        Ok(entity) => panic!("{text} gave {entity:?}"),
        Err(error) => assert_eq!(error.code(), code, "{text}: {error}"),
    }
}

#[test]
fn types_are_inferred() {
    check(r#""A":"x","B":true,"C":1450,"D":0.75"#, r#""A":"x","B":true,"C":1450,"D":0.75"#);
    check(r#""A":5.0,"B":5e0,"C":1E2,"D":-0.0"#, r#""A":5.0,"B":5.0,"C":100.0,"D":-0.0"#);
    check(r#""A":-2147483648,"B":2147483647"#, r#""A":-2147483648,"B":2147483647"#);
    check(r#""A":"","B":"5""#, r#""A":"","B":"5""#);
    check(r#""A":1.7976931348623157e308"#, r#""A":1.7976931348623157E+308"#);
}

#[test]
fn integers_beyond_int32_are_refused() {
    refused(r#""A":2147483648"#, "InvalidInput");
    refused(r#""A":-2147483649"#, "InvalidInput");
    refused(r#""A":100000000000000000000"#, "InvalidInput");
    refused(r#""A":1e309"#, "InvalidInput");
    refused(r#""A":-1e309"#, "InvalidInput");
    refused(r#""A@odata.type":"Edm.Double","A":"1e309""#, "InvalidInput");
}

#[test]
fn annotations_may_stand_before_or_after() {
    let written = r#""A@odata.type":"Edm.Int64","A":"9007199254740993""#;
    check(written, written);
    check(r#""A":"9007199254740993","A@odata.type":"Edm.Int64""#, written);
    check(r#""A":9007199254740993,"A@odata.type":"Edm.Int64""#, written);
}

#[test]
fn annotated_values() {
    check(r#""A@odata.type":"Edm.Double","A":2"#, r#""A":2.0"#);
    check(r#""A@odata.type":"Edm.Double","A":"2.0""#, r#""A":2.0"#);
    check(
        r#""A@odata.type":"Edm.Double","A":"1.23456789012346e+24""#,
        r#""A":1.23456789012346E+24"#,
    );
    for special in ["NaN", "Infinity", "-Infinity"] {
        let text = format!(r#""A@odata.type":"Edm.Double","A":"{special}""#);
        check(&text, &text);
    }
    check(r#""A@odata.type":"Edm.String","A":"x""#, r#""A":"x""#);
    check(r#""A@odata.type":"Edm.Int32","A":7"#, r#""A":7"#);
    check(r#""A@odata.type":"Edm.Int32","A":"7""#, r#""A":7"#);
    for (text, value) in [("true", true), ("True", true), ("false", false), ("False", false)] {
        let written = format!(r#""A@odata.type":"Edm.Boolean","A":"{text}""#);
        check(&written, &format!(r#""A":{value}"#));
    }
    for text in [
        r#""A@odata.type":"Edm.DateTime","A":"2023-11-05T08:30:00.5Z""#,
        r#""A@odata.type":"Edm.Guid","A":"0f8fad5b-d9cb-469f-a165-70867728950e""#,
        r#""A@odata.type":"Edm.Binary","A":"AQID""#,
        r#""A@odata.type":"Edm.Binary","A":"""#,
    ] {
        check(text, text);
    }
    check(
        r#""A@odata.type":"Edm.DateTime","A":"2023-11-05T10:30:00.1234567890+02:00""#,
        r#""A@odata.type":"Edm.DateTime","A":"2023-11-05T08:30:00.1234567Z""#,
    );
}

#[cfg(feature = "remote")]
#[test]
fn requests_have_the_type_of_each_double() {
    let entity = read_entity(&keyed(r#""D":1.5,"I":2,"W":2.0"#)).unwrap();
    let expected =
        r#""D@odata.type":"Edm.Double","D":1.5,"I":2,"W@odata.type":"Edm.Double","W":2.0"#;
    assert_eq!(entity_text(&entity, Metadata::REQUEST), keyed(expected));
}

#[test]
fn values_that_do_not_fit_their_type_are_refused() {
    for (edm, value) in [
        ("Edm.Int32", "5.0"),
        ("Edm.Int32", r#""x""#),
        ("Edm.Int32", r#""+5""#),
        ("Edm.Int32", "true"),
        ("Edm.Int64", r#""9223372036854775808""#),
        ("Edm.Int64", "1.5"),
        ("Edm.Int64", r#""""#),
        ("Edm.Double", r#""x""#),
        ("Edm.Double", r#""inf""#),
        ("Edm.Boolean", "1"),
        ("Edm.Boolean", r#""TRUE""#),
        ("Edm.String", "5"),
        ("Edm.DateTime", r#""""#),
        ("Edm.DateTime", r#""yesterday""#),
        ("Edm.DateTime", "5"),
        ("Edm.Guid", r#""0f8fad5b""#),
        ("Edm.Binary", r#""AQI""#),
        ("Edm.Int16", "5"),
        ("edm.int32", "5"),
        ("Edm.String", "[]"),
    ] {
        refused(&format!(r#""A@odata.type":"{edm}","A":{value}"#), "InvalidInput");
    }
    refused(r#""A":[1]"#, "InvalidInput");
    refused(r#""A":{"b":1}"#, "InvalidInput");
    refused(r#""A@odata.type":5,"A":"x""#, "InvalidInput");
}

#[test]
fn binaries_are_padded_base64_in_its_one_canonical_form() {
    for text in ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "//79/A=="] {
        let text = format!(r#""A@odata.type":"Edm.Binary","A":"{text}""#);
        check(&text, &text);
    }
    for text in ["Z", "Zg", "Zg=", "====", "Zg==Zg==", "Zh==", "Zm9=", "Zm 9", "Zm9v\\n", "é==="] {
        refused(&format!(r#""A@odata.type":"Edm.Binary","A":"{text}""#), "InvalidInput");
    }
    let value = interpret_text("A", "//79/A==", EdmType::Binary).unwrap();
    assert_eq!(value.as_ref(), ValueRef::Binary(&[0xff, 0xfe, 0xfd, 0xfc]));
}

#[test]
fn times_out_of_range_are_named() {
    let text = keyed(r#""When@odata.type":"Edm.DateTime","When":"1600-12-31T23:59:59Z""#);
    let error = read_entity(&text).unwrap_err();
    assert_eq!(error.code(), "OutOfRangeInput");
    assert_eq!(
        error.message(),
        "The 'When' parameter of value '12/31/1600 23:59:59' is out of range."
    );
}

#[test]
fn nulls_and_annotations_are_no_properties() {
    check(r#""A":null,"B@odata.type":"Edm.Int64","B":null"#, "");
    check(r#""odata.etag":"x","odata.anything":[1],"odata.metadata":null"#, "");
    check(r#""A@odata.type":"Edm.Int64""#, "");
    check(r#""A@odata.type":"Edm.Nonsense","A":null"#, "");
    check(r#""Timestamp":"nonsense","Timestamp@odata.type":"Edm.DateTime""#, "");
    check(r#""Timestamp":{"a":[]}"#, "");
    check(r#""PartitionKey@odata.type":"Edm.String""#, "");
    let nulls: Vec<_> = (0..400).map(|i| format!(r#""P{i}":null"#)).collect();
    check(&nulls.join(","), "");
}

#[test]
fn a_member_named_twice_is_refused() {
    refused(r#""A":1,"A":1"#, "DuplicatePropertiesSpecified");
    refused(r#""A":1,"A":null"#, "DuplicatePropertiesSpecified");
    refused(r#""A":1,"\u0041":2"#, "DuplicatePropertiesSpecified");
    refused(r#""RowKey":"r""#, "DuplicatePropertiesSpecified");
    refused(r#""Timestamp":"","Timestamp":"""#, "DuplicatePropertiesSpecified");
    let many: Vec<_> = (0..100).map(|i| format!(r#""P{}":1"#, i % 99)).collect();
    refused(&many.join(","), "DuplicatePropertiesSpecified");
    check(r#""a":1,"A":1"#, r#""A":1,"a":1"#);
}

#[test]
fn keys_must_be_strings() {
    refused_whole(r#"{"PartitionKey":"p"}"#, "PropertiesNeedValue");
    refused_whole(r#"{"RowKey":"r"}"#, "PropertiesNeedValue");
    refused_whole(r#"{"PartitionKey":"p","RowKey":null}"#, "PropertiesNeedValue");
    refused_whole(r#"{"PartitionKey":1,"RowKey":"r"}"#, "InvalidInput");
    refused_whole(
        r#"{"PartitionKey":"1","PartitionKey@odata.type":"Edm.Int32","RowKey":"r"}"#,
        "InvalidInput",
    );
    check("", "");
    assert_eq!(read_entity(r#"{"RowKey":"","PartitionKey":""}"#).unwrap().row_key(), "");
}

#[test]
fn json_that_is_no_object_is_refused() {
    for text in ["", "5", "[]", "null", "{", "{}x", r#"{"PartitionKey":"p","RowKey":"r"},"#] {
        let error = read_entity(text).unwrap_err();
        assert_eq!(error.code(), "InvalidInput", "{text}");
    }
    let many: Vec<_> = (0..=MEMBERS_MAX).map(|i| format!(r#""P{i}":null"#)).collect();
    refused(&many.join(","), "TooManyProperties");
}

#[test]
fn a_selection_has_the_listed_properties_and_null_for_absent_ones() {
    let entity = read_entity(&keyed(r#""A":1,"B":"x","C":2.5"#)).unwrap();
    let write = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut out = Vec::new();
        put_entity(&mut out, &entity, Some(&names), Metadata::MINIMAL);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(write(&["C", "A"]), r#"{"C":2.5,"A":1}"#);
    assert_eq!(write(&["Z", "RowKey", "Z"]), r#"{"RowKey":"r","Z":null}"#);
    assert_eq!(write(&["Timestamp"]), "{}");
}

#[test]
fn without_metadata_there_are_no_annotations() {
    let entity = read_entity(&keyed(r#""A@odata.type":"Edm.Int64","A":"5""#)).unwrap();
    let mut out = Vec::new();
    put_entity(&mut out, &entity, None, Metadata::NONE);
    assert_eq!(String::from_utf8(out).unwrap(), keyed(r#""A":"5""#));
}

#[test]
fn every_cut_of_an_entity_is_refused() {
    let text = keyed(r#""A@odata.type":"Edm.Int64","A":"5","B":[{"c":"\u0041"}]"#);
    for end in 0..text.len() {
        assert!(read_entity(&text[..end]).is_err());
    }
}

/// Reads a page, and checks that `read` of each item gives the same.
#[cfg(feature = "remote")]
#[track_caller]
fn check_page(items: &[&str]) {
    let one = |members: &Members<'_>| {
        let key = |part| members.key(part).ok().map(str::to_owned);
        let keys = (key(KeyPart::PartitionKey)?, key(KeyPart::RowKey)?);
        let entity = members.entity(&keys.0, &keys.1, &mut EntityEncoder::default()).ok()?;
        Some((entity, members.etag().map(str::to_owned)))
    };
    let expected: Option<Vec<_>> =
        items.iter().map(|item| one(&Members::read(item).ok()?)).collect();
    let items = items.join(", ");
    for text in [
        format!(r#"{{"odata.metadata":"x","value":[{items}]}}"#),
        format!(r#" {{ "a" : [1] , "value" : [ {items} ] , "b" : {{}} }} "#),
    ] {
        assert_eq!(read_page(&text, 8, one), expected, "{text}");
        for end in (1..text.trim_end().len()).filter(|end| text.is_char_boundary(*end)) {
            assert!(read_page(&text[..end], 8, one).is_none(), "{}", &text[..end]);
        }
    }
}

#[cfg(feature = "remote")]
#[test]
fn a_page_is_read_as_its_objects_are() {
    let keys = r#""PartitionKey":"p","RowKey":"r""#;
    let first =
        &format!(r#"{{"odata.etag":"W/\"1\"",{keys},"A":1,"B@odata.type":"Edm.Int64","B":"2"}}"#);
    check_page(&[]);
    check_page(&[first, first]);
    for other in [
        r#"{"odata.etag":"W/\"1\"",KEYS,"A":"x","B@odata.type":"Edm.String","B":"2"}"#,
        r#"{"odata.etag":"W/\"1\"",KEYS,"A":null,"B@odata.type":"Edm.Int64","B":null}"#,
        r#"{KEYS,"A":1,"B@odata.type":"Edm.Int64","B":"2"}"#,
        r#"{"odata.etag":"W/\"1\"",KEYS,"A":1,"B@odata.type":"Edm.Int64","B":"2","C":[]}"#,
        r#"{"odata.etag":"W/\"1\"",KEYS,"A":1,"B@odata.type":"Edm.Int64","B":"x"}"#,
        r#"{"odata.etag":"W/\"1\"",KEYS,"A":1,"B@odata.type":"Edm.Int64","A":"2"}"#,
        r#"{"odata.etag":"W/\"1\"",KEYS,"A":1,"B@odata.type":"Edm.Int64","B":"2","B":"2"}"#,
        r#"{"odata.etag":"W/\"1\"",KEYS,"A":1,"\u0042@odata.type":"Edm.Int64","\u0042":"2"}"#,
        r#"{"odata.etag":"W/\"1\"",KEYS,"A":1}"#,
        r#"{KEYS,"\"":1}"#,
        r#"{ KEYS , "N" : 01 }"#,
        r#"{"A":1}"#,
        "{}",
        "5",
    ] {
        let other = &other.replace("KEYS", keys);
        check_page(&[first, other]);
        check_page(&[first, other, other, first]);
    }
}

/// After an object with an escaped name, the same name without an escape is another text.
#[cfg(feature = "remote")]
#[test]
fn a_malformed_name_of_a_page_is_refused() {
    let keys = r#""PartitionKey":"p","RowKey":"r""#;
    for (name, other) in [(r#"\""#, r#"\"#), (r#"\u0041"#, "A\\"), ("A", "A\u{1}")] {
        let text = format!(r#"{{"value":[{{{keys},"{name}":1}},{{{keys},"{other}":1}}]}}"#);
        assert!(read_page(&text, 8, |_| Some(())).is_none(), "{text}");
    }
}

#[cfg(feature = "remote")]
#[test]
fn a_page_has_one_list_of_bounded_length() {
    let read = |text: &str| read_page(text, 2, |members| members.find("A").is_some().then_some(()));
    let is = |text: &str, len: Option<usize>| assert_eq!(read(text).map(|list| list.len()), len);
    is(r#"{"value":[{"A":1},{"A":2}]}"#, Some(2));
    // Later items are checked and dropped.
    is(r#"{"value":[{"A":1},{"A":2},{"A":3}]}"#, Some(2));
    is(r#"{"value":[{"A":1},{"A":2},{"A":3,}]}"#, None);
    is(r#"{"value":[{"A":1}],"value":[]}"#, Some(1));
    for text in ["{}", "[]", r#"{"value":5}"#, r#"{"value":[[]]}"#, r#"{"value":[{}]}"#] {
        is(text, None);
    }
}

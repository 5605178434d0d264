//! Tests the limits of entities: keys, names, sizes, times, types, order.

use super::*;

const TOO_LARGE: &str = "The property value exceeds the maximum allowed size (64KB). If the property value is a string, \
                         it is UTF-16 encoded and the maximum number of characters should be 32K or less.";

/// Returns the JSON of an entity whose keys are the JSON values `pk` and `rk`.
fn keys(pk: &str, rk: &str) -> String {
    format!("{{\"PartitionKey\":{pk},\"RowKey\":{rk}}}")
}

/// Returns an entity with keys `p` and `r` and these properties.
fn with(properties: &str) -> String {
    format!("{{\"PartitionKey\":\"p\",\"RowKey\":\"r\",{properties}}}")
}

/// Inserts a property given as the JSON `sent`, and checks that reading it returns `shown`.
#[track_caller]
fn stored(sent: &str, shown: &str) {
    let site = Site::people();
    site.post("people", &with(sent)).send().done(201);
    let got = site.bare("r").done(200);
    let (_, properties) =
        got.body.split_once("\"Timestamp\":\"2024-02-03T04:05:06.1234567Z\"").unwrap();
    assert_eq!(properties, format!("{shown}}}"), "{sent}");
}

#[track_caller]
fn refused(sent: &str, status: u16, code: &str, text: &str) {
    let site = Site::people();
    site.post("people", &with(sent)).send().refused(status, code, text);
    site.put(&person("r"), &format!("{{{sent}}}")).send().refused(status, code, text);
    site.patch(&person("r"), &format!("{{{sent}}}")).send().refused(status, code, text);
}

#[test]
fn f02_keys_may_be_empty_and_hold_what_urls_escape() {
    let site = Site::people();
    for (pk, rk, path) in [
        ("", "", "(PartitionKey='',RowKey='')"),
        ("p", "", "(PartitionKey='p',RowKey='')"),
        ("A'a\\\"", "50%+1 = x&y", "(PartitionKey='A''a%22',RowKey='50%25%2B1%20%3D%20x%26y')"),
        ("日本", "😀é", "(PartitionKey='%E6%97%A5%E6%9C%AC',RowKey='%F0%9F%98%80%C3%A9')"),
    ] {
        let body = format!("{{\"PartitionKey\":\"{pk}\",\"RowKey\":\"{rk}\"}}");
        let got = site.post("people", &body).send().done(201);
        assert_eq!(got.header("Location"), Some(&*format!("{BASE}people{path}")));
        let got = site.get(&format!("people{path}")).send().done(200);
        assert!(got.has(&format!("\"PartitionKey\":\"{pk}\",\"RowKey\":\"{rk}\"")), "{}", got.body);
        site.delete(&format!("people{path}")).matching("*").send().empty(204);
    }
}

#[test]
fn f02_keys_have_at_most_1024_units() {
    let site = Site::people();
    // Each character takes two UTF-16 units.
    let (full, over) = ("😀".repeat(512), format!("{}a", "😀".repeat(512)));
    let plain = "k".repeat(1024);
    for (pk, rk) in [(&full, &plain), (&plain, &full)] {
        site.insert(pk, rk, "\"A\":1");
        let path = crate::rest::protocol::address::entity_path("people", pk, rk);
        site.get(&path).send().done(200);
        site.put(&path, "{}").send().empty(204);
    }
    for (pk, rk) in [(over.as_str(), "r"), ("p", over.as_str()), ("p", &"k".repeat(2048))] {
        let body = keys(&format!("\"{pk}\""), &format!("\"{rk}\""));
        site.post("people", &body).send().refused(400, "PropertyValueTooLarge", TOO_LARGE);
        let path = crate::rest::protocol::address::entity_path("people", pk, rk);
        site.put(&path, "{}").send().refused(400, "PropertyValueTooLarge", TOO_LARGE);
    }
}

#[test]
fn f02_keys_with_forbidden_characters_in_a_body() {
    let site = Site::people();
    for (c, json) in [
        ("/", "/"),
        ("\\", "\\\\"),
        ("#", "#"),
        ("?", "?"),
        ("\u{80}", "\u{80}"),
        ("\u{9f}", "\u{9f}"),
        ("\u{7f}", "\\u007f"),
    ] {
        for (name, body) in [
            ("PartitionKey", keys(&format!("\"a{json}b\""), "\"r\"")),
            ("RowKey", keys("\"p\"", &format!("\"a{json}b\""))),
        ] {
            let text = format!("The '{name}' parameter of value 'a{c}b' is out of range.");
            site.post("people", &body).send().refused(400, "OutOfRangeInput", &text);
        }
    }
    for json in ["\\u0000", "\\t", "\\n", "\\r", "\\u001f"] {
        let body = keys("\"p\"", &format!("\"{json}\""));
        site.post("people", &body).send().fails(400, "OutOfRangeInput");
    }
    let text = "The values are not specified for all properties in the entity.";
    for body in ["{}", r#"{"RowKey":"r"}"#, &keys("null", "\"r\""), &keys("\"p\"", "null")] {
        site.post("people", body).send().refused(400, "PropertiesNeedValue", text);
    }
    for body in [keys("1", "\"r\""), keys("\"p\"", "true"), keys("[]", "\"r\"")] {
        site.post("people", &body).send().fails(400, "InvalidInput");
    }
}

#[test]
fn f02_keys_with_forbidden_characters_in_an_address() {
    let site = Site::people();
    let asks = |rk: &str| {
        let path = person(rk);
        [
            site.put(&path, "{}"),
            site.put(&path, "{}").matching("*"),
            site.patch(&path, "{}"),
            site.delete(&path).matching("*"),
        ]
    };
    for rk in ["a%2Fb", "a%5Cb", "a%2fb%23"] {
        for ask in asks(rk) {
            ask.send().refused(400, "InvalidInput", "Bad Request - Error in query syntax.");
        }
    }
    for rk in ["a%23b", "a%3Fb", "%C2%80", "%C2%82", "%C2%9F", "%C2%8E", "%C2%91"] {
        for ask in asks(rk) {
            ask.send().refused(
                400,
                "OutOfRangeInput",
                "One of the request inputs is out of range.",
            );
        }
        let text = "The specified resource does not exist.";
        site.get(&person(rk)).send().refused(404, "ResourceNotFound", text);
    }
    for rk in ["%00", "%09", "%0A", "%1F", "%7F", "%C2%81", "%C2%8D", "%C2%8F", "%C2%90", "%C2%9D"]
    {
        for ask in asks(rk) {
            let got = ask.send().done(400);
            assert!(
                got.body.starts_with("<!DOCTYPE HTML") && got.has("Invalid URL"),
                "{}",
                got.body
            );
            assert_eq!(got.header("x-ms-error-code"), None);
            assert_eq!(got.header("Content-Type"), Some("text/html; charset=us-ascii"));
        }
    }
    site.get(&person("a%2Fb")).send().fails(404, "ResourceNotFound");
}

#[test]
fn f03_property_names() {
    let longest = "n".repeat(255);
    for name in ["_", "a1", "Größe", "名", "x_Y", "timestamp", "rowkey", &longest] {
        stored(&format!("\"{name}\":1"), &format!(",\"{name}\":1"));
    }
    // Names are case-sensitive.
    stored("\"a\":1,\"A\":2", ",\"A\":2,\"a\":1");
    for name in ["", "1a", "a-b", "a b", "a.b", "a:b", "\\u0000", "a\\nb", "é€"] {
        let text = "The property name is invalid.";
        refused(&format!("\"{name}\":1"), 400, "PropertyNameInvalid", text);
    }
    let text = "The property name exceeds the maximum allowed length.";
    refused(&format!("\"{longest}n\":1"), 400, "PropertyNameTooLong", text);
}

#[test]
fn f03_property_names_once_each() {
    let text = "A property is specified more than one time.";
    for sent in [
        "\"A\":1,\"A\":1",
        "\"A\":1,\"B\":2,\"A\":null",
        "\"A@odata.type\":\"Edm.Int32\",\"A@odata.type\":\"Edm.Int32\",\"A\":1",
        "\"Timestamp\":1,\"Timestamp\":1",
    ] {
        refused(sent, 400, "DuplicatePropertiesSpecified", text);
    }
    let site = Site::people();
    let body = r#"{"PartitionKey":"p","RowKey":"r","RowKey":"r"}"#;
    site.post("people", body).send().refused(400, "DuplicatePropertiesSpecified", text);
    // Annotations do not count as properties, and are not stored.
    stored(
        "\"odata.etag\":\"W/\\\"x\\\"\",\"odata.type\":\"a.b\",\"odata.id\":5,\"B@odata.type\":\"Edm.Guid\",\"A\":1",
        ",\"A\":1",
    );
}

#[test]
fn f03_property_names_252_at_most() {
    let text = "The entity contains more properties than allowed.";
    let many = |from: u32, to: u32| {
        let all: Vec<_> = (from..to).map(|i| format!("\"P{i:03}\":{i}")).collect();
        all.join(",")
    };
    let shown = format!(",{}", many(0, 252));
    stored(&many(0, 252), &shown);
    // The Timestamp and null properties do not count toward the maximum.
    stored(&format!("{},\"Timestamp\":\"x\",\"N\":null", many(0, 252)), &shown);
    refused(&many(0, 253), 400, "TooManyProperties", text);
    // A merge is checked against the limit with the resulting entity.
    let site = Site::people();
    site.insert("p", "r", &many(0, 200));
    let ask = site.patch(&person("r"), &format!("{{{}}}", many(200, 253)));
    ask.matching("*").send().refused(400, "TooManyProperties", text);
    site.patch(&person("r"), &format!("{{{}}}", many(150, 252))).send().empty(204);
    site.patch(&person("r"), "{\"One\":1}").send().refused(400, "TooManyProperties", text);
}

#[test]
fn f04_values_of_64_kib() {
    let text = |units: usize| format!("\"A\":\"{}\"", "é".repeat(units));
    let site = Site::people();
    site.post("people", &with(&text(32 * 1024))).send().done(201);
    refused(&text(32 * 1024 + 1), 400, "PropertyValueTooLarge", TOO_LARGE);
    refused(
        &format!("\"A\":\"{}a\"", "😀".repeat(16 * 1024)),
        400,
        "PropertyValueTooLarge",
        TOO_LARGE,
    );
    // Each `AAAA` encodes three bytes; `tail` encodes one or two more.
    let binary = |tail: &str| {
        format!("\"A@odata.type\":\"Edm.Binary\",\"A\":\"{}{tail}\"", "AAAA".repeat(21_845))
    };
    site.put(&person("r"), &format!("{{{}}}", binary("AA=="))).send().empty(204);
    refused(&binary("AAA="), 400, "PropertyValueTooLarge", TOO_LARGE);
}

#[test]
fn f04_entities_of_1_mib() {
    let text = "The entity is larger than the maximum allowed size (1MB).";
    // The entity has exactly 1,048,576 bytes: 4 + 2·2 for the keys, 15 · (8 + 2·2 + 2·32,768 + 4)
    // for the properties with texts of maximum length, and 8 + 2·2 + 2·32,636 + 4 for the property
    // `zz`.
    let full: Vec<_> = (10..25).map(|i| format!("\"{i}\":\"{}\"", "x".repeat(32_768))).collect();
    let full = full.join(",").replace("\"1", "\"a").replace("\"2", "\"b");
    let rest = |units: usize| format!("\"zz\":\"{}\"", "x".repeat(units));
    let site = Site::people();
    site.post("people", &with(&format!("{full},{}", rest(32_636)))).send().done(201);
    refused(&format!("{full},{}", rest(32_637)), 400, "EntityTooLarge", text);
    // A merge is checked against the limit with the resulting entity.
    site.patch(&person("r"), &format!("{{{}}}", rest(32_637))).send().refused(
        400,
        "EntityTooLarge",
        text,
    );
    site.patch(&person("r"), "{\"n\":true}").matching("*").send().refused(
        400,
        "EntityTooLarge",
        text,
    );
    site.put(&person("r"), "{\"n\":true}").send().empty(204);
}

#[test]
fn f04_requests_of_4_mib() {
    assert_eq!(crate::rest::http::limits::BODY_BYTES_MAX, 4_194_304);
    let site = Site::new();
    let request = site.post("$batch", "").request;
    let reply = site.service.refuse(&request, crate::error::Code::RequestBodyTooLarge.into());
    let body = String::from_utf8(reply.body).unwrap();
    assert_eq!(reply.status.as_u16(), 413);
    let text = "The request body is too large and exceeds the maximum permissible limit.";
    assert!(body.contains("\"code\":\"RequestBodyTooLarge\"") && body.contains(text), "{body}");
    // A request with a body must state its length.
    for (method, needs) in
        [("POST", true), ("PUT", true), ("MERGE", true), ("GET", false), ("DELETE", false)]
    {
        let ask = site.ask(method, "people");
        assert_eq!(ask.request.needs_length(), needs, "{method}");
        assert!(!ask.header("Content-Length", "0").request.needs_length());
        assert!(
            !site
                .ask(method, "people")
                .header("Transfer-Encoding", "chunked")
                .request
                .needs_length()
        );
    }
}

#[test]
fn f05_timestamps_are_etags_with_zeros_trimmed() {
    let site = Site::people();
    for (time, shown) in [
        ("2024-02-03T04:05:06.1234567Z", "2024-02-03T04:05:06.1234567Z"),
        ("2024-02-03T04:05:07.4750600Z", "2024-02-03T04:05:07.47506Z"),
        ("2024-02-03T04:05:08.5000000Z", "2024-02-03T04:05:08.5Z"),
        ("2024-02-03T04:05:09.0000000Z", "2024-02-03T04:05:09Z"),
    ] {
        let etag = format!("W/\"datetime'{}'\"", shown.replace(':', "%3A"));
        let got = site.at(time).put(&person("r"), "{}").send().empty(204);
        assert_eq!(got.etag(), etag);
        let got = site.get(&person("r")).send().done(200);
        assert_eq!((got.etag(), got.values("Timestamp")), (&*etag, vec![shown]));
        assert!(
            got.has(&format!("\"odata.etag\":\"{}\"", etag.replace('"', "\\\""))),
            "{}",
            got.body
        );
        let got = site.bare("r");
        assert_eq!((got.etag(), got.values("Timestamp")), (&*etag, vec![shown]));
    }
}

#[test]
fn f05_timestamps_only_grow() {
    let site = Site::people();
    let first = site.insert("p", "r", "");
    assert_eq!(first.etag(), NOW_ETAG);
    // The clock does not advance before the second write, and jumps back before the third. ETags
    // must still increase.
    let second = site.put(&person("r"), "{}").send().empty(204);
    assert_eq!(second.etag(), NOW_ETAG.replace("4567Z", "4568Z"));
    site.at("2023-01-01T00:00:00Z");
    let third = site.put(&person("r"), "{}").send().empty(204);
    assert_eq!(third.etag(), NOW_ETAG.replace("4567Z", "4569Z"));
    let got = site.at("2024-02-03T04:05:10Z").patch(&person("r"), "{}").send().empty(204);
    assert_eq!(got.etag(), "W/\"datetime'2024-02-03T04%3A05%3A10Z'\"");
}

#[test]
fn f05_timestamps_of_clients_are_ignored() {
    let site = Site::people();
    for timestamp in ["\"1999-01-01T00:00:00Z\"", "5", "null", "\"\"", "{}"] {
        let body = with(&format!("\"Timestamp\":{timestamp}"));
        let got = site.post("people", &body).send().done(201);
        assert_ne!(got.values("Timestamp"), ["1999-01-01T00:00:00Z"]);
        site.put(&person("r"), &format!("{{\"Timestamp\":{timestamp}}}")).send().empty(204);
        site.delete(&person("r")).matching("*").send().empty(204);
    }
    // Timestamps can be used in filters.
    site.at("2024-02-04T00:00:00Z").insert("p", "r", "");
    assert_eq!(site.rows("Timestamp ge datetime'2024-02-04T00:00:00Z'"), "r");
    assert_eq!(site.rows("Timestamp gt datetime'2024-02-04T00:00:00Z'"), "");
}

#[test]
fn f06_types_are_inferred() {
    stored("\"A\":\"text\"", ",\"A\":\"text\"");
    stored("\"A\":\"\"", ",\"A\":\"\"");
    stored("\"A\":true,\"B\":false", ",\"A\":true,\"B\":false");
    stored("\"A\":42,\"B\":-7,\"C\":0", ",\"A\":42,\"B\":-7,\"C\":0");
    stored("\"A\":2147483647,\"B\":-2147483648", ",\"A\":2147483647,\"B\":-2147483648");
    stored(
        "\"A\":1.5,\"B\":5.0,\"C\":-0.25,\"D\":1e3",
        ",\"A\":1.5,\"B\":5.0,\"C\":-0.25,\"D\":1000.0",
    );
    stored("\"A\":\"\\u0000\\uD83D\\uDE00\\\"\\\\\"", ",\"A\":\"\\u0000😀\\\"\\\\\"");
    // A JSON number beyond the range of Int32 is refused without a type annotation.
    let text = "An error occurred while processing this request.";
    for number in ["2147483648", "-2147483649", "9007199254740993"] {
        refused(&format!("\"A\":{number}"), 400, "InvalidInput", text);
    }
}

#[test]
fn f06_types_are_annotated() {
    for (edm, value, shown) in [
        ("Edm.Int64", "\"9223372036854775807\"", "\"9223372036854775807\""),
        ("Edm.Int64", "\"-9223372036854775808\"", "\"-9223372036854775808\""),
        ("Edm.Double", "\"1.23456789012346e+24\"", "1.23456789012346E+24"),
        ("Edm.Double", "2", "2.0"),
        ("Edm.Double", "\"2.0\"", "2.0"),
        ("Edm.Double", "\"NaN\"", "\"NaN\""),
        ("Edm.Double", "\"Infinity\"", "\"Infinity\""),
        ("Edm.Double", "\"-Infinity\"", "\"-Infinity\""),
        (
            "Edm.Guid",
            "\"0F8FAD5B-D9CB-469F-A165-70867728950E\"",
            "\"0f8fad5b-d9cb-469f-a165-70867728950e\"",
        ),
        ("Edm.Binary", "\"AQID\"", "\"AQID\""),
        ("Edm.Binary", "\"\"", "\"\""),
        ("Edm.Int32", "7", "7"),
        ("Edm.Int32", "\"7\"", "7"),
        ("Edm.Boolean", "true", "true"),
        ("Edm.Boolean", "\"true\"", "true"),
        ("Edm.String", "\"7\"", "\"7\""),
        ("Edm.DateTime", "\"2023-11-05T08:30:00Z\"", "\"2023-11-05T08:30:00Z\""),
        ("Edm.DateTime", "\"2020-10-01T00:38:38.4750600Z\"", "\"2020-10-01T00:38:38.47506Z\""),
        ("Edm.DateTime", "\"2023-11-05T08:30:00+02:00\"", "\"2023-11-05T06:30:00Z\""),
        ("Edm.DateTime", "\"2023-11-05T08:30:00\"", "\"2023-11-05T08:30:00Z\""),
        ("Edm.DateTime", "\"2023-11-05T08:30:00.123456789Z\"", "\"2023-11-05T08:30:00.1234567Z\""),
        ("Edm.DateTime", "\"1601-01-01T00:00:00Z\"", "\"1601-01-01T00:00:00Z\""),
        ("Edm.DateTime", "\"9999-12-31T23:59:59.9999999Z\"", "\"9999-12-31T23:59:59.9999999Z\""),
    ] {
        // The annotation may be before or after the property.
        stored(&format!("\"A@odata.type\":\"{edm}\",\"A\":{value}"), &format!(",\"A\":{shown}"));
        stored(&format!("\"A\":{value},\"A@odata.type\":\"{edm}\""), &format!(",\"A\":{shown}"));
    }
}

#[test]
fn f06_types_that_do_not_fit_their_value_are_refused() {
    let text = "An error occurred while processing this request.";
    for (edm, value) in [
        ("Edm.Int64", "\"9223372036854775808\""),
        ("Edm.Int64", "\"x\""),
        ("Edm.Int32", "\"2147483648\""),
        ("Edm.Int32", "1.5"),
        ("Edm.Double", "\"1.8e+308\""),
        ("Edm.Double", "\"wide\""),
        ("Edm.Double", "1e999"),
        ("Edm.Guid", "\"0f8fad5b\""),
        ("Edm.Binary", "\"A\""),
        ("Edm.Boolean", "1"),
        ("Edm.String", "7"),
        ("Edm.DateTime", "\"\""),
        ("Edm.DateTime", "\"yesterday\""),
        ("Edm.DateTime", "\"2023-13-05T08:30:00Z\""),
        ("Edm.Decimal", "1"),
        ("Int32", "1"),
        ("", "1"),
    ] {
        let sent = format!("\"A@odata.type\":\"{edm}\",\"A\":{value}");
        refused(&sent, 400, "InvalidInput", text);
    }
    refused("\"A\":[1]", 400, "InvalidInput", text);
    refused("\"A\":{\"B\":1}", 400, "InvalidInput", text);
    refused("\"A@odata.type\":5,\"A\":1", 400, "InvalidInput", text);
    for (value, shown) in [
        ("0001-01-01T00:00:00Z", "01/01/0001 00:00:00"),
        ("1600-12-31T23:59:59Z", "12/31/1600 23:59:59"),
    ] {
        let text = format!("The 'A' parameter of value '{shown}' is out of range.");
        refused(
            &format!("\"A@odata.type\":\"Edm.DateTime\",\"A\":\"{value}\""),
            400,
            "OutOfRangeInput",
            &text,
        );
    }
    let site = Site::people();
    for body in [
        "",
        " ",
        "[]",
        "5",
        "{",
        "{\"PartitionKey\":\"p\"",
        "{}{}",
        "{\"A\":tru}",
        "nul",
        "\u{feff}x",
    ] {
        site.post("people", body).send().fails(400, "InvalidInput");
        site.put(&person("r"), body).send().fails(400, "InvalidInput");
    }
    // Nested arrays are refused at any depth.
    let deep = format!("{{\"A\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
    site.put(&person("r"), &deep).send().refused(400, "InvalidInput", text);
}

#[test]
fn f06_types_and_nulls() {
    stored("\"A\":null,\"B\":1", ",\"B\":1");
    stored("\"A@odata.type\":\"Edm.Int64\",\"A\":null,\"B\":1", ",\"B\":1");
    let site = Site::people();
    site.insert("p", "r", "\"A\":1,\"B\":\"b\"");
    // A merge keeps the properties that are null in the request, but a replace removes them.
    site.patch(&person("r"), "{\"A\":null,\"C\":3}").matching("*").send().empty(204);
    assert!(
        site.bare("r").body.ends_with(",\"A\":1,\"B\":\"b\",\"C\":3}"),
        "{}",
        site.bare("r").body
    );
    site.put(&person("r"), "{\"A\":null,\"C\":3}").matching("*").send().empty(204);
    assert!(site.bare("r").body.ends_with("Z\",\"C\":3}"), "{}", site.bare("r").body);
    // An invalid name is refused even if its value is null, and the entity stays unchanged.
    for (name, code) in [
        ("a-b", "PropertyNameInvalid"),
        ("", "PropertyNameInvalid"),
        (&*"n".repeat(256), "PropertyNameTooLong"),
    ] {
        let with = |value: &str| format!("{{\"D\":4,\"{name}\":{value}}}");
        for value in ["null", "1"] {
            site.put(&person("r"), &with(value)).matching("*").send().fails(400, code);
            site.patch(&person("r"), &with(value)).matching("*").send().fails(400, code);
            site.put(&person("new"), &with(value)).send().fails(400, code);
            let body = format!("{{\"PartitionKey\":\"p\",\"RowKey\":\"new\",\"{name}\":{value}}}");
            site.post("people", &body).send().fails(400, code);
        }
    }
    site.get(&person("new")).send().fails(404, "ResourceNotFound");
    assert!(site.bare("r").body.ends_with("Z\",\"C\":3}"), "{}", site.bare("r").body);
    // Types may change.
    site.patch(&person("r"), "{\"C\":\"three\"}").matching("*").send().empty(204);
    assert_eq!(site.bare("r").member("C").as_deref(), Some("\"three\""));
}

#[test]
fn f07_order_is_that_of_utf_16_units() {
    let site = Site::people();
    let keys = ["", " ", "10", "111", "2", "9", "A", "Z", "a", "a b", "aa", "b", "é", "😀", "～"];
    for key in keys.iter().rev() {
        site.insert(key, "r", "");
        site.insert("p", key, "");
    }
    let got = site.filter("RowKey eq 'r'").send().done(200);
    assert_eq!(got.values("PartitionKey"), keys);
    let got = site.filter("PartitionKey eq 'p'").send().done(200);
    assert_eq!(got.values("RowKey"), keys);
    // Entities are ordered by PartitionKey first.
    site.insert("o", "zzz", "");
    let got = site
        .filter("PartitionKey ge 'o' and PartitionKey lt 'q' and RowKey ge '～'")
        .send()
        .done(200);
    assert_eq!(got.values("RowKey"), ["～"]);
    let got = site.filter("PartitionKey eq 'o' or RowKey eq ''").send().done(200);
    assert_eq!(got.values("PartitionKey"), ["o", "p"]);
}

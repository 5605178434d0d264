//! Tests writes of entities: inserts, all combinations of conditions, overridden methods.

use super::*;

const NOT_MET: &str = "The update condition specified in the request was not satisfied.";
const NOT_FOUND: &str = "The specified resource does not exist.";
/// An ETag that no entity in these tests has.
const OTHER: &str = "W/\"datetime'2020-01-01T00%3A00%3A00Z'\"";
const KEYS: &str = r#"{"PartitionKey":"p","RowKey":"r"}"#;

/// Returns a test service with one entity, written at `NOW`.
fn stocked() -> Site {
    let site = Site::people();
    site.insert("p", "r", "\"A\":1,\"B\":2");
    site
}

/// Returns the properties of the entity with RowKey `rk`; `None` if it does not exist.
fn properties(site: &Site, rk: &str) -> Option<String> {
    let got = site.bare(rk);
    let (_, rest) =
        (got.status == 200).then(|| got.body.split_once("\"Timestamp\":\"").unwrap())?;
    let (_, rest) = rest.split_once('"').unwrap();
    Some(rest.trim_start_matches(',').trim_end_matches('}').to_owned())
}

#[test]
fn f19_insert_echoes() {
    let site = Site::people();
    let body = "{\"PartitionKey\":\"p\",\"RowKey\":\"it's\",\"Age\":5}";
    let etag = "\"odata.etag\":\"W/\\\"datetime'2024-02-03T04%3A05%3A06.1234567Z'\\\"\"";
    let got = site.post("people", body).send().json(
        201,
        &format!(
            "{{\"odata.metadata\":\"{BASE}$metadata#people/@Element\",{etag},\"PartitionKey\":\"p\",\
             \"RowKey\":\"it's\",\"Timestamp\":\"2024-02-03T04:05:06.1234567Z\",\"Age\":5}}"
        ),
    );
    assert_eq!(got.etag(), NOW_ETAG);
    let location = format!("{BASE}people(PartitionKey='p',RowKey='it''s')");
    assert_eq!(got.header("Location"), Some(&*location));
    assert_eq!((got.header("Preference-Applied"), got.header("DataServiceId")), (None, None));
    // The response contains the stored entity.
    let read = site.get("people(PartitionKey='p',RowKey='it''s')").send().done(200);
    assert_eq!(read.body, got.body);

    let body = "{\"PartitionKey\":\"p\",\"RowKey\":\"2\",\"Age\":5,\"None\":null}";
    let got = site
        .at("2024-02-03T04:05:07Z")
        .post("people()", body)
        .accept("application/json;odata=nometadata");
    got.send().json(
        201,
        r#"{"PartitionKey":"p","RowKey":"2","Timestamp":"2024-02-03T04:05:07Z","Age":5}"#,
    );
}

#[test]
fn f19_insert_with_preferences() {
    let site = Site::people();
    let got = site.post("people", KEYS).prefer("return-content").send().done(201);
    assert_eq!(got.header("Preference-Applied"), Some("return-content"));
    assert!(got.has("\"RowKey\":\"r\""));
    assert_eq!(got.header("DataServiceId"), None);

    let body = r#"{"PartitionKey":"p","RowKey":"2"}"#;
    let got = site
        .at("2024-02-03T04:05:07Z")
        .post("people", body)
        .prefer("return-no-content")
        .send()
        .empty(204);
    assert_eq!(got.header("Preference-Applied"), Some("return-no-content"));
    let location = format!("{BASE}{}", person("2"));
    assert_eq!(got.header("Location"), Some(&*location));
    assert_eq!(got.header("DataServiceId"), Some(&*location));
    assert_eq!(got.etag(), "W/\"datetime'2024-02-03T04%3A05%3A07Z'\"");

    let body = r#"{"PartitionKey":"p","RowKey":"3"}"#;
    let got = site.post("people", body).prefer("return-nothing").send().done(201);
    assert_eq!(got.header("Preference-Applied"), None);
}

#[test]
fn f19_insert_that_is_refused() {
    let site = stocked();
    let text = "The specified entity already exists.";
    let got = site.post("people", KEYS).prefer("return-no-content").send();
    let got = got.refused(409, "EntityAlreadyExists", text);
    assert_eq!(got.header("Preference-Applied"), Some("return-no-content"));
    assert_eq!(properties(&site, "r").unwrap(), "\"A\":1,\"B\":2");
    let text = "The values are not specified for all properties in the entity.";
    site.post("people", r#"{"PartitionKey":"p"}"#).send().refused(400, "PropertiesNeedValue", text);
    let text = "The table specified does not exist.";
    site.post("nobody", KEYS).send().refused(404, "TableNotFound", text);
    // The table does not exist and the body is invalid. The error in the body is reported.
    site.post("nobody", "{}").send().fails(400, "PropertiesNeedValue");
    let got = site.post("people", KEYS).header("If-None-Match", "*").send();
    got.fails(400, "InvalidInput");
}

#[test]
fn f20_conditions_that_are_met() {
    for (method, condition, left) in [
        ("PUT", Some(NOW_ETAG), Some("\"B\":3,\"C\":4")),
        ("PUT", Some("*"), Some("\"B\":3,\"C\":4")),
        ("PUT", None, Some("\"B\":3,\"C\":4")),
        ("MERGE", Some(NOW_ETAG), Some("\"A\":1,\"B\":3,\"C\":4")),
        ("PATCH", Some(NOW_ETAG), Some("\"A\":1,\"B\":3,\"C\":4")),
        ("MERGE", Some("*"), Some("\"A\":1,\"B\":3,\"C\":4")),
        ("PATCH", None, Some("\"A\":1,\"B\":3,\"C\":4")),
        ("DELETE", Some(NOW_ETAG), None),
        ("DELETE", Some("*"), None),
    ] {
        let site = stocked();
        let mut ask = site.at("2024-02-03T04:05:08Z").ask(method, &person("r"));
        if method != "DELETE" {
            ask = ask.json("{\"B\":3,\"C\":4}");
        }
        if let Some(etag) = condition {
            ask = ask.matching(etag);
        }
        let got = ask.send().empty(204);
        let etag = left.map(|_| "W/\"datetime'2024-02-03T04%3A05%3A08Z'\"");
        assert_eq!(got.header("ETag"), etag, "{method} {condition:?}");
        assert_eq!((got.header("Location"), got.header("Preference-Applied")), (None, None));
        assert_eq!(properties(&site, "r").as_deref(), left, "{method} {condition:?}");
    }
}

#[test]
fn f20_conditions_that_are_not_met() {
    for method in ["PUT", "MERGE", "PATCH", "DELETE"] {
        let site = stocked();
        let ask = |rk: &str| {
            let ask = site.ask(method, &person(rk));
            if method == "DELETE" { ask } else { ask.json("{\"C\":4}") }
        };
        ask("r").matching(OTHER).send().refused(412, "UpdateConditionNotSatisfied", NOT_MET);
        assert_eq!(properties(&site, "r").unwrap(), "\"A\":1,\"B\":2");
        for etag in [NOW_ETAG, OTHER, "*"] {
            ask("none").matching(etag).send().refused(404, "ResourceNotFound", NOT_FOUND);
        }
        assert_eq!(properties(&site, "none"), None);
    }
}

#[test]
fn f20_conditions_of_upserts() {
    for (method, rest) in [
        ("PUT", "\"C\":4"),
        ("MERGE", "\"A\":1,\"B\":2,\"C\":4"),
        ("PATCH", "\"A\":1,\"B\":2,\"C\":4"),
    ] {
        let site = stocked();
        let ask = |rk: &str| site.ask(method, &person(rk)).json("{\"C\":4}");
        // The response to an upsert must not show whether the upsert updated or inserted the
        // entity.
        let (there, new) = (ask("r").send().empty(204), ask("new").send().empty(204));
        assert_eq!(there.headers.len(), new.headers.len());
        assert_eq!(properties(&site, "r").unwrap(), rest);
        assert_eq!(properties(&site, "new").unwrap(), "\"C\":4");
        // In protocol versions without upserts, this request must have a condition.
        let got = ask("r").header("x-ms-version", "2009-09-19").send();
        got.fails(400, "MissingRequiredHeader");
    }
}

#[test]
fn f20_conditions_of_deletes() {
    let site = stocked();
    let text = "If-Match is missing: give the entity's etag, or * for any.";
    site.delete(&person("r")).send().refused(400, "InvalidInput", text);
    assert!(properties(&site, "r").is_some());
}

#[test]
fn f20_conditions_are_spelled_in_two_ways() {
    let site = stocked();
    let plain = NOW_ETAG.replace("%3A", ":");
    site.patch(&person("r"), "{}").matching(&plain).send().empty(204);
    site.patch(&person("r"), "{}")
        .matching(&plain)
        .send()
        .fails(412, "UpdateConditionNotSatisfied");
    let etag = site.get(&person("r")).send().etag().replace("%3A", "%3a");
    site.delete(&person("r")).matching(&etag).send().empty(204);
}

#[test]
fn f20_conditions_that_are_malformed() {
    let site = stocked();
    for method in ["PUT", "MERGE", "DELETE"] {
        for etag in [
            "test",
            "W/\"wrong\"",
            "",
            "\"*\"",
            "W/\"0x5B\"",
            "datetime'2024-02-03T04%3A05%3A06Z'",
            "*,*",
        ] {
            let text = format!(
                "The etag value '{etag}' specified in one of the request headers is not valid. \
                 Please make sure only one etag value is specified and is valid."
            );
            let ask = site.ask(method, &person("r")).json("{}").matching(etag);
            ask.send().refused(400, "InvalidInput", &text);
        }
        let ask = site.ask(method, &person("r")).json("{}").header("If-None-Match", "*");
        let verb = if method == "DELETE" { "DELETE" } else { "PUT" };
        let text = format!("If-None-Match HTTP header cannot be specified for {verb} operations.");
        ask.send().refused(400, "InvalidInput", &text);
        let both =
            site.ask(method, &person("r")).json("{}").matching("*").header("If-None-Match", "*");
        let got = both.send().fails(400, "InvalidInput");
        assert!(got.has("Both If-Match and If-None-Match"), "{}", got.body);
    }
    assert_eq!(site.get(&person("r")).send().etag(), NOW_ETAG);
}

#[test]
fn f20_conditions_and_keys_of_bodies() {
    let site = stocked();
    // The body may contain keys, but they are ignored: the keys in the address apply.
    for body in [
        "{\"C\":4}",
        KEYS,
        "{\"PartitionKey\":\"x\",\"RowKey\":\"y\",\"C\":4}",
        "{\"PartitionKey\":null,\"C\":4}",
    ] {
        site.put(&person("r"), body).send().empty(204);
    }
    let got = site.get("people()").send().done(200);
    assert_eq!((got.values("PartitionKey"), got.values("RowKey")), (vec!["p"], vec!["r"]));
    site.put(&person("r"), "{\"PartitionKey\":5}").send().fails(400, "InvalidInput");
}

#[test]
fn f20_conditions_end_in_states_that_each_replace_changes() {
    let site = stocked();
    let mut last = NOW_ETAG.to_owned();
    for _ in 0..3 {
        // Writing the same content again still changes the ETag.
        let got = site.put(&person("r"), "{\"A\":1}").matching(&last).send().empty(204);
        assert_ne!(got.etag(), last);
        let again = site.put(&person("r"), "{\"A\":1}").matching(&last).send();
        again.refused(412, "UpdateConditionNotSatisfied", NOT_MET);
        last = got.etag().to_owned();
    }
}

#[test]
fn f21_methods_may_be_tunnelled() {
    for (tunnelled, left) in [
        ("MERGE", Some("\"A\":1,\"B\":2,\"C\":4")),
        ("PATCH", Some("\"A\":1,\"B\":2,\"C\":4")),
        ("merge", Some("\"A\":1,\"B\":2,\"C\":4")),
        ("PUT", Some("\"C\":4")),
        ("DELETE", None),
    ] {
        let site = stocked();
        let ask = site.post(&person("r"), "{\"C\":4}").matching("*");
        let got = ask.header("X-HTTP-Method", tunnelled).send().empty(204);
        assert_eq!(got.header("ETag").is_some(), left.is_some());
        assert_eq!(properties(&site, "r").as_deref(), left, "{tunnelled}");
        // Without a condition this request would be an upsert or a refused delete. The condition
        // must be checked although the method is overridden.
        let ask = site.post(&person("r"), "{}").matching(OTHER).header("X-HTTP-Method", tunnelled);
        let status = if left.is_some() { 412 } else { 404 };
        assert_eq!(ask.send().status, status);
    }
    let site = stocked();
    site.delete("Tables('people')").send().empty(204);
    site.post("Tables", r#"{"TableName":"people"}"#).send().done(201);
    let ask = site.post("Tables('people')", "").header("X-HTTP-Method", "DELETE");
    ask.send().empty(204);
}

#[test]
fn f21_methods_that_are_tunnelled_wrongly() {
    let site = stocked();
    let text = "The request uses X-HTTP-Method with an HTTP verb other than POST.";
    for method in ["PUT", "GET", "MERGE", "DELETE"] {
        let ask = site.ask(method, &person("r")).json("{}").header("X-HTTP-Method", "MERGE");
        ask.send().refused(400, "XMethodNotUsingPost", text);
    }
    let text = "More than one X-HTTP-Method is specified.";
    let twice = site
        .post(&person("r"), "{}")
        .header("X-HTTP-Method", "MERGE")
        .another("X-HTTP-Method", "MERGE");
    twice.send().refused(400, "XMethodIncorrectCount", text);
    let list = site.post(&person("r"), "{}").header("X-HTTP-Method", "MERGE,PUT");
    list.send().refused(400, "XMethodIncorrectCount", text);
    for tunnelled in ["GET", "POST", "HEAD", "OPTIONS", "x", ""] {
        let ask = site.post(&person("r"), "{}").header("X-HTTP-Method", tunnelled);
        ask.send().refused(400, "XMethodIncorrectValue", "The specified X-HTTP-Method is invalid.");
    }
    assert_eq!(site.get(&person("r")).send().etag(), NOW_ETAG);
}

/// The Python client repeats the keys of an update in its body, with the types of its values.
#[test]
fn f20_keys_of_bodies_may_have_other_types() {
    let site = Site::people();
    for (method, (edm, text)) in ["PUT", "MERGE", "PATCH"].into_iter().zip([
        ("Guid", "0f8fad5b-d9cb-469f-a165-70867728950e"),
        ("DateTime", "2024-01-31T09:30:00Z"),
        ("Binary", "AQID"),
    ]) {
        let key = |name| format!(r#""{name}":"{text}","{name}@odata.type":"Edm.{edm}""#);
        let body = format!(
            r#"{{{},{},"{method}":"True","{method}@odata.type":"Edm.Boolean"}}"#,
            key("PartitionKey"),
            key("RowKey")
        );
        site.ask(method, &person("r")).json(&body).send().empty(204);
        let got = site.bare("r").done(200);
        assert_eq!(got.values("PartitionKey"), ["p"], "{}", got.body);
        assert_eq!(got.values("RowKey"), ["r"], "{}", got.body);
        assert_eq!(got.member(method).as_deref(), Some("true"), "{}", got.body);
    }
}

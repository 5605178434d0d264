//! Writes bodies at each metadata level as the service does, and reads them back. Properties are in
//! the order of their names, as entities store them; the service promises no order.

use super::*;
use crate::model::{DateTime, ETag, Guid, Seq, Value};

/// Appends the body that a client sends for an insert, a replace or a merge: the entity at the
/// minimal level, without its ETag.
fn put_request(out: &mut Vec<u8>, entity: &Entity) {
    odata::put_entity(out, entity, None, Metadata::TYPES);
}

/// Reads an entity from a response. Its ETag is the one in the body, or else is derived from the
/// Timestamp. If the body has neither, the entity has no ETag.
fn read_single(text: &str) -> Result<Entity, Error> {
    let entity = odata::read_entity(text)?;
    let (mut etag, mut timestamp) = (None, None);
    for (name, value) in json::read_object(text, READ_MAX)? {
        let place = match &*name {
            "odata.etag" => &mut etag,
            "Timestamp" => &mut timestamp,
            _ => continue,
        };
        if let Scalar::String(text) = Scalar::read(value)? {
            *place = Some(text);
        }
    }
    let etag: Option<ETag> = match (etag, timestamp) {
        (Some(etag), _) => Some(etag.parse()?),
        (None, Some(time)) => Some(format!("W/\"datetime'{time}'\"").parse()?),
        (None, None) => None,
    };
    Ok(match etag {
        Some(etag) => entity.at(etag.seq().ok_or_else(|| Error::refused(Code::InvalidInput))?),
        None => entity,
    })
}

/// Reads the entities of a page.
fn read_set(text: &str) -> Result<Vec<Entity>, Error> {
    items(text)?.into_iter().map(read_single).collect()
}

/// Reads the names of a listing of tables.
fn read_tables(text: &str) -> Result<Vec<String>, Error> {
    let name = |item| read_new_table(item).map_err(|_| Error::refused(Code::InvalidInput));
    items(text)?.into_iter().map(name).collect()
}

fn items(text: &str) -> Result<Vec<&str>, Error> {
    let members = json::read_object(text, READ_MAX)?;
    let value = members.into_iter().find(|(name, _)| name == "value");
    let (_, value) = value.ok_or_else(|| Error::refused(Code::InvalidInput))?;
    let items = json::read_array(value.get(), READ_MAX)?;
    Ok(items.into_iter().map(|item| item.get()).collect())
}

const BASE: &str = "https://acme.table.core.windows.net/";

/// Returns the entity in the examples of the service's reference.
fn pump() -> Entity {
    let time: DateTime = "2024-02-03T04:05:06.1234567Z".parse().unwrap();
    let built: DateTime = "2023-11-05T08:30:00Z".parse().unwrap();
    let tag: Guid = "0f8fad5b-d9cb-469f-a165-70867728950e".parse().unwrap();
    Entity::new("zone-7", "0042")
        .with("Label", "pump")
        .with("Active", true)
        .with("Rpm", 1450)
        .with("Load", 0.75)
        .with("Gain", 2.0)
        .with("Serial", 9_007_199_254_740_993_i64)
        .with("Built", built)
        .with("Tag", tag)
        .with("Blob", Value::Binary(vec![1, 2, 3]))
        .at(Seq(time.ticks()))
}

fn scope(level: Level, select: Option<&[String]>) -> Scope<'_> {
    Scope { base: BASE, account: "acme", table: "Devices", select, level }
}

fn single(level: Level, select: Option<&[String]>) -> String {
    let mut out = Vec::new();
    scope(level, select).put_single(&mut out, &pump());
    String::from_utf8(out).unwrap()
}

fn set(level: Level, entities: &[Entity]) -> String {
    let mut out = Vec::new();
    scope(level, None).put_set(&mut out, entities);
    String::from_utf8(out).unwrap()
}

const NONE: &str = r#"{"PartitionKey":"zone-7","RowKey":"0042","Timestamp":"2024-02-03T04:05:06.1234567Z","Active":true,"Blob":"AQID","Built":"2023-11-05T08:30:00Z","Gain":2.0,"Label":"pump","Load":0.75,"Rpm":1450,"Serial":"9007199254740993","Tag":"0f8fad5b-d9cb-469f-a165-70867728950e"}"#;

const MINIMAL: &str = r#"{"odata.metadata":"https://acme.table.core.windows.net/$metadata#Devices/@Element","odata.etag":"W/\"datetime'2024-02-03T04%3A05%3A06.1234567Z'\"","PartitionKey":"zone-7","RowKey":"0042","Timestamp":"2024-02-03T04:05:06.1234567Z","Active":true,"Blob@odata.type":"Edm.Binary","Blob":"AQID","Built@odata.type":"Edm.DateTime","Built":"2023-11-05T08:30:00Z","Gain":2.0,"Label":"pump","Load":0.75,"Rpm":1450,"Serial@odata.type":"Edm.Int64","Serial":"9007199254740993","Tag@odata.type":"Edm.Guid","Tag":"0f8fad5b-d9cb-469f-a165-70867728950e"}"#;

const FULL: &str = r#"{"odata.metadata":"https://acme.table.core.windows.net/$metadata#Devices/@Element","odata.type":"acme.Devices","odata.id":"https://acme.table.core.windows.net/Devices(PartitionKey='zone-7',RowKey='0042')","odata.etag":"W/\"datetime'2024-02-03T04%3A05%3A06.1234567Z'\"","odata.editLink":"Devices(PartitionKey='zone-7',RowKey='0042')","PartitionKey":"zone-7","RowKey":"0042","Timestamp@odata.type":"Edm.DateTime","Timestamp":"2024-02-03T04:05:06.1234567Z","Active":true,"Blob@odata.type":"Edm.Binary","Blob":"AQID","Built@odata.type":"Edm.DateTime","Built":"2023-11-05T08:30:00Z","Gain":2.0,"Label":"pump","Load":0.75,"Rpm":1450,"Serial@odata.type":"Edm.Int64","Serial":"9007199254740993","Tag@odata.type":"Edm.Guid","Tag":"0f8fad5b-d9cb-469f-a165-70867728950e"}"#;

#[test]
fn one_entity_at_three_levels() {
    assert_eq!(single(Level::None, None), NONE);
    assert_eq!(single(Level::Minimal, None), MINIMAL);
    assert_eq!(single(Level::Full, None), FULL);
}

#[test]
fn written_bodies_are_read_back() {
    for level in [Level::Minimal, Level::Full] {
        let entity = read_single(&single(level, None)).unwrap();
        assert_eq!((&entity, entity.etag()), (&pump(), pump().etag()));
    }
    let entity = read_single(NONE).unwrap();
    assert_eq!(entity.etag(), pump().etag(), "the ETag is derived from the Timestamp");
    assert_eq!(
        entity.value("Serial"),
        Some(crate::model::ValueRef::String("9007199254740993")),
        "types are lost"
    );
    let mut body = Vec::new();
    put_request(&mut body, &pump());
    let body = String::from_utf8(body).unwrap();
    let sent = odata::read_entity(&body).unwrap();
    assert_eq!(sent.properties().collect::<Vec<_>>(), pump().properties().collect::<Vec<_>>());
    assert!(
        !body.contains("etag")
            && read_single(r#"{"PartitionKey":"","RowKey":""}"#).unwrap().etag().is_none()
    );
}

#[test]
fn pages() {
    let at = |text: &str| {
        text.replacen("\"odata.metadata\":\"https://acme.table.core.windows.net/$metadata#Devices/@Element\",", "", 1)
    };
    let context =
        r#"{"odata.metadata":"https://acme.table.core.windows.net/$metadata#Devices","value":["#;
    let two = [pump(), pump()];
    assert_eq!(set(Level::None, &two), format!("{{\"value\":[{NONE},{NONE}]}}"));
    assert_eq!(set(Level::Minimal, &two), format!("{context}{0},{0}]}}", at(MINIMAL)));
    assert_eq!(set(Level::Full, &two[..1]), format!("{context}{}]}}", at(FULL)));
    assert_eq!(set(Level::None, &[]), "{\"value\":[]}");
    assert_eq!(set(Level::Minimal, &[]), format!("{context}]}}"));
    for level in [Level::Minimal, Level::Full] {
        assert_eq!(read_set(&set(level, &two)).unwrap(), two);
    }
    assert_eq!(read_set("{\"value\":[]}").unwrap(), []);
}

#[test]
fn a_selection_is_named_and_filled_with_nulls() {
    let names = ["Rpm", "Nope", "PartitionKey", "Rpm"].map(str::to_owned);
    assert_eq!(
        single(Level::Minimal, Some(&names)),
        r#"{"odata.metadata":"https://acme.table.core.windows.net/$metadata#Devices/@Element&$select=Rpm,Nope,PartitionKey,Rpm","odata.etag":"W/\"datetime'2024-02-03T04%3A05%3A06.1234567Z'\"","PartitionKey":"zone-7","Rpm":1450,"Nope":null}"#
    );
    let names = ["Serial", "Timestamp"].map(str::to_owned);
    assert_eq!(
        single(Level::Full, Some(&names)),
        r#"{"odata.metadata":"https://acme.table.core.windows.net/$metadata#Devices/@Element&$select=Serial,Timestamp","odata.type":"acme.Devices","odata.id":"https://acme.table.core.windows.net/Devices(PartitionKey='zone-7',RowKey='0042')","odata.etag":"W/\"datetime'2024-02-03T04%3A05%3A06.1234567Z'\"","odata.editLink":"Devices(PartitionKey='zone-7',RowKey='0042')","Timestamp@odata.type":"Edm.DateTime","Timestamp":"2024-02-03T04:05:06.1234567Z","Serial@odata.type":"Edm.Int64","Serial":"9007199254740993"}"#
    );
    assert_eq!(single(Level::None, Some(&["Nope".to_owned()])), "{\"Nope\":null}");
    let mut out = Vec::new();
    scope(Level::Minimal, Some(&["A".to_owned()])).put_set(&mut out, []);
    let set = String::from_utf8(out).unwrap();
    assert!(set.contains("$metadata#Devices&$select=A\""), "{set}");
}

#[test]
fn keys_are_escaped_in_links_and_names_in_annotations() {
    let entity = Entity::new("A'a\"", "é").with("Größe", 5_i64);
    let mut out = Vec::new();
    scope(Level::Full, None).put_single(&mut out, &entity);
    let text = String::from_utf8(out).unwrap();
    assert!(
        text.contains("\"odata.editLink\":\"Devices(PartitionKey='A''a%22',RowKey='%C3%A9')\"")
    );
    assert!(text.ends_with("\"PartitionKey\":\"A'a\\\"\",\"RowKey\":\"é\",\"Größe@odata.type\":\"Edm.Int64\",\"Größe\":\"5\"}"));
}

#[test]
fn the_size_estimate_of_an_entity_is_an_upper_bound() {
    let time: DateTime = "9999-12-31T23:59:59.9999999Z".parse().unwrap();
    let name = "\u{540d}".repeat(255);
    let all = Entity::new("'\u{4e00}\u{1f600}".repeat(200), "%\"\\".repeat(300))
        .with(name.as_str(), i64::MIN)
        .with("B", Value::Binary(vec![255; 1000]))
        .with("D", -f64::MIN_POSITIVE)
        .with("E", f64::NEG_INFINITY)
        .with("F", false)
        .with("G", Guid::from_bytes([255; 16]))
        .with("I", i32::MIN)
        .with("S", "\u{1}\u{7f}\u{4e00}".repeat(300))
        .with("T", time)
        .at(Seq(time.ticks()));
    let names = ["B", name.as_str(), "Nope", "\u{1}\""].map(str::to_owned);
    for entity in [&all, &pump(), &Entity::new("", "")] {
        for level in [Level::None, Level::Minimal, Level::Full] {
            for select in [None, Some(&names[..])] {
                let (mut out, scope) = (Vec::new(), scope(level, select));
                scope.put_single(&mut out, entity);
                let at_most = scope.single_at_most(entity);
                assert!(out.len() <= at_most, "{} > {at_most}", out.len());
            }
        }
    }
    let (mut out, scope) = (Vec::new(), scope(Level::Full, None));
    scope.put_single(&mut out, &pump());
    assert!(scope.single_at_most(&pump()) < 3 * out.len());
}

#[test]
fn tables_at_three_levels() {
    let list = |level| {
        let mut out = Vec::new();
        put_tables(&mut out, BASE, "acme", ["a1b", "People"], level);
        String::from_utf8(out).unwrap()
    };
    let one = |level| {
        let mut out = Vec::new();
        put_table(&mut out, BASE, "acme", "People", level);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(list(Level::None), r#"{"value":[{"TableName":"a1b"},{"TableName":"People"}]}"#);
    assert_eq!(
        list(Level::Minimal),
        r#"{"odata.metadata":"https://acme.table.core.windows.net/$metadata#Tables","value":[{"TableName":"a1b"},{"TableName":"People"}]}"#
    );
    let full = r#""odata.type":"acme.Tables","odata.id":"https://acme.table.core.windows.net/Tables('People')","odata.editLink":"Tables('People')","TableName":"People"}"#;
    assert!(list(Level::Full).ends_with(&format!(",{{{full}]}}")), "{}", list(Level::Full));
    assert_eq!(one(Level::None), r#"{"TableName":"People"}"#);
    assert_eq!(
        one(Level::Minimal),
        r#"{"odata.metadata":"https://acme.table.core.windows.net/$metadata#Tables/@Element","TableName":"People"}"#
    );
    assert!(one(Level::Full).ends_with(full));
    for level in [Level::None, Level::Minimal, Level::Full] {
        assert_eq!(read_tables(&list(level)).unwrap(), ["a1b", "People"]);
        assert_eq!(read_new_table(&one(level)).as_deref(), Ok("People"));
    }
}

#[test]
fn new_tables() {
    let code = |text: &str| read_new_table(text).unwrap_err().code;
    assert_eq!(
        read_new_table(r#"{"odata.type":"x","TableName":"a","b":[{}]}"#).as_deref(),
        Ok("a")
    );
    assert_eq!(code("{}"), "PropertiesNeedValue");
    assert_eq!(code(r#"{"TableName":null}"#), "PropertiesNeedValue");
    assert_eq!(code(r#"{"TableName":"a","TableName":"b"}"#), "DuplicatePropertiesSpecified");
    for text in
        ["", "[]", "{", r#"{"TableName":5}"#, r#"{"TableName":{}}"#, r#"{"TableName":"a"}x"#]
    {
        assert_eq!(code(text), "InvalidInput", "{text}");
    }
}

#[test]
fn other_bodies_are_refused() {
    for text in ["", "{}", "[]", "{\"value\":5}", "{\"value\":[5]}", "{\"value\":[{}]}"] {
        assert!(read_set(text).is_err() && read_tables(text).is_err(), "{text}");
    }
    assert!(read_single(&MINIMAL.replace("W/", "X")).is_err());
    assert!(read_single(&NONE.replace("2024-02-03T", "x")).is_err());
    for end in 0..MINIMAL.len() {
        assert!(read_single(&MINIMAL[..end]).is_err());
    }
}

fn key() -> Key {
    Key { partition_key: "p".into(), row_key: "r".into() }
}

#[test]
fn keys_of_the_address_take_precedence() {
    for body in [
        "{\"A\":1}",
        r#"{"PartitionKey":"p","RowKey":"r","A":1}"#,
        r#"{"PartitionKey":"x","RowKey":null,"A":1,"Timestamp":5,"odata.etag":"x"}"#,
        // The Python client sends a key of another type in the body as a typed text.
        r#"{"PartitionKey":"2024-02-03T04:05:06Z","PartitionKey@odata.type":"Edm.DateTime","A":1,
            "RowKey":"0f8fad5b-d9cb-469f-a165-70867728950e","RowKey@odata.type":"Edm.Guid"}"#,
        r#"{"PartitionKey@odata.type":"Edm.Binary","PartitionKey":"AQID","RowKey":"r","A":1}"#,
    ] {
        let entity = read_update(body, &key(), &mut EntityEncoder::default()).unwrap();
        assert_eq!(entity, Entity::new("p", "r").with("A", 1), "{body}");
    }
    let entity =
        read_insert(r#"{"PartitionKey":"x","RowKey":"y"}"#, &mut EntityEncoder::default()).unwrap();
    assert_eq!(entity, Entity::new("x", "y"));
    let typed = r#"{"PartitionKey":"AQID","PartitionKey@odata.type":"Edm.Binary","RowKey":"r"}"#;
    let fault = read_insert(typed, &mut EntityEncoder::default()).unwrap_err();
    assert_eq!(fault.code, "InvalidInput", "the keys of an insert are strings");
    assert_eq!(fault.message, "One of the request inputs is not valid.");
}

#[test]
fn contradictory_bodies_are_refused() {
    let deep = format!("{{\"A\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
    for (body, code) in [
        ("", "InvalidInput"),
        ("[]", "InvalidInput"),
        (r#"{"A":{"B":1}}"#, "InvalidInput"),
        (&deep, "InvalidInput"),
        (r#"{"A":1e999}"#, "InvalidInput"),
        (r#"{"A@odata.type":"Edm.Int64","A":"x"}"#, "InvalidInput"),
        (r#"{"A@odata.type":"Edm.Nope","A":"x"}"#, "InvalidInput"),
        (r#"{"PartitionKey":5}"#, "InvalidInput"),
        (r#"{"PartitionKey":5,"PartitionKey@odata.type":"Edm.Guid"}"#, "InvalidInput"),
        (r#"{"RowKey":"5","RowKey@odata.type":"Edm.Int64","PartitionKey":"p"}"#, "InvalidInput"),
        (r#"{"A":1,"A":2}"#, "DuplicatePropertiesSpecified"),
        (r#"{"A@odata.type":"Edm.DateTime","A":"1500-01-01T00:00:00Z"}"#, "OutOfRangeInput"),
    ] {
        let fault = read_update(body, &key(), &mut EntityEncoder::default()).unwrap_err();
        assert_eq!((&*fault.code, fault.status), (code, 400), "{body}");
        if code == "InvalidInput" {
            assert_eq!(fault.message, "An error occurred while processing this request.");
        }
        assert!(read_insert(body, &mut EntityEncoder::default()).is_err());
    }
    assert_eq!(
        read_insert(r#"{"RowKey":"r"}"#, &mut EntityEncoder::default()).unwrap_err().code,
        "PropertiesNeedValue"
    );
}

//! Tests of conversions between structs and entities.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::{Binary, DateTime, Entity, Guid, Seq};

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
#[serde(rename_all = "PascalCase")]
struct Part {
    name: String,
    price: f64,
    stock: i32,
    sold: i64,
    coated: Option<bool>,
    raw: Vec<u8>,
    data: Binary,
    made: DateTime,
    id: Guid,
    grade: Grade,
}

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
enum Grade {
    Fine,
    Coarse,
}

fn part() -> Part {
    Part {
        name: "bolt".to_owned(),
        price: 0.12,
        stock: -7,
        sold: 1 << 40,
        coated: None,
        raw: vec![1, 2, 255],
        data: Binary(vec![]),
        made: "2024-01-31T00:00:00.5Z".parse().unwrap(),
        id: Guid::from_bytes([7; 16]),
        grade: Grade::Coarse,
    }
}

#[track_caller]
fn check_refused<T: Serialize>(value: &T, text: &str) {
    let error = Entity::from_serde("p", "r", value).unwrap_err();
    assert_eq!((error.code(), error.message()), ("InvalidInput", text));
}

#[track_caller]
fn check_unreadable<'de, T: Deserialize<'de> + std::fmt::Debug>(entity: &'de Entity, text: &str) {
    let error = entity.to::<T>().unwrap_err();
    assert_eq!((error.code(), error.message()), ("InvalidInput", text));
}

fn one<T>(value: T) -> BTreeMap<&'static str, T> {
    BTreeMap::from([("A", value)])
}

#[test]
fn a_struct_round_trips_and_keeps_its_types() {
    let entity = Entity::from_serde("p", "r", &part()).unwrap();
    let types: Vec<_> =
        entity.properties().map(|(name, value)| format!("{name} {}", value.edm_type())).collect();
    let expected = "Data Edm.Binary, Grade Edm.String, Id Edm.Guid, Made Edm.DateTime, Name Edm.String, \
                    Price Edm.Double, Raw Edm.Binary, Sold Edm.Int64, Stock Edm.Int32";
    assert_eq!(types.join(", "), expected);
    assert_eq!(entity.to::<Part>().unwrap(), part());
}

#[test]
fn some_is_present_and_none_is_absent() {
    let entity = Entity::from_serde("p", "r", &Part { coated: Some(true), ..part() }).unwrap();
    assert_eq!(entity.get::<Option<bool>>("Coated").unwrap(), Some(true));
    assert_eq!(entity.to::<Part>().unwrap().coated, Some(true));
}

#[test]
fn keys_are_taken_from_arguments_and_read_into_named_fields() {
    #[derive(Serialize, Deserialize)]
    struct Keyed {
        #[serde(rename = "PartitionKey")]
        partition: String,
        #[serde(rename = "Timestamp")]
        written: Option<DateTime>,
        #[serde(rename = "A")]
        a: i32,
    }
    let keyed = Keyed { partition: "other".to_owned(), written: None, a: 1 };
    let entity = Entity::from_serde("p", "r", &keyed).unwrap().at(Seq(10_000_000));
    assert_eq!(entity.len(), 1);
    let keyed: Keyed = entity.to().unwrap();
    assert_eq!((keyed.partition.as_str(), keyed.a), ("p", 1));
    assert_eq!(keyed.written.unwrap().to_string(), "1601-01-01T00:00:01Z");
}

#[test]
fn fields_may_borrow_from_the_entity() {
    #[derive(Deserialize)]
    struct Borrowed<'a> {
        name: &'a str,
    }
    let entity = Entity::new("p", "r").with("name", "bolt");
    assert_eq!(entity.to::<Borrowed<'_>>().unwrap().name, "bolt");
}

#[test]
fn integers_are_stored_by_their_width() {
    #[derive(Serialize)]
    struct Widths(BTreeMap<&'static str, u64>);
    let entity = Entity::from_serde("p", "r", &Widths(one(i64::MAX as u64))).unwrap();
    assert_eq!(entity.get::<i64>("A").unwrap(), i64::MAX);
    let entity = Entity::from_serde("p", "r", &one(u32::MAX)).unwrap();
    assert_eq!(entity.get::<i64>("A").unwrap(), i64::from(u32::MAX));
}

#[test]
fn values_without_an_edm_type_are_refused_by_property_name() {
    let nested = "property 'A': nested values have no EDM type; \
                  `#[serde(with = \"rowstone::json\")]` stores them as text";
    check_refused(&one(one(1)), nested);
    check_refused(&one((1, 2)), nested);
    check_refused(&one(vec![1i32]), NOT_BYTES);
    check_refused(&one(u64::MAX), "property 'A': 18446744073709551615 is beyond Edm.Int64");
    check_refused(&one(1i128), "property 'A': i128 is not supported");
    check_refused(&1, "only a struct or a map with texts for keys can be an entity");
    check_refused(&BTreeMap::from([(1, 1)]), "the names of properties are texts");
}

const NOT_BYTES: &str = "property 'A': a sequence of anything but bytes has no EDM type; \
                         `#[serde(with = \"rowstone::json\")]` stores it as text";

#[test]
fn an_empty_sequence_is_refused_as_a_full_one_is() {
    #[derive(Serialize)]
    struct Wrapped<T>(T);
    check_refused(&one(Vec::<String>::new()), NOT_BYTES);
    check_refused(&one(Some(Vec::<i32>::new())), NOT_BYTES);
    check_refused(&one(Vec::<Vec<u8>>::new()), NOT_BYTES);
    check_refused(&one(Box::new(Vec::<(u8, u8)>::new())), NOT_BYTES);
    let empty = |entity: crate::error::Result<Entity>| {
        assert_eq!(entity.unwrap().get::<&[u8]>("A").unwrap(), b"");
    };
    empty(Entity::from_serde("p", "r", &one(Vec::<u8>::new())));
    empty(Entity::from_serde("p", "r", &one(Some(&[0u8; 0][..]))));
    empty(Entity::from_serde("p", "r", &one(Wrapped(Box::new(Vec::<u8>::new())))));
    empty(Entity::from_serde("p", "r", &one(std::collections::HashSet::<u8>::new())));
    empty(Entity::from_serde("p", "r", &one(std::cell::RefCell::new(Vec::<u8>::new()))));
}

#[test]
fn nested_values_are_stored_as_json_and_read_back() {
    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Nested {
        #[serde(with = "crate::json")]
        tags: Vec<String>,
        #[serde(with = "crate::json")]
        part: Part,
    }
    for tags in [vec![], vec!["a".to_owned(), "ö\"".to_owned()]] {
        let nested = Nested { tags, part: part() };
        let entity = Entity::from_serde("p", "r", &nested).unwrap();
        assert!(entity.get::<&str>("part").unwrap().starts_with("{\"Name\":\"bolt\","));
        assert_eq!(entity.to::<Nested>().unwrap(), nested);
    }
    let entity = Entity::new("p", "r").with("tags", "[1]");
    let text = "property 'tags': invalid type: integer `1`, expected a string at line 1 column 2";
    check_unreadable::<Nested>(&entity, text);
}

#[test]
fn properties_that_do_not_fit_the_struct_are_named() {
    #[derive(Deserialize, Debug)]
    #[expect(dead_code, reason = "only its reading is tested")]
    struct Wanted {
        a: Guid,
    }
    let missing = Entity::new("p", "r");
    check_unreadable::<Wanted>(&missing, "missing field `a`");
    let text = Entity::new("p", "r").with("a", Guid::default().to_string());
    check_unreadable::<Wanted>(&text, "property 'a': Edm.String where Edm.Guid was expected");
    let big = Entity::new("p", "r").with("A", 1i64 << 40);
    check_unreadable::<BTreeMap<String, i32>>(
        &big,
        "property 'A': invalid value: integer `1099511627776`, expected i32",
    );
}

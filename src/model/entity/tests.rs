//! Tests of entities that were created and of entities that were read.

use super::*;
use crate::error::ErrorKind;
use crate::model::Guid;

fn bolt() -> Entity {
    Entity::new("bolts", "m4x20")
        .with("Price", 0.12)
        .with("Stock", 1_200)
        .with("Name", "bölt")
        .with("Sold", 5i64)
        .with("Data", vec![1u8, 2])
        .with("Id", Guid::default())
        .with("Made", DateTime::MIN)
        .with("Coated", false)
}

fn stored(entity: &Entity) -> Entity {
    let row = entity.to_row(&Shapes::new(1 << 20)).unwrap();
    let (pk, rk) = (entity.partition_key().as_bytes(), entity.row_key().as_bytes());
    Entity::from_row(pk, rk, Seq(10_000_000), &row.as_ref()).unwrap()
}

#[track_caller]
fn check_error<T: std::fmt::Debug>(result: Result<T>, kind: ErrorKind, message: &str) {
    let error = result.unwrap_err();
    assert_eq!((error.kind(), error.message()), (kind, message));
}

#[test]
fn values_are_read_as_written() {
    for entity in [bolt(), stored(&bolt())] {
        assert_eq!(entity.get::<f64>("Price").unwrap(), 0.12);
        assert_eq!(entity.get::<i32>("Stock").unwrap(), 1200);
        assert_eq!(entity.get::<&str>("Name").unwrap(), "bölt");
        assert_eq!(entity.get::<String>("Name").unwrap(), "bölt");
        assert_eq!(entity.get::<i64>("Sold").unwrap(), 5);
        assert_eq!(entity.get::<Vec<u8>>("Data").unwrap(), [1, 2]);
        assert_eq!(entity.get::<&[u8]>("Data").unwrap(), [1, 2]);
        assert_eq!(entity.get::<Guid>("Id").unwrap(), Guid::default());
        assert_eq!(entity.get::<DateTime>("Made").unwrap(), DateTime::MIN);
        assert!(!entity.get::<bool>("Coated").unwrap());
        assert_eq!(entity.get::<Value>("Stock").unwrap(), Value::Int32(1200));
    }
}

#[test]
fn integers_widen() {
    assert_eq!(bolt().get::<i64>("Stock").unwrap(), 1200);
    assert_eq!(bolt().get::<f64>("Stock").unwrap(), 1200.0);
    check_error(
        bolt().get::<f64>("Sold"),
        ErrorKind::InvalidInput,
        "property 'Sold' is Edm.Int64, not Edm.Double",
    );
}

#[test]
fn absence_is_an_option() {
    assert_eq!(bolt().get::<Option<bool>>("Painted").unwrap(), None);
    assert_eq!(bolt().get::<Option<bool>>("Coated").unwrap(), Some(false));
    check_error(bolt().get::<bool>("Painted"), ErrorKind::NotFound, "no property 'Painted'");
    check_error(
        bolt().get::<Option<bool>>("Price"),
        ErrorKind::InvalidInput,
        "property 'Price' is Edm.Double, not Edm.Boolean",
    );
}

#[test]
fn properties_are_ordered_by_name_and_names_are_case_sensitive() {
    let entity = bolt().with("stock", 1);
    let names: Vec<_> = entity.properties().map(|(name, _)| name).collect();
    assert_eq!(names, ["Coated", "Data", "Id", "Made", "Name", "Price", "Sold", "Stock", "stock"]);
}

#[test]
fn a_stored_entity_is_one_allocation_and_equals_the_built_one() {
    let entity = stored(&bolt());
    assert_eq!(entity, bolt());
    assert_eq!((entity.partition_key(), entity.row_key(), entity.len()), ("bolts", "m4x20", 8));
    assert_eq!(entity.timestamp().unwrap().to_string(), "1601-01-01T00:00:01Z");
    assert_eq!(entity.etag().unwrap().to_string(), "W/\"datetime'1601-01-01T00%3A00%3A01Z'\"");
    assert_eq!((bolt().etag(), bolt().timestamp()), (None, None));
}

#[test]
fn changing_a_stored_entity_keeps_its_etag() {
    let mut entity = stored(&bolt());
    entity.set("Stock", "many").set("Aaa", 1);
    assert_eq!(entity.remove("Price"), Some(Value::Double(0.12)));
    assert_eq!(entity.remove("Price"), None);
    assert_eq!(entity.get::<&str>("Stock").unwrap(), "many");
    assert_eq!((entity.len(), entity.partition_key()), (8, "bolts"));
    assert!(entity.etag().is_some());
    assert_eq!(stored(&entity), entity);
}

#[test]
fn setting_twice_keeps_the_last() {
    let entity = Entity::new("p", "r").with("B", 1).with("A", 1).with("B", 2).with("A", "x");
    assert_eq!(entity.len(), 2);
    assert_eq!(entity.get::<i32>("B").unwrap(), 2);
    assert_eq!(entity.get::<&str>("A").unwrap(), "x");
}

#[test]
fn keys_are_decoded_from_their_encoded_form() {
    let mut pk = "\u{e000}\u{ffff}😀".as_bytes().to_vec();
    pk.iter_mut().for_each(|byte| *byte = crate::model::utf16_rank(*byte));
    let row = Entity::new("", "").to_row(&Shapes::new(1 << 20)).unwrap();
    let entity = Entity::from_row(&pk, "é".as_bytes(), Seq(1), &row.as_ref()).unwrap();
    assert_eq!((entity.partition_key(), entity.row_key()), ("\u{e000}\u{ffff}😀", "é"));
}

#[test]
fn keys_that_are_not_utf8_are_corruption() {
    let row = Entity::new("", "").to_row(&Shapes::new(1 << 20)).unwrap();
    for (pk, rk, at) in
        [(&b"\xff"[..], &b""[..], 0), (b"a", b"b\xee\x80\x80", 2), (b"\xc3", b"\xa9", 0)]
    {
        let error = Entity::from_row(pk, rk, Seq(1), &row.as_ref()).unwrap_err();
        assert_eq!((error.structure, error.at), ("user key", at));
    }
}

#[test]
fn damaged_bodies_make_no_entity() {
    let mut row = bolt().to_row(&Shapes::new(1 << 20)).unwrap();
    row.body.push(0);
    assert!(Entity::from_row(b"p", b"r", Seq(1), &row.as_ref()).is_err());
}

#[test]
fn debug_shows_keys_time_and_values() {
    let text = format!("{:?}", stored(&Entity::new("p", "r").with("A", 1)));
    let expected = "{\"PartitionKey\": \"p\", \"RowKey\": \"r\", \"Timestamp\": 1601-01-01T00:00:01Z, \"A\": Int32(1)}";
    assert_eq!(text, expected);
}

#[test]
fn integers_floats_and_options_are_set_and_read() {
    let entity = Entity::new("p", "r")
        .with("I8", i8::MIN)
        .with("I16", i16::MIN)
        .with("U8", u8::MAX)
        .with("U16", u16::MAX)
        .with("U32", u32::MAX)
        .with("F32", 0.5f32)
        .with("Some", Some("bolt"))
        .with("None", None::<i64>);
    for entity in [entity.clone(), stored(&entity)] {
        assert_eq!(entity.len(), 7);
        assert_eq!(entity.value("U16"), Some(ValueRef::Int32(65_535)));
        assert_eq!(entity.value("U32"), Some(ValueRef::Int64(4_294_967_295)));
        assert_eq!((entity.get("I8").unwrap(), entity.get("I16").unwrap()), (i8::MIN, i16::MIN));
        assert_eq!((entity.get("U8").unwrap(), entity.get("U16").unwrap()), (u8::MAX, u16::MAX));
        assert_eq!((entity.get("U32").unwrap(), entity.get("F32").unwrap()), (u32::MAX, 0.5f32));
        assert_eq!(entity.get::<Option<&str>>("Some").unwrap(), Some("bolt"));
        assert_eq!((entity.get("U16").unwrap(), entity.get("U8").unwrap()), (65_535usize, 255u64));
        let message = "property 'I8' is Edm.Int32, not an integer that fits u16";
        check_error(entity.get::<u16>("I8"), ErrorKind::InvalidInput, message);
    }
    let mut entity = entity;
    entity.set("Some", None::<&str>).set("U8", Some(7i64));
    assert_eq!((entity.len(), entity.value("U8")), (6, Some(ValueRef::Int64(7))));
}

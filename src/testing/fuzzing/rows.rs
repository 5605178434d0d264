//! Fuzz targets for user keys, shapes and rows, and for values as text.

use std::fmt::Debug;
use std::sync::Arc;

use super::made::made;
use crate::codec::Cursor;
use crate::format::key::{DisplayKey, decode_part, decode_user_key, user_key};
use crate::format::row::{decode_row, encode_row, row_shape_number};
use crate::format::shape::{decode_shape, encode_shape, read_shape};
use crate::model::{
    DateTime, ETag, EdmType, Entity, Field, FromValue, Guid, RowRef, Seq, Shape, ShapeRef, ValueRef,
};

/// Tests user keys.
pub fn key(data: &[u8]) {
    let _text = DisplayKey(data).to_string();
    let Ok((table, pk, rk)) = decode_user_key(data) else { return };
    if let (Ok(pk), Ok(rk)) = (decode_part(pk), decode_part(rk))
        && !rk.contains('\0')
    {
        assert_eq!(user_key(table, &pk, &rk), data, "a key has one encoding");
    }
}

/// Tests shapes.
pub fn shape(data: &[u8]) {
    let Ok(shape) = decode_shape(data) else { return };
    let encoded = made(|out| encode_shape(out, &shape));
    assert!(encoded.len() <= data.len(), "encoding is the shortest");
    assert_eq!(decode_shape(&encoded).as_ref(), Ok(&shape));
}

/// Tests rows that contain their own shape (list of properties), and rows of two known shapes.
pub fn row(data: &[u8]) {
    let shapes = known_shapes();
    let lookup = |number: u32| shapes.get(number as usize);
    let Ok(row) = decode_row(data, lookup) else { return };
    let _number = row_shape_number(data);
    // Reading values must not panic, even if the row was not checked before.
    let names: Vec<_> = row.shape.arc().properties().map(|(name, _)| name.to_owned()).collect();
    let fields = row.shape.arc().fields(row.body);
    for name in &names {
        let found = row.find(name).ok().flatten();
        // Decoders of many rows look up a property once and then use its position. Reading at the
        // position must return the same value.
        let place = row.shape.arc().place_of(name);
        let field =
            fields.field(place.unwrap_or_else(|| panic!("a property of the shape: {name}")));
        assert_eq!(format!("{:?}", field.value()), format!("{found:?}"), "{name}");
        check_types(field, found);
    }
    if row.check().is_ok() {
        check_sound_row(&row);
    }
}

/// Checks for several types that `from_field` and `from_value` return the same.
fn check_types<'a>(field: Field<'_, 'a>, value: Option<ValueRef<'a>>) {
    fn check<'a, T: FromValue<'a> + Debug>(field: Field<'_, 'a>, value: Option<ValueRef<'a>>) {
        let Some(taken) = T::from_field(field) else { return };
        let made = value.and_then(T::from_value);
        assert_eq!(format!("{:?}", Some(taken)), format!("{made:?}"));
    }
    check::<&str>(field, value);
    check::<&[u8]>(field, value);
    check::<bool>(field, value);
    check::<i32>(field, value);
    check::<i64>(field, value);
    check::<f64>(field, value);
    check::<DateTime>(field, value);
    check::<Guid>(field, value);
}

fn check_sound_row(row: &RowRef<'_>) {
    let encoded = made(|out| encode_row(out, None, row));
    let again = decode_row(&encoded, |_| None);
    assert_eq!(again.as_ref().map(|again| again.body), Ok(row.body));
    // An accepted body must equal the encoding of its values.
    let shape = row.shape.arc();
    let values: Result<Vec<_>, _> = (0..shape.len()).map(|i| row.value(i)).collect();
    let values = values.unwrap_or_else(|error| panic!("a checked row has its values: {error}"));
    let body = made(|out| shape.encode_body(values.iter().copied(), out));
    assert_eq!(body, row.body, "equal values have one body");
    let key = user_key(crate::format::names::TableId(1), "p", "r");
    let parts = decode_user_key(&key).unwrap_or_else(|error| panic!("a key of ours: {error}"));
    if let Ok(entity) = Entity::from_row(parts.1, parts.2, Seq(1), row) {
        assert_eq!(entity.properties().count(), shape.len());
    }
}

fn known_shapes() -> [Arc<Shape>; 2] {
    let all = EdmType::ALL.into_iter().map(|edm| (edm.name().into(), edm)).collect();
    let flight =
        [("Carrier", EdmType::String), ("Delay", EdmType::Int32), ("Tail", EdmType::String)];
    let flight = flight.into_iter().map(|(name, edm)| (name.into(), edm)).collect();
    [Arc::new(Shape::new(all)), Arc::new(Shape::new(flight))]
}

/// Tests dates, GUIDs and ETags as text: a parsed value, written as text, must parse to the same
/// value.
pub fn text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(time) = text.parse::<DateTime>() {
        assert_eq!(time.to_string().parse::<DateTime>().ok(), Some(time));
    }
    if let Ok(guid) = text.parse::<Guid>() {
        assert_eq!(guid.to_string().parse::<Guid>().ok(), Some(guid));
    }
    if let Ok(etag) = text.parse::<ETag>() {
        assert_eq!(etag.to_string().parse::<ETag>().ok(), Some(etag));
    }
}

/// Splits `data` into a shape and a row of that shape.
pub(super) fn split_shape(data: &[u8]) -> Option<(Arc<Shape>, &[u8])> {
    let mut cursor = Cursor::new("example", data);
    let shape = read_shape(&mut cursor).ok()?;
    Some((Arc::new(shape), cursor.rest()))
}

/// Returns a row that refers to `shape` by number instead of containing it.
pub(super) fn numbered<'a>(shape: &'a Arc<Shape>, body: &'a [u8]) -> RowRef<'a> {
    RowRef { shape: ShapeRef::Shared(shape), body }
}

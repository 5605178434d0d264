//! Tests decoding of damaged rows and of rows that contain their shape. The other tests of decoding
//! use databases.

use super::*;
use crate::model::{DateTime, EdmType, RowRef, Seq, ShapeRef, ValueRef};

/// Damages each byte, and cuts the row at each length. Decoding must return an error or some value,
/// must not panic, and must agree with reading by name.
#[test]
fn damage_is_an_error() {
    let shape = Arc::new(Shape::new(vec![
        ("At".into(), EdmType::DateTime),
        ("Flag".into(), EdmType::Boolean),
        ("Name".into(), EdmType::String),
        ("Raw".into(), EdmType::Binary),
    ]));
    let values = [
        ValueRef::DateTime(DateTime::from_ticks(5).unwrap()),
        ValueRef::Boolean(true),
        ValueRef::String("bolt"),
        ValueRef::Binary(&[1, 2]),
    ];
    let mut body = Vec::new();
    shape.encode_body(values.into_iter(), &mut body);
    type All<'r> = (DateTime, bool, &'r str, &'r [u8]);
    let check = |body: &[u8]| {
        let row = RowRef { shape: ShapeRef::Shared(&shape), body };
        let row = RowView::new(b"key", Seq(1), row);
        let mut decoder = RowDecoder::new(["At", "Flag", "Name", "Raw"]);
        let decoded = decoder.decode::<All<'_>>(&row).map_err(|error| error.kind());
        let by_name = || {
            Ok((
                DateTime::from_value(row.value("At")?.unwrap()).unwrap(),
                bool::from_value(row.value("Flag")?.unwrap()).unwrap(),
                <&str>::from_value(row.value("Name")?.unwrap()).unwrap(),
                <&[u8]>::from_value(row.value("Raw")?.unwrap()).unwrap(),
            ))
        };
        let by_name: Result<All<'_>> = by_name();
        assert_eq!(decoded, by_name.map_err(|error| error.kind()), "{body:?}");
        decoded.is_err()
    };
    assert!(!check(&body));
    let mut failed = 0;
    for at in 0..body.len() {
        failed += usize::from(check(&body[..at]));
        for byte in [0, 1, 2, 7, 0x7f, 0xff] {
            let mut damaged = body.clone();
            damaged[at] = byte;
            failed += usize::from(check(&damaged));
        }
    }
    assert!(failed > body.len(), "{failed}");
}

#[test]
fn self_describing_rows_share_one_cache_entry() {
    let shape = || Arc::new(Shape::new(vec![("Stock".into(), EdmType::Int32)]));
    let first = shape();
    let mut decoder = RowDecoder::new(["Stock"]);
    for stock in 0..100_i32 {
        let body = stock.to_le_bytes();
        let own = if stock == 0 { Arc::clone(&first) } else { shape() };
        let row = RowRef { shape: ShapeRef::Own(own), body: &body };
        let row = RowView::new(b"key", Seq(1), row);
        assert_eq!(decoder.decode::<(i32,)>(&row).unwrap(), (stock,));
    }
    // The first shape must still be cached: it would be evicted if equal shapes were cached
    // separately.
    assert_eq!(decoder.recent.find(|known| Arc::ptr_eq(&known.shape, &first)), Some(0));
}

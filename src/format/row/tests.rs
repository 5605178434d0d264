//! Tests of rows: framing, round trips and hostile bytes.

use super::super::shape::decode_shape;
use super::*;
use crate::model::{EdmType, Entity, Row, ShapeId, Shapes};
use crate::rng::Rng;

fn any_row(rng: &mut Rng, shapes: &Shapes) -> Row {
    let mut entity = Entity::new("p", "r");
    for i in 0..rng.below(5) {
        let name = format!("P{i}");
        match rng.below(4) {
            0 => entity.set(name, rng.next_u64() as i32),
            1 => entity.set(name, "é".repeat(rng.below(40) as usize)),
            2 => entity.set(name, vec![7u8; rng.below(300) as usize]),
            _ => entity.set(name, rng.chance(1, 2)),
        };
    }
    entity.to_row(shapes).unwrap()
}

#[test]
fn rows_round_trip_with_a_number_and_without() {
    let (mut rng, shapes) = (Rng::from_seed(1), Shapes::new(1 << 20));
    for _ in 0..2_000 {
        let row = any_row(&mut rng, &shapes);
        let id = shapes.intern_arc(&row.shape).id;
        for number in [id.map(|id| id.0), None] {
            let mut bytes = Vec::new();
            encode_row(&mut bytes, number, &row.as_ref());
            let back = decode_row(&bytes, |number| shapes.get(ShapeId(number))).unwrap();
            assert_eq!(back.to_row(), row);
            assert_eq!(row_shape_number(&bytes), Ok(number));
            let Some(number) = number else { continue };
            assert_eq!([RowHead::new(number).as_slice(), &row.body].concat(), bytes);
        }
    }
}

#[test]
fn heads_are_varints_of_the_number_plus_one() {
    for number in [0, 1, 0x7e, 0x7f, 0x3ffe, 0x3fff, 0x1f_ffff, 0xfff_ffff, u32::MAX] {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, u64::from(number) + 1);
        assert_eq!(RowHead::new(number).as_slice(), bytes);
    }
    assert_eq!(RowHead::default().as_slice(), b"");
}

#[test]
fn hostile_rows_never_panic() {
    let (mut rng, shapes) = (Rng::from_seed(2), Shapes::new(1 << 20));
    for _ in 0..30_000 {
        let row = any_row(&mut rng, &shapes);
        let number = rng.chance(1, 3).then_some(0);
        let mut bytes = Vec::new();
        encode_row(&mut bytes, number, &row.as_ref());
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.next_u64() as u8;
        }
        bytes.truncate(rng.below(bytes.len() as u64 + 9) as usize);
        let Ok(row) = decode_row(&bytes, |number| shapes.get(ShapeId(number))) else {
            continue;
        };
        for index in 0..row.shape.arc().len() {
            let _ = row.value(index);
        }
        if row.check().is_ok() {
            assert!(Entity::from_row(b"p", b"r", crate::model::Seq(1), &row).is_ok());
        }
    }
}

#[test]
fn a_number_without_a_shape_is_an_error() {
    let problem = |bytes: &[u8]| decode_row(bytes, |_| None).unwrap_err().to_string();
    assert_eq!(problem(&[6]), "row at byte 0: no shape 5");
    assert_eq!(
        problem(&[0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]),
        "row at byte 0: no shape 4398046511102"
    );
    assert_eq!(problem(&[]), "row at byte 0: 1 bytes wanted, 0 left");
}

#[track_caller]
fn check_shape(bytes: &[u8], problem: &str) {
    assert_eq!(decode_shape(bytes).unwrap_err().to_string(), format!("shape at {problem}"));
}

#[test]
fn a_malformed_shape_is_reported() {
    check_shape(&[], "byte 0: 1 bytes wanted, 0 left");
    check_shape(&[0xfd, 1], "byte 2: count 253 is above the limit 252");
    check_shape(
        &[1, 0x84, 1, b'a'],
        "byte 2: code 132: values stored elsewhere unknown to this version",
    );
    check_shape(&[1, 9, 1, b'a'], "byte 2: code 9: type unknown to this version");
    check_shape(&[1, 4, 1, 0xff], "byte 4: a name is not UTF-8");
    check_shape(&[2, 4, 1, b'b', 4, 1, b'a'], "byte 7: names do not ascend");
    check_shape(&[2, 4, 1, b'a', 5, 1, b'a'], "byte 7: names do not ascend");
    check_shape(&[0, 0], "byte 1: 1 bytes too many");
}

#[test]
fn shapes_round_trip() {
    for count in [0, 1, 19, 252] {
        let properties =
            (0..count).map(|i| (format!("P{i}").into(), EdmType::ALL[i % 8])).collect();
        let shape = Shape::new(properties);
        let mut bytes = Vec::new();
        encode_shape(&mut bytes, &shape);
        assert_eq!(decode_shape(&bytes), Ok(shape));
    }
}

//! Tests of shapes: positions, values and hostile bodies.

use super::*;
use crate::model::Value;
use crate::rng::Rng;

fn shape(properties: &[(&str, EdmType)]) -> Shape {
    Shape::new(properties.iter().map(|(name, edm)| ((*name).into(), *edm)).collect())
}

/// Returns a value of any type, often at an edge of its range.
fn any_value(rng: &mut Rng) -> Value {
    let len = *rng.pick(&[0, 1, 3, 200, 300]);
    match *rng.pick(&EdmType::ALL) {
        EdmType::String => {
            Value::String((0..len).map(|_| *rng.pick(&['a', 'é', '名', '😀'])).collect())
        }
        EdmType::Binary => Value::Binary((0..len).map(|_| rng.next_u64() as u8).collect()),
        EdmType::Boolean => Value::Boolean(rng.chance(1, 2)),
        EdmType::Int32 => Value::Int32(*rng.pick(&[0, 1, -1, i32::MIN, i32::MAX])),
        EdmType::Int64 => Value::Int64(*rng.pick(&[0, 1, -1, i64::MIN, i64::MAX])),
        EdmType::Double => Value::Double(*rng.pick(&[0.0, -0.0, 0.1, f64::MAX, f64::INFINITY])),
        EdmType::DateTime => Value::DateTime(*rng.pick(&[DateTime::MIN, DateTime::MAX])),
        EdmType::Guid => Value::Guid(Guid::from_bytes([rng.next_u64() as u8; 16])),
    }
}

/// Returns a shape, values of its types, and the body.
fn any_body(rng: &mut Rng) -> (Shape, Vec<Value>, Vec<u8>) {
    let count = rng.below(12) as usize;
    let values: Vec<Value> = (0..count).map(|_| any_value(rng)).collect();
    let names: Vec<String> = (0..count).map(|i| format!("P{i:02}")).collect();
    let types = names.iter().zip(&values).map(|(name, value)| (&**name, value.edm_type()));
    let shape = Shape::from_sorted(types);
    let mut body = Vec::new();
    shape.encode_body(values.iter().map(|value| value.as_ref()), &mut body);
    (shape, values, body)
}

#[test]
fn properties_are_found_by_name_whatever_order_they_came_in() {
    let shape = shape(&[("b", EdmType::Int32), ("B", EdmType::String), ("a", EdmType::Guid)]);
    let names: Vec<_> = shape.properties().map(|(name, _)| name).collect();
    assert_eq!(names, ["B", "a", "b"]);
    assert_eq!(shape.find("b"), Some(2));
    assert_eq!(shape.property(1), ("a", EdmType::Guid));
    assert_eq!(shape.find("c"), None);
}

#[test]
fn equal_names_and_types_are_one_shape() {
    let properties = [("x", EdmType::Int32), ("y", EdmType::String)];
    assert_eq!(shape(&properties), shape(&[properties[1], properties[0]]));
    assert_ne!(shape(&properties), shape(&[("x", EdmType::Int64), ("y", EdmType::String)]));
    assert_ne!(shape(&[("ab", EdmType::Int32)]), shape(&[("a", EdmType::Int32)]));
    let names = |a, b| shape(&[(a, EdmType::Int32), (b, EdmType::Int32)]);
    assert_ne!(names("a", "bc"), names("ab", "c"));
}

#[test]
fn bodies_round_trip() {
    let mut rng = Rng::from_seed(3);
    for _ in 0..2_000 {
        let (shape, values, body) = any_body(&mut rng);
        assert_eq!(shape.check(&body), Ok(()));
        assert_eq!(body.len(), {
            let variable: usize = values.iter().map(|v| v.as_ref().variable_bytes().len()).sum();
            shape.body_bytes(variable)
        });
        for (index, value) in values.iter().enumerate() {
            assert_eq!(shape.value(&body, index), Ok(value.as_ref()));
        }
    }
}

/// A walk finds the same values as look-ups, up to the first damaged value.
#[test]
fn a_walk_and_look_ups_find_the_same_values() {
    let mut rng = Rng::from_seed(5);
    let mut ended = 0;
    for round in 0..20_000 {
        let (shape, _, mut body) = any_body(&mut rng);
        if round % 4 > 0 {
            damage(&mut rng, &mut body);
        }
        let mut walk = shape.walk(&body);
        for index in 0..shape.len() {
            let (name, found) = (shape.property(index).0, shape.value(&body, index));
            let is_err = found.is_err();
            let expected = Some(found.map(|value| (name, value)));
            // Compared as texts, because a NaN does not equal itself.
            assert_eq!(format!("{:?}", walk.next()), format!("{expected:?}"));
            if is_err {
                ended += 1;
                break;
            }
        }
        assert_eq!(walk.next(), None);
    }
    assert!(ended > 2_000, "{ended}");
}

#[test]
fn hostile_bodies_are_refused_or_encode_back_to_themselves() {
    let mut rng = Rng::from_seed(4);
    let mut refused = 0;
    for _ in 0..20_000 {
        let (shape, _, mut body) = any_body(&mut rng);
        damage(&mut rng, &mut body);
        for index in 0..shape.len() {
            let _ = shape.value(&body, index);
        }
        let variable = |index: &usize| shape.property(*index).1.fixed_width().is_none();
        let raws = (0..shape.len()).filter(variable).map(|index| shape.raw(&body, index));
        assert!(shape.raw_variables(&body).eq(raws));
        match shape.check(&body) {
            Ok(()) => {
                let values: Result<Vec<_>, _> = shape.values(&body).collect();
                let mut again = Vec::new();
                shape.encode_body(values.unwrap().into_iter(), &mut again);
                assert_eq!(again, body);
            }
            Err(error) => {
                assert!(error.at <= body.len());
                refused += 1;
            }
        }
    }
    assert!(refused > 5_000, "{refused}");
}

/// Flips a few bytes, truncates, or appends bytes.
pub(in crate::model) fn damage(rng: &mut Rng, bytes: &mut Vec<u8>) {
    match rng.below(4) {
        0 => bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize),
        1 => bytes.extend((0..=rng.below(9)).map(|_| rng.next_u64() as u8)),
        _ => {
            for _ in 0..=rng.below(3) {
                if !bytes.is_empty() {
                    let at = rng.below(bytes.len() as u64) as usize;
                    bytes[at] = rng.next_u64() as u8;
                }
            }
        }
    }
}

#[track_caller]
fn check_damaged(properties: &[(&str, EdmType)], body: &[u8], problem: &str) {
    assert_eq!(
        shape(properties).check(body).unwrap_err().to_string(),
        format!("row body at {problem}")
    );
}

#[test]
fn errors_name_the_damage_of_a_body_and_its_byte() {
    const TEXT: [(&str, EdmType); 1] = [("a", EdmType::String)];
    const TWO: [(&str, EdmType); 2] = [("a", EdmType::String), ("b", EdmType::Binary)];
    check_damaged(&[("a", EdmType::Boolean)], &[2], "byte 0: a boolean is neither 0 nor 1");
    check_damaged(&[("a", EdmType::DateTime)], &[0xff; 8], "byte 0: a time is after the year 9999");
    check_damaged(&[("a", EdmType::Int32)], &[0; 3], "byte 3: length does not fit the shape");
    check_damaged(&[("a", EdmType::Int32)], &[0; 5], "byte 4: length does not fit the shape");
    check_damaged(&TEXT, &[], "byte 0: shorter than its shape");
    check_damaged(&TEXT, &[3, 0, 0, 0], "byte 0: the width of end offsets is not 1, 2 or 4");
    check_damaged(&TEXT, &[1, 2, b'a'], "byte 0: end offsets do not fit the body");
    check_damaged(&TEXT, &[2, 1, 0, b'a'], "byte 0: end offsets do not fit the body");
    check_damaged(&TEXT, &[1, 1, 0xff], "byte 2: text is not UTF-8");
    check_damaged(&TWO, &[1, 2, 1, b'a', b'b'], "byte 0: end offsets descend");
    // The concatenation of both texts is valid UTF-8, but neither text is.
    let halves = [("a", EdmType::String), ("b", EdmType::String)];
    check_damaged(&halves, &[1, 1, 2, 0xc3, 0xa9], "byte 3: text is not UTF-8");
}

#[test]
fn offsets_use_the_smallest_width() {
    let shape = shape(&[("a", EdmType::Binary)]);
    for (len, width) in [(0, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 4)] {
        let mut body = Vec::new();
        shape.encode_body([ValueRef::Binary(&vec![9; len])].into_iter(), &mut body);
        assert_eq!((usize::from(body[0]), body.len()), (width, 1 + width + len));
        assert_eq!(shape.check(&body), Ok(()));
    }
}

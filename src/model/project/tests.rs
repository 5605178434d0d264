//! Tests of projections, and of the encoder for many rows.

use super::*;
use crate::model::{Row, Shapes};

fn row(entity: &Entity) -> Row {
    entity.to_row(&Shapes::new(1 << 20)).unwrap()
}

fn entity() -> Entity {
    Entity::new("p", "r").with("A", 1).with("B", "text").with("C", vec![1u8]).with("D", true)
}

#[track_caller]
fn check(names: &[&str], expected: Entity) {
    let mut projector = Projector::new(names);
    for _ in 0..2 {
        let projected = projector.entity(b"p", b"r", Seq(1), &row(&entity()).as_ref()).unwrap();
        assert_eq!(projected, expected);
        assert!(projected.etag().is_some());
    }
}

#[test]
fn selected_properties_in_any_order() {
    check(&["D", "B"], Entity::new("p", "r").with("B", "text").with("D", true));
    check(&["A", "A"], Entity::new("p", "r").with("A", 1));
    check(&["A", "B", "C", "D"], entity());
}

#[test]
fn names_that_the_row_lacks_are_absent() {
    check(&["A", "Z", "a", "Timestamp"], Entity::new("p", "r").with("A", 1));
    check(&[], Entity::new("p", "r"));
}

#[test]
fn rows_with_more_shapes_than_the_cache_holds_are_projected() {
    let mut projector = Projector::new(&["A"]);
    for i in 0..100 {
        let row = row(&Entity::new("p", "r").with("A", i).with(format!("P{}", i % 40), 1));
        let projected = projector.entity(b"p", b"r", Seq(1), &row.as_ref()).unwrap();
        assert_eq!(projected, Entity::new("p", "r").with("A", i));
    }
}

#[test]
fn damage_in_a_selected_property_is_an_error() {
    let mut damaged = row(&entity());
    damaged.body[4] = 7; // D, after the four bytes of A
    let select =
        |names: &[&str]| Projector::new(names).entity(b"p", b"r", Seq(1), &damaged.as_ref());
    assert!(select(&["D"]).is_err());
    assert!(select(&["A"]).is_ok());
}

#[test]
fn property_lists_become_entities() {
    let mut encoder = EntityEncoder::default();
    for _ in 0..2 {
        let mut list = [
            ("D", ValueRef::Boolean(true)),
            ("A", ValueRef::Int32(1)),
            ("C", ValueRef::Binary(&[1])),
            ("B", ValueRef::String("text")),
        ];
        let made = encoder.entity("p", "r", &mut list).unwrap();
        assert_eq!(made, entity());
        assert_eq!((made.etag(), row(&made)), (None, row(&entity())));
    }
}

#[test]
fn property_lists_are_checked() {
    let mut encoder = EntityEncoder::default();
    let mut refusal =
        |list: &mut [(&str, ValueRef<'_>)]| encoder.entity("p", "r", list).unwrap_err().code();
    let one = ValueRef::Int32(1);
    assert_eq!(refusal(&mut [("A", one), ("A", one)]), "DuplicatePropertiesSpecified");
    assert_eq!(refusal(&mut [("a-b", one)]), "PropertyNameInvalid");
    let long = "a".repeat(32_769);
    assert_eq!(refusal(&mut [("A", ValueRef::String(&long))]), "PropertyValueTooLarge");
}

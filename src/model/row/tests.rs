//! Tests of rows and merges.

use super::*;
use crate::model::{Entity, Seq, Shapes};

#[track_caller]
fn check(old: Entity, patch: Entity, expected: Entity) {
    let shapes = Shapes::new(1 << 20);
    let (old, patch) = (old.to_row(&shapes).unwrap(), patch.to_row(&shapes).unwrap());
    let merged = merge_rows(&old.as_ref(), &patch.as_ref(), false).unwrap();
    assert_eq!(merged, expected.to_row(&shapes).unwrap());
    let entity = Entity::from_row(b"p", b"r", Seq(1), &merged.as_ref()).unwrap();
    assert_eq!(entity, expected);
}

fn entity() -> Entity {
    Entity::new("p", "r")
}

#[test]
fn properties_of_the_patch_are_set_and_all_others_kept() {
    check(
        entity().with("A", 1).with("B", "old").with("D", true),
        entity().with("B", "new").with("C", 2i64),
        entity().with("A", 1).with("B", "new").with("C", 2i64).with("D", true),
    );
}

#[test]
fn a_property_may_change_its_type() {
    check(
        entity().with("A", 1).with("B", 2),
        entity().with("A", "one"),
        entity().with("A", "one").with("B", 2),
    );
}

#[test]
fn merges_with_an_empty_row_or_patch() {
    check(entity(), entity().with("A", 1), entity().with("A", 1));
    check(entity().with("A", 1), entity(), entity().with("A", 1));
    check(entity(), entity(), entity());
}

#[test]
fn the_same_shape_is_a_replacement() {
    check(
        entity().with("A", 1).with("B", "x"),
        entity().with("A", 2).with("B", "y"),
        entity().with("A", 2).with("B", "y"),
    );
}

#[test]
fn small_merges_agree_with_a_map() {
    let variants = |name: &'static str| {
        [None, Some((name, ValueRef::Int32(1))), Some((name, ValueRef::String("x")))]
    };
    let mut all = Vec::new();
    for a in variants("A") {
        for b in variants("B") {
            for c in variants("C") {
                all.push([a, b, c]);
            }
        }
    }
    let build = |list: &[Option<(&str, ValueRef<'_>)>]| {
        list.iter().flatten().fold(entity(), |e, (name, value)| e.with(*name, *value))
    };
    for old in &all {
        for patch in &all {
            let merged: Vec<_> = old.iter().zip(patch).map(|(old, patch)| patch.or(*old)).collect();
            check(build(old), build(patch), build(&merged));
        }
    }
}

#[test]
fn a_damaged_body_is_an_error() {
    let shape = Arc::new(Shape::new(vec![("A".into(), crate::model::EdmType::String)]));
    let damaged = Row { shape, body: vec![1, 9] };
    let patch = entity().with("B", 1).to_row(&Shapes::new(1 << 20)).unwrap();
    assert!(merge_rows(&damaged.as_ref(), &patch.as_ref(), false).is_err());
    // This shape already has the patch's property with the same type, so the merge keeps the shape.
    let shape = Arc::new(Shape::new(vec![
        ("A".into(), crate::model::EdmType::String),
        ("B".into(), crate::model::EdmType::Int32),
    ]));
    let torn = Row { shape, body: vec![1, 0, 0, 0, 1, 9] };
    assert!(merge_rows(&torn.as_ref(), &patch.as_ref(), false).is_err());
    assert!(damaged.as_ref().find("A").is_err());
    assert_eq!(damaged.as_ref().find("B"), Ok(None));
}

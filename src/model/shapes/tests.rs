//! Tests of the registry of shapes.

use super::*;

fn shape(name: &str) -> Shape {
    Shape::new(vec![(name.into(), EdmType::Int32)])
}

#[test]
fn a_shape_has_one_number() {
    let shapes = Shapes::new(1 << 20);
    let (a, b) = (shapes.intern(&shape("a")), shapes.intern(&shape("b")));
    assert_eq!((a.id, b.id), (Some(ShapeId(0)), Some(ShapeId(1))));
    let again =
        shapes.intern_outline(Outline { names: "a", types: [(1, EdmType::Int32)].into_iter() });
    assert_eq!(again.id, a.id);
    assert!(Arc::ptr_eq(&again.shape, &a.shape));
    assert!(Arc::ptr_eq(shapes.get(ShapeId(1)).unwrap(), &b.shape));
    assert_eq!((shapes.number(&a.shape), shapes.number(&b.shape)), (a.id, b.id));
    assert_eq!(shapes.number(&Arc::new(shape("a"))), a.id);
    assert!(shapes.get(ShapeId(2)).is_none());
    assert!(shapes.get(ShapeId(u32::MAX)).is_none());
}

#[test]
fn shape_numbers_are_stable_across_segments_and_evicted_look_ups() {
    let shapes = Shapes::new(1 << 20);
    let ids: Vec<_> = (0..1000).map(|i| shapes.intern(&shape(&format!("P{i}"))).id).collect();
    for (i, id) in ids.into_iter().enumerate() {
        assert_eq!(id, Some(ShapeId(i as u32)));
        assert_eq!(shapes.intern(&shape(&format!("P{i}"))).id, id);
        assert_eq!(**shapes.get(id.unwrap()).unwrap(), shape(&format!("P{i}")));
    }
    assert_eq!(shapes.len(), 1000);
}

#[test]
fn a_full_registry_finds_known_shapes_and_numbers_no_new_ones() {
    let shapes = Shapes::new(10_000);
    let ids: Vec<_> = (0..1000).map(|i| shapes.intern(&shape(&format!("P{i}"))).id).collect();
    assert!(ids[0].is_some() && ids[999].is_none());
    let beyond = shapes.intern_arc(&Arc::new(shape("P999")));
    assert_eq!((beyond.id, &*beyond.shape), (None, &shape("P999")));
    assert_eq!(shapes.intern(&shape("P0")).id, Some(ShapeId(0)));
}

#[test]
fn invalid_shapes_get_no_number() {
    let shapes = Shapes::new(1 << 20);
    assert_eq!(shapes.intern(&shape("a-b")).id, None);
    assert_eq!(shapes.len(), 0);
}

#[test]
fn threads_that_intern_a_shape_concurrently_agree() {
    let shapes = Shapes::new(1 << 20);
    let ids: Vec<Vec<_>> = std::thread::scope(|scope| {
        let intern = || (0..200).map(|i| shapes.intern(&shape(&format!("P{i}"))).id).collect();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(intern)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|list| *list == ids[0]));
    assert_eq!(shapes.len(), 200);
}

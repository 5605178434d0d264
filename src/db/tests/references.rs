//! Tests of the search for references to missing entities.

use super::*;
use crate::db::{ReferenceCheck, References};
use crate::table::Table;

/// Creates 600 flights with one of 30 planes each. Every third plane does not exist, and every
/// tenth flight has no plane.
fn tables(db: &Db, other: &Db) -> (Table, Table) {
    let (flights, planes) =
        (db.create_table("flights").unwrap(), other.create_table("planes").unwrap());
    for i in (0..30).filter(|i| i % 3 != 0) {
        planes.insert(Entity::new("all", format!("N{i}")).with("Seats", i)).unwrap();
    }
    for i in 0..600 {
        let entity = Entity::new("UA", format!("{i:04}")).with("Month", i % 12);
        let tail = format!("N{}", i % 30);
        let entity = if i % 10 == 9 { entity } else { entity.with("Tail", tail) };
        flights.insert(entity).unwrap();
    }
    (flights, planes)
}

fn counts(found: &References) -> [u64; 5] {
    found.fields().map(|(_, count)| count)
}

#[test]
fn missing_targets_are_counted_and_named() {
    let db = open(&MemFs::new());
    let (flights, planes) = tables(&db, &db);
    let check = ReferenceCheck::new(&flights, &planes, "all", "{Tail}").unwrap();
    let found = check.run().unwrap();
    // Ten planes are missing: 0, 3, …, 27. Nine of them are referred to: no flight refers to N9,
    // because flights whose numbers end with 9 have no plane.
    assert_eq!(counts(&found), [600, 60, 360, 180, 9]);
    assert!(found.has_all_targets);
    let first = &found.targets[0];
    assert_eq!((&*first.partition_key, &*first.row_key, first.rows), ("all", "N0", 20));
    assert_eq!(first.first, ("UA".to_owned(), "0000".to_owned()));
    let mut steps = Vec::new();
    let some = check.filter("Month lt 6").unwrap();
    assert_eq!(some.run_with(|rows, of| steps.push((rows, of))).unwrap().rows, 300);
    assert_eq!(steps, [(300, 300)]);
    assert!(ReferenceCheck::new(&flights, &planes, "all", "{Tail").is_err());
}

#[test]
fn memory_is_bounded_and_the_counts_stay_right() {
    let db = open(&MemFs::new());
    let other = options(&MemFs::new()).open("other").unwrap();
    let (flights, planes) = tables(&db, &other);
    for bytes in [0, 300, 700] {
        let mut check = ReferenceCheck::new(&flights, &planes, "all", "{Tail}").unwrap();
        check.remembered_bytes = bytes;
        let found = check.run().unwrap();
        assert_eq!(counts(&found)[..4], [600, 60, 360, 180]);
        assert!(!found.has_all_targets && found.targets.len() < 9);
    }
}

#[test]
fn references_to_keys_with_forbidden_characters_are_missing() {
    let db = open(&MemFs::new());
    let (from, into) = (db.create_table("from").unwrap(), db.create_table("into").unwrap());
    from.insert(Entity::new("p", "1").with("To", "a/b").with("Nul", "\0")).unwrap();
    for template in ["{To}", "{Nul}"] {
        let check = ReferenceCheck::new(&from, &into, "p", template).unwrap();
        assert_eq!(counts(&check.run().unwrap()), [1, 0, 0, 1, 1]);
    }
}

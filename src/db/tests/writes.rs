//! Tests of writes by reference, of single writes that are submitted, and of the names in errors.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::ManualClock;
use crate::db::Db;
use crate::error::Error;
use crate::model::{Entity, EntityEncoder, ValueRef};
use crate::options::{Background, Options, Targets};
use crate::table::{EntityGroup, Operation, Table};

fn open(background: Background) -> (Db, Table) {
    let options = Options::new().background(background).memtable_bytes(64 << 10);
    let db = options.open_in_memory().unwrap();
    let table = db.create_table("parts").unwrap();
    (db, table)
}

fn bolt() -> Entity {
    Entity::new("bolts", "m4").with("Stock", 1).with("Coated", true)
}

#[test]
fn a_refused_entity_or_group_can_be_written_again() {
    let (_db, table) = open(Background::Manual);
    let bolt = bolt();
    table.insert(&bolt).unwrap();
    assert_eq!(table.insert(&bolt).unwrap_err().code(), "EntityAlreadyExists");
    let etag = table.upsert(&bolt).unwrap();
    table.merge_if(&bolt, &etag).unwrap();
    assert_eq!(table.replace_if(&bolt, etag).unwrap_err().code(), "UpdateConditionNotSatisfied");
    table.upsert_merge(&bolt).unwrap();
    table.merge(&bolt).unwrap();
    table.replace(&bolt).unwrap();
    let mut group = EntityGroup::new("bolts");
    group.insert(bolt).unwrap();
    assert_eq!(table.commit(&group).unwrap_err().index(), Some(0));
    table.delete("bolts", "m4").unwrap();
    assert_eq!(table.commit_async(&group).unwrap().wait().unwrap().len(), 1);
}

#[test]
fn properties_are_upserted_and_merged_as_entities_are() {
    let (_db, table) = open(Background::Manual);
    let mut encoder = EntityEncoder::default();
    let mut row = [("Stock", ValueRef::Int32(1)), ("Coated", ValueRef::Boolean(true))];
    let missing = table.merge_properties(&mut encoder, "bolts", "m4", &mut row).unwrap_err();
    assert_eq!(missing.code(), "ResourceNotFound");
    let etag = table.upsert_properties(&mut encoder, "bolts", "m4", &mut row).unwrap();
    let found = table.get("bolts", "m4").unwrap().unwrap();
    assert_eq!((&found, found.etag()), (&bolt(), Some(etag)));
    let mut other = [("Stock", ValueRef::Int32(2)), ("Length", ValueRef::Double(20.0))];
    table.merge_properties(&mut encoder, "bolts", "m4", &mut other).unwrap();
    let merged = bolt().with("Stock", 2).with("Length", 20.0);
    assert_eq!(table.get("bolts", "m4").unwrap().unwrap(), merged);
    table.upsert_properties(&mut encoder, "bolts", "m4", &mut other).unwrap();
    assert_eq!(table.get("bolts", "m4").unwrap().unwrap().len(), 2);
}

#[test]
fn a_single_write_is_submitted_and_checked_as_a_blocking_one() {
    let (_db, table) = open(Background::Manual);
    let insert = Operation::Insert(bolt());
    let etags = table.write_async(&insert).unwrap().wait().unwrap();
    assert_eq!(etags, [table.get("bolts", "m4").unwrap().unwrap().etag()]);
    let refused = table.write_async(&insert).unwrap_err();
    assert_eq!((refused.code(), refused.index()), ("EntityAlreadyExists", None));
    let (partition_key, row_key) = ("bolts".to_owned(), "m4".to_owned());
    let delete = Operation::Delete { partition_key, row_key, etag: etags[0].clone() };
    assert_eq!(table.write_async(&delete).unwrap().wait().unwrap(), [None]);
    assert_eq!(table.get("bolts", "m4").unwrap(), None);
}

#[track_caller]
fn check<T>(result: Result<T, Error>, text: &str) {
    let error = result.map(drop).unwrap_err();
    assert_eq!(error.to_string(), format!("{} ({text})", error.message()));
}

#[test]
fn errors_name_the_table_the_entity_and_the_property() {
    let (db, table) = open(Background::Manual);
    check(db.table("nuts"), "table 'nuts'");
    check(db.delete_table("nuts"), "table 'nuts'");
    check(db.create_table("Parts"), "table 'Parts'");
    check(db.create_table("a b"), "table 'a b'");
    let of_bolt = "entity 'bolts' 'm4' of table 'parts'";
    check(table.replace(bolt()), of_bolt);
    check(table.delete("bolts", "m4"), of_bolt);
    let etag = table.insert(bolt()).unwrap();
    check(table.insert(bolt()), of_bolt);
    table.upsert(bolt()).unwrap();
    check(table.delete_if("bolts", "m4", etag), of_bolt);
    let mut row = [("A", ValueRef::Int32(1))];
    check(table.insert_properties(&mut EntityEncoder::default(), "bolts", "m4", &mut row), of_bolt);
    let named = format!("property 'a b' of {of_bolt}");
    check(table.upsert(bolt().with("a b", 1)), &named);
    let large = format!("property 'Text' of {of_bolt}");
    check(table.upsert(bolt().with("Text", "x".repeat(40_000))), &large);
    check(table.insert(Entity::new("a/b", "1")), "entity 'a/b' '1' of table 'parts'");
    let mut group = EntityGroup::new("bolts");
    group.upsert(Entity::new("bolts", "m3")).unwrap().insert(bolt()).unwrap();
    check(table.commit(&group), of_bolt);
    check(group.insert(bolt()), "entity 'bolts' 'm4'");
    db.delete_table("parts").unwrap();
    check(table.upsert(bolt()), "table 'parts'");
    check(table.get("bolts", "m4"), "table 'parts'");
}

#[test]
fn an_error_of_opening_names_the_path_and_the_reason() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml/db");
    let error = Db::open(path).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(path) && text.contains("os error"), "{text}");
    assert!(!error.message().contains("os error"), "{error:?}");
}

#[test]
fn after_waiting_no_background_work_is_left() {
    for background in [Background::Manual, Background::OneThread, Background::Threads] {
        let (db, table) = open(background);
        for i in 0..2_000 {
            table.upsert(Entity::new("p", format!("{:04}", i * 7 % 1_000)).with("I", i)).unwrap();
        }
        db.flush().unwrap();
        db.wait_idle().unwrap();
        assert!(!db.step(Duration::ZERO), "{background:?}");
        assert!(db.stats().get("flushes").unwrap() > 1);
        db.wait_idle().unwrap();
    }
}

#[test]
fn a_group_encodes_each_entity_when_it_is_added() {
    let (_db, table) = open(Background::Manual);
    let mut group = EntityGroup::new("bolts");
    let mut encoder = EntityEncoder::default();
    for round in 0..3 {
        group.reset(format!("round {round}"));
        for row_key in ["b", "a", "c"] {
            let mut entity = Entity::new(group.partition_key(), row_key).with("Stock", round);
            group.insert(&entity).unwrap();
            entity.set("Stock", 99);
        }
        let mut row = [("Stock", ValueRef::Int32(round)), ("Coated", ValueRef::Boolean(true))];
        group.upsert_properties(&mut encoder, "d", &mut row).unwrap();
        group.insert_properties(&mut encoder, "e", &mut row).unwrap();
        assert_eq!(table.commit(&group).unwrap().len(), 5);
    }
    for (round, row_key) in (0..3).flat_map(|i| ["a", "b", "c", "d", "e"].map(|rk| (i, rk))) {
        let found = table.get(&format!("round {round}"), row_key).unwrap().unwrap();
        let expected = Entity::new(format!("round {round}"), row_key).with("Stock", round);
        match row_key {
            "d" | "e" => assert_eq!(found, expected.with("Coated", true)),
            _ => assert_eq!(found, expected),
        }
    }
    group.reset("round 0");
    let mut row = [("Stock", ValueRef::Int32(7))];
    group.merge_properties(&mut encoder, "d", &mut row).unwrap().delete("e").unwrap();
    group.upsert_merge(Entity::new("round 0", "a").with("Coated", false)).unwrap();
    assert_eq!(table.commit(&group).unwrap().iter().filter(|etag| etag.is_none()).count(), 1);
    let found = table.get("round 0", "d").unwrap().unwrap();
    assert_eq!((found.len(), found.get::<i32>("Stock").unwrap()), (2, 7));
    assert_eq!(table.get("round 0", "a").unwrap().unwrap().len(), 2);
    assert!(table.get("round 0", "e").unwrap().is_none());
}

#[test]
fn a_group_with_an_entity_that_violates_limits_is_refused_when_it_is_committed() {
    let (_db, table) = open(Background::Manual);
    table.insert(bolt()).unwrap();
    let bad = Entity::new("bolts", "m5").with("a-b", 1);
    let long = Entity::new("bolts", "m5").with("Note", "x".repeat(40_000));
    for (bad, code) in [(bad, "PropertyNameInvalid"), (long, "PropertyValueTooLarge")] {
        let mut group = EntityGroup::new("bolts");
        group.upsert(bolt()).unwrap().upsert(&bad).unwrap();
        let error = table.commit(&group).unwrap_err();
        assert_eq!((error.code(), error.index()), (code, Some(1)));
        // The error of an earlier operation takes precedence.
        group.reset("bolts");
        group.insert(bolt()).unwrap().upsert(&bad).unwrap();
        let error = table.commit(&group).unwrap_err();
        assert_eq!((error.code(), error.index()), ("EntityAlreadyExists", Some(0)));
    }
    let mut group = EntityGroup::new("bolts");
    group.upsert(bolt()).unwrap().delete("a/b").unwrap();
    assert_eq!(table.commit(&group).unwrap_err().code(), "OutOfRangeInput");
    // Properties are checked when they are added, and the group stays as it is.
    let mut row = [("a-b", ValueRef::Int32(1))];
    group.reset("bolts");
    group.upsert(bolt()).unwrap();
    let error = group.upsert_properties(&mut EntityEncoder::default(), "m5", &mut row);
    let error = error.unwrap_err();
    assert_eq!((error.code(), error.index()), ("PropertyNameInvalid", Some(1)));
    assert_eq!(table.commit(&group).unwrap().len(), 1);
}

#[test]
fn a_group_that_can_never_be_written_does_not_count_against_a_target() {
    let targets = Targets { partition_entities_per_second: 0, database_entities_per_second: 2 };
    let options = Options::new().background(Background::Manual).throttle(targets);
    let options = options.clock(Arc::new(ManualClock::new(1_000)));
    let table = options.open_in_memory().unwrap().create_table("parts").unwrap();
    let group = |row_keys: [&str; 2]| {
        let inserts = row_keys.map(|rk| Operation::Insert(Entity::new("bolts", rk)));
        EntityGroup::from_operations(inserts).unwrap()
    };
    let refused = |row_keys| {
        let error = table.commit(group(row_keys)).unwrap_err();
        (error.code(), error.index())
    };
    for _ in 0..3 {
        assert_eq!(refused(["1", "a/b"]), ("OutOfRangeInput", Some(1)));
    }
    table.commit(group(["1", "2"])).unwrap();
    // The target is used up. Operations before the malformed one are evaluated nevertheless.
    assert_eq!(refused(["3", "4"]), ("ServerBusy", None));
    assert_eq!(refused(["2", "a/b"]), ("EntityAlreadyExists", Some(0)));
}

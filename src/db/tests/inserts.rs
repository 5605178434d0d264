//! Tests of `Table::insert_properties`, which encodes a row only when the row is needed.

use crate::db::Db;
use crate::error::ErrorKind;
use crate::model::{EntityEncoder, ValueRef};
use crate::options::Background;
use crate::query::KeyRange;
use crate::table::{GateMode, Table};

fn insert(table: &Table, rk: &str, price: f64) -> Result<(), &'static str> {
    let mut row = [("Price", ValueRef::Double(price)), ("Name", ValueRef::String("bolt"))];
    let inserted = table.insert_properties(&mut EntityEncoder::default(), "p", rk, &mut row);
    inserted.map(drop).map_err(|error| error.code())
}

fn open() -> (Db, Table) {
    let options = Db::options().background(Background::Manual);
    let db = options.open_in_memory().unwrap();
    let table = db.create_table("parts").unwrap();
    (db, table)
}

#[test]
fn inserting_properties_gives_the_results_of_inserting_an_entity() {
    let (db, table) = open();
    for is_flushed in [false, true] {
        let rk = is_flushed.to_string();
        let settle = |db: &Db| {
            if is_flushed {
                db.flush().unwrap();
            }
        };
        assert_eq!(insert(&table, &rk, 1.5), Ok(()));
        settle(&db);
        assert_eq!(insert(&table, &rk, 2.5), Err("EntityAlreadyExists"));
        let found = table.get("p", &rk).unwrap().unwrap();
        assert_eq!((found.get("Price").unwrap(), found.get("Name").unwrap()), (1.5, "bolt"));
        table.delete("p", &rk).unwrap();
        settle(&db);
        assert_eq!(insert(&table, &rk, 3.5), Ok(()));
        table.delete_partition("p").unwrap();
        assert_eq!(insert(&table, &rk, 4.5), Ok(()));
        assert_eq!(insert(&table, &rk, 4.5), Err("EntityAlreadyExists"));
    }
}

#[test]
fn broken_limits_are_reported_before_an_existing_entity() {
    let (db, table) = open();
    insert(&table, "1", 1.0).unwrap();
    let mut twice = [("A", ValueRef::Int32(1)), ("A", ValueRef::Int32(2))];
    let mut large = [("A", ValueRef::String(&"x".repeat(40_000)))];
    let mut encoder = EntityEncoder::default();
    for row in [&mut twice[..], &mut large] {
        let error = table.insert_properties(&mut encoder, "p", "1", row).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
    let mut row = [("A", ValueRef::Int32(1))];
    let error = table.insert_properties(&mut encoder, "p", "a/b", &mut row).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    db.gate("parts", KeyRange::partition("p"), GateMode::ReadOnly).unwrap();
    assert_eq!(insert(&table, "1", 1.0), Err("ServerBusy"));
    db.lift_gate("parts", KeyRange::partition("p")).unwrap();
    assert_eq!(insert(&table, "1", 1.0), Err("EntityAlreadyExists"));
    db.delete_table("parts").unwrap();
    assert_eq!(insert(&table, "1", 1.0), Err("TableNotFound"));
    let again = db.create_table("parts").unwrap();
    insert(&again, "1", 1.0).unwrap();
    db.close().unwrap();
    assert_eq!(insert(&again, "1", 1.0), Err("InvalidInput"));
}

#[test]
fn a_buffer_that_held_a_long_row_takes_a_short_one() {
    let (_db, table) = open();
    let mut encoder = EntityEncoder::default();
    for (rk, len) in [("1", 30_000), ("2", 3), ("3", 0)] {
        let text = "x".repeat(len);
        let mut row = [("Text", ValueRef::String(&text)), ("Len", ValueRef::Int64(len as i64))];
        table.insert_properties(&mut encoder, "p", rk, &mut row).unwrap();
        let found = table.get("p", rk).unwrap().unwrap();
        assert_eq!((found.get("Text").unwrap(), found.get("Len").unwrap()), (&*text, len as i64));
    }
}

//! Tests of catalog rows that this build does not write.

use super::*;
use crate::format::names::TableId;
use crate::lsm::{Action, Batch, Condition, Gate, Op, Ops, PackedRow, TableChange};

/// Commits a row of the catalog.
fn put(db: &Db, row: &Entity) {
    let engine = &db.engine;
    let packed = row.to_row(&engine.env().shapes).unwrap();
    let key = user_key(TableId::CATALOG, row.partition_key(), row.row_key());
    let gate = Arc::new(Gate::new(TableId::CATALOG));
    let batch = Batch {
        ops: Ops::from_buf([Op {
            hash: engine.env().hash(&key),
            key: key.into(),
            condition: Condition::Any,
            action: Action::Put(PackedRow::of(packed, &engine.env().shapes)),
        }]),
        changes: Vec::new(),
        ..Batch::of_change(&gate, TableChange::Created(TableId(9)))
    };
    engine.commit(&batch, Durability::Sync).unwrap();
}

#[test]
fn catalog_rows_of_an_unknown_partition_are_ignored() {
    let fs = MemFs::new();
    let db = open(&fs);
    put(&db, &Entity::new("future", "x").with("Text", "y"));
    put(&db, &Entity::new("future", "y").with("Id", "text"));
    assert!(options(&fs.kill_image()).open("db").is_ok());
}

#[test]
fn a_catalog_row_without_a_required_property_is_corruption() {
    let rows = [
        Entity::new("table", "things").with("Name", "Things"),
        Entity::new("table", "things").with("Name", 7).with("Id", 1_i64),
        Entity::new("table", "things").with("Name", "Things").with("Id", 0_i64),
        Entity::new("table", "things").with("Name", "Things").with("Id", i64::from(u32::MAX)),
        Entity::new("next", "").with("Id", -1_i64),
        Entity::new("gate", "0000000000000001").with("Id", 1_i64),
        Entity::new("note", "00000000-x").with("Id", 0_i64).with("Text0", 7),
    ];
    for row in rows {
        let fs = MemFs::new();
        put(&open(&fs), &row);
        let error = options(&fs.kill_image()).open("db").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{row:?}: {error}");
    }
}

#[test]
fn no_table_is_created_when_no_number_is_left() {
    let fs = MemFs::new();
    put(&open(&fs), &Entity::new("next", "").with("Id", i64::from(u32::MAX) - 1));
    let image = fs.kill_image();
    let db = open(&image);
    db.create_table("aaa").unwrap();
    for _ in 0..2 {
        let refused = db.create_table("bbb").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    }
    let db = open(&image.kill_image());
    assert!(db.table("aaa").is_ok() && db.table("bbb").is_err());
}

#[test]
fn a_table_id_in_use_is_not_assigned_again() {
    let fs = MemFs::new();
    put(&open(&fs), &Entity::new("table", "things").with("Name", "Things").with("Id", 7_i64));
    let db = open(&fs.kill_image());
    db.create_table("others").unwrap();
    let ids: Vec<u32> = db.catalog.ids().into_iter().map(|id| id.0).collect();
    assert_eq!(ids, [7, 8]);
}

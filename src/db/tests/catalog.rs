//! Tests of catalog rows that this build does not write.

use super::*;
use crate::db::SuspectRows;
use crate::format::block::{BlockKind, BlockPlace, HEADER_BYTES, block_checksum};
use crate::format::names::TableId;
use crate::lsm::{Action, Batch, Condition, Gate, Op, Ops, PackedRow, TableChange};
use crate::options::Codec;

/// Commits a row of the catalog.
fn put(db: &Db, row: &Entity) {
    put_with(db, row, Vec::new());
}

fn put_with(db: &Db, row: &Entity, changes: Vec<TableChange>) {
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
        changes,
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
        let db = open(&fs);
        db.create_table("others").unwrap();
        put(&db, &row);
        let problems = db.verify().unwrap().problems;
        assert!(
            problems.len() == 1 && problems[0].contains("catalog row"),
            "{row:?}: {problems:?}"
        );
        let image = fs.kill_image();
        let error = options(&image).open("db").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{row:?}: {error}");
        let report = options(&image).repair("db", "new", SuspectRows::Keep, |_, _| ()).unwrap();
        assert!(!report.is_whole() && report.losses[0].problem == problems[0], "{report:?}");
        assert!(options(&image).open("new").unwrap().table("others").is_ok());
    }
}

#[test]
fn a_drop_that_leaves_its_row_is_reported_and_repaired_away() {
    let fs = MemFs::new();
    let db = open(&fs);
    let gate = Arc::new(Gate::new(db.create_table("others").map(|_| TableId(1)).unwrap()));
    let row = Entity::new("table", "others").with("Name", "Others").with("Id", 1_i64);
    put_with(&db, &row, vec![TableChange::Dropped(gate)]);
    let problems = db.verify().unwrap().problems;
    assert!(problems.iter().any(|problem| problem.contains("its row of the catalog stays")));
    let image = fs.kill_image();
    assert!(options(&image).open("db").is_err());
    let report = options(&image).repair("db", "new", SuspectRows::Keep, |_, _| ()).unwrap();
    assert!(report.losses[0].problem.contains("its row of the catalog stays"), "{report:?}");
    assert!(options(&image).open("new").unwrap().table("others").is_ok());
}

/// Blocks with the flag "only puts" store no kind (put or delete) for each entry. The test clears
/// this flag. The reader then takes the first byte of a row for the kind of the entry, and this
/// byte means a deletion. Opening must report corruption.
#[test]
fn a_row_of_the_catalog_that_reads_as_a_deletion_is_corruption() {
    let fs = MemFs::new();
    let db = options(&fs).codec(Codec::None).open("db").unwrap();
    db.create_table("things").unwrap();
    db.catalog.set_note(None, "x", Some(&"y".repeat(2_000))).unwrap();
    db.flush().unwrap();
    let meta = db.engine.reader().pin().version.files().next().unwrap().meta.clone();
    db.close().unwrap();
    let path = format!("db/{}", meta.number.sst_name());
    let mut bytes = fs.read(&path).unwrap();
    let end = |bytes: &[u8], at: usize| {
        let stored = u32::from_le_bytes(bytes[at + 16..at + 20].try_into().unwrap());
        at + HEADER_BYTES + stored as usize
    };
    // The first block contains the row with the next table number. The second block, which the test
    // changes, contains the note.
    let start = end(&bytes, crate::format::sst::HEADER_BYTES);
    let end = end(&bytes, start);
    let (header, contents) = bytes[start..end].split_at_mut(HEADER_BYTES);
    assert_eq!((contents[0], contents[6] & 1), (1, 1), "one entry, a put");
    contents[6] &= !1;
    let place = BlockPlace { kind: BlockKind::Rows, file: meta.id, number: 1 };
    let sum = block_checksum(place, &header[..20], contents);
    header[20..].copy_from_slice(&sum.to_le_bytes());
    fs.write(&path, &bytes).unwrap();
    let refused = [options(&fs).open("db").err(), options(&fs).open_read_only("db").err()];
    for error in refused.map(Option::unwrap) {
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        assert!(error.to_string().contains("a deletion with a row"), "{error}");
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

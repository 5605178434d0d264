//! Tests ranges that are exported as files and imported into another database: their content, its
//! visibility, and the state after a crash.

use std::sync::Arc;

use rowstone::fs::MemFs;
use rowstone::{
    Db, Entity, ErrorKind, KeyRange, Options, Table, clock::ManualClock, gates::GateMode,
    options::Background,
};

const FAR: u64 = 133_000_000_000_000_000;

fn options(fs: &MemFs) -> Options {
    let clock = Arc::new(ManualClock::new(FAR));
    let options = Db::options().background(Background::Manual).clock(clock).seed(1);
    options
        .block_bytes(512)
        .run_file_bytes(4 << 10)
        .memtable_bytes(64 << 10)
        .fs(Arc::new(fs.clone()))
}

fn row(i: u32, payload: &str) -> Entity {
    let (pk, rk) = (format!("p{}", i / 10), format!("{:03}", i % 10));
    Entity::new(&pk, &rk).with("Number", i64::from(i)).with("Payload", payload.repeat(20))
}

/// Inserts the rows with these numbers, in order. Then replaces or merges two thirds of them.
fn fill(table: &Table, rows: std::ops::Range<u32>) {
    for i in rows.clone() {
        table.insert(row(i, "first")).unwrap();
    }
    for i in rows {
        let other =
            Entity::new(row(i, "").partition_key(), row(i, "").row_key()).with("Other", 1.5);
        match i % 3 {
            0 => drop(table.merge(other).unwrap()),
            1 => drop(table.replace(row(i, "second")).unwrap()),
            _ => {}
        }
    }
}

/// Returns all entities as text, with every part that a reader sees.
fn all(table: &Table) -> Vec<String> {
    listed(table.scan(KeyRange::all()))
}

fn listed(query: rowstone::Query) -> Vec<String> {
    query.into_iter().map(|entity| format!("{:?}", entity.unwrap())).collect()
}

#[track_caller]
fn check_sound(db: &Db) {
    let report = db.verify().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

/// Creates a source with 20 partitions of ten rows, some flushed, some not.
fn source(fs: &MemFs) -> (Db, Table) {
    let db = options(fs).open("source").unwrap();
    let table = db.create_table("Parts").unwrap();
    fill(&table, 0..120);
    db.flush().unwrap();
    table.delete("p3", "004").unwrap();
    fill(&table, 120..200);
    (db, table)
}

#[test]
fn an_export_is_an_ordinary_database_with_etags_and_timestamps() {
    let fs = MemFs::new();
    let (db, table) = source(&fs);
    let range = KeyRange::partitions("p12".."p4");
    let moved = db.export_range("parts", range.clone(), "moving").unwrap();
    let expected = listed(table.scan(range));
    assert_eq!((moved.entities, moved.entities as usize), (expected.len() as u64, expected.len()));
    assert!(moved.files > 1 && moved.bytes > 4 << 10, "{moved:?}");
    let moving = options(&fs).open("moving").unwrap();
    assert_eq!(moving.tables().unwrap(), ["Parts"]);
    let there = moving.table("parts").unwrap();
    assert_eq!(all(&there), expected);
    check_sound(&moving);
    // The exported database accepts writes, and new ETags are newer than the old ones.
    let old = there.get("p15", "000").unwrap().unwrap().etag().unwrap();
    let new = there.upsert(row(150, "third")).unwrap();
    assert!(new.seq() > old.seq());
    there.delete_if("p15", "000", new).unwrap();
    moving.create_table("Another").unwrap();
}

#[test]
fn exports_and_imports_overwrite_nothing() {
    let fs = MemFs::new();
    let (db, _table) = source(&fs);
    db.export_range("parts", KeyRange::all(), "moving").unwrap();
    let error = db.export_range("parts", KeyRange::all(), "moving").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    let error = db.export_range("parts", KeyRange::all(), "source").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    let error = db.export_range("none", KeyRange::all(), "another").unwrap_err();
    assert_eq!(error.code(), "TableNotFound");
    let before = all(&db.table("parts").unwrap());
    let error = db.import_range("moving", "parts").unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::AlreadyExists, "EntityAlreadyExists"));
    let error = db.import_range("nowhere", "parts").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let error = db.import_range("source", "parts").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert_eq!(all(&db.table("parts").unwrap()), before);
    check_sound(&db);
}

#[test]
fn a_range_is_imported_with_its_etags() {
    let fs = MemFs::new();
    let (db, table) = source(&fs);
    let range = KeyRange::partitions("p12".."p4");
    db.export_range("parts", range.clone(), "moving").unwrap();
    let other = options(&fs).open("other").unwrap();
    // The other database already has a table, so the imported one gets a different table id.
    let beside = other.create_table("Beside").unwrap();
    fill(&beside, 0..50);
    let (kept, mut steps) = (all(&beside), Vec::new());
    let moved = other.import_range_with("moving", "Renamed", |rows| steps.push(rows)).unwrap();
    let expected = listed(table.scan(range));
    let renamed = other.table("renamed").unwrap();
    assert_eq!(
        (moved.entities, steps.last().copied()),
        (expected.len() as u64, Some(moved.entities))
    );
    assert_eq!((all(&renamed), all(&beside)), (expected.clone(), kept.clone()));
    let mut reversed = listed(renamed.scan(KeyRange::all()).reverse());
    reversed.reverse();
    assert_eq!(reversed, expected);
    let etag = table.get("p15", "000").unwrap().unwrap().etag().unwrap();
    let newer = renamed.replace_if(row(150, "third"), &etag).unwrap();
    assert!(newer.seq() > etag.seq());
    renamed.delete_if("p15", "000", newer).unwrap();
    drop((beside, renamed));
    other.close().unwrap();
    let other = options(&fs).open("other").unwrap();
    other.compact().unwrap();
    assert_eq!(all(&other.table("renamed").unwrap()).len(), expected.len() - 1);
    assert_eq!(all(&other.table("beside").unwrap()), kept);
    check_sound(&other);
}

/// Imported ETags may be newer than the clock of the target database.
#[test]
fn imported_etags_of_the_future_are_followed_by_newer_ones() {
    let fs = MemFs::new();
    let clock = Arc::new(ManualClock::new(FAR + 1_000_000_000_000));
    let ahead = options(&fs).clock(clock).open("ahead").unwrap();
    let etag = ahead.create_table("Parts").unwrap().insert(row(1, "x")).unwrap();
    ahead.close().unwrap();
    for crash in [false, true] {
        let path = format!("behind-{crash}");
        let behind = options(&fs).durability(rowstone::Durability::Os).open(&path).unwrap();
        behind.import_range("ahead", "parts").unwrap();
        let (fs, behind) = match crash {
            false => (fs.clone(), behind),
            true => {
                let image = fs.crash_image(1);
                drop(behind);
                (image.clone(), options(&image).open(&path).unwrap())
            }
        };
        let table = behind.table("parts").unwrap();
        assert_eq!(table.get("p0", "001").unwrap().unwrap().etag().as_ref(), Some(&etag));
        let newer = table.upsert(row(1, "y")).unwrap();
        assert!(newer.seq() > etag.seq());
        drop((table, behind));
        let behind = options(&fs).open(&path).unwrap();
        let found = behind.table("parts").unwrap().get("p0", "001").unwrap().unwrap();
        assert_eq!(found.etag(), Some(newer));
    }
}

/// The imported file is also merged with younger files, and with older files of the same run.
#[test]
fn an_older_snapshot_does_not_see_imported_rows() {
    let fs = MemFs::new();
    let (db, _table) = source(&fs);
    db.export_range("parts", KeyRange::partitions("p12".."p4"), "moving").unwrap();
    let other = options(&fs).open("other").unwrap();
    let parts = other.create_table("Parts").unwrap();
    fill(&parts, 700..750);
    let (before, seen) = (other.snapshot(), all(&parts));
    let check = |what: &str| {
        assert_eq!(listed(parts.at(&before).scan(KeyRange::all())), seen, "{what}");
        let mut reversed = listed(parts.at(&before).scan(KeyRange::all()).reverse());
        reversed.reverse();
        assert_eq!(reversed, seen, "{what}");
        assert!(parts.at(&before).get("p15", "001").unwrap().is_none(), "{what}");
        assert_eq!(parts.at(&before).scan(KeyRange::all()).count().unwrap(), 50, "{what}");
    };
    // Rows in memory that are older than the import are flushed into the same file as rows that are
    // newer.
    parts.insert(row(990, "old")).unwrap();
    let old = all(&parts).len();
    let moved = other.import_range("moving", "Parts").unwrap();
    check("imported");
    parts.upsert(row(150, "new")).unwrap();
    parts.upsert(row(710, "new")).unwrap();
    parts.delete("p15", "005").unwrap();
    let now = all(&parts);
    assert_eq!(now.len(), old + moved.entities as usize - 1);
    other.flush().unwrap();
    check("flushed");
    other.compact().unwrap();
    check("compacted");
    while other.step(std::time::Duration::ZERO) {}
    assert_eq!(all(&parts), now);
    drop(before);
    other.compact().unwrap();
    while other.step(std::time::Duration::ZERO) {}
    assert_eq!(all(&parts), now);
    check_sound(&other);
}

/// If rows are exported, deleted, and imported again, the deletes hide none of the imported rows.
#[test]
fn an_exported_range_can_be_imported_again() {
    let fs = MemFs::new();
    let (db, table) = source(&fs);
    let range = KeyRange::partitions("p12".."p4");
    let (everything, inside) = (all(&table), listed(table.scan(range.clone())));
    db.export_range("parts", range.clone(), "moving").unwrap();
    let before = db.snapshot();
    for entity in table.scan(range.clone()) {
        let entity = entity.unwrap();
        table.delete(entity.partition_key(), entity.row_key()).unwrap();
    }
    let error = db.import_range("moving", "parts").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "the snapshot still reads what was deleted");
    assert_eq!(listed(table.at(&before).scan(range.clone())), inside);
    drop(before);
    db.import_range("moving", "parts").unwrap();
    assert_eq!(all(&table), everything);
    check_sound(&db);
    // Write more rows below, in and above the imported range.
    for i in [1, 50, 150, 199] {
        table.upsert(row(i, "new")).unwrap();
    }
    let now = all(&table);
    db.compact().unwrap();
    assert_eq!(all(&table), now);
    drop(table);
    db.close().unwrap();
    let db = options(&fs).open("source").unwrap();
    assert_eq!(all(&db.table("parts").unwrap()), now);
    check_sound(&db);
}

/// A range tombstone of deleted rows must not hide imported rows, neither now nor after a reopen.
#[test]
fn a_range_can_be_imported_under_a_range_tombstone() {
    for (is_flushed, is_young) in [(false, false), (true, false), (false, true), (true, true)] {
        let fs = MemFs::new();
        let (db, table) = source(&fs);
        let range = KeyRange::partitions("p12".."p4");
        let everything = all(&table);
        db.export_range("parts", range.clone(), "moving").unwrap();
        if is_flushed {
            db.flush().unwrap();
        }
        table.delete_range(&range).unwrap();
        let without = all(&table);
        assert!(without.len() < everything.len());
        if is_young {
            table.upsert(row(0, "young")).unwrap();
            table.upsert(row(990, "young")).unwrap();
            db.flush().unwrap();
        }
        let before = all(&table).len();
        let moved = db.import_range("moving", "parts").unwrap();
        assert_eq!(all(&table).len(), before + moved.entities as usize);
        db.flush().unwrap();
        db.compact().unwrap();
        while db.step(std::time::Duration::ZERO) {}
        assert_eq!(all(&table).len(), before + moved.entities as usize);
        if !is_young {
            assert_eq!(all(&table), everything);
        }
        drop(table);
        db.close().unwrap();
        let db = options(&fs).open("source").unwrap();
        assert_eq!(all(&db.table("parts").unwrap()).len(), before + moved.entities as usize);
        check_sound(&db);
    }
}

/// Splits and merges of ranges, and young files across their bounds, do not affect exports and
/// imports.
#[test]
fn ranges_are_exported_and_imported_between_writes() {
    let fs = MemFs::new();
    let db = options(&fs).open("source").unwrap();
    let table = db.create_table("Parts").unwrap();
    fill(&table, 0..400);
    for turn in 0..12u32 {
        let (from, to) = (format!("p{}", 10 + turn * 2), format!("p{}", 13 + turn * 2));
        let range = KeyRange::partitions(from.as_str()..to.as_str());
        let moving = format!("moving-{turn}");
        let everything = all(&table);
        db.export_range("parts", range.clone(), &moving).unwrap();
        match turn % 2 {
            0 => table.delete_range(&range).unwrap(),
            _ => {
                let keys: Vec<Entity> = table.scan(range).into_iter().map(Result::unwrap).collect();
                keys.iter().for_each(|e| table.delete(e.partition_key(), e.row_key()).unwrap());
            }
        }
        if turn % 3 == 0 {
            while db.step(std::time::Duration::ZERO) {}
        }
        db.import_range(&moving, "parts").unwrap();
        assert_eq!(all(&table), everything, "turn {turn}");
        table.upsert(row(turn * 31 % 400, "new")).unwrap();
        if turn % 4 == 0 {
            db.compact().unwrap();
        }
    }
    let everything = all(&table);
    check_sound(&db);
    drop(table);
    db.close().unwrap();
    let db = options(&fs).open("source").unwrap();
    assert_eq!(all(&db.table("parts").unwrap()), everything);
}

#[test]
fn an_empty_range_is_a_table_without_entities() {
    let fs = MemFs::new();
    let (db, _table) = source(&fs);
    let moved = db.export_range("parts", KeyRange::partition("none"), "moving").unwrap();
    assert_eq!((moved.entities, moved.files), (0, 0));
    let other = options(&fs).open("other").unwrap();
    assert_eq!(other.import_range("moving", "Parts").unwrap().entities, 0);
    assert!(all(&other.table("parts").unwrap()).is_empty());
}

/// After a kill or a power cut at any file operation of an export or an import, the target has all
/// of the range or none of it, and the source is unchanged.
#[test]
fn a_crash_leaves_all_of_the_range_or_none() {
    let fs = MemFs::new();
    let (db, table) = source(&fs);
    let other = options(&fs).open("other").unwrap();
    let kept = other.create_table("Kept").unwrap();
    kept.insert(row(1, "kept")).unwrap();
    db.gate("parts", KeyRange::all(), GateMode::ReadOnly).unwrap();
    let expected = all(&table);
    fs.record();
    db.export_range("parts", KeyRange::all(), "moving").unwrap();
    let exported = fs.ops();
    other.import_range("moving", "Parts").unwrap();
    let imported = fs.ops();
    // More operations follow the import.
    kept.upsert(row(1, "kept")).unwrap();
    let (mut images, mut without, mut with) = (0, 0, 0);
    for op in fs.recorded() {
        let kill = fs.kill_image_at(op).expect("recorded");
        let cuts = (0..2).map(|seed| fs.crash_image_at(op, seed).expect("recorded"));
        for image in std::iter::once(kill).chain(cuts) {
            images += 1;
            let moving = options(&image).create_if_missing(false).open("moving");
            let there = moving.as_ref().ok().and_then(|db| db.table("parts").ok());
            match &there {
                Some(table) => assert_eq!(all(table), expected, "operation {op}"),
                None => assert!(op < exported, "operation {op}: {moving:?}"),
            }
            let other = options(&image).open("other").unwrap();
            check_sound(&other);
            assert_eq!(all(&other.table("kept").unwrap()).len(), 1);
            let arrived = other.table("parts").map(|table| all(&table)).unwrap_or_default();
            match arrived.is_empty() {
                true => without += 1,
                false => with += 1,
            }
            assert!(arrived.is_empty() || arrived == expected, "operation {op}");
            assert!(op < imported || !arrived.is_empty(), "operation {op}");
            // An interrupted import can be repeated.
            if arrived.is_empty() && there.is_some() && op % 7 == 0 {
                drop((there, moving));
                other.import_range("moving", "Parts").unwrap();
                assert_eq!(all(&other.table("parts").unwrap()), expected);
            }
        }
    }
    crate::say(format_args!("{images} images, {without} before the import, {with} after it"));
    assert!(images > 100 && without > 50 && with > 5);
    std::mem::forget((db, table, other, kept));
}

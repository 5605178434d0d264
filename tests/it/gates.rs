//! Tests gates (key ranges that are closed to requests) and scalability targets through the public
//! interface: which operations are refused, which are admitted, and which gates survive a crash.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rowstone::fs::MemFs;
use rowstone::{
    Db, Durability, Entity, EntityGroup, Error, ErrorKind, KeyRange, Operation, Options, Table,
    Token,
    clock::ManualClock,
    gates::GateMode,
    options::{Background, Targets},
};

fn row(pk: &str, rk: &str) -> Entity {
    Entity::new(pk, rk).with("A", 1)
}

fn options(fs: &MemFs) -> Options {
    Db::options().background(Background::Manual).seed(1).fs(Arc::new(fs.clone()))
}

/// Creates a table with the partitions a, b and c, each with three rows.
fn three_partitions(db: &Db) -> Table {
    let table = db.create_table("parts").unwrap();
    for pk in ["a", "b", "c"] {
        for rk in ["1", "2", "3"] {
            table.insert(row(pk, rk)).unwrap();
        }
    }
    table
}

#[track_caller]
fn check_busy<T: std::fmt::Debug>(result: rowstone::Result<T>) {
    let error = result.expect_err("it should be refused");
    assert_eq!((error.code(), error.status()), ("ServerBusy", 503), "{error:?}");
    assert!(error.is_transient());
}

#[test]
fn a_read_only_span_refuses_every_write() {
    let db = Db::open_in_memory().unwrap();
    let table = three_partitions(&db);
    db.gate("parts", KeyRange::partition("b"), GateMode::ReadOnly).unwrap();
    check_busy(table.insert(row("b", "4")));
    check_busy(table.replace(row("b", "1")));
    check_busy(table.merge(row("b", "1")));
    check_busy(table.upsert(row("b", "1")));
    check_busy(table.upsert_merge(row("b", "1")));
    check_busy(table.delete("b", "1"));
    // The gate is checked before the condition.
    check_busy(table.insert(row("b", "1")));
    check_busy(table.delete("b", "none"));
    let operations = vec![Operation::Insert(row("b", "5")), Operation::Insert(row("b", "6"))];
    let group = || EntityGroup::from_operations(operations.clone()).unwrap();
    check_busy(table.commit(group()));
    check_busy(table.commit_async(group()).map(drop));
    assert_eq!(table.scan(KeyRange::partition("b")).count().unwrap(), 3);
    for pk in ["a", "c"] {
        table.insert(row(pk, "4")).unwrap();
    }
    db.lift_gate("parts", KeyRange::partition("b")).unwrap();
    table.insert(row("b", "4")).unwrap();
}

#[test]
fn a_gate_refuses_an_import_that_touches_its_span() {
    let fs = MemFs::new();
    let (db, other) = (options(&fs).open("db").unwrap(), options(&fs).open("other").unwrap());
    three_partitions(&db);
    db.export_range("parts", KeyRange::partitions("a"..="c"), "moving").unwrap();
    let parts = other.create_table("parts").unwrap();
    let held = KeyRange::partition("b");
    for mode in [GateMode::ReadOnly, GateMode::Offline] {
        other.gate("parts", held.clone(), mode).unwrap();
        check_busy(other.import_range("moving", "parts"));
    }
    assert!(parts.get("a", "1").unwrap().is_none(), "it has no effect");
    other.lift_gate("parts", held).unwrap();
    // Gates outside of the imported keys block nothing.
    other.gate("parts", KeyRange::partitions("d"..), GateMode::ReadOnly).unwrap();
    assert_eq!(other.import_range("moving", "parts").unwrap().entities, 9);
    // A gate that is closed during the import holds, too.
    db.create_table("empty").unwrap();
    let mut is_closed = false;
    let during = db.import_range_with("moving", "empty", |_| {
        if !is_closed {
            db.gate("empty", KeyRange::all(), GateMode::ReadOnly).unwrap();
            is_closed = true;
        }
    });
    check_busy(during);
    assert_eq!(db.table("empty").unwrap().scan(KeyRange::all()).count().unwrap(), 0);
}

#[test]
fn an_offline_span_refuses_every_read_that_touches_it() {
    let db = Db::open_in_memory().unwrap();
    let table = three_partitions(&db);
    let before = db.snapshot();
    db.gate("parts", KeyRange::rows("b", "2"..="2"), GateMode::Offline).unwrap();
    check_busy(table.get("b", "2"));
    check_busy(table.get_many(&[("a", "1"), ("b", "2")]));
    check_busy(table.with_row("b", "2", |_| Ok(())));
    check_busy(table.at(&before).get("b", "2"));
    check_busy(table.upsert(row("b", "2")));
    check_busy(table.scan(KeyRange::all()).count());
    check_busy(table.scan(KeyRange::all()).page(10));
    check_busy(table.scan(KeyRange::all()).reverse().page(10));
    check_busy(table.at(&before).scan(KeyRange::all()).page(10));
    check_busy(table.query("A eq 1").unwrap().explain());
    check_busy(table.query("RowKey eq '2'").unwrap().aggregate("A"));
    let all = table.scan(KeyRange::all()).into_iter().collect::<rowstone::Result<Vec<_>>>();
    check_busy(all);
    // Operations outside of the gate's span are executed: on adjacent rows, on other partitions,
    // and a page that starts after the span.
    assert!(table.get("b", "1").unwrap().is_some() && table.get("b", "3").unwrap().is_some());
    assert_eq!(table.query("PartitionKey ne 'b'").unwrap().count().unwrap(), 6);
    let behind = Token { partition_key: "b".into(), row_key: "3".into() };
    assert_eq!(table.scan(KeyRange::all()).after(behind).page(10).unwrap().entities().len(), 4);
    db.gate("parts", KeyRange::rows("b", "2"..="2"), GateMode::ReadOnly).unwrap();
    assert_eq!(db.gates().unwrap().len(), 1, "the same range: one gate, of another mode");
    assert!(table.get("b", "2").unwrap().is_some());
    check_busy(table.upsert(row("b", "2")));
}

#[test]
fn gates_are_listed_as_set_and_survive_a_reopen() {
    let fs = MemFs::new();
    let ranges = [
        KeyRange::all(),
        KeyRange::partition("b"),
        KeyRange::partitions("b".."c"),
        KeyRange::partitions("b"..="c"),
        KeyRange::partitions("\u{ff5e}"..),
        KeyRange::rows("b", "2".."3"),
        KeyRange::rows("b", "2"..="3"),
        KeyRange::rows("b", "2"..),
        KeyRange::point("b", "2"),
        KeyRange::point("", ""),
    ];
    let listed = |db: &Db| {
        let mut gates = db.gates().unwrap();
        gates.sort_by_key(|gate| {
            ranges.iter().position(|range| range.to_string() == gate.range.to_string())
        });
        gates
    };
    let db = options(&fs).open("d").unwrap();
    let table = three_partitions(&db);
    for (i, range) in ranges.iter().enumerate() {
        let mode = if i % 2 == 0 { GateMode::ReadOnly } else { GateMode::Offline };
        db.gate("PARTS", range.clone(), mode).unwrap();
    }
    drop((table, db));
    let db = options(&fs).open("d").unwrap();
    let gates = listed(&db);
    assert_eq!(gates.len(), ranges.len());
    for (i, (gate, range)) in gates.iter().zip(&ranges).enumerate() {
        assert_eq!((gate.range.to_string(), &*gate.table), (range.to_string(), "parts"));
        assert_eq!(gate.mode == GateMode::ReadOnly, i % 2 == 0);
    }
    check_busy(db.table("parts").unwrap().insert(row("x", "1")));
    for range in &ranges {
        db.lift_gate("parts", range.clone()).unwrap();
    }
    let error = db.lift_gate("parts", KeyRange::all()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(db.gates().unwrap().is_empty());
    db.table("parts").unwrap().insert(row("x", "1")).unwrap();
    db.close().unwrap();
    assert!(options(&fs).open("d").unwrap().gates().unwrap().is_empty());
}

#[test]
fn a_gate_is_removed_with_its_table_and_affects_no_other() {
    let fs = MemFs::new();
    let db = options(&fs).open("d").unwrap();
    three_partitions(&db);
    let other = db.create_table("other").unwrap();
    db.gate("parts", KeyRange::all(), GateMode::Offline).unwrap();
    other.insert(row("b", "1")).unwrap();
    db.delete_table("parts").unwrap();
    let table = three_partitions(&db);
    assert!(db.gates().unwrap().is_empty());
    drop((table, other));
    db.close().unwrap();
    let db = options(&fs).open("d").unwrap();
    assert!(db.gates().unwrap().is_empty());
    db.table("parts").unwrap().insert(row("b", "4")).unwrap();
}

/// At the end of a move, the moved rows are deleted while the gate refuses writes. The gate must
/// admit this delete.
#[test]
fn a_deleted_range_passes_its_gate() {
    let db = Db::open_in_memory().unwrap();
    let table = three_partitions(&db);
    db.gate("parts", KeyRange::partition("b"), GateMode::Offline).unwrap();
    table.delete_range(&KeyRange::partition("b")).unwrap();
    check_busy(table.insert(row("b", "1")));
    db.lift_gate("parts", KeyRange::partition("b")).unwrap();
    assert_eq!(table.scan(KeyRange::all()).count().unwrap(), 6);
}

#[test]
fn a_range_without_possible_keys_cannot_be_gated() {
    let db = Db::open_in_memory().unwrap();
    three_partitions(&db);
    let long = "x".repeat(10_000);
    for range in [KeyRange::partitions("b".."a"), KeyRange::partition(long)] {
        let error = db.gate("parts", range, GateMode::ReadOnly).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
    let error = db.gate("none", KeyRange::all(), GateMode::ReadOnly).unwrap_err();
    assert_eq!(error.code(), "TableNotFound");
}

/// No row is added after `gate` has returned, whatever other threads do.
#[test]
fn no_write_succeeds_once_a_gate_is_closed() {
    for durability in [Durability::Sync, Durability::Os, Durability::Buffered] {
        let db = Db::open_in_memory().unwrap();
        let table = db.create_table("parts").unwrap().with_durability(durability);
        let (stop, beside) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (table, stop, beside) = (&table, &stop, &beside);
                scope.spawn(move || {
                    for i in 0u64.. {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let key = format!("{thread}-{i}");
                        match table.insert(row("in", &key)) {
                            Ok(_) => {}
                            Err(error) if error.code() == "ServerBusy" => {
                                table.insert(row("beside", &key)).unwrap();
                                beside.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(error) => panic!("{error:?}"),
                        }
                    }
                });
            }
            let count = || table.scan(KeyRange::partition("in")).count().unwrap();
            for _ in 0..10 {
                while count() == 0 {}
                db.gate("parts", KeyRange::partition("in"), GateMode::ReadOnly).unwrap();
                let (at, seen) = (count(), beside.load(Ordering::Relaxed));
                // Wait until other threads have written more rows, which is possible only outside
                // of the gate's span.
                while beside.load(Ordering::Relaxed) < seen + 10 {}
                assert_eq!(count(), at);
                db.lift_gate("parts", KeyRange::partition("in")).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

/// After a power cut at any moment, each acknowledged gate is closed, and no lifted gate is.
#[test]
fn an_acknowledged_gate_survives_a_power_cut() {
    let fs = MemFs::new();
    let db = options(&fs).durability(Durability::Buffered).open("d").unwrap();
    let table = db.create_table("parts").unwrap();
    fs.record();
    let mut moments = vec![(fs.ops(), false)];
    for turn in 0..3 {
        table.insert(row("a", &format!("{turn}"))).unwrap();
        moments.push((fs.ops(), false));
        db.gate("parts", KeyRange::partition("a"), GateMode::ReadOnly).unwrap();
        moments.push((fs.ops(), true));
        table.insert(row("b", &format!("{turn}"))).unwrap();
        moments.push((fs.ops(), true));
        db.lift_gate("parts", KeyRange::partition("a")).unwrap();
        moments.push((fs.ops(), false));
    }
    let mut images = 0;
    for pair in moments.windows(2) {
        let ((from, before), (to, after)) = (pair[0], pair[1]);
        for op in from..=to {
            for seed in 0..3 {
                let image = fs.crash_image_at(op, seed).expect("recorded");
                let db = options(&image).open("d").unwrap();
                let is_closed = !db.gates().unwrap().is_empty();
                images += 1;
                // If `before` and `after` differ, the gate is being closed or opened by the
                // interrupted call, so it may be either closed or open.
                if before == after || op == from {
                    assert_eq!(is_closed, before, "operation {op}, seed {seed}");
                }
                let written = db.table("parts").map(|table| table.insert(row("a", "new")));
                assert_eq!(matches!(written, Ok(Err(_))), is_closed);
            }
        }
    }
    assert!(images > 30, "{images} images");
    std::mem::forget((db, table));
}

fn throttled(targets: Targets) -> (Arc<ManualClock>, Table) {
    let clock = Arc::new(ManualClock::new(1_000));
    let options = Db::options().background(Background::Manual).clock(clock.clone());
    let db = options.throttle(targets).open_in_memory().unwrap();
    (clock, db.create_table("parts").unwrap())
}

fn targets(partition: u32, database: u32) -> Targets {
    Targets { partition_entities_per_second: partition, database_entities_per_second: database }
}

#[test]
fn a_partition_over_its_target_is_busy_and_the_others_are_not() {
    let (clock, table) = throttled(targets(10, 100));
    let insert = |pk: &str, i: u32| table.insert(row(pk, &format!("{i:04}"))).map(drop);
    let passed = |pk: &str, from: u32| (from..from + 50).filter(|i| insert(pk, *i).is_ok()).count();
    assert_eq!(passed("a", 0), 10);
    check_busy(insert("a", 99));
    check_busy(table.get("a", "0000"));
    assert_eq!(passed("b", 0), 10);
    clock.advance(Duration::from_millis(500));
    assert_eq!(passed("a", 100), 5);
    clock.advance(Duration::from_secs(60));
    // No refused operation had an effect.
    assert_eq!(table.scan(KeyRange::all()).count().unwrap(), 25);
}

#[test]
fn groups_and_reads_are_charged_their_entities() {
    let (clock, table) = throttled(targets(0, 100));
    let group = |from: u32| {
        let rows = (from..from + 50).map(|i| Operation::Upsert(row("a", &format!("{i:04}"))));
        EntityGroup::from_operations(rows).unwrap()
    };
    let second = || clock.advance(Duration::from_secs(1));
    assert!(table.commit(group(0)).is_ok() && table.commit(group(50)).is_ok());
    check_busy(table.commit(group(100)));
    check_busy(table.get("a", "0000"));
    second();
    let all: Vec<String> = (0..100).map(|i| format!("{i:04}")).collect();
    let keys: Vec<(&str, &str)> = all.iter().map(|rk| ("a", rk.as_str())).collect();
    assert!(table.get_many(&keys).is_ok());
    check_busy(table.get_many(&keys[..1]));
    second();
    // A page is charged its number of results, which is known only after reading, so the next page
    // is refused.
    assert_eq!(table.scan(KeyRange::all()).page(100).unwrap().entities().len(), 100);
    check_busy(table.scan(KeyRange::all()).page(1));
    second();
    assert_eq!(table.scan(KeyRange::all()).into_iter().filter(Result::is_ok).count(), 100);
    check_busy(table.scan(KeyRange::all()).count());
    second();
    // A count is charged one entity, and so is a query without results.
    for _ in 0..50 {
        assert_eq!(table.scan(KeyRange::all()).count().unwrap(), 100);
        assert!(table.query("A eq 7").unwrap().page(10).unwrap().entities().is_empty());
    }
    check_busy(table.scan(KeyRange::all()).count());
}

#[test]
fn a_query_of_one_partition_is_charged_to_that_partition() {
    let (_, table) = throttled(targets(10, 0));
    for i in 0..10 {
        table.insert(row("a", &format!("{i}"))).unwrap();
    }
    let page = |filter: &str| table.query(filter).unwrap().page(1);
    check_busy(page("PartitionKey eq 'a'"));
    check_busy(page("PartitionKey eq 'a' and RowKey gt '5'"));
    check_busy(page("PartitionKey eq 'a' and RowKey eq '5'"));
    assert!(page("PartitionKey eq 'b'").is_ok());
    assert!(
        page("PartitionKey ge 'a'").is_ok(),
        "the query of all partitions is charged to none of them"
    );
}

#[test]
fn the_error_of_the_database_target_names_the_account() {
    let (_, table) = throttled(targets(0, 1));
    table.insert(row("a", "1")).unwrap();
    let error: Error = table.insert(row("b", "1")).unwrap_err();
    assert_eq!(error.to_string(), "Operations per second is over the account limit.");
}

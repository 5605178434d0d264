//! Tests that a query makes no allocation per scanned row, and few per returned entity.
//!
//! Counts the calls of the Rust allocator by the thread of a test while a query runs over N rows,
//! then over 2N rows of the same kind. Both counts include the fixed cost of a query, so their
//! difference is the cost of N rows and their blocks. A block has about a hundred rows. Not covered
//! are unmapped or compressed files, which need a buffer per block, and rows that contain their own
//! shape, because the filter is compiled for each such row.
//!
//! Also tests how much memory memtables take from the allocator.

#![expect(
    unsafe_code,
    reason = "an allocator is unsafe to implement; this one forwards to the system's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::ControlFlow;

use rowstone::{
    Binary, DateTime, Db, Durability, Entity, Guid, KeyRange, Query, Table,
    options::{Background, Codec},
    retry::Rng,
};

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    /// The bytes that this thread has allocated and not freed.
    static HELD: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: i64) {
    // An exiting thread may have destroyed its counters.
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
    hold(bytes);
}

fn hold(bytes: i64) {
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: every call is forwarded unchanged. Counting neither allocates nor unwinds, because the
// counters are plain cells without destructors.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller upholds the contract of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        hold(-(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// The number of rows of partition `few`; partition `many` has twice as many.
const ROWS: u64 = 10_000;
/// One allocation is allowed per this many additional rows. A block has about a hundred rows.
const ROWS_PER_ALLOCATION: u64 = 200;

/// Filters that are tested together with a condition on the partition. They contain every kind of
/// comparison, and each filter is true for some rows.
const FILTERS: [&str; 13] = [
    "Number eq 7",
    "Large ge 500L and Large lt 600L",
    "Real gt 3.5",
    "Flag eq true",
    "Time lt datetime'2024-01-01T01:00:00Z'",
    "Id ge guid'80000000-0000-0000-0000-000000000000'",
    "Text eq 'text-000007'",
    "Text gt 'text-000500'",
    "Bytes gt X'8000'",
    "RowKey gt '000000500' and RowKey ne '000000501' and Number lt 900",
    "Timestamp gt datetime'1970-01-01T00:00:00Z' and Odd lt 10",
    "not (Number lt 500 or Flag eq true) or (Text ge 'text-000990' and not (Real lt 1.0))",
    "Absent eq 1 or Number eq 'text' or Text ne 'text-000001'",
];

/// Where the rows are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Memory,
    Files,
    /// In files, and one row of ten also in memory, because it was rewritten after a flush.
    Both,
}

fn entity(partition: &str, row: u64, rng: &mut Rng) -> Entity {
    let text = format!("text-{:06}", rng.below(1_000));
    let mut id = [0; 16];
    id[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
    let ticks = 133_485_408_000_000_000 + rng.below(2 * 36_000_000_000);
    let entity = Entity::new(partition, format!("{row:09}"))
        .with("Number", rng.below(1_000) as i32)
        .with("Large", rng.below(1_000) as i64)
        .with("Real", rng.below(1_000) as f64 / 100.0)
        .with("Flag", rng.chance(1, 10))
        .with("Time", DateTime::from_ticks(ticks).unwrap())
        .with("Id", Guid::from_bytes(id))
        .with("Text", text)
        .with("Bytes", Binary(rng.next_u64().to_le_bytes().to_vec()));
    // Each row has one of three shapes.
    match row % 3 {
        0 => entity,
        1 => entity.with("Odd", row as i32 % 20),
        _ => entity.with("Odd", "a text"),
    }
}

fn filled(dir: &std::path::Path, place: Place) -> (Db, Table) {
    let options = Db::options().codec(Codec::None).durability(Durability::Buffered);
    let options = options.background(Background::Manual).memtable_bytes(256 << 20).seed(1);
    let db = options.open(dir.join("db")).unwrap();
    let table = db.create_table("Rows").unwrap();
    let (mut rng, mut loader) = (Rng::from_seed(1), table.loader());
    for (partition, rows) in [("few", ROWS), ("many", 2 * ROWS)] {
        for row in 0..rows {
            loader.push(row, entity(partition, row, &mut rng)).unwrap();
        }
    }
    loader.finish().unwrap();
    if place != Place::Memory {
        db.compact().unwrap();
    }
    if place == Place::Both {
        for (partition, rows) in [("few", ROWS), ("many", 2 * ROWS)] {
            for row in (0..rows).filter(|row| row % 1_000 < 100) {
                table.upsert(entity(partition, row, &mut rng)).unwrap();
            }
        }
    }
    (db, table)
}

/// Returns the number of allocations of `run`, and the result of `run`. Calls `run` twice, because
/// the first run fills caches.
fn allocations(mut run: impl FnMut() -> u64) -> (u64, u64) {
    run();
    let before = CALLS.get();
    let answer = run();
    (CALLS.get() - before, answer)
}

fn views(query: Query) -> u64 {
    let mut rows = 0;
    let done = query.for_each_row(|_| {
        rows += 1;
        Ok(ControlFlow::Continue(()))
    });
    done.unwrap();
    rows
}

fn filtered(table: &Table, partition: &str, filter: &str) -> Query {
    table.query(format!("PartitionKey eq '{partition}' and ({filter})").as_str()).unwrap()
}

/// Checks that a query of twice as many rows makes at most one more allocation per
/// [`ROWS_PER_ALLOCATION`] additional rows.
#[track_caller]
fn check(name: &str, run: impl Fn(&str) -> u64) {
    let (few, found) = allocations(|| run("few"));
    let (many, _) = allocations(|| run("many"));
    assert!(found > 0, "{name}: finds nothing");
    let rows = many.saturating_sub(few) * ROWS_PER_ALLOCATION;
    assert!(rows <= ROWS, "{name}: {few} allocations over {ROWS} rows, {many} over twice as many");
}

fn check_place(place: Place) {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = filled(dir.path(), place);
    for filter in FILTERS {
        check(&format!("{place:?}, views of {filter}"), |partition| {
            views(filtered(&table, partition, filter))
        });
        check(&format!("{place:?}, count of {filter}"), |partition| {
            filtered(&table, partition, filter).count().unwrap()
        });
        check(&format!("{place:?}, aggregate over {filter}"), |partition| {
            filtered(&table, partition, filter).aggregate("Real").unwrap().rows()
        });
    }
    let all = |partition: &str| table.scan(KeyRange::partition(partition));
    check(&format!("{place:?}, views of all"), |partition| views(all(partition)));
    check(&format!("{place:?}, count of all"), |partition| all(partition).count().unwrap());
    check(&format!("{place:?}, aggregate of all"), |partition| {
        all(partition).aggregate("Number").unwrap().rows()
    });
    db.close().unwrap();
}

#[test]
fn scanning_rows_in_files_does_not_allocate() {
    check_place(Place::Files);
}

#[test]
fn scanning_rows_in_memory_does_not_allocate() {
    check_place(Place::Memory);
}

#[test]
fn scanning_rows_in_files_and_in_memory_does_not_allocate() {
    check_place(Place::Both);
}

/// Returns the allocations per entity, from the difference between N and 2N entities.
fn allocations_per_entity(table: &Table, query: impl Fn(&Table, &str) -> Query) -> f64 {
    let entities = |partition| {
        allocations(|| {
            let mut rows = 0;
            for entity in query(table, partition) {
                drop(entity.unwrap());
                rows += 1;
            }
            rows
        })
    };
    let ((few, rows), (many, all)) = (entities("few"), entities("many"));
    assert!(all > rows && rows > ROWS / 3);
    (many - few) as f64 / (all - rows) as f64
}

#[test]
fn an_entity_takes_one_allocation_and_a_projected_one_at_most_two() {
    for place in [Place::Memory, Place::Files, Place::Both] {
        let dir = tempfile::tempdir().unwrap();
        let (db, table) = filled(dir.path(), place);
        let whole = |table: &Table, partition: &str| filtered(table, partition, "Number lt 500");
        let each = allocations_per_entity(&table, whole);
        assert!(each < 1.02, "{place:?}: {each} allocations per entity");
        let projected = |table: &Table, partition: &str| {
            whole(table, partition).select(&["Text", "Number", "Absent"])
        };
        let each = allocations_per_entity(&table, projected);
        assert!(each < 2.02, "{place:?}: {each} allocations per projected entity");
        db.close().unwrap();
    }
}

#[test]
fn a_large_memtable_is_not_in_the_allocator() {
    let dir = tempfile::tempdir().unwrap();
    let options = Db::options().durability(Durability::Buffered).memtable_bytes(64 << 20);
    let db = options.background(Background::Manual).open(dir.path().join("db")).unwrap();
    let table = db.create_table("Rows").unwrap();
    let (before, text) = (HELD.get(), "x".repeat(1_000));
    for row in 0..30_000 {
        table.upsert(Entity::new("p", format!("{row:06}")).with("Text", text.as_str())).unwrap();
    }
    assert!(db.stats().memtable_bytes > 30 << 20);
    let held = HELD.get() - before;
    assert!(held < 4 << 20, "{held} bytes");
    db.close().unwrap();
}

/// Checks the test itself: one allocation per row is detected.
#[test]
#[should_panic = "allocations over"]
fn an_allocation_per_row_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    let (_db, table) = filled(dir.path(), Place::Memory);
    check("copies", |partition| {
        let mut bytes = 0;
        let done = table.scan(KeyRange::partition(partition)).for_each_row(|row| {
            bytes += row.etag().to_string().len() as u64;
            Ok(ControlFlow::Continue(()))
        });
        done.unwrap();
        bytes
    });
}

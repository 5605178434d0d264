//! Tests of the slow-query log, and of counts of queries by class.

use std::time::Duration;

use super::*;
use crate::table::SlowQuery;

/// Returns a database with thirty rows in three partitions, and a clock that only the test
/// advances.
fn filled(options: Options) -> (Db, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(NOW));
    let db = options.clock(clock.clone()).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    for i in 0..30 {
        table
            .insert(Entity::new(["a", "b", "c"][i % 3], format!("{i:02}")).with("I", i as i32))
            .unwrap();
    }
    (db, clock)
}

fn told(query: &SlowQuery) -> (&str, &str, u64, u64) {
    (&query.filter, query.class, query.rows_looked_at, query.rows_returned)
}

#[test]
fn queries_are_counted_by_class() {
    let (db, _) = filled(options(&MemFs::new()));
    let table = db.table("things").unwrap();
    for filter in [
        "PartitionKey eq 'a' and RowKey eq '00'",
        "PartitionKey eq 'a' and RowKey eq '00' and PartitionKey eq 'b'",
        "PartitionKey eq 'a' and RowKey gt '10'",
        "PartitionKey eq 'a'",
        "PartitionKey gt 'a'",
        "I gt 3",
        "",
    ] {
        table.query(filter).unwrap().count().unwrap();
    }
    table.get("a", "00").unwrap();
    let stats = db.stats();
    let count = |class: &str| stats.get(&format!("queries_{class}")).unwrap();
    let classes = ["point", "row_range", "partition", "partition_range", "table", "slow"];
    assert_eq!(classes.map(count), [2, 1, 1, 1, 2, 0]);
    // The counts belong to the database: dropping a table does not reduce them.
    db.delete_table("things").unwrap();
    assert_eq!(db.stats().get("queries_table"), Some(2));
    assert!(db.slow_queries().is_empty());
}

#[test]
fn a_query_that_took_long_is_kept_with_its_explanation() {
    let (db, clock) = filled(options(&MemFs::new()).slow_query(Duration::from_millis(5)));
    let table = db.table("things").unwrap();
    let query = |filter: &str| table.query(filter).unwrap();
    // The manual clock does not advance during this query, so it is not slow.
    assert_eq!(query("I gt 3").count().unwrap(), 26);
    assert!(db.slow_queries().is_empty());
    // Reads row by row, and stops before the end.
    let mut rows = query("PartitionKey eq 'b'").into_iter();
    rows.next().unwrap().unwrap();
    clock.advance(Duration::from_millis(3));
    rows.next().unwrap().unwrap();
    clock.advance(Duration::from_millis(3));
    drop(rows);
    // Reads to the end. The query ends with the last row, and its duration does not include later
    // time.
    let mut rows = query("PartitionKey eq 'c' and RowKey ge '20'").into_iter();
    for row in rows.by_ref() {
        row.unwrap();
        clock.advance(Duration::from_millis(2));
    }
    clock.advance(Duration::from_secs(60));
    drop(rows);
    // Reads rows without copying them, and stops after the first one.
    let slow = |_: &crate::table::RowView<'_>| {
        clock.advance(Duration::from_millis(9));
        Ok(std::ops::ControlFlow::Break(()))
    };
    query("I ge 7").for_each_row(slow).unwrap();
    let next = query("").page_rows(2, |_| {
        clock.advance(Duration::from_millis(4));
        Ok(())
    });
    assert!(next.unwrap().is_some());
    let kept = db.slow_queries();
    let told: Vec<_> = kept.iter().map(told).collect();
    assert_eq!(told[0].0, "PartitionKey eq 'b'");
    assert_eq!((told[0].1, told[0].3), ("Partition scan", 2));
    assert_eq!((told[1].1, told[1].3), ("Row range scan", 4));
    assert_eq!((told[2].0, told[2].1, told[2].3), ("I ge 7", "Full table scan", 1));
    assert_eq!((told[3].0, told[3].3), ("", 2));
    assert_eq!(kept[0].took, Duration::from_millis(6));
    assert_eq!(kept[1].took, Duration::from_millis(8));
    assert_eq!((kept[0].at.ticks() - NOW) / 10_000, 6);
    assert_eq!(kept[0].table, "things");
    assert!(kept[0].rows_looked_at >= 2);
    assert!(kept[2].explanation.contains("evaluated  I ge 7"), "{}", kept[2].explanation);
    assert_eq!(db.stats().get("queries_slow"), Some(4));
}

#[test]
fn a_query_that_fails_is_not_kept() {
    let (db, _) = filled(options(&MemFs::new()).slow_query(Duration::ZERO));
    let table = db.table("things").unwrap();
    let refuse = |_: &crate::table::RowView<'_>| Err(crate::error::Error::new(ErrorKind::Io, "no"));
    assert!(table.scan(KeyRange::all()).for_each_row(refuse).is_err());
    assert!(db.slow_queries().is_empty());
    assert_eq!(table.scan(KeyRange::all()).count().unwrap(), 30);
    assert_eq!(db.slow_queries().len(), 1);
}

//! Tests that the load of ranges is measured, and that advice and range splits follow from it.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::ManualClock;
use crate::db::{AntiPattern, Db, LoadPattern, PartitionRange};
use crate::model::Entity;
use crate::options::{Background, Durability, Options};
use crate::table::Table;

struct Run {
    db: Db,
    table: Table,
    clock: Arc<ManualClock>,
}

impl Run {
    /// Creates a thousand partitions, in one range and one file.
    fn new() -> Self {
        Self::with(Options::new())
    }

    fn with(options: Options) -> Self {
        let clock = Arc::new(ManualClock::new(super::NOW));
        let shared: Arc<dyn crate::clock::Clock> = Arc::clone(&clock) as _;
        let options = options.clock(shared).background(Background::Manual).seed(1);
        let db = options.durability(Durability::Buffered).open_in_memory().unwrap();
        let table = db.create_table("things").unwrap();
        for i in 0..1_000 {
            table.insert(Entity::new(format!("p{i:03}"), "r").with("A", i)).unwrap();
        }
        db.flush().unwrap();
        Self { db, table, clock }
    }

    /// Calls `with` `per_second` times in each of `seconds` seconds of the manual clock.
    fn run(&self, seconds: u64, per_second: u64, mut with: impl FnMut(&Table, u64)) {
        for second in 0..seconds {
            for i in 0..per_second {
                with(&self.table, second * per_second + i);
                self.clock.advance(Duration::from_secs(1) / per_second as u32);
            }
        }
    }

    fn range(&self) -> PartitionRange {
        let mut ranges = self.db.partitions("things").unwrap();
        assert_eq!(ranges.len(), 1);
        ranges.remove(0)
    }

    fn seen(&self) -> Vec<AntiPattern> {
        let advice = self.db.advise("things", u64::MAX).unwrap();
        advice.into_iter().map(|advice| advice.pattern).collect()
    }
}

fn spread(i: u64) -> String {
    format!("p{:03}", i * 617 % 1_000)
}

#[track_caller]
fn check_about(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 0.1, "{found}, and not {expected}");
}

#[test]
fn point_reads_and_writes_are_counted() {
    let run = Run::new();
    run.run(600, 30, |table, i| {
        table.get(&spread(i), "r").unwrap().unwrap();
        if i % 3 == 0 {
            table.upsert(Entity::new(spread(i), "r").with("A", 0)).unwrap();
        }
    });
    let range = run.range();
    check_about(range.reads, 30.0);
    check_about(range.writes, 10.0);
    check_about(range.minutes[1], 40.0);
    check_about(range.distinct as f64, 1_000.0);
    assert_eq!(range.pattern, LoadPattern::Spread);
    assert_eq!((range.entities, range.files, range.tombstones), (1_000, 1, 0));
    assert!(range.is_exact);
    // The second file has newer versions of the entities in the first.
    run.db.flush().unwrap();
    assert!(!run.range().is_exact);
}

#[test]
fn rows_skipped_by_queries_are_counted_as_reads() {
    let run = Run::new();
    run.run(300, 1, |table, _| {
        let filter = "PartitionKey ge 'p100' and PartitionKey lt 'p300' and A eq 150";
        assert_eq!(table.query(filter).unwrap().count().unwrap(), 1);
    });
    check_about(run.range().reads, 200.0 * (1.0 - 1.0 / 32.0));
}

#[test]
fn load_counts_of_one_thread_are_reproducible() {
    let counted = || {
        let run = Run::new();
        run.run(100, 500, |table, i| drop(table.get(&spread(i * i), "r").unwrap()));
        run.range()
    };
    assert_eq!(counted(), counted());
}

#[test]
fn appended_load_and_hot_partitions_are_named() {
    let run = Run::new();
    run.run(120, 50, |table, i| {
        table.insert(Entity::new(format!("q{i:06}"), "r")).map(drop).unwrap()
    });
    assert_eq!(run.range().pattern, LoadPattern::Ascending);
    assert_eq!(run.seen()[..1], [AntiPattern::AppendOnly]);

    let run = Run::new();
    run.run(120, 50, |table, i| {
        let key = if i % 10 == 0 { spread(i) } else { "p500".to_owned() };
        table.get(&key, "r").unwrap();
    });
    assert_eq!(run.range().pattern, LoadPattern::OnePartition);
    assert_eq!(run.range().heaviest[0].0, "p500");
    assert!(run.seen().contains(&AntiPattern::HotPartition));
}

#[test]
fn advice_names_filters_that_scan_and_not_listings() {
    let run = Run::new();
    for _ in 0..20 {
        run.table.query("").unwrap().count().unwrap();
        run.table.query("PartitionKey eq 'p001'").unwrap().count().unwrap();
    }
    assert!(!run.seen().contains(&AntiPattern::TableScans));
    for _ in 0..20 {
        run.table.query("A eq 5").unwrap().count().unwrap();
    }
    assert!(run.seen().contains(&AntiPattern::TableScans));
}

/// After six minutes of load that a split can divide, the range is split. The two new ranges are
/// small, but they are merged again only after an hour without load.
#[test]
fn a_hot_range_is_split_and_merged_again_when_it_is_cold() {
    let run = Run::with(Options::new().run_file_bytes(4 << 10));
    let ranges = |run: &Run| {
        while run.db.step(Duration::ZERO) {}
        run.db.partitions("things").unwrap()
    };
    run.run(240, 3_000, |table, i| drop(table.get(&spread(i), "r").unwrap()));
    assert_eq!(ranges(&run).len(), 1);
    run.run(120, 3_000, |table, i| drop(table.get(&spread(i), "r").unwrap()));
    let parts = ranges(&run);
    assert_eq!(parts.len(), 2);
    check_about(parts[0].reads + parts[1].reads, 3_000.0);
    assert!(parts.iter().all(|part| part.reads > 700.0 && part.pattern == LoadPattern::Spread));
    let touch = || {
        run.table.upsert(Entity::new("p000", "r")).unwrap();
        run.db.flush().unwrap();
    };
    touch();
    assert_eq!(ranges(&run).len(), 2);
    run.clock.advance(Duration::from_secs(7_300));
    touch();
    assert_eq!(ranges(&run).len(), 1);
}

/// The positions of the newest entities in key order show whether keys grow with time.
#[test]
fn the_shape_of_data_at_rest() {
    let run = Run::new();
    let shape = run.db.data_shape("things", u64::MAX).unwrap();
    assert_eq!((shape.partitions, shape.single_partitions, shape.ascending), (1_000, 1_000, 1.0));
    assert!((shape.newest[18] - 0.5).abs() < 1e-6 && (shape.newest[19] - 0.5).abs() < 1e-6);
    let part = run.db.data_shape("things", 10).unwrap();
    assert_eq!((part.complete, part.entities), (false, 10));
    assert_eq!(run.db.data_shape("nope", 1).unwrap_err().code(), "TableNotFound");
}

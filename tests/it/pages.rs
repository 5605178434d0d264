//! Tests where pages end, and that a reader that follows tokens sees every row once, whatever
//! happens between the pages.

use std::sync::Arc;
use std::time::Duration;

use rowstone::fs::MemFs;
use rowstone::{
    Db, Durability, Entity, ErrorKind, Filter, KeyRange, Page, Query, Table, Token,
    clock::{Clock, ManualClock},
    options::Background,
    prop,
    query::Number,
    retry::Rng,
};

use rowstone::sim::engine::START;

fn open(fs: &MemFs, clock: Arc<dyn Clock>) -> Db {
    let options = Db::options().fs(Arc::new(fs.clone())).clock(clock).seed(1);
    let options = options.background(Background::Manual).durability(Durability::Os);
    options.memtable_bytes(256 << 10).block_bytes(1 << 10).open("db").unwrap()
}

fn still() -> Arc<dyn Clock> {
    Arc::new(ManualClock::new(START))
}

/// Inserts `rows` entities into each partition. One entity in ten has `Mark` set.
fn fill(table: &Table, partitions: u32, rows: u32) {
    let mut loader = table.loader();
    for number in 0..partitions * rows {
        let entity = Entity::new(format!("p{}", number / rows), format!("r{:06}", number % rows));
        let entity = entity.with("Mark", number % 10 == 0).with("Number", i64::from(number));
        loader.push(u64::from(number), entity).unwrap();
    }
    loader.finish().unwrap();
}

fn key(entity: &Entity) -> String {
    format!("{}/{}", entity.partition_key(), entity.row_key())
}

fn keys(query: Query) -> Vec<String> {
    query.into_iter().map(|entity| key(&entity.unwrap())).collect()
}

/// Reads all keys in pages of `count`. Returns the keys and the lengths of the pages. Runs
/// `between` after each page.
fn follow(
    query: &Query,
    count: usize,
    mut between: impl FnMut(&Token),
) -> (Vec<String>, Vec<usize>) {
    let (mut found, mut lengths) = (Vec::new(), Vec::new());
    let mut query = query.clone();
    loop {
        let page: Page = query.clone().page(count).unwrap();
        lengths.push(page.entities().len());
        found.extend(page.entities().iter().map(key));
        let Some(next) = page.next() else { return (found, lengths) };
        between(next);
        query = query.after(next.clone());
    }
}

#[test]
fn a_page_ends_when_it_is_full_and_has_a_token_only_if_there_is_more() {
    let db = open(&MemFs::new(), still());
    let table = db.create_table("Pages").unwrap();
    fill(&table, 2, 1_500);
    let marked = table.query("Mark").unwrap();
    let all = keys(marked.clone());
    assert_eq!(all.len(), 300);
    assert_eq!(follow(&marked, 100, |_| {}), (all.clone(), vec![100, 100, 100]));
    assert_eq!(follow(&marked, 101, |_| {}).1, [101, 101, 98]);
    assert_eq!(follow(&table.scan(KeyRange::all()), 1_000, |_| {}).1, [1_000; 3]);
    assert_eq!(follow(&marked.clone().top(250), 1_000, |_| {}).1, [250, 50]);
    let none = marked.clone().page(0).unwrap();
    assert_eq!((none.entities().len(), none.next()), (0, None));
    assert_eq!(marked.page(1_001).unwrap_err().kind(), ErrorKind::InvalidInput);
    let point = table.query("PartitionKey eq 'p1' and RowKey eq 'r000007'").unwrap();
    assert_eq!(follow(&point, 1, |_| {}).1, [1]);
}

#[test]
fn a_page_ends_with_the_entity_that_brings_it_to_its_bytes() {
    let db = open(&MemFs::new(), still());
    let table = db.create_table("Pages").unwrap();
    fill(&table, 1, 50);
    let size = table.get("p0", "r000000").unwrap().unwrap().size();
    let query = table.scan(KeyRange::all()).byte_budget(3 * size - 1);
    let (found, lengths) = follow(&query, 1_000, |_| {});
    assert_eq!(found, keys(table.scan(KeyRange::all())));
    assert_eq!(lengths.iter().max(), Some(&3));
    // An entity larger than the budget is a page of its own.
    assert!(follow(&query.byte_budget(0), 1_000, |_| {}).1.iter().all(|len| *len == 1));
}

/// A clock that advances by 1 ms with each reading.
#[derive(Debug)]
struct Ticking(ManualClock);

impl Clock for Ticking {
    fn now(&self) -> u64 {
        self.0.now()
    }

    fn monotonic(&self) -> Duration {
        self.0.advance(Duration::from_millis(1));
        self.0.monotonic()
    }
}

#[test]
fn a_page_that_takes_too_long_ends_early_and_may_be_empty() {
    let db = open(&MemFs::new(), Arc::new(Ticking(ManualClock::new(START))));
    let table = db.create_table("Pages").unwrap();
    fill(&table, 1, 60_000);
    // Zones (bounds of the property values in a block) do not cover keys, so every row is
    // evaluated.
    let last = table.query("RowKey eq 'r059990' or RowKey eq 'r000005'").unwrap();
    assert_eq!(keys(last.clone()), ["p0/r000005", "p0/r059990"]);
    let hasty = last.clone().time_budget(Duration::ZERO);
    let (found, lengths) = follow(&hasty, 10, |_| {});
    assert_eq!(found, ["p0/r000005", "p0/r059990"]);
    assert!(lengths.len() > 2 && lengths.contains(&0), "{lengths:?}");
    assert_eq!(follow(&last.time_budget(Duration::from_secs(3600)), 10, |_| {}).1, [2]);
    // Returning matching rows also uses up the time budget.
    let all = table.scan(KeyRange::all()).time_budget(Duration::ZERO);
    let page = all.page(1_000).unwrap();
    assert!(page.entities().len() < 1_000 && page.next().is_some());
}

#[test]
fn thousands_of_absent_points_end_a_page() {
    let db = open(&MemFs::new(), Arc::new(Ticking(ManualClock::new(START))));
    let table = db.create_table("Pages").unwrap();
    fill(&table, 1, 10);
    let absent = (0..20_000).map(|i| Filter::row("absent", format!("r{i:06}")));
    let filter = Filter::any(absent.chain([Filter::row("p0", "r000003")]));
    let query = table.query(filter).unwrap().time_budget(Duration::ZERO);
    let (found, lengths) = follow(&query, 10, |_| {});
    assert_eq!(found, ["p0/r000003"]);
    assert!(lengths.len() > 3, "{lengths:?}");
    assert_eq!(follow(&query.reverse(), 10, |_| {}).0, ["p0/r000003"]);
}

/// The filter matches many key intervals without rows, more than one page may read.
#[test]
fn a_page_that_ends_between_intervals_has_a_token() {
    let db = open(&MemFs::new(), still());
    let table = db.create_table("Pages").unwrap();
    for pk in ["a", "z"] {
        table.insert(Entity::new(pk, "row")).unwrap();
    }
    // A page without a limit on its time may read fewer than 6,000 intervals. A page with the least
    // time reads a few, and each page plans all of them.
    for (intervals, budget) in [(300, Duration::ZERO), (6_000, Duration::from_secs(5))] {
        follow_pages_between_intervals(&table, intervals, budget);
    }
}

fn follow_pages_between_intervals(table: &Table, intervals: u32, budget: Duration) {
    let middle = |make: fn(String) -> Filter| {
        let absent = (0..intervals).map(|i| make(format!("m{i:05}")));
        Filter::any(
            [Filter::partition("a")].into_iter().chain(absent).chain([Filter::partition("z")]),
        )
    };
    let filters = [
        middle(Filter::partition),
        middle(|pk| Filter::row_prefix(pk, "r")),
        middle(|pk| Filter::row(pk, "row")),
        // The key intervals of these filters are between excluded partitions, or between excluded
        // rows.
        Filter::every((0..intervals).map(|i| prop("PartitionKey").ne(format!("m{i:05}")))),
        Filter::every((0..intervals).map(|i| prop("RowKey").ne(format!("m{i:05}"))))
            .and(Filter::any(["a", "b", "z"].map(Filter::partition))),
    ];
    for filter in filters {
        let query = table.query(filter).unwrap().time_budget(budget);
        assert_eq!(follow(&query, 1, |_| {}).0, ["a/row", "z/row"]);
        assert_eq!(follow(&query, 10, |_| {}).0, ["a/row", "z/row"]);
        let back = query.reverse();
        assert_eq!(follow(&back, 1, |_| {}).0, ["z/row", "a/row"]);
        assert_eq!(follow(&back, 10, |_| {}).0, ["z/row", "a/row"]);
    }
}

/// If a page ends among the older versions of its last row, the next page must not return that row
/// again.
#[test]
fn a_row_with_many_versions_is_returned_once() {
    let fs = MemFs::new();
    let options = Db::options().fs(Arc::new(fs)).clock(still()).background(Background::Manual);
    let options = options.durability(Durability::Buffered).memtable_bytes(64 << 20);
    let db = options.open("db").unwrap();
    let table = db.create_table("Hot").unwrap();
    table.insert(Entity::new("p", "z")).unwrap();
    for i in 0..40_000 {
        table.upsert(Entity::new("p", "hot").with("N", i)).unwrap();
    }
    for query in [table.scan(KeyRange::all()), table.query("N ge 0 or RowKey eq 'z'").unwrap()] {
        for budget in [Duration::ZERO, Duration::from_secs(5)] {
            let query = query.clone().time_budget(budget);
            assert_eq!(follow(&query, 1, |_| {}).0, ["p/hot", "p/z"]);
            assert_eq!(follow(&query.reverse(), 1, |_| {}).0, ["p/z", "p/hot"]);
        }
    }
}

#[test]
fn the_clock_is_read_more_often_for_long_filters_and_across_intervals() {
    let db = open(&MemFs::new(), still());
    let table = db.create_table("Pages").unwrap();
    fill(&table, 200, 100);
    let long = Filter::any((0..5_000).map(|i| prop("Number").eq(format!("never {i}"))));
    let explained = |query: Query| query.time_budget(Duration::ZERO).page_explained(10).unwrap();
    let (page, explain) = explained(table.query(long).unwrap());
    assert!(page.next().is_some() && explain.rows_looked_at() < 1_000, "{explain}");
    let partitions = Filter::any((0..200).map(|p| Filter::partition(format!("p{p}"))));
    // Every block has both values, so zones exclude no block.
    let none = partitions.and(prop("Mark").eq(true).and(prop("Mark").eq(false)));
    let (page, explain) = explained(table.query(none).unwrap());
    assert!(page.next().is_some() && explain.rows_looked_at() < 17_000, "{explain}");
}

#[test]
fn a_scan_of_a_range_is_explained_by_its_class() {
    let db = open(&MemFs::new(), still());
    let table = db.create_table("Pages").unwrap();
    fill(&table, 2, 50);
    let class = |range: KeyRange| table.scan(range).explain().unwrap().class();
    assert_eq!(class(KeyRange::all()), "Full table scan");
    assert_eq!(class(KeyRange::partition("p0")), "Partition scan");
    assert_eq!(class(KeyRange::rows("p0", "r000007".."r000009")), "Row range scan");
    assert_eq!(class(KeyRange::point("p0", "r000007")), "Point query");
    assert_eq!(class(KeyRange::rows("p0", "c".."a")), "Empty plan");
    let explain = table.scan(KeyRange::rows("p0", "r000007".."r000009")).explain().unwrap();
    assert_eq!(explain.intervals(), ["['p0', 'r000007' … 'p0', 'r000009')"]);
}

#[test]
fn trap_22_a_filtered_query_continues_after_its_row_was_deleted_and_after_a_reopen() {
    let fs = MemFs::new();
    for reverse in [false, true] {
        let mut db = open(&fs, still());
        let name = if reverse { "Backwards" } else { "Forwards" };
        fill(&db.create_table(name).unwrap(), 3, 400);
        let mut rng = Rng::from_seed(5);
        let (mut found, mut gone) = (Vec::new(), Vec::new());
        let mut token: Option<Token> = None;
        let query = |db: &Db| {
            let query = db.table(name).unwrap().query("Mark and RowKey ge 'r0001'").unwrap();
            if reverse { query.reverse() } else { query }
        };
        let mut expected = keys(query(&db));
        loop {
            let mut query = query(&db);
            if let Some(token) = token.take() {
                query = query.after(token);
            }
            let page = query.page(1 + rng.index(9)).unwrap();
            found.extend(page.entities().iter().map(key));
            let Some(next) = page.next().cloned() else { break };
            match rng.index(4) {
                0 => {
                    let table = db.table(name).unwrap();
                    table.delete(&next.partition_key, &next.row_key).unwrap();
                    gone.push(format!("{}/{}", next.partition_key, next.row_key));
                }
                1 => db.flush().unwrap(),
                2 => db.compact().unwrap(),
                _ => {
                    db.close().unwrap();
                    db = open(&fs, still());
                }
            }
            token = Some(next);
        }
        assert!(gone.len() > 3, "{gone:?}");
        expected.retain(|key| !gone.contains(key));
        assert_eq!(found, expected);
        db.close().unwrap();
    }
}

#[test]
fn pages_like_a_busy_services_are_short_empty_and_end_between_partitions() {
    let db = open(&MemFs::new(), still());
    let table = db.create_table("Pages").unwrap();
    fill(&table, 8, 60);
    let query = table.query("Mark").unwrap();
    let all = keys(query.clone());
    let (mut empty, mut short, mut boundaries) = (0, 0, 0);
    for seed in 0..60 {
        let query = query.clone().service_like(seed);
        let (found, lengths) = follow(&query, 7, |next| {
            boundaries += usize::from(next.row_key.is_empty());
        });
        assert_eq!(found, all, "seed {seed}");
        assert_eq!(follow(&query, 7, |_| {}).1, lengths, "seed {seed} again");
        empty += lengths.iter().filter(|len| **len == 0).count();
        short += lengths.iter().filter(|len| (1..7).contains(*len)).count();
    }
    assert!(empty > 20 && short > 20 && boundaries > 20, "{empty} {short} {boundaries}");
    let point = table.query("PartitionKey eq 'p1' and RowKey eq 'r000010'").unwrap();
    assert!((0..20).all(|seed| follow(&point.clone().service_like(seed), 7, |_| {}).1 == [1]));
}

#[test]
fn aggregates_never_wrap_and_never_mix() {
    let db = open(&MemFs::new(), still());
    let table = db.create_table("Numbers").unwrap();
    let insert = |rk: &str, entity: fn(Entity) -> Entity| {
        table.insert(entity(Entity::new("p", rk))).unwrap();
    };
    insert("a", |entity| entity.with("A", i64::MAX));
    insert("b", |entity| entity.with("A", i64::MAX));
    insert("c", |entity| entity.with("A", -7));
    insert("d", |entity| entity);
    insert("e", |entity| entity.with("A", "text"));
    insert("f", |entity| entity.with("A", f64::NAN));
    let sum = 2 * i128::from(i64::MAX) - 7;
    let all = || table.scan(KeyRange::all());
    let aggregate = all().aggregate("A").unwrap();
    assert_eq!(aggregate.sum(), Some(Number::Integer(sum)));
    assert_eq!(aggregate.min(), Some(Number::Integer(-7)));
    assert_eq!(aggregate.max(), Some(Number::Integer(i64::MAX.into())));
    assert_eq!(aggregate.avg(), Some(sum as f64 / 3.0));
    let counts = (aggregate.rows(), aggregate.integers(), aggregate.doubles());
    assert_eq!(counts, (6, 3, 0));
    assert_eq!((aggregate.nans(), aggregate.missing(), aggregate.others()), (1, 1, 1));
    insert("g", |entity| entity.with("A", 0.5));
    let aggregate = all().aggregate("A").unwrap();
    assert_eq!((aggregate.doubles(), aggregate.min()), (1, Some(Number::Double(-7.0))));
    assert_eq!(all().aggregate("None").unwrap().sum(), None);
    table.insert(Entity::new("q", "a").with("A", 1)).unwrap();
    let groups = all().aggregate_by_partition("A").unwrap();
    let sums: Vec<_> = groups.iter().map(|(pk, group)| (pk.as_str(), group.rows())).collect();
    assert_eq!(sums, [("p", 7), ("q", 1)]);
    assert_eq!(groups[1].1.sum(), Some(Number::Integer(1)));
    assert_eq!(all().count_by_partition().unwrap(), [("p".into(), 7), ("q".into(), 1)]);
}

/// Zones skip only blocks without matches, and an explanation reports the actual work.
#[test]
fn clustered_data_is_skipped_where_it_cannot_match() {
    let db = open(&MemFs::new(), still());
    let table = db.create_table("Zones").unwrap();
    fill(&table, 4, 10_000);
    db.compact().unwrap();
    let explain = table.query("Number ge 25000L and Number lt 25010L").unwrap().explain().unwrap();
    assert_eq!((explain.class(), explain.rows_returned()), ("Full table scan", 10));
    assert!(explain.rows_looked_at() < 400, "{explain}");
    assert!(explain.blocks_skipped() > 50 * explain.blocks_read(), "{explain}");
    let text = explain.to_string();
    assert!(text.contains("evaluated  Number ge 25000L and Number lt 25010L"), "{text}");
    // Newer versions move one row into the interval of `Number`, and one out of it.
    table.upsert(Entity::new("p0", "r000001").with("Number", 25_005_i64)).unwrap();
    table.upsert(Entity::new("p2", "r005003").with("Number", 1_i64)).unwrap();
    table.delete("p2", "r005004").unwrap();
    let query = table.query("Number ge 25000L and Number lt 25010L").unwrap();
    let found = keys(query.clone());
    assert_eq!((found.len(), found[0].as_str()), (9, "p0/r000001"));
    assert_eq!(query.clone().count().unwrap(), 9);
    assert_eq!(table.scan(KeyRange::all()).count().unwrap(), 39_999);
    db.flush().unwrap();
    assert_eq!((keys(query.clone()).len(), query.count().unwrap()), (9, 9));
    assert_eq!(table.scan(KeyRange::partition("p2")).count().unwrap(), 9_999);
}

//! Compares queries with the naive answer, for which each entity of the table is tested against the
//! filter.
//!
//! Tables are deliberately small and irregular, with many layers: overlapping files, tombstones,
//! old versions that a snapshot keeps, properties that change their type or disappear, extreme
//! values.

use std::sync::Arc;

use rowstone::fs::MemFs;
use rowstone::{
    Binary, DateTime, Db, Durability, Entity, Filter, Guid, KeyRange, Query, Snapshot, Table,
    Token, Value,
    clock::ManualClock,
    options::{Background, IoMode},
    prop,
    query::Number,
    retry::Rng,
};

use rowstone::sim::engine::START;

use crate::say;

const PARTITIONS: [&str; 6] = ["", "a", "ab", "b", "～", "😀"];
const NAMES: [&str; 4] = ["A", "B", "C", "Long_name_of_a_property"];
const TEXTS: [&str; 8] =
    ["", "a", "aa", "prefix-of-more-than-eight-1", "prefix-of-more-than-eight-2", "～", "😀", "z"];

fn open(io: IoMode) -> Db {
    let options = Db::options().fs(Arc::new(MemFs::new())).clock(Arc::new(ManualClock::new(START)));
    let options = options.background(Background::Manual).durability(Durability::Buffered);
    let options = options.io_mode(io).cache_bytes(0).seed(1);
    options.memtable_bytes(64 << 10).block_bytes(512).open("db").unwrap()
}

fn row_key(rng: &mut Rng) -> String {
    format!("r{:03}", rng.below(120))
}

fn value(rng: &mut Rng) -> Value {
    let small = rng.below(7) as i32 - 3;
    let doubles = [-0.0, 0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.5, f64::from(small)];
    match rng.below(8) {
        0 => Value::Int32(*rng.pick(&[small, i32::MIN, i32::MAX])),
        1 => Value::Int64(*rng.pick(&[i64::from(small), i64::MIN, i64::MAX])),
        2 => Value::Double(*rng.pick(&doubles)),
        3 => Value::Boolean(rng.chance(1, 2)),
        4 => Value::DateTime(DateTime::from_ticks(START + rng.below(4)).unwrap()),
        5 => Value::Guid(Guid::from_bytes([rng.below(3) as u8; 16])),
        6 => Value::Binary(vec![7; rng.index(12)]),
        _ => Value::String((*rng.pick(&TEXTS)).to_owned()),
    }
}

/// Returns a random entity: some values are clustered and of one type, others are not.
fn entity(rng: &mut Rng, step: u64) -> Entity {
    let mut entity = Entity::new(*rng.pick(&PARTITIONS), row_key(rng));
    for name in NAMES {
        match rng.below(4) {
            0 => {}
            1 => drop(entity.set(name, value(rng))),
            _ => drop(entity.set(name, (step / 50) as i32)),
        }
    }
    entity
}

fn key_literal(rng: &mut Rng) -> String {
    match rng.below(8) {
        0 => "a\0".into(),
        1 => "a\0b".into(),
        2 => "a/b".into(),
        3 => "～".into(),
        _ => (*rng.pick(&PARTITIONS)).into(),
    }
}

fn comparison(rng: &mut Rng, step: u64) -> Filter {
    let (name, literal) = match rng.below(8) {
        0..2 => ("PartitionKey", Value::String(key_literal(rng))),
        2..4 => ("RowKey", Value::String(row_key(rng))),
        4 => ("Timestamp", Value::DateTime(DateTime::from_ticks(START + rng.below(3000)).unwrap())),
        5 => (*rng.pick(&["PartitionKey", "RowKey", "Timestamp"]), value(rng)),
        6 => (*rng.pick(&NAMES), Value::Int32(rng.below(step / 50 + 1) as i32)),
        _ => (*rng.pick(&NAMES), value(rng)),
    };
    let property = prop(name);
    match rng.below(6) {
        0 => property.eq(literal),
        1 => property.ne(literal),
        2 => property.lt(literal),
        3 => property.le(literal),
        4 => property.gt(literal),
        _ => property.ge(literal),
    }
}

fn filter(rng: &mut Rng, step: u64, depth: u32) -> Filter {
    match rng.below(if depth == 0 { 1 } else { 5 }) {
        0 | 1 => comparison(rng, step),
        2 => filter(rng, step, depth - 1).and(filter(rng, step, depth - 1)),
        3 => filter(rng, step, depth - 1).or(filter(rng, step, depth - 1)),
        _ => filter(rng, step, depth - 1).not(),
    }
}

struct World {
    db: Db,
    table: Table,
    snapshots: Vec<Snapshot>,
    rng: Rng,
    step: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let db = open(if seed.is_multiple_of(2) { IoMode::Pread } else { IoMode::Mmap });
        let table = db.create_table("Things").unwrap();
        Self { db, table, snapshots: Vec::new(), rng: Rng::from_seed(seed), step: 0 }
    }

    fn change(&mut self) {
        self.step += 1;
        let entity = entity(&mut self.rng, self.step);
        match self.rng.below(40) {
            0 => self.db.flush().unwrap(),
            1 if self.rng.chance(1, 4) => self.db.compact().unwrap(),
            2 => drop(self.db.step(std::time::Duration::ZERO)),
            3 if self.snapshots.len() < 3 => self.snapshots.push(self.db.snapshot()),
            4 => drop(self.snapshots.pop()),
            5..12 => drop(self.table.delete(entity.partition_key(), entity.row_key())),
            12..20 => drop(self.table.upsert_merge(entity).unwrap()),
            _ => drop(self.table.upsert(entity).unwrap()),
        }
    }

    /// Returns the query, possibly at a random snapshot, and the entities that it must find.
    fn query(&mut self, filter: &Filter) -> (Query, Vec<Entity>) {
        let index = self.rng.index(self.snapshots.len() + 1);
        let (query, all) = match self.snapshots.get(index) {
            Some(at) => {
                let view = self.table.at(at);
                (view.query(filter.clone()).unwrap(), view.scan(KeyRange::all()))
            }
            None => (self.table.query(filter.clone()).unwrap(), self.table.scan(KeyRange::all())),
        };
        let all = all.into_iter().map(Result::unwrap);
        (query, all.filter(|entity| filter.matches(entity)).collect())
    }
}

/// Returns entities as text, because in text a NaN is equal to itself.
fn texts<'e>(entities: impl IntoIterator<Item = &'e Entity>) -> Vec<String> {
    entities.into_iter().map(|entity| format!("{entity:?}")).collect()
}

/// Reads the entities of a query, as text.
fn read(query: Query) -> Vec<String> {
    query.into_iter().map(|entity| format!("{:?}", entity.unwrap())).collect()
}

#[track_caller]
fn assert_same(found: &[String], expected: &[String], how: &str, filter: &str) {
    let at = found.iter().zip(expected).take_while(|(a, b)| a == b).count();
    let (found, expected) = (found.get(at), expected.get(at));
    assert_eq!(found, expected, "{how}, entity {at}: {filter}");
}

fn pages(query: &Query, rng: &mut Rng, seed: Option<u64>, db: &Db) -> (Vec<String>, usize) {
    let (mut found, mut empty) = (Vec::new(), 0);
    let mut token: Option<Token> = None;
    loop {
        let mut next = query.clone();
        if let Some(token) = token.take() {
            next = next.after(token);
        }
        if let Some(seed) = seed {
            next = next.service_like(seed);
        }
        let page = next.page(1 + rng.index(9)).unwrap();
        empty += usize::from(page.entities().is_empty());
        found.extend(texts(page.entities()));
        if rng.chance(1, 20) {
            db.step(std::time::Duration::ZERO);
        }
        match page.next() {
            Some(next) => token = Some(next.clone()),
            None => return (found, empty),
        }
    }
}

/// Checks that all ways to read one query agree with the naive answer.
fn check(world: &mut World, filter: &Filter) {
    let (query, entities) = world.query(filter);
    let expected = texts(&entities);
    let text = filter.to_string();
    assert_same(&read(query.clone()), &expected, "forwards", &text);
    let explain = query.clone().explain().unwrap();
    assert_eq!(explain.rows_returned(), expected.len() as u64, "{text}");
    assert!(explain.rows_looked_at() >= explain.rows_returned(), "{text}\n{explain}");
    assert_eq!(query.clone().count().unwrap(), expected.len() as u64, "{text}");
    let grouped: u64 = query.clone().count_by_partition().unwrap().iter().map(|(_, n)| n).sum();
    assert_eq!(grouped, expected.len() as u64, "{text}");
    let mut backwards = read(query.clone().reverse());
    backwards.reverse();
    assert_same(&backwards, &expected, "backwards", &text);
    let top = world.rng.index(6);
    let head = &expected[..top.min(expected.len())];
    assert_same(&read(query.clone().top(top)), head, "top", &text);
    let seed = world.rng.chance(1, 2).then(|| world.rng.next_u64());
    let (found, _) = pages(&query, &mut world.rng, seed, &world.db);
    assert_same(&found, &expected, &format!("by pages, {seed:?}"), &text);
    let (mut found, _) = pages(&query.clone().reverse(), &mut world.rng, None, &world.db);
    found.reverse();
    assert_same(&found, &expected, "backwards by pages", &text);
    let aggregate = query.aggregate("A").unwrap();
    let sum: i128 = entities.iter().map(|e| integer(e).unwrap_or(0)).sum();
    let integers = entities.iter().filter(|e| integer(e).is_some()).count() as u64;
    assert_eq!(
        (aggregate.rows(), aggregate.integers()),
        (expected.len() as u64, integers),
        "{text}"
    );
    if aggregate.doubles() == 0 && integers > 0 {
        assert_eq!(aggregate.sum(), Some(Number::Integer(sum)), "{text}");
    }
}

fn integer(entity: &Entity) -> Option<i128> {
    match entity.get::<Option<Value>>("A").ok()?? {
        Value::Int32(value) => Some(value.into()),
        Value::Int64(value) => Some(value.into()),
        _ => None,
    }
}

#[test]
fn trap_40_trap_53_queries_agree_with_a_full_scan() {
    let mut looked = 0;
    for seed in 0..crate::cases("QUERIES", 8) {
        let mut world = World::new(seed);
        for _ in 0..12 {
            for _ in 0..80 {
                world.change();
            }
            for _ in 0..12 {
                let filter = filter(&mut world.rng, world.step, 3);
                // The filter's text parses to the same filter.
                assert_eq!(filter.to_string().parse::<Filter>().unwrap(), filter);
                check(&mut world, &filter);
                looked += 1;
            }
        }
        assert_eq!(world.db.verify().unwrap().problems, [""; 0]);
    }
    say(format_args!("{looked} queries, each read in nine ways"));
}

#[test]
fn many_points_read_nothing_else() {
    let mut world = World::new(7);
    for _ in 0..2_000 {
        world.change();
    }
    world.db.flush().unwrap();
    let point = |i: u64| Filter::row(PARTITIONS[(i % 6) as usize], format!("r{:03}", i / 6));
    let filter = Filter::any((0..6 * 200).map(point));
    let (query, expected) = world.query(&filter);
    assert_same(&read(query.clone()), &texts(&expected), "points", "1,200 points");
    let explain = query.explain().unwrap();
    assert_eq!((explain.class(), explain.points()), ("Point query", 1200));
    assert_eq!(explain.rows_looked_at(), 1200);
    let keys: Vec<(String, String)> = (0..1200)
        .map(|i| (PARTITIONS[(i % 6) as usize].to_owned(), format!("r{:03}", i / 6)))
        .collect();
    let keys: Vec<(&str, &str)> = keys.iter().map(|(pk, rk)| (pk.as_str(), rk.as_str())).collect();
    let found = world.table.get_many(&keys).unwrap();
    for ((pk, rk), found) in keys.into_iter().zip(found) {
        assert_eq!(texts(&world.table.get(pk, rk).unwrap()), texts(&found));
    }
}

#[test]
fn binaries_are_bound_as_values() {
    let world = World::new(1);
    let entity = Entity::new("a", "r").with("A", Binary(vec![1, 2]));
    world.table.insert(entity).unwrap();
    let query = |text: &str| world.table.query(text).unwrap().count().unwrap();
    assert_eq!((query("A eq X'0102'"), query("A lt X'0102'"), query("A gt X'01'")), (1, 0, 1));
}

/// A read of keys that no entity can have finds nothing, and does not fail.
#[test]
fn keys_with_forbidden_characters_are_absent() {
    let world = World::new(1);
    for (pk, rk) in [("a", "b"), ("a", ""), ("", "a")] {
        world.table.insert(Entity::new(pk, rk)).unwrap();
    }
    let odd = [("a\0", "b"), ("a", "\0"), ("a", "b\0"), ("\0", ""), ("a/", "b"), ("a", "b")];
    let found = world.table.get_many(&odd).unwrap();
    assert_eq!(
        found.iter().map(Option::is_some).collect::<Vec<_>>(),
        [false, false, false, false, false, true]
    );
    assert!(world.table.get("a\0b", "").unwrap().is_none());
    let from = |pk: &str, rk: &str| Token { partition_key: pk.into(), row_key: rk.into() };
    let count = |query: Query| query.page(10).unwrap().entities().len();
    let all = || world.table.scan(KeyRange::all());
    assert_eq!(count(all().after(from("a\0b", ""))), 0);
    assert_eq!(count(all().after(from("a", "a\0c"))), 1);
    assert_eq!(count(all().after(from("a", "a\0c")).reverse()), 2);
}

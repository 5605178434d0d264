//! Tests that scans which merge many sources return the written rows, for all kinds of keys and
//! requests.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::{NOW, options};
use crate::db::Db;
use crate::fs::MemFs;
use crate::model::Entity;
use crate::query::{KeyRange, Query, prop};
use crate::rng::Rng;
use crate::table::{Snapshot, Table};

type Rows = BTreeMap<(String, String), i32>;

/// Returns a random key. `form` chooses whether there are few or many partitions, and whether keys
/// differ in their first or only in their last bytes. Some keys are prefixes of others.
fn key(rng: &mut Rng, form: u64) -> (String, String) {
    match form {
        0 => (format!("device-{:08}", rng.below(3)), format!("0{:018}", rng.below(300) * 10_000)),
        1 => (format!("p{}", rng.below(200)), format!("{}", rng.below(4))),
        2 => {
            let tail = "x".repeat(rng.below(12) as usize);
            (format!("p{}", rng.below(2)), format!("long-and-alike-{tail}{}", rng.below(9)))
        }
        _ => (format!("p{}", rng.below(40)), format!("alike-in-all-of-them-{}", rng.below(40))),
    }
}

fn found(query: Query) -> Vec<((String, String), i32)> {
    first(query, usize::MAX)
}

/// Returns the first `count` rows and then stops the scan; `count` is at least 1.
fn first(query: Query, count: usize) -> Vec<((String, String), i32)> {
    let mut rows = Vec::new();
    let read = query.for_each_row(|row| {
        let entity = row.to_entity()?;
        let key = (entity.partition_key().to_owned(), entity.row_key().to_owned());
        rows.push((key, entity.get::<i32>("V")?));
        assert!(rows.len() <= count, "a row after the reader stopped the scan");
        Ok(if rows.len() == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    });
    read.unwrap();
    rows
}

/// Compares full scans, filters, counts and reads of a part of a partition with `rows`; at the
/// snapshot `at` if one is given.
fn check(table: &Table, at: Option<&Snapshot>, rows: &Rows, rng: &mut Rng) {
    let scan = |range: KeyRange| match at {
        Some(at) => table.at(at).scan(range),
        None => table.scan(range),
    };
    let filter = |limit: i32| match at {
        Some(at) => table.at(at).query(prop("V").lt(limit)).unwrap(),
        None => table.query(prop("V").lt(limit)).unwrap(),
    };
    let expected = |limit: i32| -> Vec<((String, String), i32)> {
        let below = rows.iter().filter(|(_, value)| **value < limit);
        below.map(|(key, value)| (key.clone(), *value)).collect()
    };
    assert_eq!(found(scan(KeyRange::all())), expected(i32::MAX));
    for limit in [1, 30, 500, 900] {
        assert_eq!(found(filter(limit)), expected(limit), "{limit}");
        assert_eq!(filter(limit).count().unwrap(), expected(limit).len() as u64, "{limit}");
    }
    for _ in 0..8 {
        let low = rows.keys().nth(rng.below(rows.len() as u64 + 1) as usize);
        let Some((pk, rk)) = low else { continue };
        let top = 1 + rng.below(120) as usize;
        let part: Vec<_> = rows
            .range((pk.clone(), rk.clone())..)
            .take_while(|((partition, _), _)| partition == pk)
            .take(top)
            .map(|(key, value)| (key.clone(), *value))
            .collect();
        let range = || scan(KeyRange::rows(pk, rk.as_str()..));
        assert_eq!(found(range().top(top)), part, "{pk}/{rk}");
        assert_eq!(first(range(), top), part, "{pk}/{rk}");
        let one_by_one = range().top(top).into_iter().map(|entity| entity.unwrap().get::<i32>("V"));
        assert!(one_by_one.map(Result::unwrap).eq(part.iter().map(|(_, value)| *value)));
    }
}

fn write(db: &Db, table: &Table, rows: &mut Rows, rng: &mut Rng, form: u64) {
    let (pk, rk) = key(rng, form);
    match rng.below(200) {
        0 => {
            table.delete_partition(&pk).unwrap();
            rows.retain(|(partition, _), _| *partition != pk);
        }
        1..40 => {
            if rows.remove(&(pk.clone(), rk.clone())).is_some() {
                table.delete(&pk, &rk).unwrap();
            }
        }
        40 => db.flush().unwrap(),
        41..44 => drop(found(table.scan(KeyRange::all()).top(1))),
        _ => {
            let value = rng.below(1_000) as i32;
            table.upsert(Entity::new(&pk, &rk).with("V", value)).unwrap();
            rows.insert((pk, rk), value);
        }
    }
}

#[test]
fn scans_over_many_sources_return_every_row() {
    for seed in 0..24 {
        let mut rng = Rng::from_seed(NOW ^ seed);
        let block_bytes = [512, 4 << 10][(seed / 4 % 2) as usize];
        let db = options(&MemFs::new())
            .memtable_bytes(1 << 20)
            .block_bytes(block_bytes)
            .open("db")
            .unwrap();
        let table = db.create_table("things").unwrap();
        let (mut rows, mut states) = (Rows::new(), Vec::new());
        for i in 1..=1_500 {
            write(&db, &table, &mut rows, &mut rng, seed % 4);
            if i % 500 == 200 {
                states.push((db.snapshot(), rows.clone()));
            }
            if i % 700 == 0 {
                check(&table, None, &rows, &mut rng);
            }
        }
        check(&table, None, &rows, &mut rng);
        for (at, rows) in &states {
            check(&table, Some(at), rows, &mut rng);
        }
    }
}

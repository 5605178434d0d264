//! Tests of views over targets that fail, lose answers, and have two runners.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Source, View};
use crate::clock::ManualClock;
use crate::db::Db;
use crate::error::{ErrorKind, Result};
use crate::fs::MemFs;
use crate::model::Entity;
use crate::options::{Background, Options};
use crate::query::KeyRange;
use crate::rng::Rng;
use crate::store::TableStore;
use crate::store::cut::{Cut, Fault};
use crate::store::pages::Side;
use crate::table::EntityGroup;

const NOW: u64 = 134_000_000_000_000_000;
const TABLE: &str = "Tab";

struct Device {
    fs: Arc<MemFs>,
    clock: Arc<ManualClock>,
    db: Db,
}

impl Device {
    fn new() -> Self {
        let (fs, clock) = (Arc::new(MemFs::new()), Arc::new(ManualClock::new(NOW)));
        let db = options(&fs, &clock).keep_changes(1 << 30).open("device").unwrap();
        db.create_table(TABLE).unwrap();
        Self { fs, clock, db }
    }

    fn put(&self, pk: &str, rk: &str, group: i32, n: i32) {
        self.db.upsert(TABLE, &row(pk, rk, group, n)).unwrap();
    }

    fn view<'s>(&self, target: &'s dyn TableStore) -> View<'s> {
        view(Source::Db(self.db.clone()), target)
    }

    /// Lets all rows expire.
    fn expire(&self) {
        self.db.set_ttl(TABLE, Some(Duration::from_secs(60))).unwrap();
        self.clock.advance(Duration::from_secs(3_600));
        self.put("new", "new", 1, 1);
        self.db.flush().unwrap();
        self.clock.advance(Duration::from_secs(3_600));
        self.db.compact().unwrap();
        while self.db.step(Duration::ZERO) {}
        self.db.set_ttl(TABLE, None).unwrap();
    }

    fn import(&self, number: u64) {
        let from = format!("from{number}");
        let db = options(&self.fs, &self.clock).open(&*from).unwrap();
        let table = db.create_table(TABLE).unwrap();
        for rk in 0..3 {
            let pk = format!("import{number}");
            table.insert(row(&pk, &rk.to_string(), rk % 2, rk)).unwrap();
        }
        db.close().unwrap();
        self.db.import_range(&*from, TABLE).unwrap();
    }
}

fn options(fs: &Arc<MemFs>, clock: &Arc<ManualClock>) -> Options {
    let options = Options::new().fs(Arc::clone(fs) as _).clock(Arc::clone(clock) as _);
    options.background(Background::Manual).memtable_bytes(1 << 20)
}

fn row(pk: &str, rk: &str, group: i32, n: i32) -> Entity {
    Entity::new(pk, rk).with("Group", group).with("N", n)
}

fn view(source: Source, target: &dyn TableStore) -> View<'_> {
    View::new(source, TABLE, target, "sums", fold)
}

/// A sum of all rows, a sum by group, and an index by `N`. Rows of group 3 contribute nothing.
fn fold(row: &Entity) -> Result<Vec<Entity>> {
    let (group, n): (i32, i32) = (row.get("Group")?, row.get("N")?);
    if group == 3 {
        return Ok(Vec::new());
    }
    let indexed = format!("{}-{}", row.partition_key(), row.row_key());
    Ok(vec![
        Entity::new("all", "sum").with("N", n),
        Entity::new(format!("group{group}"), "sum").with("N", n),
        Entity::new(format!("n{n}"), indexed).with("Group", group),
    ])
}

type Sums = BTreeMap<(String, String), (i64, i64)>;

fn rows(db: &Db, table: &str, filter: &str) -> Vec<Entity> {
    let side = Side { store: db, table };
    side.rows(filter, &[], 1_000).collect::<Result<_>>().unwrap()
}

/// Returns the number of contributions and the sum of each view row.
fn sums(target: &Db) -> Sums {
    let sum = |row: Entity| {
        let value = row.get("N").or_else(|_| row.get("Group")).unwrap();
        let key = (row.partition_key().to_owned(), row.row_key().to_owned());
        (key, (row.get("Rows").unwrap(), value))
    };
    rows(target, "sums", "Rows ge 1").into_iter().map(sum).collect()
}

fn expected(source: &Db) -> Sums {
    let mut sums = Sums::new();
    for row in rows(source, TABLE, "").iter().flat_map(|row| fold(row).unwrap()) {
        let key = (row.partition_key().to_owned(), row.row_key().to_owned());
        let value: i32 = row.get("N").or_else(|_| row.get("Group")).unwrap();
        let sum = sums.entry(key).or_default();
        *sum = (sum.0 + 1, sum.1 + i64::from(value));
    }
    sums
}

/// Whether the view equals the fold of the source, and the index lists nothing else.
fn check(source: &Db, target: &Db, about: &str) {
    assert_eq!(sums(target), expected(source), "{about}");
    let listed = rows(target, "sumsindex", "").into_iter().filter_map(|row| {
        let key = row.row_key().strip_prefix('=')?.to_owned();
        Some((row.partition_key().to_owned(), key))
    });
    let folded = rows(source, TABLE, "");
    let folded = folded.iter().filter(|row| !fold(row).unwrap().is_empty());
    let folded = folded.map(|row| (row.partition_key().to_owned(), row.row_key().to_owned()));
    let [listed, folded]: [BTreeSet<_>; 2] = [listed.collect(), folded.collect()];
    assert_eq!(listed, folded, "{about}");
}

/// Changes the source.
fn change(device: &Device, rng: &mut Rng, number: u64) {
    let key = |rng: &mut Rng| (format!("p{}", rng.below(3)), rng.below(12).to_string());
    let value = |rng: &mut Rng| (rng.below(4) as i32, rng.below(5) as i32);
    let (pk, rk) = key(rng);
    let (group, n) = value(rng);
    match rng.below(24) {
        0 => drop(device.db.delete_range(TABLE, &KeyRange::partition(pk)).unwrap()),
        1 => drop(device.db.delete_range(TABLE, &KeyRange::rows(pk, &*rk..)).unwrap()),
        2 if rng.chance(1, 3) => device.expire(),
        3 => device.import(number),
        4 if rng.chance(1, 3) => {
            device.db.delete_table(TABLE).unwrap();
            device.db.create_table(TABLE).unwrap();
        }
        5..9 => drop(device.db.table(TABLE).unwrap().delete(&pk, &rk)),
        9..12 => {
            let mut all = EntityGroup::new(&*pk);
            for rk in 0..=rng.below(100) {
                let (group, n) = value(rng);
                all.upsert(row(&pk, &rk.to_string(), group, n)).unwrap();
            }
            device.db.commit(TABLE, &all).unwrap();
        }
        _ => device.put(&pk, &rk, group, n),
    }
}

/// Lets runners be killed, lose answers and be overtaken. Finally one runs undisturbed.
fn simulate(seed: u64) {
    let (device, mut target, mut rng) = (Device::new(), Cut::new(), Rng::from_seed(seed));
    if rng.chance(1, 3) {
        target.db = device.db.clone();
    }
    let target = Arc::new(target);
    let mut number = 0;
    for round in 0..12 {
        let mut view = device.view(&*target);
        for _ in 0..rng.below(4) {
            for _ in 0..rng.below(12) {
                number += 1;
                change(&device, &mut rng, number);
            }
            disturb(&device, &target, &mut rng);
            if rng.chance(1, 12) {
                view.rebuild();
            }
            match view.catch_up() {
                Ok(_) => {}
                Err(error) => assert!(
                    !matches!(
                        error.kind(),
                        ErrorKind::InvalidInput | ErrorKind::ChangesLost | ErrorKind::AlreadyExists
                    ),
                    "seed {seed}: {error}"
                ),
            }
        }
        *target.fault.lock() = None;
        *target.before.lock() = None;
        if rng.chance(1, 2) {
            device.view(&*target).catch_up().unwrap();
            check(&device.db, &target.db, &format!("seed {seed}, round {round}"));
        }
    }
}

/// Plans a failure, or a second runner, within the next requests.
fn disturb(device: &Device, target: &Arc<Cut>, rng: &mut Rng) {
    let within = if rng.chance(1, 2) { 300 } else { 40 };
    let at = target.requests() + rng.below(within);
    let faults = [Fault::Refused, Fault::Lost, Fault::Away, Fault::LostThenAway];
    *target.fault.lock() = rng.chance(2, 3).then(|| (at, *rng.pick(&faults)));
    if rng.chance(1, 3) {
        let (source, other, mut rng) =
            (device.db.clone(), target.db.clone(), Rng::from_seed(rng.next_u64()));
        let at = target.requests() + rng.below(200);
        let run = move || {
            for _ in 0..rng.below(6) {
                let rk = rng.below(12).to_string();
                let (group, n) = (rng.below(4) as i32, rng.below(5) as i32);
                match rng.chance(1, 2) {
                    true => drop(source.upsert(TABLE, &row("p0", &rk, group, n)).unwrap()),
                    false => drop(source.table(TABLE).unwrap().delete("p0", &rk)),
                }
            }
            view(Source::Db(source), &other).catch_up().unwrap();
        };
        *target.before.lock() = Some((at, Box::new(run)));
    }
}

#[test]
fn a_view_equals_the_fold_of_its_source() {
    (0..30).for_each(simulate);
}

#[test]
fn lost_changes_are_found_by_a_comparison() {
    let (device, target) = (Device::new(), Db::open_in_memory().unwrap());
    (0..150).for_each(|n| device.put("p", &n.to_string(), n % 3, n));
    device.view(&target).catch_up().unwrap();
    device.db.delete_range(TABLE, &KeyRange::rows("p", "5"..)).unwrap();
    // Opened without `keep_changes`, a flush discards the logs.
    let Device { fs, clock, db } = device;
    db.close().unwrap();
    let db = options(&fs, &clock).open("device").unwrap();
    db.flush().unwrap();
    let device = Device { fs, clock, db };
    device.put("p", "1", 1, 77);
    device.db.flush().unwrap();
    device.view(&target).catch_up().unwrap();
    check(&device.db, &target, "after the loss");
}

#[test]
fn another_history_needs_a_rebuild() {
    let (device, target) = (Device::new(), Db::open_in_memory().unwrap());
    ["a", "b", "c"].iter().for_each(|rk| device.put("p", rk, 1, 1));
    device.view(&target).catch_up().unwrap();
    let other = Device::new();
    other.put("p", "b", 2, 5);
    let mut view = other.view(&target);
    let error = view.catch_up().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ChangesLost, "{error}");
    assert!(error.message().contains("rebuild the view"), "{error}");
    check(&device.db, &target, "before the rebuild");
    view.rebuild();
    view.catch_up().unwrap();
    check(&other.db, &target, "after the rebuild");
    other.put("p", "b", 1, 6);
    view.catch_up().unwrap();
    check(&other.db, &target, "after a change");
}

#[test]
fn a_later_runner_takes_over() {
    let (device, target) = (Device::new(), Db::open_in_memory().unwrap());
    let [mut first, mut second] = [(); 2].map(|()| device.view(&target));
    device.put("p", "a", 1, 1);
    first.catch_up().unwrap();
    second.catch_up().unwrap();
    // Without a change nothing is written.
    first.catch_up().unwrap();
    device.put("p", "a", 2, 3);
    let error = first.catch_up().unwrap_err();
    assert_eq!((error.kind(), first.position()), (ErrorKind::Locked, None), "{error}");
    second.catch_up().unwrap();
    check(&device.db, &target, "after the takeover");
}

#[test]
fn a_view_of_its_own_database_ends_and_a_follower_is_a_source() {
    let device = Device::new();
    device.put("p", "a", 1, 1);
    let mut own = device.view(&device.db);
    own.catch_up().unwrap();
    let before = device.db.position();
    own.catch_up().unwrap();
    assert_eq!(device.db.position(), before);
    let follower = options(&device.fs, &device.clock).follow("device").unwrap();
    let target = Db::open_in_memory().unwrap();
    let mut view = view(Source::Follower(follower), &target);
    view.catch_up().unwrap();
    device.put("p", "b", 1, 1);
    device.db.sync().unwrap();
    view.catch_up().unwrap();
    check(&device.db, &target, "of a follower");
}

#[test]
fn a_fold_that_breaks_the_rules_is_refused() {
    let (device, target) = (Device::new(), Db::open_in_memory().unwrap());
    device.put("p", "a", 1, 1);
    let rows = |count: usize| vec![Entity::new("p", "a"); count];
    let cases = [
        (vec![Entity::new("p", "~a")], "RowKey"),
        (vec![Entity::new("p", "a").with("Rows", 1)], "Rows"),
        (rows(50), "49"),
    ];
    for (folded, expected) in cases {
        let fold = |_: &Entity| Ok(folded.clone());
        let mut view = View::new(Source::Db(device.db.clone()), TABLE, &target, "sums", fold);
        let error = view.catch_up().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains(expected), "{error}");
    }
    // Each row is one of a group: the contributions replace as many in one commit.
    for prefix in ["a", "b"] {
        let folded: Vec<_> = (0..49).map(|n| Entity::new("p", format!("{prefix}{n}"))).collect();
        let fold = |_: &Entity| Ok(folded.clone());
        let mut view = View::new(Source::Db(device.db.clone()), TABLE, &target, "sums", fold);
        view.rebuild();
        view.catch_up().unwrap();
        assert_eq!(rows_of(&target), 49);
    }
}

fn rows_of(target: &Db) -> usize {
    rows(target, "sums", "Rows ge 1").len()
}

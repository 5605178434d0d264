//! Tests of views over targets that fail, lose answers, and have two runners.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{Source, View};
use crate::clock::ManualClock;
use crate::db::Db;
use crate::error::{ErrorKind, Result};
use crate::fs::MemFs;
use crate::model::Entity;
use crate::options::{Background, Durability, Options};
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

    /// A database whose changes are lost at each flush.
    fn without_changes() -> Self {
        let Self { fs, clock, db } = Self::new();
        db.close().unwrap();
        let db = options(&fs, &clock).open("device").unwrap();
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
        self.expire_after(60);
    }

    /// Puts a row, waits an hour, and lets the rows expire that are older than some seconds.
    fn expire_after(&self, seconds: u64) {
        self.db.set_ttl(TABLE, Some(Duration::from_secs(seconds))).unwrap();
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
    let listed = rows(target, "sumsindex", "");
    let listed = listed.iter().filter_map(super::index::source_key);
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
            if rng.chance(1, 3) {
                // The other runner finds no row where this one has read some.
                let pk = format!("p{}", rng.below(3));
                source.delete_range(TABLE, &KeyRange::partition(pk)).unwrap();
            }
            for _ in 0..rng.below(6) {
                let rk = rng.below(12).to_string();
                let (group, n) = (rng.below(4) as i32, rng.below(5) as i32);
                match rng.chance(1, 2) {
                    true => drop(source.upsert(TABLE, &row("p0", &rk, group, n)).unwrap()),
                    false => drop(source.table(TABLE).unwrap().delete("p0", &rk)),
                }
            }
            let mut other = view(Source::Db(source), &other);
            if rng.chance(1, 3) {
                other.rebuild();
            }
            other.catch_up().unwrap();
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
    let row = || Entity::new("p", "a");
    let long = "n".repeat(251);
    let wide = |count: usize| (0..count).fold(row(), |row, n| row.with(format!("N{n}"), 1));
    let many = (0..100).map(|n| Entity::new(format!("{n:0>100}"), "a")).collect();
    let cases = [
        (vec![Entity::new("p", "~a")], "RowKey '~a'"),
        (vec![Entity::new("p", "a/b")], "RowKey 'a/b'"),
        (vec![Entity::new("p/q", "a")], "PartitionKey 'p/q'"),
        (vec![row().with("Rows", 1)], "property 'Rows', which is reserved"),
        (vec![row().with("Rows_N", 1)], "property 'Rows_N', which is reserved"),
        (vec![row().with("D", 0.5)], "property 'D', which is no integer"),
        (vec![row().with("T", "x")], "property 'T', which is no integer"),
        (vec![row().with(long, 1)], "a name that is too long"),
        (vec![row(); 50], "more than 49 rows of partition 'p'"),
        (many, "rows of 100 partitions"),
        (vec![wide(252)], "partition 'p' with more than 252 properties"),
    ];
    for (folded, expected) in cases {
        let error = fold_to(&device, &target, folded).catch_up().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let text = error.message();
        assert!(text.contains("the fold of row 'p', 'a'") && text.contains(expected), "{error}");
    }
    // Each row is one of a group: the contributions replace as many in one commit.
    for prefix in ["a", "b"] {
        let folded: Vec<_> = (0..49).map(|n| Entity::new("p", format!("{prefix}{n}"))).collect();
        let mut view = fold_to(&device, &target, folded);
        view.rebuild();
        view.catch_up().unwrap();
        assert_eq!(rows_of(&target), 49);
    }
    // A source row whose keys leave no room has no contributions.
    device.put("p", &"k".repeat(1_022), 1, 1);
    let error = fold_to(&device, &target, vec![row()]).catch_up().unwrap_err();
    assert!(error.message().contains("its own keys are too long"), "{error}");
    fold_to(&device, &target, Vec::new()).catch_up().unwrap();
}

fn fold_to<'s>(device: &Device, target: &'s Db, folded: Vec<Entity>) -> View<'s> {
    let source = Source::Db(device.db.clone());
    View::new(source, TABLE, target, "sums", move |_| Ok(folded.clone()))
}

fn rows_of(target: &Db) -> usize {
    rows(target, "sums", "Rows ge 1").len()
}

#[test]
fn a_group_that_is_too_large_is_refused() {
    let (device, target) = (Device::new(), Db::open_in_memory().unwrap());
    // Each source row adds other properties to the same view rows.
    let fold = |source: &Entity| {
        let name = |i| format!("N{}{}{i}", source.row_key(), "n".repeat(235));
        let row = |rk: i32| {
            let row = Entity::new("p", rk.to_string());
            (0..4).fold(row, |row, i| row.with(name(i), 1))
        };
        Ok((0..49).map(row).collect())
    };
    (0..30).for_each(|n| device.put("p", &format!("{n:02}"), 0, 0));
    let mut view = View::new(Source::Db(device.db.clone()), TABLE, &target, "sums", fold);
    let error = view.catch_up().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.message().contains("partition 'p' of view 'sums'"), "{error}");
    assert!(error.message().contains("exceed 4 MiB together"), "{error}");
}

#[test]
fn a_sum_of_more_than_64_bits_is_refused() {
    let (device, target) = (Device::new(), Db::open_in_memory().unwrap());
    let fold = |row: &Entity| {
        let n = match row.get::<i32>("N")? {
            0 => i64::MIN,
            n => i64::MAX - i64::from(n),
        };
        Ok(vec![Entity::new("p", "sum").with("N", n)])
    };
    let mut view = View::new(Source::Db(device.db.clone()), TABLE, &target, "sums", fold);
    // The sum of the group has 64 bits, but not that of its first rows.
    [1, 2, 0].iter().for_each(|n| device.put("p", &format!("{}", 9 - n), 1, *n));
    view.catch_up().unwrap();
    let sum = target.get("sums", "p", "sum", &[]).unwrap().unwrap();
    assert_eq!(sum.get::<i64>("N").unwrap(), i64::MAX - 4);
    // The least number is subtracted.
    device.db.table(TABLE).unwrap().delete("p", "9").unwrap();
    let error = view.catch_up().unwrap_err();
    let text = "the sum of property 'N' of view row 'p', 'sum' exceeds 64 bits";
    assert!(error.message().contains(text), "{error}");
}

/// A runner has read rows, and then a later one finds neither them nor rows of the index.
#[test]
fn a_stale_runner_adds_nothing_to_a_compared_view() {
    for at in 0..40 {
        let (device, target) = (Device::new(), Cut::new());
        device.put("p", "a", 1, 1);
        let (source, other) = (device.db.clone(), target.db.clone());
        let run = move || {
            source.delete_range(TABLE, &KeyRange::all()).unwrap();
            view(Source::Db(source), &other).catch_up().unwrap();
        };
        *target.before.lock() = Some((at, Box::new(run)));
        let stale = device.view(&target).catch_up();
        let is_locked = stale.is_err_and(|error| error.kind() == ErrorKind::Locked);
        device.view(&target.db).catch_up().unwrap();
        check(&device.db, &target.db, &format!("request {at}, locked {is_locked}"));
    }
}

/// Lets something happen before each request to a target.
fn before_each(target: &Arc<Cut>, run: impl Fn() + Send + Clone + 'static) {
    let (again, next) = (Arc::downgrade(target), run.clone());
    let run_again = move || {
        run();
        if let Some(target) = again.upgrade() {
            before_each(&target, next);
        }
    };
    *target.before.lock() = Some((0, Box::new(run_again)));
}

#[test]
fn changes_that_are_lost_during_a_comparison_are_compared_again() {
    let (device, target) = (Device::without_changes(), Arc::new(Cut::new()));
    (0..10).for_each(|n| device.put("p", &n.to_string(), n % 3, n));
    let db = device.db.clone();
    before_each(&target, move || {
        db.upsert(TABLE, &row("p", "x", 1, 1)).unwrap();
        db.flush().unwrap();
    });
    let mut view = device.view(&*target);
    for _ in 0..2 {
        let error = view.catch_up().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        assert!(error.message().contains("`keep_changes`"), "{error}");
    }
    *target.before.lock() = None;
    view.catch_up().unwrap();
    check(&device.db, &target.db, "after many flushes");
}

#[test]
fn a_row_that_changes_during_a_comparison_counts_when_it_ends() {
    let compared = |change: Option<u64>| {
        let (device, target) = (Device::new(), Cut::new());
        (0..10).for_each(|n| device.put("p", &n.to_string(), n % 3, n));
        let db = device.db.clone();
        let run = move || drop(db.upsert(TABLE, &row("p", "1", 2, 7)).unwrap());
        *target.before.lock() = change.map(|at| (at, Box::new(run) as Box<_>));
        device.view(&target).catch_up().unwrap();
        check(&device.db, &target.db, &format!("changed before request {change:?}"));
        target.requests()
    };
    let requests = compared(None);
    for at in 0..requests {
        compared(Some(at));
    }
}

#[test]
fn a_comparison_of_a_table_that_grows_ends() {
    let (device, target) = (Device::new(), Arc::new(Cut::new()));
    (0..100).for_each(|n| device.put("p", &format!("a{n:03}"), n % 3, n % 5));
    let (db, count) = (device.db.clone(), Arc::new(AtomicUsize::new(0)));
    let added = Arc::clone(&count);
    before_each(&target, move || {
        let n = added.fetch_add(1, Ordering::Relaxed);
        if n < 20_000 {
            db.upsert(TABLE, &row("p", &format!("b{n:06}"), 1, 1)).unwrap();
        }
    });
    let mut view = device.view(&*target);
    let reached = view.catch_up().unwrap();
    assert!(count.load(Ordering::Relaxed) < 5_000, "{count:?} rows were added");
    *target.before.lock() = None;
    assert!(view.catch_up().unwrap() > reached);
    check(&device.db, &target.db, "of a table that grew");
}

#[test]
fn a_deleted_table_of_a_view_is_made_again_or_named() {
    let (device, target) = (Device::new(), Db::open_in_memory().unwrap());
    (0..9).for_each(|n| device.put("p", &n.to_string(), n % 3, n));
    device.view(&target).catch_up().unwrap();
    target.delete_table("sums").unwrap();
    device.put("p", "1", 2, 2);
    device.view(&target).catch_up().unwrap();
    check(&device.db, &target, "made again");
    target.delete_table("sumsindex").unwrap();
    let refused = |expected: &str| {
        let error = device.view(&target).catch_up().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.message().contains(expected), "{error}");
    };
    refused("'sumsindex' is no longer that of the view in table 'sums': delete both");
    // Tables of something else.
    target.delete_table("sums").unwrap();
    target.create_table("sums").unwrap().insert(row("p", "a", 1, 1)).unwrap();
    refused("table 'sums' has rows that are not of the view");
    target.delete_table("sums").unwrap();
    device.view(&target).catch_up().unwrap();
    check(&device.db, &target, "deleted together");
}

#[test]
fn tables_of_something_else_are_refused() {
    let device = Device::new();
    device.put("p", "a", 1, 1);
    device.view(&device.db).catch_up().unwrap();
    device.db.create_table("Tabxindex").unwrap();
    let view = |table: &str, name: &str| {
        let mut view = View::new(Source::Db(device.db.clone()), table, &device.db, name, fold);
        view.catch_up().unwrap_err()
    };
    for (table, name, expected) in [
        (TABLE, "tab", "'tab' is the source"),
        ("Tabxindex", "tabx", "'tabxindex' is the source"),
        (TABLE, "sumsindex", "'sumsindex' has rows that are not of the view"),
        ("Tabxindex", "sums", "is one of table 'Tab', not of 'Tabxindex'"),
    ] {
        let error = view(table, name);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.message().contains(expected), "{error}");
    }
    // The index of a view is the table of another one.
    let mut other = View::new(Source::Db(device.db.clone()), TABLE, &device.db, "otherindex", fold);
    other.catch_up().unwrap();
    let error = view(TABLE, "other");
    assert!(error.message().contains("'otherindex' has rows that are not"), "{error}");
}

#[test]
fn ranges_are_subtracted_without_a_fold_of_other_rows() {
    let (device, target) = (Device::new(), Db::open_in_memory().unwrap());
    let count = AtomicUsize::new(0);
    let counted = |row: &Entity| {
        count.fetch_add(1, Ordering::Relaxed);
        fold(row)
    };
    let mut view = View::new(Source::Db(device.db.clone()), TABLE, &target, "sums", counted);
    let mut folds = || {
        let before = count.load(Ordering::Relaxed);
        view.catch_up().unwrap();
        count.load(Ordering::Relaxed) - before
    };
    let put = |pk: &str| (0..30).for_each(|n| device.put(pk, &n.to_string(), n % 3, n % 5));
    ["old", "b"].iter().for_each(|pk| put(pk));
    assert_eq!(folds(), 60);
    // A row of the range is written again in the same window.
    device.put("b", "5", 2, 2);
    device.db.delete_range(TABLE, &KeyRange::rows("b", "3"..)).unwrap();
    device.put("b", "4", 2, 2);
    assert_eq!(folds(), 2);
    check(&device.db, &target, "a range was deleted");
    device.clock.advance(Duration::from_secs(86_400));
    put("fresh");
    device.expire_after(43_200);
    assert_eq!(folds(), 31);
    check(&device.db, &target, "rows expired");
    assert!(device.db.get(TABLE, "old", "1", &[]).unwrap().is_none());
    assert!(device.db.get(TABLE, "fresh", "1", &[]).unwrap().is_some());
    device.import(1);
    device.put("import1", "1", 2, 2);
    assert_eq!(folds(), 3);
    check(&device.db, &target, "rows were imported");
}

#[test]
fn a_power_cut_of_the_source_reverts_nothing_that_a_comparison_has_seen() {
    let (device, target) = (Device::new(), Cut::new());
    let other = device.db.create_table("Other").unwrap();
    // The commit is not durable when the comparison takes its position.
    let run = move || {
        let buffered = other.with_durability(Durability::Buffered);
        buffered.insert(Entity::new("p", "a")).unwrap();
    };
    *target.before.lock() = Some((0, Box::new(run)));
    device.view(&target).catch_up().unwrap();
    let fs = Arc::new(device.fs.crash_image(1));
    let db = options(&fs, &device.clock).keep_changes(1 << 30).open("device").unwrap();
    let device = Device { fs, clock: Arc::clone(&device.clock), db };
    device.put("p", "a", 1, 1);
    device.view(&target.db).catch_up().unwrap();
    check(&device.db, &target.db, "after the power cut");
}

//! Tests of stamps, of expiry at the target, and of deletes of what only the target has.

use std::time::Duration;

use super::{
    Device, LONG, SyncJob, SyncProblem, SyncProblemKind, finish, noted, options, rows, step,
};
use crate::db::Db;
use crate::error::{Error, ErrorKind};
use crate::model::Entity;
use crate::options::OnFull;
use crate::store::cut::{Cut, Fault};
use crate::store::sync::Step;
use crate::sync::Mutex;
use crate::table::EntityGroup;

/// Returns the stamps of a table: `rk=STAMP`.
fn stamps(db: &Db) -> Vec<String> {
    let rows = db.table("Tab").unwrap().query("").unwrap().into_iter();
    rows.map(|row| row.unwrap())
        .map(|row| format!("{}={}", row.row_key(), row.get::<String>("From").unwrap()))
        .collect()
}

/// Returns the stamp that a row of the source gets.
fn stamp_of(device: &Device, rk: &str, name: &str) -> String {
    let row = device.db.table("Tab").unwrap().get("p", rk).unwrap().unwrap();
    let text = row.timestamp().unwrap().to_string();
    let digits = text.trim_end_matches('Z').split_once('.').map_or("", |(_, digits)| digits);
    format!("{rk}={}.{digits:0<7}Z {name}", &text[..19])
}

fn stamped<'s>(device: &Device, target: &'s Cut) -> SyncJob<'s> {
    device.job(target).stamp("From").unwrap()
}

fn expiring<'s>(device: &Device, target: &'s Cut) -> SyncJob<'s> {
    device.job(target).stamp_and_expire("From").unwrap()
}

/// Lets the rows of the device that are older than some minutes expire.
fn expire(device: &Device) {
    device.db.set_ttl("Tab", Some(Duration::from_secs(60))).unwrap();
    device.db.flush().unwrap();
    device.clock.advance(Duration::from_secs(3_600));
    device.put("other", "0", 0);
    device.db.compact().unwrap();
    while device.db.step(Duration::ZERO) {}
    device.put("p", "new", 9);
}

/// Discards the changes of the device that are kept.
fn lose_changes(device: Device) -> Device {
    let Device { fs, clock, db, jobs } = device;
    db.close().unwrap();
    let db = options(&fs, &clock).open("device").unwrap();
    db.flush().unwrap();
    let device = Device { fs, clock, db, jobs };
    device.put("p", "kept", 7);
    device.db.flush().unwrap();
    device
}

fn problems_of(
    device: &Device,
    mut job: SyncJob<'_>,
    found: &Mutex<Vec<SyncProblem>>,
) -> Vec<String> {
    finish(&mut job, &device.clock).unwrap();
    let all = std::mem::take(&mut *found.lock());
    let text = |problem: &SyncProblem| {
        let row = problem.row.as_ref().map(|(pk, rk)| format!("/{pk}/{rk}")).unwrap_or_default();
        format!("{} {}{row}", problem.kind.name(), problem.table)
    };
    all.iter().map(text).collect()
}

#[test]
fn each_carried_row_has_a_stamp() {
    let (device, target) = (Device::new(), Cut::new());
    ["a", "b"].iter().for_each(|rk| device.put("p", rk, 1));
    finish(&mut stamped(&device, &target).name("station"), &device.clock).unwrap();
    let expected = |device: &Device| ["a", "b"].map(|rk| stamp_of(device, rk, "station")).to_vec();
    assert_eq!(stamps(&target.db), expected(&device));
    // The name may be set first.
    let job = || device.job(&target).name("station").stamp("From").unwrap();
    device.put("p", "a", 2);
    finish(&mut job(), &device.clock).unwrap();
    assert_eq!(stamps(&target.db), expected(&device));
    assert!(stamps(&target.db)[0][2..] > stamps(&target.db)[1][2..]);
    // A comparison sees no difference in a stamp, but writes a row without its stamp.
    let mut again = job().resync(true);
    finish(&mut again, &device.clock).unwrap();
    assert_eq!(again.status().rows, 0);
    target.db.table("Tab").unwrap().upsert(Entity::new("p", "b").with("N", 1)).unwrap();
    let mut again = job().resync(true);
    finish(&mut again, &device.clock).unwrap();
    assert_eq!(again.status().rows, 1);
    assert_eq!(stamps(&target.db), expected(&device));
    let error = device.job(&target).stamp("Timestamp").err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn rows_that_cannot_have_a_stamp_are_refused() {
    let (device, target) = (Device::new(), Cut::new());
    let full = (1..252).fold(Entity::new("p", "full"), |row, i| row.with(format!("P{i}"), i));
    let mut group = EntityGroup::new("p");
    group.upsert(Entity::new("p", "a").with("N", 1)).unwrap();
    group.upsert(full.clone().with("N", 1)).unwrap();
    group.upsert(Entity::new("p", "own").with("N", 1).with("From", "here")).unwrap();
    group.upsert(Entity::new("p", "z").with("N", 1)).unwrap();
    device.db.create_table("Tab").unwrap().commit(group).unwrap();
    let error = finish(&mut stamped(&device, &target), &device.clock).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.chain().contains("252 properties"), "{error}");
    let found = Mutex::new(Vec::new());
    let job = || stamped(&device, &target).on_problem(noted(&found));
    device.clock.advance(LONG);
    let refused = ["refused Tab/p/full", "refused Tab/p/own"];
    assert_eq!(problems_of(&device, job(), &found), refused);
    assert_eq!(rows(&target.db), ["Tab/p/a=1", "Tab/p/z=1"]);
    // The same holds for the feed.
    device.db.table("Tab").unwrap().upsert(full.with("N", 2)).unwrap();
    device.put("p", "z", 2);
    assert_eq!(problems_of(&device, job(), &found), refused[..1]);
    assert_eq!(rows(&target.db), ["Tab/p/a=1", "Tab/p/z=2"]);
}

#[test]
fn expired_rows_are_deleted_by_their_stamp() {
    let (device, target) = (Device::new(), Cut::new());
    (0..300).for_each(|i| device.put("p", &format!("{i:03}"), i));
    finish(&mut stamped(&device, &target), &device.clock).unwrap();
    expire(&device);
    let table = target.db.table("Tab").unwrap();
    let row = |rk: &str, n: i32| Entity::new("p", rk).with("N", n);
    // Rows of another program and of another sync, and one without a stamp.
    let stamp: String = table.get("p", "001").unwrap().unwrap().get("From").unwrap();
    let other = stamp.replace("default", "other");
    table.upsert(row("other", 1).with("From", other)).unwrap();
    table.upsert(row("no stamp", 2).with("From", "1601")).unwrap();
    table.upsert(row("000", 3)).unwrap();
    // Without the option nothing is deleted.
    finish(&mut stamped(&device, &target), &device.clock).unwrap();
    assert_eq!(rows(&target.db).len(), 304);
    finish(&mut expiring(&device, &target).resync(true), &device.clock).unwrap();
    expire(&device);
    let mut job = expiring(&device, &target);
    let mut steps = 0;
    while step(&mut job, &device.clock).unwrap() != Step::Idle {
        // A program that changes the row all the time is not disturbed.
        table.merge(Entity::new("p", "002").with("Step", steps)).unwrap();
        steps += 1;
    }
    job.end().unwrap();
    let left = ["Tab/other/0=0", "Tab/p/000=3", "Tab/p/002=2", "Tab/p/new=9", "Tab/p/no stamp=2"];
    assert_eq!(rows(&target.db)[..5], left);
    assert_eq!(rows(&target.db)[5..], ["Tab/p/other=1"]);
}

/// The source still has the row, in a state that cannot be carried.
#[test]
fn a_row_that_the_source_still_has_does_not_expire() {
    let (device, target) = (Device::new(), Cut::new());
    let full = (1..252).fold(Entity::new("p", "full"), |row, i| row.with(format!("P{i}"), i));
    let table = device.db.create_table("Tab").unwrap();
    table.upsert(&full).unwrap();
    device.put("p", "gone", 1);
    finish(&mut stamped(&device, &target), &device.clock).unwrap();
    device.db.set_ttl("Tab", Some(Duration::from_secs(60))).unwrap();
    device.db.flush().unwrap();
    device.clock.advance(Duration::from_secs(3_600));
    table.upsert(full.with("N", 1)).unwrap();
    device.db.compact().unwrap();
    while device.db.step(Duration::ZERO) {}
    let found = Mutex::new(Vec::new());
    let job = expiring(&device, &target).on_problem(noted(&found));
    assert_eq!(problems_of(&device, job, &found), ["refused Tab/p/full"]);
    let table = target.db.table("Tab").unwrap();
    assert!(table.get("p", "gone").unwrap().is_none());
    assert!(table.get("p", "full").unwrap().is_some());
}

/// Each request of a sync that carries expiry fails once, in each way.
#[test]
fn expiry_survives_failures() {
    for fault in [Fault::Refused, Fault::Lost, Fault::LostThenAway] {
        for number in 0.. {
            let (device, target) = (Device::new(), Cut::new());
            (0..120).for_each(|i| device.put("p", &format!("{i:03}"), i));
            finish(&mut stamped(&device, &target), &device.clock).unwrap();
            expire(&device);
            let at = target.requests() + number;
            *target.fault.lock() = Some((at, fault));
            // The last save may fail.
            drop(finish(&mut expiring(&device, &target), &device.clock));
            if target.requests() <= at {
                assert!(number > 6, "{number}");
                break;
            }
            *target.fault.lock() = None;
            device.clock.advance(LONG);
            finish(&mut expiring(&device, &target), &device.clock).unwrap();
            assert_eq!(rows(&target.db), rows(&device.db), "{fault:?} at request {number}");
        }
    }
}

/// A row that was written again with the same content while changes were lost must not expire with
/// its older state.
#[test]
fn a_comparison_renews_stamps() {
    let (device, target) = (Device::new(), Cut::new());
    device.put("p", "a", 1);
    finish(&mut stamped(&device, &target), &device.clock).unwrap();
    device.clock.advance(Duration::from_secs(3_600));
    device.put("p", "a", 1);
    let device = lose_changes(device);
    finish(&mut stamped(&device, &target), &device.clock).unwrap();
    let expected = ["a", "kept"].map(|rk| stamp_of(&device, rk, "default"));
    assert_eq!(stamps(&target.db), expected);
}

#[test]
fn rows_that_only_the_target_has_are_deleted_if_asked() {
    let (device, target) = (Device::new(), Cut::new());
    ["a", "b", "c"].iter().for_each(|rk| device.put("p", rk, 1));
    device.put("q", "a", 1);
    device.sync(&target);
    target.db.create_table("Foreign").unwrap();
    device.db.table("Tab").unwrap().delete("p", "b").unwrap();
    device.db.table("Tab").unwrap().delete("q", "a").unwrap();
    let device = lose_changes(device);
    let found = Mutex::new(Vec::new());
    let job = || device.job(&target).on_problem(noted(&found));
    let listed = ["only-at-target Foreign", "only-at-target Tab/p/b", "only-at-target Tab/q/a"];
    assert_eq!(problems_of(&device, job(), &found), listed);
    assert_eq!(rows(&target.db).len(), 5);
    let job = || job().delete_missing(true).allow_drop(true).resync(true);
    assert_eq!(problems_of(&device, job(), &found), listed[..1]);
    assert_eq!(rows(&target.db), rows(&device.db));
    assert!(target.db.table("Foreign").is_ok());
}

/// The memory for the deletes is bounded: a slice is compared again after each 1,000 of them.
#[test]
fn many_rows_are_deleted_in_parts() {
    let (device, target) = (Device::new(), Cut::new());
    ["a", "z"].iter().for_each(|pk| device.put(pk, "a", 1));
    let mut loader = target.db.create_table("Tab").unwrap().loader();
    for i in 0..2_500 {
        loader.push(i, Entity::new("p", format!("{i:04}")).with("N", 0)).unwrap();
    }
    loader.finish().unwrap();
    let mut job = device.job(&target).delete_missing(true);
    let mut most = 0;
    loop {
        let before = job.status().rows;
        if step(&mut job, &device.clock).unwrap() == Step::Idle {
            break;
        }
        most = most.max(job.status().rows - before);
    }
    assert!((1_000..2_500).contains(&most), "{most}");
    assert_eq!(job.status().rows, 2_502);
    assert_eq!(rows(&target.db), rows(&device.db));
}

#[test]
fn a_mirror_is_one_comparison() {
    let (device, target) = (Device::new(), Cut::new());
    device.put("p", "a", 1);
    device.sync(&target);
    let foreign = |name: &str| {
        let table = target.db.table_or_create(name).unwrap();
        table.upsert(Entity::new("p", "foreign").with("N", 0)).unwrap();
    };
    ["Foreign", "Tab"].into_iter().for_each(foreign);
    let found = Mutex::new(Vec::new());
    let job = || device.job(&target).mirror(true).on_problem(noted(&found));
    let listed = "only-at-target Foreign";
    assert_eq!(problems_of(&device, job(), &found), [listed]);
    assert_eq!(rows(&target.db), ["Foreign/p/foreign=0", "Tab/p/a=1"]);
    foreign("Tab");
    assert_eq!(problems_of(&device, job().allow_drop(true), &found), [""; 0]);
    assert_eq!(rows(&target.db), ["Tab/p/a=1"]);
    assert_eq!(target.db.tables().unwrap(), ["rowstonesync", "Tab"]);
    // A later comparison of the same job keeps what only the target has.
    let mut job = job().allow_drop(true);
    while step(&mut job, &device.clock).unwrap() != Step::Idle {}
    ["Foreign", "Tab"].into_iter().for_each(foreign);
    let device = lose_changes(device);
    while step(&mut job, &device.clock).unwrap() != Step::Idle {}
    job.end().unwrap();
    assert_eq!(found.lock().len(), 2);
    let kept = ["Foreign/p/foreign=0", "Tab/p/a=1", "Tab/p/foreign=0", "Tab/p/kept=7"];
    assert_eq!(rows(&target.db), kept);
}

#[test]
fn a_lost_answer_of_a_dropped_table_is_no_error() {
    let (device, target) = (Device::new(), Cut::new());
    device.put("p", "a", 1);
    for number in 0..12 {
        device.sync(&target);
        target.db.create_table("Foreign").unwrap();
        *target.fault.lock() = Some((target.requests() + number, Fault::Lost));
        let mut job = device.job(&target).mirror(true).allow_drop(true);
        finish(&mut job, &device.clock).unwrap();
        assert_eq!(target.db.tables().unwrap(), ["rowstonesync", "Tab"], "{number}");
    }
}

#[test]
fn nothing_is_deleted_that_the_source_may_have_let_go() {
    let (mut device, target) = (Device::new(), Cut::new());
    device.put("p", "a", 1);
    device.db.create_table("Ring").unwrap();
    device.sync(&target);
    let refused = |device: &Device, table: &str| {
        for job in [device.job(&target).mirror(true), device.job(&target).delete_missing(true)] {
            let mut job = job;
            let before = target.requests();
            let error: Error = job.step().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.message().contains(table), "{error}");
            assert_eq!(target.requests(), before + 1, "only the position is read");
        }
    };
    device.db.set_ttl("Tab", Some(Duration::from_secs(60))).unwrap();
    refused(&device, "a time to live ends that of rows of table 'Tab'");
    device.db.set_ttl("Tab", None).unwrap();
    refused(&device, "has ended rows of table 'Tab'");
    device.db.delete_table("Tab").unwrap();
    device.db.create_table("Tab").unwrap();
    finish(&mut device.job(&target).allow_drop(true).delete_missing(true), &device.clock).unwrap();
    // The limit is an option of the writer, which other processes do not have.
    let ring = |name: &str| OnFull::DropOldest(vec![name.to_owned()]);
    let opened = |device: Device, on_full: OnFull| {
        let Device { fs, clock, db, jobs } = device;
        db.close().unwrap();
        let options = options(&fs, &clock).keep_changes(1 << 20).max_disk(128 << 20);
        let db = options.on_full(on_full).open("device").unwrap();
        Device { fs, clock, db, jobs }
    };
    device = opened(device, ring("ring"));
    refused(&device, "has ended rows of table 'Ring'");
    device = opened(device, OnFull::Refuse);
    refused(&device, "'Ring'");
    device.db.delete_table("Ring").unwrap();
    device = opened(device, ring("Later"));
    finish(&mut device.job(&target).allow_drop(true), &device.clock).unwrap();
    finish(&mut device.job(&target).delete_missing(true), &device.clock).unwrap();
    device.db.create_table("Later").unwrap();
    refused(&device, "'Later'");
}

#[test]
fn tables_that_only_the_target_has_are_listed() {
    let (device, target) = (Device::new(), Cut::new());
    device.put("p", "a", 1);
    target.db.create_table("tab").unwrap();
    target.db.create_table("Other").unwrap();
    let found = Mutex::new(Vec::new());
    let job = || device.job(&target).allow_drop(true).on_problem(noted(&found));
    assert_eq!(problems_of(&device, job(), &found), ["only-at-target Other"]);
    assert_eq!(problems_of(&device, job(), &found), [""; 0], "the feed lists none");
    let mut job = job().resync(true);
    finish(&mut job, &device.clock).unwrap();
    assert_eq!(found.lock()[0].kind, SyncProblemKind::OnlyAtTarget);
    assert_eq!(job.status().problems, 2);
}

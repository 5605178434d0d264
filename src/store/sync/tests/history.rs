//! Random histories of a device whose sync is killed and whose target fails, with a checker: after
//! each write, a partition of the target has a state that it had at the source, and never an older
//! one, but after a start. In the end source and target are equal.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Device, LONG, finish, rows, step};
use crate::db::Db;
use crate::error::ErrorKind;
use crate::model::Entity;
use crate::query::KeyRange;
use crate::rng::Rng;
use crate::store::cut::{Cut, Fault};
use crate::store::sync::Step;
use crate::table::EntityGroup;

/// The rows of a partition: values by RowKey.
type State = BTreeMap<String, i32>;

const PARTITIONS: [&str; 3] = ["p", "q", "r"];

struct Checker {
    /// The states of each partition at the source, in order.
    states: BTreeMap<&'static str, Vec<State>>,
    /// The number of the state that the target has.
    reached: BTreeMap<&'static str, usize>,
    /// The number of checked writes.
    seen: usize,
}

impl Checker {
    fn new() -> Self {
        let states = PARTITIONS.map(|name| (name, vec![State::new()])).into();
        Self { states, reached: BTreeMap::new(), seen: 0 }
    }

    /// Adds the state of each partition of the source.
    fn note(&mut self, source: &Db) {
        for (name, states) in &mut self.states {
            let state = state(source, name);
            if states.last() != Some(&state) {
                states.push(state);
            }
        }
    }

    /// The sync starts again: older states may be written once more.
    fn restart(&mut self) {
        self.reached.clear();
    }

    /// Checks the partitions that were written since the last call.
    fn check(&mut self, target: &Cut, context: &str) {
        let written = target.written.lock();
        for (table, name) in &written[self.seen..] {
            let Some((name, states)) = self.states.get_key_value(&**name) else { continue };
            if table == "rowstonesync" {
                continue;
            }
            let reached = self.reached.entry(*name).or_insert(0);
            let found = state(&target.db, name);
            let at = states[*reached..].iter().position(|state| *state == found);
            let at = at.unwrap_or_else(|| {
                panic!("{context}: {name} at the target is {found:?}, not one of {states:?}")
            });
            *reached += at;
        }
        self.seen = written.len();
    }
}

fn state(db: &Db, partition: &str) -> State {
    let Ok(table) = db.table("Tab") else { return State::new() };
    let rows = table.scan(KeyRange::partition(partition)).into_iter();
    rows.map(|row| row.unwrap())
        .map(|row| (row.row_key().to_owned(), row.get("N").unwrap()))
        .collect()
}

/// Does a random write. Each value is unique, so that all states differ.
fn write(device: &Device, rng: &mut Rng, n: i32) {
    let table = device.db.table_or_create("Tab").unwrap();
    let pk = *rng.pick(&PARTITIONS);
    let rk = |rng: &mut Rng| rng.below(6).to_string();
    match rng.below(8) {
        0 => drop(table.delete(pk, &rk(rng))),
        1..=3 => {
            let mut group = EntityGroup::new(pk);
            for i in 0..1 + rng.below(4) {
                let key = rk(rng);
                // A key that is in the group already is refused.
                drop(match rng.chance(1, 4) && table.get(pk, &key).unwrap().is_some() {
                    true => group.delete(&key),
                    false => group.upsert(Entity::new(pk, key).with("N", n + i as i32)),
                });
            }
            table.commit(group).unwrap();
        }
        _ => drop(table.upsert(Entity::new(pk, rk(rng)).with("N", n)).unwrap()),
    }
    device.clock.advance(Duration::from_millis(rng.below(300)));
}

fn fault(target: &Cut, rng: &mut Rng) {
    let faults = [Fault::Refused, Fault::Lost, Fault::Away, Fault::LostThenAway];
    let at = target.requests() + rng.below(12);
    *target.fault.lock() = rng.chance(2, 3).then(|| (at, *rng.pick(&faults)));
}

fn live(seed: u64) {
    let (device, target, mut rng) = (Device::new(), Cut::new(), Rng::from_seed(seed));
    let mut checker = Checker::new();
    device.db.create_table("Tab").unwrap();
    device.sync(&target);
    let mut job = device.job(&target);
    let mut n = 0;
    for round in 0..25 {
        let context = format!("seed {seed}, round {round}");
        for _ in 0..rng.below(12) {
            n += 10;
            write(&device, &mut rng, n);
            checker.note(&device.db);
        }
        fault(&target, &mut rng);
        for _ in 0..rng.below(12) {
            let stepped = step(&mut job, &device.clock);
            checker.check(&target, &context);
            match stepped {
                Ok(Step::Idle) => device.clock.advance(Duration::from_millis(rng.below(3_000))),
                Ok(_) => {}
                Err(error) => {
                    let may_pass =
                        matches!(error.kind(), ErrorKind::Io | ErrorKind::OutcomeUnknown);
                    assert!(may_pass, "{context}: {error}");
                    break;
                }
            }
        }
        if rng.chance(1, 3) {
            // Killed. Its requests can no longer take effect when the next one writes.
            job = device.job(&target);
            checker.restart();
        }
    }
    *target.fault.lock() = None;
    device.clock.advance(LONG);
    let mut job = device.job(&target);
    checker.restart();
    finish(&mut job, &device.clock).unwrap();
    checker.check(&target, &format!("seed {seed}, end"));
    assert_eq!(rows(&device.db), rows(&target.db), "seed {seed}");
    assert_eq!(job.status().position, Some(device.db.position()), "seed {seed}");
}

#[test]
fn partitions_of_the_target_have_states_of_the_source_in_order() {
    (0..60).for_each(live);
}

/// Kills a sync at each of its requests, before and after it takes effect.
#[test]
fn a_sync_that_is_killed_at_any_request_continues() {
    for fault in [Fault::Away, Fault::LostThenAway] {
        let mut killed = 0;
        for number in 0.. {
            let (device, target) = (Device::new(), Cut::new());
            let table = device.db.create_table("Tab").unwrap();
            (0..120).for_each(|i| device.put("p", &format!("{i:03}"), i));
            let mut job = device.job(&target);
            *target.fault.lock() = Some((number, fault));
            let mut ended = finish(&mut job, &device.clock);
            if ended.is_ok() {
                device.put("q", "a", 1);
                table.delete("p", "000").unwrap();
                table.delete_range(&KeyRange::rows("p", "100"..)).unwrap();
                device.put("p", "110", -1);
                ended = finish(&mut job, &device.clock);
            }
            drop(job);
            killed += u64::from(ended.is_err());
            let is_whole = ended.is_ok();
            *target.fault.lock() = None;
            device.clock.advance(LONG);
            device.sync(&target);
            assert_eq!(rows(&device.db), rows(&target.db), "{fault:?} at request {number}");
            if is_whole {
                break;
            }
        }
        assert!(killed > 15, "{killed}");
    }
}

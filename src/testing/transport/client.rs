//! A simulated client: each turn is one call of [`Remote`], or a few that belong together. Its
//! choices depend on a seed and on the answers that it got.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::ledger::{Action, ID, Key, Verb, Write};
use super::network::{Line, Network, Turn, open_remote};
use crate::clock::Clock;
use crate::error::{Code, Error, ErrorKind, Result};
use crate::model::{ETag, Entity};
use crate::rng::Rng;
use crate::store::{
    Condition, PageQuery, Remote, RemoteOptions, TableStore, transact_with, update_with,
};
use crate::table::{EntityGroup, Operation};

pub(super) const MAIN: &str = "main";
/// A table that clients create and delete.
pub(super) const EXTRA: &str = "extra";
pub(super) const COUNTER: Key = Key { table: MAIN, partition: "count", row: "n" };
/// Rows that all clients write.
const ROWS: [&str; 3] = ["a", "c", "e"];
/// Rows that no client writes, so that every query returns them.
pub(super) const STABLE: [&str; 4] = ["b", "d", "f", "g"];
pub(super) const PARTITION: &str = "p";
/// No query has so many pages.
const PAGES_MAX: usize = 64;

pub(super) struct Client {
    network: Arc<Network>,
    index: usize,
    remote: Remote,
    rng: Rng,
    /// The last ETag of each entity that the client knows.
    etags: BTreeMap<Key, ETag>,
    reads_secondary: bool,
}

impl Client {
    pub(super) fn new(network: &Arc<Network>, index: usize, mut rng: Rng) -> Self {
        let line = Line { network: Arc::clone(network), client: index };
        let reads_secondary = rng.chance(1, 4);
        let options = RemoteOptions::new().secondary(reads_secondary);
        let options = if rng.chance(3, 4) { options.request_id(ID) } else { options };
        let clock = Arc::clone(&network.clocks[index]) as Arc<dyn Clock>;
        let ids = Rng::from_seed(rng.next_u64());
        let remote = open_remote(Arc::new(line), clock, ids, options);
        let etags = BTreeMap::new();
        Self { network: Arc::clone(network), index, remote, rng, etags, reads_secondary }
    }

    /// Begins a call; returns its number, and the time.
    fn begin(&self, action: Action) -> (usize, u64) {
        self.network.note(|| format!("client {} begins {action:?}", self.index));
        let mut state = self.network.state.lock();
        let call = state.ledger.begin(action);
        state.current[self.index] = call;
        (call, state.ledger.now())
    }

    fn end(&self, call: usize, result: Result<&[Option<ETag>], &Error>) {
        let text = match result {
            Ok(etags) => format!("{etags:?}"),
            Err(error) => format!("{:?} {}", error.kind(), error.code()),
        };
        self.network.note(|| format!("client {} call {call} ends: {text}", self.index));
        let mut state = self.network.state.lock();
        state.ledger.end(call, result);
        let kind = result.err().map(Error::kind);
        let count = match kind {
            None => "successes",
            Some(ErrorKind::OutcomeUnknown) => "unknown outcomes",
            Some(_) => "refusals",
        };
        *state.counts.entry(count).or_default() += 1;
    }

    fn random_key(&mut self) -> Key {
        let table = if self.rng.chance(1, 8) { EXTRA } else { MAIN };
        Key { table, partition: PARTITION, row: ROWS[self.rng.index(ROWS.len())] }
    }

    fn random_write(&mut self, key: Key) -> Write {
        let verbs = [Verb::Insert, Verb::Insert, Verb::Replace, Verb::Merge, Verb::Delete];
        let verb = *self.rng.pick(&verbs);
        let etag = self.etags.get(&key).cloned();
        let condition = match (self.rng.below(3), etag) {
            (0, Some(etag)) => Condition::Match(etag),
            (1, _) => Condition::Any,
            _ => Condition::None,
        };
        let condition = if verb == Verb::Insert { Condition::None } else { condition };
        // There are few values, so clients often write the same ones.
        Write { key, verb, condition, value: self.rng.below(2) as i32 }
    }

    fn write_one(&mut self, write: Write) {
        let (call, _) = self.begin(Action::Write(vec![write.clone()]));
        let Write { key: Key { table, partition, row }, verb, condition, .. } = &write;
        let result = match verb {
            Verb::Insert => self.remote.insert(table, &write.entity()).map(Some),
            Verb::Replace => self.remote.replace(table, &write.entity(), condition).map(Some),
            Verb::Merge => self.remote.merge(table, &write.entity(), condition).map(Some),
            Verb::Delete => self.remote.delete(table, partition, row, condition).map(|()| None),
        };
        let result = result.map(|etag| vec![etag]);
        self.end(call, result.as_deref());
        if let Ok(etags) = result {
            self.learn(&[write], etags);
        }
    }

    fn learn(&mut self, writes: &[Write], etags: Vec<Option<ETag>>) {
        for (write, etag) in writes.iter().zip(etags) {
            self.etags.extend(etag.map(|etag| (write.key, etag)));
        }
    }

    fn write_group(&mut self) {
        let table = self.random_key().table;
        let mut rows = ROWS.to_vec();
        rows.remove(self.rng.index(rows.len() + 1).min(rows.len() - 1));
        let keys = rows.into_iter().map(|row| Key { table, partition: PARTITION, row });
        let mut writes: Vec<Write> = keys.map(|key| self.random_write(key)).collect();
        let mut group = EntityGroup::new(PARTITION);
        for write in &mut writes {
            if write.verb == Verb::Delete && write.condition == Condition::None {
                write.condition = Condition::Any;
            }
            let pushed = group.push(operation(write)).map(drop);
            pushed.unwrap_or_else(|error| panic!("a valid operation: {error}"));
        }
        let (call, _) = self.begin(Action::Write(writes.clone()));
        let result = self.remote.commit(table, &group);
        self.end(call, result.as_deref());
        if let Ok(etags) = result {
            self.learn(&writes, etags);
        }
    }

    /// Reads an entity, and checks what was found.
    fn read(&mut self, key: Key) -> Option<Entity> {
        let (_, start) = self.begin(Action::Read);
        let found = self.remote.get(key.table, key.partition, key.row, &[]);
        self.network.note(|| format!("client {} finds {}", self.index, found.is_ok()));
        let start = self.start_of_read(start);
        let ledger = &mut self.network.state.lock().ledger;
        match &found {
            Ok(found) => ledger.check_get(key, start, found.as_ref()),
            Err(error) => ledger.check_refusal(error, key.table == EXTRA),
        }
        let found = found.ok().flatten()?;
        self.etags.extend(found.etag().map(|etag| (key, etag)));
        Some(found)
    }

    /// A read of the secondary location may show any earlier state.
    fn start_of_read(&self, start: u64) -> u64 {
        if self.reads_secondary { 0 } else { start }
    }

    /// Reads a partition page by page.
    fn query(&mut self) {
        let table = self.random_key().table;
        let (_, start) = self.begin(Action::Read);
        let filter = format!("PartitionKey eq '{PARTITION}'");
        let top = self.rng.below(5) as usize;
        let (mut rows, mut next, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = PageQuery { filter: &filter, select: &[], top, continuation: next.as_ref() };
            let found = match self.remote.query(table, &page) {
                Ok(found) => found,
                Err(error) => {
                    let ledger = &mut self.network.state.lock().ledger;
                    return ledger.check_refusal(&error, table == EXTRA);
                }
            };
            rows.extend(found.entities);
            next = found.next;
            pages += 1;
            if next.is_none() || pages == PAGES_MAX {
                break;
            }
        }
        self.network.note(|| format!("client {} reads {} rows", self.index, rows.len()));
        let start = self.start_of_read(start);
        let ledger = &mut self.network.state.lock().ledger;
        if pages == PAGES_MAX {
            ledger.fail(|| "a query does not end".to_owned());
        }
        // The pages of a query may be read at both locations, which are different states.
        if !self.reads_secondary {
            ledger.check_query((table, PARTITION), start, &rows);
        }
    }

    /// Increments the counter with a closure, which notes each write before it is sent.
    fn increment(&mut self) {
        let mut rng = Rng::from_seed(self.rng.next_u64());
        let is_group = self.rng.chance(1, 2);
        let (write, start) = (Cell::new(None), Cell::new(self.begin(Action::Read).1));
        let change = |found: &mut Entity| {
            write.set(Some(self.begin_increment(found, start.get())?));
            Ok(())
        };
        // The closure runs again only if the service has refused its last write.
        let wait = |pause| {
            let changed = Error::refused(Code::UpdateConditionNotSatisfied);
            write.take().into_iter().for_each(|call| self.end(call, Err(&changed)));
            self.network.pass(pause);
            start.set(self.begin(Action::Read).1);
        };
        let Key { table, partition, row } = COUNTER;
        let result = if is_group {
            transact_with(&mut rng, wait, &self.remote, table, partition, |view| {
                let mut group = EntityGroup::new(partition);
                if let Some(mut found) = view.get(row)? {
                    change(&mut found)?;
                    group.replace(found)?;
                }
                Ok(group)
            })
        } else {
            let etag = update_with(&mut rng, wait, &self.remote, table, (partition, row), change);
            etag.map(|etag| vec![Some(etag)])
        };
        match (write.take(), &result) {
            (Some(call), _) => self.end(call, result.as_deref()),
            (None, Err(error)) => self.network.state.lock().ledger.check_refusal(error, false),
            (None, Ok(_)) => self.network.state.lock().ledger.fail(|| "no counter".to_owned()),
        }
        let count = match result.map_err(|error| error.kind()) {
            Ok(_) => INCREMENTS,
            Err(ErrorKind::OutcomeUnknown) => UNKNOWN_INCREMENTS,
            Err(_) => return,
        };
        *self.network.state.lock().counts.entry(count).or_default() += 1;
    }

    /// Increments the counter that a read from `start` on found, and begins the call that writes
    /// it. Returns its number.
    fn begin_increment(&self, found: &mut Entity, start: u64) -> Result<usize> {
        let start = self.start_of_read(start);
        self.network.state.lock().ledger.check_get(COUNTER, start, Some(&*found));
        let value = found.get::<i32>("N")? + 1;
        let condition = found.etag().map_or(Condition::Any, Condition::Match);
        found.set("N", value);
        let write = Write { key: COUNTER, verb: Verb::Replace, condition, value };
        Ok(self.begin(Action::Write(vec![write])).0)
    }

    fn change_table(&mut self) {
        let is_creation = self.rng.chance(1, 2);
        let action = if is_creation { Action::CreateTable } else { Action::DeleteTable };
        let (call, _) = self.begin(action(EXTRA));
        let result = match is_creation {
            true => self.remote.create_table(EXTRA),
            false => self.remote.delete_table(EXTRA),
        };
        self.end(call, result.as_ref().map(|()| &[][..]));
    }

    fn list(&mut self) {
        self.begin(Action::Read);
        let result = self.remote.tables();
        let ledger = &mut self.network.state.lock().ledger;
        match result {
            Ok(names) if names == [MAIN] || names == [EXTRA, MAIN] => {}
            Ok(names) => ledger.fail(|| format!("the tables are {names:?}")),
            Err(error) => ledger.check_refusal(&error, false),
        }
    }
}

pub(super) const INCREMENTS: &str = "increments";
pub(super) const UNKNOWN_INCREMENTS: &str = "increments with unknown outcome";

impl Turn for Client {
    fn turn(&mut self) {
        match self.rng.below(20) {
            0..8 => {
                let key = self.random_key();
                let write = self.random_write(key);
                self.write_one(write);
            }
            8..11 => self.write_group(),
            11..13 => {
                let key = self.random_key();
                self.read(key);
            }
            13..15 => self.query(),
            15..18 => self.increment(),
            18 => self.change_table(),
            _ => self.list(),
        }
    }
}

fn operation(write: &Write) -> Operation {
    let etag = match &write.condition {
        Condition::Match(etag) => Some(etag.clone()),
        Condition::Any | Condition::None => None,
    };
    match (write.verb, &write.condition) {
        (Verb::Insert, _) => Operation::Insert(write.entity()),
        (Verb::Replace, Condition::None) => Operation::Upsert(write.entity()),
        (Verb::Merge, Condition::None) => Operation::UpsertMerge(write.entity()),
        (Verb::Replace, _) => Operation::Replace(write.entity(), etag),
        (Verb::Merge, _) => Operation::Merge(write.entity(), etag),
        (Verb::Delete, _) => {
            let Key { partition, row, .. } = write.key;
            Operation::Delete { partition_key: partition.into(), row_key: row.into(), etag }
        }
    }
}

//! Prepares the database, the entities and the keys that all figures use.
//!
//! An entity has 1,024 bytes by the size rule of Azure Table storage, in one property `Payload`.
//! PartitionKeys are random GUIDs: one for each client, or one for all. A RowKey is
//! `JobID_VMID_WorkerId_Index`. Calls are synchronous, and every entity that a GET (a point read)
//! returns is checked.
//!
//! Invariant: a key is never inserted twice into a table, because each run of clients has its own
//! JobID.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rowstone::{Db, Entity, EntityGroup, Table, load::LoadMode, retry::Rng};

use crate::Outcome;
use crate::clients::{Tally, Watch, run_clients};

/// The size of an entity in the study.
const ENTITY_BYTES: usize = 1_024;
/// The number of threads in a virtual machine, for figures where the study gives none.
pub(crate) const VM_THREADS: u32 = 15;
/// The number of different payloads, which are cut from one long text.
const PAYLOADS: usize = 4_096;
/// The table that measurements use.
pub(crate) const TABLE: &str = "RowstoneBenchStudy";

/// Limits of a run: time and numbers of entities.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    /// The time of each measurement. A figure consists of several measurements, which are its
    /// points.
    pub(crate) time: Duration,
    /// The maximum number of entities that one measurement inserts.
    pub(crate) inserts_max: u64,
    /// The number of entities that each client reads with GETs.
    pub(crate) rows: u64,
    pub(crate) seed: u64,
}

/// How the clients are spread over partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// All clients share a partition.
    One,
    /// Each client has its own partition.
    Many,
}

/// The database of a run, with the source of its entities.
pub(crate) struct Ground {
    db: Db,
    pub(crate) scope: Scope,
    source: Source,
    jobs: AtomicU32,
}

/// Generates keys and payloads.
pub(crate) struct Source {
    seed: u64,
    payloads: String,
    payload_chars: usize,
}

/// A client's keys.
pub(crate) struct Worker {
    pub(crate) partition: String,
    job: u32,
    number: u32,
}

impl Ground {
    pub(crate) fn new(db: Db, scope: Scope) -> Self {
        Self { db, scope, source: Source::new(scope.seed), jobs: AtomicU32::new(0) }
    }

    /// Returns an empty table. Deletes the table of the previous figure.
    pub(crate) fn table(&self) -> Outcome<Table> {
        if self.db.tables()?.iter().any(|name| name == TABLE) {
            self.db.delete_table(TABLE)?;
            // Frees the deleted table's space before the next figure.
            self.db.flush()?;
        }
        Ok(self.db.create_table(TABLE)?)
    }

    pub(crate) fn end(self) -> Outcome {
        drop(self.table()?);
        self.db.delete_table(TABLE)?;
        Ok(self.db.close()?)
    }

    /// Runs clients that insert groups of `batch` entities, or single entities if `batch` is 1. The
    /// measurement starts after a warm-up.
    pub(crate) fn insert(
        &self,
        table: &Table,
        threads: u32,
        batch: u32,
        spread: Spread,
    ) -> Outcome<Tally> {
        let run = |time: Duration, most: u64| {
            let job = self.next_job();
            run_clients(threads, |number| {
                let worker = self.source.worker(job, number, spread);
                let mut watch = Watch::start(time);
                let most = (most / u64::from(threads)).max(u64::from(batch));
                let mut index = 0;
                while !watch.is_over() && index < most {
                    self.insert_next(table, &worker, index, batch)?;
                    watch.lap(u64::from(batch));
                    index += u64::from(batch);
                }
                Ok(watch.end())
            })
        };
        run(self.scope.time / 5, self.scope.inserts_max / 5)?;
        run(self.scope.time, self.scope.inserts_max)
    }

    /// Loads entities for `threads` clients and returns their JobID.
    pub(crate) fn load(&self, table: &Table, threads: u32, spread: Spread) -> Outcome<u32> {
        let job = self.next_job();
        let mut loader = table.loader().mode(LoadMode::Upsert);
        let mut line = 0;
        for number in 0..threads {
            let worker = self.source.worker(job, number, spread);
            for index in 0..self.scope.rows {
                loader.push(line, self.source.entity(&worker, index))?;
                line += 1;
            }
        }
        loader.finish()?;
        self.db.flush()?;
        Ok(job)
    }

    /// Runs clients that each read their entities of JobID `job` in order, and then start over
    /// until the time ends.
    pub(crate) fn get(
        &self,
        table: &Table,
        threads: u32,
        job: u32,
        spread: Spread,
    ) -> Outcome<Tally> {
        let run = |time: Duration| {
            run_clients(threads, |number| {
                let worker = self.source.worker(job, number, spread);
                let mut watch = Watch::start(time);
                let mut index = 0;
                while !watch.is_over() {
                    let row = worker.row_key(index);
                    let found = table.get(&worker.partition, &row)?;
                    let payload = found.as_ref().map(|entity| entity.get::<&str>("Payload"));
                    if payload.transpose()? != Some(self.source.payload(index)) {
                        return Err(
                            format!("wrong data: {}/{row} differs", worker.partition).into()
                        );
                    }
                    watch.lap(1);
                    index = (index + 1) % self.scope.rows;
                }
                Ok(watch.end())
            })
        };
        run(self.scope.time / 5)?;
        run(self.scope.time)
    }

    fn insert_next(&self, table: &Table, worker: &Worker, index: u64, batch: u32) -> Outcome {
        if batch == 1 {
            table.insert(self.source.entity(worker, index))?;
            return Ok(());
        }
        let mut group = EntityGroup::new(&*worker.partition);
        for i in 0..u64::from(batch) {
            group.insert(self.source.entity(worker, index + i))?;
        }
        table.commit(group)?;
        Ok(())
    }

    fn next_job(&self) -> u32 {
        self.jobs.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl Source {
    pub(crate) fn new(seed: u64) -> Self {
        let (payloads, payload_chars) = payloads(seed);
        Self { seed, payloads, payload_chars }
    }

    pub(crate) fn worker(&self, job: u32, number: u32, spread: Spread) -> Worker {
        let owner = if spread == Spread::Many { u64::from(number) + 1 } else { 0 };
        let seed = self.seed ^ (u64::from(job) << 32) ^ owner;
        Worker { partition: guid(&mut Rng::from_seed(seed)), job, number }
    }

    fn entity(&self, worker: &Worker, index: u64) -> Entity {
        Entity::new(&*worker.partition, worker.row_key(index)).with("Payload", self.payload(index))
    }

    pub(crate) fn payload(&self, index: u64) -> &str {
        let at = index as usize % PAYLOADS;
        &self.payloads[at..at + self.payload_chars]
    }
}

impl Worker {
    pub(crate) fn row_key(&self, index: u64) -> String {
        let vm = self.number / VM_THREADS;
        format!("{:05}_{vm:02}_{:03}_{index:09}", self.job, self.number)
    }
}

/// Returns the text of a random GUID.
fn guid(rng: &mut Rng) -> String {
    let (a, b) = (rng.next_u64(), rng.next_u64());
    let (c, d) = (a >> 16 & 0xffff, a & 0xfff);
    let (e, f) = (0x8000 | (b >> 48 & 0x3fff), b & 0xffff_ffff_ffff);
    format!("{:08x}-{c:04x}-4{d:03x}-{e:04x}-{f:012x}", a >> 32)
}

/// Returns the text that payloads are cut from, and the length of a payload in characters.
fn payloads(seed: u64) -> (String, usize) {
    let worker = Worker { partition: guid(&mut Rng::from_seed(seed)), job: 0, number: 0 };
    let empty = Entity::new(&*worker.partition, worker.row_key(0)).with("Payload", "");
    // By the size rule of Azure Table storage, a text takes two bytes per character.
    let chars = ENTITY_BYTES.saturating_sub(empty.size()) / 2;
    let mut rng = Rng::from_seed(seed);
    let text = (0..PAYLOADS + chars).map(|_| char::from(b' ' + rng.below(95) as u8)).collect();
    (text, chars)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_have_the_form_of_the_study() {
        let source = Source::new(7);
        let (one, other) = (source.worker(3, 16, Spread::Many), source.worker(3, 1, Spread::Many));
        let entity = source.entity(&one, 42);
        assert!((ENTITY_BYTES - 1..=ENTITY_BYTES).contains(&entity.size()), "{}", entity.size());
        assert_eq!(entity.row_key(), "00003_01_016_000000042");
        assert_eq!(entity.partition_key().len(), 36);
        assert_ne!(one.partition, other.partition);
        let shared = [3, 4].map(|number| source.worker(3, number, Spread::One).partition);
        assert_eq!(shared[0], shared[1]);
    }

    #[test]
    fn clients_insert_at_most_the_limit_and_get_the_loaded_entities() {
        let (time, inserts_max, rows) = (Duration::from_millis(20), 400, 10);
        let scope = Scope { time, inserts_max, rows, seed: 7 };
        let ground = Ground::new(Db::open_in_memory().unwrap(), scope);
        let table = ground.table().unwrap();
        let inserted = ground.insert(&table, 2, 20, Spread::One).unwrap();
        assert!((20..=400).contains(&inserted.operations), "{}", inserted.operations);
        assert_eq!(inserted.operations, inserted.latencies.count() * 20);
        let job = ground.load(&table, 2, Spread::Many).unwrap();
        let got = ground.get(&table, 2, job, Spread::Many).unwrap();
        assert!(got.operations > 0 && got.operations == got.latencies.count());
        assert!(ground.get(&table, 1, job + 1, Spread::Many).is_err());
        ground.end().unwrap();
    }
}

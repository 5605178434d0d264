//! Runs the workloads of `rowstone bench`: executes the operations of each, and checks their
//! results.
//!
//! Invariants
//! * operations depend only on the seed, the number of clients, and the options for sizes and
//!   counts;
//! * every answer is compared with its expected value; the measured time includes the comparison.

use std::time::Duration;

use clap::ValueEnum;

use super::clients::{Done, Tally, Watch, run_clients, share};
use super::entities::{NUMBERS, wrong};
use super::settings::Settings;
use super::stage::Stage;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::progress::Progress;
use crate::clock::{Clock, SystemClock};
use crate::options::Durability;
use crate::query::{Filter, KeyRange, prop};
use crate::rng::Rng;
use crate::sync::{Condvar, Mutex};
use crate::table::{EntityGroup, Table};

/// A workload, under the name that db_bench uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub(super) enum Kind {
    /// Write ascending keys into an empty table, one commit each
    FillSeq,
    /// Write random keys into an empty table, some of them repeatedly
    FillRandom,
    /// Like fillseq, in groups of --batch-size
    FillBatch,
    /// Like fillrandom, but a thousandth as many entities, each synced before the next
    FillSync,
    /// Replace random entities
    Overwrite,
    /// Get random entities
    ReadRandom,
    /// Get missing entities, with keys between existing ones
    ReadMissing,
    /// Read all entities in order
    ReadSeq,
    /// Read all entities in reverse order
    ReadReverse,
    /// Start at a random key, and read the next --seek-nexts + 1 entities
    SeekRandom,
    /// Like readrandom, while one more client replaces random entities
    ReadWhileWriting,
    /// Filter all entities by a property; --selectivity percent match
    FilterScan,
    /// Merge all files
    Compact,
}

/// The default workloads, based on the list of defaults in db_bench.
pub(super) const DEFAULT: [Kind; 16] = [
    Kind::FillSeq,
    Kind::FillBatch,
    Kind::FillSync,
    Kind::FillRandom,
    Kind::Overwrite,
    Kind::ReadRandom,
    Kind::ReadMissing,
    Kind::ReadSeq,
    Kind::ReadReverse,
    Kind::SeekRandom,
    Kind::FilterScan,
    Kind::Compact,
    Kind::ReadRandom,
    Kind::ReadSeq,
    Kind::FilterScan,
    Kind::ReadWhileWriting,
];

/// The number of scans that filterscan runs without a time limit.
const FILTER_SCANS: u64 = 10;
/// The workload fillsync writes only one in this many of the entities that fillrandom writes.
const SYNC_PART: u64 = 1_000;

/// One workload, and the stage (database and table) that it runs on.
pub(super) struct Run<'r> {
    pub(super) kind: Kind,
    pub(super) settings: &'r Settings,
    pub(super) stage: &'r Stage,
    pub(super) clock: &'r SystemClock,
    pub(super) progress: Option<&'r Progress>,
}

/// Signals the concurrent writer that the readers have finished.
#[derive(Default)]
struct Finish {
    done: Mutex<bool>,
    changed: Condvar,
}

impl Kind {
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Whether the workload starts with an empty table (unless existing entities are to be used).
    pub(super) fn is_fill(self) -> bool {
        matches!(self, Self::FillSeq | Self::FillRandom | Self::FillBatch | Self::FillSync)
    }
}

impl Run<'_> {
    /// Runs the workload; returns the totals of the clients and of the concurrent writer.
    pub(super) fn run(&self) -> Outcome<(Tally, Option<Tally>)> {
        let clients = || run_clients(self.settings.threads, |number| self.client(number));
        let (tallies, beside) = match self.kind {
            Kind::Compact => (vec![self.compact()?], None),
            Kind::ReadWhileWriting => {
                let finish = Finish::default();
                let (readers, writer) = std::thread::scope(|scope| {
                    let writer = scope.spawn(|| self.write_beside(&finish));
                    let readers = clients();
                    finish.tell();
                    (readers, writer.join())
                });
                let lost = || Failure::Other("the writer ended early".into());
                (readers?, Some(writer.unwrap_or_else(|_| Err(lost()))?))
            }
            _ => (clients()?, None),
        };
        Ok((Tally::sum(&tallies), beside))
    }

    /// Returns the number of operations of all clients, if the run is not limited by time.
    pub(super) fn count(&self) -> u64 {
        let num = self.stage.entities.shape.num;
        match self.kind {
            Kind::FillSync => (num / SYNC_PART).max(1),
            Kind::FillSeq | Kind::FillRandom | Kind::FillBatch | Kind::Overwrite => num,
            Kind::Compact => self.stage.present.count(),
            Kind::ReadSeq | Kind::ReadReverse => {
                self.stage.present.count() * u64::from(self.settings.threads)
            }
            Kind::FilterScan => self.scans() * self.stage.present.count(),
            _ => self.settings.reads.unwrap_or(num),
        }
    }

    /// Returns the time limit of the run, or `None` if the number of operations limits it.
    pub(super) fn time(&self) -> Option<Duration> {
        let is_whole = matches!(self.kind, Kind::ReadSeq | Kind::ReadReverse | Kind::Compact);
        let time = self.settings.duration.map(Duration::from_secs);
        time.filter(|_| !self.kind.is_fill() && !is_whole)
    }

    fn client(&self, number: u32) -> Outcome<Tally> {
        let watch = Watch::start(self.clock, self.time(), self.progress);
        let num = self.stage.entities.shape.num;
        match self.kind {
            Kind::FillSeq => self.repeat(watch, number, |i, rng| self.write(i, rng)),
            Kind::FillRandom | Kind::Overwrite => {
                self.repeat(watch, number, |_, rng| self.write(rng.below(num), rng))
            }
            Kind::FillSync => {
                let table = self.stage.table.clone().with_durability(Durability::Sync);
                self.repeat(watch, number, |_, rng| self.write_to(&table, rng.below(num), rng))
            }
            Kind::FillBatch => self.fill_in_groups(watch, number),
            Kind::ReadRandom | Kind::ReadWhileWriting => {
                self.repeat(watch, number, |_, rng| self.read(rng.below(num)))
            }
            Kind::ReadMissing => {
                self.repeat(watch, number, |_, rng| self.read_missing(rng.below(num)))
            }
            Kind::SeekRandom => self.repeat(watch, number, |_, rng| self.seek(rng.below(num))),
            Kind::ReadSeq | Kind::ReadReverse => self.read_all(watch),
            Kind::FilterScan => self.filter_scans(watch, number),
            Kind::Compact => Ok(watch.end()),
        }
    }

    /// Calls `operation` as often as this client's share of the operations requires, or until the
    /// time is over.
    fn repeat(
        &self,
        mut watch: Watch<'_>,
        number: u32,
        mut operation: impl FnMut(u64, &mut Rng) -> Outcome<Done>,
    ) -> Outcome<Tally> {
        let mut rng = self.rng(number);
        let (from, to) = share(self.count(), self.settings.threads, number);
        if self.time().is_some() {
            while !watch.is_over() {
                watch.lap(operation(from, &mut rng)?);
            }
        } else {
            for i in from..to {
                watch.lap(operation(i, &mut rng)?);
            }
        }
        Ok(watch.end())
    }

    /// Returns the random number generator of one client in one workload.
    fn rng(&self, number: u32) -> Rng {
        let mut rng = Rng::from_seed(self.settings.seed);
        let mixed = rng.next_u64() ^ (u64::from(number) << 32) ^ self.kind as u64;
        Rng::from_seed(Rng::from_seed(mixed).next_u64())
    }

    fn write(&self, i: u64, rng: &mut Rng) -> Outcome<Done> {
        self.write_to(&self.stage.table, i, rng)
    }

    fn write_to(&self, table: &Table, i: u64, rng: &mut Rng) -> Outcome<Done> {
        table.upsert(self.stage.entities.entity(i, round(rng)))?;
        self.stage.present.add(i);
        Ok(self.wrote(1))
    }

    fn wrote(&self, count: u64) -> Done {
        Done { operations: count, bytes: count * self.stage.entities.entity_bytes(), found: 0 }
    }

    /// Writes groups of entities. A group ends where its partition ends, because a group may not
    /// span two partitions.
    fn fill_in_groups(&self, mut watch: Watch<'_>, number: u32) -> Outcome<Tally> {
        let (entities, mut rng) = (&self.stage.entities, self.rng(number));
        let (mut from, to) = share(self.count(), self.settings.threads, number);
        let rows = entities.shape.partition_rows;
        while from < to {
            let partition_end = (from / rows + 1) * rows;
            let end = to.min(from + u64::from(self.settings.batch_size)).min(partition_end);
            let mut group = EntityGroup::new(entities.keys(from).partition());
            for i in from..end {
                group.upsert(entities.entity(i, round(&mut rng)))?;
            }
            self.stage.table.commit(group)?;
            (from..end).for_each(|i| self.stage.present.add(i));
            watch.lap(self.wrote(end - from));
            from = end;
        }
        Ok(watch.end())
    }

    fn read(&self, i: u64) -> Outcome<Done> {
        // Looked up before the read, because a concurrent writer may add the entity in between.
        let is_expected = self.stage.present.has(i);
        let keys = self.stage.entities.keys(i);
        let found = self.stage.table.get(keys.partition(), keys.row())?;
        match &found {
            Some(entity) => self.stage.entities.check(i, entity)?,
            None if is_expected => return Err(wrong(&format!("entity {i} is not found"))),
            None => return Ok(Done { operations: 1, ..Done::default() }),
        }
        let is_beside = self.kind == Kind::ReadWhileWriting;
        if !is_expected && !is_beside {
            return Err(wrong(&format!("entity {i} is found, and was never written")));
        }
        Ok(Done { operations: 1, bytes: self.stage.entities.entity_bytes(), found: 1 })
    }

    fn read_missing(&self, i: u64) -> Outcome<Done> {
        let keys = self.stage.entities.keys(i);
        let mut row = String::with_capacity(keys.row().len() + 1);
        row.push_str(keys.row());
        row.push('.');
        match self.stage.table.get(keys.partition(), &row)? {
            None => Ok(Done { operations: 1, ..Done::default() }),
            Some(_) => Err(wrong(&format!("{}/{row} is found", keys.partition()))),
        }
    }

    fn seek(&self, i: u64) -> Outcome<Done> {
        let (entities, present) = (&self.stage.entities, &self.stage.present);
        let rows = entities.shape.partition_rows;
        let partition_end = ((i / rows + 1) * rows).min(entities.shape.num);
        let mut expected = (i..partition_end).filter(|i| present.has(*i));
        let keys = entities.keys(i);
        let range = KeyRange::rows(keys.partition(), keys.row()..);
        let top = self.settings.seek_nexts as usize + 1;
        let mut done = Done { operations: 1, ..Done::default() };
        for entity in self.stage.table.scan(range).top(top) {
            let Some(next) = expected.next() else {
                return Err(wrong(&format!("a scan from entity {i} gives too many")));
            };
            entities.check(next, &entity?)?;
            done.bytes += entities.entity_bytes();
            done.found += 1;
        }
        if done.found < top as u64 && expected.next().is_some() {
            return Err(wrong(&format!("a scan from entity {i} gives too few")));
        }
        Ok(done)
    }

    fn read_all(&self, mut watch: Watch<'_>) -> Outcome<Tally> {
        let (entities, present) = (&self.stage.entities, &self.stage.present);
        let is_reverse = self.kind == Kind::ReadReverse;
        let numbers = 0..entities.shape.num;
        let mut forward = numbers.clone().filter(|i| present.has(*i));
        let mut backward = numbers.rev().filter(|i| present.has(*i));
        let mut next = || if is_reverse { backward.next() } else { forward.next() };
        let query = self.stage.table.scan(KeyRange::all());
        let mut unseen = Done::default();
        for entity in if is_reverse { query.reverse() } else { query } {
            let i = next().ok_or_else(|| wrong("a scan gives too many"))?;
            entities.check(i, &entity?)?;
            unseen.operations += 1;
            if unseen.operations == 1_000 {
                watch.count_untimed(self.seen(std::mem::take(&mut unseen)));
            }
        }
        watch.count_untimed(self.seen(unseen));
        match next() {
            Some(i) => Err(wrong(&format!("a scan ends before entity {i}"))),
            None => Ok(watch.end()),
        }
    }

    fn seen(&self, done: Done) -> Done {
        let bytes = done.operations * self.stage.entities.entity_bytes();
        Done { bytes, found: done.operations, ..done }
    }

    /// Returns the total number of scans of all clients.
    fn scans(&self) -> u64 {
        FILTER_SCANS.max(self.settings.threads.into())
    }

    /// Scans with a filter. Each examined entity counts as an operation. A latency is recorded for
    /// each scan as a whole.
    fn filter_scans(&self, mut watch: Watch<'_>, number: u32) -> Outcome<Tally> {
        let (entities, present) = (&self.stage.entities, &self.stage.present);
        let limit = (NUMBERS as f64 * self.settings.selectivity / 100.0).round() as i32;
        let is_match = |i: &u64| present.has(*i) && entities.number(*i) < limit;
        let expected: Vec<u64> = (0..entities.shape.num).filter(is_match).collect();
        let rows = present.count();
        let filter: Filter = prop("Number").lt(limit);
        let (from, to) = share(self.scans(), self.settings.threads, number);
        watch.restart();
        let mut scans = from..to;
        while if self.time().is_some() { !watch.is_over() } else { scans.next().is_some() } {
            let mut numbers = expected.iter();
            for entity in self.stage.table.query(filter.clone())? {
                let i = numbers.next().ok_or_else(|| wrong("a filter lets too many through"))?;
                entities.check(*i, &entity?)?;
            }
            if let Some(i) = numbers.next() {
                return Err(wrong(&format!("a filter holds entity {i} back")));
            }
            let bytes = rows * entities.entity_bytes();
            watch.lap(Done { operations: rows, bytes, found: expected.len() as u64 });
        }
        Ok(watch.end())
    }

    fn compact(&self) -> Outcome<Tally> {
        let mut watch = Watch::start(self.clock, None, self.progress);
        self.stage.db.compact()?;
        watch.lap(self.wrote(self.stage.present.count()));
        Ok(watch.end())
    }

    /// Replaces random entities until the readers have finished, at most at the requested rate.
    fn write_beside(&self, finish: &Finish) -> Outcome<Tally> {
        let mut watch = Watch::start(self.clock, None, None);
        let begun = self.clock.monotonic();
        let (num, mut rng) = (self.stage.entities.shape.num, self.rng(u32::MAX));
        let mut count = 0;
        while !finish.is_told(self.settings.write_rate.map_or(Duration::ZERO, |rate| {
            let due = Duration::from_secs_f64(count as f64 / rate as f64);
            due.saturating_sub(self.clock.monotonic().saturating_sub(begun))
        })) {
            let i = rng.below(num);
            watch.restart();
            watch.lap(self.write(i, &mut rng)?);
            count += 1;
        }
        let mut tally = watch.end();
        tally.elapsed = self.clock.monotonic().saturating_sub(begun);
        Ok(tally)
    }
}

impl Finish {
    fn tell(&self) {
        *self.done.lock() = true;
        self.changed.notify_all();
    }

    /// Waits at most `time` for the signal of the readers, and returns whether it was given.
    fn is_told(&self, time: Duration) -> bool {
        let mut done = self.done.lock();
        if !*done && !time.is_zero() {
            self.changed.wait_for(&mut done, time);
        }
        *done
    }
}

fn round(rng: &mut Rng) -> i32 {
    rng.below(1 << 31) as i32
}

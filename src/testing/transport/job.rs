//! A copy between a directory and the service. Its process is killed at random requests, or it ends
//! with an error; then it continues from its file of positions. Meanwhile another writer changes
//! entities of the source.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::ledger::Action;
use super::network::{Killed, Line, Mortal, Network, Turn, open_db, open_remote};
use crate::clock::{Clock, ManualClock};
use crate::db::{CopySummary, Db};
use crate::error::Result;
use crate::fs::{Fs, MemFs};
use crate::model::Entity;
use crate::rng::Rng;
use crate::store::copy::{StateFile, StoreCopy};
use crate::store::pages::Side;
use crate::store::{Condition, RemoteOptions, TableStore};
use crate::sync::Mutex;

const TABLE: &str = "copied";
const PARTITIONS: [&str; 3] = ["p", "q", "r"];
/// The number of RowKeys that a partition may have.
const ROWS: usize = 7;
const KILLS_MAX: u64 = 5;
/// A process is killed before this number of half requests.
const LIFE_MAX: u64 = 40;
/// More errors in one job are a job that does not end.
const LIVES_MAX: usize = 100;
/// The number of turns of the other writer.
const TURNS: usize = 24;
/// The time in the directory, in ticks. It is not that of the service.
const CLOCK: u64 = 130_000_000_000_000_000;
const STATE: &str = "state";

/// PartitionKey and RowKey.
type Key = (&'static str, String);
type Rows = BTreeMap<Key, Entity>;

/// Another writer of the source.
struct Rival {
    network: Arc<Network>,
    source: Db,
    rng: Rng,
    keys: Vec<Key>,
    changes: Arc<Mutex<Vec<(Key, Entity)>>>,
}

impl Turn for Rival {
    fn turn(&mut self) {
        let mut changes = self.changes.lock();
        if self.keys.is_empty() || !self.rng.chance(1, 4) {
            return;
        }
        let key = self.rng.pick(&self.keys).clone();
        let entity = row(&key, 2 + changes.len() as i32);
        let done = self.source.replace(TABLE, &entity, &Condition::Any).is_ok();
        self.network.note(|| format!("another writer changes {key:?}: {done}"));
        if done {
            changes.push((key, entity));
        }
    }
}

/// A job, as all its lives see it.
struct Job<'n> {
    network: &'n Arc<Network>,
    directory: Db,
    fs: Arc<dyn Fs>,
    to_service: bool,
    replace: bool,
    then_delete: bool,
    page_rows: usize,
    /// The shortest time between two writes of the positions.
    every: Duration,
}

/// Runs a copy to its end, and checks both tables.
pub(super) fn copy(network: &Arc<Network>, mut rng: Rng) {
    // Entities of both databases with one Timestamp would look like one table under two names.
    let clock = Arc::new(ManualClock::new(CLOCK));
    let job = Job {
        network,
        directory: open_db(&clock),
        fs: Arc::new(MemFs::new()),
        to_service: rng.chance(1, 2),
        replace: rng.chance(1, 2),
        then_delete: rng.chance(1, 2),
        page_rows: 3 + rng.index(7),
        every: Duration::from_millis(*rng.pick(&[0, 250])),
    };
    let sides = job.sides();
    fill(sides, &mut rng).unwrap_or_else(|error| panic!("databases in memory: {error}"));
    let before = sides.map(rows);
    let changes = Arc::default();
    let rival = Rival {
        network: Arc::clone(network),
        source: sides[0].clone(),
        rng: Rng::from_seed(rng.next_u64()),
        keys: before[0].keys().cloned().collect(),
        changes: Arc::clone(&changes),
    };
    *network.idle.lock() = vec![Box::new(rival)];
    network.state.lock().turns = *rng.pick(&[0, TURNS]);
    let summary = job.run(&mut rng);
    network.drain();
    let changes = std::mem::take(&mut *changes.lock());
    let problem = summary.and_then(|summary| job.check(&summary, &before, &changes));
    if let Err(problem) = problem {
        network.state.lock().ledger.fail(|| format!("{problem}; changes: {changes:?}"));
    }
}

/// Makes both tables. Some entities are in both, with equal or other properties.
fn fill([source, target]: [&Db; 2], rng: &mut Rng) -> Result<()> {
    let [from, to] = [source.create_table(TABLE)?, target.create_table(TABLE)?];
    for key in PARTITIONS.iter().flat_map(|p| (0..ROWS).map(|r| (*p, r.to_string()))) {
        let value = rng.below(2) as i32;
        let (in_source, in_target) = (rng.chance(3, 4), rng.chance(1, 6));
        if in_source {
            from.insert(row(&key, value))?;
        }
        if in_target {
            to.insert(row(&key, rng.below(2) as i32))?;
        }
    }
    Ok(())
}

fn row((partition, row): &Key, value: i32) -> Entity {
    Entity::new(*partition, row.as_str()).with("N", value).with("Text", format!("{value}"))
}

fn rows(db: &Db) -> Rows {
    let all = Side { store: db, table: TABLE }.rows("", &[], 100);
    let all = all.map(|row| {
        let row = row.unwrap_or_else(|error| panic!("a database in memory: {error}"));
        let known = PARTITIONS.into_iter().find(|known| *known == row.partition_key());
        ((known.unwrap_or_default(), row.row_key().to_owned()), row)
    });
    all.collect()
}

impl Job<'_> {
    /// The databases that are the source and the target.
    fn sides(&self) -> [&Db; 2] {
        let mut sides = [&self.network.primary.db, &self.directory];
        if self.to_service {
            sides.reverse();
        }
        sides
    }

    /// Lets one process after the other run the job, until one succeeds.
    fn run(&self, rng: &mut Rng) -> Result<CopySummary, String> {
        let mut kills = rng.below(KILLS_MAX);
        for _ in 0..LIVES_MAX {
            let left = if kills > 0 { 1 + rng.below(LIFE_MAX) } else { u64::MAX };
            let ids = Rng::from_seed(rng.next_u64());
            let lived = catch_unwind(AssertUnwindSafe(|| self.live(left, ids)));
            self.network.note(|| format!("the copy ends: {:?}", lived.as_ref().ok()));
            let mut state = self.network.state.lock();
            let count = match lived {
                Ok(Ok(summary)) => {
                    *state.counts.entry("copies").or_default() += 1;
                    return Ok(summary);
                }
                Ok(Err(error)) => {
                    state.ledger.check_copy_error(&error);
                    "errors of copies"
                }
                Err(panic) if panic.is::<Killed>() => "kills of copies",
                Err(panic) => resume_unwind(panic),
            };
            *state.counts.entry(count).or_default() += 1;
            kills = kills.saturating_sub(1);
        }
        Err(format!("a copy did not end in {LIVES_MAX} processes"))
    }

    /// A process, which knows only what the file of positions tells.
    fn live(&self, left: u64, ids: Rng) -> Result<CopySummary> {
        let mut state = self.network.state.lock();
        state.current[0] = state.ledger.begin(Action::Job);
        drop(state);
        let line = Line { network: Arc::clone(self.network), client: 0 };
        let mortal = Arc::new(Mortal { line, left: Arc::new(AtomicU64::new(left)) });
        let clock = Arc::clone(&self.network.clocks[0]) as Arc<dyn Clock>;
        let remote = open_remote(mortal, clock, ids, RemoteOptions::new());
        let mut stores: [&dyn TableStore; 2] = [&remote, &self.directory];
        if self.to_service {
            stores.reverse();
        }
        let sides = stores.map(|store| Side { store, table: TABLE });
        let job = StoreCopy {
            replace: self.replace,
            then_delete: self.then_delete,
            page_rows: self.page_rows,
            ..StoreCopy::new(sides)
        };
        let clock = Arc::clone(&self.network.primary.clock) as Arc<dyn Clock>;
        let parts = (Arc::clone(&self.fs), clock);
        let state = StateFile::open(parts, Path::new(STATE), String::new(), self.every)?;
        let (summary, _) = job.run(Some(&state))?;
        state.remove()?;
        Ok(summary)
    }

    fn check(
        &self,
        summary: &CopySummary,
        before: &[Rows; 2],
        changes: &[(Key, Entity)],
    ) -> Result<(), String> {
        if self.fs.exists(Path::new(STATE)).unwrap_or(true) {
            return Err("a finished copy has left its positions".to_owned());
        }
        let after = self.sides().map(rows);
        let keys: BTreeSet<&Key> = before.iter().chain(&after).flat_map(Rows::keys).collect();
        let mut conflicts = 0;
        for key in keys {
            let at = |tables: &'_ [Rows; 2]| tables.each_ref().map(|rows| rows.get(key).cloned());
            let (old, new) = (at(before), at(&after));
            let own = changes.iter().filter(|(changed, _)| changed == key);
            let own: Vec<&Entity> = own.map(|(_, entity)| entity).collect();
            let is_right = match (&old[0], own.last()) {
                (None, _) => old.iter().zip(&new).all(|(old, new)| is_untouched(old, new)),
                (Some(source), None) => {
                    let found = old[1].as_ref();
                    let is_other = found.is_some_and(|found| !source.has_properties_of(found));
                    let is_conflict = is_other && !self.replace;
                    conflicts += u64::from(is_conflict);
                    self.is_moved([&old, &new], is_conflict)
                }
                (Some(source), Some(last)) => {
                    let is_copied = new[1].as_ref().is_some_and(|copy| {
                        let mut versions = own.iter().copied().chain([source]);
                        is_untouched(&old[1], &new[1])
                            || versions.any(|version| version.has_properties_of(copy))
                    });
                    let is_kept = match (&new[0], &new[1]) {
                        (Some(kept), _) => kept.has_properties_of(last),
                        (None, Some(copy)) => self.then_delete && copy.has_properties_of(last),
                        (None, None) => false,
                    };
                    is_copied && is_kept
                }
            };
            if !is_right {
                return Err(format!("{key:?} was {old:?} in source and target, is {new:?}"));
            }
        }
        match summary.conflicts < conflicts {
            true => Err(format!("{conflicts} conflicts, but {summary:?}")),
            false => Ok(()),
        }
    }

    /// Whether source and target of an entity that no other writer has changed are right.
    fn is_moved(&self, [old, new]: [&[Option<Entity>; 2]; 2], is_conflict: bool) -> bool {
        let is_equal = |a: &Option<Entity>, b: &Option<Entity>| {
            a.as_ref().zip(b.as_ref()).is_some_and(|(a, b)| a.has_properties_of(b))
        };
        let is_source_right = match self.then_delete && !is_conflict {
            true => new[0].is_none(),
            false => is_untouched(&old[0], &new[0]),
        };
        // An equal copy is not written again.
        let stays = is_conflict || is_equal(&old[0], &old[1]);
        let is_target_right = match stays {
            true => is_untouched(&old[1], &new[1]),
            false => is_equal(&old[0], &new[1]),
        };
        is_source_right && is_target_right
    }
}

/// Whether an entity was not written again.
fn is_untouched(old: &Option<Entity>, new: &Option<Entity>) -> bool {
    let etag = |row: &Option<Entity>| row.as_ref().map(Entity::etag);
    old == new && etag(old) == etag(new)
}

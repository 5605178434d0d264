//! Seeded simulation of the transport between [`Remote`](crate::store::Remote) and a Table service.
//!
//! Clients (`client`) call a service in the same process over a network (`network`) that loses,
//! delays, repeats and cuts requests and answers. The ledger (`ledger`) knows which requests took
//! effect, and checks each result of a client. In some runs a copy follows (`job`), others have a
//! sync instead of clients (`sync`).
//! docs/TESTING.md has the table of these checks.

mod client;
#[cfg(test)]
mod copies;
mod job;
mod ledger;
mod mutants;
mod network;
mod strict;
mod sync;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use self::client::UNKNOWN_INCREMENTS;
use self::client::{COUNTER, Client, EXTRA, INCREMENTS, MAIN, PARTITION, STABLE};
use self::ledger::{Key, Verb, Write};
pub(crate) use self::mutants::MUTANTS;
use self::network::Network;
use crate::db::Db;
use crate::mutants::activate;
use crate::rng::Rng;
use crate::store::Condition;
use crate::sync::Mutex;
use crate::testing::sim::program::panic_text;

/// The number of turns of all clients in a run.
const TURNS: usize = 40;
const CLIENTS_MAX: u64 = 4;
/// A copy follows in one of so many runs.
const RUNS_OF_COPY: u64 = 2;
/// One of so many runs has a sync instead of clients.
const RUNS_OF_SYNC: u64 = 2;

/// The result of a run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    /// A hash of all requests, answers and results.
    pub(crate) digest: u64,
    pub(crate) counts: BTreeMap<&'static str, u64>,
    /// The first difference between a result and what the service did.
    pub(crate) failure: Option<String>,
    /// Every request and result, if they were asked for.
    pub(crate) trace: Vec<String>,
}

/// Runs the simulation that the seed determines.
pub(crate) fn run(seed: u64, traced: bool) -> Report {
    let mut rng = Rng::from_seed(seed ^ 0x7472_616e_7370_6f72);
    let is_sync = rng.chance(1, RUNS_OF_SYNC);
    let clients = if is_sync { sync::CLIENTS } else { 1 + rng.below(CLIENTS_MAX) as usize };
    let turns = if is_sync { sync::TURNS } else { TURNS };
    let network = Arc::new(Network::new(seed, clients, turns, traced));
    let lived = catch_unwind(AssertUnwindSafe(|| match is_sync {
        true => sync::sync(&network, rng),
        false => live(&network, clients, &mut rng),
    }));
    // The clients refer to the network, which would otherwise refer to them forever.
    network.idle.lock().clear();
    let mut state = network.state.lock();
    let panic = lived.err().map(|panic| format!("panic: {}", panic_text(&*panic)));
    Report {
        seed,
        digest: state.digest,
        counts: std::mem::take(&mut state.counts),
        failure: panic.or_else(|| state.ledger.failure.take()),
        trace: state.trace.take().unwrap_or_default(),
    }
}

fn live(network: &Arc<Network>, clients: usize, rng: &mut Rng) {
    network.prepare(prepare);
    let stable = STABLE.map(|row| Key { table: MAIN, partition: PARTITION, row });
    for key in stable.into_iter().chain([COUNTER]) {
        let table = network.primary.db.table(key.table);
        let found = table.and_then(|table| table.get(key.partition, key.row));
        let etag = found.ok().flatten().and_then(|row| row.etag());
        network.state.lock().ledger.begin_with(key, etag);
    }
    for index in 0..clients {
        let client = Client::new(network, index, Rng::from_seed(rng.next_u64()));
        network.idle.lock().push(Box::new(client));
    }
    while network.state.lock().ledger.failure.is_none() && network.turn() {}
    network.drain();
    let found = network.primary.db.table(MAIN);
    let found = found.and_then(|table| table.get(COUNTER.partition, COUNTER.row)).ok().flatten();
    let value = found.and_then(|row| row.get("N").ok()).unwrap_or(-1);
    let mut state = network.state.lock();
    let count = |name| state.counts.get(name).map_or(0, |count| *count as i32);
    let (acknowledged, unknown) = (count(INCREMENTS), count(UNKNOWN_INCREMENTS));
    state.ledger.check_counter(value, acknowledged, unknown);
    drop(state);
    if rng.chance(1, RUNS_OF_COPY) {
        job::copy(network, Rng::from_seed(rng.next_u64()));
    }
}

/// Makes the tables and the rows that exist from the beginning.
fn prepare(db: &Db) {
    let made = (|| {
        db.create_table(EXTRA)?;
        let table = db.create_table(MAIN)?;
        let stable = STABLE.map(|row| Key { table: MAIN, partition: PARTITION, row });
        stable.into_iter().chain([COUNTER]).try_for_each(|key| {
            let (verb, condition) = (Verb::Insert, Condition::None);
            table.insert(Write { key, verb, condition, value: 0 }.entity()).map(drop)
        })
    })();
    made.unwrap_or_else(|error| panic!("a database in memory: {error}"));
}

/// The results of many runs.
#[derive(Debug, Default)]
pub(crate) struct Explored {
    pub(crate) seeds: u64,
    pub(crate) counts: BTreeMap<&'static str, u64>,
    /// The failure with the least seed.
    pub(crate) failure: Option<(u64, String)>,
}

/// Runs `count` seeds from `first` on with `jobs` threads, or fewer if one fails. `mutant` is
/// active in every run. `show` is called now and then with the number of runs so far.
pub(crate) fn explore(
    first: u64,
    count: u64,
    jobs: usize,
    mutant: Option<&'static str>,
    show: impl Fn(u64) + Sync,
) -> Explored {
    let (next, explored) = (AtomicU64::new(0), Mutex::new(Explored::default()));
    let work = || {
        let _active = mutant.map(activate);
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            let report = run(first.wrapping_add(number), false);
            let mut explored = explored.lock();
            explored.seeds += 1;
            for (name, more) in report.counts {
                *explored.counts.entry(name).or_default() += more;
            }
            if let Some(failure) = report.failure {
                // Runs of lower seeds have begun, and end.
                next.store(count, Ordering::Relaxed);
                let least = explored.failure.as_ref().is_none_or(|(seed, _)| report.seed < *seed);
                if least {
                    explored.failure = Some((report.seed, failure));
                }
            }
            if explored.seeds % 64 == 0 {
                show(explored.seeds);
            }
        }
    };
    std::thread::scope(|scope| (0..jobs.max(1)).for_each(|_| drop(scope.spawn(work))));
    explored.into_inner()
}

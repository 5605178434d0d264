//! Enforces scalability targets, as Azure Table storage does: limits on entities per second for
//! each partition and for the database.
//!
//! Invariants
//! * a refused request is not charged, and no work was done for it;
//! * rows returned by a query are charged after they are read and may exceed the target; the next
//!   request is then refused;
//! * the same requests at the same clock times get the same results.

use std::time::Duration;

use crate::codec::hash;
use crate::error::{Code, Error, Result};
use crate::format::key::{partition_of, table_of};
use crate::format::names::TableId;
use crate::options::Targets;
use crate::sync::Mutex;

use crate::lsm::Env;

/// The number of slots in each of the two tables that partitions share.
const PLACES: usize = 1 << 14;
const SECOND: u64 = 1_000_000_000;

/// Charges entities to the targets, and refuses requests that would exceed a target.
///
/// A target is stored as the time until which it is used up, in nanoseconds of the monotonic clock.
/// Each entity advances that time by one second divided by the target. A request that would advance
/// it to more than one second ahead is refused with `ServerBusy`, so a burst of one second's worth
/// is admitted. If the target is unused, a request of any size is admitted, because an entity group
/// may be larger than the target.
///
/// Partitions share two fixed tables of such times. The hash of a partition selects one slot in
/// each table, and the lesser of the two times is used. The tables take 256 KiB for any number of
/// partitions, from the first entity on that counts against a partition's target. No partition can
/// exceed its target, but a partition that shares both slots with busy ones gets less. With n
/// partitions active within the last second, the probability that it shares both slots is about
/// (n / 16,384)²: 1 in 27,000 for 100, 1 in 270 for 1,000.
pub(crate) struct RateLimit {
    /// The nanoseconds by which one entity advances the partition's time; 0 without a target.
    partition: u64,
    database: u64,
    used: Mutex<Used>,
}

/// The times until which the targets are used up, in nanoseconds.
struct Used {
    database: u64,
    /// Empty until an entity is charged to a partition.
    partitions: [Box<[u64]>; 2],
}

/// A number of entities to be charged to the partition with the hash `partition`. If the hash is 0,
/// they are charged only to the database.
#[derive(Clone, Copy, Debug)]
struct Demand {
    partition: u64,
    entities: u64,
}

impl RateLimit {
    pub(crate) fn new(targets: Targets) -> Self {
        let cost = |rate: u32| SECOND.checked_div(u64::from(rate)).unwrap_or(0);
        Self {
            partition: cost(targets.partition_entities_per_second),
            database: cost(targets.database_entities_per_second),
            used: Mutex::new(Used { database: 0, partitions: Default::default() }),
        }
    }

    /// Charges all of `demands`, or refuses all of them.
    fn admit(&self, demands: &[Demand], now: Duration) -> Result<()> {
        let now = nanos(now);
        let mut used = self.used.lock();
        let all = demands.iter().map(|demand| demand.entities).sum();
        if !passes(used.database, self.database, all, now) {
            let message = "Operations per second is over the account limit.";
            return Err(Error::refused_with(Code::ServerBusy, message));
        }
        let admits = |demand: &Demand| {
            passes(used.until(demand.partition), self.partition, demand.entities, now)
        };
        if !demands.iter().filter(|demand| demand.partition != 0).all(admits) {
            return Err(Error::refused(Code::ServerBusy));
        }
        demands.iter().for_each(|demand| self.book_at(&mut used, *demand, now));
        Ok(())
    }

    fn book(&self, demand: Demand, now: Duration) {
        self.book_at(&mut self.used.lock(), demand, nanos(now));
    }

    fn book_at(&self, used: &mut Used, demand: Demand, now: u64) {
        debug_assert!(demand.entities > 0, "a demand is for an entity");
        let move_on = |until: &mut u64, cost: u64| {
            *until = (*until).max(now).saturating_add(cost.saturating_mul(demand.entities));
        };
        move_on(&mut used.database, self.database);
        if demand.partition != 0 && self.partition != 0 {
            if used.partitions[0].is_empty() {
                used.partitions = [(); 2].map(|()| vec![0; PLACES].into_boxed_slice());
            }
            let [low, high] = places(demand.partition);
            move_on(&mut used.partitions[0][low], self.partition);
            move_on(&mut used.partitions[1][high], self.partition);
        }
    }
}

impl Used {
    /// Returns the time until which the target of a partition is used up.
    fn until(&self, partition: u64) -> u64 {
        let times = self.partitions.iter().zip(places(partition));
        times.filter_map(|(table, at)| table.get(at)).min().copied().unwrap_or(0)
    }
}

/// Returns the partition's slot in each of the two tables, from independent bits of the hash.
fn places(partition: u64) -> [usize; 2] {
    let mask = PLACES as u64 - 1;
    [(partition & mask) as usize, (partition >> 32 & mask) as usize]
}

fn passes(until: u64, cost: u64, entities: u64, now: u64) -> bool {
    let backlog = until.saturating_sub(now);
    backlog == 0 || backlog.saturating_add(cost.saturating_mul(entities)) <= SECOND
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl RateLimit {
    /// Admits entities of a partition with this hash, which is not 0, or of no single partition.
    #[cfg(feature = "json")]
    pub(crate) fn admit_entities(
        &self,
        partition: Option<u64>,
        entities: u64,
        now: Duration,
    ) -> Result<()> {
        self.admit(&[Demand { partition: partition.unwrap_or(0), entities }], now)
    }

    /// Admits operations on these keys. Adjacent keys of one partition are admitted together.
    pub(super) fn admit_keys<'k>(
        &self,
        env: &Env,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<()> {
        match &*demands(env, keys) {
            [] => Ok(()),
            demands => self.admit(demands, env.clock.monotonic()),
        }
    }

    /// Admits the start of a query and charges its first row. The row is charged to the partition
    /// of `key` if the query reads only that partition.
    pub(super) fn admit_query(&self, env: &Env, key: Option<Vec<u8>>) -> Result<()> {
        let partition = key.and_then(|key| partition_hash(env, &key)).unwrap_or(0);
        self.admit(&[Demand { partition, entities: 1 }], env.clock.monotonic())
    }

    /// Charges a further row that a query returns.
    pub(super) fn book_row(&self, env: &Env, key: &[u8]) {
        let partition = partition_hash(env, key).unwrap_or(0);
        self.book(Demand { partition, entities: 1 }, env.clock.monotonic());
    }
}

/// Returns the demands of `keys`. Adjacent keys of one partition form one demand. Keys of the
/// catalog are not charged.
fn demands<'k>(env: &Env, keys: impl Iterator<Item = &'k [u8]>) -> Vec<Demand> {
    let mut demands: Vec<Demand> = Vec::new();
    let users = keys.filter(|key| table_of(key) != Some(TableId::CATALOG));
    for partition in users.map(|key| partition_hash(env, key).unwrap_or(0)) {
        match demands.last_mut().filter(|last| last.partition == partition) {
            Some(last) => last.entities += 1,
            None => demands.push(Demand { partition, entities: 1 }),
        }
    }
    demands
}

/// Returns the hash of the key's partition, which is never 0.
fn partition_hash(env: &Env, key: &[u8]) -> Option<u64> {
    Some(hash(env.seed, partition_of(key)?).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(partition: u32, database: u32) -> RateLimit {
        RateLimit::new(Targets {
            partition_entities_per_second: partition,
            database_entities_per_second: database,
        })
    }

    /// Tries to admit `tries` groups of `entities` entities, at intervals of `every`. Returns how
    /// many are admitted.
    fn passed(
        rate_limit: &RateLimit,
        partition: u64,
        entities: u64,
        tries: u32,
        every: Duration,
    ) -> u32 {
        let try_at = |i: u32| {
            rate_limit.admit(&[Demand { partition, entities }], every.saturating_mul(i)).is_ok()
        };
        (0..tries).map(|i| u32::from(try_at(i))).sum()
    }

    #[test]
    fn a_burst_of_one_second_passes_immediately_and_then_the_rate() {
        let ms = Duration::from_millis;
        // For 10 s, try 1,000 entities/s against a target of 100/s: a burst of 100 is admitted,
        // then 100 each second.
        assert_eq!(passed(&new(100, 0), 7, 1, 10_000, ms(1)), 100 + 999);
        assert_eq!(passed(&new(0, 100), 7, 1, 10_000, ms(1)), 100 + 999);
        // Below the target nothing is refused.
        assert_eq!(passed(&new(100, 100), 7, 1, 1_000, ms(10)), 1_000);
        // A group costs as much as its entities.
        assert_eq!(passed(&new(100, 0), 7, 50, 10_000, ms(1)), 2 + 19);
        // A group larger than the target passes if the target is unused.
        assert_eq!(passed(&new(10, 0), 7, 100, 10_000, ms(1)), 1);
        assert_eq!(passed(&new(0, 0), 7, 100, 10_000, ms(0)), 10_000);
    }

    #[test]
    fn partitions_have_their_own_targets_and_share_that_of_the_database() {
        let rate_limit = new(10, 25);
        let (a, b, c) = (1, 2 | 2 << 32, 3 | 3 << 32);
        let at_once = Duration::ZERO;
        assert_eq!(passed(&rate_limit, a, 1, 20, at_once), 10);
        assert_eq!(passed(&rate_limit, b, 1, 20, at_once), 10);
        assert_eq!(passed(&rate_limit, c, 1, 20, at_once), 5);
        let error = rate_limit.admit(&[Demand { partition: c, entities: 1 }], at_once).unwrap_err();
        assert_eq!((error.code(), error.status()), ("ServerBusy", 503));
        assert!(error.is_transient());
    }

    #[test]
    fn memory_is_taken_for_partitions_with_a_target_only() {
        for (rate_limit, partition, is_taken) in
            [(new(10, 0), 0, false), (new(0, 10), 7, false), (new(10, 0), 7, true)]
        {
            assert_eq!(passed(&rate_limit, partition, 1, 1, Duration::ZERO), 1);
            assert_eq!(!rate_limit.used.lock().partitions[0].is_empty(), is_taken);
        }
    }

    #[test]
    fn refused_operations_are_not_booked() {
        let rate_limit = new(10, 1_000);
        let both =
            [Demand { partition: 1, entities: 5 }, Demand { partition: 2 << 32, entities: 10 }];
        assert!(rate_limit.admit(&both[1..], Duration::ZERO).is_ok());
        for _ in 0..100 {
            assert!(rate_limit.admit(&both, Duration::ZERO).is_err());
        }
        assert_eq!(passed(&rate_limit, 1, 1, 20, Duration::ZERO), 10);
        assert_eq!(rate_limit.used.lock().database, 20 * SECOND / 1_000);
    }

    #[test]
    fn a_charge_after_the_fact_delays_the_next_operation() {
        let rate_limit = new(10, 0);
        rate_limit.book(Demand { partition: 1, entities: 50 }, Duration::ZERO);
        let admit =
            |at| rate_limit.admit(&[Demand { partition: 1, entities: 1 }], Duration::from_secs(at));
        assert!(admit(4).is_err() && admit(5).is_ok());
    }

    /// Other partitions limit a partition only if they use up both of its slots.
    #[test]
    fn a_partition_may_share_one_of_its_two_places() {
        let rate_limit = new(10, 0);
        let (busy, other) = (1 | 1 << 32, 1 | 2 << 32);
        assert_eq!(passed(&rate_limit, busy, 1, 20, Duration::ZERO), 10);
        assert_eq!(passed(&rate_limit, other, 1, 20, Duration::ZERO), 10);
        assert_eq!(passed(&rate_limit, 1 | 3 << 32, 1, 20, Duration::ZERO), 10);
        // Other partitions have used up both slots of this one, so it is refused although it is
        // idle. Only in this way can a partition get less than its target.
        assert_eq!(passed(&rate_limit, 1 | 2 << 32, 1, 20, Duration::ZERO), 0);
    }
}

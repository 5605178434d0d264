//! Simulates figure 15 on a virtual clock. Clients send one partition more than its throughput
//! target, and pause after each refusal.
//!
//! On the virtual clock a request takes as long as in the study; a real request would take
//! microseconds. The database's own throttle accepts or refuses each group of inserts. After an
//! accepted group, the client sends the next one when the latency has passed; after a refusal, it
//! waits three seconds. Nothing blocks, and a seed gives the same numbers on every machine.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use rowstone::{
    Db, Durability, Entity, EntityGroup, Table,
    clock::ManualClock,
    options::{Background, Targets},
    retry::Rng,
};

use crate::Outcome;

/// The number of operations in a group.
const BATCH: u32 = 100;
/// The throughput target in entities per second, about the peak of one partition in the study.
pub(crate) const TARGET: u32 = 2_500;
/// The latency of an accepted group of 100 entities. It follows from the study, where 20 clients
/// inserted 2,300 entities per second almost unthrottled.
pub(crate) const LATENCY: Duration = Duration::from_millis(870);
/// The latency of a refusal. The next constant is the pause of a client after a refusal, as in the
/// study.
const REFUSAL: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_secs(3);
/// The simulated time before the measurement starts. It covers the initial bursts.
const WARM_UP: Duration = Duration::from_secs(10);

/// The results of a simulation with `threads` clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pressed {
    pub(crate) threads: u32,
    /// Entities per second.
    pub(crate) accepted: f64,
    pub(crate) refused: f64,
}

impl Pressed {
    pub(crate) fn refused_percent(&self) -> f64 {
        100.0 * self.refused / (self.accepted + self.refused).max(1.0)
    }
}

/// Simulates `threads` clients that send requests to one partition, for `time` of the virtual
/// clock.
pub(crate) fn press(threads: u32, time: Duration, seed: u64) -> Outcome<Pressed> {
    let clock = Arc::new(ManualClock::new(1));
    let targets =
        Targets { partition_entities_per_second: TARGET, database_entities_per_second: 0 };
    let options = Db::options().background(Background::Manual).durability(Durability::Buffered);
    let db = options.clock(clock.clone()).throttle(targets).seed(seed).open_in_memory()?;
    let table = db.create_table("Saturation")?;
    let mut rng = Rng::from_seed(seed);
    let mut turns: BinaryHeap<_> =
        (0..threads).map(|client| Reverse((scattered(LATENCY, &mut rng), client))).collect();
    let (mut now, mut counts) = (Duration::ZERO, [0u64; 2]);
    while let Some(Reverse((turn, client))) = turns.pop() {
        if turn >= WARM_UP + time {
            break;
        }
        clock.advance(turn.saturating_sub(now));
        now = turn;
        let is_accepted = send(&table)?;
        if turn >= WARM_UP {
            counts[usize::from(is_accepted)] += 1;
        }
        let next = if is_accepted { scattered(LATENCY, &mut rng) } else { REFUSAL + PAUSE };
        turns.push(Reverse((turn + next, client)));
    }
    let [refused, accepted] =
        counts.map(|count| count as f64 * f64::from(BATCH) / time.as_secs_f64());
    drop(table);
    db.close()?;
    Ok(Pressed { threads, accepted, refused })
}

/// Sends one group of writes; returns false if the throttle refuses it. All groups have the same
/// rows, because the throttle counts only entities.
fn send(table: &Table) -> Outcome<bool> {
    let mut group = EntityGroup::new("saturated");
    for row in 0..BATCH {
        group.upsert(Entity::new("saturated", format!("{row:02}")))?;
    }
    match table.commit(group) {
        Ok(_) => Ok(true),
        Err(error) if error.is_transient() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns `time`, randomly lengthened or shortened by up to 20 %.
fn scattered(time: Duration, rng: &mut Rng) -> Duration {
    time.mul_f64(0.8 + rng.below(400) as f64 / 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_bounds_the_accepted_rate_and_only_many_clients_are_refused() {
        let at = |threads| press(threads, Duration::from_secs(20), 1).unwrap();
        let (few, many) = (at(10), at(50));
        assert_eq!(few.refused, 0.0);
        assert!((1_000.0..1_300.0).contains(&few.accepted), "{few:?}");
        assert!((2_300.0..=2_600.0).contains(&many.accepted), "{many:?}");
        assert!((15.0..35.0).contains(&many.refused_percent()), "{many:?}");
        assert_eq!(at(50), many);
    }
}

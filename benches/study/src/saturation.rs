//! Simulates figure 15 on a virtual clock: clients load one partition beyond its target, and pause
//! after each refusal.
//!
//! On the virtual clock a request takes as long as in the study; a real one would take
//! microseconds. The database's own throttle accepts or refuses each group. A client sends its next
//! group when the latency has passed if the group was accepted, and three seconds after the refusal
//! otherwise. Nothing blocks, and a seed gives the same numbers on every machine.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use rowstone::{Background, Db, Durability, Entity, EntityGroup, ManualClock, Rng, Table, Targets};

use crate::Outcome;

/// Operations of a group.
const BATCH: u32 = 100;
/// About the peak of the study's partition, in entities per second.
pub(crate) const TARGET: u32 = 2_500;
/// In the study 20 clients inserted 2,300 entities per second almost unthrottled, so each needed
/// this long for a group of 100.
pub(crate) const LATENCY: Duration = Duration::from_millis(870);
/// The latency of a refusal, and the study's pause after it.
const REFUSAL: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_secs(3);
/// Time before the measurement, until the initial bursts are over.
const WARM_UP: Duration = Duration::from_secs(10);

/// Rates of `threads` clients.
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

/// Sends the requests of `threads` clients to one partition for `time` of the virtual clock.
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

/// Commits the same group each time, since the throttle counts entities only. Returns false if the
/// group is refused.
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

/// Returns `time`, randomly lengthened or shortened by up to a fifth.
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

//! Checks scalability targets. The oracle keeps a lower and an upper bound of the used rate.
//!
//! The lower bound counts requests that were certainly charged. The upper bound counts all requests
//! that may have been charged, as if they were all in one partition, because in the engine several
//! partitions may share a slot (`lsm::rate_limit`). A request must be refused if the lower bound
//! exceeds the rate, and may be refused if the upper bound does. Refused requests are not counted,
//! and change nothing.

use crate::clock::Clock;
use crate::error::Error;

use super::counts::Event;
use super::runner::Runner;
use super::runner_state::{Ask, Held};

const SECOND: u64 = 1_000_000_000;

fn passes(until: u64, rate: u32, entities: u64, now: u64) -> bool {
    let cost = SECOND.checked_div(u64::from(rate)).unwrap_or(0);
    until <= now || until - now + cost * entities <= SECOND
}

fn book(until: &mut u64, rate: u32, entities: u64, now: u64) {
    let cost = SECOND.checked_div(u64::from(rate)).unwrap_or(0);
    *until = (*until).max(now) + cost * entities;
}

impl Runner {
    fn now(&self) -> u64 {
        u64::try_from(self.engine.clock.monotonic().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns whether the targets may or must refuse a request.
    pub(super) fn asks(&self, ask: &Ask) -> Held {
        let Some((partition, database)) = self.engine.config.targets else { return Held::No };
        let (used, now) = (&self.used, self.now());
        let until = ask.partition.as_ref().and_then(|of| used.partitions.get(of)).copied();
        if !passes(used.database[0], database, ask.entities, now)
            || !passes(until.unwrap_or(0), partition, ask.entities, now)
        {
            return if ask.entities > 0 { Held::Must } else { Held::May };
        }
        let (mut all, mut any) = (used.database[1], used.any_partition);
        if ask.partition.is_none() {
            // The engine may admit a query several times. From the second time on, rows of this
            // query may already be charged.
            book(&mut all, database, ask.costs[1], now);
            book(&mut any, partition, ask.costs[1], now);
        }
        let entities = ask.entities.max(1);
        match passes(all, database, entities, now) && passes(any, partition, entities, now) {
            true => Held::No,
            false => Held::May,
        }
    }

    /// Records that the request was answered with `error` or without one.
    pub(super) fn asked(&mut self, ask: &Ask, error: Option<&Error>) {
        let Some((partition, database)) = self.engine.config.targets else { return };
        let (held, code, now) = (self.asks(ask), error.map(Error::code), self.now());
        let is_busy = code == Some("ServerBusy");
        if is_busy && held != Held::No {
            self.counts.note(Event::Throttled);
        }
        if is_busy && held == Held::Must {
            return;
        }
        // The request was certainly charged, unless the targets may have refused it or it failed
        // before they were checked.
        let surely = !(is_busy && held == Held::May) && code != Some("TableNotFound");
        let used = &mut self.used;
        if surely {
            // If a query failed, only the charge for its first row is certain, which is made when
            // the query is admitted.
            let has_failed = error.is_some() && ask.partition.is_none();
            let least = if has_failed { ask.entities } else { ask.costs[0] };
            book(&mut used.database[0], database, least, now);
            if let Some(of) = &ask.partition {
                let until = used.partitions.entry(of.clone()).or_default();
                book(until, partition, least, now);
            }
        }
        book(&mut used.database[1], database, ask.costs[1], now);
        book(&mut used.any_partition, partition, ask.costs[1], now);
    }

    /// Forgets the lower bounds for the partitions of a table that is dropped or created again.
    pub(super) fn forget_partitions(&mut self, table: &str) {
        let lower = table.to_lowercase();
        self.used.partitions.retain(|(table, _), _| *table != lower);
    }
}

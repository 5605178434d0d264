//! Computes the expected answers from the digest of each entity after all writes so far.
//!
//! Invariants
//! * the oracle is read and updated only outside the measured time.
//!
//! Not here: how entities are made (`reading.rs`).

use std::collections::HashMap;

use crate::reading::{Data, Digest, READINGS_PER_DEVICE, Reading};
use crate::store::{Filter, Found};

/// With at most this many entities, the digests of all of them are cached.
const READY_MAX: u64 = 4_000_000;

/// The digests of entities `0..count`.
pub struct Oracle {
    pub data: Data,
    pub count: u64,
    ready: Vec<Digest>,
    changed: HashMap<u64, Change>,
}

#[derive(Clone, Copy, Default)]
struct Change {
    revision: u32,
    /// The revision of the temperature, if it was set after `revision` was written.
    temperature: Option<u32>,
    is_gone: bool,
}

impl Oracle {
    pub fn new(data: &Data, count: u64) -> Self {
        let ready = if count <= READY_MAX {
            (0..count).map(|number| data.reading(number).digest()).collect()
        } else {
            Vec::new()
        };
        Self { data: data.clone(), count, ready, changed: HashMap::new() }
    }

    /// Returns the digest of an entity; `None` after a deletion.
    pub fn digest(&self, number: u64) -> Option<Digest> {
        if let Some(digest) = self.ready.get(number as usize)
            && (self.changed.is_empty() || !self.changed.contains_key(&number))
        {
            return Some(*digest);
        }
        let change = self.changed.get(&number).copied().unwrap_or_default();
        (!change.is_gone).then(|| self.current(number).digest())
    }

    /// Returns the current entity, which must not be deleted.
    pub fn current(&self, number: u64) -> Reading {
        let change = self.changed.get(&number).copied().unwrap_or_default();
        let mut reading = self.data.revised(number, change.revision);
        if let Some(revision) = change.temperature {
            reading.temperature = self.data.temperature(number, revision);
        }
        reading
    }

    /// Returns the highest revision of the entity so far. The next write uses this revision plus
    /// one.
    pub fn revision(&self, number: u64) -> u32 {
        let change = self.changed.get(&number).copied().unwrap_or_default();
        change.revision.max(change.temperature.unwrap_or(0))
    }

    pub fn replaced(&mut self, number: u64, revision: u32) {
        self.changed.insert(number, Change { revision, temperature: None, is_gone: false });
    }

    pub fn merged(&mut self, number: u64, revision: u32) {
        self.changed.entry(number).or_default().temperature = Some(revision);
    }

    pub fn deleted(&mut self, number: u64) {
        self.changed.entry(number).or_default().is_gone = true;
    }

    /// Records that the entity with the next higher number was inserted.
    pub fn inserted(&mut self) {
        if self.ready.len() as u64 == self.count {
            self.ready.push(self.data.reading(self.count).digest());
        }
        self.count += 1;
    }

    /// Returns the count and the digest sum of at most `limit` entities of one partition, starting
    /// at entity `number`.
    pub fn range(&self, number: u64, limit: u64) -> Found {
        let end = match self.data.rows() {
            Some(_) => {
                let device = self.data.key(number).device;
                let inside = |n: &u64| *n < self.count && self.data.key(*n).device == device;
                (number..number + limit).take_while(inside).count() as u64 + number
            }
            None => (number / READINGS_PER_DEVICE + 1) * READINGS_PER_DEVICE,
        };
        self.sum(number..end.min(number + limit).min(self.count))
    }

    pub fn all(&self) -> Found {
        self.sum(0..self.count)
    }

    /// Returns the count and the digest sum of all entities that match.
    pub fn matching(&self, filter: Filter) -> Found {
        self.sum((0..self.count).filter(|number| {
            self.digest(*number).is_some()
                && filter.accepts_entity(&self.current(*number).properties())
        }))
    }

    fn sum(&self, numbers: impl Iterator<Item = u64>) -> Found {
        let mut found = Found::default();
        for digest in numbers.filter_map(|number| self.digest(number)) {
            found.add(Found { entities: 1, digest });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oracle_follows_the_writes() {
        let data = Data::telemetry(3);
        let mut oracle = Oracle::new(&data, 2_500);
        assert_eq!(oracle.digest(7), Some(data.reading(7).digest()));
        oracle.replaced(7, 1);
        assert_eq!((oracle.digest(7), oracle.revision(7)), (Some(data.revised(7, 1).digest()), 1));
        oracle.merged(7, 2);
        let mut merged = data.revised(7, 1);
        merged.temperature = data.temperature(7, 2);
        assert_eq!((oracle.digest(7), oracle.revision(7)), (Some(merged.digest()), 2));
        oracle.inserted();
        assert_eq!(oracle.digest(2_500), Some(data.reading(2_500).digest()));
        oracle.deleted(7);
        assert_eq!((oracle.digest(7), oracle.all().entities), (None, 2_500));
    }

    #[test]
    fn ranges_end_with_their_partition() {
        let oracle = Oracle::new(&Data::telemetry(3), 2_500);
        assert_eq!(oracle.range(950, 100).entities, 50);
        assert_eq!(oracle.range(2_450, 100).entities, 50);
        assert_eq!(oracle.range(10, 100).entities, 100);
        assert_eq!(oracle.matching(Filter::Below(60.0)), oracle.all());
    }
}

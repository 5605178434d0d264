//! Counts the partitions and the repeated keys of a file of any size in bounded memory.
//!
//! All counts are exact until the memory limit is reached. From then on, the numbers of partitions,
//! of one-row partitions and of repeated keys, the median and the order are those of a sample of
//! the keys. A key is in the sample if its hash ends with enough zeros, so equal files give equal
//! figures. The largest partitions are kept separately.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use crate::codec::{HashSeed, hash};
use crate::db::shape::ShapeBuilder;
use crate::db::{DataShape, PartitionSize};
use crate::sort::sort_by;

/// The approximate memory of a partition in bytes, besides its key.
const PARTITION_BYTES: usize = 100;
/// The maximum number of keys of which [`Repeats`] keeps the hashes, about 10 bytes each.
const KEYS_MAX: usize = 1_800_000;

/// The partitions of a file.
pub(super) struct Sketch {
    partitions: HashMap<String, Partition>,
    memory: usize,
    memory_max: usize,
    /// One in 2^`shift` partitions is in the sample.
    shift: u32,
    rows: u64,
    bytes: u64,
    last: String,
}

struct Partition {
    /// The number of the first row, from 1.
    first: u64,
    rows: u64,
    bytes: u64,
    hash: u64,
}

impl Sketch {
    /// Uses at most about `memory_max` bytes.
    pub(super) fn new(memory_max: usize) -> Self {
        let (partitions, last) = (HashMap::new(), String::new());
        Self { partitions, memory: 0, memory_max, shift: 0, rows: 0, bytes: 0, last }
    }

    /// Adds a row of `bytes` bytes; returns true unless its partition is already known.
    pub(super) fn add(&mut self, key: &str, bytes: u64) -> bool {
        self.rows += 1;
        self.bytes += bytes;
        if let Some(partition) = self.partitions.get_mut(key) {
            partition.rows += 1;
            partition.bytes += bytes;
            return false;
        }
        if self.last.as_str() < key {
            key.clone_into(&mut self.last);
        }
        let hash = hash(HashSeed(0), key.as_bytes());
        let partition = Partition { first: self.rows, rows: 1, bytes, hash };
        self.partitions.insert(key.to_owned(), partition);
        self.memory += PARTITION_BYTES + key.len();
        if self.memory > self.memory_max {
            self.thin();
        }
        true
    }

    /// Halves the sample until it takes a quarter of the memory, and keeps the largest partitions
    /// in another quarter.
    fn thin(&mut self) {
        let cost = |key: &String| PARTITION_BYTES + key.len();
        let quarter = self.memory_max / 4;
        loop {
            let sampled = self.partitions.iter().filter(|(_, p)| is_sampled(p.hash, self.shift));
            if self.shift == u64::BITS - 1
                || sampled.map(|(key, _)| cost(key)).sum::<usize>() <= quarter
            {
                break;
            }
            self.shift += 1;
        }
        let rest = self.partitions.iter().filter(|(_, p)| !is_sampled(p.hash, self.shift));
        let mut rest: Vec<_> = rest.map(|(key, p)| (Reverse(p.bytes), key.clone())).collect();
        sort_by(&mut rest, Ord::cmp);
        let mut memory = 0;
        for (_, key) in rest {
            memory += cost(&key);
            if memory > quarter {
                self.partitions.remove(&key);
            }
        }
        self.memory = self.partitions.keys().map(cost).sum();
    }

    /// Returns whether counts are computed from a sample.
    pub(super) fn is_estimate(&self) -> bool {
        self.shift > 0
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    pub(super) fn finish(self) -> DataShape {
        let size = |(key, p): &(String, Partition)| PartitionSize {
            partition_key: key.clone(),
            entities: p.rows,
            bytes: p.bytes,
        };
        let mut all: Vec<_> = self.partitions.into_iter().collect();
        sort_by(&mut all, |(a, _), (b, _)| a.cmp(b));
        let (mut builder, mut every) = (ShapeBuilder::new(), ShapeBuilder::new());
        let mut before = None;
        for partition in &all {
            every.add(size(partition));
            if is_sampled(partition.1.hash, self.shift) {
                builder.add(size(partition));
                let first = partition.1.first;
                if let Some(before) = before.replace(first) {
                    builder.add_pair(first > before);
                }
            }
        }
        let mut shape = builder.finish(true);
        shape.largest = every.finish(true).largest;
        shape.partitions <<= self.shift;
        shape.single_partitions <<= self.shift;
        (shape.entities, shape.bytes, shape.last) = (self.rows, self.bytes, self.last);
        shape
    }
}

fn is_sampled(hash: u64, shift: u32) -> bool {
    hash.trailing_zeros() >= shift
}

/// Counts rows whose keys occurred before.
pub(super) struct Repeats {
    hashes: HashSet<u64>,
    /// The number of further rows for each key that was repeated.
    further: HashMap<u64, u64>,
    shift: u32,
    keys_max: usize,
}

impl Repeats {
    pub(super) fn new() -> Self {
        Self::with_limit(KEYS_MAX)
    }

    fn with_limit(keys_max: usize) -> Self {
        Self { hashes: HashSet::new(), further: HashMap::new(), shift: 0, keys_max }
    }

    pub(super) fn add(&mut self, key: &[u8]) {
        let hash = hash(HashSeed(0), key);
        if !is_sampled(hash, self.shift) {
            return;
        }
        if !self.hashes.insert(hash) {
            *self.further.entry(hash).or_default() += 1;
        }
        while self.hashes.len() > self.keys_max {
            self.shift += 1;
            let shift = self.shift;
            self.hashes.retain(|hash| is_sampled(*hash, shift));
            self.further.retain(|hash, _| is_sampled(*hash, shift));
        }
    }

    pub(super) fn is_estimate(&self) -> bool {
        self.shift > 0
    }

    pub(super) fn count(&self) -> u64 {
        self.further.values().sum::<u64>() << self.shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_figures_stay_close() {
        let mut sketch = Sketch::new(200_000);
        // 20,000 partitions of five rows ascend with time; one has a third of all rows.
        for row in 0..100_000u32 {
            sketch.add(&format!("{:06}", row / 5), 10);
            if row % 2 == 0 {
                sketch.add("heavy", 10);
            }
            assert!(sketch.memory <= 200_000 && sketch.partitions.len() < 2_000, "{row}");
        }
        assert!(sketch.is_estimate());
        let data = sketch.finish();
        assert!((17_000..23_000).contains(&data.partitions), "{}", data.partitions);
        assert_eq!((data.entities, data.bytes, data.median_entities), (150_000, 1_500_000, 5));
        let heavy = &data.largest[0];
        assert_eq!((&*heavy.partition_key, heavy.entities), ("heavy", 50_000));
        assert!(data.ascending > 0.99, "{}", data.ascending);
        assert_eq!(data.last, "heavy");
    }

    #[test]
    fn partitions_are_compared_by_their_first_rows() {
        // Rows return to earlier partitions, but each new partition has the highest key.
        let mut sketch = Sketch::new(1 << 20);
        let keys = ["a", "b", "a", "c", "b", "a", "d"];
        let new = keys.map(|key| sketch.add(key, 1));
        assert_eq!(new, [true, true, false, true, false, false, true]);
        assert!(!sketch.is_estimate());
        let data = sketch.finish();
        assert_eq!((data.ascending, data.partitions, data.single_partitions), (1.0, 4, 2));
    }

    #[test]
    fn repeats_are_counted_exactly_and_then_by_a_sample() {
        let mut repeats = Repeats::with_limit(1_000);
        (0..500u32).for_each(|i| repeats.add(&(i % 400).to_le_bytes()));
        assert_eq!((repeats.count(), repeats.is_estimate()), (100, false));
        (0..40_000u32).for_each(|i| repeats.add(&(1_000 + i / 2).to_le_bytes()));
        assert!(repeats.is_estimate() && repeats.hashes.len() <= 1_000);
        assert!((14_000..26_000).contains(&repeats.count()), "{}", repeats.count());
    }
}

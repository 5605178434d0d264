//! Sketches of the partitions in a stream of operations: the heaviest ones, and how many distinct
//! ones there are. Sketches have a fixed size, are deterministic, and do no I/O.
//!
//! Invariants
//! * [`Heaviest`]: the weight stored for a partition is at least its true weight, and exceeds it by
//!   at most `over`. `over` is at most the total weight divided by [`HEAVIEST_SLOTS`] (twice that
//!   after a join). So every partition with a larger share is in the sketch. Splitting a sketch
//!   loses the partitions outside it;
//! * [`Distinct`]: exact up to [`EXACT_MAX`] partitions, with a standard error of 4.6 % above.
//!   Order and repetitions have no effect.

use crate::codec::{HashSeed, hash};
use crate::sort::sort_by;

/// The number of partitions stored. A partition with more than 1/32 of the load is always among
/// them.
pub(crate) const HEAVIEST_SLOTS: usize = 32;
/// Up to this many partitions are counted exactly, so most ranges of a small database need no
/// registers.
pub(crate) const EXACT_MAX: usize = 64;
/// 2^9 registers have a standard error of 1.04 / sqrt(512) = 4.6 % and take 512 bytes.
const INDEX_BITS: u32 = 9;
const REGISTERS: usize = 1 << INDEX_BITS;

/// The heaviest partitions of a stream, by the space-saving algorithm.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Heaviest {
    slots: Vec<Heavy>,
    /// The sum of all added weights.
    pub(crate) total: f64,
}

/// A partition and the bounds of its weight.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Heavy {
    /// The prefix that all keys of the partition have in common.
    pub(crate) partition: Box<[u8]>,
    /// An upper bound of the true weight.
    pub(crate) weight: f64,
    /// `weight - over` is a lower bound of the true weight.
    pub(crate) over: f64,
    hash: u64,
}

/// Counts the distinct partitions of a stream with the HyperLogLog algorithm, over 64-bit hashes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Distinct {
    /// The hashes of all partitions, ascending.
    Exact(Vec<u64>),
    Registers(Box<[u8; REGISTERS]>),
}

/// Returns the hash of a partition, which both sketches use. It is the same on every machine.
pub(crate) fn partition_hash(partition: &[u8]) -> u64 {
    hash(HashSeed(0), partition)
}

impl Heaviest {
    /// Adds `weight` to a partition.
    pub(crate) fn add(&mut self, partition: &[u8], hash: u64, weight: f64) {
        debug_assert!(self.slots.len() <= HEAVIEST_SLOTS, "few partitions are kept");
        debug_assert!(weight >= 0.0, "an access weighs something");
        self.total += weight;
        let same = |slot: &&mut Heavy| slot.hash == hash && *slot.partition == *partition;
        if let Some(slot) = self.slots.iter_mut().find(same) {
            slot.weight += weight;
            return;
        }
        let partition = partition.into();
        if self.slots.len() < HEAVIEST_SLOTS {
            return self.slots.push(Heavy { partition, weight, over: 0.0, hash });
        }
        // A partition that is not in the sketch weighs at most as much as the lightest partition in
        // the sketch, which is replaced.
        let lightest = self.slots.iter_mut().min_by(|a, b| a.weight.total_cmp(&b.weight));
        if let Some(slot) = lightest {
            let over = slot.weight;
            *slot = Heavy { partition, weight: over + weight, over, hash };
        }
    }

    /// Multiplies every weight by `factor`, and drops partitions whose weight becomes negligible.
    pub(crate) fn scale(&mut self, factor: f64) {
        debug_assert!((0.0..=1.0).contains(&factor), "weights only fade");
        self.total *= factor;
        for slot in &mut self.slots {
            slot.weight *= factor;
            slot.over *= factor;
        }
        self.slots.retain(|slot| slot.weight > FADED);
    }

    /// Returns the partitions by descending weight, and for equal weights by ascending key.
    pub(crate) fn ranked(&self) -> Vec<Heavy> {
        let mut ranked = self.slots.clone();
        sort_by(&mut ranked, |a, b| {
            b.weight.total_cmp(&a.weight).then_with(|| a.partition.cmp(&b.partition))
        });
        ranked
    }

    /// Merges another sketch into this one. The error bound at most doubles, as the header of this
    /// file states.
    pub(crate) fn join(&mut self, other: &Heaviest) {
        let (floor, other_floor) = (self.floor(), other.floor());
        for slot in &mut self.slots {
            let same = |o: &&Heavy| o.hash == slot.hash && o.partition == slot.partition;
            let (weight, over) = match other.slots.iter().find(same) {
                Some(found) => (found.weight, found.over),
                None => (other_floor, other_floor),
            };
            slot.weight += weight;
            slot.over += over;
        }
        let is_known =
            |slots: &[Heavy], o: &Heavy| slots.iter().any(|s| s.partition == o.partition);
        for found in &other.slots {
            if !is_known(&self.slots, found) {
                let (weight, over) = (found.weight + floor, found.over + floor);
                self.slots.push(Heavy { weight, over, ..found.clone() });
            }
        }
        self.total += other.total;
        self.slots = self.ranked();
        self.slots.truncate(HEAVIEST_SLOTS);
    }

    /// Splits the sketch at a key. The guaranteed weight of each partition (`weight - over`) is
    /// assigned to the side where the partition starts. The rest of the total weight is divided:
    /// the left side receives the fraction `left_share`.
    pub(crate) fn split(self, at: &[u8], left_share: f64) -> (Heaviest, Heaviest) {
        debug_assert!((0.0..=1.0).contains(&left_share), "a share is a part of one");
        let is_part = |slot: &Heavy| slot.over <= slot.weight;
        debug_assert!(self.slots.iter().all(is_part), "an error is part of its weight");
        let total = self.total;
        let (left, right): (Vec<_>, Vec<_>) =
            self.slots.into_iter().partition(|slot| *slot.partition < *at);
        let sure = |slots: &[Heavy]| slots.iter().map(|s| s.weight - s.over).sum::<f64>();
        let (sure_left, sure_right) = (sure(&left), sure(&right));
        let rest = (total - sure_left - sure_right).max(0.0);
        (
            Heaviest { slots: left, total: sure_left + rest * left_share },
            Heaviest { slots: right, total: sure_right + rest * (1.0 - left_share) },
        )
    }

    /// Returns the greatest weight that a partition outside the sketch can have.
    fn floor(&self) -> f64 {
        if self.slots.len() < HEAVIEST_SLOTS {
            return 0.0;
        }
        self.slots.iter().map(|slot| slot.weight).fold(f64::INFINITY, f64::min)
    }
}

/// Partitions with at most this weight, a thousandth of an operation, are dropped.
const FADED: f64 = 1e-3;

impl Default for Distinct {
    fn default() -> Self {
        Distinct::Exact(Vec::new())
    }
}

impl Distinct {
    /// Counts a partition by its hash.
    pub(crate) fn add(&mut self, hash: u64) {
        match self {
            Distinct::Exact(hashes) => {
                let Err(at) = hashes.binary_search(&hash) else { return };
                debug_assert!(hashes.len() <= EXACT_MAX, "few are counted one by one");
                if hashes.len() < EXACT_MAX {
                    return hashes.insert(at, hash);
                }
                let mut registers = Box::new([0; REGISTERS]);
                hashes.iter().for_each(|hash| register(&mut registers, *hash));
                register(&mut registers, hash);
                *self = Distinct::Registers(registers);
            }
            Distinct::Registers(registers) => register(registers, hash),
        }
    }

    /// Merges another sketch.
    pub(crate) fn join(&mut self, other: &Distinct) {
        match other {
            Distinct::Exact(hashes) => hashes.iter().for_each(|hash| self.add(*hash)),
            Distinct::Registers(theirs) => {
                let mut joined = theirs.clone();
                match self {
                    Distinct::Exact(own) => own.iter().for_each(|h| register(&mut joined, *h)),
                    Distinct::Registers(own) => {
                        let pairs = joined.iter_mut().zip(own.iter());
                        pairs.for_each(|(joined, own)| *joined = (*joined).max(*own));
                    }
                }
                *self = Distinct::Registers(joined);
            }
        }
    }

    /// Returns the estimated number of partitions.
    pub(crate) fn count(&self) -> f64 {
        let registers = match self {
            Distinct::Exact(hashes) => return hashes.len() as f64,
            Distinct::Registers(registers) => registers,
        };
        let m = REGISTERS as f64;
        let sum: f64 = registers.iter().map(|rank| 1.0 / (1u64 << rank) as f64).sum();
        let raw = 0.7213 / (1.0 + 1.079 / m) * m * m / sum;
        let empty = registers.iter().filter(|rank| **rank == 0).count();
        // For few partitions, the number of empty registers gives the better estimate.
        if raw <= 2.5 * m && empty > 0 { m * (m / empty as f64).ln() } else { raw }
    }
}

/// Updates a register. The low bits of the hash select the register, and the number of leading
/// zeros of the hash plus one is its new value, if greater.
fn register(registers: &mut [u8; REGISTERS], hash: u64) {
    let index = (hash % REGISTERS as u64) as usize;
    // At most 56, because the lowest 9 bits are the index and do not count. So the sum of 2^-rank
    // over all registers is exact.
    let rank = ((hash | (REGISTERS as u64 - 1)).leading_zeros() + 1).min(56) as u8;
    registers[index] = registers[index].max(rank);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn name(i: u64) -> Vec<u8> {
        format!("p{i:06}").into_bytes()
    }

    fn add(sketch: &mut Heaviest, i: u64, weight: f64) {
        sketch.add(&name(i), partition_hash(&name(i)), weight);
    }

    /// Returns the number of a random partition; low numbers are more frequent.
    fn skewed(rng: &mut Rng, partitions: u64) -> u64 {
        (0..3).fold(partitions, |span, _| rng.below(span) + 1) - 1
    }

    #[track_caller]
    fn check_bounds(sketch: &Heaviest, truth: &[f64], error: f64) {
        let total: f64 = truth.iter().sum();
        let error = error * total / HEAVIEST_SLOTS as f64 + 1e-6;
        assert!((sketch.total - total).abs() < 1e-6 * total);
        for (i, weight) in truth.iter().enumerate() {
            let found = sketch.slots.iter().find(|slot| *slot.partition == *name(i as u64));
            match found {
                Some(slot) => {
                    assert!(slot.weight + 1e-6 >= *weight, "partition {i} has too low a count");
                    assert!(
                        slot.weight - slot.over <= weight + 1e-6,
                        "partition {i} has too high a count"
                    );
                    assert!(slot.over <= error);
                }
                None => assert!(*weight <= error, "partition {i} is missing"),
            }
        }
    }

    #[test]
    fn the_heaviest_are_kept_within_the_stated_error() {
        for seed in 0..20 {
            let mut rng = Rng::from_seed(seed);
            let (mut sketch, mut truth) = (Heaviest::default(), vec![0.0; 500]);
            for _ in 0..5_000 {
                let (i, weight) = (skewed(&mut rng, 500), rng.below(9) as f64 + 1.0);
                add(&mut sketch, i, weight);
                truth[i as usize] += weight;
            }
            check_bounds(&sketch, &truth, 1.0);
        }
    }

    #[test]
    fn joined_sketches_keep_the_error_of_the_sum() {
        for seed in 0..20 {
            let mut rng = Rng::from_seed(seed);
            let (mut a, mut b) = (Heaviest::default(), Heaviest::default());
            let mut truth = vec![0.0; 300];
            for step in 0..4_000 {
                let i = skewed(&mut rng, 300);
                add(if step % 3 == 0 { &mut a } else { &mut b }, i, 1.0);
                truth[i as usize] += 1.0;
            }
            a.join(&b);
            check_bounds(&a, &truth, 2.0);
            assert_eq!(&*a.ranked()[0].partition, name(0));
        }
    }

    #[test]
    fn a_split_assigns_partitions_by_their_start_and_keeps_the_total() {
        let mut sketch = Heaviest::default();
        (0..100).for_each(|i| add(&mut sketch, i, 100.0 - i as f64));
        let (total, slots) = (sketch.total, sketch.slots.len());
        let (left, right) = sketch.split(&name(50), 0.75);
        assert!((left.total + right.total - total).abs() < 1e-6);
        assert_eq!(left.slots.len() + right.slots.len(), slots);
        assert!(left.slots.iter().all(|slot| *slot.partition < *name(50)));
        assert!(right.slots.iter().all(|slot| *slot.partition >= *name(50)));
    }

    #[test]
    fn faded_partitions_are_forgotten() {
        let mut sketch = Heaviest::default();
        add(&mut sketch, 1, 1.0);
        add(&mut sketch, 2, 1000.0);
        sketch.scale(1e-4);
        assert_eq!(sketch.ranked().len(), 1);
    }

    #[test]
    fn few_partitions_are_counted_exactly() {
        let mut sketch = Distinct::default();
        for i in (0..EXACT_MAX as u64).chain(0..EXACT_MAX as u64) {
            sketch.add(partition_hash(&name(i)));
        }
        assert_eq!(sketch.count(), EXACT_MAX as f64);
    }

    /// Counts 40 streams of each size. The root mean square error must be the one stated in the
    /// header of this file, within sampling noise.
    #[test]
    fn many_partitions_are_counted_within_the_stated_error() {
        for size in [65u64, 300, 1_000, 1_500, 5_000, 40_000] {
            let error = |stream: u64| {
                let mut sketch = Distinct::default();
                (0..size).for_each(|i| sketch.add(partition_hash(&name(stream << 32 | i))));
                sketch.count() / size as f64 - 1.0
            };
            let squares: f64 = (0..40).map(|stream| error(stream).powi(2)).sum();
            let error = (squares / 40.0).sqrt();
            assert!(error < 0.046 * 1.35, "{size}: {error}");
        }
    }

    #[test]
    fn a_join_of_two_sketches_counts_like_one_stream() {
        for (a, b) in [(10, 20), (10, 500), (500, 10), (700, 900)] {
            let (mut left, mut right, mut whole) =
                (Distinct::default(), Distinct::default(), Distinct::default());
            for i in 0..a + b {
                let hash = partition_hash(&name(i));
                if i < a {
                    left.add(hash)
                } else {
                    right.add(hash)
                }
                whole.add(hash);
            }
            left.join(&right);
            assert_eq!(left.count(), whole.count(), "{a} and {b}");
        }
    }
}

//! Chooses the entity of each operation from a seed: in a pseudo-random order without repetition,
//! or by zipfian rank.
//!
//! Not here: the operations (`workloads/`).

use rowstone::retry::Rng;

/// The skew of the zipfian distribution, as in YCSB.
const THETA: f64 = 0.99;

/// A pseudo-random permutation of the numbers below `count`. A Feistel network permutes the numbers
/// below a power of four that is at least `count`.
pub struct Permutation {
    count: u64,
    half_bits: u32,
    keys: [u64; 4],
}

impl Permutation {
    pub fn new(seed: u64, count: u64) -> Self {
        let mut rng = Rng::from_seed(seed);
        let bits = 64 - count.saturating_sub(1).leading_zeros();
        Self { count, half_bits: bits.div_ceil(2).max(1), keys: [(); 4].map(|()| rng.next_u64()) }
    }

    /// Returns the number at position `place` of the permutation. `place` must be below the count.
    pub fn at(&self, place: u64) -> u64 {
        let mut number = self.step(place);
        // If the result is not below the count, it is permuted again until it is (cycle walking).
        while number >= self.count {
            number = self.step(number);
        }
        number
    }

    fn step(&self, number: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for key in self.keys {
            let mixed = (right ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (left, right) = (right, left ^ (mixed >> 32 & mask));
        }
        left << self.half_bits | right
    }
}

/// Draws zipfian ranks by the method of Gray and others, "Quickly generating billion-record
/// synthetic databases".
pub struct Zipfian {
    count: u64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipfian {
    pub fn new(count: u64) -> Self {
        let sum = |n: u64| (1..=n).map(|rank| (rank as f64).powf(-THETA)).sum::<f64>();
        let zeta = sum(count);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - THETA)) / (1.0 - sum(2) / zeta);
        Self { count, zeta, alpha: 1.0 / (1.0 - THETA), eta }
    }

    /// Draws a rank; 0 is the most frequent.
    pub fn rank(&self, rng: &mut Rng) -> u64 {
        let chance = (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let scaled = chance * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(THETA) {
            return 1;
        }
        let rank = self.count as f64 * (self.eta * chance - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.count - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_has_every_number_once() {
        for count in [1, 2, 3, 500, 1_024, 4_097] {
            let permutation = Permutation::new(5, count);
            let mut all: Vec<u64> = (0..count).map(|place| permutation.at(place)).collect();
            let is_shuffled = count < 500 || !all.is_sorted();
            all.sort_unstable();
            assert!(is_shuffled && all.into_iter().eq(0..count), "{count}");
        }
    }

    #[test]
    fn low_ranks_are_frequent() {
        let (zipfian, mut rng) = (Zipfian::new(10_000), Rng::from_seed(1));
        let ranks: Vec<u64> = (0..10_000).map(|_| zipfian.rank(&mut rng)).collect();
        let share = ranks.iter().filter(|rank| **rank < 100).count();
        assert!((4_000..7_000).contains(&share), "{share}");
        assert!(ranks.iter().all(|rank| *rank < 10_000) && ranks.iter().any(|rank| *rank > 5_000));
    }
}

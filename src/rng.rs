//! Random numbers: a small seeded generator, and the only access to the system's entropy.

// This is the atomic of the standard library, because an atomic of loom (the model checker) cannot
// be in a static. Loom need not explore accesses to it, because no thread waits for its value.
use std::sync::atomic::{AtomicU64, Ordering};

/// A seeded generator (SplitMix64). The same seed gives the same numbers on every machine. Use it
/// for ids, randomized tests and jitter, not for secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Creates a generator with the seed `seed`.
    pub fn from_seed(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Creates a generator with a seed from the operating system.
    pub fn from_entropy() -> Self {
        // If the system provides no entropy, an address and a counter make the seeds within a
        // process distinct. The numbers serve to recognize stale data, not to keep out attackers.
        static CALLS: AtomicU64 = AtomicU64::new(0);
        let fallback = || {
            let address = std::ptr::from_ref(&CALLS).addr() as u64;
            address.wrapping_add(CALLS.fetch_add(1, Ordering::Relaxed) << 48)
        };
        Self::from_seed(getrandom::u64().unwrap_or_else(|_| fallback()))
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product is below `bound`, and needs no division. For bounds below
        // 2^32 the bias is below 2^-32.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a random index into a list of `len` items; 0 if it is empty.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns true with a probability of `numerator` / `denominator`.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// Returns a random item of `items`. Requires: `items` is not empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides_the_numbers() {
        let mut rng = Rng::from_seed(0);
        assert_eq!(rng.next_u64(), 0xe220_a839_7b1d_cdaf);
        assert!((0..1000).all(|_| rng.below(7) < 7));
        assert_eq!(rng.below(0), 0);
    }

    /// Checks fixed sequences: a failing test records only its seed, so the numbers for a seed must
    /// never change.
    #[test]
    fn choices_are_the_same_on_every_machine() {
        let mut rng = Rng::from_seed(42);
        let below: Vec<u64> = (0..8).map(|_| rng.below(100)).collect();
        let picked: String = (0..8).map(|_| *rng.pick(&['a', 'b', 'c', 'd'])).collect();
        let chances = (0..1000).filter(|_| rng.chance(1, 4)).count();
        assert_eq!(below, [74, 15, 27, 34, 3, 86, 21, 80]);
        assert_eq!((&picked[..], chances), ("bcabccca", 273));
    }
}

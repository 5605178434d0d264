//! Target: programs against the oracle, crashes included.
//!
//! Not here: how programs are made and run (`sim`).

use crate::rng::Rng;
use crate::sim::program::{Mix, Program, check};

/// A program decided by the bytes.
pub fn program(data: &[u8]) {
    let seed = data
        .iter()
        .fold(data.len() as u64, |seed, byte| Rng::from_seed(seed ^ u64::from(*byte)).next_u64());
    check(&Program::random(seed, 60, Mix::CRASHING));
}

//! Target: programs against the oracle, with every kind of trouble.
//!
//! Not here: the generation and execution of programs (`sim`).

use crate::testing::sim::program::{Mix, Program, check};

/// More steps than an input of the default length can request.
const STEPS_MAX: usize = 1000;

/// The program determined by the bytes, one choice after another, until they are used up.
pub fn program(data: &[u8]) {
    check(&Program::from_bytes(data, STEPS_MAX, Mix::ALL));
}

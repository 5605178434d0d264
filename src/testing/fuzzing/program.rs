//! Target: programs against the oracle, with every kind of trouble.
//!
//! Not here: how programs are made and run (`sim`).

use crate::testing::sim::program::{Mix, Program, check};

/// More steps than an input of the default length can ask for.
const STEPS_MAX: usize = 1000;

/// The program that the bytes decide: one choice after the other, until they are spent.
pub fn program(data: &[u8]) {
    check(&Program::from_bytes(data, STEPS_MAX, Mix::ALL));
}

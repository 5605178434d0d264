//! Fuzz target: programs against the oracle, with every kind of trouble. `sim` makes and runs
//! programs.

use crate::testing::sim::program::{Mix, Program, check};

/// The maximum number of steps, more than an input of the default length can request.
const STEPS_MAX: usize = 1000;

/// Runs the program whose choices are determined by the bytes, one after another, until these are
/// used up.
pub fn program(data: &[u8]) {
    check(&Program::from_bytes(data, STEPS_MAX, Mix::ALL));
}

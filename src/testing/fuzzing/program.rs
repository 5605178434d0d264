//! A fuzz target that runs random programs (lists of steps, see `sim`) on the engine and on the
//! oracle, with crashes, I/O faults and damaged files.

use crate::testing::sim::program::{Mix, Program, check};

/// The maximum number of steps of a program. An input of the default length cannot encode so many
/// steps.
const STEPS_MAX: usize = 1000;

/// Runs the program that the bytes encode: each random choice is made by the next bytes of the
/// input. The program ends when the bytes are used up.
pub fn program(data: &[u8]) {
    check(&Program::from_bytes(data, STEPS_MAX, Mix::ALL));
}

//! Fuzz target: programs of the simulation (`sim`), which run on the engine and the oracle, with
//! crashes, faults and damage.

use crate::testing::sim::program::{Mix, Program, check};

/// The maximum number of steps, more than an input of the default length can request.
const STEPS_MAX: usize = 1000;

/// Runs the program that results from using the bytes, in order, for every choice. The program ends
/// when the bytes are used up.
pub fn program(data: &[u8]) {
    check(&Program::from_bytes(data, STEPS_MAX, Mix::ALL));
}

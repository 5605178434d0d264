//! Fuzz targets under two drivers: libFuzzer where cargo-fuzz sets `cfg(fuzzing)`, and on stable a
//! replay of the stored corpus with seeded mutations.
//!
//! Not here: what a target does with its bytes (`rowstone::fuzzing`).

pub mod replay;

#[cfg(fuzzing)]
pub use libfuzzer_sys;

use std::time::{Duration, Instant};

use rowstone::Rng;
use rowstone::sim::program::{Mix, Program, check};

/// A program decided by the bytes, run against the oracle, crashes included.
pub fn program(data: &[u8]) {
    let seed = data
        .iter()
        .fold(data.len() as u64, |seed, byte| Rng::from_seed(seed ^ u64::from(*byte)).next_u64());
    check(&Program::random(seed, 60, Mix::CRASHING));
}

/// Replays one target for about `time` and prints what was done.
pub fn run(name: &str, target: replay::Target, time: Duration) {
    let start = Instant::now();
    let done = replay::replay(name, target, 1, |_| start.elapsed() < time);
    println!("{name}: {} stored inputs, {} mutations", done.stored, done.mutated);
}

/// The whole of a target's file: `rowstone_fuzz::target!(rowstone::fuzzing::block);`.
#[cfg(fuzzing)]
#[macro_export]
macro_rules! target {
    ($target:path) => {
        $crate::libfuzzer_sys::fuzz_target!(|data: &[u8]| $target(data));
    };
}

/// The whole of a target's file: `rowstone_fuzz::target!(rowstone::fuzzing::block);`.
#[cfg(not(fuzzing))]
#[macro_export]
macro_rules! target {
    ($target:path) => {
        fn main() {
            let name = stringify!($target).rsplit("::").next().unwrap_or_default();
            $crate::run(name.trim(), $target, std::time::Duration::from_secs(10));
        }
    };
}

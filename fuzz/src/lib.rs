//! Fuzz targets under two drivers: libFuzzer where cargo-fuzz sets `cfg(fuzzing)`, and on stable a
//! replay of the stored corpus with seeded mutations.
//!
//! Not here: what a target does with its bytes (`rowstone::fuzzing`).

pub mod replay;

#[cfg(fuzzing)]
pub use libfuzzer_sys;

use std::time::{Duration, Instant};

/// Replays one target for about `time` and prints what was done.
pub fn run(name: &str, target: replay::Target, time: Duration) {
    let start = Instant::now();
    let done = replay::replay(name, target, 1, |_| start.elapsed() < time);
    println!("{name}: {} stored inputs, {} mutations", done.stored, done.mutated);
}

/// The whole of a target's file: `rowstone_fuzz::target!(block);`.
#[cfg(fuzzing)]
#[macro_export]
macro_rules! target {
    ($name:ident) => {
        $crate::libfuzzer_sys::fuzz_target!(|data: &[u8]| rowstone::fuzzing::$name(data));
    };
}

/// The whole of a target's file: `rowstone_fuzz::target!(block);`.
#[cfg(not(fuzzing))]
#[macro_export]
macro_rules! target {
    ($name:ident) => {
        fn main() {
            let seconds = std::time::Duration::from_secs(10);
            $crate::run(stringify!($name), rowstone::fuzzing::$name, seconds);
        }
    };
}

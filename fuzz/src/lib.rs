//! Runs the fuzz targets under one of two drivers. With cargo-fuzz, which sets `cfg(fuzzing)`, the
//! driver is libFuzzer. Otherwise, on stable Rust, it is a replay of the stored corpus with seeded
//! mutations.
//!
//! Both drivers enforce a memory limit (see `memory`); libFuzzer also enforces a time limit.
//!
//! Not here: the targets themselves (`rowstone::fuzzing`).

pub mod memory;
pub mod replay;

#[cfg(fuzzing)]
pub use libfuzzer_sys;

use std::time::{Duration, Instant};

/// Replays one target for about `time`, and prints how many inputs it ran.
pub fn run(name: &str, target: rowstone::fuzzing::Target, time: Duration) {
    let start = Instant::now();
    let bounded = |data: &[u8]| memory::bounded(name, target, data);
    let done = replay::replay(name, bounded, 1, |_| start.elapsed() < time);
    println!("{name}: {} stored inputs, {} mutations", done.stored, done.mutated);
}

/// Returns the name of a target, which is the last segment of the path of its function.
pub fn name(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or_default().trim()
}

/// Expands to the whole program of a fuzz target:
/// `rowstone_fuzz::target!(rowstone::fuzzing::block);`.
#[cfg(fuzzing)]
#[macro_export]
macro_rules! target {
    ($target:path) => {
        $crate::libfuzzer_sys::fuzz_target!(|data: &[u8]| {
            $crate::memory::bounded($crate::name(stringify!($target)), $target, data);
        });
    };
}

/// Expands to the whole program of a fuzz target:
/// `rowstone_fuzz::target!(rowstone::fuzzing::block);`.
#[cfg(not(fuzzing))]
#[macro_export]
macro_rules! target {
    ($target:path) => {
        fn main() {
            let name = $crate::name(stringify!($target));
            $crate::run(name, $target, std::time::Duration::from_secs(10));
        }
    };
}

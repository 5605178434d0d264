//! Suites that use the library as its users do: scripts, random sequences of operations, crashes,
//! faults, damage, threads, and the binary as a process.
//!
//! `tests/tidy.rs` checks the source text, and unit tests next to the code test internals.

mod caps;
#[cfg(feature = "cli")]
mod cli;
#[cfg(all(unix, feature = "rest", feature = "remote", feature = "serde"))]
mod cookbook;
mod crash;
mod damage;
mod device;
#[cfg(unix)]
mod directory;
mod drops;
mod faults;
mod flip;
#[cfg(unix)]
mod follow;
#[cfg(feature = "fuzzing")]
mod format;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod gates;
mod golden;
mod linear;
mod loader;
mod many;
mod model;
mod moving;
mod pages;
mod query;
#[cfg(all(unix, feature = "rest", feature = "remote"))]
mod queue;
mod ranges;
mod reads;
#[cfg(all(unix, feature = "rest"))]
mod rest;
mod ring;
mod script;
mod sim;
mod soak;
#[cfg(feature = "remote")]
mod store;
mod threads;

/// Returns the number of random cases of a test: that of the environment variable if it is set, as
/// by `.ci/long`.
fn cases(variable: &str, short: u64) -> u64 {
    std::env::var(variable).map_or(short, |number| {
        number.parse().unwrap_or_else(|_| panic!("{variable}={number} is no number"))
    })
}

/// Prints a line even if the test passes, because counts are part of a run's output.
fn say(line: impl std::fmt::Display) {
    use std::io::Write;
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}

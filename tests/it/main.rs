//! The suites that see the library as its users do: scripts, random programs, crashes, faults, damage, threads.
//!
//! Not here: the source text (`tests/tidy.rs`), what needs internals (unit tests beside the code).

mod crash;
mod faults;
mod flip;
#[cfg(feature = "fuzzing")]
mod format;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod harness;
mod model;
mod script;
mod threads;

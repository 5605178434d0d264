//! Seeded simulation of the engine against an oracle.
//!
//! One seed decides a run: options, calls and their interleaving with background work, the clock,
//! faults, power cuts and damage. A run uses one thread, no real time and no real disk, so every
//! failure can be reproduced on every machine. Each step's answers are compared with the oracle's.
//! The state that survives the end of a run is compared with the acknowledged durability.
//!
//! ```
//! use rowstone::sim::{activate, explore};
//!
//! let report = explore::program(42).run();
//! assert!(report.failure.is_none());
//! let mutant = activate("half-group"); // on this thread, until it is dropped
//! let failure = (0..50).find_map(|seed| explore::program(seed).run().failure);
//! assert!(failure.is_some());
//! ```
//!
//! The internal modules are `generate` (the choice of steps), `faults` (damage to disk and
//! process), `quiesce` (checks after background work), `concurrent_readers`, `space_limit`,
//! `write_accounting`, and the steps of the runner by subject.
//!
//! # Reproducing a failure
//!
//! A failure names its seed: [`explore::program`] returns the program, and `rowstone sim --seed n`
//! runs it. When the generator changes, a seed denotes another program.
//! [`Program::shrunk`](program::Program::shrunk) looks for fewer steps that fail in the same way
//! and prints them as a script, which stays valid. Paste it into a file under `tests/scripts`, run
//! it with `rowstone sim --script`, or read it with
//! [`Program::from_script`](program::Program::from_script).

pub use crate::mutants::{ActiveMutant, activate};
pub use mutants::{MUTANTS, Mutant};

mod archive;
mod backup;
mod concurrent_readers;
pub mod corruption_matrix;
pub mod counts;
pub mod device;
mod displaced;
pub mod engine;
pub mod explore;
pub mod expr;
mod faults;
mod gates;
mod generate;
pub mod history;
mod moving;
mod mutants;
pub mod oracle;
pub mod parse;
pub mod power;
pub mod program;
pub mod query;
mod query_check;
mod quiesce;
pub mod ranges;
mod repair_checks;
pub mod row;
pub mod runner;
mod runner_state;
mod space_limit;
pub mod step;
mod targets;
mod tickets;
pub mod value;
mod words;
mod write_accounting;

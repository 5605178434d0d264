//! Seeded simulation of the engine, compared with an oracle (a simple model of the database).
//!
//! One seed decides a run: options, calls and their interleaving with background work, the clock,
//! faults, power cuts and damage. A run uses one thread, no real time and no real disk, so every
//! failure can be reproduced on every machine. The answers of each step are compared with those of
//! the oracle. After a kill or power cut, all acknowledged durable commits must be there.
//!
//! `explore` says how to reproduce a failure. The internal modules are `generate` (the choice of
//! steps), `faults`, `quiesce` (checks after background work), and one module for each group of
//! steps.

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

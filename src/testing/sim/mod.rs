//! Seeded simulation of the engine against an oracle.
//!
//! One seed decides a run: options, clients and the interleaving of their calls with background
//! work, the clock, faults, power cuts and rot. A run uses one thread, no real time and no real
//! disk, so the same seed gives the same run on every machine, and every failure can be reproduced.
//! The answers of each step are compared with the oracle's. The state that survives the end of a
//! run is compared with the durability that was acknowledged.
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
//! # Parts
//!
//! * [`explore`]: the program of a seed, and many seeds on several threads, each on one;
//! * [`program`]: options and steps; running, shrinking and printing them;
//! * `generate`: the choice of steps, from a seed or from bytes, weighted by a [`program::Mix`];
//! * [`step`], [`value`], [`parse`]: the steps, the values of rows, and the text of both;
//! * [`runner`]: runs a step on engine and oracle and compares them;
//! * `faults`: damage to disk and process; `quiesce`: checks after troubles and background work
//!   have ended; `write_accounting`: counts that no end of a run may lose;
//! * `concurrent_readers`: a reader and a consumer of the change feed, as in other processes;
//! * `space_limit`: refusals by the limit on disk use, and the accounted size of the files;
//! * `gates`, `targets`, `tickets`, `query_check`: steps of the runner, by subject;
//! * [`query`], [`expr`]: queries, and the filters of the oracle;
//! * [`row`]: entities in the oracle's terms;
//! * [`oracle`]: tables as maps, the semantics of every verb, and the durability of commits;
//! * [`engine`]: the database as the simulation uses it, on a memory file system that can fail;
//! * [`power`]: ends of the process or of the power at a chosen file operation;
//! * [`counts`]: the events of a run, so that missing events are noticed;
//! * [`activate`] and [`MUTANTS`]: bugs behind switches, to show that a simulation detects them;
//! * [`corruption_matrix`]: every damage to a byte or a length of small databases, and its outcome;
//! * [`ranges`]: splits and merges of ranges, and jobs in halves, under the control of a test;
//! * [`device`]: a month of power cuts, wrong clocks and bad blocks, with the profile for small
//!   devices;
//! * [`history`]: a check that some order of the calls logged by real threads explains every
//!   answer. It belongs to the suites with threads, which no seed controls.
//!
//! # Reproducing a failure
//!
//! A failure names its seed: [`explore::program`] returns the program, and `rowstone sim --seed n`
//! runs it. A seed denotes another program once the generator changes.
//! [`Program::shrunk`](program::Program::shrunk) looks for fewer steps that fail in the same way
//! and prints them as a script, which does not change: paste it into a file under `tests/scripts`,
//! run it with `rowstone sim --script`, or read it with
//! [`Program::from_script`](program::Program::from_script).
//!
//! Not here: interleavings of threads (the loom models, and the suites with threads), real disks
//! and file systems, decoders under hostile bytes (`fuzz/`), performance.

pub use crate::mutants::{ActiveMutant, activate};
pub use mutants::{MUTANTS, Mutant};

mod archive;
mod backup;
mod concurrent_readers;
pub mod corruption_matrix;
pub mod counts;
pub mod device;
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

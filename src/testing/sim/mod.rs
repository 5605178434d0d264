//! Seeded simulation of the engine against an oracle, for everybody who wants to break it.
//!
//! One seed decides a run: options, clients and how their calls and the background work interleave, the clock, faults,
//! power cuts and rot. A run is one thread; it has no real time and no real disk, so the same seed gives the same run
//! on every machine, and a failure is seen again. What a step answers is compared with what the oracle says, and what
//! survives an end of the run with what was promised.
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
//! * [`explore`]: what a seed stands for, and many seeds on several threads, each on one;
//! * [`program`]: options and steps; running, shrinking and printing them;
//! * `generate`: which steps come up, from a seed or from bytes, weighed by a [`program::Mix`];
//! * [`step`], [`value`], [`parse`]: the steps, what rows hold, and the text of both;
//! * [`runner`]: a step on engine and oracle side by side; `faults` is what is done to disk and process, `quiesce`
//!   what must hold when troubles are over and background work has run; `write_accounting` what no end of a run may forget;
//! * `concurrent_readers`: a reader and a consumer of the change feed, as other processes would be;
//! * `space_limit`: what the limit on disk use refuses, and what the files take;
//! * `gates`, `targets`, `tickets`, `query_check`: steps of the runner, each with what it is about;
//! * [`query`], [`expr`]: queries, and the filters as the oracle has them;
//! * [`row`]: entities in the oracle's terms;
//! * [`oracle`]: tables as maps, the semantics of every verb, and which commits must survive what;
//! * [`engine`]: the database behind one door, on a file system in memory that can fail;
//! * [`power`]: ends of the process or of the power at a chosen file operation;
//! * [`counts`]: what a run met, so that what never comes up is noticed;
//! * [`activate`] and [`MUTANTS`]: mistakes that can be switched on, to show that a simulation finds them;
//! * [`corruption_matrix`]: every damage to a byte or a length of small databases, and what it comes to;
//! * [`ranges`]: ranges divided and merged, and jobs in halves, at the will of a test;
//! * [`device`]: a month of power cuts, wrong clocks and bad blocks, on the profile for small devices;
//! * [`history`]: whether calls that real threads logged can be put in an order that explains every answer. It
//!   belongs to the suites with threads; no seed decides those.
//!
//! # Seeing a failure again
//!
//! A failure names its seed: [`explore::program`] gives the program, and `rowstone sim --seed n` runs it. A seed means
//! another program once the generator changes. [`Program::shrunk`](program::Program::shrunk) looks for fewer steps that
//! fail in the same way and prints them as a script, which does not change: paste it into a file under
//! `tests/scripts`, run it with `rowstone sim --script`, or read it with
//! [`Program::from_script`](program::Program::from_script).
//!
//! Not here: orders of the steps of threads (the loom models, and the suites with threads), real disks and file
//! systems, decoders under hostile bytes (`fuzz/`), how long anything takes.

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

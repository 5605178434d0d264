//! What the suites share: steps and their text, the oracle, the engine behind one door, programs.

pub mod engine;
pub mod lying;
pub mod oracle;
pub mod parse;
pub mod program;
pub mod rng;
pub mod runner;
pub mod step;
pub mod value;

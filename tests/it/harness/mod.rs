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

/// Prints a line that a passing test shows too: counts are part of what a run says.
pub fn say(line: impl std::fmt::Display) {
    use std::io::Write;
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}

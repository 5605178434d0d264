//! Seeded simulation of the engine against an oracle, for everybody who wants to break it.
pub use crate::planted::{Planting, plant};
pub use planted::{BUGS, Bug};

pub mod counts;
pub mod engine;
pub mod explore;
mod generate;
pub mod history;
pub mod ledger;
pub mod oracle;
pub mod parse;
mod planted;
pub mod power;
pub mod program;
pub mod runner;
mod settle;
pub mod step;
mod trouble;
pub mod value;

//! The simulation.
pub use crate::planted::{Planting, plant};

pub mod engine;
pub mod oracle;
pub mod parse;
pub mod program;
pub mod runner;
pub mod step;
pub mod value;

//! Test machinery that ships with the library: the simulation, fuzz targets, and what benchmarks need of the internals.
//!
//! Not here: tests themselves (beside the code, and under `tests/`).

pub mod bench_support;
#[cfg(any(fuzzing, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(feature = "sim")]
pub mod sim;

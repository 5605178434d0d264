//! Test machinery that ships with the library: the simulation, fuzz targets, and internals for
//! benchmarks. The tests themselves are next to the code and under `tests/`.

pub mod bench_support;
#[cfg(any(fuzzing, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(feature = "sim")]
pub mod sim;

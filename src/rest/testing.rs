//! Fuzz targets of requests and responses.

#[cfg(any(fuzzing, feature = "fuzzing"))]
pub mod fuzz;

//! rowstone: an embedded storage engine for schema-less, typed entities keyed by PartitionKey and RowKey.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]
#![warn(missing_docs)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

#[doc(hidden)]
pub mod bench_support;
mod clock;
mod codec;
mod error;
mod executor;
mod format;
pub mod fs;
#[cfg(any(fuzzing, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod log;
mod lsm;
mod manifest;
mod memtable;
mod model;
mod options;
mod ranges;
mod rng;
mod sst;
mod sync;

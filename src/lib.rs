//! rowstone: an embedded storage engine for schema-less, typed entities keyed by PartitionKey and RowKey.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]
#![warn(missing_docs)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod clock;
mod codec;
mod error;
mod executor;
mod format;
pub mod fs;
mod model;
mod options;
mod rng;
mod sync;
#[cfg(feature = "cli")]
mod wire;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;

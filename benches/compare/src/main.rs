//! rowstone beside RocksDB, fjall, LMDB, redb and SQLite: the same data, seeds, durability and memory.
//!
//! README.md beside it says how to run it, and how each engine is set up.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock, files and processes")]
#![expect(dead_code, reason = "the workloads come next")]

mod encoding;
mod engines;
mod reading;
mod store;

fn main() {}

//! The entity of all workloads: what a device measured, ten properties of all types, made from its number.
//!
//! Owns: [`Key`], [`Reading`], how they are generated (the same for every engine, from a seed), and the
//! digest by which answers are checked.
//! Not here: encodings (`encoding.rs`).

use serde::{Deserialize, Serialize};

/// A sum over all properties of an entity; equal for equal entities, whatever engine they went through.
pub type Digest = u64;

/// Readings of one device follow one another: this many make a partition, the tenth of a thousandth of ten million.
pub const READINGS_PER_DEVICE: u64 = 1_000;

/// PartitionKey and RowKey of an entity, as numbers and as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    pub device: u32,
    /// `device-00000042`
    pub partition: String,
    /// Time of the reading in ticks, zero-padded: ascending.
    pub row: String,
}

/// One reading. The order of fields is that of the names, as a Table service has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    pub key: Key,
    pub at: i64,
    pub battery: i32,
    pub counter: i64,
    pub firmware: String,
    pub humidity: f64,
    pub note: String,
    pub online: bool,
    pub pressure: f64,
    pub site: String,
    pub temperature: f64,
}

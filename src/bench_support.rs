//! What the benchmarks need and users do not: no part of the public interface, and free to change.

use std::sync::Arc;

use crate::codec::{HashSeed, hash};
use crate::format::Kind;
use crate::memtable;
use crate::model::Seq;

/// The memtable, for benches/memtable.rs.
pub struct Memtable(Arc<memtable::Memtable>);

impl Memtable {
    /// An empty memtable for about `bytes_hint` bytes.
    pub fn new(bytes_hint: usize) -> Self {
        Self(Arc::new(memtable::Memtable::new(1, bytes_hint)))
    }

    /// Hashes and inserts.
    pub fn insert(&self, key: &[u8], seq: u64, row: &[u8]) {
        self.0.insert(hash(HashSeed(1), key), key, Seq(seq), Kind::Put, row);
    }

    /// Length of the newest row of `key`.
    pub fn get(&self, key: &[u8]) -> Option<usize> {
        let entry = self.0.get(hash(HashSeed(1), key), key, Seq::MAX)?;
        Some(entry.row.len())
    }

    /// Visits up to `len` entries from `key` on; returns the bytes of their keys and rows.
    pub fn scan(&self, key: &[u8], len: usize) -> usize {
        let (mut iter, mut bytes) = (self.0.iter(), 0);
        iter.seek(key);
        for _ in 0..len {
            if !iter.valid() {
                break;
            }
            let entry = iter.entry();
            bytes += entry.key.len() + entry.row.len();
            iter.next();
        }
        bytes
    }

    /// A background step.
    pub fn sort_step(&self, budget: usize) -> bool {
        self.0.sort_step(budget)
    }

    /// Resident memory.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

//! What every engine is asked to do, in the words of the application: entities in, entities out.
//!
//! Owns: [`Store`], which each engine implements once per way of encoding, and the words for durability.
//! What a user of a key-value store has to do by hand (encode, decode, filter, read before writing, keep
//! groups atomic, compare versions) is done inside the implementation and counts.
//! Not here: how engines are configured (`engines/`), what is measured (`workloads/`).

use std::path::Path;

use rowstone::ETag;

use crate::reading::{Digest, Key, Reading};
use crate::sheet::{Kind, Sheet};

/// When a write counts as done. Every engine maps these to its own settings, and none may do less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Survives a power cut: synced before the call returns.
    Sync,
    /// Survives a crash of the process: handed to the operating system before the call returns.
    Os,
}

/// How an entity becomes the value of a key. rowstone has its own rows, SQLite also columns.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Encoding {
    /// The engine's own typed rows: rowstone, and SQLite with a column for each property.
    Native,
    /// Text, as most applications do it.
    Json,
    /// A compact binary form of a struct that is known when compiling (postcard).
    Binary,
}

/// How an engine is to be opened.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    pub dir: &'a Path,
    pub encoding: Encoding,
    /// Bytes for caches of blocks or pages, uncompressed.
    pub cache_bytes: u64,
    /// Bytes for write buffers, all of them together.
    pub write_buffer_bytes: u64,
    /// Compress what is at rest, as well as the engine can.
    pub compress: bool,
}

/// What a merge sets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// `Temperature` of a reading.
    Temperature(f64),
    /// The counter of a sheet.
    Counter(Kind, i64),
}

/// Which state of an entity a reader has seen, as its engine tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The number in front of the value, or in a column.
    Number(u64),
    /// rowstone's own.
    Tag(ETag),
}

/// Sums up what an operation returned, so that nothing is optimised away and every answer is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub entities: u64,
    /// Wrapping sum of the digests of the entities.
    pub digest: Digest,
}

impl Found {
    pub fn add(&mut self, other: Found) {
        self.entities += other.entities;
        self.digest = self.digest.wrapping_add(other.digest);
    }

    /// Of one entity, if it is there.
    pub fn one(digest: Option<Digest>) -> Self {
        digest.map_or_else(Self::default, |digest| Self { entities: 1, digest })
    }
}

/// An engine that holds readings, shared by all threads of a workload.
///
/// Nothing here returns an error: a benchmark that fails has no figures, so implementations panic with what
/// went wrong, and the child process ends with it.
pub trait Store: Send + Sync {
    /// Writes the entity, whatever was there.
    fn put(&self, reading: &Reading, durability: Durability);

    /// Writes all of them or none, whatever was there; all are of one partition, at most 100.
    fn put_group(&self, readings: &[Reading], durability: Durability);

    /// Loads many in the order given, by the engine's fastest way that keeps `durability` at its end.
    fn load(&self, readings: &mut dyn Iterator<Item = Reading>, durability: Durability);

    /// Commits each by itself, with up to `in_flight` waiting for the disk on this one thread. `each` hears of
    /// every commit that is durable, with its number, in order. `false` if the engine has no such interface.
    fn put_in_flight(
        &self,
        readings: &mut dyn Iterator<Item = Reading>,
        in_flight: usize,
        each: &mut dyn FnMut(u64),
    ) -> bool;

    /// Writes the entity if its key is free, and says whether it was. Two callers never both succeed.
    fn insert(&self, reading: &Reading, durability: Durability) -> bool;

    /// Inserts all or none, and says whether all keys were free.
    fn insert_group(&self, readings: &[Reading], durability: Durability) -> bool;

    /// The version of the entity at `key`: its ETag, or what stands for it beside or in the value.
    fn version(&self, key: &Key) -> Option<Version>;

    /// Replaces the entity if its version is still `version`, and says whether it was; the version changes.
    fn replace_if(&self, reading: &Reading, version: Version, durability: Durability) -> bool;

    /// Sets one property of the entity at `key`, and keeps the rest; `false` if there is none. Atomic.
    fn merge(&self, key: &Key, change: Change, durability: Durability) -> bool;

    /// Writes an entity that is no reading, whatever was there.
    fn put_sheet(&self, sheet: &Sheet, durability: Durability);

    /// What the sheet at `key` holds.
    fn get_sheet(&self, kind: Kind, key: &Key) -> Option<Digest>;

    /// All properties of the entity at `key`, decoded and owned.
    fn get(&self, key: &Key) -> Option<Digest>;

    /// As `get`, by the engine's way of reading in place, where it has one. Default: `get`.
    fn get_view(&self, key: &Key) -> Option<Digest> {
        self.get(key)
    }

    /// Up to `limit` entities of the partition from `key` on, all properties decoded.
    fn range(&self, key: &Key, limit: usize) -> Found;

    /// All entities in the order of keys, all properties decoded.
    fn scan(&self) -> Found;

    /// All entities whose `Temperature` is below `limit`, decoded; the others need not be.
    fn filter(&self, limit: f64) -> Found;

    /// Deletes the entity at `key`, if it is there.
    fn delete(&self, key: &Key, durability: Durability);

    /// The first entity of a partition, removed: the head of a queue. Atomic among threads.
    fn take_first(&self, partition: u32, durability: Durability) -> Option<Digest>;

    /// Deletes all entities of a partition, by the engine's fastest way.
    fn drop_partition(&self, partition: u32, durability: Durability);

    /// Deletes all entities of some partitions, durably; engines that can do it in one write override this.
    fn drop_partitions(&self, partitions: std::ops::Range<u32>) {
        partitions.for_each(|partition| self.drop_partition(partition, Durability::Os));
        self.sync();
    }

    /// Everything written so far is durable when this returns.
    fn sync(&self);

    /// Merges all there is; once it has settled after that, the database is at rest. Background work of before goes on
    /// meanwhile, and what its end is waited for is up to the caller, so that only the merge is in a time taken of it.
    fn compact(&self);

    /// With what `compact` packs what it writes, where the engine was told to and can. Default: with nothing.
    fn packs_with(&self) -> Option<&'static str> {
        None
    }

    /// Waits until the engine does nothing in the background any more.
    fn settle(&self);

    /// Closes in order. A child process that is to be killed never calls it.
    fn close(self: Box<Self>);
}

//! Defines the interface that every engine implements. Its methods take and return entities,
//! because an application works with entities.
//!
//! Owns: [`Store`], implemented once per engine and encoding, and the durability levels. Work that
//! a user of a key-value store does by hand (encode, decode, filter, read before writing, keep
//! groups atomic, compare versions) is part of the implementation and of the measured time.
//! Not here: configuration of engines (`engines/`), workloads (`workloads/`).

use std::path::Path;

use rowstone::ETag;

use crate::reading::{Digest, Key, Properties, Reading};
use crate::sheet::{Kind, Sheet};

/// The levels of durability, which state when a write counts as done. Every engine maps these to
/// its own settings, with no weaker guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Survives a power cut: synced before the call returns.
    Sync,
    /// Survives a crash of the process: handed to the operating system before the call returns.
    Os,
}

/// The format in which an engine stores an entity: as a row with columns, or as an encoded value.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Encoding {
    /// The typed rows of the engine: rows of rowstone, or an SQLite table with a column for each
    /// property.
    Native,
    /// JSON text, as in most applications.
    Json,
    /// Postcard, a compact binary format for a struct that is known at compile time.
    Binary,
    /// MessagePack maps, a binary format with the names and types of the properties, for entities
    /// without a schema.
    Named,
}

/// Parameters for opening an engine.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    pub dir: &'a Path,
    pub encoding: Encoding,
    /// The maximum size of the block or page cache in bytes, where data are uncompressed.
    pub cache_bytes: u64,
    /// Total bytes of write buffers.
    pub write_buffer_bytes: u64,
    /// Whether to compress stored data, with the best compression that the engine offers.
    pub compress: bool,
}

/// The property that a merge sets, and its new value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// `Temperature` of a reading.
    Temperature(f64),
    /// The counter of a sheet.
    Counter(Kind, i64),
}

/// The condition of a filter over all entities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Filter {
    /// `Temperature`, the last property, is below the number. The lowest values match, so an engine
    /// with a minimum for each block can skip blocks.
    Below(f64),
    /// `Humidity`, a property in the middle, lies from the first number to below the second. Values
    /// in the middle of all values match, so neither minima nor maxima exclude a block.
    Between(f64, f64),
}

impl Filter {
    /// Returns whether the property that [`Encoding::tested`] decodes matches.
    pub fn accepts(self, value: f64) -> bool {
        match self {
            Filter::Below(limit) => value < limit,
            Filter::Between(low, high) => low <= value && value < high,
        }
    }

    /// Returns whether an entity with these properties matches.
    pub fn accepts_entity(self, properties: &Properties<'_>) -> bool {
        self.accepts(match self {
            Filter::Below(_) => properties.temperature,
            Filter::Between(..) => properties.humidity,
        })
    }
}

/// The version of an entity, as its engine reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Version {
    /// The number that is stored in front of the value, or in a column.
    Number(u64),
    /// rowstone's own ETag.
    Tag(ETag),
}

/// The sum of the results of operations. It keeps the compiler from removing reads as unused, and
/// all answers are checked by it.
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

    /// Returns the digest of one entity, if it exists.
    pub fn one(digest: Option<Digest>) -> Self {
        digest.map_or_else(Self::default, |digest| Self { entities: 1, digest })
    }
}

/// An open database of one engine, shared by all threads of a workload.
///
/// No method returns an error: a failed benchmark has no figures. Implementations panic with the
/// cause, which ends the child process.
pub trait Store: Send + Sync {
    /// Writes the entity unconditionally.
    fn put(&self, reading: &Reading, durability: Durability);

    /// Writes a group of readings atomically, and replaces existing entities. The group has at most
    /// 100 readings of one partition.
    fn put_group(&self, readings: &[Reading], durability: Durability);

    /// Loads readings in the given order, by the fastest method of the engine that provides
    /// `durability` when the load ends.
    fn load(&self, readings: &mut dyn Iterator<Item = Reading>, durability: Durability);

    /// Commits each reading by itself. Up to `in_flight` commits of this thread may wait for the
    /// disk at the same time. `each` gets the number of every durable commit, in order. Returns
    /// `false` if the engine has no such interface.
    fn put_in_flight(
        &self,
        readings: &mut dyn Iterator<Item = Reading>,
        in_flight: usize,
        each: &mut dyn FnMut(u64),
    ) -> bool;

    /// Writes the entity if its key does not exist, and returns whether it did so. If two callers
    /// insert the same key, only one succeeds.
    fn insert(&self, reading: &Reading, durability: Durability) -> bool;

    /// Inserts all readings if none of their keys exists; otherwise inserts none. Returns whether
    /// it inserted them.
    fn insert_group(&self, readings: &[Reading], durability: Durability) -> bool;

    /// Returns the version of the entity at `key`: the ETag, or the version stored with the value.
    fn version(&self, key: &Key) -> Option<Version>;

    /// Replaces the entity and its version if the current version is `version`. Returns whether it
    /// did.
    fn replace_if(&self, reading: &Reading, version: Version, durability: Durability) -> bool;

    /// Sets one property of the entity at `key` atomically, and keeps its other properties. Returns
    /// `false` if the entity does not exist.
    fn merge(&self, key: &Key, change: Change, durability: Durability) -> bool;

    /// Writes a sheet, which is an entity with many or large properties; replaces an existing one.
    fn put_sheet(&self, sheet: &Sheet, durability: Durability);

    /// Returns the digest of the sheet at `key`.
    fn get_sheet(&self, kind: Kind, key: &Key) -> Option<Digest>;

    /// Reads the entity at `key`, decodes all its properties into owned values, and returns its
    /// digest.
    fn get(&self, key: &Key) -> Option<Digest>;

    /// Like `get`, but reads in place if the engine can. Default: `get`.
    fn get_view(&self, key: &Key) -> Option<Digest> {
        self.get(key)
    }

    /// Reads up to `limit` entities of the partition, starting at `key`, and decodes all
    /// properties.
    fn range(&self, key: &Key, limit: usize) -> Found;

    /// Reads all entities in key order, and decodes all properties.
    fn scan(&self) -> Found;

    /// Reads and decodes all entities that match. Other entities need not be decoded completely.
    fn filter(&self, filter: Filter) -> Found;

    /// Deletes the entity at `key`, if it exists.
    fn delete(&self, key: &Key, durability: Durability);

    /// Removes the first entity of a partition, the head of a queue, atomically among threads.
    fn take_first(&self, partition: u32, durability: Durability) -> Option<Digest>;

    /// Deletes all entities of a partition, by the engine's fastest method.
    fn drop_partition(&self, partition: u32, durability: Durability);

    /// Deletes all entities of several partitions, durably. Engines that can do it in one write
    /// override this method.
    fn drop_partitions(&self, partitions: std::ops::Range<u32>) {
        partitions.for_each(|partition| self.drop_partition(partition, Durability::Os));
        self.sync();
    }

    /// Makes all earlier writes durable.
    fn sync(&self);

    /// Runs a full compaction to its end. Other background work may continue. The caller waits for
    /// that work separately, so that a measured time covers only the compaction.
    fn compact(&self);

    /// Returns the name of the compression codec that `compact` uses, or `None` without
    /// compression.
    fn packs_with(&self) -> Option<&'static str> {
        None
    }

    /// Waits until the engine has no background work.
    fn settle(&self);

    /// Closes cleanly. A child process that is to be killed never calls it.
    fn close(self: Box<Self>);
}

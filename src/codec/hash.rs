//! The key hash: xxh3-64 with the database's seed. Memtables and all files use the same hash.

/// The random seed of a database, stored in its manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashSeed(pub(crate) u64);

/// Returns the hash of `bytes` under `seed`. The seed is secret, so an adversary cannot choose keys
/// that share a bucket.
#[inline]
pub(crate) fn hash(seed: HashSeed, bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(bytes, seed.0)
}

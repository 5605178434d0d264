//! The block cache: blocks and index pages of table files that are not memory-mapped. It is sharded
//! and evicts with the CLOCK algorithm.
//!
//! Invariants
//! * the counted bytes never exceed the limit. An evicted buffer that a reader still holds is not
//!   counted;
//! * a part of the limit can be reserved for data outside the cache, such as the location cache.
//!   Until the first reservation, blocks use this part, too;
//! * a file's number is never reused, so a cached block never becomes stale.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use bytes::Bytes;

use crate::format::names::FileNumber;
use crate::sync::{AtomicUsize, Mutex, OnceLock, Ordering};

/// Caches blocks and index pages of all open files.
pub(crate) struct BlockCache {
    /// The shards; their number is a power of two.
    shards: Box<[Mutex<Shard>]>,
    reserve_max: usize,
    reserved: AtomicUsize,
    /// Set by the first reservation. From then on blocks no longer use the part of the limit that
    /// can be reserved.
    has_room: OnceLock<()>,
}

/// Identifies a cached buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey {
    pub(crate) file: FileNumber,
    pub(crate) area: Area,
    pub(crate) index: u32,
}

/// A part of a file whose blocks or pages are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Area {
    Rows = 0,
    Hash = 1,
    Sparse = 2,
    Zones = 3,
}

/// The memory overhead of an entry in bytes: its key, and its slots in the map and the ring.
const ENTRY_BYTES: usize = 96;
/// The minimum size of a shard in bytes. A smaller shard would hold too few blocks for CLOCK to
/// distinguish hot from cold ones.
const SHARD_BYTES_MIN: usize = 512 << 10;
const SHARDS_MAX: usize = 16;
/// The fraction of the cache that can be reserved is 1 / `RESERVE_SHARE`. This suffices for the
/// location cache, which takes 5 bytes per row, if rows have about 100 bytes.
const RESERVE_SHARE: usize = 16;
const SEARCHES_MAX: u8 = 3;

struct Shard {
    bytes_max: usize,
    bytes: usize,
    places: HashMap<CacheKey, usize, BuildHasherDefault<Mix>>,
    /// The entries in the order in which the CLOCK hand visits them. The order has no other
    /// meaning.
    ring: Vec<Cached>,
    hand: usize,
}

struct Cached {
    key: CacheKey,
    contents: Bytes,
    /// True if the entry was used since the CLOCK hand last passed it.
    used: bool,
    /// The number of searches for a key in this block, at most [`SEARCHES_MAX`].
    searches: u8,
}

impl BlockCache {
    /// Creates a cache of at most `bytes_max` bytes; 0 disables caching.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let wanted = (bytes_max / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        let count = 1 << wanted.ilog2();
        debug_assert!(count <= SHARDS_MAX, "shards are few");
        let shards = (0..count).map(|_| Mutex::new(Shard::new(bytes_max / count)));
        let (reserve_max, reserved) = (bytes_max / RESERVE_SHARE, AtomicUsize::new(0));
        Self { shards: shards.collect(), reserve_max, reserved, has_room: OnceLock::new() }
    }

    /// Returns the contents cached under `key`.
    pub(crate) fn get(&self, key: CacheKey) -> Option<Bytes> {
        self.shard(key).lock().get(key)
    }

    /// Caches `contents`, evicting other entries if necessary. Does nothing if `contents` are
    /// larger than a shard.
    pub(crate) fn insert(&self, key: CacheKey, contents: &Bytes) {
        self.shard(key).lock().insert(key, contents);
    }

    /// Removes all entries of a file.
    pub(crate) fn remove_file(&self, file: FileNumber) {
        for shard in &self.shards {
            shard.lock().remove_file(file);
        }
    }

    /// Reserves `bytes` for data that the caller keeps outside the cache. Returns false if this
    /// would exceed the part that can be reserved.
    pub(super) fn reserve(&self, bytes: usize) -> bool {
        if bytes > self.reserve_max {
            return false;
        }
        self.has_room.get_or_init(|| {
            let each = self.reserve_max.div_ceil(self.shards.len());
            self.shards.iter().for_each(|shard| shard.lock().shrink(each));
        });
        let within =
            |reserved: usize| Some(reserved + bytes).filter(|sum| *sum <= self.reserve_max);
        self.reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }

    /// Releases reserved bytes.
    pub(super) fn release(&self, bytes: usize) {
        let before = self.reserved.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "only what was reserved is released");
    }

    /// Counts a search for a key in the block cached under `key`. Returns true if it is the second
    /// search since the block was cached.
    pub(super) fn is_searched_again(&self, key: CacheKey) -> bool {
        self.shard(key).lock().is_searched_again(key)
    }

    /// Returns the bytes that are cached or reserved.
    pub(crate) fn bytes(&self) -> usize {
        let blocks: usize = self.shards.iter().map(|shard| shard.lock().bytes).sum();
        blocks + self.reserved.load(Ordering::Relaxed)
    }

    fn shard(&self, key: CacheKey) -> &Mutex<Shard> {
        // The shard is selected by the high bits of the hash, because the map uses the low ones.
        let index = (mix(key) >> 48) as usize & (self.shards.len() - 1);
        &self.shards[index]
    }
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockCache({} bytes in {} shards)", self.bytes(), self.shards.len())
    }
}

impl Shard {
    fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: 0, places: HashMap::default(), ring: Vec::new(), hand: 0 }
    }

    fn get(&mut self, key: CacheKey) -> Option<Bytes> {
        let cached = self.ring.get_mut(*self.places.get(&key)?)?;
        cached.used = true;
        Some(cached.contents.clone())
    }

    fn insert(&mut self, key: CacheKey, contents: &Bytes) {
        let cost = contents.len() + ENTRY_BYTES;
        if cost > self.bytes_max || self.places.contains_key(&key) {
            return;
        }
        while self.bytes + cost > self.bytes_max {
            self.evict();
        }
        self.bytes += cost;
        self.places.insert(key, self.ring.len());
        self.ring.push(Cached { key, contents: contents.clone(), used: false, searches: 0 });
        debug_assert!(self.bytes <= self.bytes_max, "the cache stays within its bound");
        debug_assert_eq!(self.places.len(), self.ring.len(), "each cached block has one place");
    }

    fn is_searched_again(&mut self, key: CacheKey) -> bool {
        let place = self.places.get(&key);
        let cached = place.and_then(|place| self.ring.get_mut(*place));
        cached.is_some_and(|cached| {
            cached.searches = (cached.searches + 1).min(SEARCHES_MAX);
            cached.searches == 2
        })
    }

    /// Reduces the shard's limit by `bytes`, and evicts entries as needed.
    fn shrink(&mut self, bytes: usize) {
        self.bytes_max = self.bytes_max.saturating_sub(bytes);
        while self.bytes > self.bytes_max {
            self.evict();
        }
    }

    /// Evicts the first entry that was not used since the hand last passed it. Clears `used` in the
    /// entries that the hand passes.
    fn evict(&mut self) {
        debug_assert!(!self.ring.is_empty(), "what takes room can be evicted");
        loop {
            if self.hand >= self.ring.len() {
                self.hand = 0;
            }
            match self.ring.get_mut(self.hand) {
                None => return,
                Some(cached) if cached.used => cached.used = false,
                Some(_) => return self.remove(self.hand),
            }
            self.hand += 1;
        }
    }

    fn remove(&mut self, place: usize) {
        let gone = self.ring.swap_remove(place);
        self.bytes -= gone.contents.len() + ENTRY_BYTES;
        self.places.remove(&gone.key);
        debug_assert_eq!(self.places.len(), self.ring.len(), "each cached block has one place");
        if let Some(moved) = self.ring.get(place) {
            self.places.insert(moved.key, place);
        }
    }

    fn remove_file(&mut self, file: FileNumber) {
        for place in (0..self.ring.len()).rev() {
            if self.ring[place].key.file == file {
                self.remove(place);
            }
        }
    }
}

/// Hashes a key. A weak hash suffices, because users do not control file numbers and indexes and so
/// cannot cause collisions.
#[inline]
fn mix(key: CacheKey) -> u64 {
    let part = u64::from(key.index) << 8 | u64::from(key.area as u8);
    let mixed = (part ^ key.file.0.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// The hasher of the map, which applies [`mix`] to each part.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, part: u32) {
        self.write_u64(u64::from(part));
    }

    fn write_u64(&mut self, part: u64) {
        self.0 = (self.0.rotate_left(23) ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_isize(&mut self, part: isize) {
        self.write_u64(part as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn key(file: u64, index: u32) -> CacheKey {
        CacheKey { file: FileNumber(file), area: Area::Rows, index }
    }

    fn contents(key: CacheKey, len: usize) -> Bytes {
        Bytes::from(vec![key.index as u8 ^ key.file.0 as u8; len])
    }

    #[test]
    fn trap_31_the_cache_is_bounded_whatever_is_put_into_it() {
        let mut rng = Rng::from_seed(4);
        for bytes_max in [0, 1000, 100_000, 4 << 20] {
            let cache = BlockCache::new(bytes_max);
            for _ in 0..20_000 {
                let key = key(rng.below(10), rng.below(500) as u32);
                if let Some(found) = cache.get(key) {
                    assert!(found.iter().all(|byte| *byte == key.index as u8 ^ key.file.0 as u8));
                }
                cache.insert(key, &contents(key, rng.below(5000) as usize));
                assert!(cache.bytes() <= bytes_max);
            }
            assert!(cache.bytes() <= bytes_max);
        }
    }

    #[test]
    fn reservations_stay_within_the_bound() {
        for bytes_max in [0, 1000, 100_000, 4 << 20] {
            let cache = BlockCache::new(bytes_max);
            for i in 0..1000 {
                cache.insert(key(1, i), &contents(key(1, i), 5000));
            }
            let part = bytes_max / 100;
            let reserved = (0..100).filter(|_| part > 0 && cache.reserve(part)).count();
            assert_eq!(reserved, if part > 0 { 6 } else { 0 });
            assert!(cache.bytes() <= bytes_max, "{} of {bytes_max}", cache.bytes());
            let before = cache.bytes();
            cache.release(reserved * part);
            assert_eq!(cache.bytes(), before - reserved * part);
            assert!(!cache.reserve(bytes_max / 10 + 1));
        }
    }

    #[test]
    fn only_the_second_search_of_a_block_is_reported() {
        let cache = BlockCache::new(1 << 20);
        assert!((0..5).all(|_| !cache.is_searched_again(key(1, 1))));
        cache.insert(key(1, 1), &contents(key(1, 1), 10));
        let answers = [0; 300].map(|_| cache.is_searched_again(key(1, 1)));
        assert!(answers[1] && answers.iter().filter(|again| **again).count() == 1);
    }

    #[test]
    fn blocks_in_use_are_not_evicted() {
        let cache = BlockCache::new(100 << 10);
        let hot = key(1, 0);
        cache.insert(hot, &contents(hot, 1000));
        for i in 1..5000 {
            assert!(cache.get(hot).is_some(), "evicted before {i}");
            cache.insert(key(1, i), &contents(key(1, i), 1000));
        }
    }

    #[test]
    fn removing_a_file_evicts_only_its_blocks() {
        let cache = BlockCache::new(8 << 20);
        for file in 1..4 {
            for index in 0..100 {
                cache.insert(key(file, index), &contents(key(file, index), 500));
            }
        }
        let before = cache.bytes();
        cache.remove_file(FileNumber(2));
        assert_eq!(cache.bytes(), before / 3 * 2);
        for index in 0..100 {
            assert!(cache.get(key(2, index)).is_none());
            assert!(cache.get(key(1, index)).is_some() && cache.get(key(3, index)).is_some());
        }
    }
}

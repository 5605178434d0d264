//! Implements what an application on a key-value store has to do itself, for all engines that need
//! it.
//!
//! Owns: versions, striped locks for reads before writes, the heads of queues (partitions whose
//! first entity is taken again and again), one sync for many threads, splitting a load.
//! Invariants
//! * stripes are locked in ascending order, so that groups cannot deadlock;
//! * no two writes have the same version, in one process or in successive ones.
//!
//! Not here: the encoding of keys and values (`encoding.rs`), the engines.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::encoding::{self, key_bytes, partition_end, partition_prefix, partition_start};
use crate::reading::{Digest, Reading};
use crate::sheet::Sheet;
use crate::store::{Change, Encoding, Found, Version};

/// The number of locks. With this many, threads with different keys rarely share a lock. It is
/// still few enough that the drop of a partition can take all of them.
const STRIPES: usize = 1024;

thread_local! {
    static VALUE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The versions of entities, which replace ETags in stores that have none.
pub struct Versions(AtomicU64);

impl Versions {
    /// Starts with the time in nanoseconds, which is above all versions of earlier processes.
    pub fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
        Self(AtomicU64::new(since.as_nanos() as u64))
    }

    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// Builds values in a thread-local buffer.
pub struct Codec {
    pub encoding: Encoding,
    versions: Versions,
}

impl Codec {
    pub fn new(encoding: Encoding) -> Self {
        assert_ne!(encoding, Encoding::Native, "a key-value store has no rows of its own");
        Self { encoding, versions: Versions::new() }
    }

    /// Encodes `reading` with a new version, and passes the value to `with`.
    pub fn value<R>(&self, reading: &Reading, with: impl FnOnce(&[u8]) -> R) -> R {
        VALUE.with_borrow_mut(|value| {
            self.encoding.encode(reading, self.versions.next(), value);
            with(value)
        })
    }

    /// Encodes `sheet` with a new version, and passes the value to `with`.
    pub fn sheet<R>(&self, sheet: &Sheet, with: impl FnOnce(&[u8]) -> R) -> R {
        VALUE.with_borrow_mut(|value| {
            self.encoding.encode_sheet(sheet, self.versions.next(), value);
            with(value)
        })
    }

    /// Encodes `value` with `change` applied and with a new version, and passes the result to
    /// `with`.
    pub fn merged<R>(&self, value: &[u8], change: Change, with: impl FnOnce(&[u8]) -> R) -> R {
        VALUE.with_borrow_mut(|into| {
            self.encoding.merge(value, change, self.versions.next(), into);
            with(into)
        })
    }

    /// Returns the key and the encoded value of `reading`, with a new version.
    pub fn pair(&self, reading: &Reading) -> (Vec<u8>, Vec<u8>) {
        let mut value = Vec::with_capacity(256);
        self.encoding.encode(reading, self.versions.next(), &mut value);
        (key_bytes(&reading.key), value)
    }
}

/// Locks that are chosen by key. An application holds them to make a read and the following write
/// atomic, without using the store's transactions.
pub struct Stripes(Box<[Mutex<()>]>);

impl Stripes {
    pub fn new() -> Self {
        Self((0..STRIPES).map(|_| Mutex::new(())).collect())
    }

    pub fn one(&self, key: &[u8]) -> MutexGuard<'_, ()> {
        self.at(stripe(key))
    }

    /// Locks the stripes of all `keys`, each once.
    pub fn many(&self, keys: &[Vec<u8>]) -> Vec<MutexGuard<'_, ()>> {
        let mut stripes: Vec<usize> = keys.iter().map(|key| stripe(key)).collect();
        stripes.sort_unstable();
        stripes.dedup();
        stripes.into_iter().map(|stripe| self.at(stripe)).collect()
    }

    pub fn all(&self) -> Vec<MutexGuard<'_, ()>> {
        (0..STRIPES).map(|stripe| self.at(stripe)).collect()
    }

    fn at(&self, stripe: usize) -> MutexGuard<'_, ()> {
        self.0[stripe].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the stripe of a key. The hash covers the whole key, eight bytes at a time, because keys
/// differ in their last bytes.
fn stripe(key: &[u8]) -> usize {
    let mut hash = 0_u64;
    for chunk in key.chunks(8) {
        let mut eight = [0; 8];
        eight[..chunk.len()].copy_from_slice(chunk);
        hash =
            (hash ^ u64::from_le_bytes(eight)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    }
    (hash >> 32) as usize % STRIPES
}

/// The heads of queues. Each queue is a partition, and its head is a lower bound of its keys. A
/// take starts there, and so does not scan the tombstones of earlier takes.
///
/// A take raises the head to the key that it took, but not above a key that was written during the
/// take. A write of a smaller key lowers the head.
pub struct Heads {
    any: AtomicBool,
    heads: Mutex<HashMap<Vec<u8>, Head>>,
    /// One lock per group of partitions, held during a take, so that a partition has one take at a
    /// time. The lock on `heads` is not held during the search.
    turns: Box<[Mutex<()>]>,
}

struct Head {
    first: Vec<u8>,
    /// The smallest key written since the last take began.
    written: Option<Vec<u8>>,
}

impl Heads {
    pub fn new() -> Self {
        Self {
            any: AtomicBool::new(false),
            heads: Mutex::default(),
            turns: (0..STRIPES).map(|_| Mutex::new(())).collect(),
        }
    }

    /// Takes the first entity of a partition. `take` gets the bounds of the search, and returns the
    /// key that it deleted and its value.
    pub fn take<R>(
        &self,
        partition: u32,
        take: impl FnOnce(&[u8], &[u8]) -> Option<(Vec<u8>, R)>,
    ) -> Option<R> {
        let (start, end) = (partition_start(partition), partition_end(partition));
        let turn = &self.turns[partition as usize % STRIPES];
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        // A writer that still sees `false` wrote its key before `any` was set. The search below
        // starts later, so it finds that key.
        self.any.store(true, Ordering::SeqCst);
        let from = {
            let mut heads = self.lock();
            let head = heads
                .entry(start.clone())
                .or_insert_with(|| Head { first: start.clone(), written: None });
            head.written = None;
            head.first.clone()
        };
        let (taken, found) = take(&from, &end)?;
        if let Some(head) = self.lock().get_mut(&start) {
            head.first = head.written.take().filter(|key| *key < taken).unwrap_or(taken);
        }
        Some(found)
    }

    /// Clears all heads. Must be called after many keys were written without calling `written` for
    /// each.
    pub fn forget(&self) {
        self.lock().clear();
    }

    /// Lowers the head of the partition. Must be called after each write whose key may be new.
    pub fn written(&self, key: &[u8]) {
        if !self.any.load(Ordering::SeqCst) {
            return;
        }
        let mut heads = self.lock();
        let Some(head) = heads.get_mut(partition_prefix(key)) else { return };
        if key < &head.first[..] {
            head.first = key.to_vec();
        }
        if head.written.as_ref().is_none_or(|written| key < &written[..]) {
            head.written = Some(key.to_vec());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Head>> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A sync that is shared by all threads that wait for one. It serves engines that would sync their
/// log once per commit, behind a mutex.
pub struct SharedSync {
    written: AtomicU64,
    synced: Mutex<u64>,
}

impl SharedSync {
    pub fn new() -> Self {
        Self { written: AtomicU64::new(0), synced: Mutex::new(0) }
    }

    /// Waits until a sync that began after this call has ended. Must be called after a write to the
    /// log.
    pub fn wait(&self, sync: impl FnOnce()) {
        let ticket = self.written.fetch_add(1, Ordering::SeqCst) + 1;
        let mut synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        if *synced >= ticket {
            return;
        }
        let upto = self.written.load(Ordering::SeqCst);
        sync();
        *synced = upto;
    }
}

/// Returns the version in front of `value`.
pub fn version(value: &[u8]) -> Version {
    Version::Number(encoding::version(value))
}

impl Found {
    pub fn count(&mut self, digest: Digest) {
        self.entities += 1;
        self.digest = self.digest.wrapping_add(digest);
    }
}

/// Returns a bound above all keys in the partition of `key`.
pub fn end_of(key: &[u8]) -> Vec<u8> {
    let mut end = partition_prefix(key).to_vec();
    *end.last_mut().expect("it ends with a zero") = 1;
    end
}

/// Returns the memory available to this process: the memory of the machine, or the limit of the
/// control group if that is lower. It is read once, so that no measured opening includes it.
pub fn available_memory() -> u64 {
    static AVAILABLE: OnceLock<u64> = OnceLock::new();
    *AVAILABLE.get_or_init(read_available_memory)
}

fn read_available_memory() -> u64 {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let machine = read("/proc/meminfo").lines().find_map(|line| {
        let kilobytes = line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?;
        Some(kilobytes.parse::<u64>().ok()? << 10)
    });
    let groups = read("/proc/self/cgroup");
    let limits = groups.lines().filter_map(|line| {
        let limit = match line.split(':').collect::<Vec<_>>()[..] {
            [_, "", path] => read(&format!("/sys/fs/cgroup{path}/memory.max")),
            [_, "memory", path] => {
                read(&format!("/sys/fs/cgroup/memory{path}/memory.limit_in_bytes"))
            }
            _ => return None,
        };
        limit.trim().parse().ok()
    });
    limits.chain(machine).min().unwrap_or(u64::MAX)
}

/// Splits readings into pieces of at most `max` readings, and keeps their order.
pub fn pieces(
    readings: &mut dyn Iterator<Item = Reading>,
    max: usize,
    mut each: impl FnMut(Vec<Reading>),
) {
    loop {
        let piece: Vec<Reading> = readings.take(max).collect();
        if piece.is_empty() {
            return;
        }
        each(piece);
    }
}

/// Sorts pairs by key, and keeps one per key.
pub fn sorted(mut pairs: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<(Vec<u8>, Vec<u8>)> {
    // The sort is stable, so that of two entries with the same key the later one wins.
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    let mut kept: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(pairs.len());
    for pair in pairs {
        match kept.last_mut() {
            Some(last) if last.0 == pair.0 => *last = pair,
            _ => kept.push(pair),
        }
    }
    kept
}

//! What users of key-value stores write themselves, once for all peers.
//!
//! Owns: versions, striped locks for reading before writing, heads of queues, one sync for many waiting threads,
//! and how a load is cut into pieces.
//! Invariants
//! * stripes are taken in ascending order, so that groups never wait for one another in a circle;
//! * no two writes of a process get the same version, nor those of two processes one after the other.
//!
//! Not here: bytes of keys and values (`encoding.rs`), the engines.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::encoding::{self, key_bytes, partition_end, partition_prefix, partition_start};
use crate::reading::{Digest, Reading};
use crate::sheet::Sheet;
use crate::store::{Change, Encoding, Found, Version};

/// So many that threads hardly ever meet by accident, so few that a drop can take them all.
const STRIPES: usize = 1024;

thread_local! {
    static VALUE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The versions of entities: what an ETag is in a store that has none.
pub struct Versions(AtomicU64);

impl Versions {
    /// Begins with the time, in nanoseconds: above all that an earlier process gave.
    pub fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock behind 1970");
        Self(AtomicU64::new(since.as_nanos() as u64))
    }

    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// How values are made, with a buffer of the thread's own.
pub struct Codec {
    pub encoding: Encoding,
    versions: Versions,
}

impl Codec {
    pub fn new(encoding: Encoding) -> Self {
        assert_ne!(encoding, Encoding::Native, "a key-value store has no rows of its own");
        Self { encoding, versions: Versions::new() }
    }

    /// Hands the value of `reading`, with a new version, to `with`.
    pub fn value<R>(&self, reading: &Reading, with: impl FnOnce(&[u8]) -> R) -> R {
        VALUE.with_borrow_mut(|value| {
            self.encoding.encode(reading, self.versions.next(), value);
            with(value)
        })
    }

    /// The same of a sheet.
    pub fn sheet<R>(&self, sheet: &Sheet, with: impl FnOnce(&[u8]) -> R) -> R {
        VALUE.with_borrow_mut(|value| {
            self.encoding.encode_sheet(sheet, self.versions.next(), value);
            with(value)
        })
    }

    /// Hands `value` with one property changed and a new version to `with`.
    pub fn merged<R>(&self, value: &[u8], change: Change, with: impl FnOnce(&[u8]) -> R) -> R {
        VALUE.with_borrow_mut(|into| {
            self.encoding.merge(value, change, self.versions.next(), into);
            with(into)
        })
    }

    /// Key and value of `reading`, with a new version, to be kept.
    pub fn pair(&self, reading: &Reading) -> (Vec<u8>, Vec<u8>) {
        let mut value = Vec::with_capacity(256);
        self.encoding.encode(reading, self.versions.next(), &mut value);
        (key_bytes(&reading.key), value)
    }
}

/// Locks of the application by keys: what makes reading before writing atomic in an LSM without its transactions.
pub struct Stripes(Box<[Mutex<()>]>);

impl Stripes {
    pub fn new() -> Self {
        Self((0..STRIPES).map(|_| Mutex::new(())).collect())
    }

    pub fn one(&self, key: &[u8]) -> MutexGuard<'_, ()> {
        self.at(stripe(key))
    }

    /// Those of all `keys`, each once.
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

/// A multiplication for each eight bytes; keys differ in their last ones.
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

/// Where the queues begin, so that a take does not pass over the tombstones of all that were taken before.
///
/// No key of a partition lies below its head. A head moves up to what was taken, but not above what was written
/// meanwhile, and down when a smaller key is written.
pub struct Heads {
    any: AtomicBool,
    heads: Mutex<HashMap<Vec<u8>, Head>>,
    /// One take of a partition at a time; the lock on the heads is only held for a look.
    turns: Box<[Mutex<()>]>,
}

struct Head {
    first: Vec<u8>,
    /// The smallest key that was written since the last take began.
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

    /// Takes the first of a partition. `take` is given the bounds in which to look, and returns the key that it
    /// deleted and what it found there.
    pub fn take<R>(
        &self,
        partition: u32,
        take: impl FnOnce(&[u8], &[u8]) -> Option<(Vec<u8>, R)>,
    ) -> Option<R> {
        let (start, end) = (partition_start(partition), partition_end(partition));
        let turn = &self.turns[partition as usize % STRIPES];
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever did not see this wrote before the look that follows.
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

    /// To be called after many keys were written.
    pub fn forget(&self) {
        self.lock().clear();
    }

    /// To be called after a key was written that may not have been there.
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

/// One sync for all threads that wait for one: what a log behind a mutex needs so that commits share syncs.
pub struct SharedSync {
    written: AtomicU64,
    synced: Mutex<u64>,
}

impl SharedSync {
    pub fn new() -> Self {
        Self { written: AtomicU64::new(0), synced: Mutex::new(0) }
    }

    /// To be called after a write was handed to the log: returns when a sync that began after it is over.
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

/// The version in front of `value`.
pub fn version(value: &[u8]) -> Version {
    Version::Number(encoding::version(value))
}

impl Found {
    pub fn count(&mut self, digest: Digest) {
        self.entities += 1;
        self.digest = self.digest.wrapping_add(digest);
    }
}

/// The end of the partition that `key` is of.
pub fn end_of(key: &[u8]) -> Vec<u8> {
    let mut end = partition_prefix(key).to_vec();
    *end.last_mut().expect("it ends with a zero") = 1;
    end
}

/// Bytes of memory that this process may use: those of the machine, or the limit of its control group.
pub fn available_memory() -> u64 {
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

/// Pieces of at most `max` readings, in the order given.
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

/// In the order of keys, each once.
pub fn sorted(mut pairs: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<(Vec<u8>, Vec<u8>)> {
    // Stable: of two with the same key, the later one stays.
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

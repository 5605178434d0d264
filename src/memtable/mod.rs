//! The sorted write buffer: entries that are committed, or in the process, and not yet in a file.
//!
//! A hash table serves point reads, because every conditional write reads before it writes. Scans
//! and flushes bear the cost of order: a background step, or the first scan that needs it, sorts
//! entries into runs.
//!
//! Invariants
//! * Seqs never decrease, and a user key has at most one entry per Seq;
//! * an entry is never changed or removed; its bytes do not move until the memtable is dropped;
//! * a reader finds every entry that was inserted before its read, and may find later ones; it
//!   filters by Seq.
//!
//! Locks: one insert at a time (the arena's lock); point reads take no lock; creating an iterator
//! takes the order's.
//!
//! Not here: publication (`lsm::write::commit`), the framing of rows (`format`).

mod arena;
mod iter;
#[cfg(all(test, loom))]
mod models;
mod order;
mod table;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use iter::MemtableIter;

use self::arena::{Arena, Draft, Link, Node};
use self::order::Order;
use self::table::Table;
use crate::format::Kind;
use crate::model::Seq;
use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// A write buffer with one writer and many concurrent readers.
pub(crate) struct Memtable {
    pub(crate) id: u64,
    table: Table,
    order: Order,
    /// The node inserted last.
    newest: Link,
    len: AtomicUsize,
    payload_bytes: AtomicUsize,
    other_bytes: AtomicUsize,
    seq_min: AtomicU64,
    seq_max: AtomicU64,
    arena: Arena,
}

/// An entry of a memtable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) seq: Seq,
    pub(crate) kind: Kind,
    /// The row as it was inserted; empty for a delete.
    pub(crate) row: &'a [u8],
}

/// An entry to be inserted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEntry<'e> {
    /// The hash of `key` with the database's seed.
    pub(crate) hash: u64,
    pub(crate) key: &'e [u8],
    pub(crate) kind: Kind,
    /// The row in two parts, to be concatenated; empty for a delete.
    pub(crate) row: [&'e [u8]; 2],
}

/// Number of entries by which prefetching of table lines precedes inserts: a cache miss takes as
/// long as a few inserts.
const AHEAD: usize = 4;
/// The table of an empty memtable has at most 1 / `TABLE_SHARE` of its size, whatever number of
/// keys is expected.
const TABLE_SHARE: usize = 8;

impl Memtable {
    /// Creates an empty memtable that will be frozen at about `bytes_hint` bytes, with about
    /// `keys_hint` expected keys.
    #[expect(unsafe_code, reason = "the one place where an arena meets its links")]
    pub(crate) fn new(id: u64, bytes_hint: usize, keys_hint: usize) -> Self {
        Self {
            id,
            table: Table::new(keys_hint, bytes_hint / TABLE_SHARE),
            order: Order::new(),
            newest: Link::new(),
            len: AtomicUsize::new(0),
            payload_bytes: AtomicUsize::new(0),
            other_bytes: AtomicUsize::new(0),
            seq_min: AtomicU64::new(0),
            seq_max: AtomicU64::new(0),
            // SAFETY: links and handles exist only in private fields of the memtable (table, order,
            // newest) and in iterators that hold it; all of them are resolved with this arena.
            arena: unsafe { Arena::new(bytes_hint) },
        }
    }

    /// Adds an entry, as [`insert_all`](Self::insert_all) does.
    pub(crate) fn insert(&self, hash: u64, key: &[u8], seq: Seq, kind: Kind, row: &[u8]) {
        self.insert_all(seq, std::iter::once(NewEntry { hash, key, kind, row: [row, &[]] }));
    }

    /// Adds the entries of a commit, which have distinct keys.
    ///
    /// Requires: `seq` is not below any inserted before, and above all Seqs of these keys.
    pub(crate) fn insert_all<'e>(
        &self,
        seq: Seq,
        entries: impl Iterator<Item = NewEntry<'e>> + Clone,
    ) {
        let mut writer = self.arena.lock();
        debug_assert!(seq.ticks() >= self.seq_max.load(Ordering::Relaxed), "Seq went down");
        let mut prev = self.newest.load(&self.arena);
        let is_first = prev.is_none();
        let (mut len, mut payload_bytes) = (0, 0);
        // Keys are scattered in the table, so their lines are prefetched while others are filled.
        let mut ahead = entries.clone();
        ahead.by_ref().take(AHEAD).for_each(|entry| self.table.prefetch(short(entry.hash)));
        for NewEntry { hash, key, kind, row } in entries {
            if let Some(next) = ahead.next() {
                self.table.prefetch(short(next.hash));
            }
            let node = self.table.put(&mut writer, short(hash), key, |writer, older| {
                let follows = older.is_none_or(|older| older.seq() < seq);
                debug_assert!(follows, "two entries of one key and Seq");
                writer.push(&Draft { key, seq, kind, row, prev, older })
            });
            prev = Some(node);
            len += 1;
            payload_bytes += key.len() + row[0].len() + row[1].len();
        }
        let Some(newest) = prev else { return };
        self.newest.store(newest);
        if is_first {
            self.seq_min.store(seq.ticks(), Ordering::Relaxed);
        }
        self.seq_max.store(seq.ticks(), Ordering::Relaxed);
        // Under the lock a load and a store suffice and cost less than an atomic addition.
        self.payload_bytes.store(self.payload_bytes() + payload_bytes, Ordering::Relaxed);
        // Stored last, with Release: a reader that sees the count sees the Seqs.
        self.len.store(self.len.load(Ordering::Relaxed) + len, Ordering::Release);
        debug_assert!(self.keys() <= self.len(), "a key has an entry");
    }

    /// The newest entry of `key`, published or not.
    #[inline]
    pub(crate) fn newest(&self, hash: u64, key: &[u8]) -> Option<Entry<'_>> {
        self.table.find(&self.arena, short(hash), key).map(Entry::of)
    }

    /// The newest entry of `key` that is not newer than `at`.
    #[inline]
    pub(crate) fn get(&self, hash: u64, key: &[u8], at: Seq) -> Option<Entry<'_>> {
        if self.is_empty() {
            return None;
        }
        self.table.find(&self.arena, short(hash), key)?.at(at).map(Entry::of)
    }

    /// Calls `with` with the key of each entry above `at`, newest first, and whether it is a put.
    /// Returns false if there are more than `max` entries; `with` has not seen all of them then.
    pub(crate) fn newer_than<'a>(
        &'a self,
        at: Seq,
        max: usize,
        mut with: impl FnMut(&'a [u8], bool),
    ) -> bool {
        let mut next = self.newest.load(&self.arena);
        for _ in 0..=max {
            let Some(node) = next.filter(|node| node.seq() > at) else { return true };
            with(node.key(), node.kind() == Kind::Put);
            next = node.prev();
        }
        false
    }

    /// Background work: sorts recent inserts if there are many, and merges runs of similar length,
    /// until about `budget` entries were moved. Returns true if any were moved; there may be more
    /// work.
    pub(crate) fn sort_step(&self, budget: usize) -> bool {
        self.order.step(&self.arena, &self.newest, self.len(), budget)
    }

    /// The number of keys.
    pub(crate) fn keys(&self) -> usize {
        self.table.keys()
    }

    /// The number of entries, all versions counted.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory use in bytes: chunks, tables, runs.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.arena.bytes() + self.table.bytes() + self.order.bytes()
    }

    /// Bytes of all keys and rows.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.payload_bytes.load(Ordering::Relaxed)
    }

    /// Records a commit whose log record has `bytes` in addition to its entries. Requires the same
    /// of `seq` as [`insert`](Self::insert).
    pub(crate) fn record_bytes(&self, seq: Seq, bytes: usize) {
        let _writer = self.arena.lock();
        debug_assert!(seq.ticks() >= self.seq_max.load(Ordering::Relaxed), "Seq went down");
        self.seq_max.store(seq.ticks(), Ordering::Relaxed);
        self.other_bytes.store(self.other_bytes() + bytes, Ordering::Relaxed);
    }

    /// Bytes of its log that do not belong to entries.
    pub(crate) fn other_bytes(&self) -> usize {
        self.other_bytes.load(Ordering::Relaxed)
    }

    /// The Seq of the oldest entry. Requires that there is one.
    pub(crate) fn seq_min(&self) -> Seq {
        Seq(self.seq_min.load(Ordering::Relaxed))
    }

    /// The newest Seq in the memtable or in its log; `None` if there is none.
    pub(crate) fn seq_max(&self) -> Option<Seq> {
        let ticks = self.seq_max.load(Ordering::Relaxed);
        (ticks > 0).then_some(Seq(ticks))
    }
}

impl<'a> Entry<'a> {
    #[inline]
    fn of(node: Node<'a>) -> Self {
        Self { key: node.key(), seq: node.seq(), kind: node.kind(), row: node.row() }
    }
}

/// The half of the hash that the table uses.
#[inline]
fn short(hash: u64) -> u32 {
    (hash >> 32) as u32
}

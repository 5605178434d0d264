//! Implements the memtable, which holds the entries of commits that are not in a table file yet,
//! published or not. A hash table serves point reads, because every conditional write reads first.
//! A background step, or the first scan that needs it, sorts entries into runs.
//!
//! Invariants
//! * Seqs never decrease, and a user key has at most one entry per Seq;
//! * an entry is never changed or removed, and its bytes do not move until the memtable is dropped;
//! * a read finds every entry inserted before it, and maybe later ones, which it filters by Seq.
//!
//! Locks: `Arena` for an insert, `Order` for creating an iterator. A point read takes no lock.

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
use crate::format::span::Span;
use crate::model::Seq;
use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// The write buffer, with one writer at a time and many concurrent readers.
pub(crate) struct Memtable {
    pub(crate) id: u64,
    table: Table,
    order: Order,
    /// The node that was inserted last.
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
    /// The row, as two parts to be concatenated; empty for a delete.
    pub(crate) row: [&'e [u8]; 2],
}

/// Table lines are prefetched this many entries ahead of inserts: a cache miss takes as long as a
/// few inserts.
const AHEAD: usize = 4;
/// The table of an empty memtable uses at most 1 / `TABLE_SHARE` of the memtable's size, whatever
/// number of keys is expected.
const TABLE_SHARE: usize = 8;

impl Memtable {
    /// Creates an empty memtable that will be frozen at about `bytes_hint` bytes and is expected to
    /// hold about `keys_hint` keys.
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

    /// Adds the entries of a commit, which have distinct keys. `seq` must not be below any Seq
    /// inserted before, and must be above all Seqs of these keys.
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
        // Keys are scattered in the table, so prefetch lines of later entries.
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
        // Only the lock holder writes this, so a load and a store suffice and cost less than an
        // atomic addition.
        self.payload_bytes.store(self.payload_bytes() + payload_bytes, Ordering::Relaxed);
        // Stored last, with Release, so that a reader that sees the count also sees the Seqs.
        self.len.store(self.len.load(Ordering::Relaxed) + len, Ordering::Release);
        debug_assert!(self.keys() <= self.len(), "a key has an entry");
    }

    /// Returns the newest entry of `key`, published or not.
    #[inline]
    pub(crate) fn newest(&self, hash: u64, key: &[u8]) -> Option<Entry<'_>> {
        self.table.find(&self.arena, short(hash), key).map(Entry::of)
    }

    /// Returns the newest entry of `key` that is not newer than `at`.
    #[inline]
    pub(crate) fn get(&self, hash: u64, key: &[u8], at: Seq) -> Option<Entry<'_>> {
        if self.is_empty() {
            return None;
        }
        self.table.find(&self.arena, short(hash), key)?.at(at).map(Entry::of)
    }

    /// Calls `with` for each entry with a Seq above `at`, newest first, with its key and whether it
    /// is a put. Returns false if there are more than `max` such entries; `with` has then not been
    /// called for all.
    pub(crate) fn newer_than<'a>(
        &'a self,
        at: Seq,
        max: usize,
        mut with: impl FnMut(&'a [u8], bool),
    ) -> bool {
        let mut nodes = self.nodes().take_while(|node| node.seq() > at);
        nodes.by_ref().take(max).for_each(|node| with(node.key(), node.kind() == Kind::Put));
        nodes.next().is_none()
    }

    /// Returns the entries, newest first.
    fn nodes(&self) -> impl Iterator<Item = Node<'_>> {
        std::iter::successors(self.newest.load(&self.arena), |node| node.prev())
    }

    /// Returns a memtable with the entries in `span`. This sorts nothing, unlike an iterator.
    pub(crate) fn part(&self, span: &Span, hash: impl Fn(&[u8]) -> u64) -> Self {
        let part = Self::new(self.id, 0, 0);
        let nodes: Vec<_> = self.nodes().filter(|node| span.contains(node.key())).collect();
        for node in nodes.into_iter().rev() {
            part.insert(hash(node.key()), node.key(), node.seq(), node.kind(), node.row());
        }
        part
    }

    /// Sorts recent inserts if there are many, and merges runs of similar length, until about
    /// `budget` entries were moved. For background work. Returns true if any were moved; more work
    /// may be left.
    pub(crate) fn sort_step(&self, budget: usize) -> bool {
        self.order.step(&self.arena, &self.newest, self.len(), budget)
    }

    /// Returns the number of keys.
    pub(crate) fn keys(&self) -> usize {
        self.table.keys()
    }

    /// Returns the number of entries, counting all versions of keys.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory used by chunks, tables and runs, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.arena.bytes() + self.table.bytes() + self.order.bytes()
    }

    /// Returns the total bytes of all keys and rows.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.payload_bytes.load(Ordering::Relaxed)
    }

    /// Counts `bytes` bytes of the log record of commit `seq` that belong to no entry. The
    /// requirements for `seq` are those of [`insert`](Self::insert).
    pub(crate) fn record_bytes(&self, seq: Seq, bytes: usize) {
        let _writer = self.arena.lock();
        debug_assert!(seq.ticks() >= self.seq_max.load(Ordering::Relaxed), "Seq went down");
        self.seq_max.store(seq.ticks(), Ordering::Relaxed);
        self.other_bytes.store(self.other_bytes() + bytes, Ordering::Relaxed);
    }

    /// Returns the bytes of the memtable's log records that belong to no entry.
    pub(crate) fn other_bytes(&self) -> usize {
        self.other_bytes.load(Ordering::Relaxed)
    }

    /// Returns the Seq of the oldest entry. Requires that an entry exists.
    pub(crate) fn seq_min(&self) -> Seq {
        Seq(self.seq_min.load(Ordering::Relaxed))
    }

    /// Returns the newest Seq in the memtable or its log, if there is any.
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

/// Returns the half of the hash that the table uses.
#[inline]
fn short(hash: u64) -> u32 {
    (hash >> 32) as u32
}

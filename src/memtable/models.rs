//! Loom models of the publication of inserted entries. They check which entries concurrent readers
//! find, under all interleavings of the threads.
//!
//! Loom also checks the nodes: access to an incomplete node fails the model. Both the writer and
//! the reader are spawned threads, because loom preempts the main thread less thoroughly.

use std::sync::Arc;

use loom::thread;

use super::*;
use crate::sync::check_model;

/// A memtable, and the newest Seq published to readers.
struct Shared {
    memtable: Arc<Memtable>,
    published: AtomicU64,
}

impl Shared {
    fn put(&self, n: u64) {
        self.memtable.insert(hash_of(n), &n.to_le_bytes(), Seq(n), Kind::Put, b"row");
    }

    fn publish(&self, n: u64) {
        self.put(n);
        self.published.store(n, Ordering::Release);
    }

    /// Checks point reads: published keys are found, and the next key is absent or complete.
    fn read(&self) {
        let at = self.published.load(Ordering::Acquire);
        for n in [1, at] {
            let entry = self.memtable.get(hash_of(n), &n.to_le_bytes(), Seq(at));
            let entry = entry.expect("published");
            assert_eq!((entry.seq, entry.row), (Seq(n), &b"row"[..]));
        }
        let next = at + 1;
        if let Some(entry) = self.memtable.newest(hash_of(next), &next.to_le_bytes()) {
            assert_eq!((entry.seq, entry.row), (Seq(next), &b"row"[..]));
        }
    }

    fn scan(&self) {
        let at = self.published.load(Ordering::Acquire);
        let mut iter = self.memtable.iter();
        iter.seek(b"");
        let mut count = 0;
        while iter.valid() {
            assert_eq!(iter.entry().row, b"row");
            count += 1;
            iter.next();
        }
        assert!(count >= at, "{count} of {at}");
    }
}

/// Returns one of only three hashes, so that lines of the hash table overflow.
fn hash_of(n: u64) -> u64 {
    (n % 3) << 32
}

/// Runs `threads` concurrently on a memtable with `before` entries, in all interleavings.
fn check(before: u64, threads: &'static [fn(&Shared)]) {
    check_model(move || {
        let memtable = Arc::new(Memtable::new(1, 1 << 20, 0));
        let shared = Arc::new(Shared { memtable, published: AtomicU64::new(before) });
        (1..=before).for_each(|n| shared.put(n));
        let run = |body: &fn(&Shared)| {
            let (body, shared) = (*body, Arc::clone(&shared));
            thread::spawn(move || body(&shared))
        };
        let threads: Vec<_> = threads.iter().map(run).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        shared.scan();
    });
}

/// During inserts, a reader finds every published key with a complete entry. The next key is absent
/// or has a complete entry.
#[test]
fn loom_point_reads_during_inserts() {
    check(1, &[|s| (2..=3).for_each(|n| s.publish(n)), Shared::read]);
}

/// No key is missed while keys are moved to a larger table.
#[test]
fn loom_points_while_the_table_doubles() {
    // The fifth key creates the second table and moves the only line of the first.
    check(4, &[|s| s.publish(5), Shared::read]);
}

/// While a second version of a key is inserted, readers at a Seq below it still find the first
/// version.
#[test]
fn loom_point_reads_while_a_second_version_is_inserted() {
    let write: fn(&Shared) =
        |s| s.memtable.insert(hash_of(1), &1_u64.to_le_bytes(), Seq(2), Kind::Put, b"new");
    let read: fn(&Shared) = |s| {
        let key = 1_u64.to_le_bytes();
        let newest = s.memtable.newest(hash_of(1), &key).expect("published");
        let expected = if newest.seq == Seq(1) { b"row" } else { b"new" };
        assert_eq!(newest.row, expected);
        let first = s.memtable.get(hash_of(1), &key, Seq(1)).expect("published");
        assert_eq!((first.seq, first.row), (Seq(1), &b"row"[..]));
    };
    check_model(move || {
        let memtable = Arc::new(Memtable::new(1, 1 << 20, 0));
        let shared = Arc::new(Shared { memtable, published: AtomicU64::new(1) });
        shared.put(1);
        let threads = [write, read].map(|body| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || body(&shared))
        });
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}

/// A scan sees every published key with a complete entry, even if two scans sort the newest nodes
/// at the same time.
#[test]
fn loom_scans_during_an_insert() {
    check(1, &[|s| s.publish(2), Shared::scan, Shared::scan]);
}

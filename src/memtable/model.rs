//! A model of publication: what a reader finds in every order of the threads' steps.
//!
//! loom also watches the nodes themselves: one that is looked at before it is complete fails the model.

use loom::thread;

use super::*;

fn put(memtable: &Memtable, n: u64) {
    memtable.insert(hash_of(n), &n.to_le_bytes(), Seq(n), Kind::Put, b"row");
}

/// Few hashes, so that lines overflow.
fn hash_of(n: u64) -> u64 {
    (n % 3) << 32
}

fn check(before: u64, writes: impl Fn(&Memtable, &AtomicU64) + Send + Sync + Copy + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let memtable = Arc::new(Memtable::new(1, 1 << 20));
        let published = Arc::new(AtomicU64::new(before));
        (1..=before).for_each(|n| put(&memtable, n));
        let writer = {
            let (memtable, published) = (Arc::clone(&memtable), Arc::clone(&published));
            thread::spawn(move || writes(&memtable, &published))
        };
        let at = published.load(Ordering::Acquire);
        for n in [1, at] {
            let entry = memtable.get(hash_of(n), &n.to_le_bytes(), Seq(at)).expect("published");
            assert_eq!((entry.seq, entry.row), (Seq(n), &b"row"[..]));
        }
        // What is not published may be found or not, but not half.
        let next = at + 1;
        if let Some(entry) = memtable.newest(hash_of(next), &next.to_le_bytes()) {
            assert_eq!((entry.seq, entry.row), (Seq(next), &b"row"[..]));
        }
        writer.join().expect("no panic");
    });
}

#[test]
fn a_point_read_beside_inserts() {
    check(1, |memtable, published| {
        for n in 2..=3 {
            put(memtable, n);
            published.store(n, Ordering::Release);
        }
    });
}

#[test]
fn a_point_read_while_the_table_doubles() {
    // The fifth key fills the first table; the sixth finishes the move.
    check(4, |memtable, published| {
        for n in 5..=6 {
            put(memtable, n);
            published.store(n, Ordering::Release);
        }
    });
}

#[test]
fn a_scan_beside_an_insert_and_a_scan() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let memtable = Arc::new(Memtable::new(1, 1 << 20));
        let published = Arc::new(AtomicU64::new(1));
        put(&memtable, 1);
        let count = |memtable: &Arc<Memtable>| {
            let mut iter = memtable.iter();
            iter.seek(b"");
            let mut count = 0;
            while iter.valid() {
                assert_eq!(iter.row(), b"row");
                count += 1;
                iter.next();
            }
            count
        };
        let writer = {
            let (memtable, published) = (Arc::clone(&memtable), Arc::clone(&published));
            thread::spawn(move || {
                put(&memtable, 2);
                published.store(2, Ordering::Release);
            })
        };
        let scan = {
            let memtable = Arc::clone(&memtable);
            thread::spawn(move || assert!((1..=2).contains(&count(&memtable))))
        };
        let at = published.load(Ordering::Acquire);
        assert!((at..=2).contains(&count(&memtable)));
        writer.join().expect("no panic");
        scan.join().expect("no panic");
        assert_eq!(count(&memtable), 2);
    });
}

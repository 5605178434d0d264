//! Compares the memtable with a `BTreeMap`, and tests concurrent readers and a writer.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::codec::{HashSeed, hash};
use crate::rng::Rng;

/// The expected entries of the memtable, in the memtable's order.
type Model = BTreeMap<(Vec<u8>, Reverse<Seq>), (Kind, Vec<u8>)>;

fn hash_of(key: &[u8]) -> u64 {
    hash(HashSeed(7), key)
}

fn put(memtable: &Memtable, key: &[u8], seq: u64, row: &[u8]) {
    memtable.insert(hash_of(key), key, Seq(seq), Kind::Put, row);
}

/// Returns all entries, from a new iterator.
fn all(memtable: &Arc<Memtable>) -> Model {
    let mut iter = memtable.iter();
    let mut entries = Model::new();
    let mut last = None;
    iter.seek(b"");
    while iter.valid() {
        let at = (iter.key().to_vec(), Reverse(iter.entry().seq));
        assert!(last.is_none_or(|last| last < at), "out of order at {at:?}");
        last = Some(at.clone());
        entries.insert(at, (iter.entry().kind, iter.entry().row.to_vec()));
        iter.next();
    }
    entries
}

#[test]
fn an_empty_memtable() {
    let memtable = Arc::new(Memtable::new(3, 64 << 20, 0));
    assert_eq!((memtable.id, memtable.len(), memtable.seq_max()), (3, 0, None));
    assert!(memtable.bytes() < 64 << 10);
    assert_eq!(memtable.newest(hash_of(b"a"), b"a"), None);
    assert!(all(&memtable).is_empty());
    assert!(!memtable.sort_step(1));
}

#[test]
fn an_iterator_tells_whether_a_key_has_more_versions() {
    let memtable = Arc::new(Memtable::new(1, 1 << 20, 0));
    for (seq, key) in [b"a", b"b", b"b", b"b", b"c"].into_iter().enumerate() {
        put(&memtable, key, seq as u64 + 1, b"row");
    }
    while memtable.sort_step(100) {}
    let mut iter = memtable.iter();
    iter.seek(b"");
    for (key, more) in [(b"a", false), (b"b", true), (b"b", true), (b"b", false), (b"c", false)] {
        assert_eq!((iter.key(), iter.has_more_versions()), (&key[..], more));
        iter.next();
    }
}

#[test]
fn versions_of_a_key() {
    let memtable = Memtable::new(1, 1 << 20, 0);
    let key = b"k";
    for seq in (10..=10_000).step_by(10) {
        put(&memtable, key, seq, &seq.to_le_bytes());
    }
    for at in [9, 10, 11, 19, 20, 777, 5_000, 9_999, 10_000, 20_000] {
        let found = memtable.get(hash_of(key), key, Seq(at)).map(|entry| entry.seq.ticks());
        let expected = at.min(10_000) / 10 * 10;
        assert_eq!(found, (expected > 0).then_some(expected), "at {at}");
    }
    assert_eq!(memtable.newest(hash_of(key), key).unwrap().row, 10_000_u64.to_le_bytes());
    assert_eq!(memtable.seq_max(), Some(Seq(10_000)));
}

/// A memtable, and a model with the same contents.
struct Pair {
    memtable: Arc<Memtable>,
    model: Model,
    seq: u64,
}

impl Pair {
    fn new() -> Self {
        let memtable = Arc::new(Memtable::new(1, 4 << 20, 0));
        Self { memtable, model: Model::new(), seq: 1_000 }
    }

    /// Inserts at the current Seq. Returns false if the key already has an entry at that Seq.
    fn insert(&mut self, key: &[u8], kind: Kind, row: &[u8]) -> bool {
        let at = (key.to_vec(), Reverse(Seq(self.seq)));
        if self.model.contains_key(&at) {
            return false;
        }
        self.memtable.insert(hash_of(key), key, Seq(self.seq), kind, row);
        self.model.insert(at, (kind, row.to_vec()));
        true
    }

    fn put(&mut self, key: &[u8]) {
        self.seq += 1;
        let row = self.seq.to_le_bytes();
        self.insert(key, Kind::Put, &row);
    }

    fn check_get(&self, key: &[u8], at: Seq) {
        let expected = self.model.range((key.to_vec(), Reverse(at))..).next();
        let expected = expected.filter(|((found, _), _)| found == key);
        let found = self.memtable.get(hash_of(key), key, at);
        let found = found.map(|e| ((e.key.to_vec(), Reverse(e.seq)), (e.kind, e.row.to_vec())));
        assert_eq!(found.as_ref().map(|(k, v)| (k, v)), expected, "get {key:?} at {at}");
    }

    /// Checks a short scan from (`key`, `at`).
    fn check_seek(&self, iter: &mut MemtableIter, key: &[u8], at: Seq) {
        iter.seek_version(key, at);
        for ((key, Reverse(seq)), (kind, row)) in
            self.model.range((key.to_vec(), Reverse(at))..).take(5)
        {
            assert!(iter.valid(), "ended before {key:?}");
            let expected = Entry { key, seq: *seq, kind: *kind, row };
            assert_eq!(iter.entry(), expected);
            iter.next();
        }
    }

    fn check_all(&self) {
        assert_eq!(all(&self.memtable), self.model);
        assert_eq!(self.memtable.len(), self.model.len());
        let payload: usize = self.model.iter().map(|((k, _), (_, row))| k.len() + row.len()).sum();
        assert_eq!(self.memtable.payload_bytes(), payload);
    }
}

/// Returns a random key. Most are short and similar, so that keys repeat and share prefixes.
fn random_key(rng: &mut Rng) -> Vec<u8> {
    let mut key = match rng.below(4) {
        0 => Vec::new(),
        1 => b"partition\0".to_vec(),
        2 => vec![b'p'; rng.below(20) as usize],
        _ => vec![0; rng.below(12) as usize],
    };
    for _ in 0..rng.below(4) {
        key.push(*rng.pick(b"\0\x01ab\xff"));
    }
    if rng.chance(1, 50) {
        key.resize(6_000 + rng.below(200) as usize, b'k');
    }
    key
}

fn random_program(seed: u64) {
    let mut rng = Rng::from_seed(seed);
    let mut pair = Pair::new();
    let mut iter = pair.memtable.iter();
    for _ in 0..rng.below(4_000) {
        match rng.below(200) {
            0 => pair.check_all(),
            1 => drop(pair.memtable.sort_step(rng.below(5_000) as usize)),
            2 => iter = pair.memtable.iter(),
            3..30 => {
                let at = Seq(1_000 + rng.below(pair.seq - 995));
                pair.check_get(&random_key(&mut rng), at);
            }
            30..40 => {
                let (key, at) = (random_key(&mut rng), Seq(1_000 + rng.below(pair.seq - 995)));
                pair.check_seek(&mut pair.memtable.iter(), &key, at);
                iter.seek(&key);
                assert!(!iter.valid() || *iter.key() >= *key);
            }
            _ => {
                pair.seq += rng.below(2);
                let row = vec![b'r'; rng.below(300) as usize];
                let (kind, row) =
                    if rng.chance(1, 5) { (Kind::Delete, &b""[..]) } else { (Kind::Put, &*row) };
                pair.insert(&random_key(&mut rng), kind, row);
            }
        }
    }
    pair.check_all();
}

#[test]
fn random_programs() {
    for seed in 0..60 {
        println!("seed {seed}");
        random_program(seed);
    }
}

/// Inserts `key(n)` for all numbers `n` below `count`, in random order. Between inserts, calls
/// `sort_step` and checks short scans at random.
#[track_caller]
fn check_keys(count: u64, key: impl Fn(u64) -> Vec<u8>) {
    let mut rng = Rng::from_seed(count);
    let mut pair = Pair::new();
    let mut order: Vec<u64> = (0..count).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, rng.below(at as u64 + 1) as usize);
    }
    for number in order {
        pair.put(&key(number));
        if rng.chance(1, 3_000) {
            pair.memtable.sort_step(rng.below(20_000) as usize);
        }
        if rng.chance(1, 3_000) {
            pair.check_seek(&mut pair.memtable.iter(), &key(rng.below(count)), Seq::MAX);
        }
    }
    pair.check_all();
    while pair.memtable.sort_step(1) {}
    pair.check_all();
    for number in 0..count {
        pair.check_get(&key(number), Seq::MAX);
    }
}

#[test]
fn trap_42_zero_padded_keys() {
    check_keys(30_000, |n| format!("devices\0{n:020}").into_bytes());
}

#[test]
fn trap_42_prefixes_of_a_kilobyte() {
    let long = "p".repeat(1_000);
    check_keys(6_000, |n| format!("{long}{:04}\0{long}{n:06}", n % 7).into_bytes());
}

#[test]
fn trap_42_every_key_a_prefix_of_the_next() {
    check_keys(600, |n| vec![b'a'; n as usize * 5]);
    check_keys(600, |n| vec![0; n as usize]);
}

#[test]
fn trap_42_one_outlier_makes_key_heads_useless() {
    check_keys(12_000, |n| match n {
        0 => Vec::new(),
        1 => vec![0xff; 9],
        _ => format!("zone-{}\0{:016}", n % 3, n).into_bytes(),
    });
}

#[test]
fn trap_42_versions_of_one_key() {
    check_keys(10_000, |n| if n % 3 == 0 { n.to_le_bytes().to_vec() } else { b"counter".to_vec() });
}

#[test]
fn trap_42_equal_hashes() {
    let memtable = Memtable::new(1, 1 << 20, 0);
    for number in 0_u64..2_000 {
        memtable.insert(5 << 32, &number.to_le_bytes(), Seq(number + 1), Kind::Put, b"");
    }
    for number in 0_u64..2_000 {
        let found = memtable.newest(5 << 32, &number.to_le_bytes());
        assert_eq!(found.unwrap().seq, Seq(number + 1));
    }
    assert_eq!(memtable.newest(5 << 32, b"none"), None);
}

#[test]
fn rows_larger_than_a_chunk() {
    let mut pair = Pair::new();
    let large = vec![7; 2 << 20];
    for number in 0..6_u8 {
        pair.seq += 1;
        let row = if number % 2 == 0 { &large[..] } else { &b"small"[..] };
        pair.insert(&[number], Kind::Put, row);
    }
    pair.check_all();
    assert!(pair.memtable.bytes() < 3 * large.len() + (256 << 10));
}

#[test]
fn the_rows_of_a_group_share_its_seq() {
    let mut pair = Pair::new();
    for key in [&b"a\0"[..], b"a\0\0", b"a", b""] {
        assert!(pair.insert(key, Kind::Put, b"row"));
    }
    pair.check_all();
    assert_eq!(pair.memtable.seq_max(), Some(Seq(pair.seq)));
}

#[test]
fn an_iterator_returns_only_the_entries_of_its_creation() {
    let mut pair = Pair::new();
    (0..5_000_u32).for_each(|n| pair.put(&n.to_le_bytes()));
    let mut iter = pair.memtable.iter();
    (5_000..20_000_u32).for_each(|n| pair.put(&n.to_le_bytes()));
    while pair.memtable.sort_step(usize::MAX) {}
    iter.seek(b"");
    let mut seen = 0;
    while iter.valid() {
        assert!(iter.entry().seq <= Seq(6_000));
        seen += 1;
        iter.next();
    }
    assert_eq!(seen, 5_000);
}

#[test]
fn steps_keep_the_runs_few() {
    let mut pair = Pair::new();
    let mut rng = Rng::from_seed(1);
    for number in 0..100_000 {
        pair.put(&rng.next_u64().to_le_bytes());
        if number % 1_000 == 0 {
            pair.memtable.sort_step(usize::MAX);
        }
    }
    assert!(pair.memtable.order.runs(&pair.memtable.arena, &pair.memtable.newest).len() <= 8);
    pair.check_all();
}

#[test]
fn scans_between_inserts_keep_the_runs_few() {
    let mut pair = Pair::new();
    let mut rng = Rng::from_seed(2);
    for _ in 0..20_000 {
        pair.put(&rng.next_u64().to_le_bytes());
        let runs = pair.memtable.order.runs(&pair.memtable.arena, &pair.memtable.newest);
        assert!(runs.len() <= order::RUNS_MAX);
    }
    pair.check_all();
}

#[test]
fn sorting_memory_is_released_with_the_runs() {
    let mut pair = Pair::new();
    (0..20_000_u32).for_each(|n| pair.put(&n.to_le_bytes()));
    let unsorted = pair.memtable.bytes();
    let iter = pair.memtable.iter();
    let run_bytes = 20_000 * size_of::<order::Item>();
    assert_eq!(pair.memtable.bytes(), unsorted + run_bytes);
    (20_000..39_000_u32).for_each(|n| pair.put(&n.to_le_bytes()));
    let before = pair.memtable.order.bytes();
    while pair.memtable.sort_step(usize::MAX) {}
    assert_eq!(pair.memtable.order.bytes(), before + 39_000 * size_of::<order::Item>());
    drop(iter);
    assert_eq!(pair.memtable.order.bytes(), 39_000 * size_of::<order::Item>());
}

/// Point reads and scans see every published insert, while tables double, runs are sorted and keys
/// are overwritten.
#[test]
fn readers_see_a_whole_prefix_of_the_inserts() {
    const INSERTS: u64 = 60_000;
    const KEYS: u64 = 20_000;
    let key = |n: u64| format!("key-{:08}", n % KEYS * 7_919 % KEYS).into_bytes();
    let memtable = Arc::new(Memtable::new(1, 16 << 20, 0));
    let published = AtomicU64::new(0);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for n in 1..=INSERTS {
                put(&memtable, &key(n), n, &n.to_le_bytes());
                published.store(n, Ordering::Release);
            }
        });
        threads.spawn(|| {
            while published.load(Ordering::Acquire) < INSERTS {
                memtable.sort_step(10_000);
            }
        });
        for seed in 0..2 {
            let (memtable, published, key) = (&memtable, &published, &key);
            threads.spawn(move || {
                let mut rng = Rng::from_seed(seed);
                loop {
                    let at = published.load(Ordering::Acquire);
                    if at > 0 {
                        (0..50).for_each(|_| check_point(memtable, key, rng.below(at) + 1, at));
                        check_scan(memtable, rng.chance(1, 20), at);
                    }
                    if at == INSERTS {
                        return;
                    }
                }
            });
        }
    });

    fn check_point(memtable: &Memtable, key: &impl Fn(u64) -> Vec<u8>, n: u64, at: u64) {
        let key = key(n);
        let newest = n + (at - n) / KEYS * KEYS;
        let found = memtable.get(hash_of(&key), &key, Seq(at)).expect("was published");
        assert_eq!((found.seq, found.row), (Seq(newest), &newest.to_le_bytes()[..]));
        let found = memtable.get(hash_of(&key), &key, Seq(n)).expect("was published");
        assert_eq!((found.key, found.seq), (&*key, Seq(n)));
    }

    fn check_scan(memtable: &Arc<Memtable>, whole: bool, at: u64) {
        let mut iter = memtable.iter();
        iter.seek(b"");
        let (mut seen, mut last) = (0, Vec::new());
        for _ in 0..if whole { usize::MAX } else { 100 } {
            if !iter.valid() {
                break;
            }
            assert!(*last <= *iter.key());
            last = iter.key().to_vec();
            seen += u64::from(iter.entry().seq <= Seq(at));
            iter.next();
        }
        assert!(!whole || seen == at, "{seen} of {at}");
    }
}

#[test]
fn a_table_sized_for_its_keys_takes_less_memory_with_equal_results() {
    let (bytes, keys) = (16 << 20, 30_000);
    let (grown, made) = (Memtable::new(1, bytes, 0), Memtable::new(2, bytes, keys));
    assert!(made.bytes() <= bytes / 7);
    for i in 0..keys as u64 {
        for memtable in [&grown, &made] {
            put(memtable, format!("key-{i}").as_bytes(), i + 1, b"row");
        }
    }
    assert_eq!((grown.keys(), made.keys()), (keys, keys));
    assert!(made.bytes() + (1 << 18) < grown.bytes(), "{} {}", made.bytes(), grown.bytes());
    for i in 0..keys as u64 {
        let key = format!("key-{i}").into_bytes();
        let found = [&grown, &made].map(|it| it.newest(hash_of(&key), &key).map(|it| it.seq));
        assert_eq!(found, [Some(Seq(i + 1)); 2]);
    }
    // The initial table takes at most a seventh of the memtable, even if very many keys are
    // expected.
    assert!(Memtable::new(3, 1 << 20, usize::MAX).bytes() <= (1 << 20) / 7);
}

/// Inserts rows given as two parts, many keys per commit and the same keys in several commits.
/// After each commit, its keys must be found with the whole row.
#[test]
fn the_entries_of_a_commit_are_found_whole() {
    let memtable = Arc::new(Memtable::new(1, 4 << 20, 0));
    let keys: Vec<[u8; 2]> = (0..300_u16).map(|n| n.to_le_bytes()).collect();
    for seq in 1..=20 {
        let row = [&b"he"[..], &b"ad, body"[..]];
        let some = keys.iter().skip(seq as usize % 3).step_by(1 + seq as usize % 4);
        memtable.insert_all(
            Seq(seq),
            some.map(|key| NewEntry { hash: hash_of(key), key, kind: Kind::Put, row }),
        );
        let some = keys.iter().skip(seq as usize % 3).step_by(1 + seq as usize % 4);
        for key in some {
            let found = memtable.newest(hash_of(key), key).unwrap();
            assert_eq!((found.seq, found.row), (Seq(seq), &b"head, body"[..]));
        }
        assert_eq!(memtable.seq_max(), Some(Seq(seq)));
    }
    let mut iter = memtable.iter();
    iter.seek(b"");
    let mut count = 0;
    while iter.valid() {
        count += 1;
        iter.next();
    }
    assert_eq!((count, memtable.keys(), memtable.seq_min()), (memtable.len(), 300, Seq(1)));
    memtable.insert_all(Seq(99), std::iter::empty());
    assert_eq!((memtable.len(), memtable.payload_bytes()), (count, count * 12));
}

#[test]
fn a_part_of_a_memtable_has_the_entries_of_the_span_in_their_order() {
    let memtable = Arc::new(Memtable::new(1, 1 << 20, 0));
    for (seq, key) in [b"a", b"b", b"c", b"b", b"d", b"c"].into_iter().enumerate() {
        put(&memtable, key, seq as u64 + 1, key);
    }
    memtable.insert(hash_of(b"c"), b"c", Seq(7), Kind::Delete, b"");
    let part = Arc::new(memtable.part(&Span::new(b"b", Some(b"d")), hash_of));
    let mut expected = all(&memtable);
    expected.retain(|(key, _), _| matches!(&key[..], b"b" | b"c"));
    assert_eq!(all(&part), expected);
    assert_eq!(part.get(hash_of(b"b"), b"b", Seq(3)).map(|entry| entry.seq), Some(Seq(2)));
    assert_eq!(part.newest(hash_of(b"c"), b"c").map(|entry| entry.kind), Some(Kind::Delete));
    assert_eq!(part.newest(hash_of(b"a"), b"a"), None);
}

#[test]
fn an_entry_takes_little_memory_beside_its_bytes() {
    let (limit, rows) = (8 << 20, 50_000);
    let memtable = Memtable::new(1, limit, rows);
    for n in 0..rows as u64 {
        put(&memtable, format!("devices\0{n:08}").as_bytes(), n + 1, &[7; 45]);
    }
    // Three of the bytes fill up a row of 61 bytes.
    let (taken, payload) = (memtable.arena.bytes(), memtable.payload_bytes());
    assert!(taken <= payload + 23 * rows + (128 << 10), "{} a row", (taken - payload) / rows);
}

#[test]
fn entries_are_linked_across_chunks_newest_first() {
    let memtable = Memtable::new(1, 8 << 20, 0);
    let len = |n: u64| [3, 40, 5_000, 70_000, 300_000, 0][n as usize % 6];
    let key = |n: u64| format!("{}", n % 40).into_bytes();
    (1..300).for_each(|n| put(&memtable, &key(n), n, &vec![n as u8; len(n)]));
    let mut newest_first = (1..300).rev();
    for node in memtable.nodes() {
        let n = newest_first.next().expect("no more entries than were inserted");
        assert_eq!((node.seq(), node.key()), (Seq(n), &key(n)[..]));
        assert_eq!(node.row(), vec![n as u8; len(n)]);
    }
    assert_eq!(newest_first.next(), None);
}

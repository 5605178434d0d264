//! Implements `Store` with fjall. [`ABOUT`] describes its configuration in reports.
//!
//! Invariant: a commit with `Durability::Sync` syncs the journal; one with `Durability::Os` only
//! writes to it.
//!
//! Not here: the encoding of keys and values (`encoding.rs`), locks and versions (`shared.rs`).

use std::ops::Range;
use std::time::{Duration, Instant};

use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
    HashRatioPolicy, PartitioningPolicy, PinningPolicy,
};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::About;
use super::shared::{Codec, Heads, SharedSync, Stripes, end_of, pieces, sorted, version};
use crate::encoding::{key_bytes, partition_end, partition_start};
use crate::reading::{Digest, Key, Reading};
use crate::sheet::{Kind, Sheet};
use crate::store::{Change, Durability, Filter, Found, Setup, Store, Version};

pub const ABOUT: About = About {
    name: "fjall",
    version: "3.1.13",
    settings: &[
        "Leveled compaction, two worker threads, memtables of half the write buffers because one \
         is flushed while the next is filled.",
        "Blocks of 4 KiB (16 KiB when compressed) with a hash index; checksums at their default.",
        "Bloom filters of 10 bits, and of a rate of 0.01 % in the first level, which is the \
         default.",
        "Index and filter blocks of all levels are pinned in memory, unpartitioned, outside the \
         block cache.",
        "No compression, or LZ4 in all levels where the row says compressed: fjall has no other \
         codec.",
        "No key-value separation.",
        "The journal is written at each commit. Synchronous commits sync outside the write and \
         share syncs.",
        "Conditional writes hold one of 1024 locks of the application, which is faster than its \
         transactions.",
        "Ascending loads are ingested as tables; others write batches.",
    ],
};

const BLOCK_BYTES: u32 = 4 << 10;
const COMPRESSED_BLOCK_BYTES: u32 = 16 << 10;
/// The number of readings in each batch of a load.
const PIECE: usize = 1_000;
/// The engine counts as idle if no background work ran for this time. A shorter pause may separate
/// a flush from the compaction that it triggers, or two compactions.
const QUIET: Duration = Duration::from_millis(300);

/// An open fjall with all readings in one keyspace.
/// * fjall's journal has a mutex, which a synchronous commit holds during the sync. Here commits
///   write to the journal and then wait for a shared sync, which `Database::persist` allows:
///   sixteen waiting threads cause about two syncs.
/// * A conditional write is a plain get and insert under one of 1024 locks of the application.
///   fjall's transactions are slower: the single-writer form holds one lock during the sync, and
///   the optimistic form also keeps sets of reads and writes.
/// * A queue is a partition whose first entity is taken (read and deleted) again and again. The
///   adapter remembers the head of each queue, so that a take does not scan the tombstones of
///   earlier takes.
/// * fjall has no range deletion: a partition is dropped key by key, in one batch.
struct Fjall {
    db: Database,
    readings: Keyspace,
    codec: Codec,
    stripes: Stripes,
    heads: Heads,
    syncs: SharedSync,
    compresses: bool,
}

pub fn open(setup: &Setup<'_>) -> Box<dyn Store> {
    let db = Database::builder(setup.dir)
        .cache_size(setup.cache_bytes)
        .worker_threads(2)
        .journal_compression(CompressionType::None)
        .open()
        .expect("fjall opens");
    let readings = db.keyspace("readings", || options(setup)).expect("fjall opens");
    Box::new(Fjall {
        db,
        readings,
        codec: Codec::new(setup.encoding),
        stripes: Stripes::new(),
        heads: Heads::new(),
        syncs: SharedSync::new(),
        compresses: setup.compress,
    })
}

fn options(setup: &Setup<'_>) -> KeyspaceCreateOptions {
    let (block, compression) = if setup.compress {
        (COMPRESSED_BLOCK_BYTES, CompressionType::Lz4)
    } else {
        (BLOCK_BYTES, CompressionType::None)
    };
    KeyspaceCreateOptions::default()
        .max_memtable_size(setup.write_buffer_bytes / 2)
        .data_block_size_policy(BlockSizePolicy::all(block))
        .data_block_hash_ratio_policy(HashRatioPolicy::all(1.33))
        .data_block_compression_policy(CompressionPolicy::all(compression))
        .index_block_compression_policy(CompressionPolicy::disabled())
        .filter_policy(FilterPolicy::new([
            FilterPolicyEntry::Bloom(BloomConstructionPolicy::FalsePositiveRate(0.0001)),
            FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0)),
        ]))
        .index_block_partitioning_policy(PartitioningPolicy::all(false))
        .filter_block_partitioning_policy(PartitioningPolicy::all(false))
        .index_block_pinning_policy(PinningPolicy::all(true))
        .filter_block_pinning_policy(PinningPolicy::all(true))
        .with_kv_separation(None)
}

impl Fjall {
    fn commit(&self, durability: Durability) {
        if durability == Durability::Sync {
            self.syncs.wait(|| self.db.persist(PersistMode::SyncData).expect("fjall syncs"));
        }
    }

    fn write(&self, key: &[u8], value: &[u8], durability: Durability) {
        self.readings.insert(key, value).expect("fjall writes");
        self.commit(durability);
    }

    fn write_all(&self, pairs: Vec<(Vec<u8>, Vec<u8>)>, durability: Durability) {
        let mut batch = self.db.batch().durability(Some(PersistMode::Buffer));
        for (key, value) in pairs {
            batch.insert(&self.readings, key, value);
        }
        batch.commit().expect("fjall writes");
        self.commit(durability);
    }

    fn read<R>(&self, key: &[u8], with: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.readings.get(key).expect("fjall reads").map(|value| with(&value))
    }

    fn iterate_all(&self, mut each: impl FnMut(&[u8])) {
        for guard in self.readings.iter() {
            each(&guard.value().expect("fjall reads"));
        }
    }

    /// Ingests readings as long as their keys ascend. Returns the first reading whose key does not.
    fn ingest(&self, readings: &mut dyn Iterator<Item = Reading>) -> Option<Reading> {
        let mut ingestion = self.readings.start_ingestion().expect("fjall ingests");
        let mut last = Vec::new();
        let mut odd = None;
        for reading in readings {
            let key = key_bytes(&reading.key);
            if key <= last {
                odd = Some(reading);
                break;
            }
            let wrote = self.codec.value(&reading, |value| ingestion.write(&key[..], value));
            wrote.expect("fjall ingests");
            last = key;
        }
        ingestion.finish().expect("fjall ingests");
        odd
    }
}

impl Store for Fjall {
    fn put(&self, reading: &Reading, durability: Durability) {
        let key = key_bytes(&reading.key);
        self.codec.value(reading, |value| {
            let _held = self.stripes.one(&key);
            self.write(&key, value, durability);
        });
        self.heads.written(&key);
    }

    fn put_group(&self, readings: &[Reading], durability: Durability) {
        let pairs: Vec<_> = readings.iter().map(|reading| self.codec.pair(reading)).collect();
        let keys: Vec<Vec<u8>> = pairs.iter().map(|(key, _)| key.clone()).collect();
        let held = self.stripes.many(&keys);
        self.write_all(pairs, durability);
        drop(held);
        keys.iter().for_each(|key| self.heads.written(key));
    }

    fn load(&self, readings: &mut dyn Iterator<Item = Reading>, durability: Durability) {
        let first: Vec<Reading> = (&mut *readings).take(PIECE).collect();
        let ascends = first.is_sorted_by(|a, b| key_bytes(&a.key) < key_bytes(&b.key));
        let mut rest = first.into_iter().chain(readings);
        let odd = if ascends { self.ingest(&mut rest) } else { None };
        pieces(&mut odd.into_iter().chain(rest), PIECE, |piece| {
            // Keeps one pair per key: all writes of a batch have the same sequence number, so a
            // later duplicate would not win.
            let pairs = sorted(piece.iter().map(|reading| self.codec.pair(reading)).collect());
            self.write_all(pairs, Durability::Os);
        });
        self.heads.forget();
        if durability == Durability::Sync {
            self.sync();
        }
    }

    fn put_in_flight(
        &self,
        _: &mut dyn Iterator<Item = Reading>,
        _: usize,
        _: &mut dyn FnMut(u64),
    ) -> bool {
        false
    }

    fn insert(&self, reading: &Reading, durability: Durability) -> bool {
        let key = key_bytes(&reading.key);
        let free = self.codec.value(reading, |value| {
            let _held = self.stripes.one(&key);
            let free = !self.readings.contains_key(&key).expect("fjall reads");
            if free {
                self.write(&key, value, durability);
            }
            free
        });
        if free {
            self.heads.written(&key);
        }
        free
    }

    fn insert_group(&self, readings: &[Reading], durability: Durability) -> bool {
        let pairs: Vec<_> = readings.iter().map(|reading| self.codec.pair(reading)).collect();
        let keys: Vec<Vec<u8>> = pairs.iter().map(|(key, _)| key.clone()).collect();
        let held = self.stripes.many(&keys);
        if keys.iter().any(|key| self.readings.contains_key(key).expect("fjall reads")) {
            return false;
        }
        self.write_all(pairs, durability);
        drop(held);
        keys.iter().for_each(|key| self.heads.written(key));
        true
    }

    fn version(&self, key: &Key) -> Option<Version> {
        self.read(&key_bytes(key), version)
    }

    fn replace_if(&self, reading: &Reading, expected: Version, durability: Durability) -> bool {
        let key = key_bytes(&reading.key);
        self.codec.value(reading, |value| {
            let _held = self.stripes.one(&key);
            let same = self.read(&key, version) == Some(expected);
            if same {
                self.write(&key, value, durability);
            }
            same
        })
    }

    fn merge(&self, key: &Key, change: Change, durability: Durability) -> bool {
        let key = key_bytes(key);
        let _held = self.stripes.one(&key);
        let found = self.read(&key, |value| {
            self.codec.merged(value, change, |value| self.write(&key, value, durability));
        });
        found.is_some()
    }

    fn put_sheet(&self, sheet: &Sheet, durability: Durability) {
        let key = key_bytes(&sheet.key);
        self.codec.sheet(sheet, |value| self.write(&key, value, durability));
    }

    fn get_sheet(&self, _: Kind, key: &Key) -> Option<Digest> {
        self.read(&key_bytes(key), |value| self.codec.encoding.sheet_digest(value))
    }

    fn get(&self, key: &Key) -> Option<Digest> {
        self.read(&key_bytes(key), |value| self.codec.encoding.decode_owned(value).digest())
    }

    fn get_view(&self, key: &Key) -> Option<Digest> {
        self.read(&key_bytes(key), |value| self.codec.encoding.decode(value).digest())
    }

    fn range(&self, key: &Key, limit: usize) -> Found {
        let start = key_bytes(key);
        let end = end_of(&start);
        let mut found = Found::default();
        for guard in self.readings.range(start..end).take(limit) {
            let value = guard.value().expect("fjall reads");
            found.count(self.codec.encoding.decode(&value).digest());
        }
        found
    }

    fn scan(&self) -> Found {
        let mut found = Found::default();
        self.iterate_all(|value| found.count(self.codec.encoding.decode(value).digest()));
        found
    }

    fn filter(&self, filter: Filter) -> Found {
        let mut found = Found::default();
        self.iterate_all(|value| {
            if filter.accepts(self.codec.encoding.tested(value, filter)) {
                found.count(self.codec.encoding.decode(value).digest());
            }
        });
        found
    }

    fn delete(&self, key: &Key, durability: Durability) {
        let key = key_bytes(key);
        let _held = self.stripes.one(&key);
        self.readings.remove(key).expect("fjall deletes");
        self.commit(durability);
    }

    fn take_first(&self, partition: u32, durability: Durability) -> Option<Digest> {
        self.heads.take(partition, |start, end| {
            for guard in self.readings.range(start..end) {
                let (key, _) = guard.into_inner().expect("fjall reads");
                let _held = self.stripes.one(&key);
                // A concurrent delete may have removed the entity.
                let taken =
                    self.read(&key, |value| self.codec.encoding.decode_owned(value).digest());
                if let Some(digest) = taken {
                    self.readings.remove(key.clone()).expect("fjall deletes");
                    self.commit(durability);
                    return Some((key.to_vec(), digest));
                }
            }
            None
        })
    }

    fn drop_partition(&self, partition: u32, durability: Durability) {
        let _held = self.stripes.all();
        let mut batch = self.db.batch().durability(Some(PersistMode::Buffer));
        for guard in self.readings.range(partition_start(partition)..partition_end(partition)) {
            batch.remove(&self.readings, guard.key().expect("fjall reads"));
        }
        batch.commit().expect("fjall writes");
        self.commit(durability);
    }

    fn drop_partitions(&self, partitions: Range<u32>) {
        let _held = self.stripes.all();
        let mut batch = self.db.batch().durability(Some(PersistMode::SyncAll));
        for one in partitions {
            for guard in self.readings.range(partition_start(one)..partition_end(one)) {
                batch.remove(&self.readings, guard.key().expect("fjall reads"));
            }
        }
        batch.commit().expect("fjall writes");
    }

    fn sync(&self) {
        self.db.persist(PersistMode::SyncAll).expect("fjall syncs");
    }

    /// Runs a full compaction. fjall first waits for running compactions to end.
    fn compact(&self) {
        self.readings.rotate_memtable_and_wait().expect("fjall flushes");
        self.readings.major_compact().expect("fjall compacts");
    }

    fn packs_with(&self) -> Option<&'static str> {
        self.compresses.then_some("LZ4")
    }

    fn settle(&self) {
        let mut seen = self.db.compactions_completed();
        let mut since = Instant::now();
        while since.elapsed() < QUIET {
            std::thread::park_timeout(Duration::from_millis(10));
            let now = self.db.compactions_completed();
            let busy = self.db.outstanding_flushes() > 0 || self.db.active_compactions() > 0;
            if busy || now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
    }

    /// Flushes, so that the next opening has no journal to replay.
    fn close(self: Box<Self>) {
        self.readings.rotate_memtable_and_wait().expect("fjall flushes");
        self.sync();
    }
}

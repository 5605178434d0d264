//! Implements `Store` with RocksDB. [`ABOUT`] describes its configuration in reports.
//!
//! Invariant: a commit with `Durability::Sync` syncs the log; one with `Durability::Os` only writes
//! to it.
//!
//! Not here: the encoding of keys and values (`encoding.rs`), locks and versions (`shared.rs`).

use std::path::PathBuf;
use std::time::Duration;

use rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, ColumnFamilyDescriptor, CompactOptions,
    DB, DBCompressionType, DBRawIterator, DataBlockIndexType, IngestExternalFileOptions, Options,
    ReadOptions, SstFileWriter, WaitForCompactOptions, WriteBatch, WriteOptions,
};

use super::About;
use super::shared::{Codec, Heads, Stripes, end_of, pieces, sorted, version};
use crate::encoding::{key_bytes, partition_end, partition_start};
use crate::reading::{Digest, Key, Reading};
use crate::sheet::{Kind, Sheet};
use crate::store::{Change, Durability, Filter, Found, Setup, Store, Version};

pub const ABOUT: About = About {
    name: "RocksDB",
    version: "11.8.1 (crate rocksdb 0.25.0)",
    settings: &[
        "Leveled compaction with dynamic level sizes, two background jobs, the write buffers \
         halved into two. Table files are as large as a write buffer (2 to 64 MiB), the first \
         level is four times as large: the sizes fit small write buffers.",
        "Blocks of 4 KiB (16 KiB when compressed) with a hash index, XXH3 checksums verified on \
         every read.",
        "Bloom filters of 10 bits over whole keys, and a bloom in the write buffer, for keys that \
         are missing.",
        "Index and filter blocks stay outside the block cache, in memory with the open files: \
         inside a small sharded cache they would be evicted and read again by each get.",
        "The block cache is a hyper clock cache (no lock on a hit) of the given size.",
        "No compression, or, where the row says compressed, zstd in the last level, with a \
         dictionary of 16 KiB trained for each file, and LZ4 above it.",
        "The log is written at each commit, and synced by WriteOptions::sync; threads that commit \
         at the same time share a sync, pipelined with the write buffer. Log files are recycled, so \
         that a sync need not write a new file size.",
        "Conditional writes hold one of 1024 locks of the application, which is faster than its \
         transactions.",
        "Gets return pinned slices. Iterators have upper bounds. Scans read ahead 2 MiB and fill \
         the cache only if all data fit in it.",
        "Loads sort as many entities as the write buffers hold and ingest them as table files, \
         without a log.",
    ],
};

const BLOCK_BYTES: usize = 4 << 10;
const COMPRESSED_BLOCK_BYTES: usize = 16 << 10;
/// RocksDB's default level of zstd.
const ZSTD_LEVEL: i32 = 3;
const DICTIONARY_BYTES: i32 = 16 << 10;
const READAHEAD_BYTES: usize = 2 << 20;
/// A load waits while level 0 has this many files, which is RocksDB's own threshold for slowing
/// writes.
const LEVEL_0_FILES: u64 = 20;
/// Approximate memory of a reading during a load.
const LOADED_BYTES: u64 = 320;

/// An open RocksDB with readings in its default column family.
/// * A conditional write is a plain get and put under one of 1024 locks of the application.
///   RocksDB's transactions (pessimistic or optimistic) do more and are slower: they index their
///   writes and look each key up again at the commit.
/// * A queue is a partition whose first entity is taken (read and deleted) again and again. The
///   adapter remembers the head of each queue, so that a take does not scan the tombstones of
///   earlier takes.
/// * A load sorts as many readings as the write buffers hold and ingests them as a table file,
///   without log and memtable. Ascending input goes directly to the last level.
/// * Scans use one thread, as do those of all other engines.
struct Rocks {
    db: DB,
    codec: Codec,
    stripes: Stripes,
    heads: Heads,
    options: Options,
    reading: ReadOptions,
    synced: WriteOptions,
    written: WriteOptions,
    cache_bytes: u64,
    compresses: bool,
    /// The number of readings that a load sorts and ingests at a time.
    piece: usize,
    dir: PathBuf,
}

pub fn open(setup: &Setup<'_>) -> Box<dyn Store> {
    let options = options(setup);
    let family = ColumnFamilyDescriptor::new("default", options.clone());
    let db = DB::open_cf_descriptors(&options, setup.dir, [family]).expect("RocksDB opens");
    let mut synced = WriteOptions::default();
    synced.set_sync(true);
    Box::new(Rocks {
        db,
        codec: Codec::new(setup.encoding),
        stripes: Stripes::new(),
        heads: Heads::new(),
        options,
        reading: ReadOptions::default(),
        synced,
        written: WriteOptions::default(),
        cache_bytes: setup.cache_bytes,
        compresses: setup.compress,
        piece: (setup.write_buffer_bytes / LOADED_BYTES).max(1) as usize,
        dir: setup.dir.to_owned(),
    })
}

fn options(setup: &Setup<'_>) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_hyper_clock_cache(setup.cache_bytes as usize, 0));
    table.set_block_size(if setup.compress { COMPRESSED_BLOCK_BYTES } else { BLOCK_BYTES });
    table.set_bloom_filter(10.0, false);
    table.set_whole_key_filtering(true);
    table.set_cache_index_and_filter_blocks(false);
    table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    table.set_data_block_hash_ratio(0.75);
    table.set_optimize_filters_for_memory(true);

    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_max_background_jobs(2);
    options.set_write_buffer_size(setup.write_buffer_bytes as usize / 2);
    options.set_max_write_buffer_number(2);
    let file_bytes = (setup.write_buffer_bytes / 2).clamp(2 << 20, 64 << 20);
    options.set_target_file_size_base(file_bytes);
    options.set_max_bytes_for_level_base(4 * file_bytes);
    options.set_memtable_prefix_bloom_ratio(0.05);
    options.set_memtable_whole_key_filtering(true);
    options.set_use_fsync(false);
    options.set_manual_wal_flush(false);
    options.set_enable_pipelined_write(true);
    options.set_recycle_log_file_num(2);
    // Turns off what is not needed here: periodic dumps of statistics, and reading the statistics
    // of all files when opening.
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options.set_skip_stats_update_on_db_open(true);
    options.set_keep_log_file_num(2);
    if setup.compress {
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_bottommost_compression_type(DBCompressionType::Zstd);
        // The window and the strategy are zstd's defaults.
        options.set_bottommost_compression_options(-14, ZSTD_LEVEL, 0, DICTIONARY_BYTES, true);
        options.set_bottommost_zstd_max_train_bytes(100 * DICTIONARY_BYTES, true);
    } else {
        options.set_compression_type(DBCompressionType::None);
        options.set_bottommost_compression_type(DBCompressionType::None);
    }
    options
}

impl Rocks {
    fn writing(&self, durability: Durability) -> &WriteOptions {
        match durability {
            Durability::Sync => &self.synced,
            Durability::Os => &self.written,
        }
    }

    fn read<R>(&self, key: &[u8], with: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let value = self.db.get_pinned_opt(key, &self.reading).expect("RocksDB reads");
        value.map(|value| with(&value))
    }

    fn write(&self, batch: WriteBatch, writing: &WriteOptions) {
        self.db.write_opt(batch, writing).expect("RocksDB writes");
    }

    /// Calls `each` with the pairs from `start` to below `end` (or to the last one), until it
    /// returns false.
    fn iterate(
        &self,
        start: &[u8],
        end: Option<Vec<u8>>,
        mut reading: ReadOptions,
        mut each: impl FnMut(&[u8], &[u8]) -> bool,
    ) {
        if let Some(end) = end {
            reading.set_iterate_upper_bound(end);
        }
        let mut iterator: DBRawIterator<'_> = self.db.raw_iterator_opt(reading);
        iterator.seek(start);
        while let Some((key, value)) = iterator.item() {
            if !each(key, value) {
                return;
            }
            iterator.next();
        }
        iterator.status().expect("RocksDB iterates");
    }

    /// Calls `each` with all values, in key order.
    fn iterate_all(&self, mut each: impl FnMut(&[u8])) {
        let mut reading = ReadOptions::default();
        reading.set_readahead_size(READAHEAD_BYTES);
        let bytes = self.number("rocksdb.live-sst-files-size");
        reading.fill_cache(bytes <= self.cache_bytes);
        self.iterate(&[], None, reading, |_, value| {
            each(value);
            true
        });
    }

    /// Writes `pairs` to a durable table file, and ingests it at the lowest level without overlap.
    fn ingest(&self, pairs: &[(Vec<u8>, Vec<u8>)]) {
        let path = self.dir.join("load.sst");
        let mut file = SstFileWriter::create(&self.options);
        file.open(&path).expect("a table file");
        for (key, value) in pairs {
            file.put(key, value).expect("a table file");
        }
        file.finish().expect("a table file");
        let mut ingesting = IngestExternalFileOptions::default();
        ingesting.set_move_files(true);
        self.db.ingest_external_file_opts(&ingesting, vec![path]).expect("RocksDB ingests");
        // RocksDB slows down writes when compaction falls behind, but not ingestion. So this loop
        // waits.
        while self.number("rocksdb.num-files-at-level0") >= LEVEL_0_FILES {
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// Returns a numeric property of RocksDB.
    fn number(&self, name: &str) -> u64 {
        let number = self.db.property_int_value(name).expect("RocksDB has this property");
        number.unwrap_or(0)
    }
}

impl Store for Rocks {
    fn put(&self, reading: &Reading, durability: Durability) {
        let key = key_bytes(&reading.key);
        self.codec.value(reading, |value| {
            let _held = self.stripes.one(&key);
            self.db.put_opt(&key, value, self.writing(durability)).expect("RocksDB writes");
        });
        self.heads.written(&key);
    }

    fn put_group(&self, readings: &[Reading], durability: Durability) {
        let keys: Vec<Vec<u8>> = readings.iter().map(|reading| key_bytes(&reading.key)).collect();
        let mut batch = WriteBatch::with_capacity_bytes(readings.len() * 256);
        for (key, reading) in keys.iter().zip(readings) {
            self.codec.value(reading, |value| batch.put(key, value));
        }
        let held = self.stripes.many(&keys);
        self.write(batch, self.writing(durability));
        drop(held);
        keys.iter().for_each(|key| self.heads.written(key));
    }

    fn load(&self, readings: &mut dyn Iterator<Item = Reading>, _: Durability) {
        pieces(readings, self.piece, |piece| {
            self.ingest(&sorted(piece.iter().map(|reading| self.codec.pair(reading)).collect()));
        });
        self.heads.forget();
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
            let free = self.read(&key, |_| ()).is_none();
            if free {
                self.db.put_opt(&key, value, self.writing(durability)).expect("RocksDB writes");
            }
            free
        });
        if free {
            self.heads.written(&key);
        }
        free
    }

    fn insert_group(&self, readings: &[Reading], durability: Durability) -> bool {
        let mut pairs: Vec<_> = readings.iter().map(|reading| self.codec.pair(reading)).collect();
        pairs.sort();
        let keys: Vec<Vec<u8>> = pairs.iter().map(|(key, _)| key.clone()).collect();
        let held = self.stripes.many(&keys);
        let family = self.db.cf_handle("default").expect("the column family it was opened with");
        let found = self.db.batched_multi_get_cf_opt(family, &keys, true, &self.reading);
        if found.into_iter().any(|found| found.expect("RocksDB reads").is_some()) {
            return false;
        }
        let mut batch = WriteBatch::with_capacity_bytes(readings.len() * 256);
        for (key, value) in &pairs {
            batch.put(key, value);
        }
        self.write(batch, self.writing(durability));
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
                self.db.put_opt(&key, value, self.writing(durability)).expect("RocksDB writes");
            }
            same
        })
    }

    fn merge(&self, key: &Key, change: Change, durability: Durability) -> bool {
        let key = key_bytes(key);
        let _held = self.stripes.one(&key);
        let found = self.read(&key, |value| {
            self.codec.merged(value, change, |value| {
                self.db.put_opt(&key, value, self.writing(durability)).expect("RocksDB writes");
            });
        });
        found.is_some()
    }

    fn put_sheet(&self, sheet: &Sheet, durability: Durability) {
        let key = key_bytes(&sheet.key);
        self.codec.sheet(sheet, |value| {
            self.db.put_opt(&key, value, self.writing(durability)).expect("RocksDB writes");
        });
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
        let mut found = Found::default();
        self.iterate(&start, Some(end_of(&start)), ReadOptions::default(), |_, value| {
            if found.entities == limit as u64 {
                return false;
            }
            found.count(self.codec.encoding.decode(value).digest());
            true
        });
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
        self.db.delete_opt(&key, self.writing(durability)).expect("RocksDB deletes");
    }

    fn take_first(&self, partition: u32, durability: Durability) -> Option<Digest> {
        self.heads.take(partition, |start, end| {
            let mut start = start.to_vec();
            loop {
                let mut first = None;
                self.iterate(&start, Some(end.to_vec()), ReadOptions::default(), |key, _| {
                    first = Some(key.to_vec());
                    false
                });
                let key = first?;
                let held = self.stripes.one(&key);
                // A concurrent delete may have removed the entity.
                let taken =
                    self.read(&key, |value| self.codec.encoding.decode_owned(value).digest());
                if let Some(digest) = taken {
                    self.db.delete_opt(&key, self.writing(durability)).expect("RocksDB deletes");
                    drop(held);
                    return Some((key, digest));
                }
                drop(held);
                start = key;
            }
        })
    }

    fn drop_partition(&self, partition: u32, durability: Durability) {
        let _held = self.stripes.all();
        let family = self.db.cf_handle("default").expect("the column family it was opened with");
        let (start, end) = (partition_start(partition), partition_end(partition));
        let writing = self.writing(durability);
        self.db.delete_range_cf_opt(family, start, end, writing).expect("RocksDB deletes");
    }

    fn drop_partitions(&self, partitions: std::ops::Range<u32>) {
        let _held = self.stripes.all();
        let family = self.db.cf_handle("default").expect("the column family it was opened with");
        let mut batch = WriteBatch::default();
        for one in partitions {
            batch.delete_range_cf(family, partition_start(one), partition_end(one));
        }
        self.write(batch, &self.synced);
    }

    fn sync(&self) {
        self.db.flush_wal(true).expect("RocksDB syncs");
    }

    fn compact(&self) {
        self.db.flush().expect("RocksDB flushes");
        let mut compacting = CompactOptions::default();
        compacting.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
        self.db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &compacting);
    }

    fn packs_with(&self) -> Option<&'static str> {
        self.compresses.then_some("zstd, its default level, 3")
    }

    fn settle(&self) {
        self.db.wait_for_compact(&WaitForCompactOptions::default()).expect("RocksDB settles");
    }

    /// Flushes, so that the next opening has no log to replay.
    fn close(self: Box<Self>) {
        self.db.flush().expect("RocksDB flushes");
        self.db.cancel_all_background_work(true);
    }
}

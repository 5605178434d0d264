//! Implements `Store` with redb. [`ABOUT`] describes its configuration in reports.
//!
//! Not here: the encoding of keys and values (`encoding.rs`), versions (`shared.rs`).

use std::fs::File;
use std::io;
use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use redb::backends::FileBackend;
use redb::{
    BackendError, Builder, Database, ReadOnlyTable, ReadableDatabase, ReadableTable,
    StorageBackend, Table, TableDefinition,
};

use super::About;
use super::shared::{Codec, end_of, pieces, sorted, version};
use crate::encoding::{key_bytes, partition_end, partition_start};
use crate::reading::{Digest, Key, Reading};
use crate::sheet::{Kind, Sheet};
use crate::store::{Change, Durability, Filter, Found, Setup, Store, Version};

pub const ABOUT: About = About {
    name: "redb",
    version: "4.5.0",
    settings: &[
        "One table of bytes by bytes; its own cache of the given size over the page cache.",
        "Sync is Durability::Immediate in one phase, the default: one fdatasync a commit under the \
         one writer lock, so threads do not share syncs.",
        "Os is the same commit over a file whose fdatasync is turned off. redb's Durability::None \
         keeps a commit in process memory, which is too weak. A crash of the process loses \
         nothing.",
        "No quick repair: it makes every commit slower. Opening after a kill therefore reads the \
         whole file.",
        "Loads commit 50 000 entities at a time, sorted within.",
        "No compression: redb has none. At rest means Database::compact, repeated until it finds \
         nothing to do.",
    ],
};

const READINGS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("readings");
const PIECE: usize = 50_000;

/// A file that is synced only if the running commit requests it.
#[derive(Debug)]
struct Lazy {
    file: FileBackend,
    lazy: Arc<AtomicBool>,
}

/// An open redb. The database is behind a lock because compaction needs exclusive access to it.
/// * `Durability::None` keeps a commit in process memory until a later one is durable, which is
///   weaker than `Os`. So commits are always `Durability::Immediate`, and for `Os` the writer turns
///   off the sync of the file. An application that needs the durability `Os` has to do the same.
/// * Only one transaction at a time can write, until its commit ends. Each commit syncs by itself,
///   whatever the number of waiting threads. In return, reading and then writing in one transaction
///   is atomic without further locks.
struct Redb {
    db: RwLock<Database>,
    lazy: Arc<AtomicBool>,
    /// A handle that `sync` and `close` use to sync earlier commits of durability `Os`.
    file: File,
    codec: Codec,
}

pub fn open(setup: &Setup<'_>) -> Box<dyn Store> {
    let path = setup.dir.join("readings.redb");
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(false).open(path);
    let file = file.expect("a file");
    let is_new = file.metadata().expect("of a file").len() == 0;
    let lazy = Arc::new(AtomicBool::new(false));
    let backend = Lazy {
        file: FileBackend::new(file.try_clone().expect("a file")).expect("no other handle is open"),
        lazy: Arc::clone(&lazy),
    };
    let mut builder = Builder::new();
    builder.set_cache_size(setup.cache_bytes as usize);
    let db = builder.create_with_backend(backend).expect("redb opens");
    if is_new {
        let writing = db.begin_write().expect("redb writes");
        writing.open_table(READINGS).expect("redb creates a table");
        writing.commit().expect("redb commits");
    }
    Box::new(Redb { db: RwLock::new(db), lazy, file, codec: Codec::new(setup.encoding) })
}

impl StorageBackend for Lazy {
    fn len(&self) -> Result<u64, io::Error> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        if self.lazy.load(Ordering::Relaxed) { Ok(()) } else { self.file.sync_data() }
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.file.write(offset, data)
    }

    fn close(&self) -> Result<(), io::Error> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}

type Writable<'txn> = Table<'txn, &'static [u8], &'static [u8]>;

impl Redb {
    fn db(&self) -> RwLockReadGuard<'_, Database> {
        self.db.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn reading(&self) -> ReadOnlyTable<&'static [u8], &'static [u8]> {
        let reading = self.db().begin_read().expect("redb reads");
        reading.open_table(READINGS).expect("redb reads")
    }

    fn read<R>(&self, key: &[u8], with: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.reading().get(key).expect("redb reads").map(|value| with(value.value()))
    }

    /// Runs `write` in one transaction; if it returns `false`, the transaction is aborted.
    fn write(&self, durability: Durability, write: impl FnOnce(&mut Writable<'_>) -> bool) -> bool {
        let db = self.db();
        // Write transactions are exclusive: no other thread turns the sync on or off until the
        // commit ends.
        let writing = db.begin_write().expect("redb writes");
        let done = write(&mut writing.open_table(READINGS).expect("redb writes"));
        if done {
            self.lazy.store(durability == Durability::Os, Ordering::Relaxed);
            writing.commit().expect("redb commits");
        } else {
            writing.abort().expect("redb aborts");
        }
        done
    }

    fn iterate_all(&self, mut each: impl FnMut(&[u8])) {
        for pair in self.reading().iter().expect("redb reads") {
            each(pair.expect("redb reads").1.value());
        }
    }
}

fn put(table: &mut Writable<'_>, key: &[u8], value: &[u8]) {
    table.insert(key, value).expect("redb writes");
}

fn is_free(table: &Writable<'_>, key: &[u8]) -> bool {
    table.get(key).expect("redb reads").is_none()
}

impl Store for Redb {
    fn put(&self, reading: &Reading, durability: Durability) {
        let key = key_bytes(&reading.key);
        self.codec.value(reading, |value| {
            self.write(durability, |table| {
                put(table, &key, value);
                true
            })
        });
    }

    fn put_group(&self, readings: &[Reading], durability: Durability) {
        let pairs: Vec<_> = readings.iter().map(|reading| self.codec.pair(reading)).collect();
        self.write(durability, |table| {
            pairs.iter().for_each(|(key, value)| put(table, key, value));
            true
        });
    }

    fn load(&self, readings: &mut dyn Iterator<Item = Reading>, durability: Durability) {
        pieces(readings, PIECE, |piece| {
            let pairs = sorted(piece.iter().map(|reading| self.codec.pair(reading)).collect());
            self.write(durability, |table| {
                pairs.iter().for_each(|(key, value)| put(table, key, value));
                true
            });
        });
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
        self.codec.value(reading, |value| {
            self.write(durability, |table| {
                let free = is_free(table, &key);
                if free {
                    put(table, &key, value);
                }
                free
            })
        })
    }

    fn insert_group(&self, readings: &[Reading], durability: Durability) -> bool {
        let pairs: Vec<_> = readings.iter().map(|reading| self.codec.pair(reading)).collect();
        self.write(durability, |table| {
            // The insertion returns the existing value; aborting the transaction undoes earlier
            // insertions.
            pairs.iter().all(|(key, value)| {
                table.insert(&key[..], &value[..]).expect("redb writes").is_none()
            })
        })
    }

    fn version(&self, key: &Key) -> Option<Version> {
        self.read(&key_bytes(key), version)
    }

    fn replace_if(&self, reading: &Reading, expected: Version, durability: Durability) -> bool {
        let key = key_bytes(&reading.key);
        self.codec.value(reading, |value| {
            self.write(durability, |table| {
                let found = table.get(&key[..]).expect("redb reads");
                let same = found.map(|value| version(value.value())) == Some(expected);
                if same {
                    put(table, &key, value);
                }
                same
            })
        })
    }

    fn merge(&self, key: &Key, change: Change, durability: Durability) -> bool {
        let key = key_bytes(key);
        self.write(durability, |table| {
            let merged = table
                .get(&key[..])
                .expect("redb reads")
                .map(|value| self.codec.merged(value.value(), change, |value| value.to_vec()));
            if let Some(value) = &merged {
                put(table, &key, value);
            }
            merged.is_some()
        })
    }

    fn put_sheet(&self, sheet: &Sheet, durability: Durability) {
        let key = key_bytes(&sheet.key);
        self.codec.sheet(sheet, |value| {
            self.write(durability, |table| {
                put(table, &key, value);
                true
            });
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
        let end = end_of(&start);
        let mut found = Found::default();
        let range = self.reading().range(&start[..]..&end[..]).expect("redb reads");
        for pair in range.take(limit) {
            let (_, value) = pair.expect("redb reads");
            found.count(self.codec.encoding.decode(value.value()).digest());
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
        self.write(durability, |table| table.remove(&key[..]).expect("redb deletes").is_some());
    }

    fn take_first(&self, partition: u32, durability: Durability) -> Option<Digest> {
        let (start, end) = (partition_start(partition), partition_end(partition));
        let mut taken = None;
        self.write(durability, |table| {
            let first = {
                let mut range = table.range(&start[..]..&end[..]).expect("redb reads");
                range.next().map(|first| {
                    let (key, value) = first.expect("redb reads");
                    (key.value().to_vec(), self.codec.encoding.decode_owned(value.value()).digest())
                })
            };
            let Some((key, digest)) = first else { return false };
            taken = Some(digest);
            table.remove(&key[..]).expect("redb deletes").is_some()
        });
        taken
    }

    fn drop_partition(&self, partition: u32, durability: Durability) {
        let (start, end) = (partition_start(partition), partition_end(partition));
        self.write(durability, |table| {
            table.retain_in(&start[..]..&end[..], |_, _| false).expect("redb deletes");
            true
        });
    }

    fn drop_partitions(&self, partitions: Range<u32>) {
        self.write(Durability::Sync, |table| {
            for one in partitions {
                let (start, end) = (partition_start(one), partition_end(one));
                table.retain_in(&start[..]..&end[..], |_, _| false).expect("redb deletes");
            }
            true
        });
    }

    fn sync(&self) {
        // One sync suffices, because all pages and the header are in this file.
        self.file.sync_data().expect("redb syncs");
    }

    fn compact(&self) {
        let mut db = self.db.write().unwrap_or_else(PoisonError::into_inner);
        self.lazy.store(false, Ordering::Relaxed);
        while db.compact().expect("redb compacts") {}
    }

    /// Does nothing: redb has no background work.
    fn settle(&self) {}

    fn close(self: Box<Self>) {
        self.lazy.store(false, Ordering::Relaxed);
        self.sync();
        let db = self.db.into_inner().unwrap_or_else(PoisonError::into_inner);
        db.close().expect("redb closes");
    }
}

//! Implements `Store` with LMDB, through the crate heed. [`ABOUT`] describes its configuration in
//! reports.
//!
//! Invariant: only the holder of the current file's writer lock changes that file. A full
//! compaction writes the next file; a store never returns to an earlier one.
//!
//! Not here: the encoding of keys and values (`encoding.rs`), versions (`shared.rs`).

use std::ops::{Bound, Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use heed::types::Bytes;
use heed::{
    AnyTls, CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, FlagSetMode, MdbError,
    PutFlags, RoTxn, RwTxn, WithTls,
};

use super::About;
use super::shared::{Codec, available_memory, end_of, pieces, sorted, version};
use crate::encoding::{key_bytes, partition_end, partition_start};
use crate::reading::{Digest, Key, Reading};
use crate::sheet::{Kind, Sheet};
use crate::store::{Change, Durability, Filter, Found, Setup, Store, Version};

pub const ABOUT: About = About {
    name: "LMDB",
    version: "0.9.70 (crate heed 0.23.1)",
    settings: &[
        "A map of 1 TiB; the file grows as it is filled. Its cache is the page cache.",
        "A synchronous commit writes its pages, calls fdatasync, then writes the meta page through \
         a synchronous descriptor. It holds the one writer lock throughout, so threads do not share \
         syncs.",
        "Os is MDB_NOSYNC: pages are written, not synced. A crash of the process loses nothing. A \
         power cut may damage the file, a weaker guarantee than that of the LSM engines.",
        "No MDB_WRITEMAP: it makes stray pointers and a full disk fatal, and syncs the whole \
         map.",
        "MDB_NOMEMINIT. MDB_NORDAHEAD if the file is larger than the memory of the process when it \
         opens the file.",
        "Reader slots are per thread. Reads borrow from the map.",
        "Loads commit 50 000 entities at a time, sorted within, with MDB_APPEND if their keys are \
         above all existing ones.",
        "No compression: LMDB has none. At rest means rewritten in key order, into full pages.",
    ],
};

const MAP_BYTES: usize = 1 << 40;
const PIECE: usize = 50_000;
/// The most files that an open store can have. Each full compaction adds one.
const FILES: usize = 64;

type Readings = Database<'static, Bytes, Bytes>;

/// One file of the database.
struct File {
    env: Env<WithTls>,
    readings: Readings,
    path: PathBuf,
    /// The current state of MDB_NOSYNC.
    lazy: AtomicBool,
}

/// An open LMDB. A full compaction copies the current file into the next one of `files`.
/// * Only one transaction at a time can write, until its commit ends. Each commit syncs by itself,
///   whatever the number of waiting threads. In return, reading and then writing in one transaction
///   is atomic without further locks.
/// * A flag of the environment decides if a commit syncs. Only the writer changes it, between its
///   last write and its commit.
/// * A full compaction writes full pages in key order, as `mdb_dump | mdb_load -a` does. The old
///   file's environment stays open until the store is closed.
struct Lmdb {
    files: [OnceLock<File>; FILES],
    current: AtomicUsize,
    dir: PathBuf,
    /// The number in the file name of the first element of `files`.
    first: usize,
    codec: Codec,
}

pub fn open(setup: &Setup<'_>) -> Box<dyn Store> {
    let first = first_of(setup.dir);
    let files = [const { OnceLock::new() }; FILES];
    assert!(files[0].set(File::open(&path_of(setup.dir, first))).is_ok(), "it was empty");
    Box::new(Lmdb {
        files,
        current: AtomicUsize::new(0),
        dir: setup.dir.to_owned(),
        first,
        codec: Codec::new(setup.encoding),
    })
}

fn path_of(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("readings-{number:04}.mdb"))
}

/// Returns the number of the current file, 1 in a new database. A compaction removes the old file
/// only after the next file is complete. So a file whose predecessor still exists is incomplete,
/// and is removed here.
fn first_of(dir: &Path) -> usize {
    let names = std::fs::read_dir(dir).expect("a directory").map(|entry| {
        entry.expect("an entry of it").file_name().into_string().expect("a name of ours")
    });
    let mut numbers: Vec<usize> = names
        .filter_map(|name| name.strip_prefix("readings-")?.strip_suffix(".mdb")?.parse().ok())
        .collect();
    numbers.sort_unstable();
    for number in numbers.iter().skip(1) {
        remove(&path_of(dir, *number));
    }
    numbers.first().copied().unwrap_or(1)
}

/// Removes the file and its lock file.
fn remove(path: &Path) {
    let mut lock = path.as_os_str().to_owned();
    lock.push("-lock");
    std::fs::remove_file(path).expect("a file of ours");
    std::fs::remove_file(PathBuf::from(lock)).expect("a file of ours");
}

impl File {
    fn open(path: &Path) -> Self {
        let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let mut flags = EnvFlags::NO_SUB_DIR | EnvFlags::NO_MEM_INIT;
        if bytes > available_memory() {
            flags |= EnvFlags::NO_READ_AHEAD;
        }
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES).max_readers(512);
        // SAFETY: the flags keep LMDB's locking on, and nothing else changes the file while it is
        // mapped: its directory belongs to this store.
        let env = unsafe { options.flags(flags).open(path) }.expect("LMDB opens");
        let writing = env.write_txn().expect("LMDB writes");
        let opened = env.create_databases_and_commit(writing, |opener, writing| {
            let readings = opener.create_database::<Bytes, Bytes>(writing, None)?;
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(readings))
        });
        let readings = opened.expect("LMDB opens").unwrap_commit();
        Self { env, readings, path: path.to_owned(), lazy: AtomicBool::new(false) }
    }

    fn read(&self) -> RoTxn<'_, WithTls> {
        self.env.read_txn().expect("LMDB reads")
    }

    /// Commits `writing`, which must be a write transaction of this file. This function sets a flag
    /// of the whole environment, which is safe because no other write transaction can be open.
    fn commit(&self, writing: RwTxn<'_>, durability: Durability) {
        let lazy = durability == Durability::Os;
        if self.lazy.swap(lazy, Ordering::Relaxed) != lazy {
            let mode = if lazy { FlagSetMode::Enable } else { FlagSetMode::Disable };
            // SAFETY: this thread holds the only write transaction, so no other thread runs this.
            // LMDB allows changing this flag while a file is open.
            unsafe { self.env.set_flags(EnvFlags::NO_SYNC, mode) }.expect("LMDB changes a flag");
        }
        writing.commit().expect("LMDB commits");
    }

    fn put(&self, writing: &mut RwTxn<'_>, key: &[u8], value: &[u8]) {
        self.readings.put(writing, key, value).expect("LMDB writes");
    }

    fn find<'txn, T>(&self, reading: &'txn RoTxn<'_, T>, key: &[u8]) -> Option<&'txn [u8]>
    where
        RoTxn<'txn, T>: Deref<Target = RoTxn<'txn, AnyTls>>,
    {
        self.readings.get(reading, key).expect("LMDB reads")
    }

    /// If all keys are above the existing ones, appends them in key order, which fills pages
    /// completely. Otherwise inserts them.
    fn append(&self, pairs: &[(Vec<u8>, Vec<u8>)], durability: Durability) {
        let mut writing = self.env.write_txn().expect("LMDB writes");
        let last = self.readings.last(&writing).expect("LMDB reads").map(|(key, _)| key.to_vec());
        let behind = pairs.first().is_some_and(|(key, _)| last.is_none_or(|last| last < *key));
        let flags = if behind { PutFlags::APPEND } else { PutFlags::empty() };
        for (key, value) in pairs {
            let put = self.readings.put_with_flags(&mut writing, flags, key, value);
            put.expect("LMDB writes");
        }
        self.commit(writing, durability);
    }
}

impl Lmdb {
    fn file(&self) -> &File {
        self.files[self.current.load(Ordering::Acquire)].get().expect("the current one is open")
    }

    /// Runs `write` in one transaction; if it returns `false`, the transaction is aborted.
    fn write(
        &self,
        durability: Durability,
        write: impl FnOnce(&File, &mut RwTxn<'_>) -> bool,
    ) -> bool {
        loop {
            let file = self.file();
            let mut writing = file.env.write_txn().expect("LMDB writes");
            // A writer that waited for the lock during a full compaction must not write to the old
            // file.
            if !std::ptr::eq(file, self.file()) {
                continue;
            }
            let done = write(file, &mut writing);
            if done {
                file.commit(writing, durability);
            } else {
                writing.abort();
            }
            return done;
        }
    }

    fn iterate_all(&self, mut each: impl FnMut(&[u8])) {
        let file = self.file();
        let reading = file.read();
        for pair in file.readings.iter(&reading).expect("LMDB reads") {
            each(pair.expect("LMDB reads").1);
        }
    }
}

impl Store for Lmdb {
    fn put(&self, reading: &Reading, durability: Durability) {
        let key = key_bytes(&reading.key);
        self.codec.value(reading, |value| {
            self.write(durability, |file, writing| {
                file.put(writing, &key, value);
                true
            })
        });
    }

    fn put_group(&self, readings: &[Reading], durability: Durability) {
        let pairs: Vec<_> = readings.iter().map(|reading| self.codec.pair(reading)).collect();
        self.write(durability, |file, writing| {
            pairs.iter().for_each(|(key, value)| file.put(writing, key, value));
            true
        });
    }

    fn load(&self, readings: &mut dyn Iterator<Item = Reading>, durability: Durability) {
        pieces(readings, PIECE, |piece| {
            let pairs: Vec<_> = piece.iter().map(|reading| self.codec.pair(reading)).collect();
            self.file().append(&sorted(pairs), durability);
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
            self.write(durability, |file, writing| {
                let flags = PutFlags::NO_OVERWRITE;
                match file.readings.put_with_flags(writing, flags, &key, value) {
                    Ok(()) => true,
                    Err(heed::Error::Mdb(MdbError::KeyExist)) => false,
                    Err(error) => panic!("LMDB: {error}"),
                }
            })
        })
    }

    fn insert_group(&self, readings: &[Reading], durability: Durability) -> bool {
        let pairs: Vec<_> = readings.iter().map(|reading| self.codec.pair(reading)).collect();
        self.write(durability, |file, writing| {
            let flags = PutFlags::NO_OVERWRITE;
            pairs.iter().all(|(key, value)| {
                match file.readings.put_with_flags(writing, flags, key, value) {
                    Ok(()) => true,
                    Err(heed::Error::Mdb(MdbError::KeyExist)) => false,
                    Err(error) => panic!("LMDB: {error}"),
                }
            })
        })
    }

    fn version(&self, key: &Key) -> Option<Version> {
        let file = self.file();
        file.find(&file.read(), &key_bytes(key)).map(version)
    }

    fn replace_if(&self, reading: &Reading, expected: Version, durability: Durability) -> bool {
        let key = key_bytes(&reading.key);
        self.codec.value(reading, |value| {
            self.write(durability, |file, writing| {
                let same = file.find(writing, &key).map(version) == Some(expected);
                if same {
                    file.put(writing, &key, value);
                }
                same
            })
        })
    }

    fn merge(&self, key: &Key, change: Change, durability: Durability) -> bool {
        let key = key_bytes(key);
        self.write(durability, |file, writing| {
            let Some(old) = file.find(writing, &key) else { return false };
            // Copied, because the put may overwrite the page of the old value.
            let value = self.codec.merged(old, change, |value| value.to_vec());
            file.put(writing, &key, &value);
            true
        })
    }

    fn put_sheet(&self, sheet: &Sheet, durability: Durability) {
        let key = key_bytes(&sheet.key);
        self.codec.sheet(sheet, |value| {
            self.write(durability, |file, writing| {
                file.put(writing, &key, value);
                true
            });
        });
    }

    fn get_sheet(&self, _: Kind, key: &Key) -> Option<Digest> {
        let file = self.file();
        let reading = file.read();
        let value = file.find(&reading, &key_bytes(key))?;
        Some(self.codec.encoding.sheet_digest(value))
    }

    fn get(&self, key: &Key) -> Option<Digest> {
        let file = self.file();
        let reading = file.read();
        let value = file.find(&reading, &key_bytes(key))?;
        Some(self.codec.encoding.decode_owned(value).digest())
    }

    fn get_view(&self, key: &Key) -> Option<Digest> {
        let file = self.file();
        let reading = file.read();
        let value = file.find(&reading, &key_bytes(key))?;
        Some(self.codec.encoding.decode(value).digest())
    }

    fn range(&self, key: &Key, limit: usize) -> Found {
        let start = key_bytes(key);
        let end = end_of(&start);
        let (mut found, file) = (Found::default(), self.file());
        let reading = file.read();
        let bounds = (Bound::Included(&start[..]), Bound::Excluded(&end[..]));
        for pair in file.readings.range(&reading, &bounds).expect("LMDB reads").take(limit) {
            let (_, value) = pair.expect("LMDB reads");
            found.count(self.codec.encoding.decode(value).digest());
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
        self.write(durability, |file, writing| {
            file.readings.delete(writing, &key).expect("LMDB deletes")
        });
    }

    fn take_first(&self, partition: u32, durability: Durability) -> Option<Digest> {
        let (start, end) = (partition_start(partition), partition_end(partition));
        let mut taken = None;
        self.write(durability, |file, writing| {
            let first = file.readings.get_greater_than_or_equal_to(writing, &start);
            let Some((key, value)) = first.expect("LMDB reads").filter(|(key, _)| *key < &end[..])
            else {
                return false;
            };
            taken = Some(self.codec.encoding.decode_owned(value).digest());
            let key = key.to_vec();
            file.readings.delete(writing, &key).expect("LMDB deletes")
        });
        taken
    }

    fn drop_partition(&self, partition: u32, durability: Durability) {
        let (start, end) = (partition_start(partition), partition_end(partition));
        let bounds = (Bound::Included(&start[..]), Bound::Excluded(&end[..]));
        self.write(durability, |file, writing| {
            file.readings.delete_range(writing, &bounds).expect("LMDB deletes") > 0
        });
    }

    fn drop_partitions(&self, partitions: Range<u32>) {
        self.write(Durability::Sync, |file, writing| {
            for one in partitions {
                let (start, end) = (partition_start(one), partition_end(one));
                let bounds = (Bound::Included(&start[..]), Bound::Excluded(&end[..]));
                file.readings.delete_range(writing, &bounds).expect("LMDB deletes");
            }
            true
        });
    }

    fn sync(&self) {
        self.file().env.force_sync().expect("LMDB syncs");
    }

    fn compact(&self) {
        let (current, old) = (self.current.load(Ordering::Acquire), self.file());
        // This transaction blocks other writers until the next file is the current one.
        let writing = old.env.write_txn().expect("LMDB writes");
        let next = File::open(&path_of(&self.dir, self.first + current + 1));
        let mut pairs = Vec::with_capacity(PIECE);
        for pair in old.readings.iter(&writing).expect("LMDB reads") {
            let (key, value) = pair.expect("LMDB reads");
            pairs.push((key.to_vec(), value.to_vec()));
            if pairs.len() == PIECE {
                next.append(&pairs, Durability::Os);
                pairs.clear();
            }
        }
        next.append(&pairs, Durability::Os);
        next.env.force_sync().expect("LMDB syncs");
        remove(&old.path);
        assert!(self.files[current + 1].set(next).is_ok(), "it was empty");
        self.current.store(current + 1, Ordering::Release);
        writing.abort();
    }

    /// Does nothing: LMDB has no background work.
    fn settle(&self) {}

    fn close(self: Box<Self>) {
        self.sync();
    }
}

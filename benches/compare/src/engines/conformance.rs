//! Checks that every engine answers like a sorted map: runs random sequences of all operations in
//! all encodings, and closes and reopens the store in between.
//!
//! Owns: the oracle (the expected contents), the random sequences, and the comparison of each
//! answer. Some steps compare all entities.
//! Not here: speed, and durability, which only power cuts can test.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rowstone::retry::Rng;

use super::{Engine, open};
use crate::reading::{Data, Digest, Key, Reading};
use crate::sheet::{Kind, OwnedItem, Sheet};
use crate::store::{Change, Durability, Encoding, Filter, Found, Setup, Store};

/// Keys are in few partitions with few rows each, so that operations often meet the same keys.
const PARTITIONS: u64 = 4;
const ROWS: u64 = 60;
const STEPS: usize = 4_000;

/// A temporary directory, removed on drop.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("compare-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The expected contents of an engine.
#[derive(Default)]
struct Oracle(BTreeMap<(String, String), Reading>);

fn place(key: &Key) -> (String, String) {
    (key.partition.clone(), key.row.clone())
}

fn sum<'a>(readings: impl Iterator<Item = &'a Reading>) -> Found {
    readings.fold(Found::default(), |found, reading| Found {
        entities: found.entities + 1,
        digest: found.digest.wrapping_add(reading.digest()),
    })
}

impl Oracle {
    fn put(&mut self, reading: Reading) {
        self.0.insert(place(&reading.key), reading);
    }

    fn get(&self, key: &Key) -> Option<Digest> {
        self.0.get(&place(key)).map(Reading::digest)
    }

    fn range(&self, key: &Key, limit: usize) -> Found {
        let after = self.0.range(place(key)..).map(|(_, reading)| reading);
        sum(after.take_while(|reading| reading.key.partition == key.partition).take(limit))
    }

    fn take_first(&mut self, device: u32) -> Option<Digest> {
        let first = self.0.iter().find(|(_, reading)| reading.key.device == device);
        let place = first.map(|(place, _)| place.clone())?;
        self.0.remove(&place).map(|reading| reading.digest())
    }
}

/// A random sequence of operations on one engine in one encoding, with the expected contents.
struct Program<'a> {
    engine: Engine,
    dir: &'a Path,
    encoding: Encoding,
    compress: bool,
    store: Option<Box<dyn Store>>,
    oracle: Oracle,
    data: Data,
    rng: Rng,
    revision: u32,
}

impl Program<'_> {
    fn store(&self) -> &dyn Store {
        self.store.as_deref().unwrap()
    }

    fn open(&mut self) {
        self.store = Some(open(
            self.engine,
            &Setup {
                dir: self.dir,
                encoding: self.encoding,
                cache_bytes: 8 << 20,
                write_buffer_bytes: 4 << 20,
                compress: self.compress,
            },
        ));
    }

    fn durability(&mut self) -> Durability {
        if self.rng.chance(1, 50) { Durability::Sync } else { Durability::Os }
    }

    fn number(&mut self) -> u64 {
        self.rng.below(PARTITIONS) * 1_000 + self.rng.below(ROWS)
    }

    /// Returns a new revision of the entity at a random key.
    fn reading(&mut self) -> Reading {
        let number = self.number();
        self.revision += 1;
        self.data.revised(number, self.revision)
    }

    /// Returns readings of one partition, each key once, in any order.
    fn group(&mut self) -> Vec<Reading> {
        let partition = self.rng.below(PARTITIONS) * 1_000;
        let mut readings = BTreeMap::new();
        for _ in 0..self.rng.below(20) + 1 {
            self.revision += 1;
            let reading = self.data.revised(partition + self.rng.below(ROWS), self.revision);
            readings.insert(self.rng.next_u64(), reading);
        }
        let mut keys = std::collections::HashSet::new();
        readings.into_values().filter(|reading| keys.insert(place(&reading.key))).collect()
    }

    fn write(&mut self) {
        let durability = self.durability();
        match self.rng.below(6) {
            0 => {
                let reading = self.reading();
                self.store().put(&reading, durability);
                self.oracle.put(reading);
            }
            1 => {
                let group = self.group();
                self.store().put_group(&group, durability);
                group.into_iter().for_each(|reading| self.oracle.put(reading));
            }
            2 => {
                let reading = self.reading();
                let free = self.oracle.get(&reading.key).is_none();
                assert_eq!(self.store().insert(&reading, durability), free);
                if free {
                    self.oracle.put(reading);
                }
            }
            3 => {
                let group = self.group();
                let free = group.iter().all(|reading| self.oracle.get(&reading.key).is_none());
                assert_eq!(self.store().insert_group(&group, durability), free);
                if free {
                    group.into_iter().for_each(|reading| self.oracle.put(reading));
                }
            }
            4 => self.replace(durability),
            _ => {
                let (number, temperature) =
                    (self.number(), self.data.temperature(1, self.revision));
                let key = self.data.key(number);
                let merged = self.store().merge(&key, Change::Temperature(temperature), durability);
                let entity = self.oracle.0.get_mut(&place(&key));
                assert_eq!(merged, entity.is_some());
                if let Some(entity) = entity {
                    entity.temperature = temperature;
                }
            }
        }
    }

    /// Replaces an entity by its current version, and checks that an outdated version and the
    /// version of a deleted entity are refused.
    fn replace(&mut self, durability: Durability) {
        let reading = self.reading();
        let version = self.store().version(&reading.key);
        assert_eq!(version.is_some(), self.oracle.get(&reading.key).is_some());
        let Some(version) = version else { return };
        assert!(self.store().replace_if(&reading, version.clone(), durability));
        assert_ne!(self.store().version(&reading.key), Some(version));
        self.oracle.put(reading);
        let again = self.oracle.0.values().next().unwrap().clone();
        let seen = self.store().version(&again.key).unwrap();
        assert!(self.store().merge(&again.key, Change::Temperature(again.temperature), durability));
        assert!(!self.store().replace_if(&again, seen, durability), "an outdated version");
        if self.rng.chance(1, 4) {
            let seen = self.store().version(&again.key).unwrap();
            self.store().delete(&again.key, durability);
            assert!(!self.store().replace_if(&again, seen, durability), "nothing is there");
            self.oracle.0.remove(&place(&again.key));
        }
    }

    fn remove(&mut self) {
        let durability = self.durability();
        match self.rng.below(12) {
            0 => {
                let device = self.rng.below(PARTITIONS) as u32;
                self.store().drop_partition(device, durability);
                self.oracle.0.retain(|_, reading| reading.key.device != device);
            }
            1..6 => {
                let device = self.rng.below(PARTITIONS) as u32;
                let expected = self.oracle.take_first(device);
                assert_eq!(self.store().take_first(device, durability), expected);
            }
            _ => {
                let number = self.number();
                let key = self.data.key(number);
                self.store().delete(&key, durability);
                self.oracle.0.remove(&place(&key));
            }
        }
    }

    fn read(&mut self) {
        let number = self.number();
        let mut key = self.data.key(number);
        if self.rng.chance(1, 5) {
            key = self.data.missing_key(number);
        }
        let expected = self.oracle.get(&key);
        assert_eq!(self.store().get(&key), expected);
        assert_eq!(self.store().get_view(&key), expected);
        let limit = self.rng.below(2 * ROWS) as usize;
        assert_eq!(self.store().range(&key, limit), self.oracle.range(&key, limit));
    }

    /// Loads random readings. Half of the loads are in key order, for which engines have a fast
    /// path.
    fn load(&mut self) {
        let durability = self.durability();
        let (mut readings, ordered) = (BTreeMap::new(), self.rng.chance(1, 2));
        for _ in 0..self.rng.below(2 * ROWS) {
            let reading = self.reading();
            readings.insert(place(&reading.key), reading);
        }
        let mut readings: Vec<Reading> = readings.into_values().collect();
        if !ordered {
            readings.sort_by_key(|reading| reading.digest());
        } else if self.rng.chance(1, 2) {
            // Only the last reading is out of order: its key is the lowest of all.
            let mut odd = self.reading();
            odd.key = self.data.key(0);
            readings.push(odd);
        }
        self.store().load(&mut readings.clone().into_iter(), durability);
        readings.into_iter().for_each(|reading| self.oracle.put(reading));
    }

    fn compare(&self) {
        let all = || self.oracle.0.values();
        assert_eq!(self.store().scan(), sum(all()));
        let limit = |thousandths| Filter::Below(self.data.temperature_below(thousandths));
        let between = [Filter::Between(0.0, 50.0), Filter::Between(49.5, 50.5)];
        for filter in [0, 10, 500, 1000].map(limit).into_iter().chain(between) {
            let matches = all().filter(|reading| filter.accepts_entity(&reading.properties()));
            assert_eq!(self.store().filter(filter), sum(matches));
        }
    }

    /// Closes the store, or drops it without a close, like a process that ends. Then opens it
    /// again.
    fn reopen(&mut self) {
        let store = self.store.take().unwrap();
        if self.rng.chance(1, 2) {
            store.sync();
            drop(store);
        } else {
            store.close();
        }
        self.open();
    }

    fn run(&mut self) {
        self.open();
        for step in 0..STEPS {
            match self.rng.below(100) {
                0 => self.load(),
                1 => self.compare(),
                2 if self.rng.chance(1, 4) => self.store().compact(),
                3 if self.rng.chance(1, 4) => self.reopen(),
                4 if self.rng.chance(1, 4) => self.store().sync(),
                5 if self.rng.chance(1, 8) => self.store().settle(),
                6..20 => self.remove(),
                20..55 => self.read(),
                _ => self.write(),
            }
            if step % 1_000 == 999 {
                self.compare();
            }
        }
        self.store.take().unwrap().close();
        self.open();
        self.compare();
        self.store.take().unwrap().close();
    }
}

fn check(engine: Engine) {
    for &encoding in engine.encodings() {
        for (seed, compress) in [(1, false), (2, true)] {
            let dir = Dir::new(&format!("{}-{encoding:?}-{seed}", engine.name()));
            let mut program = Program {
                engine,
                dir: &dir.0,
                encoding,
                compress,
                store: None,
                oracle: Oracle::default(),
                data: Data::telemetry(seed),
                rng: Rng::from_seed(seed),
                revision: 0,
            };
            program.run();
        }
    }
    check_sheets(engine);
    check_threads(engine);
}

/// Checks both kinds of sheets (entities with many or large properties), before and after merges
/// and a reopen.
fn check_sheets(engine: Engine) {
    for &encoding in engine.encodings() {
        let dir = Dir::new(&format!("{}-{encoding:?}-sheets", engine.name()));
        let setup = Setup {
            dir: &dir.0,
            encoding,
            cache_bytes: 8 << 20,
            write_buffer_bytes: 4 << 20,
            compress: false,
        };
        let mut store = open(engine, &setup);
        let mut sheets: Vec<Sheet> = (0..12)
            .map(|n| Sheet::new(1, if n < 8 { Kind::Wide } else { Kind::Large }, n))
            .collect();
        sheets.iter().for_each(|sheet| store.put_sheet(sheet, Durability::Os));
        for round in 0..3 {
            for (number, sheet) in sheets.iter_mut().enumerate().filter(|(n, _)| n % 3 != round) {
                let counter = (number + 100 * round) as i64;
                let change = Change::Counter(sheet.kind, counter);
                assert!(store.merge(&sheet.key, change, Durability::Os));
                sheet.items[sheet.kind.counter()] = OwnedItem::Whole(counter);
            }
            for sheet in &sheets {
                assert_eq!(store.get_sheet(sheet.kind, &sheet.key), Some(sheet.digest()));
            }
            store.close();
            store = open(engine, &setup);
        }
        let missing = Kind::Wide.key(99);
        assert!(!store.merge(&missing, Change::Counter(Kind::Wide, 1), Durability::Os));
        assert_eq!(store.get_sheet(Kind::Wide, &missing), None);
        store.close();
    }
}

/// Checks concurrent inserts, replacements, merges and takes (removals of a partition's first
/// entity) by four threads: for each key and version exactly one thread succeeds.
fn check_threads(engine: Engine) {
    const THREADS: u64 = 4;
    const KEYS: u64 = 300;
    let dir = Dir::new(&format!("{}-threads", engine.name()));
    let setup = Setup {
        dir: &dir.0,
        encoding: engine.encodings()[0],
        cache_bytes: 8 << 20,
        write_buffer_bytes: 4 << 20,
        compress: false,
    };
    let (store, data) = (open(engine, &setup), Data::telemetry(3));
    let [inserted, replaced, taken] = [const { AtomicU64::new(0) }; 3];
    let each = |work: &(dyn Fn(u64) + Sync)| {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || work(thread));
            }
        });
    };
    each(&|thread| {
        for number in 0..KEYS {
            let reading = data.revised(number, thread as u32);
            inserted
                .fetch_add(u64::from(store.insert(&reading, Durability::Os)), Ordering::Relaxed);
        }
    });
    assert_eq!(inserted.load(Ordering::Relaxed), KEYS);
    let seen: Vec<_> = (0..KEYS).map(|number| store.version(&data.key(number)).unwrap()).collect();
    each(&|thread| {
        for number in 0..KEYS {
            let reading = data.revised(number, 10 + thread as u32);
            let done = store.replace_if(&reading, seen[number as usize].clone(), Durability::Os);
            replaced.fetch_add(u64::from(done), Ordering::Relaxed);
        }
    });
    assert_eq!(replaced.load(Ordering::Relaxed), KEYS);
    // A merge sets only the temperature. So after a concurrent put and merge, in either order, the
    // put must have set all other properties.
    each(&|thread| {
        for number in 0..KEYS {
            if thread % 2 == 0 {
                store.put(&data.revised(number, 20), Durability::Os);
            } else {
                assert!(store.merge(&data.key(number), Change::Temperature(1.5), Durability::Os));
            }
        }
    });
    for number in 0..KEYS {
        let put = data.revised(number, 20);
        let merged = Reading { temperature: 1.5, ..put.clone() };
        let found = store.get(&put.key).unwrap();
        assert!(found == put.digest() || found == merged.digest(), "of {number}");
    }
    each(&|_| {
        while store.take_first(0, Durability::Os).is_some() {
            taken.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert_eq!(taken.load(Ordering::Relaxed), KEYS);
    assert_eq!(store.scan(), Found::default());
    check_syncs(&*store, &data);
    store.close();
}

/// Checks that every commit of sixteen threads completes when all of them commit durably at once.
/// An engine may share one sync among several commits.
fn check_syncs(store: &dyn Store, data: &Data) {
    std::thread::scope(|scope| {
        for thread in 0..16 {
            scope.spawn(move || {
                for number in 0..5 {
                    store.put(&data.reading(thread * 10 + number), Durability::Sync);
                }
            });
        }
    });
    assert_eq!(store.scan().entities, 80);
}

#[test]
fn rowstone_conforms() {
    check(Engine::Rowstone);
}

#[cfg(feature = "rocksdb")]
#[test]
fn rocksdb_conforms() {
    check(Engine::RocksDb);
}

#[cfg(feature = "fjall")]
#[test]
fn fjall_conforms() {
    check(Engine::Fjall);
}

#[cfg(feature = "lmdb")]
#[test]
fn lmdb_conforms() {
    check(Engine::Lmdb);
}

#[cfg(feature = "redb")]
#[test]
fn redb_conforms() {
    check(Engine::Redb);
}

#[cfg(feature = "sqlite")]
#[test]
fn sqlite_conforms() {
    check(Engine::Sqlite);
}

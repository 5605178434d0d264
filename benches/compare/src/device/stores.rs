//! Implements the stores of the device-day benchmark, each configured for a small device.
//!
//! A row holds a temperature, a humidity and a battery charge: two doubles and an integer. rowstone
//! has a partition for each sensor and the time as its RowKey, a text of 19 characters. SQLite and
//! LMDB store sensor and second as integers. This is the shortest encoding, which favours them.
//! Not here: the order of writes (`device`).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rowstone::{
    Db, Durability, Entity, KeyRange, Options, Table, clock::ManualClock, options::Background,
    stats::Wear,
};

use super::{Kind, SENSORS, Window};

pub trait Store {
    /// Writes the rows of one second.
    fn write(&mut self, second: u64);
    /// Called at the end of each second. If `is_due`, makes all earlier writes as durable as
    /// `window` demands.
    fn passed(&mut self, is_due: bool, window: Window);
    /// Called when rows older than `second` are no longer needed.
    fn forget(&mut self, second: u64);
    /// Counts the rows.
    fn count(&self) -> u64;
    /// Returns the store's own counters of the bytes written, if it has any.
    fn wear(&self) -> Option<Wear>;
    fn close(self: Box<Self>);
}

pub fn is_built(kind: Kind) -> bool {
    match kind {
        Kind::Rowstone | Kind::RowstoneEdge => true,
        Kind::Sqlite => cfg!(feature = "sqlite"),
        Kind::Lmdb => cfg!(feature = "lmdb"),
    }
}

pub fn open(kind: Kind, dir: &Path, days_kept: u64) -> Box<dyn Store> {
    match kind {
        Kind::Rowstone => Box::new(Rowstone::open(Options::default(), dir, days_kept)),
        Kind::RowstoneEdge => Box::new(Rowstone::open(Options::edge(), dir, days_kept)),
        #[cfg(feature = "sqlite")]
        Kind::Sqlite => Box::new(sqlite::Sqlite::open(dir)),
        #[cfg(feature = "lmdb")]
        Kind::Lmdb => Box::new(lmdb::Lmdb::open(dir)),
        #[cfg(not(all(feature = "sqlite", feature = "lmdb")))]
        _ => panic!("it is not built in"),
    }
}

/// Returns the readings of a sensor: a slow wave with some noise, two decimals.
fn reading(sensor: u64, second: u64) -> (f64, f64, i32) {
    let mixed = (second * SENSORS + sensor).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let noise = mixed >> 56;
    let wave = (second as f64 / 7_000.0 + sensor as f64).sin();
    let round = |value: f64| (value * 100.0).round() / 100.0;
    let battery = 100 - (second / 20_000 % 100) as i32;
    (round(21.0 + 8.0 * wave + noise as f64 / 100.0), round(50.0 - 20.0 * wave), battery)
}

/// 2024-01-01T00:00:00Z in ticks since 1601.
const START: u64 = 133_485_408_000_000_000;

struct Rowstone {
    db: Db,
    readings: Table,
    clock: Arc<ManualClock>,
    names: Vec<String>,
}

impl Rowstone {
    /// Opens without background threads, because time is simulated. Commits are grouped for up to a
    /// minute.
    fn open(options: Options, dir: &Path, days_kept: u64) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let db = options
            .clock(clock.clone())
            .background(Background::Manual)
            .durability(Durability::Buffered)
            .max_commit_delay(Duration::from_secs(60))
            .open(dir)
            .expect("rowstone opens");
        let readings = db.table_or_create("Readings").expect("a table");
        let kept = Duration::from_secs(days_kept * 86_400);
        db.set_ttl("Readings", Some(kept)).expect("rows that expire");
        let names = (0..SENSORS).map(|sensor| format!("sensor-{sensor:02}")).collect();
        Self { db, readings, clock, names }
    }
}

impl Store for Rowstone {
    fn write(&mut self, second: u64) {
        let (day, rest) = (second / 86_400, second % 86_400);
        let (hour, minute, second_of) = (rest / 3_600, rest / 60 % 60, rest % 60);
        // A day above 31 does no harm: the RowKeys only need the right order and the right length.
        let row = format!("2024-01-{:02}T{hour:02}:{minute:02}:{second_of:02}", day + 1);
        for (sensor, name) in (0..).zip(&self.names) {
            let (celsius, humidity, battery) = reading(sensor, second);
            let entity = Entity::new(name, &row)
                .with("Battery", battery)
                .with("Celsius", celsius)
                .with("Humidity", humidity);
            self.readings.upsert(entity).expect("room on the disk");
        }
    }

    fn passed(&mut self, is_due: bool, window: Window) {
        self.clock.advance(Duration::from_secs(1));
        // With a loss window of a minute no sync is needed here, because background steps sync
        // within the commit delay.
        if is_due && window == Window::Second {
            self.db.sync().expect("a sync");
        }
        while self.db.step(Duration::ZERO) {}
    }

    /// Does nothing: the table's time to live deletes the rows.
    fn forget(&mut self, _: u64) {}

    fn count(&self) -> u64 {
        self.readings.scan(KeyRange::all()).count().expect("a read")
    }

    fn wear(&self) -> Option<Wear> {
        Some(self.db.wear())
    }

    fn close(self: Box<Self>) {
        self.db.close().expect("no other handle is open");
    }
}

/// SQLite with a table without rowids, a write-ahead log, and its default sizes: a cache of 2 MB, a
/// checkpoint every thousand pages. Rows that become durable together are one transaction.
#[cfg(feature = "sqlite")]
mod sqlite {
    use std::path::Path;

    use rowstone::stats::Wear;
    use rusqlite::{Connection, params};

    use super::super::Window;
    use super::{SENSORS, Store, reading};

    pub struct Sqlite(Connection);

    const CREATE: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
        CREATE TABLE readings (sensor INTEGER NOT NULL, at INTEGER NOT NULL, celsius REAL, humidity REAL, battery INTEGER,
        PRIMARY KEY (sensor, at)) WITHOUT ROWID; BEGIN";

    impl Sqlite {
        pub fn open(dir: &Path) -> Self {
            let connection = Connection::open(dir.join("readings.sqlite")).expect("SQLite opens");
            connection.execute_batch(CREATE).expect("SQLite creates a table");
            Self(connection)
        }

        fn run(&self, sql: &str) {
            self.0.execute_batch(sql).expect("SQLite runs");
        }
    }

    impl Store for Sqlite {
        fn write(&mut self, second: u64) {
            let put = self.0.prepare_cached("REPLACE INTO readings VALUES (?1, ?2, ?3, ?4, ?5)");
            let mut put = put.expect("SQL");
            for sensor in 0..SENSORS {
                let (celsius, humidity, battery) = reading(sensor, second);
                let row = params![sensor as i64, second as i64, celsius, humidity, battery];
                put.execute(row).expect("SQLite writes");
            }
        }

        fn passed(&mut self, is_due: bool, _: Window) {
            if is_due {
                self.run("COMMIT; BEGIN");
            }
        }

        fn forget(&mut self, second: u64) {
            let sql = "DELETE FROM readings WHERE sensor = ?1 AND at < ?2";
            let mut delete = self.0.prepare_cached(sql).expect("SQL");
            for sensor in 0..SENSORS {
                let older = params![sensor as i64, second as i64];
                delete.execute(older).expect("SQLite deletes");
            }
        }

        fn count(&self) -> u64 {
            let count = self.0.query_row("SELECT count(*) FROM readings", [], |row| row.get(0));
            count.map(|count: i64| count as u64).expect("SQLite counts")
        }

        fn wear(&self) -> Option<Wear> {
            None
        }

        fn close(self: Box<Self>) {
            self.run("COMMIT");
            self.0.close().expect("SQLite closes");
        }
    }
}

/// LMDB with keys of ten bytes. Rows that become durable together are one transaction, which LMDB
/// syncs.
#[cfg(feature = "lmdb")]
mod lmdb {
    use std::ops::Bound;
    use std::path::Path;

    use heed::types::Bytes;
    use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, WithTls};
    use rowstone::stats::Wear;

    use super::super::Window;
    use super::{SENSORS, Store, reading};

    type Pairs = Vec<([u8; 10], [u8; 20])>;

    /// An open transaction borrows its environment and cannot be stored next to it. So rows that
    /// become durable together are collected first.
    pub struct Lmdb {
        env: Env<WithTls>,
        readings: Database<'static, Bytes, Bytes>,
        pending: Pairs,
        forget: Option<u64>,
    }

    /// The size of the memory map. A map larger than the data costs no disk space, because the file
    /// grows only as it is filled.
    const MAP_BYTES: usize = 4 << 30;

    fn key(sensor: u64, second: u64) -> [u8; 10] {
        let mut key = [0; 10];
        key[..2].copy_from_slice(&(sensor as u16).to_be_bytes());
        key[2..].copy_from_slice(&second.to_be_bytes());
        key
    }

    impl Lmdb {
        pub fn open(dir: &Path) -> Self {
            let flags = EnvFlags::NO_SUB_DIR | EnvFlags::NO_MEM_INIT | EnvFlags::NO_READ_AHEAD;
            let mut options = EnvOpenOptions::new();
            options.map_size(MAP_BYTES);
            // SAFETY: the flags keep LMDB's locking on, and nothing else changes the file while it
            // is mapped.
            let env = unsafe { options.flags(flags).open(dir.join("readings.mdb")) };
            let env: Env<WithTls> = env.expect("LMDB opens");
            let writing = env.write_txn().expect("LMDB writes");
            let opened = env.create_databases_and_commit(writing, |opener, writing| {
                let readings = opener.create_database::<Bytes, Bytes>(writing, None)?;
                Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(readings))
            });
            let readings = opened.expect("LMDB opens").unwrap_commit();
            Self { env, readings, pending: Vec::new(), forget: None }
        }
    }

    impl Store for Lmdb {
        fn write(&mut self, second: u64) {
            for sensor in 0..SENSORS {
                let (celsius, humidity, battery) = reading(sensor, second);
                let mut value = [0; 20];
                value[..8].copy_from_slice(&celsius.to_le_bytes());
                value[8..16].copy_from_slice(&humidity.to_le_bytes());
                value[16..].copy_from_slice(&battery.to_le_bytes());
                self.pending.push((key(sensor, second), value));
            }
        }

        fn passed(&mut self, is_due: bool, _: Window) {
            if !is_due {
                return;
            }
            let mut writing = self.env.write_txn().expect("LMDB writes");
            self.pending.sort_unstable();
            for (key, value) in self.pending.drain(..) {
                self.readings.put(&mut writing, &key, &value).expect("LMDB writes");
            }
            if let Some(second) = self.forget.take() {
                for sensor in 0..SENSORS {
                    let (first, end) = (key(sensor, 0), key(sensor, second));
                    let older = (Bound::Included(&first[..]), Bound::Excluded(&end[..]));
                    self.readings.delete_range(&mut writing, &older).expect("LMDB deletes");
                }
            }
            writing.commit().expect("LMDB commits");
        }

        fn forget(&mut self, second: u64) {
            self.forget = Some(second);
        }

        fn count(&self) -> u64 {
            let reading = self.env.read_txn().expect("LMDB reads");
            self.readings.len(&reading).expect("LMDB counts")
        }

        fn wear(&self) -> Option<Wear> {
            None
        }

        fn close(self: Box<Self>) {
            self.env.prepare_for_closing().wait();
        }
    }
}

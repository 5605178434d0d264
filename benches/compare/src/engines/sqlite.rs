//! Implements `Store` with SQLite, through the crate rusqlite. [`ABOUT`] describes its
//! configuration in reports.
//!
//! Invariant: the writer sets synchronous=FULL for `Durability::Sync`, and NORMAL for
//! `Durability::Os`. With NORMAL, commits are written to the log without a sync. Checkpoints still
//! sync, so the file stays intact after a power cut.
//!
//! Not here: the encoding of values (`encoding.rs`), versions (`shared.rs`).

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::types::{ToSql, ValueRef};
use rusqlite::{Connection, OptionalExtension, Params, Row, params, params_from_iter};

use super::About;
use super::shared::{Versions, available_memory, pieces};
use crate::encoding;
use crate::reading::{Digest, Key, OwnedProperties, Properties, Reading, partition_of};
use crate::sheet::{self, Item, Kind, OwnedItem, Sheet};
use crate::store::{Change, Durability, Encoding, Filter, Found, Setup, Store, Version};

pub const ABOUT: About = About {
    name: "SQLite",
    version: "3, bundled (crate rusqlite 0.41.1)",
    settings: &[
        "A table WITHOUT ROWID whose primary key is (partition, row): one tree with the rows in \
         its leaves.",
        "Write-ahead log. Sync is synchronous=FULL, one sync a commit. Os is synchronous=NORMAL, \
         which syncs only in checkpoints. A crash of the process loses nothing.",
        "One connection writes, behind a lock of the application, which is faster than waiting for \
         the file lock. Readers have connections of their own.",
        "Pages of 4 KiB, read by mmap (2 GiB at most; not if the file is larger than the memory of \
         the process when it opens the file), and a third of the cache for each connection.",
        "A checkpoint whenever the log is as large as the write buffers of the other engines.",
        "Statements are prepared once and cached. Groups and loads are transactions; loads commit \
         50 000 entities at a time, sorted within.",
        "Native: a column for each property, filters in SQL without an index, as in all engines.",
        "No compression: SQLite has none. At rest means VACUUM and a checkpoint that empties the \
         log.",
    ],
};

const PIECE: usize = 50_000;
const PAGE_BYTES: u64 = 4 << 10;
/// The requested size of the memory map, which SQLite reduces to its compiled limit.
const MAP_BYTES: i64 = 1 << 40;
const STATEMENTS: usize = 32;

/// The SQL statements for readings. A table has a column for each property, or one column with the
/// encoded value.
struct Sql {
    create: &'static str,
    put: &'static str,
    insert: &'static str,
    get: &'static str,
    range: &'static str,
    scan: &'static str,
    take_first: &'static str,
}

const NATIVE: Sql = Sql {
    create: "CREATE TABLE IF NOT EXISTS readings (partition TEXT NOT NULL, row TEXT NOT NULL, \
             version INTEGER NOT NULL, at INTEGER, battery INTEGER, counter INTEGER, firmware \
             TEXT, \
             humidity REAL, note TEXT, online INTEGER, pressure REAL, site TEXT, temperature REAL, \
             PRIMARY KEY (partition, row)) WITHOUT ROWID",
    put: "REPLACE INTO readings VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    insert: "INSERT INTO readings VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) \
             ON CONFLICT DO NOTHING",
    get: "SELECT at, battery, counter, firmware, humidity, note, online, pressure, site, \
          temperature \
          FROM readings WHERE partition = ?1 AND row = ?2",
    range: "SELECT at, battery, counter, firmware, humidity, note, online, pressure, site, \
            temperature \
            FROM readings WHERE partition = ?1 AND row >= ?2 ORDER BY row LIMIT ?3",
    scan: "SELECT at, battery, counter, firmware, humidity, note, online, pressure, site, \
           temperature \
           FROM readings ORDER BY partition, row",
    take_first: "DELETE FROM readings WHERE partition = ?1 \
                 AND row = (SELECT min(row) FROM readings WHERE partition = ?1) \
                 RETURNING at, battery, counter, firmware, humidity, note, online, pressure, \
                 site, temperature",
};

const FILTER: &str = "SELECT at, battery, counter, firmware, humidity, note, online, pressure, \
                      site, temperature \
                      FROM readings WHERE temperature < ?1 ORDER BY partition, row";
const FILTER_BETWEEN: &str = "SELECT at, battery, counter, firmware, humidity, note, online, \
                              pressure, site, temperature \
                              FROM readings WHERE humidity >= ?1 AND humidity < ?2 \
                              ORDER BY partition, row";
const VERSION: &str = "SELECT version FROM readings WHERE partition = ?1 AND row = ?2";
const REPLACE_IF: &str = "UPDATE readings SET version = ?3, at = ?4, battery = ?5, counter = ?6, \
                          firmware = ?7, \
                          humidity = ?8, note = ?9, online = ?10, pressure = ?11, site = ?12, \
                          temperature = ?13 \
                          WHERE partition = ?1 AND row = ?2 AND version = ?14";
const MERGE: &str =
    "UPDATE readings SET version = ?3, temperature = ?4 WHERE partition = ?1 AND row = ?2";

const VALUES: Sql = Sql {
    create: "CREATE TABLE IF NOT EXISTS readings (partition TEXT NOT NULL, row TEXT NOT NULL, \
             value BLOB NOT NULL, PRIMARY KEY (partition, row)) WITHOUT ROWID",
    put: "REPLACE INTO readings VALUES (?1, ?2, ?3)",
    insert: "INSERT INTO readings VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
    get: "SELECT value FROM readings WHERE partition = ?1 AND row = ?2",
    range: "SELECT value FROM readings WHERE partition = ?1 AND row >= ?2 ORDER BY row LIMIT ?3",
    scan: "SELECT value FROM readings ORDER BY partition, row",
    take_first: "DELETE FROM readings WHERE partition = ?1 \
                 AND row = (SELECT min(row) FROM readings WHERE partition = ?1) RETURNING value",
};

const DELETE: &str = "DELETE FROM readings WHERE partition = ?1 AND row = ?2";
const DROP: &str = "DELETE FROM readings WHERE partition = ?1";

/// The SQL statements for sheets (entities with many or large properties) of one kind. For rows of
/// this length SQLite's manual recommends a separate key index.
struct SheetSql {
    create: String,
    put: String,
    get: String,
    merge: String,
}

static SHEETS: LazyLock<[SheetSql; 2]> =
    LazyLock::new(|| [Kind::Wide, Kind::Large].map(SheetSql::new));

fn sheet_sql(kind: Kind) -> &'static SheetSql {
    &SHEETS[kind as usize]
}

impl SheetSql {
    fn new(kind: Kind) -> Self {
        let (names, counter) = (kind.names().join(", "), &kind.names()[kind.counter()]);
        let places: Vec<String> = (1..kind.names().len() + 4).map(|n| format!("?{n}")).collect();
        let (table, places) = (format!("{kind:?}"), places.join(", "));
        Self {
            create: format!(
                "CREATE TABLE IF NOT EXISTS {table} (partition TEXT NOT NULL, row TEXT NOT NULL, \
                 version INTEGER NOT NULL, {names}, PRIMARY KEY (partition, row))"
            ),
            put: format!("REPLACE INTO {table} VALUES ({places})"),
            get: format!("SELECT {names} FROM {table} WHERE partition = ?1 AND row = ?2"),
            merge: format!(
                "UPDATE {table} SET version = ?3, {counter} = ?4 WHERE partition = ?1 AND row = ?2"
            ),
        }
    }
}

/// The writing connection and its `synchronous` setting.
struct Writer {
    connection: Connection,
    durability: Durability,
}

/// An open SQLite. The writing connection closes last, so that SQLite checkpoints the log.
/// * One connection writes, behind a lock of the application. SQLite has one writer at a time
///   anyway, and its waiting writers would poll the file lock with sleeps in between. Readers have
///   a connection each, from a pool.
/// * With the native encoding, a table has a column for each property, and SQL statements check
///   conditions and filters. With the JSON encoding, a table has one column for all properties, and
///   conditions are checked between BEGIN IMMEDIATE and COMMIT.
struct Sqlite {
    readers: Mutex<Vec<Connection>>,
    writer: Mutex<Writer>,
    path: PathBuf,
    cache_kib: u64,
    log_pages: u64,
    sql: &'static Sql,
    encoding: Encoding,
    versions: Versions,
}

pub fn open(setup: &Setup<'_>) -> Box<dyn Store> {
    let sql = if setup.encoding == Encoding::Native { &NATIVE } else { &VALUES };
    let path = setup.dir.join("readings.sqlite");
    let cache_kib = setup.cache_bytes / 3 / 1024;
    let log_pages = (setup.write_buffer_bytes / PAGE_BYTES).max(1);
    let connection = connect(&path, cache_kib, log_pages);
    connection.execute_batch(sql.create).expect("SQLite creates a table");
    Box::new(Sqlite {
        readers: Mutex::new(Vec::new()),
        writer: Mutex::new(Writer { connection, durability: Durability::Sync }),
        path,
        cache_kib,
        log_pages,
        sql,
        encoding: setup.encoding,
        versions: Versions::new(),
    })
}

fn connect(path: &PathBuf, cache_kib: u64, log_pages: u64) -> Connection {
    let connection = Connection::open(path).expect("SQLite opens");
    connection.busy_timeout(Duration::from_secs(60)).expect("SQLite waits");
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // A file larger than memory is not mapped, because page faults also read neighbouring pages.
    let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let map_bytes = if bytes > available_memory() { 0 } else { MAP_BYTES };
    let settings = format!(
        "PRAGMA page_size = {PAGE_BYTES}; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
         PRAGMA mmap_size = {map_bytes}; PRAGMA cache_size = -{cache_kib}; \
         PRAGMA wal_autocheckpoint = {log_pages}; PRAGMA temp_store = MEMORY;"
    );
    connection.execute_batch(&settings).expect("SQLite accepts its settings");
    connection
}

impl Sqlite {
    fn read<R>(&self, with: impl FnOnce(&Connection) -> rusqlite::Result<R>) -> R {
        let pooled = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection =
            pooled.unwrap_or_else(|| connect(&self.path, self.cache_kib, self.log_pages));
        let result = with(&connection).expect("SQLite reads");
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        result
    }

    fn writer(&self, durability: Durability) -> MutexGuard<'_, Writer> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.durability != durability {
            let synchronous = match durability {
                Durability::Sync => "FULL",
                Durability::Os => "NORMAL",
            };
            let set = writer.connection.pragma_update(None, "synchronous", synchronous);
            set.expect("SQLite accepts a setting");
            writer.durability = durability;
        }
        writer
    }

    /// Runs one statement in its own transaction, and returns the number of changed rows.
    fn write(&self, durability: Durability, sql: &str, params: impl Params) -> usize {
        let writer = self.writer(durability);
        let mut statement = writer.connection.prepare_cached(sql).expect("SQL");
        statement.execute(params).expect("SQLite writes")
    }

    /// Runs `write` in one transaction, which is aborted if `write` returns `false`.
    fn transact(
        &self,
        durability: Durability,
        write: impl FnOnce(&Connection) -> rusqlite::Result<bool>,
    ) -> bool {
        let writer = self.writer(durability);
        let run = |sql: &str| {
            let mut statement = writer.connection.prepare_cached(sql).expect("SQL");
            statement.execute([]).expect("SQLite begins and ends");
        };
        run("BEGIN IMMEDIATE");
        let done = write(&writer.connection).expect("SQLite writes");
        run(if done { "COMMIT" } else { "ROLLBACK" });
        done
    }

    fn execute(
        &self,
        connection: &Connection,
        sql: &str,
        reading: &Reading,
    ) -> rusqlite::Result<usize> {
        let (key, version) = (&reading.key, self.versions.next());
        let mut statement = connection.prepare_cached(sql)?;
        if self.encoding == Encoding::Native {
            return statement.execute(params![
                key.partition,
                key.row,
                version as i64,
                reading.at,
                reading.battery,
                reading.counter,
                reading.firmware,
                reading.humidity,
                reading.note,
                reading.online,
                reading.pressure,
                reading.site,
                reading.temperature,
            ]);
        }
        let mut value = Vec::with_capacity(256);
        self.encoding.encode(reading, version, &mut value);
        statement.execute(params![key.partition, key.row, value])
    }

    fn digest(&self, row: &Row<'_>) -> rusqlite::Result<Digest> {
        if self.encoding == Encoding::Native {
            return Ok(properties(row)?.digest());
        }
        Ok(self.encoding.decode(row.get_ref(0)?.as_blob()?).digest())
    }

    fn digest_owned(&self, row: &Row<'_>) -> rusqlite::Result<Digest> {
        if self.encoding != Encoding::Native {
            return Ok(self.encoding.decode_owned(row.get_ref(0)?.as_blob()?).digest());
        }
        let owned = OwnedProperties {
            at: row.get(0)?,
            battery: row.get(1)?,
            counter: row.get(2)?,
            firmware: row.get(3)?,
            humidity: row.get(4)?,
            note: row.get(5)?,
            online: row.get(6)?,
            pressure: row.get(7)?,
            site: row.get(8)?,
            temperature: row.get(9)?,
        };
        Ok(owned.digest())
    }

    fn find<R>(
        &self,
        connection: &Connection,
        sql: &str,
        key: &Key,
        with: impl FnOnce(&Row<'_>) -> rusqlite::Result<R>,
    ) -> rusqlite::Result<Option<R>> {
        let mut statement = connection.prepare_cached(sql)?;
        statement.query_row(params![key.partition, key.row], with).optional()
    }

    fn sum(&self, sql: &str, params: impl Params) -> Found {
        let mut found = Found::default();
        self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query(params)?;
            while let Some(row) = rows.next()? {
                found.count(self.digest(row)?);
            }
            Ok(())
        });
        found
    }

    /// Returns the version of an entity, from its column or from the first bytes of the encoded
    /// value.
    fn version_in(&self, connection: &Connection, key: &Key) -> rusqlite::Result<Option<u64>> {
        if self.encoding == Encoding::Native {
            let found = self.find(connection, VERSION, key, |row| row.get::<_, i64>(0))?;
            return Ok(found.map(|version| version as u64));
        }
        let of = |row: &Row<'_>| Ok(encoding::version(row.get_ref(0)?.as_blob()?));
        self.find(connection, self.sql.get, key, of)
    }
}

/// Converts the value of a column into an item of a sheet.
fn item_of(value: ValueRef<'_>) -> Item<'_> {
    match value {
        ValueRef::Integer(value) => Item::Whole(value),
        ValueRef::Real(value) => Item::Real(value),
        ValueRef::Text(value) | ValueRef::Blob(value) => Item::Bytes(value),
        ValueRef::Null => panic!("every column was written"),
    }
}

/// Reads a row of the native table, borrowing its texts.
fn properties<'row>(row: &'row Row<'_>) -> rusqlite::Result<Properties<'row>> {
    let real = |at: usize| -> rusqlite::Result<f64> {
        match row.get_ref(at)? {
            ValueRef::Real(value) => Ok(value),
            // SQLite may store a whole number of a real column as an integer.
            other => Ok(other.as_i64()? as f64),
        }
    };
    Ok(Properties {
        at: row.get_ref(0)?.as_i64()?,
        battery: row.get_ref(1)?.as_i64()? as i32,
        counter: row.get_ref(2)?.as_i64()?,
        firmware: row.get_ref(3)?.as_str()?,
        humidity: real(4)?,
        note: row.get_ref(5)?.as_str()?,
        online: row.get_ref(6)?.as_i64()? != 0,
        pressure: real(7)?,
        site: row.get_ref(8)?.as_str()?,
        temperature: real(9)?,
    })
}

impl Store for Sqlite {
    fn put(&self, reading: &Reading, durability: Durability) {
        let writer = self.writer(durability);
        self.execute(&writer.connection, self.sql.put, reading).expect("SQLite writes");
    }

    fn put_group(&self, readings: &[Reading], durability: Durability) {
        self.transact(durability, |connection| {
            for reading in readings {
                self.execute(connection, self.sql.put, reading)?;
            }
            Ok(true)
        });
    }

    fn load(&self, readings: &mut dyn Iterator<Item = Reading>, durability: Durability) {
        pieces(readings, PIECE, |mut piece| {
            // The sort is stable, so that of two entries with the same key the later one wins.
            piece.sort_by(|a, b| {
                (&a.key.partition, &a.key.row).cmp(&(&b.key.partition, &b.key.row))
            });
            self.put_group(&piece, durability);
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
        let writer = self.writer(durability);
        self.execute(&writer.connection, self.sql.insert, reading).expect("SQLite writes") == 1
    }

    fn insert_group(&self, readings: &[Reading], durability: Durability) -> bool {
        self.transact(durability, |connection| {
            for reading in readings {
                if self.execute(connection, self.sql.insert, reading)? == 0 {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    fn version(&self, key: &Key) -> Option<Version> {
        self.read(|connection| self.version_in(connection, key)).map(Version::Number)
    }

    fn replace_if(&self, reading: &Reading, version: Version, durability: Durability) -> bool {
        let Version::Number(version) = version else { panic!("a version of another engine") };
        if self.encoding != Encoding::Native {
            return self.transact(durability, |connection| {
                let same = self.version_in(connection, &reading.key)? == Some(version);
                if same {
                    self.execute(connection, self.sql.put, reading)?;
                }
                Ok(same)
            });
        }
        let key = &reading.key;
        let params = params![
            key.partition,
            key.row,
            self.versions.next() as i64,
            reading.at,
            reading.battery,
            reading.counter,
            reading.firmware,
            reading.humidity,
            reading.note,
            reading.online,
            reading.pressure,
            reading.site,
            reading.temperature,
            version as i64,
        ];
        self.write(durability, REPLACE_IF, params) == 1
    }

    fn merge(&self, key: &Key, change: Change, durability: Durability) -> bool {
        let version = self.versions.next();
        if self.encoding == Encoding::Native {
            return match change {
                Change::Temperature(temperature) => {
                    let params = params![key.partition, key.row, version as i64, temperature];
                    self.write(durability, MERGE, params) == 1
                }
                Change::Counter(kind, counter) => {
                    let params = params![key.partition, key.row, version as i64, counter];
                    self.write(durability, &sheet_sql(kind).merge, params) == 1
                }
            };
        }
        self.transact(durability, |connection| {
            let merged = self.find(connection, self.sql.get, key, |row| {
                let (value, mut into) = (row.get_ref(0)?.as_blob()?, Vec::with_capacity(256));
                self.encoding.merge(value, change, version, &mut into);
                Ok(into)
            })?;
            let Some(value) = merged else { return Ok(false) };
            let mut statement = connection.prepare_cached(self.sql.put)?;
            statement.execute(params![key.partition, key.row, value])?;
            Ok(true)
        })
    }

    fn put_sheet(&self, sheet: &Sheet, durability: Durability) {
        let (key, version) = (&sheet.key, self.versions.next());
        if self.encoding != Encoding::Native {
            let mut value = Vec::new();
            self.encoding.encode_sheet(sheet, version, &mut value);
            self.write(durability, self.sql.put, params![key.partition, key.row, value]);
            return;
        }
        let sql = sheet_sql(sheet.kind);
        let made = self.writer(durability).connection.execute_batch(&sql.create);
        made.expect("SQLite creates a table");
        let head: [&dyn ToSql; 3] = [&key.partition, &key.row, &(version as i64)];
        let items = sheet.items.iter().map(|item| match item {
            OwnedItem::Whole(value) => value as &dyn ToSql,
            OwnedItem::Real(value) => value,
            OwnedItem::Text(value) => value,
            OwnedItem::Bytes(value) => value,
        });
        self.write(durability, &sql.put, params_from_iter(head.into_iter().chain(items)));
    }

    fn get_sheet(&self, kind: Kind, key: &Key) -> Option<Digest> {
        if self.encoding != Encoding::Native {
            let digest = |row: &Row<'_>| Ok(self.encoding.sheet_digest(row.get_ref(0)?.as_blob()?));
            return self.read(|connection| self.find(connection, self.sql.get, key, digest));
        }
        self.read(|connection| {
            self.find(connection, &sheet_sql(kind).get, key, |row| {
                let items: rusqlite::Result<Vec<Item<'_>>> =
                    (0..kind.names().len()).map(|place| row.get_ref(place).map(item_of)).collect();
                Ok(sheet::digest(items?.into_iter()))
            })
        })
    }

    fn get(&self, key: &Key) -> Option<Digest> {
        self.read(|connection| {
            self.find(connection, self.sql.get, key, |row| self.digest_owned(row))
        })
    }

    fn get_view(&self, key: &Key) -> Option<Digest> {
        self.read(|connection| self.find(connection, self.sql.get, key, |row| self.digest(row)))
    }

    fn range(&self, key: &Key, limit: usize) -> Found {
        self.sum(self.sql.range, params![key.partition, key.row, limit as i64])
    }

    fn scan(&self) -> Found {
        self.sum(self.sql.scan, [])
    }

    fn filter(&self, filter: Filter) -> Found {
        if self.encoding == Encoding::Native {
            return match filter {
                Filter::Below(limit) => self.sum(FILTER, [limit]),
                Filter::Between(low, high) => self.sum(FILTER_BETWEEN, [low, high]),
            };
        }
        let mut found = Found::default();
        self.read(|connection| {
            let mut statement = connection.prepare_cached(self.sql.scan)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                if filter.accepts(self.encoding.tested(row.get_ref(0)?.as_blob()?, filter)) {
                    found.count(self.digest(row)?);
                }
            }
            Ok(())
        });
        found
    }

    fn delete(&self, key: &Key, durability: Durability) {
        self.write(durability, DELETE, params![key.partition, key.row]);
    }

    fn take_first(&self, partition: u32, durability: Durability) -> Option<Digest> {
        let writer = self.writer(durability);
        let mut statement = writer.connection.prepare_cached(self.sql.take_first).expect("SQL");
        let mut rows = statement.query([partition_of(partition)]).expect("SQLite deletes");
        let first = rows.next().expect("SQLite deletes");
        let taken = first.map(|row| self.digest_owned(row).expect("SQLite reads"));
        // Runs the statement to its end, which commits it.
        assert!(rows.next().expect("SQLite commits").is_none(), "one row has this key");
        taken
    }

    fn drop_partition(&self, partition: u32, durability: Durability) {
        self.write(durability, DROP, [partition_of(partition)]);
    }

    fn drop_partitions(&self, partitions: Range<u32>) {
        self.transact(Durability::Sync, |connection| {
            let mut drop = connection.prepare_cached(DROP)?;
            for one in partitions {
                drop.execute([partition_of(one)])?;
            }
            Ok(true)
        });
    }

    fn sync(&self) {
        let _writer = self.writer(Durability::Sync);
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        for path in [PathBuf::from(log), self.path.clone()] {
            File::open(path).and_then(|file| file.sync_data()).expect("SQLite's files are there");
        }
    }

    fn compact(&self) {
        let writer = self.writer(Durability::Sync);
        let run = |sql| writer.connection.execute_batch(sql).expect("SQLite vacuums");
        run("VACUUM");
        run("PRAGMA wal_checkpoint(TRUNCATE)");
    }

    /// Does nothing: SQLite has no background work.
    fn settle(&self) {}

    fn close(self: Box<Self>) {
        drop(self.readers);
        let writer = self.writer.into_inner().unwrap_or_else(PoisonError::into_inner);
        writer.connection.close().expect("SQLite closes");
    }
}

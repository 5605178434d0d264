//! The databases to be damaged: small, generated from a seed, with structures of every kind.
//!
//! Invariant: `history[k]` is the expected state (from the oracle) of a database after k commits.
//! The undamaged database shows the last state.

use std::sync::Arc;

use crate::clock::ManualClock;
use crate::db::Db;
use crate::error::Result;
use crate::fs::MemFs;
use crate::named::named;
use crate::options::{Background, Durability, IoMode, Options};
use crate::rng::Rng;
use crate::table::EntityGroup;
use crate::testing::sim::engine::{PATH, START, operation, state_of};
use crate::testing::sim::oracle::{Change, Oracle, Tables};
use crate::testing::sim::row::ticks;
use crate::testing::sim::step::{Condition, Verb, Write};
use crate::testing::sim::value::Val;

const TABLES: [&str; 2] = ["Alpha", "beta"];

named! {
    /// How a database was made.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Origin {
        /// Partly flushed to table files, then closed.
        Closed "closed",
        /// Compacted into a sorted run of several files, which are compressed if this build
        /// supports it, then closed.
        Compacted "compacted and closed",
        /// Killed with synced commits in the log.
        Killed "killed",
        /// Killed three times. Each later log records where the previous one ends.
        KilledAgain "killed three times",
    }

    /// Returns the name that printed tables show.
    pub fn name;
    pub const ALL;
}

/// A database that is not open.
pub(super) struct Subject {
    pub(super) origin: Origin,
    pub(super) fs: MemFs,
    pub(super) history: Vec<Tables>,
    io_mode: IoMode,
}

impl Origin {
    /// Whether the database was closed cleanly, so that any loss is detectable.
    pub(super) fn is_closed(self) -> bool {
        matches!(self, Origin::Closed | Origin::Compacted)
    }
}

impl Subject {
    /// Writes a database, and checks that it shows the expected state.
    ///
    /// # Errors
    /// An error of the engine, which should not occur.
    pub(super) fn new(origin: Origin, io_mode: IoMode, seed: u64) -> Result<Subject> {
        let mut writer = Writer::new(io_mode, seed);
        match origin {
            Origin::Closed => {
                let db = writer.begin(2)?;
                writer.commits(&db, 12, Durability::Sync)?;
                db.flush()?;
                writer.commits(&db, 10, Durability::Os)?;
                db.flush()?;
                writer.drop_table(&db)?;
                writer.commits(&db, 8, Durability::Sync)?;
                db.close()?;
            }
            Origin::Compacted => {
                let db = writer.begin(1)?;
                for _ in 0..3 {
                    writer.commits(&db, 25, Durability::Os)?;
                    db.flush()?;
                }
                db.compact()?;
                writer.commits(&db, 2, Durability::Sync)?;
                db.close()?;
            }
            Origin::Killed => {
                let db = writer.begin(2)?;
                writer.commits(&db, 8, Durability::Sync)?;
                db.flush()?;
                writer.commits(&db, 12, Durability::Sync)?;
                writer.fs = writer.fs.kill_image();
            }
            Origin::KilledAgain => {
                let mut db = writer.begin(1)?;
                for _ in 0..3 {
                    writer.commits(&db, 4, Durability::Os)?;
                    writer.commits(&db, 4, Durability::Sync)?;
                    writer.fs = writer.fs.kill_image();
                    db = open(&writer.fs, io_mode)?;
                }
                writer.commits(&db, 3, Durability::Sync)?;
                writer.fs = writer.fs.kill_image();
            }
        }
        let Writer { fs, history, .. } = writer;
        Ok(Subject { origin, fs, history, io_mode })
    }

    /// Opens the copy `fs`, reads all of it, and verifies it. Returns the state and the problems
    /// found.
    ///
    /// # Errors
    /// The errors of the engine.
    pub(super) fn read(&self, fs: &MemFs) -> Result<(Tables, Vec<String>)> {
        let db = open(fs, self.io_mode)?;
        Ok((state_of(&db)?, db.verify()?.problems))
    }

    /// Returns the files, by their names in the directory.
    pub(super) fn files(&self) -> Vec<String> {
        let paths = self.fs.paths().into_iter();
        paths.filter_map(|path| Some(path.strip_prefix("db/")?.to_owned())).collect()
    }
}

fn open(fs: &MemFs, io_mode: IoMode) -> Result<Db> {
    let mut options = Options::new()
        .fs(Arc::new(fs.clone()))
        .clock(Arc::new(ManualClock::new(START)))
        .background(Background::Manual)
        .io_mode(io_mode)
        .memtable_bytes(64 << 10)
        .block_bytes(512)
        .run_file_bytes(4 << 10)
        .cache_bytes(64 << 10)
        .seed(7);
    #[cfg(feature = "zstd")]
    {
        options = options.codec(crate::options::Codec::Zstd);
    }
    // Reserves little space after the records, because damage to any reserved byte has the same
    // effect.
    options.log_allocate_bytes = 16 << 10;
    options.open(PATH)
}

struct Writer {
    fs: MemFs,
    io_mode: IoMode,
    rng: Rng,
    oracle: Oracle,
    history: Vec<Tables>,
}

impl Writer {
    fn new(io_mode: IoMode, seed: u64) -> Self {
        let history = vec![Tables::new()];
        let (fs, rng) = (MemFs::new(), Rng::from_seed(seed));
        Self { fs, io_mode, rng, oracle: Oracle::new(), history }
    }

    /// Opens a new database with the first `count` tables.
    fn begin(&mut self, count: usize) -> Result<Db> {
        let db = open(&self.fs, self.io_mode)?;
        for name in TABLES.iter().take(count) {
            db.create_table(name)?;
            self.committed(&Change::Create((*name).to_owned()), 0);
        }
        Ok(db)
    }

    fn drop_table(&mut self, db: &Db) -> Result<()> {
        let name = TABLES[1];
        db.delete_table(name)?;
        self.committed(&Change::Drop(name.to_owned()), 0);
        Ok(())
    }

    fn committed(&mut self, change: &Change, etag: u64) {
        self.oracle.commit(change, etag, Durability::Sync);
        self.history.push(self.oracle.tables.clone());
    }

    fn commits(&mut self, db: &Db, count: usize, durability: Durability) -> Result<()> {
        for _ in 0..count {
            let tables: Vec<_> = self.oracle.tables.values().map(|t| t.name.clone()).collect();
            let table = self.rng.pick(&tables).clone();
            let pk = (*self.rng.pick(&["a", "ab", "\u{1f600}"])).to_owned();
            let mut writes: Vec<Write> = Vec::new();
            for _ in 0..1 + self.rng.index(3) {
                let write = self.write(&table, &pk);
                if writes.iter().all(|other| other.rk != write.rk) {
                    writes.push(write);
                }
            }
            let group =
                EntityGroup::from_operations(writes.iter().map(|write| operation(write, None)))?;
            let etags = db.table(&table)?.commit_with(group, durability)?;
            let etag = etags.into_iter().flatten().next().map_or(0, ticks);
            self.committed(&Change::Rows { table, writes }, etag);
        }
        Ok(())
    }

    fn write(&mut self, table: &str, pk: &str) -> Write {
        let rk = format!("r{:02}", self.rng.index(40));
        let there = self.oracle.row(table, pk, &rk).is_some();
        let verb = match self.rng.index(6) {
            0 if there => Verb::Delete,
            1 => Verb::UpsertMerge,
            _ => Verb::Upsert,
        };
        let number = i64::try_from(self.oracle.commits()).unwrap_or(i64::MAX);
        let mut properties = vec![("N".to_owned(), Val::Int64(number))];
        if self.rng.chance(1, 2) {
            let text = "é x'".repeat(self.rng.index(12));
            properties.push(("Note".to_owned(), Val::String(text)));
        }
        if self.rng.chance(1, 3) {
            let bytes = (0..self.rng.index(40)).map(|_| self.rng.index(256) as u8).collect();
            properties.push(("B".to_owned(), Val::Binary(bytes)));
        }
        if verb == Verb::Delete {
            properties.clear();
        }
        Write { verb, pk: pk.to_owned(), rk, properties, condition: Condition::Any }
    }
}

//! The database: opening and closing, tables, snapshots, maintenance.
//!
//! Not here: entities (`table`), scans (`query`), how it works (`lsm`).

pub(crate) mod advice;
mod backup;
mod changes;
mod copy;
mod follow;
mod heal;
pub(crate) mod inspect;
mod moving;
mod partitions;
pub(crate) mod prometheus;
mod references;
mod repair;
mod salvage;
pub(crate) mod shape;
pub(crate) mod stats;
#[cfg(test)]
mod tests;

pub use advice::{Advice, AntiPattern};
pub use backup::{Backup, BackupReport, Generation, Pruned};
pub use changes::{Change, Changes, Commit, Cursor, Position};
pub use copy::{CopyJob, CopyProblem, CopyProblemKind, CopySummary};
pub use follow::Follower;
pub use heal::{FileOutcome, HealReport, Quarantined};
pub use inspect::{InspectOptions, InspectedPart, InspectedValue, inspect};
pub use moving::Moved;
pub use partitions::{LoadPattern, PartitionRange, RangeBound};
pub use references::{MissingTarget, ReferenceCheck, References};
pub use repair::{Loss, LostRange, RepairReport, RepairedTable, SuspectRows};
pub use salvage::{SalvageReport, Salvaged, SalvagedState};
pub use shape::{DataShape, PartitionSize};
pub use stats::Stats;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::check::{VerifyReport, verify};
use crate::error::{Error, ErrorKind, Result};
use crate::format::edit::Wear;
use crate::fs::MemFs;
use crate::lsm::{Engine, Inspector, SnapshotGuard, checkpoint};
use crate::options::Options;
use crate::query::KeyRange;
use crate::table::{Catalog, GateEntry, GateMode, SlowQuery, Snapshot, Table};

/// An open database. A cheap clone, usable from any thread; one process at a time may have it open to write, others
/// beside it to [read](Options::open_read_only) or to [follow](Options::follow) it.
///
/// Call [`close`](Db::close) to learn whether everything was made durable. When the last handle goes without it, the
/// database is closed all the same, and an error is lost.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// use rowstone::{Db, Entity};
/// let db = Db::open_in_memory()?;
/// let parts = db.table_or_create("parts")?;
/// parts.insert(Entity::new("bolts", "m4x20").with("Price", 0.12))?;
/// db.close()
/// # }
/// ```
#[derive(Clone)]
pub struct Db {
    engine: Arc<Engine>,
    pub(crate) catalog: Arc<Catalog>,
}

/// A gate that holds writes, or writes and reads, of a key range back; see [`Db::gate`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClosedGate {
    /// The table's name.
    pub table: String,
    /// The keys.
    pub range: KeyRange,
    /// What is held back.
    pub mode: GateMode,
}

/// What opening a database found, for people who look after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenReport {
    /// There was no database, now there is.
    pub created: bool,
    /// Commits recovered from the log.
    pub replayed: u64,
    /// Where the log was cut off by a crash; nothing that was acknowledged as durable is behind it.
    pub torn: Option<String>,
    /// Leftover files that were removed.
    pub orphans: u64,
}

impl Options {
    /// Opens the database in the directory `path`, or creates it if the path is missing or an empty directory.
    /// The time does not depend on the size of the data; after a crash the log is replayed.
    ///
    /// # Errors
    /// `Locked` if it is open elsewhere; `NotFound` if it is not to be created; `InvalidInput` for a directory that is
    /// something else; `Corruption`, `Unsupported`, `Io`, `StorageFull`.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        Db::of_engine(crate::lsm::open(path.as_ref(), self)?)
    }

    /// Opens a new database in memory, gone with the last handle: for tests and examples.
    ///
    /// # Errors
    /// None but what the options ask for and cannot have.
    pub fn open_in_memory(self) -> Result<Db> {
        self.fs(Arc::new(MemFs::new())).open("memory")
    }
}

impl Db {
    /// Opens or creates the database in the directory `path` with the default options.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Options::new().open(path)
    }

    /// A new database in memory.
    ///
    /// # Errors
    /// As [`Options::open_in_memory`].
    pub fn open_in_memory() -> Result<Db> {
        Options::new().open_in_memory()
    }

    /// The default options, to change before opening.
    pub fn options() -> Options {
        Options::new()
    }

    /// Creates a table that must be new. Names are 3 to 63 letters and digits, beginning with a letter; they are
    /// found in any case.
    ///
    /// # Errors
    /// `AlreadyExists`, `InvalidInput`; as every write.
    pub fn create_table(&self, name: &str) -> Result<Table> {
        let entry = self.catalog.create(name)?;
        Ok(Table::new(Arc::clone(&self.engine), entry))
    }

    /// A table that must exist.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn table(&self, name: &str) -> Result<Table> {
        let entry = self.catalog.table(name)?;
        Ok(Table::new(Arc::clone(&self.engine), entry))
    }

    /// The table of this name, created if need be.
    ///
    /// # Errors
    /// `InvalidInput`; as every write.
    pub fn table_or_create(&self, name: &str) -> Result<Table> {
        let entry = self.catalog.table_or_create(name)?;
        Ok(Table::new(Arc::clone(&self.engine), entry))
    }

    /// Deletes a table with all its entities: gone at once, its space is reclaimed in the background.
    ///
    /// # Errors
    /// `NotFound`; as every write.
    pub fn delete_table(&self, name: &str) -> Result<()> {
        self.catalog.delete(name)
    }

    /// Lets rows of a table expire: each is gone `ttl` after it was written, by its Timestamp, at the latest a 64th of
    /// that (and a second) later; `None`: rows stay. Counts for rows that are there already, survives reopening, and is
    /// no part of the Table service. Files that hold nothing younger go without being read.
    ///
    /// The clock is not believed when it jumps by more than a day: see [`Options::trust_clock_jumps`].
    ///
    /// # Errors
    /// `NotFound`; `InvalidInput` for less than a second; as every write.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use std::time::Duration;
    /// let db = rowstone::Db::open_in_memory()?;
    /// db.create_table("readings")?;
    /// db.set_ttl("readings", Some(Duration::from_secs(7 * 86_400)))?;
    /// assert_eq!(db.ttl("readings")?, Some(Duration::from_secs(604_800)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_ttl(&self, table: &str, ttl: Option<Duration>) -> Result<()> {
        let seconds = ttl.map_or(0, |ttl| ttl.as_secs());
        if ttl.is_some() && seconds == 0 {
            let problem = "a time to live is at least a second";
            return Err(Error::new(ErrorKind::InvalidInput, problem));
        }
        self.catalog.set_ttl(&*self.catalog.table(table)?, seconds)
    }

    /// How long rows of a table live; `None`: they stay.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn ttl(&self, table: &str) -> Result<Option<Duration>> {
        Ok(self.catalog.table(table)?.ttl())
    }

    /// The names of all tables in the case they were created with, ordered by lower-case name.
    ///
    /// # Errors
    /// None today.
    pub fn tables(&self) -> Result<Vec<String>> {
        Ok(self.catalog.names())
    }

    /// Closes a gate to a key range of a table: from now on, also after opening anew, its writes, and with
    /// [`GateMode::Offline`] its reads, are answered `ServerBusy`, until the gate is [lifted](Self::lift_gate). When
    /// this returns, no later write gets into the range, and all earlier ones are visible.
    ///
    /// A query that may touch a range which is offline is refused as a whole; reads that began before go on. Deleting a
    /// table, and with it its gates, passes. Gates may overlap; one with the same range is replaced.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use rowstone::{Db, Entity, GateMode, KeyRange};
    /// let db = Db::open_in_memory()?;
    /// let parts = db.create_table("parts")?;
    /// parts.insert(Entity::new("bolts", "m4x20"))?;
    /// db.gate("parts", KeyRange::partition("bolts"), GateMode::ReadOnly)?;
    /// assert_eq!(parts.delete("bolts", "m4x20").unwrap_err().code(), "ServerBusy");
    /// assert!(parts.get("bolts", "m4x20")?.is_some());
    /// parts.insert(Entity::new("nuts", "m4"))?;
    /// db.lift_gate("parts", KeyRange::partition("bolts"))?;
    /// # parts.delete("bolts", "m4x20")
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound`; `InvalidInput` for a range that no key can be in; as every write.
    pub fn gate(&self, table: &str, range: KeyRange, mode: GateMode) -> Result<()> {
        let table = self.catalog.table(table)?.gate.table;
        self.catalog.close_gate(table, range.span(table), mode)
    }

    /// Opens the gate that was closed with exactly this range.
    ///
    /// # Errors
    /// `NotFound` for the table or the gate; as every write.
    pub fn lift_gate(&self, table: &str, range: KeyRange) -> Result<()> {
        let table = self.catalog.table(table)?.gate.table;
        self.catalog.lift_gate(&range.span(table))
    }

    /// The closed gates of all tables, by table and key.
    ///
    /// # Errors
    /// `Corruption` for a gate that makes no sense.
    pub fn gates(&self) -> Result<Vec<ClosedGate>> {
        let closed = |GateEntry { table, gate }: GateEntry| {
            let range = KeyRange::of_span(&gate.span, table.gate.table)?;
            Ok(ClosedGate { table: table.name.clone(), range, mode: gate.mode })
        };
        self.catalog.gates().into_iter().map(closed).collect()
    }

    /// A moment that stays readable, across all tables.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(SnapshotGuard::take(&self.engine))
    }

    /// Makes every commit so far durable, whatever it asked for.
    ///
    /// # Errors
    /// `Poisoned`, `Io`.
    pub fn sync(&self) -> Result<()> {
        self.engine.writer().sync()
    }

    /// Writes what is in memory to table files.
    ///
    /// # Errors
    /// `StorageFull`, `Io`, `Poisoned`; nothing is lost.
    pub fn flush(&self) -> Result<()> {
        self.engine.maintenance().flush_all()
    }

    /// Flushes, and merges all files of each table into one sorted run. Reads and rewrites the whole database.
    ///
    /// # Errors
    /// As [`flush`](Self::flush), and `Corruption`.
    pub fn compact(&self) -> Result<()> {
        self.engine.maintenance().flush_all()?;
        self.engine.maintenance().compact_all()
    }

    /// Makes a copy of the database, as of now, in the new or empty directory `path`, while it is in use: one moment of
    /// all tables, with its gates and its retention. Memory is flushed; then table files are linked where the file system
    /// can, so that it takes a moment for each file, else copied; the manifest is written anew. The copy is a database
    /// of its own, with another incarnation, and neither ever sees what is done to the other.
    ///
    /// Linked files are one file on disk: what damages it damages both. A [backup](Self::backup) has files of its own.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use rowstone::{Db, Entity, fs::MemFs};
    /// let fs = std::sync::Arc::new(MemFs::new());
    /// let db = Db::options().fs(fs.clone()).open("shop")?;
    /// let parts = db.create_table("parts")?;
    /// parts.insert(Entity::new("bolts", "m4x20"))?;
    /// db.checkpoint("shop-monday")?;
    /// parts.delete("bolts", "m4x20")?;
    /// let monday = Db::options().fs(fs).open("shop-monday")?;
    /// assert!(monday.table("parts")?.get("bolts", "m4x20")?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `AlreadyExists` if there is something; `Busy` if ranges are imported without end; `Io`, `StorageFull`. An
    /// unfinished copy does not open, and is removed where that can be done.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        self.checkpoint_with(path, |_| ())
    }

    /// As [`checkpoint`](Self::checkpoint); where files are copied, `progress` is called with the bytes since the last
    /// call.
    ///
    /// # Errors
    /// As [`checkpoint`](Self::checkpoint).
    pub fn checkpoint_with(
        &self,
        path: impl AsRef<Path>,
        mut progress: impl FnMut(u64),
    ) -> Result<()> {
        checkpoint(&self.engine, path.as_ref(), &mut progress)
    }

    /// Reads everything on disk and holds it against everything that says what it should be.
    ///
    /// # Errors
    /// Only what keeps it from looking; damage is in the report.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.verify_with(|_| {})
    }

    /// As [`verify`](Self::verify); `progress` is called with the bytes read since the last call.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub fn verify_with(&self, mut progress: impl FnMut(u64)) -> Result<VerifyReport> {
        verify(&self.engine, || self.catalog.ids(), &mut progress)
    }

    /// Counters since opening, and sizes now. Those that count since the database was made begin with `wear`.
    pub fn stats(&self) -> Stats {
        let mut fields = vec![("tables", self.catalog.ids().len() as u64)];
        fields.extend(self.catalog.log().fields());
        fields.extend(Inspector::new(&self.engine).stats());
        Stats::new(fields)
    }

    /// What the database has had its medium write since it was made, by cause, across restarts: see [`Wear`]. A copy (checkpoint,
    /// restored backup, repaired database) begins at zero. Of a database that was opened to be read only, or is followed, it is
    /// what its last edit of the manifest says.
    pub fn wear(&self) -> Wear {
        Inspector::new(&self.engine).wear()
    }

    /// The last 128 queries that took as long as [`Options::slow_query`] says, oldest first; none if it says nothing.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use std::time::Duration;
    /// use rowstone::{Db, Entity};
    /// let db = Db::options().slow_query(Duration::ZERO).open_in_memory()?; // all of them
    /// let parts = db.create_table("parts")?;
    /// parts.insert(Entity::new("bolts", "m4x20").with("Stock", 1_200))?;
    /// assert_eq!(parts.query("Stock gt 500")?.count()?, 1);
    /// let slow = &db.slow_queries()[0];
    /// assert_eq!((&*slow.filter, slow.class), ("Stock gt 500", "Full table scan"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn slow_queries(&self) -> Vec<SlowQuery> {
        self.catalog.log().slow()
    }

    /// What opening found.
    pub fn opened(&self) -> OpenReport {
        let found = &self.engine.recovered;
        OpenReport {
            created: found.created,
            replayed: found.commits,
            torn: found.torn.clone().or_else(|| found.manifest_torn.clone()),
            orphans: found.orphans,
        }
    }

    /// The engine, for simulations.
    #[cfg(feature = "sim")]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Runs background work until `budget` is used up, for [`Background::Manual`](crate::Background::Manual): one step at
    /// least, and the last one to its end; a merge of [`Options::edge`] reads and writes some files of 4 MiB. False if there
    /// is nothing left to do, until something is written or a time comes.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use std::time::Duration;
    /// use rowstone::{Background, Entity, Options};
    /// let db = Options::edge().background(Background::Manual).open_in_memory()?;
    /// db.create_table("Readings")?.insert(Entity::new("boiler", "1"))?;
    /// while db.step(Duration::from_millis(10)) {
    ///     // Other work of the application.
    /// }
    /// # db.close()
    /// # }
    /// ```
    pub fn step(&self, budget: Duration) -> bool {
        self.engine.maintenance().step_for(budget)
    }

    /// Makes everything durable and closes the database for all its handles: writes are refused from now on.
    ///
    /// # Errors
    /// `Poisoned`, `Io`: what was not durable may be lost if the machine stops; opening again recovers what can be.
    pub fn close(self) -> Result<()> {
        self.engine.close()
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db").field("path", &self.engine.env().dir).finish_non_exhaustive()
    }
}

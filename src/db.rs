//! Defines [`Db`], which opens and closes a database, creates and deletes tables, takes snapshots,
//! and runs maintenance.
//!
//! `table` implements operations on entities, `query` implements scans, and `lsm` is the engine.

pub(crate) mod advice;
mod backup;
mod changes;
#[cfg(feature = "cli")]
pub(crate) mod companion;
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
#[cfg(feature = "remote")]
pub(crate) use references::search_references;
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
#[cfg(feature = "cli")]
use crate::format::zones::value_of;
use crate::fs::MemFs;
#[cfg(feature = "cli")]
use crate::lsm::Removed;
use crate::lsm::{Engine, Inspector, OnBytes, OnProgress, SnapshotGuard, checkpoint};
#[cfg(feature = "cli")]
use crate::model::{EdmType, Value};
use crate::options::Options;
use crate::query::KeyRange;
#[cfg(feature = "cli")]
use crate::sst::SstPart;
use crate::table::{Catalog, GateEntry, GateMode, SlowQuery, Snapshot, Table};

/// A handle to an open database, cheap to clone and usable from any thread. One process at a time
/// may open a database for writing. Other processes may [read](Options::open_read_only) or
/// [follow](Options::follow) it concurrently.
///
/// Call [`close`](Db::close) to find out whether all commits were made durable. Dropping the last
/// handle also closes the database, but does not report errors.
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

/// A gate that blocks writes, or writes and reads, of a key range; see [`Db::gate`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClosedGate {
    /// The table's name.
    pub table: String,
    /// The blocked keys.
    pub range: KeyRange,
    /// Which operations are blocked.
    pub mode: GateMode,
}

/// A report on the opening of a database; returned by [`Db::opened`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenReport {
    /// Whether the database did not exist and was created.
    pub created: bool,
    /// The number of commits replayed from the log.
    pub replayed: u64,
    /// A text that says where a crash cut off the log or the manifest, and which bytes were
    /// dropped. Nothing that was acknowledged as durable was dropped, unless the text says that
    /// [`Options::accept_short_logs`] accepted a shorter file.
    pub torn: Option<String>,
    /// The number of removed files that an interrupted operation had left over.
    pub orphans: u64,
    /// Conditions that an operator should know of: edits that the manifest may have lost, a
    /// directory that is named like a file of the database, a file system on which the engine
    /// cannot detect that the directory was replaced by another one, or a control socket that could
    /// not be created.
    pub warnings: Vec<String>,
}

impl Options {
    /// Opens the database in the directory `path`, or creates it if the path is missing or an empty
    /// directory. The time for opening does not depend on the size of the data. After a crash it
    /// includes the time for replaying the log.
    ///
    /// # Errors
    /// `Locked` if another process or handle has the database open; `NotFound` if it does not exist
    /// and must not be created; `InvalidInput` for a directory with other contents; `Corruption`,
    /// `Unsupported`, `Io`, `StorageFull`.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        #[cfg(feature = "cli")]
        if let Some(start) = self.companion {
            let db = Options { companion: None, ..self }.open(path)?;
            db.accompany(start);
            return Ok(db);
        }
        Db::of_engine(crate::lsm::open(path.as_ref(), self)?)
    }

    /// Opens a new database in memory, for tests and examples. The data is discarded when the last
    /// handle is dropped.
    ///
    /// # Errors
    /// Fails only for invalid or unsupported options, such as a disk limit that is too small.
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

    /// Opens a new database in memory.
    ///
    /// # Errors
    /// As [`Options::open_in_memory`].
    pub fn open_in_memory() -> Result<Db> {
        Options::new().open_in_memory()
    }

    /// Returns the default options, to be changed before opening.
    pub fn options() -> Options {
        Options::new()
    }

    /// Creates a table, which must not exist. A name has 3 to 63 letters and digits and begins with
    /// a letter. Look-ups of names ignore case.
    ///
    /// # Errors
    /// `AlreadyExists`, `InvalidInput`, and the errors that every write can return.
    pub fn create_table(&self, name: &str) -> Result<Table> {
        let entry = self.catalog.create(name)?;
        Ok(Table::new(Arc::clone(&self.engine), entry))
    }

    /// Returns an existing table.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn table(&self, name: &str) -> Result<Table> {
        let entry = self.catalog.table(name)?;
        Ok(Table::new(Arc::clone(&self.engine), entry))
    }

    /// Returns the table of this name, and creates it first if it does not exist.
    ///
    /// # Errors
    /// `InvalidInput`, and the errors that every write can return.
    pub fn table_or_create(&self, name: &str) -> Result<Table> {
        let entry = self.catalog.table_or_create(name)?;
        Ok(Table::new(Arc::clone(&self.engine), entry))
    }

    /// Deletes a table with all its entities. They disappear immediately, and their space is
    /// reclaimed in the background.
    ///
    /// # Errors
    /// `NotFound`, and the errors that every write can return.
    pub fn delete_table(&self, name: &str) -> Result<()> {
        self.catalog.delete(name)
    }

    /// Returns approximately how many entries and bytes of table files belong to a range of a
    /// table.
    #[cfg(feature = "cli")]
    pub(crate) fn size_in_files(&self, table: &str, range: &KeyRange) -> Result<SstPart> {
        let span = range.span(self.catalog.table(table)?.gate.table);
        self.engine.maintenance().size_in_files(&span)
    }

    /// As `Maintenance::zone_bounds`, with values instead of order keys.
    #[cfg(feature = "cli")]
    pub(crate) fn zone_bounds(&self, table: &str) -> Result<Vec<(String, [Value; 2])>> {
        let span = KeyRange::all().span(self.catalog.table(table)?.gate.table);
        let bounds = self.engine.maintenance().zone_bounds(&span)?;
        let values = |((name, edm), (min, max)): ((String, EdmType), _)| {
            Some((name, [value_of(edm, min)?, value_of(edm, max)?]))
        };
        Ok(bounds.into_iter().filter_map(values).collect())
    }

    /// Like [`compact_while`](Self::compact_while), but only for the key range `range` of a table.
    #[cfg(feature = "cli")]
    pub(crate) fn compact_range(
        &self,
        table: &str,
        range: &KeyRange,
        progress: OnProgress<'_>,
    ) -> Result<()> {
        let span = range.span(self.catalog.table(table)?.gate.table);
        self.engine.maintenance().flush_all()?;
        self.engine.maintenance().compact_span(&span, &mut checked(progress))
    }

    /// Calls `remove`, which must delete the rows of `range`, and then removes these rows from the
    /// table files, too. See [`compact_while`](Self::compact_while) for `progress`.
    #[cfg(feature = "cli")]
    pub(crate) fn remove_now(
        &self,
        table: &str,
        range: &KeyRange,
        remove: impl FnOnce() -> Result<()>,
        progress: OnProgress<'_>,
    ) -> Result<Removed> {
        let span = range.span(self.catalog.table(table)?.gate.table);
        self.engine.maintenance().remove_now(&span, remove, &mut checked(progress))
    }

    /// Sets the time to live of a table's rows; with `None` rows do not expire. A row expires
    /// between `ttl` and `ttl` × 65/64 + 1 s after its Timestamp. The setting also applies to
    /// existing rows and survives reopening. Files in which all rows have expired are removed
    /// without reading them. Azure Table storage has no such setting.
    ///
    /// If the clock jumps by more than a day, rows do not expire at once: see
    /// [`Options::trust_clock_jumps`].
    ///
    /// # Errors
    /// `NotFound`; `InvalidInput` for less than a second; and the errors that every write can
    /// return.
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

    /// Returns the time to live of a table's rows; `None` if they do not expire.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn ttl(&self, table: &str) -> Result<Option<Duration>> {
        Ok(self.catalog.table(table)?.ttl())
    }

    /// Returns why rows of a table may vanish without being deleted; `None` if they do not.
    #[cfg(feature = "remote")]
    pub(crate) fn lets_rows_go(&self, table: &str) -> Result<Option<&'static str>> {
        if self.ttl(table)?.is_some() {
            return Ok(Some("a time to live ends that of rows"));
        }
        let let_go = self.catalog.let_rows_go(table)?;
        Ok(let_go.then_some("a time to live or a limit on disk use has ended rows"))
    }

    /// Returns the names of all tables as they were spelled at creation, ordered by lower-case
    /// name.
    ///
    /// # Errors
    /// Currently none.
    pub fn tables(&self) -> Result<Vec<String>> {
        Ok(self.catalog.names())
    }

    /// Closes a gate on a key range of a table. From now on, also after reopening, writes to the
    /// range fail with `ServerBusy`; with [`GateMode::Offline`] reads fail, too. The gate applies
    /// until it is [lifted](Self::lift_gate). When this method returns, all earlier writes to the
    /// range are visible, and no later one can succeed.
    ///
    /// A query that may touch an offline range is refused as a whole. Reads that began earlier
    /// continue. A table with a gate can be deleted, which removes the gate. Gates may overlap; a
    /// new gate replaces one with the same range.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use rowstone::{Db, Entity, KeyRange, gates::GateMode};
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
    /// `NotFound`; `InvalidInput` for a range that cannot contain a key; and the errors that every
    /// write can return.
    pub fn gate(&self, table: &str, range: KeyRange, mode: GateMode) -> Result<()> {
        let table = self.catalog.table(table)?.gate.table;
        self.catalog.close_gate(table, range.span(table), mode)
    }

    /// Opens the gate that was closed with exactly this range, so that the range is no longer
    /// blocked.
    ///
    /// # Errors
    /// `NotFound` for the table or the gate, and the errors that every write can return.
    pub fn lift_gate(&self, table: &str, range: KeyRange) -> Result<()> {
        let table = self.catalog.table(table)?.gate.table;
        self.catalog.lift_gate(&range.span(table))
    }

    /// Returns the closed gates of all tables, by table and key.
    ///
    /// # Errors
    /// `Corruption` for a stored gate with an invalid span.
    pub fn gates(&self) -> Result<Vec<ClosedGate>> {
        let closed = |GateEntry { table, gate }: GateEntry| {
            let range = KeyRange::of_span(&gate.span, table.gate.table)?;
            Ok(ClosedGate { table: table.name.clone(), range, mode: gate.mode })
        };
        self.catalog.gates().into_iter().map(closed).collect()
    }

    /// Returns a snapshot of all tables. Reads from it do not see later writes.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(SnapshotGuard::take(&self.engine))
    }

    /// Makes all commits so far durable, whatever durability they requested.
    ///
    /// # Errors
    /// `Poisoned`, `Io`.
    pub fn sync(&self) -> Result<()> {
        self.engine.maintenance().sync()
    }

    /// Writes the rows that are only in memory to table files.
    ///
    /// # Errors
    /// `StorageFull`, `Io`, `Poisoned`. No data is lost after an error.
    pub fn flush(&self) -> Result<()> {
        self.engine.maintenance().flush_all()
    }

    /// Flushes, and merges all files of each table into one sorted run. Reads and rewrites the
    /// whole database.
    ///
    /// # Errors
    /// As [`flush`](Self::flush), and `Corruption`.
    pub fn compact(&self) -> Result<()> {
        self.compact_while(&mut |_, _| Ok(()))
    }

    /// Like [`compact`](Self::compact). Calls `progress` with the number of the engine's ranges
    /// that are merged and their total. An error of `progress` ends the compaction.
    pub(crate) fn compact_while(&self, progress: OnProgress<'_>) -> Result<()> {
        self.engine.maintenance().flush_all()?;
        self.engine.maintenance().compact_all(&mut checked(progress))
    }

    /// Copies the current state of the database into the new or empty directory `path`, while the
    /// database is in use. The copy has all tables, with gates and times to live. Rows in memory
    /// are flushed first. Table files are then linked, at a small constant cost per file, or copied
    /// if the file system cannot link. The copy has a new manifest and a new incarnation (a random
    /// identity that no other copy has). It is an independent database: changes in one of the two
    /// databases are never visible in the other.
    ///
    /// A linked file is one file on disk, so damage to it affects both databases. A
    /// [backup](Self::backup) has files of its own.
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
    /// `AlreadyExists` if `path` is not empty; `Busy` if concurrent imports of ranges never pause;
    /// `Io`, `StorageFull`. An unfinished copy does not open, and is removed where possible.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        self.checkpoint_with(path, |_| ())
    }

    /// As [`checkpoint`](Self::checkpoint). If files must be copied, `progress` is called with the
    /// number of bytes copied since the last call.
    ///
    /// # Errors
    /// As [`checkpoint`](Self::checkpoint).
    pub fn checkpoint_with(
        &self,
        path: impl AsRef<Path>,
        mut progress: impl FnMut(u64),
    ) -> Result<()> {
        self.checkpoint_while(path.as_ref(), &mut |bytes| {
            progress(bytes);
            Ok(())
        })
    }

    /// Like [`checkpoint_with`](Self::checkpoint_with); an error of `progress` ends the checkpoint.
    pub(crate) fn checkpoint_while(&self, path: &Path, progress: OnBytes<'_>) -> Result<()> {
        checkpoint(&self.engine, path, progress)
    }

    /// Reads all files from disk and checks them against their checksums and all metadata about
    /// them.
    ///
    /// # Errors
    /// Fails only for errors that prevent the check; damage is in the report.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.verify_with(|_| {})
    }

    /// As [`verify`](Self::verify); `progress` is called with the bytes read since the last call.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub fn verify_with(&self, mut progress: impl FnMut(u64)) -> Result<VerifyReport> {
        let mut report = verify(&self.engine, || self.catalog.ids(), &mut progress)?;
        report.problems.extend(self.catalog.problems().iter().map(Error::chain));
        Ok(report)
    }

    /// Returns counters since opening, and current sizes. Fields whose names begin with `wear`
    /// count since the creation of the database.
    pub fn stats(&self) -> Stats {
        let mut fields = vec![("tables", self.catalog.ids().len() as u64)];
        fields.extend(self.catalog.log().fields());
        fields.extend(Inspector::new(&self.engine).stats());
        Stats::new(fields)
    }

    /// Returns the bytes and syncs that the database has written to its medium since its creation,
    /// by cause, across restarts: see [`Wear`]. A copy (checkpoint, restored backup, repaired
    /// database) begins at zero. A read-only or followed database returns the figures that its
    /// writer stored last in the manifest.
    pub fn wear(&self) -> Wear {
        Inspector::new(&self.engine).wear()
    }

    /// Returns the last 128 queries that took at least [`Options::slow_query`], oldest first. The
    /// list is empty if that option is not set.
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

    /// Returns what opening the database found and did.
    pub fn opened(&self) -> OpenReport {
        let found = &self.engine.recovered;
        let warnings = found.warnings.iter().cloned();
        #[cfg(feature = "cli")]
        let warnings = warnings.chain(self.without_companion());
        OpenReport {
            created: found.created,
            replayed: found.commits,
            torn: found.torn(),
            orphans: found.orphans,
            warnings: warnings.collect(),
        }
    }

    /// Returns the engine, for its clock and for simulations.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Runs background work for about `budget`; needed with
    /// [`Background::Manual`](crate::options::Background::Manual). Runs at least one step, and
    /// never interrupts a step. With [`Options::edge`] a step of a compaction handles only a few
    /// files of 4 MiB. Returns false if no work is left until the next write or until a timer
    /// expires.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use std::time::Duration;
    /// use rowstone::{Entity, Options, options::Background};
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

    /// Waits until the background has nothing to do: memtables that are full are flushed, no merge
    /// is due, and unused files are removed. With
    /// [`Background::Manual`](crate::options::Background::Manual) this runs the work itself.
    /// Measurements and tests can begin from this state. Rows in the memtable that is being filled
    /// stay there; [`flush`](Self::flush) writes them first. While other threads write, this may
    /// wait for a long time. It never returns on a thread of the engine, so do not call it in a
    /// subscriber of events.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// let db = rowstone::Db::open_in_memory()?;
    /// db.create_table("parts")?;
    /// db.flush()?;
    /// db.wait_idle()?;
    /// assert_eq!(db.stats().get("trouble"), Some(0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error with which background work fails, such as `StorageFull`, `Io` or `Corruption`.
    /// The work is tried again, and this can be called again.
    pub fn wait_idle(&self) -> Result<()> {
        self.engine.maintenance().wait_idle()
    }

    /// Returns a number that identifies the database, and changes when it is restored.
    pub(crate) fn incarnation(&self) -> u64 {
        self.engine.reader().incarnation()
    }

    /// Makes all commits durable and closes the database for all its handles. Later writes are
    /// refused.
    ///
    /// # Errors
    /// `Poisoned`, `Io`: commits that were not durable may be lost if the machine stops. Open the
    /// database again to recover as much as possible.
    pub fn close(self) -> Result<()> {
        self.engine.close()
    }
}

/// Converts the errors of `progress`.
fn checked(progress: OnProgress<'_>) -> impl FnMut(u64, u64) -> Result<()> {
    |done, of| progress(done, of).map_err(|error| Error::io("merge files", error))
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db").field("path", &self.engine.env().dir).finish_non_exhaustive()
    }
}

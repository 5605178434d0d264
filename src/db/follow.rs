//! Databases that another process writes: opened to be read only, and followed.
//!
//! Not here: how their files are read (`lsm::follower`).

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::error::Result;
use crate::lsm::{Engine, LogFollower};
use crate::options::Options;
use crate::sync::{AtomicBool, Mutex, Ordering};
use crate::table::Catalog;

use super::Db;

/// A database as another process writes it: a moment to read from, and a step to the next one.
///
/// Nothing is shown that a power cut could take back. A commit with `Durability::Sync` can be seen as soon as its writer
/// has its answer (with many writers at a time: one write to the log later); weaker ones when the writer has synced them,
/// which it does every second. How far behind a follower is depends on how often it is [refreshed](Self::refresh).
///
/// No lock is taken and no file changes: any number of followers may be there, before the writer and after it. They survive
/// its crash and its opening anew. A restored database is another one: `ChangesLost`, open it anew.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// use rowstone::{Db, Entity, Options, fs::MemFs};
/// # let disk = std::sync::Arc::new(MemFs::new());
/// # let options = || Options::new().fs(disk.clone());
/// let writer = options().open("inventory")?;
/// let parts = writer.create_table("parts")?;
/// let follower = options().follow("inventory")?; // As a rule in another process.
/// parts.insert(Entity::new("bolts", "m4x20"))?;
/// assert!(follower.refresh()?);
/// assert!(follower.db().table("parts")?.get("bolts", "m4x20")?.is_some());
/// # writer.close()
/// # }
/// ```
pub struct Follower {
    following: Mutex<LogFollower>,
    current: Mutex<Db>,
    /// More was read than `current` shows.
    is_pending: AtomicBool,
}

impl Options {
    /// Opens the database in `path` to read it, as it is durable now, whether another process has it open or not. No lock
    /// is taken, nothing is created, changed or removed; writes answer `InvalidInput`. What is written later is not seen:
    /// see [`follow`](Self::follow).
    ///
    /// Reads the logs as opening does, and opens every table file: one that the writer removes stays readable. With
    /// [`IoMode::Pread`](crate::IoMode::Pread) that takes a descriptor for each, otherwise a map.
    ///
    /// # Errors
    /// `NotFound` if there is no database; `Busy` if the writer replaces files faster than they can be opened;
    /// `Corruption`, `Unsupported`, `Io`.
    pub fn open_read_only(self, path: impl AsRef<Path>) -> Result<Db> {
        Db::of_engine(LogFollower::open(path.as_ref(), self)?.engine())
    }

    /// Follows the database in `path`, which another process may write: as [`open_read_only`](Self::open_read_only), and
    /// [`Follower::refresh`] shows what was made durable since.
    ///
    /// # Errors
    /// As [`open_read_only`](Self::open_read_only).
    pub fn follow(self, path: impl AsRef<Path>) -> Result<Follower> {
        let following = LogFollower::open(path.as_ref(), self)?;
        let current = Mutex::new(Db::of_engine(following.engine())?);
        let following = Mutex::new(following);
        Ok(Follower { following, current, is_pending: AtomicBool::new(false) })
    }
}

impl Db {
    /// Opens the database in `path` to read it, with the default options.
    ///
    /// # Errors
    /// As [`Options::open_read_only`].
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Db> {
        Options::new().open_read_only(path)
    }

    /// Follows the database in `path` with the default options.
    ///
    /// # Errors
    /// As [`Options::follow`].
    pub fn follow(path: impl AsRef<Path>) -> Result<Follower> {
        Options::new().follow(path)
    }

    pub(super) fn of_engine(engine: Arc<Engine>) -> Result<Db> {
        let catalog = Arc::new(Catalog::open(&engine)?);
        Ok(Db { engine, catalog })
    }
}

impl Follower {
    /// Shows what became durable since the last time, all of it at once; false if nothing did. Reads what was added to
    /// manifest and log, and opens new table files; waits for nobody.
    ///
    /// # Errors
    /// `ChangesLost` if the database was restored, or is another one; `Busy` if the writer replaces files faster than
    /// they can be opened; `Corruption`, `Unsupported`, `Io`. [`db`](Self::db) stays what it was, and refreshing may be
    /// tried again.
    pub fn refresh(&self) -> Result<bool> {
        let mut following = self.following.lock();
        if following.advance()? {
            self.is_pending.store(true, Ordering::Relaxed);
        }
        let is_new = self.is_pending.load(Ordering::Relaxed);
        if is_new {
            let next = Db::of_engine(following.engine())?;
            *self.current.lock() = next;
            self.is_pending.store(false, Ordering::Relaxed);
        }
        Ok(is_new)
    }

    /// The database as of the last refresh: a moment that never changes, and stays readable as long as it is held.
    pub fn db(&self) -> Db {
        self.current.lock().clone()
    }

    /// Commits read from logs so far.
    pub fn commits(&self) -> u64 {
        self.following.lock().commits()
    }
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Follower").field(&self.db()).finish()
    }
}

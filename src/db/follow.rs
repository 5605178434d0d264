//! Reads databases that another process writes: opens them read-only, or follows them.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::error::Result;
use crate::lsm::{Engine, LogFollower, Recovered, open_read_only};
use crate::options::Options;
use crate::sync::{AtomicBool, Mutex, Ordering};
use crate::table::Catalog;

use super::Db;

/// A reader of a database that another process writes. It shows one state, and advances to the
/// newest one on request.
///
/// A follower shows only data that a power cut cannot revert. A commit with `Durability::Sync` is
/// visible when its writer gets the acknowledgement, or one log write later if there are concurrent
/// writers. Weaker commits are visible when the writer has synced them, which it does every second.
/// The lag of a follower depends on how often it is [refreshed](Self::refresh).
///
/// A follower takes no lock and changes no file. Any number of followers may be started before or
/// after the writer. They keep working if the writer crashes or opens the database again. After a
/// restore of the database a refresh returns `ChangesLost`; open the follower again then.
/// ```
/// # fn main() -> rowstone::Result<()> {
/// use rowstone::{Db, Entity, Options, fs::MemFs};
/// # let disk = std::sync::Arc::new(MemFs::new());
/// # let options = || Options::new().fs(disk.clone());
/// let writer = options().open("inventory")?;
/// let parts = writer.create_table("parts")?;
/// let follower = options().follow("inventory")?; // usually in another process
/// parts.insert(Entity::new("bolts", "m4x20"))?;
/// assert!(follower.refresh()?);
/// assert!(follower.db().table("parts")?.get("bolts", "m4x20")?.is_some());
/// # writer.close()
/// # }
/// ```
pub struct Follower {
    following: Mutex<LogFollower>,
    current: Mutex<Db>,
    /// Whether commits were read that `current` does not show yet.
    is_pending: AtomicBool,
}

impl Options {
    /// Opens the database in `path` read-only. Takes no lock and does not create, change or remove
    /// anything, so it also works on read-only media and without write permission. Writes fail
    /// with `InvalidInput`. Later commits are not visible; see [`follow`](Self::follow) for that.
    ///
    /// If no process has the database open, it shows exactly what [`open`](Self::open) would show.
    /// While another process writes, it shows what is durable. If the file system cannot tell
    /// whether another process writes, it shows what is durable, with a warning in
    /// [`Db::opened`](crate::Db::opened).
    ///
    /// Reads the logs as a normal open does, and opens every table file, so that a file stays
    /// readable after the writer removes it. Each file needs a descriptor with
    /// [`IoMode::Pread`](crate::options::IoMode::Pread), and a memory map otherwise.
    ///
    /// # Errors
    /// `NotFound` if there is no database; `Busy` if the writer replaces files faster than they can
    /// be opened; `Corruption`, `Unsupported`, `Io`.
    pub fn open_read_only(self, path: impl AsRef<Path>) -> Result<Db> {
        Db::of_engine(open_read_only(path.as_ref(), self)?)
    }

    /// Follows the database in `path`, which another process may write. Opens it as
    /// [`open_read_only`](Self::open_read_only) does; [`Follower::refresh`] then shows later
    /// durable commits.
    ///
    /// # Errors
    /// As [`open_read_only`](Self::open_read_only).
    pub fn follow(self, path: impl AsRef<Path>) -> Result<Follower> {
        let following = LogFollower::open(path.as_ref(), self)?;
        let current = Mutex::new(Db::of_engine(following.engine(Recovered::default()))?);
        let following = Mutex::new(following);
        Ok(Follower { following, current, is_pending: AtomicBool::new(false) })
    }
}

impl Db {
    /// Opens the database in `path` read-only, with the default options.
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
    /// Shows all commits that became durable since the last refresh, atomically. Returns false if
    /// there are none. Reads the records that were appended to the manifest and the log, and opens
    /// new table files. Never waits for the writer.
    ///
    /// # Errors
    /// `ChangesLost` if the database was restored or replaced by another; `Busy` if the writer
    /// replaces files faster than they can be opened; `Corruption`, `Unsupported`, `Io`.
    /// [`db`](Self::db) is unchanged after an error, and the refresh may be retried.
    pub fn refresh(&self) -> Result<bool> {
        let mut following = self.following.lock();
        if following.advance()? {
            self.is_pending.store(true, Ordering::Relaxed);
        }
        let is_new = self.is_pending.load(Ordering::Relaxed);
        if is_new {
            let next = Db::of_engine(following.engine(Recovered::default()))?;
            *self.current.lock() = next;
            self.is_pending.store(false, Ordering::Relaxed);
        }
        Ok(is_new)
    }

    /// Returns the database as of the last refresh. This state never changes, and stays readable as
    /// long as the handle is held.
    pub fn db(&self) -> Db {
        self.current.lock().clone()
    }

    /// Returns the number of commits read from logs so far.
    pub fn commits(&self) -> u64 {
        self.following.lock().commits()
    }
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Follower").field(&self.db()).finish()
    }
}

//! An `Fs` wrapper that refuses changes after the database lost its lock file: the directory was
//! moved or replaced, or the lock file was removed. Another process may then lock a new file at the
//! same path and write there.
//!
//! Invariants
//! * the lock is checked before each creation, rename and removal, and before each sync of a file.
//!   For files that are synced often, syncs check the lock at most once a second;
//! * reading is never refused.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use super::{FileLock, FileRead, FileWrite, Fs, Watch};
use crate::clock::Clock;
use crate::mutants::mutant;
use crate::sync::{AtomicU64, Ordering};

/// The minimum time between two checks of the lock by syncs of files that are synced often.
const CHECK_NANOS: u64 = 1_000_000_000;

/// An `Fs` wrapper that checks the lock before changes.
#[derive(Clone)]
pub(crate) struct GuardedFs {
    inner: Arc<dyn Fs>,
    guard: Arc<Guard>,
}

struct Guard {
    path: PathBuf,
    /// The lock. The pointer is weak, because closing the database drops the lock.
    lock: Weak<dyn FileLock>,
    clock: Arc<dyn Clock>,
    /// The monotonic time of the last check, in nanoseconds.
    checked: AtomicU64,
    is_synced_often: fn(&Path) -> bool,
}

struct GuardedWrite {
    inner: Box<dyn FileWrite>,
    guard: Arc<Guard>,
    is_synced_often: bool,
}

debug_as_name!(GuardedFs, GuardedWrite);

impl GuardedFs {
    /// Creates a wrapper that checks `lock`, the lock of the file at `path`, before changes.
    pub(crate) fn new(
        inner: Arc<dyn Fs>,
        path: PathBuf,
        lock: &Arc<dyn FileLock>,
        clock: Arc<dyn Clock>,
        is_synced_often: fn(&Path) -> bool,
    ) -> Self {
        let (lock, checked) = (Arc::downgrade(lock), AtomicU64::new(nanos(&*clock)));
        Self { inner, guard: Arc::new(Guard { path, lock, clock, checked, is_synced_often }) }
    }

    fn check(&self) -> io::Result<()> {
        self.guard.check()
    }

    fn guarded(&self, path: &Path, inner: Box<dyn FileWrite>) -> Box<dyn FileWrite> {
        let is_synced_often = (self.guard.is_synced_often)(path);
        Box::new(GuardedWrite { inner, guard: Arc::clone(&self.guard), is_synced_often })
    }
}

fn nanos(clock: &dyn Clock) -> u64 {
    u64::try_from(clock.monotonic().as_nanos()).unwrap_or(u64::MAX)
}

impl Guard {
    fn check(&self) -> io::Result<()> {
        let Some(lock) = self.lock.upgrade() else { return Ok(()) };
        // If the check fails with an error, assume that the path still names the locked file. For
        // example, this user may no longer have the right to read the path.
        if mutant!("unchecked-lock") || lock.is_current().unwrap_or(true) {
            return Ok(());
        }
        let problem = format!(
            "{} is not the file that was locked: the directory was moved or replaced, or the file \
             was removed; nothing more is written, reopen the database where it is now",
            self.path.display()
        );
        Err(io::Error::other(problem))
    }

    fn check_each_second(&self) -> io::Result<()> {
        let now = nanos(&*self.clock);
        if now.abs_diff(self.checked.load(Ordering::Relaxed)) < CHECK_NANOS {
            return Ok(());
        }
        self.check()?;
        self.checked.store(now, Ordering::Relaxed);
        Ok(())
    }
}

impl Fs for GuardedFs {
    pass_on! {
        inner:
        create_dir_all(dir: &Path) -> io::Result<()>;
        list(dir: &Path) -> io::Result<Vec<String>>;
        exists(path: &Path) -> io::Result<bool>;
        open_read(path: &Path) -> io::Result<Arc<dyn FileRead>>;
        sync_dir(dir: &Path) -> io::Result<()>;
        lock(path: &Path) -> io::Result<Box<dyn FileLock>>;
        is_locked(path: &Path) -> io::Result<bool>;
        watch(dir: &Path) -> io::Result<Box<dyn Watch>>;
        kind(path: &Path) -> String;
    }

    pass_on! {
        inner after check:
        rename(from: &Path, to: &Path) -> io::Result<()>;
        remove(path: &Path) -> io::Result<()>;
        remove_dir(dir: &Path) -> io::Result<()>;
        link(from: &Path, to: &Path) -> io::Result<()>;
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn FileWrite>> {
        self.check()?;
        Ok(self.guarded(path, self.inner.create(path)?))
    }

    #[cfg(all(target_os = "linux", feature = "cli"))]
    fn listen(&self, path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
        self.check()?;
        self.inner.listen(path)
    }

    fn open_write(&self, path: &Path) -> io::Result<Box<dyn FileWrite>> {
        Ok(self.guarded(path, self.inner.open_write(path)?))
    }
}

impl FileWrite for GuardedWrite {
    pass_on! {
        inner:
        write_at(offset: u64, bytes: &[u8]) -> io::Result<()>;
        allocate(len: u64) -> io::Result<()>;
        allocate_ahead(len: u64) -> io::Result<()>;
        set_len(len: u64) -> io::Result<()>;
        len() -> io::Result<u64>;
        start_write_back(offset: u64, len: u64);
        forget_dirty();
    }

    fn sync(&self) -> io::Result<()> {
        match self.is_synced_often {
            true => self.guard.check_each_second()?,
            false => self.guard.check()?,
        }
        self.inner.sync()
    }
}

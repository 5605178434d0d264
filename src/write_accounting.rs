//! An `Fs` wrapper that counts the engine's writes and syncs. The counts of all openings together
//! are the wear account of the database (`format::edit::wear`), which `manifest` stores.
//!
//! Invariants
//! * only successful writes and syncs are counted;
//! * bytes of a file are counted when they are written, and pages at the sync that makes them
//!   durable, or when the file is dropped without a sync.
//!
//! Locks: one for the account and one for each file being written. No thread holds two of them at
//! the same time, and each is held only for a few instructions.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::format::edit::Account;
use crate::format::names::{FileName, FileNumber};
use crate::format::record::{LOG_HEADER_BYTES, Position};
use crate::fs::{FileLock, FileRead, FileWrite, Fs, debug_as_name, pass_on};
use crate::sync::UnmodelledMutex;

/// The reason for writing a table file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Flush,
    Compaction,
    /// Any other reason: import, restore, healing.
    Import,
}

/// Collects the wear account of an open database.
pub(crate) struct Meter {
    dir: PathBuf,
    account: UnmodelledMutex<Account>,
}

/// A file system that reports its writes and syncs to a meter.
struct Metered {
    inner: Arc<dyn Fs>,
    meter: Arc<Meter>,
    cause: Cause,
}

/// A file that reports its writes and syncs to a meter.
struct MeteredFile {
    inner: Box<dyn FileWrite>,
    meter: Arc<Meter>,
    target: Target,
    /// The range from the first to the last byte that was written but not synced.
    unsynced: UnmodelledMutex<Range<u64>>,
}

/// The kind of a file. Bytes are counted separately for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Log(FileNumber),
    Table(Cause),
    Manifest,
    Copy,
}

debug_as_name!(Meter, Metered, MeteredFile);

impl Meter {
    /// Creates a meter for the database in `dir`, which starts at zero.
    pub(crate) fn new(dir: &Path) -> Arc<Self> {
        let account = UnmodelledMutex::new(Account::default());
        Arc::new(Self { dir: dir.to_owned(), account })
    }

    /// Returns a wrapper of `inner` that counts writes and syncs. It counts those of table files
    /// under `cause`.
    pub(crate) fn count(self: &Arc<Self>, inner: &Arc<dyn Fs>, cause: Cause) -> Arc<dyn Fs> {
        Arc::new(Metered { inner: Arc::clone(inner), meter: Arc::clone(self), cause })
    }

    /// Adds the counts of `before`, an account of earlier openings or of logs that are not counted
    /// yet.
    pub(crate) fn add(&self, before: &Account) {
        let mut account = self.account.lock();
        account.wear = account.wear.plus(&before.wear);
        account.log_end = account.log_end.max(before.log_end);
        account.user_end = account.user_end.max(before.user_end);
    }

    /// Counts `bytes` that the user asked to write, in commits up to `end`.
    pub(crate) fn record_user(&self, bytes: u64, end: Position) {
        let mut account = self.account.lock();
        account.wear.user_bytes = account.wear.user_bytes.saturating_add(bytes);
        account.user_end = account.user_end.max(end);
    }

    /// Returns the account so far.
    pub(crate) fn account(&self) -> Account {
        *self.account.lock()
    }

    fn target(&self, path: &Path, cause: Cause) -> Target {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.parent() != Some(&self.dir) {
            return Target::Copy;
        }
        let name = name.strip_suffix(".tmp").unwrap_or(&name);
        match FileName::parse(name) {
            Some(FileName::Wal(number)) => Target::Log(number),
            Some(FileName::Sst(_)) => Target::Table(cause),
            Some(FileName::Manifest(_) | FileName::Current) => Target::Manifest,
            Some(FileName::Lock | FileName::Control | FileName::Temporary) | None => Target::Copy,
        }
    }

    fn wrote(&self, target: Target, written: &Range<u64>) {
        let mut account = self.account.lock();
        let Account { wear, log_end, .. } = &mut *account;
        let bytes = match target {
            Target::Log(file) => {
                // A prepared log has only a header; records are still written to the previous log.
                if written.start >= LOG_HEADER_BYTES as u64 {
                    *log_end = (*log_end).max(Position { file, offset: written.end });
                }
                &mut wear.log_bytes
            }
            Target::Table(Cause::Flush) => &mut wear.flush_bytes,
            Target::Table(Cause::Compaction) => &mut wear.compaction_bytes,
            Target::Table(Cause::Import) => &mut wear.import_bytes,
            Target::Manifest => &mut wear.manifest_bytes,
            Target::Copy => &mut wear.copy_bytes,
        };
        *bytes = bytes.saturating_add(written.end - written.start);
        wear.writes = wear.writes.saturating_add(1);
    }

    fn synced(&self, target: Target, written: &Range<u64>) {
        let wear = &mut self.account.lock().wear;
        let syncs = match target {
            Target::Log(_) => &mut wear.log_syncs,
            Target::Table(_) => &mut wear.table_syncs,
            Target::Manifest => &mut wear.manifest_syncs,
            Target::Copy => &mut wear.copy_syncs,
        };
        *syncs = syncs.saturating_add(1);
        wear.count_pages(written);
    }
}

impl Metered {
    fn file(&self, path: &Path, inner: Box<dyn FileWrite>) -> Box<dyn FileWrite> {
        let target = self.meter.target(path, self.cause);
        let unsynced = UnmodelledMutex::new(0..0);
        Box::new(MeteredFile { inner, meter: Arc::clone(&self.meter), target, unsynced })
    }
}

impl Fs for Metered {
    pass_on! {
        inner:
        create_dir_all(dir: &Path) -> io::Result<()>;
        list(dir: &Path) -> io::Result<Vec<String>>;
        exists(path: &Path) -> io::Result<bool>;
        open_read(path: &Path) -> io::Result<Arc<dyn FileRead>>;
        rename(from: &Path, to: &Path) -> io::Result<()>;
        remove(path: &Path) -> io::Result<()>;
        remove_dir(dir: &Path) -> io::Result<()>;
        link(from: &Path, to: &Path) -> io::Result<()>;
        lock(path: &Path) -> io::Result<Box<dyn FileLock>>;
        is_locked(path: &Path) -> io::Result<bool>;
        kind(path: &Path) -> String;
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn FileWrite>> {
        Ok(self.file(path, self.inner.create(path)?))
    }

    fn open_write(&self, path: &Path) -> io::Result<Box<dyn FileWrite>> {
        Ok(self.file(path, self.inner.open_write(path)?))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)?;
        self.meter.account.lock().wear.count_directory();
        Ok(())
    }
}

impl FileWrite for MeteredFile {
    pass_on! {
        inner:
        allocate(len: u64) -> io::Result<()>;
        allocate_ahead(len: u64) -> io::Result<()>;
        set_len(len: u64) -> io::Result<()>;
        len() -> io::Result<u64>;
        start_write_back(offset: u64, len: u64);
        forget_dirty();
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, bytes)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let written = offset..offset + bytes.len() as u64;
        self.meter.wrote(self.target, &written);
        let mut unsynced = self.unsynced.lock();
        let is_first = unsynced.is_empty();
        unsynced.start = if is_first { written.start } else { unsynced.start.min(written.start) };
        unsynced.end = unsynced.end.max(written.end);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        // Bytes written during the sync count for the next one.
        let written = std::mem::take(&mut *self.unsynced.lock());
        let count = |_: &io::Error| self.meter.account.lock().wear.count_pages(&written);
        self.inner.sync().inspect_err(count)?;
        self.meter.synced(self.target, &written);
        Ok(())
    }
}

impl Drop for MeteredFile {
    fn drop(&mut self) {
        let written = std::mem::take(&mut *self.unsynced.lock());
        self.meter.account.lock().wear.count_pages(&written);
    }
}

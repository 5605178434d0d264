//! Open files of the operating system's file system.
//!
//! Invariants
//! * reads and writes state their offset: threads that share a handle share no file cursor;
//! * if a length was set without writing, the next sync is an fsync instead of an fdatasync (see
//!   [`DiskWrite`]).

use std::fs::{File, TryLockError};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::sys;
use crate::fs::complete::{read_exact_at, retry, write_all_at};
use crate::fs::{Advice, FileLock, FileRead, FileWrite, Map, Pages};
use crate::sync::{AtomicBool, Ordering};

/// A file being written. POSIX requires fdatasync to make a length durable if writes increased it.
/// On some systems fdatasync does not do this for a length that was set without writing. So the
/// next sync after setting a length is an fsync.
pub(super) struct DiskWrite {
    file: File,
    resized: AtomicBool,
}

pub(super) struct DiskRead {
    pub(super) file: File,
}

/// Keeps the memory map alive as long as its bytes are in use.
struct Mapped(Arc<memmap2::Mmap>);

/// How often a writer tries to take the lock while only readers hold it, for about two seconds in
/// total. A reader holds the lock only while it checks whether a writer holds it (`is_held`).
const TRIES: usize = 1000;
const PAUSE: Duration = Duration::from_millis(2);

/// A locked file; the system releases the lock when the file is closed.
pub(super) struct DiskLock {
    file: File,
    /// The absolute path, so that a change of the working directory does not matter.
    path: PathBuf,
}

debug_as_name!(DiskWrite, DiskRead, DiskLock);

impl FileWrite for DiskWrite {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        write_all_at(offset, bytes, |offset, bytes| sys::write_at(&self.file, offset, bytes))
    }

    fn sync(&self) -> io::Result<()> {
        if !self.resized.swap(false, Ordering::AcqRel) {
            return retry(|| self.file.sync_data());
        }
        let result = retry(|| self.file.sync_all());
        if result.is_err() {
            self.resized.store(true, Ordering::Release);
        }
        result
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let result = sys::allocate(&self.file, len);
        // Set the flag only after the allocation. Otherwise a concurrent sync could clear it before
        // the length changes.
        self.resized.store(true, Ordering::Release);
        result
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.resized.store(true, Ordering::Release);
        retry(|| self.file.set_len(len))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(retry(|| self.file.metadata())?.len())
    }

    fn start_write_back(&self, offset: u64, len: u64) {
        sys::start_write_back(&self.file, offset, len);
    }
}

impl FileRead for DiskRead {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        read_exact_at(offset, buffer, |offset, buffer| sys::read_at(&self.file, offset, buffer))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(retry(|| self.file.metadata())?.len())
    }

    fn next_data(&self, offset: u64) -> u64 {
        sys::next_data(&self.file, offset)
    }

    fn advise(&self, advice: Advice, range: Range<u64>) {
        sys::advise_file(&self.file, advice, range);
    }

    fn map(&self) -> io::Result<Map> {
        let len = usize::try_from(self.len()?).map_err(io::Error::other)?;
        if len == 0 {
            return Ok(Map::default());
        }
        #[expect(unsafe_code, reason = "the one map of the crate; the module fs keeps its promise")]
        // SAFETY: memmap2 requires that the file is not changed while it is mapped. Files are
        // mapped only when complete (`FileRead::map`) and are never opened for writing again. An
        // unlinked file keeps its bytes while a map holds them. This covers all processes that
        // respect the lock. Others must not change the file: truncating a mapped file causes a
        // signal, and overwriting it in place changes bytes after they were checked, possibly
        // between a check and their use (`codec::text`). `IoMode::Pread` is for media where this
        // may happen.
        let map = unsafe { memmap2::MmapOptions::new().len(len).map(&self.file) }?;
        let map = Arc::new(map);
        Ok(Map::new(Bytes::from_owner(Mapped(Arc::clone(&map))), map))
    }
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Pages for memmap2::Mmap {
    fn advise(&self, advice: Advice, range: Range<usize>) {
        sys::advise(self, advice, range);
    }
}

impl DiskLock {
    pub(super) fn take(file: File, path: &Path) -> io::Result<Self> {
        for _ in 0..TRIES {
            if locked(|| file.try_lock())? {
                return Ok(Self { file, path: std::path::absolute(path)? });
            }
            // A shared lock is refused only while a writer holds the lock.
            if !locked(|| file.try_lock_shared())? {
                break;
            }
            retry(|| file.unlock())?;
            // An early wake-up does no harm.
            std::thread::park_timeout(PAUSE);
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Whether another handle holds the lock of `file`; false if there is no such file. The test
    /// takes a shared lock, which is released on return.
    pub(super) fn is_held(file: io::Result<File>) -> io::Result<bool> {
        match file {
            Ok(file) => Ok(!locked(|| file.try_lock_shared())?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl FileLock for DiskLock {
    fn is_current(&self) -> io::Result<bool> {
        sys::is_same_file(&self.file, &self.path)
    }
}

/// Returns true if `take` took a lock, and false if another handle holds it.
fn locked(take: impl Fn() -> Result<(), TryLockError>) -> io::Result<bool> {
    retry(|| match take() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    })
}

impl DiskWrite {
    pub(super) fn new(file: File) -> Self {
        Self { file, resized: AtomicBool::new(false) }
    }
}

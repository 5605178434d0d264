//! The operating system's file system.
//!
//! Invariants
//! * transfers are positioned: handles do not share a file cursor;
//! * a sync that must make a changed length durable is a full one (see [`DiskWrite`]).
//!
//! `complete` handles interrupted and short calls, `sys` has the system-specific code.

#![expect(clippy::disallowed_methods, reason = "this is the module that touches the disk")]

#[cfg(unix)]
mod dir;
mod sys;

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::complete::{self, Directories, read_exact_at, retry, write_all_at};
use super::{Advice, FileLock, FileRead, FileWrite, Fs, Map, Pages};
use crate::sync::{AtomicBool, Ordering};

/// The operating system's file system.
///
/// ```
/// use rowstone::fs::{DiskFs, Fs};
///
/// assert!(DiskFs::new().exists(&std::env::temp_dir())?);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFs {}

/// A file being written. By POSIX, fdatasync makes a length durable that grew by writing. For a
/// length that was set otherwise systems differ, so the next sync after that is a full one.
#[derive(Debug)]
struct DiskWrite {
    file: File,
    resized: AtomicBool,
}

#[derive(Debug)]
struct DiskRead {
    file: File,
}

/// Keeps the memory map alive while its bytes are in use.
struct Mapped(Arc<memmap2::Mmap>);

/// A locked file; the system releases the lock when the file is closed.
#[derive(Debug)]
struct DiskLock {
    file: File,
    /// Absolute, so that a change of the working directory does not matter.
    path: PathBuf,
}

impl DiskFs {
    /// Returns the operating system's file system.
    pub fn new() -> Self {
        Self {}
    }
}

impl Fs for DiskFs {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        complete::create_dir_all(self, dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in retry(|| std::fs::read_dir(dir))? {
            match entry {
                // All names of this library are ASCII, so a lossy name is never used to open a
                // file.
                Ok(entry) => names.push(entry.file_name().to_string_lossy().into_owned()),
                // The iterator continues where it was interrupted.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        retry(|| path.try_exists())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn FileWrite>> {
        open_write(OpenOptions::new().read(true).write(true).create_new(true), path)
    }

    fn open_write(&self, path: &Path) -> io::Result<Box<dyn FileWrite>> {
        open_write(OpenOptions::new().read(true).write(true), path)
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn FileRead>> {
        let file = sys::open(OpenOptions::new().read(true), path)?;
        Ok(Arc::new(DiskRead { file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        retry(|| std::fs::rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        retry(|| std::fs::remove_file(path))
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        retry(|| std::fs::remove_dir(dir))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        retry(|| std::fs::hard_link(from, to))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        sys::sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        Ok(Box::new(DiskLock::take(sys::open(&options, path)?, path)?))
    }

    #[cfg(unix)]
    fn pin(&self, dir: &Path) -> io::Result<Option<Arc<dyn Fs>>> {
        Ok(Some(Arc::new(dir::DirFs::new(dir)?)))
    }

    fn kind(&self, path: &Path) -> String {
        sys::kind(path)
    }
}

impl Directories for DiskFs {
    fn is_dir(&self, dir: &Path) -> io::Result<bool> {
        match retry(|| dir.metadata()) {
            Ok(found) if found.is_dir() => Ok(true),
            Ok(_) => Err(io::ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn make(&self, dir: &Path) -> io::Result<()> {
        retry(|| std::fs::create_dir(dir))
    }

    fn sync(&self, dir: &Path) -> io::Result<()> {
        self.sync_dir(dir)
    }
}

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
        self.resized.store(true, Ordering::Release);
        sys::allocate(&self.file, len)
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
    fn take(file: File, path: &Path) -> io::Result<Self> {
        retry(|| match file.try_lock() {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        })?;
        Ok(Self { file, path: std::path::absolute(path)? })
    }
}

impl FileLock for DiskLock {
    fn is_current(&self) -> io::Result<bool> {
        sys::is_same_file(&self.file, &self.path)
    }
}

impl DiskWrite {
    fn new(file: File) -> Self {
        Self { file, resized: AtomicBool::new(false) }
    }
}

fn open_write(options: &OpenOptions, path: &Path) -> io::Result<Box<dyn FileWrite>> {
    Ok(Box::new(DiskWrite::new(sys::open(options, path)?)))
}

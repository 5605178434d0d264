//! Implements [`Fs`] with the operating system's file system.
//!
//! Modules: `handles` implements open files, `dir` a file system that keeps one directory open,
//! `socket` Unix sockets, `watch` waits for changes, and `sys` has the system-specific calls.
//! `complete` handles interrupted and short calls.

#![expect(clippy::disallowed_methods, reason = "this is the module that touches the disk")]

#[cfg(unix)]
mod dir;
mod handles;
#[cfg(all(target_os = "linux", feature = "cli"))]
mod socket;
mod sys;
#[cfg(target_os = "linux")]
mod watch;

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::sort::sort_by;

#[cfg(all(target_os = "linux", feature = "cli"))]
pub(crate) use self::socket::connect;

use self::handles::{DiskLock, DiskRead, DiskWrite};
#[cfg(target_os = "linux")]
use super::Watch;
use super::complete::{self, Directories, retry};
use super::{FileLock, FileRead, FileWrite, Fs};

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
                // All files of a database have ASCII names, so a lossily converted name is never
                // used to open a file.
                Ok(entry) => names.push(entry.file_name().to_string_lossy().into_owned()),
                // After an interruption the iterator continues where it stopped.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        sort_by(&mut names, Ord::cmp);
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

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        DiskLock::is_held(sys::open(OpenOptions::new().read(true), path))
    }

    #[cfg(unix)]
    fn pin(&self, dir: &Path) -> io::Result<Option<Arc<dyn Fs>>> {
        Ok(Some(Arc::new(dir::DirFs::new(dir, Arc::new(*self))?)))
    }

    #[cfg(target_os = "linux")]
    fn watch(&self, dir: &Path) -> io::Result<Box<dyn Watch>> {
        Ok(Box::new(watch::DirWatch::new(dir)?))
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

fn open_write(options: &OpenOptions, path: &Path) -> io::Result<Box<dyn FileWrite>> {
    Ok(Box::new(DiskWrite::new(sys::open(options, path)?)))
}

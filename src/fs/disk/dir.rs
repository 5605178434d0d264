//! A file system that keeps one directory open, on top of the operating system's. It resolves names
//! in that directory from the directory's descriptor, not from its path. If the directory is moved
//! or replaced, operations therefore still reach the opened directory, and never a different one at
//! the same path.
//!
//! `handles` implements open files. [`FileLock::is_current`] checks whether the path still leads to
//! the opened directory.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
#[cfg(all(target_os = "linux", feature = "cli"))]
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, linkat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::handles::{DiskLock, DiskRead, DiskWrite};
#[cfg(all(target_os = "linux", feature = "cli"))]
use super::socket;
use super::sys;
#[cfg(target_os = "linux")]
use super::watch::DirWatch;
#[cfg(target_os = "linux")]
use crate::fs::Watch;
use crate::fs::complete::retry;
use crate::fs::{FileLock, FileRead, FileWrite, Fs};
use crate::sort::sort_by;

/// The mode that `std` gives a new file, before the umask.
const NEW_FILE: Mode = Mode::from_raw_mode(0o666);

/// A file system that keeps one directory open.
pub(super) struct DirFs {
    dir: PathBuf,
    file: File,
    /// The file system for all other directories.
    outside: Arc<dyn Fs>,
}

debug_as_name!(DirFs);

impl DirFs {
    /// Opens `dir`.
    pub(super) fn new(dir: &Path, outside: Arc<dyn Fs>) -> io::Result<Self> {
        let file = sys::open_dir(dir)?;
        Ok(Self { dir: dir.to_owned(), file, outside })
    }

    /// Returns a directory descriptor and a path relative to it. For a file in the kept directory,
    /// these are its descriptor and the file's name; otherwise the current directory and the whole
    /// path.
    fn resolve<'a>(&'a self, path: &'a Path) -> (BorrowedFd<'a>, &'a Path) {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) if parent == self.dir => {
                (self.file.as_fd(), Path::new(name))
            }
            _ => (CWD, path),
        }
    }

    fn is_here(&self, dir: &Path) -> bool {
        dir == self.dir
    }

    fn open(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        let (dir, name) = self.resolve(path);
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
        sys::require_regular(File::from(retry(|| Ok(openat(dir, name, flags, NEW_FILE)?))?))
    }
}

impl Fs for DirFs {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        if self.is_here(dir) { Ok(()) } else { self.outside.create_dir_all(dir) }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        if !self.is_here(dir) {
            return self.outside.list(dir);
        }
        let mut names = Vec::new();
        for entry in retry(|| Ok(Dir::read_from(&self.file)?))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy();
            if name != "." && name != ".." {
                names.push(name.into_owned());
            }
        }
        sort_by(&mut names, Ord::cmp);
        Ok(names)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let (dir, name) = self.resolve(path);
        match retry(|| Ok(statat(dir, name, AtFlags::empty())?)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn FileWrite>> {
        let file = self.open(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        Ok(Box::new(DiskWrite::new(file)))
    }

    fn open_write(&self, path: &Path) -> io::Result<Box<dyn FileWrite>> {
        Ok(Box::new(DiskWrite::new(self.open(path, OFlags::RDWR)?)))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn FileRead>> {
        Ok(Arc::new(DiskRead { file: self.open(path, OFlags::RDONLY)? }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((from_dir, from), (to_dir, to)) = (self.resolve(from), self.resolve(to));
        retry(|| Ok(renameat(from_dir, from, to_dir, to)?))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.resolve(path);
        retry(|| Ok(unlinkat(dir, name, AtFlags::empty())?))
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.outside.remove_dir(dir)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((from_dir, from), (to_dir, to)) = (self.resolve(from), self.resolve(to));
        retry(|| match linkat(from_dir, from, to_dir, to, AtFlags::empty()) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Err(io::ErrorKind::Unsupported.into()),
            result => Ok(result?),
        })
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if self.is_here(dir) { retry(|| self.file.sync_all()) } else { self.outside.sync_dir(dir) }
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let file = self.open(path, OFlags::RDWR | OFlags::CREATE)?;
        Ok(Box::new(DiskLock::take(file, path)?))
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        DiskLock::is_held(self.open(path, OFlags::RDONLY))
    }

    #[cfg(target_os = "linux")]
    fn watch(&self, dir: &Path) -> io::Result<Box<dyn Watch>> {
        match self.is_here(dir) {
            true => Ok(Box::new(DirWatch::new(&sys::below(self.file.as_fd(), ".".as_ref()))?)),
            false => self.outside.watch(dir),
        }
    }

    fn kind(&self, path: &Path) -> String {
        sys::kind(path)
    }

    #[cfg(all(target_os = "linux", feature = "cli"))]
    fn listen(&self, path: &Path) -> io::Result<UnixListener> {
        let (dir, name) = self.resolve(path);
        socket::listen(dir, name)
    }
}

//! A small file in which a job keeps its state between runs.
//!
//! Invariants
//! * the file is replaced atomically, so a crash leaves the old or the new contents;
//! * a second file with a lock keeps other processes from the file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Code, Error, ErrorKind, Result};
use crate::fs::{FileLock, Fs, parent, read_small};

/// A file that one job at a time uses.
pub(super) struct LockedFile {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    _lock: Box<dyn FileLock>,
}

/// Suffixes of the lock file and of the file that replaces the state file.
const LOCK: &str = ".rowstone-lock";
const NEW: &str = ".rowstone-new";

impl LockedFile {
    /// Takes the lock of the file, which need not exist. `job` names the kind of job in errors.
    ///
    /// # Errors
    /// `Locked` if another process uses the file.
    pub(super) fn open(fs: Arc<dyn Fs>, path: &Path, job: &str) -> Result<Self> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                let text = format!("another {job} uses {}: name another file", path.display());
                Error::new(ErrorKind::Locked, text)
            }
            _ => Error::io(format!("lock {}", path.display()), error),
        };
        let lock = fs.lock(&beside(path, LOCK)).map_err(failed)?;
        // A process that ends removes the file, perhaps since it was opened here.
        if !lock.is_current().map_err(failed)? {
            return Err(failed(io::ErrorKind::WouldBlock.into()));
        }
        Ok(Self { fs, path: path.to_owned(), _lock: lock })
    }

    /// Returns the contents, of at most `bytes_max` bytes; `None` if there is no file.
    ///
    /// # Errors
    /// `InvalidInput` if the contents are not UTF-8; `Io`.
    pub(super) fn read(&self, bytes_max: u64) -> Result<Option<String>> {
        let bytes = match read_small(&*self.fs, &self.path, bytes_max) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed("read", error)),
        };
        String::from_utf8(bytes).map(Some).map_err(|_| self.refused("is not UTF-8"))
    }

    /// Replaces the contents durably.
    pub(super) fn replace(&self, bytes: &[u8]) -> Result<()> {
        self.try_replace(bytes).map_err(|error| self.failed("write", error))
    }

    fn try_replace(&self, bytes: &[u8]) -> io::Result<()> {
        let new = beside(&self.path, NEW);
        if self.fs.exists(&new)? {
            self.fs.remove(&new)?;
        }
        let file = self.fs.create(&new)?;
        file.write_at(0, bytes)?;
        file.sync()?;
        drop(file);
        self.fs.rename(&new, &self.path)?;
        self.fs.sync_dir(&parent(&self.path))
    }

    /// Removes the file of a job that has ended.
    pub(super) fn remove(&self) -> Result<()> {
        match self.fs.remove(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.failed("remove", error))
            }
            _ => Ok(()),
        }
    }

    fn failed(&self, doing: &str, error: io::Error) -> Error {
        Error::io(format!("{doing} {}", self.path.display()), error)
    }

    /// Returns the error for contents that cannot be used.
    pub(super) fn refused(&self, problem: &str) -> Error {
        let message = format!("{} {problem}", self.path.display());
        Error::refused_with(Code::InvalidInput, message)
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // A file that stays has no lock.
        drop(self.fs.remove(&beside(&self.path, LOCK)));
    }
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

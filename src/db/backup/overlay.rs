//! Presents one backup as the directory of a database: table files are read from the backup, and
//! all other files are in memory.
//!
//! Nothing is ever written to the backup: writes are kept in memory and discarded with the
//! database.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fs::{FileLock, FileRead, FileWrite, Fs, MemFs, pass_on};
use crate::sort::sort_by;
use crate::sync::Mutex;

/// A memory file system that also contains certain files of another file system, under other paths.
#[derive(Debug)]
pub(super) struct Overlay {
    memory: MemFs,
    under: Arc<dyn Fs>,
    files: Mutex<BTreeMap<PathBuf, PathBuf>>,
}

impl Overlay {
    /// Creates the overlay. `files` maps a path in the overlay to the path of the same file in
    /// `under`.
    pub(super) fn new(under: Arc<dyn Fs>, files: BTreeMap<PathBuf, PathBuf>) -> Self {
        Self { memory: MemFs::new(), under, files: Mutex::new(files) }
    }

    fn under(&self, path: &Path) -> Option<PathBuf> {
        self.files.lock().get(path).cloned()
    }

    fn refuse_under(&self, path: &Path) -> io::Result<()> {
        match self.under(path) {
            None => Ok(()),
            Some(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl Fs for Overlay {
    pass_on! {
        memory:
        create_dir_all(dir: &Path) -> io::Result<()>;
        remove_dir(dir: &Path) -> io::Result<()>;
        sync_dir(dir: &Path) -> io::Result<()>;
        lock(path: &Path) -> io::Result<Box<dyn FileLock>>;
        is_locked(path: &Path) -> io::Result<bool>;
        kind(path: &Path) -> String;
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = self.memory.list(dir)?;
        let files = self.files.lock();
        let here = files.keys().filter(|path| path.parent() == Some(dir));
        names.extend(here.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())));
        sort_by(&mut names, Ord::cmp);
        Ok(names)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.under(path).is_some() || self.memory.exists(path)?)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn FileWrite>> {
        match self.under(path) {
            Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
            None => self.memory.create(path),
        }
    }

    fn open_write(&self, path: &Path) -> io::Result<Box<dyn FileWrite>> {
        self.refuse_under(path)?;
        self.memory.open_write(path)
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn FileRead>> {
        match self.under(path) {
            Some(path) => self.under.open_read(&path),
            None => self.memory.open_read(path),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.refuse_under(from).and_then(|()| self.refuse_under(to))?;
        self.memory.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match self.files.lock().remove(path) {
            Some(_) => Ok(()),
            None => self.memory.remove(path),
        }
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.refuse_under(from).and_then(|()| self.refuse_under(to))?;
        self.memory.link(from, to)
    }
}

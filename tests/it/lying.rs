//! File systems that say "synced" and are not: what a suite must notice if it is worth anything.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rowstone::fs::{FileLock, FileRead, FileWrite, Fs, MemFs};

/// Passes everything on but the syncs of files, or those of directories.
#[derive(Debug)]
struct Lying {
    inner: MemFs,
    files: bool,
}

#[derive(Debug)]
struct LyingFile(Box<dyn FileWrite>);

/// Syncs of files do nothing.
pub fn about_files(inner: MemFs) -> Arc<dyn Fs> {
    Arc::new(Lying { inner, files: true })
}

/// Syncs of directories do nothing.
pub fn about_directories(inner: MemFs) -> Arc<dyn Fs> {
    Arc::new(Lying { inner, files: false })
}

impl Lying {
    fn file(&self, file: Box<dyn FileWrite>) -> Box<dyn FileWrite> {
        if self.files { Box::new(LyingFile(file)) } else { file }
    }
}

impl Fs for Lying {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.inner.create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn FileWrite>> {
        Ok(self.file(self.inner.create(path)?))
    }

    fn open_write(&self, path: &Path) -> io::Result<Box<dyn FileWrite>> {
        Ok(self.file(self.inner.open_write(path)?))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn FileRead>> {
        self.inner.open_read(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.remove_dir(dir)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.link(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if self.files { self.inner.sync_dir(dir) } else { Ok(()) }
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.inner.lock(path)
    }

    fn kind(&self, path: &Path) -> String {
        self.inner.kind(path)
    }
}

impl FileWrite for LyingFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.0.allocate(len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

//! A file system layer that simulates the end of the process, by a kill or a power cut, at a chosen
//! file operation.
//!
//! Invariants
//! * each operation that changes a file or directory, or makes a change durable, is counted once;
//! * from the chosen operation on every operation fails, and [`PowerFs::take_left`] returns the
//!   state of the disk at that moment.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::fs::{Advice, FileLock, FileRead, FileWrite, Fs, Map, MemFs, pass_on};
use crate::sync::Mutex;

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The process is killed. Data passed to the operating system survives.
    Kill,
    /// The power fails. The seed decides which unsynced data survives.
    PowerCut(u64),
}

/// A file system layer that simulates the end of the process, by a kill or a power cut, at a chosen
/// file operation.
#[derive(Clone, Debug)]
pub struct PowerFs {
    inner: Arc<dyn Fs>,
    memory: MemFs,
    fuse: Arc<Mutex<Fuse>>,
}

#[derive(Debug, Default)]
struct Fuse {
    /// The number of operations that still succeed, and how the run ends after them.
    armed: Option<(u64, End)>,
    /// The state of the disk at the end, and how the run ended.
    left: Option<(MemFs, End)>,
    blown: bool,
}

#[derive(Debug)]
struct Fused<F> {
    inner: F,
    fs: PowerFs,
}

impl PowerFs {
    /// Passes operations to `inner`, which stores its bytes in `memory`.
    pub fn new(inner: Arc<dyn Fs>, memory: MemFs) -> Self {
        Self { inner, memory, fuse: Arc::default() }
    }

    /// Ends the run after `ops` more operations.
    pub fn arm(&self, ops: u64, end: End) {
        self.fuse.lock().armed = Some((ops, end));
    }

    /// Whether the run will end at a chosen operation.
    pub fn is_armed(&self) -> bool {
        self.fuse.lock().armed.is_some()
    }

    /// Ends the run now, and returns the state of the disk.
    pub fn cut(&self, end: End) -> MemFs {
        let left = self.image(end);
        let mut fuse = self.fuse.lock();
        fuse.blown = true;
        fuse.armed = None;
        left
    }

    /// Returns the state of the disk and how the run ended, if it ended at a chosen operation.
    /// Returns them only once.
    pub fn take_left(&self) -> Option<(MemFs, End)> {
        self.fuse.lock().left.take()
    }

    /// Whether the run has ended and every operation fails.
    pub fn is_gone(&self) -> bool {
        self.fuse.lock().blown
    }

    fn image(&self, end: End) -> MemFs {
        match end {
            End::Kill => self.memory.kill_image(),
            End::PowerCut(seed) => self.memory.crash_image(seed),
        }
    }

    /// Counts an operation that changes something, and ends the run if it is the chosen one.
    fn pass(&self) -> io::Result<()> {
        let mut fuse = self.fuse.lock();
        match &mut fuse.armed {
            Some((0, end)) => {
                let end = *end;
                fuse.armed = None;
                fuse.blown = true;
                fuse.left = Some((self.image(end), end));
            }
            Some((ops, _)) => *ops -= 1,
            None => {}
        }
        if fuse.blown { Err(gone()) } else { Ok(()) }
    }

    fn alive(&self) -> io::Result<()> {
        if self.fuse.lock().blown { Err(gone()) } else { Ok(()) }
    }

    fn write(&self, inner: Box<dyn FileWrite>) -> Box<dyn FileWrite> {
        Box::new(Fused { inner, fs: self.clone() })
    }
}

fn gone() -> io::Error {
    io::Error::other("the power is gone")
}

impl<F> Fused<F> {
    fn pass(&self) -> io::Result<()> {
        self.fs.pass()
    }

    fn alive(&self) -> io::Result<()> {
        self.fs.alive()
    }
}

impl Fs for PowerFs {
    pass_on! { inner after pass:
        create_dir_all(dir: &Path) -> io::Result<()>;
        rename(from: &Path, to: &Path) -> io::Result<()>;
        remove(path: &Path) -> io::Result<()>;
        remove_dir(dir: &Path) -> io::Result<()>;
        link(from: &Path, to: &Path) -> io::Result<()>;
        sync_dir(dir: &Path) -> io::Result<()>;
    }

    pass_on! { inner after alive:
        list(dir: &Path) -> io::Result<Vec<String>>;
        exists(path: &Path) -> io::Result<bool>;
        lock(path: &Path) -> io::Result<Box<dyn FileLock>>;
        is_locked(path: &Path) -> io::Result<bool>;
    }

    fn kind(&self, path: &Path) -> String {
        self.inner.kind(path)
    }

    fn pin(&self, dir: &Path) -> io::Result<Option<Arc<dyn Fs>>> {
        let Some(inner) = self.inner.pin(dir)? else { return Ok(None) };
        Ok(Some(Arc::new(Self { inner, ..self.clone() })))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn FileWrite>> {
        self.pass()?;
        Ok(self.write(self.inner.create(path)?))
    }

    fn open_write(&self, path: &Path) -> io::Result<Box<dyn FileWrite>> {
        self.alive()?;
        Ok(self.write(self.inner.open_write(path)?))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn FileRead>> {
        self.alive()?;
        Ok(Arc::new(Fused { inner: self.inner.open_read(path)?, fs: self.clone() }))
    }
}

impl FileWrite for Fused<Box<dyn FileWrite>> {
    pass_on! { inner after pass:
        write_at(offset: u64, bytes: &[u8]) -> io::Result<()>;
        sync() -> io::Result<()>;
        allocate(len: u64) -> io::Result<()>;
        set_len(len: u64) -> io::Result<()>;
    }

    fn len(&self) -> io::Result<u64> {
        self.alive()?;
        self.inner.len()
    }

    pass_on! { inner:
        start_write_back(offset: u64, len: u64);
        forget_dirty();
    }
}

impl FileRead for Fused<Arc<dyn FileRead>> {
    pass_on! { inner after alive:
        read_at(offset: u64, buffer: &mut [u8]) -> io::Result<()>;
        len() -> io::Result<u64>;
        map() -> io::Result<Map>;
    }

    fn advise(&self, advice: Advice, range: Range<u64>) {
        self.inner.advise(advice, range);
    }
}

/// Ends the run while a file is written, and inspects the state of the disk.
#[test]
fn the_run_ends_at_the_chosen_operation() {
    let memory = MemFs::new();
    let fs = PowerFs::new(Arc::new(memory.clone()), memory);
    let path = std::path::PathBuf::from("log");
    let file = fs.create(&path).unwrap();
    fs.arm(2, End::Kill);
    file.write_at(0, b"one").unwrap();
    file.sync().unwrap();
    assert!(fs.is_armed() && fs.take_left().is_none());
    assert!(file.write_at(3, b"two").is_err());
    assert!(fs.list(Path::new(".")).is_err() && file.len().is_err());
    assert_eq!(fs.take_left().unwrap().0.read(&path).unwrap(), b"one");
    assert!(fs.take_left().is_none());
}

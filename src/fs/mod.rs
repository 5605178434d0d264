//! The only door to the disk: files, maps, directories and locks, behind traits.
//!
//! [`DiskFs`] is the system's; [`MemFs`] models what a power cut leaves; [`FaultFs`] fails chosen operations of another.
//! A program written against [`Fs`] can be crash-tested with the last two: see the example at [`MemFs`].
//!
//! Invariants
//! * a name (create, rename, remove) is durable only after [`Fs::sync_dir`] of its directory;
//! * bytes and length are durable only after [`FileWrite::sync`];
//! * an `Interrupted` error or a short transfer never leaves this module: the operation is completed or fails;
//! * a path is written through one handle at a time.

/// Methods of [`Fs`], [`FileWrite`] or [`FileRead`] that a wrapper forwards to the field `$inner` unchanged. With
/// `after $check` the method `$check` is called first and its error returned.
macro_rules! pass_on {
    ($inner:ident: $($method:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(fn $method(&self, $($argument: $type),*) $(-> $result)? {
            self.$inner.$method($($argument),*)
        })*
    };
    (
        $inner:ident after $check:ident:
        $($method:ident($($argument:ident: $type:ty),*) -> $result:ty;)*
    ) => {
        $(fn $method(&self, $($argument: $type),*) -> $result {
            self.$check()?;
            self.$inner.$method($($argument),*)
        })*
    };
}
pub(crate) use pass_on;

mod complete;
mod disk;
mod fault;
mod handle_cache;
mod map;
mod mem;
mod metered;
#[cfg(test)]
mod tests;

pub use disk::DiskFs;
pub use fault::{Fault, FaultFs, FaultKind, OpKind};
pub(crate) use handle_cache::CachedHandleFs;
pub use map::{Advice, Map, Pages};
pub use mem::MemFs;
pub(crate) use metered::{Meter, MeterLimits, Metered, MeteredFs};

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file system.
pub trait Fs: Send + Sync + fmt::Debug {
    /// Creates a directory and its missing parents. The new entries are durable on return:
    /// each created directory's parent is synced. Existing directories are fine.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// The names (not paths) in a directory, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Whether there is a file or directory of this name.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Creates a file that must not exist and opens it for writing.
    fn create(&self, path: &Path) -> io::Result<Box<dyn FileWrite>>;
    /// Opens an existing file for writing, nothing cut off.
    fn open_write(&self, path: &Path) -> io::Result<Box<dyn FileWrite>>;
    /// Opens an existing file for reading.
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn FileRead>>;
    /// Renames a file, replacing a file of the new name, atomically.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;
    /// Gives a file a second name; `Unsupported` or `CrossesDevices` where that cannot be done.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Creates the file if need be and holds it exclusively until the lock is dropped;
    /// `WouldBlock` if another process or handle holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;
    /// What kind of file system holds `path`, for people ("ext4", "tmpfs", "memory").
    fn kind(&self, path: &Path) -> String;
}

/// A file being written.
#[expect(
    clippy::len_without_is_empty,
    reason = "a length that can fail to be had, not a collection's"
)]
pub trait FileWrite: Send + Sync + fmt::Debug {
    /// Writes all of `bytes` at `offset`, growing the file as needed.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes all that was written durable, length included. After a failure nothing written since the
    /// last success may be believed, and the handle must not be synced again.
    fn sync(&self) -> io::Result<()>;
    /// Reserves space up to `len` bytes and grows the file to it, the new bytes zero, so that later
    /// writes below `len` cannot run out of space. A file system that cannot reserve only grows the file.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// The same before anything needs it: where space is short it may be refused (`StorageFull`) that [`allocate`] would
    /// still reserve.
    ///
    /// [`allocate`]: Self::allocate
    fn allocate_ahead(&self, len: u64) -> io::Result<()> {
        self.allocate(len)
    }
    /// Cuts or grows the file to `len` bytes.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// The file's length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Starts writing dirty pages of the range back without waiting; a hint.
    fn start_write_back(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }
    /// Gives up what is not durable yet, as a system does whose sync failed: it can be read, and no
    /// later sync makes it durable. Only storages that model failures do anything.
    fn forget_dirty(&self) {}
}

/// A file being read.
#[expect(
    clippy::len_without_is_empty,
    reason = "a length that can fail to be had, not a collection's"
)]
pub trait FileRead: Send + Sync + fmt::Debug {
    /// Fills `buffer` from `offset`; `UnexpectedEof` if the file is shorter.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// The file's length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// The whole file as it is now, mapped read-only. The file must not be written while it is mapped.
    fn map(&self) -> io::Result<Map>;
    /// Says how `range`, bytes of the file, will be read by [`read_at`](Self::read_at). It never fails and never changes a
    /// byte: whoever cannot take advice ignores it.
    fn advise(&self, _advice: Advice, _range: Range<u64>) {}
}

/// Holds a lock file until dropped.
pub trait FileLock: Send + Sync + fmt::Debug {}

/// Reads a whole small file; refuses one larger than `max` bytes, which is not what was asked for.
pub(crate) fn read_small(fs: &dyn Fs, path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let file = fs.open_read(path)?;
    let len = file.len()?;
    if len > max {
        let problem = format!("{len} bytes long, at most {max} expected");
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// The directory that holds `path`.
pub(crate) fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

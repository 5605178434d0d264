//! All access to the disk: traits for files, maps, directories and locks, and their
//! implementations.
//!
//! [`DiskFs`] is the system's file system, [`MemFs`] models the effects of a power cut, and
//! [`FaultFs`] injects failures into another file system. [`MemFs`] has an example of a crash test.
//!
//! * A name (create, rename, remove) is durable only after [`Fs::sync_dir`] of its directory.
//! * Bytes and length are durable only after [`FileWrite::sync`].
//! * No method returns `Interrupted`. A read or write transfers all bytes or fails.
//! * At most one handle at a time may write a file.

/// Implements methods of [`Fs`], [`FileWrite`] or [`FileRead`] by calling the same method of the
/// field `$inner`. With `after $check`, each method first calls `$check`, and returns the error if
/// that call fails.
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

/// Implements `Debug` of file systems and files, which writes only the name of the type. A program
/// contains this code even if it never calls it, because a trait object cannot leave it out.
macro_rules! debug_as_name {
    ($($name:ident),+) => {$(
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    )+};
}
pub(crate) use debug_as_name;

mod complete;
mod disk;
mod fault;
mod guarded;
mod handle_cache;
mod map;
mod mem;
mod metered;
#[cfg(test)]
mod tests;

pub use disk::DiskFs;
#[cfg(all(target_os = "linux", feature = "cli"))]
pub(crate) use disk::connect;
pub use fault::{Fault, FaultFs, FaultKind, OpKind};
pub(crate) use guarded::GuardedFs;
pub(crate) use handle_cache::CachedHandleFs;
pub use map::{Advice, Map, Pages};
pub use mem::MemFs;
pub(crate) use metered::{Meter, MeterLimits, Metered, MeteredFs};

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::sync::pause;

const POLL_EVERY: Duration = Duration::from_millis(100);

/// A file system.
pub trait Fs: Send + Sync + fmt::Debug {
    /// Creates a directory and its missing parents, and syncs the parent of each, so that the new
    /// entries are durable on return. An existing directory is no error.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Returns the names (not paths) in a directory, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Whether a file or directory of this name exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Creates a file, which must not exist yet, and opens it for writing.
    fn create(&self, path: &Path) -> io::Result<Box<dyn FileWrite>>;
    /// Opens an existing file for writing, without truncating it.
    fn open_write(&self, path: &Path) -> io::Result<Box<dyn FileWrite>>;
    /// Opens an existing file for reading.
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn FileRead>>;
    /// Renames a file atomically. A file that has the new name is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;
    /// Gives a file a second name. Fails with `Unsupported` or `CrossesDevices` if that is not
    /// possible.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Locks the file exclusively until the returned lock is dropped. Creates the file if it is
    /// missing. Fails with `WouldBlock` if another process or handle has the lock.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;
    /// Whether another process or handle holds the lock of the file; false if there is no such
    /// file. Changes nothing, and needs only the permission to read. The default is `Unsupported`.
    ///
    /// # Errors
    /// `Unsupported` if the file system has no locks; any error of opening the file.
    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        let _ = path;
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Returns the kind of the file system that holds `path`, for messages ("ext4", "tmpfs",
    /// "memory").
    fn kind(&self, path: &Path) -> String;
    /// Returns this file system with `dir` kept open. With the returned file system, a path
    /// `dir/name` always means a name in the directory that is at `dir` during this call, even
    /// after that directory was moved or replaced. Returns `None`, which is the default, if the
    /// file system resolves every path from the root.
    fn pin(&self, dir: &Path) -> io::Result<Option<Arc<dyn Fs>>> {
        let _ = dir;
        Ok(None)
    }
    /// Returns a watch that queues changes of the files in `dir` from now on, by any process of
    /// this machine. The default knows no changes: it waits a tenth of a second at most, and
    /// reports one.
    ///
    /// # Errors
    /// Any error of opening the directory.
    fn watch(&self, dir: &Path) -> io::Result<Box<dyn Watch>> {
        let _ = dir;
        Ok(Box::new(Poll))
    }
    /// Creates a Unix socket at `path`, which only its owner may use, and listens on it. Replaces
    /// an existing socket, but no other file. The default is `Unsupported`.
    ///
    /// # Errors
    /// `Unsupported` if the file system has no sockets; `AlreadyExists` if there is another file at
    /// `path`.
    #[cfg(all(target_os = "linux", feature = "cli"))]
    #[doc(hidden)]
    fn listen(&self, path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
        let _ = path;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The queued changes of a directory; see [`Fs::watch`].
pub trait Watch: Send + fmt::Debug {
    /// Waits until a file of the directory was written, created or renamed since the previous call,
    /// for `at_most` at the most. Returns whether one was. It may return true without a change.
    fn wait(&mut self, at_most: Duration) -> io::Result<bool>;
}

/// The watch of a file system that cannot report changes.
#[derive(Debug)]
struct Poll;

impl Watch for Poll {
    fn wait(&mut self, at_most: Duration) -> io::Result<bool> {
        pause(at_most.min(POLL_EVERY));
        Ok(true)
    }
}

/// A file open for writing.
#[expect(
    clippy::len_without_is_empty,
    reason = "a length that can fail to be had, not a collection's"
)]
pub trait FileWrite: Send + Sync + fmt::Debug {
    /// Writes all of `bytes` at `offset`, growing the file as needed.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes all written bytes and the length durable. After a failure, no byte written since the
    /// last successful sync can be assumed durable, and the handle must not be synced again.
    fn sync(&self) -> io::Result<()>;
    /// Reserves space up to `len` bytes and grows the file to that length with zeros, so that later
    /// writes below `len` cannot run out of space. A file system that cannot reserve space only
    /// grows the file.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Reserves space before it is needed. If space is short, an implementation may refuse this
    /// with `StorageFull` although [`allocate`] would still succeed.
    ///
    /// [`allocate`]: Self::allocate
    fn allocate_ahead(&self, len: u64) -> io::Result<()> {
        self.allocate(len)
    }
    /// Truncates or grows the file to `len` bytes.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Returns the file's length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Starts write-back of the range's dirty pages, without waiting. This is only a hint.
    fn start_write_back(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }
    /// Gives up the bytes that are not durable yet, as an operating system may do after a failed
    /// sync. The bytes can be read, but no later sync makes them durable. Only file systems that
    /// model failures implement this.
    fn forget_dirty(&self) {}
}

/// A file open for reading.
#[expect(
    clippy::len_without_is_empty,
    reason = "a length that can fail to be had, not a collection's"
)]
pub trait FileRead: Send + Sync + fmt::Debug {
    /// Fills `buffer` with the bytes from `offset` on. Fails with `UnexpectedEof` if the file is
    /// shorter.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Returns the file's length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Returns the first offset from `offset` on at which the file may have a byte other than zero,
    /// or the file's length. A file system that cannot tell holes from data returns `offset`.
    fn next_data(&self, offset: u64) -> u64 {
        offset
    }
    /// Maps the whole file read-only, with its current length. The file must not be written while
    /// it is mapped.
    fn map(&self) -> io::Result<Map>;
    /// Tells the system how the bytes `range` of the file will be read by
    /// [`read_at`](Self::read_at). This never fails and never changes a byte; an implementation may
    /// ignore it.
    fn advise(&self, _advice: Advice, _range: Range<u64>) {}
}

/// The lock of a lock file, held until the value is dropped.
pub trait FileLock: Send + Sync + fmt::Debug {
    /// Whether the path of the lock still names the locked file. This is false after the file was
    /// removed, or after its directory was moved or replaced. The default is `true`.
    fn is_current(&self) -> io::Result<bool> {
        Ok(true)
    }
}

/// Reads a whole small file. Refuses a file larger than `max` bytes, because it cannot be the file
/// that the caller expects.
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

/// Returns the directory that holds `path`.
pub(crate) fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

//! Completes operations that the system carried out only in part: interrupted calls, short
//! transfers, and the creation of several directories.
//!
//! Invariants
//! * no function here returns `Interrupted`;
//! * a transfer is completed or returns an error.
//!
//! [`DiskFs`](super::DiskFs) and [`FaultFs`](super::FaultFs) share these loops, so that injected
//! interruptions and short transfers test the same code as real ones.

use std::io;
use std::path::Path;

use super::parent;

/// Repeats `operation` while it is interrupted.
pub(super) fn retry<T>(mut operation: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match operation() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Writes all of `bytes` by calls of `write`, which may write less than it is given.
pub(super) fn write_all_at(
    mut offset: u64,
    mut bytes: &[u8],
    mut write: impl FnMut(u64, &[u8]) -> io::Result<usize>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = retry(|| write(offset, bytes))?.min(bytes.len());
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        offset += written as u64;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// Fills `buffer` by calls of `read`, which may read less than it is asked for. A call that reads 0
/// bytes means the end of the file.
pub(super) fn read_exact_at(
    mut offset: u64,
    mut buffer: &mut [u8],
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
) -> io::Result<()> {
    while !buffer.is_empty() {
        let got = retry(|| read(offset, buffer))?.min(buffer.len());
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        offset += got as u64;
        buffer = &mut buffer[got..];
    }
    Ok(())
}

/// The operations that [`create_dir_all`] uses.
pub(super) trait Directories {
    /// Whether `dir` exists. Fails if it is not a directory.
    fn is_dir(&self, dir: &Path) -> io::Result<bool>;
    fn make(&self, dir: &Path) -> io::Result<()>;
    fn sync(&self, dir: &Path) -> io::Result<()>;
}

/// Creates `dir` and its missing parents, each durable before the next is created.
///
/// 1. Find the deepest existing ancestor.
/// 2. Sync its parent, because the process that created the directory may have been killed before
///    it synced.
/// 3. Create the next directory and sync its parent, down to `dir`.
///
/// Only the deepest existing directory can lack a durable entry, and step 2 syncs that entry.
pub(super) fn create_dir_all(directories: &impl Directories, dir: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
    for ancestor in dir.ancestors().filter(|path| !path.as_os_str().is_empty()) {
        if directories.is_dir(ancestor)? {
            confirm(directories, ancestor)?;
            break;
        }
        missing.push(ancestor);
    }
    for dir in missing.into_iter().rev() {
        match directories.make(dir) {
            // Another thread or process has created the directory, or it exists now because the
            // path contains `..`.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => result?,
        }
        directories.sync(&parent(dir))?;
    }
    Ok(())
}

/// Makes an existing directory durable: syncs its parent, which has its entry.
fn confirm(directories: &impl Directories, dir: &Path) -> io::Result<()> {
    if dir.file_name().is_none() {
        return Ok(()); // the root or `..`, which this library never creates
    }
    match directories.sync(&parent(dir)) {
        // The parent cannot be read, so an administrator created the directory, not this library.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_interrupted_writes_are_completed() {
        let mut written = Vec::new();
        let mut calls = 0;
        write_all_at(7, b"abcdefgh", |offset, bytes| {
            calls += 1;
            if calls % 2 == 0 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            assert_eq!(offset, 7 + written.len() as u64);
            written.extend_from_slice(&bytes[..bytes.len().min(3)]);
            Ok(bytes.len().min(3))
        })
        .unwrap();
        assert_eq!((&written[..], calls), (&b"abcdefgh"[..], 5));
    }

    #[test]
    fn short_reads_are_completed_and_the_end_is_an_error() {
        let file = b"abcdefgh";
        let read = |offset: u64, buffer: &mut [u8]| {
            let rest = &file[(offset as usize).min(file.len())..];
            let n = rest.len().min(buffer.len()).min(3);
            buffer[..n].copy_from_slice(&rest[..n]);
            Ok(n)
        };
        let mut buffer = [0; 7];
        read_exact_at(1, &mut buffer, read).unwrap();
        assert_eq!(&buffer, b"bcdefgh");
        let error = read_exact_at(2, &mut buffer, read).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_write_that_makes_no_progress_is_an_error() {
        let error = write_all_at(0, b"a", |_, _| Ok(0)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WriteZero);
    }
}

//! Completes operations that need more than one system call: interrupted calls, short transfers,
//! and the creation of nested directories.
//!
//! Invariants
//! * no function here returns `Interrupted`;
//! * a transfer is complete or returns an error.
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

/// Writes all of `bytes` with repeated calls of `write`, each of which may write only a part.
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

/// Fills `buffer` with repeated calls of `read`, each of which may read only a part. If `read`
/// returns 0, the file has ended.
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

/// Creates `dir` and its missing parents. Each is durable before the next is created.
///
/// 1. Find the deepest existing ancestor.
/// 2. Sync its parent, because the process that created the ancestor may have been killed before it
///    synced the parent.
/// 3. Create the next directory and sync its parent, down to `dir`.
///
/// Of the existing directories only the deepest can lack a durable name, and step 2 makes it
/// durable.
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

/// Makes the name of an existing directory durable by a sync of its parent.
fn confirm(directories: &impl Directories, dir: &Path) -> io::Result<()> {
    if dir.file_name().is_none() {
        return Ok(()); // the root or `..`, which this library never creates
    }
    match directories.sync(&parent(dir)) {
        // This process may not read the parent, so this library did not create the directory.
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

//! System-specific code: reads and writes at an offset, space reservation, directory syncs, hints,
//! and the names of file system types.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::path::Path;

use crate::fs::Advice;
use crate::fs::complete::retry;

#[cfg(unix)]
pub(super) fn read_at(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, offset)
}

#[cfg(unix)]
pub(super) fn write_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<usize> {
    std::os::unix::fs::FileExt::write_at(file, bytes, offset)
}

/// On systems other than Unix a transfer moves the file's cursor, so transfers are serialized.
#[cfg(not(unix))]
static CURSOR: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(not(unix))]
pub(super) fn read_at(mut file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    use std::io::{Read, Seek};
    let _turn = CURSOR.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    file.seek(io::SeekFrom::Start(offset))?;
    file.read(buffer)
}

#[cfg(not(unix))]
pub(super) fn write_at(mut file: &File, offset: u64, bytes: &[u8]) -> io::Result<usize> {
    use std::io::{Seek, Write};
    let _turn = CURSOR.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    file.seek(io::SeekFrom::Start(offset))?;
    file.write(bytes)
}

/// Reserves space, or only grows the file if the file system cannot reserve space. On failure the
/// file may be longer than before, and is not truncated: truncating it could discard a concurrent
/// write.
pub(super) fn allocate(file: &File, len: u64) -> io::Result<()> {
    reserve(file, len)?;
    if retry(|| file.metadata())?.len() < len {
        retry(|| file.set_len(len))?;
    }
    Ok(())
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn reserve(file: &File, len: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    if len == 0 {
        return Ok(());
    }
    match retry(|| Ok(fallocate(file, FallocateFlags::empty(), 0, len)?)) {
        Err(error) => match Errno::from_io_error(&error) {
            // FreeBSD returns INVAL if the file system cannot reserve space.
            Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
            _ => Err(error),
        },
        result => result,
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn reserve(_file: &File, _len: u64) -> io::Result<()> {
    Ok(())
}

/// Opens a regular file. The open is non-blocking, because a blocking open of a FIFO waits until
/// another process opens it.
pub(super) fn open(options: &OpenOptions, path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    let options = {
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = options.clone();
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
        options
    };
    require_regular(retry(|| options.open(path))?)
}

/// Returns the file if it is a regular one. Otherwise returns an error that names the kind of file.
pub(super) fn require_regular(file: File) -> io::Result<File> {
    let kind = retry(|| file.metadata())?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    #[cfg(unix)]
    if std::os::unix::fs::FileTypeExt::is_fifo(&kind) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a FIFO, and no regular file"));
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "a device, and no regular file"))
}

#[cfg(unix)]
pub(super) fn open_dir(dir: &Path) -> io::Result<File> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let file = retry(|| File::open(dir))?;
    match retry(|| file.metadata())?.is_dir() {
        true => Ok(file),
        false => Err(io::ErrorKind::NotADirectory.into()),
    }
}

/// Whether `path` leads to the open `file`.
#[cfg(unix)]
pub(super) fn is_same_file(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let held = retry(|| file.metadata())?;
    let named = match retry(|| path.metadata()) {
        Ok(named) => named,
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => return Ok(false),
            _ => return Err(error),
        },
    };
    Ok((held.dev(), held.ino()) == (named.dev(), named.ino()))
}

/// Returns true: on systems other than Unix an open file's directory cannot be moved or removed.
#[cfg(not(unix))]
pub(super) fn is_same_file(_file: &File, _path: &Path) -> io::Result<bool> {
    Ok(true)
}

/// Returns a short path to `name` in the open directory `dir`.
#[cfg(target_os = "linux")]
pub(super) fn below(dir: std::os::fd::BorrowedFd<'_>, name: &Path) -> std::path::PathBuf {
    use std::os::fd::AsRawFd;
    Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name)
}

/// Syncs a directory. A failure to open the directory counts as a failure to sync it.
#[cfg(unix)]
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    let file = open_dir(dir)?;
    retry(|| file.sync_all())
}

/// Only checks that `dir` is a directory. On systems other than Unix directories cannot be synced,
/// and the journal of the file system makes names durable.
#[cfg(not(unix))]
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    match retry(|| dir.metadata())?.is_dir() {
        true => Ok(()),
        false => Err(io::ErrorKind::NotADirectory.into()),
    }
}

/// Returns the start of the next data at or after `offset`, or the length if only a hole follows.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn next_data(file: &File, offset: u64) -> u64 {
    use rustix::io::Errno;
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(offset)) {
        Ok(data) => data.max(offset),
        Err(Errno::NXIO) => file.metadata().map_or(offset, |found| found.len().max(offset)),
        Err(_) => offset,
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn next_data(_file: &File, offset: u64) -> u64 {
    offset
}

/// Asks Linux to start writing the dirty pages of the range to the disk; this is only a hint.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn start_write_back(file: &File, offset: u64, len: u64) {
    if let Some(len) = std::num::NonZeroU64::new(len) {
        let _ = rustix::fs::fadvise(file, offset, Some(len), rustix::fs::Advice::DontNeed);
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn start_write_back(_file: &File, _offset: u64, _len: u64) {}

/// Advises the system how the file will be read; a hint.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn advise_file(file: &File, advice: Advice, range: Range<u64>) {
    use rustix::fs::{Advice as Known, fadvise};
    let len = std::num::NonZeroU64::new(range.end.saturating_sub(range.start));
    let _ = match advice {
        // The system applies this advice to the whole file, whatever the range is.
        Advice::Random => fadvise(file, 0, None, Known::Random),
        // The system would extend advice of length 0 to the end of the file.
        Advice::WillNeed | Advice::Populate if len.is_none() => return,
        Advice::WillNeed | Advice::Populate => fadvise(file, range.start, len, Known::WillNeed),
    };
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn advise_file(_file: &File, _advice: Advice, _range: Range<u64>) {}

/// Advises the system how a range of the map will be read; this is only a hint.
#[cfg(unix)]
pub(super) fn advise(map: &memmap2::Mmap, advice: Advice, range: Range<usize>) {
    let advice = match advice {
        Advice::Random => memmap2::Advice::Random,
        #[cfg(target_os = "linux")]
        Advice::Populate => memmap2::Advice::PopulateRead,
        _ => memmap2::Advice::WillNeed,
    };
    let _ = map.advise_range(advice, range.start, range.len());
}

#[cfg(not(unix))]
pub(super) fn advise(_map: &memmap2::Mmap, _advice: Advice, _range: Range<usize>) {}

/// Returns the kind of the file system that holds `path` or its nearest existing ancestor.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn kind(path: &Path) -> String {
    let found = path.ancestors().find_map(|path| {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        rustix::fs::statfs(path).ok()
    });
    let Some(found) = found else { return "unknown".to_owned() };
    let magic = found.f_type as u64 & 0xffff_ffff;
    match KINDS.iter().find(|(known, _)| *known == magic) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("{magic:#x}"),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn kind(_path: &Path) -> String {
    "unknown".to_owned()
}

/// Magic numbers from Linux's magic.h; ext2 and ext3 have the same number as ext4.
#[cfg(any(target_os = "linux", target_os = "android"))]
const KINDS: [(u64, &str); 18] = [
    (0x0102_1994, "tmpfs"),
    (0x0102_1997, "9p"),
    (0x0000_4d44, "vfat"),
    (0x0000_6969, "nfs"),
    (0x0000_ef53, "ext4"),
    (0x2011_bab0, "exfat"),
    (0x2fc1_2fc1, "zfs"),
    (0x5346_544e, "ntfs"),
    (0x5846_5342, "xfs"),
    (0x6573_5546, "fuse"),
    (0x794c_7630, "overlayfs"),
    (0x8584_58f6, "ramfs"),
    (0x9123_683e, "btrfs"),
    (0xca45_1a4e, "bcachefs"),
    (0xf2f5_2010, "f2fs"),
    (0xfe53_4d42, "smb"),
    (0xff53_4d42, "cifs"),
    (0x7461_636f, "ocfs2"),
];

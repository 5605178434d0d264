//! Unix sockets in the directory of a database. They are addressed relative to a descriptor of the
//! directory, because the address of a socket has at most 107 bytes, and because the directory may
//! have been moved.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, Stat, chmodat, statat, unlinkat};
use rustix::io::Errno;

use super::sys;
use crate::fs::complete::retry;

/// Creates the socket `name` in `dir` and listens on it; see [`Fs::listen`](crate::fs::Fs::listen).
pub(super) fn listen(dir: BorrowedFd<'_>, name: &Path) -> io::Result<UnixListener> {
    if let Some(found) = look(dir, name)? {
        if !is_socket(&found) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the file is not a socket"));
        }
        retry(|| Ok(unlinkat(dir, name, AtFlags::empty())?))?;
    }
    let listener = UnixListener::bind(sys::below(dir, name))?;
    // Before this call another user can connect, if the umask permits it. The server refuses such a
    // connection by its user id.
    if let Err(error) = chmodat(dir, name, Mode::RUSR | Mode::WUSR, AtFlags::empty()) {
        unlinkat(dir, name, AtFlags::empty())?;
        return Err(error.into());
    }
    Ok(listener)
}

/// Connects to the socket `name` in `dir`. The socket must belong to root or to the owner of the
/// file `owned`. Returns `None` if there is no such socket, or if no process listens on it.
pub(crate) fn connect(dir: &Path, name: &str, owned: &str) -> io::Result<Option<UnixStream>> {
    let dir: File = sys::open_dir(dir)?;
    let dir = dir.as_fd();
    let Some(found) = look(dir, name.as_ref())?.filter(is_socket) else { return Ok(None) };
    let owner = look(dir, owned.as_ref())?.map(|found| found.st_uid);
    if found.st_uid != 0 && Some(found.st_uid) != owner {
        let problem = format!("{name} does not belong to the owner of {owned}");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
    }
    match retry(|| UnixStream::connect(sys::below(dir, name.as_ref()))) {
        Ok(stream) => Ok(Some(stream)),
        // Nothing listens, or the owner has just removed the socket.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn look(dir: BorrowedFd<'_>, name: &Path) -> io::Result<Option<Stat>> {
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_socket(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::Socket
}

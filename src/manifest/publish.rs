//! Lists a database directory, and makes CURRENT name a manifest. Format: FORMAT.md §publishing.
//!
//! Invariants
//! * a manifest and its name are durable before CURRENT names it;
//! * CURRENT is replaced by rename, never written in place;
//! * a directory with logs or tables but without CURRENT is a damaged database, not a new one.

use std::io;
use std::path::Path;

use crate::error::{Doing, Error, Result};
use crate::format::current::{CURRENT_BYTES, Current};
use crate::format::names::{FileName, FileNumber};
use crate::fs::{Fs, read_small};
use crate::log::LogFile;

const TEMPORARY: &str = "CURRENT.tmp";

/// True if `dir` holds a database. Otherwise, any database files in it are left over from an
/// interrupted creation. Changes nothing.
///
/// # Errors
/// `Corruption` if there are logs or tables but no CURRENT, `Io`.
pub(crate) fn probe(fs: &dyn Fs, dir: &Path) -> Result<bool> {
    let current = dir.join(FileName::Current.to_string());
    if fs.exists(&current).doing("look at", dir)? {
        return Ok(true);
    }
    if !fs.exists(dir).doing("look at", dir)? {
        return Ok(false);
    }
    let names = fs.list(dir).doing("look at", dir)?;
    let data = names
        .iter()
        .find(|name| matches!(FileName::parse(name), Some(FileName::Wal(_) | FileName::Sst(_))));
    match data {
        Some(name) => {
            let problem = format!("it is missing, and {name} is there");
            Err(Error::corrupt(&current, 0, "current", problem))
        }
        None => Ok(false),
    }
}

/// Returns the names of the files in `dir`.
pub(super) fn names(fs: &dyn Fs, dir: &Path) -> Result<Vec<String>> {
    fs.list(dir).doing("list", dir)
}

/// Returns a number above those of all files in `names`.
pub(super) fn number_after_all(names: &[String]) -> u64 {
    let numbers = names.iter().filter_map(|name| match FileName::parse(name)? {
        FileName::Manifest(FileNumber(n)) => Some(n),
        FileName::Wal(FileNumber(n)) | FileName::Sst(FileNumber(n)) => Some(n),
        FileName::Lock | FileName::Control | FileName::Current | FileName::Temporary => None,
    });
    // Ignores numbers too great to have been assigned by this engine.
    numbers.filter(|n| *n < u64::MAX / 2).max().map_or(1, |n| n + 1)
}

pub(super) fn read_current(fs: &dyn Fs, dir: &Path) -> Result<Current> {
    let path = dir.join(FileName::Current.to_string());
    let bytes = match read_small(fs, &path, 1 << 16) {
        Err(e) if e.kind() == io::ErrorKind::InvalidData => {
            return Err(Error::corrupt(&path, CURRENT_BYTES as u64, "current", e.to_string()));
        }
        result => result.doing("read", &path)?,
    };
    Current::decode(&bytes).map_err(|e| e.into_error(&path, 0))
}

/// An error while CURRENT was replaced. The variant states which step failed.
#[derive(Debug)]
pub(super) enum PublishError {
    /// A step before the rename failed: the old CURRENT is still in place.
    Before(Error),
    /// The rename or the sync after it failed: after a power failure, CURRENT may be the old or the
    /// new one.
    Unknown(Error),
}

/// Makes CURRENT name a manifest that is already durable.
///
/// 1. Create CURRENT.tmp from scratch and sync it.
/// 2. Rename it to CURRENT.
/// 3. Sync the directory.
pub(super) fn publish(fs: &dyn Fs, dir: &Path, current: Current) -> Result<(), PublishError> {
    debug_assert!(current.synced_len >= LogFile::START, "a published manifest has its header");
    let (from, to) = (dir.join(TEMPORARY), dir.join(FileName::Current.to_string()));
    let doing = |error| Error::io(format!("write {}", from.display()), error);
    let write = || -> io::Result<()> {
        if fs.exists(&from)? {
            fs.remove(&from)?;
        }
        let file = fs.create(&from)?;
        file.write_at(0, &current.encode())?;
        file.sync()
    };
    write().map_err(|e| PublishError::Before(doing(e)))?;
    let swap = fs.rename(&from, &to).and_then(|()| fs.sync_dir(dir));
    let doing = || format!("replace {}", to.display());
    swap.map_err(|e| PublishError::Unknown(Error::io_unknown(doing(), e)))
}

/// Syncs `dir`, which makes the names in it durable.
pub(super) fn sync_dir(fs: &dyn Fs, dir: &Path) -> Result<()> {
    fs.sync_dir(dir).doing("sync directory", dir)
}

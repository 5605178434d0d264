//! The file with the positions of a job, by which a later run continues it.
//!
//! Invariants
//! * the file is replaced atomically, so a crash leaves the old or the new positions;
//! * a second file with a lock keeps other processes from the file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::error::{Code, Error, ErrorKind, Result};
use crate::fs::{FileLock, Fs, parent, read_small};
use crate::json::{self, Object, Scalar};
use crate::store::slice::{Key, Slice};
use crate::sync::Mutex;

/// The file with the positions of a job.
pub(crate) struct StateFile {
    fs: Arc<dyn Fs>,
    clock: Arc<dyn Clock>,
    path: PathBuf,
    /// What the job copies. A file of another job is refused.
    job: String,
    /// The shortest time between two writes of the file.
    every: Duration,
    /// The time of the last write.
    written: Mutex<Option<Duration>>,
    _lock: Box<dyn FileLock>,
}

/// The progress of a job, as the file stores it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Saved {
    /// The slices that are left to copy.
    pub(crate) slices: Vec<Slice>,
    /// Ranges in the slices whose entities may be copied: those of pages that were being written.
    /// Complete for jobs with new keys.
    pub(crate) begun: Vec<Slice>,
    /// The key of an entity that the target had.
    pub(crate) found: Option<Key>,
    /// The number of problems of each kind that were found so far. Some may be counted twice after
    /// a crash.
    pub(crate) problems: [u64; 4],
}

/// The names of the numbers of problems.
const PROBLEMS: [&str; 4] = ["conflicts", "shared", "refused", "changed"];
/// The maximum length of the file: a slice has two bounds of at most 2 KiB of text each.
const BYTES_MAX: u64 = 64 << 20;
/// The version of the format.
const VERSION: &str = "1";
/// Suffixes of the lock file and of the file that replaces the state file.
const LOCK: &str = ".rowstone-lock";
const NEW: &str = ".rowstone-new";

impl StateFile {
    /// Takes the lock of the file, which need not exist.
    ///
    /// # Errors
    /// `Locked` if another process uses the file.
    pub(crate) fn open(
        (fs, clock): (Arc<dyn Fs>, Arc<dyn Clock>),
        path: &Path,
        job: String,
        every: Duration,
    ) -> Result<Self> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                let text = format!("another copy uses {}: name another file", path.display());
                Error::new(ErrorKind::Locked, text)
            }
            _ => Error::io(format!("lock {}", path.display()), error),
        };
        let lock = fs.lock(&beside(path, LOCK)).map_err(failed)?;
        // A process that ends removes the file, perhaps since it was opened here.
        if !lock.is_current().map_err(failed)? {
            return Err(failed(io::ErrorKind::WouldBlock.into()));
        }
        let (path, written) = (path.to_owned(), Mutex::new(None));
        Ok(Self { fs, clock, path, job, every, written, _lock: lock })
    }

    /// Returns the state of the job; `None` if there is no file.
    ///
    /// # Errors
    /// `InvalidInput` if the file is of another job, or is not such a file.
    pub(crate) fn read(&self) -> Result<Option<Saved>> {
        let bytes = match read_small(&*self.fs, &self.path, BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed("read", error)),
        };
        let text = std::str::from_utf8(&bytes).map_err(|_| self.refused("is not UTF-8"))?;
        let malformed = |_| self.refused("is not a file of positions of a copy");
        let members = json::read_object(text, 16).map_err(malformed)?;
        let member = |name: &str| members.iter().find(|(known, _)| known == name).map(|(_, v)| *v);
        let other = "is of another copy: name another file, or remove it to begin again";
        match member("job").map(Scalar::read) {
            Some(Ok(Scalar::String(job))) if job == self.job => {}
            Some(_) => return Err(self.refused(other)),
            None => return Err(self.refused("is not a file of positions of a copy")),
        }
        if member("version").is_none_or(|version| version.get() != VERSION) {
            return Err(self.refused("was written by another version of rowstone"));
        }
        let read = |name: &str, default: &str| -> Result<Vec<Slice>> {
            let slices = member(name).map_or(default, |slices| slices.get());
            let slices = json::read_array(slices, usize::MAX)?;
            slices.iter().map(|slice| read_slice(slice.get())).collect()
        };
        let slices = read("slices", "").map_err(malformed)?;
        // Files of older versions lack these.
        let begun = read("begun", "[]").map_err(malformed)?;
        let found = member("found").map(|key| read_key(key.get()));
        let found = found.transpose().map_err(malformed)?;
        let mut problems = [0; 4];
        for (name, count) in PROBLEMS.iter().zip(&mut problems) {
            let text = member(name).map_or("0", |count| count.get());
            let malformed = |_| self.refused("is not a file of positions of a copy");
            *count = text.parse().map_err(malformed)?;
        }
        Ok(Some(Saved { slices, begun, found, problems }))
    }

    /// Replaces the file, unless it was written a short time ago and the state need not be saved.
    pub(crate) fn write(&self, must: bool, saved: impl FnOnce() -> Saved) -> Result<()> {
        let mut written = self.written.lock();
        let now = self.clock.monotonic();
        let is_recent = |written: Duration| now < written.saturating_add(self.every);
        if !must && written.is_some_and(is_recent) {
            return Ok(());
        }
        *written = Some(now);
        let Saved { slices, begun, found, problems } = saved();
        let text = json::object(|object| {
            object.raw("version", VERSION);
            object.text("job", &self.job);
            PROBLEMS.iter().zip(problems).for_each(|(name, count)| object.raw(name, count));
            put_key(object, "found", found.as_ref());
            for (name, slices) in [("slices", &slices), ("begun", &begun)] {
                object.objects(name, slices, |object, slice| {
                    put_key(object, "after", slice.after.as_ref());
                    put_key(object, "until", slice.until.as_ref());
                });
            }
        });
        self.replace(text.as_bytes()).map_err(|error| self.failed("write", error))
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let new = beside(&self.path, NEW);
        if self.fs.exists(&new)? {
            self.fs.remove(&new)?;
        }
        let file = self.fs.create(&new)?;
        file.write_at(0, bytes)?;
        file.sync()?;
        drop(file);
        self.fs.rename(&new, &self.path)?;
        self.fs.sync_dir(&parent(&self.path))
    }

    /// Removes the file of a job that has ended.
    pub(crate) fn remove(&self) -> Result<()> {
        match self.fs.remove(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.failed("remove", error))
            }
            _ => Ok(()),
        }
    }

    fn failed(&self, doing: &str, error: io::Error) -> Error {
        Error::io(format!("{doing} {}", self.path.display()), error)
    }

    fn refused(&self, problem: &str) -> Error {
        let message = format!("{} {problem}", self.path.display());
        Error::refused_with(Code::InvalidInput, message)
    }
}

impl Drop for StateFile {
    fn drop(&mut self) {
        // A file that stays has no lock.
        drop(self.fs.remove(&beside(&self.path, LOCK)));
    }
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

fn put_key(object: &mut Object<'_>, name: &str, key: Option<&Key>) {
    if let Some((partition_key, row_key)) = key {
        object.texts(name, [partition_key, row_key].into_iter());
    }
}

fn read_slice(text: &str) -> Result<Slice> {
    let members = json::read_object(text, 4)?;
    let key = |name: &str| {
        let member = members.iter().find(|(known, _)| known == name);
        member.map(|(_, value)| read_key(value.get())).transpose()
    };
    Ok(Slice { after: key("after")?, until: key("until")? })
}

fn read_key(text: &str) -> Result<Key> {
    let mut parts = Vec::new();
    for part in json::read_array(text, 2)? {
        match Scalar::read(part)? {
            Scalar::String(text) => parts.push(text.into_owned()),
            _ => return Err(Error::refused_with(Code::InvalidInput, "a key is a text")),
        }
    }
    match <[String; 2]>::try_from(parts) {
        Ok([partition_key, row_key]) => Ok((partition_key, row_key)),
        Err(_) => Err(Error::refused_with(Code::InvalidInput, "a key has two parts")),
    }
}

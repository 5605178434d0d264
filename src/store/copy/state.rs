//! The file with the positions of a job, by which a later run continues it.
//!
//! Invariant: the file is replaced atomically, so a crash leaves the old or the new positions.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::error::{Code, Error, Result};
use crate::fs::{Fs, parent, read_small};
use crate::json::{self, Scalar};
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
}

/// The progress of a job, as the file stores it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Saved {
    /// The slices that are left to copy.
    pub(crate) slices: Vec<Slice>,
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

impl StateFile {
    pub(crate) fn new(
        (fs, clock): (Arc<dyn Fs>, Arc<dyn Clock>),
        path: &Path,
        job: String,
        every: Duration,
    ) -> Self {
        Self { fs, clock, path: path.to_owned(), job, every, written: Mutex::new(None) }
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
        let members = json::read_object(text, 8).map_err(malformed)?;
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
        let slices = member("slices").map_or("", |slices| slices.get());
        let slices = json::read_array(slices, usize::MAX).map_err(malformed)?;
        let slices = slices.iter().map(|slice| read_slice(slice.get()));
        let slices = slices.collect::<Result<_>>().map_err(malformed)?;
        let mut problems = [0; 4];
        for (name, count) in PROBLEMS.iter().zip(&mut problems) {
            let text = member(name).map_or("0", |count| count.get());
            let malformed = |_| self.refused("is not a file of positions of a copy");
            *count = text.parse().map_err(malformed)?;
        }
        Ok(Some(Saved { slices, problems }))
    }

    /// Replaces the file, unless it was written a short time ago and is not `last`.
    pub(crate) fn write(&self, is_last: bool, saved: impl FnOnce() -> Saved) -> Result<()> {
        let mut written = self.written.lock();
        let now = self.clock.monotonic();
        let is_recent = |written: Duration| now < written.saturating_add(self.every);
        if !is_last && written.is_some_and(is_recent) {
            return Ok(());
        }
        *written = Some(now);
        let Saved { slices, problems } = saved();
        let text = json::object(|object| {
            object.raw("version", VERSION);
            object.text("job", &self.job);
            PROBLEMS.iter().zip(problems).for_each(|(name, count)| object.raw(name, count));
            object.objects("slices", &slices, |object, slice| {
                for (name, key) in [("after", &slice.after), ("until", &slice.until)] {
                    if let Some((partition_key, row_key)) = key {
                        let parts = [partition_key, row_key];
                        object.texts(name, parts.into_iter());
                    }
                }
            });
        });
        self.replace(text.as_bytes()).map_err(|error| self.failed("write", error))
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let mut name = self.path.as_os_str().to_owned();
        name.push(".rowstone-new");
        let new = PathBuf::from(name);
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

fn read_slice(text: &str) -> Result<Slice> {
    let members = json::read_object(text, 4)?;
    let key = |name: &str| -> Result<Option<Key>> {
        let Some((_, value)) = members.iter().find(|(known, _)| known == name) else {
            return Ok(None);
        };
        let mut parts = Vec::new();
        for part in json::read_array(value.get(), 2)? {
            match Scalar::read(part)? {
                Scalar::String(text) => parts.push(text.into_owned()),
                _ => return Err(Error::refused_with(Code::InvalidInput, "a key is a text")),
            }
        }
        match <[String; 2]>::try_from(parts) {
            Ok([partition_key, row_key]) => Ok(Some((partition_key, row_key))),
            Err(_) => Err(Error::refused_with(Code::InvalidInput, "a key has two parts")),
        }
    };
    Ok(Slice { after: key("after")?, until: key("until")? })
}

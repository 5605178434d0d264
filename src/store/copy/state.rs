//! The file with the positions of a job, by which a later run continues it.
//!
//! `locked_file` replaces the file atomically, and keeps other processes from it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::error::{Code, Error, Result};
use crate::fs::Fs;
use crate::json::{self, Object, Scalar};
use crate::store::locked_file::LockedFile;
use crate::store::slice::{Key, Slice};
use crate::sync::Mutex;

/// The file with the positions of a job.
pub(crate) struct StateFile {
    file: LockedFile,
    clock: Arc<dyn Clock>,
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
        let (file, written) = (LockedFile::open(fs, path, "copy")?, Mutex::new(None));
        Ok(Self { file, clock, job, every, written })
    }

    /// Returns the state of the job; `None` if there is no file.
    ///
    /// # Errors
    /// `InvalidInput` if the file is of another job, or is not such a file.
    pub(crate) fn read(&self) -> Result<Option<Saved>> {
        let Some(text) = self.file.read(BYTES_MAX)? else { return Ok(None) };
        let malformed = |_| self.refused("is not a file of positions of a copy");
        let members = json::read_object(&text, 16).map_err(malformed)?;
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
        self.file.replace(text.as_bytes())
    }

    /// Removes the file of a job that has ended.
    pub(crate) fn remove(&self) -> Result<()> {
        self.file.remove()
    }

    fn refused(&self, problem: &str) -> Error {
        self.file.refused(problem)
    }
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

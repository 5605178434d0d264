//! Follows the manifest of another process: reads the existing records, and new ones at each
//! refresh.
//!
//! Invariants
//! * nothing on disk changes, and no lock is taken;
//! * if the writer replaces the manifest during a read, CURRENT is read again and no error is
//!   returned.
//!
//! `store` writes the manifest; `lsm::follower` handles the files that the version names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::format::current::Current;
use crate::format::edit::Identity;
use crate::format::names::{FileId, FileName};
use crate::format::record::{LogKind, Position};
use crate::fs::Fs;
use crate::log::{DurableLen, LogFile, LogReader, StopReason};

use super::edit_record::{edit_of, refused};
use super::missing::compare;
use super::publish::{names, read_current};
use super::version::Version;

/// The number of attempts to read a manifest that the writer keeps replacing.
const TRIES: usize = 16;

/// Reads a manifest that another process writes.
///
/// 1. Read CURRENT. If it names a new file, read that file from its start; otherwise continue after
///    the last record read.
/// 2. Stop at the first incomplete record, which the writer may just be writing. If a durable
///    offset is beyond that record, the record is damaged.
#[derive(Clone, Debug)]
pub(crate) struct ManifestTail {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    current: Current,
    /// The end of the records read so far.
    end: u64,
    version: Arc<Version>,
    /// True if a file is read even if it is shorter than its durable length.
    accept_short: bool,
}

impl ManifestTail {
    /// Reads the manifest of the database in `dir`.
    ///
    /// # Errors
    /// `Corruption`, `Unsupported` for data of a newer build, `Io`.
    pub(crate) fn open(fs: Arc<dyn Fs>, dir: &Path, accept_short: bool) -> Result<Self> {
        let current = read_current(&*fs, dir)?;
        let (dir, version) = (dir.to_owned(), Arc::new(Version::default()));
        let mut tail = Self { fs, dir, current, end: LogFile::START, version, accept_short };
        tail.advance()?;
        tail.version.check().map_err(|problem| refused(&tail.path(), tail.end, problem))?;
        tail.identity()?;
        Ok(tail)
    }

    /// Reads the records written since the last call; returns true if there are any.
    ///
    /// # Errors
    /// As for [`open`](Self::open). The version is unchanged after an error.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        for _ in 0..TRIES {
            let current = read_current(&*self.fs, &self.dir)?;
            match self.read_on(current) {
                Ok(changed) => return Ok(changed),
                // If CURRENT has changed, the file was replaced, which explains the error: try
                // again.
                Err(error) if read_current(&*self.fs, &self.dir)? == current => return Err(error),
                Err(_) => {}
            }
        }
        let problem = format!("the manifest in {} is replaced all the time", self.dir.display());
        Err(Error::new(ErrorKind::Busy, problem))
    }

    /// Returns the version after the last record read.
    pub(crate) fn version(&self) -> &Arc<Version> {
        &self.version
    }

    /// Returns the identity of the database.
    ///
    /// # Errors
    /// `Corruption` if no record contains it.
    pub(crate) fn identity(&self) -> Result<&Arc<Identity>> {
        let problem = || Error::corrupt(&self.path(), self.end, "record", "no identity");
        self.version.identity.as_ref().ok_or_else(problem)
    }

    /// Returns the end of the records read so far.
    pub(crate) fn position(&self) -> Position {
        Position { file: self.current.manifest, offset: self.end }
    }

    /// Returns an error if a file that the version names is missing and bytes other than zeros
    /// follow the records read. These bytes may be the edit that removed the file.
    pub(crate) fn lost_edit(&self) -> Option<Error> {
        let (id, path) = (self.current.id, self.path());
        let reader = LogReader::open(&*self.fs, &path, LogKind::Manifest, Some(id)).ok()?;
        let mut reader = reader.starting_at(self.end);
        if reader.next().ok()?.is_some() || reader.rest().ok()?.is_zero() {
            return None;
        }
        let (torn, names) = (reader.stop_text(), names(&*self.fs, &self.dir).ok()?);
        compare(&path, &self.version, self.position(), Some(&torn), &names).err()
    }

    /// Returns the id of the manifest file.
    pub(crate) fn id(&self) -> FileId {
        self.current.id
    }

    fn path(&self) -> PathBuf {
        self.dir.join(FileName::Manifest(self.current.manifest).to_string())
    }

    fn read_on(&mut self, current: Current) -> Result<bool> {
        let is_same = self.current.id == current.id && self.version.identity.is_some();
        let (from, mut version) = match is_same {
            true => (self.end, Version::clone(&self.version)),
            false => (LogFile::START, Version::default()),
        };
        let path = self.dir.join(FileName::Manifest(current.manifest).to_string());
        let read = || -> Result<LogReader> {
            let reader = LogReader::open(&*self.fs, &path, LogKind::Manifest, Some(current.id))?;
            Ok(reader.starting_at(from))
        };
        let mut reader = read()?;
        let mut end = apply_all(&mut reader, &mut version, &current)?;
        let mut stopped = None;
        while let Some(error) = self.missing(&mut reader, &version, &current)? {
            // The writer may have completed the record since it was read, so read it again,
            // together with an edit that `apply_all` held back. If the second attempt stops at the
            // same record, report the error.
            let at = reader.position().offset;
            if stopped == Some(at) {
                return Err(error);
            }
            stopped = Some(at);
            reader = read()?.starting_at(end);
            end = apply_all(&mut reader, &mut version, &current)?;
        }
        debug_assert!(from <= end, "reading moves forwards");
        if is_same && end == self.end {
            return Ok(false);
        }
        if !is_same {
            version.adopt_open_files(&self.version);
        }
        (self.current, self.end, self.version) = (current, end, Arc::new(version));
        Ok(true)
    }

    /// Returns the error to report if records are missing.
    fn missing(
        &self,
        reader: &mut LogReader,
        version: &Version,
        current: &Current,
    ) -> Result<Option<Error>> {
        let stated = if self.accept_short { 0 } else { version.durable_len(current.manifest) };
        let problem = vouched_beyond(reader, current)?;
        let at = reader.position().offset;
        let error = problem.map(|problem| Error::corrupt(reader.path(), at, "record", problem));
        Ok(error.or_else(|| DurableLen(stated).error(reader)))
    }
}

/// Applies the records up to the first incomplete one, and returns the end of the applied records.
/// If the last record imports rows, it is not applied before CURRENT or a later record shows that
/// it is durable. All other edits show only data that is durable elsewhere.
fn apply_all(reader: &mut LogReader, version: &mut Version, current: &Current) -> Result<u64> {
    let path = reader.path().to_owned();
    let mut held = None;
    while let Some(record) = reader.next()? {
        let edit = edit_of(&path, &record)?;
        let shows_rows = !edit.add_imports.is_empty();
        let is_vouched = record.offset < current.synced_len;
        held = (shows_rows && !is_vouched).then(|| (record.offset, version.clone()));
        let applied = version.apply_in_place(&edit);
        applied.map_err(|problem| refused(&path, record.offset, problem))?;
        version.count_edit(&record.bytes());
    }
    let Some((offset, before)) = held else { return Ok(reader.position().offset) };
    debug_assert!(offset < reader.position().offset, "the held edit was read");
    *version = before;
    Ok(offset)
}

/// Returns evidence that the manifest has more records than could be read, if any.
fn vouched_beyond(reader: &mut LogReader, current: &Current) -> Result<Option<String>> {
    let at = reader.position();
    if at.offset < current.synced_len {
        return Ok(Some(format!("the records end; CURRENT vouches up to {}", current.synced_len)));
    }
    let Some(StopReason::Bad(error)) = reader.stop().cloned() else {
        return Ok(None);
    };
    let durable_up_to = reader.rest()?.durable_up_to.filter(|durable_up_to| *durable_up_to > at);
    Ok(durable_up_to
        .map(|durable_up_to| format!("{error}; a later record vouches up to {durable_up_to}")))
}

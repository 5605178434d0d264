//! A record file open for writing.
//!
//! Invariants
//! * the header is durable before [`LogFile::create`] returns; the name only after the caller has
//!   synced the directory;
//! * after the first failed write or sync, every further one returns `Poisoned`;
//! * a full disk during allocation, before a byte of a record is written, does no harm.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Doing, Error, ErrorKind, Result};
use crate::format::names::{FileId, FileNumber};
use crate::format::record::{LOG_HEADER_BYTES, LogHeader, LogKind};
use crate::fs::{FileWrite, Fs};
use crate::sync::OnceLock;

/// The size of a copy step in [`LogFile::write_again`].
const COPY_BYTES: u64 = 1 << 20;

/// A record file open for writing. Its owner chooses the offsets of records.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    header: LogHeader,
    /// The file, or the error that every write returns.
    file: Result<Box<dyn FileWrite>>,
    /// The error that ended writing.
    failure: OnceLock<Error>,
}

impl LogFile {
    /// The offset of the first record.
    pub(crate) const START: u64 = LOG_HEADER_BYTES as u64;

    /// Creates the file, at least `allocate` bytes long, and makes its header durable. The caller
    /// syncs the directory before the name is relied upon.
    ///
    /// # Errors
    /// `StorageFull` or `Io`; the file may exist then and is an orphan.
    pub(crate) fn create(
        fs: &dyn Fs,
        path: &Path,
        header: LogHeader,
        allocate: u64,
    ) -> Result<Self> {
        let file = fs.create(path).doing("create", path)?;
        file.allocate(allocate.max(Self::START)).doing("create", path)?;
        file.write_at(0, &header.encode()).doing("create", path)?;
        file.sync().doing("create", path)?;
        Ok(Self { path: path.to_owned(), header, file: Ok(file), failure: OnceLock::new() })
    }

    /// Opens a file after its records were read and accepted to their end. The caller syncs it and
    /// appends after that end.
    pub(crate) fn reopen(fs: &dyn Fs, path: &Path, header: LogHeader) -> Result<Self> {
        let file = fs.open_write(path).doing("open", path)?;
        Ok(Self { path: path.to_owned(), header, file: Ok(file), failure: OnceLock::new() })
    }

    /// The log of an engine that only reads: every write returns `why`.
    pub(crate) fn refusing(why: Error) -> Self {
        let header = LogHeader { kind: LogKind::Wal, number: FileNumber(0), id: FileId(0) };
        Self { path: PathBuf::new(), header, file: Err(why), failure: OnceLock::new() }
    }

    pub(crate) fn header(&self) -> LogHeader {
        self.header
    }

    /// Reserves zero-filled space up to `len` bytes.
    ///
    /// # Errors
    /// `StorageFull` does no harm; any other failure ends writing.
    pub(crate) fn allocate(&self, len: u64) -> Result<()> {
        self.allocated(|file| file.allocate(len))
    }

    /// Reserves space that no record needs yet. A limit on disk use refuses it earlier than
    /// [`LogFile::allocate`].
    ///
    /// # Errors
    /// As for [`LogFile::allocate`].
    pub(crate) fn allocate_ahead(&self, len: u64) -> Result<()> {
        self.allocated(|file| file.allocate_ahead(len))
    }

    /// Releases the space allocated beyond `len`, which is after all records that count. A failure
    /// only wastes space.
    pub(crate) fn trim(&self, len: u64) {
        debug_assert!(len >= Self::START, "the header stays");
        if let Ok(file) = self.usable()
            && file.len().is_ok_and(|now| now > len)
        {
            let _ = file.set_len(len);
        }
    }

    /// Writes sealed records at `offset`. A failure ends writing.
    pub(crate) fn write_at(&self, offset: u64, records: &[u8]) -> Result<()> {
        debug_assert!(offset >= Self::START, "records stand behind the header");
        let result = self.usable()?.write_at(offset, records);
        result
            .map_err(|e| self.fail(Error::io_unknown(format!("write {}", self.path.display()), e)))
    }

    /// Makes everything written durable. A failure ends writing, because the disk may have dropped
    /// any of the data.
    pub(crate) fn sync(&self) -> Result<()> {
        let synced = self.usable()?.sync();
        synced.map_err(|e| self.fail(Error::io_unknown(format!("sync {}", self.path.display()), e)))
    }

    /// Rewrites the bytes in `from..end`. After a failed sync the system may show bytes that it
    /// will never write, so a later sync alone would not make them durable.
    pub(crate) fn write_again(&self, fs: &dyn Fs, from: u64, end: u64) -> Result<()> {
        let source = fs.open_read(&self.path).doing("read", &self.path)?;
        let mut at = from;
        let mut buffer = Vec::new();
        while at < end {
            let len = (end - at).min(COPY_BYTES);
            buffer.resize(usize::try_from(len).unwrap_or_default(), 0);
            source.read_at(at, &mut buffer).doing("read", &self.path)?;
            self.write_at(at, &buffer)?;
            at += len;
        }
        Ok(())
    }

    /// The error that ended writing.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failure.get().or(self.file.as_ref().err())
    }

    fn allocated(&self, work: impl FnOnce(&dyn FileWrite) -> io::Result<()>) -> Result<()> {
        work(self.usable()?).map_err(|error| {
            let error = Error::io(format!("allocate {}", self.path.display()), error);
            if error.kind() == ErrorKind::StorageFull { error } else { self.fail(error) }
        })
    }

    fn usable(&self) -> Result<&dyn FileWrite> {
        match (&self.file, self.failure()) {
            (Ok(file), None) => Ok(&**file),
            (Err(error), _) | (_, Some(error)) => Err(error.clone().poisoned()),
        }
    }

    fn fail(&self, error: Error) -> Error {
        self.failure.get_or_init(|| error.clone());
        error
    }
}

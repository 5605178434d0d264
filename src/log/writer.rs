//! A record file being written.
//!
//! Invariants
//! * the header is durable before [`LogFile::create`] returns; the name only after the caller has synced the directory;
//! * the first failed write or sync is the file's last: everything later answers `Poisoned`;
//! * running out of space while allocating, before a byte of a record is written, spoils nothing.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Doing, Error, ErrorKind, Result};
use crate::format::names::{FileId, FileNumber};
use crate::format::record::{LOG_HEADER_BYTES, LogHeader, LogKind};
use crate::fs::{FileWrite, Fs};
use crate::sync::OnceLock;

/// What is written again at a time.
const COPY_BYTES: u64 = 1 << 20;

/// A record file being written; whoever owns it decides where records go.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    header: LogHeader,
    /// Or why nothing is ever written.
    file: Result<Box<dyn FileWrite>>,
    /// What ended writing.
    failure: OnceLock<Error>,
}

impl LogFile {
    /// The offset of the first record.
    pub(crate) const START: u64 = LOG_HEADER_BYTES as u64;

    /// Creates the file, `allocate` bytes long or longer, and makes its header durable.
    /// The caller syncs the directory before anybody relies on the name.
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

    /// Opens a file whose records were read and accepted to their end. The caller appends behind that, after a sync.
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

    /// Reserves space up to `len` bytes, zero-filled.
    ///
    /// # Errors
    /// `StorageFull` spoils nothing; any other failure ends writing.
    pub(crate) fn allocate(&self, len: u64) -> Result<()> {
        self.allocated(|file| file.allocate(len))
    }

    /// The same for what no record needs yet: refused earlier where there is a limit on disk use.
    ///
    /// # Errors
    /// As of [`LogFile::allocate`].
    pub(crate) fn allocate_ahead(&self, len: u64) -> Result<()> {
        self.allocated(|file| file.allocate_ahead(len))
    }

    /// Gives back what was allocated beyond `len`, which is behind everything that counts. What fails costs room only.
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

    /// Makes everything written durable. A failure ends writing, for what the disk dropped cannot be known.
    pub(crate) fn sync(&self) -> Result<()> {
        let synced = self.usable()?.sync();
        synced.map_err(|e| self.fail(Error::io_unknown(format!("sync {}", self.path.display()), e)))
    }

    /// Writes what stands in `from..end` again. After a failed sync the system may show bytes that it no longer means
    /// to write: no later sync would make them durable.
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

    /// What ended writing, if anything did.
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

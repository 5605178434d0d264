//! Writes a record file, and syncs, preallocates and trims it.
//!
//! Invariants
//! * the header is durable before [`LogFile::create`] returns, but the name is durable only after
//!   the caller has synced the directory;
//! * after the first failed write or sync, every later write or sync returns `Poisoned`;
//! * a full disk during an allocation, before any record is written, does not prevent later writes.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Doing, Error, ErrorKind, Result};
use crate::format::names::{FileId, FileNumber};
use crate::format::record::{LOG_HEADER_BYTES, LogHeader, LogKind, RECORD_ALIGN};
use crate::fs::{FileWrite, Fs};
use crate::sync::OnceLock;

use super::reader::{LogReader, StopReason};

/// The number of bytes that [`LogFile::write_again`] copies at a time.
const COPY_BYTES: u64 = 1 << 20;

/// A record file open for writing. The caller chooses the offsets of records.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    header: LogHeader,
    /// The file, or the error that every write returns.
    file: Result<Box<dyn FileWrite>>,
    /// The first failure; every later write returns `Poisoned` with this cause.
    failure: OnceLock<Error>,
}

impl LogFile {
    /// The offset of the first record.
    pub(crate) const START: u64 = LOG_HEADER_BYTES as u64;

    /// Creates the file with at least `allocate` bytes and makes its header durable. The caller
    /// must sync the directory before it relies on the name.
    ///
    /// # Errors
    /// `StorageFull` or `Io`. The file may exist after an error; it is an orphan.
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

    /// Opens a file whose records were already read and accepted up to some end. The caller syncs
    /// the file and appends records after that end.
    pub(crate) fn reopen(fs: &dyn Fs, path: &Path, header: LogHeader) -> Result<Self> {
        let file = fs.open_write(path).doing("open", path)?;
        Ok(Self { path: path.to_owned(), header, file: Ok(file), failure: OnceLock::new() })
    }

    /// Returns the log of a read-only engine. Every write to it fails with the error `why`.
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
    /// After `StorageFull` the file is still usable; after any other failure all writes fail.
    pub(crate) fn allocate(&self, len: u64) -> Result<()> {
        self.allocated(|file| file.allocate(len))
    }

    /// Reserves space before any record needs it. If there is a limit on disk use, this is refused
    /// before [`LogFile::allocate`] would be.
    ///
    /// # Errors
    /// As for [`LogFile::allocate`].
    pub(crate) fn allocate_ahead(&self, len: u64) -> Result<()> {
        self.allocated(|file| file.allocate_ahead(len))
    }

    /// Releases the space allocated beyond `len`, which must be at or after the end of the last
    /// valid record. A failure is ignored, because it only wastes space.
    pub(crate) fn trim(&self, len: u64) {
        debug_assert!(len >= Self::START, "the header stays");
        if let Ok(file) = self.usable()
            && file.len().is_ok_and(|now| now > len)
        {
            let _ = file.set_len(len);
        }
    }

    /// Writes sealed records at `offset`. After a failure, all later writes fail.
    pub(crate) fn write_at(&self, offset: u64, records: &[u8]) -> Result<()> {
        debug_assert!(offset >= Self::START, "records stand behind the header");
        debug_assert!(
            offset.is_multiple_of(RECORD_ALIGN as u64),
            "records begin at multiples of 8"
        );
        let result = self.usable()?.write_at(offset, records);
        result
            .map_err(|e| self.fail(Error::io_unknown(format!("write {}", self.path.display()), e)))
    }

    /// Makes all written bytes durable. After a failure, all later writes fail, because the system
    /// may have dropped any of the unsynced bytes.
    pub(crate) fn sync(&self) -> Result<()> {
        let synced = self.usable()?.sync();
        synced.map_err(|e| self.fail(Error::io_unknown(format!("sync {}", self.path.display()), e)))
    }

    /// Checks the records in `from..end` and writes them again. After a failed sync the page cache
    /// may hold bytes that the system considers clean and never writes, so another sync alone is
    /// not enough. If the system has dropped such bytes since the records were accepted, the check
    /// fails.
    pub(crate) fn write_again(&self, fs: &dyn Fs, from: u64, end: u64) -> Result<()> {
        let reader = LogReader::open(fs, &self.path, self.header.kind, Some(self.header.id))?;
        let mut reader = reader.starting_at(from).until(end);
        while reader.next()?.is_some() {}
        if reader.stop() != Some(&StopReason::Accepted) {
            let (at, why) = (reader.position().offset, reader.stop_text());
            let problem = format!("{why}; it was valid up to {end} at the opening");
            return Err(Error::corrupt(&self.path, at, "record", problem));
        }
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

    /// Returns the error because of which writes fail: the first failure, or the reason why this
    /// log refuses all writes.
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

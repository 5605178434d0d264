//! Opens the write-ahead logs of a directory. Each log names its predecessor.
//!
//! Not here: reading the records in order (`wal_tail`).

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::format::edit::LogMeta;
use crate::format::names::FileName;
use crate::format::record::{LogKind, Position, RecordKind};
use crate::format::wal::{Open, Predecessor};
use crate::fs::Fs;
use crate::log::{DurableLen, LogReader};
use crate::manifest::Version;
use crate::model::Seq;

/// Reads logs of a directory.
pub(crate) struct LogFiles<'a> {
    pub(crate) fs: &'a dyn Fs,
    pub(crate) dir: &'a Path,
    /// The logs, in order.
    pub(crate) logs: &'a [LogMeta],
    /// The version that states the durable lengths of the logs; `None` to accept any length.
    pub(crate) lens: Option<&'a Version>,
}

impl LogFiles<'_> {
    pub(in crate::lsm) fn path(&self, log: LogMeta) -> PathBuf {
        self.dir.join(FileName::Wal(log.number).to_string())
    }

    pub(in crate::lsm) fn open(&self, log: LogMeta) -> Result<LogReader> {
        LogReader::open(self.fs, &self.path(log), LogKind::Wal, Some(log.id))
    }

    /// Returns the durable length that the manifest states for `log`.
    pub(in crate::lsm) fn durable_len(&self, log: LogMeta) -> DurableLen {
        DurableLen(self.lens.map_or(0, |version| version.durable_len(log.number)))
    }

    /// Returns the first record of a log and its Seq, if the log has a record yet.
    ///
    /// # Errors
    /// `Corruption` if the log has no record and its file is shorter than the durable length.
    pub(crate) fn first_record(&self, log: LogMeta) -> Result<Option<(Open, Position, Seq)>> {
        let mut reader = self.open(log)?;
        let first = first_record(&mut reader)?;
        let short = self.durable_len(log).error(&reader).filter(|_| first.is_none());
        short.map_or(Ok(first), Err)
    }

    /// Returns the log that follows `log`. If two files name `log` as their predecessor, only one
    /// of the two is in the manifest; a crash has left the other one.
    pub(in crate::lsm) fn successor(
        &self,
        log: LogMeta,
    ) -> Result<Option<(LogMeta, Predecessor, Position)>> {
        for later in self.logs.iter().filter(|later| later.number > log.number) {
            let Some((open, durable_up_to, _)) = self.first_record(*later)? else { continue };
            let names = |p: &Predecessor| p.number == log.number && p.id == log.id;
            if let Some(predecessor) = open.predecessor.filter(names) {
                return Ok(Some((*later, predecessor, durable_up_to)));
            }
        }
        Ok(None)
    }
}

/// Reads the first record of the log that `reader` has just opened. Returns the record, the durable
/// offset that it states, and its Seq.
pub(in crate::lsm) fn first_record(
    reader: &mut LogReader,
) -> Result<Option<(Open, Position, Seq)>> {
    let path = reader.path().to_owned();
    let Some(record) = reader.next()? else { return Ok(None) };
    if record.kind != RecordKind::Open {
        let problem = format!("the first record is {:?}", record.kind);
        return Err(Error::corrupt(&path, record.offset, "record header", problem));
    }
    let open = Open::decode(record.payload)
        .map_err(|error| error.into_error(&path, record.payload_offset()))?;
    Ok(Some((open, record.durable_up_to, record.seq)))
}

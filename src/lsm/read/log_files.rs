//! The log files of a directory; each names its predecessor.
//!
//! Not here: the records in order (`wal_tail`).

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::format::edit::LogMeta;
use crate::format::names::FileName;
use crate::format::record::{LogKind, Position, RecordKind};
use crate::format::wal::{Open, Predecessor};
use crate::fs::Fs;
use crate::log::LogReader;
use crate::model::Seq;

/// The logs of a directory, and access to them.
pub(crate) struct LogFiles<'a> {
    pub(crate) fs: &'a dyn Fs,
    pub(crate) dir: &'a Path,
    /// In order.
    pub(crate) logs: &'a [LogMeta],
}

impl LogFiles<'_> {
    pub(in crate::lsm) fn path(&self, log: LogMeta) -> PathBuf {
        self.dir.join(FileName::Wal(log.number).to_string())
    }

    pub(in crate::lsm) fn open(&self, log: LogMeta) -> Result<LogReader> {
        LogReader::open(self.fs, &self.path(log), LogKind::Wal, Some(log.id))
    }

    /// The first record of a log and its Seq, if it has one yet.
    pub(crate) fn first_record(&self, log: LogMeta) -> Result<Option<(Open, Position, Seq)>> {
        first_record(&mut self.open(log)?)
    }

    /// The log that follows `log`. If two logs name `log` as their predecessor, the manifest names
    /// one of them: opening after a crash removes the other.
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

/// The first record of the log that `reader` has just opened, the durable offset that it states,
/// and its Seq.
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

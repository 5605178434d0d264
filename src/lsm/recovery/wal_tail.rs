//! Reads the durable commits from the logs while another process may write them.
//! [`LogTail::advance`] lists the steps.
//!
//! Invariants
//! * A returned record is durable: no crash revokes it, and a writer that opens the database
//!   accepts it.
//! * Records are returned in the order of their Seqs, from logs that follow each other without a
//!   gap.
//!
//! Not here: which logs exist (`manifest`), the meaning of records (`wal_rows`, `changes`).

use crate::error::{Error, Result};
use crate::format::edit::LogMeta;
use crate::format::record::{Position, RECORD_HEADER_BYTES, RecordKind};
use crate::log::{DurableLen, LogFile, LogReader, RecordView, StopReason};
use crate::model::Seq;

use crate::lsm::read::log_files::LogFiles;

/// A position in the logs. Holds no file open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogTail {
    /// The current log; `None` before the first one is read.
    pub(crate) log: Option<LogMeta>,
    /// The offset at which the last returned record ends.
    end: u64,
    /// The highest durable offset known.
    durable: Position,
    /// The length that the newest log must have, according to the records read from it.
    len: Position,
}

/// A record that is durable, or that is held back until it is durable.
#[derive(Clone)]
pub(crate) struct TailRecord {
    pub(crate) log: LogMeta,
    pub(crate) kind: RecordKind,
    pub(crate) seq: Seq,
    /// The offset of the payload in the file.
    pub(crate) at: u64,
    /// The offset of the record's end.
    end: u64,
    pub(crate) payload: Vec<u8>,
}

/// The answer of a visitor: whether it accepts more records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum More {
    Yes,
    /// The visitor accepts this record, and no further one.
    No,
}

impl LogTail {
    /// Returns the position at the start of `log`.
    pub(crate) fn at(log: LogMeta) -> Self {
        Self { log: Some(log), end: LogFile::START, ..Self::default() }
    }

    /// Returns the position before which all records were returned.
    pub(crate) fn position(&self) -> Position {
        self.log.map_or(Position::default(), |log| Position { file: log.number, offset: self.end })
    }

    /// Passes every new durable record to `visit`, until `visit` returns `No`. `vouched` is the
    /// durable offset that the manifest states. Returns true if neither the current log nor its
    /// successor exists any more.
    ///
    /// 1. Read the first record of every later log. The log that names the current one as its
    ///    predecessor states where the current one ends.
    /// 2. Continue after the last returned record. Each record states the offset up to which the
    ///    logs were durable when it was written. Return the records that end at or below the
    ///    highest of these offsets; the remaining records are read again next time.
    /// 3. At the end that the successor states, continue with the successor.
    ///
    /// # Errors
    /// `Corruption` if a durable offset covers missing data; errors of `visit`; `Io`. After an
    /// error the position is undefined.
    pub(crate) fn advance(
        &mut self,
        files: &LogFiles<'_>,
        vouched: Position,
        visit: &mut dyn FnMut(TailRecord) -> Result<More>,
    ) -> Result<bool> {
        self.durable = self.durable.max(vouched);
        let mut waiting = Vec::new();
        let mut reading = (self.log, self.end);
        loop {
            let (Some(log), from) = reading else {
                let Some(first) = files.logs.first() else { return Ok(false) };
                *self = Self { durable: self.durable, ..Self::at(*first) };
                reading = (self.log, self.end);
                continue;
            };
            let successor = files.successor(log)?;
            if let Some((_, _, durable_up_to)) = successor {
                self.durable = self.durable.max(durable_up_to);
            }
            let ends = successor.map(|(_, predecessor, _)| predecessor.accepted_end);
            let at = match ends {
                Some(end) if end == from => from,
                Some(end) if end < from => {
                    let problem = format!("it ends at {end} now, and was durable up to {from}");
                    return Err(Error::corrupt(&files.path(log), end, "record", problem));
                }
                _ if !files.logs.contains(&log) => return Ok(true),
                _ => match self.read(files, log, from, ends, &mut waiting, visit)? {
                    (at, More::Yes) => at,
                    (_, More::No) => return Ok(false),
                },
            };
            match successor {
                Some((next, _, _)) if ends == Some(at) => {
                    reading = (Some(next), LogFile::START);
                    if waiting.is_empty() {
                        (self.log, self.end) = reading;
                    }
                }
                _ => return Ok(false),
            }
        }
    }

    /// Reads `log` from offset `from`, up to `ends` or the first incomplete record. Returns the
    /// offset reached.
    fn read(
        &mut self,
        files: &LogFiles<'_>,
        log: LogMeta,
        from: u64,
        ends: Option<u64>,
        waiting: &mut Vec<TailRecord>,
        visit: &mut dyn FnMut(TailRecord) -> Result<More>,
    ) -> Result<(u64, More)> {
        let (mut from, mut stopped) = (from, None);
        loop {
            let mut reader = files.open(log)?.starting_at(from);
            if let Some(end) = ends {
                reader = reader.until(end);
            }
            let mut len = files.durable_len(log);
            if self.len.file == log.number {
                len = DurableLen(len.0.max(self.len.offset));
            }
            while let Some(record) = reader.next()? {
                len.read(&record);
                self.durable = self.durable.max(record.durable_up_to);
                waiting.push(TailRecord::of(log, &record));
                if self.emit(waiting, visit)? == More::No {
                    return Ok((self.end, More::No));
                }
            }
            from = reader.position().offset;
            self.len = Position { file: log.number, offset: len.0 };
            let short = len.error(&reader).filter(|_| files.lens.is_some());
            let Some(error) = self.missing(&mut reader)?.or(short) else { break };
            // The record may have been incomplete because the writer was still writing it, so read
            // it again.
            if stopped == Some(from) {
                return Err(error);
            }
            stopped = Some(from);
        }
        Ok((from, More::Yes))
    }

    /// Passes the waiting records that are durable to `visit`.
    fn emit(
        &mut self,
        waiting: &mut Vec<TailRecord>,
        visit: &mut dyn FnMut(TailRecord) -> Result<More>,
    ) -> Result<More> {
        let is_durable = |record: &TailRecord| {
            let end = Position { file: record.log.number, offset: record.end };
            end <= self.durable
        };
        let count = waiting.iter().take_while(|record| is_durable(record)).count();
        for record in waiting.drain(..count) {
            let reached = (Some(record.log), record.end);
            let more = visit(record)?;
            (self.log, self.end) = reached;
            if more == More::No {
                return Ok(More::No);
            }
        }
        Ok(More::Yes)
    }

    /// Returns an error if a durable offset is beyond the records read, so that data is missing.
    fn missing(&self, reader: &mut LogReader) -> Result<Option<Error>> {
        let at = reader.position();
        let why = reader.stop_text();
        let rest = match reader.stop() {
            Some(StopReason::Accepted) | None => return Ok(None),
            Some(StopReason::Bad(_)) => reader.rest()?.durable_up_to,
            Some(_) => None,
        };
        let durable_up_to =
            rest.max(Some(self.durable)).filter(|durable_up_to| *durable_up_to > at);
        // A durable offset in a later log also covers all logs before it. So here too, records
        // missing before that offset are an error.
        Ok(durable_up_to.map(|end| {
            let problem = format!("{why}; a later durable offset covers everything up to {end}");
            Error::corrupt(reader.path(), at.offset, "record", problem)
        }))
    }
}

impl TailRecord {
    /// Returns the position where the record begins.
    pub(crate) fn start(&self) -> Position {
        Position { file: self.log.number, offset: self.at - RECORD_HEADER_BYTES as u64 }
    }

    fn of(log: LogMeta, record: &RecordView<'_>) -> Self {
        let at = record.payload_offset();
        let end = at + (record.payload.len() as u64).next_multiple_of(8);
        let payload = record.payload.to_vec();
        Self { log, kind: record.kind, seq: record.seq, at, end, payload }
    }
}

//! The commits that are durable, read from the logs while somebody else may write them.
//!
//! 1. Look at the first record of every later log: one that names this log as the one before it says where this one ends.
//! 2. Read on from the last record that was given. Each record says up to where the logs were durable when it was written;
//!    what ends at or below the highest of these promises is given, the rest is not: next time it is read anew.
//! 3. At the end that the successor names go on there.
//!
//! Invariants
//! * what was given is durable: no crash takes it back, and a writer that opens the database accepts it;
//! * records are given in the order of their Seqs, from logs that follow one another without a gap.
//!
//! Not here: which logs there are (`manifest`), what records mean (`wal_rows`, `changes`).

use crate::error::{Error, Result};
use crate::format::edit::LogMeta;
use crate::format::record::{Position, RECORD_HEADER_BYTES, RecordKind};
use crate::log::{LogFile, LogReader, RecordView, StopReason};
use crate::model::Seq;

use crate::lsm::read::log_files::LogFiles;

/// Where reading has come to. Plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogTail {
    /// The log under way; `None` before the first.
    pub(crate) log: Option<LogMeta>,
    /// Where the last record that was given ends.
    end: u64,
    /// Everything up to here is durable.
    durable: Position,
}

/// A record that is durable, or waits until it is.
#[derive(Clone)]
pub(crate) struct TailRecord {
    pub(crate) log: LogMeta,
    pub(crate) kind: RecordKind,
    pub(crate) seq: Seq,
    /// Where the payload begins in the file.
    pub(crate) at: u64,
    /// Where the record ends.
    end: u64,
    pub(crate) payload: Vec<u8>,
}

/// What a visitor wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum More {
    Yes,
    /// This record is taken, and no other.
    No,
}

impl LogTail {
    /// Begins with `log`.
    pub(crate) fn at(log: LogMeta) -> Self {
        Self { log: Some(log), end: LogFile::START, durable: Position::default() }
    }

    /// Everything in front of this was given.
    pub(crate) fn position(&self) -> Position {
        self.log.map_or(Position::default(), |log| Position { file: log.number, offset: self.end })
    }

    /// Gives every record that is durable and was not given yet, until the visitor has enough;
    /// `vouched` is what the manifest says is durable. True if the log under way and the one behind
    /// it are gone.
    ///
    /// # Errors
    /// `Corruption` where somebody vouches for what is not there; what `visit` answers; `Io`. Then where it has come to
    /// is not known.
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

    /// Reads `log` on from `from`, up to `ends` or the first record that is not whole; where that is.
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
            while let Some(record) = reader.next()? {
                self.durable = self.durable.max(record.durable_up_to);
                waiting.push(TailRecord::of(log, &record));
                if self.emit(waiting, visit)? == More::No {
                    return Ok((self.end, More::No));
                }
            }
            from = reader.position().offset;
            let Some(problem) = self.missing(&mut reader)? else { break };
            // Perhaps the record was being written when it was read, and is whole now.
            if stopped == Some(from) {
                return Err(Error::corrupt(reader.path(), from, "record", problem));
            }
            stopped = Some(from);
        }
        Ok((from, More::Yes))
    }

    /// Gives what waits and is durable.
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

    /// Who vouches for more than was read, if somebody does.
    fn missing(&self, reader: &mut LogReader) -> Result<Option<String>> {
        let at = reader.position();
        let why = reader.stop_text();
        let rest = match reader.stop() {
            Some(StopReason::Accepted) | None => return Ok(None),
            Some(StopReason::Bad(_)) => reader.rest()?.durable_up_to,
            Some(_) => None,
        };
        let durable_up_to =
            rest.max(Some(self.durable)).filter(|durable_up_to| *durable_up_to > at);
        // A promise of a later log stands for all before it; nothing may be missing then either.
        Ok(durable_up_to.map(|end| format!("{why}; somebody vouches for everything up to {end}")))
    }
}

impl TailRecord {
    /// Where it begins.
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

//! Reads the logs of a damaged database without opening it.
//!
//! * [`read_proven`] reads as recovery does, up to the first damage that lost an acknowledged
//!   commit. The result is the consistent state before that commit.
//! * [`read_all`] reads every record with a valid checksum, even after damage. Its callers decide
//!   about each row separately.
//!
//! FORMAT.md §recovery describes the format. This module writes no files; `lsm::recovery` replays
//! logs into an engine.

use std::collections::BTreeMap;
use std::path::Path;

use crate::codec::DecodeError;
use crate::error::{Doing, ErrorKind, Result};
use crate::format::Kind;
use crate::format::edit::{LogMeta, RangeTombstone};
use crate::format::key::decode_user_key;
use crate::format::names::{FileId, FileName, FileNumber, TableId};
use crate::format::record::{LogKind, Position, RecordKind};
use crate::format::row::decode_row;
use crate::format::shape::decode_shape;
use crate::format::wal::{Change, Close, DurableUpTo, Group, Open, RecordOrder, WalRecord};
use crate::fs::Fs;
use crate::log::{DurableLen, LogReader, StopReason};
use crate::manifest::Version;
use crate::model::{Row, Seq, Shape, Shapes};
use crate::sort::sort_by;

/// The result of reading the logs.
#[derive(Default)]
pub(crate) struct LogRows {
    /// Entries by key, newest first.
    pub(crate) rows: BTreeMap<Vec<u8>, Vec<LogEntry>>,
    pub(crate) range_tombstones: Vec<RangeTombstone>,
    pub(crate) dropped: BTreeMap<TableId, Seq>,
    /// The Seq (sequence number) of the newest commit that was read.
    pub(crate) last: Seq,
    pub(crate) losses: Vec<LogLoss>,
    /// Describes a torn tail (an incomplete record at the end of a log), which is an ordinary
    /// result of a crash.
    pub(crate) torn: Option<String>,
    /// The highest Seq reservation that any record states.
    pub(crate) seq_reservation: Seq,
}

/// An entry of a log.
#[derive(Clone, Debug)]
pub(crate) struct LogEntry {
    pub(crate) seq: Seq,
    pub(crate) kind: Kind,
    /// `None` for a tombstone, and for an unreadable row.
    pub(crate) row: Option<Row>,
    pub(crate) file: FileNumber,
    /// Whether the entry comes after damage in the logs.
    pub(crate) is_behind: bool,
}

/// A part of a log that cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct LogLoss {
    pub(crate) file: FileNumber,
    pub(crate) problem: String,
    /// The number of readable commits after the damage. They are not part of the recovered state,
    /// because commits before them are lost.
    pub(crate) commits_behind: u64,
}

struct Reading<'a> {
    fs: &'a dyn Fs,
    dir: &'a Path,
    shapes: &'a Shapes,
    flushed: Seq,
    /// The shapes that records of the current log define, by number.
    numbered: BTreeMap<u32, std::sync::Arc<Shape>>,
    is_behind: bool,
    /// The minimum length of the current log that the manifest and records of the log state.
    len: DurableLen,
    out: LogRows,
}

/// Reads the logs of `version` up to the first damage that lost a commit. The result and the table
/// files of `version` make up a consistent state.
///
/// # Errors
/// `Unsupported` for logs of a newer build.
pub(crate) fn read_proven(
    fs: &dyn Fs,
    dir: &Path,
    version: &Version,
    shapes: &Shapes,
) -> Result<LogRows> {
    let flushed = version.flushed_seq;
    let mut reading = Reading::new(fs, dir, shapes, flushed);
    reading.out.last = flushed;
    let logs = &version.logs;
    let opens: Vec<Option<Open>> = logs.iter().map(|log| reading.open_record(log)).collect();
    for (i, log) in logs.iter().enumerate() {
        let successor = opens.get(i + 1).and_then(Option::as_ref);
        let end = successor
            .and_then(|open| open.predecessor)
            .filter(|before| before.number == log.number && before.id == log.id)
            .map(|before| before.accepted_end);
        if !reading.proven_log(version, log, end, &logs[i + 1..])? {
            break;
        }
    }
    Ok(reading.out)
}

/// Reads every readable record of every log in the directory.
///
/// # Errors
/// `Io` if the directory cannot be listed; `Unsupported`.
pub(crate) fn read_all(fs: &dyn Fs, dir: &Path, shapes: &Shapes) -> Result<LogRows> {
    let mut reading = Reading::new(fs, dir, shapes, Seq::ZERO);
    for name in fs.list(dir).doing("list", dir)? {
        if let Some(FileName::Wal(number)) = FileName::parse(&name) {
            reading.is_behind = false;
            reading.whole_log(number)?;
        }
    }
    for entries in reading.out.rows.values_mut() {
        sort_by(entries, |a, b| b.seq.cmp(&a.seq));
        entries.dedup_by_key(|entry| entry.seq);
    }
    Ok(reading.out)
}

/// Returns how much of the manifest was durable according to the logs in the directory. Log records
/// state such lengths; the result is the greatest of them.
pub(crate) fn vouched_manifest(fs: &dyn Fs, dir: &Path) -> Option<Position> {
    let mut most = None;
    for name in fs.list(dir).unwrap_or_default() {
        let Some(FileName::Wal(_)) = FileName::parse(&name) else { continue };
        let opened = LogReader::open(fs, &dir.join(&name), LogKind::Wal, None);
        let Ok(mut reader) = opened else { continue };
        loop {
            while let Ok(Some(record)) = reader.next() {
                let position = match WalRecord::decode(record.kind, record.payload) {
                    Ok(WalRecord::Open(open)) => Some(open.manifest),
                    Ok(WalRecord::Close(close)) => Some(close.manifest),
                    _ => None,
                };
                most = most.max(position);
            }
            if !reader.skip_damage().unwrap_or(false) {
                break;
            }
        }
    }
    most
}

impl LogRows {
    /// Adds the entries of `all` that are not in `self`, and marks them as found after damage.
    pub(crate) fn with_rest(mut self, all: LogRows) -> LogRows {
        for (key, entries) in all.rows {
            let known = self.rows.entry(key).or_default();
            for entry in entries {
                if known.iter().all(|other| other.seq != entry.seq) {
                    known.push(LogEntry { is_behind: true, ..entry });
                }
            }
            sort_by(known, |a, b| b.seq.cmp(&a.seq));
        }
        let is_known = |loss: &LogLoss| self.losses.iter().any(|other| other.file == loss.file);
        let rest: Vec<LogLoss> = all.losses.into_iter().filter(|loss| !is_known(loss)).collect();
        self.losses.extend(rest);
        self.seq_reservation = self.seq_reservation.max(all.seq_reservation).max(all.last);
        self
    }
}

impl<'a> Reading<'a> {
    fn new(fs: &'a dyn Fs, dir: &'a Path, shapes: &'a Shapes, flushed: Seq) -> Self {
        let (numbered, out) = (BTreeMap::new(), LogRows::default());
        let (is_behind, len) = (false, DurableLen::default());
        Self { fs, dir, shapes, flushed, numbered, is_behind, len, out }
    }

    /// Opens a log. If an id is given, checks that the log has this id.
    fn open(&self, number: FileNumber, id: Option<FileId>) -> Result<LogReader> {
        let path = self.dir.join(FileName::Wal(number).to_string());
        LogReader::open(self.fs, &path, LogKind::Wal, id)
    }

    fn lose(&mut self, file: FileNumber, problem: String, commits_behind: u64) {
        self.out.losses.push(LogLoss { file, problem, commits_behind });
    }

    fn open_record(&self, log: &LogMeta) -> Option<Open> {
        let mut reader = self.open(log.number, Some(log.id)).ok()?;
        let record = reader.next().ok().flatten()?;
        (record.kind == RecordKind::Open).then(|| Open::decode(record.payload).ok()).flatten()
    }

    /// Reads one log up to `end`, or as far as its records are valid if `end` is `None`. Returns
    /// whether `end` was reached. If not, the later logs are not part of the state.
    fn proven_log(
        &mut self,
        version: &Version,
        log: &LogMeta,
        end: Option<u64>,
        later: &[LogMeta],
    ) -> Result<bool> {
        let mut reader = match self.open(log.number, Some(log.id)) {
            Ok(reader) => reader,
            Err(error) if error.kind() == ErrorKind::Unsupported => return Err(error),
            Err(error) => {
                self.lose(log.number, error.chain(), self.commits_in(later));
                return Ok(false);
            }
        };
        if let Some(end) = end {
            reader = reader.until(end);
        }
        self.numbered.clear();
        self.len = DurableLen(version.durable_len(log.number));
        let refused = self.records(&mut reader, log.number)?;
        if refused.is_none() && reader.stop() == Some(&StopReason::Accepted) {
            return Ok(true);
        }
        let at = reader.position();
        let close = version.clean_close;
        let close = close.map(|close| Position { file: close.log, offset: close.end });
        let reason = refused.clone().unwrap_or_else(|| reader.stop_text());
        let is_lost = refused.is_some()
            || end.is_some()
            || self
                .vouched(&mut reader, later)
                .max(close)
                .is_some_and(|durable_up_to| durable_up_to > at);
        let problem = format!("at byte {}: {reason}", at.offset);
        let short = self.len.problem(&reader).map(|problem| (reader.position(), problem));
        if is_lost {
            self.lose(log.number, problem, commits_behind(&mut reader) + self.commits_in(later));
        } else if let Some((at, problem)) = short.or_else(|| self.short(version, later)) {
            let problem = format!("at byte {}: {problem}", at.offset);
            self.lose(at.file, problem, self.commits_in(later));
        } else if matches!(reader.stop(), Some(StopReason::Bad(_))) {
            self.out.torn = Some(format!("{}: torn tail {problem}", FileName::Wal(log.number)));
        }
        Ok(false)
    }

    /// Finds the first of `logs` that is shorter than a length at which it was once durable.
    /// Returns the position at which its records end, and a description of the problem.
    fn short(&self, version: &Version, logs: &[LogMeta]) -> Option<(Position, String)> {
        logs.iter().find_map(|log| {
            let mut reader = self.open(log.number, Some(log.id)).ok()?;
            let mut len = DurableLen(version.durable_len(log.number));
            while let Ok(Some(record)) = reader.next() {
                len.read(&record);
            }
            Some((reader.position(), len.problem(&reader)?))
        })
    }

    /// Returns the highest durable position that a record states. It searches the records after the
    /// position of `reader` and those of the logs `later`.
    fn vouched(&self, reader: &mut LogReader, later: &[LogMeta]) -> Option<Position> {
        let mut highest = reader.rest().ok().and_then(|rest| rest.durable_up_to);
        for log in later {
            let Ok(mut reader) = self.open(log.number, Some(log.id)) else { continue };
            while let Ok(Some(record)) = reader.next() {
                highest = highest.max(Some(record.durable_up_to));
            }
            highest = highest.max(reader.rest().ok().and_then(|rest| rest.durable_up_to));
        }
        highest
    }

    /// Returns the number of readable commits in `logs`, including those after damage.
    fn commits_in(&self, logs: &[LogMeta]) -> u64 {
        let logs = logs.iter().filter_map(|log| self.open(log.number, Some(log.id)).ok());
        logs.map(|mut reader| commits_behind(&mut reader)).sum()
    }

    /// Reads all readable commits of a log, and skips damage.
    fn whole_log(&mut self, number: FileNumber) -> Result<()> {
        let mut reader = match self.open(number, None) {
            Ok(reader) => reader,
            Err(error) if error.kind() == ErrorKind::Unsupported => return Err(error),
            Err(error) => {
                self.lose(number, error.chain(), 0);
                return Ok(());
            }
        };
        self.numbered.clear();
        loop {
            let refused = self.records(&mut reader, number)?;
            let reason = refused.or_else(|| match reader.stop() {
                Some(StopReason::Bad(error)) => Some(error.to_string()),
                _ => None,
            });
            let at = reader.position().offset;
            let goes_on = reader.stop().is_none() || reader.skip_damage()?;
            if goes_on || reason.is_some() {
                let reason = reason.unwrap_or_else(|| "zeros before more records".to_owned());
                self.lose(number, format!("at byte {at}: {reason}"), 0);
            }
            if !goes_on {
                return Ok(());
            }
            self.is_behind = true;
        }
    }

    /// Reads records until the reader stops or a record is invalid. Returns the problem of an
    /// invalid record.
    fn records(&mut self, reader: &mut LogReader, file: FileNumber) -> Result<Option<String>> {
        let mut order = RecordOrder::default();
        while let Some(record) = reader.next()? {
            self.len.read(&record);
            if let Err(problem) = order.check(record.kind, record.offset) {
                return Ok(Some(problem.to_owned()));
            }
            let (seq, taken) = match WalRecord::decode(record.kind, record.payload) {
                Ok(WalRecord::Group(group) | WalRecord::Catalog(group)) => {
                    (record.seq, self.group(record.seq, &group, file))
                }
                Ok(WalRecord::DurableUpTo(DurableUpTo { seq_reservation: seq, .. }))
                | Ok(WalRecord::Close(Close { last_seq: seq, .. })) => {
                    self.out.seq_reservation = self.out.seq_reservation.max(seq);
                    continue;
                }
                Ok(WalRecord::Open(_)) => continue,
                Err(error) => return Ok(Some(error.into_error(reader.path(), 0).chain())),
            };
            match taken {
                Ok(()) => self.out.last = self.out.last.max(seq),
                Err(error) => return Ok(Some(error.to_string())),
            }
        }
        Ok(None)
    }

    fn group(&mut self, seq: Seq, group: &Group<'_>, file: FileNumber) -> Result<(), DecodeError> {
        for definition in group.shapes() {
            let shape = self.shapes.intern(&decode_shape(definition.shape)?).shape;
            self.numbered.insert(definition.number, shape);
        }
        if seq <= self.flushed {
            return Ok(());
        }
        group.check(seq).map_err(|problem| DecodeError::new("wal group", 0, problem))?;
        for entry in group.entries() {
            let key = [group.key_prefix, entry.key_suffix].concat();
            decode_user_key(&key)?;
            let row = match entry.kind {
                Kind::Delete => None,
                // The row is unreadable if a damaged record defined its shape.
                Kind::Put => self.row(entry.row).ok(),
            };
            let is_behind = self.is_behind;
            let entry = LogEntry { seq, kind: entry.kind, row, file, is_behind };
            self.out.rows.entry(key).or_default().insert(0, entry);
        }
        for change in group.changes() {
            if let Change::Dropped(table) = change {
                self.out.dropped.insert(table, seq);
            }
            self.out.range_tombstones.extend(change.into_tombstone(seq));
        }
        Ok(())
    }

    fn row(&self, bytes: &[u8]) -> Result<Row, DecodeError> {
        let row = decode_row(bytes, |number| self.numbered.get(&number))?;
        row.check()?;
        Ok(row.to_row())
    }
}

/// Counts the readable commits after the current position. Damaged records are skipped.
fn commits_behind(reader: &mut LogReader) -> u64 {
    let mut commits = 0;
    loop {
        while let Ok(Some(record)) = reader.next() {
            commits += u64::from(matches!(record.kind, RecordKind::Group | RecordKind::Catalog));
        }
        if reader.stop().is_none() || !reader.skip_damage().unwrap_or(false) {
            return commits;
        }
    }
}

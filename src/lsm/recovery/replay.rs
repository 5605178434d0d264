//! Replays the logs that the manifest names (FORMAT.md §recovery), and decides whether they end in
//! a torn tail or damage.
//!
//! Invariants
//! * The accepted records are a prefix of the commits: nothing after the first bad record of any
//!   log is used.
//! * The Seqs of commits ascend across all logs.
//! * Every row is checked against its shape before it is used (`wal_rows`).
//!
//! Not here: frames (`log`), payloads (`format::wal`), later steps of opening (`open`).

use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Doing, Error, ErrorKind, Result};
use crate::format::edit::{Account, LogMeta};
use crate::format::names::{FileName, FileNumber};
use crate::format::record::{LogKind, Position, RecordKind};
use crate::format::wal::{Group, Open, Predecessor, RecordOrder, WalRecord};
use crate::log::{DurableLen, LogFile, LogReader, RecordView, StopReason};
use crate::manifest::Manifest;
use crate::memtable::Memtable;
use crate::model::Seq;
use crate::mutants::mutant;
use crate::options::Options;

use super::wal_rows::{Drops, LogRows, Problem};
use crate::lsm::Env;
use crate::lsm::read::log_files::first_record;
use crate::lsm::read::view::Slot;
use crate::lsm::write::log_queue::LastSeqs;

/// The result of replaying the logs.
#[derive(Default)]
pub(in crate::lsm) struct Replayed {
    /// The memtables with their logs, oldest first.
    pub(in crate::lsm) slots: Vec<Slot>,
    /// The last commit in the memtables, if they had no room for later commits. These were only
    /// checked.
    pub(in crate::lsm) inserted: Option<Seq>,
    /// The logs that hold accepted records, oldest first.
    pub(in crate::lsm) accepted: Vec<Predecessor>,
    /// Logs without records, and logs whose records were all dropped.
    pub(in crate::lsm) unused: Vec<FileNumber>,
    pub(in crate::lsm) drops: Drops,
    pub(in crate::lsm) last: Seq,
    /// The highest Seq found in accepted records and files. Seqs above it, up to `last`, may have
    /// been assigned and lost.
    pub(in crate::lsm) used: Seq,
    pub(in crate::lsm) commits: u64,
    /// Bytes in the logs that the wear account (bytes written since creation) does not include yet.
    pub(in crate::lsm) found: Account,
    /// The highest durable offset that a record states.
    pub(in crate::lsm) vouched: Position,
    /// The last replayed commit, and where its record begins.
    last_commit: (Seq, Position),
    /// The highest Seq reservation that a durable record states.
    durable_reservation: Seq,
    /// True if the last log was closed cleanly.
    pub(in crate::lsm) is_clean: bool,
    /// Descriptions of the torn tail, and of logs that were accepted although they are too short.
    pub(in crate::lsm) torn: Vec<String>,
}

struct Replay<'a> {
    env: &'a Env,
    manifest: &'a Manifest,
    flushed: Seq,
    /// The Seq of the last replayed commit.
    previous: Seq,
    out: Replayed,
    seq_reservation: Seq,
    /// A Seq reservation that may not be durable, and where its record begins.
    new_reservation: (Seq, Position),
    rows: LogRows,
    /// The maximum number of memtables; `None` to insert all commits.
    slots_max: Option<usize>,
    /// The positions up to which the wear account includes log bytes and user bytes, respectively.
    counted: Option<(Position, Position)>,
    /// Readers of logs whose first record was read, kept open for replay.
    readers: Vec<LogReader>,
}

/// The maximum number of logs that stay open after the read of their first record until their
/// replay. After a clean close only one log exists.
const READERS_MAX: usize = 8;

/// The maximum number of logs whose commits are replayed into one memtable. Short sessions leave
/// many small logs.
const LOGS_PER_MEMTABLE_MAX: usize = 8;

/// Replays all logs of `manifest`. `names` lists the files in its directory. With `slots_max`, the
/// memory is bounded: full memtables are switched inside a log too, and commits for which so many
/// memtables have no room are only checked. [`resume`](super::resume) inserts them.
///
/// # Errors
/// `Corruption` if a durable offset covers missing data, `Unsupported` for records of a newer
/// build, `Io`.
pub(in crate::lsm) fn replay(
    env: &Env,
    manifest: &Manifest,
    names: &[String],
    slots_max: Option<usize>,
) -> Result<Replayed> {
    let version = manifest.version();
    let (last, used) = (version.seq_max(), version.seq_used());
    let out = Replayed { last, used, ..Replayed::default() };
    let mut replay = Replay {
        env,
        manifest,
        flushed: version.flushed_seq,
        previous: Seq::ZERO,
        out,
        seq_reservation: Seq::ZERO,
        new_reservation: (Seq::ZERO, Position::default()),
        rows: LogRows::default(),
        slots_max,
        counted: version.account.as_ref().map(|account| (account.log_end, account.user_end)),
        readers: Vec::new(),
    };
    replay.vouch_for_manifest(names)?;
    replay.logs(&version.logs)?;
    if !replay.out.is_clean && !mutant!("forget-ceiling") {
        replay.out.last = replay.out.last.max(replay.seq_reservation);
    }
    // The first record of a log, or an import, may have a Seq above all commits. The next commit
    // must be above that Seq too.
    replay.out.last = replay.out.last.max(replay.out.used);
    Ok(replay.out)
}

/// Describes a file that is shorter than its durable length, if the options accept such a file.
pub(super) fn accepted(options: &Options, short: Error) -> Result<String> {
    let text = format!("accepted: {short}");
    if options.accept_short_logs { Ok(text) } else { Err(short) }
}

/// True if new commits may be inserted into the last memtable of a replay.
pub(super) fn accepts_writes(env: &Env, slot: &Slot) -> bool {
    !slot.is_half_full(env.options.memtable_bytes) && slot.logs.len() < LOGS_PER_MEMTABLE_MAX
}

/// Decodes the contents of a log's record.
pub(super) fn decode<'a>(path: &std::path::Path, record: &RecordView<'a>) -> Result<WalRecord<'a>> {
    if record.seq > Seq::MAX {
        let problem = format!("Seq {} is beyond the last one", record.seq);
        return Err(Error::corrupt(path, record.offset, "record header", problem));
    }
    let decoded = WalRecord::decode(record.kind, record.payload);
    decoded.map_err(|error| error.into_error(path, record.payload_offset()))
}

impl Replayed {
    pub(in crate::lsm) fn seqs(&self) -> LastSeqs {
        LastSeqs { used: self.used, given_out: self.last }
    }

    /// True if some replayed commits may not be durable.
    pub(super) fn has_unvouched_commits(&self) -> bool {
        self.commits > 0 && self.last_commit.1 >= self.vouched
    }

    /// True if the commits may be read before they are synced: their Seqs are reserved, as those of
    /// weak commits are, so a power cut that revokes a commit cannot give its Seq to another one.
    /// Among them may be a `Sync` commit that was in progress when the process ended. It was not
    /// acknowledged, and becomes durable together with the weak commits before it.
    ///
    /// A last commit without a reservation is a `Sync` commit that was in progress, too. It must be
    /// synced before it is read.
    pub(super) fn may_be_read(&self) -> bool {
        !self.has_unvouched_commits() || self.last_commit.0 <= self.durable_reservation
    }
}

impl Replay<'_> {
    fn logs(&mut self, logs: &[LogMeta]) -> Result<()> {
        let opens = logs.iter().map(|log| self.open_record(log)).collect::<Result<Vec<_>>>()?;
        for (i, log) in logs.iter().enumerate() {
            if opens[i].is_none() && i + 1 == logs.len() {
                self.check_empty(log)?;
            }
            let successor = opens.get(i + 1).and_then(Option::as_ref);
            let accepted_end = successor
                .and_then(|open| open.predecessor)
                .filter(|previous| previous.number == log.number && previous.id == log.id)
                .map(|previous| previous.accepted_end);
            let (reader, len) = self.log(log, accepted_end)?;
            if reader.stop() == Some(&StopReason::Accepted) {
                continue;
            }
            let dropped = &logs[i + 1..];
            self.classify_end((reader, len), dropped, successor.is_none())?;
            if mutant!("replay-past-torn") {
                continue;
            }
            self.out.unused.extend(dropped.iter().map(|log| log.number));
            break;
        }
        Ok(())
    }

    /// Checks the length of the manifest: the first record of each log in the directory states a
    /// minimum length. Logs that a truncated manifest no longer names, and that look like orphans,
    /// are read too.
    fn vouch_for_manifest(&mut self, names: &[String]) -> Result<()> {
        let version = Arc::clone(self.manifest.version());
        let is_kept = |number| version.kept_logs.iter().any(|kept| kept.log.number == number);
        for name in names {
            let Some(FileName::Wal(number)) = FileName::parse(name) else { continue };
            let path = self.env.dir.join(name);
            let opened = LogReader::open(&*self.env.fs, &path, LogKind::Wal, None);
            let first = opened.and_then(|mut reader| {
                let open = reader.next()?.map(|record| (record.kind, Open::decode(record.payload)));
                Ok((reader, open))
            });
            match first {
                Ok((reader, open)) => {
                    // Damage in the log is reported when the log is replayed.
                    if let Some((RecordKind::Open, Ok(open))) = open {
                        self.manifest.require(open.manifest)?;
                    }
                    self.keep(reader);
                }
                // A log that only the change feed reads must not prevent opening for writing.
                Err(error) if error.kind() == ErrorKind::Io && !is_kept(number) => {
                    return Err(error);
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Reads the first record of a log; `None` if it holds no record.
    fn open_record(&mut self, log: &LogMeta) -> Result<Option<Open>> {
        let mut reader = self.reader(log)?;
        let open = first_record(&mut reader)?.map(|(open, ..)| open);
        open.as_ref().map_or(Ok(()), |open| self.manifest.require(open.manifest))?;
        self.keep(reader);
        Ok(open)
    }

    fn keep(&mut self, reader: LogReader) {
        if self.readers.len() < READERS_MAX {
            self.readers.push(reader);
        }
    }

    fn reader(&mut self, log: &LogMeta) -> Result<LogReader> {
        let path = self.path(log.number);
        if let Some(at) = self.readers.iter().position(|reader| reader.path() == path) {
            return self.readers.swap_remove(at).again(log.id);
        }
        if !self.env.fs.exists(&path).doing("look at", &path)? {
            return Err(self.missing(&path));
        }
        LogReader::open(&*self.env.fs, &path, LogKind::Wal, Some(log.id))
    }

    /// Returns the error for a missing log. Either the log was lost, or the manifest has lost the
    /// edit that removed it. Any record of the other logs may prove that the edit was lost.
    fn missing(&self, path: &std::path::Path) -> Error {
        let position = self.manifest.position();
        let manifest = FileName::Manifest(position.file);
        let end = position.offset;
        let problem = format!("{manifest}, which ends at byte {end}, names it, and it is missing");
        let missing = Error::corrupt(path, 0, "log", problem);
        self.vouch_for_manifest_throughout().err().unwrap_or(missing)
    }

    /// As [`vouch_for_manifest`](Self::vouch_for_manifest), but checks all records of the logs.
    /// Used when the manifest is in doubt.
    fn vouch_for_manifest_throughout(&self) -> Result<()> {
        let dir = &self.env.dir;
        for name in self.env.fs.list(dir).unwrap_or_default() {
            let Some(FileName::Wal(_)) = FileName::parse(&name) else { continue };
            let opened = LogReader::open(&*self.env.fs, &dir.join(name), LogKind::Wal, None);
            let Ok(mut reader) = opened else { continue };
            while let Ok(Some(record)) = reader.next() {
                match WalRecord::decode(record.kind, record.payload) {
                    Ok(WalRecord::Open(open)) => self.manifest.require(open.manifest)?,
                    Ok(WalRecord::Close(close)) => self.manifest.require(close.manifest)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn path(&self, number: FileNumber) -> PathBuf {
        self.env.dir.join(FileName::Wal(number).to_string())
    }

    /// Returns the length that the manifest states for `log`.
    fn durable_len(&self, log: &LogMeta) -> DurableLen {
        DurableLen(self.manifest.version().durable_len(log.number))
    }

    /// Refuses a log that is shorter than `len`, unless the options accept it.
    fn check_len(&mut self, reader: &LogReader, len: DurableLen) -> Result<()> {
        let Some(short) = len.error(reader) else { return Ok(()) };
        self.out.torn.push(accepted(&self.env.options, short)?);
        self.out.is_clean = false;
        Ok(())
    }

    /// Replays one log up to its first bad record or `accepted_end`. Also returns the length that
    /// the log must have.
    fn log(&mut self, log: &LogMeta, accepted_end: Option<u64>) -> Result<(LogReader, DurableLen)> {
        let mut reader = self.reader(log)?;
        if let Some(end) = accepted_end {
            reader = reader.until(end);
        }
        self.rows.begin_log();
        self.begin_slot();
        let first = self.out.slots.len();
        let path = self.path(log.number);
        let (mut is_empty, mut order) = (true, RecordOrder::default());
        let mut len = self.durable_len(log);
        while let Some(record) = reader.next()? {
            is_empty = false;
            len.read(&record);
            order.check(record.kind, record.offset).map_err(|problem| {
                Error::corrupt(&path, record.offset, "record header", problem)
            })?;
            let at = Position { file: log.number, offset: record.offset };
            let decoded = decode(&path, &record)?;
            self.count_user(at, &decoded);
            self.record(&path, at, &record, decoded)?;
        }
        let end = reader.position().offset;
        self.count_log(Position { file: log.number, offset: end });
        let close = self.manifest.version().clean_close.filter(|c| c.log == log.number);
        if let Some(close) = close.filter(|close| end < close.end) {
            let problem = format!("the records end here; the database was closed at {}", close.end);
            return Err(Error::corrupt(&path, end, "record", problem));
        }
        if is_empty {
            self.out.unused.push(log.number);
        } else {
            let (number, id, accepted_end) = (log.number, log.id, end);
            self.out.accepted.push(Predecessor { number, id, accepted_end });
            let slots = if mutant!("early-log-link") { first } else { self.out.slots.len() };
            if let (None, Some(slot)) = (self.out.inserted, self.out.slots[..slots].last_mut()) {
                slot.logs.push(log.number);
            }
        }
        Ok((reader, len))
    }

    /// Begins a new memtable if the last one is at least half full; small logs share a memtable.
    fn begin_slot(&mut self) {
        let options = &self.env.options;
        let is_full = |slot: &Slot| slot.is_half_full(options.memtable_bytes);
        if self.out.slots.last().is_none_or(is_full) && self.has_room() {
            self.push_slot();
        }
    }

    fn push_slot(&mut self) {
        let id = self.out.slots.len() as u64;
        let memtable = Arc::new(Memtable::new(id, self.env.options.memtable_bytes, 0));
        self.out.slots.push(Slot { memtable, logs: Vec::new() });
    }

    /// True if another memtable may be begun.
    fn has_room(&self) -> bool {
        self.slots_max.is_none_or(|most| self.out.slots.len() < most.max(1))
    }

    /// Begins another memtable if the last one is full. If none may be begun, no further commit is
    /// inserted.
    fn make_room(&mut self) {
        let memtable_bytes = self.env.options.memtable_bytes;
        let is_overfull = |slot: &Slot| slot.is_overfull(memtable_bytes);
        if self.slots_max.is_none() || !self.out.slots.last().is_some_and(is_overfull) {
            return;
        }
        if self.has_room() {
            self.push_slot();
        } else if self.out.inserted.is_none() {
            self.out.inserted = Some(self.previous);
        }
    }

    /// Classifies the position X where `reader` stopped, if no successor states that the log ends
    /// at X. X is damage if anything states that data beyond X is durable, otherwise a torn tail.
    fn classify_end(
        &mut self,
        (mut reader, len): (LogReader, DurableLen),
        later: &[LogMeta],
        successor_is_silent: bool,
    ) -> Result<()> {
        let (at, why) = (reader.position(), reader.stop_text());
        let is_bad = matches!(reader.stop(), Some(StopReason::Bad(_)));
        let rest = reader.rest()?;
        // The clean-close edit also states a durable end. That end may be in a later log, which is
        // not replayed because this log is bad.
        let close = self.manifest.version().clean_close;
        let close = close.map(|close| Position { file: close.log, offset: close.end });
        let mut highest = rest.durable_up_to.max(close);
        let (bytes, mut later_bytes) = (rest.bytes, 0);
        let ends_in_order = rest.is_zero() && !is_bad;
        let mut lens = vec![(reader, len)];
        for log in later {
            let (mut reader, mut len) = (self.reader(log)?, self.durable_len(log));
            while let Some(record) = reader.next()? {
                highest = highest.max(Some(record.durable_up_to));
                len.read(&record);
            }
            let rest = reader.rest()?;
            highest = highest.max(rest.durable_up_to);
            later_bytes += reader.position().offset - LogFile::START + rest.bytes;
            lens.push((reader, len));
        }
        if let Some(durable_up_to) = highest.filter(|p| *p > at) {
            // If this log does not end in a bad record, or if a later log was closed cleanly, this
            // log may be complete. In that case the damaged record is the first record of the next
            // log, which should state where this log ends.
            let may_be_whole = ends_in_order || close.is_some_and(|close| close.file > at.file);
            let suspect = later.first().filter(|_| may_be_whole && successor_is_silent);
            let (file, offset, why) = suspect.map_or((at.file, at.offset, why), |log| {
                (log.number, LogFile::START, "the first record is damaged".to_owned())
            });
            let witness =
                if close == Some(durable_up_to) { "a close in order" } else { "a later record" };
            let problem = format!("{why}; {witness} vouches for everything up to {durable_up_to}");
            return Err(Error::corrupt(&self.path(file), offset, "record", problem));
        }
        lens.iter().try_for_each(|(reader, len)| self.check_len(reader, *len))?;
        if bytes + later_bytes > 0 {
            let (offset, name) = (at.offset, FileName::Wal(at.file));
            let mut torn = format!("torn tail of {bytes} bytes at byte {offset} of {name}: {why}");
            if later_bytes > 0 {
                torn += &format!(", and {later_bytes} bytes of later logs");
            }
            self.out.torn.push(torn);
            self.out.is_clean = false;
        }
        Ok(())
    }

    /// Checks the last log if it has no records. Such a log is damaged if it was closed cleanly.
    fn check_empty(&self, log: &LogMeta) -> Result<()> {
        match self.manifest.version().clean_close {
            Some(close) if close.log == log.number => {
                let problem = format!("no record; the database was closed at {}", close.end);
                Err(Error::corrupt(&self.path(log.number), LogFile::START, "record", problem))
            }
            _ => Ok(()),
        }
    }

    fn record(
        &mut self,
        path: &std::path::Path,
        at: Position,
        record: &RecordView<'_>,
        decoded: WalRecord<'_>,
    ) -> Result<()> {
        self.out.is_clean = false;
        self.out.vouched = self.out.vouched.max(record.durable_up_to);
        let (reserved, reserved_at) = self.new_reservation;
        if reserved_at < self.out.vouched {
            self.out.durable_reservation = reserved;
        }
        match decoded {
            WalRecord::Open(open) => {
                self.out.used = self.out.used.max(record.seq);
                self.manifest.require(open.manifest)
            }
            WalRecord::DurableUpTo(durable_up_to) => {
                let reserved = durable_up_to.seq_reservation;
                if reserved > self.seq_reservation {
                    self.seq_reservation = reserved;
                    self.new_reservation = (reserved, at);
                }
                Ok(())
            }
            WalRecord::Close(close) => {
                self.out.is_clean = true;
                self.out.last = self.out.last.max(close.last_seq);
                self.manifest.require(close.manifest)
            }
            WalRecord::Group(group) | WalRecord::Catalog(group) => {
                self.group(at, record, &group).map_err(|problem| match problem {
                    Problem(text) => {
                        Error::corrupt(path, record.payload_offset(), "wal group", text)
                    }
                })
            }
        }
    }

    /// Adds the log's bytes up to `end` to `found`, except those that the wear account already
    /// includes.
    fn count_log(&mut self, end: Position) {
        let found = &mut self.out.found;
        // A manifest of an older build has no wear account; counting begins with the bytes after
        // `end`.
        if let Some((log_end, _)) = self.counted.filter(|(log_end, _)| *log_end < end) {
            let is_begun = log_end.file == end.file;
            let from = if is_begun { log_end.offset.max(LogFile::START) } else { LogFile::START };
            found.wear.count_found(&(from..end.offset));
        }
        (found.log_end, found.user_end) = (found.log_end.max(end), found.user_end.max(end));
    }

    /// Adds the key and row bytes of a record to `found`, unless the wear account already includes
    /// them.
    fn count_user(&mut self, at: Position, record: &WalRecord<'_>) {
        let is_missing = self.counted.is_some_and(|(_, user_end)| at >= user_end);
        if let (true, WalRecord::Group(group) | WalRecord::Catalog(group)) = (is_missing, record) {
            self.out.found.wear.user_bytes += group.user_bytes;
        }
    }

    fn group(
        &mut self,
        at: Position,
        record: &RecordView<'_>,
        group: &Group<'_>,
    ) -> Result<(), Problem> {
        self.rows.define(&self.env.shapes, group)?;
        if record.seq <= self.flushed {
            return Ok(());
        }
        if record.seq <= self.previous {
            return Err(Problem(format!("commit #{} after #{}", record.seq, self.previous)));
        }
        self.make_room();
        self.previous = record.seq;
        let slot = self.out.slots.last().filter(|_| self.out.inserted.is_none());
        let memtable = slot.map(|slot| &*slot.memtable);
        let commit = (record.seq, record.payload.len());
        self.rows.take(self.env.seed, memtable, commit, group, &mut self.out.drops)?;
        self.out.last = self.out.last.max(record.seq);
        self.out.used = self.out.used.max(record.seq);
        self.out.last_commit = (record.seq, at);
        self.out.commits += 1;
        Ok(())
    }
}

//! Reads the commits in the logs in order, beginning at any Seq. Covers the logs that recovery
//! needs and those retained for the change feed.
//!
//! Invariants
//! * The commits returned have no gap: each log names its predecessor, and logs that are not linked
//!   in this way are not read.
//! * Only durable commits are returned. Imports are returned in order: each import states where the
//!   log ended when it was made, and is returned after all records before that position.
//!
//! Not here: translating commits into changes of entities (`changes`).

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Doing, Error, ErrorKind, Result};
use crate::format::edit::{Identity, Import, LogMeta};
use crate::format::names::FileName;
use crate::format::record::Position;
use crate::format::wal::{Group, WalRecord};
use crate::fs::{Fs, Watch};
use crate::manifest::{ManifestTail, Version};
use crate::model::Seq;

use super::wal_tail::{LogTail, More, TailRecord};
use crate::lsm::Env;
use crate::lsm::read::log_files::LogFiles;

/// The maximum number of retries if the writer removes files before they are read.
const TRIES: usize = 64;
/// Limits of one read: the number of records, and their payload in bytes. The last record may
/// exceed the limit in bytes.
const RECORDS_MAX: usize = 512;
const BYTES_MAX: usize = 4 << 20;

/// A reader of the change log.
///
/// To begin, the reader follows the logs from the newest backwards. Each log names its predecessor,
/// and its first record contains the last Seq before it. Reading begins at the first log found
/// whose first record is at or below the requested Seq; without such a log, changes are lost.
/// `wal_tail` reads on from that log. The manifest lists the imports, which are returned between
/// the commits.
#[derive(Clone)]
pub(crate) struct ChangeLog {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    identity: Arc<Identity>,
    manifest: ManifestTail,
    /// The reading position: every record before it was returned or is in `ready`.
    tail: LogTail,
    ready: VecDeque<TailRecord>,
    /// Imports before the position of `tail` that were not returned yet.
    imports: VecDeque<Import>,
    /// True once a log's first record showed that no commit is missing between `given` and that
    /// log.
    is_linked: bool,
    /// The last Seq returned. Later items are still to be returned.
    pub(crate) given: Seq,
}

/// An item of the change log.
pub(crate) enum Logged<'a> {
    /// The next log begins. It defines all its shapes itself.
    Log,
    /// A commit. If `is_new` is false it was returned before, and only its shape definitions are
    /// needed.
    Commit { seq: Seq, group: &'a Group<'a>, is_new: bool, path: &'a Path, at: u64 },
    /// Rows were imported as files.
    Import(&'a Import),
}

impl ChangeLog {
    /// Begins after commit `since`, or at the oldest retained commit.
    ///
    /// # Errors
    /// `ChangesLost` if commits after `since` are no longer retained; `Corruption`, `Io`.
    pub(crate) fn open(env: &Env, since: Option<Seq>) -> Result<Self> {
        let (fs, dir) = (Arc::clone(&env.fs), &env.dir);
        // The lengths of the manifest and the logs were checked when the database was opened, so
        // any length is accepted here.
        let manifest = ManifestTail::open(Arc::clone(&fs), dir, true)?;
        let identity = Arc::clone(manifest.identity()?);
        let given = since.unwrap_or_default();
        let mut feed = Self {
            fs,
            dir: dir.to_owned(),
            identity,
            manifest,
            tail: LogTail::default(),
            ready: VecDeque::new(),
            imports: VecDeque::new(),
            is_linked: false,
            given,
        };
        feed.retrying(|feed| {
            if since.is_none() {
                // The oldest log in the chain of predecessors of the newest log, and the last Seq
                // before that log.
                let oldest = feed.linked(|_| false)?;
                feed.given = oldest.map_or(feed.manifest.version().seq_max(), |(_, seq)| seq);
            }
            feed.begin()
        })?;
        Ok(feed)
    }

    /// Passes the next items to `visit` until it returns `No` or no further durable item exists.
    ///
    /// # Errors
    /// `ChangesLost` if the next items are no longer retained, or if the database was restored;
    /// `Corruption`, `Io`.
    pub(crate) fn read(&mut self, visit: &mut dyn FnMut(Logged<'_>) -> Result<More>) -> Result<()> {
        loop {
            while let Some(record) = self.ready.pop_front() {
                let given = match self.emit_imports(record.start(), visit) {
                    Ok(More::Yes) => self.emit(&record, visit),
                    // Keep the record for the next call.
                    not_yet => {
                        self.ready.push_front(record);
                        return not_yet.map(drop);
                    }
                };
                match given {
                    Ok(More::Yes) => {}
                    Ok(More::No) => return Ok(()),
                    // Keep the record for a retry.
                    Err(error) => {
                        self.ready.push_front(record);
                        return Err(error);
                    }
                }
            }
            if self.emit_imports(self.tail.position(), visit)? == More::No {
                return Ok(());
            }
            let mut is_more = false;
            self.retrying(|feed| {
                is_more = feed.fill()?;
                Ok(())
            })?;
            if !is_more && self.imports.is_empty() {
                return Ok(());
            }
        }
    }

    /// Returns a watch of the directory that contains the logs and the manifest.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn watch(&self) -> Result<Box<dyn Watch>> {
        self.fs.watch(&self.dir).doing("watch", &self.dir)
    }

    /// Runs `step`, and repeats it after an error if the manifest has changed since: the writer may
    /// have removed a file that `step` was about to read.
    fn retrying(&mut self, mut step: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.manifest.advance()?;
        for _ in 0..TRIES {
            let result = step(self);
            match &result {
                Err(error) if error.kind() != ErrorKind::ChangesLost => {}
                _ => return result,
            }
            if !self.manifest.advance()? {
                return result;
            }
        }
        let problem = format!("the writer of {} replaces files all the time", self.dir.display());
        Err(Error::new(ErrorKind::Busy, problem))
    }

    /// Reads some durable records, and the imports that precede the end of these records. Returns
    /// false if no record was read.
    ///
    /// The logs that the manifest names are read first, then the manifest again. This finds every
    /// import that precedes the records, because the edit of an import and the edit that states it
    /// to be durable are written before any later record. The records are discarded if their log is
    /// no longer named, because then imports after that log may have been removed from the manifest
    /// as well.
    fn fill(&mut self) -> Result<bool> {
        let version = Arc::clone(self.manifest.version());
        self.check_identity(&version)?;
        let mut tail = self.tail.clone();
        let (mut ready, mut bytes) = (VecDeque::new(), 0);
        let is_gone = {
            let logs = all_logs(&version);
            let files = LogFiles { fs: &*self.fs, dir: &self.dir, logs: &logs, lens: None };
            tail.advance(&files, version.vouched(), &mut |record| {
                bytes += record.payload.len();
                ready.push_back(record);
                let is_enough = ready.len() >= RECORDS_MAX || bytes >= BYTES_MAX;
                Ok(if is_enough { More::No } else { More::Yes })
            })?
        };
        let from = self.tail.log.map(|log| log.number);
        let from = from.or_else(|| ready.front().map(|record| record.log.number));
        self.manifest.advance()?;
        let version = Arc::clone(self.manifest.version());
        let logs = all_logs(&version);
        let is_named = from.is_none_or(|from| logs.iter().any(|log| log.number == from));
        if is_gone || !is_named && ready.iter().any(|record| record.seq > self.given) {
            // The log is gone or no longer named. All its records may have been returned before, so
            // choose a log again.
            self.begin()?;
            return Ok(true);
        }
        self.tail = tail;
        let known = self.imports.back().map_or(self.given, |last| last.seq);
        let position = self.tail.position();
        let is_next = |import: &&Import| import.seq > known && import.at <= position;
        self.imports.extend(version.imports.iter().filter(is_next).cloned());
        let is_more = !ready.is_empty();
        self.ready.extend(ready);
        Ok(is_more)
    }

    fn emit(
        &mut self,
        record: &TailRecord,
        visit: &mut dyn FnMut(Logged<'_>) -> Result<More>,
    ) -> Result<More> {
        let path = self.dir.join(FileName::Wal(record.log.number).to_string());
        let decoded = WalRecord::decode(record.kind, &record.payload)
            .map_err(|error| error.into_error(&path, record.at))?;
        let group = match decoded {
            WalRecord::Group(group) | WalRecord::Catalog(group) => group,
            WalRecord::Open(_) => {
                if !self.is_linked && record.seq > self.given {
                    return Err(lost(self.given, record.seq));
                }
                self.is_linked = true;
                self.advance_to(record.seq);
                return visit(Logged::Log);
            }
            WalRecord::DurableUpTo(_) | WalRecord::Close(_) => {
                self.advance_to(record.seq);
                return Ok(More::Yes);
            }
        };
        let is_new = record.seq > self.given;
        let (seq, at) = (record.seq, record.at);
        let more = visit(Logged::Commit { seq, group: &group, is_new, path: &path, at })?;
        self.advance_to(seq);
        Ok(more)
    }

    /// Passes the imports up to `position` to `visit`.
    fn emit_imports(
        &mut self,
        position: Position,
        visit: &mut dyn FnMut(Logged<'_>) -> Result<More>,
    ) -> Result<More> {
        while self.imports.front().is_some_and(|import| import.at <= position) {
            let Some(import) = self.imports.pop_front() else { break };
            let more = match visit(Logged::Import(&import)) {
                Ok(more) => more,
                Err(error) => {
                    self.imports.push_front(import);
                    return Err(error);
                }
            };
            self.advance_to(import.seq);
            if more == More::No {
                return Ok(More::No);
            }
        }
        Ok(More::Yes)
    }

    fn advance_to(&mut self, seq: Seq) {
        self.given = self.given.max(seq);
    }

    fn check_identity(&self, version: &Version) -> Result<()> {
        if version.identity.as_ref().is_some_and(|now| now.is_same_history(&self.identity)) {
            return Ok(());
        }
        let problem = format!("{} was restored: begin with a copy of it", self.dir.display());
        Err(Error::new(ErrorKind::ChangesLost, problem))
    }

    /// Chooses the log that contains the commit after `given`.
    fn begin(&mut self) -> Result<()> {
        let given = self.given;
        let found = self.linked(|seq| seq <= given)?;
        self.is_linked = false;
        self.ready.clear();
        self.imports.clear();
        match found {
            Some((log, seq)) if seq <= given => {
                self.tail = LogTail::at(log);
                Ok(())
            }
            Some((_, seq)) => Err(lost(given, seq)),
            None => {
                // No log has a record, so all data is in files.
                let last = self.manifest.version().flushed_seq;
                self.tail = LogTail::default();
                if given < last { Err(lost(given, last)) } else { Ok(()) }
            }
        }
    }

    /// Follows the logs from the newest backwards and returns the first log for which `is_enough`
    /// accepts the last Seq before the log, together with this Seq. If there is no such log,
    /// returns the oldest linked log.
    fn linked(&self, is_enough: impl Fn(Seq) -> bool) -> Result<Option<(LogMeta, Seq)>> {
        let version = self.manifest.version();
        let logs = all_logs(version);
        let files = LogFiles { fs: &*self.fs, dir: &self.dir, logs: &logs, lens: None };
        let (mut found, mut wanted) = (None, None);
        for log in logs.iter().rev() {
            if wanted.is_some_and(|wanted| wanted != *log) {
                continue;
            }
            let is_kept = version.kept_logs.iter().any(|kept| kept.log == *log);
            let first = match files.first_record(*log) {
                Err(error) if !is_kept || error.kind() == ErrorKind::Io => return Err(error),
                // An older build may have removed this log, because nothing required it to be kept.
                Err(_) => break,
                Ok(first) => first,
            };
            let Some((open, _, seq)) = first else {
                // Only the newest log may have no record yet.
                continue;
            };
            found = Some((*log, seq));
            if is_enough(seq) {
                break;
            }
            let Some(before) = open.predecessor else { break };
            wanted = Some(LogMeta { number: before.number, id: before.id });
        }
        Ok(found)
    }
}

/// Returns the retained logs and those that recovery needs, in order.
pub(in crate::lsm) fn all_logs(version: &Version) -> Vec<LogMeta> {
    version.kept_logs.iter().map(|kept| kept.log).chain(version.logs.iter().copied()).collect()
}

fn lost(since: Seq, oldest: Seq) -> Error {
    let problem = format!(
        "changes after #{since} are no longer kept, the oldest are those after #{oldest}: copy the \
         database and go on from there; `keep_changes` keeps more"
    );
    Error::new(ErrorKind::ChangesLost, problem)
}

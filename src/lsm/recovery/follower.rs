//! Reads a database that another process may write. It changes nothing on disk, takes no lock, and
//! shows nothing that a crash of the writer or a power cut could revoke. [`LogFollower`] describes
//! the steps.
//!
//! Invariants
//! * An engine's view never changes. Commits above its Seq may be in the shared memtables but are
//!   not visible.
//! * Commits are shown in order, each completely, up to the last one covered by a durable offset.
//!
//! Not here: refreshing (`db`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Doing, Error, ErrorKind, Result};
use crate::executor::Executor;
use crate::format::edit::{Identity, LivedTime};
use crate::format::names::FileName;
use crate::format::record::Position;
use crate::format::wal::{RecordOrder, WalRecord};
use crate::log::LogFile;
use crate::manifest::{Manifest, ManifestTail, Version, probe};
use crate::memtable::Memtable;
use crate::model::Seq;
use crate::options::{Background, Options};
use crate::sst::{Sst, SstShared};
use crate::sync::Mutex;
use crate::write_accounting::Meter;

use super::open::{assemble, shared_by_tables};
use super::wal_rows::{Drops, LogRows, Problem};
use super::wal_tail::{LogTail, More, TailRecord};
use crate::lsm::background::events::Recovered;
use crate::lsm::background::maintenance::read_only;
use crate::lsm::background::ttl_tables::Ttl;
use crate::lsm::read::log_files::LogFiles;
use crate::lsm::read::view::Slot;
use crate::lsm::write::log_queue::{LastSeqs, LogQueue};
use crate::lsm::{Engine, Env};

/// The number of retries while the writer removes files that are about to be read.
const TRIES: usize = 64;

/// A reader that follows the database of another process.
///
/// 1. Read the manifest up to its end (`ManifestTail`), and open every table file that it names: an
///    open file stays readable after the writer removes it.
/// 2. Insert the durable commits of the named logs into memtables, one for each log (`wal_tail`,
///    `wal_rows`).
/// 3. Build an engine for this moment. It shares files, memtables and shapes with the engine of the
///    next refresh.
///
/// If a file that the manifest names is missing, the writer has made progress, and the manifest is
/// read again. A writer removes a file only after an edit that no longer names it. So an error is
/// reported only if the manifest has not changed.
pub(crate) struct LogFollower {
    dir: PathBuf,
    options: Options,
    identity: Arc<Identity>,
    manifest: ManifestTail,
    /// The version read from the manifest that is shown.
    version: Arc<Version>,
    sst: SstShared,
    logs: Logs,
    /// The Seq up to which commits are shown.
    shown: Seq,
}

/// The contents read from the logs.
#[derive(Default)]
struct Logs {
    tail: LogTail,
    order: RecordOrder,
    rows: LogRows,
    /// Oldest first, one for each log.
    slots: Vec<Arc<Slot>>,
    memtables: u64,
    drops: Drops,
    last: Seq,
    commits: u64,
}

impl LogFollower {
    /// Reads the database in `dir`.
    ///
    /// # Errors
    /// `NotFound` if there is none; `Corruption`, `Unsupported`, `Io`; `Busy` if the writer
    /// replaces files faster than they can be opened.
    pub(crate) fn open(dir: &Path, options: Options) -> Result<Self> {
        let fs = Arc::clone(&options.fs);
        if !probe(&*fs, dir)? {
            let problem = format!("there is no database in {}", dir.display());
            return Err(Error::new(ErrorKind::NotFound, problem));
        }
        let manifest = ManifestTail::open(fs, dir)?;
        let identity = Arc::clone(manifest.identity()?);
        let sst = shared_by_tables(&options, identity.seed);
        let (dir, options) = (dir.to_owned(), options.background(Background::Manual));
        let (logs, shown) = (Logs::default(), Seq::ZERO);
        let version = Arc::clone(manifest.version());
        let mut following = Self { dir, options, identity, manifest, version, sst, logs, shown };
        following.read()?;
        Ok(following)
    }

    /// Reads the data that has become durable since. Returns true if anything is new.
    ///
    /// # Errors
    /// As [`open`](Self::open); the state shown so far remains. `ChangesLost` if it is another
    /// database now, or a restored one.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        let (shown, version) = (self.shown, Arc::clone(&self.version));
        self.read()?;
        Ok(self.shown > shown || !Arc::ptr_eq(&version, &self.version))
    }

    /// The number of commits read from logs so far.
    pub(crate) fn commits(&self) -> u64 {
        self.logs.commits
    }

    fn read(&mut self) -> Result<()> {
        // All writes that were durable before this call must be seen, whatever happened earlier.
        self.manifest.advance()?;
        for _ in 0..TRIES {
            let version = Arc::clone(self.manifest.version());
            let result = self.try_read(&version);
            let is_changed = self.manifest.advance()?;
            match result {
                Ok(_) if is_changed && may_lack_import(&version, self.manifest.version()) => {}
                Ok(seq) => {
                    self.shown = self.shown.max(seq);
                    self.version = version;
                    return Ok(());
                }
                Err(error) => {
                    // A log may have been read partly: discard its memtable.
                    self.logs = Logs::default();
                    if !is_changed {
                        return Err(error);
                    }
                }
            }
        }
        let problem = format!("the writer of {} replaces files all the time", self.dir.display());
        Err(Error::new(ErrorKind::Busy, problem))
    }

    /// Reads the files and logs of `version`. Returns the Seq up to which it can be shown.
    fn try_read(&mut self, version: &Version) -> Result<Seq> {
        self.check_identity(version)?;
        self.open_files(version)?;
        let files = LogFiles { fs: &*self.options.fs, dir: &self.dir, logs: &version.logs };
        let flushed = version.flushed_seq;
        self.logs.read(&files, version.vouched(), flushed, &self.sst)?;
        self.logs.forget_flushed(flushed);
        // Files hold commits up to the flushed one, and not every older version of a row.
        Ok(self.logs.last.max(version.settled_seq(self.logs.tail.position())))
    }

    fn check_identity(&self, version: &Version) -> Result<()> {
        if version.identity.as_ref().is_some_and(|now| now.is_same_history(&self.identity)) {
            return Ok(());
        }
        let problem = format!(
            "{} was restored, or is another database now: open it again",
            self.dir.display()
        );
        Err(Error::new(ErrorKind::ChangesLost, problem))
    }

    /// Opens the files that the writer may remove.
    fn open_files(&self, version: &Version) -> Result<()> {
        let fs = &*self.options.fs;
        for file in version.files() {
            let opened = file.sst_or_open(|| Sst::open(fs, &self.dir, &file.meta, &self.sst));
            let Err(error) = opened else { continue };
            let path = self.dir.join(FileName::Sst(file.meta.number).to_string());
            let is_there = fs.exists(&path).doing("look at", path)?;
            // Damage is reported to the reads that meet it.
            if !is_there || error.kind() != ErrorKind::Corruption {
                return Err(error);
            }
        }
        Ok(())
    }

    /// An engine that shows the state read so far and refuses every write.
    pub(crate) fn engine(&self) -> Arc<Engine> {
        let options = self.options.clone();
        let ttl = Ttl::new(&options, LivedTime::default(), self.shown);
        let why = read_only();
        let log = Arc::new(LogFile::refusing(why.clone()));
        let seqs = LastSeqs { used: self.shown, given_out: self.shown };
        let queue = LogQueue::behind(log, 0, Vec::new(), seqs);
        let fs = Arc::clone(&options.fs);
        let tail = &self.manifest;
        let manifest = Manifest::for_readers(tail, &self.version, fs, &self.dir, why.clone());
        // No handle may be closed and reopened later, because the writer may have removed the file.
        let file_systems = [Arc::clone(&options.fs), Arc::clone(&options.fs)];
        // The gap cache is not shared with the next engine: a gap at one Seq may not be one at a
        // later Seq.
        let meter = Meter::new(&self.dir);
        let env = Env::new(&self.dir, options, self.sst.clone(), file_systems, meter);
        let (queue, logged) =
            ((queue, self.shown), (self.logs.memtables(), self.logs.drops.clone()));
        let mut maintenance =
            assemble(Arc::new(env), manifest, queue, logged, ttl, Executor::manual());
        maintenance.is_reader = true;
        maintenance.writer.group_commit.fail(why);
        let recovered = Recovered { commits: self.logs.commits, ..Recovered::default() };
        let (maintenance, lock) = (Arc::new(maintenance), Mutex::new(None));
        Arc::new(Engine { maintenance, recovered, lock })
    }
}

impl Logs {
    /// Inserts the durable records that were not read yet.
    fn read(
        &mut self,
        files: &LogFiles<'_>,
        vouched: Position,
        flushed: Seq,
        sst: &SstShared,
    ) -> Result<()> {
        loop {
            let mut tail = self.tail.clone();
            let mut visit = |record: TailRecord| {
                self.record(&files.path(record.log), &record, flushed, sst)?;
                Ok(More::Yes)
            };
            let is_gone = tail.advance(files, vouched, &mut visit)?;
            self.tail = tail;
            if !is_gone {
                return Ok(());
            }
            // The whole log was flushed: continue with the oldest log that exists.
            self.tail = LogTail::default();
            if files.logs.is_empty() {
                return Ok(());
            }
        }
    }

    fn record(
        &mut self,
        path: &Path,
        record: &TailRecord,
        flushed: Seq,
        sst: &SstShared,
    ) -> Result<()> {
        let start = record.start().offset;
        let misplaced = |problem| Error::corrupt(path, start, "record header", problem);
        self.order.check(record.kind, start).map_err(misplaced)?;
        let decoded = WalRecord::decode(record.kind, &record.payload)
            .map_err(|error| error.into_error(path, record.at))?;
        let group = match decoded {
            WalRecord::Open(_) => {
                self.begin_log();
                return Ok(());
            }
            WalRecord::DurableUpTo(_) | WalRecord::Close(_) => return Ok(()),
            WalRecord::Group(group) | WalRecord::Catalog(group) => group,
        };
        let damage = |Problem(text)| Error::corrupt(path, record.at, "wal group", text);
        self.rows.define(&sst.shapes, &group).map_err(damage)?;
        if record.seq <= flushed {
            return Ok(());
        }
        if record.seq <= self.last || record.seq > Seq::MAX {
            return Err(damage(Problem(format!("commit #{} after #{}", record.seq, self.last))));
        }
        let Some(slot) = self.slots.last() else {
            return Err(damage(Problem("a commit in front of the first record".into())));
        };
        let commit = (record.seq, record.payload.len());
        self.rows
            .take(sst.seed, &slot.memtable, commit, &group, &mut self.drops)
            .map_err(damage)?;
        (self.last, self.commits) = (record.seq, self.commits + 1);
        Ok(())
    }

    fn begin_log(&mut self) {
        self.rows.begin_log();
        let memtable = Arc::new(Memtable::new(self.memtables, 0, 0));
        self.memtables += 1;
        self.slots.push(Arc::new(Slot { memtable, logs: Vec::new() }));
    }

    /// Discards commits that are in files now, so that they do not exist twice. The current log
    /// keeps its memtable even without a commit.
    fn forget_flushed(&mut self, flushed: Seq) {
        let under_way = self.memtables.saturating_sub(1);
        self.slots.retain(|slot| match slot.memtable.seq_max() {
            Some(last) => last > flushed,
            None => slot.memtable.id == under_way,
        });
        self.drops.range_tombstones.retain(|range_tombstone| range_tombstone.from > flushed);
        self.drops.tables.retain(|_, seq| *seq > flushed);
    }

    /// Newest first, at least one.
    fn memtables(&self) -> Vec<Arc<Slot>> {
        if self.slots.is_empty() {
            let memtable = Arc::new(Memtable::new(0, 0, 0));
            return vec![Arc::new(Slot { memtable, logs: Vec::new() })];
        }
        self.slots.iter().rev().cloned().collect()
    }
}

/// True if logs named by `version` may hold commits after an import that `version` does not
/// contain. The edits of an import are written before any later commit, and an import is forgotten
/// only along with the logs before it.
fn may_lack_import(version: &Version, newer: &Version) -> bool {
    let last = |version: &Version| version.imports.last().map(|import| import.seq);
    last(newer) > last(version) || version.logs.iter().any(|log| !newer.logs.contains(log))
}

//! A database as another process sees it: nothing on disk changes, no lock is taken, and nothing is shown that a crash of
//! the writer or a power cut could take back.
//!
//! 1. Read the manifest up to its end (`manifest::tailer`), and open every table file it names: a file that is open stays
//!    readable when the writer removes it.
//! 2. Take the durable commits of the logs it names into memtables, one to each log (`wal_tail`, `wal_rows`).
//! 3. Make an engine that shows this moment: its reads share files, memtables and shapes with the next one's.
//!
//! Where a file is gone that the manifest names, the writer has gone on: the manifest is read again. A writer removes a
//! file only after an edit that no longer names it, so an error counts if the manifest has not changed meanwhile.
//!
//! Invariants
//! * an engine's view never changes; what is younger than its Seq lies in shared memtables, unseen;
//! * commits are shown in order, each whole, up to the last one that somebody vouches for.
//!
//! Not here: who refreshes, and when (`db`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Doing, Error, ErrorKind, Result};
use crate::executor::Executor;
use crate::format::edit::{Identity, LivedTime};
use crate::format::names::FileName;
use crate::format::record::Position;
use crate::format::wal::WalRecord;
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

/// How often a look is begun again because the writer removed what it was about to read.
const TRIES: usize = 64;

/// See the module.
pub(crate) struct LogFollower {
    dir: PathBuf,
    options: Options,
    identity: Arc<Identity>,
    manifest: ManifestTail,
    /// What was read of it, and is shown.
    version: Arc<Version>,
    sst: SstShared,
    logs: Logs,
    /// What is shown.
    shown: Seq,
}

/// What was read of the logs.
#[derive(Default)]
struct Logs {
    tail: LogTail,
    rows: LogRows,
    /// Oldest first, one to each log.
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
    /// `NotFound` if there is none; `Corruption`, `Unsupported`, `Io`; `Busy` if the writer replaces files faster than
    /// they can be opened.
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

    /// Reads what the writer made durable since; true if anything is new.
    ///
    /// # Errors
    /// As [`open`](Self::open); what was shown stays. `ChangesLost` if it is another database now, or a restored one.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        let (shown, version) = (self.shown, Arc::clone(&self.version));
        self.read()?;
        Ok(self.shown > shown || !Arc::ptr_eq(&version, &self.version))
    }

    /// Commits that came from logs so far.
    pub(crate) fn commits(&self) -> u64 {
        self.logs.commits
    }

    fn read(&mut self) -> Result<()> {
        // What the writer did before this call is seen, whatever happened before.
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
                    // Perhaps half a log was read: its memtable is nobody's.
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

    /// Reads what `version` names; up to where it can be shown.
    fn try_read(&mut self, version: &Version) -> Result<Seq> {
        self.check_identity(version)?;
        self.open_files(version)?;
        let files = LogFiles { fs: &*self.options.fs, dir: &self.dir, logs: &version.logs };
        let flushed = version.flushed_seq;
        self.logs.read(&files, version.vouched(), flushed, &self.sst)?;
        self.logs.forget_flushed(flushed);
        // Files hold commits up to the flushed one, and not every older version of a row.
        let settled = version.settled_seq(self.logs.tail.position());
        Ok(self.logs.last.max(settled))
    }

    fn check_identity(&self, version: &Version) -> Result<()> {
        if version.identity.as_ref().is_some_and(|now| now.is_same_history(&self.identity)) {
            return Ok(());
        }
        let problem = format!(
            "{} was restored, or is another database now: open it anew",
            self.dir.display()
        );
        Err(Error::new(ErrorKind::ChangesLost, problem))
    }

    /// Opens what the writer may remove.
    fn open_files(&self, version: &Version) -> Result<()> {
        let fs = &*self.options.fs;
        for file in version.files() {
            let opened = file.sst_or_open(|| Sst::open(fs, &self.dir, &file.meta, &self.sst));
            let Err(error) = opened else { continue };
            let path = self.dir.join(FileName::Sst(file.meta.number).to_string());
            let is_there = fs.exists(&path).doing("look at", path)?;
            // Damage answers who reads there.
            if !is_there || error.kind() != ErrorKind::Corruption {
                return Err(error);
            }
        }
        Ok(())
    }

    /// An engine that shows what was read, and refuses every write.
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
        // No handle is closed to be opened again later: the writer may have removed the file.
        let file_systems = [Arc::clone(&options.fs), Arc::clone(&options.fs)];
        // Gaps are not shared with the next engine: a gap at one Seq is none at a later one.
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
    /// Takes in what is durable and was not read yet.
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
            // All of it was flushed: go on with the oldest log there is.
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
            let text = format!("commit #{} after #{}", record.seq, self.last);
            return Err(damage(Problem(text)));
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

    /// What files hold now must not be there twice. A log without a commit keeps its memtable while it is under way.
    fn forget_flushed(&mut self, flushed: Seq) {
        let under_way = self.memtables.saturating_sub(1);
        self.slots.retain(|slot| match slot.memtable.seq_max() {
            Some(last) => last > flushed,
            None => slot.memtable.id == under_way,
        });
        self.drops.range_tombstones.retain(|range_tombstone| range_tombstone.from > flushed);
        self.drops.tables.retain(|_, seq| *seq > flushed);
    }

    /// Newest first, with at least one.
    fn memtables(&self) -> Vec<Arc<Slot>> {
        if self.slots.is_empty() {
            let memtable = Arc::new(Memtable::new(0, 0, 0));
            return vec![Arc::new(Slot { memtable, logs: Vec::new() })];
        }
        self.slots.iter().rev().cloned().collect()
    }
}

/// True if logs that `version` names may hold commits behind an import that it does not know: the edits of an import are
/// written before the commits behind it, and it is forgotten with the logs in front of it only.
fn may_lack_import(version: &Version, newer: &Version) -> bool {
    let last = |version: &Version| version.imports.last().map(|import| import.seq);
    last(newer) > last(version) || version.logs.iter().any(|log| !newer.logs.contains(log))
}

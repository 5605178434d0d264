//! Reads a database that another process may write. The reader (*follower*) changes nothing on
//! disk, takes no lock, and shows nothing that a crash of the writer or a power cut could revoke.
//! [`LogFollower`] describes the steps.
//!
//! Invariants
//! * Each refresh builds an engine with a fixed view. Commits above the view's Seq may be in the
//!   shared memtables, but are not visible to this engine.
//! * Commits are shown in order, each completely, up to the last one covered by a durable offset.
//!
//! Not here: when to refresh (`db`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Doing, Error, ErrorKind, Result};
use crate::format::edit::Identity;
use crate::format::names::FileName;
use crate::format::record::Position;
use crate::format::wal::{RecordOrder, WalRecord};
use crate::fs::Fs;
use crate::manifest::{Manifest, ManifestTail, Version, probe};
use crate::memtable::Memtable;
use crate::model::Seq;
use crate::options::{Background, Options};
use crate::sst::{Sst, SstShared};
use crate::write_accounting::Meter;

use super::open::{assemble_reader, shared_by_tables};
use super::wal_rows::{Drops, LogRows, Problem};
use super::wal_tail::{LogTail, More, TailRecord};
use crate::lsm::background::events::Recovered;
use crate::lsm::read::log_files::LogFiles;
use crate::lsm::read::view::Slot;
use crate::lsm::{Engine, Env};

/// The maximum number of retries if the writer removes files before they are read.
const TRIES: usize = 64;

/// A reader that follows the database of another process.
///
/// 1. Read the manifest up to its end (`ManifestTail`), and open every table file that it names. An
///    open file stays readable after the writer removes it.
/// 2. Insert the durable commits of the named logs into memtables, one for each log (`wal_tail`,
///    `wal_rows`).
/// 3. Build an engine for this moment. It shares files, memtables and shapes with the engine of the
///    next refresh.
///
/// A writer deletes a file only after an edit that removes the file's name from the manifest. So if
/// a named file is missing, the manifest is read again, and an error is returned only if the
/// manifest has not changed.
pub(crate) struct LogFollower {
    dir: PathBuf,
    options: Options,
    identity: Arc<Identity>,
    manifest: ManifestTail,
    /// The version that is shown.
    version: Arc<Version>,
    sst: SstShared,
    logs: Logs,
    /// The Seq up to which commits are shown.
    shown: Seq,
}

/// The commits read from the logs.
#[derive(Default)]
struct Logs {
    tail: LogTail,
    order: RecordOrder,
    rows: LogRows,
    /// The memtables, oldest first, one for each log.
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
            return Err(missing_database(dir));
        }
        let manifest = ManifestTail::open(fs, dir, options.accept_short_logs)?;
        let identity = Arc::clone(manifest.identity()?);
        let sst = shared_by_tables(&options, identity.seed);
        let (dir, options) = (dir.to_owned(), options.background(Background::Manual));
        let (logs, shown) = (Logs::default(), Seq::ZERO);
        let version = Arc::clone(manifest.version());
        let mut following = Self { dir, options, identity, manifest, version, sst, logs, shown };
        following.read()?;
        Ok(following)
    }

    /// Reads the data that has become durable since the last call. Returns true if there is new
    /// data.
    ///
    /// # Errors
    /// As [`open`](Self::open); the state shown before is kept. `ChangesLost` if the directory now
    /// holds another or a restored database.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        let (shown, version) = (self.shown, Arc::clone(&self.version));
        self.read()?;
        Ok(self.shown > shown || !Arc::ptr_eq(&version, &self.version))
    }

    /// Returns the number of commits read from logs so far.
    pub(crate) fn commits(&self) -> u64 {
        self.logs.commits
    }

    fn read(&mut self) -> Result<()> {
        // All writes that were durable before this call must be seen.
        self.manifest.advance()?;
        let mut may_be_removed = true;
        for _ in 0..TRIES {
            let version = Arc::clone(self.manifest.version());
            let result = self.try_read(&version, may_be_removed);
            let is_changed = self.manifest.advance()?;
            match result {
                Ok(_) if is_changed && may_lack_import(&version, self.manifest.version()) => {}
                Ok(seq) => {
                    self.shown = self.shown.max(seq);
                    self.version = version;
                    return Ok(());
                }
                Err(error) => {
                    // Part of a log may already be in its memtable, so discard all memtables.
                    self.logs = Logs::default();
                    if is_changed {
                        continue;
                    }
                    if let Some(lost) = self.manifest.lost_edit() {
                        return Err(lost);
                    }
                    if !may_be_removed {
                        return Err(error);
                    }
                    // The manifest still names each file, so no writer has removed it.
                    may_be_removed = false;
                }
            }
        }
        let problem = format!("the writer of {} replaces files all the time", self.dir.display());
        Err(Error::new(ErrorKind::Busy, problem))
    }

    /// Reads the files and logs of `version`. Returns the Seq up to which they hold all commits.
    fn try_read(&mut self, version: &Version, may_be_removed: bool) -> Result<Seq> {
        self.check_identity(version)?;
        open_files(&*self.options.fs, &self.dir, version, &self.sst, may_be_removed)?;
        let lens = Some(version).filter(|_| !self.options.accept_short_logs);
        let (fs, dir) = (&*self.options.fs, &*self.dir);
        let files = LogFiles { fs, dir, logs: &version.logs, lens };
        let flushed = version.flushed_seq;
        self.logs.read(&files, version.vouched(), flushed, &self.sst)?;
        self.logs.forget_flushed(flushed);
        // Table files lack older versions of rows, so no state below the flushed Seq can be shown.
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

    /// Returns an engine that shows the state read so far and refuses every write.
    pub(crate) fn engine(&self, recovered: Recovered) -> Arc<Engine> {
        let (options, fs) = (self.options.clone(), Arc::clone(&self.options.fs));
        let manifest =
            Manifest::for_readers(&self.manifest, &self.version, Arc::clone(&fs), &self.dir);
        // A file that was closed could not be reopened after the writer removed it, so handles are
        // not cached but stay open.
        let file_systems = [Arc::clone(&fs), fs];
        // The next engine gets its own gap cache, because a gap at one Seq may not be a gap at a
        // later one.
        let env =
            Env::new(&self.dir, options, self.sst.clone(), file_systems, Meter::new(&self.dir));
        let logged = (self.logs.memtables(), self.logs.drops.clone());
        let recovered = Recovered { commits: self.logs.commits, ..recovered };
        assemble_reader(env, manifest, self.shown, logged, recovered)
    }
}

/// Opens all table files of `version`, because a writer may remove them. Damage in a file is
/// reported later, by the reads that need it. So is a missing file, unless a `writer` may have
/// removed it since `version` was read.
///
/// # Errors
/// `Corruption` for a missing file if there is a `writer`; `Unsupported`, `Io`.
pub(super) fn open_files(
    fs: &dyn Fs,
    dir: &Path,
    version: &Version,
    sst: &SstShared,
    writer: bool,
) -> Result<()> {
    for file in version.files() {
        let opened = file.sst_or_open(|| Sst::open(fs, dir, &file.meta, sst));
        let Err(error) = opened else { continue };
        let path = dir.join(FileName::Sst(file.meta.number).to_string());
        let may_be_removed = writer && !fs.exists(&path).doing("look at", path)?;
        let is_reported_later = match error.kind() {
            ErrorKind::Corruption => true,
            ErrorKind::Io => !writer,
            _ => false,
        };
        if may_be_removed || !is_reported_later {
            return Err(error);
        }
    }
    Ok(())
}

/// Returns the error of a directory that holds no database.
pub(super) fn missing_database(dir: &Path) -> Error {
    let problem = format!("there is no database in {}", dir.display());
    Error::new(ErrorKind::NotFound, problem)
}

impl Logs {
    /// Inserts the durable records that were not read yet into memtables.
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
            // The whole log was flushed, so continue with the oldest log that exists.
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
            .take(sst.seed, Some(&slot.memtable), commit, &group, &mut self.drops)
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

    /// Forgets the memtables and the recorded drops whose commits are all in files. The memtable of
    /// the current log is kept even if it is empty.
    fn forget_flushed(&mut self, flushed: Seq) {
        let under_way = self.memtables.saturating_sub(1);
        self.slots.retain(|slot| match slot.memtable.seq_max() {
            Some(last) => last > flushed,
            None => slot.memtable.id == under_way,
        });
        self.drops.range_tombstones.retain(|range_tombstone| range_tombstone.from > flushed);
        self.drops.tables.retain(|_, seq| *seq > flushed);
    }

    /// Returns the memtables, newest first. There is always at least one.
    fn memtables(&self) -> Vec<Arc<Slot>> {
        if self.slots.is_empty() {
            let memtable = Arc::new(Memtable::new(0, 0, 0));
            return vec![Arc::new(Slot { memtable, logs: Vec::new() })];
        }
        self.slots.iter().rev().cloned().collect()
    }
}

/// True if the logs of `version` may hold commits after an import that `version` lacks. Without
/// that import, the commits shown would not be a prefix. The edits of an import are written before
/// any later commit, and an import is removed from the manifest only with the logs before it.
fn may_lack_import(version: &Version, newer: &Version) -> bool {
    let last = |version: &Version| version.imports.last().map(|import| import.seq);
    last(newer) > last(version) || version.logs.iter().any(|log| !newer.logs.contains(log))
}

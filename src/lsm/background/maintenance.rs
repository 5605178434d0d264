//! The part of the engine that changes files: the manifest under its lock, and background work.
//!
//! Invariants
//! * The manifest and the version change only while `install` is locked. The view is updated before
//!   `install` is unlocked.
//! * A version is installed in the view after its edit is durable.
//!
//! Locks are taken in this order: `install`, the commit lock (`Writer`), locks held for a few
//! instructions. `scheduler` chooses the next step of background work; `flush`, `compaction` and
//! others carry it out.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::executor::Executor;
use crate::format::edit::VersionEdit;
use crate::format::names::{FileId, FileName, FileNumber, RangeId};
use crate::manifest::{FileEntry, FileRange, Manifest, Version};
use crate::model::Seq;
use crate::options::Durability;
use crate::ranges::load::LoadSummary;
use crate::sync::Mutex;

use super::fifo_tables::FifoEviction;
use super::new_file::NewFile;
use super::state::{Counters, MaintenanceState};
use super::ttl_tables::Ttl;
use crate::lsm::write::batch::{Action, Batch};
use crate::lsm::write::retry::Unblock;
use crate::lsm::{Env, Reader, Writer};

/// Owns the manifest and runs background work.
pub(crate) struct Maintenance {
    pub(in crate::lsm) writer: Writer,
    pub(in crate::lsm) install: Mutex<Manifest>,
    pub(in crate::lsm) state: MaintenanceState,
    pub(in crate::lsm) ttl: Ttl,
    /// The tables under FIFO eviction; `None` without a limit on disk use.
    pub(in crate::lsm) eviction: Option<FifoEviction>,
    pub(crate) executor: Arc<Executor>,
    /// True if nothing may be written, because another process may have the database open.
    pub(in crate::lsm) is_reader: bool,
}

/// Returns the error of a write to a database that was opened as read-only.
pub(in crate::lsm) fn read_only() -> Error {
    let problem = "the database was opened to be read only: write through the process that has it \
                   open, or open it there";
    Error::new(ErrorKind::InvalidInput, problem)
}

impl Unblock for Maintenance {
    fn prepare_log(&self) -> Result<()> {
        let mut manifest = self.install.lock();
        let clock = self.ttl.news(&manifest.version().clock);
        self.writer.prepare_log(&mut manifest, clock)
    }

    fn allocate_log(&self) -> Result<bool> {
        let _work = self.state.work()?;
        self.writer.allocate_ahead()
    }

    fn make_room(&self) -> Result<()> {
        self.wait_for_room()
    }

    fn free_space(&self, needs: u64, most: u64, fits: &dyn Fn() -> bool) -> Result<()> {
        self.make_space(needs, most, fits)
    }
}

impl Maintenance {
    pub(in crate::lsm) fn reader(&self) -> &Reader {
        &self.writer.reader
    }

    pub(in crate::lsm) fn env(&self) -> &Arc<Env> {
        &self.writer.reader.env
    }

    /// Returns an error if the engine is read-only.
    ///
    /// # Errors
    /// `InvalidInput` if the database was opened as read-only.
    pub(crate) fn writable(&self) -> Result<()> {
        if self.is_reader { Err(read_only()) } else { Ok(()) }
    }

    /// Commits `batch` and waits until it is as durable as requested. The returned Seq is the ETag
    /// of all rows that the batch writes.
    ///
    /// # Errors
    /// The Azure error code for an unmet condition; `StorageFull` (nothing was written),
    /// `Poisoned`, `Io`.
    pub(crate) fn commit(&self, batch: &Batch<'_>, durability: Durability) -> Result<Seq> {
        self.writer.commit(self, batch, durability)
    }

    /// Commits `batch`, which is a single insert. Its row is built only if the pre-read finds no
    /// entity with its key.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) fn commit_insert<'a>(
        &self,
        batch: Batch<'a>,
        durability: Durability,
        put: impl FnOnce() -> Action<'a>,
    ) -> Result<Seq> {
        self.writer.commit_insert(self, batch, durability, put)
    }

    /// Evaluates `batch` without writing it. Nothing is charged for it to a target or a limit.
    ///
    /// # Errors
    /// The error with which a commit of the batch would be refused because of its table, a gate or
    /// the current rows.
    pub(crate) fn evaluate(&self, batch: &Batch<'_>) -> Result<()> {
        self.writer.evaluate(self, batch)
    }

    /// Freezes the active memtable if it holds any entries. A flush of all frozen memtables then
    /// covers all commits.
    pub(crate) fn freeze(&self) -> Result<()> {
        self.writer.freeze(self)
    }

    /// Makes all earlier commits durable. Does nothing if they are.
    pub(crate) fn sync(&self) -> Result<()> {
        self.confirm()?;
        if self.writer.is_durable()? { Ok(()) } else { self.writer.sync() }
    }

    /// Makes the records durable that opening accepted, and begins a log that states this to the
    /// readers of the logs. After a clean close there is nothing to do.
    ///
    /// # Errors
    /// `Poisoned` or `Io`. `StorageFull` is no error: it only prevents the new log.
    pub(crate) fn confirm(&self) -> Result<()> {
        if !self.writer.is_unconfirmed() {
            return Ok(());
        }
        match self.writer.ensure_log(self) {
            Err(error)
                if error.kind() == ErrorKind::StorageFull && !self.writer.is_unconfirmed() =>
            {
                Ok(())
            }
            result => result,
        }
    }

    /// Returns the number and the id of a new table file.
    pub(in crate::lsm) fn new_file(&self) -> Result<(FileNumber, FileId)> {
        let mut manifest = self.install.lock();
        let number = manifest.next_number();
        let number = number.map_err(|error| self.writer.poison_on_failure(&manifest, error))?;
        self.env().discard_superseded(&mut manifest);
        Ok((number, manifest.next_id()))
    }

    /// Returns a seed for another database, derived from the seed of this one.
    pub(crate) fn next_seed(&self) -> u64 {
        self.install.lock().next_id().0
    }

    /// Makes `edit` durable and returns the resulting version. The caller installs it in the view.
    ///
    /// # Errors
    /// After `StorageFull` nothing has changed. Any other failure leaves the contents of the disk
    /// unknown and poisons the database.
    pub(in crate::lsm) fn append_edit(
        &self,
        manifest: &mut Manifest,
        edit: &VersionEdit,
    ) -> Result<Arc<Version>> {
        self.writer.confirm(manifest)?;
        let durable = {
            let queue = &mut self.writer.group_commit.lock().queue;
            queue.account_user_bytes(&self.env().meter);
            queue.durable_unclaimed()
        };
        let result = manifest.append_behind(edit, durable, 0);
        let result = result.map_err(|error| self.writer.poison_on_failure(manifest, error));
        self.env().discard_superseded(manifest);
        result
    }

    /// Removes the files of a job that was not installed. Does so only if `error` (disk full, or
    /// database closed) shows that no version contains the files.
    pub(super) fn discard_files(&self, files: &[NewFile], error: &Error) {
        if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::InvalidInput) {
            self.discard(files);
        }
    }

    /// Removes files that no version contains.
    pub(super) fn discard(&self, files: &[NewFile]) {
        files.iter().for_each(|file| self.env().discard(FileName::Sst(file.meta.number)));
    }

    /// Returns the files known to be damaged.
    pub(crate) fn quarantined(&self) -> Vec<Arc<FileEntry>> {
        let version = Arc::clone(&self.reader().view.load().version);
        version.files().filter(|file| file.damage().is_some()).cloned().collect()
    }

    /// Records that a job found damage in `range`. For some time jobs avoid the range's damaged
    /// files. They avoid the whole range if it is unknown which file is damaged.
    pub(super) fn quarantine(&self, range: &FileRange, error: &Error) {
        let files = range.references().map(|(_, reference)| &reference.file);
        let damaged = files.filter(|file| file.damage().is_some()).map(|file| file.meta.number);
        let now = self.env().clock.monotonic();
        self.state.quarantine.lock().add(range.id, damaged.collect(), error, now);
    }

    pub(super) fn is_quarantined(&self, range: RangeId) -> bool {
        self.state.quarantine.lock().holds_range(range, self.env().clock.monotonic())
    }

    /// Returns totals since the engine was opened.
    pub(in crate::lsm) fn counters(&self) -> Counters {
        let [stalls, stall_micros] = self.writer.backlog.stalls();
        Counters { stalls, stall_micros, ..self.state.counters() }
    }

    /// Returns the error with which flushes or compactions currently fail, if any.
    pub(in crate::lsm) fn trouble(&self) -> Option<Error> {
        self.writer.backlog.flush_error().or_else(|| self.state.compaction_error())
    }

    /// Returns the loads of all ranges of `version`, and forgets those of other ranges.
    pub(crate) fn loads(&self, version: &Version) -> BTreeMap<RangeId, LoadSummary> {
        self.env().loads.loads(version, self.env().seconds())
    }

    /// Turns the counting of reads and writes per range on or off. Benchmarks use it to measure the
    /// cost of counting.
    pub(crate) fn count_loads(&self, on: bool) {
        self.env().loads.switch(on);
    }
}

//! Flushes the oldest frozen memtable to table files. [`Maintenance::flush_one`] lists the steps.
//!
//! Invariants
//! * Memtables are flushed oldest first, so the files always hold a prefix of all commits.
//! * A log is deleted only after the manifest edit that drops the log's name is durable.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::edit::VersionEdit;
use crate::format::names::{FileName, FileNumber, RangeId};
use crate::format::span::Span;
use crate::manifest::Version;
use crate::mutants::mutant;
use crate::options::{Codec, Durability};
use crate::write_accounting::Cause;

use super::flush_placement::assign_to_ranges;
use super::maintenance::Maintenance;
use super::new_file::NewFile;
use super::output_writer::{Boundaries, Cut, OutputWriter};
use crate::lsm::read::merge::Merge;
use crate::lsm::read::view::Slot;

/// When a flush reaches a new range, it begins a new file if the current one has at least this many
/// bytes. So small ranges share a file, but no range keeps a large file of its neighbours alive. A
/// flush of n bytes writes at most n / 1 MiB + 2 files.
const BOUNDARY_BYTES: u64 = 1 << 20;

/// A flush whose files are written but not yet part of the version.
pub(crate) struct Flush {
    slot: Arc<Slot>,
    files: Vec<NewFile>,
}

/// Runs a flush in two steps, for simulations. Between the two steps any other operation may run,
/// except another flush.
#[cfg(feature = "sim")]
impl Maintenance {
    pub(crate) fn begin_flush(&self) -> Result<Option<Flush>> {
        let _job = self.state.flushing.lock();
        let written = self.write_oldest();
        self.writer.backlog.flush_attempted(written.as_ref().map(|_| ()).map_err(Error::clone));
        written
    }

    pub(crate) fn finish_flush(&self, flush: Flush) -> Result<()> {
        let _job = self.state.flushing.lock();
        let ended = self.end_flush(flush);
        self.writer.backlog.flush_attempted(ended.clone());
        ended
    }
}

impl Maintenance {
    /// Flushes the oldest frozen memtable. Returns false if no memtable is frozen.
    ///
    /// 1. Wait until the last commit in the memtable is published, so that files hold no entry that
    ///    a failed commit group could revoke.
    /// 2. Write the entries that some reader may see to new files. Sync the files and the
    ///    directory.
    /// 3. Sync the active log, which contains the Seq reservation in use. Under the install lock,
    ///    one edit adds the files, sets the flushed Seq, and removes the logs that are no longer
    ///    needed.
    /// 4. Replace the memtable by the files in the view, in one step. Then delete the logs.
    ///
    /// # Errors
    /// `StorageFull` and `Io`. The memtable is kept and can be flushed later.
    pub(crate) fn flush_one(&self) -> Result<bool> {
        let flushed = self.flush_oldest();
        if let Err(error) = &flushed {
            self.emit_trouble("flush", error);
        }
        if !matches!(flushed, Ok(false)) {
            // Report the result to writers that wait for a flush. They wait for the next flush,
            // whichever thread runs it.
            self.writer.backlog.flush_attempted(flushed.as_ref().map(|_| ()).map_err(Error::clone));
        }
        flushed
    }

    fn flush_oldest(&self) -> Result<bool> {
        let _job = self.state.flushing.lock();
        let _work = self.state.work()?;
        let _disk = self.state.flush_begins();
        let since = self.env().clock.monotonic();
        let Some(flush) = self.write_oldest()? else { return Ok(false) };
        let bytes = flush.slot.memtable.bytes();
        self.end_flush(flush)?;
        let took = self.env().clock.monotonic().saturating_sub(since);
        self.writer.backlog.record_flush_pace(bytes, took);
        Ok(true)
    }

    /// Waits for the memtable's last commit and writes its files, which no version contains yet
    /// (steps 1 and 2 of [`flush_one`](Self::flush_one)). Returns `None` if no memtable is frozen.
    fn write_oldest(&self) -> Result<Option<Flush>> {
        let view = self.reader().view.load_full();
        let Some(slot) = view.frozen().last().cloned() else { return Ok(None) };
        if let Some(last) = slot.memtable.seq_max().filter(|last| *last > self.reader().published())
        {
            self.writer.group_commit.flush(Durability::Buffered)?;
            self.writer.group_commit.wait(last)?;
        }
        // On a full disk the flush may need the space of files that no reader holds.
        self.remove_unheld();
        let files = self.write_memtable(&slot, &view.version)?;
        Ok(Some(Flush { slot, files }))
    }

    /// Installs the files and deletes the logs (steps 3 and 4 of [`flush_one`](Self::flush_one)).
    fn end_flush(&self, flush: Flush) -> Result<()> {
        let Flush { slot, files } = flush;
        let reserved = self.writer.persist_seq_reservation(self);
        let removed = reserved
            .and_then(|()| self.install_flush(&slot, &files))
            .inspect_err(|error| self.discard_files(&files, error))?;
        for log in removed {
            self.env().discard(FileName::Wal(log));
        }
        self.state.record_flush(&files, self.env().clock.monotonic());
        self.emit_flushed(&slot, &files);
        Ok(())
    }

    fn write_memtable(&self, slot: &Slot, version: &Version) -> Result<Vec<NewFile>> {
        let entries = Merge::over_memtable(self.env(), slot.memtable.iter())?;
        // All older data is in table files, so a key has older versions only if some file covers
        // it.
        let retention = self.retention(&Span::all(), |key| version.sources(key).next().is_some());
        // Inside a range the file size is not limited, so that one flush adds one source to the
        // range.
        let cut = Cut { file_bytes: u64::MAX, boundary_bytes: BOUNDARY_BYTES };
        let boundaries = Boundaries::of(version.ranges.iter());
        let mut output = OutputWriter::new(self, cut, (Codec::None, Cause::Flush), boundaries);
        output.write(entries, retention, |_| Ok(()))?;
        let mut files = output.finish()?;
        files.iter_mut().for_each(|file| file.open(self.env(), true));
        Ok(files)
    }

    /// Adds the files and removes the memtable and its logs in one edit. Returns the logs to
    /// delete, including older ones that were retained until now.
    fn install_flush(&self, slot: &Slot, files: &[NewFile]) -> Result<Vec<FileNumber>> {
        let mut manifest = self.install.lock();
        let version = Arc::clone(manifest.version());
        let oldest = || self.reader().view.load().frozen().last().map(|oldest| oldest.memtable.id);
        debug_assert_eq!(oldest(), Some(slot.memtable.id), "the oldest memtable is flushed first");
        let last = slot.memtable.seq_max().unwrap_or_default();
        debug_assert!(last <= self.reader().published(), "what is flushed is published");
        let is_named = |log: &FileNumber| version.logs.iter().any(|other| other.number == *log);
        debug_assert!(slot.logs.iter().all(is_named), "the manifest names the memtable's logs");
        let flushed = last.max(version.flushed_seq);
        let mut edit = VersionEdit {
            flushed_seq: Some(flushed),
            remove_logs: slot.logs.clone(),
            drop_tables: self.reader().dropped.to_record(&version, flushed),
            add_range_tombstones: self.range_tombstones_to_record(&version, flushed),
            clock: self.expiry_clock(),
            ..self.history(&version, &slot.logs, flushed)
        };
        let ids = |count| Ok(RangeId(manifest.next_numbers(count)?.0));
        let placed = assign_to_ranges(&version, files, &mut edit, ids);
        placed.map_err(|error| self.writer.poison_on_failure(&manifest, error))?;
        let version = self.append_edit(&mut manifest, &edit)?;
        files.iter().for_each(|file| file.hand_over(&version));
        let flushed = Some(slot.memtable.id);
        if mutant!("split-install") {
            self.reader().change_view(|view| view.with_version(&view.version, flushed));
        }
        self.reader().change_view(|view| view.with_version(&version, flushed));
        let is_kept = |log: &FileNumber| edit.keep_logs.iter().any(|kept| kept.log.number == *log);
        let removed = edit.remove_logs.iter().filter(|log| !is_kept(log));
        Ok(removed.chain(&edit.forget_logs).copied().collect())
    }
}

//! Events that the engine emits to subscribers of `tracing`, with the feature `events`; without it
//! they compile to nothing.
//!
//! Every event has the target `rowstone`, a name in the field `event`, and the directory in `db`.
//! Fields are computed only if there is a subscriber. Sizes are in bytes, times in microseconds. A
//! test checks the table of names and fields in docs/OPERATIONS.md.
//!
//! Invariant: no event is emitted under a lock that reads need, so a subscriber may read from the
//! database. A subscriber must not write to it. For counters see `inspect`, for the log of HTTP
//! requests see `rest`.

use std::path::Path;

use crate::error::Error;
use crate::format::edit::{Placement, VersionEdit};

use super::compaction::plan::{Job, Reason};
use super::fifo_eviction::EvictionPlan;
use super::maintenance::Maintenance;
use super::new_file::NewFile;
use crate::lsm::read::view::Slot;
use crate::lsm::write::events::emit;

/// The results of recovery at opening.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// True if the database did not exist and was created.
    pub(crate) created: bool,
    /// The number of commits replayed from logs.
    pub(crate) commits: u64,
    /// The files whose damaged ends were dropped, each with the offset, the number of bytes and the
    /// reason.
    pub(crate) torn: Vec<String>,
    /// The number of files removed because the manifest does not name them.
    pub(crate) orphans: u64,
    /// Problems found during recovery that an operator should know about.
    pub(crate) warnings: Vec<String>,
}

impl Recovered {
    pub(crate) fn of_warning(warning: String) -> Self {
        Self { warnings: vec![warning], ..Self::default() }
    }

    /// Joins the entries of `torn` into one text. Returns `None` if `torn` is empty.
    pub(crate) fn torn(&self) -> Option<String> {
        (!self.torn.is_empty()).then(|| self.torn.join("; "))
    }
}

fn bytes_of(files: &[NewFile]) -> u64 {
    files.iter().map(|file| file.meta.bytes).sum()
}

impl Maintenance {
    pub(in crate::lsm) fn emit_opened(&self, found: &Recovered) {
        emit!(
            INFO,
            "opened",
            self.env(),
            created = found.created,
            commits = found.commits,
            torn = &*found.torn().unwrap_or_default(),
            orphans = found.orphans,
            warnings = &*found.warnings.join("; "),
        );
    }

    pub(in crate::lsm) fn emit_flushed(&self, slot: &Slot, files: &[NewFile]) {
        let memtable_bytes = slot.memtable.bytes();
        let is_full = memtable_bytes >= self.env().options.memtable_bytes;
        emit!(
            INFO,
            "flushed",
            self.env(),
            cause = if is_full { "full" } else { "early" },
            memtable_bytes = memtable_bytes as u64,
            files = files.len() as u64,
            bytes = bytes_of(files),
            logs = slot.logs.len() as u64,
        );
    }

    pub(in crate::lsm) fn emit_compacted(&self, jobs: &[&Job], files: &[NewFile]) {
        let Some(first) = jobs.first() else { return };
        let inputs = || jobs.iter().map(|job| job.young.len() + job.run.len()).sum::<usize>();
        let (cause, ranges) = (cause(first.reason), jobs.len());
        if first.is_join() {
            emit!(
                DEBUG,
                "joined",
                self.env(),
                cause = cause,
                ranges = ranges as u64,
                inputs = inputs() as u64,
            );
            return;
        }
        let into = match first.placement {
            Placement::Run => "run",
            Placement::Young => "young",
        };
        emit!(
            INFO,
            "compacted",
            self.env(),
            cause = cause,
            into = into,
            ranges = ranges as u64,
            inputs = inputs() as u64,
            bytes_read = jobs.iter().map(|job| job.bytes).sum::<u64>(),
            files = files.len() as u64,
            bytes = bytes_of(files),
        );
    }

    pub(in crate::lsm) fn emit_ranges(&self, edit: &VersionEdit) {
        let (old, new) = (edit.remove_ranges.len() as u64, edit.add_ranges.len() as u64);
        let table = || edit.add_ranges.first().map_or(0, |range| range.table.0);
        let bytes = || edit.add_references.iter().filter_map(|part| part.bytes).sum::<u64>();
        emit!(
            INFO,
            if new > 1 { "split" } else { "merged" },
            self.env(),
            table = table(),
            ranges = old,
            into = new,
            bytes = bytes(),
        );
    }

    pub(in crate::lsm) fn emit_checkpoint(&self, target: &Path, files: u64, bytes: u64) {
        emit!(
            INFO,
            "checkpoint",
            self.env(),
            target = &*target.to_string_lossy(),
            files = files,
            bytes = bytes,
        );
    }

    pub(in crate::lsm) fn emit_dropped(&self, oldest: &EvictionPlan) {
        emit!(
            WARN,
            "dropped_oldest",
            self.env(),
            tables = oldest.tables.len() as u64,
            below = oldest.below.ticks(),
            files = oldest.files,
            bytes = oldest.bytes,
        );
    }

    pub(in crate::lsm) fn emit_trouble(&self, work: &'static str, error: &Error) {
        emit!(ERROR, "trouble", self.env(), work = work, error = &*error.chain());
    }
}

/// Returns the name that events use for the reason of a merge.
fn cause(reason: Reason) -> &'static str {
    match reason {
        Reason::Clear => "clear",
        Reason::Sources => "sources",
        Reason::RangeTombstone => "fence",
        Reason::Age => "age",
        Reason::Tombstones => "tombstones",
        Reason::Size => "size",
        Reason::Reads => "reads",
        Reason::Space => "space",
        Reason::Small => "small",
        Reason::Rest => "rest",
        Reason::Asked => "asked",
    }
}

//! The oldest frozen memtable becomes table files.
//!
//! 1. Wait until its last commit is published: files hold nothing that a failed round could take back.
//! 2. Write its entries, less those that nobody can see, into new files; sync them and their names.
//! 3. Under the install lock, name the files, the flushed Seq and the logs that are no longer needed in one edit.
//! 4. Publish the view without the memtable and with the files, in one step. Then remove the logs.
//!
//! Invariants
//! * memtables are flushed oldest first, so what files hold is always a prefix of all commits;
//! * a log is removed only after the edit that no longer names it is durable.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::edit::{Placement, RangeMeta, ReferenceMeta, VersionEdit};
use crate::format::file_meta::FileMeta;
use crate::format::key::{table_end, table_of, table_start};
use crate::format::names::{FileName, TableId};
use crate::format::span::Span;
use crate::manifest::{Manifest, Version};
use crate::options::{Codec, Durability};

use super::Engine;
use super::merge::Merge;
use super::outputs::{Cut, Outputs, Retention};
use super::view::Slot;

/// A flush begins a new file at a new table once a file is this long: no tiny file for each of many tables.
const TABLE_CUT_BYTES: u64 = 1 << 20;

impl Engine {
    /// Flushes the oldest frozen memtable; false if there is none.
    ///
    /// # Errors
    /// `StorageFull` and `Io`; the memtable stays and can be flushed later.
    pub(crate) fn flush_one(&self) -> Result<bool> {
        let _job = self.upkeep.flushing.lock();
        let view = self.view.load_full();
        let Some(slot) = view.frozen().last().cloned() else { return Ok(false) };
        if let Some(last) = slot.memtable.seq_max().filter(|last| *last > self.published()) {
            self.rounds.flush(Durability::Buffered)?;
            debug_assert!(last <= self.published(), "a round publishes all it took");
        }
        let files = self.write_memtable(&slot, &view.version)?;
        let removed = self.install_flush(&slot, &files).inspect_err(|_| {
            for file in &files {
                self.env.discard(FileName::Sst(file.number));
            }
        })?;
        for log in removed {
            self.env.discard(FileName::Wal(log));
        }
        self.upkeep.note_flush(&files);
        Ok(true)
    }

    fn write_memtable(&self, slot: &Slot, version: &Arc<Version>) -> Result<Vec<FileMeta>> {
        let entries = Merge::over_memtable(&self.env, slot.memtable.iter())?;
        let horizon = self.horizon();
        let dead = self.upkeep.dead_tables(&horizon);
        // Nothing older than the oldest memtable but files.
        let older = |key: &[u8]| version.sources(key).next().is_some();
        let retention = Retention::new(horizon, dead, older);
        let cut = Cut { file_bytes: u64::MAX, table_bytes: TABLE_CUT_BYTES };
        Outputs::new(self, cut, Codec::None).write(entries, retention, || Ok(()))
    }

    fn install_flush(
        &self,
        slot: &Slot,
        files: &[FileMeta],
    ) -> Result<Vec<crate::format::names::FileNumber>> {
        let mut manifest = self.install.lock();
        let version = Arc::clone(&self.view.load().version);
        let mut edit = VersionEdit {
            flushed_seq: slot.memtable.seq_max().filter(|seq| *seq > version.flushed_seq()),
            remove_logs: slot.logs.clone(),
            ..VersionEdit::default()
        };
        edit.drop_tables = self.upkeep.drops_to_record(&version);
        for file in files {
            place_file(&mut manifest, &version, file, &mut edit)?;
        }
        let version = self.append_edit(&mut manifest, &version, &edit)?;
        self.view.rcu(|view| view.with_version(&version, Some(slot.memtable.id())));
        drop(manifest);
        self.upkeep.made_room();
        Ok(edit.remove_logs)
    }

    /// Makes `edit` durable and returns the version after it; the caller installs that in the view.
    pub(super) fn append_edit(
        &self,
        manifest: &mut Manifest,
        version: &Version,
        edit: &VersionEdit,
    ) -> Result<Arc<Version>> {
        let next = match version.apply(edit) {
            Ok(next) => Arc::new(next),
            // Our own mistake, found before it reached the disk.
            Err(problem) => {
                return Err(Error::corrupt(&self.env.dir, 0, "version edit", problem));
            }
        };
        let old = manifest.append(edit, &next)?;
        if let Some(old) = old {
            self.env.discard(FileName::Manifest(old));
        }
        Ok(next)
    }
}

/// References `file` from every table it has rows of, making ranges as needed.
fn place_file(
    manifest: &mut Manifest,
    version: &Version,
    file: &FileMeta,
    edit: &mut VersionEdit,
) -> Result<()> {
    let (Some(first), Some(last)) = (table_of(&file.key_min), table_of(&file.key_max)) else {
        return Err(Error::corrupt("flush".as_ref(), 0, "user key", "no table id"));
    };
    let keys = Span::inclusive(&file.key_min, &file.key_max);
    for table in file.tables(first, last) {
        let whole = Span::new(&table_start(table), Some(&table_end(table)));
        let known = version.ranges_in(&whole).first().map(|range| range.id);
        let planned = || edit.add_ranges.iter().find(|range| range.table == table).map(|r| r.id);
        let range = match known.or_else(planned) {
            Some(id) => id,
            None => {
                let id = manifest.new_range_id()?;
                edit.add_ranges.push(RangeMeta { id, table, span: whole.clone() });
                id
            }
        };
        let Some(clip) = whole.intersect(&keys) else { continue };
        let placement = if joins_run(version, &clip) { Placement::Run } else { Placement::Young };
        edit.add_references.push(ReferenceMeta { range, file: file.number, placement, clip });
    }
    edit.add_files.push(file.clone());
    Ok(())
}

/// True for keys above the run's end that overlap no young file: ascending inserts need no merge.
fn joins_run(version: &Version, clip: &Span) -> bool {
    version.ranges_in(clip).iter().all(|range| {
        let above = range.run.last().is_none_or(|last| last.clip.ends_before(&clip.low));
        above && !range.young.iter().any(|file| file.clip.overlaps(clip))
    })
}

/// The tables from `first` to `last` that a file can hold rows of.
pub(super) fn _tables(_first: TableId, _last: TableId) {}

//! Implements [`Facts`], which tells the compaction picker about files. Data about a whole file is
//! from the manifest; data about a part of a file is from the file's index and zones.
//!
//! If a file cannot be read, the answer describes the whole file. The job that later reads the file
//! reports the error.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::format::edit::RangeTombstone;
use crate::format::names::FileNumber;
use crate::manifest::{FileEntry, FileRange, FileReference, Version};
use crate::model::Seq;
use crate::sst::Sst;

use super::plan::{Activity, Facts, Limits, Part};
use crate::lsm::Env;
use crate::lsm::background::maintenance::Maintenance;
use crate::lsm::background::new_file::share;
use crate::lsm::background::state::MaintenanceState;
use crate::lsm::read::load_sampling::Readers;
use crate::lsm::read::range_tombstones::{RangeTombstones, hidden_spans};
use crate::lsm::read::snapshot::Horizon;
use crate::sort::SortedMap;

/// The facts about files and readers at the time of creation.
pub(crate) struct FileFacts<'e> {
    env: &'e Env,
    version: Arc<Version>,
    range_tombstones: Arc<RangeTombstones>,
    horizon: Horizon,
    state: &'e MaintenanceState,
    now: Duration,
    /// True while a memtable that was frozen to speed up reads is not flushed yet.
    is_flushing: bool,
}

/// A file that more than this many range tombstones overlap is rewritten, even if they hide few
/// bytes, because each range tombstone slows readers.
const RANGE_TOMBSTONES_MAX: usize = 64;
/// A file is also rewritten if range tombstones hide at least 1/`HIDDEN_PART` of the bytes that a
/// range uses of it.
const HIDDEN_PART: u64 = 4;

/// The number of sample keys of young files that are looked up in the run. They show how many
/// entries of the young files hide an entry of the run. Eight are enough to distinguish 10 % from
/// 90 %.
const HIDDEN_SAMPLES: usize = 8;

impl<'e> FileFacts<'e> {
    /// Collects the facts, with the range tombstones of the current view.
    pub(crate) fn new(maintenance: &'e Maintenance) -> Self {
        // Read the horizon (the Seqs at which readers may read) first, so that the view includes
        // everything that these readers see.
        let horizon = maintenance.reader().horizon();
        let view = maintenance.reader().view.load();
        let frozen = maintenance.env().loads.frozen_for_readers();
        let (env, state) = (&**maintenance.env(), &maintenance.state);
        Self {
            env,
            version: Arc::clone(&view.version),
            range_tombstones: Arc::clone(&view.range_tombstones),
            horizon,
            state,
            now: env.clock.monotonic(),
            is_flushing: view.memtables.iter().any(|slot| Some(slot.memtable.id) <= frozen),
        }
    }

    /// Returns the Seq of the newest range tombstone that all readers see. If this Seq changes,
    /// jobs may become due.
    pub(crate) fn range_tombstone(&self) -> Seq {
        let seen = self
            .range_tombstones
            .iter()
            .filter(|range_tombstone| self.horizon.all_see(range_tombstone.from));
        seen.map(|range_tombstone| range_tombstone.from).max().unwrap_or_default()
    }

    /// Returns the Seq up to which all readers see the commits.
    pub(crate) fn seen_below(&self) -> Seq {
        self.horizon.oldest()
    }

    /// Returns a figure that changes if jobs in other ranges have left so many bytes of a file of
    /// `range` unused that a job to free them may be worthwhile. If there are range tombstones, any
    /// number may be enough, together with hidden rows.
    pub(crate) fn unused(&self, range: &FileRange, limits: &Limits) -> u64 {
        let unused = |(_, reference): (_, &FileReference)| {
            let (bytes, used) = (reference.file.meta.bytes, self.used(reference));
            let unused = share(bytes.saturating_sub(used), reference.bytes, used);
            let is_enough = limits.range_tombstone > Seq::ZERO
                || limits.activity.gain(unused, reference.bytes) > 0;
            if is_enough { unused } else { 0 }
        };
        range.references().map(unused).fold(0, u64::saturating_add)
    }

    /// Returns the deletions of spans above the Seq `examined` that all readers see, newest first.
    pub(crate) fn deletions(&self, examined: Seq) -> impl Iterator<Item = &RangeTombstone> {
        let new = self.range_tombstones.iter().rev().take_while(move |it| it.from > examined);
        new.filter(|it| it.is_drop() && self.horizon.all_see(it.from))
    }

    /// Returns the files of which `deletion` hides a part, if a rewrite of all of them writes at
    /// most eight times the bytes of the rows that `deletion` hides. Otherwise returns no file.
    pub(crate) fn paid_by(&self, deletion: &RangeTombstone) -> Vec<FileNumber> {
        let mut hidden = 0;
        // The bytes of each file that remain.
        let mut left: SortedMap<FileNumber, u64> = SortedMap::default();
        for range in self.version.ranges_in(&deletion.span) {
            for (_, reference) in range.references() {
                let meta = &reference.file.meta;
                let is_above = meta.seq_max >= deletion.below;
                let is_beside = !deletion.span.overlaps(&reference.clip);
                if is_above || is_beside || meta.tombstones_applied >= deletion.from {
                    continue;
                }
                let bytes = match deletion.span.covers(&reference.clip) {
                    true => reference.bytes,
                    false => self.bytes_under(reference, std::iter::once(deletion)),
                };
                hidden += bytes;
                let left = left.get_or_insert_with(meta.number, || self.used(reference));
                *left = left.saturating_sub(bytes);
            }
        }
        left.retain(|_, bytes| *bytes > 0);
        let is_worthwhile = Activity::Idle.gain(hidden, left.values().sum()) > 0;
        left.keys().copied().filter(|_| is_worthwhile).collect()
    }

    /// Returns about how many bytes of the part `range_tombstones` hide.
    fn bytes_under<'t>(
        &self,
        reference: &FileReference,
        range_tombstones: impl Iterator<Item = &'t RangeTombstone>,
    ) -> u64 {
        let hidden = hidden_spans(range_tombstones).into_iter().filter_map(|(span, below)| {
            let span = span.intersect(&reference.clip)?;
            self.ask(&reference.file, |sst| sst.bytes_older(&span, below))
        });
        hidden.fold(0, u64::saturating_add)
    }

    /// Returns sample keys of the part of a file that `reference` uses. Divides the part at
    /// [`HIDDEN_SAMPLES`] evenly spread places. The samples are the key at place `first` and the
    /// key at every `each`-th place after it.
    fn keys_of(&self, reference: &FileReference, first: usize, each: usize) -> Vec<Box<[u8]>> {
        let Ok(sst) = self.env.open_sst(&reference.file) else { return Vec::new() };
        let places = sst.places(&reference.clip, HIDDEN_SAMPLES).unwrap_or_default();
        let starts = places.iter().map(|(key, _)| key);
        let starts = starts.skip(first % places.len().max(1)).step_by(each);
        let keys = starts.filter_map(|start| sst.key_from(start).ok().flatten());
        keys.filter(|key| reference.clip.contains(key)).collect()
    }

    /// True if a file of `run` contains `key` or cannot be read.
    fn holds(&self, run: &[FileReference], key: &[u8]) -> bool {
        let Some(file) = run.iter().find(|reference| reference.clip.contains(key)) else {
            return false;
        };
        let hash = self.env.hash(key);
        self.ask(&file.file, |sst| Ok(sst.get(hash, key, Seq::MAX)?.is_some())).unwrap_or(true)
    }

    fn ask<T>(&self, file: &FileEntry, ask: impl FnOnce(&Sst) -> Result<T>) -> Option<T> {
        self.env.open_sst(file).and_then(|sst| ask(sst)).ok()
    }
}

/// True if the clip contains all keys of the file.
pub(super) fn is_whole(reference: &FileReference) -> bool {
    let meta = &reference.file.meta;
    reference.clip.contains(&meta.key_min) && reference.clip.contains(&meta.key_max)
}

impl Facts<Arc<FileEntry>> for FileFacts<'_> {
    fn is_damaged(&self, reference: &FileReference) -> bool {
        let file = &reference.file;
        file.damage().is_some()
            && !self.state.quarantine.lock().may_retry(file.meta.number, self.now)
    }

    fn readers(&self, range: &FileRange) -> Readers {
        match self.env.readers(range) {
            // Wait for the flush of the memtable that was frozen for these reads, so that the merge
            // includes its data.
            Readers::Served if self.is_flushing => Readers::Some,
            readers => readers,
        }
    }

    fn hidden(&self, young: &[&FileReference], run: &[FileReference]) -> u64 {
        let each = young.len().clamp(1, HIDDEN_SAMPLES);
        let (mut asked, mut found) = (0, 0);
        for (at, reference) in young.iter().enumerate() {
            // Start at a different place in each young file, so that the samples of all files
            // together cover the key span.
            for key in self.keys_of(reference, at, each) {
                asked += 1;
                found += u64::from(self.holds(run, &key));
            }
        }
        (found * 1_000).checked_div(asked).unwrap_or(1_000)
    }

    fn part(&self, reference: &FileReference) -> Part {
        let meta = &reference.file.meta;
        let is_whole = is_whole(reference);
        let (bytes, entries, tombstones) = (meta.bytes, meta.entries, meta.tombstones);
        let whole = Part { bytes, entries, tombstones };
        let is_sized = reference.bytes < bytes;
        let mut part = if is_whole || is_sized && tombstones == 0 {
            whole
        } else {
            self.ask(&reference.file, |sst| sst.part(&reference.clip)).unwrap_or(whole)
        };
        if is_sized && !is_whole {
            // The reference has recorded a size at the flush or merge. For a part of a few rows
            // this size is more precise than an estimate from the index.
            part.bytes = reference.bytes;
            part.entries = share(meta.entries, reference.bytes, meta.bytes);
        }
        Part { tombstones: part.tombstones.min(part.entries), ..part }
    }

    fn used(&self, reference: &FileReference) -> u64 {
        let (number, bytes) = (reference.file.meta.number, reference.file.meta.bytes);
        if reference.bytes >= bytes || is_whole(reference) {
            return bytes;
        }
        let used = self.version.used_bytes(number).max(reference.bytes);
        // The sizes of references are estimates, so allow for an error of 1/16.
        if used < bytes - bytes / 16 { used } else { bytes }
    }

    fn concealed(&self, reference: &FileReference) -> u64 {
        let over = || self.range_tombstones.hiding_part(reference, &self.horizon);
        let hides_all = |over: &&RangeTombstone| reference.file.meta.seq_max < over.below;
        let hidden = self.bytes_under(reference, over());
        // The other rows of the spans may expire soon, and a later merge then frees more for fewer
        // writes. So wait until half of the part is hidden.
        if over().all(|over| hides_all(&over)) || hidden >= self.part(reference).bytes / 2 {
            return hidden;
        }
        self.bytes_under(reference, over().filter(hides_all))
    }

    fn is_paid(&self, reference: &FileReference) -> bool {
        self.state.paid.lock().files.contains(&reference.file.meta.number)
    }

    fn key_at(&self, reference: &FileReference, bytes: u64) -> Option<Box<[u8]>> {
        self.ask(&reference.file, |sst| sst.key_at(&reference.clip, bytes)).flatten()
    }

    fn wants_rewrite(&self, reference: &FileReference) -> bool {
        let meta = &reference.file.meta;
        let over: Vec<_> = self.range_tombstones.hiding_part(reference, &self.horizon).collect();
        if over.is_empty() || over.len() > RANGE_TOMBSTONES_MAX {
            return !over.is_empty();
        }
        let over = over.into_iter().filter(|over| meta.seq_max < over.below);
        let hidden = self.bytes_under(reference, over);
        hidden.saturating_mul(HIDDEN_PART) >= self.part(reference).bytes
    }

    fn is_compressible(&self, reference: &FileReference) -> bool {
        let tried = self.state.packed.lock().contains(&reference.file.meta.number);
        !tried && self.ask(&reference.file, Sst::is_compressed) == Some(false)
    }

    fn tombstones_end(&self, reference: &FileReference) -> Option<Box<[u8]>> {
        self.ask(&reference.file, |sst| sst.tombstones_end(&reference.clip)).flatten()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::format::edit::Placement;
    use crate::format::file_meta::FileMeta;
    use crate::format::names::{FileId, RangeId, TableId};
    use crate::format::span::Span;
    use crate::fs::MemFs;
    use crate::options::{Background, Options};

    #[test]
    fn with_range_tombstones_a_few_unused_bytes_change_the_figure() {
        let options = Options::default().fs(Arc::new(MemFs::new()));
        let options = options.background(Background::Manual);
        let engine = crate::lsm::open("db".as_ref(), options).unwrap();
        let facts = FileFacts::new(engine.maintenance());
        let meta = FileMeta {
            number: FileNumber(9),
            id: FileId(9),
            bytes: 1_000,
            seq_min: Seq(1),
            seq_max: Seq(9),
            visible_from: Seq::ZERO,
            tombstones_applied: Seq::ZERO,
            entries: 10,
            tombstones: 0,
            raw_bytes: 1_000,
            key_min: b"a".as_slice().into(),
            key_max: b"m".as_slice().into(),
            sections: Vec::new(),
            unknown: Box::default(),
        };
        let (file, clip) = (Arc::new(FileEntry::new(meta)), Span::new(b"a", Some(b"j")));
        let mut range = FileRange::new(RangeId(1), TableId(1), Span::all());
        range.add(Placement::Run, FileReference::new(file, clip, Some(900)));
        let limits = Limits::default();
        assert_eq!(facts.unused(&range, &limits), 0, "900 bytes are too many to free 100");
        let limits = Limits { range_tombstone: Seq(5), ..limits };
        assert_eq!(facts.unused(&range, &limits), 100, "with hidden rows they may be few enough");
    }
}

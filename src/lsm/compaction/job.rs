//! Carrying out what the picker decided.
//!
//! 1. Claim the range, so that no two jobs change it at once.
//! 2. Merge the inputs, each in its clip and below the job's cut, into new files; a join writes nothing.
//! 3. Under the install lock, see that the current version still has every input where it was; if a drop took one,
//!    or a flush put one between them, decline: remove the outputs and forget the job. Else one edit takes the inputs
//!    out, or clips them to what they have above the cut, and puts the outputs in.
//!
//! Invariants
//! * a tombstone goes only if no source of the range that is older than the inputs can hold its key;
//! * an input with damage quarantines its range: the job is not repeated, and everything else goes on.

#[cfg(all(test, loom))]
mod models;

use std::sync::Arc;

use crate::error::{ErrorKind, Result};
use crate::format::edit::{Placement, ReferenceMeta, VersionEdit};
use crate::format::names::{FileNumber, RangeId};
use crate::format::span::Span;
use crate::manifest::{FileEntry, Version};
use crate::model::Seq;
use crate::options::Codec;
use crate::planted::planted;
use crate::ranges::{Range, Reference};

use super::super::Engine;
use super::super::commit::closed;
use super::super::merge::Merge;
use super::super::outputs::{Boundaries, Cut, NewFile, Outputs, Retention};
use super::facts::FileFacts;
use super::picker::{Facts, JOB_RUN_FILES, Job, Limits, pick};

type FileRange = Range<Arc<FileEntry>>;
type FileReference = Reference<Arc<FileEntry>>;

impl Engine {
    /// Runs the most urgent job; false if there is none.
    pub(crate) fn compact_one(&self) -> Result<bool> {
        let (limits, facts) = (self.limits(), FileFacts::new(self));
        let candidates: Vec<RangeId> = {
            let view = self.view.load();
            let wanting =
                view.version.ranges().iter().filter(|r| pick(r, &facts, &limits).is_some());
            wanting.map(|range| range.id).collect()
        };
        let mut failure = None;
        for id in candidates {
            if self.upkeep.is_quarantined(id) || !self.upkeep.claim(id) {
                continue;
            }
            // Picked anew under the claim: the range may have changed since.
            let version = Arc::clone(&self.view.load().version);
            let job = version
                .ranges()
                .get(id)
                .and_then(|range| Some((range, pick(range, &facts, &limits)?)));
            let job = job.filter(|(range, job)| self.outputs_visible_from(range, job).is_some());
            let done = job.map(|(range, job)| self.run_job(&version, range, &job));
            self.upkeep.release(id);
            match done {
                None => {}
                // The range is left alone from now on, and the others go on.
                Some(Err(error)) if error.kind() == ErrorKind::Corruption => return Ok(true),
                // The others have their turn, too.
                Some(Err(error)) => failure = failure.or(Some(error)),
                Some(Ok(_)) => return Ok(true),
            }
        }
        failure.map_or(Ok(false), Err)
    }

    /// Merges all files of every range into its run.
    ///
    /// # Errors
    /// Of reading and writing; what was done before stays done.
    pub(crate) fn compact_all(&self) -> Result<()> {
        let ids: Vec<RangeId> = self.view.load().version.ranges().iter().map(|r| r.id).collect();
        self.compact_ranges(&ids)?;
        self.remove_unheld();
        Ok(())
    }

    /// Merges all files that a range has now into its run, from left to right.
    fn compact_range(&self, id: RangeId) -> Result<()> {
        self.upkeep.claim_waiting(id);
        let done = self.compact_claimed(id);
        self.upkeep.release(id);
        done
    }

    fn compact_claimed(&self, id: RangeId) -> Result<()> {
        let (limits, facts) = (self.limits(), FileFacts::new(self));
        let version = Arc::clone(&self.view.load().version);
        let horizon = self.horizon();
        let fences = Arc::clone(&self.view.load().fences);
        let hides_part = |file| fences.hiding_part(file, &horizon).next().is_some();
        let range = version.ranges().get(id).filter(|range| {
            is_unmerged(range) || range.references().any(|(_, file)| hides_part(file))
        });
        let Some(range) = range else { return Ok(()) };
        let young: Vec<FileNumber> = range.young.iter().map(|r| r.file.meta.number).collect();
        let mut from: Box<[u8]> = Box::default();
        loop {
            let version = Arc::clone(&self.view.load().version);
            let range = version.ranges().get(id);
            let job = range.and_then(|range| {
                Some((range, Job::whole(range, &facts, &limits, &young, &from)?))
            });
            let job = job.filter(|(range, job)| self.outputs_visible_from(range, job).is_some());
            let Some((range, job)) = job else { return Ok(()) };
            // It is declined when a drop or a flush was faster: at most a few times in a row.
            if self.run_job(&version, range, &job)? {
                match job.below {
                    Some(below) => from = below,
                    None => return Ok(()),
                }
            }
        }
    }

    /// Merges all files of each of these ranges.
    pub(crate) fn compact_ranges(&self, ids: &[RangeId]) -> Result<()> {
        ids.iter().try_for_each(|id| self.compact_range(*id))
    }

    fn limits(&self) -> Limits {
        let bytes = self.env.options.run_file_bytes;
        Limits {
            run_file_bytes_min: bytes / 4,
            run_file_bytes_max: bytes,
            job_bytes_max: bytes.saturating_mul(JOB_RUN_FILES),
            ..Limits::default()
        }
    }

    /// False if the job was declined.
    fn run_job(&self, version: &Version, range: &FileRange, job: &Job) -> Result<bool> {
        let _work = self.upkeep.work()?;
        let files = self.write_job(version, range, job)?;
        self.end_job(range, job, &files)
    }

    /// Steps 1 and 2: the outputs, which nothing names yet.
    fn write_job(&self, version: &Version, range: &FileRange, job: &Job) -> Result<Vec<NewFile>> {
        let written = if job.is_join() { Ok(Vec::new()) } else { self.merge(version, range, job) };
        written.inspect_err(|error| {
            if error.kind() == ErrorKind::Corruption {
                self.upkeep.quarantine(range.id, error.clone());
            }
        })
    }

    /// Step 3: false if the job is declined.
    fn end_job(&self, range: &FileRange, job: &Job, files: &[NewFile]) -> Result<bool> {
        let installed = self.install_job(range, job, files);
        match &installed {
            Ok(true) => {
                self.upkeep.note_compaction(job, files);
            }
            // Nothing names the outputs.
            Ok(false) => self.discard_outputs(files),
            Err(error) => self.discard_files(files, error),
        }
        installed
    }
}

/// A job between its two halves: outputs that are written, and that nothing names yet.
#[cfg(feature = "sim")]
pub(crate) struct Compaction {
    range: Arc<FileRange>,
    job: Job,
    files: Vec<NewFile>,
}

/// A job in two halves, for simulations: anything but another job of the range may happen in between.
#[cfg(feature = "sim")]
impl Engine {
    /// Picks and claims the most urgent job, and writes its outputs.
    pub(crate) fn begin_compaction(&self) -> Result<Option<Compaction>> {
        let (limits, facts) = (self.limits(), FileFacts::new(self));
        let version = Arc::clone(&self.view.load().version);
        let picked = version.ranges().iter().find_map(|range| {
            let is_free = !self.upkeep.is_quarantined(range.id);
            let job = pick(range, &facts, &limits).filter(|_| is_free)?;
            self.outputs_visible_from(range, &job).map(|_| (range, job))
        });
        let Some((range, job)) = picked else { return Ok(None) };
        if !self.upkeep.claim(range.id) {
            return Ok(None);
        }
        let written = self.write_job(&version, range, &job);
        let files = written.inspect_err(|_| self.upkeep.release(range.id))?;
        Ok(Some(Compaction { range: Arc::clone(range), job, files }))
    }

    /// False if it was declined.
    pub(crate) fn finish_compaction(&self, compaction: &Compaction) -> Result<bool> {
        let Compaction { range, job, files } = compaction;
        let ended = self.end_job(range, job, files);
        self.upkeep.release(range.id);
        ended
    }
}

impl Engine {
    fn merge(&self, version: &Version, range: &FileRange, job: &Job) -> Result<Vec<NewFile>> {
        let below = Span::new(&[], job.below.as_deref());
        let taken = |input: &FileReference| {
            let clip = input.clip.intersect(&below)?;
            Some(FileReference::new(Arc::clone(&input.file), clip, None))
        };
        let young: Vec<FileReference> = young_inputs(range, job).filter_map(taken).collect();
        let run: Vec<FileReference> = run_inputs(range, job).filter_map(taken).collect();
        let entries = Merge::over_files(&self.env, &young, &run)?;
        let older = older_sources(range, job);
        let holds_older = move |key: &[u8]| older.iter().any(|clip| clip.contains(key));
        let horizon = self.horizon();
        let dead = self.upkeep.dead_tables(&horizon);
        let fences = Arc::clone(&self.view.load().fences);
        let retention =
            Retention::new(horizon, dead, holds_older).with_fences(&fences, &range.span);
        let (file_bytes, codec) = match job.placement {
            Placement::Run => (self.env.options.run_file_bytes, self.env.options.codec_run),
            // One young file stays one source.
            Placement::Young => (u64::MAX, Codec::None),
        };
        debug_assert!(version.ranges().get(range.id).is_some(), "the job was picked from it");
        let cut = Cut { file_bytes, boundary_bytes: u64::MAX };
        // Snapshots only go meanwhile: what the job could be picked for still holds.
        let visible_from = self.outputs_visible_from(range, job).unwrap_or_default();
        let outputs = Outputs::new(self, cut, codec, Boundaries::default());
        let mut files = outputs.write(entries, retention, || self.make_way())?;
        files.iter_mut().for_each(|file| file.meta.visible_from = visible_from);
        Ok(files)
    }

    /// From which Seq on readers may see what the job makes; `None` if snapshots would see of it either too much or
    /// too little, because some inputs came from another database and others hold what is older: the job must wait.
    fn outputs_visible_from(&self, range: &FileRange, job: &Job) -> Option<Seq> {
        let came = |file: &FileReference| file.file.meta.visible_from;
        let from = inputs(range, job).map(came).max().unwrap_or_default();
        if job.is_join() || from == Seq::ZERO || self.horizon().all_see(from) {
            return Some(Seq::ZERO);
        }
        let is_later = |file: &FileReference| came(file) == from || file.file.meta.seq_min >= from;
        inputs(range, job).all(is_later).then_some(from)
    }

    /// A long job ends early when the database is closed, or when nothing can be installed any more.
    fn make_way(&self) -> Result<()> {
        if self.executor.is_stopping() {
            return Err(closed());
        }
        match self.rounds.lock().failed() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// False if the version no longer has the inputs.
    fn install_job(&self, range: &FileRange, job: &Job, files: &[NewFile]) -> Result<bool> {
        let facts = FileFacts::new(self);
        let rests = rests(range, job, |reference| facts.part(reference).bytes);
        let mut manifest = self.install.lock();
        let version = Arc::clone(manifest.version());
        let exchanged = exchange(&version, range, job, files, &rests);
        let Some((edit, gone)) = exchanged else { return Ok(false) };
        let version = self.append_edit(&mut manifest, &edit)?;
        self.change_view(|view| view.with_version(&version, None));
        if !planted!("merged-files-stay") {
            self.upkeep.retire(gone);
        }
        Ok(true)
    }

    fn discard_outputs(&self, files: &[NewFile]) {
        for file in files {
            self.env.discard(crate::format::names::FileName::Sst(file.meta.number));
        }
    }
}

/// True if a file joined the run since the job was picked, between keys of its inputs that no young file covers.
fn joined_meanwhile(picked: &FileRange, now: &FileRange, job: &Job, files: &[NewFile]) -> bool {
    let is_new = |file: &FileReference| {
        !picked.references().any(|(_, known)| Arc::ptr_eq(&known.file, &file.file))
    };
    let outputs = files.iter().map(|file| Span::inclusive(&file.meta.key_min, &file.meta.key_max));
    let joins = inputs(picked, job).filter(|_| job.is_join()).map(|input| input.clip.clone());
    outputs.chain(joins).any(|span| now.run_in(&span).iter().any(is_new))
}

/// True if merging everything would make less of it: young files, or files of which only a part counts here.
fn is_unmerged(range: &FileRange) -> bool {
    let is_part = |file: &FileReference| {
        let meta = &file.file.meta;
        !(file.clip.contains(&meta.key_min) && file.clip.contains(&meta.key_max))
    };
    let has_spent = |file: &FileReference| file.file.meta.tombstones > 0;
    !range.young.is_empty() || range.run.iter().any(|file| is_part(file) || has_spent(file))
}

/// The edit that takes the inputs out and puts the outputs in, and the files that nothing references after it;
/// `None` if `version` no longer has every input where the job found it, or something new lies where the outputs go.
fn exchange(
    version: &Version,
    range: &FileRange,
    job: &Job,
    files: &[NewFile],
    rests: &[ReferenceMeta],
) -> Option<(VersionEdit, Vec<Arc<FileEntry>>)> {
    let now = version.ranges().get(range.id)?;
    let stands = |(placement, input): (Placement, &FileReference)| {
        now.references().any(|(at, reference)| {
            at == placement
                && reference.clip == input.clip
                && Arc::ptr_eq(&reference.file, &input.file)
        })
    };
    let young = young_inputs(range, job).map(|input| (Placement::Young, input));
    let run = run_inputs(range, job).map(|input| (Placement::Run, input));
    let declined = !young.chain(run).all(stands) || joined_meanwhile(range, now, job, files);
    if declined && !planted!("install-unchecked") {
        return None;
    }
    let mut edit = VersionEdit::default();
    for input in inputs(range, job) {
        edit.remove_references.push((range.id, input.file.meta.number));
        if job.is_join() {
            let (file, clip) = (input.file.meta.number, input.clip.clone());
            let placement = Placement::Run;
            let (range, bytes) = (range.id, input.bytes_meta());
            edit.add_references.push(ReferenceMeta { range, file, placement, clip, bytes });
        }
    }
    edit.add_references.extend_from_slice(rests);
    for file in files {
        let keys = Span::inclusive(&file.meta.key_min, &file.meta.key_max);
        let Some(clip) = range.span.intersect(&keys) else { continue };
        let (range, file, placement) = (range.id, file.meta.number, job.placement);
        edit.add_references.push(ReferenceMeta { range, file, placement, clip, bytes: None });
    }
    edit.add_files = files.iter().map(|file| file.meta.clone()).collect();
    let gone = version.unreferenced_after(&edit);
    edit.remove_files = gone.iter().map(|file| file.meta.number).collect();
    Some((edit, gone))
}

/// What is left of inputs that the job took only below its cut: the same files where they were, clipped.
fn rests(
    range: &FileRange,
    job: &Job,
    bytes: impl Fn(&FileReference) -> u64,
) -> Vec<ReferenceMeta> {
    let Some(below) = &job.below else { return Vec::new() };
    let above = Span::new(below, None);
    let rest = |placement: Placement, input: &FileReference| {
        let meta = &input.file.meta;
        let keys = Span::inclusive(&meta.key_min, &meta.key_max);
        let clip = input.clip.intersect(&above)?.intersect(&keys)?;
        let rest = FileReference::new(Arc::clone(&input.file), clip, None);
        let bytes = Some(bytes(&rest));
        let (range, file, clip) = (range.id, meta.number, rest.clip);
        Some(ReferenceMeta { range, file, placement, clip, bytes })
    };
    let young = young_inputs(range, job).filter_map(|input| rest(Placement::Young, input));
    young.chain(run_inputs(range, job).filter_map(|input| rest(Placement::Run, input))).collect()
}

fn young_inputs<'a>(range: &'a FileRange, job: &'a Job) -> impl Iterator<Item = &'a FileReference> {
    range.young.iter().filter(|file| job.young.contains(&file.file.meta.number))
}

fn run_inputs<'a>(range: &'a FileRange, job: &'a Job) -> impl Iterator<Item = &'a FileReference> {
    range.run.iter().filter(|file| job.run.contains(&file.file.meta.number))
}

fn inputs<'a>(range: &'a FileRange, job: &'a Job) -> impl Iterator<Item = &'a FileReference> {
    young_inputs(range, job).chain(run_inputs(range, job))
}

/// The clips of what may hold older versions than the inputs: young files behind the last one, and the rest of the run.
fn older_sources(range: &FileRange, job: &Job) -> Vec<Span> {
    let is_input = |file: FileNumber| job.young.contains(&file) || job.run.contains(&file);
    let oldest = range.young.iter().rposition(|file| is_input(file.file.meta.number));
    let behind = range.young.iter().skip(oldest.map_or(0, |at| at + 1));
    let rest = behind.chain(&range.run).filter(|file| !is_input(file.file.meta.number));
    rest.map(|file| file.clip.clone()).collect()
}

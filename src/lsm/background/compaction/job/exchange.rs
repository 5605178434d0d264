//! Builds the edit that installs the outputs of jobs, as a pure function of the current version.
//!
//! Invariants
//! * The clip of a reference to an output covers the keys that were written for the range.
//! * A range that has changed since the job was picked keeps its inputs and gets no outputs. Other
//!   ranges are not affected.
//! * An output that no range references is not added to the version.

use std::sync::Arc;

use crate::format::edit::{Placement, ReferenceMeta, VersionEdit};
use crate::format::names::FileNumber;
use crate::format::span::Span;
use crate::manifest::{FileEntry, FileRange, FileReference, Version};
use crate::mutants::mutant;

use super::super::plan::Job;
use super::task::{Task, inputs, run_inputs, young_inputs};
use crate::lsm::background::new_file::NewFile;

/// The edit for several jobs, and its consequences.
pub(super) struct Exchange {
    pub(super) edit: VersionEdit,
    /// Files without references after the edit.
    pub(super) gone: Vec<Arc<FileEntry>>,
    /// Outputs that the edit does not add to the version.
    pub(super) unused: Vec<FileNumber>,
}

/// Builds the edit that replaces the inputs of tasks by their outputs. Leaves out a task if
/// `version` no longer has the task's inputs in place, or has a new file where its outputs belong.
/// Returns `None` if no task is left. `remainders` contains the results of [`remainders`] for all
/// tasks.
pub(super) fn exchange(
    version: &Version,
    tasks: &[Task],
    files: &[NewFile],
    remainders: &[ReferenceMeta],
) -> Option<Exchange> {
    let is_of_task = |rest: &ReferenceMeta| tasks.iter().any(|task| task.range.id == rest.range);
    debug_assert!(remainders.iter().all(is_of_task), "a remainder is of a task");
    let mut edit = VersionEdit::default();
    let mut is_any_valid = false;
    for Task { range, job } in tasks {
        let output = output(range, job, files);
        let now = version.ranges.get(range.id);
        let declined = now.is_none_or(|now| has_changed(range, now, job, &output));
        if declined && (now.is_none() || !mutant!("unchecked-install")) {
            continue;
        }
        is_any_valid = true;
        for input in inputs(range, job) {
            edit.remove_references.push((range.id, input.file.meta.number));
            if job.is_join() {
                let (file, clip) = (input.file.meta.number, input.clip.clone());
                let (range, bytes, placement) = (range.id, input.bytes_meta(), Placement::Run);
                edit.add_references.push(ReferenceMeta { range, file, placement, clip, bytes });
            }
        }
        edit.add_references
            .extend(remainders.iter().filter(|rest| rest.range == range.id).cloned());
        edit.add_references.extend(output);
    }
    let is_named = |file: &NewFile| {
        edit.add_references.iter().any(|reference| reference.file == file.meta.number)
    };
    let (named, unused): (Vec<&NewFile>, Vec<&NewFile>) = files.iter().partition(|f| is_named(f));
    let unused = unused.into_iter().map(|file| file.meta.number).collect();
    edit.add_files = named.into_iter().map(|file| file.meta.clone()).collect();
    let gone = version.remove_unreferenced(&mut edit);
    let is_input = |number| edit.add_files.iter().all(|file| file.number != number);
    debug_assert!(edit.remove_files.iter().copied().all(is_input), "no output is removed");
    is_any_valid.then_some(Exchange { edit, gone, unused })
}

/// Returns the references of `range` to the outputs of `job`, which are in `files`.
fn output(range: &FileRange, job: &Job, files: &[NewFile]) -> Vec<ReferenceMeta> {
    let reference = |file: &NewFile| {
        let mut parts = file.parts.iter().filter(|part| range.span.contains(&part.low));
        let first = parts.next()?;
        let (mut high, mut bytes) = (&first.high, first.bytes);
        for part in parts {
            (high, bytes) = (&part.high, bytes + part.bytes);
        }
        let clip = range.span.intersect(&Span::inclusive(&first.low, high))?;
        let bytes = (bytes < file.meta.bytes).then_some(bytes);
        let (range, file, placement) = (range.id, file.meta.number, job.placement);
        Some(ReferenceMeta { range, file, placement, clip, bytes })
    };
    files.iter().filter_map(reference).collect()
}

/// True if, since the pick, an input of the job has left its place, or a file has joined the run
/// inside the span of an output. A file can join there if its keys are between those of the inputs
/// and it overlaps no young file.
fn has_changed(picked: &FileRange, now: &FileRange, job: &Job, output: &[ReferenceMeta]) -> bool {
    let is_in_place = |(placement, input): (Placement, &FileReference)| {
        now.references().any(|(at, reference)| {
            at == placement
                && reference.clip == input.clip
                && Arc::ptr_eq(&reference.file, &input.file)
        })
    };
    let young = young_inputs(picked, job).map(|input| (Placement::Young, input));
    let run = run_inputs(picked, job).map(|input| (Placement::Run, input));
    let is_new = |file: &FileReference| {
        !picked.references().any(|(_, known)| Arc::ptr_eq(&known.file, &file.file))
    };
    let joins = inputs(picked, job).filter(|_| job.is_join()).map(|input| &input.clip);
    let mut spans = output.iter().map(|output| &output.clip).chain(joins);
    !young.chain(run).all(is_in_place) || spans.any(|span| now.run_in(span).iter().any(is_new))
}

/// Returns references to the remainders of inputs, if the job is cut at a key: the parts above the
/// cut. They are the same files in the same places, with smaller clips. `bytes` estimates the size
/// of a remainder.
pub(super) fn remainders(
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

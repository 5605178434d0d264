//! A compaction job with its range, and helpers that list the files that the job reads.

use std::sync::Arc;

use crate::format::names::FileNumber;
use crate::format::span::Span;
use crate::manifest::{FileRange, FileReference};

use super::super::plan::Job;
use crate::lsm::background::new_file::share;

/// A job, and its range as in the version from which the job was picked.
pub(in crate::lsm) struct Task {
    pub(super) range: Arc<FileRange>,
    pub(super) job: Job,
}

impl Task {
    /// Returns about how many bytes of young files the job reads; 0 for a join.
    pub(super) fn young_bytes(&self) -> u64 {
        let Self { range, job } = self;
        let young: u64 = young_inputs(range, job).map(|file| file.bytes).sum();
        let run: u64 = run_inputs(range, job).map(|file| file.bytes).sum();
        share(job.bytes, young, young.saturating_add(run))
    }
}

pub(super) fn young_inputs<'a>(
    range: &'a FileRange,
    job: &'a Job,
) -> impl Iterator<Item = &'a FileReference> {
    range.young.iter().filter(|file| job.young.contains(&file.file.meta.number))
}

pub(super) fn run_inputs<'a>(
    range: &'a FileRange,
    job: &'a Job,
) -> impl Iterator<Item = &'a FileReference> {
    range.run.iter().filter(|file| job.run.contains(&file.file.meta.number))
}

pub(super) fn inputs<'a>(
    range: &'a FileRange,
    job: &'a Job,
) -> impl Iterator<Item = &'a FileReference> {
    young_inputs(range, job).chain(run_inputs(range, job))
}

/// Returns the clips of files that may hold older versions of a key than the inputs hold: the young
/// files after the last input, and the files of the run that are not inputs.
pub(super) fn older_sources(range: &FileRange, job: &Job) -> Vec<Span> {
    let is_input = |file: FileNumber| job.young.contains(&file) || job.run.contains(&file);
    let oldest = range.young.iter().rposition(|file| is_input(file.file.meta.number));
    let behind = range.young.iter().skip(oldest.map_or(0, |at| at + 1));
    let rest = behind.chain(&range.run).filter(|file| !is_input(file.file.meta.number));
    rest.map(|file| file.clip.clone()).collect()
}

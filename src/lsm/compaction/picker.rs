//! Which files of a range to merge: a pure function of the range and the limits.

use std::sync::Arc;

use crate::format::edit::Placement;
use crate::format::names::FileNumber;
use crate::manifest::FileEntry;
use crate::ranges::Range;

/// What jobs are bounded by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Target size of a file of the run.
    pub(crate) file_bytes: u64,
}

/// A merge to carry out, or a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) young: Vec<FileNumber>,
    pub(crate) run: Vec<FileNumber>,
    pub(crate) output: Placement,
    /// The one young input moves into the run as it is.
    pub(crate) join: bool,
}

impl Job {
    pub(crate) fn is_join(&self) -> bool {
        self.join
    }

    /// Everything of the range into its run; `None` if that is so already.
    pub(crate) fn whole(range: &Range<Arc<FileEntry>>) -> Option<Job> {
        if range.young.is_empty() && range.run.len() <= 1 {
            return None;
        }
        let numbers = |files: &[crate::ranges::Reference<Arc<FileEntry>>]| {
            files.iter().map(|file| file.file.meta.number).collect()
        };
        Some(Job { young: numbers(&range.young), run: numbers(&range.run), output: Placement::Run, join: false })
    }
}

pub(crate) fn pick(range: &Range<Arc<FileEntry>>, _limits: &Limits) -> Option<Job> {
    if range.young.len() >= 4 { Job::whole(range) } else { None }
}

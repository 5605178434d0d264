//! Input and output of the picker: limits, facts about files, and a job.
//!
//! Not here: picking the job (`picker`), facts about real files (`facts`).

use crate::format::edit::Placement;
use crate::format::names::FileNumber;
use crate::model::Seq;
use crate::ranges::{Range, RangeFile, Reference};
pub(crate) use crate::sst::SstPart as Part;

use crate::lsm::read::load_sampling::Readers;

/// Bounds on the shape of a range's files and on jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The most files, including one of the run, in which a key must be looked up.
    pub(crate) sources_max: usize,
    /// Smaller files of the run are eventually merged with their neighbours.
    pub(crate) run_file_bytes_min: u64,
    /// The length at which a job begins its next output file.
    pub(crate) run_file_bytes_max: u64,
    /// The most bytes that a job may read, as far as its inputs can be cut.
    pub(crate) job_bytes_max: u64,
    /// Tombstones are dropped, if possible, once all commits of their file are at or below this
    /// Seq. Zero: never because of age.
    pub(crate) aged_below: Seq,
    /// All readers see the commits up to this Seq.
    pub(crate) seen_below: Seq,
    /// The newest range tombstone. When it changes, cached results about ranges are no longer
    /// valid.
    pub(crate) range_tombstone: Seq,
    /// A file up to this length has the size of a flushed file.
    pub(crate) flush_bytes: u64,
    /// A run with its newest commit at or below this Seq is at rest, if no young file overlaps it.
    /// Zero: none is.
    pub(crate) rests_below: Seq,
    /// If not zero, files are merged only with neighbours in age, up to this length. Zero: by keys.
    pub(crate) window_bytes: u64,
}

/// A merge in one range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) reason: Reason,
    /// Young inputs, newest first.
    pub(crate) young: Vec<FileNumber>,
    /// Inputs from the run, ascending.
    pub(crate) run: Vec<FileNumber>,
    /// Inputs are merged only below this key, and the remainder stays. `None`: they are merged
    /// whole.
    pub(crate) below: Option<Box<[u8]>>,
    /// Where the output is placed.
    pub(crate) placement: Placement,
    /// About the number of bytes read.
    pub(crate) bytes: u64,
}

/// Why a job is worth its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// The files overlap no other: they join the run by an edit.
    Clear,
    /// Reads suffer until it is done.
    Sources,
    /// A file contains entries that a range tombstone hides.
    RangeTombstone,
    /// Tombstones are old.
    Age,
    /// A file is dense with tombstones.
    Tombstones,
    /// Young files are large enough, compared to the run or to each other.
    Size,
    /// Readers have lost as much by the number of files as the merge costs.
    Reads,
    /// Neighbours in the run are small.
    Small,
    /// The range is at rest: it is compressed.
    Rest,
    /// A caller asked for it.
    Asked,
}

/// The picker's questions about files. The answers are estimates, and stay the same as long as the
/// clip does; only the load by readers may change at any time.
pub(crate) trait Facts<F: RangeFile> {
    /// The read load of the range.
    fn readers(&self, range: &Range<F>) -> Readers;

    /// Of 1,000 entries of the young files, the number that hide an entry of the run.
    fn hidden(&self, young: &[&Reference<F>], run: &[Reference<F>]) -> u64;

    /// True for a file that cannot be read as a whole. It stays in place at any cost.
    fn is_damaged(&self, reference: &Reference<F>) -> bool;

    /// The part of the file inside the clip.
    fn part(&self, reference: &Reference<F>) -> Part;

    /// A key inside the clip such that about `bytes` bytes of the file's part have lower keys.
    fn key_at(&self, reference: &Reference<F>, bytes: u64) -> Option<Box<[u8]>>;

    /// A key above all tombstones of the clip; `None` if it is not known.
    fn tombstones_end(&self, reference: &Reference<F>) -> Option<Box<[u8]>>;

    /// True if a range tombstone hides entries of the part, which a merge would drop.
    fn wants_rewrite(&self, reference: &Reference<F>) -> bool;

    /// True if compression could make the file smaller.
    fn is_compressible(&self, reference: &Reference<F>) -> bool;
}

impl Job {
    /// True if nothing is read or written.
    pub(crate) fn is_join(&self) -> bool {
        self.reason == Reason::Clear
    }

    /// True if no file that overlaps the run of `range` remains.
    pub(crate) fn leaves_the_run_of<F: RangeFile>(&self, range: &Range<F>) -> bool {
        let is_all = self.below.is_none() && self.young.len() == range.young.len();
        is_all && self.placement == Placement::Run
    }

    /// True if all files of `range` are merged into its run.
    pub(crate) fn takes_all_of<F: RangeFile>(&self, range: &Range<F>) -> bool {
        let count = self.young.len() + self.run.len();
        let is_all = self.below.is_none() && count == range.references().count();
        is_all && self.placement == Placement::Run && !self.is_join()
    }
}

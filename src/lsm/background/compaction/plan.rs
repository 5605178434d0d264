//! What the picker knows and decides: limits, facts about files, and a job.
//!
//! Not here: which job (`picker`), facts about real files (`facts`).

use crate::format::edit::Placement;
use crate::format::names::FileNumber;
use crate::model::Seq;
use crate::ranges::{Range, RangeFile, Reference};
pub(crate) use crate::sst::SstPart as Part;

use crate::lsm::read::load_sampling::Readers;

/// What bounds a range's tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Files, the run's included, that a key may be looked for in.
    pub(crate) sources_max: usize,
    /// Files of the run smaller than this are merged with their neighbours in time.
    pub(crate) run_file_bytes_min: u64,
    /// The length at which a job begins its next output file.
    pub(crate) run_file_bytes_max: u64,
    /// What a job may read, as far as its inputs can be cut.
    pub(crate) job_bytes_max: u64,
    /// Tombstones go once all commits of their file are at or below this, if they can; zero: never for their age.
    pub(crate) aged_below: Seq,
    /// Everybody sees the commits up to here.
    pub(crate) seen_below: Seq,
    /// The newest range tombstone: when there is another one, what was found out about ranges is asked again.
    pub(crate) range_tombstone: Seq,
    /// Files up to so long are as a flush left them.
    pub(crate) flush_bytes: u64,
    /// A run whose newest commit is at or below this rests, if nothing young lies over it; zero: none does.
    pub(crate) rests_below: Seq,
    /// Files are merged with neighbours in age only, up to this length; zero: by keys.
    pub(crate) window_bytes: u64,
}

/// What to do to a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) reason: Reason,
    /// Young inputs, newest first.
    pub(crate) young: Vec<FileNumber>,
    /// Inputs from the run, ascending.
    pub(crate) run: Vec<FileNumber>,
    /// The inputs are taken below this key only, and what is left of them stays; `None`: whole.
    pub(crate) below: Option<Box<[u8]>>,
    /// Where the output goes.
    pub(crate) placement: Placement,
    /// About what is read.
    pub(crate) bytes: u64,
}

/// Why a job is worth doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// Nothing else lies where the files are: they move to the run by an edit.
    Clear,
    /// Reads suffer until it is done.
    Sources,
    /// A file holds what a range tombstone hides.
    RangeTombstone,
    /// Tombstones are old.
    Age,
    /// A file is dense with tombstones.
    Tombstones,
    /// Young files are large enough, against the run or against each other.
    Size,
    /// Readers have lost as much by the number of files.
    Reads,
    /// Neighbours in the run are small.
    Small,
    /// Nothing happens to the range: it is compressed.
    Rest,
    /// Somebody asked for it.
    Asked,
}

/// What the picker asks about files. The answers are estimates, and the same each time as long as the clip is; but who reads
/// may change at any time.
pub(crate) trait Facts<F: RangeFile> {
    /// Who reads the range.
    fn readers(&self, range: &Range<F>) -> Readers;

    /// Of 1,000 entries of the young files, how many hide one of the run.
    fn hidden(&self, young: &[&Reference<F>], run: &[Reference<F>]) -> u64;

    /// True for a file that cannot be read as a whole: it stays where it is, whatever that costs.
    fn is_damaged(&self, reference: &Reference<F>) -> bool;

    /// What lies in the clip.
    fn part(&self, reference: &Reference<F>) -> Part;

    /// A key inside the clip that has about `bytes` of the file's part below it.
    fn key_at(&self, reference: &Reference<F>, bytes: u64) -> Option<Box<[u8]>>;

    /// A key that no tombstone of the clip is above; `None` if that is not known.
    fn tombstones_end(&self, reference: &Reference<F>) -> Option<Box<[u8]>>;

    /// True if a range tombstone hides entries of the part, which a merge would drop.
    fn wants_rewrite(&self, reference: &Reference<F>) -> bool;

    /// True if the file could be stored smaller.
    fn is_compressible(&self, reference: &Reference<F>) -> bool;
}

impl Job {
    /// True if nothing is read or written.
    pub(crate) fn is_join(&self) -> bool {
        self.reason == Reason::Clear
    }

    /// True if nothing of what lay over the run of `range` is left there.
    pub(crate) fn leaves_the_run_of<F: RangeFile>(&self, range: &Range<F>) -> bool {
        let is_all = self.below.is_none() && self.young.len() == range.young.len();
        is_all && self.placement == Placement::Run
    }

    /// True if everything that `range` has goes into its run.
    pub(crate) fn takes_all_of<F: RangeFile>(&self, range: &Range<F>) -> bool {
        let count = self.young.len() + self.run.len();
        let is_all = self.below.is_none() && count == range.references().count();
        is_all && self.placement == Placement::Run && !self.is_join()
    }
}

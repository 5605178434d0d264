//! The input and output of the compaction picker: limits, facts about files, and jobs. The files of
//! a range are its run, one sequence of files without overlap, and newer young files, which may
//! overlap the run and each other.
//!
//! `picker` picks the job; `facts` reads the facts from real files.

use crate::format::edit::Placement;
use crate::format::names::FileNumber;
use crate::model::Seq;
use crate::ranges::{Range, RangeFile, Reference};
pub(crate) use crate::sst::SstPart as Part;

use crate::lsm::read::load_sampling::Readers;

/// Bounds on the shape of a range's files and on jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The maximum number of sources (the run, and young files) that a read of one key may have to
    /// search.
    pub(crate) sources_max: usize,
    /// Files of the run below this size are eventually merged with their neighbours.
    pub(crate) run_file_bytes_min: u64,
    /// The size at which a job begins its next output file.
    pub(crate) run_file_bytes_max: u64,
    /// The maximum number of bytes that a job reads, unless its inputs cannot be cut at a key.
    pub(crate) job_bytes_max: u64,
    /// Tombstones are old once all commits of their file are at or below this Seq; merges then drop
    /// them where possible. Zero: no tombstone is old.
    pub(crate) aged_below: Seq,
    /// The Seq up to which all readers see the commits.
    pub(crate) seen_below: Seq,
    /// The newest range tombstone. When it changes, cached results about ranges become invalid.
    pub(crate) range_tombstone: Seq,
    /// The largest size of a flushed file.
    pub(crate) flush_bytes: u64,
    /// A run is at rest if its newest commit is at or below this Seq and no young file overlaps it.
    /// Zero: no run is at rest.
    pub(crate) rests_below: Seq,
    /// If not zero, the table is under FIFO eviction: files are merged only with neighbours in age,
    /// and only into files of at most this size in bytes.
    pub(crate) window_bytes: u64,
    /// A range with fewer bytes is merged only as a whole, because it shares files with its
    /// neighbours. Excepted are merges to free space that take several jobs.
    pub(crate) small_range_bytes: u64,
    pub(crate) activity: Activity,
}

/// Whether the database is written to. Determines how much a job may write to free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// There were recent commits. A job frees at least twice the bytes that it writes, because
    /// later jobs for other reasons may free the same bytes.
    Writing,
    /// There were no recent commits. A job writes at most eight times the bytes that it frees.
    Idle,
    /// As `Idle`, but the options prefer few writes to fast reads. A job frees more than it writes.
    IdleSparing,
}

impl Activity {
    /// Returns a figure for the benefit of a job that writes `written` bytes and thereby frees
    /// `freed` bytes. The job is worthwhile if the figure is positive.
    pub(crate) fn gain(self, freed: u64, written: u64) -> i128 {
        let (freed, written) = (i128::from(freed), i128::from(written));
        match self {
            Activity::Writing => freed - 2 * written,
            Activity::Idle => 8 * freed - written,
            Activity::IdleSparing => freed - written,
        }
    }
}

/// A merge of files of one range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) reason: Reason,
    /// Young inputs, newest first.
    pub(crate) young: Vec<FileNumber>,
    /// Inputs from the run, ascending.
    pub(crate) run: Vec<FileNumber>,
    /// The cut: inputs are merged only below this key. `None` if they are merged whole.
    pub(crate) below: Option<Box<[u8]>>,
    /// Where the output is placed.
    pub(crate) placement: Placement,
    /// The approximate number of bytes that the job reads.
    pub(crate) bytes: u64,
}

/// Why a job is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// The files overlap no other file, so an edit adds them to the run without rewriting them.
    Clear,
    /// Reads of some key must search more sources than the limit.
    Sources,
    /// A file contains entries that a range tombstone hides.
    RangeTombstone,
    /// A file has tombstones older than the limit.
    Age,
    /// A file is dense with tombstones.
    Tombstones,
    /// Young files have enough bytes compared to the run, or similar sizes.
    Size,
    /// Searching several files has cost readers as much as the merge costs.
    Reads,
    /// The merge frees much space: bytes of files that no range uses, or rows that range tombstones
    /// hide.
    Space,
    /// Neighbours in the run are small.
    Small,
    /// The range is at rest, so it is compressed.
    Rest,
    /// A caller requested the merge.
    Asked,
}

/// Answers the picker's questions about files. Answers are estimates that do not change while the
/// clip stays the same; only the read load may change at any time.
pub(crate) trait Facts<F: RangeFile> {
    /// Returns the read load of the range.
    fn readers(&self, range: &Range<F>) -> Readers;

    /// Returns how many of 1,000 entries of the young files hide an entry of the run. This is an
    /// estimate.
    fn hidden(&self, young: &[&Reference<F>], run: &[Reference<F>]) -> u64;

    /// True for a file that cannot be read completely. No job may use it as input.
    fn is_damaged(&self, reference: &Reference<F>) -> bool;

    /// Describes the part of the file inside the clip.
    fn part(&self, reference: &Reference<F>) -> Part;

    /// Returns about how many bytes of the file all ranges use. Equals the size of the file if no
    /// part of it is known to be unused.
    fn used(&self, reference: &Reference<F>) -> u64;

    /// Returns about how many bytes of the part range tombstones hide from all readers. If these
    /// hide only the older entries of a span, as by expiry, the bytes count from half of the part
    /// on.
    fn concealed(&self, reference: &Reference<F>) -> u64;

    /// True if a deletion frees enough space that, once writes end, all files of which it hides a
    /// part are rewritten, and the file is one of these.
    fn is_paid(&self, reference: &Reference<F>) -> bool;

    /// Returns a key inside the clip below which the part has about `bytes` bytes.
    fn key_at(&self, reference: &Reference<F>, bytes: u64) -> Option<Box<[u8]>>;

    /// Returns a key such that all tombstones inside the clip are below it, if such a key is known.
    fn tombstones_end(&self, reference: &Reference<F>) -> Option<Box<[u8]>>;

    /// True if range tombstones hide enough entries of the part that a merge should drop them.
    fn wants_rewrite(&self, reference: &Reference<F>) -> bool;

    /// True if compression could make the file smaller.
    fn is_compressible(&self, reference: &Reference<F>) -> bool;
}

impl Job {
    /// True if the job only changes references, and neither reads nor writes files.
    pub(crate) fn is_join(&self) -> bool {
        self.reason == Reason::Clear
    }

    /// True if after the job no young file overlaps the run of `range`.
    pub(crate) fn leaves_the_run_of<F: RangeFile>(&self, range: &Range<F>) -> bool {
        let is_all = self.below.is_none() && self.young.len() == range.young.len();
        is_all && self.placement == Placement::Run
    }

    /// True if the job merges all files of `range` into its run.
    pub(crate) fn takes_all_of<F: RangeFile>(&self, range: &Range<F>) -> bool {
        let count = self.young.len() + self.run.len();
        let is_all = self.below.is_none() && count == range.references().count();
        is_all && self.placement == Placement::Run && !self.is_join()
    }
}

//! Which files of a range to merge next: a pure function of the range and the limits.
//!
//! 1. A young file above the run that overlaps no other young file joins the run: an edit, no bytes.
//! 2. Young files whose bytes are at least half of what they overlap in the run merge into it, the more the better.
//! 3. Four generations of young files of similar size that are neighbours in age merge into one.
//! 4. Where a key would have more sources than the limit, the merge that is cheapest per source removed is forced.
//! 5. Many small neighbours in the run, which joins leave behind, become one file.
//!
//! Invariants
//! * a job's output is older or newer than every file it will overlap, as a whole;
//! * what goes into the run takes everything older that it overlaps with it, so that tombstones may go;
//! * while a job of the range runs, its inputs count as what they are, and only joins clear of it are picked.
//!
//! Why half, and why by four: `simulated_write_amplification_is_sane` below measures both.
//!
//! Not here: running a job (`job`), which range goes first (`background`).

use crate::format::edit::Placement;
use crate::format::names::{FileNumber, RangeId};
use crate::format::span::Span;
use crate::model::Seq;
use crate::planted::planted;
use crate::ranges::{Range, RangeFile, Reference};

/// What bounds a range's tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Files, the run's included, that a key may be looked for in.
    pub(crate) sources_max: usize,
    /// Files of the run smaller than this are merged with their neighbours in time.
    pub(crate) run_file_bytes_min: u64,
    /// The length at which a job begins its next output file.
    pub(crate) run_file_bytes_max: u64,
}

/// Young files merge among themselves this many at a time.
const MERGE_WIDTH: usize = 4;
/// So many small neighbours in the run become one.
const SMALL_NEIGHBOURS: usize = 8;

impl Default for Limits {
    fn default() -> Self {
        Self { sources_max: 8, run_file_bytes_min: 8 << 20, run_file_bytes_max: 64 << 20 }
    }
}

/// What to do to a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) range: RangeId,
    pub(crate) action: Action,
    /// Young inputs, newest first.
    pub(crate) young: Vec<FileNumber>,
    /// Inputs from the run, ascending.
    pub(crate) run: Vec<FileNumber>,
    /// Where the output goes.
    pub(crate) placement: Placement,
    /// No older source holds any key of the output: tombstones may go, as far as snapshots allow.
    pub(crate) drops_tombstones: bool,
    /// What is read.
    pub(crate) bytes: u64,
    /// Reads suffer until it is done.
    pub(crate) forced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The one young input moves to the run by an edit.
    Join,
    /// Inputs are read and merged into new files.
    Merge,
}

/// What to do to `range` next; `busy` tells the inputs of running jobs.
pub(crate) fn pick<F: RangeFile>(
    range: &Range<F>,
    busy: impl Fn(FileNumber) -> bool,
    limits: &Limits,
) -> Option<Job> {
    let busy = bounds(range.references().map(|(_, r)| r).filter(|r| busy(r.file.number())));
    let picker = Picker::new(range);
    if let Some(job) = picker.join(busy.as_ref()) {
        return Some(job);
    }
    if busy.is_some() {
        return None;
    }
    let into_run = picker.run_candidates();
    let by_four = picker.windows(MERGE_WIDTH..=MERGE_WIDTH);
    let worthwhile = into_run.iter().filter(|c| picker.is_worthwhile(c));
    if let Some(candidate) = worthwhile.max_by_key(|candidate| candidate.young.len()) {
        return Some(picker.job(candidate, false));
    }
    let similar = by_four.iter().filter(|candidate| picker.is_similar(candidate));
    if let Some(candidate) = similar.min_by_key(|candidate| picker.bytes(candidate)) {
        return Some(picker.job(candidate, false));
    }
    if picker.depth() + usize::from(!range.run.is_empty()) > limits.sources_max {
        let windows = picker.windows(2..=range.young.len());
        let all = into_run.iter().chain(&windows);
        let cheapest = all.min_by_key(|candidate| picker.cost_per_source(candidate));
        return cheapest.map(|candidate| picker.job(candidate, true));
    }
    picker.small_neighbours(limits).map(|candidate| picker.job(&candidate, false))
}

impl Job {
    /// True if nothing is read or written.
    pub(crate) fn is_join(&self) -> bool {
        self.action == Action::Join
    }

    /// Everything of `range` into its run; `None` if that is so already.
    pub(crate) fn whole<F: RangeFile>(range: &Range<F>) -> Option<Job> {
        if range.young.is_empty() && range.run.is_empty() {
            return None;
        }
        let numbers = |files: &[Reference<F>]| files.iter().map(|r| r.file.number()).collect();
        Some(Job {
            range: range.id,
            action: Action::Merge,
            young: numbers(&range.young),
            run: numbers(&range.run),
            placement: Placement::Run,
            drops_tombstones: true,
            bytes: range.references().map(|(_, r)| r.file.bytes()).sum(),
            forced: false,
        })
    }
}

/// Files that could be merged: positions in the range's lists.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    /// Ascending: newest first.
    young: Vec<usize>,
    run: std::ops::Range<usize>,
    placement: Placement,
}

struct Picker<'a, F> {
    range: &'a Range<F>,
    /// Of each young file: files whose Seqs interlace, such as the outputs of one job, are one generation.
    generations: Vec<usize>,
}

impl<'r, F: RangeFile> Picker<'r, F> {
    fn new(range: &'r Range<F>) -> Self {
        let mut generations = Vec::with_capacity(range.young.len());
        let (mut generation, mut oldest) = (0, Seq::MAX);
        for reference in &range.young {
            let (seq_min, seq_max) = reference.file.seqs();
            if seq_max < oldest {
                generation += 1;
            }
            oldest = oldest.min(seq_min);
            generations.push(generation);
        }
        Self { range, generations }
    }

    /// A young file wholly above the run, clear of all other young files and of running jobs.
    fn join(&self, busy: Option<&Bounds>) -> Option<Job> {
        let young = &self.range.young;
        let above = |r: &Reference<F>| {
            self.range.run.last().is_none_or(|last| last.clip.ends_before(&r.clip.low))
        };
        let alone = |i: usize, r: &Reference<F>| {
            let others = young.iter().enumerate().filter(|(j, _)| *j != i);
            others.into_iter().all(|(_, other)| !other.clip.overlaps(&r.clip))
        };
        let clear = |r: &Reference<F>| busy.is_none_or(|busy| !busy.span.overlaps(&r.clip));
        // The oldest first: the others may follow.
        let found = (0..young.len()).rev().find(|i| {
            let reference = &young[*i];
            above(reference) && clear(reference) && alone(*i, reference)
        })?;
        Some(Job {
            range: self.range.id,
            action: Action::Join,
            young: vec![young[found].file.number()],
            run: Vec::new(),
            placement: Placement::Run,
            drops_tombstones: false,
            bytes: 0,
            forced: false,
        })
    }

    /// What could go into the run: the oldest young files and each alone, with all that must go with them.
    fn run_candidates(&self) -> Vec<Candidate> {
        let count = self.range.young.len();
        let suffixes = (0..count).map(|from| (from..count).collect());
        let singles = (0..count).map(|i| vec![i]);
        let mut candidates: Vec<Candidate> = Vec::new();
        for young in suffixes.chain(singles) {
            let candidate = self.close(young, 0..0);
            if !candidates.contains(&candidate) {
                candidates.push(candidate);
            }
        }
        candidates
    }

    /// Adds whatever the output would overlap and that is not newer as a whole, until nothing is missing.
    fn close(&self, mut young: Vec<usize>, mut run: std::ops::Range<usize>) -> Candidate {
        while let Some(bounds) = bounds(self.inputs(&young, &run)) {
            let overlapped = self.run_positions(&bounds.span);
            let overlapped = if planted!("merge-leaves-run-files") { 0..0 } else { overlapped };
            let missing: Vec<usize> = (0..self.range.young.len())
                .filter(|i| !young.contains(i))
                .filter(|i| {
                    let other = &self.range.young[*i];
                    other.clip.overlaps(&bounds.span) && other.file.seqs().0 <= bounds.seq_max
                })
                .collect();
            if missing.is_empty() && overlapped == run {
                break;
            }
            young.extend(missing);
            run = overlapped;
        }
        young.sort_unstable();
        Candidate { young, run, placement: Placement::Run }
    }

    /// Young files that overlap one another and are neighbours in age, `widths` generations at a time.
    fn windows(&self, widths: std::ops::RangeInclusive<usize>) -> Vec<Candidate> {
        let young = &self.range.young;
        let mut candidates: Vec<Candidate> = Vec::new();
        for seed in young {
            let overlapping: Vec<usize> =
                (0..young.len()).filter(|i| young[*i].clip.overlaps(&seed.clip)).collect();
            let mut generations: Vec<usize> =
                overlapping.iter().map(|i| self.generations[*i]).collect();
            generations.dedup();
            for width in widths.clone() {
                for window in generations.windows(width) {
                    let chosen = overlapping.iter().copied();
                    let chosen = chosen.filter(|i| window.contains(&self.generations[*i]));
                    let candidate = self.close_young(chosen.collect());
                    if self.stays_ordered(&candidate) && !candidates.contains(&candidate) {
                        candidates.push(candidate);
                    }
                }
            }
        }
        candidates
    }

    /// Adds the young files that the output would overlap in keys and Seqs, until none is missing.
    fn close_young(&self, mut young: Vec<usize>) -> Candidate {
        while let Some(bounds) = bounds(self.inputs(&young, &(0..0))) {
            let before = young.len();
            for (i, other) in self.range.young.iter().enumerate() {
                let (seq_min, seq_max) = other.file.seqs();
                let between = seq_min <= bounds.seq_max && bounds.seq_min <= seq_max;
                if between && other.clip.overlaps(&bounds.span) && !young.contains(&i) {
                    young.push(i);
                }
            }
            if young.len() == before {
                break;
            }
        }
        young.sort_unstable();
        Candidate { young, run: 0..0, placement: Placement::Young }
    }

    /// True if the one output is older or newer than every other file it overlaps.
    fn stays_ordered(&self, candidate: &Candidate) -> bool {
        let Some(bounds) = bounds(self.inputs(&candidate.young, &candidate.run)) else {
            return false;
        };
        let young = self.range.young.iter().enumerate();
        let others = young
            .filter(|(i, other)| !candidate.young.contains(i) && other.clip.overlaps(&bounds.span));
        let disjoint = |other: &Reference<F>| {
            let (seq_min, seq_max) = other.file.seqs();
            seq_max < bounds.seq_min || seq_min > bounds.seq_max
        };
        let above_run = |run: &Reference<F>| run.file.seqs().1 < bounds.seq_min;
        let run = self.range.run_in(&bounds.span);
        others.into_iter().all(|(_, other)| disjoint(other)) && run.iter().all(above_run)
    }

    /// At least half as large as what it overlaps.
    fn is_worthwhile(&self, candidate: &Candidate) -> bool {
        let overlapped = self.range.run[candidate.run.clone()].iter();
        let overlapped: u64 = overlapped.map(|r| r.file.bytes()).sum();
        (self.bytes(candidate) - overlapped).saturating_mul(2) >= overlapped
    }

    /// No generation makes up more than half.
    fn is_similar(&self, candidate: &Candidate) -> bool {
        let bytes_of = |generation: usize| -> u64 {
            let members = candidate.young.iter().filter(|i| self.generations[**i] == generation);
            members.map(|i| self.range.young[*i].file.bytes()).sum()
        };
        let generations = candidate.young.iter().map(|i| self.generations[*i]);
        let largest = generations.map(bytes_of).max().unwrap_or_default();
        largest.saturating_mul(2) <= self.bytes(candidate)
    }

    fn cost_per_source(&self, candidate: &Candidate) -> u64 {
        let sources = candidate.young.len() + usize::from(!candidate.run.is_empty());
        self.bytes(candidate) / (sources as u64).saturating_sub(1).max(1)
    }

    /// The most young files that hold one key.
    fn depth(&self) -> usize {
        let young = &self.range.young;
        let at = |key: &[u8]| young.iter().filter(|r| r.clip.contains(key)).count();
        young.iter().map(|r| at(&r.clip.low)).max().unwrap_or_default()
    }

    /// The first stretch of the run that consists of small files.
    fn small_neighbours(&self, limits: &Limits) -> Option<Candidate> {
        let is_small = |r: &Reference<F>| r.file.bytes() < limits.run_file_bytes_min / 2;
        let mut from = 0;
        for (i, reference) in self.range.run.iter().enumerate() {
            if !is_small(reference) {
                from = i + 1;
            } else if i + 1 - from == SMALL_NEIGHBOURS {
                let candidate = self.close(Vec::new(), from..i + 1);
                // They are merged for themselves, not to drag young files in.
                let becomes_one = self.bytes(&candidate) <= limits.run_file_bytes_max;
                return (candidate.young.is_empty() && becomes_one).then_some(candidate);
            }
        }
        None
    }

    fn inputs<'a>(
        &'a self,
        young: &'a [usize],
        run: &'a std::ops::Range<usize>,
    ) -> impl Iterator<Item = &'a Reference<F>> {
        let young = young.iter().map(|i| &self.range.young[*i]);
        young.chain(&self.range.run[run.clone()])
    }

    fn bytes(&self, candidate: &Candidate) -> u64 {
        self.inputs(&candidate.young, &candidate.run).map(|r| r.file.bytes()).sum()
    }

    fn run_positions(&self, span: &Span) -> std::ops::Range<usize> {
        let run = &self.range.run;
        let from = run.partition_point(|reference| reference.clip.ends_before(&span.low));
        let len = self.range.run_in(span).len();
        if len == 0 { 0..0 } else { from..from + len }
    }

    fn job(&self, candidate: &Candidate, forced: bool) -> Job {
        let number = |reference: &Reference<F>| reference.file.number();
        Job {
            range: self.range.id,
            action: Action::Merge,
            young: candidate.young.iter().map(|i| number(&self.range.young[*i])).collect(),
            run: self.range.run[candidate.run.clone()].iter().map(number).collect(),
            placement: candidate.placement,
            drops_tombstones: candidate.placement == Placement::Run,
            bytes: self.bytes(candidate),
            forced,
        }
    }
}

/// What files cover together.
struct Bounds {
    span: Span,
    seq_min: Seq,
    seq_max: Seq,
}

fn bounds<'a, F: RangeFile + 'a>(
    references: impl Iterator<Item = &'a Reference<F>>,
) -> Option<Bounds> {
    references.fold(None, |bounds: Option<Bounds>, reference| {
        let (seq_min, seq_max) = reference.file.seqs();
        let clip = &reference.clip;
        Some(match bounds {
            None => Bounds { span: clip.clone(), seq_min, seq_max },
            Some(mut b) => {
                b.seq_min = b.seq_min.min(seq_min);
                b.seq_max = b.seq_max.max(seq_max);
                if clip.low < b.span.low {
                    b.span.low = clip.low.clone();
                }
                if b.span.high.is_some() && !b.span.covers(clip) {
                    b.span.high.clone_from(&clip.high);
                }
                b
            }
        })
    })
}

#[cfg(test)]
mod tests;

//! Finds candidates for a merge. Computes which files must be merged together, so that the order of
//! versions is kept, and how much the merge costs.

use crate::format::edit::Placement;
use crate::format::span::Span;
use crate::model::Seq;
use crate::ranges::{Range, RangeFile, Reference};
use crate::sort::sort_by;

use super::super::plan::{Facts, Job, Limits, Part, Reason};

/// Files that could be merged, as indexes into the range's lists of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Indexes into the list of young files, ascending, so the newest file is first.
    pub(super) young: Vec<usize>,
    pub(super) run: std::ops::Range<usize>,
    pub(super) placement: Placement,
}

/// A range with the facts about its files.
pub(super) struct Picker<'a, F, A> {
    pub(super) range: &'a Range<F>,
    pub(super) facts: &'a A,
    pub(super) limits: &'a Limits,
    pub(super) young_parts: Vec<Part>,
    pub(super) run_parts: Vec<Part>,
}

/// The keys and Seqs that several files cover.
pub(super) struct Bounds {
    pub(super) span: Span,
    seq_min: Seq,
    seq_max: Seq,
}

impl<'r, F: RangeFile + Clone, A: Facts<F>> Picker<'r, F, A> {
    pub(super) fn new(range: &'r Range<F>, facts: &'r A, limits: &'r Limits) -> Self {
        let part = |r: &Reference<F>| {
            let part = facts.part(r);
            Part { bytes: part.bytes.min(r.file.bytes()), ..part }
        };
        let parts = |files: &[Reference<F>]| files.iter().map(part).collect();
        let (young_parts, run_parts) = (parts(&range.young), parts(&range.run));
        Self { range, facts, limits, young_parts, run_parts }
    }

    /// Returns the candidates for a merge into the run: for each n the n oldest young files, and
    /// each young file alone, always with all files that must be merged together with them.
    pub(super) fn run_candidates(&self) -> Vec<Candidate> {
        let count = self.range.young.len();
        let suffixes = (0..count).map(|from| (from..count).collect());
        let singles = (0..count).map(|i| vec![i]);
        let mut candidates: Vec<Candidate> = Vec::new();
        for young in suffixes.chain(singles) {
            let candidate = self.close(young, 0..0);
            if self.is_sound(&candidate) && !candidates.contains(&candidate) {
                candidates.push(candidate);
            }
        }
        candidates
    }

    /// Adds every file that overlaps the output, unless all entries of the file are newer than
    /// those of the output. Repeats this until no more file must be added.
    pub(super) fn close(
        &self,
        mut young: Vec<usize>,
        mut run: std::ops::Range<usize>,
    ) -> Candidate {
        while let Some(bounds) = bounds(self.inputs(&young, &run)) {
            let overlapped = self.run_positions(&bounds.span);
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
        sort_by(&mut young, Ord::cmp);
        debug_assert!(young.is_sorted_by(|a, b| a < b), "a file is an input once");
        Candidate { young, run, placement: Placement::Run }
    }

    /// Returns the windows that can be merged. A window is a set of overlapping young files that
    /// are neighbours in age. The number of generations in each window is in the range `widths`.
    pub(super) fn windows(&self, widths: std::ops::RangeInclusive<usize>) -> Vec<Candidate> {
        let young = &self.range.young;
        let mut candidates: Vec<Candidate> = Vec::new();
        for seed in young {
            let overlapping: Vec<usize> =
                (0..young.len()).filter(|i| young[*i].clip.overlaps(&seed.clip)).collect();
            let of_each = self.generations(&overlapping);
            let mut generations = of_each.clone();
            generations.dedup();
            for width in widths.clone() {
                for window in generations.windows(width) {
                    let chosen = overlapping.iter().zip(&of_each);
                    let chosen = chosen.filter(|(_, generation)| window.contains(generation));
                    let candidate = self.close_young(chosen.map(|(i, _)| *i).collect());
                    let is_possible = self.stays_ordered(&candidate) && self.is_sound(&candidate);
                    if is_possible && !candidates.contains(&candidate) {
                        candidates.push(candidate);
                    }
                }
            }
        }
        candidates
    }

    /// Returns the generation of each file of `young`. Files with interleaved Seqs, such as the
    /// outputs of one job, share a generation. All files in `young` must overlap each other.
    /// Otherwise the Seqs need not show which file is older, for example for the output of a cut
    /// job and the remainders of its inputs.
    fn generations(&self, young: &[usize]) -> Vec<usize> {
        let (mut generation, mut oldest) = (0, Seq::MAX);
        let next = |i: &usize| {
            let (seq_min, seq_max) = self.range.young[*i].file.seqs();
            if seq_max < oldest {
                generation += 1;
            }
            oldest = oldest.min(seq_min);
            generation
        };
        young.iter().map(next).collect()
    }

    /// Adds the young files that the output would overlap in both keys and Seqs. Repeats this until
    /// no more file must be added.
    pub(super) fn close_young(&self, mut young: Vec<usize>) -> Candidate {
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
        sort_by(&mut young, Ord::cmp);
        debug_assert!(young.is_sorted_by(|a, b| a < b), "a file is an input once");
        Candidate { young, run: 0..0, placement: Placement::Young }
    }

    /// True if no file of the candidate is damaged. A merge that reads a damaged file would fail.
    pub(super) fn is_sound(&self, candidate: &Candidate) -> bool {
        !self.inputs(&candidate.young, &candidate.run).any(|file| self.facts.is_damaged(file))
    }

    /// True if every other file that the output overlaps is either older or newer than the whole
    /// output.
    pub(super) fn stays_ordered(&self, candidate: &Candidate) -> bool {
        let Some(bounds) = bounds(self.inputs(&candidate.young, &candidate.run)) else {
            return false;
        };
        let young = self.range.young.iter().enumerate();
        let mut others = young
            .filter(|(i, other)| !candidate.young.contains(i) && other.clip.overlaps(&bounds.span));
        let disjoint = |other: &Reference<F>| {
            let (seq_min, seq_max) = other.file.seqs();
            seq_max < bounds.seq_min || seq_min > bounds.seq_max
        };
        let above_run = |run: &Reference<F>| run.file.seqs().1 < bounds.seq_min;
        let run = self.range.run_in(&bounds.span);
        others.all(|(_, other)| disjoint(other)) && run.iter().all(above_run)
    }

    /// True if the young files have at least 1/`parts` as many bytes as the files of the run that
    /// they overlap.
    pub(super) fn is_part(&self, candidate: &Candidate, parts: u64) -> bool {
        let overlapped = self.run_bytes(candidate);
        (self.bytes(candidate) - overlapped).saturating_mul(parts) >= overlapped
    }

    /// True if the young files hide at least half of the bytes that they overlap in the run.
    pub(super) fn is_wasteful(&self, candidate: &Candidate) -> bool {
        let overlapped = self.run_bytes(candidate);
        let young: Vec<&Reference<F>> = self.inputs(&candidate.young, &(0..0)).collect();
        let hidden = self.facts.hidden(&young, &self.range.run[candidate.run.clone()]);
        let bytes = u128::from(self.bytes(candidate) - overlapped) * u128::from(hidden) / 1_000;
        bytes * 2 >= u128::from(overlapped)
    }

    /// True if no generation has more than half of the candidate's bytes.
    pub(super) fn is_similar(&self, candidate: &Candidate) -> bool {
        let generations = self.generations(&candidate.young);
        let bytes_of = |generation: usize| -> u64 {
            let members = candidate.young.iter().zip(&generations);
            let members = members.filter(|(_, of)| **of == generation);
            members.map(|(i, _)| self.young_parts[*i].bytes).sum()
        };
        let largest = generations.iter().map(|of| bytes_of(*of)).max().unwrap_or_default();
        largest.saturating_mul(2) <= self.bytes(candidate)
    }

    pub(super) fn cost_per_source(&self, candidate: &Candidate) -> u64 {
        self.bytes(candidate) / removed(candidate)
    }

    /// Returns the cost of the candidate, for a range whose merges are delayed until a key has as
    /// many sources as the limit. The cost is the number of bytes divided by the square of the
    /// number of removed sources, scaled. The square favours merges that remove more sources,
    /// because then it takes longer to reach the limit again. Without the square, the two newest
    /// files would be merged again and again.
    pub(super) fn cost_of_room(&self, candidate: &Candidate) -> u64 {
        let removed = removed(candidate);
        self.bytes(candidate).saturating_mul(1 << 10) / removed.saturating_mul(removed)
    }

    pub(super) fn inputs<'a>(
        &'a self,
        young: &'a [usize],
        run: &'a std::ops::Range<usize>,
    ) -> impl Iterator<Item = &'a Reference<F>> {
        young.iter().map(|i| &self.range.young[*i]).chain(&self.range.run[run.clone()])
    }

    pub(super) fn bytes(&self, candidate: &Candidate) -> u64 {
        let young: u64 = candidate.young.iter().map(|i| self.young_parts[*i].bytes).sum();
        young + self.run_bytes(candidate)
    }

    fn run_bytes(&self, candidate: &Candidate) -> u64 {
        self.run_parts[candidate.run.clone()].iter().map(|part| part.bytes).sum()
    }

    fn run_positions(&self, span: &Span) -> std::ops::Range<usize> {
        let run = &self.range.run;
        let from = run.partition_point(|reference| reference.clip.ends_before(&span.low));
        let len = self.range.run_in(span).len();
        if len == 0 { 0..0 } else { from..from + len }
    }

    /// Returns the job that merges `candidate`, cut at a key if the job would otherwise read too
    /// much.
    pub(super) fn job(&self, candidate: &Candidate, reason: Reason) -> Job {
        self.cut_job(candidate, reason, self.cut(candidate))
    }

    /// Returns the job that merges `candidate` up to the key `below`, or all of it if `below` is
    /// `None`.
    pub(super) fn cut_job(
        &self,
        candidate: &Candidate,
        reason: Reason,
        below: Option<Box<[u8]>>,
    ) -> Job {
        let has_input = !(candidate.young.is_empty() && candidate.run.is_empty());
        debug_assert!(has_input, "a job has an input");
        let is_below = |r: &&Reference<F>| below.as_ref().is_none_or(|key| r.clip.low < *key);
        let number = |reference: &Reference<F>| reference.file.number();
        let young = candidate.young.iter().map(|i| &self.range.young[*i]).filter(is_below);
        let run = self.range.run[candidate.run.clone()].iter().filter(is_below);
        let bytes = below.as_ref().map(|key| self.bytes_below(candidate, key));
        Job {
            reason,
            young: young.map(number).collect(),
            run: run.map(number).collect(),
            bytes: bytes.unwrap_or_else(|| self.bytes(candidate)),
            below,
            placement: candidate.placement,
        }
    }
}

/// Returns how many sources the merge removes, at least 1.
fn removed(candidate: &Candidate) -> u64 {
    let sources = candidate.young.len() + usize::from(!candidate.run.is_empty());
    (sources as u64).saturating_sub(1).max(1)
}

pub(super) fn bounds<'a, F: RangeFile + 'a>(
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

//! Finds merges that free space: bytes of files that no range uses any more, and rows that range
//! tombstones hide. Both exist while some range references the file.
//!
//! Invariants
//! * A job for unused bytes replaces its inputs by files without unused bytes, and a job for hidden
//!   rows applies the range tombstones. So no job is picked twice for the same bytes.

use std::ops::Range;

use crate::model::Seq;
use crate::ranges::{RangeFile, Reference};

use super::super::plan::{Activity, Facts, Job, Part, Reason};
use super::candidate::{Candidate, Picker};

/// The bytes that a merge of one part of a file frees.
#[derive(Clone, Copy, Default)]
struct Freed {
    /// The share of the file's unused bytes. The ranges that use the file share these bytes in
    /// proportion to their parts.
    unused: u64,
    /// The bytes of the part that the merge drops.
    hidden: u64,
    /// The bytes that the merge writes, if a deletion pays for them (see `Facts::is_paid`).
    paid: u64,
}

impl Freed {
    fn bytes(self) -> u64 {
        self.unused.saturating_add(self.hidden)
    }
}

impl<F: RangeFile + Clone, A: Facts<F>> Picker<'_, F, A> {
    /// Returns the merge that frees the most space compared with the bytes that it writes.
    /// `into_run` lists candidates for a merge into the run. Once writes end, a young file may also
    /// be rewritten in its place; before, a merge for another reason may soon include the file. A
    /// small range is merged as a whole, unless this takes several jobs.
    pub(super) fn space(&self, into_run: &[Candidate]) -> Option<Job> {
        let all = self.freed();
        if all.iter().all(|freed| freed.bytes() == 0) {
            return None;
        }
        if self.range.bytes() < self.limits.small_range_bytes {
            let young = (0..self.range.young.len()).collect();
            let whole = self.close(young, 0..self.range.run.len());
            // The first part of a cut job might contain only files of the run without unused bytes,
            // and these would be rewritten again and again.
            if self.cut(&whole).is_none() {
                return self.best(&all, vec![whole]);
            }
        }
        let mut candidates = Vec::new();
        let (young, run) = all.split_at(self.range.young.len());
        if self.limits.activity != Activity::Writing {
            let young = (0..young.len()).filter(|i| young[*i].bytes() > 0);
            let in_place = young.map(|i| self.close_young(vec![i]));
            candidates.extend(in_place.filter(|candidate| self.stays_ordered(candidate)));
        }
        // Of equal candidates `best` takes the last: here a merge into the run.
        candidates.extend_from_slice(into_run);
        let mut from = 0;
        for files in run.chunk_by(|a, b| (a.bytes() > 0) == (b.bytes() > 0)) {
            let places = from..from + files.len();
            from = places.end;
            if files[0].bytes() == 0 {
                continue;
            }
            let whole = self.close(Vec::new(), places.clone());
            match self.gain(&all, &whole).0 > 0 {
                true => candidates.push(whole),
                false => candidates.extend(places.map(|at| self.close(Vec::new(), at..at + 1))),
            }
        }
        self.best(&all, candidates)
    }

    /// Returns the share of the unused bytes of a file that a merge of `part`, the part inside the
    /// clip of `reference`, frees.
    pub(super) fn unused(&self, reference: &Reference<F>, part: &Part) -> u64 {
        let (bytes, used) = (reference.file.bytes(), self.facts.used(reference));
        let unused = u128::from(bytes.saturating_sub(used)) * u128::from(part.bytes);
        u64::try_from(unused / u128::from(used.max(1))).unwrap_or(u64::MAX)
    }

    /// Returns the bytes that merges of the young files and of the files of the run free.
    ///
    /// Hidden rows of a file that other ranges use, too, are freed only after these ranges have
    /// rewritten their parts. So the hidden rows count only if it is worthwhile to rewrite all
    /// parts. It then remains worthwhile for the other ranges, because the first merge leaves
    /// further bytes of the file unused.
    fn freed(&self) -> Vec<Freed> {
        let limits = self.limits;
        let drops = limits.activity != Activity::Writing && limits.range_tombstone > Seq::ZERO;
        let references = self.range.references().map(|(_, reference)| reference);
        let parts = references.zip(self.young_parts.iter().chain(&self.run_parts));
        let freed = |(reference, part): (&Reference<F>, &Part)| {
            let unused = self.unused(reference, part);
            let hidden = if drops { self.facts.concealed(reference).min(part.bytes) } else { 0 };
            let (bytes, used) = (reference.file.bytes(), self.facts.used(reference));
            let all = bytes.saturating_sub(used).saturating_add(hidden);
            let is_paid = limits.activity == Activity::Idle && self.facts.is_paid(reference);
            let counts = is_paid
                || used <= part.bytes
                || limits.activity.gain(all, used.saturating_sub(hidden)) > 0;
            let hidden = if counts { hidden } else { 0 };
            let paid = if is_paid { part.bytes - hidden } else { 0 };
            Freed { unused, hidden, paid }
        };
        parts.map(freed).collect()
    }

    /// Returns the benefit of a merge (see `Activity::gain`), and the bytes that it writes and that
    /// deletions pay for.
    fn gain(&self, all: &[Freed], candidate: &Candidate) -> (i128, u64) {
        let first = self.range.young.len();
        let run: Range<usize> = first + candidate.run.start..first + candidate.run.end;
        let inputs = candidate.young.iter().copied().chain(run);
        let freed = inputs.fold(Freed::default(), |sum, at| Freed {
            unused: sum.unused.saturating_add(all[at].unused),
            hidden: sum.hidden.saturating_add(all[at].hidden),
            paid: sum.paid.saturating_add(all[at].paid),
        });
        let written = self.bytes(candidate).saturating_sub(freed.hidden);
        (self.limits.activity.gain(freed.bytes(), written), freed.paid)
    }

    /// Returns the merge with the greatest benefit. The benefit may be negative if deletions pay
    /// for the merge.
    fn best(&self, all: &[Freed], candidates: Vec<Candidate>) -> Option<Job> {
        let gains = candidates.into_iter().map(|candidate| (self.gain(all, &candidate), candidate));
        let worthwhile = gains.filter(|((gain, paid), _)| *gain + i128::from(*paid) > 0);
        let sound = worthwhile.filter(|(_, candidate)| self.is_sound(candidate));
        let (_, best) = sound.max_by_key(|((gain, _), _)| *gain)?;
        Some(self.job(&best, Reason::Space))
    }
}

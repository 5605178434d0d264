//! Finds the key at which to cut a job that would otherwise read too much. A cut job merges only
//! the part of its inputs below that key.
//!
//! Invariants
//! * Inputs have keys on both sides of the cut, so every cut job makes progress and leaves a
//!   remainder.

use crate::format::span::Span;
use crate::ranges::{RangeFile, Reference};

use super::super::plan::Facts;
use super::candidate::{Candidate, Picker, bounds};

impl<F: RangeFile + Clone, A: Facts<F>> Picker<'_, F, A> {
    /// Returns the key at which to cut a merge of `candidate`, or `None` if it need not be cut. The
    /// key is the first of these that exists:
    ///
    /// 1. The last boundary between files of the run below which the job reads at most
    ///    `job_bytes_max`. Files of the run below this boundary then have no remainder.
    /// 2. The first boundary, if the job reads at most twice `job_bytes_max` below it.
    /// 3. A key from the index of an input.
    pub(super) fn cut(&self, candidate: &Candidate) -> Option<Box<[u8]>> {
        let (bytes, most) = (self.bytes(candidate), self.limits.job_bytes_max);
        if bytes <= most {
            return None;
        }
        let run = &self.range.run[candidate.run.clone()];
        let boundaries =
            run.iter().map(|r| &r.clip.low).filter(|key| self.is_inside(candidate, key));
        let mut found = None;
        for key in boundaries {
            let below = self.bytes_below(candidate, key);
            let is_first = found.is_none();
            if below > most && !(is_first && below <= most.saturating_mul(2)) {
                break;
            }
            found = Some(key.clone());
            if below > most {
                break;
            }
        }
        found.or_else(|| self.key_of_index(candidate, bytes))
    }

    /// Chooses a key from an input's index. Each input proposes the key below which it has its
    /// share of `job_bytes_max`. Below the smallest proposed key, no input exceeds its share, so
    /// the job is not too long. The largest proposed key at which the job is not too long is
    /// chosen.
    fn key_of_index(&self, candidate: &Candidate, bytes: u64) -> Option<Box<[u8]>> {
        let most = self.limits.job_bytes_max;
        let young = candidate.young.iter().map(|i| (&self.range.young[*i], &self.young_parts[*i]));
        // Of the run, only the first file proposes a key, because the boundary after it is already
        // too far.
        let run = candidate.run.clone().take(1);
        let run = run.map(|i| (&self.range.run[i], &self.run_parts[i]));
        let keys = young.chain(run).filter_map(|(reference, part)| {
            let share = u128::from(part.bytes) * u128::from(most) / u128::from(bytes.max(1));
            self.facts.key_at(reference, u64::try_from(share).unwrap_or(u64::MAX))
        });
        let keys = keys.filter(|key| self.is_inside(candidate, key));
        let keys: Vec<_> = keys.map(|key| (self.bytes_below(candidate, &key), key)).collect();
        let fits = keys.iter().filter(|(below, _)| *below <= most).max();
        fits.or_else(|| keys.iter().min()).map(|(_, key)| key.clone())
    }

    /// True if inputs have keys on both sides of `key`.
    pub(super) fn is_inside(&self, candidate: &Candidate, key: &[u8]) -> bool {
        let bounds = bounds(self.inputs(&candidate.young, &candidate.run));
        bounds.is_some_and(|bounds| *bounds.span.low < *key && bounds.span.contains(key))
    }

    /// Returns about how many bytes a merge of `candidate` below `key` reads.
    pub(super) fn bytes_below(&self, candidate: &Candidate, key: &[u8]) -> u64 {
        let below = Span::new(&[], Some(key));
        let bytes_of = |reference: &Reference<F>, whole: u64| {
            if reference.clip.ends_before(key) {
                return whole;
            }
            let Some(clip) = reference.clip.intersect(&below) else { return 0 };
            self.facts.part(&Reference::new(reference.file.clone(), clip, None)).bytes
        };
        let young = candidate.young.iter();
        let young = young.map(|i| bytes_of(&self.range.young[*i], self.young_parts[*i].bytes));
        let run = candidate.run.clone();
        young.chain(run.map(|i| bytes_of(&self.range.run[i], self.run_parts[i].bytes))).sum()
    }
}

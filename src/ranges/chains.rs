//! Combines the references (files, or parts of files) that a scan reads into chains. The files of a
//! chain are read one after another, as one source of the scan. So a scan over a thousand ranges
//! has no more files open at a time than a scan over the range that needs the most chains.
//!
//! Invariants
//! * the references of a chain ascend and do not overlap;
//! * of two overlapping references, the newer is in the earlier chain. So an entry can be hidden
//!   only by entries of earlier chains;
//! * the sorted runs of all ranges together are the last chain.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::format::span::Span;
use crate::sort::sort_by;

use super::{Range, RangeFile, Reference};

/// The references to files that are read one after another. For a short span there is usually one.
pub(crate) type Chain<F> = SmallVec<[Reference<F>; 1]>;

/// A list that is stored without an allocation up to eight elements.
type Few<T> = SmallVec<[T; 8]>;

/// A reference that may contain keys of the span being read.
struct Inside<'r, F> {
    reference: &'r Reference<F>,
    /// True if the reference covers the whole span being read. It then overlaps every other
    /// reference.
    is_whole: bool,
}

/// Combines into chains the references of `ranges` that may contain keys of `span` and for which
/// `sees` returns true. `ranges` must ascend.
pub(crate) fn chains<F: RangeFile + Clone>(
    ranges: &[Arc<Range<F>>],
    span: &Span,
    sees: impl Fn(&Reference<F>) -> bool,
) -> Vec<Chain<F>> {
    let ascend = |a: &Arc<Range<F>>, b: &Arc<Range<F>>| a.span.ends_before(&b.span.low);
    debug_assert!(ranges.is_sorted_by(ascend), "ranges ascend and are disjoint");
    let mut chains: Vec<Chain<F>> = Vec::new();
    let mut run = Chain::new();
    for range in ranges {
        let inside: Few<Inside<'_, F>> = range
            .young
            .iter()
            .filter(|r| r.clip.overlaps(span) && sees(r))
            .map(|r| Inside::of(r, span))
            .collect();
        let levels = levels(&inside);
        let deepest = levels.iter().max().map_or(0, |level| level + 1);
        chains.reserve(deepest.saturating_sub(chains.len()) + 1);
        chains.resize_with(deepest.max(chains.len()), Chain::new);
        // The references of a chain must ascend. If all references cover the whole span, each is
        // alone in its chain, so they need no sorting.
        let mut order: Few<usize> = (0..inside.len()).collect();
        if !inside.iter().all(|inside| inside.is_whole) {
            sort_by(&mut order, |a, b| {
                inside[*a].reference.clip.low.cmp(&inside[*b].reference.clip.low)
            });
        }
        for i in order {
            chains[levels[i]].push(within(&inside[i]));
        }
        let of_run = range.run_in(span).iter().filter(|r| sees(r));
        run.extend(of_run.map(|r| within(&Inside::of(r, span))));
    }
    if !run.is_empty() {
        chains.push(run);
    }
    let ascend = |a: &Reference<F>, b: &Reference<F>| a.clip.ends_before(&b.clip.low);
    let is_chain = |chain: &Chain<F>| chain.is_sorted_by(ascend);
    debug_assert!(chains.iter().all(is_chain), "the files of a chain are disjoint");
    chains
}

/// Returns the reference that a scan of the span uses. If the clip (the part of the file that
/// belongs to the range) covers the whole span, the result has no clip.
fn within<F: RangeFile + Clone>(inside: &Inside<'_, F>) -> Reference<F> {
    let Inside { reference, is_whole } = *inside;
    let clip = if is_whole { Span::all() } else { reference.clip.clone() };
    Reference { file: reference.file.clone(), clip, bytes: reference.bytes }
}

impl<F: RangeFile> Range<F> {
    /// Returns the number of sources from which a scan of the range reads at the same time.
    pub(crate) fn chain_count(&self) -> usize {
        let inside = |reference| Inside { reference, is_whole: false };
        let young: Few<Inside<'_, F>> = self.young.iter().map(inside).collect();
        let young = levels(&young).into_iter().max().map_or(0, |level| level + 1);
        young + usize::from(!self.run.is_empty())
    }

    /// Returns the maximum number of files in which the look-up of one key must search.
    pub(crate) fn depth(&self) -> usize {
        // The number of files at a key can increase only where a file begins, so only these keys
        // are tried.
        let lows = self.references().map(|(_, reference)| &*reference.clip.low);
        lows.map(|key| self.sources(key).count()).max().unwrap_or(0)
    }
}

impl<'r, F> Inside<'r, F> {
    fn of(reference: &'r Reference<F>, span: &Span) -> Self {
        Self { reference, is_whole: reference.clip.covers(span) }
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.is_whole || other.is_whole || self.reference.clip.overlaps(&other.reference.clip)
    }
}

/// Returns the level of each reference of `young`, which is ordered newest first. A reference that
/// overlaps no newer reference has level 0. Every other reference has the highest level of the
/// newer references that it overlaps, plus 1.
fn levels<F>(young: &[Inside<'_, F>]) -> Few<usize> {
    let mut levels: Few<usize> = Few::with_capacity(young.len());
    for (i, reference) in young.iter().enumerate() {
        let above = young[..i].iter().zip(&levels);
        let above = above.filter(|(newer, _)| newer.overlaps(reference));
        levels.push(above.map(|(_, level)| level + 1).max().unwrap_or(0));
    }
    levels
}

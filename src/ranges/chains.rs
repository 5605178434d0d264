//! The files that a scan reads, as few sources: a scan over a thousand ranges opens as many files at a time as a scan
//! over the deepest of them.
//!
//! Invariants
//! * each chain is ascending and disjoint, so that its files are read one after the other;
//! * of two references that overlap, the newer is in the earlier chain: what stands in later chains, and only that, may
//!   be hidden by what stands here;
//! * the run of every range is in the last chain.

use std::sync::Arc;

use crate::format::span::Span;

use super::{Range, RangeFile, Reference};

/// The references of `ranges`, which ascend, that can hold keys of `span` and of which `sees` is true.
pub(crate) fn chains<F: RangeFile + Clone>(
    ranges: &[Arc<Range<F>>],
    span: &Span,
    sees: impl Fn(&Reference<F>) -> bool,
) -> Vec<Vec<Reference<F>>> {
    let mut chains: Vec<Vec<Reference<F>>> = Vec::new();
    let mut run = Vec::new();
    for range in ranges {
        let inside: Vec<&Reference<F>> =
            range.young.iter().filter(|r| r.clip.overlaps(span) && sees(r)).collect();
        let levels = levels(&inside);
        let mut order: Vec<usize> = (0..inside.len()).collect();
        order.sort_by(|a, b| inside[*a].clip.low.cmp(&inside[*b].clip.low));
        for i in order {
            if chains.len() <= levels[i] {
                chains.resize_with(levels[i] + 1, Vec::new);
            }
            chains[levels[i]].push(within(span, inside[i]));
        }
        run.extend(range.run_in(span).iter().filter(|r| sees(r)).map(|r| within(span, r)));
    }
    if !run.is_empty() {
        chains.push(run);
    }
    chains
}

/// The reference for a reader of `span`, who needs no clip around it.
fn within<F: RangeFile + Clone>(span: &Span, reference: &Reference<F>) -> Reference<F> {
    let clip = if reference.clip.covers(span) { Span::all() } else { reference.clip.clone() };
    Reference { file: reference.file.clone(), clip, bytes: reference.bytes }
}

impl<F: RangeFile> Range<F> {
    /// How many sources a scan of it reads at a time.
    pub(crate) fn chain_count(&self) -> usize {
        let young: Vec<&Reference<F>> = self.young.iter().collect();
        let young = levels(&young).into_iter().max().map_or(0, |level| level + 1);
        young + usize::from(!self.run.is_empty())
    }

    /// The most files that one key may have to be looked for in.
    pub(crate) fn depth(&self) -> usize {
        // The depth changes only where a file begins.
        let lows = self.references().map(|(_, reference)| &*reference.clip.low);
        lows.map(|key| self.sources(key).count()).max().unwrap_or(0)
    }
}

/// Of each reference, newest first, how many stand over it in the longest pile.
fn levels<F>(young: &[&Reference<F>]) -> Vec<usize> {
    let mut levels: Vec<usize> = Vec::with_capacity(young.len());
    for (i, reference) in young.iter().enumerate() {
        let above = young[..i].iter().zip(&levels);
        let above = above.filter(|(newer, _)| newer.clip.overlaps(&reference.clip));
        levels.push(above.map(|(_, level)| level + 1).max().unwrap_or(0));
    }
    levels
}

//! Builds the edits that split a range or merge two neighbours. The edits move no bytes.
//!
//! Invariants
//! * the new ranges cover the same keys as the old ones, and reference the same keys of the same
//!   files, so that reads return the same results;
//! * a merged range references each file once. So if both ranges reference a file, its two clips
//!   must touch, or the file must have no key between them.
//!
//! `lsm::range_split` decides when and where to split, and applies the edits.

use crate::format::edit::{Placement, RangeMeta, ReferenceMeta, VersionEdit};
use crate::format::names::RangeId;
use crate::format::span::Span;

use super::{Range, RangeFile, Reference};

/// Returns the edit that splits `range` at `key` into two ranges with the given ids. `key` must be
/// inside the span of the range and above its start. If the clip of a reference (the keys of the
/// file that belong to the range) contains `key`, `left_bytes` estimates the bytes of the reference
/// below `key`.
pub(crate) fn split<F: RangeFile>(
    range: &Range<F>,
    key: &[u8],
    (left, right): (RangeId, RangeId),
    left_bytes: impl Fn(&Reference<F>) -> u64,
) -> VersionEdit {
    let table = range.table;
    debug_assert!(range.span.contains(key) && *key > *range.span.low, "the key divides the range");
    debug_assert!(left != right && left != range.id, "each half has an id of its own");
    let low = Span::new(&range.span.low, Some(key));
    let high = Span::new(key, range.span.high.as_deref());
    let mut edit = VersionEdit { remove_ranges: vec![range.id], ..VersionEdit::default() };
    for (placement, reference) in range.references() {
        let file = reference.file.number();
        edit.remove_references.push((range.id, file));
        let sides =
            [(left, reference.clip.intersect(&low)), (right, reference.clip.intersect(&high))];
        let is_cut = sides.iter().all(|(_, clip)| clip.is_some());
        for (id, clip) in sides {
            let Some(clip) = clip else { continue };
            let below = if is_cut { left_bytes(reference).min(reference.bytes) } else { 0 };
            let bytes = match (is_cut, id == left) {
                (true, true) => below,
                (true, false) => reference.bytes - below,
                (false, _) => reference.bytes,
            };
            let bytes = (bytes != reference.file.bytes()).then_some(bytes);
            edit.add_references.push(ReferenceMeta { range: id, file, placement, clip, bytes });
        }
    }
    let (before, after) = (edit.remove_references.len(), edit.add_references.len());
    debug_assert!(before <= after && after <= 2 * before, "a reference is of one side or both");
    edit.add_ranges.push(RangeMeta { id: left, table, span: low });
    edit.add_ranges.push(RangeMeta { id: right, table, span: high });
    edit
}

/// Returns the edit that merges two neighbours into one range with the id `id`. Returns `None` if
/// the ranges are not neighbours, or if their files cannot be in one range. `gap_is_empty` must
/// return true if a file is known to have no key between its two clips.
pub(crate) fn merge<F: RangeFile + Clone>(
    left: &Range<F>,
    right: &Range<F>,
    id: RangeId,
    gap_is_empty: impl Fn(&Reference<F>, &Reference<F>) -> bool,
) -> Option<VersionEdit> {
    if left.table != right.table || left.span.high.as_ref() != Some(&right.span.low) {
        return None;
    }
    debug_assert!(id != left.id && id != right.id, "the merged range has an id of its own");
    let span = Span::new(&left.span.low, right.span.high.as_deref());
    let mut merged = Range::new(id, left.table, span.clone());
    let of_both = |file| right.references().find(|(_, other)| other.file.number() == file);
    for (placement, reference) in left.references() {
        let Some((other_placement, other)) = of_both(reference.file.number()) else {
            merged.add(placement, reference.clone());
            continue;
        };
        let touch = reference.clip.high.as_ref() == Some(&other.clip.low);
        if !touch && !gap_is_empty(reference, other) {
            return None;
        }
        let clip = Span::new(&reference.clip.low, other.clip.high.as_deref());
        let bytes = reference.bytes.saturating_add(other.bytes).min(reference.file.bytes());
        // Each range moves young files into its run on its own. So this file may be in the run of
        // one range and still be young in the other one. In the merged range it is then young.
        let is_run = (placement, other_placement) == (Placement::Run, Placement::Run);
        let placement = if is_run { Placement::Run } else { Placement::Young };
        merged.add(placement, Reference::new(reference.file.clone(), clip, Some(bytes)));
    }
    for (placement, reference) in right.references() {
        let file = reference.file.number();
        if !left.references().any(|(_, other)| other.file.number() == file) {
            merged.add(placement, reference.clone());
        }
    }
    merged.check().ok()?;
    let gone = |range: &Range<F>| -> Vec<_> {
        range.references().map(|(_, reference)| (range.id, reference.file.number())).collect()
    };
    let added = merged.references().map(|(placement, reference)| ReferenceMeta {
        range: id,
        file: reference.file.number(),
        placement,
        clip: reference.clip.clone(),
        bytes: reference.bytes_meta(),
    });
    Some(VersionEdit {
        remove_ranges: vec![left.id, right.id],
        remove_references: [gone(left), gone(right)].concat(),
        add_ranges: vec![RangeMeta { id, table: left.table, span }],
        add_references: added.collect(),
        ..VersionEdit::default()
    })
}

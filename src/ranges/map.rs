//! All ranges of a database, in key order.
//!
//! A range is found by key with a binary search, and by id with a linear search of a dense list of
//! ids. The linear search is cheap compared with a change of the version, which copies the whole
//! map.

use std::sync::Arc;

use crate::format::names::RangeId;
use crate::format::span::Span;
use crate::sort::sort_by;

use super::{Range, RangeFile};

/// Ranges ordered by key. Cloning a map copies one pointer per range.
#[derive(Clone, Debug)]
pub(crate) struct RangeMap<F> {
    /// The ranges, ascending and disjoint.
    ranges: Vec<Arc<Range<F>>>,
    /// The ids of the ranges, in the same order.
    ids: Vec<RangeId>,
}

impl<F> Default for RangeMap<F> {
    fn default() -> Self {
        Self { ranges: Vec::new(), ids: Vec::new() }
    }
}

impl<F: RangeFile + Clone> RangeMap<F> {
    /// Returns the range that contains `key`.
    #[inline]
    pub(crate) fn range_for(&self, key: &[u8]) -> Option<&Arc<Range<F>>> {
        let at = self.ranges.partition_point(|range| range.span.ends_before(key));
        // The range found does not end before the key, so only its start must still be compared.
        self.ranges.get(at).filter(|range| *range.span.low <= *key)
    }

    /// Returns the ranges that overlap `span`, ascending.
    pub(crate) fn ranges_in(&self, span: &Span) -> &[Arc<Range<F>>] {
        let from = self.ranges.partition_point(|range| range.span.ends_before(&span.low));
        let rest = &self.ranges[from..];
        let len = rest.partition_point(|range| !span.ends_before(&range.span.low));
        &rest[..len]
    }

    /// Returns all ranges, ascending.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Range<F>>> {
        self.ranges.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the range with this id. Takes linear time.
    pub(crate) fn get(&self, id: RangeId) -> Option<&Arc<Range<F>>> {
        self.ranges.get(self.ids.iter().position(|other| *other == id)?)
    }

    /// Returns the position of the range with this id. To save the search, first tries the position
    /// `hint` and the next one.
    pub(crate) fn position(&self, id: RangeId, hint: usize) -> Option<usize> {
        debug_assert_eq!(self.ids.len(), self.ranges.len(), "each range has its id");
        let near = self.ids.iter().skip(hint).take(2).position(|other| *other == id);
        let near = near.map(|at| hint + at);
        near.or_else(|| self.ids.iter().position(|other| *other == id))
    }

    /// Returns the range at `position`.
    pub(crate) fn at(&self, position: usize) -> Option<&Arc<Range<F>>> {
        self.ranges.get(position)
    }

    /// Returns the range at `position` for modification. If another map shares the range, it is
    /// copied first.
    pub(crate) fn at_mut(&mut self, position: usize) -> Option<&mut Range<F>> {
        self.ranges.get_mut(position).map(Arc::make_mut)
    }

    /// Removes the ranges `gone`, which must have no files, and adds the ranges `new`. Takes linear
    /// time for any number of changes. Returns an error if an invariant is violated; the map must
    /// not be used afterwards.
    pub(crate) fn change(
        &mut self,
        gone: &[RangeId],
        mut new: Vec<Range<F>>,
    ) -> Result<(), String> {
        self.take_out(gone)?;
        if new.is_empty() {
            return Ok(());
        }
        let mut ids: Vec<RangeId> =
            self.ids.iter().copied().chain(new.iter().map(|r| r.id)).collect();
        sort_by(&mut ids, Ord::cmp);
        if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("range r{} exists already", twice[0].0));
        }
        if let Some(range) = new.iter().find(|range| range.span.is_empty()) {
            return Err(format!("range r{}: the span {} is empty", range.id.0, range.span));
        }
        sort_by(&mut new, |a, b| a.span.low.cmp(&b.span.low));
        let mut merged = Vec::with_capacity(self.ranges.len() + new.len());
        let mut old = std::mem::take(&mut self.ranges).into_iter().peekable();
        for range in new {
            while let Some(before) = old.next_if(|other| other.span.low <= range.span.low) {
                merged.push(before);
            }
            let next = old.peek().filter(|next| !range.span.ends_before(&next.span.low));
            let before = merged.last().filter(|last| !last.span.ends_before(&range.span.low));
            if let Some(other) = before.or(next) {
                let (id, span, other_id) = (range.id.0, &range.span, other.id.0);
                return Err(format!(
                    "range r{id} {span} overlaps range r{other_id} {}",
                    other.span
                ));
            }
            merged.push(Arc::new(range));
        }
        merged.extend(old);
        let ascend = |a: &Arc<Range<F>>, b: &Arc<Range<F>>| a.span.ends_before(&b.span.low);
        debug_assert!(merged.is_sorted_by(ascend), "ranges ascend and are disjoint");
        self.ids = merged.iter().map(|range| range.id).collect();
        self.ranges = merged;
        Ok(())
    }

    fn take_out(&mut self, gone: &[RangeId]) -> Result<(), String> {
        let mut places = Vec::with_capacity(gone.len());
        let mut hint = 0;
        for id in gone {
            let Some(at) = self.position(*id, hint) else {
                return Err(format!("range r{} does not exist", id.0));
            };
            if self.ranges[at].references().next().is_some() {
                return Err(format!("range r{} leaves and still has files", id.0));
            }
            places.push(at);
            hint = at;
        }
        sort_by(&mut places, Ord::cmp);
        if let Some(twice) = places.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("range r{} does not exist", self.ids[twice[0]].0));
        }
        let leaves = |at: usize| places.binary_search(&at).is_ok();
        let mut at = 0..;
        self.ranges.retain(|_| at.next().is_none_or(|at| !leaves(at)));
        self.ids = self.ranges.iter().map(|range| range.id).collect();
        Ok(())
    }

    /// Returns an error if an invariant is violated, within a range or between ranges.
    pub(crate) fn check(&self) -> Result<(), String> {
        for pair in self.ranges.windows(2) {
            let [a, b] = pair else { continue };
            if !a.span.ends_before(&b.span.low) {
                return Err(format!("range r{} {} runs into {}", a.id.0, a.span, b.span));
            }
        }
        self.ranges.iter().try_for_each(|range| range.check())
    }
}

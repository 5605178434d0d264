//! All ranges of a database, in key order.

use std::sync::Arc;

use crate::format::names::RangeId;
use crate::format::span::Span;

use super::{Range, RangeFile};

/// Ranges by key. Cloning copies one pointer a range.
#[derive(Clone, Debug)]
pub(crate) struct RangeMap<F> {
    /// Ascending and disjoint.
    ranges: Vec<Arc<Range<F>>>,
}

impl<F> Default for RangeMap<F> {
    fn default() -> Self {
        Self { ranges: Vec::new() }
    }
}

impl<F: RangeFile + Clone> RangeMap<F> {
    /// The range that `key` belongs to.
    #[inline]
    pub(crate) fn range_for(&self, key: &[u8]) -> Option<&Arc<Range<F>>> {
        let at = self.ranges.partition_point(|range| range.span.ends_before(key));
        self.ranges.get(at).filter(|range| range.span.contains(key))
    }

    /// The ranges that overlap `span`, ascending.
    pub(crate) fn ranges_in(&self, span: &Span) -> &[Arc<Range<F>>] {
        let from = self.ranges.partition_point(|range| range.span.ends_before(&span.low));
        let rest = &self.ranges[from..];
        let len = rest.partition_point(|range| !span.ends_before(&range.span.low));
        &rest[..len]
    }

    /// All ranges, ascending.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Range<F>>> {
        self.ranges.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The range with this id; linear.
    pub(crate) fn get(&self, id: RangeId) -> Option<&Arc<Range<F>>> {
        self.ranges.iter().find(|range| range.id == id)
    }

    /// Where the range with this id stands, looking at `hint` first.
    pub(crate) fn position(&self, id: RangeId, hint: usize) -> Option<usize> {
        if self.ranges.get(hint).is_some_and(|range| range.id == id) {
            return Some(hint);
        }
        self.ranges.iter().position(|range| range.id == id)
    }

    /// The range at `position`, copied first if somebody else holds it.
    pub(crate) fn at_mut(&mut self, position: usize) -> Option<&mut Range<F>> {
        self.ranges.get_mut(position).map(Arc::make_mut)
    }

    /// Adds a range, or says why it must not be there.
    pub(crate) fn insert(&mut self, range: Range<F>) -> Result<(), String> {
        let (id, span) = (range.id, &range.span);
        if span.is_empty() {
            return Err(format!("range r{}: the span {span} is empty", id.0));
        }
        if self.get(id).is_some() {
            return Err(format!("range r{} exists already", id.0));
        }
        if let Some(other) = self.ranges_in(span).first() {
            let (other, others) = (other.id.0, &other.span);
            return Err(format!("range r{} {span} overlaps range r{other} {others}", id.0));
        }
        let at = self.ranges.partition_point(|other| other.span.low < span.low);
        self.ranges.insert(at, Arc::new(range));
        Ok(())
    }

    /// Takes a range out.
    pub(crate) fn remove(&mut self, id: RangeId) -> Option<Arc<Range<F>>> {
        let at = self.ranges.iter().position(|range| range.id == id)?;
        Some(self.ranges.remove(at))
    }

    /// Says which invariant is broken, in any range or between them.
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

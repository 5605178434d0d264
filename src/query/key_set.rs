//! Sets of keys (PartitionKey, RowKey), exact for any filter over keys, with union, intersection
//! and complement.
//!
//! A *cut* is a position between two texts. A set of texts is a list of cuts at which membership
//! flips. A set of keys is a list of cuts between PartitionKeys; each cut has the set of RowKeys
//! that applies to all partitions up to the next cut.
//!
//! Invariants: cuts ascend strictly, by UTF-16 unit, and the contents before and after a cut
//! differ. No cut has a text with U+0000: no key contains it, so a cut at `p\0…` is stored as the
//! cut directly after `p`.

use std::cmp::Ordering;
use std::sync::Arc;

use super::tree::CompareOp;
use crate::model::utf16_cmp;

/// A position between texts: directly before `text`, or directly after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut<'a> {
    pub(super) text: &'a str,
    pub(super) after: bool,
}

/// A set of texts. Clones share the cuts.
#[derive(Clone, Debug)]
pub(super) struct Texts<'a> {
    /// Whether the set contains the empty text, which is the least one.
    starts: bool,
    /// The cuts at which membership flips; `None` if there are none.
    flips: Option<Arc<[Cut<'a>]>>,
}

/// A set of keys.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KeySet<'a> {
    /// The RowKeys of the partitions from each cut up to the next; the first cut is [`Cut::START`].
    steps: Vec<(Cut<'a>, Texts<'a>)>,
}

/// Adjacent partitions with the same RowKeys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'s, 'a> {
    pub(super) low: Cut<'a>,
    /// The upper end; `None` if the piece extends to the last key.
    pub(super) high: Option<Cut<'a>>,
    pub(super) rows: &'s Texts<'a>,
}

/// The operation that combines two sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    And,
    Or,
}

impl<'a> Cut<'a> {
    /// The cut before every text.
    pub(super) const START: Cut<'static> = Cut { text: "", after: false };

    fn new(text: &'a str, after: bool) -> Self {
        match text.find('\0') {
            Some(end) => Self { text: &text[..end], after: true },
            None => Self { text, after },
        }
    }
}

impl Ord for Cut<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        utf16_cmp(self.text.as_bytes(), other.text.as_bytes()).then(self.after.cmp(&other.after))
    }
}

impl PartialOrd for Cut<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<'a> Texts<'a> {
    pub(super) fn all() -> Self {
        Self { starts: true, flips: None }
    }

    pub(super) fn none() -> Self {
        Self { starts: false, flips: None }
    }

    /// Returns the texts for which the comparison with `text` holds.
    pub(super) fn compared(op: CompareOp, text: &'a str) -> Self {
        let (before, after) = (Cut::new(text, false), Cut::new(text, true));
        match op {
            CompareOp::Eq => Self::between(before, Some(after)),
            CompareOp::Ne => Self::between(before, Some(after)).complement(),
            CompareOp::Lt => Self::between(Cut::START, Some(before)),
            CompareOp::Le => Self::between(Cut::START, Some(after)),
            CompareOp::Gt => Self::between(after, None),
            CompareOp::Ge => Self::between(before, None),
        }
    }

    pub(super) fn between(low: Cut<'a>, high: Option<Cut<'a>>) -> Self {
        if high.is_some_and(|high| high <= low) {
            return Self::none();
        }
        let starts = low == Cut::START;
        Self::new(starts, (!starts).then_some(low).into_iter().chain(high).collect())
    }

    pub(super) fn is_all(&self) -> bool {
        self.starts && self.flips.is_none()
    }

    pub(super) fn is_none(&self) -> bool {
        !self.starts && self.flips.is_none()
    }

    /// Returns the contiguous segments of the set in order, each as its start and end.
    pub(super) fn segments(&self) -> impl Iterator<Item = (Cut<'a>, Option<Cut<'a>>)> + '_ {
        let flips = self.flips();
        let start = self.starts.then_some((Cut::START, flips.first().copied()));
        let later = flips[usize::from(self.starts).min(flips.len())..].chunks(2);
        start.into_iter().chain(later.map(|pair| (pair[0], pair.get(1).copied())))
    }

    /// Returns the smallest segment that contains the whole set; `None` if the set is empty.
    pub(super) fn hull(&self) -> Option<(Cut<'a>, Option<Cut<'a>>)> {
        let flips = self.flips();
        let low = if self.starts { Cut::START } else { *flips.first()? };
        let ends = self.starts != (flips.len() % 2 == 1);
        Some((low, if ends { None } else { flips.last().copied() }))
    }

    fn new(starts: bool, flips: Vec<Cut<'a>>) -> Self {
        debug_assert!(flips.is_sorted_by(|a, b| a < b), "cuts ascend");
        Self { starts, flips: (!flips.is_empty()).then(|| flips.into()) }
    }

    fn flips(&self) -> &[Cut<'a>] {
        self.flips.as_deref().unwrap_or_default()
    }

    fn complement(&self) -> Self {
        Self { starts: !self.starts, flips: self.flips.clone() }
    }

    fn same_list(&self, other: &Self) -> bool {
        match (&self.flips, &other.flips) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        }
    }

    /// Returns the union or intersection if it can be found without merging the lists of cuts,
    /// otherwise `None`.
    fn combine_at_once(&self, other: &Self, op: Op) -> Option<Self> {
        let (neutral, decides) = match op {
            Op::And => (Self::is_all as fn(&Self) -> bool, Self::is_none as fn(&Self) -> bool),
            Op::Or => (Self::is_none as fn(&Self) -> bool, Self::is_all as fn(&Self) -> bool),
        };
        if neutral(self) || decides(other) || self.starts == other.starts && self.same_list(other) {
            return Some(other.clone());
        }
        (neutral(other) || decides(self)).then(|| self.clone())
    }

    fn combine(&self, other: &Self, op: Op) -> Self {
        let (left, right) = (self.flips(), other.flips());
        let (mut in_left, mut in_right) = (self.starts, other.starts);
        let starts = op.decide(in_left, in_right);
        let (mut i, mut j, mut is_in) = (0, 0, starts);
        let mut flips = Vec::with_capacity(left.len() + right.len());
        while i < left.len() || j < right.len() {
            let (cut, from_left, from_right) = next_cut(left.get(i), right.get(j));
            in_left ^= from_left;
            in_right ^= from_right;
            i += usize::from(from_left);
            j += usize::from(from_right);
            if op.decide(in_left, in_right) != is_in {
                is_in = !is_in;
                flips.push(cut);
            }
        }
        Self::new(starts, flips)
    }

    /// Whether the two sets have a text in common.
    fn meets(&self, other: &Self) -> bool {
        let (few, many) =
            if self.flips().len() <= other.flips().len() { (self, other) } else { (other, self) };
        let flips = many.flips();
        few.segments().any(|(low, high)| {
            let passed = flips.partition_point(|cut| *cut <= low);
            let is_in = many.starts != (passed % 2 == 1);
            is_in || flips.get(passed).is_some_and(|next| high.is_none_or(|high| *next < high))
        })
    }
}

impl PartialEq for Texts<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.starts == other.starts && (self.same_list(other) || self.flips() == other.flips())
    }
}

impl<'a> KeySet<'a> {
    pub(super) fn all() -> Self {
        Self::rows(Texts::all())
    }

    pub(super) fn none() -> Self {
        Self::rows(Texts::none())
    }

    /// Returns the set of all rows of these partitions.
    pub(super) fn partitions(partitions: &Texts<'a>) -> Self {
        let mut set = Self::builder();
        set.push(Cut::START, Texts::none());
        for (low, high) in partitions.segments() {
            set.push(low, Texts::all());
            if let Some(high) = high {
                set.push(high, Texts::none());
            }
        }
        set
    }

    /// Returns the set of all keys with one of the RowKeys `rows`, in any partition.
    pub(super) fn rows(rows: Texts<'a>) -> Self {
        Self { steps: vec![(Cut::START, rows)] }
    }

    pub(super) fn is_none(&self) -> bool {
        self.steps.iter().all(|(_, rows)| rows.is_none())
    }

    /// Returns the number of pieces, including empty ones.
    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Returns the pieces of the set in order, including those without rows.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Piece<'_, 'a>> + '_ {
        (0..self.steps.len()).filter_map(|at| self.piece(at))
    }

    pub(super) fn complement(&self) -> Self {
        let steps = self.steps.iter().map(|(cut, rows)| (*cut, rows.complement()));
        Self { steps: steps.collect() }
    }

    /// Computes the union or intersection; `None` if the result needs more than `cuts_max` new cuts
    /// between RowKeys. If both sets restrict RowKeys, the result can be as large as the product of
    /// their sizes.
    pub(super) fn combine(&self, other: &Self, op: Op, cuts_max: usize) -> Option<Self> {
        let is_whole = |set: &Self| set.steps.first().is_some_and(|step| step.0 == Cut::START);
        debug_assert!(
            is_whole(self) && is_whole(other),
            "a set says of each partition what it has"
        );
        let mut result = Self::builder();
        let (mut i, mut j, mut cuts) = (0, 0, 0);
        // Caches the last combination: often every second piece is empty, and all other pieces have
        // the same rows.
        let mut last: Option<(Texts<'a>, Texts<'a>, Texts<'a>)> = None;
        let (mut left, mut right) = (&self.steps[0].1, &other.steps[0].1);
        while i < self.steps.len() || j < other.steps.len() {
            let (ours, theirs) = (self.steps.get(i), other.steps.get(j));
            let (cut, from_left, from_right) =
                next_cut(ours.map(|step| &step.0), theirs.map(|step| &step.0));
            left = if from_left { ours.map_or(left, |step| &step.1) } else { left };
            right = if from_right { theirs.map_or(right, |step| &step.1) } else { right };
            i += usize::from(from_left);
            j += usize::from(from_right);
            let known = last.as_ref().filter(|(a, b, _)| {
                a.same_list(left)
                    && b.same_list(right)
                    && (a.starts, b.starts) == (left.starts, right.starts)
            });
            let rows = if let Some(rows) = left.combine_at_once(right, op) {
                rows
            } else if let Some((_, _, rows)) = known {
                rows.clone()
            } else {
                cuts += left.flips().len() + right.flips().len();
                if cuts > cuts_max {
                    return None;
                }
                let rows = left.combine(right, op);
                last = Some((left.clone(), right.clone(), rows.clone()));
                rows
            };
            result.push(cut, rows);
        }
        Some(result)
    }

    /// Returns a simple superset: in each piece, one segment that contains all of its rows.
    pub(super) fn widened(&self) -> Self {
        let hull = |rows: &Texts<'a>| match rows.hull() {
            Some((low, high)) => Texts::between(low, high),
            None => Texts::none(),
        };
        self.map(hull)
    }

    /// Returns a simple subset: only those partitions of which the set contains all rows.
    pub(super) fn narrowed(&self) -> Self {
        self.map(|rows| if rows.is_all() { Texts::all() } else { Texts::none() })
    }

    /// Returns the smallest superset that consists of few intervals: a piece with several
    /// partitions is filled up to one interval from its first to its last key. If the first or last
    /// PartitionKey of the piece is unknown, the interval has all rows at that end.
    pub(super) fn contiguous(&self) -> Self {
        let mut set = Self::builder();
        for piece in self.pieces() {
            let Some((low_row, high_row)) = piece.rows.hull() else {
                set.push(piece.low, Texts::none());
                continue;
            };
            if piece.rows.is_all() || piece.partition().is_some() {
                set.push(piece.low, piece.rows.clone());
                continue;
            }
            let mut from = piece.low;
            if !from.after && from != Cut::START {
                set.push(from, Texts::between(low_row, None));
                from.after = true;
            }
            set.push(from, Texts::all());
            if let Some(high @ Cut { after: true, .. }) = piece.high {
                set.push(Cut { after: false, ..high }, Texts::between(Cut::START, high_row));
            }
        }
        set
    }

    /// Whether the two sets have a key in common. Each step of the search uses one unit of `fuel`;
    /// returns `None` if the fuel runs out.
    pub(super) fn meets(&self, other: &Self, fuel: &mut usize) -> Option<bool> {
        let (few, many) = if self.len() <= other.len() { (self, other) } else { (other, self) };
        for piece in few.pieces().filter(|piece| !piece.rows.is_none()) {
            let first = many.steps.partition_point(|(cut, _)| *cut <= piece.low).saturating_sub(1);
            let within = |low: Cut<'a>| piece.high.is_none_or(|high| low < high);
            for (low, rows) in &many.steps[first..] {
                if *low > piece.low && !within(*low) {
                    break;
                }
                let steps = 1 + rows.flips().len().min(piece.rows.flips().len());
                *fuel = fuel.checked_sub(steps)?;
                if piece.rows.meets(rows) {
                    return Some(true);
                }
            }
        }
        Some(false)
    }

    fn builder() -> Self {
        Self { steps: Vec::new() }
    }

    fn piece(&self, at: usize) -> Option<Piece<'_, 'a>> {
        let (low, rows) = self.steps.get(at)?;
        Some(Piece { low: *low, high: self.steps.get(at + 1).map(|step| step.0), rows })
    }

    /// Adds a cut with its rows. Requires: `low` is after all cuts so far, or equals the last one,
    /// whose rows are then replaced.
    fn push(&mut self, low: Cut<'a>, rows: Texts<'a>) {
        let ascends = self.steps.last().is_none_or(|last| last.0 <= low);
        debug_assert!(ascends, "pieces are added in order");
        if self.steps.last().is_some_and(|last| last.0 == low) {
            self.steps.pop();
        }
        debug_assert!(self.steps.last().is_none_or(|last| last.0 < low), "cuts ascend");
        if self.steps.last().is_none_or(|last| last.1 != rows) {
            self.steps.push((low, rows));
        }
    }

    fn map(&self, with: impl Fn(&Texts<'a>) -> Texts<'a>) -> Self {
        let mut set = Self::builder();
        for (cut, rows) in &self.steps {
            set.push(*cut, with(rows));
        }
        set
    }
}

impl<'a> Piece<'_, 'a> {
    /// Returns the partition if the piece has exactly one.
    pub(super) fn partition(&self) -> Option<&'a str> {
        let one = self
            .high
            .is_some_and(|high| high.after && !self.low.after && high.text == self.low.text);
        one.then_some(self.low.text)
    }
}

impl Op {
    fn decide(self, left: bool, right: bool) -> bool {
        match self {
            Op::And => left && right,
            Op::Or => left || right,
        }
    }
}

/// Returns the lesser of the two cuts, whether `left` equals it, and whether `right` equals it.
///
/// Requires: at least one of the cuts exists.
fn next_cut<'a>(left: Option<&Cut<'a>>, right: Option<&Cut<'a>>) -> (Cut<'a>, bool, bool) {
    debug_assert!(left.is_some() || right.is_some(), "a cut is left");
    match (left, right) {
        (Some(left), Some(right)) => match left.cmp(right) {
            Ordering::Less => (*left, true, false),
            Ordering::Equal => (*left, true, true),
            Ordering::Greater => (*right, false, true),
        },
        (Some(left), None) => (*left, true, false),
        (None, Some(right)) => (*right, false, true),
        (None, None) => (Cut::START, true, true),
    }
}

#[cfg(test)]
mod tests;

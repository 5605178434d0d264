//! Splits a filter into the key intervals to read, and the remaining filter to test on their rows:
//!
//! 1. Bottom up, compute bounds for each part of the tree: the keys for which it may be true, and
//!    the keys for which it is always true.
//! 2. Turn the keys for which the whole filter may be true into few intervals.
//! 3. Top down, replace a part that is always or never true within the intervals by a constant.
//!
//! No entity outside the intervals meets the filter. Inside the intervals the remaining filter
//! gives the same result as the whole filter. Bounds may be too wide, never too narrow
//! (`CUTS_MIN`). Time and memory are O(n log n) in the number of comparisons.

use std::cmp::Ordering;
use std::sync::Arc;

use super::key_range::{Edge, KeyRange};
use super::key_set::{Cut, KeySet, Op, Piece, Texts};
use super::tree::{CompareOp, Comparison, Node, Property};
use crate::model::Value;
use crate::named::named;

/// The limit on the number of cuts in a set of keys (see `key_set`), and of intervals. For a filter
/// with many comparisons it is higher: [`CUTS_PER_COMPARISON`] for each comparison. A list of
/// points and ranges never exceeds the limit. A product of 1,000 partitions and 1,000 rows does,
/// and is replaced by a simpler superset.
const CUTS_MIN: usize = 1 << 16;
const CUTS_PER_COMPARISON: usize = 8;
/// The maximum number of steps, per comparison, in the search for parts that are constant.
const FUEL: usize = 64;

/// The result of planning: the keys to read, and how to test their rows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// The intervals to read: ascending, disjoint, and not adjacent. If there are none, nothing can
    /// match.
    pub(crate) intervals: Vec<KeyRange>,
    /// The filter to test on the rows inside the intervals; `None` if all of these rows match.
    pub(crate) rest: Option<Node>,
    /// The worst class of any of the intervals.
    pub(crate) class: Class,
    /// The class of this filter in Azure Table storage.
    pub(crate) service_class: Class,
}

named! {
    /// The class of a query, from best to worst. docs/SEMANTICS.md §9.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub(crate) enum Class {
        /// No key can match.
        Empty "Empty plan",
        /// One key, or several single keys.
        Point "Point query",
        /// A range of rows within a partition.
        RowRange "Row range scan",
        /// A whole partition.
        Partition "Partition scan",
        /// More than one partition.
        PartitionRange "Partition range scan",
        /// The whole table.
        Table "Full table scan",
    }

    /// Returns the name of the class.
    pub(crate) fn word;
}

/// A part of the tree, with its bounds.
struct Part<'a> {
    node: &'a Node,
    bounds: Bounds<'a>,
    parts: Vec<Part<'a>>,
}

/// The keys for which a part may be true, and the keys for which it is true whatever values the
/// properties have.
#[derive(Clone)]
struct Bounds<'a> {
    may: Arc<KeySet<'a>>,
    must: Arc<KeySet<'a>>,
}

/// The part of a filter that must still be tested on rows within the intervals.
enum Rest {
    True,
    False,
    Node(Node),
}

/// Plans the filter with this tree.
pub(crate) fn plan(node: &Node) -> Plan {
    if let Some((partition, row)) = point(node) {
        let intervals = vec![KeyRange::point(partition, row)];
        return Plan { intervals, rest: None, class: Class::Point, service_class: Class::Point };
    }
    let comparisons = node.comparisons();
    let cuts_max = CUTS_MIN.max(comparisons.saturating_mul(CUTS_PER_COMPARISON));
    plan_within(node, cuts_max, comparisons.saturating_mul(FUEL).max(CUTS_MIN))
}

/// Plans with about `cuts_max` cuts at most in each set of keys. The search for parts of the filter
/// that are constant takes at most `fuel` steps.
fn plan_within(node: &Node, cuts_max: usize, mut fuel: usize) -> Plan {
    let whole = Part::new(node, cuts_max);
    let covered = cover(&whole.bounds.may, cuts_max);
    let (intervals, rest) = match whole.rest(&covered, &mut fuel) {
        Rest::False => (Vec::new(), None),
        _ if covered.is_none() => (Vec::new(), None),
        Rest::True => (intervals(&covered), None),
        Rest::Node(node) => (intervals(&covered), Some(node)),
    };
    let class = intervals.iter().map(class_of).max().unwrap_or(Class::Empty);
    Plan { intervals, rest, class, service_class: service_class(node) }
}

impl Plan {
    /// Returns the plan that reads `range` and tests no rows.
    pub(crate) fn of_range(range: &KeyRange) -> Plan {
        let class = Class::of_range(range);
        let intervals = if class == Class::Empty { Vec::new() } else { vec![range.clone()] };
        Plan { intervals, rest: None, class, service_class: class }
    }
}

impl Class {
    /// Returns the class of a plan that reads `range`.
    pub(crate) fn of_range(range: &KeyRange) -> Class {
        if range.is_empty() { Class::Empty } else { class_of(range) }
    }

    /// Returns the rating of the class, with its cost.
    pub(crate) fn rating(self) -> &'static str {
        match self {
            Class::Empty => "nothing is read",
            Class::Point => "best: one index lookup for each key",
            Class::RowRange => "good: cost is the rows in the range",
            Class::Partition => "cost is the whole partition",
            Class::PartitionRange => "good if few partitions are in the range, worse with more",
            Class::Table => "worst: cost is the whole table",
        }
    }
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

impl<'a> Part<'a> {
    fn new(node: &'a Node, cuts_max: usize) -> Self {
        let parts: Vec<Part<'a>> =
            children(node).iter().map(|child| Part::new(child, cuts_max)).collect();
        let bounds = match node {
            Node::All => Bounds::exact(KeySet::all()),
            Node::TooDeep => Bounds::unknown(),
            Node::Compare(comparison) => Bounds::of(comparison),
            Node::And(_) => Bounds::fold(&parts, Op::And, cuts_max),
            Node::Or(_) => Bounds::fold(&parts, Op::Or, cuts_max),
            Node::Not(_) => {
                parts.first().map_or_else(Bounds::unknown, |part| part.bounds.complement())
            }
        };
        Self { node, bounds, parts }
    }

    /// Returns the condition that must still be tested on rows with keys in `keys`.
    fn rest(&self, keys: &KeySet<'_>, fuel: &mut usize) -> Rest {
        if self.parts.is_empty() && self.bounds.is_unknown() || *fuel == 0 {
            return Rest::Node(self.node.clone());
        }
        if self.bounds.may.meets(keys, fuel) == Some(false) {
            return Rest::False;
        }
        if self.bounds.must.complement().meets(keys, fuel) == Some(false) {
            return Rest::True;
        }
        match self.node {
            Node::And(_) => self.rest_of_list(keys, fuel, Op::And),
            Node::Or(_) => self.rest_of_list(keys, fuel, Op::Or),
            Node::Not(_) => match self.parts.first().map(|part| part.rest(keys, fuel)) {
                Some(Rest::True) => Rest::False,
                Some(Rest::False) => Rest::True,
                Some(Rest::Node(node)) => Rest::Node(Node::Not(Box::new(node))),
                None => Rest::Node(self.node.clone()),
            },
            Node::All | Node::Compare(_) | Node::TooDeep => Rest::Node(self.node.clone()),
        }
    }

    fn rest_of_list(&self, keys: &KeySet<'_>, fuel: &mut usize, op: Op) -> Rest {
        let mut list = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            match (part.rest(keys, fuel), op) {
                (Rest::True, Op::And) | (Rest::False, Op::Or) => {}
                (Rest::False, Op::And) => return Rest::False,
                (Rest::True, Op::Or) => return Rest::True,
                // A nested list that shrank to one node was replaced by this node, which may be of
                // the same kind as the outer list.
                (Rest::Node(Node::And(nodes)), Op::And) | (Rest::Node(Node::Or(nodes)), Op::Or) => {
                    list.extend(nodes);
                }
                (Rest::Node(node), _) => list.push(node),
            }
        }
        match (list.pop(), op) {
            (None, Op::And) => Rest::True,
            (None, Op::Or) => Rest::False,
            (Some(only), _) if list.is_empty() => Rest::Node(only),
            (Some(last), _) => {
                list.push(last);
                Rest::Node(if op == Op::And { Node::And(list) } else { Node::Or(list) })
            }
        }
    }
}

impl<'a> Bounds<'a> {
    fn exact(set: KeySet<'a>) -> Self {
        let set = Arc::new(set);
        Self { may: Arc::clone(&set), must: set }
    }

    fn unknown() -> Self {
        Self { may: Arc::new(KeySet::all()), must: Arc::new(KeySet::none()) }
    }

    fn of(comparison: &'a Comparison) -> Self {
        let texts = match &comparison.value {
            Value::String(text) => Texts::compared(comparison.op, text),
            // A key is less than every literal of another type than String.
            _ if comparison.op.admits(Ordering::Less) => Texts::all(),
            _ => Texts::none(),
        };
        match comparison.property {
            Property::PartitionKey => Self::exact(KeySet::partitions(&texts)),
            Property::RowKey => Self::exact(KeySet::rows(texts)),
            Property::Timestamp | Property::Named(_) => Self::unknown(),
        }
    }

    fn is_exact(&self) -> bool {
        Arc::ptr_eq(&self.may, &self.must)
    }

    fn is_unknown(&self) -> bool {
        *self.may == KeySet::all() && self.must.is_none()
    }

    fn complement(&self) -> Self {
        if self.is_exact() {
            return Self::exact(self.may.complement());
        }
        Self { may: Arc::new(self.must.complement()), must: Arc::new(self.may.complement()) }
    }

    /// Combines the halves of the list recursively. Adding one part after another to the growing
    /// result would take quadratic time.
    fn fold(parts: &[Part<'a>], op: Op, cuts_max: usize) -> Self {
        match parts {
            [] if op == Op::And => Self::exact(KeySet::all()),
            [] => Self::exact(KeySet::none()),
            [part] => part.bounds.clone(),
            _ => {
                let (left, right) = parts.split_at(parts.len() / 2);
                Self::fold(left, op, cuts_max).combine(
                    &Self::fold(right, op, cuts_max),
                    op,
                    cuts_max,
                )
            }
        }
    }

    fn combine(&self, other: &Self, op: Op, cuts_max: usize) -> Self {
        let may = self.may.combine(&other.may, op, cuts_max);
        if self.is_exact() && other.is_exact() && may.is_some() {
            return may.map_or_else(Self::unknown, Self::exact);
        }
        let must = self.must.combine(&other.must, op, cuts_max);
        let may = may.or_else(|| self.may.widened().combine(&other.may.widened(), op, usize::MAX));
        let must =
            must.or_else(|| self.must.narrowed().combine(&other.must.narrowed(), op, usize::MAX));
        Self {
            may: Arc::new(may.unwrap_or_else(KeySet::all)),
            must: Arc::new(must.unwrap_or_else(KeySet::none)),
        }
    }
}

/// Returns PartitionKey and RowKey if the filter consists of only two comparisons that name one
/// entity. Such a filter is planned without sets, which would take longer than the lookup.
fn point(node: &Node) -> Option<(&str, &str)> {
    let Node::And(terms) = node else { return None };
    let [Node::Compare(a), Node::Compare(b)] = terms.as_slice() else { return None };
    let (Value::String(a_text), Value::String(b_text)) = (&a.value, &b.value) else { return None };
    let (partition, row) = match (&a.property, &b.property) {
        (Property::PartitionKey, Property::RowKey) => (a_text, b_text),
        (Property::RowKey, Property::PartitionKey) => (b_text, a_text),
        _ => return None,
    };
    let equal = a.op == CompareOp::Eq && b.op == CompareOp::Eq;
    let can_be_keys = !partition.contains('\0') && !row.contains('\0');
    (equal && can_be_keys).then_some((partition, row))
}

/// Returns the keys to read: all keys of `may`, and further keys where that reduces the number of
/// intervals.
fn cover<'a>(may: &KeySet<'a>, intervals_max: usize) -> KeySet<'a> {
    let exact = may.contiguous();
    let count: usize = exact.pieces().map(|piece| piece.rows.segments().count()).sum();
    if count <= intervals_max { exact } else { may.widened().contiguous() }
}

/// Converts a set to intervals. Requires: `set` is contiguous.
fn intervals(set: &KeySet<'_>) -> Vec<KeyRange> {
    let mut intervals = Vec::new();
    let mut open: Option<(Option<Edge>, Option<Edge>)> = None;
    for piece in set.pieces() {
        for (low, high) in piece.rows.segments() {
            let (low, high) = (low_edge(&piece, low), high_edge(&piece, high));
            open = match open {
                Some((first, end)) if end == low => Some((first, high)),
                Some((first, end)) => {
                    intervals.push(interval(first, end));
                    Some((low, high))
                }
                None => Some((low, high)),
            };
        }
    }
    intervals.extend(open.map(|(low, high)| interval(low, high)));
    intervals
}

fn low_edge(piece: &Piece<'_, '_>, row: Cut<'_>) -> Option<Edge> {
    match piece.partition() {
        Some(partition) if row == Cut::START => Some(Edge::of_partition(partition, false)),
        Some(partition) => Some(Edge::of_row(partition, row.text, row.after)),
        None if piece.low == Cut::START => None,
        None => Some(Edge::of_partition(piece.low.text, piece.low.after)),
    }
}

fn high_edge(piece: &Piece<'_, '_>, row: Option<Cut<'_>>) -> Option<Edge> {
    match (piece.partition(), row) {
        (Some(partition), Some(row)) => Some(Edge::of_row(partition, row.text, row.after)),
        _ => piece.high.map(|cut| Edge::of_partition(cut.text, cut.after)),
    }
}

fn interval(low: Option<Edge>, high: Option<Edge>) -> KeyRange {
    let range = KeyRange::between(low, high);
    // The first row of a partition has the empty RowKey. A range of only this row becomes a point,
    // because a lookup costs less than a seek.
    match range.as_point() {
        Some((partition, row)) => KeyRange::point(partition, row),
        None => range,
    }
}

fn class_of(interval: &KeyRange) -> Class {
    if interval.as_point().is_some() {
        return Class::Point;
    }
    match (&interval.low, &interval.high) {
        (None, None) => Class::Table,
        (Some(low), Some(high)) if low.partition == high.partition => {
            match ((low.row.is_some(), low.after), (high.row.is_some(), high.after)) {
                ((false, false), (false, true)) => Class::Partition,
                ((false, true), _) | (_, (false, false)) => Class::PartitionRange,
                _ => Class::RowRange,
            }
        }
        _ => Class::PartitionRange,
    }
}

/// Returns the class of the filter in Azure Table storage, which narrows the keys only by
/// comparisons joined by `and` at the top level, and ignores `or`, `ne` and `not`.
fn service_class(node: &Node) -> Class {
    let terms = match node {
        Node::And(terms) => terms.as_slice(),
        term => std::slice::from_ref(term),
    };
    // How much the terms restrict each key. 0: not at all, 1: to a range, 2: to one key.
    let (mut partition, mut row) = (0, 0);
    for term in terms {
        let Node::Compare(Comparison { property, op, value: Value::String(_) }) = term else {
            continue;
        };
        let known = match op {
            CompareOp::Eq => 2,
            CompareOp::Ne => 0,
            CompareOp::Lt | CompareOp::Le | CompareOp::Gt | CompareOp::Ge => 1,
        };
        match property {
            Property::PartitionKey => partition = known.max(partition),
            Property::RowKey => row = known.max(row),
            Property::Timestamp | Property::Named(_) => {}
        }
    }
    match (partition, row) {
        (0, _) => Class::Table,
        (1, _) => Class::PartitionRange,
        (_, 0) => Class::Partition,
        (_, 1) => Class::RowRange,
        _ => Class::Point,
    }
}

fn children(node: &Node) -> &[Node] {
    match node {
        Node::And(nodes) | Node::Or(nodes) => nodes,
        Node::Not(node) => std::slice::from_ref(node),
        Node::All | Node::Compare(_) | Node::TooDeep => &[],
    }
}

#[cfg(test)]
mod tests;

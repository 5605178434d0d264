//! Defines the semantics of comparisons, for evaluating filters on rows and on zones, and for
//! planning.
//!
//! Invariants
//! * there are two truth values: a comparison with an absent property is false, and its `not` is
//!   true;
//! * a property of a type that does not match the literal's type is less than the literal.

use std::cmp::Ordering;

use crate::model::{Value, ValueRef, utf16_cmp};

use super::tree::{CompareOp, Node, Property};

impl CompareOp {
    /// Whether `property op literal` is true if the property has this order relative to the
    /// literal.
    #[inline]
    pub(crate) fn admits(self, ordering: Ordering) -> bool {
        match self {
            CompareOp::Eq => ordering.is_eq(),
            CompareOp::Ne => ordering.is_ne(),
            CompareOp::Lt => ordering.is_lt(),
            CompareOp::Le => ordering.is_le(),
            CompareOp::Gt => ordering.is_gt(),
            CompareOp::Ge => ordering.is_ge(),
        }
    }

    /// Returns the operator with its sides exchanged: `5 lt A` is `A gt 5`.
    pub(crate) fn flipped(self) -> CompareOp {
        match self {
            CompareOp::Lt => CompareOp::Gt,
            CompareOp::Le => CompareOp::Ge,
            CompareOp::Gt => CompareOp::Lt,
            CompareOp::Ge => CompareOp::Le,
            CompareOp::Eq | CompareOp::Ne => self,
        }
    }
}

/// Evaluates `property op literal`; `None` is an absent property.
#[inline]
pub(crate) fn compare(property: Option<ValueRef<'_>>, op: CompareOp, literal: &Value) -> bool {
    let Some(property) = property else { return false };
    match order(property, literal.as_ref()) {
        Some(ordering) => op.admits(ordering),
        None => op == CompareOp::Ne,
    }
}

/// Returns the order of a property relative to a literal. Returns `None` if both are numbers that
/// can be compared, and one of them is NaN.
#[inline]
pub(crate) fn order(property: ValueRef<'_>, literal: ValueRef<'_>) -> Option<Ordering> {
    use ValueRef::{Binary, Boolean, DateTime, Double, Guid, Int32, Int64, String};
    Some(match (property, literal) {
        (String(a), String(b)) => utf16_cmp(a.as_bytes(), b.as_bytes()),
        (Binary(a), Binary(b)) => a.cmp(b),
        (Boolean(a), Boolean(b)) => a.cmp(&b),
        (Int32(a), Int32(b)) => a.cmp(&b),
        (Int64(a), Int64(b)) => a.cmp(&b),
        (Int64(a), Int32(b)) => a.cmp(&i64::from(b)),
        (Double(a), Double(b)) => return a.partial_cmp(&b),
        (Double(a), Int32(b)) => return a.partial_cmp(&f64::from(b)),
        (Double(a), Int64(b)) => return a.partial_cmp(&(b as f64)),
        (DateTime(a), DateTime(b)) => a.cmp(&b),
        (Guid(a), Guid(b)) => a.cmp(&b),
        // The types do not match. Only the literal is widened: an Int64 property is compared with
        // `5`, but an Int32 property is not compared with `5L`.
        _ => Ordering::Less,
    })
}

/// Evaluates the condition on the properties that `lookup` returns.
pub(crate) fn holds<'v>(node: &Node, lookup: &dyn Fn(&Property) -> Option<ValueRef<'v>>) -> bool {
    match node {
        Node::All => true,
        Node::Compare(term) => compare(lookup(&term.property), term.op, &term.value),
        Node::And(nodes) => nodes.iter().all(|node| holds(node, lookup)),
        Node::Or(nodes) => nodes.iter().any(|node| holds(node, lookup)),
        Node::Not(node) => !holds(node, lookup),
        // Not reached, because every query refuses a filter that is nested too deeply.
        Node::TooDeep => false,
    }
}

#[cfg(test)]
mod tests;

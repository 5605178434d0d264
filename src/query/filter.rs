//! What an entity must be like to be found: a tree of comparisons.
//!
//! Invariants
//! * every comparison has a property on its left and a literal on its right;
//! * `And` and `Or` hold two or more, and none of their own kind directly; [`Filter::and`] and [`Filter::or`] see to it;
//! * a tree is at most [`DEPTH_MAX`] deep, so that recursion over it is bounded: a deeper one becomes
//!   `TooDeep`, which every query refuses.
//!
//! Not here: the text form (`parse`), what a comparison means (`compare`), key intervals (`plan`).

use crate::model::Value;

/// How deep a tree may be.
pub(crate) const DEPTH_MAX: usize = 128;

/// A condition on entities; the empty filter is met by all.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    node: Node,
}

/// A part of a filter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    /// Met by every entity.
    All,
    Compare(Comparison),
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    /// What was here was nested too deeply.
    TooDeep,
}

/// `property op value`.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    pub(crate) property: Property,
    pub(crate) op: CompareOp,
    pub(crate) value: Value,
}

/// What is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Property {
    PartitionKey,
    RowKey,
    Timestamp,
    /// Any other name, also one that no property can have.
    Named(Box<str>),
}

/// How it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompareOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Filter {
    /// The tree.
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }
}

impl PartialEq for Comparison {
    /// Literals are equal if they are the same bits: a NaN equals itself here.
    fn eq(&self, other: &Self) -> bool {
        let same = match (&self.value, &other.value) {
            (Value::Double(a), Value::Double(b)) => a.to_bits() == b.to_bits(),
            (a, b) => a == b,
        };
        same && self.op == other.op && self.property == other.property
    }
}

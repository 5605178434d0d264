//! The tree of a filter: comparisons of a property with a literal, under `and`, `or` and `not`.
//!
//! Invariants
//! * every comparison has a property on its left and a literal on its right;
//! * `And` and `Or` have at least two nodes, none of their own kind; [`Node::and`] and [`Node::or`]
//!   ensure this;
//! * `All`, which matches every entity, has no parent;
//! * a tree is at most [`DEPTH_MAX`] deep, so that recursion over it is bounded. A deeper tree
//!   becomes `TooDeep`, which has no parent, and which every query refuses.

use crate::model::{Entity, Value, ValueRef};
use crate::named::named;

/// The maximum depth of a tree.
pub(crate) const DEPTH_MAX: usize = 128;

/// A part of a filter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    /// Matches every entity.
    All,
    Compare(Comparison),
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    /// Stands for a tree that was nested too deeply and was discarded.
    TooDeep,
}

/// The comparison `property op value`.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    pub(crate) property: Property,
    pub(crate) op: CompareOp,
    pub(crate) value: Value,
}

/// The compared property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Property {
    PartitionKey,
    RowKey,
    Timestamp,
    /// Any other name, even one that no property can have.
    Named(Box<str>),
}

named! {
    /// The operator of a comparison.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum CompareOp {
        Eq "eq",
        Ne "ne",
        Lt "lt",
        Le "le",
        Gt "gt",
        Ge "ge",
    }

    /// Returns the operator in filter text.
    pub(crate) fn word;
    pub(crate) const ALL;
}

impl Node {
    /// Returns the number of comparisons in the tree.
    pub(crate) fn comparisons(&self) -> usize {
        match self {
            Node::All | Node::TooDeep => 0,
            Node::Compare(_) => 1,
            Node::And(nodes) | Node::Or(nodes) => nodes.iter().map(Node::comparisons).sum(),
            Node::Not(inner) => inner.comparisons(),
        }
    }

    /// Returns the comparison `property op value`.
    pub(crate) fn compare(property: Property, op: CompareOp, value: Value) -> Node {
        let value = match value {
            // All NaNs compare and print alike, so one represents all of them.
            Value::Double(number) if number.is_nan() => Value::Double(f64::NAN),
            value => value,
        };
        Node::Compare(Comparison { property, op, value })
    }

    /// Returns a node that matches no entity, because a key is a string and never equals a Boolean.
    /// Unlike a `not` of `All`, this node can be printed as text.
    pub(crate) fn none() -> Node {
        Node::compare(Property::PartitionKey, CompareOp::Eq, Value::Boolean(false))
    }

    pub(crate) fn and(self, other: Node) -> Node {
        match (self, other) {
            (Node::TooDeep, _) | (_, Node::TooDeep) => Node::TooDeep,
            (Node::All, node) | (node, Node::All) => node,
            (Node::And(mut nodes), Node::And(more)) => {
                nodes.extend(more);
                Node::And(nodes)
            }
            (Node::And(nodes), node) => node.joined(nodes, true, Node::And),
            (node, Node::And(nodes)) => node.joined(nodes, false, Node::And),
            (a, b) if a.has_room_above() && b.has_room_above() => Node::And(vec![a, b]),
            _ => Node::TooDeep,
        }
    }

    pub(crate) fn or(self, other: Node) -> Node {
        match (self, other) {
            (Node::TooDeep, _) | (_, Node::TooDeep) => Node::TooDeep,
            (Node::All, _) | (_, Node::All) => Node::All,
            (Node::Or(mut nodes), Node::Or(more)) => {
                nodes.extend(more);
                Node::Or(nodes)
            }
            (Node::Or(nodes), node) => node.joined(nodes, true, Node::Or),
            (node, Node::Or(nodes)) => node.joined(nodes, false, Node::Or),
            (a, b) if a.has_room_above() && b.has_room_above() => Node::Or(vec![a, b]),
            _ => Node::TooDeep,
        }
    }

    /// Makes a list of this node and `nodes` with the constructor `list` (`And` or `Or`). This node
    /// becomes the last of the list if `is_last`, otherwise the first.
    fn joined(self, mut nodes: Vec<Node>, is_last: bool, list: fn(Vec<Node>) -> Node) -> Node {
        if !self.has_room_above() {
            return Node::TooDeep;
        }
        nodes.insert(if is_last { nodes.len() } else { 0 }, self);
        list(nodes)
    }

    pub(crate) fn negated(self) -> Node {
        match self {
            Node::All => Node::none(),
            node if node.has_room_above() => Node::Not(Box::new(node)),
            _ => Node::TooDeep,
        }
    }

    /// Whether this node may get a parent without making the tree too deep.
    ///
    /// Computing the depth visits the whole node. Adding a node to an existing `And` or `Or` visits
    /// the node, but not the list. So building a list takes time proportional to its parts.
    fn has_room_above(&self) -> bool {
        !matches!(self, Node::TooDeep) && self.depth() < DEPTH_MAX
    }

    fn depth(&self) -> usize {
        match self {
            Node::All | Node::Compare(_) | Node::TooDeep => 1,
            Node::And(nodes) | Node::Or(nodes) => {
                1 + nodes.iter().map(Node::depth).max().unwrap_or(0)
            }
            Node::Not(node) => 1 + node.depth(),
        }
    }
}

impl Property {
    /// Returns the value that `entity` has; `None` if it lacks the property.
    pub(crate) fn of<'e>(&self, entity: &'e Entity) -> Option<ValueRef<'e>> {
        match self {
            Property::PartitionKey => Some(ValueRef::String(entity.partition_key())),
            Property::RowKey => Some(ValueRef::String(entity.row_key())),
            Property::Timestamp => entity.timestamp().map(ValueRef::DateTime),
            Property::Named(name) => entity.value(name),
        }
    }
}

impl From<&str> for Property {
    fn from(name: &str) -> Self {
        match name {
            "PartitionKey" => Property::PartitionKey,
            "RowKey" => Property::RowKey,
            "Timestamp" => Property::Timestamp,
            _ => Property::Named(name.into()),
        }
    }
}

impl PartialEq for Comparison {
    /// Compares literals by their bits, so that a NaN equals itself.
    fn eq(&self, other: &Self) -> bool {
        let same = match (&self.value, &other.value) {
            (Value::Double(a), Value::Double(b)) => a.to_bits() == b.to_bits(),
            (a, b) => a == b,
        };
        same && self.op == other.op && self.property == other.property
    }
}

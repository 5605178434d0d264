//! The public type [`Filter`], which wraps a tree of comparisons, and its conversion from and to
//! text.
//!
//! Invariant: the text of a filter parses back to the same filter, or does not parse at all.
//!
//! `parse` parses texts, `compare` defines the semantics of comparisons, `plan` finds key
//! intervals.

use std::fmt;
use std::str::FromStr;

use crate::error::{Code, Error, Result};
use crate::model::keys::prefix_end;
use crate::model::{Entity, Value};

use super::tree::{CompareOp, Comparison, DEPTH_MAX, Node, Property};
use super::{compare, parse};

/// A condition on entities; the empty filter matches all.
///
/// A filter is built with [`prop`], or parsed from a text in the filter language of Azure Table
/// storage. It prints as text in this language. Values passed to [`prop`] are never parsed, so
/// quotes in them are safe.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// use rowstone::{Entity, Filter, prop};
///
/// let parsed: Filter = "PartitionKey eq 'bolts' and (Price lt 0.5 or not Coated)".parse()?;
/// let built = Filter::partition("bolts").and(prop("Price").lt(0.5).or(!prop("Coated").eq(true)));
/// assert_eq!(parsed, built);
/// assert_eq!(
///     built.to_string(),
///     "PartitionKey eq 'bolts' and (Price lt 0.5 or not (Coated eq true))"
/// );
/// assert!(built.matches(&Entity::new("bolts", "m4x20").with("Price", 0.12)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    node: Node,
}

/// A property, to be compared with a value.
#[derive(Clone, Debug)]
pub struct Prop(Property);

/// Returns the property of this name; `PartitionKey`, `RowKey` and `Timestamp` are the system
/// properties.
///
/// ```
/// use rowstone::prop;
/// assert_eq!(prop("Stock").ge(1_200).to_string(), "Stock ge 1200");
/// assert_eq!(prop("Maker").eq("O'Brien").to_string(), "Maker eq 'O''Brien'");
/// ```
pub fn prop(name: &str) -> Prop {
    Prop(Property::from(name))
}

impl Filter {
    /// Returns the filter that matches every entity.
    pub fn all() -> Filter {
        Filter { node: Node::All }
    }

    /// Returns the filter for the entities of one partition.
    pub fn partition(key: impl Into<String>) -> Filter {
        Prop(Property::PartitionKey).eq(key.into())
    }

    /// Returns the filter for the one entity with these keys.
    pub fn row(partition_key: impl Into<String>, row_key: impl Into<String>) -> Filter {
        Filter::partition(partition_key).and(Prop(Property::RowKey).eq(row_key.into()))
    }

    /// Returns the filter for the entities of one partition with RowKeys that start with `prefix`.
    ///
    /// ```
    /// use rowstone::Filter;
    /// assert_eq!(
    ///     Filter::row_prefix("bolts", "m4").to_string(),
    ///     "PartitionKey eq 'bolts' and RowKey ge 'm4' and RowKey lt 'm5'"
    /// );
    /// ```
    pub fn row_prefix(partition_key: impl Into<String>, prefix: &str) -> Filter {
        Filter::partition(partition_key).and(Prop(Property::RowKey).starts_with(prefix))
    }

    /// Returns the filter for the entities of the partitions with keys that start with `prefix`.
    ///
    /// ```
    /// use rowstone::Filter;
    /// assert_eq!(
    ///     Filter::partition_prefix("UA-").to_string(),
    ///     "PartitionKey ge 'UA-' and PartitionKey lt 'UA.'"
    /// );
    /// ```
    pub fn partition_prefix(prefix: &str) -> Filter {
        Prop(Property::PartitionKey).starts_with(prefix)
    }

    /// Returns the filter for entities that meet at least one of `filters`. Without filters it
    /// matches nothing.
    ///
    /// ```
    /// use rowstone::Filter;
    /// let points = ["m4", "m5"].map(|size| Filter::row("bolts", size));
    /// assert_eq!(Filter::any(points).to_string().matches(" or ").count(), 1);
    /// ```
    pub fn any(filters: impl IntoIterator<Item = Filter>) -> Filter {
        filters.into_iter().reduce(Filter::or).unwrap_or(Filter { node: Node::none() })
    }

    /// Returns the filter for entities that meet all of `filters`. Without filters it matches every
    /// entity.
    pub fn every(filters: impl IntoIterator<Item = Filter>) -> Filter {
        filters.into_iter().fold(Filter::all(), Filter::and)
    }

    /// Returns the filter for entities that meet both filters.
    #[must_use]
    pub fn and(self, other: Filter) -> Filter {
        Filter { node: self.node.and(other.node) }
    }

    /// Returns the filter for entities that meet at least one of the two filters.
    #[must_use]
    pub fn or(self, other: Filter) -> Filter {
        Filter { node: self.node.or(other.node) }
    }

    /// Returns the filter for entities that do not meet this filter. They include the entities
    /// without the compared property. The same as `!filter`.
    #[expect(clippy::should_implement_trait, reason = "it is implemented; this needs no import")]
    #[must_use]
    pub fn not(self) -> Filter {
        Filter { node: self.node.negated() }
    }

    /// Whether `entity` meets the filter. An entity that was not read from a table has no
    /// Timestamp, so every comparison with its Timestamp is false.
    pub fn matches(&self, entity: &Entity) -> bool {
        compare::holds(&self.node, &|property| property.of(entity))
    }

    /// Parses a filter. An error includes the index of the character that it refers to, if there is
    /// one.
    #[cfg(feature = "cli")]
    pub(crate) fn parse_placed(text: &str) -> Result<Filter, (Error, Option<usize>)> {
        parse::parse_placed(text).map(|node| Filter { node })
    }

    /// Returns the tree of the filter.
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// Returns an error if the filter was nested too deeply. Its tree has then been replaced by
    /// [`Node::TooDeep`].
    pub(crate) fn check(&self) -> Result<()> {
        match self.node {
            Node::TooDeep => {
                let message = format!("the filter is nested more than {DEPTH_MAX} deep");
                Err(Error::refused_with(Code::InvalidInput, message))
            }
            _ => Ok(()),
        }
    }
}

impl Prop {
    /// Returns a filter: the property is a key, and starts with `prefix`.
    fn starts_with(self, prefix: &str) -> Filter {
        let from = self.clone().ge(prefix);
        match prefix_end(prefix) {
            Some(end) => from.and(self.lt(end)),
            None => from,
        }
    }

    /// Returns a filter: the property is equal to `value` and of a matching type.
    pub fn eq(self, value: impl Into<Value>) -> Filter {
        self.compare(CompareOp::Eq, value.into())
    }

    /// Returns a filter: the property is present, and it is of another type or not equal to
    /// `value`.
    pub fn ne(self, value: impl Into<Value>) -> Filter {
        self.compare(CompareOp::Ne, value.into())
    }

    /// Returns a filter: the property is present, and it is of another type or less than `value`.
    pub fn lt(self, value: impl Into<Value>) -> Filter {
        self.compare(CompareOp::Lt, value.into())
    }

    /// Returns a filter: the property is present, and it is of another type or at most `value`.
    pub fn le(self, value: impl Into<Value>) -> Filter {
        self.compare(CompareOp::Le, value.into())
    }

    /// Returns a filter: the property is greater than `value` and of a matching type.
    pub fn gt(self, value: impl Into<Value>) -> Filter {
        self.compare(CompareOp::Gt, value.into())
    }

    /// Returns a filter: the property is at least `value` and of a matching type.
    pub fn ge(self, value: impl Into<Value>) -> Filter {
        self.compare(CompareOp::Ge, value.into())
    }

    fn compare(self, op: CompareOp, value: Value) -> Filter {
        Filter { node: Node::compare(self.0, op, value) }
    }
}

impl std::ops::Not for Filter {
    type Output = Filter;

    fn not(self) -> Filter {
        Filter::not(self)
    }
}

impl Default for Filter {
    fn default() -> Self {
        Filter::all()
    }
}

impl FromStr for Filter {
    type Err = Error;

    /// Parses a filter. A blank text is the filter that matches every entity.
    fn from_str(text: &str) -> Result<Filter> {
        parse::parse(text).map(|node| Filter { node })
    }
}

macro_rules! parsed_from {
    ($($text:ty),*) => {
        $(impl TryFrom<$text> for Filter {
            type Error = Error;

            fn try_from(text: $text) -> Result<Filter> {
                text.parse()
            }
        })*
    };
}
parsed_from!(&str, String, &String);

/// Prints the text that parses back to the filter; empty for the filter that matches every entity.
///
/// The language cannot express every property name: some names are not identifiers, and some are
/// words of the language. Such a name is printed in braces, and the text does not parse.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.node, f)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::All => Ok(()),
            Node::Compare(Comparison { property, op, value }) => {
                write!(f, "{property} {op} ")?;
                write_literal(f, value)
            }
            Node::And(nodes) => write_list(f, nodes, " and ", |node| matches!(node, Node::Or(_))),
            Node::Or(nodes) => write_list(f, nodes, " or ", |_| false),
            Node::Not(node) => write!(f, "not ({node})"),
            Node::TooDeep => f.write_str("{nested too deeply}"),
        }
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Property::PartitionKey => f.write_str("PartitionKey"),
            Property::RowKey => f.write_str("RowKey"),
            Property::Timestamp => f.write_str("Timestamp"),
            Property::Named(name) if parse::is_name(name) => f.write_str(name),
            Property::Named(name) => write!(f, "{{{name}}}"),
        }
    }
}

impl fmt::Display for CompareOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

fn write_list(
    f: &mut fmt::Formatter<'_>,
    nodes: &[Node],
    between: &str,
    needs_parentheses: impl Fn(&Node) -> bool,
) -> fmt::Result {
    for (i, node) in nodes.iter().enumerate() {
        if i > 0 {
            f.write_str(between)?;
        }
        if needs_parentheses(node) {
            write!(f, "({node})")?;
        } else {
            fmt::Display::fmt(node, f)?;
        }
    }
    Ok(())
}

fn write_literal(f: &mut fmt::Formatter<'_>, value: &Value) -> fmt::Result {
    match value {
        Value::String(text) => write!(f, "'{}'", text.replace('\'', "''")),
        Value::Binary(bytes) => {
            f.write_str("X'")?;
            bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
            f.write_str("'")
        }
        Value::Boolean(value) => write!(f, "{value}"),
        Value::Int32(value) => write!(f, "{value}"),
        Value::Int64(value) => write!(f, "{value}L"),
        Value::Double(value) if *value == f64::INFINITY => f.write_str("INF"),
        Value::Double(value) if *value == f64::NEG_INFINITY => f.write_str("-INF"),
        // `Debug` always prints a point or an exponent, and the fewest digits that read back as the
        // same number.
        Value::Double(value) => write!(f, "{value:?}"),
        Value::DateTime(time) => write!(f, "datetime'{time}'"),
        Value::Guid(guid) => write!(f, "guid'{guid}'"),
    }
}

#[cfg(test)]
mod tests;

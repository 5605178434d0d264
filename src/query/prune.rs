//! Evaluates a filter on zones, the summaries of the values in each block: finds the blocks in
//! which no visible row can match, and the blocks in which every row matches.
//!
//! Invariants
//! * a clear bit of a mask is certain: no row has this result. A set bit proves nothing;
//! * masks cover all versions in a block, so they are valid for every version that a reader may
//!   see.
//!
//! `lsm` decides whether a block may be skipped, because other files may have newer versions of its
//! rows. `sst` creates zones.

use crate::codec::shared_len;
use crate::format::zones::{
    Column, ZoneSet, bytes_key, double_key, head, int_key, is_cut_text, is_exact, presence,
};
use crate::model::{EdmType, Value, utf16_rank};

use super::tree::{CompareOp, Comparison, Node, Property};

/// One bit for each entry of a set of zones, the first entry in the lowest bit; other bits are
/// clear. An entry describes the rows of a block, or of several blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Masks {
    /// The entries in which some row may meet the filter.
    pub(crate) maybe_true: u64,
    /// The entries in which some row may fail the filter.
    pub(crate) maybe_false: u64,
}

/// How all values of a column in a block compare with a literal, or how to compare them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Against {
    /// All values are less. Also used if the values are of another type than the literal.
    Below,
    Above,
    /// The literal is NaN: no value is less, greater or equal.
    Unordered,
    /// Values and the literal are compared by their order keys, the numbers that zones store. `key`
    /// is the order key of the literal. Equal order keys mean equal values only if `exact`.
    Key {
        key: u64,
        exact: bool,
    },
}

/// Evaluates `node` on the zones in `set`.
pub(crate) fn masks(node: &Node, set: &ZoneSet<'_>) -> Masks {
    let all = u64::MAX >> (64 - set.len());
    match node {
        Node::All => Masks { maybe_true: all, maybe_false: 0 },
        Node::TooDeep => Masks { maybe_true: all, maybe_false: all },
        Node::Compare(comparison) => compare(comparison, set, all),
        Node::And(parts) => all_of(parts.iter().map(|part| masks(part, set)), all),
        // An `or` is the complement of the `and` of the complements.
        Node::Or(parts) => all_of(parts.iter().map(|part| masks(part, set).not()), all).not(),
        Node::Not(part) => masks(part, set).not(),
    }
}

/// Returns the masks of an `and`.
fn all_of(parts: impl Iterator<Item = Masks>, all: u64) -> Masks {
    parts.fold(Masks { maybe_true: all, maybe_false: 0 }, |a, b| Masks {
        maybe_true: a.maybe_true & b.maybe_true,
        maybe_false: a.maybe_false | b.maybe_false,
    })
}

impl Masks {
    fn not(self) -> Masks {
        Masks { maybe_true: self.maybe_false, maybe_false: self.maybe_true }
    }
}

fn compare(comparison: &Comparison, set: &ZoneSet<'_>, all: u64) -> Masks {
    let Comparison { property, op, value } = comparison;
    match property {
        // Zones do not describe keys, so the result is unknown. The plan restricts the keys to be
        // read.
        Property::PartitionKey | Property::RowKey => Masks { maybe_true: all, maybe_false: all },
        Property::Timestamp => {
            meets(*op, against(EdmType::DateTime, &[], value), (set.seq_min, set.seq_max), all, 0)
        }
        Property::Named(name) => {
            let mut result = Masks { maybe_true: 0, maybe_false: 0 };
            let mut every = 0;
            for column in set.columns_named(name) {
                let of = meets_column(*op, &column, value);
                result.maybe_true |= of.maybe_true;
                result.maybe_false |= of.maybe_false;
                every |= bits(column.presence, presence::ALL);
            }
            // For a row without the property, any comparison is false. If the set of zones is
            // incomplete, zones may be missing for some types, so a row may have a value that no
            // zone describes.
            result.maybe_false |= all & !every;
            if !set.is_complete {
                result.maybe_true |= all & !every;
            }
            result
        }
    }
}

fn meets_column(op: CompareOp, column: &Column<'_>, value: &Value) -> Masks {
    let some = bits(column.presence, presence::SOME);
    let nan = bits(column.presence, presence::NAN);
    meets(op, against(column.edm, column.prefix, value), (column.min, column.max), some, nan)
}

/// Returns masks for a comparison with a literal. `some` is the mask of the blocks with values,
/// which are between `min` and `max`; `nan` is the mask of the blocks with NaNs.
fn meets(
    op: CompareOp,
    against: Against,
    (min, max): (&[[u8; 8]], &[[u8; 8]]),
    some: u64,
    nan: u64,
) -> Masks {
    let (below, equal, above, unordered) = match against {
        Against::Below => (some, 0, 0, 0),
        Against::Above => (0, 0, some, 0),
        Against::Unordered => (0, 0, 0, some),
        Against::Key { key, exact } => {
            let (least, most) = (mask(min, |min| min <= key), mask(max, |max| max >= key));
            let (below, above) = match exact {
                true => (mask(min, |min| min < key), mask(max, |max| max > key)),
                // Without exact order keys, a value with the same order key as the literal may be
                // less, equal or greater.
                false => (least, most),
            };
            // A block in which all values are NaN has a minimum above its maximum.
            let numbers = some & !(nan & mask_pairs(min, max, |min, max| min > max));
            (below & numbers, least & most & numbers, above & numbers, nan & some)
        }
    };
    let (yes, no) = match op {
        CompareOp::Eq => (equal, below | above | unordered),
        CompareOp::Ne => (below | above | unordered, equal),
        CompareOp::Lt => (below, equal | above | unordered),
        CompareOp::Le => (below | equal, above | unordered),
        CompareOp::Gt => (above, below | equal | unordered),
        CompareOp::Ge => (above | equal, below | unordered),
    };
    Masks { maybe_true: yes, maybe_false: no }
}

/// Returns how values of the type `edm` compare with a literal. All of the values begin with
/// `prefix`.
fn against(edm: EdmType, prefix: &[u8], literal: &Value) -> Against {
    let exact = is_exact(edm);
    let key = |key| Against::Key { key, exact };
    let double = |value| double_key(value).map_or(Against::Unordered, key);
    match (edm, literal) {
        (EdmType::String, Value::String(text)) => text_against(edm, prefix, text.as_bytes()),
        (EdmType::Binary, Value::Binary(bytes)) => text_against(edm, prefix, bytes),
        (EdmType::Boolean, Value::Boolean(value)) => key(u64::from(*value)),
        (EdmType::Int32 | EdmType::Int64, Value::Int32(value)) => key(int_key((*value).into())),
        (EdmType::Int64, Value::Int64(value)) => key(int_key(*value)),
        (EdmType::Double, Value::Int32(value)) => double((*value).into()),
        (EdmType::Double, Value::Int64(value)) => double(*value as f64),
        (EdmType::Double, Value::Double(value)) => double(*value),
        (EdmType::DateTime, Value::DateTime(value)) => key(value.ticks()),
        (EdmType::Guid, Value::Guid(value)) => {
            key(bytes_key(value.as_bytes().first_chunk().copied().unwrap_or_default()))
        }
        _ => Against::Below,
    }
}

fn text_against(edm: EdmType, prefix: &[u8], literal: &[u8]) -> Against {
    debug_assert!(is_cut_text(edm));
    let shared = shared_len(prefix, literal);
    let rank = |byte: u8| if edm == EdmType::String { utf16_rank(byte) } else { byte };
    match (prefix.get(shared), literal.get(shared)) {
        (None, _) => {
            let key = head(edm, literal.get(shared..).unwrap_or_default());
            Against::Key { key, exact: false }
        }
        (Some(prefix), Some(literal)) if rank(*prefix) < rank(*literal) => Against::Below,
        (Some(_), _) => Against::Above,
    }
}

/// Returns a mask of the entries for which the byte has `bit`.
fn bits(bytes: &[u8], bit: u8) -> u64 {
    bytes.iter().enumerate().map(|(i, byte)| u64::from(byte & bit != 0) << i).fold(0, |a, b| a | b)
}

/// Returns a mask of the entries for which the number passes `test`.
#[inline]
fn mask(numbers: &[[u8; 8]], test: impl Fn(u64) -> bool) -> u64 {
    let set = numbers.iter().enumerate();
    set.fold(0, |mask, (i, number)| mask | u64::from(test(u64::from_le_bytes(*number))) << i)
}

#[inline]
fn mask_pairs(a: &[[u8; 8]], b: &[[u8; 8]], test: impl Fn(u64, u64) -> bool) -> u64 {
    a.iter().zip(b).enumerate().fold(0, |mask, (i, (a, b))| {
        mask | u64::from(test(u64::from_le_bytes(*a), u64::from_le_bytes(*b))) << i
    })
}

#[cfg(test)]
mod tests;

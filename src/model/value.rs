//! Typed values: the eight EDM types, owned and borrowed.

use std::cmp::Ordering;
use std::fmt;

use super::datetime::DateTime;
use super::guid::Guid;
use crate::named::named;

named! {
    /// The type of a property. The numbers are the codes on disk.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum EdmType {
        /// Text of at most 32,768 UTF-16 units.
        String = 1 "Edm.String",
        /// At most 65,536 bytes.
        Binary = 2 "Edm.Binary",
        /// True or false.
        Boolean = 3 "Edm.Boolean",
        /// A 32-bit integer.
        Int32 = 4 "Edm.Int32",
        /// A 64-bit integer.
        Int64 = 5 "Edm.Int64",
        /// An IEEE 754 double.
        Double = 6 "Edm.Double",
        /// A point in time between the years 1601 and 9999.
        DateTime = 7 "Edm.DateTime",
        /// A 128-bit identifier.
        Guid = 8 "Edm.Guid",
    }

    /// Returns the name in payloads: `Edm.Int64`.
    pub fn name;
    pub const ALL;
}

/// A typed value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Edm.String
    String(String),
    /// Edm.Binary
    Binary(Vec<u8>),
    /// Edm.Boolean
    Boolean(bool),
    /// Edm.Int32
    Int32(i32),
    /// Edm.Int64
    Int64(i64),
    /// Edm.Double
    Double(f64),
    /// Edm.DateTime
    DateTime(DateTime),
    /// Edm.Guid
    Guid(Guid),
}

/// A typed value that borrows its text or bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueRef<'a> {
    /// Edm.String
    String(&'a str),
    /// Edm.Binary
    Binary(&'a [u8]),
    /// Edm.Boolean
    Boolean(bool),
    /// Edm.Int32
    Int32(i32),
    /// Edm.Int64
    Int64(i64),
    /// Edm.Double
    Double(f64),
    /// Edm.DateTime
    DateTime(DateTime),
    /// Edm.Guid
    Guid(Guid),
}

impl EdmType {
    /// Returns the type with this name.
    pub fn from_name(name: &str) -> Option<EdmType> {
        EdmType::ALL.into_iter().find(|edm| edm.name() == name)
    }

    /// Returns the type with this code on disk.
    pub(crate) fn from_code(code: u8) -> Option<EdmType> {
        EdmType::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// Returns the width of a value in a row, in bytes; `None` if it depends on the value.
    pub(crate) fn fixed_width(self) -> Option<usize> {
        match self {
            EdmType::String | EdmType::Binary => None,
            EdmType::Boolean => Some(1),
            EdmType::Int32 => Some(4),
            EdmType::Int64 | EdmType::Double | EdmType::DateTime => Some(8),
            EdmType::Guid => Some(16),
        }
    }
}

impl fmt::Display for EdmType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Value {
    /// Returns the value, borrowing its text or bytes.
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Value::String(text) => ValueRef::String(text),
            Value::Binary(bytes) => ValueRef::Binary(bytes),
            Value::Boolean(value) => ValueRef::Boolean(*value),
            Value::Int32(value) => ValueRef::Int32(*value),
            Value::Int64(value) => ValueRef::Int64(*value),
            Value::Double(value) => ValueRef::Double(*value),
            Value::DateTime(value) => ValueRef::DateTime(*value),
            Value::Guid(value) => ValueRef::Guid(*value),
        }
    }

    /// Returns the type of the value.
    pub fn edm_type(&self) -> EdmType {
        self.as_ref().edm_type()
    }
}

impl<'a> ValueRef<'a> {
    /// Returns the type of the value.
    #[inline]
    pub fn edm_type(self) -> EdmType {
        match self {
            ValueRef::String(_) => EdmType::String,
            ValueRef::Binary(_) => EdmType::Binary,
            ValueRef::Boolean(_) => EdmType::Boolean,
            ValueRef::Int32(_) => EdmType::Int32,
            ValueRef::Int64(_) => EdmType::Int64,
            ValueRef::Double(_) => EdmType::Double,
            ValueRef::DateTime(_) => EdmType::DateTime,
            ValueRef::Guid(_) => EdmType::Guid,
        }
    }

    /// Returns a copy that owns its text or bytes.
    pub fn to_value(self) -> Value {
        match self {
            ValueRef::String(text) => Value::String(text.to_owned()),
            ValueRef::Binary(bytes) => Value::Binary(bytes.to_owned()),
            ValueRef::Boolean(value) => Value::Boolean(value),
            ValueRef::Int32(value) => Value::Int32(value),
            ValueRef::Int64(value) => Value::Int64(value),
            ValueRef::Double(value) => Value::Double(value),
            ValueRef::DateTime(value) => Value::DateTime(value),
            ValueRef::Guid(value) => Value::Guid(value),
        }
    }

    /// Returns the bytes of a value of variable width in a row; empty for the other types.
    #[inline]
    pub(crate) fn variable_bytes(self) -> &'a [u8] {
        match self {
            ValueRef::String(text) => text.as_bytes(),
            ValueRef::Binary(bytes) => bytes,
            _ => &[],
        }
    }
}

/// Returns the number of UTF-16 units of `text`, the unit of all limits on text.
#[inline]
pub(crate) fn utf16_len(text: &str) -> usize {
    utf16_units(text.as_bytes())
}

/// As [`utf16_len`], for the UTF-8 bytes of a text.
#[inline]
pub(crate) fn utf16_units(text: &[u8]) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    // A character has one unit, or two units if it has four bytes in UTF-8.
    text.iter().map(|&byte| usize::from(byte & 0xc0 != 0x80) + usize::from(byte >= 0xf0)).sum()
}

/// Maps each byte of a UTF-8 text so that the mapped texts sort by UTF-16 unit. In UTF-16,
/// characters above U+FFFF sort below U+E000, so the bytes EE and EF are mapped above F4.
#[inline]
pub(crate) fn utf16_rank(byte: u8) -> u8 {
    if matches!(byte, 0xee | 0xef) { byte + 7 } else { byte }
}

/// Compares two texts, given as UTF-8, by UTF-16 unit.
#[inline]
pub(crate) fn utf16_cmp(a: &[u8], b: &[u8]) -> Ordering {
    let mut start = 0;
    // Compares eight bytes at a time up to the first difference; in a little-endian word the first
    // byte is the lowest.
    while let (Some(x), Some(y)) =
        (a.get(start..).and_then(<[u8]>::first_chunk), b.get(start..).and_then(<[u8]>::first_chunk))
    {
        let differ = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differ != 0 {
            let at = start + differ.trailing_zeros() as usize / 8;
            return utf16_rank(a[at]).cmp(&utf16_rank(b[at]));
        }
        start += 8;
    }
    let (a, b) = (a.get(start..).unwrap_or_default(), b.get(start..).unwrap_or_default());
    match a.iter().zip(b).find(|(x, y)| x != y) {
        Some((x, y)) => utf16_rank(*x).cmp(&utf16_rank(*y)),
        None => a.len().cmp(&b.len()),
    }
}

/// Reverts [`utf16_rank`] in a text that may be damaged. Bytes that `utf16_rank` never returns
/// become bytes that are invalid in UTF-8.
#[inline]
pub(crate) fn utf16_unrank_in_place(text: &mut [u8]) {
    if text.is_ascii() {
        return;
    }
    for byte in text {
        *byte = match *byte {
            0xf5 | 0xf6 => *byte - 7,
            0xee | 0xef => 0xff,
            other => other,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn codes_and_names_are_distinct_and_parse_back() {
        for (i, edm) in EdmType::ALL.into_iter().enumerate() {
            assert_eq!(edm as usize, i + 1);
            assert_eq!(EdmType::from_code(edm as u8), Some(edm));
            assert_eq!(EdmType::from_name(edm.name()), Some(edm));
        }
        assert_eq!((EdmType::from_code(0), EdmType::from_code(9)), (None, None));
    }

    /// Characters at which the number of bytes in UTF-8 or of units in UTF-16 changes.
    const EDGES: [char; 16] = [
        ' ',
        'a',
        '~',
        '\u{a0}',
        '\u{7ff}',
        '\u{800}',
        '\u{d7ff}',
        '\u{e000}',
        '\u{efff}',
        '\u{f000}',
        '\u{fffd}',
        '\u{ffff}',
        '\u{10000}',
        '\u{1f600}',
        '\u{40000}',
        '\u{10ffff}',
    ];

    #[test]
    fn trap_21_order_is_that_of_utf16_units() {
        let mut rng = Rng::from_seed(21);
        let mut text = || -> String { (0..rng.below(5)).map(|_| *rng.pick(&EDGES)).collect() };
        for _ in 0..50_000 {
            let (a, b) = (text(), text());
            let ranks = a.bytes().map(utf16_rank).cmp(b.bytes().map(utf16_rank));
            assert_eq!(ranks, a.encode_utf16().cmp(b.encode_utf16()), "{a:?} {b:?}");
            assert_eq!(utf16_len(&a), a.encode_utf16().count());
        }
    }

    /// Tests pairs of texts that consist of a common prefix and two random ends. The prefix is
    /// shorter or longer than the eight bytes that are compared at a time.
    #[test]
    fn trap_21_texts_compare_in_place_as_utf16_units_do() {
        let mut rng = Rng::from_seed(22);
        for _ in 0..50_000 {
            let start: String = (0..rng.below(20)).map(|_| *rng.pick(&EDGES)).collect();
            let mut text = || -> String {
                let end = (0..rng.below(4)).map(|_| *rng.pick(&EDGES));
                start.chars().chain(end).collect()
            };
            let (a, b) = (text(), text());
            let expected = a.encode_utf16().cmp(b.encode_utf16());
            assert_eq!(utf16_cmp(a.as_bytes(), b.as_bytes()), expected, "{a:?} {b:?}");
        }
    }
}

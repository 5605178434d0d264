//! A contiguous span of user keys. FORMAT.md §span.
//!
//! Invariants
//! * `low` is inclusive and `high` exclusive, so adjacent spans share a bound but no key;
//! * a span without a high bound has no end.

use std::fmt;

use crate::codec::{Cursor, DecodeError, put_bytes};

use super::field::Content;
use super::key::{table_end, table_start};
use super::names::TableId;

/// The user keys from `low` (inclusive) to `high` (exclusive).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    pub(crate) low: Box<[u8]>,
    /// The exclusive upper bound; `None` means no end.
    pub(crate) high: Option<Box<[u8]>>,
}

/// Returns the span of all keys of a table.
pub(crate) fn whole_table(table: TableId) -> Span {
    Span::new(&table_start(table), Some(&table_end(table)))
}

impl Span {
    /// Returns the span of all keys.
    pub(crate) fn all() -> Self {
        Self { low: Box::default(), high: None }
    }

    /// Returns the span from `low` (inclusive) to `high` (exclusive).
    pub(crate) fn new(low: &[u8], high: Option<&[u8]>) -> Self {
        Self { low: low.into(), high: high.map(Into::into) }
    }

    /// Returns the span from `first` to `last`, both inclusive.
    pub(crate) fn inclusive(first: &[u8], last: &[u8]) -> Self {
        // No other key is between `last` and `last` followed by a zero byte.
        let mut high = Vec::with_capacity(last.len() + 1);
        high.extend_from_slice(last);
        high.push(0);
        Self { low: first.into(), high: Some(high.into()) }
    }

    /// Whether the span contains no key.
    pub(crate) fn is_empty(&self) -> bool {
        self.ends_before(&self.low)
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        key >= &*self.low && !self.ends_before(key)
    }

    /// Whether the whole span is below `key`.
    pub(crate) fn ends_before(&self, key: &[u8]) -> bool {
        self.high.as_deref().is_some_and(|high| high <= key)
    }

    /// Whether a key can be in both spans.
    pub(crate) fn overlaps(&self, other: &Span) -> bool {
        !self.ends_before(&other.low)
            && !other.ends_before(&self.low)
            && !self.is_empty()
            && !other.is_empty()
    }

    /// Whether every key of `other` is in `self`.
    pub(crate) fn covers(&self, other: &Span) -> bool {
        let high_inside = match (&self.high, &other.high) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(outer), Some(inner)) => inner <= outer,
        };
        self.low <= other.low && high_inside
    }

    /// Returns the intersection; `None` if it is empty.
    pub(crate) fn intersect(&self, other: &Span) -> Option<Span> {
        let low = self.low.as_ref().max(&other.low);
        let high = match (self.high.as_deref(), other.high.as_deref()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let span = Span::new(low, high);
        let is_part = self.covers(&span) && other.covers(&span);
        debug_assert!(is_part || span.is_empty(), "an intersection is a part of both");
        (!span.is_empty()).then_some(span)
    }
}

/// A span must be the last item of a field, because a span without a high bound is encoded as `low`
/// alone.
impl Content for Span {
    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, &self.low);
        if let Some(high) = &self.high {
            put_bytes(out, high);
        }
    }

    fn decode(cursor: &mut Cursor<'_>) -> Result<Span, DecodeError> {
        let low = cursor.bytes()?;
        let high = if cursor.is_empty() { None } else { Some(cursor.bytes()?) };
        let span = Span::new(low, high);
        if span.is_empty() || !cursor.is_empty() {
            return Err(cursor.error("an empty span, or bytes behind it"));
        }
        Ok(span)
    }
}

/// Displays `[low, high)`, with escapes for bytes that are not printable.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, ", self.low.escape_ascii())?;
        match &self.high {
            Some(high) => write!(f, "{})", high.escape_ascii()),
            None => f.write_str("end)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys that the tests use as bounds and as keys: the empty key, and keys that differ only by a
    /// zero byte, a 0xff byte or their first byte.
    const KEYS: [&[u8]; 10] =
        [b"", b"\0", b"\0\0", b"a", b"a\0", b"a\0\0", b"a\xff", b"b", b"\xff", b"\xff\xff"];

    fn spans() -> Vec<Span> {
        let highs = KEYS.iter().map(|key| Some(*key)).chain([None]);
        let pairs = highs.flat_map(|high| KEYS.map(|low| Span::new(low, high)));
        pairs.collect()
    }

    #[test]
    fn trap_20_span_algebra_agrees_with_membership_at_every_boundary() {
        let has = |span: &Span| KEYS.map(|key| span.contains(key));
        for a in spans() {
            for b in spans() {
                let both = KEYS.map(|key| a.contains(key) && b.contains(key));
                let cut = a.intersect(&b).map_or([false; KEYS.len()], |cut| has(&cut));
                assert_eq!(cut, both, "{a} and {b}");
                assert_eq!(a.overlaps(&b), a.intersect(&b).is_some(), "{a} overlaps {b}");
                assert!(!both.contains(&true) || a.overlaps(&b));
                if a.covers(&b) {
                    assert_eq!(both, has(&b), "{a} covers {b}");
                }
            }
        }
    }

    #[test]
    fn an_inclusive_span_ends_immediately_after_its_last_key() {
        let span = Span::inclusive(b"a", b"b");
        assert!(span.contains(b"a") && span.contains(b"b"));
        assert!(!span.contains(b"b\0") && !span.contains(b""));
        assert_eq!(Span::new(b"a\0", Some(b"\xff")).to_string(), "[a\\x00, \\xff)");
    }

    #[test]
    fn example_span() {
        let encoded = |span: Span| {
            let mut out = Vec::new();
            span.encode(&mut out);
            out
        };
        assert_eq!(encoded(Span::new(b"a", Some(b"b"))), [1, b'a', 1, b'b']);
        assert_eq!(encoded(Span::new(b"a", None)), [1, b'a']);
    }

    #[test]
    fn bytes() {
        for span in spans().into_iter().filter(|span| !span.is_empty()) {
            let mut out = Vec::new();
            span.encode(&mut out);
            assert_eq!(Span::decode(&mut Cursor::new("span", &out)), Ok(span));
        }
        assert!(Span::decode(&mut Cursor::new("span", &[1, b'b', 1, b'a'])).is_err());
        assert!(Span::decode(&mut Cursor::new("span", &[1, b'a', 1, b'b', 0])).is_err());
    }
}

//! The public type [`KeyRange`], a contiguous span of keys.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use crate::error::{Error, Result};
use crate::format::key::{
    TABLE_ID_BYTES, after_partition, after_row, before_partition, before_row, decode_part,
    table_end, table_start,
};
use crate::format::names::TableId;
use crate::format::span::Span;

/// A contiguous span of (PartitionKey, RowKey) in ordinal UTF-16 order. Bounds may contain any
/// characters, including those forbidden in keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The lower end; `None` is the start of the table. `high` is the upper end.
    pub(super) low: Option<Edge>,
    pub(super) high: Option<Edge>,
}

/// A position between keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) partition: String,
    /// The RowKey. `None` for a position directly before the whole partition, or directly after it
    /// if `after` is true.
    pub(super) row: Option<String>,
    pub(super) after: bool,
}

impl KeyRange {
    /// Returns the range of the whole table.
    pub fn all() -> Self {
        Self { low: None, high: None }
    }

    /// Returns the range of one partition.
    pub fn partition(key: impl Into<String>) -> Self {
        let low = Edge { partition: key.into(), row: None, after: false };
        let high = Edge { after: true, ..low.clone() };
        Self { low: Some(low), high: Some(high) }
    }

    /// Returns the range of the partitions with keys in `keys`: `"a".."c"`, `"b"..="d"`, `"m"..`.
    pub fn partitions<'k>(keys: impl RangeBounds<&'k str>) -> Self {
        let edge = |(key, after)| Edge::of_partition(key, after);
        let [low, high] = cuts(&keys).map(|cut| cut.map(edge));
        Self { low, high }
    }

    /// Returns the range of the rows of one partition with keys in `rows`: `"a".."c"`, `"b"..="d"`,
    /// `"m"..`.
    pub fn rows<'k>(partition_key: impl Into<String>, rows: impl RangeBounds<&'k str>) -> Self {
        let Self { low: Some(mut low), high: Some(mut high) } = Self::partition(partition_key)
        else {
            return Self::all();
        };
        for (edge, cut) in [&mut low, &mut high].into_iter().zip(cuts(&rows)) {
            if let Some((row, after)) = cut {
                (edge.row, edge.after) = (Some(row.to_owned()), after);
            }
        }
        Self { low: Some(low), high: Some(high) }
    }

    /// Returns the range of the one entity with these keys.
    pub fn point(partition_key: impl Into<String>, row_key: impl Into<String>) -> Self {
        let low = Edge { partition: partition_key.into(), row: Some(row_key.into()), after: false };
        let high = Edge { after: true, ..low.clone() };
        Self { low: Some(low), high: Some(high) }
    }

    /// Returns the least and the greatest PartitionKey that keys of the range can have. Each is
    /// `None` if the range has no such bound.
    pub(crate) fn partition_bounds(&self) -> [Option<&str>; 2] {
        [&self.low, &self.high].map(|edge| edge.as_ref().map(|edge| &*edge.partition))
    }

    /// Returns the PartitionKey of a range of rows, and the keys at which the range begins and
    /// before which it ends: RowKeys, or PartitionKeys if it has whole partitions. `None` for a
    /// range of parts of several partitions.
    #[cfg(feature = "remote")]
    pub(crate) fn bounds(&self) -> Option<(Option<&str>, [Option<String>; 2])> {
        // No key contains U+0001, so this is the position directly after a key.
        let cut = |key: &str, after: bool| format!("{key}{}", if after { "\u{1}" } else { "" });
        let edges = [&self.low, &self.high].map(Option::as_ref);
        if let [Some(low), Some(high)] = edges
            && low.partition == high.partition
            && (low.row.is_some() || !low.after)
            && (high.row.is_some() || high.after)
        {
            let row = |edge: &Edge| edge.row.as_ref().map(|row| cut(row, edge.after));
            return Some((Some(&low.partition), [row(low), row(high)]));
        }
        let is_whole = edges.iter().flatten().all(|edge| edge.row.is_none());
        let partition = |edge: &Edge| cut(&edge.partition, edge.after);
        is_whole.then(|| (None, edges.map(|edge| edge.map(partition))))
    }

    /// Reads a range as [`Display`](fmt::Display) prints it.
    #[cfg(feature = "remote")]
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (is_after, text) = match text.strip_prefix('(') {
            Some(text) => (true, text),
            None => (false, text.strip_prefix('[')?),
        };
        let (low, text) = match text.strip_prefix("start") {
            Some(text) => (None, text),
            None => Edge::parse(text, is_after).map(|(low, text)| (Some(low), text))?,
        };
        if text == ")" {
            let point = low?;
            return Some(Self::point(point.partition, point.row?));
        }
        let text = text.strip_prefix(" … ")?;
        if text == "end)" {
            return Some(Self { low, high: None });
        }
        let (high, end) = Edge::parse(text, text.ends_with(']'))?;
        [")", "]"].contains(&end).then_some(Self { low, high: Some(high) })
    }

    pub(super) fn between(low: Option<Edge>, high: Option<Edge>) -> Self {
        Self { low, high }
    }

    /// Returns the keys of the entity if the range was made for a single entity.
    pub(super) fn as_point(&self) -> Option<(&str, &str)> {
        let (low, high) = (self.low.as_ref()?, self.high.as_ref()?);
        // A range without a lower RowKey begins at the empty RowKey, which is the least.
        let row = low.row.as_deref().unwrap_or_default();
        let is_point = !low.after && high.after && high.row.as_deref() == Some(row);
        (is_point && low.partition == high.partition).then_some((&*low.partition, row))
    }

    /// Returns the PartitionKey, the lower and the upper RowKey of the range. Each is `None` if the
    /// range has no such bound.
    #[cfg(feature = "sim")]
    pub(crate) fn rows_of_partition(&self) -> [Option<&str>; 3] {
        let [low, high] = [&self.low, &self.high].map(Option::as_ref);
        let partition = low.map(|low| &*low.partition);
        [partition, low.and_then(|low| low.row.as_deref()), high.and_then(|h| h.row.as_deref())]
    }

    /// Whether no key can be in the range.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_plainly_full() && self.span(TableId(1)).is_empty()
    }

    /// Whether the range obviously contains keys, because it is the whole table, or extends to the
    /// end of a partition.
    fn is_plainly_full(&self) -> bool {
        match (&self.low, &self.high) {
            (None, None) => true,
            (Some(Edge { partition, after: false, .. }), Some(high)) => {
                let is_to_the_end = high.after && high.row.is_none();
                is_to_the_end && *partition == high.partition && !partition.contains('\0')
            }
            _ => false,
        }
    }

    /// Returns a range with the same keys as `span`. If possible, its [`span`](Self::span) equals
    /// the given span.
    pub(crate) fn of_span(span: &Span, table: TableId) -> Result<Self> {
        let (start, end) = (table_start(table), table_end(table));
        let low = Some(&*span.low).filter(|low| *low > start.as_slice());
        let high = span.high.as_deref().filter(|high| *high < end.as_slice());
        let [low, high] = [low, high].map(|bound| bound.map(Edge::of_bound).transpose());
        Ok(Self { low: low?, high: high? })
    }

    pub(crate) fn span(&self, table: TableId) -> Span {
        let low = self.low.as_ref().map_or_else(|| table_start(table), |low| low.key(table));
        let high = self.high.as_ref().map_or_else(|| table_end(table), |high| high.key(table));
        Span { low: low.into(), high: Some(high.into()) }
    }
}

/// Returns the positions at which `keys` begin and end. Each position is a text and a flag, which
/// is true if the position is directly after the text and not before it.
fn cuts<'k>(keys: &impl RangeBounds<&'k str>) -> [Option<(&'k str, bool)>; 2] {
    let cut = |bound: Bound<&&'k str>, after: bool| match bound {
        Bound::Included(key) => Some((*key, after)),
        Bound::Excluded(key) => Some((*key, !after)),
        Bound::Unbounded => None,
    };
    [cut(keys.start_bound(), false), cut(keys.end_bound(), true)]
}

impl Edge {
    pub(super) fn of_partition(key: &str, after: bool) -> Self {
        Self { partition: key.to_owned(), row: None, after }
    }

    pub(super) fn of_row(partition: &str, row: &str, after: bool) -> Self {
        Self { row: Some(row.to_owned()), ..Self::of_partition(partition, after) }
    }

    /// Returns the position of an encoded bound. If the bound ends with U+0001, which no key
    /// contains, the position is directly after the text before it.
    fn of_bound(bound: &[u8]) -> Result<Self> {
        let text = |bytes: &[u8]| {
            let text = decode_part(bytes).map_err(|e| Error::decode("span".as_ref(), 0, e));
            text.map(std::borrow::Cow::into_owned)
        };
        let texts = bound.get(TABLE_ID_BYTES..).unwrap_or_default();
        let Some(end) = texts.iter().position(|byte| *byte == 0) else {
            let before = texts.strip_suffix(&[1]);
            let partition = text(before.unwrap_or(texts))?;
            return Ok(Self { partition, row: None, after: before.is_some() });
        };
        let (partition, row) = (text(&texts[..end])?, &texts[end + 1..]);
        // A key followed by a zero byte is the position directly after the key.
        let before = row.strip_suffix(&[1]).or_else(|| row.strip_suffix(&[0]));
        let row = (!row.is_empty()).then(|| text(before.unwrap_or(row))).transpose()?;
        Ok(Self { partition, row, after: before.is_some() })
    }

    /// Reads a printed position, and returns the rest of the text.
    #[cfg(feature = "remote")]
    fn parse(text: &str, after: bool) -> Option<(Self, &str)> {
        let (partition, text) = unquoted(text)?;
        let row = text.strip_prefix(", ").map(unquoted);
        let (row, text) = match row {
            Some(row) => row.map(|(row, text)| (Some(row), text))?,
            None => (None, text),
        };
        Some((Self { partition, row, after }, text))
    }

    fn key(&self, table: TableId) -> Vec<u8> {
        match (&self.row, self.after) {
            (None, false) => before_partition(table, &self.partition),
            (None, true) => after_partition(table, &self.partition),
            (Some(row), false) => before_row(table, &self.partition, row),
            (Some(row), true) => after_row(table, &self.partition, row),
        }
    }
}

/// Prints `('p','r')` for a point and `['p' … 'q')` for a span. A bound with a RowKey is printed as
/// `'p'/'r'`.
impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((pk, rk)) = self.as_point() {
            return write!(f, "({}, {})", Quoted(pk), Quoted(rk));
        }
        match &self.low {
            None => f.write_str("(start")?,
            Some(low) => write!(f, "{}{low}", if low.after { '(' } else { '[' })?,
        }
        f.write_str(" … ")?;
        match &self.high {
            None => f.write_str("end)"),
            Some(high) => write!(f, "{high}{}", if high.after { ']' } else { ')' }),
        }
    }
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Quoted(&self.partition))?;
        self.row.iter().try_for_each(|row| write!(f, ", {}", Quoted(row)))
    }
}

/// Reads a literal that [`Quoted`] printed, and returns the rest of the text.
#[cfg(feature = "remote")]
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut key = String::new();
    let mut text = text.strip_prefix('\'')?;
    loop {
        let (part, rest) = text.split_once('\'')?;
        key.push_str(part);
        let Some(rest) = rest.strip_prefix('\'') else { return Some((key, rest)) };
        key.push('\'');
        text = rest;
    }
}

/// Prints a key as a literal of the filter language.
struct Quoted<'k>(&'k str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.0.replace('\'', "''"))
    }
}

#[cfg(all(test, feature = "cli", feature = "remote"))]
mod tests {
    use super::*;

    fn ranges() -> [KeyRange; 12] {
        [
            KeyRange::all(),
            KeyRange::partition("it's ' … '"),
            KeyRange::partition(""),
            KeyRange::partitions("a".."c"),
            KeyRange::partitions("b"..="d"),
            KeyRange::partitions("m"..),
            KeyRange::partitions((Bound::Excluded("m"), Bound::Unbounded)),
            KeyRange::rows("p", "a".."b']"),
            KeyRange::rows("p", "a"..="b"),
            KeyRange::rows("p", .."b"),
            KeyRange::rows("p", "b"..),
            KeyRange::point("p", "r', 's"),
        ]
    }

    #[test]
    fn bounds_are_those_of_the_range() {
        for range in ranges() {
            let (partition, bounds) = range.bounds().unwrap();
            let [from, to] = bounds.each_ref().map(Option::as_deref);
            let between = (
                from.map_or(Bound::Unbounded, Bound::Included),
                to.map_or(Bound::Unbounded, Bound::Excluded),
            );
            let found = match partition {
                Some(partition) => KeyRange::rows(partition, between),
                None => KeyRange::partitions(between),
            };
            for (pk, rk) in ["a", "b", "c", "d", "m", "n", "p", "it's ' … '", ""]
                .into_iter()
                .flat_map(|pk| ["", "a", "a\u{20}", "b", "b']", "c", "r', 's"].map(|rk| (pk, rk)))
            {
                let key = before_row(TableId(7), pk, rk);
                let has = |range: &KeyRange| range.span(TableId(7)).contains(&key);
                assert_eq!(has(&found), has(&range), "{range} {found} {pk:?} {rk:?}");
            }
        }
        let edge = |pk: &str| Some(Edge::of_row(pk, "r", false));
        assert_eq!(KeyRange::between(edge("p"), edge("q")).bounds(), None);
    }

    #[test]
    fn a_printed_range_is_read_back() {
        for range in ranges() {
            assert_eq!(KeyRange::parse(&range.to_string()), Some(range));
        }
        for text in
            ["", "(", "(start", "(start … end]x", "['p'", "['p' … 'q'", "('p')", "['p, 'r')"]
        {
            assert_eq!(KeyRange::parse(text), None, "{text}");
        }
    }
}

//! Contiguous spans of keys, as users name them.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use crate::error::{Error, Result};
use crate::format::key::{
    TABLE_ID_BYTES, after_partition, after_row, before_partition, before_row, decode_part,
    table_end, table_start,
};
use crate::format::names::TableId;
use crate::format::span::Span;

/// A contiguous span of (PartitionKey, RowKey) in ordinal UTF-16 order. Bounds may hold any characters,
/// also those that keys may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub(super) low: Edge,
    pub(super) high: Edge,
}

/// A place between keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    /// The table's own end on this side.
    Open,
    BeforePartition(String),
    AfterPartition(String),
    BeforeRow(String, String),
    AfterRow(String, String),
}

impl KeyRange {
    /// The whole table.
    pub fn all() -> Self {
        Self { low: Edge::Open, high: Edge::Open }
    }

    /// One partition.
    pub fn partition(key: impl Into<String>) -> Self {
        let key = key.into();
        Self { low: Edge::BeforePartition(key.clone()), high: Edge::AfterPartition(key) }
    }

    /// The partitions with keys in `keys`: `"a".."c"`, `"b"..="d"`, `"m"..`.
    pub fn partitions<'k>(keys: impl RangeBounds<&'k str>) -> Self {
        let low = match keys.start_bound() {
            Bound::Included(key) => Edge::BeforePartition((*key).to_owned()),
            Bound::Excluded(key) => Edge::AfterPartition((*key).to_owned()),
            Bound::Unbounded => Edge::Open,
        };
        let high = match keys.end_bound() {
            Bound::Included(key) => Edge::AfterPartition((*key).to_owned()),
            Bound::Excluded(key) => Edge::BeforePartition((*key).to_owned()),
            Bound::Unbounded => Edge::Open,
        };
        Self { low, high }
    }

    /// The rows of one partition with keys in `rows`: `"a".."c"`, `"b"..="d"`, `"m"..`.
    pub fn rows<'k>(partition_key: impl Into<String>, rows: impl RangeBounds<&'k str>) -> Self {
        let partition = partition_key.into();
        let edge = |edge: fn(String, String) -> Edge, row: &&str| {
            edge(partition.clone(), (*row).to_owned())
        };
        let low = match rows.start_bound() {
            Bound::Included(key) => edge(Edge::BeforeRow, key),
            Bound::Excluded(key) => edge(Edge::AfterRow, key),
            Bound::Unbounded => Edge::BeforePartition(partition.clone()),
        };
        let high = match rows.end_bound() {
            Bound::Included(key) => edge(Edge::AfterRow, key),
            Bound::Excluded(key) => edge(Edge::BeforeRow, key),
            Bound::Unbounded => Edge::AfterPartition(partition.clone()),
        };
        Self { low, high }
    }

    /// The one entity with these keys, if it exists.
    pub fn point(partition_key: impl Into<String>, row_key: impl Into<String>) -> Self {
        let (pk, rk) = (partition_key.into(), row_key.into());
        Self { low: Edge::BeforeRow(pk.clone(), rk.clone()), high: Edge::AfterRow(pk, rk) }
    }

    pub(super) fn between(low: Edge, high: Edge) -> Self {
        Self { low, high }
    }

    /// The keys of the one entity that can be in it, if it was made for one.
    pub(super) fn as_point(&self) -> Option<(&str, &str)> {
        match (&self.low, &self.high) {
            (Edge::BeforeRow(pk, rk), Edge::AfterRow(pk_end, rk_end)) => {
                (pk == pk_end && rk == rk_end).then_some((pk, rk))
            }
            // The empty text is the least, so a partition begins with it.
            (Edge::BeforePartition(pk), Edge::AfterRow(pk_end, rk)) => {
                (pk == pk_end && rk.is_empty()).then_some((pk, rk))
            }
            _ => None,
        }
    }

    /// The partition, its first row key and the one behind the last, where they are bounds.
    #[cfg(feature = "sim")]
    pub(crate) fn rows_of_partition(&self) -> [Option<&str>; 3] {
        [self.low.partition(), self.low.row(), self.high.row()]
    }

    /// True if no key can be in it.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_plainly_full() && self.span(TableId(1)).is_empty()
    }

    /// True for the rest of a partition and the whole table, which can be told from their texts.
    fn is_plainly_full(&self) -> bool {
        match (&self.low, &self.high) {
            (Edge::Open, Edge::Open) => true,
            (Edge::BeforePartition(pk) | Edge::BeforeRow(pk, _), Edge::AfterPartition(end)) => {
                pk == end && !pk.contains('\0')
            }
            _ => false,
        }
    }

    /// The range that [`span`](Self::span) makes this of, or one that the same keys are in.
    pub(crate) fn of_span(span: &Span, table: TableId) -> Result<Self> {
        let whole = (table_start(table), table_end(table));
        let low = if *span.low <= *whole.0 { Edge::Open } else { Edge::of_bound(&span.low)? };
        let high = match span.high.as_deref() {
            Some(high) if high < whole.1.as_slice() => Edge::of_bound(high)?,
            _ => Edge::Open,
        };
        Ok(Self { low, high })
    }

    pub(crate) fn span(&self, table: TableId) -> Span {
        let low = self.low.key(table).unwrap_or_else(|| table_start(table));
        let high = self.high.key(table).unwrap_or_else(|| table_end(table));
        Span { low: low.into(), high: Some(high.into()) }
    }
}

impl Edge {
    /// The place of a bound: behind a text if that has U+0001 at its end, which no key holds.
    fn of_bound(bound: &[u8]) -> Result<Self> {
        let text = |bytes: &[u8]| {
            let text = decode_part(bytes).map_err(|e| Error::decode("span".as_ref(), 0, e));
            text.map(std::borrow::Cow::into_owned)
        };
        let texts = bound.get(TABLE_ID_BYTES..).unwrap_or_default();
        let Some(end) = texts.iter().position(|byte| *byte == 0) else {
            let before = texts.strip_suffix(&[1]);
            return Ok(match before {
                Some(partition) => Edge::AfterPartition(text(partition)?),
                None => Edge::BeforePartition(text(texts)?),
            });
        };
        let (partition, row) = (text(&texts[..end])?, &texts[end + 1..]);
        // A key and a zero byte is the place right behind the key.
        let after = row.strip_suffix(&[1]).or_else(|| row.strip_suffix(&[0]));
        Ok(match after {
            Some(row) => Edge::AfterRow(partition, text(row)?),
            None if row.is_empty() => Edge::BeforePartition(partition),
            None => Edge::BeforeRow(partition, text(row)?),
        })
    }

    /// The partition that it lies in or beside.
    pub(super) fn partition(&self) -> Option<&str> {
        match self {
            Edge::Open => None,
            Edge::BeforePartition(key) | Edge::AfterPartition(key) => Some(key),
            Edge::BeforeRow(key, _) | Edge::AfterRow(key, _) => Some(key),
        }
    }

    #[cfg(feature = "sim")]
    fn row(&self) -> Option<&str> {
        match self {
            Edge::Open | Edge::BeforePartition(_) | Edge::AfterPartition(_) => None,
            Edge::BeforeRow(_, row) | Edge::AfterRow(_, row) => Some(row),
        }
    }

    fn key(&self, table: TableId) -> Option<Vec<u8>> {
        Some(match self {
            Edge::Open => return None,
            Edge::BeforePartition(key) => before_partition(table, key),
            Edge::AfterPartition(key) => after_partition(table, key),
            Edge::BeforeRow(partition, row) => before_row(table, partition, row),
            Edge::AfterRow(partition, row) => after_row(table, partition, row),
        })
    }
}

/// `('p','r')` for a point, `['p' … 'q')` for a span; rows as `'p'/'r'`.
impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((pk, rk)) = self.as_point() {
            return write!(f, "({}, {})", Quoted(pk), Quoted(rk));
        }
        match &self.low {
            Edge::Open => f.write_str("(start")?,
            Edge::BeforePartition(pk) => write!(f, "[{}", Quoted(pk))?,
            Edge::AfterPartition(pk) => write!(f, "({}", Quoted(pk))?,
            Edge::BeforeRow(pk, rk) => write!(f, "[{}, {}", Quoted(pk), Quoted(rk))?,
            Edge::AfterRow(pk, rk) => write!(f, "({}, {}", Quoted(pk), Quoted(rk))?,
        }
        f.write_str(" … ")?;
        match &self.high {
            Edge::Open => f.write_str("end)"),
            Edge::BeforePartition(pk) => write!(f, "{})", Quoted(pk)),
            Edge::AfterPartition(pk) => write!(f, "{}]", Quoted(pk)),
            Edge::BeforeRow(pk, rk) => write!(f, "{}, {})", Quoted(pk), Quoted(rk)),
            Edge::AfterRow(pk, rk) => write!(f, "{}, {}]", Quoted(pk), Quoted(rk)),
        }
    }
}

/// A key as a literal of the filter language.
struct Quoted<'k>(&'k str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.0.replace('\'', "''"))
    }
}

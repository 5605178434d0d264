//! Encodes and decodes the payloads of WAL records. FORMAT.md §wal.
//!
//! Invariants
//! * rows are not decoded here (`row` does that). The first record that uses a shape also defines
//!   it;
//! * decoding borrows and allocates nothing; entries are decoded while they are visited;
//! * every payload ends with tagged fields, so that it can be extended.
//!
//! Module `record` adds the header and checksums around a payload.

use crate::codec::{Cursor, DecodeError, put_bytes, put_varint};
use crate::model::Seq;
use crate::sort::sort_by;

use super::Kind;
use super::edit::RangeTombstone;
use super::field::{
    Content, Field, FormatError, content, next_field, put_content, put_optional_content, put_with,
    read_fields,
};
use super::names::{FileId, FileNumber, TableId};
use super::record::{LOG_HEADER_BYTES, Position, RecordKind};
use super::span::Span;

const OPEN: &str = "wal open";
const GROUP: &str = "wal group";
const DURABLE_UP_TO: &str = "wal promise";
const CLOSE: &str = "wal close";

/// The key prefix of the catalog rows that describe tables.
const TABLE_ROWS: &[u8] = b"\0\0\0\0table\0";

const TAG_MANIFEST: u64 = 1;
const TAG_PREDECESSOR: u64 = 2;
const TAG_LAST_SEQ: u64 = 3;
const TAG_CEILING: u64 = 4;
const TAG_CREATED: u64 = 5;
const TAG_DROPPED: u64 = 6;
const TAG_RANGE_TOMBSTONE: u64 = 7;
const TAG_EXPIRY: u64 = 8;
const TAG_DURABLE_LEN: u64 = 9;

/// A decoded WAL record.
#[derive(Clone, Debug)]
pub(crate) enum WalRecord<'a> {
    Open(Open),
    Group(Group<'a>),
    Catalog(Group<'a>),
    DurableUpTo(DurableUpTo),
    Close(Close),
}

/// The first record of a WAL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    /// The preceding WAL; `None` for the first WAL of a database.
    pub(crate) predecessor: Option<Predecessor>,
    /// The manifest that was active when the WAL was created, with its synced length. If the
    /// manifest is shorter now, it is incomplete.
    pub(crate) manifest: Position,
}

/// The end of the preceding WAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Predecessor {
    pub(crate) number: FileNumber,
    pub(crate) id: FileId,
    /// The offset up to which the records of that WAL are valid.
    pub(crate) accepted_end: u64,
}

/// A record without a commit. It is written so that its header states a newer durable offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DurableUpTo {
    /// The highest Seq that a commit with a durability below `Sync` may use. The next opening of
    /// the database starts above it, so that no Seq is used twice.
    pub(crate) seq_reservation: Seq,
    /// A lower bound of the durable length of the log file. It is stated each time the file has
    /// grown.
    pub(crate) len: Option<u64>,
}

/// The last record of a WAL after a clean close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Close {
    pub(crate) manifest: Position,
    pub(crate) last_seq: Seq,
}

/// The entries of one commit. In a catalog record, also the tables that the commit creates and
/// drops.
#[derive(Clone, Debug)]
pub(crate) struct Group<'a> {
    /// The common prefix of all keys of the group.
    pub(crate) key_prefix: &'a [u8],
    shapes: Items<'a>,
    entries: Items<'a>,
    changes: Cursor<'a>,
    /// The bytes of the keys and rows of all entries.
    pub(crate) user_bytes: u64,
}

/// A shape that this record defines, because no earlier record used it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShapeDefinition<'a> {
    pub(crate) number: u32,
    /// The encoded shape.
    pub(crate) shape: &'a [u8],
}

/// One entry of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WalEntry<'a> {
    pub(crate) kind: Kind,
    /// The user key without the group's prefix.
    pub(crate) key_suffix: &'a [u8],
    /// The first bytes of the encoded row. A writer may have them in another buffer than the rest
    /// of the row. Empty after decoding.
    pub(crate) head: &'a [u8],
    /// The encoded row without `head`; empty for a tombstone.
    pub(crate) row: &'a [u8],
}

/// A change by a catalog record, apart from its entries, which are catalog rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Created(TableId),
    Dropped(TableId),
    /// Entries in the span with Seqs below that of this commit are deleted.
    RangeTombstone(Span),
    /// Entries in the span with Seqs below the given Seq, which is lower than the Seq of this
    /// commit, have expired.
    Ttl(Seq, Span),
}

/// Checks the order of the records of a WAL: exactly the first is an open record, and none follows
/// a close.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecordOrder {
    is_closed: bool,
}

impl RecordOrder {
    /// Checks whether a record of `kind` is allowed at `offset`. The error describes the violated
    /// rule.
    pub(crate) fn check(&mut self, kind: RecordKind, offset: u64) -> Result<(), &'static str> {
        let is_first = offset == LOG_HEADER_BYTES as u64;
        if (kind == RecordKind::Open) != is_first {
            return Err(
                "an open record behind the first record, or a first record of another kind",
            );
        }
        if self.is_closed && !is_first {
            return Err("a record behind the close");
        }
        self.is_closed = kind == RecordKind::Close;
        Ok(())
    }
}

content! { Predecessor { number, id, accepted_end } }

impl Open {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_content(out, TAG_MANIFEST, &self.manifest);
        if let Some(predecessor) = &self.predecessor {
            put_content(out, TAG_PREDECESSOR, predecessor);
        }
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, FormatError> {
        let (mut manifest, mut predecessor) = (None, None);
        read_fields(OPEN, payload, |tag, content| {
            match tag {
                TAG_MANIFEST => manifest = Some(Content::decode(content)?),
                TAG_PREDECESSOR => predecessor = Some(Content::decode(content)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(Self { predecessor, manifest: manifest.ok_or_else(|| missing(OPEN, "manifest"))? })
    }
}

impl DurableUpTo {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_content(out, TAG_CEILING, &self.seq_reservation);
        put_optional_content(out, TAG_DURABLE_LEN, self.len.as_ref());
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, FormatError> {
        let (mut seq_reservation, mut len) = (None, None);
        read_fields(DURABLE_UP_TO, payload, |tag, content| {
            match tag {
                TAG_CEILING => seq_reservation = Some(Content::decode(content)?),
                TAG_DURABLE_LEN => len = Some(Content::decode(content)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let missing = || missing(DURABLE_UP_TO, "ceiling");
        Ok(Self { seq_reservation: seq_reservation.ok_or_else(missing)?, len })
    }
}

impl Close {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_content(out, TAG_MANIFEST, &self.manifest);
        put_content(out, TAG_LAST_SEQ, &self.last_seq);
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, FormatError> {
        let (mut manifest, mut last_seq) = (None, None);
        read_fields(CLOSE, payload, |tag, content| {
            match tag {
                TAG_MANIFEST => manifest = Some(Content::decode(content)?),
                TAG_LAST_SEQ => last_seq = Some(Content::decode(content)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(Self {
            manifest: manifest.ok_or_else(|| missing(CLOSE, "manifest"))?,
            last_seq: last_seq.ok_or_else(|| missing(CLOSE, "last Seq"))?,
        })
    }
}

/// Appends the payload of a group or catalog record.
pub(crate) fn put_group<'a>(
    out: &mut Vec<u8>,
    shapes: impl ExactSizeIterator<Item = ShapeDefinition<'a>>,
    key_prefix: &[u8],
    entries: impl ExactSizeIterator<Item = WalEntry<'a>>,
    changes: &[Change],
) {
    put_varint(out, shapes.len() as u64);
    for definition in shapes {
        put_varint(out, definition.number.into());
        put_bytes(out, definition.shape);
    }
    put_bytes(out, key_prefix);
    put_varint(out, entries.len() as u64);
    for entry in entries {
        out.push(entry.kind as u8);
        put_bytes(out, entry.key_suffix);
        if entry.kind == Kind::Put {
            put_varint(out, (entry.head.len() + entry.row.len()) as u64);
            out.extend_from_slice(entry.head);
            out.extend_from_slice(entry.row);
        }
    }
    for change in changes {
        change.encode(out);
    }
}

impl<'a> Group<'a> {
    /// Decodes a payload. Every item is decoded once here, so that the iterators cannot fail later.
    pub(crate) fn decode(payload: &'a [u8]) -> Result<Self, FormatError> {
        let mut cursor = Cursor::new(GROUP, payload);
        let shapes = Items::read(&mut cursor, |cursor| shape_definition(cursor).map(drop))?;
        let key_prefix = cursor.bytes()?;
        let mut user_bytes = 0;
        let entries = Items::read(&mut cursor, |cursor| {
            let entry = entry(cursor)?;
            user_bytes += (key_prefix.len() + entry.key_suffix.len() + entry.row.len()) as u64;
            Ok(())
        })?;
        let changes = cursor.clone();
        while let Some(field) = next_field(&mut cursor)? {
            if Change::decode(&field)?.is_none() {
                field.unknown(GROUP)?;
            }
        }
        Ok(Self { key_prefix, shapes, entries, changes, user_bytes })
    }

    pub(crate) fn shapes(&self) -> impl Iterator<Item = ShapeDefinition<'a>> + use<'a> {
        self.shapes.clone().visit(shape_definition)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = WalEntry<'a>> + use<'a> {
        self.entries.clone().visit(entry)
    }

    pub(crate) fn changes(&self) -> impl Iterator<Item = Change> + use<'a> {
        let mut cursor = self.changes.clone();
        let fields = std::iter::from_fn(move || next_field(&mut cursor).ok().flatten());
        fields.filter_map(|field| Change::decode(&field).ok().flatten())
    }

    /// Whether the group has entries and nothing else, as most groups.
    pub(crate) fn is_plain(&self) -> bool {
        self.entries.count > 0 && self.changes.is_empty()
    }

    /// Checks the rules for the whole payload of the commit with Seq `seq`. The error describes the
    /// violated rule.
    pub(crate) fn check(&self, seq: Seq) -> Result<(), String> {
        if self.has_key_twice() {
            return Err("a key twice in one commit".to_owned());
        }
        if self.is_plain() {
            return Ok(());
        }
        let mut dropped = 0;
        for change in self.changes() {
            match change {
                Change::Dropped(_) => dropped += 1,
                Change::Ttl(below, _) if below >= seq => {
                    return Err(format!("an expiry below #{below} in commit #{seq}"));
                }
                _ => {}
            }
        }
        if dropped > 0 && dropped > self.table_rows_deleted() {
            return Err("a table is dropped, and its row of the catalog stays".to_owned());
        }
        Ok(())
    }

    /// Returns the number of catalog rows of tables that this commit deletes.
    fn table_rows_deleted(&self) -> usize {
        let deletes = self.entries().filter(|entry| entry.kind == Kind::Delete);
        let keys = deletes.map(|entry| [self.key_prefix, entry.key_suffix].concat());
        keys.filter(|key| key.starts_with(TABLE_ROWS)).count()
    }

    /// Whether two entries have the same key. This is an error, because the order of the two would
    /// be undefined.
    fn has_key_twice(&self) -> bool {
        let is_single = self.entries.count <= 1;
        if is_single || self.entries().map(|entry| entry.key_suffix).is_sorted_by(|a, b| a < b) {
            return false;
        }
        let mut keys: Vec<&[u8]> = self.entries().map(|entry| entry.key_suffix).collect();
        sort_by(&mut keys, Ord::cmp);
        keys.windows(2).any(|pair| pair[0] == pair[1])
    }
}

impl<'a> WalRecord<'a> {
    /// Decodes the payload of a record of this kind.
    pub(crate) fn decode(kind: RecordKind, payload: &'a [u8]) -> Result<Self, FormatError> {
        Ok(match kind {
            RecordKind::Open => Self::Open(Open::decode(payload)?),
            RecordKind::Group => Self::Group(Group::decode(payload)?),
            RecordKind::Catalog => Self::Catalog(Group::decode(payload)?),
            RecordKind::DurableUpTo => Self::DurableUpTo(DurableUpTo::decode(payload)?),
            RecordKind::Close => Self::Close(Close::decode(payload)?),
            RecordKind::Edit => {
                return Err(DecodeError::new("wal record", 0, "a version edit in a WAL").into());
            }
        })
    }
}

impl Change {
    /// Returns the range tombstone that this change creates in commit `from`.
    pub(crate) fn into_tombstone(self, from: Seq) -> Option<RangeTombstone> {
        match self {
            Change::Created(_) | Change::Dropped(_) => None,
            Change::RangeTombstone(span) => Some(RangeTombstone::drop(span, from)),
            Change::Ttl(below, span) => Some(RangeTombstone { span, below, from }),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Change::Created(table) => put_content(out, TAG_CREATED, table),
            Change::Dropped(table) => put_content(out, TAG_DROPPED, table),
            Change::RangeTombstone(span) => put_content(out, TAG_RANGE_TOMBSTONE, span),
            Change::Ttl(below, span) => put_with(out, TAG_EXPIRY, |content| {
                below.encode(content);
                span.encode(content);
            }),
        }
    }

    /// Decodes a field of a catalog record as a change; `None` if its tag is not that of a change.
    fn decode(field: &Field<'_>) -> Result<Option<Self>, DecodeError> {
        let mut content = Cursor::new(GROUP, field.content);
        let change = match field.tag {
            TAG_CREATED => Change::Created(Content::decode(&mut content)?),
            TAG_DROPPED => Change::Dropped(Content::decode(&mut content)?),
            TAG_RANGE_TOMBSTONE => Change::RangeTombstone(Content::decode(&mut content)?),
            TAG_EXPIRY => {
                Change::Ttl(Content::decode(&mut content)?, Content::decode(&mut content)?)
            }
            _ => return Ok(None),
        };
        content.finish()?;
        Ok(Some(change))
    }
}

/// `count` encoded items, starting at `cursor`. All of them were decoded once without error.
#[derive(Clone, Debug)]
struct Items<'a> {
    count: usize,
    cursor: Cursor<'a>,
}

impl<'a> Items<'a> {
    #[inline]
    fn read(
        cursor: &mut Cursor<'a>,
        mut skip: impl FnMut(&mut Cursor<'a>) -> Result<(), DecodeError>,
    ) -> Result<Self, DecodeError> {
        // An item has at least two bytes, so a larger count is wrong.
        let count = cursor.count(cursor.left() / 2)?;
        let items = Self { count, cursor: cursor.clone() };
        (0..count).try_for_each(|_| skip(cursor))?;
        Ok(items)
    }

    fn visit<T>(
        self,
        item: fn(&mut Cursor<'a>) -> Result<T, DecodeError>,
    ) -> impl Iterator<Item = T> + use<'a, T> {
        let mut cursor = self.cursor;
        // All items were decoded before, so none fails here.
        (0..self.count).map_while(move |_| item(&mut cursor).ok())
    }
}

fn shape_definition<'a>(cursor: &mut Cursor<'a>) -> Result<ShapeDefinition<'a>, DecodeError> {
    let number = cursor.varint()?;
    let number = u32::try_from(number).map_err(|_| cursor.error("shape number above u32"))?;
    Ok(ShapeDefinition { number, shape: cursor.bytes()? })
}

#[inline]
fn entry<'a>(cursor: &mut Cursor<'a>) -> Result<WalEntry<'a>, DecodeError> {
    let code = cursor.u8()?;
    let kind = Kind::from_code(code).ok_or_else(|| cursor.error(format!("entry kind {code}")))?;
    let key_suffix = cursor.bytes()?;
    let row = if kind == Kind::Put { cursor.bytes()? } else { &[] };
    Ok(WalEntry { kind, key_suffix, head: &[], row })
}

fn missing(structure: &'static str, what: &str) -> DecodeError {
    DecodeError::new(structure, 0, format!("no {what}"))
}

#[cfg(test)]
mod tests;

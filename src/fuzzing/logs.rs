//! Targets: the structures of record files, of the manifest, and CURRENT.

use crate::codec::Cursor;
use crate::format::current::Current;
use crate::format::edit::VersionEdit;
use crate::format::field::next_field;
use crate::format::field_set::{FieldSet, not_understood};
use crate::format::names::{FileId, FileNumber};
use crate::format::record::{
    self as frame, LOG_HEADER_BYTES, LogHeader, Position, RECORD_HEADER_BYTES, RecordKind,
};
use crate::format::span::Span;
use crate::format::wal::{Change, Close, Open, Promise, WalRecord, put_group};
use crate::model::Seq;

const FILE: FileId = FileId(0x0102_0304_0506_0708);
const AT: Position = Position { file: FileNumber(7), offset: LOG_HEADER_BYTES as u64 };

/// Headers of record files and of records: as found, and around the data.
pub fn record(data: &[u8]) {
    if let Ok(header) = LogHeader::decode(data) {
        assert_eq!(LogHeader::decode(&header.encode()), Ok(header));
    }
    if let Some((header, stored)) = data.split_first_chunk::<RECORD_HEADER_BYTES>() {
        let _ours = frame::may_be_header(header, FILE);
        if let Ok(header) = frame::decode_header(header, AT, FILE) {
            drop(header.payload(stored));
            let _kind = (header.kind(), header.must_understand(), header.stored_len());
        }
    }
    check_sealed(data);
}

/// What was framed is read back at its place, and nowhere else.
fn check_sealed(payload: &[u8]) {
    let mut buffer = Vec::new();
    let start = frame::begin(&mut buffer, RecordKind::Group, Seq(1));
    buffer.extend_from_slice(payload);
    if frame::end(&mut buffer, start).is_err() {
        return;
    }
    frame::seal(&mut buffer, AT, FILE, AT);
    let Some((header, stored)) = buffer.split_first_chunk::<RECORD_HEADER_BYTES>() else {
        panic!("a record has a header");
    };
    let read = frame::decode_header(header, AT, FILE).and_then(|read| read.payload(stored));
    assert_eq!(read, Ok(payload));
    let elsewhere = Position { offset: AT.offset + 8, ..AT };
    assert!(frame::decode_header(header, elsewhere, FILE).is_err(), "a copy elsewhere");
    assert!(frame::decode_header(header, AT, FileId(1)).is_err(), "another file's");
}

/// Payloads of a WAL, of every kind.
pub fn wal(data: &[u8]) {
    if let Ok(open) = Open::decode(data) {
        let mut encoded = Vec::new();
        open.encode(&mut encoded);
        assert_eq!(Open::decode(&encoded), Ok(open));
    }
    if let Ok(promise) = Promise::decode(data) {
        let mut encoded = Vec::new();
        promise.encode(&mut encoded);
        assert_eq!(Promise::decode(&encoded), Ok(promise));
    }
    if let Ok(close) = Close::decode(data) {
        let mut encoded = Vec::new();
        close.encode(&mut encoded);
        assert_eq!(Close::decode(&encoded), Ok(close));
    }
    if let Ok(WalRecord::Group(group)) = WalRecord::decode(RecordKind::Group, data) {
        let shapes: Vec<_> = group.shapes().collect();
        let entries: Vec<_> = group.entries().collect();
        let changes: Vec<Change<'_>> = group.changes().collect();
        let mut encoded = Vec::new();
        let prefix = group.key_prefix;
        put_group(&mut encoded, shapes.iter().copied(), prefix, entries.iter().copied(), &changes);
        let Ok(WalRecord::Group(again)) = WalRecord::decode(RecordKind::Group, &encoded) else {
            panic!("what was encoded decodes");
        };
        assert!(again.shapes().eq(shapes) && again.entries().eq(entries));
        assert!(again.changes().eq(changes) && again.key_prefix == prefix);
    }
}

/// Version edits.
pub fn edit(data: &[u8]) {
    let Ok(edit) = VersionEdit::decode(data) else { return };
    if let Some(identity) = &edit.identity {
        let _needs = (identity.unreadable(), identity.unwritable());
    }
    let mut encoded = Vec::new();
    edit.encode(&mut encoded);
    assert_eq!(VersionEdit::decode(&encoded), Ok(edit));
}

/// CURRENT.
pub fn current(data: &[u8]) {
    let Ok(current) = Current::decode(data) else { return };
    assert_eq!(Current::decode(&current.encode()), Ok(current));
}

/// Spans of keys.
pub fn span(data: &[u8]) {
    let Ok(span) = Span::decode(&mut Cursor::new("span", data)) else { return };
    let _text = span.to_string();
    assert!(span.contains(&span.low) && span.covers(&span) && span.overlaps(&span));
    let mut encoded = Vec::new();
    span.encode(&mut encoded);
    assert_eq!(Span::decode(&mut Cursor::new("span", &encoded)), Ok(span));
}

/// Tagged fields in any order.
pub fn field(data: &[u8]) {
    let mut cursor = Cursor::new("fields", data);
    while let Ok(Some(field)) = next_field(&mut cursor) {
        assert_eq!(data.get(field.at..field.at + field.content.len()), Some(field.content));
        drop(field.unknown("fields"));
    }
}

/// Tagged fields in ascending order.
pub fn field_set(data: &[u8]) {
    let Ok(fields) = FieldSet::<8>::decode("fields", data) else { return };
    let _newer = not_understood(fields.unknown);
    for tag in 0..16 {
        drop((fields.bytes(tag), fields.number(tag), fields.number_or_zero(tag)));
    }
}

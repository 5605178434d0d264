//! Fuzz targets for the structures of record files (write-ahead log and manifest), of CURRENT, and
//! of backups.

use super::forge::{seal_record, sum};
use super::made::made;
use crate::codec::{Cursor, put_bytes, put_varint};
use crate::format::current::{CURRENT_BYTES, Current};
use crate::format::edit::VersionEdit;
use crate::format::field::{Content, Field, next_field, put_field};
use crate::format::field_set::{FieldSet, not_understood};
use crate::format::generation::{GENERATION_HEADER_BYTES, Generation};
use crate::format::names::{FileId, FileNumber};
use crate::format::record::{
    self as frame, LOG_HEADER_BYTES, LogHeader, Position, RECORD_HEADER_BYTES,
    RecordHeader as Header, RecordKind,
};
use crate::format::span::Span;
use crate::format::wal::{Change, Close, DurableUpTo, Group, Open, WalRecord, put_group};
use crate::model::Seq;

const FILE: FileId = FileId(0x0102_0304_0506_0708);
const AT: Position = Position { file: FileNumber(7), offset: LOG_HEADER_BYTES as u64 };

/// Tests the headers of record files and of records. Reads the input unchanged, and with corrected
/// checksums. Also writes the input as the payload of a new record.
pub fn record(data: &[u8]) {
    check_log_header(data);
    check_log_header(&summed(data, 12, LOG_HEADER_BYTES));
    if let Some((header, stored)) = data.split_first_chunk::<RECORD_HEADER_BYTES>() {
        let _ours = frame::may_be_header(header, FILE);
        check_record(header, stored);
        let mut header = *header;
        seal_record(&mut header, stored, AT.offset, FILE);
        check_record(&header, stored);
    }
    check_sealed(data);
}

fn check_log_header(data: &[u8]) {
    if let Ok(header) = LogHeader::decode(data) {
        assert_eq!(LogHeader::decode(&header.encode()), Ok(header));
    }
}

/// Checks that the payload of a valid record, written as a new record, reads back the same.
fn check_record(header: &[u8; RECORD_HEADER_BYTES], stored: &[u8]) {
    let Ok(header) = frame::decode_header(header, AT, FILE) else { return };
    let Ok(payload) = header.payload(stored) else { return };
    assert!(payload.len() <= stored.len().min(frame::PAYLOAD_BYTES_MAX));
    assert!(header.stored_len() >= payload.len());
    let Ok(kind) = header.kind() else { return };
    let (again, read) = framed(kind, header.seq, payload, header.durable_up_to);
    assert_eq!(
        (again.kind(), again.seq, again.durable_up_to),
        (Ok(kind), header.seq, header.durable_up_to)
    );
    assert_eq!(read, payload);
}

/// Returns a record with `payload`, with checksums for the position `at` in the file `file`. `None`
/// if the payload is too long.
pub(super) fn sealed(
    (at, file): (Position, FileId),
    kind: RecordKind,
    seq: Seq,
    payload: &[u8],
    durable_up_to: Position,
) -> Option<Vec<u8>> {
    let mut record = Vec::new();
    let start = frame::begin(&mut record, kind, seq);
    record.extend_from_slice(payload);
    frame::end(&mut record, start).ok()?;
    frame::seal(&mut record, at, file, durable_up_to);
    Some(record)
}

/// Writes a record with `payload` and reads it back. Returns the header and the payload read.
fn framed(
    kind: RecordKind,
    seq: Seq,
    payload: &[u8],
    durable_up_to: Position,
) -> (Header, Vec<u8>) {
    let Some(record) = sealed((AT, FILE), kind, seq, payload, durable_up_to) else {
        panic!("a payload that was read can be written");
    };
    let split = record.split_first_chunk::<RECORD_HEADER_BYTES>();
    let read = split.map(|(header, stored)| (frame::decode_header(header, AT, FILE), stored));
    match read {
        Some((Ok(header), stored)) => (header, header.payload(stored).unwrap_or_default().to_vec()),
        other => panic!("a record of ours: {other:?}"),
    }
}

/// Returns `data` with the checksum of its first `len` bytes stored at `at`.
fn summed(data: &[u8], at: usize, len: usize) -> Vec<u8> {
    let mut data = data.to_vec();
    sum(&mut data, at, len);
    data
}

/// Checks that a record with `payload` can be read at its position, and at no other.
fn check_sealed(payload: &[u8]) {
    let Some(record) = sealed((AT, FILE), RecordKind::Group, Seq(1), payload, AT) else { return };
    let Some((header, stored)) = record.split_first_chunk::<RECORD_HEADER_BYTES>() else {
        panic!("a record has a header");
    };
    let read = frame::decode_header(header, AT, FILE).and_then(|read| read.payload(stored));
    assert_eq!(read, Ok(payload));
    let elsewhere = Position { offset: AT.offset + 8, ..AT };
    assert!(frame::decode_header(header, elsewhere, FILE).is_err(), "a copy elsewhere");
    assert!(frame::decode_header(header, AT, FileId(1)).is_err(), "another file's");
}

/// Tests the payloads of all kinds of records in a write-ahead log.
pub fn wal(data: &[u8]) {
    if let Ok(open) = Open::decode(data) {
        assert_eq!(Open::decode(&made(|out| open.encode(out))), Ok(open));
    }
    if let Ok(durable_up_to) = DurableUpTo::decode(data) {
        let encoded = made(|out| durable_up_to.encode(out));
        assert_eq!(DurableUpTo::decode(&encoded), Ok(durable_up_to));
    }
    if let Ok(close) = Close::decode(data) {
        assert_eq!(Close::decode(&made(|out| close.encode(out))), Ok(close));
    }
    for kind in [RecordKind::Group, RecordKind::Catalog] {
        check_group(kind, data);
    }
}

fn check_group(kind: RecordKind, data: &[u8]) {
    let group = WalRecord::decode(kind, data);
    if let Ok(WalRecord::Group(group) | WalRecord::Catalog(group)) = group {
        let encoded = made(|out| put_again(&group, out));
        let again = WalRecord::decode(kind, &encoded);
        let Ok(WalRecord::Group(again) | WalRecord::Catalog(again)) = again else {
            panic!("what was encoded decodes: {again:?}");
        };
        assert!(again.shapes().eq(group.shapes()) && again.entries().eq(group.entries()));
        assert!(again.changes().eq(group.changes()) && again.key_prefix == group.key_prefix);
    }
}

/// Encodes a decoded group of mutations again.
pub(super) fn put_again(group: &Group<'_>, out: &mut Vec<u8>) {
    let shapes: Vec<_> = group.shapes().collect();
    let entries: Vec<_> = group.entries().collect();
    let changes: Vec<Change> = group.changes().collect();
    put_group(out, shapes.into_iter(), group.key_prefix, entries.into_iter(), &changes);
}

/// Tests version edits.
pub fn edit(data: &[u8]) {
    let Ok(edit) = VersionEdit::decode(data) else { return };
    if let Some(identity) = &edit.identity {
        let _needs = (identity.unreadable(), identity.unwritable());
    }
    assert_eq!(VersionEdit::decode(&made(|out| edit.encode(out))), Ok(edit));
}

/// Tests the file CURRENT: reads the input unchanged, and with a corrected checksum.
pub fn current(data: &[u8]) {
    for data in [data, &summed(data, 12, CURRENT_BYTES)] {
        if let Ok(current) = Current::decode(data) {
            assert_eq!(current.encode(), data, "CURRENT has one encoding");
        }
    }
}

/// Tests the generation files of backups: reads the input unchanged, and with corrected length and
/// checksum.
pub fn generation(data: &[u8]) {
    check_generation(data);
    let mut data = data.to_vec();
    if data.len() >= GENERATION_HEADER_BYTES {
        let len = data.len();
        data[16..24].copy_from_slice(&(len as u64).to_le_bytes());
        sum(&mut data, 12, len);
        check_generation(&data);
    }
}

fn check_generation(data: &[u8]) {
    let Ok(generation) = Generation::decode(data) else { return };
    assert!(generation.files.iter().all(|file| generation.file(file.id) == Some(file)));
    assert_eq!(generation.files.len(), generation.edit.add_files.len());
    assert!(generation.identity().is_some());
    assert_eq!(Generation::decode(&generation.encode()), Ok(generation));
}

/// Tests spans (key ranges).
pub fn span(data: &[u8]) {
    let Ok(span) = Span::decode(&mut Cursor::new("span", data)) else { return };
    let _text = span.to_string();
    assert!(span.contains(&span.low) && span.covers(&span) && span.overlaps(&span));
    let encoded = made(|out| span.encode(out));
    assert_eq!(Span::decode(&mut Cursor::new("span", &encoded)), Ok(span));
}

/// Tests the decoder of single tagged fields, which accepts them in any order.
pub fn field(data: &[u8]) {
    let mut cursor = Cursor::new("fields", data);
    while let Ok(Some(field)) = next_field(&mut cursor) {
        assert_eq!(data.get(field.at..field.at + field.content.len()), Some(field.content));
        assert_eq!(field.unknown("fields").is_err(), field.must_understand);
        let encoded = made(|out| {
            put_varint(out, field.tag << 1 | u64::from(field.must_understand));
            put_bytes(out, field.content);
        });
        let again = next_field(&mut Cursor::new("fields", &encoded));
        let at = encoded.len() - field.content.len();
        assert_eq!(again, Ok(Some(Field { at, ..field })));
        let ours = made(|out| put_field(out, field.tag, field.content));
        assert!(!field.must_understand || ours == encoded, "fields of ours must be understood");
    }
}

/// Tests a set of tagged fields, which must be in ascending order.
pub fn field_set(data: &[u8]) {
    let Ok(fields) = FieldSet::<8>::decode("fields", data) else { return };
    let _newer = not_understood(fields.unknown);
    let mut encoded = Vec::new();
    for tag in 0..16 {
        drop((fields.get::<u64>(tag), fields.get_or_default::<u64>(tag)));
        if let Ok(content) = fields.bytes(tag) {
            put_field(&mut encoded, tag, content);
        }
    }
    encoded.extend_from_slice(fields.unknown);
    let Ok(again) = FieldSet::<8>::decode("fields", &encoded) else {
        panic!("what was encoded decodes");
    };
    assert_eq!(again.unknown, fields.unknown);
    assert!((0..16).all(|tag| again.bytes(tag).ok() == fields.bytes(tag).ok()));
}

//! Tests that sealed records can be read back, and that all other bytes are refused.

use super::*;
use crate::rng::Rng;

const ID: FileId = FileId(0x0807_0605_0403_0201);
const AT: Position = Position { file: FileNumber(3), offset: 64 };

fn header() -> LogHeader {
    LogHeader { kind: LogKind::Wal, number: FileNumber(3), id: ID }
}

/// Returns one sealed record.
fn record(payload: &[u8], durable_up_to: Position) -> Vec<u8> {
    let mut out = Vec::new();
    let start = begin(&mut out, RecordKind::Group, Seq(7));
    out.extend_from_slice(payload);
    end(&mut out, start).unwrap();
    seal(&mut out, AT, ID, durable_up_to);
    out
}

fn decode(bytes: &[u8], at: Position, id: FileId) -> Result<(RecordHeader, &[u8]), DecodeError> {
    let (head, stored) = bytes.split_first_chunk().expect("a whole header");
    let header = decode_header(head, at, id)?;
    let payload = header.payload(&stored[..header.stored_len()])?;
    Ok((header, payload))
}

fn hex(bytes: &[u8]) -> String {
    let groups = bytes.chunks(4).map(|four| {
        let texts: Vec<String> = four.iter().map(|byte| format!("{byte:02x}")).collect();
        texts.concat()
    });
    groups.collect::<Vec<_>>().join(" ")
}

#[test]
fn example_log_header() {
    let expected = "726f7773 6c6f6700 01000000 dbaca0a9 03000000 00000000 01020304 05060708 \
                    01000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000";
    assert_eq!(hex(&header().encode()), expected);
    assert_eq!(LogHeader::decode(&header().encode()), Ok(header()));
}

#[test]
fn example_record() {
    let bytes = record(b"abc", Position { file: FileNumber(2), offset: 4096 });
    let expected = "d5e81d4b 745f2aeb 03000000 02010000 01020304 05060708 07000000 00000000 \
                    02000000 00000000 00100000 00000000 61626300 00000000";
    assert_eq!(hex(&bytes), expected);
    let (header, payload) = decode(&bytes, AT, ID).unwrap();
    assert_eq!((header.kind(), header.seq, payload), (Ok(RecordKind::Group), Seq(7), &b"abc"[..]));
    assert_eq!(header.durable_up_to, Position { file: FileNumber(2), offset: 4096 });
}

#[test]
fn several_records_are_sealed_at_once_each_for_its_offset() {
    let mut out = Vec::new();
    for len in [0, 1, 8, 9] {
        let start = begin(&mut out, RecordKind::Group, Seq(len as u64));
        out.extend_from_slice(&vec![0xab; len]);
        end(&mut out, start).unwrap();
    }
    seal(&mut out, AT, ID, Position::default());
    let mut at = 0;
    for len in [0, 1, 8, 9] {
        let place = Position { offset: AT.offset + at as u64, ..AT };
        let (header, payload) = decode(&out[at..], place, ID).unwrap();
        assert_eq!((header.seq, payload.len()), (Seq(len as u64), len));
        at += RECORD_HEADER_BYTES + header.stored_len();
    }
    assert_eq!(at, out.len());
}

#[test]
fn trap_24_every_flipped_bit_of_a_record_is_detected() {
    let bytes = record(b"a payload", Position::default());
    assert_eq!(bytes.len(), RECORD_HEADER_BYTES + 16);
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << bit;
            assert!(decode(&bytes, AT, ID).is_err(), "byte {at} bit {bit}");
        }
    }
}

#[test]
fn trap_05_a_record_at_another_offset_or_of_another_file_is_invalid() {
    let bytes = record(b"abc", Position::default());
    assert!(decode(&bytes, AT, ID).is_ok());
    assert!(decode(&bytes, Position { offset: 72, ..AT }, ID).is_err());
    assert!(decode(&bytes, AT, FileId(1)).is_err());
}

#[test]
fn a_durable_offset_after_its_own_record_is_refused() {
    let mut bytes = record(b"abc", Position::default());
    bytes[40..48].copy_from_slice(&65u64.to_le_bytes());
    bytes[32..40].copy_from_slice(&3u64.to_le_bytes());
    let sum = header_checksum(bytes.first_chunk().unwrap(), 64);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    let error = decode(&bytes, AT, ID).unwrap_err();
    assert_eq!(error.to_string(), "record header at byte 32: promise beyond the record itself");
}

#[test]
fn a_record_that_is_too_long_is_removed_from_the_buffer() {
    let mut out = record(b"abc", Position::default());
    let before = out.len();
    let start = begin(&mut out, RecordKind::Group, Seq(8));
    out.resize(start + RECORD_HEADER_BYTES + PAYLOAD_BYTES_MAX + 1, 0);
    assert_eq!(end(&mut out, start).unwrap_err().code(), "RequestBodyTooLarge");
    assert_eq!(out.len(), before);
}

#[test]
fn trap_44_log_headers_of_newer_formats_are_refused_by_name() {
    #[track_caller]
    fn check(at: usize, what: &'static str) {
        let mut bytes = header().encode();
        bytes[at] = 9;
        let sum = FileHead::sum(&bytes);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(LogHeader::decode(&bytes), Err(FormatError::Unsupported(what.into())));
    }
    check(8, "log format 9");
    check(33, "log codec 9, key 0, features 0x0");
    check(36, "log codec 0, key 9, features 0x0");
    check(40, "log codec 0, key 0, features 0x9");
}

#[test]
fn trap_24_every_flipped_bit_of_a_log_header_is_detected() {
    let bytes = header().encode();
    for at in 0..bytes.len() {
        let mut flipped = bytes;
        flipped[at] ^= 0x10;
        assert!(matches!(LogHeader::decode(&flipped), Err(FormatError::Damaged(_))), "byte {at}");
        assert!(matches!(LogHeader::decode(&bytes[..at]), Err(FormatError::Damaged(_))));
    }
}

#[test]
fn random_bytes_are_no_header() {
    let mut rng = Rng::from_seed(1);
    for _ in 0..10_000 {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        bytes.iter_mut().for_each(|byte| *byte = rng.below(256) as u8);
        assert!(decode_header(&bytes, AT, ID).is_err());
    }
}

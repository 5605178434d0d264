//! Tests of generation files: the example in FORMAT.md, damage, newer formats, and impossible
//! values.

use super::*;
use crate::codec::HashSeed;
use crate::format::edit::{Placement, RangeMeta, ReferenceMeta};
use crate::format::field::{put_field, put_optional_field};
use crate::format::file_meta::{FileMeta, Section};
use crate::format::names::{FileNumber, RangeId, TableId};
use crate::format::span::Span;

fn meta(number: u64, id: u64) -> FileMeta {
    FileMeta {
        number: FileNumber(number),
        id: FileId(id),
        bytes: 8547,
        seq_min: Seq(100),
        seq_max: Seq(300),
        visible_from: Seq::ZERO,
        tombstones_applied: Seq::ZERO,
        entries: 3,
        tombstones: 1,
        raw_bytes: 60,
        key_min: b"\0\0\0\x01a\0b"[..].into(),
        key_max: b"\0\0\0\x01c\0d"[..].into(),
        sections: sections(),
        unknown: Box::default(),
    }
}

/// Returns the sections of the SST footer that FORMAT.md shows as an example.
fn sections() -> Vec<Section> {
    let section =
        |kind, flags, offset, len, checksum| Section { kind, flags, offset, len, checksum };
    vec![
        section(1, 1, 32, 76, 0x0101_0101),
        section(3, 1, 4096, 4096, 0x0303_0303),
        section(2, 1, 8192, 41, 0x0202_0202),
        section(4, 1, 8233, 72, 0x0404_0404),
        section(5, 1, 8305, 80, 0x0505_0505),
        section(7, 0, 8385, 67, 0x0707_0707),
    ]
}

fn sample() -> Generation {
    let span = Span::new(b"\0\0\0\x01", Some(b"\0\0\0\x02"));
    let edit = VersionEdit {
        identity: Some(Identity {
            database: 1 << 100,
            incarnation: 5,
            seed: HashSeed(6),
            read_features: Vec::new(),
            write_features: Vec::new(),
            ignorable_features: Vec::new(),
        }),
        numbers_below: Some(FileNumber(64)),
        flushed_seq: Some(Seq(300)),
        add_files: vec![meta(12, 0x1122_3344_5566_7788)],
        add_ranges: vec![RangeMeta { id: RangeId(9), table: TableId(1), span: span.clone() }],
        add_references: vec![ReferenceMeta {
            range: RangeId(9),
            file: FileNumber(12),
            placement: Placement::Run,
            clip: span,
            bytes: None,
        }],
        ..VersionEdit::default()
    };
    let file = StoredFile { id: FileId(0x1122_3344_5566_7788), bytes: 8547, checksum: 0xa1b2_c3d4 };
    Generation { number: 2, taken: 300, files: vec![file], edit, unknown: Box::default() }
}

/// Returns `bytes` with corrected length and checksum.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let len = (bytes.len() as u64).to_le_bytes();
    bytes[16..24].copy_from_slice(&len);
    let sum = FileHead::sum(&bytes).to_le_bytes();
    bytes[12..16].copy_from_slice(&sum);
    bytes
}

#[test]
fn example_generation() {
    let bytes = sample().encode();
    assert_eq!(Generation::decode(&bytes), Ok(sample()));
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let document: String = include_str!("../../../FORMAT.md")
        .split("```hex name=generation\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .unwrap()
        .chars()
        .filter(char::is_ascii_hexdigit)
        .collect();
    assert_eq!(hex, document);
}

#[test]
fn trap_24_every_flipped_byte_is_detected() {
    let bytes = sample().encode();
    for at in 0..bytes.len() {
        for mask in 1..=255 {
            let mut bytes = bytes.clone();
            bytes[at] ^= mask;
            let decoded = Generation::decode(&bytes);
            assert!(matches!(decoded, Err(FormatError::Damaged(_))), "byte {at}: {decoded:?}");
        }
        assert!(Generation::decode(&bytes[..at]).is_err());
    }
}

#[test]
fn trap_44_a_newer_format_is_refused_by_name() {
    let mut bytes = sample().encode();
    bytes[8] = 2;
    let expected = FormatError::Unsupported("backup format 2".into());
    assert_eq!(Generation::decode(&sealed(bytes)), Err(expected));
    let mut bytes = sample().encode();
    put_optional_field(&mut bytes, 40, b"new");
    let kept = Generation::decode(&sealed(bytes.clone())).unwrap();
    assert_eq!(kept.encode(), sealed(bytes.clone()));
    put_field(&mut bytes, 41, b"newer");
    let expected = FormatError::Unsupported("generation field 41 of a newer format".into());
    assert_eq!(Generation::decode(&sealed(bytes)), Err(expected));
    let mut generation = sample();
    if let Some(identity) = &mut generation.edit.identity {
        identity.read_features.push("stars".into());
    }
    let expected = FormatError::Unsupported("the feature stars".into());
    assert_eq!(Generation::decode(&generation.encode()), Err(expected));
}

#[test]
fn impossible_generations_are_refused() {
    #[track_caller]
    fn check(change: impl FnOnce(&mut Generation)) {
        let mut generation = sample();
        change(&mut generation);
        assert!(Generation::decode(&generation.encode()).is_err());
    }
    check(|g| g.edit.identity = None);
    check(|g| g.edit.flushed_seq = None);
    check(|g| g.taken = u64::MAX);
    check(|g| g.files.clear());
    check(|g| g.files[0].bytes = 8548);
    check(|g| g.files[0].id = FileId(1));
    check(|g| g.files.push(g.files[0]));
    check(|g| {
        let more = StoredFile { id: FileId(u64::MAX), ..g.files[0] };
        g.files.push(more);
    });
    check(|g| g.edit.add_files.push(meta(13, 0x1122_3344_5566_7788)));
}

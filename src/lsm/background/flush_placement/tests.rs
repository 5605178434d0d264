//! Tests the references that a flush creates after ranges were split, merged or removed, and the
//! length of the flush's edit.

use super::*;
use crate::codec::HashSeed;
use crate::format::edit::Identity;
use crate::format::key::user_key;
use crate::format::names::{FileId, FileNumber};
use crate::lsm::background::new_file::Part;
use crate::model::Seq;

fn key(table: u32, pk: &str) -> Vec<u8> {
    user_key(TableId(table), pk, "r")
}

/// Returns a file with these parts. A part is given by its first key, its last key and its bytes.
fn file(number: u64, parts: &[(&[u8], &[u8], u64)]) -> NewFile {
    let part = |(low, high, bytes): &(&[u8], &[u8], u64)| Part {
        low: (*low).into(),
        high: (*high).into(),
        bytes: *bytes,
    };
    let parts: Vec<Part> = parts.iter().map(part).collect();
    let meta = FileMeta {
        number: FileNumber(number),
        id: FileId(number),
        bytes: parts.iter().map(|part| part.bytes).sum(),
        seq_min: Seq(10),
        seq_max: Seq(20),
        visible_from: Seq::ZERO,
        tombstones_applied: Seq::ZERO,
        entries: 1,
        tombstones: 0,
        raw_bytes: 1000,
        key_min: parts[0].low.clone(),
        key_max: parts[parts.len() - 1].high.clone(),
        sections: Vec::new(),
        unknown: Box::default(),
    };
    NewFile { meta, parts, sst: None }
}

/// Returns a version with ranges of table 1 that begin at these keys. The first range begins at the
/// start of the table.
fn version(starts: &[&[u8]]) -> Version {
    let identity = Identity {
        database: 1,
        incarnation: 2,
        seed: HashSeed(3),
        read_features: Vec::new(),
        write_features: Vec::new(),
        ignorable_features: Vec::new(),
    };
    let whole = whole_table(TableId(1));
    let range = |(i, low): (usize, &&[u8])| {
        let high = starts.get(i + 1).copied().or(whole.high.as_deref());
        let low = if i == 0 { &*whole.low } else { *low };
        RangeMeta { id: RangeId(i as u64 + 1), table: TableId(1), span: Span::new(low, high) }
    };
    let edit = VersionEdit {
        identity: Some(identity),
        numbers_below: Some(FileNumber(1 << 30)),
        add_ranges: starts.iter().enumerate().map(range).collect(),
        ..VersionEdit::default()
    };
    Version::default().apply(&edit).unwrap()
}

fn placed(version: &Version, files: &[NewFile]) -> VersionEdit {
    let mut edit = VersionEdit::default();
    assign_to_ranges(version, files, &mut edit, |_| Ok(RangeId(100))).unwrap();
    edit
}

/// Checks the range, file, bytes and clip of each reference that a flush of `files` creates. Also
/// checks that the references of the next version cover all keys of `files`.
fn check(version: &Version, files: &[NewFile], expected: &[&str]) {
    let edit = placed(version, files);
    let text = |r: &ReferenceMeta| {
        let bytes = r.bytes.map_or("all".to_owned(), |bytes| bytes.to_string());
        format!("r{} {} {bytes} {}", r.range.0, r.file.0, r.clip)
    };
    assert_eq!(edit.add_references.iter().map(text).collect::<Vec<_>>(), expected);
    let next = version.apply(&edit).unwrap();
    next.check().unwrap();
    for part in files.iter().flat_map(|file| &file.parts) {
        for key in [&part.low, &part.high] {
            assert_eq!(next.sources(key).count(), 1, "{}", key.escape_ascii());
        }
    }
}

#[test]
fn each_range_references_its_part_clipped() {
    let (a, b, c, d) = (key(1, "a"), key(1, "b"), key(1, "c"), key(1, "d"));
    let version = version(&[&a, &c]);
    check(
        &version,
        &[file(9, &[(&a, &b, 300), (&c, &d, 700)])],
        &[
            "r1 9 300 [\\x00\\x00\\x00\\x01a\\x00r, \\x00\\x00\\x00\\x01b\\x00r\\x00)",
            "r2 9 700 [\\x00\\x00\\x00\\x01c\\x00r, \\x00\\x00\\x00\\x01d\\x00r\\x00)",
        ],
    );
}

#[test]
fn trap_20_a_flush_is_placed_in_ranges_split_or_merged_meanwhile() {
    let (a, b, c, d) = (key(1, "a"), key(1, "b"), key(1, "c"), key(1, "d"));
    // The range was split at b and c during the flush. So the part from a to d gets references from
    // three ranges.
    check(
        &version(&[&a, &b, &c]),
        &[file(9, &[(&a, &d, 900)])],
        &[
            "r1 9 300 [\\x00\\x00\\x00\\x01a\\x00r, \\x00\\x00\\x00\\x01b\\x00r)",
            "r2 9 300 [\\x00\\x00\\x00\\x01b\\x00r, \\x00\\x00\\x00\\x01c\\x00r)",
            "r3 9 300 [\\x00\\x00\\x00\\x01c\\x00r, \\x00\\x00\\x00\\x01d\\x00r\\x00)",
        ],
    );
    // Two ranges were merged during the flush. In the first case the parts of both ranges are in
    // one file, in the second case in two files.
    check(
        &version(&[&a]),
        &[file(9, &[(&a, &b, 300), (&c, &d, 600)])],
        &["r1 9 all [\\x00\\x00\\x00\\x01a\\x00r, \\x00\\x00\\x00\\x01d\\x00r\\x00)"],
    );
    check(
        &version(&[&a]),
        &[file(8, &[(&a, &b, 300)]), file(9, &[(&c, &d, 600)])],
        &[
            "r1 8 all [\\x00\\x00\\x00\\x01a\\x00r, \\x00\\x00\\x00\\x01b\\x00r\\x00)",
            "r1 9 all [\\x00\\x00\\x00\\x01c\\x00r, \\x00\\x00\\x00\\x01d\\x00r\\x00)",
        ],
    );
}

#[test]
fn a_new_table_in_several_files_gets_one_range() {
    let keys = [key(2, "a"), key(2, "b"), key(3, "a"), key(3, "b"), key(3, "c")];
    let [a, b, c, d, e] = keys.each_ref().map(Vec::as_slice);
    let files = [file(8, &[(a, b, 10), (c, c, 5)]), file(9, &[(d, e, 10)])];
    let version = version(&[b""]);
    let edit = placed(&version, &files);
    let ranges: Vec<_> = edit.add_ranges.iter().map(|r| (r.id.0, r.table.0)).collect();
    assert_eq!(ranges, [(100, 2), (101, 3)]);
    let spans: Vec<_> = edit.add_ranges.iter().map(|r| r.span.clone()).collect();
    assert_eq!(spans, [whole_table(TableId(2)), whole_table(TableId(3))]);
    let references: Vec<_> = edit.add_references.iter().map(|r| (r.range.0, r.file.0)).collect();
    assert_eq!(references, [(100, 8), (101, 8), (101, 9)]);
    version.apply(&edit).unwrap().check().unwrap();
}

#[test]
fn the_edit_of_a_flush_is_bounded_for_any_keys() {
    let long = "k".repeat(3000);
    let keys: Vec<_> = (1..=10_000).map(|table| user_key(TableId(table), &long, &long)).collect();
    let files: Vec<_> = keys
        .chunks(100)
        .zip(1..)
        .map(|(keys, number)| {
            let parts: Vec<_> = keys.iter().map(|key| (&key[..], &key[..], 10)).collect();
            file(number, &parts)
        })
        .collect();
    let version = version(&[b""]);
    let edit = placed(&version, &files);
    let mut bytes = Vec::new();
    edit.encode(&mut bytes);
    assert!(bytes.len() < 80 * 10_000 + 100 * 13_000, "{} bytes", bytes.len());
    let next = version.apply(&VersionEdit::decode(&bytes).unwrap()).unwrap();
    next.check().unwrap();
    assert!(keys.iter().all(|key| next.sources(key).count() == 1));
    assert_eq!(next.ranges.len(), 10_000);
    // Each of the 100 files has its own part in each of 100 ranges.
    let clips = next.ranges.iter().flat_map(|range| range.references().map(|(_, r)| &r.clip));
    assert!(clips.zip(1..).all(|(clip, table)| *clip == whole_table(TableId(table))));
}

#[test]
fn files_that_share_a_range_keep_their_clips_of_any_length() {
    let long = |table, pk: &str| user_key(TableId(table), pk, &"k".repeat(6000));
    let parts: Vec<_> =
        (1..=1000).map(|table| (long(table, "a"), long(table, "b"), long(table, "c"))).collect();
    let files: Vec<_> = parts
        .iter()
        .zip(0..)
        .flat_map(|((a, b, c), n)| [file(2 * n + 1, &[(a, b, 5)]), file(2 * n + 2, &[(c, c, 5)])])
        .collect();
    let edit = placed(&version(&[b""]), &files);
    assert!(edit.add_references.iter().all(|r| r.clip != ReferenceMeta::whole_range()));
    version(&[b""]).apply(&edit).unwrap().check().unwrap();
}

//! Tests of versions: the effects of edits, refused edits, and snapshots that recreate a version.

use super::*;
use crate::codec::HashSeed;
use crate::format::edit::Placement;
use crate::format::names::FileId;

fn identity() -> Identity {
    Identity {
        database: 1,
        incarnation: 2,
        seed: HashSeed(3),
        read_features: Vec::new(),
        write_features: Vec::new(),
        ignorable_features: Vec::new(),
    }
}

fn file(number: u64, seqs: (u64, u64), low: &str, high: &str) -> FileMeta {
    FileMeta {
        number: FileNumber(number),
        id: FileId(number),
        bytes: 1000,
        seq_min: Seq(seqs.0),
        seq_max: Seq(seqs.1),
        visible_from: Seq::ZERO,
        tombstones_applied: Seq::ZERO,
        entries: 1,
        tombstones: 0,
        raw_bytes: 1000,
        key_min: low.as_bytes().into(),
        key_max: high.as_bytes().into(),
        sections: Vec::new(),
        unknown: Box::default(),
    }
}

fn reference(file: &FileMeta, placement: Placement) -> ReferenceMeta {
    let clip = Span::inclusive(&file.key_min, &file.key_max);
    ReferenceMeta { range: RangeId(1), file: file.number, placement, clip, bytes: None }
}

/// Returns a version with one range over `a..z`, file 1 in the run, file 2 young, and log 3.
fn sample() -> Version {
    let (one, two) = (file(1, (1, 9), "b", "m"), file(2, (10, 19), "c", "d"));
    let edit = VersionEdit {
        identity: Some(identity()),
        numbers_below: Some(FileNumber(64)),
        add_logs: vec![LogMeta { number: FileNumber(3), id: FileId(3) }],
        flushed_seq: Some(Seq(19)),
        add_ranges: vec![RangeMeta {
            id: RangeId(1),
            table: TableId(1),
            span: Span::new(b"a", Some(b"z")),
        }],
        add_references: vec![reference(&one, Placement::Run), reference(&two, Placement::Young)],
        add_files: vec![one, two],
        drop_tables: vec![(TableId(9), Seq(4))],
        add_range_tombstones: vec![RangeTombstone::drop(Span::new(b"x", None), Seq(5))],
        ..VersionEdit::default()
    };
    Version::default().apply(&edit).unwrap()
}

#[track_caller]
fn refuses(edit: VersionEdit, expected: &str) {
    assert_eq!(sample().apply(&edit).unwrap_err(), expected);
}

fn edit() -> VersionEdit {
    VersionEdit::default()
}

#[test]
fn lookups() {
    let version = sample();
    let sources = |key: &str| -> Vec<u64> {
        version.sources(key.as_bytes()).map(|source| source.file.meta.number.0).collect()
    };
    assert_eq!((sources("c"), sources("d"), sources("d0")), (vec![2, 1], vec![2, 1], vec![1]));
    assert_eq!((sources("a"), sources("n"), sources("z")), (vec![], vec![], vec![]));
    assert_eq!((version.seq_max(), version.files().len()), (Seq(19), 2));
    assert_eq!(version.ranges_in(&Span::new(b"m", Some(b"n"))).len(), 1);
}

#[test]
fn a_compaction_replaces_files_and_does_not_change_the_old_version() {
    let version = sample();
    let merged = file(4, (1, 19), "b", "m");
    let compaction = VersionEdit {
        remove_references: vec![(RangeId(1), FileNumber(1)), (RangeId(1), FileNumber(2))],
        remove_files: vec![FileNumber(1), FileNumber(2)],
        add_references: vec![reference(&merged, Placement::Run)],
        add_files: vec![merged],
        ..edit()
    };
    let next = version.apply(&compaction).unwrap();
    assert_eq!(next.files().map(|file| file.meta.number.0).collect::<Vec<_>>(), [4]);
    assert_eq!(version.files().len(), 2);
    assert_eq!(version.sources(b"c").count(), 2);
    // Apply the same compaction again, picked from the previous version: its inputs no longer
    // exist.
    assert!(next.apply(&compaction).is_err());
}

#[test]
fn a_young_file_after_the_run_joins_it_by_an_edit() {
    let version = sample();
    let above = file(4, (20, 29), "n", "p");
    let flush = VersionEdit {
        add_references: vec![reference(&above, Placement::Young)],
        add_files: vec![above.clone()],
        ..edit()
    };
    let join = VersionEdit {
        remove_references: vec![(RangeId(1), FileNumber(4))],
        add_references: vec![reference(&above, Placement::Run)],
        ..edit()
    };
    let version = version.apply(&flush).unwrap().apply(&join).unwrap();
    let range = version.range_for(b"n").unwrap();
    assert_eq!((range.young.len(), range.run.len()), (1, 2));
}

#[test]
fn trap_10_edits_that_refer_to_removed_objects_are_refused() {
    refuses(
        VersionEdit { remove_files: vec![FileNumber(7)], ..edit() },
        "file 000007 leaves and is not there",
    );
    refuses(
        VersionEdit { remove_files: vec![FileNumber(1)], ..edit() },
        "file 000001 leaves and is still referenced",
    );
    refuses(
        VersionEdit { remove_references: vec![(RangeId(1), FileNumber(7))], ..edit() },
        "range r1 does not reference file 000007",
    );
    let gone = file(7, (20, 21), "c", "d");
    refuses(
        VersionEdit { add_references: vec![reference(&gone, Placement::Young)], ..edit() },
        "range r1 references file 000007, which is gone",
    );
    refuses(
        VersionEdit { remove_ranges: vec![RangeId(1)], ..edit() },
        "range r1 leaves and still has files",
    );
    refuses(VersionEdit { remove_ranges: vec![RangeId(2)], ..edit() }, "range r2 does not exist");
    refuses(
        VersionEdit { remove_logs: vec![FileNumber(5)], ..edit() },
        "log 000005 leaves and is not there",
    );
}

#[test]
fn trap_12_an_install_that_breaks_the_order_of_sources_is_refused() {
    let clash = file(4, (15, 25), "d", "e");
    refuses(
        VersionEdit {
            add_references: vec![reference(&clash, Placement::Young)],
            add_files: vec![clash],
            ..edit()
        },
        "range r1: files 000004 #15..#25 [d, e\\x00) and 000002 #10..#19 [c, d\\x00) \
         overlap in keys and Seqs",
    );
}

#[test]
fn trap_36_numbers_identify_one_object_and_are_reserved_first() {
    let add = |number| VersionEdit { add_files: vec![file(number, (20, 21), "c", "d")], ..edit() };
    refuses(add(1), "number 000001 is in use");
    refuses(add(3), "number 000003 is in use");
    refuses(add(64), "number 000064 is not reserved, below 000064");
    let log = LogMeta { number: FileNumber(2), id: FileId(1) };
    refuses(VersionEdit { add_logs: vec![log], ..edit() }, "number 000002 is in use");
    refuses(
        VersionEdit { numbers_below: Some(FileNumber(63)), ..edit() },
        "numbers below 000063, 000064 before",
    );
}

#[test]
fn edits_that_decrease_a_counter_or_repeat_an_event_are_refused() {
    refuses(VersionEdit { flushed_seq: Some(Seq(18)), ..edit() }, "flushed up to #18, #19 before");
    refuses(VersionEdit { identity: Some(identity()), ..edit() }, "a second identity");
    refuses(
        VersionEdit { drop_tables: vec![(TableId(9), Seq(9))], ..edit() },
        "t9 is dropped twice",
    );
    refuses(
        VersionEdit { forget_tables: vec![TableId(8)], ..edit() },
        "t8 is forgotten and was not dropped",
    );
    let range_tombstone = RangeTombstone::drop(Span::new(b"x", None), Seq(6));
    refuses(
        VersionEdit { remove_range_tombstones: vec![range_tombstone], ..edit() },
        "fence [x, end) #6 is not there",
    );
    assert_eq!(Version::default().apply(&edit()).unwrap_err(), "the first edit holds no identity");
}

#[test]
fn ranges_are_split_by_an_edit_and_share_a_file() {
    let [one, two] = [1, 2].map(|n| sample().file(FileNumber(n)).unwrap().meta.clone());
    let half = |range: u64, file: &FileMeta, placement, span: &Span| {
        let clip = Span::inclusive(&file.key_min, &file.key_max).intersect(span).unwrap();
        let bytes = Some(500);
        ReferenceMeta { range: RangeId(range), file: file.number, placement, clip, bytes }
    };
    let (left, right) = (Span::new(b"a", Some(b"d")), Span::new(b"d", Some(b"z")));
    let range =
        |id, span: &Span| RangeMeta { id: RangeId(id), table: TableId(1), span: span.clone() };
    let split = VersionEdit {
        remove_references: vec![(RangeId(1), FileNumber(1)), (RangeId(1), FileNumber(2))],
        remove_ranges: vec![RangeId(1)],
        add_ranges: vec![range(2, &left), range(3, &right)],
        add_references: vec![
            half(2, &one, Placement::Run, &left),
            half(2, &two, Placement::Young, &left),
            half(3, &one, Placement::Run, &right),
            half(3, &two, Placement::Young, &right),
        ],
        ..edit()
    };
    let version = sample().apply(&split).unwrap();
    for key in [&b"b"[..], b"c", b"d", b"d\0", b"m"] {
        let before: Vec<u64> = sample().sources(key).map(|s| s.file.meta.number.0).collect();
        let after: Vec<u64> = version.sources(key).map(|s| s.file.meta.number.0).collect();
        assert_eq!(after, before, "key {key:?}");
    }
    let bytes: Vec<u64> = version.ranges.iter().map(|range| range.bytes()).collect();
    assert_eq!(bytes, [1000, 1000], "the new ranges share the files of the old one");
    check_snapshot(&version);
    let remove = VersionEdit {
        remove_references: vec![(RangeId(2), FileNumber(1))],
        remove_files: vec![FileNumber(1)],
        ..edit()
    };
    assert_eq!(version.apply(&remove).unwrap_err(), "file 000001 leaves and is still referenced");
}

#[test]
fn a_clean_close_is_valid_while_its_log_exists() {
    let close = CleanClose { log: FileNumber(3), end: 4096, last_seq: Seq(30) };
    let closed = sample().apply(&VersionEdit { clean_close: Some(close), ..edit() }).unwrap();
    assert_eq!((closed.clean_close, closed.seq_max()), (Some(close), Seq(30)));
    assert_eq!(closed.apply(&edit()).unwrap().clean_close, Some(close));
    let gone = VersionEdit { remove_logs: vec![FileNumber(3)], ..edit() };
    assert_eq!(closed.apply(&gone).unwrap().clean_close, None);
}

#[track_caller]
fn check_snapshot(version: &Version) {
    let mut again = Version::default();
    let edits = version.snapshot();
    for edit in &edits {
        let mut bytes = Vec::new();
        edit.encode(&mut bytes);
        assert!(bytes.len() < 2 * SNAPSHOT_RECORD_BYTES);
        let edit = VersionEdit::decode(&bytes).unwrap();
        again.apply_in_place(&edit).unwrap();
    }
    again.check().unwrap();
    assert_eq!(format!("{again:?}"), format!("{version:?}"));
}

#[test]
fn a_snapshot_makes_the_same_version() {
    let mut unknown = Vec::new();
    crate::format::field::put_optional_field(&mut unknown, 77, b"kept");
    let close = CleanClose { log: FileNumber(3), end: 4096, last_seq: Seq(30) };
    let last = VersionEdit { unknown, clean_close: Some(close), ..edit() };
    check_snapshot(&sample().apply(&last).unwrap());
}

/// Logs may be kept for years, and imports as long as the logs after them, so a version may have
/// many of both.
#[test]
fn a_snapshot_of_a_long_history_is_cut_into_records() {
    let kept = |i: u64| KeptLog {
        log: LogMeta { number: FileNumber(i), id: FileId(i) },
        bytes: 1 << 20,
        last: Seq(i),
    };
    let import = |i: u64| {
        let at = Position { file: FileNumber(i), offset: 64 };
        Import { seq: Seq(i), at, span: Span::new(&[b'k'; 2_000], None) }
    };
    let long = VersionEdit {
        identity: Some(identity()),
        numbers_below: Some(FileNumber(200_000)),
        add_logs: Vec::new(),
        keep_logs: (1_000..31_000).map(kept).collect(),
        add_imports: (1_000..4_000).map(import).collect(),
        ..VersionEdit::default()
    };
    let version = Version::default().apply(&long).unwrap();
    let snapshot = version.snapshot();
    assert!(snapshot.len() > 3);
    for edit in &snapshot {
        let mut record = Vec::new();
        edit.encode(&mut record);
        assert!(record.len() < 2 * SNAPSHOT_RECORD_BYTES, "{}", record.len());
    }
    check_snapshot(&version);
}

#[test]
fn a_snapshot_of_thousands_of_files_is_cut_into_records() {
    let files: Vec<_> = (0..4000u64)
        .map(|i| {
            let key = |suffix: &str| format!("{i:08}{}{suffix}", "k".repeat(400));
            file(i + 10, (1, 9), &key("a"), &key("z"))
        })
        .collect();
    let big = VersionEdit {
        identity: Some(identity()),
        numbers_below: Some(FileNumber(5000)),
        add_ranges: vec![RangeMeta { id: RangeId(1), table: TableId(1), span: Span::all() }],
        add_references: files.iter().map(|file| reference(file, Placement::Run)).collect(),
        add_files: files,
        ..edit()
    };
    let version = Version::default().apply(&big).unwrap();
    assert!(version.snapshot().len() > 3);
    check_snapshot(&version);
}

#[test]
fn the_used_bytes_of_a_file_follow_its_references() {
    let version = sample();
    assert_eq!(version.used_bytes(FileNumber(2)), 1000);
    let two = version.file(FileNumber(2)).unwrap().meta.clone();
    let part = ReferenceMeta { bytes: Some(300), ..reference(&two, Placement::Young) };
    let edit = VersionEdit {
        remove_references: vec![(RangeId(1), two.number)],
        add_references: vec![part],
        ..VersionEdit::default()
    };
    let next = version.apply(&edit).unwrap();
    assert_eq!((next.used_bytes(FileNumber(1)), next.used_bytes(two.number)), (1000, 300));
    assert_eq!(next.used_bytes(FileNumber(9)), 0);
}

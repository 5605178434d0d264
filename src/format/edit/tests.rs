//! Tests of version edits: round trips, features, newer formats, and hostile input.

use super::*;
use crate::format::field::put_optional_field;
use crate::rng::Rng;

fn encoded(edit: &VersionEdit) -> Vec<u8> {
    let mut out = Vec::new();
    edit.encode(&mut out);
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

fn identity() -> Identity {
    Identity {
        database: 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100,
        incarnation: 0x1716_1514_1312_1110,
        seed: HashSeed(0x1f1e_1d1c_1b1a_1918),
        read_features: Vec::new(),
        write_features: Vec::new(),
        ignorable_features: vec!["x".into()],
    }
}

/// Returns the edit of a flush: it adds a file to one range, removes the flushed log and adds a new
/// log.
fn flush() -> VersionEdit {
    VersionEdit {
        numbers_below: Some(FileNumber(64)),
        add_logs: vec![LogMeta { number: FileNumber(6), id: FileId(0x0807_0605_0403_0201) }],
        remove_logs: vec![FileNumber(4)],
        flushed_seq: Some(Seq(300)),
        add_ranges: vec![RangeMeta {
            id: RangeId(2),
            table: TableId(1),
            span: Span::new(b"\0\0\0\x01", Some(b"\0\0\0\x02")),
        }],
        add_references: vec![ReferenceMeta {
            range: RangeId(2),
            file: FileNumber(5),
            placement: Placement::Young,
            clip: Span::inclusive(b"\0\0\0\x01a\0b", b"\0\0\0\x01c\0d"),
            bytes: None,
        }],
        ..VersionEdit::default()
    }
}

fn file() -> FileMeta {
    FileMeta {
        number: FileNumber(5),
        id: FileId(9),
        bytes: 8300,
        seq_min: Seq(100),
        seq_max: Seq(300),
        visible_from: Seq::ZERO,
        tombstones_applied: Seq::ZERO,
        entries: 3,
        tombstones: 1,
        raw_bytes: 60,
        key_min: b"\0\0\0\x01a\0b"[..].into(),
        key_max: b"\0\0\0\x01c\0d"[..].into(),
        sections: Vec::new(),
        unknown: Box::default(),
    }
}

fn clock() -> LivedTime {
    let eras = vec![
        Era { wall: 900, lived: 390, is_known: true },
        Era { wall: 7, lived: 300, is_known: false },
    ];
    let marks = vec![Mark { lived: 300, seq: Seq(880) }, Mark { lived: 350, seq: Seq(890) }];
    let doubts = vec![Mark { lived: 395, seq: Seq(290) }];
    LivedTime { now: 400, eras, marks, doubts, unsure: Some(Seq(299)) }
}

/// Returns an edit with every field.
fn full() -> VersionEdit {
    let range_tombstone = RangeTombstone::drop(Span::new(b"a", None), Seq(5));
    let expiry = RangeTombstone { span: Span::new(b"b", Some(b"c")), below: Seq(3), from: Seq(5) };
    VersionEdit {
        identity: Some(identity()),
        add_files: vec![file()],
        remove_files: vec![FileNumber(1), FileNumber(2)],
        remove_ranges: vec![RangeId(1)],
        remove_references: vec![(RangeId(1), FileNumber(1))],
        drop_tables: vec![(TableId(3), Seq(250))],
        forget_tables: vec![TableId(2)],
        add_range_tombstones: vec![range_tombstone.clone(), expiry.clone()],
        remove_range_tombstones: vec![range_tombstone, expiry],
        clock: Some(clock()),
        account: account().account,
        clean_close: Some(CleanClose { log: FileNumber(6), end: 4096, last_seq: Seq(300) }),
        ..flush()
    }
}

#[test]
fn example_edit() {
    let bytes = encoded(&flush());
    assert_eq!(
        hex(&bytes),
        "05 01 40 07 09 06 01 02 03 04 05 06 07 08 09 01 04 0b 02 ac 02 11 0c 02 01 04 00 00 00 01 \
         04 00 00 00 02 15 14 02 05 01 07 00 00 00 01 61 00 62 08 00 00 00 01 63 00 64 00"
    );
    assert_eq!(VersionEdit::decode(&bytes), Ok(flush()));
}

/// Returns an edit that adds a file to a new range, which was split off an older range. The file
/// also belongs to the older range, and about half of its bytes are in the new range.
fn half() -> VersionEdit {
    VersionEdit {
        add_references: vec![ReferenceMeta {
            range: RangeId(7),
            file: FileNumber(5),
            placement: Placement::Run,
            clip: Span::new(b"\0\0\0\x01b\0", Some(b"\0\0\0\x01c\0d\0")),
            bytes: Some(4000),
        }],
        ..VersionEdit::default()
    }
}

#[test]
fn example_edit_half() {
    let bytes = encoded(&half());
    assert_eq!(
        hex(&bytes),
        "15 13 07 05 02 06 00 00 00 01 62 00 08 00 00 00 01 63 00 64 00 22 04 07 05 a0 1f"
    );
    assert_eq!(VersionEdit::decode(&bytes), Ok(half()));
    assert!(half().to_string().ends_with(" about 4000 bytes\n"));
}

#[test]
fn example_edit_clock() {
    let edit = VersionEdit { clock: Some(clock()), ..VersionEdit::default() };
    let bytes = encoded(&edit);
    assert_eq!(
        hex(&bytes),
        "28 02 90 03 36 18 02 84 07 86 03 01 07 ac 02 00 02 ac 02 f0 06 32 0a 01 8b 03 a2 02 ac 02"
    );
    assert_eq!(VersionEdit::decode(&bytes), Ok(edit));
    assert!(encoded(&VersionEdit { clock: Some(400.into()), ..VersionEdit::default() }).len() == 4);
}

/// Returns the edit of a flush and of an import. The flushed log is kept for the change feed.
fn history() -> VersionEdit {
    let log = LogMeta { number: FileNumber(4), id: FileId(0x0807_0605_0403_0201) };
    VersionEdit {
        remove_logs: vec![FileNumber(4)],
        keep_logs: vec![KeptLog { log, bytes: 64 << 10, last: Seq(300) }],
        forget_logs: vec![FileNumber(3)],
        add_imports: vec![Import {
            seq: Seq(310),
            at: Position { file: FileNumber(6), offset: 4096 },
            span: Span::new(b"a", Some(b"b")),
        }],
        forget_imports: vec![Seq(7)],
        log_durable: Some(Position { file: FileNumber(6), offset: 4096 }),
        durable_lens: vec![(FileNumber(6), 64 << 10)],
        ..VersionEdit::default()
    }
}

#[test]
fn example_edit_history() {
    let bytes = encoded(&history());
    assert_eq!(
        hex(&bytes),
        "09 01 04 2b 0e 04 01 02 03 04 05 06 07 08 80 80 04 ac 02 2d 01 03 \
         2f 09 b6 02 06 80 20 01 61 01 62 31 01 07 32 03 06 80 20 38 04 06 80 80 04"
    );
    assert_eq!(VersionEdit::decode(&bytes), Ok(history()));
    let text = history().to_string();
    assert!(text.contains("keep log 000004 65536 bytes up to #300\n"), "{text}");
    assert!(text.contains("file 000006 at least 65536 bytes long\n"), "{text}");
}

/// Returns an edit with only a wear account.
fn account() -> VersionEdit {
    let mut wear = Wear {
        user_bytes: 300,
        log_bytes: 1000,
        flush_bytes: 2000,
        manifest_bytes: 500,
        log_syncs: 3,
        table_syncs: 1,
        manifest_syncs: 4,
        directory_syncs: 5,
        writes: 8,
        ..Wear::default()
    };
    wear.count_pages(&(0..4097));
    let end = Position { file: FileNumber(6), offset: 4096 };
    let account = Some(Account { wear, log_end: end, user_end: end });
    VersionEdit { account, ..VersionEdit::default() }
}

#[test]
fn example_edit_account() {
    let bytes = encoded(&account());
    assert_eq!(
        hex(&bytes),
        "34 23 ac 02 e8 07 d0 0f 00 00 f4 03 00 03 01 04 00 05 08 06 80 20 06 80 20 \
         09 05 03 02 01 01 01 01 01 01 01 01"
    );
    assert_eq!(VersionEdit::decode(&bytes), Ok(account()));
    assert_eq!(account().to_string(), "wear 300 bytes of users, 3500 written, 13 syncs\n");
}

#[test]
fn a_size_may_precede_its_reference_and_is_ignored_without_one() {
    let bytes = encoded(&half());
    let (reference, size) = bytes.split_at(bytes.len() - 6);
    assert_eq!(VersionEdit::decode(&[size, reference].concat()), Ok(half()));
    assert_eq!(VersionEdit::decode(size), Ok(VersionEdit::default()));
}

#[test]
fn drops_and_expiries_have_one_order_in_any_field_order() {
    let VersionEdit { add_range_tombstones, remove_range_tombstones, .. } = full();
    let in_order =
        VersionEdit { add_range_tombstones, remove_range_tombstones, ..VersionEdit::default() };
    let [drop, expiry] = [0, 1].map(|at| {
        let one = |range_tombstones: &[RangeTombstone]| vec![range_tombstones[at].clone()];
        let (add_range_tombstones, remove_range_tombstones) =
            (one(&in_order.add_range_tombstones), one(&in_order.remove_range_tombstones));
        encoded(&VersionEdit {
            add_range_tombstones,
            remove_range_tombstones,
            ..VersionEdit::default()
        })
    });
    assert_eq!(VersionEdit::decode(&[drop.clone(), expiry.clone()].concat()), Ok(in_order.clone()));
    assert_eq!(VersionEdit::decode(&[expiry, drop].concat()), Ok(in_order));
}

#[test]
fn example_identity() {
    let edit = VersionEdit { identity: Some(identity()), ..VersionEdit::default() };
    assert_eq!(
        hex(&encoded(&edit)),
        "03 29 03 10 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 05 08 10 11 12 13 14 15 16 17 \
         07 08 18 19 1a 1b 1c 1d 1e 1f 0d 01 78"
    );
    assert_eq!(VersionEdit::decode(&encoded(&edit)), Ok(edit));
}

#[test]
fn every_field_is_encoded_and_decoded() {
    assert_eq!(VersionEdit::decode(&encoded(&full())), Ok(full()));
    assert_eq!(VersionEdit::decode(&[]), Ok(VersionEdit::default()));
}

#[test]
fn the_text_form_has_one_line_per_field() {
    let expected = "numbers below 000064\n\
        add log 000006\n\
        remove log 000004\n\
        flushed #300\n\
        add range r2 t1 [\\x00\\x00\\x00\\x01, \\x00\\x00\\x00\\x02)\n\
        add reference r2 000005 Young [\\x00\\x00\\x00\\x01a\\x00b, \\x00\\x00\\x00\\x01c\\x00d\\x00)\n";
    assert_eq!(flush().to_string(), expected);
}

#[test]
fn trap_44_fields_of_newer_formats_are_kept_or_refused() {
    let mut bytes = encoded(&full());
    put_optional_field(&mut bytes, 60, b"new");
    let edit = VersionEdit::decode(&bytes).unwrap();
    assert_eq!(encoded(&edit), bytes);
    put_field(&mut bytes, 61, b"newer");
    let expected = FormatError::Unsupported("version edit field 61 of a newer format".into());
    assert_eq!(VersionEdit::decode(&bytes), Err(expected));
}

#[test]
fn trap_44_a_file_entry_of_a_newer_format_is_unsupported() {
    let mut newer = file();
    let mut unknown = Vec::new();
    put_field(&mut unknown, 50, b"new");
    newer.unknown = unknown.into();
    let edit = VersionEdit { add_files: vec![newer], ..VersionEdit::default() };
    let expected = FormatError::Unsupported("file entry field 50 of a newer format".into());
    assert_eq!(VersionEdit::decode(&encoded(&edit)), Err(expected));
}

#[test]
fn unknown_features_prevent_reading_and_writing() {
    let plain = identity();
    assert_eq!((plain.unreadable(), plain.unwritable()), (None, None));
    let newer = Identity {
        read_features: vec!["columns".into()],
        write_features: vec!["gates".into()],
        ..plain
    };
    assert_eq!((newer.unreadable(), newer.unwritable()), (Some("columns"), Some("gates")));
}

#[test]
fn errors_of_impossible_contents_name_their_offset() {
    #[track_caller]
    fn check(tag: u64, content: &[u8], expected: &str) {
        let mut bytes = encoded(&flush());
        put_field(&mut bytes, tag, content);
        match VersionEdit::decode(&bytes) {
            Err(FormatError::Damaged(error)) => {
                assert_eq!(error.problem, expected);
                assert!(error.at >= bytes.len() - content.len());
            }
            other => panic!("{other:?}"),
        }
    }
    check(
        2,
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        "file number 9223372036854775807",
    );
    check(4, &[1, 1], "1 bytes too many");
    check(4, &[], "1 bytes wanted, 0 left");
    check(8, &[1, 1, 1, b'b', 1, b'a'], "an empty span, or bytes behind it");
    check(10, &[1, 1, 3, 0], "placement 3");
    check(13, &[0xff, 0xff, 0xff, 0xff, 0x7f], "table id above u32");
    check(5, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], "Seq beyond the year 9999");
    check(1, &[], "incomplete");
}

#[test]
fn hostile_edits_never_panic_and_accepted_ones_round_trip() {
    let sample = encoded(&full());
    let mut rng = Rng::from_seed(4);
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut bytes = sample.clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.below(256) as u8;
        }
        bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
        if let Ok(edit) = VersionEdit::decode(&bytes) {
            assert_eq!(VersionEdit::decode(&encoded(&edit)), Ok(edit));
            accepted += 1;
        }
    }
    assert!(accepted > 100, "only {accepted} inputs were valid edits: the test proves little");
}

#[test]
fn a_malformed_wear_account_is_kept_but_not_used() {
    let account =
        Account { log_end: Position { file: FileNumber(6), offset: 64 }, ..Account::default() };
    let edit = VersionEdit { account: Some(account), ..flush() };
    let sound = encoded(&edit);
    let mut malformed = encoded(&flush());
    // The encoded account has one figure more than this version knows.
    let mut content = Vec::new();
    account.encode(&mut content);
    content.push(7);
    put_optional_field(&mut malformed, tag::ACCOUNT, &content);
    let decoded = VersionEdit::decode(&malformed).unwrap();
    assert_eq!((decoded.account, encoded(&decoded)), (None, malformed));
    assert!(decoded.to_string().contains("bytes of fields that cannot be read"));
    assert_eq!(VersionEdit::decode(&sound), Ok(edit));
}

//! Tests of WAL payloads: round trips, newer formats, and hostile input.

use super::*;
use crate::format::field::put_field;
use crate::rng::Rng;

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

fn open() -> Open {
    Open {
        predecessor: Some(Predecessor {
            number: FileNumber(3),
            id: FileId(0x0807_0605_0403_0201),
            accepted_end: 4096,
        }),
        manifest: Position { file: FileNumber(1), offset: 248 },
    }
}

const SHAPES: [ShapeDefinition<'_>; 1] = [ShapeDefinition { number: 5, shape: b"S" }];

const ENTRIES: [WalEntry<'_>; 2] = [
    WalEntry { kind: Kind::Put, key_suffix: b"r1", head: b"", row: b"ROW" },
    WalEntry { kind: Kind::Delete, key_suffix: b"r2", head: b"", row: b"" },
];

fn group() -> Vec<u8> {
    encoded(|out| put_group(out, SHAPES.into_iter(), b"\0\0\0\x01p\0", ENTRIES.into_iter(), &[]))
}

fn catalog() -> Vec<u8> {
    let changes = [
        Change::Created(TableId(2)),
        Change::Dropped(TableId(1)),
        Change::RangeTombstone(Span::new(b"a", Some(b"b"))),
        Change::RangeTombstone(Span::new(b"c", None)),
        Change::Ttl(Seq(7), Span::new(b"d", Some(b"e"))),
    ];
    let (shapes, entries) = ([].into_iter(), ENTRIES.into_iter());
    encoded(|out| put_group(out, shapes, b"", entries, &changes))
}

#[test]
fn example_wal_open() {
    let bytes = encoded(|out| open().encode(out));
    assert_eq!(hex(&bytes), "03 03 01 f8 01 05 0b 03 01 02 03 04 05 06 07 08 80 20");
    assert_eq!(Open::decode(&bytes), Ok(open()));
    let first = Open { predecessor: None, ..open() };
    assert_eq!(Open::decode(&encoded(|out| first.encode(out))), Ok(first));
}

#[test]
fn example_wal_group() {
    let bytes = group();
    assert_eq!(
        hex(&bytes),
        "01 05 01 53 06 00 00 00 01 70 00 02 01 02 72 31 03 52 4f 57 02 02 72 32"
    );
    let group = Group::decode(&bytes).unwrap();
    assert_eq!((group.key_prefix, group.entries.count), (&b"\0\0\0\x01p\0"[..], 2));
    assert_eq!(group.shapes().collect::<Vec<_>>(), SHAPES);
    assert_eq!(group.entries().collect::<Vec<_>>(), ENTRIES);
    assert_eq!(group.changes().count(), 0);
}

#[test]
fn example_wal_catalog() {
    let bytes = catalog();
    assert_eq!(
        hex(&bytes),
        "00 00 02 01 02 72 31 03 52 4f 57 02 02 72 32 0b 01 02 0d 01 01 0f 04 01 61 01 62 0f 02 01 63 \
         11 05 07 01 64 01 65"
    );
    let group = Group::decode(&bytes).unwrap();
    let changes: Vec<_> = group.changes().collect();
    let expected = [
        Change::Created(TableId(2)),
        Change::Dropped(TableId(1)),
        Change::RangeTombstone(Span::new(b"a", Some(b"b"))),
        Change::RangeTombstone(Span::new(b"c", None)),
        Change::Ttl(Seq(7), Span::new(b"d", Some(b"e"))),
    ];
    assert_eq!((changes.as_slice(), group.entries().count()), (&expected[..], 2));
    let bytes =
        |entry: WalEntry<'_>| group.key_prefix.len() + entry.key_suffix.len() + entry.row.len();
    assert_eq!(group.user_bytes, group.entries().map(bytes).sum::<usize>() as u64);
    assert!(!group.is_plain(), "it changes tables");
}

#[test]
fn example_wal_promise() {
    for (len, expected) in [(None, "09 02 ac 02"), (Some(65536), "09 02 ac 02 12 03 80 80 04")] {
        let durable_up_to = DurableUpTo { seq_reservation: Seq(300), len };
        let bytes = encoded(|out| durable_up_to.encode(out));
        assert_eq!(hex(&bytes), expected);
        assert_eq!(DurableUpTo::decode(&bytes), Ok(durable_up_to));
    }
}

#[test]
fn example_wal_close() {
    let close =
        Close { manifest: Position { file: FileNumber(1), offset: 248 }, last_seq: Seq(300) };
    let bytes = encoded(|out| close.encode(out));
    assert_eq!(hex(&bytes), "03 03 01 f8 01 07 02 ac 02");
    assert_eq!(Close::decode(&bytes), Ok(close));
}

#[test]
fn trap_44_fields_of_newer_formats_are_refused_or_skipped() {
    #[track_caller]
    fn check(kind: RecordKind, payload: &[u8], name: &str) {
        let mut skipped = payload.to_vec();
        super::super::field::put_optional_field(&mut skipped, 60, b"new");
        assert!(WalRecord::decode(kind, &skipped).is_ok());
        let mut refused = payload.to_vec();
        put_field(&mut refused, 61, b"new");
        let expected = format!("{name} field 61 of a newer format").into();
        let found = WalRecord::decode(kind, &refused).unwrap_err();
        assert_eq!(found, FormatError::Unsupported(expected));
    }
    check(RecordKind::Open, &encoded(|out| open().encode(out)), OPEN);
    check(RecordKind::Group, &group(), GROUP);
    check(RecordKind::Catalog, &catalog(), GROUP);
    check(
        RecordKind::DurableUpTo,
        &encoded(|out| DurableUpTo { seq_reservation: Seq(9), len: Some(9) }.encode(out)),
        DURABLE_UP_TO,
    );
}

#[test]
fn counts_and_lengths_that_lie_are_refused() {
    #[track_caller]
    fn check(payload: &[u8]) {
        assert!(matches!(Group::decode(payload), Err(FormatError::Damaged(_))));
    }
    check(&[]);
    check(&[0xff, 0xff, 0xff, 0xff, 0x0f]); // shapes
    check(&[0, 0xff, 0xff, 0x03]); // key prefix
    check(&[0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]); // entries
    check(&[0, 0, 1, 3, 0, 0]); // entry kind
    check(&[0, 0, 1, 1, 0, 9]); // row
    assert!(Open::decode(&[]).is_err() && Close::decode(&[]).is_err());
}

#[test]
fn hostile_payloads_never_panic() {
    let kinds = [
        RecordKind::Open,
        RecordKind::Group,
        RecordKind::Catalog,
        RecordKind::DurableUpTo,
        RecordKind::Close,
        RecordKind::Edit,
    ];
    let visit = |payload: &[u8]| {
        for kind in kinds {
            if let Ok(WalRecord::Group(group)) = WalRecord::decode(kind, payload) {
                assert_eq!(group.entries().count(), group.entries.count);
                group.shapes().chain(SHAPES).for_each(drop);
                group.changes().for_each(drop);
            }
        }
    };
    let mut rng = Rng::from_seed(2);
    for sample in [group(), catalog(), encoded(|out| open().encode(out))] {
        for _ in 0..5_000 {
            let mut bytes = sample.clone();
            for _ in 0..=rng.below(3) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = rng.below(256) as u8;
            }
            bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
            visit(&bytes);
        }
    }
}

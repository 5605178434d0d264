//! Checks the examples of table file structures in FORMAT.md: the code that writes files must
//! produce exactly these bytes.

use std::sync::Arc;

use super::shapes::ShapeTable;
use super::zones::ZoneBuilder;
use crate::format::Kind;
use crate::format::block::{BlockKind, BlockPlace, Packing, Sealer};
use crate::format::file_meta::{FileMeta, Section};
use crate::format::hash_index::{Form, LocationSplit, encode_pages};
use crate::format::names::{FileId, FileNumber};
use crate::format::row_block::RowBlockBuilder;
use crate::format::sparse_index::{FANOUT, Handles, SparseBuilder};
use crate::format::sst::{encode_footer, encode_header, section};
use crate::format::stats::SstStats;
use crate::format::zones::ZoneSummary;
use crate::model::{EdmType, Row, Seq, Shape, ValueRef};

const ID: FileId = FileId(0x1122_3344_5566_7788);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Asserts that `bytes` equal the hex digits in `expected`; spaces and bars are ignored.
#[track_caller]
fn check(bytes: &[u8], expected: &str) {
    let digits: String = expected.chars().filter(char::is_ascii_hexdigit).collect();
    assert_eq!(hex(bytes), digits);
}

fn built(build: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    build(&mut out);
    out
}

fn key(row_key: &str) -> Vec<u8> {
    [b"\0\0\0\x01p\0", row_key.as_bytes()].concat()
}

#[test]
fn example_sst_header() {
    check(
        &built(|out| encode_header(ID, out)),
        "72 77 73 6e 2e 73 73 74 | 01 00 00 00 | 00 00 00 00 | 88 77 66 55 44 33 22 11 | 6e 8d b3 \
         19 | 00 00 00 00",
    );
}

#[test]
fn example_block() {
    let place = BlockPlace { kind: BlockKind::Rows, file: ID, number: 0 };
    let sealer = Sealer::new(Packing::Plain).unwrap();
    check(
        &built(|out| sealer.seal_plain(place, &[1, 2, 3], out)),
        "01 | 00 | 00 00 | 00 00 00 00 | 00 00 00 00 | 03 00 00 00 | 03 00 00 00 | db 39 88 43 | \
         01 02 03",
    );
    check(
        &built(|out| sealer.seal_padded(place, &[1, 2, 3], 2, out)),
        "01 | 00 | 01 00 | 00 00 00 00 | 00 00 00 00 | 03 00 00 00 | 03 00 00 00 | 7f 2f 63 e7 | \
         01 02 03 00 00",
    );
}

#[test]
fn example_row_block() {
    let mut builder = RowBlockBuilder::default();
    builder.add(&key("a1"), Seq(0x1234), Kind::Put, |out| out.extend_from_slice(&[1, 0xaa]));
    builder.add(&key("a1"), Seq(0x1200), Kind::Put, |out| out.extend_from_slice(&[1, 0xbb]));
    builder.add(&key("a22"), Seq(0x1201), Kind::Delete, |_| {});
    check(
        &built(|out| builder.finish(out)),
        "03 00 | 02 | 01 | 07 00 | 00 00 | 00 12 00 00 00 00 00 00 | 1d 00 23 00 29 00 | 00 00 00 \
         01 70 00 61 \
         01 01 34 31 01 aa | 01 01 00 31 01 bb | 02 02 01 32 32",
    );
}

#[test]
fn example_hash_line() {
    let split = LocationSplit { slot_bits: 9 };
    let keys = [(0x0003_1111, split.pack(0, 3)), (0x0003_2222, split.pack(2, 1))];
    let page = encode_pages(ID, Form::First, keys.len(), keys.into_iter());
    check(
        &page[64..128],
        "11 11 22 22 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 | 02 | 00 | 00 00 \
         03 00 00 00 01 04 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 \
         00 00 00 00 00 00 00 00 00 00 00",
    );
    let form = Form::second(split.location_bits(3)).unwrap();
    let page = encode_pages(ID, form, keys.len(), keys.into_iter());
    check(
        &page[64..128],
        "03 10 03 00 01 24 03 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 \
         00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 | \
         02 00 00 00",
    );
    let page = encode_pages(ID, Form::Third, keys.len(), keys.into_iter());
    check(
        &page[64..128],
        "11 11 22 22 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 \
         00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 | \
         02 00 00 00",
    );
}

#[test]
fn example_sparse_index_page() {
    let mut builder = SparseBuilder::default();
    [&key("b"), &key("cd"), &key("d")].iter().for_each(|separator| builder.add(separator));
    check(
        &built(|out| builder.finish(out)),
        "03 00 00 00 | 06 00 | 00 00 | 01 00 00 00 03 00 00 00 04 00 00 00 | 00 00 00 01 70 00 | \
         62 63 64 64",
    );
}

#[test]
fn example_block_handles() {
    let split = LocationSplit { slot_bits: 9 };
    let (blocks, pages) = ([0x20, 0x1020, 0x1800].into(), [0x3000, 0x3040, 0x3060].into());
    let handles = Handles { split, fanout: FANOUT, blocks, pages };
    check(
        &built(|out| handles.encode(out)),
        "02 00 00 00 | 01 00 00 00 | 80 00 00 00 | 09 | 00 00 00 \
         20 00 00 00 00 00 00 00 | 20 10 00 00 00 00 00 00 | 00 18 00 00 00 00 00 00 \
         00 30 00 00 00 00 00 00 | 40 30 00 00 00 00 00 00 | 60 30 00 00 00 00 00 00",
    );
}

#[test]
fn example_shapes_section() {
    let mut table = ShapeTable::default();
    table.number(&Arc::new(Shape::new(vec![("Price".into(), EdmType::Double)])));
    table.number(&Arc::new(Shape::new(vec![("Stock".into(), EdmType::Int32)])));
    check(
        &built(|out| table.encode(out)),
        "02 | 08 01 06 05 50 72 69 63 65 | 08 01 04 05 53 74 6f 63 6b",
    );
}

#[test]
fn example_statistics() {
    let stats = SstStats {
        entries: 3,
        keys: 2,
        tombstones: 1,
        raw_bytes: 29,
        seq_min: Seq(0x1200),
        seq_max: Seq(0x1234),
        key_min: key("a1").into(),
        key_max: key("a22").into(),
    };
    check(
        &built(|out| stats.encode(out)),
        "09 02 80 24 | 0b 02 b4 24 | 0f 01 03 | 11 01 01 | 13 01 1d | 15 08 00 00 00 01 70 00 61 \
         31 | 17 09 00 00 00 01 70 00 61 32 32 | 21 01 02",
    );
}

/// Returns the zones (minimum and maximum values) of two blocks: one with two versions of a row,
/// the other with a row and a tombstone.
fn zones() -> ZoneBuilder {
    let bolt = |name, stock| {
        let names = vec![("Name".into(), EdmType::String), ("Stock".into(), EdmType::Int32)];
        let shape = Arc::new(Shape::new(names));
        let values = [ValueRef::String(name), ValueRef::Int32(stock)];
        Row { body: built(|out| shape.encode_body(values.into_iter(), out)), shape }
    };
    let mut zones = ZoneBuilder::default();
    zones.begin_block(true);
    zones.add(true, Seq(0x1234), Kind::Put, Some(&bolt("bolt M4", 900).as_ref()));
    zones.add(false, Seq(0x1200), Kind::Put, Some(&bolt("bolt", -1).as_ref()));
    zones.finish_block();
    zones.begin_block(true);
    zones.add(true, Seq(0x1240), Kind::Put, Some(&bolt("bolt", 7).as_ref()));
    zones.add(true, Seq(0x1201), Kind::Delete, None);
    zones.finish_block();
    zones
}

#[test]
fn example_zones() {
    check(
        &zones().take_page(),
        "02 | 02 | 01 | 00 | 15 00 00 00 | 01 04 04 00 4e 61 6d 65 62 6f 6c 74 | 04 00 05 00 53 74 6f 63 6b \
         00 12 00 00 00 00 00 00 01 12 00 00 00 00 00 00 | 34 12 00 00 00 00 00 00 40 12 00 00 00 00 00 00 \
         02 00 00 00 02 00 00 00 | 02 01 \
         03 03 | 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 | 00 00 00 00 00 34 4d 20 00 00 00 00 00 00 00 00 \
         03 03 | ff ff ff ff ff ff ff 7f 07 00 00 00 00 00 00 80 | 84 03 00 00 00 00 00 80 07 00 00 00 00 00 00 80",
    );
}

#[test]
fn example_zone_summary() {
    let mut zones = zones();
    zones.take_page();
    let set = built(|out| zones.summary(out));
    check(
        &built(|out| ZoneSummary::encode(&[0x3000, 0x3100], &set, out)),
        "01 00 00 00 | 00 00 00 00 | 00 30 00 00 00 00 00 00 | 00 31 00 00 00 00 00 00 \
         01 | 02 | 01 | 00 | 15 00 00 00 | 01 04 04 00 4e 61 6d 65 62 6f 6c 74 | 04 00 05 00 53 74 6f 63 6b \
         00 12 00 00 00 00 00 00 | 40 12 00 00 00 00 00 00 | 04 00 00 00 | 03 \
         03 | 00 00 00 00 00 00 00 00 | 00 00 00 00 00 34 4d 20 | 03 | ff ff ff ff ff ff ff 7f | 84 03 00 00 00 00 00 80",
    );
}

fn sections() -> Vec<Section> {
    let section =
        |kind, flags, offset, len, checksum| Section { kind, flags, offset, len, checksum };
    vec![
        section(section::ROWS, 1, 32, 76, 0x0101_0101),
        section(section::HASH_INDEX, 1, 4096, 4096, 0x0303_0303),
        section(section::SHAPES, 1, 8192, 41, 0x0202_0202),
        section(section::SPARSE_INDEX, 1, 8233, 72, 0x0404_0404),
        section(section::HANDLES, 1, 8305, 80, 0x0505_0505),
        section(section::STATISTICS, 0, 8385, 67, 0x0707_0707),
    ]
}

#[test]
fn example_sst_footer() {
    check(
        &built(|out| assert_eq!(encode_footer(ID, &sections(), 8452, out), 8547)),
        "06 | 01 01 20 4c 01 01 01 01 | 03 01 80 20 80 20 03 03 03 03 | 02 01 80 40 29 02 02 02 \
         02 | 04 01 a9 40 48 04 04 04 04 \
         | 05 01 f1 40 50 05 05 05 05 | 07 00 c1 41 43 07 07 07 07 \
         37 00 00 00 | e3 df 92 4b | 88 77 66 55 44 33 22 11 | 63 21 00 00 00 00 00 00 | 01 00 00 \
         00 | 00 00 00 00 | 72 77 73 6e 2e 73 73 74",
    );
}

#[test]
fn example_file_entry() {
    let meta = FileMeta {
        number: FileNumber(7),
        id: ID,
        bytes: 8547,
        seq_min: Seq(0x1200),
        seq_max: Seq(0x1234),
        visible_from: Seq::ZERO,
        tombstones_applied: Seq::ZERO,
        entries: 3,
        tombstones: 1,
        raw_bytes: 29,
        key_min: key("a1").into(),
        key_max: key("a22").into(),
        sections: sections(),
        unknown: Box::default(),
    };
    check(
        &built(|out| meta.encode(out)),
        "03 01 07 | 05 08 88 77 66 55 44 33 22 11 | 07 02 e3 42 | 09 02 80 24 | 0b 02 b4 24 | 0f \
         01 03 | 11 01 01 | 13 01 1d \
         15 08 00 00 00 01 70 00 61 31 | 17 09 00 00 00 01 70 00 61 32 32 \
         19 37 06 01 01 20 4c 01 01 01 01 03 01 80 20 80 20 03 03 03 03 02 01 80 40 29 02 02 02 \
         02 04 01 a9 40 48 04 04 04 04 05 01 f1 40 50 05 05 05 05 07 00 c1 41 43 07 07 07 07",
    );
}

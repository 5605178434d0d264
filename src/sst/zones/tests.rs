//! Tests zones that are computed from rows or read from files: limits, damage, and wrong values.

use std::path::Path;

use super::super::{BlockCache, Sst, SstOptions, SstShared, SstWriter};
use super::*;
use crate::codec::HashSeed;
use crate::error::{ErrorKind, Result};
use crate::format::block::{BlockKind, BlockPlace, HEADER_BYTES, Packing, Sealer};
use crate::format::file_meta::FileMeta;
use crate::format::names::{FileId, FileNumber};
use crate::format::sst::section;
use crate::format::zones::ZoneSet;
use crate::fs::{Fs, MemFs};
use crate::model::{Row, Shapes, Value};
use crate::options::{Codec, IoMode};

const FILE: &str = "000001.sst";

fn row(properties: &[(&str, Value)]) -> Row {
    let types = properties.iter().map(|(name, value)| ((*name).into(), value.as_ref().edm_type()));
    let shape = Arc::new(Shape::new(types.collect()));
    let mut sorted = properties.to_vec();
    sorted.sort_by(|a, b| a.0.cmp(b.0));
    let mut body = Vec::new();
    shape.encode_body(sorted.iter().map(|(_, value)| value.as_ref()), &mut body);
    Row { shape, body }
}

fn put(zones: &mut ZoneBuilder, newest: bool, seq: u64, row: &Row) {
    zones.add(newest, Seq(seq), Kind::Put, Some(&row.as_ref()));
}

fn page(zones: &mut ZoneBuilder) -> Vec<u8> {
    zones.take_page()
}

fn summary(zones: &ZoneBuilder) -> Vec<u8> {
    let mut out = Vec::new();
    zones.summary(&mut out);
    out
}

/// Returns the columns of an encoded zone page as text: name, type, and the values per block.
fn shown(bytes: &[u8]) -> Vec<String> {
    let set = ZoneSet::parse(bytes).unwrap();
    assert_eq!(set.check(), Ok(()));
    let columns = set.columns().map(|column| {
        let name = std::str::from_utf8(column.name).unwrap();
        let values = (0..set.len()).map(|i| match column.values(i).unwrap() {
            ZoneValues::NONE => " -".to_owned(),
            ZoneValues { presence, min, max } => {
                let of = |key: u64| i128::from(key) - (1 << 63);
                format!(" {presence}:{}..{}", of(min), of(max))
            }
        });
        format!("{name} {:?}{}", column.edm, values.collect::<String>())
    });
    columns.collect()
}

fn numbers(names: std::ops::Range<usize>, value: i32) -> Row {
    let names: Vec<String> = names.map(|i| format!("N{i:02}")).collect();
    let properties: Vec<_> = names.iter().map(|it| (it.as_str(), Value::Int32(value))).collect();
    row(&properties)
}

#[test]
fn blocks_pages_and_the_file() {
    let mut zones = ZoneBuilder::default();
    assert!(!zones.begin_block(true));
    put(&mut zones, true, 50, &row(&[("A", Value::Int32(3)), ("B", Value::Int64(1))]));
    put(&mut zones, false, 40, &row(&[("A", Value::Int32(-7))]));
    zones.finish_block();
    assert!(!zones.begin_block(false));
    zones.add(false, Seq(30), Kind::Delete, None);
    put(&mut zones, true, 60, &row(&[("A", Value::Int64(9))]));
    zones.finish_block();
    let first = page(&mut zones);
    let expected = ["A Int32 3:-7..3 -", "A Int64 - 3:9..9", "B Int64 1:1..1 -"];
    assert_eq!(shown(&first), expected);
    let set = ZoneSet::parse(&first).unwrap();
    let flags: Vec<u8> = (0..2).map(|i| set.meta(i).unwrap().flags).collect();
    let second = flag::BEGAN_BEFORE | flag::TOMBSTONES;
    assert_eq!(flags, [flag::VERSIONS | flag::GOES_ON, second]);
    assert!(!zones.begin_block(true));
    put(&mut zones, true, 70, &row(&[("A", Value::Int32(100))]));
    zones.finish_block();
    assert_eq!(shown(&page(&mut zones)), ["A Int32 3:100..100"]);
    let whole = summary(&zones);
    assert_eq!(shown(&whole), ["A Int32 1:-7..100", "A Int64 1:9..9", "B Int64 1:1..1"]);
    let meta = ZoneSet::parse(&whole).unwrap().meta(0).unwrap();
    let flags = flag::TOMBSTONES | flag::VERSIONS;
    assert_eq!(meta, ZoneMeta { seq_min: Seq(30), seq_max: Seq(70), entries: 5, flags });
}

/// Adds a page with one block that contains only `row`. Returns the page's number of columns and
/// whether it is complete.
fn one_page(zones: &mut ZoneBuilder, row: &Row) -> (usize, bool) {
    assert!(!zones.begin_block(true));
    put(zones, true, 50, row);
    zones.finish_block();
    let page = page(zones);
    let set = ZoneSet::parse(&page).unwrap();
    (set.columns().count(), set.is_complete)
}

#[test]
fn a_page_of_many_properties_is_not_complete() {
    let mut zones = ZoneBuilder::default();
    assert_eq!(one_page(&mut zones, &numbers(0..32, 1)), (32, true));
    assert_eq!(one_page(&mut zones, &numbers(1..34, 2)), (32, false));
    assert_eq!(
        one_page(&mut zones, &row(&[("Long".repeat(300).as_str(), Value::Int32(1))])),
        (0, false)
    );
}

#[test]
fn trap_40_the_summary_omits_columns_that_a_page_may_lack() {
    let mut zones = ZoneBuilder::default();
    one_page(&mut zones, &numbers(0..20, 1));
    assert_eq!(shown(&summary(&zones)).len(), 20);
    // In this page, N10 to N41 have a column, and N42 to N44 have none. As the page is incomplete,
    // it might also contain N00 to N09 without a column, so the summary must drop these.
    one_page(&mut zones, &numbers(10..45, 2));
    let whole = summary(&zones);
    let set = ZoneSet::parse(&whole).unwrap();
    assert!(!set.is_complete);
    let names: Vec<_> = set.columns().map(|column| column.name.to_vec()).collect();
    assert!(names.contains(&b"N10".to_vec()) && !names.contains(&b"N00".to_vec()));
    assert!(names.len() <= COLUMNS_MAX);
    // In a later page, N42 to N44 have columns. The summary must not add them, because it lacks the
    // values of the earlier page.
    one_page(&mut zones, &numbers(42..45, 3));
    let again = summary(&zones);
    let again = ZoneSet::parse(&again).unwrap();
    assert_eq!(again.columns_named("N43").count(), 0);
    assert_eq!(again.columns().count(), names.len());
}

#[test]
fn an_unreadable_row_makes_its_zones_unbounded() {
    let properties = [
        ("B", Value::Boolean(true)),
        ("D", Value::Double(1.0)),
        ("I", Value::Int32(1)),
        ("S", Value::String("text".into())),
    ];
    let whole = row(&properties);
    for len in 0..whole.body.len() {
        let mut zones = ZoneBuilder::default();
        zones.begin_block(true);
        put(&mut zones, true, 1, &whole);
        put(&mut zones, true, 1, &Row { body: whole.body[..len].to_vec(), ..whole.clone() });
        zones.finish_block();
        let page = page(&mut zones);
        let set = ZoneSet::parse(&page).unwrap();
        let text = set.columns_named("S").next().unwrap();
        // The body ends before or within the text, so the text is unreadable.
        assert_eq!((text.prefix, text.values(0).map(|it| it.max)), (&b""[..], Some(u64::MAX)));
        let number = set.columns_named("I").next().unwrap().values(0).unwrap();
        assert_eq!((number.min, number.max) == (0, u64::MAX), len < 13, "{len}");
    }
}

#[test]
fn bounds_are_those_of_all_texts() {
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as usize % below
    };
    let letters = ["a", "b", "\0", "z", "\u{e000}", "\u{10000}", "\u{7ff}"];
    for _ in 0..2_000 {
        let mut text = || (0..random(11)).map(|_| letters[random(letters.len())]).collect();
        let texts: Vec<String> = (0..9).map(|_| text()).collect();
        let mut bounds = [(); 2].map(|()| Bounds::NONE);
        for text in &texts {
            bounds[0].add_variable(EdmType::String, Some(text.as_bytes()));
            bounds[1].add_variable(EdmType::Binary, Some(text.as_bytes()));
        }
        let order = |a: &&String, b: &&String| a.encode_utf16().cmp(b.encode_utf16());
        let [least, greatest] = [texts.iter().min_by(order), texts.iter().max_by(order)];
        assert_eq!(bounds[0].min_text, least.unwrap().as_bytes(), "{texts:?}");
        assert_eq!(bounds[0].max_text, greatest.unwrap().as_bytes(), "{texts:?}");
        assert_eq!(bounds[1].min_text, texts.iter().min().unwrap().as_bytes(), "{texts:?}");
        assert_eq!(bounds[1].max_text, texts.iter().max().unwrap().as_bytes(), "{texts:?}");
    }
}

#[test]
fn long_texts_share_a_prefix_of_at_most_255_bytes() {
    #[track_caller]
    fn check(texts: &[&str], prefix: &str, min: &[u8], max: &[u8]) {
        let mut zones = ZoneBuilder::default();
        zones.begin_block(true);
        for text in texts {
            put(&mut zones, true, 1, &row(&[("S", Value::String((*text).to_owned()))]));
        }
        zones.finish_block();
        let page = page(&mut zones);
        let set = ZoneSet::parse(&page).unwrap();
        let column = set.columns().next().unwrap();
        assert_eq!(column.prefix, prefix.as_bytes());
        let values = column.values(0).unwrap();
        let head = |bytes: &[u8]| {
            let mut head = [0; 8];
            head[..bytes.len()].copy_from_slice(bytes);
            crate::format::zones::bytes_key(head)
        };
        assert_eq!((values.min, values.max), (head(min), head(max)));
    }
    check(&["bolt"], "bolt", b"", b"");
    check(&["bolts", "bolt", "bolt M4x20"], "bolt", b"", b"s");
    check(&["nut", "bolt"], "", b"bolt", b"nut");
    // In UTF-16 the surrogates of U+10000 sort before U+E000.
    check(&["\u{e000}", "\u{10000}"], "", b"\xf0\x90\x80\x80", b"\xf5\x80\x80");
    let long = "x".repeat(300);
    check(&[&long], &long[..255], b"xxxxxxxx", b"xxxxxxxx");
}

/// Writes a file with three zone pages.
fn written() -> (MemFs, FileMeta) {
    let fs = MemFs::new();
    let options = SstOptions { block_bytes: 64, codec: Codec::None, seed: HashSeed(1) };
    let (number, id) = (FileNumber(1), FileId(9));
    let mut writer =
        SstWriter::create(Arc::new(fs.clone()), Path::new(""), number, id, options).unwrap();
    for i in 0..400u32 {
        let row = row(&[("N", Value::Int64(i.into())), ("S", Value::String(format!("text {i}")))]);
        let row = row.as_ref();
        let key = format!("{i:010}\0");
        writer.add(key.as_bytes(), Seq(1_000 + u64::from(i)), Kind::Put, Some(&row)).unwrap();
    }
    (fs, writer.finish().unwrap())
}

fn open(fs: &MemFs, meta: &FileMeta, mode: IoMode) -> Result<Sst> {
    let (cache, shapes) = (Arc::new(BlockCache::new(1 << 20)), Arc::new(Shapes::new(1 << 20)));
    let shared = SstShared { cache, shapes, mode, seed: HashSeed(1) };
    Sst::open(fs as &dyn Fs, Path::new(""), meta, &shared)
}

#[test]
fn a_file_has_a_page_for_every_64_blocks() {
    let (fs, meta) = written();
    for mode in [IoMode::Mmap, IoMode::Pread] {
        let sst = open(&fs, &meta, mode).unwrap();
        let pages = sst.block_count().div_ceil(ZONE_BLOCKS);
        assert!(pages >= 3 && !sst.block_count().is_multiple_of(ZONE_BLOCKS));
        for _ in 0..2 {
            let lens =
                (0..pages).map(|page| sst.zone_page(page, |set| set.len()).unwrap().unwrap());
            assert_eq!(lens.sum::<usize>(), sst.block_count());
        }
        assert_eq!(sst.zone_summary(|set| set.meta(0).unwrap().entries).unwrap(), Some(400));
        assert_eq!(sst.zone_page(pages, |_| ()).unwrap_err().kind(), ErrorKind::Corruption);
    }
}

#[test]
fn trap_24_damaged_zones_are_an_error_only_when_they_are_read() {
    let (fs, meta) = written();
    for kind in [section::ZONES, section::ZONE_SUMMARY] {
        let at = meta.section(kind).unwrap().offset;
        let fs = fs.kill_image();
        fs.flip(FILE, at + 30, 1).unwrap();
        for mode in [IoMode::Mmap, IoMode::Pread] {
            let sst = Arc::new(open(&fs, &meta, mode).unwrap());
            let mut iter = sst.iter(false);
            iter.seek(b"0000000007").unwrap();
            assert!(iter.valid());
            for _ in 0..2 {
                let error = sst.zone_page(0, |_| ()).unwrap_err();
                let corruption = error.corruption().unwrap();
                assert_eq!(error.kind(), ErrorKind::Corruption);
                assert!((at..at + 64).contains(&corruption.offset), "{error}");
                assert!(corruption.file.ends_with(FILE), "{error}");
            }
        }
    }
}

/// Tests zones with a wrong byte but a valid checksum: verification must report them.
#[test]
fn trap_40_wrong_zones_are_reported_by_verification() {
    let (fs, meta) = written();
    let sections =
        [(section::ZONES, BlockKind::Zones), (section::ZONE_SUMMARY, BlockKind::ZoneSummary)];
    for (kind, block) in sections {
        let at = meta.section(kind).unwrap().offset;
        let bytes = fs.read(FILE).unwrap();
        let start = usize::try_from(at).unwrap();
        let len = u32::from_le_bytes(bytes[start + 16..start + 20].try_into().unwrap()) as usize;
        let contents = start + HEADER_BYTES..start + HEADER_BYTES + len;
        let place = BlockPlace { kind: block, file: FileId(9), number: 0 };
        // Changes the last byte, which is part of a maximum.
        let mut raw = bytes[contents.clone()].to_vec();
        *raw.last_mut().unwrap() ^= 1;
        let mut sealed = Vec::new();
        Sealer::new(Packing::Plain).unwrap().seal_plain(place, &raw, &mut sealed);
        let fs = fs.kill_image();
        let lying = [&bytes[..start], &*sealed, &bytes[contents.end..]].concat();
        fs.write(FILE, &lying).unwrap();
        let sst = open(&fs, &meta, IoMode::Pread).unwrap();
        sst.zone_page(0, |_| ()).unwrap();
        let problems = sst.verify(&mut |_| {}).unwrap().problems;
        let texts: Vec<_> =
            problems.iter().map(|it| format!("{} {}", it.offset, it.problem)).collect();
        assert!(texts.iter().any(|text| text.contains("not what the rows")), "{texts:?}");
    }
}

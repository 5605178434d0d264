//! Tests that valid sets of zones can be read, that truncated and hostile sets are refused, and
//! that order keys sort like the values.

use super::*;
use crate::rng::Rng;

fn meta(seq_min: u64, seq_max: u64, entries: u32, flags: u8) -> ZoneMeta {
    ZoneMeta { seq_min: Seq(seq_min), seq_max: Seq(seq_max), entries, flags }
}

fn values(presence: u8, min: u64, max: u64) -> ZoneValues {
    ZoneValues { presence, min, max }
}

fn columns() -> Vec<ZoneColumn> {
    let column = |name: &str, edm, prefix: &[u8], values: [ZoneValues; 2]| ZoneColumn {
        name: name.into(),
        edm,
        prefix: prefix.into(),
        values: values.to_vec(),
    };
    let nan = values(presence::SOME | presence::NAN, NO_VALUES.0, NO_VALUES.1);
    vec![
        column("A", EdmType::String, b"bolt", [values(3, 5, 9), ZoneValues::NONE]),
        column("A", EdmType::Double, b"", [ZoneValues::NONE, nan]),
        column("B", EdmType::Int32, b"", [values(1, 7, 7), values(1, 1, 8)]),
    ]
}

fn encoded(complete: bool, columns: &[ZoneColumn]) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&[meta(5, 9, 3, flag::GOES_ON), meta(1, 4, 1, 0)], complete, columns, &mut out);
    out
}

#[test]
fn sets_round_trip() {
    for complete in [false, true] {
        let bytes = encoded(complete, &columns());
        let set = ZoneSet::parse(&bytes).unwrap();
        assert_eq!((set.check(), set.len(), set.is_complete), (Ok(()), 2, complete));
        assert_eq!(set.meta(0), Some(meta(5, 9, 3, flag::GOES_ON)));
        assert_eq!(set.meta(2), None);
        let found: Vec<_> = set.columns_named("A").map(|column| column.edm).collect();
        assert_eq!(found, [EdmType::String, EdmType::Double]);
        assert_eq!(set.columns_named("C").count(), 0);
        for (column, expected) in set.columns().zip(columns()) {
            assert_eq!((column.name, column.edm), (expected.name.as_bytes(), expected.edm));
            assert_eq!(column.prefix, &*expected.prefix);
            let values: Vec<_> = (0..2).filter_map(|i| column.values(i)).collect();
            assert_eq!((values, column.values(2)), (expected.values, None));
        }
    }
}

#[test]
fn hostile_sets_never_panic() {
    let whole = encoded(true, &columns());
    let mut rng = Rng::from_seed(40);
    let read = |bytes: &[u8]| {
        let Ok(set) = ZoneSet::parse(bytes) else { return false };
        let columns = set.columns().map(|column| column.min.len());
        assert!(columns.into_iter().all(|len| len == set.len()));
        set.check().is_ok()
    };
    for len in 0..whole.len() {
        assert!(ZoneSet::parse(&whole[..len]).is_err());
    }
    for _ in 0..50_000 {
        let mut bytes = whole.clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = *rng.pick(&[0, 1, 2, 3, 8, 64, 65, 127, 255]);
        }
        read(&bytes);
    }
    assert!(read(&whole));
}

#[test]
fn invalid_zone_sets_are_refused() {
    #[track_caller]
    fn check(at: usize, byte: u8, expected: &str) {
        let mut bytes = encoded(true, &columns());
        bytes[at] = byte;
        let result = ZoneSet::parse(&bytes).and_then(|set| set.check());
        let text = result.unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
    check(0, 0, "impossible numbers");
    check(0, 65, "impossible numbers");
    check(0, 1, "bytes too many");
    check(1, 33, "impossible numbers");
    check(1, 2, "bytes");
    check(2, 2, "reserved");
    check(3, 1, "reserved");
    check(8, 9, "unknown type");
    check(8, 6, "has no prefix");
    check(17, 1, "not in order");
    // The descriptions are followed by Seqs, numbers of entries, flags and values.
    let metas = 8 + 4 + 5 + 5 + 5;
    check(metas, 10, "impossible Seqs");
    check(metas + 32, 0, "no entries");
    check(metas + 40, 16, "unknown flags");
    check(metas + 42, 8, "impossible presence");
    check(metas + 42, 0, "impossible presence");
    check(metas + 42, 5, "impossible presence");
    check(metas + 42 + 2, 10, "impossible presence");
}

#[test]
fn a_summary_contains_the_offsets_of_its_pages() {
    let mut set = Vec::new();
    encode(&[meta(1, 9, 4, 0)], true, &[], &mut set);
    let mut bytes = Vec::new();
    ZoneSummary::encode(&[100, 200, 300], &set, &mut bytes);
    let summary = ZoneSummary::decode(&bytes, 65, 100..300).unwrap();
    assert_eq!((&*summary.pages, &bytes[summary.set_at..]), (&[100, 200, 300][..], &*set));
    for (blocks, zones) in [(64, 100..300), (129, 100..300), (65, 100..299), (65, 99..300)] {
        assert!(ZoneSummary::decode(&bytes, blocks, zones).is_err());
    }
    for len in 0..bytes.len() {
        assert!(ZoneSummary::decode(&bytes[..len], 65, 100..300).is_err());
    }
    let two = [&bytes[..32], &*encoded(true, &[])].concat();
    assert!(ZoneSummary::decode(&two, 65, 100..300).is_err());
}

#[test]
fn trap_40_order_keys_keep_the_order() {
    let ascending = [f64::NEG_INFINITY, -1.5, -5e-324, 0.0, 5e-324, 1.5, f64::INFINITY];
    let keys = ascending.map(|value| double_key(value).unwrap());
    assert!(keys.is_sorted_by(|a, b| a < b));
    assert_eq!(double_key(-0.0), double_key(0.0));
    assert_eq!((double_key(f64::NAN), double_key(-f64::NAN)), (None, None));
    assert!([i64::MIN, -1, 0, 1, i64::MAX].map(int_key).is_sorted_by(|a, b| a < b));
    let texts = ["", "\0", "a", "a\0", "\u{d7ff}", "\u{10000}", "\u{10ffff}", "\u{e000}"];
    assert!(texts.map(|text| head(EdmType::String, text.as_bytes())).is_sorted());
    #[cfg(feature = "cli")]
    {
        let doubles = keys.map(|key| value_of(EdmType::Double, key).unwrap());
        assert_eq!(doubles, ascending.map(Value::Double));
        assert_eq!(value_of(EdmType::Int32, int_key(-7)), Some(Value::Int32(-7)));
        assert_eq!(value_of(EdmType::Int64, int_key(i64::MIN)), Some(Value::Int64(i64::MIN)));
        assert_eq!(value_of(EdmType::Boolean, 1), Some(Value::Boolean(true)));
        assert_eq!(value_of(EdmType::DateTime, u64::MAX), None);
        assert_eq!(value_of(EdmType::Int32, int_key(1 << 40)), None);
    }
    assert_eq!(order_key(EdmType::Boolean, &[2]), None);
    assert_eq!(order_key(EdmType::DateTime, &[255; 8]), None);
    assert_eq!(order_key(EdmType::Int64, &[0; 7]), None);
}

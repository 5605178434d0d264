//! Compares masks with the direct evaluation of the filter, for random rows and filters. Also
//! checks that the masks exclude enough blocks.

use std::cmp::Ordering;
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::codec::HashSeed;
use crate::format::Kind;
use crate::format::names::{FileId, FileNumber};
use crate::format::zones::ZONE_BLOCKS;
use crate::fs::{Fs, MemFs};
use crate::model::{DateTime, Guid, Row, Seq, Shape, Shapes};
use crate::options::{Codec, IoMode};
use crate::rng::Rng;
use crate::sst::{BlockCache, Sst, SstOptions, SstShared, SstWriter};

/// A version of a row: its properties by name, or `None` if it is a tombstone.
struct Version {
    seq: Seq,
    row: Option<Vec<(String, Value)>>,
}

/// Creates a file of these versions, in order; `true` marks the first version of a key.
fn file(versions: &[(bool, Version)], block_bytes: usize) -> Sst {
    let fs = MemFs::new();
    let options = SstOptions { block_bytes, codec: Codec::None, seed: HashSeed(1) };
    let (dir, number, id) = (Path::new(""), FileNumber(1), FileId(1));
    let mut writer = SstWriter::create(Arc::new(fs.clone()), dir, number, id, options).unwrap();
    let mut key = 0u32;
    for (begins, version) in versions {
        key += u32::from(*begins);
        let row = version.row.as_ref().map(|row| encoded(row));
        let kind = if row.is_some() { Kind::Put } else { Kind::Delete };
        let row = row.as_ref().map(Row::as_ref);
        writer.add(format!("{key:010}\0").as_bytes(), version.seq, kind, row.as_ref()).unwrap();
    }
    let meta = writer.finish().unwrap();
    let (cache, shapes) = (Arc::new(BlockCache::new(0)), Arc::new(Shapes::new(1 << 20)));
    let shared = SstShared { cache, shapes, mode: IoMode::Mmap, seed: HashSeed(1) };
    Sst::open(&fs as &dyn Fs, dir, &meta, &shared).unwrap()
}

fn encoded(row: &[(String, Value)]) -> Row {
    let mut row = row.to_vec();
    row.sort_by(|a, b| a.0.cmp(&b.0));
    let types = row.iter().map(|(name, value)| (name.as_str().into(), value.as_ref().edm_type()));
    let shape = Arc::new(Shape::new(types.collect()));
    let mut body = Vec::new();
    shape.encode_body(row.iter().map(|(_, value)| value.as_ref()), &mut body);
    Row { shape, body }
}

/// Evaluates `node` on the version without zones; `None` if this test does not cover the case.
fn holds(node: &Node, version: &Version) -> Option<bool> {
    let row = version.row.as_ref()?;
    Some(match node {
        Node::All => true,
        Node::TooDeep => return None,
        Node::And(parts) => parts
            .iter()
            .map(|part| holds(part, version))
            .collect::<Option<Vec<_>>>()?
            .iter()
            .all(|it| *it),
        Node::Or(parts) => parts
            .iter()
            .map(|part| holds(part, version))
            .collect::<Option<Vec<_>>>()?
            .contains(&true),
        Node::Not(part) => !holds(part, version)?,
        Node::Compare(Comparison { property, op, value }) => {
            let found = match property {
                Property::PartitionKey | Property::RowKey => return None,
                Property::Timestamp => {
                    Some(Value::DateTime(DateTime::from_ticks(version.seq.0).unwrap()))
                }
                Property::Named(name) => {
                    row.iter().find(|(other, _)| **other == **name).map(|(_, value)| value.clone())
                }
            };
            found.is_some_and(|found| compares(&found, *op, value))
        }
    })
}

fn compares(found: &Value, op: CompareOp, literal: &Value) -> bool {
    let order = match (found, literal) {
        (Value::String(a), Value::String(b)) => Some(a.encode_utf16().cmp(b.encode_utf16())),
        (Value::Binary(a), Value::Binary(b)) => Some(a.cmp(b)),
        (Value::Boolean(a), Value::Boolean(b)) => Some(a.cmp(b)),
        (Value::Int32(a), Value::Int32(b)) => Some(a.cmp(b)),
        (Value::Int64(a), Value::Int64(b)) => Some(a.cmp(b)),
        (Value::Int64(a), Value::Int32(b)) => Some(a.cmp(&i64::from(*b))),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Double(a), Value::Int32(b)) => a.partial_cmp(&f64::from(*b)),
        (Value::Double(a), Value::Int64(b)) => a.partial_cmp(&(*b as f64)),
        (Value::DateTime(a), Value::DateTime(b)) => Some(a.cmp(b)),
        (Value::Guid(a), Value::Guid(b)) => Some(a.to_string().cmp(&b.to_string())),
        _ => Some(Ordering::Less),
    };
    match op {
        CompareOp::Eq => order == Some(Ordering::Equal),
        CompareOp::Ne => order != Some(Ordering::Equal),
        CompareOp::Lt => order == Some(Ordering::Less),
        CompareOp::Le => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        CompareOp::Gt => order == Some(Ordering::Greater),
        CompareOp::Ge => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }
}

const OPS: [CompareOp; 6] =
    [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge];

/// Characters at every boundary of UTF-8 and UTF-16, and some that keys may not contain.
const EDGES: [char; 12] = [
    '\0',
    '\u{1}',
    '/',
    'a',
    'b',
    '\u{7ff}',
    '\u{d7ff}',
    '\u{e000}',
    '\u{f000}',
    '\u{ffff}',
    '\u{10000}',
    '\u{10ffff}',
];

const DOUBLES: [f64; 14] = [
    f64::NAN,
    -0.0,
    0.0,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::MIN_POSITIVE,
    5e-324,
    -5e-324,
    f64::MAX,
    f64::MIN,
    1.0,
    -1.0,
    9_007_199_254_740_993.0,
    9_223_372_036_854_775_807.0,
];

const INTS: [i64; 9] =
    [0, 1, -1, i64::MIN, i64::MAX, 9_007_199_254_740_993, 1 << 31, -(1 << 31), 7];

fn text(rng: &mut Rng) -> String {
    let shared = *rng.pick(&["", "", "common prefix of many texts, ", "x"]);
    let repeats = *rng.pick(&[1, 1, 1, 12]);
    let tail: String = (0..rng.below(12)).map(|_| *rng.pick(&EDGES)).collect();
    shared.repeat(repeats) + &tail
}

/// Returns a value of one of the types, often close to other values.
fn value(rng: &mut Rng) -> Value {
    let bytes = |rng: &mut Rng| -> Vec<u8> {
        let len = rng.below(12);
        (0..len).map(|_| *rng.pick(&[0, 1, 0x7f, 0xee, 0xf5, 0xff])).collect()
    };
    match rng.below(8) {
        0 => Value::String(text(rng)),
        1 => Value::Binary(bytes(rng)),
        2 => Value::Boolean(rng.chance(1, 2)),
        3 => Value::Int32(*rng.pick(&[0, 1, -1, 7, i32::MIN, i32::MAX])),
        4 => Value::Int64(*rng.pick(&INTS)),
        5 => Value::Double(*rng.pick(&DOUBLES)),
        6 => Value::DateTime(DateTime::from_ticks(rng.below(5) * 1_000).unwrap()),
        _ => {
            let mut guid = [0; 16];
            guid[rng.below(16) as usize] = rng.below(256) as u8;
            Value::Guid(Guid::from_bytes(guid))
        }
    }
}

/// Returns a value that often is close to `like`, as values in a block often are.
fn near(rng: &mut Rng, like: &Value) -> Value {
    match like {
        Value::String(text) if rng.chance(3, 4) => {
            Value::String(format!("{text}{}", rng.pick(&EDGES)))
        }
        Value::Double(_) => Value::Double(*rng.pick(&DOUBLES)),
        _ if rng.chance(3, 4) => like.clone(),
        _ => value(rng),
    }
}

const NAMES: [&str; 4] = ["A", "B", "Coated", "Long name of a property"];

fn versions(rng: &mut Rng, count: u64, wide: u64) -> Vec<(bool, Version)> {
    let mut seq = 1 << 20;
    let mut likes: Vec<Value> = NAMES.iter().map(|_| value(rng)).collect();
    let made = (0..count).map(|i| {
        if rng.chance(1, 20) {
            likes = NAMES.iter().map(|_| value(rng)).collect();
        }
        let begins = i == 0 || rng.chance(3, 4);
        seq = if begins { (1 << 20) + rng.below(10_000) } else { seq - 1 };
        let mut row = Vec::new();
        for (name, like) in NAMES.iter().zip(&likes) {
            if rng.chance(9, 10) {
                row.push(((*name).to_owned(), near(rng, like)));
            }
        }
        if wide > 0 {
            row.push((format!("W{:03}", rng.below(wide)), value(rng)));
        }
        let row = (!rng.chance(1, 10)).then_some(row);
        (begins, Version { seq: Seq(seq), row })
    });
    made.collect()
}

fn comparison(rng: &mut Rng, versions: &[(bool, Version)], wide: u64) -> Node {
    let property = match rng.below(10) {
        0 => Property::Timestamp,
        1 if wide > 0 => Property::Named(format!("W{:03}", rng.below(wide)).into()),
        2 => Property::Named("Nobody".into()),
        _ => Property::Named((*rng.pick(&NAMES)).into()),
    };
    // In most cases the literal is a value that occurs in the rows, so that comparisons have both
    // results.
    let (_, version) = rng.pick(versions);
    let there = version.row.iter().flatten().map(|(_, value)| value).collect::<Vec<_>>();
    let value = match &property {
        Property::Timestamp => Value::DateTime(DateTime::from_ticks(version.seq.0).unwrap()),
        _ if there.is_empty() || rng.chance(1, 3) => value(rng),
        _ => {
            let like = *rng.pick(&there);
            near(rng, like)
        }
    };
    Node::Compare(Comparison { property, op: *rng.pick(&OPS), value })
}

fn filter(rng: &mut Rng, versions: &[(bool, Version)], wide: u64, depth: u32) -> Node {
    if depth == 0 {
        return comparison(rng, versions, wide);
    }
    match rng.below(4) {
        0 => comparison(rng, versions, wide),
        1 => Node::Not(filter(rng, versions, wide, depth - 1).into()),
        kind => {
            let parts = (0..2).map(|_| filter(rng, versions, wide, depth - 1)).collect();
            if kind == 2 { Node::And(parts) } else { Node::Or(parts) }
        }
    }
}

/// Returns for each block the number of its versions, and the two results of the masks: whether the
/// filter may be true, and whether it may be false.
fn judged(sst: &Sst, node: &Node) -> Vec<(usize, bool, bool)> {
    let mut blocks = Vec::new();
    for page in 0..sst.block_count().div_ceil(ZONE_BLOCKS) {
        let read = |set: &ZoneSet<'_>| {
            let Masks { maybe_true, maybe_false } = masks(node, set);
            let entries = (0..set.len()).map(|i| set.meta(i).unwrap().entries as usize);
            let bit = |mask: u64, i: usize| mask >> i & 1 != 0;
            let blocks = entries.enumerate();
            blocks.map(|(i, n)| (n, bit(maybe_true, i), bit(maybe_false, i))).collect::<Vec<_>>()
        };
        blocks.extend(sst.zone_page(page, read).unwrap().unwrap());
    }
    blocks
}

/// Numbers of blocks: all blocks, blocks that the masks exclude, and blocks in which every row
/// matches according to the masks.
#[derive(Debug, Default)]
struct Pruned {
    blocks: u64,
    none: u64,
    every: u64,
}

/// Returns an error that describes the first block for which the zones give a wrong result about
/// `node`.
fn check_sound(
    sst: &Sst,
    versions: &[(bool, Version)],
    node: &Node,
    pruned: &mut Pruned,
) -> Result<(), String> {
    let whole = sst.zone_summary(|set| masks(node, set)).unwrap().unwrap();
    let mut rest = versions;
    for (block, (len, maybe_true, maybe_false)) in judged(sst, node).into_iter().enumerate() {
        let (rows, after) = rest.split_at(len);
        rest = after;
        pruned.blocks += 1;
        pruned.none += u64::from(!maybe_true);
        pruned.every += u64::from(!maybe_false);
        for (_, version) in rows {
            let Some(holds) = holds(node, version) else { continue };
            let allowed = if holds { maybe_true } else { maybe_false };
            let file = if holds { whole.maybe_true } else { whole.maybe_false };
            if !allowed || file & 1 == 0 {
                let row = &version.row;
                return Err(format!("block {block} {allowed} {file}: {holds} {node:?} of {row:?}"));
            }
        }
    }
    assert!(rest.is_empty());
    Ok(())
}

/// Tests random data and filters; an error describes how the zones are wrong.
fn explore(seeds: u64) -> Result<Pruned, String> {
    let mut pruned = Pruned::default();
    for seed in 0..seeds {
        let mut rng = Rng::from_seed(seed);
        let wide = *rng.pick(&[0, 0, 3, 40, 400]);
        let count = *rng.pick(&[1, 20, 400, 1_500]);
        let versions = versions(&mut rng, count, wide);
        let sst = file(&versions, *rng.pick(&[64, 512, 4096]));
        assert_eq!(sst.verify(&mut |_| {}).unwrap().problems, []);
        for _ in 0..60 {
            let depth = rng.below(4) as u32;
            let node = filter(&mut rng, &versions, wide, depth);
            check_sound(&sst, &versions, &node, &mut pruned)?;
        }
    }
    Ok(pruned)
}

#[test]
fn trap_40_zones_never_exclude_a_row_that_meets_a_filter_or_that_does_not() {
    let pruned = explore(60).unwrap_or_else(|wrong| panic!("{wrong}"));
    // If every bit of every mask were set, the test would pass without testing anything.
    assert!(pruned.none * 4 > pruned.blocks, "{pruned:?}");
    assert!(pruned.every * 10 > pruned.blocks, "{pruned:?}");
}

fn compare_int(op: CompareOp, value: i32) -> Node {
    let property = Property::Named("N".into());
    Node::Compare(Comparison { property, op, value: Value::Int32(value) })
}

/// Rows are sorted by a number, so each block has its own interval of numbers, and only the blocks
/// with matching numbers may be read.
#[test]
fn clustered_data_is_pruned_to_the_blocks_that_matter() {
    let row = |n: i32| vec![("N".to_owned(), Value::Int32(n))];
    let version = |n: i32| Version { seq: Seq(1_000 + n as u64), row: Some(row(n)) };
    let versions: Vec<_> = (0..20_000).map(|n| (true, version(n))).collect();
    let sst = file(&versions, 1 << 10);
    let blocks = sst.block_count();
    assert!(blocks > 2 * ZONE_BLOCKS);
    let count = |node: &Node| {
        let judged = judged(&sst, node);
        let count =
            |part: fn(&(usize, bool, bool)) -> bool| judged.iter().filter(|it| part(it)).count();
        (count(|it| it.1), count(|it| it.2))
    };
    assert_eq!(count(&compare_int(CompareOp::Eq, 7_777)), (1, blocks));
    assert_eq!(count(&compare_int(CompareOp::Ge, 0)), (blocks, 0));
    assert_eq!(count(&compare_int(CompareOp::Lt, 0)), (0, blocks));
    let both = [compare_int(CompareOp::Ge, 7_000), compare_int(CompareOp::Lt, 7_001)];
    assert_eq!(count(&Node::And(both.to_vec())).0, 1);
    let either = [compare_int(CompareOp::Lt, 1), compare_int(CompareOp::Ge, 19_999)];
    assert_eq!(count(&Node::Or(either.to_vec())).0, 2);
    let at = Value::DateTime(DateTime::from_ticks(1_000 + 7_777).unwrap());
    let (property, op) = (Property::Timestamp, CompareOp::Eq);
    assert_eq!(count(&Node::Compare(Comparison { property, op, value: at })).0, 1);
    // The value is outside the bounds of the whole file, so only the summary must be read.
    let outside = compare_int(CompareOp::Gt, 20_000);
    let summary = sst.zone_summary(|set| masks(&outside, set)).unwrap().unwrap();
    assert_eq!(summary, Masks { maybe_true: 0, maybe_false: 1 });
}

#[test]
fn conditions_that_zones_cannot_decide_are_unknown() {
    let row = vec![("N".to_owned(), Value::Int32(1))];
    let sst = file(&[(true, Version { seq: Seq(5), row: Some(row) })], 1 << 10);
    let unknown = Masks { maybe_true: 1, maybe_false: 1 };
    let of = |node: &Node| sst.zone_summary(|set| masks(node, set)).unwrap().unwrap();
    assert_eq!(of(&Node::TooDeep), unknown);
    for property in [Property::PartitionKey, Property::RowKey] {
        let (op, value) = (CompareOp::Eq, Value::String("p".to_owned()));
        assert_eq!(of(&Node::Compare(Comparison { property, op, value })), unknown);
    }
    assert_eq!(of(&Node::All), Masks { maybe_true: 1, maybe_false: 0 });
    assert_eq!(of(&Node::Not(Node::All.into())), Masks { maybe_true: 0, maybe_false: 1 });
}

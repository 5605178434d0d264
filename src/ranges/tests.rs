//! Tests of ranges: boundaries, look-ups against brute force, and the detection of violated
//! invariants.

use std::sync::Arc;

use super::*;
use crate::format::edit::{RangeMeta, VersionEdit};
use crate::rng::Rng;

/// A file: its number, and its oldest and newest Seq.
#[derive(Clone, Debug, PartialEq, Eq)]
struct File(u64, u64, u64);

impl RangeFile for File {
    fn number(&self) -> FileNumber {
        FileNumber(self.0)
    }

    fn seqs(&self) -> (Seq, Seq) {
        (Seq(self.1), Seq(self.2))
    }

    fn bytes(&self) -> u64 {
        1
    }
}

const KEYS: [&[u8]; 12] = [
    b"",
    b"\0",
    b"\0\0",
    b"a",
    b"a\0",
    b"a\0\0",
    b"ab",
    b"a\xff",
    b"b",
    b"b\0",
    b"\xff",
    b"\xff\xff",
];

fn range(span: Span) -> Range<File> {
    Range::new(RangeId(1), TableId(1), span)
}

fn reference(number: u64, seqs: (u64, u64), low: &str, high: &str) -> Reference<File> {
    let clip = Span::new(low.as_bytes(), Some(high.as_bytes()));
    Reference::new(File(number, seqs.0, seqs.1), clip, None)
}

#[track_caller]
fn check(young: &[Reference<File>], run: &[Reference<File>], expected: &str) {
    let mut range = range(Span::new(b"a", Some(b"z")));
    range.young = young.to_vec();
    range.run = run.to_vec();
    assert_eq!(range.check().err().unwrap_or_default(), expected);
}

#[test]
fn a_valid_range_tree_passes() {
    let young = [reference(5, (50, 60), "b", "m"), reference(4, (30, 40), "a", "z")];
    let run = [reference(1, (1, 29), "a", "h"), reference(2, (5, 20), "h", "z")];
    check(&young, &run, "");
}

#[test]
fn trap_12_overlapping_files_must_have_disjoint_seqs_newest_first() {
    let old = reference(4, (30, 40), "a", "m");
    let new = reference(5, (41, 60), "b", "c");
    check(&[new.clone(), old.clone()], &[], "");
    check(
        &[old.clone(), new.clone()],
        &[],
        "range r1: files 000004 #30..#40 [a, m) and 000005 #41..#60 [b, c) overlap in keys and Seqs",
    );
    check(
        &[reference(5, (40, 60), "b", "c"), old.clone()],
        &[],
        "range r1: files 000005 #40..#60 [b, c) and 000004 #30..#40 [a, m) overlap in keys and Seqs",
    );
    check(
        &[new],
        &[reference(3, (1, 41), "a", "m")],
        "range r1: files 000005 #41..#60 [b, c) and 000003 #1..#41 [a, m) overlap in keys and Seqs",
    );
    check(&[old], &[reference(3, (1, 99), "m", "z")], "");
}

#[test]
fn trap_13_every_pair_of_files_is_compared() {
    // The two conflicting files are not adjacent in the list, and the file between them conflicts
    // with neither.
    let young = [
        reference(9, (10, 90), "a", "b"),
        reference(8, (70, 80), "c", "d"),
        reference(7, (60, 69), "e", "f"),
        reference(6, (1, 50), "a", "b"),
    ];
    check(
        &young,
        &[],
        "range r1: files 000009 #10..#90 [a, b) and 000006 #1..#50 [a, b) overlap in keys and Seqs",
    );
}

#[test]
fn runs_clips_and_repeats_are_checked() {
    check(
        &[],
        &[reference(1, (1, 2), "a", "c"), reference(2, (3, 4), "b", "d")],
        "range r1: files 000001 #1..#2 [a, c) and 000002 #3..#4 [b, d) overlap in the run",
    );
    check(
        &[],
        &[reference(1, (1, 2), "b", "{")],
        "range r1: file 000001 [b, {) is not inside [a, z)",
    );
    check(
        &[reference(1, (5, 6), "b", "c")],
        &[reference(1, (5, 6), "d", "e")],
        "range r1: file 000001 is referenced twice",
    );
    check(
        &[reference(1, (1, 2), "b", "b")],
        &[],
        "range r1: file 000001 [b, b) is not inside [a, z)",
    );
}

#[test]
fn trap_20_every_key_belongs_to_exactly_one_range_wherever_the_boundaries_are() {
    // Try all ways to cut the key space at up to three of the boundary keys.
    for cuts in 0..1u32 << (KEYS.len() - 1) {
        if cuts.count_ones() > 3 {
            continue;
        }
        let inner = (1..KEYS.len()).filter(|i| cuts >> (i - 1) & 1 == 1).map(|i| KEYS[i]);
        let lows: Vec<&[u8]> = [&b""[..]].into_iter().chain(inner).collect();
        let mut map = RangeMap::<File>::default();
        for (i, low) in lows.iter().enumerate().rev() {
            let span = Span::new(low, lows.get(i + 1).copied());
            map.change(&[], vec![Range::new(RangeId(i as u64), TableId(0), span)]).unwrap();
        }
        map.check().unwrap();
        for key in KEYS {
            let owners: Vec<_> = map.iter().filter(|range| range.span.contains(key)).collect();
            assert_eq!(owners.len(), 1);
            assert_eq!(map.range_for(key).unwrap().id, owners[0].id);
            for high in KEYS.map(Some).into_iter().chain([None]) {
                let span = Span::new(key, high);
                let found: Vec<_> = map.ranges_in(&span).iter().map(|range| range.id).collect();
                let overlapping = map.iter().filter(|range| range.span.overlaps(&span));
                let expected: Vec<_> = overlapping.map(|range| range.id).collect();
                if !span.is_empty() {
                    assert_eq!(found, expected, "{span}");
                }
            }
        }
    }
}

#[test]
fn ranges_may_leave_gaps_and_must_not_overlap() {
    let mut map = RangeMap::<File>::default();
    let first = Range::new(RangeId(1), TableId(1), Span::new(b"b", Some(b"d")));
    map.change(&[], vec![Range::new(RangeId(2), TableId(1), Span::new(b"f", None)), first])
        .unwrap();
    assert!(map.range_for(b"a").is_none() && map.range_for(b"d").is_none());
    assert_eq!(map.range_for(b"c\xff").unwrap().id, RangeId(1));
    for (id, span) in [
        (3, Span::new(b"c", Some(b"e"))),
        (3, Span::all()),
        (3, Span::new(b"z", None)),
        (3, Span::new(b"a", Some(b"b\0"))),
        (2, Span::new(b"d", Some(b"e"))),
        (3, Span::new(b"d", Some(b"d"))),
    ] {
        let new = vec![Range::new(RangeId(id), TableId(1), span)];
        assert!(map.clone().change(&[], new.clone()).is_err());
        assert!(map.clone().change(&[], [new.clone(), new].concat()).is_err());
    }
    assert!(map.clone().change(&[RangeId(1), RangeId(1)], Vec::new()).is_err());
    map.change(
        &[RangeId(1)],
        vec![Range::new(RangeId(1), TableId(1), Span::new(b"a", Some(b"f")))],
    )
    .unwrap();
    assert_eq!(map.range_for(b"e").unwrap().id, RangeId(1));
    map.change(&[RangeId(2), RangeId(1)], Vec::new()).unwrap();
    assert_eq!(map.len(), 0);
    assert!(map.change(&[RangeId(1)], Vec::new()).is_err());
}

/// Returns a range with files of random spans. All Seqs of a file are greater than the Seqs of the
/// files created before it.
fn random_range(rng: &mut Rng) -> Range<File> {
    let mut range = range(Span::all());
    let mut seq = 1;
    let mut number = 1;
    let mut cuts: Vec<usize> = (0..KEYS.len()).filter(|_| rng.chance(1, 2)).collect();
    cuts.dedup();
    for pair in cuts.windows(2) {
        if rng.chance(3, 4) {
            let clip = Span::new(KEYS[pair[0]], Some(KEYS[pair[1]]));
            range.add(Placement::Run, Reference::new(File(number, seq, seq + 5), clip, None));
            number += 1;
        }
    }
    seq += 10;
    let mut young = Vec::new();
    for _ in 0..rng.below(6) {
        let (a, b) = (rng.below(12) as usize, rng.below(12) as usize);
        let clip = Span::inclusive(KEYS[a.min(b)], KEYS[a.max(b)]);
        young.push(Reference::new(File(number, seq, seq + 5), clip, None));
        (seq, number) = (seq + 10, number + 1);
    }
    // Files are added in any order, and their Seqs determine their positions.
    while !young.is_empty() {
        let at = rng.below(young.len() as u64) as usize;
        range.add(Placement::Young, young.swap_remove(at));
    }
    range
}

#[test]
fn trap_12_the_newest_file_that_holds_a_key_is_found_first() {
    let mut rng = Rng::from_seed(5);
    for _ in 0..2000 {
        let range = random_range(&mut rng);
        range.check().unwrap();
        for key in KEYS {
            let found: Vec<u64> = range.sources(key).map(|source| source.file.1).collect();
            let holders = range.references().filter(|(_, r)| r.clip.contains(key));
            let mut expected: Vec<u64> = holders.map(|(_, r)| r.file.1).collect();
            expected.sort_unstable_by(|a, b| b.cmp(a));
            assert_eq!(found, expected);
            for high in KEYS {
                let span = Span::new(key, Some(high));
                if span.is_empty() {
                    continue;
                }
                let found = range.run_in(&span);
                let expected = range.run.iter().filter(|r| r.clip.overlaps(&span));
                assert!(found.iter().eq(expected), "{span} in {:?}", range.run);
            }
        }
    }
}

#[test]
fn trap_12_chains_hold_every_file_once_newer_before_older() {
    let mut rng = Rng::from_seed(7);
    for _ in 0..2000 {
        // Two neighbouring ranges, each with its own files.
        let cut = KEYS[1 + rng.below(10) as usize];
        let sides = [Span::new(b"", Some(cut)), Span::new(cut, None)];
        let ranges = sides.map(|side| {
            let whole = random_range(&mut rng);
            let mut half = Range::new(RangeId(1), TableId(1), side.clone());
            for (placement, reference) in whole.references() {
                if let Some(clip) = reference.clip.intersect(&side) {
                    half.add(placement, Reference::new(reference.file.clone(), clip, None));
                }
            }
            half.check().unwrap();
            Arc::new(half)
        });
        let (low, high) = (KEYS[rng.below(12) as usize], KEYS[rng.below(12) as usize]);
        let span = Span::new(low, (low < high).then_some(high));
        let chains = chains(&ranges, &span, |_| true);
        let most = ranges.iter().map(|range| range.chain_count()).max().unwrap();
        assert!(chains.len() <= most + 1, "{} chains of {most}", chains.len());
        for chain in &chains {
            let ascending = |pair: &[Reference<File>]| pair[0].clip.ends_before(&pair[1].clip.low);
            assert!(chain.windows(2).all(ascending), "{chain:?}");
        }
        for key in KEYS.iter().filter(|key| span.contains(key)) {
            let inside = chains.iter().flatten().filter(|r| r.clip.contains(key));
            let found: Vec<u64> = inside.map(|r| r.file.1).collect();
            let range = ranges.iter().find(|range| range.span.contains(key)).unwrap();
            let expected: Vec<u64> = range.sources(key).map(|r| r.file.1).collect();
            assert_eq!(found, expected, "newest first");
            assert!(found.len() <= range.depth());
        }
    }
}

/// Returns the ranges that `edit` creates. The files are taken from the ranges `from`.
fn made(edit: &VersionEdit, from: &[&Range<File>]) -> Vec<Range<File>> {
    let references = || from.iter().flat_map(|range| range.references());
    let make = |meta: &RangeMeta| {
        let mut range = Range::new(meta.id, meta.table, meta.span.clone());
        for added in edit.add_references.iter().filter(|added| added.range == meta.id) {
            let file = references().find(|(_, r)| r.file.number() == added.file).unwrap().1;
            let reference = Reference::new(file.file.clone(), added.clip.clone(), added.bytes);
            range.add(added.placement, reference);
        }
        range.check().unwrap();
        range
    };
    let gone: Vec<_> = references()
        .map(|(_, r)| r.file.number())
        .filter(|n| !edit.remove_references.iter().any(|(_, f)| f == n))
        .collect();
    assert!(gone.is_empty(), "every reference is taken out");
    edit.add_ranges.iter().map(make).collect()
}

#[test]
fn trap_20_a_split_at_any_key_hides_no_row_and_a_merge_restores_the_range() {
    let mut rng = Rng::from_seed(8);
    let mut merged = 0;
    for _ in 0..500 {
        let whole = random_range(&mut rng);
        for at in &KEYS[1..] {
            let edit = divide::split(&whole, at, (RangeId(2), RangeId(3)), |_| 0);
            assert_eq!(edit.remove_ranges, [whole.id]);
            let halves = made(&edit, &[&whole]);
            let [left, right] = halves.as_slice() else { panic!("{halves:?}") };
            assert!(left.span.high.as_deref() == Some(*at) && *right.span.low == **at);
            for key in KEYS {
                let half = if key < *at { left } else { right };
                let numbers = |range: &Range<File>| -> Vec<u64> {
                    range.sources(key).map(|source| source.file.0).collect()
                };
                assert_eq!(numbers(half), numbers(&whole), "{key:?} in halves at {at:?}");
            }
            let edit = divide::merge(left, right, RangeId(4), |_, _| false).unwrap();
            let again = made(&edit, &[left, right]);
            assert_eq!((&again[0].young, &again[0].run), (&whole.young, &whole.run));
            assert_eq!(again[0].span, whole.span);
            merged += 1;
            assert!(divide::merge(right, left, RangeId(4), |_, _| false).is_none());
        }
    }
    assert_eq!(merged, 500 * 11);
}

#[test]
fn neighbours_with_incompatible_files_are_not_merged() {
    let side = |low: &str, high: &str| range(Span::new(low.as_bytes(), Some(high.as_bytes())));
    let merge = |left: &Range<File>, right: &Range<File>, empty: bool| {
        divide::merge(left, right, RangeId(9), |_, _| empty)
            .map(|edit| made(&edit, &[left, right]).remove(0))
    };
    let (mut left, mut right) = (side("a", "m"), side("m", "z"));
    // Both clips of a file may be merged, although they do not touch, if the file has no entries
    // between them.
    left.run = vec![reference(1, (1, 9), "b", "k")];
    right.run = vec![reference(1, (1, 9), "m", "p")];
    assert_eq!(merge(&left, &right, false), None);
    let whole = merge(&left, &right, true).unwrap();
    assert_eq!(whole.run, [reference(1, (1, 9), "b", "p")]);
    // A file that is young in one range and in the run of the other becomes young in the merged
    // range.
    left.young = std::mem::take(&mut left.run);
    let whole = merge(&left, &right, true).unwrap();
    assert_eq!((whole.young, whole.run.len()), (vec![reference(1, (1, 9), "b", "p")], 0));
    // The merge is refused if a newer file of the run overlaps the young one.
    right.run.push(reference(2, (20, 30), "q", "r"));
    left.young = vec![reference(1, (1, 9), "b", "m")];
    right.run[0] = reference(1, (1, 9), "m", "p");
    assert!(merge(&left, &right, false).is_some());
    right.run[0] = reference(1, (1, 9), "x", "y");
    assert_eq!(merge(&left, &right, true), None, "file 1 would be above file 2, which is newer");
    let mut other = side("m", "z");
    other.table = TableId(2);
    assert_eq!(merge(&left, &other, true), None);
    assert_eq!(merge(&left, &side("n", "z"), true), None);
}

#[test]
fn a_removed_file_leaves_the_range() {
    let mut rng = Rng::from_seed(6);
    let mut range = random_range(&mut rng);
    let numbers: Vec<_> = range.references().map(|(_, r)| r.file.number()).collect();
    for number in numbers {
        assert_eq!(range.remove(number).unwrap().file.number(), number);
        assert!(range.remove(number).is_none());
    }
    assert!(range.young.is_empty() && range.run.is_empty());
}

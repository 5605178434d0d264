//! Tests that each anti-pattern is detected above its threshold and not below it.

use super::super::partitions::PartitionRange;
use super::super::shape::{PartitionSize, ShapeBuilder};
use super::*;

/// Returns a data shape with these partitions, and with `ascending` as the share of pairs of
/// partitions that were created in the order of their keys.
fn data(sizes: &[(&str, u64)], partitions: u64, ascending: f64) -> DataShape {
    let mut builder = ShapeBuilder::new();
    for (name, entities) in sizes {
        let (partition_key, entities) = ((*name).to_owned(), *entities);
        builder.add(PartitionSize { partition_key, entities, bytes: entities * 100 });
    }
    for i in sizes.len() as u64..partitions {
        builder.add(PartitionSize { partition_key: format!("k{i}"), entities: 2, bytes: 200 });
    }
    (0..100).for_each(|i| builder.add_pair(f64::from(i) < 100.0 * ascending));
    builder.finish(true)
}

fn plain() -> DataShape {
    data(&[], 100, 0.5)
}

fn range(writes: f64, ascending: f64, descending: f64) -> PartitionRange {
    PartitionRange { writes, ascending, descending, ..PartitionRange::default() }
}

#[track_caller]
fn check(ranges: &[PartitionRange], data: &DataShape, queries: &QueryCounts, seen: &[AntiPattern]) {
    let advice = advise(&Seen { ranges, data, queries });
    assert_eq!(advice.iter().map(|a| a.pattern).collect::<Vec<_>>(), seen, "{advice:#?}");
    assert!(advice.iter().all(|a| a.evidence.ends_with(['.', ')']) && a.remedy.contains('\'')));
}

#[track_caller]
fn check_data(data: &DataShape, seen: &[AntiPattern]) {
    check(&[], data, &QueryCounts::default(), seen);
}

#[track_caller]
fn check_load(ranges: &[PartitionRange], seen: &[AntiPattern]) {
    check(ranges, &plain(), &QueryCounts::default(), seen);
}

use AntiPattern::{
    AppendOnly, HotPartition, PrependOnly, SingleEntityPartitions, TableScans, UnboundedPartition,
};

#[test]
fn ordered_data_is_detected() {
    check_data(&data(&[], 100, 0.95), &[AppendOnly]);
    check_data(&data(&[], 100, 0.05), &[PrependOnly]);
    check_data(&data(&[], 100, 0.85), &[]);
    check_data(&data(&[], 100, 0.15), &[]);
    check_data(&data(&[], 31, 1.0), &[]);
}

#[test]
fn directed_load_is_detected() {
    check_load(&[range(5.0, 0.1, 0.1), range(90.0, 0.9, 0.0)], &[AppendOnly]);
    check_load(&[range(90.0, 0.0, 0.9), range(5.0, 0.1, 0.1)], &[PrependOnly]);
    // These loads cause no advice. The reasons, in order: the range is not the last one, it does
    // not have most of the writes, the writes have no direction, all are in one partition, and the
    // load is too low.
    check_load(&[range(90.0, 0.9, 0.0), range(5.0, 0.1, 0.1)], &[]);
    check_load(&[range(90.0, 0.1, 0.1), range(50.0, 0.9, 0.0)], &[]);
    check_load(&[range(90.0, 0.4, 0.0)], &[]);
    let one = PartitionRange { pattern: LoadPattern::OnePartition, ..range(90.0, 0.9, 0.0) };
    check_load(&[one], &[]);
    check_load(&[range(9.0, 0.9, 0.0)], &[]);
}

/// If the load is spread, the order of the stored data does not matter.
#[test]
fn a_spread_load_on_ordered_data_needs_no_advice() {
    let ranges = [range(90.0, 0.06, 0.06)];
    check(&ranges, &data(&[], 100, 1.0), &QueryCounts::default(), &[]);
}

#[test]
fn a_hot_partition_is_detected() {
    let hot = |reads: f64, share: f64| PartitionRange {
        reads,
        heaviest: vec![("p".into(), share), ("q".into(), 0.1)],
        ..PartitionRange::default()
    };
    check_load(&[hot(100.0, 0.6)], &[HotPartition]);
    check_load(&[hot(100.0, 0.6), range(10.0, 0.1, 0.1)], &[HotPartition]);
    check_load(&[hot(100.0, 0.4)], &[]);
    check_load(&[hot(100.0, 0.6), range(90.0, 0.1, 0.1)], &[]);
    check_load(&[hot(9.0, 0.6)], &[]);
}

#[test]
fn an_unbounded_partition_is_detected() {
    check_data(&data(&[("all", 100_000)], 1, 0.5), &[UnboundedPartition]);
    check_data(&data(&[("a", 100_000), ("b", 9_000), ("c", 9_000)], 3, 0.5), &[UnboundedPartition]);
    check_data(&data(&[("all", 99_999)], 1, 0.5), &[]);
    check_data(&data(&[("a", 200_000), ("b", 200_000), ("c", 199_000)], 3, 0.5), &[]);
}

fn queries(points: u64, partition_ranges: u64, table_scans: u64) -> QueryCounts {
    QueryCounts { points, partition_ranges, table_scans, ..QueryCounts::default() }
}

fn ones(partitions: u64) -> DataShape {
    let mut builder = ShapeBuilder::new();
    for i in 0..partitions {
        builder.add(PartitionSize { partition_key: format!("{i}"), entities: 1, bytes: 100 });
    }
    builder.finish(true)
}

#[test]
fn single_entities_read_by_range_are_detected() {
    let seen = [SingleEntityPartitions];
    check(&[], &ones(1_000), &queries(50, 10, 0), &seen);
    check(&[], &ones(1_000), &QueryCounts::default(), &seen);
    check(&[], &ones(999), &queries(50, 10, 0), &[]);
    check(&[], &ones(1_000), &queries(50, 9, 0), &[]);
    check(&[], &ones(1_000), &queries(500, 10, 0), &[]);
    check(&[], &data(&[], 2_000, 0.5), &queries(50, 10, 0), &[]);
}

#[test]
fn table_scans_are_detected() {
    check(&[], &plain(), &queries(50, 0, 10), &[TableScans]);
    check(&[], &plain(), &queries(0, 0, 9), &[]);
    check(&[], &plain(), &queries(500, 0, 10), &[]);
}

//! Tests that filters with many terms are not planned in quadratic time or space.

use super::CompareOp::*;
use super::*;

const MANY: usize = 20_000;

fn key(number: usize) -> String {
    format!("{number:06}")
}

/// Returns the numbers below [`MANY`] in mixed order.
fn shuffled() -> impl Iterator<Item = usize> {
    (0..MANY).map(|i| i * 7_919 % MANY)
}

#[test]
fn many_points_under_or() {
    let point = |i| and([pk(Eq, &key(i)), rk(Eq, &key(i))]);
    let plan = plan(&or(shuffled().map(point)));
    let points: Vec<_> = (0..MANY).map(|i| KeyRange::point(key(i), key(i))).collect();
    assert!(plan.intervals == points, "the points in order");
    assert_eq!((plan.rest, plan.class), (None, Class::Point));
}

#[test]
fn many_rows_of_a_partition() {
    let rows = or(shuffled().map(|i| rk(Eq, &key(i))));
    let plan = plan(&and([pk(Eq, "p"), rows, named("A")]));
    let points: Vec<_> = (0..MANY).map(|i| KeyRange::point("p", key(i))).collect();
    assert!(plan.intervals == points, "the points in order");
    assert_eq!(plan.rest, Some(named("A")));
}

#[test]
fn many_points_with_properties() {
    let point = |i| and([pk(Eq, &key(i)), rk(Eq, &key(i)), named("A")]);
    let filter = or(shuffled().map(point));
    let plan = plan(&filter);
    assert_eq!((plan.intervals.len(), plan.class), (MANY, Class::Point));
    assert!(plan.rest.is_some_and(|rest| rest == filter), "every term has its own key");
}

#[test]
fn many_ne_under_and() {
    let plan = plan(&and(shuffled().map(|i| pk(Ne, &key(i)))));
    assert_eq!((plan.intervals.len(), plan.rest), (MANY + 1, None));
    assert_eq!(plan.class, Class::PartitionRange);
}

#[test]
fn deep_not() {
    let mut filter = and([pk(Eq, "p"), rk(Eq, "r")]);
    for _ in 0..100 {
        filter = not(filter);
    }
    let plan = plan(&filter);
    assert_eq!((plan.intervals, plan.rest), (vec![KeyRange::point("p", "r")], None));
}

/// The exact set, 1,000 partitions times 1,000 rows, would have a million points. The plan must
/// read one range in each partition instead.
#[test]
fn a_product_too_large_to_write_out_becomes_a_range_in_each_partition() {
    let partitions = or((0..1_000).map(|i| pk(Eq, &key(i))));
    let rows = or((0..1_000).map(|i| rk(Eq, &key(i))));
    let plan = plan(&and([partitions, rows.clone(), named("A")]));
    let range = |i| KeyRange::rows(key(i), key(0).as_str()..=key(999).as_str());
    let ranges: Vec<_> = (0..1_000).map(range).collect();
    assert!(plan.intervals == ranges, "a range in each partition");
    assert_eq!(plan.rest, Some(and([rows, named("A")])));
}

/// Each partition has one row more than the previous one, so the exact set would be quadratic in
/// the filter's length. The plan must read more, and test the rows.
#[test]
fn a_set_too_large_to_store_is_widened_and_rows_are_tested() {
    let step = |i| and([pk(Ge, &key(i)), rk(Eq, &key(2 * i))]);
    let filter = or((0..3_000).map(step));
    let plan = plan(&filter);
    // In every partition that the filter names, the plan still excludes the rows before `key(0)`.
    let low = |i| Some(Edge::of_row(&key(i), &key(0), false));
    let high = |i| (i < 3_000).then(|| Edge::of_partition(&key(i), false));
    let spans: Vec<_> = (0..3_000).map(|i| KeyRange::between(low(i), high(i + 1))).collect();
    assert!(plan.intervals == spans, "a span for each step");
    assert!(plan.rest.is_some(), "rows are still tested");
}

/// Plans with small limits, which otherwise only large filters reach, and tests all keys of the
/// domain.
#[test]
fn widened_sets_answer_as_exact_ones() {
    let domain = Domain::new();
    let leaves = Domain::leaves();
    for seed in 0..5_000 {
        let mut rng = Rng::from_seed(seed);
        let size = 2 + rng.index(10);
        let node = random_tree(&mut rng, &leaves, size);
        domain.check_wide(&node, rng.index(8), rng.index(200));
    }
}

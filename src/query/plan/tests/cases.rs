//! Tests of the tables of docs/SEMANTICS.md §9.4, and examples.

use super::CompareOp::*;
use super::*;

/// Tests the table of docs/SEMANTICS.md §9.4: a filter, its class, its number of intervals, and its
/// class in Azure Table storage.
#[test]
fn classes_are_those_of_the_document() {
    use Class::*;
    let p = || pk(Eq, "p");
    let prop = || named("Prop");
    let flag = || compare(Property::Named("Flag".into()), Eq, true);
    let point = |p, r| and([pk(Eq, p), rk(Eq, r)]);
    let cases = [
        (and([p(), rk(Eq, "r")]), Point, 1, Point),
        (and([p(), rk(Eq, "r"), prop()]), Point, 1, Point),
        (and([p(), rk(Ge, "Sh"), rk(Lt, "Si")]), RowRange, 1, RowRange),
        (and([p(), rk(Ne, "r")]), RowRange, 2, Partition),
        (p(), Partition, 1, Partition),
        (and([p(), prop()]), Partition, 1, Partition),
        (pk(Ge, "A"), PartitionRange, 1, PartitionRange),
        (and([pk(Ge, "A"), pk(Lt, "W"), rk(Eq, "r")]), PartitionRange, 1, PartitionRange),
        (and([pk(Ge, "A"), pk(Lt, "W"), flag()]), PartitionRange, 1, PartitionRange),
        (and([pk(Ge, "p"), pk(Le, "p")]), Partition, 1, PartitionRange),
        (Node::All, Table, 1, Table),
        (prop(), Table, 1, Table),
        (and([rk(Ge, "C"), rk(Le, "S")]), Table, 1, Table),
        (pk(Ne, "a"), PartitionRange, 2, Table),
        (not(pk(Ne, "p")), Partition, 1, Table),
        (or([pk(Eq, "a"), pk(Eq, "b")]), Partition, 2, Table),
        (and([p(), or([rk(Eq, "1"), rk(Eq, "2")])]), Point, 2, Partition),
        (or([point("a", "1"), point("b", "2")]), Point, 2, Table),
        (and([pk(Eq, "p"), pk(Eq, "q"), prop()]), Empty, 0, Partition),
        (compare(Property::PartitionKey, Eq, 5), Empty, 0, Table),
    ];
    for (filter, class, intervals, service_class) in cases {
        let plan = plan(&filter);
        let found = (plan.class, plan.intervals.len(), plan.service_class);
        assert_eq!(found, (class, intervals, service_class), "{filter:?}");
    }
}

/// Tests the words for classes in docs/SEMANTICS.md §9.4.
#[test]
fn class_names_are_those_of_the_document() {
    let classes = [
        Class::Empty,
        Class::Point,
        Class::RowRange,
        Class::Partition,
        Class::PartitionRange,
        Class::Table,
    ];
    let document = include_str!("../../../../docs/SEMANTICS.md");
    for class in classes {
        let row = format!("| {class} | {} |", class.rating());
        assert!(document.contains(&row), "{row}");
    }
    assert!(classes.is_sorted(), "from best to worst");
}

#[track_caller]
fn check(filter: &Node, intervals: &[KeyRange], rest: Option<Node>) {
    let plan = plan(filter);
    assert_eq!((plan.intervals.as_slice(), plan.rest), (intervals, rest));
}

#[test]
fn properties_remain_to_be_tested_inside_the_key_interval() {
    let p = [KeyRange::partition("p")];
    check(&and([pk(Eq, "p"), named("A")]), &p, Some(named("A")));
    let rest = and([named("A"), named("B")]);
    check(&and([named("A"), pk(Eq, "p"), named("B")]), &p, Some(rest));
}

#[test]
fn branches_with_properties_of_their_own_keep_their_keys() {
    let filter = or([and([pk(Eq, "a"), named("A")]), and([pk(Eq, "b"), named("B")])]);
    let both = [KeyRange::partition("a"), KeyRange::partition("b")];
    check(&filter, &both, Some(filter.clone()));
}

#[test]
fn a_branch_excluded_by_the_intervals_is_removed() {
    let filter = and([pk(Eq, "a"), or([and([pk(Eq, "b"), named("A")]), named("B")])]);
    check(&filter, &[KeyRange::partition("a")], Some(named("B")));
    let filter = and([pk(Eq, "a"), not(and([pk(Ge, "a"), or([named("A"), named("B")])]))]);
    let rest = not(or([named("A"), named("B")]));
    check(&filter, &[KeyRange::partition("a")], Some(rest));
}

#[test]
fn spans_are_trimmed_where_they_include_the_partition_at_their_end() {
    let filter = and([pk(Ge, "a"), pk(Le, "c"), rk(Ge, "x"), rk(Lt, "z")]);
    let low = Some(Edge::of_row("a", "x", false));
    let high = Some(Edge::of_row("c", "z", false));
    let rest = and([rk(Ge, "x"), rk(Lt, "z")]);
    check(&filter, &[KeyRange::between(low, high)], Some(rest));
    let filter = and([pk(Gt, "a"), pk(Lt, "c"), rk(Ge, "x")]);
    let low = Some(Edge::of_partition("a", true));
    let high = Some(Edge::of_partition("c", false));
    check(&filter, &[KeyRange::between(low, high)], Some(rk(Ge, "x")));
    check(&rk(Ge, "x"), &[KeyRange::all()], Some(rk(Ge, "x")));
}

#[test]
fn one_partition_inside_many_is_kept() {
    let after = KeyRange::between(Some(Edge::of_partition("b", true)), None);
    check(&pk(Ne, "b"), &[KeyRange::partitions(.."b"), after], None);
    // All rows of `b`, and one row of each partition from `a` on, are read as one span.
    let filter = or([pk(Eq, "b"), and([pk(Ge, "a"), rk(Eq, "x")])]);
    let low = Some(Edge::of_row("a", "x", false));
    let rest = or([pk(Eq, "b"), rk(Eq, "x")]);
    check(&filter, &[KeyRange::between(low, None)], Some(rest));
}

#[test]
fn literals_with_u0000_are_between_keys() {
    check(&pk(Eq, "a\0b"), &[], None);
    check(&pk(Ne, "a\0b"), &[KeyRange::all()], None);
    check(&pk(Lt, "a\0b"), &[KeyRange::partitions(..="a")], None);
    check(&and([pk(Gt, "a"), pk(Lt, "a\0b")]), &[], None);
    check(&and([pk(Ge, "a"), pk(Le, "a\0")]), &[KeyRange::partition("a")], None);
    let filter = and([pk(Eq, "p"), rk(Ge, "r"), rk(Lt, "r\0")]);
    check(&filter, &[KeyRange::point("p", "r")], None);
}

#[test]
fn empty_keys_are_keys() {
    check(&and([pk(Eq, ""), rk(Eq, "")]), &[KeyRange::point("", "")], None);
    check(&and([pk(Le, ""), rk(Le, "")]), &[KeyRange::point("", "")], None);
    check(&pk(Eq, ""), &[KeyRange::partition("")], None);
    check(&pk(Ge, ""), &[KeyRange::all()], None);
    check(&pk(Lt, ""), &[], None);
}

/// The shortcut for point queries must give the same plan as planning with sets of keys.
#[test]
fn the_shortcut_for_points_agrees_with_the_general_plan() {
    let keys = ["", "a", "a/", "a\0", "a\0b", "😀"];
    for (partition, row) in keys.iter().flat_map(|pk| keys.map(|rk| (*pk, rk))) {
        for (a, b) in OPS.into_iter().flat_map(|a| OPS.map(|b| (a, b))) {
            let (first, second) = (pk(a, partition), rk(b, row));
            let long = plan_within(&and([first.clone(), second.clone()]), 1_000, 1_000);
            assert_eq!(plan(&and([first.clone(), second.clone()])), long);
            assert_eq!(plan(&and([second, first])), long);
        }
    }
}

#[test]
fn texts_are_ordered_by_unit() {
    let filter = and([pk(Ge, "😀"), pk(Le, "～")]);
    check(&filter, &[KeyRange::partitions("😀"..="～")], None);
    check(&and([pk(Ge, "～"), pk(Le, "😀")]), &[], None);
}

#[test]
fn contradictions_read_no_rows_and_test_no_properties() {
    check(&and([pk(Eq, "a"), not(pk(Eq, "a")), named("A")]), &[], None);
    check(&not(Node::All), &[], None);
}

#[test]
fn a_part_that_is_too_deep_does_not_restrict_the_plan() {
    check(&Node::TooDeep, &[KeyRange::all()], Some(Node::TooDeep));
    check(&and([pk(Eq, "p"), Node::TooDeep]), &[KeyRange::partition("p")], Some(Node::TooDeep));
}

#[test]
fn ranges_of_one_key_are_recognized_as_points() {
    for (partition, row) in [("p", "r"), ("p", ""), ("", "")] {
        assert_eq!(KeyRange::point(partition, row).as_point(), Some((partition, row)));
    }
    assert_eq!(KeyRange::rows("p", ..="").as_point(), Some(("p", "")));
    assert_eq!(KeyRange::rows("p", ..="r").as_point(), None);
    assert_eq!(KeyRange::rows("p", "q"..="r").as_point(), None);
    assert_eq!(KeyRange::rows("p", "r"..).as_point(), None);
    assert_eq!(KeyRange::partition("p").as_point(), None);
}

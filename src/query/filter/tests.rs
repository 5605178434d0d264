//! Tests of docs/SEMANTICS.md §9.3.

use super::*;
use crate::model::{DateTime, Guid, Seq};
use crate::rng::Rng;

fn term(n: i32) -> Filter {
    prop("A").eq(n)
}

/// Checks the invariants of a tree, which must hold however the tree was built.
fn check_shape(node: &Node, is_root: bool) {
    match node {
        Node::All | Node::TooDeep => assert!(is_root),
        Node::Compare(_) => {}
        Node::And(nodes) => {
            assert!(nodes.len() >= 2 && !nodes.iter().any(|node| matches!(node, Node::And(_))));
            nodes.iter().for_each(|node| check_shape(node, false));
        }
        Node::Or(nodes) => {
            assert!(nodes.len() >= 2 && !nodes.iter().any(|node| matches!(node, Node::Or(_))));
            nodes.iter().for_each(|node| check_shape(node, false));
        }
        Node::Not(node) => check_shape(node, false),
    }
}

const NAMES: [&str; 10] =
    ["PartitionKey", "RowKey", "Timestamp", "A", "_", "Größe2", "datetime", "X", "add", "True"];
const TEXTS: [&str; 12] = [
    "",
    "'",
    "''",
    "it's",
    "' or A eq '",
    "\0",
    "\u{1f}\r\n\t",
    "é😀\u{ffff}\u{10ffff}",
    "\\'\\",
    "and not (",
    "null",
    " ",
];

fn random_value(rng: &mut Rng) -> Value {
    let bits = rng.next_u64();
    match rng.below(8) {
        0 => {
            let pieces = rng.below(4);
            Value::String((0..pieces).map(|_| *rng.pick(&TEXTS)).collect())
        }
        1 => Value::Binary(bits.to_le_bytes()[..rng.index(9)].to_vec()),
        2 => Value::Boolean(rng.chance(1, 2)),
        3 => Value::Int32(*rng.pick(&[0, 1, -1, i32::MIN, i32::MAX, bits as i32])),
        4 => Value::Int64(*rng.pick(&[0, -1, i64::MIN, i64::MAX, 1 << 31, bits as i64])),
        5 => Value::Double(*rng.pick(&[
            f64::from_bits(bits),
            f64::from_bits(bits % (1 << 52)),
            -f64::from_bits(1),
            0.0,
            -0.0,
            1.0,
            1e15,
            1e16,
            -1e-7,
            f64::MAX,
            f64::MIN_POSITIVE,
            f64::NAN,
            -f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
        ])),
        6 => Value::DateTime(match rng.below(4) {
            0 => DateTime::MIN,
            1 => DateTime::MAX,
            _ => DateTime::from_ticks(bits % (Seq::MAX.0 + 1)).unwrap(),
        }),
        _ => {
            let (low, high) = (bits.to_le_bytes(), rng.next_u64().to_le_bytes());
            Value::Guid(Guid::from_bytes([low, high].concat().try_into().unwrap()))
        }
    }
}

fn random_filter(rng: &mut Rng, depth: usize) -> Filter {
    let parts = |rng: &mut Rng| -> Vec<Filter> {
        (0..2 + rng.below(3)).map(|_| random_filter(rng, depth - 1)).collect()
    };
    match rng.below(if depth == 0 { 3 } else { 6 }) {
        0..=2 => {
            let op = *rng.pick(&[
                CompareOp::Eq,
                CompareOp::Ne,
                CompareOp::Lt,
                CompareOp::Le,
                CompareOp::Gt,
                CompareOp::Ge,
            ]);
            let name: &&str = rng.pick(&NAMES);
            prop(name).compare(op, random_value(rng))
        }
        3 => Filter::every(parts(rng)),
        4 => Filter::any(parts(rng)),
        _ => !random_filter(rng, depth - 1),
    }
}

#[test]
fn the_text_of_a_random_tree_parses_back_to_it() {
    let mut rng = Rng::from_seed(1);
    for i in 0..20_000 {
        let filter = random_filter(&mut rng, i % 6);
        check_shape(filter.node(), true);
        let text = filter.to_string();
        let parsed: Filter = text.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(parsed, filter, "{text}");
        assert_eq!(parsed.to_string(), text);
    }
}

#[test]
fn the_sign_of_zero_is_kept_and_all_nans_are_equal() {
    let negative = prop("A").eq(-0.0);
    assert_eq!(negative.to_string(), "A eq -0.0");
    assert_ne!(negative, prop("A").eq(0.0));
    assert_eq!(negative.to_string().parse::<Filter>().unwrap(), negative);
    assert_eq!(prop("A").eq(f64::from_bits(0xfff8_0000_0000_0001)), prop("A").eq(f64::NAN));
}

#[test]
fn values_print_as_literals() {
    for (value, expected) in [
        (Value::from("O'Brien"), "'O''Brien'"),
        (Value::from(&[0, 171, 255]), "X'00abff'"),
        (Value::from(true), "true"),
        (Value::from(-7), "-7"),
        (Value::from(-7_i64), "-7L"),
        (Value::from(3.0), "3.0"),
        (Value::from(1e300), "1e300"),
        (Value::from(f64::NEG_INFINITY), "-INF"),
        (Value::from(DateTime::MAX), "datetime'9999-12-31T23:59:59.9999999Z'"),
        (Value::from(Guid::default()), "guid'00000000-0000-0000-0000-000000000000'"),
    ] {
        assert_eq!(prop("A").ne(value).to_string(), format!("A ne {expected}"));
    }
}

/// If the language cannot express a property's name, the filter must print as a text that does not
/// parse, not as a text with another meaning.
#[test]
fn names_that_the_language_lacks_print_as_text_that_does_not_parse() {
    for name in [
        "",
        "a b",
        "9",
        "A.B",
        "and",
        "or",
        "not",
        "eq",
        "true",
        "null",
        "NaN",
        "INF",
        "'",
        "é-",
        "A eq 1 or B",
        "}",
        "A)",
        "(A",
    ] {
        let filter = prop("B").eq(1).and(prop(name).eq(1));
        let text = filter.to_string();
        assert_eq!(text, format!("B eq 1 and {{{name}}} eq 1"));
        let error = text.parse::<Filter>().unwrap_err();
        assert!(error.message().starts_with("Syntax error at position 11 in "), "{error}");
    }
}

#[test]
fn lists_are_flat_in_any_order_of_building() {
    let [a, b, c, d] = [1, 2, 3, 4].map(term);
    let all = Filter::every([a.clone(), b.clone(), c.clone(), d.clone()]);
    let and = Filter::and;
    assert_eq!(and(and(a.clone(), b.clone()), and(c.clone(), d.clone())), all);
    assert_eq!(and(a.clone(), and(b.clone(), and(c.clone(), d.clone()))), all);
    assert_eq!(and(and(and(a.clone(), b.clone()), c.clone()), d.clone()), all);
    let any = Filter::any([a.clone(), b.clone(), c.clone(), d.clone()]);
    let or = Filter::or;
    assert_eq!(or(or(a.clone(), b.clone()), or(c.clone(), d.clone())), any);
    assert_eq!(or(a.clone(), or(b.clone(), or(c.clone(), d.clone()))), any);
    assert_eq!(all.to_string(), "A eq 1 and A eq 2 and A eq 3 and A eq 4");
    assert_eq!(any.to_string(), "A eq 1 or A eq 2 or A eq 3 or A eq 4");
    assert_eq!(and(any, !all).to_string().matches('(').count(), 2);
}

#[test]
fn all_is_neutral_in_and_and_absorbing_in_or() {
    assert_eq!(Filter::all().and(term(1)), term(1));
    assert_eq!(term(1).and(Filter::all()), term(1));
    assert_eq!(Filter::all().or(term(1)), Filter::all());
    assert_eq!(term(1).or(Filter::all()), Filter::all());
    assert_eq!(Filter::all().to_string(), "");
    assert_eq!(Filter::default(), Filter::all());
    assert_eq!(Filter::every([]), Filter::all());
    let entity = Entity::new("p", "r");
    assert!(Filter::all().matches(&entity));
    for none in [Filter::any([]), !Filter::all()] {
        assert!(!none.matches(&entity) && (!none.clone()).matches(&entity));
        assert_eq!(none.to_string().parse::<Filter>().unwrap(), none);
    }
}

#[test]
fn keys_have_builders() {
    assert_eq!(Filter::partition("it's").to_string(), "PartitionKey eq 'it''s'");
    let row = prop("PartitionKey").eq("p").and(prop("RowKey").eq("r"));
    assert_eq!(Filter::row("p", "r"), row);
    assert_eq!(prop("PartitionKey").lt(5).to_string(), "PartitionKey lt 5");
}

#[test]
fn a_prefix_filter_matches_exactly_the_keys_with_the_prefix() {
    assert_eq!(Filter::row_prefix("p", "").to_string(), "PartitionKey eq 'p' and RowKey ge ''");
    let edges = [
        '\0',
        'a',
        'b',
        '\u{d7fe}',
        '\u{d7ff}',
        '\u{e000}',
        '\u{fffe}',
        '\u{ffff}',
        '\u{10000}',
        '\u{10ffff}',
    ];
    let mut rng = Rng::from_seed(3);
    let mut text =
        |len: u64| -> String { (0..rng.below(len)).map(|_| *rng.pick(&edges)).collect() };
    for _ in 0..20_000 {
        let (prefix, end) = (text(3), text(4));
        let filter = Filter::row_prefix("p", &prefix);
        for row in [end.clone(), format!("{prefix}{end}")] {
            let entity = Entity::new("p", row.clone());
            assert_eq!(filter.matches(&entity), row.starts_with(&prefix), "{prefix:?} {row:?}");
            let filter = Filter::partition_prefix(&prefix);
            let entity = Entity::new(row.clone(), "r");
            assert_eq!(filter.matches(&entity), row.starts_with(&prefix), "{prefix:?} {row:?}");
        }
    }
}

#[test]
fn filters_nested_too_deeply_are_and_remain_refused() {
    let deep = |count: usize| (0..count).fold(term(0), |filter, _| !filter);
    let deepest = deep(DEPTH_MAX - 1);
    deepest.check().unwrap();
    assert_eq!(deepest.to_string().parse::<Filter>().unwrap(), deepest);
    for filter in [
        !deepest.clone(),
        deepest.clone().and(term(1)),
        term(1).or(deepest.clone()),
        term(1).and(term(2)).and(deepest.clone()),
        deepest.and(term(1).and(term(2))),
        (!deep(1_000)).and(term(1)),
        Filter::any([term(1), deep(1_000)]),
        Filter::all().or(deep(1_000)),
    ] {
        assert_eq!(filter.node(), &Node::TooDeep);
        let error = filter.check().unwrap_err();
        assert_eq!(error.code(), "InvalidInput");
        assert!(filter.to_string().parse::<Filter>().is_err());
    }
}

#[test]
fn a_million_calls_of_a_builder_end_in_a_filter() {
    let count = 1_000_000;
    let step = |filter: Filter, n: i32| match n % 3 {
        0 => filter.and(term(n)),
        1 => term(n).or(filter),
        _ => !filter,
    };
    for filter in [
        (0..count).fold(Filter::all(), |filter, n| filter.and(term(n))),
        (0..count).fold(term(0), |filter, n| filter.or(term(n))),
        (0..count).fold(term(0), |filter, _| !filter),
        (0..count).fold(term(0), step),
        Filter::any((0..count).map(|n| Filter::row("p", n.to_string()))),
    ] {
        let copy = filter.clone();
        assert_eq!(copy, filter);
        check_shape(filter.node(), true);
    }
}

/// docs/SEMANTICS.md names tests for each of its rules. These tests must exist.
#[test]
fn every_rule_in_the_document_names_tests_that_exist() {
    const SOURCES: [&str; 4] = [
        include_str!("tests.rs"),
        include_str!("../parse/tests.rs"),
        include_str!("../compare/tests.rs"),
        include_str!("../../../tests/it/pages.rs"),
    ];
    let document = include_str!("../../../docs/SEMANTICS.md");
    let section = document.split("\n### 9.1 ").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut rules = 0;
    for table in section.split("| rule | tested by |").skip(1) {
        for row in table.lines().skip(2).take_while(|line| line.starts_with('|')) {
            let cell = row.trim_end_matches(" |").rsplit("| ").next().unwrap();
            for name in cell.split(", ").map(|name| name.trim_matches('`')) {
                let test = format!("\n#[test]\nfn {name}() {{");
                assert!(SOURCES.iter().any(|source| source.contains(&test)), "{name}");
            }
            rules += 1;
        }
    }
    assert!(rules > 20, "{rules}");
}

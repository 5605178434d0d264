//! A small domain of keys, represented as bits, and the value of a filter for each key.

use super::*;
use crate::format::key::user_key;
use crate::model::ValueRef;
use crate::query::compare::holds;

const TABLE: TableId = TableId(7);

/// The literals of filters, and keys equal to them and between them. A text with U+0000 is not a
/// key.
const PARTITION_LITERALS: [&str; 8] = ["", "a", "a\0", "a\0b", "a/", "ab", "😀", "～"];
const PARTITIONS: [&str; 12] =
    ["", " ", "a", "a ", "a/", "a/ ", "ab", "ab ", "😀", "😀 ", "～", "～ "];
const ROWS: [&str; 10] = ["", " ", "a", "a ", "a/", "a/ ", "ab", "ab ", "😀", "😀 "];

/// A set of keys, with one bit for each key: 12 partitions of 10 rows.
type Keys = u128;

const ALL: Keys = (1 << (PARTITIONS.len() * ROWS.len())) - 1;

/// The values of the properties `A` and `B`, the same for every entity.
#[derive(Clone, Copy, Debug)]
struct Fill {
    a: bool,
    b: bool,
}

pub(super) struct Domain {
    keys: Vec<Vec<u8>>,
}

impl Domain {
    pub(super) fn new() -> Self {
        let rows = |pk| ROWS.map(|rk| user_key(TABLE, pk, rk));
        let keys: Vec<_> = PARTITIONS.into_iter().flat_map(rows).collect();
        assert!(keys.is_sorted(), "the domain is in order");
        Self { keys }
    }

    /// Returns all comparisons of keys with the literals of the domain. Also returns comparisons of
    /// other properties, and comparisons of keys with literals of other types.
    pub(super) fn leaves() -> Vec<Node> {
        let mut leaves = vec![named("A"), Node::All];
        for op in OPS {
            leaves.extend(PARTITION_LITERALS.iter().map(|text| pk(op, text)));
            leaves.extend(PARTITION_LITERALS[..7].iter().map(|text| rk(op, text)));
        }
        leaves.push(compare(Property::PartitionKey, CompareOp::Eq, 5));
        leaves.push(compare(Property::RowKey, CompareOp::Le, 5));
        leaves
    }

    /// Plans `node` and compares the plan with the naive evaluation.
    pub(super) fn check(&self, node: &Node) {
        let plan = plan(node);
        let why = || format!("{node:?}\n{plan:?}");
        let inside = self.check_intervals(&plan, node);
        check_answer(node, &plan, inside);
        let (_, must) = bounds(node);
        assert_eq!(plan.rest.is_none(), inside & !must == 0, "rest\n{}", why());
        if let Some(rest) = &plan.rest {
            check_form(rest);
        }
    }

    /// Plans with small limits on the size of sets and on the number of steps. The plan may then
    /// read and test more rows than necessary, but its result must be the same.
    pub(super) fn check_wide(&self, node: &Node, cuts_max: usize, fuel: usize) {
        let plan = plan_within(node, cuts_max, fuel);
        let spans: Vec<_> = plan.intervals.iter().map(|range| range.span(TABLE)).collect();
        let within = |at: &usize| spans.iter().any(|span| span.contains(&self.keys[*at]));
        let inside = (0..self.keys.len()).filter(within).map(|at| 1 << at).sum::<Keys>();
        check_answer(node, &plan, inside);
    }

    /// Checks that the intervals ascend, are not adjacent and are not too wide, and returns the
    /// keys inside.
    fn check_intervals(&self, plan: &Plan, node: &Node) -> Keys {
        let why = || format!("{node:?}\n{plan:?}");
        let (may, _) = bounds(node);
        let spans: Vec<_> = plan.intervals.iter().map(|range| range.span(TABLE)).collect();
        for pair in spans.windows(2) {
            assert!(pair[0].high.as_ref().unwrap() < &pair[1].low, "order\n{}", why());
        }
        let mut inside = 0;
        for (range, span) in plan.intervals.iter().zip(&spans) {
            let within = |at: &usize| span.contains(&self.keys[*at]);
            let keys: Vec<usize> = (0..self.keys.len()).filter(within).collect();
            assert!(!keys.is_empty(), "an interval without keys\n{}", why());
            check_extent(range, &keys, may, &why);
            inside |= keys.iter().map(|at| 1 << at).sum::<Keys>();
        }
        inside
    }
}

/// For every comparison and every key, the evaluation of queries and the bits of this domain must
/// give the same result.
#[test]
fn evaluation_and_domain_agree_on_every_comparison() {
    for leaf in Domain::leaves() {
        for at in 0..PARTITIONS.len() * ROWS.len() {
            for a in [false, true] {
                let found = holds(&leaf, &|property| {
                    Some(match property {
                        Property::PartitionKey => ValueRef::String(PARTITIONS[at / ROWS.len()]),
                        Property::RowKey => ValueRef::String(ROWS[at % ROWS.len()]),
                        Property::Timestamp | Property::Named(_) => ValueRef::Int32(i32::from(a)),
                    })
                });
                let expected = met(&leaf, Fill { a, b: false }) & (1 << at) != 0;
                assert_eq!(found, expected, "{leaf:?} at {at}");
            }
        }
    }
}

/// Checks that intervals and rest together equal the filter, for all values of the properties.
fn check_answer(node: &Node, plan: &Plan, inside: Keys) {
    let all = Node::All;
    let rest = plan.rest.as_ref().unwrap_or(&all);
    for (a, b) in [(false, false), (false, true), (true, false), (true, true)] {
        let fill = Fill { a, b };
        let found = inside & met(rest, fill);
        assert_eq!(found, met(node, fill), "{fill:?}\n{node:?}\n{plan:?}");
    }
}

/// Checks the extent of an interval. An interval within one partition must have exactly the keys
/// that may match. In an interval over several partitions, each partition must have such a key, and
/// the first and last keys must be such keys.
fn check_extent(range: &KeyRange, keys: &[usize], may: Keys, why: &dyn Fn() -> String) {
    let may_match = |at: &usize| may & (1 << at) != 0;
    let partition = |at: usize| PARTITIONS[at / ROWS.len()];
    let (first, last) = (keys[0], keys[keys.len() - 1]);
    let KeyRange { low, high } = range;
    if class_of(range) <= Class::Partition {
        assert_eq!(partition(first), partition(last), "the extent of one partition\n{}", why());
        assert!(keys.iter().all(may_match), "more of a partition than may match\n{}", why());
    }
    for keys in keys.chunk_by(|a, b| partition(*a) == partition(*b)) {
        assert!(keys.iter().any(may_match), "a partition without a key that may match\n{}", why());
    }
    if low.as_ref().is_some_and(|low| low.row.is_some() || !low.after) {
        assert!(may_match(&first), "the low end of the extent\n{}", why());
    }
    if high.as_ref().is_some_and(|high| high.row.is_some() || high.after) {
        assert!(may_match(&last), "the high end of the extent\n{}", why());
    }
}

/// Checks the structure of a remaining filter: each list has at least two nodes and contains no
/// list of its own kind, and there are no constants.
fn check_form(node: &Node) {
    let (Node::And(nodes) | Node::Or(nodes)) = node else {
        match node {
            Node::Not(inner) => check_form(inner),
            _ => assert_ne!(node, &Node::All, "a constant"),
        }
        return;
    };
    let kind = std::mem::discriminant(node);
    assert!(nodes.len() >= 2, "{node:?}");
    assert!(nodes.iter().all(|inner| std::mem::discriminant(inner) != kind), "{node:?}");
    nodes.iter().for_each(check_form);
}

/// Returns the keys of the domain for which an entity meets `node`.
fn met(node: &Node, fill: Fill) -> Keys {
    match node {
        Node::All => ALL,
        Node::TooDeep => panic!("this node is not in the trees"),
        Node::Compare(comparison) => compared(comparison, fill),
        Node::And(nodes) => nodes.iter().fold(ALL, |keys, node| keys & met(node, fill)),
        Node::Or(nodes) => nodes.iter().fold(0, |keys, node| keys | met(node, fill)),
        Node::Not(node) => ALL & !met(node, fill),
    }
}

/// Returns the keys for which `node` may be true, and the keys for which it must be true, as if
/// each occurrence of a property had its own value. If there is only one occurrence, the bounds are
/// exact.
fn bounds(node: &Node) -> (Keys, Keys) {
    match node {
        Node::Compare(Comparison { property: Property::Named(_), .. }) => (ALL, 0),
        Node::All | Node::TooDeep | Node::Compare(_) => {
            let keys = met(node, Fill { a: false, b: false });
            (keys, keys)
        }
        Node::And(nodes) => {
            nodes.iter().map(bounds).fold((ALL, ALL), |a, b| (a.0 & b.0, a.1 & b.1))
        }
        Node::Or(nodes) => nodes.iter().map(bounds).fold((0, 0), |a, b| (a.0 | b.0, a.1 | b.1)),
        Node::Not(node) => {
            let (may, must) = bounds(node);
            (ALL & !must, ALL & !may)
        }
    }
}

fn compared(comparison: &Comparison, fill: Fill) -> Keys {
    let Comparison { property, op, value } = comparison;
    let all_if = |met: bool| if met { ALL } else { 0 };
    match (property, value) {
        (Property::Named(name), _) => all_if(if &**name == "A" { fill.a } else { fill.b }),
        (Property::Timestamp, _) => panic!("this node is not in the trees"),
        (Property::PartitionKey, Value::String(text)) => {
            let rows = (1 << ROWS.len()) - 1;
            texts_met(&PARTITIONS, *op, text).map(|i| rows << (i * ROWS.len())).sum()
        }
        (Property::RowKey, Value::String(text)) => texts_met(&ROWS, *op, text)
            .flat_map(|j| (0..PARTITIONS.len()).map(move |i| 1 << (i * ROWS.len() + j)))
            .sum(),
        _ => all_if(ordered(*op, Ordering::Less)),
    }
}

fn texts_met<'t>(
    texts: &'t [&str],
    op: CompareOp,
    literal: &'t str,
) -> impl Iterator<Item = usize> + 't {
    let met = move |text: &str| ordered(op, text.encode_utf16().cmp(literal.encode_utf16()));
    (0..texts.len()).filter(move |at| met(texts[*at]))
}

fn ordered(op: CompareOp, order: Ordering) -> bool {
    match op {
        CompareOp::Eq => order.is_eq(),
        CompareOp::Ne => order.is_ne(),
        CompareOp::Lt => order.is_lt(),
        CompareOp::Le => order.is_le(),
        CompareOp::Gt => order.is_gt(),
        CompareOp::Ge => order.is_ge(),
    }
}

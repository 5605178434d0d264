//! Compares plans with a naive evaluation of the filter for every key of a small domain. A set of
//! keys is an integer with one bit per key.

mod cases;
mod domain;
mod sizes;

use domain::Domain;

use super::*;
use crate::format::names::TableId;
use crate::rng::Rng;

const OPS: [CompareOp; 6] =
    [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge];

fn compare(property: Property, op: CompareOp, value: impl Into<Value>) -> Node {
    Node::Compare(Comparison { property, op, value: value.into() })
}

fn pk(op: CompareOp, text: &str) -> Node {
    compare(Property::PartitionKey, op, text)
}

fn rk(op: CompareOp, text: &str) -> Node {
    compare(Property::RowKey, op, text)
}

fn named(name: &str) -> Node {
    compare(Property::Named(name.into()), CompareOp::Eq, 1)
}

fn not(node: Node) -> Node {
    Node::Not(Box::new(node))
}

/// Returns the `and` or `or` of `nodes`. As in [`Node::and`], a node of the same kind is replaced
/// by its children.
fn list(op: Op, nodes: impl IntoIterator<Item = Node>) -> Node {
    let mut flat = Vec::new();
    for node in nodes {
        match (node, op) {
            (Node::And(nodes), Op::And) | (Node::Or(nodes), Op::Or) => flat.extend(nodes),
            (node, _) => flat.push(node),
        }
    }
    if op == Op::And { Node::And(flat) } else { Node::Or(flat) }
}

fn and(nodes: impl IntoIterator<Item = Node>) -> Node {
    list(Op::And, nodes)
}

fn or(nodes: impl IntoIterator<Item = Node>) -> Node {
    list(Op::Or, nodes)
}

#[test]
fn every_tree_of_one_or_two_comparisons() {
    let domain = Domain::new();
    let leaves = Domain::leaves();
    for a in &leaves {
        domain.check(a);
        domain.check(&not(a.clone()));
        for b in &leaves {
            for op in [Op::And, Op::Or] {
                let pair = list(op, [a.clone(), b.clone()]);
                domain.check(&not(pair.clone()));
                domain.check(&pair);
                domain.check(&list(op, [not(a.clone()), b.clone()]));
            }
        }
    }
}

#[test]
fn every_tree_of_three_or_four_of_ten_comparisons() {
    let domain = Domain::new();
    let leaves = [
        named("A"),
        pk(CompareOp::Eq, "a"),
        pk(CompareOp::Ge, "a"),
        pk(CompareOp::Lt, "ab"),
        pk(CompareOp::Ne, "a\0b"),
        pk(CompareOp::Le, ""),
        rk(CompareOp::Eq, "a"),
        rk(CompareOp::Gt, "a"),
        rk(CompareOp::Le, "😀"),
        rk(CompareOp::Eq, ""),
    ];
    let ops = [(Op::And, Op::And), (Op::And, Op::Or), (Op::Or, Op::And), (Op::Or, Op::Or)];
    for (i, a) in leaves.iter().enumerate() {
        for (j, b) in leaves.iter().enumerate() {
            for c in &leaves {
                for (outer, inner) in ops {
                    let pair = list(inner, [b.clone(), c.clone()]);
                    domain.check(&list(outer, [a.clone(), pair.clone()]));
                    domain.check(&list(outer, [a.clone(), not(pair)]));
                }
                // `a` and `b` can be exchanged without changing the filter, so only one order is
                // tested.
                for d in leaves.iter().take(if i <= j { leaves.len() } else { 0 }) {
                    let (left, right) = ([a.clone(), b.clone()], [c.clone(), d.clone()]);
                    let (op, other) = ops[(i + j) % 4];
                    domain.check(&list(op, [list(other, left), list(Op::And, right)]));
                }
            }
        }
    }
}

#[test]
fn random_trees() {
    let domain = Domain::new();
    let leaves = Domain::leaves();
    for seed in 0..20_000 {
        let mut rng = Rng::from_seed(seed);
        let size = 1 + rng.index(16);
        domain.check(&random_tree(&mut rng, &leaves, size));
    }
}

fn random_tree(rng: &mut Rng, leaves: &[Node], size: usize) -> Node {
    if rng.chance(1, 6) {
        return not(random_tree(rng, leaves, size));
    }
    if size <= 1 {
        return match rng.below(8) {
            0 => named("A"),
            1 => named("B"),
            _ => rng.pick(leaves).clone(),
        };
    }
    let op = if rng.chance(1, 2) { Op::And } else { Op::Or };
    let mut nodes = Vec::new();
    let mut left = size;
    while left > 0 {
        let part = 1 + rng.index(left.min(size - 1));
        left -= part;
        nodes.push(random_tree(rng, leaves, part));
    }
    list(op, nodes)
}

//! Compiles a filter for each shape of rows. In the compiled filter (a *program*) each comparison
//! has the offset of its property and the bytes of its literal.
//!
//! Invariants
//! * the result equals that of `compare`, which defines the semantics of comparisons;
//! * nothing is allocated for a row, unless it is self-describing;
//! * a comparison reads only the value it needs. For a property that the shape lacks, or has with a
//!   type that does not match the literal, the comparison is a constant of the program.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use crate::codec::DecodeError;
use crate::error::{Error, Result};
use crate::format::key::{TABLE_ID_BYTES, ranked_text};
use crate::format::row::is_shared_head;
use crate::format::row_block::BlockEntry;
use crate::format::zones::ZoneSet;
use crate::lsm::{RowFilter, ScanRow, VisibleRun, ZoneMatch};
use crate::model::{EdmType, RowRef, Seq, Shape, Value, VariablePlace, utf16_cmp};

use super::prune::{Masks, masks};
use super::tree::{CompareOp, Comparison, Node, Property};

/// A filter that caches its program for each shape.
pub(crate) struct Evaluator {
    /// The filter; `None` matches every row.
    node: Option<Node>,
    /// The number of comparisons of the filter. `stretch` is the number of rows between two reads
    /// of the clock.
    comparisons: usize,
    stretch: u64,
    /// Whether the filter is first evaluated on zones, which may exclude rows.
    asks_zones: bool,
    programs: Vec<Program>,
    /// The index of each shape's program, keyed by the address of the shape. The programs keep the
    /// shapes alive, so that no address is reused.
    by_shape: HashMap<usize, usize>,
    last: usize,
}

struct Program {
    shape: Arc<Shape>,
    expr: Expr,
}

/// A filter for rows of one shape.
#[derive(Debug, PartialEq)]
enum Expr {
    Const(bool),
    Test(Test),
    All(Box<[Expr]>),
    Any(Box<[Expr]>),
    Not(Box<Expr>),
}

/// A comparison for a shape that has the property, with a type that can be compared with the
/// literal.
#[derive(Debug, PartialEq)]
enum Test {
    Boolean { at: usize, op: CompareOp, value: bool },
    Int32 { at: usize, range: Within<i32> },
    Int64 { at: usize, range: Within<i64> },
    DateTime { at: usize, range: Within<u64> },
    Double { at: usize, op: CompareOp, value: f64 },
    Guid { at: usize, op: CompareOp, value: [u8; 16] },
    String { place: VariablePlace, op: CompareOp, value: Box<[u8]> },
    Binary { place: VariablePlace, op: CompareOp, value: Box<[u8]> },
    Timestamp(Within<u64>),
    PartitionKey { op: CompareOp, value: Box<[u8]> },
    RowKey { op: CompareOp, value: Box<[u8]> },
}

/// A comparison of integers, expressed as a test whether the value is within bounds. All operators
/// can be expressed in this way.
#[derive(Debug, PartialEq)]
struct Within<T> {
    low: T,
    high: T,
    inside: bool,
}

/// Bytes in two pieces, of which the second continues the first.
pub(super) type TwoParts<'a> = (&'a [u8], &'a [u8]);

/// The parts of a row that a filter can test. The key is in two parts.
pub(super) struct Fields<'a> {
    pub(super) key: TwoParts<'a>,
    pub(super) seq: Seq,
    pub(super) body: &'a [u8],
}

/// The maximum number of comparisons in all programs together. If there are more, all programs are
/// discarded, and compiled again when they are needed.
const COMPARISONS_MAX: usize = 128 << 10;
/// The number of comparisons between two reads of the clock.
const STRETCH_COMPARISONS: u64 = 128 << 10;
/// The minimum and maximum number of rows between two reads of the clock.
const STRETCH_ROWS: (u64, u64) = (64, 16 << 10);

impl Evaluator {
    pub(crate) fn new(node: Option<Node>) -> Self {
        let asks_zones = node.as_ref().is_some_and(asks_zones);
        let comparisons = node.as_ref().map_or(0, Node::comparisons);
        let rows = STRETCH_COMPARISONS / (comparisons as u64).max(1);
        Self {
            node,
            comparisons,
            stretch: rows.clamp(STRETCH_ROWS.0, STRETCH_ROWS.1),
            asks_zones,
            programs: Vec::new(),
            by_shape: HashMap::new(),
            last: 0,
        }
    }

    /// Whether the filter matches every row.
    pub(super) fn takes_all(&self) -> bool {
        self.node.is_none()
    }

    /// Whether the filter matches the row.
    #[inline]
    pub(super) fn test(
        &mut self,
        fields: &Fields<'_>,
        row: &RowRef<'_>,
    ) -> Result<bool, DecodeError> {
        if self.takes_all() {
            return Ok(true);
        }
        let shape = row.shape.arc();
        if let Some(program) = self.programs.get(self.last)
            && Arc::ptr_eq(&program.shape, shape)
        {
            return program.test(fields);
        }
        self.test_other(fields, row)
    }

    /// Calls `with` for each visible row of `run` that matches, with its slot (index in the block),
    /// its fields and its entry. If there is no filter, the row's shape is not looked up, and
    /// `body` of the fields must not be used.
    #[inline]
    pub(super) fn visit<'a>(
        &mut self,
        run: &VisibleRun<'a>,
        with: impl FnMut(u16, &Fields<'a>, &BlockEntry<'a>) -> Result<(), DecodeError>,
    ) -> Result<()> {
        self.ask::<false>(run, with)
    }

    /// As [`visit`](Self::visit); with `HIDDEN`, also visits rows hidden by a newer version in the
    /// run.
    #[inline]
    fn ask<'a, const HIDDEN: bool>(
        &mut self,
        run: &VisibleRun<'a>,
        mut with: impl FnMut(u16, &Fields<'a>, &BlockEntry<'a>) -> Result<(), DecodeError>,
    ) -> Result<()> {
        let prefix = run.prefix();
        let filters = self.node.is_some();
        // The head (first byte) of the rows to which the last program applies, if the head alone
        // identifies their shape. For a row with the same head, the shape need not be looked up to
        // find this program.
        let mut known = None;
        let ask = |slot, entry: &BlockEntry<'a>| {
            let head = entry.row.split_first();
            let body = head.map(|(_, body)| body).unwrap_or_default();
            let head = head.map(|(head, _)| *head);
            let mut fields = Fields { key: (prefix, entry.suffix), seq: entry.seq, body };
            if filters {
                let matches = match self.programs.get(self.last) {
                    Some(program) if head.is_some() && head == known => program.test(&fields)?,
                    _ => {
                        let row = run.row(entry)?;
                        fields.body = row.body;
                        let matches = self.test(&fields, &row)?;
                        known = head.filter(|head| is_shared_head(*head));
                        matches
                    }
                };
                if !matches {
                    return Ok(());
                }
            }
            with(slot, &fields, entry)
        };
        if HIDDEN { run.visit_puts(ask) } else { run.visit(ask) }
    }

    #[cold]
    fn test_other(&mut self, fields: &Fields<'_>, row: &RowRef<'_>) -> Result<bool, DecodeError> {
        let shape = row.shape.arc();
        if row.shape.is_own() {
            return self.compile(shape).test(fields);
        }
        let address = Arc::as_ptr(shape).addr();
        self.last = match self.by_shape.get(&address) {
            Some(index) => *index,
            None => self.add(address, shape),
        };
        self.programs.get(self.last).map_or(Ok(false), |program| program.expr.test(fields))
    }

    fn add(&mut self, address: usize, shape: &Arc<Shape>) -> usize {
        if self.programs.len() * self.comparisons.max(1) >= COMPARISONS_MAX {
            self.programs.clear();
            self.by_shape.clear();
        }
        let index = self.programs.len();
        let expr = self.compile(shape);
        self.programs.push(Program { shape: Arc::clone(shape), expr });
        self.by_shape.insert(address, index);
        index
    }

    fn compile(&self, shape: &Shape) -> Expr {
        self.node.as_ref().map_or(Expr::Const(true), |node| compile(node, shape))
    }
}

impl RowFilter for Evaluator {
    fn select(&mut self, run: &VisibleRun<'_>, found: &mut Vec<u16>) -> Result<()> {
        self.visit(run, |slot, _, _| {
            found.push(slot);
            Ok(())
        })
    }

    #[inline]
    fn takes_all(&self) -> bool {
        self.node.is_none()
    }

    fn can_sift(&self) -> bool {
        self.node.is_some()
    }

    fn sift(&mut self, run: &VisibleRun<'_>, found: &mut Vec<u16>) -> Result<()> {
        self.ask::<true>(run, |slot, _, _| {
            found.push(slot);
            Ok(())
        })
    }

    fn sift_row(&mut self, row: &ScanRow<'_>) -> Result<bool> {
        self.matches(row)
    }

    fn asks_zones(&self) -> bool {
        self.asks_zones
    }

    #[inline]
    fn stretch(&self) -> u64 {
        self.stretch
    }

    fn match_zones(&mut self, zones: &ZoneSet<'_>) -> Option<ZoneMatch> {
        let node = self.node.as_ref().filter(|_| self.asks_zones)?;
        let Masks { maybe_true, maybe_false } = masks(node, zones);
        Some(ZoneMatch { maybe: maybe_true, surely: !maybe_false })
    }

    fn matches(&mut self, row: &ScanRow<'_>) -> Result<bool> {
        let fields = Fields { key: (row.key, &[]), seq: row.seq, body: row.row.body };
        self.test(&fields, &row.row).map_err(|error| Error::decode("row".as_ref(), 0, error))
    }
}

impl Program {
    #[inline]
    fn test(&self, fields: &Fields<'_>) -> Result<bool, DecodeError> {
        match &self.expr {
            Expr::Test(test) => test.holds(fields),
            expr => expr.test(fields),
        }
    }
}

impl Expr {
    fn test(&self, fields: &Fields<'_>) -> Result<bool, DecodeError> {
        match self {
            Expr::Const(answer) => Ok(*answer),
            Expr::Test(test) => test.holds(fields),
            Expr::All(list) => {
                for expr in list {
                    if !expr.test(fields)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Expr::Any(list) => {
                for expr in list {
                    if expr.test(fields)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Expr::Not(inner) => inner.test(fields).map(|answer| !answer),
        }
    }
}

impl Test {
    #[inline]
    fn holds(&self, fields: &Fields<'_>) -> Result<bool, DecodeError> {
        let body = fields.body;
        Ok(match self {
            Test::Boolean { at, op, value } => {
                let [byte] = Shape::fixed_at(body, *at)?;
                op.admits((byte != 0).cmp(value))
            }
            Test::Int32 { at, range } => {
                range.holds(i32::from_le_bytes(Shape::fixed_at(body, *at)?))
            }
            Test::Int64 { at, range } => {
                range.holds(i64::from_le_bytes(Shape::fixed_at(body, *at)?))
            }
            Test::DateTime { at, range } => {
                range.holds(u64::from_le_bytes(Shape::fixed_at(body, *at)?))
            }
            Test::Double { at, op, value } => {
                op.accepts_partial(f64::from_le_bytes(Shape::fixed_at(body, *at)?), *value)
            }
            Test::Guid { at, op, value } => op.admits(Shape::fixed_at(body, *at)?.cmp(value)),
            Test::String { place, op, value } => op.accepts_text(place.read(body)?, value),
            Test::Binary { place, op, value } => op.admits(place.read(body)?.cmp(value)),
            Test::Timestamp(range) => range.holds(fields.seq.ticks()),
            Test::PartitionKey { op, value } => op.admits(compare_parts(fields.parts().0, value)),
            Test::RowKey { op, value } => op.admits(compare_parts(fields.parts().1, value)),
        })
    }
}

impl<'a> Fields<'a> {
    /// Returns PartitionKey and RowKey as encoded, each in two parts.
    pub(super) fn parts(&self) -> (TwoParts<'a>, TwoParts<'a>) {
        let (first, second) = self.key;
        let end = |part: &[u8], from: usize| {
            let rest = part.get(from..).unwrap_or_default();
            rest.iter().position(|byte| *byte == 0).map(|at| at + from)
        };
        let split = |part: &'a [u8], from: usize, at: usize| {
            (part.get(from..at).unwrap_or_default(), part.get(at + 1..).unwrap_or_default())
        };
        if let Some(at) = end(first, TABLE_ID_BYTES) {
            let (partition, row) = split(first, TABLE_ID_BYTES, at);
            return ((partition, &[]), (row, second));
        }
        // The first part of the key, the common prefix of a block, may end within the table's id.
        let from = TABLE_ID_BYTES.saturating_sub(first.len());
        let at = end(second, from).unwrap_or(second.len());
        let (partition, row) = split(second, from, at);
        ((first.get(TABLE_ID_BYTES..).unwrap_or_default(), partition), (row, &[]))
    }
}

impl<T: PartialOrd + Copy> Within<T> {
    #[inline]
    fn holds(&self, value: T) -> bool {
        (self.low <= value && value <= self.high) == self.inside
    }

    /// Creates the bounds for `x op value`, where integers are between `least` and `greatest`.
    fn new(op: CompareOp, value: T, least: T, greatest: T) -> Self {
        let (low, high, inside) = match op {
            CompareOp::Eq => (value, value, true),
            CompareOp::Ne => (value, value, false),
            CompareOp::Le => (least, value, true),
            CompareOp::Gt => (least, value, false),
            CompareOp::Ge => (value, greatest, true),
            CompareOp::Lt => (value, greatest, false),
        };
        Self { low, high, inside }
    }
}

impl CompareOp {
    /// Compares as in IEEE 754: for a NaN only `ne` is true.
    #[inline]
    fn accepts_partial(self, a: f64, b: f64) -> bool {
        match self {
            CompareOp::Eq => a == b,
            CompareOp::Ne => a != b,
            CompareOp::Lt => a < b,
            CompareOp::Le => a <= b,
            CompareOp::Gt => a > b,
            CompareOp::Ge => a >= b,
        }
    }

    #[inline]
    fn accepts_text(self, text: &[u8], literal: &[u8]) -> bool {
        match self {
            CompareOp::Eq => text == literal,
            CompareOp::Ne => text != literal,
            _ => self.admits(utf16_cmp(text, literal)),
        }
    }
}

fn asks_zones(node: &Node) -> bool {
    match node {
        Node::All | Node::TooDeep => false,
        Node::Compare(Comparison { property, .. }) => {
            matches!(property, Property::Timestamp | Property::Named(_))
        }
        Node::And(nodes) | Node::Or(nodes) => nodes.iter().any(asks_zones),
        Node::Not(inner) => asks_zones(inner),
    }
}

/// Compiles the filter for rows of `shape`, with constants folded.
fn compile(node: &Node, shape: &Shape) -> Expr {
    let all = |nodes: &[Node], neutral: bool| {
        let mut list = Vec::with_capacity(nodes.len());
        for node in nodes {
            match compile(node, shape) {
                Expr::Const(answer) if answer == neutral => {}
                Expr::Const(answer) => return Expr::Const(answer),
                expr => list.push(expr),
            }
        }
        match (list.len(), neutral) {
            (0, _) => Expr::Const(neutral),
            (1, _) => list.swap_remove(0),
            (_, true) => Expr::All(list.into()),
            (_, false) => Expr::Any(list.into()),
        }
    };
    match node {
        Node::All => Expr::Const(true),
        // Not reached, because every query refuses a filter that is nested too deeply.
        Node::TooDeep => Expr::Const(false),
        Node::And(nodes) => all(nodes, true),
        Node::Or(nodes) => all(nodes, false),
        Node::Not(inner) => match compile(inner, shape) {
            Expr::Const(answer) => Expr::Const(!answer),
            expr => Expr::Not(expr.into()),
        },
        Node::Compare(comparison) => compile_comparison(comparison, shape),
    }
}

fn compile_comparison(comparison: &Comparison, shape: &Shape) -> Expr {
    let (op, value) = (comparison.op, &comparison.value);
    let test = match (&comparison.property, value) {
        (Property::PartitionKey, Value::String(text)) => {
            Some(Test::PartitionKey { op, value: ranked_text(text).into() })
        }
        (Property::RowKey, Value::String(text)) => {
            Some(Test::RowKey { op, value: ranked_text(text).into() })
        }
        (Property::Timestamp, Value::DateTime(time)) => {
            Some(Test::Timestamp(Within::new(op, time.ticks(), 0, u64::MAX)))
        }
        (Property::Named(name), _) => match shape.find(name) {
            Some(index) => compile_named(op, value, shape, index),
            None => return Expr::Const(false),
        },
        _ => None,
    };
    // A property of a type that is not comparable with the literal is less than the literal.
    let mismatch = Expr::Const(matches!(op, CompareOp::Ne | CompareOp::Lt | CompareOp::Le));
    test.map_or(mismatch, Expr::Test)
}

/// Compiles the test of property `index` of the shape; `None` if its type does not match the
/// literal's type.
fn compile_named(op: CompareOp, value: &Value, shape: &Shape, index: usize) -> Option<Test> {
    let edm = shape.property(index).1;
    let at = if edm.fixed_width().is_some() { shape.fixed_offset(index) } else { 0 };
    let place = || shape.variable_place(index);
    Some(match (edm, value) {
        (EdmType::Boolean, Value::Boolean(value)) => Test::Boolean { at, op, value: *value },
        (EdmType::Int32, Value::Int32(value)) => {
            Test::Int32 { at, range: Within::new(op, *value, i32::MIN, i32::MAX) }
        }
        (EdmType::Int64, Value::Int32(value)) => {
            Test::Int64 { at, range: Within::new(op, i64::from(*value), i64::MIN, i64::MAX) }
        }
        (EdmType::Int64, Value::Int64(value)) => {
            Test::Int64 { at, range: Within::new(op, *value, i64::MIN, i64::MAX) }
        }
        (EdmType::Double, Value::Int32(value)) => Test::Double { at, op, value: f64::from(*value) },
        (EdmType::Double, Value::Int64(value)) => Test::Double { at, op, value: *value as f64 },
        (EdmType::Double, Value::Double(value)) => Test::Double { at, op, value: *value },
        (EdmType::DateTime, Value::DateTime(time)) => {
            Test::DateTime { at, range: Within::new(op, time.ticks(), 0, u64::MAX) }
        }
        (EdmType::Guid, Value::Guid(value)) => Test::Guid { at, op, value: *value.as_bytes() },
        (EdmType::String, Value::String(value)) => {
            Test::String { place: place(), op, value: value.as_bytes().into() }
        }
        (EdmType::Binary, Value::Binary(value)) => {
            Test::Binary { place: place(), op, value: value.as_slice().into() }
        }
        _ => return None,
    })
}

/// Compares bytes in two parts with a contiguous text.
fn compare_parts((first, second): (&[u8], &[u8]), whole: &[u8]) -> Ordering {
    match whole.split_at_checked(first.len()) {
        Some((start, rest)) => first.cmp(start).then_with(|| second.cmp(rest)),
        // `first` alone is longer than `whole`, so the texts cannot be equal.
        None => first.cmp(whole),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ShapeRef, ValueRef};
    use crate::query::filter::{Filter, prop};

    /// With many shapes and a long filter, the cache is bounded by the comparisons in all programs.
    #[test]
    fn compiled_filters_are_bounded_by_their_comparisons() {
        let filter = Filter::any((0..1_000).map(|i| prop("A").eq(i)));
        let mut evaluator = Evaluator::new(Some(filter.node().clone()));
        let mut most = 0;
        for i in 0..300 {
            let properties =
                vec![("A".into(), EdmType::Int32), (format!("P{i}").into(), EdmType::Int32)];
            let shape = Arc::new(Shape::new(properties));
            let mut body = Vec::new();
            shape.encode_body([ValueRef::Int32(i), ValueRef::Int32(0)].into_iter(), &mut body);
            let row = RowRef { shape: ShapeRef::Shared(&shape), body: &body };
            let fields = Fields { key: (b"", b""), seq: Seq::ZERO, body: &body };
            assert_eq!(evaluator.test(&fields, &row), Ok(true));
            most = most.max(evaluator.programs.len());
        }
        assert!((2..=COMPARISONS_MAX / 1_000 + 1).contains(&most), "{most}");
    }
}

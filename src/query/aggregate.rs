//! Counts and sums over the rows of a query, where they lie: beyond the service, which has none.
//!
//! Invariants
//! * integers are summed in 128 bits, which no number of rows fills; doubles apart from them;
//! * a NaN, an absent property and one of another type are counted, each for itself, and enter nothing else.

use std::sync::Arc;

use crate::codec::DecodeError;
use crate::error::{Error, Result};
use crate::format::key::decode_part;
use crate::format::zones::ZoneSet;
use crate::lsm::{Judgement, RowFilter, ScanRow, Step, VisibleRun};
use crate::model::{RowRef, Shape, ValueRef};

use super::builder::Query;
use super::eval::{Evaluator, Fields};
use super::exec::Counts;

/// A numeric property over the rows of a query.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// # use rowstone::{Db, Entity, Number};
/// let parts = Db::open_in_memory()?.create_table("parts")?;
/// parts.insert(Entity::new("bolts", "m4x20").with("Stock", i64::MAX))?;
/// parts.insert(Entity::new("bolts", "m4x25").with("Stock", 1))?;
/// parts.insert(Entity::new("bolts", "m4x30").with("Stock", "many"))?;
/// let stock = parts.query("PartitionKey eq 'bolts'")?.aggregate("Stock")?;
/// assert_eq!(stock.sum(), Some(Number::Integer(1 << 63)));
/// assert_eq!((stock.rows(), stock.integers(), stock.others()), (3, 2, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Aggregate {
    rows: u64,
    integers: Integers,
    doubles: Doubles,
    nans: u64,
    missing: u64,
    others: u64,
}

/// A number that came of Int32 and Int64 only, or of Double too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Exact.
    Integer(i128),
    /// Of doubles, or of integers and doubles together.
    Double(f64),
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Integers {
    count: u64,
    sum: i128,
    least: i64,
    greatest: i64,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Doubles {
    count: u64,
    sum: f64,
    least: f64,
    greatest: f64,
}

impl Aggregate {
    /// Entities that matched: the sum of all the counts below.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Entities whose property is an Int32 or an Int64.
    pub fn integers(&self) -> u64 {
        self.integers.count
    }

    /// Entities whose property is a Double and a number.
    pub fn doubles(&self) -> u64 {
        self.doubles.count
    }

    /// Entities whose property is a Double and no number.
    pub fn nans(&self) -> u64 {
        self.nans
    }

    /// Entities without the property.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// Entities whose property is neither an integer nor a Double.
    pub fn others(&self) -> u64 {
        self.others
    }

    /// The least; `None` if there is no number.
    pub fn min(&self) -> Option<Number> {
        self.fold(|a| a.least.into(), |a| a.least, f64::min)
    }

    /// The greatest; `None` if there is no number.
    pub fn max(&self) -> Option<Number> {
        self.fold(|a| a.greatest.into(), |a| a.greatest, f64::max)
    }

    /// The sum; `None` if there is no number. Doubles are added in key order.
    pub fn sum(&self) -> Option<Number> {
        self.fold(|a| a.sum, |a| a.sum, |a, b| a + b)
    }

    /// The sum by the count of numbers; `None` if there is none.
    pub fn avg(&self) -> Option<f64> {
        let count = (self.integers.count + self.doubles.count) as f64;
        self.sum().map(|sum| sum.to_f64() / count)
    }

    fn fold(
        &self,
        integers: impl Fn(&Integers) -> i128,
        doubles: impl Fn(&Doubles) -> f64,
        both: impl Fn(f64, f64) -> f64,
    ) -> Option<Number> {
        match (self.integers.count, self.doubles.count) {
            (0, 0) => None,
            (_, 0) => Some(Number::Integer(integers(&self.integers))),
            (0, _) => Some(Number::Double(doubles(&self.doubles))),
            _ => {
                let integer = integers(&self.integers) as f64;
                Some(Number::Double(both(integer, doubles(&self.doubles))))
            }
        }
    }

    fn add(&mut self, value: Option<ValueRef<'_>>) {
        self.rows += 1;
        match value {
            Some(ValueRef::Int32(value)) => self.integers.add(value.into()),
            Some(ValueRef::Int64(value)) => self.integers.add(value),
            Some(ValueRef::Double(value)) if value.is_nan() => self.nans += 1,
            Some(ValueRef::Double(value)) => self.doubles.add(value),
            Some(_) => self.others += 1,
            None => self.missing += 1,
        }
    }
}

impl Number {
    /// As a double: rounded if it is an integer beyond 2^53.
    pub fn to_f64(self) -> f64 {
        match self {
            Number::Integer(value) => value as f64,
            Number::Double(value) => value,
        }
    }
}

impl Integers {
    fn add(&mut self, value: i64) {
        if self.count == 0 {
            (self.least, self.greatest) = (value, value);
        }
        self.count += 1;
        self.sum += i128::from(value);
        self.least = self.least.min(value);
        self.greatest = self.greatest.max(value);
    }
}

impl Doubles {
    fn add(&mut self, value: f64) {
        if self.count == 0 {
            (self.least, self.greatest) = (value, value);
        }
        self.count += 1;
        self.sum += value;
        self.least = self.least.min(value);
        self.greatest = self.greatest.max(value);
    }
}

/// Takes in every row that the evaluator accepts, and hands out none.
struct Folder<F> {
    evaluator: Evaluator,
    fold: F,
}

/// What a folder does with a row.
trait Fold {
    fn add(&mut self, fields: &Fields<'_>, row: &RowRef<'_>) -> Result<(), DecodeError>;

    /// True if rows need only be counted.
    fn takes_unseen(&self) -> bool {
        false
    }

    /// Adds rows that nobody looked at; false if they must be looked at.
    fn add_unseen(&mut self, _rows: u64) -> bool {
        false
    }
}

impl<F: Fold> RowFilter for Folder<F> {
    fn select(&mut self, run: &VisibleRun<'_>, _found: &mut Vec<u16>) -> Result<()> {
        let fold = &mut self.fold;
        self.evaluator.visit(run, |_, fields, entry| fold.add(fields, &run.row(entry)?))
    }

    fn can_sift(&self) -> bool {
        self.evaluator.can_sift()
    }

    fn sift(&mut self, run: &VisibleRun<'_>, found: &mut Vec<u16>) -> Result<()> {
        self.evaluator.sift(run, found)
    }

    fn sift_row(&mut self, row: &ScanRow<'_>) -> Result<bool> {
        self.evaluator.sift_row(row)
    }

    fn asks_zones(&self) -> bool {
        self.evaluator.asks_zones() || self.evaluator.takes_all() && self.fold.takes_unseen()
    }

    fn judge(&mut self, zones: &ZoneSet<'_>) -> Option<Judgement> {
        match self.fold.takes_unseen() {
            true => self.evaluator.judge_all(zones),
            false => self.evaluator.judge(zones),
        }
    }

    fn stretch(&self) -> u64 {
        self.evaluator.stretch()
    }

    fn take_unseen(&mut self, rows: u64) -> bool {
        self.fold.add_unseen(rows)
    }

    fn matches(&mut self, row: &ScanRow<'_>) -> Result<bool> {
        if self.evaluator.matches(row)? {
            let fields = Fields { key: (row.key, &[]), seq: row.seq, body: row.row.body };
            self.fold.add(&fields, &row.row).map_err(damaged)?;
        }
        Ok(false)
    }
}

struct Count(u64);

impl Fold for Count {
    fn add(&mut self, _: &Fields<'_>, _: &RowRef<'_>) -> Result<(), DecodeError> {
        self.0 += 1;
        Ok(())
    }

    fn takes_unseen(&self) -> bool {
        true
    }

    fn add_unseen(&mut self, rows: u64) -> bool {
        self.0 += rows;
        true
    }
}

/// One property of each row.
struct Numbers<'p> {
    aggregate: Aggregate,
    property: Finder<'p>,
}

/// Finds a property, and remembers where it is in the last shape.
struct Finder<'p> {
    name: &'p str,
    last: Option<(Arc<Shape>, Option<usize>)>,
}

impl<'p> Finder<'p> {
    fn new(name: &'p str) -> Self {
        Self { name, last: None }
    }

    fn find<'b>(&mut self, row: &RowRef<'b>) -> Result<Option<ValueRef<'b>>, DecodeError> {
        let shape = row.shape.arc();
        let index = match &self.last {
            Some((last, index)) if Arc::ptr_eq(last, shape) => *index,
            _ => {
                let index = shape.find(self.name);
                self.last = Some((Arc::clone(shape), index));
                index
            }
        };
        index.map(|index| row.value(index)).transpose()
    }
}

impl Fold for Numbers<'_> {
    fn add(&mut self, _: &Fields<'_>, row: &RowRef<'_>) -> Result<(), DecodeError> {
        let value = self.property.find(row)?;
        self.aggregate.add(value);
        Ok(())
    }
}

/// One result for each partition.
struct Groups<T, A> {
    done: Vec<(String, T)>,
    /// The PartitionKey, as encoded.
    key: Vec<u8>,
    add: A,
}

impl<T: Default, A> Fold for Groups<T, A>
where
    A: FnMut(&mut T, &RowRef<'_>) -> Result<(), DecodeError>,
{
    fn add(&mut self, fields: &Fields<'_>, row: &RowRef<'_>) -> Result<(), DecodeError> {
        let (first, second) = fields.parts().0;
        let same = self.key.strip_prefix(first) == Some(second);
        if !same || self.done.is_empty() {
            self.key.clear();
            self.key.extend_from_slice(first);
            self.key.extend_from_slice(second);
            let text = decode_part(&self.key)?.into_owned();
            self.done.push((text, T::default()));
        }
        match self.done.last_mut() {
            Some((_, group)) => (self.add)(group, row),
            None => Ok(()),
        }
    }
}

impl Query {
    /// How many entities there are, beyond the service: nothing is copied, and blocks all of whose rows match are not
    /// read. [`top`](Self::top) and the budgets of pages do not count here.
    ///
    /// # Errors
    /// As [`page`](Self::page).
    pub fn count(self) -> Result<u64> {
        count(&self)
    }

    /// The count, and how many blocks of rows were not read for it.
    #[cfg(feature = "sim")]
    pub(crate) fn count_explained(self) -> Result<(u64, u64)> {
        count_explained(&self)
    }

    /// The same for each PartitionKey that has any, in the order of reading; all of them are in the answer at once.
    ///
    /// # Errors
    /// As [`page`](Self::page).
    pub fn count_by_partition(self) -> Result<Vec<(String, u64)>> {
        count_by_partition(&self)
    }

    /// Least, greatest, sum and average of a numeric property, beyond the service: nothing is copied. Keys and Timestamp
    /// are no properties here. [`top`](Self::top) and the budgets of pages do not count here.
    ///
    /// # Errors
    /// As [`page`](Self::page).
    pub fn aggregate(self, property: &str) -> Result<Aggregate> {
        of_property(&self, property)
    }

    /// The same for each PartitionKey that has any entity, in the order of reading; all of them are in the answer at
    /// once.
    ///
    /// # Errors
    /// As [`page`](Self::page).
    pub fn aggregate_by_partition(self, property: &str) -> Result<Vec<(String, Aggregate)>> {
        by_partition(&self, property)
    }
}

fn count(query: &Query) -> Result<u64> {
    count_explained(query).map(|(count, _)| count)
}

/// The count, and how many blocks were not read for it.
fn count_explained(query: &Query) -> Result<(u64, u64)> {
    let (count, counts) = run_counted(query, Count(0))?;
    Ok((count.0, counts.read.blocks_skipped))
}

fn count_by_partition(query: &Query) -> Result<Vec<(String, u64)>> {
    let add = |count: &mut u64, _: &RowRef<'_>| {
        *count += 1;
        Ok(())
    };
    run(query, Groups { done: Vec::new(), key: Vec::new(), add }).map(|groups| groups.done)
}

fn of_property(query: &Query, property: &str) -> Result<Aggregate> {
    let numbers = Numbers { aggregate: Aggregate::default(), property: Finder::new(property) };
    run(query, numbers).map(|numbers| numbers.aggregate)
}

fn by_partition(query: &Query, property: &str) -> Result<Vec<(String, Aggregate)>> {
    let mut finder = Finder::new(property);
    let add = |aggregate: &mut Aggregate, row: &RowRef<'_>| {
        let value = finder.find(row)?;
        aggregate.add(value);
        Ok(())
    };
    run(query, Groups { done: Vec::new(), key: Vec::new(), add }).map(|groups| groups.done)
}

/// Folds all rows of the query.
fn run<F: Fold>(query: &Query, fold: F) -> Result<F> {
    run_counted(query, fold).map(|(fold, _)| fold)
}

fn run_counted<F: Fold>(query: &Query, fold: F) -> Result<(F, Counts)> {
    let plan = query.plan();
    let mut cursor = query.begin_with(&plan, |evaluator| Folder { evaluator, fold })?;
    while cursor.advance()? != Step::End {}
    let counts = cursor.counts();
    // What it returns is one number, or one for each partition.
    cursor.finish(1);
    Ok((cursor.into_filter().fold, counts))
}

fn damaged(error: DecodeError) -> Error {
    Error::decode("row".as_ref(), 0, error)
}

//! Computes counts and sums over the rows of a query, without copying rows. This is an extension:
//! Azure Table storage has no aggregates.
//!
//! Invariants
//! * integers are summed in 128 bits, which cannot overflow; doubles are summed separately;
//! * NaNs, absent properties and properties of other types are counted separately and have no other
//!   effect.

use std::mem;
use std::sync::Arc;

use crate::codec::DecodeError;
use crate::error::{Error, Result};
use crate::format::key::decode_part;
use crate::format::zones::ZoneSet;
use crate::lsm::{RowFilter, ScanRow, Step, VisibleRun, ZoneMatch};
use crate::model::{RowRef, Shape, ValueRef};

use super::builder::Query;
use super::eval::{Evaluator, Fields};
use super::exec::Counts;

/// Aggregates of a numeric property over the rows of a query.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// # use rowstone::{Db, Entity, query::Number};
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

/// The result of an aggregate: an integer if all numbers are Int32 or Int64, otherwise a double.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An exact sum, minimum or maximum of integers.
    Integer(i128),
    /// Computed from doubles, or from integers and doubles together.
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
    /// Returns the number of entities that matched: the sum of the other counts.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the number of entities with an Int32 or Int64 property.
    pub fn integers(&self) -> u64 {
        self.integers.count
    }

    /// Returns the number of entities with a Double property other than NaN.
    pub fn doubles(&self) -> u64 {
        self.doubles.count
    }

    /// Returns the number of entities with a NaN property.
    pub fn nans(&self) -> u64 {
        self.nans
    }

    /// Returns the number of entities without the property.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// Returns the number of entities with a property of a type other than integer and Double.
    pub fn others(&self) -> u64 {
        self.others
    }

    /// Returns the least number; `None` if there are no numbers.
    pub fn min(&self) -> Option<Number> {
        self.fold(|a| a.least.into(), |a| a.least, f64::min)
    }

    /// Returns the greatest number; `None` if there are no numbers.
    pub fn max(&self) -> Option<Number> {
        self.fold(|a| a.greatest.into(), |a| a.greatest, f64::max)
    }

    /// Returns the sum; `None` if there are no numbers. Doubles are added in key order.
    pub fn sum(&self) -> Option<Number> {
        self.fold(|a| a.sum, |a| a.sum, |a, b| a + b)
    }

    /// Returns the sum divided by the count of numbers; `None` if there are no numbers.
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
                Some(Number::Double(both(integers(&self.integers) as f64, doubles(&self.doubles))))
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
        let numbers = self.integers.count + self.doubles.count + self.nans;
        debug_assert_eq!(self.rows, numbers + self.others + self.missing, "each row counts once");
    }
}

impl Number {
    /// Converts to a double; an integer beyond 2^53 is rounded.
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

/// A row filter that adds each matching row to a result. It then reports the row as not matching,
/// so that the cursor returns no rows.
struct Folder<'f> {
    evaluator: Evaluator,
    fold: Fold<'f>,
    /// The number of matching rows that were counted per block, without reading them; `None` if
    /// every row must be read.
    unseen: Option<u64>,
}

/// A result to which rows are added. One type serves all kinds of results, so that the code that
/// reads rows is compiled only once.
struct Fold<'f> {
    /// The property to aggregate; `None` if rows are only counted.
    finder: Option<Finder<'f>>,
    /// The result for all rows, or for the current partition.
    current: Aggregate,
    /// Receives the result for each partition; `None` if there is only one result.
    each: Option<&'f mut dyn FnMut(String, Aggregate)>,
    /// The PartitionKey of the current partition, encoded and as text.
    key: Vec<u8>,
    partition: String,
}

impl<'f> Fold<'f> {
    fn new(property: Option<&'f str>) -> Self {
        let (current, finder) = (Aggregate::default(), property.map(Finder::new));
        Self { finder, current, each: None, key: Vec::new(), partition: String::new() }
    }

    #[inline]
    fn add(&mut self, fields: &Fields<'_>, row: &RowRef<'_>) -> Result<(), DecodeError> {
        if self.each.is_some() {
            let (first, second) = fields.parts().0;
            if self.current.rows == 0 || self.key.strip_prefix(first) != Some(second) {
                self.end_partition();
                self.key.clear();
                self.key.extend_from_slice(first);
                self.key.extend_from_slice(second);
                self.partition = decode_part(&self.key)?.into_owned();
            }
        }
        match &mut self.finder {
            Some(finder) => self.current.add(finder.find(row)?),
            None => self.current.rows += 1,
        }
        Ok(())
    }

    /// Passes on the result for the current partition.
    fn end_partition(&mut self) {
        if let Some(each) = self.each.as_mut().filter(|_| self.current.rows > 0) {
            each(mem::take(&mut self.partition), mem::take(&mut self.current));
        }
    }
}

impl RowFilter for Folder<'_> {
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
        self.evaluator.asks_zones() || self.evaluator.takes_all() && self.unseen.is_some()
    }

    fn match_zones(&mut self, zones: &ZoneSet<'_>) -> Option<ZoneMatch> {
        match self.evaluator.takes_all() && self.unseen.is_some() {
            true => Some(ZoneMatch { maybe: u64::MAX, surely: u64::MAX }),
            false => self.evaluator.match_zones(zones),
        }
    }

    fn stretch(&self) -> u64 {
        self.evaluator.stretch()
    }

    fn take_unseen(&mut self, rows: u64) -> bool {
        self.unseen = self.unseen.map(|unseen| unseen + rows);
        self.unseen.is_some()
    }

    fn matches(&mut self, row: &ScanRow<'_>) -> Result<bool> {
        if self.evaluator.matches(row)? {
            let fields = Fields { key: (row.key, &[]), seq: row.seq, body: row.row.body };
            let added = self.fold.add(&fields, &row.row);
            added.map_err(|error| Error::decode("row".as_ref(), 0, error))?;
        }
        Ok(false)
    }
}

/// Finds a property, and caches its position in the last shape.
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

impl Query {
    /// Counts the entities. This is an extension: Azure Table storage has no counts. Nothing is
    /// copied, and blocks in which all rows match are not read. [`top`](Self::top) and the budgets
    /// of pages do not apply.
    ///
    /// # Errors
    /// As [`page`](Self::page).
    pub fn count(self) -> Result<u64> {
        count(&self).map(|(count, _)| count)
    }

    /// Returns the count, and the number of blocks of rows that did not have to be read.
    #[cfg(feature = "sim")]
    pub(crate) fn count_explained(self) -> Result<(u64, u64)> {
        count(&self)
    }

    /// Returns the count for each PartitionKey with matching entities, in key order. The counts of
    /// all partitions are kept in memory.
    ///
    /// # Errors
    /// As [`page`](Self::page).
    pub fn count_by_partition(self) -> Result<Vec<(String, u64)>> {
        let mut counts = Vec::new();
        by_partition(&self, None, &mut |partition, fold| counts.push((partition, fold.rows)))?;
        Ok(counts)
    }

    /// Returns minimum, maximum, sum and average of a numeric property. This is an extension: Azure
    /// Table storage has no aggregates. Nothing is copied. Keys and Timestamp cannot be aggregated.
    /// [`top`](Self::top) and the budgets of pages do not apply.
    ///
    /// # Errors
    /// As [`page`](Self::page).
    pub fn aggregate(self, property: &str) -> Result<Aggregate> {
        run(&self, Fold::new(Some(property)), None).map(|(folder, _)| folder.fold.current)
    }

    /// Returns the aggregate for each PartitionKey with matching entities, in key order. The
    /// aggregates of all partitions are kept in memory.
    ///
    /// # Errors
    /// As [`page`](Self::page).
    pub fn aggregate_by_partition(self, property: &str) -> Result<Vec<(String, Aggregate)>> {
        let mut all = Vec::new();
        by_partition(&self, Some(property), &mut |partition, fold| all.push((partition, fold)))?;
        Ok(all)
    }
}

/// Returns the count, and the number of blocks of rows that did not have to be read.
fn count(query: &Query) -> Result<(u64, u64)> {
    let (folder, counts) = run(query, Fold::new(None), Some(0))?;
    Ok((folder.fold.current.rows + folder.unseen.unwrap_or(0), counts.read.blocks_skipped))
}

/// Passes the result for each partition to `each`, in key order.
fn by_partition(
    query: &Query,
    property: Option<&str>,
    each: &mut dyn FnMut(String, Aggregate),
) -> Result<()> {
    let fold = Fold { each: Some(each), ..Fold::new(property) };
    run(query, fold, None).map(|(mut folder, _)| folder.fold.end_partition())
}

/// Adds all matching rows of the query to `fold`. If `unseen` is given, a block in which all rows
/// match may be skipped; the number of its rows is then added to `unseen`.
fn run<'f>(query: &Query, fold: Fold<'f>, unseen: Option<u64>) -> Result<(Folder<'f>, Counts)> {
    let plan = query.plan();
    let mut cursor = query.begin_with(&plan, |evaluator| Folder { evaluator, fold, unseen })?;
    while cursor.advance()? != Step::End {}
    let counts = cursor.counts();
    // Report one row as returned, because the result is a single number.
    cursor.finish(1);
    Ok((cursor.into_filter(), counts))
}

//! Recommends a finer PartitionKey if the application's peak load is too high for one partition.
//! The finer key also contains the value of a property, or a bucket number. Of the properties that
//! divide the load far enough, the recommended one is that which most filters of the application's
//! queries name, so that these queries still read one partition.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use crate::model::{Entity, ValueRef};
use crate::query::Filter;
use crate::query::tree::{CompareOp, Node, Property};

/// Azure Table storage's target of 2010 for one partition, in entities per second, and the
/// percentage of this target that a partition should use at most.
const TARGET: u32 = 500;
const USED_PERCENT: u32 = 80;

/// Limits of the sample of rows from which the recommendation is computed.
pub(super) struct Sample;

impl Sample {
    pub(super) const ROWS_MAX: usize = 100_000;
    /// A property with more values than this is an id: each entity would get its own partition.
    const VALUES_MAX: usize = 10_000;
}

/// The recommended change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// Add the property `name` to the PartitionKey. The partition of its most frequent value then
    /// gets `rate` entities per second at the peak. `named` of `filters` filters require one value
    /// of the property.
    Property {
        partition: String,
        name: String,
        values: usize,
        heaviest: String,
        rate: u32,
        named: usize,
        filters: usize,
    },
    /// Add a bucket number to the PartitionKey, because no property divides the load far enough.
    Bucket { partition: String, buckets: u32, filters: usize },
}

impl Advice {
    pub(super) fn new(partition: &str, rate: u32, rows: &[Entity], filters: &[Filter]) -> Advice {
        let limit = TARGET * USED_PERCENT / 100;
        let peak = |count: usize| {
            let share = u64::from(rate) * count as u64 / rows.len().max(1) as u64;
            u32::try_from(share).ok().filter(|share| *share <= limit)
        };
        let fits = divisions(rows).into_iter().filter_map(|(name, counts)| {
            let (value, count) = heaviest(&counts);
            let named = filters.iter().filter(|filter| requires(filter.node(), &name)).count();
            let (heaviest, values) = (value.to_owned(), counts.len());
            Some((Reverse(named), count, name, values, heaviest, peak(count)?))
        });
        let (partition, filters) = (partition.to_owned(), filters.len());
        match fits.min() {
            Some((Reverse(named), _, name, values, heaviest, rate)) => {
                Advice::Property { partition, name, values, heaviest, rate, named, filters }
            }
            None => Advice::Bucket { partition, buckets: rate.div_ceil(limit).max(2), filters },
        }
    }
}

/// Whether every entity that matches has one value of the property `name`, which the filter states.
fn requires(node: &Node, name: &str) -> bool {
    match node {
        Node::Compare(term) => {
            let is_it = matches!(&term.property, Property::Named(named) if **named == *name);
            is_it && term.op == CompareOp::Eq
        }
        Node::And(nodes) => nodes.iter().any(|node| requires(node, name)),
        Node::All | Node::Or(_) | Node::Not(_) | Node::TooDeep => false,
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Advice::Property { partition, name, values, heaviest, rate, named, filters } => {
                write!(
                    f,
                    "a finer key: add the property {name}, as in '{partition};{heaviest}': {values} \
                     partitions, the heaviest with {rate}/s of the peak"
                )?;
                match filters {
                    0 => Ok(()),
                    _ => write!(
                        f,
                        "; {named} of {filters} filters state {name} and read one of the partitions, \
                         others read all"
                    ),
                }
            }
            Advice::Bucket { partition, buckets, filters } => {
                let last = buckets - 1;
                write!(
                    f,
                    "a finer key: add a bucket at the end, '{partition};00' to '{partition};{last:02}', \
                     chosen at random or by a hash of the RowKey; all of them are \
                     PartitionKey ge '{partition};' and PartitionKey lt '{partition}<'"
                )?;
                match filters {
                    0 => Ok(()),
                    _ => write!(f, "; each query reads all {buckets} partitions"),
                }
            }
        }
    }
}

/// For each property that could divide the rows among several partitions, counts the rows per
/// value. Only properties that all rows have are suitable.
fn divisions(rows: &[Entity]) -> BTreeMap<String, BTreeMap<String, usize>> {
    let mut all: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for row in rows {
        for (name, value) in row.properties() {
            let text = match value {
                ValueRef::String(text) => text.to_owned(),
                ValueRef::Int32(number) => number.to_string(),
                ValueRef::Int64(number) => number.to_string(),
                ValueRef::Guid(guid) => guid.to_string(),
                _ => continue,
            };
            let counts = all.entry(name.to_owned()).or_default();
            if counts.len() <= Sample::VALUES_MAX {
                *counts.entry(text).or_default() += 1;
            }
        }
    }
    all.retain(|_, counts| {
        let divides = counts.len() > 1 && counts.len() <= Sample::VALUES_MAX;
        // A property with almost as many values as rows would give each row its own partition, and
        // few entities could be written in one entity group transaction. So a partition must have
        // at least two entities on average.
        divides && counts.len() * 2 <= rows.len() && counts.values().sum::<usize>() == rows.len()
    });
    all
}

/// Returns the most frequent value, and the number of rows that have it.
fn heaviest(counts: &BTreeMap<String, usize>) -> (&str, usize) {
    let most = counts.iter().max_by_key(|(_, count)| **count);
    most.map_or(("", 0), |(value, count)| (value, *count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Entity> {
        let row = |i: i32| {
            let row = Entity::new("Component", format!("{i:04}")).with("Id", i);
            let row = row.with("Instance", format!("Inst{:04}", i % 10)).with("Half", i % 2);
            if i % 3 == 0 { row.with("Some", "x") } else { row }
        };
        (0..1_000).map(row).collect()
    }

    #[test]
    fn the_property_that_divides_best_is_advised() {
        let text = Advice::new("Component", 3_000, &rows(), &[]).to_string();
        assert!(text.contains("add the property Instance, as in 'Component;Inst0009'"), "{text}");
        assert!(text.ends_with("10 partitions, the heaviest with 300/s of the peak"), "{text}");
    }

    #[test]
    fn a_property_that_the_filters_state_is_preferred() {
        let filters = ["Half eq 1 and Id gt 5", "Instance ge 'a' or Half eq 1", "not (Half eq 1)"];
        let filters = filters.map(|text| text.parse::<Filter>().unwrap());
        let advise = |rate| Advice::new("Component", rate, &rows(), &filters).to_string();
        // Half of 700/s is within the target, though Instance divides the rows further.
        let text = advise(700);
        assert!(text.contains("add the property Half, as in"), "{text}");
        assert!(text.contains("350/s of the peak; 1 of 3 filters state Half"), "{text}");
        // Half of 3,000/s is not.
        let text = advise(3_000);
        assert!(text.contains("property Instance") && text.contains("; 0 of 3 filters"), "{text}");
        assert!(advise(5_000).ends_with("; each query reads all 13 partitions"));
    }

    #[test]
    fn a_bucket_is_advised_where_no_property_divides_enough() {
        let bucket =
            |buckets| Advice::Bucket { partition: "Component".into(), buckets, filters: 0 };
        assert_eq!(Advice::new("Component", 5_000, &rows(), &[]), bucket(13));
        assert_eq!(Advice::new("Component", 600, &[], &[]), bucket(2));
        let text = bucket(13).to_string();
        assert!(text.contains("'Component;00' to 'Component;12'"), "{text}");
    }
}

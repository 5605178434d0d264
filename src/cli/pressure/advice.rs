//! Recommends a finer PartitionKey if the application's peak load is too high for one partition.
//! The finer key also contains the value of a property, or a bucket number.

use std::collections::BTreeMap;
use std::fmt;

use crate::model::{Entity, ValueRef};

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
    /// gets `rate` entities per second at the peak.
    Property { partition: String, name: String, values: usize, heaviest: String, rate: u32 },
    /// Add a bucket number to the PartitionKey, because no property divides the load far enough.
    Bucket { partition: String, buckets: u32 },
}

impl Advice {
    pub(super) fn new(partition: &str, rate: u32, rows: &[Entity]) -> Advice {
        let limit = TARGET * USED_PERCENT / 100;
        let best = divisions(rows).into_iter().min_by_key(|(_, counts)| heaviest(counts).1);
        let property = best.and_then(|(name, counts)| {
            let (value, count) = heaviest(&counts);
            let share = u64::from(rate) * count as u64 / rows.len().max(1) as u64;
            let rate = u32::try_from(share).ok().filter(|share| *share <= limit)?;
            let (values, heaviest) = (counts.len(), value.to_owned());
            Some(Advice::Property { partition: partition.into(), name, values, heaviest, rate })
        });
        let buckets = rate.div_ceil(limit).max(2);
        property.unwrap_or_else(|| Advice::Bucket { partition: partition.into(), buckets })
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Advice::Property { partition, name, values, heaviest, rate } => write!(
                f,
                "a finer key: add the property {name}, as in '{partition};{heaviest}': {values} partitions, \
                 the heaviest with {rate}/s of the peak"
            ),
            Advice::Bucket { partition, buckets } => {
                let last = buckets - 1;
                write!(
                    f,
                    "a finer key: add a bucket at the end, '{partition};00' to '{partition};{last:02}', \
                     chosen at random or by a hash of the RowKey; all of them are \
                     PartitionKey ge '{partition};' and PartitionKey lt '{partition}<'"
                )
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
        let text = Advice::new("Component", 3_000, &rows()).to_string();
        assert!(text.contains("add the property Instance, as in 'Component;Inst0009'"), "{text}");
        assert!(text.contains("10 partitions, the heaviest with 300/s"), "{text}");
    }

    #[test]
    fn a_bucket_is_advised_where_no_property_divides_enough() {
        let bucket = |buckets| Advice::Bucket { partition: "Component".into(), buckets };
        assert_eq!(Advice::new("Component", 5_000, &rows()), bucket(13));
        assert_eq!(Advice::new("Component", 600, &[]), bucket(2));
        let text = bucket(13).to_string();
        assert!(text.contains("'Component;00' to 'Component;12'"), "{text}");
    }
}

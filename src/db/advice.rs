//! Detects anti-patterns of key design from the load, the stored data and the queries of a table,
//! and returns evidence and a remedy for each.
//!
//! [`advise`] is pure; [`Db::advise`] collects the figures for it from `partitions` and `shape`.

use super::Db;
use super::partitions::{LoadPattern, PartitionRange};
use super::shape::DataShape;
use crate::error::Result;
use crate::named::named;
use crate::table::QueryCounts;

/// A detected anti-pattern in the choice of keys, and a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Advice {
    /// The anti-pattern.
    pub pattern: AntiPattern,
    /// The figures that show the anti-pattern, in one or two sentences.
    pub evidence: String,
    /// The remedy, with example keys.
    pub remedy: String,
}

named! {
    /// The anti-patterns that [`Db::advise`](crate::Db::advise) detects.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    #[non_exhaustive]
    pub enum AntiPattern {
        /// New PartitionKeys are always the highest: the last range takes all inserts.
        AppendOnly "append-only",
        /// New PartitionKeys are always the lowest.
        PrependOnly "prepend-only",
        /// One partition has most of the load.
        HotPartition "one hot partition",
        /// One partition grows without bound.
        UnboundedPartition "unbounded partition",
        /// Most partitions have only one entity, and queries read ranges of partitions.
        SingleEntityPartitions "one-row partitions",
        /// Filters without keys read the whole table.
        TableScans "filters that scan the table",
    }

    /// Returns the name, as printed by commands.
    pub fn name;
}

impl Db {
    /// Returns the anti-patterns of key design that are visible in a table's data or in its load
    /// since opening. Each has evidence and a remedy. Reads keys as
    /// [`data_shape`](Self::data_shape) does.
    ///
    /// # Errors
    /// As [`data_shape`](Self::data_shape).
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// # use rowstone::{Db, Entity};
    /// let db = Db::open_in_memory()?;
    /// db.create_table("parts")?.insert(Entity::new("bolts", "m4x20"))?;
    /// assert!(db.advise("parts", u64::MAX)?.is_empty());
    /// # db.close()
    /// # }
    /// ```
    pub fn advise(&self, table: &str, entities_max: u64) -> Result<Vec<Advice>> {
        let ranges = self.partitions(table)?;
        let data = self.data_shape(table, entities_max)?;
        let queries = self.query_counts(table)?;
        Ok(advise(&Seen { ranges: &ranges, data: &data, queries: &queries }))
    }

    /// Returns how many queries of each kind the table has had since the database was opened.
    pub(crate) fn query_counts(&self, table: &str) -> Result<QueryCounts> {
        Ok(self.catalog.table(table)?.queries.counts())
    }
}

/// The figures from which advice is derived.
pub(crate) struct Seen<'a> {
    pub(crate) ranges: &'a [PartitionRange],
    pub(crate) data: &'a DataShape,
    pub(crate) queries: &'a QueryCounts,
}

/// Tables with fewer partitions are not examined for keys that are ordered by time.
const ORDERED_PARTITIONS_MIN: u64 = 32;
/// Keys count as ordered by time if at least this share of pairs of neighbouring partitions were
/// created in the order of their keys. For keys that are independent of time the share is one half,
/// with a standard error of 9 % for 32 pairs.
pub(crate) const ORDERED_SHARE: f64 = 0.9;
/// Minimum load in operations per second; a lower load is ignored.
const OPS_MIN: f64 = 10.0;
/// A partition with at least this share of the load is hot. A range with at least this share of the
/// writes takes most of the writes.
pub(crate) const HOT_SHARE: f64 = 0.5;
/// A partition of at least this many entities is assumed to grow without bound if it has
/// `UNBOUNDED_TIMES` times the median number of entities, or more than half of the table's
/// entities.
const UNBOUNDED_ENTITIES: u64 = 100_000;
const UNBOUNDED_TIMES: u64 = 10;
/// One-row partitions are reported if a table has at least this many partitions, and at least this
/// share of them have only one entity.
const SINGLES_MIN: u64 = 1_000;
const SINGLES_SHARE: f64 = 0.9;
/// A kind of query is reported if there were at least this many such queries, and if they are at
/// least this share of all queries.
const QUERIES_MIN: u64 = 10;
const QUERIES_SHARE: f64 = 0.1;
/// Number of buckets in the example keys of a remedy. Each bucket is a partition, and the inserts
/// are spread over all of them.
const BUCKETS: u32 = 16;

/// Returns the detected anti-patterns, in the order of [`AntiPattern`].
pub(crate) fn advise(seen: &Seen<'_>) -> Vec<Advice> {
    let found = [directed(seen), hot(seen), unbounded(seen), singles(seen), table_scans(seen)];
    found.into_iter().flatten().collect()
}

/// Detects append-only or prepend-only keys: by the current writes if there are enough of them,
/// otherwise by the stored data.
fn directed(seen: &Seen<'_>) -> Option<Advice> {
    let writes: f64 = seen.ranges.iter().map(|range| range.writes).sum();
    let advice =
        |pattern, evidence| Some(Advice { pattern, evidence, remedy: spread(&seen.data.last) });
    if writes >= OPS_MIN {
        let (first, last) = (seen.ranges.first()?, seen.ranges.last()?);
        let takes_most = |range: &PartitionRange| range.writes >= HOT_SHARE * writes;
        // If most of the load of a range is on one partition, its inserts ascend only by RowKey,
        // not by PartitionKey.
        let is_one = |range: &PartitionRange| range.pattern == LoadPattern::OnePartition;
        let evidence = |range: &PartitionRange, share: f64, end: &str| {
            format!(
                "{:.0} % of the writes fall into the {end} range, and {:.0} % of these are {} \
                 all keys written shortly before ({:.0} writes/s).",
                100.0 * range.writes / writes,
                100.0 * share,
                if end == "last" { "above" } else { "below" },
                range.writes,
            )
        };
        if takes_most(last) && last.ascending >= HOT_SHARE && !is_one(last) {
            return advice(AntiPattern::AppendOnly, evidence(last, last.ascending, "last"));
        }
        if takes_most(first) && first.descending >= HOT_SHARE && !is_one(first) {
            return advice(AntiPattern::PrependOnly, evidence(first, first.descending, "first"));
        }
        return None;
    }
    let data = seen.data;
    let evidence = |share: f64, how: &str| {
        format!(
            "Of {} partitions, each new one came {how} the ones before in {:.0} % of the cases. \
             (A single load of a sorted file looks the same.)",
            data.partitions,
            100.0 * share,
        )
    };
    if data.partitions < ORDERED_PARTITIONS_MIN {
        None
    } else if data.ascending >= ORDERED_SHARE {
        advice(AntiPattern::AppendOnly, evidence(data.ascending, "above"))
    } else if data.ascending <= 1.0 - ORDERED_SHARE {
        advice(AntiPattern::PrependOnly, evidence(1.0 - data.ascending, "below"))
    } else {
        None
    }
}

/// Returns the remedy for keys ordered by time.
fn spread(example: &str) -> String {
    let bucket = example.bytes().map(u32::from).sum::<u32>() % BUCKETS;
    format!(
        "Put what the entity belongs to into the PartitionKey and time into the RowKey \
         (PartitionKey 'sensor-0042', RowKey '{example}'), or a bucket before it: hash of the id \
         modulo {BUCKETS}, '{bucket:02}_{example}' instead of '{example}'. A query for a time then asks \
         {BUCKETS} ranges side by side."
    )
}

fn hot(seen: &Seen<'_>) -> Option<Advice> {
    let ops = |range: &PartitionRange| range.reads + range.writes;
    let all: f64 = seen.ranges.iter().map(ops).sum();
    if all < OPS_MIN {
        return None;
    }
    let heaviest = seen.ranges.iter().filter_map(|range| {
        let (key, share) = range.heaviest.first()?;
        Some((key, share * ops(range)))
    });
    let (key, rate) = heaviest.max_by(|a, b| a.1.total_cmp(&b.1))?;
    if rate < HOT_SHARE * all {
        return None;
    }
    Some(Advice {
        pattern: AntiPattern::HotPartition,
        evidence: format!(
            "Partition '{key}' has {:.0} % of the load: {rate:.0} of {all:.0} operations a second.",
            100.0 * rate / all
        ),
        remedy: format!(
            "A partition is never divided over servers. Append another property to its key, or a \
             bucket, last so that prefixes still find all of it: '{key};07' of '{key};00' to \
             '{key};15', read as PartitionKey ge '{key};' and PartitionKey lt '{key}<'."
        ),
    })
}

fn unbounded(seen: &Seen<'_>) -> Option<Advice> {
    let data = seen.data;
    let largest = data.largest.iter().max_by_key(|partition| partition.entities)?;
    let (key, entities) = (&largest.partition_key, largest.entities);
    let is_most = entities > data.entities / 2;
    let stands_out = entities >= data.median_entities.saturating_mul(UNBOUNDED_TIMES);
    if entities < UNBOUNDED_ENTITIES || !(is_most || stands_out) {
        return None;
    }
    Some(Advice {
        pattern: AntiPattern::UnboundedPartition,
        evidence: format!(
            "Partition '{key}' has {entities} of {} entities ({} bytes); the partition in the middle \
             has {}.",
            data.entities, largest.bytes, data.median_entities
        ),
        remedy: format!(
            "Let the partition end: concatenate what its data is divided by anyway, a month or the \
             next property, as in '{key};2024-05' and '{key};2024-06'. A month is then one partition, \
             and PartitionKey ge '{key};' and PartitionKey lt '{key}<' is all of them."
        ),
    })
}

fn singles(seen: &Seen<'_>) -> Option<Advice> {
    let (data, queries) = (seen.data, seen.queries);
    let share = data.single_partitions as f64 / data.partitions.max(1) as f64;
    let wide = queries.partition_ranges + queries.table_scans;
    // If any queries were counted, report this only if enough of them read more than one partition.
    let is_scanned = queries.all() == 0 || wide >= QUERIES_MIN && is_share(wide, queries);
    if data.partitions < SINGLES_MIN || share < SINGLES_SHARE || !is_scanned {
        return None;
    }
    let scanned = match queries.all() {
        0 => "Whether they are read by range is not known: no query was seen.".to_owned(),
        all => format!("{wide} of {all} queries read more than one partition."),
    };
    Some(Advice {
        pattern: AntiPattern::SingleEntityPartitions,
        evidence: format!(
            "{:.0} % of {} partitions have one entity. {scanned}",
            100.0 * share,
            data.partitions
        ),
        remedy: format!(
            "If entities are read by range, put entities that are read together into one \
             partition: what changes slowly into the PartitionKey, the rest into the RowKey, as \
             PartitionKey 'customer-17', RowKey '{0}' instead of PartitionKey '{0}'. For point \
             reads alone the keys are fine.",
            data.last
        ),
    })
}

fn table_scans(seen: &Seen<'_>) -> Option<Advice> {
    let queries = seen.queries;
    let scans = queries.table_scans;
    if scans < QUERIES_MIN || !is_share(scans, queries) {
        return None;
    }
    Some(Advice {
        pattern: AntiPattern::TableScans,
        evidence: format!(
            "{scans} of {} queries had a filter that bounds no key, and read the whole table.",
            queries.all()
        ),
        remedy: "Name the PartitionKey in the filter, or keep a second copy of the entity under the key \
             that the query knows, written in the same group: RowKey 'id_000223' and RowKey \
             'email_jonesj@contoso.com' in partition 'Sales', asked for as RowKey ge 'email_' and \
             RowKey lt 'email`'."
            .to_owned(),
    })
}

fn is_share(count: u64, queries: &QueryCounts) -> bool {
    count as f64 >= QUERIES_SHARE * queries.all() as f64
}

#[cfg(test)]
mod tests;

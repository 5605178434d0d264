//! Returns the ranges into which the keys of a table are divided, with the size and load of each.
//!
//! `lsm` splits and merges ranges, `shape` describes stored data, `advice` finds anti-patterns.

use std::sync::Arc;

use crate::error::Result;
use crate::format::key::{TABLE_ID_BYTES, decode_part};
use crate::format::span::{Span, whole_table};
use crate::named::named;
use crate::ranges::decide::{self, LoadShape};
use crate::ranges::load::LoadSummary;

use super::Db;
use super::shape::{self, DataShape};

/// A range partition: a contiguous span of a table's keys with its own files and load.
///
/// Numbers of entities are estimates, because neighbouring ranges share files after a split.
/// Entities that are only in memtables are not counted. Reads and writes per second are decaying
/// averages with a half-life of one minute; they begin at zero when the database is opened.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PartitionRange {
    /// The number of the range; it is never reused.
    pub id: u64,
    /// The first key of the range; `None` at the start of the table.
    pub low: Option<RangeBound>,
    /// The first key after the range; `None` at the end of the table.
    pub high: Option<RangeBound>,
    /// The size of the range's files in bytes, counting only the parts that belong to the range.
    pub bytes: u64,
    /// The number of entries in the files except tombstones, counting all versions.
    pub entities: u64,
    /// Whether `entities` is not an estimate: the files belong to the range as a whole, have no
    /// tombstones, and do not overlap.
    pub(crate) is_exact: bool,
    /// The number of tombstones in the files.
    pub tombstones: u64,
    /// The number of files that the range refers to.
    pub files: usize,
    /// The maximum number of files that a point read searches.
    pub sources: usize,
    /// The number of bytes that await compaction: the size of the newer files, which may overlap. 0
    /// if a point read searches at most one file.
    pub debt: u64,
    /// Entities read per second, by point reads and scans.
    pub reads: f64,
    /// Entities written per second.
    pub writes: f64,
    /// The share of writes, 0 to 1, whose key is above all recently written keys; about 0.06 for
    /// random keys.
    pub ascending: f64,
    /// The share of writes, 0 to 1, whose key is below all recently written keys; about 0.06 for
    /// random keys.
    pub descending: f64,
    /// The pattern of the range's load.
    pub pattern: LoadPattern,
    /// The approximate number of partitions accessed in the last 10 to 20 minutes, among the
    /// sampled operations.
    pub distinct: u64,
    /// The most accessed partitions, at most five, each with its share of the operations, 0 to 1.
    pub heaviest: Vec<(String, f64)>,
    /// Operations per second in each of the last sixty full minutes, newest first; empty in the
    /// first minute.
    pub minutes: Vec<f64>,
}

/// A boundary between two ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeBound {
    /// The PartitionKey.
    pub partition_key: String,
    /// The RowKey; empty at the start of a partition.
    pub row_key: String,
}

named! {
    /// The pattern of a range's load.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum LoadPattern {
        /// There was no load, or too little to classify it.
        #[default]
        Unknown "unknown",
        /// The load is spread, so that a split would divide it.
        Spread "spread",
        /// Inserts, and reads of new rows, have the highest keys of the range, so no split helps.
        Ascending "ascending",
        /// Inserts have the lowest keys of the range, so no split helps.
        Descending "descending",
        /// One partition has at least three quarters of the load.
        OnePartition "one partition",
        /// A few partitions dominate the load, so that no split leaves at least a quarter of it on
        /// each side.
        Uneven "uneven",
    }

    /// Returns the name, as printed by commands.
    pub fn name;
    #[cfg(feature = "cli")]
    pub(crate) const ALL;
}

impl Db {
    /// Returns the range partitions of a table in key order, with their sizes and their load. Reads
    /// no file; the time is linear in the number of ranges and of their references to files. A
    /// table that was never flushed has no ranges.
    ///
    /// # Errors
    /// `NotFound`.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use rowstone::{Db, Entity};
    /// let db = Db::open_in_memory()?;
    /// db.create_table("parts")?.insert(Entity::new("bolts", "m4x20"))?;
    /// db.flush()?;
    /// let ranges = db.partitions("parts")?;
    /// assert_eq!((ranges.len(), ranges[0].entities), (1, 1));
    /// # db.close()
    /// # }
    /// ```
    pub fn partitions(&self, table: &str) -> Result<Vec<PartitionRange>> {
        let table = self.catalog.table(table)?.gate.table;
        let ranges = self.ranges_in(&whole_table(table)).into_iter();
        Ok(ranges.map(|(_, range)| range).collect())
    }

    /// Returns the ranges that overlap `span`, each with the name of its table, in key order. Omits
    /// the ranges of the catalog and of dropped tables.
    pub(crate) fn ranges_in(&self, span: &Span) -> Vec<(Arc<str>, PartitionRange)> {
        let names = self.catalog.names_by_id();
        let pinned = self.engine.reader().pin();
        let version = &pinned.version;
        let mut loads = self.engine.maintenance().loads(version);
        let ranges = version.ranges_in(span).iter().filter_map(|range| {
            let name = Arc::clone(names.get(&range.table)?);
            let load = loads.remove(&range.id).unwrap_or_default();
            let mut described = describe_load(&load);
            described.id = range.id.0;
            described.low = bound(&range.span.low);
            let whole = whole_table(range.table);
            let is_end = |high: &&[u8]| whole.high.as_deref() != Some(*high);
            described.high = range.span.high.as_deref().filter(is_end).and_then(bound);
            for (_, reference) in range.references() {
                let meta = &reference.file.meta;
                let part = reference.bytes as f64 / meta.bytes.max(1) as f64;
                let share = |count: u64| (count as f64 * part).round() as u64;
                described.bytes += reference.bytes;
                described.tombstones += share(meta.tombstones);
                described.entities += share(meta.entries.saturating_sub(meta.tombstones));
                described.files += 1;
            }
            described.sources = range.young.len() + usize::from(!range.run.is_empty());
            described.is_exact = described.tombstones == 0
                && described.sources <= 1
                && range.references().all(|(_, reference)| reference.bytes_meta().is_none());
            if described.sources > 1 {
                described.debt = range.young.iter().map(|reference| reference.bytes).sum();
            }
            Some((name, described))
        });
        ranges.collect()
    }

    /// Reads the keys of a table in key order, at most `entities_max`, and summarizes how they form
    /// partitions. Takes as long as a scan.
    ///
    /// # Errors
    /// `NotFound`, `Corruption`, `Io`.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// # use rowstone::{Db, Entity};
    /// let db = Db::open_in_memory()?;
    /// let parts = db.create_table("parts")?;
    /// parts.insert(Entity::new("bolts", "m4x20"))?;
    /// parts.insert(Entity::new("bolts", "m4x25"))?;
    /// let shape = db.data_shape("parts", u64::MAX)?;
    /// assert_eq!((shape.partitions, shape.largest[0].entities), (1, 2));
    /// # db.close()
    /// # }
    /// ```
    pub fn data_shape(&self, table: &str, entities_max: u64) -> Result<DataShape> {
        shape::read(&self.engine, self.catalog.table(table)?.gate.table, entities_max)
    }

    /// Switches the counting of loads on or off, for benchmarks.
    pub(crate) fn count_loads(&self, on: bool) {
        self.engine.maintenance().count_loads(on);
    }
}

fn describe_load(load: &LoadSummary) -> PartitionRange {
    let text = |partition: &[u8]| bound(partition).unwrap_or_default().partition_key;
    let heaviest = load.heaviest.iter().take(5);
    PartitionRange {
        reads: load.reads,
        writes: load.writes,
        ascending: load.ascending,
        descending: load.descending,
        pattern: match decide::shape(load) {
            LoadShape::Unknown => LoadPattern::Unknown,
            LoadShape::Ascending => LoadPattern::Ascending,
            LoadShape::Descending => LoadPattern::Descending,
            LoadShape::OnePartition => LoadPattern::OnePartition,
            LoadShape::Divides { .. } => LoadPattern::Spread,
            LoadShape::Uneven => LoadPattern::Uneven,
        },
        distinct: load.distinct.round() as u64,
        heaviest: heaviest.map(|(heavy, share)| (text(&heavy.partition), *share)).collect(),
        minutes: load.minutes.clone(),
        ..PartitionRange::default()
    }
}

/// Decodes the bound `key`; `None` at the start of a table.
fn bound(key: &[u8]) -> Option<RangeBound> {
    let texts = key.get(TABLE_ID_BYTES..).filter(|texts| !texts.is_empty())?;
    let mut parts = texts.splitn(2, |byte| *byte == 0).map(|part| {
        decode_part(part)
            .map_or_else(|_| String::from_utf8_lossy(part).into_owned(), |text| text.into_owned())
    });
    let mut next = || parts.next().unwrap_or_default();
    Some(RangeBound { partition_key: next(), row_key: next() })
}

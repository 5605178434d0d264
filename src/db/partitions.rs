//! The range map of a table with sizes and load, for people and programs.
//!
//! Not here: splitting and joining (`lsm`), the shape of data at rest (`shape`), anti-patterns (`advice`).

use crate::error::Result;
use crate::format::key::{TABLE_ID_BYTES, decode_part};
use crate::named::named;
use crate::ranges::decide::{self, LoadShape};
use crate::ranges::load::LoadSummary;

use super::Db;
use super::shape::{self, DataShape};

/// A range partition: a contiguous span of a table's keys with its own files, its load and its debt.
///
/// Files are shared by neighbours right after a split, so that numbers of entities are estimates; those that are in
/// memtables only are not in them. Rates are as of a half-life of a minute, counted since the database was opened.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PartitionRange {
    /// The number of the range; never used again.
    pub id: u64,
    /// The first key that belongs to it; `None`: from the start of the table.
    pub low: Option<RangeBound>,
    /// The first key that does not; `None`: to the end of the table.
    pub high: Option<RangeBound>,
    /// Bytes of its files, as far as they belong to it.
    pub bytes: u64,
    /// Entries in them that are no tombstones, all versions.
    pub entities: u64,
    /// Tombstones in them.
    pub tombstones: u64,
    /// Files that it refers to.
    pub files: usize,
    /// Files that a point read may have to look at.
    pub sources: usize,
    /// Bytes that wait to be merged: those of files that overlap others.
    pub debt: u64,
    /// Entities read a second, by point reads and scans.
    pub reads: f64,
    /// Entities written a second.
    pub writes: f64,
    /// Of the writes, how many came above (below) all that were written lately, 0 to 1; by chance about 0.06.
    pub ascending: f64,
    /// See [`ascending`](Self::ascending).
    pub descending: f64,
    /// What kind of load it is.
    pub pattern: LoadPattern,
    /// About how many partitions were asked for in the last ten to twenty minutes, of the operations that were sampled.
    pub distinct: u64,
    /// The partitions that were asked for most, each with its share of the operations, 0 to 1; at most five.
    pub heaviest: Vec<(String, f64)>,
    /// Operations a second in each of the last sixty full minutes, the newest first; empty if there were none.
    pub minutes: Vec<f64>,
}

/// A place between keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeBound {
    /// Its PartitionKey.
    pub partition_key: String,
    /// Its RowKey; empty at the start of a partition.
    pub row_key: String,
}

named! {
    /// What kind of load a range has.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum LoadPattern {
        /// Nobody asked for it, or too few times to say.
        #[default]
        Unknown "unknown",
        /// It is spread, so that a split would divide it.
        Spread "spread",
        /// Inserts come at the upper end: no split helps.
        Ascending "ascending",
        /// Inserts come at the lower end.
        Descending "descending",
        /// One partition has three quarters of it or more.
        OnePartition "one partition",
        /// Some partitions have so much of it that no split leaves both sides a quarter.
        Uneven "uneven",
    }

    /// The name, as commands print it.
    pub fn name;
}

impl Db {
    /// The range partitions of a table in key order, with their sizes and their load. Reads no file; the time is linear in
    /// ranges and references. A table that was never flushed has none.
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
        let pinned = self.engine.reader().pin();
        let version = &pinned.version;
        let mut loads = self.engine.maintenance().loads(version);
        let whole = crate::format::span::whole_table(table);
        let ranges = version.ranges_in(&whole).iter().map(|range| {
            let load = loads.remove(&range.id).unwrap_or_default();
            let mut described = describe_load(&load);
            described.id = range.id.0;
            described.low = bound(&range.span.low);
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
            if described.sources > 1 {
                described.debt = range.young.iter().map(|reference| reference.bytes).sum();
            }
            described
        });
        Ok(ranges.collect())
    }

    /// Reads the keys of a table, at most `entities_max` of them in key order, and says how they form partitions. Takes as
    /// long as a scan.
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
        let table = self.catalog.table(table)?.gate.table;
        shape::read(&self.engine, table, entities_max)
    }

    /// Counts loads, or does not; for benchmarks.
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

/// What a bound says; `None` at the start of a table.
fn bound(key: &[u8]) -> Option<RangeBound> {
    let texts = key.get(TABLE_ID_BYTES..).filter(|texts| !texts.is_empty())?;
    let mut parts = texts.splitn(2, |byte| *byte == 0).map(|part| {
        decode_part(part)
            .map_or_else(|_| String::from_utf8_lossy(part).into_owned(), |text| text.into_owned())
    });
    let mut next = || parts.next().unwrap_or_default();
    Some(RangeBound { partition_key: next(), row_key: next() })
}

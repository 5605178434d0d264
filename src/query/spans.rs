//! Deleting whole spans of keys: one commit, however many rows.
//!
//! Not here: what hides the rows from then on (`lsm::range_tombstones`), how their space comes back (`lsm::background::reclaim`).

use crate::error::{Code, Error, Result};
use crate::executor::Lane;
use crate::format::span::Span;
use crate::lsm::{Batch, TableChange};
use crate::model::{KeyPart, check_key};
use crate::table::Table;

use super::KeyRange;

/// Ranges that one commit deletes: as many as a group has operations.
const RANGES_MAX: usize = 100;
/// No key is as long: three bytes for each unit of both keys, the table and the separator.
const BOUND_BYTES_MAX: usize = 8 << 10;

/// The same keys between bounds that are not longer than any key can be: a bound is kept as long as its range tombstone is.
fn shortened(span: Span) -> Span {
    // A key that is shorter than the rest of a bound lies on the same side of both.
    let short = |bound: &[u8]| bound.get(..BOUND_BYTES_MAX).unwrap_or(bound).into();
    Span { low: short(&span.low), high: span.high.as_deref().map(short) }
}

impl Table {
    /// Deletes all entities of a partition, however many: one commit of constant size, an extension of the Table service.
    /// Whoever reads afterwards sees none of them; snapshots from before see all. Files that hold nothing else go
    /// without being read, what is left of others with the next merge. Always as durable as
    /// [`Durability::Sync`](crate::Durability::Sync).
    ///
    /// Each costs a mark until its space is back: deleting a few rows one by one is cheaper.
    ///
    /// # Errors
    /// `InvalidInput` for a key that none can have; `NotFound` once the table was dropped; as every write. No error if
    /// there are no entities.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// # use rowstone::{Db, Entity};
    /// let parts = Db::open_in_memory()?.create_table("parts")?;
    /// parts.insert(Entity::new("bolts", "m4x20"))?;
    /// parts.insert(Entity::new("nuts", "m4"))?;
    /// parts.delete_partition("bolts")?;
    /// assert!(parts.get("bolts", "m4x20")?.is_none());
    /// assert!(parts.get("nuts", "m4")?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_partition(&self, partition_key: &str) -> Result<()> {
        check_key(KeyPart::PartitionKey, partition_key)?;
        self.delete_range(&KeyRange::partition(partition_key))
    }

    /// Deletes all entities with keys in `range`, however many; else as [`delete_partition`](Self::delete_partition).
    ///
    /// # Errors
    /// `NotFound` once the table was dropped; as every write. No error if there are no entities.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// # use rowstone::{Db, Entity, KeyRange};
    /// # let readings = Db::open_in_memory()?.create_table("readings")?;
    /// # readings.insert(Entity::new("2025-12-31", "1"))?;
    /// readings.delete_range(&KeyRange::partitions(.."2026"))?;
    /// # assert!(readings.get("2025-12-31", "1")?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_range(&self, range: &KeyRange) -> Result<()> {
        self.delete_ranges(std::slice::from_ref(range))
    }

    /// Deletes all entities with keys in any of the `ranges`, in one commit with one sync: nobody sees some of them gone and
    /// others there. They may overlap. At most 100; else as [`delete_partition`](Self::delete_partition).
    ///
    /// # Errors
    /// `InvalidInput` for more ranges; `NotFound` once the table was dropped; as every write. No error if there are no entities.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// # use rowstone::{Db, Entity, KeyRange};
    /// # let readings = Db::open_in_memory()?.create_table("readings")?;
    /// # readings.insert(Entity::new("sensor-7", "1"))?;
    /// let retired = ["sensor-3", "sensor-7", "sensor-8"];
    /// readings.delete_ranges(&retired.map(KeyRange::partition))?;
    /// # assert!(readings.get("sensor-7", "1")?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_ranges(&self, ranges: &[KeyRange]) -> Result<()> {
        if ranges.len() > RANGES_MAX {
            let problem = format!("{} ranges, more than {RANGES_MAX}, in one commit", ranges.len());
            return Err(Error::refused_with(Code::InvalidInput, problem));
        }
        let spans = ranges.iter().map(|range| shortened(range.span(self.entry.gate.table)));
        let mut changes: Vec<Span> = spans.filter(|span| !span.is_empty()).collect();
        // A range tombstone is known by its span and its commit: two that are the same would leave together.
        changes.sort_by(|a, b| (&a.low, &a.high).cmp(&(&b.low, &b.high)));
        changes.dedup();
        let changes = changes.into_iter().map(TableChange::Fenced).collect();
        let batch = Batch::of_changes(&self.entry.gate, changes);
        if batch.changes.is_empty() {
            return self.entry.gate.check(self.engine.reader().published());
        }
        self.engine.commit(&batch, self.engine.env().options.durability)?;
        self.engine.maintenance().executor.signal(Lane::Flush);
        Ok(())
    }
}

//! Deletes whole spans of keys in one commit, which stores a range tombstone for each span instead
//! of a tombstone for each row.
//!
//! `lsm::range_tombstones` hides the rows, `lsm::background::reclaim` reclaims their space.

use crate::error::{Code, Error, Result};
use crate::executor::Lane;
use crate::format::span::Span;
use crate::lsm::{Batch, TableChange};
use crate::model::{KeyPart, check_key};
use crate::sort::sort_by;
use crate::table::Table;

use super::KeyRange;

/// The maximum number of ranges deleted by one commit. An entity group transaction has the same
/// limit for its operations.
const RANGES_MAX: usize = 100;
/// An upper bound of the length of a key: three bytes for each UTF-16 unit of both keys, the
/// table's id and the separator.
const BOUND_BYTES_MAX: usize = 8 << 10;

/// Returns a span that contains the same keys, but whose bounds are not longer than a key can be.
/// This saves memory, because the bounds are stored as long as the range tombstone exists.
fn shortened(span: Span) -> Span {
    // Every key is shorter than the truncated bound, so a key before the full bound is before the
    // truncated one, and a key after the full bound after it.
    let short = |bound: &[u8]| bound.get(..BOUND_BYTES_MAX).unwrap_or(bound).into();
    Span { low: short(&span.low), high: span.high.as_deref().map(short) }
}

impl Table {
    /// Deletes all entities of a partition in one commit of constant size, regardless of their
    /// number. This is an extension: Azure Table storage has no such operation. Later reads see
    /// none of the entities; older snapshots see all of them. Files in which all entities are
    /// deleted are removed without reading them; from other files the next merge removes the
    /// entities. The commit is always as durable as [`Durability::Sync`](crate::Durability::Sync).
    ///
    /// Each deletion stores a range tombstone until the space is reclaimed, so for a few rows
    /// single deletes are cheaper.
    ///
    /// # Errors
    /// `InvalidInput` for a key that no entity can have; `NotFound` if the table was dropped; the
    /// errors that any write may return. A partition without entities is no error.
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

    /// Deletes all entities with keys in `range`, regardless of their number. Otherwise like
    /// [`delete_partition`](Self::delete_partition).
    ///
    /// # Errors
    /// `NotFound` if the table was dropped; the errors that any write may return. A range without
    /// entities is no error.
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

    /// Deletes all entities with keys in any of the `ranges`, at most 100, which may overlap. The
    /// deletion is one commit with one sync: a reader sees either all or none of the entities.
    /// Otherwise like [`delete_partition`](Self::delete_partition).
    ///
    /// # Errors
    /// `InvalidInput` for more than 100 ranges; `NotFound` if the table was dropped; the errors
    /// that any write may return. Ranges without entities are no error.
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
        // A range tombstone is identified by its span and its commit, so two equal tombstones in
        // one commit would be removed together.
        sort_by(&mut changes, |a, b| (&a.low, &a.high).cmp(&(&b.low, &b.high)));
        changes.dedup();
        let changes = changes.into_iter().map(TableChange::Fenced).collect();
        let batch = Batch::of_changes(&self.entry.gate, changes);
        if batch.changes.is_empty() {
            return self.entry.check(self.engine.reader().published());
        }
        self.engine.commit(&batch, self.engine.env().options.durability)?;
        // The compaction lane waits for the time at which it may rewrite partly hidden files.
        for lane in [Lane::Flush, Lane::Compact] {
            self.engine.maintenance().executor.signal(lane);
        }
        Ok(())
    }
}

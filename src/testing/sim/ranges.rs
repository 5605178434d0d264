//! Functions for tests to inspect, split and merge ranges at a given key and moment, and to run
//! background jobs in two halves (write the files, install them). The engine otherwise splits and
//! merges ranges by itself.

use crate::db::Db;
use crate::error::Result;
use crate::format::key::{DisplayKey, before_partition, user_key};
use crate::format::names::{RangeId, TableId};
use crate::format::span::whole_table;
use crate::lsm::{Compaction, Flush};

/// A range of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeInfo {
    id: RangeId,
    /// The first key, as errors and dumps print it.
    pub start: String,
    /// The approximate size in bytes of the files in this range.
    pub bytes: u64,
    /// The number of young files in the range: flushed files that are not in the sorted run yet,
    /// and may overlap.
    pub young: usize,
    /// The number of files of the sorted run in the range.
    pub run: usize,
}

/// A flush or a compaction whose files are written but not named in the manifest yet.
pub struct Half(Begun);

enum Begun {
    Flush(Flush),
    Compaction(Compaction),
}

fn table_id(db: &Db, table: &str) -> Result<TableId> {
    Ok(db.table(table)?.entry.gate.table)
}

/// Returns the ranges of a table, in key order; empty if nothing of the table was flushed yet.
///
/// # Errors
/// `NotFound` if there is no such table.
pub fn ranges(db: &Db, table: &str) -> Result<Vec<RangeInfo>> {
    let span = whole_table(table_id(db, table)?);
    let pinned = db.engine().reader().pin();
    let info = |range: &std::sync::Arc<crate::ranges::Range<_>>| RangeInfo {
        id: range.id,
        start: DisplayKey(&range.span.low).to_string(),
        bytes: range.bytes(),
        young: range.young.len(),
        run: range.run.len(),
    };
    Ok(pinned.version.ranges_in(&span).iter().map(info).collect())
}

/// Splits a range of the table before the entity with these keys, or before the whole partition if
/// `rk` is `None`. Returns false if the engine declined the split.
///
/// # Errors
/// `NotFound` if there is no such table, and errors of the engine.
pub fn split_at(db: &Db, table: &str, pk: &str, rk: Option<&str>) -> Result<bool> {
    let id = table_id(db, table)?;
    let key = match rk {
        Some(rk) => user_key(id, pk, rk),
        None => before_partition(id, pk),
    };
    let range = db.engine().reader().pin().version.range_for(&key).map(|range| range.id);
    range.map_or(Ok(false), |range| db.engine().maintenance().split_range(range, &key))
}

/// Splits range `index` of the table into two parts of about equal size. Returns false if there is
/// no such range or no suitable key, or if the engine declined the split.
///
/// # Errors
/// As [`split_at`].
pub fn split_by_size(db: &Db, table: &str, index: usize) -> Result<bool> {
    let span = whole_table(table_id(db, table)?);
    let pinned = db.engine().reader().pin();
    let Some(range) = pinned.version.ranges_in(&span).get(index) else { return Ok(false) };
    match db.engine().maintenance().split_key_by_size(range)? {
        Some(key) => db.engine().maintenance().split_range(range.id, &key),
        None => Ok(false),
    }
}

/// Merges range `index` of the table with the next one. Returns false if either does not exist or
/// if the engine declined the merge.
///
/// # Errors
/// As [`split_at`].
pub fn merge_at(db: &Db, table: &str, index: usize) -> Result<bool> {
    let ranges = ranges(db, table)?;
    match (ranges.get(index), ranges.get(index + 1)) {
        (Some(left), Some(right)) => db.engine().maintenance().merge_ranges(left.id, right.id),
        _ => Ok(false),
    }
}

/// Freezes the memtable and writes the files of a flush; `None` if there is nothing to flush.
///
/// # Errors
/// Errors of a flush.
pub fn begin_flush(db: &Db) -> Result<Option<Half>> {
    db.engine().maintenance().freeze()?;
    Ok(db.engine().maintenance().begin_flush()?.map(|flush| Half(Begun::Flush(flush))))
}

/// Writes the files of the most urgent compaction; `None` if there is none.
///
/// # Errors
/// Errors of a compaction.
pub fn begin_compaction(db: &Db) -> Result<Option<Half>> {
    Ok(db.engine().maintenance().begin_compaction()?.map(|job| Half(Begun::Compaction(job))))
}

/// Installs the files of the job. Returns false if the engine declined the installation.
///
/// # Errors
/// Errors of the job.
pub fn finish(db: &Db, half: Half) -> Result<bool> {
    match half.0 {
        Begun::Flush(flush) => db.engine().maintenance().finish_flush(flush).map(|()| true),
        Begun::Compaction(job) => db.engine().maintenance().finish_compaction(&job),
    }
}

//! Dropped tables whose rows may still be in memtables or files.
//!
//! The commit that drops a table records it here. Background work removes its rows once no reader
//! can see them, and then removes the record.
//!
//! Locks: its own, one of the small ones.
//!
//! Not here: the removal of rows (`reclaim`), spans of a table (`range_tombstones`).

use std::collections::BTreeMap;

use crate::format::names::TableId;
use crate::manifest::Version;
use crate::model::Seq;
use crate::sync::Mutex;

use super::snapshot::Horizon;

/// See the module. Maps each table to the commit that dropped it.
pub(in crate::lsm) struct DroppedTables(pub(in crate::lsm) Mutex<BTreeMap<TableId, Seq>>);

impl DroppedTables {
    /// Records that commit `seq` dropped a table.
    pub(in crate::lsm) fn record(&self, table: TableId, seq: Seq) {
        self.0.lock().insert(table, seq);
    }

    pub(in crate::lsm) fn contains(&self, table: TableId) -> bool {
        self.0.lock().contains_key(&table)
    }

    pub(in crate::lsm) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// The dropped tables that no reader can see any more.
    pub(in crate::lsm) fn dead(&self, horizon: &Horizon) -> Vec<TableId> {
        let dropped = self.0.lock();
        dropped.iter().filter(|(_, seq)| horizon.all_see(**seq)).map(|(table, _)| *table).collect()
    }

    /// Drops up to `flushed` that only logs record so far.
    pub(in crate::lsm) fn to_record(&self, version: &Version, flushed: Seq) -> Vec<(TableId, Seq)> {
        let dropped = self.0.lock();
        let unrecorded = dropped
            .iter()
            .filter(|(table, seq)| **seq <= flushed && !version.dropped.contains_key(table));
        unrecorded.map(|(table, seq)| (*table, *seq)).collect()
    }

    /// Removes the drops that no memtable, file or manifest has any trace of.
    pub(in crate::lsm) fn forget(&self, is_gone: impl Fn(TableId, Seq) -> bool) {
        self.0.lock().retain(|table, seq| !is_gone(*table, *seq));
    }
}

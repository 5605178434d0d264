//! Lists the dropped tables whose rows may still be in memtables or files.
//!
//! The commit that drops a table records it here. Background work removes the table's rows when no
//! reader can see them any more, and then removes the record.
//!
//! Locks: the mutex of the list, held for a few instructions.
//!
//! Not here: removing rows (`reclaim`), dropped spans of a table (`range_tombstones`).

use crate::format::names::TableId;
use crate::manifest::Version;
use crate::model::Seq;
use crate::sort::SortedMap;
use crate::sync::Mutex;

use super::snapshot::Horizon;

/// Maps each dropped table to the commit that dropped it.
pub(in crate::lsm) struct DroppedTables(pub(in crate::lsm) Mutex<SortedMap<TableId, Seq>>);

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

    /// Returns the dropped tables that no reader can see any more.
    pub(in crate::lsm) fn dead(&self, horizon: &Horizon) -> Vec<TableId> {
        let dropped = self.0.lock();
        dropped.iter().filter(|(_, seq)| horizon.all_see(**seq)).map(|(table, _)| *table).collect()
    }

    /// Returns the tables dropped at `flushed` or earlier whose drop is not in the manifest yet.
    pub(in crate::lsm) fn to_record(&self, version: &Version, flushed: Seq) -> Vec<(TableId, Seq)> {
        let dropped = self.0.lock();
        let unrecorded = dropped
            .iter()
            .filter(|(table, seq)| **seq <= flushed && !version.dropped.contains_key(table));
        unrecorded.map(|(table, seq)| (*table, *seq)).collect()
    }

    /// Removes the records of the tables for which `is_gone` returns true. It must return true only
    /// if no memtable, file or manifest entry of the table is left.
    pub(in crate::lsm) fn forget(&self, is_gone: impl Fn(TableId, Seq) -> bool) {
        self.0.lock().retain(|table, seq| !is_gone(*table, *seq));
    }
}

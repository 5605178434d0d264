//! FIFO eviction: near the limit on disk use, chosen tables drop their oldest files to make room
//! for new data. [`Maintenance::evict`] lists the steps.
//!
//! Invariants
//! * A table that loses a file also loses all older rows, so no hidden row reappears.
//! * Other tables keep all their rows, so a file that they share is not counted as freed.
//! * Nothing is dropped while a snapshot exists, or if space is short only because readers hold
//!   files that were already dropped.
//!
//! `space_limit` decides how much to free; `range_tombstones` hides the dropped rows.

use std::sync::Arc;

use crate::error::Result;
use crate::executor::Lane;
use crate::format::names::{FileNumber, TableId};
use crate::format::span::whole_table;
use crate::model::Seq;
use crate::options::Durability;
use crate::sort::sort_by;
use crate::sync::Ordering;

#[cfg(feature = "sim")]
use super::fifo_tables::Evicted;
use super::fifo_tables::FifoEviction;
use super::maintenance::Maintenance;
use crate::lsm::read::view::View;
use crate::lsm::write::batch::{Batch, Gate, TableChange};
use crate::sort::{SortedMap, SortedSet};

/// Fractions of the limit on disk use. An eviction frees 1/`EVICT_PART` of the limit in addition to
/// the missing space, so that not every write must evict. In tables under FIFO eviction, a merge of
/// files of similar age writes files of at most 1/`WINDOW_PART` of the limit.
const EVICT_PART: u64 = 32;
const WINDOW_PART: u64 = 32;

/// A planned eviction. It hides all rows of `tables` with a Seq below `below`.
pub(crate) struct EvictionPlan {
    pub(in crate::lsm) tables: Vec<Arc<Gate>>,
    pub(crate) below: Seq,
    pub(in crate::lsm) files: u64,
    pub(in crate::lsm) bytes: u64,
}

/// A file with rows of tables under FIFO eviction.
struct EvictionCandidate {
    newest: Seq,
    bytes: u64,
    /// The number of references to the file from ranges of tables under FIFO eviction.
    references: usize,
    is_hidden: bool,
    tables: SortedSet<TableId>,
}

impl Maintenance {
    /// Marks the table of `gate` for FIFO eviction if `Options::on_full` names the table.
    pub(crate) fn record_table(&self, gate: &Arc<Gate>, name: &str) {
        let Some(eviction) = &self.eviction else { return };
        if self.env().options.on_full.drops_from(name) {
            gate.set_fifo();
            eviction.tables.rcu(|gates| {
                let others = gates.iter().filter(|other| other.dropped_at().is_none());
                others.chain([gate]).cloned().collect::<Vec<_>>()
            });
        }
    }

    /// Records that `record_table` was called for every table that existed at opening.
    pub(crate) fn mark_tables_known(&self) {
        if let Some(eviction) = &self.eviction
            && !eviction.is_known.swap(true, Ordering::AcqRel)
        {
            self.executor.signal(Lane::Compact);
        }
    }

    /// True once it is known which tables are under FIFO eviction.
    pub(in crate::lsm) fn are_fifo_tables_known(&self) -> bool {
        self.eviction.as_ref().is_none_or(|eviction| eviction.is_known.load(Ordering::Acquire))
    }

    /// True if the table is under FIFO eviction.
    pub(in crate::lsm) fn is_fifo(&self, table: TableId) -> bool {
        self.eviction.as_ref().is_some_and(|eviction| eviction.has(table))
    }

    /// Returns the maximum size in bytes of the files that merges of files of similar age write in
    /// `table`. Returns 0 if the table is not under FIFO eviction.
    pub(in crate::lsm) fn window_bytes(&self, table: TableId) -> u64 {
        let limit = self.writer.space_limit.as_ref().filter(|_| self.is_fifo(table));
        limit.map_or(0, |space_limit| space_limit.limit / WINDOW_PART)
    }

    /// Drops the oldest files of tables under FIFO eviction to free `missing` bytes and 1/32 of
    /// `limit` more. Returns false if nothing can be dropped. The caller has already reclaimed
    /// hidden entries.
    ///
    /// 1. Choose the oldest files of these tables. The age of a file is that of its newest entry.
    /// 2. One commit adds a range tombstone, as expiry does, over the whole of each table that has
    ///    one of these files. The range tombstone hides all rows up to the newest entry of the
    ///    files. The commit is durable before any file is removed, and uses only space reserved for
    ///    such commits.
    /// 3. One edit removes the files that are completely hidden (`reclaim`); then they are deleted.
    ///
    /// After a crash between steps 2 and 3 the range tombstone is in the log, and the next opening
    /// removes the files.
    ///
    /// # Errors
    /// As for every commit. Rows that are already hidden stay hidden.
    pub(in crate::lsm) fn evict(
        &self,
        eviction: &FifoEviction,
        missing: u64,
        limit: u64,
    ) -> Result<bool> {
        let oldest = self.plan_eviction(eviction, missing, limit);
        eviction.is_spent.store(oldest.is_none(), Ordering::Release);
        oldest.map_or(Ok(false), |oldest| self.drop_oldest(eviction, &oldest).map(|()| true))
    }

    /// Chooses the oldest files of the tables under FIFO eviction, enough to free `missing` bytes
    /// and some more. Returns `None` if all files of these tables would free less than `missing`,
    /// or if dropping files would free no space now.
    fn plan_eviction(
        &self,
        eviction: &FifoEviction,
        missing: u64,
        limit: u64,
    ) -> Option<EvictionPlan> {
        // A snapshot keeps the files that it reads, so an eviction would hide rows without freeing
        // space.
        if missing == 0 || self.reader().horizon().has_snapshots() {
            return None;
        }
        let last = self.reader().published();
        let view = self.reader().view.load_full();
        let tables = eviction.tables.load_full();
        let files = files_of(&view, &tables);
        let mut ages: Vec<(Seq, u64)> = Vec::with_capacity(files.len());
        for (number, old) in files.iter() {
            let is_alone = view.version.references_to(*number) == old.references;
            // Keep a file with an entry of the last commit, because an eviction hides only older
            // entries.
            if !old.is_hidden && old.newest < last {
                ages.push((old.newest, if is_alone { old.bytes } else { 0 }));
            }
        }
        sort_by(&mut ages, Ord::cmp);
        let all: u64 = ages.iter().map(|(_, bytes)| bytes).sum();
        if all < missing {
            return None;
        }
        let wanted = all.min(missing.saturating_add(limit / EVICT_PART));
        let mut bytes = 0;
        let at = ages.iter().position(|(_, more)| {
            bytes += more;
            bytes >= wanted
        })?;
        debug_assert!(bytes >= missing, "an eviction frees what is missing");
        let newest = ages[at].0;
        let below = Seq(newest.0.saturating_add(1));
        debug_assert!(below <= last, "what the last commit wrote stays");
        let is_old = |old: &&EvictionCandidate| !old.is_hidden && old.newest < below;
        let mut touched: SortedSet<TableId> = SortedSet::default();
        files.values().filter(is_old).for_each(|old| touched.extend(old.tables.iter().copied()));
        let tables = tables.iter().filter(|gate| touched.contains(&gate.table)).cloned().collect();
        Some(EvictionPlan { tables, below, files: at as u64 + 1, bytes })
    }

    /// Commits the eviction, which hides the evicted rows.
    ///
    /// # Errors
    /// As for every commit. Rows that are already hidden stay hidden.
    fn drop_oldest(&self, eviction: &FifoEviction, oldest: &EvictionPlan) -> Result<()> {
        let changes = oldest
            .tables
            .iter()
            .map(|gate| TableChange::Expired(whole_table(gate.table), oldest.below));
        // One commit covers all tables. A range tombstone over a table that is being dropped does
        // no harm.
        let batch = Batch::of_changes(&Arc::new(Gate::new(TableId::CATALOG)), changes.collect());
        self.record_evicted(eviction, oldest, None);
        let seq = self.commit(&batch, Durability::Sync)?;
        self.record_evicted(eviction, oldest, Some(seq));
        while self.reclaim()? {}
        self.remove_unheld();
        eviction.files.fetch_add(oldest.files, Ordering::Relaxed);
        eviction.bytes.fetch_add(oldest.bytes, Ordering::Relaxed);
        self.emit_dropped(oldest);
        Ok(())
    }

    #[cfg(not(feature = "sim"))]
    fn record_evicted(&self, _ring: &FifoEviction, _oldest: &EvictionPlan, _seq: Option<Seq>) {}

    /// Records for simulations that an eviction begins (`seq` is `None`), or that it was committed.
    #[cfg(feature = "sim")]
    fn record_evicted(&self, eviction: &FifoEviction, oldest: &EvictionPlan, seq: Option<Seq>) {
        let mut evicted = eviction.evicted.lock();
        match (seq, evicted.last_mut()) {
            (Some(seq), Some(last)) => last.seq = Some(seq),
            _ => {
                let tables = oldest.tables.iter().map(|gate| gate.table).collect();
                evicted.push(Evicted { tables, below: oldest.below, seq });
            }
        }
    }

    /// Returns the evictions recorded since the last call.
    #[cfg(feature = "sim")]
    pub(crate) fn take_evicted(&self) -> Vec<Evicted> {
        let eviction = self.eviction.as_ref();
        eviction.map_or_else(Vec::new, |eviction| std::mem::take(&mut *eviction.evicted.lock()))
    }
}

/// Returns the files that hold rows of `tables`.
fn files_of(view: &View, tables: &[Arc<Gate>]) -> SortedMap<FileNumber, EvictionCandidate> {
    let mut files = SortedMap::default();
    for gate in tables.iter().filter(|gate| gate.dropped_at().is_none()) {
        let ranges = view.version.ranges_in(&whole_table(gate.table)).iter();
        for (_, reference) in ranges.flat_map(|range| range.references()) {
            let meta = &reference.file.meta;
            let is_hidden =
                view.range_tombstones.covers(&reference.clip, meta.seq_max, Seq(u64::MAX));
            let old = files.get_or_insert_with(meta.number, || EvictionCandidate {
                newest: meta.seq_max,
                bytes: meta.bytes,
                references: 0,
                is_hidden: true,
                tables: SortedSet::default(),
            });
            old.references += 1;
            old.is_hidden &= is_hidden;
            old.tables.insert(gate.table);
        }
    }
    files
}

//! Reclaims the space of dropped tables, and of spans hidden by range tombstones.
//! [`Maintenance::reclaim`] lists the steps.
//!
//! Invariants
//! * Nothing is removed that a snapshot can read.
//! * Only range tombstones of the current view remove references. Removing a range tombstone, and
//!   importing older rows, both happen under the install lock.
//! * A range tombstone is removed only after the entries that it hides, or while another one
//!   remains that hides the same entries. So dropped rows never reappear.

#[cfg(feature = "cli")]
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[cfg(feature = "cli")]
use crate::error::Error;
use crate::error::Result;
use crate::executor::Lane;
use crate::format::edit::{RangeTombstone, VersionEdit};
use crate::format::names::{FileNumber, RangeId, TableId};
use crate::format::span::{Span, whole_table};
#[cfg(feature = "cli")]
use crate::format::zones::NO_VALUES;
#[cfg(feature = "cli")]
use crate::manifest::FileRange;
use crate::manifest::{FileReference, RangeTombstoneBag, Version};
#[cfg(feature = "cli")]
use crate::model::EdmType;
use crate::model::Seq;
use crate::mutants::mutant;
use crate::sort::SortedSet;
#[cfg(feature = "cli")]
use crate::sst::SstPart;

use super::compaction::facts::FileFacts;
#[cfg(feature = "cli")]
use super::compaction::job::OnRanges;
use super::compaction::order::Ranking;
use super::maintenance::Maintenance;
use super::state::LastSearch;

/// The result of [`Maintenance::remove_now`], in bytes.
#[cfg(feature = "cli")]
pub(crate) struct Removed {
    /// By how much the table files shrank.
    pub(crate) freed: u64,
    /// Size of the removed rows that stay in table files because a snapshot can read them.
    pub(crate) held_by_snapshots: u64,
    /// Size of the table files that are no longer part of the database, but that open readers, such
    /// as iterators, still use.
    pub(crate) held_by_readers: u64,
    /// The error that ended the merges early, if any.
    pub(crate) error: Option<Error>,
}

/// The maximum total bytes of the range tombstones that one edit removes. This limit keeps the edit
/// below the maximum size of a record.
const RANGE_TOMBSTONE_BYTES_MAX: usize = 4 << 20;

impl Maintenance {
    /// Reclaims the space of dropped tables and deleted spans as far as possible. Returns false if
    /// there was nothing to reclaim.
    ///
    /// 1. Remove the ranges of tables that no reader can read any more, with their references.
    /// 2. Remove references whose entries are all hidden by a range tombstone that all readers see.
    /// 3. Remove range tombstones that a newer one covers, or that hide nothing in any log,
    ///    memtable or file.
    ///
    /// All of this is one edit. It needs no rows of files. Before the edit, the files of which a
    /// deletion hides a part are found: afterwards it is unknown how much the deletion has freed.
    pub(in crate::lsm) fn reclaim(&self) -> Result<bool> {
        let horizon = self.reader().horizon();
        let dead = self.reader().dropped.dead(&horizon);
        let before = Arc::clone(&self.reader().view.load().range_tombstones);
        if dead.is_empty() && before.is_empty() {
            return Ok(false);
        }
        self.examine_deletions(before.newest);
        let mut manifest = self.install.lock();
        // Use the current view. A view loaded earlier may have a range tombstone that was removed
        // since, and older rows may have been imported under it.
        let now = || Arc::clone(&self.reader().view.load().range_tombstones);
        let range_tombstones = if mutant!("stale-tombstones") { before } else { now() };
        let search = LastSearch {
            manifest: manifest.position(),
            newest_range_tombstone: range_tombstones.newest,
            range_tombstones: range_tombstones.len(),
            oldest: horizon.oldest(),
            dead: dead.len(),
        };
        if *self.state.last_search.lock() == search {
            return Ok(false);
        }
        let version = Arc::clone(manifest.version());
        let mut edit = VersionEdit::default();
        remove_tables(&version, &dead, &mut edit);
        let seen: Vec<&RangeTombstone> =
            range_tombstones.iter().filter(|f| horizon.all_see(f.from)).collect();
        remove_under_range_tombstones(&version, &seen, &mut edit);
        let is_covered = range_tombstones.covered(horizon.oldest());
        let mut spent = spent_range_tombstones(&version, &seen, (&edit, is_covered));
        keep_short(&mut spent);
        debug_assert!(spent.iter().all(|spent| horizon.all_see(spent.from)), "all readers see it");
        edit.remove_range_tombstones = recorded(&version, &spent);
        if edit == VersionEdit::default() {
            if !spent.is_empty() {
                self.reader().change_view(|view| {
                    view.with_range_tombstones(Arc::new(view.range_tombstones.without(&spent)))
                });
                return Ok(true);
            }
            drop(manifest);
            self.forget_drops();
            *self.state.last_search.lock() = search;
            return Ok(false);
        }
        let gone = version.remove_unreferenced(&mut edit);
        let version = self.append_edit(&mut manifest, &edit)?;
        self.reader().change_view(|view| {
            let range_tombstones = view.range_tombstones.without(&spent);
            view.with_version(&version, None).with_range_tombstones(Arc::new(range_tombstones))
        });
        self.state.retire(gone);
        Ok(true)
    }

    /// Finds the files of which new deletions hide a part, and which are to be rewritten. `newest`
    /// is the Seq of the newest range tombstone.
    fn examine_deletions(&self, newest: Seq) {
        let examined = self.state.paid.lock().examined;
        if newest <= examined || self.env().options.merge_for_readers.is_none() {
            return;
        }
        let facts = FileFacts::new(self);
        let deletions = facts.deletions(examined);
        let files: Vec<FileNumber> = deletions.flat_map(|it| facts.paid_by(it)).collect();
        let mut paid = self.state.paid.lock();
        paid.examined = paid.examined.max(facts.seen_below());
        paid.files.extend(files.iter().copied());
        drop(paid);
        if !files.is_empty() {
            // Ranges that needed no job may now need one.
            *self.state.ranking.lock() = Ranking::default();
            self.executor.signal(Lane::Compact);
        }
    }

    /// Returns roughly how many entries the files have in `span`, and how many bytes these take.
    #[cfg(feature = "cli")]
    pub(crate) fn size_in_files(&self, span: &Span) -> Result<SstPart> {
        let version = Arc::clone(&self.reader().view.load().version);
        let mut sum = SstPart::default();
        for range in version.ranges_in(span) {
            for (_, reference) in range.references() {
                let Some(clip) = reference.clip.intersect(span) else { continue };
                let part = self.env().open_sst(&reference.file)?.part(&clip)?;
                sum.entries += part.entries;
                sum.tombstones += part.tombstones;
                sum.bytes += part.bytes;
            }
        }
        Ok(sum)
    }

    /// Returns the least and the greatest order key of each property in the files of `span`, by
    /// name and type. They include those of versions that were overwritten or deleted, and of
    /// entries that the same files have outside of `span`; they lack those of the memtable. Empty
    /// if a file does not know the properties of all its entries.
    #[cfg(feature = "cli")]
    pub(crate) fn zone_bounds(
        &self,
        span: &Span,
    ) -> Result<BTreeMap<(String, EdmType), (u64, u64)>> {
        let version = Arc::clone(&self.reader().view.load().version);
        let mut bounds = BTreeMap::new();
        for (_, reference) in version.ranges_in(span).iter().flat_map(|range| range.references()) {
            let is_complete = self.env().open_sst(&reference.file)?.zone_summary(|zones| {
                for column in zones.columns() {
                    let name = String::from_utf8_lossy(column.name).into_owned();
                    let (min, max) = bounds.entry((name, column.edm)).or_insert(NO_VALUES);
                    if let Some(values) = column.values(0) {
                        (*min, *max) = ((*min).min(values.min), (*max).max(values.max));
                    }
                }
                zones.is_complete
            })?;
            if is_complete != Some(true) {
                return Ok(BTreeMap::new());
            }
        }
        bounds.retain(|_, (min, max)| min <= max);
        Ok(bounds)
    }

    /// Calls `remove`, which deletes the rows of `span`, and then frees the part of their space
    /// that no reader needs. If the merges fail, or an error of `progress` ends them, the rows are
    /// deleted nevertheless.
    ///
    /// 1. Remove the references that are completely in the span, and the files without references.
    /// 2. Merge the ranges that overlap the span, and the ranges that share a file with one of
    ///    these.
    #[cfg(feature = "cli")]
    pub(crate) fn remove_now(
        &self,
        span: &Span,
        remove: impl FnOnce() -> Result<()>,
        progress: OnRanges<'_>,
    ) -> Result<Removed> {
        let bytes = |version: &Version| version.files().map(|file| file.meta.bytes).sum::<u64>();
        let version = Arc::clone(&self.reader().view.load().version);
        let before = bytes(&version);
        let in_span = version.ranges_in(span).iter().flat_map(|range| range.references());
        let files: BTreeSet<FileNumber> = in_span.map(|(_, r)| r.file.meta.number).collect();
        drop(version);
        remove()?;
        while self.reclaim()? {}
        let version = Arc::clone(&self.reader().view.load().version);
        let shares = |range: &FileRange| {
            range.references().any(|(_, reference)| files.contains(&reference.file.meta.number))
        };
        let affected = version.ranges.iter().filter(|range| {
            !self.is_fifo(range.table) && (range.span.overlaps(span) || shares(range))
        });
        let ids: Vec<RangeId> = affected.map(|range| range.id).collect();
        drop(version);
        let mut merge = || {
            self.compact_ranges(&ids, progress)?;
            while self.reclaim()? {}
            Ok(())
        };
        let merged: Result<()> = merge();
        self.remove_unheld();
        let after = bytes(&self.reader().view.load().version);
        let held_by_snapshots = match self.reader().horizon().has_snapshots() {
            true => self.size_in_files(span)?.bytes,
            false => 0,
        };
        Ok(Removed {
            freed: before.saturating_sub(after),
            held_by_snapshots,
            held_by_readers: self.state.held_bytes(),
            error: merged.err(),
        })
    }

    /// Returns the range tombstones up to `flushed` that the manifest does not contain yet.
    pub(in crate::lsm) fn range_tombstones_to_record(
        &self,
        version: &Version,
        flushed: Seq,
    ) -> Vec<RangeTombstone> {
        let view = self.reader().view.load();
        // The range tombstones of a commit are recorded together.
        let mut known: SortedSet<Seq> = SortedSet::default();
        known.extend(version.range_tombstones.iter().map(|found| found.from));
        let is_new =
            |found: &&RangeTombstone| found.from <= flushed && !known.contains(&found.from);
        view.range_tombstones.iter().filter(is_new).cloned().collect()
    }

    fn forget_drops(&self) {
        let view = self.reader().view.load();
        self.reader().dropped.forget(|table: TableId, seq: Seq| {
            view.version.flushed_seq >= seq
                && !view.version.dropped.contains_key(&table)
                && view.version.ranges_in(&whole_table(table)).is_empty()
        });
    }
}

/// Adds the removal of the ranges of `dead` tables to `edit`.
fn remove_tables(version: &Version, dead: &[TableId], edit: &mut VersionEdit) {
    for table in dead {
        let whole = whole_table(*table);
        for range in version.ranges_in(&whole) {
            // If a job has claimed this range, the job's result will not be installed.
            edit.remove_ranges.push(range.id);
            let references = range.references().map(|(_, r)| (range.id, r.file.meta.number));
            edit.remove_references.extend(references);
        }
        if version.dropped.contains_key(table) && version.ranges_in(&whole).is_empty() {
            edit.forget_tables.push(*table);
        }
    }
}

/// Adds to `edit` the removal of references that a range tombstone hides completely.
fn remove_under_range_tombstones(
    version: &Version,
    range_tombstones: &[&RangeTombstone],
    edit: &mut VersionEdit,
) {
    let mut removed: SortedSet<(RangeId, FileNumber)> = SortedSet::default();
    removed.extend(edit.remove_references.iter().copied());
    for range_tombstone in range_tombstones {
        for range in version.ranges_in(&range_tombstone.span) {
            for (_, reference) in range.references() {
                let meta = &reference.file.meta;
                let hidden = meta.seq_max < range_tombstone.below;
                let is_gone = hidden && range_tombstone.span.covers(&reference.clip);
                if is_gone && removed.insert((range.id, meta.number)) {
                    edit.remove_references.push((range.id, meta.number));
                }
            }
        }
    }
}

/// Shortens `range_tombstones`, the list of range tombstones to remove, to the length that one edit
/// may hold. The next edit removes the others. The list keeps the oldest: an old range tombstone
/// may be removable only because a newer one covers it, so the newer one must be removed later.
fn keep_short(range_tombstones: &mut Vec<&RangeTombstone>) {
    let mut bytes = 0;
    let fits = |range_tombstone: &&&RangeTombstone| {
        let Span { low, high } = &range_tombstone.span;
        bytes += 32 + low.len() + high.as_ref().map_or(0, |high| high.len());
        bytes <= RANGE_TOMBSTONE_BYTES_MAX
    };
    range_tombstones.truncate(range_tombstones.iter().take_while(fits).count());
}

/// Returns the items of `range_tombstones` that the manifest contains. If several are equal, at
/// most as many of them are returned as the manifest contains.
fn recorded(version: &Version, range_tombstones: &[&RangeTombstone]) -> Vec<RangeTombstone> {
    let mut left = RangeTombstoneBag::new(&version.range_tombstones);
    let recorded = range_tombstones.iter().filter(|found| left.take(found));
    recorded.map(|found| (*found).clone()).collect()
}

/// Returns the range tombstones that hide no entry, or hide only entries that another one hides,
/// too. All readers must see all of `range_tombstones`.
fn spent_range_tombstones<'f>(
    version: &Version,
    range_tombstones: &[&'f RangeTombstone],
    (edit, is_covered): (&VersionEdit, impl Fn(&RangeTombstone) -> bool),
) -> Vec<&'f RangeTombstone> {
    let mut removed: SortedSet<(RangeId, FileNumber)> = SortedSet::default();
    removed.extend(edit.remove_references.iter().copied());
    let hides_nothing = |range_tombstone: &RangeTombstone| {
        let is_flushed = version.flushed_seq >= range_tombstone.from;
        let may_hide = |reference: &FileReference| {
            let meta = &reference.file.meta;
            meta.seq_min < range_tombstone.below
                && meta.tombstones_applied < range_tombstone.from
                && reference.clip.overlaps(&range_tombstone.span)
        };
        is_flushed
            && version.ranges_in(&range_tombstone.span).iter().all(|range| {
                let stays = |number| !removed.contains(&(range.id, number));
                range.references().all(|(_, r)| !(stays(r.file.meta.number) && may_hide(r)))
            })
    };
    let is_spent = |found: &&&RangeTombstone| is_covered(found) || hides_nothing(found);
    range_tombstones.iter().filter(is_spent).copied().collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::format::key::user_key;
    use crate::fs::MemFs;
    use crate::lsm::write::batch::{Batch, Gate, TableChange};
    use crate::options::{Background, Durability, Options};

    #[test]
    fn many_range_tombstones_are_removed_by_several_edits() {
        let options = Options::default().fs(Arc::new(MemFs::new()));
        let engine =
            crate::lsm::open("db".as_ref(), options.background(Background::Manual)).unwrap();
        let gate = Arc::new(Gate::new(TableId(7)));
        for i in 0..2_500 {
            let key = |end| user_key(TableId(7), &format!("{i:04}{}", "x".repeat(4_000)), end);
            let change = TableChange::Fenced(Span::new(&key("a"), Some(&key("b"))));
            engine.commit(&Batch::of_change(&gate, change), Durability::Buffered).unwrap();
        }
        engine.maintenance().flush_all().unwrap();
        assert_eq!(engine.reader().view.load().range_tombstones.len(), 2_500);
        while engine.maintenance().reclaim().unwrap() {}
        assert!(engine.reader().view.load().range_tombstones.is_empty());
    }

    #[test]
    fn equal_range_tombstones_of_one_commit_stay_while_files_are_below_them() {
        use crate::lsm::write::batch::{Action, Condition, Op, PackedRow};
        use smallvec::smallvec;
        let options = Options::default().fs(Arc::new(MemFs::new()));
        let engine =
            crate::lsm::open("db".as_ref(), options.background(Background::Manual)).unwrap();
        let gate = Arc::new(Gate::new(TableId(7)));
        for name in ["a", "b"] {
            let key = user_key(TableId(7), "p", name);
            let row = crate::model::Entity::new("p", name).to_row(&engine.env().shapes).unwrap();
            let batch = Batch {
                ops: smallvec![Op {
                    hash: engine.env().hash(&key),
                    key: key.into(),
                    condition: Condition::Any,
                    action: Action::Put(PackedRow::of(row, &engine.env().shapes)),
                }],
                changes: Vec::new(),
                ..Batch::of_change(&gate, TableChange::Created(TableId(7)))
            };
            engine.commit(&batch, Durability::Sync).unwrap();
        }
        engine.maintenance().flush_all().unwrap();
        let (a, b) = (user_key(TableId(7), "p", "a"), user_key(TableId(7), "p", "b"));
        let change = TableChange::Fenced(Span::new(&a, Some(&b)));
        engine
            .commit(&Batch::of_changes(&gate, vec![change.clone(), change]), Durability::Sync)
            .unwrap();
        let there = || engine.reader().get(&a, None, |_, _| Ok(())).unwrap().is_some();
        assert!(!there());
        engine.maintenance().flush_all().unwrap();
        while engine.maintenance().reclaim().unwrap() {}
        assert!(!there(), "the row is back");
    }
}

//! Taking back the space of what was dropped: whole tables, and spans below fences.
//!
//! 1. Ranges of tables that nobody can read any more leave, with their references.
//! 2. References to files that lie wholly below a fence that everybody sees leave.
//! 3. Fences leave that a newer one covers, or under which nothing older is left in any log, memtable or file.
//!
//! All of it is one edit, and reads no file.
//!
//! Invariants
//! * nothing goes while a snapshot can read it;
//! * only fences that hide something now take files out: whoever leaves and whoever comes in holds the install lock;
//! * a fence leaves only after what it hides, or while an equal or wider one stays: what was dropped never comes back.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::error::Result;
use crate::format::edit::{Fence, VersionEdit};
use crate::format::names::{FileNumber, RangeId, TableId};
use crate::format::record::Position;
use crate::format::span::Span;
use crate::manifest::{FileEntry, Version};
use crate::model::Seq;
use crate::mutants::mutant;
use crate::ranges::Reference;

use super::scheduler::whole_table;
use crate::lsm::Engine;

/// Fences of this many bytes leave with one edit, which must stay below a record's limit.
const FENCE_BYTES_MAX: usize = 4 << 20;

/// What the last look for space found nothing in: it finds nothing until one of these changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::lsm) struct Looked {
    manifest: Position,
    newest_fence: Seq,
    fences: usize,
    oldest: Seq,
    dead: usize,
}

impl Engine {
    /// Carries out what it can of drops; false if there was nothing to do.
    pub(in crate::lsm) fn reclaim(&self) -> Result<bool> {
        let horizon = self.horizon();
        let dead = self.upkeep.dead_tables(&horizon);
        let before = Arc::clone(&self.view.load().fences);
        if dead.is_empty() && before.is_empty() {
            return Ok(false);
        }
        let mut manifest = self.install.lock();
        // Those of this version: under one that has left meanwhile rows may have come in that are older.
        let now = || Arc::clone(&self.view.load().fences);
        let fences = if mutant!("stale-tombstones") { before } else { now() };
        let looked = Looked {
            manifest: manifest.position(),
            newest_fence: fences.newest(),
            fences: fences.iter().len(),
            oldest: horizon.oldest(),
            dead: dead.len(),
        };
        if self.upkeep.looked() == looked {
            return Ok(false);
        }
        let version = Arc::clone(manifest.version());
        let mut edit = VersionEdit::default();
        remove_tables(&version, &dead, &mut edit);
        let seen: Vec<&Fence> = fences.iter().filter(|f| horizon.all_see(f.from)).collect();
        remove_fenced(&version, &seen, &mut edit);
        let mut spent = spent_fences(&version, &seen, &edit);
        keep_short(&mut spent);
        // By place and not by value: of equal ones, which a log may hold, all but the last may leave.
        let is_spent = |fence: &Fence| spent.iter().any(|other| std::ptr::eq(*other, fence));
        edit.remove_fences = recorded(&version, &spent);
        if edit == VersionEdit::default() {
            if !spent.is_empty() {
                self.change_view(|view| view.with_fences(Arc::new(view.fences.without(is_spent))));
                return Ok(true);
            }
            drop(manifest);
            self.forget_drops();
            self.upkeep.note_looked(looked);
            return Ok(false);
        }
        let gone = version.unreferenced_after(&edit);
        edit.remove_files = gone.iter().map(|file| file.meta.number).collect();
        let version = self.append_edit(&mut manifest, &edit)?;
        self.change_view(|view| {
            let fences = view.fences.without(is_spent);
            view.with_version(&version, None).with_fences(Arc::new(fences))
        });
        self.upkeep.retire(gone);
        Ok(true)
    }

    /// Fences up to `flushed` that only logs record so far.
    pub(in crate::lsm) fn fences_to_record(&self, version: &Version, flushed: Seq) -> Vec<Fence> {
        let view = self.view.load();
        let fences = view.fences.iter().filter(|fence| fence.from <= flushed);
        let fences = fences.filter(|fence| !version.fences().contains(fence));
        fences.cloned().collect()
    }

    /// True if something was dropped whose space is not reclaimed yet.
    pub(in crate::lsm) fn has_drops(&self) -> bool {
        self.upkeep.has_dropped() || !self.view.load().fences.is_empty()
    }

    fn forget_drops(&self) {
        let view = self.view.load();
        self.upkeep.forget_dropped(|table: TableId, seq: Seq| {
            view.version.flushed_seq() >= seq
                && !view.version.dropped().contains_key(&table)
                && view.version.ranges_in(&whole_table(table)).is_empty()
        });
    }
}

/// Takes the ranges of `dead` tables out.
fn remove_tables(version: &Version, dead: &[TableId], edit: &mut VersionEdit) {
    for table in dead {
        let whole = whole_table(*table);
        for range in version.ranges_in(&whole) {
            // A job that is changing the range finds it gone and is declined.
            edit.remove_ranges.push(range.id);
            let references = range.references().map(|(_, r)| (range.id, r.file.meta.number));
            edit.remove_references.extend(references);
        }
        if version.dropped().contains_key(table) && version.ranges_in(&whole).is_empty() {
            edit.forget_tables.push(*table);
        }
    }
}

/// Takes the references out of which a fence hides everything.
fn remove_fenced(version: &Version, fences: &[&Fence], edit: &mut VersionEdit) {
    let mut removed: BTreeSet<(RangeId, FileNumber)> =
        edit.remove_references.iter().copied().collect();
    for fence in fences {
        for range in version.ranges_in(&fence.span) {
            for (_, reference) in range.references() {
                let meta = &reference.file.meta;
                let hidden = meta.seq_max < fence.below;
                let is_gone = hidden && fence.span.covers(&reference.clip);
                if is_gone && removed.insert((range.id, meta.number)) {
                    edit.remove_references.push((range.id, meta.number));
                }
            }
        }
    }
}

/// Leaves what one edit may hold of `range_tombstones`; the next takes more. The oldest go first: newer ones may be why.
fn keep_short(fences: &mut Vec<&Fence>) {
    let mut bytes = 0;
    let fits = |fence: &&&Fence| {
        let Span { low, high } = &fence.span;
        bytes += 32 + low.len() + high.as_ref().map_or(0, |high| high.len());
        bytes <= FENCE_BYTES_MAX
    };
    let count = fences.iter().take_while(fits).count();
    fences.truncate(count);
}

/// Those of `range_tombstones` that the manifest has; of equal ones no more than it has.
fn recorded(version: &Version, fences: &[&Fence]) -> Vec<Fence> {
    let mut left: Vec<&Fence> = version.fences().iter().collect();
    let is_recorded = |fence: &&&Fence| {
        let at = left.iter().position(|other| other == *fence);
        at.map(|at| left.swap_remove(at)).is_some()
    };
    fences.iter().filter(is_recorded).map(|fence| (*fence).clone()).collect()
}

/// Those of `range_tombstones`, which everybody sees, that hide nothing, or nothing that no other hides.
fn spent_fences<'f>(version: &Version, fences: &[&'f Fence], edit: &VersionEdit) -> Vec<&'f Fence> {
    let removed: BTreeSet<_> = edit.remove_references.iter().copied().collect();
    let is_covered = |at: usize, fence: &Fence| {
        // Of equal ones the last stays.
        let covers = |(i, other): (usize, &&Fence)| {
            i > at && other.below >= fence.below && other.span.covers(&fence.span)
        };
        fences.iter().enumerate().any(covers)
    };
    let hides_nothing = |fence: &Fence| {
        let is_flushed = version.flushed_seq() >= fence.from;
        let may_hide = |reference: &Reference<Arc<FileEntry>>| {
            let meta = &reference.file.meta;
            meta.seq_min < fence.below
                && meta.fenced < fence.from
                && reference.clip.overlaps(&fence.span)
        };
        is_flushed
            && version.ranges_in(&fence.span).iter().all(|range| {
                let stays = |number| !removed.contains(&(range.id, number));
                range.references().all(|(_, r)| !(stays(r.file.meta.number) && may_hide(r)))
            })
    };
    let spent = fences
        .iter()
        .enumerate()
        .filter(|(at, fence)| is_covered(*at, fence) || hides_nothing(fence));
    spent.map(|(_, fence)| *fence).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::format::key::user_key;
    use crate::fs::MemFs;
    use crate::lsm::write::batch::{Batch, Gate, TableChange};
    use crate::options::{Background, Durability, Options};

    #[test]
    fn fences_that_take_more_than_a_record_leave_with_several_edits() {
        let options = Options::default().fs(Arc::new(MemFs::new()));
        let engine = Engine::open("db".as_ref(), options.background(Background::Manual)).unwrap();
        let gate = Arc::new(Gate::new(TableId(7)));
        for i in 0..2_500 {
            let key = |end| user_key(TableId(7), &format!("{i:04}{}", "x".repeat(4_000)), end);
            let change = TableChange::Fenced(Span::new(&key("a"), Some(&key("b"))));
            engine.commit(&Batch::of_change(&gate, change), Durability::Buffered).unwrap();
        }
        engine.flush_all().unwrap();
        assert_eq!(engine.view.load().fences.iter().len(), 2_500);
        while engine.reclaim().unwrap() {}
        assert!(engine.view.load().fences.is_empty());
    }

    #[test]
    fn of_equal_fences_of_one_commit_one_stays_until_nothing_is_below_it() {
        use crate::lsm::write::batch::{Action, Condition, Op, PackedRow};
        use smallvec::smallvec;
        let options = Options::default().fs(Arc::new(MemFs::new()));
        let engine = Engine::open("db".as_ref(), options.background(Background::Manual)).unwrap();
        let gate = Arc::new(Gate::new(TableId(7)));
        for name in ["a", "b"] {
            let key = user_key(TableId(7), "p", name);
            let row = crate::model::Entity::new("p", name).to_row(&engine.env.shapes).unwrap();
            let batch = Batch {
                ops: smallvec![Op {
                    hash: engine.env.hash(&key),
                    key: key.into(),
                    condition: Condition::Any,
                    action: Action::Put(PackedRow::of(row, &engine.env.shapes)),
                }],
                changes: Vec::new(),
                ..Batch::of_change(&gate, TableChange::Created(TableId(7)))
            };
            engine.commit(&batch, Durability::Sync).unwrap();
        }
        engine.flush_all().unwrap();
        let (a, b) = (user_key(TableId(7), "p", "a"), user_key(TableId(7), "p", "b"));
        let change = TableChange::Fenced(Span::new(&a, Some(&b)));
        engine
            .commit(&Batch::of_changes(&gate, vec![change.clone(), change]), Durability::Sync)
            .unwrap();
        let there = || engine.get(&a, None, |_, _| Ok(())).unwrap().is_some();
        assert!(!there());
        engine.flush_all().unwrap();
        while engine.reclaim().unwrap() {}
        assert!(!there(), "the row is back");
    }
}

//! Which job goes first, and which ranges need one: pure, and remembered for ranges that did not change.
//!
//! 1. Joins: they cost nothing.
//! 2. Ranges with more sources than the limit, the deepest and hottest first: reads suffer.
//! 3. What is due by time: range tombstones, then old tombstones. It must not wait for ever behind a steady load.
//! 4. Everything else by sources removed per byte read, weighed by the reads of the range.
//! 5. Compression of what rests.
//!
//! Invariants
//! * what is remembered of a range holds for exactly that state of it, and until a limit passes a Seq of its files, or what
//!   waits because few read it, or readers have lost little, waits no longer;
//! * no file is held: a range is told from its successors by its address, which a weak pointer keeps from being reused.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::format::names::RangeId;
use crate::manifest::FileRange;
use crate::model::Seq;

use super::plan::{Job, Limits, Reason};
use crate::lsm::read::load_sampling::Readers;

/// How much a job matters: the greatest goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Urgency {
    class: u8,
    score: u64,
}

/// How urgent a job is in a range with `sources` files over one another and `reads` a second.
pub(crate) fn urgency(job: &Job, sources: usize, reads: u64) -> Urgency {
    let reads = reads.saturating_add(1);
    let removed = job.young.len().saturating_sub(usize::from(job.run.is_empty())).max(1) as u64;
    // Per MiB, in units of 1/1024: a small merge of a quiet range comes before a large one that frees as much.
    let gain = removed.saturating_mul(reads).saturating_mul(1 << 10);
    let per_byte = gain / (job.bytes >> 20).max(1);
    let (class, score) = match job.reason {
        Reason::Clear => (5, 0),
        Reason::Sources => (4, (sources as u64).saturating_mul(reads)),
        Reason::RangeTombstone => (3, per_byte),
        Reason::Age => (2, per_byte),
        Reason::Tombstones | Reason::Size | Reason::Reads | Reason::Small | Reason::Asked => {
            (1, per_byte)
        }
        Reason::Rest => (0, per_byte),
    };
    Urgency { class, score }
}

/// What was found out about ranges.
#[derive(Default)]
pub(crate) struct Ranking {
    known: BTreeMap<RangeId, Known>,
}

struct Known {
    range: Weak<FileRange>,
    limits: Limits,
    /// Who read it then.
    readers: Readers,
    /// `None`: nothing is to be done.
    urgency: Option<Urgency>,
}

impl Ranking {
    /// The cached urgency of `range`, unless the range or `limits` have changed since; the inner `None` means that there
    /// is nothing to do. `readers` is called where more readers would make a difference.
    pub(crate) fn cached(
        &self,
        range: &Arc<FileRange>,
        limits: &Limits,
        readers: impl FnOnce() -> Readers,
    ) -> Option<Option<Urgency>> {
        let known = self.known.get(&range.id)?;
        let is_same = std::ptr::eq(known.range.as_ptr(), Arc::as_ptr(range));
        let may_wait = known.urgency.is_none() && !range.young.is_empty();
        let holds = is_same
            && !passes(range, &known.limits, limits)
            && !(may_wait && readers() > known.readers);
        holds.then_some(known.urgency)
    }

    /// Caches the urgency that the picker found.
    pub(crate) fn record(
        &mut self,
        range: &Arc<FileRange>,
        limits: &Limits,
        readers: Readers,
        urgency: Option<Urgency>,
    ) {
        let known = Known { range: Arc::downgrade(range), limits: *limits, readers, urgency };
        self.known.insert(range.id, known);
    }

    /// Forgets ranges that are gone, if there are many of them.
    pub(crate) fn forget(&mut self, count: usize, is_there: impl Fn(RangeId) -> bool) {
        if self.known.len() > 2 * count + 16 {
            self.known.retain(|id, _| is_there(*id));
        }
    }
}

/// True if a limit has passed the newest commit of a file, which may be due now, or a range tombstone is new.
fn passes(range: &FileRange, before: &Limits, now: &Limits) -> bool {
    let is_between = |seq: Seq, from: Seq, to: Seq| from < seq && seq <= to;
    range.references().any(|(_, reference)| {
        let seq = reference.file.meta.seq_max;
        let is_spent = reference.file.meta.tombstones > 0
            && (is_between(seq, before.seen_below, now.seen_below)
                || is_between(seq, before.aged_below, now.aged_below));
        is_spent || is_between(seq, before.rests_below, now.rests_below)
    }) || before.range_tombstone != now.range_tombstone
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::edit::Placement;
    use crate::format::names::FileNumber;

    fn job(reason: Reason, young: u64, bytes: u64) -> Job {
        Job {
            reason,
            young: (0..young).map(FileNumber).collect(),
            run: vec![FileNumber(99)],
            below: None,
            placement: Placement::Run,
            bytes,
        }
    }

    #[test]
    fn free_joins_deep_ranges_and_what_is_due_come_first() {
        let reasons = [
            Reason::Clear,
            Reason::Sources,
            Reason::RangeTombstone,
            Reason::Age,
            Reason::Size,
            Reason::Rest,
        ];
        let urgencies = reasons.map(|reason| urgency(&job(reason, 3, 100 << 20), 9, 0));
        assert!(urgencies.is_sorted_by(|a, b| a > b), "{urgencies:?}");
        // However hot the others are.
        let hot = urgency(&job(Reason::Size, 9, 1 << 20), 9, u64::MAX);
        assert!(urgency(&job(Reason::Age, 1, 1 << 30), 2, 0) > hot);
    }

    #[test]
    fn heat_depth_and_cheap_bytes_count() {
        let of = |reason, young, mib: u64, sources, reads| {
            urgency(&job(reason, young, mib << 20), sources, reads)
        };
        assert!(of(Reason::Size, 3, 100, 4, 0) > of(Reason::Size, 3, 200, 4, 0));
        assert!(of(Reason::Size, 6, 100, 7, 0) > of(Reason::Size, 3, 100, 4, 0));
        assert!(of(Reason::Size, 3, 200, 4, 50) > of(Reason::Size, 3, 100, 4, 0));
        assert!(of(Reason::Sources, 3, 100, 11, 0) > of(Reason::Sources, 3, 100, 10, 0));
        assert!(of(Reason::Sources, 3, 100, 10, 9) > of(Reason::Sources, 3, 100, 12, 0));
    }
}

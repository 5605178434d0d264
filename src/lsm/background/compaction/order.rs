//! Chooses the range whose job runs first, and caches the urgency of each range. Does no I/O.
//!
//! Invariants
//! * A cached result is valid for one state of the range. It expires when a limit on Seqs (such as
//!   the Seq below which tombstones count as old) passes the newest Seq of a file, when a higher
//!   read load makes a delayed job due, when writes to the database begin or end, or when jobs in
//!   other ranges leave files of the range mostly unused.
//! * A cached result keeps no file open: it holds the range by a weak pointer, which only prevents
//!   the reuse of the range's address.

use std::sync::{Arc, Weak};

use crate::format::names::RangeId;
use crate::manifest::{FileRange, Version};
use crate::model::Seq;

use super::plan::{Activity, Job, Limits, Reason};
use crate::lsm::read::load_sampling::Readers;
use crate::sort::SortedMap;

/// The urgency of a job; jobs with the greatest urgency run first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Urgency {
    class: u8,
    score: u64,
}

/// Returns the urgency of a job in a range with `sources` overlapping files and `reads` reads per
/// second. From most to least urgent:
///
/// 1. Joins, because they rewrite nothing.
/// 2. Jobs in ranges with more sources than the limit, because reads suffer. Ranges with the most
///    sources and reads come first.
/// 3. Jobs that free space or drop rows hidden by range tombstones, then jobs that drop old
///    tombstones, so that a steady load cannot delay them forever.
/// 4. Other merges, by sources removed per byte read, weighted by the reads of the range.
/// 5. Compression of runs at rest.
pub(crate) fn urgency(job: &Job, sources: usize, reads: u64) -> Urgency {
    let reads = reads.saturating_add(1);
    let removed = job.young.len().saturating_sub(usize::from(job.run.is_empty())).max(1) as u64;
    // Multiply by 1,024 before dividing by MiB, to keep precision: even in a rarely read range, a
    // small merge must precede a large merge that removes as many sources.
    let gain = removed.saturating_mul(reads).saturating_mul(1 << 10);
    let per_byte = gain / (job.bytes >> 20).max(1);
    let (class, score) = match job.reason {
        Reason::Clear => (5, 0),
        Reason::Sources => (4, (sources as u64).saturating_mul(reads)),
        Reason::Space | Reason::RangeTombstone => (3, per_byte),
        Reason::Age => (2, per_byte),
        Reason::Tombstones | Reason::Size | Reason::Reads | Reason::Small | Reason::Asked => {
            (1, per_byte)
        }
        Reason::Rest => (0, per_byte),
    };
    Urgency { class, score }
}

/// Caches the urgency of ranges.
#[derive(Default)]
pub(crate) struct Ranking {
    known: SortedMap<RangeId, Known>,
    /// The version and the limits at the last look at all ranges. While these are the same, so are
    /// the values of `FileFacts::unused`.
    looked: Option<(Weak<Version>, Activity, Seq)>,
}

struct Known {
    range: Weak<FileRange>,
    limits: Limits,
    /// The read load at which the result was cached.
    readers: Readers,
    /// The unused bytes of the range's files then (see `FileFacts::unused`).
    unused: u64,
    /// The urgency; `None` if the range needs no job.
    urgency: Option<Urgency>,
}

impl Ranking {
    /// Returns the cached result for the current state of `range` under `limits`, if there is one.
    /// The result `Some(None)` means that the range needs no job. `readers` is called only if a
    /// higher read load could change that. `unused` is the present value of `FileFacts::unused`, or
    /// `None` if it cannot have changed (see [`has_looked_at`](Self::has_looked_at)).
    pub(crate) fn cached(
        &self,
        range: &Arc<FileRange>,
        limits: &Limits,
        unused: Option<u64>,
        readers: impl FnOnce() -> Readers,
    ) -> Option<Option<Urgency>> {
        let known = self.known.get(&range.id)?;
        let is_same = std::ptr::eq(known.range.as_ptr(), Arc::as_ptr(range));
        let may_wait = known.urgency.is_none() && !range.young.is_empty();
        let holds = is_same
            && unused.is_none_or(|unused| known.unused == unused)
            && !passes(range, &known.limits, limits)
            && !(may_wait && readers() > known.readers);
        holds.then_some(known.urgency)
    }

    /// Caches a result.
    pub(crate) fn record(
        &mut self,
        range: &Arc<FileRange>,
        limits: &Limits,
        unused: u64,
        (readers, urgency): (Readers, Option<Urgency>),
    ) {
        let range_then = Arc::downgrade(range);
        let known = Known { range: range_then, limits: *limits, readers, unused, urgency };
        self.known.insert(range.id, known);
    }

    /// True if all ranges of `version` were last looked at under limits with which
    /// `FileFacts::unused` has the same values.
    pub(crate) fn has_looked_at(&self, version: &Arc<Version>, limits: &Limits) -> bool {
        self.looked.as_ref().is_some_and(|(last, activity, range_tombstone)| {
            std::ptr::eq(last.as_ptr(), Arc::as_ptr(version))
                && (*activity, *range_tombstone) == (limits.activity, limits.range_tombstone)
        })
    }

    /// Records that all ranges of `version` were looked at.
    pub(crate) fn record_look(&mut self, version: &Arc<Version>, limits: &Limits) {
        self.looked = Some((Arc::downgrade(version), limits.activity, limits.range_tombstone));
    }

    /// Discards the results of removed ranges if the cache has many more results than `count`, the
    /// number of existing ranges.
    pub(crate) fn forget(&mut self, count: usize, is_there: impl Fn(RangeId) -> bool) {
        if self.known.len() > 2 * count + 16 {
            self.known.retain(|id, _| is_there(*id));
        }
    }
}

/// True if a job may have become due since `before`: a limit has passed the newest commit of a
/// file, the newest range tombstone has changed, or writes to the database have begun or ended.
fn passes(range: &FileRange, before: &Limits, now: &Limits) -> bool {
    // Without young files and range tombstones, all jobs that depend on writes are those for unused
    // bytes.
    let depends_on_writes = !range.young.is_empty() || now.range_tombstone > Seq::ZERO;
    if depends_on_writes && before.activity != now.activity {
        return true;
    }
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
    use crate::format::names::{FileNumber, TableId};
    use crate::format::span::Span;

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
    fn free_joins_deep_ranges_and_due_jobs_run_first() {
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
        // A job that drops old tombstones precedes even a merge that gains much in a heavily read
        // range.
        let hot = urgency(&job(Reason::Size, 9, 1 << 20), 9, u64::MAX);
        assert!(urgency(&job(Reason::Age, 1, 1 << 30), 2, 0) > hot);
    }

    #[test]
    fn results_expire_when_writes_end_or_files_lose_users() {
        let range = FileRange::new(RangeId(1), TableId(1), Span::all());
        let (range, limits) = (Arc::new(range), Limits::default());
        let mut ranking = Ranking::default();
        ranking.record(&range, &limits, 5, (Readers::Few, None));
        let cached = |unused, limits| ranking.cached(&range, &limits, unused, || Readers::Few);
        assert_eq!(cached(Some(5), limits), Some(None));
        assert_eq!(cached(Some(6), limits), None);
        assert_eq!(cached(None, limits), Some(None));
        let idle = Limits { activity: Activity::Idle, ..limits };
        assert_eq!(cached(Some(5), idle), Some(None), "nothing in the range depends on writes");
        let limits = Limits { range_tombstone: Seq(1), ..limits };
        ranking.record(&range, &limits, 5, (Readers::Few, None));
        let cached = |limits| ranking.cached(&range, &limits, Some(5), || Readers::Few);
        assert_eq!(cached(limits), Some(None));
        assert_eq!(cached(Limits { activity: Activity::Idle, ..limits }), None);
    }

    #[test]
    fn unused_bytes_are_counted_again_for_another_version_or_activity() {
        let (version, limits) = (Arc::new(Version::default()), Limits::default());
        let mut ranking = Ranking::default();
        assert!(!ranking.has_looked_at(&version, &limits));
        ranking.record_look(&version, &limits);
        assert!(ranking.has_looked_at(&version, &limits));
        assert!(!ranking.has_looked_at(&Arc::new(Version::default()), &limits));
        let idle = Limits { activity: Activity::Idle, ..limits };
        assert!(!ranking.has_looked_at(&version, &idle));
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

//! Picks the next merge of a range: a pure function of the range, facts about its files, and
//! limits. [`pick`] lists the rules.
//!
//! Invariants
//! * A job's output is older or newer, as a whole, than every file that it overlaps.
//! * A merge into the run includes all older data that it overlaps, so that it may drop tombstones.
//! * A job is cut between user keys, like a clip, so all versions of a key are on one side.
//! * Tombstones are a reason for a job only if all readers see them, so that the job can drop them.
//!
//! `job` runs the job, `order` chooses the range, and `facts` collects the facts about files.

mod candidate;
mod cut;
mod space;

use crate::format::edit::Placement;
use crate::format::names::FileNumber;
use crate::model::Seq;
use crate::ranges::{Range, RangeFile, Reference};

use super::plan::{Activity, Facts, Job, Limits, Part, Reason};
use crate::lsm::read::load_sampling::{Readers, are_long};
use candidate::{Candidate, Picker};

/// The minimum number of young files in a merge into the run, unless a limit on the number of files
/// forces the merge. In a small range each young file soon has half the bytes of the run, so
/// merging every young file alone would rewrite the range every time. The test
/// `simulated_write_amplification_is_bounded` measures the effect of this constant, `RUN_FOR_SIZE`
/// and `MERGE_WIDTH`. With a minimum of 1 and a `MERGE_WIDTH` of 4, merges would write 1/7 more
/// bytes if the data is 40 or 100 memtables large, and 1/5 more if it is 10 memtables large.
const INTO_RUN_MIN: usize = 4;
/// Young files merge into the run only if the part of the run that they overlap has at most
/// `RUN_FOR_SIZE` times as many bytes as these young files. For a merge that speeds up reads, the
/// factor is `RUN_FOR_READERS`.
const RUN_FOR_SIZE: u64 = 2;
const RUN_FOR_READERS: u64 = 8;
/// A merge that speeds up reads may read this many times `job_bytes_max`, which is enough for a
/// whole range of the usual size.
const READERS_JOBS: u64 = 2;
/// The number of generations in a merge of young files with each other. A generation is a file, or
/// several files with interleaved Seqs (see `generations`).
const MERGE_WIDTH: usize = 6;
/// The minimum number of files in a merge by age, for tables under FIFO eviction.
const AGE_WIDTH: usize = 3;
/// A range is small if it is at most this many times as large as a flushed file. Merging all of it
/// is quick, and makes newly loaded data fast to read.
const SMALL_FLUSHES: u64 = 8;
/// The number of small neighbouring files of the run that are merged into one file.
const SMALL_NEIGHBOURS: usize = 8;
/// A file is dense with tombstones if at least 1/`DENSE_SHARE` of its entries are tombstones. A
/// scan then skips many dead entries for each row that it returns.
const DENSE_SHARE: u64 = 4;
/// The minimum number of tombstones for which a job is worthwhile. Skipping fewer costs a scan less
/// than opening a file.
const DENSE_MIN: u64 = 256;

/// Returns the next job for `range`.
///
/// 1. Young files that overlap no other file of the range join the run by an edit, without moving
///    bytes. Data written in ascending or descending key order is therefore never rewritten.
/// 2. A merge frees much space compared with the bytes that it writes (`space`). The remainders of
///    jobs that were cut at a key are merged for this reason.
/// 3. At least four young files merge into the run if they have at least half as many bytes as the
///    files of the run that they overlap. Of such merges, the one with the most files is chosen.
/// 4. Six generations of young files that are similar in size and neighbours in age merge into one
///    file.
/// 5. If a key has more sources (files that a read must search) than the limit, the merge that
///    costs least per removed source is forced.
/// 6. A young file is rewritten in its place, if this is the merge by rule 2 that frees the most
///    space. The merges by rules 3 to 5 are due anyway and may include the file.
/// 7. A file merges into the run if it is dense with tombstones, has tombstones older than the
///    limit, or has entries hidden by a range tombstone. The merge drops these entries.
/// 8. All young files merge into the run if searching several files has cost readers as much as the
///    merge costs. The young files must have at least 1/8 as many bytes as the files of the run
///    that they overlap; once an hour fewer bytes are enough.
/// 9. Eight small neighbours in the run, which joins leave behind, merge into one file.
/// 10. A run at rest is rewritten with compression.
///
/// Rules 3 and 4 are delayed if rows are long, the range has few readers and is larger than a few
/// flushes, and the young files hide little of the run (`waits`, `is_wasteful`). Once a key then
/// has as many sources as the limit, `cost_of_room` chooses the merge. The delay ends once no more
/// is written.
///
/// In tables under FIFO eviction (`fifo_eviction`) only rule 1 applies. Other merges there combine
/// files that are neighbours in age, up to a maximum length.
///
/// Except by rule 8, a job that would read more than `job_bytes_max` merges only the part of its
/// inputs below a key (`cut`). The clips of the inputs then begin at that key, and later jobs merge
/// the remainder.
pub(crate) fn pick<F: RangeFile + Clone>(
    range: &Range<F>,
    facts: &impl Facts<F>,
    limits: &Limits,
) -> Option<Job> {
    let picker = Picker::new(range, facts, limits);
    if let Some(job) = picker.join() {
        return Some(job);
    }
    if limits.window_bytes > 0 {
        return picker.by_age();
    }
    let into_run = picker.run_candidates();
    let space = picker.space(&into_run);
    if space.as_ref().is_some_and(|job| job.placement == Placement::Run) {
        return space;
    }
    let waits = picker.waits();
    let enough = into_run.iter().filter(|candidate| candidate.young.len() >= INTO_RUN_MIN);
    let worthwhile = enough.filter(|candidate| picker.is_part(candidate, RUN_FOR_SIZE));
    let best = worthwhile.max_by_key(|candidate| candidate.young.len());
    if let Some(candidate) = best.filter(|best| !waits || picker.is_wasteful(best)) {
        return Some(picker.job(candidate, Reason::Size));
    }
    if !waits && let Some(candidate) = picker.similar() {
        return Some(picker.job(&candidate, Reason::Size));
    }
    let sources = sources(range);
    if sources >= limits.sources_max + usize::from(!waits) {
        let windows = picker.windows(2..=range.young.len());
        let all = into_run.iter().chain(&windows);
        let cost = |candidate: &&Candidate| match waits {
            true => picker.cost_of_room(candidate),
            false => picker.cost_per_source(candidate),
        };
        let cheapest = all.min_by_key(cost);
        let reason = if sources > limits.sources_max { Reason::Sources } else { Reason::Size };
        if let Some(candidate) = cheapest {
            return Some(picker.job(candidate, reason));
        }
    }
    let due = space.or_else(|| picker.spent());
    let due = due.or_else(|| picker.for_readers());
    due.or_else(|| picker.small_neighbours()).or_else(|| picker.rest())
}

/// Returns the maximum number of sources, that is, files of `range` that a read of one key may have
/// to search.
pub(crate) fn sources<F: RangeFile>(range: &Range<F>) -> usize {
    let at = |key: &[u8]| range.young.iter().filter(|r| r.clip.contains(key)).count();
    let depth = range.young.iter().map(|r| at(&r.clip.low)).max().unwrap_or_default();
    depth + usize::from(!range.run.is_empty())
}

impl Job {
    /// Returns a job that merges the young files `young` and the part of the run from key `from`
    /// on. The job is cut at a key if it would read more than a job may. Returns `None` if there is
    /// nothing to merge.
    ///
    /// `newest` was the largest Seq when the caller listed `young`. Flushes may have added young
    /// files and files of the run since then. Files added at the end of the run are left out. A
    /// file added between the inputs is included, together with the young files that are older than
    /// it.
    pub(crate) fn whole<F: RangeFile + Clone>(
        range: &Range<F>,
        facts: &impl Facts<F>,
        limits: &Limits,
        (young, newest): (&[FileNumber], Seq),
        from: &[u8],
    ) -> Option<Job> {
        let picker = Picker::new(range, facts, limits);
        let first = range.run.partition_point(|reference| *reference.clip.low < *from);
        let is_meant = |i: &usize| young.contains(&range.young[*i].file.number());
        let young = (0..range.young.len()).filter(is_meant).collect();
        let is_listed = |reference: &Reference<F>| reference.file.seqs().0 <= newest;
        let end = range.run.iter().rposition(is_listed).map_or(0, |last| last + 1);
        let candidate = picker.close(young, first..end.max(first));
        let is_empty = candidate.young.is_empty() && candidate.run.is_empty();
        (!is_empty).then(|| picker.job(&candidate, Reason::Asked))
    }
}

impl<F: RangeFile + Clone, A: Facts<F>> Picker<'_, F, A> {
    /// Returns a job that adds young files to the run without rewriting them. It adds all young
    /// files that overlap no other file of the range.
    fn join(&self) -> Option<Job> {
        let young = &self.range.young;
        let alone = |i: usize, r: &Reference<F>| {
            let mut others = young.iter().enumerate().filter(|(j, _)| *j != i);
            others.all(|(_, other)| !other.clip.overlaps(&r.clip))
        };
        let joins =
            |i: usize, r: &Reference<F>| self.range.run_in(&r.clip).is_empty() && alone(i, r);
        let found = young.iter().enumerate().filter(|(i, r)| joins(*i, r));
        let young: Vec<_> = found.map(|(_, r)| r.file.number()).collect();
        (!young.is_empty()).then(|| Job {
            reason: Reason::Clear,
            young,
            run: Vec::new(),
            below: None,
            placement: Placement::Run,
            bytes: 0,
        })
    }

    /// Returns a merge of young files that are similar in size and neighbours in age. FIFO eviction
    /// drops whole files, oldest first, so a file must not mix old and new rows.
    fn by_age(&self) -> Option<Job> {
        // A merge by age must fit in one job. If it were cut at a key, the remainders would keep
        // its input files alive.
        let most = self.limits.window_bytes.min(self.limits.job_bytes_max);
        let small = self.young_parts.iter().filter(|part| part.bytes <= most / AGE_WIDTH as u64);
        if small.count() < AGE_WIDTH {
            return None;
        }
        let windows = self.windows(AGE_WIDTH..=MERGE_WIDTH);
        let fits = |window: &&Candidate| self.bytes(window) <= most && self.is_similar(window);
        let widest = windows.iter().filter(fits).max_by_key(|window| window.young.len());
        widest.map(|window| self.job(window, Reason::Size))
    }

    /// Returns the smallest window (see `windows`) of generations that are similar in size and
    /// neighbours in age.
    fn similar(&self) -> Option<Candidate> {
        let neighbours = self.windows(MERGE_WIDTH..=MERGE_WIDTH).into_iter();
        let similar = neighbours.filter(|candidate| self.is_similar(candidate));
        similar.min_by_key(|candidate| self.bytes(candidate))
    }

    /// True if merges of the range are delayed until a key has too many sources, so that each byte
    /// is written fewer times. Merges are not delayed in small ranges, which are quick to merge,
    /// nor in ranges with many young files, because reads would become slow. Merges of short rows
    /// are not delayed either: short rows are cheap to merge, while one more file costs a read the
    /// same for any row length. No merge is delayed once no more is written.
    fn waits(&self) -> bool {
        let range = self.range;
        if self.limits.activity == Activity::Idle {
            return false;
        }
        let is_flush = |(r, _): &(&Reference<F>, &Part)| r.file.bytes() <= self.limits.flush_bytes;
        let newest = range.young.iter().zip(&self.young_parts).find(is_flush);
        // A job that was cut at a key leaves a small part of a flush. The unused bytes of the file
        // show how large the flush was.
        let flush = newest.map_or(0, |(r, part)| part.bytes.saturating_add(self.unused(r, part)));
        let parts = || self.young_parts.iter().chain(&self.run_parts);
        let bytes: u64 = parts().map(|part| part.bytes).sum();
        let entries: u64 = parts().map(|part| part.entries).sum();
        let is_small = bytes <= flush.saturating_mul(SMALL_FLUSHES);
        let are_few = range.young.len() <= 2 * self.limits.sources_max;
        are_long(bytes, entries)
            && !is_small
            && are_few
            && self.facts.readers(range) == Readers::Few
    }

    /// Returns a merge of all young files into the run if searching several files has cost readers
    /// as much as the merge costs. A large run is not rewritten for a small amount of new data,
    /// except once an hour.
    fn for_readers(&self) -> Option<Job> {
        let readers = self.facts.readers(self.range);
        if readers < Readers::Losing || self.range.young.is_empty() {
            return None;
        }
        let candidate = self.close((0..self.range.young.len()).collect(), 0..0);
        let is_due = readers == Readers::Served || self.is_part(&candidate, RUN_FOR_READERS);
        // Never cut this merge at a key. Between the two parts a flush could add a file, and the
        // merge would become due again from the start.
        let most = self.limits.job_bytes_max.saturating_mul(READERS_JOBS);
        let is_meant = is_due && self.bytes(&candidate) <= most && self.is_sound(&candidate);
        is_meant.then(|| self.cut_job(&candidate, Reason::Reads, None))
    }

    /// Returns a merge because of entries that can be dropped. It merges a file with entries that a
    /// range tombstone hides. If there is none, it merges the file with the oldest or the most
    /// tombstones that a merge into the run would drop.
    fn spent(&self) -> Option<Job> {
        let limits = self.limits;
        let is_sound = |r: &&Reference<F>| !self.facts.is_damaged(r);
        let references = || self.range.references().map(|(_, reference)| reference);
        let of_range_tombstone =
            references().filter(is_sound).find(|r| self.facts.wants_rewrite(r));
        if let Some(reference) = of_range_tombstone {
            return self.rewrite(reference, Reason::RangeTombstone);
        }
        let parts = || references().zip(self.young_parts.iter().chain(&self.run_parts));
        // Consider only tombstones that all readers see. A merge would keep other tombstones, and
        // would be picked again and again.
        let droppable = || {
            let parts = parts().filter(|(r, _)| is_sound(r));
            parts.filter(|(r, part)| part.tombstones > 0 && r.file.seqs().1 <= limits.seen_below)
        };
        let aged = droppable().filter(|(r, _)| r.file.seqs().1 <= limits.aged_below);
        if let Some((reference, _)) = aged.min_by_key(|(r, _)| r.file.seqs().1) {
            return self.rewrite(reference, Reason::Age);
        }
        let is_dense = |tombstones: u64, entries: u64| {
            tombstones >= DENSE_MIN && tombstones.saturating_mul(DENSE_SHARE) >= entries
        };
        let all = droppable().map(|(_, part)| part.tombstones).sum();
        let whole_range = is_dense(all, parts().map(|(_, part)| part.entries).sum());
        let dense = droppable().filter(|(_, p)| whole_range || is_dense(p.tombstones, p.entries));
        let (reference, _) = dense.max_by_key(|(_, part)| part.tombstones)?;
        self.rewrite(reference, Reason::Tombstones)
    }

    /// Returns a job that merges `reference` into the run. If the reason is its tombstones, the job
    /// merges only the keys up to the last tombstone.
    fn rewrite(&self, reference: &Reference<F>, reason: Reason) -> Option<Job> {
        let number = reference.file.number();
        let young = self.range.young.iter().position(|r| r.file.number() == number);
        let run = self.range.run.iter().position(|r| r.file.number() == number);
        let run = run.map_or(0..0, |at| at..at + 1);
        let candidate = self.close(young.into_iter().collect(), run);
        if !self.is_sound(&candidate) {
            return None;
        }
        let mut job = self.job(&candidate, reason);
        let end = self.facts.tombstones_end(reference).filter(|_| reason != Reason::RangeTombstone);
        if let Some(end) = end
            && job.below.as_ref().is_none_or(|below| end < *below)
            && self.is_inside(&candidate, &end)
        {
            job = self.cut_job(&candidate, reason, Some(end));
        }
        Some(job)
    }

    /// Returns a merge of the first sequence of small neighbours in the run.
    fn small_neighbours(&self) -> Option<Job> {
        let limits = self.limits;
        let mut from = 0;
        for (i, part) in self.run_parts.iter().enumerate() {
            let stays = self.facts.is_damaged(&self.range.run[i]);
            if stays || part.bytes >= limits.run_file_bytes_min / 2 {
                from = i + 1;
            } else if i + 1 - from == SMALL_NEIGHBOURS {
                let candidate = self.close(Vec::new(), from..i + 1);
                // The merge must produce one file and must not include young files.
                let becomes_one = self.bytes(&candidate) <= limits.run_file_bytes_max;
                let is_meant = candidate.young.is_empty() && becomes_one;
                return is_meant.then(|| self.job(&candidate, Reason::Small));
            }
        }
        None
    }

    /// Returns a job that compresses files of the run, if the run is at rest. It takes the first
    /// files that compression could make smaller.
    fn rest(&self) -> Option<Job> {
        let limits = self.limits;
        let is_at_rest = |r: &Reference<F>| r.file.seqs().1 <= limits.rests_below;
        if !self.range.young.is_empty() || !self.range.run.iter().all(is_at_rest) {
            return None;
        }
        let is_large =
            |r: &&Reference<F>| !self.facts.is_damaged(r) && self.facts.is_compressible(r);
        let first = self.range.run.iter().position(|r| is_large(&r))?;
        let rest = &self.range.run[first..];
        let mut bytes = 0;
        let mut fits = |(i, r): &(usize, &Reference<F>)| {
            bytes += self.run_parts[first + i].bytes;
            is_large(r) && (*i == 0 || bytes <= limits.job_bytes_max)
        };
        let count = rest.iter().enumerate().take_while(|file| fits(file)).count();
        let candidate =
            Candidate { young: Vec::new(), run: first..first + count, placement: Placement::Run };
        Some(self.job(&candidate, Reason::Rest))
    }
}

#[cfg(test)]
mod tests;

//! Which files of a range to merge next: a pure function of the range, facts about its files, and limits.
//!
//! 1. Young files that overlap no other file of the range join the run: an edit, no bytes. Ascending and descending
//!    data is never rewritten.
//! 2. Four young files or more whose bytes are at least half of what they overlap in the run merge into it, the more the
//!    better.
//! 3. Six generations of young files of similar size that are neighbours in age merge into one.
//!    Both wait where few read, the range has outgrown its flushes, and its young files hide little of its run: then merges
//!    remove the most sources for the bytes, once a key has as many as the limit.
//! 4. Where a key would have more sources than the limit, the merge that is cheapest per source removed is forced.
//! 5. Files that hold many tombstones, tombstones older than the limit, or what a range tombstone hides, go into the run, which
//!    drops them.
//! 6. What is young of a range whose readers have lost as much by the number of its files as a merge of all of them takes
//!    goes into the run, if it is an eighth of what it overlaps or more, and once an hour however little it is.
//! 7. Many small neighbours in the run, which joins leave behind, become one file.
//! 8. A run that has come to rest is written again, compressed.
//!
//! Of a table that gives its oldest files to make room (`fifo_eviction`), only files that are
//! neighbours in age are merged, up to a
//! length, and what is alone joins the run.
//!
//! No job is long: one that would read more than `job_bytes_max` (but for 6) takes the part of its inputs below a key
//! (`cut`). The references keep the rest by a clip that begins there, and the next job goes on with them.
//!
//! Invariants
//! * a job's output is older or newer than every file it will overlap, as a whole;
//! * what goes into the run takes everything older that it overlaps with it, so that tombstones may go;
//! * a cut is a bound of clips, so that all versions of a user key are on one side of it;
//! * a job is picked for tombstones only if everybody sees them: it drops them, and is not picked
//!   again.
//!
//! Why half, why four and why six: `simulated_write_amplification_is_sane` below measures them. From any one file that
//! is half of what it overlaps, and by four, it wrote a seventh more for forty or a hundred memtables and a fifth more for ten.
//!
//! Not here: running a job (`job`), which range goes first (`order`), facts about real files (`facts`).

mod candidate;
mod cut;

use crate::format::edit::Placement;
use crate::format::names::FileNumber;
use crate::ranges::{Range, RangeFile, Reference};

use super::plan::{Facts, Job, Limits, Part, Reason};
use crate::lsm::read::load_sampling::Readers;
use candidate::{Candidate, Picker};

/// So many young files merge into the run at least, while there is room for more: while a range is small, one of them
/// is soon half of it, and each would rewrite all.
const INTO_RUN_MIN: usize = 4;
/// Young files go into a run that is up to so many times their length; for readers, so many.
const RUN_FOR_SIZE: u64 = 2;
const RUN_FOR_READERS: u64 = 8;
/// In a job that may be so many times as long as others: of a whole range, of the usual length.
const READERS_JOBS: u64 = 2;
/// Young files merge among themselves this many at a time.
const MERGE_WIDTH: usize = 6;
/// Where files stay with their age, so many at least.
const AGE_WIDTH: usize = 3;
/// A range of up to so many flushes is small: to merge all of it is soon done, and what was loaded is ready to be read.
const SMALL_FLUSHES: u64 = 8;
/// Rows of so many bytes each cost a merge more than they do a reader.
const LONG_ROW_BYTES: u64 = 512;
/// So many small neighbours in the run become one.
const SMALL_NEIGHBOURS: usize = 8;
/// From one tombstone in so many entries on a file is dense with them: a scan steps over as many dead entries as it
/// returns live ones, or a good part of that.
const DENSE_SHARE: u64 = 4;
/// Fewer tombstones than this cost a scan less than opening a file: not worth a job.
const DENSE_MIN: u64 = 256;

/// What to do to `range` next.
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
        let is_late = sources > limits.sources_max;
        let reason = if is_late { Reason::Sources } else { Reason::Size };
        if let Some(candidate) = cheapest {
            return Some(picker.job(candidate, reason));
        }
    }
    let due = picker.spent().or_else(|| picker.for_readers());
    due.or_else(|| picker.small_neighbours()).or_else(|| picker.rest())
}

/// How many files a point read looks at, for the worst key.
pub(crate) fn sources<F: RangeFile>(range: &Range<F>) -> usize {
    let at = |key: &[u8]| range.young.iter().filter(|r| r.clip.contains(key)).count();
    let depth = range.young.iter().map(|r| at(&r.clip.low)).max().unwrap_or_default();
    depth + usize::from(!range.run.is_empty())
}

impl Job {
    /// The young files `young` and the run from key `from` on are merged into the run, as much of that as a job may
    /// read; `None` if there is nothing. Younger files go with them where the run holds what is newer: a flush put it
    /// there after `young` was listed.
    pub(crate) fn whole<F: RangeFile + Clone>(
        range: &Range<F>,
        facts: &impl Facts<F>,
        limits: &Limits,
        young: &[FileNumber],
        from: &[u8],
    ) -> Option<Job> {
        let picker = Picker::new(range, facts, limits);
        let first = range.run.partition_point(|reference| *reference.clip.low < *from);
        let is_meant = |i: &usize| young.contains(&range.young[*i].file.number());
        let young = (0..range.young.len()).filter(is_meant).collect();
        let candidate = picker.close(young, first..range.run.len());
        let is_empty = candidate.young.is_empty() && candidate.run.is_empty();
        (!is_empty).then(|| picker.job(&candidate, Reason::Asked))
    }
}

impl<F: RangeFile + Clone, A: Facts<F>> Picker<'_, F, A> {
    /// Young files that overlap nothing: all of them at once.
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

    /// Young files of similar length that are neighbours in age: where the oldest go, they go whole.
    fn by_age(&self) -> Option<Job> {
        // One that is cut would leave its inputs where they are.
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

    /// The smallest generations of young files that are of similar size and neighbours in age.
    fn similar(&self) -> Option<Candidate> {
        let neighbours = self.windows(MERGE_WIDTH..=MERGE_WIDTH).into_iter();
        let similar = neighbours.filter(|candidate| self.is_similar(candidate));
        similar.min_by_key(|candidate| self.bytes(candidate))
    }

    /// True if merges may wait until a key has too many sources. That writes each byte less often than merges that keep
    /// the run the largest part; it is felt by readers, now or later, in a range that is merged whole in no time, and where
    /// many files lie beside one another. What a file more costs a reader is the same however long rows are, what a merge
    /// costs is not: short ones are merged at once.
    fn waits(&self) -> bool {
        let range = self.range;
        let is_flush = |(r, _): &(&Reference<F>, &Part)| r.file.bytes() <= self.limits.flush_bytes;
        let newest = range.young.iter().zip(&self.young_parts).find(is_flush);
        let flush = newest.map_or(0, |(_, part)| part.bytes);
        let parts = || self.young_parts.iter().chain(&self.run_parts);
        let bytes: u64 = parts().map(|part| part.bytes).sum();
        let entries: u64 = parts().map(|part| part.entries).sum();
        let are_long = bytes >= entries.saturating_mul(LONG_ROW_BYTES);
        let is_small = bytes <= flush.saturating_mul(SMALL_FLUSHES);
        let are_few = range.young.len() <= 2 * self.limits.sources_max;
        are_long && !is_small && are_few && self.facts.readers(range) == Readers::Few
    }

    /// What is young, into the run, if readers have lost by it what that costs; but much is not written again for little
    /// that is new.
    fn for_readers(&self) -> Option<Job> {
        let readers = self.facts.readers(self.range);
        if readers < Readers::Losing || self.range.young.is_empty() {
            return None;
        }
        let candidate = self.close((0..self.range.young.len()).collect(), 0..0);
        let is_due = readers == Readers::Served || self.is_part(&candidate, RUN_FOR_READERS);
        // In one job: with each flush between two of them the first would begin again.
        let most = self.limits.job_bytes_max.saturating_mul(READERS_JOBS);
        let is_meant = is_due && self.bytes(&candidate) <= most && self.is_sound(&candidate);
        is_meant.then(|| self.cut_job(&candidate, Reason::Reads, None))
    }

    /// The file with the most tombstones that a merge into the run would drop for good, or one that a range tombstone reaches.
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
        // What somebody may not see yet would stay, and be picked again and again.
        let droppable = || {
            let parts = parts().filter(|(r, _)| is_sound(r));
            parts.filter(|(r, part)| part.tombstones > 0 && r.file.seqs().1 <= limits.seen_below)
        };
        let aged = droppable().filter(|(r, _)| r.file.seqs().1 <= limits.aged_below);
        let oldest = aged.min_by_key(|(r, _)| r.file.seqs().1);
        if let Some((reference, _)) = oldest {
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

    /// `reference` goes into the run, up to its last tombstone if that is what counts.
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

    /// The first stretch of the run that consists of small files.
    fn small_neighbours(&self) -> Option<Job> {
        let limits = self.limits;
        let mut from = 0;
        for (i, part) in self.run_parts.iter().enumerate() {
            let stays = self.facts.is_damaged(&self.range.run[i]);
            if stays || part.bytes >= limits.run_file_bytes_min / 2 {
                from = i + 1;
            } else if i + 1 - from == SMALL_NEIGHBOURS {
                let candidate = self.close(Vec::new(), from..i + 1);
                // They are merged for themselves, not to drag young files in.
                let becomes_one = self.bytes(&candidate) <= limits.run_file_bytes_max;
                let is_meant = candidate.young.is_empty() && becomes_one;
                return is_meant.then(|| self.job(&candidate, Reason::Small));
            }
        }
        None
    }

    /// The first files of a run that rests and could be smaller.
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

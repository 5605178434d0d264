//! Runs the compaction jobs that the picker chose; [`Maintenance::compact_one`] lists the steps. A
//! job merges files of one range: files of its run (which do not overlap) and young (newer) files.
//!
//! Invariants
//! * A tombstone is dropped only if no file of the range older than the inputs can hold its key.
//! * Ranges that share output files (a *stretch*) each merge all files into the run. Otherwise the
//!   Seqs of a shared output could overlap the Seqs of files that were not merged.
//! * A damaged input is quarantined: it stays in place, jobs avoid it, and other work continues.
//!
//! `picker` chooses the job, `order` the range; `exchange` builds the edit.

mod exchange;
#[cfg(all(test, loom))]
mod models;
mod task;

use std::cmp::Reverse;
use std::sync::Arc;

use crate::clock::{TICKS_PER_SECOND, ticks_in};
use crate::error::{ErrorKind, Result};
use crate::format::edit::Placement;
use crate::format::names::{FileName, FileNumber, RangeId};
use crate::format::span::Span;
use crate::manifest::{FileRange, FileReference, Version};
use crate::model::Seq;
use crate::options::Codec;
use crate::sort::sort_by;
use crate::write_accounting::Cause;

use super::facts::{FileFacts, is_whole};
use super::order::urgency;
use super::picker::{pick, sources};
use super::plan::{Facts, Job, Limits, Reason};
use crate::lsm::background::maintenance::Maintenance;
use crate::lsm::background::new_file::NewFile;
use crate::lsm::background::output_writer::{Boundaries, Cut, OutputWriter};
use crate::lsm::read::load_sampling::Readers;
use crate::lsm::read::merge::Merge;
use crate::lsm::write::admission::{Held, JOB_RUN_FILES};
use crate::lsm::write::backpressure::flush_bytes_max;
use crate::lsm::write::log_queue::closed;
use exchange::{Exchange, exchange, remainders};
use task::{Task, inputs, older_sources, run_inputs, young_inputs};

/// A callback for the progress of merges: the number of ranges merged so far, and the number of
/// ranges to merge. An error of the callback ends the work.
pub(crate) type OnRanges<'p> = &'p mut dyn FnMut(u64, u64) -> Result<()>;

/// A range with fewer bytes than this is small. All its files are merged together, into files that
/// it shares with neighbouring ranges. Equals `BOUNDARY_BYTES`, the size from which on a flush
/// starts a new file at the next range.
const SMALL_RANGE_BYTES: u64 = 1 << 20;
/// The maximum number of ranges in a stretch. It keeps the edit far below the size limit of a
/// record.
const STRETCH_RANGES: usize = 4_096;
/// The maximum total length of the bounds of clips in the edit of a stretch, in bytes.
const STRETCH_KEY_BYTES: usize = 2 << 20;
/// The maximum number of overlapping files in a range. More would slow reads too much.
const SOURCES_MAX: usize = 8;
/// A range that was not written to for this time is *at rest*.
const REST_TICKS: u64 = 6 * 3_600 * TICKS_PER_SECOND;

impl Maintenance {
    /// Runs the most urgent job. Returns false if no range needs a job.
    ///
    /// 1. Claim the range, so that no other job changes it. Claim also the small ranges after it
    ///    that need a job. Together these ranges are a *stretch* and share output files.
    /// 2. Merge the inputs of each range into new files. A job reads only keys inside the clips
    ///    and, if it is cut at a key, only those below that key. A join, which adds its inputs to
    ///    the run unchanged, writes nothing.
    /// 3. Under the install lock, check that the current version still has every input in its
    ///    place. Leave out each range in which a drop removed an input or a flush added a file
    ///    between the inputs. One edit then adds the outputs. It removes the inputs of the
    ///    remaining ranges, or clips them to the keys above the cut. If no range remains, the job
    ///    is declined and its outputs are removed.
    pub(crate) fn compact_one(&self) -> Result<bool> {
        if !self.are_fifo_tables_known() {
            return Ok(false);
        }
        let limits = self.limits();
        let mut failure = None;
        for id in self.wanting(&limits) {
            if self.is_quarantined(id) || !self.state.claim(id) {
                continue;
            }
            // The range may have changed before it was claimed, so pick again.
            let version = Arc::clone(&self.reader().view.load().version);
            let tasks = self.stretch(&version, id, &limits);
            drop(version);
            // If there is too little space now, the job is retried after another job has freed
            // space.
            let planned = self.plan_tasks(&tasks).filter(|_| !tasks.is_empty());
            let done = planned.as_ref().map(|_| self.run_tasks(&tasks));
            let claimed = ids_of(&tasks);
            // Give back the reserved space before releasing the ranges, because a thread that waits
            // for the ranges may need it.
            drop((planned, tasks));
            self.release(id, &claimed);
            match done {
                None => {}
                // This range is quarantined from now on; other ranges continue.
                Some(Err(error)) if error.kind() == ErrorKind::Corruption => return Ok(true),
                // Try the other ranges before reporting the error.
                Some(Err(error)) => failure = failure.or(Some(error)),
                Some(Ok(_)) => return Ok(true),
            }
        }
        failure.map_or(Ok(false), Err)
    }

    /// Merges all files of every range into its run. Skips tables under FIFO eviction, because rows
    /// merged into one file would all be evicted at the same time. See
    /// [`compact_ranges`](Self::compact_ranges) for `progress`.
    ///
    /// # Errors
    /// Errors of reading and writing, and of `progress`. Merges completed before the error are
    /// kept.
    pub(crate) fn compact_all(&self, progress: OnRanges<'_>) -> Result<()> {
        self.compact_some(|range| !self.is_fifo(range.table), progress)
    }

    /// Like [`compact_all`](Self::compact_all), but merges only the ranges that overlap `span`.
    #[cfg(feature = "cli")]
    pub(crate) fn compact_span(&self, span: &Span, progress: OnRanges<'_>) -> Result<()> {
        let is_chosen = |range: &FileRange| range.span.overlaps(span) && !self.is_fifo(range.table);
        self.compact_some(is_chosen, progress)
    }

    fn compact_some(
        &self,
        is_chosen: impl Fn(&FileRange) -> bool,
        progress: OnRanges<'_>,
    ) -> Result<()> {
        let version = Arc::clone(&self.reader().view.load().version);
        let ranges = version.ranges.iter().filter(|range| is_chosen(range));
        let ids: Vec<RangeId> = ranges.map(|range| range.id).collect();
        drop(version);
        self.compact_ranges(&ids, progress)?;
        self.remove_unheld();
        Ok(())
    }

    /// Merges all files of each of these ranges. Adjacent small ranges are merged together. `ids`
    /// must be in ascending key order. Calls `progress` before each merge with the number of ranges
    /// merged so far and the number of ranges to merge. An error of `progress` ends the work.
    pub(crate) fn compact_ranges(&self, ids: &[RangeId], progress: OnRanges<'_>) -> Result<()> {
        let version = Arc::clone(&self.reader().view.load().version);
        let horizon = self.reader().horizon();
        let range_tombstones = Arc::clone(&self.reader().view.load().range_tombstones);
        let hidden = |range: &FileRange| {
            range
                .references()
                .any(|(_, file)| range_tombstones.hiding_part(file, &horizon).next().is_some())
        };
        let ranges = ids.iter().filter_map(|id| version.ranges.get(*id));
        let unmerged = ranges.filter(|range| is_unmerged(range, &version) || hidden(range));
        let sizes: Vec<(RangeId, u64)> = unmerged.map(|range| (range.id, range.bytes())).collect();
        drop(version);
        let count = sizes.len();
        let mut sizes = sizes.into_iter().peekable();
        let mut damage = None;
        while let Some((id, bytes)) = sizes.next() {
            progress((count - sizes.len() - 1) as u64, count as u64)?;
            let mut stretch = vec![id];
            let is_small = |bytes: u64| bytes < SMALL_RANGE_BYTES;
            while is_small(bytes)
                && stretch.len() < STRETCH_RANGES
                && let Some((id, _)) = sizes.next_if(|(_, bytes)| is_small(*bytes))
            {
                stretch.push(id);
            }
            // Claim several ranges in key order: all threads that wait for a claim do so, which
            // prevents a deadlock.
            stretch.iter().for_each(|id| self.state.claim_waiting(*id));
            let done = self.compact_claimed(&stretch);
            stretch.iter().for_each(|id| self.state.release(*id));
            match done {
                // The damage does not affect the other ranges, so continue with them.
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    damage = damage.or(Some(error));
                }
                done => done?,
            }
        }
        damage.map_or(Ok(()), Err)
    }

    /// Merges all files that these ranges have now into their runs, in ascending key order.
    fn compact_claimed(&self, ids: &[RangeId]) -> Result<()> {
        let limits = self.limits();
        let version = Arc::clone(&self.reader().view.load().version);
        let listed = |range: &Arc<FileRange>| {
            let young = range.young.iter().map(|r| r.file.meta.number);
            let newest = range.references().map(|(_, r)| r.file.meta.seq_max).max();
            let (young, from) = (young.collect::<Vec<FileNumber>>(), Box::<[u8]>::default());
            (range.id, (young, newest.unwrap_or_default()), from)
        };
        let ranges = ids.iter().filter_map(|id| version.ranges.get(*id));
        let mut left: Vec<_> = ranges.map(listed).collect();
        drop(version);
        while !left.is_empty() {
            let version = Arc::clone(&self.reader().view.load().version);
            let facts = FileFacts::new(self);
            let task = |(id, (young, newest), from): &(RangeId, (Vec<_>, Seq), Box<[u8]>)| {
                let range = version.ranges.get(*id)?;
                let job = Job::whole(range, &facts, &limits, (young, *newest), from)?;
                self.outputs_visible_from(range, &job)?;
                Some(Task { range: Arc::clone(range), job })
            };
            let mut tasks: Vec<Task> = left.iter().filter_map(task).collect();
            // Both hold the files that the job replaces. The next job may need their space.
            drop((facts, version));
            if !tasks.iter().all(|task| self.can_share(task)) {
                tasks.truncate(1);
            }
            if tasks.is_empty() {
                break;
            }
            let _planned = self.plan_tasks(&tasks).ok_or_else(|| self.no_room())?;
            // A job is declined if a drop or a flush changed its range in the meantime. This
            // happens at most a few times in a row.
            if self.run_tasks(&tasks)? {
                left.retain_mut(|(id, _, from)| {
                    let Some(task) = tasks.iter().find(|task| task.range.id == *id) else {
                        return true;
                    };
                    let Some(below) = &task.job.below else { return false };
                    // Never lower `from`. If a flush has added a file in the meantime, the new cut
                    // may be below it.
                    if **from < **below {
                        from.clone_from(below);
                    }
                    true
                });
            }
        }
        Ok(())
    }

    fn limits(&self) -> Limits {
        let facts = FileFacts::new(self);
        let options = &self.env().options;
        let bytes = options.run_file_bytes;
        let now = self.env().clock.now();
        let aged_below = match ticks_in(options.tombstone_age) {
            // Space is short, so drop tombstones of any age, together with the entries that they
            // hide.
            _ if self.is_short_of_room() => Seq::MAX,
            0 => Seq::ZERO,
            age => Seq(now.saturating_sub(age)),
        };
        let least = bytes.min(SMALL_RANGE_BYTES);
        let space_limit = self.writer.space_limit.as_ref();
        let space_limit = space_limit.map_or(u64::MAX, |space_limit| {
            space_limit.job_bytes_max(&self.reader().view.load(), least)
        });
        let rests = options.compress_at_rest && cfg!(feature = "zstd");
        Limits {
            sources_max: SOURCES_MAX,
            run_file_bytes_min: bytes / 4,
            run_file_bytes_max: bytes,
            job_bytes_max: bytes.saturating_mul(JOB_RUN_FILES).min(space_limit),
            aged_below,
            seen_below: facts.seen_below(),
            range_tombstone: facts.range_tombstone(),
            flush_bytes: flush_bytes_max(options.memtable_bytes as u64),
            rests_below: if rests { Seq(now.saturating_sub(REST_TICKS)) } else { Seq::ZERO },
            window_bytes: 0,
            small_range_bytes: SMALL_RANGE_BYTES,
            activity: self.activity(),
        }
    }

    /// Returns the limits for `range`.
    fn limits_in(&self, range: &FileRange, limits: &Limits) -> Limits {
        Limits { window_bytes: self.window_bytes(range.table), ..*limits }
    }

    /// Returns the ranges that need a job, the most urgent first and then in key order.
    fn wanting(&self, limits: &Limits) -> Vec<RangeId> {
        let version = Arc::clone(&self.reader().view.load().version);
        let (ranges, facts) = (&version.ranges, FileFacts::new(self));
        let is_same = self.state.ranking.lock().has_looked_at(&version, limits);
        let mut wanting = Vec::new();
        for (place, range) in ranges.iter().enumerate() {
            let readers = || facts.readers(range);
            let unused_now = || facts.unused(range, limits);
            let unused = (!is_same).then(unused_now);
            let known = self.state.ranking.lock().cached(range, limits, unused, readers);
            let urgency = known.unwrap_or_else(|| {
                // Read the load before the pick, so that the cached result expires if the load
                // changes during the pick.
                let readers = readers();
                let job = pick(range, &facts, &self.limits_in(range, limits));
                let reads = || self.env().loads.reads(range.id, self.env().seconds());
                let found = job.map(|job| urgency(&job, sources(range), reads()));
                let unused = unused.unwrap_or_else(unused_now);
                self.state.ranking.lock().record(range, limits, unused, (readers, found));
                found
            });
            wanting.extend(urgency.map(|urgency| (Reverse(urgency), place, range.id)));
        }
        let mut ranking = self.state.ranking.lock();
        ranking.record_look(&version, limits);
        ranking.forget(ranges.len(), |id| ranges.get(id).is_some());
        drop(ranking);
        sort_by(&mut wanting, |a, b| (a.0, a.1).cmp(&(b.0, b.1)));
        wanting.into_iter().map(|(.., id)| id).collect()
    }

    /// Returns the task for `range`, if it needs one. All files of a small range are merged,
    /// because the range shares files with its neighbours.
    fn task(&self, range: &Arc<FileRange>, limits: &Limits) -> Option<Task> {
        let facts = FileFacts::new(self);
        let limits = &self.limits_in(range, limits);
        let mut job = pick(range, &facts, limits)?;
        let is_sound = || range.references().all(|(_, file)| !facts.is_damaged(file));
        let is_small = range.bytes() < SMALL_RANGE_BYTES && limits.window_bytes == 0;
        if is_small && !job.is_join() && is_sound() {
            let young: Vec<FileNumber> = range.young.iter().map(|r| r.file.meta.number).collect();
            let whole = Job::whole(range, &facts, limits, (&young, Seq::MAX), &[]);
            // A merge of the whole range might have to be cut at a key. The cut part might not
            // include the files that were picked, so keep the picked job then.
            if let Some(whole) = whole.filter(|whole| whole.below.is_none()) {
                job = Job { reason: job.reason, ..whole };
            }
        }
        self.outputs_visible_from(range, &job)?;
        Some(Task { range: Arc::clone(range), job })
    }

    /// True if the task may share an edit with tasks of other ranges: it is a join, or it merges
    /// all files of a small range into outputs that all readers see.
    fn can_share(&self, task: &Task) -> bool {
        let Task { range, job } = task;
        let is_small = range.bytes() < SMALL_RANGE_BYTES && job.takes_all_of(range);
        let is_seen = || self.outputs_visible_from(range, job) == Some(Seq::ZERO);
        job.is_join() || is_small && is_seen()
    }

    /// Claims ranges after `id` whose tasks may share an edit with the task of `id`. The caller
    /// must have claimed `id`. Returns the tasks of `id` and of the ranges claimed here.
    fn stretch(&self, version: &Arc<Version>, id: RangeId, limits: &Limits) -> Vec<Task> {
        let (ranges, facts) = (&version.ranges, FileFacts::new(self));
        let first = ranges.get(id).and_then(|range| self.task(range, limits));
        let Some(first) = first else { return Vec::new() };
        let mut tasks = vec![first];
        if !self.can_share(&tasks[0]) {
            return tasks;
        }
        let is_same = self.state.ranking.lock().has_looked_at(version, limits);
        let at = ranges.position(id, 0).unwrap_or(ranges.len());
        let (mut bytes, mut keys) = (tasks[0].job.bytes, 0);
        for range in ranges.iter().skip(at + 1) {
            if tasks.len() >= STRETCH_RANGES
                || bytes >= limits.job_bytes_max
                || keys >= STRETCH_KEY_BYTES
            {
                break;
            }
            // Use the cached result even if the read load is higher now. A job that only the higher
            // load requires need not run in this stretch.
            let unused = (!is_same).then(|| facts.unused(range, limits));
            let known = self.state.ranking.lock().cached(range, limits, unused, || Readers::Few);
            let needs_nothing = known.is_some_and(|urgency| urgency.is_none());
            if needs_nothing || self.is_quarantined(range.id) || !self.state.claim(range.id) {
                continue;
            }
            let is_alike = |task: &Task| {
                let is_rest = |task: &Task| task.job.reason == Reason::Rest;
                let (first, is_join) = (&tasks[0], task.job.is_join());
                first.job.is_join() == is_join
                    && is_rest(first) == is_rest(task)
                    && self.can_share(task)
            };
            match self.task(range, limits).filter(is_alike) {
                Some(task) => {
                    bytes += task.job.bytes;
                    let lows = task.range.references().map(|(_, file)| 2 * file.clip.low.len());
                    keys += lows.sum::<usize>();
                    tasks.push(task);
                }
                None => self.state.release(range.id),
            }
        }
        tasks
    }

    fn release(&self, id: RangeId, ids: &[RangeId]) {
        self.state.release(id);
        ids.iter().filter(|other| **other != id).for_each(|id| self.state.release(*id));
    }

    /// Reserves space for the outputs of `tasks`. Returns `None` if there is too little space.
    fn plan_tasks(&self, tasks: &[Task]) -> Option<Held<'_>> {
        // FIFO eviction may drop inputs during the job. Until the job ends, these still use space
        // in addition to the outputs.
        let times = |task: &Task| if self.is_fifo(task.range.table) { 2 } else { 1 };
        self.plan(tasks.iter().map(|task| times(task) * task.job.bytes).sum())
    }

    /// Runs the tasks and installs their outputs. Returns false if the job was declined, because
    /// its inputs had changed.
    fn run_tasks(&self, tasks: &[Task]) -> Result<bool> {
        let _work = self.state.work()?;
        let since = self.env().clock.monotonic();
        let files = self.write_tasks(tasks)?;
        let done = self.end_tasks(tasks, &files)?;
        let took = self.env().clock.monotonic().saturating_sub(since);
        // Leave out jobs that only speed up reads. They read mostly files of the run, so their pace
        // does not show how fast newly written data is merged.
        if tasks.iter().all(|task| task.job.reason != Reason::Reads) {
            self.writer.backlog.record_merge_pace(tasks.iter().map(Task::young_bytes).sum(), took);
        }
        Ok(done)
    }

    /// Writes the outputs, which no version contains yet (step 2 of
    /// [`compact_one`](Self::compact_one)).
    fn write_tasks(&self, tasks: &[Task]) -> Result<Vec<NewFile>> {
        let Some(Task { job, .. }) = tasks.first().filter(|task| !task.job.is_join()) else {
            return Ok(Vec::new());
        };
        let options = &self.env().options;
        let (file_bytes, codec) = match job.placement {
            Placement::Run if job.reason == Reason::Rest => (options.run_file_bytes, Codec::Zstd),
            Placement::Run => (options.run_file_bytes, options.codec_run),
            // The size of a young output is not limited, because reads would have to search each of
            // several young files.
            Placement::Young => (u64::MAX, Codec::None),
        };
        // The boundaries matter only if several ranges share the outputs.
        let cut = Cut { file_bytes, boundary_bytes: SMALL_RANGE_BYTES };
        let boundaries = Boundaries::of(tasks.iter().map(|task| &task.range));
        let mut output = OutputWriter::new(self, cut, (codec, Cause::Compaction), boundaries);
        for task in tasks {
            self.merge(task, &mut output).inspect_err(|error| {
                if error.kind() == ErrorKind::Corruption {
                    self.quarantine(&task.range, error);
                }
            })?;
        }
        let spent = output.spent;
        let mut files = output.finish()?;
        // Snapshots may have been released since the pick, but none with an older Seq was added. So
        // each call still returns a Seq.
        let visible_from = tasks.iter().map(|t| self.outputs_visible_from(&t.range, &t.job));
        let visible_from = visible_from.flatten().max().unwrap_or_default();
        for file in &mut files {
            file.meta.visible_from = visible_from;
            // The inputs may be cold, and then the pages of the output are better evicted first.
            file.open(self.env(), false);
        }
        self.state.record_spent(spent);
        Ok(files)
    }

    /// Installs the outputs (step 3 of [`compact_one`](Self::compact_one)). Returns false if the
    /// job was declined.
    fn end_tasks(&self, tasks: &[Task], files: &[NewFile]) -> Result<bool> {
        let installed = self.install_tasks(tasks, files);
        match &installed {
            Ok(true) => {
                let jobs: Vec<&Job> = tasks.iter().map(|task| &task.job).collect();
                self.record_bare(tasks);
                self.state.record_compaction(&jobs, files);
                self.emit_compacted(&jobs, files);
            }
            // No version contains the outputs, so remove them.
            Ok(false) => self.discard(files),
            Err(error) => self.discard_files(files, error),
        }
        installed
    }

    /// Records each range whose young files were all merged into the run, so that the load
    /// statistics know that reads there search only the run.
    fn record_bare(&self, tasks: &[Task]) {
        let version = Arc::clone(&self.reader().view.load().version);
        for Task { range, job } in tasks {
            let is_gone = |range: &Arc<FileRange>| {
                let mut young = range.young.iter().map(|file| file.file.meta.number);
                young.all(|number| !job.young.contains(&number))
            };
            // If the edit left out the range, its young files remain.
            if job.leaves_the_run_of(range) && version.ranges.get(range.id).is_some_and(is_gone) {
                self.env().loads.record_merged(range.id);
            }
        }
    }
}

/// A job whose outputs are written but not yet installed.
#[cfg(feature = "sim")]
pub(crate) struct Compaction {
    tasks: Vec<Task>,
    files: Vec<NewFile>,
}

/// Runs a job in two steps, for simulations. Other operations may run between the two steps, except
/// another job of the same range.
#[cfg(feature = "sim")]
impl Maintenance {
    /// Picks and claims the most urgent job and writes its outputs.
    pub(crate) fn begin_compaction(&self) -> Result<Option<Compaction>> {
        let limits = self.limits();
        let wanting = self.wanting(&limits).into_iter();
        let Some(id) = wanting.into_iter().find(|id| !self.is_quarantined(*id)) else {
            return Ok(None);
        };
        if !self.state.claim(id) {
            return Ok(None);
        }
        let version = Arc::clone(&self.reader().view.load().version);
        let tasks = self.stretch(&version, id, &limits);
        if tasks.is_empty() || self.plan_tasks(&tasks).is_none() {
            self.release(id, &ids_of(&tasks));
            return Ok(None);
        }
        let files = self.write_tasks(&tasks).inspect_err(|_| self.release(id, &ids_of(&tasks)))?;
        Ok(Some(Compaction { tasks, files }))
    }

    /// Installs the job. Returns false if it was declined.
    pub(crate) fn finish_compaction(&self, compaction: &Compaction) -> Result<bool> {
        let Compaction { tasks, files } = compaction;
        let ended = self.end_tasks(tasks, files);
        tasks.iter().for_each(|task| self.state.release(task.range.id));
        ended
    }
}

impl Maintenance {
    fn merge(&self, task: &Task, output: &mut OutputWriter<'_>) -> Result<()> {
        let Task { range, job } = task;
        let below = Span::new(&[], job.below.as_deref());
        let taken = |input: &FileReference| {
            let clip = input.clip.intersect(&below)?;
            Some(FileReference::new(Arc::clone(&input.file), clip, None))
        };
        let young: Vec<FileReference> = young_inputs(range, job).filter_map(taken).collect();
        let run: Vec<FileReference> = run_inputs(range, job).filter_map(taken).collect();
        let entries = Merge::over_files(self.env(), &young, &run)?;
        let older = older_sources(range, job);
        let holds_older = move |key: &[u8]| older.iter().any(|clip| clip.contains(key));
        let retention = self.retention(&range.span, holds_older);
        output.write(entries, retention, |bytes| self.wait_for_quota(bytes))
    }

    /// Returns the Seq from which on readers may see the outputs, or `None` if the job must wait.
    /// It must wait if imported inputs are visible only from a later Seq, while other inputs hold
    /// older commits. In this case no single Seq is right for all snapshots.
    fn outputs_visible_from(&self, range: &FileRange, job: &Job) -> Option<Seq> {
        let came = |file: &FileReference| file.file.meta.visible_from;
        let from = inputs(range, job).map(came).max().unwrap_or_default();
        if job.is_join() || from == Seq::ZERO || self.reader().horizon().all_see(from) {
            return Some(Seq::ZERO);
        }
        let is_later = |file: &FileReference| came(file) == from || file.file.meta.seq_min >= from;
        inputs(range, job).all(is_later).then_some(from)
    }

    /// Waits while a flush needs the disk, and as long as the rate limit requires. A job calls this
    /// at intervals with the bytes that it has written since the last call. Returns an error, which
    /// ends the job, when the database is closing or poisoned by a failed write.
    fn wait_for_quota(&self, written: u64) -> Result<()> {
        let wait = self.state.pace.lock().take(written, self.env().clock.monotonic());
        if self.executor.is_threaded() {
            self.state.wait_for_turn(wait, || self.executor.is_stopping());
        }
        if self.executor.is_stopping() {
            return Err(closed());
        }
        self.writer.group_commit.lock().check()
    }

    /// Installs the outputs. Returns false if no task is left, because the version has changed too
    /// much.
    fn install_tasks(&self, tasks: &[Task], files: &[NewFile]) -> Result<bool> {
        let facts = FileFacts::new(self);
        let rest_of =
            |task: &Task| remainders(&task.range, &task.job, |rest| facts.part(rest).bytes);
        let rests: Vec<_> = tasks.iter().flat_map(rest_of).collect();
        let mut manifest = self.install.lock();
        let version = Arc::clone(manifest.version());
        let Some(exchanged) = exchange(&version, tasks, files, &rests) else { return Ok(false) };
        let Exchange { edit, gone, unused } = exchanged;
        let version = self.append_edit(&mut manifest, &edit)?;
        files.iter().for_each(|file| file.hand_over(&version));
        self.reader().change_view(|view| view.with_version(&version, None));
        drop(manifest);
        self.state.retire(gone);
        unused.into_iter().for_each(|file| self.env().discard(FileName::Sst(file)));
        Ok(true)
    }
}

fn ids_of(tasks: &[Task]) -> Vec<RangeId> {
    tasks.iter().map(|task| task.range.id).collect()
}

/// True if merging all files could shrink the range: it has young files, tombstones, or files with
/// a part that no range references.
fn is_unmerged(range: &FileRange, version: &Version) -> bool {
    let is_part = |file: &FileReference| {
        let meta = &file.file.meta;
        let counted = version.used_bytes(meta.number);
        // The sizes of references are estimates, so allow for an error of 1/16.
        !is_whole(file) && counted < meta.bytes - meta.bytes / 16
    };
    let has_spent = |file: &FileReference| file.file.meta.tombstones > 0;
    !range.young.is_empty() || range.run.iter().any(|file| is_part(file) || has_spent(file))
}

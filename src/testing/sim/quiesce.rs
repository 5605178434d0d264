//! Checks the database after faults have ended, time has passed and background work has finished.
//!
//! Invariants
//! * background work ends, and leaves nothing undone;
//! * every commit is visible and durable, whatever durability was requested;
//! * memory, files and the number of files that a read examines are within their bounds; no files
//!   are left over.

use std::time::Duration;

use crate::db::Stats;
use crate::fs::MemFs;

use super::counts::Event;
use super::engine::PATH;
use super::oracle::differences;
use super::runner::{Outcome, Runner, line, none_of};

/// The number of background steps after which the work counts as endless.
const STEPS_MAX: usize = 2000;
/// The maximum number of memtables, active and frozen.
const MEMTABLES_MAX: u64 = 3;
/// The maximum number of files that a read examines: all young files, and one file of the sorted
/// run.
const SOURCES_MAX: u64 = 8;
/// The maximum number of files other than tables and logs: LOCK, CURRENT, manifest and next log.
const OTHER_FILES_MAX: u64 = 4;
/// The bytes by which a memtable may exceed its limit: the group that filled it, and its hash
/// tables.
const MEMTABLE_SLACK: u64 = 64 << 10;

impl Runner {
    /// Lets time pass, runs background work until there is none, and checks the result.
    pub(super) fn settle(&mut self) -> Outcome {
        if self.is_troubled() {
            return line("not during troubles");
        }
        // This time exceeds the delay after which commits that are not durable yet are synced, and
        // the delay after which failures are retried.
        let waits = self.engine.config.commit_delay();
        self.engine.clock.advance(waits + Duration::from_secs(3));
        let steps = (0..STEPS_MAX).take_while(|_| self.engine.db().step(Duration::ZERO)).count();
        if self.engine.power.is_gone() {
            return Ok(Vec::new());
        }
        if steps == STEPS_MAX {
            return Err(format!("settle: background work does not end after {STEPS_MAX} steps"));
        }
        let visible = self.visible()?;
        if visible < self.oracle.commits() {
            let commits = self.oracle.commits();
            return Err(format!("settle: {visible} of {commits} commits are visible"));
        }
        self.oracle.all_durable();
        self.check_bounds()?;
        self.counts.note(Event::Settled);
        Ok(Vec::new())
    }

    fn check_bounds(&self) -> Result<(), String> {
        let stats = self.engine.db().stats();
        let config = &self.engine.config;
        let stat = |name: &str| stats.get(name).unwrap_or_default();
        // While a snapshot from before an import exists, imported files are not merged with older
        // files.
        let waits = self.counts.get(Event::Moved) > 0 && !self.snapshots.is_empty();
        // Files are also not merged if the limit on disk use leaves no space for the result.
        let waits = waits || config.cap.is_some();
        let sources_max = if waits { u64::MAX } else { SOURCES_MAX };
        let memtable_bytes = MEMTABLES_MAX * (config.memtable_bytes as u64 + MEMTABLE_SLACK);
        let bounds = [
            ("trouble", 0),
            ("memtables", MEMTABLES_MAX),
            ("memtable_bytes", memtable_bytes),
            ("cache_bytes", config.cache_bytes as u64),
            ("sources_max", sources_max),
        ];
        for (name, bound) in bounds {
            if stat(name) > bound {
                return Err(format!("settle: {name} is {}, at most {bound}", stat(name)));
            }
        }
        self.check_wear()?;
        self.check_files(&stats)
    }

    /// Checks that no tombstones are left. Requires that everything was compacted while no older
    /// snapshot or iterator was open.
    pub(super) fn check_compacted(&self) -> Result<(), String> {
        match self.engine.db().stats().get("tombstones").unwrap_or_default() {
            0 => Ok(()),
            left => Err(format!("settle: {left} tombstones are left when all is merged")),
        }
    }

    fn check_files(&self, stats: &Stats) -> Result<(), String> {
        // Open readers keep old files, whose number is not bounded.
        if !self.snapshots.is_empty() || !self.iterators.is_empty() {
            return Ok(());
        }
        let mut paths = self.engine.fs.paths();
        paths.retain(|path| path.starts_with(PATH));
        let stat = |name: &str| stats.get(name).unwrap_or_default();
        let named = ["files", "logs", "kept_logs"].map(stat);
        let others_max = OTHER_FILES_MAX + self.engine.unused_logs() as u64;
        if paths.len() as u64 > named.iter().sum::<u64>() + others_max {
            let [tables, logs, kept] = named;
            let named = format!("{tables} tables, {logs} logs and {kept} kept logs");
            return Err(format!("settle: {named}, and left over: {paths:?}"));
        }
        Ok(())
    }

    /// Adds what the engine counted since its opening to the counts of the run.
    pub(super) fn record_engine(&mut self) {
        if !self.engine.is_open() {
            return;
        }
        let stats = self.engine.db().stats();
        let stat = |name: &str| stats.get(name).unwrap_or_default();
        self.counts.add(Event::Flush, stat("flushes"));
        self.counts.add(Event::Compaction, stat("compactions"));
        self.counts.add(Event::RangeSplit, stat("range_splits"));
        self.counts.add(Event::RangeMerge, stat("range_merges"));
        self.counts.add(Event::GapPassed, stat("gaps_passed"));
    }

    pub(super) fn sync(&mut self) -> Outcome {
        let synced = self.engine.db().sync();
        if synced.is_ok() {
            self.oracle.all_durable();
        }
        self.excuse(synced)
    }

    /// Makes a checkpoint, opens it, compares it, and removes it.
    pub(super) fn checkpoint(&mut self) -> Outcome {
        self.copies += 1;
        let path = format!("copy{}", self.copies);
        let made = self.engine.db().checkpoint(&path);
        let is_made = made.is_ok();
        let lines = self.excuse(made)?;
        if is_made && !self.engine.power.is_gone() {
            // Once a checkpoint is acknowledged, it must be complete even after a power cut.
            self.compare_copy(&self.engine.fs.crash_image(self.copies), &path)?;
            self.compare_copy(&self.engine.fs.clone(), &path)?;
            if self.engine.is_incarnation_of(&self.engine.fs, &path) {
                return Err("checkpoint: the copy has the incarnation of the database".into());
            }
        }
        let fs = &self.engine.fs;
        for file in fs.paths().iter().filter(|file| file.starts_with(&path)) {
            fs.erase(file).map_err(|error| format!("checkpoint: {error}"))?;
        }
        Ok(lines)
    }

    fn compare_copy(&mut self, fs: &MemFs, path: &str) -> Result<(), String> {
        // The checkpoint has all submitted commits, because it flushes first.
        let visible = self.visible()?;
        let expected = self.oracle.at(visible).into_owned();
        match self.engine.look_at(fs, path) {
            Ok((state, problems)) => {
                let mut wrong = differences(&expected, &state);
                wrong.extend(problems.into_iter().filter(|p| !self.is_excused_problem(p)));
                self.counts.note(Event::Checkpoint);
                none_of(wrong, "checkpoint")
            }
            Err(error) if self.is_excused(&error) => Ok(()),
            Err(error) => Err(format!("checkpoint: {error:?}")),
        }
    }
}

//! Inspects a database for users and for `check`: verifies files and logs as they are on disk, and
//! collects counters.
//!
//! Not here: copies of pinned files (`checkpoint`).

use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::format::edit::{LogMeta, Wear};
use crate::format::file_meta::FileMeta;
use crate::format::names::FileName;
use crate::format::record::{LogKind, Position};
use crate::format::wal::WalRecord;
use crate::log::{LogReader, RecordView, StopReason};
use crate::manifest::{FileEntry, FileRange};
use crate::options::Durability;
use crate::ranges::Range;
use crate::sst::{Sst, SstFacts};
use crate::sync::Ordering;

use super::change_log::all_logs;
use super::replay::decode;
use crate::lsm::background::maintenance::Maintenance;
use crate::lsm::background::new_file::share;
use crate::lsm::read::log_files::LogFiles;
use crate::lsm::read::view::View;
use crate::lsm::{Engine, Env};

/// The flash page size that `Stats` assumes, in bytes. Most flash has pages of this size.
const FLASH_PAGE_BYTES: u64 = 16 << 10;

/// Inspects an open database.
pub(crate) struct Inspector<'e>(&'e Maintenance);

impl<'e> Inspector<'e> {
    pub(crate) fn new(engine: &'e Engine) -> Self {
        Self(engine.maintenance())
    }

    /// Reads and checks one whole file as it is on disk now. A damaged file is quarantined.
    pub(crate) fn verify_file(
        &self,
        file: &FileEntry,
        progress: &mut dyn FnMut(u64),
    ) -> Result<SstFacts> {
        let facts = match file.opened().filter(|_| self.0.is_reader) {
            // A writer may have removed the file since.
            Some(sst) => sst.verify(progress),
            None => self.0.env().verify_sst(&file.meta, progress),
        };
        let facts = facts.map_err(|error| error.of_keys(|| file.keys()));
        match &facts {
            Ok(facts) => {
                let worst = facts.problems.first().cloned().map(Error::damage);
                worst.iter().for_each(|error| file.record_damage(error));
            }
            // An error of the disk while reading the file is treated like damage.
            Err(error) if matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Io) => {
                file.record_damage(error);
            }
            Err(_) => {}
        }
        facts
    }

    /// Reads the durable part of the manifest again and returns its number of records.
    pub(crate) fn verify_manifest(&self) -> Result<u64> {
        let (end, path) = {
            let manifest = self.0.install.lock();
            match manifest.replaced()? {
                // The writer has begun a new manifest.
                Some(_) if self.0.is_reader => return Ok(0),
                Some(error) => return Err(error),
                None => {}
            }
            let end = manifest.position();
            (end, self.0.env().dir.join(FileName::Manifest(end.file).to_string()))
        };
        match read_to(self.0.env(), &path, LogKind::Manifest, end) {
            // The manifest was rolled over in the meantime, so this file is no longer in use.
            Err(_) if self.0.install.lock().position().file != end.file => Ok(0),
            Err(_) if self.0.is_reader && matches!(self.0.env().fs.exists(&path), Ok(false)) => {
                Ok(0)
            }
            result => result,
        }
    }

    /// Returns the reason to suspect that edits were lost before opening; `None` if there is none.
    pub(crate) fn doubt(&self) -> Option<String> {
        self.0.install.lock().doubt().map(str::to_owned)
    }

    /// Reads every log that recovery or the change feed would read. Returns the number of records
    /// and the problems found.
    pub(crate) fn verify_logs(&self) -> (u64, Vec<Error>) {
        let active = self.0.writer.group_commit.lock().queue.position();
        // After a failed write the end of the active log is unknown, so only its readable part is
        // checked.
        let is_written = self.0.writer.group_commit.flush(Durability::Buffered).is_ok();
        let logs = all_logs(self.0.install.lock().version());
        let (mut records, mut problems) = (0, Vec::new());
        for (i, log) in logs.iter().enumerate() {
            let path = self.0.env().dir.join(FileName::Wal(log.number).to_string());
            let is_gone = || !all_logs(self.0.install.lock().version()).contains(log);
            let is_active = is_written && log.number == active.file;
            let next = || logs.get(i + 1).and_then(|next| self.end_by_next(*log, *next));
            let offset = if is_active { active.offset } else { next().unwrap_or(0) };
            match read_to(self.0.env(), &path, LogKind::Wal, Position { file: log.number, offset })
            {
                Ok(count) => records += count,
                // The log was flushed in the meantime and removed, perhaps by another process.
                Err(_) if is_gone() => {}
                Err(_)
                    if self.0.is_reader && matches!(self.0.env().fs.exists(&path), Ok(false)) => {}
                Err(error) => problems.push(error),
            }
        }
        (records, problems)
    }

    /// Returns the end of `log` that the first record of `next` states.
    fn end_by_next(&self, log: LogMeta, next: LogMeta) -> Option<u64> {
        let (env, lens) = (self.0.env(), None);
        let files = LogFiles { fs: &*env.fs, dir: &env.dir, logs: &[], lens };
        let (open, ..) = files.first_record(next).ok().flatten()?;
        Some(open.predecessor.filter(|p| p.number == log.number && p.id == log.id)?.accepted_end)
    }

    /// Returns the bytes written to the medium. In a read-only session, these are the bytes that
    /// the last edit of the manifest stated.
    pub(crate) fn wear(&self) -> Wear {
        if self.0.is_reader {
            return self.0.env().meter.account().wear;
        }
        self.0.writer.group_commit.lock().queue.account_user_bytes(&self.0.env().meter);
        self.0.env().meter.account().wear
    }

    /// Collects counters and sizes, which `Stats::fields` documents.
    pub(crate) fn stats(&self) -> Vec<(&'static str, u64)> {
        let view = self.0.reader().view.load_full();
        let files = || view.version.files().map(|file| &file.meta);
        let ranges = || view.version.ranges.iter();
        let most = |of: fn(&FileRange) -> u64| ranges().map(|range| of(range)).max().unwrap_or(0);
        let counters = self.0.counters();
        let file_bytes = files().map(|meta| meta.bytes).sum();
        let quarantined = self.0.quarantined().len() as u64;
        let (wear, table_bytes) = (self.wear(), counters.flush_bytes + counters.compaction_bytes);
        let (commits, written, syncs) = {
            let queue = &self.0.writer.group_commit.lock().queue;
            (queue.commits, queue.written, queue.syncs)
        };
        let mut fields = vec![
            ("files", files().count() as u64),
            ("open_files", view.version.files().filter_map(|file| file.opened()).count() as u64),
            ("file_bytes", file_bytes),
            ("raw_bytes", files().map(|meta| meta.raw_bytes).sum()),
            ("entries", files().map(|meta| meta.entries).sum()),
            ("tombstones", files().map(|meta| meta.tombstones).sum()),
            ("ranges", ranges().len() as u64),
            ("range_bytes_max", most(Range::bytes)),
            ("sources_max", most(|range| range.depth() as u64)),
            ("scan_sources_max", most(|range| range.chain_count() as u64)),
            ("memtables", view.memtables.len() as u64),
        ];
        fields.extend(self.memory(&view).into_iter().chain(self.disk_fields()));
        fields.extend([
            ("logs", self.log_count(&view) as u64),
            ("kept_logs", view.version.kept_logs.len() as u64),
            ("kept_log_bytes", view.version.kept_log_bytes()),
            ("commits", commits),
            ("log_bytes", written),
            ("log_syncs", syncs),
            ("flushes", counters.flushes),
            ("flush_bytes", counters.flush_bytes),
            ("compactions", counters.compactions),
            ("compaction_bytes_read", counters.compaction_bytes_read),
            ("compaction_bytes", counters.compaction_bytes),
            ("compaction_run_bytes", counters.run_bytes),
            ("compaction_young_bytes", counters.young_bytes),
            ("compaction_rest_bytes", counters.rest_bytes),
            ("compaction_jobs", counters.jobs),
            ("compaction_jobs_partial", counters.partial_jobs),
            ("compaction_jobs_forced", counters.forced_jobs),
            ("joins", counters.joins),
            ("tombstones_dropped", counters.tombstones_dropped),
            ("write_amplification_percent", percent(table_bytes + written, written)),
            (
                "space_amplification_percent",
                percent(file_bytes, ranges().map(|r| live_bytes(r)).sum::<u64>().max(1))
                    .min(SPACE_AMPLIFICATION_MAX),
            ),
            ("wear_user_bytes", wear.user_bytes),
            ("wear_bytes", wear.written()),
            ("wear_syncs", wear.syncs()),
            ("wear_flash_bytes", wear.flash_bytes(FLASH_PAGE_BYTES)),
            ("stalls", counters.stalls),
            ("stall_micros", counters.stall_micros),
            ("files_removed", counters.files_removed),
            ("range_splits", counters.splits),
            ("range_merges", counters.merges),
            ("gaps_passed", self.0.env().gaps.passed()),
            ("fences", view.range_tombstones.len() as u64),
            ("expiry_lag_seconds", self.0.expiry_lag().as_secs()),
            ("quarantined_files", quarantined),
            ("trouble", u64::from(quarantined > 0 || self.0.trouble().is_some())),
        ]);
        fields
    }

    fn log_count(&self, view: &View) -> usize {
        // The memtables of a follower do not name their logs.
        match self.0.is_reader {
            true => view.version.logs.len(),
            false => view.memtables.iter().map(|slot| slot.logs.len()).sum(),
        }
    }

    /// Returns the fields about the limit on disk use; all zero if no limit is set.
    fn disk_fields(&self) -> [(&'static str, u64); 5] {
        let [used, limit, refusals, files, bytes] = self.0.disk_use().unwrap_or_default();
        [
            ("disk_bytes", used),
            ("disk_limit_bytes", limit),
            ("disk_refusals", refusals),
            ("oldest_files_dropped", files),
            ("oldest_bytes_dropped", bytes),
        ]
    }

    /// Returns the memory use in bytes, by part and in total.
    fn memory(&self, view: &View) -> [(&'static str, u64); 7] {
        let memtables: usize = view.memtables.iter().map(|slot| slot.memtable.bytes()).sum();
        let parts = [
            ("memtable_bytes", memtables),
            ("cache_bytes", self.0.env().sst.cache.bytes()),
            ("log_buffer_bytes", self.0.writer.group_commit.lock().queue.memory_bytes()),
            ("index_bytes", view.version.files().map(|file| file.memory_bytes()).sum()),
            ("shape_bytes", self.0.env().shapes.memory_bytes()),
            ("writer_bytes", self.0.state.writing.load(Ordering::Relaxed)),
        ];
        let [a, b, c, d, e, f] = parts.map(|(name, bytes)| (name, bytes as u64));
        [a, b, c, d, e, f, ("memory_bytes", parts.iter().map(|(_, bytes)| *bytes as u64).sum())]
    }
}

/// Returns `part` of `whole` in percent, or 0 if `whole` is 0.
fn percent(part: u64, whole: u64) -> u64 {
    let percent = (u128::from(part) * 100).checked_div(u128::from(whole));
    percent.map_or(0, |percent| u64::try_from(percent).unwrap_or(u64::MAX))
}

/// The largest value of `space_amplification_percent`, for files without live data.
const SPACE_AMPLIFICATION_MAX: u64 = 10_000;

/// Estimates the bytes of live data in the range. Each tombstone hides one row; other rows are not
/// known to be dead. Assumes that rows have the same size, and that tombstones have none.
fn live_bytes(range: &FileRange) -> u64 {
    let (mut bytes, mut rows, mut hidden) = (0_u64, 0_u64, 0_u64);
    for (_, reference) in range.references() {
        let meta = &reference.file.meta;
        let part = |entries| share(entries, reference.bytes, meta.bytes);
        bytes += reference.bytes;
        rows += part(meta.entries.saturating_sub(meta.tombstones));
        hidden += part(meta.tombstones);
    }
    share(bytes, rows.saturating_sub(hidden), rows)
}

/// Reads the records of a log file, which must reach `end`. Returns their number.
fn read_to(env: &Env, path: &Path, kind: LogKind, end: Position) -> Result<u64> {
    let mut reader = LogReader::open(&*env.fs, path, kind, None)?;
    let mut records = 0;
    while reader.position().offset < end.offset || end.offset == 0 {
        let Some(record) = reader.next()? else { break };
        if kind == LogKind::Wal {
            check_payload(path, &record)?;
        }
        records += 1;
    }
    let stopped = reader.position().offset;
    if stopped < end.offset {
        let problem = match reader.stop() {
            Some(StopReason::Bad(error)) => error.to_string(),
            _ => format!("the records end here, expected up to {}", end.offset),
        };
        return Err(Error::corrupt(path, stopped, "record", problem));
    }
    Ok(records)
}

fn check_payload(path: &Path, record: &RecordView<'_>) -> Result<()> {
    match decode(path, record)? {
        WalRecord::Group(group) | WalRecord::Catalog(group) => {
            let damage = |text| Error::corrupt(path, record.payload_offset(), "wal group", text);
            group.check(record.seq).map_err(damage)
        }
        _ => Ok(()),
    }
}

impl Env {
    /// Reads and checks a whole file through a new handle, so that nothing cached is used.
    pub(in crate::lsm) fn verify_sst(
        &self,
        meta: &FileMeta,
        progress: &mut dyn FnMut(u64),
    ) -> Result<SstFacts> {
        Sst::open(&*self.fs, &self.dir, meta, &self.sst)?.verify(progress)
    }
}

//! Decides which logs and which records of imports are retained for the change feed although
//! recovery no longer needs them.
//!
//! Invariants
//! * The retained logs are the newest part of the history, without a gap: when a log is removed, so
//!   are all older ones.
//! * The manifest names each retained log. A log is deleted only after the edit that removes its
//!   name is durable.
//!
//! `change_log` reads the logs; `options` sets how much is retained.

use std::sync::Arc;

use crate::clock::ticks_in;
use crate::error::Result;
use crate::format::edit::{Import, KeptLog, LogMeta, VersionEdit};
use crate::format::names::{FileName, FileNumber};
use crate::manifest::Version;
use crate::model::Seq;

use super::maintenance::Maintenance;
use crate::lsm::read::log_files::LogFiles;

impl Maintenance {
    /// Returns the part of a flush's edit that decides which logs are retained for the change feed.
    /// Candidates are the logs retained so far, and `logs`, which recovery no longer needs. All
    /// commits in these logs are at or below `flushed`.
    pub(in crate::lsm) fn history(
        &self,
        version: &Version,
        logs: &[FileNumber],
        flushed: Seq,
    ) -> VersionEdit {
        let mut edit = VersionEdit::default();
        if !self.keeps(version, 0, flushed) {
            // Not even the newest log may be retained.
            edit.forget_logs = version.kept_logs.iter().map(|kept| kept.log.number).collect();
            edit.forget_imports = self.imports_before(version, logs, &edit);
            return edit;
        }
        let old = version.kept_logs.iter().map(|kept| (*kept, false));
        let new = version.logs.iter().filter(|log| logs.contains(&log.number));
        let new = new.map(|log| (self.to_keep(*log, flushed), true));
        let all: Vec<_> = old.chain(new).collect();
        let (mut bytes, mut is_full) = (0u64, false);
        for (kept, is_new) in all.into_iter().rev() {
            bytes = bytes.saturating_add(kept.bytes);
            is_full |= !self.keeps(version, bytes, kept.last);
            match (is_full, is_new) {
                (false, true) => edit.keep_logs.insert(0, kept),
                (false, false) | (true, true) => {}
                (true, false) => edit.forget_logs.push(kept.log.number),
            }
        }
        let ascend = |a: &KeptLog, b: &KeptLog| a.log.number < b.log.number;
        debug_assert!(edit.keep_logs.is_sorted_by(ascend), "kept logs ascend");
        edit.forget_imports = self.imports_before(version, logs, &edit);
        edit
    }

    /// Removes retained logs that exceed the bounds. Flushes normally do this, but near the limit
    /// on disk use a flush may be impossible. Returns true if any log was removed.
    pub(in crate::lsm) fn forget_kept_logs(&self) -> Result<bool> {
        if self.reader().view.load().version.kept_logs.is_empty() {
            return Ok(false);
        }
        let mut manifest = self.install.lock();
        let version = Arc::clone(manifest.version());
        let edit = self.history(&version, &[], version.flushed_seq);
        if edit.forget_logs.is_empty() {
            return Ok(false);
        }
        let version = self.append_edit(&mut manifest, &edit)?;
        self.reader().change_view(|view| view.with_version(&version, None));
        drop(manifest);
        edit.forget_logs.iter().for_each(|log| self.env().discard(FileName::Wal(*log)));
        Ok(true)
    }

    /// Returns the imports that no reader of the change feed needs any more. Let K be the oldest
    /// log that remains after `edit`, and P the log before K. An import is returned if its Seq is
    /// at or below the last Seq before K, unless it was made while P was the active log.
    ///
    /// The oldest remaining log alone does not decide this. A reader that has read a removed log to
    /// its end continues with the next log without noticing the removal, and still needs the
    /// imports made after the last commit of that log.
    fn imports_before(
        &self,
        version: &Version,
        logs: &[FileNumber],
        edit: &VersionEdit,
    ) -> Vec<Seq> {
        if version.imports.is_empty() {
            return Vec::new();
        }
        let kept = version.kept_logs.iter().map(|kept| kept.log);
        let kept = kept.filter(|log| !edit.forget_logs.contains(&log.number));
        let kept = kept.chain(edit.keep_logs.iter().map(|kept| kept.log));
        let others = version.logs.iter().filter(|log| !logs.contains(&log.number)).copied();
        let oldest = kept.chain(others).next();
        let (env, lens) = (self.env(), None);
        let files = LogFiles { fs: &*env.fs, dir: &env.dir, logs: &[], lens };
        // If K is still empty or cannot be read, a later flush removes the imports.
        let first = oldest.and_then(|log| files.first_record(log).ok().flatten());
        let Some((open, _, begins)) = first else { return Vec::new() };
        let before = open.predecessor.map(|log| log.number);
        let is_over = |import: &&Import| {
            import.seq <= begins && before.is_none_or(|before| import.at.file < before)
        };
        version.imports.iter().filter(is_over).map(|import| import.seq).collect()
    }

    fn to_keep(&self, log: LogMeta, last: Seq) -> KeptLog {
        let path = self.env().dir.join(FileName::Wal(log.number).to_string());
        // A log whose length cannot be read must not block a flush, so count it as empty.
        let bytes = self.env().fs.open_read(&path).and_then(|file| file.len()).unwrap_or_default();
        KeptLog { log, bytes, last }
    }

    /// True if the newest logs may be retained. Together they have `bytes` bytes, and the last
    /// commit in the oldest of them is `last`.
    fn keeps(&self, version: &Version, bytes: u64, last: Seq) -> bool {
        let options = &self.env().options;
        let is_young = |age| last.0.saturating_add(ticks_in(age)) >= self.env().clock.now();
        let share = self.kept_logs_max();
        match (options.keep_changes_bytes, options.keep_changes_for) {
            (None, None) => {
                options.keep_changes_on && !version.kept_logs.is_empty() && bytes <= share
            }
            (most, age) => bytes <= most.unwrap_or(share) && age.is_none_or(is_young),
        }
    }
}

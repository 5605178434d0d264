//! What is kept for the change feed: logs that recovery no longer needs, and where rows came in as files.
//!
//! Invariants
//! * what is kept is the newest part of the history, without a gap: a log is forgotten with all that are older;
//! * a log that is kept is named in the manifest, and its file stays until an edit that forgets it is durable.
//!
//! Not here: reading it (`change_log`), how much is kept (`options`).

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
    /// The part of a flush's edit that says which of the logs that are kept already, and of `wal_switch`, which recovery needs no
    /// more, stay for the change feed. All commits in them are up to `flushed`.
    pub(in crate::lsm) fn history(
        &self,
        version: &Version,
        logs: &[FileNumber],
        flushed: Seq,
    ) -> VersionEdit {
        let mut edit = VersionEdit::default();
        if !self.keeps(version, 0, flushed) {
            // Not even the newest one.
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
        edit.forget_imports = self.imports_before(version, logs, &edit);
        edit
    }

    /// Forgets kept logs that may go: otherwise a flush does, and near the limit on disk use there may be none any more. True
    /// if there were some.
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

    /// The imports that nobody can ask for any more: those up to the Seq behind which the oldest log begins that `edit`
    /// leaves. Where an import stands does not tell: behind the last commit of a log that goes it comes before the first of
    /// the next one, which whoever has read the one before still begins with. One of the log before that stays as well: who
    /// has just read that to its end goes on behind it without having seen the log go.
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
        let files = LogFiles { fs: &*self.env().fs, dir: &self.env().dir, logs: &[] };
        // A log in which nothing stands yet, or that cannot be read: a later flush will tell.
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
        // A length that cannot be had does not keep a flush from going on.
        let bytes = self.env().fs.open_read(&path).and_then(|file| file.len()).unwrap_or_default();
        KeptLog { log, bytes, last }
    }

    /// True if `bytes` of logs may be kept, the oldest of which ends at `last`.
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

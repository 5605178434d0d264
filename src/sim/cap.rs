//! The limit on disk use: what is counted is what the files take, that is never more than the limit, and what is refused for
//! it was not done.
//!
//! Not here: full disks (`trouble`).

use crate::error::{Error, ErrorKind};

use super::counts::Event;
use super::engine::PATH;
use super::oracle::Change;
use super::runner::{Outcome, Runner};
use super::step::Step;

/// What refusals for the limit name.
const OPTION: &str = "Options::max_disk";

impl Runner {
    /// True for a refusal for the limit, not for a full disk.
    pub(super) fn is_of_cap(&self, error: &Error) -> bool {
        let is_capped = self.engine.config.cap.is_some();
        is_capped && error.kind() == ErrorKind::StorageFull && error.chain().contains(OPTION)
    }

    /// True if `change` may be refused for the limit, and was.
    pub(super) fn is_near_cap(&mut self, error: &Error, change: &Change) -> Result<bool, String> {
        if !self.is_of_cap(error) {
            return Ok(false);
        }
        if matches!(change, Change::Drop(_) | Change::DropRange { .. } | Change::Expire { .. }) {
            return Err(format!("cap: what makes room is refused: {error:?}"));
        }
        if let Some([used, limit, _]) = self.engine.db().engine().disk_use()
            && used < limit / 3
        {
            return Err(format!("cap: {used} of {limit} bytes are used, and it says {error:?}"));
        }
        self.counts.note(Event::Capped);
        Ok(true)
    }

    /// What is in memory always fits.
    pub(super) fn flush(&mut self) -> Outcome {
        let flushed = self.engine.db().flush();
        if let Err(error) = &flushed
            && self.is_of_cap(error)
            && !self.is_disk_troubled()
        {
            return Err(format!("cap: a flush has no room: {error:?}"));
        }
        self.excuse(flushed)
    }

    /// See the module.
    pub(super) fn check_cap(&self) -> Result<(), String> {
        if !self.engine.is_open() || self.may_differ_on_disk() {
            return Ok(());
        }
        let Some([used, limit, _]) = self.engine.db().engine().disk_use() else { return Ok(()) };
        let (fs, inside) = (&self.engine.fs, format!("{PATH}/"));
        let paths = fs.paths().into_iter().filter(|path| path.starts_with(&inside));
        let found: u64 = paths.map(|path| fs.len(path).unwrap_or_default()).sum();
        if found != used {
            return Err(format!("cap: the files take {found} bytes, and {used} are counted"));
        }
        if used > limit {
            return Err(format!("cap: {used} bytes are used, of {limit}"));
        }
        Ok(())
    }

    /// Opens the database anew without a limit, if there is one.
    pub(super) fn lift_cap(&mut self) -> Outcome {
        match self.engine.config.cap.take() {
            Some(_) => self.run(&Step::Reopen),
            None => Ok(Vec::new()),
        }
    }
}

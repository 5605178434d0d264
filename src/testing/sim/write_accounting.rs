//! Checks the wear account (the database's own counts of written bytes) at every opening: the
//! account must never lose counts.
//!
//! Invariants
//! * all existing table files are counted as written, however the run ended;
//! * neither a close nor a kill of the process loses the counts of commits and logs.

use crate::format::edit::Wear;

use super::runner::Runner;

impl Runner {
    /// Records the database's write counts before a close or a kill; at the next opening they must
    /// not be smaller. Records zeros if the database is not open, or if faults or damage may have
    /// changed its disk.
    pub(super) fn record_wear(&mut self) {
        let is_well = self.engine.is_open() && !self.may_differ_on_disk();
        self.wear = if is_well { self.engine.db().wear() } else { Wear::default() };
    }

    pub(super) fn check_wear(&self) -> Result<(), String> {
        let (wear, before) = (self.engine.db().wear(), &self.wear);
        let Wear { flush_bytes, compaction_bytes, import_bytes, .. } = wear;
        let written = flush_bytes + compaction_bytes + import_bytes;
        let there = self.engine.db().stats().get("file_bytes").unwrap_or_default();
        if written < there {
            return Err(format!("wear: {there} bytes of table files, and {written} written"));
        }
        for (what, now, before) in [
            ("commits", wear.user_bytes, before.user_bytes),
            ("logs", wear.log_bytes, before.log_bytes),
        ] {
            if now < before {
                return Err(format!("wear: {now} bytes of {what}, {before} before the end"));
            }
        }
        Ok(())
    }
}

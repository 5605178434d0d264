//! Makes backups into one directory, restores them, both as written and after a power cut, and
//! compares the result with the oracle.
//!
//! Invariants
//! * restoring an acknowledged backup gives the database as it was at the time of the backup;
//! * a restored database has a new incarnation;
//! * pruning leaves the remaining backups unchanged.
//!
//! `db::tests` tests backups with damaged files.

use crate::db::Backup;
use crate::error::Result as EngineResult;
use crate::fs::MemFs;

use super::counts::Event;
use super::oracle::differences;
use super::runner::{Outcome, Runner, none_of};

/// Directory of the backups.
const BACKUPS: &str = "backups";
/// After each backup whose number is a multiple of this constant, old backups are pruned; the
/// newest `PRUNED_EVERY - 1` remain.
const PRUNED_EVERY: u64 = 3;

impl Runner {
    pub(super) fn backup(&mut self) -> Outcome {
        let made = self.engine.db().backup(BACKUPS);
        let number = made.as_ref().ok().map(|generation| generation.number);
        let lines = self.excuse(made.map(drop))?;
        let Some(number) = number.filter(|_| !self.engine.power.is_gone()) else {
            return Ok(lines);
        };
        let visible = self.visible()?;
        let now = self.oracle.at(visible).into_owned();
        self.backups.insert(number, now);
        let oldest = self.backups.first_key_value().map_or(number, |(number, _)| *number);
        self.copies += 1;
        for image in [self.engine.fs.crash_image(self.copies), self.engine.fs.kill_image()] {
            self.restored(&image, number)?;
        }
        if number.is_multiple_of(PRUNED_EVERY) {
            self.prune()?;
        } else {
            self.restored(&self.engine.fs.kill_image(), oldest)?;
        }
        Ok(lines)
    }

    fn prune(&mut self) -> Result<(), String> {
        let kept = PRUNED_EVERY - 1;
        let pruned = self.backups_on(&self.engine.fs).and_then(|backups| {
            backups.prune(kept as usize)?;
            backups.generations()
        });
        let left = pruned.map_err(|error| format!("prune: {error:?}"))?;
        self.backups.retain(|number, _| left.iter().any(|generation| generation.number == *number));
        self.copies += 1;
        let image = self.engine.fs.crash_image(self.copies);
        let numbers: Vec<u64> = self.backups.keys().copied().collect();
        numbers.into_iter().try_for_each(|number| self.restored(&image, number))
    }

    fn backups_on(&self, fs: &MemFs) -> EngineResult<Backup> {
        self.engine.options_on(fs).open_backup(BACKUPS)
    }

    /// Restores backup `number` on `image` and compares it with the state that the oracle had when
    /// the backup was made.
    fn restored(&mut self, image: &MemFs, number: u64) -> Result<(), String> {
        let Some(expected) = self.backups.get(&number).cloned() else { return Ok(()) };
        let path = format!("restored{number}");
        let restored = self.backups_on(image).and_then(|backups| backups.restore(number, &path));
        restored.map_err(|error| format!("restore of backup {number}: {error:?}"))?;
        if self.engine.is_incarnation_of(image, &path) {
            return Err("restore: the copy has the incarnation of the database".into());
        }
        self.counts.note(Event::Backup);
        let looked = self.engine.look_at(image, &path);
        let (state, problems) = looked.map_err(|error| format!("backup {number}: {error:?}"))?;
        let wrong = differences(&expected, &state).into_iter().chain(problems).collect();
        none_of(wrong, &format!("backup {number}"))
    }
}

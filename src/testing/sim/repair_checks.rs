//! Checks `heal`, which replaces damaged files by sound copies, and `repair`, which keeps the data
//! that is still readable, on damaged copies of a closed database.
//!
//! Invariants
//! * a healed copy shows the state of the database and has no problems, even if it was compacted
//!   between damage and healing;
//! * a damaged file is not used to heal another one;
//! * a repaired copy shows all rows except the losses that the report names. It shows no deleted
//!   row and no old version of a row.

use crate::db::{RepairReport, SuspectRows};
use crate::error::ErrorKind;
use crate::fs::{Fs, MemFs};
use crate::rng::Rng;

use super::counts::Event;
use super::engine::PATH;
use super::oracle::{Tables, differences};
use super::runner::{Runner, none_of};

/// Directory of the undamaged files, as a backup stores them.
const SOUND: &str = "sound/files";
const REPAIRED: &str = "repaired";

impl Runner {
    /// Heals and repairs copies of `image`, in which the file `path` is damaged. `sound` is the
    /// image before the damage.
    pub(super) fn mended(
        &mut self,
        image: &MemFs,
        sound: &MemFs,
        path: &str,
        seed: u64,
    ) -> Result<(), String> {
        self.healed(&image.kill_image(), sound, path, seed)?;
        self.repaired(&image.kill_image(), path)
    }

    fn healed(
        &mut self,
        image: &MemFs,
        sound: &MemFs,
        path: &str,
        seed: u64,
    ) -> Result<(), String> {
        let mut rng = Rng::from_seed(seed);
        image.create_dir_all(SOUND.as_ref()).map_err(|error| format!("mend: {error}"))?;
        let is_unsound = rng.chance(1, 4);
        for (i, table) in tables_of(sound).iter().enumerate() {
            let mut bytes = sound.read(table).map_err(|error| format!("mend: {error}"))?;
            if is_unsound && table == path && !bytes.is_empty() {
                let at = rng.index(bytes.len());
                bytes[at] ^= 1;
            }
            // The sound file has another name, because healing must not depend on file names.
            let name = format!("{SOUND}/{i}.sst");
            image.write(&name, &bytes).map_err(|error| format!("mend: {error}"))?;
        }
        if rng.chance(1, 2) {
            self.compacted(image);
        }
        let healed = self.engine.options_on(image).heal(PATH, None, "sound", |_| ());
        let is_table = path.ends_with(".sst");
        let report = match healed {
            Ok(report) => report,
            Err(error) if !is_table && is_refusal(error.kind()) => return Ok(()),
            Err(error) => return Err(format!("heal: {path}: {error:?}")),
        };
        if is_unsound && is_table && !report.files.is_empty() {
            // The copy in `SOUND` is damaged, too, and must not be used. The check ends here,
            // because the database stays damaged.
            return match report.is_healed() {
                true => Err(format!("heal: {path} was replaced by a damaged copy")),
                false => Ok(()),
            };
        }
        // A log kept for the change feed is not healed, but no table needs it.
        let is_of_kept_log = |problem: &String| !is_table && problem.contains(path);
        let is_replaced = report.files.iter().all(|file| file.healed.is_some());
        if !is_replaced || !report.problems.iter().all(is_of_kept_log) {
            return Err(format!("heal: {report:?}"));
        }
        if !report.files.is_empty() {
            self.counts.note(Event::Healed);
        }
        let (state, problems) =
            self.engine.look_at(image, PATH).map_err(|error| format!("heal: {path}: {error:?}"))?;
        let mut wrong = differences(&self.oracle.tables, &state);
        wrong.extend(problems.into_iter().filter(|problem| !report.problems.contains(problem)));
        none_of(wrong, &format!("heal: {path}"))
    }

    /// Compacts the copy. This may fail in any way, but must lose nothing.
    fn compacted(&self, image: &MemFs) {
        if let Ok(db) = self.engine.options_on(image).create_if_missing(false).open(PATH) {
            drop(db.compact());
            drop(db.close());
        }
    }

    fn repaired(&mut self, image: &MemFs, path: &str) -> Result<(), String> {
        let repaired =
            self.engine.options_on(image).repair(PATH, REPAIRED, SuspectRows::LeaveOut, |_, _| ());
        let report = repaired.map_err(|error| format!("repair: {path}: {error:?}"))?;
        let looked = self.engine.look_at(image, REPAIRED);
        let (state, problems) = looked.map_err(|error| format!("repair: {path}: {error:?}"))?;
        self.counts.note(Event::Repaired);
        let mut wrong = match report.is_whole() {
            true => differences(&self.oracle.tables, &state),
            false => superfluous(&self.oracle.tables, &state, &report),
        };
        wrong.extend(problems);
        none_of(wrong, &format!("repair: {path}: {report:?}"))
    }
}

fn is_refusal(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Corruption | ErrorKind::Unsupported)
}

fn tables_of(image: &MemFs) -> Vec<String> {
    let mut paths = image.paths();
    paths.retain(|path| path.starts_with(&format!("{PATH}/")) && path.ends_with(".sst"));
    paths
}

/// Returns the tables and rows of a repaired database that `oracle` does not have. Empty if a log
/// has losses, because older versions of rows may then reappear.
fn superfluous(oracle: &Tables, state: &Tables, report: &RepairReport) -> Vec<String> {
    if report.losses.iter().any(|loss| loss.file.ends_with(".wal")) {
        return Vec::new();
    }
    let mut wrong = Vec::new();
    for (name, table) in state {
        let expected = oracle.get(name);
        let is_made_up = report.tables.iter().any(|t| t.is_name_lost && t.name == table.name);
        if expected.is_none() && !is_made_up {
            wrong.push(format!("table {name} is there"));
        }
        for (key, row) in table.rows.iter() {
            let is_right = match expected {
                Some(expected) => expected.rows.get(key) == Some(row),
                None => oracle.values().any(|table| table.rows.get(key) == Some(row)),
            };
            if !is_right {
                wrong.push(format!("{name}: {row:?} is there"));
            }
        }
    }
    wrong
}

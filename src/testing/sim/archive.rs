//! Runs archive steps. An archive step copies the entities of a table to another database and then
//! deletes the originals. It runs on copies of the simulated disk and is interrupted at random file
//! operations.
//!
//! Invariants
//! * wherever the step is interrupted, each entity still exists unchanged in the source table, or
//!   as a durable copy in the archive, or in both places;
//! * a further run completes the step: all entities are in the archive, no original is left, and
//!   neither database has anything else.

use std::collections::BTreeMap;

use crate::db::CopyJob;
use crate::error::Result as EngineResult;
use crate::fs::MemFs;
use crate::rng::Rng;

use super::counts::Event;
use super::engine::{PATH, state_of};
use super::row::Key;
use super::runner::{Outcome, Runner, line};
use super::value::Val;

/// Directory of the archive.
const ARCHIVE: &str = "archived";
/// The number of interruptions examined per step.
const ENDS: u64 = 3;

type Rows = BTreeMap<Key, BTreeMap<String, Val>>;

impl Runner {
    pub(super) fn archive(&mut self, table: &str, seed: u64) -> Outcome {
        let held = self.oracle.tables.get(&table.to_lowercase());
        if self.is_troubled() || held.is_none_or(|held| !held.gates.is_empty()) {
            return line("not now");
        }
        let image = self.engine.fs.kill_image();
        // Opening the image syncs the writes that the operating system had not written to disk.
        // Otherwise a power cut could remove these entities before they are archived.
        let all = self.rows_in(&image, PATH, table)?;
        if all.is_empty() {
            return line("nothing to archive");
        }
        image.record();
        self.archive_on(&image, table)?;
        let (first, last) = image.recorded().into_inner();
        self.archived(&image, table, &all, true)?;
        let mut rng = Rng::from_seed(seed);
        for _ in 0..ENDS {
            let op = first + rng.below(last - first + 1);
            let end = if rng.chance(1, 4) {
                image.kill_image_at(op)
            } else {
                image.crash_image_at(op, rng.next_u64())
            };
            let Some(end) = end else { return Err(format!("archive: no operation {op}")) };
            let told = |problem| format!("archive ended at operation {op}: {problem}");
            self.archived(&end, table, &all, false).map_err(told)?;
            self.archive_on(&end, table).map_err(told)?;
            self.archived(&end, table, &all, true).map_err(told)?;
        }
        self.counts.note(Event::Archived);
        line(format!("{} archived", all.len()))
    }

    fn archive_on(&self, image: &MemFs, table: &str) -> Result<(), String> {
        let archived = || -> EngineResult<()> {
            let options = self.engine.unthrottled_options_on(image);
            let source = options.clone().open(PATH)?;
            let target = options.open(ARCHIVE)?;
            let copy = target.table_or_create(table)?;
            let job = CopyJob::new(&source.table(table)?, &copy);
            job.then_delete(true).run().map(drop)
        };
        archived().map_err(|error| format!("archive: {error:?}"))
    }

    /// Compares the table in the database and in the archive with `all`, the rows before the step.
    fn archived(
        &self,
        image: &MemFs,
        table: &str,
        all: &Rows,
        is_done: bool,
    ) -> Result<(), String> {
        let (here, there) =
            (self.rows_in(image, PATH, table)?, self.rows_in(image, ARCHIVE, table)?);
        for (key, row) in all {
            let (is_here, is_there) = (here.get(key) == Some(row), there.get(key) == Some(row));
            if !is_there && (is_done || !is_here) {
                return Err(format!("the copy of {key:?} is {:?}, not {row:?}", there.get(key)));
            }
        }
        let is_known = |rows: &Rows| rows.iter().all(|(key, row)| all.get(key) == Some(row));
        if is_done && !here.is_empty() {
            return Err(format!("{} entities are left", here.len()));
        }
        if is_known(&here) && is_known(&there) { Ok(()) } else { Err("others are there".into()) }
    }

    /// Returns the entities of a table; empty if there is no such table. Closes the database, which
    /// makes all entities durable.
    fn rows_in(&self, image: &MemFs, path: &str, table: &str) -> Result<Rows, String> {
        let read = || -> EngineResult<Rows> {
            let db = self.engine.unthrottled_options_on(image).open(path)?;
            let state = state_of(&db)?;
            db.close()?;
            let rows = state.get(&table.to_lowercase()).map(|table| table.rows.iter());
            let rows = rows.into_iter().flatten();
            Ok(rows.map(|(key, row)| (key.clone(), row.properties.clone())).collect())
        };
        read().map_err(|error| format!("look at {path}: {error:?}"))
    }
}

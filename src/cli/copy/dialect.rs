//! `copy --check` of a directory: lists the entities that a service would refuse, before anything
//! is copied.

use std::io::Write;
use std::sync::{Arc, Mutex};

use super::Copy;
use crate::cli::failure::{Failure, Outcome, eprint_line};
use crate::cli::open::{open_table, open_to_read};
use crate::cli::output::print;
use crate::cli::progress::Progress;
use crate::clock::{Clock, SystemClock};
use crate::json::{self, report::put_problem};
use crate::query::Filter;
use crate::store::Dialect;

impl Copy {
    /// Reports the entities that a service with these rules would refuse.
    pub(super) fn run_check(&self, dialect: Dialect, filter: Filter) -> Outcome {
        let clock = SystemClock::new();
        let db = open_to_read(&self.db)?;
        let source = open_table(&db, &self.db, &self.table)?;
        let rejects =
            self.rejects.as_deref().map(|path| self.overwrite.create(path)).transpose()?;
        let rejects = rejects.map(|file| Arc::new(Mutex::new(file)));
        let is_table_refused = self.announce(dialect);
        let mut job = self.job(&source, &source, filter)?;
        if let Some(file) = rejects.clone() {
            job = job.on_problem(move |problem| {
                if let Ok(mut file) = file.lock() {
                    let line = json::object(|object| put_problem(object, problem));
                    // Ignores a write error, because the final flush reports it.
                    drop(writeln!(file, "{line}"));
                }
            });
        }
        let refuses = |entity: &_| dialect.refuses_entity(entity);
        let summary = Progress::during("rows", Some(0), |bar| {
            job.check_with(&refuses, |rows, of| bar.reach_of(rows, of))
        })?;
        drop((job, source));
        if let Some(Ok(mut file)) = rejects.as_ref().map(|file| file.lock()) {
            file.flush()?;
        }
        let seconds = clock.monotonic().as_secs_f64();
        print(|output| self.write(output, &summary, seconds))?;
        db.close()?;
        match summary.problem_count() > 0 || is_table_refused {
            true => Err(Failure::Rejected),
            false => Ok(()),
        }
    }

    /// Prints notes about the service. Returns whether it would refuse the name of the table.
    pub(super) fn announce(&self, dialect: Dialect) -> bool {
        dialect.notes().for_each(|note| eprint_line(&format!("note: {note}")));
        let table = dialect.refuses_table(self.target_name());
        table.iter().for_each(|reason| eprint_line(&format!("refused: {reason}")));
        table.is_some()
    }
}

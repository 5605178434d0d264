//! Passes parsed rows to their destination, and counts and reports them.

use std::io;
use std::sync::mpsc::Receiver;

use super::pipeline::{Parsed, next_batch};
use super::report::{Rejects, Summary, with_rule};
use super::sink::{Destination, Mode, Sink};
use crate::cli::failure::{Failure, Outcome};
use crate::cli::interrupt::Interrupt;
use crate::cli::progress::Progress;
use crate::table::Rejected;

/// A load in progress.
pub(super) struct Loading<'l> {
    pub(super) to: &'l Destination,
    pub(super) table: &'l str,
    pub(super) mode: Mode,
    pub(super) sink: Sink<'l>,
    pub(super) rejects: Rejects,
    pub(super) progress: Progress,
    pub(super) stop_on_error: bool,
    pub(super) summary: Summary,
    /// The number of the last row that was read.
    pub(super) last: u64,
}

impl Loading<'_> {
    /// Loads the rows until the end of the input, its error, or Ctrl-C. The inner result is that of
    /// reading the input, and the outer one that of the destination. Also returns the counts and
    /// the number of the last row that was read.
    pub(super) fn run(
        mut self,
        batches: &Receiver<io::Result<Vec<Parsed>>>,
        interrupt: &Interrupt,
    ) -> (Outcome<io::Result<()>>, Summary, u64) {
        let loaded = self.load(batches, interrupt);
        let reported = self.report().and_then(|()| self.rejects.finish());
        let (imported, present) = self.sink.counts();
        self.summary.imported = imported;
        self.summary.present += present;
        self.summary.rejected = self.rejects.count();
        (loaded.and_then(|ended| reported.map(|()| ended)), self.summary, self.last)
    }

    fn load(
        &mut self,
        batches: &Receiver<io::Result<Vec<Parsed>>>,
        interrupt: &Interrupt,
    ) -> Outcome<io::Result<()>> {
        let mut ended = Ok(());
        while let Some(batch) = next_batch(batches, interrupt) {
            match batch {
                Ok(batch) => self.add(batch)?,
                Err(error) => {
                    ended = Err(error);
                    break;
                }
            }
            self.report()?;
            if self.is_stopped() {
                break;
            }
        }
        self.sink.flush()?;
        Ok(ended)
    }

    fn add(&mut self, batch: Vec<Parsed>) -> Outcome {
        self.progress.advance(batch.len() as u64);
        for (line, row) in batch {
            self.summary.rows += 1;
            self.last = line;
            match row {
                Ok(entity) if self.mode.resume && self.to.has(self.table, &entity)? => {
                    self.summary.present += 1;
                }
                Ok(entity) => self.sink.push(line, entity)?,
                Err(error) => self.rejects.add(line, &error, &self.progress)?,
            }
            if self.is_stopped() {
                break;
            }
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.stop_on_error && self.rejects.count() > 0
    }

    /// Reports the rows that the destination has rejected since the last call.
    fn report(&mut self) -> Outcome {
        let (rejects, progress) = (&mut self.rejects, &self.progress);
        let rejected = self.sink.take_rejected();
        let add = |row: Rejected| rejects.add(row.line, &with_rule(row.error), progress);
        rejected.into_iter().try_for_each(add)
    }
}

/// Whether the destination failed, so that the rows before the failure are worth counting.
pub(super) fn is_of_store(failure: &Failure) -> bool {
    matches!(failure, Failure::Operation(_))
}

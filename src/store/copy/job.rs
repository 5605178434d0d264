//! The workers of a copy between two stores.

use super::plan::{PROBLEMS_MAX, StoreCopy, Tally, Traffic, key};
use super::pool::{Pool, is_ordered};
use super::state::{Saved, StateFile};
use super::write::{Writing, is_state_of, same_table};
use crate::db::CopySummary;
use crate::error::{Code, Error, ErrorKind, Result, quoted};
use crate::model::Entity;
use crate::mutants::mutant;
use crate::store::pages::Side;
use crate::store::slice::Slice;
use crate::store::workers::on_threads;
use crate::sync::Mutex;
use crate::table::quoted_entity;

impl StoreCopy<'_> {
    /// Runs the job from the positions in `state`, or from the beginning. When everything is
    /// copied, the file has no positions. The caller removes it after the summary is reported:
    /// without the file, a copy under new keys that runs again reports its copies as conflicts.
    ///
    /// # Errors
    /// `InvalidInput` for options that exclude each other. Errors that end reading or writing. The
    /// job may then be run again. Problems of single entities are in the summary.
    pub(crate) fn run(&self, state: Option<&StateFile>) -> Result<(CopySummary, Traffic)> {
        self.check()?;
        let saved = state.map(StateFile::read).transpose()?.flatten();
        self.check_target(saved.as_ref())?;
        let whole = || Saved { slices: vec![Slice::default()], ..Saved::default() };
        let Saved { slices, begun, found, problems } = saved.unwrap_or_else(whole);
        let [conflicts, shared, refused, changed] = problems;
        let summary = CopySummary { conflicts, shared, refused, changed, ..CopySummary::default() };
        let tally = Mutex::new(Tally { summary, found, ..Tally::default() });
        let run = Run { job: self, state, pool: Pool::new(slices), tally, begun };
        on_threads(self.workers, || run.work());
        if let Some(error) = run.pool.failure() {
            // The first error is the one to report. In another order than that of the keys, there
            // are entities left before a position.
            drop(match error.kind() {
                ErrorKind::Unsupported => state.map_or(Ok(()), StateFile::remove),
                _ => run.save(true),
            });
            return Err(error);
        }
        run.save(true)?;
        let Tally { summary, traffic, .. } = run.tally.into_inner();
        Ok((summary, traffic))
    }

    /// Checks that the target still has what it had if the job is continued. Checks that it is not
    /// the source itself under another name, where copies under new keys would be copied again.
    fn check_target(&self, saved: Option<&Saved>) -> Result<()> {
        let Some(target) = self.target else { return Ok(()) };
        let keys = ["PartitionKey", "RowKey", "Timestamp"].map(str::to_owned);
        let first = |side: Side<'_>| side.rows("", &keys, 1).next().transpose();
        if let Some(saved) = saved {
            let found = match &saved.found {
                Some((pk, rk)) => target.store.get(target.table, pk, rk, &["PartitionKey"]),
                None => first(target),
            };
            let advice = "remove its --state file to begin again";
            let found =
                found.map_err(|error| match error.code() == Code::TableNotFound.as_str() {
                    true => {
                        error.during(format!("continue a copy whose target is gone ({advice})"))
                    }
                    false => error,
                })?;
            if let (Some((pk, rk)), None) = (&saved.found, found) {
                let text = format!(
                    "the copy cannot continue: {} was in the target, and is not in {} now. The \
                     table was made again, or entities were deleted; {advice}",
                    quoted_entity((pk, rk)),
                    quoted("table", target.table)
                );
                return Err(Error::refused_with(Code::InvalidInput, text));
            }
        }
        if !self.is_rekeyed() {
            return Ok(());
        }
        let Some(first) = first(self.source)? else { return Ok(()) };
        let (pk, rk) = (first.partition_key(), first.row_key());
        match target.store.get(target.table, pk, rk, &[])? {
            Some(found) if is_state_of(&first, &found) => Err(same_table(&first)),
            _ => Ok(()),
        }
    }

    pub(super) fn is_rekeyed(&self) -> bool {
        self.partition_key.is_some() || self.row_key.is_some()
    }

    fn check(&self) -> Result<()> {
        let refused = |text: &'static str| Err(Error::refused_with(Code::InvalidInput, text));
        let is_rekeyed = self.is_rekeyed();
        // Two entities of the source may get the same new key. A later page cannot tell the copy of
        // an earlier page from an entity that was there before.
        match is_rekeyed {
            true if self.then_delete => refused(
                "--then-delete with new keys needs two directories: two entities may get one key",
            ),
            true if self.replace => refused(
                "--replace with new keys needs two directories: two entities may get one key",
            ),
            _ => Ok(()),
        }
    }
}

/// A job in progress.
struct Run<'r> {
    job: &'r StoreCopy<'r>,
    state: Option<&'r StateFile>,
    pool: Pool,
    tally: Mutex<Tally>,
    /// The ranges in which earlier runs of the job may have copied entities.
    begun: Vec<Slice>,
}

impl Run<'_> {
    fn work(&self) {
        loop {
            let done = match self.pool.take(self.job.source, self.job.page_rows) {
                Ok(None) => return,
                Ok(Some((id, slice))) => self.slice(id, &slice),
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                return self.pool.fail(error);
            }
        }
    }

    fn slice(&self, id: u64, slice: &Slice) -> Result<()> {
        let (job, pool) = (self.job, &self.pool);
        let mut pages = job.source.pages(slice.filters(&job.filter), &job.names(), job.page_rows);
        let mut last: Option<Entity> = None;
        while let Some(mut page) = pages.next()? {
            if !is_ordered(last.as_ref(), &page) {
                let table = quoted("table", job.source.table);
                let message =
                    format!("{table} cannot be copied: its entities are not in key order");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            let is_end = pool.read(id, &mut page);
            if let Some(end) = page.last().cloned() {
                // A later run knows copies under new keys only by the range.
                if job.is_rekeyed() {
                    self.save(true)?;
                }
                let advance = || {
                    pool.advance(id, key(&end));
                    self.save(false)
                };
                if mutant!("saved-early") {
                    advance()?;
                }
                self.page(page)?;
                advance()?;
                last = Some(end);
            }
            // Another worker had an error.
            if is_end || pool.failure().is_some() {
                break;
            }
        }
        if pool.failure().is_none() {
            pool.finish(id);
        }
        Ok(())
    }

    fn page(&self, page: Vec<Entity>) -> Result<()> {
        let mut of_page = Tally::default();
        let mut writing = Writing { job: self.job, begun: &self.begun, tally: &mut of_page };
        let written = writing.page(page);
        let mut tally = self.tally.lock();
        let Tally { summary, traffic, found } = of_page;
        tally.summary.add(summary, PROBLEMS_MAX);
        tally.traffic.source.add(&traffic.source);
        tally.traffic.target.add(&traffic.target);
        tally.found = found.or(tally.found.take());
        (self.job.on_progress)(tally.summary.rows);
        written
    }

    /// Saves the state of the job, unless it was saved a short time ago and need not be saved now.
    fn save(&self, must: bool) -> Result<()> {
        self.state.map_or(Ok(()), |state| state.write(must, || self.saved()))
    }

    /// Returns the state of the job. The problems are read last, so those of all finished parts are
    /// counted.
    fn saved(&self) -> Saved {
        let slices = self.pool.remaining();
        let is_left = |begun: &&Slice| slices.iter().any(|slice| slice.overlaps(begun));
        let mut begun: Vec<_> = self.begun.iter().filter(is_left).cloned().collect();
        begun.extend(self.pool.begun());
        let tally = self.tally.lock();
        let summary = &tally.summary;
        let problems = [summary.conflicts, summary.shared, summary.refused, summary.changed];
        Saved { slices, begun, found: tally.found.clone(), problems }
    }
}

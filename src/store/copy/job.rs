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

impl StoreCopy<'_> {
    /// Runs the job from the positions in `state`, or from the beginning. Removes the file when
    /// everything is copied.
    ///
    /// # Errors
    /// `InvalidInput` for options that exclude each other. Errors that end reading or writing. The
    /// job may then be run again. Problems of single entities are in the summary.
    pub(crate) fn run(&self, state: Option<&StateFile>) -> Result<(CopySummary, Traffic)> {
        self.check()?;
        let saved = state.map(StateFile::read).transpose()?.flatten();
        self.check_target(saved.is_some())?;
        let whole = || Saved { slices: vec![Slice::default()], ..Saved::default() };
        let Saved { slices, problems } = saved.unwrap_or_else(whole);
        let [conflicts, shared, refused, changed] = problems;
        let summary = CopySummary { conflicts, shared, refused, changed, ..CopySummary::default() };
        let pool = Pool::new(slices);
        let tally = Mutex::new(Tally { summary, ..Tally::default() });
        on_threads(self.workers, || self.work(&pool, state, &tally));
        if let Some(error) = pool.failure() {
            // The first error is the one to report. In another order than that of the keys, there
            // are entities left before a position.
            drop(state.map(|state| match error.kind() {
                ErrorKind::Unsupported => state.remove(),
                _ => state.write(true, || saved_of(&pool, &tally)),
            }));
            return Err(error);
        }
        state.map_or(Ok(()), StateFile::remove)?;
        let Tally { summary, traffic } = tally.into_inner();
        Ok((summary, traffic))
    }

    /// Checks that the target still exists if the job is continued. Checks that it is not the
    /// source itself under another name, where copies under new keys would be copied again.
    fn check_target(&self, is_continued: bool) -> Result<()> {
        let Some(target) = self.target else { return Ok(()) };
        let keys = ["PartitionKey", "RowKey", "Timestamp"].map(str::to_owned);
        let first = |side: Side<'_>| side.rows("", &keys, 1).next().transpose();
        if is_continued {
            first(target).map_err(|error| match error.code() == Code::TableNotFound.as_str() {
                true => error.during(
                    "continue a copy whose target is gone (remove its --state file to begin again)",
                ),
                false => error,
            })?;
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

    fn work(&self, pool: &Pool, state: Option<&StateFile>, tally: &Mutex<Tally>) {
        loop {
            let done = match pool.take(self.source, self.page_rows) {
                Ok(None) => return,
                Ok(Some((id, slice))) => self.slice(pool, (id, &slice), state, tally),
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                return pool.fail(error);
            }
        }
    }

    fn slice(
        &self,
        pool: &Pool,
        (id, slice): (u64, &Slice),
        state: Option<&StateFile>,
        tally: &Mutex<Tally>,
    ) -> Result<()> {
        let mut pages =
            self.source.pages(slice.filters(&self.filter), &self.names(), self.page_rows);
        let mut last: Option<Entity> = None;
        while let Some(mut page) = pages.next()? {
            if !is_ordered(last.as_ref(), &page) {
                let table = quoted("table", self.source.table);
                let message =
                    format!("{table} cannot be copied: its entities are not in key order");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            let is_end = pool.read(id, &mut page);
            if let Some(end) = page.last().cloned() {
                let advance = || {
                    pool.advance(id, key(&end));
                    state.map_or(Ok(()), |state| state.write(false, || saved_of(pool, tally)))
                };
                if mutant!("saved-early") {
                    advance()?;
                }
                self.page(page, tally)?;
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

    fn page(&self, page: Vec<Entity>, tally: &Mutex<Tally>) -> Result<()> {
        let mut of_page = Tally::default();
        let mut writing = Writing { job: self, tally: &mut of_page };
        let written = writing.page(page);
        let mut tally = tally.lock();
        let Tally { summary, traffic } = of_page;
        tally.summary.add(summary, PROBLEMS_MAX);
        tally.traffic.source.add(&traffic.source);
        tally.traffic.target.add(&traffic.target);
        (self.on_progress)(tally.summary.rows);
        written
    }
}

/// Returns the state of a job. The problems are read last, so those of all finished parts are
/// counted.
fn saved_of(pool: &Pool, tally: &Mutex<Tally>) -> Saved {
    let slices = pool.remaining();
    let tally = tally.lock();
    let summary = &tally.summary;
    let problems = [summary.conflicts, summary.shared, summary.refused, summary.changed];
    Saved { slices, problems }
}

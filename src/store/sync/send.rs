//! Sends the units of a plan to the target.
//!
//! Invariants
//! * a unit is removed from its queue only when the target has acknowledged all its rows, or when
//!   a refused row was reported;
//! * a unit is sent only if the units before it in its partition were acknowledged;
//! * nothing is sent after the lease has ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::plan::{Queue, Unit};
use super::problem::{Report, SyncProblem, SyncProblemKind};
use super::stamp::Stamp;
use crate::clock::Clock;
use crate::error::{Code, Error, ErrorKind, Result};
use crate::mutants::mutant;
use crate::store::groups::is_of_group;
use crate::store::table_store::{Condition, TableStore};
use crate::store::workers;
use crate::table::{EntityGroup, Operation, quoted_entity};

/// The counts of what was sent.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) requests: AtomicU64,
    pub(super) rows: AtomicU64,
    pub(super) problems: AtomicU64,
}

pub(super) struct Sender<'s> {
    pub(super) target: &'s dyn TableStore,
    pub(super) clock: &'s dyn Clock,
    /// The monotonic time at which the lease ends.
    pub(super) until: Duration,
    pub(super) workers: usize,
    pub(super) split_groups: bool,
    pub(super) stamp: Option<&'s Stamp>,
    /// `None` if a refused row is an error.
    pub(super) report: Option<&'s Report<'s>>,
    pub(super) counts: &'s Counts,
}

impl Sender<'_> {
    /// Sends all units, of several partitions at once. Returns false if the lease has ended.
    pub(super) fn send(&self, queues: Vec<&mut Queue>) -> Result<bool> {
        let done = workers::run(queues, self.workers, |queue| self.queue(queue))?;
        Ok(done.into_iter().all(|is_done| is_done))
    }

    /// Whether the lease has ended. Then nothing may be sent before it is renewed.
    pub(super) fn is_over(&self) -> bool {
        self.clock.monotonic() >= self.until
    }

    fn queue(&self, queue: &mut Queue) -> Result<bool> {
        let Queue { table, partition_key, units } = queue;
        while let Some(unit) = units.front_mut() {
            if self.is_over() {
                return Ok(false);
            }
            let rows = unit.rows.len() as u64;
            let Err(error) = self.unit(table, partition_key, unit) else {
                self.counts.rows.fetch_add(rows, Ordering::Relaxed);
                units.pop_front();
                continue;
            };
            if let Some(rest) = self.amend(table, partition_key, unit, error)?
                && !mutant!("lost-part")
            {
                units.insert(1, rest);
            }
            if units.front().is_some_and(|unit| unit.rows.is_empty()) {
                units.pop_front();
            }
        }
        Ok(true)
    }

    /// Sends a unit. A row alone needs no group.
    fn unit(&self, table: &str, partition_key: &str, unit: &Unit) -> Result<()> {
        if let Some(refusal) = unit.refusal() {
            return Err(refusal);
        }
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        let mut rows = unit.rows.iter();
        if let (Some((row_key, row)), None) = (rows.next(), rows.next()) {
            return match &row.entity {
                Some(entity) => self.target.upsert(table, entity).map(drop),
                None => {
                    let condition = row.etag.clone().map_or(Condition::None, Condition::Match);
                    self.target.delete(table, partition_key, row_key, &condition)
                }
            };
        }
        let operations = unit.rows.iter().map(|(row_key, row)| match &row.entity {
            Some(entity) => Operation::Upsert(entity.clone()),
            None => Operation::Delete {
                partition_key: partition_key.to_owned(),
                row_key: row_key.clone(),
                etag: row.etag.clone(),
            },
        });
        let group = EntityGroup::from_operations(operations)?;
        self.target.commit(table, &group).map(drop)
    }

    /// Changes a unit or its table so that it can be sent again. Returns a part of the unit that
    /// must follow.
    ///
    /// # Errors
    /// `error`, if the unit cannot be changed.
    fn amend(
        &self,
        table: &str,
        partition_key: &str,
        unit: &mut Unit,
        error: Error,
    ) -> Result<Option<Unit>> {
        let index = error.index().or((unit.rows.len() == 1).then_some(0));
        let index = index.filter(|index| *index < unit.rows.len());
        let row = |index: &usize| unit.rows.values().nth(*index);
        let is_delete = |index: &usize| row(index).is_some_and(|row| row.entity.is_none());
        let has_etag = |index: &usize| row(index).is_some_and(|row| row.etag.is_some());
        match (error.kind(), index) {
            _ if error.code() == Code::TableNotFound.as_str() => {
                self.missing_table(table, partition_key, unit)?;
            }
            // The row was deleted by a group whose answer was lost, or it was never there.
            (ErrorKind::NotFound, Some(index)) if is_delete(&index) => drop(unit.remove(index)),
            // Another program has written the row.
            (ErrorKind::PreconditionFailed, Some(index)) if has_etag(&index) => {
                drop(unit.remove(index));
            }
            _ if is_of_group(&error) && unit.rows.len() > 1 => {
                if !self.split_groups {
                    let rows = unit.rows.len();
                    let text = format!(
                        "the target refuses a group of {rows} rows of table '{table}' for its size"
                    );
                    return Err(error.during(text));
                }
                return Ok(Some(unit.split_at(unit.rows.len() / 2)));
            }
            (ErrorKind::InvalidInput, Some(index)) => {
                if let Some((row_key, _)) = unit.remove(index) {
                    if mutant!("refusal-ends") {
                        drop(unit.split_at(index));
                    }
                    self.refuse(table, Some((partition_key, &row_key)), error)?;
                }
            }
            _ => return Err(error),
        }
        Ok(None)
    }

    /// Creates the table of a unit, unless the unit has only deletes. If the table is refused, its
    /// rows are.
    fn missing_table(&self, table: &str, partition_key: &str, unit: &mut Unit) -> Result<()> {
        if unit.rows.values().all(|row| row.entity.is_none()) {
            drop(unit.split_at(0));
            return Ok(());
        }
        let Err(error) = create_table(self.target, table) else { return Ok(()) };
        if error.kind() != ErrorKind::InvalidInput {
            return Err(error);
        }
        for row_key in unit.split_at(0).rows.keys() {
            self.refuse(table, Some((partition_key, row_key)), error.clone())?;
        }
        Ok(())
    }

    /// Reports a row or table that the target refuses.
    ///
    /// # Errors
    /// `error`, if there is no report.
    pub(super) fn refuse(
        &self,
        table: &str,
        row: Option<(&str, &str)>,
        error: Error,
    ) -> Result<()> {
        if mutant!("silent-refusal") {
            return Ok(());
        }
        if self.report.is_none() {
            let object =
                row.map_or_else(String::new, |keys| format!("{} of ", quoted_entity(keys)));
            return Err(error.during(format!("the sync cannot carry {object}table '{table}'")));
        }
        self.tell(SyncProblemKind::Refused, table, row, error.message().to_owned())
    }

    /// Reports and counts a problem.
    pub(super) fn tell(
        &self,
        kind: SyncProblemKind,
        table: &str,
        row: Option<(&str, &str)>,
        message: String,
    ) -> Result<()> {
        self.counts.problems.fetch_add(1, Ordering::Relaxed);
        let row = row.map(|(pk, rk)| (pk.to_owned(), rk.to_owned()));
        let problem = SyncProblem { kind, table: table.to_owned(), row, message };
        self.report.map_or(Ok(()), |report| report(&problem))
    }
}

/// Drops a table if it exists.
pub(super) fn drop_table(target: &dyn TableStore, table: &str) -> Result<()> {
    match target.delete_table(table) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        dropped => dropped,
    }
}

/// Creates a table unless it exists.
pub(super) fn create_table(target: &dyn TableStore, table: &str) -> Result<()> {
    match target.create_table(table) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        created => created,
    }
}

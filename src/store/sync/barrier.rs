//! Carries the changes that are no writes of single rows: created and dropped tables, deleted and
//! imported ranges. They are barriers: everything before them is acknowledged first, and nothing
//! after them is sent before they are.
//!
//! Expired rows are carried only if asked: otherwise the target keeps what the source lets go.

use super::plan::{Plan, Write};
use super::problem::SyncProblemKind;
use super::send::{Sender, create_table, drop_table};
use super::stamp::Stamp;
use crate::db::Change;
use crate::error::{Code, Error, ErrorKind, Result};
use crate::model::DateTime;
use crate::mutants::mutant;
use crate::query::KeyRange;
use crate::store::continuation::Continuation;
use crate::store::pages::{PAGE_MAX, Side, contains, filter};
use crate::store::source::{Source, View};
use crate::store::table_store::PageQuery;

/// Carries barriers.
pub(super) struct Barriers<'b, 's> {
    pub(super) sender: Sender<'s>,
    pub(super) source: &'b Source,
    pub(super) allow_drop: bool,
    /// The position in an imported range, or in a table of which rows have expired.
    pub(super) next: &'b mut Option<Continuation>,
    /// Receives the writes that a barrier becomes.
    pub(super) plan: &'b mut Plan,
}

/// The rows of an imported range that are read at once. A row has at most 1 MiB.
const IMPORT_PAGE: usize = 100;

/// Whether a change is a barrier.
pub(super) fn is_barrier(change: &Change, stamp: Option<&Stamp>) -> bool {
    match change {
        Change::Put { .. } | Change::Deleted { .. } => false,
        Change::Expired { .. } => {
            stamp.is_some_and(|stamp| stamp.expires)
                || mutant!("carried-expiry")
                || mutant!("carried-drop")
        }
        _ => true,
    }
}

impl Barriers<'_, '_> {
    /// Carries or plans a part of a barrier. Returns whether it was the last one.
    pub(super) fn part(&mut self, change: &Change) -> Result<bool> {
        if self.sender.is_over() {
            return Ok(false);
        }
        match change {
            Change::TableCreated { table } => self.create(table).map(|()| true),
            Change::TableDropped { table } => self.drop_table(table).map(|()| true),
            Change::RangeDeleted { table, range } => self.delete_range(table, range),
            Change::Imported { .. } if mutant!("skipped-import") => Ok(true),
            Change::Imported { table, range } => self.import(table, range),
            Change::Expired { table, .. } if mutant!("carried-expiry") => {
                self.delete_range(table, &KeyRange::all())
            }
            Change::Expired { table, .. }
                if mutant!("carried-drop")
                    && matches!(self.source.view()?, View::Db(db) if db.ttl(table)?.is_none()) =>
            {
                self.delete_range(table, &KeyRange::all())
            }
            Change::Expired { table, before } => self.expire(table, *before),
            Change::Put { .. } | Change::Deleted { .. } => Ok(true),
        }
    }

    fn create(&self, table: &str) -> Result<()> {
        match create_table(self.sender.target, table) {
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                self.sender.refuse(table, None, error)
            }
            created => created,
        }
    }

    fn drop_table(&self, table: &str) -> Result<()> {
        if self.allow_drop || mutant!("unasked-drop") {
            return drop_table(self.sender.target, table);
        }
        let text = "the source dropped the table";
        if self.sender.report.is_none() {
            let text = format!("{text} '{table}', and the sync may not drop it at the target");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        self.sender.tell(SyncProblemKind::Kept, table, None, text.to_owned())
    }

    /// Deletes the range in one commit if the target can. Otherwise plans the deletes of a page of
    /// its rows. Nothing is sent after a lost answer until the delete can no longer take effect, so
    /// it removes no rows of later commits.
    fn delete_range(&mut self, table: &str, range: &KeyRange) -> Result<bool> {
        match self.sender.target.delete_range(table, range) {
            Ok(false) => {}
            Err(error) if error.code() != Code::TableNotFound.as_str() => return Err(error),
            _ => return Ok(true),
        }
        let side = Side { store: self.sender.target, table };
        let keys = ["PartitionKey", "RowKey"].map(str::to_owned);
        let mut pages = side.pages(vec![filter(range)], &keys, PAGE_MAX);
        while self.plan.is_empty() {
            let page = match pages.next() {
                Err(error) if error.code() == Code::TableNotFound.as_str() => return Ok(true),
                page => page?,
            };
            let Some(page) = page else { return Ok(true) };
            let rows = page.iter().filter(|row| contains(range, row));
            rows.for_each(|row| {
                self.plan.add([Write::delete(table, row.partition_key(), row.row_key())]);
            });
        }
        Ok(false)
    }

    /// Plans the deletes of those rows in a page of the target whose stamp tells that the source
    /// has let them go.
    fn expire(&mut self, table: &str, before: DateTime) -> Result<bool> {
        let Some(stamp) = self.sender.stamp else { return Ok(true) };
        let (filter, continuation) = (stamp.filter(before), self.next.as_ref());
        let select = &[&*stamp.property];
        let query = PageQuery { filter: &filter, top: PAGE_MAX, continuation, select };
        let page = match self.sender.target.query(table, &query) {
            Err(error) if error.code() == Code::TableNotFound.as_str() => return Ok(true),
            page => page?,
        };
        let rows = page.entities.iter().filter(|row| stamp.is_before(before, row));
        let view = self.source.view()?;
        let mut is_kept = false;
        // Without an ETag a later write could be deleted.
        for (row, etag) in rows.filter_map(|row| Some((row, row.etag()?))) {
            // The target may have refused a later state.
            let (pk, rk) = (row.partition_key(), row.row_key());
            let kept = view.store().get(table, pk, rk, &["PartitionKey", "Timestamp"]);
            let kept =
                kept.or_else(|error| match error.code() == Code::TableNotFound.as_str() {
                    true => Ok(None),
                    false => Err(error),
                })?;
            if kept.is_some_and(|row| row.timestamp().is_none_or(|time| time >= before)) {
                is_kept = true;
                continue;
            }
            let delete = Write::delete(table, row.partition_key(), row.row_key());
            self.plan.add([Write { etag: Some(etag), ..delete }]);
        }
        if is_kept {
            // A power cut must not revert the state that keeps a row here.
            self.source.settle()?;
        }
        *self.next = page.next;
        Ok(self.next.is_none())
    }

    /// Plans a copy of a page of the range as it is now. Later changes of its rows are in the feed.
    fn import(&mut self, table: &str, range: &KeyRange) -> Result<bool> {
        let view = self.source.view()?;
        let filter = filter(range);
        let continuation = self.next.as_ref();
        let query = PageQuery { filter: &filter, top: IMPORT_PAGE, continuation, select: &[] };
        let page = match view.store().query(table, &query) {
            Err(error) if error.code() == Code::TableNotFound.as_str() => return Ok(true),
            page => page?,
        };
        self.source.settle()?;
        for row in page.entities.into_iter().filter(|row| contains(range, row)) {
            self.plan.add([Write::put(table, row, self.sender.stamp)]);
        }
        *self.next = page.next;
        Ok(self.next.is_none())
    }
}

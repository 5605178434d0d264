//! Makes the target like one state of the source, where the feed cannot: at the first start, and
//! when changes are no longer kept.
//!
//! Invariants
//! * the position is taken before the first row is read, so later changes are all in the feed;
//! * a row that only the target has stays, since the source may have let it go. It is deleted if
//!   that is asked for, and then the source must have no table that lets rows go.

use std::collections::{BTreeMap, VecDeque};

use super::mark;
use super::plan::{Plan, Write};
use super::problem::SyncProblemKind;
use super::send::{Sender, create_table, drop_table};
use crate::db::{Db, Position};
use crate::error::{Code, Error, ErrorKind, Result};
use crate::model::Entity;
use crate::mutants::mutant;
use crate::store::continuation::Continuation;
use crate::store::pages::{PAGE_MAX, Side};
use crate::store::slice::{Key, Slice, order};
use crate::store::source::{Source, View};
use crate::store::table_store::{Condition, PageQuery};

/// A comparison in progress.
pub(super) struct Snapshot {
    /// The position from which the feed continues afterwards.
    pub(super) position: Position,
    view: View,
    /// The tables that are left, the current one first.
    pub(super) tables: VecDeque<String>,
    current: Current,
    /// Whether rows that only the target has are deleted, and such tables dropped.
    missing: Missing,
    are_tables_checked: bool,
}

/// Whether a comparison deletes the rows and the tables that only the target has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing {
    pub(super) rows: bool,
    pub(super) tables: bool,
}

/// The progress in a table.
#[derive(Default)]
struct Current {
    is_begun: bool,
    /// Whether this comparison made the table at the target.
    is_new: bool,
    /// The last key of the previous page.
    after: Option<Key>,
    next: Option<Continuation>,
    /// The number of rows of the next page; 0 for the first one.
    top: usize,
}

/// The desired size of a page, and the number of rows of the first one.
const PAGE_BYTES: usize = 1 << 20;
const FIRST_PAGE: usize = 100;

impl Snapshot {
    /// # Errors
    /// `Unsupported` if rows are to be deleted, and a table of the source lets rows go.
    pub(super) fn new(view: View, missing: Missing) -> Result<Self> {
        let position = view.position();
        let tables = view.store().tables()?.into_iter().filter(|name| is_carried(name)).collect();
        if missing.rows {
            check_tables(&view)?;
        }
        let (current, are_tables_checked) = (Current::default(), false);
        Ok(Self { position, view, tables, current, missing, are_tables_checked })
    }

    /// Compares a page, and plans the rows that the target lacks or has in another state. Returns
    /// false if all tables are compared.
    pub(super) fn page(
        &mut self,
        source: &Source,
        sender: &Sender<'_>,
        plan: &mut Plan,
    ) -> Result<bool> {
        if sender.is_over() {
            return Ok(true);
        }
        if !self.are_tables_checked && !self.check_target(sender)? {
            return Ok(true);
        }
        self.are_tables_checked = true;
        let Some(table) = self.tables.front().cloned() else { return Ok(false) };
        if !self.current.is_begun && !self.begin(&table, sender)? {
            self.tables.pop_front();
            return Ok(true);
        }
        let Current { after, next, top, is_new, .. } = &self.current;
        let top = if *top == 0 { FIRST_PAGE } else { *top };
        let query = PageQuery { top, continuation: next.as_ref(), ..PageQuery::default() };
        let page = match self.view.store().query(&table, &query) {
            // The source dropped the table in the meantime, which the feed tells.
            Err(error) if error.code() == Code::TableNotFound.as_str() => {
                self.tables.pop_front();
                self.current = Current::default();
                return Ok(true);
            }
            page => page?,
        };
        // If that fails, the page is read again, because a power cut may have reverted its rows.
        if !mutant!("unsettled-page") {
            source.settle()?;
        }
        // A program may have set a time to live since.
        if let (true, View::Db(db)) = (self.missing.rows, &self.view) {
            check_table(db, &table)?;
        }
        let bytes: usize = page.entities.iter().map(Entity::size_at_most).sum();
        let last = page.entities.last().map(|row| {
            let (pk, rk) = (row.partition_key(), row.row_key());
            (pk.to_owned(), rk.to_owned())
        });
        let size = (bytes / page.entities.len().max(1)).max(1);
        let until = page.next.is_some().then_some(last).flatten();
        let write = |row| (order(&row), Write::put(&table, row, sender.stamp));
        let rows = page.entities.into_iter().map(write).collect();
        let slice = Slice { after: after.clone(), until: until.clone() };
        let differences = Differences { table: &table, deletes: self.missing.rows, sender };
        let (rows, is_whole) = if *is_new { (rows, true) } else { differences.of(&slice, rows)? };
        // One by one: rows of one group belong to different commits.
        rows.into_values().for_each(|write| plan.add([write]));
        if !is_whole {
            return Ok(true);
        }
        match page.next {
            // An empty page with a next one has no last key.
            Some(next) => {
                self.current.after = until.or(slice.after);
                self.current.next = Some(next);
                self.current.top = (PAGE_BYTES / size).clamp(1, PAGE_MAX);
            }
            None => {
                self.tables.pop_front();
                self.current = Current::default();
            }
        }
        Ok(true)
    }

    /// Reports the tables that only the target has, or drops them. Returns false if the lease has
    /// ended.
    fn check_target(&self, sender: &Sender<'_>) -> Result<bool> {
        let tables = match sender.target.tables() {
            // The credentials may be for some tables only.
            Err(error) if is_denied(&error) && !self.missing.tables => return Ok(true),
            tables => tables?,
        };
        let is_known =
            |name: &str| self.tables.iter().any(|known| known.eq_ignore_ascii_case(name));
        for table in tables.iter().filter(|name| is_carried(name) && !is_known(name)) {
            if self.missing.tables {
                if sender.is_over() {
                    return Ok(false);
                }
                drop_table(sender.target, table)?;
                continue;
            }
            let text = "only the target has this table".to_owned();
            sender.tell(SyncProblemKind::OnlyAtTarget, table, None, text)?;
        }
        Ok(true)
    }

    /// Creates the table unless the target has it. Returns false if the target refuses it.
    fn begin(&mut self, table: &str, sender: &Sender<'_>) -> Result<bool> {
        let query = PageQuery { select: &["PartitionKey"], top: 1, ..PageQuery::default() };
        self.current.is_new = match sender.target.query(table, &query) {
            Err(error) if error.code() == Code::TableNotFound.as_str() => {
                if let Err(error) = create_table(sender.target, table) {
                    return match error.kind() {
                        ErrorKind::InvalidInput => {
                            sender.refuse(table, None, error).map(|()| false)
                        }
                        _ => Err(error),
                    };
                }
                true
            }
            found => found.map(|_| false)?,
        };
        self.current.is_begun = true;
        Ok(true)
    }
}

/// Compares the rows of a table.
struct Differences<'d> {
    table: &'d str,
    /// Whether rows that only the target has are deleted.
    deletes: bool,
    sender: &'d Sender<'d>,
}

impl Differences<'_> {
    /// Returns those writes of a slice that the target lacks, and deletes or reports the rows that
    /// only the target has. Stamps are compared, too: an older one would let the row expire early.
    /// If there are many rows to delete, returns some deletes and false: the slice is then compared
    /// again.
    fn of(
        &self,
        slice: &Slice,
        mut rows: BTreeMap<Vec<u8>, Write>,
    ) -> Result<(BTreeMap<Vec<u8>, Write>, bool)> {
        let Self { table, deletes, sender } = *self;
        let mut pages =
            Side { store: sender.target, table }.pages(slice.filters(""), &[], PAGE_MAX);
        let mut missing = BTreeMap::new();
        while let Some(page) = pages.next()? {
            if missing.len() >= PAGE_MAX {
                return Ok((missing, false));
            }
            for found in page {
                let key = order(&found);
                match rows.get(&key) {
                    Some(write) if write.is_done_by(&found) => drop(rows.remove(&key)),
                    Some(_) => {}
                    None if deletes => {
                        let (pk, rk) = (found.partition_key(), found.row_key());
                        missing.insert(key, Write::delete(table, pk, rk));
                    }
                    None => self.only_at_target(&found)?,
                }
            }
        }
        rows.append(&mut missing);
        Ok((rows, true))
    }

    fn only_at_target(&self, found: &Entity) -> Result<()> {
        let Self { table, sender, .. } = *self;
        let (pk, rk) = (found.partition_key(), found.row_key());
        if mutant!("mirror") {
            sender.target.delete(table, pk, rk, &Condition::None)?;
        }
        let text = "only the target has this row".to_owned();
        sender.tell(SyncProblemKind::OnlyAtTarget, table, Some((pk, rk)), text)
    }
}

/// Refuses to delete what only the target has if the source may have let it go.
///
/// # Errors
/// `Unsupported`.
pub(super) fn check_tables(source: &View) -> Result<()> {
    match source {
        View::Db(db) => {
            let tables = db.tables()?;
            let mut tables = tables.iter().filter(|name| is_carried(name));
            tables.try_for_each(|table| check_table(db, table))
        }
        View::Remote(..) => Err(refusal("a server does not tell which of its tables let rows go")),
    }
}

/// As [`check_tables`], for one table. It may have been dropped.
fn check_table(db: &Db, table: &str) -> Result<()> {
    match db.lets_rows_go(table) {
        Ok(Some(reason)) => Err(refusal(&format!("{reason} of table '{table}'"))),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn refusal(reason: &str) -> Error {
    let text = format!("rows that only the target has cannot be deleted: {reason}");
    Error::new(ErrorKind::Unsupported, text)
}

/// Whether the credentials do not permit a request.
fn is_denied(error: &Error) -> bool {
    error.kind() == ErrorKind::Io && error.message().contains("Authorization")
}

/// Whether the changes of a table are carried.
pub(super) fn is_carried(table: &str) -> bool {
    !table.eq_ignore_ascii_case(mark::TABLE)
}

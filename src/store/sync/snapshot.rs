//! Makes the target like one state of the source, where the feed cannot: at the first start, and
//! when changes are no longer kept.
//!
//! Invariants
//! * the position is taken before the first row is read, so later changes are all in the feed;
//! * a row that only the target has stays: the source may have let it go.

use std::collections::{BTreeMap, VecDeque};

use super::mark;
use super::plan::{Plan, Write};
use super::problem::SyncProblemKind;
use super::send::{Sender, create_table};
use super::source::View;
use crate::db::Position;
use crate::error::{Code, ErrorKind, Result};
use crate::model::Entity;
use crate::mutants::mutant;
use crate::store::continuation::Continuation;
use crate::store::pages::{PAGE_MAX, Side};
use crate::store::slice::{Key, Slice, order};
use crate::store::table_store::{Condition, PageQuery};

/// A comparison in progress.
pub(super) struct Snapshot {
    /// The position from which the feed continues afterwards.
    pub(super) position: Position,
    view: View,
    /// The tables that are left, the current one first.
    pub(super) tables: VecDeque<String>,
    current: Current,
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
    pub(super) fn new(view: View) -> Result<Self> {
        let position = view.position();
        let tables = view.store().tables()?.into_iter().filter(|name| is_carried(name)).collect();
        Ok(Self { position, view, tables, current: Current::default() })
    }

    /// Compares a page, and plans the rows that the target lacks or has in another state. Returns
    /// false if all tables are compared.
    pub(super) fn page(&mut self, sender: &Sender<'_>, plan: &mut Plan) -> Result<bool> {
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
        let bytes: usize = page.entities.iter().map(Entity::size_at_most).sum();
        let last = page.entities.last().map(|row| {
            let (pk, rk) = (row.partition_key(), row.row_key());
            (pk.to_owned(), rk.to_owned())
        });
        let size = (bytes / page.entities.len().max(1)).max(1);
        let until = page.next.is_some().then_some(last).flatten();
        let rows = page.entities.into_iter().map(|row| (order(&row), row)).collect();
        let slice = Slice { after: after.clone(), until: until.clone() };
        let rows = if *is_new { rows } else { differences(&table, &slice, rows, sender)? };
        // One by one: rows of one group belong to different commits.
        rows.into_values().for_each(|row| plan.add([Write::put(&table, row)]));
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

/// Returns the rows of the source that the target lacks or has in another state, and reports those
/// that only the target has.
fn differences(
    table: &str,
    slice: &Slice,
    mut rows: BTreeMap<Vec<u8>, Entity>,
    sender: &Sender<'_>,
) -> Result<BTreeMap<Vec<u8>, Entity>> {
    let side = Side { store: sender.target, table };
    let mut pages = side.pages(slice.filters(""), &[], PAGE_MAX);
    while let Some(page) = pages.next()? {
        for found in page {
            let key = order(&found);
            match rows.get(&key) {
                Some(row) if row.has_properties_of(&found) => drop(rows.remove(&key)),
                Some(_) => {}
                None => {
                    if mutant!("mirror") {
                        let keys = (found.partition_key(), found.row_key());
                        sender.target.delete(table, keys.0, keys.1, &Condition::None)?;
                    }
                    let row = Some((found.partition_key(), found.row_key()));
                    let text = "only the target has this row".to_owned();
                    sender.tell(SyncProblemKind::OnlyAtTarget, table, row, text)?;
                }
            }
        }
    }
    Ok(rows)
}

/// Whether the changes of a table are carried.
pub(super) fn is_carried(table: &str) -> bool {
    !table.eq_ignore_ascii_case(mark::TABLE)
}

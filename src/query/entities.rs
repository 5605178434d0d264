//! Iterates over the rows of a query, as entities or in place.

use std::ops::ControlFlow;

use crate::error::Result;
use crate::lsm::{ScanRow, Step};
use crate::model::{Entity, Projector};
use crate::table::{RowView, Table};

use super::builder::Query;
use super::eval::Evaluator;
use super::exec::Cursor;

/// An iterator over the entities of a query.
pub struct Entities {
    cursor: Result<Cursor<Evaluator>>,
    projector: Option<Projector>,
    left: usize,
    /// The maximum number of entities requested.
    top: usize,
    table: Table,
}

impl Query {
    /// Calls `with` with each row in place, without copying it, until `with` breaks.
    ///
    /// # Errors
    /// As [`page`](Self::page), and errors of `with`.
    pub fn for_each_row(
        self,
        mut with: impl FnMut(&RowView<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut cursor = self.begin()?;
        let top = self.top.unwrap_or(usize::MAX);
        let mut left = top;
        while left > 0 {
            match cursor.advance()? {
                Step::End => break,
                Step::Pause => continue,
                Step::Row => left -= 1,
            }
            let row = cursor.row()?;
            if top - left > 1 {
                self.table.engine.writer().book_row(row.key);
            }
            if with(&RowView::new(row.key, row.seq, row.row))?.is_break() {
                break;
            }
            let engine = &self.table.engine;
            let visit = cursor.visit_batch(left, &mut |row: ScanRow<'_>| {
                engine.writer().book_row(row.key);
                with(&RowView::new(row.key, row.seq, row.row))
            })?;
            left -= visit.rows;
            if visit.is_over {
                break;
            }
        }
        cursor.finish((top - left) as u64);
        Ok(())
    }
}

impl IntoIterator for Query {
    type Item = Result<Entity>;
    type IntoIter = Entities;

    fn into_iter(self) -> Entities {
        let cursor = self.begin();
        let top = self.top.unwrap_or(usize::MAX);
        let projector = self.projector();
        Entities { cursor, projector, left: top, top, table: self.table }
    }
}

impl Drop for Entities {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Entities {
    /// Ends the query, and logs it if it was slow.
    fn finish(&mut self) {
        let returned = (self.top - self.left) as u64;
        if let Ok(cursor) = &mut self.cursor {
            cursor.finish(returned);
        }
    }
}

impl Iterator for Entities {
    type Item = Result<Entity>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let booked = (self.left < self.top).then_some(&self.table);
        let next = match &mut self.cursor {
            Ok(cursor) => advance(cursor, &mut self.projector, booked),
            Err(error) => Err(error.clone()),
        };
        match &next {
            Ok(Some(_)) => self.left -= 1,
            Ok(None) => {
                self.finish();
                self.left = 0;
            }
            // Every later call returns the same error, so that a failed scan neither appears
            // complete nor continues.
            Err(error) => self.cursor = Err(error.clone()),
        }
        next.transpose()
    }
}

impl std::fmt::Debug for Entities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entities").field("left", &self.left).finish_non_exhaustive()
    }
}

/// Returns the next entity. If `booked` is given, the read is charged to the scalability targets of
/// that table's database.
#[inline]
fn advance(
    cursor: &mut Cursor<Evaluator>,
    projector: &mut Option<Projector>,
    booked: Option<&Table>,
) -> Result<Option<Entity>> {
    loop {
        match cursor.advance()? {
            Step::Row => {
                let row = cursor.row()?;
                if let Some(table) = booked {
                    table.engine.writer().book_row(row.key);
                }
                return projected(&RowView::new(row.key, row.seq, row.row), projector).map(Some);
            }
            Step::Pause => {}
            Step::End => return Ok(None),
        }
    }
}

/// Returns the entity of a row view, projected if there is a projector.
#[inline]
pub(super) fn projected(row: &RowView<'_>, projector: &mut Option<Projector>) -> Result<Entity> {
    match projector {
        Some(projector) => row.project(projector),
        None => row.to_entity(),
    }
}
